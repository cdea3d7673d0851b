r"""Scale and weights of the members, from leave-one-out predictions.

**Scale** (the paper's mu): with deviations d from the mean target, :math:`\hat\mu = \sum_l w_l\,
d_l \hat d_{-l} / \sum_l w_l\, \hat d_{-l}^2`, the least-squares slope of targets on leave-one-out
predictions, shrunk towards one by the positive-part rule :math:`\mu = 1 + (\hat\mu - 1)\,(1 -
\mathrm{se}^2 / (\hat\mu - 1)^2)_+`: with few rows the slope is mostly noise, and on real data the
plain slope lost as often as it won.

**Stacking** (paper, section 5.3): weights on the simplex that minimise :math:`\| E \omega \|^2`, E
holding the leave-one-out residuals of the members. On dense signals this fits noise and hurts, so
it must pass a test: in 5 folds with members refitted and reweighted on the other rows, it must beat
equal weights by two standard errors. Status: heuristic. (Splitting the rows of E alone is not
enough: every row of E has seen all targets, and with more members than rows stacking passed such a
test on dense signals with a risk 60 % higher.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from .._data.rows import RowData
from .._execution.threads import Threads
from .._members.jackknife import delete_each_row, delete_rows_of_limit
from .._members.path import PathData, prefix_residuals
from .._trust import EPS
from ..subsets import Design, Subsets

Array = NDArray[np.float64]

MIN_STACKING_ADVANTAGE = 2.0  # standard errors by which stacking must beat equal weights


@dataclass(frozen=True)
class Combination:
    """Weights and scale that combine members into one model."""

    weights: Array | None  # (k,), None: equal weights
    scale: float
    advantage: float | None  # of stacking over equal weights, in standard errors; None: no stacking


def combine(
    problem: RowData,
    design: Design,
    k: float,
    scale: float | None,
    stacking: bool,
    threads: Threads,
) -> Combination:
    """Weights of k members and their scale from leave-one-out residuals; a scale of None is
    estimated.
    """
    if k == np.inf:
        assert design.process is not None
        sums, _ = delete_rows_of_limit(problem, design.process[0])
        return Combination(
            None, loo_scale(problem, sums.residual, sums.mean_y) if scale is None else scale, None
        )
    k = int(k)
    features, samples = design.draw(0, k, threads.without_blas)
    all_rows = np.ones(len(problem.Y), dtype=bool)
    residual = _member_residuals(problem, features, samples, all_rows, threads)
    weights = None
    advantage = None
    if stacking:
        weights, advantage = stacking_weights(
            problem, features, samples, residual, seed=design.seed, threads=threads
        )
    if scale is None:
        member_weights = np.full(k, 1 / k) if weights is None else weights
        centre = _mean_without_row(problem, samples, member_weights)
        scale = loo_scale(problem, np.tensordot(member_weights, residual, 1), centre)
    return Combination(weights, float(scale), advantage)


def _mean_without_row(problem: RowData, samples: Subsets | None, member_weights: Array) -> Array:
    """Mean target of the members' training rows without each row, averaged over members, (n, q)."""
    Y = problem.Y
    row_weights = problem.weights
    k = len(member_weights)
    fraction = np.zeros((k, len(Y)))  # weight of a row in the mean target of a member
    for i, rows in enumerate(samples or [np.arange(len(Y))] * k):
        fraction[i, rows] = problem.null_rank * row_weights[rows] / row_weights[rows].sum()
    without_row = member_weights[:, None] / (1 - fraction)
    return np.asarray(
        without_row.T @ (fraction @ Y) - Y * np.sum(without_row * fraction, axis=0)[:, None]
    )


def _member_residuals(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    in_training: NDArray[np.bool_],
    threads: Threads,
) -> Array:
    """Leave-one-out residuals (k, n, q) of members fitted on their training rows; NaN for members
    with too few rows.

    Members with more rows than columns use a path with one size; minimum-norm members use their
    pseudo-inverse.
    """
    residual = np.full((len(features), *problem.Y.shape), np.nan)
    training_rows = np.flatnonzero(in_training)
    shared = samples is None and problem.shape[1] < 2 * features.sizes.max(initial=0)
    use_all_rows = samples is not None or in_training.all()
    data = PathData.from_problem(
        problem, shared=shared, rows=None if use_all_rows else training_rows
    )

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            columns = features[i]
            subsample = None if samples is None else samples[i][in_training[samples[i]]]
            rows = training_rows if subsample is None else subsample
            if 0 < len(columns) < len(rows) - problem.null_rank:
                residual[i] = prefix_residuals(data, columns, np.array([len(columns)]), subsample)[
                    0
                ]
            elif len(rows) > problem.null_rank:
                residual[i] = delete_each_row(problem, columns, rows).residual

    threads(work, len(features))
    return residual


