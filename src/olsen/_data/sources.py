"""Data that are read row block by row block: files, memory maps, iterators.

Which inputs `fit` reads in blocks, and where y and weights come from:

====================================================  ===========================================================
X                                                     y and sample_weight
====================================================  ===========================================================
path ending in ``.npy``                               array, memory map or path ending in ``.npy``
``numpy.memmap`` of more than a quarter of memory     the same
path to a Parquet file or folder, pyarrow Dataset     name of a column, or the same as above
iterator of (X, y) or (X, y, weight) blocks           None: y and weights come with the blocks; read once
function that returns such an iterator                None; read again when needed
====================================================  ===========================================================

Everything else is an array or a data frame and is loaded entirely. Blocks keep the type in which
the data are stored; the code that sums blocks chooses the type of the sums. A single number as
sample_weight is the weight of every row.

A file that changes between its opening and the end of a pass (size, modification time or inode) is
refused, because rows of two versions would be summed.
"""

from __future__ import annotations

import datetime
import errno
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from .._execution import from_extra, memory
from .._execution.options import Options
from .._execution.threads import Report, room_for_a_thread
from .._trust import ORDINARY, SMALLEST_WEIGHT, refuse_extremes
from ..subsets import row_groups

T = TypeVar("T")
Triple = tuple[Any, Any, Any]  # X, y and weights of a block in the stored type; weights may be None

BLOCK_BYTES = 1 << 24  # size of a block in the type of the stored data
MAX_ITEMS_IN_MESSAGE = 5
TIME_TYPES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)


@dataclass(frozen=True)
class Block:
    """Checked consecutive rows: X (rows, p), y (rows, q) and weights (rows,) or None."""

    X: Any
    y: Any
    weight: Any
    number: int
    first: int  # index of the first row of the block in the data
    kind: str  # description of the source, for messages
    single_target: bool  # whether y was a vector
    names: list[str] | None  # column names if the block is a data frame

    @property
    def description(self) -> str:
        """Number, source and rows of the block, for messages."""
        return (
            f"block {self.number} of the {self.kind} (rows {self.first} to"
            f" {self.first + len(self.X) - 1})"
        )

    def groups(self, count: int, seed: int) -> Iterator[tuple[int, Any, Any, Any]]:
        """Yield (group, X, y, weight) of every nonempty random group, without rows of weight zero.

        The group of a row depends on the seed and on the row index alone, not on the division into
        blocks.
        """
        if count == 1 and self.weight is None and len(self.X):
            yield 0, self.X, self.y, None
            return
        group = (
            np.zeros(len(self.X))
            if count == 1
            else row_groups(self.first, len(self.X), count, seed)
        )
        for g in range(count):
            in_group = group == g if self.weight is None else (group == g) & (self.weight > 0)
            if in_group.any():
                group_weights = None if self.weight is None else self.weight[in_group]
                yield g, self.X[in_group], self.y[in_group], group_weights

    def refuse(self) -> None:
        """Raise for rows with NaN or infinity, and for columns with entries whose squares overflow."""
        for name, array in (("X", self.X), ("y", self.y), ("sample_weight", self.weight)):
            if array is not None:
                finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
                self.refuse_rows(~finite, f"contains NaN or infinity in {name}")
        for name, array in (("X", self.X), ("y", self.y)):
            refuse_extremes(
                np.abs(array.astype(np.float64)).max(axis=0), f"{name} in {self.description}"
            )

    def refuse_rows(self, invalid: NDArray[np.bool_], reason: str) -> None:
        """Raise if any row of the block is invalid."""
        if invalid.any():
            rows = self.first + np.flatnonzero(invalid)
            raise ValueError(
                f"{self.description} {reason}, in {len(rows)} rows: {first_items(rows.tolist())}."
                " Fix or drop them."
            )

    def refuse_weights(self) -> None:
        """Raise for weights that are not finite, negative, or too large or too small to be summed."""
        weight = self.weight
        self.refuse_rows(~np.isfinite(weight), "contains NaN or infinity in sample_weight")
        self.refuse_rows(weight < 0, "has negative weights")
        self.refuse_rows(weight > ORDINARY[1], f"has weights above {ORDINARY[1]:g}")
        self.refuse_rows(
            (weight > 0) & (weight < SMALLEST_WEIGHT), f"has weights below {SMALLEST_WEIGHT:g}"
        )


