"""Intervals and standard errors: exact against refits, and right on average."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from olsen import OLSEnsembleRegressor, member_coefficients
from olsen._estimators import uncertainty
from olsen._execution import memory
from test_members import random_problem


def without_row(model, X, y, weight, row):
    """The same members refitted by brute force without one row."""
    rows = [np.setdiff1d(T, [row]) for T in model.sample_subsets_]
    coef, intercept = member_coefficients(X, y, model.feature_subsets_, rows, sample_weight=weight)
    centre = np.mean([np.average(y[T], weights=None if weight is None else weight[T]) for T in rows])
    scale = model.scale_
    return scale * coef.mean(axis=0), scale * intercept.mean() + (1 - scale) * centre


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_features": 0.3},
        {"max_features": 0.3, "max_samples": 0.6},
        {"max_features": 0.9, "max_samples": 0.4},
        {"max_features": 0.4, "scale": 0.6},
        {"max_features": 0.4, "scale": 1.3, "max_samples": 0.7},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.filterwarnings("ignore:members have 10 columns")
def test_jackknife_equals_refits(kwargs, weighted, seed):
    X, y = random_problem(seed, n=25, p=12)
    weight = np.random.default_rng(seed).uniform(0.3, 2, 25) if weighted else None
    model = OLSEnsembleRegressor(9, random_state=seed, **kwargs).fit(X, y, weight)
    new = np.random.default_rng(seed + 1).standard_normal((6, 12))
    ends = np.empty((25, 6, 2))
    residual = np.empty(25)
    for row in range(25):
        coef, intercept = without_row(model, X, y, weight, row)
        residual[row] = y[row] - X[row] @ coef - intercept
        ends[row] = (new @ coef + intercept)[:, None] + np.abs(residual[row]) * np.array([-1, 1])
    rank = int(np.ceil(0.8 * 26))
    plus = np.stack([np.sort(ends[..., 0], axis=0)[25 - rank], np.sort(ends[..., 1], axis=0)[rank - 1]], axis=1)
    np.testing.assert_allclose(model.predict_interval(new, coverage=0.8), plus, rtol=1e-8, atol=1e-8)
    half = np.sort(np.abs(residual))[rank - 1]
    plain = model.predict(new)[:, None] + half * np.array([-1, 1])
    np.testing.assert_allclose(model.predict_interval(new, 0.8, method="jackknife"), plain, rtol=1e-8, atol=1e-8)


class Refits:
    """An ensemble refitted by brute force without each row, and to targets that are one in one row."""

    def __init__(self, model, X, Y, weight):
        self.model, self.X, self.Y, self.weight = model, X, Y.reshape(len(Y), -1), weight
        n, q = self.Y.shape
        self.coef, self.intercept = np.empty((n, X.shape[1], q)), np.empty((n, q))
        for row in range(n):
            others = [np.setdiff1d(T, [row]) for T in model.sample_subsets_]
            for t in range(q):
                self.coef[row, :, t], self.intercept[row, t] = self.mean_member(self.Y[:, t], others)
        predicted = np.einsum("lp,lpq->lq", X, self.coef) + self.intercept
        self.residual = self.Y - predicted

    def mean_member(self, y, rows):
        model, given = self.model, {"sample_weight": self.weight, "fit_intercept": self.model.fit_intercept}
        coef, intercept = member_coefficients(self.X, y, model.feature_subsets_, rows, **given)
        own = [None if self.weight is None else self.weight[T] for T in rows]
        centre = [np.average(y[T], weights=w) if model.fit_intercept else 0.0 for T, w in zip(rows, own, strict=True)]
        shares, scale = model.weights_, model.scale_
        return scale * shares @ coef, scale * shares @ intercept + (1 - scale) * shares @ centre

    def intervals(self, new, coverage):
        """By jackknife+ and by the jackknife, (new, q, 2) each."""
        n, rank = len(self.Y), int(np.ceil(coverage * (len(self.Y) + 1)))
        centre = np.einsum("rp,lpq->lrq", new, self.coef) + self.intercept[:, None]
        width = np.abs(self.residual)[:, None]
        low, high = np.sort(centre - width, axis=0)[n - rank], np.sort(centre + width, axis=0)[rank - 1]
        half = np.sort(width[:, 0], axis=0)[rank - 1]
        middle = self.model.predict(new).reshape(len(new), -1)
        return np.stack([low, high], axis=2), np.stack([middle - half, middle + half], axis=2)

    def std(self, new):
        """By the formula, with the whole hat matrix."""
        n = len(self.Y)
        columns = [self.mean_member(np.eye(n)[l], list(self.model.sample_subsets_)) for l in range(n)]
        coef, intercept = (np.stack(parts, axis=-1) for parts in zip(*columns, strict=True))
        H = self.X @ coef + intercept
        df = np.trace(H) / n
        shrink = min(1.0, (1 - df) ** 2 / (1 - 2 * df + np.sum(H**2) / n))
        return np.sqrt(shrink * (new @ coef + intercept) ** 2 @ self.residual**2)

    def check(self, new, given=None, coverage=0.8):
        """Everything that the model says of new rows."""
        given = new if given is None else given
        plus, plain = self.intervals(new, coverage)
        found = self.model.predict_interval(given, coverage)
        np.testing.assert_allclose(found.reshape(plus.shape), plus, rtol=1e-8, atol=1e-8)
        found = self.model.predict_interval(given, coverage, method="jackknife")
        np.testing.assert_allclose(found.reshape(plain.shape), plain, rtol=1e-8, atol=1e-8)
        std = self.std(new)
        np.testing.assert_allclose(self.model.predict(given, return_std=True)[1].reshape(std.shape), std, rtol=1e-8)


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
    "ordinary", "dependent columns", "nearly dependent columns", "rows of leverage one", "rows far out",
    "constant columns", "far from zero",
)  # fmt: skip
MEMBERS = {
    "few columns": {"max_features": 4},
    "most columns": {"max_features": 11, "n_estimators": 60},  # by what they leave out
    "of many sizes": {"max_features": 0.5, "sampling": "bernoulli"},
    "on some rows": {"max_features": 6, "max_samples": 0.4},
    "as many columns as rows": {"max_features": 10, "max_samples": 8},
    "weighted": {"max_features": 5, "mixing": "stacking"},
}


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:members have")
def test_everything_equals_refits(members, kind, seed):
    """Several blocks of rows and batches of members, in threads, of every kind."""
    rng = np.random.default_rng([seed, 3])
    X, y = random_problem(seed, n=70, p=12)
    X = odd(X, kind, rng)
    kwargs = {"n_estimators": 10, "random_state": seed, "n_jobs": 2} | MEMBERS[members]
    new = rng.standard_normal((4, 12)) + np.median(X, axis=0)
    if members == "weighted":
        Refits(OLSEnsembleRegressor(**kwargs).fit(X, y), X, y, None).check(new)
        return
    Y = np.column_stack([y, X[:, 4] - 2 * rng.standard_normal(70)])
    weight = rng.uniform(0.3, 2, 70)
    Refits(OLSEnsembleRegressor(scale=0.8, **kwargs).fit(X, Y, weight), X, Y, weight).check(new)


@pytest.mark.parametrize("members", ["few columns", "most columns", "on some rows"])
def test_everything_equals_refits_without_intercept_and_of_sparse_rows(members, seed):
    rng = np.random.default_rng([seed, 4])
    X, y = random_problem(seed, n=70, p=12)
    X[rng.random(X.shape) < 0.5] = 0.0
    kwargs = {"n_estimators": 10, "random_state": seed, "fit_intercept": False} | MEMBERS[members]
    model = OLSEnsembleRegressor(**kwargs).fit(sp.csr_array(X), y)
    new = rng.standard_normal((4, 12))
    Refits(model, X, y, None).check(new, sp.csr_array(new))


@pytest.mark.parametrize("shape", [(300, 60), (1000, 20), (70, 200)])
@pytest.mark.filterwarnings("ignore:members have")
def test_threads_change_no_bit(shape, seed):
    X, y = random_problem(seed, *shape)
    rng = np.random.default_rng(seed)
    new, weight = rng.standard_normal((30, shape[1])), rng.uniform(0.5, 2, shape[0])
    found = []
    for n_jobs in (1, 2, 3):
        model = OLSEnsembleRegressor(60, 0.5, random_state=seed, n_jobs=n_jobs).fit(X, y, weight)
        found.append((model.predict_interval(new), model.predict(new, return_std=True)[1]))
    for ends, std in found[1:]:
        assert np.array_equal(ends, found[0][0]) and np.array_equal(std, found[0][1])


@pytest.mark.parametrize("kwargs", [{"max_features": 9}, {"max_features": 5, "max_samples": 0.5}])
def test_without_room_for_all_changes_they_are_made_anew(kwargs, seed, monkeypatch):
    """Nothing is kept, and three new rows at a time are predicted."""
    X, y = random_problem(seed, n=70, p=12)
    model = OLSEnsembleRegressor(40, random_state=seed, scale=0.7, **kwargs).fit(X, y)
    new = np.random.default_rng(seed).standard_normal((7, 12))
    expected = model.predict_interval(new, 0.8, "jackknife+"), model.predict(new, return_std=True)[1]
    again = OLSEnsembleRegressor(40, random_state=seed, scale=0.7, **kwargs).fit(X, y)
    monkeypatch.setattr(uncertainty, "KEPT_BYTES", 0.0)
    monkeypatch.setattr(memory, "available_bytes", lambda: 4.0 * 3 * 8 * 70)
    np.testing.assert_allclose(again.predict_interval(new, 0.8, "jackknife+"), expected[0], rtol=1e-10)
    np.testing.assert_allclose(again.predict(new, return_std=True)[1], expected[1], rtol=1e-10)
    X[:] = X[::-1].copy()
    for ask in (lambda: again.predict_interval(new), lambda: again.predict(new, return_std=True)):
        with pytest.raises(ValueError, match="X was changed in place"):
            ask()


def test_where_jackknife_plus_is_out_of_reach_the_jackknife_is_not(seed, monkeypatch):
    X, y = random_problem(seed, n=70, p=12)
    new = np.random.default_rng(seed).standard_normal((50, 12))
    expected = OLSEnsembleRegressor(10, random_state=seed).fit(X, y).predict_interval(new, method="jackknife")
    model = OLSEnsembleRegressor(10, random_state=seed).fit(X, y)
    monkeypatch.setattr(uncertainty, "KEPT_BYTES", 0.0)
    for free in (4.0 * 2 * 8 * 70, 100.0):
        monkeypatch.setattr(memory, "available_bytes", lambda free=free: free)
        with pytest.raises(
            MemoryError, match=r"each of 50 rows without each of 70 .* method='jackknife', which is exact"
        ):
            model.predict_interval(new, method="jackknife+")
    np.testing.assert_allclose(model.predict_interval(new, method="jackknife"), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.predict_interval(new), model.predict_interval(new, method="cv+"))


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
    X, y = random_problem(seed, n=70, p=12)
    models = (OLSEnsembleRegressor(1, 1, sampling="bernoulli", random_state=100 * seed + i) for i in range(100))
    model = next(model for model in models if not model.fit(X, y).feature_subsets_.sizes[0])
    Refits(model, X, y, None).check(np.random.default_rng(seed).standard_normal((4, 12)))


def test_too_few_rows_for_the_coverage_give_the_whole_line(seed):
    X, y = random_problem(seed, n=12, p=4)
    ends = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y).predict_interval(X, coverage=0.95)
    assert np.all(np.isneginf(ends[:, 0])) and np.all(np.isposinf(ends[:, 1]))


def test_shapes_for_several_targets(seed):
    X, Y = random_problem(seed, q=2)
    model = OLSEnsembleRegressor(5, 0.3, random_state=seed).fit(X, Y)
    ends = model.predict_interval(X[:7])
    assert ends.shape == (7, 2, 2)
    for t in range(2):
        alone = OLSEnsembleRegressor(5, 0.3, random_state=seed).fit(X, Y[:, t])
        np.testing.assert_allclose(ends[:, t], alone.predict_interval(X[:7]), rtol=1e-8)
        np.testing.assert_allclose(model.predict(X, return_std=True)[1][:, t], alone.predict(X, return_std=True)[1])


def test_coverage_of_new_observations(seed):
    """Over 60 training sets the share of new observations inside is within 4 standard errors of the nominal 90 %."""
    rng = np.random.default_rng(seed)
    inside = []
    for trial in range(60):
        X, new = rng.standard_normal((80, 40)), rng.standard_normal((50, 40))
        beta = rng.standard_normal(40) / np.sqrt(40)
        model = OLSEnsembleRegressor(20, 15, random_state=trial).fit(X, X @ beta + rng.standard_normal(80))
        ends = model.predict_interval(new)
        target = new @ beta + rng.standard_normal(50)
        inside.append(np.mean((ends[:, 0] <= target) & (target <= ends[:, 1])))
    assert (
        abs(np.mean(inside) - 0.9) < 4 * np.std(inside, ddof=1) / np.sqrt(60) + 0.5 / 80
    )  # ranks are multiples of 1/81


def test_standard_error_is_the_spread_over_training_sets(seed):
    """Mean squared standard error against the variance of predictions over 300 training sets, within 4 standard errors.

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
