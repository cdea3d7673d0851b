r"""Estimated error of an ensemble for every size and number of uniform members, from the residuals of a few members.

Errors of an average are averages of pair products. With A the mean of :math:`e_i^2`, S that of :math:`e_i e_j` for two
members of one balanced group (which avoid each other) and C that of members of different groups, k members have

.. math:: R_k = \frac{k A + s\, S + (k^2 - k - s)\, C}{k^2}, \qquad R_\infty = C,

s being the number of ordered pairs within groups. Status: exact in expectation, for any k. A permutation and its
reverse are distributed as two members of one group (disjoint, or with disjoint complements), so A, S and C all come
from K members taken in such antithetic pairs.

A criterion (leave-one-out, k-fold, GCV, out-of-bag) turns a member into residuals of shape (sizes, rows, targets); all
sizes of a member come from one nested path along a permutation of the columns. Pairs are added in batches until the
Monte-Carlo error of the curve is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from .. import subsets
from .._execution.threads import Threads, cached_property
from .._members.path import PathData, pair_sums, prefix_predictions, prefix_residuals, sum_pairs
from .._members.problem import Columns, Problem
from .._moments.moments import Moments

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Splits = list[tuple[Indices, Indices]]  # rows to train on, rows to test on

PATHS = 2  # stream of the seed for permutations of paths: members of the fitted ensemble use 0 (columns) and 1 (rows)
PATH_ROWS = 3
TURNED = 0.1  # relative rise above the minimum beyond which larger sizes are given up after the first batch
ENOUGH = 0.015  # relative Monte-Carlo error of the curve at its minimum
SHARED = 6  # times the columns of the longest path: up to so many columns one Gram matrix serves all paths
AT_ONCE = 2_000_000  # residuals (sizes x rows) of batches that are followed at once

# ``residuals(orders, sizes, first)`` of members number `first` and on: for every order of columns an array of shape
# (sizes, rows, targets), of the members on its first columns
Residuals = Callable[[list[Indices], Indices, int], list[Array]]
# ``sums(orders, sizes, batch)``: sums over batches of so many pairs of members, without the residuals of every member
Sums = Callable[[list[Indices], Indices, int], Array]


def pair_means(own: Array, pair: Array, mean: Array, n_pairs: int) -> Array:
    """A, S and C, (3, ...), from mean squares of single members, of the means of pairs, and of the mean of all."""
    k = 2 * n_pairs
    same = 2 * pair - own
    return np.stack([own, same, (k * k * mean - k * own - k * same) / (k * k - 2 * k)])


@dataclass(frozen=True)
class RiskCurve:
    """Pair means by member size: the error of any number of members."""

    sizes: Indices
    n_items: int  # columns that members are drawn from
    design: str
    products: Array  # (3, sizes) A, S and C

    @classmethod
    def mean_of(cls, curves: list[RiskCurve]) -> RiskCurve:
        """Of several targets: over the sizes that all of them have."""
        first, count = curves[0], min(len(curve.sizes) for curve in curves)
        if len(curves) == 1:
            return first
        products = np.mean([curve.products[:, :count] for curve in curves], axis=0)
        return cls(first.sizes[:count], first.n_items, first.design, products)

    def lacking(self, mean_square: Array) -> Array:
        """What A, S and C lack, (3, sizes): few pairs may put them below what can be.

        C is the squared mean residual of the members that were followed, less what sampling them adds to it. Where
        members have huge residuals the difference is noise, and may even be negative; such a size must not look like
        the best one, so that C is at least a quarter of that square. No group does better than infinitely many members,
        but S comes from few pairs, and with hundreds of members in a group its noise would count most.
        """
        own, same, other = self.products
        of_other = np.maximum(0.0, mean_square / 4 - other)
        least = other + of_other - (own - other - of_other) / np.maximum(self._groups - 1, 1)
        return np.stack([np.zeros(len(own)), np.maximum(0.0, least - same), of_other])

    def shifted(self, by: float) -> RiskCurve:
        """With so much more error at every size; none becomes negative."""
        return replace(self, products=self.products + max(by, -0.9 * float(self.products[2].min(initial=np.inf))))

    @cached_property
    def _groups(self) -> Indices:
        """Members in a balanced group, for every size."""
        return subsets.group_size(self.sizes / self.n_items)

    def combine(self, products: Array, k: float) -> Array:
        """R_k from A, S and C (3, sizes, ...); ``inf`` is allowed."""
        own, same, other = products
        if np.isinf(k):
            return np.asarray(other)
        share = np.zeros(len(self.sizes))  # of all ordered pairs of members, those within a balanced group: s / k^2
        if self.design == "balanced":
            full, rest = np.divmod(int(k), self._groups)
            share = (full * self._groups * (self._groups - 1) + rest * (rest - 1)) / k**2
        share = share.reshape(-1, *[1] * (own.ndim - 1))
        return np.asarray(own / k + share * same + (1 - 1 / k - share) * other)

    def mse(self, k: float) -> Array:
        """Estimated error at every size for k members."""
        return self.combine(self.products, k)

    def members_for(self, index: int, excess: float) -> int:
        """Members that keep the error at one size within `excess` of that of infinitely many."""
        limit = (1 + excess) * self.mse(np.inf)[index]
        candidates = np.unique(np.rint(np.geomspace(10, 5000, 200)).astype(int))
        return next((int(k) for k in candidates if self.mse(k)[index] <= limit), 5000)


@dataclass(frozen=True)
class RowCurve:
    """A risk curve with what it is the average of, row by row."""

    average: RiskCurve
    weight: Array  # (n,)
    products: Array  # (3, sizes, n)
    residual: Array  # (sizes, n, q) mean residual over the members of the path

    @classmethod
    def from_products(
        cls, sizes: Indices, n_items: int, design: str, weight: Array, products: Array, residual: Array
    ) -> RowCurve:
        """From A, S and C of every row."""
        average = RiskCurve(sizes, n_items, design, products @ (weight / weight.sum()))
        return cls(average, weight, products, residual)

    def with_products(self, products: Array, residual: Array) -> RowCurve:
        """The same sizes and rows with other products."""
        about = self.average
        return RowCurve.from_products(about.sizes, about.n_items, about.design, self.weight, products, residual)

    def raised(self, mean_square: Array | None = None) -> RowCurve:
        """With C and S not below what can be; squared mean residuals (sizes,) must be given where rows have none."""
        if mean_square is None:
            square = np.einsum("slt,slt,l->s", self.residual, self.residual, self.weight / self.weight.sum())
            mean_square = square / self.residual.shape[2]
        lacking = self.average.lacking(mean_square)
        return self.with_products(self.products + lacking[:, :, None], self.residual)

    def standard_error(self, k: float) -> Array:
        """Standard error of the estimated error over rows."""
        rows, share = self.average.combine(self.products, k), self.weight / self.weight.sum()
        return np.asarray(np.sqrt(np.sum(share**2 * (rows - self.average.mse(k)[:, None]) ** 2, axis=1)))

    def scaled(self, mu: float, deviation: Array) -> RowCurve:
        r"""The curve of members scaled about the mean target.

        With deviations d (n, q) of the targets from their mean without the row, a residual becomes
        :math:`(1 - \mu) d + \mu e`, and products of residuals follow.
        """
        square = (1 - mu) ** 2 * np.mean(deviation**2, axis=1)
        cross = 2 * mu * (1 - mu) * np.mean(deviation * self.residual, axis=2)
        products, residual = square + cross + mu**2 * self.products, (1 - mu) * deviation + mu * self.residual
        return self.with_products(products, residual).raised()  # of few rows C is noise, and the sum may be negative


@dataclass(frozen=True)
class Paths:
    """How many members are followed and how."""

    seed: int
    design: str
    mapper: Threads  # work(start, stop), n -> list: threads over members
    batch: int = 4  # pairs in a batch
    min_batches: int = 3
    max_batches: int = 10

    def nested(
        self, n_items: int, sizes: Indices, weight: Array, residuals: Residuals, sums: Sums | None = None
    ) -> RowCurve:
        """The curve of uniform members, all sizes of each from one path.

        Batches of members are added until the curve is steady; several are followed at once where they will be needed.
        After the first one, sizes far beyond the minimum are dropped: the curve has turned and larger members cost the
        most.
        """
        share = weight / weight.sum()

        def follow(first: int, last: int) -> Iterator[Array]:
            orders, each = self.orders(n_items, first, last), 2 * self.batch
            if sums is not None:
                return iter(sums(orders, sizes, self.batch))
            found = self.run(lambda a, b: residuals(orders[a:b], sizes, first * each + a), len(orders))
            return (_added(found[i : i + each]) for i in range(0, len(found), each))

        def averaged(sums: Array, n_pairs: int) -> tuple[Array, Array]:
            """A, S and C (3, sizes), and the squared mean residual, averaged over rows and targets."""
            (total, square, pair), per_row = sums, share / sums.shape[3]
            own = np.einsum("slt,l->s", square, per_row) / (2 * n_pairs)
            pair = np.einsum("slt,l->s", pair, per_row) / n_pairs
            mean_square = np.einsum("slt,slt,l->s", total, total, per_row) / (2 * n_pairs) ** 2
            return pair_means(own, pair, mean_square, n_pairs), mean_square

        total, others, precision = np.zeros(()), list[Array](), np.inf
        while len(others) < self.max_batches and precision >= ENOUGH:
            done = len(others)
            ahead = self._ahead(done, precision, len(sizes) * len(share)) if done else 1
            for found in follow(done, done + ahead):
                total = total + found
                others.append(averaged(found, self.batch)[0][2])
                done = len(others)
                if 1 < done < self.min_batches:
                    continue
                products, mean_square = averaged(total, done * self.batch)
                curve = RiskCurve(sizes, n_items, self.design, products)
                curve = replace(curve, products=products + curve.lacking(mean_square))
                if done == 1:
                    sizes = sizes[: _worth_following(curve.mse(100))]
                    total, others = total[:, : len(sizes)], [others[0][: len(sizes)]]
                else:
                    precision = _precision(curve.mse(np.inf), others)
                    if precision < ENOUGH:
                        break
        n_pairs = len(others) * self.batch
        residual, square, pair = total[0] / (2 * n_pairs), total[1] / (2 * n_pairs), total[2] / n_pairs
        products = pair_means(square, pair, residual**2, n_pairs).mean(axis=3)
        return RowCurve.from_products(sizes, n_items, self.design, weight, products, residual).raised()

    def _ahead(self, done: int, precision: float, residuals: int) -> int:
        """How many batches, of so many residuals, to follow next: as many as will be needed and are no burden."""
        needed = self.min_batches if done < self.min_batches else math.ceil(min(done * (precision / ENOUGH) ** 2, 1e6))
        return max(1, min(needed - done, self.max_batches - done, AT_ONCE // residuals))

    def orders(self, n_items: int, start: int, stop: int) -> list[Indices]:
        """Permutations of some batches, each followed by its reverse."""
        first, last = start * self.batch, stop * self.batch
        orders = subsets.permutations(n_items, last, seed=self.seed, start=first, stream=PATHS)
        return [order for forward in orders for order in (forward, forward[::-1])]

    def run(self, work: Callable[[int, int], list[Array]], count: int) -> list[Array]:
        """``work(start, stop)`` on members, shared among threads, as one list."""
        return list(chain.from_iterable(self.mapper(work, count)))


def _added(residuals: list[Array]) -> Array:
    """Sums over pairs of members, which come one after the other."""
    pairs = zip(residuals[::2], residuals[1::2], strict=True)
    return np.asarray(sum(pair_sums(first, second) for first, second in pairs))


def _worth_following(mse: Array) -> int:
    """Number of leading sizes up to the last whose error is near the smallest."""
    near = mse <= mse.min() + TURNED * abs(mse.min())
    return int(np.flatnonzero(near)[-1]) + 1 if near.any() else len(mse)


def _precision(mse: Array, batches: list[Array]) -> float:
    """Monte-Carlo error over batches at the minimum of the curve, relative to it; infinite where it is not known.

    The standard error over rows would be the better yardstick, but it changes when a weight becomes repeated rows, and
    with it the number of paths.
    """
    best = int(np.argmin(mse))
    if len(batches) < 2 or not mse[best] > 0:
        return np.inf
    return float(np.std([batch[best] for batch in batches], ddof=1) / np.sqrt(len(batches)) / mse[best])


def size_grid(largest: int, count: int) -> Indices:
    """At most about `count` sizes from 1 to `largest`: half of them evenly spaced, half on a logarithmic scale."""
    if largest <= count:
        return np.arange(1, largest + 1)
    even = np.linspace(1, largest, count // 2)
    log = np.geomspace(1, largest, count // 2)
    return np.unique(np.rint(np.concatenate([even, log])).astype(np.int64))


def _path_data(problem: Problem, sizes: Indices, n_samples: int | None, mapper: Threads) -> PathData:
    """One Gram matrix for all paths where that is cheaper than one for each."""
    shared = n_samples is None and problem.shape[1] <= SHARED * int(sizes[-1])
    if shared:
        problem.moments_by(mapper)  # by all threads, and kept for the members
    return PathData.from_problem(problem, shared=shared)


def _rows(paths: Paths, n: int, n_samples: int | None, first: int, count: int) -> list[Indices | None]:
    """Rows of members number `first` and on; None: all."""
    if n_samples is None:
        return [None] * count
    drawn = subsets.draw(
        n, first + count, start=first, size=n_samples, design=paths.design, seed=paths.seed, stream=PATH_ROWS
    )
    return list(drawn)


def leave_one_out(problem: Problem, sizes: Indices, paths: Paths, n_samples: int | None = None) -> RowCurve:
    """Exact leave-one-out; rows a member was not given count as they are."""
    data = _path_data(problem, sizes, n_samples, paths.mapper)

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        rows = _rows(paths, problem.shape[0], n_samples, first, len(orders))
        return [prefix_residuals(data, order, sizes, own) for order, own in zip(orders, rows, strict=True)]

    sums = None if n_samples is not None else partial(sum_pairs, data, mapper=paths.mapper)
    return paths.nested(problem.shape[1], sizes, problem.weights, residuals, sums)


def gcv(problem: Problem, sizes: Indices, paths: Paths, n_samples: int | None = None) -> RowCurve:
    r"""Generalised cross-validation: every leverage replaced by the mean one.

    With row subsets the diagonal is corrected (Bellec and others, arXiv 2310.01374), with df = m:

    .. math:: A \leftarrow A - \frac{(df/n)^2 (n/\tau - 1)}{(1-df/n)^2}
              \cdot \frac{\overline{r^2}}{1 - 2 df/n + df^2/(\tau n)}
    """
    (n, p), lost = problem.shape, int(problem.fit_intercept)
    require_rows_left(n, sizes, lost)
    data = _path_data(problem, sizes, n_samples, paths.mapper)

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        rows = _rows(paths, n, n_samples, first, len(orders))
        X, left = (data.columns.A / data.columns.root)[:, :n].T, (1 - (sizes + lost) / n)[:, None, None]
        fitted = (prefix_predictions(data, X, order, sizes, own) for order, own in zip(orders, rows, strict=True))
        return [(problem.Y - f) / left for f in fitted]

    curve = paths.nested(p, sizes, problem.weights, residuals)
    if n_samples is None:
        return curve
    df, (own, same, other) = (curve.average.sizes[:, None] + lost) / n, curve.products
    own_risk = own * (1 - df) ** 2 / (1 - 2 * df + df**2 * n / n_samples)
    correction = df**2 * (n / n_samples - 1) / (1 - df) ** 2 * own_risk
    return curve.with_products(np.stack([own - correction, same, other]), curve.residual).raised()


def require_rows_left(n_rows: int, sizes: Indices, lost: int) -> None:
    """Refuse sizes of members that leave generalised cross-validation no rows to divide by."""
    if sizes[-1] + lost >= n_rows:
        raise ValueError(
            f"cv='gcv' divides by the share of the rows that members do not use up, but {sizes[-1]} columns"
            f"{' and the intercept' * lost} use up all {n_rows} rows. Use cv=None, or more rows."
        )


def oob_curve(problem: Problem, sizes: Indices, paths: Paths, n_samples: int) -> RowCurve:
    """Out-of-bag pair products: only members that were not given a row speak about it, and pairs of them for C."""
    n, q = problem.Y.shape
    data = _path_data(problem, sizes, n_samples, paths.mapper)
    total, square, count = np.zeros((len(sizes), n, q)), np.zeros((len(sizes), n, q)), np.zeros(n)
    members = 2 * paths.batch * paths.max_batches
    orders = subsets.permutations(problem.shape[1], members, seed=paths.seed, stream=PATHS)
    given = _rows(paths, n, n_samples, 0, members)
    found = paths.run(lambda a, b: [prefix_residuals(data, orders[i], sizes, given[i]) for i in range(a, b)], members)
    for residual, rows in zip(found, given, strict=True):
        out = np.ones(n, dtype=bool)
        out[rows] = False
        total[:, out] += residual[:, out]
        square[:, out] += residual[:, out] ** 2
        count += out
    seen = count >= 2
    times = np.where(seen, count, 2.0)[None, :, None]
    own, other = (square / times).mean(axis=2), ((total**2 - square) / (times * (times - 1))).mean(axis=2)
    products, weight = np.stack([own, other, other]), problem.weights * seen
    return RowCurve.from_products(sizes, problem.shape[1], "independent", weight, products, total / times).raised()


def kfold(
    problem: Problem, splits: Splits, training: list[Moments] | None, sizes: Indices, paths: Paths, drawn: int | None
) -> RowCurve:
    """Cross-validation over given (train, test) splits; rows of the curve are the test rows of all splits in turn.

    Moments of the training rows, if given, serve all paths; otherwise members make a Gram matrix each. With as many
    members as from moments of folds, so that the choice is the same.
    """
    parts = []
    for f, (train, test) in enumerate(splits):
        fold = problem.take(train, None if training is None else training[f])
        X = problem.X[test]
        X = (X.toarray() if hasattr(X, "toarray") else X) - fold.means[0]
        parts.append((PathData.from_problem(fold, shared=training is not None), X, problem.Y[test]))

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        found: list[list[Array]] = [[] for _ in orders]
        for data, X, Y in parts:
            n = data.columns.n
            rows = _rows(paths, n, None if drawn is None else min(drawn, n), first, len(orders))
            for own, order, given in zip(found, orders, rows, strict=True):
                own.append(Y - prefix_predictions(data, X, order, sizes, given))
        return [np.concatenate(own, axis=1) for own in found]

    packed = [(data, Columns.plain(X.T, Y - data.columns.mean_y)) for data, X, Y in parts if drawn is None]

    def sums(orders: list[Indices], sizes: Indices, batch: int) -> Array:
        folds = [sum_pairs(data, orders, sizes, batch, paths.mapper, rows) for data, rows in packed]
        return np.concatenate(folds, axis=3)

    weight = np.concatenate([problem.weights[test] for _, test in splits])
    paths = replace(paths, max_batches=paths.min_batches)
    return paths.nested(problem.shape[1], sizes, weight, residuals, sums if drawn is None else None)
