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

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..._execution import memory
from .blocks import Block, BlockSource, Triple, checked, require_positive
from .files import open_path, parquet, parquet_batches, slices
from .tables import (
    as_table,
    column_names,
    describe_not_finite,
    named_columns,
    refuse_text,
    refuse_times,
    split_columns,
)

__all__ = [
    "Block",
    "BlockSource",
    "Triple",
    "as_table",
    "checked",
    "column_names",
    "describe_not_finite",
    "named_columns",
    "open_source",
    "parquet_batches",
    "refuse_text",
    "refuse_times",
    "require_positive",
    "split_columns",
]


def open_source(X: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """Open X as a source of blocks; None for an X that is to be loaded entirely."""
    match X:
        case str() | Path():
            return open_path(Path(X), y, sample_weight)
        case np.memmap() if X.ndim == 2 and X.nbytes > memory.available_bytes() / 4:
            return slices(X, y, sample_weight, kind="memory map", path=X.filename)
        case Iterator():
            return _iterator(lambda: X, y, sample_weight, rereadable=False)
    if hasattr(X, "scanner") and hasattr(X, "count_rows"):  # a dataset of pyarrow
        return parquet(X, y, sample_weight, kind="Arrow dataset", files=[])
    if callable(X) and not hasattr(X, "shape"):
        return _iterator(X, y, sample_weight)
    return None


def _iterator(
    make_blocks: Callable[[], Any], y: Any, sample_weight: Any, rereadable: bool = True
) -> BlockSource:
    if y is not None or sample_weight is not None:
        raise ValueError(
            "X yields blocks, so y and sample_weight come with them: yield (X, y) or (X, y, weight)"
            " and pass y=None."
        )

    def read() -> Iterator[Triple]:
        blocks = make_blocks()
        if not hasattr(blocks, "__iter__"):
            raise ValueError(
                f"X is a function that returned {blocks!r:.80} of type {type(blocks).__name__}; it"
                " must return an iterator of blocks (X, y) or (X, y, weight), a fresh one at every"
                " call."
            )
        for number, block in enumerate(blocks):
            match block:
                case (X, y):
                    yield X, y, None
                case (X, y, weight):
                    yield X, y, weight
                case _:
                    raise ValueError(
                        f"block {number} is not a pair (X, y) or a triple (X, y, weight)."
                    )

    return BlockSource(read, "iterator", rereadable=rereadable)
