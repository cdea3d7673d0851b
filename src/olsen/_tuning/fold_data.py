"""Train and test folds for comparing sampling schemes.

A fold holds rows in memory, or only the moments of its rows. Coefficients, shape (count, p), are
for one target and standardised columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.arrangement import TIE_TOL
from .._data.folds import HeldOut, HeldOutMoments, HeldOutRows, Splits, moments_of_training_rows
from .._data.moments import Moments, training_moments
from .._data.rows import RowData
from .._execution.threads import Threads, cached_property, one_blas_thread
from .._members.penalised import (
    CONSTANT_TOL,
    Fits,
    few_columns,
    gram_fits,
    standard_deviations,
    standardised_rows,
)

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
T = TypeVar("T")

MIN_THREADED_OPERATIONS = 5e6  # operations of a fold above which a thread pays off, roughly
MAX_SINGLE_THREAD_FLOPS = (
    5e9  # of a Gram matrix: below, about a second with its eigenvectors, BLAS uses one thread
)


@dataclass(frozen=True)
class Fold:
    """Training and test rows of a fold: rows in memory, or their moments."""

    fits: Fits  # of the training rows
    mean_x: Array  # (p,) means of the training rows, in units of the standard deviations
    mean_y: Array
    weight: float  # total weight of the test rows
    test: HeldOut

    def residuals(self, coefs: Array) -> Array | None:
        """Residuals of the test rows, (rows, count); None where only moments are known."""
        return self.test.residuals(coefs.T[:, :, None])

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of prediction, (count,)."""
        return np.asarray(self.test.errors(coefs.T[:, :, None]))

    def products(self, coefs: Array) -> Array:
        """Mean products of residuals, (count, count)."""
        return self.test.products(coefs.T[:, :, None])


@dataclass(frozen=True)
class FoldData:
    """All rows, and train and test folds; each row is in a test fold once per repeat."""

    all_rows: Fits
    unit: Array  # (p,) standard deviations of the columns
    n_rows: int
    folds: list[Fold]
    repeats: int
    threads: Threads
    training: list[Moments] | None = (
        None  # moments of the training rows of all folds, if they were computed
    )
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

    def map(
        self, work: Callable[..., T], fits: Iterable[Any], *arguments: Iterable[Any]
    ) -> list[T]:
        """Results of ``work(fit, ...)`` in threads, or in turn where the data are too small for
        threads to pay off.
        """
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


def folds_of_rows(problem: RowData, splits: Splits, n_repeats: int, threads: Threads) -> FoldData:
    """Folds of rows in memory: Gram matrices, or the rows themselves where there are more columns
    than rows.
    """
    n, p = problem.shape
    X = problem.X.tocsr() if sp.issparse(problem.X) else problem.X
    weight = problem.weights
    training = None
    if few_columns((n, p)):
        moments = problem.moments_by(threads)
        unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
        training = moments_of_training_rows(problem, splits, n_repeats, threads)
        fits: list[Fits] = [gram_fits(part, unit, moments) for part in (*training, moments)]
        means = [(part.mean_x, part.mean_y) for part in training]
    else:
        all_rows, unit = standardised_rows(problem)
        fits = [*(all_rows.take(train, CONSTANT_TOL) for train, _ in splits), all_rows]
        means = [problem.take(train).means for train, _ in splits]
    folds = []
    for (_, test), fit, (mean_x, mean_y) in zip(splits, fits[:-1], means, strict=True):
        dense = X[test].toarray() if sp.issparse(X) else X[test]
        test_rows = HeldOutRows(
            test, (dense - mean_x) / unit, problem.Y[test] - mean_y, weight[test]
        )
        folds.append(Fold(fit, mean_x / unit, mean_y, float(weight[test].sum()), test_rows))
    return FoldData(
        all_rows=fits[-1],
        unit=unit,
        n_rows=n,
        folds=folds,
        repeats=n_repeats,
        threads=threads,
        training=training,
    )


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
        fits = gram_fits(train, unit, total)
        folds.append(Fold(fits, train.mean_x / unit, train.mean_y, float(test.weight), held_out))
    return FoldData(
        all_rows=gram_fits(total, unit, total),
        unit=unit,
        n_rows=total.n_rows,
        folds=folds,
        repeats=1,
        threads=threads,
    )


def blas_for(shape: tuple[int, int]) -> AbstractContextManager[None]:
    """Limit BLAS to one thread for small matrices, on which further threads would spin for longer
    than they help.
    """
    n, p = shape
    return one_blas_thread() if n * p * min(n, p) < MAX_SINGLE_THREAD_FLOPS else nullcontext()
