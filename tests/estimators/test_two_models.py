"""The three ensembles differ by the draw of members, parameters, ridge regression and schemes."""

import inspect
import pickle
from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, LeaveOneOut

import olsen
from engines import row_blocks
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)
from olsen._adaptive import choice
from olsen._adaptive.schemes import SCHEMES

ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)


def problem_with_units(seed, n=60, p=12, q=None, noise=1.0):
    """Correlated columns in different units, y (n,) or Y (n, q) of the first four, and weights."""
    rng = np.random.default_rng([seed, 7])
    X = (rng.standard_normal((n, p)) + rng.standard_normal((n, 1))) * 10.0 ** rng.integers(
        -1, 2, p
    ) + 3.0
    B = np.zeros((p, q or 1))
    B[:4] = rng.uniform(1, 2, (4, q or 1)) / X[:, :4].std(axis=0)[:, None]
    Y = X @ B + noise * rng.standard_normal((n, q or 1)) + 5.0
    return X, Y if q else Y[:, 0], rng.uniform(0.3, 3.0, n)


# Drawn members


def test_an_automatic_number_of_determinantal_members_is_infinite(seed):
    X, y, _ = problem_with_units(seed)
    for n_estimators in ("auto", np.inf):
        model = OLSEnsembleRegressorCV(n_estimators, sampling="determinantal").fit(X, y)
        assert model.n_estimators_ == np.inf and len(model.weights_) == 0


@pytest.mark.parametrize(
    ("sampling", "n_estimators"),
    [
        ("fixed", "auto"),
        ("fixed", 7),
        ("bernoulli", "auto"),
        ("bernoulli", 7),
        ("determinantal", 7),
    ],
)
def test_a_tuned_ensemble_is_the_scaled_mean_of_its_members(sampling, n_estimators, seed):
    """Least squares on the columns that are named gives the coefficients."""
    for n_targets, n_rows in product((None, 2), (60, 1100)):
        X, Y, _ = problem_with_units(seed, n=n_rows, q=n_targets)
        data = (X, Y) if n_rows == 60 else (row_blocks(X, Y, size=500), None)
        model = OLSEnsembleRegressorCV(n_estimators, sampling=sampling, random_state=seed)
        model.fit(*data)
        with case(n_targets, n_rows):
            number = model.n_estimators_
            assert isinstance(number, int) and number >= 1
            assert len(model.feature_subsets_) == len(model.weights_) == number
            assert n_estimators in ("auto", number)
            targets = Y.reshape(n_rows, -1).T
            members = [member_coefficients(X, y, model.feature_subsets_)[0] for y in targets]
            expected = model.scale_ * np.mean(members, axis=1).reshape(model.coef_.shape)
            assert_allclose(model.coef_, expected, rtol=1e-7, atol=1e-9)


def test_coin_flips_change_a_tuned_ensemble(seed):
    """There are more columns than rows, so that members lack some of them."""
    X, y, _ = problem_with_units(seed, n=40, p=60)
    fixed = OLSEnsembleRegressorCV(40, random_state=seed).fit(X, y)
    coins = OLSEnsembleRegressorCV(40, sampling="bernoulli", random_state=seed).fit(X, y)
    assert {len(columns) for columns in fixed.feature_subsets_} == {fixed.max_features_}
    sizes = [len(columns) for columns in coins.feature_subsets_]
    assert len(set(sizes)) > 2
    standard_error = np.sqrt(60 / 4 / 40)  # at most, of the mean of 40 sums of sixty coins
    assert abs(np.mean(sizes) - coins.max_features_) < 4 * standard_error
    assert np.abs(fixed.predict(X) - coins.predict(X)).max() > 1e-3 * y.std()


# Parameters that count, and parameters that are refused

WITHOUT_EFFECT = {
    "n_jobs": (1, 2),
    "verbose": (0, 1),
    "keep_rows": (True, False),
    "solver": ("auto", "orthogonal"),
}
OF_SIZES = {
    "n_estimators": ({}, 10, 20),
    "max_samples": ({}, 1.0, 0.6),
    "sampling": ({}, "fixed", "bernoulli"),
    "design": ({}, "balanced", "independent"),
    "scale": ({"max_features": 2}, 1.0, "auto"),
    "fit_intercept": ({}, True, False),
    "random_state": ({}, 0, 1),
}
CASES = {  # other settings, and two values of the parameter that give different predictions
    OLSEnsembleRegressor: (
        OF_SIZES
        | {
            "max_features": ({}, 0.5, 0.2),
            "mixing": ({"n_estimators": 100, "max_features": 2}, "mean", "stacking"),
        }
    ),
    OLSEnsembleRegressorCV: (
        OF_SIZES
        | {
            "max_features": ({}, None, [2]),
            "scale": ({"max_features": [2]}, 1.0, "auto"),
            "cv": ({"sampling": "determinantal"}, None, 2),
        }
    ),
    AdaptiveOLSEnsembleRegressor: {
        "schemes": ({}, "auto", ["ridge"]),
        "n_estimators": ({}, np.inf, 30),
        "cv": ({}, None, 2),
        "fit_intercept": ({}, True, False),
        "random_state": ({"n_estimators": 30}, 0, 1),
    },
}


