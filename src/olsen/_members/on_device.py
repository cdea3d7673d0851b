"""Members of data that live in another array library, often on a GPU: sums of coefficients that never leave it.

Masked conjugate gradients first; members they give up go to batched Cholesky on the device, and the few whose Gram
matrix is not to be trusted to QR or SVD on the host. CUDA's ``lstsq`` is never called: it is silently wrong for
dependent columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution import arrays
from .._execution.threads import Sharing
from ..subsets import Subsets
from . import gram, masked_cg, orthogonal
from .cg import DONE, LIMIT, SLOW
from .masked_cg import AnySubsets
from .mean import mean_target, member_sum
from .problem import Problem

__all__ = ["MemberSum", "solve_sum"]

Indices = NDArray[np.int64]

FEW = 8  # members on all rows that the host solves one by one


@dataclass(frozen=True)
class MemberSum:
    """Sums over members: coefficients (p, q), intercepts (q,), mean targets (q,); and how they were found."""

    coef: Any
    intercept: Any
    mean_y: Any
    refitted: int
    solver: str

    def add(self, coef: Any, intercept: Any, mean_y: Any, refitted: int = 0) -> MemberSum:
        """With more members."""
        return MemberSum(
            self.coef + coef, self.intercept + intercept, self.mean_y + mean_y, self.refitted + refitted, self.solver
        )


def solve_sum(
    problem: Problem,
    features: AnySubsets,
    samples: AnySubsets | None,
    solver: str = "auto",
    mapper: Sharing | None = None,
) -> MemberSum:
    """Sum of all members' coefficients and intercepts, on the problem's device; `mapper` serves the host's part."""
    q, p = problem.Y.shape[1], problem.shape[1]
    name = "masked_cg" if solver == "auto" else solver
    zeros = problem.space.zeros
    total = MemberSum(zeros((p, q)), zeros((q,)), zeros((q,)), 0, name)
    if name == "orthogonal":
        return _add_from_host(total, problem, features, samples, np.arange(len(features)), mapper, refit=False)
    for kind, members in masked_cg.kinds(problem, features, samples).items():
        left = members
        if name == "masked_cg" or kind == "dual":
            total, left = _add_iterated(total, problem, features, samples, kind, members, mapper)
        if kind != "dual":
            total, left = _add_factored(total, problem, features, samples, left)
        total = _add_from_host(total, problem, features, samples, left, mapper, refit=True)
    return total


def _add_iterated(
    total: MemberSum,
    problem: Problem,
    features: AnySubsets,
    samples: AnySubsets | None,
    kind: str,
    members: Indices,
    mapper: Sharing | None,
) -> tuple[MemberSum, Indices]:
    """Add the members that converge; the numbers of the others."""
    left, errors, space = [], [], problem.space
    for part in masked_cg.solve_batches(problem, features, samples, kind, members, mapper):
        state = part.outcome.state
        total = total.add(*_sums(part, state == DONE, space))
        left.append(part.members[state != DONE])
        errors.append(part.outcome.error[state == SLOW])
    slow = np.concatenate(errors)
    if len(slow):
        masked_cg.warn_slow(slow, len(members), masked_cg.MAX_STEPS)
    return total, np.concatenate(left)


def _sums(part: masked_cg.Solved, done: NDArray[np.bool_], space: arrays.Space) -> tuple[Any, Any, Any]:
    """Sums over the members of a batch that converged: coefficients, intercepts, mean targets."""
    xp, coef, intercept, mean_y = space.xp, part.coef, part.intercept, part.mean_y
    if done.all():
        share = len(done) / mean_y.shape[1]  # one mean target may stand for all members
        return xp.sum(coef, axis=2), xp.sum(intercept, axis=1), xp.sum(mean_y, axis=1) * share
    use = space.put(done.astype(np.float64))
    # where, not a product: the columns of members given up may hold infinities
    coef = xp.where(use > 0, coef, xp.zeros_like(coef))
    intercept = xp.where(use > 0, intercept, xp.zeros_like(intercept))
    return xp.sum(coef, axis=2), xp.sum(intercept, axis=1), xp.sum(mean_y * use[None, :], axis=1)


