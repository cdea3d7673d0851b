"""Tables that are not loaded: the command line on Parquet read in blocks."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import LeaveOneOut, PredefinedSplit, cross_val_predict

from engines import row_blocks
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data.splits import FOLD_SEED, FOLDS
from olsen._execution import memory
from olsen.cli import large_tables as blocks
from olsen.subsets import row_groups

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

N = 700
P = 6
REGIONS = ("east", "north", "south")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 6_000)


def data(seed=0):
    """Encoded columns, the target, and a table of both that has one column of strings."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 10 * rng.standard_normal(P)
    region = rng.integers(0, 3, N)
    encoded = np.column_stack([X, region == 0, region == 1, region == 2]).astype(float)
    y = encoded @ rng.standard_normal(P + 3) + 2 * rng.standard_normal(N)
    columns = {f"x{j}": X[:, j] for j in range(P)}
    return encoded, y, pa.table(columns | {"region": np.array(REGIONS)[region], "y": y})


@pytest.fixture
def parquet(tmp_path):
    path = tmp_path / "big.parquet"
    pq.write_table(data()[2], path, row_group_size=150)
    return path


# fit


def mean_error(y, cv):
    """Mean squared error of the mean of the target on folds."""
    return np.mean((y - cross_val_predict(DummyRegressor(), y[:, None], y, cv=cv)) ** 2)


def test_the_fit_is_that_of_the_estimator_in_blocks(olsen_json, parquet, tmp_path):
    """Coefficients, effects, errors of the schemes and predictions by the file."""
    X, y, _ = data()
    expected = AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=3)
    expected.fit(row_blocks(X, y, size=91), None)
    model_file = tmp_path / "m.skops"
    options = {"target": "y", "members": 20, "seed": 3, "out_of_core": True}
    summary = olsen_json("fit", parquet, out=model_file, **options)
    facts = summary["data"]
    assert facts["out_of_core"] is True and (facts["rows"], facts["columns"]) == (N, P + 3)
    assert "read in blocks, out of core" in facts["messages"][0]
    assert "'region' holds text, which becomes 3 columns" in facts["messages"][1]
    assert summary["model"]["criterion"] == "kfold" and summary["written"] == [str(model_file)]
    columns = summary["columns"]
    names = [f"x{j}" for j in range(P)] + [f"region: {region}" for region in REGIONS]
    assert columns["name"] == names
    assert_allclose(columns["coefficient"], expected.coef_, atol=1e-8)
    assert_allclose(columns["effect"], expected.coef_ * X.std(axis=0), atol=1e-8)
    (region,) = [line for line in summary["effects"] if line["name"] == "region"]
    assert region["features"] == 3
    assert region["effect"] == pytest.approx((X[:, P:] @ expected.coef_[P:]).std())
    results = expected.cv_results_
    assert [line["scheme"] for line in summary["choice"]] == results["param_scheme"].tolist()
    rmse = np.array([line["rmse"] for line in summary["choice"]])
    assert_allclose(rmse**2, -results["mean_test_score"], rtol=1e-8)
    (error,) = summary["errors"]
    assert error["note"] == "k-fold cross-validation"
    assert error["rmse"] ** 2 == pytest.approx(-expected.best_score_, rel=1e-8)
    folds = PredefinedSplit(row_groups(0, N, FOLDS, FOLD_SEED).astype(int))
    expected_r2 = 1 + expected.best_score_ / mean_error(y, folds)
    assert error["r2"] == pytest.approx(expected_r2, rel=1e-8), "the mean on the same folds"
    predictions = olsen_json("predict", model_file, parquet)["predicted_y"]
    assert_allclose(predictions, expected.predict(X), rtol=1e-8)


