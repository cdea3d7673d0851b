"""Files that a command writes: looked at before it reads anything, so that no file of a user is lost; and predictions.

Refused are outputs that are also inputs, two outputs in one place, names whose suffix promises another format, and
files that are not of ours, unless these are to be replaced (``--force``).
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from .._execution import files
from .._report.formatting import escape_control
from .._report.pages import REPORT_MARK
from .terminal import UsageError

__all__ = [
    "LIMITS",
    "MODEL",
    "OTHER_LIMITS",
    "REPORT",
    "Kind",
    "check",
    "check_figures",
    "predictions_beside",
    "write_predictions",
]

PREDICTIONS_MARK = {b"olsen": b"predictions"}  # among the metadata of Parquet
LIMITS = ("lower", "upper")
OTHER_LIMITS = ("lower_limit", "upper_limit")  # for a target that is called lower or upper itself
HEAD_BYTES = 1 << 16
FIGURE_COLUMNS = {"panel", "series", "kind", "x", "mean", "standard_error"}
FIGURE_KEYS = {"figure", "seed", "versions"}

Identity = tuple[int, int]  # device and number of a file


# Whether a file is one of ours, by its content: only those are replaced without being asked to


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
def _is_model(path: Path) -> bool:
    """Whether a file is a model written by ``olsen fit``, of this or another version."""
    from .. import _persistence

    return _persistence.is_model(path)


@_readable
def _is_report(path: Path) -> bool:
    """Whether a file is a report written by ``olsen fit``."""
    return REPORT_MARK.encode() in _head(path)


@_readable
def _is_figure_part(path: Path) -> bool:
    """Whether a file is a table or a manifest written by ``olsen reproduce``."""
    if path.suffix == ".json":
        return set(json.loads(_head(path, 1 << 24))) >= FIGURE_KEYS
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return set(pq.read_schema(path).names) >= FIGURE_COLUMNS
    return set(_head(path).partition(b"\n")[0].decode().strip().split(",")) >= FIGURE_COLUMNS


@_readable
def _is_predictions(path: Path, ids: Iterable[str] = ()) -> bool:
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


# What is about to be written


class Kind(NamedTuple):
    """A kind of file that is written: its name, its suffixes, and how one of ours is recognised."""

    noun: str
    suffixes: tuple[str, ...]
    is_ours: Callable[[Path], bool]


MODEL = Kind("a model", (".skops",), _is_model)
REPORT = Kind("a report", (".html", ".htm"), _is_report)


def predictions_beside(ids: Iterable[str]) -> Kind:
    """Predictions beside columns that name the rows: a file with the same ones is recognised."""
    recognise = functools.partial(_is_predictions, ids=list(dict.fromkeys(ids)))
    return Kind("predictions", (".csv", ".tsv", ".parquet"), recognise)


def check(inputs: Mapping[str, Path | None], outputs: Mapping[str, tuple[Path | None, Kind]], force: bool) -> None:
    """Raise if a file would be lost, or if one could not be written; nothing is written and no input is read.

    Parameters
    ----------
    inputs : dict
        What is read: "table", "model" -> path, if there is one.
    outputs : dict
        What is to be written: option -> path, if it was given, and kind.
    force : bool
        Whether files that are not of ours may be replaced.
    """
    written = {f"{option} {path}": path for option, (path, _) in outputs.items() if path is not None}
    for noun, path in inputs.items():
        if path is not None:
            _refuse_overlap(noun, path, written)
    for (first, one), (second, other) in combinations(written.items(), 2):
        if _is_kept(one) and files.same_place(one, other):
            raise UsageError(f"{first} and {second} are one file; give them different names.")
    for name, path in written.items():
        if files.own_descriptor(path) is None and _identity(path) in {_standard_output()} - {None}:
            raise UsageError(f"standard output and {name} are one file; give them different names.")
    for option, (path, kind) in outputs.items():
        if path is not None:
            _refuse_name(option, path, kind)
            if not force and _holds_something(path) and not kind.is_ours(path):
                raise _foreign(f"{option} {path}", kind.noun)
            files.check_writable(path)


def check_figures(folder: Path, names: Iterable[str], suffix: str, force: bool) -> None:
    """The same for the figures of a folder: table, manifest and pictures of each."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; the name of a folder is needed.")
    for name in [] if force else names:
        ours = [
            path for path in (folder / f"{name}{e}" for e in (".csv", ".parquet", ".json")) if _is_figure_part(path)
        ]
        for path in (folder / f"{name}{ending}" for ending in (suffix, ".json", ".pdf", ".png")):
            drawn = path.suffix in (".pdf", ".png") and ours  # pictures lie beside the table they show
            if _holds_something(path) and path not in ours and not drawn:
                raise _foreign(f"{path}", "part of a figure")
    for path in (folder / "any", folder / "trials" / "any"):
        files.check_writable(path)


