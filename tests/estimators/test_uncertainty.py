"""Intervals, standard errors and the number of members: exact against refits, equal in all
engines.
"""

import pickle
import tracemalloc
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

from engines import engines, row_blocks
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)
from olsen._execution import memory
from random_problems import correlated_problem

ONE_SE_COVERAGE = 0.6826894921370859  # of a normal distribution, within one standard deviation
ENGINES = engines(folder=None, names=("memory", "sparse", "blocks", "dask"))

# The jackknife, against refits without each row


class Refits:
    """An ensemble, and brute-force refits of it without each row and to unit vectors as targets."""

    def __init__(self, model, X, Y, weights):
        self.model = model
        self.X = X
        self.Y = Y.reshape(len(Y), -1)
        self.weights = weights
        n_rows = len(self.Y)
        row_subsets = [
            np.setdiff1d(rows, [row]) for row in range(n_rows) for rows in model.sample_subsets_
        ]
        column_subsets = n_rows * list(model.feature_subsets_)
        refits = [self.mean_members(y, column_subsets, row_subsets) for y in self.Y.T]
        self.coef = np.stack([coef for coef, _ in refits], axis=-1)  # (n, p, q)
        self.intercept = np.stack([intercept for _, intercept in refits], axis=-1)  # (n, q)
        self.residuals = self.Y - (np.einsum("lp,lpq->lq", X, self.coef) + self.intercept)

    def mean_members(self, y, column_subsets, row_subsets):
        """Coefficients and intercepts of ensembles whose members follow each other in the lists."""
        model = self.model
        coef, intercept = member_coefficients(
            self.X,
            y,
            column_subsets,
            row_subsets,
            sample_weight=self.weights,
            fit_intercept=model.fit_intercept,
        )
        weights = np.ones(len(y)) if self.weights is None else self.weights
        means = [
            np.average(y[rows], weights=weights[rows]) if model.fit_intercept else 0.0
            for rows in row_subsets
        ]
        n_members = len(model.weights_)
        coef = model.scale_ * model.weights_ @ coef.reshape(-1, n_members, self.X.shape[1])
        intercept = model.scale_ * intercept.reshape(-1, n_members) @ model.weights_
        null_intercept = np.reshape(means, (-1, n_members)) @ model.weights_
        return coef, intercept + (1 - model.scale_) * null_intercept

    def intervals(self, new, coverage):
        """Intervals of the jackknife+ and of the jackknife, (n_new, q, 2) each."""
        n_rows = len(self.Y)
        rank = int(np.ceil(coverage * (n_rows + 1)))
        predictions = np.einsum("rp,lpq->lrq", new, self.coef) + self.intercept[:, None]
        errors = np.abs(self.residuals)[:, None]
        lower = np.sort(predictions - errors, axis=0)[n_rows - rank]
        upper = np.sort(predictions + errors, axis=0)[rank - 1]
        ends = np.sort(np.stack([lower, upper], axis=2), axis=2)  # low coverages may cross
        half_width = np.sort(errors[:, 0], axis=0)[rank - 1]
        centre = self.model.predict(new).reshape(len(new), -1)
        return ends, np.stack([centre - half_width, centre + half_width], axis=2)

    def derivatives(self, new):
        """Derivatives with respect to the targets of the coefficients (p, n), fitted values (n, n)
        and predictions (n_new, n).
        """
        column_subsets = list(self.model.feature_subsets_)
        row_subsets = list(self.model.sample_subsets_)
        refits = [self.mean_members(y, column_subsets, row_subsets) for y in np.eye(len(self.Y))]
        coef = np.column_stack([coef[0] for coef, _ in refits])
        intercept = np.array([intercept[0] for _, intercept in refits])
        return coef, self.X @ coef + intercept, new @ coef + intercept

    def check_std(self, new, derivatives_of_coef, derivatives_of_predictions, variances):
        """Standard errors follow from the derivatives and the variances (n, q) of the targets."""
        expected = np.sqrt(derivatives_of_predictions**2 @ variances)
        std = self.model.predict(new, return_std=True)[1].reshape(expected.shape)
        assert_allclose(std, expected, rtol=1e-8)
        expected = np.sqrt(derivatives_of_coef**2 @ variances)
        coef_std = np.atleast_2d(self.model.coef_std()).T
        assert_allclose(coef_std, expected, rtol=1e-7, atol=1e-12)

    def check(self, new, container=np.asarray):
        """Intervals and standard errors equal the refits for new rows, none beyond the training
        rows, in a container.
        """
        rows = container(new)
        n_rows = len(self.Y)
        # at 0.985 the row with the largest residual decides
        for coverage, rtol in ((0.3, 1e-8), (0.8, 1e-8), (0.985, 1e-7)):
            both = zip(("auto", "jackknife"), self.intervals(new, coverage), strict=True)
            for method, expected in both:
                interval = self.model.predict_interval(rows, coverage, method, adaptive_width=False)
                interval = interval.reshape(expected.shape)
                assert_allclose(interval, expected, rtol=rtol, atol=1e-8)
        centre = self.model.predict(rows)
        upper = self.model.predict_interval(rows, 0.95, method="normal")[..., 1]
        half_width = 1.959963984540054 * np.sqrt(np.mean(self.residuals**2, axis=0))
        half_width = np.broadcast_to(half_width, (len(new), self.Y.shape[1])).reshape(centre.shape)
        assert_allclose(upper, centre + half_width, rtol=1e-7, atol=1e-8)
        of_coef, hat, of_predictions = self.derivatives(new)
        df = np.trace(hat) / n_rows
        shrinkage = min(1.0, (1 - df) ** 2 / (1 - 2 * df + np.sum(hat**2) / n_rows))
        self.check_std(rows, of_coef, of_predictions, shrinkage * self.residuals**2)


