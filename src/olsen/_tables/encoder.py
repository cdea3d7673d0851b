"""The transformer that makes numbers of a table: TableEncoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .._report.formatting import counted, quoted
from . import cells
from .arrow import pa
from .cells import Stage
from .columns import UNKNOWN, CellCounts, Column, ColumnReader, Learned, without_marks
from .problems import (
    Change,
    Problem,
    Reading,
    TableError,
    TableProblems,
    all_problems,
    listed,
    named,
)

Array = NDArray[np.float64]
UNKNOWN_ADVICE = "unknown='ignore'"  # the command writes its own option in its place


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn the columns of a table into numbers, as the command ``olsen fit`` does.

    Numbers stay, also where they are written as ``"1,234.50"``, ``"1.234,50 €"`` or ``"5%"``; dates
    become days since 1970-01-01; other strings become columns of 0 and 1, one for each category.
    What may be read in two ways, or not at all, is refused: the error names all such columns, and
    the parameters with which the table can be used.

    Parameters
    ----------
    dates : sequence of str or dict, default=()
        Columns of dates; a dict has the format of each, such as ``{"day": "%d/%m/%Y"}``. Dates that
        cannot be misread need not be named.
    ordinal : sequence of str or dict, default=()
        Columns of categories that have an order, which become 0, 1, 2, ...: the order of numbers or
        of the alphabet, or that of a dict such as ``{"size": ["S", "M", "L"]}``.
    drop : sequence of str, default=()
        Columns to leave out.
    na : sequence of str, default=()
        Strings that stand for missing values.
    decimal : {".", ","}, default=None
        Decimal mark of numbers that may be read in two ways, such as ``"1,234"``.
    missing : {"error", "mean"}, default="error"
        What to do with missing cells: "error" refuses them, "mean" fills them with the mean of the
        column, or the most frequent category, and marks them in a column of 0 and 1 if ten or more
        cells of the column are missing.
    unknown : {"error", "ignore"}, default="error"
        What to do with categories that were not there in `fit`: "error" refuses them, "ignore"
        takes them for none of the known categories. Those of `ordinal` are always refused.

    Attributes
    ----------
    columns_ : list of dict
        How each column is read: its ``name``; its ``kind``, "number", "date", "category" or
        "ordered"; the ``decimal`` mark and the ``unit`` of numbers that are strings; the ``form``
        of dates; the ``levels`` of categories; what missing cells are filled with (``fill``); and
        whether they are marked (``indicator``).
    date_features_ : ndarray of int
        Encoded columns of days since 1970-01-01, by number.
    indicator_features_ : ndarray of int
        Encoded columns that mark missing cells, by number.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Their names, if the table has names.

    See Also
    --------
    AdaptiveOLSEnsembleRegressor : The model that ``olsen fit`` fits on the encoded table.

    Notes
    -----
    Columns are found by their names: a table to transform may have them in another order, and more
    columns. It needs pyarrow (``pip install 'olsen[parquet]'``).

    Examples
    --------
    >>> import pandas as pd
    >>> from olsen import TableEncoder
    >>> table = pd.DataFrame(
    ...     {"price": ["$5.50", "$12.00"], "day": ["2024-01-31", "2024-02-01"]}
    ... )
    >>> TableEncoder().set_output(transform="pandas").fit_transform(table)
       price      day
    0    5.5  19753.0
    1   12.0  19754.0
    """

    __module__ = "olsen"  # model files name no private module

    def __init__(
        self,
        *,
        dates: Sequence[str] | Mapping[str, str] = (),
        ordinal: Sequence[str] | Mapping[str, Sequence[str]] = (),
        drop: Sequence[str] = (),
        na: Sequence[str] = (),
        decimal: str | None = None,
        missing: Literal["error", "mean"] = "error",
        unknown: Literal["error", "ignore"] = "error",
    ) -> None:
        self.dates = dates
        self.ordinal = ordinal
        self.drop = drop
        self.na = na
        self.decimal = decimal
        self.missing = missing
        self.unknown = unknown

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn what the columns of a table are.

        Parameters
        ----------
        X : {data frame, pyarrow table, array-like} of shape (n_samples, n_columns)
            Table.
        y : object
            Ignored.

        Returns
        -------
        self : object
        """
        self._check_parameters()
        table = self._as_table(X, reset=True)
        problems = self._problems(table)
        if problems:
            raise self._refusal(table, problems)
        return self

    def transform(self, X: Any) -> Array:
        """Encode a table that has the columns of the table in `fit`.

        Parameters
        ----------
        X : {data frame, pyarrow table, array-like} of shape (n_samples, n_columns)
            Table.

        Returns
        -------
        encoded : ndarray of shape (n_samples, n_encoded_columns)
            Numbers; a data frame after ``set_output``.
        """
        check_is_fitted(self)
        return self._encode(self._as_table(X, reset=False))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the encoded columns.

        Parameters
        ----------
        input_features : sequence of str, default=None
            Names of the columns, if the table in `fit` had none.

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self)
        names = self._names_in()
        given = names if input_features is None else [str(name) for name in input_features]
        if len(given) != len(names) or (hasattr(self, "feature_names_in_") and given != names):
            raise ValueError(
                "input_features is not equal to feature_names_in_; a table of"
                f" {counted(len(names), 'column')} was given to fit, and n_features_in_ is"
                f" {len(names)}: input_features should have length equal to number of features."
            )
        encoded = [name for c in self._columns() for name in c.names(given[c.position])]
        return np.asarray(encoded, dtype=object)

    @property
    def indicator_features_(self) -> NDArray[np.int64]:
        """Encoded columns that mark missing cells, by number."""
        marks = [[False] * (c.width - c.indicator) + [True] * c.indicator for c in self._columns()]
        return np.flatnonzero(np.concatenate([*marks, []]))

    @property
    def date_features_(self) -> NDArray[np.int64]:
        """Encoded columns of days, by number."""
        columns = self._columns()
        starts = np.cumsum([0, *(column.width for column in columns)])
        days = [s for s, column in zip(starts, columns, strict=False) if column.kind == "date"]
        return np.array(days, dtype=np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    def _refusal(self, table: Any, problems: list[Problem]) -> TableProblems:
        """Error about all problems, with an encoder that reads the table."""

        def problems_with(changes: list[Change]) -> list[Problem]:
            return self._changed(changes)._problems(table)

        problems, changes = all_problems(problems_with)
        text = "; ".join(problem.text for problem in problems)
        advice = ""
        if changes:
            encoder = " ".join(repr(self._changed(changes)).split())
            advice = f"the table can be read with {encoder}"
        return TableProblems([Problem(text, advice)], changes)

    def _problems(self, table: Any) -> list[Problem]:
        """Learn the columns of a table; return all problems, missing cells included."""
        learned = self._learn(table)
        marked = without_marks(table, self.na)
        names = [name for name in table.column_names if name not in self.drop]
        filled = names if self.missing == "mean" else ()
        unusable = cells.unusable_cells(marked, names, filled=filled)
        return [*learned.problems, *([] if unusable is None else [unusable])]

    # For the command, which reads the rows and the target

    def _changed(self, changes: list[Change]) -> TableEncoder:
        """A new encoder with other settings besides those of this one."""
        parameters: dict[str, Any] = self.get_params()
        for setting, value in changes:
            name = "drop" if setting == "id" else setting
            if name == "missing" and value != "mean":
                continue  # rows are left out by the command alone
            if name in ("decimal", "missing"):
                parameters[name] = value
            elif isinstance(parameters[name], Mapping):
                column, _, form = value.partition("=")
                parameters[name] = {**parameters[name], column: form}
            else:
                parameters[name] = [*parameters[name], value]
        return TableEncoder(**parameters)

    def _learn(self, table: Any, distinct_values: dict[str, list[str]] | None = None) -> Learned:
        """Learn what the columns of a pyarrow table are; problems are returned, not raised.

        `distinct_values` are the distinct strings of columns of which `table` is the head.
        """
        reading = self._reading(table.column_names)
        absent = [
            name
            for name in (*reading.drop, *reading.dates, *reading.orders)
            if name not in table.column_names
        ]
        if absent:
            raise ValueError(
                f"there is no column {listed(absent)}; the table has"
                f" {listed(table.column_names, 12)}."
            )
        names = [name for name in table.column_names if name not in reading.drop]
        if not names:
            raise TableError("the table has no column besides those that are left out.")
        table = without_marks(table, reading.na)
        reader = ColumnReader(table=table, reading=reading, distinct_values=distinct_values or {})
        learned = reader.learn(names)
        encoded_names = Counter(n for column in learned.columns for n in column.names(column.name))
        repeated = [name for name, count in encoded_names.items() if count > 1]
        if repeated:
            learned.problems.append(
                Problem(
                    f"several columns get the name {listed(repeated, 3)} when they are encoded",
                    "rename them",
                )
            )
        self.columns_ = [column.record for column in learned.columns]
        return learned

    def _encode(
        self, table: Any, stage: Stage = "predict", counts: CellCounts | None = None
    ) -> Array:
        """Encode a pyarrow table, and count cells that are not taken as they are."""
        table = without_marks(table.select(self._needed()), self.na)
        columns = self._columns()
        filled = [column.name for column in columns if column.fill is not None]
        incomplete = [c.name for c in columns if c.fill is None and table.column(c.name).null_count]
        cells.refuse_missing(table, incomplete, stage=stage)
        for column in columns:
            if column.levels:
                self._check_categories(table, column, counts)
        blocks = [column.encoded(table, counts) for column in columns]
        encoded = np.hstack(blocks) if blocks else np.zeros((table.num_rows, 0))
        if not np.isfinite(encoded).all():
            cells.refuse_missing(table, self._needed(), filled=filled, stage=stage)
            cells.refuse_infinite(encoded, list(self.get_feature_names_out()), table)
        return np.asfortranarray(encoded)

    def _check_categories(self, table: Any, column: Column, counts: CellCounts | None) -> None:
        """Raise for categories that were not learned, or count their cells."""
        cells_of_column = table.column(column.name)
        unknown_rows = np.flatnonzero(column.codes(cells_of_column) == UNKNOWN)
        if not len(unknown_rows):
            return
        is_ordered = column.kind == "ordered"
        if not is_ordered and self.unknown == "ignore":
            if counts is not None:
                counts.unknown[column.name] += len(unknown_rows)
            return
        remedy = "" if is_ordered else f", or take them for none of these with {UNKNOWN_ADVICE}"
        strings = cells.distinct_strings(cells_of_column)[0].to_pylist()
        unknown = [text for text in strings if text not in set(column.levels)]
        raise TableError(
            f"column {quoted(column.name)} holds {listed(unknown, 5)}, which the model has not"
            f" seen; it knows {listed(column.levels, 8)}. Correct these cells, the first in row"
            f" {cells.rows_before(table) + unknown_rows[0] + 1}{remedy}."
        )

    @property
    def n_encoded_(self) -> int:
        """Number of encoded columns."""
        return sum(column.width for column in self._columns())

    def _columns(self) -> list[Column]:
        """The learned columns; raise if their records are damaged."""
        columns = [Column.of_record(record) for record in self.columns_]
        if len({column.name for column in columns}) < len(columns):
            raise ValueError("two learned columns have the same name")
        return columns

    def _needed(self) -> list[str]:
        return [record["name"] for record in self.columns_]

    def _names_in(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return _numbered(self.n_features_in_) if names is None else [str(name) for name in names]

    def _reading(self, names: list[str]) -> Reading:
        """The parameters as settings of a reader."""
        return Reading(
            dates=_by_column(self.dates, names),
            orders={
                name: _levels(name, levels)
                for name, levels in _by_column(self.ordinal, names).items()
            },
            decimal=self.decimal or "",
            na=tuple(self.na),
            fill=self.missing == "mean",
            drop=tuple(self.drop),
        )

    def _check_parameters(self) -> None:
        allowed = {
            "decimal": (None, ".", ","),
            "missing": ("error", "mean"),
            "unknown": ("error", "ignore"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}={getattr(self, name)!r} must be one of {values}.")
        for name in ("dates", "ordinal", "drop", "na"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={getattr(self, name)!r} must be a list of strings.")

    def _as_table(self, X: Any, *, reset: bool) -> Any:
        """A pyarrow table of the columns of X; those of an array are numbered."""
        if isinstance(X, pa.RecordBatch):
            X = pa.Table.from_batches([X])
        if not isinstance(X, pa.Table) and not nw.dependencies.is_into_dataframe(X):
            X = validate_data(self, X, dtype=None, ensure_all_finite=False, reset=reset)
            names = self._names_in()
            return pa.table({name: _array_of(X[:, j]) for j, name in enumerate(names)})
        table = X if isinstance(X, pa.Table) else _arrow_table(X)
        repeated = [name for name, n in Counter(table.column_names).items() if n > 1]
        if repeated:
            raise ValueError(f"X has several columns named {listed(repeated)}; rename them first.")
        if not (table.num_rows and table.num_columns):
            noun, n = ("sample", table.num_rows) if table.num_columns else ("feature", 0)
            raise ValueError(
                f"Found array with {n} {noun}(s) (shape={table.shape}) while a minimum of 1 is"
                " required by TableEncoder."
            )
        if reset:
            self.n_features_in_ = table.num_columns
            self.feature_names_in_ = np.asarray(table.column_names, dtype=object)
            return table
        absent = [name for name in self._needed() if name not in table.column_names]
        if absent:
            raise ValueError(
                f"X lacks {counted(len(absent), 'column')} of the table in fit: {listed(absent)}."
            )
        return table


def _by_column(given: Any, names: Iterable[str]) -> dict[str, Any]:
    """Columns with a value each, from a dict, or from strings such as ``day=%d/%m/%Y``."""
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    return dict(named(argument, names) for argument in given)


def _levels(name: str, levels: Any) -> list[str]:
    """Levels of ordered categories, from a list or from ``S<M<L``; empty if the order is implied."""
    parsed = [level.strip() for level in levels.split("<")] if isinstance(levels, str) else levels
    if levels and len(set(parsed)) < max(2, len(parsed)):
        raise ValueError(
            f"{quoted(name)} has an order that needs at least two different levels, as in S<M<L."
        )
    return [str(level) for level in parsed] if levels else []


def _numbered(n_columns: int) -> list[str]:
    return [f"x{j}" for j in range(n_columns)]


def _array_of(values: NDArray[Any]) -> Any:
    """Cells of an array as a pyarrow array; mixed objects become strings."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError):
        return pa.array([None if v is None or v != v else str(v) for v in values], "string")


def _arrow_table(frame: Any) -> Any:
    """A data frame as a pyarrow table without its index; mixed objects become strings."""
    eager = nw.from_native(frame, eager_only=True)
    columns = {}
    for column in eager.iter_columns():
        try:
            columns[str(column.name)] = column.to_arrow()
        except (pa.ArrowException, TypeError, OverflowError):
            columns[str(column.name)] = _array_of(np.asarray(column.to_numpy(), dtype=object))
    if len(columns) < len(eager.columns):
        raise ValueError("X has several columns of the same name; rename them first.")
    return pa.table(columns)
