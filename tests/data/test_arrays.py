"""Everything follows X: other array libraries give the host's numbers, in their own namespace and
on their device.
"""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.utils.fixes import parse_version

from loops import assert_refused, case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data import moments
from olsen._execution import arrays
from olsen._members import masked_cg
from random_problems import linear_data


@pytest.fixture(params=["array_api_strict", "torch", "cupy"], autouse=True)
def xp(request, monkeypatch):
    module = pytest.importorskip(request.param)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with sklearn.config_context(array_api_dispatch=True):
        yield module


def data(seed, q=None):
    return linear_data(seed, 150, 40, q, far=3.0)


def host(array):
    return np.asarray(array.get() if hasattr(array, "get") else array)


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(20, 0.4, random_state=seed, **settings)


def assert_same(model, expected, X, device_X, atol=1e-8):
    prediction = model.predict(device_X)
    assert type(model.coef_) is type(prediction) is type(device_X)
    assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=atol)
    assert_allclose(host(model.intercept_), expected.intercept_, rtol=10 * atol)
    assert_allclose(host(prediction), expected.predict(X), rtol=0, atol=10 * atol)


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


def test_fit_and_predict_as_on_the_host(xp, seed):
    X, y, weight = data(seed)
    device_X = xp.asarray(X)
    for settings, weighted in product(SETTINGS, (False, True)):
        if weighted and "sampling" in settings:
            continue  # repeated rows count there
        with case(settings, weighted):
            expected = ensemble(seed, **(settings | {"solver": "auto"}))
            expected.fit(X, y, weight if weighted else None)
            model = ensemble(seed, **settings)
            model.fit(device_X, xp.asarray(y), xp.asarray(weight) if weighted else None)
            assert model.coef_.dtype == xp.float64
            assert_same(model, expected, X, device_X)
    X, Y, _ = data(seed, q=3)
    device_X = xp.asarray(X)
    model = ensemble(seed).fit(device_X, xp.asarray(Y))
    assert_same(model, ensemble(seed).fit(X, Y), X, device_X)


def test_types_of_rows(xp, seed):
    """Single precision with means 1000 times the spread: sums in single precision would keep two
    digits.
    """
    X, y, _ = data(seed)
    single = (X + 1000).astype(np.float32)
    model = ensemble(seed).fit(xp.asarray(single), xp.asarray(y.astype(np.float32)))
    assert model.coef_.dtype == xp.float32
    expected = ensemble(seed).fit(single.astype(np.float64), y).coef_
    assert_allclose(host(model.coef_), expected, rtol=0, atol=1e-5)
    whole_numbers = np.rint(10 * X)
    model = ensemble(seed).fit(xp.asarray(whole_numbers.astype(np.int64)), xp.asarray(y))
    assert_same(
        model, ensemble(seed).fit(whole_numbers, y), whole_numbers, xp.asarray(whole_numbers)
    )
    for dtype in (np.float32, np.int64, np.int8):
        prediction = model.predict(xp.asarray(whole_numbers.astype(dtype)))
        assert prediction.dtype == model.coef_.dtype
        assert_allclose(host(prediction), host(model.predict(xp.asarray(whole_numbers))))


TUNED = [
    OLSEnsembleRegressorCV(20),
    OLSEnsembleRegressorCV(20, cv=3, fit_intercept=False),
    OLSEnsembleRegressorCV("auto", cv="gcv"),
    OLSEnsembleRegressorCV(20, max_features=[3, 9, 20]),
    OLSEnsembleRegressorCV(np.inf, sampling="determinantal"),
    OLSEnsembleRegressorCV(20, sampling="determinantal"),
    AdaptiveOLSEnsembleRegressor(n_estimators=20),
    AdaptiveOLSEnsembleRegressor(n_estimators=20, cv=3, fit_intercept=False),
    AdaptiveOLSEnsembleRegressor(),
]


