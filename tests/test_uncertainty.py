"""Intervals and standard errors: exact against refits, and right on average."""

import numpy as np
import pytest

from olsen import OLSEnsembleRegressor, member_coefficients
from test_members import random_problem


def without_row(model, X, y, weight, row):
    """The same members refitted by brute force without one row."""
    rows = [np.setdiff1d(T, [row]) for T in model.sample_subsets_]
    coef, intercept = member_coefficients(X, y, model.feature_subsets_, rows, sample_weight=weight)
    centre = np.mean([np.average(y[T], weights=None if weight is None else weight[T]) for T in rows])
    scale = model.scale_
    return scale * coef.mean(axis=0), scale * intercept.mean() + (1 - scale) * centre


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_features": 0.3},
        {"max_features": 0.3, "max_samples": 0.6},
        {"max_features": 0.9, "max_samples": 0.4},
        {"max_features": 0.4, "scale": 0.6},
        {"max_features": 0.4, "scale": 1.3, "max_samples": 0.7},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.filterwarnings("ignore:members have 10 columns")
def test_jackknife_equals_refits(kwargs, weighted, seed):
    X, y = random_problem(seed, n=25, p=12)
    weight = np.random.default_rng(seed).uniform(0.3, 2, 25) if weighted else None
    model = OLSEnsembleRegressor(9, random_state=seed, **kwargs).fit(X, y, weight)
    new = np.random.default_rng(seed + 1).standard_normal((6, 12))
    ends = np.empty((25, 6, 2))
    residual = np.empty(25)
    for row in range(25):
        coef, intercept = without_row(model, X, y, weight, row)
        residual[row] = y[row] - X[row] @ coef - intercept
        ends[row] = (new @ coef + intercept)[:, None] + np.abs(residual[row]) * np.array([-1, 1])
    rank = int(np.ceil(0.8 * 26))
    plus = np.stack([np.sort(ends[..., 0], axis=0)[25 - rank], np.sort(ends[..., 1], axis=0)[rank - 1]], axis=1)
    np.testing.assert_allclose(model.predict_interval(new, coverage=0.8), plus, rtol=1e-8, atol=1e-8)
    half = np.sort(np.abs(residual))[rank - 1]
    plain = model.predict(new)[:, None] + half * np.array([-1, 1])
    np.testing.assert_allclose(model.predict_interval(new, 0.8, method="jackknife"), plain, rtol=1e-8, atol=1e-8)


def test_too_few_rows_for_the_coverage_give_the_whole_line(seed):
    X, y = random_problem(seed, n=12, p=4)
    ends = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y).predict_interval(X, coverage=0.95)
    assert np.all(np.isneginf(ends[:, 0])) and np.all(np.isposinf(ends[:, 1]))


def test_shapes_for_several_targets(seed):
    X, Y = random_problem(seed, q=2)
    model = OLSEnsembleRegressor(5, 0.3, random_state=seed).fit(X, Y)
    ends = model.predict_interval(X[:7])
    assert ends.shape == (7, 2, 2)
    for t in range(2):
        alone = OLSEnsembleRegressor(5, 0.3, random_state=seed).fit(X, Y[:, t])
        np.testing.assert_allclose(ends[:, t], alone.predict_interval(X[:7]), rtol=1e-8)
        np.testing.assert_allclose(model.predict(X, return_std=True)[1][:, t], alone.predict(X, return_std=True)[1])


def test_coverage_of_new_observations(seed):
    """Over 60 training sets the share of new observations inside is within 4 standard errors of the nominal 90 %."""
    rng = np.random.default_rng(seed)
    inside = []
    for trial in range(60):
        X, new = rng.standard_normal((80, 40)), rng.standard_normal((50, 40))
        beta = rng.standard_normal(40) / np.sqrt(40)
        model = OLSEnsembleRegressor(20, 15, random_state=trial).fit(X, X @ beta + rng.standard_normal(80))
        ends = model.predict_interval(new)
        target = new @ beta + rng.standard_normal(50)
        inside.append(np.mean((ends[:, 0] <= target) & (target <= ends[:, 1])))
    assert (
        abs(np.mean(inside) - 0.9) < 4 * np.std(inside, ddof=1) / np.sqrt(60) + 0.5 / 80
    )  # ranks are multiples of 1/81


def test_standard_error_is_the_spread_over_training_sets(seed):
    """Mean squared standard error against the variance of predictions over 300 training sets, within 4 standard errors.

    The formula is asymptotic: 5 % are allowed on top.
    """
    rng = np.random.default_rng(seed)
    beta = rng.standard_normal(30) / np.sqrt(30)
    new = rng.standard_normal((40, 30))
    predictions, squares = [], []
    for _ in range(300):
        X = rng.standard_normal((90, 30))
        model = OLSEnsembleRegressor(10, 10, fit_intercept=False, random_state=1)
        y, std = model.fit(X, X @ beta + rng.standard_normal(90)).predict(new, return_std=True)
        predictions.append(y)
        squares.append(std**2)
    variance = np.var(predictions, axis=0, ddof=1).mean()
    ratio = np.mean(squares) / variance
    deviations = np.mean((np.array(predictions) - np.mean(predictions, axis=0)) ** 2, axis=1)
    spread = np.std(deviations / variance, ddof=1) / np.sqrt(300)
    assert abs(ratio - 1) < 4 * spread + 0.05
