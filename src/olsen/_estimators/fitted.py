"""The result of a fit, the one place that adopts it, and what every fitted ensemble can do with it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import _engines, _members
from .._engines import Engine, FoldFit, Memory, NeedsRows, Options, Stream
from .._engines.determinantal import drawable
from .._execution import callbacks
from .._execution.memory import describe
from .._members import Members, by_target
from .._members.problem import Problem
from .._moments import DistinctRows, Triangle
from .._selection.curve import SizeCurve
from .._selection.paths import Splits
from .._selection.tuning import Selection
from ..subsets import Design, Subsets
from .inputs import check_count, options_of, validate_new_rows
from .summary import SummaryMixin
from .training_data import Fingerprint, same_coefficients
from .uncertainty import UncertaintyMixin

__all__ = ["FittedEnsemble", "FittedResult"]

NOT_KEPT = "the model came from a pickle or a file that was written without them. Call fit once more"
TOO_LARGE = (
    "pickles and files keep training rows of at most {most}, and these take {size}. Call fit once more where it is "
    "needed, or set keep_rows=np.inf to keep them whatever their size"
)
MOST_BYTES = 2.0**26  # of training rows in a pickle or a file
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
    fingerprint : Fingerprint or None
        Of the training rows, for a warm start.
    why_no_rows : str
        Why there are none, and what to do.
    stream : Stream or None
        What `partial_fit` goes on from.
    random_state : object
        What the seed came from: the same object means the same members in a warm start.
    data : Engine or None
        The training data, to be read again: rows in memory or on a device, files, collections.
    splits : list of tuple or None
        Rows to train and to test on, where tuning had such.
    n_groups : int or None
        Groups that these keep together.
    designs : tuple of Design or None
        Of every target, where each has its own schemes.
    folds : list of FoldFit or None
        The chosen mixture of schemes without each of the folds it was chosen in.
    computed : dict
        What was computed from the training data on demand, for uncertainty.
    """

    design: Design
    members: Members | None
    scale: Any
    options: Options | None = None
    advantage: float | None = None
    selection: list[Selection] | None = None
    curve: SizeCurve | None = None
    fingerprint: Fingerprint | None = None
    why_no_rows: str = ""
    stream: Stream | None = None
    random_state: Any = None
    data: Engine | None = None
    splits: Splits | None = None
    n_groups: int | None = None
    designs: tuple[Design, ...] | None = None
    folds: list[FoldFit] | None = None
    computed: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def rows(self) -> Problem | None:
        """The training rows, where they are in memory."""
        return None if self.data is None else self.data.problem

    @property
    def all_designs(self) -> tuple[Design, ...]:
        """How members are drawn, of every target where each has its own."""
        return self.designs or (self.design,)

    def need_rows(self, what: str) -> Problem:
        """The training rows, or an error that says why there are none and what to do."""
        if self.rows is None:
            raise NeedsRows(f"{what} needs the training rows: {self.why_no_rows}.")
        return self.rows

    def check_unchanged(self, what: str, coef: Any, intercept: Any = None, scale: Any = 1.0) -> None:
        """Raise unless coefficients (p, q) that were found again are those of the fit: users can change X in place."""
        assert self.members is not None
        if same_coefficients(coef, intercept, self.members, self.rows, scale):
            return
        if self.rows is not None:
            raise NeedsRows(
                f"{what} is computed from the training rows, but X was changed in place after fit. Fit again, or give "
                f"fit a copy (X.copy()) if you go on changing X."
            )
        raise NeedsRows(
            f"{what} reads the training data again, and they gave other coefficients than in the fit: they were "
            f"changed since, or columns are nearly dependent. A function that returns blocks must return the same ones "
            f"every time. Fit again, or load X as an array in memory."
        )

    def plain(self, most_bytes: float) -> dict[str, Any]:
        """What a pickle or a model file keeps, as numbers, texts and arrays: no module of this package is named.

        Training rows are kept up to so many bytes: intervals and standard errors are computed from them.
        """
        stream, rows, why = self.stream, None, self.why_no_rows
        splits = None  # only refits of the rows ask for them
        if isinstance(self.data, Memory):
            rows = _plain_rows(self.data)
            splits = None if self.splits is None or self.folds is not None else _plain_splits(self.splits)
            size = sum(np.asarray(part).nbytes for part in (*rows.values(), *(splits or {}).values()))
            if size > most_bytes:
                rows = splits = None
                why = TOO_LARGE.format(most=describe(most_bytes), size=describe(size)) if most_bytes > 0 else NOT_KEPT
        return {
            "design": self.design.plain(),
            "designs": None if self.designs is None else [design.plain() for design in self.designs],
            "scale": self.scale,
            "curve": None if self.curve is None else self.curve.plain(),
            "stream": None if stream is None else stream.triangle.plain(),
            "distinct": None if stream is None else [digest.hex() for digest in sorted(stream.distinct.seen)],
            "members": None if self.members is None else self.members.plain(),
            "rows": rows,
            "why_no_rows": why,
            "splits": splits,
            "n_groups": self.n_groups,
            "folds": None if self.folds is None else _plain_folds(self.folds),
        }


