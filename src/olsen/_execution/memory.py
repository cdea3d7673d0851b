"""How much memory there is, and a refusal before an allocation that would not fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

__all__ = ["available_bytes", "describe", "require"]

INFINITY = float("inf")


def available_bytes() -> float:
    """Memory that this process can allocate without swapping, in bytes; infinity where the system does not tell.

    The least of what the machine has left, of what its container and all others around it have left (control groups of
    Linux, either version), and of the limits of the process itself. It is looked up anew in every call.
    """
    return _available_bytes(Path("/"))


def _available_bytes(root: Path) -> float:
    """The same, with the files of the system below `root`."""
    return max(0.0, min(_left_on_machine(root), _left_in_groups(root), _left_to_process(root)))


def _left_on_machine(root: Path) -> float:
    left = _field(_text(root / "proc/meminfo"), "MemAvailable:")
    if left is not None:
        return left * 1024
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return INFINITY


def _left_in_groups(root: Path) -> float:
    """The least that a control group of this process, or one around it, has left.

    Pages of files that were not used lately count as free, as in the machine's own number: the system takes them back
    before it refuses memory.
    """
    least = INFINITY
    for folder, most, used, idle_pages in _groups(root):
        limit = _number(folder / most)
        if limit >= 2**60:  # no limit, as version 1 writes it: the largest number of whole pages
            continue
        left = limit - _number(folder / used, missing=0.0)
        if left < least:  # reading statistics takes long
            left += _field(_text(folder / "memory.stat"), idle_pages) or 0.0
            least = min(least, left)
    return least


def _groups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Folders of this process's groups and of all around them, with the names of what is in there."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, kinds, name = line.split(":", 2)
        if not kinds:  # version 2, alone or next to version 1
            names = ("memory.max", "memory.current", "inactive_file")
            for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
                yield from ((folder, *names) for folder in _upwards(root / mount, name))
        elif "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from ((folder, *names) for folder in _upwards(root / "sys/fs/cgroup/memory", name))


def _upwards(mount: Path, name: str) -> Iterator[Path]:
    """The folder of a group and those around it, up to the mount.

    In a container the mount may be the group itself, whatever its name outside; folders that are not there have no
    limits. A name with ".." is that of a group outside of what is mounted.
    """
    path = PurePosixPath("/" if ".." in name.split("/") else name)
    return (mount / str(part).lstrip("/") for part in (path, *path.parents))


def _left_to_process(root: Path) -> float:
    """What the limits of the process leave (``ulimit -v`` and ``-d``)."""
    if resource is None:
        return INFINITY
    kinds = ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:"))
    limits = [(resource.getrlimit(kind)[0], name) for kind, name in kinds]
    limits = [(limit, name) for limit, name in limits if limit != resource.RLIM_INFINITY]
    if not limits:
        return INFINITY
    status = _text(root / "proc/self/status")
    return min(limit - 1024 * (_field(status, name) or 0.0) for limit, name in limits)


def _text(path: Path) -> str:
    """What is in a file; nothing if it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall().decode()
    except (OSError, ValueError):
        return ""


def _number(path: Path, missing: float = INFINITY) -> float:
    """The only number in a file; "max" means that there is no limit."""
    try:
        return float(int(_text(path)))
    except ValueError:
        return missing


def _field(text: str, name: str) -> float | None:
    """The number after a name at the beginning of a line."""
    found = re.search(rf"^{name}\s+(\d+)", text, re.MULTILINE)
    return float(found[1]) if found else None


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