@pytest.mark.parametrize("room", ["room for all", "room for seven copies"])
def test_sizes_and_weights_are_chosen_as_in_blocks(room, xp, seed, monkeypatch):
    """Folds are the same, also where moments do not fit beside the data and go to the host."""
    if room != "room for all":
        monkeypatch.setattr(arrays.Space, "batch_bytes", lambda *_: 8.0 * 40**2 * 3 * 7)
    for q in (None, 2):
        X, Y, weight = data(seed, q=q)
        X[:, 1] = X[:, 0]
        X[:, 2] = 7.3
        Y = Y + 15 * np.random.default_rng(seed).standard_normal(Y.shape)
        for rows, model in product(((X, Y), (X, Y, weight)), TUNED):
            model = clone(model).set_params(random_state=seed)
            expected = clone(model).fit(iter([rows]), None)
            model.fit(*(xp.asarray(a) for a in rows))
            with case(q, len(rows), model):
                assert model.n_estimators_ == expected.n_estimators_
                assert model.criterion_ == expected.criterion_
                assert model.scale_ == pytest.approx(expected.scale_, rel=1e-8)
                if isinstance(model, OLSEnsembleRegressorCV):
                    assert model.max_features_ == pytest.approx(expected.max_features_, rel=1e-8)
                else:
                    weights = expected.cv_results_["weight"]
                    assert_allclose(model.cv_results_["weight"], weights, rtol=0, atol=1e-8)
                scores = expected.cv_results_["mean_test_score"]
                assert_allclose(model.cv_results_["mean_test_score"], scores, rtol=1e-8)
                assert_same(model, expected, X, xp.asarray(X))


def test_dependent_columns_are_solved_from_the_data(xp, seed):
    X, y, _ = data(seed)
    X[:, 1] = X[:, 0]
    X[:, 2] = 7.3
    X[:, 3] = 0.0
    expected = ensemble(seed).fit(X, y)
    for solver in ("auto", "gram"):
        model = ensemble(seed, solver=solver).fit(xp.asarray(X), xp.asarray(y))
        assert_same(model, expected, X, xp.asarray(X))
        assert model.n_fallbacks_ == expected.n_fallbacks_


def test_members_given_up_are_factored_on_the_device(xp, seed, monkeypatch):
    X, y, _ = data(seed)
    expected = ensemble(seed).fit(X, y)
    monkeypatch.setattr(masked_cg, "MAX_STEPS", 4)
    with pytest.warns(UserWarning, match="20 of 20 members"):
        model = ensemble(seed).fit(xp.asarray(X), xp.asarray(y))
    assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-10)


def test_bad_data_are_refused_and_change_nothing(xp, seed):
    X, y, weight = data(seed)
    row_5 = np.arange(150) == 5
    with_nan = np.column_stack([np.where(row_5, np.nan, y), X])
    one_row = (np.arange(150) < 1).astype(float)
    plain = OLSEnsembleRegressor(5)
    half = OLSEnsembleRegressorCV(5, max_samples=0.5)
    cases = [
        (plain, (with_nan, y), "1 missing value in 1 of 150", "row 5 (counted from 0), column 0"),
        (plain, (X, np.where(row_5, np.inf, y)), "y contains infinity: 1 infinite value", "row 5"),
        (plain, (X, y[:-1]), "(149,)", "150 rows"),
        (plain, (X[0], y), "(40,)"),
        (plain, (X, y, weight[:-1]), "(149,)", "150 rows"),
        (plain, (X, y, -weight), "negative"),
        (plain, (X, y, one_row), "positive for 1 of 150 rows", "at least 2"),
        (plain, (X + 1j, y), "X is of type", "complex"),
        (half, (np.tile(X, (7, 1)), np.tile(y, 7)), "max_samples=1.0"),
        (OLSEnsembleRegressorCV(5, cv=160), (X, y), "cv=160", "150 rows"),
        (AdaptiveOLSEnsembleRegressor(cv=160), (X, y), "cv=160", "150 rows"),
    ]
    for model, arguments, *facts in cases:
        with case(*facts):
            assert_refused(model, [*map(xp.asarray, arguments)], *facts)
    fitted = OLSEnsembleRegressor(5).fit(xp.asarray(X), xp.asarray(y))
    for new_X, fact in ((X[:, :3], "3 features"), (X[0], r"\(40,\)"), (X + 1j, "complex")):
        with pytest.raises(ValueError, match=fact):
            fitted.predict(xp.asarray(new_X))