def parameters_of(cls):
    return set(inspect.signature(cls).parameters)


@pytest.mark.parametrize("cls", ENSEMBLES)
def test_every_parameter_has_a_case_in_which_it_counts(cls, seed, capsys):
    """A parameter that is added to a class fails here until it has one."""
    # no tuned size may be that of all columns
    shape = (40, 60) if cls is OLSEnsembleRegressorCV else (60, 12)
    X, y, _ = problem_with_units(seed, *shape)
    assert parameters_of(cls) - set(WITHOUT_EFFECT) == set(CASES[cls])
    for name, (settings, *values) in CASES[cls].items():
        defaults = (
            {"n_estimators": 20, "random_state": 0}
            if cls is not AdaptiveOLSEnsembleRegressor
            else {}
        )
        models = [cls(**(defaults | settings | {name: value})) for value in values]
        first, second = (model.fit(X, y).predict(X) for model in models)
        with case(name):
            assert np.abs(first - second).max() > 1e-3 * y.std()
    for name in parameters_of(cls) & set(WITHOUT_EFFECT):
        settings = {"n_estimators": 20, "random_state": 0}
        models = [cls(**settings, **{name: value}) for value in WITHOUT_EFFECT[name]]
        first, second = (model.fit(X, y).predict(X) for model in models)
        with case(name):
            assert_allclose(first, second, rtol=1e-8)
    assert "members" in capsys.readouterr().out  # which verbose prints


@pytest.mark.parametrize(
    "model",
    [
        OLSEnsembleRegressor(np.inf, 4, sampling="determinantal"),
        OLSEnsembleRegressorCV(sampling="determinantal"),
        AdaptiveOLSEnsembleRegressor(["ridge", "power", "lasso", "sparse", "null"]),
    ],
    ids=["fixed size", "tuned", "adaptive"],
)
def test_the_seed_does_not_matter_without_draws(model, seed):
    X, y, _ = problem_with_units(seed)
    coefs = [clone(model).set_params(random_state=state).fit(X, y).coef_ for state in (0, 1, None)]
    assert np.array_equal(coefs[0], coefs[1]) and np.array_equal(coefs[0], coefs[2])


DETERMINANTAL = {"sampling": "determinantal"}
REFUSED_BY_BOTH = [
    ({"n_estimators": np.inf}, r"n_estimators=inf needs sampling='determinantal'.*'fixed'"),
    ({"n_estimators": np.inf, "sampling": "bernoulli"}, r"n_estimators=inf.*'bernoulli'"),
    (DETERMINANTAL | {"design": "independent"}, r"design='independent'.*'determinantal'"),
    (DETERMINANTAL | {"max_samples": 0.5}, r"max_samples=0\.5.*sampling='determinantal'"),
    (DETERMINANTAL | {"max_samples": 60}, r"max_samples=60.*Use 1\.0"),
]
REFUSED_PARAMETERS = {
    OLSEnsembleRegressor: [
        *REFUSED_BY_BOTH,
        (
            DETERMINANTAL | {"n_estimators": np.inf, "mixing": "stacking"},
            r"mixing='stacking'.*inf",
        ),
        (DETERMINANTAL | {"max_features": np.full(12, 0.5)}, "array of probabilities"),
    ],
    OLSEnsembleRegressorCV: [
        *REFUSED_BY_BOTH,
        (DETERMINANTAL | {"cv": "oob"}, r"cv='oob'.*determinantal members see all rows"),
        ({"cv": "oob"}, r"cv='oob'.*max_samples=1\.0"),
    ],
}


