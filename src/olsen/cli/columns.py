"""Cells of a table as numbers, days or texts, as scikit-learn's encoders and imputers take them; missing cells.

Texts that are numbers to people (thousands marks, decimal commas) and dates (orders of day and month) are detected per
column from its distinct values, which must all follow one format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from .._execution import messages
from .._report.formatting import counted, quoted, shortened
from .tables import BLANKS, TableError, is_text, listed, option, separator_of

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Stage = Literal["fit", "blocks", "predict"]  # what a table is read for: a fit in memory or in blocks, or a prediction
FIRST_ROW = b"olsen.first_row"  # among the metadata of a part of a larger table: the number of its first row
MICROSECONDS_A_DAY = 86_400_000_000
SPACES = " \u00a0\u202f\u2009"  # between thousands, besides point and comma


def _pattern(decimal: str, other: str) -> str:
    """Numbers with a decimal mark; digits after a leading zero are those of a code, unless there are decimals."""
    groups = "|".join(rf"(?:[{mark}]\d{{3}})+" for mark in other + SPACES)
    whole = rf"(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:{groups}))"
    return rf"^[+-]?(?:{whole}(?:[{decimal}]\d*)?|\d*[{decimal}]\d+)(?:[eE][+-]?\d+)?$"


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}
DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T ]\s*(\d{1,2})(:\d\d.*))?")
DATES = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}  # order of year, month and day -> example
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers, dates as days since 1970-01-01, or texts of some columns; missing cells are NaN.

    Parameters
    ----------
    kind : {"number", "date", "text"}, default="number"
        What the columns hold.
    decimal : {".", ","}, default=None
        Decimal mark of numbers that are texts in the table; None: the columns hold plain numbers.
    order : {"ymd", "dmy", "mdy"}, default="ymd"
        Order of year, month and day in dates that are texts.
    """

    __module__ = "olsen"  # model files name no private module

    def __init__(
        self, kind: Literal["number", "date", "text"] = "number", decimal: str | None = None, order: str = "ymd"
    ) -> None:
        self.kind = kind
        self.decimal = decimal
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
        import narwhals as nw

        if not isinstance(X, pa.Table):
            frame = nw.from_native(X, eager_only=True)
            X = frame.to_arrow().select(frame.columns)
        before, separator = rows_before(X), separator_of(X)
        return np.column_stack([
            _texts(column) if self.kind == "text"
            else self._days(column, name, before) if self.kind == "date"
            else self._numbers(column, name, before, separator)
            for name, column in zip(X.column_names, X.columns, strict=True)
        ])  # fmt: skip

    def _days(self, column: Any, name: str, first_row: int) -> Array:
        if is_text(column.type):
            texts, codes = distinct_texts(column)
            values = np.array([days(text, self.order) for text in texts.to_pylist()], dtype=float)
            return _all_read(values, texts, codes, name, f"dates such as {DATES[self.order]} are expected", first_row)
        if not is_temporal(column.type):
            raise TableError(f"column {quoted(name)} is of type {shortened(column.type)}, but dates are expected.")
        moments = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False).cast("int64")
        return np.asarray(moments.cast("float64", safe=False).to_numpy(), dtype=float) / MICROSECONDS_A_DAY

    def _numbers(self, column: Any, name: str, first_row: int, separator: str) -> Array:
        plain = plain_numbers(column)
        if plain is not None:
            if self.decimal == "," and separator not in ("", ","):
                refuse_doubtful_points(column.drop_null(), f"column {quoted(name)}")
            return plain
        if not is_text(column.type):
            kind = shortened(column.type)
            raise TableError(f"column {quoted(name)} is of type {kind}, not numbers; turn it into numbers.")
        texts, codes = distinct_texts(column)
        how = self._format(texts, name)
        expected = f"numbers with {quoted(how)} are expected"
        return _all_read(numbers_in(texts, how), texts, codes, name, expected, first_row)

    def _format(self, texts: Any, name: str) -> str:
        """The decimal mark that was learned; for plain numbers, the one that the texts have, if there is no doubt."""
        if self.decimal is not None:
            return self.decimal
        how = decimal_mark(texts, f"column {quoted(name)}")
        if how is None:
            raise TableError(
                f"column {quoted(name)} holds text ({listed(texts.to_pylist(), 3)}), but the model learned numbers "
                f"there; correct those cells."
            )
        messages.warn(f"numbers of column {quoted(name)} are written unlike those in training: {example(texts, how)}.")
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


def rows_before(table: Any) -> int:
    """Number of the rows before a part of a larger table."""
    return int((table.schema.metadata or {}).get(FIRST_ROW, 0))


def _all_read(values: Array, texts: Any, codes: Any, name: str, expected: str, first_row: int) -> Array:
    """The value of each row, NaN where it is missing; raise for the first text that has none."""
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isin(codes, np.flatnonzero(np.isnan(values))))[0])
        raise TableError(
            f"column {quoted(name)} holds {quoted(texts[int(codes[row])].as_py())} in row {first_row + row + 1}, where "
            f"{expected}; correct that cell."
        )
    return np.asarray(np.append(values, np.nan)[codes], dtype=float)


