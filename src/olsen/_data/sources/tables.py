"""What tables and arrays hold: names of columns, strings, dates and numbers that are not finite."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from ..._execution import from_extra


def column_names(table: Any) -> list[str] | None:
    """Names of the columns of a data frame or an Arrow table.

    None for arrays and, as in scikit-learn, for tables of which some column name is not a string.
    """
    names = getattr(table, "column_names", None)  # of Arrow tables, whose `columns` are the data
    if names is None:
        names = getattr(table, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def named_columns(values: Any) -> list[str] | None:
    """Column names in y or sample_weight; None if the argument is an array or a file."""
    match values:
        case str():
            return None if values.endswith(".npy") else [values]
        case [_, *_] if all(isinstance(name, str) for name in values):
            return list(values)
    return None


def split_columns(
    columns: Sequence[str], y: Any, sample_weight: Any, kind: str
) -> tuple[list[str], list[str]]:
    """Split column names into those of X and those that y and sample_weight name."""
    other_names = [*(named_columns(y) or []), *(named_columns(sample_weight) or [])]
    names = [name for name in columns if name not in other_names]
    missing = [name for name in other_names if name not in columns]
    if missing or not names:
        raise ValueError(
            f"{kind} has no column {missing or 'for X'}; it has {first_items(columns)}."
        )
    return names, other_names


def first_items(items: Sequence[Any], n_shown: int = 5) -> str:
    """List the first items, for messages."""
    return ", ".join(map(repr, items[:n_shown])) + " ..." * (len(items) > n_shown)


def describe_not_finite(values: Any, name: str, names: Sequence[str] | None = None) -> str | None:
    """Describe NaN and infinity in an array of floats, dense or sparse; None if all its numbers are
    finite.

    The sentence gives the first such entry in the order of rows, counted from 0, and its column by
    name if it has one.
    """
    if hasattr(values, "tocoo"):
        entries = values.tocoo()
        numbers, rows, columns = entries.data, entries.row, entries.col
    else:
        table = values.reshape(len(values), -1)
        rows, columns = np.nonzero(~np.isfinite(table))
        numbers = table[rows, columns]
    missing = np.isnan(numbers)
    reported = missing if missing.any() else np.isinf(numbers)
    if not reported.any():
        return None
    kind, adjective = ("NaN", "missing") if missing.any() else ("infinity", "infinite")
    positions = sorted(zip(rows[reported].tolist(), columns[reported].tolist(), strict=True))
    first_row, first_column = positions[0]
    position = f"row {first_row} (counted from 0)"
    if values.ndim == 2:
        position += f", column {first_column if names is None else repr(names[first_column])}"
    n_values = len(positions)
    n_rows = len({row for row, _ in positions})
    remedy = "Drop these rows"
    if name == "X":
        fill = "fill the missing values with sklearn.impute.SimpleImputer"
        remedy += f", or {fill if missing.any() else 'fix the values'}"
    return (
        f"{name} contains {kind}: {n_values} {adjective} value{'s' * (n_values > 1)} in"
        f" {n_rows} of {values.shape[0]} rows, the first in {position}. {remedy}."
    )


def as_table(X: Any) -> Any:
    """Convert an Arrow record batch to a table, whose columns scikit-learn and narwhals see; return
    other X as is.
    """
    if type(X).__module__.split(".")[0] == "pyarrow" and type(X).__name__ == "RecordBatch":
        return from_extra("pyarrow", "parquet", "A record batch").Table.from_batches([X])
    return X


def refuse_times(suffix: str = "", /, **arrays: Any) -> None:
    """Raise if X, y or weights hold dates or durations, which NumPy would convert to counts of some
    unit.

    The message calls an array by its keyword followed by `suffix`.
    """
    for name, values in arrays.items():
        if values is not None:
            refuse_time_columns(_time_columns(as_table(values)), f"{name}{suffix}")


def _time_columns(values: Any) -> list[Any]:
    """Names, or indices, of the columns that hold dates, times or durations."""
    if nw.dependencies.is_into_dataframe(values):
        columns = list(nw.from_native(values).iter_columns())
        return [column.name for column in columns if _is_time(column)]
    if nw.dependencies.is_into_series(values):
        series = nw.from_native(values, series_only=True)
        return [series.name or 0] if _is_time(series) else []
    dtype = getattr(values, "dtype", np.dtype(object))  # lists have none
    if getattr(dtype, "kind", "f") not in "mMO":  # types of other libraries have no kind
        return []
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths, which scikit-learn refuses
        return []
    has_columns = array.ndim == 2 and array.shape[1]  # Dask's samples have none
    table = array if has_columns else array.reshape(-1, 1)
    return [j for j, column in enumerate(table.T) if _holds_times(column)]


def _is_time(column: Any) -> bool:
    objects = column.dtype == nw.Object
    return _holds_times(column.to_numpy()) if objects else bool(column.dtype.is_temporal())


def _holds_times(values: NDArray[Any]) -> bool:
    """Whether an array holds dates, times or durations, also as objects."""
    times = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)
    if values.dtype.kind == "O":
        return any(isinstance(value, times) for value in values.ravel())
    return values.dtype.kind in "mM"


def refuse_time_columns(columns: Sequence[Any], name: str) -> None:
    """Raise if any columns of X or y (`name`) hold times."""
    if columns:
        raise ValueError(
            f"{name} holds dates or times in column {first_items(columns)}, which are not numbers:"
            " give differences to a reference date, for instance (t - t.min()) /"
            " numpy.timedelta64(1, 'D'), or encode a table with olsen.TableEncoder, as in"
            " make_pipeline(TableEncoder(), model)."
        )


def refuse_text(text_columns: Sequence[str], n_columns: int) -> None:
    """Raise if any columns do not hold numbers."""
    if text_columns:
        raise ValueError(
            f"{len(text_columns)} of {n_columns} columns do not hold numbers:"
            f" {first_items(text_columns)}. Encode them first with olsen.TableEncoder, as in"
            " make_pipeline(TableEncoder(), model), or leave them out."
        )
