r"""How sure a prediction is: intervals for new observations, standard errors of the expected prediction.

The ensemble with all rows is linear in y, :math:`\hat y(x_0) = w(x_0)' y`, and every member can be had without row l
for the price of one inverse (``_members.jackknife``). From sums over members,

- **jackknife+** (Barber, Candes, Ramdas, Tibshirani 2021): the interval spans order statistics of
  :math:`\hat y_{-l}(x_0) \pm |e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) for exchangeable rows when
  the size was not chosen from them; close to `coverage` in simulation.
- **standard error**: :math:`(1 - \hat\kappa) \sum_l w_l(x_0)^2 e_l^2` with leave-one-out residuals e and
  :math:`1 - \hat\kappa = (1 - \mathrm{tr} H / n)^2 / (1 - 2\,\mathrm{tr} H / n + \mathrm{tr}(H H')/n)`.
  Status: asymptotic. It is the spread of the prediction over repeated data sets, not its distance from the truth:
  shrinkage bias is not in it. Where the ensemble fits every row (tr H = n), :math:`\hat\kappa` is not defined and taken
  as 0, an upper bound.

The scale shrinks every member about its own mean target: without row l it predicts mean_{-l} + scale * (prediction_{-l}
- mean_{-l}). With rows about the means of all, and coefficients that row l changes by :math:`c_l`, that row changes the
prediction at :math:`x_0` by scale :math:`(x_0 - \bar x)' c_l` and a number of its own.

Memory: residuals take that of y. The changes :math:`c_l` of all rows take q times that of X and are kept up to
`KEPT_BYTES`; beyond, they are made anew for as many new rows at a time as there is room for. The hat matrix is never
formed: with rows A = Q R and coefficients that depend on the targets through an operator O, the squares of A O sum to
those of R O.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .._execution.threads import Sharing, one_blas_thread
from .._members.jackknife import Deleted, Operator, TrainingRows, Visit, delete_rows, delete_rows_of_limit
from .._members.problem import Problem, Units
from .._moments import weighted_mean
from .._trust import power_of_two
from ..subsets import Design
from .left_out import AT_A_TIME, LeftOut, about, order_statistics, rank_of, steps

__all__ = ["Deletions"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
INTERPOLATES = 1e-12  # (1 - tr H / n)^2 from which on it is rounding
KEPT_BYTES = float(1 << 28)  # of changes that are kept with a fitted model
MOST_PASSES = 20  # over all members, for one call


@dataclass(frozen=True)
class _Derivative:
    """The ensemble's predictions as functions of the targets."""

    operator: Operator
    rows: TrainingRows
    units: Units
    scale: float
    kept: Array | None  # (p, n) of coefficients with respect to the targets, where there is room for it
    shrink: float = 1.0  # 1 - kappa

    @cached_property
    def base(self) -> Array:
        """At the means of all rows, (n,)."""
        return self.operator.centre + self.scale * self.operator.moved

    def columns(self, here: slice) -> Array:
        """Of coefficients with respect to the targets of a block of rows, (p, rows)."""
        if self.kept is not None:
            return self.kept[:, here]
        found: Array = self.operator.M @ self.rows.block(here)[:-1] * self.rows.weight[here]
        return self.scale * (found if self.operator.F is None else found + self.operator.F[:, here])


