"""Tables as text: separators, encodings, lines above the header, and where the faults are. All cells stay texts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from .._execution import memory
from .._report.formatting import counted
from . import terminal
from .tables import MISSING, SAMPLE_BYTES, SEPARATOR, Source, TableError, one_line, with_names

__all__ = ["BLANKS", "SEPARATED", "read_text"]

SEPARATED = "columns are separated by"  # how a message begins that says no more than that
SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
BLANKS = " \t\r\n\u00a0"  # around a cell they are no part of it
BLOCK_BYTES = 1 << 24  # of text that is parsed at a time; a row must fit into it
COLUMN_BYTES = 10_000  # of memory that the reader of text takes for a column, however short (9.3 kB with pyarrow 26)


class _Dialect(NamedTuple):
    """How a text is written: `skipped` lines stand above the header."""

    encoding: str
    separator: str
    skipped: int
    n_columns: int


def read_text(source: Source, verbatim: Iterable[str] = ()) -> tuple[Any, list[str]]:
    """Read a text with a header into a pyarrow table of texts, with messages for the user.

    Blanks around cells are left out, and texts such as NA stand for missing cells, but for columns in `verbatim`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    dialect, messages = _dialect(source)
    try:
        table = _parsed(source, dialect)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        where = _fault(source, dialect)
        if (not where and "UTF8" in f"{error}") or isinstance(error, UnicodeDecodeError):
            where = "it is neither UTF-8 nor Windows-1252 (cp1252) throughout; save it as UTF-8."
        raise TableError(f"{source.name} cannot be read as a table: {where or one_line(error)}") from error
    header = table.slice(0, 1).to_pydict().values()
    table = table.slice(1).rename_columns([name for (name,) in header])
    table, kept = with_names(table, source.name, messages), set(verbatim)
    gaps = pa.array(MISSING, "string")
    for j, name in enumerate(table.column_names):
        if name not in kept:
            texts = pc.utf8_trim(table.column(j), characters=BLANKS)
            missing = pc.is_in(texts, value_set=gaps)
            texts = pc.if_else(missing, None, texts) if pc.any(missing).as_py() else texts
            table = table.set_column(j, name, texts)
    return table.replace_schema_metadata({SEPARATOR: dialect.separator}), messages


def _parsed(source: Source, dialect: _Dialect) -> Any:
    """All cells as texts, the header as the first row."""
    import pyarrow.csv as pv

    texts = {f"f{j}": "string" for j in range(dialect.n_columns)}  # the names that pyarrow gives
    with source.open() as file, terminal.progress(f"reading {source.name}"):
        return pv.read_csv(
            file,
            read_options=pv.ReadOptions(
                encoding=dialect.encoding, block_size=BLOCK_BYTES, skip_rows=dialect.skipped,
                autogenerate_column_names=True,
            ),
            parse_options=pv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
            convert_options=pv.ConvertOptions(column_types=texts, null_values=[], strings_can_be_null=False),
        )  # fmt: skip


# The dialect


def _dialect(source: Source) -> tuple[_Dialect, list[str]]:
    """How a text is written, from its first lines, with messages."""
    encoding, messages = _encoding(source.head), []
    with _lines(source, encoding) as file:
        lines = file.readlines(SAMPLE_BYTES)
    widest = max(line.count(mark) for line in lines for mark in SEPARATORS) + 1
    free = memory.available_bytes()
    if widest * COLUMN_BYTES > free / 2:
        raise TableError(
            f"{source.name} has {widest:,} columns; reading so many from text takes "
            f"{memory.describe(widest * COLUMN_BYTES)} of memory, and {memory.describe(free)} are free. Save it as "
            f"Parquet, or with fewer columns."
        )
    told = re.fullmatch(r"sep=([;\t,|])\s*", lines[0])
    above = 1 if told else next((i for i, line in enumerate(lines) if line.strip(" \t\r\n") and line[0] != "#"), None)
    if above is None:
        raise TableError(f"{source.name} holds comments only, no table.")
    below = [line for line in lines[above:] if line.strip()]
    separator = told[1] if told else _separator(below)
    try:
        names = next(csv.reader(below, delimiter=separator))
    except csv.Error as error:
        raise TableError(f"{source.name} cannot be read as a table: in its header, {error}.") from None
    if all(_is_number(name) for name in names):
        if not above or told or lines[above - 1][0] != "#":
            raise TableError(
                f"the first line of {source.name} holds numbers only; a header with column names is needed."
            )
        above -= 1  # a comment is the header, as NumPy writes it
    if any(line.strip() for line in lines[:above]):
        messages.append(f"{counted(above, 'line')} above the header left out.")
    if encoding != "utf-8":
        messages.append("the file is not UTF-8; read as Windows-1252 (cp1252).")
    if separator != ",":
        messages.append(f"{SEPARATED} {SEPARATORS[separator]}.")
    return _Dialect(encoding, separator, above, len(names)), messages


def _lines(source: Source, encoding: str) -> io.TextIOWrapper:
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding  # without a byte-order mark
    return io.TextIOWrapper(source.open(), encoding=encoding, errors="replace", newline="")


def _encoding(head: bytes) -> str:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not just a character cut by the end of the sample
            return "cp1252"
    return "utf-8"


def _separator(lines: list[str]) -> str:
    """The separator that splits each of the first lines into the same number of fields; of several, the most fields."""
    best = (1, ",")
    for candidate in SEPARATORS:
        try:
            widths = {len(row) for row in csv.reader(lines[:50], delimiter=candidate) if row}
        except csv.Error:
            continue
        if len(widths) == 1:
            best = max(best, (widths.pop(), candidate), key=lambda pair: pair[0])
    return best[1] if best[0] > 1 else max(",;\t|", key=lines[0].count)


def _is_number(text: str) -> bool:
    try:
        float(text.strip().replace(",", "."))
    except ValueError:
        return False
    return True


def _fault(source: Source, dialect: _Dialect) -> str:
    """The first line that does not fit the header, and what to do about it; empty if there is none."""
    with _lines(source, dialect.encoding) as lines:
        for _ in range(dialect.skipped):
            next(lines)
        rows = csv.reader(lines, delimiter=dialect.separator)
        width, begin = 0, dialect.skipped + 1
        try:
            for row in rows:
                width = width or len(row)
                if row and len(row) != width:
                    break
                begin = rows.line_num + dialect.skipped + 1
            else:
                return ""
        except csv.Error as error:
            return f"in line {begin}, {error}, as after a quotation mark that is not closed; close it."
    found = f"line {begin} has {counted(len(row), 'cell')}, the header has {width}; "
    if rows.line_num + dialect.skipped > begin or any(dialect.separator in cell for cell in row):
        return found + "a quotation mark in it may not be closed: close it."
    if width == 1:
        return found + "if there is a title above the header, remove it."
    return found + "correct that line; texts with separators in them need quotation marks."
