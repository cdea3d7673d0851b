"""The two tuned models: criteria, curves and sizes of the paper's members, and the choice of
sampling schemes.
"""

import pickle
import warnings
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LassoCV, LinearRegression, Ridge, RidgeCV
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._adaptive import choice
from olsen.datasets import load_soil_carbon
from olsen.displays import TuningCurveDisplay
from random_problems import gaussian, random_problem

CRITERIA = [
    {},
    {"cv": 5},
    {"cv": "gcv"},
    {"max_samples": 0.7},
    {"max_samples": 0.7, "cv": "gcv"},
    {"max_samples": 0.7, "cv": "oob"},
    {"max_samples": 0.7, "cv": 4},
]


def test_it_fits_the_ensemble_it_reports(seed):
    X, y, _ = gaussian(seed)
    for k in (60, "auto"):
        tuned = OLSEnsembleRegressorCV(k, random_state=seed).fit(X, y)
        number, at, curve = (
            tuned.n_estimators_,
            tuned.best_index_,
            -tuned.cv_results_["mean_test_score"],
        )
        plain = OLSEnsembleRegressor(
            number, tuned.max_features_, scale=tuned.scale_, random_state=seed
        ).fit(X, y)
        np.testing.assert_allclose(tuned.coef_, plain.coef_, rtol=1e-10, atol=1e-12)
        assert tuned.cv_results_["param_max_features"][at] == tuned.max_features_
        assert curve[at] == pytest.approx(-tuned.best_score_) and tuned.criterion_ == "loo"
        np.testing.assert_array_equal(tuned.cv_results_["rank_test_score"], rankdata(curve, "min"))
        if k == 60:
            assert curve.min() == pytest.approx(-tuned.best_score_)
        else:  # as many as are enough
            assert tuned.risk_curve(number)[at] <= 1.01 * tuned.risk_curve()[at] or number == 5000


@pytest.mark.parametrize("kwargs", CRITERIA, ids=str)
def test_every_criterion_is_near_the_error_on_new_rows(kwargs, seed):
    """The estimated curve at a fixed size against the true total risk of the same kind of ensemble,
    over 60 data sets.

    Within 4 standard errors of 2 % at most; GCV is asymptotic and gets 1 % on top. k-fold is
    compared with ensembles on as many rows as its folds train on. Part of a data set's luck is
    known here and taken out: the mean square of about what an ensemble of these small members
    leaves, noise and 0.7 of the signal, less its expectation.
    """
    size, k, cv, difference, truths = 12, 20, kwargs.get("cv"), [], []
    rows = 80 - 80 // cv if isinstance(cv, int) else 80
    drawn = min(round(80 * kwargs.get("max_samples", 1.0)), rows)
    for trial in range(60):
        X, y, beta = gaussian(1000 * seed + trial)
        how = {"scale": 1.0, "fit_intercept": False, "random_state": trial}
        model = OLSEnsembleRegressorCV(k, [size, size + 1], **how, **kwargs).fit(X, y)
        members = OLSEnsembleRegressor(k, size, drawn, fit_intercept=False, random_state=trial).fit(
            X[:rows], y[:rows]
        )
        truths.append(np.sum((members.coef_ - beta) ** 2) + 1.0)
        luck = np.mean((y - 0.3 * X @ beta) ** 2) - (1 + 0.7**2)
        difference.append(-model.cv_results_["mean_test_score"][0] - luck - truths[-1])
    error = np.std(difference, ddof=1) / np.sqrt(60)
    assert abs(np.mean(difference)) < 4 * error + (0.01 if cv == "gcv" else 0.0) * np.mean(truths)
    assert error < 0.02 * np.mean(truths)


def test_predictions_of_left_out_rows_are_those_of_refits_without_them(seed):
    """With one candidate that is all columns, every member is least squares."""
    X, y, _ = gaussian(seed, n=40, p=6)
    splitter = KFold(4, shuffle=True, random_state=0)
    rows = np.arange(40)
    single = [(rows[rows != row], rows[row : row + 1]) for row in (0, 7, 39)]
    for cv, splits in ((None, single), (splitter, list(splitter.split(X)))):
        model = OLSEnsembleRegressorCV(5, [6], cv=cv, scale=1.0, random_state=seed).fit(X, y)
        for train, test in splits:
            expected = LinearRegression().fit(X[train], y[train]).predict(X[test])
            np.testing.assert_allclose(model.cv_prediction_[test], expected, rtol=1e-8)
        assert -model.best_score_ == pytest.approx(
            np.mean((y - model.cv_prediction_) ** 2), rel=1e-8
        )


