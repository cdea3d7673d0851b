r"""Estimated error of an ensemble for every member size and every number of members, from residuals of K members.

Errors of an average are averages of pair products. With A the mean of :math:`e_i^2`, S that of :math:`e_i e_j` for two
members of one balanced group (which avoid each other) and C that of members of different groups, k members have

.. math:: R_k = \frac{k A + s\, S + (k^2 - k - s)\, C}{k^2}, \qquad R_\infty = C,

s being the number of ordered pairs within groups. Status: exact in expectation, for any k. A permutation and its
reverse are a pair with the law of two members of one group (disjoint, or with disjoint complements), so A, S and C all
come from K members taken in such pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .subsets import group_size

__all__ = ["PairSums", "RiskCurve", "same_group_pairs"]


@dataclass
class PairSums:
    """Running sums over antithetic pairs of members of residuals of shape (sizes, n, q)."""

    total: NDArray | float = 0.0
    square: NDArray | float = 0.0
    pair_square: NDArray | float = 0.0
    n_pairs: int = 0
    batches: list[NDArray] = field(default_factory=list)  # R_inf of every batch of pairs, for the Monte-Carlo error

    def add(self, pairs: list[tuple[NDArray, NDArray]], weight: NDArray) -> None:
        """Add one batch of at least two pairs."""
        batch = PairSums()
        for first, second in pairs:
            batch.total = batch.total + first + second
            batch.square = batch.square + first**2 + second**2
            batch.pair_square = batch.pair_square + ((first + second) / 2) ** 2
        batch.n_pairs = len(pairs)
        other = batch._pair_means()[2]
        self.batches.append(np.average(other.mean(axis=2), axis=1, weights=weight))
        self.total = self.total + batch.total
        self.square = self.square + batch.square
        self.pair_square = self.pair_square + batch.pair_square
        self.n_pairs += batch.n_pairs

    def head(self, count: int) -> PairSums:
        """The sums of the first `count` sizes only."""
        total, square, pair_square = (np.asarray(a)[:count] for a in (self.total, self.square, self.pair_square))
        return PairSums(total, square, pair_square, self.n_pairs, [b[:count] for b in self.batches])

    def _pair_means(self):
        """Per size, row and target: A, S and C."""
        k = 2 * self.n_pairs
        own = np.asarray(self.square) / k
        same = 2 * np.asarray(self.pair_square) / self.n_pairs - own
        mean_square = (np.asarray(self.total) / k) ** 2
        other = (k * k * mean_square - k * own - k * same) / (k * k - 2 * k)
        return own, same, other

    def curve(self, sizes, n_items: int, design: str, weight: NDArray) -> RiskCurve:
        """The risk curve; errors of several targets are averaged."""
        own, same, other = (a.mean(axis=2) for a in self._pair_means())
        residual = np.asarray(self.total) / (2 * self.n_pairs)
        noise = np.std(self.batches, axis=0, ddof=1) / np.sqrt(len(self.batches)) if len(self.batches) > 1 else None
        return RiskCurve.from_pairs(np.asarray(sizes), n_items, design, weight, own, same, other, residual, noise)


def same_group_pairs(sizes, n_items: int, design: str, k: int) -> NDArray:
    """Ordered pairs among k members that share a balanced group, for every size."""
    if design != "balanced":
        return np.zeros(len(sizes))
    groups = np.array([group_size(size / n_items) for size in sizes])
    full, rest = np.divmod(k, groups)
    return full * groups * (groups - 1) + rest * (rest - 1)


def _raise_same(own, same, other, sizes, n_items, weight):
    """What S lacks, at every size, for a whole group to do no better than infinitely many members.

    No group does, but S comes from few pairs, and with hundreds of members in a group its noise would count most.
    """
    A, S, C = (np.average(a, axis=1, weights=weight) for a in (own, same, other))
    groups = np.array([group_size(size / n_items) for size in sizes])
    least = C - (A - C) / np.maximum(groups - 1, 1)
    return np.maximum(0.0, least - S)


@dataclass(frozen=True)
class RiskCurve:
    """Estimated mean squared error of prediction by member size."""

    sizes: NDArray[np.int64]  # (sizes,)
    n_items: int  # columns (or rows) that members are drawn from
    design: str
    weight: NDArray[np.float64]  # (n,)
    own: NDArray[np.float64]  # (sizes, n) A, row by row
    same: NDArray[np.float64]  # S
    other: NDArray[np.float64]  # C
    residual: NDArray[np.float64]  # (sizes, n, q) mean residual over the members of the path
    monte_carlo_error: NDArray[np.float64] | None  # (sizes,) of the infinite ensemble

    @classmethod
    def from_pairs(cls, sizes, n_items, design, weight, own, same, other, residual, noise=None) -> RiskCurve:
        """The curve, with S raised where few pairs put a group below an infinite ensemble."""
        same = same + _raise_same(own, same, other, sizes, n_items, weight)[:, None]
        return cls(sizes, n_items, design, weight, own, same, other, residual, noise)

    def mse(self, k: float) -> NDArray[np.float64]:
        """Estimated error at every size for k members; ``inf`` is allowed."""
        return np.average(self._rows(k), axis=1, weights=self.weight)

    def standard_error(self, k: float) -> NDArray[np.float64]:
        """Standard error of `mse` over rows."""
        rows = self._rows(k)
        share = self.weight / self.weight.sum()
        spread = (rows - self.mse(k)[:, None]) ** 2
        return np.sqrt(np.sum(share**2 * spread, axis=1))

    def members_for(self, index: int, excess: float) -> int:
        """Members that keep the error at one size within `excess` of that of infinitely many."""
        limit = (1 + excess) * self.mse(np.inf)[index]
        for k in np.unique(np.rint(np.geomspace(10, 5000, 200)).astype(int)):
            if self.mse(k)[index] <= limit:
                return int(k)
        return 5000

    def _rows(self, k):
        if np.isinf(k):
            return self.other
        same = self._same_pairs(int(k))[:, None] / k**2
        return self.own / k + same * self.same + (1 - 1 / k - same) * self.other

    def _same_pairs(self, k):
        return same_group_pairs(self.sizes, self.n_items, self.design, k)
