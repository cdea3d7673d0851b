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
import re
import shlex
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .._execution import files, memory
from .._report.formatting import LONGEST_NAME, counted, escape_control, quoted
from . import terminal

__all__ = [
    "BLANKS", "SEPARATED", "Source", "TableError", "damaged_parquet", "is_parquet", "listed", "one_line", "option",
    "read_table", "refuse_absent", "refuse_repeated", "separator_of", "shown_name", "text_names",
]  # fmt: skip

SEPARATOR = b"olsen.separator"  # among the metadata of a table that was read from text: what separated its cells
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
BLANKS = " \t\r\n\u00a0"  # around a cell they are no part of it
SAMPLE_BYTES = 1 << 16
BLOCK_BYTES = 1 << 24  # of text that is parsed at a time; a row must fit into it
COLUMN_BYTES = 10_000  # of memory that the reader of text takes for a column, however short (9.3 kB with pyarrow 26)
STANDARD_INPUT = Path("-")

SEPARATED = "columns are separated by"  # how a message begins that says no more than that
SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
NUMBER = re.compile(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)
PACKINGS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
TABLES = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow stream"}
FOREIGN = {  # how a file begins -> what it is, and what to do
    rb"\xd0\xcf\x11\xe0": "a spreadsheet in the old format of Excel; save it as .xlsx or CSV",
    rb"\xff\xfe|\xfe\xff": "encoded as UTF-16; save it as UTF-8",
    rb'\s*(\{\s*(["}]|$)|\[\s*([\[{"\]]|-?\d[^\]]*[,\]\n]))': "JSON, not a table; save it as CSV or Parquet",
    rb"\s*<(\?xml|!doctype\s|html|head|body|table|div)": "XML or HTML, not a table; save the table in it as CSV",
}


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


def text_names(schema: Any) -> list[str]:
    """Names of the columns that hold texts, or dictionaries of texts."""
    import pyarrow as pa

    def is_text(kind: Any) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))

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

    def open(self) -> Any:
        """The bytes as a file of pyarrow, which is not unpacked because of its name."""
        import pyarrow as pa

        return pa.OSFile(os.fspath(self.path)) if self.content is None else pa.BufferReader(self.content)

    @property
    def head(self) -> bytes:
        """The first bytes."""
        with self.open() as file:
            return bytes(file.read(SAMPLE_BYTES))


def shown_name(path: Path) -> str:
    """Name of a file or folder in messages; "." and ".." are called what they are."""
    if _is_stream(path):
        return "standard input" if path in (STANDARD_INPUT, Path("/dev/stdin")) else str(path)
    return path.name if path.name not in ("", "..") else path.resolve().name or str(path.resolve())


