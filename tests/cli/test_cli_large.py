"""Tables that are not loaded: the command line on Parquet read in blocks."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import LeaveOneOut, PredefinedSplit, cross_val_predict

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV, cli
from olsen._data.splits import FOLD_SEED, FOLDS
from olsen._execution import memory
from olsen.cli import large_tables as blocks
from olsen.subsets import row_groups

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

N, P = 700, 6
PLACES = ("east", "north", "south")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 6_000)


def data(seed=0):
    """Encoded columns, the target, and the same as a table with a column of text."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 10 * rng.standard_normal(P)
    place = rng.integers(0, 3, N)
    encoded = np.column_stack([X, place == 0, place == 1, place == 2]).astype(float)
    y = encoded @ rng.standard_normal(P + 3) + 2 * rng.standard_normal(N)
    columns = {f"x{j}": X[:, j] for j in range(P)} | {"place": np.array(PLACES)[place], "y": y}
    return encoded, y, pa.table(columns)


@pytest.fixture
def parquet(tmp_path):
    path = tmp_path / "big.parquet"
    pq.write_table(data()[2], path, row_group_size=150)
    return path


def cut(size, *arrays):
    return lambda: (tuple(a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size))


def one_line(text):
    assert text.startswith("olsen: ") and text.count("\n") == 1, text
    return text


# fit


def test_the_fit_is_that_of_the_estimator_in_blocks(olsen, parquet, tmp_path):
    """Coefficients and the errors of the schemes to 1e-8, text encoded as in memory; predictions by
    the file.
    """
    X, y, _ = data()
    expected = AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=3).fit(
        cut(91, X, y), None
    )
    out = tmp_path / "m.skops"
    code, text, err = olsen(
        "fit",
        parquet,
        "--target",
        "y",
        "--members",
        "20",
        "--seed",
        "3",
        "--out-of-core",
        "--out",
        out,
        "--json",
    )
    assert (code, err) == (0, "")
    found = json.loads(text)
    assert found["data"]["out_of_core"] is True and (
        found["data"]["rows"],
        found["data"]["columns"],
    ) == (N, P + 3)
    assert "read in blocks, out of core" in found["data"]["messages"][0]
    assert "'place' holds text, which becomes 3 columns" in found["data"]["messages"][1]
    assert found["model"]["criterion"] == "kfold" and found["written"] == [str(out)]
    names = [f"x{j}" for j in range(P)] + [f"place_{place}" for place in PLACES]
    assert found["columns"]["name"] == names
    np.testing.assert_allclose(found["columns"]["coefficient"], expected.coef_, atol=1e-8)
    np.testing.assert_allclose(
        found["columns"]["effect"], expected.coef_ * X.std(axis=0), atol=1e-8
    )
    (place,) = [line for line in found["effects"] if line["name"] == "place"]
    assert place["features"] == 3 and place["effect"] == pytest.approx(
        (X[:, P:] @ expected.coef_[P:]).std()
    )
    assert [line["scheme"] for line in found["choice"]] == expected.cv_results_[
        "param_scheme"
    ].tolist()
    rmse = np.array([line["rmse"] for line in found["choice"]])
    np.testing.assert_allclose(rmse**2, -expected.cv_results_["mean_test_score"], rtol=1e-8)
    (error,) = found["errors"]
    assert error["note"] == "k-fold cross-validation"
    assert error["rmse"] ** 2 == pytest.approx(-expected.best_score_, rel=1e-8)
    folds = PredefinedSplit(row_groups(0, N, FOLDS, FOLD_SEED).astype(int))
    mean = np.mean((y - cross_val_predict(DummyRegressor(), X, y, cv=folds)) ** 2)
    assert error["r2"] == pytest.approx(1 + expected.best_score_ / mean, rel=1e-8), (
        "the mean on the same folds"
    )
    code, text, _ = olsen("predict", out, parquet, "--json")
    np.testing.assert_allclose(json.loads(text)["y"], expected.predict(X), rtol=1e-8)


def test_the_curve_over_sizes_is_that_of_the_estimator_in_blocks(olsen, parquet):
    """So few rows are loaded and left out one by one, and the mean of the target is judged in the
    same way.
    """
    X, y, _ = data()
    expected = OLSEnsembleRegressorCV(20, random_state=3).fit(cut(91, X, y), None)
    fit = "fit", parquet, "--target", "y", "--model", "ensemble", "--members", "20", "--seed", "3"
    code, text, err = olsen(*fit, "--out-of-core", "--json")
    assert (code, err) == (0, "")
    found = json.loads(text)
    np.testing.assert_allclose(found["columns"]["coefficient"], expected.coef_, atol=1e-8)
    np.testing.assert_allclose(
        np.square(found["curve"]["rmse"]), -expected.cv_results_["mean_test_score"], rtol=1e-8
    )
    assert (
        found["curve"]["chosen"] == expected.max_features_ and found["model"]["criterion"] == "loo"
    )
    error = found["errors"][0]
    mean = np.mean((y - cross_val_predict(DummyRegressor(), X, y, cv=LeaveOneOut())) ** 2)
    assert error["note"] == "leave-one-out" and error["rmse"] ** 2 == pytest.approx(
        -expected.best_score_, rel=1e-8
    )
    assert error["r2"] == pytest.approx(1 + expected.best_score_ / mean, rel=1e-8)


