"""The message about all problems of a table, with the complete command that would work."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence

from .._report.formatting import escape_control, shortened

MAX_COMMAND_CHARACTERS = 2000
MAX_VALUE_CHARACTERS = 200
LISTED_PROBLEMS = 20
REPLACED = ("missing", "decimal")  # options that are given once: a new value takes their place


def problem_lines(error: BaseException, arguments: list[str]) -> list[str] | None:
    """Lines of a message about the problems of a table; None for another error."""
    problems = sys.modules.get("olsen._tables.problems")
    if problems is None or not isinstance(error, problems.TableProblems):
        return None
    texts = [shortened(str(problem), 1000) for problem in error.problems[:LISTED_PROBLEMS]]
    if len(error.problems) > len(texts):
        texts.append(f"and {len(error.problems) - len(texts)} more.")
    lines = [f"olsen: {texts[0]}"]
    if len(texts) > 1:
        lines = [f"olsen: {len(error.problems)} problems:", *(f"  - {text}" for text in texts)]
    command = complete_command(arguments, error.changes) if error.changes else ""
    if command:
        lines += [f"  {advice(error.changes)}", f"    {command}"]
    return lines


def advice(changes: Iterable[tuple[str, str]]) -> str:
    """Sentence before a command with changed settings."""
    uncertain = {"dates": "the format of dates", "decimal": "the decimal mark"}
    doubts = [what for name, what in uncertain.items() if name in dict(changes)]
    check = f"; check {' and '.join(doubts)} in it" if doubts else ""
    return f"This command works{check}:"


def complete_command(arguments: Sequence[str], changes: Sequence[tuple[str, str]]) -> str:
    """The command with changed settings, as typed in a shell; empty if it could not be typed.

    >>> complete_command(
    ...     ["fit", "t.csv", "--missing", "error"],
    ...     [("drop", "a b"), ("missing", "mean")],
    ... )
    "olsen fit t.csv --drop 'a b' --missing mean"
    """
    if max((len(value) for _, value in changes), default=0) > MAX_VALUE_CHARACTERS:
        return ""
    words = list(arguments)
    for name in REPLACED:
        flag = f"--{name}"
        if name in dict(changes):
            words = [word for word in words if not word.startswith(f"{flag}=")]
            if flag in words:
                position = words.index(flag)
                del words[position : position + 2]
    for name in dict(changes):
        values = [value for setting, value in changes if setting == name]
        if any(value.startswith("-") or not value for value in values):
            words += [f"--{name}={value}" for value in values]
        else:
            words += [f"--{name}", *values]
    command = shlex.join(["olsen", *words])
    if len(command) > MAX_COMMAND_CHARACTERS or escape_control(command) != command:
        return ""
    return command
