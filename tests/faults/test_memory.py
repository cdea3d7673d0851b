"""Too little memory: the right answer, or MemoryError with words; the estimator is what it was."""

import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from children import Child, Ended, coefficients, one_line, problem, same

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV, cli

pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")]

KINDS = {
    "shared Gram matrix": (lambda jobs: OLSEnsembleRegressor(60, random_state=0, n_jobs=jobs), 12_000, 300),
    "rows drawn": (lambda jobs: OLSEnsembleRegressor(30, max_samples=0.5, random_state=0, n_jobs=jobs), 6000, 150),
    "minimum norm": (lambda jobs: OLSEnsembleRegressor(10, max_features=0.9, random_state=0, n_jobs=jobs), 300, 4000),
    "tuned": (lambda jobs: OLSEnsembleRegressorCV(20, random_state=0, n_jobs=jobs), 300, 50),
}
LIMITS = 10
MB = 2**20


def in_use(name):
    """Bytes of this process that a limit counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise AssertionError(name)


def limit_to(kind, left):
    used = in_use({"RLIMIT_AS": "VmSize:", "RLIMIT_DATA": "VmData:"}[kind])
    resource.setrlimit(getattr(resource, kind), (used + left, resource.RLIM_INFINITY))


def fit_within(kind, left, model, data, coef):
    """How a fit ends that has so many bytes left, and whether the earlier fit of the model stands."""
    before = model.coef_.tobytes(), sorted(vars(model))
    limit_to(kind, left)
    try:
        fitted = model.fit(*data)
    except MemoryError as error:
        unchanged = (model.coef_.tobytes(), sorted(vars(model))) == before
        if not str(error):
            return "MemoryError without words"
        return "MemoryError in words" if unchanged else "estimator changed"
    return "right" if same(fitted.coef_, coef) else "wrong coefficients"


FINE = ("right", "MemoryError in words")


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
@pytest.mark.parametrize("name", KINDS)
def test_a_limit_on_memory(fault, kind, name, seed):
    make, n, p = KINDS[name]
    data, rng = problem(n, p), np.random.default_rng(seed)
    coef = make(2).fit(*data).coef_
    row = fault(f"{kind}, arrays in memory")
    need = 3 * data[0].nbytes + 40 * MB
    for left in rng.uniform(0, need, LIMITS).astype(int):
        earlier = make(int(rng.integers(1, 3))).fit(data[0][:200], data[1][:200])
        row.judge(Child(fit_within, kind, int(left), earlier, data, coef), FINE)


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_on_memory_while_blocks_are_read(fault, kind, tmp_path, seed):
    X, y = problem(100_000, 60)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    data, rng, row = (tmp_path / "X.npy", tmp_path / "y.npy"), np.random.default_rng(seed), fault(f"{kind}, blocks")
    for make in (KINDS["shared Gram matrix"][0], KINDS["tuned"][0]):
        earlier = make(2).fit(*data)
        for left in rng.uniform(0, 150 * MB, 8).astype(int):
            row.judge(Child(fit_within, kind, int(left), earlier, data, earlier.coef_), FINE)


def command_within(kind, left, folder):
    os.chdir(folder)
    limit_to(kind, left)
    outputs = ["--out", "m.skops", "--report", "r.html"]
    return cli.main(["fit", "t.parquet", "--target", "y", "--members", "20", "--jobs", "2", *outputs])


def test_a_limit_on_memory_of_the_command(fault, tmp_path, seed):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y = problem(30_000, 60)
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(60)} | {"y": y}), tmp_path / "t.parquet")
    row, rng = fault("RLIMIT_AS, command"), np.random.default_rng(seed)
    assert cli.main(["fit", str(tmp_path / "t.parquet"), "--target", "y", "--members", "2"]) == 0  # loads the libraries
    assert Child(command_within, "RLIMIT_AS", 2**40, str(tmp_path)).answer() == 0
    whole = coefficients(tmp_path / "m.skops")
    for left in rng.uniform(0, 150 * MB, 8).astype(int):
        try:
            code = Child(command_within, "RLIMIT_AS", int(left), str(tmp_path), stderr=str(tmp_path / "err")).answer()
        except Ended as error:
            row.lose(str(error))
            continue
        said = (tmp_path / "err").read_text()
        (tmp_path / "err").unlink()
        names = {path.name for path in tmp_path.iterdir()}
        if names != {"t.parquet", "m.skops", "r.html"} or not same(coefficients(tmp_path / "m.skops"), whole):
            row.lose(f"files {names}")
        elif code == 0:
            row.add("right")
        elif one_line(code, said):
            row.add("one line, exit code 1")
        else:
            row.lose(f"{code}: {said[-300:]}")


@pytest.fixture
def group():
    """``group(bytes)`` makes a control group with this limit, of either version; skips where none can be made."""
    root = next(
        (r for r in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if (r / "cgroup.procs").exists()), None
    )
    folder = root and root / f"olsen-faults-{os.getpid()}"
    try:
        folder.mkdir()
    except (OSError, AttributeError) as error:
        pytest.skip(f"no control group can be made here: {error}")
    most = next((folder / name for name in ("memory.limit_in_bytes", "memory.max") if (folder / name).exists()), None)
    if most is None:
        folder.rmdir()
        pytest.skip("control groups have no limit on memory here")

    def limited(n_bytes):
        most.write_text(str(n_bytes))
        return folder / "cgroup.procs"

    yield limited
    folder.rmdir()


def fit_in_group(procs, model, data, coef):
    Path(procs).write_text(str(os.getpid()))
    return fit_within("RLIMIT_AS", 2**40, model, data, coef)


def test_a_control_group(fault, group, tmp_path, seed):
    """Wide members need copies of many columns, a file of 80 MB does not need to fit."""
    rng, row = np.random.default_rng(seed), fault("control group, arrays and blocks")
    X, y = problem(170_000, 60)
    np.save(tmp_path / "X.npy", X)
    blocks = OLSEnsembleRegressor(20, random_state=0).fit(tmp_path / "X.npy", y)
    gram, data = OLSEnsembleRegressor(5, solver="gram", max_features=50, random_state=0), problem(300, 7000)
    coef = gram.fit(*data).coef_
    for left in rng.uniform(70, 500, 6) * MB:
        procs = str(group(int(left)))
        for model, given, found in ((gram, data, coef), (blocks, (tmp_path / "X.npy", y), blocks.coef_)):
            row.judge(Child(fit_in_group, procs, model, given, found), FINE, f"{model} {left / MB:.0f} MB")


def test_the_table_sees_what_is_lost():
    """The counting itself: a child that is killed and one that hangs are not taken for answers."""
    with pytest.raises(Ended, match="SIGKILL"):
        Child(lambda: os.kill(os.getpid(), signal.SIGKILL)).answer()
    with pytest.raises(Ended, match="hung"):
        Child(signal.pause).answer(longest=0.5)
