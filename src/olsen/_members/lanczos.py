r"""Ridge systems with several penalties from one Krylov space.

Lanczos' iteration finds orthonormal vectors V and a tridiagonal T with :math:`V'MV = T`, from
products of a symmetric M with single vectors. Shifts of M leave V unchanged, so the solutions of
:math:`(M + \lambda) x = b` are :math:`x = V (T + \lambda)^{-1} e_1 |b|` for all penalties
:math:`\lambda` together. The residual has the length of the last entry of :math:`(T +
\lambda)^{-1} e_1 |b|` times the next off-diagonal entry of T (status: exact), and tells when to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESIDUAL_TOL = 1e-11  # length of the residual, as a fraction of the right-hand side


@dataclass(frozen=True)
class Krylov:
    """Orthonormal vectors V, and the tridiagonal matrix V'MV."""

    V: Array  # (steps, k)
    diagonal: Array  # (steps,)
    off_diagonal: Array  # (steps,), the last entry leads out of the space
    length: float  # of the right-hand side

    @classmethod
    def of(
        cls,
        multiply: Callable[[Array], Array],
        right: Array,
        smallest_shift: float,
        max_steps: int,
        tol: float = RESIDUAL_TOL,
    ) -> Krylov:
        """Iterate until the system with the smallest penalty is solved up to a residual of `tol`, or
        `max_steps` are done.
        """
        length = float(np.linalg.norm(right))
        max_steps = min(max_steps, len(right))
        V = np.zeros((min(max_steps, 32), len(right)))
        diagonal = np.zeros(max_steps)
        off_diagonal = np.zeros(max_steps)
        direction = right / length
        for step in range(max_steps):
            if step == len(V):
                V = np.concatenate([V, np.zeros((min(step, max_steps - step), len(right)))])
            V[step] = direction
            image = multiply(direction)
            diagonal[step] = image @ direction
            for _ in range(2):  # once leaves rounding errors, which grow
                image = image - V[: step + 1].T @ (V[: step + 1] @ image)
            off_diagonal[step] = np.linalg.norm(image)
            steps = step + 1
            space = cls(V[:steps], diagonal[:steps], off_diagonal[:steps], length)
            if off_diagonal[step] <= 1e-14 * diagonal[: step + 1].max():  # it is rounding
                break
            if steps % 8 == 0 and space.residual(smallest_shift) <= tol:
                break
            direction = image / off_diagonal[step]
        return space

    def residual(self, shift: float) -> float:
        """Length of the residual of one penalty, as a fraction of the right-hand side."""
        bands = np.stack([self.diagonal + shift, self.off_diagonal])
        first = np.zeros(len(self.V))
        first[0] = 1.0
        last = la.solveh_banded(bands, first, lower=True, check_finite=False)[-1]
        return float(self.off_diagonal[-1] * abs(last))

    def solutions(self, shifts: Array) -> Array:
        """Solutions (penalties, k)."""
        return self.times_functions(lambda values: 1 / (values + shifts[:, None]))

    def times_functions(self, functions: Callable[[Array], Array]) -> Array:
        """Products f(M) b with functions of M, (count, k), by their values (count, steps) at the
        eigenvalues of T.
        """
        values, E = self.decomposition
        along = E[0] * self.length * functions(np.maximum(values, 0.0))
        return np.asarray(along @ E.T @ self.V)

    @property
    def decomposition(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of T."""
        values, E = la.eigh_tridiagonal(self.diagonal, self.off_diagonal[:-1], check_finite=False)
        return values, E


def solve_together(
    multiply: Callable[[Array], Array], right: Array, shifts: Array, max_steps: int
) -> tuple[Array, NDArray[np.bool_]]:
    """Solutions (penalties, q, k) of q systems with matrices of their own, and which are accurate.

    The q Krylov spaces grow together: ``multiply(vectors)`` multiplies every row (q, k) with the
    matrix of its system, in one product for all. `right` is (q, k), `shifts` (penalties, q). Vectors
    are not orthogonalised again, as in conjugate gradients, of which these are the iterates: rounding
    delays convergence, and the residuals of the recurrence tell.
    """
    q, k = right.shape
    max_steps = min(max_steps, 2 * k)
    lengths = np.linalg.norm(right, axis=1)
    scale = np.where(lengths > 0, lengths, 1.0)
    smallest = shifts.min(axis=0)
    V = np.empty((max_steps, q, k))
    V[0] = right / scale[:, None]
    diagonal = np.zeros((max_steps, q))
    off_diagonal = np.zeros((max_steps, q))
    pivot = np.ones(q)  # of T + smallest shift, and the right-hand side that elimination leaves
    remainder = np.ones(q)
    accurate = lengths == 0
    for step in range(max_steps):
        image = multiply(V[step])
        diagonal[step] = np.einsum("tk,tk->t", image, V[step])
        image -= diagonal[step][:, None] * V[step]
        last = np.zeros(q)
        if step:
            last = off_diagonal[step - 1]
            image -= last[:, None] * V[step - 1]
            remainder *= -last / pivot
        pivot = diagonal[step] + smallest - last**2 / pivot
        length = np.sqrt(np.einsum("tk,tk->t", image, image))
        length[length <= 1e-14 * np.abs(diagonal[step])] = 0.0  # it is rounding
        off_diagonal[step] = length
        accurate |= length * np.abs(remainder / pivot) <= RESIDUAL_TOL
        if accurate.all() or step + 1 == max_steps:
            break
        V[step + 1] = image / np.where(length > 0, length, np.inf)[:, None]
    steps = step + 1
    along = _tridiagonal_solutions(diagonal[:steps], off_diagonal[:steps], shifts)
    # (q, penalties, steps) times (q, steps, k)
    x = (along * lengths[:, None]).transpose(1, 0, 2) @ V[:steps].transpose(1, 0, 2)
    return x.transpose(1, 0, 2), accurate


def _tridiagonal_solutions(diagonal: Array, off_diagonal: Array, shifts: Array) -> Array:
    """Solutions (penalties, q, steps) of (T + penalty) y = e_1 for q tridiagonal T, of which
    diagonals (steps, q) are given.
    """
    steps = len(diagonal)
    pivots = np.empty((steps, *shifts.shape))
    y = np.empty((steps, *shifts.shape))
    pivots[0] = diagonal[0] + shifts
    y[0] = 1.0
    for i in range(1, steps):
        factor = off_diagonal[i - 1] / pivots[i - 1]
        pivots[i] = diagonal[i] + shifts - factor * off_diagonal[i - 1]
        y[i] = -factor * y[i - 1]
    y[-1] /= pivots[-1]
    for i in range(steps - 2, -1, -1):
        y[i] = (y[i] - off_diagonal[i] * y[i + 1]) / pivots[i]
    return y.transpose(1, 2, 0)
