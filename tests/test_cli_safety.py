"""No run of the command loses data: inputs are what they were, outputs are the old ones or complete new ones."""

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

from olsen import cli, simulation
from olsen._execution import files
from olsen.cli import recognition
from olsen.simulation import Ensemble, LinearProblem, Ridge

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals, limits and locks of POSIX")


FIT = ("fit", "y.csv", "--target", "y", "--members", "5", "--jobs", "1")


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
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


def start(*arguments, cwd, **settings):
    command = [sys.executable, "-m", "olsen", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=cwd, text=True, **pipes | settings)


def run(*arguments, cwd, **settings):
    """Exit code, standard output and error stream of the real command."""
    with start(*arguments, cwd=cwd, **settings) as process:
        out, err = process.communicate()
    return process.returncode, out, err


def together(calls):
    """Results of functions, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def table(target="y", n=40, p=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    y = X @ np.arange(1.0, p + 1) + rng.standard_normal(n)
    return pa.table({f"x{j}": X[:, j] for j in range(p)} | {target: y})


def write_csv(path, *arguments, **options):
    import pyarrow.csv as pv

    pv.write_csv(table(*arguments, **options), path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table as CSV and as Parquet, a model and a report; beside them tables whose targets have names of limits."""
    folder = tmp_path_factory.mktemp("made")
    for target in ("y", "lower", "upper"):
        write_csv(folder / f"{target}.csv", target)
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

REFUSED = {
    "table as model": ((*FIT, "--out", "y.csv"), ["--out y.csv", "the table y.csv", "another name"]),
    "predictions over the table": (("predict", "m.skops", "y.csv", "--out", "y.csv", "--force"), ["the table y.csv"]),
    "predictions added to the table": (("predict", "m.skops", "y.csv"), ["standard output", "the table y.csv"]),
    "a table where a model shall go": ((*FIT, "--out", "table.skops"), ["not a model written by olsen", "--force"]),
}


def furnished(made, folder):
    shutil.copytree(made, folder)
    (folder / "soft.html").symlink_to("y.csv")
    os.link(folder / "y.csv", folder / "hard.skops")
    shutil.copy(folder / "y.csv", folder / "table.skops")
    (folder / "parts").mkdir()
    shutil.copy(folder / "y.parquet", folder / "parts" / "0.parquet")
    return folder


@pytest.fixture(scope="module")
def refusals(made, tmp_path_factory):
    """Outcome of every command that is to be refused, with the files before and after."""

    def refused(name):
        folder = furnished(made, tmp_path_factory.getbasetemp() / f"refused {name}")
        before = hashes(folder)
        with open(folder / "y.csv", "a") as added:  # as the shell does for >>
            shown = {"stdout": added} if "added" in name else {}
            return run(*REFUSED[name][0], cwd=folder, **shown), before, hashes(folder)

    return dict(zip(REFUSED, together([lambda name=name: refused(name) for name in REFUSED]), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_lose_a_file_is_refused_and_changes_nothing(refusals, name):
    (code, out, err), before, after = refusals[name]
    assert code == 2 and not out and before == after
    assert all(words in one_line(err) for words in REFUSED[name][1]), err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "m.skops", "y.csv", "--out", "m.skops"), "the model m.skops"),
        ((*FIT, "--out", "hard.skops"), "the table y.csv"),
        ((*FIT, "--out", "../here/./y.csv"), "the table y.csv"),
        ((*FIT, "--report", "y.csv", "--force"), "the table y.csv"),
        ((*FIT, "--report", "soft.html"), "--report soft.html would replace the table y.csv"),
        ((*FIT, "--out", "n.skops", "--report", "n.skops"), "--out n.skops and --report n.skops are one file"),
        ((*FIT, "--out", "n.skops", "--report", "link.html"), "are one file"),
        (("fit", "parts", "--target", "y", "--out", "parts/deep/n.skops"), "choose another place"),
        (("fit", "parts", "--target", "y", "--out", "outside.skops"), "the folder parts"),
        (("fit", "parts", "--target", "y", "--out", "linked/n.skops"), "the folder parts"),
        (("predict", "m.skops", "parts", "--out", "parts/p.parquet"), "the folder parts"),
        (("predict", "m.skops", "y.csv", "--out", "table.csv"), "predictions written by olsen"),
        (("predict", "m.skops", "y.csv", "--out", "p.xlsx"), ".csv or .tsv or .parquet"),
        (("predict", "m.skops", "y.csv", "--out", "p"), ".csv or .tsv or .parquet"),
        ((*FIT, "--out", "new/n.pkl"), "ends with .skops"),
        ((*FIT, "--report", "n.pdf"), ".html or .htm"),
        (("fit", "y.csv", "--target", "z", "--out", "new/folder/n.skops"), "no column 'z'"),
        ((*FIT, "--report", "other.html"), "not a report written by olsen"),
        ((*FIT, "--out", "half.skops"), "not a model written by olsen"),
        (("reproduce", "figure1", "--out", "y.csv"), "is a file"),
        (("reproduce", "figure1", "--out", "parts"), "parts/figure1.csv is there already"),
    ],
)
def test_variations_are_refused_too(made, tmp_path, monkeypatch, arguments, words):
    here = furnished(made, tmp_path / "here")
    monkeypatch.chdir(here)
    (here / "link.html").symlink_to("n.skops")  # which is not there yet
    (here / "outside.skops").write_bytes((here / "y.parquet").read_bytes())
    (here / "parts" / "1.parquet").symlink_to(here / "outside.skops")
    (tmp_path / "elsewhere").mkdir()
    (here / "parts" / "more").symlink_to(tmp_path / "elsewhere")
    (here / "linked").symlink_to(tmp_path / "elsewhere")
    shutil.copy("y.csv", "table.csv")
    shutil.copy("y.csv", "parts/figure1.csv")
    (here / "other.html").write_text("<!doctype html><p>A page of mine.")
    (here / "half.skops").write_bytes((here / "m.skops").read_bytes()[:500])
    before = hashes(tmp_path)
    code, out, err = run(*arguments, cwd=here)
    assert (code, out) == (2, "") and words in one_line(err) and hashes(tmp_path) == before


