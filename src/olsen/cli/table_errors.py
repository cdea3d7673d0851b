"""What is said about tables that cannot be used: the error, lists of names in it, and advice that can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sized

from .._report.formatting import LONGEST_NAME, escape_control, quoted

__all__ = ["TableError", "counted", "damaged_parquet", "listed", "one_line", "option", "way_out"]

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
    return f"{otherwise}, or leave the column out with {option('--drop', name)}." if fitting else f"{otherwise}."


def option(flag: str, name: str) -> str:
    r"""An option with the name of a column, as it can be typed in a shell; in words where the name cannot be shown.

    >>> option("--drop", "soil type"), option("--drop", "farmer's")
    ("--drop 'soil type'", '--drop \'farmer\'"\'"\'s\'')
    >>> option("--drop", "a" * 500)
    '--drop and its name'
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        return f"{flag} and its name"
    text = shlex.quote(name) if set(name) & set("'\\") else f"'{name}'"
    return f"{flag}={text}" if name.startswith("-") else f"{flag} {text}"


def listed(names: Iterable[object], most: int = 8) -> str:
    """Names in quotation marks, of many only the first."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quoted(name) for name in names[:most]) + more


def counted(items: Sized | int, noun: str) -> str:
    """A number of things: "1 cell", "2 cells"."""
    n = items if isinstance(items, int) else len(items)
    return f"{n} {noun}{'s' * (n != 1)}"


def damaged_parquet(name: str, error: Exception) -> str:
    """What is said of a file that begins as Parquet and cannot be read as such."""
    return f"{name} is a damaged Parquet file; get it again, or write it anew: {one_line(error)}"


def one_line(error: Exception) -> str:
    """What another library says, made to fit into a line."""
    return escape_control(" ".join(str(error).split())[:LONGEST_FOREIGN])
