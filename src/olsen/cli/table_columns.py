"""Columns of a table as scikit-learn's encoders and imputers take them: numbers, days, or texts without blanks."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from . import columns as kinds
from .cells import BLANKS

__all__ = ["FIRST_ROW", "TableColumns", "texts_without_blanks"]

FIRST_ROW = (
    b"olsen.first_row"  # among the metadata of a table that is part of a larger one: the number of its first row
)


class TableColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers, dates as days since 1970-01-01, or texts of some columns; missing cells are NaN.

    Parameters
    ----------
    kind : {"number", "date", "text"}, default="number"
        What the columns hold.
    decimal : {".", ","}, default=None
        Decimal mark of numbers that are texts in the table; None: the columns hold plain numbers.
    unit : str, default=""
        Unit behind or before such numbers.
    order : {"ymd", "dmy", "mdy"}, default="ymd"
        Order of year, month and day in dates that are texts.
    """

    __module__ = "olsen"  # model files name no private module

    def __init__(
        self,
        kind: Literal["number", "date", "text"] = "number",
        decimal: str | None = None,
        unit: str = "",
        order: str = "ymd",
    ) -> None:
        self.kind = kind
        self.decimal = decimal
        self.unit = unit
        self.order = order

    def fit(self, X: Any, y: Any = None) -> Self:
        """Nothing is left to learn.

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
        """Cells as numbers or texts.

        Parameters
        ----------
        X : data frame, pyarrow table or array of shape (n_samples, n_columns)
            Cells.

        Returns
        -------
        cells : ndarray of shape (n_samples, n_columns)
            Of floating-point numbers, or of texts.
        """
        table = _arrow(X)
        first_row = int((table.schema.metadata or {}).get(FIRST_ROW, 0))
        found = [
            self._cells(column, name, first_row) for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        return np.column_stack(found)

    def _cells(self, column: Any, name: str, first_row: int) -> NDArray[Any]:
        if self.kind == "text":
            return texts_without_blanks(column)
        if self.kind == "date":
            return kinds.days_of(column, name, self.order, first_row)
        if kinds.is_text(column.type):
            return kinds.written_numbers(column, name, self.decimal, self.unit, first_row)
        return kinds.numbers(column, name)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns, which stay as they are.

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


def _arrow(X: Any) -> Any:
    """A data frame or an array as a table of pyarrow."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(X, pa.Table):
        return X
    if isinstance(X, np.ndarray):
        columns = {f"x{j}": pa.array(X[:, j].tolist(), from_pandas=True) for j in range(X.shape[1])}
        return pa.table(columns)
    frame = nw.from_native(X, eager_only=True)
    return frame.to_arrow().select(frame.columns)


def texts_without_blanks(column: Any) -> NDArray[Any]:
    """The cells of a column as texts without the blanks around them, NaN where they are missing."""
    import pyarrow as pa

    texts = column if kinds.is_text(column.type) else kinds.as_text(column)
    found: list[NDArray[Any]] = [np.zeros(0, dtype=object)]
    for chunk in texts.chunks:  # each different text once: a long one may stand in a million rows
        coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.cast("string").dictionary_encode()
        different = [None if text is None else text.strip(BLANKS) for text in coded.dictionary.to_pylist()]
        values = np.array([*(np.nan if text is None else text for text in different), np.nan], dtype=object)
        found.append(values[coded.indices.fill_null(len(different)).to_numpy(zero_copy_only=False)])
    return np.concatenate(found)
