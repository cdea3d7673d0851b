r"""How sure a prediction is: intervals for new observations, standard errors of the expected prediction.

The ensemble with all rows is linear in y, :math:`\hat y(x_0) = w(x_0)' y`, and every member can be had without row l
for the price of one pseudo-inverse (``_members.leave_one_out``). From the sums over members kept here,

- **jackknife+** (Barber, Candes, Ramdas, Tibshirani 2021): the interval spans order statistics of
  :math:`\hat y_{-l}(x_0) \pm |e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) for exchangeable rows when
  the size was not chosen from them; close to `coverage` in simulation.
- **standard error**: :math:`(1 - \hat\kappa) \sum_l w_l(x_0)^2 e_l^2` with leave-one-out residuals e and
  :math:`1 - \hat\kappa = (1 - \mathrm{tr} H / n)^2 / (1 - 2\,\mathrm{tr} H / n + \mathrm{tr}(H H')/n)`.
  Status: asymptotic. It is the spread of the prediction over repeated data sets, not its distance from the truth:
  shrinkage bias is not in it. Where the ensemble fits every row (tr H = n), :math:`\hat\kappa` is not defined and taken
  as 0, an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .._members.leave_one_out import MemberDeletion, delete_each_row
from .._members.problem import Problem
from .._trust import power_of_two
from ..subsets import Subsets

__all__ = ["Deletions", "jackknife_interval", "prediction_std", "sum_deletions"]

Array = NDArray[np.float64]
INTERPOLATES = 1e-12  # (1 - tr H / n)^2 from which on it is rounding


@dataclass(frozen=True)
class Deletions:
    """The ensemble without each of its n rows.

    Parameters
    ----------
    coef, intercept : ndarray of shape (p, q), (q,)
        Mean of the members with all rows, before the scale.
    residual : ndarray of shape (n, q)
        Leave-one-out residuals of the ensemble.
    coef_change : ndarray of shape (p, n, q)
        Coefficients minus those without row l.
    intercept_change : ndarray of shape (n, q)
        Intercept minus that without row l.
    operator : ndarray of shape (p + 1, n)
        Derivative of the coefficients, and in the last row of the intercept, with respect to the targets.
    fitted_operator : ndarray of shape (n, n)
        The same for fitted values: the hat matrix of the ensemble.
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    residual: NDArray[np.float64]
    coef_change: NDArray[np.float64]
    intercept_change: NDArray[np.float64]
    operator: NDArray[np.float64]
    fitted_operator: NDArray[np.float64]


def sum_deletions(
    problem: Problem, features: Subsets, samples: Subsets | None, weights: Array, scale: float
) -> Deletions:
    """Weighted mean over members of their leave-one-out quantities, times the scale.

    The scale shrinks every member about its own mean target, so its leave-one-out prediction is
    mean_{-l} + scale * (prediction_{-l} - mean_{-l}).
    """
    n, p = problem.shape
    q = problem.Y.shape[1]
    memory.require(
        8.0 * (n * p * (q + 1) + n * n),
        f"Deleting each of {n} rows from an ensemble on {p} columns",
        "Use method='jackknife' on a sample of the rows, or split conformal intervals.",
    )
    problem, units = problem.in_units
    residual, mean_y, mean_change = np.zeros((n, q)), np.zeros((n, q)), np.zeros((n, q))
    coef_change, intercept_change = np.zeros((p, n, q)), np.zeros((n, q))
    operator, coef, intercept = np.zeros((p + 1, n)), np.zeros((p, q)), np.zeros(q)
    for i, member_weight in enumerate(weights):
        if member_weight == 0:
            continue
        one = delete_each_row(problem, features[i], None if samples is None else samples[i])
        coef[features[i]] += member_weight * one.coef
        intercept += member_weight * one.intercept
        here = np.ix_(features[i], one.rows)
        residual += member_weight * one.residual
        mean_y += member_weight * one.mean_y
        mean_change += member_weight * (one.mean_all - one.mean_y)
        coef_change[here] += member_weight * one.coef_change
        intercept_change[one.rows] += member_weight * one.intercept_change
        operator[here] += member_weight * scale * one.pinv
        operator[-1, one.rows] += member_weight * _intercept_row(problem, features[i], one, scale)
    shrunk = problem.Y - mean_y - scale * (problem.Y - residual - mean_y)
    hat = np.asarray(problem.X @ operator[:-1]) + operator[-1]
    change = scale * intercept_change + (1 - scale) * mean_change
    operator[:-1] /= units.x
    return Deletions(
        units.coefficients(coef), intercept * units.y, shrunk * units.y, units.coefficients(scale * coef_change),
        change * units.y, operator, hat,
    )  # fmt: skip


def _intercept_row(problem: Problem, columns: NDArray[np.int64], one: MemberDeletion, scale: float) -> Array:
    """Derivative of a member's intercept with respect to its targets: share of the mean minus scale mean_x' A^+."""
    if not problem.fit_intercept:
        return np.zeros(len(one.rows))
    weight = np.ones(len(one.rows)) if problem.weight is None else problem.weight[one.rows]
    share: Array = weight / weight.sum()
    mean_x = np.asarray(problem.X[:, columns][one.rows].T @ share)
    return share - scale * (mean_x @ one.pinv)


def jackknife_interval(deletions: Deletions, X: Any, prediction: Array, coverage: float, plus: bool) -> Array:
    """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape (rows, q).

    Ranks are ceil(coverage (n + 1)) of n; where that exceeds n the interval is the whole line.
    """
    n, q = deletions.residual.shape
    rank = max(1, math.ceil(coverage * (n + 1) - 1e-9))
    out = np.empty((*prediction.shape, 2))
    if rank > n:
        out[..., 0], out[..., 1] = -np.inf, np.inf
        return out
    for t in range(q):
        width = np.abs(deletions.residual[:, t])
        if not plus:
            half = np.partition(width, rank - 1)[rank - 1]
            out[:, t] = prediction[:, t, None] + [-half, half]
            continue
        for start in range(0, len(prediction), 256):  # 256 x n at a time
            block = slice(start, start + 256)
            change = np.asarray(X[block] @ deletions.coef_change[:, :, t]) + deletions.intercept_change[:, t]
            without = prediction[block, t, None] - change
            out[block, t, 0] = np.partition(without - width, n - rank, axis=1)[:, n - rank]
            out[block, t, 1] = np.partition(without + width, rank - 1, axis=1)[:, rank - 1]
    return out


def prediction_std(deletions: Deletions, X: Any) -> Array:
    """Standard error of the expected prediction, shape (rows, q)."""
    H = deletions.fitted_operator
    n = len(H)
    df = np.trace(H) / n
    left = (1 - df) ** 2
    # 1 - kappa; of an ensemble that fits every row it is 0 / 0, and leaving kappa out is the safe side
    shrink = min(1.0, left / (1 - 2 * df + np.sum(H * H) / n)) if left > INTERPOLATES else 1.0
    w = np.asarray(X @ deletions.operator[:-1]) + deletions.operator[-1]
    unit = power_of_two(float(np.abs(deletions.residual).max(initial=0.0)))
    return np.asarray(np.sqrt(shrink * (w**2 @ (deletions.residual / unit) ** 2))) * unit
