"""Train and test folds for comparing sampling schemes.

A fold holds rows in memory, or only the moments of its rows. Coefficients, shape (count, p), are for one target and
standardised columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.moments import Moments, from_data, training_moments
from .._data.rows import RowData
from .._execution.threads import Threads, cached_property, one_blas_thread
from .._trust import constant_columns
from .arrangement import TIE_TOL
from .moment_curves import HeldOutMoments
from .penalised import Fits, GramFits, RowFits
from .risk_curves import Splits

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
T = TypeVar("T")

FOLDS = 3
# (n_rows_below, n_repeats): for small n the choice depends on the split, so it is repeated; the smallest tables are
# split row by row, which needs no repeat
REPEATS = ((3 * FOLDS, 1), (100, 5), (300, 3), (1000, 2))
MOST_FOLDS = 5  # folds of a splitter in which schemes are compared; further folds are merged
SEED = 2020  # seed of the folds, whatever random_state: the same data give the same choice
MAX_GRAM_COLUMNS_PER_ROW = 2 / 3  # up to which Gram matrices are cheaper than rows
CONSTANT_TOL = 1e-5  # fraction of a column's sum of squares: with less in the training rows, it is constant there
MIN_THREADED_OPERATIONS = 5e6  # operations of a fold above which a thread pays off, roughly
MAX_SINGLE_THREAD_FLOPS = 5e9  # of a Gram matrix: below, about a second with its eigenvectors, BLAS uses one thread


@dataclass(frozen=True)
class TestRows:
    """Held-out rows, centred at the means of the training rows; columns are in units of their standard deviations."""

    __test__ = False  # not a test class of pytest

    rows: Indices  # row indices
    X: Array  # (rows, p)
    Y: Array  # (rows, 1)
    weight: Array  # (rows,)


@dataclass(frozen=True)
class Fold:
    """Training and test rows of a fold: rows in memory, or their moments."""

    fits: Fits  # of the training rows
    mean_x: Array  # (p,) means of the training rows, in units of the standard deviations
    mean_y: Array
    weight: float  # total weight of the test rows
    test: HeldOutMoments | TestRows

    @property
    def rows(self) -> Indices | None:
        """Row indices of the test rows; None where only their moments are known."""
        return None if isinstance(self.test, HeldOutMoments) else self.test.rows

    def residuals(self, coefs: Array) -> Array | None:
        """Residuals of the test rows, (rows, count); None where only moments are known."""
        return None if isinstance(self.test, HeldOutMoments) else np.asarray(self.test.Y - self.test.X @ coefs.T)

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of prediction, (count,)."""
        if isinstance(self.test, HeldOutMoments):
            return np.asarray(self.test.errors(coefs.T[:, :, None]))
        return np.asarray(self.test.weight @ (self.test.Y - self.test.X @ coefs.T) ** 2 / self.weight)

    def products(self, coefs: Array) -> Array:
        """Mean products of residuals, (count, count)."""
        if isinstance(self.test, HeldOutMoments):
            return self.test.products(coefs.T[:, :, None])
        residual = self.test.Y - self.test.X @ coefs.T
        return np.asarray(residual.T @ (self.test.weight[:, None] * residual) / self.weight)


@dataclass(frozen=True)
class FoldData:
    """All rows, and train and test folds; each row is in a test fold once per repeat."""

    all_rows: Fits
    unit: Array  # (p,) standard deviations of the columns
    n_rows: int
    folds: list[Fold]
    repeats: int
    threads: Threads
    training: list[Moments] | None = None  # moments of the training rows of all folds, if they were computed
    ridge_penalty: float = 0.0  # of least error, in units of the columns
    uniform_size: int = 1  # columns of uniform members on all rows

    @property
    def n_first(self) -> int:
        """Number of folds of the first repeat."""
        return len(self.folds) // self.repeats

    @cached_property
    def weight(self) -> Array:
        """Total weight of the test rows of every fold."""
        return np.array([fold.weight for fold in self.folds])

    @cached_property
    def fits(self) -> list[Fits]:
        """Fits of the training rows of every fold, then those of all rows."""
        return [*(fold.fits for fold in self.folds), self.all_rows]

    def map(self, work: Callable[..., T], fits: Iterable[Any], *arguments: Iterable[Any]) -> list[T]:
        """Results of ``work(fit, ...)`` in threads, or in turn where the data are too small for threads to pay off."""
        jobs = list(zip(fits, *arguments, strict=False))
        p = len(self.unit)
        if self.n_rows * p * min(self.n_rows, p) < MIN_THREADED_OPERATIONS:
            return [work(*job) for job in jobs]
        return self.threads.quiet()(lambda i, _: work(*jobs[i]), len(jobs), chunk=1)

    def best(self, coefs: list[Array]) -> int:
        """Position of the least error over folds, among the positions that all folds have."""
        errors = self.map(Fold.errors, self.folds, coefs)
        count = min(len(e) for e in errors)
        return first_least(self.weight[: len(errors)] @ np.stack([e[:count] for e in errors]))


