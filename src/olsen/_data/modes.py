"""How often columns are away from their mode: words, levels and fingerprints are rare columns, which
hardly ever are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .arrangement import TIE_TOL
from .moments import Moments
from .rows import RowData, gather
from .stored import blocks

Array = NDArray[np.float64]

BLOCK_ENTRIES = 1 << 18  # numbers in a block of rows, which stays in a cache
RARE_FRACTION = 0.25  # of the rows: columns that are away from their mode in fewer are rare
# relative difference of m (1 - m) and the variance of zeros and ones of mean m
INDICATOR_TOL = 1e-9


def away_from_mode(problem: RowData) -> Array:
    """Fraction of the rows, by weight, in which each column is not at its mode, (p,); one for columns
    that are not rare.

    No unit, origin or order of rows changes it.
    """
    weight = problem.weights / problem.total_weight
    if sp.issparse(problem.X):
        return _away_of_sparse_columns(problem.X, weight)
    if isinstance(problem.X, np.ndarray) and not _may_be_rare(problem.X, weight).any():
        return np.ones(problem.shape[1])
    parts = (gather(problem.X, columns, None) for columns in blocks(*problem.shape))
    return np.concatenate([_away_in_block(part, weight) for part in parts])


def _away_of_sparse_columns(X: Any, weight: Array) -> Array:
    """Fractions of sparse columns: their mode is zero, except where few rows are zero."""
    nonzero = sp.csc_array((X.data != 0, X.indices, X.indptr), X.shape, dtype=np.float64)
    fraction = np.asarray(nonzero.T @ weight)
    away = _of_rare(fraction)
    full = np.flatnonzero(fraction > (1 - TIE_TOL) * (1 - RARE_FRACTION))
    for block in blocks(X.shape[0], len(full)):
        columns = full[block]
        away[columns] = _away_in_block(gather(X, columns, None), weight)
    return away


def _may_be_rare(X: NDArray[Any], weight: Array) -> NDArray[np.bool_]:
    """Columns, (p,), that pairs of rows do not show to be away from their mode in enough rows.

    Of two rows that differ, one is away from the mode. Rows are read in blocks that stay in a cache,
    as far as they are needed.
    """
    n, p = X.shape
    half = n // 2
    least_away = np.zeros(p)
    step = max(1, BLOCK_ENTRIES // p)
    for start in range(0, half, step):
        first = slice(start, min(start + step, half))
        second = slice(half + first.start, half + first.stop)
        least_away += np.minimum(weight[first], weight[second]) @ (X[first] != X[second])
        if least_away.min() >= RARE_FRACTION:
            break
    return np.asarray(least_away < RARE_FRACTION)


def away_from_mode_by_moments(moments: Moments) -> Array:
    """Fraction of the rows in which each column is not at its mode, (p,), as far as moments show it.

    With an intercept they show columns of zeros and ones, whose variance is m (1 - m) with m the mean;
    other columns have a fraction of one.
    """
    mean = np.asarray(moments.mean_x)
    variance = mean * (1 - mean)
    difference = np.abs(np.diagonal(moments.G) / moments.weight - variance)
    indicator = moments.centred & (difference <= INDICATOR_TOL * variance)
    return np.where(indicator, _of_rare(np.minimum(mean, 1 - mean)), 1.0)


def _of_rare(away: Array) -> Array:
    """Fractions of rare columns, and one for others and for constant columns."""
    rare = (away > 0) & (away < (1 - TIE_TOL) * RARE_FRACTION)
    return np.where(rare, away, 1.0)


def _away_in_block(block: Array, weight: Array) -> Array:
    """Fractions for a block of columns, (columns,)."""
    half = len(block) // 2
    # of two rows that differ, one is away from the mode
    differ = block[:half] != block[half : 2 * half]
    least_away = np.minimum(weight[:half], weight[half : 2 * half]) @ differ
    away = np.ones(block.shape[1])
    candidates = np.flatnonzero(least_away < RARE_FRACTION)
    columns = block[:, candidates]
    away[candidates] = _of_rare(weight @ (columns != _majority_values(columns, weight)))
    return away


def _majority_values(columns: Array, weight: Array) -> Array:
    """For each column the value that has more than half of the weight, any value where none has.

    Votes for different values cancel each other, pair by pair of rows (Boyer and Moore).
    """
    values = columns
    votes = np.broadcast_to(weight[:, None], columns.shape)
    while len(values) > 1:
        half = (len(values) + 1) // 2
        n_pairs = len(values) - half
        equal = values[:n_pairs] == values[half:]
        lead = votes[:n_pairs] - votes[half:]
        winners = np.where(lead >= 0, values[:n_pairs], values[half:])
        joined = np.where(equal, votes[:n_pairs] + votes[half:], np.abs(lead))
        values = np.concatenate([winners, values[n_pairs:half]])
        votes = np.concatenate([joined, votes[n_pairs:half]])
    return np.asarray(values[0])