def test_threads_change_nothing(seed):
    X, Y = random_problem(seed, q=2)
    for weight in (None, np.random.default_rng(seed).uniform(0, 2, len(X))):
        for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
            one, two = (
                make(n_estimators=30, n_jobs=j, random_state=seed).fit(X, Y, weight) for j in (1, 2)
            )
            with case(make, weight is None):
                np.testing.assert_allclose(
                    one.coef_, two.coef_, rtol=1e-11, atol=1e-13
                )  # BLAS rounds as threads fall
                for name in ("mean_test_score", "std_test_score"):
                    np.testing.assert_allclose(
                        one.cv_results_[name], two.cv_results_[name], rtol=1e-12
                    )


def test_many_rows_are_judged_by_moments_of_folds(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12_000, 8))
    y = X @ rng.standard_normal(8) + rng.standard_normal(12_000)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=seed).fit(X, y)
    assert model.criterion_ == "kfold" and model.cv_prediction_.shape == y.shape
    assert np.mean((y - model.cv_prediction_) ** 2) == pytest.approx(-model.best_score_, rel=0.01)
    for cv, criterion in ((None, "loo"), ("gcv", "gcv")):
        rows = OLSEnsembleRegressorCV(30, cv=cv, random_state=seed).fit(X[:9000], y[:9000])
        assert rows.best_score_ == pytest.approx(model.best_score_, rel=0.1)
        assert rows.max_features_ >= 7 and rows.criterion_ == criterion


def test_probabilities_stay_clear_of_the_peak(seed):
    """Almost no noise: the matched penalty is near zero and would put members at the row count."""
    X, y, _ = gaussian(seed, n=40, p=120, sigma=1e-3)
    model = OLSEnsembleRegressorCV(50, sampling="determinantal", random_state=seed).fit(X, y)
    assert model.max_features_ <= 0.7 * 40 and np.abs(model.coef_).max() < 10


