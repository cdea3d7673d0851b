"""Tables in Parquet files and Arrow datasets: their columns, and their rows batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.extras import from_extra
from .checks import cut_short
from .maps import file_state, refuse_change

__all__ = [
    "count_rows",
    "dataset_batches",
    "named_columns",
    "open_dataset",
    "parquet_batches",
    "remaining_columns",
    "stack_columns",
]

PARQUET_BUFFER = 1 << 16  # bytes read at a time from each column of a file


def open_dataset(path: Path) -> Any:
    """The Parquet files of a path, one or a folder of them."""
    datasets = from_extra("pyarrow.dataset", "parquet", "Reading Parquet")
    try:
        return datasets.dataset(str(path), format="parquet")
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise ValueError(f"{path} cannot be read as Parquet ({error}); it may have been cut short.") from error


def named_columns(given: Any) -> list[str] | None:
    """Column names in y or sample_weight, or None where they are arrays or files."""
    if isinstance(given, str) and not given.endswith(".npy"):
        return [given]
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, str) for item in given):
        return list(given)
    return None


def remaining_columns(dataset: Any, taken: Sequence[str], kind: str) -> list[str]:
    """Names of the columns of X: all but those taken for y and weights, which must be there; numbers, every one."""
    import pyarrow.types

    names = [name for name in dataset.schema.names if name not in taken]
    missing = [name for name in taken if name not in dataset.schema.names]
    if missing:
        raise ValueError(
            f"{kind} has no column {missing[0]!r}; it has {', '.join(map(repr, dataset.schema.names[:8]))}."
        )
    numeric = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean)
    text = [name for name in names if not any(test(dataset.schema.field(name).type) for test in numeric)]
    if text:
        raise ValueError(f"{len(text)} of {len(names)} columns of {kind} do not hold numbers: {', '.join(text[:5])}.")
    return names


def count_rows(dataset: Any, kind: str) -> int:
    """Rows of all files together."""
    try:
        return int(dataset.count_rows())
    except (OSError, ValueError) as error:  # one of several files
        raise cut_short(kind, error) from error


def parquet_batches(
    files: Sequence[str], columns: Sequence[str], rows: int, kind: str, dictionaries: Sequence[str] = ()
) -> Iterator[Any]:
    """Arrow batches of some columns, file after file, at most `rows` at a time.

    Columns in `dictionaries` are read as such: a long text repeated in many rows is not written out.

    Not by Arrow's dataset scanner, which decodes whole row groups, several of them ahead: those are often as large as
    the file.
    """
    for name in files:
        before = file_state(name)
        with _open_parquet(name, kind, dictionaries) as file:
            held = set(file.schema_arrow.names)
            missing = [column for column in columns if column not in held]
            if missing:
                raise ValueError(f"{name} has no column {missing[0]!r}, which other files of {kind} have.")
            yield from _to_the_end(file.iter_batches(rows, columns=columns), kind)
        refuse_change(name, before)


def _open_parquet(name: str, kind: str, dictionaries: Sequence[str]) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(name, pre_buffer=False, buffer_size=PARQUET_BUFFER, read_dictionary=list(dictionaries))
    except (OSError, ValueError) as error:
        raise cut_short(kind, error) from error


def dataset_batches(dataset: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
    """Batches of some columns of an Arrow dataset, about `rows` at a time."""
    return _to_the_end(dataset.to_batches(columns=columns, batch_size=rows), "Arrow dataset")


def _to_the_end(batches: Iterator[Any], kind: str) -> Iterator[Any]:
    """Batches that have rows."""
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError) as error:
            raise cut_short(kind, error) from error
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def stack_columns(batch: Any, names: str | Sequence[str]) -> NDArray[Any]:
    """Columns of an Arrow batch as one array, in single precision if they all are; nulls become NaN."""
    if isinstance(names, str):
        column: NDArray[Any] = batch.column(names).to_numpy(zero_copy_only=False)
        return column
    single = all(batch.schema.field(name).type == "float" for name in names)
    out = np.empty((batch.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    for j, name in enumerate(names):
        out[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
    return out