def _is_stream(path: Path) -> bool:
    """Whether a path is standard input, a pipe or a device: what can be read once only."""
    return path == STANDARD_INPUT or files.is_stream(path)


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file or a folder, which must then hold Parquet files and nothing else.

    Pipes are not: they cannot be read in blocks from any place.
    """
    if not path.is_dir():
        if not _is_stream(path) and not path.exists():
            raise TableError(f"there is no file {path}.")
        return not _is_stream(path) and Source("", path).head.startswith(b"PAR1")
    # pyarrow passes over marks of other programs, such as _SUCCESS
    inside = [file for file in sorted(path.rglob("*")) if file.is_file()]
    inside = [f for f in inside if not any(part.startswith(("_", ".")) for part in f.relative_to(path).parts)]
    others = [file for file in inside if not is_parquet(file)]
    if others or not inside:
        held = f", but holds {listed([file.name for file in others], 3)}; give one file" if others else ""
        raise TableError(f"{shown_name(path)} is not a folder of Parquet files only{held}.")
    return True


def _open(path: Path) -> tuple[Source, str]:
    """The bytes of a file and what they are; raise if it is no table, with what it is and what to do."""
    source = Source(shown_name(path), path)
    if is_parquet(path):
        return source, "parquet"
    if _is_stream(path):
        source = Source(source.name, path, _all_of_stream(path, source.name))
    if packing := _starts(PACKINGS, source.head):
        source = Source(source.name, path, _unpacked(source, packing))
        if again := _starts(PACKINGS, source.head):
            raise TableError(f"{source.name} is compressed twice ({packing}, then {again}); unpack it first.")
    return source, _kind(source)


def _starts(marks: dict[bytes, str], head: bytes) -> str:
    return next((kind for mark, kind in marks.items() if head.startswith(mark)), "")


def _kind(source: Source) -> str:
    head, name = source.head, source.name
    text = head.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        raise TableError(f"{name} is empty.")
    if kind := _starts(TABLES, head):
        return kind
    if head[:2] == b"PK":
        names: list[str] = []
        with suppress(zipfile.BadZipFile, OSError, ValueError), source.open() as file:
            names = zipfile.ZipFile(file).namelist()
        if "xl/workbook.xml" in names:
            return "xlsx"
        raise TableError(
            f"{name} is an archive or a spreadsheet, but not a whole .xlsx file ({listed(names, 3) or 'damaged'}); "
            f"save the table in it as .xlsx or CSV."
        )
    for mark, what in FOREIGN.items():
        if re.match(mark, text, re.IGNORECASE):
            raise TableError(f"{name} is {what}.")
    if b"\x00" in head:
        raise TableError(
            f"{name} holds zero bytes: it is damaged, or no text (UTF-8 or cp1252), Parquet, Arrow or Excel."
        )
    return "text"


def _all_of_stream(path: Path, name: str) -> Any:
    if path == STANDARD_INPUT and (sys.stdin is None or sys.stdin.closed):
        raise TableError("standard input is closed; give the name of a file, or pipe a table into the command.")
    descriptor = os.dup(0) if path == STANDARD_INPUT else os.open(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if file.isatty():
            raise TableError(f"{name} is a terminal; give the name of a file, or pipe a table into the command.")
        return _limited(file.read, name, "holds", "write it to a file first, and give its name")


def _unpacked(source: Source, packing: str) -> Any:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(source.open(), packing) as stream:
            return _limited(stream.read, source.name, "unpacks to", "save it as Parquet, which is read in blocks")
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{source.name} is a damaged {packing} file, get it again: {one_line(error)}") from error


def _limited(read: Callable[[int], bytes], name: str, verb: str, instead: str) -> Any:
    """All bytes, if they fill no more than a quarter of the free memory."""
    import pyarrow as pa

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
        A file of text, Parquet, Arrow, Feather or Excel, also compressed with gzip, bzip2 or zstd; a folder of Parquet
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
        if kind in ("parquet", "arrow", "arrow stream"):
            table = _read_parquet(source) if kind == "parquet" else _read_arrow(source, kind)
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
    """What is said of a file that begins as Parquet and cannot be read as such."""
    return f"{name} is a damaged Parquet file; get it again, or write it anew: {one_line(error)}"


def _read_parquet(source: Source) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def dataset(**options: Any) -> Any:
        return pq.ParquetDataset(source.path if source.content is None else source.open(), partitioning=None, **options)

    try:
        # as dictionaries, as they are stored: a long text repeated in a million rows takes no more memory than on disk
        return dataset(read_dictionary=text_names(dataset().schema)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(damaged_parquet(source.name, error)) from error


def _read_arrow(source: Source, kind: str) -> Any:
    import pyarrow as pa

    try:
        with source.open() as file:
            table = (pa.ipc.open_file if kind == "arrow" else pa.ipc.open_stream)(file).read_all()
            table.validate(full=True)
            return table
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise TableError(f"{source.name} is a damaged Arrow file, save it again: {one_line(error)}") from error


def _read_workbook(source: Source, messages: list[str]) -> Any:
    """The first sheet that holds something; formulas as their last values, columns of numbers or dates as such."""
    import warnings
    from itertools import zip_longest

    import pyarrow as pa

    try:
        import openpyxl  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError:
        raise TableError(
            f"{source.name} is an Excel file, which openpyxl reads: pip install openpyxl, or save it as CSV."
        ) from None
    try:
        with source.open() as file, warnings.catch_warnings(action="ignore"):
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheets = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
    except (KeyError, ValueError, TypeError, AttributeError, SyntaxError, OSError, zipfile.BadZipFile) as error:
        raise TableError(f"{source.name} is a damaged Excel file: {one_line(error)}; save it as CSV.") from error
    filled = {title: [row for row in rows if any(map(_is_filled, row))] for title, rows in sheets.items()}
    title = next((title for title, rows in filled.items() if rows), None)
    if title is None:
        raise TableError(f"{source.name} is empty.")
    if len(sheets) > 1:
        messages.append(f"read from the sheet {quoted(title)}, the first of {len(sheets)} that holds something.")
    names, columns = [], []
    for name, *column in zip_longest(*filled[title]):
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


def _is_filled(cell: Any) -> bool:
    return cell is not None and (not isinstance(cell, str) or cell.strip() not in MISSING)


def _with_names(table: Any, where: str, messages: list[str]) -> Any:
    """A table whose columns have names: R leaves out that of the row names, others end every line with a separator."""
    names = [str(name).strip("\ufeff \t\r\n\u00a0") for name in table.column_names]
    names[0] = names[0].lstrip("# ")
    kept = len(names)
    while kept > 1 and not names[kept - 1] and not any(map(_is_filled, table.column(kept - 1).to_pylist())):
        kept -= 1
    if kept < len(names):
        messages.append(f"lines end with a separator; {counted(len(names) - kept, 'empty column')} after it left out.")
    first = int(kept > 1 and not names[0])
    if first:
        messages.append("the first column has no name; taken as row names and left out.")
    named, names = table.rename_columns(names).select(range(first, kept)), names[first:kept]
    if "" in names:
        place = names.index("")
        after = f" after {quoted(names[place - 1])}" if place else ""
        raise TableError(f"{where} has a column{after} without a name; give it one in the header.")
    return named.replace_schema_metadata(table.schema.metadata)


# Texts: separators, encodings, lines above the header, and where the faults are


class _Dialect(NamedTuple):
    """How a text is written: `skipped` lines stand above the header."""

    encoding: str
    separator: str
    skipped: int
    n_columns: int


def _read_text(source: Source, messages: list[str]) -> Any:
    """All cells of a text as texts."""
    import pyarrow as pa
    import pyarrow.csv as pv

    dialect = _dialect(source, messages)
    texts = {f"f{j}": "string" for j in range(dialect.n_columns)}  # the names that pyarrow gives
    try:
        with source.open() as file:
            table = pv.read_csv(
                file,
                read_options=pv.ReadOptions(
                    encoding=dialect.encoding, block_size=BLOCK_BYTES, skip_rows=dialect.skipped,
                    autogenerate_column_names=True,
                ),
                parse_options=pv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
                convert_options=pv.ConvertOptions(column_types=texts, null_values=[], strings_can_be_null=False),
            )  # fmt: skip
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        where = _fault(source, dialect)
        if (not where and "UTF8" in f"{error}") or isinstance(error, UnicodeDecodeError):
            where = "it is neither UTF-8 nor Windows-1252 (cp1252) throughout; save it as UTF-8."
        raise TableError(f"{source.name} cannot be read as a table: {where or one_line(error)}") from error
    names = [name for (name,) in table.slice(0, 1).to_pydict().values()]
    return table.slice(1).rename_columns(names).replace_schema_metadata({SEPARATOR: dialect.separator})


def _without_blanks(table: Any, verbatim: set[str]) -> Any:
    """Texts without blanks around them, and without those such as NA that stand for missing cells."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    if all(map(NUMBER.fullmatch, names)):
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
    return _Dialect(encoding, separator, above, len(names))


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
