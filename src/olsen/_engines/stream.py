"""Rows that came in batches and are gone: a triangular factor of all of them answers for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _members
from .._members import Members, Problem
from .._moments import DistinctRows, Moments, Triangle
from .._trust import refuse_extremes
from ..subsets import Design
from .determinantal import limit_of
from .engine import Engine, Options
from .memory import Memory

__all__ = ["Stream"]


@dataclass(frozen=True)
class Stream(Engine):
    """The triangular factor of all rows so far, and how many of them are different."""

    triangle: Triangle
    distinct: DistinctRows
    options: Options
    n_given: int = 0  # rows handed over, those of weight zero included
    single_target: bool = True
    dtype: Any = np.float64

    arrays = True
    why_no_rows = "partial_fit keeps no rows; call fit with all of them in one array to have them"

    @classmethod
    def empty(cls, p: int, q: int, options: Options) -> Stream:
        """No rows yet."""
        return cls(Triangle.empty(p, q), DistinctRows.of_columns(p), options)

    def add(self, batch: Memory) -> Stream:
        """With the rows of a batch."""
        rows = batch.rows
        refuse_extremes(rows.largest_entries)  # later batches may have other entries: there is no unit for all
        if self.triangle.n_targets != rows.Y.shape[1]:
            raise ValueError(f"y has {rows.Y.shape[1]} targets, but earlier batches had {self.triangle.n_targets}.")
        triangle = self.triangle.add(rows.X, rows.Y, rows.weight, self.options.fit_intercept)
        n_given = self.n_given + batch.n_given
        return Stream(triangle, self.distinct.add(rows.X), batch.options, n_given, batch.single_target, batch.dtype)

    @property
    def n_columns(self) -> int:
        return len(self.triangle.shift) - self.triangle.n_targets

    def complete(self, design: Design) -> Design:
        n, distinct = self.triangle.n_rows, len(self.distinct)
        return replace(design, n_rows=n, n_columns=self.n_columns, distinct_rows=distinct, n_given=self.n_given)

    def solve(self, design: Design, start: int, stop: float, weights: NDArray[np.float64] | None = None) -> Members:
        if stop == np.inf:
            return limit_of(self, design)
        features, _ = design.draw(start, int(stop), self.options.quietly.without_blas)
        X, Y, mean_x, mean_y, cutoff = self.triangle.centred(self.options.fit_intercept)
        problem = Problem(X, Y, None, False, self.options.rcond, self.options.tol, known_cutoff=cutoff)
        sharing = self.options.sharing("members", len(features))
        solution = _members.solve(problem, features, None, solver=self.options.solver, sharing=sharing)
        members = Members.of(problem, features, None, solution)
        return replace(members, intercept=mean_y - mean_x @ members.coef, mean_y=mean_y)

    def sums(self) -> Moments:
        X, Y, mean_x, mean_y, _ = self.triangle.centred(self.options.fit_intercept)
        n, weight = self.triangle.n_rows, float(self.triangle.R[0, 0] ** 2)
        return Moments(n, weight, mean_x, mean_y, X.T @ X, X.T @ Y, (Y * Y).sum(axis=0), self.options.fit_intercept)
