"""What the command line shows: progress on the error stream, results on standard output, and the usage error."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from .._report.formatting import escape_control

__all__ = ["Tell", "UsageError", "note", "progress_bars", "reading", "row_bar", "show", "working"]

Tell = Callable[[str, int, int], None]  # (what is being done, how much of it is done, how much there is)
BYTES_WORTH_A_BAR = 1 << 23  # a tenth of a second


class UsageError(ValueError):
    """A mistake in the command's arguments."""


def note(text: str) -> None:
    """Say something that a user should know beside the result, on the error stream."""
    print(f"olsen: note: {escape_control(text)}", file=sys.stderr)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show a text and the time that has passed while the block runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(escape_control(text), total=None)
        yield


@contextmanager
def reading(name: str, position: Callable[[], int], total: int) -> Iterator[None]:
    """Show how much of a file is read and the time left, while the block reads it; on a terminal only.

    `position` is asked ten times a second, in a thread. Files that are read in a moment are not worth a bar.
    """
    if total < BYTES_WORTH_A_BAR or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    start = time.perf_counter()

    class Polled(Progress):
        def get_renderables(self) -> Any:
            done = position()
            state = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB{_time_left(time.perf_counter() - start, done, total)}"
            for task in self.task_ids:
                self.update(task, completed=done, state=state)
            return super().get_renderables()

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[state]}"),
    )
    with Polled(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(escape_control(f"reading {name}"), total=total, state="")
        yield


@contextmanager
def progress_bars() -> Iterator[Tell | None]:
    """A function that shows progress as one bar for each figure, on a terminal; otherwise None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, visible=done < total)

        yield tell


@contextmanager
def row_bar(afterwards: str) -> Iterator[Tell | None]:
    """A function that shows how many rows are done: a bar with the time left, then one for the work that follows.

    On a terminal only; otherwise None. `afterwards` describes the work that follows the rows.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        rows = bar.add_task("", visible=False, state="")
        later = bar.add_task(afterwards, total=None, visible=False, state="")
        start = time.perf_counter()

        def tell(doing: str, done: int, total: int) -> None:
            nonlocal start
            start = time.perf_counter() if done == 0 else start
            state = f"{done:,} of {total:,} rows{_time_left(time.perf_counter() - start, done, total)}"
            bar.update(later, visible=done >= total)
            bar.update(rows, description=doing, completed=done, total=total, visible=done < total, state=state,
                       refresh=True)  # fmt: skip

        yield tell


def _time_left(seconds: float, done: int, total: int) -> str:
    """Time for the remaining rows at the speed so far, as text; empty before the first row."""
    return f", {timedelta(seconds=math.ceil(seconds / done * (total - done)))} left" if done else ""


def show(value: object, text: str) -> None:
    """Print a value as JSON, or the text if the value is None; JSON has no infinity, so it becomes a string."""
    if value is None:
        print(text)
        return
    print(json.dumps(_finite(value), indent=2))


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
