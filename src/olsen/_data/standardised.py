r"""Standardised training rows of least squares: their moments, or the rows themselves.

Columns have unit standard deviation over all rows, and the columns that are always in (the
intercept) were swept out. :class:`StandardisedMoments` and :class:`StandardisedRows` answer the
same questions; the moments are cheaper unless columns are many. Where standardised rows would be
too many numbers, :class:`ImplicitRows <olsen._data.implicit.ImplicitRows>` answer from X as it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.arrays import row_products
from .._execution.threads import Threads, cached_property
from .arrangement import Copies, random_numbers
from .device_products import DeviceProducts
from .implicit import ImplicitRows
from .moments import Moments, constant_columns
from .rows import RowData

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MAX_GRAM_COLUMNS_PER_ROW = 2 / 3  # up to which Gram matrices are cheaper than rows
# fraction of a column's sum of squares: with less in the training rows, it is constant there
CONSTANT_TOL = 1e-5


@dataclass(frozen=True)
class StandardisedMoments:
    """Products of standardised columns with each other and with the targets."""

    products: Array  # (p, p) of the columns
    C: Array  # (p, q)
    squares: Array  # (p,) sums of squares of the columns
    n_rows: int
    weight: float
    on_device: DeviceProducts | None = None  # the products, where the rows are

    rows = None  # moments do not know the rows
    few_rows = True  # nothing is computed from the rows

    @classmethod
    def of(
        cls, moments: Moments, unit: Array, total: Moments, on_device: Moments | None = None
    ) -> StandardisedMoments:
        """Standardise the moments of training rows; columns with almost no variance there, compared
        with the `total` of all rows, count as constant. `on_device` are the moments on a device.
        """
        G = moments.G / unit / unit[:, None]
        C = moments.C / unit[:, None]
        constant = np.diagonal(moments.G) <= CONSTANT_TOL * np.diagonal(total.G)
        if constant.any():
            G[constant] = 0.0
            G[:, constant] = 0.0
            C[constant] = 0.0
        squares = np.ascontiguousarray(np.diagonal(G))
        products = None
        if on_device is not None:
            per_unit = np.where(constant, 0.0, 1 / unit)
            every_column = np.arange(len(unit))
            products = DeviceProducts(on_device.space, on_device.G).scaled(every_column, per_unit)
        return cls(G, C, squares, moments.n_rows, moments.weight, products)

    def targets_at(self, which: Indices) -> StandardisedMoments:
        """The moments with some of the targets."""
        return replace(self, C=self.C[:, which])

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues of the products in rising order, and eigenvectors."""
        return eigen(self.products)

    @property
    def has_eigen(self) -> bool:
        """Whether the eigenvectors have been computed already."""
        return "eigen" in vars(self)

    @cached_property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.products @ random_numbers(len(self.C), 2))


