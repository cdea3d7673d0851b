"""Laws that follow the signal: what members mimic, shares of laws, and the choice as users see it."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import Lasso, LassoCV, MultiTaskLasso, Ridge, RidgeCV
from sklearn.model_selection import GroupKFold

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._selection import mixture
from olsen._selection.signals import SignalOfGram, SignalOfRows
from olsen.subsets import Design, laws_of_members

# Members of several laws


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6), st.integers(1, 400))
def test_every_law_has_its_share_of_any_number_of_members(weights, k):
    shares = np.array(weights) / np.sum(weights)
    law = laws_of_members(shares, k)
    off = np.abs(np.bincount(law, minlength=len(shares)) - shares * k)
    assert len(law) == k and np.all(off <= 0.5 + len(shares) * shares / 2 + 1e-9 * k)
    np.testing.assert_array_equal(laws_of_members(shares, k + 50)[:k], law)


def mixed_design(seed, p=12, **options):
    chances = np.stack([np.full(p, 0.25), np.r_[np.ones(2), np.full(p - 2, 0.1)]])
    return Design(60, p, seed, chances, shares=np.array([0.3, 0.7]), **options), chances


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
@pytest.mark.parametrize("kind", ["balanced", "independent"])
def test_members_follow_their_laws(kind, sampling, seed):
    design, chances = mixed_design(seed, kind=kind, sampling=sampling)
    k = 4000
    features, samples = design.draw(0, k)
    law = laws_of_members(design.shares, k)
    assert samples is None and len(features) == k
    for i, chance in enumerate(chances):
        held = np.zeros((k, 12))
        for row, member in zip(held, features, strict=True):
            row[member] = 1
        own = held[law == i]
        error = np.sqrt(chance * (1 - chance) / len(own)) + 1e-12
        assert np.all(np.abs(own.mean(axis=0) - chance) <= 5 * error)


def test_a_member_does_not_depend_on_how_many_there_are(seed):
    design, _ = mixed_design(seed)
    whole, _ = design.draw(0, 300)
    part, _ = design.draw(117, 251)
    assert [m.tolist() for m in part] == [m.tolist() for m in whole][117:251]
    assert len(design.draw(5, 5)[0]) == 0


def test_designs_of_several_laws_name_what_is_wrong():
    chances = np.full((2, 5), 0.5)
    with pytest.raises(ValueError, match="one share is needed for each row of max_features"):
        Design(20, 5, 0, chances, shares=np.array([1.0]))
    with pytest.raises(ValueError, match="sum to 1"):
        Design(20, 5, 0, chances, shares=np.array([0.5, 0.6]))
    with pytest.raises(ValueError, match="see all rows"):
        Design(20, 5, 0, chances, max_samples=0.5, shares=np.array([0.5, 0.5]))


# What the laws mimic


def standardised(seed, n, p, q=1, nonzero=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.7 * rng.standard_normal((n, 1))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Y = X[:, :nonzero] @ rng.standard_normal((nonzero, q)) + 0.5 * rng.standard_normal((n, q))
    return np.asfortranarray(X), Y - Y.mean(axis=0)


def signals_of(X, Y):
    n = len(X)
    return [SignalOfGram(X.T @ X, X.T @ Y, n, float(n)), SignalOfRows(X, Y, np.ones(n), centred=True)]


@pytest.mark.parametrize(("n", "p"), [(60, 20), (30, 80), (40, 300)])
def test_spreads_are_ridge_regression_on_scaled_columns(n, p, seed):
    X, Y = standardised(seed, n, p, q=2)
    spread = np.random.default_rng(seed).random(p) * (np.arange(p) % 3 > 0)
    unit = np.sum(spread)  # squares of standardised columns, over the rows, are one
    Z = X * np.sqrt(spread)
    for signal in signals_of(X, Y):
        penalised, penalties = signal.penalised(spread), np.array([0.03, 2.0])
        for coef, penalty in zip(penalised.coefficients(penalties), penalties, strict=True):
            expected = Ridge(penalty * unit, fit_intercept=False).fit(Z, Y).coef_.T * np.sqrt(spread)[:, None]
            np.testing.assert_allclose(coef, expected, rtol=1e-5, atol=1e-6)
        hat = Z.T @ np.linalg.solve(Z @ Z.T + 0.03 * unit * np.eye(n), Z)
        np.testing.assert_allclose(penalised.probabilities(0.03), np.diagonal(hat), atol=1e-6)


@pytest.mark.parametrize(("n", "p"), [(60, 20), (30, 80)])
@pytest.mark.parametrize("q", [1, 3])
def test_the_lasso_is_that_of_scikit_learn(n, p, q, seed):
    X, Y = standardised(seed, n, p, q)
    shares = np.geomspace(1, 0.02, 9)
    top = np.linalg.norm(X.T @ Y, axis=1).max() / n
    for signal in signals_of(X, Y):
        path = signal.lasso(shares)
        assert 3 <= len(path) <= len(shares) and path.shape[1:] == (p, q)
        for i in (0, 2, len(path) - 1):
            how = {"alpha": shares[i] * top, "fit_intercept": False, "tol": 1e-10, "max_iter": 100_000}
            peer = Lasso(**how).fit(X, Y[:, 0]) if q == 1 else MultiTaskLasso(**how).fit(X, Y)
            expected = peer.coef_.reshape(q, p).T
            np.testing.assert_allclose(path[i], expected, atol=0.01 * np.abs(path).max())


@pytest.mark.parametrize("centred", [True, False])
def test_some_of_the_rows_are_about_their_own_means(centred, seed):
    rng = np.random.default_rng(seed)
    X, Y, w, rows = rng.standard_normal((20, 50)), rng.standard_normal((20, 2)), rng.random(20) + 0.1, np.arange(3, 17)

    def signal(rows):
        root, x, y = np.sqrt(w[rows])[:, None], X[rows], Y[rows]
        if centred:
            x, y = x - np.average(x, axis=0, weights=w[rows]), y - np.average(y, axis=0, weights=w[rows])
        return SignalOfRows(np.asfortranarray(root * x), root * y, root[:, 0], centred)

    part, alone = signal(np.arange(20)).take(rows), signal(rows)
    np.testing.assert_allclose(part.A, alone.A, atol=1e-12)
    np.testing.assert_allclose(part.B, alone.B, atol=1e-12)
    np.testing.assert_allclose(part.products, alone.A @ alone.A.T, atol=1e-12)
    assert part.weight == pytest.approx(w[rows].sum())


def test_the_lasso_is_its_own_next_step(seed):
    """With spreads |b_j| of the lasso's coefficients and its penalty, penalised least squares gives them again."""
    X, Y = standardised(seed, 80, 30, q=2)
    top = np.linalg.norm(X.T @ Y, axis=1).max() / 80
    b = MultiTaskLasso(0.1 * top, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, Y).coef_.T
    length = np.linalg.norm(b, axis=1)
    for signal in signals_of(X, Y):
        penalised = signal.penalised(length / length.max())
        again = penalised.coefficients(np.array([signal.lasso_penalty(b, 0.1)]))[0]
        np.testing.assert_allclose(again, b, atol=1e-5 * np.abs(b).max())


