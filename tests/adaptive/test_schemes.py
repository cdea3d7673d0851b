"""The sampling schemes of the adaptive model, against ridge regression and the lasso of
scikit-learn.
"""

import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.linear_model import Lasso, MultiTaskLasso, Ridge, RidgeCV
from sklearn.model_selection import KFold

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor
from olsen._data.modes import away_from_mode, away_from_mode_by_moments
from olsen._data.rows import RowData
from olsen._data.standardised import StandardisedMoments, StandardisedRows
from olsen._execution.threads import Threads
from olsen._members.penalised import (
    NormalEquations,
    group_lasso_path,
    inclusion,
    lasso_penalty,
    penalty_unit,
    solve,
    solve_members,
)
from olsen._tuning import combining
from olsen.subsets import Subsets
from olsen.subsets._design import schemes_of_members
from random_problems import nearly_equal_columns


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6), st.integers(1, 400))
def test_every_scheme_gets_members_in_proportion_to_its_weight(weights, k):
    shares = np.array(weights) / np.sum(weights)
    scheme_of_member = schemes_of_members(shares, k)
    deviation = np.abs(np.bincount(scheme_of_member, minlength=len(shares)) - shares * k)
    assert len(scheme_of_member) == k and np.all(
        deviation <= 0.5 + len(shares) * shares / 2 + 1e-9 * k
    )
    assert_array_equal(schemes_of_members(shares, k + 50)[:k], scheme_of_member)


