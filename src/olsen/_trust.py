r"""Numerical tolerances shared by all solvers.

One policy for dependent, too large and too small columns, Gram matrices and exactly fitted rows;
``_data.moments`` says which columns are constant.

All tolerances are relative: units and the number of rows do not matter. A Gram matrix squares the
condition number of its columns, so code that factors one asks this module whether the factor may be
used. Where it may not, members are solved from the data, never from the damaged matrix.

The kernels have a copy of some tolerances, in ``_kernel/kernels.h``; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

# Squared pivot over its diagonal entry: the fraction of a column that the columns before it leave
# unexplained. At 1e-5 five of sixteen digits are gone.
SMALLEST_PIVOT = 1e-5
# Entry of the inverse correlation matrix (variance inflation factors on its diagonal), as probes
# see it. Pivots miss columns that *later* columns explain.
LARGEST_INFLATION = 3e4
# Smallest 1 - h, along a path of sizes, for which the residual of a row is trusted: with rounding
# of eps in residual and leverage, r / (1 - h) keeps ten digits down to here. Rows below are deleted
# by the rule for h = 1, or by a refit without the row.
EXACT_FIT = 1e-6
# Range of the largest absolute entry of every column and every target, and of the largest weight.
# Products of a weight with two entries, their squares, and sums of such products over any number of
# rows then stay between 1e-300 and 1e300; outside, a column would silently be taken for constant.
ORDINARY = (1e-50, 1e50)
SMALLEST_WEIGHT = 1e-100


def nothing_but_rounding(squares: Array, dimension: int) -> bool:
    """Whether the squared length of a row is rounding compared with that of the longest row.

    Rows of a triangular factor of dependent columns are like that. Pivots would not show it: each
    is compared with its own row.
    """
    return bool(np.min(squares) <= (8 * EPS * dimension) ** 2 * np.max(squares))


def rounding_of_factors(dimension: int) -> float:
    """Perturbation of singular values by an orthogonal factorisation, relative to the largest.

    It is eps times the larger dimension, and no less than ten times eps, which two equal columns
    have been seen to reach.
    """
    return EPS * max(dimension, 10)


@dataclass(frozen=True)
class Cutoff:
    r"""Threshold on its singular value s below which a direction v of columns of unit length counts
    as rounding.

    The factorisation perturbs A by about eps times its larger dimension, so s below `relative` of
    the largest says nothing. Centring rounds entries to eps |mean|: a column far from zero carries
    `noise` of that size relative to its length (4 eps covers the entry, the mean and their
    difference), and s below :math:`\|\mathrm{noise} \circ v\|` says nothing either. The noise of a
    column counts only in the directions that the column is part of.
    """

    relative: float  # fraction of the largest singular value
    # (m,) rounding of each column by centring, relative to its length
    noise: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, dimension: int, length: Array, mean: Array, weight: float) -> Cutoff:
        """Threshold for centred columns of known lengths and means; `dimension` is the larger one
        of the matrix.
        """
        distance = np.abs(mean) * np.sqrt(weight) / np.where(length > 0, length, np.inf)
        return cls(rounding_of_factors(dimension), 4 * EPS * distance)

    def take(self, columns: NDArray[Any]) -> Cutoff:
        """Threshold for some of the columns."""
        return self if self.noise is None else Cutoff(self.relative, self.noise[columns])

    @property
    def safe(self) -> float:
        """Relative size above which a direction counts, whichever columns it is made of."""
        return (
            self.relative
            if self.noise is None
            else max(self.relative, float(self.noise.max(initial=0.0)))
        )

    def counts(self, s: Array, V: Array) -> NDArray[np.bool_]:
        """Whether singular values, in falling order, are more than rounding; the rows of V are
        their directions.
        """
        large: NDArray[np.bool_] = s > self.relative * s[0]
        return large if self.noise is None else large & (s > np.linalg.norm(self.noise * V, axis=1))


def costs_a_rank(off_diagonal: Any, n_rows: int) -> Any:
    """Whether deleting a row of leverage near one costs a rank, for one row or an array of rows.

    `off_diagonal` is the sum of squares of the off-diagonal entries in that row of the hat matrix,
    h (1 - h) in exact arithmetic. Entries from a trusted Cholesky factor have errors of about 1e-10
    (eps over the smallest pivot), so a row that lies more than about 1e9 times further out than all
    others is not distinguished from a row that is alone in a direction.
    """
    return off_diagonal <= 1e-20 * n_rows


def refuse_extremes(largest: Array, name: str) -> None:
    """Raise for columns of X or y (`name`) whose largest absolute entry is outside of `ORDINARY`;
    zero is allowed.
    """
    smallest_allowed, largest_allowed = ORDINARY
    too_small = (largest > 0) & (largest < smallest_allowed)
    columns = np.flatnonzero(too_small | (largest > largest_allowed))
    if len(columns):
        further = f" (and {len(columns) - 1} more)" if len(columns) > 1 else ""
        raise ValueError(
            f"column {columns[0]} of {name}{further} has entries of at most"
            f" {largest[columns[0]]:.3g}; a largest entry between {smallest_allowed:g} and"
            f" {largest_allowed:g} keeps squares in the range of double precision. Change its unit,"
            " for instance with sklearn.preprocessing.StandardScaler."
        )


def refuse_weights(weight: Array) -> None:
    """Raise for weights outside of `ORDINARY`, or too small to be distinguished from zero; zeros
    drop their rows.
    """
    smallest = float(np.min(weight, where=weight > 0, initial=np.inf))
    largest = float(weight.max(initial=0.0))
    if smallest < SMALLEST_WEIGHT or largest > ORDINARY[1] or 0 < largest < ORDINARY[0]:
        raise ValueError(
            f"sample_weight spans {smallest:.3g} to {largest:.3g}; weights must be between"
            f" {SMALLEST_WEIGHT:g} and {ORDINARY[1]:g}, the largest at least {ORDINARY[0]:g}."
            " Change their unit, which no result depends on; a weight of zero drops a row."
        )


def require_finite(*arrays: Array) -> None:
    """Raise for coefficients that are not finite in double precision."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(
            "coefficients would leave the range of double precision. Change the units of X and y."
        )
