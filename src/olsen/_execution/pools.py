"""Threads over members.

Members are independent and their kernels release the interpreter lock, so plain threads are enough: no data is copied
and no process is started. The BLAS library is held to one thread meanwhile; otherwise every thread would start its own
set of BLAS threads and they would fight for the cores.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from typing import TypeVar

import joblib

from . import kept_threads
from .blas_threads import blas_threads as limit_blas
from .blas_threads import one_blas_thread

__all__ = ["backend_is_dask", "count_threads", "in_order", "inside_dask_task", "map_chunks"]

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
        Whether the work calls BLAS, which is then held to one thread.
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
        return limit_blas(n_threads if n_threads > 1 else None)
    return one_blas_thread() if uses_blas else nullcontext()


def _share(function, bounds, n_threads, report):
    """Chunks handed out to the pool's threads and to the calling one, which works too and reports."""
    results = [None] * len(bounds)
    todo = iter(enumerate(bounds))  # an iterator hands out each item once, also among threads
    finished = itertools.count(1)

    def drain(tell=None):
        for i, (start, stop) in todo:
            results[i] = function(start, stop)
            done = next(finished)
            if tell:
                tell(min(done * (bounds[0][1] - bounds[0][0]), bounds[-1][1]))

    others = kept_threads.submit(drain, n_threads - 1)
    try:
        drain(report)
    finally:
        for _ in todo:
            pass  # after an error nothing more is handed out
        begun = [other for other in others if not other.cancel()]  # busy threads need not come any more
        wait(begun)
    for other in begun:
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
    close: Callable[[], None] = getattr(items, "close", lambda: None)
    with ExitStack() as source, one_blas_thread(), ThreadPoolExecutor(n_threads) as threads:
        source.callback(close)
        for item in items:
            key = lane(item)
            last[key] = threads.submit(work, item, last.get(key))
            waiting.append(last[key])
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
