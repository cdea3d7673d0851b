"""Train and test folds for comparing sampling schemes: rows in memory, or moments of folds.

Training moments are those of all rows less those of the fold. Subtracting Gram matrices costs digits, which would be
wrong for an answer; here they only compare schemes, and ``signals`` adds 1e-8 of the diagonal to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.problem import Problem
from .._moments import Moments, from_data, weighted_mean
from .folds import LeftOut
from .paths import Splits
from .signals import Signal, SignalOfGram, SignalOfRows

__all__ = ["Fold", "FoldData", "folds_of_moments", "folds_of_rows", "random_splits", "repeats_for"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FOLDS = 3
REPEATS = ((100, 5), (300, 3), (1000, 2))  # below so many rows, so many times: few rows leave the choice to the folds
SEED = 2020  # of the folds, whatever random_state: the same data, the same choice
TIE_COLUMNS = 16  # by which rows with equal targets are put in order
CONSTANT_TOL = 1e-5  # of a column's squares: with less left outside a fold, it counts as constant there


class Fold(Protocol):
    """Rows to fit on, and rows to judge by. Coefficients (count, p) are of columns in common units, for one target."""

    @property
    def signal(self) -> Signal:
        """The training rows."""

    @property
    def weight(self) -> float:
        """Of the test rows."""

    @property
    def rows(self) -> Indices | None:
        """Numbers of the test rows; None where only their moments are known."""

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of prediction, (count,)."""

    @property
    def row_weight(self) -> Array | None:
        """Of every test row; None where only moments are known."""

    def residuals(self, coefs: Array) -> Array | None:
        """Of the test rows, (rows, count); None where only moments are known."""

    def products(self, coefs: Array) -> Array:
        """Mean products of residuals, (count, count)."""

    def in_users_units(self, coef: Array) -> tuple[Array, float]:
        """Coefficients (p,) of the columns as given, and the intercept."""


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


# Rows in memory


@dataclass(frozen=True)
class _RowFold:
    signal: Signal
    rows: Indices
    X: Array  # (rows, p) test rows about the means of the training rows, in units
    Y: Array  # (rows, q)
    row_weight: Array  # (rows,)
    unit: Array
    mean_x: Array
    mean_y: Array

    @property
    def weight(self) -> float:
        return float(self.row_weight.sum())

    def residuals(self, coefs: Array) -> Array:
        return np.asarray(self.Y - self.X @ coefs.T)

    def errors(self, coefs: Array) -> Array:
        return np.asarray(self.row_weight @ self.residuals(coefs) ** 2 / self.weight)

    def products(self, coefs: Array) -> Array:
        residual = self.residuals(coefs)
        return np.asarray(residual.T @ (self.row_weight[:, None] * residual) / self.weight)

    def in_users_units(self, coef: Array) -> tuple[Array, float]:
        found = coef / self.unit
        return found, float(self.mean_y[0] - self.mean_x @ found)


def folds_of_rows(problem: Problem, splits: Splits, repeats: int, sharing: Sharing) -> FoldData:
    """From rows in memory: by Gram matrices, or by the rows themselves where columns are more."""
    n, p = problem.shape
    make = _by_gram if p <= n else _by_rows
    whole, unit, signal_of = make(problem, sharing)
    X = problem.X.tocsr() if sp.issparse(problem.X) else problem.X
    weight = np.ones(n) if problem.weight is None else problem.weight
    folds: list[Fold] = []
    for train, test in splits:
        signal, mean_x, mean_y = signal_of(train, test)
        away = X[test].toarray() if sp.issparse(X) else X[test]
        away = (away - mean_x) / unit
        folds.append(_RowFold(signal, test, away, problem.Y[test] - mean_y, weight[test], unit, mean_x, mean_y))
    return FoldData(whole, unit, n, folds, repeats)


Train = Callable[[Indices, Indices], tuple[Signal, Array, Array]]  # rows to train and to test on -> signal, means


