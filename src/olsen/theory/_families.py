r"""Families of inclusion probabilities that follow the coefficients, known or estimated with normal errors.

A member of a family is named by its `level`, the logarithm of c in :math:`\min(1, c|x|^q)` or of 1/t in
:math:`x^2/(x^2+t)`; the expected number of columns grows with it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from ._arguments import Floats


class Coins(NamedTuple):
    """Probabilities of each column to be in a member, in both of a pair, and in neither; means if they are random."""

    once: Floats
    both: Floats
    neither: Floats


def coins_of(alpha: Floats) -> Coins:
    return Coins(alpha, alpha**2, (1 - alpha) ** 2)


class Family:
    """All probabilities of one rule, "power" or "ratio", on coefficients `b` known up to errors of `spread`."""

    def __init__(self, rule: str, b: Floats, spread: float, q: float) -> None:
        self.rule, self.spread, self.q = rule, spread, q
        self.distinct, self.place = np.unique(b, return_inverse=True)
        self.unit = float(np.hypot(self.distinct[-1], spread)) or 1.0
        uniform = rule == "power" and q == 0
        self.most = len(b) if spread > 0 or uniform else int(np.count_nonzero(b))

    def coins(self, level: float) -> Coins:
        if self.rule == "ratio":
            return self.ratio(self.unit**2 * float(np.exp(-level)))
        if self.q == 0:
            return self._mean(lambda x: np.full(x.shape, np.exp(min(level, 0.0))), np.inf)
        with np.errstate(divide="ignore", over="ignore"):
            full = self.unit * np.exp(-level / self.q)  # estimates from here on have probability 1
            return self._mean(lambda x: np.exp(np.minimum(0.0, level + self.q * np.log(x / self.unit))), full)

    def ratio(self, t: float) -> Coins:
        return self._mean(lambda x: x**2 / np.where(x > 0, x**2 + t, 1.0), np.inf)

    def _mean(self, probability: Callable[[Floats], Floats], kink: float) -> Coins:
        """Means over the estimates of each column; `kink`: where the probability is not smooth."""
        estimates, weights = normal_nodes(self.distinct, self.spread, kink)
        alpha = probability(np.abs(estimates))
        return Coins(*(np.sum(weights * f, axis=1)[self.place] for f in (alpha, alpha**2, (1 - alpha) ** 2)))

    def level(self, size: float) -> float:
        """The level that expects `size` columns."""

        def excess(level: float) -> float:
            return float(self.coins(level).once.sum()) - size

        low, high = -1.0, 1.0
        while excess(low) > 0:
            low *= 2
        while excess(high) < 0 and high < 1e6:  # size = most is met up to rounding
            high *= 2
        return high if excess(high) <= 0 else float(brentq(excess, low, high, xtol=1e-13, rtol=1e-14))


def best_coins(family: Family, risk: Callable[[Coins], float], n: float) -> Coins:
    """The coins of a family with the lowest risk below n expected columns: levels are scanned, the best one refined."""
    most = min(family.most, n)
    if most == 0:  # no signal, and nothing to follow
        return family.coins(0.0)

    def at(level: float) -> float:
        return risk(family.coins(level))

    short = 1e-9  # relative distance kept from n columns, where members interpolate
    levels = np.linspace(family.level(short * most), family.level((1 - short) * most), 60)
    best = int(np.argmin([at(level) for level in levels]))
    around = levels[max(best - 1, 0)], levels[min(best + 1, len(levels) - 1)]
    found = minimize_scalar(at, bounds=around, method="bounded", options={"xatol": 1e-9})
    candidates = [family.coins(float(level)) for level in (found.x, levels[best])]
    if family.spread == 0 and most < n:  # everything that has a signal
        candidates.append(family.coins(family.level(most)))
    return min(candidates, key=risk)


def normal_nodes(b: Floats, spread: float, kink: float) -> tuple[Floats, Floats]:
    """Values and weights, a row for each mean in `b`, that integrate functions of normal estimates.

    Gauss-Legendre between edges: one to a standard deviation, where the estimate is plus or minus `kink`, and halving
    distances from where it is zero, for powers are not smooth there.
    """
    if spread == 0:
        return b[:, None], np.ones((len(b), 1))
    reach = 9  # standard deviations that are integrated: 2e-19 are beyond
    halving = 2.0 ** -np.arange(20)
    with np.errstate(over="ignore"):  # what is infinitely many deviations away is cut off below
        zero = -b[:, None] / spread + np.concatenate([-halving, [0.0], halving])
        kinks = (np.array([-kink, kink]) - b[:, None]) / spread
    edges = np.broadcast_to(np.arange(-reach, reach + 1.0), (len(b), 2 * reach + 1))
    edges = np.sort(np.clip(np.concatenate([edges, zero, kinks], axis=1), -reach, reach), axis=1)
    x, w = np.polynomial.legendre.leggauss(10)
    half = np.diff(edges, axis=1)[:, :, None] / 2
    z = (edges[:, :-1, None] + half * (1 + x)).reshape(len(b), -1)
    weights = (half * w).reshape(len(b), -1) * np.exp(-(z**2) / 2)
    return b[:, None] + spread * z, weights / weights.sum(axis=1, keepdims=True)
