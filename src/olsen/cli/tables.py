"""Read a table from a file of any kind, which its content tells and not its name, into a pyarrow table.

A table that cannot be used is refused with the file, the line or the column, and what to do, never repaired silently.
Pipes are read once, into memory; compressed files are unpacked there. Both are held to a quarter of the free memory,
so that neither an endless pipe nor a small file that unpacks to a large one fills it. Cells of a text stay texts:
`encoding` decides what they are.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import os
import shlex
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from .._execution import files, memory
from .._report.formatting import LONGEST_NAME, counted, escape_control, quoted
from . import terminal

SEPARATOR = b"olsen.separator"  # among the metadata of a table that was read from text: what separated its cells
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
BLANKS = " \t\r\n\u00a0"  # around a cell they are no part of it
SAMPLE_BYTES = 1 << 16
STANDARD_INPUT = Path("/dev/stdin")
BLOCK_BYTES = 1 << 24  # of text that is parsed at a time; a row must fit into it
COLUMN_BYTES = 10_000  # of memory that the reader of text takes for a column, however short (9.3 kB with pyarrow 26)
WORKBOOK_COST = 4  # bytes of memory for a byte of an unpacked workbook (at most 3.1 in sheets of numbers and of texts)
CELL_BYTES = 16  # of a cell of a sheet, whether or not it holds something: a reference, then a number
EXCEL_ROWS, EXCEL_COLUMNS = 1 << 20, 1 << 14

SEPARATORS = ";\t,|"
PACKINGS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
TABLES = {b"PAR1": "parquet", b"PK\x03\x04": "xlsx"}


class TableError(ValueError):
    """A table that cannot be used, and why, in one line."""


# Names of columns


def option(flag: str, name: str) -> str:
    r"""An option with the name of a column, as it can be typed in a shell; in words where the name cannot be shown.

    >>> option("--drop", "soil type"), option("--drop", "farmer's")
    ("--drop 'soil type'", '--drop \'farmer\'"\'"\'s\'')
    >>> option("--drop", "a" * 500)
    '--drop and its name'
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        return f"{flag} and its name"
    text = shlex.quote(name) if set(name) & set("'\\") else f"'{name}'"
    return f"{flag}={text}" if name.startswith("-") else f"{flag} {text}"


def listed(names: Iterable[object], most: int = 8) -> str:
    """Names in quotation marks, of many only the first."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quoted(name) for name in names[:most]) + more


def one_line(error: Exception) -> str:
    """What another library says, made to fit into a line."""
    return escape_control(" ".join(str(error).split())[:200])


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds texts, or is a dictionary of texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def text_names(schema: Any) -> list[str]:
    """Names of the columns that hold texts."""
    return [field.name for field in schema if is_text(field.type)]


def refuse_absent(names: Iterable[str], table: Any) -> None:
    """Raise if a table has no columns of these names, with the nearest one that it has."""
    held = table.column_names
    if unknown := [name for name in names if name not in held]:
        near = [] if len(unknown[0]) > LONGEST_NAME else difflib.get_close_matches(unknown[0], held, 1)
        nearest = f"did you mean {quoted(near[0])}? T" if near else "t"
        raise terminal.UsageError(f"there is no column {listed(unknown)}; {nearest}he table has {listed(held, 12)}.")


def refuse_repeated(names: list[str], path: Path) -> None:
    """Raise if two columns share a name: columns are identified by their names."""
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled:
        raise TableError(f"{shown_name(path)} has several columns named {listed(doubled)}; rename them first.")


def separator_of(table: Any) -> str:
    """What separated the cells of a table that was read from text; empty for others."""
    return str((table.schema.metadata or {}).get(SEPARATOR, b"").decode())


# What a file is, and its bytes


@dataclass(frozen=True)
class Source:
    """The bytes of a table, with the name it has in messages: on disk at a path, or otherwise as `content`."""

    name: str
    path: Path
    content: Any = None
    encoding: str = ""  # that the content had before, if it was another one

    def open(self) -> Any:
        """The bytes as a file of pyarrow, which is not unpacked because of its name."""

        return pa.OSFile(os.fspath(self.path)) if self.content is None else pa.BufferReader(self.content)

    @property
    def head(self) -> bytes:
        """The first bytes."""
        with self.open() as file:
            return bytes(file.read(SAMPLE_BYTES))


def shown_name(path: Path) -> str:
    """Name of a file or folder in messages; "." and ".." are called what they are."""
    if files.is_stream(path) or path == STANDARD_INPUT:
        return "standard input" if path == STANDARD_INPUT else str(path)
    return os.path.basename(os.path.abspath(path))


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file, or a folder, which is one table of Parquet files.

    Pipes are not: they cannot be read in blocks from any place.
    """
    if path.is_dir() or files.is_stream(path):
        return path.is_dir()
    if not path.exists():
        raise TableError(f"there is no file {path}.")
    return Source("", path).head.startswith(b"PAR1")


