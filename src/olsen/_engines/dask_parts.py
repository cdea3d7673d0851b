"""Dask arrays and data frames as row parts, tree reductions over them, lazy maps; dask is imported only when given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checks import check_columns, refuse_text

__all__ = ["Place", "RowParts", "check_new_rows", "compute", "is_dask", "lazy_predictions", "row_parts", "tree"]

FAN_IN = 8

Place = tuple[int, int, str]  # of a chunk: its number, that of its first row (-1: not known), what it is a chunk of


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
    places : list of Place
        Where each chunk stands.
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
    places: list[Place]
    n_rows: int
    n_columns: int
    names: list[str] | None

    @property
    def kind(self) -> str:
        """What it is, for messages."""
        return self.places[0][2]


def row_parts(X: Any, y: Any, weight: Any, *, lengths: bool) -> RowParts:
    """Chunks of rows. Data frames tell the lengths of their partitions only when asked, for a pass over the data."""
    names, kind = None, "Dask array"
    X, y, weight = _named_columns(X, y, weight)
    _refuse_not_numbers(X, "X")
    if hasattr(X, "columns"):
        names, kind = [str(name) for name in X.columns], "Dask data frame"
        lengths = lengths or any(_needs_cutting(a) for a in (y, weight))
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
    known = not np.isnan(rows).any()
    first = np.concatenate([[0], np.cumsum(rows)]).astype(int).tolist() if known else [-1] * (len(rows) + 1)
    chunks = list(X.to_delayed().ravel())
    targets = _beside(y, rows, "y")
    weights = _constant(chunks, weight) if _is_scalar(weight) else _beside(weight, rows, "sample_weight")
    places = [(number, start, kind) for number, start in enumerate(first[:-1])]
    return RowParts(chunks, targets, weights, places, first[-1], int(X.shape[1]), names)


def _named_columns(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    """X, y and weights, where y and weights may be names of columns of a data frame, which X is then without."""
    given = {"y": y, "sample_weight": weight}
    wanted = {role: names for role, value in given.items() if (names := _names(value))}
    if not wanted:
        return X, y, weight
    columns = list(X.columns) if hasattr(X, "columns") else None
    for role, names in wanted.items():
        for name in names:
            if columns is None:
                raise ValueError(f"{role}={name!r} names a column, but X is a Dask array, which has no names.")
            if name not in columns:
                shown = ", ".join(map(repr, columns[:8])) + (" ..." if len(columns) > 8 else "")
                raise ValueError(f"{role}={name!r} is no column of the Dask data frame; it has {shown}.")
    taken = [name for names in wanted.values() for name in names]
    if len(taken) == len(X.columns):
        raise ValueError(f"the Dask data frame has no columns left for X besides {', '.join(map(repr, taken))}.")
    y, weight = (X[v if isinstance(v, str) else list(v)] if role in wanted else v for role, v in given.items())
    return X.drop(columns=taken), y, weight


def _names(given: Any) -> list[str]:
    """Column names in y or weights; none where they are arrays."""
    if isinstance(given, str):
        return [given]
    named = isinstance(given, (list, tuple)) and all(isinstance(item, str) for item in given)
    return list(given) if named else []


def _refuse_not_numbers(array: Any, name: str) -> None:
    """Refuse text, categories, dates and complex numbers, as far as types tell before anything is computed."""
    if array.ndim == 2 and hasattr(array, "columns"):
        text = [str(column) for column, dtype in array.dtypes.items() if not _is_number(dtype)]
        refuse_text(text, len(array.columns))
    elif not _is_number(array.dtype):
        raise ValueError(f"{name} is of type {array.dtype}; real numbers needed.")


def _is_number(dtype: Any) -> bool:
    """Real numbers, booleans, and objects, which are tried when they are read."""
    return dtype.kind in ("fiubO" if isinstance(dtype, np.dtype) else "fiub")  # texts and categories of pandas are O


def _is_scalar(given: Any) -> bool:
    return given is not None and not is_dask(given) and np.ndim(given) == 0


def _needs_cutting(given: Any) -> bool:
    """Whether y or weights are an array in memory, to be cut where partitions end."""
    return given is not None and not is_dask(given) and not _is_scalar(given)


def _constant(chunks: list[Any], weight: Any) -> list[Any]:
    """One weight for all rows."""
    from dask.delayed import delayed

    fill = delayed(_fill, pure=False)
    return [fill(X, float(weight)) for X in chunks]


def _fill(X: Any, weight: float) -> Any:
    return np.full(X.shape[0], weight)


def _beside(array: Any, rows: tuple[int, ...], name: str) -> list[Any]:
    """Chunks of y or weights, cut like the rows of X."""
    if array is None:
        return [None] * len(rows)
    import dask.array as da

    array = array if is_dask(array) else np.asarray(array)
    _refuse_not_numbers(array, name)
    if array.ndim == 0 or array.ndim > (2 if name == "y" else 1):
        raise ValueError(
            f"{name} has {array.ndim} dimensions, shape {tuple(array.shape)}; expected one number for each row"
            f"{', or one column for each target' if name == 'y' else ''}."
        )
    if hasattr(array, "to_dask_array"):
        array = array.to_dask_array(lengths=None if np.isnan(rows).any() else True)
    if not isinstance(array, da.Array):
        from_array: Callable[..., Any] = da.from_array  # without types of its own, as `compute` below
        array = from_array(array, chunks=-1)
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


def check_new_rows(X: Any, n_columns: int, who: str, names: Sequence[str] | None) -> None:
    """Refuse Dask data to predict whose columns are not those of the fit."""
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2D, rows by columns.")
    own = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    check_columns(own, len(own) if own is not None else X.shape[1], names, n_columns, who)
    _refuse_not_numbers(X, "X")


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
