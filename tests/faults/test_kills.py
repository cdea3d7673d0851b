"""The command ended by a signal at any moment: inputs as they were, outputs old or whole, the next
run undisturbed.

A few kills are made by every run of the tests, fifty by ``make test-faults``, and eight of signals
it can hear.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from olsen import cli

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and locks of POSIX")

FIT = ("fit", "t.csv", "--target", "y", "--members", "5", "--jobs", "1")
COMMANDS = {  # name -> the command, and what made the outputs that were there before
    "fit": ((*FIT, "--out", "out/m.skops", "--report", "out/r.html", "--force"), ("--seed", "7")),
    "predict": (
        ("predict", "m.skops", "t.csv", "--out", "out/p.csv", "--force"),
        ("--interval", "0.9"),
    ),
    "reproduce": (
        ("reproduce", "figure4", "--scale", "quick", "--jobs", "1", "--out", "out", "--force"),
        ("--seed", "7"),
    ),
}
PROGRAM = "import sys; from olsen.cli import main; sys.exit(main())"
INPUTS = ("t.csv", "m.skops")
KILLS = [("fit", "SIGKILL")] * 17 + [("predict", "SIGKILL")] * 17 + [("reproduce", "SIGKILL")] * 16
HEARD = [("fit", "SIGTERM")] * 4 + [("fit", "SIGINT")] * 4


def start(folder, arguments):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def run(folder, arguments):
    """Seconds that the real command took; it must succeed."""
    began = time.monotonic()
    with start(folder, arguments) as process:
        _, said = process.communicate()
    assert process.returncode == 0 and "Traceback" not in said, said
    return time.monotonic() - began


def content(path):
    """What a file says: its bytes, less how long a figure took, and the names in a model that skops
    makes by chance.
    """
    if path.suffix == ".skops":
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            arrays = (archive.read(name) for name in archive.namelist() if name.endswith(".npy"))
            return sorted(hashlib.sha256(array).hexdigest() for array in arrays)
    if path.suffix == ".json":
        return {**json.loads(path.read_text()), "seconds": None}
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(folder):
    """What all files say that are not temporary ones."""
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    return {str(path.relative_to(folder)): content(path) for path in found}


def hidden(folder):
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


def run_here(folder, arguments):
    """The same in this process, where everything is imported already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["olsen", *arguments])  # which a report shows
        assert cli.main(list(arguments)) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """For every command a folder with inputs and outputs of an earlier run, and one with those that
    it makes now.
    """
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    rows = np.column_stack([X, X @ np.arange(1.0, 5) + rng.standard_normal(300)])
    np.savetxt(folder / "t.csv", rows, delimiter=",", header="a,b,c,d,y", comments="")
    run_here(folder, (*FIT, "--out", "m.skops"))
    for name, (arguments, other) in COMMANDS.items():
        for kind, extra in (("old", other), ("new", ())):
            place = folder / f"{name} {kind}"
            place.mkdir()
            for one in INPUTS:
                shutil.copy(folder / one, place)
            run_here(place, (*arguments, *extra))
    return folder


def kill(made, place, name, earlier, moment, number="SIGKILL"):
    """Start a command and end it, after some seconds or when files are there; how it ended, and
    what went wrong.
    """
    shutil.copytree(made / f"{name} {'old' if earlier else 'new'}", place)
    if not earlier:
        shutil.rmtree(place / "out")
    with start(place, COMMANDS[name][0]) as process:
        while callable(moment) and process.poll() is None and not moment(place):
            time.sleep(0.001)
        time.sleep(0 if callable(moment) else moment)
        ended, sent = process.poll() is not None, time.monotonic()
        process.send_signal(getattr(signal, number))
        _, said = process.communicate()
    wrong = changed_inputs(made, place) + half_outputs(made, place, name, earlier)
    if number == "SIGINT":  # code runs before the end: it removes temporary files, and says so
        wrong += [f"left {path}" for path in hidden(place)]
        if process.returncode and (process.returncode, said) != (130, "olsen: stopped\n"):
            wrong.append(f"{process.returncode} {said[-300:]}")
    how = "ended while it wrote" if hidden(place) else "had ended" if ended else "ended"
    return how, wrong, time.monotonic() - sent


def changed_inputs(made, place):
    return [
        f"{one} changed"
        for one in INPUTS
        if (place / one).read_bytes() != (made / one).read_bytes()
    ]


def half_outputs(made, place, name, earlier):
    """Outputs that are neither those of before nor those of now; of a simulation some trials may be
    there.
    """
    old, new = (contents(made / f"{name} {kind}" / "out") for kind in ("old", "new"))
    found, wrong = contents(place / "out"), []
    for one, said in found.items():
        whole = said == new.get(one) or (earlier and said == old.get(one))
        if not whole and not (
            one.startswith("trials") and np.load(place / "out" / one)["values"].size
        ):
            wrong.append(f"half of {one}")
    return [*wrong, *(f"lost {one}" for one in old if earlier and one not in found)]


def differences(made, place, name):
    """What the next run did not set right."""
    new, found = contents(made / f"{name} new" / "out"), contents(place / "out")
    wrong = [f"the next run made another {one}" for one in new if found.get(one) != new[one]]
    return [*wrong, *changed_inputs(made, place)]


def test_a_few_kills(made, tmp_path, seed):
    """Of each command one: as it begins to write, and where some trials of a simulation are there."""
    draw = random.Random(seed)
    plan = [(tmp_path / name, name, draw.random() < 0.5, hidden) for name in ("fit", "predict")]
    plan.append(
        (
            tmp_path / "reproduce",
            "reproduce",
            False,
            lambda place: list(place.glob("out/trials/*.npz")),
        )
    )
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda one: kill(made, *one), plan))
    assert not (tmp_path / "reproduce" / "out" / "figure4.csv").exists(), (
        "it was killed before the end"
    )
    for (place, name, *_), (_, wrong, _) in zip(plan, outcomes, strict=True):
        run_here(place, COMMANDS[name][0])
        wrong += differences(made, place, name)
        assert not wrong, f"{name}, seed {seed}: {wrong}"


@pytest.mark.faults
def test_fifty_kills(fault, made, tmp_path, seed):
    """At random moments of each command, with earlier outputs and without; the next run is a
    process, too.
    """
    draw, seconds = random.Random(seed), {}
    made = shutil.copytree(made, tmp_path / "made")
    for name, (arguments, _) in COMMANDS.items():
        shutil.rmtree(made / f"{name} new" / "out")
        seconds[name] = run(made / f"{name} new", arguments)
    print(f"seed {seed}, seconds {seconds}")
    first = {
        "SIGKILL": 0.0,
        "SIGTERM": 0.3,
        "SIGINT": 0.3,
    }  # of the time it takes: before, Python hears them itself
    plan = [
        (name, i % 2 == 0, draw.uniform(first[number] * seconds[name], seconds[name]), number)
        for i, (name, number) in enumerate(KILLS + HEARD)
    ]

    def judge(item):
        place, name = tmp_path / str(item[0]), item[1][0]
        how, wrong, took = kill(made, place, *item[1])
        run(place, COMMANDS[name][0])
        return how, wrong + differences(made, place, name), took

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(judge, enumerate(plan)))
    for (name, _, moment, number), (how, wrong, took) in zip(plan, outcomes, strict=True):
        row = fault(f"{number} at a random moment, olsen {name}")
        row.lose(f"seed {seed}, after {moment:.3f} s: {wrong}") if wrong else row.add(how, took)
