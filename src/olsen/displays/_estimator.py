"""What displays ask of an estimator: that it is fitted and suits them, names of columns, one of its targets."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

__all__ = [
    "Array",
    "check_display",
    "column_names",
    "one_target",
    "scale_of_names",
    "targets_as_columns",
]

Array = NDArray[np.float64]


def check_display(estimator: Any, display: str, needs: tuple[str, ...], way_out: str) -> None:
    """Raise where an estimator is not fitted, or lacks what a display is made of."""
    check_is_fitted(estimator)
    lacking = [name for name in needs if not hasattr(estimator, name)]
    if lacking and hasattr(estimator, "steps"):
        way_out = "Give its last step, pipeline[-1], and rows as that step sees them, pipeline[:-1].transform(X)."
    if lacking:
        raise TypeError(f"{display} needs {lacking[0]}, which {type(estimator).__name__} does not have. {way_out}")


def column_names(estimator: Any, given: ArrayLike | None = None) -> NDArray[np.object_]:
    """Names of the columns: the given ones, those of the fit, or x0, x1, ... as scikit-learn calls them."""
    count = int(estimator.n_features_in_)
    names = getattr(estimator, "feature_names_in_", None) if given is None else given
    if names is None:
        names = [f"x{i}" for i in range(count)]
    names = np.array([str(name) for name in np.asarray(names).ravel()], dtype=object)
    if len(names) != count:
        raise ValueError(f"feature_names has {len(names)} names, but the estimator was fitted on {count} columns.")
    return names


def scale_of_names(names: NDArray[np.object_]) -> tuple[Array, str] | None:
    """Numbers and unit of columns along a scale ("1100 nm", "nm1100", "1100"), or None where names are no such scale.

    All must have one number each, with the same text around it, and the numbers must rise or fall throughout. Numbers
    that only count the columns (x0, x1, ...; w0001, w0002, ...) are no scale.
    """
    found = [re.fullmatch(r"([^\d.-]*)(-?\d+(?:\.\d*)?(?:e-?\d+)?)([^\d.]*)", name.strip()) for name in names]
    if len(names) < 3 or any(match is None for match in found):
        return None
    around = {(match[1], match[3]) for match in found if match is not None}
    numbers = np.array([float(match[2]) for match in found if match is not None])
    step = np.diff(numbers)
    counts = numbers[0] in (0, 1) and bool((step == 1).all())
    if len(around) > 1 or counts or not ((step > 0).all() or (step < 0).all()):
        return None
    ((before, after),) = around
    return numbers, (after or before).strip(" _:-[]()")


def one_target(values: Array, target: int | None, axis: int = 0, single: int = 1) -> Array:
    """Values of one target; `single` is the number of dimensions that they have where there is only one."""
    if values.ndim == single:
        if target not in (None, 0):
            raise ValueError(f"target={target!r}, but the estimator was fitted to one target; leave it None.")
        return values
    count = values.shape[axis]
    if target is None and count > 1:
        raise ValueError(f"the estimator was fitted to {count} targets: choose one of them, target=0 to {count - 1}.")
    number = 0 if target is None else target
    if not 0 <= number < count:
        raise ValueError(f"target={target!r} must be a number from 0 to {count - 1}: there are {count} targets.")
    return np.asarray(np.take(values, number, axis=axis))


def targets_as_columns(y: Any, n_rows: int, n_targets: int) -> Array:
    """Targets of shape (n_rows, n_targets), checked."""
    found = np.asarray(y, dtype=np.float64)
    found = column_or_1d(found)[:, None] if n_targets == 1 else found
    check_consistent_length(found, np.empty(n_rows))
    if found.ndim != 2 or found.shape[1] != n_targets:
        raise ValueError(f"y has shape {np.shape(y)}, but the estimator was fitted to {n_targets} targets.")
    if not np.isfinite(found).all():
        raise ValueError(
            f"y holds {int((~np.isfinite(found)).sum())} values that are no finite numbers; drop these rows."
        )
    return found
