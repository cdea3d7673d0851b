"""Everything follows X: other array libraries give the host's numbers, in their own namespace and
on their device.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
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


def assert_same(model, expected, X, given, atol=1e-8):
    assert type(model.coef_) is type(given) and type(model.predict(given)) is type(given)
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=atol)
    np.testing.assert_allclose(host(model.intercept_), expected.intercept_, rtol=10 * atol)
    np.testing.assert_allclose(
        host(model.predict(given)), expected.predict(X), rtol=0, atol=10 * atol
    )


def test_fit_and_predict_as_on_the_host(xp, seed):
    X, y, weight = data(seed)
    for settings in (
        *(
            {},
            {"fit_intercept": False},
            {"max_samples": 0.5},
            {"max_samples": 12},
            {"sampling": "bernoulli"},
        ),
        *(
            {"scale": 0.8},
            {"solver": "gram"},
            {"solver": "gram", "max_samples": 0.5},
            {"solver": "orthogonal"},
        ),
    ):
        for w in (None, weight):
            with case(settings, w is None):
                if w is not None and "sampling" in settings:
                    continue  # repeated rows count there
                expected = ensemble(seed, **(settings | {"solver": "auto"})).fit(X, y, w)
                given = [None if a is None else xp.asarray(a) for a in (X, y, w)]
                model = ensemble(seed, **settings).fit(*given)
                assert model.coef_.dtype == xp.float64
                assert_same(model, expected, X, given[0])
    X, Y, _ = data(seed, q=3)
    assert_same(
        ensemble(seed).fit(xp.asarray(X), xp.asarray(Y)), ensemble(seed).fit(X, Y), X, xp.asarray(X)
    )


def test_types_of_rows(xp, seed):
    """Single precision with means 1000 times the spread: sums in single precision would keep two
    digits.
    """
    X, y, _ = data(seed)
    single = (X + 1000).astype(np.float32)
    model = ensemble(seed).fit(xp.asarray(single), xp.asarray(y.astype(np.float32)))
    assert model.coef_.dtype == xp.float32
    expected = ensemble(seed).fit(single.astype(np.float64), y).coef_
    np.testing.assert_allclose(host(model.coef_), expected, rtol=0, atol=1e-5)
    whole = np.rint(10 * X)
    model = ensemble(seed).fit(xp.asarray(whole.astype(np.int64)), xp.asarray(y))
    assert_same(model, ensemble(seed).fit(whole, y), whole, xp.asarray(whole))
    for dtype in (np.float32, np.int64, np.int8):
        found = model.predict(xp.asarray(whole.astype(dtype)))
        assert found.dtype == model.coef_.dtype
        np.testing.assert_allclose(host(found), host(model.predict(xp.asarray(whole))))


def test_sizes_and_weights_are_chosen_as_in_blocks(xp, seed):
    """The same rows in the same folds, those of weight zero left out."""
    Sizes, Schemes = OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor
    tuning = [
        (Sizes, {}),
        (Sizes, {"cv": 3, "fit_intercept": False}),
        (Sizes, {"cv": "gcv", "n_estimators": "auto"}),
        (Sizes, {"max_features": [3, 9, 20]}),
        (Sizes, {"sampling": "determinantal", "n_estimators": np.inf}),
        (Schemes, {}),
        (Schemes, {"cv": 3, "fit_intercept": False}),
        (Schemes, {"n_estimators": np.inf}),
    ]
    for q in (None, 2):
        X, Y, weight = data(seed, q=q)
        Y = Y + 15 * np.random.default_rng(seed).standard_normal(Y.shape)
        for rows in ((X, Y), (X, Y, weight)):
            for Model, settings in tuning:
                settings = {"n_estimators": 20, "random_state": seed} | settings
                expected = Model(**settings).fit(iter([rows]), None)
                model = Model(**settings).fit(*(xp.asarray(a) for a in rows))
                with case(q, len(rows), Model.__name__, settings):
                    assert (model.n_estimators_, model.criterion_) == (
                        expected.n_estimators_,
                        expected.criterion_,
                    )
                    assert model.scale_ == pytest.approx(expected.scale_, rel=1e-8)
                    if Model is Sizes:
                        assert model.max_features_ == pytest.approx(
                            expected.max_features_, rel=1e-8
                        )
                    else:
                        weights = model.cv_results_["weight"], expected.cv_results_["weight"]
                        np.testing.assert_allclose(*weights, rtol=0, atol=1e-8)
                    scores = (
                        model.cv_results_["mean_test_score"],
                        expected.cv_results_["mean_test_score"],
                    )
                    np.testing.assert_allclose(*scores, rtol=1e-8)
                    assert_same(model, expected, X, xp.asarray(X))


def test_dependent_columns_are_solved_from_the_data(xp, seed):
    X, y, _ = data(seed)
    X[:, 1], X[:, 2], X[:, 3] = X[:, 0], 7.3, 0.0
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
    np.testing.assert_allclose(host(model.coef_), expected.coef_, rtol=0, atol=1e-10)


def test_what_cannot_be_done_is_refused_and_leaves_nothing_behind(xp, seed):
    X, y, weight = data(seed)
    nan = np.where(np.arange(150) == 5, np.nan, y)
    few = (np.arange(150) < 1).astype(float)
    plain, tuned = OLSEnsembleRegressor(5), OLSEnsembleRegressorCV
    cases = [
        (
            plain,
            (np.c_[nan, X], y),
            "X contains NaN: 1 missing value in 1 of 150 rows",
            "row 5 (counted from 0), column 0",
        ),
        (
            plain,
            (X, np.where(np.isnan(nan), np.inf, y)),
            "y contains infinity: 1 infinite value",
            "row 5",
        ),
        (plain, (X, y[:-1]), "(149,)", "150 rows"),
        (plain, (X[0], y), "(40,)"),
        (plain, (X, y, weight[:-1]), "(149,)", "150 rows"),
        (plain, (X, y, -weight), "negative"),
        (plain, (X, y, few), "positive for 1 of 150 rows", "at least 2"),
        (plain, (X + 1j, y), "X is of type", "complex"),
        (tuned(5, max_samples=0.5), (np.tile(X, (7, 1)), np.tile(y, 7)), "max_samples=1.0"),
        (tuned(5, cv=160), (X, y), "cv=160", "150 rows"),
        (AdaptiveOLSEnsembleRegressor(cv=160), (X, y), "cv=160", "150 rows"),
    ]
    for model, given, *facts in cases:
        with case(*facts):
            assert_refused(model, [*map(xp.asarray, given)], *facts)
    fitted = OLSEnsembleRegressor(5).fit(xp.asarray(X), xp.asarray(y))
    for given, fact in ((X[:, :3], "3 features"), (X[0], r"\(40,\)"), (X + 1j, "complex")):
        with pytest.raises(ValueError, match=fact):
            fitted.predict(xp.asarray(given))


def test_mixed_places_are_refused(xp, seed):
    X, y, _ = data(seed)
    model = OLSEnsembleRegressor(5)
    with pytest.raises((ValueError, TypeError), match=r"(?i)different places|multiple namespaces"):
        model.fit(xp.asarray(X), y)
    assert not hasattr(model, "coef_") and not hasattr(model, "n_features_in_")
    model.fit(xp.asarray(X), xp.asarray(y))
    with pytest.raises(ValueError, match=r"coef_ is .*, X is host"):
        model.predict(X)
    if not hasattr(xp, "Device"):
        return  # array-api-strict has devices to tell apart
    elsewhere = xp.Device("device1")
    with pytest.raises(
        ValueError, match=r"X is array_api_strict on .*CPU.*, y is array_api_strict on .*device1"
    ):
        OLSEnsembleRegressor(5).fit(xp.asarray(X), xp.asarray(y, device=elsewhere))
    there = [xp.asarray(a, device=elsewhere) for a in (X, y)]
    assert OLSEnsembleRegressor(5, random_state=0).fit(*there).coef_.device == elsewhere


def test_a_device_that_runs_out_of_memory_leaves_nothing_behind(xp, seed, monkeypatch):
    class OutOfMemoryError(RuntimeError):
        """What torch and cupy call theirs."""

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
    pd, da = pytest.importorskip("pandas"), pytest.importorskip("dask.array")
    X, y, _ = data(seed)
    expected = OLSEnsembleRegressor(5, random_state=seed).fit(X, y)
    given_as = [sp.csr_array(X), da.from_array(X)]
    if parse_version(sklearn.__version__) >= parse_version(
        "1.8"
    ):  # scikit-learn itself refused them before
        given_as += [pd.DataFrame(X), X.tolist()]
    for given in given_as:
        model = OLSEnsembleRegressor(5, random_state=seed).fit(
            given, da.from_array(y) if hasattr(given, "dask") else y
        )
        assert isinstance(model.coef_, np.ndarray)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-10)


def test_without_dispatch_nothing_changes(xp, seed):
    pd, da = pytest.importorskip("pandas"), pytest.importorskip("dask.array")
    X, y, _ = data(seed)
    there = OLSEnsembleRegressor(5, random_state=0).fit(xp.asarray(X), xp.asarray(y))
    with sklearn.config_context(array_api_dispatch=False):
        assert arrays.space_of(xp.asarray(X)) is None
        if xp.__name__ == "torch":
            model = OLSEnsembleRegressor(5, random_state=0).fit(xp.asarray(X), xp.asarray(y))
            assert isinstance(model.coef_, np.ndarray)
        for given in (X, pd.DataFrame(X), da.from_array(X)):
            with pytest.raises(
                ValueError, match=rf"coef_ is an array of {xp.__name__} .*array_api_dispatch=True"
            ):
                there.predict(given)
