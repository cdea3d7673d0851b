"""Where threads wake up.

A scheduler likes to wake a thread on the core of its waker; in a virtual machine it does so even when another core is
idle (a core that sleeps looks as if the host had taken it away), and needs milliseconds to move it. That is longer than
many a fit: on two cores, two threads often ran no faster than one. So threads that are about to be woken are put on
other cores first, and free themselves as soon as they run. Linux only; elsewhere nothing is done.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

__all__ = ["free_thread", "place_apart"]


def place_apart(threads: Iterable[int]) -> set[int] | None:
    """Put sleeping threads, by their native numbers, on cores other than the caller's.

    Returns the cores to hand to :func:`free_thread`, or None where nothing was done.
    """
    here = _current_core()
    if here is None:
        return None
    allowed = os.sched_getaffinity(0)
    others = sorted(allowed - {here})
    for i, thread in enumerate(threads if others else ()):
        with suppress(OSError):  # gone, or not permitted here: it wakes where the scheduler likes
            os.sched_setaffinity(thread, {others[i % len(others)]})
    return allowed


def free_thread(cores: set[int] | None) -> None:
    """Let the calling thread run on all of these cores again."""
    if cores:
        with suppress(OSError):  # the cores of this process have changed meanwhile
            os.sched_setaffinity(0, cores)


def _current_core() -> int | None:
    ask = _ask_for_core()
    core = -1 if ask is None else ask()
    return core if core >= 0 else None


@cache
def _ask_for_core():
    """The C library's ``sched_getcpu``, which Python does not have, or None."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        return ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
