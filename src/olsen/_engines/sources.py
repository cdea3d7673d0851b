"""Data that are read row block by row block: files, memory maps, iterators.

Which inputs `fit` reads in blocks, and where y and weights come from:

====================================================  ===========================================================
X                                                     y and sample_weight
====================================================  ===========================================================
path ending in ``.npy``                               array, memory map or path ending in ``.npy``
``numpy.memmap`` of more than a quarter of memory     the same
path to a Parquet file or folder, pyarrow Dataset     name of a column, or the same as above
iterator of (X, y) or (X, y, weight) blocks           None: they come with the blocks; read once
function that returns such an iterator                None; read again when needed
====================================================  ===========================================================

Everything else is an array or a data frame and is loaded as a whole. Blocks are passed on as they are stored; whoever
sums them decides on the type. A single number as sample_weight is the weight of every row.

Files that change between their opening and the end of a pass are refused (size, time of change, identity): rows of two
versions would be summed.
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
from .._execution.threads import Report, room_for_a_thread
from .._trust import ORDINARY, SMALLEST_WEIGHT, refuse_extremes
from ..subsets import row_groups
from .engine import Options

T = TypeVar("T")
Triple = tuple[Any, Any, Any]  # X, y and weights of a block as they are stored; weights may be None

BLOCK_BYTES = 1 << 24  # of a block as stored
TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)


@dataclass(frozen=True)
class Block:
    """Consecutive rows that were checked: X (rows, p), y (rows, q) and weights (rows,) or None."""

    X: Any
    y: Any
    weight: Any
    number: int
    first: int  # number of its first row
    kind: str  # what it is a block of
    single: bool  # whether y was a vector
    names: list[str] | None  # of the columns, where the block is a data frame

    @property
    def where(self) -> str:
        """For messages."""
        return f"block {self.number} of the {self.kind} (rows {self.first} to {self.first + len(self.X) - 1})"

    def groups(self, count: int, seed: int) -> Iterator[tuple[int, Any, Any, Any]]:
        """(group, X, y, weight) of random groups of the rows, without those of weight zero and groups without rows.

        The group of a row depends on the seed and on the row's number alone, not on how rows are cut into blocks.
        """
        if count == 1 and self.weight is None and len(self.X):
            yield 0, self.X, self.y, None
            return
        group = np.zeros(len(self.X)) if count == 1 else row_groups(self.first, len(self.X), count, seed)
        for g in range(count):
            here = group == g if self.weight is None else (group == g) & (self.weight > 0)
            if here.any():
                yield g, self.X[here], self.y[here], None if self.weight is None else self.weight[here]

    def refuse(self) -> None:
        """Raise for rows that hold NaN or infinity, and for columns with entries whose squares overflow."""
        for name, part in (("X", self.X), ("y", self.y), ("sample_weight", self.weight)):
            if part is not None:
                finite = np.isfinite(part).reshape(len(part), -1).all(axis=1)
                self.refuse_rows(~finite, f"contains NaN or infinity in {name}")
        for name, part in (("X", self.X), ("y", self.y)):
            refuse_extremes(np.abs(part.astype(np.float64)).max(axis=0), f"{name} in {self.where}")

    def refuse_rows(self, bad: NDArray[np.bool_], why: str) -> None:
        """Raise if any of its rows is bad."""
        if bad.any():
            rows = self.first + np.flatnonzero(bad)
            raise ValueError(f"{self.where} {why}, in {len(rows)} rows: {some_of(rows.tolist())}. Mend or drop them.")


def checked(triples: Iterable[Triple], kind: str, start: int = 0, first: int = 0) -> Iterator[Block]:
    """Blocks, numbered from a number and a row on, each of the shape and with the columns of the first."""
    shape, names, target_names = None, None, None
    for number, (X, y, weight) in enumerate(triples, start):
        where = f"block {number} of the {kind}"
        block_names = column_names(X)
        block_target_names = column_names(y)
        refuse_times(f" of {where}", X=X, y=y, sample_weight=weight)
        X, y = _numbers(X, f"X of {where}"), _numbers(y, f"y of {where}")
        if X.ndim != 2 or y.ndim not in (1, 2):
            raise ValueError(f"{where} has X of shape {X.shape} and y of shape {y.shape}; expected rows by columns.")
        single, y = y.ndim == 1, y[:, None] if y.ndim == 1 else y
        if shape is None:
            shape, names, target_names = (X.shape[1], y.shape[1]), block_names, block_target_names
        if (X.shape[1], y.shape[1]) != shape:
            raise ValueError(
                f"{where} has {X.shape[1]} columns and {y.shape[1]} targets, but the blocks before have {shape[0]} and "
                f"{shape[1]}."
            )
        _refuse_other_names(block_names, names, where, "columns")
        if shape[1] > 1:  # the name of a single target orders nothing
            _refuse_other_names(block_target_names, target_names, where, "targets")
        if weight is not None:
            weight = np.asarray(weight, dtype=np.float64)
            weight = weight if weight.ndim else np.full(len(X), weight)
        if len(y) != len(X) or (weight is not None and weight.shape != (len(X),)):
            given = None if weight is None else weight.shape
            raise ValueError(f"{where} has {len(X)} rows of X, {len(y)} of y and weights of shape {given}.")
        block = Block(X, y, weight, number, first, kind, single, names)
        if weight is not None:
            block.refuse_rows(~np.isfinite(weight), "contains NaN or infinity in sample_weight")
            block.refuse_rows(weight < 0, "has negative weights")
            block.refuse_rows(weight > ORDINARY[1], f"has weights above {ORDINARY[1]:g}")
            block.refuse_rows((weight > 0) & (weight < SMALLEST_WEIGHT), f"has weights below {SMALLEST_WEIGHT:g}")
        yield block
        first += len(X)


def column_names(table: Any) -> list[str] | None:
    """Names of the columns of a data frame or an Arrow table; None for arrays and, as in scikit-learn, where some name
    is not a text."""
    names = getattr(table, "column_names", None)  # Arrow's, whose `columns` are the data
    if names is None:
        names = getattr(table, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def _refuse_other_names(names: list[str] | None, first_names: list[str] | None, where: str, what: str) -> None:
    """Raise if a block names its columns otherwise than the first block: they would be mixed without a trace."""
    if names == first_names:
        return
    if names is None:
        raise ValueError(
            f"{where} has no names of {what}, but the first block has: {some_of(first_names or [])}. Give every block "
            f"as a data frame with these names, or every block as an array."
        )
    if first_names is None:
        raise ValueError(
            f"{where} has names of {what}, {some_of(names)}, but the first block has none. Give every block as a data "
            f"frame with the same names, or every block as an array."
        )
    odd = sorted(set(names) ^ set(first_names)) or [a for a, b in zip(names, first_names, strict=True) if a != b]
    raise ValueError(
        f"{where} has other {what} than the first block, or another order of them: {some_of(odd)}. Select the same "
        f"names in the same order in every block."
    )


def _numbers(given: Any, what: str) -> NDArray[Any]:
    """Real numbers; objects are tried, as in memory."""
    array: NDArray[Any] = given.toarray() if hasattr(given, "toarray") else np.asarray(given)
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} does not hold numbers ({error}).") from error
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} is of type {array.dtype}; real numbers needed.")
    return array


@dataclass(frozen=True)
class BlockSource:
    """Rows in blocks.

    Parameters
    ----------
    read : callable
        Returns a fresh iterator over blocks (X, y, weight).
    kind : str
        What it is, for messages.
    rereadable : bool
        Whether `read` may be called again.
    n_rows : int or None
        Number of rows where it is known beforehand.
    names : list of str or None
        Names of the columns.
    """

    read: Callable[[], Iterator[Triple]]
    kind: str
    rereadable: bool = True
    n_rows: int | None = None
    names: list[str] | None = None

    def collect(self, work: Callable[..., T], merge: Any, options: Options | None = None) -> T:
        """What `work` makes of all blocks, which are read ahead; there is nothing to merge."""
        if options is None:
            return work(self._blocks(1, None))
        report = options.report("rows", self.n_rows or "an unknown number")
        return work(self._blocks(options.n_threads, report), options.n_threads)

    def few_blocks(self, many_rows: int) -> tuple[list[Block] | None, BlockSource]:
        """All blocks if they have fewer than `many_rows` rows, or fewer rows than columns; otherwise None.

        The second value is the source to read from now on: what was read of an iterator is put before the rest of it.
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
                return None, self if self.rereadable else replace(self, read=lambda: chain(first_triples, triples))
        return blocks, self

    def _blocks(self, n_ahead: int, report: Report | None) -> Iterator[Block]:
        for block in checked(ahead(self.read(), n_ahead), self.kind):
            yield block
            if report:
                report(block.first + len(block.X))


