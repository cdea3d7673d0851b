r"""Prediction intervals from ensembles without each row (jackknife, jackknife+) or without each fold of rows (CV+).

**Jackknife+** (Barber, Candes, Ramdas, Tibshirani 2021): the interval spans order statistics of :math:`\hat y_{-l}(x_0)
\pm |e_l|`, :math:`e_l` the leave-one-out residuals. Status: theorem, coverage at least 1 - 2(1 - coverage) for
exchangeable rows when the size was not chosen from them; close to `coverage` in simulation. Every member without row l
takes one inverse (``_members.jackknife``). Row l changes the coefficients by :math:`c_l` and the prediction at the
means of all rows by :math:`o_l`, so that without it the prediction is :math:`\hat y(x_0) - o_l - (x_0 - \bar x)' c_l`.
The scale applies to deviations from each member's mean target: without row l the prediction is mean_{-l} + scale *
(prediction_{-l} - mean_{-l}).

**Standard error** (here because it takes the same pass over the members): the ensemble is linear in y, :math:`\hat
y(x_0) = w(x_0)' y`, and its variance is estimated by :math:`(1 - \hat\kappa) \sum_l w_l(x_0)^2 e_l^2` with
:math:`1 - \hat\kappa = (1 - \mathrm{tr} H / n)^2 / (1 - 2\,\mathrm{tr} H / n + \mathrm{tr}(H H')/n)`. Status:
asymptotic. It is the spread of the prediction over repeated data sets; shrinkage bias is not in it. Where the ensemble
fits every row (tr H = n), :math:`\hat\kappa` is not defined and taken as 0, an upper bound. The hat matrix is never
formed: with rows A = Q R and coefficients that depend on the targets through D, the squares of A D sum to those of R D.

**CV+** (same paper): with K folds, row l in fold f(l), the interval spans order statistics of
:math:`\hat y_{-f(l)}(x_0) \pm |e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) -
min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1)) for rows, or groups, that are exchangeable, when the sampling scheme was
not chosen from them; close to `coverage` in simulation. With G groups the order statistic is that of the share coverage
(G + 1) / G of the rows: it is the group that is new, and there are fewer of them than rows (status: heuristic for
groups of one size).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines import FoldFit
from .._execution import memory
from .._execution.threads import Sharing, one_blas_thread
from .._members.jackknife_sums import Deleted, TrainingRows, delete_rows, delete_rows_of_limit
from .._members.problem import Problem, Units
from .._trust import power_of_two
from ..subsets import Design

__all__ = ["CVPlus", "Jackknife", "dense_chunks"]

Array = NDArray[np.float64]


def dense_chunks(X: Any, bytes_each: float) -> Iterator[tuple[slice, Array]]:
    """Consecutive rows as dense arrays, so many that what is computed from them takes about 4 MB."""
    count = X.shape[0]
    step = int(max(1.0, (1 << 22) // max(1.0, bytes_each)))
    for start in range(0, count, step):
        here = slice(start, min(start + step, count))
        yield here, np.asarray(X[here].toarray() if sp.issparse(X) else X[here], dtype=np.float64)


def _rank(coverage: float, n: int) -> int:
    """Of the order statistic that holds new observations with this probability."""
    return max(1, math.ceil(coverage * (n + 1) - 1e-9))


def _whole_line(n_rows: int, n_targets: int) -> Array:
    return np.tile([-np.inf, np.inf], (n_rows, n_targets, 1))


class _Deletion(NamedTuple):
    """One pass over the members."""

    residual: Array  # (n, q) of the ensemble without the row, in the users' units of y
    offset: Array  # (n, q) change of the prediction at the means of all rows
    sums: Deleted
    rows: TrainingRows
    units: Units


class _Derivative(NamedTuple):
    """The ensemble as a function of the targets."""

    coef: Array  # (p, n) of coefficients
    base: Array  # (n,) of predictions at the means of all rows
    squares: Array  # (n, q) of leave-one-out residuals, in units of `unit`, times 1 - kappa
    unit: float
    x_unit: float
    mean_x: Array


@dataclass(frozen=True)
class Jackknife:
    """The ensemble without each of its n rows, computed when it is asked for and kept."""

    problem: Problem
    design: Design
    weights: Array  # (k,) of the members; empty where they are infinitely many
    scale: float
    # is given coefficients (p, q) and intercept (q,) as found from the rows; raises if they are not those of the fit
    check: Callable[[Array, Array], None]
    sharing: Sharing

    @cached_property
    def residuals(self) -> Array:
        """Leave-one-out residuals, (n, q)."""
        return self._delete_rows().residual

    @property
    def _bytes(self) -> float:
        (n, p), q = self.problem.shape, self.problem.Y.shape[1]
        return 8.0 * float(n * p * q)

    @property
    def plus_is_cheap(self) -> bool:
        """Whether the jackknife+ takes little memory, or none any more."""
        return "_changes" in vars(self) or self._bytes <= min(2.0**28, memory.available_bytes() / 4)

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape (rows, q)."""
        n, q = self.problem.Y.shape
        rank = _rank(coverage, n)
        if rank > n:
            return _whole_line(len(prediction), q)
        if not plus:
            half = np.partition(np.abs(self.residuals), rank - 1, axis=0)[rank - 1]
            return np.stack([prediction - half, prediction + half], axis=2)
        (found, changes), ends = self._changes, np.empty((*prediction.shape, 2))
        width = np.abs(found.residual)

        def work(start: int, stop: int) -> None:
            for part, rows in dense_chunks(X[start:stop], 32.0 * n):
                here = slice(start + part.start, start + part.stop)
                for t in range(q):
                    change = found.offset[:, t] + (rows / found.units.x - found.rows.mean_x) @ changes[t]
                    without = prediction[here, t, None] - change
                    ends[here, t, 0] = np.partition(without - width[:, t], n - rank, axis=1)[:, n - rank]
                    ends[here, t, 1] = np.partition(without + width[:, t], rank - 1, axis=1)[:, rank - 1]

        self.sharing.quiet()(work, len(prediction), chunk=max(1, -(-len(prediction) // 8)))
        return ends

    def std(self, X: Any) -> Array:
        """Standard error of the expected prediction, shape (rows, q)."""
        found = self._derivative
        out = np.empty((X.shape[0], found.squares.shape[1]))
        for here, rows in dense_chunks(X, 8.0 * len(found.base)):
            out[here] = ((rows / found.x_unit - found.mean_x) @ found.coef + found.base) ** 2 @ found.squares
        return np.asarray(np.sqrt(out) * found.unit)

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, shape (p, q)."""
        found = self._derivative
        return np.asarray(np.sqrt(found.coef**2 @ found.squares) * found.unit / found.x_unit)

    @cached_property
    def _changes(self) -> tuple[_Deletion, Array]:
        """What each row changes of the coefficients, (q, p, n)."""
        (n, p), q = self.problem.shape, self.problem.Y.shape[1]
        what = f"method='jackknife+' with what each of {n} training rows changes of {p} coefficients"
        instead = "Use method='jackknife', which keeps the leave-one-out residuals alone, or method='cv+'."
        memory.require(self._bytes, what, instead)
        changes, targets = np.zeros((q, p, n)), np.arange(q)

        def add(columns: Any, rows: Any, change: Array) -> None:
            here = (slice(None), slice(None), rows) if isinstance(rows, slice) else np.ix_(targets, columns, rows)
            changes[here] += change

        found = self._delete_rows(visit=add)
        changes *= self.scale * found.units.y
        return found, changes

    @cached_property
    def _derivative(self) -> _Derivative:
        """Kept with all it needs, so that nothing is read again of rows that may have been changed."""
        n, p = self.problem.shape
        memory.require(24.0 * n * p, f"standard errors from {n} rows and {p} columns", "Fit fewer rows, or blocks.")
        residual, _, sums, rows, units = self._delete_rows(operator=True)
        operator, x = sums.operator, rows.block(slice(0, n))  # (p, n)
        assert operator is not None
        D = operator.M @ x * rows.weight
        D = self.scale * (D if operator.F is None else D + operator.F)
        base = operator.centre + self.scale * operator.moved
        # by QR: products of the columns would lose twice the digits where rows are far out
        R, total = np.linalg.qr(x.T, mode="r"), x.sum(axis=1)
        trace = (np.einsum("jl,jl->", x, D) + base.sum()) / n
        squares = (np.sum((R @ D) ** 2) + 2 * (total @ D) @ base + n * (base @ base)) / n
        left = (1 - trace) ** 2
        # of an ensemble that fits every row 0 / 0, and leaving kappa out is the safe side
        shrink = min(1.0, float(left / (1 - 2 * trace + squares))) if left > 1e-12 else 1.0
        unit = power_of_two(float(np.abs(residual).max(initial=0.0)))
        return _Derivative(D, base, shrink * (residual / unit) ** 2, unit, units.x, rows.mean_x)

    def _delete_rows(self, **how: Any) -> _Deletion:
        """Sums over all members, checked to be those of the fit."""
        problem, units = replace(self.problem).in_units  # without the moments of then: users can change X in place
        with one_blas_thread():
            if len(self.weights):
                drawn = self.design.draw(0, len(self.weights), self.sharing.without_blas)
                sums, rows = delete_rows(problem, *drawn, self.weights, self.sharing, **how)
            else:
                assert self.design.process is not None
                sums, rows = delete_rows_of_limit(problem, self.design.process[0], **how)
        self.check(units.coefficients(sums.coef), sums.intercept * units.y)
        predicted = sums.mean_y + self.scale * (problem.Y - sums.residual - sums.mean_y)
        offset = self.scale * sums.moved + (1 - self.scale) * sums.mean_change
        return _Deletion((problem.Y - predicted) * units.y, offset * units.y, sums, rows, units)


@dataclass(frozen=True)
class CVPlus:
    """The ensemble without each of some folds."""

    coef: Array  # (K, q, p)
    intercept: Array  # (K, q)
    errors: list[list[Array]]  # absolute residuals by fold and target, ascending
    n_groups: int | None = None  # of rows that belong together; None: rows are on their own

    @classmethod
    def from_folds(cls, fits: list[FoldFit], n_groups: int | None = None) -> CVPlus:
        """From fits without folds."""
        errors = [[np.sort(np.abs(e)) for e in np.asarray(fit.residual).T] for fit in fits]
        return cls(np.stack([fit.coef for fit in fits]), np.stack([fit.intercept for fit in fits]), errors, n_groups)

    @property
    def mse(self) -> Array:
        """Mean squared error of the left-out rows, for each target."""
        q = self.coef.shape[1]
        return np.array([np.mean(np.concatenate([own[t] for own in self.errors]) ** 2) for t in range(q)])

    def interval(self, X: Any, coverage: float) -> Array:
        """Lower and upper ends, shape (rows, q, 2)."""
        K, q, _ = self.coef.shape
        n = sum(len(own[0]) for own in self.errors)
        rank = _rank(coverage, n)
        if self.n_groups is not None:  # a new row is one of a new group: groups are what is exchangeable
            rank = max(rank, math.ceil(coverage * (self.n_groups + 1) / self.n_groups * n - 1e-9))
        out = _whole_line(X.shape[0], q)
        if rank > n:
            return out
        for here, rows in dense_chunks(X, 64.0 * K * q):
            for t in range(q):
                predicted = rows @ self.coef[:, t].T + self.intercept[:, t]  # (rows, K)
                errors = [own[t] for own in self.errors]
                out[here, t, 1] = _order_statistic(predicted, errors, rank)
                out[here, t, 0] = -_order_statistic(-predicted, errors, rank)
        return out


def _order_statistic(shift: Array, lists: list[Array], rank: int) -> Array:
    """The value with this rank among shift + errors of all lists, for every row of shifts, (rows, K) -> (rows,).

    By bisection over the sorted lists, whatever the number of rows in them.
    """
    low = np.nextafter(shift.min(axis=1), -np.inf)  # with fewer values at or below it than the rank
    high = shift.max(axis=1) + max(float(e[-1]) for e in lists if len(e))
    for _ in range(80):  # then no two floats are left between them
        middle = (low + high) / 2
        enough = sum(np.searchsorted(e, middle - s, side="right") for e, s in zip(lists, shift.T, strict=True)) >= rank
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
