r"""All members at once: conjugate gradients on masked normal equations.

.. math:: V \leftarrow \text{mask} \circ (G\,V)
          \qquad\text{or}\qquad
          V \leftarrow \text{mask} \circ (X'(X V)) , \qquad V = \text{mask} \circ V

One step of all k members is one plain matrix product, which every array library runs at full speed
on a GPU. It needs no Gram matrix where that would not fit, and it leaves sparse X sparse.

The price: correlated columns cost steps. Two kinds of members are handed over to a direct solver:
members that are not trusted on the normal equations, and members that do not converge. The relative
error of every member's coefficients, in units of the columns' standard deviations, is about ``TOL``
or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._data.rows import RowData
from .._execution import memory, messages
from .._execution.arrays import smaller_batch
from .._execution.threads import Threads
from ..subsets import Subsets
from . import gram
from .cg import Outcome, iterate, smallest_eigenvalue
from .normal_equations import NormalEquations
from .solution import Solution

Indices = NDArray[np.int64]

TOL = 1e-9  # relative error of a member's coefficients
MAX_STEPS = 1000
BATCH_BYTES = 5e8  # arrays of one batch of members


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Solved members, on the device of the data."""

    members: Indices
    coef: Any  # (p, q, k)
    intercept: Any  # (q, k)
    outcome: Outcome


