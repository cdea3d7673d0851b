"""Parse the columns of a table into numbers, days or strings for scikit-learn's encoders, and find
missing cells.

The number format (thousands marks, decimal commas) and the date format (order of day and month) of
a column of strings are detected from its distinct values, which must all follow one format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from .._execution import messages
from .._report.formatting import counted, quoted, shortened
from .tables import BLANKS, TableError, is_text, listed, option, separator_of

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Stage = Literal[
    "fit", "blocks", "predict"
]  # purpose of a table: a fit in memory or in blocks, or a prediction
FIRST_ROW = (  # metadata key of a part of a larger table: the index of its first row
    b"olsen.first_row"
)
MICROSECONDS_PER_DAY = 86_400_000_000
MAX_NAMED_COLUMNS = 8  # in the message about missing cells
SNIFFED_ROWS = 1000  # rows from which the format of a column is guessed
LARGEST_EXACT_INTEGER = 2**53  # up to which double precision represents every integer
SPACES = " \u00a0\u202f\u2009"  # thousands separators, besides point and comma


def _pattern(decimal: str, thousands: str) -> str:
    """Regular expression of numbers with a decimal mark.

    Digits with a leading zero are an identifier and do not match, unless there are decimals.
    """
    groups = "|".join(rf"(?:[{mark}]\d{{3}})+" for mark in thousands + SPACES)
    integer = rf"(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:{groups}))"
    return rf"^[+-]?(?:{integer}(?:[{decimal}]\d*)?|\d*[{decimal}]\d+)(?:[eE][+-]?\d+)?$"


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}
DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T ]\s*(\d{1,2})(:\d\d.*))?")
DATES = {
    "ymd": "2024-12-31",
    "dmy": "31.12.2024",
    "mdy": "12/31/2024",
}  # order of year, month and day -> example
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Parse columns into numbers, days since 1970-01-01 or strings; missing cells become NaN.

    Parameters
    ----------
    kind : {"number", "date", "text"}, default="number"
        Type of the columns.
    decimal : {".", ","}, default=None
        Decimal mark of numbers that the table stores as strings; None: the columns hold plain
        numbers.
    order : {"ymd", "dmy", "mdy"}, default="ymd"
        Order of year, month and day in dates that the table stores as strings.
    """

    __module__ = "olsen"  # model files name no private module

    def __init__(
        self,
        kind: Literal["number", "date", "text"] = "number",
        decimal: str | None = None,
        order: str = "ymd",
    ) -> None:
        self.kind = kind
        self.decimal = decimal
        self.order = order

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing: the format of the columns is set by the parameters.

        Parameters
        ----------
        X, y : object
            Ignored.

        Returns
        -------
        self : object
        """
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Parse the cells of a table.

        Parameters
        ----------
        X : data frame or pyarrow table of shape (n_samples, n_columns)
            Cells.

        Returns
        -------
        cells : ndarray of shape (n_samples, n_columns)
            Floating-point numbers, or strings as objects.
        """
        import narwhals as nw

        if not isinstance(X, pa.Table):
            frame = nw.from_native(X, eager_only=True)
            X = frame.to_arrow().select(frame.columns)
        first_row = rows_before(X)
        separator = separator_of(X)
        parsed: list[NDArray[Any]] = []
        for name, column in zip(X.column_names, X.columns, strict=True):
            if self.kind == "text":
                parsed.append(_as_objects(column))
            elif self.kind == "date":
                parsed.append(self._days(column, name, first_row))
            else:
                parsed.append(self._numbers(column, name, first_row, separator))
        return np.column_stack(parsed)

    def _days(self, column: Any, name: str, first_row: int) -> Array:
        if is_text(column.type):
            strings, codes = distinct_strings(column)
            values = np.array([days(text, self.order) for text in strings.to_pylist()], dtype=float)
            expected = f"dates such as {DATES[self.order]} are expected"
            return _value_of_each_row(
                values,
                strings=strings,
                codes=codes,
                name=name,
                expected=expected,
                first_row=first_row,
            )
        if not is_temporal(column.type):
            raise TableError(
                f"column {quoted(name)} is of type {shortened(column.type)}, but dates are"
                " expected."
            )
        microsecond_type = pa.timestamp("us", tz=getattr(column.type, "tz", None))
        microseconds = (
            column.cast(microsecond_type, safe=False).cast("int64").cast("float64", safe=False)
        )
        return np.asarray(microseconds.to_numpy(), dtype=float) / MICROSECONDS_PER_DAY

    def _numbers(self, column: Any, name: str, first_row: int, separator: str) -> Array:
        values = plain_numbers(column)
        if values is not None:
            if self.decimal == "," and separator not in ("", ","):
                refuse_doubtful_points(column.drop_null(), f"column {quoted(name)}")
            return values
        if not is_text(column.type):
            kind = shortened(column.type)
            raise TableError(
                f"column {quoted(name)} is of type {kind}, not numbers; turn it into numbers."
            )
        strings, codes = distinct_strings(column)
        decimal = self._decimal_mark(strings, name)
        expected = f"numbers with {quoted(decimal)} are expected"
        values = numbers_in(strings, decimal)
        return _value_of_each_row(
            values, strings=strings, codes=codes, name=name, expected=expected, first_row=first_row
        )

    def _decimal_mark(self, strings: Any, name: str) -> str:
        """Return the learned decimal mark; after plain numbers in training, the mark of the strings
        if unambiguous.
        """
        if self.decimal is not None:
            return self.decimal
        decimal = decimal_mark(strings, f"column {quoted(name)}")
        if decimal is None:
            raise TableError(
                f"column {quoted(name)} holds text ({listed(strings.to_pylist(), 3)}), but the"
                " model learned numbers there; correct those cells."
            )
        shown_example = example(strings, decimal)
        messages.warn(
            f"numbers of column {quoted(name)} are written unlike those in training:"
            f" {shown_example}."
        )
        return decimal

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns unchanged.

        Parameters
        ----------
        input_features : sequence of str
            Names.

        Returns
        -------
        names : ndarray of str
        """
        return np.asarray(input_features, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def rows_before(table: Any) -> int:
    """Number of rows that precede a part of a larger table."""
    return int((table.schema.metadata or {}).get(FIRST_ROW, 0))


def _value_of_each_row(
    values: Array, *, strings: Any, codes: Any, name: str, expected: str, first_row: int
) -> Array:
    """Expand the values of distinct strings to rows, NaN for missing cells; raise for a string
    without a value.
    """
    if np.isnan(values).any():
        unparsed_codes = np.flatnonzero(np.isnan(values))
        row = int(np.flatnonzero(np.isin(codes, unparsed_codes))[0])
        text = strings[int(codes[row])].as_py()
        raise TableError(
            f"column {quoted(name)} holds {quoted(text)} in row {first_row + row + 1}, where"
            f" {expected}; correct that cell."
        )
    return np.asarray(
        np.append(values, np.nan)[codes], dtype=float
    )  # the code -1 takes the appended NaN


# Strings


def distinct_strings(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """Distinct strings of a column, stripped of blanks, and the code of each row, -1 where the cell
    is missing.

    A column that is stored as a dictionary stays one: a long string may be repeated in a million
    rows.
    """

    if not pa.types.is_dictionary(column.type):
        column = as_text(column).dictionary_encode()
    encoded = column.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray) and encoded.num_chunks:
        encoded = encoded.chunk(0)
    if not len(encoded):
        return pa.array([], "string"), np.zeros(0, dtype=np.int64)
    codes = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    used_codes, codes = np.unique(codes, return_inverse=True)
    n_missing_codes = int(used_codes[0] < 0)  # one if some cell is missing
    strings = encoded.dictionary.take(pa.array(used_codes[n_missing_codes:])).cast("string")
    return pc.utf8_trim(strings, characters=BLANKS), codes - n_missing_codes


def as_text(column: Any) -> Any:
    """Convert numbers, Booleans and dates to strings as a text file would have them: 1 and not 1.0."""

    try:
        return column.cast("string")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        cells = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(cells, "string")])


def strings_of(table: Any, names: Iterable[str]) -> dict[str, list[str]]:
    """Cells of identifier columns as strings, empty where a cell is missing."""
    return {
        name: [text or "" for text in as_text(table.column(name)).to_pylist()] for name in names
    }


def _as_objects(column: Any) -> NDArray[Any]:
    strings, codes = distinct_strings(column)
    return np.array([*strings.to_pylist(), np.nan], dtype=object)[codes]


# Numbers


def plain_numbers(column: Any) -> Array | None:
    """Convert a column to numbers, NaN where missing; None if a cell is not a number in plain
    notation.

    Integers above 2^53 are rounded.
    """

    try:
        if pa.types.is_dictionary(column.type):
            strings, codes = distinct_strings(column)
            return np.append(np.asarray(strings.cast("float64"), dtype=float), np.nan)[codes]
        if pa.types.is_decimal(column.type):
            column = column.cast(
                "string"
            )  # strings are rounded correctly; a direct cast may miss the last digit
        return np.asarray(column.cast("float64", safe=False).to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def is_plain(table: Any, name: str, decimals: str, label: str, notes: list[str]) -> bool:
    """Whether a column of a training table holds plain numbers; numbers that may be identifiers add
    a note.

    Strings count as plain numbers only in a text file. If other columns have decimal commas, points
    must be unambiguous.
    """
    column = table.column(name)
    is_string = is_text(column.type)
    values = plain_numbers(column) if separator_of(table) or not is_string else None
    if values is None:
        if not is_string and not is_temporal(column.type):
            drop = (
                f", or leave it out with {option('--drop', name)}"
                if label.startswith("column")
                else ""
            )
            raise TableError(
                f"{label} is of type {shortened(column.type)}, not numbers; turn it into"
                f" numbers{drop}."
            )
        return False
    is_integer = pa.types.is_integer(column.type)
    suspicion = ""
    if is_string:
        if "," in decimals:
            refuse_doubtful_points(column.drop_null(), label)
        head = column.slice(0, SNIFFED_ROWS)
        is_integer = pc.all(pc.match_substring_regex(head, r"^[+-]?\d+$")).as_py()
        row = (
            pc.index(pc.match_substring_regex(head, r"^0\d+$"), True).as_py() if is_integer else -1
        )
        suspicion = (
            f"numbers with leading zeros: {quoted(head[row])} is {values[row]:g}"
            if row >= 0
            else ""
        )
    if is_integer and np.nanmax(np.abs(values), initial=0) > LARGEST_EXACT_INTEGER:
        suspicion = "whole numbers above 2^53, rounded to 16 digits"
    elif (
        is_integer
        and not suspicion
        and np.ptp(values) == len(values) - 1
        and (np.diff(np.sort(values)) == 1).all()
    ):
        suspicion = f"the whole numbers from {values.min():g} to {values.max():g}, each once"
    if suspicion:
        notes.append(
            f"{label} holds {suspicion}; if they are identifiers, leave it out with"
            f" {option('--id', name)}."
        )
    return True


def is_temporal(kind: Any) -> bool:
    """Whether a column type holds dates, with or without times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def fits_format(strings: Any, decimal: str) -> Mask:
    """Mask of the strings that are numbers with a decimal mark."""

    return np.asarray(pc.match_substring_regex(strings, PATTERNS[decimal]), dtype=bool)


