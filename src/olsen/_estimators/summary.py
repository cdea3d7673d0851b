"""Fitted ensembles as people look at them: a summary, facts in a notebook, a page, a plain linear model.

Everything here reads what a fit has left and changes nothing. What needs the training rows is left empty where they are
gone (pickles, model files, fits in blocks), so that a model can always be looked at.
"""

from __future__ import annotations

import copy
import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from html import escape
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from .._engines.engine import ChangedRows, NeedsRows
from .._execution.files import atomically
from .._report.formatting import columns_of, escape_control, number, padded, shortened
from .._report.pages import render
from .._report.summary import facts, summarise
from .inputs import check_arguments, on_host

Array = NDArray[np.float64]

FEW_MEMBERS = 200  # that stand for infinitely many
MOST_LINES = 30  # of a table that is printed
MOST_OPERATIONS, REFITS = 2e10, 300  # of standard errors in a report

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


class Feature(NamedTuple):
    """A column of an ensemble, the input column that it was made of, and whether it only says where that had gaps."""

    name: str
    source: str
    indicator: bool = False


class Effects:
    """Effects of the columns of an ensemble (`each`), and of the input columns that these were made of (`whole`).

    An effect is the standard deviation over the training rows of a column's part of the predictions, with the sign of
    the coefficient where the column is one number, alone or beside an indicator of its gaps; levels of a factor are
    taken together. Effects stand above their standard errors; NaN where the training rows are needed and gone.

    Parameters
    ----------
    model : FittedEnsemble
    features : list of Feature
        Its columns.
    errors : bool
        Whether there shall be standard errors; for a tuned model they take thirty fits.
    moments : Moments
        Of the training rows, where these are not kept.
    """

    def __init__(self, model: Any, features: list[Feature], errors: bool = True, moments: Any = None) -> None:
        self.features, self._model, self._coef = features, model, on_host(model.coef_)
        self.places: dict[str, list[int]] = {}
        for j, feature in enumerate(features):
            self.places.setdefault(feature.source, []).append(j)
        groups, p = [[j] for j in range(len(features))], len(features)
        groups += [own for own in self.places.values() if len(own) > 1]
        found = np.full((2, *self._coef.shape[:-1], len(groups)), np.nan)
        for wanted in (errors, False):
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    found = model._effects(groups, wanted, moments)
                break
            except NeedsRows as error:
                if isinstance(error, ChangedRows):
                    raise
        place = {tuple(own): g for g, own in enumerate(groups)}
        self.each, self.whole = found[..., :p], found[..., [place[tuple(own)] for own in self.places.values()]]
        for g, own in enumerate(self.places.values()):
            if len(own) > 1 and (number_of := self._number(own)) is not None:
                self.whole[0, ..., g] *= np.sign(self._coef[..., number_of])

    def _number(self, own: list[int]) -> int | None:
        """Of the features of an input column the one that is a number; None of a factor."""
        plain = [j for j in own if not self.features[j].indicator]
        return plain[0] if len(plain) == 1 else None

    def largest(self, most: int = 15) -> list[dict[str, Any]]:
        """Input columns with the largest effects; with the largest coefficients where these are not known.

        For a model of one target. Of a factor there is no coefficient, and the mean of how often its levels are drawn.
        """
        coef, columns, found = np.ravel(self._coef), list(self.places.items()), []
        effect, error = self.whole.reshape(2, -1)
        missing = not np.isfinite(effect).all()
        size = [np.abs(coef[own]).max() for own in self.places.values()] if missing else np.abs(effect)
        for g in np.argsort(-np.asarray(size), kind="stable")[:most]:
            name, own = columns[g]
            j, uncertain = self._number(own), bool(np.isfinite(error[g]) and effect[g])
            found.append({
                "name": name, "features": len(own), "effect": None if missing else float(effect[g]),
                "standard_error": float(error[g]) if uncertain else None,
                "coefficient": None if j is None else float(coef[j]),
                "drawn": float(self._model.inclusion_[own].mean()),
            })  # fmt: skip
        return found


def errors_are_cheap(model: Any) -> bool:
    """Whether thirty fits of some ten factorisations take a moment, which standard errors of effects need."""
    n, p = model._result().design.n_rows, model.n_features_in_
    return bool(REFITS * n * p * min(n, p) <= MOST_OPERATIONS)


