"""Base class of the ensembles: steps of a fit, fitted attributes set from its result, predictions
and members.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import _members
from .._data.fits import NeedsRows
from .._data.training import TrainingData, predict_elsewhere
from .._execution.arrays import HOST, predictions
from .._execution.options import Options
from .._members.ensemble import Drawn, solve_ensemble
from .._members.limit import drawable, process_of
from .._tuning.combining import Combination, combine
from ..subsets import Design, Subsets
from . import inputs
from .fingerprints import fingerprint
from .result import FittedResult, restored
from .summary import SummaryMixin
from .uncertainty import UncertaintyMixin


class FittedEnsemble(
    SummaryMixin,
    UncertaintyMixin,
    MultiOutputMixin,
    RegressorMixin,
    BaseEstimator,
):
    """Parameters, fit and predictions of an ensemble; subclasses determine its members."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {**inputs.COMMON, "keep_rows": ["boolean"]}
    _fitted: FittedResult | None = None
    # parameters during the fit, which users may change afterwards
    _settings_of_fit: dict[str, Any] | None = None

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict by one product with ``coef_``.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to return standard errors of the *expected* prediction: how much it would vary
            over training sets. Shrinkage bias is not included; for the spread of new observations
            use :meth:`predict_interval`.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions.
        std : ndarray of the same shape
            Only if `return_std`.
        """
        check_is_fitted(self)
        if return_std:
            return self._predict_with_std(X)
        check = partial(validate_data, self, reset=False, skip_check_array=True)
        remote_prediction = predict_elsewhere(
            X, self.coef_, self.intercept_, check
        )  # X on a cluster or a device
        if remote_prediction is not None:
            return remote_prediction
        return np.asarray(
            predictions(HOST, inputs.validate_new_rows(self, X), self.coef_, self.intercept_)
        )

    def member_coefs(self, n_members: int | None = None) -> Any:
        """Coefficients of the single members, computed again from the training data.

        Parameters
        ----------
        n_members : int, default=None
            Number of members; None: all. If there are infinitely many (``n_estimators=np.inf``),
            this number is drawn.

        Returns
        -------
        coefs : csr_array of shape (n_members, n_features), or a list of arrays, one for each target
            Zero outside each member's columns; neither scale nor weights are applied.
        """
        fitted = self._result()
        if n_members is None and not np.isfinite(self.n_estimators_):
            raise ValueError(
                "this fit has infinitely many members: pass a number, for example"
                " member_coefs(1000)."
            )
        if n_members is not None:
            inputs.check_arguments("member_coefs", n_members=n_members)
            if n_members > fitted.members.number:
                raise ValueError(
                    f"n_members={n_members} exceeds the {self.n_estimators_} members of the fit."
                )
        solutions = self._members_again("member_coefs", n_members)
        coefs = []
        for t in range(self._n_targets):
            features, solution = solutions[min(t, len(solutions) - 1)]
            csr = (solution.values[:, t], features.indices, features.indptr)
            coefs.append(sp.csr_array(csr, shape=(len(features), features.n_items)))
        return coefs[0] if self.coef_.ndim == 1 else coefs

    @property
    def feature_subsets_(self) -> Any:
        """Columns of every member, a sequence of arrays, drawn again from the seed on access.

        A list of such sequences, one for each target, if targets have separate schemes.
        """
        designs = self._drawable_designs("feature_subsets_")
        subsets = [design.member_columns(self.n_estimators_) for design in designs]
        return subsets[0] if len(subsets) == 1 else subsets

    @cached_property
    def inclusion_(
        self,
    ) -> NDArray[np.float64]:  # set by fit unless members are infinitely many and none was drawn
        """Fraction of the members that hold each column; of infinitely many, its probability."""
        process = self._result().design.process
        assert process is not None
        return process[0].probabilities

    @property
    def sample_subsets_(self) -> Any:
        """Rows of every member, a sequence of arrays, drawn again from the seed."""
        return self._result().design.member_rows(self.n_estimators_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Pickles hold plain data; copies within the process share the rows.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if self._fitted is not None:
            state["_fitted"] = self._fitted.plain(self.keep_rows)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_fitted": restored(state.get("_fitted"))})

    def __copy__(self) -> Self:
        duplicate = type(self).__new__(type(self))
        duplicate.__dict__.update(self.__dict__)
        return duplicate

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        duplicate = (
            self.__copy__()
        )  # shares the result of the fit: it is frozen, and its rows may be large
        duplicate.__dict__.update(
            copy.deepcopy({**vars(self), "_fitted": None}, memo), _fitted=self._fitted
        )
        return duplicate

    def _for_file(self, rows: bool) -> Self:
        """Copy for a model file, with numbers and strings only, and with the training rows if
        `rows`.

        Parameters that are objects, such as splitters and random states, are set to their defaults:
        predictions do not depend on such parameters.
        """
        default = type(self)().get_params(deep=False)
        objects = [
            name for name, value in self.get_params(deep=False).items() if not _is_plain(value)
        ]
        duplicate = self.__copy__()
        duplicate.set_params(**{name: default[name] for name in objects})
        duplicate.keep_rows = self.keep_rows if rows else False
        return duplicate

    def _options_of_fit(self) -> Options:
        """Options of the present threads with the solver of the fit."""
        assert self._settings_of_fit is not None
        options = inputs.options_of(self)
        return replace(options, solver=self._settings_of_fit.get("solver", "auto"))

    def _as_fitted(self) -> Self:
        """New estimator with the parameters of the fit; parameters that are objects have their
        defaults.

        Quantities computed from a fit later must not depend on parameters that were set in between.
        """
        assert self._settings_of_fit is not None
        return type(self)(**copy.deepcopy(self._settings_of_fit))

    # Members, drawn and solved once more

    def _result(self) -> FittedResult:
        check_is_fitted(self)
        assert self._fitted is not None
        return self._fitted

    def _drawable_designs(self, purpose: str) -> list[Design]:
        """Sampling designs from which members can be drawn: one, or one for each target."""
        fitted = self._result()
        if all(
            design.sampling != "determinantal" or design.process is not None
            for design in fitted.designs
        ):
            return list(fitted.designs)
        return [drawable(fitted.need_data(purpose), design) for design in fitted.designs]

    def _members_again(
        self, purpose: str, n_members: int | None = None
    ) -> list[tuple[Subsets, _members.Solution]]:
        """Members solved once more from the training rows: one set, or one for each target."""
        fitted = self._result()
        problem = fitted.need_rows(purpose)
        options = self._options_of_fit()
        solutions = []
        for design in self._drawable_designs(purpose):
            drawn = Drawn.of(design, len(fitted.members) if n_members is None else n_members)
            threads = options.threads("members", len(drawn.features))
            solution = drawn.solve(problem, options.solver, threads)
            solutions.append((drawn.features, solution))
        return solutions

    # Steps of fit

    def _design(
        self, data: TrainingData, seed: int, max_features: Any, max_samples: int | float
    ) -> Design:
        """Build the sampling design of the members; it does not follow later changes of parameters."""
        columns = (
            np.array(max_features, dtype=np.float64) if np.ndim(max_features) else max_features
        )
        design = Design(
            n_rows=0,
            n_columns=0,
            seed=seed,
            max_features=columns,
            max_samples=max_samples,
            sampling=self.sampling,
            kind=self.design,
            fit_intercept=self.fit_intercept,
        )
        design = data.complete(design)
        inputs.check_shape(design)
        if self.sampling != "determinantal":
            return design
        return replace(
            design,
            process=process_of(data, design, draws=self.n_estimators != np.inf),
        )

    def _fit_members(
        self,
        data: TrainingData,
        design: Design,
        k: float,
        *,
        scale: float | None,
        stacking: bool = False,
    ) -> FittedResult:
        """Fit k members; a scale of None is estimated."""
        options = inputs.options_of(self)
        host_rows = data.host_rows
        combination = Combination(None, scale, None) if scale is not None else None
        if combination is None or stacking:
            if host_rows is None:
                parameter = "mixing='stacking'" if stacking else "scale='auto'"
                raise NeedsRows(
                    f"{parameter} needs leave-one-out residuals of all rows: {data.why_no_rows}."
                )
            combination = combine(host_rows, design, k, scale, stacking, options.quietly)
        members = solve_ensemble(data, design, 0, k, options=options, weights=combination.weights)
        result = self._fitted_to(data, [design], members, combination.scale)
        return replace(result, advantage=combination.advantage)

    def _fitted_to(
        self, data: TrainingData, designs: list[Design], members: _members.Members, scale: Any
    ) -> FittedResult:
        """The result of a fit to data, from its members."""
        host_rows = data.host_rows
        return FittedResult(
            designs,
            members,
            scale,
            fingerprint=None if host_rows is None else fingerprint(host_rows),
            why_no_rows=data.why_no_rows,
            data=data.reopen(),
        )

    def _adopt(self, fitted: FittedResult, data: TrainingData, X: Any, y: Any) -> None:
        """Set every fitted attribute from a result, and delete those of an earlier fit: the only
        place that does.
        """
        set_by_sklearn = ("n_features_in_", "feature_names_in_") if data.from_arrays else ()
        for name in [
            name for name in vars(self) if name.endswith("_") and name not in set_by_sklearn
        ]:
            delattr(self, name)
        if not data.from_arrays:
            self.n_features_in_ = data.n_columns
            if data.names is not None:
                self.feature_names_in_ = np.asarray(data.names, dtype=object)
        libraries = [kind.__module__.partition(".")[0] for kind in type(X).__mro__]
        self._frame_library = "polars" if "polars" in libraries else "pandas"
        self._target_names = inputs.names_of_targets(y)
        members = fitted.members
        single = data.single_target
        settings = self.get_params(deep=False)
        self._settings_of_fit = copy.deepcopy(
            {name: value for name, value in settings.items() if _is_plain(value)}
        )
        self._fitted = fitted
        coef, intercept = members.scaled(fitted.scale, data.dtype)
        self.coef_ = coef[0, :] if single else coef
        self.intercept_ = (
            (intercept[0] if single else intercept) if fitted.designs[0].fit_intercept else 0.0
        )
        self.n_estimators_ = members.number
        self.scale_ = fitted.scale
        self.weights_ = members.weights
        self.solver_ = members.solver
        self.n_fallbacks_ = members.n_fallbacks
        if len(members.weights):
            self.inclusion_ = members.inclusion


def _is_plain(value: Any) -> bool:
    """Whether a parameter is None, a number, a string, or a sequence of numbers and strings."""
    match value:
        case None | int() | float() | str() | np.number() | np.bool_():
            return True
        case list() | tuple():
            return all(isinstance(part, (int, float, str, np.number)) for part in value)
        case np.ndarray():
            return value.ndim == 1 and value.dtype.kind in "iufU"
    return False