def first_least(errors: Array) -> int:
    """Position of the least error; of errors that differ by rounding only, the first."""
    return int(np.argmax(errors <= errors.min() * (1 + TIE_TOL)))


def few_columns(shape: tuple[int, int]) -> bool:
    """Whether Gram matrices are cheaper than rows."""
    n, p = shape
    return p <= MAX_GRAM_COLUMNS_PER_ROW * n


def random_splits(problem: RowData) -> tuple[Splits, int]:
    """Random folds of the rows, a new division in every repeat, and the number of repeats; few rows go one by one.

    The rows are those of an :class:`Arrangement`, so that folds depend neither on the order of the rows in the table
    nor on units.
    """
    n_rows = len(problem.Y)
    n_repeats = next((n_repeats for n_rows_below, n_repeats in REPEATS if n_rows < n_rows_below), 1)
    n_folds = FOLDS if n_rows >= 3 * FOLDS else n_rows
    splits = []
    for repeat in range(n_repeats):
        fold = np.empty(n_rows, dtype=np.int64)
        fold[np.random.default_rng([SEED, repeat]).permutation(n_rows)] = np.arange(n_rows) % n_folds
        splits += [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]
    return splits, n_repeats if len(splits) < n_rows else 1  # few rows: all splits judge uniform members


def few_splits(splits: Splits, n: int) -> Splits:
    """At most MOST_FOLDS splits of n rows: further ones are merged, or dropped if splits do not partition the rows."""
    if len(splits) <= MOST_FOLDS:
        return splits
    if not np.array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(n)):
        return splits[:MOST_FOLDS]
    merged = [np.concatenate([test for _, test in splits[f::MOST_FOLDS]]) for f in range(MOST_FOLDS)]
    return [(np.setdiff1d(np.arange(n), test), test) for test in merged]


def few_folds(folds: list[Moments]) -> list[Moments]:
    """At most MOST_FOLDS folds of moments; more are merged."""
    if len(folds) <= MOST_FOLDS:
        return folds
    return [Moments.merge_all(folds[f::MOST_FOLDS]) for f in range(MOST_FOLDS)]


def moments_of_training_rows(
    problem: RowData, splits: Splits, n_repeats: int = 1, threads: Threads | None = None
) -> list[Moments]:
    """Moments of the training rows of every split.

    Where the test rows of every repeat partition all rows, the moments of test rows are merged: one pass per repeat.
    """
    n = problem.shape[0]
    n_folds = len(splits) // n_repeats
    repeats = [splits[i : i + n_folds] for i in range(0, len(splits), n_folds)]
    test_rows = [np.sort(np.concatenate([test for _, test in repeat])) for repeat in repeats]
    partition = all(len(train) + len(test) == n for train, test in splits)
    partition = partition and all(np.array_equal(rows, np.arange(n)) for rows in test_rows)
    parts = [test if partition else train for train, test in splits]
    X = problem.X.tocsr() if sp.issparse(problem.X) else problem.X
    moments = []
    with one_blas_thread():  # limits the threads once for all parts
        for rows in parts:
            weight = None if problem.weight is None else problem.weight[rows]
            part = from_data(X[rows], problem.Y[rows], weight, centre=problem.fit_intercept, mapper=threads)
            moments.append(part)
    if not partition:
        return moments
    merged = (training_moments(moments[i : i + n_folds]) for i in range(0, len(moments), n_folds))
    return list(chain.from_iterable(merged))


