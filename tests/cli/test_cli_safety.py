"""No run of the command loses data: inputs are what they were, outputs are the old ones or complete
new ones.
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


def one_line(text):
    assert text.startswith("olsen: ") and text.count("\n") == 1, text
    return text


def hashes(folder):
    """Content of all files below a folder, links as what they are, hidden ones too."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = (
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            )
    return found


def table(target="y", n=40, p=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    y = X @ np.arange(1.0, p + 1) + rng.standard_normal(n)
    return pa.table({f"x{j}": X[:, j] for j in range(p)} | {target: y})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table as CSV and as Parquet, a model and a report; beside them a table whose target has the
    name of a limit.
    """
    folder = tmp_path_factory.mktemp("made")
    for target in ("y", "lower"):
        pv.write_csv(table(target), folder / f"{target}.csv")
    pq.write_table(table(), folder / "y.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main([*FIT, "--out", "m.skops", "--report", "r.html"]) == 0
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A fresh copy of what was made, as the working folder."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


# an output that is an input, or another output


def test_what_would_lose_a_file_is_refused_and_changes_nothing(olsen, place, tmp_path):
    (place / "soft.html").symlink_to("y.csv")
    os.link(place / "y.csv", place / "hard.skops")
    (place / "parts").mkdir()
    shutil.copy("y.parquet", "parts/0.parquet")
    shutil.copy("y.csv", "parts/figure1.csv")
    (place / "link.html").symlink_to("n.skops")  # which is not there yet
    (place / "linked").symlink_to("parts")
    before = hashes(tmp_path)
    for arguments, words in (
        ((*FIT, "--out", "y.csv"), "--out y.csv would change the table y.csv"),
        ((*PREDICT, "--out", "y.csv", "--force"), "the table y.csv"),
        ((*PREDICT, "--out", "m.skops"), "the model m.skops"),
        ((*FIT, "--out", "hard.skops"), "the table y.csv"),
        ((*FIT, "--out", "../here/./y.csv"), "the table y.csv"),
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
        (("fit", "y.csv", "--target", "z", "--out", "new/folder/n.skops"), "'z'"),
        (("reproduce", "figure1", "--out", "y.csv"), "is a file"),
        (("reproduce", "figure1", "--out", "parts"), "parts/figure1.csv"),
    ):
        code, out, err = olsen(*arguments)
        with case(arguments, err):
            assert (code, out) == (2, "") and words in one_line(err) and hashes(tmp_path) == before


# an output that exists


@posix
def test_force_replaces_a_file_which_keeps_its_permissions(olsen, place):
    os.chmod("m.skops", 0o640)
    Path("link.html").symlink_to("r.html")
    Path("empty.skops").touch()
    before, fresh = hashes(place), (*FIT, "--seed", "9")
    assert olsen(*fresh, "--out", "m.skops", "--report", "link.html", "--force")[0] == 0
    assert stat.S_IMODE(os.stat("m.skops").st_mode) == 0o640 and Path("link.html").is_symlink()
    assert olsen(*fresh, "--out", "empty.skops")[0] == 0, "an empty file holds nothing to lose"
    after = hashes(place)
    assert {name for name in after if after[name] != before[name]} == {
        "m.skops",
        "r.html",
        "empty.skops",
    }
    for name, read in (
        ("p.csv", pv.read_csv),
        ("p.tsv", pv.read_csv),
        ("P.CSV", pv.read_csv),
        ("p.parquet", pq.read_table),
    ):
        with case(name):
            assert olsen(*PREDICT, "--out", name)[0] == 0
            assert olsen(*PREDICT, "--out", name, "--interval", "0.9")[0] == 2
            assert olsen(*PREDICT, "--out", name, "--interval", "0.9", "--force")[0] == 0
            options = {"parse_options": pv.ParseOptions(delimiter="\t")} if name == "p.tsv" else {}
            assert read(name, **options).column_names == ["y", "lower", "upper"]


def test_write_protected_files_are_not_replaced(olsen, place, monkeypatch):
    """Permissions do not bind the superuser, so the system's answer is imitated."""
    before = hashes(place)
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path).name != "m.skops")
    code, _, err = olsen(*FIT, "--out", "m.skops", "--force")
    assert code == 1 and "write-protected: m.skops" in one_line(err) and hashes(place) == before


@posix
def test_pipes_and_devices_are_written_directly(olsen, place):
    before = hashes(place)
    assert olsen(*FIT, "--out", "/dev/null", "--report", "/dev/null")[0] == 0
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    assert olsen(*PREDICT, "--out", "pipe")[0] == 0
    assert reader.communicate()[0] == olsen(*PREDICT)[1]
    Path("pipe").unlink()
    assert hashes(place) == before


