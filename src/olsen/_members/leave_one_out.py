r"""What every member would predict for a row it had not seen, without refitting.

For a member with (centred, root-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an intercept). The second
case (Greville) is a row that is fitted exactly, as all rows of a minimum-norm member are; there it equals
:math:`(K^{+} B)_l / (K^{+})_{ll}` with :math:`K = A A'`. Status: exact. Rows a member was not given keep
:math:`e_l = y_l - \hat y_l` and change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._trust import EXACT_FIT, costs_a_rank
from .orthogonal import basis_and_inverse, least_squares
from .problem import Problem

__all__ = ["MemberDeletion", "delete_each_row"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class MemberDeletion:
    """One member with each row deleted in turn; row indices are those of the whole problem."""

    rows: NDArray[np.int64]  # (tau,) rows the member was given
    coef: NDArray[np.float64]  # (m, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_all: NDArray[np.float64]  # (q,) mean of the member's targets; zeros without intercept
    mean_y: NDArray[np.float64]  # (n, q) the same without row l
    pinv: NDArray[np.float64]  # (m, tau) derivative of the coefficients with respect to the targets
    coef_change: NDArray[np.float64]  # (m, tau, q) coef minus coef without row l
    intercept_change: NDArray[np.float64]  # (tau, q)


def delete_each_row(problem: Problem, columns: Indices, rows: Indices | None) -> MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    n, q = problem.Y.shape
    part = problem.submatrix(columns, rows)
    given = np.arange(n) if rows is None else rows
    freedom = len(given) - problem.fit_intercept
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), freedom)
    coef = Z @ part.B
    weight = part.root**2
    share = weight / weight.sum() if problem.fit_intercept else np.zeros(len(given))
    found, near = _deleted_residuals(part.B, Q, Z, coef, share, interpolates=Q.shape[1] == freedom)
    inside = found / part.root[:, None]
    intercept = part.intercept(coef)
    residual = problem.Y - _predict(problem.X, columns, coef) - intercept
    residual[given] = inside
    # with respect to raw targets: rows of A and B carry the root of their weight
    Z = Z * part.root
    coef_change = Z[:, :, None] * inside[None]
    for l in near:
        without, coef_change[:, l] = _without(problem, columns, given, int(l), coef)
        inside[l] = residual[given[l]] = without
    mean_y = np.tile(part.mean_y, (n, 1))
    mean_y[given] = _mean_without(part.mean_y, problem.Y[given], share)
    mean_x = _mean_without(part.mean_x, part.A / part.root[:, None] + part.mean_x, share)  # (tau, m)
    without = mean_y[given] - mean_x @ coef + np.einsum("lm,mlq->lq", mean_x, coef_change)
    change = intercept - without if problem.fit_intercept else np.zeros((len(given), q))
    return MemberDeletion(given, coef, intercept, residual, part.mean_y, mean_y, Z, coef_change, change)


def _mean_without(mean: Array, values: Array, share: Array) -> Array:
    """Weighted mean of the other rows, for each row: (mean - share * value) / (1 - share)."""
    return (mean - share[:, None] * values) / (1 - share)[:, None]


def _predict(X: Any, columns: Indices, coef: Array) -> Array:
    return np.asarray(X[:, columns] @ coef, dtype=np.float64)


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
