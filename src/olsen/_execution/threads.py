"""Threads over members, and the number of threads that BLAS uses meanwhile.

Members are independent and their kernels release the interpreter lock, so plain threads are enough:
no data is copied and no process is started. BLAS is limited to one thread meanwhile; otherwise
every thread would start its own set of BLAS threads, and all would compete for the cores.

The calling thread always works too, and pooled threads join when free. So no call waits for threads
that are busy elsewhere. If no thread can be started (the interpreter is ending, or the system has
none left), the caller does all the work.

**BLAS.** NumPy's and SciPy's OpenBLAS has one number of threads for the entire process. All our
limits are therefore kept in one table and the most recent applies; the original value is restored
when the last limit is released. OpenBLAS built on OpenMP has a number for each thread instead:
there only the calling thread is limited.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import joblib
from threadpoolctl import ThreadpoolController

from . import memory
from .caching import cached_property as cached_property  # for importers from before the move

T = TypeVar("T")
Report = Callable[[int], None]  # called with the number of finished items


_blas_is_single = ContextVar(
    "_blas_is_single", default=False
)  # whether the caller is inside a limit to one thread


def count_threads(n_jobs: int | None) -> int:
    """Number of threads for `n_jobs`, with scikit-learn's meaning of None and of negative numbers.

    Joblib's Dask backend counts the cores of the cluster; the result is then at most the number of
    local cores.
    """
    n_threads = int(joblib.effective_n_jobs(n_jobs))
    on_cluster = n_threads > 1 and hasattr(joblib.parallel.get_active_backend()[0], "client")
    return min(n_threads, int(joblib.cpu_count())) if on_cluster else n_threads


def room_for_a_thread() -> bool:
    """Whether there is memory for the stack and the work of one more thread.

    That is 32 MiB. If a new thread cannot allocate memory before it has signalled its start, the
    starting thread waits for ever.
    """
    return memory.available_bytes() > 1 << 25


@dataclass(frozen=True)
class Threads:
    """Work on chunks of items: ``threads(function, n_items)`` returns all ``function(start, stop)``
    in order.

    Parameters
    ----------
    n_threads : int, default=1
        Number of threads, including the calling thread.
    report : callable, default=None
        Called with the number of finished items after every chunk of the calling thread, from that
        thread.
    """

    n_threads: int = 1
    report: Report | None = None

    def __call__(
        self,
        function: Callable[[int, int], T],
        n_items: int,
        /,
        *,
        chunk: int | None = None,
        uses_blas: bool = True,
    ) -> list[T]:
        """Results of ``function(start, stop)``, which must not depend on the division into chunks.

        After an error or a keyboard interrupt no further chunk is begun, and the error is raised as
        soon as the running chunks have ended.

        Parameters
        ----------
        function : callable
            Works on items ``start`` to ``stop``.
        n_items : int
            Number of items.
        chunk : int, default=None
            Items in a chunk. By default a chunk takes about a tenth of a second, which every thread
            estimates from its first item, and there are at least four chunks per thread, so that
            uneven items balance.
        uses_blas : bool, default=True
            Whether the work calls BLAS, which is then limited to one thread.
        """
        n_chunks = 4 * self.n_threads if self.n_threads > 1 or self.report else 1
        max_chunk = chunk or max(1, -(-n_items // n_chunks))
        with one_blas_thread() if uses_blas else nullcontext():
            return _map_chunks(
                function,
                n_items,
                first_chunk=chunk or 1,
                max_chunk=max_chunk,
                n_threads=self.n_threads,
                report=self.report,
            )

    def quiet(self) -> Threads:
        """Threads without reports, for intermediate steps of a reported task."""
        return replace(self, report=None) if self.report else self

    def without_blas(self, function: Callable[[int, int], T], n_items: int, /) -> list[T]:
        """Results of work that calls no BLAS, so that BLAS need not be limited; a threads in the
        sense of `subsets`.

        There are eight chunks for any number of threads: such work competes for the interpreter
        lock, and on 16 cores many chunks took twice the time of eight.
        """
        return self.quiet()(function, n_items, chunk=-(-n_items // 8) or 1, uses_blas=False)

    def blas(self) -> AbstractContextManager[None]:
        """Context in which BLAS uses `n_threads` threads (no limit if that is one), for a few large
        products.
        """
        return blas_threads(self.n_threads if self.n_threads > 1 else None)


def _map_chunks(
    function: Callable[[int, int], T],
    n_items: int,
    *,
    first_chunk: int,
    max_chunk: int,
    n_threads: int,
    report: Report | None,
) -> list[T]:
    """Work on chunks of `first_chunk` items at first and at most `max_chunk`, in the calling and in
    pooled threads.
    """
    lock = threading.Lock()
    results: dict[int, T] = {}
    helpers: list[Future[None]] = []
    begun = done = reported = 0  # numbers of items

    def take_chunks(report: Report | None = None) -> None:
        nonlocal begun, done, reported
        size = first_chunk
        try:
            while True:
                with lock:
                    start = begun
                    begun = min(begun + size, n_items)
                    stop = begun
                if start == stop:
                    return
                clock = time.perf_counter()
                results[start] = function(start, stop)
                seconds = time.perf_counter() - clock
                with lock:
                    done += stop - start
                if report:
                    reported = done
                    report(reported)
                # compiled work cannot be interrupted, and Ctrl-C should work at once
                items_in_time = int((stop - start) * 0.1 / max(seconds, 1e-9))
                size = max(first_chunk, min(max_chunk, items_in_time))
        finally:
            begun = n_items  # after an error no chunk is begun

    n_helpers = min(n_threads, -(-n_items // max_chunk)) - 1
    try:
        while len(helpers) < n_helpers and _submit(take_chunks, helpers):
            pass
        take_chunks(report)
    finally:
        running = [helper for helper in helpers if not helper.cancel()] if helpers else helpers
        try:
            wait(running)
        except (
            BaseException
        ):  # a first interrupt is raised after the helpers have ended, a second one at once
            wait(running)
            raise
    for helper in running:
        helper.result()  # raises the error of the helper, if any
    if report and reported < done:
        report(done)
    return list(map(results.__getitem__, sorted(results)))


_max_helpers = 0  # largest number of helpers ever requested at once


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(4, os.cpu_count() or 1), thread_name_prefix="olsen")


def _submit(function: Callable[[], None], helpers: list[Future[None]]) -> bool:
    """Queue a function for a pooled thread, in the context of the calling thread; False if there is
    no thread.
    """
    global _max_helpers
    if len(helpers) >= _max_helpers and not room_for_a_thread():
        return False
    try:
        helpers.append(_pool().submit(copy_context().run, function))
    except RuntimeError:  # the interpreter is ending, or the system has no more threads
        return False
    _max_helpers = max(_max_helpers, len(helpers))
    return True


@functools.cache
def _libraries() -> list[Any]:
    """BLAS libraries in threadpoolctl's view, looked up once because that takes milliseconds."""
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in controllers if library.get_num_threads() is not None]