@pytest.mark.parametrize("cls", REFUSED_PARAMETERS)
def test_parameters_are_refused_where_they_cannot_count(cls):
    X, y, _ = problem_with_units(0)
    for settings, message in REFUSED_PARAMETERS[cls]:
        model = cls(**settings)
        with case(settings), pytest.raises(ValueError, match=message):
            model.fit(X, y)
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("cls", "positional"),
    [
        (OLSEnsembleRegressor, (10, 0.5, 1.0, "fixed")),
        (OLSEnsembleRegressorCV, (10, [2], 1.0)),
        (AdaptiveOLSEnsembleRegressor, ("auto", 10)),
    ],
)
def test_parameters_that_a_class_does_not_define_are_rejected(cls, positional):
    parameters = set().union(*map(parameters_of, ENSEMBLES), {"alpha"})
    for name in parameters - parameters_of(cls):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            cls(**{name: 1})
    with pytest.raises(TypeError, match="positional"):
        cls(*positional)


# Tuned determinantal members are tuned ridge regression


def standardised(X, weight):
    """Centred columns in units of their weighted standard deviations, and the units."""
    Z = X - np.average(X, axis=0, weights=weight)
    unit = np.sqrt(np.average(Z**2, axis=0, weights=weight))
    return Z / unit, unit


def implied_penalty(model, X, weight):
    """The penalty of ridge regression on standardised columns whose degrees of freedom are the
    tuned size.
    """
    Z, _ = standardised(X, weight)
    squares = np.linalg.svd(Z * np.sqrt(weight)[:, None], compute_uv=False) ** 2
    size = model.max_features_
    log_penalty = brentq(
        lambda t: np.sum(squares / (squares + np.exp(t))) - size, -40, 40, xtol=1e-13
    )
    return float(np.exp(log_penalty))


def assert_is_ridge(model, X, Y, weight):
    """The model is ridge regression by scikit-learn at the implied penalty, times the scale."""
    Z, unit = standardised(X, weight)
    peer = Ridge(implied_penalty(model, X, weight), tol=1e-12).fit(Z, Y, weight)
    expected = model.scale_ * peer.coef_ / unit
    assert_allclose(model.coef_, expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
    mean = np.average(Y, axis=0, weights=weight)
    predicted = mean + model.scale_ * (peer.predict(Z) - mean)
    assert_allclose(model.predict(X), predicted, rtol=1e-6, atol=1e-7 * np.std(Y))


def held_out(X, Y, weight, penalty, *, splits, scale=1.0):
    """Predictions of the test rows of every split by refits of scikit-learn's ridge regression,
    with a scale.
    """
    Z, _ = standardised(X, weight)
    predictions = np.full_like(Y, np.nan)
    for train, test in splits:
        peer = Ridge(penalty, tol=1e-12).fit(Z[train], Y[train], weight[train])
        mean = np.average(Y[train], axis=0, weights=weight[train])
        predictions[test] = mean + scale * (peer.predict(Z[test]) - mean)
    return predictions


def leave_one_out(n):
    return list(LeaveOneOut().split(np.zeros(n)))


@pytest.mark.parametrize("shape", [(60, 12), (25, 40)])
@pytest.mark.parametrize("scale", [1.0, "auto", 0.8])
def test_tuned_determinantal_members_are_ridge_regression_judged_by_refits(shape, scale, seed):
    """Leave-one-out, neighbouring folds and a splitter; one and two targets; with and without
    weights.
    """
    shuffled = KFold(4, shuffle=True, random_state=seed)
    for n_targets, weighted, cv in product((None, 2), (False, True), (None, 3, shuffled)):
        X, Y, weight = problem_with_units(seed, *shape, q=n_targets, noise=3.0)
        weight = weight if weighted else np.ones(len(X))
        model = OLSEnsembleRegressorCV(sampling="determinantal", scale=scale, cv=cv)
        model.fit(X, Y, weight if weighted else None)
        splitter = {None: LeaveOneOut(), 3: KFold(3)}.get(cv, shuffled)
        penalty = implied_penalty(model, X, weight)
        refit = partial(held_out, X, Y, weight, splits=list(splitter.split(X)), scale=model.scale_)
        error, with_less, with_more = (
            np.mean(np.average((Y - refit(factor * penalty)) ** 2, axis=0, weights=weight))
            for factor in (1.0, 0.5, 2.0)
        )
        with case(n_targets, weighted, cv):
            assert model.criterion_ == ("loo" if cv is None else "kfold")
            assert model.n_estimators_ == np.inf
            assert_is_ridge(model, X, Y, weight)
            tol = {"rtol": 1e-5, "atol": 1e-6 * np.std(Y)}
            assert_allclose(model.cv_prediction_, refit(penalty), **tol)
            assert -model.best_score_ == pytest.approx(error, rel=1e-6)
            if scale != "auto":  # an automatic scale is chosen after the penalty
                limit = 0.99 * model.cv_results_["param_max_features"].max()
                assert with_more > error * (1 - 1e-4)
                assert model.max_features_ > limit or with_less > error * (1 - 1e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_targets", [None, 2])
def test_generalised_cross_validation_of_ridge_regression(weighted, n_targets, seed):
    X, Y, weight = problem_with_units(seed, q=n_targets, noise=3.0)
    weight = weight if weighted else np.ones(len(X))
    model = OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0, cv="gcv")
    residuals = Y - model.fit(X, Y, weight).predict(X)
    # the intercept is one more degree of freedom
    residual_fraction = 1 - (1 + model.max_features_) / len(X)
    expected = np.mean(np.average(residuals**2, axis=0, weights=weight)) / residual_fraction**2
    assert model.criterion_ == "gcv"
    assert_is_ridge(model, X, Y, weight)
    assert -model.best_score_ == pytest.approx(expected, rel=1e-6)


def test_given_expected_sizes_are_compared_by_refits(seed):
    X, y, _ = problem_with_units(seed, noise=3.0)
    weight = np.ones(60)
    model = OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0)
    scores = model.set_params(max_features=[9, 0.25, 1]).fit(X, y).cv_results_["mean_test_score"]
    assert_allclose(model.cv_results_["param_max_features"], [1, 3, 9], rtol=1e-9)
    assert model.best_index_ == np.argmax(scores)
    for size, score in zip((1, 3, 9), scores, strict=True):
        model.set_params(max_features=[size]).fit(X, y)
        penalty = implied_penalty(model, X, weight)
        predictions = held_out(X, y, weight, penalty, splits=leave_one_out(60))
        with case(size):
            assert -score == pytest.approx(np.mean((y - predictions) ** 2), rel=1e-6)
            limit = OLSEnsembleRegressor(np.inf, size, sampling="determinantal").fit(X, y)
            assert_allclose(model.coef_, limit.coef_, rtol=1e-6)


