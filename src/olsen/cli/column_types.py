"""Decide from a training table what each column is, and make scikit-learn's transformers of that.

Numbers are plain or in one format, dates are asked for, other texts are categories; what may be two things is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from .._report.formatting import counted, quoted, shortened
from . import number_formats as formats
from .columns import (
    Stage,
    TableColumns,
    distinct_texts,
    is_missing,
    plain_numbers,
    refuse_missing,
    separator_of,
    typed_numbers,
    without_gaps,
)
from .encoding import Encoding, InputColumn
from .tables import TableError, is_text, listed, one_line, option

__all__ = ["MAX_CATEGORIES", "learn_encoding", "numbers_of"]

MAX_CATEGORIES = 200
Decision = tuple[InputColumn, list[str]]  # what a column is, and messages


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
        texts with the most frequent one, and adds a column that says where they were to every column that has some.
    dates : iterable of str
        Columns of dates, which become days since 1970-01-01.
    ordinal : iterable of str
        Columns of categories with an order, as ``size`` (by number or alphabet) or ``size=S<M<L``.
    """
    dates, orders, drop = set(dates), _orders(ordinal, table.column_names), set(drop)
    if unknown := [name for name in [target, *drop, *dates, *orders] if name not in table.column_names]:
        raise KeyError(f"there is no column {listed(unknown)}; the table has {listed(table.column_names, 12)}.")
    names = [name for name in table.column_names if name != target and name not in drop]
    if not names:
        raise TableError(f"the table has no column besides the target {quoted(target)}.")
    stage: Stage = "fit" if distinct is None else "blocks"
    fill = missing == "mean"
    decimals = _settled_decimals(table)
    response, said = _target(table, target, decimals)  # refused before rows are left out
    table, messages = without_gaps(table, [target, *names]) if missing == "drop" else (table, [])
    refuse_missing(table, [target] if fill else [target, *names], target=target, stage=stage)
    refuse_missing(table, names, filled=True, target=target, stage=stage)
    found = {} if distinct is None else distinct([name for name in names if is_text(table.column(name).type)])
    decided = [_decided(table, name, found.get(name), name in dates, orders.get(name), decimals) for name in names]
    columns = [column for column, _ in decided]
    messages += said + [message for _, about in decided for message in about]
    messages += _comma_message(table, [*columns, response])
    gaps = [name for name in names if is_missing(table.column(name)).any()]
    if gaps:
        messages.append(
            f"gaps in {counted(len(gaps), 'column')} are filled with means, or the most frequent text, and marked in a "
            f"column of 0 and 1 each: {listed(gaps)}."
        )
    before = ColumnTransformer(list(_parts(columns, fill, gaps)), verbose_feature_names_out=False)
    encoding = Encoding(target, make_pipeline(before), names, messages, stage, response_parser=response.parser)
    encoding.response(table)
    try:
        before.fit(table.select(names))
        _ = encoding.names
    except ValueError as error:
        twins = "columns get the names of others when they are encoded; rename them."
        raise TableError(twins if "not unique" in str(error) else one_line(error)) from error
    return table, encoding


def numbers_of(table: Any, name: str) -> NDArray[np.float64]:
    """A column of a training table as numbers, without missing cells."""
    column, _ = _target(table, name, _settled_decimals(table))
    return Encoding(name, None, stage="fit", response_parser=column.parser).response(table)


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


# Numbers


def _settled_decimals(table: Any) -> set[str]:
    """Decimal marks of the columns that leave no doubt; where cells are separated by commas, numbers have points."""
    if separator_of(table) in ("", ","):
        return {"."}
    found = [formats.possible_decimals(column.slice(0, 1000).drop_null()) for column in table.columns]
    return {marks[0] for marks in found if len(marks) == 1}