def test_limits_never_have_the_name_of_the_target(olsen, place):
    assert (
        olsen("fit", "lower.csv", "--target", "lower", "--members", "5", "--out", "l.skops")[0] == 0
    )
    found = json.loads(olsen("predict", "l.skops", "lower.csv", "--interval", "0.9", "--json")[1])
    assert list(found) == ["lower", "lower_limit", "upper_limit"]
    assert np.all(np.diff([found["lower_limit"], found["lower"], found["upper_limit"]], axis=0) > 0)
    assert (
        found["lower"] == json.loads(olsen("predict", "l.skops", "lower.csv", "--json")[1])["lower"]
    )


# runs that end early


@posix
def test_a_full_disk_leaves_the_old_file(olsen, place, monkeypatch):
    """Imitated by a limit on the size of files: room for so many bytes, and what cannot be written."""
    import resource

    for name in ("p.csv", "p.tsv", "p.parquet"):
        assert olsen(*PREDICT, "--out", name)[0] == 0
    assert olsen(*COMPARE, "--report", "c.html")[0] == 0
    assert olsen(*REPRODUCE, "--out", "figures")[0] == 0
    manifest = "figures/figure1.json"  # it holds seconds
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before, limits = hashes(place), resource.getrlimit(resource.RLIMIT_FSIZE)
    for room, arguments, written in (
        (3000, (*FIT, "--report", "r.html", "--out", "m.skops"), "m.skops"),
        (3000, (*FIT, "--report", "r.html"), "r.html"),
        (3000, (*FIT, "--report", "new/folder/n.html"), "new/folder/n.html"),
        (500, (*PREDICT, "--interval", "0.9", "--out", "p.csv"), "p.csv"),
        (500, (*PREDICT, "--interval", "0.9", "--out", "p.tsv"), "p.tsv"),
        (500, (*PREDICT, "--out", "p.parquet"), "p.parquet"),
        (3000, (*COMPARE, "--report", "c.html"), "c.html"),
        (500, (*REPRODUCE, "--out", "figures"), "figures/figure1.csv"),
        (6000, (*REPRODUCE, "--out", "figures"), "figures/figure1.p"),
        (
            100,
            (REPRODUCE[0], "figure4", *REPRODUCE[2:], "--out", "new figures"),
            "new figures/trials/",
        ),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            code, out, err = olsen(*arguments, "--force")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with case(arguments, err):
            assert (code, out) == (1, "") and f"nothing was changed: {written}" in one_line(err)
            assert hashes(place) | {manifest: ""} == before | {manifest: ""}
    assert json.loads((place / manifest).read_text())["figure"]
    assert zipfile.ZipFile("m.skops").testzip() is None and load("m.skops")


READY = "import sys; from olsen.cli import main; print('ready', flush=True); sys.exit(main())"
LONG = {  # commands that would take long, or for ever
    "fit": ("fit", "--members", "3000", "--jobs", "1", "--report", "new/n.html"),
    "predict": (
        "predict",
        "m.skops",
        "-",
        "--out",
        "new/p.csv",
    ),  # from a pipe into which nobody writes
    "compare": ("compare", "--repeats", "99", "--jobs", "1", "--report", "new/c.html"),
    "reproduce": ("reproduce", "figure2", "--jobs", "1", "--out", "new"),
}


def interrupted(folder, arguments, delay, **settings):
    """Exit code and errors of a command that is stopped with Ctrl-C, some seconds after it was
    called.
    """
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
def test_control_c_is_one_line_from_the_first_moment(made, tmp_path, seed):
    """Of every command: while it imports, reads, works and writes. Trials that are finished stay."""
    draw = random.Random(seed)

    def stopped(name, latest):
        folder = shutil.copytree(made, tmp_path / f"{name} {latest}")
        said = interrupted(folder, LONG[name], draw.uniform(0.02, latest))
        # the command had ended before, or the interpreter was ending: a fast machine needs an
        # earlier interrupt
        if said in ((0, ""), (-signal.SIGINT, "")) and latest > 0.5:
            return stopped(name, latest / 2)
        shutil.rmtree(folder / "new" / "trials", ignore_errors=True)
        return said, {name: said for name, said in hashes(folder).items() if name != "new"}

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(stopped, name, latest) for name in LONG for latest in (0.3, 3.0)]
    for future in futures:
        said, after = future.result()
        assert said == (130, "olsen: stopped\n") and after == hashes(made)


