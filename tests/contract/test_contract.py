"""One contract for every engine and estimator: a fitted model keeps its promises wherever the rows
live.
"""

import copy
import io
import operator
import pickle
import re
from contextlib import nullcontext
from itertools import pairwise, product

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_validate

from engines import engines as all_engines
from engines import row_blocks
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
    subsets,
)
from random_problems import correlated_problem

N = 300
P = 12
ENGINES = ("memory", "sparse", "frame", "blocks", "npy", "dask", "torch", "stream")
ON_ROWS = ENGINES[:3]  # where the model can look at its rows again
SERVED = {
    OLSEnsembleRegressor: ENGINES,
    OLSEnsembleRegressorCV: ENGINES[:-1],
    AdaptiveOLSEnsembleRegressor: ENGINES[:-1],
    DropoutRegressor: ON_ROWS,
}
TUNED = (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)
ENSEMBLES = (OLSEnsembleRegressor, *TUNED)
ENSEMBLE_ATTRIBUTES = (
    "coef_ intercept_ n_features_in_ n_estimators_ scale_ weights_ solver_ n_fallbacks_ inclusion_"
    " feature_subsets_ sample_subsets_"
)
TUNED_ATTRIBUTES = (
    f"{ENSEMBLE_ATTRIBUTES} best_score_ best_index_ cv_results_ criterion_ cv_prediction_"
)
ATTRIBUTES = {
    OLSEnsembleRegressor: f"{ENSEMBLE_ATTRIBUTES} stacking_advantage_",
    OLSEnsembleRegressorCV: f"{TUNED_ATTRIBUTES} max_features_ max_samples_ risk_curve",
    AdaptiveOLSEnsembleRegressor: (
        f"{TUNED_ATTRIBUTES} scheme_weights_ selected_ selection_frequency_"
    ),
    DropoutRegressor: "coef_ intercept_ inclusion_ n_iter_ loss_curve_ n_features_in_",
}


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """Function that returns engines by their names, those that serve an estimator and are
    installed.
    """
    # scikit-learn asks for this variable before it follows arrays of torch
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")

    def find(names=ENGINES, cls=OLSEnsembleRegressor):
        return all_engines(tmp_path, [name for name in names if name in SERVED[cls]])

    return find


def for_classes(*classes):
    return pytest.mark.parametrize("cls", classes, ids=lambda cls: cls.__name__)


# Data, models, comparisons


def data(seed, n_targets=None):
    """Noisy data, as many columns would otherwise be chosen."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 2 * rng.standard_normal(P)
    noise = 9 * rng.standard_normal((N, n_targets or 1))
    Y = X @ rng.standard_normal((P, n_targets or 1)) + noise
    return X, Y if n_targets else Y[:, 0], rng.integers(0, 3, N).astype(float)


def correlated(seed, noise=3.0):
    return correlated_problem(seed, n=80, p=P, noise=noise)


def nearly_equal_columns(seed):
    """Data of which the first two columns are nearly equal: some members are solved from the
    rows.
    """
    X, y = correlated(seed)
    X[:, 1] = X[:, 0] + 0.001 * X[:, 1]
    return X, y


def make(cls, seed, **settings):
    if cls is DropoutRegressor:
        return cls(**({"max_features": 0.8, "random_state": seed} | settings))
    return cls(**({"n_estimators": 15, "random_state": seed} | settings))


def attributes(model):
    """Everything documented that a fitted model says without its data."""
    values = {
        name: getattr(model, name)
        for name in ATTRIBUTES[type(model)].split()
        if hasattr(model, name)
    }
    if "risk_curve" in values:
        values["risk_curve"] = [model.risk_curve(k) for k in (3, model.n_estimators_, np.inf)]
    return values


QUESTIONS = {
    "interval": lambda model, new: model.predict_interval(new),
    "std": lambda model, new: model.predict(new, return_std=True)[1],
    "members": lambda model, new: model.member_coefs().toarray(),
}


def answers(model, new):
    """Everything that a model says with its data."""
    return {name: question(model, new) for name, question in QUESTIONS.items()}


def assert_same(actual, expected, name=""):
    """Attributes are equal up to rounding, in dictionaries, lists and arrays alike."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), name
        for key in expected:
            assert_same(actual[key], expected[key], f"{name} {key}")
    elif isinstance(expected, (list, tuple, subsets.Subsets)):
        assert len(actual) == len(expected), name
        for item, expected_item in zip(actual, expected, strict=True):
            assert_same(item, expected_item, name)
    elif np.asarray(expected).dtype.kind in "OU":
        assert np.array_equal(actual, expected), f"{name}: {actual!r} instead of {expected!r}"
    else:
        arrays = np.asarray(actual), np.asarray(expected)
        assert_allclose(*arrays, rtol=1e-8, atol=1e-9, err_msg=name)


