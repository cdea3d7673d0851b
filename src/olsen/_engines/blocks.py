r"""Rows in blocks: one pass for the moments, then any members, in memory that does not grow with the number of rows.

All rows are in every member. For folds every row is thrown into one of a few groups by a counter-based random number,
and moments are kept for each. Members whose Gram matrix is not to be trusted are solved from a triangular factor, made
in a second pass over the data, never from the moments.

A source has ``collect(work, merge)``: what a function makes of all blocks. Here blocks are passed to it one by one; on
a cluster it runs on each chunk and the results are merged in chunk order.
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
from .._execution import memory
from .._execution.threads import Threads, one_blas_thread
from .._members import Members, Solution, gram
from .._members.mean import member_sum
from .._moments.accumulator import Accumulator
from .._moments.moments import Moments
from .._moments.triangle import Triangle
from ..subsets import Design, Subsets, row_groups
from .dask import DaskRows
from .engine import Engine, FoldFit, NeedsRows, Options, Refit
from .memory import Memory, factor_problem
from .sources import Block, BlockSource, require_positive

Array = NDArray[np.float64]
T = TypeVar("T")
MOST_LANES, LANES_BYTES = 16, 1 << 26  # sums that are made side by side


Source = BlockSource | DaskRows


@dataclass(frozen=True)
class Summary:
    """What one pass over the rows gives; two of these merge."""

    parts: list[Moments]  # of every group of rows
    n_given: int = 0  # rows read, those of weight zero included
    single_target: bool = False
    dtype: Any = np.float64
    names: list[str] | None = None  # of the columns, where the rows came with them

    @property
    def n_rows(self) -> int:
        """Rows with positive weight."""
        return sum(part.n_rows for part in self.parts)

    @staticmethod
    def merge(summaries: list[Summary]) -> Summary:
        """Of all rows together."""
        parts = _merge_groups(Moments.merge_all, [one.parts for one in summaries])
        return replace(summaries[0], parts=parts, n_given=sum(one.n_given for one in summaries))


def _sum_rows(blocks: Generator[Block], n_threads: int = 1, *, n_groups: int, seed: int, centre: bool) -> Summary:
    """Moments of random groups of rows.

    Blocks go in turn to a few lanes, each with accumulators of every group, which are summed side by side by as many
    threads as there are. The number of lanes depends on the shape alone, so threads do not change the result.
    """
    lanes, n_given, about = list[list[Accumulator]](), 0, tuple[Any, ...]()

    def add(some: list[Block], i: int, _: int) -> None:
        for g, *rows in some[i].groups(n_groups, seed):
            if not lanes[some[i].number % len(lanes)][g].add(*rows):
                some[i].refuse()

    # blocks are closed within the limit on BLAS: they may be within one of their own, and would restore ours
    with one_blas_thread() if n_threads > 1 else nullcontext(), closing(blocks):
        while some := list(islice(blocks, min(n_threads, len(lanes) or 1))):  # of different lanes
            if not lanes:
                (p, q), dtype = (some[0].X.shape[1], some[0].y.shape[1]), some[0].X.dtype
                lanes = _lanes(p, q, n_groups, centre)
                about = (some[0].single, np.float32 if dtype == np.float32 else np.float64, some[0].names)
            Threads(n_threads)(partial(add, some), len(some), chunk=1, uses_blas=False)
            n_given += sum(len(block.X) for block in some)
    if not lanes:
        return Summary([])
    for lane in lanes[1:]:
        for group, other in zip(lanes[0], lane, strict=True):
            group.absorb(other)
    return Summary([group.moments() for group in lanes[0]], n_given, *about)


def _lanes(p: int, q: int, n_groups: int, centre: bool) -> list[list[Accumulator]]:
    each = 8.0 * n_groups * (p + q + 1) ** 2
    memory.require(3 * each, f"{n_groups} Gram matrices of {p} columns", "Use fewer columns.")
    count = int(min(MOST_LANES, max(1, LANES_BYTES // each)))
    return [[Accumulator(p, q, centre) for _ in range(n_groups)] for _ in range(count)]


def _triangles_of(blocks: Iterator[Block], p: int, q: int, n_groups: int, seed: int, centre: bool) -> list[Triangle]:
    """Triangular factors of the same groups of rows."""
    out = [Triangle.empty(p, q) for _ in range(n_groups)]
    for block in blocks:
        if (block.X.shape[1], block.y.shape[1]) != (p, q):
            raise ValueError(_reread(block.kind, f"{p} columns", f"{block.X.shape[1]}"))
        for g, X, Y, weight in block.groups(n_groups, seed):
            out[g] = out[g].add(X, Y, weight, centre)
    return out


def _fold_errors(blocks: Iterator[Block], fits: list[FoldFit], seed: int, n_rows: int, most: int) -> list[Array]:
    """Errors of the fit without each fold for its rows; of many rows only some, chosen by their numbers."""
    errors: list[list[Array]] = [[np.zeros((0, len(fit.coef)))] for fit in fits]
    for block in blocks:
        if n_rows > most:
            parts = 1 << 16
            kept = row_groups(block.first, len(block.X), parts, seed ^ 0x5EED) < parts * most / n_rows
            block = replace(block, weight=np.where(kept, 1.0 if block.weight is None else block.weight, 0.0))
        for g, X, Y, _ in block.groups(len(fits), seed):
            errors[g].append(fits[g].residuals(X, Y))
    return [np.concatenate(own) for own in errors]


def _merge_groups(merge: Callable[[list[T]], T], parts: list[list[T]]) -> list[T]:
    """What belongs to each group of rows, from that of consecutive rows."""
    return [merge(list(own)) for own in zip(*parts, strict=True)]


class Blocks(Engine):
    """A source of row blocks, summed in one pass when the first question is asked; or moments, without a source."""

    why_no_rows = "rows in blocks are read once and not kept; load X as an array in memory to have them"

    def __init__(
        self,
        source: Source | None,
        options: Options,
        summary: Summary | None = None,
        triangles: Callable[[], list[Triangle]] | None = None,
    ) -> None:
        self.source, self.options, self._summary, self._triangles = source, options, summary, triangles

    @classmethod
    def from_moments(cls, parts: list[Moments], options: Options) -> Blocks:
        """Rows of which no more is known than moments of groups."""
        return cls(None, options, Summary(parts, sum(part.n_rows for part in parts)))

    @property
    def summary(self) -> Summary:
        """What the pass gave; there has been one once a design is complete or folds were asked for."""
        assert self._summary is not None
        return self._summary

    @property
    def is_summed(self) -> bool:
        """Whether there has been a pass over the rows."""
        return self._summary is not None

    @property
    def names(self) -> list[str] | None:
        known = None if self.source is None else self.source.names
        return self.summary.names if known is None else known

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
                f"max_samples={design.max_samples!r} needs X as an array in memory, or on a device: rows in blocks are "
                f"read once, so members cannot draw them. Use max_samples=1.0."
            )
        found = self._summary or self._sum(1, design.seed)
        return replace(design, n_rows=found.n_rows, n_columns=self.n_columns, n_given=found.n_given)

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

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> tuple[Members, list[FoldFit]]:
        whole, fits = Blocks(self.source, self.options), []
        summary = whole._sum(count, seed)
        for f in range(count):
            parts = [part for g, part in enumerate(summary.parts) if g != f]
            rest = Blocks(None, self.options, replace(summary, parts=parts), partial(whole.triangles, without=f))
            members = rest.solve(refit.design_for(rest.summary.n_rows), 0, refit.number)
            fits.append(FoldFit.from_members(members, refit.scale))
        return whole.solve(refit.design, 0, refit.number), self.errors_of(fits, seed, most, summary.n_given)

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        assert self.source is not None
        work = partial(_fold_errors, fits=fits, seed=seed, n_rows=n_rows, most=most)
        errors = self.source.collect(work, partial(_merge_groups, np.concatenate))
        return [fit._replace(residual=own) for fit, own in zip(fits, errors, strict=True)]

    def _solve_drawn(self, features: Subsets, samples: Subsets | None, weights: Array | None) -> Members:
        k, moments = len(features), self.moments()
        solver = "gram" if self.options.solver == "auto" else self.options.solver
        thin = features.sizes.max() <= moments.n_rows - self.options.fit_intercept
        if self._triangles is None or (solver == "gram" and thin):
            solution = gram.from_moments(moments, features, self.options.sharing("members", k))
            again = np.flatnonzero(solution.refitted)
            solution.refitted[again] = False
            if len(again) and self._triangles is not None:  # without rows, doubtful members stay what moments say
                part = self._solve_factored(features.take(again), solver)
                solution.put(again, features.sizes, part, refitted=False)
        else:
            solution = self._solve_factored(features, solver)
        coef, n_fallbacks = member_sum(features, solution.values) / k, int(solution.refitted.sum())
        intercept, equal = moments.mean_y - moments.mean_x @ coef, np.full(k, 1 / k)
        return Members(coef, intercept, moments.mean_y, features.counts(), equal, solution.solver, n_fallbacks)

    def _solve_factored(self, features: Subsets, solver: str) -> Solution:
        """Members solved from the triangular factor of all rows."""
        rows = reduce(Triangle.join, self.triangles()).centred(self.options.fit_intercept)
        problem = factor_problem(rows)
        return _members.solve(problem, features, None, solver=solver, sharing=self.options.quietly)

    def triangles(self, without: int | None = None) -> list[Triangle]:
        """Triangular factors of the groups: another pass, at the first member that needs it."""
        assert self._triangles is not None
        return [triangle for g, triangle in enumerate(self._triangles()) if g != without]

    def _sum(self, n_groups: int, seed: int) -> Summary:
        assert self.source is not None
        how: dict[str, Any] = {"n_groups": n_groups, "seed": seed, "centre": self.options.fit_intercept}
        found: Summary = self.source.collect(partial(_sum_rows, **how), Summary.merge, self.options)
        if found.n_given > found.n_rows:
            require_positive(found.n_rows, found.n_given)
        if found.n_rows < 2:
            raise ValueError(f"the {self.source.kind} has {found.n_rows} rows; at least two are needed.")
        if min(part.n_rows for part in found.parts) == 0:
            raise ValueError(
                f"{found.n_rows} rows are too few for {n_groups} folds of random rows; use fewer folds, or load the "
                f"rows as an array."
            )
        self._summary, self._triangles = found, cache(partial(self._read_triangles, found.parts, how))
        return found

    def _read_triangles(self, parts: list[Moments], how: dict[str, Any]) -> list[Triangle]:
        """Of the groups whose moments are given, by a second pass, which must give the same rows."""
        assert self.source is not None
        kind, before = self.source.kind, sum(part.n_rows for part in parts)
        if not self.source.rereadable:
            raise ValueError(
                f"members are to be solved from the data (solver={self.options.solver!r}, or their columns are nearly "
                f"dependent and the Gram matrix is not to be trusted), but the {kind} cannot be read again. Pass a "
                f"function that returns the iterator, or a file, or use partial_fit, which keeps a triangular factor."
            )
        (p, q), merge = parts[0].C.shape, partial(_merge_groups, partial(reduce, Triangle.join))
        found: list[Triangle] = self.source.collect(partial(_triangles_of, p=p, q=q, **how), merge)
        now = sum(one.n_rows for one in found)
        if not all(map(_same_sums, parts, found)):
            raise ValueError(
                _reread(kind, f"{before} rows", f"{now} whose sums are others" if now == before else f"{now}")
            )
        return found


def _reread(kind: str, before: str, now: str) -> str:
    return (
        f"the {kind} gave {before} at its first reading and {now} at its second, which is made for members with nearly "
        f"dependent columns. It must give the same rows in the same order at every reading: a function must return a "
        f"fresh iterator each time, and draw nothing at random."
    )


def _same_sums(part: Moments, again: Triangle) -> bool:
    """Whether moments and a triangular factor are of the same rows, up to rounding."""
    if part.n_rows != again.n_rows:
        return False
    before = np.r_[np.diagonal(part.G), part.yy]
    R, mean = again.R[:, 1:], np.r_[part.mean_x, part.mean_y]
    now, moved = (R * R).sum(axis=0), np.zeros_like(mean)
    if part.centred:
        now, moved = (R[1:] * R[1:]).sum(axis=0), again.shift + R[0] / again.R[0, 0] - mean
    squares, size = np.maximum(before, now), part.weight * mean**2
    same_means = part.weight * moved**2 <= 1e-14 * squares + 1e-18 * size
    return bool(same_means.all() and (abs(now - before) <= 1e-6 * squares + 1e-12 * size).all())