def between(X, count):
    """Rows halfway between training rows, of which none has a larger leverage than those."""
    return (X[:count] + X[count : 2 * count]) / 2


def difficult(X, kind, rng):
    """Copy of X with columns or rows that need care."""
    X = X.copy()
    match kind:
        case "dependent columns":
            X[:, 1] = X[:, 0]
            X[:, 2] = X[:, 3] - 2 * X[:, 4]
        case "nearly dependent columns":
            X[:, 1] = X[:, 0] + 1e-3 * rng.standard_normal(len(X))
        case "rows of leverage one":
            X[:, :3] = 0.0
            X[[5, 30, 66], [0, 1, 2]] = 1.0
        case "outlying rows":
            X[5] *= 1e3
            X[66, 3] = 1e5
        case "constant columns":
            X[:, 0] = 3.7
            X[:, 1] = 0.0
        case "far from zero":
            X += 100.0
    return X


KINDS = (
    "ordinary",
    "dependent columns",
    "nearly dependent columns",
    "rows of leverage one",
    "outlying rows",
    "constant columns",
    "far from zero",
)
MEMBERS = {
    "few columns": {"max_features": 4},
    # solved by the columns that they leave out, in two batches
    "most columns": {"max_features": 11, "n_estimators": 34},
    "of many sizes": {"max_features": 0.5, "sampling": "bernoulli"},
    "on some rows": {"max_features": 6, "max_samples": 0.4},
    "as many columns as rows": {"max_features": 10, "max_samples": 8},
    "stacked": {"max_features": 5, "mixing": "stacking"},
}


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.filterwarnings("ignore:members have")
def test_intervals_and_standard_errors_equal_refits(members, seed):
    """Several blocks of rows and batches of members, in threads, of every kind."""
    settings = {"n_estimators": 10, "random_state": seed, "n_jobs": 2} | MEMBERS[members]
    for kind in KINDS:
        rng = np.random.default_rng([seed, 3])
        X, Y = correlated_problem(seed, n=70)
        X = difficult(X, kind, rng)
        weights = None
        if members != "stacked":
            Y = np.column_stack([Y, X[:, 4] - 2 * rng.standard_normal(70)])
            weights = rng.uniform(0.3, 2, 70)
            settings["scale"] = 0.8
        with case(kind):
            model = OLSEnsembleRegressor(**settings).fit(X, Y, weights)
            Refits(model, X, Y, weights).check(between(X, 4))


