"""Determinantal members of data wherever they are: what these are drawn from, and the limit of infinitely many."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.blas_threads import one_blas_thread
from .._members import Members, Problem
from .._members.deletions import rows_of
from .._members.limit import limit_members
from .._moments import Moments, centred_rows, weighted_mean
from .._trust import constant_columns
from ..subsets import Design, Determinantal

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["limit_of", "limit_of_moments", "process_of"]

FEW = 500  # columns or rows whose eigenvectors one thread finds in the time that others would spin


def process_of(engine: Engine, design: Design, *, draws: bool) -> Determinantal:
    """What determinantal members are drawn from: products of the columns, or the rows where those are fewer.

    Threads of BLAS would go on spinning for milliseconds and take the cores from those that draw.
    """
    with one_blas_thread() if min(design.n_rows, design.n_columns) <= FEW else nullcontext():
        found = _process_of(engine, design)
        if draws:
            assert len(found.vectors)
        return found


def _process_of(engine: Engine, design: Design) -> Determinantal:
    if engine.problem is None or not engine.problem.space.on_host:
        return _trusted(Determinantal.from_gram(engine.sums().G, design.expected_size))
    problem, _ = engine.problem.in_units
    if problem.shape[1] <= problem.shape[0]:
        with suppress(ValueError):  # a rank that products of columns do not tell
            process = Determinantal.from_gram(problem.moments.G, design.expected_size)
            if not process.doubtful:
                return process
    return Determinantal.from_rows(_rows_about_means(problem), design.expected_size)


def _trusted(process: Determinantal) -> Determinantal:
    if process.doubtful:
        raise ValueError(
            f"determinantal members of {process.chances.sum():g} columns on average need directions of the columns "
            f"that products of them do not tell apart from rounding, and only these products are kept of data in "
            f"blocks, on a cluster or on a device. Use a smaller max_features, or load X as an array in memory."
        )
    return process


def limit_of(engine: Engine, design: Design) -> Members:
    """Infinitely many members of a determinantal design: their exact mean, from sums over the rows there are."""
    if engine.problem is None:
        return limit_of_moments(engine.sums(), design)
    process = process_of(engine, design, draws=False) if design.process is None else design.process
    problem, units = engine.problem.in_units
    if problem.has_moments:
        found = limit_of_moments(problem.moments, replace(design, process=process))
    else:
        rows = rows_of(problem)
        y = (problem.Y - rows.mean_y) * np.sqrt(rows.weight)[:, None]
        found = limit_members(process, _rows_about_means(problem).T @ y, rows.mean_x, rows.mean_y)
    return replace(
        found, coef=units.coefficients(found.coef), intercept=found.intercept * units.y, mean_y=found.mean_y * units.y
    )


def limit_of_moments(moments: Moments, design: Design) -> Members:
    """The same from moments on the host."""
    process = design.process
    if process is None:
        process = _trusted(Determinantal.from_gram(moments.G, design.expected_size))
    return limit_members(process, moments.C, moments.mean_x, moments.mean_y)


def _rows_about_means(problem: Problem) -> NDArray[np.float64]:
    """All rows, dense, times the roots of their weights; zeros in constant columns."""
    X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    if not problem.fit_intercept:
        return np.asarray(X if problem.weight is None else X * np.sqrt(problem.weight)[:, None], dtype=np.float64)
    mean, weight = weighted_mean(problem.X, problem.weight), problem.weight
    Z, _ = centred_rows(X, problem.Y, weight, mean, np.zeros(problem.Y.shape[1]), np.empty(X.shape))
    total = float(len(Z) if weight is None else weight.sum())
    Z[:, constant_columns(np.einsum("lj,lj->j", Z, Z), mean, total)] = 0.0
    return Z
