"""Keyword wrappers of the compiled kernels: the only code that calls the C module.

The C functions take a dozen or more positional arrays. Here each array has its name at the call,
and the three arrays of a list of lists travel together. ``_native.pyi`` explains every argument.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _native

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

member_size = _native.member_size  # (columns, targets): numbers that a factor takes


class Lists(NamedTuple):
    """Columns or rows of members: those of member i are ``indices[starts[i]:stops[i]]``."""

    starts: Indices
    stops: Indices
    indices: Indices

    @classmethod
    def of(cls, indptr: Indices, indices: Indices) -> Lists:
        """From the compressed form of subsets."""
        return cls(indptr[:-1], indptr[1:], indices)


class MemberData(NamedTuple):
    """Columns and targets, centred and sqrt-weighted, by which dependent columns are confirmed."""

    A: Array  # (p, n); n = 0: none at hand
    Y: Array  # (n, targets)
    far: Array  # (p,) what centring rounds in each column
    relative: float  # fraction of a relation's length below which it is rounding

    @classmethod
    def none(cls, n_columns: int) -> MemberData:
        """No data: members with dependent columns are reported instead."""
        return cls(np.empty((n_columns, 0)), np.empty((0, 1)), np.zeros(n_columns), 0.0)


def solve_principal(
    begin: int,
    end: int,
    *,
    G: Array,
    C: Array,
    scale: Array,
    data: MemberData,
    columns: Lists,
    shifts: Array,
    values: Array,
    ratios: Array,
    probed: Array,
) -> None:
    """Solve ``(G[S, S] + shift) b = C[S]`` for members of one Gram matrix."""
    _native.solve_principal(
        begin, end, G, C, scale, *data, *columns, shifts, values, ratios, probed
    )


def solve_gathered(
    begin: int,
    end: int,
    *,
    X: Array,
    Y: Array,
    columns: Lists,
    rows: Lists,
    weights: Array,
    scale: Array,
    centre: bool,
    penalty: float,
    values: Array,
    intercepts: Array,
    ratios: Array,
    probed: Array,
) -> None:
    """Solve weighted least squares on submatrices ``X[T, S]``.

    Without a `penalty`, a fraction of the squared length of each column, dependent columns are
    dropped on the data.
    """
    results = (values, intercepts, ratios, probed)
    _native.solve_gathered(
        begin, end, X, Y, *columns, *rows, weights, scale, centre, penalty, *results
    )


def factor_members(
    begin: int,
    end: int,
    *,
    G: Array,
    C: Array,
    data: MemberData,
    n_rows: int,
    scale: Array,
    columns: Lists,
    store: Array,
    ratios: Array,
) -> None:
    """Factor members along the order of their columns and keep the factors."""
    A, Y, far, relative = data
    _native.factor_members(
        begin, end, G, C, A, Y, n_rows, scale, far, relative, *columns, store, ratios
    )


def sum_pairs(
    begin: int,
    end: int,
    *,
    A: Array,
    Y: Array,
    share: Array,
    root: Array,
    n_rows: int,
    own_rows: bool,
    columns: Lists,
    sizes: Indices,
    slots: Indices,
    store: Array,
    sums: Array,
    states: Indices,
) -> None:
    """Add errors of pairs of factored members at some rows, their squares, and the squares of their
    means to `sums`.
    """
    total, square, pair_square = sums
    rows = (A, Y, share, root, n_rows, own_rows)
    _native.sum_pairs(
        begin, end, *rows, *columns, sizes, slots, store, total, square, pair_square, states
    )


def lasso_path(
    *,
    M: Array,
    targets: Array,
    squares: Array,
    penalties: Array,
    max_columns: float,
    tol: float,
    from_rows: bool,
) -> Array:
    """Coefficients (penalties, p, q) of the lasso along falling penalties, as far as at most
    `max_columns` are in.
    """
    n_targets = targets.shape[1]
    coefs = np.empty((len(penalties), len(squares), n_targets))
    left = np.array(targets.T, order="C")  # which is overwritten
    count = _native.lasso_path(M, left, squares, penalties, max_columns, tol, from_rows, coefs)
    return coefs[:count]


def sparse_lasso_path(
    *,
    columns: Lists,
    values: Array,
    mean: Array,
    weights: Array,
    targets: Array,
    squares: Array,
    penalties: Array,
    max_columns: float,
    tol: float,
) -> Array:
    """Coefficients (penalties, p, q) as :func:`lasso_path` gives them, for sparse columns W^1/2 (x -
    mean) with their entries x, and centred `targets`.
    """
    coefs = np.empty((len(penalties), len(squares), targets.shape[1]))
    left = np.ascontiguousarray((targets * weights[:, None]).T)
    data = (mean, *columns, values, weights, squares)
    count = _native.sparse_lasso_path(left, *data, penalties, max_columns, tol, coefs)
    return coefs[:count]


def draw_determinantal(
    begin: int,
    end: int,
    *,
    key: Indices,
    vectors: Array,
    chances: Array,
    subsets: Indices,
    sizes: Indices,
) -> None:
    """Draw subsets of a determinantal process."""
    _native.draw_determinantal(begin, end, key, vectors, chances, subsets, sizes)
