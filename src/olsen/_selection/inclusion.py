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

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq

from .._execution.blas_threads import one_blas_thread
from .._members.problem import Problem
from .._moments import Moments, weighted_mean
from .._trust import constant_columns
from . import on_device
from .paths import Splits

__all__ = ["RidgeFamily", "adapted_probabilities", "blas_for", "brought_to", "few_folds", "few_splits"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LARGEST_SHARE = 0.7  # of the rows: expected size of a member at most
FACTORS = np.array([1 / 4, 1 / 2, 1.0])  # of the size of tuned ridge regression, for the curve
COARSE, FINE = 49, 7  # penalties on twelve decades, and between the neighbours of the best of them
SMALLEST_SIZE = 0.05  # degrees of freedom below which a penalty is not tried: a member has one column at least
MOST_FOLDS = 10  # in which ridge regression is tuned
SMALL_FLOPS = 5e9  # of a Gram matrix, a second or so with its eigenvectors, below which BLAS keeps to one thread
ENTRIES = 1 << 18  # numbers in a block of rows: it stays in a cache


@dataclass(frozen=True)
class RidgeFamily:
    """Probabilities that mimic ridge regression on standardised columns, one law for every expected size.

    One symmetric eigendecomposition on the smaller side of the data gives every penalty. It resolves penalties down to
    1e-9 of the largest eigenvalue, beyond which a size near the row count would be matched anyway.
    """

    s2: Array  # (r,) squared singular values of the standardised columns, falling
    V2: Array  # (p, r) squared right singular vectors
    best_size: float  # effective degrees of freedom at the penalty of least estimated error
    best_error: float  # of ridge regression, there
    limit: float  # largest expected size that is tried

    @classmethod
    def of(cls, problem: Problem, splits: Splits | None = None) -> RidgeFamily:
        """Tune ridge regression by leave-one-out, or over given splits, and keep what its probabilities are made of."""
        with blas_for(problem.shape):
            return cls._of_splits(problem, splits) if splits is not None else cls._of_rows(problem)

    @classmethod
    def _of_rows(cls, problem: Problem) -> RidgeFamily:
        A, B, share, root = _standardised(problem)
        U, s2, V = _factor(A)
        limit = LARGEST_SHARE * (len(A) - problem.fit_intercept)
        unit, UB = float(np.mean(root**2)), U.T @ B

        def error(penalties: Array) -> Array:
            return _left_out_error(U, s2, UB, B, share, penalties) / unit

        return cls(s2, V**2, *_least(error, s2, limit, float(np.mean(B**2)) / unit), limit)

    @classmethod
    def _of_splits(cls, problem: Problem, splits: Splits) -> RidgeFamily:
        splits = few_splits(splits, problem.shape[0], MOST_FOLDS)
        A, B, _, root = _standardised(problem)
        _, s2, V = _factor(A)
        limit = LARGEST_SHARE * (min(len(train) for train, _ in splits) - problem.fit_intercept)
        parts = [_SplitRidge.of(A, B, root, split, centred=problem.fit_intercept) for split in splits]
        weight = sum(float(np.sum(root[test] ** 2)) for _, test in splits)

        def error(penalties: Array) -> Array:
            return np.asarray(sum(part.squared_error(penalties) for part in parts) / weight)

        return cls(s2, V**2, *_least(error, s2, limit, float(np.mean(B**2) / np.mean(root**2))), limit)

    @classmethod
    def of_folds(cls, folds: list[Moments]) -> RidgeFamily:
        r"""The same from moments of folds of rows: tuned by cross-validation over the folds.

        Columns are standardised by their spread over all rows. With :math:`G = E S E'` and c of the training rows, the
        coefficients are :math:`b = E (S + \lambda)^{-1} E'c`, and the error on a fold is a quadratic form in them.
        """
        folds = few_folds(folds, MOST_FOLDS)
        whole = Moments.merge_all(folds)
        limit = LARGEST_SHARE * (whole.n_rows - max(fold.n_rows for fold in folds) - whole.centred)
        nothing = float(np.mean(whole.space.get(whole.yy))) / whole.weight
        if not whole.space.on_host:
            *found, error_there = on_device.folded_ridge(folds, whole)
            s2, V2 = _falling(*found)
            return cls(s2, V2, *_least(error_there, s2, limit, nothing), limit)
        length = np.sqrt(np.diagonal(whole.G))
        length = np.where(length > 0, length, 1.0)
        s2, V = _eigen(whole.G / length / length[:, None])
        parts = [_FoldedRidge.of(folds, f, length) for f in range(len(folds))]

        def error(penalties: Array) -> Array:
            return np.asarray(sum(part.squared_error(penalties) for part in parts) / whole.weight)

        return cls(s2, V**2, *_least(error, s2, limit, nothing), limit)

    def probabilities(self, size: int) -> Array:
        """Probabilities that sum to `size`: those of the matching penalty.

        Beyond the rank of the columns no penalty matches; there they are drawn towards one, all alike.
        """
        p, rank = len(self.V2), len(self.s2)
        if not rank:
            return np.full(p, size / p)
        shrink = np.ones(rank) if size >= rank - 1e-6 else self.s2 / (self.s2 + _penalty(self.s2, size))
        chance: Array = np.clip(self.V2 @ shrink, 0.0, 1.0)
        rest = p - chance.sum()
        if rest > 1e-9:
            chance = chance + (1 - chance) * (size - chance.sum()) / rest  # nothing but rounding below the rank
        return np.clip(chance, 0.0, 1.0)

    @property
    def best_penalty(self) -> float | None:
        """The penalty of least estimated error in units of p over the rows; None where columns are constant.

        In these units it is the ratio of noise to signal, however many rows there are (see ``signals``).
        """
        rank = len(self.s2)
        if not rank:
            return None
        low = min(self.best_size, rank - 1e-3 * rank)
        return _penalty(self.s2, low) / len(self.V2)

    def nearest(self, sizes: Indices) -> int:
        """Position of the size next to that of tuned ridge regression."""
        return int(np.argmin(np.abs(sizes - self.best_size)))

    def sizes(self, largest: int) -> Indices:
        """The size of tuned ridge regression, and a few below it that show how the error falls.

        Larger ones would show how it turns, at twice the price of all the others together.
        """
        top = max(1, min(largest, int(self.limit), len(self.V2)))
        return np.unique(np.clip(np.rint(self.best_size * FACTORS), 1, top)).astype(np.int64)


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


def _least(error: Callable[[Array], Array], s2: Array, limit: float, nothing: float) -> tuple[float, float]:
    """Effective degrees of freedom at the penalty of least error, and that error; `nothing` is the error of no column.

    A coarse grid over twelve decades, then a fine one between the neighbours of its best point.
    """
    if not len(s2):
        return 1.0, nothing
    grid = np.geomspace(s2[0] * 1e-9, s2[0] * 1e3, COARSE)
    degrees = np.sum(s2[:, None] / (s2[:, None] + grid), axis=0)
    inside = grid[(degrees <= limit) & (degrees > SMALLEST_SIZE)]
    grid = inside if degrees[0] <= limit else np.r_[_penalty(s2, limit), inside]
    found = error(grid)
    best = int(np.argmin(found))
    fine = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], FINE + 2)[1:-1]
    grid, found = np.r_[grid, fine], np.r_[found, error(fine)]
    best = int(np.argmin(found))
    return max(1.0, float(np.sum(s2 / (s2 + grid[best])))), float(found[best])


