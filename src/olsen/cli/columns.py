"""How one column of a table becomes numbers: decided once, from a training table, and done to every table after it.

A decision is a dict, from which `encoding` makes scikit-learn's transformers: ``name``, and

* ``categories`` for text: columns of 0 and 1, one for each category but the first; with ``ordinal``, one column with
  the place of the category;
* ``decimal`` and ``unit`` for numbers in texts, ``date`` (the order of year, month and day) for dates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._report.formatting import quoted, shortened
from .cells import BLANKS, PERCENT, Ambiguous, Notation, looks_like_number, notation_of, number
from .dates import days, order_of
from .gaps import is_missing
from .table_errors import TableError, counted, listed, option, way_out

__all__ = [
    "HAS_MARKS", "MAX_CATEGORIES", "PLAIN_NUMBERS", "as_text", "days_of", "decide_numbers", "decide_order",
    "decide_text", "different_texts", "examples", "is_text", "mark", "marked", "notation_news", "numbers",
    "numbers_of_texts", "texts_of", "trimmed", "written_numbers", "zeros_message",
]  # fmt: skip

Array = NDArray[np.float64]
Decision = tuple[dict[str, Any], list[str]]  # what to do with a column, and messages about it

MAX_CATEGORIES = 200
EXACT = 2**53  # whole numbers up to here are themselves in floating point
MICROSECONDS_A_DAY = 86_400_000_000
PLAIN_NUMBERS = "write plain numbers, with a decimal point, nothing between thousands, and in one unit"
MARKS = {  # what the reader of text found in a column, kept in the metadata of its field
    "separator": b"olsen.separator",  # which separates the cells of the table; only columns of text say so
    "comma": b"olsen.comma",  # a cell that shows that the numbers have a decimal comma
    "comma row": b"olsen.comma_row",
    "doubtful": b"olsen.doubtful",  # a cell such as 1.234 in a column whose other cells leave in doubt what it is
    "zeros": b"olsen.zeros",  # a cell with leading zeros
}


HAS_MARKS = {b"olsen.marks": b"yes"}  # of a table: in blocks of Parquet columns need not be searched one by one


def mark(field: Any, **found: object) -> Any:
    """A field of pyarrow, marked with what was found in its column; see `MARKS`."""
    return field.with_metadata({MARKS[key.replace("_", " ")]: str(value).encode() for key, value in found.items()})


def marked(table: Any, name: str, key: str) -> str:
    """What a column is marked with; empty if it is not."""
    metadata = table.schema.field(name).metadata or {}
    return str(metadata.get(MARKS[key], b"").decode("utf-8", errors="replace"))


# Deciding


def decide_numbers(column: Any, name: str, dates: bool) -> Decision:
    """How a column that does not hold text becomes numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if dates and not _holds_dates(column):
        raise TableError(
            f"column {quoted(name)} holds no dates ({shortened(column.type)}); leave out {option('--dates', name)}."
        )
    if dates:
        return {"name": name, "date": "ymd"}, [_date_message(name)]
    if _holds_dates(column):
        raise TableError(_dates_refused(name, "dates"))
    numbers(column, name, fitting=True)
    if pa.types.is_integer(column.type) and column.type.bit_width == 64:
        ends = pc.min_max(column).as_py()
        if column.null_count < len(column) and max(-ends["min"], ends["max"]) > EXACT:
            return {"name": name}, [
                f"column {quoted(name)} holds whole numbers above 2^53, rounded to 16 digits; if they are identifiers, "
                f"leave it out with {option('--drop', name)}."
            ]
    return {"name": name}, []


def zeros_message(name: str, example: str) -> str:
    """What is said of numbers that may be codes."""
    return (
        f"column {quoted(name)} holds numbers with leading zeros: {quoted(example)} is {example.lstrip('0') or 0}; if "
        f"they are identifiers, leave it out with {option('--drop', name)}."
    )


