"""No silent nonsense: constant columns, columns of zeros, members without rows; in every engine."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from engines import engines
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
)
from random_problems import random_problem

VALUES = [0.014, 1 / 3, -7.7, 1e6 * np.pi, 1e-7, 0.0]


@pytest.fixture(autouse=True)
def arrays_of_other_libraries(monkeypatch):
    """Set the variable without which scikit-learn follows no other library."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


CONTAINERS = {  # of rows in memory
    "array": np.asarray,
    "Fortran order": np.asfortranarray,
    "float32": np.float32,
    "csr": sp.csr_array,
}
ENGINES = {engine.name: engine for engine in engines(None, ("blocks", "dask", "torch"))}
SETTINGS = [
    {},
    {"max_samples": 0.6},
    {"max_samples": 0.6, "n_estimators": 300},
    {"solver": "gram", "max_samples": 0.9, "n_estimators": 400},
    {"solver": "masked_cg"},
    {"solver": "orthogonal"},
    {"max_features": 0.9, "n_estimators": 200},
]


def data_with_a_constant(value, seed, n=200, p=8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 2] = value
    return X, X[:, 3:].sum(axis=1) + rng.standard_normal(n), rng.uniform(0.1, 3, n)


def fit(engine, model, X, y, weights):
    """Fit a model by the name of an engine or a container; its coefficients in the host's memory."""
    if engine in ENGINES:
        return np.asarray(ENGINES[engine].fit(model, X, y, weights).coef_)
    return model.fit(CONTAINERS[engine](X), y, weights).coef_


@pytest.mark.parametrize("engine", [*CONTAINERS, *ENGINES])
def test_a_constant_column_has_coefficient_zero(engine, seed):
    for value, settings in product(VALUES, SETTINGS):
        if engine in ENGINES and settings.get("solver") in ("gram", "orthogonal"):
            continue  # blocks, Dask and devices have solvers of their own
        if engine in ("blocks", "dask") and "max_samples" in settings:
            continue  # members see all rows
        with case(value, settings):
            model = OLSEnsembleRegressor(20, 0.7, random_state=seed).set_params(**settings)
            coef = fit(engine, model, *data_with_a_constant(value, seed))
            assert coef[2] == 0 and np.abs(coef).max() < 10 and abs(float(model.intercept_)) < 10


def test_tuning_and_dropout_give_constant_columns_coefficient_zero(seed):
    models = [DropoutRegressor(0.6), DropoutRegressor(0.6, solver="sgd", tol=0.05, random_state=0)]
    for cv in (None, 4, "gcv"):
        models.append(OLSEnsembleRegressorCV(30, cv=cv, random_state=0))
        models.append(OLSEnsembleRegressorCV(cv=cv, sampling="determinantal"))
    for cv in (None, 4):
        models.append(AdaptiveOLSEnsembleRegressor(n_estimators=30, cv=cv, random_state=0))
    for model, value in product(models, VALUES):
        with case(model, value):
            assert model.fit(*data_with_a_constant(value, seed)).coef_[2] == 0


def test_error_curves_with_weights_ignore_constant_columns(seed):
    X, y, weights = data_with_a_constant(0.014, seed, n=60, p=6)
    scores = []
    for columns in (X, np.delete(X, 2, axis=1)):
        model = OLSEnsembleRegressorCV(5, [columns.shape[1]], cv=5, random_state=seed)
        scores.append(model.fit(columns, y, weights).cv_results_["mean_test_score"])
    assert_allclose(*scores, rtol=1e-9)


@pytest.mark.parametrize("solver", ["auto", "orthogonal", "gram"])
def test_a_column_of_zeros_among_dependent_ones_has_coefficient_zero(solver, seed):
    """Some columns are 1e17 times larger than others."""
    rng = np.random.default_rng(seed)
    X = np.zeros((40, 7))
    X[:, :3] = 1e-9 * rng.standard_normal((40, 3))
    X[:, 3] = X[:, 0] + X[:, 1]
    X[:, 5] = 1e8 * rng.standard_normal(40)
    X[:, 6] = 3 * X[:, 5]
    model = OLSEnsembleRegressor(12, 1.0, solver=solver, random_state=seed)
    assert model.fit(X, rng.standard_normal(40)).coef_[4] == 0


