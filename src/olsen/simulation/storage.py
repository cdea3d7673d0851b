"""Trials on disk while a study runs, tables and manifests when it is done.

Every file is written beside its place and then renamed, so a study killed at any moment leaves whole files only.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._execution import from_extra, versions
from .._execution.files import atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["TrialStore", "atomically", "describe", "digest", "read_table", "write_manifest", "write_table"]


def describe(item: DataclassInstance) -> dict[str, Any]:
    """Plain-type description of a problem or a method: its class and its fields."""
    return {"class": type(item).__name__, **asdict(item)}


def digest(description: Mapping[str, Any]) -> str:
    """Short name of a description, the same in every run."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:20]


class TrialStore:
    """The finished trials of one cell, in one file that grows.

    A trial depends on the seed, the problem, the method and its own number only, so the file serves any number of
    trials, and a run that was stopped continues with the numbers it would have had.

    Parameters
    ----------
    folder : path or None
        Where the file is; None keeps nothing.
    description : dict
        What the trials are trials of. A file with another description is not read.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, description: Mapping[str, Any]):
        self.description = json.dumps(description, sort_keys=True)
        self.path = None if folder is None else Path(folder) / f"{digest(description)}.npz"
        self.trials: dict[int, NDArray[np.float64]] = {}
        if self.path is None:
            return
        # A file that is not there, or damaged as a power failure may leave it, raises whatever NumPy and its archives
        # raise: its trials are run again.
        with suppress(Exception), np.load(self.path, allow_pickle=False) as stored:
            if str(stored["description"]) == self.description:
                self.trials = dict(zip(stored["numbers"].tolist(), stored["values"], strict=True))

    def add(self, numbers: Iterable[int], values: NDArray[np.float64]) -> None:
        """Keep the results of these trials, also on disk."""
        self.trials.update(zip(numbers, values, strict=True))
        if self.path is None:
            return
        order = sorted(self.trials)
        arrays: dict[str, Any] = {"numbers": order, "values": np.stack([self.trials[i] for i in order])}
        write = partial(np.savez, description=self.description, **arrays)
        atomically(self.path, write, durable=False)  # it can be computed again

    def missing(self, count: int) -> list[int]:
        """Trials still to be run, out of the first `count`."""
        return [i for i in range(count) if i not in self.trials]

    def values(self, count: int) -> NDArray[np.float64]:
        """Results of the first `count` trials."""
        return np.stack([self.trials[i] for i in range(count)])


def write_table(columns: dict[str, list[Any]], path: str | os.PathLike[str]) -> None:
    """Write columns as Parquet or CSV, by the suffix of `path`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from olsen.simulation import read_table, write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table({"k": [1, 10], "mean": [0.5, 0.25]}, Path(folder) / "risk.csv")
    ...     read_table(Path(folder) / "risk.csv")
    {'k': [1.0, 10.0], 'mean': [0.5, 0.25]}
    """
    path = Path(path)
    if path.suffix == ".parquet":
        pa = from_extra("pyarrow", "parquet", "Writing Parquet")
        pq = from_extra("pyarrow.parquet", "parquet", "Writing Parquet")
        atomically(path, lambda file: pq.write_table(pa.table(columns), file))
    elif path.suffix == ".csv":
        atomically(path, lambda file: _write_csv(columns, file))
    else:
        raise ValueError(f"{path.name}: tables are written as .parquet or .csv.")


def _write_csv(columns: dict[str, list[Any]], file: Path) -> None:
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def read_table(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    """Columns of a table written by :func:`write_table`; numbers come back as numbers."""
    path = Path(path)
    if path.suffix == ".parquet":
        pq = from_extra("pyarrow.parquet", "parquet", "Reading Parquet")
        columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
        return columns
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return {name: [_number(row[i]) for row in rows] for i, name in enumerate(header)}


def _number(text: str) -> float | str:
    try:
        return float(text) if text else math.nan
    except ValueError:
        return text


def write_manifest(path: str | os.PathLike[str], *, seed: int, seconds: float, **parameters: object) -> None:
    """Write how a table came about: parameters, seed, versions, seconds."""
    manifest = {**parameters, "seed": seed, "seconds": round(seconds, 3), "versions": versions()}
    text = json.dumps(manifest, indent=2, sort_keys=True, default=str) + "\n"
    atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
