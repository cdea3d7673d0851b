"""One contract for every engine and estimator: wherever the rows live, a fitted model keeps the
same promises.
"""

import copy
import io
import itertools
import operator
import pickle
import re
from collections.abc import Sized
from contextlib import nullcontext
from importlib.util import find_spec

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_validate

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
    subsets,
)

N, P = 300, 12
ENGINES = ("memory", "sparse", "frame", "blocks", "files", "dask", "torch", "stream")
ON_ROWS = ENGINES[:3]  # where the model can look at its rows again
NEEDS = {"frame": "pandas", "dask": "dask", "torch": "torch"}
SERVES = {
    OLSEnsembleRegressor: ENGINES,
    OLSEnsembleRegressorCV: [name for name in ENGINES if name != "stream"],
    AdaptiveOLSEnsembleRegressor: [name for name in ENGINES if name != "stream"],
    DropoutRegressor: ON_ROWS,
}
TUNED = (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)
ENSEMBLES = (OLSEnsembleRegressor, *TUNED)
OF_ENSEMBLES = (
    "coef_ intercept_ n_features_in_ n_estimators_ scale_ weights_ solver_ n_fallbacks_ inclusion_"
    " feature_subsets_ sample_subsets_"
)
OF_TUNED = f"{OF_ENSEMBLES} best_score_ best_index_ cv_results_ criterion_ cv_prediction_"
ATTRIBUTES = {
    OLSEnsembleRegressor: f"{OF_ENSEMBLES} stacking_advantage_",
    OLSEnsembleRegressorCV: f"{OF_TUNED} max_features_ max_samples_ risk_curve",
    AdaptiveOLSEnsembleRegressor: f"{OF_TUNED} scheme_weights_ selected_ selection_frequency_",
    DropoutRegressor: "coef_ intercept_ inclusion_ n_iter_ loss_curve_ n_features_in_",
}

# The engines


class Engine:
    """One way for rows to reach a model."""

    def __init__(self, name, folder):
        self.name, self.folder, self.step = name, folder, 70

    def context(self):
        return (
            sklearn.config_context(array_api_dispatch=True)
            if self.name == "torch"
            else nullcontext()
        )

    def new(self, X):
        """Rows to predict."""
        if self.name == "frame":
            return pytest.importorskip("pandas").DataFrame(
                X, columns=[f"x{j}" for j in range(X.shape[1])]
            )
        return (
            sp.csr_array(X) if self.name == "sparse" else self.put(X) if self.name == "torch" else X
        )

    def put(self, array):
        """X, y or weights where they are anything but arrays of numpy."""
        if self.name == "dask":
            return pytest.importorskip("dask.array").from_array(
                array, chunks=(self.step, *array.shape[1:])
            )
        if self.name == "torch":
            return pytest.importorskip("torch").asarray(array)
        np.save(path := self.folder / f"{len(list(self.folder.iterdir()))}.npy", array)
        return path

    def batches(self, *arrays):
        there = [a for a in arrays if a is not None]
        return (
            tuple(a[i : i + self.step] for a in there) for i in range(0, len(there[0]), self.step)
        )

    def fit(self, model, X, y, weight=None):
        if self.name == "stream":
            for batch in self.batches(X, y, weight):
                model.partial_fit(*batch)
            return model
        given = (self.new(X), y, weight)
        if self.name == "blocks":
            given = (lambda: self.batches(X, y, weight), None, None)
        elif self.name in ("files", "dask", "torch"):
            given = [None if a is None else self.put(a) for a in (X, y, weight)]
        with self.context():
            return model.fit(*given)

    def ask(self, question, model, X):
        """What the model says about new rows."""
        with self.context():
            return question(model, self.new(X))

    def predict(self, model, X):
        return self.ask(lambda model, new: np.asarray(model.predict(new)), model, X)


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """Engines by their names, or all that serve an estimator; without those whose library is not
    installed.
    """
    monkeypatch.setenv(
        "SCIPY_ARRAY_API", "1"
    )  # scikit-learn asks for it before it follows arrays of torch

    def find(names=ENGINES, cls=OLSEnsembleRegressor):
        there = [
            name
            for name in names
            if name in SERVES[cls] and (name not in NEEDS or find_spec(NEEDS[name]))
        ]
        return [Engine(name, tmp_path) for name in there]

    return find


