"""A full disk: what was there stays, nothing half-written remains, and one line says so."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from children import Child, Ended, one_line, problem

from olsen import cli
from olsen.simulation import Ensemble, LinearProblem, Ridge, run

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
pytestmark = [pytest.mark.faults, pytest.mark.skipif(os.name == "nt", reason="mounts and limits of POSIX")]

FIT = ["fit", "t.parquet", "--target", "y", "--members", "10", "--jobs", "1"]
COMMANDS = {
    "model and report": [*FIT, "--out", "out/m.skops", "--report", "out/r.html"],
    "predictions as CSV": ["predict", "m.skops", "t.parquet", "--out", "out/p.csv"],
    "predictions as Parquet": ["predict", "m.skops", "t.parquet", "--out", "out/p.parquet", "--interval", "0.9"],
    "figures": ["reproduce", "figure4", "--scale", "quick", "--jobs", "2", "--out", "out"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, a model, and what every command writes where there is room."""
    folder = tmp_path_factory.mktemp("made")
    X, y = problem(1500, 8)
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(8)} | {"y": y}), folder / "t.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main([*FIT, "--out", "m.skops"]) == 0
        for name, arguments in COMMANDS.items():
            (folder / "out").mkdir()
            assert cli.main(arguments) == 0
            (folder / "out").rename(folder / name)
    return folder


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture
def disk(tmp_path):
    """``disk(bytes)`` makes the folder `out` a disk of this size; without the right to mount, files are limited."""
    place, mounted = tmp_path / "out", []

    def make(n_bytes):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(place)]
        if subprocess.run(command, capture_output=True).returncode:
            return n_bytes
        mounted.append(place)
        return None

    def unmount():
        while mounted:
            subprocess.run(["umount", str(mounted.pop())], check=True)

    yield make, unmount
    unmount()


def command(folder, arguments, limit):
    os.chdir(folder)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return cli.main(arguments)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_full_disk(fault, made, disk, tmp_path, name, earlier, seed):
    make, unmount = disk
    for path in ("t.parquet", "m.skops"):
        shutil.copy(made / path, tmp_path)
    whole = files(made / name)
    trials = {path for path in whole if path.startswith("trials")}  # finished ones are not run again
    rng, row = np.random.default_rng([seed, len(name)]), fault(f"disk full, {name}")
    room, kept = room_for(whole, set(whole) - trials), room_for(whole, whole if earlier else trials)
    for size in rng.uniform(0.05 * room, 1.3 * room, 4 if trials else 6).astype(int):
        limit = make(kept + int(size) // 4096 * 4096 + 8192)
        for path in whole if earlier else trials:
            (tmp_path / "out" / path).parent.mkdir(exist_ok=True)
            shutil.copy(made / name / path, tmp_path / "out" / path)
        before = files(tmp_path / "out")
        try:
            code = Child(command, str(tmp_path), COMMANDS[name], limit, stderr=str(tmp_path / "err")).answer()
        except Ended as error:
            row.lose(str(error))
            continue
        said, now = (tmp_path / "err").read_text(), files(tmp_path / "out")
        (tmp_path / "err").unlink()
        judge(row, code, said, before, now, whole)
        unmount()


def room_for(contents, names):
    """Bytes that files take on a disk."""
    return sum(-(-len(contents[name]) // 4096) * 4096 for name in names)


def simulate(folder, limit):
    """Trials to a folder on the disk; none of those that are there is lost or damaged."""
    os.chdir(folder)
    cells = [(LinearProblem(n=30, p=20), Ensemble(5)), (LinearProblem(n=30, p=20), Ridge(20.0))]
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        return [estimate.mean for estimate in run(cells, trials=300, seed=0, store="out")]
    except OSError as error:
        return f"{error.strerror}: {error.filename}"


def test_a_full_disk_under_a_simulation(fault, disk, tmp_path, seed):
    make, unmount = disk
    row, rng = fault("disk full, simulation trials"), np.random.default_rng(seed)
    make(2**20)
    whole = Child(simulate, str(tmp_path), None).answer()
    unmount()
    for size in rng.integers(1, 10, 6):
        limit = make(4096 * int(size))
        found = Child(simulate, str(tmp_path), limit).answer()
        hidden = [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]
        for path in (tmp_path / "out").iterdir():
            np.load(path)["values"]
        if hidden or (isinstance(found, str) and "nothing was changed" not in found):
            row.lose(f"{hidden} {found}")
        elif isinstance(found, str):
            row.add("error in words")
        else:
            row.add("right") if np.allclose(found, whole) else row.lose("other risks")
        unmount()


def judge(row, code, said, before, now, whole):
    """Every file is an earlier one or of the size of a whole one, none is hidden, none has gone."""
    half = [n for n, content in now.items() if content != before.get(n) and not near(content, whole.get(n, content))]
    hidden, gone = [n for n in now if Path(n).name.startswith(".")], set(before) - set(now)
    if half or hidden or gone:
        row.lose(f"half {half}, hidden {hidden}, gone {gone}")
    elif code == 0:
        row.add("whole")
    elif one_line(code, said):
        row.add("one line, exit code 1")
    else:
        row.lose(f"{code}: {said[-200:]}")


def near(content, other):
    """Versions, times and seconds in a file make it a little longer or shorter."""
    return abs(len(content) - len(other)) <= 0.02 * len(other) + 64


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_device_and_an_output_that_are_full(fault, made, tmp_path):
    row = fault("/dev/full as output and as standard output")
    runs = [
        (["predict", "m.skops", "t.parquet", "--out", "/dev/full"], None),
        ([*FIT, "--report", "/dev/full"], None),
        (["predict", "m.skops", "t.parquet"], "/dev/full"),
        ([*FIT, "--json"], "/dev/full"),
        (["risk", "--gamma", "2", "--sigma", "1"], "/dev/full"),
    ]
    for arguments, stdout in runs:
        with open(stdout or os.devnull, "w") as out:
            done = subprocess.run(
                [sys.executable, "-m", "olsen", *arguments], cwd=made, stdout=out, stderr=subprocess.PIPE, text=True
            )
        if one_line(done.returncode, done.stderr):
            row.add("one line, exit code 1")
        else:
            row.lose(f"{arguments}: {done.returncode} {done.stderr[-300:]}")
