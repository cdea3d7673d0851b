r"""Fits from row blocks: one pass for the moments, then any number of members, in memory that rows do not change.

.. math:: Z = [\,x - s,\; y - t,\; 1\,] , \qquad M = \sum Z' W Z

with s, t the means of the first block: one symmetric product a block gives squares, cross products and sums. The shift
costs at most a factor of the number of blocks in rounding, because a column whose later blocks lie far from its first
has a spread to match; every ``MERGE`` blocks the sums are closed and merged by Chan's formula, which bounds it.

**Row subsets** cannot be drawn row by row from a stream. With ``max_samples`` below 1, every row is thrown into one of
``GROUPS`` groups by a counter-based random number, moments are kept for each, and a member's rows are a random set of
whole groups: its moments are a sum. Members whose Gram matrix is not to be trusted are solved from a triangular factor,
made in a second pass over the data, never from the moments.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _members, subsets
from ._elsewhere import remember_design, set_attributes
from ._execution import callbacks, memory, pools
from ._execution.blas import add_gram
from ._execution.blocks import BlockSource, checked, name_bad_rows, split_rows
from ._inputs import uses_all_rows, warn_at_the_peak
from ._members.problem import Submatrix, rounding_cutoff
from ._moments import Moments, constant_columns, mirror_lower
from ._streaming import Triangle

__all__ = [
    "Accumulator",
    "BlockProblem",
    "Summary",
    "fit",
    "fit_summary",
    "refuse_leave_one_out",
    "set_coefficients",
    "set_names",
    "summarise",
]

GROUPS = 20  # groups of rows when members draw rows
MERGE = 32  # blocks summed about one shift
SLICE_BYTES = 1 << 21  # rows centred and squared at a time: they stay in a cache in between
LANES_BYTES = 1 << 26  # sums that are made side by side
MOST_LANES = 16


class Accumulator:
    """Moments of the blocks added so far, about the mean of each run's first block."""

    def __init__(self, p: int, q: int, centre: bool):
        self.p, self.q, self.centre = p, q, centre
        self._done: Moments | None = None
        self._M: NDArray | None = None
        self._shift = np.zeros(p + q + 1)  # the last one, of the ones, stays zero
        self._rows = self._blocks = self.n_rows = 0

    def add(self, X, Y, weight=None) -> None:
        """Add rows: X (rows, p), Y (rows, q), weights or None, of any real type."""
        if not len(X):
            return
        if self._blocks == MERGE:
            self._close()  # not before: whether the numbers were finite is asked after they were added
        M = self._open(X, Y) if self._M is None else self._M
        width = self.p + self.q + 1
        step = min(len(X), max(1, SLICE_BYTES // (8 * width)))
        Z = np.empty((step, width))  # not kept: there may be many accumulators
        for start in range(0, len(X), step):
            here = slice(start, start + step)
            z = self._fill(Z[: len(X[here])], X[here], Y[here], None if weight is None else weight[here])
            add_gram(z, M)
        self._rows += len(X)
        self.n_rows += len(X)
        self._blocks += 1

    def _open(self, X, Y):
        self._M = np.zeros((self.p + self.q + 1,) * 2, order="F")
        if self.centre:
            self._shift[:-1] = np.r_[X.mean(axis=0, dtype=np.float64), Y.mean(axis=0, dtype=np.float64)]
        return self._M

    def _fill(self, Z, X, Y, weight):
        """Z = [x - s, y - t, 1], rows times the root of their weight."""
        Z[:, : self.p], Z[:, self.p : -1], Z[:, -1] = X, Y, 1.0
        Z -= self._shift  # after the cast: numpy casts and subtracts at once at half the speed
        if weight is not None:
            Z *= np.sqrt(weight)[:, None]
        return Z

    def absorb(self, other: Accumulator) -> None:
        """Add the rows of another one, which come after these."""
        self._close()
        other._close()
        if other._done is not None:
            self._done = other._done if self._done is None else self._done.merge(other._done)
        self.n_rows += other.n_rows

    def finite(self) -> bool:
        """Whether all numbers added to the present run were finite: one that is not spoils its square."""
        return self._M is None or bool(np.isfinite(np.diagonal(self._M)).all())

    def moments(self) -> Moments:
        """Of all rows so far, constant columns set to zero."""
        self._close()
        if self._done is None:
            raise ValueError("no rows were added.")
        m = self._done
        dead = constant_columns(np.diagonal(m.G), m.mean_x, m.weight) if self.centre else np.diagonal(m.G) == 0
        m.G[dead], m.G[:, dead], m.C[dead] = 0.0, 0.0, 0.0
        return m

    def _close(self):
        if self._M is None:
            return
        p, weight, M = self.p, float(self._M[-1, -1]), mirror_lower(self._M).T
        offset = M[-1, :-1] / weight if self.centre else np.zeros(p + self.q)
        M = M[:-1, :-1] - weight * np.outer(offset, offset)
        mean = self._shift[:-1] + offset
        new = Moments(
            self._rows, weight, mean[:p], mean[p:], M[:p, :p], M[:p, p:], np.diagonal(M)[p:].copy(), self.centre
        )
        self._done = new if self._done is None else self._done.merge(new)
        self._M, self._rows, self._blocks = None, 0, 0


@dataclass
class Summary:
    """What one pass over the blocks gives: accumulators of every group of rows."""

    groups: list[Accumulator]
    n_rows: int
    single_target: bool
    dtype: Any
    seed: int
    source: BlockSource
    fit_intercept: bool

    @cached_property
    def parts(self) -> list[Moments]:
        """Moments of the groups that have rows."""
        return [group.moments() for group in self.groups]

    def merged(self, which) -> Moments:
        """Moments of some groups together."""
        out = self.parts[which[0]]
        for g in which[1:]:
            out = out.merge(self.parts[g])
        return out

    @cached_property
    def triangles(self) -> list[Triangle]:
        """Triangular factors of the groups: the second pass, made when the first member asks for it."""
        if not self.source.rereadable:
            raise ValueError(
                f"some members have nearly dependent columns and their Gram matrix is not to be trusted, but the "
                f"{self.source.kind} cannot be read again to solve them from the data. Pass a function that returns "
                f"the iterator, or a file, or use partial_fit, which keeps a triangular factor."
            )
        p, q = self.groups[0].p, self.groups[0].q
        out = [Triangle.empty(p, q) for _ in self.groups]
        for block in checked(self.source):
            for g, X, Y, weight in split_rows(block, len(out), self.seed):
                out[g] = out[g].add(_members.Problem(X, Y, weight, self.fit_intercept))
            if block.release:
                block.release()
        return out


class BlockProblem(_members.Problem):
    """A centred problem without intercept that knows its moments; its rows are those of a triangular factor."""

    @classmethod
    def of(cls, summary: Summary, which, rcond, tol) -> BlockProblem:
        """The problem of some groups of rows."""
        m = summary.merged(which)
        lost = int(summary.fit_intercept)
        if rcond is None:
            rcond = rounding_cutoff(max(m.n_rows, len(m.G)), np.sqrt(np.diagonal(m.G)), m.mean_x, m.weight)
        problem = cls(_Shape((m.n_rows - lost, len(m.G))), np.empty((0, m.C.shape[1])), None, False, rcond, tol)
        plain = Moments(m.n_rows, m.weight, 0 * m.mean_x, 0 * m.mean_y, m.G, m.C, m.yy, False)
        vars(problem).update(moments=plain, means=(m.mean_x, m.mean_y), summary=summary, which=which)
        return problem

    @cached_property
    def _factor(self) -> tuple[NDArray, NDArray]:
        """Rows that have the same least-squares solutions as the data."""
        summary, which = vars(self)["summary"], vars(self)["which"]
        whole = reduce(Triangle.join, [summary.triangles[g] for g in which])
        centred, _, _ = whole.problem(_members.Problem(None, self.Y, None, summary.fit_intercept))
        return centred.X, centred.Y

    def submatrix(self, columns: NDArray, rows: NDArray | None) -> Submatrix:
        """Columns of the factor."""
        X, Y = self._factor
        return Submatrix(X[:, columns].copy(), Y.copy(), np.ones(len(X)), np.zeros(len(columns)), np.zeros(Y.shape[1]))


@dataclass(frozen=True)
class _Shape:
    """Stands where rows would be: they are not kept."""

    shape: tuple[int, int]
    dtype: type = np.float64


def fit(estimator, source: BlockSource) -> None:
    """Set the fitted attributes of an ensemble from blocks."""
    refuse_leave_one_out(estimator)
    design = remember_design(estimator, source.n_rows or 0, 0)
    groups = 1 if uses_all_rows(estimator.max_samples) else GROUPS
    summary = summarise(estimator, source, groups, design["seed"])
    fit_summary(estimator, summary, design)


def fit_summary(estimator, summary: Summary, design: dict, *, k: int | None = None) -> None:
    """Members of a summary, whatever made it; with `k` given, that many, of all rows."""
    p = summary.groups[0].p
    together = k is not None
    k = estimator.n_estimators if k is None else k
    set_names(estimator, summary.source.names, p)
    design |= {"n_rows": summary.n_rows, "n_columns": p}
    features, _ = subsets.draw_members(start=0, stop=k, **(design | {"max_samples": 1.0}))
    everyone = tuple(range(len(summary.groups)))
    chosen = [everyone] * k if together else _choose_groups(estimator, summary, k, design["seed"])
    rows = int(np.median([sum(summary.parts[g].n_rows for g in which) for which in set(chosen)]))
    if estimator.sampling == "fixed":
        warn_at_the_peak(int(features.sizes[0]), rows, estimator.fit_intercept)
    coef, intercept, mean_y, refitted, solver = _solve(estimator, summary, features, chosen)
    estimator._design, estimator._kept_rows = design, None
    set_attributes(estimator, features, solver, refitted)
    set_coefficients(estimator, coef, intercept, mean_y, summary.single_target, summary.dtype)


def _solve(estimator, summary, features, chosen):
    """Mean coefficients, intercept and target of all members; members with the same rows are solved together."""
    k, (p, q) = len(features), (summary.groups[0].p, summary.groups[0].q)
    coef, intercept, mean_y, refitted = np.zeros((p, q)), np.zeros(q), np.zeros(q), 0
    report = callbacks.progress(estimator, "members", k)
    solver = "gram" if estimator.solver in ("auto", "member_gram") else estimator.solver
    threads = pools.count_threads(estimator.n_jobs)
    for which in dict.fromkeys(chosen):
        members = np.flatnonzero([c == which for c in chosen])
        problem = BlockProblem.of(summary, which, estimator.rcond, estimator.tol)
        part = features.take(members)
        solution = _members.solve(problem, part, None, solver=solver, n_threads=threads, report=report)
        sums = [np.bincount(part.indices, weights=v, minlength=p) for v in solution.values.T]
        total, (mean_x, own_y) = np.stack(sums, axis=1), vars(problem)["means"]
        coef += total / k
        intercept += (len(members) * own_y - mean_x @ total) / k
        mean_y += len(members) * own_y / k
        refitted += int(solution.refitted.sum())
    return coef, intercept, mean_y, refitted, solution.solver


def summarise(estimator, source: BlockSource, n_groups: int, seed: int) -> Summary:
    """One pass: moments of every group of rows."""
    memory.keep_freed_memory()
    report = callbacks.progress(estimator, "rows", source.n_rows or "an unknown number")
    threads = pools.count_threads(estimator.n_jobs)
    lanes: list[list[Accumulator]] = []
    summary = None

    def add(block):
        lane = lanes[block.number % len(lanes)]
        for g, X, Y, weight in split_rows(block, n_groups, seed):
            lane[g].add(X, Y, weight)
            if not lane[g].finite():
                name_bad_rows(block, source.kind)
        if block.release:
            block.release()
        return block.first + len(block.X)

    def blocks():
        nonlocal summary
        for block in checked(source):
            if summary is None:
                p, q = block.X.shape[1], block.y.shape[1]
                lanes.extend(_lanes(p, q, n_groups, estimator.fit_intercept))
                summary = Summary(lanes[0], 0, block.single, block.dtype, seed, source, estimator.fit_intercept)
            yield block

    for n_rows in pools.in_order(add, blocks(), threads, lambda block: block.number % len(lanes)):
        if report:
            report(n_rows)
    for lane in lanes[1:]:
        for group, other in zip(lanes[0], lane, strict=True):
            group.absorb(other)
    if summary is not None:
        summary.n_rows = sum(group.n_rows for group in summary.groups)
    if summary is None or summary.n_rows < 2:
        raise ValueError(f"the {source.kind} has {summary.n_rows if summary else 0} rows; at least two are needed.")
    return summary


def _lanes(p, q, n_groups, centre):
    """Accumulators of every group, several times: block b goes to lane b modulo their number.

    Lanes are summed side by side by as many threads as there are. Their number depends on the shape alone, so threads
    do not change the result.
    """
    each = 8.0 * n_groups * (p + q + 1) ** 2
    memory.require(3 * each, f"{n_groups} Gram matrices of {p} columns", "Use fewer columns.")
    count = int(min(MOST_LANES, max(1, LANES_BYTES // each)))
    return [[Accumulator(p, q, centre) for _ in range(n_groups)] for _ in range(count)]


def refuse_leave_one_out(estimator) -> None:
    """Say that blocks are read once, where a parameter needs every row again."""
    if estimator.scale == "loo" or estimator.mixing != "mean":
        raise ValueError(
            f"scale={estimator.scale!r} with mixing={estimator.mixing!r} needs leave-one-out residuals of all rows, "
            f"which are not computed from blocks. Use a number and mixing='mean', or load X as an array."
        )


def _choose_groups(estimator, summary, k, seed):
    """Groups of rows of every member, as tuples."""
    n_groups = len(summary.groups)
    if n_groups == 1:
        return [(0,)] * k
    rows = subsets.resolve_size(estimator.max_samples, summary.n_rows, "max_samples")
    size = min(n_groups, max(1, round(n_groups * rows / summary.n_rows)))
    if min(part.n_rows for part in summary.parts) < 2 or abs(size * summary.n_rows / n_groups - rows) > 0.25 * rows:
        warnings.warn(
            f"max_samples={estimator.max_samples} asks for {rows} of {summary.n_rows} rows; out of core a member gets "
            f"{size} of {n_groups} groups of rows, about {size * summary.n_rows // n_groups}.",
            UserWarning,
            stacklevel=2,
        )
    drawn = subsets.draw(n_groups, k, seed=seed, size=size, design=estimator.design, stream=subsets.ROWS)
    return [tuple(which.tolist()) for which in drawn]


def set_coefficients(estimator, coef, intercept, mean_y, single: bool, dtype) -> None:
    """Scale the mean member about its mean target, and forget what an earlier fit kept."""
    mu = estimator.scale_
    coef = (mu * coef).T.astype(dtype)
    intercept = (mu * intercept + (1 - mu) * mean_y).astype(dtype)
    estimator.coef_ = coef[0] if single else coef
    estimator.intercept_ = (intercept[0] if single else intercept) if estimator.fit_intercept else 0.0
    for name in ("_training", "_deletions", "_triangle"):
        estimator.__dict__.pop(name, None)


def set_names(estimator, names, p: int) -> None:
    """Number of columns, and their names where they have any."""
    estimator.n_features_in_ = p
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
