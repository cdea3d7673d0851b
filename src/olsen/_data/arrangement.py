r"""Order rows and columns by content, so that the choice of a model does not depend on their order
in the table.

Folds and subsets are drawn by position. Before a choice is made, rows and columns are put into an
order that depends on content alone. Rows that repeat others with their targets, more often than
chance explains, are merged and their weights added: a copy of a row in another fold would make
errors look small, and a weight of two is as two rows. With standardised columns Z, centred targets
:math:`\tilde y` and weights w that sum to one, columns are ordered by

.. math:: |Z'W\tilde y|, \qquad |Z'W\tilde y^2|, \qquad (Z'W\tilde y) \circ (Z'W Z Z'W\tilde y),

and rows by :math:`|\tilde y|`, then by :math:`Zh`, where h holds a fixed random number for each
rank of a column, then by :math:`\tilde y`. No key changes with units or, except the last, with the
sign of y. Values closer than ``TIE_TOL`` of the largest are tied and leave the decision to the next
key, so that rounding errors decide nothing; rows or columns that all keys tie are copies or mirror
images of each other, and stay in their original order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .moments import Moments, constant_columns
from .rows import RowData, gather
from .stored import BLOCK_ENTRIES, centred_sums, product, transposed_product

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)

TIE_TOL = 1e-9  # fraction of the largest value of a key: closer values count as equal


@dataclass(frozen=True)
class Arrangement:
    """An order of the columns, and of the rows without repeats."""

    columns: Indices  # (p,)
    rows: Indices  # (n_distinct,) first of all equal rows
    distinct_row: Indices  # (n,) for every row, the position in `rows` of the row it equals

    @classmethod
    def of(cls, problem: RowData, *, merge_rows: bool) -> Arrangement:
        """The arrangement for a problem of one target; without `merge_rows` the order of the rows
        is kept.
        """
        n = problem.shape[0]
        if not merge_rows:
            columns, _ = _orders(_Standardised.of(problem))
            return cls(columns, np.arange(n), np.arange(n))
        unweighted = _Standardised.of(replace(problem, weight=None, fit_intercept=True))
        first, distinct_row = _distinct_rows(unweighted)
        n_repeats = n - len(first)
        # a single distinct row cannot be divided into folds
        if len(first) < 2 or (n_repeats and chance_explains(n_repeats, [problem.Y[:, 0]], problem)):
            first = np.arange(n)
            distinct_row = np.arange(n)
        if len(first) == n and problem.weight is None and problem.fit_intercept:
            columns, order = _orders(unweighted)
        else:
            columns, order = _orders(_Standardised.of(_merged(problem, first, distinct_row)))
        position = np.empty(len(first), dtype=np.int64)
        position[order] = np.arange(len(first))
        return cls(columns, first[order], position[distinct_row])

    @property
    def key(self) -> bytes:
        """Bytes that are equal for equal arrangements."""
        return b"".join(part.tobytes() for part in (self.columns, self.rows, self.distinct_row))

    def apply(self, problem: RowData) -> RowData:
        """The problem with its rows merged, and rows and columns in order."""
        moved = _merged(problem, self.rows, self.distinct_row)
        return replace(moved, X=moved.X[:, self.columns])

    def columns_back(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Values of the ordered columns, (p,), in the original order of the columns."""
        out = np.empty_like(values)
        out[self.columns] = values
        return out

    def rows_back(self, rows: Indices, values: Array) -> tuple[Indices, Array]:
        """All original rows that equal one of the distinct `rows`, and the `values` of their
        distinct rows.
        """
        value = np.zeros(len(self.rows))
        value[rows] = values
        chosen = np.zeros(len(self.rows), dtype=bool)
        chosen[rows] = True
        original_rows = np.flatnonzero(chosen[self.distinct_row])
        return original_rows, value[self.distinct_row[original_rows]]


def _merged(problem: RowData, first: Indices, distinct_row: Indices) -> RowData:
    """The rows `first`, each with the weight of all rows that equal it."""
    n = problem.shape[0]
    if len(first) == n and np.array_equal(first, np.arange(n)):
        return replace(problem)  # without the cached moments, whose columns are in another order
    merged = problem.take(first)
    if len(first) == n:
        return merged
    weight = np.bincount(distinct_row, weights=problem.weights, minlength=len(first)).astype(
        np.float64
    )
    return replace(merged, weight=weight)


