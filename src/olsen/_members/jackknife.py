r"""One member without each of its rows in turn.

With (centred, root-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an intercept). The second
case (Greville) is a row that is fitted exactly, as all rows of a minimum-norm member are. Status: exact. Rows a member
was not given keep :math:`e_l = y_l - \hat y_l` and change nothing. Z comes from the inverse of the smaller Gram matrix,
A'A or AA', where that is trusted, and from a QR or SVD of the data otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._trust import EPS, EXACT_FIT, LARGEST_INFLATION, costs_a_rank, nothing_but_rounding
from .orthogonal import basis_and_inverse, least_squares
from .problem import Problem, Submatrix

__all__ = ["MemberDeletion", "delete_each_row", "doubtful_below", "inverses", "largest_inflation"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class MemberDeletion:
    """One member with each row deleted in turn; row indices are those of the whole problem."""

    rows: NDArray[np.int64]  # (tau,) rows the member was given
    coef: NDArray[np.float64]  # (m, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_x: NDArray[np.float64]  # (m,) mean of the member's rows; zeros without intercept
    mean_all: NDArray[np.float64]  # (q,) the same of its targets
    mean_y: NDArray[np.float64]  # (n, q) the same without row l
    share: NDArray[np.float64]  # (tau,) of its rows in these means
    pinv: NDArray[np.float64]  # (m, tau) derivative of the coefficients with respect to the targets
    refits: dict[int, NDArray[np.float64]]  # (m, q) changes of coefficients that were found by a refit without the row

    def coef_change(self) -> NDArray[np.float64]:
        """Coefficients minus those without row l, (q, m, tau)."""
        change: Array = self.pinv * self.residual[self.rows].T[:, None, :]
        for l, own in self.refits.items():
            change[:, :, l] = own.T
        return change


class _Inverse(NamedTuple):
    """Pseudo-inverse Z (m, tau), and the hat matrix A Z as a product of two matrices."""

    Z: Array
    left: Array  # (tau, r)
    right: Array  # (r, tau)
    doubt: float  # what is left of a row, 1 - h, below which its residual is not trusted
    interpolates: bool  # every row is fitted: that is known, while 1 - h is rounding, which grows with the offset


def delete_each_row(problem: Problem, columns: Indices, rows: Indices | None) -> MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    n, part = len(problem.Y), problem.submatrix(columns, rows)
    given = np.arange(n) if rows is None else rows
    share = part.root**2 / (part.root @ part.root) if problem.fit_intercept else np.zeros(len(given))
    Z, deleted, near = _inverse_and_residuals(problem, part, columns, share)
    coef = Z @ part.B
    intercept = part.intercept(coef)
    residual = problem.Y - _predict(problem.X, columns, coef) - intercept
    residual[given] = deleted / part.root[:, None]
    refits = {}
    for l in near.tolist():
        others = problem.submatrix(columns, np.delete(given, l))
        own = least_squares(others.A, others.B, problem.cutoff(others, columns))
        predicted = _predict(problem.X[given[l : l + 1]], columns, own)[0] + others.intercept(own)
        residual[given[l]], refits[l] = problem.Y[given[l]] - predicted, coef - own
    mean_y = np.tile(part.mean_y, (n, 1))
    mean_y[given] = (part.mean_y - share[:, None] * problem.Y[given]) / (1 - share)[:, None]
    pinv = Z * part.root  # with respect to raw targets: rows of A and B carry the root of their weight
    return MemberDeletion(given, coef, intercept, residual, part.mean_x, part.mean_y, mean_y, share, pinv, refits)


def _predict(X: Any, columns: Indices, coef: Array) -> Array:
    return np.asarray(X[:, columns] @ coef, dtype=np.float64)


def _inverse_and_residuals(
    problem: Problem, part: Submatrix, columns: Indices, share: Array
) -> tuple[Array, Array, Indices]:
    """Pseudo-inverse, and :func:`_residuals`; from the Gram matrix where that tells them all, else from the data."""
    inverse = _from_gram(problem, part, share)
    if inverse is not None:
        found, near = _residuals(part, share, inverse)
        if not len(near):
            return inverse.Z, found, near
    inverse = _from_data(problem, part, columns)
    return inverse.Z, *_residuals(part, share, inverse)


def _residuals(part: Submatrix, share: Array, inverse: _Inverse) -> tuple[Array, Indices]:
    """Residuals (tau, q) of deleted rows in the (root-weighted) units of B, and rows that only a refit would tell.

    Rows of leverage near one: Greville's formula where they are alone in a direction, a refit where they are not.
    """
    Z, left, right, doubt, interpolates = inverse
    remainder = 1 - np.einsum("lr,rl->l", left, right) - share
    close = np.arange(len(left)) if interpolates else np.flatnonzero(remainder <= doubt)
    remainder[close] = 1.0
    out = (part.B - left @ (right @ part.B)) / remainder[:, None]
    alone = np.ones(len(close), dtype=bool)
    if not interpolates and len(close):
        hat = left[close] @ right + np.sqrt(np.outer(share[close], share))
        hat[np.arange(len(close)), close] = 0.0
        alone = np.array([costs_a_rank(float(one @ one), len(left)) for one in hat], dtype=bool)
    exact = Z[:, close[alone]]
    out[close[alone]] = (exact.T @ (Z @ part.B)) / np.sum(exact * exact, axis=0)[:, None]
    return out, close[~alone]


def _from_gram(problem: Problem, part: Submatrix, share: Array) -> _Inverse | None:
    """From the inverse of the smaller Gram matrix, of the columns or the rows; None where that is not trusted."""
    A = part.A
    if not min(A.shape):
        return None
    if A.shape[1] < len(A) - problem.fit_intercept:
        (P,), inflation = inverses((A.T @ A)[None])
        if not inflation[0] < largest_inflation(problem, A.shape[1]):
            return None
        return _Inverse(Z := P @ A.T, A, Z, float(doubtful_below(inflation)[0]), False)
    # a minimum-norm member; the root weights, orthogonal to centred rows, get a place of their own in K
    K = A @ A.T
    unit, null = np.trace(K) / len(K), np.sqrt(share)  # of length one with an intercept, else zero
    K += unit * np.outer(null, null)
    if problem.rcond is not None or nothing_but_rounding(np.diagonal(K), max(A.shape)):
        return None
    (P,), inflation = inverses(K[None])
    P = P - np.outer(null, null) / unit
    trusted = (
        inflation[0] < LARGEST_INFLATION and np.min(np.diagonal(P) * np.diagonal(K)) > doubtful_below(inflation)[0]
    )
    return _Inverse(Z := A.T @ P, A, Z, 0.0, True) if trusted else None


def _from_data(problem: Problem, part: Submatrix, columns: Indices) -> _Inverse:
    """By QR or SVD."""
    freedom = len(part.A) - problem.fit_intercept
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), freedom)
    return _Inverse(Z, Q, Q.T, EXACT_FIT, Q.shape[1] >= freedom)


def inverses(G: Array) -> tuple[Array, Array]:
    """Inverses of Gram matrices (b, m, m), and the largest entry of each in units of the columns: their inflation.

    On the diagonal these are the variance inflation factors, and of a positive definite matrix the largest entry is
    there; one that rounding has made indefinite shows beside it. Infinite where there is no inverse. Columns of zeros,
    which have no direction, get one of their own, with a zero in all products.

    NumPy's functions let other threads work meanwhile; SciPy's do not.
    """
    diagonal = np.diagonal(G, axis1=1, axis2=2)
    zero = diagonal <= 0
    if zero.any():
        G = G + zero[:, :, None] * np.eye(G.shape[1])
        diagonal = np.diagonal(G, axis1=1, axis2=2)
    try:
        P: Array = np.asarray(np.linalg.inv(G), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(G) == 1:
            return np.zeros_like(G), np.full(1, np.inf)
        found = [inverses(one[None]) for one in G]
        return np.concatenate([P for P, _ in found]), np.concatenate([inflation for _, inflation in found])
    length = np.sqrt(diagonal)
    scaled = P * length[:, :, None]
    scaled *= length[:, None, :]
    largest = np.maximum(scaled.max(axis=(1, 2), initial=0.0), -scaled.min(axis=(1, 2), initial=0.0))
    return P, np.where(np.isfinite(largest), largest, np.inf)


def doubtful_below(inflation: Array) -> Array:
    """What is left of a row, 1 - h, from which on r / (1 - h) keeps eight digits: h is good to eps times inflation."""
    return np.maximum(EXACT_FIT, 1e8 * EPS * inflation)


def largest_inflation(problem: Problem, n_columns: int) -> float:
    """Up to which an inverse is trusted; less where a user's cut-off could leave out a direction of so many columns.

    Singular values of columns of unit length are between 1 / sqrt(m inflation) and sqrt(m).
    """
    return min(LARGEST_INFLATION, (problem.rcond * n_columns) ** -2.0) if problem.rcond else LARGEST_INFLATION
