"""Convert the cells of table columns to numbers, days and strings, and find missing cells.

The number format (thousands marks, decimal commas, a currency or percent sign) and the date format of
a column of strings are detected from its distinct values, which must all follow one format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._report.formatting import counted, quoted
from .arrow import pa, pc
from .problems import BLANKS, Problem, TableError, separator_of, text_names

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# purpose of a table: a fit in memory or in blocks, or a prediction
Stage = Literal["fit", "blocks", "predict"]
FIRST_ROW = b"olsen.first_row"  # metadata key of a part of a larger table: index of its first row
SNIFFED_ROWS = 1000  # rows from which the format of a column is guessed
SPACES = " \u00a0\u202f\u2009'\u2019"  # thousands separators, besides point and comma
# signs of currencies and percentages; letters only where they are an abbreviation of a currency
UNIT = (
    r"(?:[A-Z]{0,3}\p{Sc}|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR"
    r"|kr\.?|zł|Kč|Ft|Fr\.?|Rs\.?|[%‰])"
)
PERCENT = ("%", "‰")
GAP = r"[ \x{a0}\x{202f}]?"
# a number with its sign, unit and the brackets of bookkeepers around negative numbers
AMOUNT = (
    rf"^(?P<open>\(?)(?P<sign>[+-]?){GAP}(?P<before>{UNIT}?){GAP}(?P<second_sign>[+-]?)"
    rf"(?P<number>[\d.,](?:.*?[\d.,])?){GAP}(?P<after>{UNIT}?)(?P<close>\)?-?)$"
)


def _pattern(decimal: str, thousands: str) -> str:
    """Regular expression of numbers with a decimal mark.

    Digits with a leading zero are an identifier and do not match, unless there are decimals.
    """
    groups = "|".join(rf"(?:[{mark}]\d{{3}})+" for mark in thousands + SPACES)
    integer = rf"(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:{groups}))"
    return rf"^[+-]?(?:{integer}(?:[{decimal}]\d*)?|\d*[{decimal}]\d+)(?:[eE][+-]?\d+)?$"


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}
DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T ]\s*(\d{1,2})(:\d\d.*))?")
# order of year, month and day -> words for it
DATES = {"ymd": "year, month and day", "dmy": "day, month and year", "mdy": "month, day and year"}
NAMED_MONTHS = tuple(
    f"{date}{time}"
    for date in ("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y")
    for time in ("", " %H:%M", " %H:%M:%S")
)
CLOCKS = tuple(
    f"{date} {time}" for date in ("%d/%m/%Y", "%m/%d/%Y") for time in ("%I:%M %p", "%I:%M:%S %p")
)


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


def distinct_cells(column: Any) -> Any:
    """Distinct cells of a column of any type that are not missing; nested ones as strings."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return pc.unique(column).drop_null()
    except pa.ArrowNotImplementedError:
        return pc.unique(as_text(column)).drop_null()


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


# Numbers with decimal commas, thousands marks, currencies and percent signs


class NumberFormat(NamedTuple):
    """How numbers are written: their decimal mark, and the sign of a currency or of percent."""

    decimal: str = ""  # empty for plain numbers
    unit: str = ""


class DoubtfulNumbers(Exception):
    """Numbers that may be read in two ways, and the decimal mark that is more likely."""

    def __init__(self, label: str, strings: Any, mark: str, likely: str) -> None:
        text = next(text for text in strings.to_pylist() if mark in text)
        self.problem = Problem(
            f"{label} holds {quoted(text)}, which may be {text.replace(mark, '.')} or"
            f" {text.replace(mark, '')}",
            "say which mark is the decimal one with --decimal, or write numbers of all columns with"
            " the same decimal mark, and nothing between thousands",
            (("decimal", likely),),
        )
        super().__init__(self.problem.text)


def is_number(strings: Any, decimal: str) -> Mask:
    """Mask of the strings that are numbers with a decimal mark."""
    return np.asarray(pc.match_substring_regex(strings, PATTERNS[decimal]), dtype=bool)


