"""DropoutRegressor against enumeration of all masks, ridge regression, its own training, and
scikit-learn's checks.
"""

from itertools import combinations, product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator

from loops import case
from olsen import DropoutRegressor
from olsen._dropout import exact
from olsen._execution import memory
from random_problems import random_problem, relative_error

pytestmark = pytest.mark.filterwarnings(
    "ignore:y is constant", "ignore::sklearn.exceptions.ConvergenceWarning"
)
ROUGH = {"solver": "sgd", "tol": 0.03, "max_iter": 600, "random_state": 0}

WEIGHTS_ARE_NOT_REPETITIONS = {
    f"check_sample_weight_equivalence_on_{kind}_data": (
        "a repeated row meets masks of its own, a weighted row does not"
    )
    for kind in ("dense", "sparse")
}


def test_scikit_learn_checks():
    for settings, failing in [
        ({}, {}),
        ({"max_features": 0.8, "sampling": "fixed", "rescale": True}, {}),
        ({"max_features": 1.0, "fit_intercept": False}, {}),
        ({"max_features": 1, "sampling": "fixed"}, {}),
        ({"max_features": 0.9, **ROUGH}, WEIGHTS_ARE_NOT_REPETITIONS),
    ]:
        with case(settings):
            check_estimator(
                DropoutRegressor(**settings), expected_failed_checks=failing, on_skip=None
            )


def enumerate_masks(X, y, masks, chances):
    """Minimiser of the exact expected loss: the normal equations summed mask by mask."""
    H = np.zeros((X.shape[1],) * 2)
    c = np.zeros(X.shape[1])
    for mask, chance in zip(masks, chances, strict=True):
        seen = X * mask
        H += chance * seen.T @ seen
        c += chance * seen.T @ y
    return np.linalg.pinv(H, rcond=1e-13) @ c  # never kept: zero


def coin_masks(alpha):
    masks = np.array(list(product([0.0, 1.0], repeat=len(alpha))))
    return masks, np.prod(np.where(masks > 0, alpha, 1 - np.asarray(alpha)), axis=1)


def size_masks(p, m):
    masks = np.array(
        [np.isin(np.arange(p), columns) for columns in combinations(range(p), m)], dtype=float
    )
    return masks, np.full(len(masks), 1 / len(masks))


UNEQUAL = [0.1, 0.9, 0.5, 1.0, 0.0, 0.7]
MASKS = {
    "coins": ({"max_features": 0.35}, coin_masks(np.full(6, 0.35))),
    "count of coins": ({"max_features": 2}, coin_masks(np.full(6, 1 / 3))),
    "unequal coins": ({"max_features": UNEQUAL}, coin_masks(UNEQUAL)),
} | {f"{m} of 6": ({"max_features": m, "sampling": "fixed"}, size_masks(6, m)) for m in range(1, 7)}


def test_closed_form_is_the_minimiser_over_all_masks(seed):
    for (name, (params, masks)), n in product(MASKS.items(), [40, 7, 4]):
        if n == 4 and name == "6 of 6":
            continue  # least squares with more columns than rows: see the minimum-norm test
        X, y = random_problem(seed, n=n, p=6)
        model, raw = (
            DropoutRegressor(fit_intercept=intercept, **params).fit(X, y)
            for intercept in (True, False)
        )
        expected = enumerate_masks(X - X.mean(axis=0), y - y.mean(), *masks)
        with case(name, n):
            assert relative_error(model.coef_, expected) < 1e-10
            assert_allclose(
                model.intercept_, y.mean() - X.mean(axis=0) @ expected, rtol=1e-8, atol=1e-9
            )
            assert relative_error(raw.coef_, enumerate_masks(X, y, *masks)) < 1e-10


def test_the_papers_formula(seed):
    X, y = random_problem(seed)
    alpha = np.random.default_rng(seed).uniform(0.1, 1, X.shape[1])
    A = np.diag(alpha)
    G = X.T @ X
    penalty = (np.eye(len(A)) - A) @ np.linalg.inv(A) @ np.diag(np.diag(G))
    expected = np.linalg.inv(A) @ np.linalg.solve(G + penalty, X.T @ y)
    model = DropoutRegressor(alpha, fit_intercept=False).fit(X, y)
    assert relative_error(model.coef_, expected) < 1e-10
    corrected = DropoutRegressor(alpha, fit_intercept=False, rescale=True).fit(X, y)
    assert relative_error(corrected.coef_, A @ expected) < 1e-10
    assert_array_equal(model.inclusion_, alpha)


