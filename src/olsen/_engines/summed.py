"""Rows of which only moments are known: parts of data in blocks, on a cluster or on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._members import Members, Problem, gram
from .._members.mean import member_sum
from .._moments import Moments
from ..subsets import Design
from .determinantal import limit_of
from .engine import NeedsRows, Options
from .left_out import FoldFit, LeftOutFits, Refit

__all__ = ["Summed"]


@dataclass(frozen=True)
class Summed:
    """Moments of groups of rows."""

    parts: list[Moments]
    options: Options
    single_target: bool = False
    names: list[str] | None = None
    arrays: bool = False
    problem: Problem | None = None
    dtype: Any = np.float64
    why_no_rows: str = "only sums over the rows are there"

    @property
    def n_columns(self) -> int:
        return len(self.parts[0].G)

    def complete(self, design: Design) -> Design:
        n = sum(part.n_rows for part in self.parts)
        return replace(design, n_rows=n, n_columns=self.n_columns, n_given=n)

    def solve(self, design: Design, start: int, stop: float, weights: NDArray[np.float64] | None = None) -> Members:
        if stop == np.inf:
            return limit_of(self, design)
        features, moments = design.draw(start, int(stop))[0], self.sums()
        solution = gram.from_moments(moments, features, self.options.quietly)
        k = len(features)
        coef = member_sum(features, solution.values) / k
        intercept = moments.mean_y - moments.mean_x @ coef
        return Members(coef, intercept, moments.mean_y, features.counts(), np.full(k, 1 / k), "gram", 0)

    def folds(self, count: int, seed: int) -> list[Moments]:
        count = min(count, len(self.parts))
        return [Moments.merge_all(self.parts[f::count]) for f in range(count)]

    def again(self) -> Summed:
        return self

    def sums(self) -> Moments:
        return Moments.merge_all(self.parts)

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        raise NeedsRows(f"errors need the training rows: {self.why_no_rows}.")

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        raise NeedsRows(f"folds need the training rows: {self.why_no_rows}.")
