"""Read a table from a text, Parquet or Excel file into a pyarrow table; the content decides the
format, not the name.

A table that cannot be used is refused with the file, the line or the column, and what to do, never
repaired silently. Pipes are read once, into memory; compressed files are unpacked in memory. The
two may fill a quarter of the free memory, so that neither an endless pipe nor a small file that
unpacks to a large one exhausts it. Cells of a text file stay strings: `columns` decides on their
types.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from .._execution import files, memory
from .._report.formatting import LONGEST_NAME, counted, quoted
from .._tables.problems import BLANKS, SEPARATOR, TableError, listed, one_line, text_names
from . import terminal

MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
MAX_TITLES = 20  # lines above a header
SAMPLE_BYTES = 1 << 16  # from which the format and the dialect of a file are detected
# Memory of the text reader per column, however short the table (9.3 kB with pyarrow 26)
COLUMN_BYTES = 10_000
STANDARD_INPUT = Path("/dev/stdin")
LAST_BYTE_OF_NO_BREAK_SPACE = 0xA0
SEPARATORS = ";\t,|"
PACKINGS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def refuse_absent(names: Iterable[str], table: Any) -> None:
    """Raise if a table lacks one of the named columns, and suggest the column with the most similar
    name.
    """
    column_names = table.column_names
    if absent := [name for name in names if name not in column_names]:
        similar = difflib.get_close_matches(absent[0][:LONGEST_NAME], column_names, 1)
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


def is_filled(cell: Any) -> bool:
    """Whether a cell has a value that is not a mark of a missing value."""
    return cell is not None and str(cell).strip() not in MISSING


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
        if self.content is None:
            return pa.OSFile(os.fspath(self.path))
        return pa.BufferReader(self.content)

    @property
    def head(self) -> bytes:
        """First bytes of the table, at most SAMPLE_BYTES."""
        with self.open() as file:
            return bytes(file.read(SAMPLE_BYTES))


def shown_name(path: Path) -> str:
    """Name of a file or folder in messages; "." and ".." are resolved."""
    if path == STANDARD_INPUT:
        return "standard input"
    return str(path) if files.is_stream(path) else os.path.basename(os.path.abspath(path))


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file, or a folder of Parquet files that make one table.

    A pipe is not: reading Parquet needs random access.
    """
    if path.is_dir() or files.is_stream(path):
        return path.is_dir()
    if not path.exists():
        raise TableError(f"there is no file {path}.")
    return Source("", path).head.startswith(b"PAR1")


def _open(path: Path) -> Source:
    """Open a file that is not a table in Parquet on disk, and unpack it and convert it to UTF-8."""
    source = Source(shown_name(path), path)
    if files.is_stream(path):
        with open(path, "rb", buffering=0) as file:
            content = _limited(file.read, source.name, "holds", "give the name of a file")
        source = Source(source.name, path, content)
    packing = next((name for mark, name in PACKINGS.items() if source.head.startswith(mark)), None)
    if packing:
        source = Source(source.name, path, _unpacked(source, packing))
    if source.head.startswith(UTF_16_MARKS):
        source = Source(source.name, path, _utf_8(source), encoding="UTF-16")
    return source


def _format(source: Source) -> str:
    """Format of the bytes of a table; raise if they are none, with the likely cause and the
    remedy.
    """
    head = source.head
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "xlsx"
    if not head.removeprefix(codecs.BOM_UTF8).strip():
        raise TableError(f"{source.name} is empty.")
    if b"\x00" in head:
        raise TableError(
            f"{source.name} holds zero bytes: it is UTF-16 without a byte order mark, damaged, or"
            " no table; save the table as text in UTF-8, as Parquet or as Excel (.xlsx)."
        )
    return "text"


def _unpacked(source: Source, packing: str) -> Any:
    remedy = "save it as Parquet, which is read in blocks"
    try:
        with pa.CompressedInputStream(source.open(), packing) as stream:
            return _limited(stream.read, source.name, "unpacks to", remedy)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(
            f"{source.name} is a damaged {packing} file, get it again: {one_line(error)}"
        ) from error


