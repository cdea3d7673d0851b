"""Rows in chunks that fit in a cache, and the ranks of order statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def dense_chunks(
    X: Any, bytes_per_row: float, chunk_bytes: int = 1 << 22
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield consecutive rows as dense arrays, in chunks whose intermediate results take about
    `chunk_bytes`.
    """
    n_rows = X.shape[0]
    step = max(1, int(chunk_bytes / max(1.0, bytes_per_row)))
    X = sp.csr_array(X) if sp.issparse(X) else X
    for start in range(0, n_rows, step):
        chunk = slice(start, min(start + step, n_rows))
        yield chunk, dense(X[chunk])


def dense(rows: Any) -> NDArray[np.float64]:
    """Convert rows, dense or sparse, to an array in double precision."""
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)


def order_statistic_rank(coverage: float, n: float) -> int:
    """Rank of the order statistic of n residuals that covers new observations with this
    probability.
    """
    return max(1, math.ceil(coverage * (n + 1) - 1e-9))