_lock = threading.Lock()
_limits: dict[object, int | None] = {}  # active limits, the latest at the end
# libraries, and their numbers of threads before the first limit
_original: list[tuple[Any, int]] = []


@contextmanager
def blas_threads(count: int | None) -> Iterator[None]:
    """Context in which BLAS uses `count` threads; None means the number before any limit of ours."""
    limit = object()
    was_single = _blas_is_single.get()
    try:
        _blas_is_single.set(count == 1)
        with _lock:
            if not _limits:
                _original[:] = [(library, library.get_num_threads()) for library in _libraries()]
            _limits[limit] = count
            _apply_latest()
        yield
    finally:
        _blas_is_single.set(was_single)
        try:
            _leave(limit)
        except (
            BaseException
        ):  # a keyboard interrupt must not leave the limit in force for other threads
            _leave(limit)
            raise


def one_blas_thread() -> AbstractContextManager[None]:
    """Context in which BLAS uses one thread; does nothing inside another such context of the
    caller.
    """
    return nullcontext() if _blas_is_single.get() else blas_threads(1)


def _leave(limit: object) -> None:
    with _lock:
        _limits.pop(limit, None)
        _apply_latest()


def _apply_latest() -> None:
    """Set the number of BLAS threads to the latest limit, or to the original number without a
    limit.

    threadpoolctl 3.7 and later allows only the first thread to set the number of OpenBLAS, as long
    as that thread is alive, unless the controlling thread is cleared.
    """
    count = next(reversed(_limits.values()), None)
    for library, original_count in _original:
        if library.get_num_threads() != (count or original_count):
            clear_controlling_thread: Callable[..., None] = getattr(
                library, "clear_controlling_thread", lambda force: None
            )
            clear_controlling_thread(force=True)
            library.set_num_threads(count or original_count)
            clear_controlling_thread(force=True)


def _reset_in_child() -> None:
    """Reset the state in a forked child, which has none of its parent's threads and contexts."""
    global _max_helpers
    _max_helpers = 0
    _blas_is_single.set(False)
    _pool.cache_clear()
    if _limits:
        _limits.clear()
        _apply_latest()
    _lock.release()


if hasattr(os, "register_at_fork"):
    # Forking waits until no thread changes a limit: a lock inside threadpoolctl would stay locked
    # in the child.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_reset_in_child
    )
