"""Interface of the engines, which solve members wherever the data are, and the types of its
arguments and results.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .._data.moments import Moments
from .._data.rows import RowData
from .._execution.options import Options
from .._members import Members
from .._members.limit import drawable, limit_of
from ..subsets import Design

Array = NDArray[np.float64]


class NeedsRows(ValueError):
    """Error of a request that needs the training rows when the rows are not kept."""


class ChangedRows(NeedsRows):
    """Error of a request that needs the training rows when the user has changed the arrays in place
    since the fit.
    """


class Refit(NamedTuple):
    """Ensemble to refit on fewer rows: the design, the weights of its members and the scale."""

    design: Design
    weights: Array
    scale: float

    @property
    def number(self) -> float:
        """Number of members; infinite without weights."""
        return len(self.weights) or math.inf

    def design_for(self, n_rows: int) -> Design:
        """Design for fewer rows: the same columns and the same fraction of the rows.

        The limit of infinitely many determinantal members is computed anew from the remaining rows.
        """
        max_samples = self.design.max_samples
        if isinstance(max_samples, (int, np.integer)):
            max_samples = max(1, int(max_samples) * n_rows // self.design.n_rows)
        process = self.design.process if len(self.weights) else None
        return replace(
            self.design,
            n_rows=n_rows,
            n_given=n_rows,
            kept_rows=None,
            max_samples=max_samples,
            process=process,
        )


class FoldFit(NamedTuple):
    """Ensemble fitted without a fold, and its held-out errors on the fold; on the host."""

    coef: Array  # (q, p)
    intercept: Array  # (q,)
    residual: Array | None  # (rows, q); None: not computed yet

    @classmethod
    def from_members(cls, members: Members, scale: float) -> FoldFit:
        """Fit of solved members, without residuals."""
        arrays = members.scaled(scale, members.coef.dtype)
        coef, intercept = (np.asarray(members.space.get(array), dtype=float) for array in arrays)
        return cls(coef, intercept, None)

    def residuals(self, X: Any, Y: Any) -> Array:
        """Residuals of rows on the host, (rows, q)."""
        return np.asarray(Y - (np.asarray(X @ self.coef.T) + self.intercept), dtype=float)


class Engine(Protocol):
    """Interface to the training data, in whatever storage; an engine never sees the estimator that
    calls it.
    """

    options: Options
    why_no_rows: str = (
        ""  # reason and way out, for requests that need the rows; empty if the rows are kept
    )
    # whether the data came as arrays, whose columns scikit-learn has recorded on the estimator
    arrays: bool = False

    @property
    def names(self) -> list[str] | None:
        """Column names of data that are not arrays."""
        return None

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""

    @property
    def single_target(self) -> bool:
        """Whether y was a vector."""

    @property
    def dtype(self) -> Any:
        """Type of coefficients and predictions."""

    @property
    def problem(self) -> RowData | None:
        """Least-squares problem of the rows if the rows are in memory, otherwise None."""
        return None

    def complete(self, design: Design) -> Design:
        """Add the shape of the data and the drawable rows to a design; may read the data."""

    def solve(
        self, design: Design, start: int, stop: float, weights: Array | None = None
    ) -> Members:
        """Solve members `start` to `stop` of a completed design; `stop` may be infinite for
        determinantal sampling.
        """
        if stop == math.inf:
            return limit_of(self.problem, self.moments, design, self.options.quietly)
        features, samples = design.draw(start, int(stop), self.options.quietly.without_blas)
        return self._solve_drawn(features, samples, weights)

    def drawable(self, design: Design) -> Design:
        """Complete a design for drawing: its determinantal process is computed if the limit did not
        need it.
        """
        return drawable(self.problem, self.moments, design)

    def _solve_drawn(self, features: Any, samples: Any, weights: Array | None) -> Members:
        """Solve members with the columns `features` and the rows `samples` (None: all rows)."""

    def loaded_if_small(self, many_rows: int) -> Engine:
        """Engine with the rows as arrays on the host if there are fewer than `many_rows` or than
        columns; or self.
        """
        return self

    def reopen(self) -> Engine | None:
        """Engine of the unread data, to be kept with a fit; None if the data cannot be read again."""
        return self

    def moments(self) -> Moments:
        """Moments of all rows, on the host; may read the data."""

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Moments of random folds of rows; may read the data."""
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def errors_of(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        """Add held-out errors to the fits without each random fold, of at most about `max_rows` of
        `n_rows` rows.
        """
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")

    def left_out(
        self, refit: Refit, count: int, seed: int, max_rows: int
    ) -> tuple[Members, list[FoldFit]]:
        """Refit the ensemble on all rows and without each of `count` random folds.

        The fits have held-out errors of about `max_rows` rows at most if the data are read in
        blocks, otherwise of all.
        """
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")
