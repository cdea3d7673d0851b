"""Base class of the tuned ensembles: folds, the steps of a fit, and standard errors that repeat the
choice.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from .._data.implicit import MAX_PRODUCT_ROWS, stays_implicit
from .._data.moment_data import MomentData
from .._data.moments import Moments
from .._data.rows import RowData
from .._data.splits import FOLD_SEED, FOLDS, MOST_FOLDS, REPEATS
from .._data.standardised import few_columns
from .._data.training import TrainingData
from .._execution import memory
from .._execution.messages import progress_of_long_work
from .._members.implicit_products import MAX_STEPS
from .._tuning.selection import SelectionData
from ..subsets import Design, is_count
from .effects import columns_of_model
from .error_estimates import Refits
from .fitted import FittedEnsemble
from .inputs import (
    nothing_to_fit,
    open_training,
    resolve_seed,
    unchanged_on_failure,
    warn_repeated_rows,
)
from .result import FittedResult
from .summary import write_report
from .uncertainty import once

Array = NDArray[np.float64]

# vectors of coefficients that a choice from implicit rows holds: members and paths of all folds
IMPLICIT_COEFFICIENTS = 250
# data with fewer rows are loaded into memory; from here on the adaptive model uses moments
MANY_ROWS = 1000
N_PARTS = 30  # of the rows, on which a choice is repeated for standard errors


class _NoMethod:
    """A method that users may expect but that does not exist: the AttributeError says what to do
    instead.
    """

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __get__(self, estimator: Any, owner: type) -> Any:
        raise AttributeError(self.instead)


class TunedEnsemble(FittedEnsemble):
    """Fit of an ensemble that is chosen by held-out rows; subclasses implement the choice."""

    # whether rows that repeat others with their targets are merged
    _merges_repeated_rows: ClassVar[bool]
    _keeps_integers: ClassVar[bool] = False  # whether X of many small integers is not widened

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose the ensemble and fit it.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Training data. Files, blocks, Dask collections and arrays on a GPU as in
            :class:`OLSEnsembleRegressor`; data with fewer rows than columns or than 1000 (the adaptive
            model: files, blocks and Dask collections of up to 5000 rows) are loaded into memory.
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
            keeps_integers = self._keeps_integers
            source = open_training(self, X, y, sample_weight, keeps_integers=keeps_integers)
            data = self._prepared(source)
            candidates = self._selection_data(data, groups)
            if data.host_rows is not None and candidates.splits is None:
                merges_rows = self._merges_repeated_rows and candidates.has_rows
                warn_repeated_rows(data.host_rows, merges_rows=merges_rows)
            selection = self._select(candidates, part=False)
            fitted = self._fit_selection(data, selection, resolve_seed(self.random_state))
            n_groups = None if groups is None else _count_groups(groups, data)
            if data.space.on_host and not source.space.on_host:
                fitted = replace(fitted, members=fitted.members.in_space(source.space))
            described = data if source.space.on_host else source
            fitted = replace(fitted, splits=candidates.splits, n_groups=n_groups)
            self._adopt(fitted, described, X, y)
            self._adopt_selection(selection, data)
        return self

    partial_fit = _NoMethod(
        "tuned ensembles have no partial_fit, because they are chosen in folds of all rows: give"
        " all rows to fit, as a function that returns an iterator of blocks where they do not fit"
        " in memory, or use OLSEnsembleRegressor.partial_fit with a given max_features."
    )

    def get_metadata_routing(self) -> MetadataRouter:
        """Route ``groups`` to the splitter and ``sample_weight`` to `fit` and `score`.

        Returns
        -------
        routing : MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        if self.cv is None or isinstance(self.cv, str):
            return router
        return router.add(
            splitter=check_cv(self.cv),
            method_mapping=MethodMapping().add(caller="fit", callee="split"),
        )

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the report page of the command ``olsen fit``: errors, how members were chosen,
        effects, residuals.

        Parameters
        ----------
        path : path
            Name of the HTML file, which is self-contained. An existing file is replaced once the
            new one is complete.

        Notes
        -----
        The model must have one target, and its training rows.
        """
        check_is_fitted(self)
        write_report(self, path, columns_of_model(self))

    # The choice, implemented by subclasses

    @abstractmethod
    def _select(self, candidates: SelectionData, *, part: bool) -> Any:
        """Choose the ensemble; with `part` of the rows, requested sizes that are too large are
        clipped.
        """

    @abstractmethod
    def _fit_selection(self, data: TrainingData, selection: Any, seed: int) -> FittedResult:
        """Fit the chosen ensemble."""

    @abstractmethod
    def _adopt_selection(self, selection: Any, data: TrainingData) -> None:
        """Set the attributes that describe the choice."""

    @abstractmethod
    def _selection_data(self, data: TrainingData, groups: Any = None) -> SelectionData:
        """Data for selection: rows, or moments of folds."""

    # Folds

    def _prepared(self, source: TrainingData) -> TrainingData:
        """The data to choose from: few rows are loaded into memory."""
        return source.loaded_if_small(MANY_ROWS)

    def _groups(self, groups: Any = None, **unknown: Any) -> Any:
        """Return the groups after checking that `cv` keeps them together; raise for other
        parameters of fit.
        """
        if unknown:
            raise TypeError(
                f"fit takes X, y, sample_weight and groups, not {next(iter(unknown))!r}."
            )
        if groups is None:
            return None
        try:
            if self.cv is None or isinstance(self.cv, (str, int)):
                raise TypeError
            process_routing(self, "fit", groups=groups)
        except TypeError:
            raise ValueError(
                f"groups were given, but cv={self.cv!r} does not keep them together, so errors"
                " would be those of rows whose group is still in the data. Use cv=GroupKFold() or"
                " another splitter that takes groups."
            ) from None
        return groups

    def _folds_with_rows_to_train_on(self, data: TrainingData) -> list[Moments]:
        """Moments of random folds, or an error if the rows outside a fold are used up by the
        intercept.
        """
        folds = data.fold_moments(self._count_folds(), FOLD_SEED)
        n_rows = sum(fold.n_rows for fold in folds)
        for number, fold in enumerate(folds, 1):
            if self.fit_intercept and self.cv != "gcv" and n_rows - fold.n_rows == 1:
                raise ValueError(
                    nothing_to_fit(f"fold {number} of {len(folds)} random ones of {n_rows} rows")
                )
        return folds

    def _count_folds(self) -> int:
        """Number of folds for data that are not in memory, or an error if `cv` needs every row."""
        if self.cv is None or self.cv == "gcv":
            return FOLDS
        if isinstance(self.cv, int) and self.cv >= 2:
            return self.cv
        raise ValueError(
            f"cv={self.cv!r} needs X as an array in memory. Elsewhere None means {FOLDS}-fold, an"
            " int that many folds of random rows, and OLSEnsembleRegressorCV takes 'gcv' too."
        )

    # Uncertainty that repeats the choice

    @once
    def _refits(self, purpose: str) -> Refits:
        fitted = self._result()
        data = fitted.need_data(purpose)
        count, n = _rows_of_a_part(data, fitted.design)
        if count < 2 + fitted.design.fit_intercept:  # folds of a smaller part leave nothing to fit
            shape = (0, self._n_targets, self.n_features_in_)
            return Refits(np.empty(shape), np.empty(shape[:2]), count / n)
        estimator = self._as_fitted()
        estimator.set_params(**_settings_for_part(estimator, count, n))
        show_progress = progress_of_long_work(self, "fits for standard errors", N_PARTS)
        refits = []
        for part in _parts(data, count, n):
            refits.append(estimator._coefficients(part))
            show_progress(len(refits))
        coefs, intercepts = zip(*refits, strict=True)
        return Refits(np.stack(coefs), np.stack(intercepts), count / n)

    def _coefficients(self, data: TrainingData) -> tuple[Array, Array]:
        """Coefficients (q, p) and intercepts (q,) of a fit to other data; the estimator does not
        change.
        """
        selection = self._select(self._selection_data(data), part=True)
        fitted = self._fit_selection(data, selection, 0)
        coef, intercept = fitted.members.scaled(fitted.scale, np.float64)
        return np.asarray(coef), np.asarray(intercept)

    def _by_given_row(self, prediction: Array | None, data: TrainingData) -> Array:
        """Held-out predictions for all rows given to fit, NaN for rows of weight zero; empty if not
        available.
        """
        if prediction is None:
            return np.empty(0)
        design = self._result().designs[0]
        if design.kept_rows is not None:
            for_all_rows = np.full((design.n_given or design.n_rows, prediction.shape[1]), np.nan)
            for_all_rows[design.kept_rows] = prediction
            prediction = for_all_rows
        return prediction[:, 0] if data.single_target else prediction


def require_memory(
    problem: RowData,
    n_splits: int | None,
    uses_schemes: bool,
    from_moments: bool,
    path_columns: int = 0,
) -> None:
    """Raise if the choice would take more memory than is available, before anything is made dense.

    Measured peaks of 22 fits, dense and sparse, from 90 x 8000 to 3000 x 2000 numbers, were 0.84 to
    1.45 times the estimate, but for two: 2.9 with a Gram matrix of 5000 sparse columns in addition,
    and 2.5 for uniform members alone of 900 x 5000 (status: heuristic).
    """
    n, p = problem.shape
    if uses_schemes and stays_implicit(problem):
        purpose = f"Choosing weights from {n} rows and {p} columns, which stay as they are,"
        memory.require(_bytes_of_implicit_rows(problem), purpose, "Use fewer columns.")
        return
    dense = 8.0 * n * p
    gram = 8.0 * p * p
    random_folds = FOLDS * next((repeats for n_rows, repeats in REPEATS if n < n_rows), 1)
    folds = random_folds if n_splits is None else min(n_splits, MOST_FOLDS)
    becomes_dense = sp.issparse(problem.X) and not from_moments
    if not uses_schemes:  # a copy of `path_columns`, and the working arrays of the paths
        needed = 24.0 * n * path_columns
        becomes_dense = becomes_dense and path_columns == p
    elif (
        from_moments
    ):  # Gram matrices of the folds and of their complements, scaled copies, and factors
        needed = 25 * gram
    elif few_columns((n, p)):
        needed = 25 * gram + 2 * dense
    else:  # all rows, the rows of every fold and of its complement, a few working copies, and products of rows
        needed = (folds + 5) * dense + 80.0 * n * n
    purpose = f"Choosing sizes and weights from {n} rows and {p} columns"
    if becomes_dense:
        purpose += ", which makes sparse X dense,"
    instead = "Use fewer columns"
    if path_columns and path_columns < p:
        instead = "Give smaller sizes as max_features, of which a batch has eight"
    elif sp.issparse(problem.X):
        instead = (
            "AdaptiveOLSEnsembleRegressor, and OLSEnsembleRegressor with a given max_features, take"
            " sparse X as it is; or use fewer columns"
        )
    memory.require(needed, purpose, f"{instead}.")


def _bytes_of_implicit_rows(problem: RowData) -> float:
    """Memory of a choice from rows that stay implicit: copies of X as it is stored, vectors of its
    shape, and products of few rows.
    """
    n, p = problem.shape
    X = problem.X
    stored = X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes
    products = 10.0 * n * n if n <= MAX_PRODUCT_ROWS else 0.0
    vectors = IMPLICIT_COEFFICIENTS * p + MAX_STEPS * min(n, p)
    return 3.0 * float(stored) + 8.0 * (vectors + products)


def _count_groups(groups: Any, data: TrainingData) -> int:
    """Number of groups of rows with positive weight; groups without weight do not count."""
    weighted = np.asarray(groups)
    if data.kept_rows is not None:
        weighted = weighted[data.kept_rows]
    return len(np.unique(weighted))


def _rows_of_a_part(data: TrainingData, design: Design) -> tuple[int, int]:
    """Number of units in a part, and in all: units are rows in memory, otherwise groups of rows."""
    n = design.n_rows
    if data.host_rows is None:
        n = int(np.clip(n // 10, 6, 20))  # groups of rows: twenty, or fewer if there are few rows
        if design.n_rows < n:
            return 0, n
    return max(1, min(n - 1, round(0.8 * n))), n  # four fifths of the rows


def _settings_for_part(model: Any, count: int, n: int) -> dict[str, Any]:
    """Parameters for a fit to `count` of n rows.

    An int as `cv` and `max_samples` are reduced, because the part may have fewer rows than the
    requested folds or than the rows of a member. Splitters are at their default already: a splitter
    knows the rows of all data only.
    """
    settings = {"cv": model.cv, "verbose": 0}
    if isinstance(model.cv, int):
        settings["cv"] = min(model.cv, count)
        if (
            count - -(-count // settings["cv"]) <= model.fit_intercept
        ):  # rows of the smallest training set
            settings["cv"] = None
    max_samples = model.get_params(deep=False).get("max_samples", 1.0)
    in_part = [
        max(1 + model.fit_intercept, int(rows) * count // n) if is_count(rows) else rows
        for rows in np.ravel(np.asarray(max_samples, dtype=object)).tolist()
    ]
    if "max_samples" in model.get_params(deep=False):
        settings["max_samples"] = in_part if np.ndim(max_samples) else in_part[0]
    return settings


def _parts(data: TrainingData, count: int, n: int) -> Iterator[TrainingData]:
    """Thirty random parts of the rows, or of the moments of groups of rows, one after the other."""
    rng = np.random.default_rng(FOLD_SEED)
    parts = (rng.permutation(n)[:count] for _ in range(N_PARTS))
    rows = data.host_rows
    if rows is not None:
        return (rows.take(np.sort(row_indices)) for row_indices in parts)
    groups = [moments.on_host() for moments in data.fold_moments(n, FOLD_SEED + 1)]
    return (MomentData.from_moments([groups[i] for i in indices]) for indices in parts)


def ranks(scores: Array) -> NDArray[np.int32]:
    """Rank of every score, from 1 for the largest; ties get the smaller rank, as in scikit-learn."""
    return np.asarray([1 + int(np.sum(scores > score)) for score in scores], dtype=np.int32)
