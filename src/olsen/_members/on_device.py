"""Members of data in another array library, often on a GPU: sums of coefficients that never leave
the device.

Members on all rows go through masked conjugate gradients. The host solves the members that
conjugate gradients give up, from the moments that the device has computed, and members on a sample
of the rows. CUDA's ``lstsq`` is never called: it is silently wrong for dependent columns.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.rows import RowData
from .._execution.threads import Threads
from ..subsets import Subsets
from . import masked_cg, solve
from .masked_cg import Batch
from .mean import mean_target, member_sum

Indices = NDArray[np.int64]


class MemberSum(NamedTuple):
    """Sums over members: coefficients (p, q), intercepts (q,), mean targets (q,); and the number of
    refits.
    """

    coef: Any
    intercept: Any
    mean_y: Any
    refitted: int = 0


def solve_sum(
    problem: RowData, features: Subsets, samples: Subsets | None, solver: str, threads: Threads
) -> MemberSum:
    """Sum of all members' coefficients and intercepts, on the problem's device; `threads` work on
    the host.
    """
    host = partial(_from_host, problem, features, samples, threads=threads)
    wide = features.sizes > problem.shape[0] - problem.null_rank
    if samples is not None or wide.all() or solver in ("gram", "orthogonal"):
        return host(np.arange(len(features)), solver=solver)
    sums = []
    if wide.any():
        sums.append(host(np.flatnonzero(wide), solver=solver))
    tall = np.flatnonzero(~wide)
    outcomes = []
    for batch in masked_cg.batches(problem, features.take(tall)):
        sums.append(_converged(problem, batch))
        outcomes.append(batch.outcome)
    given_up = tall[masked_cg.unsolved(outcomes)]
    if len(given_up):
        sums.append(host(given_up, solver="gram" if problem.has_moments else "auto"))
    return MemberSum(*(sum(terms[1:], terms[0]) for terms in zip(*sums, strict=True)))


def _converged(problem: RowData, batch: Batch) -> MemberSum:
    """Sums over the members of a batch that converged."""
    space = problem.space
    xp = space.xp
    converged = batch.outcome.converged
    use = space.put(converged.astype(np.float64))
    # not a product: the columns of members given up may hold infinities
    coef = xp.where(use > 0, batch.coef, xp.zeros_like(batch.coef))
    intercept = xp.where(use > 0, batch.intercept, xp.zeros_like(batch.intercept))
    return MemberSum(
        coef=xp.sum(coef, axis=2),
        intercept=xp.sum(intercept, axis=1),
        mean_y=int(converged.sum()) * problem.means[1],
    )


def _from_host(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    members: Indices,
    *,
    solver: str,
    threads: Threads,
) -> MemberSum:
    """Sum of members solved on the host, from a copy of the data and the moments of the device."""
    space = problem.space
    host = problem.on_host()
    if samples is None and problem.has_moments and space.dtype == space.xp.float64:
        host.keep_moments(problem.moments.on_host())
    host_features = features.take(members)
    solution = solve(host, host_features, samples, solver=solver, threads=threads)
    k = len(members)
    mean_y = k * mean_target(host, samples, np.full(k, 1 / k))
    return MemberSum(
        coef=space.put(member_sum(host_features, solution.values)),
        intercept=space.put(solution.intercepts.sum(axis=0)),
        mean_y=space.put(mean_y),
        refitted=int(solution.refitted.sum()),
    )