def test_corrected_estimator_is_ridge_on_standardised_columns(seed):
    for n, p in [(60, 24), (30, 80)]:
        X, y = random_problem(seed, n=n, p=p)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        ridge = Ridge(alpha=n * 0.7 / 0.3).fit(X, y)
        model = DropoutRegressor(0.3, rescale=True).fit(X, y)
        with case(n, p):
            assert_allclose(model.coef_, ridge.coef_, rtol=1e-9, atol=1e-10)
            assert model.intercept_ == pytest.approx(ridge.intercept_)


def test_matched_probabilities_are_ridge_on_any_columns(seed):
    """(1 - alpha_j) / alpha_j = lambda / G_jj (section 5.1), here exactly, with the sample's own
    diagonal.
    """
    X, y = random_problem(seed)
    X = X * np.logspace(-1, 1, X.shape[1])
    squares = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    model = DropoutRegressor(squares / (squares + 5.0), rescale=True).fit(X, y)
    assert relative_error(model.coef_, Ridge(alpha=5.0, solver="svd").fit(X, y).coef_) < 1e-9


def test_weights_targets_and_sparse_data(seed):
    for shape, max_features in product([(50, 12), (12, 50)], [0.4, 1.0, None]):
        X, Y = random_problem(seed, *shape, q=3)
        rng = np.random.default_rng(seed)
        X[rng.random(X.shape) < 0.5] = 0
        X[:, 0] += 1e4  # centring this column after the product would lose its digits
        weight = rng.integers(0, 4, shape[0]).astype(float)
        weight[:4] = 1.0
        model = DropoutRegressor(
            np.where(np.arange(shape[1]) % 5, 0.5, 1.0) if max_features is None else max_features
        )
        coef = model.fit(X, Y, weight).coef_
        predicted = model.predict(X)
        repeated = np.repeat(np.arange(shape[0]), weight.astype(int))
        with case(shape, max_features):
            predictions_of_repeated = model.fit(X[repeated], Y[repeated]).predict(X)
            assert_allclose(predictions_of_repeated, predicted, rtol=1e-6, atol=1e-6)
            sparse = model.fit(sp.csr_array(X), Y, weight).predict(X)
            assert_allclose(sparse, predicted, rtol=1e-6, atol=1e-6)
            assert_allclose(model.fit(X, Y[:, 1], weight).coef_, coef[1], rtol=1e-9, atol=1e-12)


def test_row_and_column_formulas_agree(seed):
    X, y = random_problem(seed, n=40, p=38)
    problem = exact.RowData(X, y[:, None])
    some_always = np.where(np.arange(38) < 9, 1.0, 0.3)
    for kappa, sides in (
        (np.full(38, 0.6), (exact._row_side, exact._from_data)),
        (np.linspace(0.1, 0.95, 38), (exact._row_side, exact._from_data)),
        (some_always, (exact._from_data,)),
    ):
        for side in sides:
            assert relative_error(side(problem, kappa), exact._column_side(problem, kappa)) < 1e-9


def test_constant_and_dependent_columns(seed):
    for n in (30, 8):
        X, y = random_problem(seed, n=n, p=12)
        X[:, 3], X[:, 5], X[:, 6] = 7.3, X[:, 4], 0.0
        for max_features in (0.5, 1.0, 1):
            coef = DropoutRegressor(max_features, sampling="fixed").fit(X, y).coef_
            with case(n, max_features):
                assert coef[3] == coef[6] == 0 and coef[4] == pytest.approx(
                    coef[5], rel=1e-6, abs=1e-9
                )
        ols = LinearRegression().fit(X, y)
        assert_allclose(DropoutRegressor(1.0).fit(X, y).coef_, ols.coef_, rtol=1e-6, atol=1e-8)


def test_nearly_dependent_columns_are_solved_from_the_data(seed):
    """Keeping columns almost always leaves a Gram matrix of condition 1e14 or so; the answer must
    not come from it.
    """
    X, _ = random_problem(seed, n=50, p=8)
    X -= X.mean(axis=0)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]
    truth = np.arange(1.0, 9.0)
    coef = DropoutRegressor(1.0).fit(X, X @ truth).coef_
    assert relative_error(coef, truth) < 1e-6
    thin = DropoutRegressor(1.0).fit(sp.csr_array(X), X @ truth).coef_
    assert relative_error(thin, truth) < 1e-6


