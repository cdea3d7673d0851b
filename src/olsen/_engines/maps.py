"""Rows of a memory map, used in place: asked for ahead of their use, and their pages given back after it.

Pages that were read stay in the process until memory is short, and a limit on memory counts them; a pass over a file
would seem to need as much memory as the file has.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["row_reader"]

Release = Callable[[], None]


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
