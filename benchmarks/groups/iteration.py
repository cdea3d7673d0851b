"""Masked conjugate gradients: a fit of a sparse table in a separate process."""

from __future__ import annotations

import json

from timing import judged

from .fresh import PEAK_FUNCTION, fresh_process
from .text import duration

TITLE = "Masked conjugate gradients"
NOTE = "One fit in a separate process, whose peak memory includes interpreter, libraries and data."
SPARSE, TOY_SPARSE = (100_000, 20_000, 2000, 50, 0.001), (2000, 1000, 100, 5, 0.01)

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
    yield sparse(*(TOY_SPARSE if quick else SPARSE))


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
    return {
        "what": row["name"],
        "masked_cg": duration(row["seconds"].get("masked_cg")),
        "measured": f"{row['value']:.2f} GB peak",
        "must": f"under {row['must']:g} GB",
        "verdict": row["verdict"],
    }
