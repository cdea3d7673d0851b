"""Rows that were given as arrays: kept in memory, dense or sparse; on a device; or gone after partial_fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _members
from .._members import Members, Problem
from .._moments.moments import Moments
from .._moments.triangle import CentredRows, Triangle
from ..subsets import Design, Subsets, row_groups
from .engine import Engine, FoldFit, Options, Refit
from .sources import Block, require_positive

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Rows(Engine):
    """Checked arrays as a problem; rows of weight zero are gone before anything is drawn."""

    rows: Problem
    options: Options
    single_target: bool = True
    n_given: int = 0  # rows before those of weight zero were dropped
    kept_rows: Indices | None = None  # positions of the rows with positive weight; None: all

    @classmethod
    def from_checked(cls, X: Any, y: Any, Y: Any, weight: Any, options: Options, min_rows: int, **where: Any) -> Self:
        """From arrays that were checked: X of floats, targets y as given and as Y (n, q), weights not negative."""
        problem = Problem(X, Y, weight, options.fit_intercept, **where)
        n, kept = X.shape[0], None
        if weight is not None:
            positive = np.flatnonzero(problem.space.get(weight) > 0)
            require_positive(len(positive), n, min_rows)
            if len(positive) < n:
                problem, kept = problem.take(positive), positive
        problem.refuse_extremes()
        return cls(problem, options, y.ndim == 1, n, kept)

    @property
    def n_columns(self) -> int:
        return self.rows.shape[1]

    @property
    def dtype(self) -> Any:
        return self.rows.X.dtype

    def complete(self, design: Design) -> Design:
        n, p = self.rows.shape
        counts = design.sampling == "bernoulli" and self.rows.space.on_host
        distinct = self.rows.distinct_rows() if counts else None  # a row of weight two is as two rows
        return replace(
            design, n_rows=n, n_columns=p, distinct_rows=distinct, n_given=self.n_given, kept_rows=self.kept_rows
        )

    def reopen(self) -> Self:
        return replace(self, options=replace(self.options, progress=None))

    def moments(self) -> Moments:
        return self.rows.moments.on_host()

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Made where the rows are, and left there if there is room; rows fall where they would in blocks."""
        folds, space = self._folds(count, seed), self.rows.space
        if min(map(len, folds)) == 0:
            raise ValueError(
                f"{self.rows.shape[0]} rows are too few for {count} folds of random rows; use fewer folds."
            )
        # Cholesky factors ask for double precision, which not every device has; comparing sizes takes several copies
        stay = space.dtype == space.xp.float64 and 64.0 * self.n_columns**2 * count < space.batch_bytes(np.inf)
        if not stay:
            return [self.rows.take(own).moments.on_host() for own in folds]
        found = [self.rows.take(own).moments for own in folds]
        self.rows.keep_moments(Moments.merge_all(found))
        return found

    def errors_of(self, fits: list[FoldFit], seed: int, most: int, n_rows: int) -> list[FoldFit]:
        folds = self._folds(len(fits), seed)
        return [fit._replace(residual=self._residuals(fit, own)) for fit, own in zip(fits, folds, strict=True)]

    def predictions_of(self, fits: list[FoldFit], seed: int) -> Array:
        """Of every row, by the fit without its fold, (n, q)."""
        out = np.empty(self.rows.Y.shape)
        for fit, own in zip(fits, self._folds(len(fits), seed), strict=True):
            out[own] = self.rows.Y[own] - self._residuals(fit, own)
        return out

    def left_out(self, refit: Refit, count: int, seed: int, most: int) -> tuple[Members, list[FoldFit]]:
        n = self.rows.shape[0]  # a row of weight zero is as if it were not there
        # random folds of very few rows may be one fold of all of them, which leaves none to train on
        fold = row_groups(0, n, count, seed) if n > count else np.arange(n)
        splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]
        fits = self.left_out_of([split for split in splits if len(split[1])], refit)
        return self.solve(refit.design, 0, refit.number, refit.weights), fits

    def left_out_of(self, splits: list[tuple[Any, Any]], refit: Refit) -> list[FoldFit]:
        """The ensemble on the rows of each split that it is trained on, with its errors for the others."""
        found, quiet = [], replace(self.options, progress=None)
        for train, test in splits:
            part = replace(self, rows=self.rows.take(train), options=quiet, n_given=len(train), kept_rows=None)
            members = part.solve(refit.design_for(len(train)), 0, refit.number, refit.weights)
            fit = FoldFit.from_members(members, refit.scale)
            found.append(fit._replace(residual=self._residuals(fit, test)))
        return found

    def _folds(self, count: int, seed: int) -> list[Indices]:
        fold = row_groups(0, self.n_given, count, seed)
        fold = fold if self.kept_rows is None else fold[self.kept_rows]
        return [np.flatnonzero(fold == f) for f in range(count)]

    def _residuals(self, fit: FoldFit, rows: Indices) -> Array:
        part, space = self.rows.take(rows), self.rows.space
        if space.on_host:
            return fit.residuals(part.X, part.Y)
        predicted = space.cast(part.X) @ space.put(fit.coef.T) + space.put(fit.intercept)
        return np.asarray(space.get(space.cast(part.Y) - predicted), dtype=float)


