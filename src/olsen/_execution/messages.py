"""Messages to users: warnings that point at their own line, and the progress of a fit."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The number of frames of scikit-learn's decorators and threads between the user's code and this
# package varies from call to call, so a fixed stacklevel would name a line of another library.
_PACKAGE_FOLDER = str(Path(__file__).resolve().parent.parent)
_INTERMEDIATE_MODULES = ("sklearn", "joblib", "contextlib", "threading", "concurrent")


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn about the user's line: the innermost one outside of this package and of the libraries
    that call it.
    """
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None:
        top_module = str(frame.f_globals.get("__name__")).split(".")[0]
        if (
            not frame.f_code.co_filename.startswith(_PACKAGE_FOLDER)
            and top_module not in _INTERMEDIATE_MODULES
        ):
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def progress(estimator: Any, task: str, n_items: int | str) -> Callable[[int], None] | None:
    """Return a function that prints the number of finished items with which it is called.

    None for paths of tuning, whose number nobody knows beforehand.
    """
    if task == "paths":
        return None
    start = time.perf_counter()
    name = type(estimator).__name__

    def report(n_finished: int) -> None:
        seconds = time.perf_counter() - start
        print(f"[{name}] {task}: {n_finished} of {n_items}, {seconds:.2f} s", flush=True)

    return report


def progress_of_long_work(
    estimator: Any, task: str, n_items: int, patience: float = 2.0
) -> Callable[[int], None]:
    """Return a function of the number of finished items that shows it once the work has taken longer
    than `patience` seconds.

    It writes one line to the error stream, which disappears at the end, if that is a terminal that
    nobody has redirected; a verbose estimator prints its progress anyway.
    """
    if estimator.verbose and (report := progress(estimator, task, n_items)):
        return report
    start = time.perf_counter()
    name = type(estimator).__name__

    def show(n_finished: int) -> None:
        seconds = time.perf_counter() - start
        stream = sys.stderr
        if seconds > patience and stream.isatty() and stream is sys.__stderr__:
            line = f"[{name}] {task}: {n_finished} of {n_items}, {seconds:.0f} s"
            text = "\r\033[K" if n_finished == n_items else f"\r{line}"
            print(text, end="", file=stream, flush=True)

    return show
