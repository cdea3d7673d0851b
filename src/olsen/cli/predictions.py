"""Predictions with their limits, written part by part: to a Parquet or text file, or as CSV to standard output."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from .recognition import LIMITS, OTHER_LIMITS, PREDICTIONS_MARK
from .shown_text import visible

__all__ = ["collected", "with_limits", "write_predictions"]

Array = NDArray[np.float64]


def with_limits(target: str, predicted: Iterable[Array]) -> Iterator[dict[str, Array]]:
    """Columns of consecutive parts: the predictions, under the name of the target, and the limits of the intervals.

    Parts have one column, or three with the limits. A target that is called like one of the limits
    keeps its name, and the limits are called lower_limit and upper_limit.
    """
    lower, upper = OTHER_LIMITS if target in LIMITS else LIMITS
    for values in predicted:
        names = (target, lower, upper)[: values.shape[1]]
        yield dict(zip(names, values.T, strict=True))


def collected(parts: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Columns that came in parts, each as a whole."""
    kept = list(parts)
    if len(kept) == 1:
        return dict(kept[0])
    return {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}


def write_predictions(path: Path | None, parts: Iterable[Mapping[str, Array]]) -> int:
    """Write columns that come in consecutive parts: Parquet, text with tabs or CSV, by the suffix of `path`.

    Without a path they go to standard output, where a terminal is not sent control characters of a name: in a file
    names are data, on a screen they are commands. Returns the number of rows.
    """
    if path is None:
        shown = ({visible(name): part[name] for name in part} for part in parts)
        return _write_text(sys.stdout, shown if sys.stdout.isatty() else parts)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _write_parquet(path, parts)
    with open(path, "w", encoding="utf-8", newline="") as file:
        return _write_text(file, parts, "\t" if suffix == ".tsv" else ",")


def _write_text(file: TextIO, parts: Iterable[Mapping[str, Array]], separator: str = ",") -> int:
    lines, n_rows = csv.writer(file, delimiter=separator, lineterminator="\n"), 0
    for columns in parts:
        if not n_rows:
            lines.writerow(columns)
        values = [
            column if isinstance(column, list) else [repr(float(v)) for v in column] for column in columns.values()
        ]
        lines.writerows(zip(*values, strict=True))
        n_rows += len(values[0])
    return n_rows


def _write_parquet(path: Path, parts: Iterable[Mapping[str, Array]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = iter(parts)
    first = pa.table(dict(next(parts))).replace_schema_metadata(PREDICTIONS_MARK)
    with pq.ParquetWriter(path, first.schema) as file:
        file.write_table(first)
        n_rows = int(first.num_rows)
        for columns in parts:
            file.write_table(pa.table(dict(columns)).cast(first.schema))
            n_rows += len(next(iter(columns.values())))
    return n_rows
