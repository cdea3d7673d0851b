"""Tables larger than memory, for the command line: Parquet read row block by row block.

Only the metadata are read on opening. Texts become categories after a pass over the text columns alone; the fit is one
pass over the columns in use, which also keeps a few random rows for the plots and to measure errors on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._engines import Blocks
from .._engines.sources import BlockSource, parquet_batches
from .._estimators.inputs import options_of
from .._estimators.tuned import OLSEnsembleRegressorCV
from .._execution import memory
from .._moments import Moments
from .tables import (
    MAX_CATEGORIES,
    Encoding,
    TableError,
    damaged_parquet,
    different_texts,
    is_text,
    refuse_cells,
    refuse_missing,
    refuse_repeated,
)
from .terminal import Tell

__all__ = ["BlockFit", "ParquetTable", "fit", "learn", "open_table", "predictions"]

Array = NDArray[np.float64]

HEAD_ROWS = 2 * MAX_CATEGORIES  # read to find the types; with fewer rows, texts would look like identifiers
FEWEST_ROWS = 50  # with fewer, one of the five random folds could be empty
SAMPLE_ROWS = 2000  # kept for the plots and for the distribution of the errors
SAMPLE_CELLS = 4_000_000
TEXT_WIDTH = 8  # memory assumed for a text, in numbers of 8 bytes
# Of a block as numbers. About 12 times as much is in use while it is decoded, encoded and summed and the next one is
# read: 68 MB with blocks of 4 MB, 203 MB with 16 MB, at the same speed.
BLOCK_BYTES = 1 << 22
MOST_STATISTICS = 200_000  # column chunks checked for missing cells beforehand; with more, the pass finds them


@dataclass(frozen=True)
class ParquetTable:
    """A table in Parquet files, of which the metadata have been read.

    Parameters
    ----------
    path : Path
        The file or the folder.
    files : list of str
        Its files.
    schema : pyarrow.Schema
        Of the first file.
    n_rows : int
        Rows in all files.
    n_bytes : float
        Size in memory: uncompressed as stored, or as floating-point numbers where that is more.
    missing : dict
        Column -> missing cells, where the metadata tell.
    """

    path: Path
    files: list[str]
    schema: Any
    n_rows: int
    n_bytes: float
    missing: dict[str, int]

    @property
    def is_large(self) -> bool:
        """Whether it would fill more than a quarter of the free memory."""
        return self.n_bytes > memory.available_bytes() / 4


def open_table(path: Path) -> ParquetTable:
    """Read the metadata of a Parquet file or of a folder of them."""
    import pyarrow.dataset
    import pyarrow.parquet as pq

    try:
        files = [str(path)] if path.is_file() else pyarrow.dataset.dataset(str(path), format="parquet").files
        schema = pq.read_schema(files[0])
        metadata = [pq.read_metadata(file) for file in files]
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise TableError(damaged_parquet(path.name, error)) from error
    refuse_repeated(schema.names, path)
    n_rows = sum(part.num_rows for part in metadata)
    groups = [part.row_group(i) for part in metadata for i in range(part.num_row_groups)]
    n_bytes = max(sum(group.total_byte_size for group in groups), 8 * n_rows * len(schema.names))
    return ParquetTable(path, files, schema, n_rows, n_bytes, _missing_cells(groups))


def _missing_cells(groups: list[Any]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    if sum(group.num_columns for group in groups) > MOST_STATISTICS:
        return {}
    for group in groups:
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.statistics is not None and chunk.statistics.has_null_count:
                counts[chunk.path_in_schema] += chunk.statistics.null_count
    return {name: count for name, count in counts.items() if count}


def learn(table: ParquetTable, target: str, drop: Iterable[str], tell: Tell | None) -> Encoding:
    """Decide how a table becomes numbers; raise if its metadata or its first rows show that it cannot be used."""
    if table.n_rows < FEWEST_ROWS:
        raise TableError(
            f"{table.path.name} has {table.n_rows} rows; out of core at least {FEWEST_ROWS} are needed. Leave out "
            f"--out-of-core."
        )
    drop = list(drop)
    used = [name for name in table.schema.names if name not in drop]
    if target in used and set(drop) <= set(table.schema.names):  # else a name is wrong, which `Encoding.learn` reports
        refuse_cells({name: table.missing[name] for name in used if name in table.missing}, target=target)
    _, head = next(_parts(table, table.schema.names, HEAD_ROWS))
    return Encoding.learn(head, target, drop, lambda names: _distinct_texts(table, names, tell))


def _distinct_texts(table: ParquetTable, names: list[str], tell: Tell | None) -> dict[str, list[str]]:
    """Different texts of some columns, until there are too many of them."""
    found: dict[str, set[str]] = {name: set() for name in names}
    if not names:
        return {}
    for first, part in _parts(table, names, _block_rows(TEXT_WIDTH * len(names)), tell, "finding categories"):
        with _block_in_errors(table, first, part):
            refuse_missing(part, names, first, stage="blocks")
        for name in names:
            found[name].update(different_texts(part.column(name)))
        if max(map(len, found.values())) > MAX_CATEGORIES:
            break
    return {name: list(values) for name, values in found.items()}


def _parts(
    table: ParquetTable, columns: list[str], rows: int, tell: Tell | None = None, doing: str = ""
) -> Iterator[tuple[int, Any]]:
    """Consecutive rows as (number of the first row, pyarrow table); `tell` hears how many rows are done."""
    import pyarrow as pa

    first = 0
    if tell:
        tell(doing, 0, table.n_rows)
    texts = [name for name in columns if is_text(table.schema.field(name).type)]
    for batch in parquet_batches(table.files, columns, rows, table.path.name, texts):
        yield first, pa.Table.from_batches([batch])
        first += batch.num_rows
        if tell:
            tell(doing, first, table.n_rows)


class BlockFit(NamedTuple):
    """Result of a fit in blocks: the moments of the folds, and a few random rows, encoded."""

    folds: list[Moments]
    X: Array
    y: Array


def fit(model: OLSEnsembleRegressorCV, table: ParquetTable, encoding: Encoding, tell: Tell | None = None) -> BlockFit:
    """Tune and fit an OLSEnsembleRegressorCV on a table that is read in blocks."""
    sample = _RowSample(table.n_rows, len(encoding.names), model.random_state)
    kind = f"table {table.path.name}"
    source = BlockSource(lambda: _encoded(table, encoding, sample, tell), kind, n_rows=table.n_rows)
    engine = Blocks(source, options_of(model))
    model.fit(engine, None)
    return BlockFit(engine.summary.parts, *sample.arrays())


def _encoded(
    table: ParquetTable, encoding: Encoding, sample: _RowSample, tell: Tell | None
) -> Iterator[tuple[Array, Array, None]]:
    columns, rows = [*encoding.needed, encoding.target], _block_rows(len(encoding.names))
    doing = "reading again" if sample.taken else "reading"
    for first, part in _parts(table, columns, rows, tell, doing):
        with _block_in_errors(table, first, part):
            X, y = encoding.features(part, first), encoding.response(part, first)
        sample.take(first, X, y)
        yield X, y, None


def predictions(
    table: ParquetTable, encoding: Encoding, predict: Callable[[Any, int], Array], tell: Tell | None
) -> Iterator[Array]:
    """Predictions of consecutive rows, from a function of a part of the table and the number of its first row."""
    if not table.n_rows:
        raise TableError(f"{table.path.name} has a header but no rows.")
    encoding.features(table.schema.empty_table())  # wrong columns and types are refused before any row is read
    for first, part in _parts(table, encoding.needed, _block_rows(len(encoding.names)), tell, "predicting"):
        with _block_in_errors(table, first, part):
            predicted = predict(part, first)
        yield predicted


def _block_rows(width: int) -> int:
    return max(1, BLOCK_BYTES // (8 * width))


@contextmanager
def _block_in_errors(table: ParquetTable, first: int, part: Any) -> Iterator[None]:
    """Add the rows of the block to the message of a TableError."""
    try:
        yield
    except TableError as error:
        rows = f"rows {first + 1} to {first + part.num_rows}"
        raise TableError(f"{table.path.name}, in the block of {rows}: {error}") from error


class _RowSample:
    """A random sample of the rows, collected while the table is read."""

    def __init__(self, n_rows: int, width: int, seed: int) -> None:
        size = min(n_rows, SAMPLE_ROWS, max(200, SAMPLE_CELLS // max(1, width)))
        self.wanted = np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False))
        self.taken: dict[int, tuple[Array, Array]] = {}

    def take(self, first: int, X: Array, y: Array) -> None:
        """Keep those of the rows from number `first` on that are wanted; rows read again change nothing."""
        low, high = np.searchsorted(self.wanted, [first, first + len(y)])
        here = self.wanted[low:high] - first
        self.taken[first] = X[here], y[here]

    def arrays(self) -> tuple[Array, Array]:
        X, y = zip(*self.taken.values(), strict=True)
        return np.concatenate(X), np.concatenate(y)