def decide_text(values: list[str], name: str, n_rows: int, dates: bool, where_doubtful: str = ".") -> Decision:
    """How a column of text, which has these different values, becomes numbers; see `notation_of`."""
    if dates:
        return {"name": name, "date": _order(values, name)}, [_date_message(name)]
    notation = _notation(values, name, where_doubtful)
    if notation is not None:
        return {"name": name, **notation._asdict()}, [_number_message(name, values, notation)]
    if (refused := _dates_in(values, name)) is not None:
        raise TableError(refused)
    categories = _categories(values, name, n_rows)
    return {"name": name, "categories": categories}, [_category_message(name, categories)]


def decide_order(values: list[str], name: str, order: list[str]) -> Decision:
    """How categories with an order become 0, 1, 2, ...: the given one, or by number, or by the alphabet."""
    levels = order or (sorted(values, key=float) if all(map(_is_float, values)) else sorted(values))
    missing = sorted(set(values) - set(levels))
    if missing:
        raise TableError(
            f"column {quoted(name)} holds {listed(missing, 5)}, which its order does not name; add it, as in "
            f"--ordinal '{shortened(name)}={'<'.join(shortened(v) for v in [*levels, *missing][:5])}'."
        )
    shown = ", ".join(f"{quoted(level)} = {i}" for i, level in enumerate(levels[:6]))
    more = ", ..." if len(levels) > 6 else ""
    return {"name": name, "categories": levels, "ordinal": True}, [
        f"column {quoted(name)} has an order: {shown}{more}."
    ]


def _order(values: list[str], name: str) -> str:
    try:
        order = order_of(values)
    except Ambiguous as error:
        raise TableError(f"column {quoted(name)} holds {error}; write them as 2024-12-31.") from None
    if order is None:
        strange = [v for v in values if not _is_date(v)] or values
        raise TableError(
            f"column {quoted(name)} holds {listed(strange, 3)}, not only dates in one form; correct these cells, or "
            f"leave out {option('--dates', name)}."
        )
    return order


def _dates_in(values: list[str], name: str) -> str | None:
    """What is said of a column of dates that nobody called dates; None if it holds none."""
    try:
        return None if order_of(values) is None else _dates_refused(name, f"dates such as {quoted(values[0])}")
    except Ambiguous as error:
        return f"column {quoted(name)} holds {error}; " + way_out(
            name, True, f"write them as 2024-12-31 and give {option('--dates', name)}"
        )


def _is_date(value: str) -> bool:
    try:
        return order_of([value]) is not None
    except Ambiguous:
        return True


def _notation(values: list[str], name: str, where_doubtful: str) -> Notation | None:
    try:
        return notation_of(values, where_doubtful)
    except Ambiguous as error:
        raise TableError(f"column {quoted(name)} holds {error}; " + way_out(name, True, PLAIN_NUMBERS)) from None


def _categories(values: list[str], name: str, n_rows: int) -> list[str]:
    """The sorted values of a text column, if they can be categories."""
    strange = [value for value in values if not looks_like_number(value)]
    marked = [value for value in values if value not in strange and not _is_float(value)]
    if len(strange) < len(values) / 2:
        raise TableError(
            f"column {quoted(name)} holds numbers and text such as {listed(strange or marked, 3)}; "
            + way_out(name, True, "correct those cells")
        )
    if len(values) > MAX_CATEGORIES or len(values) > max(20, n_rows / 2):
        many = f"more than {MAX_CATEGORIES}" if len(values) > MAX_CATEGORIES else len(values)
        raise TableError(
            f"column {quoted(name)} holds {many} different texts ({listed(sorted(values), 3)}), too many for "
            f"categories; leave it out with {option('--drop', name)}."
        )
    return sorted(values)


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Messages


