"""Available memory, refusal of allocations that would not fit, and reuse of freed memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

# Windows has no such limits
resource: ModuleType | None = import_module("resource") if find_spec("resource") else None
INFINITY = float("inf")

# glibc returns blocks above 128 kB to the system on release, and allocating such blocks again took
# a fifth of the time of a fit. The threshold rises to the largest block (of at most 32 MB) that was
# ever freed.
with suppress(MemoryError):
    np.empty(31 << 20, np.uint8)


def available_bytes(root: Path = Path("/")) -> float:
    """Memory that this process can allocate without swapping, in bytes; infinity if the system does
    not report it.

    The minimum of the available memory of the machine, of the remainder under the limit of the
    process's control group (Linux cgroups version 2; in a container its mounted root), and of the
    remainder under the limit on the address space (``ulimit -v``). Every call reads the system
    files below `root` anew. In a control group only anonymous memory counts as used: the kernel
    drops cached file pages before it refuses an allocation.
    """
    available = [1024 * _number(root / "proc/meminfo", "MemAvailable:")]
    process_group = re.search(r"^0::/(.+)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    for name in ("", process_group[1]) if process_group else ("",):
        group = root / "sys/fs/cgroup" / name
        group_limit = _number(group / "memory.max")
        if group_limit < INFINITY:  # memory.stat is slow to read
            available.append(group_limit - _number(group / "memory.stat", "anon ", 0.0))
    if (
        resource is not None
        and (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY
    ):
        available.append(limit - 1024 * _number(root / "proc/self/status", "VmSize:", 0.0))
    return max(0.0, min(available))


def _text(path: Path) -> str:
    """Content of a file; empty if the file cannot be read."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _number(path: Path, name: str = "", missing: float = INFINITY) -> float:
    """Number that follows a name at the beginning of a line of a file."""
    match = re.search(rf"^{name}\s*(\d+)", _text(path), re.MULTILINE)
    return float(match[1]) if match else missing


def describe(n_bytes: float) -> str:
    """Format a number of bytes for readers.

    >>> describe(3_200_000_000)
    '3.2 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def require(n_bytes: float, purpose: str, instead: str) -> None:
    """Raise MemoryError if `purpose` needs more than the available memory, looked up for large
    requests only.
    """
    if n_bytes < 64e6:
        return
    free = available_bytes()
    if n_bytes > 0.9 * free:
        raise MemoryError(
            f"{purpose} needs {describe(n_bytes)}, but {describe(free)} of memory are free."
            f" {instead}"
        )


@contextmanager
def limited_growth(n_bytes: float) -> Iterator[None]:
    """Context in which allocations raise MemoryError once the process has grown by `n_bytes`.

    It is meant for libraries that read untrusted files without a limit on memory. The limit on the
    address space (``ulimit -v``) is lowered, which Linux enforces for the whole process. The code
    inside should therefore be plain Python, because C++ libraries may abort the process if an
    allocation fails. Systems without such a limit are left unchanged.
    """
    size = 1024 * _number(Path("/proc/self/status"), "VmSize:")
    if resource is None or size + n_bytes == INFINITY:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    lowest = min(
        [int(size + n_bytes), *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    )
    resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