def _utf_8(source: Source) -> Any:
    """Convert a text file from UTF-16, the "Unicode text" of spreadsheet programs, to UTF-8."""
    stream = pa.transcoding_input_stream(source.open(), "utf-16", "utf-8")
    remedy = "save it as UTF-8, or as Parquet, which is read in blocks"
    try:
        return _limited(stream.read, source.name, "holds", remedy)
    except UnicodeError as error:
        raise TableError(
            f"{source.name} begins as UTF-16, but is damaged: {one_line(error)}; save it as UTF-8."
        ) from error


def _limited(read: Callable[[int], bytes], name: str, verb: str, remedy: str) -> Any:
    """Read all bytes; raise if more than a quarter of the free memory is needed."""
    limit = memory.available_bytes() / 4
    chunks = []
    n_bytes = 0
    with terminal.progress(f"reading {name}"):
        while chunk := read(1 << 20):
            chunks.append(chunk)
            n_bytes += len(chunk)
            if n_bytes > limit:
                raise TableError(
                    f"{name} {verb} more than {memory.describe(limit)}, the quarter of the free"
                    f" memory it may fill; {remedy}."
                )
    # the chunks and the joined copy together fill at most half
    return pa.py_buffer(b"".join(chunks))


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
    path = Path(path)
    on_disk = is_parquet(path)
    source = Source(shown_name(path), path) if on_disk else _open(path)
    kind = "parquet" if on_disk else _format(source)
    messages: list[str] = []
    with terminal.progress(f"reading {source.name}"):
        if kind == "parquet":
            table = _read_parquet(source)
        elif kind == "xlsx":
            from .workbooks import read_workbook

            table = _with_names(read_workbook(source, messages), source.name, messages)
        else:
            table = _with_names(_read_text(source, messages), source.name, messages)
            table = _strip_cells(table, set(verbatim))
    if not table.num_rows:
        raise TableError(f"{source.name} has a header but no rows.")
    refuse_repeated(table.column_names, path)
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


def _with_names(table: Any, file_name: str, messages: list[str]) -> Any:
    """Clean the column names, and drop columns without a name: row names in the first column, or
    empty columns.
    """
    names = [str(name or "").strip("\ufeff" + BLANKS) for name in table.column_names]
    names[0] = names[0].lstrip("# ")  # NumPy begins a header with "# "
    for j, name in enumerate(names):
        if j and not name and any(map(is_filled, table.column(j).to_pylist())):
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
    metadata = table.schema.metadata
    return table.rename_columns(names).select(named_columns).replace_schema_metadata(metadata)


def _strip_cells(table: Any, verbatim: set[str]) -> Any:
    """Strip blanks from strings, and replace marks of missing values such as NA by null."""
    missing_marks = pa.array(MISSING, "string")
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name not in verbatim:
            if _may_have_blanks(column):
                column = pc.utf8_trim(column, characters=BLANKS)
            is_mark = pc.is_in(column, value_set=missing_marks)
            if pc.any(is_mark).as_py():
                column = pc.if_else(is_mark, None, column)
        columns.append(column)
    return pa.table(columns, schema=table.schema)


def _may_have_blanks(column: Any) -> bool:
    """Whether any byte of the strings may belong to a blank: most columns of numbers have none."""
    for chunk in column.chunks:
        text_bytes = np.frombuffer(chunk.buffers()[2] or b"", dtype=np.uint8)
        if (text_bytes <= ord(" ")).any() or (text_bytes == LAST_BYTE_OF_NO_BREAK_SPACE).any():
            return True
    return False


# Text files: separators, encodings, and the lines of errors


class _Dialect(NamedTuple):
    """Format of a text file."""

    encoding: str
    separator: str
    n_columns: int
    n_above: int  # lines above the header


