"""Files that a command writes: looked at before it reads anything, so that no file of a user is lost; and predictions.

Refused are outputs that are also inputs, two outputs in one place, names whose suffix promises another format, and
files that are not of ours, unless these are to be replaced (``--force``).
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TextIO

from .._execution import files
from .._report.formatting import escape_control
from .._report.pages import REPORT_MARK
from .terminal import UsageError

__all__ = ["LIMITS", "OTHER_LIMITS", "Kind", "check", "check_figures", "write_predictions"]

PREDICTIONS_MARK = {b"olsen": b"predictions"}  # among the metadata of Parquet
LIMITS = ("lower", "upper")
OTHER_LIMITS = ("lower_limit", "upper_limit")  # for a target that is called lower or upper itself
HEAD_BYTES = 1 << 16
FIGURE_COLUMNS = {"panel", "series", "kind", "x", "mean", "standard_error"}
FIGURE_KEYS = {"figure", "seed", "versions"}

Kind = Literal["a model", "a report", "predictions"]
SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "a model": (".skops",), "a report": (".html", ".htm"), "predictions": (".csv", ".tsv", ".parquet")
}  # fmt: skip
Identity = tuple[int, int] | str | None


def check(
    inputs: Mapping[str, Path | None],
    outputs: Mapping[str, tuple[Path | None, Kind]],
    force: bool,
    ids: Iterable[str] = (),
) -> None:
    """Raise if a file would be lost, or if one could not be written; nothing is written and no input is read.

    Parameters
    ----------
    inputs : dict
        What is read: "table", "model" -> path, if there is one.
    outputs : dict
        What is to be written: option -> path, if it was given, and kind.
    force : bool
        Whether files that are not of ours may be replaced.
    ids : iterable of str
        Columns that are written beside predictions.
    """
    written = {f"{option} {path}": path for option, (path, _) in outputs.items() if path is not None}
    places = {name: _identity(path) for name, path in written.items()} | {"standard output": _standard_output()}
    for noun, read in inputs.items():
        held = set() if read is None else _identities(read)
        for name, place in places.items():
            folders = Path(os.path.realpath(written[name])).parents if name in written else ()
            if {place, *map(_identity, folders)} & held:
                raise UsageError(f"{name} would change the {noun} {read}, which is read; choose another place.")
    for (first, one), (second, other) in combinations(places.items(), 2):
        if one is not None and one == other:
            raise UsageError(f"{first} and {second} are one file; give them different names.")
    for option, (path, kind) in outputs.items():
        if path is not None:
            _refuse_name(option, path, kind)
            if not force and _is_foreign(path, kind, ids):
                raise _refused(f"{option} {path}", kind)
            files.check_writable(path)


def check_figures(folder: Path, names: Iterable[str], suffix: str, force: bool) -> None:
    """The same for the figures of a folder: table, manifest and pictures of each."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; the name of a folder is needed.")
    for name in [] if force else names:
        parts = [folder / f"{name}{ending}" for ending in (".csv", ".parquet", ".json")]
        filled = [path for path in parts if path.is_file() and path.stat().st_size]
        ours = any(not _is_foreign(path, "part of a figure") for path in filled)
        for path in (folder / f"{name}{ending}" for ending in (suffix, ".json", ".pdf", ".png")):
            drawn = path.suffix in (".pdf", ".png") and ours  # pictures lie beside the table they show
            if not drawn and _is_foreign(path, "part of a figure"):
                raise _refused(f"{path}", "part of a figure")
    for path in (folder / "any", folder / "trials" / "any"):
        files.check_writable(path)


def _refuse_name(option: str, path: Path, kind: Kind) -> None:
    for is_wrong, what in ((path.is_dir, "a folder"), (path.is_block_device, "a disk")):
        if is_wrong():
            raise UsageError(f"{option} {path} is {what}; the name of a file is needed.")
    if files.is_stream(path):
        if path.suffix == ".parquet":
            raise UsageError(f"{option} {path} is a pipe or a device; Parquet needs a file, choose .csv or .tsv.")
    elif path.suffix.lower() not in SUFFIXES[kind]:
        raise UsageError(f"{option} {path}: the name of {kind} ends with {' or '.join(SUFFIXES[kind])}.")


def _refused(what: str, kind: str) -> UsageError:
    return UsageError(
        f"{what} is there already and is not {kind} written by olsen; choose another name, or replace it: --force."
    )


# Where files are: by whatever name, through links of both kinds


def _identity(path: Path) -> Identity:
    """Device and number of a file or folder, the path of one that is not there; None for pipes and devices."""
    if files.is_stream(path):
        return None
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def _identities(path: Path) -> set[Identity]:
    """Of a file, or of a folder and all that is in it, by links too."""
    found = {_identity(path)}
    for folder, subfolders, names in os.walk(path, followlinks=True):
        subfolders[:] = [name for name in subfolders if _identity(Path(folder, name)) not in found]  # links may loop
        found.update(_identity(Path(folder, name)) for name in (*subfolders, *names))
    return found - {None}


def _standard_output() -> Identity:
    try:
        found = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or replaced by an object that is no file
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


# Whether a file is one of ours, by its content: only those are replaced without being asked to


def _is_foreign(path: Path, kind: str, ids: Iterable[str] = ()) -> bool:
    """Whether a file holds something that is not of this kind and of ours."""
    if files.is_stream(path) or not path.is_file() or not path.stat().st_size:
        return False
    try:
        if kind == "a model":
            from .. import _persistence

            return not _persistence.is_model(path)
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
        if kind == "a report":
            return REPORT_MARK.encode() not in head
        if head[:4] == b"PAR1":
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
            figure = set(schema.names) >= FIGURE_COLUMNS
            return not (PREDICTIONS_MARK.items() <= schema.metadata.items() if kind == "predictions" else figure)
        if kind == "predictions":
            return not _is_predictions(head, list(dict.fromkeys(ids)))
        if path.suffix == ".json":
            return not set(json.loads(path.read_text(encoding="utf-8"))) >= FIGURE_KEYS
        return not set(head.partition(b"\n")[0].decode().strip().split(",")) >= FIGURE_COLUMNS
    except Exception:  # libraries raise whatever their parsing meets in files that are not their own
        return True


def _is_predictions(head: bytes, ids: list[str]) -> bool:
    """Whether a text holds predictions written by ``olsen predict``.

    It must end with one column, or three with the limits around it, of numbers as we write them: in the shortest form
    that reads back exactly, and most of them to the last digit. Columns that name the rows may stand before: `ids`,
    those that are about to be written again, or any before three that are in order.
    """
    text = head.decode("utf-8", errors="replace")
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    header, *body = rows[:-1] if len(head) == HEAD_BYTES else rows  # the last one may be cut
    limits = len(header) >= 3 and tuple(header[-2:]) in (LIMITS, OTHER_LIMITS)
    if not body or any(len(row) != len(header) for row in body) or not (limits or header[:-1] in ([], ids)):
        return False
    cells = [cell for row in body for cell in row[-3 if limits else -1 :]]
    ordered = all(lower <= value <= upper for value, lower, upper in (map(float, row[-3:]) for row in body if limits))
    # a computed number has nearly always 15 digits, a measured one does not
    full = sum(len(re.sub(r"\D", "", cell.partition("e")[0]).strip("0")) >= 15 for cell in cells)
    return ordered and all(repr(float(cell)) == cell for cell in cells) and full > len(cells) / 2


# Predictions


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
