"""Sources of blocks in files: .npy, Parquet and Arrow datasets, and memory maps."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from ..._execution import from_extra
from .blocks import BlockSource, Triple
from .tables import first_items, named_columns, refuse_text, refuse_time_columns, split_columns

BLOCK_BYTES = 1 << 24  # size of a block in the type of the stored data


def open_path(path: Path, y: Any, sample_weight: Any) -> BlockSource:
    if not path.exists():
        raise FileNotFoundError(f"X is the path {str(path)!r}, but there is no such file.")
    if path.suffix == ".npy":
        return slices(_NpyRows(path), y, sample_weight, kind=f"file {path}", path=path)
    if path.suffix in (".parquet", ".pq") or (path.is_dir() and path.suffix != ".zarr"):
        kind = f"Parquet {path}"
        pyarrow_dataset = from_extra("pyarrow.dataset", "parquet", "Reading Parquet")
        with _reading(kind):
            dataset = pyarrow_dataset.dataset(str(path), format="parquet")
        return parquet(dataset, y, sample_weight, kind=kind, files=dataset.files)
    raise ValueError(
        f"X is the path {str(path)!r}; files ending in .npy or .parquet can be read, this cannot."
        " Pass a function that returns an iterator of blocks (X, y)."
    )


def _block_rows(p: int, itemsize: int = 8) -> int:
    """Rows of a block: at least half the number of columns, or adding Gram matrices costs more than
    forming one.
    """
    return max(1, BLOCK_BYTES // (p * itemsize), p // 2)


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Context that explains errors of the library that reads a file."""
    try:
        yield
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError(
                f"{kind} is larger than what this process may map into memory (ulimit -v)."
            ) from error
        raise ValueError(
            f"{kind} cannot be read to its end ({error}); it may have been cut short."
        ) from error


def _watch(*paths: Any) -> Callable[[], None]:
    """Return a function that raises if one of the files has changed since this call.

    Arguments that are not paths of files are ignored: arrays, column names, None.
    """

    def states() -> list[tuple[str, int, int, int]]:
        files = [path for path in paths if isinstance(path, (str, Path)) and os.path.isfile(path)]
        entries = [(str(path), os.stat(path)) for path in files]
        return [(name, entry.st_ino, entry.st_size, entry.st_mtime_ns) for name, entry in entries]

    first_states = states()

    def refuse_change() -> None:
        if changed_files := sorted({name for name, *_ in {*first_states} ^ {*states()}}):
            raise ValueError(
                "files changed while they were read, so rows of two versions would be mixed:"
                f" {first_items(changed_files)}. Fit again when nobody writes to them, or fit a"
                " copy."
            )

    return refuse_change


class _NpyRows:
    """Array in a .npy file, whose rows are read on demand: ``rows[start:stop]``.

    The file is read and not mapped: if a mapped file is truncated, the system kills the process at
    the first access to a missing row.
    """

    def __init__(self, path: Path) -> None:
        with _reading(f"file {path}"):
            array = open_memmap(
                path, mode="r"
            )  # raises if the file is shorter than its header says
        self.read = partial(np.fromfile, path, array.dtype)
        self.offset = array.offset
        self.shape = array.shape
        self.dtype = array.dtype
        self.row_major = array.flags.c_contiguous

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        n_rows = rows.stop - rows.start
        n_columns = math.prod(self.shape[1:])
        itemsize = self.dtype.itemsize
        if self.row_major:
            values = self.read(
                n_rows * n_columns, offset=self.offset + rows.start * n_columns * itemsize
            )
            return values.reshape(n_rows, *self.shape[1:])
        offsets = [
            self.offset + (j * self.shape[0] + rows.start) * itemsize for j in range(n_columns)
        ]
        return np.stack([self.read(n_rows, offset=offset) for offset in offsets], axis=1)


def slices(X: Any, y: Any, sample_weight: Any, *, kind: str, path: Any) -> BlockSource:
    """Source of blocks from an X that has a shape and can be sliced by rows."""
    if len(X.shape) != 2:
        raise ValueError(f"the {kind} has shape {tuple(X.shape)}; expected 2D, rows by columns.")
    n, p = X.shape
    targets = _separate_values(y, "y", n, kind)
    weights = _separate_values(sample_weight, "sample_weight", n, kind)
    if targets is None:
        raise ValueError(
            f"y is None, but the {kind} holds X only: give y as an array or as a .npy file."
        )
    block_rows = _block_rows(p, X.dtype.itemsize)
    refuse_change = _watch(path, y, sample_weight)

    def read() -> Iterator[Triple]:
        for start in range(0, n, block_rows):
            rows = slice(start, min(start + block_rows, n))
            with _reading(kind):
                x, target, weight = (
                    None if a is None else np.asarray(a[rows]) for a in (X, targets, weights)
                )
            yield x, target, weight
        refuse_change()

    return BlockSource(read, kind, n_rows=n)