@dataclass(frozen=True)
class StandardisedRows:
    """Standardised, sqrt-weighted rows, for more columns than rows."""

    A: Array  # (n, p) in column order
    B: Array  # (n, q)
    root: Array  # (n,) square roots of the weights
    null_rank: int  # rank of the columns that were swept out
    known_products: Array | None = None  # A A', if it was computed before

    few_rows = True  # products of the rows are affordable
    on_device = None  # rows on a device have moments

    @classmethod
    def of(cls, problem: RowData) -> tuple[StandardisedRows, Array]:
        """Standardise all rows, and return the standard deviations; constant columns are zero."""
        X = problem.X
        dense = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        root = np.ones(len(dense)) if problem.weight is None else np.sqrt(problem.weight)
        mean_x, mean_y = problem.means
        A = np.subtract(dense, mean_x, order="F")
        if problem.weight is not None:
            A *= root[:, None]
        squares = np.einsum("lj,lj->j", A, A)
        if problem.null_rank:
            squares[constant_columns(squares, mean_x, problem.total_weight)] = 0.0
        A[:, squares == 0] = 0.0
        unit = standard_deviations(squares / problem.total_weight)
        A /= unit
        return cls(A, (problem.Y - mean_y) * root[:, None], root, problem.null_rank), unit

    @property
    def rows(self) -> StandardisedRows:
        """The rows, which moments do not know."""
        return self

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.A)

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
        return row_products(self.A) if self.known_products is None else self.known_products

    @cached_property
    def column_products(self) -> Array:
        """Products of the columns, A'A, (p, p)."""
        return row_products(self.A.T)

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues of the products in rising order, and eigenvectors."""
        return eigen(self.products)

    @cached_property
    def C(self) -> Array:
        """Products of columns and targets, (p, q)."""
        return self.transposed_times(self.B)

    def transposed_times(self, U: Array) -> Array:
        """A' U, for U of shape (n, count)."""
        return np.asarray(self.A.T @ U)

    def gathered(self, columns: Indices | slice) -> Array:
        """Some columns of A, (n, count)."""
        return self.A[:, columns]

    def weighted_products(self, prior_variances: Array) -> Array:
        """Products A D A' of the rows, (n, n), for prior variances D of the columns."""
        S = np.flatnonzero(prior_variances > 0)
        Z = self.A if len(S) == self.A.shape[1] else self.A[:, S]
        return row_products(Z * np.sqrt(prior_variances[S]))

    def blocks(self) -> list[slice]:
        """Slices of columns that are dense at a time: all."""
        return [slice(None)]

    @cached_property
    def squares(self) -> Array:
        """Sums of squares of the columns, (p,)."""
        return np.asarray(np.einsum("lj,lj->j", self.A, self.A))

    @cached_property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.A.T @ random_numbers(len(self.A), 2))

    def targets_at(self, which: Indices) -> StandardisedRows:
        """The rows with some of the targets."""
        return replace(self, B=self.B[:, which], known_products=self.products)

    def take(self, rows: Indices) -> StandardisedRows:
        """Training rows, centred: P A and P A A' P, with P = I - r r'/r'r and r the roots of the
        weights.

        A column with less than CONSTANT_TOL of its sum of squares in the training rows counts as
        constant there. Otherwise a level of a factor that does not occur in the training rows would
        be a column of rounding errors with a coefficient of any size.
        """
        A = self.A.T[:, rows].T
        B = self.B[rows]
        K = self.products[np.ix_(rows, rows)]
        r = self.root[rows]
        if self.null_rank:
            mean_weights = r / (r @ r)
            A -= r[:, None] * (mean_weights @ A)
            B -= r[:, None] * (mean_weights @ B)
            u = K @ mean_weights
            K -= np.outer(r, u)
            K -= np.outer(u, r)
            K += (mean_weights @ u) * np.outer(r, r)
        constant = np.flatnonzero(np.einsum("lj,lj->j", A, A) <= CONSTANT_TOL * self.squares)
        if len(constant):
            K -= A[:, constant] @ A[:, constant].T
            A[:, constant] = 0.0
            if len(constant) == A.shape[1]:
                K[:] = 0.0  # exact zeros instead of rounding errors
        return StandardisedRows(A, B, r, self.null_rank, K)


AnyRows = StandardisedRows | ImplicitRows
Standardised = StandardisedMoments | AnyRows


def eigen(G: Array) -> tuple[Array, Array]:
    """Eigenvalues of a symmetric matrix in rising order, and eigenvectors."""
    values, vectors = np.linalg.eigh(G)
    return values, vectors


def few_columns(shape: tuple[int, int]) -> bool:
    """Whether Gram matrices are cheaper than rows."""
    n, p = shape
    return p <= MAX_GRAM_COLUMNS_PER_ROW * n


def standardise(problem: RowData, threads: Threads) -> tuple[Standardised, Array]:
    """Standardise all rows, as moments or, where columns are more, as rows; and return the standard
    deviations.
    """
    if not few_columns(problem.shape):
        return StandardisedRows.of(problem)
    return standardised_moments(problem.moments_by(threads))


def standardised_moments(moments: Moments) -> tuple[StandardisedMoments, Array]:
    """Standardise moments of all rows, and return the standard deviations."""
    unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
    return StandardisedMoments.of(moments, unit, moments), unit


def standard_deviations(variance: Array) -> Array:
    """Roots of variances; one for constant columns."""
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0.0)), 1.0)
