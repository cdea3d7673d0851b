"""The command line as a new user meets it: real files with real faults, each with a clear outcome."""

import errno
import inspect
import json
import os
import re
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest

from olsen import __version__, cli, theory
from olsen._execution import files

pa = pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")


def one_line(text):
    assert text.startswith("olsen: ") and text.count("\n") == 1, text
    return text


def numbers(n=60, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X @ np.arange(1.0, p + 1) + 0.5 * rng.standard_normal(n) + 3


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    """Numbers, a text column, and the target."""
    X, y = numbers()
    places = np.resize(["north", "south", "east"], len(y))
    lines = ["a,b,c,d,e,region,yield"]
    lines += [
        ",".join([*(f"{v:.6f}" for v in row), place, f"{t:.6f}"]) for row, place, t in zip(X, places, y, strict=True)
    ]
    path = tmp_path_factory.mktemp("data") / "harvest.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def model_file(csv_file):
    path = csv_file.with_suffix(".skops")
    assert cli.main(["fit", str(csv_file), "--target", "yield", "--members", "20", "--out", str(path)]) == 0
    return path


# fit


def test_fit_prints_what_a_person_wants_to_know(olsen, csv_file):
    code, out, err = olsen("fit", csv_file, "--target", "yield", "--members", "20")
    assert (code, err) == (0, "")
    for words in ("60 rows", "7 columns", "ensemble, 20 members", "ridge", "least squares", "drawn"):
        assert words in out
    assert "column 'region' holds text: its 3 categories become 2 columns" in out
    assert "region_south" in out


def test_fit_without_data_uses_the_embedded_example(olsen):
    code, out, _ = olsen("fit", "--members", "10")
    assert code == 0 and "732 rows, 700 columns" in out


def test_fit_json_is_json_and_repeatable(olsen, csv_file):
    arguments = ("fit", csv_file, "--target", "yield", "--members", "20", "--json", "--seed", "5")
    code, out, _ = olsen(*arguments)
    summary = json.loads(out)
    assert code == 0 and summary["data"]["rows"] == 60 and summary["model"]["seed"] == 5
    errors = {line["name"]: line["rmse"] for line in summary["errors"]}
    assert 0.3 < errors["ensemble, 20 members"] < 0.8 and 0.3 < errors["ridge"] < 0.8
    assert summary["curve"]["mixture"]["rmse"] == errors["ensemble, 20 members"]
    assert json.loads(olsen(*arguments)[1]) == summary


def test_errors_are_those_of_refits(csv_file):
    """Ridge and least squares against scikit-learn, each row left out by hand."""
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.model_selection import LeaveOneOut, cross_val_predict

    from olsen._report.baselines import leave_one_out_errors

    for p in (5, 40):
        X, y = numbers(n=45, p=p, seed=1)
        by_hand = cross_val_predict(LinearRegression(), X, y, cv=LeaveOneOut())
        _, squares, mse, penalty = leave_one_out_errors(X, y, np.ones(len(y)))
        assert squares == pytest.approx(np.mean((y - by_hand) ** 2))
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        by_hand = cross_val_predict(Ridge(penalty), Z, y, cv=LeaveOneOut())
        assert mse == pytest.approx(np.mean((y - by_hand) ** 2), rel=1e-6)
    assert leave_one_out_errors(*numbers(n=20, p=30), np.ones(20)).least_squares is None


def test_missing_cells_are_refused_with_counts_and_columns(olsen, tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text("a,b,c,y\n1,,2,1\n,,3,2\n3,4,NA,3\n4,5,6,4\n5,6,7,5\n6,7,8,6\n")
    code, _, err = olsen("fit", path, "--target", "y")
    assert code == 1 and "4 cells" in one_line(err) and "'b' (2), 'a' (1), 'c' (1)" in err
    assert olsen("fit", path, "--target", "y", "--drop", "a", "--drop", "b", "--drop", "c")[0] == 1


def test_a_dropped_column_may_have_gaps(olsen, tmp_path):
    X, y = numbers(30, 3)
    lines = ["a,b,c,note,y", *(f"{r[0]},{r[1]},{r[2]},,{t}" for r, t in zip(X, y, strict=True))]
    path = tmp_path / "note.csv"
    path.write_text("\n".join(lines))
    assert olsen("fit", path, "--target", "y", "--drop", "note", "--members", "5")[0] == 0


def test_a_byte_order_mark_semicolons_and_decimal_commas(olsen, tmp_path):
    X, y = numbers(40, 3)
    lines = ["höhe;länge;ort;y"]
    lines += [f"{r[0]:.4f};{r[1]:.4f};{'Köln' if r[2] > 0 else 'Bonn'};{t:.4f}".replace(".", ",")
              for r, t in zip(X, y, strict=True)]  # fmt: skip
    path = tmp_path / "excel.csv"
    path.write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n").encode())
    code, out, _ = olsen("fit", path, "--target", "y", "--members", "5")
    assert code == 0 and "separated by semicolons, decimals by a comma" in out
    assert "höhe" in out and "ort_Köln" in out and "\ufeff" not in out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"  \n\n", "is empty"),
        (b"a,b,y\n", "no rows"),
        (b"1,2,3\n4,5,6\n", "header"),
        (b"a,a,y\n1,2,3\n", "several columns named 'a'"),
        (b"a,b,y\n1,2,3\n1,2\n", "cannot be read as a table"),
        (b"PK\x03\x04rest", "spreadsheet"),
        (b"\xff\xfea\x00", "UTF-16"),
        (b"a,y\n1,2\nn.d.,3\n3,4\n5,4\n", "numbers and text such as 'n.d.'"),
        (b"a,d,y\n1,2020-01-01,2\n2,2020-01-02,3\n", "dates"),
        (b"a,y\n1,x\n2,y\n3,x\n", "the target 'y' holds text"),
        (b"a,y\n1,1\n2,2\n", "at least 5"),
        (b"y\n1\n2\n3\n", "no column besides the target"),
        (b"PAR1 and then nonsense", "damaged Parquet"),
    ],
)
def test_faulty_tables_are_refused_in_one_line(olsen, tmp_path, content, words):
    path = tmp_path / "faulty.csv"
    path.write_bytes(content)
    code, _, err = olsen("fit", path, "--target", "y")
    assert code == 1 and words in one_line(err)


