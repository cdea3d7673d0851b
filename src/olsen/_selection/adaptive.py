r"""Probabilities that follow the signal, used only where cross-validation prefers them.

Leave-one-out residuals of an ensemble whose subsets follow y mean nothing, so candidates after 1 and 3 steps meet the
choice among the other laws in folds that repeat every step (15 steps were tried: no better). They must win by two
standard errors of the paired differences (see ``folds``), because on dense signals they cost more than they gain.

**What it costs.** Sizes are not tuned again: what was chosen on all rows serves in every fold, in proportion to the
root of its rows (tuned again in folds of 80 % of the rows, sizes were 0.93 of it, the median of 14 simulated data
sets). All trials share one set of random orders, and members are solved from the Gram matrix of the training rows (that
of all rows less that of the fold), or from the rows themselves where there are many more columns. A few members look at
two folds first; they, and the many that come after them, are given up as soon as it is unlikely that they still win.

**Numerical price.** Subtracting Gram matrices, and believing them whatever their condition, would be wrong for an
answer. These members only judge. Their Gram matrices get 1e-8 of their diagonal on top, which makes dependent columns
harmless (they share a coefficient, as in the shortest solution), leaves out directions below 1e-4 of a column's length,
and covers what the subtraction lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members import gram
from .._members.mean import member_sum
from .._members.problem import Problem
from .._moments import Moments, from_data, weighted_mean
from ..subsets import Subsets
from .curve import RiskCurve
from .folds import LeftOut, paired_difference
from .inclusion import adapted_probabilities, brought_to, few_folds, few_splits
from .paths import Paths, Splits

__all__ = [
    "Adapted",
    "Grounds",
    "Law",
    "Testing",
    "Training",
    "Trial",
    "grounds_of_moments",
    "grounds_of_rows",
    "judge",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Law = int | Array  # size of uniform members, or probabilities

FOLDS = 5
STEPS = (1, 3)  # of adaptation that are tried
GATE = 2.0  # standard errors by which adaptive probabilities must win
NEEDED = (-1.0, 0.0, 0.3, 0.8)  # standard errors after so many folds, below which they are given up
OVER_FOLDS = 2 / 3  # of the standard error over five folds: with four degrees of freedom all of it is too noisy
FIRST_LOOK = 2  # folds that a few members look at before many do
FEWEST_PAIRS, MOST_PAIRS = 15, 60  # of members in a trial ...
PAIRS_FLOPS = 5e8  # ... as many as take about so many operations ...
PAIRS_COLUMNS = 6e4  # ... and as many columns to draw from
K = 100  # members in an ensemble that adaptive probabilities are compared with
STREAM = 4  # of the seed, for the orders that trials share
LARGEST_SHARE = 0.85  # of the rows: uniform members stay clear of the interpolation peak
JITTER = 1e-8  # of its diagonal, on top of a Gram matrix that only judges
WORTH_SHARING = 1e8  # operations of a trial, from which threads share its members
MANY_ROWS = 10_000  # from which left-out rows are only summed
GONE = 1e-5  # of a column's squares: with less left outside a fold, it counts as constant there


@dataclass(frozen=True)
class Adapted:
    """Probabilities that have won, and their risk curve of one size, from the folds."""

    probabilities: Array
    curve: RiskCurve


class Training(Protocol):
    """Rows that trials are fitted on."""

    @property
    def n_rows(self) -> int:
        """Rows there are."""

    @property
    def centred(self) -> bool:
        """Whether members have an intercept."""

    @property
    def variance(self) -> Array:
        """Of every column, (p,)."""

    def solve(self, features: Subsets) -> Array:
        """Coefficients of members, laid out like their columns, (entries, q)."""

    def error(self, coef: Array) -> float:
        """Mean squared residual of coefficients (p, q)."""


class Testing(Protocol):
    """Rows that trials are judged by."""

    @property
    def n_rows(self) -> int:
        """Rows there are."""

    @property
    def weight(self) -> Array:
        """Of every row, or of all of them together."""

    def compare(self, first: Array, second: Array) -> Array:
        """Sums of u^2, v^2 and u v, (3, q), of the errors of two sets of coefficients (p, q); see ``folds``."""

    def errors(self, coefs: Array) -> Array:
        """Mean squared errors of coefficients (count, p, q), averaged over targets, (count,)."""

    def pair_means(self, features: Subsets, values: Array) -> Array:
        """A, S and C of members, (3, rows) or (3, 1), averaged over targets; see ``curve``."""


@dataclass(frozen=True)
class Grounds:
    """All rows, and their folds one after the other: rows to fit on, rows to judge by."""

    whole: Training
    folds: Iterator[tuple[Training, Testing]]


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
    coefs = _dense(trial.features, trial.values)
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


# Rows as moments


@dataclass(frozen=True)
class _Summed:
    """Training rows of which the moments are known."""

    moments: Moments
    sharing: Sharing

    @property
    def n_rows(self) -> int:
        return self.moments.n_rows

    @property
    def centred(self) -> bool:
        return self.moments.centred

    @cached_property
    def variance(self) -> Array:
        return np.asarray(np.diagonal(self.moments.G) / self.moments.weight)

    @cached_property
    def _definite(self) -> Moments:
        G = self.moments.G.copy()
        np.einsum("ii->i", G)[:] *= 1 + JITTER
        return replace(self.moments, G=G)

    def solve(self, features: Subsets) -> Array:
        return gram.from_moments(self._definite, features, _threads_for(features, self.sharing)).values

    def error(self, coef: Array) -> float:
        m = self.moments
        squares = m.yy - 2 * np.sum(coef * m.C, axis=0) + np.sum(coef * (m.G @ coef), axis=0)
        return max(0.0, float(squares.mean()) / m.weight)


@dataclass(frozen=True)
class _SummedTest:
    """A fold of which the moments are known; it counts as one row."""

    fold: LeftOut

    @property
    def n_rows(self) -> int:
        return self.fold.test.n_rows

    @property
    def weight(self) -> Array:
        return np.array([self.fold.test.weight])

    def compare(self, first: Array, second: Array) -> Array:
        return self.fold.compare(first, second)

    def errors(self, coefs: Array) -> Array:
        return self.fold.errors(coefs)

    def pair_means(self, features: Subsets, values: Array) -> Array:
        coefs = _dense(features, values)
        own = self.fold.errors(coefs).mean()
        same = 2 * self.fold.errors((coefs[::2] + coefs[1::2]) / 2).mean() - own
        k = len(coefs)
        other = (k * k * self.fold.errors(coefs.mean(axis=0)[None])[0] - k * own - k * same) / (k * k - 2 * k)
        return np.array([[own], [same], [other]])


def grounds_of_moments(folds: list[Moments], sharing: Sharing) -> Grounds:
    """Rows that were only summed, fold by fold."""
    parts = [fold.on_host() for fold in few_folds(folds, FOLDS)]
    whole = Moments.merge_all(parts)

    def each() -> Iterator[tuple[Training, Testing]]:
        for part in parts:
            rest = _without(whole, part)
            yield _Summed(rest, sharing), _SummedTest(LeftOut.of(part, rest))

    return Grounds(_Summed(whole, sharing), each())


def _without(whole: Moments, part: Moments) -> Moments:
    """Moments of the rows outside a part, by subtraction, for trials that need no more than some digits.

    A column of which hardly anything is left is taken for constant.
    """
    weight = whole.weight - part.weight
    share = part.weight / weight
    mean_x = whole.mean_x + share * (whole.mean_x - part.mean_x)
    mean_y = whole.mean_y + share * (whole.mean_y - part.mean_y)
    dx, dy = part.mean_x - mean_x, part.mean_y - mean_y  # zero when not centred
    between = weight * part.weight / whole.weight
    G = whole.G - part.G
    G -= np.outer(between * dx, dx)
    C = whole.C - part.C - between * np.outer(dx, dy)
    gone = np.diagonal(G) <= GONE * np.diagonal(whole.G)
    if gone.any():
        G[gone], G[:, gone], C[gone] = 0.0, 0.0, 0.0
    yy = np.maximum(whole.yy - part.yy - between * dy**2, 0.0)
    return Moments(whole.n_rows - part.n_rows, weight, mean_x, mean_y, G, C, yy, whole.centred)


# Rows in memory


@dataclass(frozen=True)
class _Rows:
    """Training rows in memory, for many more columns than a Gram matrix is worth."""

    problem: Problem
    sharing: Sharing

    @classmethod
    def of(cls, problem: Problem, sharing: Sharing) -> _Rows:
        """The rows in column order, from which members are gathered."""
        X = problem.X if sp.issparse(problem.X) else np.asfortranarray(problem.X, dtype=np.float64)
        return cls(replace(problem, X=X), sharing)

    @property
    def n_rows(self) -> int:
        return self.problem.shape[0]

    @property
    def centred(self) -> bool:
        return self.problem.fit_intercept

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """Of X and of Y; zeros without intercept."""
        p, q = self.problem.shape[1], self.problem.Y.shape[1]
        if not self.centred:
            return np.zeros(p), np.zeros(q)
        return weighted_mean(self.problem.X, self.problem.weight), weighted_mean(self.problem.Y, self.problem.weight)

    @cached_property
    def variance(self) -> Array:
        X, (mean, _) = self.problem.X, self.means
        if sp.issparse(X):
            return np.asarray(np.maximum(weighted_mean(X.multiply(X).tocsc(), self.problem.weight) - mean**2, 0.0))
        return np.asarray(weighted_mean((X - mean) ** 2, self.problem.weight))

    def solve(self, features: Subsets) -> Array:
        sharing = _threads_for(features, self.sharing, self.n_rows)
        return gram.solve_own(self.problem, features, None, sharing).values

    def error(self, coef: Array) -> float:
        mean_x, mean_y = self.means
        residual = self.problem.Y - mean_y - (self.problem.X @ coef - mean_x @ coef)
        return float(weighted_mean(residual**2, self.problem.weight).mean())


@dataclass(frozen=True)
class _RowTest:
    """Left-out rows in memory, about the means of the training rows."""

    X: Array  # (rows, p)
    Y: Array  # (rows, q)
    weight: Array  # (rows,)

    @classmethod
    def of(cls, problem: Problem, rows: Indices, mean_x: Array, mean_y: Array) -> _RowTest:
        """Some rows of a problem."""
        X = problem.X[rows].toarray() if sp.issparse(problem.X) else problem.X[rows]
        weight = np.ones(len(rows)) if problem.weight is None else problem.weight[rows]
        return cls(X - mean_x, problem.Y[rows] - mean_y, weight)

    @property
    def n_rows(self) -> int:
        return len(self.Y)

    def errors(self, coefs: Array) -> Array:
        squares = np.einsum("qlk,qlk,l->k", *[self._residuals(coefs)] * 2, self.weight)
        return np.asarray(squares / (self.weight.sum() * coefs.shape[2]))

    def _residuals(self, coefs: Array) -> Array:
        """(q, rows, count)."""
        return self.Y.T[:, :, None] - np.stack([self.X @ coefs[:, :, t].T for t in range(coefs.shape[2])])

    def compare(self, first: Array, second: Array) -> Array:
        u = self.X @ (second - first)
        v = 2 * self.Y - self.X @ (second + first)
        return np.stack([self.weight @ products for products in (u * u, v * v, u * v)])

    def pair_means(self, features: Subsets, values: Array) -> Array:
        k, residual = len(features), self._residuals(_dense(features, values))
        own = np.mean(residual**2, axis=2)  # (q, rows)
        same = 2 * np.mean(((residual[:, :, ::2] + residual[:, :, 1::2]) / 2) ** 2, axis=2) - own
        other = (k * k * residual.mean(axis=2) ** 2 - k * own - k * same) / (k * k - 2 * k)
        return np.stack([mean.mean(axis=0) for mean in (own, same, other)])


def grounds_of_rows(problem: Problem, splits: Splits | None, seed: int, size: int, sharing: Sharing) -> Grounds:
    """Rows in memory, in given splits or in random folds; `size` is that of members on all of them."""
    n = problem.shape[0]
    splits = _random_splits(n, seed) if splits is None else few_splits(splits, n, FOLDS)
    if not _gram_pays(problem, len(splits), size):
        return Grounds(_Rows.of(problem, sharing), _row_folds(problem, splits, sharing))
    return Grounds(_Summed(problem.moments_by(sharing), sharing), _summed_folds(problem, splits, sharing))


def _row_folds(problem: Problem, splits: Splits, sharing: Sharing) -> Iterator[tuple[Training, Testing]]:
    for train, test in splits:
        rows = _Rows.of(problem.take(train), sharing)
        yield rows, _RowTest.of(problem, test, *rows.means)


def _summed_folds(problem: Problem, splits: Splits, sharing: Sharing) -> Iterator[tuple[Training, Testing]]:
    def moments(rows: Indices) -> Moments:
        part = problem.take(rows)
        return from_data(part.X, part.Y, part.weight, centre=part.fit_intercept, mapper=sharing)

    whole = problem.moments_by(sharing)
    for train, test in splits:
        fold = moments(test)
        rest = _without(whole, fold) if _is_rest(train, test, problem.shape[0]) else moments(train)
        if problem.shape[0] >= MANY_ROWS:
            yield _Summed(rest, sharing), _SummedTest(LeftOut.of(fold, rest))
        else:
            yield _Summed(rest, sharing), _RowTest.of(problem, test, rest.mean_x, rest.mean_y)


def _is_rest(train: Indices, test: Indices, n: int) -> bool:
    """Whether these are all rows but those."""
    left_out = np.zeros(n, dtype=bool)
    left_out[test] = True
    return len(train) == n - np.count_nonzero(left_out) and not left_out[train].any()


def _random_splits(n: int, seed: int) -> Splits:
    fold_of = np.random.default_rng(seed).permutation(n) % min(FOLDS, n)
    return [(np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)) for f in range(fold_of.max() + 1)]


def _gram_pays(problem: Problem, n_folds: int, size: int) -> bool:
    """Whether Gram matrices of all columns cost less than gathering the rows of every member.

    Seconds, roughly: p^2 numbers are summed over all rows once and read and written a few times a fold; members of four
    trials are gathered from the rows.
    """
    n, p = problem.shape
    shared = p**2 * (2e-10 * n * (not problem.has_moments) + 4e-11 * n + 5e-9 * n_folds)
    gathered = 8 * FEWEST_PAIRS * n_folds * n * size * (1e-9 + 1e-10 * size)
    return shared < gathered


def _threads_for(features: Subsets, sharing: Sharing, n_rows: int = 0) -> Sharing:
    """Threads where there is work for them: calling one takes as long as solving many small members."""
    flops = float(np.sum(features.sizes**2.0 * (features.sizes + n_rows)))
    return sharing if flops > WORTH_SHARING else Sharing()


def _dense(features: Subsets, values: Array) -> Array:
    """Coefficients of every member over all columns, (k, p, q)."""
    out = np.zeros((len(features), features.n_items, values.shape[1]))
    out[np.repeat(np.arange(len(features)), features.sizes), features.indices] = values
    return out
