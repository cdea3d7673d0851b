"""Fit and predict with tables larger than memory: Parquet, read in blocks of rows.

Opening a table reads the metadata only. A pass over the text columns collects the categories; the
fit is one pass over the columns in use, which also samples a few random rows for the plots and for
the distribution of the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._data.moment_data import MomentData
from .._data.moments import Moments
from .._data.sources import BlockSource, parquet_batches
from .._data.splits import FOLD_SEED, FOLDS
from .._estimators.inputs import options_of
from .._estimators.tuned import TunedEnsemble
from .._execution import memory
from .._tables.cells import FIRST_ROW, distinct_strings, refuse_missing, rows_before
from .._tables.columns import MAX_CATEGORIES
from .._tables.problems import TableError, text_names
from ..subsets import row_groups
from .encoding import Encoding, learn_encoding
from .tables import damaged_parquet, refuse_repeated, shown_name
from .terminal import Tell

Array = NDArray[np.float64]
T = TypeVar("T")

# Size of an encoded block. About 12 times as much memory is in use while a block is decoded,
# encoded and summed and the next block is read: 68 MB with blocks of 4 MB, 203 MB with 16 MB, at
# the same speed.
BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class ParquetTable:
    """Metadata of a table in Parquet files.

    Parameters
    ----------
    path : Path
        Path of the file or the folder.
    files : list of str
        Paths of the files.
    schema : pyarrow.Schema
        Schema of the first file.
    n_rows : int
        Number of rows in all files.
    n_bytes : float
        Size in memory: the larger of the uncompressed size and the size as floating-point numbers.
    """

    path: Path
    files: list[str]
    schema: Any
    n_rows: int
    n_bytes: float

    @property
    def is_large(self) -> bool:
        """Whether the table would fill more than a quarter of the free memory."""
        return self.n_bytes > memory.available_bytes() / 4


def open_table(path: Path) -> ParquetTable:
    """Read the metadata of a Parquet file or of a folder of Parquet files."""
    import pyarrow.dataset
    import pyarrow.parquet as pq

    try:
        files = (
            [str(path)]
            if path.is_file()
            else pyarrow.dataset.dataset(str(path), format="parquet").files
        )
        if not files:
            raise ValueError("the folder is empty")
        schema = pq.read_schema(files[0])
        metadata = [pq.read_metadata(file) for file in files]
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise TableError(damaged_parquet(shown_name(path), error)) from error
    refuse_repeated(schema.names, path)
    n_rows = sum(part.num_rows for part in metadata)
    row_groups_of_files = [
        part.row_group(i) for part in metadata for i in range(part.num_row_groups)
    ]
    stored_bytes = sum(group.total_byte_size for group in row_groups_of_files)
    n_bytes = max(stored_bytes, 8 * n_rows * len(schema.names))
    return ParquetTable(path, files, schema, n_rows, n_bytes)


def learn(table: ParquetTable, target: str, drop: Iterable[str], tell: Tell) -> Encoding:
    """Learn the encoding of a table; raise if its first rows show that it cannot be used."""
    if table.n_rows < 50:  # one of the random folds could be empty
        raise TableError(
            f"{table.path.name} has {table.n_rows} rows; out of core at least 50 are needed. Leave"
            " out --out-of-core."
        )

    def distinct(names: list[str]) -> dict[str, list[str]]:
        """Collect the distinct strings of the named columns, until a column has too many for
        categories.
        """
        categories: dict[str, set[str]] = {name: set() for name in names}
        if not names:
            return {}

        def collect(part: Any) -> None:
            refuse_missing(part, names, stage="blocks")
            for name in names:
                categories[name].update(distinct_strings(part.column(name))[0].to_pylist())

        block_rows = _block_rows(8 * len(names))  # a string is counted as eight numbers
        for _ in _blocks(table, names, block_rows, collect, tell=tell, task="finding categories"):
            if max(map(len, categories.values())) > MAX_CATEGORIES:
                break
        return {name: list(values) for name, values in categories.items()}

    # in fewer rows, strings would look like identifiers
    head = next(_blocks(table, table.schema.names, 2 * MAX_CATEGORIES, lambda part: part))
    return learn_encoding(head, target, drop, distinct)[1]


def head(table: ParquetTable) -> Any:
    """The first rows of a table, as many as fill a few blocks."""
    names = table.schema.names
    return next(_blocks(table, names, 16 * _block_rows(len(names)), lambda part: part))


def _blocks(
    table: ParquetTable,
    columns: list[str],
    block_rows: int,
    work: Callable[[Any], T],
    *,
    tell: Tell = lambda *_: None,
    task: str = "",
) -> Iterator[T]:
    """Apply `work` to consecutive blocks of rows, and `tell` the number of rows that are done."""

    first_row = 0
    tell(task, 0, table.n_rows)
    text_columns = [name for name in text_names(table.schema) if name in columns]
    for batch in parquet_batches(table.files, columns, block_rows, table.path.name, text_columns):
        block = pa.Table.from_batches([batch]).replace_schema_metadata({FIRST_ROW: str(first_row)})
        try:
            result = work(block)
        except TableError as error:
            rows = f"rows {first_row + 1} to {first_row + batch.num_rows}"
            raise TableError(f"{table.path.name}, in the block of {rows}: {error}") from error
        yield result
        first_row += batch.num_rows
        tell(task, first_row, table.n_rows)


def _block_rows(width: int) -> int:
    return max(1, BLOCK_BYTES // (8 * width))


def fit(
    model: TunedEnsemble, table: ParquetTable, encoding: Encoding, tell: Tell
) -> tuple[list[Moments], Array, Array]:
    """Tune and fit on a table that is read in blocks; return the moments of the folds and a few
    encoded rows.
    """
    n_columns = len(encoding.names)
    # rows for the plots and for the distribution of the errors: fewer of wide tables, but 200
    rows_in_memory = max(200, 4_000_000 // max(1, n_columns))
    sample_size = min(table.n_rows, 2000, rows_in_memory)
    rng = np.random.default_rng(model.random_state)
    sample_rows = np.sort(rng.choice(table.n_rows, sample_size, replace=False))
    # first row of a block -> its sampled X, y and folds
    samples: dict[int, tuple[Array, Array, NDArray[Any]]] = {}

    def encode(part: Any) -> tuple[Array, Array, None]:
        X = encoding.features(part)
        y = encoding.response(part)
        first_row = rows_before(part)
        encoding.refuse_extremes(X, y)
        start, stop = np.searchsorted(sample_rows, [first_row, first_row + len(y)])
        rows = sample_rows[start:stop] - first_row
        samples[first_row] = X[rows], y[rows], row_groups(first_row, len(y), FOLDS, FOLD_SEED)[rows]
        return X, y, None

    def read() -> Iterator[tuple[Array, Array, None]]:
        task = "reading again" if samples else "reading"
        columns = [*encoding.needed, encoding.target]
        return _blocks(table, columns, _block_rows(n_columns), encode, tell=tell, task=task)

    source = BlockSource(read, f"table {table.path.name}", n_rows=table.n_rows)
    data = MomentData(source, model.fit_intercept, options_of(model))
    model.fit(data, None)
    X, y, fold = (np.concatenate(parts) for parts in zip(*samples.values(), strict=True))
    fits = model._result().folds
    if (
        fits is not None and fits[0].residual is None
    ):  # intervals are computed from the errors of the sample
        model._keep_errors(
            [fit.tested(X[fold == f], y[fold == f, None]) for f, fit in enumerate(fits)]
        )
    # a small table was loaded by the model, so that its moments are still to be summed
    return data.summary.parts if data.is_summed else data.fold_moments(FOLDS, FOLD_SEED), X, y


def predictions(
    table: ParquetTable, encoding: Encoding, predict: Callable[[Any], T], tell: Tell
) -> Iterator[T]:
    """Apply `predict` to consecutive blocks of rows."""
    if not table.n_rows:
        raise TableError(f"{table.path.name} has a header but no rows.")
    encoding.select_columns(
        table.schema.empty_table()
    )  # wrong columns are refused before any row is read
    block_rows = _block_rows(len(encoding.names))
    return _blocks(table, encoding.needed, block_rows, predict, tell=tell, task="predicting")
