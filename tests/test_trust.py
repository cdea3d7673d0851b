"""No silent nonsense: columns that hold one value, columns of zeros, members without rows; in every engine."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn

from olsen import DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV

VALUES = [0.014, 1 / 3, -7.7, 1e6 * np.pi, 1e-7, 0.0]


@pytest.fixture(autouse=True)
def arrays_of_other_libraries(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it before it follows them


def in_blocks(X, y, weight):
    cuts = range(0, len(y), 37)
    return lambda: ((X[i : i + 37], y[i : i + 37], weight[i : i + 37]) for i in cuts), None, None


def dask_arrays(X, y, weight):
    da = pytest.importorskip("dask.array")
    return tuple(da.from_array(a, chunks=(41, -1)[: a.ndim]) for a in (X, y, weight))


def tensors(X, y, weight):
    torch = pytest.importorskip("torch")
    return tuple(torch.asarray(a) for a in (X, y, weight))


ENGINES = {
    "array": lambda *data: data,
    "Fortran order": lambda X, *rest: (np.asfortranarray(X), *rest),
    "float32": lambda X, *rest: (X.astype(np.float32), *rest),
    "csr": lambda X, *rest: (sp.csr_array(X), *rest),
    "blocks": in_blocks,
    "dask": dask_arrays,
    "torch": tensors,
}
SETTINGS = [
    {},
    {"max_samples": 0.6},
    {"max_samples": 0.6, "n_estimators": 300},  # enough work for the compiled kernel
    {"solver": "member_gram", "n_estimators": 400},
    {"solver": "masked_cg"},
    {"solver": "orthogonal"},
    {"max_features": 0.9, "n_estimators": 200},
]


def data_with_a_constant(value, seed, n=200, p=8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 2] = value
    return X, X[:, 3:].sum(axis=1) + rng.standard_normal(n), rng.uniform(0.1, 3, n)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.filterwarnings("ignore:max_samples=0.6 asks for")
def test_a_column_that_holds_one_value_has_no_coefficient(value, engine, settings, seed):
    """And the others are those of the table without it."""
    if engine in ("blocks", "dask", "torch") and settings.get("solver") not in (None, "masked_cg"):
        pytest.skip("this engine has its own solver")
    X, y, weight = data_with_a_constant(value, seed)
    with sklearn.config_context(array_api_dispatch=engine == "torch"):
        model = OLSEnsembleRegressor(20, 0.7, random_state=seed).set_params(**settings)
        model.fit(*ENGINES[engine](X, y, weight))
    coef = np.asarray(model.coef_)
    assert coef[2] == 0
    assert np.abs(coef).max() < 10 and abs(float(model.intercept_)) < 10


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "model",
    [
        OLSEnsembleRegressorCV(30, random_state=0),
        OLSEnsembleRegressorCV(30, cv=4, random_state=0),
        OLSEnsembleRegressorCV(30, cv="gcv", random_state=0),
        OLSEnsembleRegressorCV(30, inclusion="auto", random_state=0),
        DropoutRegressor(0.6),
        DropoutRegressor(0.6, solver="sgd", tol=0.05, random_state=0),
    ],
    ids=str,
)
def test_tuning_and_dropout_know_constant_columns(model, value, seed):
    X, y, weight = data_with_a_constant(value, seed)
    assert model.fit(X, y, weight).coef_[2] == 0


def test_error_curves_do_not_see_a_constant_column(seed):
    """k-fold with weights: the table with and without it has the same curve, up to the draw of the columns."""
    X, y, weight = data_with_a_constant(0.014, seed, n=60, p=6)
    whole = {"max_features": [6], "cv": 5, "inclusion": "uniform", "random_state": seed}
    with_it = OLSEnsembleRegressorCV(5, **whole).fit(X, y, weight)
    without = OLSEnsembleRegressorCV(5, **{**whole, "max_features": [5]}).fit(np.delete(X, 2, axis=1), y, weight)
    np.testing.assert_allclose(with_it.cv_results_["mse"], without.cv_results_["mse"], rtol=1e-9)


@pytest.mark.parametrize("solver", ["auto", "orthogonal", "member_gram"])
def test_a_column_of_zeros_has_no_coefficient_beside_dependent_ones(solver, seed):
    """In the users' units some columns are a thousand million times larger than others."""
    rng = np.random.default_rng(seed)
    X = np.zeros((40, 7))
    X[:, :3] = 1e-9 * rng.standard_normal((40, 3))
    X[:, 3] = X[:, 0] + X[:, 1]
    X[:, 5] = 1e8 * rng.standard_normal(40)
    X[:, 6] = 3 * X[:, 5]
    model = OLSEnsembleRegressor(12, 1.0, solver=solver, random_state=seed).fit(X, rng.standard_normal(40))
    assert model.coef_[4] == 0


@pytest.mark.parametrize("max_samples", [0.1, 0.2, 0.3])
def test_coin_flips_never_leave_a_member_without_rows(max_samples, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((20, 30)), rng.standard_normal(20)
    for state in range(30):
        model = OLSEnsembleRegressor(10, sampling="bernoulli", max_samples=max_samples, random_state=state).fit(X, y)
        assert min(map(len, model.sample_subsets_)) >= 2
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("max_samples", [1, 0.05])
def test_members_of_one_row_are_refused_where_the_intercept_takes_it(max_samples):
    X = np.random.default_rng(0).standard_normal((20, 5))
    with pytest.raises(ValueError, match=r"max_samples=.* gives every member 1 of 20 rows.*float 1\.0"):
        OLSEnsembleRegressor(5, max_samples=max_samples).fit(X, X[:, 0])
    OLSEnsembleRegressor(5, max_samples=max_samples, fit_intercept=False).fit(X, X[:, 0])


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("max_samples", [1.0, 0.6])
@pytest.mark.filterwarnings("error")
def test_what_is_left_out_does_not_depend_on_where_columns_lie(offset, max_samples, seed):
    """Members with more columns than rows: intervals, standard errors and the scale of the same columns, moved."""
    rng = np.random.default_rng(seed)
    X, new = rng.standard_normal((30, 80)), rng.standard_normal((5, 80))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(30)
    model = OLSEnsembleRegressor(20, 50, max_samples, random_state=seed)
    found = [(model.fit(X + c, y).predict_interval(new + c, 0.8), model.predict(new + c, return_std=True)[1])
             for c in (0.0, offset)]  # fmt: skip
    for here, there in zip(*found, strict=True):
        assert np.isfinite(here).all()
        np.testing.assert_allclose(there, here, rtol=1e-12 * offset, atol=1e-12 * offset)
    model.set_params(scale="loo")
    assert model.fit(X + offset, y).scale_ == pytest.approx(model.fit(X, y).scale_, rel=1e-12 * offset)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_rows_have_finite_standard_errors(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    model = OLSEnsembleRegressor(5, 5, random_state=seed).fit(X, rng.standard_normal(n))
    assert np.isfinite(model.predict(X, return_std=True)[1]).all()