def test_coin_flips_never_leave_a_member_without_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 30))
    y = rng.standard_normal(20)
    for max_samples, state in product([0.1, 0.2, 0.3], range(30)):
        model = OLSEnsembleRegressor(10, 0.5, max_samples, sampling="bernoulli")
        model.set_params(random_state=state).fit(X, y)
        assert min(map(len, model.sample_subsets_)) >= 2
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.filterwarnings("ignore:members have 2 columns and 1 rows")
def test_members_of_one_row_need_a_fit_without_intercept():
    X = np.random.default_rng(0).standard_normal((20, 5))
    for max_samples in (1, 0.05):
        with pytest.raises(
            ValueError, match=r"max_samples=.* gives every member 1 of 20 rows.*float 1\.0"
        ):
            OLSEnsembleRegressor(5, max_samples=max_samples).fit(X, X[:, 0])
        OLSEnsembleRegressor(5, max_samples=max_samples, fit_intercept=False).fit(X, X[:, 0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("max_samples", [1.0, 0.6])
@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_the_means_of_columns_do_not_matter(max_samples, offset, seed):
    """Intervals, standard errors and the scale of members with more columns than rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 80))
    new = rng.standard_normal((5, 80))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(30)
    model = OLSEnsembleRegressor(20, 50, max_samples, random_state=seed)
    interval = model.fit(X, y).predict_interval(new, 0.8)
    std = model.predict(new, return_std=True)[1]
    assert np.isfinite(interval).all() and np.isfinite(std).all()
    tol = {"rtol": 1e-12 * offset, "atol": 1e-12 * offset}
    model.fit(X + offset, y)
    assert_allclose(model.predict_interval(new + offset, 0.8), interval, **tol)
    assert_allclose(model.predict(new + offset, return_std=True)[1], std, **tol)
    scale = model.set_params(scale="auto").fit(X, y).scale_
    assert model.fit(X + offset, y).scale_ == pytest.approx(scale, rel=1e-12 * offset)


@pytest.mark.parametrize("n_rows", [2, 3, 4])
def test_few_rows_have_finite_standard_errors(n_rows, seed):
    X, y = random_problem(seed, n=n_rows, p=5)
    model = OLSEnsembleRegressor(5, 5, random_state=seed).fit(X, y)
    assert np.isfinite(model.predict(X, return_std=True)[1]).all()


# Leave-one-out where rows are fitted exactly


def refitted_without_each_row(model, X, y):
    """Prediction of every row by the same members, each fitted without it by NumPy's least squares."""
    predictions = np.zeros(len(y))
    for row in range(len(y)):
        y_train = np.delete(y, row)
        for columns in model.feature_subsets_:
            train = np.delete(X[:, columns], row, axis=0)
            mean = train.mean(axis=0)
            coef = np.linalg.lstsq(train - mean, y_train - y_train.mean())[0]
            predictions[row] += y_train.mean() + (X[row, columns] - mean) @ coef
    return predictions / len(model.feature_subsets_)


def with_dummies_of_one_row(seed, n=24):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, 6)), np.eye(n)[:, :6]])
    return X, X[:, :6].sum(axis=1) + rng.standard_normal(n)


def with_an_outlying_row(seed, n=24):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8))
    X[3] *= 3e5
    return X, X[:, 0] / 1e5 + rng.standard_normal(n)


@pytest.mark.parametrize("data", [with_dummies_of_one_row, with_an_outlying_row])
def test_rows_that_are_fitted_exactly_are_held_out_as_by_a_refit(data, seed):
    """Intervals, and tuning: with all columns there is one member, whose error is known."""
    X, y = data(seed)
    n, p = X.shape
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
    largest_error = np.abs(y - refitted_without_each_row(model, X, y)).max()
    interval = model.predict_interval(X[:1], coverage=n / (n + 1), method="jackknife")[0]
    assert np.isclose(np.diff(interval) / 2, largest_error, rtol=1e-6)
    model = OLSEnsembleRegressorCV(3, [p], scale=1.0, random_state=seed).fit(X, y)
    expected = refitted_without_each_row(OLSEnsembleRegressor(1, p).fit(X, y), X, y)
    atol = 1e-6 * np.abs(expected).max()
    assert_allclose(model.cv_prediction_, expected, rtol=1e-6, atol=atol)
    assert np.isclose(-model.best_score_, np.mean((y - expected) ** 2), rtol=1e-6)


@pytest.mark.parametrize("value", [3.7, 0.0])
def test_without_signal_there_is_no_scale_to_estimate(value, seed):
    y = np.random.default_rng(seed).standard_normal(50)
    X = np.full((50, 4), value)
    assert OLSEnsembleRegressor(10, scale="auto", random_state=seed).fit(X, y).scale_ == 1.0
    model = OLSEnsembleRegressorCV(10, random_state=seed).fit(X, y)
    mean_of_others = (y.sum() - y) / 49
    assert model.scale_ == 1.0
    assert_allclose(model.cv_prediction_, mean_of_others, atol=1e-12)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=10, random_state=seed).fit(X, y)
    assert model.scheme_weights_ == {"null": 1.0} and not model.coef_.any()
    assert_allclose(model.predict(X), y.mean(), rtol=1e-12)


# Extreme numbers


