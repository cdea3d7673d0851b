"""The benchmarks run, at toy size. How long anything takes is not looked at."""

import contextlib
import importlib
import inspect
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from loops import case
from olsen import OLSEnsembleRegressor

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
GROUPS = {  # rows at toy size
    "fit": 2,
    "tables": 4,
    "growth": 5,
    "predict": 1,
    "kernel": 2,
    "choice": 3,
    "iteration": 1,
    "tuned": 3,
    "real": 2,
    "threads": 7,
    "intervals": 3,
    "tuning": 1,
    "determinantal": 3,
    "figure2": 1,
}


# "fresh" is left out: it starts new interpreters, which takes longer than all others together


def write_table(path, n, p, seed=0):
    """A target in front, that leans on two columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    table = np.column_stack([X[:, :2].sum(axis=1) + 0.5 * rng.standard_normal(n), X])
    names = ",".join(["target", *(f"x{j}" for j in range(p))])
    np.savetxt(path, table, delimiter=",", header=names, comments="")


def load(name):
    """A module of the benchmarks, which lie outside the package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_all_groups_run_at_toy_size(tmp_path, capsys, monkeypatch):
    """One test, as several workers would each run the groups."""
    # nothing is called again for a steadier time, nothing rests before it
    for name in ("REST", "SHORT", "TURN"):
        monkeypatch.setattr(load("timing"), name, 0.0)
    results = tmp_path / "results"
    page = tmp_path / "docs" / "benchmarks.md"
    write_table(tmp_path / "tall.csv", n=40, p=6)
    write_table(tmp_path / "wide.csv", n=15, p=19)
    assert (
        load("compare").main(
            ["--quick", "--out", str(results), "--data", str(tmp_path), "--only", *GROUPS]
        )
        == 0
    )
    load("report").main(["--results", str(results), "--page", str(page)])
    report = page.read_text(encoding="utf-8")
    assert "Toy sizes" in report
    assert "](images/growth.png)" in report
    assert (page.parent / "images" / "growth.png").read_bytes().startswith(b"\x89PNG")
    rows = {}
    for group, n_rows in GROUPS.items():
        with case(group):
            stored = json.loads((results / f"{group}.json").read_text(encoding="utf-8"))
            rows[group] = stored["rows"]
            assert stored["quick"] and len(stored["rows"]) == n_rows
            machine_facts = {
                "cpu",
                "cores",
                "blas",
                "packages",
                "load_average",
                "dgemm_gflops",
                "dgemm_scaling",
            }
            assert machine_facts <= set(stored["machine"])
            for row in stored["rows"]:
                assert {"value", "must", "aim", "verdict"} <= set(row) and isinstance(
                    row["value"], float
                )
            table = (results / f"{group}.md").read_text(encoding="utf-8")
            assert table in report and len(table.splitlines()) == 2 + n_rows
            assert len({line.count("|") for line in table.splitlines()}) == 1, (
                "all rows have the same columns"
            )
    # with least squares on the same submatrices
    assert all(row["difference"] < 1e-8 for group in ("fit", "tables") for row in rows[group])
    assert [list(row["shape"].values()) for row in rows["real"]] == [
        ["tall", 40, 6],
        ["wide", 15, 19],
    ]
    growth = load("growth")
    growth.main(["--results", str(results), "--out", str(tmp_path / "growth.png")])
    assert "in rows n (40 to 80, p = 20, m = 5)" in capsys.readouterr().out
    for row in rows["growth"]:  # slopes are those of powers
        shape = row["shape"]
        row["seconds"] = {
            str(k): 1e-9 * shape["n"] * shape["p"] ** 2 * shape["m"] ** 3 * k
            for k in row["members"]
        }
    slopes = [
        growth.slope(*growth.sweep(rows["growth"], letter, rows["growth"][0]["members"][0]))
        for letter in "npm"
    ]
    assert_allclose(slopes, [1, 2, 3])


