"""Training data or parameters that change after a fit: noticed, or without effect."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from engines import row_blocks
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from random_problems import correlated_problem

ENSEMBLES = (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor)
QUESTIONS = (  # what needs the training rows
    lambda model, X: model.coef_std(),
    lambda model, X: model.coef_interval(),
    lambda model, X: model.predict_interval(X[:2]),
    lambda model, X: model.predict_interval(X[:2], method="cv+"),
    lambda model, X: model.predict(X[:2], return_std=True),
    lambda model, X: model.members_needed(),
)
QUESTIONS_ABOUT_MEMBERS = (
    lambda model, X: model.member_coefs(2),
    lambda model, X: model.summary(),
)


def assert_refused(model, X, message, questions=QUESTIONS):
    for question in questions:
        with pytest.raises(ValueError, match=message):
            question(model, X)


def table_with_a_large_unit(kind, seed):
    """X whose third column is 1e9 times larger than the others, in several sizes and containers."""
    rng = np.random.default_rng(seed)
    n_rows = 30_000 if "many" in kind else 60
    X = rng.standard_normal((n_rows, 4)) * [1.0, 1.0, 1e9, 1.0]
    y = X @ [1.0, -1.0, 1e-9, 0.5] + rng.standard_normal(n_rows)
    if "float32" in kind:
        return X.astype(np.float32), y
    return sp.csc_array(X) if "sparse" in kind else X, y


@pytest.mark.parametrize(
    "kind", ["few rows", "many rows", "few sparse", "many sparse", "few float32", "many float32"]
)
@pytest.mark.parametrize(("column", "factor"), [(0, 1000.0), (1, -1.0), (2, 2.0), (3, 1.0001)])
def test_a_change_of_any_column_is_noticed_whatever_the_units(kind, column, factor, seed):
    X, y = table_with_a_large_unit(kind, seed)
    model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
    if sp.issparse(X):
        X.data[X.indptr[column] : X.indptr[column + 1]] *= factor
    else:
        X[:, column] *= factor
    assert_refused(model, X, "changed in place", [*QUESTIONS, *QUESTIONS_ABOUT_MEMBERS])


@pytest.mark.parametrize("kind", ["few rows", "many rows"])
def test_a_change_of_one_entry_or_of_the_order_of_rows_is_noticed(kind, seed):
    X, y = table_with_a_large_unit(kind, seed)
    model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
    original = X.copy()
    changed_entry = X.copy()
    changed_entry[7, 0] += 0.5
    for changed in (changed_entry, original[::-1]):
        X[:] = changed
        assert_refused(model, X, "changed in place", QUESTIONS_ABOUT_MEMBERS)
    X[:] = original
    assert model.member_coefs().shape == (5, 4)


@pytest.mark.parametrize("cls", ENSEMBLES)
def test_a_summary_says_that_rows_were_changed(cls, seed):
    """Also where standard errors were computed before the change."""
    X, y = correlated_problem(seed, n=40, p=4)
    model = cls(random_state=seed).fit(X, y)
    summary = model.summary()
    X *= 1000
    for question in (model.summary, lambda: summary.coefficients["member_mean"]):
        with pytest.raises(ValueError, match="changed in place"):
            question()
    X[:] = correlated_problem(seed, n=40, p=4)[0]
    assert str(model.summary()) == str(summary)


PARAMETERS_SET_LATER = {
    OLSEnsembleRegressor: {
        "n_estimators": 3,
        "max_features": 0.25,
        "max_samples": 0.5,
        "sampling": "bernoulli",
        "design": "independent",
        "scale": 0.1,
        "fit_intercept": False,
        "solver": "orthogonal",
    },
    OLSEnsembleRegressorCV: {
        "n_estimators": 3,
        "max_features": [1],
        "max_samples": 0.5,
        "sampling": "bernoulli",
        "design": "independent",
        "scale": 0.1,
        "fit_intercept": False,
        "cv": "gcv",
    },
    AdaptiveOLSEnsembleRegressor: {
        "n_estimators": 3,
        "schemes": ["null"],
        "fit_intercept": False,
        "cv": 2,
    },
}


def uncertainty(model, X):
    """Quantities that are computed from a fit when they are asked for."""
    return [
        model.coef_std(),
        model.predict(X[:3], return_std=True)[1],
        model.predict_interval(X[:3]),
        model.member_coefs(5).toarray(),
        model.summary().coefficients["effect"].to_numpy(),
        model.to_linear_regression().fit_intercept,
    ]


@pytest.mark.parametrize("cls", ENSEMBLES)
def test_parameters_set_after_a_fit_do_not_change_it(cls, seed):
    X, y = correlated_problem(seed, n=40, p=4)
    model = cls(random_state=seed).fit(X, y)
    expected = uncertainty(cls(random_state=seed).fit(X, y), X)
    changed = copy.deepcopy(model).set_params(**PARAMETERS_SET_LATER[cls])
    # the changed copy comes first: it shares results with the original
    for fitted in (changed, model, pickle.loads(pickle.dumps(changed))):
        for quantity, expected_quantity in zip(uncertainty(fitted, X), expected, strict=True):
            assert_allclose(quantity, expected_quantity, rtol=1e-9, atol=1e-12)
    if cls is AdaptiveOLSEnsembleRegressor:
        changed.set_params(schemes=["ridge", "power"])
    assert np.abs(changed.fit(X, y).coef_std() - expected[0]).max() > 1e-6  # a new fit heeds them


def test_an_exhausted_iterator_cannot_be_read_again(seed):
    X, y = correlated_problem(seed, n=300)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(row_blocks(X, y)(), None)
    assert_refused(model, X, "iterator")


@pytest.mark.parametrize(
    ("change", "question", "message"),
    [
        (lambda X, y: (X[:200], y[:200]), "predict_interval", r"300 rows.*200"),
        (lambda X, y: (X, 50 * y + 1000), "predict_interval", "other coefficients"),
        (lambda X, y: (X[::-1] ** 2, y), "coef_std", "other coefficients"),
    ],
    ids=["fewer rows", "other targets", "other rows"],
)
def test_blocks_that_differ_when_read_again_are_noticed(change, question, message, seed):
    X, y = correlated_problem(seed, n=300)
    rows = [(X, y)]
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(
        lambda: row_blocks(*rows[-1])(), None
    )
    rows.append(change(X, y))
    with pytest.raises(ValueError, match=message):
        getattr(model, question)(*([X] if question == "predict_interval" else []))


def test_pickles_answer_if_they_hold_the_rows(seed):
    X, y = correlated_problem(seed)
    model = OLSEnsembleRegressor(60, 5, random_state=seed).fit(X, y)
    unpickled = pickle.loads(pickle.dumps(model))
    for question in QUESTIONS:
        assert_allclose(question(unpickled, X), question(model, X), rtol=1e-9)
    without_rows = pickle.loads(pickle.dumps(model.set_params(keep_rows=False)))
    assert_refused(without_rows, X, "fit")
    with pytest.raises(ValueError, match="fit"):
        without_rows.predict_interval(X, 0.9, "normal")