def test_wide_data_need_no_gram_of_columns(monkeypatch):
    X, y = random_problem(0, n=20, p=6000)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e8)
    model = DropoutRegressor(0.5).fit(X, y)
    dual = Ridge(alpha=1.0, solver="svd")
    length = np.linalg.norm(X - X.mean(axis=0), axis=0)
    assert_allclose(0.5 * model.coef_ * length, dual.fit(X / length, y).coef_, rtol=1e-6, atol=1e-8)


def test_many_columns_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e8)
    X = sp.random(6000, 5000, density=1e-4, format="csr")
    with pytest.raises(MemoryError, match=r"5000 columns needs 600 MB.*solver='sgd'"):
        DropoutRegressor().fit(X, np.ones(6000) + X[:, [0]].toarray()[:, 0] + np.arange(6000))


# Training


def test_training_reaches_the_closed_form(seed):
    """To 1e-3, relative, in columns whose units differ by 1e6; the standard error asked for is
    4e-4.
    """
    X, y = random_problem(seed, n=150, p=5)
    units = np.logspace(-3, 3, 5)
    for params in (
        {"max_features": 0.7},
        {"max_features": 3, "sampling": "fixed"},
        {"max_features": [0.5, 0.9, 1.0, 0.0, 0.7]},
        {"max_features": 0.7, "batch_size": 64, "rescale": True},
    ):
        closed = DropoutRegressor(**params).fit(X * units, y)
        trained = DropoutRegressor(solver="sgd", tol=4e-4, random_state=seed, **params).fit(
            X * units, y
        )
        with case(params):
            assert relative_error(trained.coef_ * units, closed.coef_ * units) < 1e-3
            assert (
                trained.n_iter_ < trained.max_iter
                and trained.loss_curve_[-1] < trained.loss_curve_[0]
            )


def test_training_draws_masks(seed):
    """Two seeds differ, one repeats; a learning rate of the user's own is used, one too large is
    refused.
    """
    X, y = random_problem(seed, n=50, p=5)
    rough = DropoutRegressor(solver="sgd", tol=0.01, random_state=seed)
    coef = rough.fit(X, y).coef_
    assert_array_equal(rough.fit(X, y).coef_, coef)
    assert not np.array_equal(rough.set_params(random_state=seed + 1).fit(X, y).coef_, coef)
    with pytest.raises(ValueError, match=r"training diverged.*Lower learning_rate"):
        rough.set_params(learning_rate=50.0).fit(X, y)
    assert rough.predict(X).shape == (50,)


def test_training_on_sparse_data_with_weights_and_targets(seed):
    X, Y = random_problem(seed, n=60, p=6, q=2)
    X[np.random.default_rng(seed).random(X.shape) < 0.4] = 0
    weight = np.random.default_rng(seed).uniform(0.5, 2, 60)
    exact = DropoutRegressor(0.8).fit(X, Y, weight)
    trained = DropoutRegressor(0.8, solver="sgd", tol=2e-3, random_state=seed).fit(
        sp.csr_array(X), Y, weight
    )
    assert relative_error(trained.coef_, exact.coef_) < 0.01


def test_training_says_when_it_has_not_finished_and_how_far_it_is(capsys):
    X, y = random_problem(0)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=400.*tol=0.0005"):
        DropoutRegressor(solver="sgd", max_iter=400, random_state=0, verbose=1).fit(X, y)
    assert "400 of 400" in capsys.readouterr().out


def test_refusals_leave_the_fit_alone():
    X, y = random_problem(0)
    model = DropoutRegressor().fit(X, y)
    predictions = model.predict(X)
    defaults = model.get_params()
    for params, words in [
        ({"max_features": np.full(24, 1.2)}, r"24 probabilities.*24 are outside"),
        ({"max_features": np.r_[1.0, -0.1, np.ones(22)]}, r"1 are outside.*\[1\]"),
        ({"max_features": np.ones(5)}, r"24 probabilities.*\(5,\)"),
        ({"max_features": np.zeros(24)}, "not all 0"),
        (
            {"max_features": np.ones(24), "sampling": "fixed"},
            r"24 probabilities.*sampling='bernoulli'",
        ),
        ({"max_features": 0}, "max_features=0"),
        ({"max_features": 25}, "max_features=25"),
        ({"sampling": "coins"}, "sampling.*'coins'"),
        ({"solver": "adam"}, "solver.*'adam'"),
        ({"batch_size": 0}, "batch_size.*0"),
        ({"n_masks": 1.5}, r"n_masks.*1\.5"),
        ({"learning_rate": -1}, "learning_rate.*-1"),
    ]:
        with case(params):
            with pytest.raises(ValueError, match=words):
                model.set_params(**params).fit(X, y)
            assert_array_equal(model.set_params(**defaults).predict(X), predictions)