def test_scripts_of_scale_run_and_write_their_results(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    monkeypatch.setattr("gc.collect", lambda: 0)
    toy = [
        "--rows",
        "3000",
        "--columns",
        "20",
        "--members",
        "5",
        "--repeats",
        "1",
        "--folder",
        str(tmp_path),
    ]
    for name, options in (
        ("gpu", ["--quick", "--device", "cpu", "--repeats", "1", "--no-numpy"]),
        ("out_of_core", toy),
    ):
        module = load(name)
        out = tmp_path / f"{name}.json"

        def run(command, module=module, **settings):
            """Children of a script are called in this process."""
            with (
                monkeypatch.context() as patch,
                contextlib.redirect_stdout(io.StringIO()) as printed,
            ):
                patch.setattr(sys, "argv", command[1:])
                module.main()
            return SimpleNamespace(stdout=printed.getvalue())

        monkeypatch.setattr("subprocess.run", run)
        run([sys.executable, name, *options, "--out", str(out)])
        assert json.loads(out.read_text()), name


def test_scripts_say_what_they_lack(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mapie", None)
    empty_folder = tmp_path / "nothing"
    only = ["--quick", "--only", "real", "--out", str(tmp_path / "out")]
    empty_folder.mkdir()
    for script, arguments, code, message in (
        ("compare", only, 0, "no folder was given"),
        ("compare", [*only, "--data", "nowhere"], 0, "nowhere is not there"),
        ("report", ["--results", str(empty_folder)], 2, "compare.py"),
        ("real_data", [str(empty_folder)], 2, "no table to read"),
        ("uncertainty", ["--quick"], 0, "pip install 'mapie"),
    ):
        with case(script, *arguments):
            try:
                assert load(script).main(arguments) == code
            except SystemExit as end:
                assert end.code == code
            assert message in "".join(capsys.readouterr())
    assert not list((tmp_path / "out").glob("*"))


def centred_rank(X):
    return np.linalg.matrix_rank(X - X.mean(axis=0))


def test_problems_are_what_they_are_named_after(seed):
    problems = load("problems")
    X, y = problems.one_hot(300, numeric=5, factors=6, levels=30, seed=seed)
    assert_allclose([X.mean(axis=0), X.std(axis=0)], [np.zeros(35), np.ones(35)], atol=1e-12)
    assert y.shape == (300,) and [len(np.unique(column)) for column in X.T[5:]] == [2] * 30
    assert centred_rank(X) == 5 + 30 - 6
    reference, _ = load("groups.tables").REFERENCE()
    assert reference.shape == (3000, 328) and centred_rank(reference) == 286
    X, _ = problems.duplicated(100, 30, seed)
    assert X.shape == (100, 30) and centred_rank(X) == 30 - 10 - 2
    assert np.count_nonzero(np.ptp(X, axis=0) == 0) == 2 and np.unique(X, axis=1).shape[1] == 20
    values = np.linalg.svd(problems.spectra(80, 60, seed, peaks=4, noise=1e-6)[0], compute_uv=False)
    assert len(values) == 60 and values[3] > 100 * values[4] > 0
    n = 20_000
    rho = 0.9
    X, y = problems.correlated(n, 8, rho, seed)
    expected = rho ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    gap = np.abs(np.corrcoef(X, rowvar=False) - expected)
    assert np.all(gap <= 5 * (1 - expected**2) / np.sqrt(n) + 1e-12)
    noise = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    assert abs(noise.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs(y.var() - noise.var() - 1) < 5 * 2 / np.sqrt(
        n
    )  # twice the covariance of signal and noise


def test_real_data_differences_are_paired_and_scores_those_of_scikit_learn(tmp_path):
    """All models have one sequence of shuffled splits, and R2 about the mean of the training rows."""
    for seed, (name, n, p) in enumerate(zip("abc", (40, 25, 30), (4, 30, 3), strict=True)):
        write_table(tmp_path / f"{name}.csv", n, p, seed)
    files = ["--json", str(tmp_path / "all.json"), "--markdown", str(tmp_path / "all.md")]
    load("real_data").main(
        [str(tmp_path), "--splits", "4", "--models", "ensemble", "ridge", *files]
    )
    results = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["folder"]
    assert (tmp_path / "all.md").read_text(encoding="utf-8").count("\n| ") >= 8
    for row in results["tables"]:
        assert row["best"] == max(
            ("RidgeCV", "LassoCV", "PLS"), key=lambda name: np.mean(row["r2"][name])
        )
        for name in ("adaptive", "ensemble", "ridge"):
            difference = np.subtract(row["r2"][name], row["r2"][row["best"]])
            assert row["to_best"][name]["mean"] == pytest.approx(difference.mean())
            assert row["to_best"][name]["standard_error"] == pytest.approx(stats.sem(difference))
    counted = [
        row for row in results["tables"] if row["table"] not in results["summary"]["left out"]
    ]
    values = [row["to_best"]["adaptive"]["mean"] for row in counted]
    assert results["summary"]["models"]["adaptive"]["mean"] == pytest.approx(np.mean(values))
    y, X = np.split(np.loadtxt(tmp_path / "a.csv", delimiter=",", skiprows=1), [1], axis=1)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 41)))
    expected = []
    for train, test in ShuffleSplit(4, test_size=0.2, random_state=0).split(X):
        residuals = y[test, 0] - model.fit(X[train], y[train, 0]).predict(X[test])
        expected.append(1 - np.sum(residuals**2) / np.sum((y[test] - y[train].mean()) ** 2))
    assert_allclose(results["tables"][0]["r2"]["RidgeCV"], expected, rtol=1e-9)


