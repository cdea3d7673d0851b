"""Tables of Excel (.xlsx), read with openpyxl where it is installed: the first sheet that holds something."""

from __future__ import annotations

import datetime
import warnings
import zipfile
from typing import Any

from .._report.formatting import quoted
from .formats import Source
from .table_errors import TableError, one_line
from .text_tables import MISSING, with_names

__all__ = ["read_workbook"]


def read_workbook(source: Source) -> tuple[Any, list[str]]:
    """Read the first sheet that holds something into a pyarrow table, with messages; formulas as their last values."""
    try:
        import openpyxl  # type: ignore[import-untyped, unused-ignore]
    except ModuleNotFoundError:
        raise TableError(
            f"{source.name} is an Excel file, which openpyxl reads: pip install openpyxl, or save it as CSV."
        ) from None
    try:
        with source.file() as file, warnings.catch_warnings(action="ignore"):
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            sheets = {sheet.title: _rows(sheet) for sheet in book.worksheets}
    except (KeyError, ValueError, TypeError, AttributeError, SyntaxError, OSError, zipfile.BadZipFile) as error:
        raise TableError(f"{source.name} is a damaged Excel file: {one_line(error)}; save it as CSV.") from error
    filled = [title for title, rows in sheets.items() if rows]
    if not filled:
        raise TableError(f"{source.name} is empty.")
    messages = [f"read from the sheet {quoted(filled[0])}, the first of {len(sheets)}."] if len(sheets) > 1 else []
    return with_names(_table(sheets[filled[0]]), source.name, messages), messages


def _rows(sheet: Any) -> list[tuple[Any, ...]]:
    """The rows that hold something."""
    return [row for row in sheet.iter_rows(values_only=True) if any(_is_filled(cell) for cell in row)]


def _is_filled(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""


def _table(rows: list[tuple[Any, ...]]) -> Any:
    import pyarrow as pa

    width = max(map(len, rows))
    header, *body = [(*row, *[None] * (width - len(row))) for row in rows]
    names = ["" if name is None else str(name) for name in header]
    columns = [_column([row[j] for row in body]) for j in range(width)]
    return pa.Table.from_arrays(columns, names=names)


def _column(cells: list[Any]) -> Any:
    import pyarrow as pa

    cells = [None if isinstance(cell, str) and cell.strip() in MISSING else cell for cell in cells]
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float, bool}:
        return pa.array([None if cell is None else float(cell) for cell in cells], "float64")
    if kinds <= {datetime.datetime, datetime.date}:
        return pa.array(cells, pa.timestamp("us"))
    return pa.array([None if cell is None else str(cell) for cell in cells], "string")
