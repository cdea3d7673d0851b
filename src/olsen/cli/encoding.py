"""Tables as the numbers that a fitted model takes, with errors that name cells."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from .._report.formatting import counted, quoted
from . import terminal
from .columns import FIRST_ROW, NumberFormatWarning, Stage, TableColumns, refuse_missing
from .tables import TableError, listed

__all__ = ["Encoding", "InputColumn", "leaves"]

Array = NDArray[np.float64]


class InputColumn(NamedTuple):
    """What is known about a column of tables, as decided from one of them or found in a fitted model."""

    name: str
    parser: Any = None  # TableColumns, in our own models
    categories: tuple[Any, ...] | None = None
    ordered: bool = False  # unknown categories have no place in an order
    fills: bool = False  # missing cells
    lenient: bool = False  # about unknown categories, by itself


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
        whole = [column.name for column in self.columns if not column.fills]
        if any(table.column(name).null_count for name in whole):
            refuse_missing(table, whole, first_row, target=self.target, stage=self.stage)
        self._refuse_unknown(table, first_row)
        if not table.num_rows:
            return np.empty((0, len(self.names)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")  # heard: that columns have no names here, of categories that are ignored
            X = self._rows(table, first_row)
            encoded = X if self.before is None or not len(self.before) else self.before.transform(X)
            encoded = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded, dtype=float)
        self._refuse_infinite(encoded, table, first_row)
        news = [str(w.message) for w in caught if issubclass(w.category, NumberFormatWarning)]
        if news and news[0] not in self.messages:
            self.messages.append(news[0])
            more = f" So are those of {counted(len(news) - 1, 'other column')}." if len(news) > 1 else ""
            terminal.note(news[0] + more)
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
        cells = {column.name: _cells(table, column) for column in self.columns}
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
                    f"the table has {counted(len(rest), 'column')} besides the target, but the model was fitted in "
                    f"Python on {counted(self.given, 'column')} without names, which are taken in their order; give "
                    f"as many, or fit the model on a data frame."
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
            cells = _cells(table, column)
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

    def _refuse_infinite(self, encoded: Array, table: Any, first_row: int) -> None:
        """Raise for cells that are missing or infinite, among those of columns that are not filled."""
        if np.isfinite(encoded).all():
            return
        names = table.column_names
        filled = {column.name for column in self.columns if column.fills and names != [self.target]}
        about: Any = {"target": self.target, "stage": self.stage}
        refuse_missing(table, [name for name in names if name not in filled], first_row, **about)
        refuse_missing(table, filled, first_row, filled=True, **about)
        row, j = np.argwhere(~np.isfinite(encoded))[0]
        name = quoted(self.names[j] if encoded.shape[1] == len(self.names) else self.target)
        raise TableError(f"column {name} is infinite in row {first_row + row + 1}; correct that cell.")


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
        return (other or InputColumn(name, parser))._replace(fills=fills)
    known = tuple(encoder.categories_[place])
    fills = fills or any(value != value for value in known)
    ordered = isinstance(encoder, OrdinalEncoder)
    lenient = encoder.handle_unknown != "error" and parser is None  # of our own, unknown cells are counted
    return InputColumn(name, parser, known, ordered, fills, lenient)


def _cells(table: Any, known: InputColumn) -> NDArray[Any]:
    """Cells of a column as an encoder, or a model of numbers, takes them."""
    text = known.categories is not None and any(isinstance(value, str) for value in known.categories)
    return np.asarray(TableColumns("text" if text else "number").transform(table.select([known.name]))[:, 0])
