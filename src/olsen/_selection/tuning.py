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

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.problem import Problem
from .._moments import Moments
from .._trust import power_of_two
from ..subsets import resolve_size
from . import adaptive, combining, folds, grounds, paths, sampled_rows
from .curve import RiskCurve, SizeCurve
from .folds import FoldCurve
from .inclusion import RidgeFamily
from .mixture import Mixed, mix, repeats_for
from .paths import Paths, Splits
from .trials import LARGEST_SHARE

__all__ = ["Candidate", "Evidence", "Request", "Selection", "choose", "weigh"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

EXCESS = 0.01  # of a finite ensemble over an infinite one, where the number of members is to be found
FEWEST_MIXED = 100  # members, so that laws have their shares
TIE = 0.5  # standard errors by which uniform probabilities must win over ridge-matched ones
WORTH_A_THREAD = 1e8  # operations of tuning ridge regression
MUCH_WORK = 1e9  # operations of one path
FEWEST_ROWS = 20  # from which folds say something about laws that follow the signal
MANY_ROWS = (10_000, 100)  # from so many, and so many for each column, some of them stand for all


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

    @property
    def fixed_scale(self) -> float:
        """The scale that was given, one where it is to be estimated."""
        return 1.0 if self.scale is None else self.scale

    def wants_mixture(self, n_rows: int) -> bool:
        """Whether laws that follow the signal are asked for, with sizes of their own and rows enough for folds."""
        return self.inclusion == "auto" and self.sizes is None and n_rows >= FEWEST_ROWS

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
        unit = power_of_two(max(float(np.sqrt(np.max(m.space.get(m.yy), initial=0.0) / m.weight)) for m in folds))
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

    inclusion: str  # "uniform", "ridge", "adaptive", "mixed"
    criterion: str
    curve: RiskCurve  # at the scale that was given, at one where it is to be estimated
    residuals: list[Array] | None = None  # of every size, by row, unscaled; None where leave-one-out does not apply
    probabilities: list[Array] | None = None  # of every size; None: uniform
    n_rows: int = 0
    pinned: int | None = None  # position of the size, where the curve does not decide
    folds: FoldCurve | None = None  # the curve with its mean members, where it comes from moments of folds
    sampling_error: Array | None = None  # (sizes,) where some rows stand for all
    mixture: Mixed | None = None  # what laws that follow the signal have come to, where they were tried

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
            sampled = 0.0 if self.sampling_error is None else self.sampling_error
            found: Array = np.hypot(self.curve.mse(k) * np.sqrt(2 / self.n_rows), sampled)
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
    mixture: Mixed | None = None  # laws that follow the signal, where they were tried

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
        return _candidates(_Folds(evidence.folds, request, how), request.inclusion)
    assert evidence.problem is not None
    rows = _Rows(evidence.problem, evidence.splits, request, how)
    return [rows.over_rows()] if request.rows_are_tuned else _candidates(rows, request.inclusion)


def choose(candidates: list[Candidate], request: Request, n_estimators: int | None, evidence: Evidence) -> Selection:
    """The choice for so many members; None: as many as keep the excess over infinitely many below one per cent."""
    k = np.inf if n_estimators is None else n_estimators
    at = [candidate.best(k, request.one_standard_error) for candidate in candidates]
    i = _preferred(candidates, at, k)
    found, place = candidates[i], at[i]
    fewest = FEWEST_MIXED if found.inclusion == "mixed" else 1
    number = max(fewest, found.curve.members_for(place, EXCESS)) if n_estimators is None else n_estimators
    residual = None if found.residuals is None else found.residuals[place]
    scale = request.fixed_scale
    if found.inclusion == "mixed":
        assert found.mixture is not None
        residual = found.mixture.residual  # shares were fitted to these: the slope on them is next to one
    elif request.scale is None and residual is not None and evidence.problem is not None:
        scale = combining.loo_scale(evidence.problem, residual, evidence.mean_of_others())
        found = replace(found, curve=found.curve.scaled(scale, evidence.deviations()))
    elif request.scale is None and found.folds is not None:
        scale = combining.drawn_to_one(*found.folds.slope(place))
        found = replace(found, curve=found.folds.scaled(scale))
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
        found.mixture,
    ).in_users_units(evidence.unit)


