"""Validation of user input: it becomes training data, splits and numbers, or an error that says what to
do.

scikit-learn's checks do most of the work; this module adds checks with more specific messages: text
columns by name, constant targets, sizes at which the expected risk is infinite, splits of rows some
of which have no weight.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import PredefinedSplit, check_cv
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._data.arrangement import chance_explains
from .._data.implicit import too_wide_to_copy
from .._data.rows import RowData
from .._data.sources import as_table, column_names, describe_not_finite, refuse_text, refuse_times
from .._data.splits import Splits
from .._data.training import TrainingData, open_data
from .._execution import messages, threads
from .._execution.arrays import Space
from .._execution.options import Options
from .._members import ASKED_FOR
from .._report.formatting import counted
from ..subsets import Design


class Number(Interval):
    """Numbers in a range; scikit-learn's Interval also accepts True and False."""

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, (bool, np.bool_)) and bool(super().is_satisfied_by(val))


PROBABILITY = Number(Real, 0, 1, closed="neither")
COUNT = Number(Integral, 1, None, closed="left")
POSITIVE = Number(Real, 0, None, closed="neither")
# constraints that scikit-learn checks: of parameters common to all estimators, and of arguments of
# functions
COMMON = {
    "fit_intercept": ["boolean"],
    "n_jobs": [Number(Integral, None, None, closed="neither"), None],
    "verbose": ["verbose"],
}
ARGUMENTS = {
    "coverage": [PROBABILITY],
    "q": [PROBABILITY],
    "adaptive_width": ["boolean", StrOptions({"auto"})],
    "method": [StrOptions({"auto", "jackknife+", "jackknife", "cv+", "normal"})],
    "share": [POSITIVE],
    "k": [Number(Real, 1, None, closed="both")],
    **{name: [COUNT] for name in ("n_members", "n_threads", "top")},
    "fit_intercept": ["boolean"],
    "solver": [StrOptions(set(ASKED_FOR))],
}
MAX_REPEATED_FRACTION = 0.05  # of the rows may repeat others without a warning


def check_arguments(caller: str, **arguments: Any) -> None:
    """Raise for arguments that violate the constraints in ARGUMENTS under their names."""
    validate_parameter_constraints(ARGUMENTS, arguments, caller)


def probabilities(caller: str, name: str, argument: Any) -> list[float]:
    """One probability or several as a list; raise for anything else under the argument's name."""
    values = list(argument) if np.ndim(argument) == 1 else [argument]
    for value in values or [argument]:
        check_arguments(caller, **{name: value})
    return values


