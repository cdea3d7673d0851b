"""Whether a file is one of ours, by its content: only those are replaced without being asked to."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from .._report.pages import REPORT_MARK

__all__ = ["is_figure_part", "is_model", "is_predictions", "is_report"]

PREDICTIONS_MARK = {b"olsen": b"predictions"}  # among the metadata of Parquet
LIMITS = ("lower", "upper")
OTHER_LIMITS = ("lower_limit", "upper_limit")  # for a target that is called lower or upper itself
HEAD_BYTES = 1 << 16
FIGURE_COLUMNS = {"panel", "series", "kind", "x", "mean", "standard_error"}
FIGURE_KEYS = {"figure", "seed", "versions"}


def _readable(question: Callable[..., bool]) -> Callable[..., bool]:
    """The answer of a question about a file is no if the file cannot be read as what it is asked for."""

    @functools.wraps(question)
    def answer(path: Path, *given: object, **named: object) -> bool:
        try:
            return bool(path.is_file() and question(path, *given, **named))
        except Exception:  # libraries raise whatever their parsing meets in files that are not their own
            return False

    return answer


@_readable
def is_model(path: Path) -> bool:
    """Whether a file is a model written by ``olsen fit``, of this or another version."""
    from .. import _persistence

    return _persistence.is_model(path)


@_readable
def is_report(path: Path) -> bool:
    """Whether a file is a report written by ``olsen fit``."""
    return REPORT_MARK.encode() in _head(path)


@_readable
def is_figure_part(path: Path) -> bool:
    """Whether a file is a table or a manifest written by ``olsen reproduce``."""
    if path.suffix == ".json":
        return set(json.loads(_head(path, 1 << 24))) >= FIGURE_KEYS
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return set(pq.read_schema(path).names) >= FIGURE_COLUMNS
    return set(_head(path).partition(b"\n")[0].decode().strip().split(",")) >= FIGURE_COLUMNS


@_readable
def is_predictions(path: Path, ids: Iterable[str] = ()) -> bool:
    """Whether a file holds predictions written by ``olsen predict``.

    Parquet says so itself. Text must end with one column, or three with the limits around it, of numbers as we write
    them: in the shortest form that reads back exactly, and most of them to the last digit. Columns that name the rows
    may stand before: `ids`, those that are about to be written again, or any before three that are in order.
    """
    head = _head(path)
    if head[:4] == b"PAR1":
        import pyarrow.parquet as pq

        return bool(PREDICTIONS_MARK.items() <= pq.read_schema(path).metadata.items())
    text = head.decode("utf-8", errors="replace")
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    header, *body = rows[:-1] if len(head) == HEAD_BYTES else rows  # the last one may be cut
    limits = len(header) >= 3 and tuple(header[-2:]) in (LIMITS, OTHER_LIMITS)
    written = 3 if limits else 1
    if not body or any(len(row) != len(header) for row in body) or not (limits or header[:-1] in ([], list(ids))):
        return False
    cells = [cell for row in body for cell in row[-written:]]
    ordered = all(lower <= value <= upper for value, lower, upper in (map(float, row[-3:]) for row in body if limits))
    # a computed number has nearly always 15 digits, a measured one does not
    full = sum(len(re.sub(r"\D", "", cell.partition("e")[0]).strip("0")) >= 15 for cell in cells)
    return ordered and all(repr(float(cell)) == cell for cell in cells) and full > len(cells) / 2


def _head(path: Path, n_bytes: int = HEAD_BYTES) -> bytes:
    with open(path, "rb") as file:
        return file.read(n_bytes)