def test_identifiers_are_not_categories(olsen, tmp_path):
    path = tmp_path / "ids.csv"
    path.write_text("id,a,y\n" + "\n".join(f"plot {i},{i % 7},{i % 5}" for i in range(50)))
    code, _, err = olsen("fit", path, "--target", "y")
    assert code == 1 and "50 different texts" in one_line(err) and "--drop 'id'" in err


def test_wrong_arguments_are_bad_usage(olsen, csv_file, tmp_path):
    for arguments, words in (
        (("fit", csv_file, "--target", "yeild"), "there is no column 'yeild'"),
        (("fit", csv_file), "--target is needed"),
        (("fit", csv_file, "--target", "yield", "--drop", "z"), "there is no column 'z'"),
        (("fit", csv_file, "--target", "yield", "--members", "one"), "members"),
        (("fit", csv_file, "--target", "yield", "--members", "1"), "at least 2"),
        (("fit", csv_file, "--target", "yield", "--out", tmp_path), "is a folder"),
        (("train",), "train"),
        (("fit", "--colour"), "colour"),
    ):
        code, _, err = olsen(*arguments)
        assert code == 2 and words in one_line(err)


def test_a_file_that_is_not_there(olsen, tmp_path):
    code, _, err = olsen("fit", tmp_path / "nothing.csv", "--target", "y")
    assert code == 1 and "there is no file" in one_line(err)
    assert "folder" in olsen("fit", tmp_path, "--target", "y")[2]


