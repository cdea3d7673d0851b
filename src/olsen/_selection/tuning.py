"""Choose the sampling schemes, the size of uniform members, their number and the scale. One flow for all data.

Members are judged by rows in memory, or by moments of folds. Uniform members are compared over sizes, which gives a
risk curve; with the default inclusion their best size is then one of the schemes that share the ensemble (``schemes``).

Everything that chooses uses constant seeds: the same data give the same choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Threads
from .._members.problem import Problem
from .._moments.moments import Moments
from ..subsets import resolve_size
from . import combining, moment_curves, risk_curves
from .arrangement import Arrangement
from .fold_data import (
    FoldData,
    blas_for,
    few_folds,
    few_splits,
    first_least,
    folds_of_moments,
    folds_of_rows,
    moments_of_training_rows,
    random_splits,
    ridge_penalty,
    ridge_penalty_of_folds,
)
from .moment_curves import FoldCurve
from .risk_curves import Paths, RiskCurve, RowCurve, Splits
from .schemes import LARGEST_SHARE, Choice, choose_schemes

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

EXCESS = 0.01  # of a finite ensemble over an infinite one, where the number of members is to be found
MANY = 1000  # members for which the size of uniform ones is chosen, where they are infinitely many
MUCH_WORK = 1e9  # operations of one path
SEED = 11  # of the paths
SIZES = 50  # at most, of uniform members


@dataclass(frozen=True)
class TuningOptions:
    """What the user fixed."""

    design: str
    inclusion: str  # "uniform", "ridge", "auto"
    criterion: str | None  # None, "gcv", "oob", "kfold"
    sizes: tuple[int | float, ...] | None  # candidates; None: a grid
    max_samples: int | float
    one_standard_error: bool
    scale: float | None  # None: from the data
    fit_intercept: bool
    clip_sizes: bool = False  # refits of parts of the rows, which may be too few for the sizes that were given

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

    def candidate_sizes(self, p: int, rows: int) -> Indices:
        """Sizes of uniform members to compare, clear of the interpolation peak."""
        freedom = rows - self.fit_intercept
        largest = max(1, min(p, int(LARGEST_SHARE * freedom)))
        if self.sizes is None:  # beside penalised fits half of the sizes will do
            count = SIZES // 2 if self.uses_schemes else SIZES
            return risk_curves.size_grid(max(1, min(largest, freedom - 2)), count)  # few rows: 85 % are near the peak
        sizes = np.unique([resolve_size(size, p, "max_features") for size in self.sizes])
        if self.clip_sizes:
            sizes = np.unique(np.minimum(sizes, largest))
        if sizes[-1] > largest:
            raise ValueError(
                f"max_features asks for {sizes[-1]} columns in a member, but with {rows} rows at most {largest} keep "
                f"members clear of the interpolation peak. Leave larger sizes out."
            )
        return sizes


@dataclass(frozen=True)
class Selection:
    """What selection found: uniform members alone, or schemes that share the ensemble."""

    criterion: str
    curve: RiskCurve  # of uniform members
    standard_error: Array  # (sizes,) of the curve
    size: int  # columns of uniform members
    n_estimators: float
    scale: float
    mse: float  # of the chosen ensemble
    mse_error: float  # its standard error
    prediction: Array | None = None  # (n, q) of left-out rows
    choice: Choice | None = None
    column_order: Indices | None = None  # by content, from which uniform members are drawn


@dataclass(frozen=True)
class _Curve:
    """A risk curve of uniform members, at the scale that was given, at one where it is to be estimated."""

    criterion: str
    curve: RowCurve
    residuals: Array | None = None  # (sizes, n, q) unscaled; None where they are not known of all rows
    folds: FoldCurve | None = None  # with its mean members, where it comes from moments of folds


# uniform members in the folds of the first repeat, the rows these are trained on, all folds, ridge regression's penalty
_InFolds = tuple[RowCurve, int, FoldData, float | None]


@dataclass(frozen=True)
class RowData:
    """Rows in memory that members are judged by, with splits for k-fold."""

    problem: Problem
    splits: Splits | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.problem.shape

    def targets(self) -> list[RowData]:
        """The same for each of several targets."""
        count = self.problem.Y.shape[1]
        return [self] if count == 1 else [replace(self, problem=self.problem.target(t)) for t in range(count)]

    def arranged(self) -> tuple[RowData, Arrangement]:
        """Rows and columns in an order that depends on content; repeated rows are merged where no splits are given."""
        arrangement = Arrangement.of(self.problem, merge_rows=self.splits is None)
        return replace(self, problem=arrangement.apply(self.problem)), arrangement

    def curve(self, options: TuningOptions, how: Paths) -> _Curve:
        """Of uniform members, by the criterion that was asked for."""
        problem, (n, _) = self.problem, self.shape
        drawn = resolve_size(options.max_samples, n, "max_samples")
        sizes, rows = self._sizes(options, self.splits, drawn), None if drawn == n else drawn
        if options.criterion == "oob":
            if rows is None:
                raise ValueError(
                    f"cv='oob' needs out-of-bag rows, but max_samples={options.max_samples}; set max_samples below 1.0 "
                    f"or use another cv."
                )
            name, curve = "oob", risk_curves.oob_curve(problem, sizes, how, rows)
        elif self.splits is not None:
            name, curve = "kfold", self._kfold(self.splits, sizes, how, None, rows)
        elif options.criterion == "gcv":
            name, curve = "gcv", risk_curves.gcv(problem, sizes, how, rows)
        else:
            # So many rows and columns differ little from one member to the next; if not, more batches follow.
            how = replace(how, batch=2) if n * float(sizes[-1]) ** 2 > MUCH_WORK else how
            name, curve = "loo", risk_curves.leave_one_out(problem, sizes, how, rows)
        residuals = self._by_row(curve.residual)
        if options.scale is not None:
            curve = curve.scaled(options.scale, self._deviations())
        return _Curve(name, curve, residuals)

    def in_folds(self, options: TuningOptions, how: Paths) -> _InFolds:
        """Folds of a splitter, at most a few, or random ones."""
        if self.splits is None:
            splits, repeats = random_splits(self.problem)
        else:
            splits, repeats = few_splits(self.splits, self.shape[0]), 1
        data = folds_of_rows(self.problem, splits, repeats, how.mapper)
        first = splits[: data.first]
        training = None if data.training is None else data.training[: data.first]
        curve = self._kfold(first, self._sizes(options, first, self.shape[0]), how, training, None)
        if self.splits is None:
            penalty = ridge_penalty(self.problem, data)
        else:
            penalty = ridge_penalty_of_folds(data, options.fit_intercept)
        return curve, min(len(train) for train, _ in first), data, penalty

    def scaled(self, found: _Curve, at: int) -> tuple[RowCurve, float]:
        """The curve at the scale that is best for one size, and that scale."""
        if found.residuals is None:
            return found.curve, 1.0
        scale = combining.loo_scale(self.problem, found.residuals[at], self._mean_of_others())
        return found.curve.scaled(scale, self._deviations()), scale

    def prediction(self, found: _Curve, at: int, scale: float) -> Array | None:
        """Of every row by uniform members of one size without it, (n, q); None where they are not all known."""
        if found.residuals is None:
            return None
        centre = self._mean_of_others()
        return np.asarray(centre + scale * (self.problem.Y - found.residuals[at] - centre))

    def prediction_of(self, choice: Choice) -> Array | None:
        """Prediction (n, 1) of every row by the mixture, from the folds without the row, averaged over repeats."""
        Y = self.problem.Y
        total, times = np.zeros(len(Y)), np.zeros(len(Y))
        for fit in choice.fits:
            if fit.rows is None or fit.residual is None:
                return None
            np.add.at(total, fit.rows, Y[fit.rows, 0] - fit.residual)
            np.add.at(times, fit.rows, 1)
        return (total / times)[:, None] if times.all() else None

    def _sizes(self, options: TuningOptions, splits: Splits | None, rows: int) -> Indices:
        if splits is not None:  # repeated rows add no rank, so they do not count
            rows = min(rows, *(self.problem.distinct_rows(train) for train, _ in splits))
        return options.candidate_sizes(self.problem.shape[1], rows)

    def _kfold(
        self, splits: Splits, sizes: Indices, how: Paths, training: list[Moments] | None, drawn: int | None
    ) -> RowCurve:
        # one Gram matrix for all paths where that is cheaper than one for each
        if training is None and drawn is None and self.shape[1] <= 3 * int(sizes[-1]):
            training = moments_of_training_rows(self.problem, splits)
        return risk_curves.kfold(self.problem, splits, training, sizes, how, drawn)

    def _by_row(self, residual: Array) -> Array | None:
        """Residuals (sizes, n, q) in the order of the rows, or None where some row has none."""
        if self.splits is not None:
            whole = np.full((len(residual), *self.problem.Y.shape), np.nan)
            whole[:, np.concatenate([test for _, test in self.splits])] = residual
            residual = whole
        return residual if residual.shape[1] == self.shape[0] and np.isfinite(residual).all() else None

    def _mean_of_others(self) -> Array:
        """Mean target without each row, or without the fold that it is in, (n, q); zeros without intercept."""
        Y, weight = self.problem.Y, self.problem.weights
        if not self.problem.fit_intercept:
            return np.zeros_like(Y)
        share = (weight / weight.sum())[:, None]
        mean: Array = (weight @ Y / weight.sum() - share * Y) / (1 - share)
        for train, test in self.splits or ():
            mean[test] = weight[train] @ Y[train] / weight[train].sum()
        return mean

    def _deviations(self) -> Array:
        """Targets less these means, in the order of the rows of a curve: with splits, the test rows of each in turn."""
        found = self.problem.Y - self._mean_of_others()
        return found if self.splits is None else np.concatenate([found[test] for _, test in self.splits])


@dataclass(frozen=True)
class MomentData:
    """The same where only moments of folds of rows are known."""

    folds: list[Moments]

    splits = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of all folds, and columns."""
        return sum(fold.n_rows for fold in self.folds), self.folds[0].C.shape[0]

    def targets(self) -> list[MomentData]:
        """The same for each of several targets."""
        count = self.folds[0].C.shape[1]
        return [replace(self, folds=[fold.target(t) for fold in self.folds]) for t in range(count)]

    def curve(self, options: TuningOptions, how: Paths) -> _Curve:
        """Of uniform members, by k-fold cross-validation or GCV."""
        (_, p), scale = self.shape, 1.0 if options.scale is None else options.scale
        if options.criterion == "gcv":
            sizes, whole = options.candidate_sizes(p, self.shape[0]), Moments.merge_all(self.folds)
            return _Curve("gcv", moment_curves.moment_gcv_curve(whole, sizes, how, scale))
        sizes = options.candidate_sizes(p, self._trained_on())
        found = moment_curves.moment_kfold_curve(self.folds, sizes, how, scale)
        return _Curve("kfold", found.curve, folds=found)

    def in_folds(self, options: TuningOptions, how: Paths) -> _InFolds:
        """These folds, joined to a few."""
        data = folds_of_moments(few_folds(self.folds), how.mapper)
        penalty = ridge_penalty_of_folds(data, options.fit_intercept)
        return self.curve(options, how).curve, self._trained_on(), data, penalty

    def scaled(self, found: _Curve, at: int) -> tuple[RowCurve, float]:
        """The curve at the scale that is best for one size, and that scale."""
        if found.folds is None:
            return found.curve, 1.0
        scale = combining.drawn_to_one(*found.folds.slope(at))
        return found.folds.scaled(scale), scale

    def _trained_on(self) -> int:
        return self.shape[0] - max(fold.n_rows for fold in self.folds)


