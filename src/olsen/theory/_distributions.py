r"""Distributions of subset sizes and overlaps, as weights on the window that carries the mass.

Weights come from ratios of neighbouring probabilities, accumulated in logarithms from the mode:
no factorial is formed, so a million columns cost a few thousand terms and keep full precision.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from ._arguments import Counts, Floats

Weighted: TypeAlias = tuple[Counts, Floats]  # values of a count, their weights
Numbers: TypeAlias = NDArray[np.floating[Any] | np.integer[Any]]
Overlaps: TypeAlias = tuple[Numbers, Floats, Numbers]  # columns shared, weights, mean number of columns outside both

NEGLIGIBLE = 1e-13  # rejection probability below which the truncation is not felt


def window(mean: float, variance: float, low: int, high: int) -> Counts:
    """Integers within 12 standard deviations (plus a Poisson margin) of the mean, inside the support."""
    reach = 12 * np.sqrt(variance) + 45
    return np.arange(max(low, int(mean - reach)), min(high, int(mean + reach) + 1) + 1)


def _normalise(log_ratios: Floats) -> Floats:
    log_weight = np.concatenate([[0.0], np.cumsum(log_ratios)])
    weight = np.exp(log_weight - log_weight.max())
    share: Floats = weight / weight.sum()
    return share


def hypergeometric(total: int, marked: int, drawn: int) -> Weighted:
    """Values and weights of the number of marked items among `drawn` out of `total`, without replacement."""
    low, high = max(0, marked + drawn - total), min(marked, drawn)
    mean = marked * drawn / total
    variance = mean * (1 - marked / total) * (total - drawn) / max(total - 1, 1)
    a = window(mean, variance, low, high)
    x = a[:-1].astype(float)
    ratio = (marked - x) * (drawn - x) / ((x + 1) * (total - marked - drawn + x + 1))
    return a, _normalise(np.log(ratio))


def binomial(trials: int, probability: float, most: int | None = None) -> Weighted:
    """Values and weights of a binomial count, conditioned on ``count <= most`` when given."""
    top = trials if most is None else min(trials, most)
    if probability == 0 or probability == 1:
        return np.array([int(probability) * trials]), np.ones(1)
    mean = trials * probability
    x = window(min(mean, top), mean * (1 - probability), 0, top)
    ratio = (trials - x[:-1]) / (x[:-1] + 1.0) * (probability / (1 - probability))
    return x, _normalise(np.log(ratio))


def thin(values: Counts, weights: Floats, most: int = 100) -> Weighted:
    """Every s-th term of a long smooth distribution, renormalised.

    An equally spaced sum of a bell-shaped function is the trapezoidal rule, whose error falls like exp(-2 (pi s)^2)
    with s terms to a standard deviation; here s is at least 2, which leaves rounding.
    """
    step = max(1, len(values) // most)
    kept = weights[::step]
    return values[::step], kept / kept.sum()


def at_most(count: Counts | int, trials: Counts | int, probability: float) -> Floats:
    """P(Bin(trials, probability) <= count), elementwise, with the degenerate cases SciPy leaves out."""
    if probability >= 1:
        return np.where(np.asarray(trials) <= count, 1.0, 0.0)
    inside = bdtr(np.minimum(count, np.maximum(trials, 0)), np.maximum(trials, 0), probability)
    return np.where(np.asarray(trials) <= count, 1.0, inside)


def coin_pair(p: int, both: float, one: float, most: int) -> tuple[Overlaps, float]:
    """Overlaps of two coin-flip subsets, and the probability that both are accepted.

    Each column is in both subsets with probability `both`, in exactly the first with `one`, in exactly the second with
    `one`. The pair is conditioned on both sizes being at most `most`, which is ignored when its probability of failing
    is negligible. Given the overlap, columns of the first alone are summed; those of the second alone are a tail.
    """
    outside = 1 - both - 2 * one
    outside = outside if outside > 1e-15 else 0.0
    a, weight = binomial(p, both, most)
    if 1 - at_most(most, p, both + one) < NEGLIGIBLE:
        return (a, weight, (p - a) * (outside / (1 - both) if both < 1 else 0.0)), 1.0
    weight = weight * at_most(most, p, both)  # a is conditioned on a <= most; the pair is not
    tail = one / (one + outside)
    mass, uncovered = np.zeros(len(a)), np.zeros(len(a))
    for index, overlap in enumerate(a):
        b, probability = binomial(p - overlap, one / (1 - both))
        keep = b <= most - overlap
        b, probability = b[keep], probability[keep]
        rest = p - overlap - b
        mass[index] = probability @ at_most(most - overlap, rest, tail)
        # E[(N - c) 1{c <= C}] = N (1 - q) P(Bin(N - 1, q) <= C)
        uncovered[index] = probability @ (rest * (1 - tail) * at_most(most - overlap, rest - 1, tail))
    total = weight * mass
    accepted = float(total.sum())  # zero when the two cannot both be short
    return (a, total / (accepted or 1.0), uncovered / np.where(mass > 0, mass, 1.0)), accepted


def replaced_pair(p: int, alpha: float, most: int) -> Overlaps:
    """Overlaps of two members of a balanced group when the coin flips of exactly one of them were rejected.

    The accepted size is conditioned on the rejection of the partner, whose columns (or left-out columns, for alpha
    above one half) are disjoint from its own; the replacement is independent.
    """
    sizes, weight = binomial(p, alpha, most)
    if alpha <= 0.5:
        refused = 1 - at_most(most, p - sizes, alpha / (1 - alpha))
    else:
        refused = at_most(p - most - 1, sizes, (1 - alpha) / alpha)
    weight = weight * np.maximum(refused, 0)
    keep = weight > NEGLIGIBLE * weight.max()
    mass, uncovered = np.zeros(most + 1), np.zeros(most + 1)
    for size, share in zip(sizes[keep], weight[keep], strict=True):
        a, probability = binomial(int(size), alpha)
        rest = np.full(len(a), p - size)
        mass[a] += share * probability * at_most(most - a, rest, alpha)
        uncovered[a] += share * probability * rest * (1 - alpha) * at_most(most - a, rest - 1, alpha)
    a = np.flatnonzero(mass)
    return a, mass[a] / mass.sum(), uncovered[a] / mass[a]


def coins_one_by_one(inside: Floats, left_out: Floats, most: int) -> tuple[Floats, float]:
    """Distribution of the number of columns inside a set, and the signal outside another; a coin for every column.

    Column j is inside with probability ``inside[j]``, and otherwise adds ``left_out[j]`` in the mean (an energy times
    the probability of being outside). Row 0: the probability of each count up to `most` or to the end of the window;
    row 1: the mean energy left out, on that event. And the probability of what is beyond. One column after the
    other, so that only positive numbers are added: columns times counts, 10 ms for a thousand columns.
    """
    flipped = inside > 0
    last = _last_count(inside, most)
    mass, beyond = np.zeros((2, last + 1)), 0.0
    mass[0, 0] = 1.0
    for probability, energy in zip(inside[flipped], left_out[flipped], strict=True):
        beyond += probability * mass[0, last]
        grown = (1 - probability) * mass
        grown[1] += energy * mass[0]
        grown[:, 1:] += probability * mass[:, :-1]
        mass = grown
    mass[1] += left_out[~flipped].sum() * mass[0]
    return mass, float(beyond)


def accepted_coins(once: Floats, both: Floats, left_out: Floats, most: int) -> Floats:
    """`coins_one_by_one` of the overlap of two members, on the event that neither has more than `most` columns.

    Columns in exactly one of the two, d of them, are in the one or in the other with equal chances, whatever their
    probabilities. So the joint distribution of the overlap and of d is enough, and given these, acceptance is the
    middle of a fair binomial. Not divided by the probability of that event.
    """
    alone = 2 * (once - both)
    last_both, last_alone = _last_count(both, most), _last_count(alone, 2 * most)
    mass = np.zeros((2, last_both + 1, last_alone + 1))
    mass[0, 0, 0] = 1.0
    for two, one, energy in zip(both, alone, left_out, strict=True):
        grown = (1 - two - one) * mass
        grown[1] += energy * mass[0]
        grown[:, 1:] += two * mass[:, :-1]
        grown[:, :, 1:] += one * mass[:, :, :-1]
        mass = grown
    a, d = np.arange(last_both + 1)[:, None], np.arange(last_alone + 1)
    accepted = np.maximum(0.0, 2 * at_most(most - a, d + 0 * a, 0.5) - 1)
    overlaps: Floats = np.sum(mass * accepted, axis=2)
    return overlaps


def accepted_coins_cost(once: Floats, both: Floats, most: int) -> float:
    """Terms that `accepted_coins` sums."""
    return len(once) * (_last_count(both, most) + 1.0) * (_last_count(2 * (once - both), 2 * most) + 1.0)


def _last_count(probability: Floats, most: int) -> int:
    """Largest number of columns worth a term."""
    reach = window(float(probability.sum()), float(np.sum(probability * (1 - probability))), 0, len(probability))
    return int(min(most, reach[-1]))


def mixture(first: Overlaps, mass_first: float, second: Overlaps, mass_second: float) -> Overlaps:
    """`first` or `second`, in the proportion of the two masses."""
    share = mass_first / (mass_first + mass_second)
    values, outside = (np.concatenate([first[i], second[i]]) for i in (0, 2))
    return values, np.concatenate([share * first[1], (1 - share) * second[1]]), outside
