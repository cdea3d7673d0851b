r"""Estimated error of an ensemble for every member size and every number of members, from residuals of K members.

Errors of an average are averages of pair products. With A the mean of :math:`e_i^2`, S that of :math:`e_i e_j` for two
members of one balanced group (which avoid each other) and C that of members of different groups, k members have

.. math:: R_k = \frac{k A + s\, S + (k^2 - k - s)\, C}{k^2}, \qquad R_\infty = C,

s being the number of ordered pairs within groups. Status: exact in expectation, for any k. A permutation and its
reverse are a pair with the law of two members of one group (disjoint, or with disjoint complements), so A, S and C all
come from K members taken in such pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..subsets import group_sizes

__all__ = ["PairSums", "RiskCurve", "SizeCurve", "pair_means"]


def pair_means(
    own: NDArray[np.float64], pair: NDArray[np.float64], mean: NDArray[np.float64], n_pairs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """A, S and C from mean squares of single members, of the means of pairs, and the square of the mean of all."""
    k = 2 * n_pairs
    same = 2 * pair - own
    return own, same, (k * k * mean - k * own - k * same) / (k * k - 2 * k)


@dataclass
class PairSums:
    """Running sums over antithetic pairs of members of residuals of shape (sizes, n, q)."""

    total: NDArray[np.float64] | float = 0.0
    square: NDArray[np.float64] | float = 0.0
    pair_square: NDArray[np.float64] | float = 0.0
    n_pairs: int = 0
    batches: list[NDArray[np.float64]] = field(
        default_factory=list
    )  # R_inf of every batch of pairs, for the Monte-Carlo error

    def add(self, pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], weight: NDArray[np.float64]) -> None:
        """Add one batch of at least two pairs."""
        total, square, pair_square = (np.zeros_like(pairs[0][0]) for _ in range(3))
        for first, second in pairs:
            total += first + second
            square += first**2 + second**2
            pair_square += ((first + second) / 2) ** 2
        self.add_sums(total, square, pair_square, len(pairs), weight)

    def add_sums(
        self,
        total: NDArray[np.float64],
        square: NDArray[np.float64],
        pair_square: NDArray[np.float64],
        n_pairs: int,
        weight: NDArray[np.float64],
    ) -> None:
        """Add the sums of one batch of at least two pairs."""
        batch = PairSums(total, square, pair_square, n_pairs)
        self.batches.append(batch.averages(weight)[2])
        self.total = self.total + batch.total
        self.square = self.square + batch.square
        self.pair_square = self.pair_square + batch.pair_square
        self.n_pairs += batch.n_pairs

    def head(self, count: int) -> PairSums:
        """The sums of the first `count` sizes only."""
        total, square, pair_square = (np.asarray(a)[:count] for a in (self.total, self.square, self.pair_square))
        return PairSums(total, square, pair_square, self.n_pairs, [b[:count] for b in self.batches])

    def pair_means(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Per size, row and target: A, S and C."""
        total, square, pair_square = (np.asarray(a) for a in (self.total, self.square, self.pair_square))
        k = 2 * self.n_pairs
        return pair_means(square / k, pair_square / self.n_pairs, (total / k) ** 2, self.n_pairs)

    def averages(self, weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Per size, averaged over rows and targets: A, S, C and the squared mean residual."""
        k = 2 * self.n_pairs
        total, square, pair_square = (np.asarray(a) for a in (self.total, self.square, self.pair_square))
        share = weight / weight.sum() / total.shape[2]
        own = np.einsum("slt,l->s", square, share) / k
        pair = np.einsum("slt,l->s", pair_square, share) / self.n_pairs
        mean_square = np.einsum("slt,slt,l->s", total, total, share) / k**2
        return *pair_means(own, pair, mean_square, self.n_pairs), mean_square

    def size_curve(self, sizes: NDArray[np.int64], n_items: int, design: str, weight: NDArray[np.float64]) -> SizeCurve:
        """The curve without its rows."""
        own, same, other, mean_square = self.averages(weight)
        other = other + _raise_other(other, mean_square)
        same = same + _raise_same(own, same, other, sizes, n_items)
        return SizeCurve(np.asarray(sizes), n_items, design, own, same, other)

    def monte_carlo_error(self) -> NDArray[np.float64] | None:
        """Standard error of R_inf over batches of pairs, (sizes,); None with one batch."""
        if len(self.batches) < 2:
            return None
        found: NDArray[np.float64] = np.std(self.batches, axis=0, ddof=1) / np.sqrt(len(self.batches))
        return found

    def curve(self, sizes: NDArray[np.int64], n_items: int, design: str, weight: NDArray[np.float64]) -> RiskCurve:
        """The risk curve; errors of several targets are averaged."""
        own, same, other = (a.mean(axis=2) for a in self.pair_means())
        residual = np.asarray(self.total) / (2 * self.n_pairs)
        return RiskCurve.from_pairs(
            np.asarray(sizes), n_items, design, weight, own, same, other, residual, self.monte_carlo_error()
        )


def _same_group_pairs(sizes: NDArray[np.int64], n_items: int, design: str, k: int) -> NDArray[np.float64]:
    """Ordered pairs among k members that share a balanced group, for every size."""
    if design != "balanced":
        return np.zeros(len(sizes))
    groups = group_sizes(sizes / n_items)
    full, rest = np.divmod(k, groups)
    found: NDArray[np.float64] = full * groups * (groups - 1) + rest * (rest - 1)
    return found


def _raise_other(other: NDArray[np.float64], mean_square: NDArray[np.float64]) -> NDArray[np.float64]:
    """What C lacks, at every size, to be a quarter of the squared mean residual of the members that were followed.

    C is that square less what sampling the members adds to it. Where members have huge residuals the difference of the
    two is noise, and may even be negative; such a size must not look like the best one.
    """
    lack: NDArray[np.float64] = np.maximum(0.0, mean_square / 4 - other)
    return lack


def _raise_same(
    own: NDArray[np.float64],
    same: NDArray[np.float64],
    other: NDArray[np.float64],
    sizes: NDArray[np.int64],
    n_items: int,
) -> NDArray[np.float64]:
    """What S lacks, at every size, for a whole group to do no better than infinitely many members.

    No group does, but S comes from few pairs, and with hundreds of members in a group its noise would count most.
    """
    groups = group_sizes(sizes / n_items)
    least = other - (own - other) / np.maximum(groups - 1, 1)
    found: NDArray[np.float64] = np.maximum(0.0, least - same)
    return found


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
    def from_pairs(
        cls,
        sizes: NDArray[np.int64],
        n_items: int,
        design: str,
        weight: NDArray[np.float64],
        own: NDArray[np.float64],
        same: NDArray[np.float64],
        other: NDArray[np.float64],
        residual: NDArray[np.float64],
        noise: NDArray[np.float64] | None = None,
    ) -> RiskCurve:
        """The curve, with C and S raised where few pairs put them below what can be."""
        share = weight / weight.sum()
        if residual.shape[1]:
            mean_square = np.einsum("slt,slt,l->s", residual, residual, share) / residual.shape[2]
            other = other + _raise_other(other @ share, mean_square)[:, None]
        same = same + _raise_same(own @ share, same @ share, other @ share, sizes, n_items)[:, None]
        return cls(sizes, n_items, design, weight, own, same, other, residual, noise)

    def mse(self, k: float) -> NDArray[np.float64]:
        """Estimated error at every size for k members; ``inf`` is allowed."""
        return np.asarray(np.average(self._rows(k), axis=1, weights=self.weight))

    def standard_error(self, k: float) -> NDArray[np.float64]:
        """Standard error of `mse` over rows."""
        rows = self._rows(k)
        share = self.weight / self.weight.sum()
        spread = (rows - self.mse(k)[:, None]) ** 2
        found: NDArray[np.float64] = np.sqrt(np.sum(share**2 * spread, axis=1))
        return found

    def members_for(self, index: int, excess: float) -> int:
        """Members that keep the error at one size within `excess` of that of infinitely many."""
        limit = (1 + excess) * self.mse(np.inf)[index]
        for k in np.unique(np.rint(np.geomspace(10, 5000, 200)).astype(int)):
            if self.mse(k)[index] <= limit:
                return int(k)
        return 5000

    def scaled(self, mu: float, deviation: NDArray[np.float64]) -> RiskCurve:
        r"""The curve of members scaled about the mean target.

        With deviations d (n, q) of the targets from their mean without the row, a residual becomes
        :math:`(1 - \mu) d + \mu e`, and products of residuals follow.
        """
        square = (1 - mu) ** 2 * np.mean(deviation**2, axis=1)
        cross = 2 * mu * (1 - mu) * np.mean(deviation * self.residual, axis=2)
        own, same, other = (square + cross + mu**2 * products for products in (self.own, self.same, self.other))
        residual = (1 - mu) * deviation + mu * self.residual
        return replace(self, own=own, same=same, other=other, residual=residual)

    def averaged(self) -> SizeCurve:
        """The same without its rows: small enough to be kept with a fitted model."""
        own, same, other = (np.average(a, axis=1, weights=self.weight) for a in (self.own, self.same, self.other))
        return SizeCurve(self.sizes, self.n_items, self.design, own, same, other)

    def _rows(self, k: float) -> NDArray[np.float64]:
        same = _same_share(self.sizes, self.n_items, self.design, k)[:, None]
        return self.other if np.isinf(k) else self.own / k + same * self.same + (1 - 1 / k - same) * self.other


@dataclass(frozen=True)
class SizeCurve:
    """Pair means by member size, averaged over rows: the error of any number of members."""

    sizes: NDArray[np.int64]
    n_items: int
    design: str
    own: NDArray[np.float64]  # (sizes,) A
    same: NDArray[np.float64]  # S
    other: NDArray[np.float64]  # C
    unit: float = 1.0  # of the residuals; their squares alone may leave double precision, and then errors are infinite

    @classmethod
    def mean_of(cls, curves: list[SizeCurve]) -> SizeCurve:
        """Of several targets: over the sizes that all of them have."""
        first, count = curves[0], min(len(curve.sizes) for curve in curves)
        if len(curves) == 1:
            return first
        own, same, other = (
            np.mean([getattr(curve, name)[:count] * curve.unit**2 for curve in curves], axis=0)
            for name in ("own", "same", "other")
        )
        return cls(first.sizes[:count], first.n_items, first.design, own, same, other)

    def shifted(self, by: float) -> SizeCurve:
        """With so much more error at every size; none becomes negative."""
        by = max(by, -0.9 * float(self.other.min(initial=np.inf)))
        return replace(self, own=self.own + by, same=self.same + by, other=self.other + by)

    def plain(self) -> dict[str, Any]:
        """The same as numbers, texts and arrays only."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def mse(self, k: float) -> NDArray[np.float64]:
        """Estimated error at every size for k members; ``inf`` is allowed."""
        same = _same_share(self.sizes, self.n_items, self.design, k)
        mse = self.other if np.isinf(k) else self.own / k + same * self.same + (1 - 1 / k - same) * self.other
        with np.errstate(over="ignore"):
            return mse * self.unit * self.unit


def _same_share(sizes: NDArray[np.int64], n_items: int, design: str, k: float) -> NDArray[np.float64]:
    """Share of all ordered pairs of k members that are within groups, s / k^2."""
    if np.isinf(k):
        return np.zeros(len(sizes))
    return _same_group_pairs(sizes, n_items, design, int(k)) / k**2
