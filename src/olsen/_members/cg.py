r"""Conjugate gradients for many systems at once, one column each.

.. math:: A_i x_i = b_i , \quad i = 1, \dots, c , \qquad \text{one step: } (P_1, \dots, P_c) \mapsto (A_1 P_1, \dots)

The stopping rule bounds the error, not the residual: :math:`\|x - \hat x\| \le \|r\| /
\lambda_{\min}`, so a column is done when :math:`\|r\| \le tol \cdot \lambda \, \|x\|` with an
estimate of the smallest eigenvalue. A residual alone cannot show that a direction is missing: where
the smallest eigenvalue is 1e-10 the right-hand side hardly has that direction, and the iteration
would stop early with a coefficient that is wrong in its first digit.

The estimate comes from *probes*, columns with random right-hand sides z: their solution w is one
step of inverse iteration, and :math:`w'Aw / w'w = w'z / w'w` bounds the smallest eigenvalue from
above at every step and settles early. A probe of a matrix that holds A as a principal submatrix
also works (Cauchy's interlacing), so one probe of the Gram matrix of all columns can serve all
members. Where the estimate falls below the trusted limit the system is left to a direct solver.

Only three numbers a column are transferred to the host, every few steps.
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
TooSlow = Callable[
    [Indices, float, int], bool
]  # (waiting members, expected further steps, steps done)

ALL = -1  # number of a member that stands for all members: a probe of the matrix of all columns
# largest trusted inverse eigenvalue of a matrix with unit diagonal, as for the direct solver on a
# Gram
LIMIT = 1e5

WAITING = 0
DONE = 1  # converged
UNTRUSTED = 2  # not trusted on the normal equations
SLOW = 3  # not converged
DEARER = 4  # more expensive than a direct solver
UNPROBED = 5  # in need of a separate probe


@dataclass
class Outcome:
    """Outcome of every member: state, bound of the relative error reached, and the number of steps."""

    state: NDArray[np.int8]
    error: NDArray[np.float64]
    smallest: NDArray[np.float64]  # estimates of the smallest eigenvalue, nan where none was made
    steps: int = 0

    @classmethod
    def waiting(cls, k: int) -> Outcome:
        """Outcome of members before the first step."""
        return cls(
            state=np.full(k, WAITING, dtype=np.int8),
            error=np.full(k, np.inf),
            smallest=np.full(k, np.nan),
        )


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
        """Do one step of conjugate gradients in every column; columns that are solved stand still."""
        Q = self.operator(self.P)
        alpha = space.ratio(self.rr, space.xp.sum(self.P * Q, axis=0))
        space.add_product(self.X, alpha, self.P)
        space.add_product(self.R, alpha, Q, sign=-1.0)
        rr = space.column_squares(self.R)
        space.scale_and_add(self.P, space.ratio(rr, self.rr), self.R)
        self.rr = rr

    def look(self, space: Space) -> NDArray[np.float64]:
        """Squared residual, squared solution and x'b of every column, in one transfer."""
        looks = [self.rr, space.column_squares(self.X), space.xp.sum(self.X * self.B, axis=0)]
        return np.asarray(space.get(space.xp.stack(looks)), dtype=np.float64)

    def take(self, columns: Indices, space: Space) -> _Systems:
        """Restrict the iteration to some columns."""
        device_columns = space.put(columns)
        B, X, R, P = (
            space.xp.take(a, device_columns, axis=1) for a in (self.B, self.X, self.R, self.P)
        )
        return _Systems(
            operator=self.operator.take(device_columns, space.xp),
            B=B,
            X=X,
            R=R,
            P=P,
            rr=space.xp.take(self.rr, device_columns, axis=0),
            column=self.column[columns],
            owner=self.owner[columns],
            probe=self.probe[columns],
            bb=self.bb[columns],
        )


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
    """Solutions of all columns of B, in their order; `outcome` says which solutions are usable.

    Parameters
    ----------
    operator : callable
        Applied to an array with one column for each system; has ``take(columns, xp)``.
    B : array of shape (rows, columns)
        Right-hand sides; random ones for probes, which stand last.
    member : ndarray of shape (columns,)
        The member each column belongs to; ``ALL`` for a probe that serves all members.
    probe : ndarray of shape (columns,)
        Whether a column is a probe.
    outcome : Outcome
        Updated. Members need an estimate of the smallest eigenvalue: from a probe, or from an
        earlier call.
    tol : float
        Largest relative error.
    max_steps : int
        Steps after which members that still wait count as slow.
    space : Space, default=HOST
        Where B lives.
    limit : float, default=1e5
        Largest trusted inverse of the smallest eigenvalue.
    too_slow : callable
        Called with the waiting members, the expected further steps and the steps done; True gives
        the members up.
    """
    steps_between_looks = 8 if space.parallel else 4  # a device waits during a look
    X = space.xp.zeros_like(B)
    bb = space.column_squares(B)
    live = _Systems(
        operator=operator,
        B=B,
        X=X,
        R=B + X,
        P=B + X,
        rr=bb,
        column=np.arange(len(member)),
        owner=member,
        probe=probe,
        bb=space.get(bb),
    )
    finished: list[tuple[Indices, Any]] = []
    while len(live.column) and outcome.steps < max_steps:
        for _ in range(steps_between_looks):
            live.step(space)
        outcome.steps += steps_between_looks
        active = _judge(live, live.look(space), outcome, tol=tol, limit=limit)
        waiting = outcome.state == WAITING
        if waiting.any() and too_slow(
            np.flatnonzero(waiting), _expected_steps(outcome, waiting, tol), outcome.steps
        ):
            outcome.state[waiting] = DEARER
            waiting[:] = False
        active &= np.where(live.owner == ALL, waiting.any(), waiting[live.owner])
        if not active.any():
            break
        if active.sum() <= 0.75 * len(
            active
        ):  # finished columns cost a product each, but moving the others costs too
            done = np.flatnonzero(~active)
            finished.append((live.column[done], space.xp.take(live.X, space.put(done), axis=1)))
            live = live.take(np.flatnonzero(active), space)
    outcome.state[outcome.state == WAITING] = SLOW
    if not finished:  # all columns stayed together, in their order
        return live.X
    finished.append((live.column, live.X))
    order = np.argsort(np.concatenate([numbers for numbers, _ in finished]))
    solutions = space.xp.concat([part for _, part in finished], axis=1)
    return space.xp.take(solutions, space.put(order), axis=1)