SelectionData = RowData | MomentData


def select(data: SelectionData, options: TuningOptions, n_estimators: float, sharing: Threads) -> list[Selection]:
    """The choice for so many members: one for all targets, or for each its own where schemes share the ensemble.

    Infinitely many uniform members are as many as keep the excess over them below one per cent.
    """
    how = Paths(SEED, options.design, sharing)
    if not options.uses_schemes:
        return [_uniform(data, options, n_estimators, how)]
    how = replace(how, batch=2, min_batches=2)  # beside penalised fits a rough size of uniform members will do
    return [_schemes(one, options, n_estimators, how) for one in data.targets()]


def _uniform(data: SelectionData, options: TuningOptions, k: float, how: Paths) -> Selection:
    found = data.curve(options, how)
    average = found.curve.average
    mse = average.mse(k)
    at = first_least(mse)
    if options.one_standard_error:
        at = int(np.flatnonzero(mse <= mse[at] + _standard_error(found.curve, k, data.shape[0])[at])[0])
    number = average.members_for(at, EXCESS) if np.isinf(k) else k
    curve, scale = (found.curve, options.scale) if options.scale is not None else data.scaled(found, at)
    error = _standard_error(curve, number, data.shape[0])
    prediction = data.prediction(found, at, scale) if isinstance(data, RowData) else None
    return Selection(
        found.criterion, curve.average, error, int(average.sizes[at]), number, scale,
        float(curve.average.mse(number)[at]), float(error[at]), prediction,
    )  # fmt: skip