def checked(
    triples: Iterable[Triple], kind: str, start: int = 0, first: int = 0
) -> Iterator[Block]:
    """Check blocks of which the first has number `start` and begins at row `first`; all must have
    the same columns.
    """
    shape = None
    names = None
    target_names = None
    for number, (X, y, weight) in enumerate(triples, start):
        block_text = f"block {number} of the {kind}"
        block_names = column_names(X)
        block_target_names = column_names(y)
        refuse_times(f" of {block_text}", X=X, y=y, sample_weight=weight)
        X = _numbers(X, f"X of {block_text}")
        y = _numbers(y, f"y of {block_text}")
        if X.ndim != 2 or y.ndim not in (1, 2):
            raise ValueError(
                f"{block_text} has X of shape {X.shape} and y of shape {y.shape}; expected rows by"
                " columns."
            )
        single_target = y.ndim == 1
        if single_target:
            y = y[:, None]
        if shape is None:
            shape = (X.shape[1], y.shape[1])
            names = block_names
            target_names = block_target_names
        if (X.shape[1], y.shape[1]) != shape:
            raise ValueError(
                f"{block_text} has {X.shape[1]} columns and {y.shape[1]} targets, but the blocks"
                f" before have {shape[0]} and {shape[1]}."
            )
        _refuse_other_names(block_names, names, block_text, "columns")
        if shape[1] > 1:  # the name of a single target orders nothing
            _refuse_other_names(block_target_names, target_names, block_text, "targets")
        if weight is not None:
            weight = np.asarray(weight, dtype=np.float64)
            weight = weight if weight.ndim else np.full(len(X), weight)
        weight_shape = None if weight is None else weight.shape
        if len(y) != len(X) or weight_shape not in (None, (len(X),)):
            raise ValueError(
                f"{block_text} has {len(X)} rows of X, {len(y)} of y and weights of shape"
                f" {weight_shape}."
            )
        block = Block(
            X,
            y,
            weight,
            number=number,
            first=first,
            kind=kind,
            single_target=single_target,
            names=names,
        )
        if weight is not None:
            block.refuse_weights()
        yield block
        first += len(X)


def column_names(table: Any) -> list[str] | None:
    """Names of the columns of a data frame or an Arrow table.

    None for arrays and, as in scikit-learn, for tables of which some column name is not a string.
    """
    names = getattr(table, "column_names", None)  # of Arrow tables, whose `columns` are the data
    if names is None:
        names = getattr(table, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def _refuse_other_names(
    names: list[str] | None, first_names: list[str] | None, block_text: str, noun: str
) -> None:
    """Raise if the column names of a block differ from those of the first block: sums would mix
    columns silently.
    """
    if names == first_names:
        return
    if names is None:
        raise ValueError(
            f"{block_text} has no names of {noun}, but the first block has:"
            f" {first_items(first_names or [])}. Give every block as a data frame with these names,"
            " or every block as an array."
        )
    if first_names is None:
        raise ValueError(
            f"{block_text} has names of {noun}, {first_items(names)}, but the first block has none."
            " Give every block as a data frame with the same names, or every block as an array."
        )
    different_names = sorted(set(names) ^ set(first_names))
    if not different_names:  # the same names in another order
        different_names = [a for a, b in zip(names, first_names, strict=True) if a != b]
    raise ValueError(
        f"{block_text} has other {noun} than the first block, or another order of them: "
        f"{first_items(different_names)}. Select the same names in the same order in every block."
    )


def _numbers(values: Any, name: str) -> NDArray[Any]:
    """Convert values to an array of real numbers; object arrays are cast to float64, as for data in
    memory.
    """
    array: NDArray[Any] = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} does not hold numbers ({error}).") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} is of type {array.dtype}; real numbers needed.")
    return array


