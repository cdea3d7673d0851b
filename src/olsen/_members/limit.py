"""Determinantal processes of a design, and the limit of infinitely many members.

Rows in memory are preferred to moments, because moments square the condition number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.moments import Moments
from .._data.rows import RowData, Submatrix
from .._data.standardised import (
    Standardised,
    StandardisedMoments,
    standard_deviations,
    standardise,
)
from .._data.training import TrainingData
from .._execution.threads import Threads, one_blas_thread
from ..subsets import Design, Determinantal
from .mean import Members, member_sum
from .penalised import NormalEquations, limit_members, solve, solve_members

Array = NDArray[np.float64]


def process_of(
    data: TrainingData, design: Design, *, draws: bool = True
) -> tuple[Determinantal, ...]:
    """Build the determinantal processes of a design, from the Gram matrix or, if n_rows <
    n_columns, from the rows.

    Small problems use one BLAS thread: further BLAS threads would keep spinning for milliseconds
    afterwards and take the cores from the threads that draw members.
    """
    # so few rows or columns take less time than idle BLAS threads spin
    small = min(design.n_rows, design.n_columns) <= 500
    with one_blas_thread() if small else nullcontext():
        processes = tuple(_process_of(data, scheme) for scheme in _schemes(design))
        if draws:
            for process in processes:
                _ = process.vectors  # cached here, while BLAS has one thread
        return processes


def _schemes(design: Design) -> list[dict[str, Any]]:
    """Arguments of the process of every determinantal scheme: an expected size, or prior variances
    and a penalty.
    """
    if design.prior_variances is None or design.penalties is None:
        return [{"size": design.expected_size}]
    pairs = zip(design.prior_variances, design.penalties, strict=True)
    return [
        {"prior_variances": prior_variances, "penalty": penalty}
        for prior_variances, penalty in pairs
    ]


def _process_of(data: TrainingData, scheme: dict[str, Any]) -> Determinantal:
    problem = data.host_rows
    if problem is None:
        return _process_of_moments(data.total_moments(), scheme)
    if problem.shape[1] <= problem.shape[0]:
        with suppress(ValueError):  # the rank cannot be read from the Gram matrix
            process = Determinantal.from_gram(problem.moments.G, **scheme)
            if not process.doubtful:
                return process
    return Determinantal.from_rows(_all_rows(problem).A, **scheme)


def _process_of_moments(moments: Moments, scheme: dict[str, Any]) -> Determinantal:
    """Build the process from moments alone, without the rows.

    An inaccurate size is an error, because the user chose the size; a penalty was chosen by the
    program.
    """
    process = Determinantal.from_gram(moments.G, **scheme)
    return process if "penalty" in scheme else _trusted(process)


def _all_rows(problem: RowData) -> Submatrix:
    """All rows as a dense matrix, centred and sqrt-weighted, with zeros in constant columns."""
    return problem.submatrix(slice(None), None)


def _trusted(process: Determinantal) -> Determinantal:
    if process.doubtful:
        raise ValueError(
            f"determinantal members of {process.chances.sum():g} columns on average need directions"
            " that X'X cannot distinguish from rounding error, and only X'X is kept for data in"
            " blocks, on a cluster or on a device. Use a smaller max_features, or load X as an"
            " array in memory."
        )
    return process


def limit_of(data: TrainingData, design: Design, threads: Threads) -> Members:
    """Exact mean of infinitely many determinantal members.

    Uniform members have no closed form: if their weight is positive, `n_uniform_members` of that
    weight are drawn.
    """
    has_uniform = design.scheme_weights is not None and design.uniform_weight > 0
    problem = data.host_rows
    if problem is None:
        moments = data.total_moments()
        limit = limit_of_moments(moments, design)
        if not has_uniform:
            return limit
        unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
        train = StandardisedMoments.of(moments, unit, moments)
        return _add_uniform(limit, train, unit, moments.mean_x, design=design, threads=threads)
    if design.scheme_weights is None and design.process is None:
        design = replace(design, process=process_of(data, design, draws=False))
    if problem.has_moments:
        limit = limit_of_moments(problem.moments, design)
    else:
        rows = _all_rows(problem)
        equations = partial(NormalEquations.from_rows, rows.A, rows.B)
        limit = _limit(design, rows.A.T @ rows.B, equations, mean_x=rows.mean_x, mean_y=rows.mean_y)
    if not has_uniform:
        return limit
    train_rows, unit = standardise(problem, threads)
    return _add_uniform(limit, train_rows, unit, problem.means[0], design=design, threads=threads)


def limit_of_moments(moments: Moments, design: Design) -> Members:
    """Exact mean of infinitely many determinantal members from moments on the host, without uniform
    members.
    """
    if design.scheme_weights is None and design.process is None:
        (scheme,) = _schemes(design)
        design = replace(design, process=(_process_of_moments(moments, scheme),))
    equations = partial(NormalEquations.from_gram, moments.G, moments.C)
    return _limit(design, moments.C, equations, mean_x=moments.mean_x, mean_y=moments.mean_y)


def _limit(
    design: Design,
    C: Array,
    equations: Callable[[Array], NormalEquations],
    *,
    mean_x: Array,
    mean_y: Array,
) -> Members:
    """Limit from the centred products C = X'y and ``equations(prior_variances)``."""
    if design.scheme_weights is None:
        assert design.process is not None
        return limit_members(design.process[0].mean_coefficients(C), mean_x, mean_y)
    assert design.prior_variances is not None and design.penalties is not None
    coef = np.zeros(C.shape)
    for weight, prior_variances, penalty in zip(
        design.scheme_weights, design.prior_variances, design.penalties, strict=False
    ):
        coef += weight * solve(equations(prior_variances), np.array([penalty]))[0]
    return limit_members(coef, mean_x, mean_y)


def n_uniform_members(weight: float) -> int:
    """Number of uniform members that are drawn in an infinite ensemble: in proportion to their
    weight, and at least 100.
    """
    return max(100, round(1000 * weight))


def drawable(data: TrainingData, design: Design) -> Design:
    """Complete a design for drawing: its determinantal process is computed now if the limit did not
    need it.
    """
    if design.sampling != "determinantal" or design.process is not None:
        return design
    return replace(design, process=process_of(data, design))


def _add_uniform(
    limit: Members,
    train: Standardised,
    unit: Array,
    mean_x: Array,
    *,
    design: Design,
    threads: Threads,
) -> Members:
    """Add the weighted mean of drawn uniform members, as they were judged in the folds."""
    weight = design.uniform_weight
    features, _ = design.uniform.draw(0, n_uniform_members(weight), threads.without_blas)
    mean_coef = member_sum(
        features, solve_members(train, features, design.uniform_penalty, threads)
    ) / len(features)
    coef = limit.coef + weight * train.copies.mean_coef(mean_coef) / unit[:, None]
    return limit_members(coef, mean_x, limit.mean_y)
