r"""Order rows and columns by content, so that the choice of a model does not depend on their order
in the table.

Folds and subsets are drawn by position. Before a choice is made, rows and columns are put into an
order that depends on content alone. Rows that repeat others with their targets, more often than
chance explains, are merged and their weights added: a copy of a row in another fold would make
errors look small, and a weight of two is as two rows. Constant columns are left out.

With standardised columns Z and weights w, rows are ranked by :math:`Z 1`, columns by :math:`Z'Wg` with
a fixed random number g for each rank of a row, rows that tie by :math:`Zh` with a random number h for
each rank of a column, and so on in turn until no rank is new (colour refinement). Targets decide only
about rows and columns that tie, such as rows with equal columns and levels of a factor with as many
rows each, so that several targets have the folds of each of them. No key changes with units or, except
the last one of equal rows, with the sign of y. Values closer than ``TIE_TOL`` of the largest are tied
and leave the decision to the next key, so that rounding errors decide nothing.
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
    """An order of the columns that vary, and of the rows without repeats."""

    columns: Indices  # (p_varying,), or (p,) if no column varies
    n_columns: int  # p
    rows: Indices  # (n_distinct,) first of all equal rows
    distinct_row: Indices  # (n,) for every row, the position in `rows` of the row it equals

    @classmethod
    def of(cls, problem: RowData, *, merge_rows: bool) -> Arrangement:
        """The arrangement of a problem; without `merge_rows` the order of the rows is kept."""
        n, p = problem.shape
        if not merge_rows:
            columns, _ = _orders(StandardisedColumns.of(problem))
            return cls(columns, p, np.arange(n), np.arange(n))
        unweighted = StandardisedColumns.of(replace(problem, weight=None, fit_intercept=True))
        first, distinct_row = _distinct_rows(unweighted)
        n_repeats = n - len(first)
        # a single distinct row cannot be divided into folds
        if len(first) < 2 or (n_repeats and chance_explains(n_repeats, list(problem.Y.T), problem)):
            first = np.arange(n)
            distinct_row = np.arange(n)
        if len(first) == n and problem.weight is None and problem.fit_intercept:
            columns, order = _orders(unweighted)
        else:
            columns, order = _orders(StandardisedColumns.of(_merged(problem, first, distinct_row)))
        position = np.empty(len(first), dtype=np.int64)
        position[order] = np.arange(len(first))
        return cls(columns, p, first[order], position[distinct_row])

    def apply(self, problem: RowData) -> RowData:
        """The problem with its rows merged, and rows and columns in order."""
        moved = _merged(problem, self.rows, self.distinct_row)
        return replace(moved, X=moved.X[:, self.columns])

    def columns_back(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Values of the ordered columns in the original order of the columns, (p,); zeros for
        constant columns.
        """
        out = np.zeros(self.n_columns, dtype=values.dtype)
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


def _distinct_rows(Z: StandardisedColumns) -> tuple[Indices, Indices]:
    """Index of the first of all equal rows, and for every row the position of the first row that it
    equals.
    """
    deviations = Z.problem.Y - Z.problem.Y.mean(axis=0)
    rank = _ranks([*deviations.T, *Z.times(random_numbers(len(Z.unit), 2)).T])
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
    """Row indices in an order that depends on content alone, of which random folds are drawn."""
    return _orders(StandardisedColumns.of(rows))[1]


def column_order(folds: list[Moments]) -> Indices:
    r"""Order of the columns that vary by content, from moments of folds.

    With correlations R of the columns and c with the targets over all folds, the keys are the row
    sums of :math:`R_{ij}^2`, then of :math:`R_{ij}^4`, then of :math:`c_{it}^2`; columns that still
    tie are ordered by their moments in the folds. Other units and signs do not change it.
    """
    moments = Moments.merge_all(folds)
    squares = np.diagonal(moments.G)
    is_constant = constant_columns(squares, moments.mean_x, moments.weight)
    unit = np.sqrt(np.where(is_constant, np.inf, squares))
    shared = (moments.G / unit / unit[:, None]) ** 2
    with_targets = (moments.C / unit[:, None]) ** 2 / np.where(moments.yy > 0, moments.yy, 1.0)
    rank = _ranks([shared.sum(axis=1), (shared**2).sum(axis=1), with_targets.sum(axis=1)])
    if not _all_distinct(rank):
        for fold in folds:
            square_in_fold = np.diagonal(fold.G) / unit**2
            with_targets = np.sum(fold.C * moments.C, axis=1) / unit**2
            rank = _ranks([rank, square_in_fold, with_targets])
    return _varying(np.argsort(rank, kind="stable"), ~is_constant)


