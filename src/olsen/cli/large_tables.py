"""Tables larger than memory, for the command line: Parquet read row block by row block.

Only the metadata are read on opening. Texts become categories after a pass over the text columns alone; the fit is one
pass over the columns in use, which also keeps a few random rows for the plots and to measure errors on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .._engines.blocks import Blocks
from .._engines.sources import BlockSource, parquet_batches
from .._estimators.inputs import options_of
from .._estimators.tuned import TunedEnsemble
from .._execution import memory
from .._moments.moments import Moments
from .._tuning.fold_data import FOLDS, SEED
from ..subsets import row_groups
from .columns import FIRST_ROW, distinct_strings, refuse_missing, rows_before
from .encoding import MAX_CATEGORIES, Encoding, learn_encoding
from .tables import TableError, damaged_parquet, refuse_repeated, shown_name, text_names
from .terminal import Tell, silent

Array = NDArray[np.float64]
T = TypeVar("T")

HEAD_ROWS = 2 * MAX_CATEGORIES  # read to find the types; with fewer rows, texts would look like identifiers
FEWEST_ROWS = 50  # with fewer, one of the five random folds could be empty
SAMPLE_ROWS, SAMPLE_CELLS = 2000, 4_000_000  # kept for the plots and for the distribution of the errors
# Of a block as numbers. About 12 times as much is in use while it is decoded, encoded and summed and the next one is
# read: 68 MB with blocks of 4 MB, 203 MB with 16 MB, at the same speed.
BLOCK_BYTES = 1 << 22


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
    """

    path: Path
    files: list[str]
    schema: Any
    n_rows: int
    n_bytes: float

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
        if not files:
            raise ValueError("the folder is empty")
        schema = pq.read_schema(files[0])
        metadata = [pq.read_metadata(file) for file in files]
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise TableError(damaged_parquet(shown_name(path), error)) from error
    refuse_repeated(schema.names, path)
    n_rows = sum(part.num_rows for part in metadata)
    groups = [part.row_group(i) for part in metadata for i in range(part.num_row_groups)]
    n_bytes = max(sum(group.total_byte_size for group in groups), 8 * n_rows * len(schema.names))
    return ParquetTable(path, files, schema, n_rows, n_bytes)


def learn(table: ParquetTable, target: str, drop: Iterable[str], tell: Tell) -> Encoding:
    """Decide how a table becomes numbers; raise if its first rows show that it cannot be used."""
    if table.n_rows < FEWEST_ROWS:
        raise TableError(
            f"{table.path.name} has {table.n_rows} rows; out of core at least {FEWEST_ROWS} are needed. Leave out "
            f"--out-of-core."
        )

    def distinct(names: list[str]) -> dict[str, list[str]]:
        """Different texts of some columns, until there are too many of them."""
        found: dict[str, set[str]] = {name: set() for name in names}

        def find(part: Any) -> None:
            refuse_missing(part, names, stage="blocks")
            for name in names:
                found[name].update(distinct_strings(part.column(name))[0].to_pylist())

        rows = _block_rows(8 * len(names) or 1)  # a text is taken for eight numbers
        for _ in _blocks(table, names, rows, find, tell, "finding categories") if names else ():
            if max(map(len, found.values())) > MAX_CATEGORIES:
                break
        return {name: list(values) for name, values in found.items()}

    head = next(_blocks(table, table.schema.names, HEAD_ROWS, lambda part: part))
    return learn_encoding(head, target, drop, distinct)[1]


def _blocks(
    table: ParquetTable, columns: list[str], rows: int, work: Callable[[Any], T], tell: Tell = silent, doing: str = ""
) -> Iterator[T]:
    """What `work` makes of consecutive rows; `tell` is called with how many rows are done."""

    first = 0
    tell(doing, 0, table.n_rows)
    texts = [name for name in text_names(table.schema) if name in columns]
    for batch in parquet_batches(table.files, columns, rows, table.path.name, texts):
        try:
            done = work(pa.Table.from_batches([batch]).replace_schema_metadata({FIRST_ROW: str(first)}))
        except TableError as error:
            block = f"rows {first + 1} to {first + batch.num_rows}"
            raise TableError(f"{table.path.name}, in the block of {block}: {error}") from error
        yield done
        first += batch.num_rows
        tell(doing, first, table.n_rows)


def _block_rows(width: int) -> int:
    return max(1, BLOCK_BYTES // (8 * width))


def fit(
    model: TunedEnsemble, table: ParquetTable, encoding: Encoding, tell: Tell
) -> tuple[list[Moments], Array, Array]:
    """Tune and fit on a table that is read in blocks: the moments of the folds, and a few random rows, encoded."""
    width = len(encoding.names)
    size = min(table.n_rows, SAMPLE_ROWS, max(200, SAMPLE_CELLS // max(1, width)))
    wanted = np.sort(np.random.default_rng(model.random_state).choice(table.n_rows, size, replace=False))
    taken: dict[int, tuple[Array, Array, NDArray[Any]]] = {}  # first row of a block -> its sampled rows, folds

    def encoded(part: Any) -> tuple[Array, Array, None]:
        X, y, first = encoding.features(part), encoding.response(part), rows_before(part)
        encoding.refuse_extremes(X, y)
        here = wanted[slice(*np.searchsorted(wanted, [first, first + len(y)]))] - first
        taken[first] = X[here], y[here], row_groups(first, len(y), FOLDS, SEED)[here]
        return X, y, None

    def read() -> Iterator[tuple[Array, Array, None]]:
        doing = "reading again" if taken else "reading"
        return _blocks(table, [*encoding.needed, encoding.target], _block_rows(width), encoded, tell, doing)

    engine = Blocks(BlockSource(read, f"table {table.path.name}", n_rows=table.n_rows), options_of(model))
    model.fit(engine, None)
    X, y, fold = (np.concatenate(parts) for parts in zip(*taken.values(), strict=True))
    fits = model._result().folds
    if fits is not None and fits[0].residual is None:  # intervals rest on the errors of the sample
        model._keep_errors([fit.residuals(X[fold == f], y[fold == f, None]) for f, fit in enumerate(fits)])
    # few rows were loaded by the model, and are summed here
    return engine.summary.parts if engine.is_summed else engine.folds(FOLDS, SEED), X, y


def predictions(
    table: ParquetTable, encoding: Encoding, predict: Callable[[Any], Array], tell: Tell
) -> Iterator[Array]:
    """Predictions of consecutive rows, from a function of a part of the table."""
    if not table.n_rows:
        raise TableError(f"{table.path.name} has a header but no rows.")
    encoding.select_columns(table.schema.empty_table())  # wrong columns are refused before any row is read
    return _blocks(table, encoding.needed, _block_rows(len(encoding.names)), predict, tell, "predicting")
