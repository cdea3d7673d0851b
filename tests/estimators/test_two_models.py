"""What tells the ensembles apart: members that are drawn, parameters that count, tuned ridge
regression, schemes.
"""

import inspect
import pickle
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

import olsen
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)
from olsen._adaptive import choice

ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)
SCHEMES = ("ridge", "power", "lasso", "sparse", "uniform", "null")


def some_data(seed, n=60, p=12, q=None, noise=1.0):
    """Correlated columns in different units with other means, a signal in some of them, weights."""
    rng = np.random.default_rng([seed, 7])
    X = (rng.standard_normal((n, p)) + rng.standard_normal((n, 1))) * 10.0 ** rng.integers(
        -1, 2, p
    ) + 3.0
    B = np.zeros((p, q or 1))
    B[:4] = rng.uniform(1, 2, (4, q or 1)) / X[:, :4].std(axis=0)[:, None]
    Y = X @ B + noise * rng.standard_normal((n, q or 1)) + 5.0
    return X, Y if q else Y[:, 0], rng.uniform(0.3, 3.0, n)


def in_blocks(X, y):
    return lambda: ((X[i : i + 500], y[i : i + 500]) for i in range(0, len(X), 500)), None


# Members are drawn


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli", "determinantal"])
def test_a_tuned_ensemble_holds_drawn_members_or_is_the_determinantal_limit(sampling, seed):
    """Least squares on the columns that are named, averaged and scaled, gives the coefficients."""
    numbers = ["auto", 7] if sampling != "determinantal" else ["auto", 7, np.inf]
    for n_estimators, q, place in product(numbers, (None, 2), ("memory", "blocks")):
        X, Y, _ = some_data(seed, n=1100 if place == "blocks" else 60, q=q)
        data = in_blocks(X, Y) if place == "blocks" else (X, Y)
        model = OLSEnsembleRegressorCV(n_estimators, sampling=sampling, random_state=seed).fit(
            *data
        )
        with case(n_estimators, q, place):
            if sampling == "determinantal" and n_estimators != 7:
                assert model.n_estimators_ == np.inf and len(model.weights_) == 0
                continue
            number = model.n_estimators_
            assert (
                isinstance(number, int)
                and len(model.feature_subsets_) == len(model.weights_) == number >= 1
            )
            assert number == 7 or n_estimators == "auto"
            targets = Y.reshape(len(Y), -1).T
            members = [member_coefficients(X, y, model.feature_subsets_)[0] for y in targets]
            expected = model.scale_ * np.mean(members, axis=1).reshape(model.coef_.shape)
            np.testing.assert_allclose(model.coef_, expected, rtol=1e-7, atol=1e-9)


def test_coin_flips_change_a_tuned_ensemble(seed):
    """With more columns than rows, so that not all of them are in every member."""
    X, y, _ = some_data(seed, n=40, p=60)
    fixed, coins = (
        OLSEnsembleRegressorCV(40, sampling=s, random_state=seed).fit(X, y)
        for s in ("fixed", "bernoulli")
    )
    assert {len(columns) for columns in fixed.feature_subsets_} == {fixed.max_features_}
    sizes = [len(columns) for columns in coins.feature_subsets_]
    assert len(set(sizes)) > 2
    assert abs(np.mean(sizes) - coins.max_features_) < 4 * np.sqrt(
        60 / 4 / 40
    )  # a coin for each of sixty columns
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
    shape = (
        (40, 60) if cls is OLSEnsembleRegressorCV else (60, 12)
    )  # so that no tuned size is that of all columns
    X, y, _ = some_data(seed, *shape)
    assert parameters_of(cls) - set(WITHOUT_EFFECT) == set(CASES[cls])
    for name, (settings, *values) in CASES[cls].items():
        defaults = (
            {"n_estimators": 20, "random_state": 0}
            if cls is not AdaptiveOLSEnsembleRegressor
            else {}
        )
        one, other = (cls(**(defaults | settings | {name: value})).fit(X, y) for value in values)
        with case(name):
            assert np.abs(one.predict(X) - other.predict(X)).max() > 1e-3 * y.std()
    for name in parameters_of(cls) & set(WITHOUT_EFFECT):
        settings = {"n_estimators": 20, "random_state": 0}
        one, other = (cls(**settings, **{name: value}).fit(X, y) for value in WITHOUT_EFFECT[name])
        with case(name):
            np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-8)
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
def test_where_nothing_is_drawn_the_seed_does_not_count(model, seed):
    X, y, _ = some_data(seed)
    coefs = [clone(model).set_params(random_state=state).fit(X, y).coef_ for state in (0, 1, None)]
    assert np.array_equal(coefs[0], coefs[1]) and np.array_equal(coefs[0], coefs[2])


