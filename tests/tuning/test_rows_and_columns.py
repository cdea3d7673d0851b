"""Rows and columns tuned together: the criterion against refits without each row, and the choice."""

import pickle
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression

from loops import case
from olsen import OLSEnsembleRegressorCV, subsets
from olsen._tuning import risk_curves, selection
from random_problems import gaussian, random_problem

ROWS = [12, 0.5, 1.0]  # of 16 rows
SIZES = [2, 3, 5]


def path_members(n, p, n_samples):
    """Orders of the columns, and rows, of the 24 members of three batches, from the constant seed.

    Each batch has four permutations of the columns, every one followed by its reverse, and four of
    the rows, dealt out so that some pairs share a group of columns, of rows, or of both.
    """
    columns = subsets.permutations(p, 12, seed=selection.SEED, stream=2)
    rows = subsets.permutations(n, 12, seed=selection.SEED, stream=3)
    members = []
    for batch in range(3):
        dealt = [(0, 1), (0, -1), (1, 1), (2, 1), (1, -1), (2, -1), (3, 1), (3, -1)]
        for i, (number, direction) in enumerate(dealt):
            order = columns[4 * batch + i // 2][:: (-1) ** i]
            members.append((order, rows[4 * batch + number][::direction][:n_samples]))
    return members


def residuals_without_each_row(X, y, columns, rows):
    """A row is predicted by the member fitted without it, with scikit-learn."""
    out = np.empty(len(y))
    for l in range(len(y)):
        others = rows[rows != l]
        model = LinearRegression().fit(X[np.ix_(others, columns)], y[others])
        out[l] = y[l] - model.predict(X[[l]][:, columns])[0]
    return out


def kind_of_path_members(i, j):
    """Whether two different members of the paths share a group of columns, and a group of rows."""
    in_one_batch = i // 8 == j // 8
    rows = in_one_batch and {i % 8, j % 8} in ({0, 1}, {2, 4}, {3, 5}, {6, 7})
    return i // 2 == j // 2, rows


def brute_force(X, y, n_samples, size):
    """Mean predictions of the rows, and errors of 3 and 20 balanced members from products of all
    pairs.

    A group of members does not do better than infinitely many: that bounds the mean product of its
    pairs, which few pairs estimate.
    """
    n, p = X.shape
    members = path_members(n, p, n_samples)
    E = np.array([residuals_without_each_row(X, y, S[:size], T) for S, T in members])
    products = {}
    for i, j in product(range(24), repeat=2):
        same_columns, same_rows = kind_of_path_members(i, j)
        kind = "member" if i == j else (same_columns, same_rows and n_samples < n)
        products.setdefault(kind, []).append(E[i] @ E[j] / n)
    mean = {kind: np.mean(values) for kind, values in products.items()}
    groups = subsets.group_size(np.array([size / p, n_samples / n]))
    return y - E.mean(axis=0), [error_of(k, mean, groups) for k in (3, 20)]


def error_of(k, mean, groups):
    """Error of k members: the mean product of all their pairs."""
    limit = mean[False, False]
    risk = 0.0
    for i, j in product(range(k), repeat=2):
        kind = tuple((i // groups == j // groups).tolist())
        product_of_pair = mean["member" if i == j else kind]
        if i != j and any(kind):
            floor = limit - (mean["member"] - limit) / (min(groups[list(kind)]) - 1)
            product_of_pair = max(product_of_pair, floor)
        risk += product_of_pair / k**2
    return risk


def test_the_criterion_is_that_of_refits_without_each_row(seed, monkeypatch):
    monkeypatch.setattr(risk_curves, "MAX_RELATIVE_MC_ERROR", np.inf)  # three batches
    X, y, _ = gaussian(seed, n=16, p=7)
    pairs = None
    for position, k in enumerate((3, 20)):
        model = OLSEnsembleRegressorCV(k, SIZES, max_samples=ROWS, scale=1.0, random_state=0)
        results = model.fit(X, y).cv_results_
        if pairs is None:
            pairs = list(
                zip(results["param_max_samples"], results["param_max_features"], strict=True)
            )
            expected = [brute_force(X, y, rows, size) for rows, size in pairs]
        risks = np.array([errors[position] for _, errors in expected])
        with case(k):
            assert_allclose(-results["mean_test_score"], risks, rtol=1e-8)
            best = int(np.argmin(risks))
            assert model.best_index_ == best
            assert (model.max_samples_, model.max_features_) == pairs[best]
            assert_allclose(model.cv_prediction_, expected[best][0], rtol=1e-8)


def test_one_candidate_is_the_number_of_rows_as_it_is(seed):
    """In every criterion and sampling, for two targets and weights."""
    X, Y = random_problem(seed, q=2)
    weight = np.random.default_rng(seed).uniform(0, 2, len(X))
    for settings in ({}, {"cv": "gcv"}, {"cv": 4}, {"sampling": "bernoulli"}, {"cv": "oob"}):
        rows = 40 if settings.get("cv") == "oob" else 1.0
        single, listed = (
            OLSEnsembleRegressorCV(max_samples=max_samples, random_state=seed, **settings)
            for max_samples in (rows, [rows])
        )
        single.fit(X, Y, weight)
        listed.fit(X, Y, weight)
        with case(settings):
            assert_array_equal(listed.coef_, single.coef_)
            assert listed.max_samples_ == single.max_samples_ == (40 if rows == 40 else len(X))
            if rows == 40:
                assert all(len(rows_of_member) == 40 for rows_of_member in single.sample_subsets_)
            for name, values in single.cv_results_.items():
                assert_array_equal(listed.cv_results_[name], values)


def test_the_order_of_the_candidates_and_pickles_change_nothing(seed):
    X, y, _ = gaussian(seed, n=30, p=12)
    model = OLSEnsembleRegressorCV(30, max_samples=[0.4, 0.6, 30], random_state=seed).fit(X, y)
    other = OLSEnsembleRegressorCV(30, max_samples=[1.0, 0.4, 18], random_state=seed).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    for same in (other, copy):
        assert_array_equal(same.predict(X), model.predict(X))
        assert_array_equal(same.risk_curve(7), model.risk_curve(7))
        assert (same.max_samples_, same.best_index_) == (model.max_samples_, model.best_index_)
    chosen = model.cv_results_["param_max_samples"] == model.max_samples_
    errors = -model.cv_results_["mean_test_score"][chosen]
    assert_allclose(model.risk_curve(30), errors)
    assert model.best_index_ == np.argmax(model.cv_results_["mean_test_score"])
    assert np.all(np.isfinite(model.coef_std()))
    shape = model.max_samples_, model.max_features_
    assert {len(rows) for rows in model.sample_subsets_} == {shape[0]}
    assert {len(columns) for columns in model.feature_subsets_} == {shape[1]}


def test_the_choice_does_not_depend_on_the_random_state_or_on_units(seed):
    X, Y = random_problem(seed, q=2)
    weight = np.random.default_rng(seed).uniform(0, 2, len(X))
    settings = {"n_estimators": 40, "max_samples": [0.4, 0.7, 1.0]}
    model = OLSEnsembleRegressorCV(random_state=0, **settings).fit(X, Y, weight)
    for random_state, units, n_jobs in [(1, 1.0, None), (None, 1e3, None), (5, 1.0, 2)]:
        other = OLSEnsembleRegressorCV(random_state=random_state, n_jobs=n_jobs, **settings)
        other.fit(X * units, Y, weight)
        with case(random_state, units, n_jobs):
            assert other.best_index_ == model.best_index_
            assert (other.max_samples_, other.max_features_) == (
                model.max_samples_,
                model.max_features_,
            )
            for name in ("mean_test_score", "mean_test_score_infinity", "std_test_score"):
                assert_allclose(other.cv_results_[name], model.cv_results_[name], rtol=1e-7)


def test_candidates_that_cannot_be_compared_are_refused():
    X, y, _ = gaussian(0, n=40, p=20)
    many_rows = np.tile(X, (30, 1)), np.tile(y, 30)
    blocks = (lambda: iter([many_rows])), None
    refused = [
        ({"max_samples": []}, (X, y), "max_samples is an empty list"),
        ({"max_samples": [0.5, 41]}, (X, y), r"max_samples=41.*40"),
        ({"max_samples": [0.5, 1]}, (X, y), r"members of 1 rows.*Leave"),
        ({"max_samples": [0.5, 1.0], "cv": "oob"}, (X, y), r"cv='oob'.*all 40 rows"),
        ({"max_samples": [0.5, 1.0], "sampling": "determinantal"}, (X, y), "see all rows"),
        ({"max_samples": [0.5, 1.0]}, blocks, "array in memory"),
    ]
    for settings, data, message in refused:
        with case(settings), pytest.raises(ValueError, match=message):
            OLSEnsembleRegressorCV(5, random_state=0, **settings).fit(*data)