def test_ridge_regression_of_blocks_is_tuned_in_folds(seed):
    """1200 rows are not loaded: the choice in three random folds is near that of leave-one-out."""
    X, y, _ = problem_with_units(seed, n=1200, noise=10.0)
    model = OLSEnsembleRegressorCV(sampling="determinantal")
    blocks = clone(model).fit(row_blocks(X, y, size=500), None)
    memory = clone(model).fit(X, y)
    assert (blocks.criterion_, memory.criterion_) == ("kfold", "loo")
    for fitted in (blocks, memory):
        assert_is_ridge(fitted, X, y, np.ones(len(X)))
    assert blocks.best_score_ == pytest.approx(memory.best_score_, rel=0.02)
    assert np.all(np.abs(blocks.coef_ - memory.coef_) < memory.coef_std())
    lower, upper = blocks.predict_interval(X, 0.9).T
    assert 0.87 < np.mean((lower <= y) & (y <= upper)) < 0.93
    assert_allclose(blocks.coef_std().mean(), memory.coef_std().mean(), rtol=0.4)


# Sampling schemes


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_can_stand_alone(scheme, seed):
    for n_estimators, q in product((np.inf, 30), (None, 2)):
        X, Y, weight = problem_with_units(seed, q=q)
        model = AdaptiveOLSEnsembleRegressor([scheme], n_estimators=n_estimators, random_state=seed)
        model.fit(X, Y, weight)
        with case(n_estimators, q):
            assert model.scheme_weights_ == ({scheme: 1.0} if q is None else [{scheme: 1.0}] * q)
            assert model.cv_results_["param_scheme"].tolist() == [scheme, "mixture"]
            assert model.cv_results_["weight"].tolist() == [1.0, 1.0]
            assert np.all(model.scale_ == (scheme != "null")) and -np.inf < model.best_score_ < 0
            mean = np.broadcast_to(np.average(Y, axis=0, weights=weight), Y.shape)
            if scheme == "null":
                assert_allclose(model.predict(X), mean, rtol=1e-12)
                assert not model.coef_.any()
            else:
                assert np.mean((Y - model.predict(X)) ** 2) < 0.5 * np.mean((Y - mean) ** 2)


