r"""What every member would predict for a row it had not seen, without refitting.

For a member with (centred, root-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an intercept). The second
case (Greville) is a row that is fitted exactly, as all rows of a minimum-norm member are; there it equals
:math:`(K^{+} B)_l / (K^{+})_{ll}` with :math:`K = A A'`. Status: exact. Rows a member was not given keep
:math:`e_l = y_l - \hat y_l` and change nothing.

Z comes from the inverse of the smaller Gram matrix, A'A or K, where that is trusted and no row is fitted too closely
for its rounding, and from a QR or SVD of the data otherwise. (Members that share all rows: ``deletions``.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._trust import EPS, EXACT_FIT, LARGEST_INFLATION, costs_a_rank, nothing_but_rounding
from .orthogonal import basis_and_inverse, least_squares
from .problem import Problem, Submatrix

__all__ = ["MemberDeletion", "delete_each_row", "doubtful_below", "inverses", "keeps_all_directions"]

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
    refits: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # (m, q) changes that were found by a refit

    def coef_change(self, target: int) -> NDArray[np.float64]:
        """Coefficients of a target minus those without row l, (m, tau)."""
        change: Array = self.pinv * self.residual[self.rows, target]
        for l, own in self.refits.items():
            change[:, l] = own[:, target]
        return change


@dataclass(frozen=True)
class _Deleted:
    """What a factorisation of a member gives."""

    Z: Array  # (m, tau) pseudo-inverse
    coef: Array  # (m, q)
    residual: Array  # (tau, q) of deleted rows, in the units of B (root-weighted)
    near: Indices  # rows it says nothing about


def delete_each_row(problem: Problem, columns: Indices, rows: Indices | None) -> MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    n = len(problem.Y)
    part = problem.submatrix(columns, rows)
    given = np.arange(n) if rows is None else rows
    freedom = len(given) - problem.fit_intercept
    share = part.root**2 / (part.root @ part.root) if problem.fit_intercept else np.zeros(len(given))
    found = _from_gram(problem, part, share, freedom) or _from_data(problem, part, columns, share, freedom)
    intercept = part.intercept(found.coef)
    residual = problem.Y - _predict(problem.X, columns, found.coef) - intercept
    residual[given] = found.residual / part.root[:, None]
    refits = {}
    for l in found.near:
        residual[given[l]], refits[int(l)] = _without(problem, columns, given, int(l), found.coef)
    mean_y = np.tile(part.mean_y, (n, 1))
    mean_y[given] = (part.mean_y - share[:, None] * problem.Y[given]) / (1 - share)[:, None]
    # with respect to raw targets: rows of A and B carry the root of their weight
    pinv = found.Z * part.root
    return MemberDeletion(given, found.coef, intercept, residual, part.mean_x, part.mean_y, mean_y, share, pinv, refits)


def _predict(X: Any, columns: Indices, coef: Array) -> Array:
    return np.asarray(X[:, columns] @ coef, dtype=np.float64)


def _from_data(problem: Problem, part: Submatrix, columns: Indices, share: Array, freedom: int) -> _Deleted:
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), freedom)
    coef = Z @ part.B
    residual, near = _deleted_residuals(part.B, Q, Z, coef, share, interpolates=Q.shape[1] == freedom)
    return _Deleted(Z, coef, residual, near)


def _from_gram(problem: Problem, part: Submatrix, share: Array, freedom: int) -> _Deleted | None:
    """The same from the inverse of the smaller Gram matrix; None where that is not to be trusted."""
    if not min(part.A.shape):
        return None
    if part.A.shape[1] < freedom:
        return _from_columns(problem, part, share)
    return _from_rows(part, share) if problem.rcond is None else None


def _from_columns(problem: Problem, part: Submatrix, share: Array) -> _Deleted | None:
    P, inflation = inverses((part.A.T @ part.A)[None])
    if not (inflation[0] < LARGEST_INFLATION and keeps_all_directions(problem, part.A.shape[1], inflation)[0]):
        return None
    Z = P[0] @ part.A.T
    left = 1 - np.einsum("lj,jl->l", part.A, Z) - share
    if not left.min() > doubtful_below(inflation)[0]:
        return None
    coef = Z @ part.B
    return _Deleted(Z, coef, (part.B - part.A @ coef) / left[:, None], np.empty(0, dtype=np.int64))


def _from_rows(part: Submatrix, share: Array) -> _Deleted | None:
    """Of a minimum-norm member; the root weights u, orthogonal to centred rows, get a place of their own in K."""
    K = part.A @ part.A.T
    unit, null = np.trace(K) / len(K), np.sqrt(share)  # of length one with an intercept, else zero
    K += unit * np.outer(null, null)
    if nothing_but_rounding(np.diagonal(K), max(part.A.shape)):
        return None
    inverse, inflation = inverses(K[None])
    if not inflation[0] < LARGEST_INFLATION:
        return None
    inverse = inverse[0] - np.outer(null, null) / unit
    Z, dual, own = part.A.T @ inverse, inverse @ part.B, np.diagonal(inverse)
    if not np.min(own * np.diagonal(K)) > doubtful_below(inflation)[0]:  # what is left of a row without the others
        return None
    return _Deleted(Z, Z @ part.B, dual / own[:, None], np.empty(0, dtype=np.int64))


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


def keeps_all_directions(problem: Problem, n_columns: int, inflation: Array) -> NDArray[np.bool_]:
    """Whether no direction of members of so many columns is below the cut-off that a user gave.

    Singular values of columns of unit length are between 1 / sqrt(m inflation) and sqrt(m).
    """
    if problem.rcond is None:
        return np.ones(len(inflation), dtype=bool)
    return np.asarray(problem.rcond * n_columns * np.sqrt(inflation) < 1)


def _deleted_residuals(
    B: Array, Q: Array, Z: Array, coef: Array, share: Array, *, interpolates: bool
) -> tuple[Array, Indices]:
    """Residual of every row when it is left out, in the units of B (root-weighted), and rows it says nothing about."""
    left = 1 - (Q * Q).sum(axis=1) - share
    residual = B - Q @ (Q.T @ B)
    # a member of full row rank fits every row: that is known, while 1 - h is rounding, which grows with the offset
    alone, near = np.ones(len(B), dtype=bool), np.empty(0, dtype=np.int64)
    if not interpolates:
        exact = np.flatnonzero(left <= EXACT_FIT)
        lost = np.array([costs_a_rank(_beside(Q, share, int(l)), len(B)) for l in exact], dtype=bool)
        alone[:] = False
        alone[exact[lost]], near = True, exact[~lost]
    out = residual / np.where(left <= EXACT_FIT, 1.0, left)[:, None]
    if alone.any():
        out[alone] = (Z[:, alone].T @ coef) / (Z[:, alone] ** 2).sum(axis=0)[:, None]
    return out, near


def _beside(Q: Array, share: Array, l: int) -> float:
    """Sum of the squares of a row of the hat matrix beside its diagonal, h (1 - h), without cancellation."""
    hat = Q @ Q[l] + np.sqrt(share * share[l])
    hat[l] = 0.0
    return float(hat @ hat)


def _without(problem: Problem, columns: Indices, given: Indices, l: int, coef: Array) -> tuple[Array, Array]:
    """Residual (q,) of a row far out that is left out, and what leaving it out changes, (m, q): by a refit."""
    others = np.delete(given, l)
    part = problem.submatrix(columns, others)
    own = least_squares(part.A, part.B, problem.cutoff(part, columns))
    row = np.asarray(_predict(problem.X[given[l : l + 1]], columns, own))[0]
    return problem.Y[given[l]] - row - part.intercept(own), coef - own
