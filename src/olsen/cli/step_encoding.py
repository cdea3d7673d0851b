"""A table as numbers by the steps of a pipeline that was fitted in Python."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from . import columns as kinds
from .gaps import refuse_missing
from .shown_text import quoted
from .steps import MISSING, Node, Steps, encoded_names, holds_text, leaves
from .table_errors import TableError, counted, listed

__all__ = ["StepEncoding"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StepEncoding:
    """How a table becomes numbers, with the manners of `Encoding`.

    Parameters
    ----------
    target : str
        Name of what is predicted.
    steps : Steps
        What is done.
    unknown : {"error", "ignore"}
        Whether categories that were not learned are refused where the steps do not say what to do with them.
    messages : list of str
        What was done.
    """

    target: str
    steps: Steps
    unknown: Literal["error", "ignore"] = "error"
    messages: list[str] = field(default_factory=list)

    @cached_property
    def parts(self) -> list[tuple[Any, Node, list[int]]]:
        """Transformers, fitted, with what they do and the columns that they take; all columns in one where that is."""
        from .step_builder import transformer_of

        every = list(range(self.steps.n_columns))
        if not self.steps.steps or self.steps.steps[0][1]["kind"] != "columns":
            return [(None, {"kind": "passthrough"}, every)]
        return [
            (transformer_of(_lenient(node) if self.unknown == "ignore" else node, len(places)), node, places)
            for _, node, places in self.steps.steps[0][1]["parts"]
        ]  # fmt: skip

    @cached_property
    def after(self) -> list[Any]:
        """Transformers of all encoded columns together."""
        from .step_builder import transformer_of

        steps = self.steps.steps
        divided = bool(steps) and steps[0][1]["kind"] == "columns"
        names = self.steps.input_names
        found = []
        for place, (_, node) in enumerate(steps):
            if place or not divided:
                found.append(transformer_of(node, len(names)))
            names = encoded_names(node, names)
        return [one for one in found if not isinstance(one, str)]

    @cached_property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        names = self.steps.input_names
        for _, node in self.steps.steps:
            names = encoded_names(node, names)
        return names

    @property
    def columns(self) -> list[dict[str, Any]]:
        """What is known of the columns of the table that are in use."""
        found = []
        for _, node, places in self.parts:
            for place, column in enumerate(places):
                known = next((leaf["categories"][place] for leaf in leaves(node) if "categories" in leaf), None)
                how: dict[str, Any] = {"name": self.steps.input_names[column]}
                if known is not None and not isinstance(self.steps.names, int):
                    how["categories"] = [str(value) for value in known if value is not MISSING]
                found.append(how)
        return found

    @property
    def needed(self) -> list[str]:
        """Names of the columns of a table that are in use."""
        if isinstance(self.steps.names, int):
            raise TableError(
                "the model was fitted in Python on columns without names, which are taken in their order from a table "
                "in memory, but this one is read in blocks; fit the model on a data frame."
            )
        return list(dict.fromkeys(column["name"] for column in self.columns))

    def features(self, table: Any, first_row: int = 0) -> Array:
        """Encoded columns of a table; see `Encoding.features`."""
        columns = self._columns(table)
        if not table.num_rows:
            return np.empty((0, len(self.names)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that columns have no names here, and of categories that are ignored
            encoded = [self._encoded(*part, columns, first_row) for part in self.parts]
            X = np.hstack([one.toarray() if sp.issparse(one) else np.asarray(one, dtype=float) for one in encoded])
            for transformer in self.after:
                X = np.asarray(transformer.transform(X), dtype=float)
        if not np.isfinite(X).all():
            self._refuse(X, table, list(columns), first_row)
        return X

    def _columns(self, table: Any) -> dict[int, Any]:
        """The columns of a table that are in use, by their number among those that go in."""
        used = sorted({place for _, _, places in self.parts for place in places})
        if isinstance(self.steps.names, int):
            rest = [name for name in table.column_names if name != self.target]
            if len(rest) != self.steps.n_columns:
                raise TableError(
                    f"the table has {counted(rest, 'column')} besides the target, but the model was fitted in Python "
                    f"on {counted(self.steps.n_columns, 'column')} without names, which are taken in their order; give "
                    f"as many, or fit the model on a data frame."
                )
            return {place: table.column(rest[place]) for place in used}
        missing = [self.steps.names[place] for place in used if self.steps.names[place] not in table.column_names]
        if missing:
            raise TableError(
                f"the table lacks {counted(missing, 'column')} of the model: {listed(missing)}; it has "
                f"{listed(table.column_names, 12)}."
            )
        return {place: table.column(self.steps.names[place]) for place in used}

    def _encoded(self, transformer: Any, node: Node, places: list[int], columns: dict[int, Any], first_row: int) -> Any:
        cells = [self._cells(node, i, columns[place], first_row) for i, place in enumerate(places)]
        texts = any(column.dtype == object for column in cells)
        X = np.column_stack([column.astype(object) for column in cells] if texts else cells)
        return X if transformer is None or isinstance(transformer, str) else transformer.transform(X)

    def _cells(self, node: Node, place: int, column: Any, first_row: int) -> NDArray[Any]:
        """Cells as a transformer takes them: texts with NaN where they are missing, or numbers."""
        name = self._name(node, place)
        if node["kind"] == "table_column":
            return np.array(column.to_pylist(), dtype=object)
        if not holds_text(node, place):
            if kinds.is_text(column.type):
                raise TableError(
                    f"column {quoted(name)} holds text ({kinds.examples(column)}), but the model learned numbers "
                    f"there; correct those cells."
                )
            values = kinds.numbers(column, name)
        else:
            texts = column if kinds.is_text(column.type) else kinds.as_text(column)
            values = np.array([np.nan if text is None else text for text in texts.to_pylist()], dtype=object)
        self._refuse_unknown(node, place, name, values, first_row)
        return values

    def _name(self, node: Node, place: int) -> str:
        places = next(places for _, one, places in self.parts if one is node)
        return self.steps.input_names[places[place]]

    def _refuse_unknown(self, node: Node, place: int, name: str, values: NDArray[Any], first_row: int) -> None:
        steps = list(leaves(node))
        encoder = next((leaf for leaf in steps if "categories" in leaf), None)
        if encoder is None or encoder["unknown"] not in ("error", None):
            return
        if encoder["kind"] == "one_hot" and self.unknown == "ignore":
            return
        known = set(encoder["categories"][place])
        filled = any(leaf["kind"] == "impute" for leaf in steps)
        for row, value in enumerate(values):
            gap = value != value
            if (gap and not filled and MISSING not in known) or (not gap and value not in known):
                what = "a missing cell" if gap else quoted(value)
                raise TableError(
                    f"column {quoted(name)} holds {what} in row {first_row + row + 1}, which the model has not seen; "
                    f"it knows {listed([v for v in encoder['categories'][place] if v is not MISSING], 8)}."
                )

    def _refuse(self, X: Array, table: Any, places: list[int], first_row: int) -> None:
        names = (
            [name for name in table.column_names if name != self.target]
            if isinstance(self.steps.names, int)
            else (self.steps.names)
        )
        refuse_missing(table, [names[place] for place in places], first_row, target=self.target, stage="predict")
        row = int(np.argmin(np.isfinite(X).all(axis=1))) + 1
        raise TableError(f"row {first_row + row} becomes infinite; its cells are too large.")


def _lenient(node: Node) -> Node:
    """A node that takes categories it does not know for none."""
    if node["kind"] == "pipeline":
        return {**node, "steps": [[name, _lenient(inner)] for name, inner in node["steps"]]}
    return {**node, "unknown": "ignore"} if node["kind"] == "one_hot" else node