def test_nearly_dependent_columns_are_no_damage(olsen, tmp_path):
    _, _, table = data()
    table = table.set_column(
        1, "x1", pa.array(table.column("x0").to_numpy() + 1e-7 * table.column("x1").to_numpy())
    )
    pq.write_table(table, tmp_path / "t.parquet")
    code, text, _ = olsen(
        "fit", tmp_path / "t.parquet", "--target", "y", "--members", "9", "--out-of-core", "--json"
    )
    found = json.loads(text)
    largest = np.abs(found["columns"]["coefficient"]).max()
    # members that hold both are solved from the data (their coefficients are large), or none holds
    # both
    assert code == 0 and (largest < 100 or found["model"]["refitted"] > 0)


def test_large_tables_go_out_of_core_by_themselves(olsen, parquet, monkeypatch):
    arguments = ("fit", parquet, "--target", "y", "--members", "5")
    assert "out of core" not in olsen(*arguments)[1]
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000.0)
    code, out, _ = olsen(*arguments)
    assert code == 0 and "read in blocks, out of core" in out and f"{N} rows, 9 columns" in out


def test_a_folder_of_files_is_one_table(olsen, parquet, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    table = data()[2]
    for i, part in enumerate((table[:300], table[300:])):
        pq.write_table(part, folder / f"{i}.parquet")
    for extra in ([], ["--out-of-core"]):
        fits = [
            json.loads(olsen("fit", path, "--target", "y", "--members", "9", "--json", *extra)[1])
            for path in (parquet, folder)
        ]
        values = [fit["columns"]["coefficient"] for fit in fits]
        np.testing.assert_allclose(*values, atol=1e-10)
    pq.write_table(table.drop_columns(["x1"]), folder / "2.parquet")
    code, _, err = olsen("fit", folder, "--target", "y", "--out-of-core")
    assert code == 1 and "has no column 'x1', which other files of parts have" in one_line(err)


# what cannot be used


def spoil(table, column, rows, value):
    values = table.column(column).to_pylist()
    for row in rows:
        values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: spoil(t, "x3", [405, 411], float("nan")),
            ["block of rows 333 to", "'x3' (2)", "row 406", "--drop"],
        ),
        (
            lambda t: spoil(t, "x3", [405, 699], None),
            ["1 cell missing", "'x3' (1)", "row 406", "--drop"],
        ),
        (lambda t: spoil(t, "place", [405], None), ["1 cell missing", "'place' (1)"]),
        (lambda t: spoil(t, "y", [650], float("inf")), ["'y' (1)", "row 651"]),
        (
            lambda t: t.set_column(6, "place", pa.array([f"p{i}" for i in range(N)])),
            ["more than 200 different"],
        ),
        (lambda t: t.set_column(7, "y", t.column("place")), ["the target 'y' holds text"]),
        (lambda t: t[:4], ["has 4 rows; out of core at least 50"]),
        (
            lambda t: t.rename_columns(["x0", "x0", *t.column_names[2:]]),
            ["several columns named 'x0'"],
        ),
    ],
    ids=["nan", "null", "text null", "target", "identifiers", "text target", "few rows", "names"],
)
def test_faulty_tables_are_refused_in_one_line_and_nothing_is_written(
    olsen, tmp_path, change, words
):
    pq.write_table(change(data()[2]), tmp_path / "faulty.parquet", row_group_size=150)
    out = tmp_path / "m.skops"
    code, text, err = olsen(
        "fit", tmp_path / "faulty.parquet", "--target", "y", "--out-of-core", "--out", out
    )
    assert (code, text) == (1, "") and all(word in one_line(err) for word in words), err
    assert os.listdir(tmp_path) == ["faulty.parquet"]


