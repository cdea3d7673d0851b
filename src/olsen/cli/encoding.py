"""A table as numbers: what to do with each of its columns, learned from one table and done to others."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import columns as kinds
from . import terminal
from .cells import BLANKS, Ambiguous, Notation, looks_like_number, notation_of, number, settled_decimal
from .gaps import Stage, is_missing, refuse_missing, without_gaps
from .shown_text import quoted
from .table_errors import TableError, counted, listed, option

__all__ = ["Encoding", "learn_table"]

Array = NDArray[np.float64]
Missing = Literal["error", "drop", "mean"]
ROWS_LOOKED_AT = 1000  # of columns of text, for what they tell about the others


@dataclass(frozen=True)
class Encoding:
    """How a table becomes numbers: plain types only, so that it can be stored beside a model.

    Parameters
    ----------
    target : str
        Column to predict.
    columns : list of dict
        What to do with every column in use; see the module `columns`.
    messages : list of str
        What was done.
    stage : {"fit", "blocks", "predict"}
        What tables are encoded for: errors advise what can be done then.
    unknown : {"error", "ignore"}
        Whether categories that were not learned are refused, or are 0 in every column.
    notation : Notation, default=None
        How the numbers of the target are written, if it holds text.
    """

    target: str
    columns: list[dict[str, Any]]
    messages: list[str] = field(default_factory=list)
    stage: Stage = "predict"
    unknown: Literal["error", "ignore"] = "error"
    notation: Notation | None = None

    @classmethod
    def learn(
        cls,
        table: Any,
        target: str,
        drop: Iterable[str] = (),
        distinct: Callable[[list[str]], dict[str, list[str]]] | None = None,
        *,
        missing: Missing = "error",
        dates: Iterable[str] = (),
        ordinal: Iterable[str] = (),
        ids: Iterable[str] = (),
        unknown: Literal["error", "ignore"] = "error",
    ) -> Encoding:
        """Decide for each column of a table how it becomes numbers.

        Parameters
        ----------
        table : pyarrow.Table
            Without gaps, unless `missing` is "mean".
        target : str
            Column to predict.
        drop : iterable of str
            Columns to leave out.
        distinct : callable, default=None
            Where `table` is the head of a larger one, finds the different texts of some columns in all of it.
        missing : {"error", "drop", "mean"}
            "mean" fills gaps, and adds a column that says where they were to every column that has some. Rows are left
            out before (`learn_table`).
        dates : iterable of str
            Columns of dates, which become days since 1970-01-01.
        ordinal : iterable of str
            Columns of categories with an order, as ``size`` (by number or alphabet) or ``size=S<M<L``.
        ids : iterable of str
            Columns that identify rows: left out as in `drop`, and handed through by `texts_of`.
        unknown : {"error", "ignore"}
            What to do later with categories that are not in this table.
        """
        dates, orders = set(dates), _orders(ordinal, table.column_names)
        names = _used(table, target, [*drop, *ids], [*dates, *orders])
        stage: Stage = "fit" if distinct is None else "blocks"
        if stage == "blocks" and missing != "error":
            raise TableError(
                f"--missing {missing} needs the whole table in memory, but it is read in blocks; fill the gaps in the "
                f"table first."
            )
        refuse_missing(table, [target] if missing == "mean" else [target, *names], target=target, stage=stage)
        notation, messages = _target_notation(table, target)
        cls(target, [], stage=stage, notation=notation).response(table)
        columns = []
        for how, said in _decided(table, names, distinct, dates, orders):
            columns.append(_with_means(how, table.column(how["name"])) if missing == "mean" else how)
            messages += said
        messages += _gap_messages(columns)
        _refuse_equal_labels(columns)
        return cls(target, columns, messages, stage, unknown, notation)

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [name for column in self.columns for name in kinds.labels(column)]

    @property
    def needed(self) -> list[str]:
        """Names of the columns of a table that are in use, the target left out."""
        return [column["name"] for column in self.columns]

    def features(self, table: Any, first_row: int = 0) -> Array:
        """Encoded columns of a table, which must hold all columns in use, of the same kind, without missing cells.

        Gaps are filled in columns whose means were learned. `first_row` is the number of the table's first row, where
        it is part of a larger one.
        """
        self._refuse_other_columns(table)
        news = kinds.notation_news(table, self.columns)
        whole = [column["name"] for column in self.columns if "means" not in column]
        texts = [column["name"] for column in self.columns if "categories" in column and "means" not in column]
        if any(table.column(name).null_count for name in texts):
            refuse_missing(table, whole, first_row, target=self.target, stage=self.stage)
        out = np.empty((table.num_rows, len(self.names)), order="F")
        place = 0
        for column in self.columns:
            encoded = kinds.encode(table.column(column["name"]), column, first_row, self.unknown)
            out[:, place : place + encoded.shape[1]] = encoded
            place += encoded.shape[1]
        if not np.isfinite(out).all():
            refuse_missing(table, whole, first_row, target=self.target, stage=self.stage)
            self._refuse_infinite(out, first_row)
        for message in news if self.stage == "predict" else ():
            terminal.note(message)
        return out

    def _refuse_other_columns(self, table: Any) -> None:
        held = set(table.column_names)  # a fresh list every time it is asked for
        missing = [name for name in self.needed if name not in held]
        if missing:
            extra = [name for name in table.column_names if name not in {*self.needed, self.target}]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            raise TableError(f"the table lacks {counted(missing, 'column')} of the model: {listed(missing)}{hint}.")

    def _refuse_infinite(self, out: Array, first_row: int) -> None:
        row, place = (int(i) for i in np.argwhere(~np.isfinite(out))[0])
        raise TableError(
            f"column {quoted(self.names[place])} is infinite in row {first_row + row + 1}; correct that cell."
        )

    def response(self, table: Any, first_row: int = 0) -> Array:
        """The target column as numbers, without missing cells."""
        column, notation = table.column(self.target), self.notation
        if not kinds.is_text(column.type):
            values = kinds.numbers(column, self.target, for_target=True)
        else:
            notation = notation or _target_notation(table, self.target)[0]
            assert notation is not None  # a text that is no number has been refused
            values = kinds.numbers_of_texts(
                column, self.target, lambda text: number(text, notation), "numbers", first_row
            )
        if not np.isfinite(values).all():
            refuse_missing(table, [self.target], first_row, target=self.target, stage=self.stage)
            Encoding(self.target, [{"name": self.target}])._refuse_infinite(values[:, None], first_row)
        return values


def learn_table(
    table: Any,
    target: str,
    drop: Iterable[str] = (),
    *,
    missing: Missing = "error",
    dates: Iterable[str] = (),
    ordinal: Iterable[str] = (),
    ids: Iterable[str] = (),
    unknown: Literal["error", "ignore"] = "error",
) -> tuple[Any, Encoding]:
    """The rows of a table that are used, and how they become numbers; parameters as in `Encoding.learn`.

    With `missing` "drop", rows with gaps in columns in use are left out, and the first message says how many.
    """
    drop, ids = list(drop), list(ids)
    said: list[str] = []
    if missing == "drop":
        used = _used(table, target, [*drop, *ids])
        _target_notation(table, target)  # refused before rows are left out, and so counted anew
        table, said = without_gaps(table, [target, *used])
    encoding = Encoding.learn(
        table, target, drop, missing=missing, dates=dates, ordinal=ordinal, ids=ids, unknown=unknown
    )
    encoding.messages[:0] = said
    return table, encoding


def _used(table: Any, target: str, left_out: list[str], named: Iterable[str] = ()) -> list[str]:
    """Names of the columns that become features; raise for names that the table does not have."""
    unknown = [name for name in [target, *left_out, *named] if name not in table.column_names]
    if unknown:
        raise KeyError(f"there is no column {listed(unknown)}; the table has {listed(table.column_names, 12)}.")
    names = [name for name in table.column_names if name != target and name not in left_out]
    if not names:
        raise TableError(f"the table has no column besides the target {quoted(target)}.")
    return names


def _orders(given: Iterable[str], names: list[str]) -> dict[str, list[str]]:
    """Columns with an order and the order, empty where it was not given; names may hold equals signs themselves."""
    found: dict[str, list[str]] = {}
    for text in given:
        parts = text.split("=")
        cuts = [i for i in range(1, len(parts)) if "=".join(parts[:i]) in names]
        if text in names or not cuts:
            found[text] = []
            continue
        levels = [level.strip() for level in "=".join(parts[cuts[0] :]).split("<")]
        if len(set(levels)) < max(2, len(levels)):
            raise TableError(f"--ordinal {quoted(text)} needs at least two different levels, as in size=S<M<L.")
        found["=".join(parts[: cuts[0]])] = levels
    return found


def _decided(
    table: Any,
    names: list[str],
    distinct: Callable[[list[str]], dict[str, list[str]]] | None,
    dates: set[str],
    orders: dict[str, list[str]],
) -> list[kinds.Decision]:
    texts = [name for name in names if kinds.is_text(table.column(name).type)]
    others = {
        name: kinds.decide_numbers(table.column(name), name, name in dates)
        for name in names
        if name not in texts and not orders.get(name)
    }
    found = {name: kinds.different_texts(table.column(name)) for name in texts} if distinct is None else distinct(texts)
    where_doubtful = _where_doubtful(table)
    decided = []
    for name in names:
        if name in others:
            decided.append(_as_written(table, *others[name]))
            continue
        values = found[name] if name in texts else kinds.texts_of(table, [name])[name]
        values = [value for value in dict.fromkeys(values) if value is not None]
        if not values:
            raise TableError(f"column {quoted(name)} is empty; leave it out with {option('--drop', name)}.")
        values, said = _without_blanks(values, name) if kinds.marked(table, name, "separator") else (values, [])
        if name in orders:
            how, messages = kinds.decide_order(values, name, orders[name])
        else:
            how, messages = kinds.decide_text(values, name, table.num_rows, name in dates, where_doubtful)
        decided.append((how, messages + (said if "categories" in how else [])))
    return decided


def _as_written(table: Any, how: dict[str, Any], messages: list[str]) -> kinds.Decision:
    """A decision on numbers, with their decimal comma where they have one."""
    name = how["name"]
    _refuse_doubtful_points(table, name, "column", f", or leave the column out with {option('--drop', name)}")
    if zeros := kinds.marked(table, name, "zeros"):
        messages = [*messages, kinds.zeros_message(name, zeros)]
    if kinds.marked(table, name, "comma"):
        how = {**how, **Notation(",", "")._asdict()}
    return how, messages


def _refuse_doubtful_points(table: Any, name: str, what: str, otherwise: str = "") -> None:
    """Raise if points in a column may stand between thousands, as where other columns have decimal commas."""
    example = kinds.marked(table, name, "doubtful")
    if example and "," in _decimals(table):
        raise TableError(
            f"{what} {quoted(name)} holds {quoted(example)}, which may be {example} or {example.replace('.', '')}, as "
            f"other columns have decimal commas; write it without marks between thousands{otherwise}."
        )


def _where_doubtful(table: Any) -> str:
    """The decimal point or comma of columns that leave it in doubt, such as those with nothing but 1,234.

    Where cells are separated by commas, numbers have points. Elsewhere the other columns tell, if they agree.
    """
    separators = {kinds.marked(table, name, "separator") for name in table.column_names} - {""}
    if not separators - {","}:
        return "."
    found = _decimals(table)
    return found.pop() if len(found) == 1 else ""


def _decimals(table: Any) -> set[str]:
    """The decimal points and commas of the columns of a table that leave no doubt."""
    import pyarrow as pa

    found = set()
    for name in table.column_names:
        column = table.column(name)
        if kinds.marked(table, name, "comma"):
            found.add(",")
        elif pa.types.is_floating(column.type) and not kinds.marked(table, name, "doubtful"):
            found.add(".")
        elif kinds.is_text(column.type):
            texts = kinds.different_texts(column.slice(0, ROWS_LOOKED_AT))
            found.add(settled_decimal(text for text in texts if text is not None))
    return found - {""}


def _without_blanks(values: list[str], name: str) -> tuple[list[str], list[str]]:
    """Different texts without the blanks around them, and a message if that made some of them one."""
    groups: dict[str, list[str]] = {}
    for value in values:
        groups.setdefault(value.strip(BLANKS), []).append(value)
    joined = next((group for group in groups.values() if len(group) > 1), None)
    if joined is None:
        return list(groups), []
    return list(groups), [
        f"blanks around texts of column {quoted(name)} are left out, which makes {listed(sorted(joined), 3)} one "
        f"category."
    ]


def _target_notation(table: Any, target: str) -> tuple[Notation | None, list[str]]:
    """How the numbers of a target of text are written, and a message; None for a target of numbers."""
    column = table.column(target)
    _refuse_doubtful_points(table, target, "the target")
    if not kinds.is_text(column.type):
        return None, []
    values = [value for value in kinds.different_texts(column) if value is not None]
    try:
        notation = notation_of(values, _where_doubtful(table))
    except Ambiguous as error:
        raise TableError(f"the target {quoted(target)} holds {error}; {kinds.PLAIN_NUMBERS}.") from None
    if notation is None:
        raise TableError(_strange_target(column, target))
    example = max(values, key=len)
    said = f"the target holds numbers as text: {quoted(example)} is read as {number(example, notation):g}."
    return notation, [said]


def _strange_target(column: Any, target: str) -> str:
    """What is said of a target of text: its first cell that is no number, where most are."""
    cells = [(row, text) for row, text in enumerate(column.to_pylist(), 1) if text is not None]
    strange = [(row, text) for row, text in cells if not looks_like_number(text)]
    if 2 * len(strange) > len(cells):
        return (
            f"the target {quoted(target)} holds text ({kinds.examples(column)}); it must hold numbers: choose another "
            f"column with --target, or turn these texts into numbers."
        )
    if not strange:
        row, text, other = _other_notation(cells)
        return (
            f"the target {quoted(target)} holds {quoted(text)} in row {row}, which is written differently from "
            f"{quoted(other)}; write all of its numbers in one notation."
        )
    row, text = strange[0]
    others = len(strange) - 1
    more = f", nor {'is' if others == 1 else 'are'} {counted(others, 'other cell')}" if others else ""
    return (
        f"the target {quoted(target)} holds {quoted(text)} in row {row}, which is no number{more}. {_remedy(text)}, or "
        f"empty such cells and leave their rows out with --missing drop."
    )


def _other_notation(cells: list[tuple[int, str]]) -> tuple[int, str, str]:
    """The first cell that has no notation in common with those before it, and the first cell of all."""
    texts = [text for _, text in cells]
    place = bisect(range(1, len(cells)), False, key=lambda n: not _has_notation(texts[:n]))
    row, text = cells[place]
    return row, text, texts[0]


def _has_notation(texts: list[str]) -> bool:
    try:
        return notation_of(texts) is not None
    except Ambiguous:
        return True


def _remedy(text: str) -> str:
    if "\n" in text or '"' in text:
        return "A quotation mark before it may not be closed: close it"
    if text.strip().endswith("-") and looks_like_number(text.strip()[:-1]):
        return f"Write the minus first, {quoted('-' + text.strip()[:-1])}"
    return "Correct it"


def _with_means(how: dict[str, Any], column: Any) -> dict[str, Any]:
    gaps = is_missing(column)
    if gaps.all():
        raise TableError(f"column {quoted(how['name'])} is empty; leave it out with {option('--drop', how['name'])}.")
    encoded = kinds.encode(column, how)[~gaps]
    if not np.isfinite(encoded).all():
        row = int(np.flatnonzero(~gaps)[~np.isfinite(encoded).all(axis=1)][0]) + 1
        raise TableError(
            f"column {quoted(how['name'])} is infinite in row {row}, so it has no mean; correct that cell."
        )
    means = {"means": [float(mean) for mean in encoded.mean(axis=0)]}
    return how | means | ({"indicator": True} if gaps.any() else {})


def _gap_messages(columns: list[dict[str, Any]]) -> list[str]:
    filled = [column["name"] for column in columns if column.get("indicator")]
    if not filled:
        return []
    verb = "is" if len(filled) == 1 else "are"
    return [
        f"gaps in {counted(filled, 'column')} {verb} filled with means, and marked in a column of 0 and 1 each: "
        f"{listed(filled)}."
    ]


def _refuse_equal_labels(columns: list[dict[str, Any]]) -> None:
    """Raise if a column has the name that another one gets when it is encoded."""
    names = {column["name"] for column in columns}
    marked = [f"{column['name']} is missing" for column in columns if column.get("indicator")]
    if taken := [name for name in marked if name in names]:
        raise TableError(f"there is a column {quoted(taken[0])} already; rename it, or fill the gaps in the table.")
