"""Encode tables as the numbers of a model: choose scikit-learn's transformers for the kinds of the
columns, and apply them.

The encoding of a model of ``olsen fit`` checks new tables, with errors that name cells.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from .._persistence import ModelFileError
from .._report.formatting import counted, quoted
from .._trust import ORDINARY
from . import cells
from .cells import Stage, distinct_strings, refuse_missing
from .columns import ColumnReader, InputColumn, TableColumns, number_parser
from .tables import TableError, listed, one_line, option, refuse_absent, text_names
from .terminal import UsageError

Array = NDArray[np.float64]
# missing cells that get an indicator column: the indicator of fewer would be fitted exactly
MIN_INDICATED_MISSING = 10


def learn_encoding(
    table: Any,
    target: str,
    drop: Iterable[str] = (),
    distinct: Callable[[list[str]], dict[str, list[str]]] | None = None,
    *,
    missing: Literal["error", "drop", "mean"] = "error",
    dates: Iterable[str] = (),
    ordinal: Iterable[str] = (),
) -> tuple[Any, Encoding]:
    """Choose the rows of a table to use, and learn their encoding as numbers.

    Parameters
    ----------
    table : pyarrow.Table
        Table as read from a file.
    target : str
        Column to predict.
    drop : iterable of str
        Columns to leave out.
    distinct : callable, default=None
        If `table` is the head of a larger table, returns the distinct strings of the named columns
        in the larger one.
    missing : {"error", "drop", "mean"}
        "error" refuses missing cells and "drop" leaves their rows out. "mean" imputes numbers with
        the column mean and strings with the most frequent value, and leaves out rows without a
        target; a column with ten or more missing cells also gets an indicator column.
    dates : iterable of str
        Columns of dates, which become days since 1970-01-01.
    ordinal : iterable of str
        Columns of ordered categories, as ``size`` (by number or alphabet) or ``size=S<M<L``.

    Returns
    -------
    table : pyarrow.Table
        The rows to use.
    encoding : Encoding
        Fitted encoding.
    """
    if not target:
        raise UsageError(
            "--target is needed, the column to predict; the table has"
            f" {listed(table.column_names, 12)}."
        )
    orders = _orders(ordinal, table.column_names)
    refuse_absent([target, *drop, *dates, *orders], table)
    left_out = {target, *drop}
    names = [name for name in table.column_names if name not in left_out]
    if not names:
        raise TableError(f"the table has no column besides the target {quoted(target)}.")
    notes: list[str] = []
    stage: Stage = "fit" if distinct is None else "blocks"
    decimals = cells.settled_decimals(table)
    # a target of text is refused before rows are left out
    response_parser = number_parser(table, target, f"the target {quoted(target)}", decimals)
    if missing == "drop":
        table = _complete_rows(table, [target, *names], notes)
    elif missing == "mean":
        table = _rows_with_target(table, target, notes)
    filled = names if missing == "mean" else []
    n_missing = refuse_missing(table, [target, *names], filled=filled, target=target, stage=stage)
    text_columns = [name for name in text_names(table.schema) if name not in left_out]
    reader = ColumnReader(
        table=table,
        dates=dates,
        orders=orders,
        decimals=decimals,
        distinct_values={} if distinct is None else distinct(text_columns),
        notes=notes,
    )
    columns = reader.columns(names)
    notes += _format_notes(table, [*columns, InputColumn(target, response_parser)])
    indicated = [name for name, count in n_missing.items() if count >= MIN_INDICATED_MISSING]
    if n_missing:
        indicators = f", and marked in columns of 0 and 1: {listed(indicated)}" if indicated else ""
        notes.append(
            f"missing values in {counted(len(n_missing), 'column')} ({listed(n_missing)}) are"
            f" filled with means, or the most frequent text{indicators}."
        )
    parts = list(_parts(columns, bool(filled), indicated))
    transformer = ColumnTransformer(parts, verbose_feature_names_out=False)
    encoding = Encoding(target, transformer, notes, stage, response_parser=response_parser)
    try:
        transformer.fit(table.select(names))
        _ = encoding.names
    except ValueError as error:
        repeated_names = "columns get the names of others when they are encoded; rename them."
        raise TableError(
            repeated_names if "not unique" in str(error) else one_line(error)
        ) from error
    return table, encoding


def _orders(arguments: Iterable[str], names: list[str]) -> dict[str, list[str]]:
    """Parse ``--ordinal``: levels by column, empty if the order is implied. Column names may
    contain equals signs.
    """
    orders: dict[str, list[str]] = {}
    for text in arguments:
        prefixes = [name for name in names if text not in names and text.startswith(f"{name}=")]
        if not prefixes:
            orders[text] = []
            continue
        name = prefixes[0]
        levels = [level.strip() for level in text.removeprefix(f"{name}=").split("<")]
        if len(set(levels)) < max(2, len(levels)):
            raise UsageError(
                f"--ordinal {quoted(text)} needs at least two different levels, as in size=S<M<L."
            )
        orders[name] = levels
    return orders


def _complete_rows(table: Any, names: list[str], notes: list[str]) -> Any:
    """Keep the rows whose cells in the named columns are all usable, and report the number of the
    other rows.
    """
    is_missing, is_infinite = cells.missing_and_infinite(table, names)
    is_unusable = is_missing | is_infinite
    is_complete = ~is_unusable.any(axis=1)
    n_rows = table.num_rows
    if not is_complete.any():
        counts = is_unusable.sum(axis=0)
        worst = int(counts.argmax())
        raise TableError(
            "every row has a cell that is missing or not finite, most in column"
            f" {quoted(names[worst])} ({counts[worst]} of {n_rows} rows); leave columns out with"
            " --drop, or fill them."
        )
    if not is_complete.all():
        n_left_out = n_rows - is_complete.sum()
        notes.append(f"{n_left_out} of {n_rows} rows left out: cells are missing or not finite.")
    return table.filter(is_complete)


def _format_notes(table: Any, columns: list[InputColumn]) -> Iterator[str]:
    """Notes about numbers that are written as text, one for all columns of a format."""
    for mark in ".,":
        names = [column.name for column in columns if column.parser.decimal == mark]
        if names:
            example = cells.example(distinct_strings(table.column(names[0]))[0], mark)
            yield f"numbers written as text in {listed(names, 3)}, read as numbers: {example}."


def _rows_with_target(table: Any, target: str, notes: list[str]) -> Any:
    """Keep the rows whose target is not missing: a target is never filled."""
    is_missing = cells.missing_and_infinite(table, [target])[0][:, 0]
    n_left_out = int(is_missing.sum())
    if n_left_out == table.num_rows:
        raise TableError(f"the target {quoted(target)} is missing in every row.")
    if n_left_out:
        notes.append(
            f"{n_left_out} of {table.num_rows} rows left out: the target {quoted(target)} is"
            " missing there."
        )
    return table.filter(~is_missing) if n_left_out else table


def _parts(
    columns: list[InputColumn], fill: bool, indicated: list[str]
) -> Iterator[tuple[str, Any, list[str]]]:
    """Parts of a ColumnTransformer: adjacent columns of one numeric format together, categorical
    columns one by one.
    """

    def format_of(column: InputColumn) -> Any:
        if column.categories is not None:
            return column.name
        return column.parser.kind, column.parser.decimal, column.parser.order

    for _, group in groupby(columns, format_of):
        members = list(group)
        first = members[0]
        names = [column.name for column in members]
        steps: list[Any] = [first.parser]
        if fill:
            strategy = "mean" if first.categories is None else "most_frequent"
            steps.append(SimpleImputer(strategy=strategy))
        if first.categories is not None:
            categories = [np.array(first.categories, dtype=object)]
            if first.ordered:
                steps.append(OrdinalEncoder(categories=categories))
            else:
                # no category is the reference, so that an unknown category differs from all others
                steps.append(OneHotEncoder(categories=categories, sparse_output=False))
        yield names[0], make_pipeline(*steps) if len(steps) > 1 else steps[0], names
        if indicated_names := [name for name in names if name in indicated]:
            indicator = make_pipeline(first.parser, MissingIndicator(features="all"))
            yield f"{names[0]} is missing", indicator, indicated_names


def numbers_of(table: Any, name: str, parser: TableColumns, stage: Stage = "fit") -> Array:
    """Parse a column of a training table as numbers and refuse missing cells."""
    column = table.select([name])
    values = np.asarray(parser.transform(column), dtype=float)
    if not np.isfinite(values).all():
        refuse_missing(column, [name], target=name, stage=stage)
        cells.refuse_infinite(values, [name], column)
    return values[:, 0]


# Tables for a fitted model


@dataclass(frozen=True)
class Encoding:
    """Encode tables as numbers for the ensemble of a model, with errors that name cells.

    Parameters
    ----------
    target : str
        Column to predict.
    transformer : ColumnTransformer
        First step of the model's pipeline: TableColumns, or pipelines that begin with one.
    messages : list of str
        Notes for the user about the encoding.
    stage : {"fit", "blocks", "predict"}
        Purpose of the tables, which decides the advice of error messages.
    unknown : {"error", "ignore"}
        Whether categories that were not learned are refused, or encoded as 0 in every indicator
        column.
    response_parser : TableColumns
        Parser of the target.
    ignored : Counter
        Number of cells with unknown categories, by column.
    """

    target: str
    transformer: Any
    messages: list[str] = field(default_factory=list)
    stage: Stage = "predict"
    unknown: Literal["error", "ignore"] = "error"
    response_parser: TableColumns = field(default_factory=TableColumns)
    ignored: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of_model(cls, model: Any, unknown: Literal["error", "ignore"] = "error") -> Encoding:
        """Encoding of a model of ``olsen fit``; models that were saved in Python are refused.

        The kinds and the names of the columns are computed here, so that a damaged file is found
        before a table is read.
        """
        if not hasattr(model, "target_name_"):
            raise ModelFileError(
                "the model was fitted and saved in Python, and predicts there:"
                " olsen.load(path).predict(frame). The command reads models of olsen fit."
            )
        encoding = cls(model.target_name_, model[0], unknown=unknown)
        for steps, _ in encoding._parts:
            if unknown == "ignore" and isinstance(steps[-1], OneHotEncoder):
                steps[-1].set_params(handle_unknown="ignore")
        _ = encoding.columns, encoding.names
        return encoding

    def ignored_note(self) -> list[str]:
        """Note for the user about cells with unknown categories, if there were any."""
        if not self.ignored:
            return []
        columns = [f"{quoted(name)} ({count})" for name, count in self.ignored.most_common()]
        return [
            f"{self.ignored.total()} cells hold categories that the model has not seen, taken for"
            f" none: {', '.join(columns)}."
        ]

    @property
    def _parts(self) -> list[tuple[list[Any], list[str]]]:
        """Transformers of each group of columns, first the parser, and the names of the columns."""
        parts = []
        for _, part, names in self.transformer.transformers_:
            if names:  # the remainder has none
                parts.append((list(part) if isinstance(part, Pipeline) else [part], names))
        return parts

    @cached_property
    def columns(self) -> list[InputColumn]:
        """Kinds of the table columns that the model uses."""
        columns: dict[str, InputColumn] = {}
        for steps, names in self._parts:
            encoder = steps[-1]
            has_categories = isinstance(encoder, OneHotEncoder | OrdinalEncoder)
            for name in names:
                # a column with a missing-value indicator occurs twice; the first part describes it
                columns.setdefault(
                    name,
                    InputColumn(
                        name,
                        parser=steps[0],
                        categories=tuple(encoder.categories[0]) if has_categories else None,
                        ordered=isinstance(encoder, OrdinalEncoder),
                        fills=len(steps) > 1 and isinstance(steps[1], SimpleImputer),
                    ),
                )
        return list(columns.values())

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [str(name) for name in self.transformer.get_feature_names_out()]

    @property
    def needed(self) -> list[str]:
        """Names of the table columns that the model uses, without the target."""
        return [column.name for column in self.columns]

    def select_columns(self, table: Any) -> Any:
        """Select the table columns that the model uses; raise if some are missing."""
        table_names = table.column_names
        absent = [name for name in self.needed if name not in set(table_names)]
        if absent:
            extra = [name for name in table_names if name not in {*self.needed, self.target}]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            n_absent = counted(len(absent), "column")
            raise TableError(f"the table lacks {n_absent} of the model: {listed(absent)}{hint}.")
        return table.select(self.needed)

    def features(self, table: Any) -> Array:
        """Encode the columns of a table, which must have all columns of the model, with the same
        types.

        Missing values are imputed in columns whose means were learned, and refused in other
        columns.
        """
        table = self.select_columns(table)
        filled = [column.name for column in self.columns if column.fills]
        incomplete = [n for n in self.needed if n not in filled and table.column(n).null_count]
        refuse_missing(table, incomplete, target=self.target, stage=self.stage)
        for column in self.columns:
            if column.categories is not None:
                self._refuse_unknown(table, column, column.categories)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found unknown categories")
            encoded = np.asarray(self.transformer.transform(table), dtype=float)
        if not np.isfinite(encoded).all():
            refuse_missing(table, self.needed, filled=filled, target=self.target, stage=self.stage)
            cells.refuse_infinite(encoded, self.names, table)
        return np.asfortranarray(encoded)

    def response(self, table: Any) -> Array:
        """Parse the target column as numbers, and refuse missing cells."""
        return numbers_of(table, self.target, self.response_parser, self.stage)

    def refuse_extremes(self, X: Array, y: Array) -> None:
        """Raise for columns and targets of extreme magnitude, by name; the estimator knows their
        indices only.
        """
        smallest_allowed, largest_allowed = ORDINARY
        largest_of_columns = np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0))
        largest = np.append(largest_of_columns, np.abs(y).max(initial=0.0))
        is_small = (largest > 0) & (largest < smallest_allowed)
        extreme = np.flatnonzero(is_small | (largest > largest_allowed))
        if not len(extreme):
            return
        first = extreme[0]
        name = [*self.names, self.target][first]
        if first == len(self.names):
            label = f"the target {quoted(name)}"
            drop = ""
        else:
            label = f"column {quoted(name)}"
            drop = f", or leave it out with {option('--drop', name)}"
        raise TableError(
            f"the largest entry of {label} is {largest[first]:.3g} in absolute value. Between"
            f" {smallest_allowed:g} and {largest_allowed:g} its squares stay in the range of double"
            f" precision: change its unit{drop}."
        )

    def _refuse_unknown(self, table: Any, column: InputColumn, known: tuple[str, ...]) -> None:
        """Raise for categories that the model has not seen, or count their cells."""
        strings, codes = distinct_strings(table.column(column.name))
        is_unknown = np.array([text not in set(known) for text in strings.to_pylist()], dtype=bool)
        unknown_rows = np.flatnonzero(np.append(is_unknown, False)[codes])  # missing is not unknown
        if not len(unknown_rows):
            return
        if not column.ordered and self.unknown == "ignore":
            self.ignored[column.name] += len(unknown_rows)
            return
        remedy = "" if column.ordered else ", or take them for none of these with --unknown ignore"
        unknown = strings.filter(is_unknown).to_pylist()
        raise TableError(
            f"column {quoted(column.name)} holds {listed(unknown, 5)}, which the model has not"
            f" seen; it knows {listed(known, 8)}. Correct these cells, the first in row"
            f" {cells.rows_before(table) + unknown_rows[0] + 1}{remedy}."
        )