def _numbers(table: Any, name: str, where: str, texts: Any, decimals: set[str]) -> Decision | None:
    """A column of numbers that are texts, which has these different ones; None if others are among them."""
    if separator_of(table) and (plain := plain_numbers(table.column(name))) is not None:
        if "," in decimals:
            formats.refuse_doubtful_points(table.column(name).drop_null(), where)
        return InputColumn(name, TableColumns()), _identifier_messages(table.column(name), name, plain)
    how = formats.number_format(texts(), where, next(iter(decimals)) if len(decimals) == 1 else "")
    if how is None:
        return None
    told_once = separator_of(table) and how == (",", "")
    what = f"{where} holds {'percentages' if how.unit else 'numbers as text'}"
    return InputColumn(name, TableColumns("number", *how)), [] if told_once else [_example(texts(), how, what)]


def _target(table: Any, target: str, decimals: set[str]) -> Decision:
    """How the numbers of the target are written."""
    column, where = table.column(target), f"the target {quoted(target)}"
    if not is_text(column.type):
        typed_numbers(column, where)
        return InputColumn(target, TableColumns()), []
    found = _numbers(table, target, where, lambda: distinct_texts(column)[0], decimals)
    if found is not None:
        return found
    texts, codes = distinct_texts(column)
    rows = np.flatnonzero((codes >= 0) & np.append(formats.odd_texts(texts), False)[codes])
    raise TableError(
        f"{where} holds text, or numbers in another format, in {counted(len(rows), 'cell')}, the first "
        f"{quoted(texts[int(codes[rows[0]])])} in row {rows[0] + 1}; correct them, empty them and leave their rows out "
        f"with --missing drop, or choose another --target."
    )


