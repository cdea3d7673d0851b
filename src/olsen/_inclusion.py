r"""Inclusion probabilities that differ from column to column.

**Ridge-matched.** :math:`\alpha_j = [G (G + \lambda I)^{-1}]_{jj}` on standardised columns: an ensemble with these
probabilities behaves like ridge regression with penalty :math:`\lambda` (status: heuristic; answers the paper's
question in section 5.1). The penalty is the one of least leave-one-out error among those that keep the expected size
well below the number of rows; beyond, members would sit on the interpolation peak.

**Adaptive.** The best probabilities for a known signal and uncorrelated columns are :math:`\alpha_j = b_j^2 / (b_j^2 +
R/n)`, :math:`b_j` the standardised coefficient and R the error of prediction. Starting from a uniform ensemble, put in
its own coefficients and error and repeat: columns without signal die out (status: heuristic). The subsets then depend
on y, so leave-one-out says nothing about them; only cross-validation that repeats every step does.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from ._members.problem import Problem
from ._moments import constant_columns, weighted_mean

__all__ = ["adapted_probabilities", "ridge_matched_probabilities"]

LARGEST_SHARE = 0.7  # of the rows: expected size of a member at most


def ridge_matched_probabilities(problem: Problem) -> tuple[NDArray, float, float]:
    """Probabilities (p,), the penalty on standardised columns, and the leave-one-out error of ridge there.

    One singular value decomposition of the standardised data, on its smaller side.
    """
    A, B, share = _standardised(problem)
    U, s, Vt = la.svd(A, full_matrices=False, check_finite=False)
    keep = s > s[0] * np.finfo(float).eps * max(A.shape) if len(s) and s[0] > 0 else np.zeros(len(s), bool)
    U, s, Vt = U[:, keep], s[keep], Vt[keep]
    if not len(s):
        return np.full(A.shape[1], 1 / A.shape[1]), np.inf, float(np.mean(B**2))
    penalties = np.geomspace(s[-1] ** 2 * 1e-3 + 1e-300, s[0] ** 2 * 1e3, 200)
    limit = LARGEST_SHARE * (len(A) - problem.fit_intercept)
    UB = U.T @ B
    best = (np.inf, penalties[-1])
    for penalty in penalties:
        shrink = s**2 / (s**2 + penalty)
        if shrink.sum() <= limit:
            left = 1 - (U**2) @ shrink - share
            error = float(np.mean(((B - U @ (shrink[:, None] * UB)) / left[:, None]) ** 2))
            best = min(best, (error, float(penalty)))
    error, penalty = best
    chance = (Vt**2).T @ (s**2 / (s**2 + penalty))
    return np.clip(chance, 0.0, 1.0), penalty, error


def _standardised(problem: Problem):
    """Centred, root-weighted columns of unit length, centred targets, and every row's share in the means."""
    X = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    n = len(X)
    weight = np.ones(n) if problem.weight is None else problem.weight
    mean_x, mean_y, share = np.zeros(X.shape[1]), np.zeros(problem.Y.shape[1]), np.zeros(n)
    if problem.fit_intercept:
        mean_x, mean_y = weighted_mean(X, weight), weighted_mean(problem.Y, weight)
        share = weight / weight.sum()
    A, B = (X - mean_x) * np.sqrt(weight)[:, None], (problem.Y - mean_y) * np.sqrt(weight)[:, None]
    length = np.linalg.norm(A, axis=0)
    dead = (length == 0) | constant_columns(length**2, mean_x, float(weight.sum()))
    A[:, dead] = 0.0
    length[dead] = 1.0
    return A / length, B, share


def adapted_probabilities(problem: Problem, coef: NDArray, error: float) -> NDArray:
    r"""One step: :math:`\alpha_j = b_j^2 / (b_j^2 + R/n)` from coefficients (p, q) and the error of prediction.

    Signals of several targets are averaged. The expected size is kept below a share of the rows.
    """
    X = problem.X
    n = X.shape[0]
    weight = np.ones(n) if problem.weight is None else problem.weight
    mean = weighted_mean(X, weight) if problem.fit_intercept else np.zeros(X.shape[1])
    square = X.multiply(X) if sp.issparse(X) else X * X
    variance = np.maximum(weighted_mean(square, weight) - mean**2, 0.0)
    signal = np.mean(coef**2, axis=1) * variance
    chance = signal / (signal + error / n) if error > 0 else (signal > 0).astype(float)
    limit = LARGEST_SHARE * (n - problem.fit_intercept)
    chance = chance * min(1.0, limit / chance.sum()) if chance.sum() > 0 else chance
    if chance.sum() < 1:  # a member needs at least one column
        top = np.argmax(signal)
        chance[top] = min(1.0, chance[top] + 1 - chance.sum())
    return chance
