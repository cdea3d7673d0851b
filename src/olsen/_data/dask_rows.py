r"""Dask arrays and data frames: workers send sums to the client, and nothing whose size grows with
the rows.

The moments of the chunks are merged as a tree, and the client receives 8 p^2 bytes once. A
collection with no more rows than columns is loaded instead, because its Gram matrix would be larger
than the data.

The merge follows the order of the chunks, whichever worker held a chunk. A lost worker therefore
does not change the result: Dask recomputes its chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .._execution.arrays import HOST, predictions
from .._execution.options import Options
from .sources import (
    Block,
    Triple,
    checked,
    named_columns,
    refuse_text,
    refuse_times,
    split_columns,
)


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array or data frame."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(
        X, "__dask_graph__"
    )


@dataclass(frozen=True)
class DaskRows:
    """Source of blocks on a cluster: Dask arrays X and y whose chunks hold the same rows.

    Parameters
    ----------
    X, y, weight : Dask arrays
        Every chunk holds complete rows; `weight` may be None.
    kind : str
        Description of the source, for messages.
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
        """Source from a Dask array, or from a data frame of which y and weights may be columns.

        The rows of a data frame are counted, which takes a pass over the data.
        """
        frame = X
        names = None
        kind = "Dask array"
        if hasattr(X, "columns"):
            kind = "Dask data frame"
            X = X[split_columns(list(X.columns), y, weight, f"the {kind}")[0]]
            names = [str(name) for name in X.columns]
            refuse_times(X=X._meta)
            refuse_text(_not_numbers(X), len(names))
            X = _counted_array(X)
        elif named_columns(y) or named_columns(weight):
            raise ValueError(
                f"y or sample_weight names columns ({y!r:.60}), but X is a Dask array, which has"
                " none."
            )
        if y is None:
            raise ValueError(
                "y is None: give the target as a Dask array or series with the rows of X."
            )
        if X.ndim != 2 or np.isnan(np.asarray(X.shape, dtype=float)).any():
            raise ValueError(
                f"X has shape {X.shape}; rows by columns are needed, and where rows are not counted"
                " X.compute_chunk_sizes() has to be called first."
            )
        X = (
            X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        )  # products of columns need complete rows
        y_is_column = bool(named_columns(y))
        weight_is_column = bool(named_columns(weight))
        return cls(
            X=X,
            y=_chunked_like(X, frame[y] if y_is_column else y, "y", same_partitions=y_is_column),
            weight=_chunked_like(
                X,
                frame[weight] if weight_is_column else weight,
                "sample_weight",
                same_partitions=weight_is_column,
            ),
            kind=kind,
            names=names,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def few_blocks(self, many_rows: int) -> tuple[list[Block] | None, DaskRows]:
        """Return all rows, by chunks, if there are fewer than `many_rows` or than columns; otherwise
        None.
        """
        if self.n_rows >= max(many_rows, self.X.shape[1]):
            return None, self
        X, y, weight = compute(self.X, self.y, self.weight)
        ends = np.cumsum([0, *self.X.chunks[0]]).tolist()
        chunks = [slice(start, end) for start, end in pairwise(ends)]
        triples = [(X[rows], y[rows], None if weight is None else weight[rows]) for rows in chunks]
        return list(checked(triples, self.kind)), self

    def collect(
        self,
        work: Callable[..., Any],
        merge: Callable[[list[Any]], Any],
        options: Options | None = None,
    ) -> Any:
        """Apply `work` to every chunk and merge the results on the workers, which use threads of
        their own.
        """
        from dask.delayed import delayed

        task = delayed(_work_on_chunk, pure=False)
        first_rows = np.cumsum([0, *self.X.chunks[0]]).tolist()
        X_chunks = self.X.to_delayed().ravel()
        y_chunks = self.y.to_delayed().ravel()
        weight_chunks = (
            [None] * len(X_chunks) if self.weight is None else self.weight.to_delayed().ravel()
        )
        tasks = []
        for i, triple in enumerate(zip(X_chunks, y_chunks, weight_chunks, strict=True)):
            tasks.append(task(work, triple, kind=self.kind, number=i, first=first_rows[i]))
        return compute(tree(tasks, merge))[0]


def _work_on_chunk(
    work: Callable[..., Any], triple: Triple, kind: str, number: int, first: int
) -> Any:
    return work(checked([triple], kind, number, first))


def _not_numbers(frame: Any) -> list[str]:
    """Columns of strings, categories, dates and complex numbers; object columns are converted when
    read.
    """
    names = []
    for name, dtype in frame.dtypes.items():
        numeric_kinds = "fiubO" if isinstance(dtype, np.dtype) else "fiub"
        if dtype.kind not in numeric_kinds:
            names.append(str(name))
    return names


def _chunked_like(X: Any, values: Any, name: str, *, same_partitions: bool) -> Any:
    """Convert y or weights to a Dask array with the row chunks of X."""
    import dask.array as da

    if values is None:
        return None
    rows = X.chunks[0]
    refuse_times(**{name: values._meta if is_dask(values) else values})
    if hasattr(values, "to_dask_array"):
        values = _counted_array(values, rows if same_partitions else ())
    if not isinstance(values, da.Array):
        from_array: Callable[..., Any] = da.from_array  # Dask has no type annotations here
        array = np.asarray(values)
        if array.ndim == 0 and name == "sample_weight":
            array = np.broadcast_to(array, (sum(rows),))
        values = from_array(array, chunks=-1)
    if values.ndim == 0 or values.ndim > (2 if name == "y" else 1):
        raise ValueError(
            f"{name} has {values.ndim} dimensions, shape {values.shape}; expected one number for"
            " each row."
        )
    if values.shape[0] != sum(rows):
        raise ValueError(f"{name} has {values.shape[0]} rows, but X has {sum(rows)}.")
    return values.rechunk((rows, *([-1] if values.ndim > 1 else [])))


def _counted_array(frame: Any, lengths: tuple[int, ...] = ()) -> Any:
    """Dask array of a data frame or series; its chunks are counted unless there are as many as
    known `lengths`.

    Dask reads several small row groups of a Parquet file as one partition, the more the fewer
    columns are asked for, so an array may have fewer chunks than its frame has partitions.
    """
    array = frame.to_dask_array()
    if array.numblocks[0] == len(lengths):
        return frame.to_dask_array(lengths=list(lengths))
    return array.compute_chunk_sizes()


def tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Merge delayed values in their order, eight at a time, so that the result does not depend on
    the workers.
    """
    from dask.delayed import delayed

    join = delayed(merge, pure=False)
    while len(parts) > 1:
        parts = [join(parts[i : i + 8]) for i in range(0, len(parts), 8)]
    return parts[0]


def compute(*values: Any) -> tuple[Any, ...]:
    """Compute delayed objects on the user's cluster if there is a client, and on local threads
    otherwise.
    """
    from dask import base

    run: Callable[..., tuple[Any, ...]] = base.compute
    return run(*values)


def predict(X: Any, coef: Any, intercept: Any, check: Callable[[Any], Any]) -> Any:
    """Lazy predictions of a Dask array or data frame."""
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected 2D, rows by columns.")
    is_frame = hasattr(X, "columns")
    check(X._meta if is_frame else X)
    refuse_times(X=X._meta)
    if is_frame:
        refuse_text(_not_numbers(X), len(X.columns))
        X = X.to_dask_array()
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    shape = {"drop_axis": 1} if coef.ndim == 1 else {"chunks": (X.chunks[0], (coef.shape[0],))}
    return X.map_blocks(_predict_chunk, coef, intercept, dtype=coef.dtype, **shape)


def _predict_chunk(block: Any, coef: Any, intercept: Any) -> Any:
    return predictions(HOST, np.asarray(block), coef, intercept)
