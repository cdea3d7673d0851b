"""The machine a benchmark ran on, and how busy it was: measured in the same run."""

from __future__ import annotations

import os
import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from timing import seconds

__all__ = ["describe", "header_lines", "product", "product_rate"]

PACKAGES = ("olsen", "numpy", "scipy", "scikit-learn", "joblib")


def describe(quick: bool) -> dict:
    """Hardware, versions and load, as they are now."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "cpu": cpu_model(),
        "cores": (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: installed(name) for name in PACKAGES},
        "blas": blas(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        **product_rate(quick),
    }


def header_lines(machine: dict, after: dict | None = None) -> list[str]:
    """The header of a table, for people."""
    load = ", ".join(f"{x:.2f}" for x in machine["load_average"])
    lines = [
        (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB;"
            f" {machine['system']}; {machine['date']}, commit {machine['commit']}"
        ),
        f"Python {machine['python']}, "
        + ", ".join(f"{name} {v}" for name, v in machine["packages"].items()),
        f"BLAS: {machine['blas']}",
        (
            f"load average at the start {load}; matrix product (dgemm) on one thread"
            f" {machine['dgemm_gflops']:.1f} GFLOP/s, two at once {machine['dgemm_scaling']:.2f}"
            " times one (2.0: an idle machine)"
        ),
    ]
    if after:
        lines.append(
            f"after the group: matrix product {after['dgemm_gflops']:.1f} GFLOP/s, two at once "
            f"{after['dgemm_scaling']:.2f} times one"
        )
    return lines


def product(size: int):
    """A call that multiplies two square matrices, and its floating point operations."""
    A = np.random.default_rng(0).standard_normal((size, size))
    out = np.empty_like(A)
    return lambda: np.matmul(A, A, out=out), 2.0 * size**3


def product_rate(quick: bool = False) -> dict:
    """GFLOP/s of a matrix product on one thread, and by how much two threads with one each do more."""
    calls, (flops, _) = zip(*(product(150 if quick else 1200) for _ in range(2)), strict=True)
    alone, together = [], []
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(2) as pool:
        for _ in range(2 if quick else 6):
            alone.append(seconds(calls[0]))
            together.append(seconds(lambda: list(pool.map(lambda call: call(), calls))))
    return {
        "dgemm_gflops": flops / min(alone) / 1e9,
        "dgemm_scaling": 2 * min(alone) / min(together),
    }


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = [
        line.split(":", 1)[1]
        for line in info.read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0].strip() if names else platform.processor() or "unknown processor"


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def blas() -> str:
    """Name, version and kernels of every BLAS in the process; NumPy and SciPy bring one each."""
    found = {
        f"{b['internal_api']} {b['version']} ({b.get('architecture', 'unknown')},"
        f" {b['num_threads']} threads)"
        for b in threadpool_info()
        if b["user_api"] == "blas"
    }
    return "; ".join(sorted(found))


def commit() -> str:
    """Short name of the source's commit, with a mark if files were changed since."""
    call = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    here = Path(__file__).parent
    try:
        return subprocess.run(
            call, cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
