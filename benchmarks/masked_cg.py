"""Masked conjugate gradients against the direct solver, and a large sparse table: whole fits, Gram matrix included.

python benchmarks/masked_cg.py                   # about a minute on two idle cores
python benchmarks/masked_cg.py --quick           # a toy run that shows that the script works
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import scipy.sparse as sp

from olsen import _members
from olsen._members import Problem
from olsen.subsets import draw


def timed(function):
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def dense(n, p, m, k, repeats):
    """Both solvers in turn on the same members; best of repeats."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    Y = (X @ rng.standard_normal(p) + rng.standard_normal(n))[:, None]
    features = draw(p, k, seed=0, size=m, design="balanced")
    best, found = {}, {}
    for _ in range(repeats):
        for solver in ("masked_cg", "gram"):
            problem = Problem(X, Y)  # a fresh one: moments are made again
            found[solver], seconds = timed(
                lambda p=problem, s=solver: _members.solve(p, features, None, solver=s, n_threads=2)
            )
            best[solver] = min(best.get(solver, np.inf), seconds)
    a, b = (found[solver].values for solver in ("masked_cg", "gram"))
    return {
        "shape": [n, p, m, k],
        "seconds": best,
        "speed_up": best["gram"] / best["masked_cg"],
        "relative_difference": float(np.linalg.norm(a - b) / np.linalg.norm(b)),
    }


def sparse(n, p, density, m, k):
    """One fit of a sparse table; memory of this process, which made the table too."""
    from olsen import OLSEnsembleRegressor

    rng = np.random.default_rng(0)
    count = int(density * n * p)
    X = sp.csr_array((rng.standard_normal(count), (rng.integers(0, n, count), rng.integers(0, p, count))), shape=(n, p))
    y = X @ rng.standard_normal(p) + rng.standard_normal(n)
    model = OLSEnsembleRegressor(k, m, solver="masked_cg", random_state=0)
    _, seconds = timed(lambda: model.fit(X, y))
    with open("/proc/self/status") as lines:
        peak = next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("VmHWM"))
    return {"shape": [n, p, m, k], "seconds": seconds, "peak_GB": peak, "fallbacks": model.n_fallbacks_}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    arguments = parser.parse_args()
    if arguments.quick:
        results = {"sparse": sparse(2000, 1000, 0.01, 100, 5), "dense": dense(1200, 1000, 300, 8, 1)}
    else:
        results = {"sparse": sparse(100_000, 20_000, 0.001, 2000, 50)}
        results["dense"] = dense(8000, 4000, 2000, 64, arguments.repeats)
    print(json.dumps(results, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
