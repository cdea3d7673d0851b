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
formed: with rows A = Q R and coefficients that depend on the targets through an operator O, the squares of A O sum to
those of R O.

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
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines import FoldFit
from .._execution import memory
from .._execution.threads import Sharing, one_blas_thread
from .._members.jackknife_sums import Deleted, Operator, TrainingRows, Visit, delete_rows, delete_rows_of_limit
from .._members.problem import Problem, Units
from .._trust import power_of_two
from ..subsets import Design

__all__ = ["CVPlus", "Jackknife", "dense_chunks"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
INTERPOLATES = 1e-12  # (1 - tr H / n)^2 from which on it is rounding
KEPT_BYTES = float(1 << 28)  # that method="auto" keeps with a fitted model
CHUNK_BYTES = 1 << 22  # of predictions at a time
HALVINGS = 80  # of the range that an order statistic lies in: then no two floats are left in it


def dense_chunks(X: Any, bytes_each: float) -> Iterator[tuple[slice, Array]]:
    """Consecutive rows as dense arrays, so many that what is computed from them takes little memory."""
    count = X.shape[0]
    step = int(max(1.0, CHUNK_BYTES // max(1.0, bytes_each)))
    for start in range(0, count, step):
        here = slice(start, min(start + step, count))
        yield here, np.asarray(X[here].toarray() if sp.issparse(X) else X[here], dtype=np.float64)


def _rank(coverage: float, n: int) -> int:
    """Of the order statistic that holds new observations with this probability."""
    return max(1, math.ceil(coverage * (n + 1) - 1e-9))


def _whole_line(n_rows: int, n_targets: int) -> Array:
    return np.tile([-np.inf, np.inf], (n_rows, n_targets, 1))


@dataclass(frozen=True)
class _LeaveOneOut:
    """What each row changes, in the users' units of y."""

    residual: Array  # (n, q) of the ensemble without the row
    offset: Array  # (n, q) change of the prediction at the means of all rows
    centre: Array  # (p,) these means, in units of `unit`
    unit: float  # that X is divided by
    changes: Array | None = None  # (q, p, n) of the coefficients, for the jackknife+


@dataclass(frozen=True)
class _Derivative:
    """The ensemble's predictions as functions of the targets."""

    operator: Operator
    rows: TrainingRows
    units: Units
    scale: float
    kept: Array | None = None  # (p, n) of coefficients with respect to the targets, where there is memory for it
    shrink: float = 1.0  # 1 - kappa

    @cached_property
    def base(self) -> Array:
        """At the means of all rows, (n,)."""
        return self.operator.centre + self.scale * self.operator.moved

    def columns(self, here: slice) -> Array:
        """Of coefficients with respect to the targets of a block of rows, (p, rows)."""
        if self.kept is not None:
            return self.kept[:, here]
        found: Array = self.operator.M @ self.rows.block(here) * self.rows.weight[here]
        return self.scale * (found if self.operator.F is None else found + self.operator.F[:, here])

    def sum_over_rows(self, term: Callable[[slice], Array], sharing: Sharing) -> Array:
        """Sum of a term of every block of rows; how they are cut does not depend on the threads."""
        blocks = self.rows.blocks()

        def work(start: int, stop: int) -> Array:
            return term(slice(blocks[start].start, blocks[stop - 1].stop))

        return np.asarray(sum(sharing.quiet()(work, len(blocks), chunk=1)))


class Jackknife:
    """The ensemble without each of its n rows, computed when it is asked for and kept.

    Parameters
    ----------
    problem : Problem
        The training rows.
    design : Design
        How members are drawn.
    weights : ndarray of shape (k,)
        Of the members; empty where they are infinitely many.
    scale : float
        About the mean target.
    check : callable
        Is given coefficients (p, q) and intercept (q,) of the mean member, as found from the rows, and raises if they
        are not those that were fitted.
    """

    def __init__(
        self, problem: Problem, design: Design, weights: Array, scale: float, check: Callable[[Array, Array], None]
    ) -> None:
        self.problem, self.design, self.weights, self.scale, self.check = problem, design, weights, scale, check
        self._found: _LeaveOneOut | None = None
        self._derivative: _Derivative | None = None

    @property
    def _changes_bytes(self) -> float:
        (n, p), q = self.problem.shape, self.problem.Y.shape[1]
        return 8.0 * float(n * p * q)

    @property
    def plus_is_cheap(self) -> bool:
        """Whether the jackknife+ takes little memory, or none any more."""
        return (self._found is not None and self._found.changes is not None) or _can_be_kept(self._changes_bytes)

    def residuals(self, sharing: Sharing) -> Array:
        """Leave-one-out residuals, (n, q)."""
        with one_blas_thread():
            return self._leave_one_out(sharing).residual

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool, sharing: Sharing) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape (rows, q)."""
        n, q = self.problem.Y.shape
        rank = _rank(coverage, n)
        if rank > n:
            return _whole_line(len(prediction), q)
        with one_blas_thread():
            found = self._leave_one_out(sharing, with_changes=plus)
        width = np.abs(found.residual)
        if not plus:
            half = np.partition(width, rank - 1, axis=0)[rank - 1]
            return np.stack([prediction - half, prediction + half], axis=2)
        ends, changes = np.empty((*prediction.shape, 2)), found.changes
        assert changes is not None

        def work(start: int, stop: int) -> None:
            for here, rows in dense_chunks(X[start:stop], 32.0 * n):
                here = slice(start + here.start, start + here.stop)
                for t in range(q):
                    change = found.offset[:, t] + (rows / found.unit - found.centre) @ changes[t]
                    without = prediction[here, t, None] - change
                    ends[here, t, 0] = np.partition(without - width[:, t], n - rank, axis=1)[:, n - rank]
                    ends[here, t, 1] = np.partition(without + width[:, t], rank - 1, axis=1)[:, rank - 1]

        sharing.quiet()(work, len(prediction), chunk=max(1, -(-len(prediction) // 8)))
        return ends

    def std(self, X: Any, sharing: Sharing) -> Array:
        """Standard error of the expected prediction, shape (rows, q)."""
        with one_blas_thread():
            found = self._by_targets(sharing)
            squares, unit = self._squared_errors(sharing)
            out = np.empty((X.shape[0], squares.shape[1]))
            for here, rows in dense_chunks(X, 8.0 * len(squares) / len(found.rows.blocks())):
                new = rows / found.units.x - found.rows.mean_x

                def term(block: slice, new: Array = new) -> Array:
                    return np.asarray((new @ found.columns(block) + found.base[block]) ** 2 @ squares[block])

                out[here] = found.sum_over_rows(term, sharing)
        return np.asarray(np.sqrt(found.shrink * out) * unit)

    def coef_std(self, sharing: Sharing) -> Array:
        """Standard error of the expected coefficients, shape (p, q)."""
        with one_blas_thread():
            found = self._by_targets(sharing)
            squares, unit = self._squared_errors(sharing)
            total = found.sum_over_rows(lambda block: found.columns(block) ** 2 @ squares[block], sharing)
        return np.asarray(np.sqrt(found.shrink * total) * unit / found.units.x)

    def _squared_errors(self, sharing: Sharing) -> tuple[Array, float]:
        """Squares of the leave-one-out residuals, (n, q), in a unit in which none is too large."""
        residual = self._leave_one_out(sharing).residual
        unit = power_of_two(float(np.abs(residual).max(initial=0.0)))
        return (residual / unit) ** 2, unit

    def _leave_one_out(self, sharing: Sharing, with_changes: bool = False) -> _LeaveOneOut:
        if self._found is not None and (self._found.changes is not None or not with_changes):
            return self._found
        changes = None
        if with_changes:
            free, (n, p), q = memory.available_bytes(), self.problem.shape, self.problem.Y.shape[1]
            if self._changes_bytes > free / 4:
                raise MemoryError(
                    f"method='jackknife+' keeps what each of {n} training rows changes of {p} coefficients, which "
                    f"takes {memory.describe(self._changes_bytes)}, but {memory.describe(free)} of memory are free. "
                    f"Use method='jackknife', which keeps the leave-one-out residuals alone, or method='cv+'."
                )
            changes = np.zeros((q, p, n))
        self._found = self._pass(sharing, changes)[0]
        return self._found

    def _by_targets(self, sharing: Sharing) -> _Derivative:
        """Derivatives; kept with all they need, so that nothing is read again of rows that may have been changed."""
        if self._derivative is not None:
            return self._derivative
        n, p = self.problem.shape
        self._found, sums, rows, units = self._pass(sharing, None, operator=True)
        assert sums.operator is not None
        found = _Derivative(sums.operator, rows, units, self.scale)
        kept = np.empty((p, n)) if _can_be_kept(8.0 * n * p) else None
        found = replace(found, shrink=_shrink(found, kept, sharing))
        if kept is None:
            return found
        self._derivative = replace(found, kept=kept, operator=replace(found.operator, F=None))
        return self._derivative

    def _pass(
        self, sharing: Sharing, changes: Array | None, operator: bool = False
    ) -> tuple[_LeaveOneOut, Deleted, TrainingRows, Units]:
        """Sums over all members, checked to be those of the fit; adds to `changes` (q, p, n)."""
        problem, units = replace(self.problem).in_units  # without the moments of then: users can change X in place
        visit = None if changes is None else _adder(changes)
        if len(self.weights):
            drawn = self.design.draw(0, len(self.weights), sharing.without_blas)
            sums, rows = delete_rows(problem, *drawn, self.weights, sharing, visit=visit, operator=operator)
        else:
            assert self.design.process is not None
            sums, rows = delete_rows_of_limit(problem, self.design.process[0], visit=visit, operator=operator)
        self.check(units.coefficients(sums.coef), sums.intercept * units.y)
        predicted = sums.mean_y + self.scale * (problem.Y - sums.residual - sums.mean_y)
        offset = self.scale * sums.moved + (1 - self.scale) * sums.mean_change
        if changes is not None:
            changes *= self.scale * units.y
        elif self._found is not None:
            changes = self._found.changes
        found = _LeaveOneOut((problem.Y - predicted) * units.y, offset * units.y, rows.mean_x, units.x, changes)
        return found, sums, rows, units


def _adder(changes: Array) -> Visit:
    """Adds what rows change of the coefficients of some columns; slices of rows are of all columns."""
    targets = np.arange(len(changes))

    def add(columns: Indices, rows: Any, change: Array) -> None:
        here = (slice(None), slice(None), rows) if isinstance(rows, slice) else np.ix_(targets, columns, rows)
        changes[here] += change

    return add


def _shrink(found: _Derivative, kept: Array | None, sharing: Sharing) -> float:
    """1 - kappa, from the trace of the hat matrix H and the sum of its squares; writes the derivatives to `kept`.

    Of an ensemble that fits every row it is 0 / 0, and leaving kappa out is the safe side.
    """
    rows, n = found.rows, len(found.rows.weight)
    R, total = _triangle(rows)

    def term(here: slice) -> Array:
        x, operator, base = rows.block(here), found.columns(here), found.base[here]
        if kept is not None:
            kept[:, here] = operator
        trace = np.einsum("jl,jl->", x, operator) + base.sum()
        squares = np.sum((R @ operator) ** 2) + 2 * (total @ operator) @ base + n * (base @ base)
        return np.array([trace, squares])

    trace, squares = found.sum_over_rows(term, sharing) / n
    left = (1 - trace) ** 2
    return min(1.0, float(left / (1 - 2 * trace + squares))) if left > INTERPOLATES else 1.0


def _triangle(rows: TrainingRows) -> tuple[Array, Array]:
    """R (at most p, p) with R'R = A'A for rows A about their means, without weights, and their sum, (p,).

    By QR: products of the columns would lose twice the digits where rows are far out.
    """
    n, p = rows.problem.shape
    R, total, step = np.zeros((0, p)), np.zeros(p), max(4 * p, 1024)
    for start in range(0, n, step):
        x = rows.block(slice(start, min(start + step, n)))
        R = np.asarray(np.linalg.qr(np.vstack([R, x.T]), mode="r"))
        total += x.sum(axis=1)
    return R, total


def _can_be_kept(n_bytes: float) -> bool:
    return n_bytes <= min(KEPT_BYTES, memory.available_bytes() / 4)


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
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = sum(np.searchsorted(e, middle - s, side="right") for e, s in zip(lists, shift.T, strict=True)) >= rank
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
