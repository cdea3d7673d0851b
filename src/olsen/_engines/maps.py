"""Rows of arrays in files, and whether files have changed.

**Files that we open** (:class:`FileRows`) are read, not mapped: where a mapped file is cut short, the system ends the
process at the first look at a missing row (SIGBUS), whereas a read comes back short and can be refused.

**Maps that users bring** are used in place: rows are asked for ahead of their use, and their pages given back after it.
Pages that were read stay in the process until memory is short, and a limit on memory counts them; a pass over a file
would seem to need as much memory as the file has.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FileRows", "file_state", "refuse_change", "row_reader"]

Release = Callable[[], None]
FileState = dict[str, tuple[int, int, int]]  # name -> number, size and time of change of a file


@dataclass(frozen=True)
class FileRows:
    """An array in a .npy file, of which rows are read when they are asked for: ``rows[start:stop]``."""

    path: Path
    offset: int  # of its first entry, in bytes
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool  # Fortran order: the rows of a block lie all over the file

    @classmethod
    def of(cls, path: Path) -> FileRows:
        """From the header; ValueError if the file is not whole."""
        with open(path, "rb") as file:
            major = np.lib.format.read_magic(file)[0]
            header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = header(file)
            if dtype.hasobject:
                raise ValueError("it holds Python objects, not numbers")
            found = cls(path, file.tell(), shape, dtype, by_columns and len(shape) > 1)
        needed, there = found.offset + math.prod(shape) * dtype.itemsize, os.path.getsize(path)
        if there < needed:
            raise ValueError(f"it has {there} bytes, its header asks for {needed}")
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


def row_reader(X: Any) -> Callable[[slice], tuple[NDArray[Any], Release | None]]:
    """Function from a slice of rows to these rows and, for a memory map, to what gives their pages back."""
    pages: Any = getattr(X, "_mmap", None) if isinstance(X, np.memmap) else None
    if pages is None or X.mode not in ("r", "r+") or not hasattr(pages, "madvise"):
        return lambda here: (np.asarray(X[here]), None)
    if not X.flags.c_contiguous:  # rows lie all over the file
        return partial(_copied, X, pages)
    start = X.ctypes.data - np.frombuffer(pages, dtype=np.uint8, count=1).ctypes.data
    return partial(_in_place, X, pages, start)


def _copied(X: NDArray[Any], pages: mmap.mmap, here: slice) -> tuple[NDArray[Any], None]:
    rows = np.array(X[here])
    pages.madvise(mmap.MADV_DONTNEED)
    return rows, None


def _in_place(X: NDArray[Any], pages: mmap.mmap, start: int, here: slice) -> tuple[NDArray[Any], Release]:
    row = X.strides[0]
    # whole pages; the one that the next block shares is given back with that block
    low, high = ((start + i * row) // mmap.PAGESIZE * mmap.PAGESIZE for i in (here.start, here.stop))
    if high > low:
        pages.madvise(mmap.MADV_WILLNEED, low, high - low)
    return np.asarray(X[here]), partial(_give_back, pages, low, high - low)


def _give_back(pages: mmap.mmap, start: int, length: int) -> None:
    if length:
        pages.madvise(mmap.MADV_DONTNEED, start, length)


def file_state(path: str | Path) -> FileState:
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


def refuse_change(path: str | Path, before: FileState) -> None:
    """Raise ValueError if a file, or one below a folder, is no longer what :func:`file_state` has found."""
    now = file_state(path)
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        more = f" and {len(changed) - 1} other files" if len(changed) > 1 else ""
        raise ValueError(
            f"{changed[0]}{more} changed while the data were read, so rows of two versions would be mixed. Fit again "
            f"when nobody writes to it, or fit a copy."
        )