def of(*classes):
    return pytest.mark.parametrize("cls", classes, ids=lambda cls: cls.__name__)


# Data, models, comparisons


def data(seed, q=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 2 * rng.standard_normal(P)
    Y = X @ rng.standard_normal((P, q or 1)) + 9 * rng.standard_normal(
        (N, q or 1)
    )  # all columns would be too many
    return X, Y if q else Y[:, 0], rng.integers(0, 3, N).astype(float)


def correlated(seed, noise=3.0, twins=False):
    """One factor behind all columns; twins are two that are nearly the same, and some members
    solved from the rows.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 1)) + 0.5 * rng.standard_normal((80, P))
    if twins:
        X[:, 1] = X[:, 0] + 0.001 * X[:, 1]
    return X, X @ rng.standard_normal(P) + noise * rng.standard_normal(80)


def make(cls, seed, **settings):
    if cls is DropoutRegressor:
        return cls(**({"max_features": 0.8, "random_state": seed} | settings))
    return cls(**({"n_estimators": 15, "random_state": seed} | settings))


def told(model):
    """Everything documented that a fitted model tells without its data."""
    found = {
        name: getattr(model, name)
        for name in ATTRIBUTES[type(model)].split()
        if hasattr(model, name)
    }
    if "risk_curve" in found:
        found["risk_curve"] = [model.risk_curve(k) for k in (3, model.n_estimators_, np.inf)]
    return found


QUESTIONS = {
    "interval": lambda model, new: model.predict_interval(new),
    "std": lambda model, new: model.predict(new, return_std=True)[1],
    "members": lambda model, new: model.member_coefs().toarray(),
}


def told_of(model, new):
    """What it tells with its data."""
    return {name: question(model, new) for name, question in QUESTIONS.items()}


def assert_same(got, expected, what=""):
    """Equal up to rounding, whatever it is made of."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), what
        for name in expected:
            assert_same(got[name], expected[name], f"{what} {name}")
    elif (
        isinstance(expected, Sized)
        and not isinstance(expected, str)
        and not hasattr(expected, "dtype")
    ):
        assert len(got) == len(expected), what
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other, what)
    elif np.asarray(expected).dtype.kind in "OU":
        assert np.array_equal(got, expected), f"{what}: {got!r} instead of {expected!r}"
    else:
        np.testing.assert_allclose(
            np.asarray(got), np.asarray(expected), rtol=1e-8, atol=1e-9, err_msg=what
        )


# What is there, and the members behind it


@of(*ENSEMBLES)
def test_every_documented_attribute_is_there(engines, cls, seed):
    """None is missing, whatever the engine, and they fit together."""
    X, y, _ = data(seed)
    for engine in engines(cls=cls):
        with case(engine.name):
            model = engine.fit(make(cls, seed), X, y)
            found = told(model)
            assert [name for name in ATTRIBUTES[cls].split() if name not in found] == []
            others = {
                name
                for other in ENSEMBLES
                if other is not cls
                for name in ATTRIBUTES[other].split()
            }
            assert [
                name for name in others - {*ATTRIBUTES[cls].split()} if hasattr(model, name)
            ] == []
            assert (
                found["coef_"].shape == found["inclusion_"].shape == (P,)
                and found["n_features_in_"] == P
            )
            assert found.get("stacking_advantage_") is None and found["n_estimators_"] == 15
            assert all(
                len(found[name]) == 15
                for name in ("weights_", "feature_subsets_", "sample_subsets_")
            )
            drawn = np.bincount(np.concatenate(list(found["feature_subsets_"])), minlength=P)
            np.testing.assert_allclose(found["inclusion_"], drawn / 15)
            assert hasattr(model, "feature_names_in_") == (engine.name == "frame")


