"""A Dask array that is never in the client: tune and fit on two worker processes, and watch the
client's memory.

python benchmarks/cluster.py                     # 2 000 000 x 200, about 3.2 GB that exist in chunks only
python benchmarks/cluster.py --rows 100000       # a short run
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import dask.array as da
import distributed

from olsen import AdaptiveOLSEnsembleRegressor


def resident():
    """Resident memory of this process, in MB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))


class Watch(threading.Thread):
    """Largest resident memory until stopped."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.done = resident(), threading.Event()

    def run(self):
        while not self.done.wait(0.02):
            self.peak = max(self.peak, resident())


def make_data(rows, columns, chunk):
    rng = da.random.default_rng(0)
    X = rng.standard_normal((rows, columns), chunks=(chunk, columns))
    common = rng.standard_normal((rows, 1), chunks=(chunk, 1))
    X = X + 0.5 * common
    beta = da.random.default_rng(1).standard_normal(columns, chunks=columns)
    return X, X @ beta + 5 * rng.standard_normal(rows, chunks=chunk)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--chunk", type=int, default=50_000)
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    arguments = parser.parse_args()
    settings = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
    }
    with distributed.LocalCluster(silence_logs=40, **settings) as local, distributed.Client(local):
        X, y = make_data(arguments.rows, arguments.columns, arguments.chunk)
        small = AdaptiveOLSEnsembleRegressor(n_estimators=10, random_state=0)
        small.fit(X[: arguments.chunk], y[: arguments.chunk])
        before, watch, start = resident(), Watch(), time.perf_counter()
        watch.start()
        model = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
        seconds = time.perf_counter() - start
        watch.done.set()
        watch.join()
        lazy = model.predict(X)
        result = {
            "rows": arguments.rows,
            "columns": arguments.columns,
            "data_GB": X.nbytes / 1e9,
            "seconds": seconds,
            "client_growth_MB": watch.peak - before,
            "criterion": model.criterion_,
            "columns_per_member": float(model.inclusion_.sum()),
            "columns_per_member_on_one_chunk": float(small.inclusion_.sum()),
            "scheme_weights": model.scheme_weights_,
            "prediction_is": type(lazy).__name__,
        }
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
