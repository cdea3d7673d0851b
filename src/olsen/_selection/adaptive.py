r"""Probabilities that follow the signal, used only where cross-validation prefers them.

Leave-one-out residuals of an ensemble whose subsets follow y mean nothing, so candidates after 1 and 3 steps meet the
choice among the other laws in folds that repeat every step (15 steps were tried: no better). They must win by two
standard errors of the paired differences (see ``folds``), because on dense signals they cost more than they gain.

**What it costs.** Sizes are not tuned again: what was chosen on all rows serves in every fold, in proportion to the
root of its rows (tuned again in folds of 80 % of the rows, sizes were 0.93 of it, the median of 14 simulated data
sets). All trials share one set of random orders, and members are solved from the Gram matrix of the training rows (that
of all rows less that of the fold), or from the rows themselves where there are many more columns. A few members look at
two folds first; they, and the many that come after them, are given up as soon as it is unlikely that they still win.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from .curve import RiskCurve
from .folds import paired_difference
from .grounds import FEWEST_PAIRS, Grounds, Testing, Training
from .inclusion import adapted_probabilities, brought_to
from .paths import Paths
from .trials import Orders, Trial, curve_of_trials, excess

__all__ = ["Adapted", "Law", "judge"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Law = int | Array  # size of uniform members, or probabilities

STEPS = (1, 3)  # of adaptation that are tried
GATE = 2.0  # standard errors by which adaptive probabilities must win
NEEDED = (-1.0, 0.0, 0.3, 0.8)  # standard errors after so many folds, below which they are given up
OVER_FOLDS = 2 / 3  # of the standard error over five folds: with four degrees of freedom all of it is too noisy
FIRST_LOOK = 2  # folds that a few members look at before many do
K = 100  # members in an ensemble that adaptive probabilities are compared with


@dataclass(frozen=True)
class Adapted:
    """Probabilities that have won, and their risk curve of one size, from the folds."""

    probabilities: Array
    curve: RiskCurve


@dataclass(frozen=True)
class _Trials:
    """Uniform members, adaptive ones after some steps and their rivals, on any rows, from common random numbers."""

    orders: Orders
    start: int  # size of uniform members on all rows, from which adaptation begins
    rival: Law  # what adaptive probabilities have to beat, on all rows
    n_rows: int  # all rows
    sizes: Indices | None  # that adaptive probabilities may sum to; None: any

    @classmethod
    def of(cls, whole: Training, start: int, rival: Law, sizes: Indices | None, seed: int) -> _Trials:
        """On as many random orders as are cheap."""
        p = len(whole.variance)
        orders = Orders.of(p, _first_size(whole, start, p), seed)
        return cls(orders, start, rival, whole.n_rows, sizes)

    def first(self, pairs: int) -> _Trials:
        """The same with the first pairs of members only."""
        return replace(self, orders=self.orders.take(slice(pairs)))

    def adapted(self, rows: Training, stops: tuple[int, ...]) -> dict[int, Trial]:
        """The ensembles after each number of steps in `stops`."""
        share = np.sqrt(rows.n_rows / self.n_rows)
        first = _first_size(rows, share * self.start, self.orders.n_columns)
        found, trial = {}, self.orders.uniform(rows, first)
        for step in range(1, max(stops) + 1):
            df = (trial.features.sizes.mean() + rows.centred) / rows.n_rows
            error = rows.error(trial.coef) / (1 - df) ** 2  # it only sets the level at which coefficients are noise
            chance = adapted_probabilities(rows.variance, trial.coef, error, rows.n_rows, centred=rows.centred)
            if self.sizes is not None:
                chance = brought_to(chance, int(self.sizes[np.argmin(np.abs(self.sizes - chance.sum()))]))
            trial = self.orders.by_law(rows, chance)
            if step in stops:
                found[step] = trial
        return found

    def rivals(self, rows: Training) -> Trial:
        """What is to be beaten."""
        share = np.sqrt(rows.n_rows / self.n_rows)
        if isinstance(self.rival, int):
            return self.orders.uniform(rows, share * self.rival)
        return self.orders.by_law(rows, brought_to(self.rival, max(1.0, share * float(self.rival.sum()))))


def _first_size(rows: Training, tuned: float, p: int) -> float:
    """Size of the members that adaptation begins with: small ones hide the signal, however well they predict.

    In simulation with sparse signals a fifth of the rows did much worse than half of them, which were near the best.
    """
    return max(tuned, min((rows.n_rows - rows.centred) / 2, 3 * p / 4))


def judge(
    grounds: Grounds, start: int, rival: Law, paths: Paths, sizes: Indices | None, scale: float = 1.0
) -> Adapted | None:
    """Adaptive probabilities where cross-validation prefers them by two standard errors, None otherwise.

    `start` is the size of uniform members from which adaptation begins, `rival` the law that is chosen otherwise. Where
    `sizes` are given, probabilities sum to the nearest of them. Laws are compared before the scale, and the curve that
    is told is that of members times it.
    """
    law = _Trials.of(grounds.whole, start, rival, sizes, paths.seed)
    looked_at = list(islice(grounds.folds, FIRST_LOOK))
    if _contest(law.first(FEWEST_PAIRS), iter(looked_at)) is None:
        return None
    found = _contest(law, chain(looked_at, grounds.folds))
    steps = None if found is None else max(STEPS, key=lambda steps: found.gain(steps))
    if found is None or steps is None or not found.gain(steps) > GATE * found.standard_error(steps):
        return None
    chance = law.adapted(grounds.whole, (steps,))[steps].probabilities
    assert chance is not None
    tested = [(rows, trials[steps]) for rows, trials in zip(found.tests, found.trials, strict=True)]
    return Adapted(chance, curve_of_trials(float(chance.sum()), len(chance), tested, paths.design, scale))


@dataclass(frozen=True)
class _Contest:
    """Adaptive probabilities against their rival, fold by fold."""

    tests: list[Testing]
    trials: list[dict[int, Trial]]  # after each number of steps
    sums: list[dict[int, Array]]  # of u^2, v^2 and u v, (3, q); see ``folds``

    def gain(self, steps: int) -> float:
        """Mean difference of squared errors."""
        return self._paired(steps)[0]

    def lead(self) -> float:
        """Of the better one, in standard errors over rows."""
        paired = [self._paired(steps) for steps in STEPS]
        return max(gain / error if error > 0 else 0.0 for gain, error in paired)

    def standard_error(self, steps: int) -> float:
        """Over rows as if errors were Gaussian; or most of that over folds, if it is more: few rows may decide."""
        weight = np.array([rows.weight.sum() for rows in self.tests])
        gains = np.array([sums[steps][2].mean() for sums in self.sums]) / weight
        share = weight / weight.sum()
        freedom = max(len(gains) - 1, 1) / len(gains)
        over_folds = float(np.sqrt(np.sum(share**2 * (gains - share @ gains) ** 2) / freedom))
        return max(self._paired(steps)[1], OVER_FOLDS * over_folds)

    def _paired(self, steps: int) -> tuple[float, float]:
        weight = sum(float(rows.weight.sum()) for rows in self.tests)
        sums = np.sum([sums[steps] for sums in self.sums], axis=0)
        return paired_difference(sums, weight, sum(rows.n_rows for rows in self.tests))


def _contest(law: _Trials, folds: Iterator[tuple[Training, Testing]]) -> _Contest | None:
    """The outcome in all folds, or None where it cannot be won any more."""
    found = _Contest([], [], [])
    for train, test in folds:
        rival, trials = law.rivals(train), law.adapted(train, STEPS)
        found.tests.append(test)
        found.trials.append(trials)
        found.sums.append({steps: _compared(test, rival, trials[steps]) for steps in STEPS})
        if found.lead() < NEEDED[min(len(found.tests), len(NEEDED)) - 1]:
            return None
    return found


def _compared(test: Testing, rival: Trial, trial: Trial) -> Array:
    """Sums of u^2, v^2 and u v, (3, q), the last as if both ensembles had K members at least.

    Few members that differ much have more to lose by being few; that must not decide.
    """
    sums = test.compare(rival.coef, trial.coef)
    fewer = 1 - len(trial.features) / K
    if fewer > 0:
        sums[2] -= fewer * float(test.weight.sum()) * (excess(test, rival) - excess(test, trial))
    return sums
