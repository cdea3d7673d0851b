"""Terminal output of the command: progress and notes on the error stream, results on standard
output; usage errors.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._report.formatting import escape_control, quoted

Tell = Callable[[str, float, float], None]  # (name of the task, amount done, total amount)

# advice of a warning of the library to Python users, and the same advice to users of the command
PYTHON_ADVICE = "Use cv=GroupKFold() with groups that keep repeats together"
COMMAND_ADVICE = "Keep repeats together with --groups COLUMN"


class UsageError(ValueError):
    """A mistake in the command's arguments."""


def note(text: str) -> None:
    """Print a note for the user on the error stream."""
    print(f"olsen: note: {escape_control(text)}", file=sys.stderr)


@contextmanager
def warnings_as_notes(notes: list[str], target: str = "y") -> Iterator[None]:
    """Collect warnings as notes instead of printing them, each once.

    Notes name options of the command where the library names parameters, and the target by its
    name.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(
        str(w.message) for w in caught if issubclass(w.category, UserWarning)
    ):
        text = text.replace(PYTHON_ADVICE, COMMAND_ADVICE)
        notes.append(
            f"the target {quoted(target)} {text.removeprefix('y ')}"
            if text.startswith("y ")
            else text
        )


@contextmanager
def progress(text: str = "", unit: str = "", visible: bool = True) -> Iterator[Tell]:
    """Provide a function that updates progress bars, one for each task, with the remaining time;
    silent in a pipe.

    Work of unknown length has a `text` instead, which is displayed with the elapsed time.
    """
    if not visible or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    counts = TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {unit}")
    columns = [TimeElapsedColumn()] if text else [counts, TimeRemainingColumn()]
    name = TextColumn("{task.description}", markup=False)
    with Progress(
        name, BarColumn(20), *columns, console=Console(stderr=True), transient=True
    ) as bar:
        if text:
            bar.add_task(escape_control(text), total=None)
        tasks: dict[str, Any] = {}

        def show_progress(doing: str, done: float, total: float) -> None:
            if doing not in tasks:
                tasks[doing] = bar.add_task(escape_control(doing), total=total)
            bar.update(tasks[doing], completed=done, refresh=True)

        yield show_progress


def show(value: object, text: str) -> None:
    """Print a value as JSON, or the text if the value is None; JSON has no infinity, so it becomes
    a string.
    """
    if value is None:
        print(text)
        return
    finite = json.loads(
        json.dumps(value), parse_constant=lambda name: None if name == "NaN" else name
    )
    print(json.dumps(finite, indent=2))
