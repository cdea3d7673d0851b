"""Scale and weights from leave-one-out predictions."""

import numpy as np
import pytest

from olsen import OLSEnsembleRegressor
from test_members import random_problem


def dense_and_sparse(seed, nonzero, n=100, p=60, sigma=0.7):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    beta = np.zeros(p)
    beta[:nonzero] = 1 / np.sqrt(nonzero)
    return X, X @ beta + sigma * rng.standard_normal(n), beta


@pytest.mark.parametrize("max_samples", [1.0, 0.6])
def test_scale_is_the_slope_of_targets_on_left_out_predictions(max_samples, seed):
    """Against refits by brute force."""
    X, y = random_problem(seed, n=25, p=10)
    model = OLSEnsembleRegressor(8, 4, max_samples, scale="loo", random_state=seed).fit(X, y)
    pairs = []
    for row in range(25):
        centres, predictions = [], []
        for S, T in zip(model.feature_subsets_, model.sample_subsets_, strict=True):
            kept = np.setdiff1d(T, [row])
            A = np.column_stack([np.ones(len(kept)), X[np.ix_(kept, S)]])
            coef = np.linalg.lstsq(A, y[kept], rcond=None)[0]
            centres.append(y[kept].mean())
            predictions.append(coef[0] + X[row, S] @ coef[1:])
        pairs.append((np.mean(predictions) - np.mean(centres), y[row] - np.mean(centres)))
    d, target = np.transpose(pairs)
    slope = d @ target / (d @ d)
    variance = np.sum((target - slope * d) ** 2) / 25 / (d @ d)
    expected = 1 + (slope - 1) * max(0.0, 1 - variance / (slope - 1) ** 2)
    assert model.scale_ == pytest.approx(max(0.0, expected), rel=1e-7)


def test_scale_mends_a_size_that_is_too_small(seed):
    X, y, beta = dense_and_sparse(seed, 60, n=300)
    plain = OLSEnsembleRegressor(60, 8, random_state=seed).fit(X, y)
    scaled = OLSEnsembleRegressor(60, 8, scale="loo", random_state=seed).fit(X, y)
    assert scaled.scale_ > 1
    assert np.sum((scaled.coef_ - beta) ** 2) < np.sum((plain.coef_ - beta) ** 2)


def test_stacking_is_accepted_on_sparse_and_helps(seed):
    X, y, beta = dense_and_sparse(seed, 2, n=200, sigma=0.4)
    plain = OLSEnsembleRegressor(200, 6, random_state=seed).fit(X, y)
    stacked = OLSEnsembleRegressor(200, 6, mixing="stacking", random_state=seed).fit(X, y)
    assert stacked.stacking_advantage_ > 2 and np.ptp(stacked.weights_) > 0
    assert stacked.weights_.min() >= 0 and stacked.weights_.sum() == pytest.approx(1)
    assert np.sum((stacked.coef_ - beta) ** 2) < 0.5 * np.sum((plain.coef_ - beta) ** 2)


def test_a_shut_gate_leaves_equal_weights(seed):
    """On pure noise stacking has nothing to find; of 10 data sets the gate may let 2 through (measured: 0 of 40)."""
    shut = 0
    for trial in range(10):
        rng = np.random.default_rng([seed, trial])
        X, y = rng.standard_normal((80, 30)), rng.standard_normal(80)
        model = OLSEnsembleRegressor(40, 10, mixing="stacking", random_state=trial).fit(X, y)
        if model.stacking_advantage_ <= 2:
            shut += 1
            np.testing.assert_array_equal(model.weights_, np.full(40, 1 / 40))
            plain = OLSEnsembleRegressor(40, 10, random_state=trial).fit(X, y)
            np.testing.assert_allclose(model.coef_, plain.coef_)
    assert shut >= 8


def test_the_gate_is_shut_on_dense_signals_with_more_members_than_rows(seed):
    """Of 10 data sets it may let 3 through (measured: 1 of 40)."""
    shut = 0
    for trial in range(10):
        X, y, _ = dense_and_sparse([seed, trial], 150, n=80, p=150, sigma=0.5)
        model = OLSEnsembleRegressor(120, 25, mixing="stacking", random_state=trial).fit(X, y)
        assert (model.stacking_advantage_ <= 2) == bool(np.ptp(model.weights_) == 0)
        shut += model.stacking_advantage_ <= 2
    assert shut >= 7


def test_coefficients_are_the_weighted_mean_of_the_members(seed):
    X, y, _ = dense_and_sparse(seed, 2, n=200, sigma=0.4)
    model = OLSEnsembleRegressor(50, 6, mixing="stacking", random_state=seed).fit(X, y)
    np.testing.assert_allclose(model.coef_, model.weights_ @ model.member_coefs().toarray(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kwargs", [{"scale": "loo"}, {"mixing": "stacking"}])
def test_streams_cannot_leave_rows_out(kwargs, seed):
    X, y = random_problem(seed)
    with pytest.raises(ValueError, match="partial_fit keeps no rows"):
        OLSEnsembleRegressor(5, **kwargs).partial_fit(X, y)
