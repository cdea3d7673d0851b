"""Fork, spawn, forkserver, joblib, daemon threads, the end of the interpreter, a scheduler lost,
many fits.
"""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from children import Child, Ended, after, problem

from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks"),
]

MODELS = [
    OLSEnsembleRegressor(50, random_state=0, n_jobs=2),
    OLSEnsembleRegressor(50, max_samples=0.5, random_state=0, n_jobs=2),
    OLSEnsembleRegressorCV(10, random_state=0, n_jobs=2),
    AdaptiveOLSEnsembleRegressor(n_estimators=10, random_state=0, n_jobs=2),
]
TWICE = [*range(len(MODELS))] * 2


def coefficients(number):
    return MODELS[number].fit(*problem(300, 30)).coef_


@pytest.fixture(scope="module")
def expected():
    return [coefficients(number) for number in range(len(MODELS))]


def judge(row, actual, coef):
    (
        row.add("same coefficients")
        if np.allclose(actual, coef, rtol=1e-9)
        else row.lose("other coefficients")
    )


def test_a_fork_after_fits_and_during_one(fault, expected):
    row = fault("fork, also while another thread fits")
    stop = threading.Event()

    def work():
        while not stop.is_set():
            coefficients(1)

    thread = threading.Thread(target=work)
    for i in range(20):
        if i == 10:
            thread.start()
        try:
            judge(
                row,
                Child(coefficients, i % len(MODELS)).answer(longest=60),
                expected[i % len(MODELS)],
            )
        except Ended as error:
            row.lose(f"{error}, fork {i}")
    stop.set()
    thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pools_of_processes_and_threads(fault, expected):
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            for i, actual in zip(
                TWICE, pool.map_async(coefficients, TWICE).get(timeout=120), strict=True
            ):
                judge(fault(f"multiprocessing, {method}"), actual, expected[i])
    for backend in ("loky", "threading"):
        actual = joblib.Parallel(2, backend=backend)(joblib.delayed(coefficients)(i) for i in TWICE)
        for i, coef in zip(TWICE, actual, strict=True):
            judge(fault(f"joblib, {backend}"), coef, expected[i])


