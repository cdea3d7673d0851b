r"""How pair terms become an ensemble's risk, whatever the formula.

With :math:`R_{ij} = E\,(b_i-\beta)^\top\Sigma(b_j-\beta)`, the risk of the mean of `k` members is
:math:`k^{-2}\sum_{ij} R_{ij}`. Every function of this package computes the few distinct values of
:math:`R_{ij}` and combines them here.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Floats


def mean_of_pairs(own: Floats, other: Floats, k: ArrayLike) -> Floats:
    r"""Mean over all ordered pairs of `k` exchangeable members: :math:`R_{off} + (R_{diag} - R_{off})/k`.

    An infinite `own` (the interpolation peak) does not reach the large ensemble: its weight there is zero.
    """
    weight = 1.0 / np.asarray(k, dtype=float)
    own = np.where(weight == 0, other, own)
    with np.errstate(invalid="ignore"):
        mean = other + (own - other) * weight
    return np.where(np.isinf(own), own, mean)


def same_group_share(k: Floats, group: Floats) -> Floats:
    r"""Share of the :math:`k^2` ordered pairs whose two different members lie in one group of size `group`.

    Member `i` belongs to group ``i // group``; the last group may be partial.
    """
    finite = np.where(np.isinf(k), 1.0, k)
    full, rest = np.divmod(finite, group)
    share = (full * group * (group - 1) + rest * (rest - 1)) / finite**2
    return np.where(np.isinf(k), 0.0, share)


def group_shares(k: ArrayLike, first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Shares of the ordered pairs in one group of the first kind only, of the second only, and of both.

    Groups of both kinds are runs of consecutive members, so a pair lies in both when it lies in one cell of the common
    refinement, which repeats with their least common multiple.
    """
    k, first, second = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in (k, first, second)))
    both = np.zeros(k.shape)
    for index in map(tuple, np.argwhere((first > 1) & (second > 1) & np.isfinite(k))):
        both[index] = _common_pairs(int(k[index]), int(first[index]), int(second[index])) / k[index] ** 2
    return same_group_share(k, first) - both, same_group_share(k, second) - both, both


def _common_pairs(k: int, first: int, second: int) -> float:
    period = math.lcm(first, second)

    def count(members: int) -> float:
        cuts = np.union1d(np.arange(0, members, first), np.arange(0, members, second))
        cells = np.diff(np.append(cuts, members)).astype(float)
        return float(np.sum(cells * (cells - 1)))

    full, rest = divmod(k, period)
    return (full * count(period) if full else 0.0) + count(rest)


def rescale(risk: Floats, shrinkage: Floats, mu: Floats, norm: Floats | float = 1.0) -> Floats:
    r"""Risk of `mu` times an estimator with :math:`E\langle\beta, b\rangle = \delta\|\beta\|^2`, delta = `shrinkage`.

    From :math:`\mu b - \beta = \mu(b-\delta\beta) - (1-\mu\delta)\beta`, whose two parts are orthogonal in the mean:
    :math:`\mu^2 [R - (1-\delta)^2\|\beta\|^2] + (1-\mu\delta)^2\|\beta\|^2`. The bracket is a mean of squares:
    only rounding makes it negative where `risk` and `shrinkage` belong to one estimator.
    """
    with np.errstate(invalid="ignore"):
        around = np.maximum(0.0, risk - ((1 - shrinkage) * norm) ** 2)
        scaled = mu**2 * around + ((1 - mu * shrinkage) * norm) ** 2
    return np.where(mu == 0, norm**2, np.where(np.isinf(risk) | (mu == 1), risk, scaled))


def times_square(size: Floats, unit: Floats) -> Floats:
    """size**2 * unit, where no noise (or no signal) makes nothing of infinite terms, any other leaves them infinite."""
    infinite = np.isinf(unit)
    return np.where(infinite & (size > 0), np.inf, size**2 * np.where(infinite, 0.0, unit))
