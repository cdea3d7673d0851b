r"""Members on a Gram matrix in single precision, corrected with residuals in double precision.

.. math:: d = \tilde G^{-1} r , \qquad x \leftarrow x + d , \qquad r \leftarrow b - X'(X x)

:math:`\tilde G` is X'X in float32: half the memory, and both making it and every step on it take about half the time.
Its rounding does not reach the result, because residuals are taken from the data in float64; it only limits how much
one round gains, a factor of about the condition number times 6e-8. Two rounds give ten digits on well-conditioned data,
and the error is that of least squares on X, not of a Gram matrix in double precision.

Mathematically this is iterative refinement; members for which it does not pay are left to the direct solvers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._moments import centred_rows, mirror_lower, weighted_mean
from .._trust import constant_columns
from .cg import DONE, SLOW, Outcome, iterate
from .cg_operators import Gram, shared_rows_batch
from .problem import Problem

__all__ = ["SingleMoments", "prepare", "solve_batch"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

INNER_TOL = 1e-5  # relative error of one round
LIMIT = 1e4  # largest trusted inverse eigenvalue: a round must gain digits
ROUNDS = 6
ROUNDING = 1e-6  # relative size of the rounding of a Gram matrix in float32, and of a step on it
SLICE = 128  # rows that are centred, squared and rounded while they are in a cache
_BLOCK_BYTES = 1 << 27


@dataclass(frozen=True)
class SingleMoments:
    """What the rounds start from: means, X'y and squares in float64, X'X in float32."""

    mean_x: NDArray[np.float64]
    mean_y: NDArray[np.float64]
    C: NDArray[np.float64]
    squares: NDArray[np.float64]
    G: NDArray[np.float32]  # of the columns over `unit`
    unit: NDArray[np.float64]


def prepare(problem: Problem, mapper: Sharing | None = None) -> SingleMoments:
    """One pass over the rows after their means; `mapper` shares it among threads."""
    (n, p), Y, weight = problem.shape, problem.Y, problem.weight
    mean_x, mean_y = np.zeros(p), np.zeros(Y.shape[1])
    if problem.fit_intercept:
        mean_x, mean_y = weighted_mean(problem.X, weight), weighted_mean(Y, weight)
    unit = _spread(problem, mean_x)
    G, C, squares = np.zeros((p, p), dtype=np.float32, order="F"), np.zeros((p, Y.shape[1])), np.zeros(p)
    step = min(n, max(SLICE, _BLOCK_BYTES // (4 * p)))
    single = np.empty((step, p), dtype=np.float32)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        part = replace(problem, X=problem.X[rows], Y=Y[rows], weight=None if weight is None else weight[rows])
        for c, square in _slices(part, mean_x, mean_y, unit, single, mapper):
            C += c
            squares += square
        G = la.blas.ssyrk(1.0, single[: rows.stop - start].T, beta=1.0, c=G, lower=1, overwrite_c=1)
    total = float(n) if weight is None else float(weight.sum())
    squares[constant_columns(squares, mean_x, total)] = 0.0
    return SingleMoments(mean_x, mean_y, C, squares, mirror_lower(G).T, unit)


def _spread(problem: Problem, mean_x: Array) -> Array:
    """About the root mean square of the centred columns, from some of the rows: float32 has a narrow range."""
    some = problem.X[:: max(1, problem.shape[0] // 500)] - mean_x
    square = np.mean(some * some, axis=0)
    return np.where(square > 0, np.sqrt(square), 1.0)


def _slices(
    part: Problem, mean_x: Array, mean_y: Array, unit: Array, single: NDArray[np.float32], mapper: Sharing | None
) -> Iterator[tuple[Array, Array]]:
    """X'y and squares of slices of rows, which go over `unit` and in float32 to `single`; small enough for a cache."""
    n, p = part.shape

    def work(start: int, stop: int) -> list[tuple[Array, Array]]:
        rows, found = slice(start * SLICE, min(stop * SLICE, n)), []
        buffer = np.empty((SLICE, p))
        for first in range(rows.start, rows.stop, SLICE):
            here = slice(first, min(first + SLICE, n))
            w = None if part.weight is None else part.weight[here]
            out = buffer[: here.stop - first]
            x, y = centred_rows(part.X[here], part.Y[here], w, mean_x, mean_y, out)
            found.append((x.T @ y, np.einsum("ij,ij->j", x, x)))
            np.divide(x, unit, out=single[here], casting="same_kind")
        return found

    count = -(-n // SLICE)
    parts = [work(0, count)] if mapper is None else mapper.quiet()(work, count)
    return chain.from_iterable(parts)


def _normal_product(problem: Problem, moments: SingleMoments, V: Array) -> Array:
    """X'(X V) about the means, in float64; the means come out of X where they are large, else out of the products."""
    mean_x, near = moments.mean_x, _near(moments, problem)
    out, sums = np.zeros_like(V), np.zeros(V.shape[1])
    step = max(1, _BLOCK_BYTES // (8 * problem.shape[1]))
    for start in range(0, problem.shape[0], step):
        rows = slice(start, start + step)
        x = np.asarray(problem.X[rows], dtype=np.float64) if near else problem.X[rows] - mean_x
        T = x @ V - mean_x @ V if near else x @ V
        if problem.weight is not None:
            T *= problem.weight[rows][:, None]
        out += x.T @ T
        sums += T.sum(axis=0)
    return out - np.outer(mean_x, sums) if near else out


def _near(moments: SingleMoments, problem: Problem) -> bool:
    """Whether the means are so small that taking them out of the products, not of X, costs at most three digits."""
    total = len(problem.Y) if problem.weight is None else problem.weight.sum()
    alive = moments.squares > 0
    return bool(np.all(moments.mean_x[alive] ** 2 * total <= 1e6 * moments.squares[alive]))


def solve_batch(
    problem: Problem,
    moments: SingleMoments,
    mask: NDArray[np.bool_],
    tol: float,
    outcome: Outcome,
    *,
    probing: str | None,
    **how: Any,
) -> tuple[Array, Array]:
    """Coefficients (p, q, k) and intercepts (q, k) of the members in `mask`, (p, k); `how` goes to the iteration."""
    batch = shared_rows_batch(problem, mask, moments.C, moments.squares, moments.mean_y, probing)
    W, target = batch.operator, ~batch.probe
    single = Gram(moments.G, (W * moments.unit[:, None]).astype(np.float32))
    B = batch.B
    found = _round(single, B, batch.member, batch.probe, outcome, INNER_TOL, how)[:, target]
    W, B, member = W[:, target], B[:, target], batch.member[target]
    X = found.astype(np.float64)
    single = Gram(moments.G, single.W[:, target])
    for _ in range(ROUNDS):
        R = B - W * _normal_product(problem, moments, W * X)
        active = _judge(outcome, R, X, member, tol)
        if not active.any():
            break
        here = np.flatnonzero(active[member])
        part = Gram(moments.G, single.W[:, here])
        numbers, local = np.unique(member[here], return_inverse=True)
        again = Outcome.waiting(len(numbers))
        again.smallest[:] = outcome.smallest[numbers]
        needed = max(INNER_TOL, 0.2 * tol / outcome.error[active].max())  # the last round need not go all the way
        X[:, here] += _round(part, R[:, here], local, np.zeros(len(here), dtype=bool), again, needed, how)
        outcome.steps += again.steps
        # what the round left, and what rounding of the float32 matrix may hide from it; another residual would confirm
        outcome.error[numbers] *= again.error + ROUNDING / outcome.smallest[numbers]
        if np.all(again.state == DONE) and np.all(outcome.error[numbers] <= tol):
            break
    else:
        outcome.state[active] = SLOW
    coef = (W * X).reshape(len(W), -1, mask.shape[1])
    intercept = moments.mean_y[:, None] - np.einsum("p,pqk->qk", moments.mean_x, coef)
    return coef, intercept


def _round(
    operator: Gram, R: Array, member: Indices, probe: Flags, outcome: Outcome, tol: float, how: dict[str, Any]
) -> Array:
    """Approximate solutions for the residuals R, each scaled to length one for float32."""
    length = np.linalg.norm(R, axis=0)
    length[length == 0] = 1.0
    scaled = (R / length).astype(np.float32)
    found = iterate(operator, scaled, member, probe, outcome, tol=tol, limit=LIMIT, **how)
    solved: Array = found * length
    return solved


def _judge(outcome: Outcome, R: Array, X: Array, member: Indices, tol: float) -> Flags:
    """Members whose first round went well and that are not accurate enough yet."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.linalg.norm(R, axis=0) / np.linalg.norm(X, axis=0)
    ratio[~(np.abs(X).max(axis=0, initial=0.0) > 0)] = 0.0
    error = np.zeros(len(outcome.state))
    np.maximum.at(error, member, ratio)
    error /= outcome.smallest
    going: Flags = outcome.state == DONE
    outcome.error[going] = error[going]
    return going & ~(error <= tol)