def test_units_change_nothing_but_units(seed):
    """Powers of two do not round: coefficients agree within the range that is fitted at all."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 6))
    w = rng.uniform(0.5, 2, 30)
    y = X[:, 0] + rng.standard_normal(30)
    models = [
        OLSEnsembleRegressor(8, 3, random_state=seed),
        OLSEnsembleRegressor(8, 1.0, max_samples=4, random_state=seed),
        OLSEnsembleRegressorCV(8, random_state=seed),
        OLSEnsembleRegressorCV(sampling="determinantal"),
        AdaptiveOLSEnsembleRegressor(n_estimators=8, random_state=seed),
        DropoutRegressor(0.6),
    ]
    plain = [model.fit(X, y, w).coef_.copy() for model in models]
    for exponents in product([-160, 0, 160], [-160, 160], [-160, 160]):
        x_unit, y_unit, w_unit = (2.0**e for e in exponents)
        for model, coef in zip(models, plain, strict=True):
            with case(exponents, model):
                model.fit(X * x_unit, y * y_unit, w * w_unit)
                assert_allclose(model.coef_ / (y_unit / x_unit), coef, rtol=1e-12)


@pytest.mark.parametrize("engine", ["array", "csr", *ENGINES, "stream"])
def test_columns_that_cannot_be_squared_are_named(engine, seed):
    """Squares of 1e-170 are zero, which would look like a constant column."""
    X, Y = np.random.default_rng(seed).standard_normal((2, 100, 5))
    for factor in (1e-170, 1e-55, 1e55, 1e200):
        units = np.where(np.arange(5) == 3, factor, 1.0)
        for name, data in {"X": (X * units, Y[:, 0]), "y": (X, Y * units)}.items():
            model = OLSEnsembleRegressor(5, random_state=seed)
            message = rf"column 3 of {name} .* at most .*e.*StandardScaler"
            with case(factor, name), pytest.raises(ValueError, match=message):
                if engine == "stream":
                    model.partial_fit(*data)
                else:
                    fit(engine, model, *data, np.ones(100))


@pytest.mark.parametrize("value", [0.0, 1e-200])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_size_of_a_column_is_that_of_all_its_rows(value, order, seed):
    """A column of nearly zero is refused; one that differs in its last row alone is fitted."""
    rng = np.random.default_rng(seed)
    X = np.asarray(rng.standard_normal((2000, 40)), order=order)
    y = X[:, 0] + rng.standard_normal(2000)
    model = OLSEnsembleRegressor(1, 1.0, random_state=seed)
    X[:, 3] = value
    for extreme, words in ((1e-200, "1e-200"), (-1e60, r"1e\+60")):
        X[-1, 3] = extreme
        message = rf"column 3 of X has entries of at most {words};"
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
    X[-1, 3] = 1.0  # a dummy of one row fits that row, and the others are fitted without it
    model.fit(X, y)
    columns = np.c_[np.ones(1999), np.delete(X, 3, axis=1)[:-1]]
    expected = np.linalg.lstsq(columns, y[:-1])[0]
    assert_allclose(np.delete(model.coef_, 3), expected[1:], rtol=1e-9, atol=1e-12)
    assert_allclose(model.predict(X[-1:]), y[-1:])


def test_a_column_far_from_zero_does_not_hide_nearly_collinear_ones(seed):
    """Its rounding errors count in directions that it takes part in only."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 4))
    X[:, 1] = X[:, 0] + 1e-5 * X[:, 1]
    y = 1e5 * (X[:, 1] - X[:, 0]) + 0.1 * rng.standard_normal(200)
    X[:, 3] += 1e10
    for solver in ("auto", "orthogonal"):
        assert OLSEnsembleRegressor(1, 1.0, solver=solver).fit(X, y).score(X, y) > 0.98


def test_units_do_not_spoil_minimum_norm_coefficients(seed):
    """Six rows, ten columns in units that differ by 1e30: the coefficients that fit every row are
    not longer than those of the five largest columns, to which the others add next to nothing.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6, 10)) * 10.0 ** rng.integers(-15, 15, 10)
    y = rng.standard_normal(6)
    model = OLSEnsembleRegressor(1, 1.0).fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-8)
    large = np.argsort(-np.abs(X).max(axis=0))[:5]
    coef = np.linalg.lstsq(X[:, large] - X[:, large].mean(axis=0), y - y.mean())[0]
    assert np.linalg.norm(model.coef_) <= np.linalg.norm(coef) * (1 + 1e-6)


def test_a_sparse_column_whose_mean_is_its_first_value_is_not_constant(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (40, 5)).astype(float)
    X[:, 0] = np.resize([1.0, 0.0, 2.0], 40)
    X[-1, 0] = 1.0  # the mean is one, as is the first value
    y = X.sum(axis=1) + rng.standard_normal(40)
    dense, sparse = (
        OLSEnsembleRegressor(10, 3, random_state=seed).fit(A, y) for A in (X, sp.csr_array(X))
    )
    assert X[:, 0].mean() == X[0, 0]
    assert_allclose(sparse.coef_, dense.coef_, rtol=1e-10)