def _refuse_overlap(noun: str, path: Path, written: Mapping[str, Path]) -> None:
    read = set(_identities(path))
    for name, output in written.items():
        real = Path(os.path.realpath(output))
        if path.is_dir() and read & set(map(_identity, (real, *real.parents))):
            raise UsageError(f"{name} belongs to the folder {path}, which is read as one table; choose another place.")
        if _identity(real) in read or (_is_kept(output) and files.same_place(output, path)):
            raise UsageError(f"{name} would replace the {noun} {path}, which is read for it; choose another name.")
    if _standard_output() in read:
        raise UsageError(f"standard output would be added to the {noun} {path}, which is read for it.")


def _refuse_name(option: str, path: Path, kind: Kind) -> None:
    for is_wrong, what in ((path.is_dir, "a folder"), (path.is_block_device, "a disk")):
        if is_wrong():
            raise UsageError(f"{option} {path} is {what}; the name of a file is needed.")
    if files.is_stream(path):
        if path.suffix == ".parquet":
            raise UsageError(f"{option} {path} is a pipe or a device; Parquet needs a file, choose .csv or .tsv.")
    elif path.suffix.lower() not in kind.suffixes:
        raise UsageError(f"{option} {path}: the name of {kind.noun} ends with {' or '.join(kind.suffixes)}.")


def _foreign(what: str, noun: str) -> UsageError:
    return UsageError(
        f"{what} is there already and is not {noun} written by olsen; choose another name, or replace it: --force."
    )


def _holds_something(path: Path) -> bool:
    return not files.is_stream(path) and path.is_file() and path.stat().st_size > 0


def _is_kept(path: Path) -> bool:
    """Whether a path is, or will be, a file on disk: what is written to pipes and devices does not stay there."""
    return not path.exists() or path.is_file()


def _identities(path: Path) -> Iterator[Identity]:
    """Identity of a file, or of a folder and all that is in it, by links too."""
    found = {_identity(path)}
    for folder, subfolders, names in os.walk(path, followlinks=True):
        subfolders[:] = [name for name in subfolders if _identity(Path(folder, name)) not in found]  # links may loop
        found.update(_identity(Path(folder, name)) for name in (*subfolders, *names))
    return (identity for identity in found if identity is not None)


def _identity(path: Path | int) -> Identity | None:
    """Of a file on disk or a folder; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return (found.st_dev, found.st_ino) if kept else None


def _standard_output() -> Identity | None:
    try:
        return _identity(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or replaced by an object that is no file
        return None


def write_predictions(path: Path | None, parts: Iterable[Mapping[str, Any]]) -> int:
    """Write columns that come in consecutive parts: Parquet, text with tabs or CSV, by the suffix of `path`.

    Without a path they go to standard output, where a terminal is not sent control characters of a name: in a file
    names are data, on a screen they are commands. Returns the number of rows.
    """
    if path is None:
        shown = ({escape_control(name): part[name] for name in part} for part in parts)
        return _write_text(sys.stdout, shown if sys.stdout.isatty() else parts)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _write_parquet(path, parts)
    with open(path, "w", encoding="utf-8", newline="") as file:
        return _write_text(file, parts, "\t" if suffix == ".tsv" else ",")


def _write_text(file: TextIO, parts: Iterable[Mapping[str, Any]], separator: str = ",") -> int:
    lines, n_rows = csv.writer(file, delimiter=separator, lineterminator="\n"), 0
    for columns in parts:
        if not n_rows:
            lines.writerow(columns)
        values = [column if isinstance(column, list) else map(repr, map(float, column)) for column in columns.values()]
        lines.writerows(zip(*values, strict=True))
        n_rows += len(next(iter(columns.values())))
    return n_rows


def _write_parquet(path: Path, parts: Iterable[Mapping[str, Any]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = (pa.table(dict(columns)) for columns in parts)
    first = next(tables).replace_schema_metadata(PREDICTIONS_MARK)
    with pq.ParquetWriter(path, first.schema) as file:
        file.write_table(first)
        n_rows = int(first.num_rows)
        for table in tables:
            file.write_table(table.cast(first.schema))
            n_rows += table.num_rows
    return n_rows