def test_members_mimic_the_lasso(seed):
    """Least squares on random columns, none of it penalised, predicts as the lasso does on fresh rows."""
    rng = np.random.default_rng(seed)
    X, Y = standardised(seed, 120, 60)
    peer = LassoCV(fit_intercept=False).fit(X, Y[:, 0])
    signal = signals_of(X, Y)[0]
    b = peer.coef_[:, None]
    share = peer.alpha_ * 120 / np.abs(X.T @ Y).max()
    chance = signal.penalised(np.abs(b[:, 0]) / np.abs(b).max()).probabilities(signal.lasso_penalty(b, share))
    members = OLSEnsembleRegressor(2000, chance, fit_intercept=False, random_state=seed).fit(X, Y[:, 0])
    fresh = rng.standard_normal((4000, 60)) + 0.7 * rng.standard_normal((4000, 1))
    ols = np.linalg.lstsq(X, Y[:, 0], rcond=None)[0]
    apart = np.mean((fresh @ (members.coef_ - peer.coef_)) ** 2)
    assert apart < 0.1 * np.mean((fresh @ (ols - peer.coef_)) ** 2)


# Shares


def test_weights_of_least_error_are_those_of_a_general_optimiser(seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((5, 5)) + 2
    S = root @ root.T
    found = mixture._weights(root)
    free = minimize(
        lambda w: w @ S @ w, np.full(5, 0.2), jac=lambda w: 2 * S @ w, bounds=[(0, 1)] * 5, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert found.min() >= 0 and found.sum() == pytest.approx(1)
    assert found @ S @ found <= free.fun * (1 + 1e-4)


def products_of(errors, folds=5):
    """Mean products in every fold of errors (rows, laws)."""
    return np.stack([part.T @ part / len(part) for part in np.array_split(errors, folds)])


def test_a_gain_that_one_fold_gives_is_none(seed):
    rng = np.random.default_rng(seed)
    errors = np.repeat(rng.standard_normal((100, 1)), 5, axis=1)
    errors[:, 4] *= 1.02
    errors[3] = [30.0, 30, 30, 30, 0]  # one row, which the sparse law alone predicts
    shares = np.array([0.2, 0, 0, 0, 0.8])
    damped = mixture._damped(shares, products_of(errors), np.full(5, 20.0), 100, 1)
    np.testing.assert_allclose(damped, [1, 0, 0, 0, 0])
    errors[:, 4] *= 0.5  # now every fold gains
    np.testing.assert_allclose(mixture._damped(shares, products_of(errors), np.full(5, 20.0), 100, 1), shares)


# Through the public door


def sparse(seed, n=120, p=200, nonzero=4, sigma=0.5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.exp(rng.standard_normal(p)) + rng.standard_normal(p)
    beta = np.zeros(p)
    beta[rng.choice(p, nonzero, replace=False)] = rng.choice([-1.0, 1.0], nonzero)
    beta /= X.std(axis=0)
    return X, X @ beta + sigma * rng.standard_normal(n), beta


def excess_risk(model, X, beta):
    """Of columns that are independent."""
    return np.sum((model.coef_ - beta) ** 2 * X.var(axis=0))


def test_sparse_signals_are_found(seed):
    X, y, beta = sparse(seed)
    model = OLSEnsembleRegressorCV(random_state=seed).fit(X, y)
    peer = LassoCV().fit((X - X.mean(axis=0)) / X.std(axis=0), y)
    lasso = np.sum((peer.coef_ / X.std(axis=0) - beta) ** 2 * X.var(axis=0))
    assert model.inclusion_kind_ == "mixed" and model.criterion_ == "kfold"
    assert excess_risk(model, X, beta) < 0.9 * lasso
    assert model.selected_[beta != 0].all() and np.count_nonzero(model.selected_) <= 12
    assert np.all(model.selection_frequency_[beta != 0] == 1)
    assert model.selection_frequency_[beta == 0].mean() < 0.05
    assert sum(model.inclusion_shares_.values()) == pytest.approx(1)
    assert model.inclusion_shares_["sparse"] > 0.5


def test_dense_signals_lose_nothing(seed):
    ratios = []
    for s in range(seed, seed + 6):
        rng = np.random.default_rng(s)
        X = rng.standard_normal((100, 60))
        beta = rng.standard_normal(60) / np.sqrt(60)
        y = X @ beta + rng.standard_normal(100)
        model = OLSEnsembleRegressorCV(random_state=s).fit(X, y)
        ridge = RidgeCV(np.logspace(-2, 4, 50)).fit(X, y)
        ratios.append(np.sum((model.coef_ - beta) ** 2) / np.sum((ridge.coef_ - beta) ** 2))
    assert np.mean(ratios) < 1.1


def test_the_error_of_noise_is_not_promised_away(seed):
    """Every step that looks at y is repeated in the folds: targets that no column explains keep their variance."""
    promised = []
    for s in range(seed, seed + 20):
        rng = np.random.default_rng(s)
        X, y = rng.standard_normal((60, 150)), rng.standard_normal(60)
        model = OLSEnsembleRegressorCV(60, random_state=s).fit(X, y)
        fresh = rng.standard_normal((2000, 150))
        actual = 1 + np.mean((model.predict(fresh) - 0) ** 2)
        promised.append(-model.best_score_ / np.var(y, ddof=1) - actual)
    assert np.mean(promised) > -4 * np.std(promised, ddof=1) / np.sqrt(len(promised))


def test_left_out_predictions_are_those_of_the_folds(seed):
    X, y, _ = sparse(seed)
    model = OLSEnsembleRegressorCV(random_state=seed).fit(X, y)
    left = model.loo_prediction_
    assert left.shape == y.shape
    error = np.mean((y - left) ** 2)  # of fewer members than the model has, so a little more than promised
    assert -model.best_score_ * 0.9 < error < -model.best_score_ * 1.5


def test_rows_left_out_several_times_count_once(seed):
    """With fewer than a hundred rows folds are repeated, which adds no rows: errors of left-out rows say how sure the
    error is."""
    X, y, _ = sparse(seed, n=80, p=60)
    model = OLSEnsembleRegressorCV(60, random_state=seed).fit(X, y)
    assert model.inclusion_kind_ == "mixed"
    squares = (y - model.loo_prediction_) ** 2
    expected = squares.std(ddof=1) / np.sqrt(len(y))
    assert model.cv_results_["standard_error"][0] == pytest.approx(expected, rel=0.25)


def test_a_warm_start_grows_to_the_same_members(seed):
    X, y, _ = sparse(seed)
    grown = OLSEnsembleRegressorCV(30, warm_start=True, random_state=seed).fit(X, y)
    grown.set_params(n_estimators=80).fit(X, y)
    fresh = OLSEnsembleRegressorCV(80, random_state=seed).fit(X, y)
    np.testing.assert_allclose(grown.coef_, fresh.coef_, rtol=1e-10, atol=1e-12)
    assert grown.inclusion_shares_ == fresh.inclusion_shares_


def test_pickles_keep_the_laws(seed):
    X, y, _ = sparse(seed)
    model = OLSEnsembleRegressorCV(50, random_state=seed).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.inclusion_shares_ == model.inclusion_shares_
    assert [m.tolist() for m in again.feature_subsets_] == [m.tolist() for m in model.feature_subsets_]


def test_a_given_scale_is_in_the_reported_error(seed):
    """Promised and actual errors agree where the scale is far from the best one."""
    X, y, beta = sparse(seed, n=400, p=60)
    model = OLSEnsembleRegressorCV(60, scale=0.5, random_state=seed).fit(X, y)
    assert model.inclusion_kind_ == "mixed" and model.scale_ == 0.5
    actual = 0.25 + np.sum((model.coef_ - beta) ** 2 * X.var(axis=0))
    assert -model.best_score_ == pytest.approx(actual, rel=0.25)
    full = OLSEnsembleRegressorCV(60, random_state=seed).fit(X, y)
    assert -model.best_score_ > 2 * -full.best_score_


def test_rows_of_weight_zero_are_not_there(seed):
    X, y, _ = sparse(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    model = OLSEnsembleRegressorCV(40, random_state=seed).fit(X, y, sample_weight=weight)
    kept = weight > 0
    alone = OLSEnsembleRegressorCV(40, random_state=seed).fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-9, atol=1e-12)
    assert model.inclusion_shares_ == pytest.approx(alone.inclusion_shares_)


def test_several_targets_share_their_columns(seed):
    X, y, beta = sparse(seed)
    other = np.random.default_rng(seed).standard_normal(len(y))
    model = OLSEnsembleRegressorCV(60, random_state=seed).fit(X, np.column_stack([y, y + 0.1 * other]))
    assert model.coef_.shape == (2, X.shape[1])
    assert model.selected_[beta != 0].all() and np.count_nonzero(model.selected_) <= 12


def test_groups_are_kept_together(seed):
    """Rows come four times with different noise: leave-one-out of single rows would promise too much."""
    X, _, beta = sparse(seed, n=40, p=80)
    rng = np.random.default_rng(seed)
    X, groups = np.repeat(X, 4, axis=0), np.repeat(np.arange(40), 4)
    y = X @ beta + np.repeat(2 * rng.standard_normal(40), 4) + 0.1 * rng.standard_normal(160)
    model = OLSEnsembleRegressorCV(60, cv=GroupKFold(5), random_state=seed).fit(X, y, groups=groups)
    assert model.criterion_ == "kfold"
    assert -model.best_score_ > 2  # of new groups: their own noise has variance four


@pytest.mark.parametrize("options", [
    {"max_features": [3, 10, 20]}, {"cv": "gcv"}, {"max_samples": 0.6}, {"tune": "max_samples"},
], ids=str)  # fmt: skip
def test_what_cannot_be_mixed_is_chosen_as_before(options, seed):
    X, y, _ = sparse(seed, n=60, p=90)
    model = OLSEnsembleRegressorCV(30, random_state=seed, **options).fit(X, y)
    plain = OLSEnsembleRegressorCV(30, inclusion="loo", random_state=seed, **options).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert len(model.selected_) == len(model.selection_frequency_) == 0
    assert model.inclusion_shares_ == {plain.inclusion_kind_: 1.0}


@pytest.mark.parametrize("y", ["constant", "one row"])
def test_targets_without_signal(y, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 60))
    target = np.full(40, 3.0)
    if y == "one row":
        target[7] = 50.0
    model = OLSEnsembleRegressorCV(20, random_state=seed).fit(X, target)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.best_score_)


def test_constant_and_dependent_columns(seed):
    X, y, _ = sparse(seed, n=80, p=40)
    X[:, 5] = 2.0
    X = np.column_stack([X, X[:, :10], X[:, 3] + X[:, 4]])
    model = OLSEnsembleRegressorCV(60, random_state=seed).fit(X, y)
    assert np.isfinite(model.coef_).all() and not model.selected_[5]
    assert model.score(X, y) > 0.7
