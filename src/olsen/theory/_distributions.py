r"""Distributions of subset sizes and overlaps, as weights on the window that carries the mass.

Weights come from ratios of neighbouring probabilities, accumulated in logarithms from the mode:
no factorial is formed, so a million columns cost a few thousand terms and keep full precision.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from ._arguments import Counts, Floats

Weighted: TypeAlias = tuple[Counts, Floats]  # values of a count, weights of the values
Numbers: TypeAlias = NDArray[np.floating[Any] | np.integer[Any]]

MAX_EXACT_TERMS = 4e8  # of a sum over pairs conditioned on acceptance: seconds of work
NEGLIGIBLE = 1e-13  # rejection probability below which the truncation does not change the result


class PairTerms(NamedTuple):
    """Contributions of a pair of members (or of a member with itself) to the risk."""

    bias: float  # for unit signal
    variance: float  # for unit noise


class Overlaps(NamedTuple):
    """Distribution of the columns of two members."""

    values: Numbers  # number of shared columns
    weights: Floats
    in_neither: Numbers  # mean number of columns in neither member, for each value


def window(mean: float, variance: float, low: int, high: int) -> Counts:
    """Integers within 12 standard deviations (plus a Poisson margin) of the mean, inside the
    support.
    """
    reach = 12 * np.sqrt(variance) + 45
    first = max(low, int(mean - reach))
    last = min(high, int(mean + reach) + 1)
    return np.arange(first, last + 1)


def _normalise(log_ratios: Floats) -> Floats:
    """Weights that sum to one, from the logarithms of the ratios of neighbours."""
    log_weights = np.concatenate([[0.0], np.cumsum(log_ratios)])
    unscaled = np.exp(log_weights - log_weights.max())
    weights: Floats = unscaled / unscaled.sum()
    return weights


def hypergeometric(total: int, marked: int, drawn: int) -> Weighted:
    """Values and weights of the number of marked items among `drawn` out of `total`, without
    replacement.
    """
    mean = marked * drawn / total
    variance = mean * (1 - marked / total) * (total - drawn) / max(total - 1, 1)
    low = max(0, marked + drawn - total)
    high = min(marked, drawn)
    values = window(mean, variance, low, high)
    x = values[:-1].astype(float)
    ways_in = (marked - x) * (drawn - x)  # to exchange an unmarked item for a marked one
    ways_out = (x + 1) * (total - marked - drawn + x + 1)
    return values, _normalise(np.log(ways_in / ways_out))


def shared_rows(n: int, tau: int) -> Weighted:
    """Values and weights of the number of rows that two independent members of tau rows share."""
    values, weights = hypergeometric(n, tau, tau)
    return thin(values, weights)


def binomial(trials: int, probability: float, max_count: int | None = None) -> Weighted:
    """Values and weights of a binomial count, conditioned on ``count <= max_count`` unless that is
    None.
    """
    top = trials if max_count is None else min(trials, max_count)
    if probability in (0, 1):
        return np.array([int(probability) * trials]), np.ones(1)
    mean = trials * probability
    values = window(min(mean, top), mean * (1 - probability), 0, top)
    x = values[:-1]
    odds = probability / (1 - probability)
    ratios = (trials - x) / (x + 1.0) * odds
    return values, _normalise(np.log(ratios))


def thin(values: Counts, weights: Floats, max_terms: int = 100) -> Weighted:
    """Every s-th term of a long smooth distribution, renormalised.

    An equally spaced sum of a bell-shaped function is the trapezoidal rule, whose error falls like
    exp(-2 (pi s)^2) with s terms to a standard deviation; here s is at least 2, so that only
    rounding remains.
    """
    step = max(1, len(values) // max_terms)
    thinned = weights[::step]
    return values[::step], thinned / thinned.sum()


def at_most(count: Counts | int, trials: Counts | int, probability: float) -> Floats:
    """P(Bin(trials, probability) <= count), elementwise, with the degenerate cases SciPy leaves
    out.
    """
    is_certain = np.asarray(trials) <= count
    if probability >= 1:
        return np.where(is_certain, 1.0, 0.0)
    trials = np.maximum(trials, 0)
    return np.where(is_certain, 1.0, bdtr(np.minimum(count, trials), trials, probability))


def coin_pair(p: int, p_shared: float, p_alone: float, max_size: int) -> tuple[Overlaps, float]:
    """Overlaps of two coin-flip subsets, and the probability that both subsets are accepted.

    Each column is in both subsets with probability `p_shared`, in the first only with `p_alone`,
    and in the second only with `p_alone`. The pair is conditioned on both sizes being at most
    `max_size`; the condition is ignored when its probability of failing is negligible. Given the
    overlap, the columns of the first subset alone are summed over, and the columns of the second
    alone enter as a tail probability.
    """
    p_neither = 1 - p_shared - 2 * p_alone
    p_neither = p_neither if p_neither > 1e-15 else 0.0
    overlaps, weights = binomial(p, p_shared, max_size)
    p_rejected = 1 - at_most(max_size, p, p_shared + p_alone)
    if p_rejected < NEGLIGIBLE:
        p_neither_of_unshared = p_neither / (1 - p_shared) if p_shared < 1 else 0.0
        in_neither = (p - overlaps) * p_neither_of_unshared
        return Overlaps(overlaps, weights, in_neither), 1.0
    # `binomial` conditions the overlap on at most `max_size` columns, which is undone: the pair is
    # conditioned below
    weights = weights * at_most(max_size, p, p_shared)
    p_second = p_alone / (p_alone + p_neither)  # given that a column is not in the first subset
    acceptance = np.zeros(len(overlaps))
    uncovered = np.zeros(len(overlaps))
    for index, overlap in enumerate(overlaps):
        room = max_size - overlap
        first_alone, probabilities = binomial(p - overlap, p_alone / (1 - p_shared))
        fits = first_alone <= room
        probabilities = probabilities[fits]
        not_in_first = p - overlap - first_alone[fits]
        p_fits, mean_uncovered = _second_subset(not_in_first, room, p_second)
        acceptance[index] = probabilities @ p_fits
        uncovered[index] = probabilities @ mean_uncovered
    masses = weights * acceptance
    p_accepted = float(masses.sum())  # zero when the two subsets cannot both be small enough
    in_neither = uncovered / np.where(acceptance > 0, acceptance, 1.0)
    return Overlaps(overlaps, masses / (p_accepted or 1.0), in_neither), p_accepted


def _second_subset(not_in_first: Counts, room: Counts | int, q: float) -> tuple[Floats, Floats]:
    """Probability that at most `room` of the columns not in the first subset join the second, and
    the mean number of columns that do not, on that event.

    The mean follows from E[(N - c) 1{c <= C}] = N (1 - q) P(Bin(N - 1, q) <= C).
    """
    p_fits = at_most(room, not_in_first, q)
    mean_uncovered = not_in_first * (1 - q) * at_most(room, not_in_first - 1, q)
    return p_fits, mean_uncovered


def replaced_pair(p: int, alpha: float, max_size: int) -> Overlaps:
    """Overlaps of two members of a balanced group when the coin flips of exactly one of the two
    were rejected.

    The accepted size is conditioned on the rejection of the partner, whose columns (or left-out
    columns, for alpha above one half) are disjoint from those of the accepted member; the
    replacement is independent.
    """
    sizes, weights = binomial(p, alpha, max_size)
    if alpha <= 0.5:
        p_rejected = 1 - at_most(max_size, p - sizes, alpha / (1 - alpha))
    else:
        p_rejected = at_most(p - max_size - 1, sizes, (1 - alpha) / alpha)
    weights = weights * np.maximum(p_rejected, 0)
    relevant = weights > NEGLIGIBLE * weights.max()
    masses = np.zeros(max_size + 1)
    uncovered = np.zeros(max_size + 1)
    for size, weight in zip(sizes[relevant].tolist(), weights[relevant], strict=True):
        overlaps, probabilities = binomial(size, alpha)
        not_in_first = np.full(len(overlaps), p - size)
        p_fits, mean_uncovered = _second_subset(not_in_first, max_size - overlaps, alpha)
        joint = weight * probabilities
        masses[overlaps] += joint * p_fits
        uncovered[overlaps] += joint * mean_uncovered
    overlaps = np.flatnonzero(masses)
    masses = masses[overlaps]
    return Overlaps(overlaps, masses / masses.sum(), uncovered[overlaps] / masses)


def coins_one_by_one(p_inside: Floats, left_out: Floats, max_count: int) -> tuple[Floats, float]:
    """Distribution of the number of columns inside a set, with the signal outside another set; one
    coin per column.

    Column j is inside with probability ``p_inside[j]``, and otherwise adds ``left_out[j]`` in the
    mean (an energy times the probability of being outside).

    Returns an array and a number. Row 0 of the array is the probability of each count up to
    `max_count` or to the end of the window; row 1 is the mean energy left out, on that event. The
    number is the probability of larger counts.

    Columns are added one after the other, so that only positive numbers are summed: columns times
    counts, 10 ms for a thousand columns.
    """
    is_random = p_inside > 0
    last = _last_count(p_inside, max_count)
    masses = np.zeros((2, last + 1))
    masses[0, 0] = 1.0
    p_beyond = 0.0
    for probability, energy in zip(p_inside[is_random], left_out[is_random], strict=True):
        p_beyond += probability * masses[0, last]
        grown = (1 - probability) * masses
        grown[1] += energy * masses[0]
        grown[:, 1:] += probability * masses[:, :-1]
        masses = grown
    masses[1] += left_out[~is_random].sum() * masses[0]
    return masses, float(p_beyond)


def accepted_coins(p_member: Floats, p_shared: Floats, left_out: Floats, max_size: int) -> Floats:
    """`coins_one_by_one` of the overlap of two members, on the event that neither has more than
    `max_size` columns.

    A column in exactly one of the two members is in the first or in the second with equal chances,
    whatever its probability. So the joint distribution of the overlap and of the number d of such
    columns is enough, and given the two numbers, acceptance is the middle of a fair binomial. The
    result is not divided by the probability of the event.
    """
    p_alone = 2 * (p_member - p_shared)
    last_shared = _last_count(p_shared, max_size)
    last_alone = _last_count(p_alone, 2 * max_size)
    n_terms = len(p_member) * (last_shared + 1.0) * (last_alone + 1.0)
    if n_terms > MAX_EXACT_TERMS:
        raise ValueError(
            f"members of {p_member.sum():.6g} expected columns are drawn again above n - 2 ="
            f" {max_size}, with more than negligible probability; to count this exactly takes"
            f" {n_terms:.1g} terms. Use smaller probabilities, or the limit, theory.diagonal_risk."
        )
    masses = np.zeros((2, last_shared + 1, last_alone + 1))
    masses[0, 0, 0] = 1.0
    for shared, alone, energy in zip(p_shared, p_alone, left_out, strict=True):
        grown = (1 - shared - alone) * masses
        grown[1] += energy * masses[0]
        grown[:, 1:] += shared * masses[:, :-1]
        grown[:, :, 1:] += alone * masses[:, :, :-1]
        masses = grown
    a = np.arange(last_shared + 1)[:, None]
    d = np.arange(last_alone + 1)
    a, d = np.broadcast_arrays(a, d)
    p_first_fits = at_most(max_size - a, d, 0.5)
    acceptance = np.maximum(0.0, 2 * p_first_fits - 1)
    overlaps: Floats = np.sum(masses * acceptance, axis=2)
    return overlaps


def _last_count(probabilities: Floats, max_count: int) -> int:
    """Largest number of columns with more than a negligible probability."""
    mean = float(probabilities.sum())
    variance = float(np.sum(probabilities * (1 - probabilities)))
    counts = window(mean, variance, 0, len(probabilities))
    return int(min(max_count, counts[-1]))


def mixture(first: Overlaps, first_mass: float, second: Overlaps, second_mass: float) -> Overlaps:
    """Mixture of two distributions of overlaps, weighted by the two masses."""
    fraction = first_mass / (first_mass + second_mass)
    values = np.concatenate([first.values, second.values])
    weights = np.concatenate([fraction * first.weights, (1 - fraction) * second.weights])
    in_neither = np.concatenate([first.in_neither, second.in_neither])
    return Overlaps(values, weights, in_neither)
