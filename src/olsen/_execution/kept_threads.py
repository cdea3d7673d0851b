"""Threads that are kept from one call to the next: starting them takes as long as a small ensemble."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from .cores import free_thread, place_apart

__all__ = ["submit"]


def submit(work: Callable[[], None], count: int) -> list[Future]:
    """Hand `work` to so many threads, idle ones first woken on cores of their own; it waits while they are busy."""
    return _kept.submit(work, count)


class _KeptThreads:
    def __init__(self):
        self.lock = threading.Lock()
        self.pool: ThreadPoolExecutor | None = None
        self.size = 0
        self.numbers: list[int] = []  # of the threads, in the system
        self.busy: set[int] = set()

    def submit(self, work, count):
        with self.lock:
            pool = self._pool_of(count)
            cores = place_apart([number for number in self.numbers if number not in self.busy])
            return [pool.submit(self._run, work, cores) for _ in range(count)]

    def _pool_of(self, count):
        """One pool, as large as was ever asked for."""
        if self.pool is None or count > self.size:
            if self.pool is not None:
                self.pool.shutdown(wait=False)  # what it has begun it finishes
            self.numbers = []
            self.pool = ThreadPoolExecutor(count, "olsen", initializer=self._note, initargs=(self.numbers,))
            self.size = count
        return self.pool

    @staticmethod
    def _note(numbers):
        numbers.append(threading.get_native_id())

    def _run(self, work, cores):
        me = threading.get_native_id()
        self.busy.add(me)
        free_thread(cores)
        try:
            work()
        finally:
            self.busy.discard(me)


_kept = _KeptThreads()


def _start_again():
    """A child has none of its parent's threads."""
    global _kept
    _kept = _KeptThreads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