def test_intervals_equal_refits_without_intercept_and_of_sparse_rows(seed):
    rng = np.random.default_rng([seed, 4])
    X, y = correlated_problem(seed, n=70)
    X[rng.random(X.shape) < 0.5] = 0.0
    for members in ("few columns", "most columns", "on some rows"):
        settings = {"n_estimators": 10, "random_state": seed} | MEMBERS[members]
        with case(members):
            model = OLSEnsembleRegressor(fit_intercept=False, **settings).fit(sp.csr_array(X), y)
            Refits(model, X, y, None).check(between(X, 4), container=sp.csr_array)


def test_a_member_without_columns_is_the_mean(seed):
    X, y = correlated_problem(seed, n=70)
    models = (
        OLSEnsembleRegressor(1, 1, sampling="bernoulli", random_state=100 * seed + i)
        for i in range(100)
    )
    model = next(model for model in models if not model.fit(X, y).feature_subsets_.sizes[0])
    Refits(model, X, y, None).check(between(X, 4))


@pytest.mark.filterwarnings("ignore:members have")
def test_threads_change_no_bit(seed):
    for shape in [(300, 60), (1000, 20), (70, 200)]:
        X, y = correlated_problem(seed, *shape)
        rng = np.random.default_rng(seed)
        new = rng.standard_normal((30, shape[1]))
        weights = rng.uniform(0.5, 2, shape[0])
        for n_jobs in (1, 2, 3):
            model = OLSEnsembleRegressor(60, 0.5, random_state=seed, n_jobs=n_jobs)
            interval = model.fit(X, y, weights).predict_interval(new)
            std = model.predict(new, return_std=True)[1]
            if n_jobs == 1:
                expected_interval = interval
                expected_std = std
            with case(shape, n_jobs):
                assert np.array_equal(interval, expected_interval)
                assert np.array_equal(std, expected_std)


def test_without_memory_for_the_jackknife_plus_other_methods_answer(seed, monkeypatch):
    X, y = correlated_problem(seed, n=3000, p=300)
    model = OLSEnsembleRegressor(3, 2, random_state=seed).fit(X, np.column_stack([y] * 10))
    monkeypatch.setattr(memory, "available_bytes", lambda: 7e7)
    with pytest.raises(MemoryError, match=r"3000.*300.*72 MB.*method='jackknife'"):
        model.predict_interval(X[:5], method="jackknife+")
    assert np.isfinite(model.predict_interval(X[:5], method="jackknife")).all()
    assert_array_equal(model.predict_interval(X[:5]), model.predict_interval(X[:5], method="cv+"))


def test_the_jackknife_needs_less_memory_than_another_copy_of_X(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100_000, 60))
    model = OLSEnsembleRegressor(3, random_state=seed).fit(X, X[:, 0] + rng.standard_normal(len(X)))
    tracemalloc.start()
    try:
        model.predict_interval(X[:5], method="jackknife")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes


# Statistical checks


def test_coverage_of_new_observations(seed):
    """The mean coverage over 60 training sets is within 4 standard errors of the nominal 90 %."""
    rng = np.random.default_rng(seed)
    coverages = []
    for trial in range(60):
        X = rng.standard_normal((80, 40))
        new = rng.standard_normal((50, 40))
        beta = rng.standard_normal(40) / np.sqrt(40)
        y = X @ beta + rng.standard_normal(80)
        ends = OLSEnsembleRegressor(20, 15, random_state=trial).fit(X, y).predict_interval(new)
        targets = new @ beta + rng.standard_normal(50)
        coverages.append(np.mean((ends[:, 0] <= targets) & (targets <= ends[:, 1])))
    standard_error = np.std(coverages, ddof=1) / np.sqrt(60)
    assert abs(np.mean(coverages) - 0.9) < 4 * standard_error + 0.5 / 80  # ranks are k / 81


