"""What users hand over, turned into an engine or into an error that says what to do.

scikit-learn's own checks do most of it; here stand the ones that need our words: text columns by name, weights, targets
that hold one value, sizes at which the expected risk is infinite.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._engines import Engine, Options, engine_of
from .._engines.sources import refuse_text
from .._execution import callbacks, messages, threads
from .._execution.arrays import Space
from ..subsets import Design

try:
    import narwhals as nw
except ImportError:  # machines with nothing but the numerical libraries: scikit-learn's own message will do there
    nw = None  # type: ignore[assignment]

__all__ = [
    "check_choice",
    "check_common",
    "check_count",
    "check_coverage",
    "check_determinantal",
    "check_number",
    "check_shape",
    "check_switch",
    "item_numbers",
    "on_host",
    "open_training",
    "options_of",
    "refuse_text_columns",
    "resolve_seed",
    "unchanged_on_failure",
    "validate_new_rows",
]


@contextmanager
def unchanged_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Undo every attribute set inside when something fails, so that a fitted estimator stays usable."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def options_of(estimator: Any) -> Options:
    """How an estimator wants its members solved."""
    return Options(
        estimator.fit_intercept,
        getattr(estimator, "solver", "auto"),
        estimator.rcond,
        estimator.tol,
        threads.count_threads(getattr(estimator, "n_jobs", 1)),
        partial(callbacks.progress, estimator),
    )


def open_training(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool = True, min_rows: int = 2
) -> Engine:
    """The engine for what was given to `fit`; of arrays, scikit-learn notes the columns on the estimator."""
    checks = partial(_check_arrays, estimator, reset=reset, min_rows=min_rows)
    return engine_of(X, y, sample_weight, options_of(estimator), checks, min_rows=min_rows)


def _check_arrays(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, reset: bool, min_rows: int
) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
    refuse_text_columns(X)
    _refuse_odd_kinds(X, y)
    X, y = validate_data(
        estimator,
        X,
        _real_targets(y),
        reset=reset,
        accept_sparse=["csc", "csr"],
        dtype=[np.float64, np.float32],
        multi_output=True,
        y_numeric=True,
        ensure_min_samples=min_rows,
    )
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if estimator.fit_intercept and min_rows > 1:  # a batch of a stream may well hold one value
        _warn_constant_target(y.reshape(len(y), -1), weight)
    return X, y, weight


def _refuse_odd_kinds(X: Any, y: Any) -> None:
    """What scikit-learn would turn into numbers that nobody meant."""
    _refuse_masked("X", X)
    _refuse_masked("y", y)
    if y is None and isinstance(X, (list, tuple)) and len(X) and isinstance(X[0], tuple):
        raise ValueError(
            "y is None and X is a list of tuples: for blocks of (X, y), give an iterator, or better a function that "
            "returns one: fit(lambda: iter(blocks), None)."
        )
    if sp.issparse(y):
        raise ValueError("y is sparse, but targets must be dense; use y.toarray().")
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        raise ValueError(f"y is of type {y.dtype}: times are not numbers. Convert it, for instance to days or seconds.")


def _refuse_masked(name: str, array: Any) -> None:
    if np.ma.is_masked(array):
        hidden = int(np.ma.getmaskarray(array).sum())
        raise ValueError(f"{name} is a masked array with {hidden} masked entries. Fill them, or drop their rows.")


def _real_targets(y: Any) -> Any:
    """Objects and texts as numbers: scikit-learn lets them pass, with gaps among them; all else as it is."""
    if isinstance(y, (str, bytes)) or (hasattr(y, "dtype") and getattr(y.dtype, "kind", "f") in "fiub"):
        return y
    try:
        array = np.asarray(y)
    except ValueError:  # rows of different lengths, of which scikit-learn speaks
        return y
    if array.dtype.kind not in "OUST" or not array.ndim:
        return y
    try:
        found = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y is of type {array.dtype} and does not hold numbers ({error}). Convert it first.") from None
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        raise ValueError(
            f"y holds {len(bad)} values that are missing or infinite, the first in row {int(bad[0][0])}; drop these "
            f"rows, or fill them."
        )
    return found


def _warn_constant_target(Y: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
    counted = Y if weight is None else Y[weight > 0]
    constant = np.flatnonzero((counted[:1] == counted).all(axis=0)) if len(counted) > 1 else np.empty(0, dtype=int)
    if len(constant):
        first = int(constant[0])
        which = "y" if Y.shape[1] == 1 else f"column {first} of y"
        messages.warn(
            f"{which} holds one value, {counted[0, first]:g}, in all {len(counted)} rows: there is nothing to "
            f"explain, every coefficient is zero and predictions are that value. Check the target column.",
        )


def validate_new_rows(estimator: Any, X: Any) -> Any:
    """Checked rows to predict, dense or CSR."""
    refuse_text_columns(X)
    if isinstance(X, (str, Path)):
        raise ValueError(
            f"X is the path {str(X)!r}, but only fit reads files. Load the rows (numpy.load, pandas.read_parquet), "
            f"predict block by block, or use the command: olsen predict."
        )
    _refuse_masked("X", X)
    return validate_data(estimator, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])


def refuse_text_columns(X: Any) -> None:
    """Name the columns of a data frame that are not numbers; the conversion error would name one value only."""
    if isinstance(X, (np.ndarray, list)) or sp.issparse(X) or nw is None or not _is_frame(X):
        return
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("X is a lazy frame, which holds no rows yet; call .collect() first.")
    names = list(getattr(X, "columns", []))
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ValueError(f"X has several columns named {twice!r}; rename them first.")
    schema = nw.from_native(X).schema
    numbers = (nw.Boolean, nw.Object, nw.Unknown)  # unknown: sparse columns of pandas, for one; conversion will tell
    text = [str(name) for name, kind in schema.items() if not (kind.is_numeric() or kind in numbers)]
    refuse_text(text, len(schema))


def _is_frame(X: Any) -> bool:
    return nw.dependencies.is_into_dataframe(X) or nw.dependencies.is_polars_lazyframe(X)


def on_host(array: Any) -> NDArray[np.float64]:
    """A copy in double precision, whichever library the array is of and whether or not scikit-learn follows it now."""
    library = sys.modules[type(array).__module__.partition(".")[0]]
    if library.__name__ in ("torch", "cupy", "array_api_strict"):
        array = Space(library, None, None).get(array)
    return np.array(array, dtype=np.float64)


def item_numbers(given: NDArray[Any], n_items: int) -> NDArray[np.int64] | None:
    """Numbers of rows or columns, from whole numbers or from a mask of all of them; None where it is neither."""
    if given.dtype == bool and given.shape == (n_items,):
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        return None
    return given.astype(np.int64)


def resolve_seed(random_state: Any) -> int:
    """A seed for the subsets: an int stays itself, anything else gives one number, drawn once."""
    if isinstance(random_state, (int, np.integer)):
        if random_state < 0:
            raise ValueError(f"random_state={random_state} must not be negative.")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of the strings there are."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is not known; choose one of {', '.join(repr(c) for c in choices)}.")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        endless = ", or np.inf for all members in closed form" if name == "n_estimators" else ""
        raise ValueError(f"{name}={value!r} must be an int of at least {least}{endless}.")


def check_switch(name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}={value!r} must be True or False.")


def check_number(name: str, value: object, what: str, least: float, most: float = np.inf) -> None:
    """Raise unless `value` is a finite number from `least` to `most`; `what` it is, in words with the bounds."""
    number = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not number or not least <= float(value) <= most or not np.isfinite(float(value)):  # type: ignore[arg-type]
        raise ValueError(f"{name}={value!r} must be {what}.")


def check_coverage(coverage: object) -> None:
    """Raise where a coverage is no probability between 0 and 1."""
    least, most = np.nextafter([0.0, 1.0], [1.0, 0.0])
    check_number("coverage", coverage, "a number strictly between 0 and 1", least, most)


def check_common(estimator: Any) -> None:
    """What all estimators have: the intercept, the cut-off for dependent columns, threads and progress."""
    check_switch("fit_intercept", estimator.fit_intercept)
    if estimator.rcond is not None:
        check_number("rcond", estimator.rcond, "a number from 0 to 1, or None for machine precision", 0.0, 1.0)
    n_jobs = getattr(estimator, "n_jobs", None)
    whole = isinstance(n_jobs, Integral) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise ValueError(f"n_jobs={n_jobs!r} must be None, a number of threads, or -1 for all cores.")
    if not isinstance(estimator.verbose, (bool, np.bool_)):
        check_count("verbose", estimator.verbose, 0)


def check_determinantal(estimator: Any) -> None:
    """Refuse what determinantal members cannot be combined with, and say why."""
    rows, columns = estimator.max_samples, estimator.max_features
    if not (isinstance(rows, float) and rows == 1.0):
        raise ValueError(
            f"max_samples={rows!r} with sampling='determinantal': how columns repel each other is read off all rows, "
            f"and members see all of them. Use max_samples=1.0."
        )
    if np.ndim(columns):
        raise ValueError(
            "max_features is an array of probabilities, but with sampling='determinantal' they follow from the data "
            "and the expected size. Give a number; for other spreads of the columns see olsen.subsets.Determinantal."
        )


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
            f"max_samples={design.max_samples!r} gives every member {rows} of {design.n_rows} rows, which the "
            f"intercept uses up: all coefficients would be zero. Give members at least 2 rows, or all of them with the "
            f"float 1.0."
        )
    freedom = rows - design.fit_intercept
    if abs(columns - freedom) > 1:
        return
    lost = " less one for the intercept" if design.fit_intercept else ""
    fewer = f"Use at most {freedom - 2} columns (max_features), or at least" if freedom > 2 else "Use at least"
    noun = "column" if columns == 1 else "columns"
    messages.warn(
        f"members have {columns} {noun} and {rows} rows{lost}: within one of the interpolation peak, where the "
        f"expected risk of a member is infinite. {fewer} {freedom + 2} columns for minimum-norm members, or more rows.",
    )
