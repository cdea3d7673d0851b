"""Everything follows X: other array libraries give the host's numbers, in their own namespace and on their device."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.utils.fixes import parse_version

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._execution import arrays
from olsen._members import masked_cg
from olsen._moments import moments


@pytest.fixture(params=["array_api_strict", "torch", "cupy"], autouse=True)
def xp(request, monkeypatch):
    module = pytest.importorskip(request.param)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=True):
        yield module


def data(seed, n=150, p=40, q=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 3
    Y = X @ rng.standard_normal((p, q or 1)) + rng.standard_normal((n, q or 1))
    return X, Y if q else Y[:, 0], rng.integers(0, 3, n).astype(float)


def host(array):
    return np.asarray(array.get() if hasattr(array, "get") else array)


SETTINGS = [
    {},
    {"fit_intercept": False},
    {"max_samples": 0.5},
    {"max_samples": 12},
    {"sampling": "bernoulli"},
    {"scale": 0.8},
    {"solver": "gram"},
    {"solver": "gram", "max_samples": 0.5},
    {"solver": "orthogonal"},
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_fit_and_predict_as_on_the_host(xp, settings, weighted, seed):
    X, y, weight = data(seed)
    weight = weight if weighted else None
    if weighted:
        settings = {name: value for name, value in settings.items() if name != "sampling"}  # repeated rows count there
    expected = OLSEnsembleRegressor(20, 0.4, random_state=seed, **(settings | {"solver": "auto"})).fit(X, y, weight)
    given = [None if a is None else xp.asarray(a) for a in (X, y, weight)]
    model = OLSEnsembleRegressor(20, 0.4, random_state=seed, **settings).fit(*given)
    assert type(model.coef_) is type(given[0]) and model.coef_.dtype == xp.float64
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(host(model.intercept_), expected.intercept_, rtol=1e-7)
    predicted = model.predict(given[0])
    assert type(predicted) is type(given[0])
    np.testing.assert_allclose(host(predicted), expected.predict(X), rtol=0, atol=1e-7)


def test_several_targets(xp, seed):
    X, Y, _ = data(seed, q=3)
    expected = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(X, Y)
    model = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(xp.asarray(X), xp.asarray(Y))
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(host(model.predict(xp.asarray(X))), expected.predict(X), rtol=0, atol=1e-7)


def test_single_precision_is_summed_in_double(xp, seed):
    """The means are 1000 times the spread: sums in single precision would keep two digits."""
    X, y, _ = data(seed)
    X = (X + 1000).astype(np.float32)
    expected = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(X.astype(np.float64), y)
    model = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(xp.asarray(X), xp.asarray(y.astype(np.float32)))
    assert model.coef_.dtype == xp.float32
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-5)


def test_integers_have_floating_coefficients(xp, seed):
    X, y, _ = data(seed)
    X = np.rint(10 * X).astype(np.int64)
    expected = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(X, y)
    model = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(xp.asarray(X), xp.asarray(y))
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-8)


TUNING = [{}, {"cv": 3, "fit_intercept": False}, {"cv": "gcv", "n_estimators": np.inf}, {"max_features": [3, 9, 20]}]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [None, 2])
@pytest.mark.parametrize("settings", TUNING, ids=str)
def test_sizes_are_chosen_as_in_blocks(xp, settings, q, weighted, seed):
    """The same rows in the same folds, those of weight zero left out."""
    X, Y, weight = data(seed, q=q)
    Y = Y + 15 * np.random.default_rng(seed).standard_normal(Y.shape)
    rows = (X, Y, weight) if weighted else (X, Y)
    settings = {"n_estimators": 20, "random_state": seed} | settings
    expected = OLSEnsembleRegressorCV(**settings).fit(iter([rows]), None)
    model = OLSEnsembleRegressorCV(**settings).fit(*(xp.asarray(a) for a in rows))
    assert (model.max_features_, model.n_estimators_) == (expected.max_features_, expected.n_estimators_)
    assert (model.criterion_, model.inclusion_kind_) == (expected.criterion_, expected.inclusion_kind_)
    assert model.scale_ == pytest.approx(expected.scale_, rel=1e-8)
    np.testing.assert_allclose(model.cv_results_["mse"], expected.cv_results_["mse"], rtol=1e-8)
    given = xp.asarray(X)
    assert type(model.coef_) is type(given) and model.coef_.dtype == given.dtype
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(host(model.predict(given)), expected.predict(X), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "n", "message"),
    [
        ({"mixing": "stacking"}, 150, "on a device only mixing='mean'"),
        ({"cv": 40}, 41, "41 rows are too few for 40 folds"),
    ],
    ids=str,
)
def test_tuning_that_cannot_be_done_on_a_device_is_refused(xp, settings, n, message, seed):
    X, y, _ = data(seed, n=n)
    model = OLSEnsembleRegressorCV(5, **settings)
    with pytest.raises(ValueError, match=message):
        model.fit(xp.asarray(X), xp.asarray(y))
    assert vars(model).keys() == vars(OLSEnsembleRegressorCV()).keys()


def test_dependent_columns_are_solved_from_the_data(xp, seed):
    X, y, _ = data(seed)
    X[:, 1], X[:, 2], X[:, 3] = X[:, 0], 7.3, 0.0
    expected = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(X, y)
    for solver in ("auto", "gram"):
        model = OLSEnsembleRegressor(20, 0.4, random_state=seed, solver=solver).fit(xp.asarray(X), xp.asarray(y))
        np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-8)
        assert model.n_fallbacks_ == expected.n_fallbacks_


def test_members_given_up_are_factored_on_the_device(xp, seed, monkeypatch):
    X, y, _ = data(seed)
    expected = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(X, y)
    monkeypatch.setattr(masked_cg, "MAX_STEPS", 4)
    with pytest.warns(UserWarning, match="20 of 20 members did not converge"):
        model = OLSEnsembleRegressor(20, 0.4, random_state=seed).fit(xp.asarray(X), xp.asarray(y))
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-10)


def test_mixed_places_are_refused_and_leave_nothing_behind(xp, seed):
    X, y, _ = data(seed)
    model = OLSEnsembleRegressor(5)
    with pytest.raises((ValueError, TypeError), match=r"(?i)different places|multiple namespaces"):
        model.fit(xp.asarray(X), y)
    assert not hasattr(model, "coef_") and not hasattr(model, "n_features_in_")
    model.fit(xp.asarray(X), xp.asarray(y))
    with pytest.raises(ValueError, match=r"coef_ is .*, X is host"):
        model.predict(X)


def test_mixed_devices_are_refused(xp, seed):
    if not hasattr(xp, "Device"):
        pytest.skip("array-api-strict has devices to tell apart")
    X, y, _ = data(seed)
    elsewhere = xp.Device("device1")
    with pytest.raises(ValueError, match=r"X is array_api_strict on .*CPU.*, y is array_api_strict on .*device1"):
        OLSEnsembleRegressor(5).fit(xp.asarray(X), xp.asarray(y, device=elsewhere))
    model = OLSEnsembleRegressor(5, random_state=0).fit(
        xp.asarray(X, device=elsewhere), xp.asarray(y, device=elsewhere)
    )
    assert model.coef_.device == elsewhere


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.nan}, "X contains NaN"),
        ({"y": np.inf}, "y contains NaN or infinity"),
        ({"short": True}, "y has shape .* but X has 150 rows"),
    ],
    ids=str,
)
def test_bad_input_is_named(xp, change, message, seed):
    X, y, _ = data(seed)
    X[3, 2] = change.get("X", X[3, 2])
    y[5] = change.get("y", y[5])
    y = y[:-1] if "short" in change else y
    model = OLSEnsembleRegressor(5, solver=change.get("solver", "auto"))
    with pytest.raises(ValueError, match=message):
        model.fit(xp.asarray(X), xp.asarray(y))
    assert not hasattr(model, "coef_")


def test_a_device_that_runs_out_of_memory_says_so(xp, seed, monkeypatch):
    class OutOfMemoryError(RuntimeError):
        """What torch and cupy call theirs."""

    def fail(*args, **kwargs):
        raise OutOfMemoryError("tried to allocate 3 GiB")

    X, y, _ = data(seed)
    model = OLSEnsembleRegressor(5)
    monkeypatch.setattr(moments, "_moments_elsewhere", fail)
    with pytest.raises(MemoryError, match=r"150 x 40 \(tried to allocate 3 GiB\).*Gram matrix takes 12.8 kB"):
        model.fit(xp.asarray(X), xp.asarray(y))
    assert not hasattr(model, "coef_")


def test_dispatch_leaves_everything_else_as_it_is(xp, seed):
    """Data frames, sparse matrices, lists and Dask arrays are not arrays of another library."""
    pd, da = pytest.importorskip("pandas"), pytest.importorskip("dask.array")
    X, y, _ = data(seed)
    expected = OLSEnsembleRegressor(5, random_state=seed).fit(X, y)
    given_as = [sp.csr_array(X), da.from_array(X)]
    if parse_version(sklearn.__version__) >= parse_version("1.8"):  # scikit-learn itself refused them before
        given_as += [pd.DataFrame(X), X.tolist()]
    for given in given_as:
        model = OLSEnsembleRegressor(5, random_state=seed).fit(given, da.from_array(y) if hasattr(given, "dask") else y)
        assert isinstance(model.coef_, np.ndarray)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-10)


def test_without_dispatch_nothing_changes(xp, seed):
    X, y, _ = data(seed)
    with sklearn.config_context(array_api_dispatch=False):
        assert arrays.space_of(xp.asarray(X)) is None
        if xp.__name__ == "torch":
            model = OLSEnsembleRegressor(5, random_state=0).fit(xp.asarray(X), xp.asarray(y))
            assert isinstance(model.coef_, np.ndarray)
