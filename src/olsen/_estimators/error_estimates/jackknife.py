r"""Jackknife+ intervals, and standard errors from rows in memory.

**Jackknife+** (Barber, Candes, Ramdas, Tibshirani 2021): the interval spans order statistics of
:math:`\hat y_{-l}(x_0) \pm |e_l|`, :math:`e_l` the leave-one-out residuals. Status: theorem,
coverage at least 1 - 2(1 - coverage) for exchangeable rows when the size was not chosen from the
same rows; close to `coverage` in simulation. One inverse per member gives that member without each
of its rows (``_members.jackknife``). Row l changes the coefficients by
:math:`c_l` and the prediction at the means of all rows by :math:`o_l`, so that without row l the prediction is
:math:`\hat y(x_0) - o_l - (x_0 - \bar x)' c_l`.
The scale applies to deviations from each member's mean target: without row l the prediction is
mean_{-l} + scale * (prediction_{-l} - mean_{-l}).

**Standard error** (here because it takes the same pass over the members): the ensemble is linear in
y, :math:`\hat y(x_0) = w(x_0)' y`, and its variance is estimated by :math:`(1 - \hat\kappa) \sum_l
w_l(x_0)^2 e_l^2` with
:math:`1 - \hat\kappa = (1 - \mathrm{tr} H / n)^2 / (1 - 2\,\mathrm{tr} H / n + \mathrm{tr}(H H')/n)`. Status:
asymptotic. It is the spread of the prediction over repeated data sets and does not include
shrinkage bias. If the ensemble fits every row (tr H = n), :math:`\hat\kappa` is not defined and
taken as 0, an upper bound. The hat matrix is never formed: with rows A = Q R and coefficients that
depend on the targets through D, the squares of A D sum to those of R D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._execution import memory
from ..._execution.caching import cached_property
from ..._execution.threads import Threads, one_blas_thread
from ..._members.jackknife import Deleted, TrainingRows, delete_rows, delete_rows_of_limit
from ..chunks import dense_chunks, order_statistic_rank
from ..result import FittedResult
from .widths import (
    AdaptiveWidth,
    NewRows,
    ResidualSize,
    at_predictions,
    signed_rank,
    sizes_of_targets,
)

Array = NDArray[np.float64]

MAX_CHEAP_BYTES = 2.0**28  # of coefficient changes, for which method="auto" takes the jackknife+


class _Deletion(NamedTuple):
    """Leave-one-out quantities of the ensemble, from one pass over the members."""

    residual: Array  # (n, q) leave-one-out residuals
    offset: Array  # (n, q) change of the prediction at the means of all rows
    sums: Deleted
    rows: TrainingRows


class _Derivative(NamedTuple):
    """Derivative of the ensemble with respect to the targets, and the variances of the targets."""

    coef: Array  # (p, n) derivative of the coefficients
    base: Array  # (n,) derivative of the prediction at the means of all rows
    squares: Array  # (n, q) squared leave-one-out residuals, times 1 - kappa
    mean_x: Array


@dataclass(frozen=True)
class Jackknife:
    """The ensemble without each of its n rows, computed on demand and cached."""

    fitted: FittedResult
    threads: Threads

    @cached_property
    def residuals(self) -> Array:
        """Leave-one-out residuals, (n, q)."""
        return self._delete_rows().residual

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Rows, columns and targets."""
        assert self.fitted.rows is not None
        return (*self.fitted.rows.shape, self.fitted.rows.Y.shape[1])

    @property
    def _bytes(self) -> float:
        return 8.0 * float(np.prod(self._shape))

    @property
    def plus_is_cheap(self) -> bool:
        """Whether the jackknife+ takes little memory, or its arrays are cached already."""
        cheap_bytes = min(MAX_CHEAP_BYTES, memory.available_bytes() / 4)
        return "_changes" in vars(self) or self._bytes <= cheap_bytes

    @property
    def predictions(self) -> Array:
        """Leave-one-out predictions, (n, q)."""
        assert self.fitted.rows is not None
        return np.asarray(self.fitted.rows.Y - self.residuals)

    def order_statistics(
        self, new: NewRows, errors: Array, ranks: Sequence[int], *, plus: bool
    ) -> Array:
        """Order statistics (ranks, rows, q) of predictions plus `errors` (n, q) times the widths of
        new rows; infinite for ranks beyond the rows.
        """
        n = len(errors)
        positions = np.clip(np.array(ranks) - 1, 0, n - 1)
        if plus:
            values = self._plus_order_statistics(new, errors, positions)
        else:
            of_errors = np.sort(errors, axis=0)[positions]  # (ranks, q)
            values = new.prediction + new.widths * of_errors[:, None]
        values[np.array(ranks) > n] = np.inf
        values[np.array(ranks) < 1] = -np.inf
        return values

    def _plus_order_statistics(
        self, new: NewRows, errors: Array, positions: NDArray[np.int64]
    ) -> Array:
        """The same of leave-one-out predictions plus errors."""
        n, q = errors.shape
        deletion, changes = self._changes
        mean_x = deletion.rows.problem.means[0]

        def of_rows(start: int, stop: int) -> Array:
            part = np.empty((len(positions), stop - start, q))
            predictions = new.prediction[start:stop]
            widths = new.widths[start:stop]
            for chunk, rows in dense_chunks(new.X[start:stop], 32.0 * n):
                for t in range(q):
                    change = deletion.offset[:, t] + (rows - mean_x) @ changes[t]
                    values = predictions[chunk, t, None] - change  # (rows, n)
                    values += widths[chunk, t, None] * errors[:, t]
                    part[:, chunk, t] = np.partition(values, positions)[:, positions].T
            return part

        n_new = len(new.prediction)
        chunk = max(1, -(-n_new // 8))
        return np.concatenate(self.threads.quiet()(of_rows, n_new, chunk=chunk), axis=1)

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard error of the expected X b + constant * intercept, shape (rows, q)."""
        derivative = self._derivative
        variance = np.empty((X.shape[0], derivative.squares.shape[1]))
        for chunk, rows in dense_chunks(X, 8.0 * len(derivative.base)):
            weights = (
                rows - constant * derivative.mean_x
            ) @ derivative.coef + constant * derivative.base
            variance[chunk] = weights**2 @ derivative.squares
        return np.asarray(np.sqrt(variance))

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, shape (p, q)."""
        derivative = self._derivative
        return np.asarray(np.sqrt(derivative.coef**2 @ derivative.squares))

    @cached_property
    def _changes(self) -> tuple[_Deletion, Array]:
        """Leave-one-out quantities, and the change of the coefficients by each training row, (q, p,
        n).
        """
        n, p, q = self._shape
        purpose = (
            f"method='jackknife+' with the influence of each of {n} training rows on {p}"
            " coefficients"
        )
        instead = (
            "Use method='jackknife', which keeps the leave-one-out residuals alone, or"
            " method='cv+'."
        )
        memory.require(self._bytes, purpose, instead)
        changes = np.zeros((q, p, n))
        targets = np.arange(q)

        def add(columns: Any, rows: Any, change: Array) -> None:
            index = (
                (slice(None), slice(None), rows)
                if isinstance(rows, slice)
                else np.ix_(targets, columns, rows)
            )
            changes[index] += change

        deletion = self._delete_rows(visit=add)
        changes *= self.fitted.scale
        return deletion, changes

    @cached_property
    def _derivative(self) -> _Derivative:
        """Derivative with respect to the targets; self-contained, as the rows may be changed in
        place later.
        """
        n, p, _ = self._shape
        memory.require(
            24.0 * n * p,
            f"standard errors from {n} rows and {p} columns",
            "Fit fewer rows, or blocks.",
        )
        residual, _, sums, rows = self._delete_rows(operator=True)
        operator = sums.operator
        assert operator is not None
        x = rows.block(slice(0, n))  # (p, n)
        scale = self.fitted.scale
        D = operator.M @ x * rows.problem.weights
        D = scale * (D if operator.F is None else D + operator.F)
        base = operator.centre + scale * operator.moved
        # QR instead of products of the columns, which would lose twice the digits if some rows are
        # outlying
        R = np.linalg.qr(x.T, mode="r")
        total = x.sum(axis=1)
        trace = (np.einsum("jl,jl->", x, D) + base.sum()) / n
        squares = (np.sum((R @ D) ** 2) + 2 * (total @ D) @ base + n * (base @ base)) / n
        numerator = (1 - trace) ** 2
        # 0 / 0 if the ensemble fits every row; kappa = 0 is then an upper bound of the variance
        shrinkage = (
            min(1.0, float(numerator / (1 - 2 * trace + squares))) if numerator > 1e-12 else 1.0
        )
        return _Derivative(D, base, shrinkage * residual**2, rows.problem.means[0])

    def _delete_rows(self, **outputs: Any) -> _Deletion:
        """Leave-one-out quantities of the ensemble; `outputs` are those of :func:`delete_rows`."""
        problem = self.fitted.need_rows("predict_interval (and return_std)")
        design = self.fitted.design
        weights = self.fitted.members.weights
        scale = self.fitted.scale
        with one_blas_thread():
            if len(weights):
                features, samples = design.draw(0, len(weights), self.threads.without_blas)
                sums, rows = delete_rows(
                    problem, features, samples, weights, self.threads, **outputs
                )
            else:  # infinitely many members
                assert design.process is not None
                sums, rows = delete_rows_of_limit(problem, design.process[0], **outputs)
        predicted = sums.mean_y + scale * (problem.Y - sums.residual - sums.mean_y)
        offset = scale * sums.moved + (1 - scale) * sums.mean_change
        return _Deletion(problem.Y - predicted, offset, sums, rows)


@dataclass(frozen=True)
class JackknifeIntervals:
    """Intervals from leave-one-out residuals, with the centre moved for each left-out row if `plus`."""

    jackknife: Jackknife
    plus: bool
    adaptive_width: AdaptiveWidth

    @cached_property
    def sizes(self) -> list[ResidualSize]:
        """Size of the residuals of each target as a function of the prediction."""
        residuals = self.jackknife.residuals
        return sizes_of_targets(
            self.jackknife.predictions, residuals, len(residuals), self.adaptive_width
        )

    @property
    def held_out_predictions(self) -> Array:
        """Leave-one-out predictions, (n, q)."""
        return self.jackknife.predictions

    def interval(self, new: NewRows, coverages: Sequence[float]) -> Array:
        """Lower and upper ends, shape (coverages, rows, q, 2)."""
        errors = np.abs(self._normalised)
        n = len(errors)
        ranks = [order_statistic_rank(coverage, n) for coverage in coverages]
        mirrored = [n + 1 - rank for rank in ranks]
        upper = self.jackknife.order_statistics(new, errors, ranks, plus=self.plus)
        lower = self.jackknife.order_statistics(new, -errors, mirrored, plus=self.plus)
        return np.stack([lower, upper], axis=3)

    def quantiles(self, new: NewRows, levels: Sequence[float]) -> Array:
        """Quantiles of new observations, shape (levels, rows, q), from signed residuals."""
        errors = self._normalised
        n = len(errors)
        ranks = [signed_rank(level, n, order_statistic_rank) for level in levels]
        return self.jackknife.order_statistics(new, errors, ranks, plus=self.plus)

    @cached_property
    def _normalised(self) -> Array:
        """Residuals (n, q) divided by their sizes."""
        predictions = self.jackknife.predictions
        return np.asarray(self.jackknife.residuals / at_predictions(self.sizes, predictions))