def _distinct_rows(Z: _Standardised) -> tuple[Indices, Indices]:
    """Index of the first of all equal rows, and for every row the position of the first row that it
    equals.
    """
    y = Z.problem.Y[:, 0]
    keys = [y - y.mean(), *Z.times(random_numbers(len(Z.unit), 2)).T]
    rank = _ranks(keys)
    _, first, distinct_row = np.unique(rank, return_index=True, return_inverse=True)
    in_order = np.argsort(first)  # so that rows without repeats keep their positions
    position = np.empty(len(first), dtype=np.int64)
    position[in_order] = np.arange(len(first))
    return first[in_order], position[distinct_row]


def chance_explains(n_repeats: int, targets: list[Array], problem: RowData) -> bool:
    """Whether independent rows of cells as coarse as those of X and `targets` would repeat each
    other about as often.

    A column of C equally likely values leaves n - C (1 - exp(-n / C)) repeats among n rows. A
    rounded column has about range / step values, of which a bell curve uses a quarter. A single
    column too fine for that many repeats shows that chance does not explain the repeats. (Merging
    repeats of coarse tables costs accuracy: such rows are separate observations.)
    """
    n, p = problem.shape
    columns = (gather(problem.X, slice(j, j + 1), None)[:, 0] for j in range(p))
    for values in chain(targets, columns):
        in_order = np.sort(values)
        differences = np.diff(in_order)
        width = float(in_order[-1] - in_order[0])
        steps = differences[differences > TIE_TOL * width]
        if len(steps):
            n_values = max(1.0, width / float(steps.min()) / 4)
            expected_repeats = n + n_values * np.expm1(-n / n_values)
            if n_repeats > 3 * expected_repeats:  # more than chance explains
                return False
    return True


def order_of_content(rows: RowData) -> Indices:
    r"""Row indices in an order that depends on content alone, of which random folds are drawn.

    The keys are the row sums of Z, then the mean over targets of :math:`|\tilde y|` in units of its
    standard deviation; rows that tie are further ordered by :math:`\tilde y \circ (Z Z'W\tilde y)`
    and :math:`\tilde y` of the first target, and by their weights. Targets decide only about rows
    with equal columns, so that several targets have the folds of each of them.
    """
    Z = _Standardised.of(rows)
    n, p = rows.shape
    rank = _ranks([Z.times(np.ones((p, 1)))[:, 0]])
    if rank.max(initial=0) < n - 1:
        deviations = rows.Y - rows.means[1]
        sizes = np.sqrt(np.mean(deviations**2, axis=0))
        scaled = deviations / np.where(sizes > 0, sizes, 1.0)
        rank = _ranks([rank.astype(np.float64), np.abs(scaled).mean(axis=1)])
    if rank.max(initial=0) < n - 1:
        y = scaled[:, 0]
        fitted = Z.times(Z.transposed_times((rows.weights * y)[:, None]))[:, 0]
        rank = _ranks([rank.astype(np.float64), y * fitted, y, rows.weights])
    return np.argsort(rank, kind="stable")


def column_order(moments: Moments) -> Indices:
    r"""Order of the columns by content, from moments: other units and signs do not change it.

    With correlations R of the columns and c with the targets, the keys are the row sums of
    :math:`R_{ij}^2`, then of :math:`R_{ij}^4`, then of :math:`c_{it}^2`: targets decide only about
    columns that tie, so that several targets have the order of each of them.
    """
    squares = np.diagonal(moments.G)
    is_constant = constant_columns(squares, moments.mean_x, moments.weight)
    unit = np.sqrt(np.where(is_constant, np.inf, squares))
    shared = (moments.G / unit / unit[:, None]) ** 2
    with_targets = (moments.C / unit[:, None]) ** 2 / np.where(moments.yy > 0, moments.yy, 1.0)
    keys = [shared.sum(axis=1), (shared**2).sum(axis=1), with_targets.sum(axis=1)]
    return np.argsort(_ranks(keys), kind="stable")


