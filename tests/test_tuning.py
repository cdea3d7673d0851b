"""OLSEnsembleRegressorCV through the public door."""

import pickle
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon
from test_members import random_problem

CRITERIA = [
    {}, {"cv": 5}, {"cv": "gcv"}, {"max_samples": 0.7}, {"max_samples": 0.7, "cv": "gcv"},
    {"max_samples": 0.7, "cv": "oob"}, {"max_samples": 0.7, "cv": 4},
]  # fmt: skip


def gaussian(seed, n=80, p=40, sigma=1.0, nonzero=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    beta = rng.standard_normal(p)
    beta[slice(nonzero, None) if nonzero else slice(0, 0)] = 0.0
    beta /= np.linalg.norm(beta)
    return X, X @ beta + sigma * rng.standard_normal(n), beta


def test_it_fits_the_ensemble_it_reports(seed):
    X, y, _ = gaussian(seed)
    tuned = OLSEnsembleRegressorCV(60, inclusion="uniform", random_state=seed).fit(X, y)
    plain = OLSEnsembleRegressor(60, tuned.max_features_, scale=tuned.scale_, random_state=seed).fit(X, y)
    np.testing.assert_allclose(tuned.coef_, plain.coef_, rtol=1e-10, atol=1e-12)
    at = list(tuned.cv_results_["size"]).index(tuned.max_features_)
    assert tuned.cv_results_["mse"][at] == pytest.approx(-tuned.best_score_) and at == tuned.best_index_
    assert tuned.cv_results_["mse"].min() == pytest.approx(-tuned.best_score_)
    assert tuned.feature_ratio_ == tuned.max_features_ / 40
    assert tuned.criterion_ == "loo" and tuned.inclusion_kind_ == "uniform"


@pytest.mark.parametrize("kwargs", CRITERIA, ids=str)
def test_every_criterion_is_near_the_error_on_new_rows(kwargs, seed):
    """The estimated curve at a fixed size against the true total risk of the same kind of ensemble, over 60 data sets.

    Within 4 standard errors of 2 % at most; GCV is asymptotic and gets 1 % on top. k-fold is compared with ensembles on
    as many rows as its folds train on. Part of a data set's luck is known here and taken out: the mean square of about
    what an ensemble of these small members leaves, noise and 0.7 of the signal, less its expectation.
    """
    size, k, cv, difference, truths = 12, 20, kwargs.get("cv"), [], []
    rows = 80 - 80 // cv if isinstance(cv, int) else 80
    drawn = min(round(80 * kwargs.get("max_samples", 1.0)), rows)
    for trial in range(60):
        X, y, beta = gaussian(1000 * seed + trial)
        model = OLSEnsembleRegressorCV(
            k, [size, size + 1], inclusion="uniform", scale=1.0, fit_intercept=False, random_state=trial, **kwargs
        ).fit(X, y)
        members = OLSEnsembleRegressor(k, size, drawn, fit_intercept=False, random_state=trial).fit(X[:rows], y[:rows])
        truths.append(np.sum((members.coef_ - beta) ** 2) + 1.0)
        luck = np.mean((y - 0.3 * X @ beta) ** 2) - (1 + 0.7**2)
        difference.append(model.cv_results_["mse"][0] - luck - truths[-1])
    error = np.std(difference, ddof=1) / np.sqrt(60)
    assert abs(np.mean(difference)) < 4 * error + (0.01 if cv == "gcv" else 0.0) * np.mean(truths)
    assert error < 0.02 * np.mean(truths)


def test_leave_one_out_predictions_are_of_left_out_rows(seed):
    """With one candidate that is all columns, every member is least squares: its leave-one-out is textbook."""
    X, y, _ = gaussian(seed, n=40, p=6)
    model = OLSEnsembleRegressorCV(5, [6], inclusion="uniform", scale=1.0, random_state=seed).fit(X, y)
    for row in (0, 7, 39):
        kept = np.arange(40) != row
        alone = LinearRegression().fit(X[kept], y[kept])
        assert model.loo_prediction_[row] == pytest.approx(alone.predict(X[row : row + 1])[0], rel=1e-8)
    assert -model.best_score_ == pytest.approx(np.mean((y - model.loo_prediction_) ** 2), rel=1e-8)


def test_kfold_predictions_are_out_of_fold(seed):
    X, y, _ = gaussian(seed, n=40, p=6)
    splitter = KFold(4, shuffle=True, random_state=0)
    model = OLSEnsembleRegressorCV(5, [6], cv=splitter, scale=1.0, random_state=seed).fit(X, y)
    for train, test in splitter.split(X):
        np.testing.assert_allclose(
            model.loo_prediction_[test], LinearRegression().fit(X[train], y[train]).predict(X[test])
        )


def test_risk_curve_for_any_number_of_members(seed):
    X, y, _ = gaussian(seed)
    model = OLSEnsembleRegressorCV(50, random_state=seed).fit(X, y)
    np.testing.assert_allclose(model.risk_curve(50), model.cv_results_["mse"])
    np.testing.assert_allclose(model.risk_curve(), model.cv_results_["mse_infinity"])
    curves = [model.risk_curve(k) for k in (1, 4, 16, 64, 1024)]
    assert all(np.all(more <= 1.01 * fewer) for fewer, more in pairwise(curves)), "up to Monte-Carlo noise"
    independent = OLSEnsembleRegressorCV(50, design="independent", random_state=seed).fit(X, y)
    assert np.all(model.risk_curve(8)[:5] <= independent.risk_curve(8)[:5] * 1.05), "balanced members need fewer"


def test_infinitely_many_uniform_members_are_enough_of_them(seed):
    X, y, _ = gaussian(seed)
    model = OLSEnsembleRegressorCV(inclusion="uniform", random_state=seed).fit(X, y)
    at = model.best_index_
    assert model.risk_curve(model.n_estimators_)[at] <= 1.01 * model.risk_curve()[at] or model.n_estimators_ == 5000


def test_one_standard_error_takes_smaller_members(seed):
    X, y, _ = gaussian(seed)
    settings = {"inclusion": "uniform", "scale": 1.0, "random_state": seed}
    best = OLSEnsembleRegressorCV(50, **settings).fit(X, y)
    simple = OLSEnsembleRegressorCV(50, one_standard_error=True, **settings).fit(X, y)
    size, mse, error = (best.cv_results_[name] for name in ("size", "mse", "standard_error"))
    smallest = size[mse <= mse.min() + error[np.argmin(mse)]].min()
    assert simple.max_features_ == smallest < best.max_features_


@pytest.mark.parametrize("weighted", [False, True])
def test_threads_change_nothing(weighted, seed):
    X, Y = random_problem(seed, q=2)
    weight = np.random.default_rng(seed).uniform(0, 2, len(X)) if weighted else None
    one, two = (OLSEnsembleRegressorCV(30, n_jobs=j, random_state=seed).fit(X, Y, weight) for j in (1, 2))
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-11, atol=1e-13)  # BLAS rounds as its threads fall
    np.testing.assert_allclose(one.cv_results_["mse"], two.cv_results_["mse"], rtol=1e-12)


