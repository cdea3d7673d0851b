r"""Least squares from the data by orthogonal factorisation: QR, then SVD when columns are
dependent.

.. math:: \min_b \|A b - B\|_2 , \qquad A P = Q R , \qquad b = P R^{-1} Q' B

The error grows with the condition number of A, not with its square as on the Gram matrix. Columns
are scaled to unit length first, so the rank decision and the accuracy do not depend on the user's
units. Where the columns are dependent to working precision, the answer is the solution of minimum
norm *in the user's units*, as from ``numpy.linalg.lstsq``.

**Refinement.** Members of independent columns are refined against the raw data: means and residuals
in extended precision, corrections from the same factors (Björck's iteration on residual and
solution together),

.. math:: \begin{pmatrix} I & A \\ A' & 0 \end{pmatrix} \begin{pmatrix} d_r \\ d_b \end{pmatrix}
          = \begin{pmatrix} B - r - A b \\ -A' r \end{pmatrix}

which removes the rounding of the factorisation and of centring from the answer. Where
``numpy.longdouble`` is no wider than double it changes only the last bits.

**Fewer rows than columns.** The minimum-norm interpolator is :math:`b = A' (A A')^{-1} B`. With an
intercept the rows are centred, :math:`r' A = 0` for the vector r of root weights, so :math:`A A'`
is singular by construction. Adding
:math:`c\, r r'` makes it definite and changes nothing: r' B = 0 as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.rows import RowData, Submatrix
from .._execution.threads import Threads
from .._trust import Cutoff, nothing_but_rounding
from ..subsets import Subsets
from .cholesky import trusted_cholesky
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Extended = NDArray[Any]  # numpy.longdouble

# entries of a member; extended precision runs at a hundredth of the rate of BLAS
LARGEST_REFINED = 1_000_000


def solve(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    threads: Threads,
    *,
    refine: bool = True,
) -> Solution:
    """Solve every member from its submatrix.

    Refinement takes two to four times as long; members that other solvers hand over are not
    refined.
    """

    def solve_one(i: int) -> tuple[Array, Array, bool]:
        rows = None if samples is None else samples[i]
        part = problem.submatrix(features[i], rows)
        cutoff = problem.cutoff(part, features[i])
        if refine and part.A.size <= LARGEST_REFINED:
            extended = problem.submatrix(features[i], rows, np.longdouble)
            refined = _refined(part, extended, cutoff)
            if refined is not None:
                return (
                    refined.astype(np.float64),
                    extended.intercept(refined).astype(np.float64),
                    False,
                )
        coef = least_squares(part.A, part.B, cutoff)
        return coef, part.intercept(coef), False

    return Solution.member_by_member(
        solve_one, features.sizes, q=problem.Y.shape[1], name="orthogonal", threads=threads
    )


def solve_wide(
    problem: RowData, features: Subsets, samples: Subsets | None, threads: Threads
) -> Solution:
    """Solve members with fewer rows than columns: the minimum-norm interpolator of each."""

    def solve_one(i: int) -> tuple[Array, Array, bool]:
        part = problem.submatrix(features[i], None if samples is None else samples[i])
        coef = minimum_norm(part.A, part.B, part.root if problem.null_rank else None)
        refit = coef is None
        if coef is None:
            coef = least_squares(part.A, part.B, problem.cutoff(part, features[i]))
        return coef, part.intercept(coef), refit

    return Solution.member_by_member(
        solve_one, features.sizes, q=problem.Y.shape[1], name="interpolator", threads=threads
    )


def minimum_norm(A: Array, B: Array, null: Array | None = None) -> Array | None:
    """Shortest b with A b = B, or None when the rows are too close to dependent for their Gram
    matrix.

    `null` is the vector that centring made orthogonal to all columns of A and B.
    """
    if not len(A):
        return np.zeros((A.shape[1], B.shape[1]))
    K = A @ A.T
    if null is not None:
        K += (np.trace(K) / len(K)) * np.outer(null, null) / (null @ null)
    if nothing_but_rounding(np.diagonal(K), max(A.shape)):
        return None
    L = trusted_cholesky(K)
    if L is None:
        return None
    dual: Array = la.lapack.dpotrs(L, B, lower=True)[0]
    # The pivots do not bound the condition of K. One step of refinement gives back the digits that
    # squaring A has cost.
    dual += la.lapack.dpotrs(L, B - A @ (A.T @ dual), lower=True)[0]
    return A.T @ dual


def least_squares(A: Array, B: Array, cutoff: Cutoff) -> Array:
    """Minimum-norm least-squares solution, (m, q), of A (rows, m) and B (rows, q).

    `cutoff` says which directions of the column-scaled A are rounding.
    """
    alive, A, scale, cutoff = _unit_columns(A, cutoff)
    coef = np.zeros((len(alive), B.shape[1]))
    if 0 < A.shape[1] <= len(A):
        QB, R, order = la.qr_multiply(A, B.T, mode="right", pivoting=True)  # B'Q without forming Q
        if _full_rank(R, cutoff):
            coef[np.flatnonzero(alive)[order]] = la.solve_triangular(R, QB.T) / scale[order, None]
            return coef
    if A.shape[1]:
        U, s, V = _svd(A, cutoff)
        coef[alive] = _shortest(V, (U.T @ B) / s[:, None], scale)
    return coef


def _refined(part: Submatrix, extended: Submatrix, cutoff: Cutoff) -> Extended | None:
    """Solution in extended precision, from the member in that precision; None where columns are
    dependent.
    """
    alive, A, scale, cutoff = _unit_columns(part.A, cutoff)
    factors = _independent_qr(A, cutoff)
    if factors is None:
        return None
    Q, R, order = factors
    coef = np.zeros((len(alive), part.B.shape[1]), dtype=np.longdouble)
    unit_coef = _steps(Q, R, order, A=extended.A[:, alive] / scale, B=extended.B)
    coef[alive] = unit_coef / scale[:, None]
    return coef


def _steps(Q: Array, R: Array, order: Indices, *, A: Extended, B: Extended) -> Extended:
    """Solution of A b = B from factors of A[:, order] in double; the first step is the solution of
    the factors.

    Every step is smaller than the one before by about the condition times double rounding. Steps go
    on while the step at least halves (at the edge of double precision only the first does) and the
    next one could still be seen.
    """
    coef = np.zeros((A.shape[1], B.shape[1]), dtype=np.longdouble)
    residual = np.zeros(B.shape, dtype=np.longdouble)
    f = B.astype(np.float64)
    g = np.zeros((A.shape[1], B.shape[1]))
    last_size = np.inf
    for _ in range(10):
        h = la.solve_triangular(R, g[order], trans=1)
        Qf = Q.T @ f
        step = np.empty_like(g)
        step[order] = la.solve_triangular(R, Qf - h)
        size = float(np.max(np.abs(step), initial=0.0))
        if not size < last_size / 2:
            break
        coef = coef + step
        residual = residual + (Q @ (h - Qf) + f)
        # below the last bit of extended precision, also of coefficients much smaller than the
        # largest
        if last_size < np.inf and size * size / last_size <= 1e-22 * float(np.max(np.abs(coef))):
            break
        last_size = size
        f = (B - residual - A @ coef).astype(np.float64)
        g = (-(A.T @ residual)).astype(np.float64)
    return coef


def basis_and_inverse(A: Array, cutoff: Cutoff, max_rank: int) -> tuple[Array, Array]:
    """Orthonormal basis of the columns of A, (rows, rank), and the pseudo-inverse of A, (m, rows).

    The rank of centred rows is at most their number minus one, whatever rounding says: that is
    `max_rank`.
    """
    alive, A, scale, cutoff = _unit_columns(A, cutoff)
    basis = np.zeros((len(A), 0))
    inverse = np.zeros((len(alive), len(A)))
    factors = _independent_qr(A, cutoff, max_rank)
    if factors is not None:
        basis, R, order = factors
        inverse[np.flatnonzero(alive)[order]] = la.solve_triangular(R, basis.T) / scale[order, None]
    elif A.shape[1]:
        basis, s, V = _svd(A, cutoff, max_rank)
        inverse[alive] = _shortest(V, basis.T / s[:, None], scale)
    return basis, inverse


def _unit_columns(A: Array, cutoff: Cutoff) -> tuple[NDArray[np.bool_], Array, Array, Cutoff]:
    """Flags of the nonzero columns, the columns at unit length, their lengths, and their cut-off.

    A column of zeros is no direction: it would mix with the null space of the other columns.
    """
    alive: NDArray[np.bool_] = np.any(A, axis=0)
    A = A if alive.all() else A[:, alive]
    scale = np.linalg.norm(A, axis=0)
    scale[scale == 0] = 1.0  # entries whose squares underflow
    return alive, A / scale, scale, cutoff.take(alive)


def _independent_qr(
    A: Array, cutoff: Cutoff, max_rank: int | None = None
) -> tuple[Array, Array, Indices] | None:
    """Q, R and the order of the columns; None without columns, for too many columns or for
    dependent columns.
    """
    if not 0 < A.shape[1] <= (len(A) if max_rank is None else max_rank):
        return None
    Q, R, order = la.qr(A, mode="economic", pivoting=True)
    return (Q, R, order) if _full_rank(R, cutoff) else None


def _full_rank(R: Array, cutoff: Cutoff) -> bool:
    """Whether every direction counts, whichever columns it is made of; if this is not sure, the SVD
    decides.
    """
    pivots = np.abs(np.diagonal(R))
    return bool(pivots.min() > cutoff.safe * pivots.max())


def _svd(A: Array, cutoff: Cutoff, max_rank: int | None = None) -> tuple[Array, Array, Array]:
    """U (rows, r), s (r,) and V (r, m) of the directions that count."""
    U, s, V = la.svd(A, full_matrices=False)
    counts = cutoff.counts(s, V)
    if max_rank is not None:
        counts[max_rank:] = False
    return U[:, counts], s[counts], V[counts]


def _shortest(V: Array, c: Array, scale: Array) -> Array:
    r"""Minimum norm of b subject to V (scale * b) = c, where the rows of V (r, m) are orthonormal.

    With :math:`M = \mathrm{diag}(scale) V'` that is :math:`b = M (M'M)^{-1} c`, from a QR of M. The
    rows of M have the user's units and may differ by any factor; with rows in falling order and
    columns pivoted, Householder's QR is stable row by row (Cox and Higham 1998), so that b keeps
    its digits in every unit. (Subtracting the null space of V from any solution would not do: it is
    known to eps in the units of V, which can be anything in the user's units.)
    """
    order = np.argsort(-scale, kind="stable")
    Q, T, pivots = la.qr((V * scale).T[order], mode="economic", pivoting=True)
    coef = np.empty((len(scale), c.shape[1]))
    coef[order] = Q @ la.solve_triangular(T, c[pivots], trans="T")
    return coef
