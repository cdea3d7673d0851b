"""Members of an ordinary array as tasks of a cluster.

========================  ==============================================================================
solver                    sent to every worker, once, with the subsets
========================  ==============================================================================
gram                      moments, made here: 8 p^2 bytes whatever the number of rows
others                    X, Y and weights
========================  ==============================================================================

Members whose Gram matrix is not to be trusted are a second round of tasks, on the rows. A chunk chooses between the
compiled kernel, LAPACK and the complement form by its own size, so results equal those of threads to rounding.
``masked_cg`` is one matrix iteration over all members and stays with the caller.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from .._execution import pools, tasks
from . import gram, interpolator, orthogonal
from .problem import Problem, Solution

__all__ = ["SPREAD", "solve"]

_BY_ROWS = {"member_gram": gram.solve_own, "orthogonal": orthogonal.solve, "interpolator": interpolator.solve}
_ALONE = partial(pools.map_chunks, n_threads=1)
SPREAD = ("gram", *_BY_ROWS)


def solve(name: str, problem: Problem, features, samples, mapper) -> Solution:
    """The members by the solver `name`, one of `SPREAD`."""
    k, report = len(features), mapper.keywords.get("report")
    if name != "gram":
        return _joined(tasks.map_chunks(_from_rows, (name, problem, features, samples), k, report))
    solution = _joined(tasks.map_chunks(_from_moments, (problem.moments_by(mapper), features), k, report))
    again = np.flatnonzero(solution.refitted)
    if len(again):
        part = solve("orthogonal", problem, features.take(again), None, partial(mapper, report=None))
        solution.put(again, features.sizes, part, refitted=True)
    return solution


def _from_rows(name, problem, features, samples, start, stop):
    rows = None if samples is None else samples.slice(start, stop)
    return _BY_ROWS[name](problem, features.slice(start, stop), rows, _ALONE)


def _from_moments(moments, features, start, stop):
    return gram.from_moments(moments, features.slice(start, stop), _ALONE)


def _joined(parts):
    return Solution(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.intercepts for part in parts]),
        np.concatenate([part.refitted for part in parts]),
        parts[0].solver,
    )
