"""The result of a fit, the one place that adopts it, and what every fitted ensemble can do with it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .. import _engines, _members
from .._engines import Engine, NeedsRows, Options, Stream
from .._execution import callbacks
from .._execution.threads import Sharing
from .._members import Members
from .._moments import DistinctRows, Triangle
from .._selection.curve import SizeCurve
from .._selection.paths import Splits
from .._selection.tuning import Candidate, Request, Selection
from ..subsets import Design, Subsets
from .certainty import Certainty
from .inputs import check_count, options_of, validate_new_rows
from .kept_rows import KeptRows
from .left_out import LeftOut
from .shown import Shown
from .uncertain import Uncertain

__all__ = ["FittedEnsemble", "FittedResult"]

NOT_IN_PICKLES = (
    "pickles, and copies sent to other processes, hold coefficients only. Call fit with the training data once more "
    "where it is needed. For predict_interval alone olsen.save and olsen.load keep what it needs, and tuned models "
    "have method='normal'"
)
NOT_IN_FILE = "the model came from a file, which holds at most what predict_interval needs. Call fit once more"
COLUMNS = ("n_features_in_", "feature_names_in_")  # which scikit-learn notes for arrays


@dataclass(frozen=True)
class FittedResult:
    """Everything that is known after a fit; the fitted attributes are read off it.

    Parameters
    ----------
    design : Design
        How members are drawn.
    members : Members or None
        What solving them gave; None in a model that came from a pickle.
    scale : float
        The scale in use.
    options : Options or None
        How they were solved.
    advantage : float or None
        Of stacking over equal weights.
    selection : Selection or None
        What tuning found.
    curve : SizeCurve or None
        The part of it that pickles keep.
    rows : KeptRows or None
        The training rows.
    why_no_rows : str
        Why there are none, and what to do.
    stream : Stream or None
        What `partial_fit` goes on from.
    random_state : object
        What the seed came from: the same object means the same members in a warm start.
    evidence : tuple or None
        Request and candidates of tuning, kept for a warm start only.
    left_out : LeftOut or None
        What intervals need, in a model that came from a file.
    data : Engine or None
        The training data, to be read again: rows in memory or on a device, files, collections.
    splits : list of tuple or None
        Rows to train and to test on, where tuning had such.
    n_groups : int or None
        Groups that these keep together.
    """

    design: Design
    members: Members | None
    scale: float
    options: Options | None = None
    advantage: float | None = None
    selection: Selection | None = None
    curve: SizeCurve | None = None
    rows: KeptRows | None = None
    why_no_rows: str = ""
    stream: Stream | None = None
    random_state: Any = None
    evidence: tuple[Request, list[Candidate]] | None = None
    left_out: LeftOut | None = None
    data: Engine | None = None
    splits: Splits | None = None
    n_groups: int | None = None

    @cached_property
    def certainty(self) -> Certainty:
        """How sure it is; computed when it is asked for, and kept."""
        return Certainty(self)

    def kept_rows(self, what: str) -> KeptRows:
        """The training rows, or an error that says why there are none and what to do."""
        if self.rows is None:
            raise NeedsRows(f"{what} needs the training rows: {self.why_no_rows}.")
        return self.rows

    def plain(self) -> dict[str, Any]:
        """What a pickle or a model file keeps, as numbers, texts and arrays: no room of this package is named."""
        stream = self.stream
        kept = {}
        if self.left_out is not None or self.why_no_rows == NOT_IN_FILE:
            kept = {"left_out": None if self.left_out is None else self.left_out.plain()}
        return {
            "design": self.design.plain(),
            "scale": self.scale,
            "curve": None if self.curve is None else self.curve.plain(),
            "stream": None if stream is None else stream.triangle.plain(),
            "distinct": None if stream is None else [digest.hex() for digest in sorted(stream.distinct.seen)],
            **kept,
        }

    def without_rows(self, intervals: bool, sharing: Sharing) -> FittedResult:
        """What a file holds: with what intervals need if that was asked for and the training rows are there."""
        left = self.left_out
        if self.rows is not None and self.n_groups is not None:
            left = self.certainty.folded.as_left_out(self.design.n_rows, self.design.n_columns)
        elif self.rows is not None:
            left = self.certainty.deletions.left_out(sharing, plus=intervals)
        elif left is not None and not intervals:
            left = replace(left, changes=None)
        return replace(self, members=None, rows=None, evidence=None, left_out=left, why_no_rows=NOT_IN_FILE)


class FittedEnsemble(Shown, Uncertain, MultiOutputMixin, RegressorMixin, callbacks.CallbackSupportMixin, BaseEstimator):
    """What both ensembles have in common once they are fitted: predictions, uncertainty, members."""

    _fitted: FittedResult | None = None

    coef_: NDArray[Any]
    intercept_: Any
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    n_estimators_: float
    scale_: float
    weights_: NDArray[np.float64]
    stacking_advantage_: float | None
    solver_: str
    n_fallbacks_: int

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> NDArray[Any]: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[NDArray[Any], NDArray[Any]]: ...

    def predict(self, X: Any, return_std: bool = False) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
        """Predict by one product with ``coef_``.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to return standard errors of the *expected* prediction: how much it would vary over training sets.
            Shrinkage bias is not in them; for the spread of new observations use :meth:`predict_interval`.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions.
        std : ndarray of the same shape
            Only if `return_std`.
        """
        check_is_fitted(self)
        if not return_std:
            names = getattr(self, "feature_names_in_", None)
            there = _engines.predict(X, self.coef_, self.intercept_, type(self).__name__, names)
            return self._predict_here(validate_new_rows(self, X)) if there is None else there
        rows, back = self._on_host(X)
        y, std = self._predict_on_host(rows), self._std(rows)
        return (back(y[:, 0]), back(std[:, 0])) if self.coef_.ndim == 1 else (back(y), back(std))

    def member_coefs(self, n_members: int | None = None) -> Any:
        """Coefficients of the single members, solved again from the training data.

        Parameters
        ----------
        n_members : int, default=None
            How many of them; None: all. Of infinitely many (``n_estimators=np.inf``) so many are drawn.

        Returns
        -------
        coefs : csr_array of shape (n_members, n_features), or a list of them, one for each target
            Zero outside each member's columns; neither scale nor weights are applied.
        """
        fitted = self._result()
        if n_members is None and not np.isfinite(self.n_estimators_):
            raise ValueError("the members of this fit are infinitely many: say how many to draw, member_coefs(1000).")
        if n_members is not None:
            check_count("n_members", n_members)
        if fitted.members is not None and n_members is not None and n_members > fitted.members.number:
            raise ValueError(f"n_members={n_members} exceeds the {self.n_estimators_} members of the fit.")
        _, features, solution = self._members_again("member_coefs", n_members)
        shape = (len(features), features.n_items)
        coefs = [sp.csr_array((v, features.indices, features.indptr), shape=shape) for v in solution.values.T]
        return coefs[0] if self.coef_.ndim == 1 else coefs

    @property
    def feature_subsets_(self) -> Any:
        """Columns of every member, a sequence of arrays, drawn again from the seed as they are asked for."""
        return self._result().design.member_columns(self.n_estimators_)

    @cached_property
    def inclusion_(self) -> NDArray[np.float64]:  # set by fit but for infinitely many members, whose limit needs none
        """Share of the members that hold each column; of infinitely many, its probability."""
        process = self._result().design.process
        assert process is not None
        return process.probabilities

    @property
    def sample_subsets_(self) -> Any:
        """Rows of every member, a sequence of arrays, drawn again from the seed."""
        return self._result().design.member_rows(self.n_estimators_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Pickles hold plain data; copies in this process keep the rows.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if self._fitted is not None:
            state["_fitted"], state["inclusion_"] = self._fitted.plain(), self.inclusion_
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        plain = state.pop("_fitted", None)
        super().__setstate__(state)
        if plain is not None:
            self._fitted = _from_plain(plain)

    def __copy__(self) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = self.__copy__()
        for name, value in vars(self).items():
            if name != "_fitted":  # frozen, and the rows in it may be large
                other.__dict__[name] = copy.deepcopy(value, memo)
        if self._fitted is not None:  # a warm start of the copy goes on from its own random state
            state = memo.get(id(self._fitted.random_state), self._fitted.random_state)
            other._fitted = replace(self._fitted, random_state=state)
        return other

    # What fit is made of

    def _result(self) -> FittedResult:
        check_is_fitted(self)
        assert self._fitted is not None
        return self._fitted

    def _members_again(
        self, what: str, n_members: int | None = None
    ) -> tuple[_members.Problem, Subsets, _members.Solution]:
        """The training rows with members solved from them once more; an error if all are not those of the fit."""
        fitted = self._result()
        rows, members = fitted.kept_rows(what), fitted.members
        assert members is not None
        features, samples = fitted.design.draw(0, len(members) if n_members is None else n_members)
        options = options_of(self)
        sharing = options.sharing("members", len(features))
        problem = replace(rows.problem)  # without the moments of then
        solution = _members.solve(problem, features, samples, solver=options.solver, sharing=sharing)
        if len(features) < members.number:
            again = fitted.certainty.data_now("member_coefs").solve(fitted.design, 0, members.number, members.weights)
        else:
            again = Members.of(problem, features, samples, solution, members.weights)
        rows.check_members(what, again.coef, again.intercept, members)
        return problem, features, solution

    def _for_file(self, intervals: bool) -> Self:
        """A copy of numbers and texts: it refers to no training rows, to no names of columns (a file has its own) and
        to no objects, such as splitters and random states, which parameters may be but which predict nothing.
        """
        other = self.__copy__()
        other.__dict__.pop("feature_names_in_", None)
        default = type(self)()
        objects = [name for name, value in self.get_params(deep=False).items() if not _is_plain(value)]
        other.set_params(**{name: getattr(default, name) for name in objects})
        other._fitted = self._result().without_rows(intervals, options_of(self).quietly)
        return other

    def _predict_here(self, X: Any) -> NDArray[Any]:
        return np.asarray(np.asarray(X @ self.coef_.T) + self.intercept_)

    def _adopt(self, fitted: FittedResult, engine: Engine) -> None:
        """Set every fitted attribute from a result, and clear what an earlier fit left: the one place that does."""
        for name in [name for name in vars(self) if _is_fitted_attribute(name)]:
            delattr(self, name)
        if not engine.arrays:
            self.n_features_in_ = engine.n_columns
            self.__dict__.pop("feature_names_in_", None)
            if engine.names is not None:
                self.feature_names_in_ = np.asarray(engine.names, dtype=object)
        self._fitted = fitted
        self._set_members(fitted, engine)
        self._set_selection(fitted, engine)

    def _set_members(self, fitted: FittedResult, engine: Engine) -> None:
        members = fitted.members
        assert members is not None
        coef, intercept = members.scaled(fitted.scale, engine.dtype)
        single = engine.single_target
        self.coef_ = coef[0, :] if single else coef
        self.intercept_ = (intercept[0] if single else intercept) if fitted.design.fit_intercept else 0.0
        self.n_estimators_, self.scale_ = members.number, fitted.scale
        self.weights_, self.stacking_advantage_ = members.weights, fitted.advantage
        self.solver_, self.n_fallbacks_ = members.solver, members.n_fallbacks
        if len(members):
            self.inclusion_ = members.inclusion

    def _set_selection(self, fitted: FittedResult, engine: Engine) -> None:
        """What tuning found; an estimator that does not tune has nothing to set."""


def _is_fitted_attribute(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and name not in COLUMNS


def _is_plain(value: Any) -> bool:
    """Whether a parameter is a number, a text, or numbers in a row."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(part, (int, float, np.number)) for part in value)
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iuf"
    return value is None or isinstance(value, (bool, int, float, str, np.number, np.bool_))


def _from_plain(plain: dict[str, Any]) -> FittedResult:
    design, stream = Design.from_plain(plain["design"]), None
    if plain["stream"] is not None:
        seen = frozenset(bytes.fromhex(digest) for digest in plain["distinct"])
        distinct = replace(DistinctRows.of_columns(design.n_columns), seen=seen)
        stream = Stream(Triangle(**plain["stream"]), distinct, Options(design.fit_intercept), design.n_given or 0)
    curve = None if plain["curve"] is None else SizeCurve(**plain["curve"])
    left, why = None, NOT_IN_FILE if "left_out" in plain else NOT_IN_PICKLES
    if plain.get("left_out") is not None:
        left = LeftOut.from_plain(plain["left_out"])
    return FittedResult(design, None, plain["scale"], curve=curve, why_no_rows=why, stream=stream, left_out=left)
