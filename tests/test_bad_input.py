"""Bad input: the error names the assumption, the user's numbers and the way out; a fitted estimator stays usable."""

import numpy as np
import pytest

from olsen import OLSEnsembleRegressor, member_coefficients
from olsen._execution import memory
from test_members import random_problem

X, y = random_problem(0)


def spoiled(value):
    bad = X.copy()
    bad[3, 4] = value
    return bad


def broken_target(value):
    bad = y.copy()
    bad[2] = value
    return bad


WEIGHT = np.ones(len(y))
CASES = {
    "nan in X": (spoiled(np.nan), y, None, {}, "contains NaN"),
    "inf in X": (spoiled(np.inf), y, None, {}, "contains infinity"),
    "nan in y": (X, broken_target(np.nan), None, {}, "contains NaN"),
    "inf in y": (X, broken_target(np.inf), None, {}, "contains infinity"),
    "one row": (X[:1], y[:1], None, {}, r"1 sample.*minimum of 2"),
    "no row": (X[:0], y[:0], None, {}, "0 sample"),
    "no column": (X[:, :0], y, None, {}, r"0 feature.*minimum of 1"),
    "rows differ": (X, y[:-1], None, {}, "inconsistent numbers of samples"),
    "probability above one": (X, y, None, {"max_features": np.full(24, 1.2)}, r"\[0, 1\]; 24 do not.*1\.2"),
    "probability below zero": (X, y, None, {"max_features": np.r_[-0.1, np.ones(23)]}, r"-0\.1 for column 0"),
    "no probability": (X, y, None, {"max_features": np.zeros(24)}, "no member would see any column"),
    "too few probabilities": (X, y, None, {"max_features": np.ones(5)}, r"\(5,\), but 24 inclusion"),
    "no feature": (X, y, None, {"max_features": 0}, "max_features=0 must lie between 1 and the 24"),
    "too many features": (X, y, None, {"max_features": 25}, "max_features=25 must lie between 1 and the 24"),
    "fraction above one": (X, y, None, {"max_features": 1.5}, r"max_features=1\.5 is a fraction"),
    "too many samples": (X, y, None, {"max_samples": 61}, "max_samples=61 must lie between 1 and the 60"),
    "weights all zero": (X, y, 0 * WEIGHT, {}, "positive for 0 of 60 rows|at least one non-zero"),
    "one weight": (X, y, np.r_[1.0, 0 * WEIGHT[1:]], {}, "positive for 1 of 60 rows"),
    "negative weight": (X, y, np.r_[-1.0, WEIGHT[1:]], {}, "[Nn]egative values in data passed to `sample_weight`"),
    "wrong weights": (X, y, WEIGHT[:9], {}, "sample_weight.shape"),
    "no members": (X, y, None, {"n_estimators": 0}, "n_estimators=0 must be an int of at least 1"),
    "sampling": (
        X,
        y,
        None,
        {"sampling": "coins"},
        "'coins' is not known; choose one of 'fixed', 'bernoulli'",
    ),
    "design": (X, y, None, {"design": "latin"}, "design='latin' is not known"),
    "solver": (X, y, None, {"solver": "svd"}, "solver='svd' is not known"),
    "mixing": (X, y, None, {"mixing": "median"}, "mixing='median' is not known"),
    "scale": (X, y, None, {"scale": np.nan}, "scale=nan must be a finite number"),
    "seed": (X, y, None, {"random_state": -3}, "random_state=-3 must not be negative"),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals_leave_the_fit_alone(case):
    bad_X, bad_y, weight, params, message = CASES[case]
    model = OLSEnsembleRegressor(5, 0.3, random_state=0).fit(X, y)
    before = model.predict(X)
    defaults = model.get_params()
    with pytest.raises(ValueError, match=message):
        model.set_params(**params).fit(bad_X, bad_y, weight)
    model.set_params(**defaults)
    np.testing.assert_array_equal(model.predict(X), before)


def test_text_columns_are_named():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, :3], columns=list("abc")).assign(soil="clay", region="north")
    with pytest.raises(ValueError, match=r"2 of 5 columns do not hold numbers: 'soil', 'region'\. Encode them first"):
        OLSEnsembleRegressor(5).fit(frame, y)
    with pytest.raises(ValueError, match="do not hold numbers"):
        member_coefficients(frame, y, [[0]])


def test_text_in_an_array_is_refused():
    text = X.astype(object)
    text[0, 0] = "clay"
    with pytest.raises(ValueError, match="clay"):
        OLSEnsembleRegressor(5).fit(text, y)


def test_predict_checks_count_and_names():
    pd = pytest.importorskip("pandas")
    model = OLSEnsembleRegressor(5).fit(X, y)
    with pytest.raises(ValueError, match="X has 23 features, but OLSEnsembleRegressor is expecting 24"):
        model.predict(X[:, :-1])
    named = OLSEnsembleRegressor(5).fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), y)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(pd.DataFrame(X[:, :2], columns=["a", "z"]))


def test_constant_target_warns_and_predicts_it():
    with pytest.warns(UserWarning, match=r"y holds one value, 4, in all 60 rows"):
        model = OLSEnsembleRegressor(5).fit(X, np.full(60, 4.0))
    np.testing.assert_allclose(model.predict(X), 4.0)
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-15)


@pytest.mark.parametrize(("size", "warns"), [(17, True), (18, True), (20, True), (16, False), (21, False)])
def test_sizes_at_the_interpolation_peak_warn(size, warns):
    few = X[:20]
    model = OLSEnsembleRegressor(5, size, random_state=0)
    if warns and size != 17:
        with pytest.warns(UserWarning, match=rf"{size} columns and 20 rows less one for the intercept.*at most 17"):
            model.fit(few, y[:20])
    else:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(few, y[:20])


def test_a_gram_matrix_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e8)
    wide = np.random.default_rng(0).standard_normal((10, 6000))
    with pytest.raises(MemoryError, match=r"6000 columns needs 288 MB, but 100 MB of memory are free"):
        OLSEnsembleRegressor(5, 4, solver="gram").fit(wide, wide[:, 0])
    model = OLSEnsembleRegressor(5, 4, random_state=0).fit(wide, wide[:, 0])
    assert model.solver_ == "member_gram"


def test_intervals_check_their_arguments():
    model = OLSEnsembleRegressor(5, 0.3).fit(X, y)
    with pytest.raises(ValueError, match=r"coverage=1.5 must be a number strictly between 0 and 1"):
        model.predict_interval(X, coverage=1.5)
    with pytest.raises(ValueError, match="method='bootstrap' is not known"):
        model.predict_interval(X, method="bootstrap")


def test_member_coefficients_checks_its_subsets():
    with pytest.raises(ValueError, match="2 feature subsets but 1 sample subsets"):
        member_coefficients(X, y, [[0], [1]], [range(9)])
    with pytest.raises(ValueError, match="only 24 items"):
        member_coefficients(X, y, [[24]])
