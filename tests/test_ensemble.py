"""OLSEnsembleRegressor through the public door."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import OLSEnsembleRegressor, member_coefficients
from test_members import random_problem


def test_coefficients_are_the_mean_of_the_members(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(30, 0.4, max_samples=0.8, random_state=seed).fit(X, y)
    coef, intercept = member_coefficients(X, y, model.feature_subsets_, model.sample_subsets_)
    np.testing.assert_allclose(model.coef_, coef.mean(axis=0), rtol=1e-10, atol=1e-12)
    assert model.intercept_ == pytest.approx(intercept.mean())
    np.testing.assert_allclose(model.member_coefs().toarray(), coef, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.inclusion_, (coef != 0).mean(axis=0))
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)


def test_prediction_equals_the_mean_of_bagged_predictions(seed):
    X, y = random_problem(seed)
    peer = BaggingRegressor(
        LinearRegression(tol=1e-12), 40, max_features=10, bootstrap=False, random_state=seed
    ).fit(X, y)  # fmt: skip
    coef, intercept = member_coefficients(X, y, [np.sort(f) for f in peer.estimators_features_])
    np.testing.assert_allclose(X @ coef.mean(axis=0) + intercept.mean(), peer.predict(X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kwargs", [{}, {"max_samples": 0.6}, {"sampling": "bernoulli"}, {"max_features": 40}])
@pytest.mark.filterwarnings("ignore:members have 30 columns")
def test_threads_change_nothing(kwargs, seed):
    X, y = random_problem(seed, n=50, p=60)
    one, two = (OLSEnsembleRegressor(51, random_state=seed, n_jobs=j, **kwargs).fit(X, y) for j in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.intercept_ == two.intercept_


@pytest.mark.parametrize("design", ["balanced", "independent"])
@pytest.mark.parametrize("kwargs", [{}, {"max_samples": 0.6}, {"sampling": "bernoulli"}])
def test_growing_in_steps_equals_one_fit(design, kwargs, seed):
    X, y = random_problem(seed)
    grown = OLSEnsembleRegressor(7, 0.3, design=design, warm_start=True, random_state=seed, **kwargs).fit(X, y)
    grown.set_params(n_estimators=40).fit(X, y)
    whole = OLSEnsembleRegressor(40, 0.3, design=design, random_state=seed, **kwargs).fit(X, y)
    np.testing.assert_allclose(grown.coef_, whole.coef_, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(grown.inclusion_, whole.inclusion_)
    assert grown.n_estimators_ == 40 and len(grown.weights_) == 40


def test_warm_start_refuses_what_it_cannot_keep(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(7, 0.3, warm_start=True, random_state=seed).fit(X, y)
    before = model.coef_.copy()
    with pytest.raises(ValueError, match="n_estimators=3 is below the 7 members"):
        model.set_params(n_estimators=3).fit(X, y)
    with pytest.raises(ValueError, match=r"max_features was changed from 0\.3 to 0\.5"):
        model.set_params(n_estimators=9, max_features=0.5).fit(X, y)
    np.testing.assert_array_equal(model.coef_, before)
    model.set_params(n_estimators=7, max_features=0.3).fit(X, y)
    np.testing.assert_allclose(model.coef_, before, rtol=1e-14)


def test_warm_start_on_other_data_starts_again(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(7, 0.3, warm_start=True, random_state=seed).fit(X, y)
    model.set_params(n_estimators=9).fit(X, y + X[:, 0])
    anew = OLSEnsembleRegressor(9, 0.3, random_state=seed).fit(X, y + X[:, 0])
    np.testing.assert_array_equal(model.coef_, anew.coef_)


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
    for given in (*frames, sp.csr_array(X), sp.csc_matrix(X), X.tolist()):
        model = OLSEnsembleRegressor(30, random_state=seed).fit(given, y)
        np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(model.predict(given), reference.predict(X), rtol=1e-9, atol=1e-9)
    for frame in frames:
        assert list(OLSEnsembleRegressor(3).fit(frame, y).feature_names_in_) == names


def test_float32_stays_float32_and_is_accurate(seed):
    X, y = random_problem(seed, n=40, p=90)
    for max_features, max_samples in ((15, 1.0), (60, 0.5)):  # least squares, minimum norm
        kwargs = dict(n_estimators=20, max_features=max_features, max_samples=max_samples, random_state=seed)  # noqa: C408
        single = OLSEnsembleRegressor(**kwargs).fit(X.astype(np.float32), y.astype(np.float32))
        double = OLSEnsembleRegressor(**kwargs).fit(
            X.astype(np.float32).astype(float), y.astype(np.float32).astype(float)
        )
        assert single.coef_.dtype == np.float32 and single.predict(X.astype(np.float32)).dtype == np.float32
        np.testing.assert_allclose(single.coef_, double.coef_, rtol=3e-6, atol=1e-7)


def test_scale_shrinks_about_the_mean_target(seed):
    X, y = random_problem(seed)
    for max_samples in (1.0, 0.5):
        plain = OLSEnsembleRegressor(20, 0.3, max_samples, random_state=seed).fit(X, y)
        half = OLSEnsembleRegressor(20, 0.3, max_samples, scale=0.5, random_state=seed).fit(X, y)
        np.testing.assert_allclose(half.coef_, plain.coef_ / 2)
        centre = np.mean([y[rows].mean() for rows in plain.sample_subsets_])
        np.testing.assert_allclose(half.predict(X) - centre, (plain.predict(X) - centre) / 2, atol=1e-9)
    nothing = OLSEnsembleRegressor(20, 0.3, scale=0.0, random_state=seed).fit(X, y)
    np.testing.assert_allclose(nothing.predict(X), y.mean())


def test_probabilities_of_columns(seed):
    X, y = random_problem(seed)
    chance = np.linspace(0, 1, X.shape[1])
    model = OLSEnsembleRegressor(400, chance, random_state=seed).fit(X, y)
    assert model.inclusion_[0] == 0 and model.inclusion_[-1] == 1 and model.coef_[0] == 0
    assert np.all(np.abs(model.inclusion_ - chance) <= 5 * np.sqrt(chance * (1 - chance) / 400) + 1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_partial_fit_equals_fit(fit_intercept, seed):
    X, Y = random_problem(seed, n=90, q=2)
    weight = np.random.default_rng(seed).uniform(0, 2, 90)
    whole = OLSEnsembleRegressor(25, 0.3, fit_intercept=fit_intercept, random_state=seed).fit(X, Y, weight)
    parts = OLSEnsembleRegressor(25, 0.3, fit_intercept=fit_intercept, random_state=seed)
    for rows in (slice(0, 1), slice(1, 11), slice(11, 12), slice(12, 90)):
        parts.partial_fit(X[rows], Y[rows], weight[rows])
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(parts.intercept_, whole.intercept_, rtol=1e-9, atol=1e-11)


def test_partial_fit_keeps_its_accuracy_on_ill_conditioned_rows(seed):
    """A triangular factor does not square the condition number; accumulated X'X would lose everything here."""
    rng = np.random.default_rng(seed)
    X = np.vander(rng.uniform(0, 1, 300), 9)[:, :-1]
    b = rng.standard_normal(8)
    model = OLSEnsembleRegressor(1, 1.0, fit_intercept=False)
    for rows in np.split(np.arange(300), 6):
        model.partial_fit(X[rows], X[rows] @ b)
    assert np.linalg.norm(model.coef_ - b) < 1e-8 * np.linalg.norm(b)


