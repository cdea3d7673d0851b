"""No run of the command loses data: inputs are unchanged, outputs are the old ones or complete new
ones.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from loops import case
from olsen import cli, load, simulation
from olsen._execution import files
from olsen.simulation import Ensemble, LinearProblem, Ridge

pa = pytest.importorskip("pyarrow")
pv = pytest.importorskip("pyarrow.csv")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals, limits and locks of POSIX")

FIT = ("fit", "y.csv", "--target", "y", "--members", "5", "--jobs", "1")
PREDICT = ("predict", "m.skops", "y.csv")
COMPARE = ("compare", "y.csv", "--target", "y", "--folds", "2", "--jobs", "1")
REPRODUCE = ("reproduce", "figure1", "--scale", "quick", "--jobs", "1")


def hashes(folder):
    """Content of all files below a folder, hidden ones too, and targets of links."""
    contents = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            contents[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            contents[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            contents[name] = "folder"
    return contents


def table(target="y", n=40, p=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    y = X @ np.arange(1.0, p + 1) + rng.standard_normal(n)
    return pa.table({f"x{j}": X[:, j] for j in range(p)} | {target: y})


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory):
    """A table as CSV and as Parquet, a model, a report, and a table with a target named 'lower'."""
    folder = tmp_path_factory.mktemp("finished")
    for target in ("y", "lower"):
        pv.write_csv(table(target), folder / f"{target}.csv")
    pq.write_table(table(), folder / "y.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main([*FIT, "--out", "m.skops", "--report", "r.html"]) == 0
    return folder


@pytest.fixture
def folder(finished_folder, tmp_path, monkeypatch):
    """Fresh copy of the finished folder, as the working folder."""
    shutil.copytree(finished_folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


# an output that is an input, or another output


def test_outputs_that_would_lose_a_file_are_refused(olsen_refuses, folder, tmp_path):
    (folder / "soft.html").symlink_to("y.csv")
    os.link(folder / "y.csv", folder / "hard.skops")
    (folder / "parts").mkdir()
    shutil.copy("y.parquet", "parts/0.parquet")
    shutil.copy("y.csv", "parts/figure1.csv")
    (folder / "link.html").symlink_to("n.skops")  # a file that does not exist yet
    (folder / "linked").symlink_to("parts")
    original = hashes(tmp_path)
    for arguments, words in (
        ((*FIT, "--out", "y.csv"), "--out y.csv would change the table y.csv"),
        ((*PREDICT, "--out", "y.csv", "--force"), "the table y.csv"),
        ((*PREDICT, "--out", "m.skops"), "the model m.skops"),
        ((*FIT, "--out", "hard.skops"), "the table y.csv"),
        ((*FIT, "--out", "../copy/./y.csv"), "the table y.csv"),
        ((*FIT, "--report", "y.csv", "--force"), "the table y.csv"),
        ((*FIT, "--report", "soft.html"), "--report soft.html would change the table y.csv"),
        (
            (*FIT, "--out", "n.skops", "--report", "n.skops"),
            "--out n.skops and --report n.skops are one file",
        ),
        ((*FIT, "--out", "n.skops", "--report", "link.html"), "are one file"),
        (("fit", "parts", "--target", "y", "--out", "parts/deep/n.skops"), "the table parts"),
        (("fit", "parts", "--target", "y", "--out", "linked/n.skops"), "the table parts"),
        (("predict", "m.skops", "parts", "--out", "parts/p.parquet"), "the table parts"),
        ((*FIT, "--out", "m.skops"), "--out m.skops already exists"),
        ((*FIT, "--report", "r.html"), "--force"),
        (("compare", "y.csv", "--target", "y", "--report", "r.html"), "--force"),
        (("explore", "--out", "r.html"), "--force"),
        ((*PREDICT, "--out", "lower.csv"), "--force"),
        ((*PREDICT, "--out", "p.xlsx"), ".parquet"),
        ((*PREDICT, "--out", "p"), ".parquet"),
        ((*FIT, "--out", "new/n.pkl"), ".skops"),
        ((*FIT, "--report", "n.pdf"), ".html or .htm"),
        ((*FIT, "--out", "new/folder/n.skops"), "there is no folder new/folder"),
        ((*PREDICT, "--out", "new/p.csv"), "there is no folder new"),
        (("reproduce", "figure1", "--out", "y.csv"), "is a file"),
        (("reproduce", "figure1", "--out", "parts"), "parts/figure1.csv"),
    ):
        olsen_refuses(*arguments, words=words, code=2)
        with case(arguments):
            assert hashes(tmp_path) == original


# an output that exists


@posix
def test_force_replaces_a_file_which_keeps_its_permissions(olsen, folder):
    os.chmod("m.skops", 0o640)
    Path("link.html").symlink_to("r.html")
    Path("empty.skops").touch()
    original = hashes(folder)
    fit = (*FIT, "--seed", "9")
    assert olsen(*fit, out="m.skops", report="link.html", force=True)[0] == 0
    assert stat.S_IMODE(os.stat("m.skops").st_mode) == 0o640 and Path("link.html").is_symlink()
    assert olsen(*fit, out="empty.skops")[0] == 0, "an empty file holds nothing to lose"
    changed = {name for name, content in hashes(folder).items() if content != original[name]}
    assert changed == {"m.skops", "r.html", "empty.skops"}


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "P.CSV", "p.parquet"])
def test_predictions_are_replaced_with_force_only(olsen, folder, name):
    assert olsen(*PREDICT, out=name)[0] == 0
    assert olsen(*PREDICT, out=name, interval=0.9)[0] == 2
    assert olsen(*PREDICT, out=name, interval=0.9, force=True)[0] == 0
    if name == "p.parquet":
        columns = pq.read_table(name).column_names
    else:
        header = Path(name).read_text().splitlines()[0]
        columns = header.split("\t" if name == "p.tsv" else ",")
    assert columns == ["predicted_y", "lower", "upper", "far_row"]


def test_write_protected_files_are_not_replaced(olsen_refuses, folder, monkeypatch):
    """Permissions do not bind the superuser, so the system's answer is imitated."""
    original = hashes(folder)
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path).name != "m.skops")
    olsen_refuses(*FIT, out="m.skops", force=True, words="write-protected: m.skops")
    assert hashes(folder) == original


