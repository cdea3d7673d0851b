"""Arrays of torch, cupy and other array API libraries, on the device of the data.

Everything follows X, as in scikit-learn: with ``sklearn.config_context(array_api_dispatch=True)``
coefficients and predictions come back in the namespace and on the device of X, sums are taken in
float64 where the device has it, and the results are rounded to the type of X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .._execution.arrays import Space, predictions, space_of
from .rows import RowData
from .sources import describe_not_finite


def lives_elsewhere(*arrays: Any) -> bool:
    """Whether any argument is an array of another library that scikit-learn is set to dispatch on."""
    return any(
        array is not None and hasattr(array, "shape") and space_of(array) is not None
        for array in arrays
    )


def rows_on_device(X: Any, y: Any, sample_weight: Any, fit_intercept: bool) -> RowData:
    """Check arrays of another library, and drop rows of weight zero."""
    space = _same_space({"X": X, "y": y, "sample_weight": sample_weight})
    X, y, weight = (_plain(a) for a in (X, y, sample_weight))
    if X.ndim != 2 or X.shape[0] < 2 or X.shape[1] < 1:
        raise ValueError(
            f"X has shape {tuple(X.shape)}; expected 2D with at least two rows and one column."
        )
    if y.ndim not in (1, 2) or y.shape[0] != X.shape[0]:
        raise ValueError(
            f"y has shape {tuple(y.shape)} but X has {X.shape[0]} rows; every row needs its target."
        )
    if weight is not None and tuple(weight.shape) != (X.shape[0],):
        raise ValueError(
            f"sample_weight has shape {tuple(weight.shape)}, but X has {X.shape[0]} rows."
        )
    for array, name in ((X, "X"), (y, "y"), (weight, "sample_weight")):
        if array is not None:
            _refuse_not_finite(array, name, space)
    if weight is not None and bool(space.xp.any(weight < 0)):
        raise ValueError("sample_weight holds negative numbers; weights must be at least zero.")
    X = X if space.xp.isdtype(X.dtype, "real floating") else space.xp.astype(X, space.dtype)
    single_target = y.ndim == 1
    Y = space.cast(y)[:, None] if single_target else space.cast(y)
    weight = None if weight is None else space.cast(weight)
    rows = RowData(X, Y, weight, fit_intercept, space=space, single_target=single_target)
    return replace(rows.with_positive_weights(min_rows=2), from_arrays=False)


def predict(X: Any, coef: Any, intercept: Any, check: Callable[[Any], Any]) -> Any:
    """Predictions in the namespace and on the device of X, which must match the fit."""
    space = _same_space({"coef_": coef, "X": X})
    if X.ndim != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; expected 2D, rows by columns.")
    check(X)
    _refuse_not_finite(X, "X", space)
    X = (
        X if X.dtype == coef.dtype else space.xp.astype(X, coef.dtype)
    )  # libraries multiply arrays of one type only
    return predictions(space, X, coef, intercept)


def refuse_unfollowed(X: Any, coef: Any) -> None:
    """Raise if the coefficients are arrays of another library while scikit-learn's dispatch is off."""
    if isinstance(coef, np.ndarray):
        return
    library = type(coef).__module__.split(".")[0]
    device = getattr(coef, "device", "cpu")
    raise ValueError(
        f"coef_ is an array of {library} on {device}, but X is of type {type(X).__name__} and"
        f" scikit-learn's array_api_dispatch is off. Predict arrays of {library} on {device} within"
        " sklearn.config_context(array_api_dispatch=True), or fit on NumPy arrays."
    )


def _plain(array: Any) -> Any:
    """Detach a dense array from torch's autograd graph, which would otherwise be kept with the
    coefficients.
    """
    if "sparse" in str(getattr(array, "layout", "")):
        raise ValueError(
            "X is a sparse tensor, which is not supported; densify it (X.to_dense()), or give a"
            " scipy.sparse matrix."
        )
    return array.detach() if hasattr(array, "detach") else array


def _same_space(arrays: dict[str, Any]) -> Space:
    """Return the namespace and device that all arrays share; raise if the arrays differ in it."""
    spaces = {name: space_of(array) for name, array in arrays.items() if array is not None}
    labels = {
        name: "host (NumPy)" if s is None else f"{s.name} on {s.device}"
        for name, s in spaces.items()
    }
    if len(set(labels.values())) > 1:
        listed = ", ".join(f"{name} is {label}" for name, label in labels.items())
        raise ValueError(
            f"arrays live in different places: {listed}. Move them to one namespace and device."
        )
    return next(space for space in spaces.values() if space is not None)


def _refuse_not_finite(array: Any, name: str, space: Space) -> None:
    """Raise for complex numbers, NaN and infinity."""
    if space.xp.isdtype(array.dtype, "complex floating"):
        raise ValueError(f"{name} is of type {array.dtype}; real numbers needed.")
    if space.xp.isdtype(array.dtype, "real floating") and not bool(
        space.xp.all(space.xp.isfinite(array))
    ):
        raise ValueError(describe_not_finite(space.get(space.cast(array)), name))
