"""Encode tables as the numbers of a model, with the rows and the target that a transformer does not
see.

The encoding of a model of ``olsen fit`` checks new tables, with errors that name cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._persistence import ModelFileError
from .._report.formatting import counted, quoted
from .._tables import cells
from .._tables.cells import DoubtfulNumbers, Stage
from .._tables.columns import (
    CellCounts,
    Column,
    ColumnReader,
    Learned,
    UnreadableColumn,
    format_notes,
    without_marks,
)
from .._tables.encoder import UNKNOWN_ADVICE, TableEncoder
from .._tables.problems import (
    Change,
    Problem,
    Reading,
    TableError,
    TableProblems,
    all_problems,
    listed,
    named,
    option,
    text_names,
)
from .._trust import ORDINARY
from .tables import refuse_absent
from .terminal import UsageError

Array = NDArray[np.float64]
# metadata key of a training table: indices of the rows that were not left out
KEPT_ROWS = b"olsen.kept_rows"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the options of a command say about the columns of a table.

    Parameters
    ----------
    target : str
        Column to predict; empty if there is none.
    drop : tuple of str
        Columns to leave out.
    missing : {"error", "drop", "mean"}
        "error" refuses missing cells and "drop" leaves their rows out. "mean" fills numbers with
        the column mean and strings with the most frequent value, and leaves out rows without a
        target.
    dates, ordinal, na : tuple of str
        As in :class:`olsen.TableEncoder`.
    decimal : {".", ","}, default=None
        As there.
    """

    target: str = ""
    drop: tuple[str, ...] = ()
    missing: Literal["error", "drop", "mean"] = "error"
    dates: tuple[str, ...] = ()
    ordinal: tuple[str, ...] = ()
    na: tuple[str, ...] = ()
    decimal: str | None = None

    def changed(self, changes: Iterable[Change]) -> Settings:
        """The settings with some changed."""
        values: dict[str, Any] = {
            name: getattr(self, name) for name in ("drop", "missing", "dates", "na", "decimal")
        }
        for setting, value in changes:
            name = "drop" if setting == "id" else setting
            values[name] = value if name in ("missing", "decimal") else (*values[name], value)
        return replace(self, **values)

    def encoder(self) -> TableEncoder:
        """The transformer of the columns, without those that are left out."""
        return TableEncoder(
            dates=self.dates,
            ordinal=self.ordinal,
            na=self.na,
            decimal=self.decimal,
            missing="mean" if self.missing == "mean" else "error",
        )