def test_the_curve_over_sizes_is_that_of_the_estimator_in_blocks(olsen_json, parquet):
    """Few rows are loaded and held out one by one, also to judge the mean of the target."""
    X, y, _ = data()
    expected = OLSEnsembleRegressorCV(20, random_state=3).fit(row_blocks(X, y, size=91), None)
    options = {"target": "y", "model": "ensemble", "members": 20, "seed": 3}
    summary = olsen_json("fit", parquet, out_of_core=True, **options)
    assert_allclose(summary["columns"]["coefficient"], expected.coef_, atol=1e-8)
    curve = summary["curve"]
    scores = expected.cv_results_["mean_test_score"]
    assert_allclose(np.square(curve["rmse"]), -scores, rtol=1e-8)
    assert curve["chosen"] == expected.max_features_
    assert summary["model"]["criterion"] == "loo"
    error = summary["errors"][0]
    assert error["note"] == "leave-one-out"
    assert error["rmse"] ** 2 == pytest.approx(-expected.best_score_, rel=1e-8)
    expected_r2 = 1 + expected.best_score_ / mean_error(y, LeaveOneOut())
    assert error["r2"] == pytest.approx(expected_r2, rel=1e-8)


def test_nearly_dependent_columns_do_no_damage(olsen_json, tmp_path):
    _, _, table = data()
    x0 = table.column("x0").to_numpy()
    table = table.set_column(1, "x1", pa.array(x0 + 1e-7 * table.column("x1").to_numpy()))
    pq.write_table(table, tmp_path / "t.parquet")
    summary = olsen_json("fit", tmp_path / "t.parquet", target="y", members=9, out_of_core=True)
    largest = np.abs(summary["columns"]["coefficient"]).max()
    # members with both columns are solved from the data (with large coefficients), or there is none
    assert largest < 100 or summary["model"]["refitted"] > 0


def test_large_tables_go_out_of_core_by_themselves(olsen, parquet, monkeypatch):
    arguments = ("fit", parquet, "--target", "y", "--members", "5")
    assert "out of core" not in olsen(*arguments)[1]
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000.0)
    code, out, _ = olsen(*arguments)
    assert (
        code == 0
        and "read in blocks, out of core" in out
        and f"{N} rows, 7 columns (9 encoded)" in out
    )


def test_a_folder_of_files_is_one_table(olsen_json, olsen_refuses, parquet, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    table = data()[2]
    for i, part in enumerate((table[:300], table[300:])):
        pq.write_table(part, folder / f"{i}.parquet")
    for extra in ([], ["--out-of-core"]):
        coefficients = [
            olsen_json("fit", path, *extra, target="y", members=9)["columns"]["coefficient"]
            for path in (parquet, folder)
        ]
        assert_allclose(*coefficients, atol=1e-10)
    pq.write_table(table.drop_columns(["x1"]), folder / "2.parquet")
    words = "has no column 'x1', which other files of parts have"
    olsen_refuses("fit", folder, target="y", out_of_core=True, words=words)


# tables that are refused


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
        (lambda t: spoil(t, "x3", [405, 699], None), ["1 cell missing", "'x3' (1)", "row 406"]),
        (lambda t: spoil(t, "region", [405], None), ["1 cell missing", "'region' (1)"]),
        (lambda t: spoil(t, "y", [650], float("inf")), ["'y' (1)", "row 651"]),
        (
            lambda t: t.set_column(6, "region", pa.array([f"p{i}" for i in range(N)])),
            ["more than 200 different"],
        ),
        (lambda t: t.set_column(7, "y", t.column("region")), ["the target 'y' holds text"]),
        (lambda t: t[:4], ["has 4 rows; out of core at least 50"]),
        (
            lambda t: t.rename_columns(["x0", "x0", *t.column_names[2:]]),
            ["several columns named 'x0'"],
        ),
    ],
    ids=["nan", "null", "text null", "target", "identifiers", "text target", "few rows", "names"],
)
def test_faulty_tables_are_refused_and_nothing_is_written(olsen_refuses, tmp_path, change, words):
    path = tmp_path / "faulty.parquet"
    pq.write_table(change(data()[2]), path, row_group_size=150)
    out = tmp_path / "m.skops"
    olsen_refuses("fit", path, target="y", out_of_core=True, out=out, words=words)
    assert os.listdir(tmp_path) == ["faulty.parquet"]


