"""Choose the size of members, their number and their scale.

The data for selection are rows in memory, or moments of folds. Uniform members are compared over
sizes, which gives a risk curve; determinantal members over penalties of ridge regression.

All random choices use constant seeds: the same data give the same choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from .._data.arrangement import Arrangement, column_order
from .._data.folds import FoldData, first_least, folds_of_moments, folds_of_rows
from .._data.implicit import stays_implicit
from .._data.modes import away_from_mode, away_from_mode_by_moments
from .._data.moments import Moments
from .._data.near_copies import near_copies, near_copies_by_moments
from .._data.rows import RowData
from .._data.splits import (
    FOLD_SEED,
    FOLDS,
    Splits,
    few_folds,
    few_splits,
    moments_of_training_rows,
    random_splits,
)
from .._data.standardised import standardise
from .._execution.threads import Threads, cached_property
from .._members.penalised import MIN_BATCHED_TARGETS
from ..subsets import DrawnColumns, resolve_size
from . import combining, moment_curves, risk_curves
from .moment_curves import FoldCurve
from .penalties import (
    LARGEST_DEGREES,
    FoldErrors,
    LeaveOneOut,
    PenaltyPath,
    compare,
    ridge_penalty,
    ridge_penalty_of_folds,
    search,
)
from .risk_curves import Paths, RiskCurve, RowCurve

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# error of a finite ensemble relative to an infinite one, where the number is chosen
MAX_EXCESS_ERROR = 0.01
# columns of a uniform member for each row: members stay clear of the interpolation peak
LARGEST_ROW_FRACTION = 0.85
MANY_PATH_OPERATIONS = 1e9  # operations of one path above which a batch has fewer pairs
SEED = 11  # seed of the paths
# in standard errors, from which on members may have several nearly equal columns: with 43 rows their
# estimated error was half of that of members with one of such columns, and R2 on new rows was .48 to .93
MIN_GAIN_OF_NEAR_COPIES = 2.0
MAX_SIZES = 50  # candidate sizes of uniform members


@dataclass(frozen=True, kw_only=True)
class SizeOptions:
    """Settings of the search for the size of uniform or determinantal members."""

    design: str = "balanced"
    criterion: str | None = "kfold"  # None (leave-one-out), "gcv", "oob", "kfold"
    sizes: tuple[int | float, ...] | None = None  # candidates; None: a grid
    max_sizes: int = MAX_SIZES  # of the grid
    max_samples: tuple[int | float, ...] = (1.0,)  # candidates
    only_rows: bool = True  # whether the number of rows is given and not tuned
    scale: float | None = 1.0  # None: estimated from the data
    # for refits of subsets of the rows, which may be too few for the sizes asked for
    clip_sizes: bool = False

    def candidate_rows(self, n: int) -> list[int]:
        """Numbers of rows to compare, the largest first."""
        rows = {resolve_size(candidate, n, "max_samples") for candidate in self.max_samples}
        return sorted(rows, reverse=True)

    def largest_size(self, p: int) -> int:
        """The largest size that was asked for; one if sizes were left to the grid."""
        return max((resolve_size(size, p, "max_features") for size in self.sizes or ()), default=1)

    def candidate_sizes(self, p: int, n_items: int, rows: int, null_rank: int) -> Indices:
        """Sizes of uniform members to compare, at most the number of items that are drawn and clear of
        the interpolation peak; with several numbers of rows there may be none.
        """
        if not self.only_rows:
            return self._sizes_clear_of_the_peak(p, n_items, rows - null_rank)
        freedom = rows - null_rank
        largest = max(1, min(n_items, int(LARGEST_ROW_FRACTION * freedom)))
        if self.sizes is None:
            largest_on_grid = max(
                1, min(largest, freedom - 2)
            )  # few rows: 85 % of them are near the peak
            return risk_curves.size_grid(largest_on_grid, self.max_sizes)
        sizes = np.unique([resolve_size(size, p, "max_features") for size in self.sizes])
        if self.clip_sizes:
            sizes = np.unique(np.minimum(sizes, largest))
        if sizes[-1] > largest:
            raise ValueError(
                f"max_features asks for {sizes[-1]} columns in a member, but with {rows} rows at"
                f" most {largest} keep members clear of the interpolation peak. Leave larger sizes"
                " out."
            )
        return sizes

    def _sizes_clear_of_the_peak(self, p: int, n_items: int, freedom: int) -> Indices:
        """Sizes that keep members of `freedom` rows clear of the interpolation peak."""
        largest = min(n_items, int(LARGEST_ROW_FRACTION * freedom), freedom - 2)
        if self.sizes is None:
            return risk_curves.size_grid(largest, self.max_sizes) if largest > 0 else np.arange(0)
        sizes = np.unique([resolve_size(size, p, "max_features") for size in self.sizes])
        return sizes[sizes <= largest]

    def expected_sizes(self, p: int, limit: float) -> Array:
        """Expected sizes of determinantal members to compare, which are degrees of freedom of ridge
        regression.
        """
        assert self.sizes is not None
        sizes = np.unique(
            [size if isinstance(size, Integral) else size * p for size in self.sizes]
        ).astype(np.float64)
        if self.clip_sizes:
            sizes = np.unique(np.minimum(sizes, limit))
        if not 0 < sizes[0] <= sizes[-1] <= limit:
            raise ValueError(
                f"max_features asks for members of {sizes[0]:g} to {sizes[-1]:g} columns on"
                " average, but with these rows and columns determinantal members have between 0"
                f" and {limit:g}. Leave other sizes out."
            )
        return sizes


@dataclass(frozen=True)
class SizeErrors:
    """Errors of all sizes of members with one number of rows."""

    n_samples: int
    curve: RiskCurve
    standard_error: Array  # (sizes,) of the curve


@dataclass(frozen=True, kw_only=True)
class SizeSelection:
    """The chosen size of uniform members, and the error of every candidate."""

    criterion: str
    candidates: list[SizeErrors]  # for every number of rows, the largest first
    chosen: int  # position of the chosen number of rows
    best: int  # position of the chosen size among those of the chosen number of rows
    max_samples: int | float  # rows of a member, 1.0 for all rows
    n_estimators: int
    scale: float
    prediction: Array | None  # (n, q) of held-out rows
    drawn_columns: DrawnColumns | None = None  # groups of nearly equal columns

    @property
    def curve(self) -> RiskCurve:
        """Errors of the chosen number of rows."""
        return self.candidates[self.chosen].curve

    @property
    def size(self) -> int:
        """Columns of a member."""
        return int(self.curve.sizes[self.best])

    @property
    def mse(self) -> float:
        """Estimated error of the chosen ensemble."""
        return float(self.curve.mse(self.n_estimators)[self.best])

    @property
    def standard_error(self) -> float:
        """Standard error of the estimated error."""
        return float(self.candidates[self.chosen].standard_error[self.best])


@dataclass(frozen=True, kw_only=True)
class PenaltySelection:
    """The chosen expected size of determinantal members, which is a penalty of ridge regression."""

    criterion: str
    path: PenaltyPath
    prior_variances: Array  # (p,) for the columns in their original units: one over their variances
    scale: float
    prediction: Array | None  # (n, q) of held-out rows


@dataclass(frozen=True)
class _Curve:
    """A risk curve of uniform members, at the scale asked for, or at a scale of one if it is to be
    estimated.
    """

    criterion: str
    n_samples: int  # rows of a member
    curve: RowCurve
    residuals: Array | None = None  # (sizes, n, q) unscaled; None unless all rows have residuals
    # the curve with its mean members, if it comes from moments of folds
    folds: FoldCurve | None = None


@dataclass(frozen=True)
class ComparedInFolds:
    """Uniform members and ridge of every target, compared in folds."""

    # of uniform members in the folds of the first repeat, for each target; None where rows stay implicit
    curves: list[RiskCurve] | None
    n_training_rows: int
    folds: FoldData  # all folds
    ridge_penalty: Array | None  # (q,), None if all columns are constant


@dataclass(frozen=True)
class SelectionRows:
    """Data for selection: rows in memory, with splits for k-fold cross-validation."""

    problem: RowData
    splits: Splits | None
    by_index: bool = False  # random folds follow the row indices, as those of moments do

    has_rows = True

    @property
    def null_rank(self) -> int:
        """Rank of the columns that are always in."""
        return self.problem.null_rank

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.problem.shape

    def targets_at(self, which: Indices) -> SelectionRows:
        """The data with some of the targets."""
        return replace(self, problem=self.problem.targets_at(which))

    @property
    def Y(self) -> Array:
        """Targets (n, q) of the rows."""
        return self.problem.Y

    def near_copies(self) -> Indices | None:
        """Group of every column, where columns are nearly equal."""
        return near_copies(self.problem)

    def arranged(self) -> Arranged:
        """Rows and columns in an order that depends on content; repeated rows are merged if there
        are no splits. Rows keep their order if folds follow it.
        """
        merge_rows = self.splits is None and not self.by_index
        arrangement = Arrangement.of(self.problem, merge_rows=merge_rows)
        return Arranged(replace(self, problem=arrangement.apply(self.problem)), arrangement)

    def curves(self, options: SizeOptions, paths: Paths) -> list[_Curve]:
        """Risk curve of uniform members by the criterion asked for, for every number of rows for
        which there are sizes clear of the interpolation peak.
        """
        curves = []
        for n_samples in options.candidate_rows(self.shape[0]):
            sizes = self._sizes(options, paths, self.splits, n_samples)
            if len(sizes):
                curves.append(self._curve(options, paths, n_samples, sizes))
        return curves

    def _curve(self, options: SizeOptions, paths: Paths, n_samples: int, sizes: Indices) -> _Curve:
        """Risk curve of uniform members with one number of rows."""
        problem = self.problem
        n = self.shape[0]
        subsample = None if n_samples == n else n_samples
        if options.criterion == "oob":
            if subsample is None:
                raise ValueError(
                    "cv='oob' needs out-of-bag rows, but members with"
                    f" max_samples={max(options.max_samples)} see all {n} rows; set max_samples"
                    " below 1.0 or use another cv."
                )
            name = "oob"
            curve = risk_curves.oob_curve(problem, sizes, paths, subsample)
        elif self.splits is not None:
            name = "kfold"
            training = None if subsample is not None else self._training_moments(self.splits, sizes)
            curve = risk_curves.kfold(
                problem, self.splits, training, sizes, paths=paths, n_samples=subsample
            )
        elif options.criterion == "gcv":
            name = "gcv"
            curve = risk_curves.gcv(problem, sizes, paths, subsample)
        else:
            # Members of many rows and columns differ little; otherwise more batches follow.
            if subsample is None and n * float(sizes[-1]) ** 2 > MANY_PATH_OPERATIONS:
                paths = replace(paths, batch=2)
            name = "loo"
            curve = risk_curves.leave_one_out(problem, sizes, paths, subsample)
        residuals = self._by_row(curve.residual)
        if options.scale is not None:
            curve = curve.scaled(options.scale, self._deviations())
        return _Curve(name, n_samples, curve, residuals)

    def in_folds(self, options: SizeOptions, paths: Paths) -> ComparedInFolds:
        """Compare uniform members and ridge in at most a few folds of the splitter, or in random
        folds.
        """
        if self.by_index:
            splits = self.problem.splits_by_index(FOLDS, FOLD_SEED)
            n_repeats = 1
        elif self.splits is None:
            splits, n_repeats = random_splits(self.problem)
        else:
            splits = few_splits(self.splits, self.shape[0])
            n_repeats = 1
        data = folds_of_rows(self.problem, splits, n_repeats, paths.threads)
        first = splits[: data.folds_per_repeat]
        sizes = self._sizes(options, paths, first, self.shape[0])
        training = None if data.training is None else data.training[: data.folds_per_repeat]
        curves = None
        if not stays_implicit(self.problem):
            if training is None:
                training = self._training_moments(first, sizes)
            of_targets = risk_curves.kfold_by_target(
                self.problem, first, training, sizes, paths=paths
            )
            curves = [curve.average for curve in of_targets]
        if self.splits is None and data.all_rows.few_rows:
            penalty = ridge_penalty(self.problem, data)
        else:
            penalty = ridge_penalty_of_folds(data, self.null_rank)
        data = replace(data, away_from_mode=away_from_mode(self.problem))
        n_training_rows = min(len(train) for train, _ in first)
        return ComparedInFolds(curves, n_training_rows, data, penalty)

    def scale(self, unscaled: _Curve, best: int) -> float:
        """The scale that is best for the size at position `best`; one if it is not known."""
        if unscaled.residuals is None:
            return 1.0
        return self.scale_from(unscaled.residuals[best])

    def scaled(self, unscaled: _Curve, scale: float) -> RowCurve:
        """The curve at a scale that was estimated."""
        return unscaled.curve.scaled(scale, self._deviations())

    def scale_from(self, residuals: Array) -> float:
        """The scale that fits held-out residuals (n, q) best."""
        return combining.loo_scale(self.problem, residuals, self._mean_of_others)

    def prediction(self, unscaled: _Curve, best: int, scale: float) -> Array | None:
        """Held-out predictions (n, q) of uniform members of one size; None unless all rows have
        residuals.
        """
        return (
            None
            if unscaled.residuals is None
            else self.held_out_prediction(unscaled.residuals[best], scale)
        )

    def held_out_prediction(self, residuals: Array, scale: float) -> Array:
        """Held-out predictions (n, q) from the held-out residuals of unscaled predictions."""
        centre = self._mean_of_others
        return np.asarray(centre + scale * (self.problem.Y - residuals - centre))

    def penalty_criterion(
        self, criterion: str | None, threads: Threads
    ) -> LeaveOneOut | FoldErrors:
        """Criterion that compares penalties of ridge regression: leave-one-out, GCV, or the folds
        of the splits.
        """
        if self.splits is None:
            all_rows, unit = standardise(self.problem, threads)
            return LeaveOneOut.of(self.problem, all_rows, unit, generalised=criterion == "gcv")
        folds = folds_of_rows(self.problem, self.splits, 1, threads)
        n_training_rows = self.problem.fewest_distinct_rows([train for train, _ in self.splits])
        return FoldErrors(folds, n_training_rows)

    def scaled_ridge(
        self, criterion: LeaveOneOut | FoldErrors, penalty: float, scale: float | None
    ) -> tuple[float, Array | None]:
        """The scale of ridge regression, estimated if it is None, and held-out predictions if all
        rows have them.
        """
        residuals = criterion.residuals(penalty)
        if residuals is None:
            return _scale_from_slope(criterion, penalty, scale), None
        if scale is None:
            scale = self.scale_from(residuals)
        return scale, self.held_out_prediction(residuals, scale)

    def _sizes(
        self, options: SizeOptions, paths: Paths, splits: Splits | None, n_rows: int
    ) -> Indices:
        if splits is not None:  # repeated rows add no rank, so only distinct rows count
            n_rows = min(n_rows, self.problem.fewest_distinct_rows([train for train, _ in splits]))
        p = self.problem.shape[1]
        return options.candidate_sizes(p, paths.n_items(p), n_rows, self.null_rank)

    def _training_moments(self, splits: Splits, sizes: Indices) -> list[Moments] | None:
        """Moments of training rows, where one Gram matrix for all paths is cheaper than one for each."""
        if self.shape[1] > 3 * int(sizes[-1]) or stays_implicit(self.problem):
            return None
        return moments_of_training_rows(self.problem, splits)

    def _by_row(self, residual: Array) -> Array | None:
        """Residuals (sizes, n, q) in the order of the rows, or None unless all rows have residuals."""
        if self.splits is not None:
            by_row = np.full((len(residual), *self.problem.Y.shape), np.nan)
            by_row[:, np.concatenate([test for _, test in self.splits])] = residual
            residual = by_row
        return (
            residual if residual.shape[1] == self.shape[0] and np.isfinite(residual).all() else None
        )

    @cached_property
    def _mean_of_others(self) -> Array:
        """Mean target without each row, or without the fold that it is in, (n, q); zeros without
        intercept.
        """
        Y = self.problem.Y
        weight = self.problem.weights
        if not self.null_rank:
            return np.zeros_like(Y)
        fraction = (weight / weight.sum())[:, None]
        mean: Array = (weight @ Y / weight.sum() - fraction * Y) / (1 - fraction)
        for train, test in self.splits or ():
            mean[test] = weight[train] @ Y[train] / weight[train].sum()
        return mean

    def _deviations(self) -> Array:
        """Targets minus the mean of the other rows, in the row order of a curve: test rows of each
        split in turn.
        """
        deviations = self.problem.Y - self._mean_of_others
        return (
            deviations
            if self.splits is None
            else np.concatenate([deviations[test] for _, test in self.splits])
        )


@dataclass(frozen=True)
class SelectionMoments:
    """Data for selection where only moments of folds of rows are known."""

    folds: list[Moments]
    away_from_mode: Array | None = None  # (p,) if rows are in memory, else by moments

    has_rows = False
    splits = None
    Y = None  # targets of rows are not known

    @property
    def null_rank(self) -> int:
        """Rank of the columns that are always in."""
        return self.folds[0].null_rank

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of all folds, and columns."""
        return sum(fold.n_rows for fold in self.folds), self.folds[0].C.shape[0]

    def targets_at(self, which: Indices) -> SelectionMoments:
        """The data with some of the targets."""
        return replace(self, folds=[fold.targets_at(which) for fold in self.folds])

    def near_copies(self) -> Indices | None:
        """Group of every column, where columns are nearly equal."""
        return near_copies_by_moments(Moments.merge_all(self.folds).on_host())

    def arranged(self) -> Arranged:
        """Columns in an order that depends on content; rows have none any more."""
        columns = column_order([fold.on_host() for fold in self.folds])
        away = self.away_from_mode
        ordered = replace(
            self,
            folds=[fold.columns(columns) for fold in self.folds],
            away_from_mode=None if away is None else away[columns],
        )
        no_rows = np.empty(0, dtype=np.int64)
        return Arranged(ordered, Arrangement(columns, self.shape[1], no_rows, no_rows))

    def curves(self, options: SizeOptions, paths: Paths) -> list[_Curve]:
        """Risk curve of uniform members with all rows, by k-fold cross-validation or GCV."""
        n, p = self.shape
        scale = 1.0 if options.scale is None else options.scale
        if options.criterion == "gcv":
            sizes = options.candidate_sizes(p, paths.n_items(p), n, self.null_rank)
            all_rows = Moments.merge_all(self.folds)
            curve = moment_curves.moment_gcv_curve(all_rows, sizes, paths, scale)
            return [_Curve("gcv", n, curve)]
        n_training_rows = self._n_training_rows()
        sizes = options.candidate_sizes(p, paths.n_items(p), n_training_rows, self.null_rank)
        fold_curve = moment_curves.moment_kfold_curve(self.folds, sizes, paths, scale)
        return [_Curve("kfold", n, fold_curve.curve, folds=fold_curve)]

    def in_folds(self, options: SizeOptions, paths: Paths) -> ComparedInFolds:
        """Compare uniform members and ridge in the folds, merged to at most a few."""
        away = self.away_from_mode
        if away is None:
            away = away_from_mode_by_moments(Moments.merge_all(self.folds).on_host())
        data = replace(folds_of_moments(few_folds(self.folds), paths.threads), away_from_mode=away)
        penalty = ridge_penalty_of_folds(data, self.null_rank)
        p = self.shape[1]
        sizes = options.candidate_sizes(p, p, self._n_training_rows(), self.null_rank)
        if data.n_targets < MIN_BATCHED_TARGETS:
            curves = moment_curves.moment_kfold_curves(self.folds, sizes, paths)
        else:
            all_folds = folds_of_moments(self.folds, paths.threads)
            curves = moment_curves.curves_of_many_targets(all_folds, sizes, paths)
        return ComparedInFolds(curves, self._n_training_rows(), data, penalty)

    def scale(self, unscaled: _Curve, best: int) -> float:
        """The scale that is best for the size at position `best`; one if it is not known."""
        if unscaled.folds is None:
            return 1.0
        return combining.shrunk_to_one(*unscaled.folds.slope(best))

    def scaled(self, unscaled: _Curve, scale: float) -> RowCurve:
        """The curve at a scale that was estimated."""
        return unscaled.curve if unscaled.folds is None else unscaled.folds.scaled(scale)

    def penalty_criterion(self, criterion: str | None, threads: Threads) -> FoldErrors:
        """Criterion that compares penalties of ridge regression: k-fold cross-validation."""
        if criterion == "gcv":
            raise ValueError(
                "cv='gcv' with sampling='determinantal' needs X as an array in memory; elsewhere"
                " sizes are compared by k-fold cross-validation. Leave cv at None or give a number"
                " of folds."
            )
        folds = folds_of_moments(self.folds, threads)
        return FoldErrors(folds, self._n_training_rows())

    def prediction(self, unscaled: _Curve, best: int, scale: float) -> None:
        """Held-out predictions of rows, which moments do not know."""
        return None

    def scaled_ridge(
        self, criterion: LeaveOneOut | FoldErrors, penalty: float, scale: float | None
    ) -> tuple[float, None]:
        """The scale of ridge regression, estimated if it is None; predictions of rows are not
        known.
        """
        return _scale_from_slope(criterion, penalty, scale), None

    def _n_training_rows(self) -> int:
        """Number of training rows of the fold that has fewest."""
        return self.shape[0] - max(fold.n_rows for fold in self.folds)