def _judge(live: _Systems, looks: Array, outcome: Outcome, *, tol: float, limit: float) -> Flags:
    """Update the outcome of all members, and return whether each column needs further steps.

    A probe has settled when its solution has resolved every direction. A direction of the noise is
    1 / sqrt(size) of it on average; a direction shorter than the threshold could be missed. With
    1e-3 that happens once in 1250 times; two probes of the matrix of all columns, both at 3e-2,
    miss it once in 1750.
    """
    rr, xx, xb = looks
    owner = live.owner
    size = live.B.shape[0]
    joint = owner == ALL
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Rayleigh quotient of the iterate: at least the smallest eigenvalue
        ritz = np.divide(xb, xx, out=np.ones_like(xx), where=xx != 0)
        relative = np.sqrt(np.where(live.bb > 0, rr / live.bb, 0.0) * size)
        settled = live.probe & np.where(joint, np.all(relative[joint] <= 3e-2), relative <= 1e-3)
        member_probes = np.flatnonzero(settled & ~joint)
        outcome.smallest[owner[member_probes]] = ritz[member_probes]
        if np.any(settled & joint):
            outcome.smallest[:] = ritz[joint].min()
        distrusted = ~(ritz >= 1 / limit)
        outcome.state[owner[distrusted & ~joint]] = UNTRUSTED
        waiting = outcome.state == WAITING
        columns = np.flatnonzero(~live.probe & waiting[owner])
        relative_residual = np.where(live.bb[columns] > 0, np.sqrt(rr[columns] / xx[columns]), 0.0)
        error = relative_residual / outcome.smallest[owner[columns]]
    outcome.error[waiting] = 0.0
    np.maximum.at(
        outcome.error, owner[columns], np.where(np.isnan(error), np.inf, error)
    )  # largest over the targets
    if np.any(
        distrusted & joint
    ):  # the matrix of all columns is nearly singular: members' matrices may not be
        outcome.state[waiting] = UNPROBED
    outcome.state[(outcome.error <= tol) & (outcome.state == WAITING)] = DONE
    return ~settled


def _expected_steps(outcome: Outcome, waiting: Flags, tol: float) -> float:
    """Steps the slowest member still needs if its error goes on falling at its average rate; early
    steps fall least.
    """
    error = np.max(outcome.error[waiting])
    if not np.isfinite(error):
        return np.inf
    per_step = min(np.log(error) / outcome.steps, 0.0)  # the error is about 1 before the first step
    return np.inf if per_step == 0.0 else (np.log(tol) - np.log(error)) / per_step