@posix
def test_control_c_on_a_terminal_gives_the_cursor_back(made, tmp_path, until_closed):
    import pty

    ours, theirs = pty.openpty()
    said = interrupted(
        shutil.copytree(made, tmp_path / "here"), LONG["compare"], 4.0, stderr=theirs
    )
    os.close(theirs)
    assert said[0] == 130 and until_closed(ours).endswith("\x1b[?25h\r\nolsen: stopped\r\n")


@posix
def test_a_process_that_is_stopped_takes_its_unfinished_files_along(tmp_path):
    def write(file):
        file.write_text("half")
        files.remove_unfinished()
        assert hashes(tmp_path) == {}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.atomically(tmp_path / "a" / "b" / "n.txt", write)


def test_folders_are_made_only_for_something_to_put_in_them(olsen, place):
    before = hashes(place)
    for arguments in (
        ("fit", "nothing.csv", "--target", "y", "--out", "a/b/n.skops", "--report", "c/n.html"),
        ("predict", "y.csv", "y.csv", "--out", "a/b/p.parquet"),
    ):
        code, _, err = olsen(*arguments)
        assert code == 1 and one_line(err) and hashes(place) == before

    def fails(file):
        file.write_text("half")
        raise ValueError

    with pytest.raises(ValueError):
        files.atomically(place / "a" / "b" / "n.txt", fails)
    assert hashes(place) == before
    assert olsen(*FIT, "--out", "a/b/n.skops")[0] == 0 and Path("a/b/n.skops").exists()


@posix
def test_new_files_are_as_private_as_the_user_wants(tmp_path):
    old = os.umask(0o027)
    try:
        files.atomically(tmp_path / "n.txt", lambda file: file.write_text("x"))
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(tmp_path / "n.txt").st_mode) == 0o640


CELLS = [(LinearProblem(20, 8), Ensemble(4)), (LinearProblem(20, 8), Ridge(3.0))]


def test_damaged_trials_are_computed_again(olsen, tmp_path):
    """As a full disk, or a machine that lost its power, may leave them."""
    store = tmp_path / "store"
    whole = simulation.run(CELLS, trials=4, store=store)
    for damage in (
        lambda data: b"",
        lambda data: data[:99],
        lambda data: data[:-70],
        lambda data: b"no archive",
    ):
        for path in store.glob("*.npz"):
            path.write_bytes(damage(path.read_bytes()))
        again = simulation.run(CELLS, trials=4, store=store)
        for one, other in zip(whole, again, strict=True):
            np.testing.assert_array_equal(one.values, other.values)
        assert [len(np.load(path)["values"]) for path in store.glob("*.npz")] == [4, 4]
    command = ("reproduce", "figure4", "--scale", "quick", "--jobs", "1", "--out", tmp_path / "f")
    assert olsen(*command)[0] == 0
    trials = sorted((tmp_path / "f" / "trials").iterdir())
    before = {path: path.read_bytes() for path in [tmp_path / "f" / "figure4.csv", *trials]}
    trials[0].write_bytes(b"")
    code, _, err = olsen(*command)
    assert code == 2 and "figure4.csv already exists" in one_line(err)
    code, _, err = olsen(*command, "--force")
    assert (code, err) == (0, "") and all(
        path.read_bytes() == known for path, known in before.items()
    )


# numbers


def test_numbers_out_of_range_are_bad_usage(olsen, place):
    before = hashes(place)
    for arguments, words in (
        (("fit", "--members", "1.5"), "1.5 is not a whole number"),
        (("fit", "--members", "1"), '"1" for --members'),
        (("fit", "--members", "99999999999999999999"), "1,000,000,000"),
        (("fit", "--seed", "-1"), '"-1" for --seed'),
        (("fit", "--jobs", "0"), "--jobs"),
        ((*PREDICT, "--interval", "nan"), "--interval nan"),
        (("risk", "--gamma", "2", "--sigma", "1", "--mu", "nan"), "mu"),
        (("risk", "--gamma", "2", "--sigma", "1", "--k", "nan"), "k must"),
        (("risk", "--gamma", "2", "--sigma", "1e200"), "sigma"),
        (("risk", "--gamma", "2", "--sigma", "1", "--n", "-3"), '"-3" for --n'),
        (("risk", "--gamma", "0.001", "--sigma", "1", "--n", "10"), "0 columns"),
        (("risk", "--gamma", "2", "--sigma", "1", "--n", "5", "--eta", "0.01"), "no row"),
    ):
        code, out, err = olsen(*arguments)
        with case(arguments, err):
            assert (code, out) == (2, "") and words in one_line(err) and hashes(place) == before