def test_places_are_compared_not_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("1")
    Path("b").write_text("1")
    os.link("a", "hard")
    Path("soft").symlink_to("a")
    assert files.same_place("a", "hard") and files.same_place("soft", tmp_path / "a")
    assert files.same_place("not/there", "not/../not/there")
    assert not files.same_place("a", "b") and not files.same_place("new", "a") and not files.same_place("new", "other")


# an output that exists


@posix
def test_what_is_ours_is_replaced_and_keeps_its_permissions(olsen, place):
    os.chmod("m.skops", 0o640)
    os.chmod("y.csv", 0o400)
    Path("link.html").symlink_to("r.html")
    Path("empty.skops").touch()
    inputs = hashes(place)["y.csv"]
    assert olsen(*FIT, "--seed", "9", "--out", "m.skops", "--report", "link.html")[0] == 0
    assert stat.S_IMODE(os.stat("m.skops").st_mode) == 0o640 and Path("link.html").is_symlink()
    assert olsen(*FIT, "--out", "empty.skops")[0] == 0
    for name in ("p.csv", "p.tsv", "p.parquet", "P.CSV"):
        for extra in ([], ["--interval", "0.9"], ["--interval", "0.8"]):
            assert olsen("predict", "m.skops", "y.csv", "--out", name, *extra)[0] == 0
    assert hashes(place)["y.csv"] == inputs
    assert Path("p.tsv").read_text().splitlines()[0] == "y\tlower\tupper"
    assert Path("p.csv").read_text().splitlines()[0] == "y,lower,upper"
    assert pq.read_table("p.parquet").column_names == ["y", "lower", "upper"]


def test_force_replaces_what_is_not_ours(olsen, place):
    for name in ("a.skops", "a.html", "a.csv"):
        Path(name).write_text("x,y\n1,2\n")
    assert olsen(*FIT, "--out", "a.skops", "--report", "a.html", "--force")[0] == 0
    assert olsen("predict", "a.skops", "y.csv", "--out", "a.csv", "--force")[0] == 0
    assert recognition.is_model(Path("a.skops")) and recognition.is_report(Path("a.html"))
    assert recognition.is_predictions(Path("a.csv"))


A = 1 / 3  # as many digits as there are


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (f"y\n{A}\n{-A * 1e-9}\n", True),
        (f"y,lower,upper\n{A},-inf,{2 * A}\n", True),
        (f"y\tlower\tupper\n{A}\t{-A}\tinf\n", True),
        ("y\n1.5\n2.25\n3.0\n", False),  # measured
        (f"y\n{A}\nn.d.\n", False),
        (f"y,a,b\n{A},{A},{A}\n", False),
        (f"a,y\n{A},{A}\n", False),
        ("y\n", False),
        (f"row,y\nr1,{A}\n", True),
        (f'row,y\n"one\nand, two",{A}\n', True),
        (f"plot,y\nr1,{A}\n", False),  # rows are named by another column
        ("row,y\nr1,1.5\n", False),
        (f"plot,other,y,lower,upper\nr1,x,{A},{A / 3},inf\n", True),
        (f"plot,y,lower,upper\nr1,{A},{2 * A},{3 * A}\n", False),  # limits that are none
    ],
)
def test_predictions_are_known_by_their_digits(tmp_path, text, ours):
    (tmp_path / "p.csv").write_text(text)
    assert recognition.is_predictions(tmp_path / "p.csv", ["row"]) is ours


