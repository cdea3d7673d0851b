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
from numpy.testing import assert_allclose, assert_array_equal

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
pv = pytest.importorskip("pyarrow.csv")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")


def numbers(n=60, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X @ np.arange(1.0, p + 1) + 0.5 * rng.standard_normal(n) + 3


def records(n=120):
    """Rows with every kind of column: identifiers, numbers, categories, thousands, days, groups,
    weights and the target.
    """
    rng = np.random.default_rng(0)
    size = rng.integers(0, 3, n)
    day = rng.integers(1, 29, n)
    a = rng.standard_normal(n)
    b = rng.standard_normal(n)
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


def write(path, rows, columns=None):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns or rows[0], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def read_numbers(text, column="predicted_y"):
    return [float(row[column]) for row in read(text)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    """Numbers, a text column, and the target."""
    X, y = numbers()
    names = [*"abcde", "region", "yield"]
    regions = np.resize(["north", "south", "east"], len(y))
    rows = [
        dict(zip(names, [*x.round(6), region, target.round(6)], strict=True))
        for x, region, target in zip(X, regions, y, strict=True)
    ]
    path = tmp_path_factory.mktemp("data") / "harvest.csv"
    write(path, rows)
    return path


@pytest.fixture(scope="module")
def model_file(csv_file):
    path = csv_file.with_suffix(".skops")
    options = ["--target", "yield", "--members", "20", "--out", str(path)]
    assert cli.main(["fit", str(csv_file), *options]) == 0
    return path


def process(*arguments, **settings):
    """Exit code, standard output and error stream of the real command."""
    command = [sys.executable, "-m", "olsen", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **settings)
    return done.returncode, done.stdout, done.stderr


# fit


def test_fit_prints_what_a_person_wants_to_know(olsen, csv_file):
    code, out, err = olsen("fit", csv_file, target="yield", members=20)
    assert (code, err) == (0, "")
    for words in (
        "60 rows",
        "6 columns (8 encoded)",
        "adaptive model, 20 members",
        "k-fold cross-validation",
        "drawn",
        "'region'",
    ):
        assert words in out
    assert "  region: " in out and "region_south" not in out, "a category as a whole"
    code, out, _ = olsen("fit", members=10)
    assert code == 0 and "732 rows, 700 columns" in out, "the embedded example"


def test_fit_json_is_repeatable_from_csv_and_parquet(olsen_json, csv_file, tmp_path):
    options = {"target": "yield", "members": 20, "seed": 5}
    summary = olsen_json("fit", csv_file, **options)
    assert summary["data"]["rows"] == 60 and summary["model"]["seed"] == 5
    (error,) = summary["errors"]
    assert error["name"] == "adaptive model, 20 members" and 0.3 < error["rmse"] < 0.8
    assert summary["choice"][-1]["scheme"] == "mixture" and summary["curve"] is None
    assert summary["choice"][-1]["rmse"] == error["rmse"]
    assert olsen_json("fit", csv_file, **options) == summary
    pq.write_table(pv.read_csv(csv_file), tmp_path / "harvest.parquet")
    from_parquet = olsen_json("fit", tmp_path / "harvest.parquet", **options)
    assert from_parquet["effects"] == summary["effects"]


@pytest.mark.parametrize(
    ("kind", "cls"),
    [("adaptive", AdaptiveOLSEnsembleRegressor), ("ensemble", OLSEnsembleRegressorCV)],
)
def test_both_models_are_those_of_python(olsen_json, csv_file, kind, cls):
    """The paper's ensemble has a curve over sizes, the adaptive one has weights of schemes."""
    summary = olsen_json("fit", csv_file, target="yield", drop="region", model=kind)
    table = np.genfromtxt(csv_file, delimiter=",", names=True)
    X = np.column_stack([table[name] for name in summary["columns"]["name"]])
    model = cls(random_state=0).fit(X, table["yield"])
    assert_allclose(summary["columns"]["coefficient"], model.coef_, rtol=1e-9)
    facts = summary["model"]
    results = model.cv_results_
    assert facts["kind"] == kind and facts["criterion"] == model.criterion_
    if kind == "adaptive":
        assert summary["curve"] is None
        assert facts["schemes"] == pytest.approx(model.scheme_weights_)
        assert facts["selected"] == model.selected_.sum()
        choice = [(line["scheme"], line["weight"]) for line in summary["choice"]]
        assert choice == list(zip(results["param_scheme"], results["weight"], strict=True))
    else:
        assert summary["choice"] is facts["schemes"] is facts["selected"] is None
        curve = summary["curve"]
        assert curve["size"] == results["param_max_features"].tolist()
        assert curve["chosen"] == model.max_features_
        assert_allclose(np.square(curve["rmse"]), -results["mean_test_score"])


def test_wrong_arguments_are_bad_usage(olsen_refuses, csv_file, model_file, tmp_path):
    fit = ("fit", csv_file, "--target", "yield")
    predict = ("predict", model_file, csv_file)
    for arguments, words in (
        (("fit", csv_file, "--target", "yeild"), "'yeild'"),
        (("fit", csv_file), "--target"),
        ((*fit, "--drop", "yield"), "'yield' is also left out"),
        *(((*fit, option, "z"), "'z'") for option in ("--drop", "--weight", "--groups", "--dates")),
        ((*fit, "--missing", "guess"), "--missing"),
        ((*fit, "--members", "one"), "members"),
        ((*fit, "--model", "ridge"), "--model"),
        ((*fit, "--out", tmp_path), "directory"),
        ((*predict, "--id", "z"), "'z'"),
        ((*predict, "--interval", "90"), "90"),
        (("reproduce", "figure77", "--out", tmp_path), "figure77"),
        (("reproduce", "figure1", "--scale", "huge"), "huge"),
        (("compare", csv_file, "--target", "yield", "--folds", "1"), "--folds"),
        (("compare", csv_file, "--target", "yield", "--repeats", "0"), "--repeats"),
        (("train",), "train"),
        (("fit", "--colour"), "colour"),
    ):
        olsen_refuses(*arguments, words=words, code=2)


def test_outputs_that_cannot_be_written_fail_before_the_work(
    olsen, olsen_refuses, csv_file, tmp_path, monkeypatch
):
    """Permissions do not bind the superuser, so the system's answer is imitated where it would not
    come.
    """
    monkeypatch.setattr(
        "olsen.cli.table_models.fit", lambda *_, **__: pytest.fail("the fit ran first")
    )
    for path in ("/proc/model.skops", "/dev/null/model.skops"):
        olsen_refuses("fit", csv_file, target="yield", out=path, words="model.skops")
    assert olsen("reproduce", "figure1", out="/proc/figures")[0] == 1
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.geteuid() == 0:
        refusal = PermissionError(errno.EACCES, "Permission denied", str(locked))
        monkeypatch.setattr(files.tempfile, "TemporaryFile", Mock(side_effect=refusal))
    words = ["permission denied", "r.html"]
    olsen_refuses("fit", csv_file, target="yield", report=locked / "r.html", words=words)


# options about columns: a fit, its model file, and predictions from it

COLUMN_OPTIONS = ["--dates", "day", "--ordinal", "size=S<M<L"]
OPTIONS = ["--target", "y", "--id", "row", *COLUMN_OPTIONS, "--drop", "team", "--drop", "w"]


def test_every_kind_of_column_survives_a_model_file(olsen, olsen_json, folder):
    table = records()
    write("t.csv", table)
    summary = olsen_json("fit", "t.csv", *OPTIONS, members=60, out="m.skops")
    assert summary["data"]["columns"] == 5  # a, b, size, share, day
    code, out, err = olsen("predict", "m.skops", "t.csv", id="row")
    assert (code, err) == (0, "")
    assert [row["row"] for row in read(out)] == [row["row"] for row in table]
    errors = np.subtract(read_numbers(out), [row["y"] for row in table])
    assert np.mean(errors**2) < 0.2  # the noise has variance 0.09


def test_dates_and_orders_are_the_numbers_that_they_stand_for(olsen, folder):
    table = records()
    columns = ["a", "b", "size", "day", "y"]
    as_numbers = [
        {**row, "day": int(row["day"][-2:]), "size": "SML".index(row["size"])} for row in table
    ]
    write("strings.csv", table, columns)
    write("numbers.csv", as_numbers, columns)
    predictions = []
    for name, options in (("strings", COLUMN_OPTIONS), ("numbers", [])):
        olsen("fit", f"{name}.csv", *options, target="y", members=60, out=f"{name}.skops")
        predictions.append(read_numbers(olsen("predict", f"{name}.skops", f"{name}.csv")[1]))
    assert_allclose(*predictions, atol=1e-3)  # digits of the error are written


def test_missing_values_are_dropped_or_filled_through_a_model_file(olsen, olsen_json, folder):
    table = records()
    for row in table[3:15]:
        row["a"] = ""
    write("t.csv", table)
    fit = ("fit", "t.csv", *OPTIONS, "--members", 50)
    n_rows = olsen_json(*fit, drop="a")["data"]["rows"]
    assert n_rows == 120, "a dropped column may have missing values"
    assert olsen_json(*fit, missing="drop")["data"]["rows"] == 108
    assert olsen_json(*fit, missing="mean", out="m.skops")["data"]["columns"] == 6
    table[7]["b"] = ""  # not missing when the model was fitted: its mean is known, too
    write("t.csv", table)
    code, out, err = olsen("predict", "m.skops", "t.csv")
    assert code == 0 and len(read(out)) == 120
    assert err.count("\n") == 1 and "13 missing cells filled" in err and "'b' (1)" in err


def test_weights_and_groups_are_those_of_python(olsen, olsen_json, olsen_refuses, folder):
    table = records()
    columns = ["a", "b", "team", "w", "y"]
    write("t.csv", table, columns)
    fit = ("fit", "t.csv", "--target", "y", "--members", 50)
    summary = olsen_json(*fit, drop="team", weight="w", out="w.skops")
    X = np.array([[row["a"], row["b"]] for row in table])
    weights = np.array([row["w"] for row in table], dtype=float)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=0)
    model.fit(X, [row["y"] for row in table], sample_weight=weights)
    assert summary["data"]["rows"] == 80 and "40 rows" in str(summary), (
        "rows of weight zero are left out"
    )
    assert summary["errors"][0]["rmse"] ** 2 == pytest.approx(-model.best_score_, rel=1e-9)
    assert summary["model"]["kind"] == "adaptive"
    assert summary["model"]["schemes"] == pytest.approx(model.scheme_weights_, rel=1e-9)
    predictions = read_numbers(olsen("predict", "w.skops", "t.csv")[1])
    error = np.sqrt(-model.best_score_)
    assert_allclose(predictions, model.predict(X), rtol=0, atol=1e-3 * error)
    exact = olsen_json("predict", "w.skops", "t.csv")["predicted_y"]
    assert_allclose(exact, model.predict(X), rtol=1e-9)
    assert olsen_json(*fit, drop="w", groups="team")["model"]["criterion"] == "kfold"
    assert olsen(*fit, weight="w", groups="team")[0] == 0
    table[5]["w"] = -1
    write("t.csv", table, columns)
    olsen_refuses(*fit, drop="team", weight="w", words="row 6")


def test_unknown_categories_are_refused_or_no_category(olsen, olsen_refuses, folder):
    table = records()
    columns = ["a", "b", "size", "y"]
    write("t.csv", table, columns)
    olsen("fit", "t.csv", target="y", members=50, out="m.skops")
    assert olsen("predict", "m.skops", "t.csv", unknown="ignore")[2] == ""
    table[0]["size"] = "XXL"
    table[7]["size"] = "XS"
    write("t.csv", table, columns)
    olsen_refuses("predict", "m.skops", "t.csv", words=["XXL", "--unknown ignore"])
    pq.write_table(pv.read_csv("t.csv"), "t.parquet")
    model = load("m.skops")[-1]
    expected = model.intercept_ + model.coef_[:2] @ [table[0]["a"], table[0]["b"]]
    for command in (["t.csv"], ["t.parquet", "--out-of-core"]):
        code, out, err = olsen("predict", "m.skops", *command, unknown="ignore")
        assert code == 0 and "note: 2 cells" in err and "'size' (2)" in err
        predictions = read_numbers(out)
        assert len(predictions) == 120
        assert predictions[0] == pytest.approx(expected, abs=1e-3), "not the first category"


def test_notes_about_a_table_to_predict_are_apart_from_the_predictions(olsen, folder):
    write("t.csv", [{"länge": row["a"], "b": row["b"], "y": row["y"]} for row in records()])
    olsen("fit", "t.csv", target="y", members=20, out="m.skops")
    text = (folder / "t.csv").read_text(encoding="utf-8")
    (folder / "old.csv").write_bytes(text.encode("latin-1"))
    (folder / "tabs.csv").write_text(text.replace(",", "\t"), encoding="utf-8")
    expected = olsen("predict", "m.skops", "t.csv")
    assert expected[0] == 0 and expected[2] == ""
    assert olsen("predict", "m.skops", "tabs.csv") == expected  # no note: columns have names
    code, out, err = olsen("predict", "m.skops", "old.csv")
    assert (code, out) == expected[:2] and err.count("\n") == 1 and "cp1252" in err


# predict


def test_formulas_for_spreadsheets_are_named_and_escaped_on_demand(olsen, folder):
    """Files are data for programs first: strings come back unchanged, unless a spreadsheet is to
    open them.
    """
    formulas = ["=1+1", "+A1", "-2+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1"]
    keys = [*formulas, "-1.5", "-", "-1,250.5", "a=b", "-3e-05", ""]
    write("t.csv", [{"=key": key, "a": i, "-y": i % 3 - 2.5 * i} for i, key in enumerate(keys, 1)])
    fit = ("fit", "t.csv", "--target=-y", "--id==key")
    assert olsen(*fit, members=3, out="m.skops")[0] == 0
    predict = ("predict", "m.skops", "t.csv", "--id==key")
    code, plain, err = olsen(*predict)
    assert code == 0 and [row["=key"] for row in read(plain)] == keys
    assert "may run 6 strings" in err and "--escape-formulas" in err and err.count("\n") == 1
    code, escaped, err = olsen(*predict, escape_formulas=True)
    assert code == 0 and err == "", "nothing is left to say"
    escaped_keys = [row["'=key"] for row in read(escaped)]
    assert escaped_keys == [*("'" + key for key in formulas), *keys[5:]]
    predictions = read_numbers(plain, "predicted_-y")
    assert read_numbers(escaped, "predicted_-y") == predictions and max(predictions) < 0
    assert olsen(*predict, escape_formulas=True, out="p.tsv")[0] == 0
    with open("p.tsv", newline="") as file:
        assert file.readline() == "'=key\tpredicted_-y\tfar_row\n"
    for silent in ({"out": "p.parquet"}, {"json": True}):  # formats in which strings are strings
        assert "note" not in olsen(*predict, **silent)[2]


def test_predictions_are_those_of_the_model(olsen, olsen_json, csv_file, model_file, tmp_path):
    path = tmp_path / "predictions.csv"
    predict = ("predict", model_file, csv_file)
    code, text, err = olsen(*predict, out=path, interval=0.9)
    assert code == 0 and text == "" and "60 predictions" in err
    predictions = np.genfromtxt(path, delimiter=",", names=True)
    assert predictions.dtype.names == ("predicted_yield", "lower", "upper", "far_row")
    with csv_file.open() as file:
        table = list(csv.DictReader(file))
    observed = np.array([float(row["yield"]) for row in table])
    assert np.corrcoef(predictions["predicted_yield"], observed)[0, 1] > 0.95
    covered = (predictions["lower"] <= observed) & (observed <= predictions["upper"])
    assert covered.mean() >= 0.8
    error = np.sqrt(np.mean((predictions["predicted_yield"] - observed) ** 2))
    exact = olsen_json(*predict, interval=0.9)
    assert exact.pop("far_row") == [False] * 60
    for name, values in exact.items():
        rounding = np.abs(np.subtract(values, predictions[name])).max()
        assert 0 < rounding < 1e-3 * error, "digits that say nothing are not written"
    code, joined, _ = olsen(*predict, id="yield")
    assert code == 0 and joined.startswith("yield,predicted_yield,far_row\n")
    assert olsen(*predict, out=tmp_path / "p.parquet")[0] == 0
    code, out, err = olsen(*predict, id="a")
    assert (code, err) == (0, ""), "a column of the model may name the rows"
    assert [row["a"] for row in read(out)] == [row["a"] for row in table]
    assert_array_equal(read_numbers(out, "predicted_yield"), predictions["predicted_yield"])
    write(tmp_path / "new.csv", table, ["region", *"edcba"])
    _, out, _ = olsen("predict", model_file, tmp_path / "new.csv")
    assert_array_equal(read_numbers(out, "predicted_yield"), predictions["predicted_yield"])


@pytest.mark.parametrize("target", ["y", "far_row"])
def test_far_rows_are_marked_and_counted(olsen, olsen_json, folder, target):
    """Rows beyond twice the largest leverage of the training rows; models without rows mark none."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 3))
    names = ["a", "b", "c", target]
    table = [dict(zip(names, [*row, row.sum()], strict=True)) for row in X]
    write("t.csv", table)
    write(
        "new.csv", [row | {"a": 1000.0} if i in (1, 3) else row for i, row in enumerate(table[:4])]
    )
    assert olsen("fit", "t.csv", target=target, out="m.skops")[0] == 0
    mark = "is_far_row" if target == "far_row" else "far_row"
    code, out, err = olsen("predict", "m.skops", "new.csv", "--escape-formulas")
    assert code == 0 and "note: 2 of 4 rows" in err and mark in err
    assert [row[mark] for row in read(out)] == ["False", "True", "False", "True"]
    assert json.loads(olsen("predict", "m.skops", "new.csv", "--json")[1])[mark] == [
        False,
        True,
        False,
        True,
    ]
    assert olsen("predict", "m.skops", "t.csv")[2] == ""
    assert olsen("fit", "t.csv", target=target, out="s.skops", no_intervals=True)[0] == 0
    assert list(olsen_json("predict", "s.skops", "new.csv")) == [f"predicted_{target}"]


# risk and reproduce


def test_risk_is_the_theory(olsen, olsen_json, olsen_refuses):
    risk = ("risk", "--gamma", "2", "--sigma", "1")
    answer = olsen_json(*risk)
    assert answer["k"] == "Infinity"
    assert answer["alpha"] == pytest.approx(float(theory.optimal_alpha(2.0, 1.0)))
    assert answer["risk"] == pytest.approx(answer["ridge_risk"])
    assert "the best" in olsen(*risk)[1]
    answer = olsen_json(*risk, alpha=0.2, k=10, n=100)
    expected = float(theory.expected_risk(100, 200, 40, 1.0, k=10))
    assert answer["risk_at_n"] == pytest.approx(expected)
    assert answer["p"] == 200 and isinstance(answer["p"], int)
    assert olsen_json(*risk, alpha=0.5, k=10)["risk"] == "Infinity"
    assert olsen_json("risk", n=100, p=200, sigma=1, alpha=0.2, k=10) == answer
    olsen_refuses("risk", sigma=1, n=100, words=["--gamma", "--p"], code=2)
    olsen_refuses(*risk, n=100, p=200, words="instead of --gamma", code=2)
    for name, value in (("alpha", 2), ("k", 0), ("eta", 2)):
        olsen_refuses(*risk, **{name: value}, words=name, code=2)
    olsen_refuses("risk", gamma=-1, sigma=1, words="gamma", code=2)


def test_reproduce_says_how_far_simulation_is_from_theory(olsen, olsen_json, tmp_path):
    code, out, _ = olsen("reproduce", "figure1", "figure5", scale="quick", out=tmp_path)
    assert code == 0 and "SE from exact theory" in out and (tmp_path / "figure5.pdf").exists()
    (summary,) = olsen_json("reproduce", "figure1", scale="quick", out=tmp_path / "json")
    assert summary["name"] == "figure1" and (tmp_path / "json" / "figure1.csv").exists()


# the program itself


COMMANDS = ("fit", "predict", "show", "compare", "risk", "explore", "reproduce")


@pytest.mark.parametrize("command", [*COMMANDS, "--install-completion"])
def test_help_explains_every_option_on_a_small_screen(olsen, command, monkeypatch):
    from olsen.cli import commands

    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = olsen(command, "--help")
    assert (code, err) == (0, "") and "``" not in out and max(map(len, out.splitlines())) <= 80
    assert out.partition("Examples:")[2].count(f"olsen {command}") >= 2
    function = getattr(commands, command, None)
    names = [*signature(function).parameters] if function else ["shell"]
    if "table" in names:
        names += [field.name for field in fields(commands.TableOptions)]
        names.remove("table")
    for name in names:
        positional = f" {name.upper()}  " in out
        label = name.upper() if positional else "--" + name.replace("_", "-")
        assert re.search(rf"{label}(?: [A-Z.|]+)? {{2,}}\S", out), name


def test_help_says_defaults_and_exit_codes(olsen):
    out = re.sub(r"[│\s]+", " ", olsen("fit", "--help")[1])  # a default may go on in the next line
    defaults = ("error", "all", "adaptive", "0", "-1")
    assert all(f"[default: {default}]" in out for default in defaults)
    assert "default: False" not in out and "default: None" not in out and "default: ]" not in out
    out = olsen("--help")[1]
    for words in ("Exit codes:", "130 ", "--install-completion", "olsen fit wine.csv"):
        assert words in out
    assert olsen("--version") == (0, f"{__version__}\n", "")


def test_completion_is_installed_once_and_keeps_the_old_configuration(tmp_path):
    """Completion in bash, asked as the tab key would ask."""
    configuration = b"alias ll='ls -l'\n# no end of line"
    (tmp_path / ".bashrc").write_bytes(configuration)
    home = os.environ | {"HOME": str(tmp_path)}
    for _ in range(2):
        code, _, err = process("--install-completion", "--shell", "bash", env=home)
        assert (code, err) == (0, "")
    new_configuration = (tmp_path / ".bashrc").read_bytes()
    assert new_configuration.startswith(configuration)
    assert new_configuration.count(b'completions/olsen" ]') == 1
    script = tmp_path / ".local/share/bash-completion/completions/olsen"
    press_tab = (
        '. "$1"; COMP_WORDS=(olsen "$2" "$3"); COMP_CWORD=$4; _olsen; echo "${COMPREPLY[@]}"'
    )

    def completions(*words):
        command = ["bash", "-c", press_tab, "bash", script, *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.split()

    assert {*COMMANDS} - {"explore"} <= set(completions("", "", "1"))
    assert completions("fit", "--mi", "2") == ["--missing"]


def test_missing_libraries_are_named_before_anything_is_read(olsen_refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    words = ["skops", "pip install"]
    olsen_refuses("fit", "missing.csv", target="y", out="m.skops", words=words)
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    olsen_refuses("--version", words="pip install 'olsen[cli")


def test_long_names_are_shortened(olsen, olsen_refuses, folder):
    """No advice is given that could not be typed; one column is not "1 columns"."""
    name = "n" * 500
    X = np.random.default_rng(0).standard_normal((30, 2))
    write("t.csv", [{name: a, "y": b} for a, b in X])
    code, out, err = olsen("fit", "t.csv", target="y", members=5)
    assert (code, err) == (0, "") and "30 rows, 1 column," in out
    assert max(map(len, out.splitlines())) < 120
    assert len(olsen_refuses("fit", "t.csv", target=name[1:], words="'nnn", code=2)) < 400
    write("t.csv", [{name: f"plot {i}", "y": i} for i in range(1, 29)])
    err = olsen_refuses("fit", "t.csv", target="y", words="--id")
    assert "--drop 'n" not in err and len(err) < 400


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="pipes with names")
def test_pipes_of_the_shell_are_tables(olsen, csv_file, model_file, pipe_in):
    """A process substitution is a name in /dev/fd; a lone hyphen is standard input."""
    expected = olsen("predict", model_file, csv_file)
    for name in ("/dev/fd/0", "-"):
        pipe_in(csv_file.read_bytes())
        assert olsen("predict", model_file, name) == expected, name


class Screen(io.StringIO):
    """An error stream that says it is a terminal."""

    def isatty(self):
        return True


def test_terminals_see_progress_and_pipes_do_not(olsen, folder, monkeypatch):
    X, y = numbers(60_000, 8)
    table = pa.table({f"x{j}": X[:, j] for j in range(8)} | {"y": y})
    pv.write_csv(table, "t.csv")
    pv.write_csv(table.slice(0, 60), "s.csv")
    pq.write_table(table.append_column("k", pa.array(["u", "v"] * 30_000)), "t.parquet")
    time = r"\d:\d\d:\d\d|-:--:--"
    for command, words in (
        ("fit s.csv --target y --out m.skops", ["fitting 60 rows, 8 columns", time]),
        ("predict m.skops t.csv --out p.csv", ["reading t.csv", "predicting", "60,000 rows"]),
        (
            "fit t.parquet --target y --out-of-core",
            ["finding categories", "reading", "of 60,000 rows"],
        ),
        ("compare s.csv --target y --folds 2", ["comparing", r"of \d models", time]),
        ("reproduce figure4 --scale quick --out f", ["figure4", r"\d+ of \d+ trials", time]),
    ):
        arguments = command.split()
        code, _, err = olsen(*arguments)
        *notes, last = err.split("\n")[:-1] or [""]
        expected = "60000 predictions written to p.csv" if arguments[0] == "predict" else ""
        assert (code, last) == (0, expected)
        assert all("twice as far out as any training row" in note for note in notes)
        force = ["--force"] if "--out" in arguments else []
        screen = Screen()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", "100")
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stderr", screen)
            assert cli.main([*arguments, *force]) == 0
        progress = screen.getvalue()
        with case(command, progress[-500:]):
            assert all(re.search(word, progress) for word in words)
            assert "\x1b[?25h" in progress, "the cursor is given back"


def test_interruption_is_not_a_traceback(olsen_refuses, csv_file, monkeypatch):
    monkeypatch.setattr("olsen.cli.table_models.fit", Mock(side_effect=KeyboardInterrupt))
    olsen_refuses("fit", csv_file, target="yield", words="stopped", code=130)


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_advice_for_a_first_table(olsen, olsen_refuses, folder, command):
    """The nearest name, the list of columns, identifiers, few rows, and missing values."""
    X, y = numbers(40, 3)
    rows = zip(X, y, strict=True)
    table = [
        {"id": 41 - i, "a": x[0], "b": x[1], "price": price} for i, (x, price) in enumerate(rows)
    ]
    write("t.csv", table)
    write("few.csv", table[:12])
    write("missing.csv", [table[0] | {"id": ""}, *table[1:]])
    olsen_refuses(command, "t.csv", target="prize", words="did you mean 'price'?", code=2)
    olsen_refuses(command, "t.csv", words="'id', 'a', 'b', 'price'", code=2)
    olsen_refuses(command, "missing.csv", target="price", words="--missing mean")
    code, _, _ = olsen(command, "missing.csv", target="price", missing="mean")
    assert code == 0, "what is advised can be typed"
    for file, words in (
        ("t.csv", "'id' holds the whole numbers from 2 to 41"),
        ("few.csv", "12 rows are few"),
    ):
        assert words in olsen(command, file, target="price")[1]


def test_repeated_rows_have_the_way_out_of_the_caller(olsen, folder):
    """The command advises an option, Python a parameter."""
    X, y = numbers(40, 3)
    table = [{"a": x[0], "b": x[1], "price": price} for x, price in zip(X, y, strict=True)]
    write("twice.csv", table * 2)
    out = olsen("fit", "twice.csv", target="price")[1]
    assert "40 of 80 rows repeat" in out and "--groups" in out and "cv=" not in out
    with pytest.warns(UserWarning, match=r"cv=GroupKFold"):
        AdaptiveOLSEnsembleRegressor().fit(np.vstack([X, X]), np.append(y, y))