def _penalty(s2: Array, size: float) -> float:
    """The penalty with so many effective degrees of freedom, below the rank."""

    def excess(log_penalty: float) -> float:
        return float(np.sum(s2 / (s2 + np.exp(log_penalty)))) - size

    return float(np.exp(brentq(excess, np.log(s2[-1]) - 60, np.log(s2[0]) + 60, xtol=1e-10)))


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


@dataclass(frozen=True)
class _SplitRidge:
    """Ridge regression on the rows of a split, in the eigenvectors of their smaller side: predictions of the others."""

    s2: Array  # (r,) of the training rows
    c: Array  # (r, q) what coefficients are made of
    T: Array  # (rows, r) left-out rows in the same coordinates, times the root of their weight
    Y: Array  # (rows, q) left-out targets, likewise

    @classmethod
    def of(cls, A: Array, B: Array, root: Array, split: tuple[Indices, Indices], *, centred: bool) -> _SplitRidge:
        """From rows and targets about the means of all rows, times the root of their weight."""
        train, test = split
        X, Y, away, target = A[train], B[train], A[test], B[test]
        if centred:  # about the means of the training rows
            own = root[train] / np.sum(root[train] ** 2)
            mean_x, mean_y = own @ X, own @ Y
            X, Y = X - root[train, None] * mean_x, Y - root[train, None] * mean_y
            away, target = away - root[test, None] * mean_x, target - root[test, None] * mean_y
        if len(X) < X.shape[1]:
            s2, E = _eigen(X @ X.T)
            return cls(s2, E.T @ Y, away @ (X.T @ E), target)
        s2, E = _eigen(X.T @ X)
        return cls(s2, E.T @ (X.T @ Y), away @ E, target)

    def squared_error(self, penalties: Array) -> Array:
        """Weighted sum of squared errors at the left-out rows for every penalty, averaged over targets."""
        total = np.zeros(len(penalties))
        for y, c in zip(self.Y.T, self.c.T, strict=True):
            residual = y[:, None] - self.T @ (c[:, None] / (self.s2[:, None] + penalties))
            total += np.einsum("lp,lp->p", residual, residual)
        return np.asarray(total / self.c.shape[1])


