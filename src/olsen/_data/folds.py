"""Train and test folds of either kind: rows in memory, or only the moments of rows.

:class:`HeldOutRows` and :class:`HeldOutMoments` answer the same questions about the errors of
coefficients ``b`` of shape (p, sizes, q); rows in memory have a single target, q = 1. Coefficients
of a :class:`Fold`, shape (count, p), are for one target and standardised columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Threads, cached_property, one_blas_thread
from .arrangement import TIE_TOL
from .moments import Moments, training_moments
from .rows import RowData
from .splits import Splits, moments_of_training_rows
from .standardised import (
    Standardised,
    StandardisedMoments,
    StandardisedRows,
    few_columns,
    standard_deviations,
)

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
T = TypeVar("T")

MIN_THREADED_OPERATIONS = 5e6  # operations of a fold above which a thread pays off, roughly
MAX_SINGLE_THREAD_FLOPS = (
    5e9  # of a Gram matrix: below, about a second with its eigenvectors, BLAS uses one thread
)


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out rows, centred at the means of the training rows; columns are in units of their
    standard deviations.
    """

    rows: Indices  # row indices
    X: Array  # (rows, p)
    Y: Array  # (rows, 1)
    row_weights: Array  # (rows,)

    def residuals(self, b: Array) -> Array:
        """Residuals (rows, sizes)."""
        return np.asarray(self.Y - self.X @ b[:, :, 0])

    def errors(self, b: Array) -> Array:
        """Mean squared errors (sizes,)."""
        return np.asarray(self.row_weights @ self.residuals(b) ** 2 / self.row_weights.sum())

    def products(self, b: Array) -> Array:
        """Mean products (sizes, sizes) of the errors."""
        residual = self.residuals(b)
        return np.asarray(
            residual.T @ (self.row_weights[:, None] * residual) / self.row_weights.sum()
        )


@dataclass(frozen=True)
class HeldOutMoments:
    """Moments of a held-out fold, centred at the training means: d is y minus the mean training
    target, x likewise.
    """

    test: Moments
    shift_x: Any  # (p,)
    shift_y: Any  # (q,)

    rows = None  # row indices are not known
    row_weights = None

    @classmethod
    def from_moments(cls, test: Moments, train: Moments) -> HeldOutMoments:
        """Centre the moments of a fold at the means of its training rows."""
        return cls(test, test.mean_x - train.mean_x, test.mean_y - train.mean_y)

    @property
    def targets(self) -> Any:
        """Sum of d^2, (q,)."""
        return self.test.yy + self.test.weight * self.shift_y**2

    def with_targets(self, b: Any) -> Any:
        """Sums of d x'b, (sizes, q), for coefficients (p, sizes, q)."""
        centred_products = self.test.space.xp.sum(b * self.test.C[:, None, :], axis=0)
        return centred_products + self.test.weight * self.shift_y * self._offset(b)

    def squares(self, b: Any) -> Any:
        """Sums of (x'b)^2, (sizes, q)."""
        xp = self.test.space.xp
        flat = xp.reshape(b, (b.shape[0], -1))
        quadratic = xp.reshape(xp.sum(flat * (self.test.G @ flat), axis=0), b.shape[1:])
        return quadratic + self.test.weight * self._offset(b) ** 2

    def errors(self, b: Any) -> Any:
        """Mean squared errors (sizes,), averaged over targets."""
        squares = self.targets - 2 * self.with_targets(b) + self.squares(b)
        return self.test.space.xp.mean(squares, axis=1) / self.test.weight

    def products(self, b: Array) -> Array:
        """Mean products (sizes, sizes) of the errors of one target, on the host."""
        offset = self._offset(b)[:, 0]
        flat = b[:, :, 0]
        predictions = flat.T @ self.test.G @ flat + self.test.weight * np.outer(offset, offset)
        cross = self.with_targets(b)[:, 0]
        return np.asarray(
            (self.targets[0] - cross - cross[:, None] + predictions) / self.test.weight
        )

    def residuals(self, b: Array) -> None:
        """Residuals of rows, which moments do not know."""
        return None

    def _offset(self, b: Any) -> Any:
        return self.test.space.xp.tensordot(self.shift_x, b, axes=1)


HeldOut = HeldOutRows | HeldOutMoments


@dataclass(frozen=True)
class Fold:
    """Training and test rows of a fold: rows in memory, or their moments."""

    train: Standardised
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

    all_rows: Standardised
    unit: Array  # (p,) standard deviations of the columns, by which results are converted
    n_rows: int
    folds: list[Fold]
    repeats: int
    threads: Threads
    training: list[Moments] | None = (
        None  # moments of the training rows of all folds, if they were computed
    )
    away_from_mode: Array | None = None  # (p,) fraction of the rows, see `modes`
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
    def training_sets(self) -> list[Standardised]:
        """Training rows of every fold, then all rows."""
        return [*(fold.train for fold in self.folds), self.all_rows]

    def map(
        self, work: Callable[..., T], first: Iterable[Any], *arguments: Iterable[Any]
    ) -> list[T]:
        """Results of ``work(item, ...)`` in threads, or in turn where the data are too small for
        threads to pay off.
        """
        jobs = list(zip(first, *arguments, strict=False))
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
        sets: list[Standardised] = [
            StandardisedMoments.of(part, unit, moments) for part in (*training, moments)
        ]
        means = [(part.mean_x, part.mean_y) for part in training]
    else:
        all_rows, unit = StandardisedRows.of(problem)
        sets = [*(all_rows.take(train) for train, _ in splits), all_rows]
        means = [problem.take(train).means for train, _ in splits]
    folds = []
    for (_, test), train, (mean_x, mean_y) in zip(splits, sets[:-1], means, strict=True):
        dense = X[test].toarray() if sp.issparse(X) else X[test]
        test_rows = HeldOutRows(
            test, (dense - mean_x) / unit, problem.Y[test] - mean_y, weight[test]
        )
        folds.append(Fold(train, mean_x / unit, mean_y, float(weight[test].sum()), test_rows))
    return FoldData(
        all_rows=sets[-1],
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
        train_set = StandardisedMoments.of(train, unit, total)
        folds.append(
            Fold(train_set, train.mean_x / unit, train.mean_y, float(test.weight), held_out)
        )
    return FoldData(
        all_rows=StandardisedMoments.of(total, unit, total),
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