def _preferred(candidates: list[Candidate], at: list[int], k: float) -> int:
    """Number of the candidate to take: the last one, unless it is level with uniform probabilities or worse."""
    last = len(candidates) - 1
    if last == 0 or candidates[last].inclusion == "adaptive":  # adaptive ones are there only if they have won
        return last
    uniform, ridge = candidates
    lead = ridge.curve.mse(k)[at[1]] - uniform.curve.mse(k)[at[0]]
    return 0 if lead > TIE * _error_of_lead(uniform, at[0], ridge, at[1]) else 1


def _error_of_lead(uniform: Candidate, at: int, ridge: Candidate, there: int) -> float:
    """Standard error of the difference of two errors: over rows, or as moments of folds tell it (see ``folds``).

    With k-fold cross-validation rows in memory are treated like those that were only summed, for the same choice.
    """
    if uniform.folds is not None and ridge.folds is not None:
        return uniform.folds.compare(at, ridge.folds, there)[1]
    first, second = uniform.curve.residual[at], ridge.curve.residual[there]
    if uniform.criterion != "kfold":
        gain = np.mean(second**2 - first**2, axis=1)
        return float(gain.std(ddof=1) / np.sqrt(len(gain)))
    u, v, weight = first - second, first + second, uniform.curve.weight
    sums = np.tensordot(weight, np.stack([u * u, v * v, u * v]), axes=(0, 1))
    return folds.paired_difference(sums, float(weight.sum()), len(weight))[1]


class _Laws(Protocol):
    """Evidence that laws of inclusion are judged by."""

    @property
    def request(self) -> Request:
        """What the user fixed."""

    @property
    def both(self) -> bool:
        """Whether ridge-matched probabilities can be compared with uniform ones."""

    @property
    def mixable(self) -> bool:
        """Whether laws that follow the signal were asked for and can be judged."""

    def uniform(self) -> Candidate:
        """Members that take all columns alike."""

    def ridge(self) -> Candidate:
        """Members whose probabilities mimic ridge regression."""

    def adaptive(self, uniform: Candidate, rival: adaptive.Law) -> Candidate | None:
        """Members whose probabilities follow the signal, if they beat a rival."""

    def mixed(self, uniform: Candidate) -> Mixed | None:
        """Shares of laws that follow the signal; None where no column varies."""


def _candidates(laws: _Laws, kind: str) -> list[Candidate]:
    """Uniform probabilities, ridge-matched and adaptive ones, as far as they were asked for and can be judged."""
    if kind == "ridge":
        return [laws.ridge()]
    found = [laws.uniform()]
    if laws.mixable:
        mixed = laws.mixed(found[0])
        return found if mixed is None else [_of_mixture(laws, mixed, found[0])]
    if kind in ("loo", "auto") and laws.both:
        found.append(laws.ridge())
    if kind == "adaptive":
        won = laws.adaptive(found[0], _rival(found))
        found = found if won is None else [*found, won]
    return found


def _of_mixture(laws: _Laws, mixed: Mixed, uniform: Candidate) -> Candidate:
    """The candidate of a mixture; where one law of old has all members, as that law would be chosen."""
    if mixed.curve is None:
        return replace(uniform if mixed.names[0] == "uniform" else laws.ridge(), mixture=mixed)
    return Candidate("mixed", "kfold", mixed.curve, n_rows=uniform.n_rows, mixture=mixed)


def _start(uniform: Candidate) -> int:
    """Size of uniform members, for as many as a trial has."""
    return int(uniform.curve.sizes[uniform.best(adaptive.K, one_standard_error=False)])


def _rival(candidates: list[Candidate]) -> adaptive.Law:
    """The law that would be chosen among these."""
    k = adaptive.K
    at = [candidate.best(k, one_standard_error=False) for candidate in candidates]
    i = _preferred(candidates, at, k)
    chances = candidates[i].probabilities
    return int(candidates[i].curve.sizes[at[i]]) if chances is None else chances[at[i]]


