"""The command line as a new user meets it: real files with real faults, each with a clear outcome."""

import csv
import errno
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from unittest.mock import Mock

import numpy as np
import pytest

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    __version__,
    cli,
    load,
    theory,
)
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


def rows(n=120):
    """Every kind of column: names of rows, numbers, categories, thousands, days, groups, weights
    and the target.
    """
    rng = np.random.default_rng(0)
    size, day = rng.integers(0, 3, n), rng.integers(1, 29, n)
    a, b = rng.standard_normal(n), rng.standard_normal(n)
    y = a + 2 * size + 0.1 * day + 0.3 * rng.standard_normal(n)
    return [
        {
            "row": f"r{i:03d}",
            "a": a[i],
            "b": b[i],
            "size": "SML"[size[i]],
            "share": f"{1000 * b[i]:,.2f}",
            "day": f"2024-03-{day[i]:02d}",
            "team": f"t{i % 8}",
            "w": i % 3,
            "y": y[i],
        }
        for i in range(n)
    ]


def write(path, table, *names):
    with open(path, "w", newline="") as file:
        lines = csv.DictWriter(file, names or table[0], extrasaction="ignore")
        lines.writeheader()
        lines.writerows(table)


def predictions(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    """Numbers, a text column, and the target."""
    X, y = numbers()
    places = np.resize(["north", "south", "east"], len(y))
    lines = ["a,b,c,d,e,region,yield"]
    lines += [
        ",".join([*(f"{v:.6f}" for v in row), place, f"{t:.6f}"])
        for row, place, t in zip(X, places, y, strict=True)
    ]
    path = tmp_path_factory.mktemp("data") / "harvest.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def model_file(csv_file):
    path = csv_file.with_suffix(".skops")
    assert (
        cli.main(["fit", str(csv_file), "--target", "yield", "--members", "20", "--out", str(path)])
        == 0
    )
    return path


def process(*arguments, **settings):
    """Exit code, standard output and error stream of the real command."""
    command = [sys.executable, "-m", "olsen", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **settings)
    return done.returncode, done.stdout, done.stderr


# fit


def test_fit_prints_what_a_person_wants_to_know(olsen, csv_file):
    code, out, err = olsen("fit", csv_file, "--target", "yield", "--members", "20")
    assert (code, err) == (0, "")
    for words in (
        "60 rows",
        "8 columns",
        "ensemble, 20 members",
        "k-fold cross-validation",
        "drawn",
        "'region'",
    ):
        assert words in out
    assert "  region  " in out and "region_south" not in out, "a category as a whole"
    code, out, _ = olsen("fit", "--members", "10")
    assert code == 0 and "732 rows, 700 columns" in out, "the embedded example"


def test_fit_json_is_json_and_repeatable_from_csv_and_parquet(olsen, csv_file, tmp_path):
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    arguments = ("--target", "yield", "--members", "20", "--json", "--seed", "5")
    code, out, _ = olsen("fit", csv_file, *arguments)
    summary = json.loads(out)
    assert code == 0 and summary["data"]["rows"] == 60 and summary["model"]["seed"] == 5
    errors = {line["name"]: line["rmse"] for line in summary["errors"]}
    assert 0.3 < errors["ensemble, 20 members"] < 0.8 and list(errors) == ["ensemble, 20 members"]
    assert summary["choice"][-1]["scheme"] == "mixture" and summary["curve"] is None
    assert summary["choice"][-1]["rmse"] == errors["ensemble, 20 members"]
    assert json.loads(olsen("fit", csv_file, *arguments)[1]) == summary
    pq.write_table(pv.read_csv(csv_file), tmp_path / "harvest.parquet")
    again = json.loads(olsen("fit", tmp_path / "harvest.parquet", *arguments)[1])
    assert again["effects"] == summary["effects"]


def test_the_two_models_are_those_of_the_two_classes(olsen, csv_file):
    """The paper's ensemble has a curve over sizes, the adaptive one weights of schemes, by one name
    in Python.
    """
    fits = {
        "adaptive": AdaptiveOLSEnsembleRegressor(random_state=0),
        "ensemble": OLSEnsembleRegressorCV(random_state=0),
    }
    for kind, model in fits.items():
        code, out, err = olsen(
            "fit", csv_file, "--target", "yield", "--drop", "region", "--model", kind, "--json"
        )
        assert (code, err) == (0, "")
        found = json.loads(out)
        rows = np.genfromtxt(csv_file, delimiter=",", names=True)
        model.fit(np.column_stack([rows[name] for name in found["columns"]["name"]]), rows["yield"])
        np.testing.assert_allclose(found["columns"]["coefficient"], model.coef_, rtol=1e-9)
        assert found["model"]["kind"] == kind and found["model"]["criterion"] == model.criterion_
        if kind == "adaptive":
            assert found["curve"] is None and found["model"]["schemes"] == pytest.approx(
                model.scheme_weights_
            )
            assert found["model"]["selected"] == model.selected_.sum()
            results = model.cv_results_
            for column, values in (
                ("scheme", results["param_scheme"].tolist()),
                ("weight", results["weight"].tolist()),
            ):
                assert [line[column] for line in found["choice"]] == values
        else:
            assert (
                found["choice"] is found["model"]["schemes"] is found["model"]["selected"] is None
            )
            assert found["curve"]["size"] == model.cv_results_["param_max_features"].tolist()
            assert found["curve"]["chosen"] == model.max_features_
            np.testing.assert_allclose(
                np.square(found["curve"]["rmse"]), -model.cv_results_["mean_test_score"]
            )
    code, _, err = olsen("fit", csv_file, "--target", "yield", "--model", "ridge")
    assert code == 2 and "--model" in err


def test_wrong_arguments_are_bad_usage(olsen, csv_file, model_file, tmp_path):
    fit, predict = ("fit", csv_file, "--target", "yield"), ("predict", model_file, csv_file)
    for arguments, words in (
        (("fit", csv_file, "--target", "yeild"), "'yeild'"),
        (("fit", csv_file), "--target"),
        (("fit", csv_file, "--target", "yield", "--drop", "yield"), "'yield' is also left out"),
        *(((*fit, option, "z"), "'z'") for option in ("--drop", "--weight", "--groups", "--dates")),
        ((*fit, "--missing", "guess"), "--missing"),
        ((*fit, "--members", "one"), "members"),
        ((*fit, "--out", tmp_path), "directory"),
        ((*predict, "--id", "z"), "'z'"),
        ((*predict, "--id", "yield"), "yield"),
        ((*predict, "--interval", "90"), "90"),
        (("reproduce", "figure77", "--out", tmp_path), "figure77"),
        (("reproduce", "figure1", "--scale", "huge", "--out", tmp_path), "huge"),
        (("compare", csv_file, "--target", "yield", "--folds", "1"), "--folds"),
        (("compare", csv_file, "--target", "yield", "--repeats", "0"), "--repeats"),
        (("train",), "train"),
        (("fit", "--colour"), "colour"),
    ):
        code, out, err = olsen(*arguments)
        with case(arguments, err):
            assert (code, out) == (2, "") and words in one_line(err)


def test_outputs_that_cannot_be_written_fail_before_the_work(
    olsen, csv_file, tmp_path, monkeypatch
):
    """Permissions do not bind the superuser, so the system's answer is imitated where it would not
    come.
    """
    monkeypatch.setattr(
        "olsen.cli.table_models.fit", lambda *_, **__: pytest.fail("the fit ran first")
    )
    for target in ("/proc/model.skops", "/dev/null/model.skops"):
        code, _, err = olsen("fit", csv_file, "--target", "yield", "--out", target)
        assert code == 1 and one_line(err)
    assert olsen("reproduce", "figure1", "--out", "/proc/figures")[0] == 1
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    if os.geteuid() == 0:
        refusal = PermissionError(errno.EACCES, "Permission denied", str(folder))
        monkeypatch.setattr(files.tempfile, "TemporaryFile", Mock(side_effect=refusal))
    code, _, err = olsen("fit", csv_file, "--target", "yield", "--report", folder / "r.html")
    assert code == 1 and "permission denied" in one_line(err) and "r.html" in err


# options about columns: a fit, its model file, and predictions from it

OPTIONS = [
    "--target",
    "y",
    "--id",
    "row",
    "--dates",
    "day",
    "--ordinal",
    "size=S<M<L",
    "--drop",
    "team",
    "--drop",
    "w",
]


def test_every_kind_of_column_survives_a_model_file(olsen, here):
    table = rows()
    write("t.csv", table)
    code, out, err = olsen("fit", "t.csv", *OPTIONS, "--members", 60, "--out", "m.skops", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["data"]["columns"] == 5  # a, b, size, share, day
    code, out, err = olsen("predict", "m.skops", "t.csv", "--id", "row")
    found = predictions(out)
    assert (code, err) == (0, "") and [r["row"] for r in found] == [r["row"] for r in table]
    error = np.mean([(float(f["y"]) - t["y"]) ** 2 for f, t in zip(found, table, strict=True)])
    assert error < 0.2  # the noise has variance 0.09
    plain = [{**r, "day": int(r["day"][-2:]), "size": "SML".index(r["size"])} for r in table]
    write("p.csv", plain, "a", "b", "size", "day", "y")
    write("t.csv", table, "a", "b", "size", "day", "y")
    olsen("fit", "t.csv", "--target", "y", *OPTIONS[4:8], "--members", 60, "--out", "t.skops")
    olsen("fit", "p.csv", "--target", "y", "--members", 60, "--out", "p.skops")
    first, second = (
        predictions(olsen("predict", f"{name}.skops", f"{name}.csv")[1]) for name in "tp"
    )
    np.testing.assert_allclose(
        [float(r["y"]) for r in first], [float(r["y"]) for r in second], rtol=1e-6, atol=1e-8
    )


def test_gaps_are_dropped_or_filled_through_a_model_file(olsen, here):
    table = rows()
    for i in range(3, 15):
        table[i]["a"] = ""
    write("t.csv", table)
    fit = ("fit", "t.csv", *OPTIONS, "--members", 50, "--json")
    assert json.loads(olsen(*fit, "--drop", "a")[1])["data"]["rows"] == 120, (
        "a dropped column may have gaps"
    )
    assert json.loads(olsen(*fit, "--missing", "drop")[1])["data"]["rows"] == 108
    code, out, _ = olsen(*fit, "--missing", "mean", "--out", "m.skops")
    assert code == 0 and json.loads(out)["data"]["columns"] == 6
    table[7]["b"] = ""  # no gap there when the model was fitted: its mean is known, too
    write("t.csv", table)
    code, out, err = olsen("predict", "m.skops", "t.csv")
    assert (code, err) == (0, "") and len(predictions(out)) == 120


def test_weights_and_groups_are_those_of_python(olsen, here):
    table = rows()
    write("t.csv", table, "a", "b", "team", "w", "y")
    fit = ("fit", "t.csv", "--target", "y", "--members", 50, "--json")
    code, out, _ = olsen(*fit, "--drop", "team", "--weight", "w", "--out", "w.skops")
    X, y = np.array([[r["a"], r["b"]] for r in table]), np.array([r["y"] for r in table])
    weight = np.array([r["w"] for r in table], dtype=float)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=0).fit(
        X, y, sample_weight=weight
    )
    assert code == 0 and json.loads(out)["data"]["rows"] == 80 and "40 rows" in out, (
        "rows of weight zero are left out"
    )
    error = json.loads(out)["errors"][0]["rmse"]
    assert error**2 == pytest.approx(-model.best_score_, rel=1e-9)
    assert json.loads(out)["model"]["kind"] == "adaptive"
    assert json.loads(out)["model"]["schemes"] == pytest.approx(model.scheme_weights_, rel=1e-9)
    found = [float(r["y"]) for r in predictions(olsen("predict", "w.skops", "t.csv")[1])]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-9)
    code, out, _ = olsen(*fit, "--drop", "w", "--groups", "team")
    assert code == 0 and json.loads(out)["model"]["criterion"] == "kfold"
    assert olsen(*fit, "--weight", "w", "--groups", "team")[0] == 0
    table[5]["w"] = -1
    write("t.csv", table, "a", "b", "team", "w", "y")
    code, _, err = olsen(*fit, "--drop", "team", "--weight", "w")
    assert code == 1 and "row 6" in one_line(err)


