r"""Rows in blocks: moments from one pass, then any members, in memory that does not grow with the
number of rows.

Every member uses all rows. For folds, a counter-based random number assigns every row to a group,
and each group has separate moments. Members with an ill-conditioned Gram matrix are not solved from
the moments but from a triangular factor, which takes a second pass over the data.

A source has ``collect(work, merge)``, which applies a function to all blocks. A local source passes
its blocks to the function one by one; on a cluster the function runs on each chunk, and the results
are merged in chunk order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .._execution.arrays import HOST
from .._execution.options import Options
from .._execution.threads import Threads, one_blas_thread
from ..subsets import Design, row_groups
from .accumulator import Accumulator
from .dask_rows import DaskRows
from .fits import FoldFit, NeedsRows
from .moments import Moments
from .rows import RowData, rows_on_host
from .sources import Block, BlockSource, require_positive
from .triangle import CentredRows, Triangle

Array = NDArray[np.float64]
T = TypeVar("T")

Source = BlockSource | DaskRows


@dataclass(frozen=True)
class Summary:
    """Result of one pass over the rows; summaries of consecutive rows can be merged."""

    parts: list[Moments]  # moments of every group of rows
    n_given: int = 0  # rows read, including rows of weight zero
    single_target: bool = False
    dtype: Any = np.float64
    names: list[str] | None = None  # column names if the blocks were data frames

    @property
    def n_rows(self) -> int:
        """Number of rows with positive weight."""
        return sum(part.n_rows for part in self.parts)

    @staticmethod
    def merge(summaries: list[Summary]) -> Summary:
        """Summary of all rows together."""
        parts = _merge_groups(Moments.merge_all, [summary.parts for summary in summaries])
        return replace(
            summaries[0], parts=parts, n_given=sum(summary.n_given for summary in summaries)
        )


def _sum_rows(
    blocks: Generator[Block], n_threads: int = 1, *, n_groups: int, seed: int, centre: bool
) -> Summary:
    """Moments of random groups of rows.

    Blocks are assigned in turn to lanes. A lane has an accumulator for every group, and lanes are
    summed in parallel. The number of lanes depends on the shape alone, so the number of threads
    does not change the result.
    """
    lanes: list[list[Accumulator]] = []
    n_given = 0
    summary = Summary([])

    def add(batch: list[Block], i: int, _: int) -> None:
        block = batch[i]
        lane = lanes[block.number % len(lanes)]
        for g, *rows in block.groups(n_groups, seed):
            if not lane[g].add(*rows):
                block.refuse()

    # Blocks are closed inside our limit on BLAS threads: reading may set a limit too, and its end
    # would restore ours.
    with one_blas_thread() if n_threads > 1 else nullcontext(), closing(blocks):
        while batch := list(
            islice(blocks, min(n_threads, len(lanes) or 1))
        ):  # blocks of different lanes
            if not lanes:
                lanes = _lanes(batch[0].X.shape[1], batch[0].y.shape[1], n_groups, centre)
                dtype = np.float32 if batch[0].X.dtype == np.float32 else np.float64
                summary = Summary(
                    [], single_target=batch[0].single_target, dtype=dtype, names=batch[0].names
                )
            Threads(n_threads)(partial(add, batch), len(batch), chunk=1, uses_blas=False)
            n_given += sum(len(block.X) for block in batch)
    if not lanes:
        return summary
    for lane in lanes[1:]:
        for total, accumulator in zip(lanes[0], lane, strict=True):
            total.absorb(accumulator)
    return replace(summary, parts=[total.moments() for total in lanes[0]], n_given=n_given)


def _lanes(p: int, q: int, n_groups: int, centre: bool) -> list[list[Accumulator]]:
    """Sets of accumulators that are filled in parallel: at most 16, and of 64 MiB where more than one."""
    lane_bytes = 8.0 * n_groups * (p + q + 1) ** 2
    memory.require(3 * lane_bytes, f"{n_groups} Gram matrices of {p} columns", "Use fewer columns.")
    n_lanes = int(min(16, max(1, 2**26 // lane_bytes)))
    return [[Accumulator(p, q, centre) for _ in range(n_groups)] for _ in range(n_lanes)]


def _triangles_of(
    blocks: Iterator[Block], p: int, q: int, n_groups: int, seed: int, centre: bool
) -> list[Triangle]:
    """Triangular factors of the groups of rows whose moments :func:`_sum_rows` returns."""
    triangles = [Triangle.empty(p, q) for _ in range(n_groups)]
    for block in blocks:
        if (block.X.shape[1], block.y.shape[1]) != (p, q):
            raise ValueError(_reread(block.kind, f"{p} columns", f"{block.X.shape[1]}"))
        for g, X, Y, weight in block.groups(n_groups, seed):
            triangles[g] = triangles[g].add(X, Y, weight, centre)
    return triangles


def _fold_errors(
    blocks: Iterator[Block], fits: list[FoldFit], seed: int, n_rows: int, max_rows: int
) -> list[Array]:
    """Predictions and residuals, (2, rows, q), of the held-out rows of every fold; if there are more
    than `max_rows` rows, of a random subset of about that size.

    Whether a row belongs to the subset depends on the seed and the row index alone.
    """
    tested: list[list[Array]] = [[np.zeros((2, 0, len(fit.coef)))] for fit in fits]
    for block in blocks:
        if n_rows > max_rows:
            n_parts = 1 << 16
            parts = row_groups(block.first, len(block.X), n_parts, seed ^ 0x5EED)
            selected = parts < n_parts * max_rows / n_rows
            block = replace(
                block, weight=np.where(selected, 1.0 if block.weight is None else block.weight, 0.0)
            )
        for g, X, Y, _ in block.groups(len(fits), seed):
            fit = fits[g].tested(X, Y)
            tested[g].append(np.array([fit.prediction, fit.residual]))
    return [_join_rows(of_fold) for of_fold in tested]


def _join_rows(parts: list[Array]) -> Array:
    """Arrays (2, rows, q) of consecutive rows as one."""
    return np.concatenate(parts, axis=1)


def _largest(blocks: Iterator[Block], values_of: Callable[[Any], Array]) -> float:
    """Largest of ``values_of(X)`` over the rows with positive weight."""
    rows = (X for block in blocks for _, X, _, _ in block.groups(1, 0))
    return max((float(np.max(values_of(X))) for X in rows), default=-np.inf)


def _merge_groups(merge: Callable[[list[T]], T], parts: list[list[T]]) -> list[T]:
    """Merge the values of each group over consecutive chunks; ``parts[chunk][group]``."""
    return [merge(list(group_parts)) for group_parts in zip(*parts, strict=True)]


class MomentData:
    """Training data of which moments of groups of rows are known: a source of row blocks, which is
    summed in one pass on first use, or moments without a source.
    """

    why_no_rows = (
        "rows in blocks are read once and not kept; load X as an array in memory to have them"
    )
    rows = None
    host_rows = None
    space = HOST
    prefers_factor = False
    from_arrays = False
    is_stored = False
    kept_rows = None

    def __init__(
        self,
        source: Source | None,
        fit_intercept: bool,
        options: Options,
        summary: Summary | None = None,
        triangles: Callable[[], list[Triangle]] | None = None,
    ) -> None:
        self.source = source
        self.fit_intercept = fit_intercept
        self.options = options  # of the passes over the source
        self._summary = summary
        self._triangles = triangles

    @classmethod
    def from_moments(cls, parts: list[Moments]) -> MomentData:
        """Data that are known by the moments of their groups of rows alone."""
        summary = Summary(parts, sum(part.n_rows for part in parts))
        return cls(None, parts[0].centred, Options(), summary)

    @property
    def summary(self) -> Summary:
        """Result of the pass, which `complete` and `fold_moments` make."""
        assert self._summary is not None
        return self._summary

    @property
    def is_summed(self) -> bool:
        """Whether there has been a pass over the rows."""
        return self._summary is not None

    @property
    def can_be_read_again(self) -> bool:
        """Whether the source can be read again."""
        return self.source is not None and self.source.rereadable

    @property
    def names(self) -> list[str] | None:
        """Column names of data frames."""
        if self.source is not None and self.source.names is not None:
            return self.source.names
        return self.summary.names

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.summary.parts[0].G)

    @property
    def single_target(self) -> bool:
        """Whether y was a vector."""
        return self.summary.single_target

    @property
    def dtype(self) -> Any:
        """Type of coefficients and predictions."""
        return self.summary.dtype

    def complete(self, design: Design) -> Design:
        """Add the shape of the data to a design, which takes a pass over the rows."""
        if not design.all_rows:
            raise NeedsRows(
                f"max_samples={design.max_samples!r} needs X as an array in memory, or on a device:"
                " rows in blocks are read once, so members cannot draw them. Use max_samples=1.0."
            )
        summary = self._summary or self._sum(1, design.seed)
        return replace(
            design, n_rows=summary.n_rows, n_columns=self.n_columns, n_given=summary.n_given
        )

    def fold_moments(self, count: int, seed: int) -> list[Moments]:
        """Moments of random folds of the rows; without a source, of folds of the groups."""
        if self.source is not None:
            return self._sum(count, seed).parts
        count = min(count, len(self.summary.parts))
        return [Moments.merge_all(self.summary.parts[f::count]) for f in range(count)]

    def reopen(self) -> MomentData | None:
        """The unread data, to be kept with a fit; None if they cannot be read again."""
        if not self.can_be_read_again:
            return None
        return MomentData(self.source, self.fit_intercept, replace(self.options, progress=None))

    def loaded_if_small(self, many_rows: int) -> RowData | MomentData:
        """Rows on the host if there are fewer than `many_rows` or than columns; or self."""
        if self.source is None:
            return self
        blocks, source = self.source.few_blocks(many_rows)
        if blocks is not None:
            return rows_of_blocks(blocks, source, self.fit_intercept)
        if source is self.source:
            return self
        return MomentData(source, self.fit_intercept, self.options)

    def total_moments(self) -> Moments:
        """Moments of all rows."""
        return Moments.merge_all((self._summary or self._sum(1, 0)).parts)

    def largest(self, values_of: Callable[[Any], Array]) -> float:
        """Largest of ``values_of(X)`` over the rows with positive weight, from a pass over them."""
        assert self.source is not None
        largest: float = self.source.collect(partial(_largest, values_of=values_of), max)
        return largest

    def in_groups(self, count: int, seed: int) -> MomentData:
        """The data read once more, with moments of `count` random groups of the rows."""
        data = MomentData(self.source, self.fit_intercept, self.options)
        data._sum(count, seed)
        return data

    @property
    def summed(self) -> MomentData:
        """The data themselves, which are sums of rows."""
        return self

    @property
    def n_rows(self) -> int:
        """Number of rows with positive weight."""
        return self.summary.n_rows

    @property
    def n_rows_given(self) -> int:
        """Number of rows given to fit, with those of weight zero."""
        return self.summary.n_given

    def training_groups(self) -> list[MomentData]:
        """The data without each of the groups of rows."""
        return [self._without(group) for group in range(len(self.summary.parts))]

    def _without(self, group: int) -> MomentData:
        parts = [part for g, part in enumerate(self.summary.parts) if g != group]
        return MomentData(
            None,
            self.fit_intercept,
            self.options,
            summary=replace(self.summary, parts=parts),
            triangles=partial(self.triangles, without=group),
        )

    def with_errors(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        """Add held-out errors to the fits without each random fold, of at most about `max_rows` of
        `n_rows` rows.
        """
        assert self.source is not None
        work = partial(_fold_errors, fits=fits, seed=seed, n_rows=n_rows, max_rows=max_rows)
        tested = self.source.collect(work, partial(_merge_groups, _join_rows))
        return [
            fit._replace(residual=residual, prediction=prediction)
            for fit, (prediction, residual) in zip(fits, tested, strict=True)
        ]

    @property
    def has_triangles(self) -> bool:
        """Whether triangular factors can be had, which may take another pass over the rows."""
        return self._triangles is not None

    def triangles(self, without: int | None = None) -> list[Triangle]:
        """Triangular factors of the groups except `without`; the first call makes another pass over
        the data.
        """
        assert self._triangles is not None
        return [triangle for g, triangle in enumerate(self._triangles()) if g != without]

    def factor(self) -> CentredRows:
        """Few centred rows with the least-squares solutions of all rows."""
        return reduce(Triangle.join, self.triangles()).centred(self.fit_intercept)

    def _sum(self, n_groups: int, seed: int) -> Summary:
        assert self.source is not None
        settings: dict[str, Any] = {
            "n_groups": n_groups,
            "seed": seed,
            "centre": self.fit_intercept,
        }
        summary: Summary = self.source.collect(
            partial(_sum_rows, **settings), Summary.merge, self.options
        )
        if summary.n_given > summary.n_rows:
            require_positive(summary.n_rows, summary.n_given)
        if summary.n_rows < 2:
            raise ValueError(
                f"the {self.source.kind} has {summary.n_rows} rows; at least two are needed."
            )
        if min(part.n_rows for part in summary.parts) == 0:
            raise ValueError(
                f"{summary.n_rows} rows are too few for {n_groups} folds of random rows; use fewer"
                " folds, or load the rows as an array."
            )
        self._summary = summary
        self._triangles = cache(partial(self._read_triangles, summary.parts, settings))
        return summary

    def _read_triangles(self, parts: list[Moments], settings: dict[str, Any]) -> list[Triangle]:
        """Triangular factors of the groups with moments `parts`, from a second pass, which must
        give the same rows.
        """
        assert self.source is not None
        kind = self.source.kind
        if not self.source.rereadable:
            raise ValueError(
                f"members are to be solved from the data (solver={self.options.solver!r}, or their"
                " columns are nearly dependent and the Gram matrix is not to be trusted), but the"
                f" {kind} cannot be read again. Pass a function that returns the iterator, or a"
                " file, or use partial_fit, which keeps a triangular factor."
            )
        p, q = parts[0].C.shape
        work = partial(_triangles_of, p=p, q=q, **settings)
        triangles: list[Triangle] = self.source.collect(
            work, partial(_merge_groups, partial(reduce, Triangle.join))
        )
        if not all(map(_same_sums, parts, triangles)):
            n_first = sum(part.n_rows for part in parts)
            n_second = sum(triangle.n_rows for triangle in triangles)
            second = f"{n_second} whose sums are others" if n_second == n_first else f"{n_second}"
            raise ValueError(_reread(kind, f"{n_first} rows", second))
        return triangles


def _reread(kind: str, first: str, second: str) -> str:
    return (
        f"the {kind} gave {first} at its first reading and {second} at its second, which is made"
        " for members with nearly dependent columns. It must give the same rows in the same order"
        " at every reading: a function must return a fresh iterator each time, and draw nothing at"
        " random."
    )


def _same_sums(part: Moments, triangle: Triangle) -> bool:
    """Whether moments and a triangular factor are of the same rows, up to rounding."""
    if part.n_rows != triangle.n_rows:
        return False
    mean = np.r_[part.mean_x, part.mean_y]
    first_squares = np.r_[np.diagonal(part.G), part.yy]
    R = triangle.R[:, 1:]
    if part.centred:
        second_squares = (R[1:] * R[1:]).sum(axis=0)
        mean_change = triangle.shift + R[0] / triangle.R[0, 0] - mean
    else:
        second_squares = (R * R).sum(axis=0)
        mean_change = np.zeros_like(mean)
    squares = np.maximum(first_squares, second_squares)
    mean_squares = part.weight * mean**2
    same_means = part.weight * mean_change**2 <= 1e-14 * squares + 1e-18 * mean_squares
    same_squares = abs(second_squares - first_squares) <= 1e-6 * squares + 1e-12 * mean_squares
    return bool(same_means.all() and same_squares.all())


def rows_of_blocks(blocks: list[Block], source: Any, fit_intercept: bool) -> RowData:
    """All rows of a source that has few of them."""
    for block in blocks:
        block.refuse()
    n = sum(len(block.X) for block in blocks)
    if n < 2:
        raise ValueError(f"the {source.kind} has {n} rows; at least two are needed.")
    single_precision = all(block.X.dtype == np.float32 for block in blocks)
    dtype = np.float32 if single_precision else np.float64
    X = np.concatenate([block.X for block in blocks], dtype=dtype)
    y = np.concatenate([block.y for block in blocks], dtype=np.float64)
    weight = None
    if any(block.weight is not None for block in blocks):
        weight = np.concatenate(
            [np.ones(len(b.X)) if b.weight is None else b.weight for b in blocks]
        )
    y = y[:, 0] if blocks[0].single_target else y
    rows = rows_on_host(X, y, weight, fit_intercept)
    return replace(rows, from_arrays=False, names=source.names or blocks[0].names)
