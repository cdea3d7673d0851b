"""What else one would have fitted, judged the same way: ridge and least squares, rows left out one at a time."""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

__all__ = ["least_squares_mse", "ridge_mse"]

PENALTIES = np.logspace(-8, 8, 65)
MOST_CELLS = 4e8  # of the n x min(n, p) factor; beyond, the comparison is left out rather than waited for


def ridge_mse(X, y):
    r"""Best leave-one-out mean squared error of ridge over a grid of penalties, and that penalty times n.

    From one singular value decomposition of the standardised columns: residuals divided by
    :math:`1 - \frac1n - \sum_l \frac{s_l^2}{s_l^2+\lambda} u_{il}^2`.
    """
    n = len(y)
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if n > 4 * Z.shape[1]:  # tall: the smaller eigenproblem, ridge can afford to square the condition
        values, vectors = la.eigh(Z.T @ Z)
        values = np.maximum(values, 0.0)
        U = Z @ vectors / np.sqrt(np.where(values > 0, values, 1.0))
    else:
        U, s, _ = la.svd(Z, full_matrices=False)
        values = s**2
    centred = y - y.mean()
    projected, squares = U.T @ centred, U**2
    best = (np.inf, np.nan)
    for penalty in PENALTIES * n:
        shrink = values / (values + penalty)
        residual = (centred - U @ (shrink * projected)) / np.maximum(1 - 1 / n - squares @ shrink, 1e-12)
        best = min(best, (float(np.mean(residual**2)), float(penalty)))
    return best


def least_squares_mse(X, y):
    """Leave-one-out mean squared error of least squares; None when it is not defined."""
    n, p = X.shape
    if n <= p + 2 or n * min(n, p) > MOST_CELLS:
        return None
    centred = X - X.mean(axis=0)
    Q, R, _ = la.qr(centred, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int(np.sum(diagonal > diagonal[0] * max(n, p) * np.finfo(float).eps)) if diagonal[0] > 0 else 0
    Q = Q[:, :rank]
    leverage = 1 / n + np.sum(Q**2, axis=1)
    target = y - y.mean()
    return float(np.mean(((target - Q @ (Q.T @ target)) / np.maximum(1 - leverage, 1e-12)) ** 2))
