"""The command ended by a signal at any moment: inputs are unchanged, outputs old or complete, the
next run undisturbed.

Every run of the tests makes a few kills, ``make test-faults`` fifty, and eight by signals that the
command can handle.
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

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
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
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    return {str(path.relative_to(folder)): content(path) for path in paths}


def hidden(folder):
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


def run_here(folder, arguments):
    """Run the command in this process, where everything is imported already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["olsen", *arguments])  # which a report shows
        assert cli.main(list(arguments)) == 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folders with inputs and outputs of an earlier run ("old") and of a run now ("new"), for every
    command.
    """
    folder = tmp_path_factory.mktemp("finished")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    rows = np.column_stack([X, X @ np.arange(1.0, 5) + rng.standard_normal(300)])
    np.savetxt(folder / "t.csv", rows, delimiter=",", header="a,b,c,d,y", comments="")
    run_here(folder, (*FIT, "--out", "m.skops"))
    for name, (arguments, earlier_options) in COMMANDS.items():
        for kind, extra in (("old", earlier_options), ("new", ())):
            outputs = folder / f"{name} {kind}"
            (outputs / "out").mkdir(parents=True)
            for name_of_input in INPUTS:
                shutil.copy(folder / name_of_input, outputs)
            run_here(outputs, (*arguments, *extra))
    return folder


def kill(finished, folder, name, earlier, moment, number="SIGKILL"):
    """Start a command and end it, after some seconds or when files are there; how it ended, and
    what went wrong.
    """
    shutil.copytree(finished / f"{name} {'old' if earlier else 'new'}", folder)
    if not earlier:
        shutil.rmtree(folder / "out")
        (folder / "out").mkdir()
    with start(folder, COMMANDS[name][0]) as process:
        while callable(moment) and process.poll() is None and not moment(folder):
            time.sleep(0.001)
        time.sleep(0 if callable(moment) else moment)
        ended = process.poll() is not None
        sent = time.monotonic()
        process.send_signal(getattr(signal, number))
        _, message = process.communicate()
    losses = changed_inputs(finished, folder) + half_outputs(finished, folder, name, earlier)
    if number == "SIGINT":  # code runs before the end: it removes temporary files, and says so
        losses += [f"left {path}" for path in hidden(folder)]
        if process.returncode and (process.returncode, message) != (130, "olsen: stopped\n"):
            losses.append(f"{process.returncode} {message[-300:]}")
    ending = "ended while it wrote" if hidden(folder) else "had ended" if ended else "ended"
    return ending, losses, time.monotonic() - sent


def changed_inputs(finished, folder):
    return [
        f"{name} changed"
        for name in INPUTS
        if (folder / name).read_bytes() != (finished / name).read_bytes()
    ]


def half_outputs(finished, folder, name, earlier):
    """Outputs that are neither old nor new; some trials of a simulation may be there."""
    old, new = (contents(finished / f"{name} {kind}" / "out") for kind in ("old", "new"))
    outputs = contents(folder / "out")
    wrong = []
    for file, content in outputs.items():
        is_complete = content == new.get(file) or (earlier and content == old.get(file))
        if not is_complete and not (
            file.startswith("trials") and np.load(folder / "out" / file)["values"].size
        ):
            wrong.append(f"half of {file}")
    return [*wrong, *(f"lost {file}" for file in old if earlier and file not in outputs)]


def differences(finished, folder, name):
    """What the next run did not set right."""
    new = contents(finished / f"{name} new" / "out")
    outputs = contents(folder / "out")
    wrong = [f"the next run made another {file}" for file in new if outputs.get(file) != new[file]]
    return [*wrong, *changed_inputs(finished, folder)]


def test_a_few_kills(finished, tmp_path, seed):
    """One kill of each command: as it begins to write, and after some trials of a simulation."""
    draw = random.Random(seed)
    plan = [(tmp_path / name, name, draw.random() < 0.5, hidden) for name in ("fit", "predict")]
    plan.append(
        (
            tmp_path / "reproduce",
            "reproduce",
            False,
            lambda folder: list(folder.glob("out/trials/*.npz")),
        )
    )
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda item: kill(finished, *item), plan))
    assert not (tmp_path / "reproduce" / "out" / "figure4.csv").exists(), (
        "it was killed before the end"
    )
    for (folder, name, *_), (_, losses, _) in zip(plan, outcomes, strict=True):
        run_here(folder, COMMANDS[name][0])
        losses += differences(finished, folder, name)
        assert not losses, f"{name}, seed {seed}: {losses}"


@pytest.mark.faults
def test_fifty_kills(fault, finished, tmp_path, seed):
    """At random moments of each command, with earlier outputs and without; the next run is a
    process, too.
    """
    draw = random.Random(seed)
    seconds = {}
    finished = shutil.copytree(finished, tmp_path / "finished")
    for name, (arguments, _) in COMMANDS.items():
        shutil.rmtree(finished / f"{name} new" / "out")
        (finished / f"{name} new" / "out").mkdir()
        seconds[name] = run(finished / f"{name} new", arguments)
    print(f"seed {seed}, seconds {seconds}")
    # fraction of the time that the command takes, before which Python handles the signal itself
    first = {"SIGKILL": 0.0, "SIGTERM": 0.3, "SIGINT": 0.3}
    plan = [
        (name, i % 2 == 0, draw.uniform(first[number] * seconds[name], seconds[name]), number)
        for i, (name, number) in enumerate(KILLS + HEARD)
    ]

    def judge(item):
        folder = tmp_path / str(item[0])
        name = item[1][0]
        ending, losses, took = kill(finished, folder, *item[1])
        run(folder, COMMANDS[name][0])
        return ending, losses + differences(finished, folder, name), took

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(judge, enumerate(plan)))
    for (name, _, moment, number), (ending, losses, took) in zip(plan, outcomes, strict=True):
        row = fault(f"{number} at a random moment, olsen {name}")
        row.lose(f"seed {seed}, after {moment:.3f} s: {losses}") if losses else row.add(
            ending, took
        )
