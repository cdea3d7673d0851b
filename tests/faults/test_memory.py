"""Too little memory: the right answer, or MemoryError with words; the estimator is what it was."""

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from children import Child, Ended, coefficients, problem, same, table_of

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV, cli

pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")]

KINDS = {
    "shared Gram matrix": (
        lambda jobs: OLSEnsembleRegressor(60, random_state=0, n_jobs=jobs),
        12_000,
        300,
    ),
    "rows drawn": (
        lambda jobs: OLSEnsembleRegressor(30, max_samples=0.5, random_state=0, n_jobs=jobs),
        6000,
        150,
    ),
    "minimum norm": (
        lambda jobs: OLSEnsembleRegressor(10, max_features=0.9, random_state=0, n_jobs=jobs),
        300,
        4000,
    ),
    "size tuned": (lambda jobs: OLSEnsembleRegressorCV(20, random_state=0, n_jobs=jobs), 300, 50),
    "adaptive": (
        lambda jobs: AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0, n_jobs=jobs),
        300,
        50,
    ),
}
FINE = ("right", "MemoryError in words")
MB = 2**20


def limit_to(spare_bytes):
    """Leave this process so many bytes of its address space (RLIMIT_AS)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    used = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmSize:"))
    resource.setrlimit(resource.RLIMIT_AS, (used + int(spare_bytes), resource.RLIM_INFINITY))


def fit_within(spare_bytes, model, data, coef):
    """How a fit ends that has so many bytes left, and whether the earlier fit of the model stands."""
    original = model.coef_.tobytes(), sorted(vars(model))
    limit_to(spare_bytes)
    try:
        fitted = model.fit(*data)
    except MemoryError as error:
        unchanged = (model.coef_.tobytes(), sorted(vars(model))) == original
        return (
            "estimator changed"
            if not unchanged
            else f"MemoryError {'in' if str(error) else 'without'} words"
        )
    return "right" if same(fitted.coef_, coef) else "wrong coefficients"


def test_a_limit_on_memory(fault, tmp_path, seed):
    rng = np.random.default_rng(seed)
    for make, n, p in KINDS.values():
        data = problem(n, p)
        coef = make(2).fit(*data).coef_
        for spare_bytes in rng.uniform(0, 3 * data[0].nbytes + 40 * MB, 10):
            earlier = make(int(rng.integers(1, 3))).fit(data[0][:200], data[1][:200])
            fault("RLIMIT_AS, arrays in memory").judge(
                Child(fit_within, spare_bytes, earlier, data, coef), FINE
            )
    data = tmp_path / "X.npy", tmp_path / "y.npy"
    for path, array in zip(data, problem(100_000, 60), strict=True):
        np.save(path, array)
    for name in ("shared Gram matrix", "size tuned", "adaptive"):
        earlier = KINDS[name][0](2).fit(*data)
        for spare_bytes in rng.uniform(0, 150 * MB, 8):
            fault("RLIMIT_AS, blocks").judge(
                Child(fit_within, spare_bytes, earlier, data, earlier.coef_), FINE
            )


def command_within(spare_bytes, folder):
    os.chdir(folder)
    limit_to(spare_bytes)
    outputs = ["--out", "m.skops", "--report", "r.html", "--force"]
    return cli.main(
        ["fit", "t.parquet", "--target", "y", "--members", "20", "--jobs", "2", *outputs]
    )


def test_a_limit_on_memory_of_the_command(fault, tmp_path, seed):
    pytest.importorskip("pyarrow.parquet").write_table(table_of(30_000, 60), tmp_path / "t.parquet")
    assert (
        cli.main(["fit", str(tmp_path / "t.parquet"), "--target", "y", "--members", "2"]) == 0
    )  # loads the libraries
    assert Child(command_within, 2**40, str(tmp_path)).answer() == 0
    expected = coefficients(tmp_path / "m.skops")

    def damage(code):
        names = {path.name for path in tmp_path.iterdir()}
        as_before = names == {"t.parquet", "m.skops", "r.html"} and same(
            coefficients(tmp_path / "m.skops"), expected
        )
        return "" if as_before else f"files {names}"

    for spare_bytes in np.random.default_rng(seed).uniform(0, 150 * MB, 8):
        fault("RLIMIT_AS, command").command(
            tmp_path, damage, command_within, spare_bytes, str(tmp_path)
        )


@pytest.fixture
def group():
    """``group(bytes)`` makes a control group of version 2 with this limit; skips where none can be
    made.
    """
    folder = Path(f"/sys/fs/cgroup/olsen-faults-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")

    def limited(n_bytes):
        if not (folder / "memory.max").exists():
            pytest.skip("control groups have no limit on memory here")
        (folder / "memory.max").write_text(str(n_bytes))
        return str(folder / "cgroup.procs")

    yield limited
    folder.rmdir()


def fit_in_group(procs, *fit):
    Path(procs).write_text(str(os.getpid()))
    return fit_within(2**40, *fit)


def test_a_control_group(fault, group, tmp_path, seed):
    """Wide members need copies of many columns, a file of 80 MB does not need to fit."""
    X, y = problem(170_000, 60)
    np.save(tmp_path / "X.npy", X)
    blocks = OLSEnsembleRegressor(20, random_state=0).fit(tmp_path / "X.npy", y)
    gram = OLSEnsembleRegressor(5, solver="gram", max_features=50, random_state=0)
    data = problem(300, 7000)
    coef = gram.fit(*data).coef_
    row = fault("control group, arrays and blocks")
    for limit_bytes in np.random.default_rng(seed).uniform(70, 500, 6) * MB:
        procs = group(int(limit_bytes))
        for fit in ((gram, data, coef), (blocks, (tmp_path / "X.npy", y), blocks.coef_)):
            row.judge(Child(fit_in_group, procs, *fit), FINE, f"{fit[0]} {limit_bytes / MB:.0f} MB")


def test_the_table_counts_losses():
    """The counting itself: a child that is killed and one that hangs are not taken for answers."""
    with pytest.raises(Ended, match="SIGKILL"):
        Child(lambda: os.kill(os.getpid(), signal.SIGKILL)).answer()
    with pytest.raises(Ended, match="hung"):
        Child(signal.pause).answer(longest=0.5)


DOCUMENTED = re.findall(
    r"^\| ([\d ]+) x ([\d ]+) \| ([^|]+) \| [^|]+ \| (\d+) MB \|",
    (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(),
    re.MULTILINE,
)
FIT_OF_A_SHAPE = """
import sys
import numpy as np
import scipy.sparse as sp
from olsen import AdaptiveOLSEnsembleRegressor

