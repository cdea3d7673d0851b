"""Data that are read row block by row block: files, memory maps, chunked arrays, iterators.

What `fit` takes for blocks, and where y and weights come from:

====================================================  ===========================================================
X                                                     y and sample_weight
====================================================  ===========================================================
path ending in ``.npy``                               array, memory map or path ending in ``.npy``
``numpy.memmap`` of more than a quarter of memory     the same
``zarr.Array``, or path ending in ``.zarr``           the same, or another zarr array
path to a Parquet file or folder, pyarrow Dataset     name of a column, or the same as above
iterator of (X, y) or (X, y, weight) blocks           None: they come with the blocks; read once
function that returns such an iterator                None; read again when needed
====================================================  ===========================================================

Everything else is an array or a data frame and is loaded as a whole. Blocks are passed on as they are stored; whoever
sums them decides on the type. A single number as sample_weight is the weight of every row.

Files that change between their opening and the end of a pass are refused (size, time of change, identity): rows of two
versions would be summed, and a chunk that zarr does not find is zeros to it.
"""

from __future__ import annotations

import math
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .._execution.extras import from_extra
from .._execution.threads import room_for_a_thread
from ..subsets import row_groups

__all__ = [
    "Block",
    "BlockSource",
    "Checked",
    "FileRows",
    "ahead",
    "check_columns",
    "check_weights",
    "checked",
    "name_bad_rows",
    "named_columns",
    "open_source",
    "parquet_batches",
    "refuse_text",
    "require_positive",
    "split_rows",
]

Batches = Callable[[Sequence[str], int], Iterator[Any]]  # (columns, most rows at a time) -> Arrow batches

BLOCK_BYTES = 1 << 24  # of a block as stored
FileState = dict[str, tuple[int, int, int]]  # name -> number, size and time of change of a file


class Block(NamedTuple):
    """Consecutive rows."""

    X: Any  # (rows, p)
    y: Any  # (rows,) or (rows, q)
    weight: Any  # (rows,) or None


@dataclass(frozen=True)
class BlockSource:
    """Rows in blocks.

    Parameters
    ----------
    read : callable
        Returns a fresh iterator over blocks.
    kind : str
        What it is, for messages.
    rereadable : bool
        Whether `read` may be called again.
    n_rows : int or None
        Number of rows where it is known beforehand.
    names : list of str or None
        Names of the columns.
    """

    read: Callable[[], Iterator[Block]]
    kind: str
    rereadable: bool = True
    n_rows: int | None = None
    names: list[str] | None = None


