r"""Penalised least squares: ridge regression as the limit of many members, the lasso to find columns for them.

The mean of all determinantal members with spreads d and penalty lambda is
:math:`b = (G + \lambda D^{-1})^{-1} X^\top y` (``subsets.Determinantal``); no member itself is penalised.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .. import _kernel
from .._trust import beyond_double
from .mean import Members

__all__ = ["largest_lasso_penalty", "lasso_of_gram", "lasso_of_rows", "limit_members", "penalised", "penalised_rows"]

Array = NDArray[np.float64]

LASSO_TOL = 1e-7  # of the squared fit of the best column: coefficients only say where the signal lies


def limit_members(coef: Array, mean_x: Array, mean_y: Array) -> Members:
    """Infinitely many members with these mean coefficients."""
    if not np.isfinite(coef).all():
        raise ValueError(beyond_double("coefficients", "X and y"))
    return Members(coef, mean_y - mean_x @ coef, mean_y, np.empty(0, dtype=np.int64), np.empty(0), "limit", 0)


def penalised(G: Array, C: Array, spreads: Array, penalty: float) -> Array:
    """Mean (p, q) of all determinantal members with these spreads and penalty, from products of the columns."""
    S, root, out = _support(spreads, C)
    A = root * G[np.ix_(S, S)] * root[:, 0]
    out[S] = root * _ridge(A, root * C[S], penalty)
    return out


def penalised_rows(Z: Array, y: Array, spreads: Array, penalty: float) -> Array:
    """The same from centred rows, for more columns than rows."""
    S, root, out = _support(spreads, np.empty((Z.shape[1], y.shape[1])))
    A = Z[:, S] * root[:, 0]
    wide = len(S) > len(Z)
    out[S] = root * (A.T @ _ridge(A @ A.T, y, penalty) if wide else _ridge(A.T @ A, A.T @ y, penalty))
    return out


def _support(spreads: Array, like: Array) -> tuple[NDArray[np.int64], Array, Array]:
    """Columns with a spread, its root (columns, 1), and zeros for all columns."""
    S = np.flatnonzero(spreads > 0)
    return S, np.sqrt(spreads[S])[:, None], np.zeros(like.shape)


def _ridge(K: Array, right: Array, penalty: float) -> Array:
    """Solution of (K + penalty I) x = right; K is lost."""
    np.einsum("ii->i", K)[:] += penalty
    factor = la.cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    return np.asarray(la.cho_solve(factor, right, check_finite=False))


def largest_lasso_penalty(C: Array) -> float:
    """The penalty from which on no column is in, from products (p, q) of columns and targets."""
    return float(np.linalg.norm(C, axis=1).max(initial=0.0))


def lasso_of_gram(G: Array, C: Array, shares: Array, most: float) -> Array:
    """Coefficients (penalties, p, q) at falling shares of the largest penalty, until more than `most` columns are in.

    G are products of columns with each other, C those with the targets.
    """
    return _lasso(np.ascontiguousarray(G), C, np.diagonal(G).copy(), C, shares, most, False)


def lasso_of_rows(A: Array, B: Array, C: Array, shares: Array, most: float) -> Array:
    """The same from columns A (n, p) in memory order and targets B (n, q), with C = A'B."""
    if not largest_lasso_penalty(C) > 0:
        return np.zeros((1, *C.shape))
    return _lasso(np.ascontiguousarray(A.T), B, np.einsum("lj,lj->j", A, A), C, shares, most, True)


def _lasso(M: Array, targets: Array, squares: Array, C: Array, shares: Array, most: float, from_rows: bool) -> Array:
    """Down to a squared change of a fit by one column that is small beside the largest fit by one."""
    top, found = largest_lasso_penalty(C), np.empty((len(shares), *C.shape))
    tol = LASSO_TOL * top**2 / max(float(squares.max(initial=0.0)), 1e-300)
    left = np.array(targets.T, order="C")
    count = _kernel.lasso_path(M, left, squares, shares * top, float(most), tol, from_rows, found)
    return found[:count]
