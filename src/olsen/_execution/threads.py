"""Threads over members, and how many threads BLAS uses meanwhile.

Members are independent and their kernels release the interpreter lock, so plain threads are enough: no data is copied
and no process is started. BLAS is held to one thread meanwhile; otherwise every thread would start its own set of BLAS
threads and they would fight for the cores.

The calling thread always works too, and pooled threads join when they are free. So no call waits for threads that are
busy elsewhere, and where none can be had (the interpreter is ending, the system has no more) the caller does it all.

**BLAS.** NumPy's and SciPy's OpenBLAS has one number of threads for the whole process. So all our limits go
into one table and the most recent applies; the original value is restored when the last one is released.
OpenBLAS built on OpenMP has a number for each thread instead: there only the thread that asks is limited.
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

T = TypeVar("T")
Report = Callable[[int], None]  # called with the number of finished items

THREAD_BYTES = 1 << 25
CHUNK_SECONDS = 0.1  # compiled work cannot be interrupted, and Ctrl-C should work at once

_held = ContextVar("_held", default=False)  # whether the caller is within a limit to one thread


class cached_property(functools.cached_property[T]):
    """The same without a lock: that of Python 3.11 is one for all objects, and a child forked meanwhile waits for ever.

    Two threads may then compute a value twice, as from Python 3.12 on; either will do.
    """

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock: Any = nullcontext()


def count_threads(n_jobs: int | None) -> int:
    """Threads meant by `n_jobs`, with scikit-learn's meaning of None and of negative numbers.

    Joblib's Dask backend counts the cores of the cluster, which are not those of this machine.
    """
    found = int(joblib.effective_n_jobs(n_jobs))
    on_cluster = found > 1 and hasattr(joblib.parallel.get_active_backend()[0], "client")
    return min(found, int(joblib.cpu_count())) if on_cluster else found


def room_for_a_thread() -> bool:
    """Whether there is memory for one more thread, its stack and what it works on.

    A thread that cannot allocate before it has reported itself leaves whoever started it waiting for ever.
    """
    return memory.available_bytes() > THREAD_BYTES


@dataclass(frozen=True)
class Threads:
    """Call ``sharing(function, n_items)`` to have ``function(start, stop)`` called on chunks; results in order.

    Parameters
    ----------
    n_threads : int, default=1
        Threads to use, the calling one among them.
    report : callable, default=None
        Called with the number of finished items after every chunk of the calling thread, from that thread.
    """

    n_threads: int = 1
    report: Report | None = None

    def __call__(
        self, function: Callable[[int, int], T], n_items: int, /, *, chunk: int | None = None, uses_blas: bool = True
    ) -> list[T]:
        """Results of ``function(start, stop)``, which must not depend on where chunks are cut.

        After an error, also an interrupt from the keyboard, no chunk is begun any more, and it surfaces as soon as
        those at work have ended.

        Parameters
        ----------
        function : callable
            Works on items ``start`` to ``stop``.
        n_items : int
            Number of items.
        chunk : int, default=None
            Items in a chunk. By default as many as take about ``CHUNK_SECONDS``, which every thread finds out from a
            first item, and not more than make four chunks a thread, so that uneven items even out.
        uses_blas : bool, default=True
            Whether the work calls BLAS, which is then held to one thread.
        """
        parts = 4 * self.n_threads if self.n_threads > 1 or self.report else 1
        most = chunk or max(1, -(-n_items // parts))
        with one_blas_thread() if uses_blas else nullcontext():
            return _map_chunks(function, n_items, chunk or 1, most, self.n_threads, self.report)

    def quiet(self) -> Threads:
        """The same without reports: for steps on the way to what is reported."""
        return replace(self, report=None) if self.report else self

    def without_blas(self, function: Callable[[int, int], T], n_items: int, /) -> list[T]:
        """For work that calls no BLAS, which then need not be held to one thread: what `subsets` calls a mapper.

        Few chunks whatever the threads: such work takes turns at the interpreter, and on 16 cores many chunks took
        twice the time of eight.
        """
        return self.quiet()(function, n_items, chunk=-(-n_items // 8) or 1, uses_blas=False)

    def blas(self) -> AbstractContextManager[None]:
        """Context in which BLAS has these threads (with one: as many as it likes), for a few large products."""
        return blas_threads(self.n_threads if self.n_threads > 1 else None)


def _map_chunks(
    function: Callable[[int, int], T], n_items: int, first: int, most: int, n_threads: int, report: Report | None
) -> list[T]:
    """Chunks of `first` items to begin with and of at most `most`, by the calling thread and by pooled ones."""
    lock, results, helpers = threading.Lock(), dict[int, T](), list[Future[None]]()
    begun = done = reported = 0  # items

    def take_chunks(report: Report | None = None) -> None:
        nonlocal begun, done, reported
        size = first
        try:
            while True:
                with lock:
                    start, begun = begun, min(begun + size, n_items)
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
                size = max(first, min(most, int((stop - start) * CHUNK_SECONDS / max(seconds, 1e-9))))
        finally:
            begun = n_items  # after an error no chunk is begun

    try:
        while len(helpers) < min(n_threads, -(-n_items // most)) - 1 and _submit(take_chunks, helpers):
            pass
        take_chunks(report)
    finally:
        at_work = [helper for helper in helpers if not helper.cancel()] if helpers else helpers
        try:
            wait(at_work)
        except BaseException:  # a first interrupt surfaces after they have ended, a second one at once
            wait(at_work)
            raise
    for helper in at_work:
        helper.result()  # or its error
    if report and reported < done:
        report(done)
    return list(map(results.__getitem__, sorted(results)))


_most_helpers = 0  # that were ever asked for at once


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(4, os.cpu_count() or 1), thread_name_prefix="olsen")


def _submit(function: Callable[[], None], helpers: list[Future[None]]) -> bool:
    """Have a pooled thread call a function as if it were this one, when it is free; False if there is none."""
    global _most_helpers
    if len(helpers) >= _most_helpers and not room_for_a_thread():
        return False
    try:
        helpers.append(_pool().submit(copy_context().run, function))
    except RuntimeError:  # the interpreter is ending, or the system has no more threads
        return False
    _most_helpers = max(_most_helpers, len(helpers))
    return True


@functools.cache
def _libraries() -> list[Any]:
    """Of BLAS, as threadpoolctl sees them: looked up once, as that takes milliseconds."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in found if library.get_num_threads() is not None]