def cells(seed, n=200):
    """Two factors of three levels: rows meet in nine cells."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (n, 2))
    X = np.column_stack([np.eye(3)[codes[:, 0]], np.eye(3)[codes[:, 1]]])
    return X, codes.sum(axis=1) + rng.standard_normal(n)


def test_repeated_rows_are_noticed_and_rows_that_meet_in_cells_are_not(seed):
    X, y = cells(seed)
    fresh, target = cells(seed + 1000, 5000)
    for kind in (np.asarray, sp.csr_array):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=seed).fit(kind(X), y)
            AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=seed).fit(
                kind(X), np.round(y)
            )
        assert -model.best_score_ == pytest.approx(
            np.mean((target - model.predict(fresh)) ** 2), rel=0.3
        )
        twice = kind(np.vstack([X, X])), np.r_[y, y]
        with pytest.warns(UserWarning, match=r"200 of 400 rows.*GroupKFold"):
            OLSEnsembleRegressorCV(50, random_state=seed).fit(*twice)
        with pytest.warns(UserWarning, match=r"200 of 400 rows repeat others, with their targets"):
            merged = AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=seed).fit(*twice)
        np.testing.assert_allclose(merged.best_score_, model.best_score_, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:y is constant", "ignore:members have")
def test_strange_data_sets_have_ordinary_predictions(seed):
    rng = np.random.default_rng(seed)
    X, y, _ = gaussian(seed, n=40, p=12)
    collinear = np.column_stack([X, X[:, :4], np.ones(40), X[:, 0] + X[:, 1], np.zeros(40)])
    one_row = np.where(np.arange(40) == 7, 50.0, 3.0)
    for data, target in (
        (collinear, y),  # duplicated, constant, dependent and zero columns
        (X, np.full(40, 3.0)),  # nothing to explain
        (X, one_row),
        (X[:5], y[:5]),  # five rows
        (X[:, :1], y),  # one column
        (rng.standard_normal((6, 50)), y[:6]),  # far more columns than rows
        (rng.integers(0, 2, (40, 15)).astype(float), y),  # many equal rows of zeros and ones
    ):
        for how in ({"n_estimators": 30}, {}, {"n_estimators": 30, "cv": 3}):
            adaptive = AdaptiveOLSEnsembleRegressor(random_state=seed, **how)
            models = [adaptive, OLSEnsembleRegressorCV(random_state=seed, **how)]
            if how.get("cv") is None:
                models.append(
                    OLSEnsembleRegressorCV(sampling="determinantal", random_state=seed, **how)
                )
            for model in models:
                with case(data.shape, target[:8], model):
                    far = np.abs(model.fit(data, target).predict(data) - target.mean()).max()
                    assert far < 20 * (target.std() + 1e-9) and np.isfinite(model.best_score_)
            assert not adaptive.selected_[(data == data[0]).all(axis=0)].any()
    none = AdaptiveOLSEnsembleRegressor().fit(np.ones((30, 3)), y[:30])
    assert np.all(none.coef_ == 0) and none.scheme_weights_ == {"null": 1.0}
    for n, i in product((2, 3, 4, 5, 8, 12), range(5)):
        rng = np.random.default_rng([seed, i])
        X = rng.standard_normal((n, 3))
        model = AdaptiveOLSEnsembleRegressor().fit(X, X[:, 0] + rng.standard_normal(n))
        with case(n, i):
            assert model.best_score_ <= 0 and np.isfinite(model.coef_).all()


def test_bad_requests_are_refused():
    """The message names the parameter and what was given."""
    X, y, _ = gaussian(0)
    both = [
        ({"cv": "loocv"}, "cv.*'loocv'"),
        ({"cv": 100}, "80 rows"),
        ({"n_estimators": "many"}, "n_estimators.*'many'"),
        ({"keep_rows": "yes"}, "keep_rows.*'yes'"),
    ]
    sizes = [
        ({"cv": "oob"}, "cv='oob'"),
        ({"max_features": [0]}, "max_features=0.*40"),
        ({"max_features": [5, 50]}, "max_features=50"),
        ({"n_estimators": np.inf}, "n_estimators=inf.*determinantal.*'auto'"),
        ({"scale": "loo"}, "scale.*'loo'"),
        ({"sampling": "coins"}, "sampling.*'coins'"),
        (
            {"sampling": "determinantal", "max_features": [5, 70]},
            "5 to 70 columns.*between 0 and 55.3",
        ),
        ({"sampling": "determinantal", "max_features": [0]}, "0 to 0 columns"),
    ]
    adaptive = [
        ({"cv": "gcv"}, "cv.*'gcv'"),
        ({"n_estimators": "auto"}, "n_estimators.*'auto'"),
        (
            {"schemes": ["ridge", "elastic"]},
            "'ridge', 'power', 'lasso', 'sparse', 'uniform', 'null'.*'elastic'",
        ),
        ({"schemes": "ridge"}, "schemes.*'ridge'"),
    ]
    for make, cases in (
        (OLSEnsembleRegressorCV, both + sizes),
        (AdaptiveOLSEnsembleRegressor, both + adaptive),
    ):
        model = make(n_estimators=10, random_state=0).fit(X, y)
        before, defaults = model.predict(X), model.get_params()
        for params, message in cases:
            with case(make, params), pytest.raises(ValueError, match=message):
                model.set_params(**params).fit(X, y)
            model.set_params(**defaults)
        np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match=r"39 columns.*16"):
        OLSEnsembleRegressorCV(max_features=[39]).fit(X[:20], y[:20])


def test_soil_is_predicted_better_than_by_ridge(seed):
    """Halves of the rows, by turns: ridge regression collapses in some of them."""
    X, y = load_soil_carbon(return_X_y=True)
    ours, ridge = [], []
    for half in range(2):
        train, test = np.arange(half, 732, 2), np.arange(1 - half, 732, 2)
        ours.append(AdaptiveOLSEnsembleRegressor().fit(X[train], y[train]).score(X[test], y[test]))
        peer = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 6, 50))).fit(
            X[train], y[train]
        )
        ridge.append(peer.score(X[test], y[test]))
    assert np.mean(ours) > np.mean(ridge) and np.min(ours) > np.min(ridge)


# Sampling schemes


def sparse(seed, n=100, p=60, nonzero=4, noise=0.5):
    rng = np.random.default_rng(seed)
    X, beta = rng.standard_normal((n, p)), np.zeros(p)
    beta[:nonzero] = rng.choice([-1.0, 1.0], nonzero)
    return X, X @ beta + noise * rng.standard_normal(n), beta


def r2(model, X, y):
    return 1 - np.mean((y - model.predict(X)) ** 2) / np.var(y)


def test_each_scheme_alone_is_the_penalised_fit_it_is_named_after(seed):
    """Weights and prior variances of a fitted model put together by hand, and ridge regression of
    scikit-learn.
    """
    X, y, _ = sparse(seed, noise=2.0)
    model = AdaptiveOLSEnsembleRegressor().fit(X, y)
    design, scale = model._fitted.design, model.scale_
    A, b = X - X.mean(axis=0), y - y.mean()
    total = np.zeros(60)
    for share, spreads, penalty in zip(
        design.shares, design.spreads, design.penalties, strict=False
    ):
        S = np.flatnonzero(spreads > 0)
        root = np.sqrt(spreads[S])
        total[S] += share * root * Ridge(penalty, fit_intercept=False).fit(A[:, S] * root, b).coef_
    uniform = design.uniform_share
    if uniform > 0:
        members = OLSEnsembleRegressor(
            max(100, round(1000 * uniform)), design.max_features, random_state=design.seed
        )
        total += uniform * members.fit(X, y).coef_
    np.testing.assert_allclose(model.coef_, scale * total, rtol=1e-7, atol=1e-9)
    assert sum(model.scheme_weights_.values()) == pytest.approx(1)
    ridge = OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0).fit(X, y)
    alpha = float(ridge._fitted.design.penalties[0])
    expected = Ridge(alpha).fit(X / X.std(axis=0), y).coef_ / X.std(axis=0)
    np.testing.assert_allclose(ridge.coef_, expected, rtol=1e-6, atol=1e-9)
    penalties = np.geomspace(1e-2, 1e5, 400)
    peer = RidgeCV(penalties).fit(X / X.std(axis=0), y)
    assert np.log(alpha / peer.alpha_) == pytest.approx(0, abs=0.25)


@pytest.mark.parametrize(
    "noise", [0.5, 6.0]
)  # of much noise nothing has a share, which is of no member
def test_a_number_of_members_is_drawn_in_shares_and_tends_to_the_limit(noise, seed):
    X, y, _ = sparse(seed, noise=noise)
    limit = AdaptiveOLSEnsembleRegressor().fit(X, y)
    few = AdaptiveOLSEnsembleRegressor(n_estimators=800, random_state=seed).fit(X, y)
    assert few.n_estimators_ == len(few.feature_subsets_) == 800
    assert few.scheme_weights_ == limit.scheme_weights_
    np.testing.assert_allclose(few.inclusion_, limit.inclusion_, atol=0.09)
    sizes = [len(columns) for columns in few.feature_subsets_]
    assert abs(np.mean(sizes) - limit.inclusion_.sum()) < 4 * np.std(sizes) / np.sqrt(800)
    coefs = few.member_coefs().toarray()
    far = few.coef_ - limit.coef_
    assert np.mean(far**2) < 4 * few.scale_**2 * np.mean(coefs.var(axis=0, ddof=1)) / 800
    np.testing.assert_allclose(few.scale_ * coefs.mean(axis=0), few.coef_, rtol=1e-8, atol=1e-10)


def test_the_same_data_give_the_same_choice(seed):
    """Whatever random_state, threads, the order of the rows and weights of one, which only round
    otherwise.
    """
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:300], y[:300]
    models = [
        AdaptiveOLSEnsembleRegressor(random_state=i, n_jobs=1 + i % 2).fit(X, y) for i in range(4)
    ]
    for model in models[1:]:
        assert model.scheme_weights_ == pytest.approx(models[0].scheme_weights_, abs=1e-9)
        assert model.best_score_ == pytest.approx(models[0].best_score_, rel=1e-9)
    coefs = np.array([model.coef_ for model in models])
    noise = 0.01 * np.abs(coefs).max()  # of uniform members, which are drawn
    assert np.sqrt(np.mean(coefs.var(axis=0, ddof=1))) < noise
    for i in range(6):
        rows = np.random.default_rng(i).permutation(300)
        moved = AdaptiveOLSEnsembleRegressor(random_state=0).fit(
            X[rows], y[rows], sample_weight=np.ones(300)
        )
        np.testing.assert_allclose(moved.coef_, models[0].coef_, atol=1e-6 * np.abs(coefs).max())
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for rows, _ in KFold(8, shuffle=True, random_state=seed).split(X):
        plain = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X[rows], y[rows])
        weighted = AdaptiveOLSEnsembleRegressor(random_state=0).fit(
            X[rows], y[rows], sample_weight=np.ones(len(rows))
        )
        np.testing.assert_allclose(
            weighted.coef_, plain.coef_, atol=1e-6 * np.abs(plain.coef_).max()
        )


def test_units_do_not_matter(seed):
    """Also far from one: coefficients, intervals and members of a number of them."""
    X, y, _ = sparse(seed)
    units = 10.0 ** np.random.default_rng(seed).integers(-5, 6, X.shape[1])
    plain, scaled = (
        AdaptiveOLSEnsembleRegressor().fit(A, b) for A, b in ((X, y), (X * units, 1e6 * y + 3e7))
    )
    assert scaled.scheme_weights_ == pytest.approx(plain.scheme_weights_, abs=1e-4)
    np.testing.assert_allclose(scaled.coef_ * units / 1e6, plain.coef_, rtol=1e-3, atol=1e-5)
    for n, k in product((120, 1200), (np.inf, 40)):
        X, y, _ = sparse(seed, n=n, p=20)
        model = AdaptiveOLSEnsembleRegressor(n_estimators=k, random_state=seed)
        plain = clone(model).fit(X, y)
        extreme = clone(model).fit(X * 2.0**150, y * 2.0**-150)
        np.testing.assert_allclose(extreme.coef_ * 2.0**300, plain.coef_, rtol=0.05, atol=0.02)
        ends = [model.predict_interval(A[:3]) for model, A in ((plain, X), (extreme, X * 2.0**150))]
        np.testing.assert_allclose(ends[1] * 2.0**150, ends[0], rtol=0.1, atol=0.1)


def test_sparse_and_dense_signals_are_told_apart(seed):
    X, y, beta = sparse(seed, n=120, p=80)
    adaptive = AdaptiveOLSEnsembleRegressor().fit(X, y)
    uniform = OLSEnsembleRegressorCV(random_state=seed).fit(X, y)
    ridge = OLSEnsembleRegressorCV(sampling="determinantal").fit(X, y)
    dense = np.random.default_rng(seed).standard_normal(80)
    other = AdaptiveOLSEnsembleRegressor().fit(
        X, X @ dense + 5 * np.random.default_rng(seed + 1).standard_normal(120)
    )
    few, many = (
        sum(m.scheme_weights_.get(name, 0.0) for name in ("lasso", "sparse"))
        for m in (adaptive, other)
    )
    assert few > 0.5 > many
    assert adaptive.selected_[beta != 0].all() and np.count_nonzero(adaptive.selected_) < 30
    assert np.all(adaptive.selection_frequency_[beta != 0] > 0.9)
    assert adaptive.inclusion_[beta != 0].mean() > 3 * adaptive.inclusion_[beta == 0].mean()
    rivals = LassoCV(cv=KFold(5, shuffle=True, random_state=0)).fit(X, y)
    risk, of_uniform, of_ridge, of_lasso = (
        np.sum((m.coef_ - beta) ** 2) for m in (adaptive, uniform, ridge, rivals)
    )
    assert risk < 1.1 * of_lasso and risk < 0.7 * of_uniform and 0.5 < of_ridge / of_uniform < 2


def test_several_targets_have_their_own_schemes_whatever_their_units(seed):
    X, y, _ = sparse(seed)
    dense = X @ np.random.default_rng(seed).standard_normal(60)
    alone = AdaptiveOLSEnsembleRegressor().fit(X, y)
    both = AdaptiveOLSEnsembleRegressor().fit(X, np.column_stack([y, 1e4 * dense]))
    np.testing.assert_allclose(both.coef_[0], alone.coef_, rtol=1e-9, atol=1e-12)
    assert both.scheme_weights_[0] == pytest.approx(alone.scheme_weights_)
    assert AdaptiveOLSEnsembleRegressor().fit(X, y[:, None]).scheme_weights_ == [
        alone.scheme_weights_
    ]
    assert (
        both.scale_.shape == (2,)
        and both.selected_.shape == (2, 60)
        and len(both.feature_subsets_) == 2
    )
    assert both.predict_interval(X[:3]).shape == (3, 2, 2) and both.coef_std().shape == (2, 60)
    np.testing.assert_allclose(
        both.predict_interval(X[:3])[:, 0], alone.predict_interval(X[:3]), rtol=1e-9
    )
    np.testing.assert_allclose(both.cv_prediction_[:, 0], alone.cv_prediction_, rtol=1e-9)
    few = AdaptiveOLSEnsembleRegressor(n_estimators=200, random_state=seed).fit(
        X, np.column_stack([y, 1e4 * dense])
    )
    assert [c.shape for c in few.member_coefs()] == [(200, 60)] * 2


def test_full_factors_cost_nothing(seed):
    """Three binary factors with both levels coded: as good as least squares, where matched coins
    lost half as much.
    """
    rng = np.random.default_rng(seed)

    def table(n):
        return np.hstack(
            [rng.standard_normal((n, 5)), *(np.eye(2)[rng.integers(0, 2, n)] for _ in range(3))]
        )

    X, new, beta = table(2000), table(5000), rng.standard_normal(11)
    noise = 0.15 * np.std(X @ beta)
    y, truth = (
        X @ beta + noise * rng.standard_normal(2000),
        new @ beta + noise * rng.standard_normal(5000),
    )
    model = AdaptiveOLSEnsembleRegressor().fit(X, y)
    assert r2(model, new, truth) > r2(LinearRegression().fit(X, y), new, truth) - 0.001
    members = AdaptiveOLSEnsembleRegressor(n_estimators=500, random_state=seed).fit(X, y)
    assert r2(members, new, truth) > r2(model, new, truth) - 0.001 and members.n_fallbacks_ == 0


def test_one_far_row_does_not_decide(seed):
    """Of leverage near one, on the line or half off it; ridge regression is the yardstick."""
    lost = []
    for factor in (1.0, 0.4):
        for i in range(8):
            rng = np.random.default_rng([seed, i])
            X, new = rng.lognormal(0, 0.5, (62, 3)), rng.lognormal(0, 0.5, (2000, 3))
            X[0], beta = [60, 50, 40], np.array([1.0, 0.5, 0.3])
            y, truth = (
                X @ beta + 0.5 * rng.standard_normal(62),
                new @ beta + 0.5 * rng.standard_normal(2000),
            )
            y[0] = factor * X[0] @ beta
            model = AdaptiveOLSEnsembleRegressor().fit(X, y)
            assert model.scale_ <= 1
            lost.append(
                r2(RidgeCV(np.logspace(-3, 6, 40)).fit(X, y), new, truth) - r2(model, new, truth)
            )
    assert np.mean(lost) < 0.05


@pytest.mark.parametrize("signal", [0.0, 0.2])
def test_little_or_no_signal(signal, seed):
    """Excess risk at most that of the better of ridge regression and the lasso, both tuned."""
    beta = np.zeros(50)
    beta[:5] = signal * np.array([1, 0.5, 0.3, 0.2, 0.1])
    excess = np.zeros(3)
    for i in range(120 if signal == 0 else 60):
        rng = np.random.default_rng([seed, i])
        X = rng.standard_normal((100, 50))
        y = X @ beta + rng.standard_normal(100)
        folds = KFold(5, shuffle=True, random_state=0)
        peers = [
            RidgeCV(np.logspace(-2, 7, 40)),
            LassoCV(alphas=20, eps=0.03, cv=folds),
        ]  # the best penalty is near the largest
        fits = [
            AdaptiveOLSEnsembleRegressor(random_state=i).fit(X, y),
            *(peer.fit(X, y) for peer in peers),
        ]
        excess += [np.sum((fit.coef_ - beta) ** 2) for fit in fits]
    assert excess[0] <= 1.1 * min(
        excess[1:]
    )  # known to about 0.1; the bound of one is shown by make bench


@pytest.mark.parametrize("settings", [{"cv": "gcv"}, {}, {"cv": "oob", "max_samples": 2}], ids=str)
@pytest.mark.filterwarnings("ignore:members have")
def test_an_estimated_error_is_never_negative(settings):
    """With few rows members have huge residuals, and what is left of them in the limit is a small
    difference.
    """
    shapes = ((2, 12, False), (3, 12, True), (4, 12, True), (6, 12, True))
    for shape, draw in product(shapes, range(25)):
        n, p, fit_intercept = shape
        if settings.get("cv") == "oob" and n == 2:
            continue
        rng = np.random.default_rng(draw)
        X, y = rng.standard_normal((n, p)), rng.standard_normal(n)
        model = OLSEnsembleRegressorCV(fit_intercept=fit_intercept, **settings).fit(X, y)
        with case(shape, draw):
            assert model.best_score_ <= 0
            assert min(model.risk_curve().min(), model.risk_curve(10).min()) >= 0
            assert model.cv_results_["mean_test_score"].max() <= 0


def test_generalised_cross_validation_needs_rows_that_are_left():
    """Two rows, of which the intercept and one column leave none: its denominator is zero."""
    X, y, _ = gaussian(0, n=2, p=3)
    with pytest.raises(ValueError, match=r"cv='gcv'.* 2 rows.*cv=None"):
        OLSEnsembleRegressorCV(cv="gcv").fit(X, y)
    assert OLSEnsembleRegressorCV(cv="gcv", fit_intercept=False).fit(X, y).best_score_ < 0


def test_there_is_always_a_curve(seed):
    """Of any number of members, which falls with it up to Monte-Carlo noise, and is lower for
    balanced ones.
    """
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y, _ = sparse(seed)
    blocks = (lambda: iter([(X[:50], y[:50]), (X[50:], y[50:])]), None)
    for data in ((X, y), blocks):
        for how in (
            {},
            {"sampling": "determinantal"},
            {"n_estimators": 50, "cv": 2},
            {"n_estimators": 50},
        ):
            model = OLSEnsembleRegressorCV(random_state=0, **how).fit(*data)
            results, best = model.cv_results_, model.best_index_
            sizes = results["param_max_features"]
            assert len(sizes) > 5 and len(model.risk_curve(10)) == len(sizes)
            np.testing.assert_allclose(
                model.risk_curve(model.n_estimators_), -results["mean_test_score"]
            )
            np.testing.assert_allclose(model.risk_curve(), -results["mean_test_score_infinity"])
            assert model.best_score_ == pytest.approx(results["mean_test_score"][best])
            assert sizes[best] == model.max_features_ and results["std_test_score"][best] > 0
            shown = TuningCurveDisplay.from_estimator(model)
            assert len(shown.line_.get_xdata()) == len(sizes)
            plt.close("all")
    curves = [model.risk_curve(k) for k in (1, 4, 16, 64, 1024)]
    assert all(np.all(more <= 1.01 * fewer) for fewer, more in pairwise(curves))
    independent, balanced = (
        OLSEnsembleRegressorCV(50, design=design, random_state=0).fit(X, y)
        for design in ("independent", "balanced")
    )
    assert np.all(balanced.risk_curve(8)[:5] <= independent.risk_curve(8)[:5] * 1.05)


def test_rows_are_kept_as_far_as_was_asked(seed):
    X, y, _ = sparse(seed)
    model = AdaptiveOLSEnsembleRegressor(keep_rows=False).fit(X, y)
    bare = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        bare.predict_interval(X[:3]), model.predict_interval(X[:3])
    )  # from the folds
    for ask in (bare.coef_std, lambda: bare.predict(X[:3], return_std=True)):
        with pytest.raises(ValueError, match="training"):
            ask()
    assert len(pickle.dumps(model)) < len(
        pickle.dumps(clone(model).set_params(keep_rows=True).fit(X, y))
    )


def test_errors_intervals_and_standard_errors_are_those_over_data_sets(seed):
    """Of 60 data sets of 40 rows and 30 of 60 and of 300; 200 of them are in the statistical suite.

    The estimated error is not below the true one on average, although shares were chosen by it:
    above it by what fits of two thirds of the rows have more. Intervals of nominal 80 %: not below
    by three standard errors, and below 90 %. Standard errors, which repeat the choice, of ten data
    sets pooled over columns: these have 45 and 135 degrees of freedom, so that four standard errors
    are .42 and .25. Over six seeds they were 1.13 +- .04 times too large for the five columns with
    a signal and 1.62 +- .07 times for the others, whose choice varies more on parts of the rows.
    """
    beta = np.r_[1, 0.5, 0.3, 0.2, 0.1, np.zeros(15)]
    for n, p, count in ((40, 15, 60), (60, 20, 30), (300, 20, 30)):
        ratio, inside, coefs, errors = [], [], [], []
        for i in range(count):
            rng = np.random.default_rng([seed, i])
            X, new = rng.standard_normal((n, p)), rng.standard_normal((200, p))
            model = AdaptiveOLSEnsembleRegressor().fit(X, X @ beta[:p] + rng.standard_normal(n))
            ratio.append(
                [
                    -model.best_score_,
                    1 + np.sum((model.coef_ - beta[:p]) ** 2) + model.intercept_**2,
                ]
            )
            low, high = model.predict_interval(new, 0.8).T
            truth = new @ beta[:p] + rng.standard_normal(200)
            inside.append(np.mean((low <= truth) & (truth <= high)))
            if n == 60 and i < 10:
                coefs.append(model.coef_)
                errors.append(model.coef_std())
        with case(n, p):
            assert n != 40 or 0.96 < np.divide(*np.mean(ratio, axis=0)) < 1.2
            assert n == 40 or 0.8 - 3 * np.std(inside) / np.sqrt(30) < np.mean(inside) < 0.9
            for columns, most in ((slice(0, 5), 1.7), (slice(5, None), 2.1)) if coefs else ():
                squared, spread = (
                    np.square(errors)[:, columns].mean(axis=0),
                    np.var(coefs, axis=0, ddof=1)[columns],
                )
                assert 0.6 < np.sqrt(squared.sum() / spread.sum()) < most


def test_where_the_rows_are_does_not_decide(seed):
    """From 1000 rows on folds are those of the row numbers, in every engine."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1500, 12))
    y = X[:, 0] - X[:, 1] + rng.standard_normal(1500)
    memory = AdaptiveOLSEnsembleRegressor().fit(X, y)
    blocks = AdaptiveOLSEnsembleRegressor().fit(
        lambda: iter([(X[:700], y[:700]), (X[700:], y[700:])]), None
    )
    assert blocks.scheme_weights_ == pytest.approx(memory.scheme_weights_, abs=0.02)
    np.testing.assert_allclose(blocks.coef_, memory.coef_, atol=2e-3)
    for model in (blocks, memory):  # 20 groups or 30 fits know a standard error to 16 %
        np.testing.assert_allclose(model.coef_std()[:2], 1 / np.sqrt(1500), rtol=3 * 0.16)
    np.testing.assert_allclose(blocks.coef_std().mean(), memory.coef_std().mean(), rtol=0.3)
    low, high = blocks.predict_interval(X, 0.9).T
    assert 0.88 < np.mean((low <= y) & (y <= high)) < 0.93


