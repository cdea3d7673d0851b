"""Determinantal members of data wherever they are: what these are drawn from, and the limit of infinitely many."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import Threads, one_blas_thread
from .._members import Members, Problem, gram
from .._members.mean import member_sum
from .._members.problem import Submatrix
from .._moments.moments import Moments
from .._tuning.arrangement import Copies, random_numbers
from .._tuning.fold_data import few_columns, standard_deviations, standardised_rows
from .._tuning.penalised import JITTER, System, limit_members
from ..subsets import Design, Determinantal

if TYPE_CHECKING:
    from .engine import Engine

Array = NDArray[np.float64]

UNIFORM_MEMBERS, FEWEST_UNIFORM = 1000, 100  # for their share of an infinite ensemble
FEW = 500  # columns or rows whose eigenvectors one thread finds in the time that others would spin


def process_of(engine: Engine, design: Design, *, draws: bool = True) -> tuple[Determinantal, ...]:
    """What determinantal members are drawn from: products of the columns, or the rows where those are fewer.

    Threads of BLAS would go on spinning for milliseconds and take the cores from those that draw.
    """
    with one_blas_thread() if min(design.n_rows, design.n_columns) <= FEW else nullcontext():
        found = tuple(_process_of(engine, how) for how in _laws(design))
        for process in found if draws else ():
            _ = process.vectors  # found here, with one thread
        return found


def _laws(design: Design) -> list[dict[str, Any]]:
    if design.spreads is None or design.penalties is None:
        return [{"size": design.expected_size}]
    return [{"spreads": d, "penalty": penalty} for d, penalty in zip(design.spreads, design.penalties, strict=True)]


def _process_of(engine: Engine, how: dict[str, Any]) -> Determinantal:
    if engine.problem is None or not engine.problem.space.on_host:
        return _of_moments(engine.moments(), how)
    problem = engine.problem
    if problem.shape[1] <= problem.shape[0]:
        with suppress(ValueError):  # a rank that products of columns do not tell
            process = Determinantal.from_gram(problem.moments.G, **how)
            if not process.doubtful:
                return process
    return Determinantal.from_rows(_all_rows(problem).A, **how)


def _of_moments(moments: Moments, how: dict[str, Any]) -> Determinantal:
    """What members are drawn from where only moments are known."""
    process = Determinantal.from_gram(moments.G, **how)
    return process if "penalty" in how else _trusted(process)  # a size in doubt is the user's, a penalty is ours


def _all_rows(problem: Problem) -> Submatrix:
    """All rows, dense, about their means and times the roots of their weights; zeros in constant columns."""
    return problem.submatrix(slice(None), None)


def _trusted(process: Determinantal) -> Determinantal:
    if process.doubtful:
        raise ValueError(
            f"determinantal members of {process.chances.sum():g} columns on average need directions that X'X cannot "
            f"distinguish from rounding error, and only X'X is kept for data in blocks, on a cluster or on a device. "
            f"Use a smaller max_features, or load X as an array in memory."
        )
    return process


def limit_of(engine: Engine, design: Design) -> Members:
    """Infinitely many members of determinantal laws: their exact mean, from sums over the rows there are.

    Of uniform members, where these have a share, there are some: see `UNIFORM_MEMBERS`.
    """
    moments = None  # moments that uniform members are solved from, as they were in folds
    if engine.problem is None:
        moments = engine.moments()
        found = limit_of_moments(moments, design)
    else:
        problem = engine.problem
        if design.shares is None and design.process is None:
            design = replace(design, process=process_of(engine, design, draws=False))
        if problem.has_moments:
            found = limit_of_moments(problem.moments, design)
        else:
            rows = _all_rows(problem)
            system = partial(System.from_rows, rows.A, rows.B)
            found = _limit(design, rows.A.T @ rows.B, system, rows.mean_x, rows.mean_y)
        if few_columns(problem.shape):
            moments = problem.moments_by(engine.options.quietly)
    share = 0.0 if design.shares is None else design.uniform_share
    if share == 0:
        return found
    if moments is not None:
        return _with_uniform_of_moments(found, moments, design, share, engine.options.quietly)
    assert engine.problem is not None
    return _with_uniform_of_rows(found, engine.problem, design, share, engine.options.quietly)


def limit_of_moments(moments: Moments, design: Design) -> Members:
    """The same from moments on the host, without uniform members."""
    if design.shares is None and design.process is None:
        (law,) = _laws(design)
        design = replace(design, process=(_of_moments(moments, law),))
    return _limit(design, moments.C, partial(System.from_gram, moments.G, moments.C), moments.mean_x, moments.mean_y)


def _limit(design: Design, C: Array, system: Callable[[Array], System], mean_x: Array, mean_y: Array) -> Members:
    """From products C = X'y about the means, and ``system(spreads)``."""
    if design.shares is None:
        assert design.process is not None
        return limit_members(design.process[0].mean_coefficients(C), mean_x, mean_y)
    assert design.spreads is not None and design.penalties is not None
    coef = np.zeros(C.shape)
    for share, spreads, penalty in zip(design.shares, design.spreads, design.penalties, strict=False):
        coef += share * system(spreads).coefficients(np.array([penalty]))[0]
    return limit_members(coef, mean_x, mean_y)


def uniform_members(share: float) -> int:
    """How many there are for their share of an infinite ensemble."""
    return max(FEWEST_UNIFORM, round(UNIFORM_MEMBERS * share))


def drawable(engine: Engine, design: Design) -> Design:
    """A design that members can be drawn of: what determinantal ones are drawn from is made where it was not needed."""
    if design.sampling != "determinantal" or design.process is not None:
        return design
    return replace(design, process=process_of(engine, design))


def _with_uniform_of_moments(
    limit: Members, moments: Moments, design: Design, share: float, sharing: Threads
) -> Members:
    """With the share of uniform members, whose mean has no closed form, in units of the columns.

    Members whose Gram matrix is not to be trusted get a little on its diagonal, as all of them had when their scheme
    was judged in folds. Solved from the data they could have coefficients of any size, and one in a thousand would do.
    """
    features, _ = design.uniform.draw(0, uniform_members(share), sharing.without_blas)
    unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
    scaled = replace(moments, G=moments.G / unit / unit[:, None], C=moments.C / unit[:, None])
    copies = Copies.of(scaled.G @ random_numbers(len(unit), 2))
    solution = gram.from_moments(scaled, features, sharing)
    again = np.flatnonzero(solution.refitted)
    if len(again):
        np.einsum("ii->i", scaled.G)[:] *= 1 + JITTER
        part = gram.from_moments(scaled, features.take(again), sharing)
        solution.put(again, features.sizes, part, refitted=True)
    uniform_coef = copies.mean_coef(member_sum(features, solution.values) / len(features)) / unit[:, None]
    coef = limit.coef + share * uniform_coef
    return replace(limit_members(coef, moments.mean_x, moments.mean_y), n_fallbacks=len(again))


def _with_uniform_of_rows(limit: Members, problem: Problem, design: Design, share: float, threads: Threads) -> Members:
    """The same from the rows, where these are few beside the columns."""
    features, _ = design.uniform.draw(0, uniform_members(share), threads.without_blas)
    rows, unit = standardised_rows(problem)
    solution = rows.solve_members(features, threads)
    uniform_coef = rows.copies.mean_coef(member_sum(features, solution.values) / len(features)) / unit[:, None]
    mean_x, mean_y = problem.means
    return replace(
        limit_members(limit.coef + share * uniform_coef, mean_x, mean_y), n_fallbacks=int(solution.refitted.sum())
    )