OF_MEMBERS = {  # what each class can be told about its members
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
OF_MEMBERS[OLSEnsembleRegressorCV] = OF_MEMBERS[OLSEnsembleRegressor]


@of(*ENSEMBLES)
def test_subsets_are_those_that_were_used(engines, cls, seed):
    """Plain least squares on the rows and columns that the model names, averaged, is the model."""
    draws_rows = (*ON_ROWS, "torch") if cls is OLSEnsembleRegressor else ON_ROWS
    problems = [(None, False), (None, True), (2, True)]
    for settings, (q, weighted) in itertools.product(OF_MEMBERS[cls], problems):
        for engine in engines(
            ENGINES if settings.get("max_samples", 1.0) == 1 else draws_rows, cls
        ):
            with case(engine.name, settings, q, weighted):
                X, Y, weight = data(seed, q)
                weight = weight if weighted else None
                model = make(cls, seed, **settings)
                if cls is not AdaptiveOLSEnsembleRegressor:
                    model.set_params(scale=1.0)
                engine.fit(model, X, Y, weight)
                targets, columns = Y.reshape(N, -1).T, model.feature_subsets_
                own = (
                    columns if isinstance(columns, list) else [columns] * len(targets)
                )  # targets may have their own
                parts = [
                    member_coefficients(X, y, features, model.sample_subsets_, sample_weight=weight)
                    for y, features in zip(targets, own, strict=True)
                ]
                coef, intercept = (
                    np.squeeze([part[i].mean(axis=0) for part in parts]) for i in (0, 1)
                )
                np.testing.assert_allclose(np.asarray(model.coef_), coef, rtol=0, atol=1e-8)
                np.testing.assert_allclose(
                    np.asarray(model.intercept_), intercept, rtol=1e-8, atol=1e-8
                )


def test_subsets_are_sequences(seed):
    """Negative numbers, slices, numpy integers and IndexError as in a list."""
    X, y, _ = data(seed)
    model = make(OLSEnsembleRegressor, seed, max_samples=0.5).fit(X, y)
    given = subsets.Subsets.from_lists([[0, 2], [1], [0, 1, 2], []], n_items=3)
    for found, length in ((model.feature_subsets_, 15), (model.sample_subsets_, 15), (given, 4)):
        listed = list(found)
        assert len(found) == len(listed) == length
        for at in (-1, -length, np.int64(1), np.int32(-2)):
            np.testing.assert_array_equal(found[at], listed[at])
        assert_same(list(found[:2]), listed[:2])
        assert len(found[:2]) == 2 and len(found[1:]) == length - 1 and len(found[length:]) == 0
        for at in (length, -length - 1, np.int64(length)):
            with pytest.raises(IndexError):
                found[at]


def test_a_mapper_needs_two_arguments_only(seed):
    """As documented: threads(function, n_items), results in order; what is drawn does not depend on
    it.
    """
    calls = []

    def threads(function, n_items):
        calls.append(n_items)
        edges = np.linspace(0, n_items, 4).astype(int).tolist()
        return [function(start, stop) for start, stop in itertools.pairwise(edges)]

    for design, sampling in itertools.product(["independent", "balanced"], ["fixed", "bernoulli"]):
        with case(design, sampling):
            calls.clear()
            settings = {"seed": seed, "size": 500, "sampling": sampling, "design": design}
            expected = subsets.draw(1500, 1200, **settings)
            found = subsets.draw(1500, 1200, threads=threads, **settings)
            np.testing.assert_array_equal(found.indptr, expected.indptr)
            np.testing.assert_array_equal(found.indices, expected.indices)
            assert len(calls) == 1


# A second fit is a cold fit

IN_PLACE = {
    "X doubled": lambda X, y, weight: operator.imul(X, 2),
    "rows of X reversed": lambda X, y, weight: np.copyto(X, X[::-1].copy()),
    "a column moved": lambda X, y, weight: operator.iadd(X[:, 0], 1),
    "y times -3": lambda X, y, weight: operator.imul(y, -3),
    "weights reversed": lambda X, y, weight: np.copyto(weight, weight[::-1].copy()),
}
BETWEEN = ("nothing", "asked", "X doubled", "a column moved", "y times -3")
# standard errors of tuned models repeat their choice, which takes a second: some of the cases for
# them
REFITTED = [
    *((OLSEnsembleRegressor, s, BETWEEN) for s in ({}, {"scale": "auto"}, {"max_samples": 0.5})),
    *(
        (OLSEnsembleRegressor, s, BETWEEN)
        for s in ({"mixing": "stacking"}, {"sampling": "bernoulli"})
    ),
    (OLSEnsembleRegressor, {"design": "independent"}, BETWEEN),
    (OLSEnsembleRegressorCV, {}, BETWEEN),
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
    cold = clone(model).fit(X, y)
    assert_same(told(model), told(cold))
    for name in questions:
        assert_same(QUESTIONS[name](model, X[:9]), QUESTIONS[name](cold, X[:9]), name)


@pytest.mark.parametrize(("cls", "settings", "cases"), REFITTED, ids=str)
def test_a_second_fit_equals_a_cold_one(cls, settings, cases, seed):
    """Everything that the model tells, whether it was asked for intervals or the data changed in
    place in between.
    """
    for between in cases:
        X, y = correlated(seed, twins=True)
        model = make(cls, seed, n_estimators=5, **settings).fit(X, y)
        if between == "asked":
            told_of(model, X[:9])
        elif between in IN_PLACE:
            IN_PLACE[between](X, y, None)
        with case(between):
            assert_cold(model.set_params(n_estimators=60).fit(X, y), X, y)


@of(*ENSEMBLES)
def test_a_changed_parameter_is_heeded(cls, seed):
    plain = cls is OLSEnsembleRegressor
    settings = {"max_features": 0.8} if plain else {}
    X, y = correlated(seed, twins=True)
    for name, value in CHANGED.items():
        if not hasattr(cls(), name):
            continue
        model = make(cls, seed, n_estimators=5, **settings).fit(X, y)
        change = {name: 0.3 if plain and name == "max_features" else value}
        with case(change):
            assert_cold(
                model.set_params(n_estimators=9, **change).fit(X, y), X, y, ["interval", "members"]
            )


def test_fewer_members_than_there_are_and_as_many_and_one_column_or_all(seed):
    X, y = correlated(seed)
    model = make(OLSEnsembleRegressor, seed).fit(X, y)
    before = model.coef_.copy()
    np.testing.assert_array_equal(model.fit(X, y).coef_, before)
    assert_cold(model.set_params(n_estimators=3).fit(X, y), X, y)
    for size in (1, 1.0, 1):
        assert_cold(model.set_params(max_features=size).fit(X, y), X, y)


# Tuning


def test_the_size_given_is_the_size(seed):
    """Also where all twelve columns would do far better."""
    X, y = correlated(seed, noise=0.1)
    model = make(OLSEnsembleRegressorCV, seed, n_estimators=60, max_features=[2]).fit(X, y)
    assert model.max_features_ == 2 and model.cv_results_["param_max_features"].tolist() == [2]
    assert [len(columns) for columns in model.feature_subsets_] == [2] * 60
    expected = make(
        OLSEnsembleRegressorCV, seed, sampling="determinantal", max_features=[2, 0.25]
    ).fit(X, y)
    np.testing.assert_allclose(expected.cv_results_["param_max_features"], [2, 3], rtol=1e-9)
    assert expected.max_features_ == pytest.approx(3) and expected.inclusion_.shape == (P,)


@of(*TUNED)
def test_groups_are_used_and_other_arguments_refused(cls, seed):
    """What `fit` is told beyond X, y and weights is never dropped silently."""
    X, y = correlated(seed)
    groups = np.arange(80) // 4
    grouped = make(cls, seed, cv=GroupKFold(4)).fit(X, y, groups=groups)
    assert_same(
        told(grouped), told(make(cls, seed, cv=list(GroupKFold(4).split(X, y, groups))).fit(X, y))
    )
    for cv in (None, GroupKFold(4)):
        with pytest.raises(TypeError, match="foo"):
            make(cls, seed, cv=cv).fit(X, y, foo=1)


# What is drawn


@of(*ENSEMBLES)
def test_a_random_state_gives_one_number(engines, cls, seed):
    """It is asked once a fit, and the fit is that of the number it gave."""
    X, y, _ = data(seed)
    for engine in engines(cls=cls):
        with case(engine.name):
            used, expected = np.random.RandomState(seed), np.random.RandomState(seed)
            model = engine.fit(make(cls, used), X, y)
            number = int(expected.randint(np.iinfo(np.int32).max))
            assert_same(used.get_state(), expected.get_state())
            assert_same(told(model), told(engine.fit(make(cls, number), X, y)))


# Intervals and standard errors


@of(*ENSEMBLES)
def test_copies_know_how_sure_they_are(engines, cls, seed):
    X, y = correlated(seed)
    for engine in engines(ON_ROWS, cls):
        with case(engine.name):
            model = engine.fit(make(cls, seed), X, y)
            expected = engine.ask(told_of, model, X[:9])
            assert np.isfinite(expected["interval"]).all() and (expected["std"] > 0).all()
            for again in (copy.copy(model), copy.deepcopy(model))[
                : 2 if engine.name == "memory" else 1
            ]:
                assert_same(engine.ask(told_of, again, X[:9]), expected)


def assert_answers_or_says(words, engine, model, X, expected=None):
    """An answer, the expected one if any, or a ValueError that holds these words."""
    for name, question in QUESTIONS.items():
        try:
            found = np.asarray(engine.ask(question, model, X))
        except ValueError as error:
            assert re.search(words, str(error)), f"{name}: {error}"
        else:
            assert np.isfinite(found).all(), name
            assert_same(found, found if expected is None else expected[name], name)


@of(*ENSEMBLES)
def test_without_rows_it_answers_or_says_what_to_do(engines, cls, seed):
    """Blocks, Dask and devices point to an array in memory, a stream to fit."""
    X, y, _ = data(seed)
    for engine in engines(ENGINES[3:], cls):
        words = {"stream": r"\bfit\b", "torch": "(?i)array|host|memory"}.get(engine.name, "array")
        with case(engine.name):
            assert_answers_or_says(words, engine, engine.fit(make(cls, seed), X, y), X[:9])


@of(*ENSEMBLES)
def test_from_another_process_it_answers_or_says_what_to_do(engines, cls, seed):
    X, y = correlated(seed)
    model, (memory,) = make(cls, seed).fit(X, y), engines(["memory"])
    assert_answers_or_says(
        r"\bfit\b", memory, pickle.loads(pickle.dumps(model)), X[:9], told_of(model, X[:9])
    )
    for again in cross_validate(clone(model), X, y, cv=2, n_jobs=2, return_estimator=True)[
        "estimator"
    ]:
        assert_answers_or_says(r"\bfit\b", memory, again, X[:9])


def test_arrays_of_another_library_are_answered_or_refused(engines, seed):
    """Whichever library the fit and the question come from, whether scikit-learn follows it or not."""
    pytest.importorskip("torch")
    X, y = correlated(seed)
    for fitted, given, follows in itertools.product(
        ("memory", "torch"), ("memory", "torch"), (True, False)
    ):
        (there,), (engine,), (torch,) = engines([fitted]), engines([given]), engines(["torch"])
        model = there.fit(make(OLSEnsembleRegressor, seed), X, y)
        engine.context = torch.context if follows else nullcontext
        with case(fitted, given, follows):
            assert_answers_or_says("(?i)array|host|place", engine, model, X[:9])


@of(*ENSEMBLES)
def test_data_changed_in_place_are_noticed_or_do_not_matter(engines, cls, seed):
    """Never different numbers without a word."""
    changes = [
        *(("memory", change) for change in IN_PLACE),
        ("sparse", "X doubled"),
        ("frame", "X doubled"),
    ]
    for at, ((name, change), asked) in enumerate(itertools.product(changes, (False, True))):
        if cls in TUNED and at % 4 in (0, 3):
            continue  # half of them: their standard errors take long
        for engine in engines([name]):
            X, y = correlated(seed, twins=True)
            weight = np.linspace(0.5, 2, 80) if change == "weights reversed" else None
            if cls is AdaptiveOLSEnsembleRegressor and (name, change, asked) != (
                "memory",
                "X doubled",
                True,
            ):
                continue  # one of them, as they take longest
            rows = sp.csc_array(X) if name == "sparse" else engine.new(X.copy())
            expected = told_of(
                make(cls, seed).fit(*copy.deepcopy((rows, y, weight))), engine.new(X[:9])
            )
            model = make(cls, seed).fit(rows, y, weight)
            if asked:
                told_of(model, engine.new(X[:9]))
            IN_PLACE[change](rows, y, weight)
            with case(name, change, asked):
                assert_answers_or_says("changed", engine, model, X[:9], expected)


# Pickles, failures, second fits, parameters

EVERY = (*ENSEMBLES, DropoutRegressor)


@of(*EVERY)
def test_pickles_keep_what_the_model_tells(engines, cls, seed):
    """And name no private module, so that modules may move and old pickles still open."""
    X, y, _ = data(seed)
    assert cls.__module__ == "olsen"
    for engine in engines(cls=cls):
        model = engine.fit(make(cls, seed), X, y)
        copies = [
            library.loads(library.dumps(model))
            for library in (pickle, pytest.importorskip("cloudpickle"))
        ]
        joblib.dump(model, file := io.BytesIO())
        file.seek(0)
        with case(engine.name):
            assert set(re.findall(rb"olsen\._\w+", pickle.dumps(model))) == set()
            for again in (*copies, joblib.load(file)):
                assert_same(told(again), told(model))
                np.testing.assert_array_equal(engine.predict(again, X), engine.predict(model, X))


def test_a_stream_goes_on_after_a_pickle(seed):
    X, y, weight = data(seed)
    whole, parts = make(OLSEnsembleRegressor, seed), make(OLSEnsembleRegressor, seed)
    for rows in (slice(0, 50), slice(50, 120), slice(120, N)):
        whole.partial_fit(X[rows], y[rows], weight[rows])
        parts = pickle.loads(pickle.dumps(parts.partial_fit(X[rows], y[rows], weight[rows])))
    np.testing.assert_array_equal(parts.predict(X), whole.predict(X))


@of(*EVERY)
def test_a_failed_refit_changes_nothing(engines, cls, seed):
    """NaN, a wrong parameter, targets of the wrong length: the model predicts as before."""
    X, y, _ = data(seed)
    spoilt = X.copy()
    spoilt[0, 2] = np.nan
    for engine in engines(cls=cls):
        model = engine.fit(make(cls, seed), X, y)
        before, names, fit_intercept = (
            engine.predict(model, X),
            set(vars(model)),
            model.fit_intercept,
        )
        for bad, settings in (
            ((spoilt, y), {}),
            ((X, y), {"fit_intercept": "nothing"}),
            ((X[:40], y[:39]), {}),
        ):
            with case(engine.name, settings, len(bad[1])):
                with pytest.raises(ValueError):
                    engine.fit(model.set_params(**settings), *bad)
                model.set_params(fit_intercept=fit_intercept)
                assert set(vars(model)) == names
                np.testing.assert_array_equal(engine.predict(model, X), before)


def public(model):
    """Names of what a fit left to be seen."""
    return {name for name in dir(model) if re.fullmatch("[^_].*_", name) and hasattr(model, name)}


@of(*EVERY)
def test_a_second_fit_leaves_nothing_of_the_first(engines, cls, seed):
    """One model goes through all engines, there and back; names of columns and the advantage of
    stacking included.
    """
    X, y, _ = data(seed)
    there = engines([name for name in ENGINES if name != "stream"], cls)
    fresh = {engine.name: engine.fit(make(cls, seed), X, y) for engine in there}
    model, before = make(cls, seed), "nothing"
    for engine in (*there, *there[::-1]):
        with case(f"{before} before {engine.name}"):
            engine.fit(model.set_params(**fresh[engine.name].get_params()), X, y)
            assert public(model) == public(fresh[engine.name])
            assert_same(told(model), told(fresh[engine.name]))
        if engine.name in ON_ROWS and cls is OLSEnsembleRegressor:
            engine.fit(model.set_params(mixing="stacking"), X + 1, y - X[:, 0])
        else:
            engine.fit(model, X + 1, y - X[:, 0])
        before = engine.name


@of(*EVERY)
def test_parameters_are_left_alone(engines, cls, seed):
    X, y, weight = data(seed)
    lists = {
        OLSEnsembleRegressorCV: {"max_features": [3, 6]},
        AdaptiveOLSEnsembleRegressor: {"schemes": ["ridge", "null"]},
    }
    settings = lists.get(cls, {"max_features": np.linspace(0.3, 0.9, P)})
    for engine in engines(cls=cls):
        with case(engine.name):
            model = make(cls, np.random.RandomState(seed), **settings)
            before, unchanged = model.get_params(), copy.deepcopy(settings)
            after = engine.fit(model, X, y, weight).get_params()
            assert after.keys() == before.keys() and all(
                after[name] is before[name] for name in before
            )
            assert_same(settings, unchanged)
            assert (
                public(clone(model)) == set() and clone(model).get_params().keys() == before.keys()
            )
