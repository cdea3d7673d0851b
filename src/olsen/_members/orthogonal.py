r"""Least squares from the data by orthogonal factorisation: QR, then SVD when columns are dependent.

.. math:: \min_b \|A b - B\|_2 , \qquad A P = Q R , \qquad b = P R^{-1} Q' B

The error grows with the condition number of A, not with its square as on the Gram matrix. Columns are brought to unit
length first, so the rank decision and the accuracy do not depend on the users' units. Where the columns are dependent
to working precision, the answer is the solution of minimum norm *in the users' units*, as from ``numpy.linalg.lstsq``.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Sharing
from ..subsets import Subsets
from .problem import Problem, Solution

__all__ = ["basis_and_inverse", "least_squares", "solve"]

Array = NDArray[np.float64]

NAME = "orthogonal"


def solve(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Sharing) -> Solution:
    """Solve every member from its own submatrix."""

    def solve_one(i: int) -> tuple[Array, Array, bool]:
        part = problem.submatrix(features[i], None if samples is None else samples[i])
        coef = least_squares(part.A, part.B, part.cutoff(problem.rcond))
        return coef, part.intercept(coef), False

    return Solution.member_by_member(solve_one, features.sizes, problem.Y.shape[1], NAME, mapper)


def least_squares(A: Array, B: Array, rcond: float | None = None) -> Array:
    """Minimum-norm least-squares solution, (m, q), of A (rows, m) and B (rows, q).

    `rcond` cuts singular values of the column-scaled A relative to the largest; None means eps * max(shape).
    """
    alive = A.any(axis=0)
    if min(A.shape) == 0 or not alive.all():
        out = np.zeros((A.shape[1], B.shape[1]))
        if alive.any():  # a column of zeros is no direction: kept, it would mix with the null space of the others
            out[alive] = least_squares(A[:, alive], B, _cutoff(A, rcond))
        return out
    A, scale, rcond = _scaled(A, rcond)
    if A.shape[0] >= A.shape[1]:
        QB, R, order = la.qr_multiply(A, B.T, mode="right", pivoting=True)  # B'Q without forming Q
        if _full_rank(R, rcond):
            coef = np.empty((A.shape[1], B.shape[1]))
            coef[order] = la.solve_triangular(R, QB.T)
            return coef / scale[:, None]
    U, s, Vt, rank = _svd(A, rcond)
    z = Vt[:rank].T @ ((U[:, :rank].T @ B) / s[:rank, None])
    return _shortest(z, Vt[rank:], scale)


def basis_and_inverse(A: Array, rcond: float | None = None, most: int | None = None) -> tuple[Array, Array]:
    """Orthonormal basis of the columns of A, (rows, rank), and the pseudo-inverse of A, (m, rows).

    `most` is the largest rank there can be: rows that were centred have one less than they are, whatever rounding says.
    """
    alive = A.any(axis=0)
    if min(A.shape) == 0 or not alive.all():
        basis, inverse = np.zeros((len(A), 0)), np.zeros(A.shape[::-1])
        if alive.any():
            basis, inverse[alive] = basis_and_inverse(A[:, alive], _cutoff(A, rcond), most)
        return basis, inverse
    A, scale, rcond = _scaled(A, rcond)
    if A.shape[0] >= A.shape[1]:
        Q, R, order = la.qr(A, mode="economic", pivoting=True)
        if _full_rank(R, rcond) and A.shape[1] <= (len(A) if most is None else most):
            inverse = np.empty(A.shape[::-1])
            inverse[order] = la.solve_triangular(R, Q.T)
            return Q, inverse / scale[:, None]
    U, s, Vt, rank = _svd(A, rcond)
    rank = rank if most is None else min(rank, most)
    z = Vt[:rank].T @ (U[:, :rank].T / s[:rank, None])
    return U[:, :rank], _shortest(z, Vt[rank:], scale)


def _scaled(A: Array, rcond: float | None) -> tuple[Array, Array, float]:
    """A with columns of unit length, the lengths, and the relative cut-off."""
    scale = np.linalg.norm(A, axis=0)
    scale[scale == 0] = 1.0  # entries whose squares underflow
    return A / scale, scale, _cutoff(A, rcond)


def _cutoff(A: Array, rcond: float | None) -> float:
    return float(np.finfo(np.float64).eps) * max(A.shape) if rcond is None else rcond


def _full_rank(R: Array, rcond: float) -> bool:
    pivots = np.abs(np.diagonal(R))
    return bool(pivots.min() > rcond * pivots.max())


def _svd(A: Array, rcond: float) -> tuple[Array, Array, Array, int]:
    U, s, Vt = la.svd(A, full_matrices=A.shape[0] < A.shape[1])  # all of V: the null space is needed
    return U, s, Vt, int(np.count_nonzero(s > rcond * s[0])) if s[0] > 0 else 0


def _shortest(z: Array, null_rows: Array, scale: Array) -> Array:
    """Minimum norm of b, where z = scale * b solves the scaled problem and `null_rows` span its null space.

    All solutions are z + N t; in b they are D z + D N t, D = diag(1/scale), and the shortest is D z minus its
    projection on the range of D N. Cutting small singular values of the *unscaled* matrix instead would drop columns
    measured in small units.
    """
    coef = z / scale[:, None]
    if len(null_rows):
        null, _ = np.linalg.qr(null_rows.T / scale[:, None])
        coef -= null @ (null.T @ coef)
    return coef
