"""Members of data that live in another array library, often on a GPU: sums of coefficients that never leave it.

Masked conjugate gradients first; members on all rows that they give up go to batched Cholesky on the device, and what
that does not trust, with members on some rows, to the host. CUDA's ``lstsq`` is never called: it is silently wrong for
dependent columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._execution import arrays
from .._execution.threads import Threads
from ..subsets import Subsets
from . import masked_cg, solve
from .cg import DONE, LIMIT
from .masked_cg import AnySubsets, Solved
from .mean import mean_target, member_sum
from .problem import Problem

Indices = NDArray[np.int64]


class MemberSum(NamedTuple):
    """Sums over members: coefficients (p, q), intercepts (q,), mean targets (q,); and how many were refitted."""

    coef: Any
    intercept: Any
    mean_y: Any
    refitted: int = 0


def solve_sum(
    problem: Problem, features: AnySubsets, samples: AnySubsets | None, solver: str, sharing: Threads
) -> MemberSum:
    """Sum of all members' coefficients and intercepts, on the problem's device; `sharing` serves the host's part."""
    if solver == "orthogonal":
        return _from_host(problem, features, samples, np.arange(len(features)), solver, sharing)
    found = []
    for one in masked_cg.iterations(problem, features, samples, sharing):
        left = one.members
        if solver != "gram" or one.kind == "dual":
            parts = []
            for part in one.batches():
                found.append(_converged(part, problem.space))
                parts.append(part._replace(mask=None, coef=None, intercept=None))
            masked_cg.warn_slow(parts, len(left))
            left = np.concatenate([part.members[part.outcome.state != DONE] for part in parts])
        if one.kind != "dual" and samples is None:
            sums, left = _factored(problem, features, left)
            found += sums
        if len(left):
            found.append(_from_host(problem, features, samples, left, "auto", sharing))
    return MemberSum(*(sum(parts[1:], parts[0]) for parts in zip(*found, strict=True)))


def _converged(part: Solved, space: arrays.Space) -> MemberSum:
    """Sums over the members of a batch that converged."""
    xp, (_, _, coef, intercept, mean_y, outcome) = space.xp, part
    use = space.put((outcome.state == DONE).astype(np.float64))
    if np.any(outcome.state != DONE):  # where, not a product: the columns of members given up may hold infinities
        coef = xp.where(use > 0, coef, xp.zeros_like(coef))
        intercept = xp.where(use > 0, intercept, xp.zeros_like(intercept))
    return MemberSum(xp.sum(coef, axis=2), xp.sum(intercept, axis=1), xp.sum(mean_y * use[None, :], axis=1))


