"""Risk curves over member sizes: leave-one-out, k-fold, GCV and out-of-bag, all from the same nested paths.

Every criterion turns a path member into residuals of shape (sizes, rows, targets) and sums them over antithetic pairs
(a permutation and its reverse); ``_risk_curve`` makes the curve of any ensemble size from these sums. Pairs are added
in batches until the Monte-Carlo error of the curve is small next to its standard error over rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from . import subsets
from ._members.path import PathData, prefix_coefficients, prefix_residuals, row_prefix_residuals
from ._members.problem import Problem
from ._moments import Moments, from_data, weighted_mean
from ._risk_curve import PairSums, RiskCurve

__all__ = ["Paths", "gcv_curve", "kfold_curve", "loo_curve", "moment_gcv_curve", "oob_curve", "row_curve", "size_grid"]

PATHS = 2  # stream of the seed for permutations of paths: members of the fitted ensemble use 0 (columns) and 1 (rows)
PATH_ROWS = 3


@dataclass(frozen=True)
class Paths:
    """How many paths are followed and how."""

    seed: int
    design: str
    mapper: object  # work(start, stop), n -> list: threads over members
    batch: int = 4  # pairs in a batch
    min_batches: int = 3
    max_batches: int = 10

    def pairs(self, n_items: int, batch: int, stream: int = PATHS) -> list[tuple[NDArray, NDArray]]:
        """Permutations of one batch, each with its reverse."""
        first = batch * self.batch
        orders = subsets.permutations(n_items, first + self.batch, seed=self.seed, start=first, stream=stream)
        return [(order, order[::-1]) for order in orders]

    def follow(self, n_items: int, sizes: NDArray, weight: NDArray, residuals, stream: int = PATHS) -> RiskCurve:
        """Add batches of ``residuals(order, sizes, member) -> (sizes, n, q)`` until the curve is steady.

        After the first batch, sizes far beyond the minimum are dropped: the curve has turned and larger members cost
        the most.
        """
        sums = PairSums()
        for batch in range(self.max_batches):
            jobs = [order for pair in self.pairs(n_items, batch, stream) for order in pair]
            found = self._run(partial(self._residuals, residuals, jobs, sizes, batch), len(jobs))
            sums.add(list(zip(found[::2], found[1::2], strict=True)), weight)
            curve = sums.curve(sizes, n_items, self.design, weight)
            if batch == 0:
                keep = _worth_following(curve)
                sizes, sums = sizes[:keep], sums.head(keep)
            elif batch + 1 >= self.min_batches and _steady(curve):
                break
        return curve

    def _residuals(self, residuals, jobs, sizes, batch, i):
        return residuals(jobs[i], sizes, batch * 2 * self.batch + i)

    def _run(self, one, count):
        found: list = [None] * count

        def work(start, stop):
            for i in range(start, stop):
                found[i] = one(i)

        self.mapper(work, count, chunk=1)  # type: ignore[operator]
        return found


def _worth_following(curve: RiskCurve) -> int:
    """Number of leading sizes up to the last whose error is within half of the smallest."""
    mse = curve.mse(100)
    near = mse <= mse.min() + 0.5 * abs(mse.min())
    return int(np.flatnonzero(near)[-1]) + 1 if near.any() else len(mse)


def _steady(curve: RiskCurve) -> bool:
    """Whether the Monte-Carlo error at the minimum is below one per cent.

    The standard error over rows would be the better yardstick, but it changes when a weight becomes repeated rows, and
    with it the number of paths.
    """
    mse = curve.mse(np.inf)
    best = np.argmin(mse)
    noise = curve.monte_carlo_error
    return noise is not None and noise[best] < 0.01 * mse[best]


def size_grid(largest: int, count: int = 50) -> NDArray[np.int64]:
    """At most about `count` sizes from 1 to `largest`: half of them evenly spaced, half on a logarithmic scale."""
    if largest <= count:
        return np.arange(1, largest + 1)
    even = np.linspace(1, largest, count // 2)
    log = np.geomspace(1, largest, count // 2)
    return np.unique(np.rint(np.concatenate([even, log])).astype(np.int64))


def _weight(problem: Problem) -> NDArray:
    return np.ones(problem.shape[0]) if problem.weight is None else problem.weight


def _path_data(problem: Problem, sizes, n_samples) -> PathData:
    """One Gram matrix for all paths where that is cheaper than one for each."""
    return PathData.from_problem(problem, shared=n_samples is None and problem.shape[1] <= 3 * int(sizes[-1]))


def _rows(paths: Paths, n: int, n_samples: int | None, member: int) -> NDArray | None:
    if n_samples is None:
        return None
    how = {"size": n_samples, "design": paths.design, "seed": paths.seed, "stream": PATH_ROWS}
    return subsets.draw(n, member + 1, start=member, **how)[0]  # type: ignore[arg-type]


def loo_curve(problem: Problem, sizes: NDArray, paths: Paths, n_samples: int | None = None) -> RiskCurve:
    """Exact leave-one-out; rows a member was not given count as they are."""
    data = _path_data(problem, sizes, n_samples)

    def residuals(order, sizes, member):
        return prefix_residuals(data, order, sizes, _rows(paths, len(data.Y), n_samples, member))

    return paths.follow(problem.shape[1], sizes, _weight(problem), residuals)


def row_curve(problem: Problem, sizes: NDArray, paths: Paths) -> RiskCurve:
    """Exact leave-one-out of minimum-norm members on all columns, over the number of rows they are given."""
    data = PathData.from_problem(problem, shared=False)
    K = data.Xt.T @ data.Xt
    repeated = len(K) - problem.distinct_rows()
    if repeated:
        raise ValueError(
            f"{repeated} rows repeat others, and members cannot interpolate twins. Drop them, or tune 'max_features'."
        )

    def residuals(order, sizes, member):
        return row_prefix_residuals(K, data.Y, order, sizes, fit_intercept=data.fit_intercept)

    return paths.follow(len(K), sizes, _weight(problem), residuals)


def gcv_curve(problem: Problem, sizes: NDArray, paths: Paths, n_samples: int | None = None) -> RiskCurve:
    r"""Generalised cross-validation: every leverage replaced by the mean one.

    With row subsets the diagonal is corrected (Bellec and others, arXiv 2310.01374), with df = m:

    .. math:: A \leftarrow A - \frac{(df/n)^2 (n/\tau - 1)}{(1-df/n)^2}
              \cdot \frac{\overline{r^2}}{1 - 2 df/n + df^2/(\tau n)}
    """
    n = problem.shape[0]
    data = _path_data(problem, sizes, n_samples)
    lost = int(problem.fit_intercept)

    def residuals(order, sizes, member):
        rows = _rows(paths, n, n_samples, member)
        coef = prefix_coefficients(data, order, sizes, rows)
        centred = data.Y - _mean(data, data.Y, rows)
        shift = np.zeros(len(data.Xt)) if rows is None else _mean(data, data.Xt.T, rows)
        fitted = np.stack([(data.Xt - shift[:, None]).T @ b for b in coef])
        return (centred - fitted) / (1 - (sizes + lost) / n)[:, None, None]

    curve = paths.follow(problem.shape[1], sizes, _weight(problem), residuals)
    if n_samples is None:
        return curve
    df = (curve.sizes + lost) / n
    raw = curve.own * (1 - df)[:, None] ** 2
    own_risk = raw / (1 - 2 * df + df**2 * n / n_samples)[:, None]
    correction = (df**2 * (n / n_samples - 1) / (1 - df) ** 2)[:, None] * own_risk
    return RiskCurve(**{**vars(curve), "own": curve.own - correction})


def _mean(data: PathData, values, rows):
    if not data.fit_intercept:
        return np.zeros(values.shape[1])
    weight = data.weight if rows is None else data.weight[rows]
    return weight @ (values if rows is None else values[rows]) / weight.sum()


def oob_curve(problem: Problem, sizes: NDArray, paths: Paths, n_samples: int) -> RiskCurve:
    """Out-of-bag pair products: only members that were not given a row speak about it, and pairs of them for C."""
    n, q = problem.Y.shape
    data = _path_data(problem, sizes, n_samples)
    total, square, count = np.zeros((len(sizes), n, q)), np.zeros((len(sizes), n, q)), np.zeros(n)
    members = 2 * paths.batch * paths.max_batches
    orders = subsets.permutations(problem.shape[1], members, seed=paths.seed, stream=PATHS)
    given = [_rows(paths, n, n_samples, i) for i in range(members)]
    found = paths._run(lambda i: prefix_residuals(data, orders[i], sizes, given[i]), members)
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
    return RiskCurve(sizes, problem.shape[1], "independent", weight, own, other, other, total / times, None)


def kfold_curve(problem: Problem, sizes: NDArray, paths: Paths, splits, n_samples: int | None = None) -> RiskCurve:
    """Cross-validation over given (train, test) splits; rows of the curve are the test rows of all splits in turn.

    Gram matrices of the training sets are merged from moments of the test sets where these partition the rows, so
    they cost one pass together.
    """
    grams = _training_grams(problem, splits, sizes) if n_samples is None else [None] * len(splits)
    parts = []
    for (train, test), G in zip(splits, grams, strict=True):
        fold = problem.take(train)
        data = PathData.from_problem(fold, shared=False, G=G)
        mean_x = _column_means(fold)
        parts.append((data, np.asarray(_dense_rows(problem.X, test)) - mean_x, problem.Y[test]))

    def residuals(order, sizes, member):
        out = []
        for data, X, Y in parts:
            rows = _rows(paths, len(data.Y), min(n_samples, len(data.Y)), member) if n_samples else None
            coef = prefix_coefficients(data, order, sizes, rows)
            centre = _mean(data, data.Y, rows)
            shift = np.zeros(len(data.Xt)) if rows is None else _mean(data, data.Xt.T, rows)
            out.append(np.stack([Y - centre - (X - shift) @ b for b in coef]))
        return np.concatenate(out, axis=1)

    weight = _weight(problem)
    return paths.follow(problem.shape[1], sizes, np.concatenate([weight[test] for _, test in splits]), residuals)


def _column_means(problem: Problem):
    return weighted_mean(problem.X, problem.weight) if problem.fit_intercept else np.zeros(problem.shape[1])


def _dense_rows(X, rows):
    part = X[rows]
    return part.toarray() if hasattr(part, "toarray") else part


def _training_grams(problem: Problem, splits, sizes) -> list[NDArray | None]:
    n, p = problem.shape
    tests = np.sort(np.concatenate([test for _, test in splits]))
    complements = all(len(train) + len(test) == n for train, test in splits)
    if p > 3 * int(sizes[-1]) or not (complements and np.array_equal(tests, np.arange(n))):
        return [None] * len(splits)
    moments = []
    for _, test in splits:
        fold = problem.take(test)
        moments.append(from_data(fold.X, fold.Y, fold.weight, centre=problem.fit_intercept))
    return [_merge_others(moments, i).G for i in range(len(moments))]


def _merge_others(moments: list[Moments], left_out: int) -> Moments:
    """Moments of all folds but one, by merging: subtracting from the total would cancel."""
    others = [m for i, m in enumerate(moments) if i != left_out]
    merged = others[0]
    for m in others[1:]:
        merged = merged.merge(m)
    return merged


def moment_gcv_curve(moments: Moments, sizes: NDArray, paths: Paths) -> RiskCurve:
    """GCV from the moments alone: no row is touched again, so n does not matter.

    Residual sums of squares of a coefficient vector b are y'y - 2 b'c + b'Gb. For n far above p, leverages are small
    and GCV and leave-one-out agree.
    """
    n, p = moments.n_rows, len(moments.G)

    def coefficients(order, sizes, member):
        columns = order[: sizes[-1]]
        L = la.cholesky(moments.G[np.ix_(columns, columns)], lower=True, check_finite=False)
        z = la.solve_triangular(L, moments.C[columns], lower=True)
        out = np.zeros((len(sizes), p, moments.C.shape[1]))
        for s, m in enumerate(sizes):
            out[s, columns[:m]] = la.solve_triangular(L[:m, :m], z[:m], lower=True, trans="T")
        return out

    def error(coef):
        """(sizes, 1): GCV of coefficients (sizes, p, q), averaged over targets."""
        fit = np.einsum("spq,pr,srq->sq", coef, moments.G, coef, optimize=True)
        rss = moments.yy - 2 * np.einsum("spq,pq->sq", coef, moments.C) + fit
        return (rss.mean(axis=1) / (n * (1 - (sizes + moments.centred) / n) ** 2))[:, None]

    count = paths.batch * paths.min_batches
    orders = [order for b in range(paths.min_batches) for pair in paths.pairs(p, b) for order in pair]
    coefs = paths._run(lambda i: coefficients(orders[i], sizes, i), len(orders))
    own = np.mean([error(c) for c in coefs], axis=0)
    same = 2 * np.mean([error((a + b) / 2) for a, b in zip(coefs[::2], coefs[1::2], strict=True)], axis=0) - own
    k = 2 * count
    other = (k * k * error(np.mean(coefs, axis=0)) - k * own - k * same) / (k * k - 2 * k)
    empty = np.zeros((len(sizes), 0, moments.C.shape[1]))
    return RiskCurve.from_pairs(sizes, p, paths.design, np.ones(1), own, same, other, empty)
