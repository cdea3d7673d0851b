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

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .._execution.extras import from_extra
from .._execution.threads import room_for_a_thread
from ..subsets import row_groups
from . import parquet
from .checks import column_names, cut_short
from .maps import FileRows, file_state, refuse_change, row_reader

__all__ = [
    "Block",
    "BlockSource",
    "Checked",
    "ahead",
    "check_weights",
    "checked",
    "name_bad_rows",
    "open_source",
    "split_rows",
]

Batches = Callable[[Sequence[str], int], Iterator[Any]]  # (columns, most rows at a time) -> Arrow batches

BLOCK_BYTES = 1 << 24  # of a block as stored


class Block(NamedTuple):
    """Consecutive rows."""

    X: Any  # (rows, p)
    y: Any  # (rows,) or (rows, q)
    weight: Any  # (rows,) or None
    release: Callable[[], None] | None = None  # to be called when X has been used


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
    names: list[str] | None = field(default=None)


def open_source(X: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """The blocks of X, or None where X is to be loaded as a whole."""
    if isinstance(X, (str, Path)):
        return _open_path(Path(X), y, sample_weight)
    if isinstance(X, np.memmap):
        large = X.ndim == 2 and X.nbytes > memory.available_bytes() / 4
        return _watched(_slices(X, y, sample_weight, "memory map"), [X.filename, y, sample_weight]) if large else None
    module = type(X).__module__.split(".")[0]
    if module == "zarr":
        return _watched(_slices(X, y, sample_weight, "zarr array"), [_zarr_folder(X), y, sample_weight])
    if module == "pyarrow" and hasattr(X, "to_batches") and hasattr(X, "scanner"):
        return _parquet(X, y, sample_weight, "Arrow dataset", partial(parquet.dataset_batches, X))
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
    release: Callable[[], None] | None = None  # to be called when X has been used
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
        X, y, own = _dense(block.X), np.asarray(block.y), column_names(block.X)
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
        whole = Checked(X, y, weight, number, first, single, dtype, block.release, source.kind, names=names)
        check_weights(whole)
        yield whole
        first += len(X)


def _other_names(where: str, own: list[str], names: list[str]) -> str:
    """What is wrong with the columns of a block."""
    new, lost = [name for name in own if name not in names], [name for name in names if name not in own]
    if not (new or lost):
        j = next(j for j, pair in enumerate(zip(own, names, strict=True)) if len(set(pair)) == 2)
        odd = f"column {j} is {own[j]!r} where the first block has {names[j]!r}"
    else:
        odd = "; ".join(
            f"{title} {', '.join(map(repr, some[:5]))}{' ...' if len(some) > 5 else ''}"
            for title, some in (("it has", new), ("it lacks", lost))
            if some
        )
    return f"{where} has other columns than the first block: {odd}. Give every block the same columns in one order."


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
        return _watched(_slices(_rows_of_file(path), y, sample_weight, f"file {path}"), [path, y, sample_weight])
    if path.suffix == ".zarr":
        zarr_array = _slices(_open_zarr(path), y, sample_weight, f"zarr array {path}")
        return _watched(zarr_array, [path, y, sample_weight])
    if path.suffix in (".parquet", ".pq") or path.is_dir():
        dataset, kind = parquet.open_dataset(path), f"Parquet {path}"
        batches = partial(parquet.parquet_batches, dataset.files, kind=kind)
        return _watched(_parquet(dataset, y, sample_weight, kind, batches), [*dataset.files, y, sample_weight])
    raise ValueError(f"X is the path {str(path)!r}; files ending in .npy, .parquet or .zarr can be read, this cannot.")


def _open_zarr(path: Path) -> Any:
    zarr = from_extra("zarr", "zarr", "Reading zarr arrays")
    try:
        return zarr.open(str(path), mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a zarr array ({error}); it may have been cut short.") from error


def _refuse_zarr_group(X: Any, kind: str) -> None:
    """A folder of arrays is not an array: name those in it."""
    if not hasattr(X, "shape"):
        held = sorted(X.array_keys())
        inside = f"the arrays {', '.join(map(repr, held[:8]))}" if held else "no array"
        raise ValueError(f"the {kind} is a group, which holds {inside}. Pass one array of it as X, y as another.")


def _rows_of_file(path: str | Path) -> FileRows:
    try:
        return FileRows.of(Path(path))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a .npy array ({error}); it may have been cut short.") from error


def _zarr_folder(X: Any) -> Any:
    """Where a zarr array is, if that is a folder of this machine."""
    root, inner = getattr(getattr(X, "store", None), "root", None), getattr(X, "path", "")
    return root / inner if isinstance(root, Path) and isinstance(inner, str) else None


def _watched(source: BlockSource, given: Iterable[Any]) -> BlockSource:
    """The same rows; an error at the end of a pass if one of the files has changed since now.

    What is given and no path of a file or folder is passed over: arrays, names of columns, None.
    """
    paths = [path for path in given if isinstance(path, (str, Path)) and os.path.exists(path)]
    before = [file_state(path) for path in paths]

    def read() -> Iterator[Block]:
        yield from source.read()
        for path, state in zip(paths, before, strict=True):
            refuse_change(path, state)

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

    take = row_reader(X)

    def read() -> Iterator[Block]:
        for start in range(0, n, rows):
            here = slice(start, min(start + rows, n))
            weight = None if weights is None else np.asarray(weights[here])
            try:
                x, release = take(here)
            except RuntimeError as error:  # of zarr's codecs
                raise cut_short(kind, error) from error
            yield Block(x, np.asarray(targets[here]), weight, release)

    return BlockSource(read, kind, True, n)


def _beside(given: Any, name: str, n: int, kind: str) -> Any:
    """y or weights that stand beside X: an array, something chunked, or a .npy file, of n rows."""
    if given is None:
        return None
    if isinstance(given, (str, Path)):
        if Path(given).suffix != ".npy" or not Path(given).exists():
            raise ValueError(f"{name}={str(given)!r} is not a .npy file that exists; the {kind} has no named columns.")
        given = _rows_of_file(given)
    given = given if hasattr(given, "shape") else np.asarray(given)
    if name == "sample_weight" and given.shape == ():
        return np.broadcast_to(np.asarray(given, dtype=np.float64), (n,))  # one weight for all rows
    if given.shape == ():
        raise ValueError(f"{name} is a single value, but the {kind} has {n} rows; every row needs its own.")
    if given.shape[:1] != (n,):
        raise ValueError(f"{name} has {given.shape[0]} rows, but the {kind} has {n}.")
    return given


def _parquet(dataset: Any, y: Any, sample_weight: Any, kind: str, batches: Batches) -> BlockSource:
    named_y, named_weight = parquet.named_columns(y), parquet.named_columns(sample_weight)
    taken = [*(named_y or []), *(named_weight or [])]
    names, n = parquet.remaining_columns(dataset, taken, kind), parquet.count_rows(dataset, kind)
    y_beside = None if named_y else _beside(y, "y", n, kind)
    w_beside = None if named_weight else _beside(sample_weight, "sample_weight", n, kind)
    if y_beside is None and not named_y:
        raise ValueError(f"y is None: name the column of {kind} that holds the target.")

    def read() -> Iterator[Block]:
        start = 0
        for batch in batches([*names, *taken], max(1, BLOCK_BYTES // (8 * len(names)))):
            here = slice(start, start + batch.num_rows)
            target, weight = _of_batch(batch, y, y_beside, here), _of_batch(batch, sample_weight, w_beside, here)
            yield Block(parquet.stack_columns(batch, names), target, weight)
            start += batch.num_rows

    return BlockSource(read, kind, True, n, names)


def _of_batch(batch: Any, given: Any, beside: Any, rows: slice) -> Any:
    """y or weights of a batch: columns of its own, or rows of what stands beside it."""
    if given is None:
        return None
    return parquet.stack_columns(batch, given) if beside is None else beside[rows]


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
