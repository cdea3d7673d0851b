"""Fingerprint of the training rows, by which changes of X in place are noticed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.rows import RowData
from .._data.stored import product
from .._execution.threads import blas_threads

Array = NDArray[np.float64]

HASH_FACTORS = np.random.default_rng(1).integers(0, 2**64, 4096, dtype=np.uint64) | np.uint64(1)


def fingerprint(problem: RowData, expected: Array | None = None) -> Array:
    """Fingerprint of the current values of the training rows: X is not copied, and users can change
    it in place.

    It begins with a checksum, as two numbers, of the bits of the targets, of the weights and of X.
    A checksum of all of a large X would take a tenth of a fit. For X of more than 65536 entries it
    therefore covers a sample of 16384 entries or a few more, and linear combinations of all columns
    follow, each column divided by its size. The sizes are taken from the `expected` fingerprint if
    there is one, because they must not follow the data when two fingerprints are compared.
    """
    X = problem.X
    arrays = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    is_small = sum(array.size for array in arrays) <= 1 << 16
    if not is_small:
        arrays = [array[:: max(1, array.size // (1 << 14))] for array in arrays]
    weights = [] if problem.weight is None else [problem.weight]
    shape = np.array([*problem.shape, problem.Y.shape[1], problem.null_rank], dtype=np.int64)
    checksum = _checksum([shape, problem.Y, *weights, *arrays])
    halves = np.array(
        [checksum >> 32, checksum & 0xFFFFFFFF], dtype=np.float64
    )  # 32 bits are exact in a double
    return halves if is_small else np.concatenate([halves, _combinations(problem, expected)])


def _checksum(arrays: Sequence[NDArray[Any]]) -> int:
    """Sum of the bits of all entries times odd numbers that depend on the position, modulo 2^64.

    A change of a single entry always changes the sum. The upper half of every entry is folded into
    the lower half first: sign and exponent are the highest bits, which a product modulo 2^64 would
    almost lose.
    """
    hashes = []
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1)
        bits = flat.view(f"u{flat.itemsize}").astype(np.uint64, copy=False)
        bits = bits ^ (bits >> np.uint64(32))
        while len(bits) > len(HASH_FACTORS):
            n_in_blocks = len(bits) - len(bits) % len(HASH_FACTORS)
            blocks = bits[:n_in_blocks].reshape(-1, len(HASH_FACTORS))
            bits = np.append(np.einsum("ij,j->i", blocks, HASH_FACTORS), bits[n_in_blocks:])
            bits = bits ^ (bits >> np.uint64(32))
        hashes.append(bits @ HASH_FACTORS[: len(bits)])
    return int(np.array(hashes) @ HASH_FACTORS[: len(hashes)])


@blas_threads(1)
@np.errstate(all="ignore")
def _combinations(problem: RowData, expected: Array | None) -> Array:
    """Sizes of the columns, and statistics of one linear combination x of the columns divided by
    their sizes.

    The statistics are the spread and the mean of x, the standard deviations of the targets, their correlations
    with x, and the slopes of the targets over the row index, which notice rows that were permuted.
    They are computed from the moments if the fit has made some: another pass over X would take a
    twentieth of the fit.
    """
    Y = problem.Y
    total = problem.total_weight
    p = problem.shape[1]
    has_sizes = expected is not None and len(expected) == 2 + p + 2 + 3 * Y.shape[1]
    size = expected[2 : 2 + p] if has_sizes and expected is not None else _column_sizes(problem)
    loadings = np.cos(np.arange(p)) / size
    if problem.has_moments:
        moments = problem.moments
        mean = loadings @ moments.mean_x
        mean_y = moments.mean_y
        xx = loadings @ moments.G @ loadings
        xy = loadings @ moments.C
        yy = moments.yy
    else:
        weight = problem.weights
        x = product(problem.X, loadings[:, None], None)[:, 0]
        mean = problem.null_rank / total * (weight @ x)
        mean_y = problem.null_rank / total * (weight @ Y)
        x = x - mean
        y = Y - mean_y
        xx = weight @ x**2
        xy = (weight * x) @ y
        yy = weight @ y**2
    # a deviation within the rounding of the mean is not compared relative to itself
    spread = np.sqrt(xx + total * (1e-6 * mean) ** 2)
    spread_y = np.sqrt(yy + total * (1e-6 * mean_y) ** 2)
    slope = np.arange(float(len(Y))) @ Y / (len(Y) * spread_y)
    return np.concatenate(
        [size, [spread, mean / spread], spread_y, xy / (spread * spread_y), slope]
    )


def _column_sizes(problem: RowData) -> Array:
    """Root mean squares of the columns; 1 for a column of zeros."""
    X = problem.X
    if problem.has_moments:
        squares = (
            np.diagonal(problem.moments.G) / problem.moments.weight + problem.moments.mean_x**2
        )
    elif sp.issparse(X):
        squares = np.asarray(X.astype(np.float64).multiply(X).sum(axis=0)).reshape(-1) / X.shape[0]
    else:
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64) / len(X)
    return np.where(squares > 0, np.sqrt(squares), 1.0)


def same_rows(expected: Array, rows: RowData) -> bool:
    """Whether rows have the values that they had when the expected fingerprint was taken."""
    current = fingerprint(rows, expected)
    if expected.shape != current.shape or not np.array_equal(expected[:2], current[:2]):
        return False
    # moments and rows differ by rounding
    return np.allclose(expected[2:], current[2:], 1e-8, 1e-8, equal_nan=True)