def _varying(order: Indices, varies: NDArray[np.bool_]) -> Indices:
    """Columns of an order that vary; all columns if none does."""
    return order[varies[order]] if varies.any() else order


def _orders(Z: StandardisedColumns) -> tuple[Indices, Indices]:
    """Columns that vary and rows, in the order of their content."""
    row_sums = Z.times(np.ones((len(Z.unit), 1)))[:, 0]
    ranks = _Ranks(np.zeros(len(Z.unit), dtype=np.int64), _ranks([row_sums])).refined(Z)
    if not (_all_distinct(ranks.columns) and _all_distinct(ranks.rows)):
        ranks = _ordered_by_targets(Z, ranks).refined(Z)
    if not _all_distinct(ranks.columns):
        ranks = _without_tied_images(Z, ranks)
    columns = _varying(np.argsort(ranks.columns, kind="stable"), Z.unit > 0)
    return columns, np.argsort(ranks.rows, kind="stable")


@dataclass(frozen=True)
class _Ranks:
    """Ranks of columns and rows; items that tie share a rank."""

    columns: Indices  # (p,)
    rows: Indices  # (n,)

    def refined(self, Z: StandardisedColumns) -> _Ranks:
        """Rank columns by the ranks of rows and rows by those of columns in turn, until no rank is
        new.
        """
        weights = Z.problem.weights
        columns = self.columns
        rows = self.rows
        while True:
            n_ranks = columns.max(initial=0) + rows.max(initial=0)
            if not _all_distinct(columns):
                weighted = weights * random_numbers(len(rows), 1)[rows, 0]
                columns = _ranks([columns, Z.transposed_times(weighted[:, None])[:, 0]])
            if not _all_distinct(rows):
                direction = random_numbers(len(columns), 1)[columns]
                rows = _ranks([rows, Z.times(direction)[:, 0]])
            if columns.max(initial=0) + rows.max(initial=0) == n_ranks:
                return _Ranks(columns, rows)


def _ordered_by_targets(Z: StandardisedColumns, ranks: _Ranks) -> _Ranks:
    r"""Ranks of which those that tie are ordered by targets: rows by the mean size of
    :math:`\tilde y`, by :math:`\tilde y \circ (ZZ'W\tilde y)` and :math:`\tilde y` of the first
    target, and by their weights; columns by their products with the targets.
    """
    problem = Z.problem
    deviations = problem.Y - problem.means[1]
    sizes = np.sqrt(np.mean(deviations**2, axis=0))
    scaled = deviations / np.where(sizes > 0, sizes, 1.0)
    products = Z.transposed_times(problem.weights[:, None] * scaled)  # (p, q)
    y = scaled[:, 0]
    fitted = Z.times(products[:, :1])[:, 0]
    rows = [ranks.rows, np.abs(scaled).mean(axis=1), y * fitted, y, problem.weights]
    return _Ranks(_ranks([ranks.columns, np.sum(products**2, axis=1)]), _ranks(rows))


def _without_tied_images(Z: StandardisedColumns, ranks: _Ranks) -> _Ranks:
    """Ranks of columns that tie for copies of each other alone.

    Columns that tie although they differ are images of each other under an exchange of rows, so that
    any order of them gives models that are such images: one set at a time is put in its present
    order, from which the ranks of the others follow.
    """
    copies = Copies.of(Z.transposed_times(random_numbers(len(ranks.rows), 2)))
    _, first, group = np.unique(copies.group, return_index=True, return_inverse=True)
    position = first[group]  # of the first copy of every column
    for _ in range(30):
        n_distinct = np.bincount(ranks.columns[first])
        if n_distinct.max(initial=1) == 1:
            return ranks
        in_first_tie = ranks.columns == np.argmax(n_distinct > 1)
        columns = _ranks([ranks.columns, np.where(in_first_tie, position, 0)])
        ranks = _Ranks(columns, ranks.rows).refined(Z)
    # further sets at once: levels of one factor do not depend on each other
    return _Ranks(_ranks([ranks.columns, position]), ranks.rows).refined(Z)


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


def _all_distinct(rank: Indices) -> bool:
    """Whether no two items share a rank."""
    return bool(rank.max(initial=-1) + 1 == len(rank))


def _ranks(keys: list[Array | Indices]) -> Indices:
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
class StandardisedColumns:
    """Centred columns in units of their standard deviations, by their products.

    Small data are standardised; otherwise X stays as it is stored.
    """

    problem: RowData
    mean: Array  # (p,)
    unit: Array  # (p,)
    explicit: Array | None  # (n, p) all standardised columns

    @classmethod
    def of(cls, problem: RowData) -> StandardisedColumns:
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
