r"""Numerical tolerances shared by all solvers.

One policy for constant, dependent, too large and too small columns, Gram matrices and exactly fitted rows.

Everything here is relative: units and the number of rows do not matter. A Gram matrix squares the condition number of
its columns, so whoever factors one asks here whether the factor may be used; where it may not, members are solved from
the data, never from the damaged matrix.

The kernels have a copy of the tolerances they need, in ``_kernel/kernels.h``; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

# Squared pivot over its diagonal entry: the share of a column that those before it leave unexplained. At 1e-5 five of
# sixteen digits are gone.
SMALLEST_PIVOT = 1e-5
# Entry of the inverse correlation matrix (variance inflation factors on its diagonal), as probes see it. Pivots miss
# columns that *later* ones explain.
LARGEST_INFLATION = 3e4
# What is left of a row, 1 - h, along a path of sizes, below which its residual says nothing: with rounding of eps in
# residual and leverage, r / (1 - h) keeps ten digits down to here. Rows below are deleted by the rule for h = 1, or by
# a refit without them.
EXACT_FIT = 1e-6
# Between these must be the largest entry of every column, of every target, and the largest weight. Products of a weight
# with two entries, their squares, and sums of these over any number of rows then stay between 1e-300 and 1e300; beyond,
# a column would silently be taken for constant.
ORDINARY = (1e-50, 1e50)
SMALLEST_WEIGHT = 1e-100


def nothing_but_rounding(squares: Array, dimension: int) -> bool:
    """Whether some row has a squared length that is rounding beside the longest: rows of a triangular factor of
    dependent columns. Pivots are compared with their own row, so they would not show it."""
    return bool(np.min(squares) <= (8 * EPS * dimension) ** 2 * np.max(squares))


def constant_columns(sum_of_squares: Any, mean: Any, weight: float, eps: float = EPS) -> Any:
    """Columns whose centred square sum is rounding only: they hold one value and must not look like a direction.

    Written with operators only, so that it serves arrays of any library.
    """
    return sum_of_squares <= weight * (16 * eps * abs(mean)) ** 2


def rounding_of_factors(dimension: int) -> float:
    """What an orthogonal factorisation perturbs singular values by, relative to the largest: eps times the larger
    dimension, and no less than ten times eps, which two columns alike have been seen to reach."""
    return EPS * max(dimension, 10)


@dataclass(frozen=True)
class Cutoff:
    r"""When a direction v of columns of unit length is believed to be rounding, by its singular value s.

    The factorisation perturbs A by about eps times its larger dimension, so s below `relative` of the largest says
    nothing. Taking the mean out rounds entries to eps |mean|: a column far from zero carries `noise` of that size
    relative to its length (4 eps covers the entry, the mean and their difference), and s below
    :math:`\|\mathrm{noise} \circ v\|` says nothing either. The noise of a column counts in the directions that it takes
    part in, no others.
    """

    relative: float  # to the largest singular value
    noise: NDArray[np.float64] | None = None  # (m,) of each column

    @classmethod
    def of(cls, dimension: int, length: Array, mean: Array, weight: float) -> Cutoff:
        """For columns of given lengths about their means; `dimension` is the larger one."""
        far = np.abs(mean) * np.sqrt(weight) / np.where(length > 0, length, np.inf)
        return cls(rounding_of_factors(dimension), 4 * EPS * far)

    def take(self, columns: NDArray[Any]) -> Cutoff:
        """The same for some of the columns."""
        return self if self.noise is None else Cutoff(self.relative, self.noise[columns])

    @property
    def safe(self) -> float:
        """Relative size above which a direction counts whichever columns it is made of."""
        return self.relative if self.noise is None else max(self.relative, float(self.noise.max(initial=0.0)))

    def counts(self, s: Array, V: Array) -> NDArray[np.bool_]:
        """Which of the falling singular values, with the directions that are the rows of V, are more than rounding."""
        large: NDArray[np.bool_] = s > self.relative * s[0]
        return large if self.noise is None else large & (s > np.linalg.norm(self.noise * V, axis=1))


def costs_a_rank(off_diagonal: float, n_rows: int) -> bool:
    """Whether deleting a row of leverage near one costs a rank, from the squares of the hat matrix beside it, summed.

    In exact arithmetic that sum is h (1 - h). Entries from a trusted Cholesky factor are good to about 1e-10 (eps over
    the smallest pivot), so rows further out than about 1e9 times the others cannot be told from those without company.
    """
    return off_diagonal <= 1e-20 * n_rows


def refuse_extremes(largest: Array, name: str) -> None:
    """Raise for columns of X or y (`name`) whose largest absolute entry is beyond `ORDINARY`; zero is not."""
    bad = np.flatnonzero(((largest > 0) & (largest < ORDINARY[0])) | (largest > ORDINARY[1]))
    if len(bad):
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ValueError(
            f"column {bad[0]} of {name}{more} has entries of at most {largest[bad[0]]:.3g}; at most {ORDINARY[0]:g} to "
            f"{ORDINARY[1]:g} keeps squares in the range of double precision. Change its unit, for instance with "
            f"sklearn.preprocessing.StandardScaler."
        )


def refuse_weights(weight: Array) -> None:
    """Raise for weights beyond `ORDINARY`, or too small to be told from zero; zeros drop their rows."""
    least, most = float(np.min(weight, where=weight > 0, initial=np.inf)), float(weight.max(initial=0.0))
    if least < SMALLEST_WEIGHT or most > ORDINARY[1] or 0 < most < ORDINARY[0]:
        raise ValueError(
            f"sample_weight spans {least:.3g} to {most:.3g}; weights must be between {SMALLEST_WEIGHT:g} and "
            f"{ORDINARY[1]:g}, the largest at least {ORDINARY[0]:g}. Change their unit, which no result depends on; a "
            f"weight of zero drops a row."
        )


def require_finite(*arrays: Array) -> None:
    """Raise for coefficients that cannot be written down."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("coefficients would leave the range of double precision. Change the units of X and y.")
