"""Settings of the solution of members: solver, threads and reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .caching import cached_property
from .threads import Report, Threads

Progress = Callable[
    [str, int | str], Report | None
]  # (task, number of items) -> function of the finished items


@dataclass(frozen=True)
class Options:
    """Settings of the solution of members, wherever the data are."""

    solver: str = "auto"
    n_threads: int = 1
    progress: Progress | None = None

    def threads(self, task: str, count: int | str) -> Threads:
        """Threads for a task whose progress is reported under a name."""
        return Threads(self.n_threads, self.report(task, count))

    def report(self, task: str, count: int | str) -> Report | None:
        """Function to call with the number of finished items; None without progress reports."""
        return self.progress(task, count) if self.progress else None

    @cached_property
    def quietly(self) -> Threads:
        """Threads for work that is not reported."""
        return Threads(self.n_threads)