def _plain_rows(data: Memory) -> dict[str, Any]:
    problem = data.problem
    found: dict[str, Any] = {"Y": problem.Y, "n_given": data.n_given, "single_target": data.single_target}
    if problem.weight is not None:
        found["weight"] = problem.weight
    if data.kept_rows is not None:
        found["kept_rows"] = data.kept_rows
    if not sp.issparse(problem.X):
        return {**found, "X": problem.X}
    X = sp.csc_array(problem.X)
    return {**found, "data": X.data, "indices": X.indices, "indptr": X.indptr}


def _plain_splits(splits: Splits) -> dict[str, Any]:
    """In two arrays, however many there are: rows to train and to test on by turns, and how many of each."""
    parts = [rows for split in splits for rows in split]
    return {"rows": np.concatenate(parts), "counts": np.array([len(rows) for rows in parts])}


def _splits_of(plain: dict[str, Any]) -> Splits:
    """The inverse."""
    parts = np.split(plain["rows"], np.cumsum(plain["counts"])[:-1])
    return list(zip(parts[::2], parts[1::2], strict=True))


def _plain_folds(fits: list[FoldFit]) -> dict[str, Any]:
    """In a few arrays, however many folds there are."""
    found: dict[str, Any] = {
        "coef": np.concatenate([fit.coef for fit in fits]),
        "intercept": np.stack([fit.intercept for fit in fits]),
        "residual": None,
        "counts": np.zeros(len(fits), dtype=np.int64),
    }
    residuals = [fit.residual for fit in fits if fit.residual is not None]
    if len(residuals) == len(fits):
        found.update(residual=np.concatenate(residuals), counts=np.array([len(own) for own in residuals]))
    return found


def _folds_of(plain: dict[str, Any]) -> list[FoldFit]:
    """The inverse."""
    coefs, known = np.split(plain["coef"], len(plain["intercept"])), plain["residual"] is not None
    residuals = np.split(plain["residual"], np.cumsum(plain["counts"])[:-1]) if known else [None] * len(coefs)
    return [FoldFit(*parts) for parts in zip(coefs, plain["intercept"], residuals, strict=True)]


def _memory_of(rows: dict[str, Any], design: Design) -> Memory:
    """The inverse."""
    Y = rows["Y"]
    if "X" in rows:
        X: Any = rows["X"]
    else:
        X = sp.csc_array((rows["data"], rows["indices"], rows["indptr"]), shape=(len(Y), design.n_columns))
    problem = Problem(X, Y, rows.get("weight"), design.fit_intercept)
    options = Options(design.fit_intercept)
    return Memory(problem, options, bool(rows["single_target"]), int(rows["n_given"]), rows.get("kept_rows"))