def _category_message(name: str, categories: list[str]) -> str:
    n = len(categories)
    return (
        f"column {quoted(name)} holds text: its {n} categories become {n - 1} column{'s' * (n != 2)} of 0 and 1 "
        f"(against {quoted(categories[0])})."
    )


def _number_message(name: str, values: list[str], notation: Notation) -> str:
    what = {"": "numbers as text", PERCENT: "percentages"}.get(notation.unit, f"amounts of money ({notation.unit})")
    example = max(values, key=len)
    return f"column {quoted(name)} holds {what}, read as numbers: {quoted(example)} is {number(example, notation):g}."


def _date_message(name: str) -> str:
    return f"column {quoted(name)} holds dates, which become days since 1970-01-01."


def _dates_refused(name: str, what: str) -> str:
    return (
        f"column {quoted(name)} holds {what}; turn them into days since 1970-01-01 with {option('--dates', name)}, or "
        f"leave the column out with {option('--drop', name)}."
    )


# Encoding


def written_numbers(column: Any, name: str, decimal: str | None, unit: str, first_row: int = 0) -> Array:
    """Numbers of a column of texts, in the notation that was learned for it."""
    if decimal is None:
        raise TableError(_text_refused(column, name))
    notation = Notation(decimal, unit)
    with_unit = f" with or without {quoted(unit)}" if unit else ""
    wanted = f"numbers{with_unit}, with {quoted(decimal)}"
    return numbers_of_texts(column, name, lambda text: number(text, notation), wanted, first_row)


def _text_refused(column: Any, name: str) -> str:
    try:
        notation_of([text for text in different_texts(column) if text is not None], where_doubtful="")
    except Ambiguous as error:
        return (
            f"column {quoted(name)} holds {error}, and the model learned plain numbers there; write them with a "
            f"decimal point, and without marks between thousands."
        )
    return (
        f"column {quoted(name)} holds text ({examples(column)}), but the model learned numbers there; correct those "
        f"cells."
    )


def notation_news(table: Any, decided: Iterable[dict[str, Any]]) -> list[str]:
    """What is new about how numbers are written in a table of text, against what was learned; raise if it is contrary.

    The notation that was learned for a column decides, and no other column of the table.
    """
    found: list[tuple[str, str]] = []
    for how in decided if HAS_MARKS.items() <= (table.schema.metadata or {}).items() else ():
        name, learned = how["name"], how.get("decimal")
        example, doubtful = marked(table, name, "comma"), marked(table, name, "doubtful")
        if example and learned == ".":
            raise TableError(
                f"column {quoted(name)} holds {quoted(example)} in row {marked(table, name, 'comma row')}, "
                f"where numbers with '.' are expected, and commas between thousands only; correct that cell."
            )
        if doubtful and learned == ",":
            raise TableError(
                f"column {quoted(name)} holds {quoted(doubtful)}, which may be {doubtful} or "
                f"{doubtful.replace('.', '')}: the model learned a decimal comma there; write decimals "
                f"with a comma, and nothing between thousands."
            )
        if example and not {"decimal", "categories", "date"} & set(how):
            found.append((name, example))
    if not found:
        return []
    name, example = found[0]
    more = f" and {counted(len(found) - 1, 'other column')}" if len(found) > 1 else ""
    return [
        f"decimals of column {quoted(name)}{more} have a comma, unlike in training: {quoted(example)} is read as "
        f"{example.replace(',', '.')}."
    ]