@dataclass(frozen=True)
class Memory(Rows):
    """Arrays on the host."""

    arrays: bool = True
    column_names: list[str] | None = None  # where the rows did not come as an array

    @classmethod
    def of(cls, X: Any, y: NDArray[Any], weight: Array | None, options: Options, min_rows: int = 2) -> Memory:
        """From arrays that were checked; y and weights are copied, as users change them in place."""
        X = sp.csc_array(X) if sp.issparse(X) else X
        Y = np.array(y, dtype=np.float64).reshape(len(y), -1)
        return cls.from_checked(X, y, Y, None if weight is None else np.array(weight), options, min_rows)

    @classmethod
    def from_blocks(cls, blocks: list[Block], source: Any, options: Options) -> Memory:
        """From all blocks of a source that has few rows."""
        for block in blocks:
            block.refuse()
        n = sum(len(block.X) for block in blocks)
        if n < 2:
            raise ValueError(f"the {source.kind} has {n} rows; at least two are needed.")
        single_precision = all(block.X.dtype == np.float32 for block in blocks)
        X = np.concatenate([block.X for block in blocks], dtype=np.float32 if single_precision else np.float64)
        y = np.concatenate([block.y for block in blocks], dtype=np.float64)
        weight = None
        if any(block.weight is not None for block in blocks):
            weight = np.concatenate([np.ones(len(b.X)) if b.weight is None else b.weight for b in blocks])
        engine = cls.of(X, y[:, 0] if blocks[0].single else y, weight, options)
        return replace(engine, arrays=False, column_names=source.names or blocks[0].names)

    @property
    def names(self) -> list[str] | None:
        return self.column_names

    @property
    def problem(self) -> Problem:
        return self.rows

    def _solve_drawn(self, features: Subsets, samples: Subsets | None, weights: Array | None) -> Members:
        sharing = self.options.sharing("members", len(features))
        solution = _members.solve(self.rows, features, samples, solver=self.options.solver, sharing=sharing)
        return Members.of(self.rows, features, samples, solution, weights)


def factor_problem(rows: CentredRows) -> Problem:
    """The problem of rows of a triangular factor, which are about their means."""
    return Problem(rows.X, rows.Y, None, False, known_cutoff=rows.cutoff)


@dataclass(frozen=True)
class Stream(Engine):
    """Rows that came in batches and are gone: their triangular factor."""

    triangle: Triangle
    options: Options
    n_given: int = 0  # rows handed over, those of weight zero included
    single_target: bool = True
    dtype: Any = np.float64

    arrays = True
    why_no_rows = "partial_fit keeps no rows; call fit with all of them in one array to have them"

    @classmethod
    def empty(cls, p: int, q: int, options: Options) -> Stream:
        """No rows yet."""
        return cls(Triangle.empty(p, q), options)

    def add(self, batch: Memory) -> Stream:
        """With the rows of a batch."""
        rows = batch.rows
        if self.triangle.n_targets != rows.Y.shape[1]:
            raise ValueError(f"y has {rows.Y.shape[1]} targets, but earlier batches had {self.triangle.n_targets}.")
        triangle = self.triangle.add(rows.X, rows.Y, rows.weight, self.options.fit_intercept)
        n_given = self.n_given + batch.n_given
        return Stream(triangle, batch.options, n_given, batch.single_target, batch.dtype)

    @property
    def n_columns(self) -> int:
        return len(self.triangle.shift) - self.triangle.n_targets

    def complete(self, design: Design) -> Design:
        return replace(design, n_rows=self.triangle.n_rows, n_columns=self.n_columns, n_given=self.n_given)

    def _solve_drawn(self, features: Subsets, samples: Subsets | None, weights: Array | None) -> Members:
        rows = self.triangle.centred(self.options.fit_intercept)
        problem = factor_problem(rows)
        sharing = self.options.sharing("members", len(features))
        solution = _members.solve(problem, features, None, solver=self.options.solver, sharing=sharing)
        members = Members.of(problem, features, None, solution)
        return replace(members, intercept=rows.mean_y - rows.mean_x @ members.coef, mean_y=rows.mean_y)

    def moments(self) -> Moments:
        X, Y, mean_x, mean_y, _ = self.triangle.centred(self.options.fit_intercept)
        n, weight = self.triangle.n_rows, float(self.triangle.R[0, 0] ** 2)
        return Moments(n, weight, mean_x, mean_y, X.T @ X, X.T @ Y, (Y * Y).sum(axis=0), self.options.fit_intercept)