# Attributes, and the members behind them


@for_classes(*ENSEMBLES)
def test_every_documented_attribute_is_there_in_every_engine(engines, cls, seed):
    X, y, _ = data(seed)
    documented = set(ATTRIBUTES[cls].split())
    of_ensembles = set(" ".join(ATTRIBUTES[ensemble] for ensemble in ENSEMBLES).split())
    for engine in engines(cls=cls):
        with case(engine.name):
            model = engine.fit(make(cls, seed), X, y)
            values = attributes(model)
            assert set(values) == documented
            assert [name for name in of_ensembles - documented if hasattr(model, name)] == []
            assert values["coef_"].shape == values["inclusion_"].shape == (P,)
            assert values["n_features_in_"] == P and values["n_estimators_"] == 15
            assert values.get("stacking_advantage_") is None
            for name in ("weights_", "feature_subsets_", "sample_subsets_"):
                assert len(values[name]) == 15
            columns = np.concatenate(list(values["feature_subsets_"]))
            frequencies = np.bincount(columns, minlength=P) / 15
            assert_allclose(values["inclusion_"], frequencies)
            assert hasattr(model, "feature_names_in_") == (engine.name == "frame")


MEMBER_SETTINGS = {  # settings of each class that change its members
    OLSEnsembleRegressor: [
        {"sampling": sampling, "max_samples": rows}
        for sampling in ("fixed", "bernoulli")
        for rows in (1.0, 0.5)
    ],
    AdaptiveOLSEnsembleRegressor: [
        {"schemes": ["uniform"]},
        {"schemes": ["ridge", "power", "sparse"]},
    ],
}
MEMBER_SETTINGS[OLSEnsembleRegressorCV] = MEMBER_SETTINGS[OLSEnsembleRegressor]


@for_classes(*ENSEMBLES)
def test_subsets_are_those_that_were_used(engines, cls, seed):
    """Plain least squares on the rows and columns that the model names, averaged, is the model."""
    names_for_subsampled_rows = ON_ROWS
    if cls is OLSEnsembleRegressor:
        names_for_subsampled_rows += ("torch",)
    problems = [(None, False), (None, True), (2, True)]
    for settings, (n_targets, weighted) in product(MEMBER_SETTINGS[cls], problems):
        subsampled = settings.get("max_samples", 1.0) < 1
        for engine in engines(names_for_subsampled_rows if subsampled else ENGINES, cls):
            with case(engine.name, settings, n_targets, weighted):
                X, Y, weights = data(seed, n_targets)
                if not weighted:
                    weights = None
                model = make(cls, seed, **settings)
                if cls is not AdaptiveOLSEnsembleRegressor:
                    model.set_params(scale=1.0)
                engine.fit(model, X, Y, weights)
                targets = Y.reshape(N, -1).T
                columns = model.feature_subsets_  # each target may have its list
                lists = columns if isinstance(columns, list) else [columns] * len(targets)
                coefs = []
                intercepts = []
                for y, features in zip(targets, lists, strict=True):
                    coef, intercept = member_coefficients(
                        X, y, features, model.sample_subsets_, sample_weight=weights
                    )
                    coefs.append(coef.mean(axis=0))
                    intercepts.append(intercept.mean(axis=0))
                coef = np.reshape(model.coef_, np.shape(coefs))
                intercept = np.reshape(model.intercept_, len(targets))
                # columns of uniform members of the adaptive model have a penalty of 1e-5, which counts
                # where weights leave few rows
                tolerance = 1e-3 if cls is AdaptiveOLSEnsembleRegressor else 1e-8
                assert_allclose(coef, coefs, rtol=0, atol=tolerance * np.abs(coef).max())
                assert_allclose(intercept, intercepts, rtol=tolerance, atol=tolerance)


