"""How a batch of members is solved: the solvers, and the one place that decides between them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
import scipy.sparse as sp

from .._execution import memory, pools
from .._execution.blas_threads import one_blas_thread
from . import gram, interpolator, masked_cg, on_cluster, orthogonal
from .problem import Problem, Solution

__all__ = ["SOLVERS", "Problem", "Solution", "choose", "solve"]

# name -> solve(problem, features, samples, mapper) -> Solution
SOLVERS = {
    "gram": gram.solve_shared,
    "member_gram": gram.solve_own,
    "orthogonal": orthogonal.solve,
    "interpolator": interpolator.solve,
    "masked_cg": masked_cg.solve,
}


def choose(n: int, p: int, k: int, *, m: float, rows: float | None = None, nnz: float | None = None) -> str:
    """Name of the cheapest solver for `k` members of `m` columns on an n x p problem.

    ==========================  ==============  ===============================================  ==================
    members                     solver          flops                                            bytes
    ==========================  ==============  ===============================================  ==================
    fewer rows than columns     interpolator    k (rows^2 m + rows^3 / 3)                        8 rows m a thread
    rows drawn (`rows` given)   member_gram     k (rows m^2 + m^3 / 3)                           8 rows m a thread
    all rows                    gram            n p^2 + k m^3 / 3                                8 p^2
    all rows                    member_gram     k (n m^2 + m^3 / 3 + g n m)                      8 n m a thread
    all rows, p >= 2000         masked_cg       n p^2 / 2 + 40 k p^2 + 8 n p k, twice            4 p^2 + 80 p k
    all rows, sparse (`nnz`)    gram            2 nnz^2 / n + 10 p^2 + k m^3 / 3                 8 p^2
    all rows, sparse            masked_cg       2560 nnz k                                       80 p k + 16 n k
    ==========================  ==============  ===============================================  ==================

    The least flops win among those whose memory is there (a dense Gram matrix of sparse data: up to 5000 columns). An
    entry gathered from X costs g = 40 flops, 100 where X does not fit a cache of 24 MB. Steps of masked_cg, 40 here,
    are many more on correlated columns, hence the factor of two; sparse products run at about a tenth of the rate of
    dense ones. ``orthogonal`` (4 rows m^2 flops a member) is never the cheapest; the others hand over to it the members
    whose Gram matrix is not to be trusted, and it can be asked for by name.
    """
    if m >= (n if rows is None else rows):
        return "interpolator"
    if rows is not None:
        return "member_gram"
    gather = 100 if 8.0 * n * p > 24e6 else 40
    cost = {"member_gram": k * (n * m**2 + m**3 / 3 + gather * n * m)}
    if (p < 2000 or 8.0 * p**2 < 0.5 * memory.available_bytes()) and (nnz is None or p <= 5000):
        made = float(n) * p**2 if nnz is None else 2 * nnz**2 / n + 10.0 * p**2
        cost["gram"] = made + k * m**3 / 3
    if nnz is not None:
        cost["masked_cg"] = 2560.0 * nnz * k
    elif p >= 2000:
        cost["masked_cg"] = float(n) * p**2 + 80.0 * k * p**2 + 16.0 * n * p * k
    return min(cost, key=lambda name: cost[name])


def solve(
    problem: Problem,
    features,
    samples,
    *,
    solver: str = "auto",
    n_threads: int = 1,
    report=None,
    spread: bool = False,
) -> Solution:
    """Coefficients and intercepts of all members.

    Members with at least as many columns as degrees of freedom go to the interpolator whatever `solver` says; the
    others to `solver`, or to :func:`choose` when it is ``"auto"``. With several threads BLAS keeps to one: its own
    would spin for milliseconds after every product and take the cores from ours. With `spread`, chunks of members are
    tasks of the cluster that joblib's active backend stands for.
    """
    memory.keep_freed_memory()
    with one_blas_thread() if n_threads > 1 and problem.space.on_host else nullcontext():
        return _solve(problem, features, samples, solver, n_threads, report, spread)


def _solve(problem, features, samples, solver, n_threads, report, spread):
    n, p = problem.shape
    sizes = features.sizes
    rows = (np.full(len(sizes), n) if samples is None else samples.sizes) - problem.fit_intercept
    wide = sizes > rows
    mapper = partial(pools.map_chunks, n_threads=n_threads, report=report)

    def run(name, features, samples):
        away = spread and name in on_cluster.SPREAD and len(features)
        work = partial(on_cluster.solve, name) if away else SOLVERS[name]
        return work(problem, features, samples, mapper)

    if solver == "masked_cg":  # serves members of both kinds
        return run(solver, features, samples)
    if wide.all():
        return run("interpolator", features, samples)
    nnz = float(problem.X.nnz) if sp.issparse(problem.X) else None
    name = _name(solver, n, p, sizes[~wide], None if samples is None else rows[~wide], nnz)
    if not wide.any():
        return run(name, features, samples)
    out = Solution(
        np.empty((len(features.indices), problem.Y.shape[1])),
        np.empty((len(sizes), problem.Y.shape[1])),
        np.zeros(len(sizes), dtype=bool),
        name,
    )
    for which, one in ((wide, "interpolator"), (~wide, name)):
        members = np.flatnonzero(which)
        part = run(one, features.take(members), samples and samples.take(members))
        out.put(members, sizes, part, refitted=False)
    return out


def _name(solver, n, p, sizes, rows, nnz):
    if solver == "interpolator":
        raise ValueError(
            f"solver='interpolator' is for members with fewer rows than columns, but members have {sizes.min()} "
            f"columns and {n if rows is None else rows.max()} rows. Use solver='auto'."
        )
    if solver == "gram" and rows is not None:
        return "member_gram"  # rows differ from member to member, so there is no Gram to share
    if solver != "auto":
        return solver
    drawn = None if rows is None else float(rows.mean())
    return choose(n, p, len(sizes), m=float(sizes.mean()), rows=drawn, nnz=nnz)
