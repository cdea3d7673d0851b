"""Changes between two calls, weights and splitters: the right answer or a message."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import StratifiedKFold

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from random_problems import random_problem


def test_a_stream_follows_a_changed_seed_and_keeps_its_intercept(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(10, random_state=seed).partial_fit(X[:30], y[:30])
    predictions = model.predict(X)
    with pytest.raises(ValueError, match="fit_intercept was changed from True to False"):
        model.set_params(fit_intercept=False).partial_fit(X[30:], y[30:])
    assert_array_equal(model.predict(X), predictions)
    model.set_params(fit_intercept=True, random_state=seed + 1, n_estimators=15).partial_fit(
        X[30:], y[30:]
    )
    expected = OLSEnsembleRegressor(15, random_state=seed + 1).fit(X, y)
    assert_allclose(model.coef_, expected.coef_, rtol=1e-8, atol=1e-10)


def test_rows_changed_in_place_are_not_streamed_on(seed):
    X, y = random_problem(seed)
    for solver in ("auto", "orthogonal", "gram"):
        first = X[:30].copy()
        model = OLSEnsembleRegressor(10, solver=solver, random_state=seed).fit(first, y[:30])
        first *= 2
        with (
            case(solver),
            pytest.raises(ValueError, match=r"partial_fit after fit.*X was changed in place"),
        ):
            model.partial_fit(X[30:], y[30:])


def test_a_changed_number_of_targets_is_named(seed):
    X, Y = random_problem(seed, q=2)
    with pytest.raises(ValueError, match="y has 1 targets, but earlier batches had 2"):
        OLSEnsembleRegressor(10).fit(X, Y).partial_fit(X, Y[:, 0])


@pytest.mark.filterwarnings("error")
def test_a_batch_of_equal_targets_does_not_warn(seed):
    X, y = random_problem(seed)
    OLSEnsembleRegressor(10, random_state=seed).partial_fit(X[:30], y[:30]).partial_fit(
        X[30:33], np.ones(3)
    )


def test_results_belong_to_the_user(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressorCV(10, random_state=seed).fit(X, y)
    curve = model.risk_curve(7)
    for values in model.cv_results_.values():
        values[:] = 1
    assert_array_equal(model.risk_curve(7), curve)
    fresh = OLSEnsembleRegressorCV(20, random_state=seed).fit(X, y)
    assert model.set_params(n_estimators=20).fit(X, y).max_features_ == fresh.max_features_


def test_the_unit_of_the_weights_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12_000, 4))
    y = X[:, 0] + rng.standard_normal(12_000)
    weight = rng.uniform(0.5, 2, 12_000)
    for model in (
        *(OLSEnsembleRegressorCV(10, cv=cv, random_state=seed) for cv in (None, "gcv", 4)),
        *(OLSEnsembleRegressorCV(cv=cv, sampling="determinantal") for cv in (None, "gcv", 4)),
        *(
            AdaptiveOLSEnsembleRegressor(n_estimators=10, cv=cv, random_state=seed)
            for cv in (None, 4)
        ),
    ):
        score, score_of_ten_times = (
            model.fit(X, y, factor * weight).best_score_ for factor in (1, 10)
        )
        with case(model):
            assert score == pytest.approx(score_of_ten_times, rel=1e-9) and 0.8 < -score < 1.2


def test_a_splitter_sees_the_targets_of_the_rows_that_count(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 6))
    y = np.sort(rng.integers(0, 2, 60)).astype(float)
    y[:3] = 0
    y[-3:] = 1
    weight = np.ones(60)
    weight[5] = 0
    positive = weight > 0
    for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        model = make(n_estimators=10, cv=StratifiedKFold(3), random_state=seed)
        assert model.fit(X, y, weight).best_score_ == pytest.approx(
            model.fit(X[positive], y[positive]).best_score_, rel=1e-9
        )


def test_held_out_predictions_are_aligned_with_the_rows(seed):
    X, y = random_problem(seed)
    weight = np.ones(len(y))
    weight[::4] = 0
    for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        model = make(n_estimators=10, random_state=seed).fit(X, y, weight)
        assert model.cv_prediction_.shape == y.shape
        assert_array_equal(np.isnan(model.cv_prediction_), weight == 0)


def test_the_error_is_that_of_the_scaled_model(seed):
    """Held-out predictions of members of all columns, scaled, are those of the model; so are those of
    determinantal members of any size.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 5))
    y = 0.2 * X[:, 0] + rng.standard_normal(50) + 3
    for scale, cv in product(("auto", 0.5, 1.0), (None, 5)):
        model = OLSEnsembleRegressorCV(4, [5], cv=cv, scale=scale, random_state=seed).fit(X, y)
        with case(scale, cv):
            assert -model.best_score_ == pytest.approx(
                np.mean((y - model.cv_prediction_) ** 2), rel=1e-8
            )
            assert -model.best_score_ == pytest.approx(model.risk_curve(4)[0], rel=1e-12)
        ridge = OLSEnsembleRegressorCV(cv=cv, sampling="determinantal", scale=scale).fit(X, y)
        with case("determinantal", scale, cv):
            assert -ridge.best_score_ == pytest.approx(
                np.mean((y - ridge.cv_prediction_) ** 2), rel=1e-8
            )
            assert -ridge.best_score_ == pytest.approx(
                ridge.risk_curve()[ridge.best_index_], rel=1e-12
            )