def test_zero_weight_equals_a_dropped_row(seed):
    X, y = random_problem(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    kept = weight > 0
    whole = OLSEnsembleRegressorCV(30, random_state=seed).fit(X, y, weight)
    part = OLSEnsembleRegressorCV(30, random_state=seed).fit(X[kept], y[kept], weight[kept])
    np.testing.assert_allclose(whole.coef_, part.coef_, rtol=1e-8, atol=1e-10)


def test_many_rows_are_judged_by_moments_of_folds(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12_000, 8))
    y = X @ rng.standard_normal(8) + rng.standard_normal(12_000)
    model = OLSEnsembleRegressorCV(30, random_state=seed).fit(X, y)
    assert model.criterion_ == "kfold" and model.loo_prediction_.shape == y.shape and model.max_features_ >= 7
    assert np.mean((y - model.loo_prediction_) ** 2) == pytest.approx(-model.best_score_, rel=0.01)
    rows = OLSEnsembleRegressorCV(30, cv="gcv", inclusion="uniform", random_state=seed).fit(X[:9000], y[:9000])
    assert rows.best_score_ == pytest.approx(model.best_score_, rel=0.1)


def test_inclusion_follows_the_signal(seed):
    """Sparse signal: adaptive probabilities are accepted and beat uniform ones; ridge-matched ones are within a tie."""
    X, y, beta = gaussian(seed, n=120, p=60, sigma=0.5, nonzero=4)
    risk = {}
    for kind in ("uniform", "ridge", "auto"):
        model = OLSEnsembleRegressorCV(100, inclusion=kind, random_state=seed).fit(X, y)
        risk[kind] = np.sum((model.coef_ - beta) ** 2)
    assert model.inclusion_kind_ == "mixed" and model.inclusion_[:4].mean() > 3 * model.inclusion_[4:].mean()
    assert risk["auto"] < 0.7 * risk["uniform"]
    assert 0.5 < risk["ridge"] / risk["uniform"] < 2