def test_predictions_with_names_of_rows_are_replaced(place):
    """A table of the same form that was measured is not."""
    ids = ("--id", "x0")
    for extra in (ids, (*ids, "--interval", "0.9"), ("--interval", "0.9")):
        for name in ("p.csv", "p.tsv", "p.parquet"):
            assert cli.main(["predict", "m.skops", "y.csv", "--out", name, *extra]) == 0
        code, _, err = run("predict", "m.skops", "y.csv", "--out", "p.csv", *extra, cwd=place)
        assert code == 0, err
    (place / "mine.csv").write_text("x0,y\n1.25,3.5\n2.5,4.25\n")
    before = hashes(place)
    code, _, err = run("predict", "m.skops", "y.csv", "--out", "mine.csv", *ids, cwd=place)
    assert code == 2 and "not predictions written by olsen" in one_line(err) and hashes(place) == before


def test_write_protected_files_are_not_replaced(olsen, place, monkeypatch):
    """Permissions do not bind the superuser, so the system's answer is imitated."""
    before = hashes(place)
    monkeypatch.setattr(files.os, "access", lambda path, mode: Path(path).name != "m.skops")
    code, _, err = olsen(*FIT, "--out", "m.skops")
    assert code == 1 and "write-protected: m.skops" in one_line(err) and hashes(place) == before


@posix
def test_pipes_and_devices_are_written_directly(olsen, place):
    """Where the shell appends to a file, so do we."""
    Path("log").write_text("kept\n")
    before = hashes(place)
    with open("log", "a") as log:
        assert run(*FIT, "--report", "/dev/stdout", cwd=place, stdout=log)[0] == 0
    kept, report = Path("log").read_text().split("\n", 1)
    assert kept == "kept" and report.startswith("<!doctype html>") and "written: /dev/stdout" in report
    assert olsen(*FIT, "--out", "/dev/null", "--report", "/dev/null")[0] == 0
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    assert olsen("predict", "m.skops", "y.csv", "--out", "pipe")[0] == 0
    assert reader.communicate()[0] == olsen("predict", "m.skops", "y.csv")[1]
    Path("pipe").unlink()
    assert hashes(place) | {"log": None} == before | {"log": None}


@pytest.mark.parametrize("target", ["lower", "upper"])
def test_limits_never_have_the_name_of_the_target(olsen, place, target):
    model = "limits.skops"
    assert olsen("fit", f"{target}.csv", "--target", target, "--members", "5", "--out", model)[0] == 0
    names = [target, "lower_limit", "upper_limit"]
    code, text, _ = olsen("predict", model, f"{target}.csv", "--interval", "0.9", "--json")
    found = json.loads(text)
    assert code == 0 and list(found) == names
    assert np.all(np.less(found["lower_limit"], found[target]) & np.less(found[target], found["upper_limit"]))
    assert found[target] == json.loads(olsen("predict", model, f"{target}.csv", "--json")[1])[target]
    for _ in range(2):  # the second time over the first
        assert olsen("predict", model, f"{target}.csv", "--interval", "0.9", "--out", "p.csv")[0] == 0
    assert Path("p.csv").read_text().splitlines()[0].split(",") == names


# runs that end early


def whole_model(path):
    with zipfile.ZipFile(path) as file:
        return file.testzip() is None and recognition.is_model(path)


def whole_report(path):
    text = path.read_text(encoding="utf-8")
    return recognition.is_report(path) and text.endswith("</html>\n")