def test_rows_of_weight_zero_are_not_there(seed):
    X, y, _ = sparse(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    kept = weight > 0
    for model in (
        AdaptiveOLSEnsembleRegressor(random_state=seed),
        AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=seed),
        OLSEnsembleRegressorCV(30, random_state=seed),
        OLSEnsembleRegressorCV(sampling="determinantal"),
    ):
        alone = clone(model).fit(X[kept], y[kept], sample_weight=weight[kept])
        model.fit(X, y, sample_weight=weight)
        with case(model):
            np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-8, atol=1e-10)
            assert model.best_score_ == pytest.approx(alone.best_score_, rel=1e-8)
            np.testing.assert_allclose(
                model.cv_prediction_[kept], alone.cv_prediction_, rtol=1e-8, atol=1e-9
            )
            if isinstance(model, AdaptiveOLSEnsembleRegressor):
                assert model.scheme_weights_ == pytest.approx(alone.scheme_weights_)


def test_groups_without_weight_are_not_there(seed):
    """Five groups are too few for a coverage of 90 %, however many others have no weight."""
    X, y, _ = gaussian(seed, n=60, p=5)
    groups = np.repeat(np.arange(20), 3)
    kept = groups < 5
    model = AdaptiveOLSEnsembleRegressor(cv=GroupKFold(5)).fit(
        X, y, kept.astype(float), groups=groups
    )
    alone = AdaptiveOLSEnsembleRegressor(cv=GroupKFold(5)).fit(
        X[kept], y[kept], groups=groups[kept]
    )
    for coverage in (0.5, 0.9):
        expected = alone.predict_interval(X[:4], coverage)
        np.testing.assert_allclose(model.predict_interval(X[:4], coverage), expected, rtol=1e-9)
    np.testing.assert_array_equal(expected, [[-np.inf, np.inf]] * 4)