def test_probabilities_stay_clear_of_the_peak(seed):
    """Almost no noise: the matched penalty is near zero and would put members at the row count."""
    X, y, _ = gaussian(seed, n=40, p=120, sigma=1e-3)
    model = OLSEnsembleRegressorCV(50, inclusion="ridge", random_state=seed).fit(X, y)
    assert model.max_features_ <= 0.7 * 40 and np.abs(model.coef_).max() < 10


def test_groups_reach_the_splitter(seed):
    X, y, _ = gaussian(seed)
    groups = np.arange(80) // 4
    plain = OLSEnsembleRegressorCV(20, cv=GroupKFold(5), random_state=0).fit(X, y, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = OLSEnsembleRegressorCV(20, cv=GroupKFold(5), random_state=0).fit(X, y, groups=groups)
    np.testing.assert_array_equal(plain.coef_, routed.coef_)
    with pytest.raises(ValueError, match="groups"):
        OLSEnsembleRegressorCV(20, cv=GroupKFold(5)).fit(X, y)


def test_repeated_rows_are_noticed(seed):
    X, y, _ = gaussian(seed)
    with pytest.warns(UserWarning, match=r"80 of 160 rows repeat others.*GroupKFold"):
        OLSEnsembleRegressorCV(20, random_state=0).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))


