"""The tuner of the default model: what its schemes are, how they get their shares, and what was promised of it."""

import copy
import pickle
from io import BytesIO

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso, LassoCV, LinearRegression, MultiTaskLasso, Ridge, RidgeCV
from sklearn.model_selection import GroupKFold, KFold, cross_validate

import olsen
from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._selection import schemes
from olsen._selection.signals import SignalOfGram, SignalOfRows
from olsen.displays import RiskCurveDisplay, TuningCurveDisplay
from olsen.subsets import laws_of_members


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6), st.integers(1, 400))
def test_every_scheme_has_its_share_of_any_number_of_members(weights, k):
    shares = np.array(weights) / np.sum(weights)
    law = laws_of_members(shares, k)
    off = np.abs(np.bincount(law, minlength=len(shares)) - shares * k)
    assert len(law) == k and np.all(off <= 0.5 + len(shares) * shares / 2 + 1e-9 * k)
    np.testing.assert_array_equal(laws_of_members(shares, k + 50)[:k], law)


# What the schemes are


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


def test_weights_of_least_error_are_those_of_a_general_optimiser(seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((5, 5)) + 2
    S = root @ root.T
    found = schemes._weights(root)
    free = minimize(
        lambda w: w @ S @ w, np.full(5, 0.2), jac=lambda w: 2 * S @ w, bounds=[(0, 1)] * 5, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert found.min() >= 0 and found.sum() == pytest.approx(1)
    assert found @ S @ found <= free.fun * (1 + 1e-4)


# The choice, as users see it


def sparse(seed, n=100, p=60, nonzero=4, noise=0.5):
    rng = np.random.default_rng(seed)
    X, beta = rng.standard_normal((n, p)), np.zeros(p)
    beta[:nonzero] = rng.choice([-1.0, 1.0], nonzero)
    return X, X @ beta + noise * rng.standard_normal(n), beta


def r2(model, X, y):
    return 1 - np.mean((y - model.predict(X)) ** 2) / np.var(y)


def test_each_scheme_alone_is_the_penalised_fit_it_is_named_after(seed):
    """Shares and spreads of a fitted model, put together by hand: ridge and the lasso of scikit-learn among them."""
    X, y, _ = sparse(seed, noise=2.0)
    model = OLSEnsembleRegressorCV().fit(X, y)
    design, scale = model._fitted.design, model.scale_
    A, b = X - X.mean(axis=0), y - y.mean()
    total = np.zeros(60)
    for share, spreads, penalty in zip(design.shares, design.spreads, design.penalties, strict=False):
        S = np.flatnonzero(spreads > 0)
        root = np.sqrt(spreads[S])
        total[S] += share * root * Ridge(penalty, fit_intercept=False).fit(A[:, S] * root, b).coef_
    uniform = design.uniform_share
    if uniform > 0:
        members = OLSEnsembleRegressor(max(100, round(1000 * uniform)), design.max_features, random_state=design.seed)
        total += uniform * members.fit(X, y).coef_
    np.testing.assert_allclose(model.coef_, scale * total, rtol=1e-7, atol=1e-9)
    assert sum(model.inclusion_shares_.values()) == pytest.approx(1)
    ridge = OLSEnsembleRegressorCV(inclusion="ridge", scale=1.0).fit(X, y)
    alpha = float(ridge._fitted.design.penalties[0])
    expected = Ridge(alpha).fit(X / X.std(axis=0), y).coef_ / X.std(axis=0)
    np.testing.assert_allclose(ridge.coef_, expected, rtol=1e-6, atol=1e-9)
    penalties = np.geomspace(1e-2, 1e5, 400)
    peer = RidgeCV(penalties).fit(X / X.std(axis=0), y)
    assert np.log(alpha / peer.alpha_) == pytest.approx(0, abs=0.25)


def test_a_number_of_members_is_drawn_in_shares_and_tends_to_the_limit(seed):
    X, y, _ = sparse(seed)
    limit = OLSEnsembleRegressorCV().fit(X, y)
    few = OLSEnsembleRegressorCV(800, random_state=seed).fit(X, y)
    assert few.n_estimators_ == len(few.feature_subsets_) == 800
    assert few.inclusion_shares_ == limit.inclusion_shares_
    far = few.coef_ - few.limit_coef_
    noise = np.sqrt(np.mean(few.monte_carlo_std(X) ** 2))
    assert np.sqrt(np.mean((X @ far) ** 2)) < 2 * noise
    np.testing.assert_allclose(few.inclusion_, limit.inclusion_, atol=0.09)
    coefs = few.member_coefs().toarray()
    np.testing.assert_allclose(few.scale_ * coefs.mean(axis=0), few.coef_, rtol=1e-8, atol=1e-10)
    again = OLSEnsembleRegressorCV(300, random_state=seed, warm_start=True).fit(X, y).set_params(n_estimators=800)
    np.testing.assert_allclose(again.fit(X, y).coef_, few.coef_, rtol=1e-9, atol=1e-12)


def test_the_same_data_give_the_same_choice(seed):
    """Whatever random_state, threads and the order of the rows."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:300], y[:300]
    models = [OLSEnsembleRegressorCV(random_state=i, n_jobs=1 + i % 2).fit(X, y) for i in range(4)]
    for model in models[1:]:
        assert model.inclusion_shares_ == pytest.approx(models[0].inclusion_shares_, abs=1e-9)
        assert model.best_score_ == pytest.approx(models[0].best_score_, rel=1e-9)
    predictions = np.array([model.predict(X) for model in models])
    noise = np.sqrt(np.mean([model.monte_carlo_std(X) ** 2 for model in models]))
    assert np.sqrt(np.mean(predictions.var(axis=0, ddof=1))) <= 1.5 * noise + 1e-9 * y.std()
    orders = [np.random.default_rng(i).permutation(300) for i in range(6)]
    moved = np.array([OLSEnsembleRegressorCV(random_state=0).fit(X[o], y[o]).predict(X) for o in orders])
    assert np.sqrt(np.mean(moved.var(axis=0, ddof=1))) < 1e-6 * y.std() + 2 * noise


def test_units_do_not_matter(seed):
    X, y, _ = sparse(seed)
    units = 10.0 ** np.random.default_rng(seed).integers(-5, 6, X.shape[1])
    plain, scaled = (OLSEnsembleRegressorCV().fit(A, b) for A, b in ((X, y), (X * units, 1e6 * y + 3e7)))
    assert scaled.inclusion_shares_ == pytest.approx(plain.inclusion_shares_, abs=1e-4)
    np.testing.assert_allclose(scaled.coef_ * units / 1e6, plain.coef_, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n", [120, 1200])
def test_extreme_units_change_nothing_but_the_units(n, seed):
    """Entries whose squares leave double precision: coefficients, intervals and members of a number of them."""
    X, y, _ = sparse(seed, n=n, p=20)
    for k in (np.inf, 40):
        plain, extreme = (
            OLSEnsembleRegressorCV(k, random_state=seed).fit(A, b) for A, b in ((X, y), (X * 2.0**600, y * 2.0**300))
        )
        np.testing.assert_allclose(extreme.coef_ * 2.0**300, plain.coef_, rtol=0.05, atol=0.02)
        ends = [model.predict_interval(A[:3]) for model, A in ((plain, X), (extreme, X * 2.0**600))]
        np.testing.assert_allclose(ends[1] / 2.0**300, ends[0], rtol=0.1, atol=0.1)


def test_sparse_and_dense_signals_are_told_apart(seed):
    X, y, beta = sparse(seed, n=120, p=80)
    found = OLSEnsembleRegressorCV().fit(X, y)
    dense = np.random.default_rng(seed).standard_normal(80)
    other = OLSEnsembleRegressorCV().fit(X, X @ dense + 5 * np.random.default_rng(seed + 1).standard_normal(120))
    few, many = (sum(m.inclusion_shares_.get(name, 0.0) for name in ("lasso", "sparse")) for m in (found, other))
    assert few > 0.5 > many
    assert found.selected_[beta != 0].all() and np.count_nonzero(found.selected_) < 30
    assert np.all(found.selection_frequency_[beta != 0] > 0.9)
    rivals = LassoCV(cv=KFold(5, shuffle=True, random_state=0)).fit(X, y)
    assert np.sum((found.coef_ - beta) ** 2) < 1.1 * np.sum((rivals.coef_ - beta) ** 2)


def test_several_targets_have_their_own_schemes_whatever_their_units(seed):
    X, y, _ = sparse(seed)
    dense = X @ np.random.default_rng(seed).standard_normal(60)
    alone = OLSEnsembleRegressorCV().fit(X, y)
    both = OLSEnsembleRegressorCV().fit(X, np.column_stack([y, 1e4 * dense]))
    np.testing.assert_allclose(both.coef_[0], alone.coef_, rtol=1e-9, atol=1e-12)
    assert both.inclusion_shares_[0] == pytest.approx(alone.inclusion_shares_)
    assert both.scale_.shape == (2,) and both.selected_.shape == (2, 60) and len(both.feature_subsets_) == 2
    assert both.predict_interval(X[:3]).shape == (3, 2, 2) and both.coef_std_.shape == (2, 60)
    np.testing.assert_allclose(both.predict_interval(X[:3])[:, 0], alone.predict_interval(X[:3]), rtol=1e-9)
    np.testing.assert_allclose(both.loo_prediction_[:, 0], alone.loo_prediction_, rtol=1e-9)
    few = OLSEnsembleRegressorCV(200, random_state=seed).fit(X, np.column_stack([y, 1e4 * dense]))
    assert [c.shape for c in few.member_coefs()] == [(200, 60)] * 2


def test_full_factors_cost_nothing(seed):
    """Three binary factors with both levels coded: as good as least squares, where matched coins lost half as much."""
    rng = np.random.default_rng(seed)

    def table(n):
        return np.hstack([rng.standard_normal((n, 5)), *(np.eye(2)[rng.integers(0, 2, n)] for _ in range(3))])

    X, new, beta = table(2000), table(5000), rng.standard_normal(11)
    noise = 0.15 * np.std(X @ beta)
    y, truth = X @ beta + noise * rng.standard_normal(2000), new @ beta + noise * rng.standard_normal(5000)
    model = OLSEnsembleRegressorCV().fit(X, y)
    assert r2(model, new, truth) > r2(LinearRegression().fit(X, y), new, truth) - 0.001
    members = OLSEnsembleRegressorCV(500, random_state=seed).fit(X, y)
    assert r2(members, new, truth) > r2(model, new, truth) - 0.001 and members.n_fallbacks_ == 0


def test_one_far_row_does_not_decide(seed):
    """Of leverage near one, on the line or half off it; ridge regression is the yardstick."""
    lost = []
    for factor in (1.0, 0.4):
        for i in range(8):
            rng = np.random.default_rng([seed, i])
            X, new = rng.lognormal(0, 0.5, (62, 3)), rng.lognormal(0, 0.5, (2000, 3))
            X[0], beta = [60, 50, 40], np.array([1.0, 0.5, 0.3])
            y, truth = X @ beta + 0.5 * rng.standard_normal(62), new @ beta + 0.5 * rng.standard_normal(2000)
            y[0] = factor * X[0] @ beta
            model = OLSEnsembleRegressorCV().fit(X, y)
            assert model.scale_ <= 1
            lost.append(r2(RidgeCV(np.logspace(-3, 6, 40)).fit(X, y), new, truth) - r2(model, new, truth))
    assert np.mean(lost) < 0.05


@pytest.mark.parametrize("signal", [0.0, 0.2])
def test_little_or_no_signal(signal, seed):
    """Excess risk at most that of the better of ridge regression and the lasso, both tuned."""
    beta = np.zeros(50)
    beta[:5] = signal * np.array([1, 0.5, 0.3, 0.2, 0.1])
    excess = np.zeros(3)
    for i in range(60):
        rng = np.random.default_rng([seed, i])
        X = rng.standard_normal((100, 50))
        y = X @ beta + rng.standard_normal(100)
        folds = KFold(5, shuffle=True, random_state=0)
        peers = [RidgeCV(np.logspace(-2, 7, 40)), LassoCV(cv=folds)]
        fits = [OLSEnsembleRegressorCV().fit(X, y), *(peer.fit(X, y) for peer in peers)]
        excess += [np.sum((fit.coef_ - beta) ** 2) for fit in fits]
    assert excess[0] <= 1.1 * min(excess[1:])  # of sixty data sets; the bound of one is shown by make bench


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 12])
def test_few_rows_have_no_negative_error(n, seed):
    for i in range(5):
        rng = np.random.default_rng([seed, i])
        X = rng.standard_normal((n, 3))
        model = OLSEnsembleRegressorCV().fit(X, X[:, 0] + rng.standard_normal(n))
        assert model.best_score_ <= 0 and np.isfinite(model.coef_).all()


def test_the_estimated_error_is_not_that_of_the_winner(seed):
    """40 rows: not below the true error, on average over 60 data sets, although shares were chosen by it.

    Above it by what fits of two thirds of the rows have more.
    """
    estimated, true = 0.0, 0.0
    beta = np.r_[1, 0.5, 0.3, 0.2, 0.1, np.zeros(10)]
    for i in range(60):
        rng = np.random.default_rng([seed, i])
        X = rng.standard_normal((40, 15))
        model = OLSEnsembleRegressorCV().fit(X, X @ beta + rng.standard_normal(40))
        estimated -= model.best_score_
        true += 1 + np.sum((model.coef_ - beta) ** 2) + model.intercept_**2
    assert 0.96 < estimated / true < 1.2


def test_there_is_always_a_curve(seed):
    pytest.importorskip("matplotlib")
    X, y, _ = sparse(seed)
    blocks = (lambda: iter([(X[:50], y[:50]), (X[50:], y[50:])]), None)
    for data in ((X, y), blocks):
        for how in ({}, {"inclusion": "ridge"}, {"n_estimators": 50}, {"inclusion": "uniform", "n_estimators": 50}):
            model = OLSEnsembleRegressorCV(random_state=0, **how).fit(*data)
            found = model.cv_results_
            uniform = ~found["mixture"]
            assert uniform.sum() > 5 and len(model.risk_curve(10)) == len(found["size"])
            assert -model.best_score_ == pytest.approx(found["mse"][model.best_index_])
            assert found["standard_error"][model.best_index_] > 0
            shown = TuningCurveDisplay.from_estimator(model)
            assert len(shown.line_.get_xdata()) == uniform.sum()
            assert len(RiskCurveDisplay.from_estimator(model).x) == uniform.sum()
            RiskCurveDisplay.from_estimator(model, over="k")


def test_what_is_asked_of_a_model_is_the_same_after_pickling_copying_and_in_files(seed, tmp_path):
    X, y, _ = sparse(seed)
    for model in (OLSEnsembleRegressorCV(), OLSEnsembleRegressorCV(60, inclusion="uniform", random_state=1)):
        model.fit(X, y)
        file = BytesIO()
        joblib.dump(model, file)
        file.seek(0)
        olsen.save(model, tmp_path / "model.skops")
        copies = [pickle.loads(pickle.dumps(model)), joblib.load(file), copy.deepcopy(model)]
        for other in (*copies, olsen.load(tmp_path / "model.skops")):
            np.testing.assert_array_equal(other.predict_interval(X[:5]), model.predict_interval(X[:5]))
            np.testing.assert_allclose(other.coef_std_, model.coef_std_, rtol=1e-9)
            np.testing.assert_allclose(
                other.predict(X[:5], return_std=True)[1], model.predict(X[:5], return_std=True)[1]
            )
            np.testing.assert_allclose(
                other.summary().drop(columns="feature").to_numpy(),
                model.summary().drop(columns="feature").to_numpy(), rtol=1e-9,
            )  # fmt: skip
    found = cross_validate(OLSEnsembleRegressorCV(), X, y, cv=2, n_jobs=2, return_estimator=True)
    assert all(
        np.isfinite(fit.predict_interval(X[:3])).all() and (fit.coef_std_ > 0).any() for fit in found["estimator"]
    )


def test_rows_are_kept_as_far_as_was_asked(seed):
    X, y, _ = sparse(seed)
    model = OLSEnsembleRegressorCV(keep_rows=False).fit(X, y)
    bare = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(bare.predict_interval(X[:3]), model.predict_interval(X[:3]))  # from the folds
    assert not hasattr(bare, "coef_std_")
    with pytest.raises(ValueError, match="training"):
        bare.predict(X[:3], return_std=True)
    assert len(pickle.dumps(model)) < len(pickle.dumps(clone(model).set_params(keep_rows=1e6).fit(X, y)))
    small = pickle.loads(pickle.dumps(clone(model).set_params(keep_rows=100.0).fit(X, y)))
    assert not hasattr(small, "coef_std_")


def test_standard_errors_repeat_the_choice(seed):
    """Beside the spread over 40 data sets; 200 of them are in the statistical suite."""
    beta = np.r_[1, 0.5, 0.3, 0.2, 0.1, np.zeros(15)]
    coefs, errors = [], []
    for i in range(40):
        rng = np.random.default_rng([seed, i])
        X = rng.standard_normal((60, 20))
        model = OLSEnsembleRegressorCV().fit(X, X @ beta + rng.standard_normal(60))
        coefs.append(model.coef_)
        errors.append(model.coef_std_)
    ratio = np.mean(errors, axis=0) / np.std(coefs, axis=0, ddof=1)
    assert np.all(ratio[:5] > 0.6) and np.all(ratio[:5] < 1.9)
    assert 0.9 < ratio[5:].mean() < 1.5


@pytest.mark.parametrize("n", [60, 300])
def test_intervals_hold_what_they_say(n, seed):
    """Of 30 data sets, nominal 80 %: within four standard errors above, and not below."""
    inside = []
    for i in range(30):
        rng = np.random.default_rng([seed, i])
        beta = np.r_[1, 0.5, 0.3, 0.2, 0.1, np.zeros(15)]
        X, new = rng.standard_normal((n, 20)), rng.standard_normal((200, 20))
        model = OLSEnsembleRegressorCV().fit(X, X @ beta + rng.standard_normal(n))
        low, high = model.predict_interval(new, 0.8).T
        truth = new @ beta + rng.standard_normal(200)
        inside.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.8 - 3 * np.std(inside) / np.sqrt(30) < np.mean(inside) < 0.9


def test_where_the_rows_are_does_not_decide(seed):
    """From 1000 rows on folds are those of the row numbers, in every engine."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1500, 12))
    y = X[:, 0] - X[:, 1] + rng.standard_normal(1500)
    memory = OLSEnsembleRegressorCV().fit(X, y)
    blocks = OLSEnsembleRegressorCV().fit(lambda: iter([(X[:700], y[:700]), (X[700:], y[700:])]), None)
    assert blocks.inclusion_shares_ == pytest.approx(memory.inclusion_shares_, abs=0.02)
    np.testing.assert_allclose(blocks.coef_, memory.coef_, atol=2e-3)
    for model in (blocks, memory):  # 20 groups or 30 fits know a standard error to 16 %
        np.testing.assert_allclose(model.coef_std_[:2], 1 / np.sqrt(1500), rtol=3 * 0.16)
    np.testing.assert_allclose(blocks.coef_std_.mean(), memory.coef_std_.mean(), rtol=0.3)
    low, high = blocks.predict_interval(X, 0.9).T
    assert 0.88 < np.mean((low <= y) & (y <= high)) < 0.93


def test_rows_of_weight_zero_are_not_there(seed):
    X, y, _ = sparse(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    model = OLSEnsembleRegressorCV().fit(X, y, sample_weight=weight)
    kept = weight > 0
    alone = OLSEnsembleRegressorCV().fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-9, atol=1e-12)
    assert model.inclusion_shares_ == pytest.approx(alone.inclusion_shares_)


def test_groups_are_kept_together(seed):
    """Rows come four times with different noise: leave-one-out of single rows would promise too much."""
    X, _, beta = sparse(seed, n=40, p=80)
    rng = np.random.default_rng(seed)
    X, groups = np.repeat(X, 4, axis=0), np.repeat(np.arange(40), 4)
    y = X @ beta + np.repeat(2 * rng.standard_normal(40), 4) + 0.1 * rng.standard_normal(160)
    model = OLSEnsembleRegressorCV(cv=GroupKFold(5)).fit(X, y, groups=groups)
    assert model.criterion_ == "kfold"
    assert -model.best_score_ > 2  # of new groups: their own noise has variance four
    low, high = model.predict_interval(X[:3]).T
    assert np.all(high - low > 4)


@pytest.mark.parametrize("options", [{"max_features": [3, 10, 20]}, {"cv": "gcv"}, {"max_samples": 0.6}], ids=str)
def test_what_only_uniform_members_have_is_theirs(options, seed):
    X, y, _ = sparse(seed, n=60, p=90)
    model = OLSEnsembleRegressorCV(30, random_state=seed, **options).fit(X, y)
    plain = OLSEnsembleRegressorCV(30, inclusion="uniform", random_state=seed, **options).fit(X, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    assert len(model.selected_) == len(model.selection_frequency_) == 0
    assert model.inclusion_shares_ == {"uniform": 1.0}
    with pytest.raises(ValueError, match="inclusion='ridge'"):
        OLSEnsembleRegressorCV(30, inclusion="ridge", **options).fit(X, y)


@pytest.mark.parametrize("y", ["constant", "one row"])
def test_targets_without_signal(y, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 60))
    target = np.full(40, 3.0)
    if y == "one row":
        target[7] = 50.0
    model = OLSEnsembleRegressorCV().fit(X, target)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.best_score_)


def test_constant_and_dependent_columns(seed):
    X, y, _ = sparse(seed, n=80, p=40)
    X[:, 5] = 2.0
    X = np.column_stack([X, X[:, :10], X[:, 3] + X[:, 4]])
    for k in (np.inf, 60):
        model = OLSEnsembleRegressorCV(k, random_state=seed).fit(X, y)
        assert np.isfinite(model.coef_).all() and not model.selected_[5]
        assert model.score(X, y) > 0.7
    none = OLSEnsembleRegressorCV().fit(np.ones((30, 3)), y[:30])
    assert np.all(none.coef_ == 0) and none.inclusion_shares_ == {"nothing": 1.0}
