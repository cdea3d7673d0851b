"""Choose the sampling schemes, the size of uniform members, their number and the scale. One flow for all data.

The evidence is rows in memory, or moments of folds. Uniform members are compared over sizes, which gives a risk curve;
with the default inclusion their best size is then one of the schemes that share the ensemble (see ``schemes``).

Everything that chooses uses constant seeds: the same data give the same choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.problem import Problem, Units
from .._moments import Moments
from .._trust import power_of_two
from ..subsets import resolve_size
from . import combining, moment_curves, paths
from .curve import RiskCurve, SizeCurve
from .fold_data import FoldData, folds_of_moments, folds_of_rows, random_splits, repeats_for
from .moment_curves import FoldCurve
from .paths import Paths, Splits
from .ridge_penalty import blas_for, few_folds, few_splits, ridge_penalty, ridge_penalty_of_folds
from .schemes import LARGEST_SHARE, Choice, choose_schemes

__all__ = ["Evidence", "Request", "Selection", "select"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

EXCESS = 0.01  # of a finite ensemble over an infinite one, where the number of members is to be found
MANY = 1000  # members for which the size of uniform ones is chosen, where they are infinitely many
MUCH_WORK = 1e9  # operations of one path
MOST_FOLDS = 5  # of a splitter, in which schemes are compared; more are joined
SEED = 11  # of the paths
SIZES = 50  # at most, of uniform members


@dataclass(frozen=True)
class Request:
    """What the user fixed."""

    design: str
    inclusion: str  # "uniform", "ridge", "auto"
    criterion: str | None  # None, "gcv", "oob", "kfold"
    sizes: tuple[int | float, ...] | None  # candidates; None: a grid
    max_samples: int | float
    one_standard_error: bool
    scale: float | None  # None: from the data
    fit_intercept: bool

    @property
    def fixed_scale(self) -> float:
        """The scale that was given, one where it is to be estimated."""
        return 1.0 if self.scale is None else self.scale

    @property
    def uses_schemes(self) -> bool:
        """Whether members share the ensemble with penalised fits: all rows, no sizes given, judged by folds."""
        plain = self.criterion in (None, "kfold") and self.sizes is None and not self.one_standard_error
        all_rows = isinstance(self.max_samples, float) and self.max_samples == 1.0
        if self.inclusion == "ridge" and not (plain and all_rows):
            raise ValueError(
                "inclusion='ridge' is tuned ridge regression, the limit of members of all sizes on all rows, judged by "
                "folds: max_features, max_samples and one_standard_error must be left at their defaults, and cv be "
                "None, an int or a splitter."
            )
        return self.inclusion != "uniform" and plain and all_rows


@dataclass(frozen=True)
class Evidence:
    """What members are judged by: rows in memory (with splits for k-fold), or moments of folds of rows."""

    problem: Problem | None = None
    splits: Splits | None = None
    folds: list[Moments] | None = None
    units: Units = field(default_factory=Units)  # of X and y as given: squares of squared errors must stay in range

    @classmethod
    def of_rows(cls, problem: Problem, splits: Splits | None) -> Evidence:
        """Rows with entries of order one."""
        problem, units = problem.in_units
        return cls(problem, splits, units=units)

    @classmethod
    def of_folds(cls, folds: list[Moments]) -> Evidence:
        """Moments of targets of order one."""
        unit = power_of_two(max(float(np.sqrt(np.max(m.space.get(m.yy), initial=0.0) / m.weight)) for m in folds))
        if unit == 1.0:
            return cls(folds=folds)
        return cls(
            folds=[replace(m, mean_y=m.mean_y / unit, C=m.C / unit, yy=m.yy / unit / unit) for m in folds],
            units=Units(y=unit),
        )

    @property
    def n_targets(self) -> int:
        """How many there are."""
        if self.problem is not None:
            return int(self.problem.Y.shape[1])
        assert self.folds is not None
        return int(self.folds[0].C.shape[1])

    def target(self, t: int) -> Evidence:
        """The same for one of several targets."""
        if self.problem is not None:
            return replace(self, problem=self.problem.target(t))
        assert self.folds is not None
        return replace(self, folds=[fold.target(t) for fold in self.folds])

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
class Selection:
    """What selection found: uniform members alone, or schemes that share the ensemble."""

    criterion: str
    curve: SizeCurve  # of uniform members
    standard_error: Array  # (sizes,) of the curve
    size: int  # columns of uniform members
    n_estimators: float
    scale: float
    mse: float  # of the chosen ensemble
    mse_error: float  # its standard error
    prediction: Array | None = None  # (n, q) of left-out rows
    choice: Choice | None = None

    def in_users_units(self, units: Units) -> Selection:
        """The same where X and y were divided by units; errors beyond double precision are infinite."""
        if units == Units():
            return self
        unit = units.y
        with np.errstate(over="ignore"):
            return replace(
                self,
                curve=replace(self.curve, unit=unit),
                standard_error=self.standard_error * unit * unit,
                mse=self.mse * unit * unit,
                mse_error=self.mse_error * unit * unit,
                prediction=None if self.prediction is None else self.prediction * unit,
                choice=None if self.choice is None else self.choice.in_users_units(units),
            )


def select(evidence: Evidence, request: Request, n_estimators: float, sharing: Sharing) -> list[Selection]:
    """The choice for so many members: one for all targets, or for each its own where schemes share the ensemble.

    Infinitely many uniform members are as many as keep the excess over them below one per cent.
    """
    if not request.uses_schemes:
        return [_uniform(_source(evidence, request, sharing), evidence, request, n_estimators)]
    each = [evidence] if evidence.n_targets == 1 else [evidence.target(t) for t in range(evidence.n_targets)]
    return [_schemes(_source(own, request, sharing), own, request, n_estimators, sharing) for own in each]


def _source(evidence: Evidence, request: Request, sharing: Sharing) -> _Source:
    how = Paths(SEED, request.design, sharing)
    if (
        request.uses_schemes
    ):  # beside penalised fits a rough size of uniform members will do: four pairs, half the sizes
        how = replace(how, batch=2, min_batches=2)
    if evidence.folds is not None:
        return _FoldMoments(evidence.folds, request, how)
    assert evidence.problem is not None
    return _Rows(evidence.problem, evidence.splits, request, how)


@dataclass(frozen=True)
class _Curve:
    """A risk curve of uniform members."""

    criterion: str
    curve: RiskCurve  # at the scale that was given, at one where it is to be estimated
    n_rows: int
    residuals: list[Array] | None = None  # of every size, by row, unscaled; None where they are not all known
    folds: FoldCurve | None = None  # with its mean members, where it comes from moments of folds

    def best(self, k: float, one_standard_error: bool) -> int:
        """Position of the chosen size for k members."""
        mse = self.curve.mse(k)
        best = int(np.argmin(mse))
        if not one_standard_error:
            return best
        return int(np.flatnonzero(mse <= mse[best] + self.standard_error(k)[best])[0])

    def standard_error(self, k: float) -> Array:
        """Of the estimated error; from moments of all rows together only its order is known."""
        if self.curve.own.shape[1] == 1:
            found: Array = self.curve.mse(k) * np.sqrt(2 / self.n_rows)
            return found
        return self.curve.standard_error(k)


def _uniform(source: _Source, evidence: Evidence, request: Request, n_estimators: float) -> Selection:
    found = source.curve()
    at = found.best(n_estimators, request.one_standard_error)
    number = found.curve.members_for(at, EXCESS) if np.isinf(n_estimators) else n_estimators
    residual = None if found.residuals is None else found.residuals[at]
    scale = request.fixed_scale
    if request.scale is None and residual is not None and evidence.problem is not None:
        scale = combining.loo_scale(evidence.problem, residual, evidence.mean_of_others())
        found = replace(found, curve=found.curve.scaled(scale, evidence.deviations()))
    elif request.scale is None and found.folds is not None:
        scale = combining.drawn_to_one(*found.folds.slope(at))
        found = replace(found, curve=found.folds.scaled(scale))
    prediction = None
    if residual is not None and evidence.problem is not None:
        centre = evidence.mean_of_others()
        prediction = centre + scale * (evidence.problem.Y - residual - centre)
    error = found.standard_error(number)
    return Selection(
        found.criterion, found.curve.averaged(), error, int(found.curve.sizes[at]), number, scale,
        float(found.curve.mse(number)[at]), float(error[at]), prediction,
    ).in_users_units(evidence.units)  # fmt: skip


def _schemes(source: _Source, evidence: Evidence, request: Request, k: float, sharing: Sharing) -> Selection:
    found, trained_on = source.curve_in_folds()
    many = MANY if np.isinf(k) else k
    at = found.best(many, one_standard_error=False)
    n, p = source.n_rows, found.curve.n_items
    size = round(float(found.curve.sizes[at]) * np.sqrt(n / trained_on))
    size = max(1, min(size, p, int(LARGEST_SHARE * (n - request.fit_intercept))))
    data, penalty = source.fold_data()
    if penalty is None:  # no column varies
        choice = Choice.of_nothing(data)
    else:
        with blas_for((n, p)):
            only_ridge = request.inclusion == "ridge"
            choice = choose_schemes(data, penalty, size, sharing, only_ridge=only_ridge, scale=request.scale)
    # of all repeats: uniform members keep the lead over ridge regression that they have in the first
    curve = found.curve.averaged().shifted(choice.beyond_first)
    return Selection(
        "kfold", curve, found.standard_error(many), size, k,
        1 - choice.nothing if request.scale is None else request.fixed_scale, choice.mse, choice.standard_error,
        _left_out(evidence, choice), choice,
    ).in_users_units(evidence.units)  # fmt: skip


def _left_out(evidence: Evidence, choice: Choice) -> Array | None:
    """Predictions of every row from the folds without it, averaged over repeats; None where they are not all known."""
    if evidence.problem is None:
        return None
    Y = evidence.problem.Y
    total, times = np.zeros(len(Y)), np.zeros(len(Y))
    for fit in choice.fits:
        if fit.rows is None or fit.residual is None:
            return None
        np.add.at(total, fit.rows, Y[fit.rows, 0] - fit.residual)
        np.add.at(times, fit.rows, 1)
    return (total / times)[:, None] if times.all() else None


def _candidate_sizes(request: Request, p: int, rows: int) -> Indices:
    """Candidate sizes, clear of the interpolation peak."""
    freedom = rows - request.fit_intercept
    largest = max(1, min(p, int(LARGEST_SHARE * freedom)))
    if request.sizes is None:
        count = SIZES // 2 if request.uses_schemes else SIZES
        return paths.size_grid(max(1, min(largest, freedom - 2)), count)  # with few rows 85 % are next to the peak
    sizes = np.unique([resolve_size(size, p, "max_features") for size in request.sizes])
    if sizes[-1] > largest:
        raise ValueError(
            f"max_features asks for {sizes[-1]} columns in a member, but with {rows} rows at most {largest} keep "
            f"members clear of the interpolation peak. Leave larger sizes out."
        )
    return sizes


@dataclass(frozen=True)
class _FoldMoments:
    """Errors from moments of folds."""

    moments: list[Moments]
    request: Request
    how: Paths

    @property
    def n_rows(self) -> int:
        return sum(fold.n_rows for fold in self.moments)

    def _trained_on(self) -> int:
        return self.n_rows - max(fold.n_rows for fold in self.moments)

    def curve(self) -> _Curve:
        """Of uniform members, as the request asks."""
        scale, p = self.request.fixed_scale, self.moments[0].C.shape[0]
        if self.request.criterion == "gcv":
            sizes = _candidate_sizes(self.request, p, self.n_rows)
            curve = moment_curves.moment_gcv_curve(Moments.merge_all(self.moments), sizes, self.how, scale)
            return _Curve("gcv", curve, self.n_rows)
        sizes = _candidate_sizes(self.request, p, self._trained_on())
        found = moment_curves.moment_kfold_curve(self.moments, sizes, self.how, scale)
        return _Curve("kfold", found.curve, self.n_rows, folds=found)

    def curve_in_folds(self) -> tuple[_Curve, int]:
        """Of uniform members in the folds of the first repeat, and the rows that they are trained on."""
        return self.curve(), self._trained_on()

    def fold_data(self) -> tuple[FoldData, float | None]:
        """Folds for the comparison of schemes, and the penalty of ridge regression on all rows."""
        data = folds_of_moments(few_folds(self.moments, MOST_FOLDS))
        return data, ridge_penalty_of_folds(data, self.request.fit_intercept)


@dataclass(frozen=True)
class _Rows:
    """The same from rows in memory."""

    problem: Problem
    splits: Splits | None
    request: Request
    how: Paths

    @property
    def n_rows(self) -> int:
        return self.problem.shape[0]

    @property
    def _drawn(self) -> int | None:
        """Rows of a member, None: all."""
        rows = resolve_size(self.request.max_samples, self.n_rows, "max_samples")
        return None if rows == self.n_rows else rows

    def _sizes(self, splits: Splits | None) -> Indices:
        rows = self.n_rows if self._drawn is None else self._drawn
        if splits is not None:  # repeated rows add no rank, so they do not count
            rows = min(rows, *(self.problem.take(train).distinct_rows() for train, _ in splits))
        return _candidate_sizes(self.request, self.problem.shape[1], rows)

    def curve(self) -> _Curve:
        sizes, drawn = self._sizes(self.splits), self._drawn
        if self.request.criterion == "oob":
            if drawn is None:
                raise ValueError(
                    f"cv='oob' needs rows that members are not given, but max_samples={self.request.max_samples}."
                )
            return self._curve("oob", paths.oob_curve(self.problem, sizes, self.how, drawn))
        if self.splits is not None:
            return self._in_folds(self.splits, sizes)
        how = self.how
        if self.request.criterion == "gcv":
            criterion = paths.gcv(self.problem, sizes, how, drawn)
        else:
            criterion = paths.leave_one_out(self.problem, sizes, how, drawn)
            # So many rows and columns differ little from one member to the next; where they do, more batches follow.
            how = replace(how, batch=2) if self.n_rows * float(sizes[-1]) ** 2 > MUCH_WORK else how
        return self._curve(criterion.name, how.nested(self.problem.shape[1], sizes, criterion))

    def _in_folds(self, splits: Splits, sizes: Indices) -> _Curve:
        """With as many members as from moments of folds, so that the choice is the same."""
        criterion = paths.kfold(self.problem, sizes, self.how, splits, self._drawn)
        how = replace(self.how, max_batches=self.how.min_batches)
        return self._curve("kfold", how.nested(self.problem.shape[1], sizes, criterion), splits)

    def _curve(self, criterion: str, curve: RiskCurve, splits: Splits | None = None) -> _Curve:
        by_row = [self._by_row(residual, splits) for residual in curve.residual]
        residuals = [r for r in by_row if r is not None]
        known = residuals if len(residuals) == len(by_row) else None
        if self.request.scale is not None and not self.request.uses_schemes:
            curve = curve.scaled(self.request.scale, Evidence(self.problem, splits).deviations())
        return _Curve(criterion, curve, self.n_rows, known)

    def _by_row(self, residual: Array, splits: Splits | None) -> Array | None:
        """Residuals in the order of the rows, or None where some row has none."""
        if splits is not None:
            order = np.concatenate([test for _, test in splits])
            whole = np.full(self.problem.Y.shape, np.nan)
            whole[order] = residual
            residual = whole
        return residual if len(residual) == len(self.problem.Y) and np.isfinite(residual).all() else None

    def _repeated(self) -> tuple[Splits, int]:
        """Folds in which schemes are compared, and how often every row is left out."""
        if self.splits is not None:
            return few_splits(self.splits, self.n_rows, MOST_FOLDS), 1
        repeats = repeats_for(self.n_rows)
        splits = random_splits(self.problem, repeats)
        return splits, repeats if len(splits) < self.n_rows else 1

    def curve_in_folds(self) -> tuple[_Curve, int]:
        splits, repeats = self._repeated()
        first = splits[: len(splits) // repeats]
        return self._in_folds(first, self._sizes(first)), min(len(train) for train, _ in first)

    def fold_data(self) -> tuple[FoldData, float | None]:
        data = folds_of_rows(self.problem, *self._repeated(), self.how.mapper)
        if self.splits is None:
            return data, ridge_penalty(self.problem)
        return data, ridge_penalty_of_folds(data, self.request.fit_intercept)


_Source = _FoldMoments | _Rows
