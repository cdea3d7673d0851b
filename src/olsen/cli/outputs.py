"""What a command is about to write, looked at before it reads anything: no file of a user is lost to a slip.

Refused are outputs that are also inputs, two outputs in one place, names whose suffix promises another format, and
files that are not of ours, unless these are to be replaced (``--force``).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from .._execution import files
from .recognition import is_figure_part, is_model, is_predictions, is_report
from .terminal import UsageError

__all__ = ["MODEL", "PAGE", "PREDICTIONS", "REPORT", "Kind", "Output", "check", "check_figures", "predictions_of"]

Identity = tuple[int, int]  # device and number of a file


class Kind(NamedTuple):
    """A kind of file that is written: its name, its suffixes, and how one of ours is recognised."""

    noun: str
    written_as: str
    suffixes: tuple[str, ...]
    is_ours: Callable[[Path], bool]


MODEL = Kind("a model", "a model is written as .skops", (".skops",), is_model)
REPORT = Kind("a report", "a report is written as .html or .htm", (".html", ".htm"), is_report)
PAGE = Kind("a page", "a page is written as .html or .htm", (".html", ".htm"), is_report)
PREDICTIONS = Kind(
    "predictions", "predictions are written as .csv, .tsv or .parquet", (".csv", ".tsv", ".parquet"), is_predictions
)


def predictions_of(ids: Iterable[str]) -> Kind:
    """Predictions beside columns that name the rows: a file with the same ones is recognised."""
    return PREDICTIONS._replace(is_ours=partial(is_predictions, ids=list(dict.fromkeys(ids))))


class Output(NamedTuple):
    """A file to be written, and the option that says so."""

    option: str
    path: Path
    kind: Kind

    def __str__(self) -> str:
        return f"{self.option} {self.path}"


def check(inputs: Mapping[str, Path | None], outputs: Iterable[Output], force: bool) -> None:
    """Raise if a file would be lost, or if one could not be written; nothing is written and no input is read.

    Parameters
    ----------
    inputs : dict
        What is read: "table", "model" -> path, if there is one.
    outputs : iterable of Output
        What is to be written.
    force : bool
        Whether files that are not of ours may be replaced.
    """
    outputs = list(outputs)
    for noun, path in inputs.items():
        if path is not None:
            _refuse_overlap(noun, path, outputs)
    for first, second in combinations(outputs, 2):
        if _is_kept(first.path) and files.same_place(first.path, second.path):
            raise UsageError(f"{first} and {second} are one file; give them different names.")
    for output in outputs:
        _refuse_standard_output(output)
        _refuse_name(output)
        if not force:
            _refuse_foreign(output)
        files.check_writable(output.path)


def check_figures(folder: Path, names: Iterable[str], suffix: str, force: bool) -> None:
    """The same for the figures of a folder: table, manifest and pictures of each."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is a file; the name of a folder is needed.")
    for name in [] if force else names:
        written = [folder / f"{name}{ending}" for ending in (suffix, ".json", ".pdf", ".png")]
        ours = [path for path in (folder / f"{name}{e}" for e in (".csv", ".parquet", ".json")) if is_figure_part(path)]
        for path in written:
            drawn = path.suffix in (".pdf", ".png") and ours  # pictures lie beside the table they show
            if _holds_something(path) and path not in ours and not drawn:
                raise UsageError(_foreign(f"{path}", "part of a figure"))
    for path in (folder / "any", folder / "trials" / "any"):
        files.check_writable(path)


def _refuse_overlap(noun: str, path: Path, outputs: Iterable[Output]) -> None:
    read = _identities(path)
    for output in outputs:
        real = Path(os.path.realpath(output.path))
        if path.is_dir() and {_identity(place) for place in (real, *real.parents)} & read:
            raise UsageError(
                f"{output} belongs to the folder {path}, which is read as one table; choose a place outside it."
            )
        if _identity(real) in read or (_is_kept(output.path) and files.same_place(output.path, path)):
            raise UsageError(_overlap(str(output), noun, path))
    if _standard_output() in read:
        raise UsageError(_overlap("standard output", noun, path))


def _overlap(output: str, noun: str, path: Path) -> str:
    return f"{output} would replace the {noun} {path}, which is read for it; choose another name."


def _refuse_standard_output(output: Output) -> None:
    shown = None if files.own_descriptor(output.path) is not None else _standard_output()
    if shown is not None and shown == _identity(output.path):
        raise UsageError(f"standard output and {output} are one file; give them different names.")


def _refuse_name(output: Output) -> None:
    path, kind = output.path, output.kind
    if path.is_dir():
        raise UsageError(f"{output} is a folder; the name of a file is needed.")
    if path.is_block_device():
        raise UsageError(f"{output} is a disk; the name of a file is needed.")
    if files.is_stream(path):
        if path.suffix == ".parquet":
            raise UsageError(f"{output} is a pipe or a device; Parquet needs a file, choose .csv or .tsv.")
    elif path.suffix.lower() not in kind.suffixes:
        example = path.with_suffix(kind.suffixes[0])
        raise UsageError(f"{output}: {kind.written_as}; choose such a name, as in {output.option} {example}")


def _refuse_foreign(output: Output) -> None:
    if _holds_something(output.path) and not output.kind.is_ours(output.path):
        raise UsageError(_foreign(str(output), output.kind.noun))


def _foreign(what: str, noun: str) -> str:
    return f"{what} is there already and is not {noun} written by olsen; choose another name, or replace it: --force."


def _holds_something(path: Path) -> bool:
    return not files.is_stream(path) and path.is_file() and path.stat().st_size > 0


def _is_kept(path: Path) -> bool:
    """Whether a path is, or will be, a file on disk: what is written to pipes and devices does not stay there."""
    return not path.exists() or path.is_file()


def _identities(path: Path) -> set[Identity | None]:
    """Identity of a file, or of a folder and all that is in it, by links too."""
    found = {_identity(path)}
    for folder, subfolders, names in os.walk(path, followlinks=True):
        subfolders[:] = [name for name in subfolders if _identity(Path(folder, name)) not in found]  # links may loop
        found.update(_identity(Path(folder, name)) for name in (*subfolders, *names))
    return found - {None}


def _identity(path: Path) -> Identity | None:
    """Of a file on disk or a folder; None if there is none."""
    try:
        return _identity_of(os.stat(path))
    except OSError:
        return None


def _standard_output() -> Identity | None:
    try:
        return _identity_of(os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError, AttributeError):  # closed, or replaced by an object that is no file
        return None


def _identity_of(found: os.stat_result) -> Identity | None:
    kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return (found.st_dev, found.st_ino) if kept else None