def test_subsets_are_sequences(seed):
    """Negative numbers, slices, numpy integers and IndexError as in a list."""
    X, y, _ = data(seed)
    model = make(OLSEnsembleRegressor, seed, max_samples=0.5).fit(X, y)
    from_lists = subsets.Subsets.from_lists([[0, 2], [1], [0, 1, 2], []], n_items=3)
    for sequence in (model.feature_subsets_, model.sample_subsets_, from_lists):
        listed = list(sequence)
        length = len(sequence)
        assert length == len(listed)
        for index in (-1, -length, np.int64(1), np.int32(-2)):
            assert_array_equal(sequence[index], listed[index])
        for part in (slice(2), slice(1, None), slice(length, None)):
            assert_same(list(sequence[part]), listed[part])
        for index in (length, -length - 1, np.int64(length)):
            with pytest.raises(IndexError):
                sequence[index]


@pytest.mark.parametrize("design", ["independent", "balanced"])
@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
def test_a_mapper_takes_a_function_and_a_number(design, sampling, seed):
    """It returns results in order; draws do not depend on it."""
    calls = []

    def threads(function, n_items):
        calls.append(n_items)
        edges = np.linspace(0, n_items, 4).astype(int).tolist()
        return [function(start, stop) for start, stop in pairwise(edges)]

    settings = {"rng": seed, "size": 500, "sampling": sampling, "design": design}
    expected = subsets.draw(1500, 1200, **settings)
    drawn = subsets.draw(1500, 1200, threads=threads, **settings)
    assert_array_equal(drawn.indptr, expected.indptr)
    assert_array_equal(drawn.indices, expected.indices)
    assert len(calls) == 1


# A second fit is a cold fit

CHANGES_IN_PLACE = {
    "X doubled": lambda X, y, weights: operator.imul(X, 2),
    "rows of X reversed": lambda X, y, weights: np.copyto(X, X[::-1].copy()),
    "a column moved": lambda X, y, weights: operator.iadd(X[:, 0], 1),
    "y times -3": lambda X, y, weights: operator.imul(y, -3),
    "weights reversed": lambda X, y, weights: np.copyto(weights, weights[::-1].copy()),
}
BETWEEN_FITS = ("nothing", "asked", "X doubled", "a column moved", "y times -3")
# standard errors of tuned models repeat their choice, which takes a second: they have fewer cases
REFITTED = [
    (OLSEnsembleRegressor, {}, BETWEEN_FITS),
    (OLSEnsembleRegressor, {"scale": "auto"}, BETWEEN_FITS),
    (OLSEnsembleRegressor, {"max_samples": 0.5}, BETWEEN_FITS),
    (OLSEnsembleRegressor, {"mixing": "stacking"}, BETWEEN_FITS),
    (OLSEnsembleRegressor, {"sampling": "bernoulli"}, BETWEEN_FITS),
    (OLSEnsembleRegressor, {"design": "independent"}, BETWEEN_FITS),
    (OLSEnsembleRegressorCV, {}, BETWEEN_FITS),
    (OLSEnsembleRegressorCV, {"sampling": "determinantal"}, ("X doubled",)),
    (AdaptiveOLSEnsembleRegressor, {}, ("asked",)),
]
CHANGED = {
    "fit_intercept": False,
    "max_features": [2, 3],
    "design": "independent",
    "sampling": "bernoulli",
    "random_state": 10**6,
    "max_samples": 0.5,
    "scale": 0.5,
    "mixing": "stacking",
    "solver": "orthogonal",
    "schemes": ["ridge", "null"],
    "cv": 3,
}


def assert_cold(model, X, y, questions=QUESTIONS):
    """A model equals a fit of its clone."""
    cold = clone(model).fit(X, y)
    assert_same(attributes(model), attributes(cold))
    for name in questions:
        assert_same(QUESTIONS[name](model, X[:9]), QUESTIONS[name](cold, X[:9]), name)