def test_parquet_and_csv_give_the_same_fit(olsen, csv_file, tmp_path):
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    pq.write_table(pv.read_csv(csv_file), tmp_path / "harvest.parquet")
    fits = [json.loads(olsen("fit", f, "--target", "yield", "--members", "9", "--json")[1])
            for f in (csv_file, tmp_path / "harvest.parquet")]  # fmt: skip
    assert fits[0]["coefficients"] == fits[1]["coefficients"]


def test_outputs_that_cannot_be_written_fail_before_the_work(olsen, csv_file, monkeypatch):
    monkeypatch.setattr(cli.commands, "_tuned", lambda *_: pytest.fail("the fit ran first"))
    for target in ("/proc/model.skops", "/dev/null/model.skops"):
        code, _, err = olsen("fit", csv_file, "--target", "yield", "--out", target)
        assert code == 1 and one_line(err)
    code, _, err = olsen("reproduce", "figure1", "--out", "/proc/figures")
    assert code == 1 and one_line(err)


def test_a_read_only_folder(olsen, csv_file, tmp_path, monkeypatch):
    """Permissions do not bind the superuser, so the system's answer is imitated where it would not come."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    if os.geteuid() == 0:
        refusal = PermissionError(errno.EACCES, "Permission denied", str(folder))
        monkeypatch.setattr(files.tempfile, "TemporaryFile", Mock(side_effect=refusal))
    code, _, err = olsen("fit", csv_file, "--target", "yield", "--report", folder / "r.html")
    assert code == 1 and "cannot write, permission denied" in one_line(err) and "r.html" in err


# predict


def test_predictions_are_the_models(olsen, csv_file, model_file, tmp_path):
    out = tmp_path / "predictions.csv"
    code, text, err = olsen("predict", model_file, csv_file, "--out", out, "--interval", "0.9")
    assert code == 0 and text == "" and "60 predictions" in err
    rows = np.genfromtxt(out, delimiter=",", names=True)
    assert rows.dtype.names == ("yield", "lower", "upper")
    observed = np.genfromtxt(csv_file, delimiter=",", names=True, dtype=None, encoding="utf-8")["yield"]
    assert np.corrcoef(rows["yield"], observed)[0, 1] > 0.95
    inside = (rows["lower"] <= observed) & (observed <= rows["upper"])
    assert inside.mean() >= 0.8
    code, text, _ = olsen("predict", model_file, csv_file, "--json")
    np.testing.assert_allclose(json.loads(text)["yield"], rows["yield"])
    assert olsen("predict", model_file, csv_file)[1].startswith("yield\n")
    assert olsen("predict", model_file, csv_file, "--out", tmp_path / "p.parquet")[0] == 0


def test_predict_needs_neither_the_target_nor_the_order_of_columns(olsen, csv_file, model_file, tmp_path):
    rows = [line.split(",") for line in csv_file.read_text().splitlines()]
    path = tmp_path / "new.csv"
    path.write_text("\n".join(",".join(row[5::-1]) for row in rows))
    assert olsen("predict", model_file, path)[1] == olsen("predict", model_file, csv_file)[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("a,b,c", "a,B,c", 1), "lacks 1 column of the model: 'b'; it has 'B'"),
        (lambda t: t.replace("north", "west"), "holds 'west', which the model has not seen"),
        (lambda t: t.replace("\n", "\nx", 1), "holds text"),
        (lambda t: t.replace("north", "", 1), "1 cell"),
    ],
)
def test_predict_refuses_other_tables_and_says_which_column(olsen, csv_file, model_file, tmp_path, change, words):
    path = tmp_path / "other.csv"
    path.write_text(change(csv_file.read_text()))
    code, _, err = olsen("predict", model_file, path)
    assert code == 1 and words in one_line(err)


def test_files_that_are_not_models(olsen, csv_file, tmp_path):
    import skops.io
    from sklearn.linear_model import Ridge

    class Stranger:
        pass

    skops.io.dump({"format": "olsen model 1", "model": Stranger()}, tmp_path / "stranger.skops")
    skops.io.dump(Ridge(), tmp_path / "ridge.skops")
    (tmp_path / "text.skops").write_text("hello")
    (tmp_path / "half.skops").write_bytes((tmp_path / "ridge.skops").read_bytes()[:200])
    for name, words in (
        ("stranger", "not trusted"),
        ("ridge", "not a model written by olsen"),
        ("text", "not a model written by olsen"),
        ("half", "not a model written by olsen"),
        ("nothing", "there is no model file"),
    ):
        code, _, err = olsen("predict", tmp_path / f"{name}.skops", csv_file)
        assert code == 1 and words in one_line(err)


def test_predict_interval_must_be_a_probability(olsen, csv_file, model_file):
    assert olsen("predict", model_file, csv_file, "--interval", "90")[0] == 2


# risk and reproduce


def test_risk_is_the_theory(olsen):
    code, out, _ = olsen("risk", "--gamma", "2", "--sigma", "1", "--json")
    found = json.loads(out)
    assert code == 0 and found["k"] == "Infinity"
    assert found["alpha"] == pytest.approx(float(theory.optimal_alpha(2.0, 1.0)))
    assert found["risk"] == pytest.approx(found["ridge_risk"])
    code, out, _ = olsen("risk", "--gamma", "2", "--sigma", "1", "--alpha", "0.2", "--k", "10", "--n", "100", "--json")
    assert json.loads(out)["risk_at_n"] == pytest.approx(float(theory.expected_risk(100, 200, 40, 1.0, k=10)))
    assert "the best" in olsen("risk", "--gamma", "2", "--sigma", "1")[1]


@pytest.mark.parametrize("wrong", [("--alpha", "2"), ("--k", "0"), ("--gamma", "-1"), ("--eta", "2")])
def test_risk_refuses_impossible_letters(olsen, wrong):
    code, _, err = olsen("risk", "--gamma", "2", "--sigma", "1", *wrong)
    assert code == 2 and one_line(err)


def test_reproduce_says_how_far_simulation_is_from_theory(olsen, tmp_path):
    code, out, _ = olsen("reproduce", "figure1", "figure5", "--scale", "quick", "--out", tmp_path)
    assert code == 0 and "SE from exact theory" in out and (tmp_path / "figure5.pdf").exists()
    code, out, _ = olsen("reproduce", "figure1", "--scale", "quick", "--out", tmp_path, "--json", "--format", "parquet")
    assert json.loads(out)[0]["name"] == "figure1" and (tmp_path / "figure1.parquet").exists()
    assert olsen("reproduce", "figure77", "--out", tmp_path)[0] == 2
    assert olsen("reproduce", "figure1", "--scale", "huge", "--out", tmp_path)[0] == 2


# the program itself


def process(*arguments, **settings):
    """Exit code, standard output and error stream of the real command."""
    command = [sys.executable, "-m", "olsen", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **settings)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["fit", "predict", "show", "compare", "risk", "reproduce", "--install-completion"])
def test_help_explains_every_option_on_a_small_screen(command):
    code, out, err = process(command, "--help", env=os.environ | {"COLUMNS": "80"})
    assert (code, err) == (0, "") and "``" not in out
    assert max(map(len, out.splitlines())) <= 80
    examples = out.partition("Examples:")[2]
    assert examples.count(f"olsen {command}") >= 2
    function = getattr(cli.commands, command, None)
    for name in inspect.signature(function).parameters if function else ["shell"]:
        shown = name.upper() if f"│ {name.upper()} " in out or f"  {name.upper()} " in out else f"--{name}"
        assert re.search(rf"{shown.replace('_', '-')}(?: [A-Z.|]+)? {{2,}}\S", out), name


def test_help_has_the_exit_codes_and_the_version_is_ours():
    code, out, err = process("--help", env=os.environ | {"COLUMNS": "80"})
    assert (code, err) == (0, "") and max(map(len, out.splitlines())) <= 80
    for words in ("Exit codes:", "130  stopped with Ctrl-C", "--install-completion", "olsen fit wine.csv"):
        assert words in out
    assert process("--version") == (0, f"{__version__}\n", "")


def test_defaults_are_in_the_help():
    out = process("fit", "--help")[1]
    for default in ("error", "all", "auto", "0", "-1"):
        assert f"[default: {default}]" in out
    assert "default: False" not in out and "default: None" not in out


def test_completion_is_installed_and_what_was_there_stays(tmp_path):
    """In bash, asked as the tab key would ask; twice is as good as once."""
    old = b"alias ll='ls -l'\n# no end of line"
    (tmp_path / ".bashrc").write_bytes(old)
    home = os.environ | {"HOME": str(tmp_path)}
    for _ in range(2):
        code, _, err = process("--install-completion", "--shell", "bash", env=home)
        assert (code, err) == (0, "")
    added = (tmp_path / ".bashrc").read_bytes()
    assert added.startswith(old) and added.count(b'completions/olsen" ]') == 1
    script = tmp_path / ".local/share/bash-completion/completions/olsen"
    asked = '. "$1"; COMP_WORDS=(olsen "$2" "$3"); COMP_CWORD=$4; _olsen; echo "${COMPREPLY[@]}"'
    ask = ["bash", "-c", asked, "bash", script]
    commands = subprocess.run([*ask, "", "", "1"], capture_output=True, text=True).stdout.split()
    assert {"fit", "predict", "show", "compare", "risk", "reproduce"} <= set(commands)
    options = subprocess.run([*ask, "fit", "--mi", "2"], capture_output=True, text=True).stdout.split()
    assert options == ["--missing"]


def test_as_a_process(csv_file):
    code, out, err = process("fit", csv_file, "--target", "z")
    assert code == 2 and out == "" and one_line(err)


def test_what_saving_needs_is_said_before_anything_is_read(tmp_path):
    (tmp_path / "skops").mkdir()
    (tmp_path / "skops" / "__init__.py").write_text("raise ModuleNotFoundError('no skops', name='skops')")
    command = ("fit", "nothing.csv", "--target", "y", "--out", "m.skops")
    code, out, err = process(*command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert (code, out) == (1, "") and "needs skops, which is not installed: pip install" in one_line(err)


def test_long_names_and_single_columns(tmp_path):
    """A name of 500 characters is shortened, and no advice is given that could not be typed."""
    name, X = "n" * 500, np.random.default_rng(0).standard_normal((30, 2))
    lines = "".join(f"{a},{b}\n" for a, b in X)
    (tmp_path / "t.csv").write_text(f"{name},y\n{lines}")
    code, out, err = process("fit", "t.csv", "--target", "y", "--members", "5", cwd=tmp_path)
    assert (code, err) == (0, "") and "30 rows, 1 column," in out and "1 columns" not in out
    assert max(map(len, out.splitlines())) < 120
    code, out, err = process("fit", "t.csv", "--target", name[1:], cwd=tmp_path)
    assert (code, out) == (2, "") and "no column 'nnn" in one_line(err) and len(err) < 400
    (tmp_path / "t.csv").write_text(f"{name},y\n" + "".join(f"2024-01-{i:02d},{i}\n" for i in range(1, 29)))
    code, _, err = process("fit", "t.csv", "--target", "y", cwd=tmp_path)
    assert code == 1 and "--drop and its name" in one_line(err) and "--drop 'n" not in err and len(err) < 400


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="bash")
def test_pipes_of_the_shell(csv_file, model_file, tmp_path):
    """What a process substitution and a lone hyphen read is the table."""
    expected = process("predict", model_file, csv_file)
    assert expected[0] == 0
    for command in ('predict "$2" <(cat "$3")', 'predict "$2" - < "$3"', 'predict "$2" /dev/stdin < "$3"'):
        ask = ["/bin/bash", "-c", f'"$1" -m olsen {command}', "bash", sys.executable, model_file, csv_file]
        done = subprocess.run(ask, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == expected


def on_a_terminal(*arguments, cwd):
    """Exit code and what a terminal shows of the error stream; standard output is a pipe."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "olsen", *map(str, arguments)]
    shown, settings = b"", os.environ | {"COLUMNS": "100", "TERM": "xterm"}
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=theirs, env=settings) as running:
        os.close(theirs)
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side is closed
                break
            shown += part
            if not part:
                break
        os.close(ours)
    return running.returncode, shown.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")
