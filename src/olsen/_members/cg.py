r"""Conjugate gradients for many systems at once, one column each.

.. math:: A_i x_i = b_i , \quad i = 1, \dots, c , \qquad \text{one step: } (P_1, \dots, P_c) \mapsto (A_1 P_1, \dots)

The stopping rule bounds the error, not the residual: :math:`\|x - \hat x\| \le \|r\| / \lambda_{\min}`, so a column is
done when :math:`\|r\| \le tol \cdot \lambda \, \|x\|` with an estimate of the smallest eigenvalue. A residual alone
cannot show that a direction is missing: where the smallest eigenvalue is 1e-10 the right-hand side hardly has that
direction, and the iteration would stop early with a coefficient that is wrong in its first digit.

The estimate comes from *probes*, columns with random right-hand sides z: their solution w is one step of inverse
iteration, and :math:`w'Aw / w'w = w'z / w'w` bounds the smallest eigenvalue from above at every step and settles
early. A probe of a matrix that holds A as a principal submatrix will do (Cauchy's interlacing), so one probe of the
whole Gram matrix can serve all members. Where the estimate falls below the trusted limit the system is left to a
direct solver.

Nothing is brought to the host but three numbers a column, every few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import HOST, Space

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
TooSlow = Callable[[Indices, float, int], bool]  # (members left, steps they are expected to need, steps done)

ALL = -1  # the member that stands for all of them: a probe of the whole matrix
LIMIT = 1e5  # largest trusted inverse eigenvalue of a matrix with unit diagonal, as for the direct solver on a Gram
# waiting; converged; not to be trusted on the normal equations; not converged; dearer than a direct solver; in need of
# a probe of its own
WAITING, DONE, UNTRUSTED, SLOW, DEARER, UNPROBED = range(6)


@dataclass
class Outcome:
    """What became of every member: state, steps taken, bound of the relative error reached."""

    state: NDArray[np.int8]
    error: NDArray[np.float64]
    smallest: NDArray[np.float64]  # estimates of the smallest eigenvalue, nan where none was made
    steps: int = 0

    @classmethod
    def waiting(cls, k: int) -> Outcome:
        """Nothing known of any member."""
        return cls(np.full(k, WAITING, dtype=np.int8), np.full(k, np.inf), np.full(k, np.nan))


@dataclass
class _Systems:
    """Columns still in the iteration: arrays on the device, their owners on the host."""

    operator: Any
    B: Any
    X: Any
    R: Any
    P: Any
    rr: Any  # squared residuals, (columns,)
    column: NDArray[np.int64]  # number of the column at the start
    owner: NDArray[np.int64]  # its member
    probe: NDArray[np.bool_]
    bb: NDArray[np.float64]  # squared right-hand sides, on the host

    def step(self, space: Space) -> None:
        """One step of conjugate gradients in every column; columns that are solved stand still."""
        Q = self.operator(self.P)
        alpha = space.ratio(self.rr, space.xp.sum(self.P * Q, axis=0))
        space.add_product(self.X, alpha, self.P)
        space.add_product(self.R, alpha, Q, sign=-1.0)
        new = space.column_squares(self.R)
        space.scale_and_add(self.P, space.ratio(new, self.rr), self.R)
        self.rr = new

    def look(self, space: Space) -> NDArray[np.float64]:
        """Squared residual, squared solution and x'b of every column, in one transfer."""
        looks = [self.rr, space.column_squares(self.X), space.xp.sum(self.X * self.B, axis=0)]
        return np.asarray(space.get(space.xp.stack(looks)), dtype=np.float64)

    def take(self, keep: Indices, space: Space) -> _Systems:
        """Without the other columns."""
        here = space.put(keep)
        B, X, R, P = (space.xp.take(a, here, axis=1) for a in (self.B, self.X, self.R, self.P))
        rr, operator = space.xp.take(self.rr, here, axis=0), self.operator.take(here, space.xp)
        return _Systems(operator, B, X, R, P, rr, self.column[keep], self.owner[keep], self.probe[keep], self.bb[keep])


