"""What every engine can be asked, wherever its data are, and what its answers hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Report, Threads, cached_property
from .._members import Members, Problem
from .._moments.moments import Moments
from ..subsets import Design
from .determinantal import limit_of

Array = NDArray[np.float64]
Progress = Callable[[str, int | str], Report | None]  # (what is done, how many items) -> called with finished ones


@dataclass(frozen=True)
class Options:
    """How members are solved, whatever the data."""

    fit_intercept: bool = True
    solver: str = "auto"
    n_threads: int = 1
    progress: Progress | None = None

    def sharing(self, task: str, count: int | str) -> Threads:
        """Threads for a piece of work that is reported under a name."""
        return Threads(self.n_threads, self.report(task, count))

    def report(self, task: str, count: int | str) -> Report | None:
        """What to call with the number of finished items."""
        return self.progress(task, count) if self.progress else None

    @cached_property
    def quietly(self) -> Threads:
        """Threads for work that is not reported."""
        return Threads(self.n_threads)


class NeedsRows(ValueError):
    """Something was asked for that needs the training rows, and they are not kept."""


class ChangedRows(NeedsRows):
    """The training rows are there, but are not those of the fit: users changed them in place."""


class Refit(NamedTuple):
    """What is refitted without some rows: members of a design, drawn as for all rows, their weights and the scale."""

    design: Design
    weights: Array
    scale: float

    @property
    def number(self) -> float:
        """How many members; without weights they are infinitely many."""
        return len(self.weights) or math.inf

    def design_for(self, n_rows: int) -> Design:
        """The design for fewer rows: the same columns, and the same share of the rows.

        The limit of determinantal members is that of the rows there are.
        """
        rows = self.design.max_samples
        if isinstance(rows, (int, np.integer)):
            rows = max(1, int(rows) * n_rows // self.design.n_rows)
        process = self.design.process if len(self.weights) else None
        return replace(self.design, n_rows=n_rows, n_given=n_rows, kept_rows=None, max_samples=rows, process=process)


class FoldFit(NamedTuple):
    """An ensemble without some rows, and how far it is off for them; on the host."""

    coef: Array  # (q, p)
    intercept: Array  # (q,)
    residual: Array | None  # (rows, q); None: not computed yet

    @classmethod
    def from_members(cls, members: Members, scale: float) -> FoldFit:
        """Before any row was looked at."""
        arrays = members.scaled(scale, members.coef.dtype)
        coef, intercept = (np.asarray(members.space.get(array), dtype=float) for array in arrays)
        return cls(coef, intercept, None)

    def residuals(self, X: Any, Y: Any) -> Array:
        """Of rows on the host, (rows, q)."""
        return np.asarray(Y - (np.asarray(X @ self.coef.T) + self.intercept), dtype=float)


class Engine(Protocol):
    """Data in one place, asked by an estimator; engines return values and never see the estimator."""

    options: Options  # how members are solved
    why_no_rows: str = ""  # what to tell a user who asks for something that needs the rows; empty where they are kept
    arrays: bool = False  # whether the data came as arrays, whose columns scikit-learn has noted on the estimator

    @property
    def names(self) -> list[str] | None:
        """Names of the columns of data that are not arrays."""
        return None

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
        return None

    def complete(self, design: Design) -> Design:
        """A design that knows the shape of the data and how rows can be drawn here; may read the data."""

    def solve(self, design: Design, start: int, stop: float, weights: Array | None = None) -> Members:
        """Members `start` to `stop` of a completed design; of a determinantal one, infinitely many too."""
        if stop == math.inf:
            return limit_of(self, design)
        return self._solve_drawn(*design.draw(start, int(stop), self.options.quietly.without_blas), weights)

    def _solve_drawn(self, features: Any, samples: Any, weights: Array | None) -> Members:
        """Members with these columns and rows (None: all)."""

    def loaded_if_small(self, many_rows: int) -> Engine:
        """The rows as arrays on the host if they are fewer than `many_rows`, or than the columns; otherwise itself."""
        return self

    def reopen(self) -> Engine | None:
        """The data before anything was read of them, to be kept with a fit; None where they cannot be had again."""
        return self

    def moments(self) -> Moments:
        """Moments of all rows, on the host; may read the data."""

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Moments of random folds of rows; may read the data."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        """Fits without each of some random folds, with their errors for at most about `most` of `n_rows` rows."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> tuple[Members, list[FoldFit]]:
        """The ensemble as the data give it now, and without each of some random folds, with errors of some rows."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")