def test_parameters_are_refused_where_they_cannot_count():
    X, y, _ = some_data(0)
    of_both = [
        ({"n_estimators": np.inf}, r"n_estimators=inf needs sampling='determinantal'.*'fixed'"),
        ({"n_estimators": np.inf, "sampling": "bernoulli"}, r"n_estimators=inf.*'bernoulli'"),
        (
            {"sampling": "determinantal", "design": "independent"},
            r"design='independent'.*sampling='determinantal'",
        ),
        (
            {"sampling": "determinantal", "max_samples": 0.5},
            r"max_samples=0\.5.*sampling='determinantal'",
        ),
        ({"sampling": "determinantal", "max_samples": len(X)}, r"max_samples=60.*Use 1\.0"),
    ]
    of_tuned = [
        (
            {"sampling": "determinantal", "cv": "oob"},
            r"cv='oob'.*determinantal members see all rows",
        ),
        ({"cv": "oob"}, r"cv='oob'.*max_samples=1\.0"),
    ]
    of_given_size = [
        (
            {"n_estimators": np.inf, "sampling": "determinantal", "mixing": "stacking"},
            r"mixing='stacking'.*inf",
        ),
        ({"sampling": "determinantal", "max_features": np.full(12, 0.5)}, "array of probabilities"),
    ]
    for cls, cases in (
        (OLSEnsembleRegressor, of_both + of_given_size),
        (OLSEnsembleRegressorCV, of_both + of_tuned),
    ):
        for settings, message in cases:
            model = cls(**settings)
            with case(cls, settings):
                with pytest.raises(ValueError, match=message):
                    model.fit(X, y)
                assert not hasattr(model, "coef_")


def test_parameters_that_a_class_does_not_define_are_rejected():
    dropped = {"inclusion", "rcond", "tol", "warm_start", "one_standard_error", "alpha"}
    known = dropped.union(*map(parameters_of, ENSEMBLES))
    for cls in ENSEMBLES:
        unknown = known - parameters_of(cls)
        assert dropped < unknown
        for name in unknown:
            with (
                case(cls, name),
                pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"),
            ):
                cls(**{name: 1})
    for cls, arguments in (
        (OLSEnsembleRegressor, (10, 0.5, 1.0, "fixed")),
        (OLSEnsembleRegressorCV, (10, [2], 1.0)),
        (AdaptiveOLSEnsembleRegressor, ("auto", 10)),
    ):
        with case(cls), pytest.raises(TypeError, match="positional"):
            cls(*arguments)


# Tuned determinantal members are tuned ridge regression


def standardised(X, weight):
    """Columns about their weighted means, in units of their weighted standard deviations; and these
    units.
    """
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
    """Coefficients and intercept are those of scikit-learn at the implied penalty, times the scale."""
    Z, unit = standardised(X, weight)
    peer = Ridge(implied_penalty(model, X, weight), tol=1e-12).fit(Z, Y, weight)
    expected = model.scale_ * peer.coef_ / unit
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
    mean = np.average(Y, axis=0, weights=weight)
    predicted = mean + model.scale_ * (peer.predict(Z) - mean)
    np.testing.assert_allclose(model.predict(X), predicted, rtol=1e-6, atol=1e-7 * np.std(Y))


def held_out(X, Y, weight, penalty, splits, scale=1.0):
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


def without_each(n):
    rows = np.arange(n)
    return [(rows[rows != row], [row]) for row in rows]