# Texts


def distinct_texts(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """The different texts of a column without blanks around them, and for each row which one it has, or -1.

    A column that is stored as a dictionary is not written out: a long text may stand in a million rows.
    """

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

    try:
        return column.cast("string")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        cells = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(cells, "string")])


def texts_of(table: Any, names: Iterable[str]) -> dict[str, list[str]]:
    """The cells of some columns as text, empty where they are missing: what identifies the rows of a table."""
    return {name: [text or "" for text in as_text(table.column(name)).to_pylist()] for name in names}


def _texts(column: Any) -> NDArray[Any]:
    texts, codes = distinct_texts(column)
    return np.array([*texts.to_pylist(), np.nan], dtype=object)[codes]


# Numbers


def plain_numbers(column: Any) -> Array | None:
    """A column as numbers, NaN where missing; None if its cells are not numbers, or texts with more than a point.

    Whole numbers above 2^53 are rounded.
    """

    try:
        if pa.types.is_dictionary(column.type):
            texts, codes = distinct_texts(column)
            return np.append(np.asarray(texts.cast("float64"), dtype=float), np.nan)[codes]
        if pa.types.is_decimal(column.type):
            column = column.cast("string")  # whose numbers are rounded correctly; a direct cast may miss the last digit
        return np.asarray(column.cast("float64", safe=False).to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def is_plain(table: Any, name: str, decimals: str, where: str, notes: list[str]) -> bool:
    """Whether a column of a training table holds plain numbers, with a note where they may be identifiers.

    Texts are plain numbers only in a text file; with decimal commas in other columns, points must be without doubt.
    """
    column, about = table.column(name), ""
    texts, whole, head = is_text(column.type), pa.types.is_integer(column.type), column.slice(0, 1000)
    values = plain_numbers(column) if separator_of(table) or not texts else None
    if values is None:
        if not texts and not is_temporal(column.type):
            drop = f", or leave it out with {option('--drop', name)}" if where.startswith("column") else ""
            raise TableError(f"{where} is of type {shortened(column.type)}, not numbers; turn it into numbers{drop}.")
        return False
    if texts:
        if "," in decimals:
            refuse_doubtful_points(column.drop_null(), where)
        whole = pc.all(pc.match_substring_regex(head, r"^[+-]?\d+$")).as_py()
        row = pc.index(pc.match_substring_regex(head, r"^0\d+$"), True).as_py() if whole else -1
        about = f"numbers with leading zeros: {quoted(head[row])} is {values[row]:g}" if row >= 0 else ""
    if whole and np.nanmax(np.abs(values), initial=0) > 2**53:
        about = "whole numbers above 2^53, rounded to 16 digits"
    elif whole and not about and np.ptp(values) == len(values) - 1 and (np.diff(np.sort(values)) == 1).all():
        about = f"the whole numbers from {values.min():g} to {values.max():g}, each once"
    if about:
        notes.append(f"{where} holds {about}; if they are identifiers, leave it out with {option('--id', name)}.")
    return True


def is_temporal(kind: Any) -> bool:
    """Whether a column of this type holds dates, with or without times."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def fits_format(texts: Any, decimal: str) -> Mask:
    """Which texts of an array are numbers with a decimal mark."""

    return np.asarray(pc.match_substring_regex(texts, PATTERNS[decimal]), dtype=bool)


def odd_texts(texts: Any) -> Mask:
    """Which texts of an array are no numbers, or not written as most others are."""
    return np.asarray(~max((fits_format(texts, mark) for mark in PATTERNS), key=np.sum), dtype=bool)


def possible_decimals(texts: Any) -> list[str]:
    """Decimal marks with which all texts of an array are numbers.

    >>> import pyarrow as pa
    >>> [possible_decimals(pa.array(texts)) for texts in (["1,234", "0,5"], ["1,234"], ["a"])]
    [[','], ['.', ','], []]
    """
    return [mark for mark in PATTERNS if len(texts) and fits_format(texts, mark).all()]


def settled_decimals(table: Any) -> str:
    """Decimal marks of the columns that leave no doubt; where cells are separated by commas, numbers have points."""
    if separator_of(table) in ("", ","):
        return "."
    found = [possible_decimals(column.slice(0, 1000).drop_null()) for column in table.columns]
    return "".join({marks[0] for marks in found if len(marks) == 1})


def decimal_mark(texts: Any, where: str, settled: str = "") -> str | None:
    """The one decimal mark with which all texts of an array are numbers; None if there is none.

    `settled` has those of other columns: if there is one, texts that are numbers with both, such as 1,234, have it,
    otherwise they are refused.
    """

    decimals = possible_decimals(texts)
    if len(decimals) < 2:
        return decimals[0] if decimals else None
    marks = [mark for mark in ".," if pc.any(pc.match_substring(texts, mark)).as_py()]
    if marks in ([], ["."]):
        return "."
    if marks == [","] and len(settled) == 1:
        return settled
    raise _doubt(texts, where, marks[-1])


def refuse_doubtful_points(texts: Any, where: str) -> None:
    """Raise if points in all texts of an array may also stand between thousands, as in 1.234."""

    if len(possible_decimals(texts)) == 2 and pc.any(pc.match_substring(texts, ".")).as_py():
        raise _doubt(texts, where, ".")


def _doubt(texts: Any, where: str, mark: str) -> TableError:
    text = next(text for text in texts.to_pylist() if mark in text)
    return TableError(
        f"{where} holds {quoted(text)}, which may be {text.replace(mark, '.')} or {text.replace(mark, '')}; write "
        f"numbers of all columns with the same decimal mark, and nothing between thousands."
    )


def numbers_in(texts: Any, decimal: str) -> Array:
    """The numbers that texts are with a decimal mark; NaN for texts that are none.

    >>> import pyarrow as pa
    >>> numbers_in(pa.array(["1.234,50", "12", "1,5 %"]), ",")
    array([1234.5,   12. ,    nan])
    """

    digits = pc.replace_substring_regex(texts, rf"[^\d{decimal}eE+-]", "")
    digits = pc.if_else(fits_format(texts, decimal), pc.replace_substring(digits, decimal, "."), None)
    return np.asarray(digits.cast("float64").to_numpy(zero_copy_only=False), dtype=float)


def example(texts: Any, decimal: str) -> str:
    """How texts are read as numbers, by the longest of them."""
    longest = max(texts.to_pylist(), key=len)
    return f"{quoted(longest)} is {numbers_in(texts, decimal)[texts.index(longest).as_py()]:g}"


# Dates


def date_order(texts: Iterable[str], where: str) -> str | None:
    """The order of year, month and day in which all texts are dates; None if there is none.

    >>> date_order(["31.12.2024", "01.02.2025"], "here"), date_order(["12/31/2024", "01/02/2025"], "here")
    ('dmy', 'mdy')
    """
    texts = list(texts)
    found = [order for order in DATES if texts and all(days(text, order) is not None for text in texts)]
    if len(found) > 1:
        raise TableError(
            f"{where} holds dates such as {quoted(texts[0])}, of which the day and the month cannot be told apart; "
            f"write them as 2024-12-31."
        )
    return found[0] if found else None


def days(text: str, order: str) -> float | None:
    """Days from 1970-01-01 to a date, with a fraction where there is a time; None if it is no date in this order."""
    cell = DATE.fullmatch(text.strip())
    if cell is None or (order == "mdy" and cell[2] == "."):
        return None
    parts = dict(zip(order, cell.group(1, 3, 4), strict=True))
    time = "" if cell[5] is None else f"T{cell[5]:0>2}{cell[6].replace(' ', '')}"
    try:
        moment = datetime.fromisoformat(f"{parts['y']}-{parts['m']:0>2}-{parts['d']:0>2}{time}")
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) / timedelta(days=1)


# Missing cells


def refuse_missing(
    table: Any, names: Iterable[str], *, filled: Iterable[str] = (), target: str | None = None, stage: Stage = "fit"
) -> dict[str, int]:
    """Raise if cells are missing or not finite, with their number and the first of their rows.

    In columns that are `filled` only infinite cells are refused; the missing ones are counted and returned.
    """
    counts, infinite, first, gaps = Counter[str](), 0, table.num_rows, dict[str, int]()
    for name in names:
        missing, endless = unusable(table.column(name))
        bad = endless if name in filled else missing | endless
        if stage == "fit" and name in filled and missing.all():
            raise TableError(f"column {quoted(name)} is empty; leave it out with {option('--drop', name)}.")
        if name in filled and missing.any():
            gaps[name] = int(missing.sum())
        if bad.any():
            counts[name] = int(bad.sum())
            infinite += int(endless.sum())
            first = min(first, int(np.argmax(bad)))
    if not counts:
        return gaps
    named = ", ".join(f"{quoted(name)} ({count})" for name, count in counts.most_common(8))
    more = f" and {len(counts) - 8} more" if len(counts) > 8 else ""
    what = {0: "missing", counts.total(): "infinite"}.get(infinite, f"missing or not finite ({infinite} infinite)")
    ways = ["Correct them", "remove these rows"]  # a target cannot be left out, nor can a column that a model needs
    if stage == "fit":
        ways[1] = "leave these rows out with --missing drop"
    if stage == "fit" and not infinite and target not in counts:
        ways.append("fill them with --missing mean")
    if stage != "predict" and set(counts) != {target}:
        ways.append(f"leave columns{' other than the target' * (target in counts)} out with --drop")
    raise TableError(
        f"{counted(counts.total(), 'cell')} {what}, in {counted(len(counts), 'column')}: {named}{more}, the first in "
        f"row {rows_before(table) + first + 1}. {', '.join(ways[:-1])}, or {ways[-1]}."
    )


def unusable(column: Any) -> tuple[Mask, Mask]:
    """Where a column has no value, and where it is infinite."""

    values = plain_numbers(column)
    if values is not None:
        return np.isnan(values), np.isinf(values)
    return np.asarray(pc.is_null(column), dtype=bool), np.zeros(len(column), dtype=bool)
