"""Read a table from a file of any kind, which its content tells and not its name, into a pyarrow table.

A table that cannot be used is refused with the file, the line or the column, and what to do, never repaired silently.
Pipes are read once, into memory; compressed files are unpacked there. Both are held to a quarter of the free memory,
so that neither an endless pipe nor a small file that unpacks to a large one fills it.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._execution import files, memory
from .._report.formatting import LONGEST_NAME, counted, escape_control, quoted
from . import terminal

__all__ = [
    "MISSING", "SEPARATOR", "Source", "TableError", "damaged_parquet", "is_parquet", "is_text", "listed", "one_line",
    "option", "read_table", "refuse_repeated", "shown_name", "with_names",
]  # fmt: skip

SEPARATOR = b"olsen.separator"  # among the metadata of a table that was read from text: what separated its cells
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
SAMPLE_BYTES = 1 << 16
STANDARD_INPUT = Path("-")

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
    """Whether a type of pyarrow is text, or a dictionary of texts."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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
        With distinct column names. Of a text file all columns are texts: `encoding` decides what they are.
    messages : list of str
        What a user should know.
    """
    path = Path(path)
    table, messages = _read(path, verbatim)
    if not table.num_rows:
        raise TableError(f"{shown_name(path)} has a header but no rows.")
    refuse_repeated(table.column_names, path)
    return table, messages


def _read(path: Path, verbatim: Iterable[str]) -> tuple[Any, list[str]]:
    folder = path.is_dir() and is_parquet(path)
    source = Source(shown_name(path), path, kind="parquet") if folder else _open(path)
    if source.kind == "text":
        from .text_tables import read_text

        return read_text(source, verbatim)
    with terminal.progress(f"reading {source.name}"):
        if source.kind == "xlsx":
            return _read_workbook(source)
        return (_read_parquet if source.kind == "parquet" else _read_arrow)(source), []


def refuse_repeated(names: list[str], path: Path) -> None:
    """Raise if two columns share a name: columns are identified by their names."""
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled:
        raise TableError(f"{shown_name(path)} has several columns named {listed(doubled)}; rename them first.")


def damaged_parquet(name: str, error: Exception) -> str:
    """What is said of a file that begins as Parquet and cannot be read as such."""
    return f"{name} is a damaged Parquet file; get it again, or write it anew: {one_line(error)}"


def _read_parquet(source: Source) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def dataset(**options: Any) -> Any:
        return pq.ParquetDataset(source.path if source.content is None else source.open(), partitioning=None, **options)

    try:
        texts = [field.name for field in dataset().schema if is_text(field.type)]
        # as dictionaries, as they are stored: a long text repeated in a million rows takes no more memory than on disk
        return dataset(read_dictionary=texts).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(damaged_parquet(source.name, error)) from error


def _read_arrow(source: Source) -> Any:
    import pyarrow as pa

    try:
        with source.open() as file:
            opened = pa.ipc.open_file if source.kind == "arrow" else pa.ipc.open_stream
            table = opened(file).read_all()
            table.validate(full=True)
            return table
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise TableError(f"{source.name} is a damaged Arrow file, save it again: {one_line(error)}") from error


def _read_workbook(source: Source) -> tuple[Any, list[str]]:
    """The first sheet that holds something, with messages; formulas as their last values."""
    import warnings

    try:
        import openpyxl  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError:
        raise TableError(
            f"{source.name} is an Excel file, which openpyxl reads: pip install openpyxl, or save it as CSV."
        ) from None
    try:
        with source.open() as file, warnings.catch_warnings(action="ignore"):
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheets = {
                sheet.title: [row for row in sheet.iter_rows(values_only=True) if any(map(_is_filled, row))]
                for sheet in book.worksheets
            }
    except (KeyError, ValueError, TypeError, AttributeError, SyntaxError, OSError, zipfile.BadZipFile) as error:
        raise TableError(f"{source.name} is a damaged Excel file: {one_line(error)}; save it as CSV.") from error
    title = next((title for title, rows in sheets.items() if rows), None)
    if title is None:
        raise TableError(f"{source.name} is empty.")
    messages = [f"read from the sheet {quoted(title)}, the first of {len(sheets)}."] if len(sheets) > 1 else []
    return with_names(_workbook_table(sheets[title]), source.name, messages), messages


def _is_filled(cell: Any) -> bool:
    return cell is not None and (not isinstance(cell, str) or cell.strip() not in MISSING)


def _workbook_table(rows: list[tuple[Any, ...]]) -> Any:
    """Cells below the header: columns of nothing but numbers or dates as such, others as texts."""
    from itertools import zip_longest

    import pyarrow as pa

    names, columns = [], []
    for name, *cells in zip_longest(*rows):
        cells = [cell if _is_filled(cell) else None for cell in cells]
        kinds = {type(cell).__name__ for cell in cells} - {"NoneType"}
        if kinds <= {"int", "float", "bool"}:
            columns.append(pa.array([None if cell is None else float(cell) for cell in cells], "float64"))
        elif kinds <= {"datetime", "date"}:
            columns.append(pa.array(cells, pa.timestamp("us")))
        else:
            columns.append(pa.array([None if cell is None else str(cell) for cell in cells], "string"))
        names.append("" if name is None else str(name))
    return pa.Table.from_arrays(columns, names=names)


def with_names(table: Any, where: str, messages: list[str]) -> Any:
    """A table whose columns have names: R leaves out that of the row names, others end every line with a separator.

    What was left out is added to `messages`.
    """
    names = [str(name).strip("\ufeff \t\r\n\u00a0") for name in table.column_names]
    names[0] = names[0].lstrip("# ")
    kept = len(names)
    while kept > 1 and not names[kept - 1] and not any(map(_is_filled, table.column(kept - 1).to_pylist())):
        kept -= 1
    if kept < len(names):
        messages.append(f"lines end with a separator; {counted(len(names) - kept, 'empty column')} after it left out.")
    table, names = table.rename_columns(names).select(range(kept)), names[:kept]
    if kept > 1 and not names[0]:
        messages.append("the first column has no name; taken as row names and left out.")
        table, names = table.remove_column(0), names[1:]
    if "" in names:
        place = names.index("")
        after = f" after {quoted(names[place - 1])}" if place else ""
        raise TableError(f"{where} has a column{after} without a name; give it one in the header.")
    return table


# What a file is, and its bytes


@dataclass(frozen=True)
class Source:
    """The bytes of a table, and what they are.

    Parameters
    ----------
    name : str
        As it is called in messages.
    path : Path
        Where they lie on disk.
    content : pyarrow.Buffer, default=None
        All of them, where they do not lie on disk as they are.
    kind : str
        "text", "parquet", "arrow", "arrow stream" or "xlsx".
    """

    name: str
    path: Path
    content: Any = None
    kind: str = ""

    def open(self) -> Any:
        """The bytes as a file of pyarrow, which is not unpacked because of its name."""
        import pyarrow as pa

        return pa.OSFile(os.fspath(self.path)) if self.content is None else pa.BufferReader(self.content)

    @property
    def head(self) -> bytes:
        """The first bytes."""
        if self.content is not None:
            return bytes(self.content[:SAMPLE_BYTES])
        with open(self.path, "rb") as file:
            return file.read(SAMPLE_BYTES)


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
        _refuse_absent(path)
        return not _is_stream(path) and Source("", path).head.startswith(b"PAR1")
    # pyarrow passes over marks of other programs, such as _SUCCESS
    inside = [file for file in sorted(path.rglob("*")) if file.is_file()]
    inside = [f for f in inside if not any(part.startswith(("_", ".")) for part in f.relative_to(path).parts)]
    others = [file for file in inside if not is_parquet(file)]
    if others or not inside:
        held = f", but holds {listed([file.name for file in others], 3)}; give one file" if others else ""
        raise TableError(f"{shown_name(path)} is not a folder of Parquet files only{held}.")
    return True


def _refuse_absent(path: Path) -> None:
    if not _is_stream(path) and not path.exists():
        raise TableError(f"there is no file {path}.")


def _open(path: Path) -> Source:
    """Find out what a file is; raise if it is no table, with what it is and what to do."""
    _refuse_absent(path)
    name = shown_name(path)
    source = Source(name, path, _all_of_stream(path, name) if _is_stream(path) else None)
    if packing := _starts(PACKINGS, source.head):
        source = replace(source, content=_unpacked(source, packing))
    if again := _starts(PACKINGS, source.head):
        raise TableError(f"{name} is compressed twice ({packing}, then {again}); unpack it first.")
    return replace(source, kind=_kind(source))


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
