"""Members of an ordinary array as tasks of a cluster: what ``joblib.parallel_config("dask")`` asks for.

========================  ==============================================================================
solver                    sent to every worker, once, with the subsets
========================  ==============================================================================
gram                      moments, made here: 8 p^2 bytes whatever the number of rows
others                    X, Y and weights
========================  ==============================================================================

Members whose Gram matrix is not to be trusted are a second round of tasks, on the rows. A chunk chooses between the
compiled kernel and the complement form by its own size, so results equal those of threads to rounding.
``masked_cg`` is one matrix iteration over all members and stays with the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joblib
import numpy as np

from .. import _members
from .._execution.threads import Report, Sharing
from .._members import Problem, Solution, gram
from .._moments import Moments
from ..subsets import Subsets
from .memory import Memory

__all__ = ["Tasks"]

CHUNKS = 4  # for every core of the cluster, so that uneven ones even out
BY_ROWS = ("member_gram", "orthogonal", "interpolator")


def _run_as_tasks(
    name: str, problem: Problem, features: Subsets, samples: Subsets | None, sharing: Sharing
) -> Solution:
    k = len(features)
    if name in BY_ROWS and k:
        return _joined(_map_tasks(_from_rows, (name, problem, features, samples), k, sharing.report))
    if name != "gram" or not k:
        return _members.run_here(name, problem, features, samples, sharing)
    solution = _joined(_map_tasks(_from_moments, (problem.moments_by(sharing), features), k, sharing.report))
    again = np.flatnonzero(solution.refitted)
    if len(again):
        part = _run_as_tasks("orthogonal", problem, features.take(again), None, sharing.quiet())
        solution.put(again, features.sizes, part, refitted=True)
    return solution


class Tasks(Memory):
    """Arrays in memory whose members are solved by the workers of a cluster."""

    @staticmethod
    def run(name: str, problem: Problem, features: Subsets, samples: Subsets | None, sharing: Sharing) -> Solution:
        """Call a solver by its name, in tasks."""
        return _run_as_tasks(name, problem, features, samples, sharing)


def _from_rows(
    name: str, problem: Problem, features: Subsets, samples: Subsets | None, start: int, stop: int
) -> Solution:
    rows = None if samples is None else samples.slice(start, stop)
    return _members.run_here(name, problem, features.slice(start, stop), rows, Sharing())


def _from_moments(moments: Moments, features: Subsets, start: int, stop: int) -> Solution:
    return gram.from_moments(moments, features.slice(start, stop), Sharing())


def _joined(parts: list[Solution]) -> Solution:
    return Solution(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.intercepts for part in parts]),
        np.concatenate([part.refitted for part in parts]),
        parts[0].solver,
    )


def _map_tasks(function: Callable[..., Any], shared: tuple[Any, ...], n_items: int, report: Report | None) -> list[Any]:
    """Call ``function(*shared, start, stop)`` on consecutive chunks of ``range(n_items)`` as tasks; results in order.

    What is shared goes to all workers beforehand. Joblib would send it to one, and lose it with that one.
    """
    backend, _ = joblib.parallel.get_active_backend()
    (sent,) = backend.client.scatter([shared], broadcast=True, hash=False)
    size = -(-n_items // (CHUNKS * joblib.effective_n_jobs(-1)))
    bounds = [(start, min(start + size, n_items)) for start in range(0, n_items, size)]
    run = joblib.Parallel(batch_size=1, pre_dispatch="all", return_as="generator")
    results = []
    for result in run(joblib.delayed(_chunk)(function, sent, *edges) for edges in bounds):
        results.append(result)
        if report:
            report(bounds[len(results) - 1][1])
    return results


def _chunk(function: Callable[..., Any], shared: tuple[Any, ...], start: int, stop: int) -> Any:
    return function(*shared, start, stop)