def test_unknown_categories_are_refused_or_none(olsen, here):
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    table = rows()
    write("t.csv", table, "a", "b", "size", "y")
    olsen("fit", "t.csv", "--target", "y", "--members", 50, "--out", "m.skops")
    assert olsen("predict", "m.skops", "t.csv", "--unknown", "ignore")[2] == ""
    table[0]["size"], table[7]["size"] = "XXL", "XS"
    write("t.csv", table, "a", "b", "size", "y")
    code, _, err = olsen("predict", "m.skops", "t.csv")
    assert code == 1 and "XXL" in err and "--unknown ignore" in one_line(err)
    pq.write_table(pv.read_csv("t.csv"), "t.parquet")
    ensemble = load("m.skops")[-1]
    none = ensemble.intercept_ + ensemble.coef_[:2] @ [table[0]["a"], table[0]["b"]]
    for command in (["t.csv"], ["t.parquet", "--out-of-core"]):
        code, out, err = olsen("predict", "m.skops", *command, "--unknown", "ignore")
        assert code == 0 and "note: 2 cells" in err and "'size' (2)" in one_line(err)
        found = [float(row["y"]) for row in predictions(out)]
        assert len(found) == 120 and found[0] == pytest.approx(none, rel=1e-12), (
            "no category, not the first of them"
        )


