"""OLSEnsembleRegressorCV: an ensemble that chooses the size of its members itself."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from . import _auto_inclusion, _combining, _large, _selection, subsets
from ._execution import callbacks, pools
from ._fitted import FittedEnsembleMixin
from ._fitting import FitMembersMixin
from ._inputs import all_or_nothing, check_choice, check_count, resolve_seed, validate_training
from ._risk_curve import same_group_pairs

__all__ = ["OLSEnsembleRegressorCV"]

INCLUSIONS = ("loo", "uniform", "ridge", "adaptive", "auto")
LARGEST_SHARE = 0.85  # of the rows: members stay clear of the interpolation peak
EXCESS = 0.01  # of a finite ensemble over an infinite one, for n_estimators="auto"


class OLSEnsembleRegressorCV(FitMembersMixin, FittedEnsembleMixin, callbacks.CallbackSupportMixin, BaseEstimator):
    r"""Average of least-squares fits on random column subsets, with the size of the subsets chosen from the data.

    The error of prediction is estimated for every size by exact leave-one-out, from a few nested paths: along a random
    permutation of the columns one factorisation holds the members of all sizes with their leverages. Errors of pairs of
    members give the error of an ensemble of any size, infinite ones included, in the design that is used. Then an
    :class:`OLSEnsembleRegressor` of the best size is fitted.

    Parameters
    ----------
    n_estimators : int or "auto", default=400
        Number of members. ``"auto"``: as many as keep the estimated excess over an infinite ensemble below 1 %.
        The default is larger than that of :class:`OLSEnsembleRegressor`: with many more columns than rows, a hundred
        members leave an excess that shows on real data, and members are cheap.
    max_features : array-like of int or float, default=None
        Candidate sizes (counts, or fractions of the columns). None: about fifty sizes from 1 to 85 % of the rows.
    max_samples : int or float, default=1.0
        Rows per member, when columns are tuned.
    tune : {"max_features", "max_samples"}, default="max_features"
        What is chosen: columns per member, or the rows of minimum-norm members on all columns (for more columns than
        rows; on correlated columns the first is usually better).
    inclusion : {"loo", "uniform", "ridge", "adaptive", "auto"}, default="loo"
        How likely columns are to be in a member.

        - ``"uniform"``: all alike, as in the paper.
        - ``"ridge"``: with probabilities under which the ensemble mimics tuned ridge regression; they favour columns
          that stand alone over collinear ones.
        - ``"loo"``: whichever of the two has the smaller leave-one-out error; uniform where `cv`, `max_samples` or
          `tune` ask for something else than leave-one-out over columns with all rows.
        - ``"adaptive"``: with probabilities that follow the coefficients, for sparse signals; used only where 5-fold
          cross-validation says so, uniform otherwise.
        - ``"auto"``: adaptive where cross-validation says so, otherwise as ``"loo"``.
    cv : {None, "gcv", "oob"}, int or cross-validation splitter, default=None
        How errors are estimated. None: exact leave-one-out (generalised cross-validation from the moments alone where
        there are over a hundred times more rows than columns, and at least 10000). An int or a splitter: k-fold.
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
        Whether a further call of `fit` on the same data keeps the size and the members there are and adds new ones.
    n_jobs : int, default=None
        Threads over paths and members; results do not depend on it. Members can be tasks of a cluster, as in
        :class:`OLSEnsembleRegressor`.
    random_state : int, RandomState instance or None, default=None
        Seed of paths and members.
    verbose : int, default=0
        Whether to print progress.

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
        Minus the estimated mean squared error of prediction at the chosen size and number of members.
    cv_results_ : dict of ndarrays
        ``"size"``, ``"mse"`` at ``n_estimators_``, ``"mse_infinity"``, ``"standard_error"`` over rows.
    criterion_ : {"loo", "gcv", "kfold", "oob"}
        How errors were estimated.
    inclusion_kind_ : {"uniform", "ridge", "adaptive"}
        The probabilities in use.
    loo_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Prediction of every training row without it; empty where that is not known (adaptive probabilities, errors from
        the moments alone, splitters that leave rows out).
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
    ('loo', True)
    """

    def __init__(
        self,
        n_estimators=400,
        max_features=None,
        *,
        max_samples=1.0,
        tune="max_features",
        inclusion="loo",
        cv=None,
        one_standard_error=False,
        sampling="fixed",
        design="balanced",
        scale="loo",
        mixing="mean",
        fit_intercept=True,
        solver="auto",
        rcond=None,
        tol=None,
        warm_start=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
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
    def fit(self, X, y, sample_weight=None, **params):
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
        with all_or_nothing(self):
            self._check_parameters()
            if _large.tunes(self, X, y, sample_weight):
                return self
            given = validate_training(self, X, y, sample_weight)
            if self._keeps_size(given.problem):
                self._fit_members(given, self.n_estimators, self.n_estimators_, self.scale_)
                return self
            splits = self._splits(given, params)
            self._warn_repeated_rows(given.problem, splits)
            self._tune(given, splits)
            self._forget("_deletions")
        return self

    def risk_curve(self, k=np.inf):
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
        own, same, other = self._pair_means
        pairs = self._same_pairs_of(k)
        return other if np.isinf(k) else own / k + pairs * same + (1 - 1 / k - pairs) * other

    def get_metadata_routing(self):
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

    def _check_parameters(self):
        if self.n_estimators != "auto":
            check_count("n_estimators", self.n_estimators)
        self._check_member_parameters()
        check_choice("tune", self.tune, ("max_features", "max_samples"))
        check_choice("inclusion", self.inclusion, INCLUSIONS)
        if isinstance(self.cv, str):
            check_choice("cv", self.cv, ("gcv", "oob"))
        rows_only = self.inclusion in ("loo", "uniform") and self.cv is None and self.max_samples == 1.0
        if self.tune == "max_samples" and not rows_only:
            raise ValueError(
                "tune='max_samples' uses all columns and leave-one-out: inclusion, cv and max_samples must be left at "
                f"their defaults, but are {self.inclusion!r}, {self.cv!r} and {self.max_samples!r}."
            )

    def _keeps_size(self, problem):
        if not (self.warm_start and hasattr(self, "_training") and self.n_estimators != "auto"):
            return False
        grows = self.mixing == "mean" and np.ptp(self.weights_) == 0 and self.n_estimators >= self.n_estimators_
        return grows and problem.equals(self._training)

    def _splits(self, given, params):
        """(train, test) index pairs over the rows with positive weight, or None without k-fold."""
        if self.cv is None or isinstance(self.cv, str):
            return None
        routed = process_routing(self, "fit", **params) if params else None
        groups = params.get("groups") if routed is None else routed.splitter.split.get("groups")
        splitter = check_cv(self.cv)
        n = given.n_given
        if not hasattr(self.cv, "__iter__") and splitter.get_n_splits(np.zeros(n), groups=groups) > n:
            raise ValueError(f"cv={self.cv!r} asks for more folds than the {n} rows there are.")
        y = np.zeros(n) if given.kept_rows is not None else given.problem.Y[:, 0]
        splits = splitter.split(np.zeros((n, 1)), y, groups)
        if given.kept_rows is None:
            return [(np.asarray(train), np.asarray(test)) for train, test in splits]
        position = np.full(n, -1)
        position[given.kept_rows] = np.arange(len(given.kept_rows))
        kept = [tuple(position[rows][position[rows] >= 0] for rows in split) for split in splits]
        return [(train, test) for train, test in kept if len(train) and len(test)]

    def _warn_repeated_rows(self, problem, splits):
        """Leave-one-out cannot be trusted where the left-out row has a twin."""
        n, p = problem.shape
        if splits is not None or n * p > 5e7 or n < 20:
            return
        repeated = n - problem.distinct_rows()
        if repeated > 0.05 * n:
            warnings.warn(
                f"{repeated} of {n} rows repeat others, so a left-out row is often still in the data and errors are "
                f"underestimated. Use cv=GroupKFold() with groups that keep repeats together.",
                UserWarning,
                stacklevel=4,
            )

    def _tune(self, given, splits):
        problem = given.problem
        seed = resolve_seed(self.random_state)
        mapper = partial(pools.map_chunks, n_threads=pools.count_threads(self.n_jobs))
        paths = _selection.Paths(seed, self.design, mapper)
        curve = self._curve(problem, splits, paths)
        at = self._choose(curve)
        k = curve.members_for(at, EXCESS) if self.n_estimators == "auto" else self.n_estimators
        self._report(curve, at, k, problem)
        size = int(curve.sizes[at])
        found = self._inclusion_for(problem, curve, at, k, splits, paths)
        self.inclusion_kind_, self.best_score_ = found.kind, -found.mse
        columns = size if found.probabilities is None else found.probabilities
        rows = self.max_samples
        if self.tune == "max_samples":
            columns, rows = self.n_features_in_, size
        self._reset_draw(given, columns, rows, seed=seed)
        centre = _mean_of_others(problem, splits)
        self._fit_members(given, k, scale=self._scale(found.residual, centre, problem, found.kind))
        self.max_features_ = int(np.rint(np.sum(columns)))
        self.max_samples_ = subsets.resolve_size(rows, problem.shape[0], "max_samples")
        self.feature_ratio_ = self.max_features_ / self.n_features_in_
        self._predict_left_out(found.residual, centre, problem, given.single_target)

    def _inclusion_for(self, problem, curve, at, k, splits, paths):
        """Probabilities of the columns, and the residuals and error that go with them."""
        residual = _residual_by_row(curve.residual[at], problem, splits)
        uniform = _auto_inclusion.Inclusion("uniform", None, residual, float(curve.mse(k)[at]))
        plain = self.tune == "max_features" and self.max_samples == 1.0 and self.cv is None and residual is not None
        if self.inclusion == "uniform" or (self.inclusion == "loo" and not plain):
            return uniform
        if self.inclusion == "ridge":
            return _auto_inclusion.ridge_matched(problem)
        base = uniform
        if self.inclusion in ("loo", "auto") and residual is not None:
            base = _auto_inclusion.uniform_or_ridge(problem, residual, uniform.mse)
        if self.inclusion == "loo":
            return base
        size, with_ridge = int(curve.sizes[at]), self.inclusion == "auto"
        return _auto_inclusion.adaptive_or(base, problem, size, self, paths, with_ridge=with_ridge)

    def _curve(self, problem, splits, paths):
        n, p = problem.shape
        if self.tune == "max_samples":
            self.criterion_ = "loo"
            return _selection.row_curve(problem, self._row_sizes(n, p), paths)
        n_samples = subsets.resolve_size(self.max_samples, n, "max_samples")
        drawn = None if n_samples == n else n_samples
        rows = n_samples if splits is None else _smallest_training(problem, splits, drawn)
        sizes = self._sizes(p, rows)
        if splits is not None:
            self.criterion_ = "kfold"
            return _selection.kfold_curve(problem, sizes, paths, splits, drawn)
        if self.cv == "oob":
            if drawn is None:
                raise ValueError(f"cv='oob' needs rows that members are not given, but max_samples={self.max_samples}.")
            self.criterion_ = "oob"
            return _selection.oob_curve(problem, sizes, paths, drawn)
        if self.cv is None and drawn is None and n >= max(10_000, 100 * p):
            try:
                curve = _selection.moment_gcv_curve(problem.moments, sizes, paths)
            except np.linalg.LinAlgError:
                pass  # dependent columns: go on with leave-one-out, which leaves them out
            else:
                self.criterion_ = "gcv"
                return curve
        self.criterion_ = "gcv" if self.cv == "gcv" else "loo"
        follow = _selection.gcv_curve if self.cv == "gcv" else _selection.loo_curve
        return follow(problem, sizes, paths, drawn)

    def _row_sizes(self, n, p):
        """Candidate row counts of minimum-norm members, clear of the peak at p rows."""
        largest = int(LARGEST_SHARE * min(n - self.fit_intercept, p))
        if largest < 3:
            raise ValueError(
                f"tune='max_samples' fits minimum-norm members, which need more columns than rows; with n_features={p} "
                f"and {n} rows there is nothing to choose. Use tune='max_features'."
            )
        return _selection.size_grid(largest)[1:]

    def _sizes(self, p, rows):
        """Candidate sizes, clear of the interpolation peak."""
        largest = max(1, min(p, int(LARGEST_SHARE * (rows - self.fit_intercept))))
        if self.max_features is None:
            return _selection.size_grid(largest)
        given = np.ravel(self.max_features).tolist()
        sizes = np.unique([subsets.resolve_size(size, p, "max_features") for size in given])
        if sizes[-1] > largest:
            raise ValueError(
                f"max_features asks for {sizes[-1]} columns in a member, but with {rows} rows at most {largest} keep "
                f"members clear of the interpolation peak. Leave larger sizes out."
            )
        return sizes

    def _choose(self, curve):
        k = np.inf if self.n_estimators == "auto" else self.n_estimators
        mse = curve.mse(k)
        best = int(np.argmin(mse))
        if not self.one_standard_error:
            return best
        return int(np.flatnonzero(mse <= mse[best] + curve.standard_error(k)[best])[0])

    def _report(self, curve, at, k, problem):
        """Results as plain arrays, so that the fitted model stays small."""
        own, same, other = (np.average(a, axis=1, weights=curve.weight) for a in (curve.own, curve.same, curve.other))
        self._pair_means = (own, same, other)
        self._curve_items, self._curve_sizes = curve.n_items, curve.sizes
        moments_only = self.criterion_ == "gcv" and curve.own.shape[1] == 1
        error = curve.mse(k) * np.sqrt(2 / problem.shape[0]) if moments_only else curve.standard_error(k)
        self.cv_results_ = {
            "size": curve.sizes,
            "mse": curve.mse(k),
            "mse_infinity": curve.mse(np.inf),
            "standard_error": error,
        }
        self.best_score_ = -float(curve.mse(k)[at])

    def _same_pairs_of(self, k):
        if np.isinf(k) or self.criterion_ == "oob":
            return 0.0
        return same_group_pairs(self._curve_sizes, self._curve_items, self.design, int(k)) / k**2

    def _scale(self, residual, centre, problem, kind):
        """A number, or "loo" to leave it to the members' own residuals."""
        if self.scale != "loo" or self.mixing == "stacking":
            return self.scale
        if kind == "adaptive" or residual is None:
            return 1.0
        return _combining.loo_scale(problem, residual, centre)

    def _predict_left_out(self, residual, centre, problem, single):
        if residual is None:
            self.loo_prediction_ = np.empty(0)
            return
        prediction = centre + self.scale_ * (problem.Y - residual - centre)
        self.loo_prediction_ = prediction[:, 0] if single else prediction


def _residual_by_row(residual, problem, splits):
    """Residuals in the order of the rows, or None where some row has none."""
    if splits is not None:
        order = np.concatenate([test for _, test in splits])
        whole = np.full(problem.Y.shape, np.nan)
        whole[order] = residual
        residual = whole
    return residual if len(residual) == len(problem.Y) and np.isfinite(residual).all() else None


def _smallest_training(problem, splits, drawn):
    """Rows of the smallest training set; repeated ones add no rank, so they do not count."""
    rows = min(problem.take(train).distinct_rows() for train, _ in splits)
    return rows if drawn is None else min(rows, drawn)


def _mean_of_others(problem, splits):
    """Mean target without each row, or without the fold that it is in, (n, q); zeros without intercept."""
    if not problem.fit_intercept:
        return np.zeros_like(problem.Y)
    weight = np.ones(len(problem.Y)) if problem.weight is None else problem.weight
    share = (weight / weight.sum())[:, None]
    mean = (weight @ problem.Y / weight.sum() - share * problem.Y) / (1 - share)
    for train, test in splits or ():
        mean[test] = weight[train] @ problem.Y[train] / weight[train].sum()
    return mean
