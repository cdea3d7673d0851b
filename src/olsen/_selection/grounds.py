r"""Rows that trials of laws of inclusion are fitted on, and rows they are judged by: in memory, or as moments only.

Members are solved from the Gram matrix of the training rows (that of all rows less that of the fold), or from the rows
themselves where there are many more columns.

**Numerical price.** Subtracting Gram matrices, and believing them whatever their condition, would be wrong for an
answer. These members only judge. Their Gram matrices get 1e-8 of their diagonal on top, which makes dependent columns
harmless (they share a coefficient, as in the shortest solution), leaves out directions below 1e-4 of a column's length,
and covers what the subtraction lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members import gram
from .._members.problem import Problem
from .._moments import Moments, from_data, weighted_mean
from ..subsets import Subsets
from .folds import LeftOut
from .inclusion import few_folds, few_splits
from .paths import Splits
from .signals import Signal, SignalOfGram, SignalOfRows

__all__ = ["FEWEST_PAIRS", "Grounds", "Testing", "Training", "dense", "grounds_of_moments", "grounds_of_rows"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FOLDS = 5
FEWEST_PAIRS = 15  # of members in a trial
JITTER = 1e-8  # of its diagonal, on top of a Gram matrix that only judges
WORTH_SHARING = 1e8  # operations of a trial, from which threads share its members
MANY_ROWS = 10_000  # from which left-out rows are only summed
GONE = 1e-5  # of a column's squares: with less left outside a fold, it counts as constant there


class Training(Protocol):
    """Rows that trials are fitted on."""

    @property
    def n_rows(self) -> int:
        """Rows there are."""

    @property
    def centred(self) -> bool:
        """Whether members have an intercept."""

    @property
    def variance(self) -> Array:
        """Of every column, (p,)."""

    def solve(self, features: Subsets) -> Array:
        """Coefficients of members, laid out like their columns, (entries, q)."""

    def error(self, coef: Array) -> float:
        """Mean squared residual of coefficients (p, q)."""

    def signal(self, unit: Array) -> Signal:
        """The columns in given units, (p,), and the targets."""


class Testing(Protocol):
    """Rows that trials are judged by."""

    @property
    def rows(self) -> Indices | None:
        """Their numbers; None where they were only summed."""

    @property
    def n_rows(self) -> int:
        """Rows there are."""

    @property
    def weight(self) -> Array:
        """Of every row, or of all of them together."""

    def compare(self, first: Array, second: Array) -> Array:
        """Sums of u^2, v^2 and u v, (3, q), of the errors of two sets of coefficients (p, q); see ``folds``."""

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of coefficients (count, p, q), averaged over targets, (count,)."""

    def pair_means(self, features: Subsets, values: Array) -> Array:
        """A, S and C of members, (3, rows) or (3, 1), averaged over targets; see ``curve``."""

    def products(self, coefs: Array) -> Array:
        """Mean products of the errors of coefficients (count, p, q), averaged over targets, (count, count)."""

    def deviations(self, coef: Array) -> Array:
        """Means of d^2 and of d e, (2, rows) or (2, 1), averaged over targets: d is what the mean target leaves, e what
        coefficients (p, q) leave."""

    def left_out(self, coef: Array) -> Array | None:
        """What coefficients (p, q) leave of the targets of every row, (rows, q); None where rows were only summed."""


@dataclass(frozen=True)
class Grounds:
    """All rows, and their folds one after the other: rows to fit on, rows to judge by."""

    whole: Training
    folds: Iterator[tuple[Training, Testing]]
    repeats: int = 1  # times that every row is left out


# Rows as moments


@dataclass(frozen=True)
class _Summed:
    """Training rows of which the moments are known."""

    moments: Moments
    sharing: Sharing

    @property
    def n_rows(self) -> int:
        return self.moments.n_rows

    @property
    def centred(self) -> bool:
        return self.moments.centred

    @cached_property
    def variance(self) -> Array:
        return np.asarray(np.diagonal(self.moments.G) / self.moments.weight)

    @cached_property
    def _definite(self) -> Moments:
        G = self.moments.G.copy()
        np.einsum("ii->i", G)[:] *= 1 + JITTER
        return replace(self.moments, G=G)

    def solve(self, features: Subsets) -> Array:
        return gram.from_moments(self._definite, features, _threads_for(features, self.sharing)).values

    def error(self, coef: Array) -> float:
        m = self.moments
        squares = m.yy - 2 * np.sum(coef * m.C, axis=0) + np.sum(coef * (m.G @ coef), axis=0)
        return max(0.0, float(squares.mean()) / m.weight)

    def signal(self, unit: Array) -> Signal:
        m = self.moments
        return SignalOfGram(m.G / unit / unit[:, None], m.C / unit[:, None], m.n_rows, m.weight)