def test_notes_about_a_table_to_predict_are_shown_once_and_apart_from_the_predictions(olsen, here):
    write("t.csv", [{"länge": r["a"], "b": r["b"], "y": r["y"]} for r in rows()])
    olsen("fit", "t.csv", "--target", "y", "--members", 20, "--out", "m.skops")
    text = (here / "t.csv").read_text(encoding="utf-8")
    (here / "old.csv").write_bytes(text.encode("latin-1"))
    (here / "tabs.csv").write_text(text.replace(",", "\t"), encoding="utf-8")
    plain = olsen("predict", "m.skops", "t.csv")
    assert plain[0] == 0 and plain[2] == ""
    assert olsen("predict", "m.skops", "tabs.csv") == plain  # not worth a word: columns have names
    code, out, err = olsen("predict", "m.skops", "old.csv")
    assert (code, out) == plain[:2] and "cp1252" in one_line(err)


# predict


def test_texts_that_spreadsheets_run_are_said_and_escaped_on_demand(olsen, here):
    """Files are data for programs first: texts come back as they were, unless a spreadsheet is to
    open them.
    """
    keys = [
        "=1+1",
        "+A1",
        "-2+cmd|' /C calc'!A0",
        "@SUM(A1)",
        "\t=1",
        "-1.5",
        "-",
        "-1,250.5",
        "a=b",
        "-3e-05",
        "",
    ]
    table = [{"=key": key, "a": i, "-y": i % 3 - 2.5 * i} for i, key in enumerate(keys, 1)]
    write("t.csv", table)
    assert (
        olsen("fit", "t.csv", "--target=-y", "--id==key", "--members", "3", "--out", "m.skops")[0]
        == 0
    )
    command = ("predict", "m.skops", "t.csv", "--id==key")
    code, plain, err = olsen(*command)
    assert code == 0 and [row["=key"] for row in predictions(plain)] == keys
    assert "may run 7 strings" in one_line(err) and "--escape-formulas" in err
    code, escaped, err = olsen(*command, "--escape-formulas")
    assert code == 0 and err == "", "nothing is left to say"
    assert [row["'=key"] for row in predictions(escaped)] == [
        *("'" + key for key in keys[:5]),
        *keys[5:],
    ]
    values = [
        [float(row[name]) for row in predictions(text)]
        for text, name in ((plain, "-y"), (escaped, "'-y"))
    ]
    assert values[0] == values[1] and max(values[0]) < 0, "numbers stay numbers"
    assert olsen(*command, "--escape-formulas", "--out", "p.tsv")[0] == 0
    with open("p.tsv", newline="") as file:
        assert file.readline() == "'=key\t'-y\n"
    for silent in (("--out", "p.parquet"), ("--json",)):  # in which texts are texts
        assert "note" not in olsen(*command, *silent)[2]