def test_wrong_arguments_are_bad_usage(olsen, olsen_refuses, parquet, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    for arguments, words in (
        ((parquet, "--target", "z"), "there is no column 'z'"),
        ((parquet, "--target", "y", "--drop", "z"), "there is no column 'z'"),
        ((parquet,), "--target is needed"),
        ((tmp_path / "t.csv", "--target", "y"), "reads Parquet only"),
        ((), "reads Parquet only"),
    ):
        olsen_refuses("fit", *arguments, out_of_core=True, words=words, code=2)
    assert olsen("fit", tmp_path / "missing.parquet", target="y", out_of_core=True)[0] == 1


def test_a_dropped_column_may_hold_anything(olsen, tmp_path):
    table = data()[2].append_column("note", pa.array([[i] if i % 2 else None for i in range(N)]))
    pq.write_table(table, tmp_path / "t.parquet")
    arguments = ("fit", tmp_path / "t.parquet", "--target", "y", "--members", "5", "--out-of-core")
    assert olsen(*arguments)[0] == 1
    assert olsen(*arguments, "--drop", "note")[0] == 0


# predict


@pytest.fixture
def model_file(olsen, parquet):
    path = parquet.with_suffix(".skops")
    assert olsen("fit", parquet, target="y", members=20, out_of_core=True, out=path)[0] == 0
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_in_blocks_are_those_of_the_loaded_table(
    olsen, olsen_json, parquet, model_file, tmp_path, suffix
):
    import pyarrow.csv as pv

    read = pv.read_csv if suffix == ".csv" else pq.read_table
    predict = ("predict", model_file, parquet)
    tables = []
    for name, extra in (("loaded", []), ("blocks", ["--out-of-core"])):
        out = tmp_path / f"{name}{suffix}"
        code, text, err = olsen(*predict, *extra, interval=0.9, out=out)
        assert (code, text) == (0, "") and err == f"{N} predictions written to {out}\n"
        tables.append(read(out).to_pandas())
    loaded, blocks = tables
    assert list(loaded) == list(blocks) == ["predicted_y", "lower", "upper", "far_row"]
    assert loaded.pop("far_row").equals(blocks.pop("far_row"))
    assert_allclose(loaded, blocks, rtol=1e-12)
    observed = data()[1]
    covered = (loaded["lower"] <= observed) & (observed <= loaded["upper"])
    assert 0.85 < covered.mean() < 0.96
    assert_allclose(
        olsen_json(*predict, out_of_core=True)["predicted_y"], loaded["predicted_y"], atol=1e-3
    )
    assert olsen(*predict, out_of_core=True)[1].count("\n") == N + 1


@pytest.mark.parametrize("options", [[], ["--json"], ["--out", "p.parquet"], ["--out", "p.csv"]])
def test_a_table_without_rows_has_no_predictions(
    olsen_refuses, parquet, model_file, tmp_path, monkeypatch, options
):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pq.read_table(parquet).slice(0, 0), "empty.parquet")
    words = "empty.parquet has a header but no rows."
    olsen_refuses("predict", model_file, "empty.parquet", "--out-of-core", *options, words=words)
    assert not list(tmp_path.glob("p.*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.rename_columns(["X0", *t.column_names[1:]]),
            "lacks 1 column of the model: 'x0'; it has 'X0'",
        ),
        (lambda t: spoil(t, "region", [405], "west"), "holds 'west', which the model has not seen"),
        (lambda t: spoil(t, "x3", [405], None), "'x3' (1), the first in row 406"),
    ],
    ids=["column", "category", "null"],
)
def test_predict_leaves_no_half_written_file(olsen_refuses, model_file, tmp_path, change, words):
    new = tmp_path / "new.parquet"
    pq.write_table(change(data()[2]), new)
    files = set(os.listdir(tmp_path))
    out = tmp_path / "p.csv"
    olsen_refuses("predict", model_file, new, out_of_core=True, out=out, words=words)
    assert set(os.listdir(tmp_path)) == files


# memory


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