_lock = threading.Lock()
_limits: dict[object, int | None] = {}  # in force, the latest at the end
_before: list[tuple[Any, int]] = []  # libraries, and their numbers of threads before the first


@contextmanager
def blas_threads(count: int | None) -> Iterator[None]:
    """Context in which BLAS uses so many threads; None means as many as it had before any limit of ours."""
    limit, held = object(), _held.get()
    try:
        _held.set(count == 1)
        with _lock:
            if not _limits:
                _before[:] = [(library, library.get_num_threads()) for library in _libraries()]
            _limits[limit] = count
            _apply_latest()
        yield
    finally:
        _held.set(held)
        try:
            _leave(limit)
        except BaseException:  # an interrupt from the keyboard must not keep what others use
            _leave(limit)
            raise


def one_blas_thread() -> AbstractContextManager[None]:
    """Context in which BLAS uses one thread; nothing to do within another one of the caller's."""
    return nullcontext() if _held.get() else blas_threads(1)


def _leave(limit: object) -> None:
    with _lock:
        _limits.pop(limit, None)
        _apply_latest()


def _apply_latest() -> None:
    """threadpoolctl 3.7 on lets only one thread set the number of OpenBLAS, the first, as long as that is alive."""
    count = next(reversed(_limits.values()), None)
    for library, before in _before:
        if library.get_num_threads() != (count or before):
            let_others: Callable[..., None] = getattr(library, "clear_controlling_thread", lambda force: None)
            let_others(force=True)
            library.set_num_threads(count or before)
            let_others(force=True)


def _start_again() -> None:
    """A forked child has none of its parent's threads, and none of the contexts that they were in."""
    global _most_helpers
    _most_helpers = 0
    _held.set(False)
    _pool.cache_clear()
    if _limits:
        _limits.clear()
        _apply_latest()
    _lock.release()


if hasattr(os, "register_at_fork"):
    # while nobody changes a number: threadpoolctl has a lock of its own, which the child could never leave
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_start_again)
