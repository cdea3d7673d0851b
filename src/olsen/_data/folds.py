"""How rows are divided into folds, and the held-out rows of a fold or their moments.

``random_splits`` draws the folds of rows in memory; rows that stream or lie on a cluster get their
fold numbers in ``sources``. :class:`HeldOutRows` and :class:`HeldOutMoments` answer the same
questions about the errors of coefficients ``b`` of shape (p, sizes, q); rows in memory have a
single target, q = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Threads, one_blas_thread
from .moments import Moments, from_data, training_moments
from .rows import RowData

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Splits = list[tuple[Indices, Indices]]  # rows to train on, rows to test on

FOLDS = 3
# (n_rows_below, n_repeats): for small n the choice depends on the split, so it is repeated; the
# smallest tables are split row by row, which needs no repeat
REPEATS = ((3 * FOLDS, 1), (100, 5), (300, 3), (1000, 2))
MOST_FOLDS = 5  # folds of a splitter in which schemes are compared; further folds are merged
SEED = 2020  # seed of the folds, whatever random_state: the same data give the same choice


def random_splits(problem: RowData) -> tuple[Splits, int]:
    """Random folds of the rows, a new division in every repeat, and the number of repeats; few rows
    go one by one.

    The rows are those of an :class:`Arrangement`, so that folds depend neither on the order of the
    rows in the table nor on units.
    """
    n_rows = len(problem.Y)
    n_repeats = next((n_repeats for n_rows_below, n_repeats in REPEATS if n_rows < n_rows_below), 1)
    n_folds = FOLDS if n_rows >= 3 * FOLDS else n_rows
    splits = []
    for repeat in range(n_repeats):
        fold = np.empty(n_rows, dtype=np.int64)
        fold[np.random.default_rng([SEED, repeat]).permutation(n_rows)] = (
            np.arange(n_rows) % n_folds
        )
        splits += [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]
    return splits, n_repeats if len(
        splits
    ) < n_rows else 1  # few rows: all splits judge uniform members


def few_splits(splits: Splits, n: int) -> Splits:
    """At most MOST_FOLDS splits of n rows: further ones are merged, or dropped if splits do not
    partition the rows.
    """
    if len(splits) <= MOST_FOLDS:
        return splits
    if not np.array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(n)):
        return splits[:MOST_FOLDS]
    merged = [
        np.concatenate([test for _, test in splits[f::MOST_FOLDS]]) for f in range(MOST_FOLDS)
    ]
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

    Where the test rows of every repeat partition all rows, the moments of test rows are merged: one
    pass per repeat.
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
            part = from_data(
                X[rows], problem.Y[rows], weight, centre=problem.fit_intercept, mapper=threads
            )
            moments.append(part)
    if not partition:
        return moments
    merged = (training_moments(moments[i : i + n_folds]) for i in range(0, len(moments), n_folds))
    return list(chain.from_iterable(merged))


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