def now(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

n, p, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
AdaptiveOLSEnsembleRegressor().fit(rng.standard_normal((50, 5)), rng.standard_normal(50))
if kind.startswith("sparse"):
    density = float(kind.split()[1]) / 100
    rows = rng.integers(0, n, int(density * n * p))
    columns = (p * rng.random(len(rows)) ** 2).astype(np.int64)  # the first ones are frequent
    X = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(n, p))
    del rows, columns
elif kind == "double":
    X = rng.standard_normal((n, p))
else:
    X = (rng.random((n, p), dtype=np.float32) < 0.3).astype(np.int8)
signal = np.asarray(X[:, :60] @ rng.standard_normal(60)).ravel()
y = signal + signal.std() * rng.standard_normal(n)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins here
before = now("VmRSS")
AdaptiveOLSEnsembleRegressor().fit(X, y)
print(now("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured from /proc")
@pytest.mark.parametrize(("n", "p", "kind", "limit"), DOCUMENTED)
def test_shapes_take_no_more_memory_than_documented(n, p, kind, limit):
    arguments = [n.replace(" ", ""), p.replace(" ", ""), kind.strip(" `")]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FIT_OF_A_SHAPE, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **one_thread},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= float(limit)


def test_the_table_of_shapes_is_read():
    assert len(DOCUMENTED) == 6
