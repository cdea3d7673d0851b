"""OLSEnsembleRegressor: its members, data of all kinds, streams, scale and weights."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import OLSEnsembleRegressor, member_coefficients
from random_problems import random_problem


def test_coefficients_are_the_mean_of_the_members(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(30, 0.4, max_samples=0.8, random_state=seed).fit(X, y)
    coef, intercept = member_coefficients(X, y, model.feature_subsets_, model.sample_subsets_)
    assert_allclose(model.coef_, coef.mean(axis=0), rtol=1e-10, atol=1e-12)
    assert model.intercept_ == pytest.approx(intercept.mean())
    assert_allclose(model.member_coefs().toarray(), coef, rtol=1e-12, atol=1e-13)
    assert_allclose(model.inclusion_, (coef != 0).mean(axis=0))
    assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)


def test_prediction_equals_the_mean_of_bagged_predictions(seed):
    X, y = random_problem(seed)
    peer = BaggingRegressor(
        LinearRegression(tol=1e-12), 40, max_features=10, bootstrap=False, random_state=seed
    ).fit(X, y)
    coef, intercept = member_coefficients(X, y, [np.sort(f) for f in peer.estimators_features_])
    assert_allclose(X @ coef.mean(axis=0) + intercept.mean(), peer.predict(X), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:members have 30 columns")
def test_threads_change_nothing(seed):
    X, y = random_problem(seed, n=50, p=60)
    for settings in ({}, {"max_samples": 0.6}, {"sampling": "bernoulli"}, {"max_features": 40}):
        single, threaded = (
            OLSEnsembleRegressor(51, random_state=seed, n_jobs=j, **settings).fit(X, y)
            for j in (1, 2)
        )
        assert_array_equal(single.coef_, threaded.coef_, err_msg=str(settings))
        assert single.intercept_ == threaded.intercept_, settings


def test_containers_give_the_same_coefficients(seed):
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    X, y = random_problem(seed)
    X[np.abs(X) < 0.5] = 0
    names = [f"c{j}" for j in range(X.shape[1])]
    reference = OLSEnsembleRegressor(30, random_state=seed).fit(X, y)
    frames = [
        pd.DataFrame(X, columns=names),
        pl.DataFrame(X, schema=names),
        pa.table(dict(zip(names, X.T, strict=True))),
    ]
    for container in (*frames, sp.csr_array(X), sp.csc_matrix(X), X.tolist()):
        model = OLSEnsembleRegressor(30, random_state=seed).fit(container, y)
        assert_allclose(model.coef_, reference.coef_, rtol=1e-9, atol=1e-11)
        assert_allclose(model.predict(container), reference.predict(X), rtol=1e-9, atol=1e-9)
    for frame in frames:
        assert list(OLSEnsembleRegressor(3).fit(frame, y).feature_names_in_) == names


def test_float32_stays_float32_and_is_accurate(seed):
    X, y = random_problem(seed, n=40, p=90)
    for max_features, max_samples in ((15, 1.0), (60, 0.5)):  # least squares, minimum norm
        kwargs = {
            "n_estimators": 20,
            "max_features": max_features,
            "max_samples": max_samples,
            "random_state": seed,
        }
        single = OLSEnsembleRegressor(**kwargs).fit(X.astype(np.float32), y.astype(np.float32))
        double = OLSEnsembleRegressor(**kwargs).fit(
            X.astype(np.float32).astype(float), y.astype(np.float32).astype(float)
        )
        assert (
            single.coef_.dtype == np.float32
            and single.predict(X.astype(np.float32)).dtype == np.float32
        )
        assert_allclose(single.coef_, double.coef_, rtol=3e-6, atol=1e-7)


def test_scale_shrinks_about_the_mean_target(seed):
    X, y = random_problem(seed)
    for max_samples in (1.0, 0.5):
        plain = OLSEnsembleRegressor(20, 0.3, max_samples, random_state=seed).fit(X, y)
        half = OLSEnsembleRegressor(20, 0.3, max_samples, scale=0.5, random_state=seed).fit(X, y)
        assert_allclose(half.coef_, plain.coef_ / 2)
        centre = np.mean([y[rows].mean() for rows in plain.sample_subsets_])
        assert_allclose(half.predict(X) - centre, (plain.predict(X) - centre) / 2, atol=1e-9)
    nothing = OLSEnsembleRegressor(20, 0.3, scale=0.0, random_state=seed).fit(X, y)
    assert_allclose(nothing.predict(X), y.mean())


def test_probabilities_of_columns(seed):
    X, y = random_problem(seed)
    chance = np.linspace(0, 1, X.shape[1])
    model = OLSEnsembleRegressor(400, chance, random_state=seed).fit(X, y)
    assert model.inclusion_[0] == 0 and model.inclusion_[-1] == 1 and model.coef_[0] == 0
    assert np.all(
        np.abs(model.inclusion_ - chance) <= 5 * np.sqrt(chance * (1 - chance) / 400) + 1e-12
    )


def test_partial_fit_equals_fit_and_continues_one(seed):
    X, Y = random_problem(seed, n=90, q=2)
    weight = np.random.default_rng(seed).uniform(0, 2, 90)
    for fit_intercept in (True, False):
        expected, parts, continued = (
            OLSEnsembleRegressor(25, 0.3, fit_intercept=fit_intercept, random_state=seed)
            for _ in range(3)
        )
        expected.fit(X, Y, weight)
        for rows in (slice(0, 1), slice(1, 11), slice(11, 12), slice(12, 90)):
            parts.set_params(keep_rows=False).partial_fit(X[rows], Y[rows], weight[rows])
            parts = pickle.loads(pickle.dumps(parts))  # of streams what goes on is kept
        continued.fit(X[:40], Y[:40], weight[:40]).partial_fit(X[40:], Y[40:], weight[40:])
        for model in (parts, continued):
            assert_allclose(model.coef_, expected.coef_, rtol=1e-9, atol=1e-11)
            assert_allclose(model.intercept_, expected.intercept_, rtol=1e-9, atol=1e-11)


def test_partial_fit_keeps_its_accuracy_on_ill_conditioned_rows(seed):
    """A triangular factor does not square the condition number; accumulated X'X would lose
    everything here.
    """
    rng = np.random.default_rng(seed)
    X = np.vander(rng.uniform(0, 1, 300), 9)[:, :-1]
    b = rng.standard_normal(8)
    model = OLSEnsembleRegressor(1, 1.0, fit_intercept=False)
    for rows in np.split(np.arange(300), 6):
        model.partial_fit(X[rows], X[rows] @ b)
    assert np.linalg.norm(model.coef_ - b) < 1e-8 * np.linalg.norm(b)


def test_partial_fit_is_not_there_when_rows_are_drawn():
    with pytest.raises(AttributeError, match="partial_fit"):
        OLSEnsembleRegressor(max_samples=0.5).partial_fit  # noqa: B018


def test_a_pickle_without_rows_is_kilobytes_and_predicts(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3000, 200))
    y = rng.standard_normal(3000)
    model = OLSEnsembleRegressor(200, random_state=seed, keep_rows=False).fit(X, y)
    stored = pickle.dumps(model)
    assert len(stored) < 20_000
    unpickled = pickle.loads(stored)
    assert_array_equal(unpickled.predict(X[:5]), model.predict(X[:5]))
    assert_array_equal(unpickled.feature_subsets_.indices, model.feature_subsets_.indices)
    with pytest.raises(ValueError, match=r"training data.*fit"):
        unpickled.predict_interval(X[:5])


def test_random_states(seed):
    X, y = random_problem(seed)
    fits = [OLSEnsembleRegressor(5, random_state=s).fit(X, y).coef_ for s in (0, 0, 1, None, None)]
    assert_array_equal(fits[0], fits[1])
    assert all(np.abs(fits[i] - fits[j]).max() > 0 for i, j in ((0, 2), (3, 4)))
    instance = [
        OLSEnsembleRegressor(5, random_state=np.random.RandomState(3)).fit(X, y).coef_
        for _ in range(2)
    ]
    assert_array_equal(*instance)


def test_ensembles_work_in_pipelines(seed):
    X, y = random_problem(seed, n=120)
    model = OLSEnsembleRegressor(30, 0.9, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), model)
    assert cross_val_score(clone(pipeline), X, y).mean() > 0.5
    scaled = StandardScaler().fit_transform(X)
    assert_allclose(pipeline.fit(X, y).predict(X), clone(model).fit(scaled, y).predict(scaled))


# Scale and weights from leave-one-out predictions


def signal(seed, nonzero, n=100, p=60, sigma=0.7):
    """Data of equal coefficients on the first columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    beta = np.zeros(p)
    beta[:nonzero] = 1 / np.sqrt(nonzero)
    return X, X @ beta + sigma * rng.standard_normal(n), beta