@pytest.mark.parametrize(("cls", "settings", "cases"), REFITTED, ids=str)
def test_a_second_fit_equals_a_cold_one(cls, settings, cases, seed):
    """Intervals asked for and data changed in place between the fits do not matter."""
    for event in cases:
        X, y = nearly_equal_columns(seed)
        model = make(cls, seed, n_estimators=5, **settings).fit(X, y)
        if event == "asked":
            answers(model, X[:9])
        elif event in CHANGES_IN_PLACE:
            CHANGES_IN_PLACE[event](X, y, None)
        with case(event):
            assert_cold(model.set_params(n_estimators=60).fit(X, y), X, y)


@for_classes(*ENSEMBLES)
def test_a_changed_parameter_is_heeded(cls, seed):
    X, y = nearly_equal_columns(seed)
    for name, value in CHANGED.items():
        if not hasattr(cls(), name):
            continue
        model = make(cls, seed, n_estimators=5).fit(X, y)
        if cls is OLSEnsembleRegressor and name == "max_features":
            value = 0.3
        with case(name, value):
            model.set_params(n_estimators=9, **{name: value}).fit(X, y)
            assert_cold(model, X, y, ["interval", "members"])


def test_fewer_members_and_other_sizes_are_heeded(seed):
    X, y = correlated(seed)
    model = make(OLSEnsembleRegressor, seed).fit(X, y)
    coef = model.coef_.copy()
    assert_array_equal(model.fit(X, y).coef_, coef)
    assert_cold(model.set_params(n_estimators=3).fit(X, y), X, y)
    for size in (1, 1.0, 1):
        assert_cold(model.set_params(max_features=size).fit(X, y), X, y)


# Tuning


def test_a_given_size_is_taken(seed):
    """Also where all twelve columns would do far better."""
    X, y = correlated(seed, noise=0.1)
    model = make(OLSEnsembleRegressorCV, seed, n_estimators=60, max_features=[2]).fit(X, y)
    assert model.max_features_ == 2 and model.cv_results_["param_max_features"].tolist() == [2]
    assert [len(columns) for columns in model.feature_subsets_] == [2] * 60
    model.set_params(sampling="determinantal", max_features=[2, 0.25]).fit(X, y)
    assert_allclose(model.cv_results_["param_max_features"], [2, 3], rtol=1e-9)
    assert model.max_features_ == pytest.approx(3) and model.inclusion_.shape == (P,)


@for_classes(*TUNED)
def test_groups_are_used_and_other_arguments_refused(cls, seed):
    """No argument of `fit` is dropped silently."""
    X, y = correlated(seed)
    groups = np.arange(80) // 4
    grouped = make(cls, seed, cv=GroupKFold(4)).fit(X, y, groups=groups)
    splits = list(GroupKFold(4).split(X, y, groups))
    assert_same(attributes(grouped), attributes(make(cls, seed, cv=splits).fit(X, y)))
    for cv in (None, GroupKFold(4)):
        with pytest.raises(TypeError, match="foo"):
            make(cls, seed, cv=cv).fit(X, y, foo=1)


# Draws


@for_classes(*ENSEMBLES)
def test_a_fit_takes_one_number_of_a_random_state(engines, cls, seed):
    X, y, _ = data(seed)
    for engine in engines(cls=cls):
        with case(engine.name):
            state = np.random.RandomState(seed)
            expected_state = np.random.RandomState(seed)
            model = engine.fit(make(cls, state), X, y)
            number = int(expected_state.randint(np.iinfo(np.int32).max))
            assert_same(state.get_state(), expected_state.get_state())
            assert_same(attributes(model), attributes(engine.fit(make(cls, number), X, y)))


# Intervals and standard errors


@for_classes(*ENSEMBLES)
def test_copies_have_intervals_and_standard_errors(engines, cls, seed):
    X, y = correlated(seed)
    for engine in engines(ON_ROWS, cls):
        with case(engine.name):
            model = engine.fit(make(cls, seed), X, y)
            expected = engine.ask(answers, model, X[:9])
            assert np.isfinite(expected["interval"]).all() and (expected["std"] > 0).all()
            assert_same(engine.ask(answers, copy.copy(model), X[:9]), expected)
            if engine.name == "memory":
                assert_same(engine.ask(answers, copy.deepcopy(model), X[:9]), expected)


