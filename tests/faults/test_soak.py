"""Ten thousand fits in one process: memory, threads and file handles do not grow."""

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from olsen import DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")]

FITS = 10_000
WARM = 2_000
MOST_GROWTH = 8 * 2**20  # bytes in 8000 fits. A leak of one coefficient vector (30 numbers) a fit would be 2 MB, one of
# the smallest X (40 x 5) 13 MB; the allocator's own swing between two looks was seen below 3 MB


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fit_once(i, X, y):
    seed, jobs = i, 1 + (i // 7) % 2
    kind = i % 20
    if kind < 10:
        OLSEnsembleRegressor(3, max_features=0.5, random_state=seed, n_jobs=jobs).fit(X, y)
    elif kind < 13:
        OLSEnsembleRegressor(3, max_features=0.5, max_samples=0.7, random_state=seed, n_jobs=jobs).fit(X, y).predict(X)
    elif kind < 15:
        OLSEnsembleRegressor(5, random_state=seed).fit(X, y).predict_interval(X[:3], coverage=0.8)
    elif kind < 17:
        blocks = [(X[:20], y[:20]), (X[20:], y[20:])]
        OLSEnsembleRegressor(3, random_state=seed, n_jobs=jobs).fit(lambda: iter(blocks), None)
    elif kind < 18:
        OLSEnsembleRegressorCV(2, random_state=seed, n_jobs=jobs).fit(X, y)
    elif kind < 19:
        DropoutRegressor(random_state=seed).fit(X, y)
    else:
        bad = X.copy()
        bad[0, 0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            OLSEnsembleRegressor(3).fit(bad, y)


def test_ten_thousand_fits(fault):
    row, looks = fault("soak: small fits in one process"), []
    shapes = [(40, 5), (60, 12), (50, 30), (45, 60)]
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal(shape), rng.standard_normal(shape[0])) for shape in shapes]
    for i in range(FITS):
        fit_once(i, *data[(i // 20) % len(data)])
        row.add("fitted")
        if i >= WARM - 1 and (i + 1) % 1000 == 0:
            gc.collect()
            looks.append((resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))))
    memory, threads, handles = zip(*looks, strict=True)
    print(f"resident {[m // 2**20 for m in memory]} MB, threads {threads}, handles {handles}")
    assert memory[-1] - memory[0] < MOST_GROWTH
    assert max(threads) <= threads[0] + 1 and handles[-1] <= handles[0]
