"""What the command line shows: progress on the error stream, results on standard output, what was typed wrongly."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

__all__ = ["UsageError", "progress_bars", "row_bar", "show", "working"]


class UsageError(ValueError):
    """What was typed cannot be meant."""


@contextmanager
def working(text: str) -> Iterator[None]:
    """A turning sign while something takes its time, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress_bars():
    """A function for progress, shown as one bar for each figure on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(name, done, total):
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, visible=done < total)

        yield tell


@contextmanager
def row_bar(afterwards: str) -> Iterator[Callable[[str, int, int], None] | None]:
    """A function for rows done of all rows: a bar with the time left, then a sign for what comes after the rows.

    On a terminal only; otherwise None.
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

        def tell(doing, done, total):
            nonlocal start
            start = time.perf_counter() if done == 0 else start
            state = f"{done:,} of {total:,} rows{_time_left(time.perf_counter() - start, done, total)}"
            bar.update(later, visible=done >= total)
            bar.update(rows, description=doing, completed=done, total=total, visible=done < total, state=state,
                       refresh=True)  # fmt: skip

        yield tell


def _time_left(seconds, done, total):
    """As if the rest went as fast as the rows so far."""
    return f", {timedelta(seconds=math.ceil(seconds / done * (total - done)))} left" if done else ""


def show(value, text: str) -> None:
    """JSON if there is a value, text otherwise; JSON knows no infinity."""
    if value is None:
        print(text)
        return
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False))


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
