"""Train and test folds of either kind: rows in memory, or only the moments of rows.

:class:`HeldOutRows` and :class:`HeldOutMoments` answer the same questions about the errors of
coefficients ``b``, (p, sizes, q), of q targets and several candidates, such as sizes of members. A
:class:`Fold` takes coefficients with the candidates first, (count, p, q), of standardised columns.
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
from .implicit import ImplicitRows, stays_implicit
from .moments import Moments, training_moments
from .rows import RowData
from .splits import Splits, moments_of_training_rows
from .standardised import (
    CONSTANT_TOL,
    Standardised,
    StandardisedMoments,
    StandardisedRows,
    few_columns,
    standard_deviations,
)
from .stored import product

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
T = TypeVar("T")

# of the sum of squared targets: sums of squared errors from moments, which cancel, know nothing below
ROUNDING_OF_SQUARES = 1e-12
MIN_THREADED_OPERATIONS = 5e6  # operations of a fold above which a thread pays off, roughly
# of a Gram matrix: below, about a second with its eigenvectors, BLAS uses one thread
MAX_SINGLE_THREAD_FLOPS = 5e9


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out rows, centred at the means of the training rows; columns are in units of their
    standard deviations.
    """

    rows: Indices  # row indices
    X: Array  # (rows, p)
    Y: Array  # (rows, q)
    row_weights: Array  # (rows,)

    def residuals(self, b: Array) -> Array:
        """Residuals (rows, sizes, q)."""
        p, n_sizes, q = b.shape
        predictions = self.X @ b.reshape(p, n_sizes * q)
        return np.asarray(self.Y[:, None, :] - predictions.reshape(-1, n_sizes, q))

    def errors(self, b: Array) -> Array:
        """Mean squared errors (sizes, q)."""
        fractions = self.row_weights / self.row_weights.sum()
        residuals = self.residuals(b)
        residuals *= residuals
        return np.asarray((fractions @ residuals.reshape(len(fractions), -1)).reshape(b.shape[1:]))

    def products(self, b: Array) -> Array:
        """Mean products (q, sizes, sizes) of the errors."""
        residual = self.residuals(b).transpose(2, 0, 1)
        fractions = self.row_weights / self.row_weights.sum()
        return np.asarray(residual.transpose(0, 2, 1) @ (fractions[:, None] * residual))

    def in_basis(self, basis: Array) -> HeldOutRows:
        """The held-out rows for coefficients ``basis @ b``, (p, r) times (r, sizes, q)."""
        return replace(self, X=self.X @ basis)

    def targets_at(self, which: Indices) -> HeldOutRows:
        """The held-out rows with some of the targets."""
        return replace(self, Y=self.Y[:, which])


@dataclass(frozen=True)
class HeldOutImplicit(HeldOutRows):
    """Held-out rows of X as it is stored, centred at the means of the training rows."""

    mean: Array  # (p,) means of the training rows
    scale: Array  # (p,) one over the standard deviations; zero for constant columns

    def residuals(self, b: Array) -> Array:
        """Residuals (rows, sizes, q)."""
        p, n_sizes, q = b.shape
        scaled = b.reshape(p, n_sizes * q) * self.scale[:, None]
        predictions = product(self.X, scaled, self.rows) - self.mean @ scaled
        return np.asarray(self.Y[:, None, :] - predictions.reshape(-1, n_sizes, q))


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
        """Mean squared errors (sizes, q), as far as moments know them."""
        xp = self.test.space.xp
        squares = self.targets - 2 * self.with_targets(b) + self.squares(b)
        rounding = ROUNDING_OF_SQUARES * self.targets
        return xp.maximum(squares, rounding * xp.ones_like(squares)) / self.test.weight

    def products(self, b: Array) -> Array:
        """Mean products (q, sizes, sizes) of the errors, on the host."""
        p, n_sizes, q = b.shape
        by_target = b.transpose(2, 1, 0)  # (q, sizes, p)
        image = (self.test.G @ b.reshape(p, n_sizes * q)).reshape(b.shape).transpose(2, 0, 1)
        offset = self._offset(b).T  # (q, sizes)
        predictions = by_target @ image
        predictions += self.test.weight * offset[:, :, None] * offset[:, None, :]
        cross = self.with_targets(b).T
        squares = self.targets[:, None, None]
        errors = squares - cross[:, None, :] - cross[:, :, None] + predictions
        return np.asarray(errors / self.test.weight)

    def in_basis(self, basis: Array) -> HeldOutMoments:
        """The held-out moments for coefficients ``basis @ b``, (p, r) times (r, sizes, q)."""
        G = basis.T @ self.test.G @ basis
        test = replace(self.test, G=G, C=basis.T @ self.test.C)
        return replace(self, test=test, shift_x=self.shift_x @ basis)

    def targets_at(self, which: Indices) -> HeldOutMoments:
        """The held-out moments with some of the targets."""
        return replace(self, test=self.test.targets_at(which), shift_y=self.shift_y[which])

    def residuals(self, b: Array) -> None:
        """Residuals of rows, which moments do not know."""
        return None

    def _offset(self, b: Any) -> Any:
        xp = self.test.space.xp
        return xp.reshape(self.shift_x @ xp.reshape(b, (b.shape[0], -1)), b.shape[1:])


HeldOut = HeldOutRows | HeldOutMoments


