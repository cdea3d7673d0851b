"""Widths of intervals that follow the prediction and the leverage, and quantiles."""

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import olsen
from engines import engines
from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._estimators.error_estimates.widths import p_value
from olsen.equivalence import determinantal_penalty
from random_problems import correlated_problem

MODELS = {
    "given size": OLSEnsembleRegressor(20, 0.9, random_state=0),
    "tuned size": OLSEnsembleRegressorCV(40, random_state=0),
    "adaptive": AdaptiveOLSEnsembleRegressor(),
}


def growing_errors(seed, n, p=3):
    """Targets whose errors are proportional to a positive signal, and the training rows."""
    rng = np.random.default_rng([seed, 77])
    X = rng.standard_normal((n, p))
    signal = 4 + X.sum(axis=1)
    return X, signal + 0.3 * np.abs(signal) * rng.standard_normal(n)


def coverage_by_thirds(model, X, y, **options):
    """Coverage in the thirds of the rows with small, middle and large predictions."""
    low, high = model.predict_interval(X, **options).T
    covered = (low <= y) & (y <= high)
    return [covered[third].mean() for third in np.array_split(np.argsort(model.predict(X)), 3)]


@pytest.mark.parametrize("name", MODELS)
def test_adaptive_widths_cover_every_third_of_the_predictions(name, seed):
    """4 standard errors of 2000 rows are .027, and the quantile itself has one of .011."""
    X, y = growing_errors(seed, 900)
    new, y_new = growing_errors(seed + 1000, 6000)
    model = MODELS[name].fit(X, y)
    constant = coverage_by_thirds(model, new, y_new, adaptive_width=False)
    assert constant[0] > 0.95 and constant[2] < 0.85
    for method in ("auto", "cv+", "normal"):
        with case(method):
            adaptive = coverage_by_thirds(model, new, y_new, method=method, adaptive_width=True)
            assert_allclose(adaptive, 0.9, atol=0.06)
    assert_array_equal(
        model.predict_interval(new), model.predict_interval(new, adaptive_width=True)
    )


def test_the_test_of_constant_widths_has_its_level(seed):
    """Errors of one size, with heavy tails: significant at 1 % in 1 % of the samples."""
    rng = np.random.default_rng([seed, 78])
    residuals = np.abs(rng.standard_t(5, (2000, 200)))
    prediction = np.sort(rng.standard_normal(200))
    significant = [p_value(prediction, absolute, 200) < 0.01 for absolute in residuals]
    assert np.mean(significant) < 0.01 + 4 * np.sqrt(0.01 * 0.99 / 2000)
    assert p_value(prediction, (1 + prediction**2) * residuals[0], 200) < 0.01