@pytest.mark.parametrize("shape", [(60, 12), (25, 40)])
@pytest.mark.parametrize("scale", [1.0, "auto", 0.8])
def test_tuned_determinantal_members_are_ridge_regression_judged_by_refits(shape, scale, seed):
    """Leave-one-out, folds of neighbours and of a splitter, of one and two targets, with and
    without weights.
    """
    splitter = KFold(4, shuffle=True, random_state=seed)
    for q, weighted, cv in product((None, 2), (False, True), (None, 3, splitter)):
        X, Y, weight = some_data(seed, *shape, q=q, noise=3.0)
        weight = weight if weighted else np.ones(len(X))
        model = OLSEnsembleRegressorCV(sampling="determinantal", scale=scale, cv=cv)
        model.fit(X, Y, weight if weighted else None)
        splits = (
            without_each(len(X))
            if cv is None
            else list((KFold(3) if cv == 3 else splitter).split(X))
        )
        penalty = implied_penalty(model, X, weight)
        predictions = held_out(X, Y, weight, penalty, splits, model.scale_)
        errors = [
            np.average(
                (Y - held_out(X, Y, weight, factor * penalty, splits, model.scale_)) ** 2,
                axis=0,
                weights=weight,
            )
            for factor in (1.0, 0.5, 2.0)
        ]
        error, with_less, with_more = np.mean(np.reshape(errors, (3, -1)), axis=1)
        with case(q, weighted, cv):
            assert (
                model.criterion_ == ("loo" if cv is None else "kfold")
                and model.n_estimators_ == np.inf
            )
            assert_is_ridge(model, X, Y, weight)
            np.testing.assert_allclose(
                model.cv_prediction_, predictions, rtol=1e-5, atol=1e-6 * np.std(Y)
            )
            assert -model.best_score_ == pytest.approx(error, rel=1e-6)
            if scale != "auto":  # which is chosen after the penalty
                limited = model.max_features_ > 0.99 * model.cv_results_["param_max_features"].max()
                assert with_more > error * (1 - 1e-4) and (
                    limited or with_less > error * (1 - 1e-4)
                )


def test_generalised_cross_validation_of_ridge_regression(seed):
    for weighted, q in product((False, True), (None, 2)):
        X, Y, weight = some_data(seed, q=q, noise=3.0)
        weight = weight if weighted else np.ones(len(X))
        model = OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0, cv="gcv").fit(
            X, Y, weight
        )
        residuals = Y - model.predict(X)
        left = 1 - (1 + model.max_features_) / len(X)  # the intercept is one more degree of freedom
        expected = np.mean(np.average(residuals**2, axis=0, weights=weight)) / left**2
        with case(weighted, q):
            assert model.criterion_ == "gcv"
            assert_is_ridge(model, X, Y, weight)
            assert -model.best_score_ == pytest.approx(expected, rel=1e-6)


def test_given_expected_sizes_are_compared_by_refits(seed):
    X, y, _ = some_data(seed, noise=3.0)
    model = OLSEnsembleRegressorCV(
        max_features=[9, 0.25, 1], sampling="determinantal", scale=1.0
    ).fit(X, y)
    np.testing.assert_allclose(model.cv_results_["param_max_features"], [1, 3, 9], rtol=1e-9)
    for size, score in zip((1, 3, 9), model.cv_results_["mean_test_score"], strict=True):
        alone = OLSEnsembleRegressorCV(
            max_features=[size], sampling="determinantal", scale=1.0
        ).fit(X, y)
        predictions = held_out(
            X, y, np.ones(60), implied_penalty(alone, X, np.ones(60)), without_each(60)
        )
        with case(size):
            assert -score == pytest.approx(np.mean((y - predictions) ** 2), rel=1e-6)
            limit = OLSEnsembleRegressor(np.inf, size, sampling="determinantal").fit(X, y)
            np.testing.assert_allclose(alone.coef_, limit.coef_, rtol=1e-6)
    assert model.best_index_ == np.argmax(model.cv_results_["mean_test_score"])


