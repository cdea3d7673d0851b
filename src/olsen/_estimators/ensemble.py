"""OLSEnsembleRegressor: the average of least-squares fits on random submatrices; and coefficients
of given members.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_X_y

from .. import _members
from .._data.rows import RowData
from .._data.sources import as_table, refuse_times
from .._data.stream import StreamData
from .._data.training import TrainingData
from .._execution.threads import Threads
from ..subsets import Design, Subsets, is_all
from .fitted import FittedEnsemble
from .inputs import (
    COUNT,
    Number,
    check_arguments,
    item_numbers,
    numbers_located,
    open_training,
    refuse_missing_sizes,
    refuse_text_columns,
    resolve_seed,
    unchanged_on_failure,
)
from .result import FittedResult


def _can_stream(model: Any) -> bool:
    """Whether members use all rows; a stream keeps no rows from which members could draw."""
    rows = model.max_samples
    if is_all(rows):
        return True
    raise AttributeError(
        f"partial_fit keeps no rows, so members cannot draw them: max_samples={rows!r} must be 1.0."
    )


class OLSEnsembleRegressor(FittedEnsemble):
    r"""Average of least-squares fits on random submatrices.

    Member :math:`i` sees rows :math:`T_i` and columns :math:`S_i` only, and the ensemble is the
    mean of the members:

    .. math:: \hat\beta = \frac1k \sum_{i=1}^k S_i \, (T_i^\top X S_i)^{+} \, T_i^\top y

    ([1]_, equations (2) and (6); exactly that with ``design="independent", fit_intercept=False``).

    No penalty appears, yet for isotropic Gaussian features, large `n_estimators` and the best
    `max_features` the limiting risk is that of optimally tuned ridge regression ([1]_, Theorem
    3.6).

    Parameters
    ----------
    n_estimators : int or inf, default=100
        Number of members, k. The excess risk over an infinite ensemble falls as 1/k. ``np.inf``,
        with ``sampling="determinantal"``: the exact mean of all members, in closed form, and
        nothing is drawn.
    max_features : int, float or array-like of shape (n_features,), default=0.5
        Columns per member: a count, a fraction of the columns (rounded down, at least one), or the
        probability of every column to be in a member. This is the regulariser: smaller shrinks
        more.
    max_samples : int or float, default=1.0
        Rows per member. With ``1.0`` all members share one Gram matrix, which is much faster;
        anything else needs X as an array, in memory or on a device. Members with fewer rows than
        columns are minimum-norm interpolators.
    sampling : {"fixed", "bernoulli", "determinantal"}, default="fixed"
        Members of fixed size; a coin flip for every column (and row), rejecting members that have
        too few rows; or subsets that repel each other as the columns' geometry asks, `max_features`
        being their expected size. The mean of all determinantal members **is** ridge regression on
        standardised columns, on any table, and dependent columns are never drawn together. They see
        all rows.
    design : {"balanced", "independent"}, default="balanced"
        Members drawn in groups of disjoint blocks (of omitted blocks, for more than half of the
        columns), or independently as in the paper. Balanced members overlap less: lower risk for
        the same number of members. Determinantal members avoid each other by themselves, so that
        ``"independent"`` is refused for them.
    scale : float or "auto", default=1.0
        Factor on the deviations of the prediction from the mean target (the paper's mu). ``"auto"``
        estimates it as the slope of the targets on leave-one-out predictions, which corrects a
        slightly wrong size.
    mixing : {"mean", "stacking"}, default="mean"
        How members are combined: all with equal weight, or with weights on the simplex that
        minimise the leave-one-out error ([1]_, equation (42)). Stacking helps on sparse signals
        with small members and hurts on dense ones, so it is used only where it beats equal weights
        by two standard errors in 5-fold cross-validation.
    fit_intercept : bool, default=True
        Whether every member fits an intercept.
    solver : {"auto", "gram", "orthogonal", "masked_cg"}, default="auto"
        How members are solved. ``"auto"`` takes the cheapest; members with fewer rows than columns
        are always minimum-norm solutions (``solver_`` is then ``"interpolator"``).

        - ``"gram"``: Cholesky on principal submatrices of one shared Gram matrix; if members draw
          rows, on a separate Gram matrix for each member (``solver_`` is then ``"member_gram"``).
        - ``"orthogonal"``: QR on the data; slower, and as accurate as least squares can be.
        - ``"masked_cg"``: all members at once by conjugate gradients, for large or sparse X; needs
          no Gram matrix. Members that draw rows are solved as with ``"gram"``.

        Members whose Gram matrix is nearly singular are refitted by ``"orthogonal"``, whatever was
        chosen.
    keep_rows : bool, default=True
        Whether pickles and files keep the training rows, from which intervals and standard errors
        are computed, where they take at most 64 MiB. Copies in memory always share them.
    n_jobs : int, default=None
        Threads over members. None means 1 unless in a ``joblib.parallel_config`` context; -1 means
        all cores. Backends of joblib only set the number of threads. Results agree to rounding
        whatever it is.
    random_state : int, RandomState instance or None, default=None
        Seed of the subsets. Member i depends on the seed and on i alone.
    verbose : int, default=0
        Whether to print progress.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Mean of the members, each zero outside its own columns, times the scale. Of ``float32`` X
        they are ``float32``, unless only ``float64`` holds them.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept; 0.0 if ``fit_intercept=False``.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.
    n_estimators_ : int or inf
        Number of members.
    scale_ : float
        The scale in use.
    weights_ : ndarray of shape (n_estimators_,)
        Weight of every member; the weights sum to one. Empty if there are infinitely many members.
    stacking_advantage_ : float or None
        How much better stacking predicted than equal weights, in standard errors; accepted above 2.
        None without ``mixing="stacking"``.
    inclusion_ : ndarray of shape (n_features,)
        Fraction of the members that hold each column; of infinitely many, its probability.
    solver_ : str
        The solver that ran.
    n_fallbacks_ : int
        Number of members whose Gram matrix was too ill-conditioned, refitted from the data.

    See Also
    --------
    member_coefficients : Coefficients of given members, nothing drawn.
    sklearn.linear_model.RidgeCV : The explicit penalty this ensemble behaves like.

    Notes
    -----
    The fitted object refers to the training data (no copy is made of a float array), because
    leave-one-out quantities are computed from them on demand by :meth:`predict_interval`,
    ``predict(return_std=True)``, :meth:`summary` and :meth:`member_coefs`. Changes of X in place
    after `fit` are noticed there (of single entries of a large X, those that move a mean or a sum
    of products by more than rounding), and changes of parameters do not matter. Copies share the
    data, and pickles and files hold them, as `keep_rows` says.

    References
    ----------
    .. [1] D. LeJeune, H. Javadi, R. G. Baraniuk. The Implicit Regularization of Ordinary Least Squares Ensembles.
       AISTATS 2020.
    .. [2] M. Derezinski, M. W. Mahoney. Determinantal Point Processes in Randomized Numerical Linear Algebra. Notices
       of the AMS, 2021.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from olsen import OLSEnsembleRegressor
    >>> X, y = make_regression(
    ...     n_samples=80, n_features=60, noise=20.0, random_state=0
    ... )
    >>> model = OLSEnsembleRegressor(
    ...     n_estimators=200, max_features=20, random_state=0
    ... ).fit(X, y)
    >>> model.predict(X[:2]).shape, model.solver_, model.n_fallbacks_
    ((2,), 'gram', 0)
    """

    __module__ = "olsen"  # where users find it: pickles and model files name no private module

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FittedEnsemble._parameter_constraints,
        "n_estimators": [COUNT, Options(Real, {np.inf})],
        "sampling": [StrOptions({"fixed", "bernoulli", "determinantal"})],
        "design": [StrOptions({"balanced", "independent"})],
        "scale": [StrOptions({"auto"}), Number(Real, None, None, closed="neither")],
        "mixing": [StrOptions({"mean", "stacking"})],
        "solver": [StrOptions(set(_members.ASKED_FOR))],
    }

    def __init__(
        self,
        n_estimators: float = 100,
        max_features: int | float | ArrayLike = 0.5,
        max_samples: int | float = 1.0,
        *,
        sampling: str = "fixed",
        design: str = "balanced",
        scale: float | str = 1.0,
        mixing: str = "mean",
        fit_intercept: bool = True,
        solver: str = "auto",
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
        self.mixing = mixing
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.keep_rows = keep_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all members and average them.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Training data. Sparse data are not made dense as a whole. Data that do not fit in
            memory: a path to a ``.npy`` or Parquet file, a large ``numpy.memmap``, an iterator of
            ``(X, y)`` or ``(X, y, weight)`` blocks (better: a function that returns one), a Dask
            array or data frame. Arrays on a GPU, if scikit-learn was told to follow them
            (``array_api_dispatch``).
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets. The name of a column for Parquet, a path for ``.npy``, None for blocks that
            bring their own.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights inside the least squares; a weight of zero equals a dropped row.

        Returns
        -------
        self : object
            The fitted estimator; unchanged if anything fails.
        """
        with unchanged_on_failure(self):
            self._check_parameters()
            data = open_training(self, X, y, sample_weight)
            design = self._design(
                data, resolve_seed(self.random_state), self.max_features, self.max_samples
            )
            fitted = self._combined(data, design)
            self._adopt(fitted, data, X, y)
            self.stacking_advantage_ = fitted.advantage
        return self

    @available_if(_can_stream)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to the rows seen so far and fit all members anew.

        Batches are folded into a triangular factor of the data (see the user guide on scale), so
        the result equals that of one `fit` on all rows, and memory does not grow with their number.
        All rows must be in use (``max_samples=1.0``).

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
        with unchanged_on_failure(self):
            self._check_parameters()
            batch = open_training(self, X, y, sample_weight, reset=self._fitted is None, min_rows=1)
            rows = batch.host_rows
            if rows is None:
                raise ValueError(
                    "partial_fit takes arrays in memory. Give files, blocks and other kinds to fit."
                )
            stream = self._rows_so_far(rows).add(rows)
            design = self._design(stream, self._seed_of_stream(), self.max_features, 1.0)
            self._adopt(self._combined(stream, design), stream, X, y)
            self.stacking_advantage_ = self._result().advantage
        return self

    def _combined(self, data: TrainingData, design: Design) -> FittedResult:
        """Fit the members and combine their coefficients with the requested weights and scale."""
        scale = None if self.scale == "auto" else float(self.scale)
        return self._fit_members(
            data, design, self.n_estimators, scale=scale, stacking=self.mixing == "stacking"
        )

    def _seed_of_stream(self) -> int:
        """Seed drawn once from `random_state`; further batches keep the seed of the first."""
        if self._fitted is not None and not isinstance(self.random_state, Integral):
            return self._fitted.design.seed
        return resolve_seed(self.random_state)

    def _check_parameters(self) -> None:
        self._validate_params()
        refuse_missing_sizes(self.max_features)
        if self.sampling == "determinantal":
            self._check_determinantal()
        if self.n_estimators == np.inf and self.mixing != "mean":
            raise ValueError(
                f"mixing={self.mixing!r} weighs single members; n_estimators=inf has none: give a"
                " number."
            )
        if self.n_estimators == np.inf and self.sampling != "determinantal":
            raise ValueError(
                "n_estimators=inf needs sampling='determinantal', whose mean over all subsets has"
                f" a closed form, not sampling={self.sampling!r}. Give a number of members."
            )

    def _check_determinantal(self) -> None:
        if not is_all(self.max_samples):
            raise ValueError(
                f"max_samples={self.max_samples!r}, but members of sampling='determinantal' see all"
                " rows. Use 1.0."
            )
        if np.ndim(self.max_features):
            raise ValueError(
                "max_features is an array of probabilities, but with sampling='determinantal' they"
                " follow from the data and the expected size. Give a number; for other prior"
                " variances see olsen.subsets.Determinantal."
            )
        if self.design == "independent":
            raise ValueError(
                "design='independent' has no meaning for sampling='determinantal', whose members"
                " avoid each other by themselves. Leave design at its default."
            )

    def _rows_so_far(self, batch: RowData) -> StreamData:
        fitted = self._fitted
        if fitted is None:
            return StreamData.empty(batch.n_columns, batch.Y.shape[1], self.fit_intercept)
        if isinstance(fitted.data, StreamData):
            if fitted.design.fit_intercept != self.fit_intercept:
                raise ValueError(
                    f"fit_intercept was changed from {fitted.design.fit_intercept} to"
                    f" {self.fit_intercept}, but earlier batches were folded in with the former and"
                    " their rows are gone. Start a new estimator."
                )
            return fitted.data
        rows = fitted.need_rows("partial_fit after fit")
        return StreamData.empty(batch.n_columns, rows.Y.shape[1], self.fit_intercept).add(rows)


# Members given by their rows and columns


def member_coefficients(
    X: Any,
    y: ArrayLike,
    feature_subsets: Sequence[ArrayLike] | Subsets,
    sample_subsets: Sequence[ArrayLike] | Subsets | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    solver: str = "auto",
    n_threads: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Least-squares coefficients of given members.

    .. math:: b_i = S_i \, (T_i^\top X S_i)^{+} \, T_i^\top y

    Equations (3) to (5) of the paper, with an intercept unless ``fit_intercept=False``.

    Status: exact. Members with fewer rows than columns get the solution of minimum norm.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data.
    y : array-like of shape (n_samples,)
        Target.
    feature_subsets : sequence of k index arrays, or Subsets
        Columns of every member, without repetition.
    sample_subsets : sequence of k index arrays, or Subsets, default=None
        Rows of every member; None means all rows for all.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights inside the least squares; rows of weight zero are left out of every member.
    fit_intercept : bool, default=True
        Whether every member fits an intercept.
    solver : str, default="auto"
        As in :class:`OLSEnsembleRegressor`.
    n_threads : int, default=1
        Threads over members.

    Returns
    -------
    coef : ndarray of shape (k, n_features)
        Zero outside each member's columns.
    intercept : ndarray of shape (k,)
        Zeros without intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from olsen import member_coefficients
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, 1.0]])
    >>> coef, intercept = member_coefficients(X, X @ [2.0, -1.0] + 5.0, [[0, 1], [0]])
    >>> coef.round(6).tolist()
    [[2.0, -1.0], [2.210526, 0.0]]
    """
    check_arguments(
        "member_coefficients", solver=solver, fit_intercept=fit_intercept, n_threads=n_threads
    )
    X = as_table(X)
    refuse_text_columns(X)
    refuse_times(y=y)
    with numbers_located(X=X, y=y):
        X, y = check_X_y(
            X, y, accept_sparse=["csc", "csr"], dtype=[np.float64, np.float32], y_numeric=True
        )
    n, p = X.shape
    features = _as_subsets(feature_subsets, p)
    samples = None if sample_subsets is None else _as_subsets(sample_subsets, n)
    if samples is not None and len(samples) != len(features):
        raise ValueError(
            f"{len(features)} feature subsets but {len(samples)} sample subsets; every member needs"
            " both."
        )
    if samples is not None and samples.sizes.min() == 0:
        raise ValueError(f"member {int(np.argmin(samples.sizes))} has no rows to be fitted to.")
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.all():  # weights of the rows that stay are positive
            rows = [np.arange(n)] * len(features) if samples is None else samples
            samples = Subsets.from_lists([subset[weight[subset] > 0] for subset in rows], n)
    data = sp.csc_array(X) if sp.issparse(X) else X
    problem = RowData(data, np.asarray(y, dtype=np.float64).reshape(-1, 1), weight, fit_intercept)
    problem.refuse_extremes()
    solution = _members.solve(problem, features, samples, solver=solver, threads=Threads(n_threads))
    coef = np.zeros((len(features), p))
    coef[np.repeat(np.arange(len(features)), features.sizes), features.indices] = solution.values[
        :, 0
    ]
    return coef, solution.intercepts[:, 0]


member_coefficients.__module__ = "olsen"  # where users find it


def _as_subsets(subsets: Sequence[ArrayLike] | Subsets, n_items: int) -> Subsets:
    if isinstance(subsets, Subsets):
        return subsets
    subsets = list(subsets)
    if not subsets:
        raise ValueError(
            "no members were given; every member is a list of its column (or row) indices."
        )
    return Subsets.from_lists([item_numbers(subset, n_items) for subset in subsets], n_items)