SelectionData = SelectionRows | SelectionMoments


@dataclass(frozen=True)
class Arranged:
    """Data in an arrangement."""

    data: SelectionData
    arrangement: Arrangement


def _scale_from_slope(
    criterion: LeaveOneOut | FoldErrors, penalty: float, scale: float | None
) -> float:
    """The scale asked for; if it is None, the slope of targets on held-out predictions, shrunk to
    one.
    """
    return combining.shrunk_to_one(*criterion.slope(penalty)) if scale is None else scale


def select_size(
    data: SelectionData, options: SizeOptions, k: float, threads: Threads
) -> SizeSelection:
    """Choose the size of uniform members, and their number of rows, for an ensemble of k members.

    For infinite k, the number is chosen too: the error exceeds that of infinitely many by at most
    one per cent.

    Of columns that are nearly equal, a member takes one, unless members of all columns have an error
    that is smaller by two standard errors: then the signal is in the differences of such columns.
    """
    selection = _select_size(data, options, k, Paths(SEED, options.design, threads))
    groups = data.near_copies()
    if groups is None:
        return selection
    separated = DrawnColumns.of_groups(groups)
    if options.largest_size(data.shape[1]) > separated.n_items:
        return selection
    paths = Paths(SEED, options.design, threads, separated)
    of_groups = _select_size(data, options, k, paths)
    gain = of_groups.mse - selection.mse
    standard_error = float(np.hypot(of_groups.standard_error, selection.standard_error))
    return selection if gain > MIN_GAIN_OF_NEAR_COPIES * standard_error else of_groups