def folds_of_rows(problem: RowData, splits: Splits, n_repeats: int, threads: Threads) -> FoldData:
    """Folds of rows in memory: Gram matrices, or the rows themselves where there are more columns than rows."""
    n, p = problem.shape
    X = problem.X.tocsr() if sp.issparse(problem.X) else problem.X
    weight = problem.weights
    training = None
    if few_columns((n, p)):
        moments = problem.moments_by(threads)
        unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
        training = moments_of_training_rows(problem, splits, n_repeats, threads)
        fits: list[Fits] = [_gram_fits(part, unit, moments) for part in (*training, moments)]
        means = [(part.mean_x, part.mean_y) for part in training]
    else:
        all_rows, unit = standardised_rows(problem)
        fits = [*(all_rows.take(train, CONSTANT_TOL) for train, _ in splits), all_rows]
        means = [problem.take(train).means for train, _ in splits]
    folds = []
    for (_, test), fit, (mean_x, mean_y) in zip(splits, fits[:-1], means, strict=True):
        dense = X[test].toarray() if sp.issparse(X) else X[test]
        test_rows = TestRows(test, (dense - mean_x) / unit, problem.Y[test] - mean_y, weight[test])
        folds.append(Fold(fit, mean_x / unit, mean_y, float(weight[test].sum()), test_rows))
    return FoldData(
        all_rows=fits[-1], unit=unit, n_rows=n, folds=folds, repeats=n_repeats, threads=threads, training=training
    )


def standardised_fits(problem: RowData, threads: Threads) -> tuple[Fits, Array]:
    """Fits of all rows, from the Gram matrix or from the rows where columns are more, and standard deviations."""
    if not few_columns(problem.shape):
        return standardised_rows(problem)
    moments = problem.moments_by(threads)
    unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
    return _gram_fits(moments, unit, moments), unit


def folds_of_moments(parts: list[Moments], threads: Threads) -> FoldData:
    """Folds from moments, on the host or on a device."""
    parts = [part.on_host() for part in parts]
    total = Moments.merge_all(parts)
    unit = standard_deviations(np.diagonal(total.G) / total.weight)
    folds = []
    for test, train in zip(parts, training_moments(parts), strict=True):
        held_out = HeldOutMoments.from_moments(test, train)
        scaled = replace(test, G=test.G / unit / unit[:, None], C=test.C / unit[:, None])
        held_out = replace(held_out, test=scaled, shift_x=held_out.shift_x / unit)
        fits = _gram_fits(train, unit, total)
        folds.append(Fold(fits, train.mean_x / unit, train.mean_y, float(test.weight), held_out))
    return FoldData(
        all_rows=_gram_fits(total, unit, total), unit=unit, n_rows=total.n_rows, folds=folds, repeats=1, threads=threads
    )


def standard_deviations(variance: Array) -> Array:
    """Roots of variances; one for constant columns."""
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0.0)), 1.0)


def _gram_fits(moments: Moments, unit: Array, total: Moments) -> GramFits:
    """Normal equations of a subset of rows; columns with almost no variance there count as constant."""
    G = moments.G / unit / unit[:, None]
    C = moments.C / unit[:, None]
    constant = np.diagonal(moments.G) <= CONSTANT_TOL * np.diagonal(total.G)
    if constant.any():
        G[constant] = 0.0
        G[:, constant] = 0.0
        C[constant] = 0.0
    return GramFits(G, C, moments.n_rows, moments.weight)


def standardised_rows(problem: RowData) -> tuple[RowFits, Array]:
    """Fits of all rows, and the standard deviations of the columns; constant columns are zero."""
    dense = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    root = np.ones(len(dense)) if problem.weight is None else np.sqrt(problem.weight)
    mean_x, mean_y = problem.means
    total = problem.total_weight
    A = np.subtract(dense, mean_x, order="F")
    if problem.weight is not None:
        A *= root[:, None]
    squares = np.einsum("lj,lj->j", A, A)
    if problem.fit_intercept:
        squares[constant_columns(squares, mean_x, total)] = 0.0
    A[:, squares == 0] = 0.0
    unit = standard_deviations(squares / total)
    A /= unit
    return RowFits(A, (problem.Y - mean_y) * root[:, None], root, problem.fit_intercept), unit


def blas_for(shape: tuple[int, int]) -> AbstractContextManager[None]:
    """Limit BLAS to one thread for small matrices, on which further threads would spin for longer than they help."""
    n, p = shape
    return one_blas_thread() if n * p * min(n, p) < MAX_SINGLE_THREAD_FLOPS else nullcontext()
