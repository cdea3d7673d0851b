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

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape
        (rows, q).
        """
        n, _, q = self._shape
        rank = order_statistic_rank(coverage, n)
        if rank > n:
            return np.tile([-np.inf, np.inf], (len(prediction), q, 1))
        if not plus:
            half_width = np.partition(np.abs(self.residuals), rank - 1, axis=0)[rank - 1]
            return np.stack([prediction - half_width, prediction + half_width], axis=2)
        deletion, changes = self._changes
        mean_x = deletion.rows.problem.means[0]
        half_widths = np.abs(deletion.residual)

        def ends(start: int, stop: int) -> Array:
            ends_of_rows = np.empty((stop - start, q, 2))
            for chunk, rows in dense_chunks(X[start:stop], 32.0 * n):
                for t in range(q):
                    change = deletion.offset[:, t] + (rows - mean_x) @ changes[t]
                    leave_one_out = prediction[start:stop][chunk, t, None] - change  # (rows, n)
                    lower = leave_one_out - half_widths[:, t]
                    upper = leave_one_out + half_widths[:, t]
                    ends_of_rows[chunk, t, 0] = np.partition(lower, n - rank)[:, n - rank]
                    ends_of_rows[chunk, t, 1] = np.partition(upper, rank - 1)[:, rank - 1]
            return ends_of_rows

        chunk = max(1, -(-len(prediction) // 8))
        return np.concatenate(self.threads.quiet()(ends, len(prediction), chunk=chunk))

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
