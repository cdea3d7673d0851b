"""DropoutRegressor: least squares trained with randomly masked columns, or its limit in closed
form.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from .._data.moments import weighted_mean
from .._data.rows import RowData
from .._estimators import inputs
from .._estimators.inputs import COUNT, POSITIVE
from .._execution import messages
from .._execution.arrays import HOST, predictions, type_that_holds
from ..subsets import resolve_size
from . import exact, sgd
from .exact import Masks


class DropoutRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Linear regression trained with dropout of its columns.

    An ensemble fits every member separately, whereas dropout fits one coefficient vector to the
    mean loss of all masks:

    .. math:: \hat\beta = \arg\min_b \; E_S \| X S S' b - y \|^2
              = A^{-1} \left(X'X + (I - A) A^{-1} \mathrm{diag}(X'X)\right)^{-1} X'y

    for coin flips, :math:`A` the diagonal matrix of the probabilities to keep each column ([1]_,
    equations (33), (34) and (38)); status: exact. For masks of exactly m of p columns, A becomes
    :math:`(m - 1)/(p - 1)` instead of m/p; status: exact.

    Parameters
    ----------
    max_features : int, float or array-like of shape (n_features,), default=0.5
        Size of a mask: a number of columns, a fraction, or the probability of every column to be
        kept (coin flips only). With coin flips a fraction is the probability itself; with
        ``sampling="fixed"`` it is rounded down to a number of columns. Smaller values shrink more;
        1.0 is least squares.
    sampling : {"bernoulli", "fixed"}, default="bernoulli"
        A coin flip for every column, or masks of a fixed number of columns.
    rescale : bool, default=False
        Whether to multiply the coefficients by the probabilities, :math:`A \hat\beta`: the mean
        prediction over masks, which dropout networks use after training. On standardised columns
        this is ridge regression with penalty
        :math:`n (1 - \alpha) / \alpha`. With the probabilities
        :math:`\alpha_j = s_j / (s_j + \lambda)` it is ridge regression with penalty :math:`\lambda` on any
        columns, :math:`s_j` the sum of squares of the centred column j; the paper has
        :math:`n \Sigma_{jj}` for :math:`s_j` (equations (39) and (40), a limit). Without
        `rescale` the coefficients are the trained ones, inflated by about one over alpha.
    solver : {"closed_form", "sgd"}, default="closed_form"
        The minimiser itself, or training by stochastic gradients with masks drawn at every step,
        which reaches the same coefficients up to `tol`. The closed form is faster and exact;
        stochastic gradients are the way networks are trained, and need no matrix larger than a
        batch.
    fit_intercept : bool, default=True
        Whether to fit an intercept. Columns are centred before they are masked, so that a dropped
        column stands at its mean, and the intercept itself is never dropped.
    batch_size : int, default=512
        Rows of a step of ``"sgd"``; all rows if there are no more than that.
    n_masks : int, default=16
        Masks applied to every row in a step of ``"sgd"``; groups of eight rows have the same masks.
        Masks come in antithetic pairs.
    learning_rate : float, default=None
        First step size of ``"sgd"``, for columns scaled to unit mean square; it falls slowly. None:
        the largest safe step size, from the data.
    max_iter : int, default=50000
        Largest number of steps of ``"sgd"``.
    tol : float, default=0.0005
        ``"sgd"`` stops when the estimated standard error of the averaged coefficients (of scaled
        columns) is below this fraction of their norm. Half of it takes four times as long.
    random_state : int, RandomState instance or None, default=None
        Seed of rows and masks of ``"sgd"``; the closed form draws nothing.
    verbose : int, default=0
        Whether to print progress.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients; zero for columns that are never kept or do not vary. Of ``float32`` X they are
        ``float32``, unless only ``float64`` holds them.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept; 0.0 if ``fit_intercept=False``.
    inclusion_ : ndarray of shape (n_features,)
        Probability of each column to be kept.
    n_iter_ : int
        Steps taken; 1 for the closed form.
    loss_curve_ : ndarray or None
        Mean squared loss under masks over successive stretches of steps; None for the closed form.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.

    See Also
    --------
    OLSEnsembleRegressor : Average of separate least-squares fits, one for every mask.
    sklearn.linear_model.Ridge : Equivalent of the rescaled estimator on standardised columns.

    Notes
    -----
    The same `max_features` does not mean the same regularisation here and in
    :class:`OLSEnsembleRegressor`: on standardised columns dropout's penalty is n (1 - alpha) /
    alpha, the limiting one of the ensemble is that times 1 - alpha p / n.

    References
    ----------
    .. [1] D. LeJeune, H. Javadi, R. G. Baraniuk. The Implicit Regularization of Ordinary Least Squares Ensembles.
       AISTATS 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from olsen import DropoutRegressor
    >>> X, y = make_regression(n_samples=80, n_features=6, noise=20.0, random_state=0)
    >>> exact = DropoutRegressor(max_features=0.8, rescale=True).fit(X, y)
    >>> trained = DropoutRegressor(
    ...     max_features=0.8, rescale=True, solver="sgd", tol=0.002, random_state=0
    ... ).fit(X, y)
    >>> bool(abs(trained.coef_ - exact.coef_).max() < 0.01 * abs(exact.coef_).max())
    True
    """

    __module__ = (  # the public module, so that pickles and model files name no private module
        "olsen"
    )

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **inputs.COMMON,
        "sampling": [StrOptions({"bernoulli", "fixed"})],
        "rescale": ["boolean"],
        "solver": [StrOptions({"closed_form", "sgd"})],
        "batch_size": [COUNT],
        "n_masks": [COUNT],
        "learning_rate": [POSITIVE, None],
        "max_iter": [COUNT],
        "tol": [POSITIVE],
    }

    def __init__(
        self,
        max_features: int | float | ArrayLike = 0.5,
        *,
        sampling: str = "bernoulli",
        rescale: bool = False,
        solver: str = "closed_form",
        fit_intercept: bool = True,
        batch_size: int = 512,
        n_masks: int = 16,
        learning_rate: float | None = None,
        max_iter: int = 50000,
        tol: float = 0.0005,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.max_features = max_features
        self.sampling = sampling
        self.rescale = rescale
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.batch_size = batch_size
        self.n_masks = n_masks
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the coefficients.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Training data. Sparse data are not made dense as a whole.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights inside the squared loss; a weight of zero equals a dropped row.

        Returns
        -------
        self : object
            The fitted estimator; unchanged if anything fails.
        """
        with inputs.unchanged_on_failure(self):
            self._validate_params()
            inputs.refuse_missing_sizes(self.max_features)
            problem = inputs.open_training(self, X, y, sample_weight).host_rows
            if problem is None:
                raise ValueError(
                    f"DropoutRegressor takes arrays in memory, but X is of type {type(X).__name__}."
                    " Load or compute it to a NumPy array first; the ensembles also read files,"
                    " blocks, Dask collections and GPU arrays."
                )
            masks = masks_of(self.max_features, self.n_features_in_, self.sampling)
            coef = self._solve(problem, masks)
            if self.rescale:
                coef = coef * masks.inclusion[:, None]
            intercept = np.zeros(coef.shape[1])
            if self.fit_intercept:
                mean_x = weighted_mean(problem.X, problem.weight)
                intercept = weighted_mean(problem.Y, problem.weight) - mean_x @ coef
            dtype = type_that_holds(HOST, problem.X.dtype, coef, intercept)
            coef = coef.T.astype(dtype)  # (q, p)
            intercept = intercept.astype(dtype)
            self.inclusion_ = masks.inclusion
            self.coef_ = coef[0] if problem.single_target else coef
            self.intercept_: Any = intercept[0] if problem.single_target else intercept
            if not self.fit_intercept:
                self.intercept_ = 0.0
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict with all columns.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions.
        """
        check_is_fitted(self)
        return np.asarray(
            predictions(HOST, inputs.validate_new_rows(self, X), self.coef_, self.intercept_)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _solve(self, problem: RowData, masks: Masks) -> NDArray[np.float64]:
        """Compute the coefficients (p, q) by the chosen solver; sets `n_iter_` and `loss_curve_`."""
        if self.solver == "closed_form":
            self.n_iter_ = 1
            self.loss_curve_ = None
            return exact.solve(problem, masks)
        run = sgd.train(
            problem,
            masks,
            batch_size=self.batch_size,
            n_masks=self.n_masks,
            learning_rate=self.learning_rate,
            max_iter=self.max_iter,
            tol=self.tol,
            seed=inputs.resolve_seed(self.random_state),
            report=messages.progress(self, "steps", self.max_iter) if self.verbose else None,
        )
        self.n_iter_ = run.n_iter
        self.loss_curve_ = run.losses
        if not run.converged:
            messages.warn(
                f"training stopped after max_iter={self.max_iter} steps with a relative standard"
                f" error of {run.error:.2g}, above tol={self.tol:g}. Raise max_iter or n_masks,"
                " accept a larger tol, or use solver='closed_form'.",
                ConvergenceWarning,
            )
        return run.coef


def masks_of(max_features: Any, p: int, sampling: str) -> Masks:
    """Distribution of masks on `p` columns from the parameters of the estimator."""
    if np.ndim(max_features):
        probabilities = np.asarray(max_features, dtype=np.float64)
        if sampling == "fixed":
            raise ValueError(
                f"max_features holds {probabilities.size} probabilities, but masks of a fixed size"
                " keep all columns equally often. Use sampling='bernoulli' for a probability of"
                " each column, or one number."
            )
        invalid = np.flatnonzero((probabilities < 0) | (probabilities > 1))
        if probabilities.shape != (p,) or len(invalid) or not probabilities.any():
            raise ValueError(
                f"max_features must hold {p} probabilities in [0, 1], one for each column and not"
                f" all 0; it has shape {probabilities.shape}, and {len(invalid)} are outside, the"
                f" first ones at {invalid[:5].tolist()}."
            )
        return Masks(probabilities, probabilities, None)
    size = resolve_size(max_features, p, "max_features")
    if sampling == "fixed":
        partner = (size - 1) / (p - 1) if size < p else 1.0
        return Masks(np.full(p, size / p), np.full(p, partner), size)
    is_count = isinstance(max_features, Integral)
    probabilities = np.full(p, size / p if is_count else float(max_features))
    return Masks(probabilities, probabilities, None)
