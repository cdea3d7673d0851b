"""Read a table from a text, Parquet or Excel file into a pyarrow table; the content decides the
format, not the name.

A table that cannot be used is refused with the file, the line or the column, and what to do, never
repaired silently. Pipes are read once, into memory; compressed files are unpacked in memory. The
two may fill a quarter of the free memory, so that neither an endless pipe nor a small file that
unpacks to a large one exhausts it. Cells of a text file stay strings: `encoding` decides on their
types.
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

SEPARATOR = (  # metadata key of a table from a text file: the separator of its cells
    b"olsen.separator"
)
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
BLANKS = " \t\r\n\u00a0"  # stripped from the ends of a cell
SAMPLE_BYTES = 1 << 16
STANDARD_INPUT = Path("/dev/stdin")
READ_BYTES = 1 << 20  # read from a pipe or an unpacked file at a time
BLOCK_BYTES = 1 << 24  # of text that is parsed at a time; a row must fit into a block
COLUMN_BYTES = (
    10_000  # memory of the text reader per column, however short the table (9.3 kB with pyarrow 26)
)
MEMORY_PER_WORKBOOK_BYTE = (
    4  # bytes of memory per unpacked byte (at most 3.1 in sheets of numbers and of strings)
)
CELL_BYTES = 16  # memory of a cell of a sheet, empty or not: a reference, then a number
MAX_EXCEL_ROWS = 1 << 20
MAX_EXCEL_COLUMNS = 1 << 14

SEPARATORS = ";\t,|"
PACKINGS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
TABLES = {b"PAR1": "parquet", b"PK\x03\x04": "xlsx"}


class TableError(ValueError):
    """Error about a table that cannot be used, with the reason in one line."""


# Names of columns


def option(flag: str, name: str) -> str:
    r"""Option with the name of a column, as typed in a shell; in words if the name is too long or
    not printable.

    >>> option("--drop", "soil type"), option("--drop", "farmer's")
    ("--drop 'soil type'", '--drop \'farmer\'"\'"\'s\'')
    >>> option("--drop", "a" * 500)
    '--drop and its name'
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        return f"{flag} and its name"
    text = shlex.quote(name) if set(name) & set("'\\") else f"'{name}'"
    return f"{flag}={text}" if name.startswith("-") else f"{flag} {text}"


def listed(names: Iterable[object], limit: int = 8) -> str:
    """List names in quotation marks: the first `limit` names, and the number of the others."""
    names = list(dict.fromkeys(names))
    remainder = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(quoted(name) for name in names[:limit]) + remainder


def one_line(error: Exception) -> str:
    """Shorten the message of another library to one line."""
    return escape_control(" ".join(str(error).split())[:200])


def is_text(kind: Any) -> bool:
    """Whether a column type is a string type, or a dictionary of strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def text_names(schema: Any) -> list[str]:
    """Names of the columns of strings."""
    return [field.name for field in schema if is_text(field.type)]


def refuse_absent(names: Iterable[str], table: Any) -> None:
    """Raise if a table lacks one of the named columns, and suggest the column with the most similar
    name.
    """
    column_names = table.column_names
    if absent := [name for name in names if name not in column_names]:
        similar = []
        if len(absent[0]) <= LONGEST_NAME:
            similar = difflib.get_close_matches(absent[0], column_names, 1)
        suggestion = f"did you mean {quoted(similar[0])}? The" if similar else "the"
        raise terminal.UsageError(
            f"there is no column {listed(absent)}; {suggestion} table has"
            f" {listed(column_names, 12)}."
        )


def refuse_repeated(names: list[str], path: Path) -> None:
    """Raise if two columns have the same name: columns are identified by their names."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise TableError(
            f"{shown_name(path)} has several columns named {listed(repeated)}; rename them first."
        )


def separator_of(table: Any) -> str:
    """Separator of the cells of a table from a text file; empty for a table from another file."""
    return str((table.schema.metadata or {}).get(SEPARATOR, b"").decode())


