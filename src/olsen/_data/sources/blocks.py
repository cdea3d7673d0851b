"""Rows in blocks: the check of each block, and sources that are read block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..._execution.options import Options
from ..._execution.threads import Report, room_for_a_thread
from ..._trust import ORDINARY, SMALLEST_WEIGHT, refuse_extremes
from ...subsets import row_groups
from .tables import column_names, first_items, refuse_times

T = TypeVar("T")
Triple = tuple[Any, Any, Any]  # X, y and weights of a block in the stored type; weights may be None


@dataclass(frozen=True, kw_only=True)
class Block:
    """Checked consecutive rows: X (rows, p), y (rows, q) and weights (rows,) or None."""

    X: Any
    y: Any
    weight: Any
    number: int
    kind: str  # description of the source, for messages
    first: int  # index of the first row of the block in the data
    single_target: bool  # whether y was a vector
    names: list[str] | None  # column names if the block is a data frame
    target_names: list[str] | None

    @property
    def name(self) -> str:
        """Number and source of the block, for messages."""
        return f"block {self.number} of the {self.kind}"

    @property
    def description(self) -> str:
        """Number, source and rows of the block, for messages."""
        return f"{self.name} (rows {self.first} to {self.first + len(self.X) - 1})"

    def groups(self, count: int, seed: int) -> Iterator[tuple[int, Any, Any, Any]]:
        """Yield (group, X, y, weight) of every nonempty random group, without rows of weight zero.

        The group of a row depends on the seed and on the row index alone, not on the division into
        blocks.
        """
        if count == 1 and self.weight is None and len(self.X):
            yield 0, self.X, self.y, None
            return
        group = (
            np.zeros(len(self.X))
            if count == 1
            else row_groups(self.first, len(self.X), count, seed)
        )
        for g in range(count):
            in_group = group == g if self.weight is None else (group == g) & (self.weight > 0)
            if in_group.any():
                group_weights = None if self.weight is None else self.weight[in_group]
                yield g, self.X[in_group], self.y[in_group], group_weights

    def refuse(self) -> None:
        """Raise for rows with NaN or infinity, and for columns with entries whose squares overflow."""
        for name, array in (("X", self.X), ("y", self.y), ("sample_weight", self.weight)):
            if array is not None:
                finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
                self.refuse_rows(~finite, f"contains NaN or infinity in {name}")
        for name, array in (("X", self.X), ("y", self.y)):
            refuse_extremes(
                np.abs(array.astype(np.float64)).max(axis=0), f"{name} in {self.description}"
            )

    def refuse_rows(self, invalid: NDArray[np.bool_], reason: str) -> None:
        """Raise if any row of the block is invalid."""
        if invalid.any():
            rows = self.first + np.flatnonzero(invalid)
            raise ValueError(
                f"{self.description} {reason}, in {len(rows)} rows: {first_items(rows.tolist())}."
                " Fix or drop them."
            )

    def refuse_weights(self) -> None:
        """Raise for weights that are not finite, negative, or too large or too small to be summed."""
        weight = self.weight
        self.refuse_rows(~np.isfinite(weight), "contains NaN or infinity in sample_weight")
        self.refuse_rows(weight < 0, "has negative weights")
        self.refuse_rows(weight > ORDINARY[1], f"has weights above {ORDINARY[1]:g}")
        self.refuse_rows(
            (weight > 0) & (weight < SMALLEST_WEIGHT), f"has weights below {SMALLEST_WEIGHT:g}"
        )


def checked(
    triples: Iterable[Triple], kind: str, start: int = 0, first: int = 0
) -> Iterator[Block]:
    """Check blocks of which the first has number `start` and begins at row `first`; all must have
    the same columns.
    """
    first_block = None
    for number, triple in enumerate(triples, start):
        block = _checked_block(triple, number, kind, first)
        first_block = first_block or block
        _refuse_other_columns(block, first_block)
        yield block
        first += len(block.X)


def _checked_block(triple: Triple, number: int, kind: str, first: int) -> Block:
    X, y, weight = triple
    name = f"block {number} of the {kind}"
    refuse_times(f" of {name}", X=X, y=y, sample_weight=weight)
    rows = _numbers(X, f"X of {name}")
    targets = _numbers(y, f"y of {name}")
    if rows.ndim != 2 or targets.ndim not in (1, 2):
        raise ValueError(
            f"{name} has X of shape {rows.shape} and y of shape {targets.shape}; expected rows by"
            " columns."
        )
    n = len(rows)
    if weight is not None:
        weight = np.asarray(weight, dtype=np.float64)
        weight = weight if weight.ndim else np.full(n, weight)
    if len(targets) != n or np.shape(weight) not in ((), (n,)):
        raise ValueError(
            f"{name} has {n} rows of X, {len(targets)} of y and weights of shape"
            f" {np.shape(weight)}."
        )
    block = Block(
        X=rows,
        y=targets[:, None] if targets.ndim == 1 else targets,
        weight=weight,
        number=number,
        kind=kind,
        first=first,
        single_target=targets.ndim == 1,
        names=column_names(X),
        target_names=column_names(y),
    )
    if weight is not None:
        block.refuse_weights()
    return block


def _refuse_other_columns(block: Block, first_block: Block) -> None:
    """Raise if the columns of a block are not those of the first: sums would mix them silently."""
    p = block.X.shape[1]
    q = block.y.shape[1]
    first_p = first_block.X.shape[1]
    first_q = first_block.y.shape[1]
    if p != first_p or q != first_q:
        raise ValueError(
            f"{block.name} has {p} columns and {q} targets, but the blocks before have {first_p}"
            f" and {first_q}."
        )
    _refuse_other_names(block.names, first_block.names, block.name, "columns")
    if q > 1:  # the name of a single target orders nothing
        _refuse_other_names(block.target_names, first_block.target_names, block.name, "targets")


def _refuse_other_names(
    names: list[str] | None, first_names: list[str] | None, block_name: str, noun: str
) -> None:
    if names == first_names:
        return
    if names is None or first_names is None:
        names_text, first_text = (
            f"no names of {noun}" if columns is None else f"{noun} named {first_items(columns)}"
            for columns in (names, first_names)
        )
        raise ValueError(
            f"{block_name} has {names_text}, but the first block has {first_text}. Give every"
            " block as a data frame with the same names, or every block as an array."
        )
    different_names = sorted(set(names) ^ set(first_names))
    if not different_names:  # the same names in another order
        different_names = [a for a, b in zip(names, first_names, strict=True) if a != b]
    raise ValueError(
        f"{block_name} has other {noun} than the first block, or another order of them: "
        f"{first_items(different_names)}. Select the same names in the same order in every block."
    )


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """Convert values to an array of real numbers; object arrays are cast to float64, as for data in
    memory.
    """
    array: NDArray[Any] = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} does not hold numbers ({error}).") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} is of type {array.dtype}; real numbers needed.")
    return array


@dataclass(frozen=True)
class BlockSource:
    """Rows in blocks.

    Parameters
    ----------
    read : callable
        Returns a fresh iterator over blocks (X, y, weight).
    kind : str
        Description of the source, for messages.
    rereadable : bool
        Whether `read` may be called again.
    n_rows : int or None
        Number of rows; None if it is unknown before reading.
    names : list of str or None
        Names of the columns.
    """

    read: Callable[[], Iterator[Triple]]
    kind: str
    rereadable: bool = True
    n_rows: int | None = None
    names: list[str] | None = None

    def collect(self, work: Callable[..., T], merge: Any, options: Options | None = None) -> T:
        """Return ``work(blocks)`` of all blocks, which are read ahead; `merge` is used on clusters
        only.
        """
        if options is None:
            return work(self._blocks(1, None))
        report = options.report("rows", self.n_rows or "an unknown number")
        return work(self._blocks(options.n_threads, report), options.n_threads)

    def few_blocks(self, many_rows: int) -> tuple[list[Block] | None, BlockSource]:
        """Return all blocks if the rows are fewer than `many_rows` or than the columns; otherwise
        None.

        The second value is the source to read from now on: it begins with the blocks already taken
        from an iterator.
        """
        triples = self.read()
        first_triples: list[Triple] = []

        def recorded() -> Iterator[Triple]:
            for triple in triples:
                first_triples.append(triple)
                yield triple

        blocks: list[Block] = []
        n_rows = 0
        for block in checked(recorded(), self.kind):
            blocks.append(block)
            n_rows += len(block.X)
            if n_rows >= max(many_rows, block.X.shape[1]):
                return None, (
                    self
                    if self.rereadable
                    else replace(self, read=lambda: chain(first_triples, triples))
                )
        return blocks, self

    def _blocks(self, n_ahead: int, report: Report | None) -> Iterator[Block]:
        for block in checked(ahead(self.read(), n_ahead), self.kind):
            yield block
            if report:
                report(block.first + len(block.X))


def ahead(blocks: Iterator[T], count: int) -> Iterator[T]:
    """Yield blocks and read up to `count` further ones meanwhile in a thread; without a thread,
    read one by one.
    """
    pending = deque[Future[T | None]]()
    threaded = room_for_a_thread()
    reader = ThreadPoolExecutor(1)
    try:
        while True:
            try:
                while threaded and len(pending) <= count:
                    pending.append(reader.submit(next, blocks, None))
            except RuntimeError:  # the system has no more threads, or the interpreter is ending
                threaded = False
            block = pending.popleft().result() if pending else next(blocks, None)
            if block is None:
                return
            yield block
    finally:
        # without waiting: the garbage collector may run in the reader, or in a thread that is about
        # to begin
        reader.shutdown(wait=False, cancel_futures=True)


def require_positive(n_positive: int, n_rows: int, min_rows: int = 2) -> None:
    """Refuse weights that leave too few rows."""
    if n_positive < min_rows:
        raise ValueError(
            f"sample_weight is positive for {n_positive} of {n_rows} rows, but at least {min_rows}"
            " rows with positive weight are needed; a weight of zero drops the row."
        )
