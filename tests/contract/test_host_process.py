"""A fit changes nothing in its process outside of olsen's objects, and private names of other
libraries are listed.

Where a test of the last part fails after an upgrade, the library in its message has changed
something that it never promised; the code has another way where the test says so.
"""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.utils import validation

from loops import case
from olsen import OLSEnsembleRegressor
from olsen._execution import arrays, memory

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of Linux")


def run(code, *arguments):
    """Run code in a new interpreter: what it prints. It must end by itself, without a message."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    # workers of a Dask cluster in another test leave OMP_NUM_THREADS=1 behind in this process
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


# The host process

HOST = """
import gc, locale, logging, multiprocessing, os, pathlib, random, resource, signal, sys, threading, time, warnings
import joblib, numpy as np, sklearn, threadpoolctl


def of_all_threads(ask):
    return {task: ask(int(task)) for task in os.listdir("/proc/self/task")}


def generators():
    name, keys, *rest = np.random.get_state()
    return random.getstate(), name, keys.tolist(), rest


def open_files():
    numbers = os.listdir("/proc/self/fd")
    return [os.readlink(f"/proc/self/fd/{n}") for n in numbers if os.path.exists(f"/proc/self/fd/{n}")]


def children():
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return "none"


def host():
    return {
        "cores": of_all_threads(os.sched_getaffinity),
        "niceness": of_all_threads(lambda task: os.getpriority(os.PRIO_PROCESS, task)),
        "threads of BLAS and OpenMP": {x["filepath"]: x["num_threads"] for x in threadpoolctl.threadpool_info()},
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "timers": [signal.getitimer(kind) for kind in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "warnings": (list(warnings.filters), warnings.showwarning),
        "NumPy": (np.geterr(), np.geterrcall(), np.get_printoptions()),
        "locale": locale.setlocale(locale.LC_ALL),
        "environment": dict(os.environ),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
        "folder": os.getcwd(),
        "umask": [x for x in pathlib.Path("/proc/self/status").read_text().splitlines() if x.startswith("Umask")],
        "imports": (list(sys.path), list(sys.meta_path), list(sys.path_hooks)),
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook, sys.gettrace()),
        "interpreter": (sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold(), gc.isenabled()),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "generators": generators(),
        "logging": (logging.root.level, list(logging.root.handlers)),
        "scikit-learn": sklearn.get_config(),
        "joblib": type(joblib.parallel.get_active_backend()[0]),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "open files": open_files(),
        "children": children(),
    }
"""

FITS = """
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV

X = np.random.default_rng(0).standard_normal((300, 40))
y = X.sum(axis=1) + np.random.default_rng(1).standard_normal(300)


