"""Solvers of members, and the rule that chooses a solver."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import scipy.sparse as sp

from .._data.rows import RowData
from .._execution import memory
from .._execution.threads import Threads, one_blas_thread
from ..subsets import Subsets
from . import gram, masked_cg, orthogonal
from .mean import Members
from .solution import Solution

__all__ = ["ASKED_FOR", "SOLVERS", "Members", "Solution", "cheapest_solver", "solve"]

ALONE = Threads()

ASKED_FOR = ("auto", "gram", "orthogonal", "masked_cg")  # solvers that users may name
# name -> solve(problem, features, samples, threads) -> Solution
SOLVERS = {
    "gram": gram.solve_shared,
    "member_gram": gram.solve_own,
    "orthogonal": orthogonal.solve,
    "interpolator": orthogonal.solve_wide,
    "masked_cg": masked_cg.solve,
}


def cheapest_solver(
    n: int, p: int, k: int, *, m: float, rows: float | None = None, nnz: float | None = None
) -> str:
    """Name of the cheapest solver for `k` members of `m` columns on an n x p problem.

    ==========================  ==============  ===============================================  ==================
    members                     solver          flops                                            bytes
    ==========================  ==============  ===============================================  ==================
    few, of all columns         orthogonal      k (8 n m^2 + 2e6), no more than 1e7              16 n m a thread
    fewer rows than columns     interpolator    k (rows^2 m + rows^3 / 3)                        8 rows m a thread
    rows drawn (`rows` given)   member_gram     k (rows m^2 + m^3 / 3)                           8 rows m a thread
    all rows                    gram            n p^2 + k m^3 / 3                                8 p^2
    all rows                    member_gram     k (n m^2 + m^3 / 3 + g n m)                      8 n m a thread
    all rows, sparse (`nnz`)    gram            2 nnz^2 / n + 10 p^2 + k m^3 / 3                 8 p^2
    all rows, sparse            masked_cg       2560 nnz k                                       2560 p + 512 n
    ==========================  ==============  ===============================================  ==================

    The solver of the fewest flops wins among the solvers whose memory is available (a dense Gram
    matrix of sparse data: up to 5000 columns). An entry gathered from X costs g = 40 flops, 100
    where X does not fit a cache of 24 MB. The table assumes 40 steps of masked_cg; correlated
    columns take more, hence a factor of two. Sparse products run at about a tenth of the
    rate of dense ones. ``orthogonal`` (8 rows m^2 flops a member, and the time of 2e6) is never the
    cheapest, but keeps all digits. Plain least squares, which has all rows and columns, goes there
    where it takes no more than about a millisecond. The other solvers hand members to it whose Gram
    matrix is not trusted, and users can ask for it by name.
    """
    if m >= (n if rows is None else rows):
        return "interpolator"
    if rows is not None:
        return "member_gram"
    if m == p and k * (8.0 * n * m**2 + 2e6) <= 1e7:  # a millisecond
        return "orthogonal"
    gather_flops = 100 if 8.0 * n * p > 24e6 else 40
    cost = {"member_gram": k * (n * m**2 + m**3 / 3 + gather_flops * n * m)}
    if (p < 2000 or 8.0 * p**2 < 0.5 * memory.available_bytes()) and (nnz is None or p <= 5000):
        gram_flops = float(n) * p**2 if nnz is None else 2 * nnz**2 / n + 10.0 * p**2
        cost["gram"] = gram_flops + k * m**3 / 3
    if nnz is not None:
        cost["masked_cg"] = 2560.0 * nnz * k
    return min(cost, key=lambda name: cost[name])


def solve(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    *,
    solver: str = "auto",
    threads: Threads = ALONE,
) -> Solution:
    """Coefficients and intercepts of all members.

    Members with more columns than degrees of freedom go to the interpolator whatever `solver` says;
    the others to `solver`, or to :func:`cheapest_solver` when it is ``"auto"``. With several threads BLAS is
    held to one thread: more would spin for milliseconds after every product and take the cores from
    our threads.
    """
    with one_blas_thread() if threads.n_threads > 1 and problem.space.on_host else nullcontext():
        return _solve(problem, features, samples, solver=solver, threads=threads)


def _solve(
    problem: RowData, features: Subsets, samples: Subsets | None, *, solver: str, threads: Threads
) -> Solution:
    n, p = problem.shape
    sizes = features.sizes
    rows = (np.full(len(sizes), n) if samples is None else samples.sizes) - problem.null_rank
    wide = sizes > rows
    if wide.all():
        return SOLVERS["interpolator"](problem, features, samples, threads)
    nnz = float(problem.X.nnz) if sp.issparse(problem.X) else None
    mean_rows = None if samples is None else float(rows[~wide].mean())
    name = solver
    if solver == "auto":
        k = int(np.count_nonzero(~wide))
        name = cheapest_solver(n, p, k, m=float(sizes[~wide].mean()), rows=mean_rows, nnz=nnz)
    elif solver != "orthogonal" and samples is not None:
        name = "member_gram"  # rows differ from member to member, so there is no Gram to share
    if not wide.any():
        return SOLVERS[name](problem, features, samples, threads)
    solution = Solution.empty(sizes, problem.Y.shape[1], name)
    for in_group, group_solver in ((wide, "interpolator"), (~wide, name)):
        members = np.flatnonzero(in_group)
        member_rows = None if samples is None else samples.take(members)
        part = SOLVERS[group_solver](problem, features.take(members), member_rows, threads)
        solution.put(members, sizes, part, refitted=False)
    return solution
