r"""Members that flip a coin for every row and every column, and are drawn again unless :math:`m \le \tau - 2`.

Given the numbers :math:`m` of columns and :math:`\tau` of rows, subsets are uniform, so a pair of members is known by
its sizes. With :math:`w(x)` the probability of x columns and :math:`A(x) = P(\tau \ge x + 2)`, an accepted member has x
columns with probability :math:`f(x) \propto w(x) A(x)`. Two members of a group are drawn together. Either both are
kept, or one is kept and the other one drawn again by itself, or both are drawn again together.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import gammaln

from . import _distributions
from ._arguments import Counts, Floats, require

Inflation = Callable[[Floats], Floats]


def member_terms(n: int, p: int, alpha: float, eta: float) -> tuple[float, float, float, float]:
    """Bias for unit signal, variance for unit noise and E|S|/p of one member; the probability that it is accepted."""
    sizes, probability = _distributions.binomial(p, alpha)
    accepted, columns, bias, variance = 0.0, 0.0, 0.0, 0.0
    for tau, mass in zip(*_distributions.thin(*_distributions.binomial(n, eta)), strict=True):
        x, weight = sizes[sizes <= tau - 2], mass * probability[sizes <= tau - 2]
        inflation = x / (tau - x - 1.0)
        accepted, columns = accepted + weight.sum(), columns + weight @ x
        bias, variance = bias + weight @ ((1 - x / p) * (1 + inflation)), variance + weight @ inflation
    require(
        accepted > 1e-6,
        f"coin flips that expect {alpha * p:.6g} columns and n_samples = {eta * n:.6g} rows have two rows more than "
        f"columns with probability {accepted:.1g}: every subset is rejected. Use fewer expected columns, or "
        "theory.minimum_norm_risk.",
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
    """Bias and variance of pairs: of no common group, of one column group, of one row group, of both.

    `inflations` give v for numbers of shared columns, where rows are independent and in a row group. From twice
    `most_sizes` numbers of columns on only some are summed, evenly spaced, and above so many `terms` the overlap of two
    sizes has two values.
    """
    x, w = _distributions.thin(*_distributions.binomial(p, alpha), most_sizes)
    possible = x <= n - 2
    columns = [np.outer(w, w), _column_groups(p, alpha, x, w)]
    columns = [joint[np.ix_(possible, possible)] for joint in columns]
    x, w = x[possible], w[possible]
    single, together = _acceptance(n, eta, x)
    fresh = w * single / np.sum(w * single)
    least = np.maximum(0, x[:, None] + x - p)[None]
    overlaps = [_overlaps(p, x, terms), (least, np.ones(least.shape))]
    redrawn = _given_sizes(p, x, *overlaps[0], inflations[0])
    found = []
    for accepted, inflation in zip((np.outer(single, single), together), inflations, strict=True):
        for joint, overlap in zip(columns, overlaps, strict=True):
            kept = joint * accepted
            once = np.maximum(0.0, w * single - kept.sum(axis=1))  # this one is kept, the other one is not
            given = _given_sizes(p, x, *overlap, inflation)
            total = np.sum(given * kept, axis=(1, 2)) + 2 * (redrawn @ fresh @ once)
            bias, variance = total / (kept.sum() + 2 * once.sum())
            found.append((float(bias), float(variance)))
    return found


def _given_sizes(p: int, x: Counts, a: Floats, weight: Floats, inflation: Inflation) -> Floats:
    """Bias and variance for each pair of sizes, averaged over the overlaps `a`: shape (2, sizes, sizes)."""
    v = inflation(a)
    outside = p - x[:, None] - x + a
    return np.array([np.sum(weight * outside / p * (1 + v), axis=0), np.sum(weight * v, axis=0)])


def _column_groups(p: int, alpha: float, x: Counts, w: Floats) -> Floats:
    """Joint distribution of the sizes of two members of a group, who are disjoint, or leave out disjoint sets."""
    joint = np.zeros((len(x), len(x)))
    step = int(x[1] - x[0]) if len(x) > 1 else 1
    for row, size in enumerate(x.tolist()):
        if alpha <= 0.5:
            y, probability = _distributions.binomial(p - size, alpha / (1 - alpha))
        else:
            left_out, probability = _distributions.binomial(size, (1 - alpha) / alpha)
            y = p - left_out
        nearest = np.clip((y - x[0] + step // 2) // step, 0, len(x) - 1)
        np.add.at(joint[row], nearest, w[row] * probability)
    return joint


def _acceptance(n: int, eta: float, x: Counts) -> tuple[Floats, Floats]:
    """Probability that a member of x columns has rows enough; that both of a row group have, for each pair of sizes."""
    tau, weight = _distributions.thin(*_distributions.binomial(n, eta))
    enough = np.where(tau >= x[:, None] + 2, weight, 0.0)
    if eta <= 0.5:
        partner = 1 - _distributions.at_most(x + 1, (n - tau)[:, None], eta / (1 - eta))
    else:
        partner = _distributions.at_most(n - x - 2, tau[:, None], (1 - eta) / eta)
    return enough.sum(axis=1), enough @ partner


def _overlaps(p: int, x: Counts, terms: int) -> tuple[Floats, Floats]:
    """Values and weights of the overlap of uniform subsets, for each pair of sizes: shape (values, sizes, sizes).

    Hypergeometric, or one standard deviation either side of its mean where that would be too many terms.
    """
    y = x[:, None]
    low, high = np.maximum(0, x + y - p), np.minimum(x, y)
    if len(x) ** 2 * (x[-1] + 1) <= terms:
        a = np.arange(x[-1] + 1)[:, None, None]
        inside = (low <= a) & (a <= high)
        shared = np.where(inside, a, low)
        log = -gammaln(np.array([shared, x - shared, y - shared, p - x - y + shared]) + 1.0).sum(axis=0)
        weight = np.where(inside, np.exp(log - log.max(axis=0)), 0.0)
        return shared, weight / weight.sum(axis=0)
    mean = x * y / p
    deviation = np.sqrt(mean * (p - x) * (p - y) / (p * (p - 1.0)))
    deviation = np.minimum(deviation, np.minimum(mean - low, high - mean))
    return np.array([mean - deviation, mean + deviation]), np.full((2, 1, 1), 0.5)
