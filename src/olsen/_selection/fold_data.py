"""Train and test folds for comparing sampling schemes: rows in memory, or moments of folds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.problem import Problem
from .._moments import Moments, training_moments, weighted_mean
from .moment_curves import LeftOut
from .paths import Splits, moments_of_training_rows
from .signals import Signal, SignalOfGram, SignalOfRows

__all__ = ["Fold", "FoldData", "TestRows", "folds_of_moments", "folds_of_rows", "random_splits", "repeats_for"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FOLDS = 3
REPEATS = ((100, 5), (300, 3), (1000, 2))  # below so many rows, so many times: few rows leave the choice to the folds
SEED = 2020  # of the folds, whatever random_state: the same data, the same choice
TIE_COLUMNS = 16  # by which rows with equal targets are put in order
GRAM = 2 / 3  # columns for each row up to which Gram matrices are cheaper than rows
CONSTANT_TOL = 1e-5  # of a column's squares: with less left outside a fold, it counts as constant there


@dataclass(frozen=True)
class Fold:
    """Rows to fit on, and rows to judge by: rows in memory, or their moments.

    Coefficients (count, p) are of columns in common units, for one target.
    """

    signal: Signal  # the training rows
    unit: Array
    mean_x: Array  # of the training rows
    mean_y: Array
    weight: float  # of the test rows
    test: LeftOut | TestRows

    @property
    def rows(self) -> Indices | None:
        """Numbers of the test rows; None where only their moments are known."""
        return None if isinstance(self.test, LeftOut) else self.test.rows

    def residuals(self, coefs: Array) -> Array | None:
        """Of the test rows, (rows, count); None where only moments are known."""
        return None if isinstance(self.test, LeftOut) else np.asarray(self.test.Y - self.test.X @ coefs.T)

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of prediction, (count,)."""
        if isinstance(self.test, LeftOut):
            return np.asarray(self.test.errors((coefs / self.unit).T[:, :, None]))
        return np.asarray(self.test.weight @ (self.test.Y - self.test.X @ coefs.T) ** 2 / self.weight)

    def products(self, coefs: Array) -> Array:
        """Mean products of residuals, (count, count)."""
        if isinstance(self.test, LeftOut):
            return self.test.products((coefs / self.unit).T[:, :, None])
        residual = self.test.Y - self.test.X @ coefs.T
        return np.asarray(residual.T @ (self.test.weight[:, None] * residual) / self.weight)

    def in_users_units(self, coef: Array) -> tuple[Array, float]:
        """Coefficients (p,) of the columns as given, and the intercept."""
        found = coef / self.unit
        return found, float(self.mean_y[0] - self.mean_x @ found)


@dataclass(frozen=True)
class TestRows:
    """Left-out rows about the means of the training rows, columns in units."""

    __test__ = False  # nothing for pytest

    rows: Indices
    X: Array  # (rows, p)
    Y: Array  # (rows, 1)
    weight: Array  # (rows,)


@dataclass(frozen=True)
class FoldData:
    """All rows, and train and test folds, each row `repeats` times in a test fold."""

    whole: Signal
    unit: Array  # (p,) standard deviations of the columns
    n_rows: int
    folds: list[Fold]
    repeats: int


def repeats_for(n_rows: int) -> int:
    """How often rows in memory are divided into folds."""
    return next((repeats for most, repeats in REPEATS if n_rows < most), 1)


def random_splits(problem: Problem, repeats: int) -> Splits:
    """Rows in random folds, divided anew in every repeat; with very few rows one by one.

    Rows are numbered in the order of their targets (of equal ones, of their first columns), so that folds depend
    neither on the order in which rows are given nor on units.
    """
    n_rows = len(problem.Y)
    columns = [] if sp.issparse(problem.X) else list(problem.X[:, :TIE_COLUMNS].T[::-1])
    order = np.lexsort([*columns, problem.Y[:, 0]])
    count, splits = FOLDS if n_rows >= 3 * FOLDS else n_rows, []
    for repeat in range(repeats if count < n_rows else 1):
        fold = np.empty(n_rows, dtype=np.int64)
        fold[order[np.random.default_rng([SEED, repeat]).permutation(n_rows)]] = np.arange(n_rows) % count
        splits += [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]
    return splits