@pytest.mark.parametrize("max_samples", [1.0, 0.6])
def test_scale_is_the_slope_of_targets_on_held_out_predictions(max_samples, seed):
    """Held-out predictions of weighted rows and two targets come from refits by scikit-learn."""
    X, Y = random_problem(seed, n=25, p=10, q=2)
    weights = np.random.default_rng(seed).uniform(0.2, 2, 25)
    model = OLSEnsembleRegressor(8, 4, max_samples, scale="auto", random_state=seed)
    model.fit(X, Y, weights)
    deviations, targets = np.empty((2, 25, 2))  # both from the mean of the training targets
    for row in range(25):
        means = []
        predictions = []
        for columns, rows in zip(model.feature_subsets_, model.sample_subsets_, strict=True):
            train = np.setdiff1d(rows, [row])
            member = LinearRegression()
            member.fit(X[np.ix_(train, columns)], Y[train], weights[train])
            means.append(np.average(Y[train], axis=0, weights=weights[train]))
            predictions.append(member.predict(X[row : row + 1, columns])[0])
        mean = np.mean(means, axis=0)
        deviations[row] = np.mean(predictions, axis=0) - mean
        targets[row] = Y[row] - mean
    w = weights[:, None]
    squares = np.sum(w * deviations**2)
    slope = np.sum(w * deviations * targets) / squares
    variance = np.sum(w * (targets - slope * deviations) ** 2) / 50 / squares
    expected = 1 + (slope - 1) * max(0.0, 1 - variance / (slope - 1) ** 2)
    assert model.scale_ == pytest.approx(max(0.0, expected), rel=1e-7) and model.scale_ != 1