@pytest.fixture(scope="module")
def finished(made, tmp_path_factory):
    """What was made, with outputs of every command beside it."""
    folder = shutil.copytree(made, tmp_path_factory.mktemp("finished") / "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("p.csv", "p.tsv", "p.parquet"):
            assert cli.main(["predict", "m.skops", "y.csv", "--out", name]) == 0
        assert cli.main([*COMPARE, "--report", "c.html"]) == 0
        for suffix in ("csv", "parquet"):
            assert cli.main([*REPRODUCE, "--out", f"figures {suffix}", "--format", suffix]) == 0
    return folder


COMPARE = ("compare", "y.csv", "--target", "y", "--folds", "2", "--jobs", "1")
REPRODUCE = ("reproduce", "figure1", "--scale", "quick", "--jobs", "1")
FULL = {  # name -> the largest file there is room for, the command, and what cannot be written
    "model": (3000, (*FIT, "--report", "r.html", "--out", "m.skops"), "m.skops"),
    "report": (3000, (*FIT, "--report", "r.html"), "r.html"),
    "report in a new folder": (3000, (*FIT, "--report", "new/folder/n.html"), "new/folder/n.html"),
    "predictions as CSV": (500, ("predict", "m.skops", "y.csv", "--interval", "0.9", "--out", "p.csv"), "p.csv"),
    "predictions with tabs": (500, ("predict", "m.skops", "y.csv", "--interval", "0.9", "--out", "p.tsv"), "p.tsv"),
    "predictions as Parquet": (500, ("predict", "m.skops", "y.csv", "--out", "p.parquet"), "p.parquet"),
    "comparison": (3000, (*COMPARE, "--report", "c.html"), "c.html"),
    "table of a figure": (500, (*REPRODUCE, "--out", "figures csv"), "figures csv/figure1.csv"),
    "Parquet of a figure": (
        500, (*REPRODUCE, "--out", "figures parquet", "--format", "parquet"), "figures parquet/figure1.parquet"),
    "picture": (6000, (*REPRODUCE, "--out", "figures csv"), "figures csv/figure1.p"),
    "trials": (100, (REPRODUCE[0], "figure4", *REPRODUCE[2:], "--out", "new figures"), "new figures/trials/"),
}  # fmt: skip


@pytest.fixture(scope="module")
def full_disks(finished, tmp_path_factory):
    """Outcome of every command without room for what it writes, imitated by a limit on the size of files."""
    import resource

    def limited(name):
        room, arguments, _ = FULL[name]
        folder = shutil.copytree(finished, tmp_path_factory.mktemp("full") / "here")
        before = hashes(folder)
        limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))}
        return run(*arguments, cwd=folder, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, **limits), before, folder

    return dict(zip(FULL, together([lambda name=name: limited(name) for name in FULL]), strict=True))


@posix
def test_a_full_disk_leaves_the_old_file(full_disks):
    for name, ((code, out, err), before, folder) in full_disks.items():
        assert (code, out) == (1, ""), name
        assert f"nothing was changed: {FULL[name][2]}" in one_line(err), name
        assert same_figures(hashes(folder), before, folder), name


def same_figures(after, before, folder):
    """Whether nothing has changed but how long a figure took."""
    manifests = {name for name in after if name.endswith("figure1.json")}
    assert all(json.loads((folder / name).read_text())["figure"] for name in manifests)
    return after | dict.fromkeys(manifests) == before | dict.fromkeys(manifests)


READY = "import sys; from olsen.cli import main; print('ready', flush=True); sys.exit(main())"
LONG = {  # commands that would take long, or for ever
    "fit": ("fit", "--members", "3000", "--jobs", "1", "--report", "new/n.html"),
    "predict": ("predict", "m.skops", "-", "--out", "new/p.csv"),  # from a pipe into which nobody writes
    "compare": ("compare", "--repeats", "99", "--jobs", "1", "--report", "new/c.html"),
    "reproduce": ("reproduce", "figure2", "--jobs", "1", "--out", "new"),
}


def interrupted(folder, arguments, delay, **settings):
    """Exit code and errors of a command that is stopped with Ctrl-C, some seconds after it was called."""
    command = [sys.executable, "-c", READY, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, **pipes | settings) as process:
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        process.wait()
        err = process.stderr.read() if process.stderr else None
    return process.returncode, err


@posix
@pytest.mark.parametrize("latest", [0.3, 3.0])
def test_control_c_is_one_line_from_the_first_moment(made, tmp_path, seed, latest):
    """Of every command: while it imports, reads, works and writes. Trials that are finished stay."""
    draw = random.Random(f"{seed} {latest}")

    def stopped(name):
        folder = shutil.copytree(made, tmp_path / name)
        said = interrupted(folder, LONG[name], draw.uniform(0.02, latest))
        shutil.rmtree(folder / "new" / "trials", ignore_errors=True)
        return said, {name: said for name, said in hashes(folder).items() if name != "new"}

    for said, after in together([lambda name=name: stopped(name) for name in LONG]):
        assert said == (130, "olsen: stopped\n") and after == hashes(made)