def standardised(seed, n, p, q=1, nonzero=4):
    """Standardised columns, targets, and the two forms of fits: from moments and from rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.7 * rng.standard_normal((n, 1))
    X = np.asfortranarray((X - X.mean(axis=0)) / X.std(axis=0))
    Y = X[:, :nonzero] @ rng.standard_normal((nonzero, q)) + 0.5 * rng.standard_normal((n, q))
    Y -= Y.mean(axis=0)
    return (
        X,
        Y,
        [
            StandardisedMoments(X.T @ X, X.T @ Y, np.sum(X * X, axis=0), n, float(n)),
            StandardisedRows(X, Y, np.ones(n), null_rank=1),
        ],
    )


def test_prior_variances_are_ridge_regression_on_scaled_columns(seed):
    for n, p in ((60, 20), (30, 80), (40, 300)):
        X, Y, both_forms = standardised(seed, n, p, q=2)
        variances = np.random.default_rng(seed).random(p) * (np.arange(p) % 3 > 0)
        unit = np.sum(variances)  # squares of standardised columns, over the rows, are one
        Z = X * np.sqrt(variances)
        penalties = np.array([0.03, 2.0])
        hat = Z.T @ np.linalg.solve(Z @ Z.T + 0.03 * unit * np.eye(n), Z)
        for fits in both_forms:
            with case(n, p, type(fits)):
                for coef, penalty in zip(
                    solve(NormalEquations.of(fits, variances), penalties * unit),
                    penalties,
                    strict=True,
                ):
                    expected = (
                        Ridge(penalty * unit, fit_intercept=False).fit(Z, Y).coef_.T
                        * np.sqrt(variances)[:, None]
                    )
                    assert_allclose(coef, expected, rtol=1e-5, atol=1e-6)
                assert_allclose(inclusion(fits, variances, 0.03), np.diagonal(hat), atol=1e-6)


def test_the_lasso_is_that_of_scikit_learn(seed):
    shares = np.geomspace(1, 0.02, 9)
    for (n, p), q in product(((60, 20), (30, 80)), (1, 3)):
        X, Y, both_forms = standardised(seed, n, p, q)
        top = np.linalg.norm(X.T @ Y, axis=1).max() / n
        for fits, i in product(both_forms, (0, 2, -1)):
            path = group_lasso_path(fits, shares)
            options = {
                "alpha": shares[len(path) - 1 if i < 0 else i] * top,
                "fit_intercept": False,
                "tol": 1e-10,
            }
            peer = (Lasso if q == 1 else MultiTaskLasso)(**options, max_iter=100_000).fit(
                X, Y[:, 0] if q == 1 else Y
            )
            with case(n, p, q, i, type(fits)):
                assert 3 <= len(path) <= len(shares) and path.shape[1:] == (p, q)
                assert_allclose(path[i], peer.coef_.reshape(q, p).T, atol=0.01 * np.abs(path).max())


@pytest.mark.parametrize("centred", [True, False])
def test_a_subset_of_rows_is_centred_by_its_means(centred, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 50))
    Y = rng.standard_normal((20, 2))
    w = rng.random(20) + 0.1
    rows = np.arange(3, 17)

    def signal(rows):
        root = np.sqrt(w[rows])[:, None]
        x = X[rows]
        y = Y[rows]
        if centred:
            x = x - np.average(x, axis=0, weights=w[rows])
            y = y - np.average(y, axis=0, weights=w[rows])
        return StandardisedRows(np.asfortranarray(root * x), root * y, root[:, 0], centred)

    part = signal(np.arange(20)).take(rows)
    alone = signal(rows)
    assert_allclose(part.A, alone.A, atol=1e-12)
    assert_allclose(part.B, alone.B, atol=1e-12)
    assert_allclose(part.products, alone.A @ alone.A.T, atol=1e-12)
    assert part.weight == pytest.approx(w[rows].sum())


def test_the_lasso_is_a_fixed_point_of_penalised_least_squares(seed):
    """Penalised least squares with prior variances |b_j| of the lasso's coefficients gives the
    coefficients again.
    """
    X, Y, both_forms = standardised(seed, 80, 30, q=2)
    top = np.linalg.norm(X.T @ Y, axis=1).max() / 80
    b = (
        MultiTaskLasso(0.1 * top, fit_intercept=False, tol=1e-12, max_iter=100_000)
        .fit(X, Y)
        .coef_.T
    )
    norms = np.linalg.norm(b, axis=1)
    for fits in both_forms:
        variances = norms / norms.max()
        penalty = lasso_penalty(fits, b, 0.1) * penalty_unit(fits, variances)
        refitted = solve(NormalEquations.of(fits, variances), np.array([penalty]))[0]
        assert_allclose(refitted, b, atol=1e-5 * np.abs(b).max())


def test_weights_of_least_error_are_those_of_a_general_optimiser(seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((5, 5)) + 2
    S = root @ root.T
    weights = combining.simplex_weights(root[None])[0]
    free = minimize(
        lambda w: w @ S @ w,
        np.full(5, 0.2),
        jac=lambda w: 2 * S @ w,
        bounds=[(0, 1)] * 5,
        method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1)
    assert weights @ S @ weights <= free.fun * (1 + 1e-4)


def test_the_error_of_uniform_members_is_never_extrapolated_to_zero():
    """One row far out makes single members so wild that the error of infinitely many came out below
    zero.

    Uniform members then had all the weight, an estimated error of exactly zero and normal intervals
    of width zero.
    """
    for n, seed in ((200, 15), (200, 28), (60, 17)):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, 30))
        y = X[:, 0] + rng.standard_normal(n)
        X[0] = 1e4 * rng.standard_normal(30)
        model = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
        with case(n, seed):
            assert -model.best_score_ > 0.5  # the noise alone has variance one
            low, high = model.predict_interval(X[1:3], method="normal").T
            assert np.all(high - low > 1)


@pytest.mark.parametrize("n_estimators", [np.inf, 1000])
def test_nearly_equal_columns_leave_the_result_to_no_seed(n_estimators):
    """Columns that differ by 1e-5, in some new rows by far more, had R2 between -21 and .84 for
    twelve seeds: a single member with coefficients in the thousands decided.
    """
    for number, schemes in ((2, ["uniform", "null"]), (4, ["uniform", "null"]), (2, "auto")):
        X, y = nearly_equal_columns(number)
        scores = [
            AdaptiveOLSEnsembleRegressor(schemes, n_estimators=n_estimators, random_state=seed)
            .fit(X[:43], y[:43])
            .score(X[43:], y[43:])
            for seed in range(12 if np.isinf(n_estimators) else 4)
        ]
        with case(number, schemes):
            assert min(scores) > 0.8 and max(scores) - min(scores) < 0.02


@pytest.mark.parametrize("form", ["moments", "rows"])
def test_uniform_members_are_ridge_regression_on_their_columns(form, seed):
    """The penalty of a column is a fraction of its squared norm; constant columns have zero."""
    X, Y, _ = standardised(seed, 60, 20, q=2)
    scale = np.append(np.ones(19), 0.0)
    A = X * scale
    if form == "moments":
        fits = StandardisedMoments(A.T @ A, A.T @ Y, np.sum(A * A, axis=0), 60, 60.0)
    else:
        fits = StandardisedRows(np.asfortranarray(A), Y, np.ones(60), null_rank=1)
    features = Subsets.stack([np.array([1, 4, 19]), np.arange(3, 15)], 20)
    values = solve_members(fits, features, 0.1, Threads())
    for S, coef in zip(features, np.split(values, [3]), strict=True):
        expected = Ridge(0.1 * 60, fit_intercept=False).fit(A[:, S], Y).coef_.T
        assert_allclose(coef, expected, atol=1e-10)


def fingerprints(seed, n=150, p=120):
    """Columns of zeros and ones, most of them rare, and a target to which all ones count alike."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, p)) < rng.beta(0.5, 5.0, p)).astype(float)
    return X, X @ rng.standard_normal(p) + 1.5 * rng.standard_normal(n)


