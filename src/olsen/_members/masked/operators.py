r"""The normal equations of many members as one product with a matrix of vectors, one column for each member.

.. math:: V \mapsto W \circ \bigl(G\,(W \circ V)\bigr), \qquad
          V \mapsto W \circ \bigl(X' (D \circ (X (W \circ V)))\bigr)

W holds zeros outside a member's columns and the Jacobi scaling inside, D the weights of a member's rows and zeros
elsewhere. Members with fewer rows than columns take the dual form, whose solution gives the coefficients of minimum
norm as :math:`W \circ X'(D \circ U)`:

.. math:: U \mapsto D \circ X (W \circ X' (D \circ U))


Means are taken out by rank-one corrections, so sparse data stay sparse. Everything is written against the array API;
only :class:`Rows` knows what X is made of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..._execution.arrays import Space

__all__ = ["Dual", "Gram", "Normal", "NormalRows", "Rows", "UnitGram", "column_squares"]

_BLOCK_BYTES = 1 << 25


@dataclass(frozen=True)
class Rows:
    """Rows of X about a centre, dense in any namespace or scipy sparse; blocks of them are made float on the fly."""

    X: Any  # (n, p)
    centre: Any  # (p,) in the working type; zeros without intercept
    xp: Any = np
    spread: Any = None  # (p, 1) weighted squares about the centre over all rows, zero for constant columns
    far: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))  # columns that centring would spoil

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.X.shape
        return shape

    @property
    def entries(self) -> float:
        """Numbers stored: a product with c columns takes twice as many flops times c."""
        return float(self.X.nnz) if sp.issparse(self.X) else float(self.shape[0]) * self.shape[1]

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Pairs (rows, block in the working type), one block for sparse data."""
        n, p = self.shape
        if sp.issparse(self.X):
            yield slice(0, n), self.X
            return
        dtype = self.centre.dtype
        step = n if self.X.dtype == dtype else max(1, _BLOCK_BYTES // (8 * p))
        for start in range(0, n, step):
            here = slice(start, min(start + step, n))
            yield here, self.xp.astype(self.X[here, :], dtype, copy=False)

    def forward(self, V: Any) -> Any:
        """(X - 1 centre') V."""
        shift = self.centre @ V
        return self.xp.concat([_product(block, V) - shift for _, block in self.blocks()], axis=0)

    def backward(self, T: Any) -> Any:
        """(X - 1 centre')' T."""
        total = -self.centre[:, None] * self.xp.sum(T, axis=0)[None, :]
        for rows, block in self.blocks():
            total = total + _product(block.T, T[rows, :])
        return total

    def normal(self, V: Any, D: Any) -> tuple[Any, Any]:
        """(X - 1 centre')' (D * ((X - 1 centre') V)) and the column sums of the inner bracket, in one pass."""
        shift = self.centre @ V
        product: Any = None
        sums: Any = 0.0
        for rows, block in self.blocks():
            T = _product(block, V)
            T -= shift
            if D is not None:
                T *= D[rows, :]
            part = _product(block.T, T)
            product = part if product is None else product + part
            sums = sums + self.xp.sum(T, axis=0)
        return product - self.centre[:, None] * sums[None, :], sums

    def squares(self, D: Any) -> Any:
        """Sums over rows of D * (X - 1 centre')^2, (p, columns of D); D is (n, c)."""
        if sp.issparse(self.X):
            mean = self.centre[:, None]
            second = self.X.multiply(self.X).T @ D
            return np.asarray(second - 2 * mean * (self.X.T @ D) + mean**2 * D.sum(axis=0))
        total: Any = 0.0
        for rows, block in self.blocks():
            total = total + ((block - self.centre) ** 2).T @ D[rows, :]
        return total


@dataclass(frozen=True)
class Gram:
    """Members on one Gram matrix: W * (G @ (W * V))."""

    G: Any  # (p, p)
    W: Any  # (p, columns)

    def __call__(self, V: Any) -> Any:
        product = self.G @ (self.W * V)
        product *= self.W
        return product

    def take(self, columns: Any, xp: Any) -> Gram:
        """Only some columns."""
        return replace(self, W=xp.take(self.W, columns, axis=1))

    def flops(self) -> float:
        """Of one product, a column."""
        return float(2.0 * self.G.shape[0] ** 2)


@dataclass(frozen=True)
class UnitGram:
    """Members on a Gram matrix of unit diagonal: mask * (G @ V), where V is zero outside the mask.

    Two passes over memory less than :class:`Gram` at the price of a scaled copy of G; on a GPU that moves an array in
    about the time of the product, they count.
    """

    G: Any  # (p, p)
    mask: Any  # (p, columns)
    space: Space

    def __call__(self, V: Any) -> Any:
        product = self.G @ V
        self.space.clear_outside(product, self.mask)
        return product

    def take(self, columns: Any, xp: Any) -> UnitGram:
        """Only some columns."""
        return replace(self, mask=xp.take(self.mask, columns, axis=1))

    def flops(self) -> float:
        """Of one product, a column."""
        return float(2.0 * self.G.shape[0] ** 2)


class NormalRows(Protocol):
    """What :class:`Normal` asks of rows, wherever they are."""

    @property
    def entries(self) -> float:
        """Numbers stored."""

    def normal(self, V: Any, D: Any) -> tuple[Any, Any]:
        """As :meth:`Rows.normal`."""


@dataclass(frozen=True)
class Normal:
    """Members on their own rows without a Gram matrix: W * (A' A (W * V)).

    Centring about the member's own rows is one more rank-one correction, with ``shift`` the mean of these rows less the
    common centre.
    """

    rows: NormalRows
    W: Any  # (p, columns)
    D: Any  # (n, columns), (n, 1) or None: weights of the rows
    shift: Any = None  # (p, columns), or None where the rows have mean `centre`

    def __call__(self, V: Any) -> Any:
        product, sums = self.rows.normal(self.W * V, self.D)
        if self.shift is not None:
            product -= self.shift * sums[None, :]
        product *= self.W
        return product

    def take(self, columns: Any, xp: Any) -> Normal:
        """Only some columns."""
        return replace(
            self, W=xp.take(self.W, columns, axis=1), D=_take(self.D, columns, xp), shift=_take(self.shift, columns, xp)
        )

    def flops(self) -> float:
        """Of one product, a column."""
        return 4.0 * self.rows.entries


@dataclass(frozen=True)
class Dual:
    """Members with fewer rows than columns: A A' U + r r' U, with A = D (X - 1 centre' - 1 shift') W.

    The rows of a centred A have a null vector, r. Adding r r' makes the operator definite and changes nothing, since
    right-hand sides are orthogonal to r; r is zero without intercept.
    """

    rows: Rows
    W: Any  # (p, columns)
    D: Any  # (n, columns) or (n, 1): roots of the weights, over the length scale of the rows
    shift: Any  # (p, columns) or None
    null: Any  # (n, columns), (n, 1) or None

    def adjoint(self, U: Any) -> Any:
        """W * A' U: the coefficients that belong to U."""
        T = self.D * U
        V = self.rows.backward(T)
        if self.shift is not None:
            V -= self.shift * self.rows.xp.sum(T, axis=0)[None, :]
        return self.W * V

    def __call__(self, U: Any) -> Any:
        xp, V = self.rows.xp, self.W * self.adjoint(U)
        product = self.rows.forward(V)
        if self.shift is not None:
            product -= xp.sum(self.shift * V, axis=0)[None, :]
        product *= self.D
        return product if self.null is None else product + self.null * xp.sum(self.null * U, axis=0)[None, :]

    def take(self, columns: Any, xp: Any) -> Dual:
        """Only some columns."""
        parts = {name: _take(getattr(self, name), columns, xp) for name in ("W", "D", "shift", "null")}
        return replace(self, **parts)

    def flops(self) -> float:
        """Of one product, a column."""
        return 4.0 * self.rows.entries


def _product(A: Any, V: Any) -> Any:
    """A V; sparse A with few columns of V at a time, which stay in cache (2 to 3 times faster at 100 columns)."""
    if not sp.issparse(A):
        return A @ V
    out = np.empty((A.shape[0], V.shape[1]))
    for first in range(0, V.shape[1], 32):
        out[:, first : first + 32] = A @ np.ascontiguousarray(V[:, first : first + 32])
    return out


def _take(array: Any, columns: Any, xp: Any) -> Any:
    """Columns of an array; None and single columns, which serve all members, stay."""
    return array if array is None or array.shape[1] == 1 else xp.take(array, columns, axis=1)


def column_squares(squares: Any, raw: Any, xp: Any) -> Any:
    """Squared lengths of columns about the member's means, zero where they are rounding only.

    `raw` are the squares about the common centre; the difference cancels where a column holds one value on all of the
    member's rows.
    """
    return xp.where(squares > 1e-13 * raw, squares, xp.zeros_like(squares))