@dataclass(frozen=True)
class _SummedTest:
    """A fold of which the moments are known; it counts as one row."""

    fold: LeftOut

    @property
    def n_rows(self) -> int:
        return self.fold.test.n_rows

    @property
    def weight(self) -> Array:
        return np.array([self.fold.test.weight])

    def compare(self, first: Array, second: Array) -> Array:
        return self.fold.compare(first, second)

    def errors(self, coefs: Array) -> Array:
        return self.fold.errors(coefs)

    def products(self, coefs: Array) -> Array:
        return self.fold.products(coefs)

    def deviations(self, coef: Array) -> Array:
        square, cross = self.fold.targets, self.fold.targets - self.fold.with_targets(coef[None])[0]
        return np.array([[square.mean()], [cross.mean()]]) / self.fold.test.weight

    def left_out(self, coef: Array) -> None:
        return None

    @property
    def rows(self) -> None:
        return None

    def pair_means(self, features: Subsets, values: Array) -> Array:
        coefs = dense(features, values)
        own = self.fold.errors(coefs).mean()
        same = 2 * self.fold.errors((coefs[::2] + coefs[1::2]) / 2).mean() - own
        k = len(coefs)
        other = (k * k * self.fold.errors(coefs.mean(axis=0)[None])[0] - k * own - k * same) / (k * k - 2 * k)
        return np.array([[own], [same], [other]])


def grounds_of_moments(folds: list[Moments], sharing: Sharing) -> Grounds:
    """Rows that were only summed, fold by fold."""
    parts = [fold.on_host() for fold in few_folds(folds, FOLDS)]
    whole = Moments.merge_all(parts)

    def each() -> Iterator[tuple[Training, Testing]]:
        for part in parts:
            rest = _without(whole, part)
            yield _Summed(rest, sharing), _SummedTest(LeftOut.of(part, rest))

    return Grounds(_Summed(whole, sharing), each())


def _without(whole: Moments, part: Moments) -> Moments:
    """Moments of the rows outside a part, by subtraction, for trials that need no more than some digits.

    A column of which hardly anything is left is taken for constant.
    """
    weight = whole.weight - part.weight
    share = part.weight / weight
    mean_x = whole.mean_x + share * (whole.mean_x - part.mean_x)
    mean_y = whole.mean_y + share * (whole.mean_y - part.mean_y)
    dx, dy = part.mean_x - mean_x, part.mean_y - mean_y  # zero when not centred
    between = weight * part.weight / whole.weight
    G = whole.G - part.G
    G -= np.outer(between * dx, dx)
    C = whole.C - part.C - between * np.outer(dx, dy)
    gone = np.diagonal(G) <= GONE * np.diagonal(whole.G)
    if gone.any():
        G[gone], G[:, gone], C[gone] = 0.0, 0.0, 0.0
    yy = np.maximum(whole.yy - part.yy - between * dy**2, 0.0)
    return Moments(whole.n_rows - part.n_rows, weight, mean_x, mean_y, G, C, yy, whole.centred)


# Rows in memory


