"""Masked conjugate gradients: whole fits against the direct solver, and a sparse table in a process
of its own.
"""

from __future__ import annotations

import json

import numpy as np

from olsen import OLSEnsembleRegressor
from problems import linear
from timing import best, interleave, judged, summary

from .fresh import PEAK_FUNCTION, fresh_process
from .text import duration

TITLE = "Masked conjugate gradients"
NOTE = (
    "Dense: whole fits on two threads, Gram matrix included, of the compiled direct solver (`gram`)"
    " and `masked_cg`; the difference is the largest one of a member's coefficients, relative to"
    " their length. Sparse: one fit in a process of its own, whose peak memory includes"
    " interpreter, libraries and data."
)
DENSE, TOY_DENSE = (8000, 4000, 2000, 64), (600, 500, 150, 8)
SPARSE, TOY_SPARSE = (100_000, 20_000, 2000, 50, 0.001), (2000, 1000, 100, 5, 0.01)
SOLVERS = ("masked_cg", "gram")

SPARSE_FIT = (
    PEAK_FUNCTION
    + """
import time
import numpy as np
import scipy.sparse as sp
from olsen import OLSEnsembleRegressor

n, p, m, k, density = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
count = int(density * n * p)
X = sp.csr_array((rng.standard_normal(count), (rng.integers(0, n, count), rng.integers(0, p, count))), shape=(n, p))
y = X @ rng.standard_normal(p) + rng.standard_normal(n)
start = time.perf_counter()
model = OLSEnsembleRegressor(k, m, n_jobs=2, random_state=0).fit(X, y)
print(json.dumps([time.perf_counter() - start, peak(), model.solver_, model.n_fallbacks_]))
"""
)


def run(quick: bool):
    yield dense(*(TOY_DENSE if quick else DENSE), rounds=1 if quick else 3)
    yield sparse(*(TOY_SPARSE if quick else SPARSE))


def dense(n, p, m, k, rounds):
    X, y = linear(n, p)
    models = {
        name: OLSEnsembleRegressor(k, m, solver=name, n_jobs=2, random_state=0) for name in SOLVERS
    }
    times = interleave(
        {name: lambda model=model: model.fit(X, y) for name, model in models.items()}, rounds
    )
    took = best(times)
    ours, direct = (models[name].member_coefs().toarray() for name in SOLVERS)
    apart = np.linalg.norm(ours - direct, axis=1) / np.linalg.norm(direct, axis=1)
    return {
        "name": f"dense, n, p, m, k = {n}, {p}, {m}, {k}",
        **summary(times),
        "difference": float(apart.max()),
        "unit": "x",
        **judged(took["gram"] / took["masked_cg"], 2.0),
    }


def sparse(n, p, m, k, density):
    seconds, peak, solver, fallbacks = json.loads(
        fresh_process(SPARSE_FIT, json.dumps([n, p, m, k, density]))
    )
    return {
        "name": f"sparse, {100 * density:g} % non-zeros, n, p, m, k = {n}, {p}, {m}, {k}",
        "seconds": {solver: seconds},
        "fallbacks": fallbacks,
        "unit": "GB",
        **judged(peak / 1e9, 4.0, better="less"),
    }


def cells(row):
    speed = row["unit"] == "x"
    return {
        "what": row["name"],
        "masked_cg": duration(row["seconds"].get("masked_cg")),
        "gram": duration(row["seconds"].get("gram")),
        "difference": f"{row['difference']:.0e}" if speed else "",
        "measured": f"{row['value']:.2f} x faster" if speed else f"{row['value']:.2f} GB peak",
        "must": f"{row['must']:g} x" if speed else f"under {row['must']:g} GB",
        "verdict": row["verdict"],
    }
