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
from children import Child, one_line, table_of

from olsen import cli
from olsen.simulation import Ensemble, LinearProblem, Ridge, run

pq = pytest.importorskip("pyarrow.parquet")
pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.name == "nt", reason="mounts and limits of POSIX"),
]

FIT = ["fit", "t.parquet", "--target", "y", "--members", "10", "--jobs", "1"]
COMMANDS = {
    "model and report": [*FIT, "--out", "out/m.skops", "--report", "out/r.html", "--force"],
    "predictions as CSV": ["predict", "m.skops", "t.parquet", "--out", "out/p.csv", "--force"],
    "predictions as Parquet": [
        "predict",
        "m.skops",
        "t.parquet",
        "--out",
        "out/p.parquet",
        "--force",
    ],
    "figures": [
        "reproduce",
        "figure4",
        "--scale",
        "quick",
        "--jobs",
        "2",
        "--out",
        "out",
        "--force",
    ],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A table, a model, and what every command writes where there is room."""
    folder = tmp_path_factory.mktemp("made")
    pq.write_table(table_of(1500, 8), folder / "t.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main([*FIT, "--out", "m.skops"]) == 0
        for name, arguments in COMMANDS.items():
            (folder / "out").mkdir()
            assert cli.main(arguments) == 0
            (folder / "out").rename(folder / name)
    return folder


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


@pytest.fixture
def disk(tmp_path):
    """``disk(bytes)`` makes the folder `out` a disk of this size; without the right to mount, files
    are limited.
    """
    folder = tmp_path / "out"

    def unmount():
        while os.path.ismount(folder):
            subprocess.run(["umount", str(folder)], check=True)

    def make(n_bytes):
        unmount()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(folder)]
        return n_bytes if subprocess.run(command, capture_output=True).returncode else None

    yield make
    unmount()


def within(limit, folder, function, *arguments):
    os.chdir(folder)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return function(*arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(fault, finished, disk, tmp_path, name, seed):
    for path in ("t.parquet", "m.skops"):
        shutil.copy(finished / path, tmp_path)
    complete = files(finished / name)
    rng = np.random.default_rng([seed, len(name)])
    disk_bytes = {
        path: -(-len(content) // 4096) * 4096 for path, content in complete.items()
    }  # bytes on a disk
    trials = {
        path for path in complete if path.startswith("trials")
    }  # finished ones are not run again
    needed = sum(disk_bytes[path] for path in set(complete) - trials)
    for earlier in (trials, set(complete)):
        for size in rng.uniform(0.05 * needed, 1.3 * needed, 4 if trials else 6).astype(int):
            limit = disk(
                sum(disk_bytes[path] for path in earlier) + int(size) // 4096 * 4096 + 8192
            )
            for path in earlier:
                (tmp_path / "out" / path).parent.mkdir(exist_ok=True)
                shutil.copy(finished / name / path, tmp_path / "out" / path)
            existing = files(tmp_path / "out")

            def damage(code, existing=existing):
                """Files that are neither earlier ones nor of the size of whole ones, are hidden, or
                have gone.
                """
                now = files(tmp_path / "out")
                new = {
                    path: content for path, content in now.items() if content != existing.get(path)
                }
                half = [
                    path
                    for path, content in new.items()
                    if not near(content, complete.get(path, content))
                ]
                hidden = [path for path in now if Path(path).name.startswith(".")]
                gone = set(existing) - set(now)
                return (
                    f"half {half}, hidden {hidden}, gone {gone}" if half or hidden or gone else ""
                )

            row = fault(f"disk full, {name}")
            command = (limit, str(tmp_path), cli.main, COMMANDS[name])
            row.command(tmp_path, damage, within, *command)


def near(content, expected):
    """Versions, times and seconds in a file make it a little longer or shorter."""
    return abs(len(content) - len(expected)) <= 0.02 * len(expected) + 64


def simulate():
    """Trials to a folder on the disk."""
    cells = [(LinearProblem(n=30, p=20), Ensemble(5)), (LinearProblem(n=30, p=20), Ridge(20.0))]
    try:
        return [estimate.mean for estimate in run(cells, trials=300, rng=0, store="out")]
    except OSError as error:
        return f"{error.strerror}: {error.filename}"


def test_a_full_disk_under_a_simulation(fault, disk, tmp_path, seed):
    """None of the trials that are there is lost or damaged."""
    row = fault("disk full, simulation trials")
    disk(2**20)
    expected = Child(within, None, str(tmp_path), simulate).answer()
    for size in np.random.default_rng(seed).integers(1, 10, 6):
        limit = disk(4096 * int(size))
        result = Child(within, limit, str(tmp_path), simulate).answer()
        hidden = [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]
        for path in (tmp_path / "out").iterdir():
            np.load(path)["values"]
        in_words = isinstance(result, str) and "nothing was changed" in result
        if hidden or not (in_words or np.allclose(result, expected)):
            row.lose(f"{hidden} {result}")
        else:
            row.add("error in words" if in_words else "right")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_device_and_an_output_that_are_full(fault, finished):
    row = fault("/dev/full as output and as standard output")
    runs = [
        (["predict", "m.skops", "t.parquet", "--out", "/dev/full"], os.devnull),
        ([*FIT, "--report", "/dev/full"], os.devnull),
        (["predict", "m.skops", "t.parquet"], "/dev/full"),
        ([*FIT, "--json"], "/dev/full"),
        (["risk", "--gamma", "2", "--sigma", "1"], "/dev/full"),
    ]
    for arguments, stdout in runs:
        command = [sys.executable, "-m", "olsen", *arguments]
        with open(stdout, "w") as out:
            done = subprocess.run(
                command, cwd=finished, stdout=out, stderr=subprocess.PIPE, text=True
            )
        if one_line(done.returncode, done.stderr):
            row.add("one line, exit code 1")
        else:
            row.lose(f"{arguments}: {done.returncode} {done.stderr[-300:]}")