def iterate(
    operator: Any,
    B: Any,
    member: Indices,
    probe: Flags,
    outcome: Outcome,
    *,
    tol: float,
    max_steps: int,
    space: Space = HOST,
    limit: float = LIMIT,
    too_slow: TooSlow,
) -> Any:
    """Solutions of all columns of B, in their order; `outcome` says which are to be used.

    Parameters
    ----------
    operator : callable
        Applied to an array with one column for each system; has ``take(columns, xp)``.
    B : array of shape (rows, columns)
        Right-hand sides; random ones for probes, which stand last.
    member : ndarray of shape (columns,)
        The member each column belongs to; ``ALL`` for a probe that serves all members.
    probe : ndarray of shape (columns,)
        Which columns are probes.
    outcome : Outcome
        Filled in. Members need an estimate of the smallest eigenvalue: from a probe, or there already.
    tol : float
        Relative error asked for.
    max_steps : int
        Steps after which the members that are left count as slow.
    space : Space, default=HOST
        Where B lives.
    limit : float, default=1e5
        Largest trusted inverse of the smallest eigenvalue.
    too_slow : callable
        Given the members left, the steps they are expected to need and the steps done, says whether to give them up.
    """
    start, every = space.xp.zeros_like(B), 8 if space.parallel else 4  # steps between looks: a device waits meanwhile
    bb = space.column_squares(B)
    live = _Systems(operator, B, start, B + start, B + start, bb, np.arange(len(member)), member, probe, space.get(bb))
    finished: list[tuple[Indices, Any]] = []
    while len(live.column) and outcome.steps < max_steps:
        for _ in range(every):
            live.step(space)
        outcome.steps += every
        left = _judge(live, live.look(space), outcome, tol, limit)
        waiting = outcome.state == WAITING
        if waiting.any() and too_slow(np.flatnonzero(waiting), _expected_steps(outcome, waiting, tol), outcome.steps):
            outcome.state[waiting] = DEARER
            waiting[:] = False
        left &= np.where(live.owner == ALL, waiting.any(), waiting[live.owner])
        if not left.any():
            break
        if left.sum() <= 0.75 * len(left):  # columns that are done cost a product each, moving the others costs too
            done = np.flatnonzero(~left)
            finished.append((live.column[done], space.xp.take(live.X, space.put(done), axis=1)))
            live = live.take(np.flatnonzero(left), space)
    outcome.state[outcome.state == WAITING] = SLOW
    if not finished:  # all together, so in their order
        return live.X
    finished.append((live.column, live.X))
    order = np.argsort(np.concatenate([numbers for numbers, _ in finished]))
    return space.xp.take(space.xp.concat([part for _, part in finished], axis=1), space.put(order), axis=1)


def _judge(live: _Systems, looks: Array, outcome: Outcome, tol: float, limit: float) -> Flags:
    """Update the outcome of all members; which columns have something left to do.

    A probe has settled when its solution has resolved every direction. A direction of the noise is 1 / sqrt(size) of it
    on average; one that is shorter than the threshold could be missed. With 1e-3 that happens once in 1250 times; two
    probes of the whole matrix, both at 3e-2, miss it once in 1750.
    """
    (rr, xx, xb), owner, size = looks, live.owner, live.B.shape[0]
    whole = owner == ALL
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Rayleigh quotient of the iterate: at least the smallest eigenvalue
        ritz = np.divide(xb, xx, out=np.ones_like(xx), where=xx != 0)
        relative = np.sqrt(np.where(live.bb > 0, rr / live.bb, 0.0) * size)
        settled = live.probe & np.where(whole, np.all(relative[whole] <= 3e-2), relative <= 1e-3)
        own = np.flatnonzero(settled & ~whole)
        outcome.smallest[owner[own]] = ritz[own]
        if np.any(settled & whole):
            outcome.smallest[:] = ritz[whole].min()
        distrusted = ~(ritz >= 1 / limit)
        outcome.state[owner[distrusted & ~whole]] = UNTRUSTED
        waiting = outcome.state == WAITING
        here = np.flatnonzero(~live.probe & waiting[owner])
        error = np.where(live.bb[here] > 0, np.sqrt(rr[here] / xx[here]), 0.0) / outcome.smallest[owner[here]]
    outcome.error[waiting] = 0.0
    np.maximum.at(outcome.error, owner[here], np.where(np.isnan(error), np.inf, error))  # the largest over its targets
    if np.any(distrusted & whole):  # the whole is nearly singular: members may not be
        outcome.state[waiting] = UNPROBED
    outcome.state[(outcome.error <= tol) & (outcome.state == WAITING)] = DONE
    return ~settled


def _expected_steps(outcome: Outcome, waiting: Flags, tol: float) -> float:
    """Steps still to come for the slowest member if the error goes on falling as it did; early steps fall least."""
    error = np.max(outcome.error[waiting])
    if not np.isfinite(error):
        return np.inf
    per_step = min(np.log(error) / outcome.steps, 0.0)  # the error is about 1 before the first step
    return np.inf if per_step == 0.0 else (np.log(tol) - np.log(error)) / per_step
