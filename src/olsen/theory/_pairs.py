r"""Combination of pair terms into the risk of an ensemble, for every formula of this package.

With :math:`R_{ij} = E\,(b_i-\beta)^\top\Sigma(b_j-\beta)`, the risk of the mean of `k` members is
:math:`k^{-2}\sum_{ij} R_{ij}`. Every function of this package computes the few distinct values of
:math:`R_{ij}` and combines the values here.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Floats


def mean_of_pairs(single: Floats, pair: Floats, k: ArrayLike) -> Floats:
    r"""Mean over all ordered pairs of `k` exchangeable members: :math:`R_{off} + (R_{diag} -
    R_{off})/k`.

    `single` is :math:`R_{diag}`, the term of a member with itself, and `pair` is :math:`R_{off}`.
    An infinite `single` (the interpolation peak) does not reach the large ensemble: its weight
    there is zero.
    """
    weight = 1.0 / np.asarray(k, dtype=float)
    single = np.where(weight == 0, pair, single)
    with np.errstate(invalid="ignore"):
        mean = pair + (single - pair) * weight
    return np.where(np.isinf(single), single, mean)[()]


def same_group_fraction(k: Floats, group_size: Floats) -> Floats:
    r"""Fraction of the :math:`k^2` ordered pairs whose two different members lie in one group.

    Member `i` belongs to group ``i // group_size``; the last group may be partial.
    """
    finite_k = np.where(np.isinf(k), 1.0, k)
    n_full, partial_size = np.divmod(finite_k, group_size)
    pairs_of_full_groups = n_full * group_size * (group_size - 1)
    pairs_of_partial_group = partial_size * (partial_size - 1)
    fraction = (pairs_of_full_groups + pairs_of_partial_group) / finite_k**2
    return np.where(np.isinf(k), 0.0, fraction)


def group_fractions(
    k: ArrayLike, first_size: ArrayLike, second_size: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Fractions of the ordered pairs in one group of the first kind only, of the second kind only,
    and of both kinds.

    Groups of either kind are runs of consecutive members, so a pair lies in groups of both kinds
    when it lies in one cell of the common refinement, which repeats with the least common multiple
    of the two sizes.
    """
    k, first, second = np.broadcast_arrays(
        np.asarray(k, float), np.asarray(first_size, float), np.asarray(second_size, float)
    )
    has_both_kinds = (first > 1) & (second > 1) & np.isfinite(k)
    in_both_kinds = np.zeros(k.shape)
    for index in map(tuple, np.argwhere(has_both_kinds)):
        n_pairs = _pairs_in_both_kinds(int(k[index]), int(first[index]), int(second[index]))
        in_both_kinds[index] = n_pairs / k[index] ** 2
    in_first = same_group_fraction(k, first)
    in_second = same_group_fraction(k, second)
    return in_first - in_both_kinds, in_second - in_both_kinds, in_both_kinds


def _pairs_in_both_kinds(k: int, first_size: int, second_size: int) -> float:
    """Number of ordered pairs of different members, among the first `k`, that lie in groups of both
    kinds.
    """

    def count_pairs(n_members: int) -> float:
        first_starts = np.arange(0, n_members, first_size)
        second_starts = np.arange(0, n_members, second_size)
        starts = np.union1d(first_starts, second_starts)
        cell_sizes = np.diff(np.append(starts, n_members)).astype(float)
        return float(np.sum(cell_sizes * (cell_sizes - 1)))

    period = math.lcm(first_size, second_size)
    n_periods, n_remaining = divmod(k, period)
    n_pairs = count_pairs(n_remaining)
    if n_periods:
        n_pairs += n_periods * count_pairs(period)
    return n_pairs


def rescale(
    risk: Floats, shrinkage: Floats | float, mu: Floats, norm: Floats | float = 1.0
) -> Floats:
    r"""Risk of `mu` times an estimator with :math:`E\langle\beta, b\rangle = \delta\|\beta\|^2`,
    delta = `shrinkage`.

    From :math:`\mu b - \beta = \mu(b-\delta\beta) - (1-\mu\delta)\beta`, whose two parts are
    orthogonal in the mean:
    :math:`\mu^2 [R - (1-\delta)^2\|\beta\|^2] + (1-\mu\delta)^2\|\beta\|^2`. The bracket is a mean of squares:
    only rounding makes it negative where `risk` and `shrinkage` belong to one estimator.
    """
    with np.errstate(invalid="ignore"):
        signal_lost = ((1 - shrinkage) * norm) ** 2
        variance = np.maximum(0.0, risk - signal_lost)
        signal_lost_at_mu = ((1 - mu * shrinkage) * norm) ** 2
        scaled = mu**2 * variance + signal_lost_at_mu
    is_unchanged = np.isinf(risk) | (mu == 1)
    rescaled = np.where(is_unchanged, risk, scaled)
    return np.where(mu == 0, norm**2, rescaled)[()]


def times_square(size: Floats, unit: Floats) -> Floats:
    """`size` squared times `unit`; infinite entries of `unit` become zero where `size` is zero, and
    stay otherwise.
    """
    is_infinite = np.isinf(unit)
    product = size**2 * np.where(is_infinite, 0.0, unit)
    return np.where(is_infinite & (size > 0), np.inf, product)[()]