@posix
def test_pipes_and_devices_are_written_directly(olsen, folder):
    original = hashes(folder)
    assert olsen(*FIT, "--out", "/dev/null", "--report", "/dev/null")[0] == 0
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    assert olsen(*PREDICT, "--out", "pipe")[0] == 0
    assert reader.communicate()[0] == olsen(*PREDICT)[1]
    Path("pipe").unlink()
    assert hashes(folder) == original


def test_limits_never_have_the_name_of_the_target(olsen, olsen_json, folder):
    assert olsen("fit", "lower.csv", target="lower", members=5, out="l.skops")[0] == 0
    predictions = olsen_json("predict", "l.skops", "lower.csv", interval=0.9)
    assert list(predictions) == ["predicted_lower", "lower_limit", "upper_limit", "far_row"]
    lower, centre, upper = (
        predictions[name] for name in ("lower_limit", "predicted_lower", "upper_limit")
    )
    assert np.all(np.diff([lower, centre, upper], axis=0) > 0)
    assert olsen_json("predict", "l.skops", "lower.csv")["predicted_lower"] == centre


# runs that end early


@posix
def test_a_full_disk_leaves_the_old_file(olsen, olsen_refuses, folder, monkeypatch):
    """A limit on the size of files imitates a full disk: room in bytes, and the file that fails."""
    import resource

    for name in ("p.csv", "p.tsv", "p.parquet"):
        assert olsen(*PREDICT, out=name)[0] == 0
    assert olsen(*COMPARE, report="c.html")[0] == 0
    assert olsen(*REPRODUCE, out="figures")[0] == 0
    manifest = "figures/figure1.json"  # it holds seconds
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    original = hashes(folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    fit = (*FIT, "--report")
    figure4 = ("reproduce", "figure4", *REPRODUCE[2:], "--out")
    for room, arguments, failing in (
        (3000, (*fit, "r.html", "--out", "m.skops"), "m.skops"),
        (3000, (*fit, "r.html"), "r.html"),
        (3000, (*fit, "n.html"), "n.html"),
        (500, (*PREDICT, "--interval", "0.9", "--out", "p.csv"), "p.csv"),
        (500, (*PREDICT, "--interval", "0.9", "--out", "p.tsv"), "p.tsv"),
        (500, (*PREDICT, "--out", "p.parquet"), "p.parquet"),
        (3000, (*COMPARE, "--report", "c.html"), "c.html"),
        (500, (*REPRODUCE, "--out", "figures"), "figures/figure1.csv"),
        (6000, (*REPRODUCE, "--out", "figures"), "figures/figure1.p"),
        (100, (*figure4, "new figures"), "new figures/trials/"),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            olsen_refuses(*arguments, force=True, words=f"nothing was changed: {failing}")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with case(arguments):
            assert hashes(folder) | {manifest: ""} == original | {manifest: ""}
    assert json.loads((folder / manifest).read_text())["figure"]
    assert zipfile.ZipFile("m.skops").testzip() is None and load("m.skops")


READY = "import sys; from olsen.cli import main; print('ready', flush=True); sys.exit(main())"
LONG_COMMANDS = {
    "fit": ("fit", "--members", "3000", "--jobs", "1", "--report", "n.html"),
    # from a pipe into which nobody writes
    "predict": ("predict", "m.skops", "-", "--out", "p.csv"),
    "compare": ("compare", "--repeats", "99", "--jobs", "1", "--report", "c.html"),
    "reproduce": ("reproduce", "figure2", "--jobs", "1", "--out", "new"),
}


def interrupted(folder, arguments, delay, **settings):
    """Exit code and errors of a command that is stopped with Ctrl-C after a delay in seconds."""
    command = [sys.executable, "-c", READY, *arguments]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(command, cwd=folder, **pipes | settings) as process:
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        process.wait()
        err = process.stderr.read() if process.stderr else None
    return process.returncode, err


@posix
def test_control_c_is_one_line_from_the_first_moment(finished_folder, tmp_path, seed):
    """Every command stops cleanly while it imports, reads, works and writes; finished trials stay."""
    rng = random.Random(seed)

    def stopped(name, latest):
        folder = shutil.copytree(finished_folder, tmp_path / f"{name} {latest}")
        outcome = interrupted(folder, LONG_COMMANDS[name], rng.uniform(0.02, latest))
        # the command had ended before, or the interpreter was ending: a fast machine needs an
        # earlier interrupt
        if outcome in ((0, ""), (-signal.SIGINT, "")) and latest > 0.5:
            return stopped(name, latest / 2)
        shutil.rmtree(folder / "new" / "trials", ignore_errors=True)
        contents = {name: content for name, content in hashes(folder).items() if name != "new"}
        return outcome, contents

    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(stopped, name, latest) for name in LONG_COMMANDS for latest in (0.3, 3.0)
        ]
    for future in futures:
        outcome, contents = future.result()
        assert outcome == (130, "olsen: stopped\n") and contents == hashes(finished_folder)


@posix
def test_control_c_on_a_terminal_gives_the_cursor_back(finished_folder, tmp_path, until_closed):
    import pty

    ours, theirs = pty.openpty()
    folder = shutil.copytree(finished_folder, tmp_path / "copy")
    code, _ = interrupted(folder, LONG_COMMANDS["compare"], 4.0, stderr=theirs)
    os.close(theirs)
    assert code == 130 and until_closed(ours).endswith("\x1b[?25h\r\nolsen: stopped\r\n")


@posix
def test_a_process_that_is_stopped_removes_its_unfinished_files(tmp_path):
    def write(file):
        file.write_text("half")
        files.remove_unfinished()
        assert hashes(tmp_path) == {}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.atomically(tmp_path / "a" / "b" / "n.txt", write)


def test_failed_commands_leave_no_empty_folders(olsen, olsen_refuses, folder):
    original = hashes(folder)
    olsen_refuses("fit", "missing.csv", target="y", out="n.skops", words="no file")

    def fails(file):
        file.write_text("half")
        raise ValueError

    with pytest.raises(ValueError):
        files.atomically(folder / "a" / "b" / "n.txt", fails)
    assert hashes(folder) == original


@posix
def test_new_files_are_as_private_as_the_user_wants(tmp_path):
    default_mask = os.umask(0o027)
    try:
        files.atomically(tmp_path / "n.txt", lambda file: file.write_text("x"))
    finally:
        os.umask(default_mask)
    assert stat.S_IMODE(os.stat(tmp_path / "n.txt").st_mode) == 0o640


CELLS = [(LinearProblem(20, 8), Ensemble(4)), (LinearProblem(20, 8), Ridge(3.0))]


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:99], lambda data: data[:-70], lambda data: b"no archive"],
    ids=["empty", "cut early", "cut late", "other"],
)
def test_damaged_trials_are_computed_again(tmp_path, damage):
    """A full disk, or a machine that lost its power, may leave damaged files."""
    expected = simulation.run(CELLS, trials=4, store=tmp_path)
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(damage(path.read_bytes()))
    repeated = simulation.run(CELLS, trials=4, store=tmp_path)
    for cell, expected_cell in zip(repeated, expected, strict=True):
        np.testing.assert_array_equal(cell.values, expected_cell.values)
    assert [len(np.load(path)["values"]) for path in tmp_path.glob("*.npz")] == [4, 4]


