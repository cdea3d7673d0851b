r"""Inclusion probabilities that differ from column to column.

**Ridge-matched.** :math:`\alpha_j = [G (G + \lambda I)^{-1}]_{jj}` on standardised columns: an ensemble with these
probabilities behaves like ridge regression with penalty :math:`\lambda` (status: heuristic; answers the paper's
question in section 5.1). The penalty is the one of least leave-one-out error among those that keep the expected size
well below the number of rows; beyond, members would sit on the interpolation peak.

**Adaptive.** The best probabilities for a known signal and uncorrelated columns are :math:`\alpha_j = b_j^2 / (b_j^2 +
R/n)`, :math:`b_j` the standardised coefficient and R the error of prediction. Starting from a uniform ensemble, put in
its own coefficients and error and repeat: columns without signal die out (status: heuristic). An estimated square
carries R/n of noise itself, so the error counts twice; in simulation (5 of 80 columns with signal) that lowered the
risk by 40 %. The subsets then depend on y, so leave-one-out says nothing about them; only cross-validation that repeats
every step does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from ._members.problem import Problem
from ._moments import constant_columns, weighted_mean

__all__ = ["RidgeMatch", "adapted_probabilities", "ridge_match"]

LARGEST_SHARE = 0.7  # of the rows: expected size of a member at most


@dataclass(frozen=True)
class RidgeMatch:
    """Ridge regression tuned by leave-one-out, and the probabilities that mimic it."""

    probabilities: NDArray[np.float64]  # (p,)
    penalty: float  # on standardised columns
    residual: NDArray[np.float64]  # (n, q) leave-one-out residuals of ridge


def ridge_match(problem: Problem) -> RidgeMatch:
    """Tune ridge regression on standardised columns and match it.

    One symmetric eigendecomposition on the smaller side of the data gives every penalty. It resolves penalties down to
    1e-9 of the largest eigenvalue, beyond which a size near the row count would be matched anyway.
    """
    A, B, share, root = _standardised(problem)
    U, s2, V = _factor(A)
    if not len(s2):
        return RidgeMatch(np.full(A.shape[1], 1 / A.shape[1]), np.inf, B / root[:, None])
    limit = LARGEST_SHARE * (len(A) - problem.fit_intercept)
    UB, U2 = U.T @ B, U**2
    best: tuple[float, float, NDArray | None] = (np.inf, np.inf, None)
    for penalty in np.geomspace(s2[0] * 1e-9, s2[0] * 1e3, 150):
        shrink = s2 / (s2 + penalty)
        if shrink.sum() > limit:
            continue
        residual = (B - U @ (shrink[:, None] * UB)) / (1 - U2 @ shrink - share)[:, None]
        error = float(np.mean(residual**2))
        if error < best[0]:
            best = (error, float(penalty), residual / root[:, None])
    chance = V**2 @ (s2 / (s2 + best[1]))
    assert best[2] is not None  # the largest penalty matches a size near zero, so one is always allowed
    chance = np.clip(chance, 0.0, 1.0)
    return RidgeMatch(np.minimum(1.0, chance / min(1.0, chance.sum())), best[1], best[2])  # at least one column


def _factor(A):
    """U (n, r), squared singular values (r,) in falling order and V (p, r) of A, without those that are rounding."""
    wide = A.shape[0] < A.shape[1]
    s2, E = la.eigh(A @ A.T if wide else A.T @ A, check_finite=False)
    keep = s2 > s2[-1] * 1e-13 if len(s2) and s2[-1] > 0 else np.zeros(len(s2), dtype=bool)
    s2, E = s2[keep][::-1], E[:, keep][:, ::-1]
    other = (A.T if wide else A) @ E / np.sqrt(s2)
    return (E, s2, other) if wide else (other, s2, E)


def _standardised(problem: Problem):
    """Centred, root-weighted columns of unit length, centred targets, every row's share in the means, root weights."""
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
    return A / length, B, share, np.sqrt(weight)


def adapted_probabilities(problem: Problem, coef: NDArray, error: float) -> NDArray:
    r"""One step: :math:`\alpha_j = b_j^2 / (b_j^2 + 2 R/n)` from coefficients (p, q) and the error of prediction.

    Signals of several targets are averaged. The expected size is kept below a share of the rows.
    """
    X = problem.X
    n = X.shape[0]
    weight = np.ones(n) if problem.weight is None else problem.weight
    mean = weighted_mean(X, weight) if problem.fit_intercept else np.zeros(X.shape[1])
    square = X.multiply(X) if sp.issparse(X) else X * X
    variance = np.maximum(weighted_mean(square, weight) - mean**2, 0.0)
    signal = np.mean(coef**2, axis=1) * variance
    chance = signal / (signal + 2 * error / n) if error > 0 else (signal > 0).astype(float)
    limit = LARGEST_SHARE * (n - problem.fit_intercept)
    chance = chance * min(1.0, limit / chance.sum()) if chance.sum() > 0 else chance
    if chance.sum() < 1:  # a member needs at least one column
        top = np.argmax(signal)
        chance[top] = min(1.0, chance[top] + 1 - chance.sum())
    return chance
