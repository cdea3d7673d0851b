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

from .. import _members
from .._data.accumulator import Accumulator
from .._data.moments import Moments
from .._data.sources import Block, BlockSource, require_positive
from .._data.triangle import Triangle
from .._execution import memory
from .._execution.options import Options
from .._execution.threads import Threads, one_blas_thread
from .._members import Members, Solution, gram
from .._members.mean import member_sum
from ..subsets import Design, Subsets, row_groups
from .dask import DaskRows
from .engine import Engine, FoldFit, NeedsRows, Refit
from .memory import Memory, factor_problem

Array = NDArray[np.float64]
T = TypeVar("T")
MAX_LANES = 16  # sets of accumulators that are filled in parallel
MAX_LANES_BYTES = 1 << 26

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
    lane_bytes = 8.0 * n_groups * (p + q + 1) ** 2
    memory.require(3 * lane_bytes, f"{n_groups} Gram matrices of {p} columns", "Use fewer columns.")
    n_lanes = int(min(MAX_LANES, max(1, MAX_LANES_BYTES // lane_bytes)))
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
    """Held-out errors of every fold; if there are more than `max_rows` rows, of a random subset of
    about that size.

    Whether a row belongs to the subset depends on the seed and the row index alone.
    """
    errors: list[list[Array]] = [[np.zeros((0, len(fit.coef)))] for fit in fits]
    for block in blocks:
        if n_rows > max_rows:
            n_parts = 1 << 16
            parts = row_groups(block.first, len(block.X), n_parts, seed ^ 0x5EED)
            selected = parts < n_parts * max_rows / n_rows
            block = replace(
                block, weight=np.where(selected, 1.0 if block.weight is None else block.weight, 0.0)
            )
        for g, X, Y, _ in block.groups(len(fits), seed):
            errors[g].append(fits[g].residuals(X, Y))
    return [np.concatenate(fold_errors) for fold_errors in errors]


def _merge_groups(merge: Callable[[list[T]], T], parts: list[list[T]]) -> list[T]:
    """Merge the values of each group over consecutive chunks; ``parts[chunk][group]``."""
    return [merge(list(group_parts)) for group_parts in zip(*parts, strict=True)]


class Blocks(Engine):
    """Engine of a source of row blocks, which is summed in one pass on first use; or of moments
    without a source.
    """

    why_no_rows = (
        "rows in blocks are read once and not kept; load X as an array in memory to have them"
    )

    def __init__(
        self,
        source: Source | None,
        options: Options,
        summary: Summary | None = None,
        triangles: Callable[[], list[Triangle]] | None = None,
    ) -> None:
        self.source = source
        self.options = options
        self._summary = summary
        self._triangles = triangles

    @classmethod
    def from_moments(cls, parts: list[Moments], options: Options) -> Blocks:
        """Engine of data that are known by the moments of their groups of rows alone."""
        return cls(None, options, Summary(parts, sum(part.n_rows for part in parts)))

    @property
    def summary(self) -> Summary:
        """Result of the pass, which `complete` and `folds` make."""
        assert self._summary is not None
        return self._summary

    @property
    def is_summed(self) -> bool:
        """Whether there has been a pass over the rows."""
        return self._summary is not None

    @property
    def names(self) -> list[str] | None:
        if self.source is not None and self.source.names is not None:
            return self.source.names
        return self.summary.names

    @property
    def n_columns(self) -> int:
        return len(self.summary.parts[0].G)

    @property
    def single_target(self) -> bool:
        return self.summary.single_target

    @property
    def dtype(self) -> Any:
        return self.summary.dtype

    def complete(self, design: Design) -> Design:
        if not design.all_rows:
            raise NeedsRows(
                f"max_samples={design.max_samples!r} needs X as an array in memory, or on a device:"
                " rows in blocks are read once, so members cannot draw them. Use max_samples=1.0."
            )
        summary = self._summary or self._sum(1, design.seed)
        return replace(
            design, n_rows=summary.n_rows, n_columns=self.n_columns, n_given=summary.n_given
        )

    def folds(self, count: int, seed: int) -> list[Moments]:
        if self.source is not None:
            return self._sum(count, seed).parts
        count = min(count, len(self.summary.parts))
        return [Moments.merge_all(self.summary.parts[f::count]) for f in range(count)]

    def reopen(self) -> Blocks | None:
        if self.source is None or not self.source.rereadable:
            return None
        return Blocks(self.source, replace(self.options, progress=None))

    def loaded_if_small(self, many_rows: int) -> Engine:
        if self.source is None:
            return self
        blocks, source = self.source.few_blocks(many_rows)
        if blocks is not None:
            return Memory.from_blocks(blocks, source, self.options)
        return self if source is self.source else Blocks(source, self.options)

    def moments(self) -> Moments:
        return Moments.merge_all((self._summary or self._sum(1, 0)).parts)

    def left_out(
        self, refit: Refit, count: int, seed: int, max_rows: int
    ) -> tuple[Members, list[FoldFit]]:
        all_rows = Blocks(self.source, self.options)
        summary = all_rows._sum(count, seed)
        fits = []
        for f in range(count):
            training = replace(
                summary, parts=[part for g, part in enumerate(summary.parts) if g != f]
            )
            triangles = partial(all_rows.triangles, without=f)
            engine = Blocks(None, self.options, training, triangles)
            members = engine.solve(refit.design_for(training.n_rows), 0, refit.number)
            fits.append(FoldFit.from_members(members, refit.scale))
        members = all_rows.solve(refit.design, 0, refit.number)
        return members, self.errors_of(fits, seed, max_rows, summary.n_given)

    def errors_of(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        assert self.source is not None
        work = partial(_fold_errors, fits=fits, seed=seed, n_rows=n_rows, max_rows=max_rows)
        errors = self.source.collect(work, partial(_merge_groups, np.concatenate))
        return [
            fit._replace(residual=residuals) for fit, residuals in zip(fits, errors, strict=True)
        ]

    def _solve_drawn(
        self, features: Subsets, samples: Subsets | None, weights: Array | None
    ) -> Members:
        k = len(features)
        moments = self.moments()
        solver = "gram" if self.options.solver == "auto" else self.options.solver
        overdetermined = features.sizes.max() <= moments.n_rows - self.options.fit_intercept
        if self._triangles is None or (solver == "gram" and overdetermined):
            solution = gram.from_moments(moments, features, self.options.sharing("members", k))
            ill_conditioned = np.flatnonzero(solution.refitted)
            solution.refitted[ill_conditioned] = False
            if (
                len(ill_conditioned) and self._triangles is not None
            ):  # without rows, the solution from moments remains
                refit = self._solve_factored(features.take(ill_conditioned), solver)
                solution.put(ill_conditioned, features.sizes, refit, refitted=False)
        else:
            solution = self._solve_factored(features, solver)
        coef = member_sum(features, solution.values) / k
        return Members(
            coef=coef,
            intercept=moments.mean_y - moments.mean_x @ coef,
            mean_y=moments.mean_y,
            counts=features.counts(),
            weights=np.full(k, 1 / k),
            solver=solution.solver,
            n_fallbacks=int(solution.refitted.sum()),
        )

    def _solve_factored(self, features: Subsets, solver: str) -> Solution:
        """Members solved from the triangular factor of all rows."""
        rows = reduce(Triangle.join, self.triangles()).centred(self.options.fit_intercept)
        problem = factor_problem(rows)
        return _members.solve(problem, features, None, solver=solver, sharing=self.options.quietly)

    def triangles(self, without: int | None = None) -> list[Triangle]:
        """Triangular factors of the groups except `without`; the first call makes another pass over
        the data.
        """
        assert self._triangles is not None
        return [triangle for g, triangle in enumerate(self._triangles()) if g != without]

    def _sum(self, n_groups: int, seed: int) -> Summary:
        assert self.source is not None
        settings: dict[str, Any] = {
            "n_groups": n_groups,
            "seed": seed,
            "centre": self.options.fit_intercept,
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
