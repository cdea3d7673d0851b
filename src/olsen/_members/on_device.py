"""Members of data that live in another array library, often on a GPU: sums of coefficients that never leave it.

Members on all rows go through masked conjugate gradients. The host solves those that these give up, from the moments
that the device has made, and members on some of the rows. CUDA's ``lstsq`` is never called: it is silently wrong for
dependent columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._execution import arrays
from .._execution.threads import Threads
from ..subsets import Subsets
from . import masked_cg, solve
from .cg import DONE
from .masked_cg import Solved
from .mean import mean_target, member_sum
from .problem import Problem

Indices = NDArray[np.int64]


class MemberSum(NamedTuple):
    """Sums over members: coefficients (p, q), intercepts (q,), mean targets (q,); and how many were refitted."""

    coef: Any
    intercept: Any
    mean_y: Any
    refitted: int = 0


def solve_sum(problem: Problem, features: Subsets, samples: Subsets | None, solver: str, sharing: Threads) -> MemberSum:
    """Sum of all members' coefficients and intercepts, on the problem's device; `sharing` serves the host's part."""
    if samples is not None or solver == "orthogonal":
        return _from_host(problem, features, samples, np.arange(len(features)), solver, sharing)
    found = []
    for one in masked_cg.iterations(problem, features):
        left = one.members
        if solver != "gram" or one.kind == "dual":
            parts = []
            for part in one.batches():
                found.append(_converged(part, problem.space))
                parts.append(part._replace(mask=None, coef=None, intercept=None))
            masked_cg.warn_slow(parts, len(left))
            left = np.concatenate([part.members[part.outcome.state != DONE] for part in parts])
        if len(left):
            found.append(_from_host(problem, features, None, left, "gram" if one.shared else "auto", sharing))
    return MemberSum(*(sum(parts[1:], parts[0]) for parts in zip(*found, strict=True)))


def _converged(part: Solved, space: arrays.Space) -> MemberSum:
    """Sums over the members of a batch that converged."""
    xp, (_, _, coef, intercept, mean_y, outcome) = space.xp, part
    use = space.put((outcome.state == DONE).astype(np.float64))
    if np.any(outcome.state != DONE):  # where, not a product: the columns of members given up may hold infinities
        coef = xp.where(use > 0, coef, xp.zeros_like(coef))
        intercept = xp.where(use > 0, intercept, xp.zeros_like(intercept))
    return MemberSum(xp.sum(coef, axis=2), xp.sum(intercept, axis=1), xp.sum(mean_y * use[None, :], axis=1))


def _from_host(
    problem: Problem, features: Subsets, samples: Subsets | None, members: Indices, solver: str, sharing: Threads
) -> MemberSum:
    """Members solved on the host, which gets the columns they use; all of them, where they have rows of their own."""
    space, k, some = problem.space, len(members), features.take(members)
    columns = np.unique(some.indices)
    given = space.xp.take(problem.X, space.put(columns), axis=1), problem.Y, problem.weight
    X, Y, weight = (None if a is None else np.asarray(space.get(a), dtype=np.float64) for a in given)
    host = Problem(X, np.asarray(Y), weight, problem.fit_intercept)
    if samples is None and problem.has_moments and space.dtype == space.xp.float64:
        made = problem.moments.on_host()
        G, C = made.G[np.ix_(columns, columns)], made.C[columns]
        vars(host)["moments"] = replace(made, mean_x=made.mean_x[columns], G=G, C=C)
    own = Subsets(len(columns), some.indptr, np.searchsorted(columns, some.indices))
    solution = solve(host, own, samples, solver=solver, sharing=sharing)
    coef = np.zeros((problem.shape[1], host.Y.shape[1]))
    coef[columns] = member_sum(own, solution.values)
    mean_y, put = k * mean_target(host, samples, np.full(k, 1 / k)), space.put
    return MemberSum(put(coef), put(solution.intercepts.sum(axis=0)), put(mean_y), int(solution.refitted.sum()))
