"""Training data in whatever storage: the interface that fits ask, and the function that opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .._execution import from_extra
from .._execution.arrays import Space
from .._execution.memory import require
from .._execution.options import Options
from ..subsets import Design
from . import dask_rows, device_rows, sources
from .dask_rows import DaskRows, is_dask
from .device_rows import lives_elsewhere, rows_on_device
from .fits import FoldFit
from .moment_data import MomentData
from .moments import Moments
from .rows import RowData, rows_on_host
from .stream import StreamData

Checks = Callable[..., tuple[Any, Any, Any]]
SummedData = MomentData | StreamData


class TrainingData(Protocol):
    """What can be asked of training data, wherever the rows are."""

    @property
    def fit_intercept(self) -> bool:
        """Whether a column of ones is always in."""

    @property
    def rows(self) -> RowData | None:
        """The rows, on the host or on a device; None where only sums of rows are known."""

    @property
    def host_rows(self) -> RowData | None:
        """The rows, if they are on the host."""

    @property
    def summed(self) -> SummedData | None:
        """The data as sums of rows; None where the rows are known."""

    @property
    def n_rows_given(self) -> int:
        """Number of rows given to fit, with those of weight zero."""

    @property
    def why_no_rows(self) -> str:
        """Reason and way out, for requests that need the rows; empty if the rows are there."""

    @property
    def space(self) -> Space:
        """Where the arrays are."""

    @property
    def names(self) -> list[str] | None:
        """Column names of data that are not arrays."""

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""

    @property
    def single_target(self) -> bool:
        """Whether y was a vector."""

    @property
    def dtype(self) -> Any:
        """Type of coefficients and predictions."""

    @property
    def from_arrays(self) -> bool:
        """Whether scikit-learn has recorded the columns of the data on the estimator."""

    @property
    def is_stored(self) -> bool:
        """Whether pickles and model files may hold the data."""

    @property
    def can_be_read_again(self) -> bool:
        """Whether the rows can be read once more."""

    @property
    def kept_rows(self) -> Any:
        """Indices of the rows with positive weight; None: all, or unknown."""

    def complete(self, design: Design) -> Design:
        """Add the shape of the data and the drawable rows to a design; may read the data."""

    def loaded_if_small(self, many_rows: int) -> TrainingData:
        """Rows on the host if there are fewer than `many_rows` or than columns; or the data."""

    def reopen(self) -> TrainingData | None:
        """The unread data, to be kept with a fit; None if they cannot be read again."""

    def total_moments(self) -> Moments:
        """Moments of all rows, on the host; may read the data."""

    def largest(self, values_of: Callable[[Any], Any]) -> float:
        """Largest of ``values_of(X)`` over the training rows; may read the data."""

    def fold_moments(self, count: int, seed: int) -> list[Moments]:
        """Moments of random folds of rows; may read the data."""

    def in_groups(self, count: int, seed: int) -> TrainingData:
        """The data, with sums of random groups of rows where the rows are not kept."""

    def with_errors(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        """Add held-out errors to the fits without each random fold, of at most about `max_rows` of
        `n_rows` rows if the data are read in blocks.
        """


def open_data(
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    fit_intercept: bool,
    options: Callable[[], Options],
    checks: Checks,
    min_rows: int = 2,
) -> TrainingData:
    """Open training data; ``checks(X, y, sample_weight)`` converts data that are held in memory to
    arrays.

    ==========================================================  ==================
    X                                                           data
    ==========================================================  ==================
    Dask array or data frame, more rows than columns            MomentData
    array of another library, if scikit-learn dispatches on it  RowData on a device
    path, large memory map, blocks (see ``sources``)            MomentData
    array, sparse matrix or data frame                          RowData
    open training data                                          itself
    ==========================================================  ==================
    """
    if type(X) is np.ndarray and type(y) is np.ndarray:  # the usual case takes no further tests
        return rows_on_host(*checks(X, y, sample_weight), fit_intercept, min_rows)
    if isinstance(X, (MomentData, RowData)):
        return X
    if is_dask(X):  # first: Dask arrays follow the array API too
        rows = DaskRows.of(X, y, sample_weight)
        if rows.n_rows > rows.X.shape[1]:
            return MomentData(rows, fit_intercept, options())
        require(
            8.0 * rows.n_rows * rows.X.shape[1], f"Loading the {rows.kind}", "Use fewer columns."
        )
        X, y, sample_weight = dask_rows.compute(rows.X, rows.y, rows.weight)
        if rows.names:
            X = from_extra("pandas", "dask", "A Dask data frame").DataFrame(X, columns=rows.names)
    elif lives_elsewhere(X, y):
        return rows_on_device(X, y, sample_weight, fit_intercept)
    elif (source := sources.open_source(X, y, sample_weight)) is not None:
        return MomentData(source, fit_intercept, options())
    return rows_on_host(*checks(X, y, sample_weight), fit_intercept, min_rows)


def predict_elsewhere(X: Any, coef: Any, intercept: Any, check: Callable[[Any], Any]) -> Any | None:
    """Predictions on the device or cluster of X, after a check of its columns; None for ordinary
    arrays.
    """
    if not is_dask(X) and lives_elsewhere(X, coef):
        return device_rows.predict(X, coef, intercept, check)
    device_rows.refuse_unfollowed(X, coef)
    return dask_rows.predict(X, coef, intercept, check) if is_dask(X) else None
