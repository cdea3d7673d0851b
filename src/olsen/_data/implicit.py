r"""Standardised rows that are never made: X as it is stored, and what standardising changes.

The standardised, sqrt-weighted rows are :math:`A = W^{1/2} (X - 1 m') U^{-1}`, with means m and
standard deviations U. Products with A are products with X and rank-one corrections, so that sparse X
stays sparse, and single precision and integers are widened a block of columns at a time:

.. math:: A v = W^{1/2} (X U^{-1} v - 1\, m' U^{-1} v) , \qquad
          A' u = U^{-1} (X' W^{1/2} u - m\, 1' W^{1/2} u) .

Training rows of a fold are row indices, so that folds copy nothing.

Numerical price: products with a column whose mean is r times its standard deviation lose a factor r
of accuracy, sums of its squares r^2. Columns beyond MAX_MEAN_PER_DEVIATION are centred explicitly in sums
of squares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.arrays import row_products
from .._execution.threads import cached_property
from .arrangement import Copies, random_numbers
from .moments import constant_columns
from .rows import RowData
from .stored import (
    BLOCK_ENTRIES,
    MAX_MEAN_PER_DEVIATION,
    blocks,
    centred_sums,
    dense,
    product,
    transposed_product,
)

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# entries of X up to which standardised rows are made: 32 MB, and a few times as much in the folds
MAX_EXPLICIT_ENTRIES = 1 << 22
# columns of sparse X above which no Gram matrix is made, however many rows there are
MAX_SPARSE_GRAM_COLUMNS = 1000
# rows up to which products of rows, (n, n), are decomposed: eigenvectors of 1000 rows take .3 s
MAX_PRODUCT_ROWS = 1000


def stays_implicit(problem: RowData) -> bool:
    """Whether the rows of a problem are too many numbers to be standardised explicitly.

    They are where columns are more than rows, and where X is sparse with more columns than a Gram
    matrix should have.
    """
    n, p = problem.shape
    many_sparse_columns = sp.issparse(problem.X) and p > MAX_SPARSE_GRAM_COLUMNS
    return too_wide_to_copy(n, p) or (n * p > MAX_EXPLICIT_ENTRIES and many_sparse_columns)


def too_wide_to_copy(n: int, p: int) -> bool:
    """Whether dense rows of this shape are not standardised explicitly."""
    return n * p > MAX_EXPLICIT_ENTRIES and p > n


@dataclass(frozen=True, kw_only=True)
class ImplicitRows:
    """Standardised, sqrt-weighted rows A by their products."""

    X: Any  # (all rows, p) as stored: dense of any real type, or csc_array
    taken: Indices | None  # rows of X that the n rows are; None: all
    mean: Array  # (p,) that is subtracted from X
    scale: Array  # (p,) one over the standard deviations over all rows; zero for constant columns
    squares: Array  # (p,) sums of squares of the columns of A
    B: Array  # (n, q)
    root: Array  # (n,) square roots of the weights
    null_rank: int  # rank of the columns that were swept out
    known_products: Array | None = None  # A A', if it was computed before

    A = None  # is never made
    on_device = None  # rows on a device have moments

    @classmethod
    def of(cls, problem: RowData) -> tuple[ImplicitRows, Array]:
        """Standardise all rows, and return the standard deviations; constant columns are zero."""
        mean_x, mean_y = problem.means
        weights = problem.weights
        _, squares = centred_sums(problem.X, mean_x, weights[None])
        squares = squares[0]
        total = problem.total_weight
        if problem.null_rank:
            squares[constant_columns(squares, mean_x, total)] = 0.0
        varies = squares > 0
        unit = np.where(varies, np.sqrt(squares / total), 1.0)
        root = np.sqrt(weights)
        rows = cls(
            X=problem.X,
            taken=None,
            mean=mean_x,
            scale=varies / unit,
            squares=np.where(varies, total, 0.0),
            B=(problem.Y - mean_y) * root[:, None],
            root=root,
            null_rank=problem.null_rank,
        )
        return rows, unit

    def take(self, row_sets: list[Indices], constant_tol: float) -> list[ImplicitRows]:
        """Sets of training rows, each centred, in one pass over X.

        A column with less than `constant_tol` of its sum of squares in the training rows counts as
        constant there.
        """
        weights = np.zeros((len(row_sets), len(self.root)))
        for of_set, rows in zip(weights, row_sets, strict=True):
            of_set[rows] = self.root[rows] ** 2
        sums, squares = centred_sums(self.X, self.mean, weights)
        totals = weights.sum(axis=1)
        training_sets = []
        for rows, total, shift, of_set in zip(row_sets, totals, sums, squares, strict=True):
            mean = self.mean
            root = self.root[rows]
            B = self.B[rows]
            if self.null_rank:
                shift /= total
                mean = mean + shift
                of_set -= total * shift**2
                B = B - root[:, None] * (root @ B / total)
            of_set *= self.scale**2
            varies = of_set > constant_tol * self.squares
            all_columns = replace(self, taken=rows, mean=mean, B=B, root=root)
            training_sets.append(
                replace(
                    all_columns,
                    scale=self.scale * varies,
                    squares=of_set * varies,
                    known_products=self._products_of(rows, all_columns, varies),
                )
            )
        return training_sets

    def _products_of(
        self, rows: Indices, train: ImplicitRows, varies: NDArray[np.bool_]
    ) -> Array | None:
        """Products of training rows and the columns that vary there, from those of all rows; None
        where products of rows are not affordable.
        """
        if not self.few_rows:
            return None
        products = self.products[np.ix_(rows, rows)]
        if self.null_rank:  # P A A' P, with P = I - r r' / r'r
            r = train.root
            u = products @ r / train.weight
            products -= np.outer(r, u) + np.outer(u, r) - np.outer(r, r) * (r @ u / train.weight)
        if not varies.all():
            products -= replace(train, known_products=None).weighted_products(
                np.where(varies, 0.0, 1.0)
            )
        return products

    def targets_at(self, which: Indices) -> ImplicitRows:
        """The rows with some of the targets."""
        known_products = vars(self).get("products", self.known_products)
        return replace(self, B=self.B[:, which], known_products=known_products)

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues of the products in rising order, and eigenvectors."""
        values, E = np.linalg.eigh(self.products)
        return values, E

    @property
    def rows(self) -> ImplicitRows:
        """The rows, which moments do not know."""
        return self

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.root)

    @property
    def few_rows(self) -> bool:
        """Whether products of the rows are affordable."""
        return self.n_rows <= MAX_PRODUCT_ROWS

    @cached_property
    def weight(self) -> float:
        """Total weight of the rows."""
        return float(self.root @ self.root)

    @property
    def null_leverages(self) -> Array:
        """Leverage (n,) of every row in the columns that were swept out."""
        return np.asarray(self.root**2 / self.weight * self.null_rank)

    @cached_property
    def products(self) -> Array:
        """Products of the rows, A A', (n, n)."""
        if self.known_products is not None:
            return self.known_products
        return self.weighted_products(np.ones(len(self.scale)))

    @cached_property
    def C(self) -> Array:
        """Products of columns and targets, (p, q)."""
        return self.transposed_times(self.B)

    @cached_property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.transposed_times(random_numbers(self.n_rows, 2)))

    def times(self, V: Array) -> Array:
        """A V, for V of shape (p, count)."""
        scaled = V * self.scale[:, None]
        return self.root[:, None] * (product(self.X, scaled, self.taken) - self.mean @ scaled)

    def transposed_times(self, U: Array) -> Array:
        """A' U, for U of shape (n, count)."""
        weighted = U * self.root[:, None]
        sums = weighted.sum(axis=0)
        if self.taken is not None:
            at_rows = np.zeros((self.X.shape[0], U.shape[1]))
            at_rows[self.taken] = weighted
            weighted = at_rows
        products = transposed_product(self.X, weighted)
        products -= self.mean[:, None] * sums
        products *= self.scale[:, None]
        return products

    def gathered(self, columns: Indices | slice) -> Array:
        """Some columns of A, dense, (n, count)."""
        block = dense(self.X, columns, self.taken) - self.mean[columns]
        block *= self.scale[columns]
        block *= self.root[:, None]
        return np.asarray(block)

    def of_columns(self, columns: Indices) -> ImplicitRows:
        """The rows with some of the columns."""
        return replace(
            self,
            X=self.X[:, columns],
            mean=self.mean[columns],
            scale=self.scale[columns],
            squares=self.squares[columns],
        )

    def blocks(self) -> Iterator[slice]:
        """Slices of columns that are dense at a time."""
        return blocks(self.n_rows, len(self.scale))

    def weighted_products(self, prior_variances: Array) -> Array:
        """Products A D A' of the rows, (n, n), for prior variances D of the columns."""
        factor = np.sqrt(prior_variances)
        used = np.flatnonzero(factor * self.scale)
        total = np.zeros((self.n_rows, self.n_rows))
        if sp.issparse(self.X):
            far = self._far[used]
            near_columns = used[~far]
            total += self._sparse_products(near_columns, factor[near_columns])
            used = used[far]
        step = max(1, BLOCK_ENTRIES // self.n_rows)
        for start in range(0, len(used), step):
            columns = used[start : start + step]
            total += row_products(self.gathered(_as_slice(columns)) * factor[columns])
        return total

    def _sparse_products(self, columns: Indices, factor: Array) -> Array:
        """Products A D A' of the rows over some columns of sparse X."""
        factor = factor * self.scale[columns]
        X = self._rows_of(self.X[:, columns])
        X.data *= np.repeat(factor, np.diff(X.indptr))
        mean = self.mean[columns] * factor
        products = (X @ X.T).toarray()
        along = X @ mean
        products -= along
        products -= along[:, None]
        products += mean @ mean
        products *= self.root
        products *= self.root[:, None]
        return np.asarray(products)

    def products_of_columns(self, columns: Indices) -> Array:
        """Products A'A of some columns, (count, count)."""
        if not sp.issparse(self.X):
            return row_products(self.gathered(columns).T)
        X = self.X[:, columns]
        scale = self.scale[columns]
        mean = self.mean[columns]
        data = X.data * self._weight_of_all[X.indices]  # zero in rows that are not taken
        weighted = sp.csc_array((data, X.indices, X.indptr), X.shape)
        sums = np.asarray(weighted.T @ np.ones(X.shape[0]))
        products = (X.T @ weighted).toarray()
        products -= np.outer(mean, sums) + np.outer(sums, mean) - self.weight * np.outer(mean, mean)
        products *= scale
        products *= scale[:, None]
        far = np.flatnonzero(self._far[columns])
        if len(far):
            explicit = self.of_columns(columns).transposed_times(self.gathered(columns[far]))
            products[:, far] = explicit
            products[far] = explicit.T
        return np.asarray(products)

    def sparse_columns(self, columns: Indices) -> Any:
        """Some columns of the rows of sparse X, as a csc_array in double precision."""
        return self._rows_of(self.X[:, columns])

    def _rows_of(self, X: Any) -> Any:
        """The training rows of sparse columns, a copy in double precision."""
        if self.taken is not None:
            X = sp.csc_array(sp.csr_array(X)[self.taken])
        return sp.csc_array(X, dtype=np.float64, copy=True)

    @cached_property
    def _weight_of_all(self) -> Array:
        """Weights of all rows of X, zero for rows that are not taken."""
        weight = np.zeros(self.X.shape[0])
        weight[slice(None) if self.taken is None else self.taken] = self.root**2
        return weight

    @cached_property
    def _far(self) -> NDArray[np.bool_]:
        """Columns whose means are too large for implicit sums of squares, (p,)."""
        return np.abs(self.mean) * self.scale > MAX_MEAN_PER_DEVIATION


def _as_slice(columns: Indices) -> Indices | slice:
    """Neighbouring columns as a slice, which copies less."""
    first, last = int(columns[0]), int(columns[-1])
    return slice(first, last + 1) if last - first + 1 == len(columns) else columns
