"""Effects of the columns of an ensemble, and of the input columns that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.fits import ChangedRows, NeedsRows
from .inputs import on_host

Array = NDArray[np.float64]

# floating-point operations up to which a report computes standard errors of effects
MAX_OPERATIONS = 2e10
NEGLIGIBLE_EFFECT = 1e-12  # of the largest effect: rounding, which is reported as zero


class Feature(NamedTuple):
    """A column of an ensemble, the input column it was made of, and whether it only marks missing
    values there, or one category (`level`).

    `reference` is the category that has no column, if there is one; dates are days since 1970.
    """

    name: str
    source: str
    indicator: bool = False
    level: str | None = None
    reference: str | None = None
    is_date: bool = False

    @property
    def label(self) -> str:
        """Name in reports, without what a transformer put into it."""
        if self.indicator and self.source != self.name:
            return f"{self.source} is missing"
        return self.name if self.level is None else f"{self.source}: {self.level}"


class Effects:
    """Effects of the features of an ensemble (`by_feature`), and of the input columns they come
    from (`by_column`).

    An effect is the standard deviation over the training rows of a column's part of the
    predictions, with the sign of the coefficient if the column is one number, alone or beside an
    indicator of its missing values; levels of a factor are taken together. Both arrays have shape
    (2, [targets,] columns): effects, then their standard errors; NaN if the training rows are
    needed and gone. Effects that are rounding are zero, and so are their coefficients in `coef`.

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
        self.has_errors = errors
        self._model = model
        self.coef = on_host(model.coef_)
        self.features_of_column: dict[str, list[int]] = {}
        for j, feature in enumerate(features):
            self.features_of_column.setdefault(feature.source, []).append(j)
        groups = [[j] for j in range(len(features))]
        groups += self.features_of_column.values()
        effects = self._effects(groups, errors, moments)
        size = np.abs(effects[0])
        is_rounding = size < NEGLIGIBLE_EFFECT * np.max(size, axis=-1, keepdims=True)
        effects[0] = np.where(is_rounding, 0.0, effects[0]) + 0.0  # and no negative zero
        self.coef = np.where(is_rounding[..., : len(features)], 0.0, self.coef) + 0.0
        self.by_feature, self.by_column = np.split(effects, [len(features)], axis=-1)
        for g, indices in enumerate(self.features_of_column.values()):
            numeric = self._numeric_feature(indices)
            size = np.abs(self.by_column[0, ..., g])
            is_negative = numeric is not None and self.coef[..., numeric] < 0
            self.by_column[0, ..., g] = np.where(is_negative, -size, size) + 0.0

    def _effects(self, groups: list[list[int]], errors: bool, moments: Any) -> Array:
        """Effects of groups of features and their standard errors, NaN where they are not
        available.
        """
        shape = (2, *self.coef.shape[:-1], len(groups))

        def compute(with_errors: bool) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):
                return nan_without_rows(
                    lambda: self._model._effects(groups, with_errors, moments), shape
                )

        effects = compute(errors)
        if errors and np.isnan(effects).all():
            return compute(False)  # without standard errors effects may be available
        return effects

    def _values(self, indices: list[int]) -> list[int]:
        """Features of an input column that hold its values, without the indicator of missing ones."""
        return [j for j in indices if not self.features[j].indicator] or indices

    def _numeric_feature(self, indices: list[int]) -> int | None:
        """Index of the one feature of an input column that holds its value; None for a factor."""
        values = self._values(indices)
        is_number = len(values) == 1 and self.features[values[0]].level is None
        return values[0] if is_number else None

    def standard_errors(self) -> Array | None:
        """Standard errors of the coefficients; None where they were left out or are not available."""
        if not self.has_errors:
            return None
        std = nan_without_rows(self._model.coef_std, self.coef.shape)
        return None if np.isnan(std).all() else std

    def largest(self, n_columns: int = 15) -> list[dict[str, Any]]:
        """Records of the input columns with the largest effects; columns without any effect are left
        out. The model must have one target.
        """
        records = [record for record in self.records()[:n_columns] if record["size"] > 0]
        return [{key: record[key] for key in record if key != "size"} for record in records]

    def records(self, target: int = 0) -> list[dict[str, Any]]:
        """Effects of all input columns on a target, the largest first, or the column with the
        largest coefficient first if effects are not available.

        A factor has the coefficients of its ``levels`` instead of one coefficient, and ``drawn`` is
        the mean over its levels.
        """
        coef = np.atleast_2d(self.coef)[target]
        effect, error = self.by_column.reshape(2, -1, len(self.features_of_column))[:, target]
        records: list[dict[str, Any]] = []
        for g, (name, indices) in enumerate(self.features_of_column.items()):
            values = self._values(indices)
            j = self._numeric_feature(indices)
            is_known = bool(np.isfinite(effect[g]))
            record: dict[str, Any] = {
                "name": name,
                "features": len(indices),
                "effect": float(effect[g]) if is_known else None,
                "standard_error": float(error[g]) if np.isfinite(error[g]) else None,
                "coefficient": None if j is None else float(coef[j]),
                **self._levels(values, target),
                "drawn": float(self._model.inclusion_[values].mean()),
                "size": float(np.abs(effect[g] if is_known else coef[indices]).max()),
            }
            records.append(record)
        return sorted(records, key=lambda record: -record["size"])

    def _levels(self, values: list[int], target: int) -> dict[str, Any]:
        """Coefficients of the levels of a factor, descending, and the difference between the first
        and the last one with its standard error; None for other columns.
        """
        features = [self.features[j] for j in values]
        if any(feature.level is None for feature in features):
            return {"levels": None, "difference": None, "difference_standard_error": None}
        coef = np.append(np.atleast_2d(self.coef)[target], 0.0)
        names = {j: feature.level for j, feature in zip(values, features, strict=True)}
        if features[0].reference is not None:
            names[len(coef) - 1] = features[0].reference
        order = sorted(names, key=lambda j: -coef[j])
        contrast = np.zeros((1, len(coef)))
        contrast[0, order[-1]] -= 1.0
        contrast[0, order[0]] += 1.0
        error = np.nan
        if self.has_errors:
            of_model = self._model._contrast_std
            shape = (1, len(np.atleast_2d(self.coef)))
            error = nan_without_rows(lambda: of_model(contrast[:, :-1]), shape)[0, target]
        return {
            "levels": [{"name": names[j], "coefficient": float(coef[j])} for j in order],
            "difference": float(contrast[0] @ coef),
            "difference_standard_error": float(error) if np.isfinite(error) else None,
        }

    def parts_of(self, row: Array, mean_row: Array, n_columns: int = 8) -> list[dict[str, Any]]:
        """Parts of the prediction of a row: how far its input columns move it away from the
        prediction at the means, the largest parts first, and all other columns together.
        """
        moves = np.ravel(self.coef) * (row - mean_row)
        parts: list[dict[str, Any]] = [
            {"name": name, "value": self._value(row, indices), "part": float(moves[indices].sum())}
            for name, indices in self.features_of_column.items()
        ]
        parts.sort(key=lambda part: -abs(part["part"]))
        rest = parts[n_columns:]
        if len(rest) > 1:
            name = f"{len(rest)} other column{'s' * (len(rest) > 1)}"
            moved = sum(part["part"] for part in rest)
            parts[n_columns:] = [{"name": name, "value": "", "part": moved}]
        return parts

    def _value(self, row: Array, indices: list[int]) -> str:
        """The value of an input column in a row of features; empty where it is not one of them."""
        if any(self.features[j].indicator and row[j] == 1 for j in indices):
            return "missing"
        j = self._numeric_feature(indices)
        if j is not None and self.features[j].is_date:
            return str(np.datetime64(0, "s") + np.timedelta64(round(86_400 * row[j]), "s"))[:10]
        if j is not None:
            return f"{row[j]:.6g}"
        first = self.features[indices[0]]
        levels = [self.features[j].level for j in self._values(indices) if row[j]]
        return (levels[0] if levels else first.reference) or ""


def errors_are_cheap(model: Any) -> bool:
    """Whether standard errors of effects are computed within seconds: they take thirty refits, of
    about ten factorisations each.
    """
    n = model._result().design.n_rows
    p = model.n_features_in_
    return bool(300 * n * p * min(n, p) <= MAX_OPERATIONS)


def columns_of_model(model: Any) -> list[Feature]:
    """The columns that a model was fitted on, by name, or x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    names = [f"x{j}" for j in range(model.n_features_in_)] if names is None else map(str, names)
    return [Feature(name, name) for name in names]


def nan_without_rows(compute: Callable[[], Any], shape: tuple[int, ...]) -> Array:
    """Compute a quantity that needs the training rows: NaN if the rows are gone, an error if they
    were changed.
    """
    try:
        return np.asarray(compute(), dtype=np.float64).reshape(shape)
    except ChangedRows:
        raise
    except NeedsRows:
        return np.full(shape, np.nan)
