r"""Columns that are nearly equal, up to sign: sets of which a member had better take one column.

Least squares gives two nearly equal columns large coefficients of opposite signs, of which the
training rows see the difference alone. Where new rows tell the columns apart, a single member with
both then decides the prediction. Columns whose correlation is at least 1 - 1e-8 in size, a
difference of 1e-4 standard deviations, and the columns that are nearly equal to one of these, are a
group. Exact copies do no harm: members share their coefficient among them.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from .arrangement import Copies, StandardisedColumns, random_numbers
from .moments import Moments, constant_columns
from .rows import RowData, gather
from .stored import BLOCK_ENTRIES

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

NEAR_COPY_TOL = 1e-8  # one minus the size of the correlation of nearly equal columns, at most


def near_copies(rows: RowData) -> Indices | None:
    """Number of the group of every column, (p,); None if no columns are nearly equal.

    Candidates are columns whose products with random vectors are close, of which the correlations are
    then computed.
    """
    Z = StandardisedColumns.of(rows)
    n = len(rows.Y)
    random = np.sqrt(rows.weights)[:, None] * random_numbers(n, 8)
    projections = Z.transposed_times(random / np.sqrt(rows.total_weight))  # (p, 8)
    copies = Copies.of(projections[:, :2])
    _, first = np.unique(copies.group, return_index=True)
    first = first[Z.unit[first] > 0]
    largest = np.argmax(np.abs(projections[first]), axis=1)
    sign = np.sign(projections[first, largest])
    # twice the mean distance of columns at the limit
    radius = 2 * np.sqrt(2 * NEAR_COPY_TOL * projections.shape[1])
    tree = cKDTree(sign[:, None] * projections[first])
    pairs = first[tree.query_pairs(radius, output_type="ndarray")]
    repeated = np.setdiff1d(np.flatnonzero(Z.unit > 0), first)
    first_of_group = np.zeros(len(projections), dtype=np.int64)
    first_of_group[copies.group[first]] = first
    of_copies = np.column_stack([first_of_group[copies.group[repeated]], repeated])
    pairs = np.concatenate([pairs, of_copies]).astype(np.int64)
    return _groups(pairs, _one_minus_correlations(Z, pairs), len(projections))


def near_copies_by_moments(moments: Moments) -> Indices | None:
    """Number of the group of every column, (p,), from moments; None if no columns are nearly equal."""
    squares = np.diagonal(moments.G)
    is_constant = constant_columns(squares, moments.mean_x, moments.weight)
    unit = np.sqrt(np.where(is_constant, np.inf, squares))
    R = np.abs(moments.G / unit / unit[:, None])
    pairs = np.argwhere(np.triu(R >= 1 - NEAR_COPY_TOL, k=1))
    return _groups(pairs, 1 - R[pairs[:, 0], pairs[:, 1]], len(R))


def _one_minus_correlations(Z: StandardisedColumns, pairs: Indices) -> Array:
    """One minus the size of the correlation of each pair of columns."""
    rows = Z.problem
    fractions = rows.weights / rows.total_weight
    step = max(1, BLOCK_ENTRIES // len(fractions))
    distances = []
    for start in range(0, len(pairs), step):
        left, right = (
            (gather(rows.X, columns, None) - Z.mean[columns]) / Z.unit[columns]
            for columns in pairs[start : start + step].T
        )
        products = fractions @ (left * right)
        distances.append(fractions @ (left - np.sign(products) * right) ** 2 / 2)
    return np.concatenate([np.zeros(0), *distances])


def _groups(pairs: Indices, distances: Array, p: int) -> Indices | None:
    """Number of the group of every column that pairs connect."""
    is_near = distances <= NEAR_COPY_TOL
    if not np.any(is_near & (distances > 1e-13)):  # less is rounding: such columns are copies
        return None
    i, j = pairs[is_near].T
    _, group = connected_components(sp.coo_array((np.ones(len(i)), (i, j)), shape=(p, p)))
    return np.asarray(group, dtype=np.int64)