def amounts(strings: Any) -> tuple[Any, Any]:
    """Split amounts into numbers with a sign and units; other strings stay as they are.

    >>> import pyarrow as pa
    >>> numbers, units = amounts(pa.array(["$59.12", "(1.234,50 €)", "-5%", "no"]))
    >>> numbers.to_pylist(), units.to_pylist()
    (['59.12', '-1.234,50', '-5', 'no'], ['$', '€', '%', ''])
    """
    strings = pc.replace_substring(strings, "\u2212", "-")  # the minus of typesetters
    parts = pc.extract_regex(strings, AMOUNT)
    part = {name: pc.fill_null(pc.struct_field(parts, name), "") for name in parts.type.names}
    signs = pc.binary_join_element_wise(
        part["open"], part["sign"], part["second_sign"], part["close"], ""
    )
    sign = pc.if_else(pc.is_in(signs, value_set=pa.array(["-", "()"])), "-", "")
    has_sense = pc.is_in(signs, value_set=pa.array(["", "+", "-", "()"]))
    is_amount = pc.and_(parts.is_valid(), has_sense)
    numbers = pc.binary_join_element_wise(sign, part["number"], "")
    units = pc.binary_join_element_wise(part["before"], part["after"], "")
    return pc.if_else(is_amount, numbers, strings), pc.if_else(is_amount, units, "")


def odd_strings(strings: Any) -> Mask:
    """Mask of the strings that are not numbers in the format of most strings."""
    bare = amounts(strings)[0]
    most_common_format = max((is_number(bare, mark) for mark in PATTERNS), key=np.sum)
    return np.asarray(~most_common_format, dtype=bool)


def possible_decimals(strings: Any) -> list[str]:
    """Decimal marks with which all strings of an array are numbers.

    >>> import pyarrow as pa
    >>> [
    ...     possible_decimals(pa.array(strings))
    ...     for strings in (["1,234", "0,5"], ["1,234"], ["a"])
    ... ]
    [[','], ['.', ','], []]
    """
    return [mark for mark in PATTERNS if len(strings) and is_number(strings, mark).all()]


def settled_decimals(table: Any) -> str:
    """Decimal marks of the unambiguous columns; a point if cells are separated by commas."""
    if separator_of(table) in ("", ","):
        return "."
    head = table.slice(0, SNIFFED_ROWS)
    marks_of_columns = [
        possible_decimals(amounts(column.drop_null().combine_chunks())[0])
        for column in head.columns
    ]
    return "".join({marks[0] for marks in marks_of_columns if len(marks) == 1})


def number_format(
    strings: Any, label: str, settled: str = "", decimal: str = ""
) -> NumberFormat | None:
    """Format in which all strings of an array are numbers; None if there is none.

    Strings that are numbers with either decimal mark, such as 1,234, take the mark `decimal` if
    there is one, or the mark of the other columns if `settled` holds exactly one; otherwise they
    raise DoubtfulNumbers.
    """
    unit = ""
    decimals = possible_decimals(strings)
    if not decimals and len(strings):
        strings, units = amounts(strings)
        decimals = possible_decimals(strings)
        distinct_units = set(units.to_pylist())
        unit = max(distinct_units)
        # numbers without a currency may stand beside others with one, but 0.05 beside 5% may not
        if len(distinct_units - {""}) > 1 or (unit in PERCENT and "" in distinct_units):
            return None
    if len(decimals) < 2:
        return NumberFormat(decimals[0], unit) if decimals else None
    marks = [mark for mark in ".," if pc.any(pc.match_substring(strings, mark)).as_py()]
    if not marks:
        return NumberFormat(".", unit)
    if decimal:
        return NumberFormat(decimal, unit)
    # money with three decimals, as in "€ 350.000", may have thousands
    is_money = unit not in ("", *PERCENT)
    if marks == ["."] and not is_money and "," not in settled:
        return NumberFormat(".", unit)
    if len(settled) == 1 and marks == [","]:
        return NumberFormat(settled, unit)
    thousands_likely = marks == ["."] and "." not in settled
    likely = "," if thousands_likely or (marks == [","] and "." not in settled) else "."
    raise DoubtfulNumbers(label, strings, marks[-1], likely)


