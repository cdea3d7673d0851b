"""Convert the cells of table columns to numbers, days and strings, and find missing cells.

The number format (thousands marks, decimal commas) and the date format (order of day and month) of
a column of strings are detected from its distinct values, which must all follow one format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .._report.formatting import counted, quoted
from .tables import BLANKS, TableError, option, separator_of, text_names

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# purpose of a table: a fit in memory or in blocks, or a prediction
Stage = Literal["fit", "blocks", "predict"]
FIRST_ROW = b"olsen.first_row"  # metadata key of a part of a larger table: index of its first row
SNIFFED_ROWS = 1000  # rows from which the format of a column is guessed
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
# order of year, month and day -> example
DATES = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}


def rows_before(table: Any) -> int:
    """Number of rows that precede a part of a larger table."""
    return int((table.schema.metadata or {}).get(FIRST_ROW, 0))


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
    return {name: as_text(table.column(name)).fill_null("").to_pylist() for name in names}


def strings_as_objects(column: Any) -> NDArray[Any]:
    """Cells of a column as an array of strings, NaN where a cell is missing."""
    strings, codes = distinct_strings(column)
    return np.array([*strings.to_pylist(), np.nan], dtype=object)[codes]


# Numbers in plain notation


def plain_numbers(columns: Iterable[Any]) -> list[Array | None]:
    """Convert columns to numbers, NaN where missing; None for a column with a cell that is not a
    number in plain notation.

    Integers above 2^53 are rounded.
    """
    return [_plain_numbers(column) for column in columns]


def _plain_numbers(column: Any) -> Array | None:
    try:
        if pa.types.is_dictionary(column.type):
            strings, codes = distinct_strings(column)
            return np.append(np.asarray(strings.cast("float64"), dtype=float), np.nan)[codes]
        if pa.types.is_decimal(column.type):
            # strings are rounded correctly; a direct cast may miss the last digit
            column = column.cast("string")
        return np.asarray(column.cast("float64", safe=False).to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def plain_columns(table: Any, names: Iterable[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Convert the columns of a training table that hold plain numbers.

    Strings count as plain numbers only in a text file.

    Returns
    -------
    values : dict
        Numbers by column, NaN where a cell is missing.
    suspicions : dict
        For columns whose numbers may be identifiers, the reason to think so.
    """
    string_columns = set(text_names(table.schema))
    possible = names if separator_of(table) else [n for n in names if n not in string_columns]
    values = {}
    suspicions = {}
    for name in possible:
        column = table.column(name)
        numbers = _plain_numbers(column)
        if numbers is not None:
            values[name] = numbers
            reason = _identifier_suspicion(column, numbers, name in string_columns)
            if reason:
                suspicions[name] = reason
    return values, suspicions


def _identifier_suspicion(column: Any, values: Array, is_string: bool) -> str:
    """Describe why the plain numbers of a column may be identifiers; empty if they look measured."""
    if is_string:
        head = column.slice(0, SNIFFED_ROWS)
        is_integer = pc.all(pc.match_substring_regex(head, r"^[+-]?\d+$")).as_py()
    else:
        is_integer = pa.types.is_integer(column.type)
    if not is_integer:
        return ""
    if np.nanmax(np.abs(values), initial=0) > 2**53:
        return "whole numbers above 2^53, rounded to 16 digits"
    if is_string:
        codes = head.filter(pc.match_substring_regex(head, r"^0\d+$"))
        if len(codes):
            return f"numbers with leading zeros: {quoted(codes[0])} is {float(codes[0].as_py()):g}"
    if np.ptp(values) == len(values) - 1 and (np.diff(np.sort(values)) == 1).all():
        return f"the whole numbers from {values.min():g} to {values.max():g}, each once"
    return ""


# Numbers with decimal commas and thousands marks


def is_number(strings: Any, decimal: str) -> Mask:
    """Mask of the strings that are numbers with a decimal mark."""
    return np.asarray(pc.match_substring_regex(strings, PATTERNS[decimal]), dtype=bool)


def odd_strings(strings: Any) -> Mask:
    """Mask of the strings that are not numbers in the format of most strings."""
    most_common_format = max((is_number(strings, mark) for mark in PATTERNS), key=np.sum)
    return np.asarray(~most_common_format, dtype=bool)


def possible_decimals(strings: Any) -> list[str]:
    """Decimal marks with which all strings of an array are numbers.

    >>> import pyarrow as pa
    >>> [possible_decimals(pa.array(strings)) for strings in (["1,234", "0,5"], ["1,234"], ["a"])]
    [[','], ['.', ','], []]
    """
    return [mark for mark in PATTERNS if len(strings) and is_number(strings, mark).all()]


def settled_decimals(table: Any) -> str:
    """Decimal marks of the unambiguous columns; a point if cells are separated by commas."""
    if separator_of(table) in ("", ","):
        return "."
    head = table.slice(0, SNIFFED_ROWS)
    marks_of_columns = [possible_decimals(column.drop_null()) for column in head.columns]
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
    digits = pc.replace_substring(digits, decimal, ".")
    digits = pc.if_else(is_number(strings, decimal), digits, None)
    return np.asarray(digits.cast("float64").to_numpy(zero_copy_only=False), dtype=float)


def example(strings: Any, decimal: str) -> str:
    """Describe how strings are parsed as numbers, by the longest string."""
    longest = max(strings.to_pylist(), key=len)
    return f"{quoted(longest)} is {numbers_in(pa.array([longest]), decimal)[0]:g}"


# Dates


