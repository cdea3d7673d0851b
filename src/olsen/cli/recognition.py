"""Whether a file is one of ours, by its content: only those are replaced without being asked to."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .._report.pages import REPORT_MARK

__all__ = ["is_figure_part", "is_model", "is_predictions", "is_report"]

PREDICTIONS_MARK = {b"olsen": b"predictions"}  # among the metadata of Parquet
LIMITS = ("lower", "upper")
OTHER_LIMITS = ("lower_limit", "upper_limit")  # for a target that is called lower or upper itself

HEAD_BYTES = 1 << 16
MANIFEST_BYTES = 1 << 24  # those of figures have a few thousand
FULL_DIGITS = 15  # a computed number has nearly always as many, a measured one does not
FIGURE_COLUMNS = {"panel", "series", "kind", "x", "mean", "standard_error"}
FIGURE_KEYS = {"figure", "seed", "versions"}


def is_model(path: Path) -> bool:
    """Whether a file is a model written by ``olsen fit``, of this or another version."""
    from .. import _persistence

    return _holds(path, lambda: _persistence.is_model(path))


def is_report(path: Path) -> bool:
    """Whether a file is a report written by ``olsen fit``."""
    return REPORT_MARK.encode() in _head(path)


def is_predictions(path: Path, ids: Iterable[str] = ()) -> bool:
    """Whether a file holds predictions written by ``olsen predict``.

    Parquet says so itself. Text must end with one column, or three with the limits around it, of numbers as we write
    them: in the shortest form that reads back exactly, and most of them to the last digit. Columns that name the rows
    may stand before: `ids`, those that are about to be written again, or any before three that are in order.
    """
    head = _head(path)
    if head[:4] == b"PAR1":
        return _holds(path, lambda: PREDICTIONS_MARK.items() <= (_parquet_schema(path).metadata or {}).items())
    text = head.decode("utf-8", errors="replace")
    return any(_are_predictions(_rows(text, separator, len(head) == HEAD_BYTES), list(ids)) for separator in ",\t")


def is_figure_part(path: Path) -> bool:
    """Whether a file is a table or a manifest written by ``olsen reproduce``."""
    if path.suffix == ".json":
        return _holds(path, lambda: _json(path).keys() >= FIGURE_KEYS)
    if path.suffix == ".parquet":
        return _holds(path, lambda: set(_parquet_schema(path).names) >= FIGURE_COLUMNS)
    return set(_head(path).partition(b"\n")[0].decode("utf-8", errors="replace").strip().split(",")) >= FIGURE_COLUMNS


def _holds(path: Path, question: Callable[[], bool]) -> bool:
    """The answer of a question about a file, which is no if the file cannot be read as what it is asked for."""
    try:
        return bool(path.is_file() and question())
    except Exception:  # libraries raise whatever their parsing meets in files that are not their own
        return False


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def _json(path: Path) -> Any:
    if path.stat().st_size > MANIFEST_BYTES:
        raise ValueError("larger than any manifest")
    return json.loads(path.read_text(encoding="utf-8"))


def _parquet_schema(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _rows(text: str, separator: str, cut: bool) -> list[list[str]]:
    """Rows of cells; the last one is left out where the text may be cut."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error:  # a cell larger than any we write
        return []
    return rows[:-1] if cut else rows


def _are_predictions(rows: list[list[str]], ids: list[str]) -> bool:
    if len(rows) < 2:
        return False
    header, *body = rows
    limits = tuple(header[-2:]) in (LIMITS, OTHER_LIMITS) and len(header) >= 3
    written = 3 if limits else 1
    named = header[:-written]
    if (named and named != ids and not limits) or any(len(row) != len(header) for row in body):
        return False
    numbers = [row[-written:] for row in body]
    cells = [cell for row in numbers for cell in row]
    full = sum(_n_digits(cell) >= FULL_DIGITS for cell in cells)
    if not all(map(_is_exact, cells)) or full <= len(cells) / 2:
        return False
    return not limits or all(_in_order(*map(float, row)) for row in numbers)


def _in_order(value: float, lower: float, upper: float) -> bool:
    return lower <= value <= upper


def _is_exact(cell: str) -> bool:
    try:
        return repr(float(cell)) == cell
    except ValueError:
        return False


def _n_digits(cell: str) -> int:
    return len(re.sub(r"\D", "", cell.partition("e")[0]).strip("0"))