def odd_strings(strings: Any) -> Mask:
    """Mask of the strings that are not numbers in the format of most strings."""
    most_common_format = max((fits_format(strings, mark) for mark in PATTERNS), key=np.sum)
    return np.asarray(~most_common_format, dtype=bool)


def possible_decimals(strings: Any) -> list[str]:
    """Decimal marks with which all strings of an array are numbers.

    >>> import pyarrow as pa
    >>> [possible_decimals(pa.array(strings)) for strings in (["1,234", "0,5"], ["1,234"], ["a"])]
    [[','], ['.', ','], []]
    """
    return [mark for mark in PATTERNS if len(strings) and fits_format(strings, mark).all()]


def settled_decimals(table: Any) -> str:
    """Decimal marks of the unambiguous columns; a point if cells are separated by commas."""
    if separator_of(table) in ("", ","):
        return "."
    marks_of_columns = [
        possible_decimals(column.slice(0, SNIFFED_ROWS).drop_null()) for column in table.columns
    ]
    return "".join({marks[0] for marks in marks_of_columns if len(marks) == 1})


def decimal_mark(strings: Any, label: str, settled: str = "") -> str | None:
    """Decimal mark with which all strings of an array are numbers; None if there is none.

    Strings that are numbers with either mark, such as 1,234, take the mark of the other columns if
    `settled` holds exactly one; otherwise they are refused.
    """

    decimals = possible_decimals(strings)
    if len(decimals) < 2:
        return decimals[0] if decimals else None
    marks = [mark for mark in ".," if pc.any(pc.match_substring(strings, mark)).as_py()]
    if marks in ([], ["."]):
        return "."
    if marks == [","] and len(settled) == 1:
        return settled
    raise _doubt(strings, label, marks[-1])