@pytest.mark.parametrize(
    "names",
    [
        "auto",
        ["ridge", "null"],
        ("null", "ridge"),
        ["power", "sparse"],
        ["lasso", "uniform", "null"],
        list(SCHEMES),
    ],
    ids=str,
)
def test_weights_of_the_requested_schemes_sum_to_one(names, seed):
    X, y, _ = problem_with_units(seed)
    noise = np.random.default_rng(seed).standard_normal(len(y))
    requested = [name for name in SCHEMES if names == "auto" or name in names]
    for target in (y, noise):
        model = AdaptiveOLSEnsembleRegressor(names).fit(X, target)
        weights = model.scheme_weights_
        assert sum(weights.values()) == pytest.approx(1) and min(weights.values()) > 0
        assert set(weights) <= set(requested)
        assert model.scale_ == pytest.approx(1 - weights.get("null", 0.0))
        results = model.cv_results_
        *listed, last = results["param_scheme"].tolist()
        assert last == "mixture" and model.best_index_ == len(listed)
        assert model.best_score_ == results["mean_test_score"][-1]
        unusable = {"rare"} if "ridge" in requested else set()  # no column is rare
        unusable |= {"lasso", "sparse"} if target is noise else set()  # may select no column
        assert listed == [name for name in requested if name in listed]
        assert set(requested) - set(listed) <= unusable
        expected = [weights.get(name, 0.0) for name in listed]
        assert results["weight"][:-1].tolist() == pytest.approx(expected)


def test_the_order_of_schemes_does_not_matter(seed):
    X, y, _ = problem_with_units(seed)
    models = [
        AdaptiveOLSEnsembleRegressor(names, random_state=0)
        for names in ("auto", list(SCHEMES)[::-1])
    ]
    assert_array_equal(*(model.fit(X, y).coef_ for model in models))


def test_without_ridge_and_the_null_model_stacked_weights_are_not_shrunk(seed, monkeypatch):
    """Each of six targets of noise is stacked; ridge and the null model count where requested."""
    X, _, _ = problem_with_units(seed)
    noise = np.random.default_rng(seed).standard_normal((len(X), 6))
    calls = {"stack": [], "shrink_to_ridge": [], "shrink_to_null": []}

    def record(name, function):
        def recorded(*arguments, **settings):
            calls[name].append(function(*arguments, **settings))
            return calls[name][-1]

        monkeypatch.setattr(choice, name, recorded)

    for name in calls:
        record(name, getattr(choice, name))
    for schemes, n_ridge, n_null in (
        (["power", "uniform"], 0, 0),
        (["power", "uniform", "null"], 0, 6),
        (["power", "uniform", "ridge"], 6, 0),
    ):
        for results in calls.values():
            results.clear()
        model = AdaptiveOLSEnsembleRegressor(schemes, cv=3).fit(X, noise)
        assert [len(results) for results in calls.values()] == [6, n_ridge, n_null]
        assert (model.scale_ == 1).all() == (n_null == 0)
        if n_ridge == n_null == 0:
            for weights, (stacked, _) in zip(model.scheme_weights_, calls["stack"], strict=True):
                stacked = np.where(stacked < choice.NEGLIGIBLE_WEIGHT, 0.0, stacked)
                expected = stacked / stacked.sum()
                assert [weights.get(name, 0.0) for name in schemes] == pytest.approx(expected)


def test_unknown_schemes_are_refused_with_the_list():
    X, y, _ = problem_with_units(0)
    known = ", ".join(map(repr, SCHEMES))
    for schemes, words in (
        (["ridge", "elastic"], "there is no scheme 'elastic'"),
        (["mixture"], "there is no scheme 'mixture'"),
        ([], "schemes=[]"),
        ([["ridge"]], "there is no scheme ['ridge']"),
        ([3], "there is no scheme 3"),
    ):
        with case(schemes), pytest.raises(ValueError) as raised:
            AdaptiveOLSEnsembleRegressor(schemes).fit(X, y)
        assert words in str(raised.value) and known in str(raised.value)


@pytest.mark.parametrize("names", [["null"], ("null",), np.array(["null"])], ids=type)
def test_standard_errors_repeat_the_choice_among_the_same_schemes(names, seed, tmp_path):
    """The mean target has standard errors of zero, also after pickling and in files."""
    X, y, _ = problem_with_units(seed)
    model = AdaptiveOLSEnsembleRegressor(names).fit(X, y)
    olsen.save(model, tmp_path / "model.skops")
    loaded = olsen.load(tmp_path / "model.skops")
    assert list(loaded.schemes) == ["null"]
    for fitted in (model, pickle.loads(pickle.dumps(model)), loaded):
        assert_array_equal(fitted.coef_std(), 0.0)
