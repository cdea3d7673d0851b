"""Read the first sheet of an Excel workbook that is not empty, within a quarter of the free memory.

A workbook may be a small file that unpacks to a large one, and a sheet may declare any size: sizes
are checked before and while the sheet is read.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from .._execution import memory
from .._report.formatting import counted, quoted
from .._tables.problems import TableError, listed, one_line
from .tables import MAX_TITLES, Source, is_filled, is_header

# bytes of memory per unpacked byte (at most 3.1 in sheets of numbers and of strings)
MEMORY_PER_UNPACKED_BYTE = 4
CELL_BYTES = 16  # memory of a cell of a sheet, empty or not: a reference, then a number


def read_workbook(source: Source, messages: list[str]) -> Any:
    """Read a workbook as a pyarrow table; cells with formulas have the last computed value."""
    memory_limit = memory.available_bytes() / 4
    try:
        title, rows = _first_sheet(source, memory_limit, messages)
    except MemoryError:
        raise TableError(
            f"reading {source.name} takes more than {memory.describe(memory_limit)} of memory, a"
            " quarter of what is free; save it as Parquet or CSV."
        ) from None
    except TableError:
        raise
    except ModuleNotFoundError:
        raise TableError(
            f"{source.name} is an archive, as Excel files are, which openpyxl reads: pip install"
            " openpyxl, or save it as CSV."
        ) from None
    except Exception as error:  # what a library raises on a damaged file is not a closed list
        raise TableError(
            f"{source.name} is no Excel file, or damaged: {one_line(error)}; save it as CSV."
        ) from error
    n_blank = 0
    while not any(map(_is_written, rows[-1 - n_blank])):
        n_blank += 1
    if n_blank:
        messages.append(
            f"{counted(n_blank, 'empty row')} at the end of the sheet {quoted(title)}: taken for no"
            " part of the table."
        )
    columns = list(zip_longest(*rows[: len(rows) - n_blank]))
    names = ["" if column[0] is None else str(column[0]) for column in columns]
    return pa.Table.from_arrays([_array_of(column[1:]) for column in columns], names=names)


def _array_of(cells: tuple[Any, ...]) -> Any:
    """Convert the cells of a column: of one type to an array of that type, others to strings."""
    cells = tuple(cell if is_filled(cell) else None for cell in cells)
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if cell is None else str(cell) for cell in cells], "string")


def _first_sheet(
    source: Source, memory_limit: float, messages: list[str]
) -> tuple[str, list[tuple[Any, ...]]]:
    """Title and rows of the first sheet that is not empty."""
    import openpyxl  # type: ignore[import-untyped, unused-ignore]

    with (
        source.open() as file,
        memory.limited_growth(memory_limit),
        warnings.catch_warnings(action="ignore"),
    ):
        _refuse_large_archive(source.name, file, memory_limit)
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        for sheet in book.worksheets:
            rows = _sheet_rows(sheet, source.name, memory_limit, messages)
            if rows:
                n_sheets = len(book.worksheets)
                if n_sheets > 1:
                    messages.append(
                        f"read from the sheet {quoted(sheet.title)}, the first of {n_sheets} that"
                        " holds something."
                    )
                return sheet.title, rows
    raise TableError(f"{source.name} is empty.")


def _refuse_large_archive(name: str, file: Any, memory_limit: float) -> None:
    """Raise if a workbook unpacks to more than can be read, by the sizes that its archive declares.

    Python reads no more of an entry than its declared size, so that a false size cannot unpack to
    more than declared.
    """
    with zipfile.ZipFile(file) as archive:
        unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
    max_unpacked_bytes = memory_limit / MEMORY_PER_UNPACKED_BYTE
    if unpacked_bytes > max_unpacked_bytes:
        raise TableError(
            f"{name} has {memory.describe(file.size())} and unpacks to"
            f" {memory.describe(unpacked_bytes)}; with the memory that is free now, workbooks of up"
            f" to {memory.describe(max_unpacked_bytes)} are read. Save the table as Parquet or CSV."
        )
    file.seek(0)


def _is_header_below(titles: list[tuple[Any, ...]], cells: Sequence[Any]) -> bool:
    """Whether a row of a sheet is the header, and the rows above it are titles, with at most half as
    many cells.
    """
    n_cells = max((j for j, cell in enumerate(cells, 1) if is_filled(cell)), default=0)
    is_longer = n_cells > max(map(len, titles))
    few = all(2 * sum(map(is_filled, title)) <= n_cells for title in titles)
    return is_longer and few and len(cells) == n_cells and is_header(cells)


def _sheet_rows(
    sheet: Any, name: str, memory_limit: float, messages: list[str]
) -> list[tuple[Any, ...]]:
    """Rows of a sheet from the header, the first row that is not blank; raise if a row is longer
    than the header.

    The size that the sheet declares is not used: it may be larger than the table, or smaller.
    """
    sheet.reset_dimensions()
    max_rows = 1 << 20
    max_columns = 1 << 14
    rows: list[tuple[Any, ...]] = []
    n_columns = 0
    for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > max_rows or len(cells) > max_columns:
            raise TableError(
                f"{name} is damaged: its sheet {quoted(sheet.title)} goes beyond row {max_rows:,}"
                f" or column {max_columns:,}, the last that Excel has. Save it as CSV."
            )
        if not rows:
            n_columns = max((j for j, cell in enumerate(cells, 1) if _is_written(cell)), default=0)
            if not n_columns:
                continue
        if rows and len(rows) <= MAX_TITLES and _is_header_below(rows, cells):
            titles = [cell for row in rows for cell in row if is_filled(cell)]
            messages.append(f"rows above the header left out: {listed(titles, 2)}.")
            rows.clear()
            n_columns = len(cells)
        rows.append(tuple(cells[:n_columns]))
        extra = next((j for j in range(n_columns, len(cells)) if is_filled(cells[j])), None)
        if extra is not None:
            raise TableError(
                f"{name} holds {quoted(cells[extra])} in row {number:,} and column {extra + 1:,} of"
                f" the sheet {quoted(sheet.title)}, but the header ends with {quoted(rows[0][-1])}"
                f" in column {n_columns:,}. Give that column a name, delete the cell, or remove"
                " titles above the header."
            )
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
    return cell is not None and bool(str(cell).strip())
