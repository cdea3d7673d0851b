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
def made(tmp_path_factory):
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
    place = tmp_path / "out"

    def unmount():
        while os.path.ismount(place):
            subprocess.run(["umount", str(place)], check=True)

    def make(n_bytes):
        unmount()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(place)]
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
def test_a_full_disk(fault, made, disk, tmp_path, name, seed):
    for path in ("t.parquet", "m.skops"):
        shutil.copy(made / path, tmp_path)
    whole, rng = files(made / name), np.random.default_rng([seed, len(name)])
    room = {
        path: -(-len(content) // 4096) * 4096 for path, content in whole.items()
    }  # bytes on a disk
    trials = {
        path for path in whole if path.startswith("trials")
    }  # finished ones are not run again
    wanted = sum(room[path] for path in set(whole) - trials)
    for earlier in (trials, set(whole)):
        for size in rng.uniform(0.05 * wanted, 1.3 * wanted, 4 if trials else 6).astype(int):
            limit = disk(sum(room[path] for path in earlier) + int(size) // 4096 * 4096 + 8192)
            for path in earlier:
                (tmp_path / "out" / path).parent.mkdir(exist_ok=True)
                shutil.copy(made / name / path, tmp_path / "out" / path)
            before = files(tmp_path / "out")

            def damage(code, before=before):
                """Files that are neither earlier ones nor of the size of whole ones, are hidden, or
                have gone.
                """
                now = files(tmp_path / "out")
                new = {
                    path: content for path, content in now.items() if content != before.get(path)
                }
                half = [
                    path
                    for path, content in new.items()
                    if not near(content, whole.get(path, content))
                ]
                hidden, gone = (
                    [path for path in now if Path(path).name.startswith(".")],
                    set(before) - set(now),
                )
                return (
                    f"half {half}, hidden {hidden}, gone {gone}" if half or hidden or gone else ""
                )

            row = fault(f"disk full, {name}")
            row.command(tmp_path, damage, within, limit, str(tmp_path), cli.main, COMMANDS[name])


def near(content, other):
    """Versions, times and seconds in a file make it a little longer or shorter."""
    return abs(len(content) - len(other)) <= 0.02 * len(other) + 64


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
    whole = Child(within, None, str(tmp_path), simulate).answer()
    for size in np.random.default_rng(seed).integers(1, 10, 6):
        limit = disk(4096 * int(size))
        found = Child(within, limit, str(tmp_path), simulate).answer()
        hidden = [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]
        for path in (tmp_path / "out").iterdir():
            np.load(path)["values"]
        in_words = isinstance(found, str) and "nothing was changed" in found
        if hidden or not (in_words or np.allclose(found, whole)):
            row.lose(f"{hidden} {found}")
        else:
            row.add("error in words" if in_words else "right")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_device_and_an_output_that_are_full(fault, made):
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
            done = subprocess.run(command, cwd=made, stdout=out, stderr=subprocess.PIPE, text=True)
        if one_line(done.returncode, done.stderr):
            row.add("one line, exit code 1")
        else:
            row.lose(f"{arguments}: {done.returncode} {done.stderr[-300:]}")
