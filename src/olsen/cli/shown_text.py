"""Texts of other people, as they are shown: control characters visible, long ones shortened.

Names of columns, cells and files may hold anything: sequences that a terminal obeys, characters that turn the direction
of writing, line ends, a megabyte of letters. Whatever is printed, or goes into a report, passes through here; what is
written as data stays as it is.
"""

from __future__ import annotations

import re

__all__ = ["json_visible", "quoted", "shortened", "visible"]

LONGEST_NAME = 60
CODE_POINTS_OF_TWO_UNITS = 0x10000  # in UTF-16, whose units JSON counts in
SURROGATES = 0xD800, 0xDC00
# Sieve for the common case: a text without any of these and without letters beyond ASCII needs no further look.
PLAIN = re.compile(r"[ -~]*")


def visible(text: object) -> str:
    r"""A text with every character that is not printable as its escape, the way Python writes it.

    >>> visible("a\x1b[31m\u202eb")
    'a\\x1b[31m\\u202eb'
    """
    text = str(text)
    if PLAIN.fullmatch(text):
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: object, longest: int = LONGEST_NAME) -> str:
    """A text as it is shown, in at most `longest` characters: of longer ones the middle is left out.

    >>> shortened("a" * 30 + "b" * 30, 11)
    'aaaaa…bbbbb'
    """
    return _cut(visible(_cut(str(text), longest)), longest)  # a megabyte is cut before it is looked at


def quoted(text: object, longest: int = LONGEST_NAME) -> str:
    """A text for a message, in quotation marks: as Python writes it, the middle of a long one left out."""
    return repr(_cut(str(text), longest))


def _cut(text: str, longest: int) -> str:
    tail = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def json_visible(text: str) -> str:
    r"""JSON with what is not printable as its escape, so that it is the same JSON and harmless on a terminal.

    >>> json_visible('{"\x9b2J": 1}')
    '{"\\u009b2J": 1}'
    """
    return text if PLAIN.fullmatch(text) else "".join(c if c.isprintable() or c == "\n" else _units(c) for c in text)


def _units(character: str) -> str:
    code = ord(character)
    if code < CODE_POINTS_OF_TWO_UNITS:
        return f"\\u{code:04x}"
    high, low = divmod(code - CODE_POINTS_OF_TWO_UNITS, 0x400)
    return f"\\u{SURROGATES[0] + high:04x}\\u{SURROGATES[1] + low:04x}"