def solve(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Coefficients of all members; a direct solver takes the members that the iteration gives up."""
    solution = Solution.empty(features.sizes, problem.Y.shape[1], "masked_cg")
    outcomes = []
    with threads.blas():
        for batch in batches(problem, features):
            _store(solution, features, batch)
            outcomes.append(batch.outcome)
    if threads.report:
        threads.report(len(features))
    given_up = unsolved(outcomes)
    if len(given_up):
        solve_directly = gram.solve_shared if problem.has_moments else gram.solve_own
        direct = solve_directly(problem, features.take(given_up), None, threads)
        solution.put(given_up, features.sizes, direct, refitted=False)
    return solution


def _store(solution: Solution, features: Subsets, batch: Batch) -> None:
    """Write the coefficients of a batch to the solution."""
    first = batch.members[0]
    stop = batch.members[-1] + 1
    in_member = features.slice(first, stop).mask()
    entries = slice(features.indptr[first], features.indptr[stop])
    for t in range(batch.coef.shape[1]):
        solution.values[entries, t] = batch.coef[:, t, :].T[in_member]
    solution.intercepts[batch.members] = batch.intercept.T


def unsolved(outcomes: list[Outcome]) -> Indices:
    """Numbers of the members that a direct solver has to take, with a warning if any did not
    converge.
    """
    converged = np.concatenate([outcome.converged for outcome in outcomes])
    errors = np.concatenate([outcome.error[outcome.slow] for outcome in outcomes])
    if len(errors):
        reached = f"{np.max(errors):.1e}" if np.all(np.isfinite(errors)) else "not known"
        messages.warn(
            f"{len(errors)} of {len(converged)} members did not converge in {MAX_STEPS} steps of"
            f" masked_cg (largest relative error about {reached}); they were solved directly"
            " instead. Collinear columns cause this: solver='auto' chooses for you.",
            ConvergenceWarning,
        )
    return np.flatnonzero(~converged)


def batches(problem: RowData, features: Subsets) -> Iterator[Batch]:
    """Solve members batch by batch, in their order, as many at a time as memory allows.

    With many more rows than columns two probes of the matrix of all columns serve all members, if
    that matrix is trusted; otherwise every member has a probe, which takes as long as a target.
    """
    n, p = problem.shape
    k = len(features)
    q = problem.Y.shape[1]
    equations = normal_equations(problem, k)
    smallest = np.nan
    if n >= 2 * p:
        smallest = _smallest_of_all(equations)
    size = _batch_size(problem, columns_per_member=q + bool(np.isnan(smallest)))
    start = 0
    while start < k:
        members = np.arange(start, min(start + size, k))
        try:
            batch = _solve_batch(equations, features, members, smallest)
        except Exception as error:
            size = smaller_batch(error, len(members))
            continue
        yield batch
        start += len(members)


def normal_equations(problem: RowData, k: int) -> NormalEquations:
    """Normal equations on a Gram matrix where it fits and pays for k members, or else on X."""
    if problem.has_moments or _gram_pays(problem, k):
        return NormalEquations.from_moments(problem.moments)
    return NormalEquations.from_rows(problem)


def _gram_pays(problem: RowData, k: int) -> bool:
    """Whether a Gram matrix, n p^2 flops and 8 p^2 bytes, is repaid by steps of 2 p^2 instead of 4
    n p flops; 32 steps are expected.
    """
    n, p = problem.shape
    if sp.issparse(problem.X):  # where it pays, `choose` takes another solver
        return False
    on_host = problem.space.on_host
    room = memory.available_bytes() / 2 if on_host else 2 * problem.space.batch_bytes(np.inf)
    return 8.0 * p**2 <= room and float(n) * p < 32 * k * (4.0 * n - 2.0 * p)


def _smallest_of_all(equations: NormalEquations) -> float:
    """Smallest eigenvalue of the matrix of all columns, nan if it is not trusted.

    Members are principal submatrices, whose smallest eigenvalues are no smaller.
    """
    space = equations.space
    nonzero = space.cast(equations.scale > 0)
    noise = space.put(_noise((2, nonzero.shape[0])).T)
    return smallest_eigenvalue(
        equations.operator(nonzero), nonzero * noise, max_steps=MAX_STEPS, space=space
    )


def _batch_size(problem: RowData, columns_per_member: int) -> int:
    """Number of members of a batch."""
    n, p = problem.shape
    if sp.issparse(problem.X):
        columns = 32  # their vectors stay in cache: two to three times faster than 100 columns
    else:  # a column has about ten arrays of p numbers; products with X add two of n
        column_bytes = 80 * p + (0 if problem.has_moments else 16 * n)
        columns = int(problem.space.batch_bytes(BATCH_BYTES) // column_bytes)
    return max(1, columns // columns_per_member)


def _solve_batch(
    equations: NormalEquations, features: Subsets, members: Indices, smallest: float
) -> Batch:
    """Solve some members together; `smallest` is nan if every member needs a probe."""
    space = equations.space
    xp = space.xp
    p, q = equations.C.shape
    k = len(members)
    in_member = features.slice(members[0], members[-1] + 1).mask()
    # in row order, like the vectors: the mask is a transpose, and mixed orders slow every step
    mask = space.zeros((p, k))
    mask += space.cast(space.put(in_member).T)
    mask *= space.cast(equations.scale > 0)
    right_sides = [equations.C[:, t][:, None] for t in range(q)]
    if np.isnan(smallest):
        right_sides.append(space.put(_noise(p))[:, None])
    outcome = Outcome(
        smallest=np.full(k, smallest),
        untrusted=np.asarray(np.any(in_member[:, equations.cancelling], axis=1)),
        error=np.full(k, np.inf),
        tol=TOL,
    )
    with np.errstate(over="ignore", invalid="ignore"):  # units too far apart: members are given up
        X = iterate(
            equations.operator(xp.concat([mask] * len(right_sides), axis=1)),
            xp.concat([mask * right_side for right_side in right_sides], axis=1),
            outcome,
            n_targets=q,
            max_steps=MAX_STEPS,
            space=space,
        )
        coef = xp.reshape(equations.scale * X[:, : k * q], (p, q, k))
        offset = xp.sum(equations.mean_x[:, None, None] * coef, axis=0)
    return Batch(
        members=members,
        coef=coef,
        intercept=equations.mean_y[:, None] - offset,
        outcome=outcome,
    )


def _noise(shape: int | tuple[int, int]) -> NDArray[np.float64]:
    """Right-hand sides of probes, identical in every batch and on every device.

    Gaussian: random signs miss the null direction (1, -1) of a repeated column every other time.
    """
    return np.random.default_rng(0).standard_normal(shape)
