"""How much memory there is, a refusal before an allocation that would not fit, and keeping what was freed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

INFINITY = float("inf")

# glibc gives memory above 128 kB back to the system as soon as it is freed, and asking for it anew took a fifth of the
# time of a fit; up to the size of the largest block (of at most 32 MB) that was ever freed it keeps it
with suppress(MemoryError):
    np.empty(31 << 20, np.uint8)


def available_bytes(root: Path = Path("/")) -> float:
    """Memory that this process can allocate without swapping, in bytes; infinity where the system does not tell.

    The least of what the machine has left, of what the control group of this process has left (version 2 of Linux; in a
    container its mounted root), and of the limit on its address space (``ulimit -v``). It is looked up anew in every
    call, in files of the system below `root`. Of a group, only what belongs to no file counts as used: pages of files
    are given back before memory is refused.
    """
    left = [1024 * _number(root / "proc/meminfo", "MemAvailable:")]
    own = re.search(r"^0::/(.+)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    for name in ("", own[1]) if own else ("",):
        group = root / "sys/fs/cgroup" / name
        most = _number(group / "memory.max")
        if most < INFINITY:  # reading statistics takes long
            left.append(most - _number(group / "memory.stat", "anon ", 0.0))
    if resource is not None and (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        left.append(limit - 1024 * _number(root / "proc/self/status", "VmSize:", 0.0))
    return max(0.0, min(left))


def _text(path: Path) -> str:
    """What is in a file; nothing if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _number(path: Path, name: str = "", missing: float = INFINITY) -> float:
    """The number after a name at the beginning of a line of a file."""
    found = re.search(rf"^{name}\s*(\d+)", _text(path), re.MULTILINE)
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


@contextmanager
def limited_growth(n_bytes: float) -> Iterator[None]:
    """Have allocations raise MemoryError once this process has grown by so many bytes.

    For libraries that read files of strangers and know no limit of their own. It lowers the limit on the address space
    (``ulimit -v``), which Linux enforces for the whole process, so that the code inside should be plain Python: C++
    libraries may end the process where memory is refused. Systems without such a limit are left as they are.
    """
    size = 1024 * _number(Path("/proc/self/status"), "VmSize:")
    if resource is None or size + n_bytes == INFINITY:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    lowest = min([int(size + n_bytes), *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