def test_predictions_are_the_models(olsen, csv_file, model_file, tmp_path):
    out = tmp_path / "predictions.csv"
    code, text, err = olsen("predict", model_file, csv_file, "--out", out, "--interval", "0.9")
    assert code == 0 and text == "" and "60 predictions" in err
    rows = np.genfromtxt(out, delimiter=",", names=True)
    assert rows.dtype.names == ("yield", "lower", "upper")
    observed = np.genfromtxt(csv_file, delimiter=",", names=True, dtype=None, encoding="utf-8")[
        "yield"
    ]
    assert np.corrcoef(rows["yield"], observed)[0, 1] > 0.95
    assert ((rows["lower"] <= observed) & (observed <= rows["upper"])).mean() >= 0.8
    code, text, _ = olsen("predict", model_file, csv_file, "--json", "--interval", "0.9")
    for name, values in json.loads(text).items():
        np.testing.assert_array_equal(values, rows[name])
    assert olsen("predict", model_file, csv_file, "--out", tmp_path / "p.parquet")[0] == 0
    shown = olsen("predict", model_file, csv_file)[1]
    assert shown.startswith("yield\n")
    cells = [line.split(",") for line in csv_file.read_text().splitlines()]
    (tmp_path / "new.csv").write_text("\n".join(",".join(row[5::-1]) for row in cells))
    assert olsen("predict", model_file, tmp_path / "new.csv")[1] == shown, (
        "neither target nor order are needed"
    )
    code, out, err = olsen("predict", model_file, csv_file, "--id", "a")
    assert (code, err) == (0, "") and [r["a"] for r in predictions(out)] == [
        row[0] for row in cells[1:]
    ]
    assert [r["yield"] for r in predictions(out)] == shown.split()[1:], (
        "a column of the model may name the rows"
    )