def _open(path: Path) -> tuple[Source, str]:
    """The bytes of a file and what they are; raise if it is no table, with what it is and what to do."""
    source = Source(shown_name(path), path)
    if is_parquet(path):
        return source, "parquet"
    if files.is_stream(path):
        with open(path, "rb", buffering=0) as file:
            source = Source(source.name, path, _limited(file.read, source.name, "holds", "give the name of a file"))
    if packing := _starts(PACKINGS, source.head):
        source = Source(source.name, path, _unpacked(source, packing))
    if source.head.startswith(UTF_16_MARKS):
        source = Source(source.name, path, _utf_8(source), encoding="UTF-16")
    head = source.head
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise TableError(f"{source.name} is empty.")
    kind = _starts(TABLES, head) or "text"
    if kind == "text" and not source.encoding and _looks_like_utf_16(head):
        raise TableError(f"{source.name} is UTF-16 without a byte order mark, by its zero bytes; save it as UTF-8.")
    if kind == "text" and b"\x00" in head:
        raise TableError(
            f"{source.name} holds zero bytes: it is damaged, or neither text in UTF-8 or Windows-1252 nor Parquet "
            f"or Excel (.xlsx); save the table as one of these."
        )
    return source, kind


def _starts(marks: dict[bytes, str], head: bytes) -> str:
    return next((kind for mark, kind in marks.items() if head.startswith(mark)), "")


def _unpacked(source: Source, packing: str) -> Any:

    try:
        with pa.CompressedInputStream(source.open(), packing) as stream:
            return _limited(stream.read, source.name, "unpacks to", "save it as Parquet, which is read in blocks")
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{source.name} is a damaged {packing} file, get it again: {one_line(error)}") from error


def _utf_8(source: Source) -> Any:
    """The bytes of a text in UTF-16, which "Unicode text" of spreadsheets is, in UTF-8."""
    stream = pa.transcoding_input_stream(source.open(), "utf-16", "utf-8")
    try:
        return _limited(stream.read, source.name, "holds", "save it as UTF-8, or as Parquet, which is read in blocks")
    except UnicodeError as error:
        raise TableError(
            f"{source.name} begins as UTF-16, but is damaged: {one_line(error)}; save it as UTF-8."
        ) from error


def _looks_like_utf_16(head: bytes) -> bool:
    """Whether every second byte of most of a text is zero, as those of Latin letters and digits are, and no other."""
    at_even, at_odd = head[::2].count(0), head[1::2].count(0)
    return min(at_even, at_odd) == 0 and 4 * max(at_even, at_odd) > len(head)


def _limited(read: Callable[[int], bytes], name: str, verb: str, instead: str) -> Any:
    """All bytes, if they fill no more than a quarter of the free memory."""

    limit, parts, total = memory.available_bytes() / 4, [], 0
    with terminal.progress(f"reading {name}"):
        while part := read(1 << 20):
            parts.append(part)
            total += len(part)
            if total > limit:
                raise TableError(
                    f"{name} {verb} more than {memory.describe(limit)}, the quarter of the free memory it may fill; "
                    f"{instead}."
                )
    return pa.py_buffer(b"".join(parts))  # parts and whole together are half of what was free


# Reading