def has_doubtful_points(strings: Any) -> bool:
    """Whether the points in all strings of an array may be thousands separators, as in 1.234."""
    return len(possible_decimals(strings)) == 2 and bool(
        pc.any(pc.match_substring(strings, ".")).as_py()
    )


def refuse_doubtful_points(strings: Any, label: str) -> None:
    """Raise if the points in all strings of an array may be thousands separators, as in 1.234."""
    if has_doubtful_points(strings):
        raise DoubtfulNumbers(label, strings, ".", ",")


def numbers_in(strings: Any, form: NumberFormat) -> Array:
    """Parse strings as numbers of a format; NaN for strings that are not numbers of that format.

    >>> import pyarrow as pa
    >>> numbers_in(pa.array(["1.234,50", "12 €", "1,5 %"]), NumberFormat(",", "€"))
    array([1234.5,   12. ,    nan])
    """
    is_plain = is_number(strings, form.decimal)
    if not is_plain.all():
        strings, units = amounts(strings)
        allowed = [form.unit] if form.unit in PERCENT else ["", form.unit]
        has_unit = np.asarray(pc.is_in(units, value_set=pa.array(allowed)), dtype=bool)
        is_plain = is_number(strings, form.decimal) & has_unit
    elif form.unit in PERCENT:
        is_plain = np.zeros_like(is_plain)  # 0.05 may stand for 5 %
    digits = pc.replace_substring_regex(strings, rf"[^\d{form.decimal}eE+-]", "")
    digits = pc.replace_substring(digits, form.decimal, ".")
    digits = pc.if_else(pa.array(is_plain), digits, None)
    return np.asarray(digits.cast("float64").to_numpy(zero_copy_only=False), dtype=float)


def example(strings: Any, form: NumberFormat) -> str:
    """Describe how strings are parsed as numbers, by the longest string."""
    longest = max(strings.to_pylist(), key=len)
    return f"{quoted(longest)} is {numbers_in(pa.array([longest]), form)[0]:.12g}"


# Dates