@dataclass(frozen=True)
class BlockSource:
    """Rows in blocks.

    Parameters
    ----------
    read : callable
        Returns a fresh iterator over blocks (X, y, weight).
    kind : str
        Description of the source, for messages.
    rereadable : bool
        Whether `read` may be called again.
    n_rows : int or None
        Number of rows; None if it is unknown before reading.
    names : list of str or None
        Names of the columns.
    """

    read: Callable[[], Iterator[Triple]]
    kind: str
    rereadable: bool = True
    n_rows: int | None = None
    names: list[str] | None = None

    def collect(self, work: Callable[..., T], merge: Any, options: Options | None = None) -> T:
        """Return ``work(blocks)`` of all blocks, which are read ahead; `merge` is used on clusters
        only.
        """
        if options is None:
            return work(self._blocks(1, None))
        report = options.report("rows", self.n_rows or "an unknown number")
        return work(self._blocks(options.n_threads, report), options.n_threads)

    def few_blocks(self, many_rows: int) -> tuple[list[Block] | None, BlockSource]:
        """Return all blocks if the rows are fewer than `many_rows` or than the columns; otherwise
        None.

        The second value is the source to read from now on: it begins with the blocks already taken
        from an iterator.
        """
        triples = self.read()
        first_triples: list[Triple] = []

        def recorded() -> Iterator[Triple]:
            for triple in triples:
                first_triples.append(triple)
                yield triple

        blocks: list[Block] = []
        n_rows = 0
        for block in checked(recorded(), self.kind):
            blocks.append(block)
            n_rows += len(block.X)
            if n_rows >= max(many_rows, block.X.shape[1]):
                return None, (
                    self
                    if self.rereadable
                    else replace(self, read=lambda: chain(first_triples, triples))
                )
        return blocks, self

    def _blocks(self, n_ahead: int, report: Report | None) -> Iterator[Block]:
        for block in checked(ahead(self.read(), n_ahead), self.kind):
            yield block
            if report:
                report(block.first + len(block.X))


def ahead(blocks: Iterator[T], count: int) -> Iterator[T]:
    """Yield blocks and read up to `count` further ones meanwhile in a thread; without a thread,
    read one by one.
    """
    pending = deque[Future[T | None]]()
    threaded = room_for_a_thread()
    reader = ThreadPoolExecutor(1)
    try:
        while True:
            try:
                while threaded and len(pending) <= count:
                    pending.append(reader.submit(next, blocks, None))
            except RuntimeError:  # the system has no more threads, or the interpreter is ending
                threaded = False
            block = pending.popleft().result() if pending else next(blocks, None)
            if block is None:
                return
            yield block
    finally:
        # without waiting: the garbage collector may run in the reader, or in a thread that is about
        # to begin
        reader.shutdown(wait=False, cancel_futures=True)


