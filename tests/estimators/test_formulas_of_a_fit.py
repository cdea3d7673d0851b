"""What changes of the source survived all other tests (``tests/mutation/run.py``), held through the
public door.
"""

import numpy as np
import pytest
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
    difference, truths = [], []
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
        truths.append(1 + np.mean(np.sum((members - beta) ** 2, axis=1)))
        luck = np.mean((y - X @ beta) ** 2) - 1
        difference.append(model.risk_curve(1)[0] - truths[-1] - luck)
    error = np.std(difference, ddof=1) / np.sqrt(60)
    assert abs(np.mean(difference)) < 4 * error + 0.05 * np.mean(truths)


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors_are_those_of_a_mean_over_the_rows(weighted, seed):
    """Members of all columns are one least squares, whose left-out residuals are known."""
    X, y, _ = gaussian(seed, n=40, p=6)
    weight = np.random.default_rng(seed).uniform(0.5, 2, 40) if weighted else np.ones(40)
    model = OLSEnsembleRegressorCV(5, [6], scale=1.0, random_state=seed).fit(X, y, weight)
    square, share = (y - model.cv_prediction_) ** 2, weight / weight.sum()
    expected = np.sqrt(np.sum((share * (square - share @ square)) ** 2))
    assert model.cv_results_["std_test_score"] == pytest.approx([expected], rel=1e-8)
    for cv in (None, 5):
        ridge = OLSEnsembleRegressorCV(sampling="determinantal", cv=cv).fit(X, y, weight)
        square = (y - ridge.cv_prediction_) ** 2
        expected = np.sqrt(np.sum((share * (square - share @ square)) ** 2))
        assert ridge.cv_results_["std_test_score"][ridge.best_index_] == pytest.approx(
            expected, rel=1e-8
        )
    mixture = AdaptiveOLSEnsembleRegressor(cv=5).fit(X, y, weight)
    square = (y - mixture.cv_prediction_) ** 2
    expected = np.sqrt(np.sum((share * (square - share @ square)) ** 2))
    assert mixture.cv_results_["std_test_score"][mixture.best_index_] == pytest.approx(
        expected, rel=1e-8
    )


def test_of_many_rows_the_standard_error_is_that_of_a_variance(seed):
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


def test_stacking_minimises_the_weighted_squares_of_left_out_residuals(seed):
    """Left out by refits. At the minimum over the simplex no member's derivative is below the mean
    one.
    """
    rng = np.random.default_rng(seed)
    X, weight = rng.standard_normal((60, 8)), rng.uniform(0.1, 3, 60)
    y = 3 * X[:, 0] + 0.5 * rng.standard_normal(60)
    model = OLSEnsembleRegressor(12, 3, mixing="stacking", random_state=seed).fit(X, y, weight)
    assert model.stacking_advantage_ > 2
    residual = np.empty((60, 12))
    for row in range(60):
        kept = np.arange(60) != row
        for i, columns in enumerate(model.feature_subsets_):
            member = LinearRegression().fit(X[np.ix_(kept, columns)], y[kept], weight[kept])
            residual[row, i] = y[row] - member.predict(X[row : row + 1, columns])[0]
    derivative = residual.T @ (weight * (residual @ model.weights_))
    least = model.weights_ @ derivative
    assert derivative.min() > least * (1 - 1e-5)


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
        np.testing.assert_allclose(coef[columns] * unit[columns], expected, rtol=1e-6, atol=1e-8)


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
    signal, one, pair, other = np.mean(y**2), 1 / 2, 0.0, 1 / 4
    for k, expected in (
        (1, one),
        (2, (2 * one + 2 * pair) / 4),
        (3, (3 * one + 2 * pair + 4 * other) / 9),
        (4, (4 * one + 4 * pair + 8 * other) / 16),
    ):
        assert model.risk_curve(k)[0] == pytest.approx(expected * signal, rel=0.06)
    independent = OLSEnsembleRegressorCV(20, [4], design="independent", **settings).fit(X, y)
    assert independent.risk_curve(2)[0] == pytest.approx((one + other) / 2 * signal, rel=0.06)


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
    np.testing.assert_allclose(model.coef_, answer, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:members have")
@pytest.mark.parametrize("design", ["balanced", "independent"])
def test_estimated_errors_are_positive_however_few_rows(design, seed):
    """Without one of six rows, four columns and an intercept fit the others exactly: errors are
    mostly noise.
    """
    for trial in range(20):
        rng = np.random.default_rng([seed, trial])
        X, y = rng.standard_normal((6, 30)), rng.standard_normal(6)
        settings = {"design": design, "scale": 1.0, "random_state": trial}
        model = OLSEnsembleRegressorCV(20, [4], **settings).fit(X, y)
        assert (model.risk_curve() > 0).all() and (model.risk_curve(20) > 0).all()


@pytest.mark.parametrize("max_samples", [1.0, 0.7])
def test_a_repeated_column_changes_no_left_out_prediction(max_samples, seed):
    """Members of all columns, so that the draws differ in nothing else."""
    X, y, _ = gaussian(seed, n=50, p=6)
    settings = {"max_samples": max_samples, "random_state": seed}
    plain = OLSEnsembleRegressorCV(10, [6], **settings).fit(X, y)
    repeated = OLSEnsembleRegressorCV(10, [7], **settings).fit(np.column_stack([X, X[:, 2]]), y)
    np.testing.assert_allclose(repeated.cv_prediction_, plain.cv_prediction_, rtol=1e-8, atol=1e-10)


def test_targets_that_no_column_explains_get_members_of_the_least_expected_size(seed):
    """Of y less its projection, the best ridge regression explains nothing: no degrees of freedom,
    the least size.
    """
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
def test_twins_that_one_row_tells_apart_are_shortest_without_it(fit_intercept, weighted, seed):
    """Without that row one column is twice another, and minimum-norm least squares uses both."""
    X, y, _ = gaussian(seed, n=30, p=4)
    X = np.column_stack([X, 2 * X[:, 1]])
    X[7, 4] += 1.5
    weight = np.random.default_rng(seed).uniform(0.1, 4, 30) if weighted else np.ones(30)
    settings = {"scale": 1.0, "fit_intercept": fit_intercept, "random_state": seed}
    model = OLSEnsembleRegressorCV(5, [5], **settings).fit(X, y, weight)
    kept = np.arange(30) != 7
    share = weight[kept] / weight[kept].sum() * fit_intercept
    mean_x, mean_y = share @ X[kept], share @ y[kept]
    root = np.sqrt(weight[kept])
    coef = np.linalg.pinv(root[:, None] * (X[kept] - mean_x), rcond=1e-10) @ (
        root * (y[kept] - mean_y)
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
        np.testing.assert_allclose(
            large.cv_results_[name] / unit / unit, plain.cv_results_[name], rtol=1e-9
        )
    assert large.best_score_ / unit / unit == pytest.approx(plain.best_score_, rel=1e-9)
    np.testing.assert_allclose(large.cv_prediction_ / unit, plain.cv_prediction_, rtol=1e-9)
    np.testing.assert_allclose(
        large.predict_interval(X) / unit, plain.predict_interval(X), rtol=1e-9
    )