@dataclass(frozen=True)
class _Rows:
    """Training rows in memory, for many more columns than a Gram matrix is worth."""

    problem: Problem
    sharing: Sharing
    part_of: tuple[_Rows, Indices] | None = None  # all rows, and the numbers of these among them

    @classmethod
    def of(cls, problem: Problem, sharing: Sharing) -> _Rows:
        """The rows in column order, from which members are gathered."""
        X = problem.X if sp.issparse(problem.X) else np.asfortranarray(problem.X, dtype=np.float64)
        return cls(replace(problem, X=X), sharing)

    def take(self, rows: Indices) -> _Rows:
        """Some of the rows."""
        return replace(_Rows.of(self.problem.take(rows), self.sharing), part_of=(self, rows))

    @property
    def n_rows(self) -> int:
        return self.problem.shape[0]

    @property
    def centred(self) -> bool:
        return self.problem.fit_intercept

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """Of X and of Y; zeros without intercept."""
        p, q = self.problem.shape[1], self.problem.Y.shape[1]
        if not self.centred:
            return np.zeros(p), np.zeros(q)
        return weighted_mean(self.problem.X, self.problem.weight), weighted_mean(self.problem.Y, self.problem.weight)

    @cached_property
    def variance(self) -> Array:
        X, (mean, _) = self.problem.X, self.means
        if sp.issparse(X):
            return np.asarray(np.maximum(weighted_mean(X.multiply(X).tocsc(), self.problem.weight) - mean**2, 0.0))
        return np.asarray(weighted_mean((X - mean) ** 2, self.problem.weight))

    def solve(self, features: Subsets) -> Array:
        sharing = _threads_for(features, self.sharing, self.n_rows)
        return gram.solve_own(self.problem, features, None, sharing).values

    def error(self, coef: Array) -> float:
        mean_x, mean_y = self.means
        residual = self.problem.Y - mean_y - (self.problem.X @ coef - mean_x @ coef)
        return float(weighted_mean(residual**2, self.problem.weight).mean())

    def signal(self, unit: Array) -> SignalOfRows:
        if self.part_of is not None:
            whole, rows = self.part_of
            return whole.signal(unit).take(rows)
        key = unit.tobytes()
        if key not in self._signals:
            self._signals[key] = self._own_signal(unit)
        return self._signals[key]

    @cached_property
    def _signals(self) -> dict[bytes, SignalOfRows]:
        """In some units, for the parts of these rows."""
        return {}

    def _own_signal(self, unit: Array) -> SignalOfRows:
        X, (mean_x, mean_y) = self.problem.X, self.means
        A = np.subtract(X.toarray() if sp.issparse(X) else X, mean_x, order="F")
        A /= unit
        B, root = self.problem.Y - mean_y, np.ones(len(A))
        if self.problem.weight is not None:
            root = np.sqrt(self.problem.weight)
            A *= root[:, None]
            B *= root[:, None]
        return SignalOfRows(A, B, root, self.centred)


@dataclass(frozen=True)
class _RowTest:
    """Left-out rows in memory, about the means of the training rows."""

    rows: Indices  # their numbers
    X: Array  # (rows, p)
    Y: Array  # (rows, q)
    weight: Array  # (rows,)

    @classmethod
    def of(cls, problem: Problem, rows: Indices, mean_x: Array, mean_y: Array) -> _RowTest:
        """Some rows of a problem."""
        X = problem.X[rows].toarray() if sp.issparse(problem.X) else problem.X[rows]
        weight = np.ones(len(rows)) if problem.weight is None else problem.weight[rows]
        return cls(rows, X - mean_x, problem.Y[rows] - mean_y, weight)

    @property
    def n_rows(self) -> int:
        return len(self.Y)

    def errors(self, coefs: Array) -> Array:
        squares = np.einsum("qlk,qlk,l->k", *[self._residuals(coefs)] * 2, self.weight)
        return np.asarray(squares / (self.weight.sum() * coefs.shape[2]))

    def products(self, coefs: Array) -> Array:
        residual = self._residuals(coefs)
        found = np.einsum("qli,l,qlj->ij", residual, self.weight, residual, optimize=True)
        return np.asarray(found / (self.weight.sum() * len(residual)))

    def deviations(self, coef: Array) -> Array:
        left = self.Y - self.X @ coef
        return np.stack([np.mean(self.Y**2, axis=1), np.mean(self.Y * left, axis=1)])

    def left_out(self, coef: Array) -> Array:
        return np.asarray(self.Y - self.X @ coef)

    def _residuals(self, coefs: Array) -> Array:
        """(q, rows, count)."""
        return self.Y.T[:, :, None] - np.stack([self.X @ coefs[:, :, t].T for t in range(coefs.shape[2])])

    def compare(self, first: Array, second: Array) -> Array:
        u = self.X @ (second - first)
        v = 2 * self.Y - self.X @ (second + first)
        return np.stack([self.weight @ products for products in (u * u, v * v, u * v)])

    def pair_means(self, features: Subsets, values: Array) -> Array:
        k, residual = len(features), self._residuals(dense(features, values))
        own = np.mean(residual**2, axis=2)  # (q, rows)
        same = 2 * np.mean(((residual[:, :, ::2] + residual[:, :, 1::2]) / 2) ** 2, axis=2) - own
        other = (k * k * residual.mean(axis=2) ** 2 - k * own - k * same) / (k * k - 2 * k)
        return np.stack([mean.mean(axis=0) for mean in (own, same, other)])


