"""Tables as the numbers that a model takes: what each column is, scikit-learn's transformers of that, and their use.

From a training table: numbers are plain or in one format, dates are asked for, other texts are categories;
ambiguous columns are refused. Of a model of ``olsen fit``: which columns it takes, with errors that name cells.
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
from .columns import Stage, TableColumns, distinct_texts, refuse_missing, rows_before
from .tables import TableError, listed, one_line, option, refuse_absent, text_names
from .terminal import UsageError

Array = NDArray[np.float64]
MAX_CATEGORIES = 200
MARKED_GAPS = 10  # missing cells from which on a column of their own marks them: fewer would be fitted exactly


class InputColumn(NamedTuple):
    """What is known about a column of tables, as decided from one of them or found in a fitted model."""

    name: str
    parser: TableColumns
    categories: tuple[str, ...] | None = None
    ordered: bool = False  # unknown categories have no place in an order
    fills: bool = False  # missing cells


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
    left_out = {target, *drop}
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
    decided = [
        _decided(table, name, found.get(name), name in dates, orders.get(name), decimals, messages) for name in names
    ]
    marked = [name for name, count in gaps.items() if count >= MARKED_GAPS]
    parsers = {**{column.name: column.parser for column in decided}, target: response}
    for mark in ".,":
        written = [name for name, parser in parsers.items() if parser.decimal == mark]
        if written:  # said once, of many columns
            example = cells.example(distinct_texts(table.column(written[0]))[0], mark)
            messages.append(f"numbers written as text in {listed(written, 3)}, read as numbers: {example}.")
    if gaps:
        also = f", and marked in columns of 0 and 1: {listed(marked)}" if marked else ""
        filling = f"gaps in {counted(len(gaps), 'column')} ({listed(list(gaps))})"
        messages.append(f"{filling} are filled with means, or the most frequent text{also}.")
    before = ColumnTransformer(list(_parts(decided, bool(filled), marked)), verbose_feature_names_out=False)
    encoding = Encoding(target, before, messages, stage, response_parser=response)
    try:
        before.fit(table.select(names))
        _ = encoding.names
    except ValueError as error:
        twins = "columns get the names of others when they are encoded; rename them."
        raise TableError(twins if "not unique" in str(error) else one_line(error)) from error
    return table, encoding


def numbers_of(table: Any, name: str, parser: TableColumns | None = None, stage: Stage = "fit") -> Array:
    """A column of a training table as numbers, without missing cells; without a parser its format is detected."""
    column, parser = table.select([name]), parser or _target(table, name, cells.settled_decimals(table))
    values = np.asarray(parser.transform(column), dtype=float)
    if not np.isfinite(values).all():
        refuse_missing(column, [name], target=name, stage=stage)
        raise _infinite(values, [name], column)
    return values[:, 0]


def _infinite(values: Array, names: list[str], table: Any) -> TableError:
    row, j = np.argwhere(~np.isfinite(values))[0]
    return TableError(
        f"column {quoted(names[j])} is infinite in row {rows_before(table) + row + 1}; correct that cell."
    )


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


def _target(table: Any, target: str, decimals: str) -> TableColumns:
    """How the numbers of the target are written."""
    where = f"the target {quoted(target)}"
    if cells.is_plain(table, target, decimals, where, []):
        return TableColumns()
    texts, codes = distinct_texts(table.column(target))
    decimal = cells.decimal_mark(texts, where, decimals)
    if decimal is not None:
        return TableColumns("number", decimal)
    rows = np.flatnonzero((codes >= 0) & np.append(cells.odd_texts(texts), False)[codes])
    raise TableError(
        f"{where} holds text, or numbers in another format, in {counted(len(rows), 'cell')}, the first "
        f"{quoted(texts[int(codes[rows[0]])])} in row {rows[0] + 1}; correct them, empty them and leave their rows out "
        f"with --missing drop, or choose another --target."
    )


def _decided(
    table: Any, name: str, values: list[str] | None, dates: bool, levels: list[str] | None, decimals: str,
    messages: list[str],
) -> InputColumn:  # fmt: skip
    """What a column is; `values` are its texts, where `table` is the head of a larger one."""
    column, where = table.column(name), f"column {quoted(name)}"
    if levels is None and not dates and cells.is_plain(table, name, decimals, where, messages):
        return InputColumn(name, TableColumns())
    texts = distinct_texts(column if values is None else pa.chunked_array([pa.array(values, "string")]))[0]
    if levels is not None:
        return _ordered(sorted(set(texts.to_pylist())), name, levels, messages)
    temporal = cells.is_temporal(column.type)
    decimal = None if dates or temporal else cells.decimal_mark(texts, where, decimals)
    if decimal is not None:
        return InputColumn(name, TableColumns("number", decimal))
    order = "ymd" if temporal else cells.date_order(texts.to_pylist(), where)
    if not dates and order is None:
        return _categorical(texts, name, table.num_rows, messages)
    if not dates:
        raise TableError(
            f"{where} holds dates such as {quoted(column.drop_null()[0])}; turn them into days since 1970-01-01 "
            f"with {option('--dates', name)}, or leave the column out with {option('--drop', name)}."
        )
    if order is None:
        strange = [text for text in texts.to_pylist() if all(cells.days(text, form) is None for form in cells.DATES)]
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
    before : ColumnTransformer
        What comes before the ensemble: TableColumns, or pipelines that begin with one.
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
    messages: list[str] = field(default_factory=list)
    stage: Stage = "predict"
    unknown: Literal["error", "ignore"] = "error"
    response_parser: TableColumns = field(default_factory=TableColumns)
    ignored: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of_model(cls, model: Any, unknown: Literal["error", "ignore"] = "error") -> Encoding:
        """How tables become numbers for a model of ``olsen fit``; others are refused."""
        if not hasattr(model, "target_name_"):
            raise ModelFileError(
                "the model was fitted and saved in Python, and predicts there: olsen.load(path).predict(frame). The "
                "command reads models of olsen fit."
            )
        encoding = cls(model.target_name_, model[0], unknown=unknown)
        for steps, _ in encoding._parts:
            if unknown == "ignore" and isinstance(steps[-1], OneHotEncoder):
                steps[-1].set_params(handle_unknown="ignore")
        return encoding

    @property
    def _parts(self) -> list[tuple[list[Any], list[str]]]:
        """Transformers of every group of columns, first the parser, and the names of the columns."""
        parts = [(part, names) for _, part, names in self.before.transformers_ if names]  # the remainder has none
        return [(list(part) if isinstance(part, Pipeline) else [part], names) for part, names in parts]

    @cached_property
    def columns(self) -> list[InputColumn]:
        """What is known of the columns of the table that are in use."""
        found: dict[str, InputColumn] = {}
        for steps, names in self._parts:
            fills, last = any(isinstance(step, SimpleImputer) for step in steps), steps[-1]
            known = tuple(last.categories[0]) if isinstance(last, (OneHotEncoder, OrdinalEncoder)) else None
            for name in names:  # a column whose gaps are marked comes once more
                found.setdefault(name, InputColumn(name, steps[0], known, isinstance(last, OrdinalEncoder), fills))
        return list(found.values())

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [str(name) for name in self.before.get_feature_names_out()]

    @property
    def needed(self) -> list[str]:
        """Names of the columns of a table that are in use, the target left out."""
        return [column.name for column in self.columns]

    def own_columns(self, table: Any) -> Any:
        """The columns in use of a table; an error if some are missing."""
        held = set(table.column_names)  # a fresh list every time it is asked for
        if missing := [name for name in self.needed if name not in held]:
            extra = [name for name in table.column_names if name not in {*self.needed, self.target}]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            lacks = counted(len(missing), "column")
            raise TableError(f"the table lacks {lacks} of the model: {listed(missing)}{hint}.")
        return table.select(self.needed)

    def features(self, table: Any) -> Array:
        """Encoded columns of a table, which must hold all columns in use, of the same kind, without missing cells.

        Gaps are filled in columns whose means were learned.
        """
        table = self.own_columns(table)
        gaps = [column.name for column in self.columns if not column.fills and table.column(column.name).null_count]
        refuse_missing(table, gaps, target=self.target, stage=self.stage)
        self._refuse_unknown(table)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found unknown categories")
            encoded = np.asarray(self.before.transform(table), dtype=float)
        if not np.isfinite(encoded).all():
            filled = [column.name for column in self.columns if column.fills]
            refuse_missing(table, self.needed, filled=filled, target=self.target, stage=self.stage)
            raise _infinite(encoded, self.names, table)
        return np.asfortranarray(encoded)

    def response(self, table: Any) -> Array:
        """The target column as numbers, without missing cells."""
        return numbers_of(table, self.target, self.response_parser, self.stage)

    def refuse_extremes(self, X: Array, y: Array) -> None:
        """Raise for encoded columns and targets that the estimator would refuse, which knows their numbers only."""
        for values, target in ((X, False), (y[:, None], True)):
            largest = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
            extreme = np.flatnonzero(((largest > 0) & (largest < ORDINARY[0])) | (largest > ORDINARY[1]))
            if not len(extreme):
                continue
            name = self.target if target else self.names[extreme[0]]
            where = f"the target {quoted(name)}" if target else f"column {quoted(name)}"
            more = f" (and {counted(len(extreme) - 1, 'more column')} like it)" if len(extreme) > 1 else ""
            drop = f", or leave the column out with {option('--drop', name)}" if name in self.needed else ""
            raise TableError(
                f"the largest entry of {where} is {largest[extreme[0]]:.3g} in absolute value{more}. Between "
                f"{ORDINARY[0]:g} and {ORDINARY[1]:g} its squares stay in the range of double precision: change its "
                f"unit{drop}."
            )

    def _refuse_unknown(self, table: Any) -> None:
        """Raise for categories that the model has not seen, or count them."""
        for column in self.columns:
            if column.categories is None:
                continue
            held = column.parser.transform(table.select([column.name]))[:, 0]
            strange = [text for text in dict.fromkeys(held) if text not in set(column.categories) and text == text]
            if strange and (column.ordered or self.unknown == "error"):
                row = rows_before(table) + list(held).index(strange[0]) + 1
                ignore = "" if column.ordered else ", or take them for none of these with --unknown ignore"
                raise TableError(
                    f"column {quoted(column.name)} holds {listed(strange, 5)}, which the model has not seen; it knows "
                    f"{listed(column.categories, 8)}. Correct these cells, the first in row {row}{ignore}."
                )
            if strange:
                self.ignored[column.name] += int(np.isin(held, strange).sum())