def read_table(path: str | os.PathLike[str], *, verbatim: Iterable[str] = ()) -> tuple[Any, list[str]]:
    """Read a table into memory as a pyarrow table, with messages for the user.

    Parameters
    ----------
    path : path
        A file of text, Parquet or Excel, also compressed with gzip, bzip2 or zstd; a folder of Parquet
        files; a pipe; or ``-`` for standard input.
    verbatim : iterable of str
        Columns of a text file in which no text stands for a missing cell, such as identifiers.

    Returns
    -------
    table : pyarrow.Table
        With distinct column names. Of a text file all columns are texts.
    messages : list of str
        What a user should know.
    """
    source, kind = _open(Path(path))
    messages: list[str] = []
    with terminal.progress(f"reading {source.name}"):
        if kind == "parquet":
            table = _read_parquet(source)
        else:
            table = _read_text(source, messages) if kind == "text" else _read_workbook(source, messages)
            table = _with_names(table, source.name, messages)
    if kind == "text":
        table = _without_blanks(table, set(verbatim))
    if not table.num_rows:
        raise TableError(f"{source.name} has a header but no rows.")
    refuse_repeated(table.column_names, Path(path))
    return table, messages


def damaged_parquet(name: str, error: Exception) -> str:
    """What is said of a file that begins as Parquet and cannot be read as such, or of a folder with other files."""
    return f"{name} is not Parquet, or is damaged; download or export it again: {one_line(error)}"