def _schemes(data: SelectionData, options: TuningOptions, k: float, how: Paths) -> Selection:
    """Choose for rows in an order that depends on their content, and for moments as they are."""
    if isinstance(data, MomentData):
        return _choose(data, options, k, how)
    rows, arrangement = data.arranged()
    selection = _choose(rows, options, k, how)
    assert selection.choice is not None
    choice = selection.choice.rearranged(arrangement)
    return replace(selection, choice=choice, prediction=data.prediction_of(choice), column_order=arrangement.columns)


def _choose(data: SelectionData, options: TuningOptions, k: float, how: Paths) -> Selection:
    """Uniform members have their best size for many of them, in proportion to the root of the rows."""
    n, p = data.shape
    with blas_for((n, p)):
        curve, trained_on, folds, penalty = data.in_folds(options, how)
        many, average = MANY if np.isinf(k) else k, curve.average
        size = round(float(average.sizes[first_least(average.mse(many))]) * np.sqrt(n / trained_on))
        size = max(1, min(size, p, int(LARGEST_SHARE * (n - options.fit_intercept))))
        if penalty is None:  # no column varies
            choice = Choice.of_nothing(folds)
        else:
            only_ridge = options.inclusion == "ridge"
            choice = choose_schemes(folds, penalty, size, only_ridge=only_ridge, scale=options.scale)
    # of all repeats: uniform members keep the lead over ridge regression that they have in the first
    return Selection(
        "kfold", average.shifted(choice.beyond_first), _standard_error(curve, many, n), size, k,
        1 - choice.nothing if options.scale is None else options.scale, choice.mse, choice.standard_error,
        choice=choice,
    )  # fmt: skip


def _standard_error(curve: RowCurve, k: float, n_rows: int) -> Array:
    """Of the estimated error; from moments of all rows together only its order is known."""
    if curve.products.shape[2] == 1:
        return np.asarray(curve.average.mse(k) * np.sqrt(2 / n_rows))
    return curve.standard_error(k)