def test_standard_error_is_the_standard_deviation_over_training_sets(seed):
    """The mean squared standard error is the variance of predictions over 300 training sets,
    within 4 standard errors and the 5 % that an asymptotic formula is allowed.
    """
    rng = np.random.default_rng(seed)
    beta = rng.standard_normal(30) / np.sqrt(30)
    new = rng.standard_normal((40, 30))
    predictions = []
    variances = []
    for _ in range(300):
        X = rng.standard_normal((90, 30))
        model = OLSEnsembleRegressor(10, 10, fit_intercept=False, random_state=1)
        y, std = model.fit(X, X @ beta + rng.standard_normal(90)).predict(new, return_std=True)
        predictions.append(y)
        variances.append(std**2)
    variance = np.var(predictions, axis=0, ddof=1).mean()
    deviations = np.mean((np.array(predictions) - np.mean(predictions, axis=0)) ** 2, axis=1)
    standard_error = np.std(deviations / variance, ddof=1) / np.sqrt(300)
    assert abs(np.mean(variances) / variance - 1) < 4 * standard_error + 0.05


# Intervals from folds


def cv_plus_by_definition(model, rows, new, splits, *, coverage, n_groups):
    """Barber et al.'s definition: refit the members without each fold; two order statistics of n
    values.
    """
    X, y = rows
    lower = []
    upper = []
    for train, test in splits:
        refit = clone(model).set_params(scale=model.scale_).fit(X[train], y[train])
        errors = np.abs(y[test] - refit.predict(X[test]))
        lower.append(refit.predict(new)[:, None] - errors)
        upper.append(refit.predict(new)[:, None] + errors)
    lower = np.sort(np.hstack(lower), axis=1)
    upper = np.sort(np.hstack(upper), axis=1)
    n = lower.shape[1]
    rank = int(np.ceil(coverage * (n_groups + 1) / n_groups * n - 1e-9))
    return np.column_stack([lower[:, n - rank], upper[:, rank - 1]])


