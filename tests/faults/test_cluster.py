"""A Dask scheduler lost: an error within a bounded time. Workers are killed in ``tests/test_dask.py``."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from children import after

from olsen import OLSEnsembleRegressor

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
