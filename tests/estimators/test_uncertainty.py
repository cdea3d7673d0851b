"""Intervals, standard errors and the draw of the members: exact against refits, alike in all
engines.
"""

import copy
import pickle
import tracemalloc
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)
from olsen._execution import memory

da = pytest.importorskip("dask.array")


def random_problem(seed, n=120, p=12, noise=1.0, q=None):
    rng = np.random.default_rng([seed, 41])
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))
    B = rng.standard_normal((p, q or 1))
    Y = X @ B + noise * rng.standard_normal((n, q or 1))
    return X, Y if q else Y[:, 0]


def in_blocks(X, y, weight=None, step=37):
    """A function that gives the rows in blocks."""

    def blocks():
        for i in range(0, len(X), step):
            here = slice(i, i + step)
            yield (X[here], y[here]) if weight is None else (X[here], y[here], weight[here])

    return blocks


def engines(X, y):
    """The same data in every place; devices are in test_on_device."""
    yield "memory", (X, y)
    yield "sparse", (sp.csr_array(X), y)
    yield "blocks", (in_blocks(X, y), None)
    yield (
        "dask",
        (da.from_array(X, chunks=(50, X.shape[1])), da.from_array(y, chunks=(50, *y.shape[1:]))),
    )


# The jackknife, against refits without each row


class Refits:
    """An ensemble refitted by brute force without each row, and to targets that are one in one row."""

    def __init__(self, model, X, Y, weight):
        self.model, self.X, self.Y, self.weight = model, X, Y.reshape(len(Y), -1), weight
        n = len(self.Y)
        rows = [np.setdiff1d(T, [row]) for row in range(n) for T in model.sample_subsets_]
        found = [self.mean_members(y, n * list(model.feature_subsets_), rows) for y in self.Y.T]
        self.coef, self.intercept = (
            np.stack(parts, axis=-1) for parts in zip(*found, strict=True)
        )  # (n, p, q), (n, q)
        predicted = np.einsum("lp,lpq->lq", X, self.coef) + self.intercept
        self.residual = self.Y - predicted

    def mean_members(self, y, columns, rows):
        """Of every ensemble of those that follow each other in the lists of members."""
        model, given = (
            self.model,
            {"sample_weight": self.weight, "fit_intercept": self.model.fit_intercept},
        )
        coef, intercept = member_coefficients(self.X, y, columns, rows, **given)
        own = [None if self.weight is None else self.weight[T] for T in rows]
        centre = [
            np.average(y[T], weights=w) if model.fit_intercept else 0.0
            for T, w in zip(rows, own, strict=True)
        ]
        shares, scale = model.weights_, model.scale_
        coef, intercept, centre = (
            np.reshape(a, (-1, len(shares), *a.shape[1:]))
            for a in (coef, intercept, np.array(centre))
        )
        return scale * shares @ coef, scale * intercept @ shares + (1 - scale) * centre @ shares

    def intervals(self, new, coverage):
        """By jackknife+ and by the jackknife, (new, q, 2) each."""
        n, rank = len(self.Y), int(np.ceil(coverage * (len(self.Y) + 1)))
        centre = np.einsum("rp,lpq->lrq", new, self.coef) + self.intercept[:, None]
        width = np.abs(self.residual)[:, None]
        low, high = (
            np.sort(centre - width, axis=0)[n - rank],
            np.sort(centre + width, axis=0)[rank - 1],
        )
        half = np.sort(width[:, 0], axis=0)[rank - 1]
        middle = self.model.predict(new).reshape(len(new), -1)
        ends = np.sort(
            np.stack([low, high], axis=2), axis=2
        )  # which may cross where the coverage is low
        return ends, np.stack([middle - half, middle + half], axis=2)

    def derivatives(self, new):
        """With respect to the targets: of coefficients (p, n), of fitted values (n, n), of
        predictions (new, n).
        """
        n = len(self.Y)
        members = list(self.model.feature_subsets_), list(self.model.sample_subsets_)
        columns = [[found[0] for found in self.mean_members(y, *members)] for y in np.eye(n)]
        coef, intercept = (np.stack(parts, axis=-1) for parts in zip(*columns, strict=True))
        return coef, self.X @ coef + intercept, new @ coef + intercept

    def check_std(self, given, coef, there, variances):
        """Standard errors, from two derivatives and the variances (n, q) of the targets."""
        found = self.model.predict(given, return_std=True)[1].reshape(len(there), -1)
        np.testing.assert_allclose(found, np.sqrt(there**2 @ variances), rtol=1e-8)
        found = np.atleast_2d(self.model.coef_std()).T
        np.testing.assert_allclose(found, np.sqrt(coef**2 @ variances), rtol=1e-7, atol=1e-12)

    def check(self, new, given=None):
        """Everything that the model says of coefficients and new rows."""
        given = new if given is None else given
        for coverage, rtol in (
            (0.3, 1e-8),
            (0.8, 1e-8),
            (0.985, 1e-7),
        ):  # the last one by the row that is furthest off
            for method, expected in zip(
                ("auto", "jackknife"), self.intervals(new, coverage), strict=True
            ):
                found = self.model.predict_interval(given, coverage, method).reshape(expected.shape)
                np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-8)
        middle = self.model.predict(given).reshape(len(new), -1)
        high = self.model.predict_interval(given, 0.95, method="normal")[..., 1].reshape(
            middle.shape
        )
        half = 1.959963984540054 * np.sqrt(np.mean(self.residual**2, axis=0))
        np.testing.assert_allclose(high, middle + half, rtol=1e-7, atol=1e-8)
        (coef, H, there), n = self.derivatives(new), len(self.Y)
        df = np.trace(H) / n
        shrink = min(1.0, (1 - df) ** 2 / (1 - 2 * df + np.sum(H**2) / n))
        self.check_std(given, coef, there, shrink * self.residual**2)


