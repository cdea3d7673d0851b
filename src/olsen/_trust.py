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
# Largest entries between which data are taken as they are: squares, their products and sums over any number of rows
# stay between 1e-240 and 1e240. Others are brought to order one by a power of two, which rounds nothing.
ORDINARY = (2.0**-200, 2.0**200)
# A column whose largest entry is so many times smaller than one (or than the largest of all, where that was brought to
# one): its squares would leave the range of double precision, 1e-308, and it would silently be taken for constant.
SMALLEST = 1e-150
LARGEST = 1e150  # the same for sums of squares over up to 1e8 rows, where rows are not at hand to be scaled


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


def refuse_extremes(largest: Array, unit: float = 1.0, numbers: NDArray[Any] | None = None) -> None:
    """Raise for columns of X whose largest absolute entry is too small beside `unit`, or too large, to be squared.

    `numbers` are those of the columns, where not all of them are given.
    """
    bad = np.flatnonzero(((largest > 0) & (largest < SMALLEST * unit)) | (largest > LARGEST * unit))
    if not len(bad):
        return
    j = int(bad[0])
    number = j if numbers is None else int(numbers[j])
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    beside = f", beside {float(np.max(largest)):.3g} elsewhere" if unit != 1.0 else ""
    entries = f"column {number} of X{more} has entries of at most {largest[j]:.3g}{beside}"
    raise ValueError(f"{entries}: {beyond_double('squares', 'the columns')}")


def beyond_double(what: str, cause: str) -> str:
    """The words for numbers that cannot be written down, and the way out: to rescale their cause."""
    return (
        f"{what} would leave the range of double precision. Rescale {cause}, for instance with "
        f"sklearn.preprocessing.StandardScaler."
    )


def power_of_two(largest: float) -> float:
    """The power of two that brings a number to order one by division; one where it is ordinary, or zero."""
    if largest == 0 or ORDINARY[0] <= largest <= ORDINARY[1]:
        return 1.0
    return float(2.0 ** min(max(int(np.frexp(largest)[1]), -1022), 1023))


def ordinary_weights(weight: Array) -> Array:
    """Weights in another unit where they are not ordinary; no result depends on it.

    A row of which the weight is below 1e-100 of the largest says less than rounding of the others, and yet decides what
    they leave open: such weights are refused.
    """
    least, most = float(np.min(weight, where=weight > 0, initial=np.inf)), float(weight.max(initial=0.0))
    if ORDINARY[0] <= least and most <= ORDINARY[1]:  # zeros, of rows that nobody uses, may be there
        return weight
    if least < 1e-100 * most:
        raise ValueError(
            f"sample_weight spans {least:.3g} to {most:.3g}: rows that count 1e100 times less than "
            f"others cannot be represented in double precision. Give them weight zero, which drops them, or narrow "
            f"the range of weights."
        )
    return weight / 2.0 ** min(max(int(np.frexp(most)[1]), -1022), 1023)
