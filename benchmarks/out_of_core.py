"""A memory map larger than memory should be: speed against a bare pass over the file, and peak
memory.

    python benchmarks/out_of_core.py                      # 10 GB: 5 000 000 x 500 float32, made in --folder
    python benchmarks/out_of_core.py --rows 100000        # 200 MB

The bare passes read the same blocks and do nothing but ``G += x.T @ x``: once in the type of the
file (float32 sums, which would lose the digits the fit keeps) and once in float64, the type the fit
sums in. Passes alternate, so that the page cache serves all alike; each is run in a fresh process
and reports its own peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src"


def make_file(folder, rows, columns):
    """Gaussian columns with means of their own, written block by block."""
    path, target = folder / f"X_{rows}_{columns}.npy", folder / f"y_{rows}_{columns}.npy"
    if path.exists() and target.exists():
        return path, target
    need = rows * columns * 4 * 1.05
    free = shutil.disk_usage(folder).free
    if need > free:
        raise SystemExit(
            f"{need / 1e9:.1f} GB are needed in {folder}, {free / 1e9:.1f} GB are free."
        )
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, columns))
    beta, mean, y = rng.standard_normal(columns), 5 * rng.standard_normal(columns), np.empty(rows)
    for start in range(0, rows, 50_000):
        here = slice(start, min(start + 50_000, rows))
        block = rng.standard_normal((here.stop - start, columns), dtype=np.float32)
        y[here] = block @ beta + rng.standard_normal(len(block))
        X[here] = block + mean.astype(np.float32)
    X.flush()
    np.save(target, y)
    return path, target


def bare_pass(path, dtype):
    """G += x.T @ x over the blocks of the file."""
    from olsen._data.sources import files

    X = np.load(path, mmap_mode="r")
    rows = files.BLOCK_BYTES // (X.shape[1] * X.dtype.itemsize)
    G = np.zeros((X.shape[1],) * 2, dtype=dtype)
    for start in range(0, len(X), rows):
        x = np.asarray(X[start : start + rows], dtype=dtype)
        G += x.T @ x
    return {"trace": float(np.trace(G))}


def fit(path, target, members):
    from olsen import OLSEnsembleRegressor

    model = OLSEnsembleRegressor(members, 0.5, random_state=0, n_jobs=-1).fit(
        str(path), str(target)
    )
    return {"first_coefficient": float(model.coef_[0]), "fallbacks": model.n_fallbacks_}


def child(arguments):
    """One pass, timed from after the imports; memory of the process alone (the page cache belongs
    to the system).
    """

    start = time.perf_counter()
    path, target = arguments.paths
    if arguments.child == "fit":
        result = fit(path, target, arguments.members)
    else:
        result = bare_pass(path, np.dtype(arguments.child))
    result |= {"seconds": time.perf_counter() - start, "peak_GB": own_memory()}
    print(json.dumps(result))


def own_memory():
    """Peak resident memory in GB. Not ru_maxrss: a child starts with its parent's, who has just
    written the file.
    """
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM"))


def run(what, paths, members):
    command = [
        sys.executable,
        __file__,
        "--child",
        what,
        "--members",
        str(members),
        "--paths",
        *map(str, paths),
    ]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", action="store_true", help="leave the file there")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--paths", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    paths = make_file(arguments.folder, arguments.rows, arguments.columns)
    results = {what: [] for what in ("float64", "fit", "float32")}
    for _ in range(arguments.repeats):
        for what, found in results.items():
            found.append(run(what, paths, arguments.members))
            print(what, json.dumps(found[-1]), flush=True)
    best = {what: min(r["seconds"] for r in found) for what, found in results.items()}
    size = arguments.rows * arguments.columns * 4 / 1e9
    summary = {"GB": size, "seconds": best, "peak_GB": max(r["peak_GB"] for r in results["fit"])}
    summary["share_of_bare_float64"] = best["float64"] / best["fit"]
    summary["share_of_bare_float32"] = best["float32"] / best["fit"]
    print(json.dumps(summary, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(summary, indent=1))
    if not arguments.keep:
        for path in paths:
            path.unlink()


if __name__ == "__main__":
    main()
