"""What every engine can be asked, wherever its data are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.blas_threads import one_blas_thread
from .._execution.threads import Report, Sharing
from .._members import Members, Problem
from .._moments import Moments, centred_rows, weighted_mean
from .._trust import constant_columns
from ..subsets import Design, Determinantal
from .left_out import LeftOutFits, Refit

__all__ = ["Engine", "NeedsRows", "Options", "nobody", "process_of"]

FEW = 500  # columns or rows whose eigenvectors one thread finds in the time that others would spin

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
    as_tasks: bool = False  # members are tasks of the cluster that joblib's backend stands for
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

    def solve(self, design: Design, start: int, stop: int, weights: NDArray[np.float64] | None = None) -> Members:
        """Members `start` to `stop` of a completed design."""

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Moments of random folds of rows; may read the data."""

    def again(self) -> Engine | None:
        """The data before anything was read of them, to be kept with a fit; None where they cannot be had again."""

    def sums(self) -> Moments:
        """Moments of all rows, on the host; reads the data."""

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        """The ensemble without each of some random folds, with its errors for at most about `most` of the rows."""


def process_of(engine: Engine, design: Design) -> Determinantal:
    """What determinantal members are drawn from: products of the columns, or the rows where those are fewer.

    Threads of BLAS would go on spinning for milliseconds and take the cores from those that draw.
    """
    with one_blas_thread() if min(design.n_rows, design.n_columns) <= FEW else nullcontext():
        return _process_of(engine, design)


def _process_of(engine: Engine, design: Design) -> Determinantal:
    if engine.problem is None or not engine.problem.space.on_host:
        return Determinantal.from_gram(engine.sums().G, design.expected_size)
    problem, _ = engine.problem.in_units
    if problem.shape[1] <= problem.shape[0]:
        return Determinantal.from_gram(problem.moments.G, design.expected_size)
    return Determinantal.from_rows(_rows_about_means(problem), design.expected_size)


def _rows_about_means(problem: Problem) -> NDArray[np.float64]:
    """All rows, dense, times the roots of their weights; zeros in constant columns."""
    X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    if not problem.fit_intercept:
        return np.asarray(X if problem.weight is None else X * np.sqrt(problem.weight)[:, None], dtype=np.float64)
    mean, weight = weighted_mean(problem.X, problem.weight), problem.weight
    Z, _ = centred_rows(X, problem.Y, weight, mean, np.zeros(problem.Y.shape[1]), np.empty(X.shape))
    total = float(len(Z) if weight is None else weight.sum())
    Z[:, constant_columns(np.einsum("lj,lj->j", Z, Z), mean, total)] = 0.0
    return Z


class NeedsRows(ValueError):
    """Something was asked for that needs the training rows, and they are not kept."""
