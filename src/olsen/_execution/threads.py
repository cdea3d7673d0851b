"""Threads over members.

Members are independent and their kernels release the interpreter lock, so plain threads are enough: no data is copied
and no process is started. The BLAS library is held to one thread meanwhile; otherwise every thread would start its own
set of BLAS threads and they would fight for the cores.

The calling thread always works too, and helpers come when they are free. So no call waits for threads that are busy
elsewhere, and where none can be had (the interpreter is ending, the system has no more) the calling thread does it all.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar
from weakref import WeakMethod

import joblib

from . import memory
from .blas_threads import Limit, limit_in_force, one_blas_thread, taken_over
from .blas_threads import blas_threads as limit_blas

__all__ = [
    "Report",
    "Sharing",
    "backend_is_dask",
    "count_threads",
    "in_order",
    "inside_dask_task",
    "map_chunks",
    "room_for_a_thread",
    "threads_and_tasks",
]

S = TypeVar("S")
T = TypeVar("T")

IDLE_SECONDS = 10.0  # a helper without work waits so long: starting one takes as long as a small ensemble
THREAD_BYTES = 1 << 25
CHUNK_SECONDS = 0.1  # a chunk of compiled work cannot be interrupted, and Ctrl-C should be heard at once


Report = Callable[[int], None]  # is told the number of finished items


@dataclass(frozen=True)
class Sharing:
    """Call ``sharing(function, n_items)`` to have ``function(start, stop)`` called on chunks; results in order.

    Parameters
    ----------
    n_threads : int, default=1
        Threads to use.
    report : callable, default=None
        Called with the number of finished items after every chunk, from the calling thread.
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
        blas_threads: bool = False,
        uses_blas: bool = True,
    ) -> list[T]:
        """As :func:`map_chunks`."""
        return map_chunks(
            function,
            n_items,
            self.n_threads,
            chunk=chunk,
            report=self.report,
            blas_threads=blas_threads,
            uses_blas=uses_blas,
        )

    def quiet(self) -> Sharing:
        """The same without reports: for steps on the way to what is reported."""
        return replace(self, report=None)

    def without_blas(self, function: Callable[[int, int], T], n_items: int, /) -> list[T]:
        """For work that calls no BLAS, which then need not be held to one thread: what `subsets` calls a mapper.

        Few chunks whatever the threads: such work takes turns at the interpreter, and on 16 cores many chunks took
        twice the time of eight.
        """
        return self.quiet()(function, n_items, chunk=-(-n_items // 8) or 1, uses_blas=False)


def count_threads(n_jobs: int | None) -> int:
    """Threads meant by `n_jobs`, with scikit-learn's meaning of None and of negative numbers.

    Joblib's Dask backend counts the cores of the cluster, which are not those of this machine.
    """
    found = int(joblib.effective_n_jobs(n_jobs))
    if found > 1 and backend_is_dask():
        return 1 if inside_dask_task() else min(found, int(joblib.cpu_count()))
    return found


def threads_and_tasks(n_jobs: int | None) -> tuple[int, bool]:
    """Threads meant by `n_jobs`, and whether members are to be tasks of a Dask cluster instead.

    Not inside one of its tasks: there others share the cores.
    """
    return count_threads(n_jobs), n_jobs != 1 and backend_is_dask() and not inside_dask_task()


def backend_is_dask() -> bool:
    """Whether ``joblib.parallel_config("dask")`` is in force: its backend has a client that sends data to workers."""
    backend, _ = joblib.parallel.get_active_backend()
    return hasattr(getattr(backend, "client", None), "scatter")


def inside_dask_task() -> bool:
    """Whether this is running on a worker of a cluster."""
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def room_for_a_thread() -> bool:
    """Whether there is memory for one more thread, its stack and what it works on.

    A thread that cannot allocate before it has reported itself leaves whoever started it waiting for ever.
    """
    return memory.available_bytes() > THREAD_BYTES


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

    After an error, also an interrupt from the keyboard, no chunk is begun any more, and it surfaces as soon as those at
    work have ended.

    Parameters
    ----------
    function : callable
        Works on items ``start`` to ``stop``; what it returns must not depend on where chunks are cut.
    n_items : int
        Number of items.
    n_threads : int
        Threads to use, the calling one among them.
    chunk : int, default=None
        Items in a chunk. By default as many as take about ``CHUNK_SECONDS``, which every thread finds out from a first
        item, and not more than make four chunks a thread, so that uneven items even out.
    report : callable, default=None
        Called with the number of finished items after every chunk of the calling thread, from that thread.
    blas_threads : bool, default=False
        Chunks one after the other, each with `n_threads` threads of BLAS (with one: as many as BLAS likes): for work
        that is a few large products.
    uses_blas : bool, default=True
        Whether the work calls BLAS, which is then held to one thread.
    """
    hold = _hold_blas(n_threads, blas_threads, uses_blas)
    if blas_threads:
        n_threads = 1
    most = chunk or max(1, -(-n_items // (4 * n_threads if n_threads > 1 or report else 1)))
    with hold:
        return _Chunks(function, n_items, chunk or 1, most, report).work(min(n_threads, -(-n_items // most)))


def _hold_blas(n_threads: int, blas_threads: bool, uses_blas: bool) -> AbstractContextManager[None]:
    """Context for BLAS while chunks run."""
    if blas_threads:
        return limit_blas(n_threads if n_threads > 1 else None)
    return one_blas_thread() if uses_blas else nullcontext()


class _Chunks(Generic[T]):
    """The chunks of one call of :func:`map_chunks`."""

    def __init__(
        self, function: Callable[[int, int], T], n_items: int, first: int, most: int, report: Report | None
    ) -> None:
        self.function, self.n_items, self.report = function, n_items, report
        self.first, self.most = first, most  # items in the first chunk of a thread, and in any
        self.begun = self.finished = self.reported = 0  # items
        self.counting = threading.Lock()
        self.results: dict[int, T] = {}  # by the first item of the chunk
        self.errors: list[BaseException] = []
        self.helpers_at_work = 0
        self.helper_left = threading.Condition()

    def work(self, n_threads: int) -> list[T]:
        """All results, by the calling thread and by helpers."""
        try:
            _helpers.call(self.help, n_threads - 1, most=n_threads - 1)
            self._take_chunks(self._tell)
        finally:
            self._finish()
        if self.errors:
            raise self.errors.pop(0)
        self._tell()  # of chunks that helpers have finished since
        return [self.results[start] for start in sorted(self.results)]

    def help(self) -> None:
        """What a helper does."""
        with self.helper_left:
            self.helpers_at_work += 1
        try:
            self._take_chunks()
        except BaseException as error:
            self.errors.append(error)
            self._hand_out_nothing_more()
        finally:
            with self.helper_left:
                self.helpers_at_work -= 1
                self.helper_left.notify()

    def _take_chunks(self, tell: Callable[[], None] = lambda: None) -> None:
        size = self.first
        while (chunk := self._next(size)) is not None:
            start, stop = chunk
            began = time.perf_counter()
            self.results[start] = self.function(start, stop)
            seconds = time.perf_counter() - began
            with self.counting:
                self.finished += stop - start
            tell()
            size = max(self.first, min(self.most, int((stop - start) * CHUNK_SECONDS / max(seconds, 1e-9))))

    def _next(self, size: int) -> tuple[int, int] | None:
        """The next items that nobody has begun, so many of them; None when there are no more."""
        with self.counting:
            start = self.begun
            self.begun = min(start + size, self.n_items)
            return (start, self.begun) if start < self.begun else None

    def _tell(self) -> None:
        if self.report and self.finished > self.reported:
            self.reported = self.finished
            self.report(self.reported)

    def _hand_out_nothing_more(self) -> None:
        with self.counting:
            self.begun = self.n_items

    def _finish(self) -> None:
        """Hand out nothing more, and wait for the chunks at work."""
        _even_if_interrupted(self._wait_for_helpers)

    def _wait_for_helpers(self) -> None:
        self._hand_out_nothing_more()
        with self.helper_left:
            self.helper_left.wait_for(lambda: not self.helpers_at_work)


def in_order(function: Callable[[S], T], items: Iterable[S], n_threads: int, lane: Callable[[S], int]) -> Iterator[T]:
    """Results of ``function(item)``, in the order of the items, which are taken only a few ahead.

    Items of one lane are worked on one after the other, in their order; different lanes side by side. With one thread
    BLAS may use its own. Where items come from is closed before the limit on BLAS ends: it may be within a limit of its
    own, and would restore ours after us.
    """
    if n_threads == 1:
        yield from map(function, items)
        return
    last: dict[int, Future[T]] = {}
    waiting: deque[_Task[T]] = deque()
    close: Callable[[], None] = getattr(items, "close", lambda: None)
    with one_blas_thread(), ExitStack() as at_the_end:
        at_the_end.callback(close)
        at_the_end.callback(_abandon, waiting)
        for item in items:
            key = lane(item)
            waiting.append(_Task(partial(function, item), last.get(key)))
            last[key] = waiting[-1].outcome
            _helpers.call(waiting[-1].run, 1, most=n_threads)
            if len(waiting) > n_threads:
                yield waiting[0].result()
                waiting.popleft()
        while waiting:
            yield waiting[0].result()
            waiting.popleft()


class _Task(Generic[T]):
    """Work on one item of :func:`in_order`, done by whoever comes first."""

    def __init__(self, work: Callable[[], T], before: Future[T] | None) -> None:
        self.outcome: Future[T] = Future()
        self._work, self._before = work, before
        self._begun = threading.Lock()

    def run(self) -> None:
        """Do it, unless somebody has begun."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            if self._before is not None:
                self._before.result()  # somebody has begun it: helpers take tasks in their order, the caller the first
            self.outcome.set_result(self._work())
        except BaseException as error:
            self.outcome.set_exception(error)

    def result(self) -> T:
        """The result, by the calling thread if no helper has begun."""
        self.run()
        return self.outcome.result()

    def drop(self) -> bool:
        """Whether nobody has begun; then nobody will, and whoever waits for it waits no longer."""
        return self._begun.acquire(blocking=False) and self.outcome.cancel()


def _abandon(tasks: Iterable[_Task[T]]) -> None:
    """Let nobody begin any of these tasks, and wait for those that somebody has begun."""
    begun = [task.outcome for task in tasks if not task.drop()]
    _even_if_interrupted(partial(wait, begun))


def _even_if_interrupted(wait_for_threads: Callable[[], object]) -> None:
    """Wait; a first interrupt from the keyboard surfaces after that, a second one at once."""
    try:
        wait_for_threads()
    except BaseException:
        wait_for_threads()
        raise


class _Helpers:
    """Threads that wait for work, and end when there has been none for a while."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def call(self, method: Callable[[], None], times: int, most: int) -> None:
        """Have a method called so many times as if by this thread, when helpers are free; start up to `most` of them.

        The object stays the caller's: if that has gone before a helper was free, nothing is called, and nothing keeps
        its data in memory.
        """
        weak, limit = WeakMethod(method), limit_in_force() if times > 0 else None
        for _ in range(times):
            with self.lock:
                if self.count < most:
                    self._start()
                if self.count:
                    self.calls.put(partial(copy_context().run, _call, weak, limit))

    def _start(self) -> None:
        if not room_for_a_thread():
            return
        self.count += 1
        try:
            threading.Thread(target=self._serve, name="olsen", daemon=True).start()
        except RuntimeError:  # the interpreter is ending, or the system has no more threads
            self.count -= 1

    def _serve(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=IDLE_SECONDS)
            except Empty:
                with self.lock:
                    if self.calls.empty():
                        self.count -= 1
                        return
                continue
            call()
            del call  # it must not live as long as this thread waits


def _call(weak: WeakMethod[Callable[[], None]], limit: Limit | None) -> None:
    method = weak()
    if method is not None:
        with taken_over(limit):
            method()


_helpers = _Helpers()


def _start_again() -> None:
    """A forked child has none of its parent's threads."""
    global _helpers
    _helpers = _Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