def _factored(problem: Problem, features: AnySubsets, members: Indices) -> tuple[list[MemberSum], Indices]:
    """Sums over members on all rows by batched Cholesky; the numbers of those whose matrix is not to be trusted."""
    space, moments, found, distrusted = problem.space, problem.moments, [], [members[:0]]
    xp, put, p, sizes = space.xp, space.put, problem.shape[1], features.sizes[members]
    for size in np.unique(sizes):
        same = members[sizes == size]
        step = max(1, int(space.batch_bytes(masked_cg.BATCH_BYTES) // (24 * max(1, int(size)) ** 2)))
        for here in (same[start : start + step] for start in range(0, len(same) if size else 0, step)):
            columns = np.stack([features[i] for i in here])  # (b, m)
            pairs, flat = put((columns[:, :, None] * p + columns[:, None, :]).reshape(-1)), put(columns.reshape(-1))
            G = xp.reshape(xp.take(xp.reshape(moments.G, (-1,)), pairs, axis=0), (*columns.shape, int(size)))
            C = xp.reshape(xp.take(moments.C, flat, axis=0), (*columns.shape, moments.C.shape[1]))
            B, good = _trusted_solve(G, C, space)
            B = xp.where(put(good.astype(np.float64))[:, None, None] > 0, B, xp.zeros_like(B))
            # on the host, the array API has no scatter
            values = space.get(B).reshape(columns.size, -1)
            sums = [np.bincount(columns.reshape(-1), weights=v, minlength=p) for v in values.T]
            coef, count = put(np.stack(sums, axis=1)), int(good.sum())
            found.append(MemberSum(coef, count * moments.mean_y - moments.mean_x @ coef, count * moments.mean_y))
            distrusted.append(here[~good])
        if not size:
            distrusted.append(same)
    return found, np.concatenate(distrusted)


def _trusted_solve(G: Any, C: Any, space: arrays.Space) -> tuple[Any, NDArray[np.bool_]]:
    """Solutions (b, m, q) of stacked systems (b, m, m), (b, m, q) by Cholesky, and which of them to trust.

    A further right-hand side of noise is one step of inverse iteration on the matrices scaled to unit diagonal; it
    gives the smallest eigenvalue.
    """
    xp = space.xp
    length = xp.sqrt(xp.linalg.diagonal(G))
    scale = space.ratio(xp.ones_like(length), length)
    dead = space.cast(length == 0)[:, :, None] * xp.eye(G.shape[1], dtype=space.dtype, device=space.device)[None, :, :]
    A = G * scale[:, :, None] * scale[:, None, :] + dead
    noise = space.put(np.random.default_rng(0).standard_normal((1, G.shape[1], 1)))
    B = xp.concat([C * scale[:, :, None], xp.broadcast_to(noise, (G.shape[0], G.shape[1], 1))], axis=2)
    Z = _cholesky_solve(A, B, space)
    w = Z[:, :, -1]
    smallest = space.get(xp.sum(w * noise[:, :, 0], axis=1) / xp.sum(w * w, axis=1))
    return Z[:, :, :-1] * scale[:, :, None], np.asarray(smallest >= 1 / LIMIT)  # nan compares false


def _cholesky_solve(A: Any, B: Any, space: arrays.Space) -> Any:
    """Stacked solutions, nan where a matrix is not definite."""
    xp = space.xp
    if space.name == "torch":
        L, info = xp.linalg.cholesky_ex(A)
        L[info > 0] = float("nan")
        return xp.cholesky_solve(B, L)
    L = space.cholesky(A)
    if L is None and A.shape[0] == 1:
        return B * float("nan")
    if L is None:
        return xp.concat([_cholesky_solve(A[i : i + 1, ...], B[i : i + 1, ...], space) for i in range(A.shape[0])])
    return xp.linalg.solve(xp.matrix_transpose(L), xp.linalg.solve(L, B))


def _from_host(
    problem: Problem, features: AnySubsets, samples: AnySubsets | None, members: Indices, solver: str, sharing: Threads
) -> MemberSum:
    """Members solved on the host, which gets the columns they use."""
    space, k = problem.space, len(members)
    lists = [np.asarray(features[i]) for i in members]
    columns = np.unique(np.concatenate(lists))
    given = space.xp.take(problem.X, space.put(columns), axis=1), problem.Y, problem.weight
    X, Y, weight = (None if a is None else np.asarray(space.get(a), dtype=np.float64) for a in given)
    host = Problem(X, np.asarray(Y), weight, problem.fit_intercept, problem.rcond)
    own = Subsets.from_lists([np.searchsorted(columns, one) for one in lists], len(columns))
    rows = None if samples is None else Subsets.from_lists([np.asarray(samples[i]) for i in members], len(host.Y))
    solution = solve(host, own, rows, solver=solver, sharing=sharing)
    coef = np.zeros((problem.shape[1], host.Y.shape[1]))
    coef[columns] = member_sum(own, solution.values)
    mean_y, put = k * mean_target(host, rows, np.full(k, 1 / k)), space.put
    return MemberSum(put(coef), put(solution.intercepts.sum(axis=0)), put(mean_y), int(solution.refitted.sum()))