def loo_scale(problem: RowData, residual: Array, centre: Array) -> float:
    """Slope of targets on leave-one-out predictions, shrunk towards one; at least zero.

    `residual` and `centre`, the mean target without the row, are those of the ensemble, (n, q).
    Repeated rows count once in the standard error, as a weight does. (The few members estimate a
    large ensemble. Subtracting the variance that sampling members adds to the squared predictions
    was tried: no better on 17 real sets, and far off where the difference is mostly noise.)
    """
    Y = problem.Y
    w = problem.weights[:, None]
    target = Y - centre
    predicted = Y - residual - centre
    bottom = np.sum(w * predicted**2)
    rounding = 64 * EPS * (np.abs(Y) + np.abs(residual) + np.abs(centre))
    if not np.sum(w * rounding**2) < bottom < np.inf:
        return 1.0
    slope = np.sum(w * target * predicted) / bottom
    n_distinct = problem.distinct_rows() if Y.size < 1e5 else len(Y)
    variance = np.sum(w * (target - slope * predicted) ** 2) / bottom / (n_distinct * Y.shape[1])
    return shrunk_to_one(float(slope), float(variance))


def shrunk_to_one(slope: float, variance: float) -> float:
    """Scale from a slope and its variance: shrunk towards one by the positive-part rule, at least
    zero.
    """
    squared_distance = (slope - 1) ** 2
    factor = max(0.0, 1 - variance / squared_distance) if squared_distance > 0 else 0.0
    return float(max(0.0, 1 + (slope - 1) * factor))


def stacking_weights(
    problem: RowData,
    features: Subsets,
    samples: Subsets | None,
    residual: Array,
    *,
    seed: int,
    threads: Threads,
) -> tuple[Array, float]:
    """Weights of the members (k,), equal unless stacking is clearly better, and its advantage in
    standard errors.

    `residual` holds the members' leave-one-out residuals on all rows, (k, n, q).
    """
    k, n, _ = residual.shape
    fold = np.random.default_rng(seed).permutation(n) % min(5, n)
    gain = np.zeros(
        n
    )  # squared error of equal weights minus that of stacking, both fitted on the other folds
    for f in range(fold.max() + 1):
        in_training = fold != f
        errors = _member_residuals(problem, features, samples, in_training, threads)
        errors = errors[~np.isnan(errors[:, 0, 0])]  # without members of too few rows
        if len(errors):
            weights = _simplex(errors[:, in_training], problem.weights[in_training])
            test_errors = errors[:, ~in_training]
            equal = test_errors.mean(axis=0)
            stacked = np.tensordot(weights, test_errors, 1)
            gain[~in_training] = np.mean(equal**2 - stacked**2, axis=1)
    gain *= problem.weights
    standard_error = gain.std(ddof=1) / np.sqrt(n)
    advantage = float(gain.mean() / standard_error) if standard_error > 0 else 0.0
    if advantage > MIN_STACKING_ADVANTAGE:
        return _simplex(residual, problem.weights), advantage
    return np.full(k, 1 / k), advantage


def _simplex(residual: Array, weight: Array) -> Array:
    """Weights of members that minimise the squared weighted mean of residuals (k, n, q), from k x k
    products.
    """
    E = (residual * np.sqrt(weight)[:, None]).reshape(len(residual), -1).T
    scale = np.sqrt(np.mean(E**2))
    if not scale > 0:
        return np.full(E.shape[1], 1 / E.shape[1])
    gram = E.T @ E / (scale**2 * len(E)) + 1e-10 * np.eye(E.shape[1])
    return np.asarray(simplex_weights(np.linalg.cholesky(gram)[None])[0])


def simplex_weights(roots: Array) -> Array:
    """Weights w (count, k) on the simplex that minimise w' R R' w for roots R (count, k, r):
    non-negative least squares with a heavy row for their sum.
    """
    count, k, rank = roots.shape
    heavy = 1e3 * np.sqrt(np.einsum("cij,cij->c", roots, roots) / k)
    A = np.concatenate([roots.transpose(0, 2, 1), np.ones((count, 1, k))], axis=1)
    A[:, rank] *= heavy[:, None]
    b = np.zeros((count, rank + 1))
    b[:, rank] = heavy
    weights = np.eye(k)[np.zeros(count, dtype=int)]
    for i in np.flatnonzero(heavy > 0):
        weights[i], _ = nnls(A[i], b[i])
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
