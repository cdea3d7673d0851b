r"""What is believed: the one policy for constant and dependent columns, Gram matrices and exactly fitted rows.

Everything here is relative: units and the number of rows do not matter. A Gram matrix squares the condition number of
its columns, so whoever factors one asks here whether the factor may be used; where it may not, members are solved from
the data, never from the damaged matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EXACT_FIT",
    "LARGEST_COMPLEMENT_INFLATION",
    "LARGEST_INFLATION",
    "SMALLEST_PIVOT",
    "constant_columns",
    "fitted_exactly",
    "nearly_constant",
    "pivots_are_trusted",
    "rounding_cutoff",
]

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

# Squared pivot over its diagonal entry: the share of a column that those before it leave unexplained. At 1e-5 five of
# sixteen digits are gone.
SMALLEST_PIVOT = 1e-5
# Entry of the inverse correlation matrix (variance inflation factors on its diagonal), as probes see it. Pivots miss
# columns that *later* ones explain.
LARGEST_INFLATION = 3e4
# The complement form works on the inverse, which squares the condition once more.
LARGEST_COMPLEMENT_INFLATION = 1e3
# What is left of a row, 1 - h, along a path of sizes, below which its residual says nothing.
EXACT_FIT = 1e-9


def pivots_are_trusted(pivots: NDArray[np.float64], diagonal: NDArray[np.float64]) -> bool:
    """Whether a Cholesky factor with this diagonal may be used in place of the data."""
    return bool(np.min(pivots**2 / diagonal, initial=1.0) >= SMALLEST_PIVOT)


def constant_columns(sum_of_squares: Any, mean: Any, weight: float, eps: float = EPS) -> Any:
    """Columns whose centred square sum is rounding only: they hold one value and must not look like a direction.

    Written with operators only, so that it serves arrays of any library.
    """
    return sum_of_squares <= weight * (16 * eps * abs(mean)) ** 2


def nearly_constant(mean: Array, first: Array, n_rows: int, eps: float = EPS) -> NDArray[np.bool_]:
    """Columns whose mean, a sum over so many rows, differs from their first value by rounding at most."""
    return np.abs(mean - first) <= 4 * n_rows * eps * np.abs(first)


def rounding_cutoff(largest: int, length: NDArray[np.float64], mean: NDArray[np.float64], weight: float) -> float:
    """Relative size of what rounding alone makes of dependent columns of given lengths about their means."""
    far = np.abs(mean) * np.sqrt(weight) / np.where(length > 0, length, np.inf)
    return EPS * max(float(largest), 4 * float(far.max(initial=0.0)))


def fitted_exactly(left: NDArray[np.float64], n_rows: int) -> NDArray[np.bool_]:
    """Rows of which a member leaves nothing but rounding, 1 - h: deleting one costs a rank."""
    return left <= 100 * EPS * n_rows
