"""OLSEnsembleRegressorCV: an ensemble that chooses the size of its members itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from .._engines.blocks import Blocks
from .._engines.determinantal import drawable
from .._engines.device import Device
from .._engines.engine import Engine, FoldFit, NeedsRows
from .._engines.memory import Memory
from .._execution import memory, messages
from .._members import by_target
from .._members.problem import Problem
from .._moments.moments import Moments
from .._selection.fold_data import FOLDS, MOST_FOLDS, REPEATS, few_columns
from .._selection.fold_data import SEED as FOLD_SEED
from .._selection.risk_curves import RiskCurve
from .._selection.tuning import MomentData, RowData, Selection, SelectionData, TuningOptions, select
from ..subsets import Design, resolve_size
from .error_estimates import Refits
from .fitted import FittedEnsemble
from .inputs import (
    Number,
    check_arguments,
    nothing_to_fit,
    open_training,
    row_splits,
    unchanged_on_failure,
    warn_repeated_rows,
)
from .result import FittedResult
from .uncertainty import once

Array = NDArray[np.float64]

MANY_ROWS = 1000  # from which on moments of folds stand for the rows, as they do for data that are not in memory
REPLICATES, REPLICATE_SHARE = 30, 0.8  # fits of parts of the rows, for standard errors
GROUPS = 20  # of rows that are not in memory, of which these parts are made


class _NoMethod:
    """A method that users may expect and there is not: `hasattr` says so, and the error says what to do instead."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __get__(self, estimator: Any, owner: type) -> Any:
        raise AttributeError(self.instead)