def test_reproduce_repairs_a_damaged_trial(olsen, olsen_refuses, tmp_path):
    command = ("reproduce", "figure4", "--scale", "quick", "--jobs", "1", "--out", tmp_path / "f")
    assert olsen(*command)[0] == 0
    trials = sorted((tmp_path / "f" / "trials").iterdir())
    original = {path: path.read_bytes() for path in [tmp_path / "f" / "figure4.csv", *trials]}
    trials[0].write_bytes(b"")
    olsen_refuses(*command, words="figure4.csv already exists", code=2)
    code, _, err = olsen(*command, force=True)
    assert (code, err) == (0, "")
    assert all(path.read_bytes() == content for path, content in original.items())


# numbers


RISK = ("risk", "--gamma", "2", "--sigma", "1")


def test_numbers_out_of_range_are_bad_usage(olsen_refuses, folder):
    original = hashes(folder)
    for arguments, words in (
        (("fit", "--members", "1.5"), "1.5 is not a whole number"),
        (("fit", "--members", "1"), '"1" for --members'),
        (("fit", "--members", "99999999999999999999"), "1,000,000,000"),
        (("fit", "--seed", "-1"), '"-1" for --seed'),
        (("fit", "--jobs", "0"), "--jobs"),
        ((*PREDICT, "--interval", "nan"), "--interval nan"),
        ((*RISK, "--mu", "nan"), "mu"),
        ((*RISK, "--k", "nan"), "k must"),
        (("risk", "--gamma", "2", "--sigma", "1e200"), "sigma"),
        ((*RISK, "--n", "-3"), '"-3" for --n'),
        (("risk", "--gamma", "0.001", "--sigma", "1", "--n", "10"), "0 columns"),
        ((*RISK, "--n", "5", "--eta", "0.01"), "no row"),
    ):
        olsen_refuses(*arguments, words=words, code=2)
    assert hashes(folder) == original
