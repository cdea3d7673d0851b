"""OLSEnsembleRegressor: the average of least-squares fits on random submatrices."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

from . import _elsewhere, _members
from ._execution import callbacks
from ._fitted import FittedEnsembleMixin
from ._inputs import (
    all_or_nothing,
    check_choice,
    check_count,
    resolve_seed,
    validate_training,
    warn_at_the_peak,
)
from ._moments import weighted_mean
from ._streaming import Triangle

__all__ = ["OLSEnsembleRegressor"]


class OLSEnsembleRegressor(FittedEnsembleMixin, callbacks.CallbackSupportMixin, BaseEstimator):
    r"""Average of least-squares fits on random submatrices.

    Member :math:`i` sees rows :math:`T_i` and columns :math:`S_i` only, and the ensemble is the mean of the members:

    .. math:: \hat\beta = \frac1k \sum_{i=1}^k S_i \, (T_i^\top X S_i)^{+} \, T_i^\top y .

    No penalty appears, yet for isotropic Gaussian features, large `n_estimators` and the best `max_features` the
    limiting risk is that of optimally tuned ridge regression ([1]_, Theorem 3.6).

    Parameters
    ----------
    n_estimators : int, default=100
        Number of members, k. The excess risk over an infinite ensemble falls as 1/k.
    max_features : int, float or array-like of shape (n_features,), default=0.5
        Columns per member: a count, a fraction of the columns (rounded down, at least one), or the probability of
        every column to be in a member. This is the regulariser: smaller shrinks more.
    max_samples : int or float, default=1.0
        Rows per member. With ``1.0`` all members share one Gram matrix, which is much faster. Members with fewer rows
        than columns are minimum-norm interpolators.
    sampling : {"fixed", "bernoulli"}, default="fixed"
        Members of fixed size, or a coin flip for every column (and row), rejecting members that have too few rows.
    design : {"balanced", "independent"}, default="balanced"
        Members drawn in groups of disjoint blocks (of left-out blocks, for more than half of the columns), or
        independently as in the paper. Balanced members overlap less: lower risk for the same number of members.
    scale : float, default=1.0
        Factor on the deviations of the prediction from the mean target (the paper's mu).
    mixing : {"mean"}, default="mean"
        How members are combined: all with equal weight.
    fit_intercept : bool, default=True
        Whether every member fits an intercept.
    solver : {"auto", "gram", "member_gram", "orthogonal", "interpolator"}, default="auto"
        How members are solved. ``"auto"`` takes the cheapest; members with fewer rows than columns always go to
        ``"interpolator"``.

        - ``"gram"``: Cholesky on principal submatrices of one shared Gram matrix.
        - ``"member_gram"``: the same on a Gram matrix of the member's own rows and columns.
        - ``"orthogonal"``: QR on the data; slower, and as accurate as least squares can be.

        Members whose Gram matrix is nearly singular are solved again by ``"orthogonal"``, whatever was chosen.
    rcond : float, default=None
        Relative cut-off for singular values of dependent columns (scaled to unit length). None: machine precision
        times the larger dimension.
    tol : float, default=None
        Tolerance of iterative solvers; the direct ones do not use it.
    warm_start : bool, default=False
        Whether a further call of `fit` on the same data keeps the members there are and adds new ones up to
        `n_estimators`. On other data all members are fitted anew.
    n_jobs : int, default=None
        Threads over members. None means 1 unless in a ``joblib.parallel_config`` context; -1 means all cores.
        Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the subsets. Member i depends on the seed and on i alone.
    verbose : int, default=0
        Whether to print progress. With scikit-learn 1.9 or later, callbacks such as its ``ProgressBar`` work too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Mean of the members, each zero outside its own columns, times the scale.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept; 0.0 if ``fit_intercept=False``.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.
    n_estimators_ : int
        Number of members.
    scale_ : float
        The scale in use.
    weights_ : ndarray of shape (n_estimators_,)
        Weight of every member; they sum to one.
    inclusion_ : ndarray of shape (n_features,)
        Share of the members that hold each column.
    solver_ : str
        The solver that ran.
    n_fallbacks_ : int
        Members whose Gram matrix was not to be trusted, solved again from the data.

    See Also
    --------
    member_coefficients : Coefficients of given members, nothing drawn.
    sklearn.linear_model.RidgeCV : The explicit penalty this ensemble behaves like.

    Notes
    -----
    The fitted object refers to the training data (no copy is made of a float array), because leave-one-out quantities
    are computed from them on demand by :meth:`predict_interval`, ``predict(return_std=True)`` and
    :meth:`member_coefs`. Pickles leave the data out: they hold coefficients only.

    References
    ----------
    .. [1] D. LeJeune, H. Javadi, R. G. Baraniuk. The Implicit Regularization of Ordinary Least Squares Ensembles.
       AISTATS 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from olsen import OLSEnsembleRegressor
    >>> X, y = make_regression(n_samples=80, n_features=60, noise=20.0, random_state=0)
    >>> model = OLSEnsembleRegressor(n_estimators=200, max_features=20, random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape, model.solver_, model.n_fallbacks_
    ((2,), 'gram', 0)
    """

    _design: dict
    _mean: tuple
    inclusion_: np.ndarray
    n_fallbacks_: int

    def __init__(
        self,
        n_estimators=100,
        max_features=0.5,
        max_samples=1.0,
        *,
        sampling="fixed",
        design="balanced",
        scale=1.0,
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
    def fit(self, X, y, sample_weight=None):
        """Fit all members and average them.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Training data. Sparse data are not made dense as a whole.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights inside the least squares; a weight of zero equals a dropped row.

        Returns
        -------
        self : object
            The fitted estimator; unchanged if anything fails.
        """
        with all_or_nothing(self):
            self._check_parameters()
            if _elsewhere.lives_elsewhere(X, y):
                _elsewhere.fit(self, X, y, sample_weight)
                return self
            given = validate_training(self, X, y, sample_weight)
            problem = given.problem
            start = self._members_to_keep(problem)
            if start == 0:
                self._reset_draw(problem, problem.shape[0], given.kept_rows)
            features, samples = self._draw(start, self.n_estimators)
            self._warn_sizes(features, samples)
            solution = self._solve(problem, features, samples)
            mean = _mean_member(features, solution, problem.shape[1], _mean_target(problem, samples))
            self._store(mean, solution, features, start)
            self._set_coefficients(problem.X.dtype, given.single_target)
            self._training = problem
            self._forget("_deletions", "_triangle")
        return self

    @available_if(lambda self: _uses_all_rows(self.max_samples))
    def partial_fit(self, X, y, sample_weight=None):
        """Add rows to those seen so far and solve all members again.

        Batches are folded into a triangular factor of the data (see the user guide on scale), so the result equals
        that of one `fit` on all rows, and memory does not grow with their number. All rows must be in use
        (``max_samples=1.0``).

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            New rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Their targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Their weights.

        Returns
        -------
        self : object
            The fitted estimator; unchanged if anything fails.
        """
        with all_or_nothing(self):
            self._check_parameters()
            first = not hasattr(self, "coef_")
            given = validate_training(self, X, y, sample_weight, reset=first, min_rows=1)
            problem = given.problem
            triangle = self._rows_so_far(problem).add(problem)
            self._reset_draw(problem, triangle.n_rows, None)
            features, _ = self._draw(0, self.n_estimators)
            centred, mean_x, mean_y = triangle.problem(problem)
            solution = self._solve(centred, features, None)
            coef, _, _ = _mean_member(features, solution, problem.shape[1], mean_y)
            self._store((coef, mean_y - mean_x @ coef, mean_y), solution, features, 0)
            self._set_coefficients(problem.X.dtype, given.single_target)
            self._triangle = triangle
            self._forget("_deletions", "_training")
        return self

    # What fit is made of

    def _check_parameters(self):
        check_count("n_estimators", self.n_estimators)
        check_choice("sampling", self.sampling, ("fixed", "bernoulli"))
        check_choice("design", self.design, ("balanced", "independent"))
        check_choice("mixing", self.mixing, ("mean",))
        check_choice("solver", self.solver, ("auto", *_members.SOLVERS))
        if isinstance(self.scale, str) or not np.isfinite(self.scale):
            raise ValueError(f"scale={self.scale!r} must be a finite number.")

    def _members_to_keep(self, problem):
        """Members of an earlier fit that a warm start keeps."""
        if not (self.warm_start and hasattr(self, "_training") and problem.equals(self._training)):
            return 0
        if self.n_estimators < self.n_estimators_:
            raise ValueError(
                f"n_estimators={self.n_estimators} is below the {self.n_estimators_} members of the fitted ensemble; "
                f"with warm_start=True members can only be added."
            )
        for name, drawn in self._design.items():
            if hasattr(self, name) and not np.array_equal(getattr(self, name), drawn):
                raise ValueError(
                    f"{name} was changed from {drawn!r} to {getattr(self, name)!r}, but warm_start=True keeps members "
                    f"drawn with the former. Set warm_start=False to start again."
                )
        return self.n_estimators_

    def _reset_draw(self, problem, n_rows, kept):
        """Remember how members are drawn: parameters may be changed on the object later, the members may not."""
        keep_seed = hasattr(self, "_triangle")  # batches of one stream share their members
        self._kept_rows = kept
        self._design = {
            "n_rows": n_rows,
            "n_columns": self.n_features_in_,
            "seed": self._design["seed"] if keep_seed else resolve_seed(self.random_state),
            "max_features": np.array(self.max_features) if np.ndim(self.max_features) else self.max_features,
            "max_samples": self.max_samples,
            "sampling": self.sampling,
            "design": self.design,
            "fit_intercept": self.fit_intercept,
            "distinct_rows": problem.distinct_rows() if self.sampling == "bernoulli" and not keep_seed else None,
        }

    def _warn_sizes(self, features, samples):
        if self.sampling == "fixed" and len(features):
            rows = self._design["n_rows"] if samples is None else int(samples.sizes[0])
            warn_at_the_peak(int(features.sizes[0]), rows, self.fit_intercept)

    def _store(self, mean, solution, features, start):
        """Merge the mean of new members with that of `start` old ones."""
        k = start + len(features)
        counts = features.counts()
        fallbacks = int(solution.refitted.sum())
        if start:
            share = len(features) / k
            mean = tuple(old + share * (new - old) for old, new in zip(self._mean, mean, strict=True))
            counts = counts + np.rint(self.inclusion_ * start).astype(np.int64)
            fallbacks += self.n_fallbacks_
        self._mean = mean
        self.n_estimators_, self.n_fallbacks_ = k, fallbacks
        self.weights_, self.inclusion_ = np.full(k, 1 / k), counts / k
        self.solver_ = solution.solver

    def _set_coefficients(self, dtype, single):
        """Scale the mean member about its mean target: m + scale (x - mean_x)' b."""
        self.scale_ = float(self.scale)
        coef, intercept, mean_y = self._mean
        coef = (self.scale_ * coef).T.astype(dtype)
        intercept = (self.scale_ * intercept + (1 - self.scale_) * mean_y).astype(dtype)
        self.coef_ = coef[0] if single else coef
        self.intercept_ = (intercept[0] if single else intercept) if self.fit_intercept else 0.0

    def _rows_so_far(self, problem):
        p, q = problem.shape[1], problem.Y.shape[1]
        if hasattr(self, "_triangle"):
            if self._triangle.n_targets != q:
                raise ValueError(f"y has {q} targets, but earlier batches had {self._triangle.n_targets}.")
            return self._triangle
        if hasattr(self, "coef_"):
            return Triangle.empty(p, q).add(self._data())
        return Triangle.empty(p, q)

    def _forget(self, *names):
        for name in names:
            self.__dict__.pop(name, None)


def _uses_all_rows(max_samples):
    """Whether members use all rows; a stream keeps none, so there they could not draw any."""
    if isinstance(max_samples, float) and max_samples == 1.0:
        return True
    raise AttributeError(
        f"partial_fit keeps no rows, so members cannot draw them: max_samples={max_samples!r} must be 1.0."
    )


def _mean_member(features, solution, p, mean_y):
    """Mean coefficients (p, q), intercept (q,) and target (q,) of the members, summed in the members' order."""
    sums = [np.bincount(features.indices, weights=v, minlength=p) for v in solution.values.T]
    k = max(1, len(features))  # a warm start that adds nothing has no new members
    return np.stack(sums, axis=1) / k, solution.intercepts.sum(axis=0) / k, mean_y


def _mean_target(problem, samples):
    """Mean over members of the mean target of their rows; zeros without intercept."""
    if not problem.fit_intercept:
        return np.zeros(problem.Y.shape[1])
    if samples is None:
        return weighted_mean(problem.Y, problem.weight)
    weight = problem.weight
    means = [weighted_mean(problem.Y[rows], None if weight is None else weight[rows]) for rows in samples]
    return np.mean(means, axis=0)