def test_widths_follow_units_and_signs_of_the_target(seed):
    X, y = growing_errors(seed, 200)
    model = OLSEnsembleRegressor(10, 2, random_state=seed)
    expected = model.fit(X, y).predict_interval(X, adaptive_width=True)
    quantiles = model.predict_quantiles(X, [0.1, 0.7])
    assert_allclose(
        model.fit(X, 100 * y - 7).predict_interval(X, adaptive_width=True), 100 * expected - 7
    )
    assert_allclose(
        model.fit(X, -y).predict_interval(X, adaptive_width=True), -expected[:, ::-1], atol=1e-9
    )
    assert_allclose(model.predict_quantiles(X, [0.9, 0.3]), -quantiles, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_several_coverages_and_quantiles_at_once(name, seed):
    X, y = growing_errors(seed, 150)
    Y = np.column_stack(
        [y, X @ [1.0, 2.0, 3.0] + np.random.default_rng(seed).exponential(size=150)]
    )
    levels = [0.9, 0.2, 0.6]
    for target in (y, Y):
        model = MODELS[name].fit(X, target)
        for method in ("auto", "cv+", "normal"):
            with case(f"{method} of {target.shape}"):
                intervals = model.predict_interval(X[:7], levels, method)
                quantiles = model.predict_quantiles(X[:7], levels, method)
                for i, level in enumerate(levels):
                    single = model.predict_interval(X[:7], level, method)
                    assert_array_equal(intervals[i], single)
                    assert_array_equal(quantiles[i], model.predict_quantiles(X[:7], level, method))
                assert intervals.shape == (3, 7, *target.shape[1:], 2)
                in_order = quantiles[[1, 2, 0]]
                assert np.all(np.diff(in_order, axis=0) >= 0)


def test_quantiles_are_order_statistics_of_residuals(seed):
    X, y = correlated_problem(seed, 60, 5)
    model = OLSEnsembleRegressor(10, 3, random_state=seed).fit(X, y)
    residuals = np.sort(
        [y[row] - without_row(model, X, y, row).predict(X[[row]])[0] for row in range(len(y))]
    )
    new = (X[:4] + X[4:8]) / 2
    quantiles = model.predict_quantiles(new, [0.05, 0.5, 0.95], "jackknife", adaptive_width=False)
    # ceil(.95 * 61) is 58, and the mirror image is 61 - 58
    expected = model.predict(new) + residuals[[2, 30, 57], None]
    assert_allclose(quantiles, expected)
    assert_array_equal(model.predict_quantiles(new, [0.001, 0.999])[:, 0], [-np.inf, np.inf])


def without_row(model, X, y, row):
    """Least squares on the same columns without a row, averaged."""
    others = np.arange(len(y)) != row
    coef, intercept = olsen.member_coefficients(X[others], y[others], list(model.feature_subsets_))
    mean = OLSEnsembleRegressor(1, 1).fit(X, y).to_linear_regression()
    mean.coef_ = np.mean(coef, axis=0)
    mean.intercept_ = np.mean(intercept)
    return mean


def test_quantiles_cover_skewed_errors(seed):
    """Equal probabilities on both sides; 4 standard errors of 20 000 rows, and of the quantile."""
    rng = np.random.default_rng([seed, 79])
    X = rng.standard_normal((20_800, 3))
    y = X.sum(axis=1) + rng.exponential(size=len(X))
    model = OLSEnsembleRegressor(20, 2, random_state=seed).fit(X[:800], y[:800])
    low, high = model.predict_quantiles(X[800:], [0.1, 0.9])
    assert_allclose([np.mean(y[800:] < low), np.mean(y[800:] > high)], 0.1, atol=0.055)


@pytest.mark.parametrize(("n", "p", "size"), [(60, 12, 5), (30, 80, 8)])
def test_far_rows_have_wider_intervals_by_their_leverage(n, p, size, seed):
    """Against the formula; rows between training rows keep the width of those."""
    X, y = correlated_problem(seed, n, p)
    far = 10 * np.random.default_rng(seed).standard_normal((5, p))
    model = OLSEnsembleRegressor(20, size, random_state=seed).fit(X, y)
    centred = X - X.mean(axis=0)
    M = np.linalg.inv(centred.T @ centred + np.diag(determinantal_penalty(X, size)))
    largest = np.max(np.sum(centred @ M * centred, axis=1))
    of_far = np.sum((far - X.mean(axis=0)) @ M * (far - X.mean(axis=0)), axis=1)
    factor = np.sqrt((1 + of_far) / (1 + min(1, largest / (1 - largest))))
    assert factor.min() > 1
    for method in ("jackknife", "normal"):
        interval = partial(
            model.predict_interval, coverage=0.8, method=method, adaptive_width=False
        )
        width = np.diff(interval((X[:5] + X[5:10]) / 2))
        assert_allclose(width, np.full_like(width, width[0, 0]))
        assert_allclose(np.diff(interval(far)), width * factor[:, None])


def test_far_rows_are_covered(seed):
    """Rows eight times as far: without their leverage 4 of 10 would be covered."""
    covered = []
    for trial in range(12):
        rng = np.random.default_rng([seed, trial, 80])
        X = rng.standard_normal((60, 120))
        new = 8 * rng.standard_normal((50, 120))
        beta = rng.standard_normal(120) / np.sqrt(120)
        model = AdaptiveOLSEnsembleRegressor().fit(X, X @ beta + rng.standard_normal(60))
        low, high = model.predict_interval(new).T
        y = new @ beta + rng.standard_normal(50)
        covered.append(np.mean((low <= y) & (y <= high)))
    assert np.mean(covered) > 0.7


@pytest.mark.parametrize("name", MODELS)
def test_engines_and_pickles_have_adaptive_widths(name, seed, tmp_path, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y = growing_errors(seed, 1200)
    new = X[:50]
    widths = {}
    for engine in engines(tmp_path, ("memory", "sparse", "blocks", "parquet", "dask", "torch")):
        model = engine.fit(MODELS[name], X, y)
        widths[engine.name] = engine.ask(
            lambda model, rows: np.diff(np.asarray(model.predict_interval(rows)))[:, 0], model, new
        )
        quantiles = engine.ask(
            lambda model, rows: np.asarray(model.predict_quantiles(rows, [0.1, 0.9])), model, new
        )
        with case(engine.name):
            assert np.ptp(widths[engine.name]) > 0.5 * np.mean(widths[engine.name])
            assert_allclose(widths[engine.name], widths["memory"], rtol=0.25)
            assert quantiles.shape == (2, 50) and np.all(quantiles[0] < quantiles[1])
    model = MODELS[name].fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    expected = model.predict_interval(new, [0.5, 0.9])
    assert_allclose(again.predict_interval(new, [0.5, 0.9]), expected)


def test_intervals_and_quantiles_of_pipelines(seed):
    X, y = growing_errors(seed, 200)
    ensemble = OLSEnsembleRegressor(5, 2, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), ensemble)
    logarithm = TransformedTargetRegressor(pipeline, func=np.log, inverse_func=np.exp)
    logarithm.fit(X, np.exp(y))
    plain = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
    levels = [0.2, 0.8]
    options = {"adaptive_width": True}
    assert_allclose(
        np.log(olsen.predict_interval(logarithm, X[:9], levels, **options)),
        plain.predict_interval(X[:9], levels, **options),
    )
    assert_allclose(
        np.log(olsen.predict_quantiles(logarithm, X[:9], levels, **options)),
        plain.predict_quantiles(X[:9], levels, **options),
    )
    assert olsen.predict_quantiles(logarithm, X[:9], 0.5).shape == (9,)
    falling = TransformedTargetRegressor(pipeline, func=np.negative, inverse_func=np.negative)
    with pytest.raises(ValueError, match="does not increase"):
        olsen.predict_quantiles(falling.fit(X, y), X, levels)


@pytest.mark.parametrize(
    "arguments",
    [{"coverage": []}, {"coverage": [0.5, 1.0]}, {"coverage": [[0.5]]}, {"adaptive_width": 1.5}],
)
def test_bad_arguments(arguments):
    X, y = growing_errors(0, 50)
    model = OLSEnsembleRegressor(5, 2).fit(X, y)
    with pytest.raises(ValueError, match=next(iter(arguments))):
        model.predict_interval(X, **arguments)
