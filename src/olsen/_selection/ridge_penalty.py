"""The penalty of ridge regression on standardised columns, tuned by leave-one-out or over folds.

One symmetric eigendecomposition on the smaller side of the data gives every penalty, down to 1e-9 of the largest
eigenvalue. Penalties are in units of p over the weight of the rows, in which the best one is the ratio of noise to
signal, however many rows there are (see ``signals``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import one_blas_thread
from .._members.problem import Problem
from .._moments import Moments, weighted_mean
from .._trust import constant_columns
from ..subsets import penalty_of_size
from .fold_data import FoldData
from .paths import Splits

__all__ = ["blas_for", "few_folds", "few_splits", "ridge_penalty", "ridge_penalty_of_folds"]

Array = NDArray[np.float64]

LARGEST_SHARE = 0.7  # of the rows: degrees of freedom at most
COARSE, FINE = 49, 7  # penalties on twelve decades, and between the neighbours of the best of them
SMALLEST_SIZE = 0.05  # degrees of freedom below which a penalty is not tried
SMALL_FLOPS = 5e9  # of a Gram matrix, a second or so with its eigenvectors, below which BLAS keeps to one thread
ENTRIES = 1 << 18  # numbers in a block of rows: it stays in a cache


def ridge_penalty(problem: Problem) -> float | None:
    """The penalty of least leave-one-out error; None where all columns are constant."""
    with blas_for(problem.shape):
        A, B, share = _standardised(problem)
        U, s2 = _factor(A)
        if not len(s2):
            return None
        limit, UB = LARGEST_SHARE * (len(A) - problem.fit_intercept), U.T @ B
        return _least(lambda penalties: _left_out_error(U, s2, UB, B, share, penalties), s2, limit) / len(A.T)


def ridge_penalty_of_folds(data: FoldData, lost: int) -> float | None:
    """The same tuned over folds; `lost` degrees of freedom of the rows go to the intercept."""
    p = len(data.unit)
    with blas_for((data.n_rows, p)):
        s2, _ = _eigen(data.whole.products)
        if not len(s2):
            return None
        fits = [(fold, fold.signal.penalised(np.ones(p))) for fold in data.folds]
        weight = np.array([fold.weight for fold in data.folds])

        def error(penalties: Array) -> Array:
            found = [fold.errors(fit.coefficients(penalties / fit.unit)[:, :, 0]) for fold, fit in fits]
            return np.asarray(weight @ np.stack(found))

        limit = LARGEST_SHARE * (min(fold.signal.n_rows for fold in data.folds) - lost)
        return _least(error, s2, limit) / p / data.whole.weight


def few_folds(folds: list[Moments], most: int) -> list[Moments]:
    """So many folds at most, joined where there are more."""
    return folds if len(folds) <= most else [Moments.merge_all(folds[f::most]) for f in range(most)]


def few_splits(splits: Splits, n: int, most: int) -> Splits:
    """The same of splits of n rows; where these are no partition, the first ones of them."""
    if len(splits) <= most:
        return splits
    if not np.array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(n)):
        return splits[:most]
    joined = [np.concatenate([test for _, test in splits[f::most]]) for f in range(most)]
    return [(np.setdiff1d(np.arange(n), test), test) for test in joined]


def blas_for(shape: tuple[int, int]) -> AbstractContextManager[None]:
    """One thread of BLAS for small matrices: further ones would spin for longer than they help."""
    n, p = shape
    return one_blas_thread() if n * p * min(n, p) < SMALL_FLOPS else nullcontext()


def _least(error: Callable[[Array], Array], s2: Array, limit: float) -> float:
    """The penalty of least error on a coarse grid over twelve decades, then between the neighbours of its best."""
    grid = np.geomspace(s2[0] * 1e-9, s2[0] * 1e3, COARSE)
    degrees = np.sum(s2[:, None] / (s2[:, None] + grid), axis=0)
    inside = grid[(degrees <= limit) & (degrees > SMALLEST_SIZE)]
    grid = inside if degrees[0] <= limit else np.r_[penalty_of_size(s2, limit), inside]
    if not len(grid):
        return float(s2[0])
    best = int(np.argmin(error(grid)))
    fine = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], FINE)
    return float(fine[np.argmin(error(fine))])


def _left_out_error(U: Array, s2: Array, UB: Array, B: Array, share: Array, penalties: Array) -> Array:
    """Mean squared leave-one-out residuals of ridge regression, for all penalties in two products a block of rows."""
    shrink = s2[:, None] / (s2[:, None] + penalties)
    total = np.zeros(len(penalties))
    step = max(1, ENTRIES // (U.shape[1] + len(penalties)))
    for start in range(0, len(U), step):
        rows = slice(start, start + step)
        left = 1 - (U[rows] ** 2) @ shrink - share[rows, None]
        for t in range(B.shape[1]):
            residual = B[rows, t, None] - U[rows] @ (shrink * UB[:, t, None])
            residual /= left
            total += np.einsum("lp,lp->p", residual, residual)
    return total / B.size


def _eigen(G: Array) -> tuple[Array, Array]:
    """Eigenvalues in falling order and eigenvectors, without those that are rounding."""
    s2, E = np.linalg.eigh(G)
    keep = s2 > s2[-1] * 1e-13 if len(s2) and s2[-1] > 0 else np.zeros(len(s2), dtype=bool)
    return s2[keep][::-1], E[:, keep][:, ::-1]


def _factor(A: Array) -> tuple[Array, Array]:
    """U (n, r) and squared singular values (r,) of A in falling order, without those that are rounding."""
    if A.shape[0] < A.shape[1]:
        s2, U = _eigen(A @ A.T)
        return U, s2
    s2, V = _eigen(A.T @ A)
    return A @ (V / np.sqrt(s2)), s2


def _standardised(problem: Problem) -> tuple[Array, Array, Array]:
    """Centred, root-weighted columns of unit length, centred targets, every row's share in the means."""
    X = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    n = len(X)
    weight = np.ones(n) if problem.weight is None else problem.weight
    mean_x, mean_y, share = np.zeros(X.shape[1]), np.zeros(problem.Y.shape[1]), np.zeros(n)
    if problem.fit_intercept:
        mean_x, mean_y = weighted_mean(X, weight), weighted_mean(problem.Y, weight)
        share = weight / weight.sum()
    A, B = X - mean_x, (problem.Y - mean_y) * np.sqrt(weight)[:, None]
    if problem.weight is not None:
        A *= np.sqrt(weight)[:, None]
    length = np.sqrt(np.einsum("lj,lj->j", A, A))
    dead = (length == 0) | constant_columns(length**2, mean_x, float(weight.sum()))
    A[:, dead] = 0.0
    length[dead] = 1.0
    A /= length
    return A, B, share