# Formats and bytes of files


@dataclass(frozen=True)
class Source:
    """Bytes of a table, on disk at `path` or in memory as `content`, and the name for messages."""

    name: str
    path: Path
    content: Any = None
    encoding: str = ""  # original encoding of a content that was converted to UTF-8

    def open(self) -> Any:
        """Open the bytes as a pyarrow file that does not decompress by the suffix of its name."""

        return (
            pa.OSFile(os.fspath(self.path))
            if self.content is None
            else pa.BufferReader(self.content)
        )

    @property
    def head(self) -> bytes:
        """First bytes of the table, at most SAMPLE_BYTES."""
        with self.open() as file:
            return bytes(file.read(SAMPLE_BYTES))


def shown_name(path: Path) -> str:
    """Name of a file or folder in messages; "." and ".." are resolved."""
    if files.is_stream(path) or path == STANDARD_INPUT:
        return "standard input" if path == STANDARD_INPUT else str(path)
    return os.path.basename(os.path.abspath(path))


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file, or a folder of Parquet files that make one table.

    A pipe is not: reading Parquet needs random access.
    """
    if path.is_dir() or files.is_stream(path):
        return path.is_dir()
    if not path.exists():
        raise TableError(f"there is no file {path}.")
    return Source("", path).head.startswith(b"PAR1")


def _open(path: Path) -> tuple[Source, str]:
    """Open a file and detect its format; raise if it is not a table, with the likely cause and the
    remedy.
    """
    source = Source(shown_name(path), path)
    if is_parquet(path):
        return source, "parquet"
    if files.is_stream(path):
        with open(path, "rb", buffering=0) as file:
            content = _limited(file.read, source.name, "holds", "give the name of a file")
        source = Source(source.name, path, content)
    if packing := _starts(PACKINGS, source.head):
        source = Source(source.name, path, _unpacked(source, packing))
    if source.head.startswith(UTF_16_MARKS):
        source = Source(source.name, path, _utf_8(source), encoding="UTF-16")
    head = source.head
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise TableError(f"{source.name} is empty.")
    kind = _starts(TABLES, head) or "text"
    if kind == "text" and not source.encoding and _looks_like_utf_16(head):
        raise TableError(
            f"{source.name} is UTF-16 without a byte order mark, by its zero bytes; save it as"
            " UTF-8."
        )
    if kind == "text" and b"\x00" in head:
        raise TableError(
            f"{source.name} holds zero bytes: it is damaged, or neither text in UTF-8 or"
            " Windows-1252 nor Parquet or Excel (.xlsx); save the table as one of these."
        )
    return source, kind


def _starts(marks: dict[bytes, str], head: bytes) -> str:
    return next((kind for mark, kind in marks.items() if head.startswith(mark)), "")


def _unpacked(source: Source, packing: str) -> Any:

    try:
        with pa.CompressedInputStream(source.open(), packing) as stream:
            return _limited(
                stream.read,
                source.name,
                "unpacks to",
                "save it as Parquet, which is read in blocks",
            )
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(
            f"{source.name} is a damaged {packing} file, get it again: {one_line(error)}"
        ) from error


def _utf_8(source: Source) -> Any:
    """Convert a text file from UTF-16, the "Unicode text" of spreadsheet programs, to UTF-8."""
    stream = pa.transcoding_input_stream(source.open(), "utf-16", "utf-8")
    try:
        return _limited(
            stream.read,
            source.name,
            "holds",
            "save it as UTF-8, or as Parquet, which is read in blocks",
        )
    except UnicodeError as error:
        raise TableError(
            f"{source.name} begins as UTF-16, but is damaged: {one_line(error)}; save it as UTF-8."
        ) from error


def _looks_like_utf_16(head: bytes) -> bool:
    """Whether zero bytes are frequent and all at even or all at odd positions, as in UTF-16 of
    Latin letters.
    """
    n_even_zeros = head[::2].count(0)
    n_odd_zeros = head[1::2].count(0)
    return min(n_even_zeros, n_odd_zeros) == 0 and 4 * max(n_even_zeros, n_odd_zeros) > len(head)


def _limited(read: Callable[[int], bytes], name: str, verb: str, remedy: str) -> Any:
    """Read all bytes; raise if more than a quarter of the free memory is needed."""

    limit = memory.available_bytes() / 4
    chunks = []
    n_bytes = 0
    with terminal.progress(f"reading {name}"):
        while chunk := read(READ_BYTES):
            chunks.append(chunk)
            n_bytes += len(chunk)
            if n_bytes > limit:
                raise TableError(
                    f"{name} {verb} more than {memory.describe(limit)}, the quarter of the free"
                    f" memory it may fill; {remedy}."
                )
    return pa.py_buffer(
        b"".join(chunks)
    )  # the chunks and the joined copy together fill at most half


# Reading


def read_table(
    path: str | os.PathLike[str], *, verbatim: Iterable[str] = ()
) -> tuple[Any, list[str]]:
    """Read a table into memory as a pyarrow table, with messages for the user.

    Parameters
    ----------
    path : path
        A file of text, Parquet or Excel, also compressed with gzip, bzip2 or zstd; a folder of
        Parquet files; a pipe; or ``-`` for standard input.
    verbatim : iterable of str
        Columns of a text file, such as identifiers, in which strings like NA are not missing
        values.

    Returns
    -------
    table : pyarrow.Table
        Table with distinct column names. All columns of a text file are strings.
    messages : list of str
        Notes for the user.
    """
    source, kind = _open(Path(path))
    messages: list[str] = []
    with terminal.progress(f"reading {source.name}"):
        if kind == "parquet":
            table = _read_parquet(source)
        else:
            table = (
                _read_text(source, messages) if kind == "text" else _read_workbook(source, messages)
            )
            table = _with_names(table, source.name, messages)
    if kind == "text":
        table = _strip_cells(table, set(verbatim))
    if not table.num_rows:
        raise TableError(f"{source.name} has a header but no rows.")
    refuse_repeated(table.column_names, Path(path))
    return table, messages


def damaged_parquet(name: str, error: Exception) -> str:
    """Message about a file that begins as Parquet but cannot be read, or a folder with other files."""
    return f"{name} is not Parquet, or is damaged; download or export it again: {one_line(error)}"


def _read_parquet(source: Source) -> Any:
    import pyarrow.parquet as pq

    def dataset(**options: Any) -> Any:
        location = source.path if source.content is None else source.open()
        return pq.ParquetDataset(location, partitioning=None, **options)

    try:
        # strings stay dictionaries: a long string repeated in a million rows takes no more memory
        # than on disk
        return dataset(read_dictionary=text_names(dataset().schema)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(damaged_parquet(source.name, error)) from error


def _read_workbook(source: Source, messages: list[str]) -> Any:
    """Read the first sheet that is not empty; cells with formulas have the last computed value."""

    try:
        import openpyxl  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError:
        raise TableError(
            f"{source.name} is an archive, as Excel files are, which openpyxl reads: pip install"
            " openpyxl, or save it as CSV."
        ) from None
    memory_limit = memory.available_bytes() / 4
    try:
        with (
            source.open() as file,
            memory.limited_growth(memory_limit),
            warnings.catch_warnings(action="ignore"),
        ):
            _refuse_large_archive(source.name, file, memory_limit)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheet_rows: list[tuple[Any, ...]] = []
            for sheet in book.worksheets:
                sheet_rows = _sheet_rows(sheet, source.name, memory_limit)
                if sheet_rows:
                    break
    except MemoryError:
        raise TableError(
            f"reading {source.name} takes more than {memory.describe(memory_limit)} of memory, a"
            " quarter of what is free; save it as Parquet or CSV."
        ) from None
    except TableError:
        raise
    except Exception as error:  # what a library raises on a damaged file is not a closed list
        raise TableError(
            f"{source.name} is no Excel file, or damaged: {one_line(error)}; save it as CSV."
        ) from error
    if not sheet_rows:
        raise TableError(f"{source.name} is empty.")
    if len(book.worksheets) > 1:
        n_sheets = len(book.worksheets)
        messages.append(
            f"read from the sheet {quoted(sheet.title)}, the first of {n_sheets} that holds"
            " something."
        )
    n_filled = len(sheet_rows)
    while not any(map(_is_written, sheet_rows[n_filled - 1])):
        n_filled -= 1
    if n_filled < len(sheet_rows):
        n_blank = counted(len(sheet_rows) - n_filled, "empty row")
        messages.append(
            f"{n_blank} at the end of the sheet {quoted(sheet.title)}: taken for no part of the"
            " table."
        )
    names = []
    columns = []
    for name, *column in zip_longest(*sheet_rows[:n_filled]):
        cells = [cell if _is_filled(cell) else None for cell in column]
        kinds = {type(cell).__name__ for cell in cells} - {"NoneType"}
        if kinds <= {"int", "float", "bool"}:
            columns.append(
                pa.array([None if cell is None else float(cell) for cell in cells], "float64")
            )
        elif kinds <= {"datetime", "date"}:
            columns.append(pa.array(cells, pa.timestamp("us")))
        else:
            columns.append(
                pa.array([None if cell is None else str(cell) for cell in cells], "string")
            )
        names.append("" if name is None else str(name))
    return pa.Table.from_arrays(columns, names=names)


def _refuse_large_archive(name: str, file: Any, memory_limit: float) -> None:
    """Raise if a workbook unpacks to more than can be read, by the sizes that its archive declares.

    Python reads no more of an entry than its declared size, so that a false size cannot unpack to
    more than declared.
    """
    with zipfile.ZipFile(file) as archive:
        unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
    max_unpacked_bytes = memory_limit / MEMORY_PER_WORKBOOK_BYTE
    if unpacked_bytes > max_unpacked_bytes:
        raise TableError(
            f"{name} has {memory.describe(file.size())} and unpacks to"
            f" {memory.describe(unpacked_bytes)}; with the memory that is free now, workbooks of up"
            f" to {memory.describe(max_unpacked_bytes)} are read. Save the table as Parquet or CSV."
        )
    file.seek(0)


def _sheet_rows(sheet: Any, name: str, memory_limit: float) -> list[tuple[Any, ...]]:
    """Rows of a sheet from the header, the first row that is not blank; raise if a row is longer
    than the header.

    The size that the sheet declares is not used: it may be larger than the table, or smaller.
    """
    sheet.reset_dimensions()
    rows: list[tuple[Any, ...]] = []
    for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > MAX_EXCEL_ROWS or len(cells) > MAX_EXCEL_COLUMNS:
            raise TableError(
                f"{name} is damaged: its sheet {quoted(sheet.title)} goes beyond row"
                f" {MAX_EXCEL_ROWS:,} or column {MAX_EXCEL_COLUMNS:,}, the last that Excel has."
                " Save it as CSV."
            )
        width = len(cells)
        while width and not _is_written(cells[width - 1]):
            width -= 1
        if not rows and not width:
            continue
        rows.append(tuple(cells[:width]))
        n_columns = len(rows[0])
        extra = next((j for j in range(n_columns, width) if _is_filled(cells[j])), None)
        if extra is not None:
            raise TableError(
                f"{name} holds {quoted(cells[extra])} in row {number:,} and column {extra + 1:,} of"
                f" the sheet {quoted(sheet.title)}, but the header ends with {quoted(rows[0][-1])}"
                f" in column {n_columns:,}. Give that column a name, delete the cell, or remove"
                " titles above the header."
            )
        rows[-1] = rows[-1][:n_columns]
        n_bytes = CELL_BYTES * n_columns * len(rows)
        if n_bytes > memory_limit:
            raise TableError(
                f"{name} has {len(rows):,} rows or more and {n_columns:,} columns; they take"
                f" {memory.describe(n_bytes)} of memory, and may take"
                f" {memory.describe(memory_limit)}, a quarter of what is free. Save it as Parquet."
            )
    return rows


def _is_written(cell: Any) -> bool:
    """Whether a cell of a sheet is not blank; a mark of a missing value such as NA is not blank."""
    return cell is not None and (not isinstance(cell, str) or bool(cell.strip()))


def _is_filled(cell: Any) -> bool:
    """Whether a cell has a value that is not a mark of a missing value."""
    return cell is not None and (not isinstance(cell, str) or cell.strip() not in MISSING)


def _with_names(table: Any, file_name: str, messages: list[str]) -> Any:
    """Clean the column names, and drop columns without a name: row names in the first column, or
    empty columns.
    """
    names = [str(name).strip("\ufeff" + BLANKS) for name in table.column_names]
    names[0] = names[0].lstrip("# ")  # NumPy begins a header with "# "
    for j, name in enumerate(names):
        if j and not name and any(map(_is_filled, table.column(j).to_pylist())):
            raise TableError(
                f"{file_name} has a column after {quoted(names[j - 1])} without a name; give it"
                " one."
            )
    named_columns = [j for j, name in enumerate(names) if name]
    if len(named_columns) < len(names):
        n_dropped = counted(len(names) - len(named_columns), "column")
        messages.append(
            f"{n_dropped} without a name left out: row names in the first, or nothing in others."
        )
    return (
        table.rename_columns(names)
        .select(named_columns)
        .replace_schema_metadata(table.schema.metadata)
    )


# Text files: separators, encodings, and the lines of errors


class _Dialect(NamedTuple):
    """Format of a text file."""

    encoding: str
    separator: str
    n_columns: int


def _read_text(source: Source, messages: list[str]) -> Any:
    """Read all cells of a text file as strings."""

    dialect = _dialect(source, messages)
    column_types = {
        f"f{j}": "string" for j in range(dialect.n_columns)
    }  # pyarrow generates the names f0, f1, ...
    try:
        with source.open() as file:
            table = pv.read_csv(
                file,
                read_options=pv.ReadOptions(
                    encoding=dialect.encoding,
                    block_size=BLOCK_BYTES,
                    autogenerate_column_names=True,
                ),
                parse_options=pv.ParseOptions(
                    delimiter=dialect.separator,
                    newlines_in_values=True,
                    ignore_empty_lines=dialect.n_columns > 1,
                ),
                convert_options=pv.ConvertOptions(
                    column_types=column_types, null_values=[], strings_can_be_null=False
                ),
            )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        reason = _malformed_line(source, dialect)
        if (not reason and "UTF8" in f"{error}") or isinstance(error, UnicodeDecodeError):
            reason = "it is neither UTF-8 nor Windows-1252 (cp1252) throughout; save it as UTF-8."
        raise TableError(
            f"{source.name} cannot be read as a table: {reason or one_line(error)}"
        ) from error
    if dialect.n_columns == 1:
        table = _without_outer_lines(table, source, messages)
    names = [name for (name,) in table.slice(0, 1).to_pydict().values()]
    return (
        table.slice(1).rename_columns(names).replace_schema_metadata({SEPARATOR: dialect.separator})
    )


def _without_outer_lines(table: Any, source: Source, messages: list[str]) -> Any:
    """Drop the empty lines above the header and at the end of a one-column table, in which an empty
    line is a row.
    """
    with source.open() as file:
        file.seek(max(0, file.size() - SAMPLE_BYTES))
        tail = bytes(file.read())
    n_above = _line_ends(source.head.removeprefix(codecs.BOM_UTF8), at_end=False)
    n_below = max(
        0, _line_ends(tail, at_end=True) - 1
    )  # the first line end belongs to the last row
    if n_below:
        messages.append(
            f"{counted(n_below, 'empty line')} at the end of the file: taken for no part of the"
            " table."
        )
    return table.slice(n_above, table.num_rows - n_above - n_below)


def _line_ends(text: bytes, *, at_end: bool) -> int:
    """Count the line ends at the beginning or at the end of a text."""
    line_ends = (
        text.removeprefix(text.rstrip(b"\r\n"))
        if at_end
        else text.removesuffix(text.lstrip(b"\r\n"))
    )
    return len(line_ends.splitlines())


def _strip_cells(table: Any, verbatim: set[str]) -> Any:
    """Strip blanks from strings, and replace marks of missing values such as NA by null."""

    missing_marks = pa.array(MISSING, "string")
    for j, name in enumerate(table.column_names):
        if name not in verbatim:
            strings = pc.utf8_trim(table.column(j), characters=BLANKS)
            is_missing = pc.is_in(strings, value_set=missing_marks)
            if pc.any(is_missing).as_py():
                strings = pc.if_else(is_missing, None, strings)
            table = table.set_column(j, name, strings)
    return table


def _dialect(source: Source, messages: list[str]) -> _Dialect:
    """Detect the encoding, the separator and the number of columns of a text file from its first
    lines.
    """
    try:
        codecs.getincrementaldecoder("utf-8")().decode(source.head)  # the last character may be cut
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "cp1252"
    with _lines(source, encoding) as file:
        lines = file.readlines(SAMPLE_BYTES)
    max_columns = max(line.count(mark) for line in lines for mark in SEPARATORS) + 1
    needed_bytes = max_columns * COLUMN_BYTES
    free_bytes = memory.available_bytes()
    if needed_bytes > free_bytes / 2:
        raise TableError(
            f"{source.name} has {max_columns:,} columns; reading that number from text takes"
            f" {memory.describe(needed_bytes)} of memory, and {memory.describe(free_bytes)} are"
            " free. Save it as Parquet, or with fewer columns."
        )
    nonblank_lines = [line for line in lines if line.strip(" \t\r\n\v\f")]
    separator = _separator(nonblank_lines)
    try:
        names = next(csv.reader(nonblank_lines, delimiter=separator))
    except csv.Error as error:
        raise TableError(
            f"{source.name} cannot be read as a table: in its header, {error}."
        ) from None
    if encoding != "utf-8":
        messages.append("the file is not UTF-8; read as Windows-1252 (cp1252).")
    if source.encoding:
        messages.append(f"the file is {source.encoding}, and was read as such.")
    return _Dialect(encoding, separator, len(names))


def _lines(source: Source, encoding: str) -> io.TextIOWrapper:
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding  # skips a byte-order mark
    return io.TextIOWrapper(source.open(), encoding=encoding, errors="replace", newline="")


def _separator(lines: list[str]) -> str:
    """Separator that splits the first lines into equally many fields; if several do, the one with
    the most fields.
    """
    separator = max(",;\t|", key=lines[0].count)
    n_fields = 1
    for candidate in SEPARATORS:
        with suppress(csv.Error):
            widths = {len(row) for row in csv.reader(lines[:50], delimiter=candidate) if row}
            if len(widths) == 1 and max(widths) > n_fields:
                separator = candidate
                n_fields = max(widths)
    return separator


def _malformed_line(source: Source, dialect: _Dialect) -> str:
    """Describe the first line that does not fit the header, and the remedy; empty if all lines fit."""
    with _lines(source, dialect.encoding) as lines:
        rows = csv.reader(lines, delimiter=dialect.separator)
        width = 0
        line_number = 1
        try:
            for row in rows:
                width = width or len(row)
                if row and len(row) != width:
                    n_cells = counted(len(row), "cell")
                    return (
                        f"line {line_number} has {n_cells}, the header has {width}; correct that"
                        " line: close quotation marks, put strings with separators into them,"
                        " remove titles above the header."
                    )
                line_number = rows.line_num + 1
        except csv.Error as error:
            return (
                f"in line {line_number}, {error}, as after a quotation mark that is not closed;"
                " close it."
            )
    return ""