@contextmanager
def unchanged_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Restore all attributes of the estimator if the block fails, so that a fitted estimator stays
    usable.
    """
    attributes = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(attributes)
        raise


def options_of(estimator: Any) -> Options:
    """Solver options from the parameters of an estimator."""
    return Options(
        getattr(estimator, "solver", "auto"),
        threads.count_threads(getattr(estimator, "n_jobs", 1)),
        partial(messages.progress, estimator) if estimator.verbose else None,
    )


def open_training(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    reset: bool = True,
    min_rows: int = 2,
    keeps_integers: bool = False,
) -> TrainingData:
    """Open the data given to `fit`; for arrays, scikit-learn sets the column attributes.

    With `keeps_integers`, many small integers stay as they are.
    """

    def checks(
        X: Any, y: Any, weight: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None]:
        X = as_table(X)
        # scikit-learn would silently convert times, text and masked entries to numbers
        refuse_times(y=y, sample_weight=weight)
        refuse_text_columns(X)
        _refuse_masked(X=X, y=y)
        dtypes: list[Any] = [np.float64, np.float32]
        if keeps_integers and _many_small_integers(X):
            dtypes.append(X.dtype)
        x_checks = {
            "accept_sparse": ["csc", "csr"],
            "dtype": dtypes,
            "ensure_min_samples": min_rows,
        }
        y_checks = {"dtype": np.float64, "ensure_2d": False}
        with numbers_located(X=X, y=y, sample_weight=weight):
            X, y = validate_data(
                estimator, X, y, reset=reset, validate_separately=(x_checks, y_checks)
            )
            check_consistent_length(X, y)
            if weight is not None:
                weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
        if estimator.fit_intercept and min_rows > 1:  # one batch of a stream may well be constant
            _warn_constant_target(y.reshape(len(y), -1), weight)
        return X, y, weight

    return open_data(
        X,
        y,
        sample_weight,
        fit_intercept=estimator.fit_intercept,
        options=partial(options_of, estimator),
        checks=checks,
        min_rows=min_rows,
    )


def names_of_targets(y: Any) -> list[str]:
    """Names of the columns of a data frame `y`, of a series, or of columns of a file; empty if there
    are none.
    """
    names = getattr(y, "columns", [getattr(y, "name", None)])
    if isinstance(y, str | list):
        names = [y] if isinstance(y, str) else y
    is_named = len(names) > 0 and all(isinstance(name, str) for name in names)
    return list(map(str, names)) if is_named else []


def _many_small_integers(X: Any) -> bool:
    """Whether X is an array of small integers that is not worth widening, such as genotypes."""
    if not (isinstance(X, np.ndarray) and X.ndim == 2):
        return False
    return X.dtype.kind in "iu" and X.itemsize < 8 and too_wide_to_copy(*X.shape)


def _refuse_masked(**arrays: Any) -> None:
    for name, array in arrays.items():
        if np.ma.is_masked(array):
            n_masked = int(np.ma.getmaskarray(array).sum())
            raise ValueError(
                f"{name} is a masked array with {n_masked} masked entries. Fill them, or drop their"
                " rows."
            )


def _warn_constant_target(Y: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
    weighted = Y if weight is None else Y[weight > 0]
    constant = np.flatnonzero((weighted[:1] == weighted).all(axis=0))
    if len(constant) and len(weighted) > 1:
        target = "y" if Y.shape[1] == 1 else f"column {constant[0]} of y"
        messages.warn(
            f"{target} is constant, {weighted[0, constant[0]]:g}, in all {len(weighted)} rows:"
            " every coefficient is zero and predictions are that value. Check the target column."
        )


def validate_new_rows(estimator: Any, X: Any) -> Any:
    """Check rows to predict, and return them dense or as CSR."""
    X = as_table(X)
    refuse_text_columns(X)
    if isinstance(X, (str, Path)):
        raise ValueError(
            f"X is the path {str(X)!r}, but only fit reads files. Load the rows (numpy.load,"
            " pandas.read_parquet), predict block by block, or use the command: olsen predict."
        )
    _refuse_masked(X=X)
    with numbers_located(X=X):
        return validate_data(
            estimator, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
        )


@contextmanager
def numbers_located(**arrays: Any) -> Iterator[None]:
    """Add the position of a NaN or infinite number to errors of scikit-learn, which only name the
    array.
    """
    try:
        yield
    except ValueError as error:
        for name, array in arrays.items():
            if f"Input {name} contains" in str(error):
                checks = {
                    "accept_sparse": True,
                    "dtype": np.float64,
                    "ensure_2d": False,
                    "ensure_all_finite": False,
                }
                sentence = describe_not_finite(
                    check_array(array, **checks), name, column_names(array)
                )
                if sentence is not None:
                    raise ValueError(f"Input {sentence}") from None
        raise


def refuse_missing_sizes(max_features: Any) -> None:
    """Raise for NaN among sizes or probabilities, which other checks would report as a number out
    of range.
    """
    sizes = np.ravel(np.asarray(max_features, dtype=object))
    missing = np.flatnonzero(sizes != sizes)
    if len(missing):
        raise ValueError(
            f"max_features is NaN in {len(missing)} of {len(sizes)} places, the first at position"
            f" {missing[0]} (counted from 0). Give a number of columns, a fraction of them above 0"
            " and at most 1, or a probability for every column."
        )


def refuse_text_columns(X: Any) -> None:
    """Name the columns of a data frame that are not numbers; the conversion error would name one
    value only.
    """
    # of arrays of numbers, the checks below would take longer than all others
    if type(X) is np.ndarray and X.dtype.kind in "fiub":
        return
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("X is a lazy frame, which holds no rows yet; call .collect() first.")
    names = column_names(X) or []
    duplicates = [name for i, name in enumerate(names) if name in names[:i]]
    if duplicates:
        raise ValueError(f"X has several columns named {duplicates[0]!r}; rename them first.")
    refuse_times(X=X)
    if not nw.dependencies.is_into_dataframe(X):
        return
    schema = nw.from_native(X).schema
    # sparse pandas columns are Unknown; the conversion checks them
    convertible = (nw.Boolean, nw.Object, nw.Unknown)
    text_columns = [
        str(name) for name, kind in schema.items() if not (kind.is_numeric() or kind in convertible)
    ]
    refuse_text(text_columns, len(schema))


def on_host(array: Any) -> NDArray[np.float64]:
    """Copy an array of any library to the host in double precision, whether or not array API
    dispatch is on now.
    """
    library = sys.modules[type(array).__module__.partition(".")[0]]
    if library.__name__ in ("torch", "cupy", "array_api_strict"):
        array = Space(library, None, None).get(array)
    return np.array(array, dtype=np.float64)


def resolve_seed(random_state: Any) -> int:
    """Return a seed for the subsets: an int as it is, otherwise one number drawn from the random
    state.
    """
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise ValueError(f"random_state={random_state} must not be negative.")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


# Sizes of members


def check_shape(design: Design) -> None:
    """Refuse members whose rows the intercept would use up, and warn near the interpolation peak.

    Members that have as many columns as rows, give or take one, have infinite expected risk.
    """
    shape = design.fixed_shape()
    if shape is None:
        return
    rows, columns = shape
    if rows <= design.fit_intercept and not design.all_rows:
        raise ValueError(
            f"max_samples={design.max_samples!r} gives every member {rows} of {design.n_rows} rows,"
            " which the intercept uses up: all coefficients would be zero. Give members at least 2"
            " rows, or all of them with the float 1.0."
        )
    freedom = rows - design.fit_intercept
    if abs(columns - freedom) <= 1:
        intercept = " less one for the intercept" if design.fit_intercept else ""
        advice = (
            f"Use at most {freedom - 2} columns (max_features), or at least"
            if freedom > 2
            else "Use at least"
        )
        messages.warn(
            f"members have {counted(columns, 'column')} and {rows} rows{intercept}: within one of"
            f" the interpolation peak. Expected risk is infinite. {advice} {freedom + 2} columns"
            " for minimum-norm members, or more rows."
        )


# Splits of the rows


def row_splits(cv: Any, rows: RowData, groups: Any) -> Splits | None:
    """Splits as (train, test) index pairs over the rows with positive weight, or None without
    k-fold.
    """
    if cv is None or isinstance(cv, str):
        return None
    n = rows.n_rows_given
    weighted_rows = np.arange(n) if rows.kept_rows is None else rows.kept_rows
    if groups is not None and len(groups) != n:
        raise ValueError(
            f"groups has {len(groups)} entries, but there are {n} rows; every row needs its group."
        )
    if isinstance(cv, Integral) and int(cv) > len(weighted_rows):
        raise ValueError(
            f"cv={cv!r} asks for more folds than the {len(weighted_rows)} rows there are."
        )
    given_splits = cv.split() if type(cv) is PredefinedSplit else cv
    if hasattr(given_splits, "__iter__"):  # row indices count rows of weight zero too
        splits = _renumbered(given_splits, n, weighted_rows)
    else:
        # a splitter sees the rows with positive weight only: a weight of zero equals a dropped row
        y = rows.Y[:, 0] if rows.Y.shape[1] == 1 else rows.Y
        weighted_groups = None if groups is None else np.asarray(groups)[weighted_rows]
        splits = list(check_cv(cv).split(rows.X, y, weighted_groups))
    for number, (train, test) in enumerate(splits, 1):
        if len(train) == 1 and len(test) and rows.null_rank:
            raise ValueError(nothing_to_fit(f"fold {number} of {len(splits)} of cv={cv!r:.200}"))
    complete = [(train, test) for train, test in splits if len(train) and len(test)]
    if not complete:
        advice = "A generator is used up by its first fit; give a list or a splitter."
        raise ValueError(f"cv={cv!r} gave no split with rows to train and to test on. {advice}")
    return complete


def nothing_to_fit(fold: str) -> str:
    """Error message for a fold with a training set of one row; rows of weight zero do not count."""
    return (
        f"{fold} trains on 1 row, which the intercept uses up, so that nothing is left to fit"
        " there. Use splits with at least 2 training rows of positive weight each, cv=None with"
        " rows in memory, or fit_intercept=False."
    )


def _renumbered(splits: Any, n: int, weighted_rows: NDArray[np.int64]) -> Splits:
    """Renumber the row indices of splits: from all n rows to the rows with positive weight."""
    position = np.full(n, -1)
    position[weighted_rows] = np.arange(len(weighted_rows))
    renumbered = []
    for split in splits:
        try:
            train, test = (position[item_numbers(rows, n)] for rows in split)
        except (IndexError, TypeError, ValueError) as error:
            kinds = f"row indices from 0 to {n - 1}, or masks of {n} rows"
            raise ValueError(
                f"cv holds {split!r:.60}, but a split is two arrays: {kinds} ({error})."
            ) from None
        renumbered.append((train[train >= 0], test[test >= 0]))
    return renumbered


def item_numbers(items: Any, n_items: int) -> NDArray[np.int64]:
    """Indices of rows or columns, from whole numbers or from a mask of length `n_items`."""
    array = np.asarray(items)
    if array.dtype == bool and array.shape == (n_items,):
        return np.flatnonzero(array)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        description = f"{items!r:.80}, of type {array.dtype} and shape {array.shape}"
        raise ValueError(
            f"a member or a split holds whole numbers, or a mask of {n_items} booleans; got"
            f" {description}."
        )
    return array.astype(np.int64)


class RepeatedRowsWarning(UserWarning):
    """More rows repeat others than chance explains."""

    def __init__(self, repeated: int, n_rows: int, *, merged: bool = False) -> None:
        consequence = (
            "so a copy of a held-out row is often still in the data and errors are underestimated"
        )
        if merged:
            consequence = (
                "with their targets; for choosing the model such rows are merged and their weights"
                " added"
            )
        super().__init__(
            f"{repeated} of {n_rows} rows repeat others, {consequence}. Use cv=GroupKFold() with"
            f" groups that keep repeats together{', or drop the copies' * merged}."
        )
        self.repeated = repeated
        self.n_rows = n_rows


def warn_repeated_rows(problem: RowData, *, merges_rows: bool) -> None:
    """Warn if rows repeat far more often than the rounding of their entries explains.

    Independent rows of one column, or of columns with few levels, coincide too, and leave-one-out
    is right for such rows: there only rows count that repeat others with their targets. With
    `merges_rows` rows that repeat others with their targets are merged before folds are drawn.
    """
    n, p = problem.shape
    if n * p > 5e7 or n < 20 or n - problem.distinct_rows() <= MAX_REPEATED_FRACTION * n:
        return
    with_targets = _with_targets(problem)
    n_with_targets = _unexplained_repeats(with_targets)
    rows = with_targets.first_of_distinct_rows()
    if merges_rows and n_with_targets:
        messages.warn(RepeatedRowsWarning(n_with_targets, n, merged=True))
        problem = problem.take(rows)
        n_with_targets = 0
    n_repeats = _unexplained_repeats(problem) if p > 1 and len(rows) > 1 else 0
    n_repeats = n_repeats or n_with_targets
    if n_repeats:
        messages.warn(RepeatedRowsWarning(n_repeats, n))


def _with_targets(problem: RowData) -> RowData:
    """The problem with the targets appended to the columns of X."""
    if sp.issparse(problem.X):
        return replace(problem, X=sp.csc_array(sp.hstack([problem.X, problem.Y])))
    return replace(problem, X=np.hstack([problem.X, problem.Y]))


def _unexplained_repeats(problem: RowData) -> int:
    """Number of rows that repeat others; zero if repeats are few or if chance explains their
    number.
    """
    n = problem.shape[0]
    n_repeats = n - problem.distinct_rows()
    few = n_repeats <= MAX_REPEATED_FRACTION * n
    return 0 if few or chance_explains(n_repeats, [], problem) else n_repeats