def test_rare_columns_are_predicted_as_by_ridge_regression_of_raw_columns(seed):
    """Ridge regression of standardised columns, the densest scheme otherwise, is far behind it."""
    scores = []
    for number in range(6):
        X, y = fingerprints([seed, number], n=450)
        train, test = np.arange(150), np.arange(150, 450)
        models = (
            AdaptiveOLSEnsembleRegressor(),
            RidgeCV(np.logspace(-2, 3, 30)),
            AdaptiveOLSEnsembleRegressor(["ridge", "power", "lasso", "sparse", "uniform", "null"]),
        )
        scores.append([m.fit(X[train], y[train]).score(X[test], y[test]) for m in models])
    ours, raw, without = np.mean(scores, axis=0)
    assert ours > raw - 0.02
    assert ours > without + 0.02


def test_prior_variances_of_rare_columns_know_no_units_order_or_storage(seed):
    rng = np.random.default_rng(seed)
    X, y = fingerprints(seed)
    X = np.column_stack([X, rng.standard_normal(150), rng.poisson(0.1, 150), np.ones(150)])
    weight = rng.integers(1, 4, 150).astype(float)
    repeated = np.repeat(X, weight.astype(int), axis=0)
    expected = np.array(
        [1 - np.unique(column, return_counts=True)[1].max() / len(column) for column in repeated.T]
    )
    expected[(expected >= 0.25) | (expected == 0)] = 1.0
    order = rng.permutation(150)
    forms = {
        "weights": RowData(X, y[:, None], weight, True),
        "repeats": RowData(repeated, np.repeat(y, weight.astype(int))[:, None], None, True),
        "units": RowData(3.7 * X - 2.0, y[:, None], weight, True),
        "order": RowData(X[order], y[order, None], weight[order], True),
        "sparse": RowData(sp.csc_array(X), y[:, None], weight, True),
    }
    for name, problem in forms.items():
        with case(name):
            assert_allclose(away_from_mode(problem), expected, rtol=1e-12)
    by_moments = away_from_mode_by_moments(forms["weights"].moments)
    assert_allclose(by_moments[:120], expected[:120], rtol=1e-9)  # zeros and ones
    assert_array_equal(by_moments[120:], 1.0)


def test_moments_of_zeros_and_ones_give_the_rare_scheme_of_rows(seed):
    X, y = fingerprints(seed, n=5100, p=40)  # fewer rows in memory have other folds
    memory = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
    parts = np.array_split(np.arange(5100), 3)
    blocks = AdaptiveOLSEnsembleRegressor(random_state=0)
    blocks.fit(lambda: ((X[part], y[part]) for part in parts), None)
    assert "rare" in memory.scheme_weights_
    assert_allclose(blocks.coef_, memory.coef_, atol=1e-6)


