"""How much memory there is, and a refusal before an allocation that would not fit."""

from __future__ import annotations

import os
from functools import cache

import numpy as np

__all__ = ["available_bytes", "describe", "keep_freed_memory", "require"]


def available_bytes() -> float:
    """Memory that can be allocated without swapping, in bytes; infinity where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return float("inf")


def describe(n_bytes: float) -> str:
    """Bytes for people.

    >>> describe(3_200_000_000)
    '3.2 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def require(n_bytes: float, what: str, instead: str) -> None:
    """Raise MemoryError when `what` needs more than the memory there is; looked up only for large requests."""
    if n_bytes < 64e6:
        return
    free = available_bytes()
    if n_bytes > 0.9 * free:
        raise MemoryError(f"{what} needs {describe(n_bytes)}, but {describe(free)} of memory are free. {instead}")


@cache
def keep_freed_memory() -> None:
    """Let the C library keep some freed memory instead of handing it back to the system after every fit.

    glibc maps large blocks one by one until it has seen one of them freed; from then on it takes blocks up to that size
    from memory it keeps, up to twice as much. A block that is never touched teaches it so at no cost. Without this, a
    fifth of the time of a small fit (200 x 400, 500 members) went into page faults of memory just handed back.
    """
    np.empty(31 << 20, dtype=np.uint8)
