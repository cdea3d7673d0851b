r"""The normal equations of many members as one product with a matrix of vectors, one column for
each member.

.. math:: V \mapsto \text{mask} \circ (G V) \qquad\text{or}\qquad
          V \mapsto \text{mask} \circ D^{-1} X' W X D^{-1} V

V is zero outside a member's columns, D holds the lengths of the columns, so that all columns have
unit length, and W the weights of the rows. G is the Gram matrix of all rows; without it every
product is a pass over X. Means are then taken out by rank-one corrections, so sparse data stay
sparse. Everything is written against the array API; only :meth:`NormalEquations.from_rows`
knows the type of X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.moments import Moments
from .._data.rows import RowData
from .._execution.arrays import Space


@dataclass(frozen=True)
class NormalEquations:
    """Normal equations of all rows and all columns, in units of the columns' lengths."""

    product: Callable[[Any], Any]  # of the matrix of the normal equations with vectors (p, c)
    C: Any  # (p, q) right-hand sides
    scale: Any  # (p, 1) one over the lengths, zero for constant columns
    mean_x: Any  # (p,)
    mean_y: Any  # (q,)
    cancelling: NDArray[np.bool_]  # (p,) columns whose digits are lost
    space: Space

    @classmethod
    def from_moments(cls, moments: Moments) -> NormalEquations:
        """Normal equations from a Gram matrix, which was centred row by row."""
        xp = moments.space.xp
        scale = _inverse_root(xp.linalg.diagonal(moments.G), xp)[:, None]
        G = scale * moments.G * scale.T
        return cls(
            product=lambda V: G @ V,
            C=scale * moments.C,
            scale=scale,
            mean_x=moments.mean_x,
            mean_y=moments.mean_y,
            cancelling=np.zeros(moments.C.shape[0], dtype=bool),
            space=moments.space,
        )

    @classmethod
    def from_rows(cls, problem: RowData) -> NormalEquations:
        """Normal equations whose products are passes over X, dense in any namespace or sparse."""
        space = problem.space
        # products of CSR are twice as fast here as those of CSC, both ways
        X = sp.csr_array(problem.X) if sp.issparse(problem.X) else space.cast(problem.X)
        weight = problem.weight
        if weight is None:
            weight = space.zeros(problem.shape[0]) + 1
        mean_x, mean_y = problem.means
        raw_squares = (X.multiply(X) if sp.issparse(X) else X * X).T @ weight
        squares = raw_squares - problem.total_weight * mean_x**2
        cancelling, constant = _far_columns(problem, squares)
        if constant.any():
            squares = squares * space.put(1.0 - constant)
        scale = _inverse_root(squares, space.xp)[:, None]
        rows = _Rows(X, mean_x, weight[:, None], scale, space)
        return cls(
            product=lambda V: rows.adjoint(rows.forward(V)),
            C=rows.adjoint(problem.Y - mean_y),
            scale=scale,
            mean_x=mean_x,
            mean_y=mean_y,
            cancelling=cancelling,
            space=space,
        )

    def operator(self, mask: Any) -> Callable[[Any], Any]:
        """Operator on vectors (p, c) that are zero outside a mask (p, c) of ones and zeros."""

        def masked_product(V: Any) -> Any:
            product = self.product(V)
            product *= mask
            return product

        return masked_product


@dataclass(frozen=True)
class _Rows:
    """Centred rows of columns of unit length, A = (X - 1 mean') D^-1, and weights W."""

    X: Any  # (n, p) dense in the working type, or CSR
    mean: Any  # (p,) zeros without intercept
    weight: Any  # (n, 1)
    scale: Any  # (p, 1) the diagonal of D^-1
    space: Space

    def forward(self, V: Any) -> Any:
        """Product A V."""
        U = self.scale * V
        return self.X @ U - self.mean @ U

    def adjoint(self, T: Any) -> Any:
        """Product A' W T."""
        T = self.weight * T
        total = self.space.xp.sum(T, axis=0)
        return self.scale * (self.X.T @ T - self.mean[:, None] * total[None, :])


def _far_columns(problem: RowData, squares: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Columns so far from zero that rank-one centring would lose their digits, and those among them
    that are constant, (p,) each.
    """
    space = problem.space
    bound = 1e-10 * problem.total_weight * problem.means[0] ** 2
    far = np.array(space.get(squares < bound))
    constant = np.zeros(len(far), dtype=bool)
    far_columns = np.flatnonzero(far)
    if len(far_columns):  # centred squares are rounding and cannot show which ones are constant
        if sp.issparse(problem.X):
            part = problem.X[:, far_columns].toarray()
        else:
            part = space.get(space.xp.take(problem.X, space.put(far_columns), axis=1))
        constant[far_columns] = (part == part[0]).all(axis=0)
    return far & ~constant, constant


def _inverse_root(squares: Any, xp: Any) -> Any:
    """1 / sqrt, and 0 for columns of length zero, whose coefficient is zero."""
    positive = squares > 0
    roots = xp.sqrt(xp.where(positive, squares, xp.ones_like(squares)))
    return xp.where(positive, 1 / roots, xp.zeros_like(squares))