def odd(X, kind, rng):
    """Columns and rows that need care."""
    X = X.copy()
    if kind == "dependent columns":
        X[:, 1], X[:, 2] = X[:, 0], X[:, 3] - 2 * X[:, 4]
    if kind == "nearly dependent columns":
        X[:, 1] = X[:, 0] + 1e-3 * rng.standard_normal(len(X))
    if kind == "rows of leverage one":
        X[:, :3] = 0.0
        X[[5, 30, 66], [0, 1, 2]] = 1.0
    if kind == "rows far out":
        X[5] *= 1e3
        X[66, 3] = 1e5
    if kind == "constant columns":
        X[:, 0], X[:, 1] = 3.7, 0.0
    if kind == "far from zero":
        X += 100.0
    return X


KINDS = (
    "ordinary",
    "dependent columns",
    "nearly dependent columns",
    "rows of leverage one",
    "rows far out",
    "constant columns",
    "far from zero",
)
MEMBERS = {
    "few columns": {"max_features": 4},
    "most columns": {
        "max_features": 11,
        "n_estimators": 34,
    },  # by what they leave out, in two batches
    "of many sizes": {"max_features": 0.5, "sampling": "bernoulli"},
    "on some rows": {"max_features": 6, "max_samples": 0.4},
    "as many columns as rows": {"max_features": 10, "max_samples": 8},
    "weighted": {"max_features": 5, "mixing": "stacking"},
}


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.filterwarnings("ignore:members have")
def test_everything_equals_refits(members, seed):
    """Several blocks of rows and batches of members, in threads, of every kind."""
    for kind in KINDS:
        rng = np.random.default_rng([seed, 3])
        X, y = random_problem(seed, n=70)
        X = odd(X, kind, rng)
        how = {"n_estimators": 10, "random_state": seed, "n_jobs": 2} | MEMBERS[members]
        new = rng.standard_normal((4, 12)) + np.median(X, axis=0)
        with case(kind):
            if members == "weighted":
                Refits(OLSEnsembleRegressor(**how).fit(X, y), X, y, None).check(new)
                continue
            Y = np.column_stack([y, X[:, 4] - 2 * rng.standard_normal(70)])
            weight = rng.uniform(0.3, 2, 70)
            Refits(OLSEnsembleRegressor(scale=0.8, **how).fit(X, Y, weight), X, Y, weight).check(
                new
            )


def test_everything_equals_refits_without_intercept_and_of_sparse_rows(seed):
    rng = np.random.default_rng([seed, 4])
    X, y = random_problem(seed, n=70)
    X[rng.random(X.shape) < 0.5] = 0.0
    new = rng.standard_normal((4, 12))
    for members in ("few columns", "most columns", "on some rows"):
        how = {"n_estimators": 10, "random_state": seed, "fit_intercept": False} | MEMBERS[members]
        with case(members):
            Refits(OLSEnsembleRegressor(**how).fit(sp.csr_array(X), y), X, y, None).check(
                new, sp.csr_array(new)
            )


@pytest.mark.filterwarnings("ignore:members have")
def test_threads_change_no_bit(seed):
    for shape in [(300, 60), (1000, 20), (70, 200)]:
        X, y = random_problem(seed, *shape)
        rng = np.random.default_rng(seed)
        new, weight = rng.standard_normal((30, shape[1])), rng.uniform(0.5, 2, shape[0])
        models = [
            OLSEnsembleRegressor(60, 0.5, random_state=seed, n_jobs=j).fit(X, y, weight)
            for j in (1, 2, 3)
        ]
        found = [
            (model.predict_interval(new), model.predict(new, return_std=True)[1])
            for model in models
        ]
        for ends, std in found[1:]:
            assert np.array_equal(ends, found[0][0]) and np.array_equal(std, found[0][1]), shape


def test_where_memory_is_missing_the_jackknife_is_there(seed, monkeypatch):
    X, y = random_problem(seed, n=3000, p=300)
    model = OLSEnsembleRegressor(3, 2, random_state=seed).fit(X, np.column_stack([y] * 10))
    monkeypatch.setattr(memory, "available_bytes", lambda: 7e7)
    with pytest.raises(MemoryError, match=r"3000.*300.*72 MB.*method='jackknife'"):
        model.predict_interval(X[:5], method="jackknife+")
    assert np.isfinite(model.predict_interval(X[:5], method="jackknife")).all()
    np.testing.assert_array_equal(
        model.predict_interval(X[:5]), model.predict_interval(X[:5], method="cv+")
    )