def test_scale_makes_up_for_a_size_that_is_too_small(seed):
    X, y, beta = signal(seed, 60, n=300)
    plain = OLSEnsembleRegressor(60, 8, random_state=seed).fit(X, y)
    scaled = OLSEnsembleRegressor(60, 8, scale="auto", random_state=seed).fit(X, y)
    assert scaled.scale_ > 1
    assert np.sum((scaled.coef_ - beta) ** 2) < np.sum((plain.coef_ - beta) ** 2)


def test_stacking_is_accepted_on_sparse_and_helps(seed):
    X, y, beta = signal(seed, 2, n=200, sigma=0.4)
    plain = OLSEnsembleRegressor(200, 6, random_state=seed).fit(X, y)
    stacked = OLSEnsembleRegressor(200, 6, mixing="stacking", random_state=seed).fit(X, y)
    assert stacked.stacking_advantage_ > 2 and np.ptp(stacked.weights_) > 0
    assert stacked.weights_.min() >= 0 and stacked.weights_.sum() == pytest.approx(1)
    assert np.sum((stacked.coef_ - beta) ** 2) < 0.5 * np.sum((plain.coef_ - beta) ** 2)
    assert_allclose(stacked.coef_, stacked.weights_ @ stacked.member_coefs().toarray(), atol=1e-11)


def test_a_shut_gate_leaves_equal_weights(seed):
    """On pure noise stacking has nothing to find; of 10 data sets the gate may let 2 through
    (measured: 0 of 40).
    """
    shut = 0
    for trial in range(10):
        rng = np.random.default_rng([seed, trial])
        X = rng.standard_normal((80, 30))
        y = rng.standard_normal(80)
        model = OLSEnsembleRegressor(40, 10, mixing="stacking", random_state=trial).fit(X, y)
        if model.stacking_advantage_ <= 2:
            shut += 1
            assert_array_equal(model.weights_, np.full(40, 1 / 40))
            plain = OLSEnsembleRegressor(40, 10, random_state=trial).fit(X, y)
            assert_allclose(model.coef_, plain.coef_)
    assert shut >= 8


def test_the_gate_is_shut_on_dense_signals_with_more_members_than_rows(seed):
    """The gate may be open for 3 of 10 data sets (measured: 1 of 40)."""
    shut = 0
    for trial in range(10):
        X, y, _ = signal([seed, trial], 150, n=80, p=150, sigma=0.5)
        model = OLSEnsembleRegressor(120, 25, mixing="stacking", random_state=trial).fit(X, y)
        assert (model.stacking_advantage_ <= 2) == bool(np.ptp(model.weights_) == 0)
        shut += model.stacking_advantage_ <= 2
    assert shut >= 7


def test_streams_cannot_hold_rows_out(seed):
    X, y = random_problem(seed)
    for settings in ({"scale": "auto"}, {"mixing": "stacking"}):
        with pytest.raises(ValueError, match="partial_fit"):
            OLSEnsembleRegressor(5, **settings).partial_fit(X, y)