def test_mixed_devices_are_refused(xp, seed):
    X, y, _ = data(seed)
    model = OLSEnsembleRegressor(5)
    with pytest.raises((ValueError, TypeError), match=r"(?i)different places|multiple namespaces"):
        model.fit(xp.asarray(X), y)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "n_features_in_")
    model.fit(xp.asarray(X), xp.asarray(y))
    with pytest.raises(ValueError, match=r"coef_ is .*, X is host"):
        model.predict(X)
    if not hasattr(xp, "Device"):
        return  # array-api-strict has devices that can be distinguished
    device = xp.Device("device1")
    with pytest.raises(
        ValueError, match=r"X is array_api_strict on .*CPU.*, y is array_api_strict on .*device1"
    ):
        OLSEnsembleRegressor(5).fit(xp.asarray(X), xp.asarray(y, device=device))
    device_rows = [xp.asarray(a, device=device) for a in (X, y)]
    assert OLSEnsembleRegressor(5, random_state=0).fit(*device_rows).coef_.device == device


def test_a_device_that_runs_out_of_memory_leaves_no_attributes(xp, seed, monkeypatch):
    class OutOfMemoryError(RuntimeError):
        """The name of the errors of torch and cupy."""

    def fail(*args, **kwargs):
        raise OutOfMemoryError("tried to allocate 3 GiB")

    X, y, _ = data(seed)
    model = OLSEnsembleRegressor(5)
    monkeypatch.setattr(moments, "_squares_elsewhere", fail)
    with pytest.raises(OutOfMemoryError, match="3 GiB"):
        model.fit(xp.asarray(X), xp.asarray(y))
    assert not hasattr(model, "coef_")


def test_dispatch_leaves_everything_else_as_it_is(xp, seed):
    """Data frames, sparse matrices, lists and Dask arrays are not arrays of another library."""
    pd = pytest.importorskip("pandas")
    da = pytest.importorskip("dask.array")
    X, y, _ = data(seed)
    expected = OLSEnsembleRegressor(5, random_state=seed).fit(X, y)
    rows = [(sp.csr_array(X), y), (da.from_array(X), da.from_array(y))]
    if parse_version(sklearn.__version__) >= parse_version("1.8"):  # it refused them before
        rows += [(pd.DataFrame(X), y), (X.tolist(), y)]
    for X, y in rows:
        model = OLSEnsembleRegressor(5, random_state=seed).fit(X, y)
        assert isinstance(model.coef_, np.ndarray)
        assert_allclose(model.coef_, expected.coef_, atol=1e-10)


def test_without_dispatch_nothing_changes(xp, seed):
    pd = pytest.importorskip("pandas")
    da = pytest.importorskip("dask.array")
    X, y, _ = data(seed)
    device_rows = xp.asarray(X), xp.asarray(y)
    fitted = OLSEnsembleRegressor(5, random_state=0).fit(*device_rows)
    message = rf"coef_ is an array of {xp.__name__} .*array_api_dispatch=True"
    with sklearn.config_context(array_api_dispatch=False):
        assert arrays.space_of(device_rows[0]) is None
        if xp.__name__ == "torch":
            model = OLSEnsembleRegressor(5, random_state=0).fit(*device_rows)
            assert isinstance(model.coef_, np.ndarray)
        for X_on_host in (X, pd.DataFrame(X), da.from_array(X)):
            with pytest.raises(ValueError, match=message):
                fitted.predict(X_on_host)