def test_the_error_of_a_single_scheme_and_its_standard_error_are_those_over_held_out_rows(seed):
    """The null model by hand, in the folds of a splitter; ridge regression has a smaller error."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 8))
    y = X[:, 0] + rng.standard_normal(60)
    splitter = KFold(4)
    model = AdaptiveOLSEnsembleRegressor(["ridge", "null"], cv=splitter).fit(X, y)
    results = model.cv_results_
    assert list(results["param_scheme"]) == ["ridge", "null", "mixture"]
    squares = np.zeros(60)
    for train, test in splitter.split(X):
        squares[test] = (y[test] - y[train].mean()) ** 2
    assert -results["mean_test_score"][1] == pytest.approx(squares.mean())
    assert results["std_test_score"][1] == pytest.approx(squares.std() / np.sqrt(60))
    assert 0 < results["std_test_score"][0] < results["std_test_score"][1]


def test_the_estimated_error_without_signal_is_the_true_one(seed):
    """The mean target has nearly all the weight, and its error is not that of a choice: corrected for
    the selection of weights that were dropped, it was 7 % too large.
    """
    n_rows = 60
    true = []
    estimated = []
    for number in range(40):
        rng = np.random.default_rng([seed, number])
        X = rng.standard_normal((n_rows, 2))
        y = rng.standard_normal(n_rows)
        model = AdaptiveOLSEnsembleRegressor().fit(X, y)
        true.append(1 + np.sum(model.coef_**2) + model.intercept_**2)
        # units do not matter, so dividing by the variance of y removes its noise
        estimated.append(-model.best_score_ / y.var(ddof=1))
    assert np.mean(estimated) == pytest.approx(np.mean(true), rel=0.04)


def test_below_ten_rows_ridge_and_the_null_model_are_all(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((10, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(10)
    with pytest.warns(UserWarning, match="9 rows"):
        few = AdaptiveOLSEnsembleRegressor().fit(X[:9], y[:9])
    assert few.cv_results_["param_scheme"].tolist() == ["ridge", "null", "mixture"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        requested = AdaptiveOLSEnsembleRegressor(["lasso", "null"]).fit(X[:9], y[:9])
        ten = AdaptiveOLSEnsembleRegressor().fit(X, y)
        ten.coef_std()  # refits of eight rows do not warn again
    assert "lasso" in requested.cv_results_["param_scheme"]
    assert "lasso" in ten.cv_results_["param_scheme"]


def test_a_single_scheme_has_no_optimism(seed):
    """Nothing is chosen, so the error of the mixture is that of the scheme."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 6))
    y = X[:, 0] + rng.standard_normal(40)
    for scheme in ("ridge", "lasso", "uniform"):
        results = AdaptiveOLSEnsembleRegressor([scheme]).fit(X, y).cv_results_
        with case(scheme):
            assert list(results["param_scheme"]) == [scheme, "mixture"]
            assert results["mean_test_score"][1] == pytest.approx(results["mean_test_score"][0])


@pytest.mark.parametrize("shape", [(60, 20), (40, 90), (1100, 30)])
def test_constant_columns_change_nothing(shape, seed):
    """They were drawn into uniform members, which became smaller than the size that was chosen."""
    n, p = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    y = X[:, :5].sum(axis=1) + rng.standard_normal(n)
    position = np.arange(0, p, 2)
    with_constants = np.insert(X, position, 3.0, axis=1)
    varying = with_constants.std(axis=0) > 0
    model = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
    padded = AdaptiveOLSEnsembleRegressor(random_state=0).fit(with_constants, y)
    assert padded.scheme_weights_ == pytest.approx(model.scheme_weights_)
    assert not padded.coef_[~varying].any() and not padded.inclusion_[~varying].any()
    assert_allclose(padded.coef_[varying], model.coef_, atol=1e-7 * np.abs(model.coef_).max())
    assert_allclose(padded.inclusion_[varying], model.inclusion_, atol=1e-7)