def blocks():
    return ((X[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50))


def broken():
    yield X[:50], y[:50]
    raise OSError("the disk has gone")


def fits():
    for Model in (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        for data in ((X, y), (blocks, None)):
            Model(n_estimators=30, n_jobs=2, random_state=0).fit(*data).predict(X)
        for data in ((broken(), None), (X[:, :0], y)):
            try:
                Model(n_estimators=30, n_jobs=2, random_state=0).fit(*data)
            except (OSError, ValueError):
                continue
            raise AssertionError("this should not fit")
    for solver in ("gram", "orthogonal", "masked_cg"):
        OLSEnsembleRegressor(30, n_jobs=2, solver=solver, random_state=0).fit(X, y)
"""


OTHER_SETTINGS = """
random.seed(1)
np.random.seed(2)
np.seterr(under="warn", over="ignore")
signal.signal(signal.SIGTERM, lambda *_: None)
warnings.simplefilter("error")
os.environ["OMP_DYNAMIC"] = "FALSE"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.setswitchinterval(0.004)
"""

COMPARE = """
MOST = max(4, os.cpu_count())  # pooled threads
before, threads = host(), set(threading.enumerate())
fits()
for _ in range(50):  # threads that have ended take a moment to leave the system's table
    after = host()
    started = after["cores"].keys() - before["cores"].keys()
    if len(started) <= MOST:
        break
    time.sleep(0.1)
for task in started:
    assert after["cores"].pop(task) == os.sched_getaffinity(0) and not after["niceness"].pop(task)
for what in before:
    if before[what] != after[what]:
        print(what, "was", before[what], "and is", after[what])
ours = set(threading.enumerate()) - threads
assert 1 <= len(ours) <= MOST and all(thread.name.startswith("olsen") for thread in ours), ours
assert len(started) <= MOST, "threads that Python does not know of"
"""


@linux
@pytest.mark.parametrize(
    "settings", ["", OTHER_SETTINGS], ids=["default host", "host with other settings"]
)
def test_fits_leave_the_host_as_it_was(settings):
    """Also fits that fail. Generators do not change because the fits have a seed, as in
    scikit-learn.
    """
    assert run(HOST + FITS + settings + COMPARE) == ""


# Available memory, in containers too

# pages of files are given back
BUSY = {"memory.current": "900", "memory.stat": "anon 600\nfile 300\nanon_thp 5\n"}

GROUPS = {
    "no group": ({}, 2**20),
    "one group": (
        {"proc/self/cgroup": "0::/a/b:c\n", "sys/fs/cgroup/a/b:c": {"memory.max": "1000", **BUSY}},
        400,
    ),
    "its root is the container": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup": {"memory.max": "1000", **BUSY}},
        400,
    ),
    "both have limits": (
        {
            "proc/self/cgroup": "0::/a\n",
            "sys/fs/cgroup": {"memory.max": "700", **BUSY},
            "sys/fs/cgroup/a": {"memory.max": "1000", **BUSY},
        },
        100,
    ),
    "more than the limit is in use": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a": {"memory.max": "500", **BUSY}},
        0,
    ),
    "no limit": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a": {"memory.max": "max", **BUSY}},
        2**20,
    ),
    "unreadable": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a": {"memory.max": "?", "memory.stat": "?"}},
        2**20,
    ),
}


def write(root, tree):
    for name, content in tree.items():
        if isinstance(content, dict):
            write(root / name, content)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)


def test_available_memory_in_control_groups(tmp_path, monkeypatch):
    assert memory.available_bytes(tmp_path) > 0, "where the system has no such files"
    monkeypatch.setattr(memory, "resource", None)
    for name, (tree, expected) in GROUPS.items():
        write(
            tmp_path / name,
            {"proc/meminfo": "MemTotal: 9999 kB\nMemFree: 5 kB\nMemAvailable:    1024 kB\n"} | tree,
        )
        with case(name):
            assert memory.available_bytes(tmp_path / name) == expected


@linux
def test_available_memory_under_a_limit_of_the_process():
    """The memory that is reported can be allocated, and hardly more."""
    printed = run("""
        import resource
        import numpy as np
        from olsen import OLSEnsembleRegressor
        from olsen._execution import memory

        with open("/proc/self/status") as lines:
            used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))
        assert memory.available_bytes() > 1e8, "too little memory for this test"
        resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, resource.RLIM_INFINITY))
        left = memory.available_bytes()
        assert 0 < left <= 100_000_000, left
        np.empty(int(0.9 * left), dtype=np.uint8)
        try:
            OLSEnsembleRegressor(3, 5, solver="gram").fit(np.ones((20, 5000)), np.arange(20.0))
        except MemoryError as error:
            print(error)
        """)
    assert "The Gram matrix of 5000 columns needs 200 MB" in printed


# Private names of other libraries

CONSTRAINTS = ("Interval", "Options", "StrOptions", "validate_parameter_constraints")
PRIVATE = {
    "sklearn.utils._array_api.get_namespace",
    "sklearn.utils.validation._check_sample_weight",
    *(f"sklearn.utils._param_validation.{name}" for name in CONSTRAINTS),
}


def gone(module, attribute):
    return f"{module.__name__} {module.__version__} has no {attribute} any more."


def test_no_other_private_name_is_imported():
    imported = set()
    for path in Path(arrays.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                imported |= {f"{node.module}.{name.name}" for name in node.names}
            elif isinstance(node, ast.Import):
                imported |= {name.name for name in node.names}
    private = {
        name for name in imported if "._" in name and not name.startswith(("__future__", "olsen."))
    }
    assert private <= PRIVATE, "Use a public name, or add it to PRIVATE together with a test."


def test_parameters_and_weights_are_checked_by_private_names_of_scikit_learn():
    assert hasattr(validation, "_check_sample_weight"), gone(
        sklearn, "utils.validation._check_sample_weight"
    )
    module = pytest.importorskip("sklearn.utils._param_validation")
    for name in CONSTRAINTS:
        assert hasattr(module, name), gone(sklearn, f"utils._param_validation.{name}")
    with pytest.raises(ValueError, match=r"n_estimators.*0"):
        OLSEnsembleRegressor(0)._validate_params()


def test_the_namespace_comes_from_a_private_function_of_scikit_learn(monkeypatch):
    strict = pytest.importorskip("array_api_strict")
    module = pytest.importorskip("sklearn.utils._array_api")
    assert hasattr(module, "get_namespace"), gone(sklearn, "utils._array_api.get_namespace")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=True):
        space = arrays.space_of(strict.ones(3))
        assert space.name == "array_api_strict" and space.dtype == strict.float64
        assert arrays.space_of(np.ones(3)) is None and arrays.space_of([1.0]) is None


def test_the_dask_backend_of_joblib_is_known_by_its_client():
    """Class and module are private; the name of the attribute is in Joblib's own examples."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ),
        joblib.parallel_config("dask"),
    ):
        backend, _ = joblib.parallel.get_active_backend()
        assert hasattr(backend, "client"), gone(joblib, "client in the backend for Dask")
