"""A table as numbers: scikit-learn's transformers chosen from one table, and what is refused in others."""

from __future__ import annotations

import warnings
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from .._report.formatting import quoted
from . import columns as kinds
from . import terminal
from .cells import BLANKS, Ambiguous, Notation, looks_like_number, notation_of, number, settled_decimal
from .gaps import Stage, is_missing, refuse_missing, without_gaps
from .table_columns import FIRST_ROW, TableColumns, texts_without_blanks
from .table_errors import TableError, counted, listed, option

__all__ = ["Encoding", "InputColumn", "learn_table", "leaves"]

Array = NDArray[np.float64]
Missing = Literal["error", "drop", "mean"]
ROWS_LOOKED_AT = 1000  # of columns of text, for what they tell about the others


class InputColumn(NamedTuple):
    """What a fitted model knows about a column of its tables."""

    name: str
    categories: tuple[Any, ...] | None = None
    ordered: bool = False  # unknown categories have no place in an order
    fills: bool = False  # missing cells
    lenient: bool = False  # about unknown categories, by itself
    parser: TableColumns | None = None


def _refuse_infinite(table: Any, names: Iterable[str], first_row: int) -> None:
    """Raise for the first infinite cell of some columns of numbers."""
    import pyarrow.compute as pc

    for name in names:
        if str(table.schema.field(name).type) == "double":
            row = pc.index(pc.is_inf(table.column(name)), True).as_py()
            if row >= 0:
                raise TableError(f"column {quoted(name)} is infinite in row {first_row + row + 1}; correct that cell.")


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
    notation : Notation, default=None
        How the numbers of the target are written, if it holds text.
    ignored : Counter
        Cells of unknown categories, by column.
    """

    target: str
    before: Any
    given: list[str] | int = 0
    messages: list[str] = field(default_factory=list)
    stage: Stage = "predict"
    unknown: Literal["error", "ignore"] = "error"
    notation: Notation | None = None
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
            "mean" fills gaps of numbers with their mean and those of texts with the most frequent one, and adds a
            column that says where they were to every column that has some. Rows are left out before (`learn_table`).
        dates : iterable of str
            Columns of dates, which become days since 1970-01-01.
        ordinal : iterable of str
            Columns of categories with an order, as ``size`` (by number or alphabet) or ``size=S<M<L``.
        ids : iterable of str
            Columns that identify rows: left out as in `drop`.
        """
        dates, orders = set(dates), _orders(ordinal, table.column_names)
        names = _used(table, target, [*drop, *ids], [*dates, *orders])
        stage: Stage = "fit" if distinct is None else "blocks"
        fill = missing == "mean"
        refuse_missing(table, [target] if fill else [target, *names], target=target, stage=stage)
        notation, messages = _target_notation(table, target)
        cls(target, None, stage=stage, notation=notation).response(table)
        decided = []
        for how, said in _decided(table, names, distinct, dates, orders):
            decided.append(how)
            messages += said
        gaps = [name for name in names if fill and is_missing(table.column(name)).any()]
        messages += _fill_message(table, gaps)
        before = ColumnTransformer(list(_parts(decided, fill, gaps)), verbose_feature_names_out=False)
        found = cls(target, make_pipeline(before), names, messages, stage, notation=notation)
        try:
            before.fit(table.select(names))
            _ = found.names
        except ValueError as error:
            _refuse_infinite(table, names, 0)
            if "not unique" in str(error):
                raise TableError("columns get the names of others when they are encoded; rename them.") from error
            raise
        return found

    @cached_property
    def columns(self) -> list[InputColumn]:
        """What is known of the columns of the table that are in use."""
        names = [f"column {j + 1}" for j in range(self.given)] if isinstance(self.given, int) else self.given
        first = self.before[0] if self.before is not None and len(self.before) else None
        if not isinstance(first, ColumnTransformer):
            parts = [(self.before, list(range(len(names))))]
        else:
            places = first._transformer_to_input_indices
            parts = [(one, places[name]) for name, one, _ in first.transformers_ if not _is(one, "drop")]
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
        news = kinds.notation_news(table, [_decision(column) for column in self.columns if column.parser is not None])
        self._refuse_cells(table, first_row)
        if not table.num_rows:
            return np.empty((0, len(self.names)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that columns have no names here, and of categories that are ignored
            X = self._rows(table, first_row)
            encoded = X if self.before is None or not len(self.before) else self.before.transform(X)
            encoded = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded, dtype=float)
        if not np.isfinite(encoded).all():
            refuse_missing(table, [c.name for c in self.columns if not c.fills], first_row, target=self.target,
                           stage=self.stage)  # fmt: skip
            _refuse_infinite(table, [column.name for column in self.columns], first_row)
            row, j = np.argwhere(~np.isfinite(encoded))[0]
            raise TableError(
                f"column {quoted(self.names[j])} is infinite in row {first_row + row + 1}: the cell is too large."
            )
        for message in news if self.stage == "predict" else ():
            terminal.note(message)
        return np.asfortranarray(encoded)

    def _rows(self, table: Any, first_row: int) -> Any:
        """Rows as the first step takes them: our own columns as they are, others as numbers and texts."""
        if any(column.parser is not None for column in self.columns):
            metadata = {**(table.schema.metadata or {}), FIRST_ROW: str(first_row).encode()}
            return table.replace_schema_metadata(metadata)
        cells = {column.name: _cells(table.column(column.name), column) for column in self.columns}
        if isinstance(self.given, int) or self.before is None or not isinstance(self.before[0], ColumnTransformer):
            texts = any(values.dtype == object for values in cells.values())
            return np.column_stack([values.astype(object) if texts else values for values in cells.values()])
        from .._execution.extras import from_extra

        frame = from_extra("pandas", "cli' pandas'", "A pipeline that was fitted on data frames").DataFrame(cells)
        return frame.reindex(columns=self.given)  # columns that are dropped may be missing

    def _own_columns(self, table: Any) -> Any:
        """The columns in use of a table; an error if some are missing."""
        if isinstance(self.given, int):
            rest = [name for name in table.column_names if name != self.target]
            if len(rest) != self.given:
                raise TableError(
                    f"the table has {counted(rest, 'column')} besides the target, but the model was fitted in Python "
                    f"on {counted(self.given, 'column')} without names, which are taken in their order; give as many, "
                    f"or fit the model on a data frame."
                )
            return table.select(rest).rename_columns([f"column {j + 1}" for j in range(self.given)])
        held = set(table.column_names)  # a fresh list every time it is asked for
        if missing := [name for name in self.needed if name not in held]:
            extra = [name for name in table.column_names if name not in {*self.needed, self.target}]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            raise TableError(f"the table lacks {counted(missing, 'column')} of the model: {listed(missing)}{hint}.")
        return table.select(self.needed)

    def _refuse_cells(self, table: Any, first_row: int) -> None:
        """Raise for cells that the model cannot take: missing ones, categories it has not seen."""
        whole = [column.name for column in self.columns if not column.fills]
        if any(table.column(name).null_count for name in whole):
            refuse_missing(table, whole, first_row, target=self.target, stage=self.stage)
        for column in self.columns:
            if column.categories is None or column.lenient:
                continue
            cells = _cells(table.column(column.name), column)
            known = {*column.categories, *({np.nan} if column.fills else ())}
            strange = [value for value in dict.fromkeys(cells) if value not in known and value == value]
            if strange and (column.ordered or self.unknown == "error"):
                row = first_row + list(cells).index(strange[0]) + 1
                ignore = "" if column.ordered else ", or take them for none of these with --unknown ignore"
                raise TableError(
                    f"column {quoted(column.name)} holds {listed(strange, 5)}, which the model has not seen; it knows "
                    f"{listed([v for v in column.categories if v == v], 8)}. Correct these cells, the first in row "
                    f"{row}{ignore}."
                )
            if strange:
                self.ignored[column.name] += int(np.isin(cells, strange).sum())

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
            row = first_row + int(np.argmin(np.isfinite(values))) + 1
            raise TableError(f"column {quoted(self.target)} is infinite in row {row}; correct that cell.")
        return values


# What a fitted transformer says about the columns that it takes


def _is(step: Any, word: str) -> bool:
    return isinstance(step, str) and step == word


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
        return (other or InputColumn(name, fills=fills, parser=parser))._replace(fills=fills)
    known = tuple(encoder.categories_[place])
    fills = fills or any(value != value for value in known)
    ordered = isinstance(encoder, OrdinalEncoder)
    lenient = encoder.handle_unknown != "error" and parser is None  # of our own, unknown cells are counted
    return InputColumn(name, known, ordered, fills, lenient, parser)


def _cells(column: Any, known: InputColumn) -> NDArray[Any]:
    """Cells as an encoder, or a model of numbers, takes them."""
    if known.categories is not None and any(isinstance(value, str) for value in known.categories):
        return texts_without_blanks(column)
    if kinds.is_text(column.type):
        return kinds.written_numbers(column, known.name, None, "")
    return kinds.numbers(column, known.name)


def _decision(column: InputColumn) -> dict[str, Any]:
    parser = column.parser
    assert parser is not None
    if parser.kind == "number":
        return {"name": column.name} | ({} if parser.decimal is None else {"decimal": parser.decimal})
    return {"name": column.name, "categories" if parser.kind == "text" else "date": ()}


# From decisions to transformers


def _parts(decided: list[dict[str, Any]], fill: bool, gaps: list[str]) -> Iterator[tuple[str, Any, list[str]]]:
    """Parts of a ColumnTransformer: neighbouring columns of one kind together, texts one by one."""
    for kind, group in groupby(decided, key=_parser_of):
        for hows in [[how] for how in group] if kind[0] == "text" else [list(group)]:
            names = [how["name"] for how in hows]
            steps: list[Any] = [TableColumns(*kind)]
            if fill:
                text = kind[0] == "text"
                steps.append(SimpleImputer(strategy="most_frequent") if text else SimpleImputer(add_indicator=True))
            if kind[0] == "text":
                known = [np.array(hows[0]["categories"], dtype=object)]
                ordered, first = OrdinalEncoder(categories=known), {"drop": "first", "sparse_output": False}
                steps.append(ordered if hows[0].get("ordinal") else OneHotEncoder(categories=known, **first))
            yield names[0], make_pipeline(*steps) if len(steps) > 1 else steps[0], names
            if kind[0] == "text" and names[0] in gaps:
                indicator = make_pipeline(TableColumns("text"), MissingIndicator(features="all"))
                yield f"{names[0]} is missing", indicator, names


def _parser_of(how: dict[str, Any]) -> tuple[Any, ...]:
    if "categories" in how:
        return "text", None, "", "ymd"
    if "date" in how:
        return "date", None, "", how["date"]
    return "number", how.get("decimal"), how.get("unit", ""), "ymd"


def _fill_message(table: Any, gaps: list[str]) -> list[str]:
    for name in gaps:
        if is_missing(table.column(name)).all():
            raise TableError(f"column {quoted(name)} is empty; leave it out with {option('--drop', name)}.")
    if not gaps:
        return []
    verb = "is" if len(gaps) == 1 else "are"
    return [
        f"gaps in {counted(gaps, 'column')} {verb} filled with means, or the most frequent text, and marked in a "
        f"column of 0 and 1 each: {listed(gaps)}."
    ]


def learn_table(
    table: Any,
    target: str,
    drop: Iterable[str] = (),
    *,
    missing: Missing = "error",
    dates: Iterable[str] = (),
    ordinal: Iterable[str] = (),
    ids: Iterable[str] = (),
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
    encoding = Encoding.learn(table, target, drop, missing=missing, dates=dates, ordinal=ordinal, ids=ids)
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
        values, said = _without_blanks(values, name)
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
