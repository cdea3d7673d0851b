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

from .._members.mean import member_sum
from ..subsets import Subsets
from .curve import RiskCurve
from .folds import paired_difference
from .grounds import FEWEST_PAIRS, Grounds, Testing, Training, dense
from .inclusion import adapted_probabilities, brought_to
from .paths import Paths

__all__ = ["Adapted", "Law", "Trial", "judge"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Law = int | Array  # size of uniform members, or probabilities

STEPS = (1, 3)  # of adaptation that are tried
GATE = 2.0  # standard errors by which adaptive probabilities must win
NEEDED = (-1.0, 0.0, 0.3, 0.8)  # standard errors after so many folds, below which they are given up
OVER_FOLDS = 2 / 3  # of the standard error over five folds: with four degrees of freedom all of it is too noisy
FIRST_LOOK = 2  # folds that a few members look at before many do
MOST_PAIRS = 60  # of members in a trial ...
PAIRS_FLOPS = 5e8  # ... as many as take about so many operations ...
PAIRS_COLUMNS = 6e4  # ... and as many columns to draw from
K = 100  # members in an ensemble that adaptive probabilities are compared with
STREAM = 4  # of the seed, for the orders that trials share
LARGEST_SHARE = 0.85  # of the rows: uniform members stay clear of the interpolation peak


@dataclass(frozen=True)
class Adapted:
    """Probabilities that have won, and their risk curve of one size, from the folds."""

    probabilities: Array
    curve: RiskCurve


@dataclass(frozen=True)
class Trial:
    """An ensemble on some of the rows."""

    features: Subsets
    values: Array  # (entries, q)
    coef: Array  # (p, q) mean
    probabilities: Array | None


@dataclass(frozen=True)
class _Trials:
    """Uniform members, adaptive ones after some steps and their rivals, on any rows, from common random numbers."""

    orders: Indices  # (pairs, p) permutations of the columns
    offsets: Array  # (pairs,) where systematic sampling starts
    start: int  # size of uniform members on all rows, from which adaptation begins
    rival: Law  # what adaptive probabilities have to beat, on all rows
    n_rows: int  # all rows
    sizes: Indices | None  # that adaptive probabilities may sum to; None: any

    @classmethod
    def of(cls, whole: Training, start: int, rival: Law, sizes: Indices | None, seed: int) -> _Trials:
        """As many pairs of members as are cheap: more of them are better judges of small differences."""
        p, rng = len(whole.variance), np.random.default_rng([seed, STREAM])
        most = min(PAIRS_FLOPS / _first_size(whole, start, p) ** 3, PAIRS_COLUMNS / p)
        pairs = int(np.clip(most, FEWEST_PAIRS, MOST_PAIRS))
        orders = rng.permuted(np.tile(np.arange(p), (pairs, 1)), axis=1)
        return cls(orders, rng.random(pairs), start, rival, whole.n_rows, sizes)

    def first(self, pairs: int) -> _Trials:
        """The same with the first pairs of members only."""
        return replace(self, orders=self.orders[:pairs], offsets=self.offsets[:pairs])

    def adapted(self, rows: Training, stops: tuple[int, ...]) -> dict[int, Trial]:
        """The ensembles after each number of steps in `stops`."""
        share = np.sqrt(rows.n_rows / self.n_rows)
        found, trial = {}, self._uniform(rows, _first_size(rows, share * self.start, self.orders.shape[1]))
        for step in range(1, max(stops) + 1):
            df = (trial.features.sizes.mean() + rows.centred) / rows.n_rows
            error = rows.error(trial.coef) / (1 - df) ** 2  # it only sets the level at which coefficients are noise
            chance = adapted_probabilities(rows.variance, trial.coef, error, rows.n_rows, centred=rows.centred)
            if self.sizes is not None:
                chance = brought_to(chance, int(self.sizes[np.argmin(np.abs(self.sizes - chance.sum()))]))
            trial = self._by_law(rows, chance)
            if step in stops:
                found[step] = trial
        return found

    def rivals(self, rows: Training) -> Trial:
        """What is to be beaten."""
        share = np.sqrt(rows.n_rows / self.n_rows)
        if isinstance(self.rival, int):
            return self._uniform(rows, share * self.rival)
        return self._by_law(rows, brought_to(self.rival, max(1.0, share * float(self.rival.sum()))))

    def _uniform(self, rows: Training, size: float) -> Trial:
        """Members on both ends of the orders."""
        most = int(LARGEST_SHARE * (rows.n_rows - rows.centred))
        m = max(1, min(round(size), most))
        ends = np.stack([self.orders[:, :m], self.orders[:, -m:]], axis=1)
        return self._solved(rows, np.repeat(np.arange(2 * len(ends)), m), ends.ravel(), None)

    def _by_law(self, rows: Training, chance: Array) -> Trial:
        """Members by systematic sampling along the orders, two of them half a step apart, as in `subsets`."""
        pairs, p = self.orders.shape
        high = np.cumsum(chance[self.orders], axis=1)
        span = float(high[:, -1].max()) + 1
        points = (self.offsets[:, None, None] + np.array([[0.0], [0.5]])) % 1 + np.arange(int(span) + 1)
        there = points < high[:, -1, None, None]
        before = span * np.arange(pairs)  # lays the orders end to end, so that one search serves all
        places = np.searchsorted((high + before[:, None]).ravel(), (points + before[:, None, None])[there])
        pair, half, _ = np.nonzero(there)
        return self._solved(rows, 2 * pair + half, self.orders[pair, np.minimum(places - pair * p, p - 1)], chance)

    def _solved(self, rows: Training, owner: Indices, columns: Indices, chance: Array | None) -> Trial:
        """Members from pairs of a member's number and one of its columns, in any order."""
        pairs, p = self.orders.shape
        picked = np.sort(owner * p + columns)
        member, column = np.divmod(picked[np.diff(picked, prepend=-1) > 0], p)  # rounding may pick a column twice
        ends = np.concatenate([[0], np.cumsum(np.bincount(member, minlength=2 * pairs))])
        features = Subsets(p, ends, column)
        values = rows.solve(features)
        return Trial(features, values, member_sum(features, values) / len(features), chance)


def _first_size(rows: Training, tuned: float, p: int) -> float:
    """Size of the members that adaptation begins with: small ones hide the signal, however well they predict.

    In simulation with sparse signals a fifth of the rows did much worse than half of them, which were near the best.
    """
    return max(tuned, min((rows.n_rows - rows.centred) / 2, 3 * p / 4))


def judge(grounds: Grounds, start: int, rival: Law, paths: Paths, sizes: Indices | None) -> Adapted | None:
    """Adaptive probabilities where cross-validation prefers them by two standard errors, None otherwise.

    `start` is the size of uniform members from which adaptation begins, `rival` the law that is chosen otherwise. Where
    `sizes` are given, probabilities sum to the nearest of them.
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
    return Adapted(chance, _curve(chance, tested, paths.design))


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
        sums[2] -= fewer * float(test.weight.sum()) * (_excess(test, rival) - _excess(test, trial))
    return sums


def _excess(test: Testing, trial: Trial) -> float:
    r"""Error of k members beyond that of infinitely many: :math:`2 (P - R_k) / (k - 2)`, P that of a pair's mean.

    With A, S and C as in ``curve``, P = (A + S) / 2 and R_k = C + 2 (P - C) / k for k members in antithetic pairs.
    """
    coefs = dense(trial.features, trial.values)
    pairs = test.errors((coefs[::2] + coefs[1::2]) / 2).mean()
    return float(2 * (pairs - test.errors(trial.coef[None])[0]) / (len(coefs) - 2))


def _curve(chance: Array, tested: list[tuple[Testing, Trial]], design: str) -> RiskCurve:
    """The risk curve of one size, from the members of every fold at the rows outside."""
    means = np.concatenate([rows.pair_means(trial.features, trial.values) for rows, trial in tested], axis=1)
    own, same, other = means[:, None, :]
    weight = np.concatenate([rows.weight for rows, _ in tested])
    size = np.array([max(1, round(float(chance.sum())))])
    empty = np.zeros((1, 0, tested[0][1].values.shape[1]))
    return RiskCurve.from_pairs(size, len(chance), design, weight, own, same, other, empty)
