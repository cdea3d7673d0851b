"""Check the output files of a command before any input is read, so that no file of a user is lost;
write predictions.

Refused are outputs that are also inputs, two outputs with the same path, names with the suffix of
another format, and existing files, unless ``--force`` is given.
"""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TextIO

from .._execution import files
from .._report.formatting import counted, escape_control, quoted
from .terminal import UsageError

Kind = Literal["a model", "a report", "predictions"]
SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "a model": (".skops",),
    "a report": (".html", ".htm"),
    "predictions": (".csv", ".tsv", ".parquet"),
}

FORMULA_STARTS = tuple("=+-@\t\r\n")  # of cells that spreadsheet programs run, as OWASP lists them
HARMLESS = re.compile(
    r"-|[+-]?[\d.,][\d., \u00a0\u202f']*(?:[eE][+-]?\d+)?%?"
)  # numbers in any notation, and a dash


def check(
    inputs: Mapping[str, Path | None], outputs: Mapping[str, tuple[Path | None, Kind]], force: bool
) -> None:
    """Raise if a file would be lost, or could not be written; nothing is written and no input is
    read.

    Parameters
    ----------
    inputs : dict
        Inputs: "table" or "model" -> path, or None.
    outputs : dict
        Outputs: option -> (path or None, kind).
    force : bool
        Whether existing files may be replaced.
    """
    requested = [
        (f"{option} {path}", path, kind) for option, (path, kind) in outputs.items() if path
    ]
    used = {noun: path for noun, path in inputs.items() if path is not None}
    for i, (name, path, kind) in enumerate(requested):
        for noun, input_path in used.items():
            if _is_same_file(path, input_path) or _is_inside(path, input_path):
                raise UsageError(
                    f"{name} would change the {noun} {input_path}, which is read; choose another"
                    " place."
                )
        for other_name, other_path, _ in requested[:i]:
            if _is_same_file(path, other_path):
                raise UsageError(
                    f"{other_name} and {name} are one file; give them different names."
                )
        _check_output(name, path, kind)
        try:
            files.refuse_missing_folder(path, name)
        except FileNotFoundError as error:
            raise UsageError(str(error)) from None
        _refuse_existing(path, name, force)
        files.check_writable(path)


def _check_output(name: str, path: Path, kind: Kind) -> None:
    """Raise for a path that cannot hold an output of its kind."""
    if path.is_dir() or path.is_block_device():
        raise UsageError(f"{name} is a directory or device; give a file name.")
    if files.is_stream(path):
        if path.suffix == ".parquet":
            raise UsageError(
                f"{name} is a pipe or a device; Parquet needs a file, choose .csv or .tsv."
            )
    elif path.suffix.lower() not in SUFFIXES[kind]:
        raise UsageError(f"{name}: the name of {kind} ends with {' or '.join(SUFFIXES[kind])}.")


def check_figures(folder: Path, names: Iterable[str], force: bool) -> None:
    """Raise if a file of a figure (table, manifest, picture, caption) exists in the folder, or
    could not be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; the name of a folder is needed.")
    endings = (".csv", ".json", ".pdf", ".png", ".md", ".tex")
    for path in (folder / f"{name}{ending}" for name in names for ending in endings):
        _refuse_existing(path, f"{path}", force)
    for path in (folder / "any", folder / "trials" / "any"):
        files.check_writable(path)


def _refuse_existing(path: Path, name: str, force: bool) -> None:
    if not force and path.is_file() and path.stat().st_size:
        raise UsageError(f"{name} already exists; choose another name or use --force.")


def _is_same_file(path: Path, second_path: Path) -> bool:
    """Whether two paths are the same file, through hard and symbolic links; pipes and devices never
    are.
    """
    if files.is_stream(path):
        return False
    if path.exists() and second_path.exists():
        return os.path.samefile(path, second_path)
    return os.path.realpath(path) == os.path.realpath(second_path)


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents


# Predictions


def write_predictions(
    path: Path | None,
    parts: Iterable[Mapping[str, Any]],
    *,
    escape: bool = False,
    decimals: int | None = None,
) -> int:
    """Write columns that come in consecutive parts: Parquet, text with tabs or CSV, by the suffix
    of `path`.

    Without a path, predictions go to standard output. Control characters in names are data in a
    file but commands on a screen, so names are escaped on a terminal. With `escape`, names and
    cells of text that a spreadsheet program would run as formulas begin with an apostrophe. Numbers
    in text have `decimals` decimals, or all digits; those in Parquet are not rounded. Returns the
    number of rows.
    """
    if path is None:
        escaped_parts = ({escape_control(name): part[name] for name in part} for part in parts)
        return _write_text(
            sys.stdout,
            escaped_parts if sys.stdout.isatty() else parts,
            escape=escape,
            decimals=decimals,
        )
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _write_parquet(path, parts)
    with open(path, "w", encoding="utf-8", newline="") as file:
        separator = "\t" if suffix == ".tsv" else ","
        return _write_text(file, parts, separator=separator, escape=escape, decimals=decimals)


def is_formula(text: str) -> bool:
    """Whether spreadsheet programs run a cell of this text, which is no number.

    >>> [is_formula(text) for text in ("=1+1", "-1.5", "-A1", "@SUM(A1)", "a=1")]
    [True, False, True, True, False]
    """
    return text.startswith(FORMULA_STARTS) and HARMLESS.fullmatch(text) is None


def formula_note(columns: Mapping[str, list[str]]) -> list[str]:
    """Note for the user about names and cells that spreadsheet programs may run, if there are any."""
    strings = [*columns, *chain.from_iterable(columns.values())]
    formulas = [text for text in strings if is_formula(text)]
    if not formulas:
        return []
    return [
        f"spreadsheet programs may run {counted(len(formulas), 'string')} of the predictions as"
        f" formulas, the first {quoted(formulas[0])}; to open the predictions in such a program,"
        " use --escape-formulas."
    ]


def _escaped(text: str) -> str:
    return f"'{text}" if is_formula(text) else text


def _digits(value: float, decimals: int | None) -> str:
    """Write a number with so many decimals, or with all its digits if it is very large."""
    if decimals is None or not abs(value) < 1e15:
        return repr(float(value))
    return f"{round(float(value), decimals) + 0.0:.{decimals}f}"  # + 0.0: zero has no sign


def _write_text(
    file: TextIO,
    parts: Iterable[Mapping[str, Any]],
    *,
    separator: str = ",",
    escape: bool,
    decimals: int | None,
) -> int:
    lines = csv.writer(file, delimiter=separator, lineterminator="\n")
    n_rows = 0
    as_cell: Callable[[Any], str] = (lambda cell: _escaped(str(cell))) if escape else str
    for columns in parts:
        if not n_rows:
            lines.writerow(map(as_cell, columns))
        values = [
            map(as_cell, column)
            if isinstance(column, list)
            else [_digits(v, decimals) for v in column]
            for column in columns.values()
        ]
        lines.writerows(zip(*values, strict=True))
        n_rows += len(next(iter(columns.values())))
    return n_rows


def _write_parquet(path: Path, parts: Iterable[Mapping[str, Any]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    n_rows = 0
    with ExitStack() as stack:
        for columns in parts:
            table = pa.table(dict(columns))
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema))
            writer.write_table(table.cast(writer.schema))
            n_rows += table.num_rows
    return n_rows
