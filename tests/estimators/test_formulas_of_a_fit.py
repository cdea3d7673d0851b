"""Formulas behind the numbers of a fit: errors of tuning, stacking, groups of members, refinement.

Each catches a change of the source that all other tests missed (``tests/mutation/run.py``).
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from random_problems import gaussian, random_problem


def test_gcv_of_single_members_on_drawn_rows_is_near_their_error_on_new_rows(seed):
    """Half as many columns as rows in all, where the correction for drawn rows is a third of the
    error.

    Over 60 data sets, noise of the data sets taken out, within 4 standard errors and 5 %: GCV is
    asymptotic.
    """
    settings = {"max_samples": 0.7, "fit_intercept": False}
    difference = []
    member_errors = []
    for trial in range(60):
        X, y, beta = gaussian(1000 * seed + trial)
        model = OLSEnsembleRegressorCV(
            20, [32], cv="gcv", scale=1.0, random_state=trial, **settings
        ).fit(X, y)
        members = (
            OLSEnsembleRegressor(20, 32, random_state=trial, **settings)
            .fit(X, y)
            .member_coefs()
            .toarray()
        )
        member_errors.append(1 + np.mean(np.sum((members - beta) ** 2, axis=1)))
        luck = np.mean((y - X @ beta) ** 2) - 1
        difference.append(model.risk_curve(1)[0] - member_errors[-1] - luck)
    error = np.std(difference, ddof=1) / np.sqrt(60)
    assert abs(np.mean(difference)) < 4 * error + 0.05 * np.mean(member_errors)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        OLSEnsembleRegressorCV(5, [6], scale=1.0, random_state=0),
        OLSEnsembleRegressorCV(sampling="determinantal"),
        OLSEnsembleRegressorCV(sampling="determinantal", cv=5),
        AdaptiveOLSEnsembleRegressor(cv=5),
    ],
    ids=["all columns", "leave-one-out", "folds", "adaptive"],
)
def test_standard_errors_are_those_of_a_mean_over_the_rows(model, weighted, seed):
    """Held-out predictions of members of all columns, and of ridge regression, are known."""
    X, y, _ = gaussian(seed, n=40, p=6)
    weights = np.random.default_rng(seed).uniform(0.5, 2, 40) if weighted else np.ones(40)
    model = clone(model).fit(X, y, weights)
    squares = (y - model.cv_prediction_) ** 2
    normalised = weights / weights.sum()
    expected = np.sqrt(np.sum((normalised * (squares - normalised @ squares)) ** 2))
    standard_error = model.cv_results_["std_test_score"][model.best_index_]
    assert standard_error == pytest.approx(expected, rel=1e-8)


def test_the_standard_error_for_many_rows_is_that_of_a_variance(seed):
    """Mean squares of n normal residuals vary by the root of 2 / n, relative to themselves."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12_000, 4))
    y = X[:, 0] + rng.standard_normal(12_000)
    blocks = (lambda: iter([(X[:5000], y[:5000]), (X[5000:], y[5000:])]), None)
    for data, model in (
        ((X, y), AdaptiveOLSEnsembleRegressor(n_estimators=10, random_state=seed)),
        (blocks, OLSEnsembleRegressorCV(10, cv="gcv", random_state=seed)),
        (blocks, OLSEnsembleRegressorCV(10, sampling="determinantal", random_state=seed)),
    ):
        results = model.fit(*data).cv_results_
        relative = results["std_test_score"] / -results["mean_test_score"]
        with case(model):
            assert relative[model.best_index_] == pytest.approx(np.sqrt(2 / 12_000), rel=1e-9)


