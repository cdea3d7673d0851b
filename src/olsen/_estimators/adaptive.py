"""AdaptiveOLSEnsembleRegressor: several sampling schemes, weighted by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Options, StrOptions

from .._adaptive.mixture import MixtureSelection, choose_mixture
from .._adaptive.schemes import SCHEMES
from .._data.arrangement import order_of_content
from .._data.fits import FoldFit
from .._data.implicit import stays_implicit
from .._data.modes import away_from_mode
from .._data.splits import FOLD_SEED, FOLDS
from .._data.training import TrainingData
from .._execution import memory
from .._execution.messages import warn
from .._members.ensemble import solve_by_target
from .._members.limit import drawable
from .._tuning.selection import SelectionData, SelectionMoments, SelectionRows
from ..subsets import Design
from .inputs import COUNT, options_of, row_splits
from .result import FittedResult
from .tuned import MANY_ROWS, TunedEnsemble, ranks, require_memory

Array = NDArray[np.float64]

MIN_ROWS = 10  # below, ridge and the null model alone
# Folds of more rows follow the order of the rows, in every engine: ordering 5000 x 50 numbers takes 5 % of
# the fit and 20 000 x 50 numbers 37 %, where another order of the rows moves predictions by .0004
# standard deviations of the target (.07 with 2000 x 100 numbers).
MAX_ORDERED_ROWS = 5_000


class AdaptiveOLSEnsembleRegressor(TunedEnsemble):
    r"""Ensemble of least-squares fits whose sampling schemes are weighted by cross-validation.

    The paper that this package grew from asks for sampling schemes that are chosen adaptively (its
    section 5.3). Here several schemes make one ensemble: **ridge**, **power**, **lasso** and
    **sparse** are determinantal members with prior variances of the columns that lead from dense
    signals to sparse ones; **rare** members seldom take columns that are rarely away from their
    mode, such as words and levels; **uniform** members see random columns, as in the paper; and **null** is
    the mean target, for data without signal. Every step that looks at y is repeated in random
    folds, and schemes have the weights that held-out rows support. Determinantal members are taken
    in the limit of infinitely many, which is penalised least squares in closed form (theorem, see
    the user guide). The same data give the same choice, whatever `random_state` and threads; each
    of several targets has its own.

    Parameters
    ----------
    schemes : "auto" or list of str, default="auto"
        Names among "ridge", "rare", "power", "lasso", "sparse", "uniform" and "null"; ``"auto"``:
        all. Beside "ridge", "rare" is left out if no column is away from its mode in fewer than a
        fourth of the rows; where rows are only summed, that is known of columns of zeros and ones.
        Below ten rows, which cannot tell schemes apart, ``"auto"`` is "ridge" and "null".
        Weights are shrunk towards "ridge" and "null", as far as listed, if the gain over "ridge"
        and "null" is noise. A target for which no listed scheme can be used has its mean, "null".
    n_estimators : int or inf, default=inf
        Number of members. ``np.inf``: determinantal members in the limit, and as many uniform ones
        as leave nothing to gain from more. A number: this number of members is drawn, divided among
        the schemes by weight.
    cv : None, int or cross-validation splitter, default=None
        How errors are estimated. None: in three random folds, which are drawn anew up to five times
        where rows are few; fewer than nine rows are held out one by one. An int or a splitter:
        k-fold. More than five folds are joined to five, so that ``cv=10`` compares schemes in five
        folds of a fifth of the rows each; of a splitter whose test rows do not partition the
        rows, the first five splits are used. An int cuts folds of neighbouring rows, as
        scikit-learn does, but folds of random rows where the rows are not in memory. With an
        intercept every fold must leave at least two rows of positive weight to train on.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    keep_rows : bool, default=True
        Whether pickles and files keep the training rows, from which intervals and standard errors
        are computed, where they take at most 64 MiB. Copies in memory always share them.
    n_jobs : int, default=None
        Threads over folds and members; results do not depend on it.
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
    scheme_weights_ : dict, or list of dict
        Weight of every scheme that has one, by name; a list with one dict for each target if y has
        two dimensions.
    best_score_ : float
        Minus the estimated mean squared error of prediction of the mixture, corrected for selection
        optimism; of several targets, the mean.
    cv_results_ : dict of ndarrays
        One entry for every scheme and a last one, ``"mixture"``: ``"param_scheme"``,
        ``"mean_test_score"`` (minus the mean squared error of prediction), ``"std_test_score"``
        (its standard error), ``"rank_test_score"`` and ``"weight"``. Means over targets, errors over
        those for which the scheme can be used: the lasso of a target may have no column.
    best_index_ : int
        Position of the mixture in ``cv_results_``: the last one.
    criterion_ : {"kfold"}
        How errors were estimated.
    selected_ : ndarray of shape (n_features,) or (n_targets, n_features), dtype=bool
        Columns that a sparse model would keep: the columns of the sparse scheme, whatever its
        weight; empty without that scheme.
    selection_frequency_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Fraction of the folds in which that scheme keeps each column, a measure of how far
        `selected_` can be trusted.
    cv_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Prediction of every training row from folds without it, NaN for rows of weight zero; empty
        where that is not known (rows that were only summed, splitters that leave rows out).
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X had any that are strings.
    n_estimators_ : int or inf
        Number of members.
    scale_ : float or ndarray of shape (n_targets,)
        One minus the weight of the null model.
    weights_ : ndarray of shape (n_estimators_,)
        Weight of every member.
    inclusion_ : ndarray of shape (n_features,)
        Probability of every column to be in a member.
    solver_ : str
        The solver that ran.
    n_fallbacks_ : int
        Number of drawn members whose Gram matrix was too ill-conditioned; zero for infinitely many,
        whose uniform members have a small penalty.

    See Also
    --------
    OLSEnsembleRegressorCV : The paper's ensemble, with its size tuned.
    sklearn.linear_model.RidgeCV : Ridge regression with its penalty chosen by leave-one-out.

    Notes
    -----
    Correction of the estimated error for selection optimism, shrinkage of the weights: status
    heuristic, measured in the user guide.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import AdaptiveOLSEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = AdaptiveOLSEnsembleRegressor().fit(X, y)
    >>> round(sum(model.scheme_weights_.values()), 9)
    1.0
    >>> model.cv_results_["param_scheme"][model.best_index_]
    'mixture'
    """

    __module__ = "olsen"  # where users find it: pickles and model files name no private module

    _merges_repeated_rows = True
    _keeps_integers = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **TunedEnsemble._parameter_constraints,
        "schemes": [StrOptions({"auto"}), "array-like"],
        "n_estimators": [COUNT, Options(Real, {np.inf})],
        "cv": ["cv_object"],
    }

    def __init__(
        self,
        schemes: str | Sequence[str] = "auto",
        *,
        n_estimators: float = np.inf,
        cv: Any = None,
        fit_intercept: bool = True,
        keep_rows: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.schemes = schemes
        self.n_estimators = n_estimators
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.keep_rows = keep_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # Steps of fit

    def _check_parameters(self) -> None:
        self._validate_params()
        names = [] if isinstance(self.schemes, str) else list(self.schemes)
        unknown = [name for name in names if name not in list(SCHEMES)]
        if unknown or (not isinstance(self.schemes, str) and not names):
            raise ValueError(
                f"schemes={self.schemes!r} must be 'auto' or a list of some of"
                f" {', '.join(map(repr, SCHEMES))}"
                f"{f'; there is no scheme {unknown[0]!r}' if unknown else ''}."
            )

    def _scheme_names(self, n_rows: int, *, warns: bool) -> frozenset[str]:
        """Names of the schemes to compare: few rows cannot distinguish all of them."""
        if not isinstance(self.schemes, str):
            return frozenset(self.schemes)
        if n_rows >= MIN_ROWS:
            return frozenset(SCHEMES)
        if warns:
            warn(
                f"{n_rows} rows cannot distinguish sampling schemes: below {MIN_ROWS} rows,"
                " schemes='auto' takes 'ridge' and 'null' alone. Give a list of schemes to compare"
                " others."
            )
        return frozenset(("ridge", "null"))

    def _prepared(self, source: TrainingData) -> TrainingData:
        """The data to choose from; folds of up to MAX_ORDERED_ROWS rows follow their content.

        Fewer than MANY_ROWS rows are put into such an order later, in every choice.
        """
        on_host = source.space.on_host
        data = source.loaded_if_small(MAX_ORDERED_ROWS + 1 if on_host else MANY_ROWS)
        rows = data.rows
        if rows is None or not MANY_ROWS <= rows.shape[0] <= MAX_ORDERED_ROWS:
            return data
        return replace(rows, order=order_of_content(rows.on_host()))

    def _selection_data(self, data: TrainingData, groups: Any = None) -> SelectionData:
        """Data for selection: rows, or moments of folds if rows are many or not in memory."""
        rows = data.host_rows
        if rows is None:
            folds = self._folds_with_rows_to_train_on(data)
            on_device = data.rows
            if on_device is None or on_device.order is None:
                return SelectionMoments(folds)
            return SelectionMoments(folds, away_from_mode(on_device.on_host()))
        splits = row_splits(self.cv, rows, groups)
        n, p = rows.shape
        by_index = splits is None and n >= max(MANY_ROWS, p)
        from_moments = by_index and not stays_implicit(rows)
        require_memory(rows, None if splits is None else len(splits), True, from_moments)
        if stays_implicit(rows) and np.isfinite(self.n_estimators):
            purpose = f"Drawing determinantal members from {n} dense rows and {p} columns"
            memory.require(24.0 * n * p, purpose, "n_estimators=np.inf leaves rows as they are.")
        if from_moments:
            return SelectionMoments(rows.fold_moments(FOLDS, FOLD_SEED), away_from_mode(rows))
        return SelectionRows(rows, splits, by_index)

    def _select(self, candidates: SelectionData, *, part: bool) -> list[MixtureSelection]:
        threads = options_of(self).threads("paths", "an unknown number")
        names = self._scheme_names(candidates.shape[0], warns=not part)
        return choose_mixture(candidates, names, float(self.n_estimators), threads)

    def _fit_selection(
        self, data: TrainingData, selection: list[MixtureSelection], seed: int
    ) -> FittedResult:
        designs = [self._mixture_design(data, of_target, seed) for of_target in selection]
        members = solve_by_target(data, designs, float(self.n_estimators), options=options_of(self))
        rows = data.host_rows
        folds = _fold_fits(selection, None if rows is None else rows.Y)
        if rows is not None and folds[0].residual is None:
            n_rows = rows.shape[0]
            folds = rows.with_errors(folds, FOLD_SEED, n_rows, n_rows)
        scales = [1 - of_target.choice.weights.get("null", 0.0) for of_target in selection]
        scale = scales[0] if len(selection) == 1 else np.array(scales)
        return replace(self._fitted_to(data, designs, members, scale), folds=folds)

    def _mixture_design(self, data: TrainingData, selection: MixtureSelection, seed: int) -> Design:
        """Build the sampling design of a mixture."""
        choice = selection.choice
        weights = [scheme.weight for scheme in choice.schemes]
        if "uniform" in choice.weights or not choice.schemes:
            weights.append(choice.weights.get("uniform", 0.0))
        scheme_weights = np.array(weights)
        design = Design(
            n_rows=0,
            n_columns=0,
            seed=seed,
            max_features=selection.uniform_size,
            sampling="determinantal",
            fit_intercept=self.fit_intercept,
            scheme_weights=scheme_weights / max(scheme_weights.sum(), 1e-300),
            prior_variances=np.array([scheme.prior_variances for scheme in choice.schemes]).reshape(
                -1, data.n_columns
            ),
            penalties=np.array([scheme.penalty for scheme in choice.schemes]),
            uniform_penalty=choice.uniform_penalty,
            drawn_columns=selection.drawn_columns,
        )
        design = data.complete(design)
        return design if np.isinf(self.n_estimators) else drawable(data, design)

    def _adopt_selection(self, selection: list[MixtureSelection], data: TrainingData) -> None:
        choices = [of_target.choice for of_target in selection]
        fitted = self._result()
        self.criterion_ = "kfold"
        self._mse_of_targets = [float(choice.mse) for choice in choices]
        self.best_score_ = -float(np.mean(self._mse_of_targets))
        self.cv_results_ = _results(selection)
        self.best_index_ = len(self.cv_results_["param_scheme"]) - 1
        targets: Any = 0 if data.single_target else slice(None)
        self.scheme_weights_ = [choice.weights for choice in choices][targets]
        self.selected_ = np.array([choice.selected for choice in choices])[targets]
        self.selection_frequency_ = np.array([choice.selection_frequency for choice in choices])[
            targets
        ]
        if not data.single_target:
            self.scale_ = np.atleast_1d(fitted.scale)
        if np.isinf(self.n_estimators_):
            self.inclusion_ = np.mean(
                [_inclusion(of_target, data.n_columns) for of_target in selection], axis=0
            )
        self.cv_prediction_ = self._by_given_row(self._held_out(selection, data), data)

    def _held_out(self, selection: list[MixtureSelection], data: TrainingData) -> Array | None:
        """Prediction (n, q) of every row from folds without it."""
        predictions = [
            of_target.prediction for of_target in selection if of_target.prediction is not None
        ]
        if len(predictions) == len(selection):
            return np.concatenate(predictions, axis=1)
        fitted = self._result()
        rows = data.host_rows
        if rows is not None and fitted.splits is None and fitted.folds is not None:
            return rows.held_out_predictions(fitted.folds, FOLD_SEED)
        return None


def _fold_fits(selection: list[MixtureSelection], Y: Array | None) -> list[FoldFit]:
    """The mixtures of all targets without each fold, scale included; `Y` (n, q) are the targets of
    rows in memory.

    Residuals by which weights were chosen are smaller than residuals of new rows, and are enlarged
    to the estimated error.
    """
    choices = [of_target.choice for of_target in selection]
    enlargement = np.array([choice.enlargement for choice in choices])
    fits = []
    for of_targets in zip(*(choice.fits for choice in choices), strict=True):
        coef = np.stack([fit.coef for fit in of_targets])
        fit = FoldFit(coef, np.array([fit.intercept for fit in of_targets]), None)
        residuals = [fit.residual for fit in of_targets if fit.residual is not None]
        if Y is not None and len(residuals) == len(of_targets):
            residual = np.stack(residuals, axis=1)
            y = np.stack([Y[fit.rows, t] for t, fit in enumerate(of_targets)], axis=1)
            fit = fit._replace(residual=residual * enlargement, prediction=y - residual)
        fits.append(fit)
    return fits


def _inclusion(selection: MixtureSelection, p: int) -> Array:
    """Probability of every column to be in a member."""
    choice = selection.choice
    drawn = np.arange(p) if selection.drawn_columns is None else selection.drawn_columns.columns
    of_uniform = np.zeros(p)
    of_uniform[drawn] = selection.uniform_size / len(drawn)
    null = choice.weights.get("null", 0.0)
    if null == 1:
        return of_uniform
    weighted = choice.weights.get("uniform", 0.0) * of_uniform
    for scheme in choice.schemes:
        weighted = weighted + scheme.weight * scheme.inclusion
    return np.asarray(weighted / (1 - null))


def _results(selection: list[MixtureSelection]) -> dict[str, NDArray[Any]]:
    """Errors and weights of the schemes, and of the mixture; means over the targets for which a scheme
    can be used.
    """
    choices = [of_target.choice for of_target in selection]
    names = [name for name in SCHEMES if any(name in choice.errors for choice in choices)]
    usable = [[choice for choice in choices if name in choice.errors] for name in names]
    mse = [
        float(np.mean([choice.errors[name] for choice in of_scheme]))
        for name, of_scheme in zip(names, usable, strict=True)
    ]
    standard_errors = [
        float(np.mean([choice.standard_errors[name] for choice in of_scheme]))
        for name, of_scheme in zip(names, usable, strict=True)
    ]
    weight = [
        float(np.mean([choice.weights.get(name, 0.0) for choice in choices])) for name in names
    ]
    mse.append(float(np.mean([choice.mse for choice in choices])))
    standard_errors.append(float(np.mean([choice.standard_error for choice in choices])))
    scores = -np.array(mse)
    return {
        "param_scheme": np.array([*names, "mixture"], dtype=object),
        "mean_test_score": scores,
        "std_test_score": np.array(standard_errors),
        "rank_test_score": ranks(scores),
        "weight": np.array([*weight, 1.0]),
    }