def grounds_of_rows(
    problem: Problem,
    splits: Splits | None,
    seed: int,
    size: int,
    sharing: Sharing,
    *,
    repeats: int = 1,
    gram: bool | None = None,
) -> Grounds:
    """Rows in memory, in given splits or in random folds, repeated; `size` is that of members on all of them.

    `gram` says whether Gram matrices of all columns are made; None: where they are cheaper for members.
    """
    n = problem.shape[0]
    if splits is None:
        splits = [split for r in range(repeats) for split in _random_splits(n, [seed, r] if r else seed)]
    else:
        splits, repeats = few_splits(splits, n, FOLDS), 1
    if not (_gram_pays(problem, len(splits), size) if gram is None else gram):
        whole = _Rows.of(problem, sharing)
        return Grounds(whole, _row_folds(whole, splits), repeats)
    return Grounds(_Summed(problem.moments_by(sharing), sharing), _summed_folds(problem, splits, sharing), repeats)


def _row_folds(whole: _Rows, splits: Splits) -> Iterator[tuple[Training, Testing]]:
    for train, test in splits:
        rows = whole.take(train)
        yield rows, _RowTest.of(whole.problem, test, *rows.means)


def _summed_folds(problem: Problem, splits: Splits, sharing: Sharing) -> Iterator[tuple[Training, Testing]]:
    def moments(rows: Indices) -> Moments:
        part = problem.take(rows)
        return from_data(part.X, part.Y, part.weight, centre=part.fit_intercept, mapper=sharing)

    whole = problem.moments_by(sharing)
    for train, test in splits:
        fold = moments(test)
        rest = _without(whole, fold) if _is_rest(train, test, problem.shape[0]) else moments(train)
        if problem.shape[0] >= MANY_ROWS:
            yield _Summed(rest, sharing), _SummedTest(LeftOut.of(fold, rest))
        else:
            yield _Summed(rest, sharing), _RowTest.of(problem, test, rest.mean_x, rest.mean_y)


def _is_rest(train: Indices, test: Indices, n: int) -> bool:
    """Whether these are all rows but those."""
    left_out = np.zeros(n, dtype=bool)
    left_out[test] = True
    return len(train) == n - np.count_nonzero(left_out) and not left_out[train].any()


def _random_splits(n: int, seed: int | list[int]) -> Splits:
    fold_of = np.random.default_rng(seed).permutation(n) % min(FOLDS, n)
    return [(np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)) for f in range(fold_of.max() + 1)]


def _gram_pays(problem: Problem, n_folds: int, size: int) -> bool:
    """Whether Gram matrices of all columns cost less than gathering the rows of every member.

    Seconds, roughly: p^2 numbers are summed over all rows once and read and written a few times a fold; members of four
    trials are gathered from the rows.
    """
    n, p = problem.shape
    shared = p**2 * (2e-10 * n * (not problem.has_moments) + 4e-11 * n + 5e-9 * n_folds)
    gathered = 8 * FEWEST_PAIRS * n_folds * n * size * (1e-9 + 1e-10 * size)
    return shared < gathered


def _threads_for(features: Subsets, sharing: Sharing, n_rows: int = 0) -> Sharing:
    """Threads where there is work for them: calling one takes as long as solving many small members."""
    flops = float(np.sum(features.sizes**2.0 * (features.sizes + n_rows)))
    return sharing if flops > WORTH_SHARING else Sharing()


def dense(features: Subsets, values: Array) -> Array:
    """Coefficients of every member over all columns, (k, p, q)."""
    out = np.zeros((len(features), features.n_items, values.shape[1]))
    out[np.repeat(np.arange(len(features)), features.sizes), features.indices] = values
    return out
