"""Columns of a table as numbers, days or texts, as scikit-learn's encoders and imputers take them; missing cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from .._execution import messages
from .._report.formatting import counted, quoted, shortened
from .number_formats import DATES, NumberFormat, days, number_format, numbers_in, refuse_doubtful_points
from .tables import SEPARATOR, TableError, is_text, listed
from .text_tables import BLANKS

__all__ = [
    "FIRST_ROW", "NumberFormatWarning", "Stage", "TableColumns", "as_text", "distinct_texts", "is_missing",
    "plain_numbers", "refuse_missing", "separator_of", "texts_of", "typed_numbers", "without_gaps",
]  # fmt: skip

Array = NDArray[np.float64]
Stage = Literal["fit", "blocks", "predict"]  # what a table is read for: a fit in memory or in blocks, or a prediction
FIRST_ROW = b"olsen.first_row"  # among the metadata of a part of a larger table: the number of its first row
MICROSECONDS_A_DAY = 86_400_000_000


class NumberFormatWarning(UserWarning):
    """Numbers that are written otherwise than those a model learned from, without doubt."""


class TableColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers, dates as days since 1970-01-01, or texts of some columns; missing cells are NaN.

    Parameters
    ----------
    kind : {"number", "date", "text"}, default="number"
        What the columns hold.
    decimal : {".", ","}, default=None
        Decimal mark of numbers that are texts in the table; None: the columns hold plain numbers.
    unit : str, default=""
        Unit behind such numbers.
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
        X : data frame or pyarrow table of shape (n_samples, n_columns)
            Cells.

        Returns
        -------
        cells : ndarray of shape (n_samples, n_columns)
            Of floating-point numbers, or of texts.
        """
        table = _arrow(X)
        first_row, separator = int((table.schema.metadata or {}).get(FIRST_ROW, 0)), separator_of(table)
        read: Any = {"text": _texts, "date": self._days, "number": self._numbers}[self.kind]
        columns = zip(table.column_names, table.columns, strict=True)
        return np.column_stack([read(column, name, first_row, separator) for name, column in columns])

    def _days(self, column: Any, name: str, first_row: int, _: str) -> Array:
        import pyarrow as pa

        if is_text(column.type):
            texts, codes = distinct_texts(column)
            values = np.array([days(text, self.order) for text in texts.to_pylist()], dtype=float)
            return _all_read(values, texts, codes, name, f"dates such as {DATES[self.order]} are expected", first_row)
        if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            raise TableError(f"column {quoted(name)} is of type {shortened(column.type)}, but dates are expected.")
        moments = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False).cast("int64")
        return np.asarray(moments.cast("float64", safe=False).to_numpy(), dtype=float) / MICROSECONDS_A_DAY

    def _numbers(self, column: Any, name: str, first_row: int, separator: str) -> Array:
        if not is_text(column.type):
            return typed_numbers(column, f"column {quoted(name)}")
        plain = plain_numbers(column)
        if plain is not None:
            if self.decimal == "," and separator not in ("", ","):
                refuse_doubtful_points(column.drop_null(), f"column {quoted(name)}")
            return plain
        texts, codes = distinct_texts(column)
        how = self._format(texts, name)
        expected = f"numbers with {quoted(how.decimal)}{' and ' * bool(how.unit)}{how.unit} are expected"
        return _all_read(numbers_in(texts, how), texts, codes, name, expected, first_row)

    def _format(self, texts: Any, name: str) -> NumberFormat:
        """The format that was learned; for plain numbers, the one that the texts have, if there is no doubt."""
        if self.decimal is not None:
            return NumberFormat(self.decimal, self.unit)
        how = number_format(texts, f"column {quoted(name)}", doubtful="")
        if how is None or how.unit:
            raise TableError(
                f"column {quoted(name)} holds text ({listed(texts.to_pylist(), 3)}), but the model learned numbers "
                f"there; correct those cells."
            )
        example = max(texts.to_pylist(), key=len)
        number = numbers_in(texts, how)[texts.to_pylist().index(example)]
        messages.warn(
            f"numbers of column {quoted(name)} are written unlike those in training: {quoted(example)} is {number:g}.",
            NumberFormatWarning,
        )
        return how

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
    """A data frame as a table of pyarrow."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(X, pa.Table):
        return X
    frame = nw.from_native(X, eager_only=True)
    return frame.to_arrow().select(frame.columns)


def separator_of(table: Any) -> str:
    """What separated the cells of a table that was read from text; empty for others."""
    return str((table.schema.metadata or {}).get(SEPARATOR, b"").decode())


# Texts


def distinct_texts(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """The different texts of a column without blanks around them, and for each row which one it has, or -1.

    A column that is stored as a dictionary is not written out: a long text may stand in a million rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        column = as_text(column).dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) and whole.num_chunks else whole
    if not len(whole):
        return pa.array([], "string"), np.zeros(0, dtype=np.int64)
    codes = whole.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)
    used, codes = np.unique(codes, return_inverse=True)
    missing = int(used[0] < 0)
    texts = pc.utf8_trim(whole.dictionary.take(pa.array(used[missing:])).cast("string"), characters=BLANKS)
    return texts, codes - missing


def as_text(column: Any) -> Any:
    """Numbers, truth values and dates as the texts that a table would have for them: 1 and not 1.0."""
    import pyarrow as pa

    try:
        return column.cast("string")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        cells = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(cells, "string")])