def open_source(X: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """The blocks of X, or None where X is to be loaded as a whole."""
    if isinstance(X, (str, Path)):
        return _open_path(Path(X), y, sample_weight)
    if isinstance(X, np.memmap):
        large = X.ndim == 2 and X.nbytes > memory.available_bytes() / 4
        if not large:
            return None
        return _watched(_slices(_rows_of_map(X), y, sample_weight, "memory map"), [X.filename, y, sample_weight])
    module = type(X).__module__.split(".")[0]
    if module == "zarr":
        return _watched(_slices(X, y, sample_weight, "zarr array"), [_zarr_folder(X), y, sample_weight])
    if module == "pyarrow" and hasattr(X, "to_batches") and hasattr(X, "scanner"):
        return _parquet(X, y, sample_weight, "Arrow dataset", partial(_dataset_batches, X))
    if isinstance(X, Iterator) or (callable(X) and not hasattr(X, "shape")):
        return _iterator(X, y, sample_weight)
    return None


@dataclass(frozen=True)
class Checked:
    """A block with what it must have: X (rows, p), y (rows, q), its number and the number of its first row."""

    X: Any
    y: Any
    weight: Any
    number: int
    first: int
    single: bool  # whether y was a vector
    dtype: Any  # floating type of results
    kind: str = "source"  # what it is a block of
    local: bool = False  # whether rows are numbered within the block: those before are not counted
    names: list[str] | None = None  # of the columns, where the block is a data frame

    @property
    def where(self) -> str:
        """For messages."""
        if self.local:
            return f"partition {self.number} of the {self.kind}"
        return f"block {self.number} of the {self.kind} (rows {self.first} to {self.first + len(self.X) - 1})"

    def listed(self, rows: NDArray[np.int64]) -> str:
        """Some of its rows, for messages."""
        shown = ", ".join(str(self.first + row) for row in rows[:5]) + (" ..." if len(rows) > 5 else "")
        return f"in {len(rows)} rows{' (numbered within the partition)' if self.local else ''}: {shown}"


def checked(source: BlockSource, n_ahead: int = 1) -> Iterator[Checked]:
    """All blocks of a source, read ahead, each of the shape of the first."""
    shape, first, names = None, 0, None
    for number, block in enumerate(ahead(source.read(), n_ahead)):
        X, y, own = _dense(block.X), np.asarray(block.y), _column_names(block.X)
        single, y = y.ndim == 1, y[:, None] if y.ndim == 1 else y
        where = f"block {number} of the {source.kind}"
        if X.ndim != 2 or X.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
            raise ValueError(
                f"{where} has X of shape {X.shape} and type {X.dtype}, y of type {y.dtype}; 2D numbers needed."
            )
        shape = shape or (X.shape[1], y.shape[1])
        if (X.shape[1], y.shape[1]) != shape:
            raise ValueError(
                f"{where} has {X.shape[1]} columns and {y.shape[1]} targets, but the blocks before have {shape[0]} and "
                f"{shape[1]}."
            )
        names = own if number == 0 else names
        if own and names and own != names:
            raise ValueError(_other_names(where, own, names))
        weight = None if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        if weight is not None and weight.ndim == 0:
            weight = np.full(len(X), weight)
        if len(y) != len(X) or (weight is not None and weight.shape != (len(X),)):
            given = None if weight is None else weight.shape
            raise ValueError(f"{where} has {len(X)} rows of X, {len(y)} of y and weights of shape {given}.")
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        whole = Checked(X, y, weight, number, first, single, dtype, source.kind, names=names)
        check_weights(whole)
        yield whole
        first += len(X)


def _other_names(where: str, own: list[str], names: list[str]) -> str:
    """What is wrong with the columns of a block."""
    odd = sorted(set(own) ^ set(names)) or [name for name, first in zip(own, names, strict=True) if name != first]
    listed = ", ".join(map(repr, odd[:5])) + (" ..." if len(odd) > 5 else "")
    return (
        f"{where} has other columns than the first block, or another order of them: {listed}. Give every block the "
        f"same columns in one order."
    )


def check_weights(block: Checked) -> None:
    """Refuse weights that are negative or no numbers."""
    if block.weight is None:
        return
    if not np.isfinite(block.weight).all():
        name_bad_rows(block)
    negative = np.flatnonzero(block.weight < 0)
    if len(negative):
        raise ValueError(
            f"{block.where} has negative weights, {block.listed(negative)}. Weights must be at least zero; zero drops "
            f"the row."
        )


def split_rows(block: Checked, n_groups: int, seed: int) -> Iterator[tuple[int, Any, Any, Any]]:
    """(group, X, y, weight) of the rows of a block, without those of weight zero and groups without rows.

    The group of a row depends on the seed and on the row's number alone, not on how rows are cut into blocks.
    """
    keep = slice(None) if block.weight is None else block.weight > 0
    if not len(block.X[keep]):
        return
    if n_groups == 1:
        yield 0, block.X[keep], block.y[keep], None if block.weight is None else block.weight[keep]
        return
    group = row_groups(block.first, len(block.X), n_groups, seed)
    for g in range(n_groups):
        here = group == g if block.weight is None else (group == g) & keep
        if here.any():
            yield g, block.X[here], block.y[here], None if block.weight is None else block.weight[here]


def name_bad_rows(block: Checked) -> None:
    """Raise for the rows of a block that hold NaN or infinity."""
    columns = {"X": block.X, "y": block.y}
    if block.weight is not None:
        columns["sample_weight"] = block.weight[:, None]
    for name, part in columns.items():
        bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
        if len(bad):
            raise ValueError(
                f"{block.where} contains NaN or infinity in {name}, {block.listed(bad)}. Impute or drop them first."
            )
    raise ValueError(f"{block.where} holds numbers whose squares overflow; rescale the columns.")


def _dense(X: Any) -> NDArray[Any]:
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


def ahead(blocks: Iterator[Block], count: int) -> Iterator[Block]:
    """The same blocks, read while those before are worked on."""
    if not room_for_a_thread():
        yield from blocks
        return
    with ThreadPoolExecutor(1) as reader:
        coming = deque(reader.submit(next, blocks, None) for _ in range(count))
        try:
            while (block := coming.popleft().result()) is not None:
                coming.append(reader.submit(next, blocks, None))
                yield block
        finally:
            reader.shutdown(cancel_futures=True)


def _open_path(path: Path, y: Any, sample_weight: Any) -> BlockSource:
    if not path.exists():
        raise FileNotFoundError(f"X is the path {str(path)!r}, but there is no such file.")
    if path.suffix == ".npy":
        return _watched(_slices(FileRows.of(path), y, sample_weight, f"file {path}"), [path, y, sample_weight])
    if path.suffix == ".zarr":
        zarr, kind = from_extra("zarr", "zarr", "Reading zarr arrays"), f"zarr array {path}"
        with _reading(kind):
            found = zarr.open(str(path), mode="r")
        return _watched(_slices(found, y, sample_weight, kind), [path, y, sample_weight])
    if path.suffix in (".parquet", ".pq") or path.is_dir():
        datasets, kind = from_extra("pyarrow.dataset", "parquet", "Reading Parquet"), f"Parquet {path}"
        with _reading(kind):
            dataset = datasets.dataset(str(path), format="parquet")
        batches = partial(parquet_batches, dataset.files, kind=kind)
        return _watched(_parquet(dataset, y, sample_weight, kind, batches), [*dataset.files, y, sample_weight])
    raise ValueError(f"X is the path {str(path)!r}; files ending in .npy, .parquet or .zarr can be read, this cannot.")


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Errors of the library that reads a file, with what may be the reason."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # of zarr's codecs, too; ArrowInvalid is a ValueError
        raise ValueError(f"{kind} cannot be read to its end ({error}); it may have been cut short.") from error


def _refuse_zarr_group(X: Any, kind: str) -> None:
    """A folder of arrays is not an array: name those in it."""
    if not hasattr(X, "shape"):
        held = sorted(X.array_keys())
        inside = f"the arrays {', '.join(map(repr, held[:8]))}" if held else "no array"
        raise ValueError(f"the {kind} is a group, which holds {inside}. Pass one array of it as X, y as another.")


def _zarr_folder(X: Any) -> Any:
    """Where a zarr array is, if that is a folder of this machine."""
    root, inner = getattr(getattr(X, "store", None), "root", None), getattr(X, "path", "")
    return root / inner if isinstance(root, Path) and isinstance(inner, str) else None


def _watched(source: BlockSource, given: Iterable[Any]) -> BlockSource:
    """The same rows; an error at the end of a pass if one of the files has changed since now.

    What is given and no path of a file or folder is passed over: arrays, names of columns, None.
    """
    paths = [path for path in given if isinstance(path, (str, Path)) and os.path.exists(path)]
    before = [_file_state(path) for path in paths]

    def read() -> Iterator[Block]:
        yield from source.read()
        for path, state in zip(paths, before, strict=True):
            _refuse_change(path, state)

    return replace(source, read=read)


def _slices(X: Any, y: Any, sample_weight: Any, kind: str) -> BlockSource:
    """Blocks of something that has a shape and can be sliced by rows; whole chunks of chunked storage."""
    _refuse_zarr_group(X, kind)
    if len(X.shape) != 2:
        raise ValueError(f"the {kind} has shape {tuple(X.shape)}; expected 2D, rows by columns.")
    n, p = X.shape
    targets, weights = (_beside(a, name, n, kind) for a, name in ((y, "y"), (sample_weight, "sample_weight")))
    if targets is None:
        raise ValueError(f"y is None, but the {kind} holds X only: give y as an array or as a .npy file.")
    rows = max(1, BLOCK_BYTES // (p * X.dtype.itemsize))
    chunk = getattr(X, "chunks", None)
    if chunk:
        rows = max(chunk[0], rows // chunk[0] * chunk[0])

    def read() -> Iterator[Block]:
        for start in range(0, n, rows):
            here = slice(start, min(start + rows, n))
            weight = None if weights is None else np.asarray(weights[here])
            with _reading(kind):
                x = np.asarray(X[here])
            yield Block(x, np.asarray(targets[here]), weight)

    return BlockSource(read, kind, True, n)


def _beside(given: Any, name: str, n: int, kind: str) -> Any:
    """y or weights that stand beside X: an array, something chunked, or a .npy file, of n rows."""
    if given is None:
        return None
    if isinstance(given, (str, Path)):
        if Path(given).suffix != ".npy" or not Path(given).exists():
            raise ValueError(f"{name}={str(given)!r} is not a .npy file that exists; the {kind} has no named columns.")
        given = FileRows.of(Path(given))
    given = given if hasattr(given, "shape") else np.asarray(given)
    if name == "sample_weight" and given.shape == ():
        return np.broadcast_to(np.asarray(given, dtype=np.float64), (n,))  # one weight for all rows
    if given.shape == ():
        raise ValueError(f"{name} is a single value, but the {kind} has {n} rows; every row needs its own.")
    if given.shape[:1] != (n,):
        raise ValueError(f"{name} has {given.shape[0]} rows, but the {kind} has {n}.")
    return given


def _parquet(dataset: Any, y: Any, sample_weight: Any, kind: str, batches: Batches) -> BlockSource:
    named_y, named_weight = named_columns(y), named_columns(sample_weight)
    taken = [*(named_y or []), *(named_weight or [])]
    names = _remaining_columns(dataset.schema, taken, kind)
    with _reading(kind):
        n = int(dataset.count_rows())
    y_beside = None if named_y else _beside(y, "y", n, kind)
    w_beside = None if named_weight else _beside(sample_weight, "sample_weight", n, kind)
    if y_beside is None and not named_y:
        raise ValueError(f"y is None: name the column of {kind} that holds the target.")

    def read() -> Iterator[Block]:
        start = 0
        for batch in batches([*names, *taken], max(1, BLOCK_BYTES // (8 * len(names)))):
            here = slice(start, start + batch.num_rows)
            target, weight = _of_batch(batch, y, y_beside, here), _of_batch(batch, sample_weight, w_beside, here)
            yield Block(_stack_columns(batch, names), target, weight)
            start += batch.num_rows

    return BlockSource(read, kind, True, n, names)


def named_columns(given: Any) -> list[str] | None:
    """Column names in y or sample_weight, or None where they are arrays or files."""
    if isinstance(given, str) and not given.endswith(".npy"):
        return [given]
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, str) for item in given):
        return list(given)
    return None


def _remaining_columns(schema: Any, taken: Sequence[str], kind: str) -> list[str]:
    """Names of the columns of X: all but those taken for y and weights, which must be there; numbers, every one."""
    from pyarrow import types

    names = [name for name in schema.names if name not in taken]
    missing = [name for name in taken if name not in schema.names]
    if missing:
        raise ValueError(f"{kind} has no column {missing[0]!r}; it has {', '.join(map(repr, schema.names[:8]))}.")
    numeric = (types.is_integer, types.is_floating, types.is_boolean)
    refuse_text([name for name in names if not any(test(schema.field(name).type) for test in numeric)], len(names))
    return names


def parquet_batches(
    files: Sequence[str], columns: Sequence[str], rows: int, kind: str, dictionaries: Sequence[str] = ()
) -> Iterator[Any]:
    """Arrow batches of some columns, file after file, at most `rows` at a time.

    Columns in `dictionaries` are read as such: a long text repeated in many rows is not written out.

    Not by Arrow's dataset scanner, which decodes whole row groups, several of them ahead: those are often as large as
    the file. For the same reason columns are read through small buffers.
    """
    import pyarrow.parquet as pq

    for name in files:
        before = _file_state(name)
        with _reading(kind):
            opened = pq.ParquetFile(name, pre_buffer=False, buffer_size=1 << 16, read_dictionary=list(dictionaries))
        with opened as file:
            missing = sorted(set(columns) - set(file.schema_arrow.names))
            if missing:
                raise ValueError(f"{name} has no column {missing[0]!r}, which other files of {kind} have.")
            yield from _to_the_end(file.iter_batches(rows, columns=columns), kind)
        _refuse_change(name, before)


def _dataset_batches(dataset: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
    """Batches of some columns of an Arrow dataset, about `rows` at a time."""
    return _to_the_end(dataset.to_batches(columns=columns, batch_size=rows), "Arrow dataset")


def _to_the_end(batches: Iterator[Any], kind: str) -> Iterator[Any]:
    """Batches that have rows."""
    while True:
        with _reading(kind):
            batch = next(batches, None)
        if batch is None:
            return
        if batch.num_rows:
            yield batch


def _of_batch(batch: Any, given: Any, beside: Any, rows: slice) -> Any:
    """y or weights of a batch: columns of its own, or rows of what stands beside it."""
    if given is None:
        return None
    return _stack_columns(batch, given) if beside is None else beside[rows]


def _stack_columns(batch: Any, names: str | Sequence[str]) -> NDArray[Any]:
    """Columns of an Arrow batch as one array, in single precision if they all are; nulls become NaN."""
    if isinstance(names, str):
        column: NDArray[Any] = batch.column(names).to_numpy(zero_copy_only=False)
        return column
    single = all(batch.schema.field(name).type == "float" for name in names)
    out = np.empty((batch.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    for j, name in enumerate(names):
        out[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
    return out


def _iterator(X: Any, y: Any, sample_weight: Any) -> BlockSource:
    if y is not None or sample_weight is not None:
        raise ValueError(
            "X yields blocks, so y and sample_weight come with them: yield (X, y) or (X, y, weight) and pass y=None."
        )
    once = iter(X) if isinstance(X, Iterator) else None

    def read() -> Iterator[Block]:
        for number, block in enumerate(_returned(X) if once is None else once):
            if not isinstance(block, (tuple, list)) or len(block) not in (2, 3):
                raise ValueError(f"block {number} is not a pair (X, y) or a triple (X, y, weight).")
            yield Block(block[0], block[1], block[2] if len(block) == 3 else None)

    return BlockSource(read, "iterator", rereadable=once is None)


def _returned(function: Callable[[], Any]) -> Iterator[Any]:
    """The iterator that a function gives."""
    given = function()
    if not hasattr(given, "__iter__"):
        raise ValueError(
            f"X is a function that returned {given!r:.80} of type {type(given).__name__}; it must return an iterator "
            f"of blocks (X, y) or (X, y, weight), a fresh one at every call. Yield them, or return iter(...)."
        )
    blocks: Iterator[Any] = iter(given)
    return blocks


@dataclass(frozen=True)
class FileRows:
    """An array in a file, of which rows are read when they are asked for: ``rows[start:stop]``.

    Read, not mapped: where a mapped file is cut short, the system ends the process at the first look at a missing row
    (SIGBUS), whereas a read comes back short and can be refused.
    """

    path: Path
    offset: int  # of its first entry, in bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool  # Fortran order: the rows of a block lie all over the file

    @classmethod
    def of(cls, path: Path) -> FileRows:
        """From the header of a .npy file; ValueError if the file is not whole."""
        with _reading(f"file {path}"), open(path, "rb") as file:
            major = np.lib.format.read_magic(file)[0]
            header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = header(file)
            if dtype.hasobject:
                raise ValueError("it holds Python objects, not numbers")
            found = cls(path, file.tell(), shape, dtype, by_columns and len(shape) > 1)
        needed, there = found.offset + math.prod(shape) * dtype.itemsize, os.path.getsize(path)
        if there < needed:
            raise ValueError(
                f"file {path} has {there} bytes, its header asks for {needed}; it may have been cut short."
            )
        return found

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        count, width = stop - start, math.prod(self.shape[1:])
        if not self.by_columns:
            return self._entries(start * width, count * width).reshape(count, *self.shape[1:])
        columns = [self._entries(j * self.shape[0] + start, count) for j in range(width)]
        return np.stack(columns, axis=1).reshape(count, *self.shape[1:])

    def _entries(self, first: int, count: int) -> NDArray[Any]:
        found = np.fromfile(self.path, self.dtype, count, offset=self.offset + first * self.dtype.itemsize)
        if len(found) < count:
            raise ValueError(
                f"{self.path} was cut short while it was read: {self.shape} entries of type {self.dtype} when it was "
                f"opened, now it ends before entry {first + count}. Fit again when it is whole."
            )
        return found


def _rows_of_map(X: Any) -> Any:
    """A memory map as rows that are read from its file: pages that were mapped would stay in the process."""
    pages = getattr(X, "_mmap", None)
    if pages is None or X.filename is None or X.mode not in ("r", "r+") or not X.flags.forc:
        return X
    begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY  # where the pages begin in the file
    offset = begin + X.ctypes.data - np.frombuffer(pages, dtype=np.uint8, count=1).ctypes.data
    return FileRows(Path(X.filename), offset, X.shape, X.dtype, not X.flags.c_contiguous)


def _file_state(path: str | Path) -> FileState:
    """Identity, size and time of change of a file, or of all files below a folder; empty if there is none."""
    names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files] or [str(path)]
    found = {}
    for name in names:
        try:
            entry = os.stat(name)
        except FileNotFoundError:
            continue
        found[name] = (entry.st_ino, entry.st_size, entry.st_mtime_ns)
    return found


def _refuse_change(path: str | Path, before: FileState) -> None:
    """Raise ValueError if a file, or one below a folder, is no longer what :func:`_file_state` has found."""
    now = _file_state(path)
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        more = f" and {len(changed) - 1} other files" if len(changed) > 1 else ""
        raise ValueError(
            f"{changed[0]}{more} changed while the data were read, so rows of two versions would be mixed. Fit again "
            f"when nobody writes to it, or fit a copy."
        )


def require_positive(kept: int, given: int, least: int = 2) -> None:
    """Refuse weights that leave too few rows."""
    if kept < least:
        raise ValueError(
            f"sample_weight is positive for {kept} of {given} rows, but at least {least} rows with positive weight are "
            f"needed; a weight of zero drops the row."
        )


def refuse_text(text: Sequence[str], n_columns: int) -> None:
    """Name the columns that do not hold numbers, if there are any."""
    if text:
        shown = ", ".join(repr(name) for name in text[:5]) + (f" and {len(text) - 5} more" if len(text) > 5 else "")
        raise ValueError(
            f"{len(text)} of {n_columns} columns do not hold numbers: {shown}. Encode them first, for instance with "
            f"sklearn.preprocessing.OneHotEncoder, or leave them out."
        )


def _column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame; None for arrays, and where names are not texts, as in scikit-learn."""
    names = getattr(X, "columns", None)
    return list(names) if names is not None and all(isinstance(name, str) for name in names) else None


def check_columns(given: Sequence[str] | None, n_given: int, fitted: Sequence[str] | None, n: int, who: str) -> None:
    """Refuse columns that are not those of the fit, in scikit-learn's words."""
    if given is not None and fitted is not None and list(given) != list(fitted):
        raise ValueError(_names_differ([str(name) for name in given], [str(name) for name in fitted]))
    if n_given != n:
        raise ValueError(f"X has {n_given} features, but {who} is expecting {n} features as input.")


def _names_differ(given: list[str], fitted: list[str]) -> str:
    parts = ["The feature names should match those that were passed during fit."]
    for names, others, title in (
        (given, set(fitted), "Feature names unseen at fit time:"),
        (fitted, set(given), "Feature names seen at fit time, yet now missing:"),
    ):
        odd = sorted(set(names) - others)
        if odd:
            parts += [title, *(f"- {name}" for name in odd[:5]), *(["- ..."] if len(odd) > 5 else [])]
    if len(parts) == 1:
        parts.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(parts) + "\n"