def _read_parquet(source: Source) -> Any:
    import pyarrow.parquet as pq

    def dataset(**options: Any) -> Any:
        return pq.ParquetDataset(source.path if source.content is None else source.open(), partitioning=None, **options)

    try:
        # as dictionaries, as they are stored: a long text repeated in a million rows takes no more memory than on disk
        return dataset(read_dictionary=text_names(dataset().schema)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(damaged_parquet(source.name, error)) from error


def _read_workbook(source: Source, messages: list[str]) -> Any:
    """The first sheet that holds something; formulas as their last values, columns of numbers or dates as such."""

    try:
        import openpyxl  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError:
        raise TableError(
            f"{source.name} is an archive, as Excel files are, which openpyxl reads: pip install openpyxl, or save it "
            f"as CSV."
        ) from None
    memory_limit = memory.available_bytes() / 4
    try:
        with source.open() as file, memory.limited_growth(memory_limit), warnings.catch_warnings(action="ignore"):
            _refuse_large_archive(source.name, file, memory_limit)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheet_rows: list[tuple[Any, ...]] = []
            for sheet in book.worksheets:
                sheet_rows = _sheet_rows(sheet, source.name, memory_limit)
                if sheet_rows:
                    break
    except MemoryError:
        raise TableError(
            f"reading {source.name} takes more than {memory.describe(memory_limit)} of memory, a quarter of what is "
            f"free; save it as Parquet or CSV."
        ) from None
    except TableError:
        raise
    except Exception as error:  # what a library raises on a damaged file is not a closed list
        raise TableError(f"{source.name} is no Excel file, or damaged: {one_line(error)}; save it as CSV.") from error
    if not sheet_rows:
        raise TableError(f"{source.name} is empty.")
    if len(book.worksheets) > 1:
        title, n_sheets = quoted(sheet.title), len(book.worksheets)
        messages.append(f"read from the sheet {title}, the first of {n_sheets} that holds something.")
    n_filled = len(sheet_rows)
    while not any(map(_is_written, sheet_rows[n_filled - 1])):
        n_filled -= 1
    if n_filled < len(sheet_rows):
        n_blank = counted(len(sheet_rows) - n_filled, "empty row")
        messages.append(f"{n_blank} at the end of the sheet {quoted(sheet.title)}: taken for no part of the table.")
    names, columns = [], []
    for name, *column in zip_longest(*sheet_rows[:n_filled]):
        cells = [cell if _is_filled(cell) else None for cell in column]
        kinds = {type(cell).__name__ for cell in cells} - {"NoneType"}
        if kinds <= {"int", "float", "bool"}:
            columns.append(pa.array([None if cell is None else float(cell) for cell in cells], "float64"))
        elif kinds <= {"datetime", "date"}:
            columns.append(pa.array(cells, pa.timestamp("us")))
        else:
            columns.append(pa.array([None if cell is None else str(cell) for cell in cells], "string"))
        names.append("" if name is None else str(name))
    return pa.Table.from_arrays(columns, names=names)


def _refuse_large_archive(name: str, file: Any, memory_limit: float) -> None:
    """Raise if a workbook unpacks to more than can be read, by the sizes that its archive declares.

    Python reads no more of a part than its declared size, so that a false one makes a damaged file, not a larger one.
    """
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    largest = memory_limit / WORKBOOK_COST
    if unpacked > largest:
        raise TableError(
            f"{name} has {memory.describe(file.size())} and unpacks to {memory.describe(unpacked)}; with the memory "
            f"that is free now, workbooks of up to {memory.describe(largest)} are read. Save the table as Parquet or "
            f"CSV."
        )
    file.seek(0)


def _sheet_rows(sheet: Any, name: str, memory_limit: float) -> list[tuple[Any, ...]]:
    """Rows of a sheet from the first that is not blank, which is the header; none is longer than that.

    The size that the sheet declares is not believed: it may be larger than the table, or smaller.
    """
    sheet.reset_dimensions()
    rows: list[tuple[Any, ...]] = []
    for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > EXCEL_ROWS or len(cells) > EXCEL_COLUMNS:
            raise TableError(
                f"{name} is damaged: its sheet {quoted(sheet.title)} goes beyond row {EXCEL_ROWS:,} or column "
                f"{EXCEL_COLUMNS:,}, the last that Excel has. Save it as CSV."
            )
        width = len(cells)
        while width and not _is_written(cells[width - 1]):
            width -= 1
        if not rows and not width:
            continue
        rows.append(tuple(cells[:width]))
        n_columns = len(rows[0])
        beyond = next((place for place in range(n_columns, width) if _is_filled(cells[place])), None)
        if beyond is not None:
            raise TableError(
                f"{name} holds {quoted(cells[beyond])} in row {number:,} and column {beyond + 1:,} of the sheet "
                f"{quoted(sheet.title)}, but the header ends with {quoted(rows[0][-1])} in column {n_columns:,}. Give "
                f"that column a name, delete the cell, or remove titles above the header."
            )
        rows[-1] = rows[-1][:n_columns]
        n_bytes = CELL_BYTES * n_columns * len(rows)
        if n_bytes > memory_limit:
            raise TableError(
                f"{name} has {len(rows):,} rows or more and {n_columns:,} columns; they take "
                f"{memory.describe(n_bytes)} of memory, and may take {memory.describe(memory_limit)}, a quarter of "
                f"what is free. Save it as Parquet."
            )
    return rows


def _is_written(cell: Any) -> bool:
    """Whether a cell of a sheet holds anything, be it a mark of a missing cell such as NA."""
    return cell is not None and (not isinstance(cell, str) or bool(cell.strip()))


def _is_filled(cell: Any) -> bool:
    return cell is not None and (not isinstance(cell, str) or cell.strip() not in MISSING)


def _with_names(table: Any, where: str, messages: list[str]) -> Any:
    """A table whose columns have names: row names in the first one, and empty columns at the end, may have none."""
    names = [str(name).strip("\ufeff" + BLANKS) for name in table.column_names]
    names[0] = names[0].lstrip("# ")  # as NumPy writes a header
    for place, name in enumerate(names):
        if place and not name and any(map(_is_filled, table.column(place).to_pylist())):
            raise TableError(f"{where} has a column after {quoted(names[place - 1])} without a name; give it one.")
    named = [place for place, name in enumerate(names) if name]
    if len(named) < len(names):
        left_out = counted(len(names) - len(named), "column")
        messages.append(f"{left_out} without a name left out: row names in the first, or nothing in others.")
    return table.rename_columns(names).select(named).replace_schema_metadata(table.schema.metadata)


# Texts: separators, encodings, and where the faults are


class _Dialect(NamedTuple):
    """How a text is written."""

    encoding: str
    separator: str
    n_columns: int


def _read_text(source: Source, messages: list[str]) -> Any:
    """All cells of a text as texts."""

    dialect = _dialect(source, messages)
    texts = {f"f{j}": "string" for j in range(dialect.n_columns)}  # the names that pyarrow gives
    try:
        with source.open() as file:
            table = pv.read_csv(
                file,
                read_options=pv.ReadOptions(
                    encoding=dialect.encoding, block_size=BLOCK_BYTES, autogenerate_column_names=True
                ),
                parse_options=pv.ParseOptions(
                    delimiter=dialect.separator, newlines_in_values=True, ignore_empty_lines=dialect.n_columns > 1
                ),
                convert_options=pv.ConvertOptions(column_types=texts, null_values=[], strings_can_be_null=False),
            )  # fmt: skip
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        where = _fault(source, dialect)
        if (not where and "UTF8" in f"{error}") or isinstance(error, UnicodeDecodeError):
            where = "it is neither UTF-8 nor Windows-1252 (cp1252) throughout; save it as UTF-8."
        raise TableError(f"{source.name} cannot be read as a table: {where or one_line(error)}") from error
    if dialect.n_columns == 1:
        table = _without_outer_lines(table, source, messages)
    names = [name for (name,) in table.slice(0, 1).to_pydict().values()]
    return table.slice(1).rename_columns(names).replace_schema_metadata({SEPARATOR: dialect.separator})


def _without_outer_lines(table: Any, source: Source, messages: list[str]) -> Any:
    """A table of one column, in which an empty line is a row: without those above the header and at the end."""
    with source.open() as file:
        file.seek(max(0, file.size() - SAMPLE_BYTES))
        tail = bytes(file.read())
    above = _line_ends(source.head.removeprefix(codecs.BOM_UTF8), at_end=False)
    below = max(0, _line_ends(tail, at_end=True) - 1)  # the first of them ends the last row
    if below:
        messages.append(f"{counted(below, 'empty line')} at the end of the file: taken for no part of the table.")
    return table.slice(above, table.num_rows - above - below)


def _line_ends(text: bytes, *, at_end: bool) -> int:
    """Number of line ends before, or after, everything else in a text."""
    rest = text.rstrip(b"\r\n") if at_end else text.lstrip(b"\r\n")
    return len((text.removeprefix(rest) if at_end else text.removesuffix(rest)).splitlines())


def _without_blanks(table: Any, verbatim: set[str]) -> Any:
    """Texts without blanks around them, and without those such as NA that stand for missing cells."""

    gaps = pa.array(MISSING, "string")
    for j, name in enumerate(table.column_names):
        if name not in verbatim:
            texts = pc.utf8_trim(table.column(j), characters=BLANKS)
            missing = pc.is_in(texts, value_set=gaps)
            table = table.set_column(j, name, pc.if_else(missing, None, texts) if pc.any(missing).as_py() else texts)
    return table


def _dialect(source: Source, messages: list[str]) -> _Dialect:
    """How a text is written, from its first lines."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(source.head)  # of which the last character may be cut
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "cp1252"
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
    filled = [line for line in lines if line.strip(" \t\r\n\v\f")]
    separator = _separator(filled)
    try:
        names = next(csv.reader(filled, delimiter=separator))
    except csv.Error as error:
        raise TableError(f"{source.name} cannot be read as a table: in its header, {error}.") from None
    if encoding != "utf-8":
        messages.append("the file is not UTF-8; read as Windows-1252 (cp1252).")
    if source.encoding:
        messages.append(f"the file is {source.encoding}, and was read as such.")
    return _Dialect(encoding, separator, len(names))


def _lines(source: Source, encoding: str) -> io.TextIOWrapper:
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding  # without a byte-order mark
    return io.TextIOWrapper(source.open(), encoding=encoding, errors="replace", newline="")


def _separator(lines: list[str]) -> str:
    """The separator that splits each of the first lines into the same number of fields; of several, the most fields."""
    best = (1, max(",;\t|", key=lines[0].count))
    for candidate in SEPARATORS:
        with suppress(csv.Error):
            widths = {len(row) for row in csv.reader(lines[:50], delimiter=candidate) if row}
            if len(widths) == 1:
                best = max(best, (widths.pop(), candidate), key=lambda pair: pair[0])
    return best[1]


def _fault(source: Source, dialect: _Dialect) -> str:
    """The first line that does not fit the header, and what to do about it; empty if there is none."""
    with _lines(source, dialect.encoding) as lines:
        rows = csv.reader(lines, delimiter=dialect.separator)
        width, begin = 0, 1
        try:
            for row in rows:
                width = width or len(row)
                if row and len(row) != width:
                    return (
                        f"line {begin} has {counted(len(row), 'cell')}, the header has {width}; correct that line: "
                        f"close quotation marks, put texts with separators into them, remove titles above the header."
                    )
                begin = rows.line_num + 1
        except csv.Error as error:
            return f"in line {begin}, {error}, as after a quotation mark that is not closed; close it."
    return ""
