"""What users say about their columns, through the command: a fit, its model file, and predictions from it."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from olsen import OLSEnsembleRegressorCV
from olsen.cli import main


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command in a folder: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = main(list(map(str, arguments)))
        found = capsys.readouterr()
        return code, found.out, found.err

    return call


def rows(seed=0, n=120):
    rng = np.random.default_rng(seed)
    size, day = rng.integers(0, 3, n), rng.integers(1, 29, n)
    a, b = rng.standard_normal(n), rng.standard_normal(n)
    y = a + 2 * size + 0.1 * day + 0.3 * rng.standard_normal(n)
    return [
        {"row": f"r{i:03d}", "a": a[i], "b": b[i], "size": "SML"[size[i]], "share": f"{100 * b[i]:.2f} %",
         "day": f"2024-03-{day[i]:02d}", "team": f"t{i % 8}", "w": i % 3, "y": y[i]}
        for i in range(n)
    ]  # fmt: skip


def write(path, table):
    with open(path, "w", newline="") as file:
        lines = csv.DictWriter(file, table[0])
        lines.writeheader()
        lines.writerows(table)


def real(*arguments, cwd):
    """The same as a process of its own."""
    command = [sys.executable, "-m", "olsen", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def as_parquet(path):
    """A table written as Parquet, beside it."""
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    pq.write_table(pv.read_csv(path), "t.parquet")
    return "t.parquet"


def predictions(text):
    return list(csv.DictReader(io.StringIO(text)))


OPTIONS = ["--target", "y", "--id", "row", "--dates", "day", "--ordinal", "size=S<M<L", "--drop", "team", "--drop", "w"]


def test_every_kind_of_column_survives_a_model_file(run, tmp_path):
    table = rows()
    write("t.csv", table)
    code, out, err = run("fit", "t.csv", *OPTIONS, "--members", 60, "--out", "m.skops", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["data"]["columns"] == 5  # a, b, size, share, day
    code, out, err = run("predict", "m.skops", "t.csv", "--id", "row")
    found = predictions(out)
    assert (code, err) == (0, "") and [r["row"] for r in found] == [r["row"] for r in table]
    error = np.mean([(float(f["y"]) - t["y"]) ** 2 for f, t in zip(found, table, strict=True)])
    assert error < 0.2  # the noise has variance 0.09
    assert run("show", "m.skops")[0] == 0


def test_days_and_orders_are_the_numbers_they_stand_for(run, tmp_path):
    table = rows()
    plain = [{**r, "day": int(r["day"][-2:]), "size": "SML".index(r["size"])} for r in table]
    write("t.csv", table)
    write("p.csv", plain)
    drop = ["--drop", "row", "--drop", "team", "--drop", "w", "--drop", "share", "--target", "y", "--members", 60]
    run("fit", "t.csv", *drop, "--dates", "day", "--ordinal", "size=S<M<L", "--out", "t.skops")
    run("fit", "p.csv", *drop, "--out", "p.skops")
    first, second = (predictions(run("predict", f"{name}.skops", f"{name}.csv")[1]) for name in "tp")
    np.testing.assert_allclose([float(r["y"]) for r in first], [float(r["y"]) for r in second], rtol=1e-6, atol=1e-8)


def test_gaps_are_refused_dropped_or_filled(run, tmp_path):
    table = rows()
    for i in (3, 50, 51):
        table[i]["a"] = ""
    write("t.csv", table)
    code, _, err = run("fit", "t.csv", *OPTIONS)
    assert code == 1 and "'a' (3)" in err and "row 4" in err and "--missing" in err
    code, out, _ = run("fit", "t.csv", *OPTIONS, "--missing", "drop", "--members", 50, "--json")
    assert code == 0 and json.loads(out)["data"]["rows"] == 117
    code, out, _ = run("fit", "t.csv", *OPTIONS, "--missing", "mean", "--members", 50, "--out", "m.skops", "--json")
    assert code == 0 and json.loads(out)["data"]["columns"] == 6
    code, out, err = run("predict", "m.skops", "t.csv")
    assert (code, err) == (0, "") and len(predictions(out)) == 120
    table[7]["b"] = ""  # no gap there when the model was fitted: its mean is known, too
    write("t.csv", table)
    assert run("predict", "m.skops", "t.csv")[0] == 0


def test_weights_and_groups_are_those_of_python(run, tmp_path):
    table = rows()
    write("t.csv", table)
    drop = [x for name in ("row", "size", "share", "day") for x in ("--drop", name)]
    code, out, _ = run("fit", "t.csv", "--target", "y", *drop, "--drop", "team", "--weight", "w", "--members", 50,
                       "--out", "w.skops", "--json")  # fmt: skip
    X, y = np.array([[r["a"], r["b"]] for r in table]), np.array([r["y"] for r in table])
    weight = np.array([r["w"] for r in table], dtype=float)
    model = OLSEnsembleRegressorCV(50, random_state=0).fit(X, y, sample_weight=weight)
    assert code == 0
    found = [float(r["y"]) for r in predictions(run("predict", "w.skops", "t.csv")[1])]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9)
    code, out, _ = run("fit", "t.csv", "--target", "y", *drop, "--drop", "w", "--groups", "team", "--json")
    assert code == 0 and json.loads(out)["model"]["criterion"] == "kfold"
    table[5]["w"] = -1
    write("t.csv", table)
    code, _, err = run("fit", "t.csv", "--target", "y", *drop, "--drop", "team", "--weight", "w")
    assert code == 1 and "negative in row 6" in err and err.count("\n") == 1


def test_unknown_categories_are_refused_or_none(run, tmp_path):
    table = rows()
    write("t.csv", table)
    drop = [x for name in ("row", "share", "day", "team", "w") for x in ("--drop", name)]
    run("fit", "t.csv", "--target", "y", *drop, "--members", 50, "--out", "m.skops")
    table[0]["size"] = "XXL"
    write("t.csv", table)
    code, _, err = run("predict", "m.skops", "t.csv")
    assert code == 1 and "XXL" in err
    assert "--unknown ignore" in err and err.count("\n") == 1
    table[7]["size"] = "XS"
    write("t.csv", table)
    for command in (["t.csv"], [as_parquet("t.csv"), "--out-of-core"]):
        code, out, err = real("predict", "m.skops", *command, "--unknown", "ignore", cwd=tmp_path)
        assert code == 0 and len(predictions(out)) == 120
        assert err == (
            "olsen: note: categories that the model has not seen, taken for none of those it knows: 2 cells, "
            "'size' (2).\n"
        )
    table[0]["size"] = table[7]["size"] = "S"
    write("t.csv", table)
    assert real("predict", "m.skops", "t.csv", "--unknown", "ignore", cwd=tmp_path)[2] == ""


def test_notes_about_a_table_to_predict_are_shown_once_and_apart_from_the_predictions(run, tmp_path):
    table = [{"länge": r["a"], "b": r["b"], "y": r["y"]} for r in rows()]
    write("t.csv", table)
    run("fit", "t.csv", "--target", "y", "--members", 20, "--out", "m.skops")
    text = (tmp_path / "t.csv").read_text(encoding="utf-8")
    (tmp_path / "old.csv").write_bytes(f"# of 1998\n{text}".encode("latin-1"))
    (tmp_path / "tabs.csv").write_text(text.replace(",", "\t"), encoding="utf-8")
    plain = real("predict", "m.skops", "t.csv", cwd=tmp_path)
    assert plain[0] == 0 and plain[2] == ""
    assert real("predict", "m.skops", "tabs.csv", cwd=tmp_path) == plain  # not worth a word: columns have names
    code, out, err = real("predict", "m.skops", "old.csv", cwd=tmp_path)
    assert (code, out) == plain[:2]
    assert err.splitlines() == [
        "olsen: note: line 1 above the header begins with #; left out.",
        "olsen: note: the file is not UTF-8; read as Windows-1252 (cp1252).",
    ]


def test_a_column_of_the_model_may_name_the_rows(run, tmp_path):
    write("t.csv", [{"a": r["a"], "b": r["b"], "y": r["y"]} for r in rows()])
    run("fit", "t.csv", "--target", "y", "--members", 20, "--out", "m.skops")
    code, out, err = real("predict", "m.skops", "t.csv", "--id", "a", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert [float(r["a"]) for r in predictions(out)] == [float(r["a"]) for r in rows()]
    assert [r["y"] for r in predictions(out)] == [r["y"] for r in predictions(run("predict", "m.skops", "t.csv")[1])]


@pytest.mark.parametrize("target", ["lower", "upper"])
def test_a_target_called_like_a_limit_keeps_its_predictions(run, tmp_path, target):
    write("t.csv", [{"a": r["a"], "b": r["b"], target: r["y"]} for r in rows()])
    run("fit", "t.csv", "--target", target, "--members", 20, "--out", "m.skops")
    code, out, err = real("predict", "m.skops", "t.csv", "--interval", "0.9", cwd=tmp_path)
    found = predictions(out)
    assert (code, err) == (0, "") and list(found[0]) == [target, "lower_limit", "upper_limit"]
    assert [r[target] for r in found] == [r[target] for r in predictions(run("predict", "m.skops", "t.csv")[1])]


@pytest.mark.parametrize(("arguments", "words"), [
    (["fit", "t.csv", "--target", "y", "--drop", "y"], "'y' is also left out"),
    (["fit", "t.csv", "--target", "y", "--weight", "nothing"], "no column 'nothing'"),
    (["fit", "t.csv", "--target", "y", "--groups", "nothing"], "no column 'nothing'"),
    (["fit", "t.csv", "--target", "y", "--dates", "nothing"], "no column 'nothing'"),
    (["fit", "t.csv", "--target", "y", "--missing", "guess"], "--missing"),
    (["predict", "m.skops", "t.csv", "--id", "nothing"], "no column 'nothing'"),
    (["predict", "m.skops", "t.csv", "--id", "y"], "the name that the predictions get"),
])  # fmt: skip
def test_names_that_are_not_there_are_bad_usage(run, arguments, words):
    write("t.csv", rows())
    run("fit", "t.csv", *OPTIONS, "--members", 20, "--out", "m.skops")
    code, out, err = run(*arguments)
    assert code == 2 and words in err and out == "" and err.count("\n") == 1


def test_a_hyphen_is_standard_input(tmp_path):
    write(tmp_path / "t.csv", rows())
    command = [sys.executable, "-m", "olsen.cli", "fit", "-", *OPTIONS, "--members", "20"]
    if subprocess.run([sys.executable, "-m", "olsen.cli", "--version"], capture_output=True).returncode:
        command[:3] = [sys.executable, "-c", "import sys; from olsen.cli import main; sys.exit(main())"]
    with open(tmp_path / "t.csv") as file:
        found = subprocess.run(command, stdin=file, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "120 rows, 5 columns" in found.stdout
