r"""How far predictions and coefficients may be off: from ensembles without some rows, from moments, and over draws.

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

**From moments**, where rows are not in memory. With :math:`B = \frac1k \sum_i P_i`, :math:`P_i` the inverse of member
i's Gram matrix and zero outside its columns, the ensemble's coefficients are :math:`\mu B X' y`, and

.. math:: \hat\sigma^2 = \frac{\|r\|^2}{n - 2 \mathrm{tr} H + \mathrm{tr}(H H')} , \qquad
          V = \mu^2 \hat\sigma^2 B G B , \qquad H = X \mu B X'

Status: asymptotic, for errors of one variance (inversely proportional to the weights where there are weights); in
memory the jackknife does without that assumption. Shrinkage bias is not in it.

**From refits** of tuned models, which repeat the choice on a share s of the rows and vary about their mean with
:math:`(1 - s) / s` times the variance asked for (delete-d jackknife: exact for means, a heuristic after a choice).
Measured with 200 data sets of 100 rows and 50 columns: four fifths of the rows give .76 to 1.31 times the true spread
of any coefficient, the different rows of a bootstrap sample .68 to 1.29, weights of a bootstrap .60 to 1.10; deviations
from the fit of all rows instead of the mean, up to 1.8.

**Over draws.** Members come in batches that are drawn independently of each other (with a balanced design a batch holds
whole groups of members that avoid each other). The mean of B batches varies over draws with variance :math:`s^2 / B`,
:math:`s^2` the variance of the batches. Status: exact up to the noise of a variance from B batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._engines.engine import Engine, FoldFit
from .._execution import memory
from .._execution.threads import Threads, cached_property, one_blas_thread
from .._members.jackknife import Deleted, TrainingRows, delete_rows, delete_rows_of_limit, inverses
from .._moments.moments import Moments
from .._trust import LARGEST_INFLATION
from ..subsets import Design, Subsets, group_size
from .result import FittedResult

Array = NDArray[np.float64]

FITS_EVERY_ROW = 1e-9  # degrees of freedom a row below which those of the residuals are rounding


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


class _Deletion(NamedTuple):
    """One pass over the members."""

    residual: Array  # (n, q) of the ensemble without the row
    offset: Array  # (n, q) change of the prediction at the means of all rows
    sums: Deleted
    rows: TrainingRows


class _Derivative(NamedTuple):
    """The ensemble as a function of the targets."""

    coef: Array  # (p, n) of coefficients
    base: Array  # (n,) of predictions at the means of all rows
    squares: Array  # (n, q) of leave-one-out residuals, times 1 - kappa
    mean_x: Array


@dataclass(frozen=True)
class Jackknife:
    """The ensemble without each of its n rows, computed when it is asked for and kept."""

    fitted: FittedResult
    sharing: Threads

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
        """Whether the jackknife+ takes little memory, or none any more."""
        return "_changes" in vars(self) or self._bytes <= min(2.0**28, memory.available_bytes() / 4)

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape (rows, q)."""
        n, _, q = self._shape
        rank = _rank(coverage, n)
        if rank > n:
            return np.tile([-np.inf, np.inf], (len(prediction), q, 1))
        if not plus:
            half = np.partition(np.abs(self.residuals), rank - 1, axis=0)[rank - 1]
            return np.stack([prediction - half, prediction + half], axis=2)
        (found, changes), ends = self._changes, np.empty((*prediction.shape, 2))
        width = np.abs(found.residual)

        def work(start: int, stop: int) -> None:
            for part, rows in dense_chunks(X[start:stop], 32.0 * n):
                here = slice(start + part.start, start + part.stop)
                for t in range(q):
                    change = found.offset[:, t] + (rows - found.rows.problem.means[0]) @ changes[t]
                    without = prediction[here, t, None] - change
                    ends[here, t, 0] = np.partition(without - width[:, t], n - rank, axis=1)[:, n - rank]
                    ends[here, t, 1] = np.partition(without + width[:, t], rank - 1, axis=1)[:, rank - 1]

        self.sharing.quiet()(work, len(prediction), chunk=max(1, -(-len(prediction) // 8)))
        return ends

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard error of the expected X b + constant * intercept, shape (rows, q)."""
        found = self._derivative
        out = np.empty((X.shape[0], found.squares.shape[1]))
        for here, rows in dense_chunks(X, 8.0 * len(found.base)):
            weights = (rows - constant * found.mean_x) @ found.coef + constant * found.base
            out[here] = weights**2 @ found.squares
        return np.asarray(np.sqrt(out))

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, shape (p, q)."""
        found = self._derivative
        return np.asarray(np.sqrt(found.coef**2 @ found.squares))

    @cached_property
    def _changes(self) -> tuple[_Deletion, Array]:
        """What each row changes of the coefficients, (q, p, n)."""
        n, p, q = self._shape
        what = f"method='jackknife+' with what each of {n} training rows changes of {p} coefficients"
        instead = "Use method='jackknife', which keeps the leave-one-out residuals alone, or method='cv+'."
        memory.require(self._bytes, what, instead)
        changes, targets = np.zeros((q, p, n)), np.arange(q)

        def add(columns: Any, rows: Any, change: Array) -> None:
            here = (slice(None), slice(None), rows) if isinstance(rows, slice) else np.ix_(targets, columns, rows)
            changes[here] += change

        found = self._delete_rows(visit=add)
        changes *= self.fitted.scale
        return found, changes

    @cached_property
    def _derivative(self) -> _Derivative:
        """Kept with all it needs, so that nothing is read again of rows that may have been changed."""
        n, p, _ = self._shape
        memory.require(24.0 * n * p, f"standard errors from {n} rows and {p} columns", "Fit fewer rows, or blocks.")
        residual, _, sums, rows = self._delete_rows(operator=True)
        operator, x = sums.operator, rows.block(slice(0, n))  # (p, n)
        assert operator is not None
        D, scale = operator.M @ x * rows.problem.weights, self.fitted.scale
        D = scale * (D if operator.F is None else D + operator.F)
        base = operator.centre + scale * operator.moved
        # by QR: products of the columns would lose twice the digits where rows are far out
        R, total = np.linalg.qr(x.T, mode="r"), x.sum(axis=1)
        trace = (np.einsum("jl,jl->", x, D) + base.sum()) / n
        squares = (np.sum((R @ D) ** 2) + 2 * (total @ D) @ base + n * (base @ base)) / n
        left = (1 - trace) ** 2
        # of an ensemble that fits every row 0 / 0, and leaving kappa out is the safe side
        shrink = min(1.0, float(left / (1 - 2 * trace + squares))) if left > 1e-12 else 1.0
        return _Derivative(D, base, shrink * residual**2, rows.problem.means[0])

    def _delete_rows(self, **how: Any) -> _Deletion:
        """Sums over all members."""
        problem = self.fitted.need_rows("predict_interval (and return_std)")
        design, weights, scale = self.fitted.design, self.fitted.members.weights, self.fitted.scale
        with one_blas_thread():
            if len(weights):
                drawn = design.draw(0, len(weights), self.sharing.without_blas)
                sums, rows = delete_rows(problem, *drawn, weights, self.sharing, **how)
            else:  # they are infinitely many
                assert design.process is not None
                sums, rows = delete_rows_of_limit(problem, design.process[0], **how)
        predicted = sums.mean_y + scale * (problem.Y - sums.residual - sums.mean_y)
        offset = scale * sums.moved + (1 - scale) * sums.mean_change
        return _Deletion(problem.Y - predicted, offset, sums, rows)


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
        out = np.tile([-np.inf, np.inf], (X.shape[0], q, 1))
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


@dataclass(frozen=True)
class MomentErrors:
    """Covariance of coefficients over training sets, from moments."""

    V: Array  # (p, p), for errors of variance one
    variance: Array  # (q,) of the errors
    mean_x: Array  # (p,)
    of_mean: float  # variance of the mean target, for errors of variance one
    coef: Array  # (p, q) as found here, without the scale

    @classmethod
    def from_moments(cls, moments: Moments, B: Array, scale: float) -> MomentErrors:
        """From moments of all rows and the mean inverse of the members."""
        n, G, C = moments.n_rows, moments.G, moments.C
        BG = scale * (B @ G)
        coef = B @ C
        b = scale * coef
        residual = np.maximum(moments.yy - 2 * np.sum(b * C, axis=0) + np.sum(b * (G @ b), axis=0), 0.0)
        intercept = float(moments.centred)
        left = n - intercept - 2 * np.trace(BG) + np.sum(BG * BG.T)
        # members that fit every row leave no residual by which to judge the errors
        variance = residual / left if left > FITS_EVERY_ROW * n else np.full(len(residual), np.inf)
        return cls(scale * BG @ B, variance, moments.mean_x, intercept / moments.weight, coef)

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, (p, q)."""
        return self._root(np.diagonal(self.V))

    def _root(self, spread: Array) -> Array:
        """Standard errors, (..., q), of what has this variance where that of the errors is one.

        What does not depend on the targets does not vary, even where the variance of the errors is not known.
        """
        positive = np.maximum(spread, 0.0)[:, None]
        with np.errstate(invalid="ignore"):  # zero times infinity
            return np.where(positive > 0, np.sqrt(positive * self.variance), 0.0)

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard error of the expected X b + constant * intercept, (rows, q)."""
        out = np.empty((X.shape[0], len(self.variance)))
        for here, rows in dense_chunks(X, 8.0 * len(self.mean_x)):
            off = rows - constant * self.mean_x
            spread = np.einsum("ij,ij->i", off @ self.V, off) + constant**2 * self.of_mean
            out[here] = self._root(spread)
        return out


def mean_inverse(G: Array, features: Subsets, sharing: Threads) -> Array:
    """Mean of the inverses of the members' Gram matrices, zero outside their columns."""
    p, k = len(G), len(features)

    def work(start: int, stop: int) -> Array:
        total = np.zeros((p, p))
        for i in range(start, stop):
            own = features[i]
            total[np.ix_(own, own)] += _inverse(G[np.ix_(own, own)])
        return total

    chunk = max(1, -(-k // 8))  # few: each is a matrix of all columns
    return np.asarray(sum(sharing.quiet()(work, k, chunk=chunk)) / k)


def _inverse(G: Array) -> Array:
    """Inverse of a Gram matrix; without the directions that are rounding where columns depend on each other."""
    P, inflation = inverses(G[None])
    if inflation[0] < LARGEST_INFLATION:
        alive = np.diagonal(G) > 0
        return np.asarray(P[0] * (alive[:, None] & alive))
    length = np.sqrt(np.diagonal(G))
    unit = np.where(length > 0, 1 / np.where(length > 0, length, 1.0), 0.0)
    values, vectors = la.eigh(G * unit[:, None] * unit)
    alive = values > 1e-10 * values[-1]
    scaled = unit[:, None] * vectors[:, alive]
    without, _ = la.qr(np.where(unit > 0, unit, 1.0)[:, None] * vectors[:, ~alive], mode="economic")
    shortest = np.eye(len(G)) - without @ without.T  # among all solutions, as the solvers have it
    return np.asarray(shortest @ (scaled / values[alive]) @ scaled.T @ shortest)


@dataclass(frozen=True)
class Refits:
    """Fits that repeat the choice on a share of the rows."""

    coef: Array  # (B, q, p)
    intercept: Array  # (B, q)
    share: float  # of the rows

    def _spread(self, refitted: Array) -> Array:
        """Standard errors from what each refit gave, (B, ...); infinite where rows were too few for any refit."""
        if not len(refitted):
            return np.full(refitted.shape[1:], np.inf)
        return np.asarray(math.sqrt(self.share / (1 - self.share)) * np.std(refitted, axis=0, ddof=1))

    def coef_std(self) -> Array:
        """Standard errors of the coefficients, (p, q)."""
        return self._spread(self.coef).T

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard errors of X b + constant * intercept, (rows, q)."""
        B, q, _ = self.coef.shape
        out = np.empty((X.shape[0], q))
        for here, rows in dense_chunks(X, 8.0 * B * q):
            out[here] = self._spread(rows @ self.coef.transpose(0, 2, 1) + constant * self.intercept[:, None])
        return out


class Draws(NamedTuple):
    """Means of batches of members that are drawn independently of each other."""

    coef: Array  # (p, q) of all members, scaled
    variance: Array  # (q,) over draws of their mean prediction, on average over the training rows
    group: int  # members that avoid each other; only whole groups of them vary as 1 / number


def solve_draws(engine: Engine, design: Design, k: int, scale: Any) -> Draws:
    """Solve k members once more: five to a hundred batches of whole groups of a balanced design."""
    design, group = engine.complete(design), 1
    if design.kind == "balanced" and design.sampling != "determinantal":
        group = int(group_size(np.clip(design.expected_size, 1, design.n_columns) / design.n_columns))
    if k < 5 * group:
        raise ValueError(
            f"{k} members are too few to estimate the variation between draws; at least {5 * group} members are "
            f"needed (5 groups of {group})."
        )
    edges = [*(int(edge) * group for edge in np.linspace(0, k // group, min(k // group, 100) + 1)[:-1]), k]
    members = [engine.solve(design, start, stop).on_host() for start, stop in pairwise(edges)]
    coef, intercept = map(np.stack, zip(*(own.scaled(scale, np.float64) for own in members), strict=True))
    if engine.problem is None:
        moments, off = engine.moments(), coef - coef.mean(axis=0)
        at_means = intercept + moments.centred * (coef @ moments.mean_x)
        squares = np.einsum("bqi,ij,bqj->q", off, moments.G, off) / moments.weight / (len(coef) - 1)
        variance = squares + at_means.var(axis=0, ddof=1)
    else:
        X, n = engine.problem.X, engine.problem.shape[0]
        some = np.linspace(0, n - 1, min(n, 2000)).astype(int)  # enough to average a variance over
        rows = sp.csr_array(X)[some].toarray() if sp.issparse(X) else np.asarray(X[some], dtype=float)
        predicted = rows @ coef.transpose(0, 2, 1) + intercept[:, None]
        variance = predicted.var(axis=0, ddof=1).mean(axis=0)
    return Draws(np.tensordot(np.diff(edges) / k, coef, 1).T, variance / len(coef), group)
