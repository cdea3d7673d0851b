"""Threads over members.

Members are independent and their kernels release the interpreter lock, so plain threads are enough: no data is copied
and no process is started. The BLAS library is held to one thread meanwhile; otherwise every thread would start its own
set of BLAS threads and they would fight for the cores.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import TypeVar

import joblib
from threadpoolctl import ThreadpoolController

__all__ = ["count_threads", "map_chunks", "one_blas_thread"]

T = TypeVar("T")


def count_threads(n_jobs: int | None) -> int:
    """Threads meant by `n_jobs`, with scikit-learn's meaning of None and of negative numbers."""
    return joblib.effective_n_jobs(n_jobs)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finding the loaded libraries takes milliseconds, so it is done once


def one_blas_thread():
    """Context in which BLAS uses one thread."""
    return _controller().limit(limits=1, user_api="blas")


def map_chunks(
    function: Callable[[int, int], T],
    n_items: int,
    n_threads: int,
    *,
    chunk: int | None = None,
    report: Callable[[int], None] | None = None,
    blas_threads: bool = False,
) -> list[T]:
    """Call ``function(start, stop)`` on consecutive chunks of ``range(n_items)``; results in order.

    Parameters
    ----------
    function : callable
        Works on items ``start`` to ``stop``; what it returns must not depend on where chunks are cut.
    n_items : int
        Number of items.
    n_threads : int
        Threads to use.
    chunk : int, default=None
        Items in a chunk; by default four chunks a thread, so that uneven items even out.
    report : callable, default=None
        Called with the number of finished items after every chunk, from the calling thread.
    blas_threads : bool, default=False
        Chunks one after the other, each with all threads of BLAS: for work that is a few large products.
    """
    if blas_threads:
        n_threads = 1
    size = chunk or max(1, -(-n_items // (4 * n_threads if n_threads > 1 or report else 1)))
    bounds = [(start, min(start + size, n_items)) for start in range(0, n_items, size)]
    results = []
    with nullcontext() if blas_threads else one_blas_thread():
        if n_threads == 1 or len(bounds) == 1:
            for start, stop in bounds:
                results.append(function(start, stop))
                if report:
                    report(stop)
            return results
        with ThreadPoolExecutor(n_threads) as pool:
            for (_, stop), result in zip(bounds, pool.map(lambda b: function(*b), bounds), strict=True):
                results.append(result)
                if report:
                    report(stop)
    return results