def _separate_values(values: Any, name: str, n: int, kind: str) -> Any:
    """Return y or weights that are no columns of X: an array or a .npy file, of n rows."""
    if values is None:
        return None
    if isinstance(values, (str, Path)):
        if Path(values).suffix != ".npy" or not Path(values).exists():
            raise ValueError(
                f"{name}={str(values)!r} is not a .npy file that exists; the {kind} has no named"
                " columns."
            )
        values = _NpyRows(Path(values))
    values = values if hasattr(values, "shape") else np.asarray(values)
    if name == "sample_weight" and values.shape == ():
        return np.broadcast_to(
            np.asarray(values, dtype=np.float64), (n,)
        )  # one weight for all rows
    if values.shape[:1] != (n,):
        raise ValueError(
            f"{name} has shape {tuple(values.shape)}, but the {kind} has {n} rows; every row needs"
            " its own."
        )
    return values


def parquet(
    dataset: Any, y: Any, sample_weight: Any, *, kind: str, files: Sequence[str]
) -> BlockSource:
    """Source of blocks from Parquet files or an Arrow dataset; y and weights are columns or
    separate arrays.
    """
    from pyarrow import types

    schema = dataset.schema
    names, other_names = split_columns(schema.names, y, sample_weight, kind)
    columns = [*names, *other_names]
    refuse_time_columns(
        [name for name in columns if types.is_temporal(schema.field(name).type)], kind
    )
    is_numeric = (types.is_integer, types.is_floating, types.is_boolean)
    refuse_text(
        [name for name in names if not any(test(schema.field(name).type) for test in is_numeric)],
        len(names),
    )
    if y is None:
        raise ValueError(f"y is None: name the column of {kind} that holds the target.")
    with _reading(kind):
        n = int(dataset.count_rows())
    targets = y if named_columns(y) else _separate_values(y, "y", n, kind)
    weights = sample_weight
    if not named_columns(sample_weight):
        weights = _separate_values(sample_weight, "sample_weight", n, kind)
    refuse_change = _watch(*files, y, sample_weight)
    block_rows = _block_rows(len(names))

    def values_of(batch: Any, values: Any, rows: slice) -> Any:
        if named_columns(values):
            return _stack_columns(batch, values)
        return None if values is None else values[rows]

    def read() -> Iterator[Triple]:
        start = 0
        if files:
            batches = parquet_batches(files, columns, block_rows, kind)
        else:
            batches = _nonempty(dataset.to_batches(columns=columns, batch_size=block_rows), kind)
        for batch in batches:
            rows = slice(start, start + batch.num_rows)
            target = values_of(batch, targets, rows)
            weight = values_of(batch, weights, rows)
            yield _stack_columns(batch, names), target, weight
            start += batch.num_rows
        refuse_change()

    return BlockSource(read, kind, n_rows=n, names=names)


def parquet_batches(
    files: Sequence[str],
    columns: Sequence[str],
    rows: int,
    kind: str,
    dictionaries: Sequence[str] = (),
) -> Iterator[Any]:
    """Yield Arrow batches of the named columns, file after file, of at most `rows` rows.

    Columns in `dictionaries` are read as dictionaries: a long string repeated in many rows is
    stored once.

    Arrow's dataset scanner is not used: it decodes several row groups ahead, and a row group is
    often as large as the file. For the same reason columns are read through small buffers.
    """
    import pyarrow.parquet as pq

    refuse_change = _watch(*files)
    for name in files:
        with _reading(kind):
            opened = pq.ParquetFile(
                name, pre_buffer=False, buffer_size=1 << 16, read_dictionary=list(dictionaries)
            )
        with opened as file:
            missing = sorted(set(columns) - set(file.schema_arrow.names))
            if missing:
                raise ValueError(
                    f"{name} has no column {missing[0]!r}, which other files of {kind} have."
                )
            yield from _nonempty(file.iter_batches(rows, columns=columns), kind)
    refuse_change()


def _nonempty(batches: Iterator[Any], kind: str) -> Iterator[Any]:
    """Yield the batches that have rows, and explain errors of reading."""
    while True:
        with _reading(kind):
            batch = next(batches, None)
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def _stack_columns(batch: Any, names: str | Sequence[str]) -> NDArray[Any]:
    """Return one column of an Arrow batch as a vector, or several as a matrix; nulls become NaN.

    The matrix is of single precision if every column is.
    """
    if isinstance(names, str):
        return np.asarray(batch.column(names).to_numpy(zero_copy_only=False))
    columns = [_stack_columns(batch, name) for name in names]
    single = all(column.dtype == np.float32 for column in columns)
    return np.stack(columns, axis=1, dtype=np.float32 if single else np.float64, casting="unsafe")
