r"""Dask arrays and data frames: only sums travel, nothing of the length of the data is sent to the client.

Moments of every chunk are merged as a tree, and 8 p^2 bytes are sent to the client, once. Collections with no more
rows than columns are loaded instead: their products would be larger than they are.

Chunks are merged in their order whatever worker had them, so a lost worker changes nothing: Dask recomputes its
chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._execution.arrays import HOST, predictions
from .engine import Options
from .sources import Block, checked, named_columns, refuse_text, refuse_times, split_columns


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or data frame."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


@dataclass(frozen=True)
class DaskRows:
    """Rows on a cluster, a source of blocks: Dask arrays of which X and y have chunks of the same rows.

    Parameters
    ----------
    X, y, weight : Dask arrays
        Whole rows in every chunk; `weight` may be None.
    kind : str
        What it is, for messages.
    names : list of str or None
        Names of the columns.
    """

    X: Any
    y: Any
    weight: Any
    kind: str
    names: list[str] | None
    rereadable = True

    @classmethod
    def of(cls, X: Any, y: Any, weight: Any) -> DaskRows:
        """Of a data frame the rows are counted, which is a pass over the data; y and weights may be columns of it."""
        frame, names, kind = X, None, "Dask array"
        if hasattr(X, "columns"):
            kind = "Dask data frame"
            X = X[split_columns(list(X.columns), y, weight, f"the {kind}")[0]]
            names = [str(name) for name in X.columns]
            refuse_times(X=X._meta)
            refuse_text(_not_numbers(X), len(names))
            X = X.to_dask_array(lengths=True)
        elif named_columns(y) or named_columns(weight):
            raise ValueError(f"y or sample_weight names columns ({y!r:.60}), but X is a Dask array, which has none.")
        if y is None:
            raise ValueError("y is None: give the target as a Dask array or series with the rows of X.")
        if X.ndim != 2 or np.isnan(np.asarray(X.shape, dtype=float)).any():
            raise ValueError(
                f"X has shape {X.shape}; rows by columns are needed, and where rows are not counted "
                f"X.compute_chunk_sizes() has to be called first."
            )
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X  # a member needs whole rows
        targets, weights = (
            _beside(frame[given] if named_columns(given) else given, X.chunks[0], name, bool(named_columns(given)))
            for given, name in ((y, "y"), (weight, "sample_weight"))
        )
        return cls(X, targets, weights, kind, names)

    @property
    def n_rows(self) -> int:
        """They were counted."""
        return int(self.X.shape[0])

    def few_blocks(self, many_rows: int) -> tuple[list[Block] | None, DaskRows]:
        """All rows as one block if they are fewer than `many_rows`, or than the columns; otherwise None."""
        if self.n_rows >= max(many_rows, self.X.shape[1]):
            return None, self
        X, y, weight = compute(self.X, self.y, self.weight)
        return list(checked([(X, y, weight)], self.kind)), self

    def collect(
        self, work: Callable[..., Any], merge: Callable[[list[Any]], Any], options: Options | None = None
    ) -> Any:
        """``work`` of every chunk, merged on the workers; these have threads of their own."""
        from dask.delayed import delayed

        task, first = delayed(_of_chunk, pure=False), np.cumsum([0, *self.X.chunks[0]]).tolist()
        arrays = [[None] * len(first) if a is None else a.to_delayed().ravel() for a in (self.X, self.y, self.weight)]
        chunks = enumerate(zip(*arrays, first, strict=False))
        return compute(tree([task(work, X, y, w, self.kind, i, start) for i, (X, y, w, start) in chunks], merge))[0]


def _of_chunk(work: Callable[..., Any], X: Any, y: Any, weight: Any, kind: str, number: int, first: int) -> Any:
    return work(checked([(X, y, weight)], kind, number, first))


def _not_numbers(frame: Any) -> list[str]:
    """Columns of texts, categories, dates and complex numbers; objects are tried when they are read."""
    numeric = {
        name: dtype.kind in ("fiubO" if isinstance(dtype, np.dtype) else "fiub") for name, dtype in frame.dtypes.items()
    }
    return [str(name) for name, fine in numeric.items() if not fine]


def _beside(given: Any, rows: tuple[int, ...], name: str, same_partitions: bool) -> Any:
    """y or weights, cut like the rows of X."""
    import dask.array as da

    if given is None:
        return None
    refuse_times(**{name: given._meta if is_dask(given) else given})
    if hasattr(given, "to_dask_array"):
        given = given.to_dask_array(lengths=list(rows) if same_partitions else True)
    if not isinstance(given, da.Array):
        from_array: Callable[..., Any] = da.from_array  # without types of its own, as `compute` below
        array = np.asarray(given)
        if array.ndim == 0 and name == "sample_weight":
            array = np.broadcast_to(array, (sum(rows),))
        given = from_array(array, chunks=-1)
    if given.ndim == 0 or given.ndim > (2 if name == "y" else 1):
        raise ValueError(f"{name} has {given.ndim} dimensions, shape {given.shape}; expected one number for each row.")
    if given.shape[0] != sum(rows):
        raise ValueError(f"{name} has {given.shape[0]} rows, but X has {sum(rows)}.")
    return given.rechunk((rows, *([-1] if given.ndim > 1 else [])))


def tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """One delayed value from many, merged in their order, eight at a time: workers do not change the result."""
    from dask.delayed import delayed

    join = delayed(merge, pure=False)
    while len(parts) > 1:
        parts = [join(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    return parts[0]


def compute(*values: Any) -> tuple[Any, ...]:
    """Values of delayed objects: on the user's cluster where there is a client, on local threads otherwise."""
    from dask import base

    run: Callable[..., tuple[Any, ...]] = base.compute
    return run(*values)


def predict(X: Any, coef: Any, intercept: Any, check: Callable[[Any], Any]) -> Any:
    """Predictions as lazy as X."""
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2D, rows by columns.")
    frame = hasattr(X, "columns")
    check(X._meta if frame else X)
    refuse_times(X=X._meta)
    if frame:
        refuse_text(_not_numbers(X), len(X.columns))
        X = X.to_dask_array()
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    shape = {"drop_axis": 1} if coef.ndim == 1 else {"chunks": (X.chunks[0], (coef.shape[0],))}
    return X.map_blocks(_predict_chunk, coef, intercept, dtype=coef.dtype, **shape)


def _predict_chunk(block: Any, coef: Any, intercept: Any) -> Any:
    return predictions(HOST, np.asarray(block), coef, intercept)