def test_groups_are_kept_together(seed):
    """Rows come four times with different noise: leave-one-out of single rows would promise too
    much.
    """
    X, _, beta = sparse(seed, n=40, p=80)
    rng = np.random.default_rng(seed)
    X, groups = np.repeat(X, 4, axis=0), np.repeat(np.arange(40), 4)
    y = X @ beta + np.repeat(2 * rng.standard_normal(40), 4) + 0.1 * rng.standard_normal(160)
    for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        with case(make):
            groups_are_kept_together_by(make(cv=GroupKFold(5), random_state=0), X, y, groups)


def groups_are_kept_together_by(model, X, y, groups):
    model.fit(X, y, groups=groups)
    assert model.criterion_ == "kfold"
    assert -model.best_score_ > 2  # of new groups: their own noise has variance four
    low, high = model.predict_interval(X[:3]).T
    assert np.all(high - low > 4)
    assert np.all(
        model.coef_std() > 0
    )  # from fits of parts of the rows, which the splitter does not know
    with sklearn.config_context(enable_metadata_routing=True):
        np.testing.assert_array_equal(clone(model).fit(X, y, groups=groups).coef_, model.coef_)
    with pytest.raises(ValueError, match="groups"):
        clone(model).fit(X, y)


def test_nearly_dependent_columns_leave_uniform_members_ordinary(seed, monkeypatch):
    """With half of the ensemble, whatever their share would be: solved from the data, some have
    coefficients of 1e8.
    """
    monkeypatch.setattr(choice, "_weights", lambda *_: (np.array([0.5, 0, 0, 0, 0.5, 0]), 0.0))
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 12))
    X[:, 3] = X[:, 1] + X[:, 2] + 1e-9 * rng.standard_normal(300)
    y = X[:, 0] + X[:, 1] + rng.standard_normal(300)
    memory = AdaptiveOLSEnsembleRegressor().fit(X, y)
    blocks = AdaptiveOLSEnsembleRegressor().fit(
        lambda: iter([(X[:100], y[:100]), (X[100:], y[100:])]), None
    )
    for model in (memory, blocks):
        assert model.n_fallbacks_ > 0 and np.abs(model.coef_).max() < 2
        np.testing.assert_allclose(model.coef_[[0, 4, 5]], memory.coef_[[0, 4, 5]], atol=0.1)