def texts_of(table: Any, names: Iterable[str]) -> dict[str, list[str]]:
    """The cells of some columns as text, empty where they are missing: what identifies the rows of a table."""
    names = list(names)
    if unknown := [name for name in names if name not in table.column_names]:
        raise KeyError(f"there is no column {listed(unknown)}; the table has {listed(table.column_names, 12)}.")
    return {name: [text or "" for text in as_text(table.column(name)).to_pylist()] for name in names}


def _texts(column: Any, *_: object) -> NDArray[Any]:
    texts, codes = distinct_texts(column)
    return np.array([*texts.to_pylist(), np.nan], dtype=object)[codes]


def _all_read(values: Array, texts: Any, codes: Any, name: str, expected: str, first_row: int) -> Array:
    """The value of each row, NaN where it is missing; raise for the first text that has none."""
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isin(codes, np.flatnonzero(np.isnan(values))))[0])
        raise TableError(
            f"column {quoted(name)} holds {quoted(texts[int(codes[row])].as_py())} in row {first_row + row + 1}, where "
            f"{expected}; correct that cell."
        )
    return np.asarray(np.append(values, np.nan)[codes], dtype=float)


# Numbers


def plain_numbers(column: Any) -> Array | None:
    """A column of texts as numbers, if all are numbers with a decimal point and nothing else; NaN where missing."""
    import pyarrow as pa

    try:
        if pa.types.is_dictionary(column.type):
            texts, codes = distinct_texts(column)
            return np.append(np.asarray(texts.cast("float64"), dtype=float), np.nan)[codes]
        return np.asarray(column.cast("float64").to_numpy(), dtype=float)
    except pa.ArrowInvalid:
        return None


def typed_numbers(column: Any, where: str, otherwise: str = "") -> Array:
    """A column that does not hold text as numbers, NaN where they are missing; whole numbers above 2^53 are rounded."""
    import pyarrow as pa

    try:
        if pa.types.is_decimal(column.type):
            column = column.cast("string")  # whose numbers are rounded correctly; a direct cast may miss the last digit
        whole = pa.types.is_integer(column.type)
        return np.asarray(column.cast("float64", safe=not whole).to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kind = shortened(column.type)
        raise TableError(f"{where} is of type {kind}, not numbers; turn it into numbers{otherwise}.") from error


# Missing cells


def refuse_missing(
    table: Any,
    names: Iterable[str],
    first_row: int = 0,
    *,
    filled: bool = False,
    target: str | None = None,
    stage: Stage = "fit",
) -> None:
    """Raise if cells are missing or not finite, with their number and the first of their rows.

    `first_row` is the number of the table's first row, where it is part of a larger one. Where missing cells are
    `filled`, only infinite ones are refused.
    """
    counts, infinite, first = {}, 0, table.num_rows
    for name in names:
        bad, missing = ~_usable(table.column(name)), is_missing(table.column(name))
        bad &= ~missing if filled else True
        if bad.any():
            counts[name] = int(bad.sum())
            infinite += int((bad & ~missing).sum())
            first = min(first, int(np.argmax(bad)))
    if not counts:
        return
    worst = sorted(counts, key=lambda name: -counts[name])
    named = ", ".join(f"{quoted(name)} ({counts[name]})" for name in worst[:8])
    more = f" and {len(worst) - 8} more" if len(worst) > 8 else ""
    total = sum(counts.values())
    what = {0: "missing", total: "infinite"}.get(infinite, f"missing or not finite ({infinite} infinite)")
    ways = ["Correct them", "remove these rows"]  # a target cannot be left out, nor can a column that a model needs
    if stage == "fit":
        ways[1] = "leave these rows out with --missing drop"
    if stage == "fit" and not infinite and target not in counts:
        ways.append("fill them with --missing mean")
    if stage != "predict" and set(counts) != {target}:
        ways.append(f"leave columns{' other than the target' * (target in counts)} out with --drop")
    raise TableError(
        f"{counted(total, 'cell')} {what}, in {counted(len(counts), 'column')}: {named}{more}, the first in row "
        f"{first_row + first + 1}. {', '.join(ways[:-1])}, or {ways[-1]}."
    )


def without_gaps(table: Any, names: Iterable[str]) -> tuple[Any, list[str]]:
    """The rows in which all of these columns have usable cells, and a message that says how many others there were."""
    usable = {name: _usable(table.column(name)) for name in names}
    kept = np.logical_and.reduce(list(usable.values()))
    if kept.all():
        return table, []
    if not kept.any():
        worst = min(usable, key=lambda name: usable[name].sum())
        raise TableError(
            f"every row has a cell that is missing or not finite, most in column {quoted(worst)} "
            f"({int((~usable[worst]).sum())} of {len(kept)} rows); leave columns out with --drop, or fill them."
        )
    return table.filter(kept), [f"{int((~kept).sum())} of {len(kept)} rows left out: cells are missing or not finite."]


def is_missing(column: Any) -> NDArray[np.bool_]:
    """Where a column has no value; infinite numbers are values."""
    import pyarrow.compute as pc

    return np.asarray(pc.is_null(column, nan_is_null=True), dtype=bool)


def _usable(column: Any) -> NDArray[np.bool_]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        usable = pc.is_finite(column)
    elif pa.types.is_string(column.type):
        usable = pc.invert(pc.match_substring_regex(column, r"^[+-]?inf(inity)?$", ignore_case=True))
    else:
        usable = pc.is_valid(column)
    return np.asarray(pc.fill_null(usable, False), dtype=bool)
