"""Whether a file is one of ours, by its content: only those are replaced without being asked to."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["is_figure_part", "is_model", "is_predictions", "is_report"]

MODEL_MARK = "olsen model "
REPORT_MARK = '<meta name="generator" content="olsen">'
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
    return _holds(path, lambda: MODEL_MARK.encode() in _model_schema(path))


def is_report(path: Path) -> bool:
    """Whether a file is a report written by ``olsen fit``."""
    return REPORT_MARK.encode() in _head(path)


def is_predictions(path: Path) -> bool:
    """Whether a file holds predictions written by ``olsen predict``.

    Parquet says so itself. Text must have one column, or three that end with the limits, of numbers as we write them:
    in the shortest form that reads back exactly, and most of them to the last digit.
    """
    head = _head(path)
    if head[:4] == b"PAR1":
        return _holds(path, lambda: PREDICTIONS_MARK.items() <= (_parquet_schema(path).metadata or {}).items())
    lines = head.decode("utf-8", errors="replace").splitlines()
    lines = lines[:-1] if len(head) == HEAD_BYTES else lines  # the last one may be cut
    return any(_are_predictions(list(csv.reader(lines, delimiter=separator))) for separator in ",\t")


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


def _model_schema(path: Path) -> bytes:
    from . import archives

    with open(path, "rb") as file, archives.opened(file) as archive:
        return archive.schema()


def _parquet_schema(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _are_predictions(rows: list[list[str]]) -> bool:
    if len(rows) < 2:
        return False
    header, *body = rows
    if len(header) != 1 and (len(header) != 3 or tuple(header[1:]) not in (LIMITS, OTHER_LIMITS)):
        return False
    cells = [cell for row in body for cell in row]
    full = sum(_n_digits(cell) >= FULL_DIGITS for cell in cells)
    return all(len(row) == len(header) for row in body) and all(map(_is_exact, cells)) and full > len(cells) / 2


def _is_exact(cell: str) -> bool:
    try:
        return repr(float(cell)) == cell
    except ValueError:
        return False


def _n_digits(cell: str) -> int:
    return len(re.sub(r"\D", "", cell.partition("e")[0]).strip("0"))
