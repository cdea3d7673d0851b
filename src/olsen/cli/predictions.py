"""Write predictions part by part: to a Parquet or CSV file, or as CSV to standard output."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["write_predictions"]


def write_predictions(path: Path | None, parts: Iterable[Mapping[str, NDArray[np.float64]]]) -> int:
    """Write columns that come in consecutive parts, as Parquet or CSV by the suffix of `path`.

    Without a path they go to standard output. Returns the number of rows.
    """
    if path is None:
        return _write_csv(sys.stdout, parts)
    if path.suffix == ".parquet":
        return _write_parquet(path, parts)
    with open(path, "w", encoding="utf-8", newline="") as file:
        return _write_csv(file, parts)


def _write_csv(file: TextIO, parts: Iterable[Mapping[str, NDArray[np.float64]]]) -> int:
    lines, n_rows = csv.writer(file, lineterminator="\n"), 0
    for columns in parts:
        if not n_rows:
            lines.writerow(columns)
        values = [[repr(float(v)) for v in column] for column in columns.values()]
        lines.writerows(zip(*values, strict=True))
        n_rows += len(values[0])
    return n_rows


def _write_parquet(path: Path, parts: Iterable[Mapping[str, NDArray[np.float64]]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = iter(parts)
    first = pa.table(dict(next(parts)))
    with pq.ParquetWriter(path, first.schema) as file:
        file.write_table(first)
        n_rows = int(first.num_rows)
        for columns in parts:
            file.write_table(pa.table(dict(columns)))
            n_rows += len(next(iter(columns.values())))
    return n_rows