@dataclass(frozen=True)
class _FoldedRidge:
    """Ridge regression on all folds but one, in the eigenvectors of their Gram matrix, and the moments of that one."""

    s2: Array  # (r,) of the training rows, standardised
    c: Array  # (r, q) E'c of the training rows
    G: Array  # (r, r) E'GE of the test rows
    test_c: Array  # (r, q) E'c of the test rows
    shift: Array  # (r,) E'(difference of the means of x)
    shift_y: Array  # (q,) difference of the means of y
    yy: Array  # (q,) of the test rows
    weight: float  # of the test rows

    @classmethod
    def of(cls, folds: list[Moments], left_out: int, length: Array) -> _FoldedRidge:
        train, test = Moments.merge_others(folds, left_out), folds[left_out]
        s2, E = _eigen(train.G / length / length[:, None])
        scaled = E / length[:, None]
        return cls(
            s2,
            scaled.T @ train.C,
            scaled.T @ test.G @ scaled,
            scaled.T @ test.C,
            scaled.T @ (test.mean_x - train.mean_x),
            test.mean_y - train.mean_y,
            test.yy,
            test.weight,
        )

    def squared_error(self, penalties: Array) -> Array:
        """Weighted sum of squared errors on the left-out fold for every penalty, averaged over targets."""
        total = np.zeros(len(penalties))
        for t, c in enumerate(self.c.T):
            b = c[:, None] / (self.s2[:, None] + penalties)
            offset = self.shift_y[t] - self.shift @ b
            fit = np.einsum("rp,rp->p", b, self.G @ b) - 2 * self.test_c[:, t] @ b
            total += self.yy[t] + fit + self.weight * offset**2
        return np.asarray(total / self.c.shape[1])


def _eigen(G: Array) -> tuple[Array, Array]:
    """Eigenvalues in falling order and eigenvectors, without those that are rounding."""
    return _falling(*np.linalg.eigh(G))


def _falling(s2: Array, E: Array) -> tuple[Array, Array]:
    """Rising eigenvalues and their columns in falling order, without those that are rounding."""
    keep = s2 > s2[-1] * 1e-13 if len(s2) and s2[-1] > 0 else np.zeros(len(s2), dtype=bool)
    return s2[keep][::-1], E[:, keep][:, ::-1]


def _factor(A: Array) -> tuple[Array, Array, Array]:
    """U (n, r), squared singular values (r,) in falling order and V (p, r) of A, without those that are rounding."""
    wide = A.shape[0] < A.shape[1]
    s2, E = _eigen(A @ A.T if wide else A.T @ A)
    other = (A.T if wide else A) @ (E / np.sqrt(s2))
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
    A, B = X - mean_x, (problem.Y - mean_y) * np.sqrt(weight)[:, None]
    if problem.weight is not None:
        A *= np.sqrt(weight)[:, None]
    length = np.sqrt(np.einsum("lj,lj->j", A, A))
    dead = (length == 0) | constant_columns(length**2, mean_x, float(weight.sum()))
    A[:, dead] = 0.0
    length[dead] = 1.0
    A /= length
    return A, B, share, np.sqrt(weight)


def adapted_probabilities(variance: Array, coef: Array, error: float, n: int, *, centred: bool) -> Array:
    r"""One step: :math:`\alpha_j = b_j^2 / (b_j^2 + 2 R/n)` from coefficients (p, q) and the error of prediction.

    `variance` is that of the columns over n rows. Signals of several targets are averaged. The expected size is kept
    below a share of the rows.
    """
    signal = np.mean(coef**2, axis=1) * variance
    chance = signal / (signal + 2 * error / n) if error > 0 else (signal > 0).astype(float)
    limit = LARGEST_SHARE * (n - centred)
    chance = chance * min(1.0, limit / chance.sum()) if chance.sum() > 0 else chance
    if chance.sum() < 1:  # a member needs at least one column
        top = np.argmax(signal)
        chance[top] = min(1.0, chance[top] + 1 - chance.sum())
    return np.asarray(chance)


def brought_to(chance: Array, size: float) -> Array:
    """Probabilities in proportion to given ones, at most one, that sum to `size`; all alike where those are used up."""
    positive = np.maximum(chance, 1e-12)

    def excess(log_factor: float) -> float:
        return float(np.minimum(1.0, np.exp(log_factor) * positive).sum()) - size

    if size >= len(chance):
        return np.ones(len(chance))
    return np.asarray(np.minimum(1.0, np.exp(brentq(excess, -60.0, 60.0, xtol=1e-12)) * positive))