class Summary:
    """What a fit came to: facts, coefficients with their uncertainty, and effects of the columns that went in.

    It prints as a table, and is one in a notebook.

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

    def __init__(self, model: Any, coverage: float, features: list[Feature]) -> None:
        self._model, design, coef = model, model._result().design, on_host(model.coef_)
        self.facts = {"rows": f"{design.n_rows}", "columns": f"{design.n_columns}", **dict(facts(model))}
        self._percents = [f"{50 * (1 - coverage):g}%", f"{50 * (1 + coverage):g}%"]
        names = {"feature": [one.name for one in features]}
        self._factors = any(one.name != one.source for one in features)
        if self._factors:
            names["column"] = [one.source for one in features]
        effects = Effects(model, features)
        interval = _where_rows_are(lambda: model.coef_interval(coverage), (*coef.shape, 2))
        self._coefficients = _long_table(
            names,
            coef=coef,
            std=_where_rows_are(lambda: model.coef_std(), coef.shape),
            lower=interval[..., 0],
            upper=interval[..., 1],
            effect=effects.each[0],
        )
        sizes = [len(own) for own in effects.places.values()]
        made: dict[str, list[Any]] = {"column": list(effects.places), "features": sizes}
        table = _long_table(made, effect=effects.whole[0], std=effects.whole[1])
        order = np.argsort(-np.abs(table["effect"]), kind="stable")
        self._effects = {name: values[order] for name, values in table.items()}

    @cached_property
    def coefficients(self) -> Any:  # attributes are described above
        drawn = np.tile(self._model.inclusion_, self._model._n_targets)
        return self._frame({**self._coefficients, "drawn": drawn, **_of_members(self._model)})

    @cached_property
    def effects(self) -> Any:
        return self._frame(self._effects)

    def _frame(self, table: dict[str, NDArray[Any]]) -> Any:
        library = self._model._frame_library
        try:
            module = importlib.import_module(library)
        except ModuleNotFoundError as error:
            text = f"summary makes a data frame, which needs {library}: pip install {library}"
            raise ModuleNotFoundError(text) from error
        return module.DataFrame(table)

    def _tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Rows of what is printed, after their heads: coefficients, and effects of whole factors if there are some."""
        table = self._coefficients
        size = np.abs(np.where(np.isfinite(table["effect"]), table["effect"], table["coef"]))
        largest = np.argsort(-size, kind="stable") if len(size) > MOST_LINES else np.arange(len(size))
        shown = {"coef": "coef", "std": "std err", **dict(zip(("lower", "upper"), self._percents, strict=True))}
        yield _cells("coefficients", table, "feature", {**shown, "effect": "effect"}, largest)
        if self._factors:
            order = np.arange(len(self._effects["effect"]))
            yield _cells("effects", self._effects, "column", {"effect": "effect", "std": "std err"}, order)

    def __str__(self) -> str:
        lines = [type(self._model).__name__]
        lines += [f"  {name:<21}{escape_control(fact)}" for name, fact in self.facts.items()]
        for (head, *heads), *rows in self._tables():
            names = [shortened(row[0], 40) for row in rows]
            width = max(columns_of(name) for name in [head, *names])
            lines += ["", f"{head:<{width + 2}}{''.join(f'{text:>11}' for text in heads)}"]
            for name, row in zip(names, rows, strict=True):
                lines.append(f"  {padded(name, width)}{''.join(f'{cell:>11}' for cell in row[1:])}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = [_html(type(self._model).__name__, self.facts.items())]
        tables += [_html(head, [("", *heads), *rows]) for (head, *heads), *rows in self._tables()]
        return f'<style>{STYLE}</style><div class="olsen-summary">{"".join(tables)}</div>'


def _long_table(names: dict[str, list[Any]], **values: Array) -> dict[str, NDArray[Any]]:
    """Columns with a row for each name, and for each target where `values` have two dimensions."""
    shape = next(iter(values.values())).shape
    q = math.prod(shape[:-1])
    table: dict[str, NDArray[Any]] = {"target": np.repeat(np.arange(q), shape[-1])} if len(shape) > 1 else {}
    for head, own in names.items():
        table[head] = np.tile(np.array(own, dtype=object if isinstance(own[0], str) else None), q)
    return {**table, **{name: np.ravel(value) for name, value in values.items()}}


def _cells(
    title: str, table: dict[str, NDArray[Any]], names: str, shown: dict[str, str], order: NDArray[Any]
) -> list[tuple[str, ...]]:
    """Some columns of a table as texts, after their heads; so many rows as are printed."""
    title += f", the largest {MOST_LINES} of {len(order)}" if len(order) > MOST_LINES else ""
    several = "target" in table and table["target"].max() > 0
    rows: list[tuple[str, ...]] = [(title, *shown.values())]
    for i in order[:MOST_LINES]:
        name = f"target {table['target'][i]}: {table[names][i]}" if several else table[names][i]
        rows.append((name, *(number(table[column][i]) for column in shown)))
    return rows


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
            - ``effect``: standard deviation of the column's part of the predictions, with the sign of the coefficient,
              which is the change of the prediction for one standard deviation of the column.
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
        >>> summary.coefficients["feature"].tolist(), summary.coefficients["same_sign"][1].item()
        (['x0', 'x1', 'x2'], 1.0)
        >>> summary.effects["column"].tolist()[0], summary.facts["rows"]
        ('x1', '50')
        """
        check_is_fitted(self)
        check_arguments("summary", coverage=coverage)
        return Summary(self, coverage, columns_of_model(self))

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
        fit_intercept = model._result().design.fit_intercept
        plain, intercept = LinearRegression(fit_intercept=fit_intercept), on_host(self.intercept_)
        fitted = {name: getattr(self, name) for name in ("n_features_in_", "feature_names_in_") if hasattr(self, name)}
        fitted["coef_"], fitted["intercept_"] = on_host(self.coef_), intercept if intercept.ndim else float(intercept)
        plain.__setstate__({**plain.__getstate__(), **copy.deepcopy(fitted)})
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


def _html(caption: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A table for a notebook; cells beside the second are numbers."""
    body = ""
    for name, *texts in rows:
        kind = ' class="number"' * (len(texts) > 1)
        cells = "".join(f"<td{kind}>{escape(text)}</td>" for text in texts)
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    return f'<table class="olsen-facts"><caption>{escape(caption)}</caption><tbody>{body}</tbody></table>'


def write_report(model: Any, path: str | os.PathLike[str], features: list[Feature]) -> None:
    """The report page of a fitted ensemble."""
    fitted = model._result()
    if not hasattr(model, "cv_results_"):
        raise TypeError(
            f"report shows what tuning chose, but {type(model).__name__} has a given size. Fit "
            f"OLSEnsembleRegressorCV; with max_features=[{round(float(np.sum(model.inclusion_)))}] it has the "
            f"present size alone."
        )
    if model._n_targets > 1:
        raise ValueError(f"report shows one target, but the model has {model._n_targets}. Fit one model for each.")
    problem = fitted.need_rows("report")
    X = np.asarray(problem.X.toarray() if sp.issparse(problem.X) else problem.X, dtype=np.float64)
    left_out = np.ravel(model.cv_prediction_)
    if fitted.design.kept_rows is not None and len(left_out):
        left_out = left_out[fitted.design.kept_rows]
    notes = []  # of what differs from a fit of the command, for which the page was written
    if model.cv is not None:
        notes.append(f"Errors of the ensemble were estimated with cv={model.cv!r}, whatever is said here.")
    effects = Effects(model, features, errors_are_cheap(model))
    page = render(
        summarise(
            model, X, problem.Y[:, 0], effects, left_out=left_out, weight=problem.weight, target="y",
            data_name="rows given to fit", messages=notes, seed=fitted.design.seed,
            command=f"{model.__repr__(700)}.fit(X, y).report({os.path.basename(path)!r})",
        )
    )  # fmt: skip
    atomically(path, lambda file: file.write_text(page, encoding="utf-8"))


def columns_of_model(model: Any) -> list[Feature]:
    """The columns that a model was fitted on, by name, or x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    names = [f"x{j}" for j in range(model.n_features_in_)] if names is None else map(str, names)
    return [Feature(name, name) for name in names]


def _where_rows_are(compute: Callable[[], Any], shape: tuple[int, ...]) -> Array:
    """What needs the training rows; NaN where they are gone, and an error where they were changed."""
    try:
        return np.asarray(compute(), dtype=np.float64).reshape(shape)
    except NeedsRows as error:
        if isinstance(error, ChangedRows):
            raise
        return np.full(shape, np.nan)


def _of_members(model: Any) -> dict[str, Array]:
    """Mean, spread and agreement in sign of the members that hold each column, for one target after the other."""
    coefs = np.atleast_2d(on_host(model.coef_))
    names, (q, p) = ("member_mean", "member_spread", "same_sign"), coefs.shape
    try:
        members = model.member_coefs(None if model.n_estimators_ < math.inf else FEW_MEMBERS)
    except ChangedRows:
        raise
    except NeedsRows:
        return {name: np.full(q * p, np.nan) for name in names}
    found = []
    for one, coef in zip(members if isinstance(members, list) else [members], coefs, strict=True):
        columns, values = one.indices, one.data  # entries are all columns of each member, zeros too
        total = partial(np.bincount, columns, minlength=p)
        with np.errstate(invalid="ignore"):  # a column that no member holds is 0 / 0
            count = total()
            mean = total(weights=values) / count
            spread = np.sqrt(total(weights=(values - mean[columns]) ** 2) / count)
            found.append((mean, spread, total(weights=np.sign(values) == np.sign(coef)[columns]) / count))
    return dict(zip(names, np.concatenate(found, axis=1), strict=True))


# Facts
