"""Determinantal processes of a design, and the limit of infinitely many members.

Rows in memory are preferred to moments, because moments square the condition number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.implicit import ImplicitRows, stays_implicit
from .._data.moment_data import MomentData
from .._data.moments import Moments
from .._data.rows import RowData, Submatrix
from .._data.standardised import (
    Standardised,
    StandardisedRows,
    standardise,
    standardised_moments,
)
from .._data.training import TrainingData
from .._execution.threads import Threads, one_blas_thread
from ..subsets import Design, Determinantal
from .mean import Members, by_target, member_sum
from .penalised import (
    MIN_BATCHED_TARGETS,
    NormalEquations,
    limit_members,
    solve,
    solve_members,
    solve_penalised,
)

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


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
    train: Standardised
    if problem is None:
        moments = data.total_moments()
        limit = limit_of_moments(moments, design)
        if not has_uniform:
            return limit
        train, unit = standardised_moments(moments)
        return _with_uniform(limit, moments.mean_x, train, unit, design=design, threads=threads)
    if design.scheme_weights is None and design.process is None:
        design = replace(design, process=process_of(data, design, draws=False))
    if design.scheme_weights is not None and stays_implicit(problem):
        return _limit_of_implicit_rows(problem, design, threads)
    if problem.has_moments:
        limit = limit_of_moments(problem.moments, design)
    else:
        part = _all_rows(problem)
        rows = StandardisedRows(part.A, part.B, part.root, problem.null_rank)
        equations = partial(NormalEquations.from_rows, rows)
        limit = _limit(design, rows.C, equations, mean_x=part.mean_x, mean_y=part.mean_y)
    if not has_uniform:
        return limit
    train, unit = standardise(problem, threads)  # as in the folds
    return _with_uniform(limit, problem.means[0], train, unit, design=design, threads=threads)


def limits_of(data: TrainingData, designs: list[Design], threads: Threads) -> Members:
    """Exact mean of infinitely many members of mixtures, one design for each target of the data.

    With many targets, all determinantal schemes are solved together from standardised columns, and
    targets whose uniform members are drawn alike share their factors.
    """
    if len(designs) == 1:
        return limit_of(data, designs[0], threads)
    rows = data.host_rows
    if len(designs) < MIN_BATCHED_TARGETS or (rows is not None and stays_implicit(rows)):
        parts = [_only_target(data, t) for t in range(len(designs))]
        return by_target(
            [limit_of(part, design, threads) for part, design in zip(parts, designs, strict=True)]
        )
    problem = data.host_rows
    train: Standardised
    if problem is None or problem.has_moments:
        moments = data.total_moments()
        train, unit = standardised_moments(moments)
        means = moments.mean_x, moments.mean_y
    else:
        train, unit = standardise(problem, threads)
        means = problem.means
    coef = _determinantal_coefs(train, unit, designs)
    for targets, count in _groups_of_uniform_members(designs):
        coef[:, targets] += _uniform_coefs(train, unit, targets, count, designs, threads=threads)
    return limit_members(coef, *means)


def _only_target(data: TrainingData, t: int) -> TrainingData:
    """The data with one of several targets."""
    one = slice(t, t + 1)
    rows = data.host_rows
    if rows is not None:
        return rows.targets_at(one)
    return MomentData.from_moments([data.total_moments().targets_at(one)])


def _determinantal_coefs(train: Standardised, unit: Array, designs: list[Design]) -> Array:
    """Coefficients (p, q) of the determinantal schemes of all targets, times their weights."""
    coef = np.zeros((len(unit), len(designs)))
    targets = []
    weights = []
    variances = []
    penalties = []
    for t, design in enumerate(designs):
        assert design.prior_variances is not None and design.penalties is not None
        assert design.scheme_weights is not None
        n_schemes = len(design.prior_variances)
        targets += [t] * n_schemes
        weights += design.scheme_weights[:n_schemes].tolist()
        variances += [of_scheme * unit**2 for of_scheme in design.prior_variances]
        penalties += design.penalties.tolist()
    if not targets:
        return coef
    of_schemes = train.targets_at(np.array(targets))
    solved = solve_penalised(of_schemes, np.stack(variances, axis=1), np.array([penalties]), 0.0)
    np.add.at(coef.T, np.array(targets), (solved[0] * weights / unit[:, None]).T)
    return coef


def _groups_of_uniform_members(designs: list[Design]) -> Iterator[tuple[Indices, Indices]]:
    """Targets whose uniform members are drawn from the same columns, and how many each of them has."""
    groups: dict[tuple[Any, bytes], list[int]] = {}
    for t, design in enumerate(designs):
        if design.uniform_weight > 0:
            drawn_columns = design.drawn_columns
            order = b"" if drawn_columns is None else drawn_columns.columns.tobytes()
            drawn = (design.max_features, design.uniform_penalty)
            groups.setdefault((drawn, order), []).append(t)
    for targets in groups.values():
        count = [n_uniform_members(designs[t].uniform_weight) for t in targets]
        yield np.array(targets), np.array(count)


def _uniform_coefs(
    train: Standardised,
    unit: Array,
    targets: Indices,
    count: Indices,
    designs: list[Design],
    *,
    threads: Threads,
) -> Array:
    """Coefficients (p, targets) of uniform members times their weight, as they were judged in the
    folds.
    """
    design = designs[targets[0]]
    features, _ = design.uniform.draw(0, int(count.max()), threads.without_blas)
    solved = solve_members(train.targets_at(targets), features, design.uniform_penalty, threads)
    coefs = []
    for i, n_members in enumerate(count.tolist()):
        first = features.take(np.arange(n_members))
        weight = designs[targets[i]].uniform_weight
        total = member_sum(first, solved[: first.indptr[-1], i : i + 1])
        coefs.append(weight * total / n_members)
    return train.copies.mean_coef(np.concatenate(coefs, axis=1)) / unit[:, None]


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


def _with_uniform(
    limit: Members,
    mean_x: Array,
    train: Standardised,
    unit: Array,
    *,
    design: Design,
    threads: Threads,
) -> Members:
    """Add the weighted mean of drawn uniform members to a limit, for all targets of a design."""
    targets = np.arange(limit.coef.shape[1])
    count = np.full(len(targets), n_uniform_members(design.uniform_weight))
    designs = [design] * len(targets)
    uniform = _uniform_coefs(train, unit, targets, count, designs, threads=threads)
    return limit_members(limit.coef + uniform, mean_x, limit.mean_y)


def _limit_of_implicit_rows(problem: RowData, design: Design, threads: Threads) -> Members:
    """Limit of the schemes of a mixture, and drawn uniform members, from rows that stay implicit."""
    rows, unit = ImplicitRows.of(problem)

    def equations(prior_variances: Array) -> NormalEquations:
        return NormalEquations.from_rows(rows, prior_variances * unit**2)

    mean_x, mean_y = problem.means
    limit = _limit(design, rows.C, equations, mean_x=np.zeros(len(unit)), mean_y=mean_y)
    limit = limit_members(limit.coef / unit[:, None], mean_x, mean_y)
    if not design.uniform_weight > 0:
        return limit
    return _with_uniform(limit, mean_x, rows, unit, design=design, threads=threads)
