r"""Members on a Gram matrix in single precision, corrected with residuals in double precision.

.. math:: d = \tilde G^{-1} r , \qquad x \leftarrow x + d , \qquad r \leftarrow b - X'(X x)

:math:`\tilde G` is X'X in float32: half the memory, and both making it and every step on it take about half the time.
Its rounding does not reach the result, because residuals are taken from the data in float64; it only limits how much
one round gains, a factor of about the condition number times 6e-8. Two rounds give ten digits on well-conditioned data,
and the error is that of least squares on X, not of a Gram matrix in double precision.

Mathematically this is iterative refinement; members for which it does not pay are left to the direct solvers.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._moments import centred_rows, mirror_lower
from .._trust import constant_columns
from .cg import DONE, SLOW, Outcome, iterate
from .cg_operators import Batch, Rows, Submatrices, UnitGram, far_from_zero, inverse_root

__all__ = ["prepare", "solve"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

INNER_TOL = 1e-5  # relative error of one round
LIMIT = 1e4  # largest trusted inverse eigenvalue: a round must gain digits
SLICE = 128  # rows that are centred, squared and rounded while they are in a cache


def prepare(rows: Rows, sharing: Sharing) -> UnitGram:
    """Products of the rows: X'X in float32, X'y in float64; one pass after their means."""
    problem = rows.problem
    X, Y, weight, (n, p), (mean_x, mean_y) = problem.X, problem.Y, problem.weight, problem.shape, problem.means
    some = X[:: max(1, n // 500)] - mean_x
    unit = np.sqrt(np.mean(some * some, axis=0))  # float32 has a narrow range
    unit[unit == 0] = 1.0
    G, C = np.zeros((p, p), dtype=np.float32, order="F"), np.zeros((p, Y.shape[1]))
    step = min(n, max(SLICE, 2**27 // (4 * p)))
    single = np.empty((step, p), dtype=np.float32)
    for first in range(0, n, step):
        last = min(first + step, n)

        def work(start: int, stop: int, first: int = first, last: int = last) -> list[Array]:
            found, buffer = [], np.empty((SLICE, p))
            for begin in range(first + start * SLICE, min(first + stop * SLICE, last), SLICE):
                here = slice(begin, min(begin + SLICE, last))
                w, out = None if weight is None else weight[here], buffer[: here.stop - begin]
                x, y = centred_rows(X[here], Y[here], w, mean_x, mean_y, out)
                found.append(x.T @ y)
                np.divide(x, unit, out=single[begin - first : here.stop - first], casting="same_kind")
            return found

        C += sum(chain.from_iterable(sharing.quiet()(work, -(-(last - first) // SLICE))))
        G = la.blas.ssyrk(1.0, single[: last - first].T, beta=1.0, c=G, lower=1, overwrite_c=1)
    squares = np.diagonal(G) * unit**2
    squares[constant_columns(squares, mean_x, problem.total_weight)] = 0.0
    scale = inverse_root(squares, np)[:, None]
    G, away = mirror_lower(G).T, (scale * unit[:, None]).astype(np.float32)
    G *= away
    G *= away.T
    far = (squares > 0) & far_from_zero(squares, mean_x, problem.total_weight)
    return UnitGram(G, scale * C, scale, mean_x, mean_y, problem.space, far)


def solve(rows: Rows, gram: UnitGram, batch: Batch, outcome: Outcome, tol: float, **how: Any) -> Array:
    """Solutions of the targets of a batch, in the units of `gram`; `how` goes to the iteration."""
    weight, target = rows.problem.weight, np.flatnonzero(~batch.probe)
    X = _round(batch.operator, batch.B, batch.member, batch.probe, outcome, INNER_TOL, how)[:, target]
    single, B, member = batch.operator.take(target, np), batch.B[:, target], batch.member[target]
    exact = Submatrices(rows, gram.scale * single.mask, None if weight is None else np.sqrt(weight)[:, None])
    for _ in range(6):
        R = B - exact(X)
        active = _judge(outcome, R, X, member, tol)
        if not active.any():
            break
        here = np.flatnonzero(active[member])
        numbers, local = np.unique(member[here], return_inverse=True)
        again = Outcome.waiting(len(numbers))
        again.smallest[:] = outcome.smallest[numbers]
        needed = max(INNER_TOL, 0.2 * tol / outcome.error[active].max())  # the last round need not go all the way
        X[:, here] += _round(single.take(here, np), R[:, here], local, np.zeros(len(here), bool), again, needed, how)
        outcome.steps += again.steps
        # what the round left, and what rounding of the float32 matrix, about 1e-6, may hide from it
        outcome.error[numbers] *= again.error + 1e-6 / outcome.smallest[numbers]
        if np.all(again.state == DONE) and np.all(outcome.error[numbers] <= tol):
            break
    else:
        outcome.state[active] = SLOW
    return X


def _round(
    operator: Any,
    R: Array,
    member: Indices,
    probe: NDArray[np.bool_],
    outcome: Outcome,
    tol: float,
    how: dict[str, Any],
) -> Array:
    """Approximate solutions for the residuals R, each scaled to length one for float32."""
    length = np.linalg.norm(R, axis=0)
    length[length == 0] = 1.0
    scaled = (R / length).astype(np.float32)
    solved: Array = iterate(operator, scaled, member, probe, outcome, tol=tol, limit=LIMIT, **how) * length
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
