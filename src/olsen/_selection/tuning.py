"""From evidence to a choice: which size, how many members, which probabilities, what scale. One flow for all data.

Evidence is rows in memory, or moments of folds. :func:`weigh` makes a risk curve of every law of inclusion that was
asked for; it does the work and does not depend on the number of members. :func:`choose` reads size and law off the
curves for a given number of members.

**Uniform or ridge-matched**: uniform probabilities must win by half a standard error of the paired differences. Where
the two are level, ridge-matched ones are the safer choice on collinear columns (over 17 real sets, any threshold
between a quarter and one standard error served equally well). Their size is that of tuned ridge regression unless sizes
were given: taking the minimum of their own curve, from few members, lost on real sets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.problem import Problem
from .._moments import Moments
from .._trust import power_of_two
from ..subsets import resolve_size
from . import adaptive, combining, folds, paths
from .curve import RiskCurve, SizeCurve
from .inclusion import RidgeFamily
from .paths import Paths, Splits

__all__ = ["Candidate", "Evidence", "Request", "Selection", "choose", "weigh"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LARGEST_SHARE = 0.85  # of the rows: members stay clear of the interpolation peak
EXCESS = 0.01  # of a finite ensemble over an infinite one, where the number of members is to be found
TIE = 0.5  # standard errors by which uniform probabilities must win over ridge-matched ones
MANY_ROWS = (10_000, 100)  # from so many, and so many for each column, GCV from the moments equals leave-one-out


@dataclass(frozen=True)
class Request:
    """What the user fixed."""

    seed: int
    design: str
    inclusion: str  # "uniform", "ridge", "loo", "adaptive", "auto"
    criterion: str | None  # None (leave-one-out), "gcv", "oob", "kfold"
    sizes: tuple[int | float, ...] | None  # candidates; None: a grid
    max_samples: int | float
    rows_are_tuned: bool
    one_standard_error: bool
    scale: float | None  # None: from the residuals
    fit_intercept: bool

    def first_change(self, other: Request) -> str | None:
        """Name of something that another request asks for differently."""
        return next((f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)), None)


@dataclass(frozen=True)
class Evidence:
    """What there is to judge members by: rows in memory (with splits for k-fold), or moments of folds of rows."""

    problem: Problem | None = None
    splits: Splits | None = None
    folds: list[Moments] | None = None
    unit: float = 1.0  # that targets were divided by: squares of squared errors must stay in range

    @classmethod
    def of_rows(cls, problem: Problem, splits: Splits | None) -> Evidence:
        """Rows with entries of order one."""
        problem, units = problem.in_units
        return cls(problem, splits, unit=units.y)

    @classmethod
    def of_folds(cls, folds: list[Moments]) -> Evidence:
        """Moments of targets of order one."""
        unit = power_of_two(max(float(np.sqrt(np.max(m.yy, initial=0.0) / m.weight)) for m in folds))
        if unit == 1.0:
            return cls(folds=folds)
        return cls(
            folds=[replace(m, mean_y=m.mean_y / unit, C=m.C / unit, yy=m.yy / unit / unit) for m in folds], unit=unit
        )

    def mean_of_others(self) -> Array:
        """Mean target without each row, or without the fold that it is in, (n, q); zeros without intercept."""
        problem = self.problem
        assert problem is not None
        if not problem.fit_intercept:
            return np.zeros_like(problem.Y)
        weight = np.ones(len(problem.Y)) if problem.weight is None else problem.weight
        share = (weight / weight.sum())[:, None]
        mean: Array = (weight @ problem.Y / weight.sum() - share * problem.Y) / (1 - share)
        for train, test in self.splits or ():
            mean[test] = weight[train] @ problem.Y[train] / weight[train].sum()
        return mean

    def deviations(self) -> Array:
        """Targets less these means, in the order of the rows of a curve: with splits, the test rows of each in turn."""
        assert self.problem is not None
        found = self.problem.Y - self.mean_of_others()
        return found if self.splits is None else np.concatenate([found[test] for _, test in self.splits])


@dataclass(frozen=True)
class Candidate:
    """A law of inclusion with its risk curve."""

    inclusion: str  # "uniform", "ridge", "adaptive"
    criterion: str
    curve: RiskCurve  # at the scale that was given, at one where it is to be estimated
    residuals: list[Array] | None = None  # of every size, by row, unscaled; None where leave-one-out does not apply
    probabilities: list[Array] | None = None  # of every size; None: uniform
    n_rows: int = 0
    pinned: int | None = None  # position of the size, where the curve does not decide

    def best(self, k: float, one_standard_error: bool) -> int:
        """Position of the chosen size for k members."""
        mse = self.curve.mse(k)
        best = int(np.argmin(mse))
        if not one_standard_error:
            return best if self.pinned is None else self.pinned
        return int(np.flatnonzero(mse <= mse[best] + self.standard_error(k)[best])[0])

    def standard_error(self, k: float) -> Array:
        """Of the estimated error; from moments of all rows together only its order is known."""
        if self.curve.own.shape[1] == 1:
            found: Array = self.curve.mse(k) * np.sqrt(2 / self.n_rows)
            return found
        return self.curve.standard_error(k)


@dataclass(frozen=True)
class Selection:
    """What selection found."""

    criterion: str
    inclusion: str
    curve: SizeCurve
    at: int  # position of the chosen size on the curve
    n_estimators: int
    standard_error: Array  # (sizes,) at this number of members
    probabilities: Array | None  # (p,), None: uniform
    scale: float
    residual: Array | None = None  # (n, q) of left-out rows, before the scale
    centre: Array | None = None  # (n, q) mean target without each row

    def in_users_units(self, unit: float) -> Selection:
        """The same where targets were divided by a unit; errors beyond double precision are infinite."""
        if unit == 1.0:
            return self
        with np.errstate(over="ignore"):
            curve, error = replace(self.curve, unit=unit), self.standard_error * unit * unit
        residual, centre = (None if a is None else a * unit for a in (self.residual, self.centre))
        return replace(self, curve=curve, standard_error=error, residual=residual, centre=centre)

    @property
    def size(self) -> int:
        """The chosen size."""
        return int(self.curve.sizes[self.at])

    @property
    def mse(self) -> float:
        """Estimated error at the chosen size and number of members."""
        return float(self.curve.mse(self.n_estimators)[self.at])


def weigh(evidence: Evidence, request: Request, sharing: Sharing) -> list[Candidate]:
    """Risk curves of the laws of inclusion that were asked for; where several are left, `choose` decides."""
    how = Paths(request.seed, request.design, sharing)
    if evidence.folds is not None:
        return [_from_folds(evidence.folds, request, how)]
    assert evidence.problem is not None
    return _Rows(evidence.problem, evidence.splits, request, how).candidates()


def choose(candidates: list[Candidate], request: Request, n_estimators: int | None, evidence: Evidence) -> Selection:
    """The choice for so many members; None: as many as keep the excess over infinitely many below one per cent."""
    k = np.inf if n_estimators is None else n_estimators
    at = [candidate.best(k, request.one_standard_error) for candidate in candidates]
    i = _preferred(candidates, at, k)
    found, place = candidates[i], at[i]
    number = found.curve.members_for(place, EXCESS) if n_estimators is None else n_estimators
    residual = None if found.residuals is None else found.residuals[place]
    scale = 1.0 if request.scale is None else request.scale
    if request.scale is None and residual is not None and evidence.problem is not None:
        scale = combining.loo_scale(evidence.problem, residual, evidence.mean_of_others())
        found = replace(found, curve=found.curve.scaled(scale, evidence.deviations()))
    return Selection(
        found.criterion,
        found.inclusion,
        found.curve.averaged(),
        place,
        number,
        found.standard_error(number),
        None if found.probabilities is None else found.probabilities[place],
        scale,
        residual,
        None if evidence.problem is None else evidence.mean_of_others(),
    ).in_users_units(evidence.unit)


def _preferred(candidates: list[Candidate], at: list[int], k: float) -> int:
    """Number of the candidate to take: the last one, unless it is level with uniform probabilities or worse."""
    last = len(candidates) - 1
    if last == 0 or candidates[last].inclusion == "adaptive":  # adaptive ones are there only if they have won
        return last
    uniform, ridge = candidates
    assert uniform.residuals is not None and ridge.residuals is not None
    gain = np.mean(ridge.curve.residual[at[1]] ** 2 - uniform.curve.residual[at[0]] ** 2, axis=1)
    lead = ridge.curve.mse(k)[at[1]] - uniform.curve.mse(k)[at[0]]
    return 0 if lead > TIE * gain.std(ddof=1) / np.sqrt(len(gain)) else 1


def _from_folds(moments: list[Moments], request: Request, how: Paths) -> Candidate:
    n, p = sum(fold.n_rows for fold in moments), len(moments[0].G)
    scale = 1.0 if request.scale is None else request.scale
    if request.criterion == "gcv":
        sizes = _candidate_sizes(request, p, n)
        curve = folds.moment_gcv_curve(Moments.merge_all(moments), sizes, how, scale)
    else:
        sizes = _candidate_sizes(request, p, n - max(fold.n_rows for fold in moments))
        curve = folds.moment_kfold_curve(moments, sizes, how, scale)
    name = "gcv" if request.criterion == "gcv" else "kfold"
    return Candidate("uniform", name, curve, n_rows=n)


def _candidate_sizes(request: Request, p: int, rows: int) -> Indices:
    """Candidate sizes, clear of the interpolation peak."""
    largest = max(1, min(p, int(LARGEST_SHARE * (rows - request.fit_intercept))))
    if request.sizes is None:
        return paths.size_grid(largest)
    sizes = np.unique([resolve_size(size, p, "max_features") for size in request.sizes])
    if sizes[-1] > largest:
        raise ValueError(
            f"max_features asks for {sizes[-1]} columns in a member, but with {rows} rows at most {largest} keep "
            f"members clear of the interpolation peak. Leave larger sizes out."
        )
    return sizes


@dataclass(frozen=True)
class _Rows:
    """Rows in memory, judged as a request asks."""

    problem: Problem
    splits: Splits | None
    request: Request
    how: Paths

    def candidates(self) -> list[Candidate]:
        """Uniform probabilities, ridge-matched and adaptive ones, as far as they were asked for and can be judged."""
        kind = self.request.inclusion
        if self.request.rows_are_tuned:
            return [self._over_rows()]
        if kind == "ridge":
            return [self._ridge()]
        uniform = self._uniform()
        plain = self.request.criterion is None and self._drawn is None and uniform.residuals is not None
        found = [uniform]
        if kind in ("loo", "auto") and plain:
            found.append(self._ridge())
        if kind in ("adaptive", "auto"):
            won = self._adaptive(uniform, with_ridge=kind == "auto")
            found = found if won is None else [*found, won]
        return found

    @property
    def _drawn(self) -> int | None:
        """Rows of a member, None: all."""
        n = self.problem.shape[0]
        rows = resolve_size(self.request.max_samples, n, "max_samples")
        return None if rows == n else rows

    @property
    def _sizes(self) -> Indices:
        n, p = self.problem.shape
        rows = n if self._drawn is None else self._drawn
        if self.splits is not None:  # repeated rows add no rank, so they do not count
            rows = min(rows, *(self.problem.take(train).distinct_rows() for train, _ in self.splits))
        return _candidate_sizes(self.request, p, rows)

    @property
    def _judged_from_moments(self) -> bool:
        n, p = self.problem.shape
        return self.request.criterion is None and self._drawn is None and n >= max(MANY_ROWS[0], MANY_ROWS[1] * p)

    def _criterion(self, sizes: Indices) -> paths.Criterion:
        if self.splits is not None:
            return paths.kfold(self.problem, sizes, self.how, self.splits, self._drawn)
        make = paths.gcv if self.request.criterion == "gcv" else paths.leave_one_out
        return make(self.problem, sizes, self.how, self._drawn)

    def _uniform(self) -> Candidate:
        n, p = self.problem.shape
        sizes = self._sizes
        if self.request.criterion == "oob":
            if self._drawn is None:
                raise ValueError(
                    f"cv='oob' needs rows that members are not given, but max_samples={self.request.max_samples}."
                )
            return self._candidate("uniform", "oob", paths.oob_curve(self.problem, sizes, self.how, self._drawn))
        if self._judged_from_moments:
            scale = 1.0 if self.request.scale is None else self.request.scale
            curve = folds.moment_gcv_curve(self.problem.moments_by(self.how.mapper), sizes, self.how, scale)
            return Candidate("uniform", "gcv", curve, n_rows=n)
        criterion = self._criterion(sizes)
        return self._candidate("uniform", criterion.name, self.how.nested(p, sizes, criterion))

    def _ridge(self) -> Candidate:
        if self.request.criterion == "oob":
            raise ValueError(
                "inclusion='ridge' is judged by leave-one-out, k-fold or generalised cross-validation; cv='oob' needs "
                "inclusion='uniform'."
            )
        family = RidgeFamily.of(self.problem)
        sizes = self._sizes if self.request.sizes is not None else family.sizes(int(self._sizes[-1]))
        criterion = self._criterion(sizes)
        chances = [family.probabilities(int(size)) for size in sizes]
        curve = self.how.drawn(self.problem.shape[1], sizes, criterion, chances)
        found = self._candidate("ridge", criterion.name, curve, chances)
        if self.request.sizes is not None:
            return found
        return replace(found, pinned=int(np.argmin(np.abs(sizes - family.best_size))))

    def _adaptive(self, uniform: Candidate, *, with_ridge: bool) -> Candidate | None:
        sizes = None if self.request.sizes is None else self._sizes
        found = adaptive.judge(
            self.problem, uniform.curve, self._tuned_size, self.how, with_ridge=with_ridge, sizes=sizes
        )
        if found is None:
            return None
        return Candidate("adaptive", "kfold", found.curve, None, [found.probabilities], self.problem.shape[0])

    def _tuned_size(self, problem: Problem) -> RiskCurve:
        """The curve of uniform members on some of the rows."""
        sizes = _candidate_sizes(self.request, *reversed(problem.shape))
        criterion = paths.leave_one_out(problem, sizes, self.how)
        return self.how.nested(problem.shape[1], sizes, criterion)

    def _over_rows(self) -> Candidate:
        n, p = self.problem.shape
        largest = int(LARGEST_SHARE * min(n - self.request.fit_intercept, p))
        if largest < 3:
            raise ValueError(
                f"tune='max_samples' fits minimum-norm members, which need more columns than rows; with n_features={p} "
                f"and {n} rows there is nothing to choose. Use tune='max_features'."
            )
        curve = self.how.nested(n, paths.size_grid(largest)[1:], paths.rows_left_out(self.problem))
        return self._candidate("uniform", "loo", curve)

    def _candidate(
        self, inclusion: str, criterion: str, curve: RiskCurve, probabilities: list[Array] | None = None
    ) -> Candidate:
        by_row = [self._by_row(residual) for residual in curve.residual]
        residuals = [r for r in by_row if r is not None]
        known = residuals if len(residuals) == len(by_row) else None
        if self.request.scale is not None:
            curve = curve.scaled(self.request.scale, Evidence(self.problem, self.splits).deviations())
        return Candidate(inclusion, criterion, curve, known, probabilities, self.problem.shape[0])

    def _by_row(self, residual: Array) -> Array | None:
        """Residuals in the order of the rows, or None where some row has none."""
        if self.splits is not None:
            order = np.concatenate([test for _, test in self.splits])
            whole = np.full(self.problem.Y.shape, np.nan)
            whole[order] = residual
            residual = whole
        return residual if len(residual) == len(self.problem.Y) and np.isfinite(residual).all() else None