def refuse_doubtful_points(strings: Any, label: str) -> None:
    """Raise if the points in all strings of an array may be thousands separators, as in 1.234."""

    if len(possible_decimals(strings)) == 2 and pc.any(pc.match_substring(strings, ".")).as_py():
        raise _doubt(strings, label, ".")


def _doubt(strings: Any, label: str, mark: str) -> TableError:
    text = next(text for text in strings.to_pylist() if mark in text)
    return TableError(
        f"{label} holds {quoted(text)}, which may be {text.replace(mark, '.')} or"
        f" {text.replace(mark, '')}; write numbers of all columns with the same decimal mark, and"
        " nothing between thousands."
    )


def numbers_in(strings: Any, decimal: str) -> Array:
    """Parse strings as numbers with a decimal mark; NaN for strings that are not numbers.

    >>> import pyarrow as pa
    >>> numbers_in(pa.array(["1.234,50", "12", "1,5 %"]), ",")
    array([1234.5,   12. ,    nan])
    """

    digits = pc.replace_substring_regex(strings, rf"[^\d{decimal}eE+-]", "")
    digits = pc.if_else(
        fits_format(strings, decimal), pc.replace_substring(digits, decimal, "."), None
    )
    return np.asarray(digits.cast("float64").to_numpy(zero_copy_only=False), dtype=float)


