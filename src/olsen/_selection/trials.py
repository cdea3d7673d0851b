"""Small ensembles on some of the rows, from random orders that all of them share: they judge laws of inclusion."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._members.mean import member_sum
from ..subsets import Subsets, at_unit_steps
from .curve import RiskCurve
from .grounds import FEWEST_PAIRS, Testing, Training, dense

__all__ = ["LARGEST_SHARE", "Orders", "Trial", "curve_of_trials", "excess", "solved"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

MOST_PAIRS = 60  # of members in a trial ...
PAIRS_FLOPS = 5e8  # ... as many as take about so many operations ...
PAIRS_COLUMNS = 6e4  # ... and as many columns to draw from
STREAM = 4  # of the seed, for the orders that trials share
LARGEST_SHARE = 0.85  # of the rows: members stay clear of the interpolation peak
HALF_A_STEP = np.array([0.0, 0.5])  # between the two members of a pair, as in `subsets`


@dataclass(frozen=True)
class Trial:
    """An ensemble on some of the rows."""

    features: Subsets
    values: Array  # (entries, q)
    coef: Array  # (p, q) mean
    probabilities: Array | None


@dataclass(frozen=True)
class Orders:
    """Random orders of the columns: of each, two members of any law are made."""

    orders: Indices  # (pairs, p) permutations of the columns
    offsets: Array  # (pairs,) where systematic sampling starts

    @classmethod
    def of(cls, p: int, size: float, seed: int, most: int = MOST_PAIRS, flops: float = PAIRS_FLOPS) -> Orders:
        """As many pairs of members as are cheap: more of them are better judges of small differences."""
        rng = np.random.default_rng([seed, STREAM])
        cheap = min(flops / max(1.0, size) ** 3, PAIRS_COLUMNS / p)
        pairs = int(np.clip(cheap, FEWEST_PAIRS, most))
        return cls(rng.permuted(np.tile(np.arange(p), (pairs, 1)), axis=1), rng.random(pairs))

    @property
    def n_columns(self) -> int:
        """Columns there are."""
        return int(self.orders.shape[1])

    def __len__(self) -> int:
        return len(self.orders)

    def take(self, pairs: slice | Indices) -> Orders:
        """Some of the pairs."""
        return replace(self, orders=self.orders[pairs], offsets=self.offsets[pairs])

    def uniform(self, rows: Training, size: float) -> Trial:
        """Members on both ends of the orders."""
        most = int(LARGEST_SHARE * (rows.n_rows - rows.centred))
        m = max(1, min(round(size), most))
        ends = np.stack([self.orders[:, :m], self.orders[:, -m:]], axis=1)
        columns = np.sort(ends.reshape(2 * len(ends), m), axis=1)
        indptr = m * np.arange(2 * len(ends) + 1, dtype=np.int64)
        return solved(rows, Subsets(self.n_columns, indptr, columns.ravel()), None)

    def drawn(self, chance: Array) -> Subsets:
        """Members with given probabilities."""
        return at_unit_steps(self.orders, self.offsets, chance, HALF_A_STEP)

    def by_law(self, rows: Training, chance: Array) -> Trial:
        """An ensemble of them."""
        return solved(rows, self.drawn(chance), chance)


def solved(rows: Training, features: Subsets, chance: Array | None) -> Trial:
    """The ensemble of given members."""
    values = rows.solve(features)
    return Trial(features, values, member_sum(features, values) / len(features), chance)


def excess(test: Testing, trial: Trial) -> float:
    r"""Error of k members beyond that of infinitely many: :math:`2 (P - R_k) / (k - 2)`, P that of a pair's mean.

    With A, S and C as in ``curve``, P = (A + S) / 2 and R_k = C + 2 (P - C) / k for k members in antithetic pairs.
    """
    coefs = dense(trial.features, trial.values)
    pairs = test.errors((coefs[::2] + coefs[1::2]) / 2).mean()
    return float(2 * (pairs - test.errors(trial.coef[None])[0]) / (len(coefs) - 2))


def curve_of_trials(
    size: float, p: int, tested: list[tuple[Testing, Trial]], design: str, scale: float = 1.0
) -> RiskCurve:
    """The risk curve of one size, of members times a scale, from those of every fold at the rows outside.

    An error e becomes (1 - scale) d + scale e, with d what the mean target leaves.
    """
    means = np.concatenate([rows.pair_means(trial.features, trial.values) for rows, trial in tested], axis=1)
    square, cross = np.concatenate([rows.deviations(trial.coef) for rows, trial in tested], axis=1)
    means = (1 - scale) ** 2 * square + 2 * scale * (1 - scale) * cross + scale**2 * means
    means, weight = _once(means, np.concatenate([rows.weight for rows, _ in tested]), [rows.rows for rows, _ in tested])
    own, same, other = means[:, None, :]
    empty = np.zeros((1, 0, tested[0][1].values.shape[1]))
    return RiskCurve.from_pairs(np.array([max(1, round(size))]), p, design, weight, own, same, other, empty)


def _once(means: Array, weight: Array, rows: list[Indices | None]) -> tuple[Array, Array]:
    """Means (3, entries) and weights of every row once: of rows that were left out several times, averages."""
    known = [numbers for numbers in rows if numbers is not None]
    if len(known) < len(rows):
        return means, weight
    row = np.concatenate(known)
    _, first, place, times = np.unique(row, return_index=True, return_inverse=True, return_counts=True)
    if len(first) == len(row):
        return means, weight
    summed = np.stack([np.bincount(place, values) for values in means])
    return np.asarray(summed / times), np.asarray(weight[first])
