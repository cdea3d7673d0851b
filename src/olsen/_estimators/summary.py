"""Fitted ensembles as people look at them: a summary, facts in a notebook, a page, a plain linear model.

Everything here reads what a fit has left and changes nothing. What needs the training rows is left empty where they are
gone (pickles, model files, fits in blocks), so that a model can always be looked at.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from .._engines import NeedsRows
from .._execution.files import atomically
from .._report.formatting import columns_of, escape_control, number, padded, percent, shortened
from .._report.pages import render
from .._report.summary import caution, summarise
from ..subsets import resolve_size
from .inputs import check_arguments, on_host

__all__ = ["Summary", "SummaryMixin", "facts"]

Array = NDArray[np.float64]

CRITERIA = {
    "loo": "leave-one-out",
    "gcv": "generalised cross-validation",
    "kfold": "k-fold cross-validation",
    "oob": "rows that members were not given",
}
WHOLE = 1e-9  # distance from a whole number that is rounding of a mean
FEW_MEMBERS = 200  # that stand for infinitely many
MOST_LINES = 30  # of a table that is printed

# The colours are those of the notebook, whatever its theme. Notebooks align cells to the right and stripe their rows.
STYLE = """
.olsen-summary { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.5em 1.5em; }
.olsen-facts { color: inherit; background: none; border: 1px solid rgba(128, 128, 128, 0.4); border-collapse: collapse;
  margin: 0.2em 0; font-size: 0.9em; }
.olsen-facts caption { caption-side: top; color: inherit; font-weight: bold; padding: 0.2em 0; text-align: left; }
.olsen-facts tr, .olsen-facts tr:nth-child(odd), .olsen-facts tr:hover { background: none; }
.olsen-facts th, .olsen-facts td { color: inherit; background: none; border: none;
  border-top: 1px solid rgba(128, 128, 128, 0.4); padding: 0.2em 0.7em; text-align: left; vertical-align: top; }
.olsen-facts th { font-weight: normal; opacity: 0.75; white-space: nowrap; }
.olsen-facts td { max-width: 26em; }
.olsen-facts td.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


