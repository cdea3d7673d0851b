"""Files that a command writes: looked at before it reads anything, so that no file of a user is lost; and predictions.

Refused are outputs that are also inputs, two outputs in one place, names whose suffix promises another format, and
files that are there already, unless these are to be replaced (``--force``).
"""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TextIO

from .._execution import files
from .._report.formatting import escape_control
from .terminal import UsageError

Kind = Literal["a model", "a report", "predictions"]
SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "a model": (".skops",), "a report": (".html", ".htm"), "predictions": (".csv", ".tsv", ".parquet")
}  # fmt: skip

FORMULA_STARTS = tuple("=+-@\t\r\n")  # of cells that spreadsheet programs run, as OWASP lists them
HARMLESS = re.compile(r"-|[+-]?[\d.,][\d., \u00a0\u202f']*(?:[eE][+-]?\d+)?%?")  # numbers in any notation, and a dash


def check(inputs: Mapping[str, Path | None], outputs: Mapping[str, tuple[Path | None, Kind]], force: bool) -> None:
    """Raise if a file would be lost, or if one could not be written; nothing is written and no input is read.

    Parameters
    ----------
    inputs : dict
        What is read: "table", "model" -> path, if there is one.
    outputs : dict
        What is to be written: option -> path, if it was given, and kind.
    force : bool
        Whether files that are there already may be replaced.
    """
    given = {f"{option} {path}": (path, kind) for option, (path, kind) in outputs.items() if path is not None}
    for name, (path, _) in given.items():
        for noun, read in inputs.items():
            if read is not None and (_same(path, read) or _is_inside(path, read)):
                raise UsageError(f"{name} would change the {noun} {read}, which is read; choose another place.")
    for (first, (one, _)), (second, (other, _)) in combinations(given.items(), 2):
        if _same(one, other):
            raise UsageError(f"{first} and {second} are one file; give them different names.")
    for name, (path, kind) in given.items():
        if path.is_dir() or path.is_block_device():
            raise UsageError(f"{name} is a directory or device; give a file name.")
        if files.is_stream(path) and path.suffix == ".parquet":
            raise UsageError(f"{name} is a pipe or a device; Parquet needs a file, choose .csv or .tsv.")
        if not files.is_stream(path) and path.suffix.lower() not in SUFFIXES[kind]:
            raise UsageError(f"{name}: the name of {kind} ends with {' or '.join(SUFFIXES[kind])}.")
        _refuse_existing(path, name, force)
        files.check_writable(path)


def check_figures(folder: Path, names: Iterable[str], force: bool) -> None:
    """The same for the figures of a folder: table, manifest and pictures of each."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; the name of a folder is needed.")
    for path in (folder / f"{name}{ending}" for name in names for ending in (".csv", ".json", ".pdf", ".png")):
        _refuse_existing(path, f"{path}", force)
    for path in (folder / "any", folder / "trials" / "any"):
        files.check_writable(path)


def _refuse_existing(path: Path, name: str, force: bool) -> None:
    if not force and path.is_file() and path.stat().st_size:
        raise UsageError(f"{name} already exists; choose another name or use --force.")


def _same(one: Path, other: Path) -> bool:
    """Whether two names are those of one file, through links of both kinds; pipes and devices are none."""
    if files.is_stream(one):
        return False
    there = one.exists() and other.exists()
    return os.path.samefile(one, other) if there else os.path.realpath(one) == os.path.realpath(other)


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents


# Predictions


def write_predictions(path: Path | None, parts: Iterable[Mapping[str, Any]], escape: bool = False) -> int:
    """Write columns that come in consecutive parts: Parquet, text with tabs or CSV, by the suffix of `path`.

    Without a path they go to standard output, where a terminal is not sent control characters of a name: in a file
    names are data, on a screen they are commands. With `escape`, names and cells of text that a spreadsheet program
    would run as formulas begin with an apostrophe. Returns the number of rows.
    """
    if path is None:
        shown = ({escape_control(name): part[name] for name in part} for part in parts)
        return _write_text(sys.stdout, shown if sys.stdout.isatty() else parts, escape=escape)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _write_parquet(path, parts)
    with open(path, "w", encoding="utf-8", newline="") as file:
        return _write_text(file, parts, "\t" if suffix == ".tsv" else ",", escape)


def is_formula(text: str) -> bool:
    """Whether spreadsheet programs run a cell of this text, which is no number.

    >>> [is_formula(text) for text in ("=1+1", "-1.5", "-A1", "@SUM(A1)", "a=1")]
    [True, False, True, True, False]
    """
    return text.startswith(FORMULA_STARTS) and HARMLESS.fullmatch(text) is None


def _escaped(text: str) -> str:
    return f"'{text}" if is_formula(text) else text


def _write_text(file: TextIO, parts: Iterable[Mapping[str, Any]], separator: str = ",", escape: bool = False) -> int:
    lines, n_rows = csv.writer(file, delimiter=separator, lineterminator="\n"), 0
    as_cell = _escaped if escape else str
    for columns in parts:
        if not n_rows:
            lines.writerow(map(as_cell, columns))
        values = [
            map(as_cell, column) if isinstance(column, list) else map(repr, map(float, column))
            for column in columns.values()
        ]
        lines.writerows(zip(*values, strict=True))
        n_rows += len(next(iter(columns.values())))
    return n_rows


def _write_parquet(path: Path, parts: Iterable[Mapping[str, Any]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = (pa.table(dict(columns)) for columns in parts)
    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as file:
        file.write_table(first)
        n_rows = int(first.num_rows)
        for table in tables:
            file.write_table(table.cast(first.schema))
            n_rows += table.num_rows
    return n_rows
