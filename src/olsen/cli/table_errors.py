"""What is said about tables that cannot be used: the error, lists of names in it, and advice that can be typed."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from .shown_text import quoted, visible

__all__ = ["TableError", "counted", "listed", "one_line", "way_out"]

LONGEST_FOREIGN = 200  # characters of an error of another library


class TableError(ValueError):
    """A table that cannot be used, and why, in one line."""


def way_out(name: str, fitting: bool, otherwise: str) -> str:
    """What to do about a column: in a fit it can be left out, in a prediction the model needs it.

    >>> way_out("a", fitting=True, otherwise="correct it")
    "correct it, or leave the column out with --drop 'a'."
    >>> way_out("a", fitting=False, otherwise="correct it")
    'correct it.'
    """
    return f"{otherwise}, or leave the column out with --drop {quoted(name)}." if fitting else f"{otherwise}."


def listed(names: Iterable[object], most: int = 8) -> str:
    """Names in quotation marks, of many only the first."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quoted(name) for name in names[:most]) + more


def counted(items: Sized | int, noun: str) -> str:
    """A number of things: "1 cell", "2 cells"."""
    n = items if isinstance(items, int) else len(items)
    return f"{n} {noun}{'s' * (n != 1)}"


def one_line(error: Exception) -> str:
    """What another library says, made to fit into a line."""
    return visible(" ".join(str(error).split())[:LONGEST_FOREIGN])
