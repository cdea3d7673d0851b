r"""CV+ intervals, from fits without each fold (Barber, Candes, Ramdas, Tibshirani 2021).

With K folds, row l in fold f(l), the interval spans order statistics of
:math:`\hat y_{-f(l)}(x_0) \pm |e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) -
min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1)) for rows, or groups, that are exchangeable, when the
sampling scheme was not chosen from the same rows; close to `coverage` in simulation. With G groups
the order statistic is that of the fraction coverage (G + 1) / G of the rows, because a new row
belongs to a new group and there are fewer groups than rows (status: heuristic for groups of one
size).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.fits import FoldFit
from ..chunks import dense_chunks, order_statistic_rank

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CVPlus:
    """The ensemble without each of K folds."""

    coef: Array  # (K, q, p)
    intercept: Array  # (K, q)
    errors: list[list[Array]]  # absolute residuals by fold and target, ascending
    n_groups: int | None = (
        None  # number of groups of rows that belong together; None: rows are exchangeable
    )

    @classmethod
    def from_folds(cls, fits: list[FoldFit], n_groups: int | None = None) -> CVPlus:
        """Build from the fits without each fold, whose residuals are those of the held-out rows."""
        coef = np.stack([fit.coef for fit in fits])
        intercept = np.stack([fit.intercept for fit in fits])
        errors = [
            [np.sort(np.abs(residual)) for residual in np.asarray(fit.residual).T] for fit in fits
        ]
        return cls(coef, intercept, errors, n_groups)

    @property
    def mse(self) -> Array:
        """Mean squared error of the held-out rows, for each target."""
        q = self.coef.shape[1]
        errors = [np.concatenate([fold_errors[t] for fold_errors in self.errors]) for t in range(q)]
        return np.array([np.mean(target_errors**2) for target_errors in errors])

    def interval(self, X: Any, coverage: float) -> Array:
        """Lower and upper ends, shape (rows, q, 2)."""
        K, q, _ = self.coef.shape
        n = sum(len(fold_errors[0]) for fold_errors in self.errors)
        rank = order_statistic_rank(coverage, n)
        if (
            self.n_groups is not None
        ):  # groups are exchangeable, rows are not: a new row belongs to a new group
            rank = max(rank, math.ceil(coverage * (self.n_groups + 1) / self.n_groups * n - 1e-9))
        ends = np.tile([-np.inf, np.inf], (X.shape[0], q, 1))
        if rank > n:
            return ends
        for chunk, rows in dense_chunks(X, 64.0 * K * q):
            for t in range(q):
                predicted = rows @ self.coef[:, t].T + self.intercept[:, t]  # (rows, K)
                errors = [fold_errors[t] for fold_errors in self.errors]
                ends[chunk, t, 1] = _order_statistic(predicted, errors, rank)
                ends[chunk, t, 0] = -_order_statistic(-predicted, errors, rank)
        return ends


def _order_statistic(shift: Array, errors: list[Array], rank: int, n_bisections: int = 80) -> Array:
    """Order statistic of the values shift[i, k] + errors[k], over all k, for each row i; (rows, K)
    -> (rows,).

    Bisection over the sorted lists of errors takes little memory, however many errors there are.
    After 80 halvings no float lies between the two bounds.
    """
    low = np.nextafter(shift.min(axis=1), -np.inf)  # fewer than `rank` values are at or below it
    high = shift.max(axis=1) + max(
        float(fold_errors[-1]) for fold_errors in errors if len(fold_errors)
    )
    for _ in range(n_bisections):
        middle = (low + high) / 2
        counts = [
            np.searchsorted(e, middle - s, side="right")
            for e, s in zip(errors, shift.T, strict=True)
        ]
        enough = sum(counts) >= rank
        low = np.where(enough, low, middle)
        high = np.where(enough, middle, high)
    return np.asarray(high)
