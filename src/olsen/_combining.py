r"""Scale and weights of the members, from leave-one-out predictions.

**Scale** (the paper's mu): with deviations d from the mean target, :math:`\hat\mu = \sum_l w_l\, d_l \hat d_{-l} /
\sum_l w_l\, \hat d_{-l}^2`, the least-squares slope of targets on leave-one-out predictions, drawn towards one by
the positive-part rule :math:`\mu = 1 + (\hat\mu - 1)\,(1 - \mathrm{se}^2 / (\hat\mu - 1)^2)_+`: with few rows the
slope is mostly noise, and on real data the plain slope lost as often as it won.

**Stacking** (paper, section 5.3): weights on the simplex that minimise :math:`\| E \omega \|^2`, E holding the
leave-one-out residuals of the members. On dense signals this fits noise and hurts, so it passes a gate: in 5 folds over
the rows of E, the error with weights from the other folds must beat equal weights by two standard errors.
Status: heuristic (rows of E are not independent, hence two standard errors and not one).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from ._members.leave_one_out import delete_each_row
from ._members.path import PathData, prefix_residuals
from ._members.problem import Problem

__all__ = ["loo_scale", "member_residuals", "stacking_weights"]

GATE = 2.0  # standard errors by which stacking must win


def member_residuals(problem: Problem, features, samples, mapper) -> tuple[NDArray, NDArray]:
    """Leave-one-out residuals of every member, (k, n, q), and mean targets without each row, (k, n, q).

    Members with more rows than columns go through the path with one size; minimum-norm members through their
    pseudo-inverse.
    """
    n, q = problem.Y.shape
    k = len(features)
    residual, centre = np.empty((k, n, q)), np.zeros((k, n, q))
    data = PathData.from_problem(
        problem, shared=samples is None and problem.shape[1] < 2 * features.sizes.max(initial=0)
    )
    weight = data.weight
    if problem.fit_intercept and samples is None:
        share = (weight / weight.sum())[:, None]
        centre[:] = (weight @ problem.Y / weight.sum() - share * problem.Y) / (1 - share)

    def work(start, stop):
        for i in range(start, stop):
            rows = None if samples is None else samples[i]
            freedom = (n if rows is None else len(rows)) - problem.fit_intercept
            if samples is None and 0 < len(features[i]) < freedom:
                residual[i] = prefix_residuals(data, features[i], np.array([len(features[i])]))[0]
            else:
                one = delete_each_row(problem, features[i], rows)
                residual[i], centre[i] = one.residual, one.mean_y

    mapper(work, k)
    return residual, centre


def loo_scale(problem: Problem, residual: NDArray, centre: NDArray) -> float:
    """Slope of targets on leave-one-out predictions, drawn towards one; at least zero.

    `residual` and `centre`, the mean target without the row, are those of the ensemble, (n, q). Repeated rows count
    once in the standard error, as a weight does.
    """
    Y = problem.Y
    w = (np.ones(len(Y)) if problem.weight is None else problem.weight)[:, None]
    target, predicted = Y - centre, Y - residual - centre
    bottom = np.sum(w * predicted**2)
    if not (bottom > 0 and np.isfinite(bottom)) or Y.size < 3:
        return 1.0
    slope = np.sum(w * target * predicted) / bottom
    count = problem.distinct_rows() if Y.size < 1e5 else len(Y)
    variance = np.sum(w * (target - slope * predicted) ** 2) / bottom / (count * Y.shape[1])
    distance = (slope - 1) ** 2
    keep = max(0.0, 1 - variance / distance) if distance > 0 else 0.0
    return float(max(0.0, 1 + (slope - 1) * keep))


def stacking_weights(residual: NDArray, weight: NDArray | None, seed: int) -> tuple[NDArray, bool, float]:
    """Weights of the members (k,), whether stacking passed the gate, and its advantage in standard errors.

    `residual` is (k, n, q); targets are treated as further rows. Weights are equal where the gate is shut.
    """
    k, n, q = residual.shape
    root = np.ones(n) if weight is None else np.sqrt(weight)
    E = (residual * root[None, :, None]).reshape(k, n * q).T
    fold = np.repeat(np.random.default_rng(seed).permutation(n) % 5, q)
    equal = E.mean(axis=1) ** 2
    stacked = np.empty_like(equal)
    for f in range(5):
        stacked[fold == f] = (E[fold == f] @ _simplex(E[fold != f])) ** 2
    gain = equal - stacked
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    advantage = float(gain.mean() / error) if error > 0 else 0.0
    if advantage <= GATE:
        return np.full(k, 1 / k), False, advantage
    return _simplex(E), True, advantage


def _simplex(E):
    """Minimise |E w|^2 over the simplex: non-negative least squares with the sum as one heavy row, then normalised."""
    scale = np.sqrt(np.mean(E**2))
    if not scale > 0:
        return np.full(E.shape[1], 1 / E.shape[1])
    # the normal matrix in place of E: k x k whatever the rows; its Cholesky factor has the same least squares
    gram = E.T @ E / (scale**2 * len(E)) + 1e-10 * np.eye(E.shape[1])
    root = np.linalg.cholesky(gram).T
    heavy = 1e4
    w, _ = nnls(np.vstack([root, np.full(E.shape[1], heavy)]), np.r_[np.zeros(E.shape[1]), heavy])
    return w / w.sum()
