"""Risk curves over sizes of uniform members from residuals of few: leave-one-out, k-fold, GCV and out-of-bag.

A criterion turns a member into residuals of shape (sizes, rows, targets); all sizes of a member come from one nested
path along a permutation of the columns. Residuals are summed over antithetic pairs (a permutation and its reverse), and
``curve`` makes the curve of any ensemble size from these sums. Pairs are added in batches until the Monte-Carlo error
of the curve is small.
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
from .._execution.threads import Sharing, one_blas_thread
from .._members.path import PathData, pair_sums, prefix_predictions, prefix_residuals, sum_pairs
from .._members.problem import Columns, Problem
from .._moments import Moments, from_data, training_moments
from .curve import PairSums, RiskCurve, SizeCurve

__all__ = [
    "Criterion",
    "Paths",
    "Splits",
    "gcv",
    "kfold",
    "leave_one_out",
    "moments_of_training_rows",
    "oob_curve",
    "size_grid",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Splits = list[tuple[Indices, Indices]]  # rows to train on, rows to test on

PATHS = 2  # stream of the seed for permutations of paths: members of the fitted ensemble use 0 (columns) and 1 (rows)
PATH_ROWS = 3
TURNED = 0.1  # relative rise above the minimum beyond which larger sizes are given up after the first batch
ENOUGH = 0.015  # relative Monte-Carlo error of the curve at its minimum
SHARED = 6  # times the columns of the longest path: up to so many columns one Gram matrix serves all paths
AT_ONCE = 2_000_000  # residuals (sizes x rows) of batches that are followed at once


Batch = Callable[[list[Indices], Indices, int], list[Array]]


@dataclass(frozen=True)
class Criterion:
    """How the errors of members are measured.

    Parameters
    ----------
    name : {"loo", "kfold", "gcv"}
        What it is called.
    residuals : callable
        ``residuals(orders, sizes, first)`` of members number `first` and on: for every order of columns an array
        (sizes, rows, targets), of the members on its first columns.
    weight : ndarray of shape (rows,)
        Weights of the rows of the residuals.
    correct : callable or None
        What the curve lacks, where residuals alone do not tell.
    sums : callable or None
        ``sums(orders, sizes, batch)``: sums over batches of so many pairs of members at once, where they can be had
        without the residuals of every member.
    """

    name: str
    residuals: Batch
    weight: Array
    correct: Callable[[RiskCurve], RiskCurve] | None = None
    sums: Callable[[list[Indices], Indices, int], Array] | None = None


@dataclass(frozen=True)
class Paths:
    """How many members are followed and how."""

    seed: int
    design: str
    mapper: Sharing  # work(start, stop), n -> list: threads over members
    batch: int = 4  # pairs in a batch
    min_batches: int = 3
    max_batches: int = 10

    def nested(self, n_items: int, sizes: Indices, criterion: Criterion) -> RiskCurve:
        """The curve of uniform members, all sizes of each from one path.

        Batches of members are added until the curve is steady; several are followed at once where they will be needed.
        After the first one, sizes far beyond the minimum are dropped: the curve has turned and larger members cost the
        most.
        """

        def follow(first: int, last: int) -> Iterator[Array]:
            orders, each = self.orders(n_items, first, last), 2 * self.batch
            if criterion.sums is not None:
                return iter(criterion.sums(orders, sizes, self.batch))
            found = self.run(lambda a, b: criterion.residuals(orders[a:b], sizes, first * each + a), len(orders))
            return (_added(found[i : i + each]) for i in range(0, len(found), each))

        sums, done, precision = PairSums(criterion.weight), 0, np.inf
        while done < self.max_batches and precision >= ENOUGH:
            ahead = self._ahead(done, precision, len(sizes) * len(criterion.weight)) if done else 1
            for found in follow(done, done + ahead):
                sums.add(found, self.batch)
                done += 1
                if done == 1:
                    sizes = sizes[: _worth_following(sums.size_curve(sizes, n_items, self.design))]
                    sums.keep(len(sizes))
                elif done >= self.min_batches:
                    precision = self._precision(sums, sizes, n_items)
                    if precision < ENOUGH:
                        break
        curve = sums.curve(sizes, n_items, self.design)
        return curve if criterion.correct is None else criterion.correct(curve)

    def _ahead(self, done: int, precision: float, residuals: int) -> int:
        """How many batches, of so many residuals, to follow next: as many as will be needed and are no burden."""
        needed = self.min_batches if done < self.min_batches else math.ceil(min(done * (precision / ENOUGH) ** 2, 1e6))
        return max(1, min(needed - done, self.max_batches - done, AT_ONCE // residuals))

    def _precision(self, sums: PairSums, sizes: Indices, n_items: int) -> float:
        """Monte-Carlo error at the minimum of the curve, relative to it; infinite where it is not known.

        The standard error over rows would be the better yardstick, but it changes when a weight becomes repeated rows,
        and with it the number of paths.
        """
        noise = sums.monte_carlo_error()
        mse = sums.size_curve(sizes, n_items, self.design).mse(np.inf)
        best = int(np.argmin(mse))
        return np.inf if noise is None or not mse[best] > 0 else float(noise[best] / mse[best])

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


def _worth_following(curve: SizeCurve) -> int:
    """Number of leading sizes up to the last whose error is near the smallest."""
    mse = curve.mse(100)
    near = mse <= mse.min() + TURNED * abs(mse.min())
    return int(np.flatnonzero(near)[-1]) + 1 if near.any() else len(mse)


def size_grid(largest: int, count: int) -> Indices:
    """At most about `count` sizes from 1 to `largest`: half of them evenly spaced, half on a logarithmic scale."""
    if largest <= count:
        return np.arange(1, largest + 1)
    even = np.linspace(1, largest, count // 2)
    log = np.geomspace(1, largest, count // 2)
    return np.unique(np.rint(np.concatenate([even, log])).astype(np.int64))


def _weight(problem: Problem) -> Array:
    return np.ones(problem.shape[0]) if problem.weight is None else problem.weight


def _path_data(problem: Problem, sizes: Indices, n_samples: int | None, mapper: Sharing) -> PathData:
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


def leave_one_out(problem: Problem, sizes: Indices, paths: Paths, n_samples: int | None = None) -> Criterion:
    """Exact leave-one-out; rows a member was not given count as they are."""
    data = _path_data(problem, sizes, n_samples, paths.mapper)

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        rows = _rows(paths, problem.shape[0], n_samples, first, len(orders))
        return [prefix_residuals(data, order, sizes, own) for order, own in zip(orders, rows, strict=True)]

    sums = None if n_samples is not None else partial(sum_pairs, data, mapper=paths.mapper)
    return Criterion("loo", residuals, _weight(problem), sums=sums)


def gcv(problem: Problem, sizes: Indices, paths: Paths, n_samples: int | None = None) -> Criterion:
    r"""Generalised cross-validation: every leverage replaced by the mean one.

    With row subsets the diagonal is corrected (Bellec and others, arXiv 2310.01374), with df = m:

    .. math:: A \leftarrow A - \frac{(df/n)^2 (n/\tau - 1)}{(1-df/n)^2}
              \cdot \frac{\overline{r^2}}{1 - 2 df/n + df^2/(\tau n)}
    """
    n, lost = problem.shape[0], int(problem.fit_intercept)
    data = _path_data(problem, sizes, n_samples, paths.mapper)

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        rows = _rows(paths, n, n_samples, first, len(orders))
        X, left = (data.columns.A / data.columns.root)[:, :n].T, (1 - (sizes + lost) / n)[:, None, None]
        fitted = (prefix_predictions(data, X, order, sizes, own) for order, own in zip(orders, rows, strict=True))
        return [(problem.Y - f) / left for f in fitted]

    correct = None if n_samples is None else partial(_correct_gcv, n, n_samples, lost)
    return Criterion("gcv", residuals, _weight(problem), correct)


def _correct_gcv(n: int, n_samples: int, lost: int, curve: RiskCurve) -> RiskCurve:
    df = (curve.sizes + lost) / n
    raw = curve.own * (1 - df)[:, None] ** 2
    own_risk = raw / (1 - 2 * df + df**2 * n / n_samples)[:, None]
    correction = (df**2 * (n / n_samples - 1) / (1 - df) ** 2)[:, None] * own_risk
    return replace(curve, own=curve.own - correction)


def oob_curve(problem: Problem, sizes: Indices, paths: Paths, n_samples: int) -> RiskCurve:
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
    own, other = square / times, (total**2 - square) / (times * (times - 1))
    weight = _weight(problem) * seen
    own, other = own.mean(axis=2), other.mean(axis=2)
    return RiskCurve(sizes, problem.shape[1], "independent", weight, own, other, other, total / times)


def kfold(problem: Problem, sizes: Indices, paths: Paths, splits: Splits, n_samples: int | None = None) -> Criterion:
    """Cross-validation over given (train, test) splits; rows of the curve are the test rows of all splits in turn.

    Gram matrices of the training sets serve all paths where they are cheaper than one for each.
    """
    shared = n_samples is None and problem.shape[1] <= 3 * int(sizes[-1])
    grams = [m.G for m in moments_of_training_rows(problem, splits)] if shared else [None] * len(splits)
    parts = []
    for (train, test), G in zip(splits, grams, strict=True):
        fold = problem.take(train)
        data = PathData.from_problem(fold, shared=False, G=G)
        X = np.asarray(_dense_rows(problem, test)) - fold.means[0]
        parts.append((data, X, problem.Y[test]))

    def residuals(orders: list[Indices], sizes: Indices, first: int) -> list[Array]:
        found: list[list[Array]] = [[] for _ in orders]
        for data, X, Y in parts:
            n = data.columns.n
            rows = _rows(paths, n, None if n_samples is None else min(n_samples, n), first, len(orders))
            for own, order, drawn in zip(found, orders, rows, strict=True):
                own.append(Y - prefix_predictions(data, X, order, sizes, drawn))
        return [np.concatenate(own, axis=1) for own in found]

    packed = [(data, Columns.plain(X.T, Y - data.columns.mean_y)) for data, X, Y in parts if n_samples is None]

    def sums(orders: list[Indices], sizes: Indices, batch: int) -> Array:
        folds = [sum_pairs(data, orders, sizes, batch, paths.mapper, rows) for data, rows in packed]
        return np.concatenate(folds, axis=3)

    weight = np.concatenate([_weight(problem)[test] for _, test in splits])
    return Criterion("kfold", residuals, weight, sums=sums if n_samples is None else None)


def _dense_rows(problem: Problem, rows: Indices) -> Array:
    part = problem.X[rows]
    found: Array = part.toarray() if hasattr(part, "toarray") else part
    return found


def moments_of_training_rows(problem: Problem, splits: Splits, mapper: Sharing | None = None) -> list[Moments]:
    """Of every split; where the test rows partition all rows, merged from theirs, which cost one pass together."""

    def moments(rows: Indices) -> Moments:
        part = problem.take(rows)
        return from_data(part.X, part.Y, part.weight, centre=part.fit_intercept, mapper=mapper)

    n = problem.shape[0]
    tests = np.sort(np.concatenate([test for _, test in splits]))
    complements = all(len(train) + len(test) == n for train, test in splits)
    with one_blas_thread():  # held once for all of them
        if not complements or not np.array_equal(tests, np.arange(n)):
            return [moments(train) for train, _ in splits]
        return training_moments([moments(test) for _, test in splits])
