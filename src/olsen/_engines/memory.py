"""Arrays in memory, dense or sparse: rows that stay at hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _members
from .._members import Members, Problem
from .._moments import DistinctRows, Moments, from_data
from ..subsets import Design, row_groups
from .determinantal import limit_of
from .engine import Options, nobody
from .left_out import FoldFit, LeftOutFits, Refit, fold_design, residuals
from .sources import require_positive

__all__ = ["Memory", "sliceable"]


@dataclass(frozen=True)
class Memory:
    """Checked arrays as a problem; rows of weight zero are gone before anything is drawn."""

    problem: Problem
    options: Options
    single_target: bool
    n_given: int  # rows before those of weight zero were dropped
    kept_rows: NDArray[np.int64] | None  # positions of the rows with positive weight; None: all
    names: list[str] | None = None
    arrays: bool = True
    why_no_rows: str = ""

    @classmethod
    def of(
        cls, X: Any, y: NDArray[Any], weight: NDArray[np.float64] | None, options: Options, min_rows: int = 2
    ) -> Memory:
        """From arrays that were checked: X of floats, y of one or two dimensions, weights not negative."""
        Y = np.array(y, dtype=np.float64).reshape(len(y), -1)  # a copy: users change y in place
        n, kept = len(Y), None
        if weight is not None:
            X, Y, weight, kept = _drop_weightless(X, Y, weight, min_rows)
        X = sp.csc_array(X) if sp.issparse(X) else X
        problem = Problem(X, Y, weight, options.fit_intercept, options.rcond, options.tol)
        return cls(problem, options, np.ndim(y) == 1, n, kept)

    @property
    def n_columns(self) -> int:
        return self.problem.shape[1]

    @property
    def dtype(self) -> Any:
        return self.problem.X.dtype

    def complete(self, design: Design) -> Design:
        n, p = self.problem.shape
        distinct = None
        if design.sampling == "bernoulli":
            distinct = len(DistinctRows.of_columns(p).add(sliceable(self.problem.X)))
        return replace(
            design, n_rows=n, n_columns=p, distinct_rows=distinct, n_given=self.n_given, kept_rows=self.kept_rows
        )

    def solve(self, design: Design, start: int, stop: float, weights: NDArray[np.float64] | None = None) -> Members:
        if stop == np.inf:
            return limit_of(self, design)
        features, samples = design.draw(start, int(stop), self.options.quietly.without_blas)
        solution = _members.solve(
            self.problem,
            features,
            samples,
            solver=self.options.solver,
            sharing=self.options.sharing("members", len(features)),
        )
        return Members.of(self.problem, features, samples, solution, weights)

    def folds(self, count: int, seed: int) -> list[Moments]:
        parts = [self.problem.take(rows) for rows in self._rows_of_folds(count, seed)]
        return [from_data(part.X, part.Y, part.weight, centre=part.fit_intercept) for part in parts]

    def again(self) -> Memory:
        return replace(self, options=replace(self.options, listen=nobody))

    def sums(self) -> Moments:
        return self.problem.moments

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        parts = [self.problem.take(rows) for rows in self._rows_of_folds(len(fits), seed)]
        return [fit._replace(residual=residuals(fit, p.X, p.Y)) for fit, p in zip(fits, parts, strict=True)]

    def predictions_of(self, fits: list[FoldFit], seed: int) -> NDArray[np.float64]:
        """Of every row, by the fit without its fold, (n, q)."""
        out = np.empty(self.problem.Y.shape)
        for fit, rows in zip(fits, self._rows_of_folds(len(fits), seed), strict=True):
            part = self.problem.take(rows)
            out[rows] = part.Y - residuals(fit, part.X, part.Y)
        return out

    def _rows_of_folds(self, count: int, seed: int) -> list[NDArray[np.int64]]:
        fold = row_groups(0, self.n_given, count, seed)
        fold = fold if self.kept_rows is None else fold[self.kept_rows]
        return [np.flatnonzero(fold == f) for f in range(count)]

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> LeftOutFits:
        fold = row_groups(0, len(self.problem.Y), count, seed)  # a row of weight zero is as if it were not there
        splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]
        return LeftOutFits(None, self.left_out_of([split for split in splits if len(split[1])], refit))

    def left_out_of(self, splits: list[tuple[Any, Any]], refit: Refit) -> list[FoldFit]:
        """The ensemble on the rows of each split that it is trained on, with its errors for the others."""
        return [self._fold_fit(train, test, refit) for train, test in splits]

    def _fold_fit(self, train: Any, test: Any, refit: Refit) -> FoldFit:
        part = replace(self, problem=self.problem.take(train), options=replace(self.options, listen=nobody))
        members = part.solve(fold_design(refit, len(train)), 0, refit.number, refit.weights)
        left, fit = self.problem.take(test), FoldFit.of(members, refit.scale, self.problem.Y.shape[1])
        return fit._replace(residual=residuals(fit, left.X, left.Y))


def sliceable(X: Any) -> Any:
    """X in a form whose rows can be sliced."""
    return sp.csr_array(X) if sp.issparse(X) else X


def _drop_weightless(
    X: Any, Y: NDArray[np.float64], weight: NDArray[np.float64], min_rows: int
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64], NDArray[np.int64] | None]:
    kept = np.flatnonzero(weight > 0)
    require_positive(len(kept), len(weight), min_rows)
    if len(kept) == len(weight):
        return X, Y, np.array(weight), None
    if sp.issparse(X):
        X = sp.csr_array(X)
    return X[kept], Y[kept], weight[kept], kept
