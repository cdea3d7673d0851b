r"""Members that flip a coin for every row and every column, and are drawn again unless :math:`m \le
\tau - 2`.

Given the numbers :math:`m` of columns and :math:`\tau` of rows, subsets are uniform, so the risk of
a pair of members depends only on their sizes. With :math:`w(x)` the probability of x columns and
:math:`A(x) = P(\tau \ge x + 2)`, an accepted member has x columns with probability :math:`f(x)
\propto w(x) A(x)`. Two members of a group are drawn together. Either both are accepted, or one is
accepted and the other is drawn again independently, or both are drawn again together.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from . import _distributions
from ._arguments import Counts, Floats
from ._distributions import PairTerms

Inflation = Callable[[Floats], Floats]

MAX_SIZES = 300  # sizes of members that are summed over
MAX_TERMS = 2 << 20  # of the sum over sizes and overlaps


class Members(NamedTuple):
    """What holds for each member."""

    terms: PairTerms
    shrinkage: float  # E|S|/p
    accepted: float  # probability of acceptance


def member_terms(n: int, p: int, alpha: float, eta: float) -> Members:
    """Terms of one member, averaged over its sizes."""
    sizes, size_weights = _distributions.binomial(p, alpha)
    row_counts, row_weights = _distributions.thin(*_distributions.binomial(n, eta))
    accepted = 0.0
    columns = 0.0
    bias = 0.0
    variance = 0.0
    for tau, row_weight in zip(row_counts, row_weights, strict=True):
        fits = sizes <= tau - 2
        x = sizes[fits]
        weights = row_weight * size_weights[fits]
        v = x / (tau - x - 1.0)
        accepted += weights.sum()
        columns += weights @ x
        bias += weights @ ((1 - x / p) * (1 + v))
        variance += weights @ v
    if accepted <= 1e-6:  # an error is better than a risk
        raise ValueError(
            f"coin flips that expect {alpha * p:.6g} columns and n_samples = {eta * n:.6g} rows have"
            f" two rows more than columns with probability {accepted:.1g}: every subset is rejected."
            " Use fewer expected columns, or theory.minimum_norm_risk."
        )
    terms = PairTerms(bias / accepted, variance / accepted)
    return Members(terms, columns / (p * accepted), accepted)


def pair_terms(
    n: int, p: int, alpha: float, eta: float, *, inflations: Sequence[Inflation]
) -> list[PairTerms]:
    """Terms of four kinds of pairs: no common group, a column group, a row group, groups of both
    kinds.

    `inflations` are two functions that map a number of shared columns to v: for independent rows,
    and for a row group. If at least twice `MAX_SIZES` column counts have weight, only an evenly
    spaced part of the counts is summed. If the sum needed more than `MAX_TERMS` terms, the overlap
    of two given sizes is approximated by two values.
    """
    x, f = _distributions.thin(*_distributions.binomial(p, alpha), MAX_SIZES)
    joint_of_groups = _column_groups(p, alpha, x, f)
    possible = x <= n - 2
    x = x[possible]
    f = f[possible]
    joint_sizes = [np.outer(f, f), joint_of_groups[np.ix_(possible, possible)]]
    A, both_accepted = _acceptance(n, eta, x)
    acceptances = [np.outer(A, A), both_accepted]
    accepted_weights = f * A
    redrawn_weights = accepted_weights / np.sum(accepted_weights)
    min_overlap = np.maximum(0, x[:, None] + x - p)[None]
    overlaps = [_overlaps(p, x), (min_overlap, np.ones(min_overlap.shape))]
    redrawn_terms = _terms_by_size(p, x, *overlaps[0], inflations[0]) @ redrawn_weights
    terms_of_pairs = []
    for acceptance, inflation in zip(acceptances, inflations, strict=True):
        for joint, (overlap, overlap_weights) in zip(joint_sizes, overlaps, strict=True):
            accepted_pairs = joint * acceptance
            # the weight of the sizes of a member that is accepted while its partner is not
            only_one = np.maximum(0.0, accepted_weights - accepted_pairs.sum(axis=1))
            terms = _terms_by_size(p, x, overlap, overlap_weights, inflation)
            of_accepted = np.sum(terms * accepted_pairs, axis=(1, 2))
            of_redrawn = 2 * (redrawn_terms @ only_one)
            mass = accepted_pairs.sum() + 2 * only_one.sum()
            bias, variance = (of_accepted + of_redrawn) / mass
            terms_of_pairs.append(PairTerms(float(bias), float(variance)))
    return terms_of_pairs


def _terms_by_size(
    p: int, x: Counts, overlaps: Floats, weights: Floats, inflation: Inflation
) -> Floats:
    """Bias and variance for each pair of sizes, averaged over the overlaps: shape (2, sizes,
    sizes).
    """
    v = inflation(overlaps)
    fraction_in_neither = (p - x[:, None] - x + overlaps) / p
    bias = np.sum(weights * fraction_in_neither * (1 + v), axis=0)
    variance = np.sum(weights * v, axis=0)
    return np.array([bias, variance])


def _column_groups(p: int, alpha: float, x: Counts, weights: Floats) -> Floats:
    """Joint distribution of the sizes of two members of a group, which are disjoint or leave out
    disjoint sets.
    """
    joint = np.zeros((len(x), len(x)))
    step = int(x[1] - x[0]) if len(x) > 1 else 1
    for row, size in enumerate(x.tolist()):
        if alpha <= 0.5:
            partner_sizes, probabilities = _distributions.binomial(p - size, alpha / (1 - alpha))
        else:
            left_out, probabilities = _distributions.binomial(size, (1 - alpha) / alpha)
            partner_sizes = p - left_out
        steps = (partner_sizes - x[0] + step // 2) // step
        nearest = np.clip(steps, 0, len(x) - 1)
        np.add.at(joint[row], nearest, weights[row] * probabilities)
    return joint


def _acceptance(n: int, eta: float, x: Counts) -> tuple[Floats, Floats]:
    """Probability that a member of x columns is accepted; that both members of a row group are, for
    pairs of sizes.
    """
    tau, weights = _distributions.thin(*_distributions.binomial(n, eta))
    accepted_weights = np.where(tau >= x[:, None] + 2, weights, 0.0)  # (sizes, row counts)
    if eta <= 0.5:
        p_partner = 1 - _distributions.at_most(x + 1, (n - tau)[:, None], eta / (1 - eta))
    else:
        p_partner = _distributions.at_most(n - x - 2, tau[:, None], (1 - eta) / eta)
    return accepted_weights.sum(axis=1), accepted_weights @ p_partner


def _overlaps(p: int, x: Counts) -> tuple[Floats, Floats]:
    """Values and weights of the overlap of uniform subsets, for each pair of sizes: shape (values,
    sizes, sizes).

    The distribution is hypergeometric. Where that would be too many terms, the values are one
    standard deviation on either side of the mean.
    """
    y = x[:, None]
    min_overlap = np.maximum(0, x + y - p)
    max_overlap = np.minimum(x, y)
    n_values = x[-1] + 1
    if len(x) ** 2 * n_values > MAX_TERMS:
        mean = x * y / p
        deviation = np.sqrt(mean * (p - x) * (p - y) / (p * (p - 1.0)))
        reach = np.minimum(mean - min_overlap, max_overlap - mean)
        deviation = np.minimum(deviation, reach)
        return np.array([mean - deviation, mean + deviation]), np.full((2, 1, 1), 0.5)
    values = np.arange(n_values)[:, None, None]
    possible = (min_overlap <= values) & (values <= max_overlap)
    a = np.where(possible, values, min_overlap)
    two_by_two_table = np.array([a, x - a, y - a, p - x - y + a])
    log_weights = -gammaln(two_by_two_table + 1.0).sum(axis=0)
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights = np.where(possible, weights, 0.0)
    return a, weights / weights.sum(axis=0)
