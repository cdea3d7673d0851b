"""The penalty of ridge regression on standardised columns, tuned by leave-one-out or over folds.

One symmetric eigendecomposition on the smaller side of the data gives every penalty, down to 1e-9 of the largest
eigenvalue. Penalties are in units of p over the weight of the rows, in which the best one is the ratio of noise to
signal, however many rows there are (see ``signals``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import one_blas_thread
from .._members.problem import Problem
from .._moments import Moments, weighted_mean
from .._trust import constant_columns
from ..subsets import penalty_of_size
from . import on_device
from .paths import Splits

__all__ = ["blas_for", "few_folds", "few_splits", "ridge_penalty", "ridge_penalty_of_folds"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LARGEST_SHARE = 0.7  # of the rows: degrees of freedom at most
COARSE, FINE = 49, 7  # penalties on twelve decades, and between the neighbours of the best of them
SMALLEST_SIZE = 0.05  # degrees of freedom below which a penalty is not tried
MOST_FOLDS = 10  # in which ridge regression is tuned
SMALL_FLOPS = 5e9  # of a Gram matrix, a second or so with its eigenvectors, below which BLAS keeps to one thread
ENTRIES = 1 << 18  # numbers in a block of rows: it stays in a cache


def ridge_penalty(problem: Problem, splits: Splits | None = None) -> float | None:
    """The penalty of least leave-one-out error, or over given splits; None where all columns are constant."""
    with blas_for(problem.shape):
        A, B, share, root = _standardised(problem)
        p = int(A.shape[1])
        U, s2, _ = _factor(A)
        if not len(s2):
            return None
        if splits is None:
            limit, UB = LARGEST_SHARE * (len(A) - problem.fit_intercept), U.T @ B
            return _least(lambda penalties: _left_out_error(U, s2, UB, B, share, penalties), s2, limit) / p
        splits = few_splits(splits, problem.shape[0], MOST_FOLDS)
        limit = LARGEST_SHARE * (min(len(train) for train, _ in splits) - problem.fit_intercept)
        parts = [_SplitRidge.of(A, B, root, split, centred=problem.fit_intercept) for split in splits]
        return _least(lambda penalties: _summed([part.squared_error(penalties) for part in parts]), s2, limit) / p


def ridge_penalty_of_folds(folds: list[Moments]) -> float | None:
    r"""The same from moments of folds of rows: tuned by cross-validation over the folds.

    Columns are standardised by their spread over all rows. With :math:`G = E S E'` and c of the training rows, the
    coefficients are :math:`b = E (S + \lambda)^{-1} E'c`, and the error on a fold is a quadratic form in them.
    """
    folds = few_folds(folds, MOST_FOLDS)
    whole = Moments.merge_all(folds)
    limit = LARGEST_SHARE * (whole.n_rows - max(fold.n_rows for fold in folds) - whole.centred)
    if not whole.space.on_host:
        values, vectors, error_there = on_device.folded_ridge(folds, whole)
        s2, _ = _falling(values, vectors)
        return _least(error_there, s2, limit) / len(vectors) if len(s2) else None
    length = np.sqrt(np.diagonal(whole.G))
    length = np.where(length > 0, length, 1.0)
    s2, _ = _eigen(whole.G / length / length[:, None])
    if not len(s2):
        return None
    parts = [_FoldedRidge.of(folds, f, length) for f in range(len(folds))]
    return _least(lambda penalties: _summed([part.squared_error(penalties) for part in parts]), s2, limit) / len(length)


def _summed(errors: list[Array]) -> Array:
    return np.asarray(np.sum(errors, axis=0))


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
