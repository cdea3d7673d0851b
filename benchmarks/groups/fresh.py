"""What takes a fresh process to measure: memory, the time of importing the estimators, and the
first fit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import judged

TITLE = "Memory, import and the first fit"
NOTE = (
    "Peak memory is the largest resident set of a process that makes the data and fits once,"
    " interpreter, libraries and data included. Import time is that of the estimators of olsen"
    " minus that of `import sklearn.linear_model`, each the best of several fresh processes that"
    " take turns. The first fit is that of a process whose caches are empty; memory after it is"
    " that of an environment with the required libraries alone: pandas and others, which"
    " scikit-learn and joblib load where they are installed, are kept out."
)
HERE = Path(__file__).parents[1]
WIDE = (500, 20_000, 100, 500)
TOY_WIDE = (20, 50, 5, 6)

PEAK_FUNCTION = """
import json, re, resource, sys
from pathlib import Path

def peak():
    # a new program inherits the resource usage of the one that started it, so the kernel's own mark comes first
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text()).group(1))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
"""
PEAK = (
    PEAK_FUNCTION
    + """
from problems import linear
from olsen import OLSEnsembleRegressor

n, p, m, k = json.loads(sys.argv[1])
X, y = linear(n, p)
before = peak()
OLSEnsembleRegressor(k, m, n_jobs=2, random_state=0).fit(X, y)
print(json.dumps([before, peak()]))
"""
)
FIRST = (
    PEAK_FUNCTION
    + """
sys.modules.update(dict.fromkeys(("pandas", "pyarrow", "polars", "rich", "psutil", "dask")))
import time
from problems import linear
from olsen import AdaptiveOLSEnsembleRegressor

X, y = linear(*json.loads(sys.argv[1]))
seconds = []
for _ in range(3):
    start = time.perf_counter()
    AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
    seconds.append(time.perf_counter() - start)
print(json.dumps([seconds, peak()]))
"""
)
IMPORT = "import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
IMPORTS = {  # `import olsen` alone loads nothing: names are loaded when they are used
    "sklearn.linear_model": "import sklearn.linear_model",
    "olsen": (
        "from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV,"
        " AdaptiveOLSEnsembleRegressor"
    ),
}


def run(quick: bool):
    yield peak_memory(TOY_WIDE if quick else WIDE)
    yield import_time(repeats=0 if quick else 7)
    yield from first_fit((60, 20) if quick else (500, 200), repeats=1 if quick else 3)


def fresh_process(code: str, *arguments: str) -> str:
    """What the code prints in a process of its own, with the benchmarks' modules within reach and
    no caches.
    """
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n{code}",
        *arguments,
    ]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "XDG_CACHE_HOME": empty, "NUMBA_CACHE_DIR": empty}
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        ).stdout


def peak_memory(shape):
    before, after = json.loads(fresh_process(PEAK, json.dumps(shape)))
    name = "peak memory of a wide fit, n, p, m, k = " + ", ".join(map(str, shape))
    return {
        "name": name,
        "unit": "GB",
        "before_fit": before / 1e9,
        **judged(after / 1e9, 1.0, better="less"),
    }


def import_time(repeats):
    best = dict.fromkeys(IMPORTS, float("inf"))
    for _ in range(repeats + 1):  # the first one fills the file cache
        for name, statement in IMPORTS.items():
            best[name] = min(best[name], float(fresh_process(IMPORT.format(statement=statement))))
    extra = best["olsen"] - best["sklearn.linear_model"]
    return {
        "name": "import of the estimators beyond scikit-learn",
        "unit": "s",
        "seconds": best,
        **judged(extra, 0.3, better="less"),
    }


def first_fit(shape, repeats):
    """The first tuned fit of a process over its third one, the best of several processes; and what
    they take.
    """
    runs = [json.loads(fresh_process(FIRST, json.dumps(shape))) for _ in range(repeats)]
    seconds = [min(times) for times in zip(*(one for one, _ in runs), strict=True)]
    of = "tuned fit of {} x {} in a fresh process".format(*shape)
    parts = dict(zip(("first", "second", "third"), seconds, strict=True))
    ratio = judged(seconds[0] / seconds[2], 3.0, better="less")
    yield {"name": f"first {of} over the third", "unit": "x", "seconds": parts, **ratio}
    memory = judged(min(peak for _, peak in runs) / 2**20, 150.0, better="less")
    yield {"name": f"peak memory of a {of}", "unit": "MiB", "seconds": {}, **memory}


def cells(row):
    if "before_fit" in row:
        of_which = f"{row['before_fit']:.2f} GB before the fit (interpreter, libraries, data)"
    else:
        of_which = ", ".join(f"{name} {value:.2f} s" for name, value in row["seconds"].items())
    return {
        "what": row["name"],
        "measured": f"{row['value']:.3g} {row['unit']}",
        "parts": of_which,
        "must": f"under {row['must']:g} {row['unit']}",
        "verdict": row["verdict"],
    }