def test_wrong_arguments_are_bad_usage(olsen, parquet, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    for arguments, words in (
        ((parquet, "--target", "z"), "there is no column 'z'"),
        ((parquet, "--target", "y", "--drop", "z"), "there is no column 'z'"),
        ((parquet,), "--target is needed"),
        ((tmp_path / "t.csv", "--target", "y"), "reads Parquet only"),
        ((), "reads Parquet only"),
    ):
        code, _, err = olsen("fit", *arguments, "--out-of-core")
        assert code == 2 and words in one_line(err)
    assert olsen("fit", tmp_path / "nothing.parquet", "--target", "y", "--out-of-core")[0] == 1


def test_a_dropped_column_may_hold_anything(olsen, tmp_path):
    table = data()[2].append_column("note", pa.array([[i] if i % 2 else None for i in range(N)]))
    pq.write_table(table, tmp_path / "t.parquet")
    arguments = ("fit", tmp_path / "t.parquet", "--target", "y", "--members", "5", "--out-of-core")
    assert olsen(*arguments)[0] == 1
    assert olsen(*arguments, "--drop", "note")[0] == 0


# predict


@pytest.fixture
def model_file(parquet, capsys):
    path = parquet.with_suffix(".skops")
    assert (
        cli.main(
            [
                "fit",
                str(parquet),
                "--target",
                "y",
                "--members",
                "20",
                "--out-of-core",
                "--out",
                str(path),
            ]
        )
        == 0
    )
    capsys.readouterr()
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_in_blocks_are_those_of_the_loaded_table(
    olsen, parquet, model_file, tmp_path, suffix
):
    import pyarrow.csv as pv

    read = pv.read_csv if suffix == ".csv" else pq.read_table
    tables = []
    for name, extra in (("loaded", []), ("blocks", ["--out-of-core"])):
        out = tmp_path / f"{name}{suffix}"
        code, text, err = olsen(
            "predict", model_file, parquet, "--interval", "0.9", "--out", out, *extra
        )
        assert (code, text) == (0, "") and err == f"{N} predictions written to {out}\n"
        tables.append(read(out).to_pandas())
    assert list(tables[0]) == ["y", "lower", "upper"]
    np.testing.assert_allclose(*tables, rtol=1e-12)
    observed = data()[1]
    assert (
        0.85 < np.mean((tables[0]["lower"] <= observed) & (observed <= tables[0]["upper"])) < 0.96
    )
    arguments = ("predict", model_file, parquet, "--out-of-core")
    np.testing.assert_allclose(json.loads(olsen(*arguments, "--json")[1])["y"], tables[0]["y"])
    assert olsen(*arguments)[1].count("\n") == N + 1


@pytest.mark.parametrize("options", [[], ["--json"], ["--out", "p.parquet"], ["--out", "p.csv"]])
def test_a_table_without_rows_has_no_predictions(
    olsen, parquet, model_file, tmp_path, monkeypatch, options
):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pq.read_table(parquet).slice(0, 0), "empty.parquet")
    code, out, err = olsen("predict", model_file, "empty.parquet", "--out-of-core", *options)
    assert (code, out) == (1, "") and "empty.parquet has a header but no rows." in one_line(err)
    assert not list(tmp_path.glob("p.*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.rename_columns(["X0", *t.column_names[1:]]),
            "lacks 1 column of the model: 'x0'; it has 'X0'",
        ),
        (lambda t: spoil(t, "place", [405], "west"), "holds 'west', which the model has not seen"),
        (lambda t: spoil(t, "x3", [405], None), "'x3' (1), the first in row 406"),
    ],
    ids=["column", "category", "null"],
)
def test_predict_leaves_no_half_written_file(olsen, model_file, tmp_path, change, words):
    pq.write_table(change(data()[2]), tmp_path / "new.parquet")
    before = set(os.listdir(tmp_path))
    code, _, err = olsen(
        "predict",
        model_file,
        tmp_path / "new.parquet",
        "--out-of-core",
        "--out",
        tmp_path / "p.csv",
    )
    assert code == 1 and words in one_line(err)
    assert set(os.listdir(tmp_path)) == before


# the program itself


LIMITED = """
import resource, sys
import numpy as np
from olsen import cli
small, large = sys.argv[1:]
assert cli.main(["fit", small, "--target", "y", "--members", "5", "--out-of-core"]) == 0
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + 250_000_000,) * 2)
try:
    np.ones((2_000_000, 20))
except MemoryError:
    print("too large to load", cli.main(["fit", large, "--target", "y", "--members", "5", "--out-of-core"]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA")
def test_a_file_larger_than_the_memory_limit(tmp_path):
    """320 MB in one row group, with 250 MB to work in."""
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.standard_normal(1000) for j in range(19)}
    table = pa.table(columns | {"y": columns["x0"] + rng.standard_normal(1000)})
    pq.write_table(table, tmp_path / "small.parquet")
    with pq.ParquetWriter(
        tmp_path / "large.parquet", table.schema, use_dictionary=False, compression="none"
    ) as file:
        file.write_table(pa.concat_tables([table] * 2000), row_group_size=2_000_000)
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(LIMITED),
        tmp_path / "small.parquet",
        tmp_path / "large.parquet",
    ]
    settings = {
        "OPENBLAS_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }  # Arrow's own pool sets 1 GB aside
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | settings)
    assert run.stdout.strip().endswith("too large to load 0"), run.stderr[-2000:]
    assert "2000000 rows, 19 columns" in run.stdout
