"""What the columns of a table are: numbers, dates, ordered or unordered categories.

The kinds of columns are inferred from a training table. Numbers are plain or in one format, dates
must be declared, and other strings are categories; ambiguous columns are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from .._execution import messages
from .._report.formatting import counted, quoted, shortened
from . import cells
from .cells import distinct_strings
from .tables import TableError, is_text, listed, option, separator_of

Array = NDArray[np.float64]
MAX_CATEGORIES = 200


class TableColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Parse columns into numbers, days since 1970-01-01 or strings; missing cells become NaN.

    Parameters
    ----------
    kind : {"number", "date", "text"}, default="number"
        Type of the columns.
    decimal : {".", ","}, default=None
        Decimal mark of numbers that the table stores as strings; None: the columns hold plain
        numbers.
    order : {"ymd", "dmy", "mdy"}, default="ymd"
        Order of year, month and day in dates that the table stores as strings.
    """

    __module__ = "olsen"  # model files name no private module

    def __init__(
        self,
        kind: Literal["number", "date", "text"] = "number",
        decimal: str | None = None,
        order: str = "ymd",
    ) -> None:
        self.kind = kind
        self.decimal = decimal
        self.order = order

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing: the format of the columns is set by the parameters.

        Parameters
        ----------
        X, y : object
            Ignored.

        Returns
        -------
        self : object
        """
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Parse the cells of a table.

        Parameters
        ----------
        X : data frame or pyarrow table of shape (n_samples, n_columns)
            Cells.

        Returns
        -------
        cells : ndarray of shape (n_samples, n_columns)
            Floating-point numbers, or strings as objects.
        """
        import narwhals as nw

        if not isinstance(X, pa.Table):
            frame = nw.from_native(X, eager_only=True)
            X = frame.to_arrow().select(frame.columns)
        if self.kind == "text":
            return np.column_stack([cells.strings_as_objects(column) for column in X.columns])
        if self.kind == "date":
            return np.column_stack([self._days(X, name) for name in X.column_names])
        values = cells.plain_numbers(X.columns)
        has_doubtful_points = self.decimal == "," and separator_of(X) not in ("", ",")
        for j, name in enumerate(X.column_names):
            if values[j] is None:
                values[j] = self._formatted_numbers(X, name)
            elif has_doubtful_points:
                cells.refuse_doubtful_points(X.column(name).drop_null(), f"column {quoted(name)}")
        return np.column_stack(values)  # type: ignore[arg-type]

    def _days(self, table: Any, name: str) -> Array:
        column = table.column(name)
        if cells.is_temporal(column.type):
            return cells.days_of(column)
        if not is_text(column.type):
            raise TableError(
                f"column {quoted(name)} is of type {shortened(column.type)}, but dates are"
                " expected."
            )

        def parse(strings: Any) -> Array:
            values = [cells.days(text, self.order) for text in strings.to_pylist()]
            return np.array(values, dtype=float)

        expected = f"dates such as {cells.DATES[self.order]} are expected"
        return cells.values_of_rows(table, name, parse, expected)

    def _formatted_numbers(self, table: Any, name: str) -> Array:
        column = table.column(name)
        if not is_text(column.type):
            raise TableError(
                f"column {quoted(name)} is of type {shortened(column.type)}, not numbers; turn it"
                " into numbers."
            )
        decimal = self.decimal or _unlearned_decimal(distinct_strings(column)[0], name)
        expected = f"numbers with {quoted(decimal)} are expected"
        return cells.values_of_rows(
            table, name, lambda strings: cells.numbers_in(strings, decimal), expected
        )

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns unchanged.

        Parameters
        ----------
        input_features : sequence of str
            Names.

        Returns
        -------
        names : ndarray of str
        """
        return np.asarray(input_features, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _unlearned_decimal(strings: Any, name: str) -> str:
    """Decimal mark of a column that held plain numbers in training, if it is unambiguous."""
    decimal = cells.decimal_mark(strings, f"column {quoted(name)}")
    if decimal is None:
        raise TableError(
            f"column {quoted(name)} holds text ({listed(strings.to_pylist(), 3)}), but the model"
            " learned numbers there; correct those cells."
        )
    messages.warn(
        f"numbers of column {quoted(name)} are written unlike those in training:"
        f" {cells.example(strings, decimal)}."
    )
    return decimal


class InputColumn(NamedTuple):
    """Kind of a table column, inferred from a training table or read from a fitted model."""

    name: str
    parser: TableColumns
    categories: tuple[str, ...] | None = None
    ordered: bool = False  # an unknown category has no position in the order and is always refused
    fills: bool = False  # whether missing cells are imputed


def number_parser(table: Any, name: str, label: str, decimals: str) -> TableColumns:
    """Detect the number format of a target or of weights; raise if they are not numbers."""
    column = table.column(name)
    values, _ = cells.plain_columns(table, [name])
    if values:
        if is_text(column.type) and "," in decimals:
            cells.refuse_doubtful_points(column.drop_null(), label)
        return TableColumns()
    _refuse_other_types(column, label)
    decimal = cells.decimal_mark(distinct_strings(column)[0], label, decimals)
    if decimal is None:
        cells.refuse_odd_strings(table, name, label)
    return TableColumns("number", decimal)


def _refuse_other_types(column: Any, label: str, remedy: str = "") -> None:
    """Raise for a column that holds neither numbers nor strings nor dates."""
    if not is_text(column.type) and not cells.is_temporal(column.type):
        raise TableError(
            f"{label} is of type {shortened(column.type)}, not numbers; turn it into"
            f" numbers{remedy}."
        )


@dataclass(frozen=True, kw_only=True)
class ColumnReader:
    """Infer the kinds of the columns of a training table, with notes for the user.

    Parameters
    ----------
    table : pyarrow.Table
        Training table, or the head of a larger one.
    dates : iterable of str
        Columns that are declared as dates.
    orders : dict
        Ordered categories by column, empty if the order is implied.
    decimals : str
        Decimal marks of the unambiguous columns of numbers.
    distinct_values : dict
        Distinct strings by column, if `table` is the head of a larger table.
    notes : list of str
        Receives notes for the user.
    """

    table: Any
    dates: Iterable[str]
    orders: dict[str, list[str]]
    decimals: str
    distinct_values: dict[str, list[str]]
    notes: list[str]

    def columns(self, names: list[str]) -> list[InputColumn]:
        """Infer the kinds of the named columns."""
        undeclared = [name for name in names if name not in {*self.dates, *self.orders}]
        plain, suspicions = cells.plain_columns(self.table, undeclared)
        for name, reason in suspicions.items():
            self.notes.append(
                f"column {quoted(name)} holds {reason}; if they are identifiers, leave it out with"
                f" {option('--id', name)}."
            )
        if "," in self.decimals:
            for name in plain:
                column = self.table.column(name)
                if is_text(column.type):
                    cells.refuse_doubtful_points(column.drop_null(), f"column {quoted(name)}")
        number = TableColumns()
        return [InputColumn(n, number) if n in plain else self._infer(n) for n in names]

    def _infer(self, name: str) -> InputColumn:
        """Infer the kind of a column that does not hold plain numbers, or was declared."""
        column = self.table.column(name)
        label = f"column {quoted(name)}"
        is_declared = name in self.dates
        if not is_declared and name not in self.orders:
            _refuse_other_types(column, label, f", or {_leave_out(name)}")
        if name in self.distinct_values:
            column = pa.chunked_array([pa.array(self.distinct_values[name], "string")])
        strings = distinct_strings(column)[0]
        if name in self.orders:
            return self._ordered(name, strings)
        is_temporal = cells.is_temporal(column.type)
        if not is_declared and not is_temporal:
            decimal = cells.decimal_mark(strings, label, self.decimals)
            if decimal is not None:
                return InputColumn(name, TableColumns("number", decimal))
        values = strings.to_pylist()
        order = "ymd" if is_temporal else cells.date_order(values, label)
        if is_declared:
            return self._date(name, values, order)
        if order is None:
            return self._categorical(name, strings)
        raise TableError(
            f"{label} holds dates such as {quoted(values[0])}; turn them into days since"
            f" 1970-01-01 with {option('--dates', name)}, or leave the column out with"
            f" {option('--drop', name)}."
        )

    def _date(self, name: str, values: list[str], order: str | None) -> InputColumn:
        """Kind of a column that is declared as dates; raise if it has no common order."""
        if order is None:
            others = [t for t in values if all(cells.days(t, form) is None for form in cells.DATES)]
            raise TableError(
                f"column {quoted(name)} holds {listed(others or values, 3)}, not only dates in one"
                f" form; correct these cells, or leave out {option('--dates', name)}."
            )
        self.notes.append(f"column {quoted(name)} holds dates, which become days since 1970-01-01.")
        return InputColumn(name, TableColumns("date", order=order))

    def _ordered(self, name: str, strings: Any) -> InputColumn:
        """Kind of a column of ordered categories: by number or alphabet if no order is given."""
        values = sorted(set(strings.to_pylist()))
        levels = self.orders[name]
        if not levels:
            with suppress(ValueError):
                values = sorted(values, key=float)
            levels = values
        if unordered := [value for value in values if value not in levels]:
            example = "<".join(shortened(level) for level in [*levels, *unordered][:5])
            raise TableError(
                f"column {quoted(name)} holds {listed(unordered, 5)}, which its order does not"
                f" name; add it, as in --ordinal '{shortened(name)}={example}'."
            )
        codes = [f"{quoted(level)} = {i}" for i, level in enumerate(levels[:6])]
        if len(levels) > 6:
            codes.append("...")
        self.notes.append(f"column {quoted(name)} has an order: {', '.join(codes)}.")
        return InputColumn(name, TableColumns("text"), tuple(levels), ordered=True)

    def _categorical(self, name: str, strings: Any) -> InputColumn:
        """Kind of a column of unordered categories; raise if the strings are mostly numbers, or
        too many.
        """
        label = f"column {quoted(name)}"
        is_number = cells.is_number(strings, ".") | cells.is_number(strings, ",")
        if 2 * is_number.sum() > len(strings):
            odd = strings.filter(pa.array(cells.odd_strings(strings))).to_pylist()
            raise TableError(
                f"{label} holds numbers and text such as {listed(odd, 3)}; correct those cells, or"
                f" {_leave_out(name)}."
            )
        categories = sorted(set(strings.to_pylist()))
        n_categories = len(categories)
        # twenty are allowed in a table of any number of rows
        if n_categories > min(MAX_CATEGORIES, max(20, self.table.num_rows / 2)):
            is_cut = n_categories > MAX_CATEGORIES  # not all distinct strings were collected
            number = f"more than {MAX_CATEGORIES}" if is_cut else n_categories
            raise TableError(
                f"{label} holds {number} different strings ({listed(categories, 3)}), too many for"
                f" categories; {_leave_out(name)}."
            )
        self.notes.append(
            f"{label} holds text, which becomes {counted(n_categories, 'column')} of 0 and 1, one"
            " for each category."
        )
        return InputColumn(name, TableColumns("text"), tuple(categories))


def _leave_out(name: str) -> str:
    return f"leave the column out with {option('--drop', name)}"