def ahead(blocks: Iterator[T], count: int) -> Iterator[T]:
    """The same blocks, read while those before are worked on; one after the other where no thread can be had."""
    coming, threaded = deque[Future[T | None]](), room_for_a_thread()
    reader = ThreadPoolExecutor(1)
    try:
        while True:
            try:
                while threaded and len(coming) <= count:
                    coming.append(reader.submit(next, blocks, None))
            except RuntimeError:  # the system has no more threads, or the interpreter is ending
                threaded = False
            block = coming.popleft().result() if coming else next(blocks, None)
            if block is None:
                return
            yield block
    finally:
        # without waiting: the garbage collector may run in the reader, or in a thread that is about to begin
        reader.shutdown(wait=False, cancel_futures=True)


def open_source(X: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """The blocks of X, or None where X is to be loaded as a whole."""
    beside, module = (y, sample_weight), type(X).__module__.split(".")[0]
    if isinstance(X, (str, Path)):
        return _open_path(Path(X), *beside)
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > memory.available_bytes() / 4:
        return _slices(X, *beside, "memory map", X.filename)
    if module == "pyarrow" and hasattr(X, "to_batches") and hasattr(X, "scanner"):
        return _parquet(X, *beside, "Arrow dataset", [])
    if isinstance(X, Iterator) or (callable(X) and not hasattr(X, "shape")):
        return _iterator(X, *beside)
    return None


def _open_path(path: Path, y: Any, sample_weight: Any) -> BlockSource:
    if not path.exists():
        raise FileNotFoundError(f"X is the path {str(path)!r}, but there is no such file.")
    if path.suffix == ".npy":
        return _slices(_NpyRows(path), y, sample_weight, f"file {path}", path)
    if path.suffix in (".parquet", ".pq") or (path.is_dir() and path.suffix != ".zarr"):
        datasets, kind = from_extra("pyarrow.dataset", "parquet", "Reading Parquet"), f"Parquet {path}"
        with _reading(kind):
            dataset = datasets.dataset(str(path), format="parquet")
        return _parquet(dataset, y, sample_weight, kind, dataset.files)
    raise ValueError(
        f"X is the path {str(path)!r}; files ending in .npy or .parquet can be read, this cannot. Pass a function that "
        f"returns an iterator of blocks (X, y)."
    )


def _block_rows(p: int, itemsize: int = 8) -> int:
    """Rows of a block; half as many as columns at least, or adding Gram matrices would take longer than making them."""
    return max(1, BLOCK_BYTES // (p * itemsize), p // 2)


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Errors of the library that reads a file, with what may be the reason."""
    try:
        yield
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        if getattr(error, "errno", None) == errno.ENOMEM:
            raise MemoryError(f"{kind} is larger than what this process may map into memory (ulimit -v).") from error
        raise ValueError(f"{kind} cannot be read to its end ({error}); it may have been cut short.") from error


def _watch(*given: Any) -> Callable[[], None]:
    """A function that raises if one of these files is another than now.

    What is given and no path of a file is passed over: arrays, names of columns, None.
    """

    def states() -> list[tuple[str, int, int, int]]:
        found = [(str(name), os.stat(name)) for name in given if isinstance(name, (str, Path)) and os.path.isfile(name)]
        return [(name, entry.st_ino, entry.st_size, entry.st_mtime_ns) for name, entry in found]

    before = states()

    def refuse_change() -> None:
        if changed := sorted({name for name, *_ in {*before} ^ {*states()}}):
            raise ValueError(
                f"files changed while they were read, so rows of two versions would be mixed: {some_of(changed)}. Fit "
                f"again when nobody writes to them, or fit a copy."
            )

    return refuse_change


class _NpyRows:
    """The array in a .npy file, of which rows are read when they are asked for: ``rows[start:stop]``.

    Read, not mapped: where a mapped file is cut short, the system ends the process at the first look at a missing row.
    """

    def __init__(self, path: Path) -> None:
        with _reading(f"file {path}"):
            found = open_memmap(path, mode="r")  # of the size that its header says, or an error
        self.read, self.offset = partial(np.fromfile, path, found.dtype), found.offset
        self.shape, self.dtype, self.by_rows = found.shape, found.dtype, found.flags.c_contiguous

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        count, width, size = rows.stop - rows.start, math.prod(self.shape[1:]), self.dtype.itemsize
        if self.by_rows:
            found = self.read(count * width, offset=self.offset + rows.start * width * size)
            return found.reshape(count, *self.shape[1:])
        first = [self.offset + (j * self.shape[0] + rows.start) * size for j in range(width)]
        return np.stack([self.read(count, offset=start) for start in first], axis=1)


def _slices(X: Any, y: Any, sample_weight: Any, kind: str, place: Any) -> BlockSource:
    """Blocks of something that has a shape and can be sliced by rows."""
    if len(X.shape) != 2:
        raise ValueError(f"the {kind} has shape {tuple(X.shape)}; expected 2D, rows by columns.")
    n, p = X.shape
    targets, weights = _beside(y, "y", n, kind), _beside(sample_weight, "sample_weight", n, kind)
    if targets is None:
        raise ValueError(f"y is None, but the {kind} holds X only: give y as an array or as a .npy file.")
    rows, refuse_change = _block_rows(p, X.dtype.itemsize), _watch(place, y, sample_weight)

    def read() -> Iterator[Triple]:
        for start in range(0, n, rows):
            here = slice(start, min(start + rows, n))
            with _reading(kind):
                x, target, weight = (None if a is None else np.asarray(a[here]) for a in (X, targets, weights))
            yield x, target, weight
        refuse_change()

    return BlockSource(read, kind, True, n)


def _beside(given: Any, name: str, n: int, kind: str) -> Any:
    """y or weights that stand beside X: an array or a .npy file, of n rows."""
    if given is None:
        return None
    if isinstance(given, (str, Path)):
        if Path(given).suffix != ".npy" or not Path(given).exists():
            raise ValueError(f"{name}={str(given)!r} is not a .npy file that exists; the {kind} has no named columns.")
        given = _NpyRows(Path(given))
    given = given if hasattr(given, "shape") else np.asarray(given)
    if name == "sample_weight" and given.shape == ():
        return np.broadcast_to(np.asarray(given, dtype=np.float64), (n,))  # one weight for all rows
    if given.shape[:1] != (n,):
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}, but the {kind} has {n} rows; every row needs its own."
        )
    return given


def _parquet(dataset: Any, y: Any, sample_weight: Any, kind: str, files: Sequence[str]) -> BlockSource:
    """Blocks of some files, or of whatever Arrow calls a dataset; y and weights are columns or stand beside it."""
    from pyarrow import types

    schema = dataset.schema
    names, taken = split_columns(schema.names, y, sample_weight, kind)
    refuse_time_columns([name for name in (*names, *taken) if types.is_temporal(schema.field(name).type)], kind)
    numeric = (types.is_integer, types.is_floating, types.is_boolean)
    refuse_text([name for name in names if not any(test(schema.field(name).type) for test in numeric)], len(names))
    if y is None:
        raise ValueError(f"y is None: name the column of {kind} that holds the target.")
    with _reading(kind):
        n = int(dataset.count_rows())
    given = [(y, "y"), (sample_weight, "sample_weight")]
    beside = [a if named_columns(a) else _beside(a, name, n, kind) for a, name in given]
    refuse_change, columns, rows = _watch(*files, y, sample_weight), [*names, *taken], _block_rows(len(names))

    def read() -> Iterator[Triple]:
        start = 0
        batches = _to_the_end(dataset.to_batches(columns=columns, batch_size=rows), kind) if not files else None
        for batch in batches or parquet_batches(files, columns, rows, kind):
            here = slice(start, start + batch.num_rows)
            target, weight = (
                _stack_columns(batch, a) if named_columns(a) else a if a is None else a[here] for a in beside
            )
            yield _stack_columns(batch, names), target, weight
            start += batch.num_rows
        refuse_change()

    return BlockSource(read, kind, True, n, names)


def named_columns(given: Any) -> list[str] | None:
    """Column names in y or sample_weight, or None where they are arrays or files."""
    if isinstance(given, str) and not given.endswith(".npy"):
        return [given]
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, str) for item in given):
        return list(given)
    return None


def split_columns(columns: Sequence[str], y: Any, sample_weight: Any, kind: str) -> tuple[list[str], list[str]]:
    """Names of the columns of X, and those of y and weights where these are named."""
    taken = [*(named_columns(y) or []), *(named_columns(sample_weight) or [])]
    names, missing = [name for name in columns if name not in taken], [name for name in taken if name not in columns]
    if missing or not names:
        raise ValueError(f"{kind} has no column {missing or 'for X'}; it has {some_of(columns)}.")
    return names, taken


def parquet_batches(
    files: Sequence[str], columns: Sequence[str], rows: int, kind: str, dictionaries: Sequence[str] = ()
) -> Iterator[Any]:
    """Arrow batches of some columns, file after file, at most `rows` at a time.

    Columns in `dictionaries` are read as such: a long text repeated in many rows is not written out.

    Not by Arrow's dataset scanner, which decodes whole row groups, several of them ahead: those are often as large as
    the file. For the same reason columns are read through small buffers.
    """
    import pyarrow.parquet as pq

    refuse_change = _watch(*files)
    for name in files:
        with _reading(kind):
            opened = pq.ParquetFile(name, pre_buffer=False, buffer_size=1 << 16, read_dictionary=list(dictionaries))
        with opened as file:
            missing = sorted(set(columns) - set(file.schema_arrow.names))
            if missing:
                raise ValueError(f"{name} has no column {missing[0]!r}, which other files of {kind} have.")
            yield from _to_the_end(file.iter_batches(rows, columns=columns), kind)
    refuse_change()


def _to_the_end(batches: Iterator[Any], kind: str) -> Iterator[Any]:
    """Batches that have rows."""
    while True:
        with _reading(kind):
            batch = next(batches, None)
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def _stack_columns(batch: Any, names: str | Sequence[str]) -> NDArray[Any]:
    """One column of an Arrow batch, or several in one array, in single precision if they all are; nulls become NaN."""
    if isinstance(names, str):
        return np.asarray(batch.column(names).to_numpy(zero_copy_only=False))
    columns = [_stack_columns(batch, name) for name in names]
    single = all(column.dtype == np.float32 for column in columns)
    return np.stack(columns, axis=1, dtype=np.float32 if single else np.float64, casting="unsafe")


def _iterator(X: Any, y: Any, sample_weight: Any) -> BlockSource:
    if y is not None or sample_weight is not None:
        raise ValueError(
            "X yields blocks, so y and sample_weight come with them: yield (X, y) or (X, y, weight) and pass y=None."
        )
    once = isinstance(X, Iterator)

    def read() -> Iterator[Triple]:
        blocks = X if once else X()
        if not hasattr(blocks, "__iter__"):
            raise ValueError(
                f"X is a function that returned {blocks!r:.80} of type {type(blocks).__name__}; it must return an "
                f"iterator of blocks (X, y) or (X, y, weight), a fresh one at every call."
            )
        for number, block in enumerate(blocks):
            if not isinstance(block, (tuple, list)) or len(block) not in (2, 3):
                raise ValueError(f"block {number} is not a pair (X, y) or a triple (X, y, weight).")
            yield block[0], block[1], block[2] if len(block) == 3 else None

    return BlockSource(read, "iterator", rereadable=not once)


def some_of(items: Sequence[Any]) -> str:
    """The first of them, for messages."""
    return ", ".join(map(repr, items[:5])) + (" ..." if len(items) > 5 else "")


def require_positive(kept: int, given: int, least: int = 2) -> None:
    """Refuse weights that leave too few rows."""
    if kept < least:
        raise ValueError(
            f"sample_weight is positive for {kept} of {given} rows, but at least {least} rows with positive weight are "
            f"needed; a weight of zero drops the row."
        )


def describe_not_finite(values: Any, what: str, names: Sequence[str] | None = None) -> str | None:
    """A sentence on NaN and infinity in an array of floats, dense or sparse, or None where all its numbers are finite.

    It names the first of them in the order of rows, counted from 0, and the column by its name where it has one.
    """
    if hasattr(values, "tocoo"):
        entries = values.tocoo()
        numbers, rows, columns = entries.data, entries.row, entries.col
    else:
        table = values.reshape(len(values), -1)
        rows, columns = np.nonzero(~np.isfinite(table))
        numbers = table[rows, columns]
    missing, infinite = np.isnan(numbers), np.isinf(numbers)
    if not (missing.any() or infinite.any()):
        return None
    some_missing = bool(missing.any())
    bad = missing if some_missing else infinite
    order = np.lexsort((columns[bad], rows[bad]))
    row, column = int(rows[bad][order[0]]), int(columns[bad][order[0]])
    place = f"row {row} (counted from 0)"
    if values.ndim == 2:
        place += f", column {column if names is None else repr(names[column])}"
    count, n_rows = int(bad.sum()), len(np.unique(rows[bad]))
    kind, adjective = ("NaN", "missing") if some_missing else ("infinity", "infinite")
    counts = f"{count} {adjective} value{'s' if count > 1 else ''} in {n_rows} of {values.shape[0]} rows"
    instead = "Drop these rows"
    if what == "X":
        instead += ", or fill the gaps with sklearn.impute.SimpleImputer" if some_missing else ", or mend the values"
    return f"{what} contains {kind}: {counts}, the first in {place}. {instead}."


def as_table(X: Any) -> Any:
    """An Arrow record batch as a table, in which scikit-learn and narwhals see the columns; anything else as it is."""
    if type(X).__module__.split(".")[0] == "pyarrow" and type(X).__name__ == "RecordBatch":
        return from_extra("pyarrow", "parquet", "A record batch").Table.from_batches([X])
    return X


def refuse_times(where: str = "", /, **arrays: Any) -> None:
    """Raise where X, y or weights hold dates or durations, of which NumPy would make counts of some unit."""
    for name, values in arrays.items():
        usual = isinstance(values, np.ndarray) and values.dtype.kind in "fiub"
        if not usual and values is not None:
            _refuse_times_in(values, f"{name}{where}")


def _refuse_times_in(values: Any, what: str) -> None:
    values = as_table(values)
    if nw.dependencies.is_into_dataframe(values):
        try:
            frame = nw.from_native(values)
            columns: list[Any] = [column.name for column in frame.iter_columns() if _is_time(column)]
        except nw.exceptions.DuplicateError:  # names that are there twice
            columns = _time_columns_of_array(np.asarray(values))
        refuse_time_columns(columns, what)
    elif nw.dependencies.is_into_series(values):
        series = nw.from_native(values, series_only=True)
        refuse_time_columns([series.name or 0] if _is_time(series) else [], what)
    elif not hasattr(values, "toarray"):  # sparse matrices hold numbers
        refuse_time_columns(_time_columns_of_array(values), what)


def _is_time(column: Any) -> bool:
    if column.dtype == nw.Object:
        return _holds_times(column.to_numpy())
    return bool(column.dtype.is_temporal())


def _holds_times(values: NDArray[Any]) -> bool:
    """Whether an array is of times, or some of its objects are."""
    if values.dtype.kind == "O":
        return any(isinstance(value, TIMES) for value in values.ravel())
    return values.dtype.kind in "mM"


def _time_columns_of_array(values: Any) -> list[int]:
    """Columns of an array, or of what becomes one, that hold times."""
    dtype = getattr(values, "dtype", None)
    kind = "O" if dtype is None else getattr(dtype, "kind", "f")  # types of other libraries have no kind, and no times
    if isinstance(values, str) or kind not in "mMO":
        return []
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths, for one, which scikit-learn refuses
        return []
    columns = array if array.ndim == 2 and array.shape[1] else array.reshape(-1, 1)  # Dask's samples have no columns
    return [j for j in range(columns.shape[1]) if _holds_times(columns[:, j])]


def refuse_time_columns(columns: Sequence[Any], what: str) -> None:
    """Name the columns of X or y (`what`) that hold times, if there are any."""
    if columns:
        raise ValueError(
            f"{what} holds dates or times in column {some_of(columns)}, which are not numbers: give differences to a "
            f"reference date, for instance (t - t.min()) / numpy.timedelta64(1, 'D'), or fit the table with the "
            f"command olsen fit --dates."
        )


def refuse_text(text: Sequence[str], n_columns: int) -> None:
    """Name the columns that do not hold numbers, if there are any."""
    if text:
        raise ValueError(
            f"{len(text)} of {n_columns} columns do not hold numbers: {some_of(text)}. Encode them first, for instance "
            f"with sklearn.preprocessing.OneHotEncoder, or leave them out."
        )
