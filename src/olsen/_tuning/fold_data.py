"""Train and test folds for comparing sampling schemes.

Folds are of rows in memory, or of rows of which only moments are known. Coefficients, shape (count, p), are for
one target and standardised columns.

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
from .._members.problem import Problem
from .._moments.moments import Moments, from_data, training_moments
from .._trust import constant_columns
from .arrangement import TIE_TOL
from .moment_curves import HeldOutMoments
from .penalised import Fits, GramFits, RowFits
from .risk_curves import Splits

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
T = TypeVar("T")

FOLDS = 3
# below so many rows, so many times: few rows leave the choice to the folds, the fewest are left out one by one
REPEATS = ((3 * FOLDS, 1), (100, 5), (300, 3), (1000, 2))
MOST_FOLDS = 5  # of a splitter, in which schemes are compared; more are joined
SEED = 2020  # of the folds, whatever random_state: the same data, the same choice
GRAM = 2 / 3  # columns for each row up to which Gram matrices are cheaper than rows
CONSTANT_TOL = 1e-5  # of a column's squares: with less left outside a fold, it counts as constant there
WORTH_A_THREAD = 5e6  # operations of a fold, about
SMALL_FLOPS = 5e9  # of a Gram matrix, a second or so with its eigenvectors, below which BLAS keeps to one thread


@dataclass(frozen=True)
class TestRows:
    """Left-out rows about the means of the training rows, columns in units."""

    __test__ = False  # nothing for pytest

    rows: Indices
    X: Array  # (rows, p)
    Y: Array  # (rows, 1)
    weight: Array  # (rows,)


@dataclass(frozen=True)
class Fold:
    """Rows to fit on, and rows to judge by: rows in memory, or their moments."""

    fits: Fits  # of the training rows
    mean_x: Array  # (p,) of the training rows, in units
    mean_y: Array
    weight: float  # of the test rows
    test: HeldOutMoments | TestRows

    @property
    def rows(self) -> Indices | None:
        """Numbers of the test rows; None where only their moments are known."""
        return None if isinstance(self.test, HeldOutMoments) else self.test.rows

    def residuals(self, coefs: Array) -> Array | None:
        """Of the test rows, (rows, count); None where only moments are known."""
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
    """All rows, and train and test folds, each row `repeats` times in a test fold."""

    whole: Fits
    unit: Array  # (p,) standard deviations of the columns
    n_rows: int
    folds: list[Fold]
    repeats: int
    sharing: Threads
    training: list[Moments] | None = None  # of the training rows of all folds, where these were made
    ridge_penalty: float = 0.0  # of least error, in units of the columns
    uniform_size: int = 1  # columns of uniform members on all rows

    @property
    def first(self) -> int:
        """Folds of the first repeat."""
        return len(self.folds) // self.repeats

    @cached_property
    def weight(self) -> Array:
        """Of the test rows of every fold."""
        return np.array([fold.weight for fold in self.folds])

    @cached_property
    def fits(self) -> list[Fits]:
        """Of the training rows of every fold, and last of all rows."""
        return [*(fold.fits for fold in self.folds), self.whole]

    def each(self, work: Callable[..., T], fits: Iterable[Any], *arguments: Iterable[Any]) -> list[T]:
        """Results of ``work(fit, ...)``; small ones are not worth a thread."""
        jobs = list(zip(fits, *arguments, strict=False))
        if self.n_rows * len(self.unit) * min(self.n_rows, len(self.unit)) < WORTH_A_THREAD:
            return [work(*job) for job in jobs]
        return self.sharing.quiet()(lambda i, _: work(*jobs[i]), len(jobs), chunk=1)

    def best(self, coefs: list[Array]) -> int:
        """Position of the least error over folds, as far as all of them have gone."""
        errors = self.each(Fold.errors, self.folds, coefs)
        count = min(len(e) for e in errors)
        return first_least(self.weight[: len(errors)] @ np.stack([e[:count] for e in errors]))


def first_least(errors: Array) -> int:
    """Position of the least error; of errors that differ by rounding only, the first."""
    return int(np.argmax(errors <= errors.min() * (1 + TIE_TOL)))


def few_columns(shape: tuple[int, int]) -> bool:
    """Whether Gram matrices are cheaper than rows."""
    return shape[1] <= GRAM * shape[0]


def random_splits(problem: Problem) -> tuple[Splits, int]:
    """Rows in random folds, divided anew in every repeat, and how often; with very few rows one by one.

    The rows are those of an :class:`Arrangement`, so that folds depend neither on the order in which rows were given
    nor on units.
    """
    n_rows = len(problem.Y)
    repeats = next((repeats for most, repeats in REPEATS if n_rows < most), 1)
    count, splits = FOLDS if n_rows >= 3 * FOLDS else n_rows, []
    for repeat in range(repeats):
        fold = np.empty(n_rows, dtype=np.int64)
        fold[np.random.default_rng([SEED, repeat]).permutation(n_rows)] = np.arange(n_rows) % count
        splits += [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]
    return splits, repeats if len(splits) < n_rows else 1  # with so few rows all of them judge uniform members


def few_splits(splits: Splits, n: int) -> Splits:
    """So many splits of n rows at most, joined where there are more; where they are no partition, the first ones."""
    if len(splits) <= MOST_FOLDS:
        return splits
    if not np.array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(n)):
        return splits[:MOST_FOLDS]
    joined = [np.concatenate([test for _, test in splits[f::MOST_FOLDS]]) for f in range(MOST_FOLDS)]
    return [(np.setdiff1d(np.arange(n), test), test) for test in joined]


def few_folds(folds: list[Moments]) -> list[Moments]:
    """The same of moments."""
    if len(folds) <= MOST_FOLDS:
        return folds
    return [Moments.merge_all(folds[f::MOST_FOLDS]) for f in range(MOST_FOLDS)]


def moments_of_training_rows(
    problem: Problem, splits: Splits, repeats: int = 1, sharing: Threads | None = None
) -> list[Moments]:
    """Of every split; where test rows partition all rows in every repeat, merged from theirs, which cost one pass."""
    n, each = problem.shape[0], len(splits) // repeats
    tests = [np.sort(np.concatenate([test for _, test in splits[i : i + each]])) for i in range(0, len(splits), each)]
    partition = all(len(train) + len(test) == n for train, test in splits)
    partition = partition and all(np.array_equal(rows, np.arange(n)) for rows in tests)
    parts = [test if partition else train for train, test in splits]
    X, Y, weight = problem.X.tocsr() if sp.issparse(problem.X) else problem.X, problem.Y, problem.weight
    found = []
    with one_blas_thread():  # held once for all of them
        for rows in parts:
            own = None if weight is None else weight[rows]
            found.append(from_data(X[rows], Y[rows], own, centre=problem.fit_intercept, mapper=sharing))
    if not partition:
        return found
    return [moments for i in range(0, len(found), each) for moments in training_moments(found[i : i + each])]


def folds_of_rows(problem: Problem, splits: Splits, repeats: int, sharing: Threads) -> FoldData:
    """From rows in memory: by Gram matrices, or by the rows themselves where columns are more."""
    n, p = problem.shape
    X, Y, weight = problem.X.tocsr() if sp.issparse(problem.X) else problem.X, problem.Y, problem.weights
    training = None
    if few_columns((n, p)):
        moments = problem.moments_by(sharing)
        unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
        training = moments_of_training_rows(problem, splits, repeats, sharing)
        fits: list[Fits] = [_gram_fits(part, unit, moments) for part in (*training, moments)]
        means = [(part.mean_x, part.mean_y) for part in training]
    else:
        whole, unit = standardised_rows(problem)
        fits = [*(whole.take(train, CONSTANT_TOL) for train, _ in splits), whole]
        means = [problem.take(train).means for train, _ in splits]
    folds = []
    for (_, test), fit, (mean_x, mean_y) in zip(splits, fits[:-1], means, strict=True):
        away = ((X[test].toarray() if sp.issparse(X) else X[test]) - mean_x) / unit
        rows = TestRows(test, away, Y[test] - mean_y, weight[test])
        folds.append(Fold(fit, mean_x / unit, mean_y, float(weight[test].sum()), rows))
    return FoldData(fits[-1], unit, n, folds, repeats, sharing, training)


def standardised_fits(problem: Problem, threads: Threads) -> tuple[Fits, Array]:
    """Fits of all rows, from the Gram matrix or from the rows where columns are more, and the columns' units."""
    if not few_columns(problem.shape):
        return standardised_rows(problem)
    moments = problem.moments_by(threads)
    unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
    return _gram_fits(moments, unit, moments), unit


