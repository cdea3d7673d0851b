r"""Weights of sampling schemes from the products of their errors in folds.

**Stacking.** Weights on the simplex that minimise the squared error of held-out predictions,
:math:`w'Sw`, averaged over random draws :math:`W_n(S)/n` of the error products S to allow for
sampling noise.

**Shrinkage.** Weights are shrunk towards a base of ridge and the null model, and further to the
null model, where the gain over them is within its noise. With errors e and e' of two ensembles at a
held-out row, u = e - e' and v = e + e', the difference of their squares is uv, with variance
mean(u^2) mean(v^2) + mean(uv)^2 where u and v are Gaussian.

Status: heuristic, measured in ``docs/tuning.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import TIE_TOL
from .._tuning.combining import simplex_weights

Array = NDArray[np.float64]

N_DRAWS = 24  # draws of the products of errors
FULL_SHRINKAGE_LEAD = (
    -0.5
)  # gain over the base, in standard errors, up to which the weights are those of the base
NO_SHRINKAGE_LEAD = 0.5  # gain, in standard errors, from which on the weights are the stacked ones
# lead of ridge over the null model without its best folds, in standard errors, to drop such folds
NULL_LEAD = 1.5
# in standard errors. On pure noise, 250 data sets of 300 x 150, the excess risk over that of the better of
# RidgeCV and LassoCV was 1.18 +- .07 with 0 and 1.10 +- .07 with .25; 35 tables did not change.
MIN_GAIN_OVER_NULL = 0.25
SEED = 24


@dataclass(frozen=True)
class FoldProducts:
    """Mean products of errors of schemes in folds."""

    products: Array  # (n_folds, n_schemes, n_schemes)
    fold_weights: Array  # (n_folds,) weights of the held-out rows
    n_repeats: int  # repeats of the division into folds
    n_rows: int

    def mean(self, fold_weights: Array | None = None) -> Array:
        """Mean over folds, (n_schemes, n_schemes)."""
        weights = self.fold_weights if fold_weights is None else fold_weights
        flat = self.products.reshape(len(weights), -1)
        return np.asarray((weights / weights.sum() @ flat).reshape(self.products.shape[1:]))

    def without_best(self, weights: Array, base: Array) -> Array:
        """Weights of the folds without the one, in each repeat, that gives most of the gain over a
        base.

        A gain that rests on one fold may rest on one row. Folds whose gains differ by rounding only
        are downweighted equally.
        """
        gains = self.fold_weights * np.einsum(
            "i,fij,j->f", base - weights, self.products, base + weights
        )
        steady = self.fold_weights.copy()
        for part in np.array_split(np.arange(len(gains)), self.n_repeats):
            if len(part) > 1:
                best = part[gains[part] >= gains[part].max() - TIE_TOL * np.abs(gains).max()]
                steady[best] *= 1 - 1 / len(best)
        return steady

    def lead(self, weights: Array, base: Array, fold_weights: Array) -> float:
        """Gain over a base in standard errors."""
        n_rows = self.n_rows * float(fold_weights.sum() / self.fold_weights.sum())
        S = self.mean(fold_weights)
        u = base - weights
        v = base + weights
        gain = float(u @ S @ v)
        variance = max(float(u @ S @ u), 0.0) * float(v @ S @ v) + gain**2
        return gain / float(np.sqrt(variance / n_rows)) if variance > 0 else 0.0


def stack(S: Array, n_rows: int) -> tuple[Array, float]:
    """Stacking weights (n_schemes,), and the optimism of their cross-validated error.

    Optimism is the mean amount by which a draw underestimates the error of the weights chosen from
    it.
    """
    if len(S) == 1:  # there is nothing to choose
        return np.ones(1), 0.0
    values, vectors = np.linalg.eigh(S)
    # the symmetric root: signs of eigenvectors are arbitrary, and would change the draw without the
    # second factor
    root = vectors * np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))) @ vectors.T
    rng = np.random.default_rng(SEED)
    k = len(S)
    count = max(n_rows, k)
    lower = np.empty((N_DRAWS, k, k))  # Bartlett: lower factors of W_n(S)
    diagonals = np.empty((N_DRAWS, k))
    for draw, diagonal in zip(lower, diagonals, strict=True):
        rng.standard_normal(out=draw)
        diagonal[:] = rng.chisquare(count - np.arange(k))
    lower = np.tril(lower, -1)
    np.einsum("cii->ci", lower)[:] = np.sqrt(diagonals)
    roots = root @ lower / np.sqrt(count)
    weights = simplex_weights(roots)
    drawn_errors = np.sum((weights[:, None, :] @ roots) ** 2, axis=(1, 2))
    optimism = np.einsum("ci,ij,cj->c", weights, S, weights) - drawn_errors
    return weights.mean(axis=0), max(0.0, float(optimism.mean()))


def shrink_to_ridge(
    weights: Array, errors: FoldProducts, ridge: int, null: int, *, with_null: bool
) -> Array:
    """Shrink weights to a base of ridge, and of the null model if it is a candidate, unless weights
    are clearly better.

    The gain over the base must also hold without the best fold of each repeat.
    """
    only_ridge = np.eye(len(weights))[ridge]
    only_null = np.eye(len(weights))[null]
    steady = errors.without_best(only_null, only_ridge)
    ridge_is_better = errors.lead(only_ridge, only_null, steady) > NULL_LEAD
    S = errors.mean(steady if ridge_is_better else None)
    base = _base(S, ridge, null) if with_null else only_ridge
    steady = errors.without_best(weights, base)
    lead = min(errors.lead(weights, base, errors.fold_weights), errors.lead(weights, base, steady))
    fraction = (lead - FULL_SHRINKAGE_LEAD) / (NO_SHRINKAGE_LEAD - FULL_SHRINKAGE_LEAD)
    return np.asarray(base + np.clip(fraction, 0.0, 1.0) * (weights - base))


def shrink_to_null(weights: Array, errors: FoldProducts, null: int) -> Array:
    """Shrink weights to the null model: fully up to a gain over it of MIN_GAIN_OVER_NULL, not at all
    from one standard error more on.
    """
    only_null = np.eye(len(weights))[null]
    steady = errors.without_best(only_null, weights)
    lead = max(
        errors.lead(weights, only_null, steady) - NULL_LEAD,
        errors.lead(weights, only_null, errors.fold_weights),
    )
    return np.asarray(
        only_null + np.clip(lead - MIN_GAIN_OVER_NULL, 0.0, 1.0) * (weights - only_null)
    )


def _base(S: Array, ridge: int, null: int) -> Array:
    """Ridge and the null model in the proportion of least error."""
    base = np.zeros(len(S))
    distance = S[ridge, ridge] - 2 * S[ridge, null] + S[null, null]
    ridge_weight = (S[null, null] - S[ridge, null]) / distance if distance > 0 else 1.0
    base[ridge] = min(max(float(ridge_weight), 0.0), 1.0)
    base[null] = 1 - base[ridge]
    return base