def learn_encoding(
    table: Any,
    target: str,
    drop: Iterable[str] = (),
    distinct: Callable[[list[str]], dict[str, list[str]]] | None = None,
    **settings: Any,
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
    **settings : dict
        Further fields of `Settings`.

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
    chosen = Settings(target=target, drop=tuple(drop), **settings)
    check_names(table, chosen)
    distinct_values = None
    if distinct is not None:
        distinct_values = distinct(
            [name for name in text_names(table.schema) if name not in {target, *chosen.drop}]
        )
    rows = rows_to_use(table, chosen, distinct_values)
    if not rows.learned.problems:
        return rows.table, rows.encoding
    problems, changes = problems_of(table, chosen, distinct_values)
    raise TableProblems(problems, changes)


def check_names(table: Any, settings: Settings) -> None:
    """Raise for options that name no column, or an order of fewer than two levels."""
    names = [named(text, table.column_names)[0] for text in (*settings.dates, *settings.ordinal)]
    targets = [settings.target] if settings.target else []
    refuse_absent([*targets, *settings.drop, *names], table)
    try:
        settings.encoder()._reading(table.column_names)
    except ValueError as error:
        raise UsageError(f"--ordinal {error}") from None


def problems_of(
    table: Any, settings: Settings, distinct_values: dict[str, list[str]] | None = None
) -> tuple[list[Problem], list[Change]]:
    """All problems of a table, and the settings with which it can be used; none if none help."""

    def problems_with(changes: list[Change]) -> list[Problem]:
        return rows_to_use(table, settings.changed(changes), distinct_values).learned.problems

    problems, changes = all_problems(problems_with)
    in_memory = distinct_values is None
    return problems, changes if in_memory or {s for s, _ in changes} <= {"drop", "id"} else []


@dataclass(frozen=True)
class Rows:
    """The rows of a table that a model would use, and what their columns were found to be."""

    table: Any
    encoding: Encoding
    learned: Learned


def rows_to_use(
    table: Any, settings: Settings, distinct_values: dict[str, list[str]] | None = None
) -> Rows:
    """Choose the rows of a table and learn their encoding; problems are returned, not raised."""
    target = settings.target
    names = [name for name in table.column_names if name not in {target, *settings.drop}]
    used = [target, *names] if target else names
    table = without_marks(table, settings.na)
    stage: Stage = "fit" if distinct_values is None else "blocks"
    notes: list[str] = []
    problems: list[Problem] = []
    response = Column(name=target)
    if target:  # a target of text is refused before rows are left out
        try:
            response = number_column(table, target, f"the target {quoted(target)}", settings)
        except UnreadableColumn as error:
            problems.append(error.problem)
    try:
        if settings.missing == "drop":
            table = _complete_rows(table, used, notes)
        elif settings.missing == "mean" and target:
            table = _rows_with_target(table, target, notes)
    except TableError as error:
        problems.append(Problem(str(error).removesuffix(".")))
    encoder = settings.encoder()
    learned = Learned()
    if not names:
        problems.append(Problem(f"the table has no column besides the target {quoted(target)}"))
    elif table.num_rows:
        learned = encoder._learn(
            encoder._as_table(table.select(names), reset=True), distinct_values
        )
    notes += learned.notes
    notes += format_notes(table, [*learned.columns, *([] if problems else [response])])
    filled = names if settings.missing == "mean" else ()
    unusable = cells.unusable_cells(table, used, filled=filled, target=target, stage=stage)
    problems += learned.problems
    problems += [] if unusable is None else [unusable]
    encoding = Encoding(target, encoder, notes, stage, response)
    return Rows(table, encoding, Learned(learned.columns, notes, problems))


def number_column(table: Any, name: str, label: str, settings: Settings) -> Column:
    """Format of the numbers of a target or of weights; raise UnreadableColumn if they are none."""
    reading = Reading(decimal=settings.decimal or "")
    try:
        return ColumnReader(table=table, reading=reading).number(name, label)
    except DoubtfulNumbers as error:
        raise UnreadableColumn(error.problem) from None


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
    return _with_rows(table, is_complete)


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
    return _with_rows(table, ~is_missing) if n_left_out else table


def _with_rows(table: Any, is_kept: Any) -> Any:
    """Select rows of a table, which remembers their indices."""
    metadata = {**(table.schema.metadata or {}), KEPT_ROWS: np.flatnonzero(is_kept).tobytes()}
    return table.filter(is_kept).replace_schema_metadata(metadata)


def row_numbers(table: Any) -> NDArray[np.intp]:
    """Numbers from 1 that the rows of a training table have in the table that was read."""
    kept = (table.schema.metadata or {}).get(KEPT_ROWS)
    return 1 + (np.arange(table.num_rows) if kept is None else np.frombuffer(kept, np.intp))


def numbers_of(table: Any, column: Column, stage: Stage = "fit") -> Array:
    """Parse a column of a training table as numbers and refuse missing cells."""
    values = column.values(table)
    if not np.isfinite(values).all():
        one_column = table.select([column.name])
        cells.refuse_missing(one_column, [column.name], target=column.name, stage=stage)
        cells.refuse_infinite(values[:, None], [column.name], table)
    return values


# Tables for a fitted model


@dataclass(frozen=True)
class Encoding:
    """Encode tables as numbers for the ensemble of a model, with errors that name cells.

    Parameters
    ----------
    target : str
        Column to predict.
    encoder : TableEncoder
        First step of the model's pipeline.
    messages : list of str
        Notes for the user about the encoding.
    stage : {"fit", "blocks", "predict"}
        Purpose of the tables, which decides the advice of error messages.
    response_column : Column
        Format of the target.
    counts : CellCounts
        Numbers of cells that are not taken as they are.
    id_names : sequence of str
        Columns that name the rows.
    """

    target: str
    encoder: TableEncoder
    messages: list[str] = field(default_factory=list)
    stage: Stage = "predict"
    response_column: Column = field(default_factory=lambda: Column(name=""))
    counts: CellCounts = field(default_factory=CellCounts)
    id_names: Sequence[str] = ()

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
        id_names = getattr(model, "id_names_", ())
        encoding = cls(model.target_name_, model[0].set_params(unknown=unknown), id_names=id_names)
        _ = encoding.columns, encoding.names
        return encoding

    def cell_notes(self) -> list[str]:
        """Notes for the user about cells with unknown categories and missing cells, if there were any."""
        notes = []
        if unknown := self.counts.unknown:
            notes.append(
                f"{counted(unknown.total(), 'cell')} with categories that the model has not seen, taken"
                f" for none: {_counts_of_columns(unknown)}."
            )
        if filled := self.counts.filled:
            notes.append(
                f"{counted(filled.total(), 'missing cell')} filled as in training, with means or the"
                f" most frequent category: {_counts_of_columns(filled)}."
            )
        return notes

    @cached_property
    def columns(self) -> list[Column]:
        """Kinds of the table columns that the model uses."""
        return self.encoder._columns()

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [str(name) for name in self.encoder.get_feature_names_out()]

    @property
    def needed(self) -> list[str]:
        """Names of the table columns that the model uses, without the target."""
        return [column.name for column in self.columns]

    def select_columns(self, table: Any) -> Any:
        """Select the table columns that the model uses; raise if some are missing."""
        table_names = table.column_names
        absent = [name for name in self.needed if name not in set(table_names)]
        if absent:
            known = {*self.needed, self.target, *self.id_names}
            extra = [name for name in table_names if name not in known]
            hint = f"; it has {listed(extra)}, which the model does not know" if extra else ""
            n_absent = counted(len(absent), "column")
            raise TableError(f"the table lacks {n_absent} of the model: {listed(absent)}{hint}.")
        return table.select(self.needed)

    def features(self, table: Any) -> Array:
        """Encode the columns of a table, which must have all columns of the model, with the same
        types.

        Missing values are filled in columns whose means were learned, and refused in other columns.
        """
        selected = self.select_columns(table)
        try:
            return self.encoder._encode(selected, self.stage, self.counts)
        except TableError as error:
            raise TableError(str(error).replace(UNKNOWN_ADVICE, "--unknown ignore")) from None

    def response(self, table: Any) -> Array:
        """Parse the target column as numbers, and refuse missing cells."""
        return numbers_of(table, self.response_column, self.stage)

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


def _counts_of_columns(counts: Counter[str]) -> str:
    """Columns with their numbers of cells, the largest first."""
    return ", ".join(f"{quoted(name)} ({count})" for name, count in counts.most_common())