@pytest.mark.parametrize(
    ("max_samples", "cv", "groups"),
    [(1.0, KFold(4), None), (0.7, GroupKFold(4), np.arange(120) // 3)],
    ids=["rows", "groups"],
)
def test_cv_plus_is_its_definition(max_samples, cv, groups, seed):
    """Members of one size, refitted for each fold; groups count where there are any."""
    X, y = correlated_problem(seed)
    new = between(X, 9)
    settings = {"scale": 0.9, "max_samples": max_samples, "random_state": seed}
    fit_params = {} if groups is None else {"groups": groups}
    tuned = OLSEnsembleRegressorCV(30, [5], cv=cv, **settings).fit(X, y, **fit_params)
    plain = OLSEnsembleRegressor(30, 5, **settings).fit(X, y)
    assert_allclose(tuned.coef_, plain.coef_, rtol=1e-9)
    splits = list(cv.split(X, None, groups))
    n_groups = 120 if groups is None else 40
    for coverage in (0.8, 0.9):
        expected = cv_plus_by_definition(
            plain, (X, y), new, splits, coverage=coverage, n_groups=n_groups
        )
        interval = tuned.predict_interval(new, coverage, "cv+", adaptive_width=False)
        assert_allclose(interval, expected, rtol=1e-7)


def test_cv_plus_has_one_answer_in_all_engines(seed):
    """Blocks and Dask cut the same folds, whatever the blocks."""
    X, y = correlated_problem(seed, n=400)
    new = np.random.default_rng(seed).standard_normal((9, 12))
    template = OLSEnsembleRegressor(30, 5, random_state=seed)
    models = {engine.name: engine.fit(clone(template), X, y) for engine in ENGINES}
    models["other blocks"] = clone(template).fit(row_blocks(X, y, size=91), None)
    ends = {name: model.predict_interval(new, 0.8, "cv+") for name, model in models.items()}
    assert_allclose(ends["other blocks"], ends["blocks"], rtol=1e-9)
    assert_allclose(ends.get("dask", ends["blocks"]), ends["blocks"], rtol=1e-9)
    assert_allclose(ends["sparse"], ends["memory"], rtol=1e-7)
    width = np.diff(ends["memory"]).mean()
    assert abs(np.diff(ends["blocks"]).mean() / width - 1) < 0.25  # five folds there, ten in memory


FOUR_MODELS = {
    "ensemble": OLSEnsembleRegressor(40, 3),
    "tuned": OLSEnsembleRegressorCV(40),
    "ridge": OLSEnsembleRegressorCV(sampling="determinantal"),
    "adaptive": AdaptiveOLSEnsembleRegressor(n_estimators=40),
}
TUNED_MODELS = {name: model for name, model in FOUR_MODELS.items() if name != "ensemble"}


@pytest.mark.parametrize("kind", FOUR_MODELS)
def test_every_engine_gives_intervals_by_default(kind, seed):
    X, y = correlated_problem(seed, n=600)
    for engine in ENGINES:
        model = engine.fit(clone(FOUR_MODELS[kind]).set_params(random_state=seed), X, y)
        ends = model.predict_interval(X[:50])
        covered = (ends[:, 0] <= y[:50]) & (y[:50] <= ends[:, 1])
        assert ends.shape == (50, 2) and covered.mean() > 0.7, engine.name


@pytest.mark.parametrize("kind", FOUR_MODELS)
def test_lower_ends_are_below_upper_ends(kind, seed):
    X, y = correlated_problem(seed, n=30, p=5)
    new = 3 * np.random.default_rng(seed).standard_normal((500, 5))
    model = clone(FOUR_MODELS[kind]).set_params(random_state=seed).fit(X, y)
    for coverage in (0.01, 0.05, 0.2, 0.8):
        for method in ("auto", "cv+", "normal"):
            lower, upper = model.predict_interval(new, coverage, method).T
            assert np.all(lower <= upper)
        lower, upper = model.coef_interval(coverage).T
        assert np.all(lower <= upper)


def test_weights_count_in_folds(seed):
    """A weight of zero equals a dropped row; weights go into the refits."""
    X, y = correlated_problem(seed)
    weights = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    splits = [(np.arange(40, 120), np.arange(40)), (np.arange(80), np.arange(80, 120))]
    settings = {"max_features": [5], "scale": 1.0, "random_state": seed}
    model = OLSEnsembleRegressorCV(30, cv=splits, **settings).fit(X, y, sample_weight=weights)
    interval = model.predict_interval(X[:3], 0.8, "cv+")
    positive = weights > 0
    position = np.cumsum(positive) - 1
    fewer_splits = [tuple(position[rows[positive[rows]]] for rows in split) for split in splits]
    fewer = OLSEnsembleRegressorCV(30, cv=fewer_splits, **settings)
    fewer.fit(X[positive], y[positive], sample_weight=weights[positive])
    assert_allclose(interval, fewer.predict_interval(X[:3], 0.8, "cv+"), rtol=1e-9)
    fewer.fit(X[positive], y[positive])
    assert np.abs(interval / fewer.predict_interval(X[:3], 0.8, "cv+") - 1).max() > 1e-4


def test_groups_are_held_out_whole(seed):
    """Rows that come five times each: without their group the error is that for new rows."""
    X, y = correlated_problem(seed, n=60, p=30, noise=2.0)
    X = np.repeat(X, 5, axis=0)
    y = np.repeat(y, 5)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=50, cv=GroupKFold(5), random_state=seed)
    model.fit(X, y, groups=np.repeat(np.arange(60), 5))
    width = np.diff(model.predict_interval(X[:20], 0.9)).mean()
    with pytest.warns(UserWarning, match="rows repeat others"):
        ungrouped = OLSEnsembleRegressorCV(50, random_state=seed).fit(X, y)
    assert width > 1.3 * np.diff(ungrouped.predict_interval(X[:20], 0.9)).mean()
    merged = AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=seed)
    with pytest.warns(UserWarning, match="240 of 300 rows repeat others.*merged"):
        merged.fit(X, y)
    assert 0.6 < width / np.diff(merged.predict_interval(X[:20], 0.9)).mean() < 1.5
    for method in ("jackknife+", "jackknife"):
        with pytest.raises(ValueError, match=r"groups.*cv\+"):
            model.predict_interval(X, method=method)
    assert_array_equal(model.predict_interval(X[:3]), model.predict_interval(X[:3], method="cv+"))


