r"""Error estimates of predictions and coefficients: from held-out rows, from moments, from refits,
and over draws.

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

**CV+** (same paper): with K folds, row l in fold f(l), the interval spans order statistics of
:math:`\hat y_{-f(l)}(x_0) \pm |e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) -
min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1)) for rows, or groups, that are exchangeable, when the
sampling scheme was not chosen from the same rows; close to `coverage` in simulation. With G groups
the order statistic is that of the fraction coverage (G + 1) / G of the rows, because a new row
belongs to a new group and there are fewer groups than rows (status: heuristic for groups of one
size).

**From moments**, where rows are not in memory. With :math:`B = \frac1k \sum_i P_i`, :math:`P_i` the
inverse of member i's Gram matrix and zero outside its columns, the ensemble's coefficients are
:math:`\mu B X' y`, and

.. math:: \hat\sigma^2 = \frac{\|r\|^2}{n - 2 \mathrm{tr} H + \mathrm{tr}(H H')} , \qquad
          V = \mu^2 \hat\sigma^2 B G B , \qquad H = X \mu B X'

Status: asymptotic, for errors of one variance (inversely proportional to the weights where there
are weights); in memory the jackknife does without that assumption. Shrinkage bias is not included.

**From refits** of tuned models, which repeat the choice on a fraction s of the rows and vary about
their mean with
:math:`(1 - s) / s` times the desired variance (delete-d jackknife: exact for means, a heuristic after a choice).
Measured with 200 data sets of 100 rows and 50 columns: four fifths of the rows give .76 to 1.31
times the true spread of any coefficient, the different rows of a bootstrap sample .68 to 1.29,
weights of a bootstrap .60 to 1.10; deviations from the fit of all rows instead of the mean, up to
1.8.

**Over draws.** Members come in batches that are drawn independently of each other (with a balanced
design a batch holds whole groups of members that avoid each other). The mean of B batches varies
over draws with variance :math:`s^2 / B`,
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

from .._data.fits import FoldFit
from .._data.moments import Moments
from .._data.training import TrainingData
from .._execution import memory
from .._execution.options import Options
from .._execution.threads import Threads, cached_property, one_blas_thread
from .._members.ensemble import solve_ensemble
from .._members.jackknife import Deleted, TrainingRows, delete_rows, delete_rows_of_limit, inverses
from .._trust import LARGEST_INFLATION
from ..subsets import Design, Subsets, group_size
from .result import FittedResult

Array = NDArray[np.float64]

FITS_EVERY_ROW = 1e-9  # residual degrees of freedom per row that count as zero, being rounding
BYTES_PER_CHUNK = 1 << 22  # of intermediate results: 4 MiB
MAX_CHEAP_BYTES = (
    2.0**28
)  # of coefficient changes that method="auto" accepts for the jackknife+: 256 MiB
N_BISECTIONS = 80  # halvings after which no float lies between the two bounds
MAX_BATCHES = 100  # of members, for the variance over draws
N_SAMPLED_ROWS = 2000  # over which that variance is averaged


def dense_chunks(X: Any, bytes_per_row: float) -> Iterator[tuple[slice, Array]]:
    """Consecutive rows as dense arrays, in chunks whose intermediate results take about
    BYTES_PER_CHUNK.
    """
    n_rows = X.shape[0]
    step = int(max(1.0, BYTES_PER_CHUNK // max(1.0, bytes_per_row)))
    for start in range(0, n_rows, step):
        chunk = slice(start, min(start + step, n_rows))
        yield (
            chunk,
            np.asarray(X[chunk].toarray() if sp.issparse(X) else X[chunk], dtype=np.float64),
        )


def _rank(coverage: float, n: int) -> int:
    """Rank of the order statistic of n residuals that covers new observations with this
    probability.
    """
    return max(1, math.ceil(coverage * (n + 1) - 1e-9))


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
        return "_changes" in vars(self) or self._bytes <= min(
            MAX_CHEAP_BYTES, memory.available_bytes() / 4
        )

    def interval(self, X: Any, prediction: Array, coverage: float, plus: bool) -> Array:
        """Lower and upper ends, shape (rows, q, 2), for new rows X with their predictions of shape
        (rows, q).
        """
        n, _, q = self._shape
        rank = _rank(coverage, n)
        if rank > n:
            return np.tile([-np.inf, np.inf], (len(prediction), q, 1))
        if not plus:
            half_width = np.partition(np.abs(self.residuals), rank - 1, axis=0)[rank - 1]
            return np.stack([prediction - half_width, prediction + half_width], axis=2)
        deletion, changes = self._changes
        mean_x = deletion.rows.problem.means[0]
        half_widths = np.abs(deletion.residual)
        ends = np.empty((*prediction.shape, 2))

        def work(start: int, stop: int) -> None:
            for chunk, rows in dense_chunks(X[start:stop], 32.0 * n):
                new_rows = slice(start + chunk.start, start + chunk.stop)
                for t in range(q):
                    change = deletion.offset[:, t] + (rows - mean_x) @ changes[t]
                    leave_one_out = prediction[new_rows, t, None] - change  # (new rows, n)
                    lower = leave_one_out - half_widths[:, t]
                    upper = leave_one_out + half_widths[:, t]
                    ends[new_rows, t, 0] = np.partition(lower, n - rank, axis=1)[:, n - rank]
                    ends[new_rows, t, 1] = np.partition(upper, rank - 1, axis=1)[:, rank - 1]

        self.threads.quiet()(work, len(prediction), chunk=max(1, -(-len(prediction) // 8)))
        return ends

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
        rank = _rank(coverage, n)
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


def _order_statistic(shift: Array, errors: list[Array], rank: int) -> Array:
    """Order statistic of the values shift[i, k] + errors[k], over all k, for each row i; (rows, K)
    -> (rows,).

    Bisection over the sorted lists of errors takes little memory, however many errors there are.
    """
    low = np.nextafter(shift.min(axis=1), -np.inf)  # fewer than `rank` values are at or below it
    high = shift.max(axis=1) + max(
        float(fold_errors[-1]) for fold_errors in errors if len(fold_errors)
    )
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        counts = [
            np.searchsorted(e, middle - s, side="right")
            for e, s in zip(errors, shift.T, strict=True)
        ]
        enough = sum(counts) >= rank
        low = np.where(enough, low, middle)
        high = np.where(enough, middle, high)
    return np.asarray(high)


@dataclass(frozen=True)
class MomentErrors:
    """Covariance of coefficients over training sets, from moments."""

    V: Array  # (p, p) covariance of the coefficients for errors of variance one
    variance: Array  # (q,) variance of the errors
    mean_x: Array  # (p,)
    mean_variance: float  # variance of the mean target for errors of variance one
    coef: Array  # (p, q) coefficients from the moments, without the scale

    @classmethod
    def from_moments(cls, moments: Moments, B: Array, scale: float) -> MomentErrors:
        """Build from the moments of all rows and the mean B of the members' inverse Gram matrices."""
        n = moments.n_rows
        G = moments.G
        C = moments.C
        BG = scale * (B @ G)
        coef = B @ C
        b = scale * coef
        residual = np.maximum(
            moments.yy - 2 * np.sum(b * C, axis=0) + np.sum(b * (G @ b), axis=0), 0.0
        )
        intercept = float(moments.centred)
        freedom = (
            n - intercept - 2 * np.trace(BG) + np.sum(BG * BG.T)
        )  # residual degrees of freedom
        # members that fit every row leave no residuals from which to estimate the variance
        variance = (
            residual / freedom if freedom > FITS_EVERY_ROW * n else np.full(len(residual), np.inf)
        )
        return cls(scale * BG @ B, variance, moments.mean_x, intercept / moments.weight, coef)

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, (p, q)."""
        return self._standard_errors(np.diagonal(self.V))

    def _standard_errors(self, unit_variance: Array) -> Array:
        """Standard errors, (..., q), of quantities from their variance for errors of variance one.

        A quantity that does not depend on the targets does not vary, even if the error variance is
        unknown (infinite).
        """
        positive = np.maximum(unit_variance, 0.0)[:, None]
        with np.errstate(invalid="ignore"):  # zero times infinity
            return np.where(positive > 0, np.sqrt(positive * self.variance), 0.0)

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard error of the expected X b + constant * intercept, (rows, q)."""
        std = np.empty((X.shape[0], len(self.variance)))
        for chunk, rows in dense_chunks(X, 8.0 * len(self.mean_x)):
            deviations = rows - constant * self.mean_x
            slope_variance = np.einsum("ij,ij->i", deviations @ self.V, deviations)
            std[chunk] = self._standard_errors(slope_variance + constant**2 * self.mean_variance)
        return std


