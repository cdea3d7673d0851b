"""How many threads BLAS uses.

The limit belongs to the process, while contexts that set it may overlap in several threads: if each restored what it
had found, the last one out could leave another's limit behind for good. So all limits in force are kept in one list;
the latest counts, and what was there before comes back when the last one has gone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["blas_threads", "one_blas_thread"]


@contextmanager
def blas_threads(count: int | None) -> Iterator[None]:
    """Context in which BLAS uses so many threads; None means as many as it had before any limit."""
    request = [count]  # told from others by its identity
    with _limits.lock:
        _limits.enter(request)
    try:
        yield
    finally:
        with _limits.lock:
            _limits.leave(request)


def one_blas_thread():
    """Context in which BLAS uses one thread."""
    return blas_threads(1)


class _Limits:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests: list[list[int | None]] = []
        self.before: list[int] = []

    def enter(self, request):
        if not self.requests:
            self.before = [library.num_threads for library in _libraries()]
        self.requests.append(request)
        self._apply()

    def leave(self, request):
        self.requests = [other for other in self.requests if other is not request]
        self._apply()

    def _apply(self):
        libraries = _libraries()
        latest = self.requests[-1][0] if self.requests else None
        wanted = self.before if latest is None else [latest] * len(libraries)
        for library, count in zip(libraries, wanted, strict=True):
            if library.num_threads != count:
                # threadpoolctl lets only one thread set OpenBLAS's limit while it lives, which would keep the last one
                # out from restoring it; the list here is what arbitrates
                getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


@cache
def _libraries():
    """The BLAS libraries of this process; finding them takes milliseconds, so it is done once."""
    return ThreadpoolController().select(user_api="blas").lib_controllers


_limits = _Limits()


def _start_again():
    """A child has none of its parent's threads, and none of the contexts that they were in."""
    inherited, _limits.lock, _limits.requests = _limits.requests, threading.Lock(), []
    if inherited:
        _limits._apply()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