class FittedEnsemble(
    SummaryMixin, UncertaintyMixin, MultiOutputMixin, RegressorMixin, callbacks.CallbackSupportMixin, BaseEstimator
):
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
    keep_rows: bool | float

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
            check = partial(validate_data, self, reset=False, skip_check_array=True)
            there = _engines.predict(X, self.coef_, self.intercept_, check)
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
        found = self._members_again("member_coefs", n_members)
        coefs = []
        for t in range(1 if self.coef_.ndim == 1 else len(self.coef_)):
            features, solution = found[t if len(found) > 1 else 0]
            shape = (len(features), features.n_items)
            coefs.append(sp.csr_array((solution.values[:, t], features.indices, features.indptr), shape=shape))
        return coefs[0] if self.coef_.ndim == 1 else coefs

    @property
    def feature_subsets_(self) -> Any:
        """Columns of every member, a sequence of arrays, drawn again from the seed as they are asked for.

        A list of them, one for each target, where targets have schemes of their own.
        """
        designs = self._drawable_designs("feature_subsets_")
        found = [design.member_columns(self.n_estimators_) for design in designs]
        return found[0] if len(found) == 1 else found

    @cached_property
    def inclusion_(self) -> NDArray[np.float64]:  # set by fit but for infinitely many members, whose limit needs none
        """Share of the members that hold each column; of infinitely many, its probability."""
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

    # Pickles hold plain data; copies in this process keep the rows.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if self._fitted is not None:
            most = MOST_BYTES * self.keep_rows if isinstance(self.keep_rows, bool) else float(self.keep_rows)
            state["_fitted"], state["inclusion_"] = self._fitted.plain(most), self.inclusion_
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

    def _drawable_designs(self, what: str) -> tuple[Design, ...]:
        """How members are drawn, of every target where each has its own."""
        designs = self._result().all_designs
        if all(design.sampling != "determinantal" or design.process is not None for design in designs):
            return designs
        return tuple(drawable(self._data(what), design) for design in designs)

    def _members_again(self, what: str, n_members: int | None = None) -> list[tuple[Subsets, _members.Solution]]:
        """Members solved once more from the training rows, of every target where each has its own.

        An error if all of them together are not those of the fit.
        """
        fitted = self._result()
        options, problem = options_of(self), replace(fitted.need_rows(what))  # without the moments of then
        members = fitted.members
        assert members is not None
        designs, found, means = self._drawable_designs(what), [], []
        for design in designs:
            features, samples = design.draw(0, len(members) if n_members is None else n_members)
            sharing = options.sharing("members", len(features))
            solution = _members.solve(problem, features, samples, solver=options.solver, sharing=sharing)
            found.append((features, solution))
            if len(features) < members.number:
                means.append(self._data(what).solve(design, 0, members.number, members.weights))
            else:
                means.append(Members.of(problem, features, samples, solution, members.weights))
        again = by_target(means)
        fitted.check_unchanged(what, again.coef, again.intercept)
        return found

    def _for_file(self, rows: bool) -> Self:
        """A copy of numbers and texts: it refers to no objects, such as splitters and random states, which parameters
        may be but which predict nothing; to training rows if wanted.
        """
        other = self.__copy__()
        default = type(self)()
        objects = [name for name, value in self.get_params(deep=False).items() if not _is_plain(value)]
        other.set_params(**{name: getattr(default, name) for name in objects})
        if not rows:
            other.keep_rows = False
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
    data = None if plain["rows"] is None else _memory_of(plain["rows"], design)
    return FittedResult(
        design,
        None if plain["members"] is None else Members(**plain["members"]),
        plain["scale"],
        options=Options(design.fit_intercept),
        curve=None if plain["curve"] is None else SizeCurve(**plain["curve"]),
        why_no_rows=plain["why_no_rows"] or NOT_KEPT,
        stream=stream,
        data=stream if data is None else data,
        splits=None if plain["splits"] is None else _splits_of(plain["splits"]),
        n_groups=plain["n_groups"],
        designs=None if plain["designs"] is None else tuple(Design.from_plain(part) for part in plain["designs"]),
        folds=None if plain["folds"] is None else _folds_of(plain["folds"]),
    )
