"""Solve the members of a sampling design from training data in whatever storage, and once more
without each fold.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.fits import FoldFit
from .._data.rows import RowData
from .._data.splits import Splits
from .._data.standardised import Standardised, standardise, standardised_moments
from .._data.training import SummedData, TrainingData
from .._data.triangle import CentredRows
from .._execution.options import Options
from .._execution.threads import Threads
from ..subsets import Design, Subsets, is_count
from . import gram, on_device, solve
from .limit import limit_of, limits_of
from .mean import Members, by_target, member_sum
from .penalised import solve_members
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def solve_ensemble(
    data: TrainingData,
    design: Design,
    start: int,
    stop: float,
    *,
    options: Options,
    weights: Array | None = None,
) -> Members:
    """Solve members `start` to `stop` of a completed design; `stop` may be infinite for
    determinantal sampling.
    """
    if stop == math.inf:
        limit = limit_of(data, design, options.quietly)
        return limit if data.space.on_host else limit.in_space(data.space)
    features, samples = design.draw(start, int(stop), options.quietly.without_blas)
    penalised = design.penalised_members(start, int(stop))
    drawn = Drawn(features, samples, penalised, design.uniform_penalty)
    if data.summed is not None:
        return _solve_from_sums(data.summed, drawn, options)
    rows = data.rows
    assert rows is not None
    if rows.space.on_host:
        threads = options.threads("members", len(features.sizes))
        solution = drawn.solve(rows, options.solver, threads)
        return Members.of(rows, features, samples, solution, weights)
    if len(penalised):  # the host solves members with a penalty
        on_host = solve_ensemble(rows.on_host(), design, start, stop, options=options)
        return on_host.in_space(rows.space)
    return _solve_on_device(rows, features, samples, options)


class Drawn(NamedTuple):
    """Columns and rows of members that were drawn, of which some have a penalty."""

    features: Subsets
    samples: Subsets | None
    penalised: Indices  # positions of the uniform members of a mixture, see `schemes.Uniform`
    penalty: float  # of their columns, a fraction of the squared norm of every column

    @classmethod
    def of(cls, design: Design, count: int) -> Drawn:
        """The first members of a design."""
        features, samples = design.draw(0, count)
        return cls(features, samples, design.penalised_members(0, count), design.uniform_penalty)

    def solve(self, rows: RowData, solver: str, threads: Threads) -> Solution:
        """Coefficients and intercepts of the members."""
        solution = solve(rows, self.features, self.samples, solver=solver, threads=threads)
        if len(self.penalised):
            train, unit = standardise(rows, threads)
            self.put_penalised(solution, train, unit, rows.means)
        return solution

    def put_penalised(
        self, solution: Solution, train: Standardised, unit: Array, means: tuple[Array, Array]
    ) -> None:
        """Replace the solutions of the penalised members, as they were judged in the folds."""
        features = self.features.take(self.penalised)
        mean_x, mean_y = means
        values = solve_members(train, features, self.penalty, Threads())
        values /= unit[features.indices][:, None]
        part = Solution(
            values,
            intercepts=mean_y - gram.products(values, features, mean_x),
            refitted=np.zeros(len(features), dtype=bool),
            solver=solution.solver,
        )
        solution.put(self.penalised, self.features.sizes, part, refitted=False)


def solve_by_target(
    data: TrainingData, designs: list[Design], k: float, *, options: Options
) -> Members:
    """Solve k members of a completed design for each target, or infinitely many."""
    if k == math.inf:
        limit = limits_of(data, designs, options.quietly)
        return limit if data.space.on_host else limit.in_space(data.space)
    members = []
    for t, design in enumerate(designs):
        rows = data.rows
        of_target = data if rows is None else rows.targets_at(slice(t, t + 1))
        members.append(solve_ensemble(of_target, design, 0, k, options=options))
    return by_target(members)


def _solve_on_device(
    rows: RowData, features: Subsets, samples: Subsets | None, options: Options
) -> Members:
    k = len(features)
    total = on_device.solve_sum(rows, features, samples, options.solver, options.quietly)
    solver = "masked_cg" if options.solver == "auto" else options.solver
    solver = solver if samples is None or solver == "orthogonal" else "member_gram"
    return Members(
        coef=total.coef / k,
        intercept=total.intercept / k,
        mean_y=total.mean_y / k,
        counts=features.counts(),
        weights=np.full(k, 1 / k),
        solver=solver,
        n_fallbacks=total.refitted,
        space=rows.space,
    )


def _solve_from_sums(data: SummedData, drawn: Drawn, options: Options) -> Members:
    """Solve members on all rows from moments; ill-conditioned ones, and all that ask for it, from
    the triangular factor of the rows.
    """
    features = drawn.features
    k = len(features)
    solver = options.solver
    if data.prefers_factor:
        solution, mean_x, mean_y = _solve_factored(data.factor(), features, options)
    else:
        moments = data.total_moments()
        mean_x = moments.mean_x
        mean_y = moments.mean_y
        solver = "gram" if solver == "auto" else solver
        from_factor = replace(options, solver=solver, progress=None)
        overdetermined = features.sizes.max() <= moments.n_rows - moments.null_rank
        if not data.has_triangles or (solver == "gram" and overdetermined):
            solution = gram.from_moments(moments, features, options.threads("members", k))
            ill_conditioned = np.flatnonzero(solution.refitted)
            solution.refitted[ill_conditioned] = False
            # without rows, the solution from moments remains
            if len(ill_conditioned) and data.has_triangles:
                part = features.take(ill_conditioned)
                refit, _, _ = _solve_factored(data.factor(), part, from_factor)
                solution.put(ill_conditioned, features.sizes, refit, refitted=False)
        else:
            solution, _, _ = _solve_factored(data.factor(), features, from_factor)
    if len(drawn.penalised):
        train, unit = standardised_moments(data.total_moments())
        drawn.put_penalised(solution, train, unit, (mean_x, mean_y))
    coef = member_sum(features, solution.values) / k
    return Members(
        coef=coef,
        intercept=mean_y - mean_x @ coef,
        mean_y=mean_y,
        counts=features.counts(),
        weights=np.full(k, 1 / k),
        solver=solution.solver,
        n_fallbacks=int(solution.refitted.sum()),
    )


def _solve_factored(
    factor: CentredRows, features: Subsets, options: Options
) -> tuple[Solution, Array, Array]:
    """Members solved from the triangular factor of all rows, and the means of the rows."""
    problem = RowData(factor.X, factor.Y, None, False, known_cutoff=factor.cutoff)
    threads = options.threads("members", len(features))
    solution = solve(problem, features, None, solver=options.solver, threads=threads)
    return solution, factor.mean_x, factor.mean_y


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
        if is_count(max_samples):
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

    def fit(self, data: TrainingData, n_rows: int, options: Options) -> FoldFit:
        """Fit the ensemble to other rows, without held-out errors."""
        members = solve_ensemble(
            data,
            self.design_for(n_rows),
            0,
            self.number,
            options=options,
            weights=self.weights,
        )
        arrays: Any = members.scaled(self.scale, members.coef.dtype)
        coef, intercept = (np.asarray(members.space.get(array), dtype=float) for array in arrays)
        return FoldFit(coef, intercept, None)


def cross_fit(
    data: TrainingData, refit: Refit, splits: Splits, options: Options, *, max_rows: int
) -> list[FoldFit]:
    """Refit the ensemble without the test rows of each split, with the errors of the test rows.

    Data that are only summed are divided into groups of rows already, which take the place of
    `splits`; their errors are those of at most about `max_rows` rows.
    """
    options = replace(options, progress=None)
    if data.summed is not None:
        groups = data.summed.training_groups()
        fits = [refit.fit(group, group.n_rows, options) for group in groups]
        return data.with_errors(fits, refit.design.seed, max_rows, data.n_rows_given)
    rows = data.rows
    assert rows is not None
    fits = []
    for train, test in splits:
        fit = refit.fit(rows.take(train), len(train), options)
        fits.append(rows.tested(fit, test))
    return fits
