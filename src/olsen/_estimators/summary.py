"""Views of a fitted ensemble: a summary, a table of facts for notebooks, a report page, a plain
linear model.

The views read the result of a fit and change nothing. Values that need the training rows are NaN if
the rows are gone (pickles, model files, fits in blocks), so that every model can be displayed.
"""

from __future__ import annotations

import copy
import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from .._data.fits import ChangedRows, NeedsRows
from .._execution import memory
from .._execution.files import atomically, refuse_missing_folder
from .._report import notebook
from .._report.formatting import extremes, number
from .._report.notebook import NumberTable
from .._report.pages import render
from .._report.summary import facts, held_out_rows, summarise
from .effects import Effects, Feature, columns_of_model, errors_are_cheap, nan_without_rows
from .inputs import check_arguments, on_host

Array = NDArray[np.float64]

MAX_TABLE_ROWS = 30  # rows of a printed table

Inverse = Callable[[NDArray[Any]], NDArray[Any]]  # from a transformed target to the original one


class Summary:
    """Summary of a fit: facts, coefficients with their uncertainty, and effects of the input
    columns.

    It is printed as a table, and shown as one in a notebook.

    Attributes
    ----------
    facts : dict
        Rows, columns, members, the error of prediction and how it was estimated, as strings.
    coefficients : data frame
        One row for each column of the ensemble, see :meth:`OLSEnsembleRegressor.summary`.
    effects : data frame
        One row for each input column, the largest effects first: ``column``, ``effect``, its
        standard error ``std``, and the number of ``features`` that were made of it; if there are
        factors, also the ``difference`` between the coefficients of their ``highest`` and their
        ``lowest`` level, and its standard error ``difference_std``. An effect is
        the standard deviation of the column's part of the predictions over the training rows, with
        the sign of its coefficient where it has one: levels of a factor are taken together. Its
        standard error is that of the coefficients (status: asymptotic, by the delta method).
    """

    def __init__(
        self,
        model: Any,
        coverage: float,
        features: list[Feature],
        *,
        std: bool = True,
        inverse: Inverse | None = None,
    ) -> None:
        self._model = model
        design = model._result().design
        coef = on_host(model.coef_)
        self.facts = {
            "rows": f"{design.n_rows}",
            "columns": f"{design.n_columns}",
            **facts(model),
            **_facts_of_transformed(model, inverse),
        }
        self._limits = {"lower": f"{50 * (1 - coverage):g}%", "upper": f"{50 * (1 + coverage):g}%"}
        names = {"feature": [feature.name for feature in features]}
        self._has_factors = any(feature.name != feature.source for feature in features)
        if self._has_factors:
            names["column"] = [feature.source for feature in features]
        effects = Effects(model, features, std)
        unknown = np.full((*coef.shape, 2), np.nan)
        interval = unknown
        if std:
            interval = nan_without_rows(lambda: model.coef_interval(coverage), unknown.shape)
        coef_std = effects.standard_errors()
        self._coefficients = _long_table(
            names,
            model._target_names,
            coef=coef,
            std=unknown[..., 0] if coef_std is None else coef_std,
            lower=interval[..., 0],
            upper=interval[..., 1],
            effect=effects.by_feature[0],
        )
        self._printed_coef = np.ravel(effects.coef)
        self._effects = _effects_table(effects, self._coefficients.get("target"))

    @cached_property
    def coefficients(self) -> Any:  # documented under Attributes above
        drawn = np.tile(self._model.inclusion_, self._model._n_targets)
        return self._frame(
            {**self._coefficients, "drawn": drawn, **_member_statistics(self._model)}
        )

    @cached_property
    def effects(self) -> Any:
        return self._frame(self._effects)

    def _frame(self, table: dict[str, NDArray[Any]]) -> Any:
        library = self._model._frame_library
        try:
            module = importlib.import_module(library)
        except ModuleNotFoundError:  # a structured array is indexed by the same names
            dtype: Any = [(head, values.dtype) for head, values in table.items()]
            return np.array(list(zip(*table.values(), strict=True)), dtype=dtype)
        return module.DataFrame(table)

    def _tables(self) -> Iterator[NumberTable]:
        """Printed tables: coefficients, and effects if there are factors."""
        table = {**self._coefficients, "coef": self._printed_coef}
        heads = {"coef": "coef", "std": "std err", **self._limits, "effect": "effect"}
        size = np.abs(np.where(np.isfinite(table["effect"]), table["effect"], table["coef"]))
        order = np.arange(len(size))
        if len(size) > MAX_TABLE_ROWS:
            order = np.argsort(-size, kind="stable")
            order = order[size[order] > 0]
        yield _printed_table("coefficients", table, "feature", heads, order=order)
        if self._has_factors:
            heads = {"effect": "effect", "std": "std err"}
            table = self._effects
            if "difference" in table:
                heads |= {"difference": "difference", "difference_std": "std err"}
                names = map(extremes, table["column"], table["highest"], table["lowest"])
                table = {**table, "column": np.array(list(names), dtype=object)}
            yield _printed_table(
                "effects", table, "column", heads, order=np.arange(len(table["effect"]))
            )

    def __str__(self) -> str:
        return notebook.as_text(type(self._model).__name__, self.facts, self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.as_html(type(self._model).__name__, self.facts, self._tables())


def _facts_of_transformed(model: Any, inverse: Inverse | None) -> dict[str, str]:
    """Facts about a model inside a TransformedTargetRegressor: its error in the original units."""
    if inverse is None:
        return {}
    lines = {"all values above": "those of the transformed target, as are coefficients and effects"}
    rows = held_out_rows(model)
    if rows is not None:
        mse = rows.mean_square(inverse(rows.observed) - inverse(rows.predicted))
        errors = ", ".join(f"{error:.4g}" for error in np.sqrt(mse))
        lines["error in units of y"] = f"{errors} (predictions of held-out rows transformed back)"
    return lines


def _long_table(
    names: dict[str, list[Any]], target_names: Sequence[str], **values: Array
) -> dict[str, NDArray[Any]]:
    """Columns of a table with a row for each name, repeated for each target if `values` have two
    dimensions.
    """
    shape = next(iter(values.values())).shape
    q = math.prod(shape[:-1])
    table: dict[str, NDArray[Any]] = {}
    if len(shape) > 1:
        has_names = len(target_names) == q
        targets = np.array(target_names, dtype=object) if has_names else np.arange(q)
        table["target"] = np.repeat(targets, shape[-1])
    for head, entries in names.items():
        dtype = object if isinstance(entries[0], str) else None
        table[head] = np.tile(np.array(entries, dtype=dtype), q)
    return {**table, **{head: np.ravel(value) for head, value in values.items()}}


def _effects_table(effects: Effects, targets: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Columns of the table of effects, with the extreme levels of factors if there are any; `targets`
    are those of all coefficients.
    """
    names = [0] if targets is None else list(dict.fromkeys(targets.tolist()))
    records = [
        {"target": name, **record} for t, name in enumerate(names) for record in effects.records(t)
    ]
    records.sort(key=lambda record: -record["size"])
    keys = {"column": "name", "features": "features", "effect": "effect", "std": "standard_error"}
    keys = keys if targets is None else {"target": "target", **keys}
    if any(record["levels"] for record in records):
        keys |= {"difference": "difference", "difference_std": "difference_standard_error"}
        keys |= {"highest": "highest", "lowest": "lowest"}
    for record in records:
        levels = record["levels"] or [{"name": None}]
        record |= {"highest": levels[0]["name"], "lowest": levels[-1]["name"]}
    return {head: _array([record[key] for record in records]) for head, key in keys.items()}


def _array(values: list[Any]) -> NDArray[Any]:
    """Array of numbers, NaN for None, or of strings and None."""
    if any(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    return np.array([np.nan if value is None else value for value in values])


def _printed_table(
    title: str,
    table: dict[str, NDArray[Any]],
    name_column: str,
    heads: dict[str, str],
    *,
    order: NDArray[Any],
) -> NumberTable:
    """Format the columns `heads` of the first MAX_TABLE_ROWS rows in the given order, without
    columns that have no value.
    """
    n_all = len(table[name_column])
    rows = order[:MAX_TABLE_ROWS]
    if len(rows) < len(order):
        title += f", the largest {MAX_TABLE_ROWS} of {n_all}"
    elif len(rows) < n_all:
        title += f", {len(rows)} of {n_all}; all others are zero" if len(rows) else ": all are zero"
    names = table[name_column][rows]
    targets = table.get("target", np.zeros(1))
    if len(set(targets)) > 1:
        prefixes = [name if isinstance(name, str) else f"target {name}" for name in targets[rows]]
        names = [f"{prefix}: {name}" for prefix, name in zip(prefixes, names, strict=True)]
    heads = {key: head for key, head in heads.items() if not np.isnan(table[key]).all()}
    columns = [map(number, table[key][rows]) for key in heads]
    return NumberTable(title, list(heads.values()), list(zip(names, *columns, strict=True)))


class SummaryMixin(BaseEstimator):
    """Tables, notebook view and report of a fitted ensemble."""

    _frame_library = "pandas"  # the data frame library of the X that was fitted
    _target_names: Sequence[str] = ()  # of the y that was fitted, if it had names
    _mse_of_targets: Sequence[float] | None = None  # of held-out rows, where it is estimated

    def summary(self, coverage: float = 0.9, *, std: bool = True) -> Summary:
        """Summarise the fit: error, coefficients with their uncertainty, and effects of the
        columns.

        Parameters
        ----------
        coverage : float, default=0.9
            Coverage of the intervals from ``lower`` to ``upper``, see :meth:`coef_interval`.
        std : bool, default=True
            Whether to compute standard errors. A tuned model is fitted on 30 parts of the rows for
            them, once, which takes the time of up to 30 fits; after two seconds a terminal shows
            how far it is. False leaves them out.

        Returns
        -------
        summary : Summary
            Printed as a table, also in a notebook. ``summary.facts`` is a dict of strings,
            ``summary.effects`` a data frame of the input columns, the largest effects first, and
            ``summary.coefficients`` a data frame with a row for each column of X, and for each
            target if y had two dimensions (then ``target``, its name or number, comes first). Both
            are of the data frame library of the X given to `fit`, pandas for other X, or NumPy
            structured arrays if that is not installed. Coefficients have the columns:

            - ``feature``: name of the column, or x0, x1, ...
            - ``coef``, ``std``, ``lower``, ``upper``: coefficient, standard error and interval.
            - ``effect``: standard deviation of the column's part of the predictions, with the sign
              of the coefficient, which is the change of the prediction for one standard deviation
              of the column.
            - ``drawn``: fraction of the members that hold the column, ``inclusion_``.
            - ``member_mean``, ``member_spread``: mean and standard deviation of the coefficient
              over the members that hold the column, before scale and weights.
            - ``same_sign``: fraction of the members holding the column whose coefficient has the
              sign of ``coef``. If there are infinitely many members, the last three describe the
              first 200.

            Values are NaN if the training rows are needed and were not kept, standard errors and
            limits with ``std=False``; values that describe members, also if no member holds the
            column.

        Examples
        --------
        >>> import numpy as np
        >>> from olsen import OLSEnsembleRegressor
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = OLSEnsembleRegressor(20, max_features=2, random_state=0).fit(
        ...     X, X[:, 1]
        ... )
        >>> summary = model.summary()
        >>> (
        ...     summary.coefficients["feature"].tolist(),
        ...     summary.coefficients["same_sign"][1].item(),
        ... )
        (['x0', 'x1', 'x2'], 1.0)
        >>> summary.effects["column"].tolist()[0], summary.facts["rows"]
        ('x1', '50')
        """
        check_is_fitted(self)
        check_arguments("summary", coverage=coverage)
        return Summary(self, coverage, columns_of_model(self), std=std)

    def to_linear_regression(self) -> LinearRegression:
        """Convert to scikit-learn's LinearRegression with the same coefficients, for tools that
        accept only that.

        Returns
        -------
        model : LinearRegression
            Fitted, in double precision on the host, with equal predictions. Attributes of a
            least-squares fit that do not apply (``rank_``, ``singular_``) are missing.

        Examples
        --------
        >>> import numpy as np
        >>> from olsen import OLSEnsembleRegressor
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = OLSEnsembleRegressor(20, max_features=2, random_state=0).fit(
        ...     X, X[:, 1]
        ... )
        >>> plain = model.to_linear_regression()
        >>> type(plain).__name__, bool(np.allclose(plain.predict(X), model.predict(X)))
        ('LinearRegression', True)
        """
        check_is_fitted(self)
        model: Any = self
        plain = LinearRegression(fit_intercept=model._result().design.fit_intercept)
        intercept = on_host(self.intercept_)
        names = ("n_features_in_", "feature_names_in_")
        state = {name: value for name, value in vars(self).items() if name in names}
        state["coef_"] = on_host(self.coef_)
        state["intercept_"] = intercept if intercept.ndim else float(intercept)
        plain.__setstate__(plain.__getstate__() | copy.deepcopy(state))
        return plain

    # Notebooks

    def _html_repr(self) -> str:
        """scikit-learn's diagram, with the facts of the fit beside it."""
        model: Any = self
        diagram: str = super()._html_repr()
        if model._fitted is None:
            return diagram
        diagram = f"<div>{diagram}</div>"
        table = notebook.facts_html("What was fitted", facts(model))
        return notebook.beside_each_other([diagram, table])

    def _get_fitted_attr_html(self, doc_link: str = "") -> Any:
        """The table of fitted attributes in scikit-learn's diagram (from 1.9 on), limited to
        attributes set by `fit`.

        scikit-learn's version would also evaluate properties: some draw all members again, and some
        raise if the training rows are gone.
        """
        kind = type(self)
        bare: Any = type(
            kind.__name__,
            (BaseEstimator,),
            {"__doc__": kind.__doc__, "__module__": kind.__module__},
        )()
        bare.__setstate__({name: value for name, value in vars(self).items() if name.endswith("_")})
        return bare._get_fitted_attr_html(doc_link)

    def __dir__(self) -> Iterable[str]:
        """Names of the available attributes; scikit-learn (from 1.8 on) would evaluate every
        property for that.
        """
        names = object.__dir__(self)
        computed = {name for name in names if isinstance(getattr(type(self), name, None), property)}
        computed = {name for name in computed if name.endswith("_") and not name.startswith("_")}
        return [name for name in names if name in computed or hasattr(self, name)]


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    features: list[Feature],
    inverse: Inverse | None = None,
) -> None:
    """Write the report page of a fitted ensemble, whose target may be a transformed one."""
    fitted = model._result()
    if not hasattr(model, "cv_results_"):
        raise TypeError(
            f"report shows what tuning chose, but {type(model).__name__} has a given size. Fit"
            f" OLSEnsembleRegressorCV; with max_features=[{round(float(np.sum(model.inclusion_)))}]"
            " it has the present size alone."
        )
    if model._n_targets > 1:
        raise ValueError(
            f"report shows one target, but the model has {model._n_targets}. Fit one model for"
            " each."
        )
    refuse_missing_folder(path, f"path={str(path)!r}")
    problem = fitted.need_rows("report")
    memory.require(
        16.0 * math.prod(problem.shape),
        f"A report on {problem.shape[0]} rows and {problem.shape[1]} columns, which makes X dense,",
        "summary(std=False) shows the fit without a copy of X.",
    )
    X = np.asarray(problem.X.toarray() if sp.issparse(problem.X) else problem.X, dtype=np.float64)
    held_out_prediction = np.ravel(model.cv_prediction_)
    if fitted.design.kept_rows is not None and len(held_out_prediction):
        held_out_prediction = held_out_prediction[fitted.design.kept_rows]
    target = (model._target_names or ["y"])[0]
    cautions = []
    if inverse is not None:
        error = _facts_of_transformed(model, inverse).get("error in units of y", "not known")
        cautions.append(
            f"All values are those of the transformed target. Error in units of {target}: {error}."
        )
        target = f"transformed {target}"
    if model.cv is not None:  # the page was written for fits by the command
        cautions.append(
            f"Errors of the ensemble were estimated with cv={model.cv!r}, whatever is said here."
        )
    effects = Effects(model, features, errors_are_cheap(model))
    kept = fitted.design.kept_rows
    page = render(
        summarise(
            model,
            X,
            problem.Y[:, 0],
            effects,
            left_out=held_out_prediction,
            weight=problem.weight,
            row_names=range(len(X)) if kept is None else kept,
            target=target,
            data_name="rows given to fit",
            messages=[],
            cautions=cautions,
            seed=fitted.design.seed,
            command=f"{model.__repr__(700)}.fit(X, y).report({os.path.basename(path)!r})",
        )
    )
    atomically(path, lambda file: file.write_text(page, encoding="utf-8"))


def _member_statistics(model: Any) -> dict[str, Array]:
    """Mean, spread and sign agreement of the coefficients of the members that hold each column,
    target by target.
    """
    coefs = np.atleast_2d(on_host(model.coef_))
    q, p = coefs.shape
    names = ("member_mean", "member_spread", "same_sign")
    try:
        # 200 drawn members describe those of a fit that has infinitely many
        members = model.member_coefs(None if model.n_estimators_ < math.inf else 200)
    except ChangedRows:
        raise
    except NeedsRows:
        return {name: np.full(q * p, np.nan) for name in names}
    if not isinstance(members, list):
        members = [members]
    statistics = [_statistics_of_columns(*pair) for pair in zip(members, coefs, strict=True)]
    return dict(zip(names, np.concatenate(statistics, axis=1), strict=True))


def _statistics_of_columns(member_coefs: Any, coef: Array) -> Array:
    """Mean, spread and sign agreement of the stored coefficients of each column, (3, n_columns)."""
    columns = member_coefs.indices  # all columns of each member are stored, zero coefficients too
    values = member_coefs.data
    total = partial(np.bincount, columns, minlength=len(coef))
    with np.errstate(invalid="ignore"):  # a column that no member holds is 0 / 0
        count = total()
        mean = total(weights=values) / count
        spread = np.sqrt(total(weights=(values - mean[columns]) ** 2) / count)
        same_sign = total(weights=np.sign(values) == np.sign(coef)[columns]) / count
    return np.array([mean, spread, same_sign])
