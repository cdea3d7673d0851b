r"""Estimated error of an ensemble for every size and number of uniform members, from the residuals
of a few members.

Errors of an average are averages of pair products. With A the mean of :math:`e_i^2`, S that of
:math:`e_i e_j` for two members of one balanced group (which avoid each other) and C that of members
of different groups, k members have

.. math:: R_k = \frac{k A + s\, S + (k^2 - k - s)\, C}{k^2}, \qquad R_\infty = C,

s being the number of ordered pairs within groups. Status: exact in expectation, for any k. A
permutation and its reverse are distributed as two members of one group (disjoint, or with disjoint
complements), so A, S and C all come from K members taken in such antithetic pairs.

Members that see some of the rows are balanced in their rows too, in groups of another size. Then
S becomes three means of products: of pairs in one group of columns only, in one group of rows only,
and in both. Every batch of members holds pairs of each kind (:data:`ROW_ORDERS`).

A criterion (leave-one-out, k-fold, GCV, out-of-bag) turns a member into residuals of shape (sizes,
rows, targets); all sizes of a member come from one nested path along a permutation of the columns.
Pairs are added in batches until the Monte-Carlo error of the curve is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from .. import subsets
from .._data.columns import Columns
from .._data.implicit import stays_implicit
from .._data.moments import Moments
from .._data.rows import RowData, gather
from .._data.splits import Splits
from .._data.stored import dense
from .._execution.threads import Threads, cached_property
from .._members.path import (
    AnyPathData,
    PathData,
    WidePathData,
    pair_sums,
    prefix_predictions,
    prefix_residuals,
    sum_pairs,
)

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# seed stream of the permutations of paths: a fitted ensemble uses 0 (columns) and 1 (rows)
PATH_STREAM = 2
PATH_ROW_STREAM = 3  # seed stream of the row subsets of paths
# Row subsets of a batch of eight members, of which two neighbours have a permutation of the columns
# and its reverse: number of the permutation of the rows, and whether it is reversed. Members 0 and 1
# (6 and 7) are of one group of columns and of rows; 2 and 3 (4 and 5) of columns; 2 and 4 (3 and 5)
# of rows.
ROW_ORDERS = (
    (0, False),
    (0, True),
    (1, False),
    (2, False),
    (1, True),
    (2, True),
    (3, False),
    (3, True),
)
COLUMN_PAIRS = ((2, 3), (4, 5))
ROW_PAIRS = ((2, 4), (3, 5))
PAIRS_OF_BOTH = ((0, 1), (6, 7))
# above the minimum of the first batch: sizes beyond the last one below it are dropped
MAX_RELATIVE_RISE = 0.1
# Monte-Carlo error of the curve at its minimum, at which batches are enough
MAX_RELATIVE_MC_ERROR = 0.015
# columns of X over columns of the longest path up to which all paths share one Gram matrix
MAX_SHARED_GRAM_RATIO = 6
# residuals (sizes x rows) of the batches that are followed in one step
MAX_BATCHED_RESIDUALS = 2_000_000

MAX_SUMS_BY_TARGET = 1 << 24  # sums (3, sizes, rows, targets) of targets that are followed together

# ``residuals(orders, sizes, first)``: residuals (sizes, rows, targets) for each order of the
# columns; the member of size m uses the first m columns, and the members are numbered from `first`
Residuals = Callable[[list[Indices], Indices, int], list[Array]]
# ``sums(orders, sizes, n_pairs)``: sums over batches of `n_pairs` pairs, which need no residuals of
# single members
Sums = Callable[[list[Indices], Indices, int], Array]


def products_with_rows(single: Array, pairs: Array, mean: Array, n_members: int) -> Array:
    """A, the three kinds of S and C, (5, ...), of members with row subsets.

    `pairs` (3, ...) are mean products of pairs, a quarter of the members having as many pairs of
    each kind; `single` and `mean` are mean squares of single members and of the mean of all members.
    """
    n_ordered = n_members / 2  # ordered pairs of each kind
    within = n_members * single + n_ordered * pairs.sum(axis=0)
    n_between = n_members**2 - n_members - 3 * n_ordered
    between = (n_members**2 * mean - within) / n_between
    return np.concatenate([single[None], pairs, between[None]])


def pair_means(single: Array, pair: Array, mean: Array, n_pairs: int) -> Array:
    """A, S and C, (3, ...), from mean squares of single members, of pair means, and of the mean of
    all members.
    """
    k = 2 * n_pairs
    within = 2 * pair - single
    between = (k * k * mean - k * single - k * within) / (k * k - 2 * k)
    return np.stack([single, within, between])


@dataclass(frozen=True)
class RiskCurve:
    """Pair means by member size: the error of any number of members."""

    sizes: Indices
    group_sizes: list[Indices]  # for every kind of S, see :func:`balanced_groups`
    design: str
    products: Array  # (3, sizes) A, S and C; (5, sizes) with three kinds of S for row subsets

    def lower_bound_corrections(self, mean_square: Array) -> Array:
        """Corrections of the shape of `products` that lift S and C to their lower bounds, which few
        pairs may miss.

        C is the squared mean residual of the members that were followed, minus the variance that
        sampling members adds. Where members have huge residuals the difference is noise, and may
        even be negative. Such a size must not look like the best one, so C is bounded below by a
        quarter of the squared mean residual. S is bounded because no group does better than
        infinitely many members: with hundreds of members in a group, the noise of S, which comes
        from few pairs, would dominate.
        """
        single, *within, between = self.products
        between_lift = np.maximum(0.0, mean_square / 4 - between)
        lifted = between + between_lift
        lifts = [
            np.maximum(0.0, lifted - (single - lifted) / np.maximum(group - 1, 1) - products)
            for group, products in zip(self.group_sizes, within, strict=True)
        ]
        return np.stack([np.zeros(len(single)), *lifts, between_lift])

    def _fractions_within_groups(self, k: int) -> list[Array]:
        """Fraction of the ordered pairs of k members that are of each kind of S, for every size."""
        if self.design != "balanced":
            return [np.zeros(len(self.sizes))] * (len(self.products) - 2)
        columns, *further = self.group_sizes
        of_columns = _pairs_within_groups(k, columns)
        if not further:
            return [of_columns / k**2]
        of_rows = _pairs_within_groups(k, further[0])
        of_both = _pairs_within_groups(k, columns, further[0])
        return [(of_columns - of_both) / k**2, (of_rows - of_both) / k**2, of_both / k**2]

    def combine(self, products: Array, k: float) -> Array:
        """R_k from A, S and C, of the shape of `products` and for rows maybe; ``inf`` is allowed."""
        single, *within, between = products
        if np.isinf(k):
            return np.asarray(between)
        error = between + (single - between) / k
        for fraction, product in zip(self._fractions_within_groups(int(k)), within, strict=True):
            error = error + fraction.reshape(-1, *[1] * (single.ndim - 1)) * (product - between)
        return np.asarray(error)

    def mse(self, k: float) -> Array:
        """Estimated error at every size for k members."""
        return self.combine(self.products, k)

    def part(self, sizes: slice) -> RiskCurve:
        """The curve at some of its sizes."""
        group_sizes = [groups[sizes] for groups in self.group_sizes]
        return RiskCurve(self.sizes[sizes], group_sizes, self.design, self.products[:, sizes])

    def members_for(self, index: int, excess: float) -> int:
        """Number of members at which the error of one size is at most 1 + `excess` times that of
        infinitely many.
        """
        curve = self.part(slice(index, index + 1))
        limit = (1 + excess) * curve.mse(np.inf)[0]
        candidates = np.unique(np.rint(np.geomspace(10, 5000, 200)).astype(int))
        return next((int(k) for k in candidates if curve.mse(k)[0] <= limit), 5000)


def balanced_groups(
    sizes: Indices, n_columns: int, row_fraction: float | None = None
) -> list[Indices]:
    """Number of members in a balanced group, for every size: of columns and, for members that see a
    fraction of the rows, of rows and of both.
    """
    columns = subsets.group_size(sizes / n_columns)
    if row_fraction is None:
        return [columns]
    rows = np.full_like(columns, subsets.group_size(row_fraction))
    return [columns, rows, np.minimum(columns, rows)]


def _pairs_within_groups(k: int, *group_sizes: Indices) -> Array:
    """Number of ordered pairs of k members that share a group, for every size; with two kinds of
    groups, those that share one of each.
    """
    if len(group_sizes) == 1:
        n_groups, remainder = np.divmod(k, group_sizes[0])
        pairs = n_groups * group_sizes[0] * (group_sizes[0] - 1) + remainder * (remainder - 1)
        return np.asarray(pairs, dtype=np.float64)
    counts = []
    for sizes in zip(*group_sizes, strict=True):
        starts = np.unique(np.concatenate([np.arange(0, k, size) for size in sizes]))
        members = np.diff(starts, append=k)
        counts.append(members @ (members - 1))
    return np.array(counts, dtype=np.float64)


@dataclass(frozen=True)
class RowCurve:
    """A risk curve, and the products and residuals of every row that it averages."""

    average: RiskCurve
    weight: Array  # (n,)
    products: Array  # (3, sizes, n), (5, sizes, n) for row subsets
    residual: Array  # (sizes, n, q) mean residual over the members of the path

    @classmethod
    def from_products(
        cls,
        sizes: Indices,
        group_sizes: list[Indices],
        design: str,
        weight: Array,
        products: Array,
        residual: Array,
    ) -> RowCurve:
        """Build the curve from A, S and C of every row."""
        means = products @ (weight / weight.sum())
        average = RiskCurve(sizes, group_sizes, design, means)
        return cls(average, weight, products, residual)

    def with_products(self, products: Array, residual: Array) -> RowCurve:
        """Replace products and residuals; sizes and rows stay."""
        means = products @ (self.weight / self.weight.sum())
        return RowCurve(replace(self.average, products=means), self.weight, products, residual)

    def raised(self, mean_square: Array | None = None) -> RowCurve:
        """Lift S and C to their lower bounds; curves without residuals need squared mean residuals
        (sizes,).
        """
        if mean_square is None:
            square = np.einsum(
                "slt,slt,l->s", self.residual, self.residual, self.weight / self.weight.sum()
            )
            mean_square = square / self.residual.shape[2]
        corrections = self.average.lower_bound_corrections(mean_square)
        return self.with_products(self.products + corrections[:, :, None], self.residual)

    def standard_error(self, k: float) -> Array:
        """Standard error of the estimated error over rows."""
        row_errors = self.average.combine(self.products, k)
        row_weights = self.weight / self.weight.sum()
        deviations = row_errors - self.average.mse(k)[:, None]
        return np.asarray(np.sqrt(np.sum(row_weights**2 * deviations**2, axis=1)))

    def scaled(self, mu: float, deviation: Array) -> RowCurve:
        r"""The curve of members scaled about the mean target.

        With deviations d (n, q) of the targets from their mean without the row, a residual becomes
        :math:`(1 - \mu) d + \mu e`, and products of residuals follow.
        """
        square = (1 - mu) ** 2 * np.mean(deviation**2, axis=1)
        cross = 2 * mu * (1 - mu) * np.mean(deviation * self.residual, axis=2)
        products = square + cross + mu**2 * self.products
        residual = (1 - mu) * deviation + mu * self.residual
        return self.with_products(
            products, residual
        ).raised()  # with few rows C is noise, and may be negative


@dataclass(frozen=True)
class Paths:
    """Number and design of the paths that estimate a risk curve."""

    seed: int
    design: str
    threads: Threads
    drawn_columns: subsets.DrawnColumns | None = None  # None: all columns
    batch: int = 4  # pairs of members in a batch
    min_batches: int = 3
    max_batches: int = 10

    def nested(
        self,
        n_columns: int,
        sizes: Indices,
        weight: Array,
        residuals: Residuals,
        sums: Sums | None = None,
        row_fraction: float | None = None,
    ) -> RowCurve:
        """Estimate the curve of uniform members, all sizes of a member from one path.

        Members see a fraction of the rows; None: all of them.

        Batches of members are added until the Monte-Carlo error is small; several batches are
        followed in one step where all will be needed. After the first batch, sizes far beyond the
        minimum are dropped: the curve has turned, and the largest members cost the most.
        """
        followed = _Batches(self, sizes, n_columns, weight, row_fraction)
        while followed.count < self.max_batches and not followed.converged:
            first = followed.count
            last = first + self._next_batches(followed)
            for sums_of_batch in self._follow(followed, first, last, residuals, sums):
                followed.add(sums_of_batch)
                if followed.count == 1:
                    followed.drop_sizes_beyond_minimum()
                elif followed.converged:
                    break
        return followed.curve_by_row()

    def nested_by_target(
        self, n_columns: int, sizes: Indices, weight: Array, sums: Sums, n_targets: int
    ) -> list[RowCurve]:
        """Estimate a curve for each target from the same paths, in `min_batches` batches.

        Sizes far beyond the minimum are dropped for each target.
        """
        followed = [_Batches(self, sizes, n_columns, weight, None) for _ in range(n_targets)]
        for batch in range(self.min_batches):
            orders = self.orders(n_columns, batch, batch + 1)
            n_sizes = max(len(of_target.sizes) for of_target in followed)
            (sums_of_batch,) = sums(orders, sizes[:n_sizes], self.batch)
            for t, of_target in enumerate(followed):
                of_target.add(sums_of_batch[:, : len(of_target.sizes), :, t : t + 1])
                if of_target.count == 1:
                    of_target.drop_sizes_beyond_minimum()
        return [of_target.curve_by_row() for of_target in followed]

    def _follow(
        self,
        followed: _Batches,
        first: int,
        last: int,
        residuals: Residuals,
        sums: Sums | None,
    ) -> Iterator[Array]:
        """Sums over the pairs of each batch from `first` to `last`, (3 or 5, sizes, rows, targets)."""
        sizes = followed.sizes
        orders = self.orders(followed.n_columns, first, last)
        if sums is not None:
            return iter(sums(orders, sizes, self.batch))
        n_members = 2 * self.batch
        by_member = self.run(
            lambda start, stop: residuals(orders[start:stop], sizes, first * n_members + start),
            len(orders),
        )
        starts = range(0, len(by_member), n_members)
        return (followed.summed(by_member[start : start + n_members]) for start in starts)

    def _next_batches(self, followed: _Batches) -> int:
        """Number of batches to follow next: what will be needed, within the limit on residuals in
        memory.
        """
        n_done = followed.count
        if n_done == 0:
            return 1
        n_needed = self.min_batches
        if n_done >= self.min_batches:
            reduction = (followed.mc_error / MAX_RELATIVE_MC_ERROR) ** 2
            n_needed = math.ceil(min(n_done * reduction, 1e6))
        affordable = MAX_BATCHED_RESIDUALS // followed.n_residuals
        return max(1, min(n_needed - n_done, self.max_batches - n_done, affordable))

    def orders(self, n_columns: int, start: int, stop: int) -> list[Indices]:
        """Orders of the columns of batches `start` to `stop`, each followed by its reverse."""
        forward_orders = self.permutations(n_columns, start * self.batch, stop * self.batch)
        return [order for forward in forward_orders for order in (forward, forward[::-1])]

    def permutations(self, n_columns: int, start: int, stop: int) -> Indices:
        """Random orders of the columns that are drawn, number `start` to `stop`."""
        orders = subsets.permutations(
            self.n_items(n_columns), stop, seed=self.seed, start=start, stream=PATH_STREAM
        )
        if self.drawn_columns is None:
            return orders
        members = np.arange(start, stop)[:, None]
        return self.drawn_columns.at(orders, members, self.seed)

    def n_items(self, n_columns: int) -> int:
        """Number of items that are drawn in the place of columns."""
        return n_columns if self.drawn_columns is None else self.drawn_columns.n_items

    def run(self, work: Callable[[int, int], list[Array]], n_members: int) -> list[Array]:
        """Results of ``work(start, stop)`` over all members, divided among threads, as one list."""
        return list(chain.from_iterable(self.threads(work, n_members)))


class _Batches:
    """Batches of pairs of members that were followed so far, and the curve that they estimate."""

    def __init__(
        self,
        paths: Paths,
        sizes: Indices,
        n_columns: int,
        weight: Array,
        row_fraction: float | None,
    ) -> None:
        self.sizes = sizes
        self.count = 0
        self.n_columns = n_columns
        self._group_sizes = balanced_groups(sizes, paths.n_items(n_columns), row_fraction)
        self._weight = weight
        self._design = paths.design
        self._members_per_batch = 2 * paths.batch
        self._min_batches = paths.min_batches
        self._sums = np.zeros(())  # (3 or 5, sizes, rows, targets) over all batches
        self._limit_errors: list[Array] = []  # C of every batch, (sizes,)
        self.mc_error = np.inf  # at the minimum, relative to it; not known of few batches

    @property
    def n_residuals(self) -> int:
        """Residuals of one member, over all sizes and rows."""
        return len(self.sizes) * len(self._weight)

    def summed(self, residuals: list[Array]) -> Array:
        """Sums over the members of one batch, from the residuals of each."""
        return (
            _sum_of_pairs(residuals)
            if len(self._group_sizes) == 1
            else _sum_of_pairs_with_rows(residuals)
        )

    def add(self, sums: Array) -> None:
        """Add the sums of a batch."""
        self._sums = self._sums + sums
        products, _ = self._averaged(sums, n_batches=1)
        self._limit_errors.append(products[-1])
        self.count += 1
        if self.count >= max(2, self._min_batches):
            mse = self._curve().mse(np.inf)
            self.mc_error = _relative_mc_error(mse, self._limit_errors)

    def drop_sizes_beyond_minimum(self) -> None:
        """Drop sizes beyond the last one whose error is close to the smallest."""
        n_sizes = _n_sizes_to_follow(self._curve().mse(100))
        self.sizes = self.sizes[:n_sizes]
        self._group_sizes = [groups[:n_sizes] for groups in self._group_sizes]
        self._sums = self._sums[:, :n_sizes]
        self._limit_errors = [errors[:n_sizes] for errors in self._limit_errors]

    @property
    def converged(self) -> bool:
        """Whether there are enough batches, and the Monte-Carlo error is small."""
        return self.mc_error < MAX_RELATIVE_MC_ERROR

    def curve_by_row(self) -> RowCurve:
        """The curve, with the products and residuals of every row."""
        n_members = self.count * self._members_per_batch
        residual = self._sums[0] / n_members
        products = _products(self._sums[1:], residual**2, n_members)
        return RowCurve.from_products(
            sizes=self.sizes,
            group_sizes=self._group_sizes,
            design=self._design,
            weight=self._weight,
            products=products.mean(axis=3),
            residual=residual,
        ).raised()

    def _curve(self) -> RiskCurve:
        products, mean_square = self._averaged(self._sums, self.count)
        curve = RiskCurve(self.sizes, self._group_sizes, self._design, products)
        return replace(curve, products=products + curve.lower_bound_corrections(mean_square))

    def _averaged(self, sums: Array, n_batches: int) -> tuple[Array, Array]:
        """A, S and C (3 or 5, sizes), and the squared mean residual, averaged over rows and targets."""
        n_members = n_batches * self._members_per_batch
        row_weights = self._weight / self._weight.sum() / sums.shape[3]
        total, *of_pairs = sums
        averages = np.stack([np.einsum("slt,l->s", part, row_weights) for part in of_pairs])
        mean_square = np.einsum("slt,slt,l->s", total, total, row_weights) / n_members**2
        return _products(averages, mean_square, n_members), mean_square


def _products(sums: Array, mean_square: Array, n_members: int) -> Array:
    """A, S and C from sums over members of squares, then of each kind of pairs."""
    single = sums[0] / n_members
    n_pairs = n_members // 2
    if len(sums) == 2:
        return pair_means(single, sums[1] / n_pairs, mean_square, n_pairs)
    return products_with_rows(single, sums[1:] / (n_members / 4), mean_square, n_members)


def _sum_of_pairs(residuals: list[Array]) -> Array:
    """Sums over pairs of consecutive members."""
    pairs = zip(residuals[::2], residuals[1::2], strict=True)
    return np.asarray(sum(pair_sums(first, second) for first, second in pairs))


def _sum_of_pairs_with_rows(residuals: list[Array]) -> Array:
    """Sums over a batch of members with row subsets, (5, ...): residuals, squares, and products of
    pairs in one group of columns, in one of rows, and in both.
    """
    kinds = (COLUMN_PAIRS, ROW_PAIRS, PAIRS_OF_BOTH)
    products = [sum(residuals[i] * residuals[j] for i, j in pairs) for pairs in kinds]
    return np.stack([sum(residuals), sum(residual**2 for residual in residuals), *products])


def _n_sizes_to_follow(mse: Array) -> int:
    """Number of leading sizes up to the last whose error is close to the smallest."""
    close_to_minimum = mse <= mse.min() + MAX_RELATIVE_RISE * abs(mse.min())
    return int(np.flatnonzero(close_to_minimum)[-1]) + 1 if close_to_minimum.any() else len(mse)


def _relative_mc_error(mse: Array, batches: list[Array]) -> float:
    """Monte-Carlo error over batches at the minimum of the curve, relative to it; infinite where it
    is unknown.

    The standard error over rows would be the better yardstick. It changes when a weight becomes
    repeated rows, though, and the number of paths would change too.
    """
    best = int(np.argmin(mse))
    if len(batches) < 2 or not mse[best] > 0:
        return np.inf
    return float(
        np.std([batch[best] for batch in batches], ddof=1) / np.sqrt(len(batches)) / mse[best]
    )


def size_grid(largest: int, count: int) -> Indices:
    """At most about `count` sizes from 1 to `largest`: half evenly spaced, half on a logarithmic
    scale.
    """
    if largest <= count:
        return np.arange(1, largest + 1)
    even = np.linspace(1, largest, count // 2)
    log = np.geomspace(1, largest, count // 2)
    return np.unique(np.rint(np.concatenate([even, log])).astype(np.int64))


def _path_data(
    problem: RowData, sizes: Indices, n_samples: int | None, threads: Threads
) -> AnyPathData:
    """Data of the paths, with one Gram matrix for all paths where that is cheaper than one per
    path.
    """
    if stays_implicit(problem):
        return WidePathData(problem)
    shared = n_samples is None and problem.shape[1] <= MAX_SHARED_GRAM_RATIO * int(sizes[-1])
    if shared:
        problem.moments_by(threads)  # cached in the problem, for the members too
    return PathData.from_problem(problem, shared=shared)


def _rows(
    paths: Paths, n: int, n_samples: int | None, first: int, count: int
) -> list[Indices | None]:
    """Rows of `count` members from number `first` on; None for all rows."""
    if n_samples is None:
        return [None] * count
    n_orders = 4  # permutations of the rows in a batch
    n_members = len(ROW_ORDERS)
    batches = first // n_members, -(-(first + count) // n_members)
    orders = subsets.permutations(
        n,
        batches[1] * n_orders,
        start=batches[0] * n_orders,
        seed=paths.seed,
        stream=PATH_ROW_STREAM,
    )
    row_subsets: list[Indices | None] = []
    for member in range(first, first + count):
        batch, position = divmod(member, n_members)
        number, is_reversed = ROW_ORDERS[position]
        order = orders[(batch - batches[0]) * n_orders + number]
        row_subsets.append((order[::-1] if is_reversed else order)[:n_samples])
    return row_subsets


def _fraction(n_samples: int | None, n: int) -> float | None:
    """Fraction of the rows in a member; None for all rows."""
    return None if n_samples is None else n_samples / n


def leave_one_out(
    problem: RowData, sizes: Indices, paths: Paths, n_samples: int | None = None
) -> RowCurve:
    """Exact leave-one-out; a member's residuals at rows outside its row subset are ordinary
    prediction errors.
    """
    path_data = _path_data(problem, sizes, n_samples, paths.threads)
    threads = paths.threads.quiet()

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        row_subsets = _rows(paths, problem.shape[0], n_samples, first, len(orders))
        data, orders = path_data.for_orders(orders, int(sizes[-1]))
        return [
            prefix_residuals(data, order, sizes, rows)
            for order, rows in zip(orders, row_subsets, strict=True)
        ]

    def sums(orders: list[Indices], sizes: Indices, n_pairs: int) -> Array:
        of_batches = []
        for batch in path_data.batches(orders, 2 * n_pairs):
            data, batch = path_data.for_orders(batch, int(sizes[-1]))
            of_batches.append(sum_pairs(data, batch, sizes, n_pairs, threads))
        return np.concatenate(of_batches)

    return paths.nested(
        n_columns=problem.shape[1],
        sizes=sizes,
        weight=problem.weights,
        residuals=residuals,
        sums=None if n_samples is not None else sums,
        row_fraction=_fraction(n_samples, problem.shape[0]),
    )


def gcv(problem: RowData, sizes: Indices, paths: Paths, n_samples: int | None = None) -> RowCurve:
    r"""Generalised cross-validation: every leverage replaced by the mean one.

    With row subsets, the products of the residuals of two members that share t of their :math:`\tau`
    rows are divided by another factor (Bellec and others, arXiv 2310.01374), with df = m:

    .. math:: 1 - 2\frac{df}{n} + \Bigl(\frac{df}{n}\Bigr)^2 \frac{n\,t}{\tau^2}

    which is the square of the mean denominator at the mean overlap, :math:`t = \tau^2/n`. Status:
    asymptotic.
    """
    n, p = problem.shape
    null_rank = problem.null_rank
    require_rows_left(n, sizes, null_rank)
    path_data = _path_data(problem, sizes, n_samples, paths.threads)

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        row_subsets = _rows(paths, n, n_samples, first, len(orders))
        data, orders = path_data.for_orders(orders, int(sizes[-1]))
        X = (data.columns.A / data.columns.root)[:, :n].T
        mean_denominator = (1 - (sizes + null_rank) / n)[:, None, None]
        fitted = (
            prefix_predictions(data, X, order, sizes, rows)
            for order, rows in zip(orders, row_subsets, strict=True)
        )
        return [(problem.Y - f) / mean_denominator for f in fitted]

    curve = paths.nested(
        n_columns=p,
        sizes=sizes,
        weight=problem.weights,
        residuals=residuals,
        row_fraction=_fraction(n_samples, n),
    )
    if n_samples is None:
        return curve
    df = (curve.average.sizes[:, None] + null_rank) / n
    single, of_columns, *of_rows, between = curve.products

    def corrected(products: Array, n_shared: int) -> Array:
        return products * (1 - df) ** 2 / (1 - 2 * df + df**2 * n * n_shared / n_samples**2)

    n_shared = max(0, 2 * n_samples - n)  # rows that two members of one group of rows share
    of_rows = [corrected(products, n_shared) for products in of_rows]
    products = np.stack([corrected(single, n_samples), of_columns, *of_rows, between])
    return curve.with_products(products, curve.residual).raised()


def require_rows_left(n_rows: int, sizes: Indices, null_rank: int) -> None:
    """Refuse sizes of members that leave generalised cross-validation no degrees of freedom to
    divide by.
    """
    if sizes[-1] + null_rank >= n_rows:
        raise ValueError(
            "cv='gcv' divides by the fraction of the rows that members do not use up, but"
            f" {sizes[-1]} columns{' and the intercept' * null_rank} use up all {n_rows} rows."
            " Use cv=None, or more rows."
        )


def oob_curve(problem: RowData, sizes: Indices, paths: Paths, n_samples: int) -> RowCurve:
    """Out-of-bag pair products: a row is judged by the members without it, and C comes from pairs
    of such members.
    """
    n, q = problem.Y.shape
    p = problem.shape[1]
    path_data = _path_data(problem, sizes, n_samples, paths.threads)
    total = np.zeros((len(sizes), n, q))
    square = np.zeros((len(sizes), n, q))
    n_out_of_bag = np.zeros(n)
    n_members = 2 * paths.batch * paths.max_batches
    orders = paths.permutations(p, 0, n_members)
    row_orders = subsets.permutations(n, n_members, seed=paths.seed, stream=PATH_ROW_STREAM)
    row_subsets = row_orders[:, :n_samples]

    def follow(start: int, stop: int) -> list[Array]:
        data, of_members = path_data.for_orders(list(orders[start:stop]), int(sizes[-1]))
        return [
            prefix_residuals(data, order, sizes, rows)
            for order, rows in zip(of_members, row_subsets[start:stop], strict=True)
        ]

    for residual, rows in zip(paths.run(follow, n_members), row_subsets, strict=True):
        out = np.ones(n, dtype=bool)
        out[rows] = False
        total[:, out] += residual[:, out]
        square[:, out] += residual[:, out] ** 2
        n_out_of_bag += out
    has_pairs = n_out_of_bag >= 2
    if 2 * np.count_nonzero(has_pairs) < n:
        raise ValueError(
            f"cv='oob' judges a row by members that did not see it, but with {n_samples} of {n} rows in"
            f" a member only {np.count_nonzero(has_pairs)} rows were left out by two of"
            f" {n_members} members. Use a smaller max_samples, or another cv."
        )
    count = np.where(has_pairs, n_out_of_bag, 2.0)[None, :, None]
    single = (square / count).mean(axis=2)
    between = ((total**2 - square) / (count * (count - 1))).mean(axis=2)
    curve = RowCurve.from_products(
        sizes=sizes,
        group_sizes=balanced_groups(sizes, paths.n_items(p)),
        design="independent",
        weight=problem.weights * has_pairs,
        products=np.stack([single, between, between]),
        residual=total / count,
    )
    return curve.raised()


def kfold(
    problem: RowData,
    splits: Splits,
    training: list[Moments] | None,
    sizes: Indices,
    *,
    paths: Paths,
    n_samples: int | None,
) -> RowCurve:
    """Cross-validation over (train, test) splits; rows of the curve are the test rows of all splits
    in turn.

    Moments of the training rows, if passed, serve all paths; otherwise each member computes its
    Gram matrix. The number of members is that of the curve from moments of folds, so that both make
    the same choice.
    """
    folds = _path_folds(problem, splits, training)

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        by_member: list[list[Array]] = [[] for _ in orders]
        for any_fold in folds:
            fold, of_fold = any_fold.for_orders(orders, int(sizes[-1]))
            n = fold.data.columns.n
            row_subsets = _rows(
                paths, n, None if n_samples is None else min(n_samples, n), first, len(orders)
            )
            for residuals_of_member, order, rows in zip(
                by_member, of_fold, row_subsets, strict=True
            ):
                predicted = prefix_predictions(fold.data, fold.X, order, sizes, rows)
                residuals_of_member.append(fold.Y - predicted)
        return [np.concatenate(fold_residuals, axis=1) for fold_residuals in by_member]

    weight = np.concatenate([problem.weights[test] for _, test in splits])
    paths = replace(paths, max_batches=paths.min_batches)
    return paths.nested(
        n_columns=problem.shape[1],
        sizes=sizes,
        weight=weight,
        residuals=residuals,
        sums=_sums_of_folds(folds, paths.threads) if n_samples is None else None,
        row_fraction=_fraction(n_samples, problem.shape[0]),
    )


def kfold_by_target(
    problem: RowData,
    splits: Splits,
    training: list[Moments] | None,
    sizes: Indices,
    *,
    paths: Paths,
) -> list[RowCurve]:
    """Cross-validation as in :func:`kfold`, with a curve for each target from the same paths."""
    n_targets = problem.Y.shape[1]
    weight = np.concatenate([problem.weights[test] for _, test in splits])
    step = max(1, MAX_SUMS_BY_TARGET // (3 * len(sizes) * len(weight)))
    curves = []
    for start in range(0, n_targets, step):
        targets = slice(start, min(start + step, n_targets))
        folds = _path_folds(
            problem.targets_at(targets),
            splits,
            None if training is None else [moments.targets_at(targets) for moments in training],
        )
        curves += paths.nested_by_target(
            n_columns=problem.shape[1],
            sizes=sizes,
            weight=weight,
            sums=_sums_of_folds(folds, paths.threads),
            n_targets=targets.stop - targets.start,
        )
    return curves


@dataclass(frozen=True)
class _PathFold:
    """Training rows of the paths of a fold, and its test rows."""

    data: PathData
    X: Array  # (rows, p) test rows, centred at the means of the training rows
    Y: Array  # (rows, q)

    def for_orders(self, orders: list[Indices], size: int) -> tuple[_PathFold, list[Indices]]:
        """The fold, and the orders: all columns are here."""
        return self, orders

    def batches(self, orders: list[Indices], count: int) -> list[list[Indices]]:
        """Orders that are followed together."""
        return self.data.batches(orders, count)

    @cached_property
    def test_columns(self) -> Columns:
        """The test rows in the form of the kernels."""
        return Columns.plain(self.X.T, self.Y - self.data.columns.mean_y)


@dataclass(frozen=True)
class _WidePathFold:
    """A fold of rows whose columns are copied when paths need them."""

    data: WidePathData
    test: RowData

    def for_orders(self, orders: list[Indices], size: int) -> tuple[_PathFold, list[Indices]]:
        """The fold with the leading `size` columns of the orders, and the orders of these columns."""
        used = np.unique(np.concatenate([order[:size] for order in orders]))
        data, orders = self.data.for_orders(orders, size)
        X = gather(self.test.X, used, None) - data.columns.mean_x
        return _PathFold(data, X, self.test.Y), orders

    def batches(self, orders: list[Indices], count: int) -> list[list[Indices]]:
        """Orders that are followed together."""
        return self.data.batches(orders, count)


def _path_folds(
    problem: RowData, splits: Splits, training: list[Moments] | None
) -> list[_PathFold] | list[_WidePathFold]:
    """Training and test rows of the paths of every fold."""
    if stays_implicit(problem):
        return [
            _WidePathFold(WidePathData(problem.take(train)), problem.take(test))
            for train, test in splits
        ]
    folds = []
    for f, (train, test) in enumerate(splits):
        fold = problem.take(train, None if training is None else training[f])
        data = PathData.from_problem(fold, shared=training is not None)
        X = dense(problem.X, slice(None), test) - data.columns.mean_x
        folds.append(_PathFold(data, X, problem.Y[test]))
    return folds


def _sums_of_folds(folds: list[_PathFold] | list[_WidePathFold], threads: Threads) -> Sums:
    """Sums over pairs of members at the test rows of all folds in turn."""
    threads = threads.quiet()

    def sums(orders: list[Indices], sizes: Indices, n_pairs: int) -> Array:
        fold_sums = []
        for any_fold in folds:
            of_batches = []
            for batch in any_fold.batches(orders, 2 * n_pairs):
                fold, batch = any_fold.for_orders(batch, int(sizes[-1]))
                of_batches.append(
                    sum_pairs(fold.data, batch, sizes, n_pairs, threads, rows=fold.test_columns)
                )
            fold_sums.append(of_batches[0] if len(of_batches) == 1 else np.concatenate(of_batches))
        return np.concatenate(fold_sums, axis=3)

    return sums