def _select_size(
    data: SelectionData, options: SizeOptions, k: float, paths: Paths
) -> SizeSelection:
    curves = data.curves(options, paths)
    _require_sizes(options, curves, data)
    chosen, best, n_estimators = _best_pair([curve.curve.average for curve in curves], k)
    scale = options.scale
    candidates = [curve.curve for curve in curves]
    if scale is None:
        scale = data.scale(curves[chosen], best)
        if scale != 1:
            candidates = [data.scaled(curve, scale) for curve in curves]
    n_rows = data.shape[0]
    n_samples = curves[chosen].n_samples
    return SizeSelection(
        criterion=curves[chosen].criterion,
        candidates=[
            SizeErrors(
                unscaled.n_samples,
                curve.average,
                _standard_error(curve, n_estimators, n_rows),
            )
            for unscaled, curve in zip(curves, candidates, strict=True)
        ],
        chosen=chosen,
        best=best,
        max_samples=1.0 if n_samples == n_rows else n_samples,
        n_estimators=n_estimators,
        scale=scale,
        prediction=data.prediction(curves[chosen], best, scale),
        drawn_columns=paths.drawn_columns,
    )


def _best_pair(curves: list[RiskCurve], k: float) -> tuple[int, int, int]:
    """Positions of the best number of rows and of its best size, and the number of members.

    For infinite k every number of rows has the number of members that it needs. Of the numbers of
    rows whose error then is within one per cent of the least, the one with fewest members is taken:
    in theory many have the same limit.
    """
    sizes = [first_least(curve.mse(k)) for curve in curves]
    members = (
        [int(k)] * len(curves)
        if np.isfinite(k)
        else [
            curve.members_for(size, MAX_EXCESS_ERROR)
            for curve, size in zip(curves, sizes, strict=True)
        ]
    )
    errors = np.array(
        [curve.mse(count)[size] for curve, size, count in zip(curves, sizes, members, strict=True)]
    )
    chosen = first_least(errors)
    if np.isinf(k):
        close = errors <= (1 + MAX_EXCESS_ERROR) * errors.min()
        chosen = int(np.argmin(np.where(close, members, np.inf)))
    return chosen, sizes[chosen], members[chosen]


