r"""Scale and weights of the members, from leave-one-out predictions.

**Scale** (the paper's mu): with deviations d from the mean target, :math:`\hat\mu = \sum_l w_l\, d_l \hat d_{-l} /
\sum_l w_l\, \hat d_{-l}^2`, the least-squares slope of targets on leave-one-out predictions, drawn towards one by
the positive-part rule :math:`\mu = 1 + (\hat\mu - 1)\,(1 - \mathrm{se}^2 / (\hat\mu - 1)^2)_+`: with few rows the
slope is mostly noise, and on real data the plain slope lost as often as it won.

**Stacking** (paper, section 5.3): weights on the simplex that minimise :math:`\| E \omega \|^2`, E holding the
leave-one-out residuals of the members. On dense signals this fits noise and hurts, so it passes a gate: in 5 folds with
members fitted and weighted anew on the other rows, it must beat equal weights by two standard errors. Status:
heuristic. (Splitting the rows of E alone will not do: every row of E has seen all targets, and with more members than
rows stacking passed such a gate on dense signals with a risk 60 % higher.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from .._execution.threads import Threads
from .._members.jackknife import delete_each_row, delete_rows_of_limit
from .._members.path import PathData, prefix_residuals
from .._members.problem import Problem
from .._trust import EPS
from ..subsets import Design, Subsets

Array = NDArray[np.float64]

GATE = 2.0  # standard errors by which stacking must win


@dataclass(frozen=True)
class Combination:
    """How members become one model."""

    weights: Array | None  # (k,), None: all alike
    scale: float
    advantage: float | None  # of stacking over equal weights, in standard errors; None: not asked for


def combine(
    problem: Problem, design: Design, k: float, scale: float | None, stacking: bool, sharing: Threads
) -> Combination:
    """Weights of k members and their scale from leave-one-out residuals; a scale of None is estimated."""
    if k == np.inf:
        assert design.process is not None
        sums, _ = delete_rows_of_limit(problem, design.process[0])
        return Combination(None, loo_scale(problem, sums.residual, sums.mean_y) if scale is None else scale, None)
    k, Y, weight = int(k), problem.Y, problem.weights
    features, samples = design.draw(0, k, sharing.without_blas)
    residual = _member_residuals(problem, features, samples, np.ones(len(Y), dtype=bool), sharing)
    weights, advantage = None, None
    if stacking:
        weights, advantage = stacking_weights(problem, features, samples, residual, design.seed, sharing)
    if scale is None:
        shares, part = np.full(k, 1 / k) if weights is None else weights, np.zeros((k, len(Y)))
        for own, rows in zip(part, samples or [np.arange(len(Y))] * k, strict=True):  # a row's part of a member's mean
            own[rows] = problem.fit_intercept * weight[rows] / weight[rows].sum()
        without = shares[:, None] / (1 - part)
        centre = without.T @ (part @ Y) - Y * np.sum(without * part, axis=0)[:, None]
        scale = loo_scale(problem, np.tensordot(shares, residual, 1), centre)
    return Combination(weights, float(scale), advantage)


def _member_residuals(
    problem: Problem, features: Subsets, samples: Subsets | None, inside: NDArray[np.bool_], mapper: Threads
) -> Array:
    """Leave-one-out residuals (k, n, q) of members with their rows `inside`; NaN for those with too few of them.

    Members with more rows than columns go through the path with one size; minimum-norm members through their
    pseudo-inverse.
    """
    residual, every = np.full((len(features), *problem.Y.shape), np.nan), np.flatnonzero(inside)
    shared = samples is None and problem.shape[1] < 2 * features.sizes.max(initial=0)
    data = PathData.from_problem(problem, shared=shared, rows=None if samples is not None or inside.all() else every)

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            columns, rows = features[i], None if samples is None else samples[i][inside[samples[i]]]
            given = every if rows is None else rows
            if 0 < len(columns) < len(given) - problem.fit_intercept:
                residual[i] = prefix_residuals(data, columns, np.array([len(columns)]), rows)[0]
            elif len(given) > problem.fit_intercept:
                residual[i] = delete_each_row(problem, columns, given).residual

    mapper(work, len(features))
    return residual


def loo_scale(problem: Problem, residual: Array, centre: Array) -> float:
    """Slope of targets on leave-one-out predictions, drawn towards one; at least zero.

    `residual` and `centre`, the mean target without the row, are those of the ensemble, (n, q). Repeated rows count
    once in the standard error, as a weight does. (Few members stand for many here. Taking what their sampling adds out
    of the sum of squared predictions was tried: no better on 17 real sets, and far off where it is mostly noise.)
    """
    Y = problem.Y
    w = problem.weights[:, None]
    target, predicted = Y - centre, Y - residual - centre
    bottom = np.sum(w * predicted**2)
    rounding = 64 * EPS * (np.abs(Y) + np.abs(residual) + np.abs(centre))
    if not np.sum(w * rounding**2) < bottom < np.inf:
        return 1.0
    slope = np.sum(w * target * predicted) / bottom
    count = problem.distinct_rows() if Y.size < 1e5 else len(Y)
    variance = np.sum(w * (target - slope * predicted) ** 2) / bottom / (count * Y.shape[1])
    return shrunk_to_one(float(slope), float(variance))


def shrunk_to_one(slope: float, variance: float) -> float:
    """A slope with its variance as a scale: drawn towards one by the positive-part rule, at least zero."""
    distance = (slope - 1) ** 2
    keep = max(0.0, 1 - variance / distance) if distance > 0 else 0.0
    return float(max(0.0, 1 + (slope - 1) * keep))


def stacking_weights(
    problem: Problem, features: Subsets, samples: Subsets | None, residual: Array, seed: int, mapper: Threads
) -> tuple[Array, float]:
    """Weights of the members (k,), equal where the gate is shut, and the advantage of stacking in standard errors.

    `residual` holds the members' leave-one-out residuals on all rows, (k, n, q).
    """
    k, n, _ = residual.shape
    fold, gain = np.random.default_rng(seed).permutation(n) % min(5, n), np.zeros(n)
    for f in range(fold.max() + 1):  # squared error of equal weights less that of stacking, all fitted on other rows
        inside = fold != f
        errors = _member_residuals(problem, features, samples, inside, mapper)
        errors = errors[~np.isnan(errors[:, 0, 0])]  # members of too few rows have no say here
        if len(errors):
            weights, errors = _simplex(errors[:, inside], problem.weights[inside]), errors[:, ~inside]
            gain[~inside] = np.mean(errors.mean(axis=0) ** 2 - np.tensordot(weights, errors, 1) ** 2, axis=1)
    gain *= problem.weights
    error = gain.std(ddof=1) / np.sqrt(n)
    advantage = float(gain.mean() / error) if error > 0 else 0.0
    weights = _simplex(residual, problem.weights) if advantage > GATE else np.full(k, 1 / k)
    return weights, advantage


def _simplex(residual: Array, weight: Array) -> Array:
    """Minimise the weighted squares of a mean of residuals (k, n, q), by k x k products of them whatever the rows."""
    E = (residual * np.sqrt(weight)[:, None]).reshape(len(residual), -1).T
    scale = np.sqrt(np.mean(E**2))
    if not scale > 0:
        return np.full(E.shape[1], 1 / E.shape[1])
    gram = E.T @ E / (scale**2 * len(E)) + 1e-10 * np.eye(E.shape[1])
    return simplex_weights(np.linalg.cholesky(gram))


def simplex_weights(root: Array) -> Array:
    """Weights at least zero that sum to one, of the least w' R R' w: least squares with one heavy row."""
    heavy = 1e3 * float(np.sqrt(np.mean(np.sum(root**2, axis=1))))
    if not heavy > 0:
        return np.asarray(np.eye(len(root))[0])
    w, _ = nnls(np.vstack([root.T, np.full(len(root), heavy)]), np.r_[np.zeros(root.shape[1]), heavy])
    return np.asarray(w / w.sum())
