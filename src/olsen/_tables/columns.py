"""What the columns of a table are: numbers, dates, ordered or unordered categories.

The kinds of columns are inferred from a training table. Numbers are plain or in one format, dates in
one format, and other strings are categories; what may be read in two ways is a problem, with the
setting that decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._execution import messages
from .._report.formatting import counted, quoted, shortened
from . import cells
from .arrow import pa, pc
from .cells import DoubtfulNumbers, NumberFormat, distinct_strings
from .problems import (
    BLANKS,
    Change,
    Problem,
    Reading,
    TableError,
    is_text,
    listed,
    option,
    separator_of,
)

Array = NDArray[np.float64]
MAX_CATEGORIES = 200
MAX_ODD_STRINGS = 5  # different strings among numbers or dates that may stand for missing values
# missing cells that get an indicator column: the indicator of fewer would be fitted exactly
MIN_INDICATED_MISSING = 10
MISSING = -1  # code of a missing cell
UNKNOWN = -2  # code of a cell with a category that was not learned
KINDS = ("number", "date", "category", "ordered")


@dataclass(frozen=True)
class CellCounts:
    """Numbers of cells by column that a model does not take as they are.

    Parameters
    ----------
    unknown : Counter
        Cells with categories that the model has not seen, and takes for none.
    filled : Counter
        Missing cells that are filled.
    """

    unknown: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Column:
    """How a column of a table becomes numbers.

    Parameters
    ----------
    name : str
        Name in the table.
    position : int
        Number of the column in the table of `fit`, counted from 0.
    kind : {"number", "date", "category", "ordered"}
        What the cells are: dates become days since 1970-01-01, categories columns of 0 and 1, one
        for each level, and ordered categories the positions of their levels.
    decimal, unit : str
        Format of numbers that the table has as strings; the decimal mark of plain numbers is empty.
    form : str
        Format of dates: an order such as "dmy", or a format of `strptime`.
    levels : tuple of str
        Categories.
    fill : float, str or None
        What missing cells are filled with; None: they are refused.
    indicator : bool
        Whether a column of 0 and 1 marks missing cells.
    """

    name: str
    position: int = 0
    kind: Literal["number", "date", "category", "ordered"] = "number"
    decimal: str = ""
    unit: str = ""
    form: str = ""
    levels: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Column:
        """Column from its record; raise if the record is none of `record`."""
        column = cls(**{**record, "levels": tuple(record["levels"])})
        texts: list[Any] = [column.name, column.decimal, column.unit, column.form, *column.levels]
        fill_type = str if column.levels else float
        if (
            not all(type(text) is str for text in texts)
            or str(column.kind) not in KINDS
            or column.decimal not in ("", ".", ",")
            or len(set(column.levels)) < len(column.levels)
            or bool(column.levels) != (column.kind in ("category", "ordered"))
            or not (column.fill is None or type(column.fill) is fill_type)
            or (column.levels and column.fill is not None and column.fill not in column.levels)
            or column.indicator not in (True, False)
            or not isinstance(column.position, int)
        ):
            raise ValueError(f"the column {column.name!r:.80} is none that is learned from a table")
        return column

    @property
    def record(self) -> dict[str, Any]:
        """The column as plain types."""
        return {**asdict(self), "levels": list(self.levels)}

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return (len(self.levels) if self.kind == "category" else 1) + self.indicator

    def names(self, name: str) -> list[str]:
        """Names of the encoded columns, if the column is called `name`."""
        names = [f"{name}_{level}" for level in self.levels] if self.kind == "category" else [name]
        return [*names, f"{name} is missing"] if self.indicator else names

    def codes(self, column: Any) -> NDArray[np.int64]:
        """Positions of the cells' categories among the levels, or MISSING or UNKNOWN."""
        strings, codes = distinct_strings(column)
        position = {level: i for i, level in enumerate(self.levels)}
        positions = [position.get(text, UNKNOWN) for text in strings.to_pylist()]
        return np.array([*positions, MISSING], dtype=np.int64)[codes]

    def values(self, table: Any) -> Array:
        """Numbers, days or positions of the cells, (n_rows,), NaN where a cell is missing."""
        column = table.column(self.name)
        if self.levels:
            codes = self.codes(column).astype(float)
            codes[codes < 0] = np.nan
            return codes
        if self.kind == "date":
            return _days(table, self)
        values = None if self.unit in cells.PERCENT else cells.plain_numbers([column])[0]
        if values is None:
            return _formatted_numbers(table, self)
        if self.decimal == "," and separator_of(table) not in ("", ","):
            _refuse_doubtful_points(column, self.name)
        return values

    def encoded(self, table: Any, counts: CellCounts | None = None) -> Array:
        """Encode the cells as numbers, (n_rows, width); missing cells are NaN unless they are
        filled, and counted in `counts`.
        """
        values = self.values(table)
        is_missing = np.isnan(values)
        if self.fill is not None:
            filled = self.levels.index(self.fill) if isinstance(self.fill, str) else self.fill
            if self.kind == "category":
                is_missing = self.codes(table.column(self.name)) == MISSING
            values = np.where(is_missing, filled, values)
            if counts is not None and is_missing.any():
                counts.filled[self.name] += int(np.count_nonzero(is_missing))
        parts = [values[:, None]]
        if self.kind == "category":
            parts = [np.asarray(values[:, None] == np.arange(len(self.levels)), dtype=float)]
        if self.indicator:
            parts.append(is_missing[:, None].astype(float))
        return np.hstack(parts)


