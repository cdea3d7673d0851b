r"""Rows in blocks: one pass for the moments, then any number of members, in memory that rows do not change.

**Row subsets** cannot be drawn row by row from a stream. With ``max_samples`` below 1, every row is thrown into one of
``GROUPS`` groups by a counter-based random number, moments are kept for each, and a member's rows are a random set of
whole groups: its moments are a sum. Members whose Gram matrix is not to be trusted are solved from a triangular factor,
made in a second pass over the data, never from the moments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _members
from .._execution import memory, messages
from .._execution.threads import Sharing, one_blas_thread
from .._members import Members, Problem
from .._members.mean import member_sum
from .._members.problem import Submatrix, Units
from .._moments import Accumulator, CentredRows, DistinctRows, Moments, Triangle
from .._trust import Cutoff
from ..subsets import Design, Subsets, resolve_size
from .determinantal import limit_of, limit_of_moments
from .engine import NeedsRows, Options, nobody
from .left_out import FoldFit, LeftOutFits, Refit, fold_design, residuals, thinned
from .sources import BlockSource, Checked, checked, name_bad_rows, require_positive, split_rows

__all__ = [
    "GROUPS",
    "Blocks",
    "Summary",
    "add_rows",
    "fits_of_others",
    "fold_errors",
    "groups_for",
    "require_rows",
    "solve_summed",
]

GROUPS = 20  # groups of rows when members draw rows
LANES_BYTES = 1 << 26  # sums that are made side by side
MOST_LANES = 16


@dataclass(frozen=True)
class Summary:
    """What one pass over the rows gives: moments of every group of rows, and what else is to be known of them."""

    parts: list[Moments]  # of the groups
    n_given: int  # rows read, those of weight zero included
    distinct: DistinctRows
    single_target: bool
    dtype: Any
    factor: Callable[[], list[Triangle]]  # triangular factors of the groups: another pass
    names: list[str] | None = None  # of the columns, where the rows came with them

    @property
    def n_rows(self) -> int:
        """Rows with positive weight."""
        return sum(part.n_rows for part in self.parts)

    @property
    def shape(self) -> tuple[int, int]:
        """Columns and targets."""
        p, q = self.parts[0].C.shape
        return p, q

    @cached_property
    def triangles(self) -> list[Triangle]:
        """Made when the first member asks for them."""
        return self.factor()

    def completed(self, design: Design) -> Design:
        """The design with what was found; a warning where groups of rows come nowhere near what was asked for."""
        groups = None if design.all_rows else len(self.parts)
        design = replace(
            design,
            n_rows=self.n_rows,
            n_columns=self.shape[0],
            distinct_rows=len(self.distinct),
            row_groups=groups,
            n_given=self.n_given,
        )
        if groups:
            self._warn_coarse(design, groups)
        return design

    def _warn_coarse(self, design: Design, groups: int) -> None:
        rows = resolve_size(design.max_samples, self.n_rows, "max_samples")
        size = design.groups_per_member
        found = size * self.n_rows // groups
        if min(part.n_rows for part in self.parts) < 2 or abs(found - rows) > 0.25 * rows:
            messages.warn(
                f"max_samples={design.max_samples} asks for {rows} of {self.n_rows} rows; out of core a member gets "
                f"{size} of {groups} groups of rows, about {found}.",
            )


class Blocks:
    """A source of row blocks, summed in one pass when the first question is asked."""

    why_no_rows = "rows in blocks are read once and not kept; load X as an array in memory to have them"

    arrays = False

    def __init__(self, source: BlockSource, options: Options) -> None:
        self.source, self.options = source, options
        self._summary: Summary | None = None

    @property
    def names(self) -> list[str] | None:
        if self.source.names is None and self._summary is not None:
            return self._summary.names
        return self.source.names

    @property
    def problem(self) -> None:
        return None

    @property
    def n_columns(self) -> int:
        return self.summary.shape[0]

    @property
    def single_target(self) -> bool:
        return self.summary.single_target

    @property
    def dtype(self) -> Any:
        return self.summary.dtype

    @property
    def summary(self) -> Summary:
        """What the pass gave; there has been one once a design is complete or folds were asked for."""
        assert self._summary is not None
        return self._summary

    def complete(self, design: Design) -> Design:
        if self._summary is None:
            self._summary = self._sum(groups_for(design), design.seed)
        return self._summary.completed(design)

    def folds(self, count: int, seed: int) -> list[Moments]:
        self._summary = self._sum(count, seed)
        return self._summary.parts

    def solve(self, design: Design, start: int, stop: float, weights: NDArray[np.float64] | None = None) -> Members:
        if stop == np.inf:
            return limit_of(self, design)
        return solve_summed(self.summary, design, start, stop, self.options)

    def again(self) -> Blocks | None:
        return Blocks(self.source, replace(self.options, listen=nobody)) if self.source.rereadable else None

    def sums(self) -> Moments:
        parts = self._sum(1, 0).parts if self._summary is None else self._summary.parts
        return Moments.merge_all(parts)

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        summary = self._sum(count, seed)
        fits = self.errors_of(fits_of_others(summary, refit, self.options), seed, most, summary.n_given)
        return LeftOutFits(solve_summed(summary, refit.design, 0, refit.number, self.options), fits)

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        errors: list[list[Any]] = [[] for _ in fits]
        for block in checked(self.source):
            for g, residual in fold_errors(block, fits, seed, n_rows, most):
                errors[g].append(residual)
        return [fit._replace(residual=np.concatenate(own)) for fit, own in zip(fits, errors, strict=True)]

    def _sum(self, n_groups: int, seed: int) -> Summary:
        return _Pass(self.source, self.options, n_groups, seed).summary()


def fits_of_others(summary: Summary, refit: Refit, options: Options) -> list[FoldFit]:
    """The ensemble without each group of rows, from moments of the others."""
    if not refit.design.all_rows:
        raise NeedsRows(
            f"max_samples={refit.design.max_samples!r} gives members groups of rows, which folds would tear apart; use "
            f"max_samples=1.0, or method='normal'."
        )
    return [
        FoldFit.of(_without(summary, g, refit, options), refit.scale, summary.shape[1])
        for g in range(len(summary.parts))
    ]


def _without(summary: Summary, group: int, refit: Refit, options: Options) -> Members:
    def others(parts: list[Any]) -> list[Any]:
        return parts[:group] + parts[group + 1 :]

    rest = replace(summary, parts=others(summary.parts), factor=lambda: others(summary.triangles))
    return solve_summed(rest, fold_design(refit, rest.n_rows), 0, refit.number, options)


def fold_errors(
    block: Checked, fits: list[FoldFit], seed: int, n_rows: int, most: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(fold, errors of the fit without it) for rows of a block; of many rows only some."""
    kept = thinned(block.first, len(block.X), n_rows, most, seed)
    weight = np.ones(len(block.X)) if block.weight is None else block.weight
    some = replace(block, weight=np.where(kept, weight, 0.0))
    for g, X, Y, _ in split_rows(some, len(fits), seed):
        yield g, residuals(fits[g], X, Y)