def _read_text(source: Source, messages: list[str]) -> Any:
    """Read all cells of a text file as strings."""
    dialect = _dialect(source, messages)
    is_one_column = dialect.n_columns == 1
    names = [f"f{j}" for j in range(dialect.n_columns)]  # as pyarrow generates them
    try:
        with source.open() as file:
            table = pv.read_csv(
                file,
                read_options=pv.ReadOptions(
                    encoding=dialect.encoding,
                    block_size=1 << 24,  # a row must fit into a block
                    skip_rows=dialect.n_above,
                    autogenerate_column_names=True,
                ),
                parse_options=pv.ParseOptions(
                    delimiter=dialect.separator,
                    newlines_in_values=True,
                    ignore_empty_lines=not is_one_column,
                ),
                convert_options=pv.ConvertOptions(
                    column_types=dict.fromkeys(names, "string"),
                    null_values=[""],
                    strings_can_be_null=is_one_column,
                    quoted_strings_can_be_null=False,
                ),
            )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        reason = _malformed_line(source, dialect)
        if (not reason and "UTF8" in f"{error}") or isinstance(error, UnicodeDecodeError):
            reason = "it is neither UTF-8 nor Windows-1252 (cp1252) throughout; save it as UTF-8."
        raise TableError(
            f"{source.name} cannot be read as a table: {reason or one_line(error)}"
        ) from error
    if is_one_column:
        table = _without_outer_lines(table, messages)
    names = [name for (name,) in table.slice(0, 1).to_pydict().values()]
    return (
        table.slice(1).rename_columns(names).replace_schema_metadata({SEPARATOR: dialect.separator})
    )


def _without_outer_lines(table: Any, messages: list[str]) -> Any:
    """Drop the empty lines above the header and at the end of a one-column table, in which an empty
    line is a row and read as null.
    """
    written = pc.indices_nonzero(table.column(0).is_valid())
    first = written[0].as_py()
    last = written[-1].as_py()
    n_below = table.num_rows - 1 - last
    if n_below:
        messages.append(
            f"{counted(n_below, 'empty line')} at the end of the file: taken for no part of the"
            " table."
        )
    return table.slice(first, last + 1 - first)


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
    n_titles, separator = _titles(nonblank_lines, separator)
    n_above = 0
    if n_titles:
        n_above = lines.index(nonblank_lines[n_titles])
        titles = listed((line.strip() for line in nonblank_lines[:n_titles]), 2)
        messages.append(f"{counted(n_titles, 'line')} above the header left out: {titles}.")
        nonblank_lines = nonblank_lines[n_titles:]
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
    return _Dialect(encoding, separator, len(names), n_above)


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


def _titles(lines: list[str], separator: str) -> tuple[int, str]:
    """Number of lines above the header, and the separator below them.

    Lines are titles if the table would be malformed with them, all lines below have as many cells as
    the header, every cell of the header has a name that is no number, and titles have at most half
    as many cells.
    """
    widths = {len(cells) for cells in _cells(lines[:50], separator)}
    if len(widths) == 1:
        return 0, separator
    for n_titles in range(1, min(MAX_TITLES, len(lines) - 3) + 1):
        below = lines[n_titles:50]
        below_separator = _separator(below)
        rows = _cells(below, below_separator)
        header = [cell.strip() for cell in rows[0]] if rows else []
        titles = _cells(lines[:n_titles], below_separator)
        if (
            len(header) > 1
            and {len(row) for row in rows} == {len(header)}
            and is_header(header)
            and all(2 * sum(map(is_filled, title)) <= len(header) for title in titles)
        ):
            return n_titles, below_separator
    return 0, separator


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    """Cells of lines; none if quotation marks are not closed."""
    try:
        return [row for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:
        return []


def is_header(cells: Sequence[object]) -> bool:
    """Whether cells are names of columns: all filled, all different, and none a number."""
    names = [str(cell).strip() for cell in cells if is_filled(cell)]
    has_number = any(re.fullmatch(r"[-+\d.,\s]+", name) for name in names)
    return len(names) == len(cells) == len(set(names)) and not has_number


def _malformed_line(source: Source, dialect: _Dialect) -> str:
    """Describe the first line that does not fit the header, and the remedy; empty if all lines fit."""
    with _lines(source, dialect.encoding) as lines:
        for _ in range(dialect.n_above):
            next(lines)
        rows = csv.reader(lines, delimiter=dialect.separator)
        width = 0
        line_number = 1 + dialect.n_above
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
                line_number = rows.line_num + 1 + dialect.n_above
        except csv.Error as error:
            return (
                f"in line {line_number}, {error}, as after a quotation mark that is not closed;"
                " close it."
            )
    return ""
