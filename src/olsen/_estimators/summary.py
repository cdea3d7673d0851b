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
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from .._data.fits import ChangedRows, NeedsRows
from .._execution.files import atomically, refuse_missing_folder
from .._report import notebook
from .._report.formatting import number
from .._report.notebook import NumberTable
from .._report.pages import render
from .._report.summary import facts, summarise
from .inputs import check_arguments, on_host

Array = NDArray[np.float64]

MAX_TABLE_ROWS = 30  # rows of a printed table
MAX_OPERATIONS = (
    2e10  # floating-point operations up to which a report computes standard errors of effects
)


class Feature(NamedTuple):
    """A column of an ensemble, the input column it was made of, and whether it only marks missing
    values there.
    """

    name: str
    source: str
    indicator: bool = False


class Effects:
    """Effects of the features of an ensemble (`by_feature`), and of the input columns they come
    from (`by_column`).

    An effect is the standard deviation over the training rows of a column's part of the
    predictions, with the sign of the coefficient if the column is one number, alone or beside an
    indicator of its missing values; levels of a factor are taken together. Both arrays have shape
    (2, [targets,] columns): effects, then their standard errors; NaN if the training rows are
    needed and gone.

    Parameters
    ----------
    model : FittedEnsemble
    features : list of Feature
        Columns of the ensemble.
    errors : bool
        Whether to compute standard errors, which takes thirty fits for a tuned model.
    moments : Moments
        Moments of the training rows, if the rows were not kept.
    """

    def __init__(
        self, model: Any, features: list[Feature], errors: bool = True, moments: Any = None
    ) -> None:
        self.features = features
        self._model = model
        self._coef = on_host(model.coef_)
        self.features_of_column: dict[str, list[int]] = {}
        for j, feature in enumerate(features):
            self.features_of_column.setdefault(feature.source, []).append(j)
        groups = [[j] for j in range(len(features))]
        groups += self.features_of_column.values()
        effects = self._effects(groups, errors, moments)
        self.by_feature, self.by_column = np.split(effects, [len(features)], axis=-1)
        for g, indices in enumerate(self.features_of_column.values()):
            numeric = self._numeric_feature(indices)
            if len(indices) > 1 and numeric is not None:
                self.by_column[0, ..., g] *= np.sign(self._coef[..., numeric])

    def _effects(self, groups: list[list[int]], errors: bool, moments: Any) -> Array:
        """Effects of groups of features and their standard errors, NaN where they are not
        available.
        """
        shape = (2, *self._coef.shape[:-1], len(groups))

        def compute(with_errors: bool) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):
                return _nan_without_rows(
                    lambda: self._model._effects(groups, with_errors, moments), shape
                )

        effects = compute(errors)
        if errors and np.isnan(effects).all():
            return compute(False)  # without standard errors effects may be available
        return effects

    def _numeric_feature(self, indices: list[int]) -> int | None:
        """Index of the one feature of an input column that holds its value; None for a factor."""
        values = [j for j in indices if not self.features[j].indicator]
        return values[0] if len(values) == 1 else None

    def largest(self, n_columns: int = 15) -> list[dict[str, Any]]:
        """Input columns with the largest effects, or with the largest coefficients if effects are
        not available.

        The model must have one target. A factor has no coefficient, and ``drawn`` is the mean over
        its levels.
        """
        coef = np.ravel(self._coef)
        effect, error = self.by_column.reshape(2, -1)
        has_effects = bool(np.isfinite(effect).all())
        columns = list(self.features_of_column.items())
        size = np.abs(effect)
        if not has_effects:
            size = np.array([np.abs(coef[indices]).max() for _, indices in columns])
        records = []
        for g in np.argsort(-size, kind="stable")[:n_columns]:
            name, indices = columns[g]
            j = self._numeric_feature(indices)
            has_error = np.isfinite(error[g]) and effect[g] != 0
            record = {
                "name": name,
                "features": len(indices),
                "effect": float(effect[g]) if has_effects else None,
                "standard_error": float(error[g]) if has_error else None,
                "coefficient": None if j is None else float(coef[j]),
                "drawn": float(self._model.inclusion_[indices].mean()),
            }
            records.append(record)
        return records