def test_partial_fit_continues_a_fit(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(25, 0.3, random_state=seed).fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    np.testing.assert_allclose(model.coef_, OLSEnsembleRegressor(25, 0.3, random_state=seed).fit(X, y).coef_, rtol=1e-9)


def test_partial_fit_is_not_there_when_rows_are_drawn():
    with pytest.raises(AttributeError, match="partial_fit"):
        OLSEnsembleRegressor(max_samples=0.5).partial_fit  # noqa: B018


def test_a_pickle_without_rows_is_kilobytes_and_predicts(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((3000, 200)), rng.standard_normal(3000)
    model = OLSEnsembleRegressor(200, random_state=seed, keep_rows=False).fit(X, y)
    stored = pickle.dumps(model)
    assert len(stored) < 20_000
    again = pickle.loads(stored)
    np.testing.assert_array_equal(again.predict(X[:5]), model.predict(X[:5]))
    np.testing.assert_array_equal(again.feature_subsets_.indices, model.feature_subsets_.indices)
    with pytest.raises(ValueError, match=r"needs the training data: .*pickle.*written without.*Call fit"):
        again.predict_interval(X[:5])


def test_skops_needs_no_trusted_types(seed):
    skops_io = pytest.importorskip("skops.io")
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(10, np.full(24, 0.4), random_state=seed).fit(X, y)
    again = skops_io.loads(skops_io.dumps(model), trusted=["olsen.OLSEnsembleRegressor"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_random_states(seed):
    X, y = random_problem(seed)
    fits = [OLSEnsembleRegressor(5, random_state=s).fit(X, y).coef_ for s in (0, 0, 1, None, None)]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert all(np.abs(fits[i] - fits[j]).max() > 0 for i, j in ((0, 2), (3, 4)))
    instance = [OLSEnsembleRegressor(5, random_state=np.random.RandomState(3)).fit(X, y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(*instance)


def test_lives_in_pipelines(seed):
    X, y = random_problem(seed, n=120)
    model = OLSEnsembleRegressor(30, 0.9, random_state=seed)
    pipeline = make_pipeline(StandardScaler(), model)
    assert cross_val_score(clone(pipeline), X, y).mean() > 0.5
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_allclose(pipeline.fit(X, y).predict(X), clone(model).fit(scaled, y).predict(scaled))


def test_verbose_prints_progress(capsys):
    X, y = random_problem(0)
    OLSEnsembleRegressor(20, verbose=1).fit(X, y)
    assert "members: 20 of 20" in capsys.readouterr().out


def test_scikit_learn_callbacks_are_called():
    pytest.importorskip("sklearn.callback")

    class Counter:
        def __init__(self):
            self.ended, self.open = 0, False

        def setup(self, estimator, context):
            self.open = True

        def teardown(self, estimator, context):
            self.open = False

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context):
            self.ended += 1

    X, y = random_problem(0)
    counter = Counter()
    OLSEnsembleRegressor(40).set_callbacks(counter).fit(X, y)
    assert counter.ended > 1 and not counter.open
