"""The installed package by itself: run by `make dist` in an environment that holds its dependencies and nothing else.

    python -I -m pytest --noconftest tests/dist/check_wheel.py

Everything works that needs no extra, and whatever needs one says which. The interpreter is started with -I, so that
the source tree cannot be imported from.
"""

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import olsen

SOURCE = Path(__file__).resolve().parents[2] / "src"
EXTRAS = ("cyclopts", "matplotlib", "pyarrow", "skops", "dask", "distributed", "pandas", "polars")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12))
    return X, X @ rng.standard_normal(12) + rng.standard_normal(60)


def test_the_package_is_the_installed_one():
    assert SOURCE not in Path(olsen.__file__).resolve().parents, olsen.__file__
    present = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not present, f"this environment is not bare: {present}"
    names = {}
    exec("from olsen import *", names)
    assert set(olsen.__all__) <= set(names) and dir(olsen) == sorted(olsen.__all__)


def test_one_member_is_least_squares(data):
    X, y = data
    model = olsen.OLSEnsembleRegressor(1, max_features=1.0).fit(X, y)
    expected = np.linalg.lstsq(np.column_stack([X, np.ones(len(y))]), y, rcond=None)[0]
    np.testing.assert_allclose([*model.coef_, model.intercept_], expected, rtol=1e-10)


def test_the_kernel_agrees_with_lapack():
    X, y = np.split(np.random.default_rng(0).standard_normal((300, 81)), [80], axis=1)
    members = olsen.subsets.draw(80, 4000, rng=0, size=40)
    coef, _ = olsen.member_coefficients(X, y[:, 0], members, solver="gram")
    few, _ = olsen.member_coefficients(X, y[:, 0], members.slice(0, 5), solver="orthogonal")
    np.testing.assert_allclose(coef[:5], few, rtol=1e-9, atol=1e-12)


def test_a_size_is_tuned():
    X, y = olsen.datasets.load_soil_carbon(return_X_y=True)
    model = olsen.OLSEnsembleRegressorCV(random_state=0).fit(X[:300, ::20], y[:300])
    assert 1 <= model.max_features_ <= 300 and model.score(X[300:, ::20], y[300:]) > 0.3


def test_schemes_are_weighted():
    X, y = olsen.datasets.load_soil_carbon(return_X_y=True)
    model = olsen.AdaptiveOLSEnsembleRegressor(random_state=0).fit(X[:300, ::20], y[:300])
    weights = sum(model.scheme_weights_.values())
    assert abs(weights - 1) < 1e-9 and model.score(X[300:, ::20], y[300:]) > 0.3


def test_dropout_is_trained_and_solved(data):
    exact = olsen.DropoutRegressor(0.8).fit(*data)
    trained = olsen.DropoutRegressor(0.8, solver="sgd", random_state=0).fit(*data)
    assert np.linalg.norm(trained.coef_ - exact.coef_) < 0.05 * np.linalg.norm(exact.coef_)


def test_intervals_hold_the_prediction_also_after_a_fit_from_a_file(data, tmp_path):
    X, y = data
    model = olsen.OLSEnsembleRegressor(50, random_state=0).fit(X, y)
    interval = model.predict_interval(X, coverage=0.9)
    mean, std = model.predict(X, return_std=True)
    assert np.all((interval[:, 0] < mean) & (mean < interval[:, 1])) and np.all(std >= 0)
    assert np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])) > 0.8
    np.save(tmp_path / "X.npy", X)
    blocks = olsen.OLSEnsembleRegressor(50, random_state=0).fit(str(tmp_path / "X.npy"), y)
    np.testing.assert_allclose(blocks.coef_, model.coef_)


def test_theory_and_simulation_agree():
    problem = olsen.simulation.LinearProblem(n=40, p=20, sigma=1.0)
    (estimate,) = olsen.simulation.run([(problem, olsen.simulation.Ensemble(8, k=(10,)))], trials=200, rng=0)
    expected = olsen.theory.expected_risk(40, 20, 8, 1.0, k=10)
    assert abs(estimate.mean[0, 0] - expected) < 5 * estimate.standard_error[0, 0], (estimate.mean, expected)


def test_pickles_come_back_in_another_process(data):
    X, _ = data
    classes = olsen.OLSEnsembleRegressor, olsen.OLSEnsembleRegressorCV, olsen.AdaptiveOLSEnsembleRegressor
    models = [cls(n_estimators=20, random_state=0) for cls in classes]
    models = [model.fit(*data) for model in [*models, olsen.DropoutRegressor(0.8)]]
    code = "import pickle, sys; m, X = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write("
    code += "pickle.dumps([one.predict(X) for one in m]))"
    sent = pickle.dumps((models, X))
    done = subprocess.run([sys.executable, "-I", "-c", code], input=sent, capture_output=True, check=True)
    for model, predicted in zip(models, pickle.loads(done.stdout), strict=True):
        np.testing.assert_array_equal(model.predict(X), predicted)


def test_the_command_names_its_extra():
    for command in ([Path(sys.executable).with_name("olsen")], [sys.executable, "-I", "-m", "olsen"]):
        done = subprocess.run([*command, "fit"], capture_output=True, text=True)
        assert done.returncode == 1 and not done.stdout, done
        assert done.stderr.startswith("olsen: ") and done.stderr.count("\n") == 1, done.stderr
        assert "pip install 'olsen[cli" in done.stderr, done.stderr


def test_missing_extras_are_named(tmp_path):
    """In one line, and before the work."""
    figures = olsen.figures
    fit = olsen.OLSEnsembleRegressor().fit
    table = figures.compute("figure1", "quick")
    out = tmp_path / "out"
    (tmp_path / "read.parquet").write_bytes(b"PAR1")
    for extra, asked in (
        ("plot", lambda: figures.draw("figure1", table)),  # its numbers need no extra
        ("plot", lambda: figures.reproduce(["figure1"], scale="quick", out=out)),
        ("parquet", lambda: fit(str(tmp_path / "read.parquet"), "y")),
        ("parquet", lambda: olsen.TableEncoder().fit([[1.0], [2.0]])),
    ):
        with pytest.raises(ImportError) as caught:
            asked()
        said = str(caught.value)
        assert "\n" not in said and f"pip install 'olsen[{extra}]'" in said, said
    assert not out.exists() or not list(out.iterdir())