def numbers_of_texts(
    column: Any, name: str, convert: Callable[[str], float | None], wanted: str, first_row: int = 0
) -> Array:
    """Texts as numbers, each different text converted once; NaN where they are missing, an error where it fails."""
    import pyarrow as pa

    found = [np.zeros(0)]
    for chunk in column.chunks:
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.cast("string").dictionary_encode()
        texts = coded.dictionary.cast("string").to_pylist()
        values = np.array([*(_or_nan(convert(text)) for text in texts if text is not None), np.nan])
        codes = coded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
        found.append(values[codes])
        wrong = np.flatnonzero(np.isnan(found[-1]) & ~is_missing(chunk))
        if wrong.size:
            row = first_row + sum(map(len, found[:-1])) + int(wrong[0]) + 1
            raise TableError(
                f"column {quoted(name)} holds {quoted(texts[codes[wrong[0]]])} in row {row}, where {wanted} are "
                f"expected; correct that cell."
            )
    return np.concatenate(found)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def days_of(column: Any, name: str, order: str, first_row: int = 0) -> Array:
    """Dates of a column as days since 1970-01-01, those in texts in an order of year, month and day."""
    if is_text(column.type):
        example = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}[order]
        return numbers_of_texts(column, name, lambda text: days(text, order), f"dates such as {example}", first_row)
    if not _holds_dates(column):
        raise TableError(
            f"column {quoted(name)} is of type {shortened(column.type)}, but the model learned dates there."
        )
    import pyarrow as pa

    moments = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False).cast("int64")
    return np.asarray(moments.cast("float64", safe=False).to_numpy(), dtype=float) / MICROSECONDS_A_DAY


def _holds_dates(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_date(column.type) or pa.types.is_timestamp(column.type))


def numbers(column: Any, name: str, fitting: bool = False, for_target: bool = False) -> Array:
    """A column that does not hold text as numbers, NaN where they are missing; whole numbers above 2^53 are rounded."""
    import pyarrow as pa

    what = "the target" if for_target else "column"
    choice = fitting and not for_target
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise TableError(
            f"{what} {quoted(name)} holds texts that are not UTF-8; " + way_out(name, choice, "save the table as UTF-8")
        )
    if pa.types.is_temporal(column.type):
        raise TableError(
            f"{what} {quoted(name)} holds dates or times; "
            + way_out(name, choice, "turn them into numbers in the table")
        )
    try:
        if pa.types.is_decimal(column.type):
            column = column.cast("string")  # whose numbers are rounded correctly; a direct cast may miss the last digit
        whole = pa.types.is_integer(column.type)
        return np.asarray(column.cast("float64", safe=not whole).to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kind = shortened(column.type)
        raise TableError(
            f"{what} {quoted(name)} is of type {kind}, not numbers; " + way_out(name, choice, "turn it into numbers")
        ) from error


# Texts


def is_text(kind: Any) -> bool:
    """Whether a type of pyarrow is text, or a dictionary of texts."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def different_texts(column: Any) -> list[Any]:
    """The different texts of a column; one stored as a dictionary is not written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        found = [pc.unique(chunk).dictionary_decode().to_pylist() for chunk in column.chunks]
        return list(dict.fromkeys(text for part in found for text in part))
    return list(pc.unique(column.cast("string")).to_pylist())


def trimmed(texts: Any) -> Any:
    """Texts without the blanks around them."""
    import pyarrow.compute as pc

    return pc.utf8_trim(texts, characters=BLANKS)


def texts_of(table: Any, names: Iterable[str]) -> dict[str, list[str]]:
    """The cells of some columns as text, empty where they are missing: what identifies the rows of a table."""
    names = list(names)
    unknown = [name for name in names if name not in table.column_names]
    if unknown:
        raise KeyError(f"there is no column {listed(unknown)}; the table has {listed(table.column_names, 12)}.")
    columns = {name: table.column(name) for name in names}
    return {
        name: ["" if text is None else text for text in (c if is_text(c.type) else as_text(c)).to_pylist()]
        for name, c in columns.items()
    }


def as_text(column: Any) -> Any:
    """Numbers, truth values and dates as the texts that a table would have for them: 1 and not 1.0."""
    import pyarrow as pa

    try:
        return column.cast("string")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        cells = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(cells, "string")])


def examples(column: Any) -> str:
    """A few of the texts of a column."""
    return listed([value for value in different_texts(column.slice(0, 1000)) if value is not None], 3)
