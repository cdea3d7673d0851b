"""Tables as the numbers that a model takes: what each column is, scikit-learn's transformers of that, and their use.

From a training table: numbers are plain or in one format, dates are asked for, other texts are categories;
ambiguous columns are refused. Of any fitted pipeline: which columns it takes, with errors that name cells.
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

from .._execution import from_extra
from .._report.formatting import counted, quoted, shortened
from . import columns as cells
from .columns import FIRST_ROW, Stage, TableColumns, distinct_texts, refuse_missing
from .tables import TableError, listed, one_line, option, refuse_absent, text_names
from .terminal import UsageError

Array = NDArray[np.float64]
MAX_CATEGORIES = 200
MARKED_GAPS = (
    10  # missing cells of a column from which on they have a column of their own: fewer would be fitted exactly
)


class InputColumn(NamedTuple):
    """What is known about a column of tables, as decided from one of them or found in a fitted model."""

    name: str
    parser: Any = None  # TableColumns, in our own models
    categories: tuple[Any, ...] | None = None
    ordered: bool = False  # unknown categories have no place in an order
    fills: bool = False  # missing cells
    lenient: bool = False  # about unknown categories, by itself


# What the columns of a training table are


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
    """The rows of a table that are used, and how they become numbers.

    Parameters
    ----------
    table : pyarrow.Table
        As it was read.
    target : str
        Column to predict.
    drop : iterable of str
        Columns to leave out.
    distinct : callable, default=None
        Where `table` is the head of a larger one, finds the different texts of some columns in all of it.
    missing : {"error", "drop", "mean"}
        Missing cells are refused, or their rows left out, or "mean" fills those of numbers with their mean and those of
        texts with the most frequent one, and adds a column that says where they were to every column with ten or more.
    dates : iterable of str
        Columns of dates, which become days since 1970-01-01.
    ordinal : iterable of str
        Columns of categories with an order, as ``size`` (by number or alphabet) or ``size=S<M<L``.
    """
    if not target:
        raise UsageError(f"--target is needed, the column to predict; the table has {listed(table.column_names, 12)}.")
    orders = _orders(ordinal, table.column_names)
    refuse_absent([target, *drop, *dates, *orders], table)
    left_out, special = {target, *drop}, {*dates, *orders}
    names = [name for name in table.column_names if name not in left_out]
    if not names:
        raise TableError(f"the table has no column besides the target {quoted(target)}.")
    messages: list[str] = []
    stage: Stage = "fit" if distinct is None else "blocks"
    decimals = cells.settled_decimals(table)
    response = _target(table, target, decimals)  # refused before rows are left out
    table = _without_gaps(table, [target, *names], messages) if missing == "drop" else table
    filled = names if missing == "mean" else []
    gaps = refuse_missing(table, [target, *names], filled=set(filled), target=target, stage=stage)
    found = {} if distinct is None else distinct([n for n in text_names(table.schema) if n not in left_out])
    plain, notes = cells.plain_columns(table, [name for name in names if name not in special], decimals)
    messages += notes
    parser = TableColumns()
    decided = [
        InputColumn(name, parser) if name in plain
        else _decided(table, name, found.get(name), name in dates, orders.get(name), decimals, messages)
        for name in names
    ]  # fmt: skip
    marked = [name for name, count in gaps.items() if count >= MARKED_GAPS]
    for mark in ".,":
        written = [column.name for column in (*decided, response) if column.parser.decimal == mark]
        if written:  # said once, of many columns
            example = cells.example(distinct_texts(table.column(written[0]))[0], mark)
            messages.append(f"numbers written as text in {listed(written, 3)}, read as numbers: {example}.")
    if gaps:
        also = f", and marked in columns of 0 and 1: {listed(marked)}" if marked else ""
        filling = f"gaps in {counted(len(gaps), 'column')} ({listed(list(gaps))})"
        messages.append(f"{filling} are filled with means, or the most frequent text{also}.")
    before = ColumnTransformer(list(_parts(decided, bool(filled), marked)), verbose_feature_names_out=False)
    encoding = Encoding(target, make_pipeline(before), names, messages, stage, response_parser=response.parser)
    try:
        before.fit(table.select(names))
        _ = encoding.names
    except ValueError as error:
        twins = "columns get the names of others when they are encoded; rename them."
        raise TableError(twins if "not unique" in str(error) else one_line(error)) from error
    return table, encoding


def numbers_of(table: Any, name: str) -> Array:
    """A column of a training table as numbers, without missing cells."""
    parser = _target(table, name, cells.settled_decimals(table)).parser
    return Encoding(name, None, stage="fit", response_parser=parser).response(table)


def _orders(given: Iterable[str], names: list[str]) -> dict[str, list[str]]:
    """Columns with an order and the order, empty where it was not given; names may hold equals signs themselves."""
    found: dict[str, list[str]] = {}
    for text in given:
        name = next((name for name in names if text not in names and text.startswith(f"{name}=")), text)
        levels = [level.strip() for level in text[len(name) + 1 :].split("<")] if text != name else []
        if levels and len(set(levels)) < max(2, len(levels)):
            raise TableError(f"--ordinal {quoted(text)} needs at least two different levels, as in size=S<M<L.")
        found[name] = levels
    return found


def _without_gaps(table: Any, names: list[str], messages: list[str]) -> Any:
    """The rows in which all of these columns have usable cells; how many others there were is said."""
    bad = {name: np.logical_or(*cells.unusable(table.column(name))) for name in names}
    kept = ~np.logical_or.reduce(list(bad.values()))
    if not kept.any():
        worst = max(bad, key=lambda name: bad[name].sum())
        raise TableError(
            f"every row has a cell that is missing or not finite, most in column {quoted(worst)} "
            f"({int(bad[worst].sum())} of {len(kept)} rows); leave columns out with --drop, or fill them."
        )
    if not kept.all():
        messages.append(f"{int((~kept).sum())} of {len(kept)} rows left out: cells are missing or not finite.")
    return table.filter(kept)


def _numbers(where: str, texts: Any, decimals: set[str]) -> TableColumns | None:
    """The parser of a column with these different texts, if all of them are numbers."""
    decimal = cells.decimal_mark(texts, where, next(iter(decimals)) if len(decimals) == 1 else "")
    return None if decimal is None else TableColumns("number", decimal)


def _target(table: Any, target: str, decimals: set[str]) -> InputColumn:
    """How the numbers of the target are written."""
    column, where = table.column(target), f"the target {quoted(target)}"
    if target in cells.plain_columns(table, [target], decimals, "the target")[0]:
        return InputColumn(target, TableColumns())
    texts, codes = distinct_texts(column)
    parser = _numbers(where, texts, decimals)
    if parser is not None:
        return InputColumn(target, parser)
    rows = np.flatnonzero((codes >= 0) & np.append(cells.odd_texts(texts), False)[codes])
    raise TableError(
        f"{where} holds text, or numbers in another format, in {counted(len(rows), 'cell')}, the first "
        f"{quoted(texts[int(codes[rows[0]])])} in row {rows[0] + 1}; correct them, empty them and leave their rows out "
        f"with --missing drop, or choose another --target."
    )


def _decided(
    table: Any, name: str, values: list[str] | None, dates: bool, levels: list[str] | None, decimals: set[str],
    messages: list[str],
) -> InputColumn:  # fmt: skip
    """What a column is that is not plain numbers; `values` are its texts, where `table` is the head of a larger one."""

    column, where = table.column(name), f"column {quoted(name)}"
    temporal = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    order: Any = "ymd"
    if not dates or not temporal:
        texts = distinct_texts(column if values is None else pa.chunked_array([pa.array(values, "string")]))[0]
        if levels is not None:
            return _ordered(sorted(set(texts.to_pylist())), name, levels, messages)
        if not dates and not temporal:
            parser = _numbers(where, texts, decimals)
            if parser is not None:
                return InputColumn(name, parser)
        order = order if temporal else cells.date_order(texts.to_pylist(), where)
        if not dates and order is None:
            return _categorical(texts, name, table.num_rows, messages)
        if not dates:
            raise TableError(
                f"{where} holds dates such as {quoted(column.drop_null()[0])}; turn them into days since 1970-01-01 "
                f"with {option('--dates', name)}, or leave the column out with {option('--drop', name)}."
            )
        if order is None:
            orders = list(cells.DATES)
            strange = [text for text in texts.to_pylist() if all(cells.days(text, o) is None for o in orders)]
            raise TableError(
                f"{where} holds {listed(strange or texts.to_pylist(), 3)}, not only dates in one form; correct these "
                f"cells, or leave out {option('--dates', name)}."
            )
    messages.append(f"{where} holds dates, which become days since 1970-01-01.")
    return InputColumn(name, TableColumns("date", order=order))


def _ordered(values: list[str], name: str, levels: list[str], messages: list[str]) -> InputColumn:
    """Categories with an order: the given one, or by number, or by the alphabet."""
    if not levels:
        with suppress(ValueError):
            values = sorted(values, key=float)
        levels = values
    if missing := sorted(set(values) - set(levels)):
        raise TableError(
            f"column {quoted(name)} holds {listed(missing, 5)}, which its order does not name; add it, as in "
            f"--ordinal '{shortened(name)}={'<'.join(shortened(v) for v in [*levels, *missing][:5])}'."
        )
    shown = ", ".join(f"{quoted(level)} = {i}" for i, level in enumerate(levels[:6])) + ", ..." * (len(levels) > 6)
    messages.append(f"column {quoted(name)} has an order: {shown}.")
    return InputColumn(name, TableColumns("text"), tuple(levels), ordered=True)


def _categorical(texts: Any, name: str, n_rows: int, messages: list[str]) -> InputColumn:
    """A column of text, if its values can be categories."""
    values, numeric = texts.to_pylist(), cells.fits_format(texts, ".") | cells.fits_format(texts, ",")
    where, way_out = f"column {quoted(name)}", f"leave the column out with {option('--drop', name)}"
    categories = sorted(set(values))
    if 2 * numeric.sum() > len(values):
        strange = [value for value, odd in zip(values, cells.odd_texts(texts), strict=True) if odd]
        raise TableError(
            f"{where} holds numbers and text such as {listed(strange, 3)}; correct those cells, or {way_out}."
        )
    if len(categories) > min(MAX_CATEGORIES, max(20, n_rows / 2)):
        many = f"more than {MAX_CATEGORIES}" if len(categories) > MAX_CATEGORIES else len(categories)
        raise TableError(
            f"{where} holds {many} different texts ({listed(categories, 3)}), too many for categories; {way_out}."
        )
    messages.append(
        f"{where} holds text, which becomes {counted(len(categories), 'column')} of 0 and 1, one for each category."
    )
    return InputColumn(name, TableColumns("text"), tuple(categories))


def _parts(columns: list[InputColumn], fill: bool, gaps: list[str]) -> Iterator[tuple[str, Any, list[str]]]:
    """Parts of a ColumnTransformer: neighbouring columns of one kind together, texts one by one."""

    def kind(column: InputColumn) -> Any:
        return column.name if column.categories is not None else list(vars(column.parser).values())

    for _, group in groupby(columns, kind):
        alike = list(group)
        names, known = [column.name for column in alike], alike[0].categories
        steps: list[Any] = [alike[0].parser]
        if fill:
            strategy = "mean" if known is None else "most_frequent"
            steps.append(SimpleImputer(strategy=strategy))
        if known is not None:
            categories = [np.array(known, dtype=object)]
            dummies = OneHotEncoder(categories=categories, sparse_output=False)  # all: an unknown one is none of them
            steps.append(OrdinalEncoder(categories=categories) if alike[0].ordered else dummies)
        yield names[0], make_pipeline(*steps) if len(steps) > 1 else steps[0], names
        if marked := [name for name in names if name in gaps]:
            indicator = make_pipeline(alike[0].parser, MissingIndicator(features="all"))
            yield f"{names[0]} is missing", indicator, marked


# Tables for a fitted model


@dataclass(frozen=True)
class Encoding:
    """How a table becomes numbers: what is done before the ensemble of a model, with errors that name cells.

    Parameters
    ----------
    target : str
        Column to predict.
    before : fitted transformer or None
        What comes before the ensemble: a ColumnTransformer, or the steps of a pipeline that was fitted in Python.
    given : list of str or int
        Names of the columns that a model without a ColumnTransformer takes, or their number.
    messages : list of str
        What was done.
    stage : {"fit", "blocks", "predict"}
        What tables are encoded for: errors advise what can be done then.
    unknown : {"error", "ignore"}
        Whether categories that were not learned are refused, or are 0 in every column.
    response_parser : TableColumns
        How the numbers of the target are written.
    ignored : Counter
        Cells of unknown categories, by column.
    """

    target: str
    before: Any
    given: list[str] | int = 0
    messages: list[str] = field(default_factory=list)
    stage: Stage = "predict"
    unknown: Literal["error", "ignore"] = "error"
    response_parser: TableColumns = field(default_factory=TableColumns)
    ignored: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of_model(cls, model: Any, target: str, unknown: Literal["error", "ignore"] = "error") -> Encoding:
        """How tables become numbers for a fitted model."""
        names = getattr(model, "feature_names_in_", None)
        given = int(model.n_features_in_) if names is None else [str(name) for name in names]
        if unknown == "ignore":
            for encoder in leaves(model):
                if isinstance(encoder, OneHotEncoder):
                    encoder.set_params(handle_unknown="ignore")
        return cls(target, model[:-1] if isinstance(model, Pipeline) else None, given, unknown=unknown)

    @cached_property
    def columns(self) -> list[InputColumn]:
        """What is known of the columns of the table that are in use."""
        names = [f"column {j + 1}" for j in range(self.given)] if isinstance(self.given, int) else self.given
        first = self.before[0] if self.before is not None and len(self.before) else None
        if not isinstance(first, ColumnTransformer):
            parts = [(self.before, list(range(len(names))))]
        else:
            places = first._transformer_to_input_indices
            parts = [(one, places[name]) for name, one, _ in first.transformers_ if not isinstance(one, str)]
        found: dict[str, InputColumn] = {}
        for one, own in parts:
            steps = list(leaves(one))
            for place, j in enumerate(own):
                found[names[j]] = _described(names[j], steps, place, found.get(names[j]))
        return list(found.values())

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        names = [column.name for column in self.columns]
        if self.before is None or not len(self.before):
            return names
        return [str(name) for name in self.before.get_feature_names_out(names if isinstance(self.given, int) else None)]

    @property
    def needed(self) -> list[str]:
        """Names of the columns of a table that are in use, the target left out."""
        if isinstance(self.given, int):
            raise TableError(
                "the model was fitted in Python on columns without names, which are taken in their order from a table "
                "in memory, but this one is read in blocks; fit the model on a data frame."
            )
        return [column.name for column in self.columns]

    def features(self, table: Any, first_row: int = 0) -> Array:
        """Encoded columns of a table, which must hold all columns in use, of the same kind, without missing cells.

        Gaps are filled in columns whose means were learned. `first_row` is the number of the table's first row, where
        it is part of a larger one.
        """
        table = self._own_columns(table)
        gaps = [column.name for column in self.columns if not column.fills and table.column(column.name).null_count]
        refuse_missing(table, gaps, first_row, target=self.target, stage=self.stage)
        self._refuse_unknown(table, first_row)
        if not table.num_rows:
            return np.empty((0, len(self.names)))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names|Found unknown categories")
            X = self._rows(table, first_row)
            encoded = X if self.before is None or not len(self.before) else self.before.transform(X)
        encoded = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded, dtype=float)
        self._refuse_infinite(encoded, table, first_row)
        return np.asfortranarray(encoded)

    def response(self, table: Any, first_row: int = 0) -> Array:
        """The target column as numbers, without missing cells."""
        column = table.select([self.target]).replace_schema_metadata({FIRST_ROW: str(first_row).encode()})
        values = self.response_parser.transform(column)
        self._refuse_infinite(values, column, first_row)
        return np.asarray(values[:, 0], dtype=float)

    def _rows(self, table: Any, first_row: int) -> Any:
        """Rows as the first step takes them: our own columns as they are, others as numbers and texts."""
        if any(column.parser is not None for column in self.columns):
            metadata = {**(table.schema.metadata or {}), FIRST_ROW: str(first_row).encode()}
            return table.replace_schema_metadata(metadata)
        held = {column.name: _cells(table, column) for column in self.columns}
        if isinstance(self.given, int) or self.before is None or not isinstance(self.before[0], ColumnTransformer):
            texts = any(values.dtype == object for values in held.values())
            return np.column_stack([values.astype(object) if texts else values for values in held.values()])
        frame = from_extra("pandas", "cli' pandas'", "A pipeline that was fitted on data frames").DataFrame(held)
        return frame.reindex(columns=self.given)  # columns that are dropped may be missing

    def _own_columns(self, table: Any) -> Any:
        """The columns in use of a table; an error if some are missing."""
        if isinstance(self.given, int):
            rest = [name for name in table.column_names if name != self.target]
            if len(rest) != self.given:
                raise TableError(
                    f"the table has {counted(len(rest), 'column')} besides the target, but the model was fitted in "
                    f"Python on {counted(self.given, 'column')} without names, so columns are matched by position; "
                    f"give the same number, or fit the model on a data frame."
                )
            return table.select(rest).rename_columns([f"column {j + 1}" for j in range(self.given)])
        held = set(table.column_names)  # a fresh list every time it is asked for
        if missing := [name for name in self.needed if name not in held]:
            extra = [name for name in table.column_names if name not in {*self.needed, self.target}]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            lacks = counted(len(missing), "column")
            raise TableError(f"the table lacks {lacks} of the model: {listed(missing)}{hint}.")
        return table.select(self.needed)

    def _refuse_unknown(self, table: Any, first_row: int) -> None:
        """Raise for categories that the model has not seen, or count them."""
        for column in self.columns:
            if column.categories is None or column.lenient:
                continue
            held = _cells(table, column)
            strange = [v for v in dict.fromkeys(held) if v not in set(column.categories) and v == v]
            if strange and (column.ordered or self.unknown == "error"):
                row = first_row + list(held).index(strange[0]) + 1
                ignore = "" if column.ordered else ", or take them for none of these with --unknown ignore"
                raise TableError(
                    f"column {quoted(column.name)} holds {listed(strange, 5)}, which the model has not seen; it knows "
                    f"{listed([v for v in column.categories if v == v], 8)}. Correct these cells, the first in row "
                    f"{row}{ignore}."
                )
            if strange:
                self.ignored[column.name] += int(np.isin(held, strange).sum())

    def _refuse_infinite(self, encoded: Array, table: Any, first_row: int) -> None:
        """Raise for cells that are missing or infinite, among those of columns that are not filled."""
        if np.isfinite(encoded).all():
            return
        filled = {column.name for column in self.columns if column.fills} - {self.target}
        refuse_missing(table, table.column_names, first_row, filled=filled, target=self.target, stage=self.stage)
        row, j = np.argwhere(~np.isfinite(encoded))[0]
        name = quoted(self.names[j] if table.column_names != [self.target] else self.target)
        raise TableError(f"column {name} is infinite in row {first_row + row + 1}; correct that cell.")


# What a fitted transformer says about the columns that it takes


def leaves(step: Any) -> Iterator[Any]:
    """The transformers inside of pipelines and column transformers, in their order."""
    if isinstance(step, Pipeline):
        for _, one in step.steps:
            yield from leaves(one)
    elif isinstance(step, ColumnTransformer):
        for _, one, _ in step.transformers_:
            yield from leaves(one)
    elif step is not None and not isinstance(step, str):
        yield step


def _described(name: str, steps: list[Any], place: int, other: InputColumn | None) -> InputColumn:
    """A column by the transformers that take it; `other` is what those of another part have said."""
    encoder = next((leaf for leaf in steps if isinstance(leaf, (OneHotEncoder, OrdinalEncoder))), None)
    fills = any(isinstance(leaf, (SimpleImputer, MissingIndicator)) for leaf in steps)
    parser = next((leaf for leaf in steps if isinstance(leaf, TableColumns)), None)
    if encoder is None:
        return (other or InputColumn(name, parser))._replace(fills=fills)
    known = tuple(encoder.categories_[place])
    fills = fills or any(value is None or value != value for value in known)
    ordered = isinstance(encoder, OrdinalEncoder)
    lenient = encoder.handle_unknown != "error" and parser is None  # of our own, unknown cells are counted
    return InputColumn(name, parser, known, ordered, fills, lenient)


def _cells(table: Any, known: InputColumn) -> NDArray[Any]:
    """Cells of a column as an encoder, or a model of numbers, takes them."""
    text = known.categories is not None and any(isinstance(value, str) for value in known.categories)
    cells = np.array(TableColumns("text" if text else "number").transform(table.select([known.name]))[:, 0])
    if known.categories is not None and any(value is None for value in known.categories):  # a gap, as pandas 2 has it
        cells[cells != cells] = None
    return cells
