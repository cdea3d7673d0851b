"""Errors of the mean, of least squares and of tuned ridge regression, on single rows or folds that were left out."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._moments import Moments

__all__ = ["Baselines", "fold_errors", "leave_one_out_errors"]

Array = NDArray[np.float64]

PENALTIES = np.logspace(-8, 8, 65)  # for each row
MOST_CELLS = 4e8  # of the n x min(n, p) factor; larger comparisons are skipped, they would take too long
MOST_COLUMNS = 3000  # of the eigenproblems from moments, likewise
RELATIVE_RANK_TOL = 1e-11  # of eigenvalues of a correlation matrix; smaller ones are rounding


class Baselines(NamedTuple):
    """Mean squared errors, and the best penalty of ridge (times n); None where they are undefined or too expensive."""

    mean: float
    least_squares: float | None
    ridge: float | None
    penalty: float | None


def leave_one_out_errors(X: Array, y: Array, weight: Array) -> Baselines:
    r"""Weighted leave-one-out errors, from one singular value decomposition.

    Columns are standardised, rows multiplied by the root of their weight w. With singular values s and left vectors u,
    residuals of ridge are divided by :math:`1 - \frac{w_i}n - \sum_l \frac{s_l^2}{s_l^2+\lambda} u_{il}^2`. Least
    squares has no penalty, and only those singular values that are not rounding.
    """
    n, p = X.shape
    weight = weight / weight.mean()
    root, mean = np.sqrt(weight), weight @ y / n
    target, own = (y - mean) * root, 1 - weight / n
    mean_error = float(np.mean((target / own) ** 2))
    if n * min(n, p) > MOST_CELLS:
        return Baselines(mean_error, None, None, None)
    Z = X - weight @ X / n
    spread = np.sqrt(weight @ Z**2 / n)
    U, s, _ = la.svd(Z / np.where(spread > 0, spread, 1.0) * root[:, None], full_matrices=False)
    projected, leverages = U.T @ target, U**2

    def error(shrink: Array) -> float:
        residuals = (target - U @ (shrink * projected)) / np.maximum(own - leverages @ shrink, 1e-12)
        return float(np.mean(residuals**2))

    ridge, penalty = min((error(s**2 / (s**2 + n * penalty)), n * penalty) for penalty in PENALTIES)
    rank = s > s[0] * max(n, p) * np.finfo(float).eps
    return Baselines(mean_error, error(1.0 * rank) if n > p + 2 else None, ridge, float(penalty))


def fold_errors(folds: list[Moments]) -> Baselines:
    r"""The same, cross-validated from moments of folds.

    With G, c, y'y of a test fold about its own means, coefficients b from the others have on it the squared error
    :math:`y'y - 2b'c + b'Gb + w\,(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b)^2`.
    """
    p, n = len(folds[0].G), sum(fold.n_rows for fold in folds)
    total = np.zeros(1)
    for f, test in enumerate(folds):
        train = reduce(lambda a, b: a.merge(b), folds[:f] + folds[f + 1 :])
        b = _coefficients(train) if p <= MOST_COLUMNS else np.zeros((p, 1))
        inside = test.yy[0] - 2 * test.C[:, 0] @ b + np.sum(b * (test.G @ b), axis=0)
        shift = test.mean_y[0] - train.mean_y[0] - (test.mean_x - train.mean_x) @ b
        total = total + inside + test.weight * shift**2
    mean, *others = (total / sum(fold.weight for fold in folds)).tolist()
    if not others:
        return Baselines(mean, None, None, None)
    squares, *ridge = others
    best = int(np.argmin(ridge))
    enough = n - max(fold.n_rows for fold in folds) > p + 1
    return Baselines(mean, squares if enough else None, ridge[best], float(PENALTIES[best] * n))


def _coefficients(train: Moments) -> Array:
    """Coefficients (p, 2 + penalties): zeros for the mean, least squares of least norm, ridge."""
    spread = np.sqrt(np.diagonal(train.G) / train.weight)
    unit = np.where(spread > 0, spread, 1.0)
    values, vectors = la.eigh(train.G / np.outer(unit, unit) / train.weight)
    values = np.maximum(values, 0.0)
    inverse = np.divide(1, values, out=np.zeros(len(values)), where=values > RELATIVE_RANK_TOL * values[-1])
    factors = np.column_stack([0 * values, inverse, 1 / (values[:, None] + PENALTIES)])
    rotated = vectors.T @ (train.C[:, 0] / unit / train.weight)
    return np.asarray(vectors @ (factors * rotated[:, None]) / unit[:, None])
