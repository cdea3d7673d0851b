"""A Dask worker killed, a scheduler lost: the right answer or an error, within a bounded time."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from children import after, same
from sklearn.base import clone

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore")]

LONGEST = 90.0  # seconds in which a fit without scheduler must have ended


def slowly(block, block_info=None):
    time.sleep(0.05)
    rng = np.random.default_rng(block_info[0]["chunk-location"][0])
    return rng.standard_normal(block.shape)


def data():
    X = da.zeros((12_000, 20), chunks=(500, 20)).map_blocks(slowly, dtype=float)
    return X, X.sum(axis=1) + 1.0


def judge(row, work, coef, fine=Exception):
    began = time.monotonic()
    try:
        model = work()
    except fine as error:
        row.add(f"error ({type(error).__name__})" if str(error) else "error", time.monotonic() - began)
        return
    seconds = time.monotonic() - began
    row.add("right", seconds) if same(model, coef) else row.lose("wrong coefficients")


def test_a_worker_is_killed(fault, seed):
    rng, row = np.random.default_rng(seed), fault("Dask worker killed (SIGKILL)")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        X, y = data()
        models = [make(5, random_state=0) for make in (OLSEnsembleRegressor, OLSEnsembleRegressorCV)]
        began = time.monotonic()
        expected = [model.fit(X, y).coef_ for model in models]
        seconds = (time.monotonic() - began) / 2
        for i in range(4):
            client.wait_for_workers(2, timeout=60)
            pid = cluster.workers[i % 2].pid  # its nanny starts another
            killing = after(rng.uniform(0, 0.8 * seconds), lambda pid=pid: os.kill(pid, signal.SIGKILL))
            judge(row, lambda i=i: clone(models[i % 2]).fit(X, y), expected[i % 2])
            killing.join()


def start(module, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + module, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_the_scheduler_is_lost(fault, tmp_path, number):
    """In a process of its own, as on a cluster; its client gives up after the timeout that the user has set."""
    import dask

    row, place = fault(f"Dask scheduler ended ({number})"), str(tmp_path / "scheduler.json")
    scheduler = start("dask_scheduler", "--scheduler-file", place, "--port", "0", "--no-dashboard")
    worker = start(
        "dask_worker", "--scheduler-file", place, "--nthreads", "1", "--no-dashboard", "--death-timeout", "20"
    )
    try:
        until = time.monotonic() + 60
        while not os.path.exists(place) and time.monotonic() < until:
            time.sleep(0.1)
        with dask.config.set({"distributed.comm.timeouts.connect": "5s"}):
            client = distributed.Client(scheduler_file=place, timeout=60)
            client.wait_for_workers(1, timeout=60)
            X, y = data()
            ending = after(0.6, lambda: scheduler.send_signal(getattr(signal, number)))
            began = time.monotonic()
            with pytest.raises(BaseException) as raised:
                OLSEnsembleRegressor(5, random_state=0).fit(X, y)
            seconds = time.monotonic() - began
            ending.join()
            assert seconds < LONGEST
            row.add(f"error ({raised.type.__name__})", seconds)
            client.close(timeout=5)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
