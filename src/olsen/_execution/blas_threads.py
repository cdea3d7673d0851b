"""How many threads BLAS uses: changed while our own threads work, and given back.

NumPy's and SciPy's OpenBLAS has one number of threads for the whole process. Other parts of a program change it too,
most of them by ``threadpoolctl.threadpool_limits``, which sets a number and later restores the one that it had found.
So all limits of ours that are in force are kept in one list, of which the latest counts. What was there before the
first comes back with the last, but a number that is no longer the one we set belongs to somebody else: it is left
alone, and ours does not come back until all limits of ours have gone.

What a program finds, whichever of its threads sets a limit of its own, and whichever of its threads fits:

- Its limit ends before ours begins, begins after ours has ended, or lies around ours: as if we were not there.
- Its limit lies within ours: its own number while it lasts, then ours, and after ours the one of before.
- Its limit begins before ours and ends within it: what it restores stands, at once and after ours.
- It sets a number for good during ours: that stands, unless it is the very number that ours has set (one, as a rule).
  Nobody can see who set that, and ours takes it back.
- Its limit begins within ours and ends after it: **wrong**. Its own number stands when ours has ended (unless it is
  ours, as above), but in the end it restores what it had found, which was ours. With one number for the process nobody
  can help that: we are no longer there. So limits are held only while there is work for our threads, and an iterator of
  the user that such work reads is finished or closed within the limit, together with all limits that it is in.

OpenBLAS 0.3.27 and later has ``openblas_set_num_threads_local``. In builds with threads of their own ("pthreads", as
in the wheels of NumPy and SciPy) it sets the number for all threads nevertheless, and is of no use here;
``tests/test_guest.py`` shows it.

MKL, and OpenBLAS on OpenMP, have a number for each thread. There a limit concerns the thread that it is set in and
those that help it (:func:`taken_over`), other threads never see it, and the wrong case is left to callbacks that the
fitting thread calls.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["Limit", "blas_threads", "limit_in_force", "one_blas_thread", "taken_over"]


class Limit:
    """A number of threads that somebody asked for; None means as many as before any limit of ours."""

    def __init__(self, count: int | None) -> None:
        self.count = count


@contextmanager
def blas_threads(count: int | None) -> Iterator[None]:
    """Context in which BLAS uses so many threads; None means as many as it had before any limit of ours."""
    limit, own = Limit(count), _this_thread.limits
    try:
        with _lock:
            _all_threads.enter(limit)
        own.enter(limit)
        yield
    finally:
        try:
            _leave(own, limit)
        except BaseException:  # an interrupt from the keyboard must not keep what others use
            _leave(own, limit)
            raise


def _leave(own: _Limits, limit: Limit) -> None:
    own.leave(limit)
    with _lock:
        _all_threads.leave(limit)


def one_blas_thread() -> AbstractContextManager[None]:
    """Context in which BLAS uses one thread."""
    return blas_threads(1)


def limit_in_force() -> Limit | None:
    """The latest limit that the calling thread is in, to be handed to threads that work for it."""
    limits = _this_thread.limits.in_force
    return limits[-1] if limits else None


@contextmanager
def taken_over(limit: Limit | None) -> Iterator[None]:
    """Context in which the limit of another thread holds in this one too, where BLAS has a number for each thread."""
    own = _this_thread.limits
    try:
        if limit is not None:
            own.enter(limit)
        yield
    finally:
        if limit is not None:
            own.leave(limit)


class _Library:
    """A BLAS library of this process."""

    def __init__(self, controller: Any) -> None:
        self.number: Callable[[], int] = controller.get_num_threads
        self._set: Callable[[int], Any] = controller.set_num_threads
        self._returns_undo = controller.internal_api == "mkl"
        layer = getattr(controller, "threading_layer", None)
        self.one_number_for_all = controller.internal_api == "openblas" and layer != "openmp"
        if self.one_number_for_all:
            self._set = _function_of_openblas(controller) or self._set

    def set(self, count: int) -> int:
        """Set the number of threads; returns what to set in order to undo it.

        MKL returns it: zero where the thread had no number of its own, and so follows the one of the process.
        """
        before = self.number()
        returned = self._set(count)
        return int(returned) if self._returns_undo else before


def _function_of_openblas(controller: Any) -> Callable[[int], Any] | None:
    """OpenBLAS's own function, by one of the names that its builds give it.

    The method of threadpoolctl does nothing in a second thread while the first that used it is alive, which would keep
    the last of our limits from being taken back.
    """
    for prefix, suffix in itertools.product(("", "scipy_"), ("", "64_", "_64")):
        name = f"{prefix}openblas_set_num_threads{suffix}"
        if hasattr(controller.dynlib, name):
            found: Callable[[int], Any] = getattr(controller.dynlib, name)
            return found
    return None


class _Changed:
    """A library while limits of ours are in force."""

    def __init__(self, library: _Library) -> None:
        self.library = library
        self.ours = library.number()  # what we left it at
        self.undo: int | None = None  # None as long as we have not changed it

    def apply(self, count: int | None) -> None:
        """Set so many threads, or for None what was there before, if nobody else has set another number since."""
        now = self.library.number()
        if now != self.ours or now == count:
            return
        if count is not None:
            first, self.ours = self.undo is None, count  # before it is set: an interrupt may come right after
            self.undo = now if first else self.undo
            undo = self.library.set(count)
            self.undo = undo if first else self.undo
        elif self.undo is not None:
            self.library.set(self.undo)
            self.undo = None
        self.ours = self.library.number()  # a library may set less than it was asked for


class _Limits:
    """Limits in force, the latest of which counts: on libraries with one number for all threads, or on the others."""

    def __init__(self, one_number_for_all: bool) -> None:
        self.one_number_for_all = one_number_for_all
        self.changed: list[_Changed] = []
        self.in_force: list[Limit] = []

    def enter(self, limit: Limit) -> None:
        if not self.in_force:
            chosen = [library for library in _libraries() if library.one_number_for_all is self.one_number_for_all]
            self.changed = [_Changed(library) for library in chosen]
        self.in_force.append(limit)
        self._apply()

    def leave(self, limit: Limit) -> None:
        if limit in self.in_force:
            self.in_force.remove(limit)
        self._apply()  # also where it was interrupted before

    def leave_all(self) -> None:
        if self.in_force:
            self.in_force.clear()
            self._apply()

    def _apply(self) -> None:
        count = self.in_force[-1].count if self.in_force else None
        for changed in self.changed:
            changed.apply(count)


class _ThisThread(threading.local):
    """Limits of the calling thread. A library that is not known to have one number for all is looked after here.

    If it has one all the same, limits that overlap in several threads end too early, but what was there is restored.
    """

    def __init__(self) -> None:
        self.limits = _Limits(one_number_for_all=False)


@cache
def _libraries() -> list[_Library]:
    """The BLAS libraries of this process; finding them takes milliseconds, so it is done once."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [_Library(controller) for controller in found if controller.get_num_threads() is not None]


_lock = threading.Lock()
_all_threads = _Limits(one_number_for_all=True)
_this_thread = _ThisThread()


def _start_again() -> None:
    """A forked child has none of its parent's threads, and none of the contexts that they were in."""
    global _lock
    _lock = threading.Lock()
    _all_threads.leave_all()
    _this_thread.limits.leave_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_again)
