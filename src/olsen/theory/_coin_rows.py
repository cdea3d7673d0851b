r"""Members that flip a coin for every row and every column, and are drawn again unless :math:`m \le
\tau - 2`.

Given the numbers :math:`m` of columns and :math:`\tau` of rows, subsets are uniform, so the risk of
a pair of members depends only on their sizes. With :math:`w(x)` the probability of x columns and
:math:`A(x) = P(\tau \ge x + 2)`, an accepted member has x columns with probability :math:`f(x)
\propto w(x) A(x)`. Two members of a group are drawn together. Either both are accepted, or one is
accepted and the other is drawn again independently, or both are drawn again together.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import gammaln

from . import _distributions
from ._arguments import Counts, Floats, require

Inflation = Callable[[Floats], Floats]

MIN_ACCEPTANCE = (
    1e-6  # probability of acceptance of a member, below which a message is better than a risk
)


def member_terms(n: int, p: int, alpha: float, eta: float) -> tuple[float, float, float, float]:
    """Bias for unit signal, variance for unit noise and E|S|/p of one member; the probability that
    it is accepted.
    """
    sizes, size_weights = _distributions.binomial(p, alpha)
    accepted = 0.0
    columns = 0.0
    bias = 0.0
    variance = 0.0
    for tau, row_weight in zip(*_distributions.thin(*_distributions.binomial(n, eta)), strict=True):
        fits = sizes <= tau - 2
        x = sizes[fits]
        weights = row_weight * size_weights[fits]
        inflation = x / (tau - x - 1.0)
        accepted = accepted + weights.sum()
        columns = columns + weights @ x
        bias = bias + weights @ ((1 - x / p) * (1 + inflation))
        variance = variance + weights @ inflation
    require(
        accepted > MIN_ACCEPTANCE,
        f"coin flips that expect {alpha * p:.6g} columns and n_samples = {eta * n:.6g} rows have"
        f" two rows more than columns with probability {accepted:.1g}: every subset is rejected."
        " Use fewer expected columns, or theory.minimum_norm_risk.",
    )
    return bias / accepted, variance / accepted, columns / (p * accepted), accepted


def pair_terms(
    n: int,
    p: int,
    alpha: float,
    eta: float,
    inflations: Sequence[Inflation],
    most_sizes: int = 300,
    terms: int = 2 << 20,
) -> list[tuple[float, float]]:
    """Bias and variance of four kinds of pairs: no common group, a column group, a row group,
    groups of both kinds.

    `inflations` are two functions that map a number of shared columns to v: for independent rows,
    and for a row group. If at least twice `most_sizes` column counts have weight, only an evenly
    spaced part of the counts is summed. If the sum needed more than `terms` terms, the overlap of
    two given sizes is approximated by two values.
    """
    x, size_weights = _distributions.thin(*_distributions.binomial(p, alpha), most_sizes)
    possible = x <= n - 2
    size_distributions = [
        np.outer(size_weights, size_weights),
        _column_groups(p, alpha, x, size_weights),
    ]
    size_distributions = [joint[np.ix_(possible, possible)] for joint in size_distributions]
    x = x[possible]
    size_weights = size_weights[possible]
    p_accepted, p_both_accepted = _acceptance(n, eta, x)
    accepted_weights = size_weights * p_accepted
    redrawn_weights = accepted_weights / np.sum(accepted_weights)
    min_overlap = np.maximum(0, x[:, None] + x - p)[None]
    overlaps = [_overlaps(p, x, terms), (min_overlap, np.ones(min_overlap.shape))]
    redrawn_terms = _terms_by_size(p, x, *overlaps[0], inflations[0])
    terms_of_pairs = []
    for acceptance, inflation in zip(
        (np.outer(p_accepted, p_accepted), p_both_accepted), inflations, strict=True
    ):
        for joint, (overlap, overlap_weights) in zip(size_distributions, overlaps, strict=True):
            both_accepted = joint * acceptance
            # the weight of the sizes of a member that is accepted while its partner is not
            only_accepted = np.maximum(0.0, accepted_weights - both_accepted.sum(axis=1))
            by_size = _terms_by_size(p, x, overlap, overlap_weights, inflation)
            total = np.sum(by_size * both_accepted, axis=(1, 2)) + 2 * (
                redrawn_terms @ redrawn_weights @ only_accepted
            )
            bias, variance = total / (both_accepted.sum() + 2 * only_accepted.sum())
            terms_of_pairs.append((float(bias), float(variance)))
    return terms_of_pairs


def _terms_by_size(
    p: int, x: Counts, overlaps: Floats, weights: Floats, inflation: Inflation
) -> Floats:
    """Bias and variance for each pair of sizes, averaged over the overlaps: shape (2, sizes,
    sizes).
    """
    v = inflation(overlaps)
    in_neither = p - x[:, None] - x + overlaps
    bias = np.sum(weights * in_neither / p * (1 + v), axis=0)
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
        nearest = np.clip((partner_sizes - x[0] + step // 2) // step, 0, len(x) - 1)
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


def _overlaps(p: int, x: Counts, max_terms: int) -> tuple[Floats, Floats]:
    """Values and weights of the overlap of uniform subsets, for each pair of sizes: shape (values,
    sizes, sizes).

    The distribution is hypergeometric. Where that would be too many terms, the values are one
    standard deviation on either side of the mean.
    """
    y = x[:, None]
    low = np.maximum(0, x + y - p)
    high = np.minimum(x, y)
    if len(x) ** 2 * (x[-1] + 1) <= max_terms:
        counts = np.arange(x[-1] + 1)[:, None, None]
        possible = (low <= counts) & (counts <= high)
        overlaps = np.where(possible, counts, low)
        cells = np.array(
            [overlaps, x - overlaps, y - overlaps, p - x - y + overlaps]
        )  # of the two-by-two table
        log_weights = -gammaln(cells + 1.0).sum(axis=0)
        weights = np.where(possible, np.exp(log_weights - log_weights.max(axis=0)), 0.0)
        return overlaps, weights / weights.sum(axis=0)
    mean = x * y / p
    deviation = np.sqrt(mean * (p - x) * (p - y) / (p * (p - 1.0)))
    deviation = np.minimum(deviation, np.minimum(mean - low, high - mean))
    return np.array([mean - deviation, mean + deviation]), np.full((2, 1, 1), 0.5)
