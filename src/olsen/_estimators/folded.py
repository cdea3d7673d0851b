r"""Intervals from folds: where leave-one-out is out of reach, or rows belong together in groups.

**CV+** (Barber, Candes, Ramdas, Tibshirani 2021): with K folds, row l in fold f(l), predictions :math:`\hat y_{-f}` and
residuals :math:`e_l = y_l - \hat y_{-f(l)}(x_l)`, the interval spans order statistics of :math:`\hat y_{-f(l)}(x_0) \pm
|e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) - min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1)) for rows,
or groups, that are exchangeable, when the law of the members was not chosen from them; close to `coverage` in
simulation. With G groups the order statistic is that of the share coverage (G + 1) / G of the rows: it is the group
that is new, and there are fewer of them than rows (status: heuristic for groups of one size).

Only K different predictions are made for a new row, so an order statistic of all rows is found by bisection over K
sorted lists of residuals, whatever the number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines.left_out import FoldFit
from .left_out import rank_of, steps

__all__ = ["Folded"]

Array = NDArray[np.float64]
ROOM = 1 << 25  # bytes of predictions at a time
HALVINGS = 80  # of the range that an order statistic lies in: then no two floats are left in it


@dataclass(frozen=True)
class Folded:
    """The ensemble without each of some folds."""

    coef: Array  # (K, q, p)
    intercept: Array  # (K, q)
    errors: list[list[Array]]  # sizes of residuals by fold and target, ascending
    n_groups: int | None = None  # of rows that belong together; None: rows are on their own

    @classmethod
    def of(cls, fits: list[FoldFit], n_groups: int | None = None) -> Folded:
        """From fits without folds."""
        errors = [[np.sort(np.abs(e)) for e in np.asarray(fit.residual).T] for fit in fits]
        return cls(np.stack([fit.coef for fit in fits]), np.stack([fit.intercept for fit in fits]), errors, n_groups)

    @property
    def mse(self) -> Array:
        """Mean squared error of the left-out rows, for each target."""
        q = self.coef.shape[1]
        return np.array([np.mean(np.concatenate([own[t] for own in self.errors]) ** 2) for t in range(q)])

    def sizes_of_errors(self) -> list[Array]:
        """Of the first target, by fold."""
        return [own[0] for own in self.errors]

    def interval(self, X: Any, coverage: float) -> Array:
        """Lower and upper ends, shape (rows, q, 2)."""
        K, q, _ = self.coef.shape
        n = sum(len(own[0]) for own in self.errors)
        rank = rank_of(coverage, n)
        if self.n_groups is not None:  # a new row is one of a new group: groups are what is exchangeable
            rank = max(rank, math.ceil(coverage * (self.n_groups + 1) / self.n_groups * n - 1e-9))
        out = np.empty((X.shape[0], q, 2))
        if rank > n:
            out[..., 0], out[..., 1] = -np.inf, np.inf
            return out
        for here in steps(X.shape[0], 8.0 * K * q * 8, ROOM):
            rows = X[here].toarray() if sp.issparse(X) else np.asarray(X[here], dtype=float)
            for t in range(q):
                predicted = rows @ self.coef[:, t].T + self.intercept[:, t]  # (rows, K)
                errors = [own[t] for own in self.errors]
                out[here, t, 1] = _order_statistic(predicted, errors, rank)
                out[here, t, 0] = -_order_statistic(-predicted, errors, rank)
        return out


def _order_statistic(shift: Array, lists: list[Array], rank: int) -> Array:
    """The value with this rank among shift + errors of all lists, for every row of shifts, (rows, K) -> (rows,)."""
    low = np.nextafter(shift.min(axis=1), -np.inf)  # with fewer values at or below it than the rank
    high = shift.max(axis=1) + max(float(e[-1]) for e in lists if len(e))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = sum(np.searchsorted(e, middle - s, side="right") for e, s in zip(lists, shift.T, strict=True)) >= rank
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