@pytest.mark.parametrize("name", ["fit", "predict", "compare", "reproduce"])
def test_terminals_see_progress_and_pipes_do_not(tmp_path, name):
    import pyarrow.csv as pv

    X, y = numbers(60_000 if name == "predict" else 60, 8)
    columns = {f"x{j}": X[:, j] for j in range(8)} | {"y": y}
    pv.write_csv(pa.table(columns), tmp_path / "t.csv")
    pv.write_csv(pa.table(columns).slice(0, 60), tmp_path / "s.csv")
    if name == "predict":
        assert cli.main(["fit", str(tmp_path / "s.csv"), "--target", "y", "--out", str(tmp_path / "m.skops")]) == 0
    arguments, words = {
        "fit": (("fit", "t.csv", "--target", "y"), [r"fitting 60 rows, 8 columns", r"\d:\d\d:\d\d"]),
        "predict": (
            ("predict", "m.skops", "t.csv", "--out", "p.csv"),
            [r"reading t.csv", r"of \d+ MB", r"predicting", r"of 60,000 rows"],
        ),
        "compare": (
            ("compare", "t.csv", "--target", "y", "--repeats", "2"), [r"comparing", r"\d/6", r"\d:\d\d:\d\d"]),
        "reproduce": (
            ("reproduce", "figure4", "--scale", "quick", "--out", "f"), [r"figure4", r"\d+/\d+", r"\d:\d\d:\d\d"]),
    }[name]  # fmt: skip
    code, shown = on_a_terminal(*arguments, cwd=tmp_path)
    assert code == 0 and not [word for word in words if not re.search(word, shown)], shown[-2000:]
    assert shown.rstrip().endswith("written to p.csv") or "\x1b[?25h" in shown  # the cursor is given back
    code, _, err = process(*arguments, cwd=tmp_path)
    assert code == 0 and err == ("60000 predictions written to p.csv\n" if name == "predict" else "")


def test_missing_packages_are_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    assert cli.main(["--version"]) == 1
    assert "pip install 'olsen[cli" in one_line(capsys.readouterr().err)


def test_interruption_is_not_a_traceback(olsen, csv_file, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.commands, "_tuned", stop)
    code, _, err = olsen("fit", csv_file, "--target", "yield")
    assert code == 130 and "stopped" in one_line(err)


def test_a_large_file(olsen, tmp_path):
    """200 MB of text: 20 columns and as many rows as it takes."""
    import pyarrow.csv as pv

    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 20))
    y = X @ rng.standard_normal(20) + rng.standard_normal(len(X))
    columns = {f"x{j}": X[:, j] for j in range(20)} | {"y": y}
    path = tmp_path / "large.csv"
    pv.write_csv(pa.table(columns), path)
    block = path.read_bytes()
    rows = block[block.index(b"\n") + 1 :]
    with open(path, "ab") as file:
        while file.tell() < 200e6:
            file.write(rows)
    code, out, err = olsen("fit", path, "--target", "y", "--members", "10", "--json")
    assert code == 0, err
    assert json.loads(out)["data"]["rows"] >= 500_000