# risk and reproduce


def test_risk_is_the_theory(olsen):
    given = ("risk", "--gamma", "2", "--sigma", "1")
    code, out, _ = olsen(*given, "--json")
    found = json.loads(out)
    assert code == 0 and found["k"] == "Infinity"
    assert found["alpha"] == pytest.approx(float(theory.optimal_alpha(2.0, 1.0)))
    assert found["risk"] == pytest.approx(found["ridge_risk"])
    found = json.loads(olsen(*given, "--alpha", "0.2", "--k", "10", "--n", "100", "--json")[1])
    assert found["risk_at_n"] == pytest.approx(float(theory.expected_risk(100, 200, 40, 1.0, k=10)))
    assert found["p"] == 200 and isinstance(found["p"], int)
    assert "the best" in olsen(*given)[1]
    assert (
        json.loads(olsen(*given, "--alpha", "0.5", "--k", "10", "--json")[1])["risk"] == "Infinity"
    )
    for wrong, letter in (
        (("--alpha", "2"), "alpha"),
        (("--k", "0"), "k"),
        (("--eta", "2"), "eta"),
    ):
        code, _, err = olsen(*given, *wrong)
        assert code == 2 and letter in one_line(err), wrong
    code, _, err = olsen("risk", "--gamma", "-1", "--sigma", "1")
    assert code == 2 and "gamma" in one_line(err)


def test_reproduce_says_how_far_simulation_is_from_theory(olsen, tmp_path):
    code, out, _ = olsen("reproduce", "figure1", "figure5", "--scale", "quick", "--out", tmp_path)
    assert code == 0 and "SE from exact theory" in out and (tmp_path / "figure5.pdf").exists()
    code, out, _ = olsen(
        "reproduce", "figure1", "--scale", "quick", "--out", tmp_path / "again", "--json"
    )
    assert json.loads(out)[0]["name"] == "figure1" and (tmp_path / "again" / "figure1.csv").exists()


