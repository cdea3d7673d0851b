"""Texts that are numbers to people: with marks between thousands, decimal commas and percent signs.

A column is decided upon as a whole, from its different texts: each of them must be a number in the same notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .._report.formatting import quoted

__all__ = [
    "BLANKS", "COMMA_OR_WHOLE", "DOUBTFUL_COMMA", "DOUBTFUL_POINT", "Ambiguous", "Notation", "looks_like_number",
    "notation_of", "number", "settled_decimal",
]  # fmt: skip

MARKS = " \u00a0\u202f\u2009"  # between thousands, besides point and comma: spaces
PERCENT = "%"
CODE = re.compile(r"0\d(?!\d*[.,]\d+$)")
BLANKS = " \t\r\n\u00a0"  # around a cell they are no part of it
LONGEST = 60  # characters of a number with all that belongs to it
CELL = re.compile(rf"(?P<sign>[+-])?\s*(?P<body>(?:\d|[.,]\d)[\d.,{MARKS}]*?(?:[eE][+-]?\d+)?)\s*(?P<unit>%)?")
DIGITS = {  # of a number, by its decimal point; groups of three digits have one and the same mark between them
    point: re.compile(
        rf"(?:\d+|[1-9]\d{{0,2}}(?P<mark>[{other}{MARKS}])\d{{3}}(?:(?P=mark)\d{{3}})*)?"
        rf"(?:{re.escape(point)}\d*)?(?:[eE][+-]?\d+)?"
    )
    for point, other in ((".", ","), (",", "."))
}
# Plain numbers, as patterns that pyarrow understands too. Before three digits a mark may be one between thousands.
COMMA_OR_WHOLE = r"^[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?$"
DOUBTFUL_COMMA = r"^[+-]?[1-9]\d{0,2},\d{3}$"
DOUBTFUL_POINT = r"^[+-]?[1-9]\d{0,2}\.\d{3}$"


class Ambiguous(ValueError):
    """Texts that are numbers in more than one way, and which."""


class Notation(NamedTuple):
    """How the numbers of a column are written: decimal point or comma, and a percent sign or nothing."""

    decimal: str
    unit: str


def notation_of(texts: Iterable[str], where_doubtful: str = ".") -> Notation | None:
    """The one notation in which all texts are numbers; None if there is none.

    `where_doubtful` is the decimal point, or comma, of texts that are numbers with both, such as 1,234; empty if nobody
    knows.

    >>> notation_of(["1.234,50", "12"])
    Notation(decimal=',', unit='')
    """
    bodies, units = _bodies_and_units(texts)
    unit = max(units, default="")
    decimals = _decimals(bodies)
    if not bodies or not decimals or len(units) > 1:
        return None
    return Notation(decimals[0] if len(decimals) == 1 else _likely_decimal(bodies, unit, where_doubtful), unit)


def settled_decimal(texts: Iterable[str]) -> str:
    """The decimal point or comma with which alone all texts are numbers; empty if there is none, or both would do.

    >>> settled_decimal(["1,234", "0,5"]), settled_decimal(["1,234"]), settled_decimal(["a"])
    (',', '', '')
    """
    bodies, _ = _bodies_and_units(texts)
    decimals = _decimals(bodies)
    return decimals[0] if bodies and len(decimals) == 1 else ""


def _bodies_and_units(texts: Iterable[str]) -> tuple[set[str], set[str]]:
    """Digits with their marks, and units, of texts; none if one of them is no number."""
    bodies, units = set(), set()
    for text in texts:
        cell = _taken_apart(text)
        if cell is None:
            return set(), set()
        bodies.add(cell[1])
        units.add(cell[2])
    return bodies, units


def _decimals(bodies: set[str]) -> list[str]:
    return [point for point in DIGITS if all(DIGITS[point].fullmatch(body) for body in bodies)]


def _likely_decimal(bodies: set[str], unit: str, where_doubtful: str) -> str:
    """The decimal point where every text allows both, such as 1,234.

    Shares are below 1000 %, so a lone mark is their decimal point. What a lone comma is, the rest of the table tells.
    """
    marks = {mark for mark in ".," for body in bodies if mark in body}
    if not marks:
        return "."
    if unit == PERCENT and len(marks) == 1:
        return marks.pop()
    if marks == {"."}:
        return "."
    if marks == {","} and where_doubtful:
        return where_doubtful
    mark = "," if marks == {","} else "."
    example = next(body for body in sorted(bodies) if mark in body)
    raise Ambiguous(f"{quoted(example)}, which may be {example.replace(mark, '.')} or {example.replace(mark, '')}")


def number(text: str, notation: Notation) -> float | None:
    """The number that a text is in a notation; None if it is none.

    12.5 % is 12.5, so that a column means the same with the sign and without it.
    """
    cell = _taken_apart(text)
    if cell is None or not DIGITS[notation.decimal].fullmatch(cell[1]):
        return None
    if cell[2] != notation.unit:
        return None
    digits = re.sub(rf"[^\d{re.escape(notation.decimal)}eE+-]", "", cell[1])
    return cell[0] * float(digits.replace(notation.decimal, "."))


def looks_like_number(text: str) -> bool:
    """Whether a text is a number in any notation."""
    cell = _taken_apart(text)
    return cell is not None and any(pattern.fullmatch(cell[1]) for pattern in DIGITS.values())


def _taken_apart(text: str) -> tuple[int, str, str] | None:
    """Sign, digits with their marks, and unit of a text; None if it is no number.

    Digits after a leading zero are those of a code, such as a postcode, and not of a number, unless there is one
    decimal point or comma among them.
    """
    cell = None if len(text) > LONGEST else CELL.fullmatch(text.strip().replace("\u2212", "-"))
    if cell is None or CODE.match(cell["body"]):
        return None
    return -1 if cell["sign"] == "-" else 1, cell["body"].strip(), cell["unit"] or ""