def cells(seed, n=200):
    """Two factors of three levels: rows meet in nine cells."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (n, 2))
    X = np.column_stack([np.eye(3)[codes[:, 0]], np.eye(3)[codes[:, 1]]])
    return X, codes.sum(axis=1) + rng.standard_normal(n)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_that_meet_in_cells_are_no_repeats(kind, seed):
    X, y = cells(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OLSEnsembleRegressorCV(50, random_state=seed).fit(kind(X), y)
        OLSEnsembleRegressorCV(50, random_state=seed).fit(kind(X), np.round(y))
    fresh, target = cells(seed + 1000, 5000)
    assert -model.best_score_ == pytest.approx(np.mean((target - model.predict(fresh)) ** 2), rel=0.3)
    with pytest.warns(UserWarning, match=r"200 of 400 rows repeat others"):
        OLSEnsembleRegressorCV(50, random_state=seed).fit(kind(np.vstack([X, X])), np.r_[y, y])


def test_warm_start_equals_a_cold_fit(seed):
    """The size is chosen for the members there are then: it may differ from that for fewer."""
    X, y, _ = gaussian(seed)
    model = OLSEnsembleRegressorCV(20, warm_start=True, inclusion="uniform", random_state=seed).fit(X, y)
    model.set_params(n_estimators=60).fit(X, y)
    whole = OLSEnsembleRegressorCV(60, inclusion="uniform", random_state=seed).fit(X, y)
    assert model.max_features_ == whole.max_features_ and model.n_estimators_ == 60
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-9, atol=1e-12)


def test_intervals_and_pickles(seed):
    X, y, _ = gaussian(seed)
    model = OLSEnsembleRegressorCV(20, random_state=seed).fit(X, y)
    assert model.predict_interval(X[:3]).shape == (3, 2)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.risk_curve(7), model.risk_curve(7))


@pytest.mark.filterwarnings("ignore:y holds one value", "ignore:members have")
@pytest.mark.parametrize("kwargs", [{}, {"inclusion": "auto"}, {"cv": 3}], ids=str)
def test_strange_data_sets_have_ordinary_predictions(kwargs, seed):
    rng = np.random.default_rng(seed)
    X, y, _ = gaussian(seed, n=40, p=12)
    collinear = np.column_stack([X, X[:, :4], np.ones(40), X[:, 0] + X[:, 1], np.zeros(40)])
    for data, target in (
        (collinear, y),  # duplicated, constant, dependent and zero columns
        (X, np.full(40, 3.0)),  # nothing to explain
        (X[:5], y[:5]),  # five rows
        (X[:, :1], y),  # one column
        (rng.standard_normal((6, 50)), y[:6]),  # far more columns than rows
        (rng.integers(0, 2, (40, 15)).astype(float), y),  # many equal rows of zeros and ones
    ):
        model = OLSEnsembleRegressorCV(30, random_state=seed, **kwargs).fit(data, target)
        prediction = model.predict(data)
        assert np.isfinite(prediction).all() and np.abs(prediction - target.mean()).max() < 20 * (target.std() + 1e-9)


def test_bad_requests_are_refused():
    X, y, _ = gaussian(0)
    cases = [
        ({"cv": "loocv"}, "cv='loocv' is not known"),
        ({"cv": "oob"}, "cv='oob' needs rows that members are not given"),
        ({"cv": 100}, "more folds than the 80 rows"),
        ({"inclusion": "lasso"}, "inclusion='lasso' is not known"),
        ({"max_features": [0]}, "max_features=0 must lie between 1 and the 40"),
        ({"max_features": [5, 50]}, "max_features=50 must lie"),
        ({"n_estimators": "auto"}, "n_estimators='auto' must be an int"),
        ({"scale": "loo"}, "scale='loo' must be a finite number"),
        ({"n_estimators": np.inf, "mixing": "stacking"}, "stacking"),
        ({"keep_rows": "yes"}, "keep_rows='yes' must be True, False"),
    ]
    model = OLSEnsembleRegressorCV(10, random_state=0).fit(X, y)
    before, defaults = model.predict(X), model.get_params()
    for params, message in cases:
        with pytest.raises(ValueError, match=message):
            model.set_params(**params).fit(X, y)
        model.set_params(**defaults)
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match=r"asks for 39 columns.*at most 16 keep"):
        OLSEnsembleRegressorCV(max_features=[39]).fit(X[:20], y[:20])


def test_soil_is_predicted_better_than_by_ridge(seed):
    """Halves of the rows, by turns: ridge regression collapses in some of them."""
    X, y = load_soil_carbon(return_X_y=True)
    ours, ridge = [], []
    for half in range(2):
        train, test = np.arange(half, 732, 2), np.arange(1 - half, 732, 2)
        ours.append(OLSEnsembleRegressorCV().fit(X[train], y[train]).score(X[test], y[test]))
        peer = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 50))).fit(X[train], y[train])
        ridge.append(peer.score(X[test], y[test]))
    assert np.mean(ours) > np.mean(ridge) and np.min(ours) > np.min(ridge)
