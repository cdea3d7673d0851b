"""Engines of arrays: rows in memory, dense or sparse; the base class of rows on a device; streams
of `partial_fit`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _members
from .._data.moments import Moments
from .._data.rows import RowData
from .._data.sources import Block, require_positive
from .._data.triangle import CentredRows, Triangle
from .._execution.options import Options
from .._members import Members
from ..subsets import Design, Subsets, row_groups
from .engine import Engine, FoldFit, Refit

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Rows(Engine):
    """Checked arrays as a problem; rows of weight zero are dropped before anything is drawn."""

    rows: RowData
    options: Options
    single_target: bool = True
    n_given: int = 0  # number of rows before rows of weight zero were dropped
    kept_rows: Indices | None = None  # indices of the rows with positive weight; None: all

    @classmethod
    def from_problem(
        cls, problem: RowData, options: Options, *, single_target: bool, min_rows: int
    ) -> Self:
        """Engine of checked arrays: X of floats, targets (n, q), nonnegative weights."""
        n = problem.shape[0]
        kept_rows = None
        if problem.weight is not None:
            positive_rows = np.flatnonzero(problem.space.get(problem.weight) > 0)
            require_positive(len(positive_rows), n, min_rows)
            if len(positive_rows) < n:
                problem = problem.take(positive_rows)
                kept_rows = positive_rows
        problem.refuse_extremes()
        return cls(problem, options, single_target, n_given=n, kept_rows=kept_rows)

    @property
    def n_columns(self) -> int:
        return self.rows.shape[1]

    @property
    def dtype(self) -> Any:
        return self.rows.X.dtype

    def complete(self, design: Design) -> Design:
        n, p = self.rows.shape
        distinct_rows = None
        if design.sampling == "bernoulli" and self.rows.space.on_host:
            distinct_rows = (
                self.rows.distinct_rows()
            )  # a row of weight two is equivalent to two equal rows
        return replace(
            design,
            n_rows=n,
            n_columns=p,
            distinct_rows=distinct_rows,
            n_given=self.n_given,
            kept_rows=self.kept_rows,
        )

    def reopen(self) -> Self:
        return replace(self, options=replace(self.options, progress=None))

    def moments(self) -> Moments:
        return self.rows.moments.on_host()

    def folds(self, count: int, seed: int) -> list[Moments]:
        """Per-fold moments on the data's device if there is room; the same folds as for blocked
        data.
        """
        folds = self._folds(count, seed)
        space = self.rows.space
        if min(map(len, folds)) == 0:
            raise ValueError(
                f"{self.rows.shape[0]} rows are too few for {count} folds of random rows; use fewer"
                " folds."
            )
        # The moments stay on the device if it has double precision, which Cholesky factors need,
        # and memory for several copies of the Gram matrices, which the comparison of sizes needs.
        gram_bytes = 64.0 * self.n_columns**2 * count
        stay_on_device = space.dtype == space.xp.float64 and gram_bytes < space.batch_bytes(np.inf)
        if not stay_on_device:
            return [self.rows.take(fold_rows).moments.on_host() for fold_rows in folds]
        moments = [self.rows.take(fold_rows).moments for fold_rows in folds]
        self.rows.keep_moments(Moments.merge_all(moments))
        return moments

    def errors_of(
        self, fits: list[FoldFit], seed: int, max_rows: int, n_rows: int
    ) -> list[FoldFit]:
        folds = self._folds(len(fits), seed)
        return [
            fit._replace(residual=self._residuals(fit, rows))
            for fit, rows in zip(fits, folds, strict=True)
        ]

    def predictions_of(self, fits: list[FoldFit], seed: int) -> Array:
        """Prediction of every row by the fit without its fold, (n, q)."""
        predictions = np.empty(self.rows.Y.shape)
        for fit, rows in zip(fits, self._folds(len(fits), seed), strict=True):
            predictions[rows] = self.rows.Y[rows] - self._residuals(fit, rows)
        return predictions

    def left_out(
        self, refit: Refit, count: int, seed: int, max_rows: int
    ) -> tuple[Members, list[FoldFit]]:
        n = self.rows.shape[0]  # rows of weight zero take no part
        # With very few rows, random folds may put all rows into one fold, which leaves no rows to
        # train on.
        fold = row_groups(0, n, count, seed) if n > count else np.arange(n)
        splits = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(count)]
        fits = self.left_out_of([split for split in splits if len(split[1])], refit)
        return self.solve(refit.design, 0, refit.number, refit.weights), fits

    def left_out_of(self, splits: list[tuple[Any, Any]], refit: Refit) -> list[FoldFit]:
        """Refit the ensemble on the training rows of each split and compute its errors on the
        held-out rows.
        """
        options = replace(self.options, progress=None)
        fits = []
        for train, test in splits:
            training = replace(
                self,
                rows=self.rows.take(train),
                options=options,
                n_given=len(train),
                kept_rows=None,
            )
            members = training.solve(refit.design_for(len(train)), 0, refit.number, refit.weights)
            fit = FoldFit.from_members(members, refit.scale)
            fits.append(fit._replace(residual=self._residuals(fit, test)))
        return fits

    def _folds(self, count: int, seed: int) -> list[Indices]:
        """Row indices of each fold; the fold of a row does not depend on which rows have weight
        zero.
        """
        fold = row_groups(0, self.n_given, count, seed)
        fold = fold if self.kept_rows is None else fold[self.kept_rows]
        return [np.flatnonzero(fold == f) for f in range(count)]

    def _residuals(self, fit: FoldFit, rows: Indices) -> Array:
        part = self.rows.take(rows)
        space = self.rows.space
        if space.on_host:
            return fit.residuals(part.X, part.Y)
        predicted = space.cast(part.X) @ space.put(fit.coef.T) + space.put(fit.intercept)
        return np.asarray(space.get(space.cast(part.Y) - predicted), dtype=float)


@dataclass(frozen=True)
class Memory(Rows):
    """Engine of arrays on the host."""

    arrays: bool = True
    column_names: list[str] | None = None  # for rows that were read from blocks

    @classmethod
    def of(
        cls, X: Any, y: NDArray[Any], weight: Array | None, options: Options, min_rows: int = 2
    ) -> Memory:
        """Engine of checked arrays; y and weights are copied, because users may change their arrays
        in place.
        """
        X = sp.csc_array(X) if sp.issparse(X) else X
        Y = np.array(y, dtype=np.float64).reshape(len(y), -1)
        weight = None if weight is None else np.array(weight)
        problem = RowData(X, Y, weight, options.fit_intercept)
        return cls.from_problem(problem, options, single_target=y.ndim == 1, min_rows=min_rows)

    @classmethod
    def from_blocks(cls, blocks: list[Block], source: Any, options: Options) -> Memory:
        """Engine of all blocks of a source that has few rows."""
        for block in blocks:
            block.refuse()
        n = sum(len(block.X) for block in blocks)
        if n < 2:
            raise ValueError(f"the {source.kind} has {n} rows; at least two are needed.")
        single_precision = all(block.X.dtype == np.float32 for block in blocks)
        X = np.concatenate(
            [block.X for block in blocks], dtype=np.float32 if single_precision else np.float64
        )
        y = np.concatenate([block.y for block in blocks], dtype=np.float64)
        weight = None
        if any(block.weight is not None for block in blocks):
            weight = np.concatenate(
                [np.ones(len(b.X)) if b.weight is None else b.weight for b in blocks]
            )
        engine = cls.of(X, y[:, 0] if blocks[0].single_target else y, weight, options)
        return replace(engine, arrays=False, column_names=source.names or blocks[0].names)

    @property
    def names(self) -> list[str] | None:
        return self.column_names

    @property
    def problem(self) -> RowData:
        return self.rows

    def _solve_drawn(
        self, features: Subsets, samples: Subsets | None, weights: Array | None
    ) -> Members:
        sharing = self.options.sharing("members", len(features))
        solution = _members.solve(
            self.rows, features, samples, solver=self.options.solver, sharing=sharing
        )
        return Members.of(self.rows, features, samples, solution, weights)


def factor_problem(rows: CentredRows) -> RowData:
    """Least-squares problem of the centred rows of a triangular factor."""
    return RowData(rows.X, rows.Y, None, False, known_cutoff=rows.cutoff)


@dataclass(frozen=True)
class Stream(Engine):
    """Engine of the triangular factor of rows that came in batches and are not kept."""

    triangle: Triangle
    options: Options
    n_given: int = 0  # number of rows in all batches, including rows of weight zero
    single_target: bool = True
    dtype: Any = np.float64

    arrays = True
    why_no_rows = "partial_fit keeps no rows; call fit with all of them in one array to have them"

    @classmethod
    def empty(cls, p: int, q: int, options: Options) -> Stream:
        """Stream of no rows yet."""
        return cls(Triangle.empty(p, q), options)

    def add(self, batch: Memory) -> Stream:
        """Return the stream that includes the rows of a batch."""
        rows = batch.rows
        if self.triangle.n_targets != rows.Y.shape[1]:
            raise ValueError(
                f"y has {rows.Y.shape[1]} targets, but earlier batches had"
                f" {self.triangle.n_targets}."
            )
        triangle = self.triangle.add(rows.X, rows.Y, rows.weight, self.options.fit_intercept)
        return Stream(
            triangle,
            batch.options,
            n_given=self.n_given + batch.n_given,
            single_target=batch.single_target,
            dtype=batch.dtype,
        )

    @property
    def n_columns(self) -> int:
        return len(self.triangle.shift) - self.triangle.n_targets

    def complete(self, design: Design) -> Design:
        return replace(
            design, n_rows=self.triangle.n_rows, n_columns=self.n_columns, n_given=self.n_given
        )

    def _solve_drawn(
        self, features: Subsets, samples: Subsets | None, weights: Array | None
    ) -> Members:
        rows = self.triangle.centred(self.options.fit_intercept)
        problem = factor_problem(rows)
        sharing = self.options.sharing("members", len(features))
        solution = _members.solve(
            problem, features, None, solver=self.options.solver, sharing=sharing
        )
        members = Members.of(problem, features, None, solution)
        return replace(
            members, intercept=rows.mean_y - rows.mean_x @ members.coef, mean_y=rows.mean_y
        )

    def moments(self) -> Moments:
        X, Y, mean_x, mean_y, _ = self.triangle.centred(self.options.fit_intercept)
        return Moments(
            n_rows=self.triangle.n_rows,
            weight=float(self.triangle.R[0, 0] ** 2),
            mean_x=mean_x,
            mean_y=mean_y,
            G=X.T @ X,
            C=X.T @ Y,
            yy=(Y * Y).sum(axis=0),
            centred=self.options.fit_intercept,
        )