def _by_gram(problem: Problem, sharing: Sharing) -> tuple[Signal, Array, Train]:
    whole, n = problem.moments_by(sharing), problem.shape[0]
    unit = _units(np.diagonal(whole.G) / whole.weight)

    def moments(rows: Indices) -> Moments:
        part = problem.take(rows)
        return from_data(part.X, part.Y, part.weight, centre=part.fit_intercept, mapper=sharing)

    def train_on(train: Indices, test: Indices) -> tuple[Signal, Array, Array]:
        partition = len(train) + len(test) == n and not np.isin(test, train).any()
        rest = _without(whole, moments(test)) if partition else moments(train)
        return _signal(rest, unit), rest.mean_x, rest.mean_y

    return _signal(whole, unit), unit, train_on


def _by_rows(problem: Problem, sharing: Sharing) -> tuple[Signal, Array, Train]:
    n, q = problem.Y.shape
    dense = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    weight = np.ones(n) if problem.weight is None else problem.weight
    centred = problem.fit_intercept

    def means(rows: Indices) -> tuple[Array, Array]:
        if not centred:
            return np.zeros(dense.shape[1]), np.zeros(q)
        return weighted_mean(dense[rows], weight[rows]), weighted_mean(problem.Y[rows], weight[rows])

    mean_x, mean_y = means(np.arange(n))
    root = np.sqrt(weight)
    A = np.subtract(dense, mean_x, order="F")
    A *= root[:, None]
    unit = _units(np.einsum("lj,lj->j", A, A) / weight.sum())
    A /= unit
    whole = SignalOfRows(A, (problem.Y - mean_y) * root[:, None], root, centred)

    def train_on(train: Indices, test: Indices) -> tuple[Signal, Array, Array]:
        return whole.take(train), *means(train)

    return whole, unit, train_on


def _units(variance: Array) -> Array:
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0.0)), 1.0)


def _signal(moments: Moments, unit: Array) -> Signal:
    return SignalOfGram(moments.G / unit / unit[:, None], moments.C / unit[:, None], moments.n_rows, moments.weight)


# Moments of folds


@dataclass(frozen=True)
class _MomentFold:
    signal: Signal
    test: LeftOut
    unit: Array
    mean_x: Array
    mean_y: Array
    rows: Indices | None = None
    row_weight: Array | None = None

    @property
    def weight(self) -> float:
        return float(self.test.test.weight)

    def residuals(self, coefs: Array) -> None:
        return None

    def errors(self, coefs: Array) -> Array:
        return self.test.errors((coefs / self.unit)[:, :, None])

    def products(self, coefs: Array) -> Array:
        return self.test.products((coefs / self.unit)[:, :, None])

    def in_users_units(self, coef: Array) -> tuple[Array, float]:
        found = coef / self.unit
        return found, float(self.mean_y[0] - self.mean_x @ found)


def folds_of_moments(parts: list[Moments]) -> FoldData:
    """From moments of folds of rows, wherever these were summed."""
    parts = [part.on_host() for part in parts]
    whole = Moments.merge_all(parts)
    unit = _units(np.diagonal(whole.G) / whole.weight)
    folds: list[Fold] = []
    for part in parts:
        rest = _without(whole, part)
        folds.append(_MomentFold(_signal(rest, unit), LeftOut.of(part, rest), unit, rest.mean_x, rest.mean_y))
    return FoldData(_signal(whole, unit), unit, whole.n_rows, folds, 1)


def _without(whole: Moments, part: Moments) -> Moments:
    """Moments of the rows outside a part, by subtraction; a column of which hardly anything is left is constant."""
    weight = whole.weight - part.weight
    share = part.weight / weight
    mean_x = whole.mean_x + share * (whole.mean_x - part.mean_x)
    mean_y = whole.mean_y + share * (whole.mean_y - part.mean_y)
    dx, dy = part.mean_x - mean_x, part.mean_y - mean_y  # zero when not centred
    between = weight * part.weight / whole.weight
    G = whole.G - part.G
    G -= np.outer(between * dx, dx)
    C = whole.C - part.C - between * np.outer(dx, dy)
    gone = np.diagonal(G) <= CONSTANT_TOL * np.diagonal(whole.G)
    if gone.any():
        G[gone], G[:, gone], C[gone] = 0.0, 0.0, 0.0
    yy = np.maximum(whole.yy - part.yy - between * dy**2, 0.0)
    return Moments(whole.n_rows - part.n_rows, weight, mean_x, mean_y, G, C, yy, whole.centred)