START = """
import atexit, threading, time
import numpy as np
from olsen import OLSEnsembleRegressor
X = np.random.default_rng(0).standard_normal((300, 30))
y = X.sum(axis=1)
def fit():
    for rows in (1.0, 0.5):
        OLSEnsembleRegressor(50, max_samples=rows, random_state=0, n_jobs=2).fit(X, y)
def blocks():
    OLSEnsembleRegressor(5, n_jobs=2).fit(lambda: ((X[i : i + 20], y[i : i + 20]) for i in range(0, 300, 20)), None)
def for_ever(work):
    while True:
        work()
fit()
"""
ENDINGS = {
    "daemon threads fitting at the end": (
        """
for _ in range(3):
    threading.Thread(target=for_ever, args=(fit,), daemon=True).start()
time.sleep({delay})
"""
    ),
    "daemon threads reading blocks at the end": (
        """
threading.Thread(target=for_ever, args=(blocks,), daemon=True).start()
time.sleep({delay})
"""
    ),
    "a thread that outlives the main one": (
        """
threading.Thread(target=lambda: (time.sleep({delay} / 4), fit(), blocks())).start()
"""
    ),
    "fits in atexit": (
        """
atexit.register(fit)
atexit.register(blocks)
"""
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_end_of_the_interpreter(fault, name, seed):
    row = fault(f"interpreter exit, {name}")
    rng = np.random.default_rng(seed)
    for _ in range(2):
        code = START + ENDINGS[name].replace("{delay}", f"{rng.uniform(0.05, 0.5):.3f}")
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
            )
        except subprocess.TimeoutExpired:
            row.lose("hung for 60 s")
            continue
        fine = done.returncode == 0 and not done.stderr
        (
            row.add("exit code 0, no message")
            if fine
            else row.lose(f"{done.returncode}: {done.stderr[-400:]}")
        )


# a Dask scheduler lost: an error within a bounded time. Workers are killed in
# tests/data/test_dask.py


def slowly(block, block_info=None):
    time.sleep(0.05)
    rng = np.random.default_rng(block_info[0]["chunk-location"][0])
    return rng.standard_normal(block.shape)


def start(module, *arguments):
    command = [sys.executable, "-m", "distributed.cli." + module, *arguments, "--no-dashboard"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_the_scheduler_is_lost(fault, tmp_path, number):
    """In a process of its own, as on a cluster; its client gives up after the timeout that the user
    has set.
    """
    dask, da, distributed = map(pytest.importorskip, ("dask", "dask.array", "distributed"))
    row = fault(f"Dask scheduler ended ({number})")
    scheduler_file = tmp_path / "scheduler.json"
    scheduler = start("dask_scheduler", "--scheduler-file", str(scheduler_file), "--port", "0")
    worker = start(
        "dask_worker", f"--scheduler-file={scheduler_file}", "--nthreads=1", "--death-timeout=20"
    )
    try:
        until = time.monotonic() + 60
        while not scheduler_file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        with dask.config.set({"distributed.comm.timeouts.connect": "5s"}):
            client = distributed.Client(scheduler_file=str(scheduler_file), timeout=60)
            client.wait_for_workers(1, timeout=60)
            X = da.zeros((12_000, 20), chunks=(500, 20)).map_blocks(slowly, dtype=float)
            ending = after(0.6, lambda: scheduler.send_signal(getattr(signal, number)))
            began = time.monotonic()
            with pytest.raises(BaseException) as raised:
                OLSEnsembleRegressor(5, random_state=0).fit(X, X.sum(axis=1) + 1.0)
            seconds = time.monotonic() - began
            ending.join()
            assert seconds < 90
            row.add(f"error ({raised.type.__name__})", seconds)
            client.close(timeout=5)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


# ten thousand fits in one process: memory, threads and file handles do not grow

# bytes in 8000 fits. A leak of one coefficient vector (30 numbers) a fit would be 2 MB, one of the
# smallest X (40 x 5) 13 MB; the swing of the allocator between two looks was seen below 3 MB
MAX_GROWTH_BYTES = 8 * 2**20


def fit_once(i, X, y):
    kind = i % 20
    settings = {"random_state": i, "n_jobs": 1 + (i // 7) % 2}
    if kind < 10:
        OLSEnsembleRegressor(3, **settings).fit(X, y)
    elif kind < 13:
        OLSEnsembleRegressor(3, max_samples=0.7, **settings).fit(X, y).predict(X)
    elif kind < 15:
        OLSEnsembleRegressor(5, random_state=i).fit(X, y).predict_interval(X[:3], coverage=0.8)
    elif kind < 17:
        OLSEnsembleRegressor(3, **settings).fit(
            lambda: iter([(X[:20], y[:20]), (X[20:], y[20:])]), None
        )
    elif kind < 18:
        (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)[i // 20 % 2](
            n_estimators=2, **settings
        ).fit(X, y)
    elif kind < 19:
        DropoutRegressor(random_state=i).fit(X, y)
    else:
        with_nan = X.copy()
        with_nan[0, 0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            OLSEnsembleRegressor(3).fit(with_nan, y)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_ten_thousand_fits(fault):
    row = fault("soak: small fits in one process")
    looks = []
    rng = np.random.default_rng(0)
    data = [
        (rng.standard_normal((n, p)), rng.standard_normal(n))
        for n, p in ((40, 5), (60, 12), (50, 30), (45, 60))
    ]
    for i in range(10_000):
        fit_once(i, *data[(i // 20) % len(data)])
        row.add("fitted")
        if i >= 1999 and (i + 1) % 1000 == 0:
            gc.collect()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
            looks.append((resident, threading.active_count(), len(os.listdir("/proc/self/fd"))))
    memory, threads, handles = zip(*looks, strict=True)
    print(f"resident {[m // 2**20 for m in memory]} MB, threads {threads}, handles {handles}")
    assert memory[-1] - memory[0] < MAX_GROWTH_BYTES
    assert max(threads) <= threads[0] + 1 and handles[-1] <= handles[0]