class Summary:
    """What a fit came to: facts, coefficients with their uncertainty, and effects of the columns that went in.

    It prints as a table, and is one in a notebook. ``summary["coef"]`` is a column of ``summary.coefficients``.

    Attributes
    ----------
    facts : dict
        Rows, columns, members, the error of prediction and how it was estimated, as texts.
    coefficients : data frame
        One row for each column of the ensemble, see :meth:`OLSEnsembleRegressor.summary`.
    effects : data frame
        One row for each input column, the largest effects first: ``column``, ``effect``, its standard error ``std``,
        and the number of ``features`` that were made of it. An effect is the standard deviation of the column's part of
        the predictions over the training rows, with the sign of its coefficient where it has one: levels of a factor
        are taken together. Its standard error is that of the coefficients (status: asymptotic, by the delta method).
    """

    def __init__(self, model: Any, coverage: float, features: list[str], inputs: list[str]) -> None:
        design, coef = model._result().design, on_host(model.coef_)
        self.facts = {"rows": f"{design.n_rows}", "columns": f"{design.n_columns}", **dict(facts(model))}
        self._model, self._coverage, self._names, self._inputs = model, coverage, features, inputs
        places: dict[str, list[int]] = {}
        for j, name in enumerate(inputs):
            places.setdefault(name, []).append(j)
        self._places, q = places, coef.size // coef.shape[-1]
        self._of_features = _where_rows_are(lambda: model._effects([[j] for j in range(len(inputs))]), (2, coef.size))
        self._of_inputs = _where_rows_are(lambda: model._effects(list(places.values())), (2, q * len(places)))
        interval = _where_rows_are(lambda: model.coef_interval(coverage), (*coef.shape, 2))
        std = _where_rows_are(lambda: model.coef_std_, coef.shape)
        self._columns = {"coef": coef, "std": std, "lower": interval[..., 0], "upper": interval[..., 1]}

    @cached_property
    def coefficients(self) -> Any:  # attributes are described above
        model, coef = self._model, self._columns["coef"]
        columns = {
            **self._columns,
            "effect": self._of_features[0],
            "drawn": np.broadcast_to(model.inclusion_, coef.shape),
        }
        made = {"column": self._inputs} if self._inputs != self._names else {}
        return self._frame(self._names, "feature", {**columns, **_of_members(model, coef)}, made)

    @cached_property
    def effects(self) -> Any:
        made, (effect, std) = [len(own) for own in self._places.values()], self._of_inputs
        found = {"effect": effect, "std": std}
        return self._frame(
            list(self._places), "column", found, {"features": made}, np.argsort(-np.abs(effect), kind="stable")
        )

    def __getitem__(self, name: Any) -> Any:
        return self.coefficients[name]

    def __len__(self) -> int:
        return int(self._columns["coef"].size)

    def _frame(
        self, names: list[str], head: str, columns: dict[str, Any], beside: Any, order: Any = slice(None)
    ) -> Any:
        """A data frame with a row for each name, and for each target."""
        several = self._columns["coef"].ndim == 2
        q = len(self._columns["coef"]) if several else 1
        found: dict[str, Any] = {"target": np.repeat(np.arange(q), len(names))} if several else {}
        found[head] = np.tile(np.array(names, dtype=object), q)
        found |= {name: np.tile(np.array(values), q) for name, values in beside.items()}
        found |= {name: np.ravel(values) for name, values in columns.items()}
        return _data_frame(self._model._frame_library)({name: values[order] for name, values in found.items()})

    def _tables(self) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """Heads and cells of what is printed: coefficients, and effects of whole factors where there are some."""
        percents = [f"{50 * (1 - self._coverage):g}%", f"{50 * (1 + self._coverage):g}%"]
        columns = [*self._columns.values(), self._of_features[0]]
        yield self._table(("coefficients", "coef", "std err", *percents, "per s.d."), self._names, columns)
        if self._inputs != self._names:
            yield self._table(("effects", "effect", "std err"), list(self._places), list(self._of_inputs))

    @staticmethod
    def _table(
        heads: tuple[str, ...], names: list[str], columns: list[Array]
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        values = np.array([np.ravel(column) for column in columns])
        q, size = values.shape[1] // len(names), np.abs(values[-1] if len(heads) > 3 else values[0])
        size = np.where(np.isfinite(size), size, np.abs(values[0]))
        order = (
            np.argsort(-size, kind="stable")[:MOST_LINES]
            if len(size) > MOST_LINES or len(heads) == 3
            else range(len(size))
        )
        left = f", the largest {MOST_LINES} of {len(size)}" if len(size) > MOST_LINES else ""
        where = [f"target {i // len(names)}: " if q > 1 else "" for i in order]
        cells = [
            (w + names[i % len(names)], *(number(v) for v in values[:, i])) for w, i in zip(where, order, strict=True)
        ]
        return (heads[0] + left, *heads[1:]), cells

    def __str__(self) -> str:
        lines = [
            type(self._model).__name__,
            *(f"  {name:<21}{escape_control(fact)}" for name, fact in self.facts.items()),
        ]
        for heads, rows in self._tables():
            names = [shortened(row[0], 40) for row in rows]
            width = max(columns_of(name) for name in [heads[0], *names])
            lines += ["", f"{heads[0]:<{width + 2}}{''.join(f'{head:>11}' for head in heads[1:])}"]
            lines += [f"  {padded(name, width)}{''.join(f'{cell:>11}' for cell in row[1:])}"
                      for name, row in zip(names, rows, strict=True)]  # fmt: skip
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = [_html(type(self._model).__name__, self.facts.items())]
        tables += [_html(heads[0], [("", *heads[1:]), *rows]) for heads, rows in self._tables()]
        return f'<style>{STYLE}</style><div class="olsen-summary">{"".join(tables)}</div>'


class SummaryMixin(BaseEstimator):
    """Tables, notebook view and report of a fitted ensemble."""

    _frame_library = "pandas"  # of the X that was fitted

    def summary(self, coverage: float = 0.9) -> Summary:
        """What the fit came to: error, coefficients with their uncertainty, and effects of the columns.

        Parameters
        ----------
        coverage : float, default=0.9
            Of the intervals from ``lower`` to ``upper``, see :meth:`coef_interval`.

        Returns
        -------
        summary : Summary
            Prints as a table, and is one in a notebook. ``summary.facts`` is a dict of texts, ``summary.effects`` a
            data frame of the input columns, the largest effects first, and ``summary.coefficients`` one of the library
            of the X given to `fit`, pandas for other X, with a row for each column of X, and for each target where y
            had two dimensions (then ``target``, its number, comes first):

            - ``feature``: name of the column, or x0, x1, ...
            - ``coef``, ``std``, ``lower``, ``upper``: coefficient, standard error and interval.
            - ``effect``: change of the prediction for one standard deviation of the column.
            - ``drawn``: share of the members that hold the column, ``inclusion_``.
            - ``member_mean``, ``member_spread``: mean and standard deviation of its coefficient among these members,
              before scale and weights.
            - ``same_sign``: share of these members in which it has the sign of ``coef``. Of infinitely many members
              the last three are those of the first 200.

            NaN where the training rows are needed and not kept, and for members where none holds the column.

        Examples
        --------
        >>> import numpy as np
        >>> from olsen import OLSEnsembleRegressor
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = OLSEnsembleRegressor(20, max_features=2, random_state=0).fit(X, X[:, 1])
        >>> summary = model.summary()
        >>> summary["feature"].tolist(), summary["same_sign"][1].item()
        (['x0', 'x1', 'x2'], 1.0)
        >>> summary.effects["column"].tolist()[0], summary.facts["rows"]
        ('x1', '50')
        """
        check_is_fitted(self)
        check_arguments("summary", coverage=coverage)
        names = _names(self)
        return Summary(self, coverage, names, names)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the report page of the command ``olsen fit``: errors, how members were chosen, effects, residuals.

        Parameters
        ----------
        path : path
            Of the HTML file, which needs no other. One that is there is replaced once the new one is complete.

        Notes
        -----
        For :class:`OLSEnsembleRegressorCV` with one target and its training rows: the page shows what tuning found.
        """
        check_is_fitted(self)
        model: Any = self
        fitted = model._result()
        if not hasattr(model, "cv_results_"):
            raise TypeError(
                f"report shows what tuning found, but {type(model).__name__} has a given size. Fit "
                f"OLSEnsembleRegressorCV; with max_features=[{round(float(np.sum(model.inclusion_)))}] it has the "
                f"present size alone."
            )
        if model._n_targets > 1:
            raise ValueError(f"report shows one target, but the model has {model._n_targets}. Fit one model for each.")
        problem = fitted.need_rows("report")
        X = np.asarray(problem.X.toarray() if sp.issparse(problem.X) else problem.X, dtype=np.float64)
        left_out = np.ravel(model.loo_prediction_)
        if fitted.design.kept_rows is not None and len(left_out):
            left_out = left_out[fitted.design.kept_rows]
        notes = []  # of what differs from a fit of the command, for which the page was written
        if model.cv is not None:
            notes.append(f"Errors of the ensemble were estimated with cv={model.cv!r}, whatever is said here.")
        page = render(
            summarise(
                model, X, problem.Y[:, 0], _names(model), left_out=left_out, weight=problem.weight, target="y",
                data_name="rows given to fit", messages=notes, seed=fitted.design.seed,
                command=f"{model.__repr__(700)}.fit(X, y).report({os.path.basename(path)!r})",
            )
        )  # fmt: skip
        atomically(path, lambda file: file.write_text(page, encoding="utf-8"))

    def to_linear_regression(self) -> LinearRegression:
        """The same linear map as scikit-learn's plain model, for everything that knows that one.

        Returns
        -------
        model : LinearRegression
            Fitted, in double precision on the host, with equal predictions. What least squares would have left besides
            (``rank_``, ``singular_``) is not there.

        Examples
        --------
        >>> import numpy as np
        >>> from olsen import OLSEnsembleRegressor
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = OLSEnsembleRegressor(20, max_features=2, random_state=0).fit(X, X[:, 1])
        >>> plain = model.to_linear_regression()
        >>> type(plain).__name__, bool(np.allclose(plain.predict(X), model.predict(X)))
        ('LinearRegression', True)
        """
        check_is_fitted(self)
        model: Any = self
        intercept = on_host(model.intercept_)
        fitted = {
            "coef_": on_host(model.coef_),
            "intercept_": intercept if intercept.ndim else float(intercept),
            "n_features_in_": int(model.n_features_in_),
        }
        if hasattr(model, "feature_names_in_"):
            fitted["feature_names_in_"] = model.feature_names_in_.copy()
        plain = LinearRegression(fit_intercept=model.fit_intercept)
        plain.__setstate__({**plain.__getstate__(), **fitted})
        return plain

    # In notebooks

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and the facts of a fit beside it."""
        model: Any = self
        diagram: str = super()._html_repr()
        if model._fitted is None:
            return diagram
        table = _html("What was fitted", facts(model))
        return f'<style>{STYLE}</style><div class="olsen-summary"><div>{diagram}</div>{table}</div>'

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """The table of fitted attributes in scikit-learn's diagram (from 1.9 on), with what a fit has set.

        scikit-learn's own would also compute what is computed when asked for: members drawn again, standard errors,
        which raise where the training rows are gone.
        """
        kind = type(self)
        bare: Any = type(kind.__name__, (BaseEstimator,), {"__doc__": kind.__doc__, "__module__": kind.__module__})()
        bare.__setstate__({name: value for name, value in vars(self).items() if name.endswith("_")})
        return bare._get_fitted_attr_html(doc_link)

    def __dir__(self) -> Iterable[str]:
        """Names of what there is; from 1.8 on scikit-learn looks at every value for that, see above."""
        listed = object.__dir__(self)
        computed = {name for name in listed if isinstance(getattr(type(self), name, None), property)}
        computed = {name for name in computed if name.endswith("_") and not name.startswith("_")}
        return [name for name in listed if name in computed or hasattr(self, name)]


# Tables


def _html(caption: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A table for a notebook; cells beside the second are numbers."""
    body = ""
    for name, *cells in rows:
        kind = ' class="number"' * (len(cells) > 1)
        body += (
            f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td{kind}>{escape(cell)}</td>" for cell in cells)}</tr>'
        )
    return f'<table class="olsen-facts"><caption>{escape(caption)}</caption><tbody>{body}</tbody></table>'


def _data_frame(library: str) -> Callable[[dict[str, Any]], Any]:
    try:
        found: Callable[[dict[str, Any]], Any] = importlib.import_module(library).DataFrame
    except ModuleNotFoundError as error:
        if error.name != library:
            raise  # it is there, and lacks something itself
        raise ModuleNotFoundError(f"summary makes a data frame, which needs {library}: pip install {library}") from None
    return found


def _names(model: Any) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    return [f"x{j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def _where_rows_are(compute: Callable[[], Any], shape: tuple[int, ...]) -> Array:
    """What needs the training rows; NaN where they are gone."""
    try:
        return np.asarray(compute(), dtype=np.float64).reshape(shape)
    except NeedsRows:
        return np.full(shape, np.nan)


def _of_members(model: Any, coef: Array) -> dict[str, Array]:
    """Mean, spread and agreement in sign of the members that hold each column, from their nonzero pattern alone."""
    names = ("member_mean", "member_spread", "same_sign")
    try:
        members = model.member_coefs(None if model.n_estimators_ < math.inf else FEW_MEMBERS)
    except NeedsRows:
        return {name: np.full(coef.shape, np.nan) for name in names}
    members = members if isinstance(members, list) else [members]  # of several targets they are a list
    found = [_member_statistics(one, b) for one, b in zip(members, np.atleast_2d(coef), strict=True)]
    return {name: np.stack(values) for name, values in zip(names, zip(*found, strict=True), strict=True)}


def _member_statistics(members: Any, coef: Array) -> tuple[Array, Array, Array]:
    """For members as a CSR matrix (k, p) whose entries are all columns of each: mean, spread, share of equal signs."""
    columns, values = members.indices, members.data

    def total(weights: Any = None) -> Array:
        return np.bincount(columns, weights=weights, minlength=len(coef)).astype(np.float64)

    with np.errstate(invalid="ignore"):  # a column that no member holds is 0 / 0
        count = total()
        mean = total(values) / count
        spread = np.sqrt(total((values - mean[columns]) ** 2) / count)
        return mean, spread, total(np.sign(values) == np.sign(coef)[columns]) / count


# Facts


def facts(model: Any) -> Iterator[tuple[str, str]]:
    """What a fit came to, in words. Only what is noted, so that models of other versions can be shown too."""
    design, noted = model._result().design, vars(model)
    yield "members", f"{model.n_estimators_}" if model.n_estimators_ < math.inf else "infinitely many, in closed form"
    yield "columns in a member", _size(float(np.sum(model.inclusion_)), model.n_features_in_)
    if not design.all_rows:
        yield "rows in a member", _size(resolve_size(design.max_samples, design.n_rows, "max_samples"), design.n_rows)
    if "best_score_" in noted:
        yield "error of prediction", _error(model)
        explained = _explained(model)
        if explained is not None:
            yield "R² of left-out rows", f"{explained:.3f}"
        yield "estimated by", CRITERIA.get(model.criterion_, str(model.criterion_))
        yield from (("caution", text) for text in caution(design.n_rows))
    if "inclusion_shares_" in noted:
        several = isinstance(model.inclusion_shares_, list)  # of several targets
        for t, shares in enumerate(model.inclusion_shares_ if several else [model.inclusion_shares_]):
            schemes = sorted(shares.items(), key=lambda scheme: -scheme[1])
            name = f"sampling schemes, target {t}" if several else "sampling schemes"
            yield name, ", ".join(f"{scheme} {percent(share)}" for scheme, share in schemes)
    yield "scale", ", ".join(f"{scale:.4g}" for scale in np.atleast_1d(model.scale_))
    if model.stacking_advantage_ is not None:
        equal = bool(np.ptp(model.weights_) == 0)
        yield (
            "weights",
            f"{'equal' if equal else 'stacked'}; stacking is better by {model.stacking_advantage_:.2g} s.e.",
        )
    again = int(model.n_fallbacks_)
    yield "solver", f"{model.solver_}" + (f"; {again} members solved again from the data" if again else "")


def _size(mean: float, count: int) -> str:
    whole = abs(mean - round(mean)) < WHOLE
    shown = f"{round(mean)} of {count}" if whole else f"{mean:.4g} of {count} on average"
    return f"{shown} ({percent(mean / count)})"


def _error(model: Any) -> str:
    """Root of the mean squared error with its standard error (delta method)."""
    error = math.sqrt(max(-float(model.best_score_), 0.0))
    spread = float(model.cv_results_["standard_error"][model.best_index_]) / (2 * error) if error > 0 else math.nan
    known = f" ± {spread:.2g}" if math.isfinite(spread) else ""
    return f"{error:.4g}{known} (root mean squared, ± standard error)" if known else f"{error:.4g} (root mean squared)"


def _explained(model: Any) -> float | None:
    """Share of the variance of the targets that left-out predictions explain; None without the rows.

    The mean is left out too: it is compared with the mean of the other rows.
    """
    rows = model._result().rows
    if rows is None:
        return None
    Y, weight = rows.Y, rows.weight
    share = np.full(len(Y), 1 / len(Y)) if weight is None else weight / weight.sum()
    away = (Y - share @ Y) / (1 - share)[:, None]
    spread = float(np.mean(share @ away**2))
    return 1 + float(model.best_score_) / spread if spread > 0 else None