def test_several_targets_equal_fits_to_each_target(seed):
    X, Y = correlated_problem(seed, q=3)
    joint = OLSEnsembleRegressor(30, 5, random_state=seed).fit(X, Y)
    mean, std = joint.predict(X[:4], return_std=True)
    assert mean.shape == std.shape == (4, 3)
    assert joint.coef_std().shape == (3, 12) and joint.coef_interval().shape == (3, 12, 2)
    half_width = 1.2815515655446004 * joint.coef_std()
    ends = np.stack([joint.coef_ - half_width, joint.coef_ + half_width], axis=-1)
    assert_allclose(joint.coef_interval(0.8), ends, rtol=1e-12, atol=1e-12)
    for target, y in enumerate(Y.T):
        single = OLSEnsembleRegressor(30, 5, random_state=seed).fit(X, y)
        assert_allclose(joint.coef_std()[target], single.coef_std(), rtol=1e-9)
        expected = single.predict(X[:4], return_std=True)[1]
        assert_allclose(std[:, target], expected, rtol=1e-9)
        for method in ("jackknife+", "jackknife", "cv+", "normal"):
            with case(target, method):
                ends = joint.predict_interval(X[:4], 0.8, method)[:, target]
                expected = single.predict_interval(X[:4], 0.8, method)
                assert_allclose(ends, expected, rtol=1e-9)


def test_normal_intervals_take_the_cross_validated_error(seed):
    X, y = correlated_problem(seed)
    for cls in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        model = cls(n_estimators=30, random_state=seed).fit(X, y)
        half_width = 1.6448536269514722 * np.sqrt(-model.best_score_)
        expected = model.predict(X)[:, None] + np.array([-half_width, half_width])
        for copied in (model, pickle.loads(pickle.dumps(model))):
            interval = copied.predict_interval(X, 0.9, "normal")
            assert_allclose(interval, expected, rtol=1e-12)


def test_blocks_of_new_rows_give_what_single_rows_give(seed):
    X, y = correlated_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
    new = np.random.default_rng(seed).standard_normal((20_000, 12))
    interval = model.predict_interval(new, 0.8, "cv+")
    for rows, container in (([7, 19_999], np.asarray), (slice(50), sp.csr_array)):
        expected = model.predict_interval(container(new[rows]), 0.8, "cv+")
        assert_allclose(interval[rows], expected, rtol=1e-12)


# Few rows


def test_too_few_rows_give_the_whole_line(seed):
    X, y = correlated_problem(seed, n=8, p=2)
    model = OLSEnsembleRegressor(5, 1, random_state=seed).fit(X, y)
    for method in ("cv+", "jackknife+"):
        ends = model.predict_interval(X, 0.95, method)
        assert_array_equal(ends, [[-np.inf, np.inf]] * 8)
        assert np.isfinite(model.predict_interval(X, 0.5, method)).all()


def test_two_rows_give_infinite_standard_errors_of_tuned_models(seed):
    """Half of the rows is one row, from which no choice can be repeated."""
    X, y = correlated_problem(seed, n=2, p=3)
    for kind, fit_intercept in product(TUNED_MODELS, (True, False)):
        with case(kind, fit_intercept):
            model = clone(TUNED_MODELS[kind]).set_params(fit_intercept=fit_intercept).fit(X, y)
            assert_array_equal(model.coef_std(), np.inf)
            assert_array_equal(model.predict(X, return_std=True)[1], np.inf)
            assert_array_equal(model.coef_interval(), [[-np.inf, np.inf]] * 3)
            summary = model.summary()
            assert "std err" in str(summary) and np.isinf(summary.coefficients["std"]).all()


FEW_ROWS = {  # (number of rows, settings); halves have fewer rows than folds or members
    "tuned": [
        (3, {}),
        (4, {"cv": 2}),
        (3, {"cv": "gcv"}),
        (12, {"cv": 12}),
        (12, {"max_samples": 11}),
        (12, {"cv": "oob", "max_samples": 11}),
        (12, {"max_features": [3]}),
        (5, {"max_features": [3]}),
    ],
    "ridge": [(4, {"cv": 2}), (4, {"cv": "gcv"}), (12, {"cv": 12}), (12, {"max_features": [3]})],
    "adaptive": [(3, {}), (4, {"cv": 2}), (12, {"cv": 12})],
}


