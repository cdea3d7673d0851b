"""The installed package by itself: run by `make dist` in an environment that holds its dependencies and nothing else.

    python -I tests/dist/check_wheel.py

Everything works that needs no extra, and whatever needs one says which. The interpreter is started with -I, so that
neither the source tree nor this folder can be imported from.
"""

import importlib.util
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import olsen

SOURCE = Path(__file__).resolve().parents[2] / "src"
EXTRAS = ("cyclopts", "matplotlib", "pyarrow", "skops", "dask", "distributed", "zarr", "pandas", "polars")
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def data(n=60, p=12):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    return X, X @ rng.standard_normal(p) + rng.standard_normal(n)


def message_without(extra, function, *arguments):
    """What is said where a library is missing: one line that names what to install."""
    try:
        function(*arguments)
    except ImportError as error:
        said = str(error)
        assert "\n" not in said and f"pip install 'olsen[{extra}]'" in said, said
        return
    raise AssertionError("it worked, or failed for another reason")


@check
def the_package_is_the_installed_one():
    assert SOURCE not in Path(olsen.__file__).resolve().parents, olsen.__file__
    present = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not present, f"this environment is not bare: {present}"


@check
def names_resolve():
    names = {}
    exec("from olsen import *", names)
    assert set(olsen.__all__) <= set(names) and dir(olsen) == sorted(olsen.__all__)


@check
def one_member_is_least_squares():
    X, y = data()
    model = olsen.OLSEnsembleRegressor(1, max_features=1.0).fit(X, y)
    expected = np.linalg.lstsq(np.column_stack([X, np.ones(len(y))]), y, rcond=None)[0]
    np.testing.assert_allclose([*model.coef_, model.intercept_], expected, rtol=1e-10)


@check
def the_kernel_agrees_with_lapack():
    X, y = data(300, 80)
    members = olsen.subsets.draw(80, 4000, seed=0, size=40)
    coef, _ = olsen.member_coefficients(X, y, members, solver="gram")
    few, _ = olsen.member_coefficients(X, y, members.slice(0, 5), solver="orthogonal")
    np.testing.assert_allclose(coef[:5], few, rtol=1e-9, atol=1e-12)


@check
def a_size_is_tuned():
    X, y = olsen.datasets.load_soil_carbon(return_X_y=True)
    model = olsen.OLSEnsembleRegressorCV(random_state=0).fit(X[:300, ::20], y[:300])
    assert 1 <= model.max_features_ <= 300 and model.score(X[300:, ::20], y[300:]) > 0.3


@check
def dropout_is_trained_and_solved():
    X, y = data()
    exact = olsen.DropoutRegressor(0.8).fit(X, y)
    trained = olsen.DropoutRegressor(0.8, solver="sgd", random_state=0).fit(X, y)
    assert np.linalg.norm(trained.coef_ - exact.coef_) < 0.05 * np.linalg.norm(exact.coef_)


@check
def intervals_hold_the_prediction():
    X, y = data()
    model = olsen.OLSEnsembleRegressor(50, random_state=0).fit(X, y)
    interval, (mean, std) = model.predict_interval(X, coverage=0.9), model.predict(X, return_std=True)
    assert np.all((interval[:, 0] < mean) & (mean < interval[:, 1])) and np.all(std >= 0)
    assert np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])) > 0.8


@check
def blocks_are_fitted_out_of_core():
    X, y = data()
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        blocks = olsen.OLSEnsembleRegressor(20, random_state=0).fit(str(Path(folder) / "X.npy"), y)
    np.testing.assert_allclose(blocks.coef_, olsen.OLSEnsembleRegressor(20, random_state=0).fit(X, y).coef_)


@check
def theory_and_simulation_agree():
    problem = olsen.simulation.LinearProblem(n=40, p=20, sigma=1.0)
    (found,) = olsen.simulation.run([(problem, olsen.simulation.Ensemble(8, k=(10,)))], trials=200, seed=0)
    expected = olsen.theory.expected_risk(40, 20, 8, 1.0, k=10)
    assert abs(found.mean[0, 0] - expected) < 5 * found.standard_error[0, 0], (found.mean, expected)


@check
def tables_are_written_without_pyarrow():
    with tempfile.TemporaryDirectory() as folder:
        olsen.simulation.write_table({"k": [1.0, 2.0]}, Path(folder) / "t.csv")
        assert olsen.simulation.read_table(Path(folder) / "t.csv") == {"k": [1.0, 2.0]}


@check
def pickles_come_back_in_another_process():
    X, y = data()
    models = [olsen.OLSEnsembleRegressor(20, random_state=0), olsen.OLSEnsembleRegressorCV(20, random_state=0)]
    models = [model.fit(X, y) for model in [*models, olsen.DropoutRegressor(0.8)]]
    code = "import pickle, sys; m, X = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write("
    code += "pickle.dumps([one.predict(X) for one in m]))"
    sent = pickle.dumps((models, X))
    done = subprocess.run([sys.executable, "-I", "-c", code], input=sent, capture_output=True, check=True)
    for model, predicted in zip(models, pickle.loads(done.stdout), strict=True):
        np.testing.assert_array_equal(model.predict(X), predicted)


@check
def the_command_names_its_extra():
    for command in ([Path(sys.executable).with_name("olsen")], [sys.executable, "-I", "-m", "olsen"]):
        done = subprocess.run([*command, "fit"], capture_output=True, text=True)
        assert done.returncode == 1 and not done.stdout, done
        assert done.stderr.startswith("olsen: ") and done.stderr.count("\n") == 1, done.stderr
        assert "pip install 'olsen[cli" in done.stderr, done.stderr


@check
def figures_name_their_extra():
    table = olsen.figures.compute("figure1", "quick")  # the numbers need no extra
    message_without("plot", olsen.figures.draw, "figure1", table)
    with tempfile.TemporaryDirectory() as folder:
        message_without("plot", lambda: olsen.figures.reproduce(["figure1"], scale="quick", out=folder))
        assert not list(Path(folder).iterdir()), "it is said before the work"


@check
def parquet_names_its_extra():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        message_without("parquet", olsen.simulation.write_table, {"k": [1.0]}, path)
        path.write_bytes(b"PAR1")
        message_without("parquet", olsen.simulation.read_table, path)
        message_without("parquet", olsen.OLSEnsembleRegressor().fit, str(path), "y")


@check
def zarr_names_its_extra():
    with tempfile.TemporaryDirectory(suffix=".zarr") as folder:
        message_without("zarr", olsen.OLSEnsembleRegressor().fit, folder, np.ones(3))


def main():
    failed = 0
    for one in CHECKS:
        try:
            one()
            outcome = "ok"
        except Exception as error:
            failed += 1
            outcome = f"FAILED: {type(error).__name__}: {error}"
        print(f"{one.__name__.replace('_', ' ')}: {outcome}", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} in order")
    return min(failed, 1)


if __name__ == "__main__":
    if not sys.flags.isolated:
        sys.exit("run it with python -I, outside of the source tree")
    sys.exit(main())
