"""Fork, spawn, forkserver, joblib, many threads, daemon threads, the end of the interpreter."""

import multiprocessing
import os
import subprocess
import sys
import threading

import joblib
import numpy as np
import pytest
from children import Child, Ended, problem, same

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV

pytestmark = [pytest.mark.faults, pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")]

MODELS = [
    OLSEnsembleRegressor(50, random_state=0, n_jobs=2),
    OLSEnsembleRegressor(50, max_samples=0.5, random_state=0, n_jobs=2),
    OLSEnsembleRegressorCV(10, random_state=0, n_jobs=2),
]


def coefficients(number):
    return MODELS[number].fit(*problem(300, 30)).coef_


@pytest.fixture(scope="module")
def expected():
    return [coefficients(number) for number in range(len(MODELS))]


def judge(row, found, coef):
    row.add("same coefficients") if np.allclose(found, coef, rtol=1e-9) else row.lose("other coefficients")


def test_a_fork_after_fits_and_during_one(fault, expected):
    row, stop = fault("fork, also while another thread fits"), threading.Event()

    def work():
        while not stop.is_set():
            coefficients(1)

    for busy in (False, True):
        thread = threading.Thread(target=work)
        if busy:
            thread.start()
        for i in range(10):
            try:
                judge(row, Child(coefficients, i % 3).answer(longest=60), expected[i % 3])
            except Ended as error:
                row.lose(f"{error}, busy {busy}")
        stop.set()
        if busy:
            thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_multiprocessing(fault, expected, method):
    row = fault(f"multiprocessing, {method}")
    with multiprocessing.get_context(method).Pool(2) as pool:
        for i, found in enumerate(pool.map_async(coefficients, [0, 1, 2] * 2).get(timeout=120)):
            judge(row, found, expected[i % 3])


def test_joblib(fault, expected):
    for backend in ("loky", "threading"):
        row = fault(f"joblib, {backend}")
        found = joblib.Parallel(2, backend=backend)(joblib.delayed(coefficients)(i) for i in [0, 1, 2] * 2)
        for i, coef in enumerate(found):
            judge(row, coef, expected[i % 3])


def test_many_threads_with_other_settings(fault, expected):
    row, found = fault("fits from 12 threads at once"), []
    threads = [
        threading.Thread(target=lambda i=i: found.append((i % 3, type(MODELS[i % 3])(
            **{**MODELS[i % 3].get_params(), "n_jobs": 1 + i % 4}).fit(*problem(300, 30)))))
        for i in range(24)
    ]  # fmt: skip
    for first in range(0, 24, 12):
        for thread in threads[first : first + 12]:
            thread.start()
        for thread in threads[first : first + 12]:
            thread.join()
    for kind, model in found:
        row.add("same coefficients") if same(model.coef_, expected[kind]) else row.lose("other coefficients")
    assert len(found) == 24


ENDINGS = {
    "daemon threads fitting at the end": """
import threading, time
def work():
    while True:
        fit()
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep({delay})
""",
    "daemon threads reading blocks at the end": """
import threading, time
def work():
    while True:
        OLSEnsembleRegressor(5, n_jobs=2).fit(lambda: ((X[i : i + 20], y[i : i + 20]) for i in range(0, 300, 20)), None)
threading.Thread(target=work, daemon=True).start()
time.sleep({delay})
""",
    "a thread that outlives the main one": """
import threading, time
threading.Thread(target=lambda: (time.sleep({delay} / 4), fit())).start()
""",
    "fits in atexit": """
import atexit
atexit.register(fit)
""",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_end_of_the_interpreter(fault, name, seed):
    row, rng = fault(f"interpreter exit, {name}"), np.random.default_rng(seed)
    start = """
import numpy as np
from olsen import OLSEnsembleRegressor
X = np.random.default_rng(0).standard_normal((300, 30))
y = X.sum(axis=1)
def fit():
    for rows in (1.0, 0.5):
        OLSEnsembleRegressor(50, max_samples=rows, random_state=0, n_jobs=2).fit(X, y)
fit()
"""
    for _ in range(2):
        code = start + ENDINGS[name].replace("{delay}", f"{rng.uniform(0.05, 0.5):.3f}")
        try:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            row.lose("hung for 60 s")
            continue
        fine = done.returncode == 0 and not done.stderr
        row.add("exit code 0, no message") if fine else row.lose(f"{done.returncode}: {done.stderr[-400:]}")