class Deletions:
    """The ensemble without each of its n rows; what is asked for is computed then, and kept where there is room.

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
        self,
        problem: Problem,
        design: Design,
        weights: Array,
        scale: float,
        check: Callable[[Array, Array], None],
    ) -> None:
        self.problem, self.design = problem, design
        self.weights, self.scale, self.check = weights, scale, check
        self._left: LeftOut | None = None
        self._derivative: _Derivative | None = None

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool, sharing: Sharing) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape (rows, q).

        Ranks are ceil(coverage (n + 1)) of n; where that exceeds n the interval is the whole line.
        """
        with one_blas_thread():
            return self._interval(X, prediction, coverage, plus, sharing)

    def std(self, X: Any, sharing: Sharing) -> Array:
        """Standard error of the expected prediction, shape (rows, q)."""
        with one_blas_thread():
            return self._std(X, sharing)

    def coef_std(self, sharing: Sharing) -> Array:
        """Standard error of the expected coefficients, shape (p, q)."""
        with one_blas_thread():
            return self._coef_std(sharing)

    def _interval(self, X: Any, prediction: Array, coverage: float, plus: bool, sharing: Sharing) -> Array:
        n = len(self.problem.Y)
        rank = rank_of(coverage, n)
        if not plus or rank > n:
            return self._left_behind(sharing).interval(X, prediction, coverage, False, sharing)
        if self.changes_fit:
            return self._all_changes(sharing).interval(X, prediction, coverage, True, sharing)
        out = np.empty((*prediction.shape, 2))
        for here in self._passes(X.shape[0]):
            change, left = self._changes_at(X[here], sharing)
            order_statistics(change, prediction[here], left, rank, out[here], sharing)
        return out

    def _coef_std(self, sharing: Sharing) -> Array:
        found = self._by_targets(sharing)
        squares, unit = self._squared_errors(sharing)
        blocks = found.rows.blocks()

        def work(start: int, stop: int) -> Array:
            rows = slice(blocks[start].start, blocks[stop - 1].stop)
            return found.columns(rows) ** 2 @ squares[rows]

        total = sum(sharing.quiet()(work, len(blocks), chunk=1))
        return np.asarray(np.sqrt(found.shrink * total) * unit / found.units.x)

    def _squared_errors(self, sharing: Sharing) -> tuple[Array, float]:
        """Squares of the leave-one-out residuals, (n, q), in a unit in which none is too large."""
        residual = self._left_behind(sharing).residual
        unit = power_of_two(float(np.abs(residual).max(initial=0.0)))
        return (residual / unit) ** 2, unit

    def _std(self, X: Any, sharing: Sharing) -> Array:
        found = self._by_targets(sharing)
        squares, unit = self._squared_errors(sharing)
        blocks = found.rows.blocks()
        out = np.empty((X.shape[0], squares.shape[1]))
        for here in steps(X.shape[0], 8.0 * len(squares) / len(blocks), AT_A_TIME):
            new = about(X[here], found.rows.mean_x, found.units.x)

            def work(start: int, stop: int, new: Array = new) -> Array:
                rows = slice(blocks[start].start, blocks[stop - 1].stop)
                return (new @ found.columns(rows) + found.base[rows]) ** 2 @ squares[rows]

            out[here] = sum(sharing.quiet()(work, len(blocks), chunk=1))
        return np.asarray(np.sqrt(found.shrink * out) * unit)

    @property
    def changes_fit(self) -> bool:
        """Whether there is room for what the jackknife+ needs, whatever the new rows."""
        (n, p), q = self.problem.shape, self.problem.Y.shape[1]
        return (self._left is not None and self._left.changes is not None) or _can_be_kept(8.0 * p * n * q)

    def left_out(self, sharing: Sharing, *, plus: bool) -> LeftOut:
        """What intervals need: for the jackknife+ if there is room for it, otherwise for the plain jackknife."""
        with one_blas_thread():
            if plus and self.changes_fit:
                return self._all_changes(sharing)
            return replace(self._left_behind(sharing), changes=None)

    def _passes(self, count: int) -> list[slice]:
        """New rows to be predicted in each pass over all members, or an error where there would be too many."""
        n, q = self.problem.Y.shape
        free = memory.available_bytes()
        parts = steps(count, 8.0 * n * q, free / 4)
        if 8.0 * n * q > free / 4 or len(parts) > MOST_PASSES:
            raise MemoryError(
                f"method='jackknife+' predicts each of {count} rows without each of {n} training rows, which takes "
                f"{memory.describe(8.0 * count * n * q)} or more than {MOST_PASSES} passes over all members, but "
                f"{memory.describe(free)} of memory are free. Use method='jackknife', which is exact from "
                f"leave-one-out residuals alone whatever the number of rows, or give fewer rows at a time."
            )
        return parts

    # Passes over all members

    def _left_behind(self, sharing: Sharing) -> LeftOut:
        if self._left is None:
            self._pass(*self._present(), sharing)
        assert self._left is not None
        return self._left

    def _all_changes(self, sharing: Sharing) -> LeftOut:
        """With changes of the coefficients, (q, p, n), by each row."""
        if self._left is None or self._left.changes is None:
            problem, units = self._present()
            (n, p), q = problem.shape, problem.Y.shape[1]
            changes = np.zeros((q, p, n))

            def visit(columns: Indices, rows: Any, change: Array) -> None:
                if isinstance(rows, slice):  # of all columns
                    changes[:, :, rows] += change
                else:
                    changes[np.ix_(np.arange(q), columns, rows)] += change

            left = self._pass(problem, units, sharing, visit)[0]
            changes *= self.scale * units.y
            self._left = replace(left, changes=changes)
        return self._left

    def _changes_at(self, X: Any, sharing: Sharing) -> tuple[Array, LeftOut]:
        """Changes of predictions for new rows, (q, new, n), but for the offset of each row."""
        problem, units = self._present()
        n, q = problem.Y.shape
        centre = weighted_mean(problem.X, problem.weight) if problem.fit_intercept else np.zeros(problem.shape[1])
        new = about(X, centre, units.x)
        found = np.zeros((q, len(new), n))

        def visit(columns: Indices, rows: Any, change: Array) -> None:
            found[:, :, rows] += new[:, columns] @ change

        left = self._pass(problem, units, sharing, visit)[0]
        found *= self.scale * units.y
        return found, left

    def _by_targets(self, sharing: Sharing) -> _Derivative:
        """Derivatives; kept with all they need, so that nothing is read again of rows that may have been changed."""
        if self._derivative is not None:
            return self._derivative
        problem, units = self._present()
        n, p = problem.shape
        _, sums, rows = self._pass(problem, units, sharing, operator=True)
        assert sums.operator is not None
        found = _Derivative(sums.operator, rows, units, self.scale, None)
        kept = np.empty((p, n)) if _can_be_kept(8.0 * n * p) else None
        found = replace(found, shrink=_shrink(found, kept, sharing))
        if kept is None:
            return found
        self._derivative = replace(found, kept=kept, operator=replace(found.operator, F=None))
        return self._derivative

    def _present(self) -> tuple[Problem, Units]:
        """The rows as they are now, without the moments of then: users can change X in place."""
        return replace(self.problem).in_units

    def _pass(
        self,
        problem: Problem,
        units: Units,
        sharing: Sharing,
        visit: Visit | None = None,
        operator: bool = False,
    ) -> tuple[LeftOut, Deleted, TrainingRows]:
        """Sums over all members, checked to be those of the fit."""
        if len(self.weights):
            drawn = self.design.draw(0, len(self.weights), sharing.without_blas)
            sums, rows = delete_rows(problem, *drawn, self.weights, sharing, visit=visit, operator=operator)
        else:
            assert self.design.process is not None
            sums, rows = delete_rows_of_limit(problem, self.design.process[0], visit=visit, operator=operator)
        self.check(units.coefficients(sums.coef), sums.intercept * units.y)
        predicted = sums.mean_y + self.scale * (problem.Y - sums.residual - sums.mean_y)
        offset = self.scale * sums.moved + (1 - self.scale) * sums.mean_change
        residual = (problem.Y - predicted) * units.y
        kept = None if self._left is None else self._left.changes
        self._left = LeftOut(residual, offset * units.y, rows.mean_x, units.x, kept)
        return self._left, sums, rows