def _add_factored(
    total: MemberSum, problem: Problem, features: AnySubsets, samples: AnySubsets | None, members: Indices
) -> tuple[MemberSum, Indices]:
    """Add members by batched Cholesky; the numbers of those whose matrix is not to be trusted."""
    xp, distrusted = problem.space.xp, []
    sizes = features.sizes[members]
    for size in np.unique(sizes):
        same = members[sizes == size]
        if size == 0:
            distrusted.append(same)
            continue
        step = max(1, int(problem.space.batch_bytes(masked_cg.BATCH_BYTES) // (24 * int(size) ** 2)))
        for start in range(0, len(same), step):
            here = same[start : start + step]
            G, C, mean_x, mean_y = _stacked(problem, features, samples, here)
            B, good = arrays.trusted_solve(G, C, problem.space, LIMIT)
            use = problem.space.put(good.astype(np.float64))[:, None]
            B = xp.where(use[:, :, None] > 0, B, xp.zeros_like(B))
            intercept = use * (mean_y - xp.sum(mean_x[:, :, None] * B, axis=1))
            coef = _scatter(B, features, here, problem)
            total = total.add(coef, xp.sum(intercept, axis=0), xp.sum(use * mean_y, axis=0))
            distrusted.append(here[~good])
    return total, np.concatenate([members[:0], *distrusted])


def _stacked(problem: Problem, features: AnySubsets, samples: AnySubsets | None, members: Indices) -> tuple[Any, ...]:
    """Gram matrices (b, m, m), X'y (b, m, q), means (b, m) and (b, q) of members of one size."""
    xp, put = problem.space.xp, problem.space.put
    if samples is None:
        return _stacked_from_moments(problem, np.stack([features[i] for i in members]))
    parts = []
    for i in members:
        columns, rows = put(features[i]), put(samples[i])
        X = xp.take(xp.take(problem.X, rows, axis=0), columns, axis=1)
        weight = None if problem.weight is None else xp.take(problem.weight, rows, axis=0)
        own = replace(problem, X=X, Y=xp.take(problem.Y, rows, axis=0), weight=weight).moments
        parts.append((own.G, own.C, own.mean_x, own.mean_y))
    return tuple(xp.stack(list(part)) for part in zip(*parts, strict=True))


def _stacked_from_moments(problem: Problem, columns: Indices) -> tuple[Any, ...]:
    """The same for members (b, m) on all rows: one gather for the whole batch."""
    xp, put, moments = problem.space.xp, problem.space.put, problem.moments
    count, size = columns.shape
    p = problem.shape[1]
    flat = put((columns[:, :, None] * p + columns[:, None, :]).reshape(-1))
    G = xp.reshape(xp.take(xp.reshape(moments.G, (-1,)), flat, axis=0), (count, size, size))
    C = xp.reshape(xp.take(moments.C, put(columns.reshape(-1)), axis=0), (count, size, moments.C.shape[1]))
    mean_x = xp.reshape(xp.take(moments.mean_x, put(columns.reshape(-1)), axis=0), (count, size))
    return G, C, mean_x, xp.broadcast_to(moments.mean_y, (count, moments.mean_y.shape[0]))


def _scatter(B: Any, features: AnySubsets, members: Indices, problem: Problem) -> Any:
    """Sum over members of their coefficients at their columns; on the host, the array API has no scatter."""
    space, p = problem.space, problem.shape[1]
    columns = np.concatenate([features[i] for i in members])
    values = space.get(B).reshape(len(columns), -1)
    return space.put(np.stack([np.bincount(columns, weights=v, minlength=p) for v in values.T], axis=1))


def _add_from_host(
    total: MemberSum,
    problem: Problem,
    features: AnySubsets,
    samples: AnySubsets | None,
    members: Indices,
    mapper: Sharing | None,
    *,
    refit: bool,
) -> MemberSum:
    """Add members solved on the host, which gets the columns they use: by QR or SVD, many on all rows from one Gram."""
    if not len(members):
        return total
    space, mapper, k = problem.space, mapper or Sharing(), len(members)
    lists = [np.asarray(features[i]) for i in members]
    columns = np.unique(np.concatenate(lists))
    given = space.xp.take(problem.X, space.put(columns), axis=1), problem.Y, problem.weight
    X, Y, weight = (None if a is None else np.asarray(space.get(a), dtype=np.float64) for a in given)
    host = Problem(X, np.asarray(Y), weight, problem.fit_intercept, problem.rcond)
    own = Subsets.from_lists([np.searchsorted(columns, one) for one in lists], len(columns))
    rows = None if samples is None else Subsets.from_lists([np.asarray(samples[i]) for i in members], len(host.Y))
    if rows is None and k > FEW and refit:  # dependent columns are no exception there
        solution = gram.solve_shared(host, own, None, mapper)
        refitted = int(solution.refitted.sum())
    else:
        solution, refitted = orthogonal.solve(host, own, rows, mapper, refine=False), refit * k
    coef = np.zeros((problem.shape[1], host.Y.shape[1]))
    coef[columns] = member_sum(own, solution.values)
    mean_y = k * mean_target(host, rows, np.full(k, 1 / k))
    return total.add(space.put(coef), space.put(solution.intercepts.sum(axis=0)), space.put(mean_y), refitted)