class OLSEnsembleRegressorCV(FittedEnsemble):
    r"""Ensemble of least-squares fits on random columns that tunes itself.

    By default several sampling schemes share the ensemble: **ridge**, **power**, **lasso** and **sparse** are
    determinantal members with spreads of the columns that lead from dense signals to sparse ones; besides there are
    **uniform** members as in the paper, and **nothing**, the mean target. Every step that looks at y is repeated in
    random folds, and schemes have the shares that left-out rows support. The first four are taken in the limit of
    infinitely many members, which is penalised least squares in closed form (theorem, see the user guide). The same
    data give the same choice, whatever `random_state` and threads; each of several targets has its own.

    Parameters
    ----------
    n_estimators : int or inf, default=inf
        Number of members. Infinitely many: determinantal members in the limit, and as many uniform ones as leave
        nothing to gain from more. A number: so many members are drawn, each scheme its share of them.
    max_features : array-like of int or float, default=None
        Candidate sizes of uniform members (counts, or fractions of the columns), which are then the only ones. None:
        about fifty sizes from 1 to 85 % of the rows.
    max_samples : int or float, default=1.0
        Rows per member, when columns are tuned.
    inclusion : {"auto", "uniform", "ridge"}, default="auto"
        Which schemes there are.

        - ``"auto"``: all of them; uniform members alone where `max_features`, `max_samples`, `one_standard_error` or
          `cv` ask for what only these have.
        - ``"uniform"``: members take all columns alike, as in the paper. Sizes are compared by exact leave-one-out
          along nested paths (by `cv` where that is given).
        - ``"ridge"``: tuned ridge regression on standardised columns, as the limit of determinantal members.
    cv : {None, "gcv", "oob"}, int or cross-validation splitter, default=None
        How errors are estimated. None: in three random folds, which are drawn anew up to five times where rows are
        few; uniform members alone by exact leave-one-out. An int or a splitter: k-fold. An int cuts folds of
        neighbouring rows, as scikit-learn does; data that are too large to be loaded have folds of random rows. With an
        intercept every fold must leave at least two rows of positive weight to train on.
        ``"gcv"``: generalised cross-validation, corrected for row subsets. ``"oob"``: from rows that members were not
        given, needs ``max_samples`` below all rows.
    one_standard_error : bool, default=False
        Whether to take the smallest size within one standard error of the best instead of the best.
    sampling : {"fixed", "bernoulli"}, default="fixed"
        As in :class:`OLSEnsembleRegressor`.
    design : {"balanced", "independent"}, default="balanced"
        As in :class:`OLSEnsembleRegressor`.
    scale : float or "auto", default="auto"
        Factor on the deviations from the mean target. ``"auto"``: one less the share of nothing; of uniform members
        alone, the slope of the targets on left-out predictions. A number leaves no share to nothing.
    mixing : {"mean", "stacking"}, default="mean"
        As in :class:`OLSEnsembleRegressor`.
    fit_intercept : bool, default=True
        Whether every member fits an intercept.
    solver : str, default="auto"
        As in :class:`OLSEnsembleRegressor`.
    rcond : float, default=None
        As in :class:`OLSEnsembleRegressor`.
    tol : float, default=None
        As in :class:`OLSEnsembleRegressor`.
    warm_start : bool, default=False
        Whether a further call of `fit` on the same data keeps the members there are, if the same are chosen, and adds
        new ones. The result is that of a fresh fit.
    n_jobs : int, default=None
        Threads over paths and members; results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the members that are drawn. The choice does not depend on it.
    keep_rows : bool, default=True
        Whether pickles and files keep the training rows, from which intervals and standard errors are computed, where
        they take at most 64 MiB. Copies in memory always share them.
    verbose : int, default=0
        Whether to print progress. With scikit-learn 1.9 or later, callbacks such as its ``ProgressBar`` work too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Mean of the members, each zero outside its own columns, times the scale. Of ``float32`` X they are ``float32``,
        unless only ``float64`` holds them.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept; 0.0 if ``fit_intercept=False``.
    max_features_ : int
        Columns per member, on average.
    max_samples_ : int
        Rows per member.
    feature_ratio_ : float
        ``max_features_`` over the number of columns.
    best_score_ : float
        Minus the estimated mean squared error of prediction of the chosen ensemble; of several targets, the mean.
    cv_results_ : dict of ndarrays
        ``"size"``, ``"mse"`` at ``n_estimators_``, ``"mse_infinity"``, ``"standard_error"`` over rows: of uniform
        members of every size and, last, of the chosen mixture of schemes at its mean size, where ``"mixture"`` is true.
        Means over targets where there are several.
    best_index_ : int
        Position of the chosen ensemble in these.
    criterion_ : {"loo", "gcv", "kfold", "oob"}
        How errors were estimated.
    inclusion_kind_ : {"mixed", "uniform", "ridge"}
        The schemes in use.
    inclusion_shares_ : dict
        Share of the ensemble that each scheme has; a list of them where targets have their own.
    selected_ : ndarray of shape (n_features,) or (n_targets, n_features), dtype=bool
        Columns that a sparse model would keep: those of the sparse scheme, whatever its share. Empty where schemes were
        not compared.
    selection_frequency_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Share of the folds in which that scheme keeps each column, a measure of how far `selected_` can be trusted.
    loo_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Prediction of every training row from rows without it, NaN for rows of weight zero; empty where that is not
        known (rows that were only summed, splitters that leave rows out).
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.
    n_estimators_ : int or inf
        Number of members.
    scale_ : float or ndarray of shape (n_targets,)
        The scale in use.
    weights_ : ndarray of shape (n_estimators_,)
        Weight of every member.
    stacking_advantage_ : float or None
        As in :class:`OLSEnsembleRegressor`.
    inclusion_ : ndarray of shape (n_features,)
        Share of the members that hold each column.
    solver_ : str
        The solver that ran.
    n_fallbacks_ : int
        Members solved again from the data.

    See Also
    --------
    OLSEnsembleRegressor : The same with a given size.
    sklearn.linear_model.RidgeCV : Ridge regression with its penalty chosen by leave-one-out.

    Notes
    -----
    The estimated error of the chosen ensemble has what choosing takes added to it, so that it is not the smallest of
    many noisy numbers (status: heuristic).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressorCV().fit(X, y)
    >>> model.criterion_, 1 <= model.max_features_ <= 10
    ('kfold', True)
    >>> round(sum(model.inclusion_shares_.values()), 9)
    1.0
    """

    __module__ = "olsen"  # where users find it: pickles and model files name no private module

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FittedEnsemble._parameter_constraints,
        "inclusion": [StrOptions({"auto", "uniform", "ridge"})],
        "cv": ["cv_object", StrOptions({"gcv", "oob"})],
        "one_standard_error": ["boolean"],
        "sampling": [StrOptions({"fixed", "bernoulli"})],
        "scale": [StrOptions({"auto"}), Number(Real, None, None, closed="neither")],
    }

    def __init__(
        self,
        n_estimators: float = np.inf,
        max_features: ArrayLike | None = None,
        *,
        max_samples: int | float = 1.0,
        inclusion: str = "auto",
        cv: Any = None,
        one_standard_error: bool = False,
        sampling: str = "fixed",
        design: str = "balanced",
        scale: float | str = "auto",
        mixing: str = "mean",
        fit_intercept: bool = True,
        solver: str = "auto",
        rcond: float | None = None,
        tol: float | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        keep_rows: bool = True,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.max_samples = max_samples
        self.inclusion = inclusion
        self.cv = cv
        self.one_standard_error = one_standard_error
        self.sampling = sampling
        self.design = design
        self.scale = scale
        self.mixing = mixing
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.rcond = rcond
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.keep_rows = keep_rows
        self.verbose = verbose

    @messages.with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose the size and fit the ensemble.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Training data. Choosing makes sparse data dense where there are fewer than 1000 rows, or fewer than columns,
            and is refused where memory has no room for it. Files, blocks, Dask collections and arrays on a GPU as in
            :class:`OLSEnsembleRegressor`; there sizes are compared by k-fold cross-validation.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights inside the least squares and in the estimated error; zero equals a dropped row.
        **params : dict
            ``groups`` for the cross-validation splitter.

        Returns
        -------
        self : object
            The fitted estimator; unchanged if anything fails.
        """
        with unchanged_on_failure(self):
            self._check_parameters()
            groups = self._groups(**params)
            source = open_training(self, X, y, sample_weight)
            engine = source.loaded_if_small(MANY_ROWS)
            kept = self._kept(engine)
            data = self._selection_data(engine, groups)
            if isinstance(engine, Memory) and data.splits is None:
                merges_rows = self._tuning_options().uses_schemes and isinstance(data, RowData)
                warn_repeated_rows(engine.problem, merges_rows=merges_rows)
            found = self._select(data, engine)
            fitted = self._fit_choice(engine, found, self._seed(kept), kept)
            n_groups = None if groups is None else _count_groups(groups, engine)
            if isinstance(source, Device) and engine is not source:
                fitted = replace(fitted, members=fitted.members.in_space(source.rows.space))
            adopting = engine if isinstance(source, Blocks) else source
            self._adopt(replace(fitted, splits=data.splits, n_groups=n_groups), adopting, X)
            self._adopt_selection(found, engine)
        return self

    partial_fit = _NoMethod(
        "OLSEnsembleRegressorCV has no partial_fit, because sizes and shares are chosen in folds of all rows: give all "
        "of them to fit, as a function that returns an iterator of blocks where they do not fit in memory, or use "
        "OLSEnsembleRegressor.partial_fit with a given max_features."
    )

    def risk_curve(self, k: float = np.inf) -> NDArray[np.float64]:
        """Estimated mean squared error of prediction for every candidate size.

        Parameters
        ----------
        k : int or inf, default=inf
            Number of members.

        Returns
        -------
        mse : ndarray of shape (n_sizes,)
            Aligned with ``cv_results_["size"]``; noise of new observations included. The mixture, which comes last, is
            that of ``n_estimators_``, whatever `k`.
        """
        check_arguments("risk_curve", k=k)
        curve = self._result().curve
        assert curve is not None
        return np.append(curve.mse(k), self.cv_results_["mse"][len(curve.sizes) :])

    def get_metadata_routing(self) -> MetadataRouter:
        """Route ``groups`` to the splitter and ``sample_weight`` to `fit` and `score`.

        Returns
        -------
        routing : MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        if self.cv is None or isinstance(self.cv, str):
            return router
        return router.add(splitter=check_cv(self.cv), method_mapping=MethodMapping().add(caller="fit", callee="split"))

    # What fit is made of

    def _groups(self, groups: Any = None, **unknown: Any) -> Any:
        """Groups are for a splitter, and nothing else is known."""
        if unknown:
            raise TypeError(f"fit takes X, y, sample_weight and groups, not {next(iter(unknown))!r}.")
        if groups is None:
            return None
        try:
            if self.cv is None or isinstance(self.cv, (str, int)):
                raise TypeError
            process_routing(self, "fit", groups=groups)
        except TypeError:
            raise ValueError(
                f"groups were given, but cv={self.cv!r} does not keep them together, so errors would be those of rows "
                f"whose group is still in the data. Use cv=GroupKFold() or another splitter that takes groups."
            ) from None
        return groups

    def _tuning_options(self) -> TuningOptions:
        """What was fixed, whatever the data."""
        return TuningOptions(
            design=self.design,
            inclusion=self.inclusion,
            criterion=self.cv if self.cv is None or isinstance(self.cv, str) else "kfold",
            sizes=_as_sizes(self.max_features),
            max_samples=self.max_samples,
            one_standard_error=self.one_standard_error,
            scale=None if self.scale == "auto" else float(self.scale),
            fit_intercept=self.fit_intercept,
        )

    def _selection_data(self, engine: Engine, groups: Any = None) -> SelectionData:
        """Rows to judge members by, or folds of moments where rows are not kept, or so many that they need not be."""
        if not isinstance(engine, Memory):
            return MomentData(self._folds_with_rows_to_train_on(engine))
        splits = row_splits(self.cv, engine, groups)
        n, p = engine.problem.shape
        uses_schemes = self._tuning_options().uses_schemes
        from_moments = uses_schemes and splits is None and n >= max(MANY_ROWS, p)
        _require_memory(engine.problem, None if splits is None else len(splits), uses_schemes, from_moments)
        if from_moments:
            return MomentData(engine.folds(FOLDS, FOLD_SEED))
        return RowData(engine.problem, splits)

    def _folds_with_rows_to_train_on(self, engine: Engine) -> list[Moments]:
        """Moments of random folds, or an error where the rows outside of one are used up by the intercept."""
        folds = engine.folds(self._count_folds(), FOLD_SEED)
        n_rows = sum(fold.n_rows for fold in folds)
        for number, fold in enumerate(folds, 1):
            if self.fit_intercept and self.cv != "gcv" and n_rows - fold.n_rows == 1:
                raise ValueError(nothing_to_fit(f"fold {number} of {len(folds)} random ones of {n_rows} rows"))
        return folds

    def _select(self, data: SelectionData, engine: Engine, options: TuningOptions | None = None) -> list[Selection]:
        sharing = engine.options.sharing("paths", "an unknown number")
        return select(data, options or self._tuning_options(), float(self.n_estimators), sharing)

    def _count_folds(self) -> int:
        """Number of folds where rows are not kept, or an error for what needs every row."""
        for name, value in (("max_samples", 1.0), ("mixing", "mean")):
            if getattr(self, name) != value:
                given = f"{name}={getattr(self, name)!r}"
                raise NeedsRows(f"{given} needs X as an array in memory; elsewhere there is {name}={value!r} only.")
        if self.cv is None or self.cv == "gcv":
            return FOLDS
        if isinstance(self.cv, int) and self.cv >= 2:
            return self.cv
        raise ValueError(
            f"cv={self.cv!r} needs X as an array in memory. Elsewhere None means {FOLDS}-fold, an int that many folds "
            f"of random rows, 'gcv' generalised cross-validation."
        )

    def _fit_choice(self, engine: Engine, found: list[Selection], seed: int, kept: FittedResult | None) -> FittedResult:
        """Members of the chosen schemes; those of an earlier fit are kept where the choice is the same."""
        first = found[0]
        if first.choice is None:
            design = self._design(engine, seed, first.size, self.max_samples)
            scale: Any = "loo" if self.mixing == "stacking" and self.scale == "auto" else first.scale
            fitted = self._fit_members(engine, design, int(first.n_estimators), kept, scale)
            return replace(fitted, curve=first.curve)
        designs = [self._mixture(engine, seed, one) for one in found]
        fits = [self._fit_members(engine, design, first.n_estimators, None, 1.0) for design in designs]
        folds = _fold_fits(found)
        if isinstance(engine, Memory) and folds[0].residual is None:
            folds = engine.errors_of(folds, FOLD_SEED, len(engine.problem.Y), engine.n_given)
        return replace(
            fits[0],
            designs=designs,
            members=by_target([fit.members for fit in fits]),
            scale=first.scale if len(found) == 1 else np.array([one.scale for one in found]),
            curve=RiskCurve.mean_of([one.curve for one in found]),
            folds=folds,
        )

    def _mixture(self, engine: Engine, seed: int, found: Selection) -> Design:
        """How members are drawn of which schemes have shares."""
        choice = found.choice
        assert choice is not None
        uniform = [choice.uniform] if choice.uniform > 0 or not choice.schemes else []
        shares = np.array([scheme.share for scheme in choice.schemes] + uniform)
        shares = shares / shares.sum() if shares.sum() > 0 else np.ones(len(shares))
        spreads = np.array([scheme.spreads for scheme in choice.schemes]).reshape(-1, engine.n_columns)
        penalties = np.array([scheme.penalty for scheme in choice.schemes])
        design = Design(0, 0, seed, found.size, 1.0, "determinantal", self.design, self.fit_intercept)
        design = replace(design, shares=shares, spreads=spreads, penalties=penalties, column_order=found.column_order)
        design = engine.complete(design)
        return design if np.isinf(self.n_estimators) else drawable(engine, design)

    def _adopt_selection(self, found: list[Selection], engine: Engine) -> None:
        """Set what tuning found."""
        fitted, first, p = self._result(), found[0], engine.n_columns
        design, choices = fitted.design, [one.choice for one in found if one.choice is not None]
        inclusion = np.mean([_inclusion(one, p) for one in found], axis=0)
        self.max_features_ = max(1, round(float(inclusion.sum())))
        self.max_samples_ = resolve_size(design.max_samples, design.n_rows, "max_samples")
        self.feature_ratio_ = self.max_features_ / p
        self.criterion_ = first.criterion
        self.best_score_ = -float(np.mean([one.mse for one in found]))
        assert fitted.curve is not None
        self.cv_results_ = _results(fitted.curve, found, self.max_features_)
        sizes = self.cv_results_["size"].tolist()
        self.best_index_ = len(sizes) - 1 if choices else sizes.index(first.size)
        self.loo_prediction_ = _left_out(found, fitted, engine)
        if not choices:
            self.inclusion_kind_, self.inclusion_shares_ = "uniform", {"uniform": 1.0}
            self.selected_, self.selection_frequency_ = np.empty(0, dtype=bool), np.empty(0)
            return
        which: Any = 0 if engine.single_target else slice(None)
        self.inclusion_kind_ = "ridge" if self.inclusion == "ridge" else "mixed"
        self.inclusion_shares_ = [choice.shares for choice in choices][which]
        self.selected_ = np.array([choice.selected for choice in choices])[which]
        self.selection_frequency_ = np.array([choice.selection_frequency for choice in choices])[which]
        if np.isinf(self.n_estimators_):
            self.inclusion_ = inclusion

    # Uncertainty that repeats the choice

    @once
    def _refits(self, what: str) -> Refits:
        fitted = self._result()
        data = fitted.need_data(what)
        count, n = _rows_of_a_part(data, fitted.design)
        if count < 2 + fitted.design.fit_intercept:  # the folds of so few rows leave nothing to fit
            shape = (0, self._n_targets, self.n_features_in_)
            return Refits(np.empty(shape), np.empty(shape[:2]), count / n)
        alike = self._as_fitted()
        alike.set_params(**_settings_for_part(alike, count, n), warm_start=False, verbose=0)
        refits = [alike._coefficients(part) for part in _parts(data, count, n)]
        coefs, intercepts = zip(*refits, strict=True)
        return Refits(np.stack(coefs), np.stack(intercepts), count / n)

    def _coefficients(self, engine: Engine) -> tuple[Array, Array]:
        """Coefficients (q, p) and intercepts (q,) of a fit of some data; nothing is kept of it."""
        options = replace(self._tuning_options(), clip_sizes=True)
        selections = self._select(self._selection_data(engine), engine, options)
        fitted = self._fit_choice(engine, selections, 0, None)
        coef, intercept = fitted.members.scaled(fitted.scale, np.float64)
        return np.asarray(coef), np.asarray(intercept)


def _require_memory(problem: Problem, n_splits: int | None, uses_schemes: bool, from_moments: bool) -> None:
    """Refuse a choice that would take more memory than there is, before anything is made dense.

    Measured peaks of 22 fits, dense and sparse, from 90 x 8000 to 3000 x 2000 numbers, were 0.84 to 1.45 times these,
    but for two: 2.9 where a Gram matrix of 5000 sparse columns was made as well, and 2.5 for uniform members alone of
    900 x 5000 (status: heuristic).
    """
    n, p = problem.shape
    dense, gram = 8.0 * n * p, 8.0 * p * p
    random_folds = FOLDS * next((repeats for most, repeats in REPEATS if n < most), 1)
    folds = random_folds if n_splits is None else min(n_splits, MOST_FOLDS)
    becomes_dense = sp.issparse(problem.X) and not from_moments
    if not uses_schemes:  # a copy by columns, and what paths keep beside it
        needed = 3 * dense
    elif from_moments:  # Gram matrices of the folds, of the rows outside each, in units, and their factors
        needed = 25 * gram
    elif few_columns((n, p)):
        needed = 25 * gram + 2 * dense
    else:  # all rows, those inside and outside every fold, a few copies at work, and products of rows
        needed = (folds + 5) * dense + 80.0 * n * n
    what = f"Choosing sizes and shares from {n} rows and {p} columns"
    if becomes_dense:
        what += ", which makes sparse X dense,"
    instead = "Use fewer columns"
    if sp.issparse(problem.X):
        instead = "OLSEnsembleRegressor with a given max_features takes sparse X as it is; or use fewer columns"
    memory.require(needed, what, f"{instead}.")


def _count_groups(groups: Any, engine: Engine) -> int:
    """Groups of rows with positive weight: a group without weight is as if it were not there."""
    weighted = np.asarray(groups)
    if isinstance(engine, Memory) and engine.kept_rows is not None:
        weighted = weighted[engine.kept_rows]
    return len(np.unique(weighted))


def _rows_of_a_part(data: Engine, design: Design) -> tuple[int, int]:
    """How many rows, or groups of rows that are not in memory, are refitted together, and of how many."""
    n = design.n_rows
    if not isinstance(data, Memory):
        n = int(np.clip(n // 10, 6, GROUPS))  # fewer of few rows
        if design.n_rows < n:
            return 0, n
    return max(1, min(n - 1, round(REPLICATE_SHARE * n))), n


def _settings_for_part(model: OLSEnsembleRegressorCV, count: int, n: int) -> dict[str, Any]:
    """Parameters of a fit of `count` of n rows: in folds of its own, as a splitter does not know the parts.

    There may be fewer rows than the folds and the rows of a member that were asked for.
    """
    cv, max_samples = model.cv, model.max_samples
    if isinstance(max_samples, Integral):
        max_samples = max(1 + model.fit_intercept, int(max_samples) * count // n)
    if isinstance(cv, int):
        cv = min(cv, count)
        if count - -(-count // cv) <= model.fit_intercept:  # rows to train on in the smallest training set
            cv = None
    return {"cv": cv, "max_samples": max_samples}


def _parts(data: Engine, count: int, n: int) -> Iterator[Engine]:
    """Random parts of the rows, or of moments of groups of them, one after the other."""
    rng = np.random.default_rng(FOLD_SEED)
    drawn = (rng.permutation(n)[:count] for _ in range(REPLICATES))
    if isinstance(data, Memory):
        options = replace(data.options, progress=None)
        part = partial(replace, data, n_given=count, kept_rows=None, options=options)
        return (part(rows=data.problem.take(np.sort(places))) for places in drawn)
    groups = [moments.on_host() for moments in data.folds(n, FOLD_SEED + 1)]
    return (Blocks.from_moments([groups[i] for i in places], data.options) for places in drawn)


def _fold_fits(found: list[Selection]) -> list[FoldFit]:
    """The mixtures of all targets without each fold, scale included.

    Residuals by which shares were chosen are smaller than those of new rows, and are enlarged to the estimated error.
    """
    fits, choices = [], [one.choice for one in found if one.choice is not None]
    larger = np.array([choice.enlargement for choice in choices])
    for each in zip(*(choice.fits for choice in choices), strict=True):
        known = [fit.residual for fit in each if fit.residual is not None]
        residual = np.stack(known, axis=1) * larger if len(known) == len(each) else None
        fits.append(FoldFit(np.stack([fit.coef for fit in each]), np.array([fit.intercept for fit in each]), residual))
    return fits


def _inclusion(found: Selection, p: int) -> Array:
    """Probability of every column to be in a member."""
    choice, alike = found.choice, np.full(p, found.size / p)
    if choice is None or choice.nothing == 1:
        return alike
    shared = sum((scheme.share * scheme.inclusion for scheme in choice.schemes), choice.uniform * alike)
    return np.asarray(shared / (1 - choice.nothing))


def _results(curve: RiskCurve, found: list[Selection], size: int) -> dict[str, NDArray[Any]]:
    """The curve of uniform members and, after it, the mixture of so many columns; means over targets."""
    count = len(curve.sizes)
    columns: dict[str, Any] = {
        "mixture": np.zeros(count, dtype=bool),
        "size": curve.sizes.copy(),
        "mse": curve.mse(found[0].n_estimators),
        "mse_infinity": curve.mse(np.inf),
        "standard_error": np.mean([one.standard_error[:count] for one in found], axis=0),
    }
    if found[0].choice is None:
        return columns
    mse, error = np.mean([[one.mse, one.mse_error] for one in found], axis=0)
    last = (True, size, mse, mse, error)
    return {name: np.append(columns[name], own) for name, own in zip(columns, last, strict=True)}


def _as_sizes(max_features: Any) -> tuple[int | float, ...] | None:
    """Candidates one by one: in one array, counts beside fractions would become fractions."""
    if max_features is None:
        return None
    sizes = tuple(np.ravel(np.asarray(max_features, dtype=object)).tolist())
    if not sizes:
        raise ValueError("max_features is an empty list of candidate sizes; leave it None for a grid of sizes.")
    return sizes


def _left_out(found: list[Selection], fitted: FittedResult, engine: Engine) -> Array:
    """Prediction of every row without it; empty where that is not known."""
    known, design = [one.prediction for one in found if one.prediction is not None], fitted.designs[0]
    if len(known) == len(found):
        prediction = np.concatenate(known, axis=1)
    elif isinstance(engine, Memory) and fitted.folds is not None:
        prediction = engine.predictions_of(fitted.folds, FOLD_SEED)
    else:
        return np.empty(0)
    if design.kept_rows is not None:
        whole = np.full((design.n_given or design.n_rows, prediction.shape[1]), np.nan)
        whole[design.kept_rows] = prediction
        prediction = whole
    return prediction[:, 0] if engine.single_target else prediction