@posix
def test_control_c_on_a_terminal_gives_the_cursor_back(made, tmp_path, until_closed):
    import pty

    ours, theirs = pty.openpty()
    said = interrupted(shutil.copytree(made, tmp_path / "here"), LONG["compare"], 4.0, stderr=theirs)
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
        ("predict", "m.skops", "lower.csv", "--out", "a/b/p.csv"),
        ("predict", "y.csv", "y.csv", "--out", "a/b/p.parquet"),
    ):
        code, _, err = olsen(*arguments)
        assert code in (0, 1) and (code == 0 or one_line(err))
        if code == 0:
            shutil.rmtree("a")
        assert hashes(place) == before

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


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[:99], lambda whole: whole[:-70], lambda whole: b"no archive"]
)
def test_damaged_trials_are_computed_again(tmp_path, damage):
    whole = simulation.run(CELLS, trials=4, store=tmp_path)
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(damage(path.read_bytes()))
    again = simulation.run(CELLS, trials=4, store=tmp_path)
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    assert not simulation.montecarlo.TrialStore(tmp_path, {}).trials
    assert all(np.load(path)["values"].shape[0] == 4 for path in tmp_path.glob("*.npz"))


def test_an_empty_file_of_trials_is_no_obstacle(olsen, tmp_path, monkeypatch):
    """As a full disk, or a machine that lost its power, may leave it."""
    command = ("reproduce", "figure4", "--scale", "quick", "--jobs", "1", "--out", "f")
    monkeypatch.chdir(tmp_path)
    assert olsen(*command)[0] == 0
    trials = sorted((tmp_path / "f" / "trials").iterdir())
    before = {path: path.read_bytes() for path in [tmp_path / "f" / "figure4.csv", *trials]}
    trials[0].write_bytes(b"")
    code, _, err = run(*command, cwd=tmp_path)
    assert (code, err) == (0, "") and all(path.read_bytes() == known for path, known in before.items())


def test_figures_of_ours_are_made_again(olsen, tmp_path):
    command = ("reproduce", "figure1", "--scale", "quick", "--out", tmp_path)
    assert olsen(*command)[0] == 0
    (tmp_path / "figure1.json").unlink()  # killed before it was written
    assert olsen(*command)[0] == 0
    (tmp_path / "figure1.json").write_text('{"seed": 1}')
    code, _, err = olsen(*command)
    assert code == 2 and "figure1.json is there already" in one_line(err)


# numbers


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "--members", "1.5"), "1.5 is not a whole number"),
        (("fit", "--members", "1e2"), "1e2 is not a whole number"),
        (("fit", "--members", "1"), "--members. Give 2"),
        (("fit", "--members", "99999999999999999999"), "up to 1,000,000,000"),
        (("fit", "--seed", "-1"), '"-1" for --seed'),
        (("fit", "--seed", "0.5"), "0.5 is not a whole number"),
        (("fit", "--jobs", "0"), "--jobs"),
        (("reproduce", "--seed", "-1"), "--seed"),
        (("reproduce", "--jobs", "0"), "--jobs"),
        (("predict", "m.skops", "y.csv", "--interval", "nan"), "--interval nan"),
        (("risk", "--gamma", "2", "--sigma", "1", "--mu", "nan"), "--mu nan: a finite number"),
        (("risk", "--gamma", "inf", "--sigma", "1"), "--gamma inf: a finite number"),
        (("risk", "--gamma", "2", "--sigma", "1", "--k", "nan"), "--k nan: a finite number is needed (or inf)"),
        (("risk", "--gamma", "2", "--sigma", "1e200"), "--sigma 1e+200"),
        (("risk", "--gamma", "1e-200", "--sigma", "1"), "--gamma 1e-200"),
        (("risk", "--gamma", "2", "--sigma", "1", "--mu", "1e200"), "--mu 1e+200"),
        (("risk", "--gamma", "2", "--sigma", "1", "--n", "1.5"), "1.5 is not a whole number"),
        (("risk", "--gamma", "2", "--sigma", "1", "--n", "-3"), '"-3" for --n'),
        (("risk", "--gamma", "0.001", "--sigma", "1", "--n", "10"), "make 0 columns"),
        (("risk", "--gamma", "2", "--sigma", "1", "--n", "5", "--eta", "0.01"), "leave no row"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_numbers_out_of_range_are_bad_usage(place, arguments, words):
    before = hashes(place)
    code, out, err = run(*arguments, cwd=place)
    assert (code, out) == (2, "") and words in one_line(err) and hashes(place) == before


def test_an_infinite_risk_is_a_result(olsen):
    code, out, _ = olsen("risk", "--gamma", "2", "--sigma", "1", "--alpha", "0.5", "--k", "10", "--json")
    assert code == 0 and json.loads(out)["risk"] == "Infinity"