def test_the_jackknife_keeps_little_beside_the_rows(seed):
    """Less than another copy of X, which the changes of all coefficients by all rows would be."""
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


def test_a_member_without_columns_is_the_mean(seed):
    X, y = random_problem(seed, n=70)
    models = (
        OLSEnsembleRegressor(1, 1, sampling="bernoulli", random_state=100 * seed + i)
        for i in range(100)
    )
    model = next(model for model in models if not model.fit(X, y).feature_subsets_.sizes[0])
    Refits(model, X, y, None).check(np.random.default_rng(seed).standard_normal((4, 12)))


def test_coverage_of_new_observations(seed):
    """Over 60 training sets the share of new observations inside is within 4 standard errors of the
    nominal 90 %.
    """
    rng = np.random.default_rng(seed)
    inside = []
    for trial in range(60):
        X, new = rng.standard_normal((80, 40)), rng.standard_normal((50, 40))
        beta = rng.standard_normal(40) / np.sqrt(40)
        model = OLSEnsembleRegressor(20, 15, random_state=trial).fit(
            X, X @ beta + rng.standard_normal(80)
        )
        ends = model.predict_interval(new)
        target = new @ beta + rng.standard_normal(50)
        inside.append(np.mean((ends[:, 0] <= target) & (target <= ends[:, 1])))
    assert (
        abs(np.mean(inside) - 0.9) < 4 * np.std(inside, ddof=1) / np.sqrt(60) + 0.5 / 80
    )  # ranks are multiples of 1/81


def test_standard_error_is_the_spread_over_training_sets(seed):
    """Mean squared standard error against the variance of predictions over 300 training sets,
    within 4 standard errors.

    The formula is asymptotic: 5 % are allowed on top.
    """
    rng = np.random.default_rng(seed)
    beta = rng.standard_normal(30) / np.sqrt(30)
    new = rng.standard_normal((40, 30))
    predictions, squares = [], []
    for _ in range(300):
        X = rng.standard_normal((90, 30))
        model = OLSEnsembleRegressor(10, 10, fit_intercept=False, random_state=1)
        y, std = model.fit(X, X @ beta + rng.standard_normal(90)).predict(new, return_std=True)
        predictions.append(y)
        squares.append(std**2)
    variance = np.var(predictions, axis=0, ddof=1).mean()
    ratio = np.mean(squares) / variance
    deviations = np.mean((np.array(predictions) - np.mean(predictions, axis=0)) ** 2, axis=1)
    spread = np.std(deviations / variance, ddof=1) / np.sqrt(300)
    assert abs(ratio - 1) < 4 * spread + 0.05


def cv_plus_by_hand(model, X, y, new, splits, coverage, n_groups):
    """Barber et al.'s definition: refits of the same members without each fold, n values, two order
    statistics.
    """
    low, high = [], []
    for train, test in splits:
        refit = clone(model).set_params(scale=model.scale_).fit(X[train], y[train])
        off, there = np.abs(y[test] - refit.predict(X[test])), refit.predict(new)
        low.append(there[:, None] - off)
        high.append(there[:, None] + off)
    low, high = np.sort(np.hstack(low), axis=1), np.sort(np.hstack(high), axis=1)
    n = low.shape[1]
    rank = int(np.ceil(coverage * (n_groups + 1) / n_groups * n - 1e-9))
    return np.column_stack([low[:, n - rank], high[:, rank - 1]])


def test_cv_plus_is_its_definition(seed):
    """Folds of the tuned estimator, members of one size: refitted one by one. Groups count where
    there are some.
    """
    X, y = random_problem(seed)
    new, groups = np.random.default_rng(seed).standard_normal((9, 12)), np.arange(120) // 3
    for max_samples, cv, fit, count in (
        (1.0, KFold(4), {}, 120),
        (0.7, GroupKFold(4), {"groups": groups}, 40),
    ):
        splits, how = (
            list(cv.split(X, None, *fit.values())),
            {"scale": 0.9, "max_samples": max_samples, "random_state": seed},
        )
        tuned = OLSEnsembleRegressorCV(30, [5], cv=cv, **how).fit(X, y, **fit)
        plain = OLSEnsembleRegressor(30, 5, **how).fit(X, y)
        np.testing.assert_allclose(tuned.coef_, plain.coef_, rtol=1e-9)
        for coverage in (0.8, 0.9):
            expected = cv_plus_by_hand(plain, X, y, new, splits, coverage, count)
            np.testing.assert_allclose(
                tuned.predict_interval(new, coverage, "cv+"), expected, rtol=1e-7
            )


