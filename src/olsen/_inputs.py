"""What users hand over, turned into a Problem or into an error that says what to do.

scikit-learn's own checks do most of it; here stand the ones that need our words: text columns by name, weights, targets
that hold one value, sizes at which the expected risk is infinite.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from ._members import Problem

try:
    import narwhals as nw
except ImportError:  # machines with nothing but the numerical libraries: scikit-learn's own message will do there
    nw = None  # type: ignore[assignment]

__all__ = [
    "Training",
    "all_or_nothing",
    "check_choice",
    "check_count",
    "resolve_seed",
    "uses_all_rows",
    "validate_new_rows",
    "validate_training",
    "warn_at_the_peak",
]


@contextmanager
def all_or_nothing(estimator):
    """Undo every attribute set inside when something fails, so that a fitted estimator stays usable."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class Training(NamedTuple):
    """Checked training data."""

    problem: Problem
    kept_rows: np.ndarray | None  # positions of the rows with positive weight; None: all rows
    n_given: int  # rows before those of weight zero were dropped
    single_target: bool


def validate_training(estimator, X, y, sample_weight, *, reset: bool = True, min_rows: int = 2) -> Training:
    """Check and convert what was given to `fit`.

    Rows of weight zero are taken out here, before anything is drawn, so that a zero weight equals a dropped row.
    """
    refuse_text_columns(X)
    X, y = validate_data(
        estimator,
        X,
        y,
        reset=reset,
        accept_sparse=["csc", "csr"],
        dtype=[np.float64, np.float32],
        multi_output=True,
        y_numeric=True,
        ensure_min_samples=min_rows,
    )
    Y = np.asarray(y, dtype=np.float64)
    Y = Y.reshape(-1, 1) if Y.ndim == 1 else Y
    n_given = len(Y)
    kept = None
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X, Y, weight, kept = _drop_weightless(X, Y, weight, min_rows)
    if sp.issparse(X):
        X = sp.csc_array(X)
    if estimator.fit_intercept and len(Y) > 1:
        _warn_constant_target(Y)
    problem = Problem(X, Y, weight, estimator.fit_intercept, estimator.rcond, estimator.tol)
    return Training(problem, kept, n_given, np.ndim(y) == 1)


def _drop_weightless(X, Y, weight, min_rows):
    kept = np.flatnonzero(weight > 0)
    if len(kept) < min_rows:
        raise ValueError(
            f"sample_weight is positive for {len(kept)} of {len(weight)} rows, but at least {min_rows} rows with "
            f"positive weight are needed; a weight of zero drops the row."
        )
    if len(kept) == len(weight):
        return X, Y, weight, None
    if sp.issparse(X):
        X = sp.csr_array(X)
    return X[kept], Y[kept], weight[kept], kept


def _warn_constant_target(Y):
    constant = np.flatnonzero((Y[0] == Y).all(axis=0))
    if len(constant):
        which = "y" if Y.shape[1] == 1 else f"column {constant[0]} of y"
        warnings.warn(
            f"{which} holds one value, {Y[0, constant[0]]:g}, in all {len(Y)} rows: there is nothing to explain, every "
            f"coefficient is zero and predictions are that value. Check the target column.",
            UserWarning,
            stacklevel=4,
        )


def validate_new_rows(estimator, X):
    """Checked rows to predict, dense or CSR."""
    refuse_text_columns(X)
    return validate_data(estimator, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])


def refuse_text_columns(X) -> None:
    """Name the columns of a data frame that are not numbers; the conversion error would name one value only."""
    if isinstance(X, (np.ndarray, list)) or sp.issparse(X) or nw is None or not nw.dependencies.is_into_dataframe(X):
        return
    schema = nw.from_native(X).schema
    text = [str(name) for name, kind in schema.items() if not (kind.is_numeric() or kind in (nw.Boolean, nw.Object))]
    if text:
        shown = ", ".join(repr(name) for name in text[:5]) + (f" and {len(text) - 5} more" if len(text) > 5 else "")
        raise ValueError(
            f"{len(text)} of {len(schema)} columns do not hold numbers: {shown}. Encode them first, for instance with "
            f"sklearn.preprocessing.OneHotEncoder, or leave them out."
        )


def resolve_seed(random_state) -> int:
    """A seed for the subsets: an int stays itself, anything else gives one number, drawn once."""
    if isinstance(random_state, (int, np.integer)):
        if random_state < 0:
            raise ValueError(f"random_state={random_state} must not be negative.")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def check_choice(name: str, value, choices) -> None:
    """Raise unless `value` is one of the strings there are."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is not known; choose one of {', '.join(repr(c) for c in choices)}.")


def check_count(name: str, value, least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r} must be an int of at least {least}.")


def uses_all_rows(max_samples) -> bool:
    """Whether members see every row: the fraction 1.0, not the count of one."""
    return isinstance(max_samples, float) and max_samples == 1.0


def warn_at_the_peak(columns: int, rows: int, fit_intercept: bool) -> None:
    """Warn where members have as many columns as rows, give or take one: their expected risk is infinite."""
    freedom = rows - fit_intercept
    if abs(columns - freedom) > 1:
        return
    lost = " less one for the intercept" if fit_intercept else ""
    warnings.warn(
        f"members have {columns} columns and {rows} rows{lost}: within one of the interpolation peak, where the "
        f"expected risk of a member is infinite. Use at most {max(1, freedom - 2)} columns (max_features), or at least "
        f"{freedom + 2} for minimum-norm members, or other rows (max_samples).",
        UserWarning,
        stacklevel=4,
    )
