"""How much memory there is, and a refusal before an allocation that would not fit."""

from __future__ import annotations

import os

__all__ = ["available_bytes", "describe", "require"]


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