def assert_answers_or_says(words, engine, model, X, expected=None):
    """Every question has an answer, the expected one if any, or a ValueError with these words."""
    for name, question in QUESTIONS.items():
        try:
            answer = np.asarray(engine.ask(question, model, X))
        except ValueError as error:
            assert re.search(words, str(error)), f"{name}: {error}"
        else:
            assert np.isfinite(answer).all(), name
            if expected is not None:
                assert_same(answer, expected[name], name)


@for_classes(*ENSEMBLES)
def test_without_rows_it_answers_or_names_the_way_out(engines, cls, seed):
    """Blocks, Dask and devices point to an array in memory, a stream to fit."""
    X, y, _ = data(seed)
    for engine in engines(ENGINES[3:], cls):
        words = {"stream": r"\bfit\b", "torch": "(?i)array|host|memory"}.get(engine.name, "array")
        with case(engine.name):
            assert_answers_or_says(words, engine, engine.fit(make(cls, seed), X, y), X[:9])


@for_classes(*ENSEMBLES)
def test_from_another_process_it_answers_or_names_the_way_out(engines, cls, seed):
    X, y = correlated(seed)
    model = make(cls, seed).fit(X, y)
    (memory,) = engines(["memory"])
    unpickled = pickle.loads(pickle.dumps(model))
    assert_answers_or_says(r"\bfit\b", memory, unpickled, X[:9], answers(model, X[:9]))
    scores = cross_validate(clone(model), X, y, cv=2, n_jobs=2, return_estimator=True)
    for estimator in scores["estimator"]:
        assert_answers_or_says(r"\bfit\b", memory, estimator, X[:9])


@pytest.mark.parametrize("fitted", ["memory", "torch"])
@pytest.mark.parametrize("asked", ["memory", "torch"])
@pytest.mark.parametrize("follows", [True, False])
def test_arrays_of_another_library_are_answered_or_refused(engines, fitted, asked, follows, seed):
    """Also where scikit-learn does not follow the library."""
    pytest.importorskip("torch")
    X, y = correlated(seed)
    (training_engine,) = engines([fitted])
    (engine,) = engines([asked])
    (torch,) = engines(["torch"])
    model = training_engine.fit(make(OLSEnsembleRegressor, seed), X, y)
    engine.context = torch.context if follows else nullcontext
    assert_answers_or_says("(?i)array|host|place", engine, model, X[:9])


IN_PLACE_CASES = [
    *(("memory", change) for change in CHANGES_IN_PLACE),
    ("sparse", "X doubled"),
    ("frame", "X doubled"),
]


@for_classes(*ENSEMBLES)
def test_data_changed_in_place_are_noticed_or_do_not_matter(engines, cls, seed):
    """There is an error or the old answer, never another one."""
    cases = list(product(IN_PLACE_CASES, (False, True)))
    if cls is OLSEnsembleRegressorCV:  # half of them: its standard errors take long
        cases = [item for i, item in enumerate(cases) if i % 4 in (1, 2)]
    if cls is AdaptiveOLSEnsembleRegressor:  # one of them, as they take longest
        cases = [(("memory", "X doubled"), True)]
    for (name, change), asked in cases:
        for engine in engines([name]):
            X, y = nearly_equal_columns(seed)
            weights = np.linspace(0.5, 2, 80) if change == "weights reversed" else None
            rows = sp.csc_array(X) if name == "sparse" else engine.new_rows(X.copy())
            original = copy.deepcopy((rows, y, weights))
            expected = answers(make(cls, seed).fit(*original), engine.new_rows(X[:9]))
            model = make(cls, seed).fit(rows, y, weights)
            if asked:
                answers(model, engine.new_rows(X[:9]))
            CHANGES_IN_PLACE[change](rows, y, weights)
            with case(name, change, asked):
                assert_answers_or_says("changed", engine, model, X[:9], expected)


# Pickles, failures, second fits, parameters

EVERY = (*ENSEMBLES, DropoutRegressor)


