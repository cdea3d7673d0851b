"""Texts that are numbers or dates to people: thousands marks, decimal commas, percent signs, orders of day and month.

A column is decided upon as a whole, from its different texts: each of them must be a number in the same format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._report.formatting import quoted
from .tables import TableError

__all__ = [
    "DATES", "NumberFormat", "date_order", "days", "fits_format", "number_format", "numbers_in", "odd_texts",
    "possible_decimals", "refuse_doubtful_points",
]  # fmt: skip

SPACES = " \u00a0\u202f\u2009"  # between thousands, besides point and comma


def _pattern(decimal: str, other: str) -> str:
    """Numbers with a decimal mark; digits after a leading zero are those of a code, unless there are decimals."""
    groups = "|".join(rf"(?:[{mark}]\d{{3}})+" for mark in other + SPACES)
    whole = rf"(?:0|[1-9]\d*|[1-9]\d{{0,2}}(?:{groups}))"
    return (
        rf"^[+\-\x{{2212}}]?[{SPACES}]*(?:{whole}(?:[{decimal}]\d*)?|\d*[{decimal}]\d+)(?:[eE][+-]?\d+)?[{SPACES}]*%?$"
    )


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}
DATE = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T ]\s*(\d{1,2})(:\d\d.*))?")
DATES = {"ymd": "2024-12-31", "dmy": "31.12.2024", "mdy": "12/31/2024"}  # order of year, month and day -> example
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NumberFormat(NamedTuple):
    """How the numbers of a column are written: decimal point or comma, and a percent sign or nothing."""

    decimal: str
    unit: str


def fits_format(texts: Any, decimal: str) -> NDArray[np.bool_]:
    """Which texts of an array are numbers with a decimal mark."""
    import pyarrow.compute as pc

    return np.asarray(pc.match_substring_regex(texts, PATTERNS[decimal]), dtype=bool)


def odd_texts(texts: Any) -> NDArray[np.bool_]:
    """Which texts of an array are no numbers, or not written as most others are."""
    import pyarrow.compute as pc

    usual = max((fits_format(texts, mark) for mark in PATTERNS), key=np.sum)
    signs = np.asarray(pc.ends_with(texts, "%"), dtype=bool)
    return np.asarray(~usual | (signs != (2 * signs.sum() > len(signs))), dtype=bool)


def possible_decimals(texts: Any) -> list[str]:
    """Decimal marks with which all texts of an array are numbers.

    >>> import pyarrow as pa
    >>> [possible_decimals(pa.array(texts)) for texts in (["1,234", "0,5"], ["1,234"], ["a"])]
    [[','], ['.', ','], []]
    """
    return [mark for mark in PATTERNS if len(texts) and fits_format(texts, mark).all()]


def number_format(texts: Any, where: str, doubtful: str = ".") -> NumberFormat | None:
    """The one format in which all texts of an array are numbers; None if there is none.

    `doubtful` is the decimal mark of texts that are numbers with both, such as 1,234; empty if nobody knows: then they
    are refused. Shares are below 1000 %, so a lone mark is their decimal mark.
    """
    import pyarrow.compute as pc

    decimals, percents = possible_decimals(texts), set(pc.unique(pc.ends_with(texts, "%")).to_pylist())
    if not decimals or len(percents) > 1:
        return None
    unit = "%" if percents == {True} else ""
    marks = [mark for mark in ".," if pc.any(pc.match_substring(texts, mark)).as_py()]
    if len(decimals) == 1 or not marks:
        return NumberFormat(decimals[0], unit)
    if len(marks) == 1 and (unit or marks == ["."]):
        return NumberFormat(marks[0], unit)
    if marks == [","] and doubtful:
        return NumberFormat(doubtful, unit)
    raise _doubt(texts, where, marks[-1])


def refuse_doubtful_points(texts: Any, where: str) -> None:
    """Raise if points in all texts of an array may also stand between thousands, as in 1.234."""
    import pyarrow.compute as pc

    if len(possible_decimals(texts)) == 2 and pc.any(pc.match_substring(texts, ".")).as_py():
        raise _doubt(texts, where, ".")


def _doubt(texts: Any, where: str, mark: str) -> TableError:
    text = next(text for text in texts.to_pylist() if mark in text)
    return TableError(
        f"{where} holds {quoted(text)}, which may be {text.replace(mark, '.')} or {text.replace(mark, '')}; write "
        f"numbers of all columns with the same decimal mark, and nothing between thousands."
    )


def numbers_in(texts: Any, how: NumberFormat) -> NDArray[np.float64]:
    """The numbers that texts are in a format; NaN for texts that are none.

    12.5 % is 12.5, so that a column means the same with the sign and without it.

    >>> import pyarrow as pa
    >>> numbers_in(pa.array(["1.234,50", "12", "1,5 %"]), NumberFormat(",", ""))
    array([1234.5,   12. ,    nan])
    """
    import pyarrow.compute as pc

    fits = fits_format(texts, how.decimal) & (np.asarray(pc.ends_with(texts, "%"), dtype=bool) == bool(how.unit))
    digits = pc.replace_substring(texts, "\u2212", "-")
    digits = pc.replace_substring_regex(digits, rf"[^\d{how.decimal}eE+-]", "")
    digits = pc.if_else(fits, pc.replace_substring(digits, how.decimal, "."), None)
    return np.asarray(digits.cast("float64").to_numpy(zero_copy_only=False), dtype=float)


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
