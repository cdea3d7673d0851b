"""The benchmarks run, at toy size. How long anything takes is not looked at."""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
GROUPS = {"fit": 2, "predict": 1, "kernel": 2, "choice": 3, "iteration": 2, "tuning": 2, "fresh": 2}  # rows at toy size
METHODS = ("time_", "peakmem_")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    command = [sys.executable, str(BENCHMARKS / "compare.py"), "--quick", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


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
    rows = json.loads((results / "fit.json").read_text(encoding="utf-8"))["rows"]
    assert all(row["difference"] < 1e-8 for row in rows)


def test_the_iteration_agrees_with_the_direct_solver(results):
    dense, _ = json.loads((results / "iteration.json").read_text(encoding="utf-8"))["rows"]
    assert dense["difference"] < 1e-6


def test_report_holds_every_table(results, tmp_path):
    page = tmp_path / "docs" / "benchmarks.md"
    load("report").main(["--results", str(results), "--page", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "Toy sizes" in text
    for group in GROUPS:
        assert (results / f"{group}.md").read_text(encoding="utf-8") in text


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
