"""Threads over members.

Members are independent and their kernels release the interpreter lock, so plain threads are enough: no data is copied
and no process is started. The BLAS library is held to one thread meanwhile; otherwise every thread would start its own
set of BLAS threads and they would fight for the cores.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import TypeVar

import joblib
from threadpoolctl import ThreadpoolController

from .cores import free_thread, place_apart

__all__ = ["backend_is_dask", "count_threads", "in_order", "inside_dask_task", "map_chunks", "one_blas_thread"]

S = TypeVar("S")
T = TypeVar("T")


def count_threads(n_jobs: int | None) -> int:
    """Threads meant by `n_jobs`, with scikit-learn's meaning of None and of negative numbers.

    Joblib's Dask backend counts the cores of the cluster, which are not those of this machine.
    """
    found = joblib.effective_n_jobs(n_jobs)
    if found > 1 and backend_is_dask():
        return 1 if inside_dask_task() else min(found, joblib.cpu_count())
    return found


def backend_is_dask() -> bool:
    """Whether ``joblib.parallel_config("dask")`` is in force."""
    backend, _ = joblib.parallel.get_active_backend()
    return type(backend).__module__ == "joblib._dask"


def inside_dask_task() -> bool:
    """Whether this is running on a worker of a cluster."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # finding the loaded libraries takes milliseconds, so it is done once


def one_blas_thread():
    """Context in which BLAS uses one thread."""
    return _blas_threads(1)


def _blas_threads(count: int):
    return _controller().limit(limits=count, user_api="blas")


def map_chunks(
    function: Callable[[int, int], T],
    n_items: int,
    n_threads: int,
    *,
    chunk: int | None = None,
    report: Callable[[int], None] | None = None,
    blas_threads: bool = False,
    uses_blas: bool = True,
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
        Chunks one after the other, each with `n_threads` threads of BLAS (with one: as many as BLAS likes): for work
        that is a few large products.
    uses_blas : bool, default=True
        Whether the work calls BLAS, which is then held to one thread. Setting that takes milliseconds, more than many
        a batch in the compiled kernels.
    """
    hold = _hold_blas(n_threads, blas_threads, uses_blas)
    if blas_threads:
        n_threads = 1
    size = chunk or max(1, -(-n_items // (4 * n_threads if n_threads > 1 or report else 1)))
    bounds = [(start, min(start + size, n_items)) for start in range(0, n_items, size)]
    with hold:
        if n_threads > 1 and len(bounds) > 1:
            return _share(function, bounds, min(n_threads, len(bounds)), report)
        results = []
        for start, stop in bounds:
            results.append(function(start, stop))
            if report:
                report(stop)
        return results


def _hold_blas(n_threads, blas_threads, uses_blas):
    """Context for BLAS while chunks run."""
    if blas_threads:
        return _blas_threads(n_threads) if n_threads > 1 else nullcontext()
    return one_blas_thread() if uses_blas else nullcontext()


def _share(function, bounds, n_threads, report):
    """Chunks handed out to the pool's threads and to the calling one, which works too and reports."""
    results = [None] * len(bounds)
    todo = iter(enumerate(bounds))  # an iterator hands out each item once, also among threads
    finished = itertools.count(1)

    def drain(tell, cores=None):
        free_thread(cores)
        for i, (start, stop) in todo:
            results[i] = function(start, stop)
            done = next(finished)
            if tell:
                tell(min(done * (bounds[0][1] - bounds[0][0]), bounds[-1][1]))

    pool, members = _pool(n_threads - 1)
    cores = place_apart(members)
    others = [pool.submit(drain, None, cores) for _ in range(n_threads - 1)]
    drain(report)
    for other in others:
        other.result()
    if report:
        report(bounds[-1][1])
    return results


def in_order(function: Callable[[S], T], items: Iterable[S], n_threads: int, lane: Callable[[S], int]) -> Iterator[T]:
    """Results of ``function(item)``, in the order of the items, which are taken only a few ahead.

    Items of one lane are worked on one after the other, in their order; different lanes side by side. With one thread
    BLAS may use its own.
    """
    if n_threads == 1:
        yield from map(function, items)
        return

    def work(item, before):
        if before is not None:
            before.result()  # was handed to the threads before this one, so it is at work or done
        return function(item)

    last: dict[int, Future] = {}
    waiting: deque[Future] = deque()
    with one_blas_thread(), ThreadPoolExecutor(n_threads) as threads:
        for item in items:
            key = lane(item)
            last[key] = threads.submit(work, item, last.get(key))
            waiting.append(last[key])
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@cache
def _pool(n_threads: int) -> tuple[ThreadPoolExecutor, list[int]]:
    """Threads that are kept, because starting them takes as long as a small ensemble, and their native numbers."""
    numbers: list[int] = []

    def note_number():
        numbers.append(threading.get_native_id())

    return ThreadPoolExecutor(n_threads, thread_name_prefix="olsen", initializer=note_number), numbers


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
