"""The benchmarks run, at toy size. How long anything takes is not looked at."""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
GROUPS = {  # rows at toy size
    "fit": 2, "tables": 4, "growth": 5, "predict": 1, "kernel": 2, "choice": 3, "iteration": 2, "tuned": 3,
    "inclusion": 3, "real": 2, "threads": 7, "intervals": 2, "tuning": 1, "fresh": 2,
}  # fmt: skip
METHODS = ("time_", "peakmem_")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder, data = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("data")
    write_table(data / "tall.csv", n=40, p=6)
    write_table(data / "wide.csv", n=15, p=19)
    command = [sys.executable, str(BENCHMARKS / "compare.py"), "--quick", "--out", str(folder), "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def write_table(path, n, p):
    names = ",".join([*(f"x{j}" for j in range(p)), "target"])
    np.savetxt(path, np.random.default_rng(0).standard_normal((n, p + 1)), delimiter=",", header=names, comments="")


def rows_of(results, group):
    return json.loads((results / f"{group}.json").read_text(encoding="utf-8"))["rows"]


def load(name):
    """A module of the benchmarks, which lie outside the package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_stores_its_rows(results, group):
    stored = json.loads((results / f"{group}.json").read_text(encoding="utf-8"))
    assert stored["quick"] and len(stored["rows"]) == GROUPS[group]
    assert {"cpu", "cores", "blas", "packages", "load_average", "dgemm_gflops", "dgemm_scaling"} <= set(
        stored["machine"]
    )
    for row in stored["rows"]:
        assert {"value", "must", "aim", "verdict"} <= set(row)
        assert isinstance(row["value"], float)
    table = (results / f"{group}.md").read_text(encoding="utf-8").splitlines()
    assert len(table) == 2 + len(stored["rows"])
    assert len({line.count("|") for line in table}) == 1, "all rows of a table have the same columns"


def test_fits_agree_with_least_squares_on_the_same_submatrices(results):
    assert all(row["difference"] < 1e-8 for group in ("fit", "tables") for row in rows_of(results, group))


def test_the_iteration_agrees_with_the_direct_solver(results):
    dense, _ = rows_of(results, "iteration")
    assert dense["difference"] < 1e-6


def test_every_table_of_a_folder_is_fitted(results):
    assert [list(row["shape"].values()) for row in rows_of(results, "real")] == [["tall", 40, 6], ["wide", 15, 19]]


@pytest.mark.parametrize(
    ("data", "said"), [([], "no folder was given"), (["--data", "nowhere"], "nowhere is not there")]
)
def test_without_a_folder_of_tables_their_group_is_skipped(tmp_path, capsys, data, said):
    assert load("compare").main(["--quick", "--only", "real", "--out", str(tmp_path), *data]) == 0
    assert said in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def centred_rank(X):
    return np.linalg.matrix_rank(X - X.mean(axis=0))


def test_one_hot_tables_have_all_levels_of_their_factors(seed):
    X, y = load("problems").one_hot(300, numeric=5, factors=6, levels=30, seed=seed)
    assert X.shape == (300, 35) and y.shape == (300,)
    np.testing.assert_allclose([X.mean(axis=0), X.std(axis=0)], [np.zeros(35), np.ones(35)], atol=1e-12)
    assert [len(np.unique(column)) for column in X.T[5:]] == [2] * 30
    assert centred_rank(X) == 5 + 30 - 6


def test_the_reference_table_has_the_rank_it_is_named_with():
    X, _ = load("groups.tables").REFERENCE()
    assert X.shape == (3000, 328) and centred_rank(X) == 286


def test_a_third_of_duplicated_columns_repeats_others(seed):
    X, _ = load("problems").duplicated(100, 30, seed)
    assert X.shape == (100, 30) and centred_rank(X) == 30 - 10 - 2
    assert np.count_nonzero(np.ptp(X, axis=0) == 0) == 2
    assert np.unique(X, axis=1).shape[1] == 20


def test_correlated_columns_have_the_correlation_of_their_distance(seed):
    n, rho = 4000, 0.9
    found = np.corrcoef(load("problems").correlated(n, 8, rho, seed)[0], rowvar=False)
    expected = rho ** np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    assert np.all(np.abs(found - expected) <= 5 * (1 - expected**2) / np.sqrt(n) + 1e-12)


def test_spectra_are_sums_of_a_few_peaks(seed):
    X, _ = load("problems").spectra(80, 60, seed, peaks=4, noise=1e-6)
    values = np.linalg.svd(X, compute_uv=False)
    assert X.shape == (80, 60) and values[3] > 100 * values[4] > 0


def test_signal_and_noise_have_unit_variance(seed):
    n = 20_000
    X, y = load("problems").correlated(n, 5, 0.5, seed)
    noise = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    assert abs(noise.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs(y.var() - noise.var() - 1) < 5 * 2 / np.sqrt(n)  # twice the covariance of signal and noise


def test_slopes_are_those_of_powers(results):
    growth, rows = load("growth"), rows_of(results, "growth")
    for row in rows:
        shape = row["shape"]
        row["seconds"] = {str(k): 1e-9 * shape["n"] * shape["p"] ** 2 * shape["m"] ** 3 * k for k in row["members"]}
    found = [growth.slope(*growth.sweep(rows, letter, rows[0]["members"][0])) for letter in "npm"]
    np.testing.assert_allclose(found, [1, 2, 3])


def test_report_holds_every_table(results, tmp_path):
    page = tmp_path / "docs" / "benchmarks.md"
    load("report").main(["--results", str(results), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "Toy sizes" in text
    for group in GROUPS:
        assert (results / f"{group}.md").read_text(encoding="utf-8") in text
    assert "](images/growth.png)" in text and (page.parent / "images" / "growth.png").stat().st_size > 0


def test_growth_is_drawn_and_its_slopes_printed(results, tmp_path, capsys):
    load("growth").main(["--results", str(results), "--out", str(tmp_path / "growth.png")])
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    assert "in rows n (40 to 80, p = 20, m = 5)" in capsys.readouterr().out


def test_report_without_results_says_what_to_run(tmp_path, capsys):
    with pytest.raises(SystemExit):
        load("report").main(["--results", str(tmp_path)])
    assert "compare.py" in capsys.readouterr().err


def asv_classes():
    modules = [load(f"asv_suite.{path.stem}") for path in suite_files()]
    found = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    return sorted((c for c in found if c.__module__.startswith("asv_suite.")), key=lambda c: c.__name__)


def suite_files():
    return sorted(path for path in (BENCHMARKS / "asv_suite").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("cls", asv_classes(), ids=lambda c: c.__name__)
def test_asv_suite_runs_once(cls):
    arguments = cls.params[:1] if hasattr(cls, "params") else ()
    suite = cls()
    suite.setup(*arguments)
    names = [name for name in vars(cls) if name.startswith(METHODS)]
    assert names
    for name in names:
        getattr(suite, name)(*arguments)


def test_asv_configuration_points_at_the_suite():
    settings = json.loads((BENCHMARKS / "asv.conf.json").read_text(encoding="utf-8"))
    assert (BENCHMARKS / settings["benchmark_dir"]).is_dir()
