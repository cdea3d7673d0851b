"""Encode tables as the numbers of a model: choose scikit-learn's transformers for the columns, and
apply the encoding.

In a training table, numbers are plain or in one format, dates must be declared, and other strings
are categories; ambiguous columns are refused. The encoding of a model of ``olsen fit`` checks new
tables, with errors that name cells.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from .._persistence import ModelFileError
from .._report.formatting import counted, quoted, shortened
from .._trust import ORDINARY
from . import columns as cells
from .columns import Stage, TableColumns, distinct_strings, refuse_missing, rows_before
from .tables import TableError, listed, one_line, option, refuse_absent, text_names
from .terminal import UsageError

Array = NDArray[np.float64]
MAX_CATEGORIES = 200
MIN_CATEGORY_LIMIT = 20  # categories that are allowed in a table of any number of rows
MIN_INDICATED_MISSING = (
    10  # missing cells that get an indicator column: the indicator of fewer would be fitted exactly
)


class InputColumn(NamedTuple):
    """Type of a table column, inferred from a training table or read from a fitted model."""

    name: str
    parser: TableColumns
    categories: tuple[str, ...] | None = None
    ordered: bool = False  # an unknown category has no position in the order and is always refused
    fills: bool = False  # whether missing cells are imputed


# Types of the columns of a training table


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
        the column mean and strings with the most frequent value; a column with ten or more missing
        cells also gets an indicator column.
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
    messages: list[str] = []
    stage: Stage = "fit" if distinct is None else "blocks"
    decimals = cells.settled_decimals(table)
    response_parser = _target_parser(
        table, target, decimals
    )  # a target of text is refused before rows are left out
    if missing == "drop":
        table = _complete_rows(table, [target, *names], messages)
    filled = names if missing == "mean" else []
    missing_counts = refuse_missing(
        table, [target, *names], filled=set(filled), target=target, stage=stage
    )
    distinct_values: dict[str, list[str]] = {}
    if distinct is not None:
        distinct_values = distinct(
            [name for name in text_names(table.schema) if name not in left_out]
        )
    columns = []
    for name in names:
        column = _input_column(
            table,
            name,
            values=distinct_values.get(name),
            is_date=name in dates,
            levels=orders.get(name),
            decimals=decimals,
            messages=messages,
        )
        columns.append(column)
    indicated = [name for name, count in missing_counts.items() if count >= MIN_INDICATED_MISSING]
    parsers = {column.name: column.parser for column in columns}
    parsers[target] = response_parser
    for mark in ".,":  # one message for all columns of a format
        parsed_names = [name for name, parser in parsers.items() if parser.decimal == mark]
        if parsed_names:
            strings = distinct_strings(table.column(parsed_names[0]))[0]
            example = cells.example(strings, mark)
            messages.append(
                f"numbers written as text in {listed(parsed_names, 3)}, read as numbers: {example}."
            )
    if missing_counts:
        indicators = f", and marked in columns of 0 and 1: {listed(indicated)}" if indicated else ""
        filled_columns = (
            f"{counted(len(missing_counts), 'column')} ({listed(list(missing_counts))})"
        )
        messages.append(
            f"missing values in {filled_columns} are filled with means, or the most frequent"
            f" text{indicators}."
        )
    parts = list(_parts(columns, bool(filled), indicated))
    transformer = ColumnTransformer(parts, verbose_feature_names_out=False)
    encoding = Encoding(target, transformer, messages, stage, response_parser=response_parser)
    try:
        transformer.fit(table.select(names))
        _ = encoding.names
    except ValueError as error:
        repeated_names = "columns get the names of others when they are encoded; rename them."
        raise TableError(
            repeated_names if "not unique" in str(error) else one_line(error)
        ) from error
    return table, encoding


def numbers_of(
    table: Any, name: str, parser: TableColumns | None = None, stage: Stage = "fit"
) -> Array:
    """Parse a column of a training table as numbers and refuse missing cells; the format is
    detected by default.
    """
    column = table.select([name])
    if parser is None:
        parser = _target_parser(table, name, cells.settled_decimals(table))
    values = np.asarray(parser.transform(column), dtype=float)
    if not np.isfinite(values).all():
        refuse_missing(column, [name], target=name, stage=stage)
        raise _infinite(values, [name], column)
    return values[:, 0]


def _infinite(values: Array, names: list[str], table: Any) -> TableError:
    row, j = np.argwhere(~np.isfinite(values))[0]
    return TableError(
        f"column {quoted(names[j])} is infinite in row {rows_before(table) + row + 1}; correct that"
        " cell."
    )


def _orders(arguments: Iterable[str], names: list[str]) -> dict[str, list[str]]:
    """Parse ``--ordinal``: levels by column, empty if the order is implied. Column names may
    contain equals signs.
    """
    orders: dict[str, list[str]] = {}
    for text in arguments:
        name = next(
            (name for name in names if text not in names and text.startswith(f"{name}=")), text
        )
        levels = (
            [level.strip() for level in text[len(name) + 1 :].split("<")] if text != name else []
        )
        if levels and len(set(levels)) < max(2, len(levels)):
            raise TableError(
                f"--ordinal {quoted(text)} needs at least two different levels, as in size=S<M<L."
            )
        orders[name] = levels
    return orders


def _complete_rows(table: Any, names: list[str], messages: list[str]) -> Any:
    """Keep the rows whose cells in the named columns are all usable, and report the number of the
    other rows.
    """
    is_unusable = {name: np.logical_or(*cells.unusable(table.column(name))) for name in names}
    is_complete = ~np.logical_or.reduce(list(is_unusable.values()))
    n_rows = len(is_complete)
    if not is_complete.any():
        worst = max(is_unusable, key=lambda name: is_unusable[name].sum())
        raise TableError(
            f"every row has a cell that is missing or not finite, most in column {quoted(worst)}"
            f" ({int(is_unusable[worst].sum())} of {n_rows} rows); leave columns out with --drop,"
            " or fill them."
        )
    if not is_complete.all():
        messages.append(
            f"{int((~is_complete).sum())} of {n_rows} rows left out: cells are missing or not"
            " finite."
        )
    return table.filter(is_complete)


def _target_parser(table: Any, target: str, decimals: str) -> TableColumns:
    """Detect the number format of the target."""
    label = f"the target {quoted(target)}"
    if cells.is_plain(table, target, decimals, label, []):
        return TableColumns()
    strings, codes = distinct_strings(table.column(target))
    decimal = cells.decimal_mark(strings, label, decimals)
    if decimal is not None:
        return TableColumns("number", decimal)
    is_odd = np.append(cells.odd_strings(strings), False)[codes]
    rows = np.flatnonzero((codes >= 0) & is_odd)
    first_string = strings[int(codes[rows[0]])]
    raise TableError(
        f"{label} holds text, or numbers in another format, in {counted(len(rows), 'cell')}, the"
        f" first {quoted(first_string)} in row {rows[0] + 1}; correct them, empty them and leave"
        " their rows out with --missing drop, or choose another --target."
    )


def _input_column(
    table: Any,
    name: str,
    *,
    values: list[str] | None,
    is_date: bool,
    levels: list[str] | None,
    decimals: str,
    messages: list[str],
) -> InputColumn:
    """Infer the type of a column; `values` holds its distinct strings if `table` is the head of a
    larger table.
    """
    column = table.column(name)
    label = f"column {quoted(name)}"
    if levels is None and not is_date and cells.is_plain(table, name, decimals, label, messages):
        return InputColumn(name, TableColumns())
    strings = distinct_strings(
        column if values is None else pa.chunked_array([pa.array(values, "string")])
    )[0]
    if levels is not None:
        return _ordered(sorted(set(strings.to_pylist())), name, levels, messages)
    is_temporal = cells.is_temporal(column.type)
    decimal = None if is_date or is_temporal else cells.decimal_mark(strings, label, decimals)
    if decimal is not None:
        return InputColumn(name, TableColumns("number", decimal))
    order = "ymd" if is_temporal else cells.date_order(strings.to_pylist(), label)
    if not is_date and order is None:
        return _categorical(strings, name, table.num_rows, messages)
    if not is_date:
        raise TableError(
            f"{label} holds dates such as {quoted(column.drop_null()[0])}; turn them into days"
            f" since 1970-01-01 with {option('--dates', name)}, or leave the column out with"
            f" {option('--drop', name)}."
        )
    if order is None:
        values = strings.to_pylist()
        non_dates = [
            text for text in values if all(cells.days(text, form) is None for form in cells.DATES)
        ]
        raise TableError(
            f"{label} holds {listed(non_dates or values, 3)}, not only dates in one form; correct"
            f" these cells, or leave out {option('--dates', name)}."
        )
    messages.append(f"{label} holds dates, which become days since 1970-01-01.")
    return InputColumn(name, TableColumns("date", order=order))


def _ordered(values: list[str], name: str, levels: list[str], messages: list[str]) -> InputColumn:
    """Type of a column of ordered categories: by `levels`, or if there are none by number or
    alphabet.
    """
    if not levels:
        with suppress(ValueError):
            values = sorted(values, key=float)
        levels = values
    if unordered := sorted(set(values) - set(levels)):
        example = "<".join(shortened(level) for level in [*levels, *unordered][:5])
        raise TableError(
            f"column {quoted(name)} holds {listed(unordered, 5)}, which its order does not name;"
            f" add it, as in --ordinal '{shortened(name)}={example}'."
        )
    level_codes = ", ".join(f"{quoted(level)} = {i}" for i, level in enumerate(levels[:6]))
    if len(levels) > 6:
        level_codes += ", ..."
    messages.append(f"column {quoted(name)} has an order: {level_codes}.")
    return InputColumn(name, TableColumns("text"), tuple(levels), ordered=True)


def _categorical(strings: Any, name: str, n_rows: int, messages: list[str]) -> InputColumn:
    """Type of a column of unordered categories; raise if the strings are mostly numbers, or too
    many.
    """
    values = strings.to_pylist()
    is_numeric = cells.fits_format(strings, ".") | cells.fits_format(strings, ",")
    label = f"column {quoted(name)}"
    remedy = f"leave the column out with {option('--drop', name)}"
    categories = sorted(set(values))
    if 2 * is_numeric.sum() > len(values):
        odd_values = [
            value
            for value, is_odd in zip(values, cells.odd_strings(strings), strict=True)
            if is_odd
        ]
        raise TableError(
            f"{label} holds numbers and text such as {listed(odd_values, 3)}; correct those cells,"
            f" or {remedy}."
        )
    if len(categories) > min(MAX_CATEGORIES, max(MIN_CATEGORY_LIMIT, n_rows / 2)):
        number = (
            f"more than {MAX_CATEGORIES}" if len(categories) > MAX_CATEGORIES else len(categories)
        )
        raise TableError(
            f"{label} holds {number} different strings ({listed(categories, 3)}), too many for"
            f" categories; {remedy}."
        )
    messages.append(
        f"{label} holds text, which becomes {counted(len(categories), 'column')} of 0 and 1, one"
        " for each category."
    )
    return InputColumn(name, TableColumns("text"), tuple(categories))


def _parts(
    columns: list[InputColumn], fill: bool, indicated: list[str]
) -> Iterator[tuple[str, Any, list[str]]]:
    """Parts of a ColumnTransformer: adjacent columns of one numeric format together, categorical
    columns one by one.
    """

    def group_key(column: InputColumn) -> Any:
        return column.name if column.categories is not None else list(vars(column.parser).values())

    for _, group in groupby(columns, group_key):
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
            else:  # no category is the reference, so that an unknown category differs from all of the known ones
                steps.append(OneHotEncoder(categories=categories, sparse_output=False))
        yield names[0], make_pipeline(*steps) if len(steps) > 1 else steps[0], names
        if indicated_names := [name for name in names if name in indicated]:
            indicator = make_pipeline(first.parser, MissingIndicator(features="all"))
            yield f"{names[0]} is missing", indicator, indicated_names


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
        """Encoding of a model of ``olsen fit``; models that were saved in Python are refused."""
        if not hasattr(model, "target_name_"):
            raise ModelFileError(
                "the model was fitted and saved in Python, and predicts there:"
                " olsen.load(path).predict(frame). The command reads models of olsen fit."
            )
        encoding = cls(model.target_name_, model[0], unknown=unknown)
        for steps, _ in encoding._parts:
            if unknown == "ignore" and isinstance(steps[-1], OneHotEncoder):
                steps[-1].set_params(handle_unknown="ignore")
        return encoding

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
        """Types of the table columns that the model uses."""
        columns: dict[str, InputColumn] = {}
        for steps, names in self._parts:
            fills = any(isinstance(step, SimpleImputer) for step in steps)
            last_step = steps[-1]
            ordered = isinstance(last_step, OrdinalEncoder)
            categories = (
                tuple(last_step.categories[0])
                if ordered or isinstance(last_step, OneHotEncoder)
                else None
            )
            for name in (
                names
            ):  # a column with a missing-value indicator occurs twice; the first part describes it
                columns.setdefault(name, InputColumn(name, steps[0], categories, ordered, fills))
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
        table_names = set(table.column_names)  # pyarrow builds a new list on every access
        if missing := [name for name in self.needed if name not in table_names]:
            extra = [name for name in table.column_names if name not in {*self.needed, self.target}]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            n_missing = counted(len(missing), "column")
            raise TableError(f"the table lacks {n_missing} of the model: {listed(missing)}{hint}.")
        return table.select(self.needed)

    def features(self, table: Any) -> Array:
        """Encode the columns of a table, which must have all columns of the model, with the same
        types.

        Missing values are imputed in columns whose means were learned, and refused in other
        columns.
        """
        table = self.select_columns(table)
        incomplete = [
            column.name
            for column in self.columns
            if not column.fills and table.column(column.name).null_count
        ]
        refuse_missing(table, incomplete, target=self.target, stage=self.stage)
        self._refuse_unknown(table)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found unknown categories")
            encoded = np.asarray(self.transformer.transform(table), dtype=float)
        if not np.isfinite(encoded).all():
            filled = [column.name for column in self.columns if column.fills]
            refuse_missing(table, self.needed, filled=filled, target=self.target, stage=self.stage)
            raise _infinite(encoded, self.names, table)
        return np.asfortranarray(encoded)

    def response(self, table: Any) -> Array:
        """Parse the target column as numbers, and refuse missing cells."""
        return numbers_of(table, self.target, self.response_parser, self.stage)

    def refuse_extremes(self, X: Array, y: Array) -> None:
        """Raise for columns and targets of extreme magnitude, by name; the estimator knows their
        indices only.
        """
        smallest_ordinary, largest_ordinary = ORDINARY
        for values, is_target in ((X, False), (y[:, None], True)):
            largest = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
            is_tiny = (largest > 0) & (largest < smallest_ordinary)
            extreme = np.flatnonzero(is_tiny | (largest > largest_ordinary))
            if not len(extreme):
                continue
            name = self.target if is_target else self.names[extreme[0]]
            label = f"the target {quoted(name)}" if is_target else f"column {quoted(name)}"
            similar = (
                f" (and {counted(len(extreme) - 1, 'more column')} like it)"
                if len(extreme) > 1
                else ""
            )
            drop = (
                f", or leave the column out with {option('--drop', name)}"
                if name in self.needed
                else ""
            )
            raise TableError(
                f"the largest entry of {label} is {largest[extreme[0]]:.3g} in absolute"
                f" value{similar}. Between {smallest_ordinary:g} and {largest_ordinary:g} its"
                f" squares stay in the range of double precision: change its unit{drop}."
            )

    def _refuse_unknown(self, table: Any) -> None:
        """Raise for categories that the model has not seen, or count their cells."""
        for column in self.columns:
            if column.categories is None:
                continue
            values = column.parser.transform(table.select([column.name]))[:, 0]
            categories = set(column.categories)
            unknown = [
                text for text in dict.fromkeys(values) if text not in categories and text == text
            ]  # NaN is missing
            if unknown and (column.ordered or self.unknown == "error"):
                row = rows_before(table) + list(values).index(unknown[0]) + 1
                ignore = (
                    ""
                    if column.ordered
                    else ", or take them for none of these with --unknown ignore"
                )
                raise TableError(
                    f"column {quoted(column.name)} holds {listed(unknown, 5)}, which the model has"
                    f" not seen; it knows {listed(column.categories, 8)}. Correct these cells, the"
                    f" first in row {row}{ignore}."
                )
            if unknown:
                self.ignored[column.name] += int(np.isin(values, unknown).sum())