def test_ridge_regression_of_blocks_is_tuned_in_folds(seed):
    """Of 1200 rows, which are not loaded: three random folds, whose choice is near that of
    leave-one-out.
    """
    X, y, _ = some_data(seed, n=1200, noise=10.0)
    blocks = OLSEnsembleRegressorCV(sampling="determinantal").fit(*in_blocks(X, y))
    memory = OLSEnsembleRegressorCV(sampling="determinantal").fit(X, y)
    weight = np.ones(len(X))
    assert (blocks.criterion_, memory.criterion_) == ("kfold", "loo")
    for model in (blocks, memory):
        assert_is_ridge(model, X, y, weight)
    assert blocks.best_score_ == pytest.approx(memory.best_score_, rel=0.02)
    assert np.all(np.abs(blocks.coef_ - memory.coef_) < memory.coef_std())
    low, high = blocks.predict_interval(X, 0.9).T
    assert 0.87 < np.mean((low <= y) & (y <= high)) < 0.93
    np.testing.assert_allclose(blocks.coef_std().mean(), memory.coef_std().mean(), rtol=0.4)


@pytest.mark.parametrize("n_estimators", [np.inf, 30])
def test_intervals_and_standard_errors_of_ridge_regression_survive_pickling(
    n_estimators, seed, tmp_path
):
    X, y, _ = some_data(seed)
    model = OLSEnsembleRegressorCV(n_estimators, sampling="determinantal", random_state=0).fit(X, y)
    olsen.save(model, tmp_path / "model.skops")
    ends, std = model.predict_interval(X[:5]), model.coef_std()
    assert np.all(np.isfinite(ends)) and np.all(ends[:, 0] < ends[:, 1]) and np.all(std > 0)
    for copy in (pickle.loads(pickle.dumps(model)), olsen.load(tmp_path / "model.skops")):
        np.testing.assert_allclose(copy.predict_interval(X[:5]), ends, rtol=1e-9)
        np.testing.assert_allclose(copy.coef_std(), std, rtol=1e-9)
        np.testing.assert_array_equal(copy.risk_curve(), model.risk_curve())
        assert all(map(np.array_equal, copy.feature_subsets_[:5], model.feature_subsets_[:5]))


# Sampling schemes


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_can_stand_alone(scheme, seed):
    for n_estimators, q in product((np.inf, 30), (None, 2)):
        X, Y, weight = some_data(seed, q=q)
        model = AdaptiveOLSEnsembleRegressor([scheme], n_estimators=n_estimators, random_state=seed)
        model.fit(X, Y, weight)
        with case(n_estimators, q):
            assert model.scheme_weights_ == ({scheme: 1.0} if q is None else [{scheme: 1.0}] * q)
            assert model.cv_results_["param_scheme"].tolist() == [scheme, "mixture"]
            assert model.cv_results_["weight"].tolist() == [1.0, 1.0]
            assert np.all(model.scale_ == (scheme != "null")) and -np.inf < model.best_score_ < 0
            mean = np.broadcast_to(np.average(Y, axis=0, weights=weight), Y.shape)
            if scheme == "null":
                np.testing.assert_allclose(model.predict(X), mean, rtol=1e-12)
                assert not model.coef_.any()
            else:
                assert np.mean((Y - model.predict(X)) ** 2) < 0.5 * np.mean((Y - mean) ** 2)


def test_weights_sum_to_one_and_are_of_the_schemes_that_were_asked_for(seed):
    X, y, _ = some_data(seed)
    noise = np.random.default_rng(seed).standard_normal(len(y))
    lists = [
        "auto",
        ["ridge", "null"],
        ("null", "ridge"),
        ["power", "sparse"],
        ["lasso", "uniform", "null"],
        list(SCHEMES),
    ]
    for target, names in product((y, noise), lists):
        model = AdaptiveOLSEnsembleRegressor(names).fit(X, target)
        weights = model.scheme_weights_
        with case(names):
            assert sum(weights.values()) == pytest.approx(1) and min(weights.values()) > 0
            assert set(weights) <= set(SCHEMES if names == "auto" else names)
            assert model.scale_ == pytest.approx(1 - weights.get("null", 0.0))
            results = model.cv_results_
            *listed, last = results["param_scheme"].tolist()
            assert last == "mixture" and model.best_index_ == len(listed)
            assert model.best_score_ == results["mean_test_score"][-1]
            expected = [name for name in SCHEMES if names == "auto" or name in names]
            unusable = {"lasso", "sparse"} if target is noise else set()  # which may keep no column
            assert [name for name in expected if name in listed] == listed and set(expected) - set(
                listed
            ) <= unusable
            assert dict(zip(listed, results["weight"][:-1], strict=True)) == pytest.approx(
                {name: weights.get(name, 0.0) for name in listed}
            )
    same = [
        AdaptiveOLSEnsembleRegressor(names, random_state=0).fit(X, y)
        for names in ("auto", list(SCHEMES[::-1]))
    ]
    np.testing.assert_array_equal(same[0].coef_, same[1].coef_)


