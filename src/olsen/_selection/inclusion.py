r"""Inclusion probabilities that differ from column to column.

**Ridge-matched.** :math:`\alpha_j = [G (G + \lambda I)^{-1}]_{jj}` on standardised columns: an ensemble with these
probabilities behaves like ridge regression with penalty :math:`\lambda` (status: heuristic; answers the paper's
question in section 5.1). There is one law for every expected size, and sizes are compared like those of uniform
members. They stay well below the number of rows; beyond, members would sit on the interpolation peak.

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
from scipy.optimize import brentq

from .._members.problem import Problem
from .._moments import weighted_mean
from .._trust import constant_columns

__all__ = ["RidgeFamily", "adapted_probabilities", "brought_to"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LARGEST_SHARE = 0.7  # of the rows: expected size of a member at most
FACTORS = np.array([1 / 8, 1 / 4, 1 / 2, 0.7, 1.0, 1.4])  # of the size of tuned ridge regression, for the curve


@dataclass(frozen=True)
class RidgeFamily:
    """Probabilities that mimic ridge regression on standardised columns, one law for every expected size.

    One symmetric eigendecomposition on the smaller side of the data gives every penalty. It resolves penalties down to
    1e-9 of the largest eigenvalue, beyond which a size near the row count would be matched anyway.
    """

    s2: Array  # (r,) squared singular values of the standardised columns, falling
    V2: Array  # (p, r) squared right singular vectors
    best_size: float  # effective degrees of freedom at the penalty of least leave-one-out error
    best_error: float  # of ridge regression, there
    limit: float  # largest expected size that is tried

    @classmethod
    def of(cls, problem: Problem) -> RidgeFamily:
        """Tune ridge regression and keep what its probabilities are made of."""
        A, B, share, root = _standardised(problem)
        mean_weight = float(np.mean(root**2))
        U, s2, V = _factor(A)
        limit = LARGEST_SHARE * (len(A) - problem.fit_intercept)
        if not len(s2):
            return cls(s2, np.zeros((A.shape[1], 0)), 1.0, float(np.mean(B**2)) / mean_weight, limit)
        UB, U2 = U.T @ B, U**2
        best = (np.inf, 1.0)
        for penalty in np.geomspace(s2[0] * 1e-9, s2[0] * 1e3, 150):
            shrink = s2 / (s2 + penalty)
            if shrink.sum() > limit:
                continue
            residual = (B - U @ (shrink[:, None] * UB)) / (1 - U2 @ shrink - share)[:, None]
            best = min(best, (float(np.mean(residual**2)), float(shrink.sum())))
        return cls(s2, V**2, max(1.0, best[1]), best[0] / mean_weight, limit)

    def probabilities(self, size: int) -> Array:
        """Probabilities that sum to `size`: those of the matching penalty.

        Beyond the rank of the columns no penalty matches; there they are drawn towards one, all alike.
        """
        p, rank = len(self.V2), len(self.s2)
        if not rank:
            return np.full(p, size / p)
        shrink = np.ones(rank) if size >= rank - 1e-6 else self.s2 / (self.s2 + self._penalty(size))
        chance: Array = np.clip(self.V2 @ shrink, 0.0, 1.0)
        rest = p - chance.sum()
        if rest > 1e-9:
            chance = chance + (1 - chance) * (size - chance.sum()) / rest  # nothing but rounding below the rank
        return np.clip(chance, 0.0, 1.0)

    def _penalty(self, size: int) -> float:
        """The penalty with so many effective degrees of freedom."""

        def excess(log_penalty: float) -> float:
            return float(np.sum(self.s2 / (self.s2 + np.exp(log_penalty)))) - size

        return float(np.exp(brentq(excess, np.log(self.s2[-1]) - 60, np.log(self.s2[0]) + 60, xtol=1e-10)))

    def sizes(self, largest: int) -> Indices:
        """The size of tuned ridge regression, and a few around it that show how the error falls and turns."""
        top = max(1, min(largest, int(self.limit), len(self.V2)))
        return np.unique(np.clip(np.rint(self.best_size * FACTORS), 1, top)).astype(np.int64)


def _factor(A: Array) -> tuple[Array, Array, Array]:
    """U (n, r), squared singular values (r,) in falling order and V (p, r) of A, without those that are rounding."""
    wide = A.shape[0] < A.shape[1]
    s2, E = la.eigh(A @ A.T if wide else A.T @ A, check_finite=False)
    keep = s2 > s2[-1] * 1e-13 if len(s2) and s2[-1] > 0 else np.zeros(len(s2), dtype=bool)
    s2, E = s2[keep][::-1], E[:, keep][:, ::-1]
    other = (A.T if wide else A) @ E / np.sqrt(s2)
    return (E, s2, other) if wide else (other, s2, E)


def _standardised(problem: Problem) -> tuple[Array, Array, Array, Array]:
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


def adapted_probabilities(problem: Problem, coef: Array, error: float) -> Array:
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
    return np.asarray(chance)


def brought_to(chance: Array, size: int) -> Array:
    """Probabilities in proportion to given ones, at most one, that sum to `size`; all alike where those are used up."""
    positive = np.maximum(chance, 1e-12)

    def excess(log_factor: float) -> float:
        return float(np.minimum(1.0, np.exp(log_factor) * positive).sum()) - size

    if size >= len(chance):
        return np.ones(len(chance))
    return np.asarray(np.minimum(1.0, np.exp(brentq(excess, -60.0, 60.0, xtol=1e-12)) * positive))
