"""Names of columns in messages, and what is wrong with a table: each problem with the settings that solve it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .._report.formatting import LONGEST_NAME, escape_control, quoted
from .arrow import pa

SEPARATOR = b"olsen.separator"  # metadata key of a text file's table: the separator of its cells
BLANKS = " \t\r\n\u00a0"  # stripped from the ends of a cell

# a setting, by its name, which is that of an option and of a parameter, and its value
Change = tuple[str, str]


class TableError(ValueError):
    """Error about a table that cannot be used, with the reason in one line."""


@dataclass(frozen=True)
class Problem:
    """A defect of a table.

    Parameters
    ----------
    text : str
        What is wrong, with the user's own cells.
    advice : str
        What to do about it, in words of the command; empty if there is nothing besides `changes`.
    changes : tuple of (str, str)
        Settings with which the table can be used, such as ("dates", "day=%d/%m/%Y").
    """

    text: str
    advice: str = ""
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}." if self.advice else f"{self.text}."


class TableProblems(TableError):
    """Error about all defects of a table that were found, with the settings that solve them.

    Parameters
    ----------
    problems : list of Problem
        The defects.
    changes : list of (str, str)
        Settings with which the table can be used; empty if there are none.
    """

    def __init__(self, problems: list[Problem], changes: list[Change]) -> None:
        self.problems = problems
        self.changes = changes
        super().__init__(" ".join(map(str, problems)))


def all_problems(
    problems_with: Callable[[list[Change]], list[Problem]],
) -> tuple[list[Problem], list[Change]]:
    """All problems of a table, and the settings with which it has none; no settings if none help.

    What a setting brings to light, such as cells that are missing once "n.d." stands for a missing
    value, is solved by further settings. `problems_with` returns the problems that settings leave.
    """
    problems: list[Problem] = []
    changes: list[Change] = []
    while remaining := problems_with(changes):
        texts = {problem.text for problem in problems}
        problems += [problem for problem in remaining if problem.text not in texts]
        proposed = dict.fromkeys(change for problem in remaining for change in problem.changes)
        further = [change for change in proposed if change not in changes]
        if not all(problem.changes for problem in remaining) or not further:
            return problems, []
        changes += further
    return problems, changes


@dataclass(frozen=True)
class Reading:
    """How the columns of a table are to be read.

    Parameters
    ----------
    dates : dict
        Format of dates by column, empty if it is to be detected.
    orders : dict
        Levels of ordered categories by column, empty if the order is implied.
    decimal : {"", ".", ","}
        Decimal mark of numbers that may be read in two ways.
    na : tuple of str
        Strings that stand for missing values.
    fill : bool
        Whether missing values are filled.
    drop : tuple of str
        Columns that are left out.
    """

    dates: dict[str, str] = field(default_factory=dict)
    orders: dict[str, list[str]] = field(default_factory=dict)
    decimal: str = ""
    na: tuple[str, ...] = ()
    fill: bool = False
    drop: tuple[str, ...] = ()


def named(argument: str, names: Iterable[str]) -> tuple[str, str]:
    """Split ``column=value`` into the name of a column and the value, which is empty without "=".

    Names of columns may contain equals signs.

    >>> named("day=%d/%m/%Y", ["day"]), named("a=b", ["a=b"])
    (('day', '%d/%m/%Y'), ('a=b', ''))
    """
    names = list(names)
    prefixes = [name for name in names if argument.startswith(f"{name}=")]
    if argument in names or not prefixes:
        return argument, ""
    name = max(prefixes, key=len)
    return name, argument.removeprefix(f"{name}=")


def option(flag: str, name: str) -> str:
    r"""Option with the name of a column, as typed in a shell; in words if the name is too long or
    not printable.

    >>> option("--drop", "soil type"), option("--drop", "farmer's")
    ("--drop 'soil type'", '--drop \'farmer\'"\'"\'s\'')
    >>> option("--drop", "a" * 500)
    '--drop and its name'
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        return f"{flag} and its name"
    joint = "=" if name.startswith("-") else " "
    return f"{flag}{joint}'" + name.replace("'", "'\"'\"'") + "'"


def listed(names: Iterable[object], limit: int = 8) -> str:
    """List names in quotation marks: the first `limit` names, and the number of the others."""
    names = list(dict.fromkeys(names))
    remainder = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(quoted(name) for name in names[:limit]) + remainder


def one_line(error: Exception) -> str:
    """Shorten the message of another library to one line."""
    return escape_control(" ".join(str(error).split())[:200])


def is_text(kind: Any) -> bool:
    """Whether a column type is a string type, or a dictionary of strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def text_names(schema: Any) -> list[str]:
    """Names of the columns of strings."""
    return [field.name for field in schema if is_text(field.type)]


def separator_of(table: Any) -> str:
    """Separator of the cells of a table from a text file; empty for a table from another file."""
    return str((table.schema.metadata or {}).get(SEPARATOR, b"").decode())
