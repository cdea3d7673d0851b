"""Predictions with their limits, written part by part: to a Parquet or text file, or as CSV to standard output."""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from .._persistence import damaged_model
from .._report.formatting import escape_control
from .recognition import LIMITS, OTHER_LIMITS, PREDICTIONS_MARK
from .table_errors import TableError
from .terminal import Tell

if TYPE_CHECKING:
    from .._persistence import SavedModel
    from .encoding import Encoding

__all__ = ["beside", "collected", "predicted_parts", "with_limits", "write_predictions"]

Array = NDArray[np.float64]
ROWS_WRITTEN = 1 << 16  # predictions that are written between two looks at the clock


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
        shown = ({escape_control(name): part[name] for name in part} for part in parts)
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


def predicted_parts(
    saved: SavedModel, encoding: Encoding, name: str, table: Any, coverage: float | None, tell: Tell | None
) -> Iterator[Array]:
    """Predictions of consecutive rows of a table, in memory or in blocks, by a model of this name."""
    from . import large_tables

    def predict(part: Any, first_row: int = 0) -> Array:
        with damaged_model(name, TableError):
            return _predicted(saved, encoding.features(part, first_row), first_row, coverage)

    if isinstance(table, large_tables.ParquetTable):
        yield from large_tables.predictions(table, encoding, predict, tell)
        return
    if tell:
        tell("predicting", 0, table.num_rows)
    predicted = predict(table)
    for first in range(0, len(predicted), ROWS_WRITTEN):  # in parts, so that a long file is seen to grow
        if tell:
            tell("writing", first, len(predicted))
        yield predicted[first : first + ROWS_WRITTEN]
    if tell:
        tell("writing", len(predicted), len(predicted))


def _predicted(saved: SavedModel, X: Array, first_row: int, coverage: float | None) -> Array:
    """Predictions, (rows, 1), with a `coverage` also the limits of intervals, (rows, 3).

    These are those of ``predict_interval`` where the file holds what they need, otherwise of one width.
    """
    with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found = np.ravel(saved.ensemble.predict(X)).astype(float)
        if not np.isfinite(found).all():
            row = first_row + int(np.argmin(np.isfinite(found))) + 1
            raise TableError(
                f"the prediction of row {row} is not finite: its cells or the model's coefficients are too large."
            )
        if coverage is None or not len(found):
            return np.tile(found[:, None], 1 if coverage is None else 3)
        if saved.has_intervals:
            return np.column_stack([found, saved.ensemble.predict_interval(X, coverage).reshape(-1, 2)])
    half = saved.half_width(coverage)
    return np.column_stack([found, found - half, found + half])


def beside(names: Mapping[str, list[str]], parts: Iterable[Mapping[str, Array]]) -> Iterator[dict[str, Any]]:
    """Parts with the columns that name their rows."""
    first = 0
    for part in parts:
        rows = len(next(iter(part.values())))
        yield {**{name: texts[first : first + rows] for name, texts in names.items()}, **part}
        first += rows