def is_temporal(kind: Any) -> bool:
    """Whether a column type holds dates, with or without times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def days_of(column: Any) -> Array:
    """Days from 1970-01-01 to the dates of a column of a temporal type, NaN where missing."""
    microsecond_type = pa.timestamp("us", tz=getattr(column.type, "tz", None))
    microseconds = column.cast(microsecond_type, safe=False).cast("int64")
    return np.asarray(microseconds.cast("float64", safe=False).to_numpy(), dtype=float) / 86_400e6


def date_formats(strings: list[str]) -> list[str]:
    """Formats in which all strings are dates; several if day and month cannot be distinguished.

    Years of two digits are looked for where years of four digits are not.

    >>> date_formats(["31.12.2024", "01.02.2025"]), date_formats(["Dec 31, 2024"])
    (['dmy'], ['%b %d, %Y'])
    >>> date_formats(["03/04/2024"]), date_formats(["03/04/24", "03/25/24"])
    (['dmy', 'mdy'], ['%m/%d/%y'])
    """
    if not strings:
        return []
    mark = next((mark for mark in "/.-" if mark in strings[0]), "/")
    two_digits = [mark.join(f"%{letter}" for letter in order) for order in ("dmy", "mdy", "ymd")]
    formats: list[str] = []
    for candidates in (DATES, NAMED_MONTHS, CLOCKS, two_digits):
        formats = [
            form for form in candidates if all(days(text, form) is not None for text in strings)
        ]
        if formats:
            break
    # "May" is the short and the long name of a month
    distinct = {tuple(days(text, form) or 0.0 for text in strings[:100]): form for form in formats}
    return formats if len(distinct) > 1 else formats[:1]


def chronological(strings: list[str], codes: NDArray[np.int64], formats: list[str]) -> list[str]:
    """The formats in which the rows of a column are in the order of time; `codes` number the
    strings.
    """
    rows = codes[codes >= 0]
    in_order = []
    for form in formats:
        steps = np.diff(np.array([days(text, form) or 0.0 for text in strings])[rows])
        if (steps >= 0).all() or (steps <= 0).all():
            in_order.append(form)
    return in_order


def as_percent_signs(form: str, text: str) -> str:
    """Write a format with percent signs, as users give it: the order of a date such as `text`.

    >>> as_percent_signs("dmy", "03/04/2024"), as_percent_signs("%d %b %Y", "")
    ('%d/%m/%Y', '%d %b %Y')
    """
    match = DATE.fullmatch(text.strip())
    if form not in DATES or match is None:
        return form
    time = "" if match[5] is None else " %H:%M" + ":%S" * match[6].count(":", 1)
    return match[2].join("%Y" if part == "y" else f"%{part}" for part in form) + time


def days(text: str, form: str) -> float | None:
    """Days from 1970-01-01 to a date, with a fraction for a time of day; None if `text` is no date
    in this format: an order such as "dmy", or a format of `strptime`.
    """
    if form not in DATES:
        try:
            moment = datetime.strptime(text.strip(), form)
        except (ValueError, re.error):
            return None
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() / 86_400
    match = DATE.fullmatch(text.strip())
    if match is None or (form == "mdy" and match[2] == "."):
        return None
    parts = dict(zip(form, match.group(1, 3, 4), strict=True))
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


def missing_counts(table: Any, names: list[str]) -> dict[str, int]:
    """Number of missing cells by column, of the columns that have any."""
    counts = missing_and_infinite(table, names)[0].sum(axis=0).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def refuse_missing(
    table: Any,
    names: list[str],
    *,
    filled: Collection[str] = (),
    target: str | None = None,
    stage: Stage = "fit",
) -> None:
    """Raise if cells are missing or infinite, with the number of cells and the first row.

    In `filled` columns only infinite cells are refused.
    """
    problem = unusable_cells(table, names, filled=filled, target=target, stage=stage)
    if problem is not None:
        raise TableError(str(problem))


def unusable_cells(
    table: Any,
    names: list[str],
    *,
    filled: Collection[str] = (),
    target: str | None = None,
    stage: Stage = "fit",
) -> Problem | None:
    """Problem of missing and infinite cells, with the number of cells, the columns and the remedies;
    None if all cells can be used.
    """
    is_missing, is_infinite = missing_and_infinite(table, names)
    is_filled = np.array([name in filled for name in names], dtype=bool)
    is_refused = is_infinite | (is_missing & ~is_filled)
    if not is_refused.any():
        return None
    n_infinite = int(is_infinite.sum())
    counts = is_refused.sum(axis=0).tolist()
    affected = [j for j in np.argsort(-is_refused.sum(axis=0), kind="stable") if counts[j]]
    columns = ", ".join(f"{quoted(names[j])} ({counts[j]})" for j in affected[:8])
    if len(affected) > 8:
        columns += f" and {len(affected) - 8} more"
    if n_infinite == 0:
        defect = "missing (empty or NaN)"
    elif n_infinite == sum(counts):
        defect = "infinite"
    else:
        defect = f"missing or not finite ({n_infinite} infinite)"
    is_target = target in {names[j] for j in affected}
    remedies = ["correct them"]
    remedies.append("leave these rows out with --missing drop" if stage == "fit" else "remove them")
    if stage == "fit" and not n_infinite and len(affected) > is_target:
        left_out = ", which leaves out rows without a target" if is_target else ""
        remedies.append(f"fill them with --missing mean{left_out}")
    if stage != "predict" and not is_target:  # a fitted model needs its columns
        remedies.append("leave columns out with --drop")
    row = rows_before(table) + is_refused.any(axis=1).argmax() + 1
    change = "drop" if n_infinite or len(affected) == is_target else "mean"
    return Problem(
        f"{counted(sum(counts), 'cell')} {defect}, in {counted(len(affected), 'column')}:"
        f" {columns}, the first in row {row}",
        f"{', '.join(remedies[:-1])}, or {remedies[-1]}",
        (("missing", change),) if stage == "fit" else (),
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
        n_others = int(np.count_nonzero(is_unparsed)) - 1
        others = f"that cell and {counted(n_others, 'other')}" if n_others else "that cell"
        raise TableError(
            f"column {quoted(name)} holds {quoted(text)} in row {rows_before(table) + row + 1},"
            f" where {expected}; correct {others}."
        )
    return np.append(values, np.nan)[codes]  # the code -1 takes the appended NaN
