"""Ridge and least squares for comparison: their errors on single rows or folds that were left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from ..._moments import Moments

__all__ = ["fold_errors", "least_squares_mse", "mean_mse", "ridge_mse"]

Array = NDArray[np.float64]

PENALTIES = np.logspace(-8, 8, 65)
MOST_CELLS = 4e8  # of the n x min(n, p) factor; larger comparisons are skipped, they would take too long
MOST_COLUMNS = 3000  # of the eigenproblems from moments, likewise
TRUST = 1e-11  # smallest eigenvalue of a correlation matrix, relative to the largest, that is not taken for rounding


def mean_mse(y: Array, weight: Array) -> float:
    """Leave-one-out mean squared error of the mean."""
    share = weight / weight.sum()
    return float(share @ ((y - share @ y) / (1 - share)) ** 2)


def ridge_mse(X: Array, y: Array, weight: Array) -> tuple[float, float]:
    r"""Best leave-one-out mean squared error of ridge over a grid of penalties, and that penalty times n.

    From one singular value decomposition of the standardised columns, rows times the root of their weight w (of mean
    one): residuals divided by :math:`1 - \frac{w_i}n - \sum_l \frac{s_l^2}{s_l^2+\lambda} u_{il}^2`.
    """
    n, root = len(y), np.sqrt(weight)
    off = X - weight @ X / n
    spread = np.sqrt(weight @ off**2 / n)
    Z = off / np.where(spread > 0, spread, 1.0) * root[:, None]
    if n > 4 * Z.shape[1]:  # tall: the smaller eigenproblem, ridge can afford to square the condition
        values, vectors = la.eigh(Z.T @ Z)
        values = np.maximum(values, 0.0)
        U = Z @ vectors / np.sqrt(np.where(values > 0, values, 1.0))
    else:
        U, s, _ = la.svd(Z, full_matrices=False)
        values = s**2
    centred = (y - weight @ y / n) * root
    projected, squares = U.T @ centred, U**2
    best = (np.inf, np.nan)
    for penalty in PENALTIES * n:
        shrink = values / (values + penalty)
        residual = (centred - U @ (shrink * projected)) / np.maximum(1 - weight / n - squares @ shrink, 1e-12)
        best = min(best, (float(np.mean(residual**2)), float(penalty)))
    return best


def least_squares_mse(X: Array, y: Array, weight: Array) -> float | None:
    """Leave-one-out mean squared error of least squares, with weights of mean one; None when it is not defined."""
    (n, p), root = X.shape, np.sqrt(weight)
    if n <= p + 2 or n * min(n, p) > MOST_CELLS:
        return None
    centred = (X - weight @ X / n) * root[:, None]
    Q, R, _ = la.qr(centred, mode="economic", pivoting=True)
    diagonal = np.abs(np.diag(R))
    rank = int(np.sum(diagonal > diagonal[0] * max(n, p) * np.finfo(float).eps)) if diagonal[0] > 0 else 0
    Q = Q[:, :rank]
    leverage = weight / n + np.sum(Q**2, axis=1)
    target = (y - weight @ y / n) * root
    return float(np.mean(((target - Q @ (Q.T @ target)) / np.maximum(1 - leverage, 1e-12)) ** 2))


def fold_errors(folds: list[Moments]) -> tuple[float, float | None, float | None, float | None]:
    r"""Mean squared errors of the mean, of least squares and of ridge, cross-validated from moments of folds.

    With G, c, y'y of a test fold about its own means, coefficients b from the others miss it by
    :math:`y'y - 2b'c + b'Gb + w\,(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b)^2`.

    Returns
    -------
    mean, squares, ridge, penalty : float or None
        The penalty, times n, of the smallest error of ridge. None where there are too few rows, or too many columns.
    """
    p, n = len(folds[0].G), sum(fold.n_rows for fold in folds)
    if p > MOST_COLUMNS:
        return _fold_error(folds, lambda train: np.zeros((p, 1)))[0], None, None, None
    mean, squares, *ridge = _fold_error(folds, _rival_coefficients)
    best = int(np.argmin(ridge))
    enough = n - max(fold.n_rows for fold in folds) > p + 1
    return mean, squares if enough else None, ridge[best], PENALTIES[best] * n


def _fold_error(folds: list[Moments], coefficients: Callable[[Moments], Array]) -> list[float]:
    """Errors of the columns of what ``coefficients(training moments)`` returns."""
    total: Any = 0.0  # an array after the first fold
    for f, test in enumerate(folds):
        train = reduce(lambda a, b: a.merge(b), folds[:f] + folds[f + 1 :])
        b = coefficients(train)
        inside = test.yy[0] - 2 * test.C[:, 0] @ b + np.sum(b * (test.G @ b), axis=0)
        total += inside + test.weight * (test.mean_y[0] - train.mean_y[0] - (test.mean_x - train.mean_x) @ b) ** 2
    errors: list[float] = (total / sum(fold.weight for fold in folds)).tolist()
    return errors


def _rival_coefficients(train: Moments) -> Array:
    """Coefficients (p, 2 + penalties): zeros for the mean, least squares of least norm, ridge."""
    spread = np.sqrt(np.diagonal(train.G) / train.weight)
    unit = np.where(spread > 0, spread, 1.0)
    values, vectors = la.eigh(train.G / np.outer(unit, unit) / train.weight)
    values = np.maximum(values, 0.0)
    kept = values > TRUST * values[-1]
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    factors = np.column_stack([0 * values, inverse, 1 / (values[:, None] + PENALTIES)])
    rotated = vectors.T @ (train.C[:, 0] / unit / train.weight)
    coefficients: Array = vectors @ (factors * rotated[:, None]) / unit[:, None]
    return coefficients