def test_cv_plus_has_one_answer_for_all_places(seed):
    """Blocks, Dask and files cut the same folds, however rows are cut."""
    X, y = random_problem(seed, n=400)
    new = np.random.default_rng(seed).standard_normal((9, 12))
    found = {
        name: (
            OLSEnsembleRegressor(30, 5, random_state=seed)
            .fit(*data)
            .predict_interval(new, 0.8, "cv+")
        )
        for name, data in [*engines(X, y), ("other blocks", (in_blocks(X, y, step=91), None))]
    }
    np.testing.assert_allclose(found["dask"], found["blocks"], rtol=1e-9)
    np.testing.assert_allclose(found["other blocks"], found["blocks"], rtol=1e-9)
    np.testing.assert_allclose(found["sparse"], found["memory"], rtol=1e-7)
    width = np.diff(found["memory"]).mean()
    assert abs(np.diff(found["blocks"]).mean() / width - 1) < 0.25  # five folds there, ten here


INTERVALS = {
    "fixed": OLSEnsembleRegressor(40, 6),
    "tuned": OLSEnsembleRegressorCV(40),
    "tuned ridge regression": OLSEnsembleRegressorCV(sampling="determinantal"),
    "adaptive": AdaptiveOLSEnsembleRegressor(n_estimators=40),
}


@pytest.mark.parametrize("kind", INTERVALS)
def test_every_place_gives_intervals_by_default(kind, seed):
    X, y = random_problem(seed, n=600)
    for name, data in engines(X, y):
        model = clone(INTERVALS[kind])
        ends = model.set_params(random_state=seed).fit(*data).predict_interval(X[:50])
        inside = (ends[:, 0] <= y[:50]) & (y[:50] <= ends[:, 1])
        assert ends.shape == (50, 2) and inside.mean() > 0.7, name


