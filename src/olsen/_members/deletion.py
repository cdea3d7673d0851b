r"""Training rows, and the leave-one-out of one member without a refit for every row.

With (centred, sqrt-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an
intercept). The second case (Greville) is a row that is fitted exactly, as all rows of a
minimum-norm member are. Status: exact. Rows outside the member's sample have :math:`e_l = y_l -
\hat y_l`, and deleting such a row changes nothing. Z comes from the inverse of the smaller Gram
matrix, A'A or AA', where that inverse is trusted, and from a QR or SVD of the data otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.rows import RowData, Submatrix, gather
from .._execution.arrays import row_products
from .._execution.threads import cached_property
from .._trust import EPS, EXACT_FIT, LARGEST_INFLATION, costs_a_rank, nothing_but_rounding
from .orthogonal import basis_and_inverse, least_squares

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


BLOCK_BYTES = 1 << 18  # a block of rows: it stays in the cache of a core


@dataclass(frozen=True)
class TrainingRows:
    """Centred rows of a problem, read in blocks."""

    problem: RowData
    dead: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # constant

    @cached_property
    def mean_weights(self) -> NDArray[np.float64]:
        """Weight of every row in the mean, (n,); zeros without an intercept."""
        return self.problem.weights / self.problem.total_weight * self.problem.null_rank

    @cached_property
    def _X(self) -> Any:
        return sp.csr_array(self.problem.X) if sp.issparse(self.problem.X) else self.problem.X

    def blocks(self) -> list[slice]:
        """Consecutive rows; the cuts, and so the rounding of sums, depend on the shape alone."""
        n, p = self.problem.shape
        most_rows = int(np.clip(BLOCK_BYTES // (8 * p), 64, 2048))
        count = -(-n // min(most_rows, max(64, -(-n // 4))))
        edges = np.linspace(0, n, count + 1).astype(int)
        return [slice(start, stop) for start, stop in pairwise(edges)]

    def block(self, rows: slice) -> NDArray[np.float64]:
        """Centred columns of a block of rows, (p, rows)."""
        part = self._X[rows]
        x = np.empty((self.problem.shape[1], rows.stop - rows.start))
        raw = part.toarray().T if sp.issparse(part) else part.T
        np.subtract(raw, self.problem.means[0][:, None], out=x)
        x[self.dead] = 0.0
        return x


@dataclass(frozen=True, kw_only=True)
class MemberDeletion:
    """Leave-one-out of one member; row indices refer to all rows of the problem."""

    rows: NDArray[np.int64]  # (tau,) the member's rows
    coef: NDArray[np.float64]  # (m, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_x: NDArray[np.float64]  # (m,) mean of the member's rows; zeros without intercept
    mean_y: NDArray[np.float64]  # (q,) mean of the member's targets
    mean_change: NDArray[np.float64]  # (tau, q) mean_y minus the mean without row l
    mean_weights: NDArray[np.float64]  # (tau,) weight of each of the member's rows in its means
    pinv: NDArray[np.float64]  # (m, tau) derivative of the coefficients with respect to the targets
    refits: dict[int, NDArray[np.float64]]  # changes (m, q) for rows that needed a refit

    def coef_change(self) -> NDArray[np.float64]:
        """Coefficients minus those without row l, (q, m, tau)."""
        change: Array = self.pinv * self.residual[self.rows].T[:, None, :]
        for l, refit_change in self.refits.items():
            change[:, :, l] = refit_change.T
        return change


@dataclass(frozen=True, kw_only=True)
class _Inverse:
    """Pseudo-inverse Z (m, tau), and the hat matrix A Z as a product of two matrices."""

    Z: Array
    hat_left: Array  # (tau, r)
    hat_right: Array  # (r, tau)
    doubt: float  # smallest 1 - h for which the residual of a row is trusted
    # all rows are fitted exactly; 1 - h is then pure rounding, which grows with the offset
    interpolates: bool


def delete_each_row(problem: RowData, columns: Indices, rows: Indices | None) -> MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    part = problem.submatrix(columns, rows)
    member_rows = np.arange(len(problem.Y)) if rows is None else rows
    mean_weights = problem.null_rank * part.root**2 / (part.root @ part.root)
    inverse = _from_gram(part, mean_weights)
    if inverse is not None:
        deleted, refit_rows = _residuals(part, mean_weights, inverse)
    if inverse is None or len(refit_rows):
        inverse = _from_data(problem, part, columns)
        deleted, refit_rows = _residuals(part, mean_weights, inverse)
    coef = inverse.Z @ part.B
    intercept = part.intercept(coef)
    residual = problem.Y - np.asarray(problem.X[:, columns] @ coef, dtype=np.float64) - intercept
    residual[member_rows] = deleted / part.root[:, None]
    refits = {}
    for l in refit_rows.tolist():
        row = member_rows[[l]]
        training = problem.submatrix(columns, np.delete(member_rows, l))
        refit_coef = least_squares(training.A, training.B, problem.cutoff(training, columns))
        predicted = gather(problem.X, columns, row) @ refit_coef + training.intercept(refit_coef)
        residual[row] = problem.Y[row] - predicted
        refits[l] = coef - refit_coef
    return MemberDeletion(
        rows=member_rows,
        coef=coef,
        intercept=intercept,
        residual=residual,
        mean_x=part.mean_x,
        mean_y=part.mean_y,
        mean_change=mean_changes(problem.Y[member_rows], part.mean_y, mean_weights),
        mean_weights=mean_weights,
        pinv=inverse.Z * part.root,  # of raw targets: rows of A and B are sqrt-weighted
        refits=refits,
    )


def mean_changes(Y: Array, mean_y: Array, mean_weights: Array) -> Array:
    """Mean target minus the mean without each row, (rows, q)."""
    return (mean_weights / (1 - mean_weights))[:, None] * (Y - mean_y)


def _residuals(part: Submatrix, mean_weights: Array, inverse: _Inverse) -> tuple[Array, Indices]:
    """Residuals (tau, q) of deleted rows in the sqrt-weighted units of B, and the rows that need a
    refit.

    A row of leverage near one takes Greville's formula if deleting it costs a rank, and a refit
    otherwise.
    """
    hat_left = inverse.hat_left
    hat_right = inverse.hat_right
    remainder = 1 - np.einsum("lr,rl->l", hat_left, hat_right) - mean_weights
    close = np.flatnonzero(inverse.interpolates | (remainder <= inverse.doubt))
    remainder[close] = 1.0
    residuals = (part.B - hat_left @ (hat_right @ part.B)) / remainder[:, None]
    costs_rank = np.ones(len(close), dtype=bool)
    if not inverse.interpolates:
        mean_part = np.sqrt(np.outer(mean_weights[close], mean_weights))
        hat = hat_left[close] @ hat_right + mean_part
        hat[np.arange(len(close)), close] = 0.0
        costs_rank = costs_a_rank(np.sum(hat * hat, axis=1), len(hat_left))
    Z = inverse.Z[:, close[costs_rank]]
    coef_products = Z.T @ (inverse.Z @ part.B)
    residuals[close[costs_rank]] = coef_products / np.sum(Z * Z, axis=0)[:, None]
    return residuals, close[~costs_rank]


def _from_data(problem: RowData, part: Submatrix, columns: Indices) -> _Inverse:
    """Pseudo-inverse from a QR or SVD of the data."""
    max_rank = len(part.A) - problem.null_rank
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), max_rank)
    return _Inverse(
        Z=Z, hat_left=Q, hat_right=Q.T, doubt=EXACT_FIT, interpolates=Q.shape[1] >= max_rank
    )


def _from_gram(part: Submatrix, mean_weights: Array) -> _Inverse | None:
    """Pseudo-inverse from the smaller Gram matrix, of the columns or the rows; None where that is
    not trusted.
    """
    A = part.A
    if not A.size:
        return None
    null = np.sqrt(mean_weights)  # of length one with an intercept, else zero
    interpolates = A.shape[1] >= len(A) - bool(null.any())
    # A minimum-norm member: root weights are orthogonal to centred rows; a multiple of their outer
    # product makes A A' definite.
    K = row_products(A if interpolates else A.T)
    if interpolates:
        unit = np.trace(K) / len(K)
        K += unit * np.outer(null, null)
        if nothing_but_rounding(np.diagonal(K), max(A.shape)):
            return None
    (P,), (inflation,) = inverses(K[None])
    if not inflation < LARGEST_INFLATION:
        return None
    doubt = float(doubtful_below(inflation))
    if interpolates:
        P = P - np.outer(null, null) / unit
        if not np.min(np.diagonal(P) * np.diagonal(K)) > doubt:
            return None
    Z = A.T @ P if interpolates else P @ A.T
    return _Inverse(Z=Z, hat_left=A, hat_right=Z, doubt=doubt, interpolates=interpolates)


def inverses(G: Array) -> tuple[Array, Array]:
    """Inverses of Gram matrices (b, m, m), and the inflation of each: its largest entry in units of
    the columns.

    The diagonal holds the variance inflation factors. The largest entry of a positive definite
    matrix is on its diagonal; an inverse that rounding has made indefinite has a larger entry
    elsewhere. The inflation is infinite where there is no inverse. Columns of zeros get a diagonal
    entry of one, which is zero in all products.

    NumPy's functions release the interpreter lock; SciPy's do not.
    """
    diagonal = np.diagonal(G, axis1=1, axis2=2)
    zero = diagonal <= 0
    if zero.any():
        G = G + zero[:, :, None] * np.eye(G.shape[1])
        diagonal = np.diagonal(G, axis1=1, axis2=2)
    try:
        P: Array = np.asarray(np.linalg.inv(G), dtype=np.float64)
    except np.linalg.LinAlgError:
        P = np.stack([_inverse_or_infinity(matrix) for matrix in G])
    length = np.sqrt(diagonal)
    inflation = np.abs(P * length[:, :, None] * length[:, None, :]).max(axis=(1, 2), initial=0.0)
    return P, np.where(np.isfinite(inflation), inflation, np.inf)


def _inverse_or_infinity(matrix: Array) -> Array:
    try:
        return np.asarray(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.inf)


def doubtful_below(inflation: Array) -> Array:
    """Smallest 1 - h for which r / (1 - h) keeps eight digits: h has an error of eps times the
    inflation.
    """
    return np.maximum(EXACT_FIT, 1e8 * EPS * inflation)