def errors_are_cheap(model: Any) -> bool:
    """Whether standard errors of effects are computed within seconds: they take thirty refits, of
    about ten factorisations each.
    """
    n = model._result().design.n_rows
    p = model.n_features_in_
    return bool(300 * n * p * min(n, p) <= MAX_OPERATIONS)


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
        standard error ``std``, and the number of ``features`` that were made of it. An effect is
        the standard deviation of the column's part of the predictions over the training rows, with
        the sign of its coefficient where it has one: levels of a factor are taken together. Its
        standard error is that of the coefficients (status: asymptotic, by the delta method).
    """

    def __init__(self, model: Any, coverage: float, features: list[Feature]) -> None:
        self._model = model
        design = model._result().design
        coef = on_host(model.coef_)
        self.facts = {
            "rows": f"{design.n_rows}",
            "columns": f"{design.n_columns}",
            **facts(model),
        }
        self._limits = {"lower": f"{50 * (1 - coverage):g}%", "upper": f"{50 * (1 + coverage):g}%"}
        names = {"feature": [feature.name for feature in features]}
        self._has_factors = any(feature.name != feature.source for feature in features)
        if self._has_factors:
            names["column"] = [feature.source for feature in features]
        effects = Effects(model, features)
        interval = _nan_without_rows(lambda: model.coef_interval(coverage), (*coef.shape, 2))
        self._coefficients = _long_table(
            names,
            coef=coef,
            std=_nan_without_rows(lambda: model.coef_std(), coef.shape),
            lower=interval[..., 0],
            upper=interval[..., 1],
            effect=effects.by_feature[0],
        )
        features_of_column = effects.features_of_column
        columns: dict[str, list[Any]] = {
            "column": list(features_of_column),
            "features": [len(indices) for indices in features_of_column.values()],
        }
        table = _long_table(columns, effect=effects.by_column[0], std=effects.by_column[1])
        order = np.argsort(-np.abs(table["effect"]), kind="stable")
        self._effects = {name: values[order] for name, values in table.items()}

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
        except ModuleNotFoundError as error:
            message = f"summary makes a data frame, which needs {library}: pip install {library}"
            raise ModuleNotFoundError(message) from error
        return module.DataFrame(table)

    def _tables(self) -> Iterator[NumberTable]:
        """Printed tables: coefficients, and effects if there are factors."""
        table = self._coefficients
        heads = {"coef": "coef", "std": "std err", **self._limits, "effect": "effect"}
        size = np.abs(np.where(np.isfinite(table["effect"]), table["effect"], table["coef"]))
        order = np.arange(len(size))
        if len(size) > MAX_TABLE_ROWS:
            order = np.argsort(-size, kind="stable")
        yield _printed_table("coefficients", table, "feature", heads, order=order)
        if self._has_factors:
            heads = {"effect": "effect", "std": "std err"}
            order = np.arange(len(self._effects["effect"]))
            yield _printed_table("effects", self._effects, "column", heads, order=order)

    def __str__(self) -> str:
        return notebook.as_text(type(self._model).__name__, self.facts, self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.as_html(type(self._model).__name__, self.facts, self._tables())


def _long_table(names: dict[str, list[Any]], **values: Array) -> dict[str, NDArray[Any]]:
    """Columns of a table with a row for each name, repeated for each target if `values` have two
    dimensions.
    """
    shape = next(iter(values.values())).shape
    q = math.prod(shape[:-1])
    table: dict[str, NDArray[Any]] = (
        {"target": np.repeat(np.arange(q), shape[-1])} if len(shape) > 1 else {}
    )
    for head, entries in names.items():
        dtype = object if isinstance(entries[0], str) else None
        table[head] = np.tile(np.array(entries, dtype=dtype), q)
    return {**table, **{head: np.ravel(value) for head, value in values.items()}}


def _printed_table(
    title: str,
    table: dict[str, NDArray[Any]],
    name_column: str,
    heads: dict[str, str],
    *,
    order: NDArray[Any],
) -> NumberTable:
    """Format the columns `heads` of the first MAX_TABLE_ROWS rows in the given order."""
    rows = order[:MAX_TABLE_ROWS]
    if len(rows) < len(order):
        title += f", the largest {MAX_TABLE_ROWS} of {len(order)}"
    names = table[name_column][rows]
    if "target" in table and table["target"].max() > 0:
        targets = table["target"][rows]
        names = [f"target {target}: {name}" for target, name in zip(targets, names, strict=True)]
    columns = [map(number, table[column][rows]) for column in heads]
    return NumberTable(title, list(heads.values()), list(zip(names, *columns, strict=True)))


class SummaryMixin(BaseEstimator):
    """Tables, notebook view and report of a fitted ensemble."""

    _frame_library = "pandas"  # the data frame library of the X that was fitted

    def summary(self, coverage: float = 0.9) -> Summary:
        """Summarise the fit: error, coefficients with their uncertainty, and effects of the
        columns.

        Parameters
        ----------
        coverage : float, default=0.9
            Coverage of the intervals from ``lower`` to ``upper``, see :meth:`coef_interval`.

        Returns
        -------
        summary : Summary
            Printed as a table, also in a notebook. ``summary.facts`` is a dict of strings,
            ``summary.effects`` a data frame of the input columns, the largest effects first, and
            ``summary.coefficients`` a data frame with a row for each column of X, and for each
            target if y had two dimensions (then ``target``, its number, comes first). Both are of
            the data frame library of the X given to `fit`, pandas for other X. Coefficients have
            the columns:

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

            Values are NaN if the training rows are needed and were not kept; values that describe
            members, also if no member holds the column.

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
        >>> model = OLSEnsembleRegressor(20, max_features=2, random_state=0).fit(X, X[:, 1])
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