def test_stacking_minimises_the_weighted_squares_of_held_out_residuals(seed):
    """Residuals come from refits. At the minimum over the simplex no derivative is below the mean."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 8))
    weight = rng.uniform(0.1, 3, 60)
    y = 3 * X[:, 0] + 0.5 * rng.standard_normal(60)
    model = OLSEnsembleRegressor(12, 3, mixing="stacking", random_state=seed).fit(X, y, weight)
    assert model.stacking_advantage_ > 2
    residual = np.empty((60, 12))
    for row in range(60):
        train = np.arange(60) != row
        for i, columns in enumerate(model.feature_subsets_):
            member = LinearRegression().fit(X[np.ix_(train, columns)], y[train], weight[train])
            residual[row, i] = y[row] - member.predict(X[row : row + 1, columns])[0]
    derivative = residual.T @ (weight * (residual @ model.weights_))
    mean_derivative = model.weights_ @ derivative
    assert derivative.min() > mean_derivative * (1 - 1e-5)


@pytest.mark.parametrize("solver", ["auto", "orthogonal", "masked_cg"])
def test_small_units_do_not_matter_where_rows_are_drawn(solver, seed):
    """Columns whose squares sum to less than one among others that do not."""
    X, y = random_problem(seed)
    unit = 10.0 ** np.linspace(0, -4, X.shape[1])
    model = OLSEnsembleRegressor(8, 4, 0.7, solver=solver, random_state=seed).fit(X * unit, y)
    for coef, columns, rows in zip(
        model.member_coefs().toarray(), model.feature_subsets_, model.sample_subsets_, strict=True
    ):
        expected = LinearRegression().fit(X[np.ix_(rows, columns)], y[rows]).coef_
        assert_allclose(coef[columns] * unit[columns], expected, rtol=1e-6, atol=1e-8)


def test_the_error_of_balanced_members_follows_from_their_groups(seed):
    """Orthonormal columns that count alike, members of half of them, no noise: errors are counts of
    columns.

    One member lacks half of the signal, a balanced pair averages to half of all of it, and members
    of different groups (or independent ones) both lack a quarter. Leaving rows out changes one per
    cent, following few members some more.
    """
    rng = np.random.default_rng(seed)
    X = np.linalg.qr(rng.standard_normal((400, 8)))[0]
    y = X @ np.where(rng.random(8) < 0.5, -1.0, 1.0)
    settings = {"scale": 1.0, "fit_intercept": False, "random_state": seed}
    model = OLSEnsembleRegressorCV(20, [4], **settings).fit(X, y)
    signal = np.mean(y**2)
    single_error = 1 / 2
    pair_error = 0.0
    unrelated_error = 1 / 4
    for k, expected in (
        (1, single_error),
        (2, (2 * single_error + 2 * pair_error) / 4),
        (3, (3 * single_error + 2 * pair_error + 4 * unrelated_error) / 9),
        (4, (4 * single_error + 4 * pair_error + 8 * unrelated_error) / 16),
    ):
        assert model.risk_curve(k)[0] == pytest.approx(expected * signal, rel=0.06)
    independent = OLSEnsembleRegressorCV(20, [4], design="independent", **settings).fit(X, y)
    assert independent.risk_curve(2)[0] == pytest.approx(
        (single_error + unrelated_error) / 2 * signal, rel=0.06
    )


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps >= np.finfo(float).eps, reason="there is no extended precision here"
)
@pytest.mark.filterwarnings("ignore:members have")
def test_square_systems_are_refined_too():
    """Whole numbers throughout, so the answer is exact. Without refinement the error is 4e-10, with
    it 2e-14.
    """
    X = np.vander(np.arange(1.0, 7.0), increasing=True)
    answer = np.array([3, -1, 4, 1, -5, 9])
    y = X.astype(np.int64) @ answer
    model = OLSEnsembleRegressor(1, 1.0, fit_intercept=False, solver="orthogonal").fit(
        X, y.astype(float)
    )
    assert_allclose(model.coef_, answer, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:members have")
@pytest.mark.parametrize("design", ["balanced", "independent"])
def test_estimated_errors_are_positive_however_few_rows(design, seed):
    """Five of six rows are fitted exactly by four columns and an intercept: errors are mostly noise."""
    for trial in range(20):
        rng = np.random.default_rng([seed, trial])
        X = rng.standard_normal((6, 30))
        y = rng.standard_normal(6)
        settings = {"design": design, "scale": 1.0, "random_state": trial}
        model = OLSEnsembleRegressorCV(20, [4], **settings).fit(X, y)
        assert (model.risk_curve() > 0).all() and (model.risk_curve(20) > 0).all()


@pytest.mark.parametrize("max_samples", [1.0, 0.7])
def test_a_repeated_column_changes_no_held_out_prediction(max_samples, seed):
    """Members of all columns, so that the draws differ in nothing else."""
    X, y, _ = gaussian(seed, n=50, p=6)
    settings = {"max_samples": max_samples, "random_state": seed}
    plain = OLSEnsembleRegressorCV(10, [6], **settings).fit(X, y)
    repeated = OLSEnsembleRegressorCV(10, [7], **settings).fit(np.column_stack([X, X[:, 2]]), y)
    assert_allclose(repeated.cv_prediction_, plain.cv_prediction_, rtol=1e-8, atol=1e-10)


def test_unexplained_targets_get_members_of_the_least_expected_size(seed):
    """The best ridge regression of y minus its projection has no degrees of freedom."""
    X, y, _ = gaussian(seed, n=60, p=20)
    A = np.column_stack([np.ones(60), X])
    y = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    model = OLSEnsembleRegressorCV(10, sampling="determinantal", random_state=seed).fit(X, y)
    assert (
        model.best_index_ == 0
        and model.max_features_ == model.cv_results_["param_max_features"].min() < 0.1
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_columns_distinguished_by_one_row_get_minimum_norm_without_it(
    fit_intercept, weighted, seed
):
    """One column is twice another except in one row: without it, minimum-norm least squares uses both."""
    X, y, _ = gaussian(seed, n=30, p=4)
    X = np.column_stack([X, 2 * X[:, 1]])
    X[7, 4] += 1.5
    weight = np.random.default_rng(seed).uniform(0.1, 4, 30) if weighted else np.ones(30)
    settings = {"scale": 1.0, "fit_intercept": fit_intercept, "random_state": seed}
    model = OLSEnsembleRegressorCV(5, [5], **settings).fit(X, y, weight)
    train = np.arange(30) != 7
    normalised = weight[train] / weight[train].sum() * fit_intercept
    mean_x = normalised @ X[train]
    mean_y = normalised @ y[train]
    root = np.sqrt(weight[train])
    coef = np.linalg.pinv(root[:, None] * (X[train] - mean_x), rcond=1e-10) @ (
        root * (y[train] - mean_y)
    )
    assert model.cv_prediction_[7] == pytest.approx(mean_y + (X[7] - mean_x) @ coef, rel=1e-6)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        OLSEnsembleRegressorCV(10, [4, 8], scale=1.0, random_state=0),
        OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0),
        AdaptiveOLSEnsembleRegressor(
            ["ridge", "power", "lasso", "sparse", "uniform"], n_estimators=10, random_state=0
        ),
    ],
    ids=["uniform", "determinantal", "adaptive"],
)
def test_errors_of_tuning_have_the_square_of_the_unit_of_y(model, blocks, seed):
    X, y, _ = gaussian(seed)
    unit = 2.0**150
    plain, large = (
        clone(model).fit(*((lambda f=f: iter([(X, f * y)]), None) if blocks else (X, f * y)))
        for f in (1.0, unit)
    )
    for name in ("mean_test_score", "std_test_score"):
        assert_allclose(large.cv_results_[name] / unit / unit, plain.cv_results_[name], rtol=1e-9)
    assert large.best_score_ / unit / unit == pytest.approx(plain.best_score_, rel=1e-9)
    assert_allclose(large.cv_prediction_ / unit, plain.cv_prediction_, rtol=1e-9)
    assert_allclose(large.predict_interval(X) / unit, plain.predict_interval(X), rtol=1e-9)
