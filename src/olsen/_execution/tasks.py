"""Chunks of work as tasks of the user's cluster: what ``joblib.parallel_config("dask")`` asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joblib

from . import pools

__all__ = ["map_chunks", "wanted"]

CHUNKS = 4  # for every core of the cluster, so that uneven ones even out


def wanted(n_jobs: int | None) -> bool:
    """Whether work is to be done by a Dask cluster. Not inside one of its tasks: there others share the cores."""
    return n_jobs != 1 and pools.backend_is_dask() and not pools.inside_dask_task()


def map_chunks(
    function: Callable, shared: tuple, n_items: int, report: Callable[[int], None] | None = None
) -> list[Any]:
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


def _chunk(function, shared, start, stop):
    return function(*shared, start, stop)