def _identifier_messages(column: Any, name: str, values: NDArray[np.float64]) -> list[str]:
    """What is said of numbers that may be identifiers: codes with leading zeros, and rounded ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    about = ""
    whole, head = pa.types.is_integer(column.type), column.slice(0, 1000)
    if is_text(column.type):
        whole = pc.all(pc.match_substring_regex(head, r"^[+-]?\d+$")).as_py()
        row = pc.index(pc.match_substring_regex(head, r"^0\d+$"), True).as_py() if whole else -1
        about = f"numbers with leading zeros: {quoted(head[row])} is {values[row]:g}" if row >= 0 else ""
    if whole and np.nanmax(np.abs(values), initial=0) > 2**53:
        about = "whole numbers above 2^53, rounded to 16 digits"
    advice = f"if they are identifiers, leave it out with {option('--drop', name)}"
    return [f"column {quoted(name)} holds {about}; {advice}."] if about else []


def _example(texts: Any, how: formats.NumberFormat, what: str) -> str:
    """How texts are read as numbers, by the longest of them."""
    longest = max(range(len(texts)), key=lambda i: len(texts[i].as_py()))
    return f"{what}, read as numbers: {quoted(texts[longest])} is {formats.numbers_in(texts, how)[longest]:g}."


def _comma_message(table: Any, columns: list[InputColumn]) -> list[str]:
    """What is said once about columns with decimal commas, of which a table may have many."""
    comma = formats.NumberFormat(",", "")
    names = [c.name for c in columns if separator_of(table) and (c.parser.decimal, c.parser.unit) == comma]
    if not names:
        return []
    what = f"decimals by a comma in {counted(len(names), 'column')} ({listed(names, 3)})"
    return [_example(distinct_texts(table.column(names[0]))[0], comma, what)]


# Other columns


def _decided(
    table: Any, name: str, values: list[str] | None, dates: bool, levels: list[str] | None, decimals: set[str]
) -> Decision:
    """What a column is; `values` are its different texts, where `table` is the head of a larger one."""
    import pyarrow as pa

    column, where = table.column(name), f"column {quoted(name)}"
    if column.null_count == len(column):
        raise TableError(f"{where} is empty; leave it out with {option('--drop', name)}.")

    def texts() -> Any:
        return distinct_texts(column if values is None else pa.chunked_array([pa.array(values, "string")]))[0]

    if levels is not None:
        return _ordered(sorted(set(texts().to_pylist())), name, levels)
    temporal = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    if not is_text(column.type) and not temporal:
        if dates:
            raise TableError(f"{where} holds {shortened(column.type)}, no dates; leave out {option('--dates', name)}.")
        numbers = typed_numbers(column, where, f", or leave the column out with {option('--drop', name)}")
        return InputColumn(name, TableColumns()), _identifier_messages(column, name, numbers)
    if dates:
        order = "ymd" if temporal else _date_order(texts().to_pylist(), name)
        said = f"{where} holds dates, which become days since 1970-01-01."
        return InputColumn(name, TableColumns("date", order=order)), [said]
    if not temporal and (found := _numbers(table, name, where, texts, decimals)) is not None:
        return found
    if temporal or formats.date_order(texts().to_pylist(), where) is not None:
        raise TableError(
            f"{where} holds dates such as {quoted(column.drop_null()[0])}; turn them into days since 1970-01-01 with "
            f"{option('--dates', name)}, or leave the column out with {option('--drop', name)}."
        )
    return _categorical(texts(), name, table.num_rows)


def _date_order(values: list[str], name: str) -> str:
    order = formats.date_order(values, f"column {quoted(name)}")
    if order is None:
        strange = [value for value in values if all(formats.days(value, order) is None for order in formats.DATES)]
        raise TableError(
            f"column {quoted(name)} holds {listed(strange or values, 3)}, not only dates in one form; correct these "
            f"cells, or leave out {option('--dates', name)}."
        )
    return order


def _ordered(values: list[str], name: str, levels: list[str]) -> Decision:
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
    known = InputColumn(name, TableColumns("text"), tuple(levels), ordered=True)
    return known, [f"column {quoted(name)} has an order: {shown}."]


def _categorical(texts: Any, name: str, n_rows: int) -> Decision:
    """A column of text, if its values can be categories."""
    values, numeric = texts.to_pylist(), formats.fits_format(texts, ".") | formats.fits_format(texts, ",")
    where, way_out = f"column {quoted(name)}", f"leave the column out with {option('--drop', name)}"
    categories = sorted(set(values))
    if 2 * numeric.sum() > len(values):
        strange = [value for value, odd in zip(values, formats.odd_texts(texts), strict=True) if odd]
        raise TableError(
            f"{where} holds numbers and text such as {listed(strange, 3)}; correct those cells, or {way_out}."
        )
    if len(categories) > min(MAX_CATEGORIES, max(20, n_rows / 2)):
        many = f"more than {MAX_CATEGORIES}" if len(categories) > MAX_CATEGORIES else len(categories)
        raise TableError(
            f"{where} holds {many} different texts ({listed(categories, 3)}), too many for categories; {way_out}."
        )
    return InputColumn(name, TableColumns("text"), tuple(categories)), [
        f"{where} holds text: its {len(categories)} categories become "
        f"{counted(len(categories) - 1, 'column')} of 0 and 1 (against {quoted(categories[0])})."
    ]


# From columns to transformers


def _parts(columns: list[InputColumn], fill: bool, gaps: list[str]) -> Iterator[tuple[str, Any, list[str]]]:
    """Parts of a ColumnTransformer: neighbouring columns of one kind together, texts one by one."""

    def kind(column: InputColumn) -> Any:
        return column.name if column.categories is not None else list(vars(column.parser).values())

    for _, group in groupby(columns, kind):
        alike = list(group)
        names, known = [column.name for column in alike], alike[0].categories
        steps: list[Any] = [alike[0].parser]
        if fill:
            steps.append(
                SimpleImputer(strategy="mean" if known is None else "most_frequent", add_indicator=known is None)
            )
        if known is not None:
            categories = [np.array(known, dtype=object)]
            ordered, first = OrdinalEncoder(categories=categories), {"drop": "first", "sparse_output": False}
            steps.append(ordered if alike[0].ordered else OneHotEncoder(categories=categories, **first))
        yield names[0], make_pipeline(*steps) if len(steps) > 1 else steps[0], names
        if known is not None and names[0] in gaps:
            indicator = make_pipeline(TableColumns("text"), MissingIndicator(features="all"))
            yield f"{names[0]} is missing", indicator, names