def test_few_rows_have_standard_errors(seed):
    X, y = correlated_problem(seed, n=12, p=3)
    for kind, cases in FEW_ROWS.items():
        for n_rows, settings in cases:
            model = clone(TUNED_MODELS[kind]).set_params(random_state=seed, **settings)
            with case(model, n_rows):
                model.fit(X[:n_rows], y[:n_rows])
                assert np.all(model.coef_std() > 0)
                assert np.all(model.predict(X, return_std=True)[1] > 0)
        model = clone(TUNED_MODELS[kind]).set_params(random_state=seed)
        expected = model.fit(X[:4], y[:4]).coef_std()
        model.fit(row_blocks(X[:4], y[:4]), None)  # few rows are loaded
        assert_array_equal(model.coef_std(), expected)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.filterwarnings("ignore:members have")
def test_members_that_interpolate_have_unknown_standard_errors_from_moments(fit_intercept, seed):
    """The variance of the errors is not known then: standard errors are infinite, not zero."""
    X, y = correlated_problem(seed, n=2, p=3)
    X[:, 2] = 1.0
    model = OLSEnsembleRegressor(20, 3, fit_intercept=fit_intercept, random_state=seed)
    model.fit(row_blocks(X, y), None)
    assert_array_equal(model.coef_std()[:2], np.inf)
    assert model.coef_std()[2] == (0 if fit_intercept else np.inf)
    assert np.isinf(model.predict(X, return_std=True)[1]).all()
    model.fit(X, y)
    assert np.all(model.coef_std()[:2] > 0) and "std err" in str(model.summary())


@pytest.mark.filterwarnings("ignore:members have")
def test_two_rows_are_held_out_one_at_a_time():
    """Random folds of two rows may be one fold of both, with nothing to train on."""
    for seed in range(30):
        X, y = correlated_problem(seed, n=2, p=3)
        model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
        for method in ("cv+", "jackknife+"):
            lower, upper = model.predict_interval(X, 0.5, method).T
            assert np.isfinite([lower, upper]).all() and np.all(lower <= upper)


# Standard errors from moments, and invariances


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("n_estimators", "size", "scale"), [(1, 5, 1.0), (12, 3, 0.8)])
def test_standard_errors_from_moments_follow_from_the_hat_matrix(
    fit_intercept, n_estimators, size, scale, seed
):
    """Errors have one variance divided by the weight; one member on all columns is the textbook."""
    X, Y = correlated_problem(seed, n=60, p=5, q=2)
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.3, 2, 60)
    new = rng.standard_normal((4, 5))
    model = OLSEnsembleRegressor(
        n_estimators, size, scale=scale, fit_intercept=fit_intercept, random_state=seed
    )
    model.fit(row_blocks(X, Y, weights), None)
    refits = Refits(model, X, Y, weights)
    of_coef, hat, of_predictions = refits.derivatives(new)
    error_df = 60 - 2 * np.trace(hat) + np.trace(hat @ hat)
    variance = weights @ (Y - model.predict(X)) ** 2 / error_df
    refits.check_std(new, of_coef, of_predictions, variance / weights[:, None])


@pytest.mark.parametrize("weighted", [False, True])
def test_engines_agree_on_standard_errors(weighted, seed):
    """Moments give about what rows give where errors have one variance; all moments agree."""
    X, y = correlated_problem(seed, n=2000)
    weights = None
    if weighted:
        weights = np.random.default_rng(seed).integers(1, 3, len(y)).astype(float)
        noise = np.random.default_rng([seed, 3]).standard_normal(len(y)) / np.sqrt(weights)
        y = X @ np.random.default_rng(1).standard_normal(12) + noise
    template = OLSEnsembleRegressor(40, 11, random_state=seed)
    std = {
        engine.name: engine.fit(clone(template), X, y, weights).coef_std()
        for engine in engines(folder=None, names=("memory", "blocks", "dask", "stream"))
    }
    assert_allclose(std["blocks"], std["memory"], rtol=0.2)
    assert_allclose(std.get("dask", std["blocks"]), std["blocks"], rtol=1e-9)
    assert_allclose(std["stream"], std["blocks"], rtol=1e-6)


