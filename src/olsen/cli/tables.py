"""The door to users' tables, for the command line: read a file of any kind, and turn its columns into numbers.

A table that cannot be used is refused with the file, the line or the column, and what to do, never repaired silently.
What a file is, is found in `formats`; text is read in `text_tables`, Excel in `workbooks`; what becomes of columns is
decided in `columns` and kept in an `Encoding`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import terminal
from .columns import MAX_CATEGORIES, different_texts, is_text, texts_of
from .encoding import Encoding, learn_table
from .formats import Source, is_parquet, open_source, shown_name
from .gaps import refuse_cells, refuse_missing
from .table_errors import TableError, damaged_parquet, listed, one_line

__all__ = [
    "MAX_CATEGORIES", "Encoding", "TableError", "damaged_parquet", "different_texts", "is_parquet", "is_text",
    "learn_table", "read_table", "refuse_cells", "refuse_missing", "refuse_repeated", "shown_name", "texts_of",
]  # fmt: skip


def read_table(path: str | os.PathLike[str], *, verbatim: Iterable[str] = ()) -> tuple[Any, list[str]]:
    """Read a table into memory as a pyarrow table, with messages for the user.

    Parameters
    ----------
    path : path
        A file of text, Parquet, Arrow, Feather or Excel, also compressed with gzip, bzip2 or zstd, as its content says;
        a folder of Parquet files; a pipe; or ``-`` for standard input. Text may use ``;``, tab, ``,`` or ``|``, a
        byte-order mark, and a decimal comma where the separator is not a comma; columns in which a comma may also stand
        between thousands are texts.
    verbatim : iterable of str
        Columns that are wanted as the texts that stand in a text file, such as identifiers with leading zeros.

    Returns
    -------
    table : pyarrow.Table
        With distinct column names. Fields of text files are marked with how their cells are written (`columns.MARKS`).
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
    if path.is_dir() and is_parquet(path):
        with terminal.progress(f"reading {shown_name(path)}"):
            return _read_parquet(path, shown_name(path)), []
    source = open_source(path)
    if source.kind == "text":
        from .text_tables import read_text

        return read_text(source, verbatim)
    with terminal.progress(f"reading {source.name}"):
        return _read_binary(source, path)


def _read_binary(source: Source, path: Path) -> tuple[Any, list[str]]:
    if source.kind == "xlsx":
        from .workbooks import read_workbook

        return read_workbook(source)
    if source.kind == "parquet":
        return _read_parquet(path if source.content is None else source.native(), source.name), []
    return _read_arrow(source), []


def refuse_repeated(names: list[str], path: Path) -> None:
    """Raise if two columns share a name: columns are identified by their names."""
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled:
        raise TableError(f"{shown_name(path)} has several columns named {listed(doubled)}; rename them first.")


def _read_parquet(place: Any, name: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        texts = [field.name for field in pq.ParquetDataset(place, partitioning=None).schema if is_text(field.type)]
        # as dictionaries, as they are stored: a long text repeated in a million rows takes no more memory than on disk
        return pq.ParquetDataset(place, partitioning=None, read_dictionary=texts).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(damaged_parquet(name, error)) from error


def _read_arrow(source: Source) -> Any:
    import pyarrow as pa

    try:
        with source.native() as file:
            opened = pa.ipc.open_file if source.kind == "arrow" else pa.ipc.open_stream
            table = opened(file).read_all()
            table.validate(full=True)
            return table
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise TableError(f"{source.name} is a damaged Arrow file, save it again: {one_line(error)}") from error
