"""Fitted ensembles as people look at them: a table of coefficients, facts in a notebook, a page, a plain linear model.

Everything here reads what a fit has left and changes nothing. What needs the training rows is left empty where they are
gone (pickles, model files, fits in blocks), so that a model can always be looked at.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
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
from .._report.pages import render
from .._report.summary import summarise
from ..subsets import resolve_size
from .inputs import check_arguments, on_host

__all__ = ["SummaryMixin", "facts"]

Array = NDArray[np.float64]

CRITERIA = {
    "loo": "leave-one-out",
    "gcv": "generalised cross-validation",
    "kfold": "k-fold cross-validation",
    "oob": "rows that members were not given",
}
WHOLE = 1e-9  # distance from a whole number that is rounding of a mean
FEW_MEMBERS = 200  # that stand for infinitely many

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
"""


class SummaryMixin(BaseEstimator):
    """Tables, notebook view and report of a fitted ensemble."""

    _frame_library = "pandas"  # of the X that was fitted

    def summary(self, coverage: float = 0.9) -> Any:
        """Coefficients with their uncertainty, and what the members say about each, as a data frame.

        Parameters
        ----------
        coverage : float, default=0.9
            Of the intervals from ``lower`` to ``upper``, see :meth:`coef_interval`.

        Returns
        -------
        frame : data frame
            Of the library of the X given to `fit`, pandas for other X. One row for each column of X, and for each
            target where y had two dimensions (then ``target``, its number, comes first):

            - ``feature``: name of the column, or x0, x1, ...
            - ``coef``, ``std``, ``lower``, ``upper``: coefficient, standard error and interval.
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
        >>> frame = model.summary()
        >>> frame["feature"].tolist(), frame["same_sign"][1].item()
        (['x0', 'x1', 'x2'], 1.0)
        """
        check_is_fitted(self)
        check_arguments("summary", coverage=coverage)
        data_frame = _data_frame(self._frame_library)
        model: Any = self
        coef = on_host(model.coef_)
        interval = _where_rows_are(lambda: model.coef_interval(coverage), (*coef.shape, 2))
        columns = {
            "feature": np.tile(np.array(_names(model), dtype=object), coef.size // coef.shape[-1]),
            "coef": coef,
            "std": _where_rows_are(lambda: model.coef_std_, coef.shape),
            "lower": interval[..., 0],
            "upper": interval[..., 1],
            "drawn": np.broadcast_to(model.inclusion_, coef.shape),
            **_of_members(model, coef),
        }
        targets = {"target": np.repeat(np.arange(len(coef)), coef.shape[1])} if coef.ndim == 2 else {}
        return data_frame({**targets, **{name: np.ravel(values) for name, values in columns.items()}})

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
        problem = fitted.unchanged_rows("report")
        X = np.asarray(problem.X.toarray() if sp.issparse(problem.X) else problem.X, dtype=np.float64)
        left_out = np.ravel(model.loo_prediction_)
        if fitted.design.kept_rows is not None and len(left_out):
            left_out = left_out[fitted.design.kept_rows]
        notes = []  # of what differs from a fit of the command, for which the page was written
        if problem.weight is not None:
            notes.append("Rows have weights, which errors of ridge, least squares and the mean do not know.")
        if model.cv is not None:
            notes.append(f"Errors of the ensemble were estimated with cv={model.cv!r}, whatever is said here.")
        page = render(
            summarise(
                model, X, problem.Y[:, 0], _names(model), left_out=left_out, data_name="rows given to fit", target="y",
                messages=notes, seed=fitted.design.seed,
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
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(fact)}</td></tr>' for name, fact in facts(model)
        )
        table = f'<table class="olsen-facts"><caption>What was fitted</caption><tbody>{rows}</tbody></table>'
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
    if "inclusion_shares_" in noted:
        several = isinstance(model.inclusion_shares_, list)  # of several targets
        for t, shares in enumerate(model.inclusion_shares_ if several else [model.inclusion_shares_]):
            schemes = sorted(shares.items(), key=lambda scheme: -scheme[1])
            name = f"sampling schemes, target {t}" if several else "sampling schemes"
            yield name, ", ".join(f"{scheme} {_percent(share)}" for scheme, share in schemes)
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
    return f"{shown} ({_percent(mean / count)})"


def _percent(share: float) -> str:
    """What is not all, or not nothing, is not rounded to it."""
    return f"{min(max(share, 0.01), 0.99):.0%}" if WHOLE < share < 1 - WHOLE else f"{share:.0%}"


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