def test_units_of_columns_and_targets_do_not_matter(seed):
    X, y = correlated_problem(seed)

    def uncertainty(x_unit, y_unit):
        model = OLSEnsembleRegressor(20, 5, scale=0.8, random_state=seed)
        model.fit(X * x_unit, y * y_unit)
        yield model.coef_std() * x_unit / y_unit
        yield model.members_needed(1e-4)
        yield model.coef_interval(0.8).T * x_unit / y_unit
        yield model.predict(X[:3] * x_unit, return_std=True)[1] / y_unit
        for method in ("jackknife+", "jackknife", "cv+", "normal"):
            yield model.predict_interval(X[:3] * x_unit, 0.8, method) / y_unit

    expected = list(uncertainty(1.0, 1.0))
    for units in ((10.0 ** np.arange(-6, 6), 1e45), (2.0**160, 2.0**-160)):
        for quantity, expected_quantity in zip(uncertainty(*units), expected, strict=True):
            with case(units):
                assert_allclose(quantity, expected_quantity, rtol=1e-6)


def test_constant_columns_have_standard_error_zero(seed):
    X, y = correlated_problem(seed)
    X[:, 3] = 7.0
    for engine in ENGINES:
        std = engine.fit(OLSEnsembleRegressor(30, 5, random_state=seed), X, y).coef_std()
        assert std[3] == 0 and (np.delete(std, 3) > 0).all(), engine.name


# How many members are needed


def test_members_needed_do_not_depend_on_the_engine(seed):
    """A hundred batches of six members, which are two of the groups of three that avoid each
    other.
    """
    X, y = correlated_problem(seed, n=300)
    template = OLSEnsembleRegressor(600, 4, random_state=seed)
    coefs = clone(template).fit(X, y).member_coefs().toarray()
    batches = coefs.reshape(100, 6, 12).mean(axis=1)
    variance = np.var(batches @ (X - X.mean(axis=0)).T, axis=0, ddof=1).mean()
    for engine in ENGINES:
        with case(engine.name):
            model = engine.fit(clone(template), X, y)
            lower, upper = model.predict_interval(X[:1], ONE_SE_COVERAGE, "normal")[0]
            n_groups = np.ceil(6 / 3 * variance / (1e-4 * ((upper - lower) / 2) ** 2))
            assert model.members_needed(1e-4) == 3 * n_groups


def test_members_needed_are_enough(seed):
    """Members that avoid each other cancel in whole groups only; the number needed varies as
    little as was asked for.
    """
    for n_columns, size, n_members in [(10, 9, 1000), (5, 4, 50), (8, 4, 1000), (10, 5, 100)]:
        X, y = correlated_problem(seed, n=40, p=n_columns)
        model = OLSEnsembleRegressor(n_members, size, random_state=seed).fit(X, y)
        n_needed = model.members_needed(0.01)
        lower, upper = model.predict_interval(X[:1], ONE_SE_COVERAGE, "normal")[0]
        predictions = [
            OLSEnsembleRegressor(n_needed, size, random_state=state).fit(X, y).predict(X)
            for state in range(60)
        ]
        variance = np.var(predictions, axis=0, ddof=1).mean()
        assert variance < 0.02 * ((upper - lower) / 2) ** 2, (n_columns, size, n_members)


def test_members_that_cannot_vary_are_needed_once(seed):
    X, y = correlated_problem(seed)
    assert OLSEnsembleRegressor(20, 1.0, random_state=seed).fit(X, y).members_needed() <= 1
    constant = np.full(len(y), 3.0)
    model = OLSEnsembleRegressor(20, 6, mixing="stacking", random_state=seed)
    with pytest.warns(UserWarning, match="^column 1 of y is constant, 3"):
        model.fit(X, np.column_stack([y, constant]))
    with pytest.warns(UserWarning, match="^y is constant, 3"):
        model.fit(X, constant)
    assert model.members_needed() == 2 and model.stacking_advantage_ == 0


def test_members_needed_says_what_it_lacks(seed):
    rng = np.random.default_rng([seed, 5])
    X = rng.standard_normal((60, 30))
    y = 3 * X[:, 0] + 0.5 * rng.standard_normal(60)
    stacked = OLSEnsembleRegressor(100, 2, mixing="stacking", random_state=seed).fit(X, y)
    with pytest.raises(ValueError, match="weights"):
        stacked.members_needed()
    with pytest.raises(ValueError, match="4 members"):
        OLSEnsembleRegressor(4, 5, random_state=seed).fit(X, y).members_needed()