def mean_inverse(G: Array, features: Subsets, threads: Threads) -> Array:
    """Mean of the inverses of the members' Gram matrices, zero outside their columns."""
    p = len(G)
    k = len(features)

    def work(start: int, stop: int) -> Array:
        total = np.zeros((p, p))
        for i in range(start, stop):
            block = np.ix_(features[i], features[i])
            total[block] += _inverse(G[block])
        return total

    chunk = max(1, -(-k // 8))  # at most eight chunks, because each one allocates a p x p matrix
    return np.asarray(sum(threads.quiet()(work, k, chunk=chunk)) / k)


def _inverse(G: Array) -> Array:
    """Inverse of a Gram matrix; for dependent columns a pseudo-inverse, without directions that are
    rounding.
    """
    P, inflation = inverses(G[None])
    if inflation[0] < LARGEST_INFLATION:
        varies = np.diagonal(G) > 0
        return np.asarray(P[0] * (varies[:, None] & varies))
    norms = np.sqrt(np.diagonal(G))
    unit = np.where(norms > 0, 1 / np.where(norms > 0, norms, 1.0), 0.0)
    eigenvalues, eigenvectors = la.eigh(G * unit[:, None] * unit)
    nonzero = eigenvalues > 1e-10 * eigenvalues[-1]
    scaled = unit[:, None] * eigenvectors[:, nonzero]
    null_space, _ = la.qr(
        np.where(unit > 0, unit, 1.0)[:, None] * eigenvectors[:, ~nonzero], mode="economic"
    )
    projection = (
        np.eye(len(G)) - null_space @ null_space.T
    )  # onto solutions of minimum norm, as the solvers return
    return np.asarray(projection @ (scaled / eigenvalues[nonzero]) @ scaled.T @ projection)


@dataclass(frozen=True)
class Refits:
    """Fits that repeat the choice on a fraction of the rows."""

    coef: Array  # (B, q, p)
    intercept: Array  # (B, q)
    fraction: float  # of the rows in each refit

    def _standard_errors(self, refitted: Array) -> Array:
        """Standard errors of quantities from their values in the refits, (B, ...); infinite if
        there are no refits.
        """
        if not len(refitted):
            return np.full(refitted.shape[1:], np.inf)
        return np.asarray(
            math.sqrt(self.fraction / (1 - self.fraction)) * np.std(refitted, axis=0, ddof=1)
        )

    def coef_std(self) -> Array:
        """Standard errors of the coefficients, (p, q)."""
        return self._standard_errors(self.coef).T

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard errors of X b + constant * intercept, (rows, q)."""
        B, q, _ = self.coef.shape
        std = np.empty((X.shape[0], q))
        for chunk, rows in dense_chunks(X, 8.0 * B * q):
            refitted = rows @ self.coef.transpose(0, 2, 1) + constant * self.intercept[:, None]
            std[chunk] = self._standard_errors(refitted)
        return std


class Draws(NamedTuple):
    """Mean of the members, and its variance over random draws of the members."""

    coef: Array  # (p, q) mean of all members, scaled
    variance: (
        Array  # (q,) variance of the mean prediction over draws, on average over the training rows
    )
    # size of a group of members that avoid each other; the variance falls as 1 / number of groups
    group: int


def solve_draws(data: TrainingData, design: Design, k: int, scale: Any, options: Options) -> Draws:
    """Solve k members once more, in five to a hundred independent batches of whole groups of a
    balanced design.
    """
    design = data.complete(design)
    group = 1
    if design.kind == "balanced" and design.sampling != "determinantal":
        group = int(
            group_size(np.clip(design.expected_size, 1, design.n_columns) / design.n_columns)
        )
    if k < 5 * group:
        raise ValueError(
            f"{k} members are too few to estimate the variation between draws; at least {5 * group}"
            f" members are needed (5 groups of {group})."
        )
    n_groups = k // group
    group_edges = np.linspace(0, n_groups, min(n_groups, MAX_BATCHES) + 1)[:-1]
    edges = [*(int(edge) * group for edge in group_edges), k]
    batches = [
        solve_ensemble(data, design, start, stop, options=options).on_host()
        for start, stop in pairwise(edges)
    ]
    coef, intercept = map(
        np.stack, zip(*(batch.scaled(scale, np.float64) for batch in batches), strict=True)
    )
    rows = data.host_rows
    if rows is None:
        moments = data.total_moments()
        deviations = coef - coef.mean(axis=0)
        at_means = intercept + moments.centred * (coef @ moments.mean_x)
        squares = (
            np.einsum("bqi,ij,bqj->q", deviations, moments.G, deviations)
            / moments.weight
            / (len(coef) - 1)
        )
        variance = squares + at_means.var(axis=0, ddof=1)
    else:
        X = rows.X
        n = rows.shape[0]
        sample = np.linspace(0, n - 1, min(n, N_SAMPLED_ROWS)).astype(int)
        sampled_rows = sp.csr_array(X)[sample].toarray() if sp.issparse(X) else X[sample]
        predicted = (
            np.asarray(sampled_rows, dtype=float) @ coef.transpose(0, 2, 1) + intercept[:, None]
        )
        variance = predicted.var(axis=0, ddof=1).mean(axis=0)
    mean_coef = np.tensordot(np.diff(edges) / k, coef, 1).T
    return Draws(mean_coef, variance / len(coef), group)