@dataclass(frozen=True)
class _Folds:
    """Moments of folds, judged as a request asks."""

    moments: list[Moments]
    request: Request
    how: Paths

    @property
    def both(self) -> bool:
        return self.request.criterion != "gcv"

    @property
    def mixable(self) -> bool:
        return self.both and self.request.wants_mixture(self._whole.n_rows)

    @cached_property
    def _whole(self) -> Moments:
        return Moments.merge_all(self.moments)

    @property
    def _sizes(self) -> Indices:
        rows = self._whole.n_rows
        if self.request.criterion != "gcv":
            rows -= max(fold.n_rows for fold in self.moments)
        return _candidate_sizes(self.request, self._whole.C.shape[0], rows)

    def uniform(self) -> Candidate:
        return self._judged("uniform", self._sizes, None)

    def ridge(self) -> Candidate:
        family = RidgeFamily.of_folds(self.moments)
        sizes = self._sizes if self.request.sizes is not None else family.sizes(int(self._sizes[-1]))
        found = self._judged("ridge", sizes, [family.probabilities(int(size)) for size in sizes])
        return found if self.request.sizes is not None else _pinned(found, family)

    def adaptive(self, uniform: Candidate, rival: adaptive.Law) -> Candidate | None:
        sizes = None if self.request.sizes is None else self._sizes
        judges = grounds.grounds_of_moments(self.moments, self.how.mapper)
        found = adaptive.judge(judges, _start(uniform), rival, self.how, sizes, self.request.fixed_scale)
        if found is None:
            return None
        return Candidate("adaptive", "kfold", found.curve, None, [found.probabilities], self._whole.n_rows)

    def mixed(self, uniform: Candidate) -> Mixed | None:
        penalty = RidgeFamily.of_folds(self.moments).best_penalty
        if penalty is None:
            return None
        judges = grounds.grounds_of_moments(self.moments, self.how.mapper)
        return mix(judges, penalty * self._whole.weight, _start(uniform), self.how, self.request.fixed_scale)

    def _judged(self, inclusion: str, sizes: Indices, chances: list[Array] | None) -> Candidate:
        scale = self.request.fixed_scale
        n = self._whole.n_rows
        if self.request.criterion == "gcv":
            curve = folds.moment_gcv_curve(self._whole, sizes, self.how, scale, chances)
            return Candidate(inclusion, "gcv", curve, None, chances, n)
        found = folds.moment_kfold_curve(self.moments, sizes, self.how, scale, chances)
        return Candidate(inclusion, "kfold", found.curve, None, chances, n, folds=found)


def _pinned(candidate: Candidate, family: RidgeFamily) -> Candidate:
    """At the size of tuned ridge regression."""
    return replace(candidate, pinned=family.nearest(candidate.curve.sizes))