def groups_for(design: Design) -> int:
    """Groups of rows that members of a design are drawn from."""
    return 1 if design.all_rows else GROUPS


class _Pass:
    """One pass over all blocks.

    Blocks go in turn to a few lanes, each with accumulators of every group, which are summed side by side by as many
    threads as there are. The number of lanes depends on the shape alone, so threads do not change the result.
    """

    def __init__(self, source: BlockSource, options: Options, n_groups: int, seed: int) -> None:
        self.source, self.options, self.n_groups, self.seed = source, options, n_groups, seed
        self.lanes: list[list[Accumulator]] = []
        self.distinct = DistinctRows(0)
        self.single, self.dtype = True, np.float64  # those of the first block
        self.names: list[str] | None = None
        self.n_given, self.parts = 0, list[Moments]()

    def summary(self) -> Summary:
        """Read everything once."""
        report = self.options.listen("rows", self.source.n_rows or "an unknown number")
        n_threads = self.options.n_threads
        # blocks are closed within the limit on BLAS: they may be within one of their own, and would restore ours
        with one_blas_thread() if n_threads > 1 else nullcontext(), closing(self._blocks(n_threads)) as blocks:
            while some := list(islice(blocks, min(n_threads, len(self.lanes) or 1))):  # of different lanes
                Sharing(n_threads)(partial(self._add, some), len(some), chunk=1, uses_blas=False)
                self.n_given = some[-1].first + len(some[-1].X)
                if report:
                    report(self.n_given)
        n_rows = sum(group.n_rows for lane in self.lanes for group in lane)
        require_rows(n_rows, self.n_given, self.source.kind)
        self.parts = self._moments(n_rows)
        return Summary(
            self.parts, self.n_given, self.distinct, self.single, self.dtype, self._triangles, self.names
        )  # fmt: skip

    def _blocks(self, n_ahead: int) -> Generator[Checked]:
        for block in checked(self.source, n_ahead):
            if not self.lanes:
                self.single, self.dtype, self.names = block.single, block.dtype, block.names
                p, q = block.X.shape[1], block.y.shape[1]
                self.lanes = _lanes(p, q, self.n_groups, self.options.fit_intercept)
                self.distinct = DistinctRows.of_columns(p)
            if len(self.distinct) < self.distinct.enough:
                kept = slice(None) if block.weight is None else block.weight > 0
                self.distinct = self.distinct.add(block.X[kept])
            yield block

    def _add(self, blocks: list[Checked], i: int, _: int) -> None:
        block = blocks[i]
        lane = self.lanes[block.number % len(self.lanes)]
        for g, X, Y, weight in split_rows(block, self.n_groups, self.seed):
            add_rows(lane[g], X, Y, weight)
            if not lane[g].finite():
                name_bad_rows(block)

    def _moments(self, n_rows: int) -> list[Moments]:
        groups = self.lanes[0]
        for lane in self.lanes[1:]:
            for group, other in zip(groups, lane, strict=True):
                group.absorb(other)
        if min(group.n_rows for group in groups) == 0:
            raise ValueError(
                f"{n_rows} rows are too few for {self.n_groups} groups (or folds) of random rows; use max_samples=1.0, "
                f"set cv to a smaller number, or load the rows as an array."
            )
        return [group.moments() for group in groups]

    def _triangles(self) -> list[Triangle]:
        """Triangular factors of the groups, by a second pass."""
        if not self.source.rereadable:
            raise ValueError(
                f"some members have nearly dependent columns and their Gram matrix is not to be trusted, but the "
                f"{self.source.kind} cannot be read again to solve them from the data. Pass a function that returns "
                f"the iterator, or a file, or use partial_fit, which keeps a triangular factor."
            )
        p, q = self.lanes[0][0].p, self.lanes[0][0].q
        out, n_given = [Triangle.empty(p, q) for _ in range(self.n_groups)], 0
        for block in checked(self.source):
            n_given += len(block.X)
            if (block.X.shape[1], block.y.shape[1]) != (p, q):
                raise ValueError(_reread(self.source.kind, f"{p} columns", f"{block.X.shape[1]}"))
            for g, X, Y, weight in split_rows(block, self.n_groups, self.seed):
                out[g] = out[g].add(X, Y, weight, self.options.fit_intercept)
        self._compare(n_given, out)
        return out

    def _compare(self, n_given: int, again: list[Triangle]) -> None:
        """Refuse a second pass that did not give the rows of the first."""
        if n_given != self.n_given:
            raise ValueError(_reread(self.source.kind, f"{self.n_given} rows", f"{n_given}"))
        for part, triangle in zip(self.parts, again, strict=True):
            if not _same_sums(part, triangle):
                raise ValueError(_reread(self.source.kind, f"{n_given} rows", "as many whose sums are others"))


