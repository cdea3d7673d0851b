"""OLSEnsembleRegressorCV: the paper's ensemble with the size of its members tuned."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Options, StrOptions

from .._data.fits import NeedsRows
from .._data.implicit import stays_implicit
from .._data.near_copies import NEAR_COPY_TOL
from .._data.rows import RowData
from .._data.training import TrainingData
from .._execution import messages
from .._members.limit import process_of
from .._tuning.risk_curves import Paths
from .._tuning.selection import (
    PenaltySelection,
    SelectionData,
    SelectionMoments,
    SelectionRows,
    SizeOptions,
    SizeSelection,
    select_penalty,
    select_size,
)
from ..subsets import Design, DrawnColumns, resolve_size
from .inputs import (
    COUNT,
    Number,
    check_arguments,
    options_of,
    refuse_missing_sizes,
    row_splits,
)
from .result import FittedResult
from .tuned import TunedEnsemble, ranks, require_memory

Array = NDArray[np.float64]


class OLSEnsembleRegressorCV(TunedEnsemble):
    r"""Average of least-squares fits on random submatrices, with the size of the members tuned.

    The ensemble is that of :class:`OLSEnsembleRegressor`. Its size, the number of columns that
    every member sees, is its regulariser, and is chosen here: sizes are compared by exact
    leave-one-out along nested paths, at about the cost of one fit. (Theory has the best size in
    closed form, equation (78) of [1]_, :func:`olsen.theory.optimal_alpha`, for columns without
    correlation and a known noise.)

    Parameters
    ----------
    n_estimators : int, inf or "auto", default="auto"
        Number of members. ``"auto"``: enough to keep the excess of the error over that of
        infinitely many below 1 %; with ``sampling="determinantal"`` infinitely many. ``np.inf``:
        the exact limit, of determinantal members only.
    max_features : array-like of int or float, default=None
        Candidate sizes: counts, or fractions of the columns. None: about fifty sizes from 1 to 85 %
        of the rows. For determinantal members the sizes are expected sizes, and None is a search
        over all expected sizes.
    max_samples : int, float or array-like, default=1.0
        Rows per member, a count or a fraction. A list of candidates is tuned together with the
        columns: every number of rows has a path of sizes, and the pair with the least error is
        chosen. Members are least-squares fits: pairs near the interpolation peak (about as many
        columns as rows) and beyond it are left out.
    sampling : {"fixed", "bernoulli", "determinantal"}, default="fixed"
        As in :class:`OLSEnsembleRegressor`. Infinitely many determinantal members of a tuned
        expected size are tuned ridge regression on standardised columns, exactly.
    design : {"balanced", "independent"}, default="balanced"
        As in :class:`OLSEnsembleRegressor`. Determinantal members avoid each other by themselves,
        so that ``"independent"`` is refused for them.
    scale : float or "auto", default="auto"
        Factor on the deviations of the prediction from the mean target (the paper's mu).
        ``"auto"``: the slope of the targets on held-out predictions, shrunk towards one.
    cv : {None, "gcv", "oob"}, int or cross-validation splitter, default=None
        How errors are estimated. None: exact leave-one-out if the rows are in memory, otherwise
        three folds of random rows; ``criterion_`` says which. An int or a splitter: k-fold; an int
        cuts folds of neighbouring rows, as scikit-learn does, but folds of random rows where the
        rows are not in memory. With an intercept every fold must leave at least two rows of
        positive weight to train on. ``"gcv"``: generalised cross-validation, corrected for row
        subsets. ``"oob"``: from rows that members were not given; needs ``max_samples`` below all
        rows.
    fit_intercept : bool, default=True
        Whether every member fits an intercept.
    keep_rows : bool, default=True
        Whether pickles and files keep the training rows, from which intervals and standard errors
        are computed, where they take at most 64 MiB. Copies in memory always share them.
    n_jobs : int, default=None
        Threads over paths and members; results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the members that are drawn. The choice does not depend on it.
    verbose : int, default=0
        Whether to print progress.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Mean of the members, each zero outside its own columns, times the scale. Of ``float32`` X
        they are ``float32``, unless only ``float64`` holds them.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept; 0.0 if ``fit_intercept=False``.
    max_features_ : int or float
        Chosen number of columns per member; of determinantal members the expected number.
    max_samples_ : int
        Rows per member, chosen if there were several candidates.
    best_score_ : float
        Minus the estimated mean squared error of prediction of the chosen ensemble; of several
        targets, the mean.
    cv_results_ : dict of ndarrays
        One entry for every candidate pair: ``"param_max_samples"`` (the largest first),
        ``"param_max_features"``, ``"mean_test_score"`` (minus the mean squared error of prediction
        of ``n_estimators_`` members), ``"std_test_score"`` (its standard error over rows),
        ``"mean_test_score_infinity"`` (of infinitely many members), ``"rank_test_score"``. Means
        over targets.
    best_index_ : int
        Position of the chosen pair in ``cv_results_``.
    criterion_ : {"loo", "gcv", "kfold", "oob"}
        How errors were estimated.
    cv_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Prediction of every training row from rows without it, by what `criterion_` says; NaN for
        rows of weight zero. Empty where that is not known (rows that were only summed, splitters
        that leave rows out).
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.
    n_estimators_ : int or inf
        Number of members.
    scale_ : float
        The scale in use.
    weights_ : ndarray of shape (n_estimators_,)
        Weight of every member.
    inclusion_ : ndarray of shape (n_features,)
        Fraction of the members that hold each column; of infinitely many, its probability.
    solver_ : str
        The solver that ran.
    n_fallbacks_ : int
        Number of members whose Gram matrix was too ill-conditioned, refitted from the data.

    See Also
    --------
    OLSEnsembleRegressor : The same with a given size.
    AdaptiveOLSEnsembleRegressor : Several sampling schemes, weighted by cross-validation.
    sklearn.linear_model.RidgeCV : Ridge regression with its penalty chosen by leave-one-out.

    References
    ----------
    .. [1] D. LeJeune, H. Javadi, R. G. Baraniuk. The Implicit Regularization of Ordinary Least Squares Ensembles.
       AISTATS 2020.

    Notes
    -----
    Least squares gives two nearly equal columns large coefficients of opposite signs, and one member
    with both then decides the prediction of rows in which the columns differ. Where columns are equal
    up to a correlation of 1 - 1e-8 in size, `fit` warns, and a member has one column of each such
    set, drawn at random, unless members of all columns have an estimated error that is smaller by two
    standard errors (status: heuristic).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressorCV(random_state=0).fit(X, y)
    >>> model.criterion_, 1 <= model.max_features_ <= 10
    ('loo', True)

    Tuned ridge regression, as the mean of infinitely many determinantal members:

    >>> ridge = OLSEnsembleRegressorCV(sampling="determinantal").fit(X, y)
    >>> ridge.n_estimators_, ridge.criterion_
    (inf, 'loo')
    """

    __module__ = "olsen"  # where users find it: pickles and model files name no private module

    _merges_repeated_rows = False
    _keeps_integers = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **TunedEnsemble._parameter_constraints,
        "n_estimators": [COUNT, Options(Real, {np.inf}), StrOptions({"auto"})],
        "sampling": [StrOptions({"fixed", "bernoulli", "determinantal"})],
        "design": [StrOptions({"balanced", "independent"})],
        "scale": [StrOptions({"auto"}), Number(Real, None, None, closed="neither")],
        "cv": ["cv_object", StrOptions({"gcv", "oob"})],
    }

    def __init__(
        self,
        n_estimators: float | str = "auto",
        max_features: ArrayLike | None = None,
        *,
        max_samples: int | float | ArrayLike = 1.0,
        sampling: str = "fixed",
        design: str = "balanced",
        scale: float | str = "auto",
        cv: Any = None,
        fit_intercept: bool = True,
        keep_rows: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.max_samples = max_samples
        self.sampling = sampling
        self.design = design
        self.scale = scale
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.keep_rows = keep_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def risk_curve(self, k: float = np.inf) -> NDArray[np.float64]:
        """Estimated mean squared error of prediction for every candidate size, of members with the
        chosen number of rows.

        Parameters
        ----------
        k : int or inf, default=inf
            Number of members.

        Returns
        -------
        mse : ndarray of shape (n_sizes,)
            Aligned with ``cv_results_["param_max_features"]`` where
            ``cv_results_["param_max_samples"]`` is ``max_samples_``; noise of new observations
            included. Of determinantal members it is that of infinitely many, whatever `k`.
        """
        check_arguments("risk_curve", k=k)
        curve = self._result().curve
        return -self.cv_results_["mean_test_score_infinity"] if curve is None else curve.mse(k)

    # Steps of fit

    def _check_parameters(self) -> None:
        self._validate_params()
        refuse_missing_sizes(self.max_features)
        if self.sampling != "determinantal":
            if self.n_estimators == np.inf:
                raise ValueError(
                    "n_estimators=inf needs sampling='determinantal', whose mean over all subsets"
                    f" has a closed form, not sampling={self.sampling!r}. Give a number of members,"
                    " or 'auto'."
                )
            return
        if not (isinstance(self.max_samples, float) and self.max_samples == 1.0):
            raise ValueError(
                f"max_samples={self.max_samples!r}, but members of sampling='determinantal' see all"
                " rows. Use 1.0."
            )
        if self.design == "independent":
            raise ValueError(
                "design='independent' has no meaning for sampling='determinantal', whose members"
                " avoid each other by themselves. Leave design at its default."
            )
        if self.cv == "oob":
            raise ValueError(
                "cv='oob' needs rows that members were not given, but determinantal members see all"
                " rows."
            )

    def _size_options(self, *, part: bool = False) -> SizeOptions:
        """Options of the size selection that do not depend on the data."""
        return SizeOptions(
            design=self.design,
            criterion=self.cv if self.cv is None or isinstance(self.cv, str) else "kfold",
            sizes=None if self.max_features is None else _candidates(self, "max_features"),
            max_samples=_candidates(self, "max_samples"),
            only_rows=not np.ndim(self.max_samples),
            scale=None if self.scale == "auto" else float(self.scale),
            clip_sizes=part,
        )

    def _selection_data(self, data: TrainingData, groups: Any = None) -> SelectionData:
        rows = data.host_rows
        if rows is not None:
            splits = row_splits(self.cv, rows, groups)
            n_splits = None if splits is None else len(splits)
            require_memory(rows, n_splits, False, False, path_columns=self._columns_of_paths(rows))
            return SelectionRows(rows, splits)
        if np.ndim(self.max_samples) or self.max_samples != 1.0:
            raise NeedsRows(
                f"max_samples={self.max_samples!r} needs X as an array in memory; elsewhere there"
                " is max_samples=1.0 only."
            )
        return SelectionMoments(self._folds_with_rows_to_train_on(data))

    def _columns_of_paths(self, rows: RowData) -> int:
        """Columns that are copied at a time: all, or those of a batch of paths through wide rows."""
        n, p = rows.shape
        if self.sampling == "determinantal" or not stays_implicit(rows):
            return p
        largest = min(p, n)
        if self.max_features is not None:
            sizes = _candidates(self, "max_features")
            largest = max(resolve_size(size, p, "max_features") for size in sizes)
        return min(p, 2 * Paths.batch * largest)

    def _select(self, candidates: SelectionData, *, part: bool) -> SizeSelection | PenaltySelection:
        options = self._size_options(part=part)
        if self.sampling == "determinantal":
            return select_penalty(candidates, options, options_of(self).quietly)
        k = np.inf if self.n_estimators == "auto" else float(self.n_estimators)
        threads = options_of(self).threads("paths", "an unknown number")
        return select_size(candidates, options, k, threads)

    def _fit_selection(
        self, data: TrainingData, selection: SizeSelection | PenaltySelection, seed: int
    ) -> FittedResult:
        if isinstance(selection, PenaltySelection):
            k = np.inf if self.n_estimators == "auto" else float(self.n_estimators)
            design = self._determinantal_design(data, selection, seed, draws=k < np.inf)
            return self._fit_members(data, design, k, scale=selection.scale)
        design = self._design(data, seed, selection.size, selection.max_samples)
        design = replace(design, drawn_columns=selection.drawn_columns)
        fitted = self._fit_members(data, design, selection.n_estimators, scale=selection.scale)
        return replace(fitted, curve=selection.curve)

    def _determinantal_design(
        self, data: TrainingData, selection: PenaltySelection, seed: int, *, draws: bool
    ) -> Design:
        """The design of determinantal members whose mean is ridge regression with the chosen
        penalty.
        """
        path = selection.path
        design = Design(
            n_rows=0,
            n_columns=0,
            seed=seed,
            max_features=float(path.sizes[path.best]) / data.n_columns,
            sampling="determinantal",
            fit_intercept=self.fit_intercept,
            prior_variances=selection.prior_variances[None],
            penalties=path.penalties[[path.best]],
        )
        design = data.complete(design)
        return replace(design, process=process_of(data, design, draws=draws))

    def _adopt_selection(
        self, selection: SizeSelection | PenaltySelection, data: TrainingData
    ) -> None:
        design = self._result().design
        self.max_samples_ = resolve_size(design.max_samples, design.n_rows, "max_samples")
        self.criterion_ = selection.criterion
        if isinstance(selection, PenaltySelection):
            path = selection.path
            self.max_features_ = float(path.sizes[path.best])
            self.best_index_ = path.best
            rows = np.full(len(path.sizes), self.max_samples_)
            mse = path.errors.mse
            self.cv_results_ = _results(rows, path.sizes, mse, mse, path.errors.standard_error)
        else:
            _note_near_copies(selection.drawn_columns, data.n_columns)
            candidates = selection.candidates
            curves = [candidate.curve for candidate in candidates]
            counts = [len(curve.sizes) for curve in curves]
            self.max_features_ = selection.size
            self.best_index_ = sum(counts[: selection.chosen]) + selection.best
            self.cv_results_ = _results(
                np.repeat([candidate.n_samples for candidate in candidates], counts),
                np.concatenate([curve.sizes for curve in curves]),
                np.concatenate([curve.mse(selection.n_estimators) for curve in curves]),
                np.concatenate([curve.mse(np.inf) for curve in curves]),
                np.concatenate([candidate.standard_error for candidate in candidates]),
            )
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.cv_prediction_ = self._by_given_row(selection.prediction, data)


def _note_near_copies(drawn_columns: DrawnColumns | None, n_columns: int) -> None:
    """Warn that members have one of several nearly equal columns."""
    if drawn_columns is None:
        return
    n_sets = int(np.count_nonzero(drawn_columns.sizes > 1))
    n_in_sets = n_columns - drawn_columns.n_items + n_sets
    messages.warn(
        f"{n_in_sets} of {n_columns} columns are nearly equal to others, with correlations within"
        f" {NEAR_COPY_TOL:g} of one: a member has one column of each of {n_sets} sets. Least squares"
        " with two of them would depend on the seed. Drop such columns to avoid this warning."
    )


def _results(
    rows: NDArray[Any],
    sizes: NDArray[Any],
    mse: Array,
    mse_infinity: Array,
    standard_error: Array,
) -> dict[str, NDArray[Any]]:
    return {
        "param_max_samples": rows,
        "param_max_features": sizes,
        "mean_test_score": -mse,
        "std_test_score": standard_error,
        "mean_test_score_infinity": -mse_infinity,
        "rank_test_score": ranks(-mse),
    }


def _candidates(model: OLSEnsembleRegressorCV, name: str) -> tuple[int | float, ...]:
    """Candidates one by one: in one array, counts beside fractions would become fractions."""
    values = tuple(np.ravel(np.asarray(getattr(model, name), dtype=object)).tolist())
    if not values:
        raise ValueError(f"{name} is an empty list of candidates; leave it at its default.")
    return values