@for_classes(*EVERY)
def test_pickles_keep_all_attributes(engines, cls, seed):
    """They name no private module, so that modules may move and old pickles still open."""
    X, y, _ = data(seed)
    assert cls.__module__ == "olsen"
    cloudpickle = pytest.importorskip("cloudpickle")
    for engine in engines(cls=cls):
        model = engine.fit(make(cls, seed), X, y)
        file = io.BytesIO()
        joblib.dump(model, file)
        file.seek(0)
        copies = [library.loads(library.dumps(model)) for library in (pickle, cloudpickle)]
        with case(engine.name):
            assert set(re.findall(rb"olsen\._\w+", pickle.dumps(model))) == set()
            for unpickled in (*copies, joblib.load(file)):
                assert_same(attributes(unpickled), attributes(model))
                predictions = engine.predict(unpickled, X)
                assert_array_equal(predictions, engine.predict(model, X))


def test_a_stream_goes_on_after_a_pickle(seed):
    expected = make(OLSEnsembleRegressor, seed)
    pickled = make(OLSEnsembleRegressor, seed)
    X, y, weights = data(seed)
    for block in row_blocks(X, y, weights)():
        expected.partial_fit(*block)
        pickled = pickle.loads(pickle.dumps(pickled.partial_fit(*block)))
    assert_array_equal(pickled.predict(X), expected.predict(X))


@for_classes(*EVERY)
def test_a_failed_refit_changes_nothing(engines, cls, seed):
    """NaN, a wrong parameter, targets of the wrong length: the model predicts as before."""
    X, y, _ = data(seed)
    spoilt = X.copy()
    spoilt[0, 2] = np.nan
    for engine in engines(cls=cls):
        model = engine.fit(make(cls, seed), X, y)
        predictions = engine.predict(model, X)
        names = set(vars(model))
        fit_intercept = model.fit_intercept
        for bad_X, bad_y, settings in (
            (spoilt, y, {}),
            (X, y, {"fit_intercept": "nothing"}),
            (X[:40], y[:39], {}),
        ):
            with case(engine.name, settings, len(bad_y)):
                with pytest.raises(ValueError):
                    engine.fit(model.set_params(**settings), bad_X, bad_y)
                model.set_params(fit_intercept=fit_intercept)
                assert set(vars(model)) == names
                assert_array_equal(engine.predict(model, X), predictions)


def public_attributes(model):
    """Names of public attributes that a fit left."""
    return {name for name in dir(model) if re.fullmatch("[^_].*_", name) and hasattr(model, name)}


@for_classes(*EVERY)
def test_a_second_fit_leaves_nothing_of_the_first(engines, cls, seed):
    """One model goes through all engines and back; names of columns and the advantage of stacking
    do not stay.
    """
    X, y, _ = data(seed)
    route = engines([name for name in ENGINES if name != "stream"], cls)
    fresh = {engine.name: engine.fit(make(cls, seed), X, y) for engine in route}
    model = make(cls, seed)
    previous = "none"
    for engine in (*route, *route[::-1]):
        expected = fresh[engine.name]
        with case(f"{engine.name} after {previous}"):
            engine.fit(model.set_params(**expected.get_params()), X, y)
            assert public_attributes(model) == public_attributes(expected)
            assert_same(attributes(model), attributes(expected))
        if engine.name in ON_ROWS and cls is OLSEnsembleRegressor:
            model.set_params(mixing="stacking")
        engine.fit(model, X + 1, y - X[:, 0])
        previous = engine.name


@for_classes(*EVERY)
def test_parameters_are_left_alone(engines, cls, seed):
    X, y, weights = data(seed)
    lists = {
        OLSEnsembleRegressorCV: {"max_features": [3, 6]},
        AdaptiveOLSEnsembleRegressor: {"schemes": ["ridge", "null"]},
    }
    settings = lists.get(cls, {"max_features": np.linspace(0.3, 0.9, P)})
    for engine in engines(cls=cls):
        with case(engine.name):
            model = make(cls, np.random.RandomState(seed), **settings)
            parameters = model.get_params()
            original = copy.deepcopy(settings)
            fitted_parameters = engine.fit(model, X, y, weights).get_params()
            assert fitted_parameters.keys() == parameters.keys()
            assert all(fitted_parameters[name] is parameters[name] for name in parameters)
            assert_same(settings, original)
            assert public_attributes(clone(model)) == set()
            assert clone(model).get_params().keys() == parameters.keys()