def _refuse_doubtful_points(column: Any, name: str) -> None:
    try:
        cells.refuse_doubtful_points(column.drop_null(), f"column {quoted(name)}")
    except DoubtfulNumbers as error:
        raise TableError(str(error.problem)) from None


def _days(table: Any, of: Column) -> Array:
    column = table.column(of.name)
    if cells.is_temporal(column.type):
        return cells.days_of(column)
    if not is_text(column.type):
        raise TableError(
            f"column {quoted(of.name)} is of type {shortened(column.type)}, but dates are expected."
        )

    def parse(strings: Any) -> Array:
        return np.array([cells.days(text, of.form) for text in strings.to_pylist()], dtype=float)

    order = cells.DATES.get(of.form)
    shown = f"with {order} in this order" if order else f"in the format {of.form}"
    return cells.values_of_rows(table, of.name, parse, f"dates {shown} are expected")


def _formatted_numbers(table: Any, of: Column) -> Array:
    column = table.column(of.name)
    if not is_text(column.type):
        expected = f"numbers with {of.unit}" if of.unit else "numbers"
        raise TableError(
            f"column {quoted(of.name)} is of type {shortened(column.type)}, not {expected}; turn it"
            " into numbers."
        )
    form = NumberFormat(of.decimal, of.unit)
    if not of.decimal:
        form = _unlearned_format(distinct_strings(column)[0], of.name)
    expected = f"numbers with the decimal mark {quoted(form.decimal)} are expected"
    if form.unit:
        expected = (
            f"numbers with the sign {quoted(form.unit)} and the decimal mark {quoted(form.decimal)} are"
            " expected"
        )
    return cells.values_of_rows(
        table, of.name, lambda strings: cells.numbers_in(strings, form), expected
    )


def _unlearned_format(strings: Any, name: str) -> NumberFormat:
    """Format of a column that held plain numbers in training, if it is unambiguous."""
    try:
        form = cells.number_format(strings, f"column {quoted(name)}")
    except DoubtfulNumbers as error:
        raise TableError(f"{error.problem.text}; write it as in training.") from None
    if form is None or form.unit in cells.PERCENT:
        raise TableError(
            f"column {quoted(name)} holds text ({listed(strings.to_pylist(), 3)}), but the model"
            " learned numbers there; correct those cells."
        )
    messages.warn(
        f"numbers of column {quoted(name)} are written unlike those in training:"
        f" {cells.example(strings, form)}."
    )
    return form


# Learning what the columns are