def _shrink(found: _Derivative, kept: Array | None, sharing: Sharing) -> float:
    """1 - kappa, from the trace of the hat matrix H and the sum of its squares; writes the derivatives to `kept`.

    Of an ensemble that fits every row it is 0 / 0, and leaving kappa out is the safe side.
    """
    rows, n = found.rows, len(found.rows.weight)
    blocks = rows.blocks()
    R, total = _triangle(rows)

    def work(start: int, stop: int) -> Array:
        here = slice(blocks[start].start, blocks[stop - 1].stop)
        x, operator, base = rows.block(here)[:-1], found.columns(here), found.base[here]
        if kept is not None:
            kept[:, here] = operator
        trace = np.einsum("jl,jl->", x, operator) + base.sum()
        squares = np.sum((R @ operator) ** 2) + 2 * (total @ operator) @ base + n * (base @ base)
        return np.array([trace, squares])

    trace, squares = np.sum(sharing.quiet()(work, len(blocks), chunk=1), axis=0) / n
    left = (1 - trace) ** 2
    return min(1.0, float(left / (1 - 2 * trace + squares))) if left > INTERPOLATES else 1.0


def _triangle(rows: TrainingRows) -> tuple[Array, Array]:
    """R (at most p, p) with R'R = A'A for rows A about their means, without weights, and their sum, (p,).

    By QR: products of the columns would lose twice the digits where rows are far out.
    """
    n, p = rows.problem.shape
    R, total = np.zeros((0, p)), np.zeros(p)
    for here in steps(n, 1.0, max(4.0 * p, 1024.0)):
        x = rows.block(here)[:-1]
        R = np.asarray(np.linalg.qr(np.vstack([R, x.T]), mode="r"))
        total += x.sum(axis=1)
    return R, total


def _can_be_kept(n_bytes: float) -> bool:
    """Whether there is room for an array; how much memory is free is looked up for large ones only."""
    return n_bytes <= KEPT_BYTES and (n_bytes < 64e6 or n_bytes <= memory.available_bytes() / 4)
