r"""Inclusion probabilities that follow a power of known coefficients.

One of a family is named by its `level`, the logarithm of c in :math:`\min(1, c|x|^q)`; the expected number of columns
grows with it.
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
    """The probabilities min(1, c |b|^q) of all c, for coefficients `b` without their signs."""

    def __init__(self, b: Floats, q: float) -> None:
        self.b, self.q, self.unit = b, q, float(b.max()) or 1.0
        self.most = int(np.count_nonzero(b)) if q else len(b)

    def coins(self, level: float) -> Coins:
        if self.q == 0:
            return coins_of(np.full(self.b.shape, np.exp(min(level, 0.0))))
        with np.errstate(divide="ignore"):
            return coins_of(np.exp(np.minimum(0.0, level + self.q * np.log(self.b / self.unit))))

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
    if most < n:  # everything that has a signal
        candidates.append(family.coins(family.level(most)))
    return min(candidates, key=risk)