@dataclass(frozen=True)
class Learned:
    """What a table was found to hold: columns, notes for the user, and problems.

    Columns with a problem are not among the columns.
    """

    columns: list[Column] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class UnreadableColumn(Exception):
    """A column that cannot be read, with the problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.text)


def without_marks(table: Any, marks: Sequence[str]) -> Any:
    """Replace strings that stand for missing values by null."""
    if not marks:
        return table
    mark_set = pa.array(list(marks), "string")
    columns = []
    for column in table.columns:
        if is_text(column.type):
            text = cells.as_text(column)
            is_mark = pc.is_in(pc.utf8_trim(text, characters=BLANKS), value_set=mark_set)
            column = pc.if_else(is_mark, None, text)
        columns.append(column)
    return pa.table(columns, names=table.column_names).replace_schema_metadata(
        table.schema.metadata
    )


@dataclass(frozen=True, kw_only=True)
class ColumnReader:
    """Infer the kinds of the columns of a training table.

    Parameters
    ----------
    table : pyarrow.Table
        Training table, or the head of a larger one, without marks of missing values.
    reading : Reading
        How columns are to be read.
    distinct_values : dict
        Distinct strings by column, if `table` is the head of a larger table.
    """

    table: Any
    reading: Reading
    distinct_values: dict[str, list[str]] = field(default_factory=dict)

    def learn(self, names: list[str]) -> Learned:
        """Infer the kinds of the named columns, with notes for the user and all problems."""
        learned = Learned()
        declared = {*self.reading.dates, *self.reading.orders}
        plain, suspicions = cells.plain_columns(self.table, [n for n in names if n not in declared])
        counts = cells.missing_counts(self.table, names)
        for name, reason in suspicions.items():
            learned.notes.append(
                f"column {quoted(name)} holds {reason}; if they are identifiers, leave it out with"
                f" {option('--id', name)}."
            )
        for name in names:
            try:
                if counts.get(name) == self.table.num_rows:
                    raise UnreadableColumn(
                        Problem(
                            f"column {quoted(name)} is empty", _leave_out(name), (("drop", name),)
                        )
                    )
                is_plain = name in plain and not self._may_be_thousands(name)
                column = Column(name=name) if is_plain else self._infer(name, learned.notes)
                column = replace(column, position=self.table.column_names.index(name))
                if self.reading.fill:
                    column = self._filled(column, counts.get(name, 0))
                learned.columns.append(column)
            except UnreadableColumn as error:
                learned.problems.append(error.problem)
            except DoubtfulNumbers as error:
                learned.problems.append(error.problem)
            except TableError as error:
                learned.problems.append(Problem(str(error).removesuffix(".")))
        learned.notes.extend(self._missing_note(learned.columns, counts))
        return learned

    def number(self, name: str, label: str) -> Column:
        """Format of the numbers of a target or of weights; raise UnreadableColumn
        if they are none."""
        column = self.table.column(name)
        if cells.plain_columns(self.table, [name])[0]:
            if is_text(column.type) and self._decimals_have_comma:
                cells.refuse_doubtful_points(column.drop_null(), label)
            return Column(name=name)
        _refuse_other_types(column, label)
        strings, codes = distinct_strings(column)
        form = self._number_format(strings, label)
        if form is None:
            raise UnreadableColumn(_text_instead_of_numbers(strings, codes, label))
        return Column(name=name, decimal=form.decimal, unit=form.unit)

    @cached_property
    def _settled(self) -> str:
        return cells.settled_decimals(self.table)

    @property
    def _decimals_have_comma(self) -> bool:
        return "," in self._settled and not self.reading.decimal

    def _may_be_thousands(self, name: str) -> bool:
        """Whether the points of plain numbers are thousands separators, as in 1.234; raise if that is
        not known.
        """
        column = self.table.column(name)
        if not is_text(column.type) or self.reading.decimal == ".":
            return False
        if self.reading.decimal == ",":
            return cells.has_doubtful_points(column.drop_null())
        if "," in self._settled:
            cells.refuse_doubtful_points(column.drop_null(), f"column {quoted(name)}")
        return False

    def _number_format(self, strings: Any, label: str) -> NumberFormat | None:
        return cells.number_format(strings, label, self._settled, self.reading.decimal)

    def _infer(self, name: str, notes: list[str]) -> Column:
        """Infer the kind of a column that does not hold plain numbers, or was declared."""
        column = self.table.column(name)
        label = f"column {quoted(name)}"
        is_declared = name in self.reading.dates
        if not is_declared and name not in self.reading.orders:
            _refuse_other_types(column, label, name)
        if cells.is_temporal(column.type) and name not in self.reading.orders:
            notes.append(f"{label} holds dates, which become days since 1970-01-01.")
            return Column(name=name, kind="date", form="ymd")
        if name in self.distinct_values:
            column = pa.chunked_array([pa.array(self.distinct_values[name], "string")])
        strings, codes = distinct_strings(column)
        if name in self.reading.orders:
            return self._ordered(name, strings, notes)
        if not is_declared:
            form = self._number_format(strings, label)
            if form is not None:
                return Column(name=name, decimal=form.decimal, unit=form.unit)
        texts = strings.to_pylist()
        date_form = self._date_form(name, texts, codes)
        if date_form is None:
            return self._categorical(name, strings, notes)
        moment = datetime(1970, 1, 1, tzinfo=UTC)
        moment += timedelta(days=cells.days(texts[0], date_form) or 0.0)
        notes.append(
            f"{label} holds dates, which become days since 1970-01-01: {quoted(texts[0])} is"
            f" {moment:%Y-%m-%d}."
        )
        return Column(name=name, kind="date", form=date_form)

    def _date_form(self, name: str, texts: list[str], codes: NDArray[np.int64]) -> str | None:
        """Format of a column of dates; None if it holds no dates and is not declared to."""
        label = f"column {quoted(name)}"
        form = self.reading.dates.get(name, "")
        if form:
            others = [text for text in texts if cells.days(text, form) is None]
            if not others:
                return form
            defect = f"do not have the format {form}"
            raise UnreadableColumn(_not_dates(name, others, defect, _is_minority(others, texts)))
        formats = cells.date_formats(texts)
        if not formats:
            odd = _odd_dates(texts)
            is_minority = _is_minority(odd, texts)
            if texts and (name in self.reading.dates or is_minority):
                defect = "are not dates in one form"
                raise UnreadableColumn(_not_dates(name, odd, defect, is_minority))
            return None
        if len(formats) > 1:
            formats = self._agreed(formats) or formats
        if len(formats) == 1 and ("%y" not in formats[0] or name in self.reading.dates):
            return formats[0]
        likely = (
            *cells.chronological(texts, codes, formats),
            *(
                form
                for form in formats
                if separator_of(self.table) == "," and form[:2] in ("md", "%m")
            ),
            formats[0],
        )[0]
        text = next((t for t in texts if len({cells.days(t, f) for f in formats}) > 1), texts[0])
        shown = [cells.as_percent_signs(form, text) for form in (likely, *formats)]
        possible = " or ".join(dict.fromkeys(shown))
        doubt = f"with years of two digits ({possible})"
        if len(formats) > 1:
            doubt = f"whose day and month cannot be distinguished ({possible})"
        raise UnreadableColumn(
            Problem(
                f"{label} holds dates such as {quoted(text)}, {doubt}",
                f"say how to read them with {option('--dates', f'{name}={shown[0]}')}, write dates as"
                f" 2024-12-31, or {_leave_out(name)}",
                (("dates", f"{name}={shown[0]}"),),
            )
        )

    def _agreed(self, formats: list[str]) -> list[str]:
        """The only format of several that another column of dates has, if there is one."""
        settled = set()
        for name in self.table.column_names:
            if is_text(self.table.column(name).type):
                texts = distinct_strings(self.table.column(name))[0].to_pylist()
                found = cells.date_formats(texts)
                settled |= set(found) if len(found) == 1 else set()
        agreed = [form for form in formats if form in settled]
        return agreed if len(agreed) == 1 else []

    def _ordered(self, name: str, strings: Any, notes: list[str]) -> Column:
        """Kind of a column of ordered categories: by number or alphabet if no order is given."""
        values = sorted(set(strings.to_pylist()))
        levels = self.reading.orders[name]
        if not levels:
            with suppress(ValueError):
                values = sorted(values, key=float)
            levels = values
        if unordered := [value for value in values if value not in levels]:
            example = "<".join(shortened(level) for level in [*levels, *unordered][:5])
            raise UnreadableColumn(
                Problem(
                    f"column {quoted(name)} holds {listed(unordered, 5)}, which its order does not"
                    " name",
                    f"add it, as in --ordinal '{shortened(name)}={example}'",
                )
            )
        codes = [f"{quoted(level)} = {i}" for i, level in enumerate(levels[:6])]
        if len(levels) > 6:
            codes.append("...")
        notes.append(f"column {quoted(name)} has an order: {', '.join(codes)}.")
        return Column(name=name, kind="ordered", levels=tuple(levels))

    def _categorical(self, name: str, strings: Any, notes: list[str]) -> Column:
        """Kind of a column of unordered categories; a problem if the strings are mostly numbers, or
        too many.
        """
        label = f"column {quoted(name)}"
        odd = strings.filter(pa.array(cells.odd_strings(strings))).to_pylist()
        if 2 * len(odd) < len(strings):
            remedies = ["correct those cells", _leave_out(name)]
            changes: tuple[Change, ...] = (("drop", name),)
            if len(odd) <= MAX_ODD_STRINGS:
                remedies.insert(0, f"take them for missing with {option('--na', odd[0])}")
                changes = tuple(("na", text) for text in odd)
            raise UnreadableColumn(
                Problem(
                    f"{label} holds numbers and text such as {listed(odd, 3)}",
                    f"{', '.join(remedies[:-1])}, or {remedies[-1]}",
                    changes,
                )
            )
        categories = sorted(set(strings.to_pylist()))
        n_categories = len(categories)
        # twenty are allowed in a table of any number of rows
        if n_categories > min(MAX_CATEGORIES, max(20, self.table.num_rows / 2)):
            is_cut = n_categories > MAX_CATEGORIES  # not all distinct strings were collected
            number = f"more than {MAX_CATEGORIES}" if is_cut else n_categories
            setting = "id" if n_categories == self.table.num_rows else "drop"
            raise UnreadableColumn(
                Problem(
                    f"{label} holds {number} different strings ({listed(categories, 3)}), too many"
                    " for categories",
                    f"leave the column out with {option(f'--{setting}', name)}",
                    ((setting, name),),
                )
            )
        notes.append(
            f"{label} holds text, which becomes {counted(n_categories, 'column')} of 0 and 1, one"
            " for each category."
        )
        return Column(name=name, kind="category", levels=tuple(categories))

    def _filled(self, column: Column, n_missing: int) -> Column:
        """The column with what its missing cells are filled with: the mean, or the most frequent
        category, of several the first.
        """
        values = column.values(self.table)
        values = values[~np.isnan(values)]
        fill: float | str = float(values.mean()) if len(values) else 0.0
        if column.levels:
            counts = np.bincount(values.astype(np.int64), minlength=len(column.levels))
            # of categories that are equally frequent, the first one by alphabet
            fill = max(sorted(column.levels), key=lambda level: counts[column.levels.index(level)])
        return replace(column, fill=fill, indicator=n_missing >= MIN_INDICATED_MISSING)

    def _missing_note(self, columns: list[Column], counts: dict[str, int]) -> Iterator[str]:
        incomplete = [column for column in columns if column.name in counts]
        filled = [column.name for column in incomplete]
        if not (self.reading.fill and filled):
            return
        has_text = [isinstance(column.fill, str) for column in incomplete]
        fill = "the most frequent category" if all(has_text) else "means"
        if any(has_text) and not all(has_text):
            fill = "means, or the most frequent category"
        indicated = [column.name for column in columns if column.indicator]
        marked = "" if indicated == filled else f": {listed(indicated)}"
        indicators = f", and marked in columns of 0 and 1{marked}" if indicated else ""
        yield (
            f"missing values in {counted(len(filled), 'column')} ({listed(filled)}) are filled with"
            f" {fill}{indicators}."
        )


def format_notes(table: Any, columns: Iterable[Column]) -> Iterator[str]:
    """Notes about numbers that are written as text, one for all columns of a format."""
    names: dict[NumberFormat, list[str]] = {}
    for column in columns:
        if column.decimal:
            form = NumberFormat(column.decimal, column.unit)
            names.setdefault(form, []).append(column.name)
    for form, formatted in names.items():
        example = cells.example(distinct_strings(table.column(formatted[0]))[0], form)
        yield f"numbers written as text in {listed(formatted, 3)}, read as numbers: {example}."


def _refuse_other_types(column: Any, label: str, name: str | None = None) -> None:
    """Raise for a column that holds neither numbers nor strings nor dates."""
    if not is_text(column.type) and not (name is not None and cells.is_temporal(column.type)):
        text = f"{label} is of type {shortened(column.type)}, not numbers"
        if name is None:
            raise UnreadableColumn(Problem(text, "turn it into numbers"))
        remedy = f"turn it into numbers, or {_leave_out(name)}"
        raise UnreadableColumn(Problem(text, remedy, (("drop", name),)))


def _odd_dates(texts: list[str]) -> list[str]:
    """Strings that are no dates in the format of most strings; all strings if most are none."""
    for form in chain(cells.DATES, cells.NAMED_MONTHS):
        sample = texts[:: max(1, len(texts) // 50)]
        if 2 * sum(cells.days(text, form) is None for text in sample) < len(sample):
            return [text for text in texts if cells.days(text, form) is None]
    return texts


def _is_minority(odd: list[str], strings: list[str]) -> bool:
    """Whether a few of the strings are odd, so that they may stand for missing values."""
    return 2 * len(odd) < len(strings) and len(odd) <= MAX_ODD_STRINGS


def _not_dates(name: str, others: list[str], defect: str, is_minority: bool) -> Problem:
    """Problem of strings among dates; a minority of them may stand for missing values."""
    changes: tuple[Change, ...] = (("drop", name),)
    remedies = ["correct these cells", _leave_out(name)]
    if is_minority:
        changes = tuple(("na", text) for text in others)
        remedies.insert(0, f"take them for missing with {option('--na', others[0])}")
    return Problem(
        f"column {quoted(name)} holds {listed(others, 3)}, which {defect}",
        f"{', '.join(remedies[:-1])}, or {remedies[-1]}",
        changes,
    )


def _text_instead_of_numbers(strings: Any, codes: NDArray[np.int64], label: str) -> Problem:
    """Problem of a target or of weights that hold strings which are not numbers, with the first."""
    is_odd = cells.odd_strings(strings)
    odd = strings.filter(pa.array(is_odd)).to_pylist()
    if 2 * len(odd) >= len(strings):
        return Problem(
            f"{label} holds text ({listed(odd, 3)}) instead of numbers: classes and dates cannot be"
            " predicted",
            "choose another column",
        )
    odd_rows = np.append(is_odd, False)[codes]  # the code -1 takes the appended False
    row = int(odd_rows.argmax())
    changes = tuple(("na", text) for text in odd) if len(odd) <= MAX_ODD_STRINGS else ()
    return Problem(
        f"{label} holds text, or numbers in another format, in {counted(int(odd_rows.sum()), 'cell')},"
        f" the first {quoted(strings[int(codes[row])])} in row {row + 1}",
        "correct them, empty them and leave their rows out with --missing drop, or choose another"
        " column",
        changes,
    )


def _leave_out(name: str) -> str:
    return f"leave the column out with {option('--drop', name)}"
