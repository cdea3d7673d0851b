r"""Estimated error of an ensemble for every member size and every number of members, from residuals of K members.

Errors of an average are averages of pair products. With A the mean of :math:`e_i^2`, S that of :math:`e_i e_j` for two
members of one balanced group (which avoid each other) and C that of members of different groups, k members have

.. math:: R_k = \frac{k A + s\, S + (k^2 - k - s)\, C}{k^2}, \qquad R_\infty = C,

s being the number of ordered pairs within groups. Status: exact in expectation, for any k. A permutation and its
reverse are a pair with the law of two members of one group (disjoint, or with disjoint complements), so A, S and C all
come from K members taken in such pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..subsets import group_size

__all__ = ["PairSums", "RiskCurve", "SizeCurve", "pair_means"]

Array = NDArray[np.float64]


def pair_means(own: Array, pair: Array, mean: Array, n_pairs: int) -> tuple[Array, Array, Array]:
    """A, S and C from mean squares of single members, of the means of pairs, and the square of the mean of all."""
    k = 2 * n_pairs
    same = 2 * pair - own
    return own, same, (k * k * mean - k * own - k * same) / (k * k - 2 * k)


@dataclass
class PairSums:
    """Running sums over antithetic pairs of members of residuals of shape (sizes, n, q)."""

    weight: Array  # (n,)
    sums: Array | None = None  # (3, sizes, n, q), see pair_sums of paths
    n_pairs: int = 0
    batches: list[Array] = field(default_factory=list)  # R_inf of every batch of pairs, for the Monte-Carlo error

    def add(self, batch: Array, n_pairs: int) -> None:
        """The sums of one batch of at least two pairs."""
        self.batches.append(self._averages(batch, n_pairs)[2])
        self.sums = batch if self.sums is None else self.sums + batch
        self.n_pairs += n_pairs

    def keep(self, count: int) -> None:
        """The sums of the first `count` sizes only."""
        assert self.sums is not None
        self.sums = self.sums[:, :count]
        self.batches = [batch[:count] for batch in self.batches]

    def _averages(self, sums: Array, n_pairs: int) -> tuple[Array, Array, Array, Array]:
        """Per size, averaged over rows and targets: A, S, C and the squared mean residual."""
        (total, square, pair_square), k = sums, 2 * n_pairs
        share = self.weight / self.weight.sum() / total.shape[2]
        own = np.einsum("slt,l->s", square, share) / k
        pair = np.einsum("slt,l->s", pair_square, share) / n_pairs
        mean_square = np.einsum("slt,slt,l->s", total, total, share) / k**2
        return *pair_means(own, pair, mean_square, n_pairs), mean_square

    def size_curve(self, sizes: NDArray[np.int64], n_items: int, design: str) -> SizeCurve:
        """The curve without its rows."""
        assert self.sums is not None
        own, same, other, mean_square = self._averages(self.sums, self.n_pairs)
        other = other + _raise_other(other, mean_square)
        same = same + _raise_same(own, same, other, sizes, n_items)
        return SizeCurve(np.asarray(sizes), n_items, design, own, same, other)

    def monte_carlo_error(self) -> Array | None:
        """Standard error of R_inf over batches of pairs, (sizes,); None with one batch."""
        if len(self.batches) < 2:
            return None
        return np.asarray(np.std(self.batches, axis=0, ddof=1) / np.sqrt(len(self.batches)))

    def curve(self, sizes: NDArray[np.int64], n_items: int, design: str) -> RiskCurve:
        """The risk curve; errors of several targets are averaged."""
        assert self.sums is not None
        k, (total, square, pair) = 2 * self.n_pairs, self.sums
        means = pair_means(square / k, pair / self.n_pairs, (total / k) ** 2, self.n_pairs)
        own, same, other = (a.mean(axis=2) for a in means)
        return RiskCurve.from_pairs(np.asarray(sizes), n_items, design, self.weight, own, same, other, total / k)


def _raise_other(other: Array, mean_square: Array) -> Array:
    """What C lacks, at every size, to be a quarter of the squared mean residual of the members that were followed.

    C is that square less what sampling the members adds to it. Where members have huge residuals the difference of the
    two is noise, and may even be negative; such a size must not look like the best one.
    """
    return np.maximum(0.0, mean_square / 4 - other)


def _raise_same(own: Array, same: Array, other: Array, sizes: NDArray[np.int64], n_items: int) -> Array:
    """What S lacks, at every size, for a whole group to do no better than infinitely many members.

    No group does, but S comes from few pairs, and with hundreds of members in a group its noise would count most.
    """
    least = other - (own - other) / np.maximum(group_size(sizes / n_items) - 1, 1)
    return np.maximum(0.0, least - same)


@dataclass(frozen=True)
class SizeCurve:
    """Pair means by member size, averaged over rows: the error of any number of members."""

    sizes: NDArray[np.int64]
    n_items: int  # columns (or rows) that members are drawn from
    design: str
    own: Array  # (sizes,) A
    same: Array  # S
    other: Array  # C
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

    def combine(self, own: Array, same: Array, other: Array, k: float) -> Array:
        """R_k from A, S and C, which have one line for each size; ``inf`` is allowed."""
        if np.isinf(k):
            return other
        share = np.zeros(len(self.sizes))  # of all ordered pairs of members, those within a balanced group: s / k^2
        if self.design == "balanced":
            groups = group_size(self.sizes / self.n_items)
            full, rest = np.divmod(int(k), groups)
            share = (full * groups * (groups - 1) + rest * (rest - 1)) / k**2
        share = share.reshape(-1, *[1] * (own.ndim - 1))
        return np.asarray(own / k + share * same + (1 - 1 / k - share) * other)

    def mse(self, k: float) -> Array:
        """Estimated error at every size for k members."""
        with np.errstate(over="ignore"):
            return self.combine(self.own, self.same, self.other, k) * self.unit * self.unit


@dataclass(frozen=True)
class RiskCurve:
    """Estimated mean squared error of prediction by member size, row by row."""

    sizes: NDArray[np.int64]  # (sizes,)
    n_items: int
    design: str
    weight: Array  # (n,)
    own: Array  # (sizes, n) A, row by row
    same: Array  # S
    other: Array  # C
    residual: Array  # (sizes, n, q) mean residual over the members of the path

    @classmethod
    def from_pairs(
        cls, sizes: NDArray[np.int64], n_items: int, design: str, weight: Array,
        own: Array, same: Array, other: Array, residual: Array,
    ) -> RiskCurve:  # fmt: skip
        """The curve, with C and S raised where few pairs put them below what can be."""
        share = weight / weight.sum()
        if residual.shape[1]:
            mean_square = np.einsum("slt,slt,l->s", residual, residual, share) / residual.shape[2]
            other = other + _raise_other(other @ share, mean_square)[:, None]
        same = same + _raise_same(own @ share, same @ share, other @ share, sizes, n_items)[:, None]
        return cls(sizes, n_items, design, weight, own, same, other, residual)

    def averaged(self) -> SizeCurve:
        """The same without its rows: small enough to be kept with a fitted model."""
        own, same, other = (np.average(a, axis=1, weights=self.weight) for a in (self.own, self.same, self.other))
        return SizeCurve(self.sizes, self.n_items, self.design, own, same, other)

    def mse(self, k: float) -> Array:
        """Estimated error at every size for k members; ``inf`` is allowed."""
        return self.averaged().mse(k)

    def standard_error(self, k: float) -> Array:
        """Standard error of `mse` over rows."""
        rows = self.averaged().combine(self.own, self.same, self.other, k)
        share = self.weight / self.weight.sum()
        return np.asarray(np.sqrt(np.sum(share**2 * (rows - self.mse(k)[:, None]) ** 2, axis=1)))

    def members_for(self, index: int, excess: float) -> int:
        """Members that keep the error at one size within `excess` of that of infinitely many."""
        curve = self.averaged()
        limit = (1 + excess) * curve.mse(np.inf)[index]
        candidates = np.unique(np.rint(np.geomspace(10, 5000, 200)).astype(int))
        return next((int(k) for k in candidates if curve.mse(k)[index] <= limit), 5000)

    def scaled(self, mu: float, deviation: Array) -> RiskCurve:
        r"""The curve of members scaled about the mean target.

        With deviations d (n, q) of the targets from their mean without the row, a residual becomes
        :math:`(1 - \mu) d + \mu e`, and products of residuals follow.
        """
        square = (1 - mu) ** 2 * np.mean(deviation**2, axis=1)
        cross = 2 * mu * (1 - mu) * np.mean(deviation * self.residual, axis=2)
        own, same, other = (square + cross + mu**2 * products for products in (self.own, self.same, self.other))
        residual = (1 - mu) * deviation + mu * self.residual
        return replace(self, own=own, same=same, other=other, residual=residual)
