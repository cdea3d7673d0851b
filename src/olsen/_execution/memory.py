"""How much memory there is, and a refusal before an allocation that would not fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path, PurePosixPath

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

__all__ = ["available_bytes", "describe", "require"]

INFINITY = float("inf")


def available_bytes(root: Path = Path("/")) -> float:
    """Memory that this process can allocate without swapping, in bytes; infinity where the system does not tell.

    The least of what the machine has left, of what its container and all others around it have left (control groups of
    Linux, either version), and of the limits of the process itself (``ulimit -v`` and ``-d``). It is looked up anew in
    every call, in files of the system below `root`.
    """
    left = [_left_on_machine(root), *_left_in_groups(root)]
    for limit, name in (("RLIMIT_AS", "VmSize:"), ("RLIMIT_DATA", "VmData:")) if resource is not None else ():
        most = resource.getrlimit(getattr(resource, limit))[0]
        if most != resource.RLIM_INFINITY:
            left.append(most - 1024 * _field(_text(root / "proc/self/status"), name, 0.0))
    return max(0.0, min(left))


def _left_on_machine(root: Path) -> float:
    left = 1024 * _field(_text(root / "proc/meminfo"), "MemAvailable:", INFINITY)
    if left < INFINITY:
        return left
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return INFINITY


def _left_in_groups(root: Path) -> Iterator[float]:
    """What each control group of this process, and each one around it, has left.

    Pages of files that were not used lately count as free, as in the machine's own number: the system takes them back
    before it refuses memory.
    """
    least = INFINITY
    for folder, most, used, idle_pages in _groups(root):
        limit = _field(_text(folder / most), "", INFINITY)
        if limit >= 2**60:  # no limit, as version 1 writes it: the largest number of whole pages; version 2 has "max"
            continue
        left = limit - _field(_text(folder / used), "", 0.0)
        if left < least:  # reading statistics takes long
            least = min(least, left + _field(_text(folder / "memory.stat"), idle_pages, 0.0))
            yield least


def _groups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Folders of this process's groups and of all around them, with the names of what is in there.

    In a container the mount may be the group itself, whatever its name outside; folders that are not there have no
    limits. A name with ".." is that of a group outside of what is mounted.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, kinds, name = line.split(":", 2)
        mounts, names = ["", "unified"], ("memory.max", "memory.current", "inactive_file")  # version 2
        if kinds:
            mounts, names = ["memory"], ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        path = PurePosixPath("/" if ".." in name.split("/") else name)
        if not kinds or "memory" in kinds.split(","):
            for mount, part in product(mounts, (path, *path.parents)):
                yield root / "sys/fs/cgroup" / mount / str(part).lstrip("/"), *names


def _text(path: Path) -> str:
    """What is in a file; nothing if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall().decode()
    except (OSError, ValueError):
        return ""


def _field(text: str, name: str, missing: float) -> float:
    """The number after a name at the beginning of a line."""
    found = re.search(rf"^{name}\s*(\d+)", text, re.MULTILINE)
    return float(found[1]) if found else missing


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