def test_partial_least_squares_is_that_of_the_best_number_of_components(seed):
    """Every number of components up to the rank is fitted alone, in every fold."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 12)) + 0.3 * rng.standard_normal(
        (60, 12)
    )
    y = 2 + X[:, :4].sum(axis=1) + rng.standard_normal(60)
    grid = {"n_components": range(1, 9)}
    ours = load("peers").PLSRegressionCV
    expected = GridSearchCV(
        PLSRegression(scale=False), grid, cv=5, scoring="neg_mean_squared_error"
    ).fit(X, y)
    model = ours(max_components=8).fit(X, y)
    assert model.n_components_ == expected.best_params_["n_components"]
    assert_allclose(model.predict(X), expected.predict(X).ravel(), rtol=1e-8, atol=1e-8)
    dependent = np.hstack([X, X @ rng.standard_normal((12, 30))])
    assert len(ours(20)._all(dependent, y)) == 12
    check_estimator(ours(), on_skip=None)


def test_simulated_risks_are_errors_of_prediction_beyond_the_noise(seed):
    """By quadrature instead of the formula: many new rows, their own signal, the mean squared
    distance.
    """
    simulated = load("simulated")
    cell = simulated.Cell(50, 5, 2, 0.9, 0.3)
    sample = cell.draw(seed)
    pipeline = make_pipeline(StandardScaler(), LinearRegression()).fit(sample.X, sample.y + 1)
    rows = np.random.default_rng(seed).multivariate_normal(
        np.zeros(5), 0.9 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))), 100_000
    )
    squares = (pipeline.predict(rows) - rows @ sample.beta) ** 2
    assert np.count_nonzero(sample.beta) == 2 and np.linalg.norm(sample.beta) == pytest.approx(1)
    assert abs(simulated.risk(pipeline, sample) - squares.mean()) < 5 * stats.sem(squares)


def test_simulated_ratios_compare_with_the_better_peer():
    ours, ridge, lasso = np.random.default_rng(0).gamma(20.0, size=(3, 4000)) * np.array(
        [[1.2], [1.0], [3.0]]
    )
    value, error, peer = load("simulated").ratio(
        {"risks": {"ours": ours, "RidgeCV": ridge, "LassoCV": lasso}}
    )
    assert peer == "RidgeCV" and value == pytest.approx(ours.mean() / ridge.mean())
    parts = [
        a.mean() / b.mean()
        for a, b in zip(ours.reshape(100, -1), ridge.reshape(100, -1), strict=True)
    ]
    assert error == pytest.approx(
        stats.sem(parts), rel=0.3
    )  # of 100 parts: their spread is known to 7 %


def test_the_simulated_grid_goes_from_one_coefficient_to_all():
    cells = load("simulated").grid()
    assert (
        len(cells) == len(set(cells)) == 2 * 3 * 3 * (5 + 6 + 6)
    )  # rows, correlations, noises, numbers by columns
    assert {cell.nonzeros for cell in cells if cell.p == 150} == {1, 3, 10, 30, 100, 150}
    assert {cell.nonzeros for cell in cells if cell.p == 50} == {1, 3, 10, 30, 50}


def test_cells_of_noise_compare_the_estimated_error_with_the_true_one():
    simulated = load("simulated")
    assert len(simulated.noise_grid()) == 12
    (cell,) = simulated.noise_grid([(30, 3)])
    assert not cell.draw(0).beta.any()
    result = simulated.run_cell(cell, 4)
    assert 0.5 < result["estimated_to_true"] < 2
    assert "of the true one" in simulated.describe(cell, result)


def test_simulations_are_summed_up_by_shape_and_go_on_where_they_were_stopped(
    tmp_path, capsys, monkeypatch
):
    simulated = load("simulated")
    file = tmp_path / "cells.jsonl"
    page = tmp_path / "page.md"
    cells = simulated.grid([(20, 4)])
    assert len(cells) == 3 * 3 * 3  # correlations, noises, and 1, 3 and all 4 coefficients
    monkeypatch.setattr(simulated, "grid", lambda only: cells[::3])
    options = ["--only", "20,4", "--repeats", "2", "--json", str(file)]
    simulated.main([*options, "--markdown", str(page)])
    printed = capsys.readouterr().out
    complete = simulated.stored(file, 2)
    ratios = [simulated.ratio(result)[0] for result in complete.values()]
    assert f"{sum(value > 1.1 for value in ratios)} of 9 cells above 1.1, " in printed
    assert f"ratio of risks: mean {np.mean(ratios):.3f}" in printed
    header, _, row = page.read_text(encoding="utf-8").splitlines()
    assert row.startswith(f"| 20 | 4 | 9 | {np.mean(ratios):.3f} |")
    assert f"| {max(ratios):.3f} ± " in row and row.count("|") == header.count("|")
    text = file.read_text(encoding="utf-8")
    cut = text[: 3 * len(text) // 4]  # in the middle of a line
    file.write_text(cut, encoding="utf-8")
    simulated.main(options)
    assert f"{cut.count(chr(10))} of 9 cells are there already" in capsys.readouterr().out
    resumed = simulated.stored(file, 2)
    assert all(sum(result["weights"].values()) == pytest.approx(1) for result in resumed.values())
    assert not simulated.stored(file, 2, "ensemble"), "cells of another model are others"
    assert {cell: result["risks"] for cell, result in resumed.items()} == {
        cell: result["risks"] for cell, result in complete.items()
    }


def test_the_average_refitted_by_mapie_is_the_ensemble(seed):
    """The average of least squares that MAPIE refits is the ensemble with its columns."""
    X, y = load("problems").linear(40, 8, seed)
    model = OLSEnsembleRegressor(6, 3, random_state=seed).fit(X, y)
    mean = load("uncertainty").MeanOfLeastSquares(np.array(list(model.feature_subsets_))).fit(X, y)
    assert_allclose(mean.coef_, model.coef_, atol=1e-12)
    assert_allclose(mean.predict(X), model.predict(X), atol=1e-12)


def test_uncertainty_is_that_of_mapie(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mapie")
    write_table(tmp_path / "a.csv", 40, 6)
    run = ["--quick", "--data", str(tmp_path), "--only", "a", "b"]
    module = load("uncertainty")
    assert (
        module.main(
            [*run, "--json", str(tmp_path / "rows.json"), "--markdown", str(tmp_path / "rows.md")]
        )
        == 0
    )
    assert "b.csv is not there" in capsys.readouterr().out
    rows = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["rows"]
    assert [row["shape"]["data"] for row in rows] == ["Gaussian", "a"]
    assert all(0 <= gap <= 1e-8 for row in rows for gap in row["difference"].values())
    assert len((tmp_path / "rows.md").read_text(encoding="utf-8").splitlines()) == 2 + len(rows)
    monkeypatch.setattr(module, "AGREE", -1.0)
    assert module.main(run) == 1


def test_asv_suite_runs_once():
    settings = json.loads((BENCHMARKS / "asv.conf.json").read_text(encoding="utf-8"))
    files = [
        path.stem
        for path in (BENCHMARKS / settings["benchmark_dir"]).glob("*.py")
        if path.stem != "__init__"
    ]
    modules = [load(f"asv_suite.{name}") for name in files]
    classes = {
        value for module in modules for value in vars(module).values() if inspect.isclass(value)
    }
    for cls in (
        benchmark for benchmark in classes if benchmark.__module__.startswith("asv_suite.")
    ):
        arguments = cls.params[:1] if hasattr(cls, "params") else ()
        suite = cls()
        suite.setup(*arguments)
        names = [name for name in vars(cls) if name.startswith(("time_", "peakmem_"))]
        assert names, cls
        for name in names:
            with case(cls.__name__, name):
                getattr(suite, name)(*arguments)


def test_comparisons_with_other_libraries_run_at_toy_size():
    """Peers that are not installed have no entry; those that are reach the gap they are timed at."""
    [lasso] = load("groups.lasso").run(True)
    assert lasso["gaps"]["scikit-learn"] <= 1e-4 < 1 > lasso["gaps"]["olsen"]
    [intervals] = load("groups.conformal").run(True)
    assert 0.5 < intervals["olsen"]["coverage"] <= 1
    one_pass = load("groups.one_pass")
    [row] = one_pass.run(True)
    for group, toy in (("lasso", lasso), ("conformal", intervals), ("one_pass", row)):
        assert load(f"groups.{group}").cells(toy)


def test_the_interval_score_is_width_plus_penalties():
    ends = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 2.0]])
    score = load("groups.conformal").interval_score(ends, np.array([0.5, 3.0, 0.5]))
    assert score == pytest.approx((1 + 2 + 1 + 20 * (1.0 + 0.5)) / 3)


def test_the_duality_gap_of_the_exact_lasso_is_zero():
    """On orthogonal columns the lasso is a soft threshold."""
    lasso = load("groups.lasso")
    X = np.sqrt(8) * np.linalg.qr(np.random.default_rng(0).standard_normal((8, 3)))[0]
    y = X @ [1.0, -0.5, 0.1]
    products = X.T @ y / 8
    exact = np.sign(products) * np.maximum(np.abs(products) - 0.2, 0)
    penalties = np.array([0.2])
    assert lasso.gap(X, y, penalties, exact[None]) < 1e-14
    assert lasso.gap(X, y, penalties, np.zeros((1, 3))) > 0.1
