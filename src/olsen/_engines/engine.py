"""What every engine can be asked, wherever its data are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Report, Sharing
from .._members import Members, Problem
from .._moments import Moments
from ..subsets import Design
from .left_out import FoldFit, LeftOutFits, Refit

__all__ = ["Engine", "NeedsRows", "Options", "nobody"]

Listener = Callable[[str, int | str], Report | None]  # (what is done, how many items) -> who hears of finished ones


def nobody(_task: str, _count: int | str) -> None:
    """Hears of nothing."""
    return None


@dataclass(frozen=True)
class Options:
    """How members are solved, whatever the data."""

    fit_intercept: bool = True
    solver: str = "auto"
    rcond: float | None = None
    tol: float | None = None
    n_threads: int = 1
    listen: Listener = nobody

    def sharing(self, task: str, count: int | str) -> Sharing:
        """Threads for a piece of work that is reported under a name."""
        return Sharing(self.n_threads, self.listen(task, count))

    @cached_property
    def quietly(self) -> Sharing:
        """Threads for work that nobody hears of."""
        return Sharing(self.n_threads)


class Engine(Protocol):
    """Data in one place, asked by an estimator; engines return values and never see the estimator."""

    @property
    def options(self) -> Options:
        """How members are solved."""

    @property
    def why_no_rows(self) -> str:
        """What to tell a user who asks for something that needs the rows; empty where they are kept."""

    @property
    def arrays(self) -> bool:
        """Whether the data came as arrays, whose columns scikit-learn has noted on the estimator."""

    @property
    def names(self) -> list[str] | None:
        """Names of the columns of data that are not arrays."""

    @property
    def n_columns(self) -> int:
        """Columns of X."""

    @property
    def single_target(self) -> bool:
        """Whether y was a vector."""

    @property
    def dtype(self) -> Any:
        """Type of coefficients and predictions."""

    @property
    def problem(self) -> Problem | None:
        """The rows, where they are in memory."""

    def complete(self, design: Design) -> Design:
        """A design that knows the shape of the data and how rows can be drawn here; may read the data."""

    def solve(self, design: Design, start: int, stop: float, weights: NDArray[np.float64] | None = None) -> Members:
        """Members `start` to `stop` of a completed design; of a determinantal one, infinitely many too."""

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Moments of random folds of rows; may read the data."""

    def again(self) -> Engine | None:
        """The data before anything was read of them, to be kept with a fit; None where they cannot be had again."""

    def sums(self) -> Moments:
        """Moments of all rows, on the host; reads the data."""

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        """Fits without each of some random folds, with their errors for at most about `most` of `n_rows` rows."""

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        """The ensemble without each of some random folds, with its errors for at most about `most` of the rows."""


class NeedsRows(ValueError):
    """Something was asked for that needs the training rows, and they are not kept."""