def open_source(X: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """Open X as a source of blocks; None for an X that is to be loaded entirely."""
    module = type(X).__module__.split(".")[0]
    if isinstance(X, (str, Path)):
        return _open_path(Path(X), y, sample_weight)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > memory.available_bytes() / 4:
        return _slices(X, y, sample_weight, kind="memory map", path=X.filename)
    if module == "pyarrow" and hasattr(X, "to_batches") and hasattr(X, "scanner"):
        return _parquet(X, y, sample_weight, kind="Arrow dataset", files=[])
    if isinstance(X, Iterator) or (callable(X) and not hasattr(X, "shape")):
        return _iterator(X, y, sample_weight)
    return None


def _open_path(path: Path, y: Any, sample_weight: Any) -> BlockSource:
    if not path.exists():
        raise FileNotFoundError(f"X is the path {str(path)!r}, but there is no such file.")
    if path.suffix == ".npy":
        return _slices(_NpyRows(path), y, sample_weight, kind=f"file {path}", path=path)
    if path.suffix in (".parquet", ".pq") or (path.is_dir() and path.suffix != ".zarr"):
        kind = f"Parquet {path}"
        pyarrow_dataset = from_extra("pyarrow.dataset", "parquet", "Reading Parquet")
        with _reading(kind):
            dataset = pyarrow_dataset.dataset(str(path), format="parquet")
        return _parquet(dataset, y, sample_weight, kind=kind, files=dataset.files)
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


def _slices(X: Any, y: Any, sample_weight: Any, *, kind: str, path: Any) -> BlockSource:
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


def _parquet(
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


def named_columns(values: Any) -> list[str] | None:
    """Column names in y or sample_weight; None if the argument is an array or a file."""
    if isinstance(values, str) and not values.endswith(".npy"):
        return [values]
    if (
        isinstance(values, (list, tuple))
        and values
        and all(isinstance(item, str) for item in values)
    ):
        return list(values)
    return None


def split_columns(
    columns: Sequence[str], y: Any, sample_weight: Any, kind: str
) -> tuple[list[str], list[str]]:
    """Split column names into those of X and those that y and sample_weight name."""
    other_names = [*(named_columns(y) or []), *(named_columns(sample_weight) or [])]
    names = [name for name in columns if name not in other_names]
    missing = [name for name in other_names if name not in columns]
    if missing or not names:
        raise ValueError(
            f"{kind} has no column {missing or 'for X'}; it has {first_items(columns)}."
        )
    return names, other_names


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


def _iterator(X: Any, y: Any, sample_weight: Any) -> BlockSource:
    if y is not None or sample_weight is not None:
        raise ValueError(
            "X yields blocks, so y and sample_weight come with them: yield (X, y) or (X, y, weight)"
            " and pass y=None."
        )
    once = isinstance(X, Iterator)

    def read() -> Iterator[Triple]:
        blocks = X if once else X()
        if not hasattr(blocks, "__iter__"):
            raise ValueError(
                f"X is a function that returned {blocks!r:.80} of type {type(blocks).__name__}; it"
                " must return an iterator of blocks (X, y) or (X, y, weight), a fresh one at every"
                " call."
            )
        for number, block in enumerate(blocks):
            if not isinstance(block, (tuple, list)) or len(block) not in (2, 3):
                raise ValueError(f"block {number} is not a pair (X, y) or a triple (X, y, weight).")
            yield block[0], block[1], block[2] if len(block) == 3 else None

    return BlockSource(read, "iterator", rereadable=not once)


def first_items(items: Sequence[Any]) -> str:
    """List the first items, for messages."""
    text = ", ".join(map(repr, items[:MAX_ITEMS_IN_MESSAGE]))
    return text + (" ..." if len(items) > MAX_ITEMS_IN_MESSAGE else "")


def require_positive(n_positive: int, n_rows: int, min_rows: int = 2) -> None:
    """Refuse weights that leave too few rows."""
    if n_positive < min_rows:
        raise ValueError(
            f"sample_weight is positive for {n_positive} of {n_rows} rows, but at least {min_rows}"
            " rows with positive weight are needed; a weight of zero drops the row."
        )


def describe_not_finite(values: Any, name: str, names: Sequence[str] | None = None) -> str | None:
    """Describe NaN and infinity in an array of floats, dense or sparse; None if all its numbers are
    finite.

    The sentence gives the first such entry in the order of rows, counted from 0, and its column by
    name if it has one.
    """
    if hasattr(values, "tocoo"):
        entries = values.tocoo()
        numbers, rows, columns = entries.data, entries.row, entries.col
    else:
        table = values.reshape(len(values), -1)
        rows, columns = np.nonzero(~np.isfinite(table))
        numbers = table[rows, columns]
    missing = np.isnan(numbers)
    infinite = np.isinf(numbers)
    if not (missing.any() or infinite.any()):
        return None
    any_missing = bool(missing.any())
    reported = missing if any_missing else infinite
    reported_rows = rows[reported]
    reported_columns = columns[reported]
    first = np.lexsort((reported_columns, reported_rows))[0]
    position = f"row {int(reported_rows[first])} (counted from 0)"
    if values.ndim == 2:
        column = int(reported_columns[first])
        position += f", column {column if names is None else repr(names[column])}"
    n_values = int(reported.sum())
    n_rows = len(np.unique(reported_rows))
    kind = "NaN" if any_missing else "infinity"
    adjective = "missing" if any_missing else "infinite"
    counts = (
        f"{n_values} {adjective} value{'s' if n_values > 1 else ''} in {n_rows} of"
        f" {values.shape[0]} rows"
    )
    remedy = "Drop these rows"
    if name == "X" and any_missing:
        remedy += ", or fill the missing values with sklearn.impute.SimpleImputer"
    elif name == "X":
        remedy += ", or fix the values"
    return f"{name} contains {kind}: {counts}, the first in {position}. {remedy}."


def as_table(X: Any) -> Any:
    """Convert an Arrow record batch to a table, whose columns scikit-learn and narwhals see; return
    other X as is.
    """
    if type(X).__module__.split(".")[0] == "pyarrow" and type(X).__name__ == "RecordBatch":
        return from_extra("pyarrow", "parquet", "A record batch").Table.from_batches([X])
    return X


def refuse_times(suffix: str = "", /, **arrays: Any) -> None:
    """Raise if X, y or weights hold dates or durations, which NumPy would convert to counts of some
    unit.

    The message calls an array by its keyword followed by `suffix`.
    """
    for name, values in arrays.items():
        numeric = isinstance(values, np.ndarray) and values.dtype.kind in "fiub"
        if not numeric and values is not None:
            _refuse_times_in(values, f"{name}{suffix}")


def _refuse_times_in(values: Any, name: str) -> None:
    values = as_table(values)
    if nw.dependencies.is_into_dataframe(values):
        try:
            frame = nw.from_native(values)
            columns: list[Any] = [
                column.name for column in frame.iter_columns() if _is_time(column)
            ]
        except nw.exceptions.DuplicateError:  # two columns of the same name
            columns = _time_columns_of_array(np.asarray(values))
        refuse_time_columns(columns, name)
    elif nw.dependencies.is_into_series(values):
        series = nw.from_native(values, series_only=True)
        refuse_time_columns([series.name or 0] if _is_time(series) else [], name)
    elif not hasattr(values, "toarray"):  # sparse matrices hold numbers
        refuse_time_columns(_time_columns_of_array(values), name)


def _is_time(column: Any) -> bool:
    if column.dtype == nw.Object:
        return _holds_times(column.to_numpy())
    return bool(column.dtype.is_temporal())


def _holds_times(values: NDArray[Any]) -> bool:
    """Whether an array holds dates, times or durations, also as objects."""
    if values.dtype.kind == "O":
        return any(isinstance(value, TIME_TYPES) for value in values.ravel())
    return values.dtype.kind in "mM"


def _time_columns_of_array(values: Any) -> list[int]:
    """Indices of the columns of an array, or of nested lists, that hold times."""
    dtype = getattr(values, "dtype", None)
    kind = (
        "O" if dtype is None else getattr(dtype, "kind", "f")
    )  # dtypes of other libraries have no kind and no times
    if isinstance(values, str) or kind not in "mMO":
        return []
    try:
        array = np.asarray(values)
    except (
        TypeError,
        ValueError,
    ):  # for instance rows of different lengths, which scikit-learn refuses
        return []
    columns = (
        array if array.ndim == 2 and array.shape[1] else array.reshape(-1, 1)
    )  # Dask's samples have no columns
    return [j for j in range(columns.shape[1]) if _holds_times(columns[:, j])]


def refuse_time_columns(columns: Sequence[Any], name: str) -> None:
    """Raise if any columns of X or y (`name`) hold times."""
    if columns:
        raise ValueError(
            f"{name} holds dates or times in column {first_items(columns)}, which are not numbers:"
            " give differences to a reference date, for instance (t - t.min()) /"
            " numpy.timedelta64(1, 'D'), or fit the table with the command olsen fit --dates."
        )


def refuse_text(text_columns: Sequence[str], n_columns: int) -> None:
    """Raise if any columns do not hold numbers."""
    if text_columns:
        raise ValueError(
            f"{len(text_columns)} of {n_columns} columns do not hold numbers:"
            f" {first_items(text_columns)}. Encode them first, for instance with"
            " sklearn.preprocessing.OneHotEncoder, or leave them out."
        )