def write_report(model: Any, path: str | os.PathLike[str], features: list[Feature]) -> None:
    """Write the report page of a fitted ensemble."""
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
    X = np.asarray(problem.X.toarray() if sp.issparse(problem.X) else problem.X, dtype=np.float64)
    held_out_prediction = np.ravel(model.cv_prediction_)
    if fitted.design.kept_rows is not None and len(held_out_prediction):
        held_out_prediction = held_out_prediction[fitted.design.kept_rows]
    notes = []  # differences from a fit by the command, for which the page was written
    if model.cv is not None:
        notes.append(
            f"Errors of the ensemble were estimated with cv={model.cv!r}, whatever is said here."
        )
    effects = Effects(model, features, errors_are_cheap(model))
    page = render(
        summarise(
            model,
            X,
            problem.Y[:, 0],
            effects,
            left_out=held_out_prediction,
            weight=problem.weight,
            target="y",
            data_name="rows given to fit",
            messages=notes,
            seed=fitted.design.seed,
            command=f"{model.__repr__(700)}.fit(X, y).report({os.path.basename(path)!r})",
        )
    )
    atomically(path, lambda file: file.write_text(page, encoding="utf-8"))


def columns_of_model(model: Any) -> list[Feature]:
    """The columns that a model was fitted on, by name, or x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    names = [f"x{j}" for j in range(model.n_features_in_)] if names is None else map(str, names)
    return [Feature(name, name) for name in names]


def _nan_without_rows(compute: Callable[[], Any], shape: tuple[int, ...]) -> Array:
    """Compute a quantity that needs the training rows: NaN if the rows are gone, an error if they
    were changed.
    """
    try:
        return np.asarray(compute(), dtype=np.float64).reshape(shape)
    except ChangedRows:
        raise
    except NeedsRows:
        return np.full(shape, np.nan)


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
