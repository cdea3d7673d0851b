"""Products with X as it is stored: sparse, or dense in any real type.

Sparse X stays sparse; single precision and integers are widened a block of columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .rows import gather

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK_ENTRIES = 1 << 20  # numbers of a block of columns that is dense at a time
# mean of a column in standard deviations from which on it is centred explicitly in sums of squares
MAX_MEAN_PER_DEVIATION = 1e3


def product(X: Any, V: Array, rows: Indices | None) -> Array:
    """Product of some rows of X (None: all) as stored with V (p, count)."""
    used = np.flatnonzero(V.any(axis=1))
    if 4 * len(used) < len(V):  # coefficients of few columns
        X = X[:, used]
        V = V[used]
    if sp.issparse(X):
        products = np.asarray(X @ V)
        return products if rows is None else products[rows]
    n = X.shape[0] if rows is None else len(rows)
    if rows is None and X.dtype == np.float64:
        return np.asarray(X @ V)
    total = np.zeros((n, V.shape[1]))
    for block in blocks(n, len(V)):
        total += dense(X, block, rows) @ V[block]
    return total


def transposed_product(X: Any, U: Array) -> Array:
    """Product of X' as stored with U (n, count)."""
    if sp.issparse(X) or X.dtype == np.float64:
        return np.asarray(X.T @ U)
    products = np.empty((X.shape[1], U.shape[1]))
    for block in blocks(*X.shape):
        products[block] = dense(X, block, None).T @ U
    return products


def centred_sums(X: Any, mean: Array, weights: Array) -> tuple[Array, Array]:
    """Sums (sets, p) of w (x - mean) and of w (x - mean)^2 for sets of weights, (sets, n)."""
    sums = np.empty((len(weights), X.shape[1]))
    squares = np.empty_like(sums)
    if not sp.issparse(X):
        for block in blocks(*X.shape):
            centred = dense(X, block, None) - mean[block]
            sums[:, block] = weights @ centred
            centred *= centred
            squares[:, block] = weights @ centred
        return sums, squares
    totals = weights.sum(axis=1)[:, None]
    raw = np.asarray(X.T @ weights.T).T
    sums[:] = raw - totals * mean
    means = np.repeat(mean, np.diff(X.indptr))
    deviations = sp.csc_array((X.data * (X.data - 2 * means), X.indices, X.indptr), X.shape)
    squares[:] = np.asarray(deviations.T @ weights.T).T + totals * mean**2
    cancelled = np.flatnonzero(
        np.any(squares < totals * mean**2 / MAX_MEAN_PER_DEVIATION**2, axis=0)
    )
    step = max(1, BLOCK_ENTRIES // X.shape[0])
    for start in range(0, len(cancelled), step):
        columns = cancelled[start : start + step]
        centred = dense(X, columns, None) - mean[columns]
        sums[:, columns] = weights @ centred
        squares[:, columns] = weights @ (centred * centred)
    return sums, squares


def dense(X: Any, columns: Indices | slice, rows: Indices | None) -> Array:
    """Columns of some rows (None: all), dense and in double precision."""
    if rows is not None and isinstance(columns, slice) and not sp.issparse(X):
        return np.asarray(X[rows, columns], dtype=np.float64)
    return gather(X, columns, rows)


def blocks(n: int, p: int) -> Iterator[slice]:
    """Slices of columns of at most about a million numbers."""
    step = max(1, BLOCK_ENTRIES // max(1, n))
    return (slice(start, min(start + step, p)) for start in range(0, p, step))
