"""Texts that are dates, and dates as numbers: days since 1970-01-01."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone

from .._report.formatting import quoted
from .cells import Ambiguous

__all__ = ["ORDERS", "days", "order_of"]

TIME = (
    r"(?:[T ]\s*(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:\.\d{1,9})?))?\s*(?P<zone>Z|[+-]\d\d:?\d\d)?)?"
)
ORDERS = {  # of year, month and day -> pattern
    "ymd": re.compile(r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})" + TIME),
    "dmy": re.compile(r"(?P<day>\d{1,2})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<year>\d{4})" + TIME),
    "mdy": re.compile(r"(?P<month>\d{1,2})(?P<mark>[-/])(?P<day>\d{1,2})(?P=mark)(?P<year>\d{4})" + TIME),
}
LONGEST = 60  # characters of a date with its time
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def order_of(texts: Iterable[str]) -> str | None:
    """The order of year, month and day in which all texts are dates; None if there is none.

    >>> order_of(["31.12.2024", "01.02.2025"]), order_of(["12/31/2024", "01/02/2025"])
    ('dmy', 'mdy')
    """
    texts = list(texts)
    found = [order for order in ORDERS if texts and all(days(text, order) is not None for text in texts)]
    if len(found) > 1:
        raise Ambiguous(f"dates such as {quoted(texts[0])}, of which the day and the month cannot be told apart")
    return found[0] if found else None


def days(text: str, order: str) -> float | None:
    """Days from 1970-01-01 to a date, with a fraction where there is a time; None if it is no date in this order."""
    cell = None if len(text) > LONGEST else ORDERS[order].fullmatch(text.strip())
    if cell is None:
        return None
    try:
        date = datetime(int(cell["year"]), int(cell["month"]), int(cell["day"]), tzinfo=_zone(cell["zone"]))
    except ValueError:
        return None
    if cell["hour"] is None:
        return (date - EPOCH) / timedelta(days=1)
    hour, minute, second = int(cell["hour"]), int(cell["minute"]), float(cell["second"] or 0)
    if hour > 24 or minute > 59 or second > 60:
        return None
    return (date - EPOCH + timedelta(hours=hour, minutes=minute, seconds=second)) / timedelta(days=1)


def _zone(text: str | None) -> timezone:
    if text in (None, "Z"):
        return UTC
    sign, digits = text[0], text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if sign == "-" else offset)