def _orders(Z: _Standardised) -> tuple[Indices, Indices]:
    """Columns and rows in the order of their content."""
    problem = Z.problem
    weight = problem.weights / problem.total_weight
    y = problem.Y[:, 0] - problem.means[1][0]
    along = Z.transposed_times(np.column_stack([weight * y, weight * y**2]))  # (p, 2)
    twice = Z.transposed_times((weight * Z.times(along[:, :1])[:, 0])[:, None])[:, 0]
    column_rank = _ranks([np.abs(along[:, 0]), np.abs(along[:, 1]), along[:, 0] * twice])
    direction = random_numbers(len(Z.unit), 1)[column_rank]
    row_rank = _ranks([np.abs(y), Z.times(direction)[:, 0], y])
    return np.argsort(column_rank, kind="stable"), np.argsort(row_rank, kind="stable")


@dataclass(frozen=True)
class Copies:
    """Standardised columns that are copies of each other, or copies with the other sign."""

    group: Indices  # (p,) the same number for all copies of a column
    sign: Array  # (p,) one or minus one

    @classmethod
    def of(cls, products: Array) -> Copies:
        """Find copies from products (p, 2) of standardised columns with two random vectors, which
        copies share.
        """
        first, second = products.T
        return cls(_ranks([np.abs(first), first * second]), np.where(first < 0, -1.0, 1.0))

    def mean(self, values: Array) -> Array:
        """Values of the columns, (p,) or (p, q), averaged over copies: which copy a solver took
        depends on the order.
        """
        count = np.bincount(self.group)
        if count.max(initial=1) == 1:
            return values
        total = np.zeros((len(count), *values.shape[1:]))
        np.add.at(total, self.group, values)
        return np.asarray((total.T / count).T[self.group])

    def mean_coef(self, coef: Array) -> Array:
        """Coefficients (p, q) of standardised columns, averaged over copies: the fit of the
        training rows stays.
        """
        return np.asarray(self.sign[:, None] * self.mean(self.sign[:, None] * coef))


def _ranks(keys: list[Array]) -> Indices:
    """Rank of every item by the first key, then the next; items whose keys are all tied share a
    rank.
    """
    rank = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        order = np.lexsort((key, rank))
        apart = np.diff(key[order]) > TIE_TOL * np.abs(key).max(initial=0.0)
        steps = apart | (np.diff(rank[order]) > 0)
        rank[order] = np.concatenate([[0], np.cumsum(steps)])
    return rank


def random_numbers(count: int, sets: int) -> Array:
    """Fixed random numbers, (count, sets)."""
    return np.random.default_rng(7).standard_normal((sets, count)).T


@dataclass(frozen=True)
class _Standardised:
    """Centred columns in units of their standard deviations, by their products.

    Small data are standardised; otherwise X stays as it is stored.
    """

    problem: RowData
    mean: Array  # (p,)
    unit: Array  # (p,)
    explicit: Array | None  # (n, p) all standardised columns

    @classmethod
    def of(cls, problem: RowData) -> _Standardised:
        """Units of zero mark constant columns, whose standardised entries are zero."""
        mean = problem.means[0]
        total = problem.total_weight
        weights = problem.weights
        n, p = problem.shape
        if n * p <= BLOCK_ENTRIES:
            explicit = gather(problem.X, slice(None), None) - mean
            squares = np.einsum("l,lj,lj->j", weights, explicit, explicit)
        else:
            explicit = None
            squares = centred_sums(problem.X, mean, weights[None])[1][0]
        if problem.fit_intercept:
            squares[constant_columns(squares, mean, total)] = 0.0
        unit = np.sqrt(squares / total)
        if explicit is not None:
            explicit /= np.where(unit > 0, unit, np.inf)
        return cls(problem, mean, unit, explicit)

    def times(self, B: Array) -> Array:
        """Z B for B of shape (p, count)."""
        if self.explicit is not None:
            return np.asarray(self.explicit @ B)
        scaled = B / self._divisor
        return product(self.problem.X, scaled, None) - self.mean @ scaled

    def transposed_times(self, B: Array) -> Array:
        """Z' B for B of shape (n, count)."""
        if self.explicit is not None:
            return np.asarray(self.explicit.T @ B)
        products = transposed_product(self.problem.X, B)
        products -= np.outer(self.mean, B.sum(axis=0))
        return np.asarray(products / self._divisor)

    @property
    def _divisor(self) -> Array:
        """Standard deviations (p, 1), by which constant columns become zero."""
        return np.where(self.unit > 0, self.unit, np.inf)[:, None]