def _require_sizes(options: SizeOptions, curves: list[_Curve], data: SelectionData) -> None:
    """Refuse candidates of which nothing is clear of the interpolation peak, so that no candidate is
    left out silently.
    """
    with_sizes = {curve.n_samples for curve in curves}
    row_counts = options.candidate_rows(data.shape[0])
    without_sizes = [rows for rows in row_counts if rows not in with_sizes]
    if without_sizes and not (options.clip_sizes and curves):
        raise ValueError(
            f"max_samples asks for members of {without_sizes[0]} rows, but no candidate size keeps"
            " such members clear of the interpolation peak. Leave that number of rows out."
        )


def select_penalty(data: SelectionData, options: SizeOptions, threads: Threads) -> PenaltySelection:
    """Choose the expected size of determinantal members, which is the penalty of ridge regression."""
    criterion = data.penalty_criterion(options.criterion, threads)
    limit = LARGEST_DEGREES * (criterion.n_rows - data.null_rank)
    errors = partial(criterion.errors, scale=1.0 if options.scale is None else options.scale)
    if options.sizes is None:
        path = search(errors, criterion.s2, limit)
    else:
        path = compare(errors, criterion.s2, options.expected_sizes(data.shape[1], limit))
    penalty = float(path.penalties[path.best])
    scale, prediction = data.scaled_ridge(criterion, penalty, options.scale)
    if (
        options.scale is None and scale != 1
    ):  # the reported errors are those of the fitted model, which is scaled
        path = replace(path, errors=criterion.errors(path.penalties, scale))
    return PenaltySelection(
        criterion=criterion.name,
        path=path,
        prior_variances=1 / criterion.unit**2,
        scale=scale,
        prediction=prediction,
    )


def _standard_error(curve: RowCurve, k: float, n_rows: int) -> Array:
    """Standard error of the estimated error; GCV from moments knows only its order, that of
    Gaussian errors.
    """
    if curve.products.shape[2] == 1:
        return np.asarray(curve.average.mse(k) * np.sqrt(2 / n_rows))
    return curve.standard_error(k)