def _candidate_sizes(request: Request, p: int, rows: int) -> Indices:
    """Candidate sizes, clear of the interpolation peak."""
    freedom = rows - request.fit_intercept
    largest = max(1, min(p, int(LARGEST_SHARE * freedom)))
    if request.sizes is None:
        return paths.size_grid(max(1, min(largest, freedom - 2)))  # with few rows 85 % are next to the peak
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

    @property
    def both(self) -> bool:
        plain = self.request.criterion in (None, "kfold") and self._drawn is None
        return plain and not self._judged_from_moments

    @property
    def mixable(self) -> bool:
        return self.both and self.request.wants_mixture(self.problem.shape[0])

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
    def _paths(self) -> Paths:
        """With k-fold as many members as where rows were only summed, so that the choice is the same.

        With leave-one-out of members that are much work, batches of half the members: so many rows and columns differ
        little from one member to the next, and where they do, more batches follow.
        """
        if self.splits is not None:
            return replace(self.how, max_batches=self.how.min_batches)
        work = self.problem.shape[0] * float(self._sizes[-1]) ** 2
        return replace(self.how, batch=2) if work > MUCH_WORK else self.how

    @property
    def _judged_from_moments(self) -> bool:
        n, p = self.problem.shape
        return self.request.criterion is None and self._drawn is None and n >= max(MANY_ROWS[0], MANY_ROWS[1] * p)

    def _criterion(self, sizes: Indices) -> paths.Criterion:
        if self.splits is not None:
            return paths.kfold(self.problem, sizes, self.how, self.splits, self._drawn)
        if self.request.criterion == "gcv":
            return paths.gcv(self.problem, sizes, self.how, self._drawn)
        return self._left_out

    @cached_property
    def _left_out(self) -> paths.Criterion:
        """Leave-one-out, laid out once for all laws."""
        return paths.leave_one_out(self.problem, self._sizes, self.how, self._drawn)

    def uniform(self) -> Candidate:
        n, p = self.problem.shape
        sizes = self._sizes
        if self.request.criterion == "oob":
            if self._drawn is None:
                raise ValueError(
                    f"cv='oob' needs rows that members are not given, but max_samples={self.request.max_samples}."
                )
            return self._candidate("uniform", "oob", paths.oob_curve(self.problem, sizes, self.how, self._drawn))
        if self._judged_from_moments:
            scale = self.request.fixed_scale
            sampled = sampled_rows.sampled_leave_one_out(self.problem, sizes, self.how, scale)
            if sampled is not None:
                return Candidate("uniform", "loo", sampled.curve, n_rows=n, sampling_error=sampled.sampling_error)
            curve = folds.moment_gcv_curve(self.problem.moments_by(self.how.mapper), sizes, self.how, scale)
            return Candidate("uniform", "gcv", curve, n_rows=n)
        criterion = self._criterion(sizes)
        curve = self._with_family(lambda: self._paths.nested(p, sizes, criterion))
        return self._candidate("uniform", criterion.name, curve)

    @cached_property
    def _family(self) -> RidgeFamily:
        return RidgeFamily.of(self.problem, self.splits)

    def _with_family(self, follow: Callable[[], RiskCurve]) -> RiskCurve:
        """Follow paths; a second thread tunes ridge regression meanwhile, where that will be asked for and takes time.

        It is one eigendecomposition, which no other threads can share.
        """
        n, p = self.problem.shape
        asked = self.request.inclusion in ("loo", "auto") and self.both
        if not asked or self.how.mapper.n_threads == 1 or float(n) * p * min(n, p) < WORTH_A_THREAD:
            return follow()
        work = (follow, lambda: self._family)
        curve, _ = self.how.mapper.quiet()(lambda start, stop: work[start](), 2, chunk=1)
        assert isinstance(curve, RiskCurve)
        return curve

    def ridge(self) -> Candidate:
        if self.request.criterion == "oob":
            raise ValueError(
                "inclusion='ridge' is judged by leave-one-out, k-fold or generalised cross-validation; cv='oob' needs "
                "inclusion='uniform'."
            )
        family = self._family
        sizes = self._sizes if self.request.sizes is not None else family.sizes(int(self._sizes[-1]))
        chances = [family.probabilities(int(size)) for size in sizes]
        found = self._by_law(sizes, chances, None if self.request.sizes is not None else family.nearest(sizes))
        return found if self.request.sizes is not None else _pinned(found, family)

    def _by_law(self, sizes: Indices, chances: list[Array], main: int | None) -> Candidate:
        """Ridge-matched members of some sizes; one of them may be chosen already."""
        n, p = self.problem.shape
        if self._judged_from_moments:
            scale, moments = self.request.fixed_scale, self.problem.moments
            curve = folds.moment_gcv_curve(moments, sizes, self.how, scale, chances)
            return Candidate("ridge", "gcv", curve, None, chances, n)
        criterion = self._criterion(sizes)
        if main is None or self.request.one_standard_error:
            curve = self._paths.drawn(p, sizes, criterion, chances)
        else:
            curve = self._paths.drawn_around(p, sizes, criterion, chances, main)
        return self._candidate("ridge", criterion.name, curve, chances)

    def adaptive(self, uniform: Candidate, rival: adaptive.Law) -> Candidate | None:
        sizes, start = None if self.request.sizes is None else self._sizes, _start(uniform)
        judges = grounds.grounds_of_rows(self.problem, self.splits, self.how.seed, start, self.how.mapper)
        found = adaptive.judge(judges, start, rival, self.how, sizes, self.request.fixed_scale)
        if found is None:
            return None
        return Candidate("adaptive", "kfold", found.curve, None, [found.probabilities], self.problem.shape[0])

    def mixed(self, uniform: Candidate) -> Mixed | None:
        (n, p), size, penalty = self.problem.shape, _start(uniform), self._family.best_penalty
        if penalty is None:
            return None
        weight = float(n if self.problem.weight is None else self.problem.weight.sum())
        judges = grounds.grounds_of_rows(
            self.problem, self.splits, self.how.seed, size, self.how.mapper, repeats=repeats_for(n), gram=p <= n
        )
        return mix(judges, penalty * weight, size, self.how, self.request.fixed_scale)

    def over_rows(self) -> Candidate:
        """Minimum-norm members on all columns, over the number of rows."""
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