def test_weights_count_in_folds(seed):
    """A weight of zero equals a dropped row; weights go into the refits."""
    X, y = random_problem(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    splits = [(np.arange(40, 120), np.arange(40)), (np.arange(80), np.arange(80, 120))]
    given = {"max_features": [5], "scale": 1.0, "random_state": seed}
    model = OLSEnsembleRegressorCV(30, cv=splits, **given).fit(X, y, sample_weight=weight)
    found = model.predict_interval(X[:3], 0.8, "cv+")
    kept = weight > 0
    place = np.cumsum(kept) - 1
    fewer = [(place[train[kept[train]]], place[test[kept[test]]]) for train, test in splits]
    again = OLSEnsembleRegressorCV(30, cv=fewer, **given).fit(
        X[kept], y[kept], sample_weight=weight[kept]
    )
    np.testing.assert_allclose(found, again.predict_interval(X[:3], 0.8, "cv+"), rtol=1e-9)
    unweighted = OLSEnsembleRegressorCV(30, cv=fewer, **given).fit(X[kept], y[kept])
    assert np.abs(found / unweighted.predict_interval(X[:3], 0.8, "cv+") - 1).max() > 1e-4


def test_groups_are_left_out_whole(seed):
    """Rows that come five times each: without their group the error is what it is for new rows."""
    X, y = random_problem(seed, n=60, p=30, noise=2.0)
    X, y, groups = np.repeat(X, 5, axis=0), np.repeat(y, 5), np.repeat(np.arange(60), 5)
    model = AdaptiveOLSEnsembleRegressor(n_estimators=50, cv=GroupKFold(5), random_state=seed).fit(
        X, y, groups=groups
    )
    width = np.diff(model.predict_interval(X[:20], 0.9)).mean()
    with pytest.warns(UserWarning, match="rows repeat others"):
        alone = OLSEnsembleRegressorCV(50, random_state=seed).fit(X, y)
    assert width > 1.3 * np.diff(alone.predict_interval(X[:20], 0.9)).mean()
    with pytest.warns(
        UserWarning, match="240 of 300 rows repeat others, with their targets.*merged"
    ):
        merged = AdaptiveOLSEnsembleRegressor(n_estimators=50, random_state=seed).fit(X, y)
    assert 0.6 < width / np.diff(merged.predict_interval(X[:20], 0.9)).mean() < 1.5
    for method in ("jackknife+", "jackknife"):
        with pytest.raises(ValueError, match=r"groups.*cv\+"):
            model.predict_interval(X, method=method)
    np.testing.assert_array_equal(
        model.predict_interval(X[:3]), model.predict_interval(X[:3], method="cv+")
    )


def test_too_few_rows_give_the_whole_line(seed):
    X, y = random_problem(seed, n=8, p=2)
    model = OLSEnsembleRegressor(5, 1, random_state=seed).fit(X, y)
    for method in ("cv+", "jackknife+"):
        np.testing.assert_array_equal(
            model.predict_interval(X, 0.95, method), [[-np.inf, np.inf]] * 8
        )
        assert np.isfinite(model.predict_interval(X, 0.5, method)).all()


@pytest.mark.parametrize("coverage", [0.01, 0.05, 0.2, 0.8])
def test_lower_ends_are_below_upper_ends(coverage, seed):
    X, y = random_problem(seed, n=30, p=5)
    new = 3 * np.random.default_rng(seed).standard_normal((500, 5))
    for model in (
        OLSEnsembleRegressor(20, 3, random_state=seed),
        OLSEnsembleRegressorCV(20, random_state=seed),
        OLSEnsembleRegressorCV(sampling="determinantal"),
        AdaptiveOLSEnsembleRegressor(),
    ):
        model.fit(X, y)
        for method in ("auto", "cv+", "normal"):
            lower, upper = model.predict_interval(new, coverage, method).T
            assert np.all(lower <= upper)
        lower, upper = model.coef_interval(coverage).T
        assert np.all(lower <= upper)


def test_two_rows_do_not_tell_how_far_a_choice_varies(seed):
    """Where a part of the rows is one row, standard errors are infinite, and so are their
    intervals.
    """
    X, y = random_problem(seed, n=2, p=3)
    tuned = (
        AdaptiveOLSEnsembleRegressor(),
        OLSEnsembleRegressorCV(),
        OLSEnsembleRegressorCV(sampling="determinantal"),
    )
    for model, fit_intercept in product(tuned, (True, False)):
        model.set_params(fit_intercept=fit_intercept).fit(X, y)
        with case(model):
            np.testing.assert_array_equal(model.coef_std(), np.inf)
            np.testing.assert_array_equal(model.predict(X, return_std=True)[1], np.inf)
            np.testing.assert_array_equal(model.coef_interval(), [[-np.inf, np.inf]] * 3)
            summary = model.summary()
            assert "std err" in str(summary) and np.isinf(summary.coefficients["std"]).all()


def test_few_rows_have_standard_errors_or_a_word(seed):
    """In parts of the rows there may be fewer rows than folds, or than a member was to be given."""
    X, y = random_problem(seed, n=12, p=3)
    of_sizes = (
        (3, {}),
        (4, {"cv": 2}),
        (3, {"cv": "gcv"}),
        (12, {"cv": 12}),
        (12, {"max_samples": 11}),
        (12, {"cv": "oob", "max_samples": 11}),
        (12, {"max_features": [3]}),
        (5, {"max_features": [3]}),
    )
    of_schemes = ((3, {}), (4, {"cv": 2}), (12, {"cv": 12}))
    for make, cases in (
        (OLSEnsembleRegressorCV, of_sizes),
        (AdaptiveOLSEnsembleRegressor, of_schemes),
    ):
        for rows, settings in cases:
            with case(make, rows, settings):
                model = make(n_estimators=20, random_state=seed, **settings).fit(X[:rows], y[:rows])
                assert np.all(model.coef_std() > 0) and np.all(
                    model.predict(X, return_std=True)[1] > 0
                )
    for rows, settings in (
        (4, {"cv": 2}),
        (4, {"cv": "gcv"}),
        (12, {"cv": 12}),
        (12, {"max_features": [3]}),
    ):
        with case("determinantal", rows, settings):
            model = OLSEnsembleRegressorCV(sampling="determinantal", **settings).fit(
                X[:rows], y[:rows]
            )
            assert np.all(model.coef_std() > 0) and np.all(model.predict(X, return_std=True)[1] > 0)
    for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        model = make(n_estimators=20, random_state=seed).fit(
            in_blocks(X[:4], y[:4]), None
        )  # which loads few rows
        loaded = make(n_estimators=20, random_state=seed).fit(X[:4], y[:4])
        np.testing.assert_array_equal(model.coef_std(), loaded.coef_std())


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.filterwarnings("ignore:members have")
def test_members_that_fit_every_row_leave_no_residual_to_judge_by(fit_intercept, seed):
    """From moments the variance of the errors is not known then, which is not none."""
    X, y = random_problem(seed, n=2, p=3)
    X[:, 2] = 1.0
    model = OLSEnsembleRegressor(20, 3, fit_intercept=fit_intercept, random_state=seed).fit(
        in_blocks(X, y), None
    )
    np.testing.assert_array_equal(model.coef_std()[:2], np.inf)
    assert model.coef_std()[2] == (0 if fit_intercept else np.inf)
    assert np.isinf(model.predict(X, return_std=True)[1]).all()
    memory = OLSEnsembleRegressor(20, 3, fit_intercept=fit_intercept, random_state=seed).fit(X, y)
    assert np.all(memory.coef_std()[:2] > 0) and "std err" in str(memory.summary())


@pytest.mark.filterwarnings("ignore:members have")
def test_two_rows_are_left_out_one_at_a_time():
    """Ten random folds of two rows may be one fold of both, with nothing to train on."""
    for seed in range(30):
        X, y = random_problem(seed, n=2, p=3)
        model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
        for method in ("cv+", "jackknife+"):
            found = model.predict_interval(X, 0.5, method)
            assert np.isfinite(found).all() and np.all(found[:, 0] <= found[:, 1])


def test_several_targets_are_those_one_by_one(seed):
    X, Y = random_problem(seed, q=3)
    both, *alone = (OLSEnsembleRegressor(30, 5, random_state=seed).fit(X, y) for y in (Y, *Y.T))
    std = both.predict(X[:4], return_std=True)[1]
    assert both.coef_std().shape == both.coef_.shape == (3, 12) and both.coef_interval().shape == (
        3,
        12,
        2,
    )
    ends = both.coef_[:, :, None] + 1.2815515655446004 * both.coef_std()[:, :, None] * np.array(
        [-1, 1]
    )
    np.testing.assert_allclose(both.coef_interval(0.8), ends, rtol=1e-12, atol=1e-12)
    for t, one in enumerate(alone):
        np.testing.assert_allclose(both.coef_std()[t], one.coef_std(), rtol=1e-9)
        np.testing.assert_allclose(std[:, t], one.predict(X[:4], return_std=True)[1], rtol=1e-9)
        for method in ("jackknife+", "jackknife", "cv+", "normal"):
            ends = both.predict_interval(X[:4], 0.8, method)
            assert ends.shape == (4, 3, 2)
            np.testing.assert_allclose(
                ends[:, t], one.predict_interval(X[:4], 0.8, method), rtol=1e-9, err_msg=method
            )
    with pytest.raises(ValueError, match="coverage"):
        both.coef_interval(1.0)


def test_the_normal_law_takes_the_error_that_was_found(seed):
    X, y = random_problem(seed)
    for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        model = make(n_estimators=30, random_state=seed).fit(X, y)
        half = 1.6448536269514722 * np.sqrt(-model.best_score_)
        expected = model.predict(X)[:, None] + np.array([-half, half])
        np.testing.assert_allclose(model.predict_interval(X, 0.9, "normal"), expected, rtol=1e-12)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_allclose(again.predict_interval(X, 0.9, "normal"), expected, rtol=1e-12)


def test_new_rows_may_be_many(seed):
    """Blocks of new rows give what one row at a time gives."""
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
    new = np.random.default_rng(seed).standard_normal((20_000, 12))
    found = model.predict_interval(new, 0.8, "cv+")
    np.testing.assert_allclose(
        found[[7, 19_999]], model.predict_interval(new[[7, 19_999]], 0.8, "cv+"), rtol=1e-12
    )
    np.testing.assert_allclose(
        model.predict_interval(sp.csr_array(new[:50]), 0.8, "cv+"), found[:50], rtol=1e-12
    )


def test_changed_rows_are_noticed(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
    X[:] = X[::-1].copy()
    for ask in (
        lambda: model.predict_interval(X, method="cv+"),
        model.coef_std,
        lambda: model.coef_interval(),
    ):
        with pytest.raises(ValueError, match="changed in place"):
            ask()
    with pytest.raises(ValueError, match="changed"):
        model.members_needed()


def units(kind, seed):
    """Columns of which one is 1e9 times larger than the others, few and many of them, in several
    containers.
    """
    rng = np.random.default_rng(seed)
    n = 30_000 if "many" in kind else 60
    X = rng.standard_normal((n, 4)) * [1.0, 1.0, 1e9, 1.0]
    y = X @ [1.0, -1.0, 1e-9, 0.5] + rng.standard_normal(n)
    if "float32" in kind:
        return X.astype(np.float32), y
    return sp.csc_array(X) if "sparse" in kind else X, y


def change_column(X, column, factor):
    """In place, whatever X is."""
    if sp.issparse(X):
        X.data[X.indptr[column] : X.indptr[column + 1]] *= factor
    else:
        X[:, column] *= factor


@pytest.mark.parametrize(
    "kind", ["few rows", "many rows", "few sparse", "many sparse", "few float32", "many float32"]
)
@pytest.mark.parametrize(("column", "factor"), [(0, 1000.0), (1, -1.0), (2, 2.0), (3, 1.0001)])
def test_a_change_of_any_column_is_noticed_whatever_the_units(kind, column, factor, seed):
    X, y = units(kind, seed)
    model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
    change_column(X, column, factor)
    for ask in (
        model.coef_std,
        model.coef_interval,
        lambda: model.predict_interval(X[:2]),
        lambda: model.predict(X[:2], return_std=True),
        lambda: model.member_coefs(2),
        model.members_needed,
        model.summary,
    ):
        with pytest.raises(ValueError, match="changed in place"):
            ask()


def test_one_entry_and_the_order_of_rows_count(seed):
    for kind in ("few rows", "many rows"):
        X, y = units(kind, seed)
        model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y)
        saved = X.copy()
        X[7, 0] += 0.5
        with case(kind, "an entry"), pytest.raises(ValueError, match="changed in place"):
            model.member_coefs()
        X[:] = saved[::-1]
        with case(kind, "the order"), pytest.raises(ValueError, match="changed in place"):
            model.member_coefs()
        X[:] = saved
        assert model.member_coefs().shape == (5, 4)


@pytest.mark.parametrize(
    "make", [OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor]
)
def test_a_summary_says_that_rows_were_changed(make, seed):
    """Also where standard errors were asked for before, and are known."""
    X, y = random_problem(seed, n=40, p=4)
    model = make(random_state=seed).fit(X, y)
    before = model.summary()
    X *= 1000
    for ask in (model.summary, lambda: before.coefficients["member_mean"]):
        with pytest.raises(ValueError, match="changed in place"):
            ask()
    X /= 1000
    X[:] = random_problem(seed, n=40, p=4)[0]
    assert str(model.summary()) == str(before)


# What was set after the fit


LATER = {
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


def uncertainty_of(model, X):
    """What is computed from a fit when it is asked for."""
    return [
        model.coef_std(),
        model.predict(X[:3], return_std=True)[1],
        model.predict_interval(X[:3]),
        model.member_coefs(5).toarray(),
        model.summary().coefficients["effect"].to_numpy(),
        model.to_linear_regression().fit_intercept,
    ]


@pytest.mark.parametrize(
    "make", [OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor]
)
def test_parameters_set_after_a_fit_change_nothing_of_it(make, seed):
    X, y = random_problem(seed, n=40, p=4)
    model = make(random_state=seed).fit(X, y)
    expected = uncertainty_of(make(random_state=seed).fit(X, y), X)
    changed = copy.deepcopy(model).set_params(**LATER[make])
    kept = pickle.loads(pickle.dumps(changed))
    for one in (
        changed,
        model,
        kept,
    ):  # the copy first: it shares what is known of the fit with the original
        for got, wanted in zip(uncertainty_of(one, X), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)
    if make is AdaptiveOLSEnsembleRegressor:
        changed.set_params(schemes=["ridge", "power"])
    assert (
        np.abs(changed.fit(X, y).coef_std() - expected[0]).max() > 1e-6
    )  # of their own fit they are


def test_data_that_are_gone_or_others(seed):
    X, y = random_problem(seed, n=300)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(iter(in_blocks(X, y)()), None)
    for ask in (
        lambda: model.predict_interval(X),
        model.coef_std,
        model.members_needed,
        lambda: model.predict(X, return_std=True),
    ):
        with pytest.raises(ValueError, match="iterator"):
            ask()
    rows = [X, y]
    model.fit(lambda: in_blocks(*rows)(), None)
    rows[0], rows[1] = X[:200], y[:200]
    with pytest.raises(ValueError, match=r"300 rows.*200"):
        model.predict_interval(X)
    rows[0], rows[1] = X, 50 * y + 1000
    with pytest.raises(ValueError, match="other coefficients"):
        model.predict_interval(X)
    rows[0], rows[1] = X[::-1] ** 2, y
    with pytest.raises(ValueError, match="other coefficients"):
        model.coef_std()


def test_pickles_answer_if_they_hold_the_rows(seed):
    """Copies are in test_contract."""
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(60, 5, random_state=seed).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.coef_std(), model.coef_std(), rtol=1e-9)
    assert again.members_needed(1e-4) == model.members_needed(1e-4)
    np.testing.assert_allclose(
        again.predict_interval(X[:3]), model.predict_interval(X[:3]), rtol=1e-9
    )
    gone = pickle.loads(pickle.dumps(model.set_params(keep_rows=False)))
    for ask in (
        gone.coef_std,
        gone.members_needed,
        lambda: gone.predict_interval(X),
        lambda: gone.predict_interval(X, 0.9, "normal"),
    ):
        with pytest.raises(ValueError, match="fit"):
            ask()


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_from_moments_they_follow_from_the_hat_matrix(fit_intercept, seed):
    """Errors of one variance, over the weight; of one member on all columns that is the textbook."""
    X, Y = random_problem(seed, n=60, p=5, q=2)
    rng = np.random.default_rng(seed)
    weight, new = rng.uniform(0.3, 2, 60), rng.standard_normal((4, 5))
    for k, size, scale in ((1, 5, 1.0), (12, 3, 0.8)):
        model = OLSEnsembleRegressor(
            k, size, scale=scale, fit_intercept=fit_intercept, random_state=seed
        )
        refits = Refits(model.fit(in_blocks(X, Y, weight), None), X, Y, weight)
        coef, H, there = refits.derivatives(new)
        variance = weight @ (Y - model.predict(X)) ** 2 / (60 - 2 * np.trace(H) + np.trace(H @ H))
        with case(k, size, scale):
            refits.check_std(new, coef, there, variance / weight[:, None])


@pytest.mark.parametrize("weighted", [False, True])
def test_places_agree_on_standard_errors(weighted, seed):
    """With errors of one variance, moments tell about what rows tell; blocks and Dask tell the
    same.
    """
    X, y = random_problem(seed, n=2000)
    weight = np.random.default_rng(seed).integers(1, 3, len(y)).astype(float) if weighted else None
    if weighted:
        noise = np.random.default_rng([seed, 3]).standard_normal(len(y)) / np.sqrt(weight)
        y = X @ np.random.default_rng(1).standard_normal(12) + noise
    there = OLSEnsembleRegressor(40, 11, random_state=seed).fit(X, y, sample_weight=weight)
    blocks = OLSEnsembleRegressor(40, 11, random_state=seed).fit(in_blocks(X, y, weight), None)
    np.testing.assert_allclose(blocks.coef_std(), there.coef_std(), rtol=0.2)
    parts = [
        None if a is None else da.from_array(a, chunks=(300, *a.shape[1:])) for a in (X, y, weight)
    ]
    cluster = OLSEnsembleRegressor(40, 11, random_state=seed).fit(
        parts[0], parts[1], sample_weight=parts[2]
    )
    np.testing.assert_allclose(cluster.coef_std(), blocks.coef_std(), rtol=1e-9)
    stream = OLSEnsembleRegressor(40, 11, random_state=seed)
    for block in in_blocks(X, y, weight)():
        stream.partial_fit(*block)
    np.testing.assert_allclose(stream.coef_std(), blocks.coef_std(), rtol=1e-6)


def test_units_of_columns_and_targets(seed):
    X, y = random_problem(seed)

    def everything(x, y_unit):
        model = OLSEnsembleRegressor(20, 5, scale=0.8, random_state=seed).fit(X * x, y * y_unit)
        yield model.coef_std() * x / y_unit
        yield model.members_needed(1e-4)
        yield model.coef_interval(0.8).T * x / y_unit
        yield model.predict(X[:3] * x, return_std=True)[1] / y_unit
        for method in ("jackknife+", "jackknife", "cv+", "normal"):
            yield model.predict_interval(X[:3] * x, 0.8, method) / y_unit

    for units in ((10.0 ** np.arange(-6, 6), 1e45), (2.0**160, 2.0**-160)):
        for found, expected in zip(everything(*units), everything(1.0, 1.0), strict=True):
            with case(units):
                np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_constant_columns_do_not_vary(seed):
    X, y = random_problem(seed)
    X[:, 3] = 7.0
    for data in ((X, y), (in_blocks(X, y), None)):
        model = OLSEnsembleRegressor(30, 5, random_state=seed).fit(*data)
        assert model.coef_std()[3] == 0 and (np.delete(model.coef_std(), 3) > 0).all()


def test_another_draw_of_all_subsets_is_the_same(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 1.0, random_state=seed).fit(X, y)
    assert model.members_needed() <= 1


def test_places_agree_on_the_draw(seed):
    """A hundred batches of six members, which are two of the groups of three that avoid each other."""
    X, y = random_problem(seed, n=300)
    for name, data in engines(X, y):
        model = OLSEnsembleRegressor(600, 4, random_state=seed).fit(*data)
        if name == "memory":
            batches = model.member_coefs().toarray().reshape(100, 6, 12).mean(axis=1)
            variance = np.var(batches @ (X - X.mean(axis=0)).T, axis=0, ddof=1).mean()
        low, high = model.predict_interval(X[:1], 0.6826894921370859, "normal")[0]
        with case(name):
            assert model.members_needed(1e-4) == 3 * np.ceil(
                6 / 3 * variance / (1e-4 * ((high - low) / 2) ** 2)
            )


def test_members_needed_are_enough(seed):
    """Members that avoid each other cancel in whole groups only: so many vary as little as was
    asked for.
    """
    for p, size, k in [(10, 9, 1000), (5, 4, 50), (8, 4, 1000), (10, 5, 100)]:
        X, y = random_problem(seed, n=40, p=p)
        needed = (
            model := OLSEnsembleRegressor(k, size, random_state=seed).fit(X, y)
        ).members_needed(0.01)
        low, high = model.predict_interval(X[:1], 0.6826894921370859, "normal")[0]
        there = [
            OLSEnsembleRegressor(needed, size, random_state=s).fit(X, y).predict(X)
            for s in range(60)
        ]
        assert np.var(there, axis=0, ddof=1).mean() < 0.02 * ((high - low) / 2) ** 2, (p, size, k)


def test_what_cannot_vary_needs_one_group(seed):
    X, y = random_problem(seed)
    constant, model = (
        np.full(len(y), 3.0),
        OLSEnsembleRegressor(20, 6, mixing="stacking", random_state=seed),
    )
    with pytest.warns(UserWarning, match="^column 1 of y is constant, 3"):
        model.fit(X, np.column_stack([y, constant]))
    with pytest.warns(UserWarning, match="^y is constant, 3"):
        model.fit(X, constant)
    assert model.members_needed() == 2 and model.stacking_advantage_ == 0


def test_stacked_members_cannot_tell(seed):
    rng = np.random.default_rng([seed, 5])
    X = rng.standard_normal((60, 30))
    y = 3 * X[:, 0] + 0.5 * rng.standard_normal(60)
    model = OLSEnsembleRegressor(100, 2, mixing="stacking", random_state=seed).fit(X, y)
    with pytest.raises(ValueError, match="weights"):
        model.members_needed()


def test_streams_say_what_they_lack(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).partial_fit(X, y)
    for method in ("auto", "jackknife+", "cv+", "normal"):
        with pytest.raises(ValueError, match=r"predict_interval.*fit"):
            model.predict_interval(X, method=method)


def test_few_members_cannot_tell(seed):
    X, y = random_problem(seed)
    with pytest.raises(ValueError, match="4 members"):
        OLSEnsembleRegressor(4, 5, random_state=seed).fit(X, y).members_needed()
    with pytest.raises(ValueError, match="share"):
        OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y).members_needed(0)