@dataclass(frozen=True)
class Fold:
    """Training and test rows of a fold: rows in memory, or their moments."""

    train: Standardised
    mean_x: Array  # (p,) means of the training rows, in units of the standard deviations
    mean_y: Array  # (q,)
    weight: float  # total weight of the test rows
    test: HeldOut

    def residuals(self, coefs: Array) -> Array | None:
        """Residuals of the test rows, (rows, count, q); None where only moments are known."""
        return self.test.residuals(coefs.transpose(1, 0, 2))

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of prediction, (count, q)."""
        return np.asarray(self.test.errors(coefs.transpose(1, 0, 2)))

    def products(self, coefs: Array) -> Array:
        """Mean products of residuals, (q, count, count)."""
        return self.test.products(coefs.transpose(1, 0, 2))

    def targets_at(self, which: Indices) -> Fold:
        """The fold with some of the targets."""
        return replace(
            self,
            train=self.train.targets_at(which),
            mean_y=self.mean_y[which],
            test=self.test.targets_at(which),
        )


@dataclass(frozen=True)
class FoldData:
    """All rows, and train and test folds. Random folds and blocks hold every row out once per repeat;
    a user's splitter may not.
    """

    all_rows: Standardised
    unit: Array  # (p,) standard deviations of the columns, by which results are converted
    n_rows: int
    folds: list[Fold]
    repeats: int
    threads: Threads
    # moments of the training rows of all folds, if they were computed
    training: list[Moments] | None = None
    away_from_mode: Array | None = None  # (p,) fraction of the rows, see `modes`
    ridge_penalty: Array | None = None  # (q,) of least error, in units of the columns
    uniform_size: Indices | None = None  # (q,) columns of uniform members on all rows

    @property
    def folds_per_repeat(self) -> int:
        """Number of folds of every repeat."""
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

    def best(self, coefs: list[Array]) -> Indices:
        """Position (q,) of the least error over folds, among the positions that all folds have."""
        errors = self.map(Fold.errors, self.folds, coefs)
        count = min(len(e) for e in errors)
        of_folds = np.stack([e[:count] for e in errors])
        total = self.weight[: len(errors)] @ of_folds.reshape(len(errors), -1)
        return least_by_target(total.reshape(of_folds.shape[1:]))

    def targets_at(self, which: Indices) -> FoldData:
        """The folds with some of the targets."""
        return replace(
            self,
            all_rows=self.all_rows.targets_at(which),
            folds=[fold.targets_at(which) for fold in self.folds],
            ridge_penalty=None if self.ridge_penalty is None else self.ridge_penalty[which],
            uniform_size=None if self.uniform_size is None else self.uniform_size[which],
        )

    def by_target(self, work: Callable[[FoldData], T]) -> list[T]:
        """Results of ``work(folds)`` for each target, in threads over targets if there are several."""
        if self.n_targets == 1:
            return [work(self)]
        alone = replace(self, threads=Threads())
        return self.map(lambda t: work(alone.targets_at(t)), np.arange(self.n_targets)[:, None])

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return len(self.folds[0].mean_y)


def first_least(errors: Array) -> int:
    """Position of the least error; of errors that differ by rounding only, the first."""
    return int(least_by_target(errors[:, None])[0])


def least_by_target(errors: Array) -> Indices:
    """Position (q,) of the least of errors (count, q), as in :func:`first_least`."""
    least = errors.min(axis=0)
    return np.asarray(np.argmax(errors <= least + TIE_TOL * np.abs(least), axis=0))


def folds_of_rows(problem: RowData, splits: Splits, n_repeats: int, threads: Threads) -> FoldData:
    """Folds of rows in memory: Gram matrices, or the rows themselves where there are more columns
    than rows.
    """
    if stays_implicit(problem):
        return _folds_of_implicit_rows(problem, splits, n_repeats, threads)
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


def _folds_of_implicit_rows(
    problem: RowData, splits: Splits, n_repeats: int, threads: Threads
) -> FoldData:
    """Folds of rows that are never standardised; they share X as it is stored."""
    all_rows, unit = ImplicitRows.of(problem)
    training_sets = all_rows.take([train for train, _ in splits], CONSTANT_TOL)
    weight = problem.weights
    folds = []
    for (train_rows, test), train in zip(splits, training_sets, strict=True):
        mean_y = problem.means[1]
        if problem.null_rank:
            mean_y = weight[train_rows] @ problem.Y[train_rows] / train.weight
        test_rows = HeldOutImplicit(
            rows=test,
            X=problem.X,
            Y=problem.Y[test] - mean_y,
            row_weights=weight[test],
            mean=train.mean,
            scale=all_rows.scale,
        )
        mean_x = train.mean * all_rows.scale
        folds.append(Fold(train, mean_x, mean_y, float(weight[test].sum()), test_rows))
    return FoldData(
        all_rows=all_rows,
        unit=unit,
        n_rows=len(weight),
        folds=folds,
        repeats=n_repeats,
        threads=threads,
    )


def folds_of_moments(parts: list[Moments], threads: Threads) -> FoldData:
    """Folds from moments, on the host or on a device, where their products stay too."""
    training_on_device: list[Moments | None] = [None] * len(parts)
    total_on_device = None
    if not parts[0].space.on_host:
        training_on_device = list(training_moments(parts))
        total_on_device = Moments.merge_all(parts)
    parts = [part.on_host() for part in parts]
    total = Moments.merge_all(parts)
    unit = standard_deviations(np.diagonal(total.G) / total.weight)
    folds = []
    training = zip(training_moments(parts), training_on_device, strict=True)
    for test, (train, on_device) in zip(parts, training, strict=True):
        held_out = HeldOutMoments.from_moments(test, train)
        scaled = replace(test, G=test.G / unit / unit[:, None], C=test.C / unit[:, None])
        held_out = replace(held_out, test=scaled, shift_x=held_out.shift_x / unit)
        train_set = StandardisedMoments.of(train, unit, total, on_device)
        folds.append(
            Fold(train_set, train.mean_x / unit, train.mean_y, float(test.weight), held_out)
        )
    return FoldData(
        all_rows=StandardisedMoments.of(total, unit, total, total_on_device),
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