def is_temporal(kind: Any) -> bool:
    """Whether a column type holds dates, with or without times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def days_of(column: Any) -> Array:
    """Days from 1970-01-01 to the dates of a column of a temporal type, NaN where missing."""
    microsecond_type = pa.timestamp("us", tz=getattr(column.type, "tz", None))
    microseconds = column.cast(microsecond_type, safe=False).cast("int64")
    return np.asarray(microseconds.cast("float64", safe=False).to_numpy(), dtype=float) / 86_400e6


def date_order(strings: list[str], label: str) -> str | None:
    """Order of year, month and day in which all strings are dates; None if there is none.

    >>> date_order(["31.12.2024", "01.02.2025"], "date"), date_order(["12/31/2024", "01/02/2025"], "date")
    ('dmy', 'mdy')
    """
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
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() / 86_400


# Missing cells


def missing_and_infinite(table: Any, names: Iterable[str]) -> tuple[Mask, Mask]:
    """Masks of the missing and of the infinite cells of columns, (n_rows, n_columns) each."""
    names = list(names)
    is_missing = np.zeros((table.num_rows, len(names)), dtype=bool)
    is_infinite = np.zeros_like(is_missing)
    for j, name in enumerate(names):
        column = table.column(name)
        values = _plain_numbers(column)
        if values is None:
            is_missing[:, j] = pc.is_null(column)
        else:
            is_missing[:, j] = np.isnan(values)
            is_infinite[:, j] = np.isinf(values)
    return is_missing, is_infinite


def refuse_missing(
    table: Any,
    names: list[str],
    *,
    filled: Collection[str] = (),
    target: str | None = None,
    stage: Stage = "fit",
) -> dict[str, int]:
    """Raise if cells are missing or infinite, with the number of cells and the first row.

    In `filled` columns only infinite cells are refused; missing cells are counted by column and
    returned.
    """
    is_missing, is_infinite = missing_and_infinite(table, names)
    is_filled = np.array([name in filled for name in names], dtype=bool)
    is_empty = is_filled & is_missing.all(axis=0)
    if stage == "fit" and is_empty.any():
        name = names[is_empty.argmax()]
        raise TableError(
            f"column {quoted(name)} is empty; leave it out with {option('--drop', name)}."
        )
    is_refused = is_infinite | (is_missing & ~is_filled)
    if not is_refused.any():
        counts = is_missing.sum(axis=0).tolist()
        return {name: count for name, count in zip(names, counts, strict=True) if count}
    raise _unusable(table, names, is_refused, int(is_infinite.sum()), target=target, stage=stage)


def _unusable(
    table: Any, names: list[str], is_refused: Mask, n_infinite: int, *, target: Any, stage: Stage
) -> TableError:
    """Error about missing and infinite cells, with the number of cells, the columns and the
    remedies.
    """
    counts = is_refused.sum(axis=0).tolist()
    affected = [j for j in np.argsort(-is_refused.sum(axis=0), kind="stable") if counts[j]]
    columns = ", ".join(f"{quoted(names[j])} ({counts[j]})" for j in affected[:8])
    if len(affected) > 8:
        columns += f" and {len(affected) - 8} more"
    if n_infinite == 0:
        defect = "missing"
    elif n_infinite == sum(counts):
        defect = "infinite"
    else:
        defect = f"missing or not finite ({n_infinite} infinite)"
    is_target = target in {names[j] for j in affected}
    remedies = ["Correct them"]
    remedies.append("leave these rows out with --missing drop" if stage == "fit" else "remove them")
    if stage == "fit" and not (n_infinite or is_target):
        remedies.append("fill them with --missing mean")
    if stage != "predict" and not is_target:  # a fitted model needs its columns
        remedies.append("leave columns out with --drop")
    row = rows_before(table) + is_refused.any(axis=1).argmax() + 1
    return TableError(
        f"{counted(sum(counts), 'cell')} {defect}, in {counted(len(affected), 'column')}:"
        f" {columns}, the first in row {row}. {', '.join(remedies[:-1])}, or {remedies[-1]}."
    )


def refuse_infinite(values: Array, names: list[str], table: Any) -> None:
    """Raise if parsed values, (n_rows, n_columns), are not finite, with the column and the row."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        row, j = np.argwhere(~is_finite)[0]
        raise TableError(
            f"column {quoted(names[j])} is infinite in row {rows_before(table) + row + 1}; correct"
            " that cell."
        )


def refuse_odd_strings(table: Any, name: str, label: str) -> None:
    """Raise for a column that holds strings which are not numbers, with the first of the strings."""
    strings, codes = distinct_strings(table.column(name))
    is_odd = np.append(odd_strings(strings), False)[codes]  # the code -1 takes the appended False
    row = int(is_odd.argmax())
    raise TableError(
        f"{label} holds text, or numbers in another format, in {counted(int(is_odd.sum()), 'cell')}, the"
        f" first {quoted(strings[int(codes[row])])} in row {row + 1}; correct them, empty them and"
        " leave their rows out with --missing drop, or choose another column."
    )


def values_of_rows(table: Any, name: str, parse: Callable[[Any], Array], expected: str) -> Array:
    """Parse the distinct strings of a column and expand the values to rows, NaN for missing cells.

    `parse` maps an array of strings to values, NaN for a string that has none, which is refused.
    """
    strings, codes = distinct_strings(table.column(name))
    values = parse(strings)
    is_unparsed = np.append(np.isnan(values), False)[codes]
    if is_unparsed.any():
        row = int(is_unparsed.argmax())
        text = strings[int(codes[row])]
        raise TableError(
            f"column {quoted(name)} holds {quoted(text)} in row {rows_before(table) + row + 1},"
            f" where {expected}; correct that cell."
        )
    return np.append(values, np.nan)[codes]  # the code -1 takes the appended NaN