def folds_of_rows(problem: Problem, splits: Splits, repeats: int, sharing: Sharing) -> FoldData:
    """From rows in memory: by Gram matrices, or by the rows themselves where columns are more."""
    n, p = problem.shape
    weight = np.ones(n) if problem.weight is None else problem.weight
    X = problem.X.tocsr() if sp.issparse(problem.X) else problem.X
    whole, unit, training = (_by_gram if p <= GRAM * n else _by_rows)(problem, splits, repeats, sharing)
    folds = []
    for (_, test), (signal, mean_x, mean_y) in zip(splits, training, strict=True):
        away = ((X[test].toarray() if sp.issparse(X) else X[test]) - mean_x) / unit
        rows = TestRows(test, away, problem.Y[test] - mean_y, weight[test])
        folds.append(Fold(signal, unit, mean_x, mean_y, float(weight[test].sum()), rows))
    return FoldData(whole, unit, n, folds, repeats)


def folds_of_moments(parts: list[Moments]) -> FoldData:
    """From moments of folds of rows, wherever these were summed."""
    parts = [part.on_host() for part in parts]
    whole = Moments.merge_all(parts)
    unit = _units(np.diagonal(whole.G) / whole.weight)
    folds = []
    for part, rest in zip(parts, training_moments(parts), strict=True):
        signal = _signal(rest, unit, whole)
        folds.append(Fold(signal, unit, rest.mean_x, rest.mean_y, float(part.weight), LeftOut.of(part, rest)))
    return FoldData(_signal(whole, unit, whole), unit, whole.n_rows, folds, 1)


Training = list[tuple[Signal, Array, Array]]  # signal and means of the training rows of every split


def _by_gram(problem: Problem, splits: Splits, repeats: int, sharing: Sharing) -> tuple[Signal, Array, Training]:
    whole, each = problem.moments_by(sharing), len(splits) // repeats
    unit = _units(np.diagonal(whole.G) / whole.weight)
    training: Training = []
    for start in range(0, len(splits), each):
        for rest in moments_of_training_rows(problem, splits[start : start + each], sharing):
            training.append((_signal(rest, unit, whole), rest.mean_x, rest.mean_y))
    return _signal(whole, unit, whole), unit, training


def _by_rows(problem: Problem, splits: Splits, repeats: int, sharing: Sharing) -> tuple[Signal, Array, Training]:
    n, q = problem.Y.shape
    dense = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    weight = np.ones(n) if problem.weight is None else problem.weight

    def means(rows: Indices | slice) -> tuple[Array, Array]:
        if not problem.fit_intercept:
            return np.zeros(dense.shape[1]), np.zeros(q)
        return weighted_mean(dense[rows], weight[rows]), weighted_mean(problem.Y[rows], weight[rows])

    mean_x, mean_y = means(slice(None))
    root = np.sqrt(weight)
    A = np.subtract(dense, mean_x, order="F")
    A *= root[:, None]
    unit = _units(np.einsum("lj,lj->j", A, A) / weight.sum())
    A /= unit
    whole = SignalOfRows(A, (problem.Y - mean_y) * root[:, None], root, problem.fit_intercept)
    return whole, unit, [(whole.take(train), *means(train)) for train, _ in splits]


def _units(variance: Array) -> Array:
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0.0)), 1.0)


def _signal(moments: Moments, unit: Array, whole: Moments) -> Signal:
    """Of some of the rows; a column of which hardly anything is left in them is constant."""
    G, C = moments.G / unit / unit[:, None], moments.C / unit[:, None]
    gone = np.diagonal(moments.G) <= CONSTANT_TOL * np.diagonal(whole.G)
    if gone.any():
        G[gone], G[:, gone], C[gone] = 0.0, 0.0, 0.0
    return SignalOfGram(G, C, moments.n_rows, moments.weight)