def test_without_ridge_and_the_null_model_the_stacked_weights_stand(seed, monkeypatch):
    """Of six targets that are noise, some of which the null model takes a part of where it is in
    the list.
    """
    X, _, _ = some_data(seed)
    noise = np.random.default_rng(seed).standard_normal((len(X), 6))
    calls = {"stack": [], "shrink_to_ridge": [], "shrink_to_null": []}

    def record(name):
        original = getattr(choice, name)

        def recorded(*arguments, **settings):
            calls[name].append(original(*arguments, **settings))
            return calls[name][-1]

        monkeypatch.setattr(choice, name, recorded)

    for name in calls:
        record(name)
    free = AdaptiveOLSEnsembleRegressor(["power", "uniform"], cv=3).fit(X, noise)
    assert [len(calls[name]) for name in calls] == [6, 0, 0]
    np.testing.assert_array_equal(free.scale_, 1.0)
    for weights, (stacked, _) in zip(free.scheme_weights_, calls["stack"], strict=True):
        kept = np.where(stacked < choice.NEGLIGIBLE_WEIGHT, 0.0, stacked)
        shares = zip(("power", "uniform"), kept / kept.sum(), strict=True)
        assert weights == pytest.approx({name: share for name, share in shares if share > 0})
    with_null = AdaptiveOLSEnsembleRegressor(["power", "uniform", "null"], cv=3).fit(X, noise)
    assert [len(calls[name]) for name in calls] == [12, 0, 6] and with_null.scale_.min() < 1
    with_ridge = AdaptiveOLSEnsembleRegressor(["power", "uniform", "ridge"], cv=3).fit(X, noise)
    assert [len(calls[name]) for name in calls] == [18, 6, 6]
    np.testing.assert_array_equal(with_ridge.scale_, 1.0)


def test_unknown_schemes_are_refused_with_the_list():
    X, y, _ = some_data(0)
    the_list = ", ".join(map(repr, SCHEMES))
    for given, words in (
        (["ridge", "elastic"], "there is no scheme 'elastic'"),
        (["nothing"], "there is no scheme 'nothing'"),
        (["mixture"], "there is no scheme 'mixture'"),
        ([], "schemes=[]"),
        ([["ridge"]], "there is no scheme ['ridge']"),
        ([3], "there is no scheme 3"),
    ):
        with case(given), pytest.raises(ValueError) as raised:
            AdaptiveOLSEnsembleRegressor(given).fit(X, y)
        assert words in str(raised.value) and the_list in str(raised.value)


def test_standard_errors_repeat_the_choice_among_the_same_schemes(seed, tmp_path):
    """Those of the mean target are zero, in this process, after pickling and in files, which name
    the schemes.
    """
    X, y, _ = some_data(seed)
    for names in (["null"], ("null",), np.array(["null"])):
        model = AdaptiveOLSEnsembleRegressor(names).fit(X, y)
        with case(names):
            np.testing.assert_array_equal(model.coef_std(), 0.0)
    olsen.save(model, tmp_path / "model.skops")
    restored = olsen.load(tmp_path / "model.skops")
    assert list(restored.schemes) == ["null"]
    for copy in (pickle.loads(pickle.dumps(model)), restored):
        np.testing.assert_array_equal(copy.coef_std(), 0.0)
