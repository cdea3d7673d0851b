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
also works (Cauchy's interlacing), so probes of the Gram matrix of all columns can serve all
members. Where the estimate falls below the trusted limit the system is left to a direct solver.

Only three numbers a column are transferred to the host, every few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space

Array = NDArray[np.float64]
Operator = Callable[[Any], Any]  # applied to an array with one column for each system

STEPS_BETWEEN_CHECKS = 8  # a device waits during a check


class Systems:
    """Iterates of all systems, which start at zero."""

    def __init__(self, operator: Operator, B: Any, space: Space) -> None:
        self.operator = operator
        self.space = space
        self.B = B
        self.X = space.xp.zeros_like(B)
        self.residual = space.xp.asarray(B, copy=True)
        self.direction = space.xp.asarray(B, copy=True)
        self.squared_residual = space.column_squares(B)
        self.squared_B = np.asarray(space.get(self.squared_residual), dtype=np.float64)

    @np.errstate(over="ignore", invalid="ignore")  # a column that overflows is not trusted
    def advance(self) -> None:
        """Do a few steps of conjugate gradients; columns that are solved stand still."""
        space = self.space
        for _ in range(STEPS_BETWEEN_CHECKS):
            product = self.operator(self.direction)
            curvature = space.xp.sum(self.direction * product, axis=0)
            length = space.ratio(self.squared_residual, curvature)
            space.add_product(self.X, length, self.direction)
            space.add_product(self.residual, length, product, sign=-1.0)
            squared_residual = space.column_squares(self.residual)
            growth = space.ratio(squared_residual, self.squared_residual)
            space.scale_and_add(self.direction, growth, self.residual)
            self.squared_residual = squared_residual

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def check(self) -> Progress:
        """Measure the progress of every column, in one transfer."""
        xp = self.space.xp
        squared_X = self.space.column_squares(self.X)
        projection = xp.sum(self.X * self.B, axis=0)
        device_numbers = xp.stack([self.squared_residual, squared_X, projection])
        rr, xx, xb = np.asarray(self.space.get(device_numbers), dtype=np.float64)
        return Progress(
            rayleigh=np.divide(xb, xx, out=np.ones_like(xx), where=xx != 0),
            missing=np.sqrt(np.where(self.squared_B > 0, rr / self.squared_B, 0.0)),
            relative_residual=np.where(self.squared_B > 0, np.sqrt(rr / xx), 0.0),
        )


@dataclass(frozen=True)
class Progress:
    """Progress of every column, (columns,)."""

    rayleigh: Array  # Rayleigh quotient of the solution: at least the smallest eigenvalue
    missing: Array  # length of the residual relative to the right-hand side
    relative_residual: Array  # length of the residual relative to the solution

    @property
    def distrusted(self) -> NDArray[np.bool_]:
        """Columns whose matrix is shown to be nearly singular, or whose numbers overflowed."""
        # the diagonal is one; the direct solver on a Gram matrix distrusts smaller eigenvalues too
        return ~(self.rayleigh >= 1e-5)


@dataclass
class Outcome:
    """Outcome of every member, (k,)."""

    smallest: Array  # estimates of the smallest eigenvalue, nan where none was made
    untrusted: NDArray[np.bool_]  # members that are left to a direct solver
    error: Array  # bound of the relative error reached
    tol: float
    steps: int = 0

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Members whose solution is usable."""
        return (self.error <= self.tol) & ~self.untrusted

    @property
    def slow(self) -> NDArray[np.bool_]:
        """Members that have not converged although their matrix is trusted."""
        return ~(self.error <= self.tol) & ~self.untrusted


def iterate(
    operator: Operator, B: Any, outcome: Outcome, *, n_targets: int, max_steps: int, space: Space
) -> Any:
    """Solutions of all columns of B, in their order; `outcome`, which is updated, says which ones
    are usable.

    The columns of B are the first right-hand sides of all k members, the second ones, and so on to
    `n_targets`; after them come random ones, the probes of all members, unless `outcome` has
    estimates of the smallest eigenvalues already.
    """
    k = len(outcome.error)
    systems = Systems(operator, B, space)
    while outcome.slow.any() and outcome.steps < max_steps:
        systems.advance()
        outcome.steps += STEPS_BETWEEN_CHECKS
        progress = systems.check()
        rayleigh = progress.rayleigh.reshape(-1, k)
        if len(rayleigh) > n_targets:
            # A direction of the noise is 1 / sqrt(size) of it on average; a direction shorter than
            # the threshold could be missed, which happens once in 1250 times.
            settled = progress.missing.reshape(-1, k)[-1] <= 1e-3 / np.sqrt(B.shape[0])
            outcome.smallest = np.where(settled, rayleigh[-1], outcome.smallest)
        outcome.untrusted |= progress.distrusted.reshape(-1, k).any(axis=0)
        residual = progress.relative_residual.reshape(-1, k)[:n_targets].max(axis=0)
        error = residual / outcome.smallest
        outcome.error = np.where(np.isnan(error), np.inf, error)
    return systems.X


def smallest_eigenvalue(operator: Operator, B: Any, *, max_steps: int, space: Space) -> float:
    """Smallest eigenvalue of one matrix from two probes, the columns of B; nan if it is not trusted
    or not found.

    Two probes that both leave 3e-2 of an average direction of the noise miss a direction once in
    1750 times.
    """
    probes = Systems(operator, B, space)
    for _ in range(0, max_steps, STEPS_BETWEEN_CHECKS):
        probes.advance()
        progress = probes.check()
        if progress.distrusted.any():
            break
        if np.all(progress.missing <= 3e-2 / np.sqrt(B.shape[0])):
            return float(progress.rayleigh.min())
    return np.nan