def example(strings: Any, decimal: str) -> str:
    """Describe how strings are parsed as numbers, by the longest string."""
    longest = max(strings.to_pylist(), key=len)
    value = numbers_in(strings, decimal)[strings.index(longest).as_py()]
    return f"{quoted(longest)} is {value:g}"


# Dates


def date_order(strings: Iterable[str], label: str) -> str | None:
    """Order of year, month and day in which all strings are dates; None if there is none.

    >>> date_order(["31.12.2024", "01.02.2025"], "date"), date_order(["12/31/2024", "01/02/2025"], "date")
    ('dmy', 'mdy')
    """
    strings = list(strings)
    orders = [
        order
        for order in DATES
        if strings and all(days(text, order) is not None for text in strings)
    ]
    if len(orders) > 1:
        raise TableError(
            f"{label} holds dates such as {quoted(strings[0])}, whose day and month cannot be"
            " distinguished; write dates as 2024-12-31."
        )
    return orders[0] if orders else None


def days(text: str, order: str) -> float | None:
    """Days from 1970-01-01 to a date, with a fraction for a time of day; None if `text` is no date
    in this order.
    """
    match = DATE.fullmatch(text.strip())
    if match is None or (order == "mdy" and match[2] == "."):
        return None
    parts = dict(zip(order, match.group(1, 3, 4), strict=True))
    time = "" if match[5] is None else f"T{match[5]:0>2}{match[6].replace(' ', '')}"
    try:
        moment = datetime.fromisoformat(f"{parts['y']}-{parts['m']:0>2}-{parts['d']:0>2}{time}")
    except ValueError:
        return None
    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    return (moment - EPOCH) / timedelta(days=1)


# Missing cells


def refuse_missing(
    table: Any,
    names: Iterable[str],
    *,
    filled: Iterable[str] = (),
    target: str | None = None,
    stage: Stage = "fit",
) -> dict[str, int]:
    """Raise if cells are missing or infinite, with the number of cells and the first row.

    In `filled` columns only infinite cells are refused; missing cells are counted by column and
    returned.
    """
    unusable_counts = Counter[str]()
    missing_counts: dict[str, int] = {}
    n_infinite = 0
    first_row = table.num_rows
    for name in names:
        is_missing, is_infinite = unusable(table.column(name))
        is_refused = is_infinite if name in filled else is_missing | is_infinite
        if stage == "fit" and name in filled and is_missing.all():
            raise TableError(
                f"column {quoted(name)} is empty; leave it out with {option('--drop', name)}."
            )
        if name in filled and is_missing.any():
            missing_counts[name] = int(is_missing.sum())
        if is_refused.any():
            unusable_counts[name] = int(is_refused.sum())
            n_infinite += int(is_infinite.sum())
            first_row = min(first_row, int(np.argmax(is_refused)))
    if not unusable_counts:
        return missing_counts
    n_cells = unusable_counts.total()
    n_columns = len(unusable_counts)
    most_affected = unusable_counts.most_common(MAX_NAMED_COLUMNS)
    columns = ", ".join(f"{quoted(name)} ({count})" for name, count in most_affected)
    if n_columns > MAX_NAMED_COLUMNS:
        columns += f" and {n_columns - MAX_NAMED_COLUMNS} more"
    if n_infinite == 0:
        defect = "missing"
    elif n_infinite == n_cells:
        defect = "infinite"
    else:
        defect = f"missing or not finite ({n_infinite} infinite)"
    # the target cannot be dropped, nor can a column that a fitted model needs
    remedies = [
        "Correct them",
        "leave these rows out with --missing drop" if stage == "fit" else "remove these rows",
    ]
    if stage == "fit" and not n_infinite and target not in unusable_counts:
        remedies.append("fill them with --missing mean")
    if stage != "predict" and set(unusable_counts) != {target}:
        exception = " other than the target" if target in unusable_counts else ""
        remedies.append(f"leave columns{exception} out with --drop")
    raise TableError(
        f"{counted(n_cells, 'cell')} {defect}, in {counted(n_columns, 'column')}: {columns}, the"
        f" first in row {rows_before(table) + first_row + 1}. {', '.join(remedies[:-1])}, or"
        f" {remedies[-1]}."
    )


def unusable(column: Any) -> tuple[Mask, Mask]:
    """Masks of the missing and of the infinite cells of a column."""

    values = plain_numbers(column)
    if values is not None:
        return np.isnan(values), np.isinf(values)
    return np.asarray(pc.is_null(column), dtype=bool), np.zeros(len(column), dtype=bool)