def folds_of_moments(parts: list[Moments], sharing: Threads) -> FoldData:
    """From moments of folds of rows, wherever these were summed."""
    parts = [part.on_host() for part in parts]
    whole = Moments.merge_all(parts)
    unit = standard_deviations(np.diagonal(whole.G) / whole.weight)
    folds = []
    for part, rest in zip(parts, training_moments(parts), strict=True):
        held_out = HeldOutMoments.from_moments(part, rest)
        scaled = replace(part, G=part.G / unit / unit[:, None], C=part.C / unit[:, None])
        held_out = replace(held_out, test=scaled, shift_x=held_out.shift_x / unit)
        folds.append(Fold(_gram_fits(rest, unit, whole), rest.mean_x / unit, rest.mean_y, float(part.weight), held_out))
    return FoldData(_gram_fits(whole, unit, whole), unit, whole.n_rows, folds, 1, sharing)


def standard_deviations(variance: Array) -> Array:
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0.0)), 1.0)


def _gram_fits(moments: Moments, unit: Array, whole: Moments) -> GramFits:
    """Of some of the rows; a column of which hardly anything is left in them is constant."""
    G, C = moments.G / unit / unit[:, None], moments.C / unit[:, None]
    gone = np.diagonal(moments.G) <= CONSTANT_TOL * np.diagonal(whole.G)
    if gone.any():
        G[gone], G[:, gone], C[gone] = 0.0, 0.0, 0.0
    return GramFits(G, C, moments.n_rows, moments.weight)


def standardised_rows(problem: Problem) -> tuple[RowFits, Array]:
    """Of all rows, and the standard deviations of the columns; columns that hold one value are zero."""
    dense = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    root = np.ones(len(dense)) if problem.weight is None else np.sqrt(problem.weight)
    (mean_x, mean_y), total = problem.means, problem.total_weight
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
    """One thread of BLAS for small matrices: further ones would spin for longer than they help."""
    n, p = shape
    return one_blas_thread() if n * p * min(n, p) < SMALL_FLOPS else nullcontext()