def require_rows(kept: int, given: int, kind: str) -> None:
    """Refuse too few rows, and say whether it was the weights that left so few."""
    if given > kept:
        require_positive(kept, given)
    if kept < 2:
        raise ValueError(f"the {kind} has {kept} rows; at least two are needed.")


def add_rows(sums: Accumulator, X: Any, Y: Any, weight: Any) -> None:
    """Add rows without warnings: whether all was finite is asked afterwards."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums.add(X, Y, weight)


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


def _lanes(p: int, q: int, n_groups: int, centre: bool) -> list[list[Accumulator]]:
    each = 8.0 * n_groups * (p + q + 1) ** 2
    memory.require(3 * each, f"{n_groups} Gram matrices of {p} columns", "Use fewer columns.")
    count = int(min(MOST_LANES, max(1, LANES_BYTES // each)))
    return [[Accumulator(p, q, centre) for _ in range(n_groups)] for _ in range(count)]


def solve_summed(summary: Summary, design: Design, start: int, stop: float, options: Options) -> Members:
    """Members from moments, whoever summed them; members with the same groups of rows are solved together."""
    if stop == np.inf:
        return limit_of_moments(Moments.merge_all(summary.parts), design)
    features, groups = design.draw(start, int(stop), options.quietly.without_blas)
    k, (p, q) = len(features), summary.shape
    solver = "gram" if options.solver == "auto" else options.solver
    sharing = options.sharing("members", k)
    coef, intercept, mean_y, refitted = np.zeros((p, q)), np.zeros(q), np.zeros(q), 0
    for which, members in _by_groups(groups, k, len(summary.parts)):
        problem = _SummedProblem.of(summary, which, options)
        part = features if len(members) == k else features.take(members)
        solution = _members.solve(problem, part, None, solver=solver, sharing=sharing)
        total, (mean_x, own_y) = member_sum(part, solution.values), problem.means
        coef += total / k
        intercept += (len(members) * own_y - mean_x @ total) / k
        mean_y += len(members) * own_y / k
        refitted += int(solution.refitted.sum())
    weights = np.full(k, 1 / k)
    return Members(coef, intercept, mean_y, features.counts(), weights, solution.solver, refitted)


def _by_groups(groups: Subsets | None, k: int, n_groups: int) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """(groups of rows, members that have these)."""
    if groups is None:
        yield tuple(range(n_groups)), np.arange(k)
        return
    chosen: dict[tuple[int, ...], list[int]] = {}
    for i, which in enumerate(groups):
        chosen.setdefault(tuple(which.tolist()), []).append(i)
    yield from ((which, np.array(members)) for which, members in chosen.items())


@dataclass(frozen=True)
class _Shape:
    """Stands where rows would be: they are not kept."""

    shape: tuple[int, int]
    dtype: type = np.float64


@dataclass(frozen=True)
class _SummedProblem(Problem):
    """A centred problem without intercept that knows its moments; its rows are those of a triangular factor."""

    sums: Moments | None = None  # about the means
    factor: Callable[[], CentredRows] | None = None

    @classmethod
    def of(cls, summary: Summary, which: tuple[int, ...], options: Options) -> _SummedProblem:
        """The problem of some groups of rows."""
        m = Moments.merge_all([summary.parts[g] for g in which])
        cutoff = Cutoff.of(max(m.n_rows, len(m.G)), np.sqrt(np.diagonal(m.G)), m.mean_x, m.weight)

        def factor() -> CentredRows:
            whole = reduce(Triangle.join, [summary.triangles[g] for g in which])
            return whole.centred(options.fit_intercept)

        return cls(
            X=_Shape((m.n_rows - options.fit_intercept, len(m.G))), Y=np.empty((0, m.C.shape[1])), weight=None,
            fit_intercept=False, rcond=options.rcond, tol=options.tol, known_cutoff=cutoff, sums=m, factor=factor,
        )  # fmt: skip

    @property
    def has_moments(self) -> bool:
        return True

    @cached_property
    def in_units(self) -> tuple[Problem, Units]:
        """Itself: blocks with extreme entries were refused when they were read."""
        return self, Units()

    @cached_property
    def means(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of X and of y, before they were taken out."""
        assert self.sums is not None
        return self.sums.mean_x, self.sums.mean_y

    @cached_property
    def moments(self) -> Moments:
        assert self.sums is not None
        mean_x, mean_y = self.means
        return replace(self.sums, mean_x=0 * mean_x, mean_y=0 * mean_y, centred=False)

    @cached_property
    def _rows(self) -> CentredRows:
        """Rows that have the same least-squares solutions as the data."""
        assert self.factor is not None
        return self.factor()

    def submatrix(
        self, columns: NDArray[np.int64], rows: NDArray[np.int64] | None, dtype: Any = np.float64
    ) -> Submatrix:
        """Columns of the factor."""
        X, Y = self._rows.X.astype(dtype), self._rows.Y.astype(dtype)
        return Submatrix(X[:, columns], Y, np.ones(len(X)), np.zeros(len(columns)), np.zeros(Y.shape[1]))