# the program itself


def test_help_explains_every_option_on_a_small_screen(olsen, monkeypatch):
    from olsen.cli import commands

    monkeypatch.setenv("COLUMNS", "80")
    for command in (
        "fit",
        "predict",
        "show",
        "compare",
        "risk",
        "explore",
        "reproduce",
        "--install-completion",
    ):
        code, out, err = olsen(command, "--help")
        function = getattr(commands, command, None)
        names = [*signature(function).parameters] if function else ["shell"]
        if "table" in names:
            names += [field.name for field in fields(commands.TableOptions)]
            names.remove("table")
        with case(command, out):
            assert (
                (code, err) == (0, "") and "``" not in out and max(map(len, out.splitlines())) <= 80
            )
            assert out.partition("Examples:")[2].count(f"olsen {command}") >= 2
            for name in names:
                shown = (
                    name.upper() if f" {name.upper()}  " in out else f"--{name}".replace("_", "-")
                )
                assert re.search(rf"{shown}(?: [A-Z.|]+)? {{2,}}\S", out), name
    out = re.sub(r"[│\s]+", " ", olsen("fit", "--help")[1])  # a default may go on in the next line
    assert all(
        f"[default: {default}]" in out for default in ("error", "all", "adaptive", "0", "-1")
    )
    assert "default: False" not in out and "default: None" not in out and "default: ]" not in out
    out = olsen("--help")[1]
    assert all(
        words in out
        for words in ("Exit codes:", "130 ", "--install-completion", "olsen fit wine.csv")
    )
    assert olsen("--version") == (0, f"{__version__}\n", "")


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
    options = subprocess.run(
        [*ask, "fit", "--mi", "2"], capture_output=True, text=True
    ).stdout.split()
    assert options == ["--missing"]


def test_what_is_not_installed_is_said_before_anything_is_read(olsen, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    code, out, err = olsen("fit", "nothing.csv", "--target", "y", "--out", "m.skops")
    assert (code, out) == (1, "") and "skops" in one_line(err) and "pip install" in err
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    code, out, err = olsen("--version")
    assert code == 1 and "pip install 'olsen[cli" in one_line(err)


def test_long_names_and_single_columns(olsen, here):
    """A name of 500 characters is shortened, and no advice is given that could not be typed."""
    name, X = "n" * 500, np.random.default_rng(0).standard_normal((30, 2))
    (here / "t.csv").write_text(f"{name},y\n" + "".join(f"{a},{b}\n" for a, b in X))
    code, out, err = olsen("fit", "t.csv", "--target", "y", "--members", "5")
    assert (code, err) == (0, "") and "30 rows, 1 column," in out and "1 columns" not in out
    assert max(map(len, out.splitlines())) < 120
    code, out, err = olsen("fit", "t.csv", "--target", name[1:])
    assert (code, out) == (2, "") and "'nnn" in one_line(err) and len(err) < 400
    (here / "t.csv").write_text(
        f"{name},y\n" + "".join(f"2024-01-{i:02d},{i}\n" for i in range(1, 29))
    )
    code, _, err = olsen("fit", "t.csv", "--target", "y")
    assert code == 1 and "--drop" in one_line(err) and "--drop 'n" not in err and len(err) < 400


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="pipes with names")
def test_pipes_of_the_shell(olsen, csv_file, model_file, pipe_in):
    """What a process substitution, which is a name in /dev/fd, and a lone hyphen hold is the table."""
    expected = olsen("predict", model_file, csv_file)
    for name in ("/dev/fd/0", "-"):
        pipe_in(csv_file.read_bytes())
        assert olsen("predict", model_file, name) == expected, name


class Screen(io.StringIO):
    """An error stream that says it is a terminal."""

    def isatty(self):
        return True


