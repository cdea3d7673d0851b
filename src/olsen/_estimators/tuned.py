"""OLSEnsembleRegressorCV: an ensemble that chooses the size of its members itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from .._engines import Engine, Memory, NeedsRows
from .._execution import callbacks, messages
from .._members.problem import Problem
from .._selection.paths import Splits
from .._selection.tuning import EXCESS, Candidate, Evidence, Request, Selection, choose, weigh
from ..subsets import Design, resolve_size
from .draws import FEWEST_BATCHES, Draws, members_of_group
from .fitted import FittedResult
from .fitting import FittingEnsemble
from .inputs import check_choice, check_switch, open_training, unchanged_on_failure
from .splits import row_splits, suspicious_repeats

__all__ = ["OLSEnsembleRegressorCV"]

INCLUSIONS = ("auto", "loo", "uniform", "ridge", "adaptive")
PILOT = 100  # members that tell how many are needed
MOST_MEMBERS = 100_000
FOLDS = 5  # where rows are not kept and cv is None


class OLSEnsembleRegressorCV(FittingEnsemble):
    r"""Average of least-squares fits on random column subsets, with the size of the subsets chosen from the data.

    The error of prediction is estimated for every size by exact leave-one-out, from a few nested paths: along a random
    permutation of the columns one factorisation holds the members of all sizes with their leverages. Errors of pairs of
    members give the error of an ensemble of any size, infinite ones included, in the design that is used. Then an
    :class:`OLSEnsembleRegressor` of the best size is fitted.

    Parameters
    ----------
    n_estimators : int or "auto", default=1000
        Number of members. ``"auto"``: as many as keep the estimated excess over an infinite ensemble, which is the
        variance over draws of the members, below 1 % of the error.
        The default is larger than that of :class:`OLSEnsembleRegressor`: with many more columns than rows, a few
        hundred members leave an excess that shows on real data, and members are cheap.
    max_features : array-like of int or float, default=None
        Candidate sizes (counts, or fractions of the columns), whatever the probabilities. None: about fifty sizes from
        1 to 85 % of the rows (and two below them); with ridge-matched probabilities the size of tuned ridge regression.
    max_samples : int or float, default=1.0
        Rows per member, when columns are tuned.
    tune : {"max_features", "max_samples"}, default="max_features"
        What is chosen: columns per member, or the rows of minimum-norm members on all columns (for more columns than
        rows; on correlated columns the first is usually better).
    inclusion : {"auto", "loo", "uniform", "ridge", "adaptive"}, default="auto"
        How likely columns are to be in a member.

        - ``"auto"``: laws that follow the signal, from uniform and ridge-matched members for dense signals to members
          that mimic the lasso and go beyond it for sparse ones, each with the share of the members that
          cross-validation supports; ridge-matched where the data do not tell. Every step that looks at y is repeated
          in the folds (five random ones, repeated for few rows, or those of `cv`). As ``"loo"`` where sizes are given
          and below 20 rows, and uniform where `cv`, `max_samples` or `tune` ask for something else, or rows are over a
          hundred times more than columns (and 10000).

        - ``"uniform"``: all alike, as in the paper.
        - ``"ridge"``: with probabilities under which the ensemble mimics tuned ridge regression; they favour columns
          that stand alone over collinear ones.
        - ``"loo"``: whichever of the two has the smaller left-out error (ridge-matched if they are level), by
          leave-one-out or by k-fold; uniform where `cv`, `max_samples` or `tune` ask for something else.
        - ``"adaptive"``: with probabilities that follow the coefficients, for sparse signals; used only where
          cross-validation says so (in five folds, or in those of `cv`), uniform otherwise.
    cv : {None, "gcv", "oob"}, int or cross-validation splitter, default=None
        How errors are estimated. None: exact leave-one-out (where there are over a hundred times more rows than
        columns, and at least 10000, of the rows furthest out and of a sample of the others, as a correction of
        generalised cross-validation on all rows). An int or a splitter: k-fold; in memory an int cuts folds of
        neighbouring rows, as scikit-learn does, elsewhere folds of random rows.
        ``"gcv"``: generalised cross-validation, corrected for row subsets. ``"oob"``: from rows that members were not
        given, needs ``max_samples`` below all rows.
    one_standard_error : bool, default=False
        Whether to take the smallest size within one standard error of the best instead of the best.
    sampling : {"fixed", "bernoulli"}, default="fixed"
        As in :class:`OLSEnsembleRegressor`.
    design : {"balanced", "independent"}, default="balanced"
        As in :class:`OLSEnsembleRegressor`.
    scale : float or "loo", default="loo"
        Factor on the deviations from the mean target; ``"loo"`` estimates it from the same residuals as the size.
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
        Whether a further call of `fit` on the same data keeps the error curves and, if the same size is still the best
        one, the members there are and adds new ones. The result is that of a fresh fit.
    n_jobs : int, default=None
        Threads over paths and members; results do not depend on it. Members can be tasks of a cluster, as in
        :class:`OLSEnsembleRegressor`.
    random_state : int, RandomState instance or None, default=None
        Seed of paths and members.
    verbose : int, default=0
        Whether to print progress. With scikit-learn 1.9 or later, callbacks such as its ``ProgressBar`` work too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Mean of the members, each zero outside its own columns, times the scale.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept; 0.0 if ``fit_intercept=False``.
    max_features_ : int
        Columns per member (their expected number where probabilities differ).
    max_samples_ : int
        Rows per member.
    feature_ratio_ : float
        ``max_features_`` over the number of columns.
    best_score_ : float
        Minus the estimated mean squared error of prediction at the chosen size and number of members, scale included.
    cv_results_ : dict of ndarrays
        ``"size"``, ``"mse"`` at ``n_estimators_``, ``"mse_infinity"``, ``"standard_error"`` over rows: those of the
        probabilities in use, ``inclusion_kind_``, and of members times the scale in use, ``scale_``. Sizes are compared
        before the scale is estimated.
    criterion_ : {"loo", "gcv", "kfold", "oob"}
        How errors were estimated.
    inclusion_kind_ : {"mixed", "uniform", "ridge", "adaptive"}
        The probabilities in use.
    inclusion_shares_ : dict
        Share of the members that each law of inclusion has.
    selected_ : ndarray of shape (n_features,), dtype=bool
        Columns that a sparse model would keep: those that the sparsest law takes at least every second time, whatever
        its share. Empty where laws that follow the signal were not tried.
    selection_frequency_ : ndarray of shape (n_features,)
        Share of the folds in which that law keeps each column, a measure of how far `selected_` can be trusted.
    loo_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Prediction of every training row without it, NaN for rows of weight zero; empty where that is not known
        (adaptive probabilities, errors from some of the rows, splitters that leave rows out).
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.
    n_estimators_ : int
        Number of members.
    scale_ : float
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
    At a given size leave-one-out is unbiased; at the chosen one it is some per cent optimistic, as any minimum is. With
    ``inclusion="adaptive"`` the subsets depend on y, so ``best_score_`` is the cross-validated one.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressorCV(random_state=0).fit(X, y)
    >>> model.criterion_, 1 <= model.max_features_ <= 10
    ('kfold', True)
    >>> round(sum(model.inclusion_shares_.values()), 9)
    1.0
    """

    __module__ = "olsen"  # where users find it: pickles and model files name no room of the house

    _instead_of_a_number = ("auto",)

    max_features_: int
    max_samples_: int
    feature_ratio_: float
    best_score_: float
    cv_results_: dict[str, NDArray[Any]]
    criterion_: str
    inclusion_kind_: str
    inclusion_shares_: dict[str, float]
    selected_: NDArray[np.bool_]
    selection_frequency_: NDArray[np.float64]
    loo_prediction_: NDArray[np.float64]

    def __init__(
        self,
        n_estimators: int | str = 1000,
        max_features: ArrayLike | None = None,
        *,
        max_samples: int | float = 1.0,
        tune: str = "max_features",
        inclusion: str = "auto",
        cv: Any = None,
        one_standard_error: bool = False,
        sampling: str = "fixed",
        design: str = "balanced",
        scale: float | str = "loo",
        mixing: str = "mean",
        fit_intercept: bool = True,
        solver: str = "auto",
        rcond: float | None = None,
        tol: float | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.max_samples = max_samples
        self.tune = tune
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
        self.verbose = verbose

    @callbacks.with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose the size and fit the ensemble.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Training data. Paths hold a dense copy. Files, blocks, Dask collections and arrays on a GPU as in
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
            self._check_fit_params(params)
            engine = open_training(self, X, y, sample_weight)
            self._note_library(X)
            kept = self._kept(engine)
            request = self._request(self._seed(kept))
            evidence = self._evidence(engine, request, params)
            candidates = self._candidates(kept, request, evidence, engine)
            k = None if self.n_estimators == "auto" else int(self.n_estimators)
            found = choose(candidates, request, k, evidence)
            fitted = self._fit_choice(engine, request, candidates, found, kept)
            self._adopt(replace(fitted, splits=evidence.splits, n_groups=_count_groups(params)), engine)
        return self

    def risk_curve(self, k: float = np.inf) -> NDArray[np.float64]:
        """Estimated mean squared error of prediction for every candidate size.

        Parameters
        ----------
        k : int or inf, default=inf
            Number of members.

        Returns
        -------
        mse : ndarray of shape (n_sizes,)
            Aligned with ``cv_results_["size"]``; noise of new observations included.
        """
        if not k >= 1:
            raise ValueError(f"k={k!r} must be a number of members, at least 1, or infinity.")
        curve = self._result().curve
        assert curve is not None
        return curve.mse(k)

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.sampling == "determinantal":
            raise ValueError(
                "sampling='determinantal' is for a given size: sizes are compared along nested members here, which "
                "determinantal ones are not. Use OLSEnsembleRegressor, whose mean is then ridge regression: degrees of "
                "freedom that RidgeCV would choose are its max_features."
            )
        check_choice("tune", self.tune, ("max_features", "max_samples"))
        check_choice("inclusion", self.inclusion, INCLUSIONS)
        check_switch("one_standard_error", self.one_standard_error)
        if isinstance(self.cv, str):
            check_choice("cv", self.cv, ("gcv", "oob"))
        rows_only = self.inclusion in ("auto", "loo", "uniform") and self.cv is None and self.max_samples == 1.0
        rows_only = rows_only and self.max_features is None
        if self.tune == "max_samples" and not rows_only:
            raise ValueError(
                "tune='max_samples' uses all columns and leave-one-out: inclusion, cv, max_samples and max_features "
                f"must be left at their defaults, but are {self.inclusion!r}, {self.cv!r}, {self.max_samples!r} and "
                f"{self.max_features!r}."
            )

    def _check_fit_params(self, params: dict[str, Any]) -> None:
        """Groups are for a splitter, and nothing else is known."""
        unknown = [name for name in params if name != "groups"]
        if unknown:
            raise TypeError(
                f"fit got an unexpected argument {unknown[0]!r}; besides X, y and sample_weight, only groups."
            )
        if params.get("groups") is None:
            return
        try:
            if self.cv is None or isinstance(self.cv, (str, int)):
                raise TypeError
            process_routing(self, "fit", groups=params["groups"])
        except TypeError:
            raise ValueError(
                f"groups were given, but cv={self.cv!r} does not keep them together, so errors would be those of rows "
                f"whose group is still in the data. Use cv=GroupKFold() or another splitter that takes groups."
            ) from None

    def _request(self, seed: int) -> Request:
        """What was fixed, whatever the data."""
        return Request(
            seed=seed,
            design=self.design,
            inclusion=self.inclusion,
            criterion=self.cv if self.cv is None or isinstance(self.cv, str) else "kfold",
            sizes=_as_sizes(self.max_features),
            max_samples=self.max_samples,
            rows_are_tuned=self.tune == "max_samples",
            one_standard_error=self.one_standard_error,
            scale=None if self.scale == "loo" else float(self.scale),
            fit_intercept=self.fit_intercept,
        )

    def _evidence(self, engine: Engine, request: Request, params: dict[str, Any]) -> Evidence:
        """Rows to judge members by, or folds of moments where rows are not kept."""
        if isinstance(engine, Memory):
            splits = row_splits(self.cv, engine, params.get("groups"))
            self._warn_repeated_rows(engine.problem, splits)
            return Evidence.of_rows(engine.problem, splits)
        return Evidence.of_folds(engine.folds(self._count_folds(params), request.seed))

    def _count_folds(self, params: dict[str, Any]) -> int:
        """Number of folds where rows are not kept, or an error for what needs every row."""
        for name, value in {"tune": "max_features", "max_samples": 1.0, "mixing": "mean"}.items():
            if getattr(self, name) != value:
                raise NeedsRows(
                    f"{name}={getattr(self, name)!r} needs every row again; with X in blocks, on a cluster or on a "
                    f"device only {name}={value!r} is there. Load X as an array in memory for it."
                )
        if self.cv is None or self.cv == "gcv":
            return FOLDS
        if isinstance(self.cv, int) and self.cv >= 2:
            return self.cv
        raise ValueError(
            f"cv={self.cv!r} cannot be used with X in blocks, on a cluster or on a device: None means 5-fold there, "
            f"an int that many folds of random rows, 'gcv' generalised cross-validation."
        )

    def _warn_repeated_rows(self, problem: Problem, splits: Splits | None) -> None:
        """Leave-one-out cannot be trusted where the left-out row has a twin."""
        n, p = problem.shape
        if splits is not None or n * p > 5e7 or n < 20:
            return
        repeated = suspicious_repeats(problem)
        if repeated:
            messages.warn(
                f"{repeated} of {n} rows repeat others, so a left-out row is often still in the data and errors are "
                f"underestimated. Use cv=GroupKFold() with groups that keep repeats together.",
            )

    def _candidates(
        self, kept: FittedResult | None, request: Request, evidence: Evidence, engine: Engine
    ) -> list[Candidate]:
        """Risk curves; a warm start with the same request has them already."""
        if kept is not None and kept.evidence is not None and self._same_request(kept.evidence[0], request):
            return kept.evidence[1]
        return weigh(evidence, request, engine.options.sharing("paths", "an unknown number"))

    def _same_request(self, before: Request, now: Request) -> bool:
        # a splitter may give other folds at every call, so only what is known to repeat itself counts as the same
        return before.first_change(now) is None and now.criterion != "kfold"

    def _fit_choice(
        self,
        engine: Engine,
        request: Request,
        candidates: list[Candidate],
        found: Selection,
        kept: FittedResult | None,
    ) -> FittedResult:
        """Members of the chosen size and law; those of an earlier fit are kept where the choice is the same."""
        columns: Any = found.size if found.probabilities is None else found.probabilities
        columns, rows = (engine.n_columns, found.size) if request.rows_are_tuned else (columns, self.max_samples)
        shares = None
        if found.inclusion == "mixed":
            assert found.mixture is not None
            columns, shares = found.mixture.probabilities, found.mixture.shares
        design = self._design(engine, request.seed, columns, rows, shares)
        if self.n_estimators == "auto" and found.inclusion == "mixed":
            found = replace(found, n_estimators=_enough_members(engine, design, found))
        if kept is not None and self._obstacle(kept, engine, design, found.n_estimators) is not None:
            kept = None
        scale = self.scale if self.mixing == "stacking" else found.scale
        fitted = self._fit_members(engine, design, found.n_estimators, kept, scale)
        evidence = (request, candidates) if self.warm_start else None
        return replace(fitted, selection=found, curve=found.curve, evidence=evidence)

    def _set_selection(self, fitted: FittedResult, engine: Engine) -> None:
        found, design = fitted.selection, fitted.design
        assert found is not None
        tuned_rows = self.tune == "max_samples"
        self.max_features_ = engine.n_columns if tuned_rows else found.size
        self.max_samples_ = resolve_size(design.max_samples, design.n_rows, "max_samples")
        self.feature_ratio_ = self.max_features_ / engine.n_columns
        self.criterion_, self.inclusion_kind_ = found.criterion, found.inclusion
        self.best_score_ = -found.mse
        self.cv_results_ = {
            "size": found.curve.sizes.copy(),
            "mse": found.curve.mse(found.n_estimators),
            "mse_infinity": found.curve.mse(np.inf),
            "standard_error": found.standard_error,
        }
        self.loo_prediction_ = _left_out(found, fitted, engine)
        mixed = found.mixture
        names = (found.inclusion,) if found.inclusion != "mixed" or mixed is None else mixed.names
        self.inclusion_shares_ = dict(zip(names, [1.0] if mixed is None else mixed.shares.tolist(), strict=True))
        self.selected_ = np.empty(0, dtype=bool) if mixed is None else mixed.kept.copy()
        self.selection_frequency_ = np.empty(0) if mixed is None else mixed.stability.copy()


def _count_groups(params: dict[str, Any]) -> int | None:
    groups = params.get("groups")
    return None if groups is None else len(set(np.asarray(groups, dtype=object).tolist()))


def _enough_members(engine: Engine, design: Design, found: Selection) -> int:
    """As many as leave another draw of them one per cent of the error: laws that are mixed have no curve over k."""
    k = max(PILOT, FEWEST_BATCHES * members_of_group(design))
    pilot = Draws.of(engine, design, np.full(k, 1 / k), found.scale)
    needed = pilot.members_for(EXCESS * found.mse * len(pilot.intercept[0]), engine)
    return int(np.clip(np.ceil(needed), PILOT, MOST_MEMBERS)) if np.isfinite(needed) else PILOT


def _as_sizes(max_features: Any) -> tuple[int | float, ...] | None:
    """Candidates one by one: in one array, counts beside fractions would become fractions."""
    if max_features is None:
        return None
    given = max_features.tolist() if isinstance(max_features, np.ndarray) else max_features
    sizes = tuple(given) if np.ndim(max_features) else (given,)
    if not sizes:
        raise ValueError("max_features is an empty list of candidate sizes; leave it None for a grid of sizes.")
    return sizes


def _left_out(found: Selection, fitted: FittedResult, engine: Engine) -> NDArray[np.float64]:
    """Prediction of every row without it; empty where that is not known."""
    if found.residual is None or found.centre is None or engine.problem is None:
        return np.empty(0)
    prediction = found.centre + fitted.scale * (engine.problem.Y - found.residual - found.centre)
    design = fitted.design
    if design.kept_rows is not None:
        whole = np.full((design.n_given or design.n_rows, prediction.shape[1]), np.nan)
        whole[design.kept_rows] = prediction
        prediction = whole
    return prediction[:, 0] if engine.single_target else prediction
