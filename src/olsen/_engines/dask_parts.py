"""Dask arrays and data frames as row parts, tree reductions over them, lazy maps; dask is imported only when given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["RowParts", "compute", "is_dask", "lazy_predictions", "row_parts", "tree"]

FAN_IN = 8


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or data frame."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


@dataclass(frozen=True)
class RowParts:
    """Rows on a cluster: one delayed (X, y, weight) for every chunk of rows, in order.

    Parameters
    ----------
    X, y, weight : list of Delayed
        Chunks; `weight` holds None where there are no weights.
    first : list of int
        Number of each chunk's first row, from 0; all -1 where lengths are not known (data frames).
    n_rows : int
        Number of rows; -1 where it is not known.
    n_columns : int
        Number of columns.
    names : list of str or None
        Names of the columns.
    """

    X: list[Any]
    y: list[Any]
    weight: list[Any]
    first: list[int]
    n_rows: int
    n_columns: int
    names: list[str] | None


def row_parts(X: Any, y: Any, weight: Any, *, lengths: bool) -> RowParts:
    """Chunks of rows. Data frames tell the lengths of their partitions only when asked, for a pass over the data."""
    names = None
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        X = X.to_dask_array(lengths=True if lengths else None)
    elif np.isnan(np.asarray(X.shape, dtype=float)).any():
        raise ValueError(
            "X is a Dask array with unknown chunk sizes, so its rows cannot be counted. Call X.compute_chunk_sizes() "
            "first."
        )
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2D, rows by columns.")
    if y is None:
        raise ValueError("y is None: give the target as a Dask array or series with the rows of X.")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})  # a member needs whole rows
    rows = X.chunks[0]
    targets, weights = _beside(y, rows, "y"), _beside(weight, rows, "sample_weight")
    known = not np.isnan(rows).any()
    first = np.concatenate([[0], np.cumsum(rows)]).astype(int).tolist() if known else [-1] * (len(rows) + 1)
    chunks = list(X.to_delayed().ravel())
    return RowParts(chunks, targets, weights, first[:-1], first[-1], int(X.shape[1]), names)


def _beside(array: Any, rows: tuple[int, ...], name: str) -> list[Any]:
    """Chunks of y or weights, cut like the rows of X."""
    if array is None:
        return [None] * len(rows)
    import dask.array as da

    if hasattr(array, "to_dask_array"):
        array = array.to_dask_array(lengths=None if np.isnan(rows).any() else True)
    if not isinstance(array, da.Array):
        from_array: Callable[..., Any] = da.from_array  # without types of its own, as `compute` below
        array = from_array(np.asarray(array), chunks=-1)
    if not np.isnan(rows).any():
        if array.shape[0] != sum(rows):
            raise ValueError(f"{name} has {array.shape[0]} rows, but X has {sum(rows)}.")
        array = array.rechunk({0: rows, **({1: -1} if array.ndim > 1 else {})})
    if array.numblocks[0] != len(rows):
        raise ValueError(f"{name} has {array.numblocks[0]} partitions, but X has {len(rows)}; they must match.")
    return list(array.to_delayed().ravel())


def tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """One delayed value from many, merged in their order, `FAN_IN` at a time: workers do not change the result."""
    from dask.delayed import delayed

    join = delayed(merge, pure=False)
    while len(parts) > 1:
        parts = [join(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    return parts[0]


def compute(*values: Any) -> tuple[Any, ...]:
    """Values of delayed objects: on the user's cluster where there is a client, on local threads otherwise."""
    from dask import base

    run: Callable[..., tuple[Any, ...]] = base.compute
    return run(*values)


def lazy_predictions(X: Any, coef: Any, intercept: Any, predict: Callable[[Any, Any, Any], Any]) -> Any:
    """Predictions of Dask data as lazy as the data: ``predict(chunk, coef, intercept)`` on every chunk of rows."""
    if hasattr(X, "map_partitions") and hasattr(X, "columns"):
        X = X.to_dask_array()
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    if coef.ndim == 1:
        return X.map_blocks(predict, coef, intercept, drop_axis=1, dtype=coef.dtype)
    chunks = (X.chunks[0], (coef.shape[0],))
    return X.map_blocks(predict, coef, intercept, chunks=chunks, dtype=coef.dtype)