def test_terminals_see_progress_and_pipes_do_not(olsen, here, monkeypatch):
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    X, y = numbers(60_000, 8)
    table = pa.table({f"x{j}": X[:, j] for j in range(8)} | {"y": y})
    pv.write_csv(table, "t.csv")
    pv.write_csv(table.slice(0, 60), "s.csv")
    pq.write_table(table.append_column("k", pa.array(["u", "v"] * 30_000)), "t.parquet")
    time = r"\d:\d\d:\d\d|-:--:--"
    for arguments, words in (
        (
            ("fit", "s.csv", "--target", "y", "--out", "m.skops"),
            ["fitting 60 rows, 8 columns", time],
        ),
        (
            ("predict", "m.skops", "t.csv", "--out", "p.csv"),
            ["reading t.csv", "predicting", "60,000 rows"],
        ),
        (
            ("fit", "t.parquet", "--target", "y", "--out-of-core"),
            ["finding categories", "reading", "of 60,000 rows"],
        ),
        (
            ("compare", "s.csv", "--target", "y", "--folds", "2"),
            ["comparing", r"of \d models", time],
        ),
        (
            ("reproduce", "figure4", "--scale", "quick", "--out", "f"),
            ["figure4", r"\d+ of \d+ trials", time],
        ),
    ):
        code, _, err = olsen(*arguments)
        force = ["--force"] if "--out" in arguments else []
        assert code == 0 and err == (
            "60000 predictions written to p.csv\n" if "p.csv" in arguments else ""
        )
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", "100")
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stderr", screen := Screen())
            assert cli.main([*arguments, *force]) == 0
        shown = screen.getvalue()
        with case(arguments, shown[-500:]):
            assert (
                all(re.search(word, shown) for word in words) and "\x1b[?25h" in shown
            )  # the cursor is given back


def test_interruption_is_not_a_traceback(olsen, csv_file, monkeypatch):
    monkeypatch.setattr("olsen.cli.table_models.fit", Mock(side_effect=KeyboardInterrupt))
    code, _, err = olsen("fit", csv_file, "--target", "yield")
    assert code == 130 and "stopped" in one_line(err)


def test_a_large_file(olsen, tmp_path):
    """40 MB of text in several blocks of the reader."""
    import pyarrow.csv as pv

    X, y = numbers(100_000, 20)
    pv.write_csv(pa.table({f"x{j}": X[:, j] for j in range(20)} | {"y": y}), tmp_path / "large.csv")
    code, out, err = olsen(
        "fit", tmp_path / "large.csv", "--target", "y", "--members", "10", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["data"]["rows"] == 100_000


def test_what_a_stranger_should_be_told(olsen, here):
    """The nearest name, the list of columns, identifiers, few rows, and options where Python has
    parameters.
    """
    X, y = numbers(40, 3)
    table = [
        {"id": 41 - i, "a": r[0], "b": r[1], "price": t}
        for i, (r, t) in enumerate(zip(X, y, strict=True))
    ]
    write("t.csv", table)
    write("few.csv", table[:12])
    write("twice.csv", table * 2, "a", "b", "price")
    (here / "gap.csv").write_text((here / "t.csv").read_text().replace("\n40,", "\n,", 1))
    for command in ("fit", "compare"):
        for given, words in (
            (("--target", "prize"), "did you mean 'price'?"),
            ((), "'id', 'a', 'b', 'price'"),
        ):
            code, _, err = olsen(command, "t.csv", *given)
            assert code == 2 and words in one_line(err)
        code, _, err = olsen(command, "gap.csv", "--target", "price")
        assert code == 1 and "--missing mean" in one_line(err)
        code, out, _ = olsen(command, "gap.csv", "--target", "price", "--missing", "mean")
        assert code == 0, "what is advised can be typed"
        for file, words in (
            ("t.csv", "'id' holds the whole numbers from 2 to 41"),
            ("few.csv", "12 rows are few"),
        ):
            assert words in olsen(command, file, "--target", "price")[1]
    out = olsen("fit", "twice.csv", "--target", "price")[1]
    assert "40 of 80 rows repeat" in out and "--groups" in out and "cv=" not in out
    with pytest.warns(UserWarning, match=r"cv=GroupKFold"):
        AdaptiveOLSEnsembleRegressor().fit(np.vstack([X, X]), np.append(y, y))
