"""Coefficients with standard errors, intervals from folds, and the draw of the members: in every engine."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._engines import NeedsRows

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
    yield "dask", (da.from_array(X, chunks=(50, X.shape[1])), da.from_array(y, chunks=(50, *y.shape[1:])))


# Intervals from folds, against refits by scikit-learn's own means


def cv_plus_by_hand(model, X, y, new, splits, coverage):
    """Barber et al.'s definition: refits of the same members without each fold, n values, two order statistics."""
    low, high = [], []
    for train, test in splits:
        refit = clone(model).set_params(scale=model.scale_).fit(X[train], y[train])
        off, there = np.abs(y[test] - refit.predict(X[test])), refit.predict(new)
        low.append(there[:, None] - off)
        high.append(there[:, None] + off)
    low, high = np.sort(np.hstack(low), axis=1), np.sort(np.hstack(high), axis=1)
    n = low.shape[1]
    rank = int(np.ceil(coverage * (n + 1)))
    return np.column_stack([low[:, n - rank], high[:, rank - 1]])


@pytest.mark.parametrize("max_samples", [1.0, 0.7])
def test_cv_plus_is_its_definition(seed, max_samples):
    """Folds of the tuned estimator, members of one size: refitted one by one."""
    X, y = random_problem(seed)
    new = np.random.default_rng(seed).standard_normal((9, 12))
    splits = list(KFold(4).split(X))
    tuned = OLSEnsembleRegressorCV(
        30, [5], inclusion="uniform", cv=splits, scale=0.9, max_samples=max_samples, random_state=seed
    ).fit(X, y)
    plain = OLSEnsembleRegressor(30, 5, scale=0.9, max_samples=max_samples, random_state=seed).fit(X, y)
    np.testing.assert_allclose(tuned.coef_, plain.coef_, rtol=1e-9)
    expected = cv_plus_by_hand(plain, X, y, new, splits, 0.8)
    np.testing.assert_allclose(tuned.predict_interval(new, 0.8, "cv+"), expected, rtol=1e-7)


def test_cv_plus_has_one_answer_for_all_places(seed):
    """Blocks, Dask and files cut the same folds, however rows are cut."""
    X, y = random_problem(seed, n=400)
    new = np.random.default_rng(seed).standard_normal((9, 12))
    found = {
        name: OLSEnsembleRegressor(30, 5, random_state=seed).fit(*data).predict_interval(new, 0.8, "cv+")
        for name, data in [*engines(X, y), ("other blocks", (in_blocks(X, y, step=91), None))]
    }
    np.testing.assert_allclose(found["dask"], found["blocks"], rtol=1e-9)
    np.testing.assert_allclose(found["other blocks"], found["blocks"], rtol=1e-9)
    np.testing.assert_allclose(found["sparse"], found["memory"], rtol=1e-7)
    width = np.diff(found["memory"]).mean()
    assert abs(np.diff(found["blocks"]).mean() / width - 1) < 0.25  # five folds there, ten here


@pytest.mark.parametrize("kind", ["fixed", "tuned"])
def test_every_place_gives_intervals_by_default(kind, seed):
    X, y = random_problem(seed, n=600)
    for name, data in engines(X, y):
        model = OLSEnsembleRegressor(40, 6) if kind == "fixed" else OLSEnsembleRegressorCV(40)
        ends = model.set_params(random_state=seed).fit(*data).predict_interval(X[:50])
        inside = (ends[:, 0] <= y[:50]) & (y[:50] <= ends[:, 1])
        assert ends.shape == (50, 2) and inside.mean() > 0.7, name


def test_weights_count_in_folds(seed):
    """A weight of zero equals a dropped row; weights go into the refits."""
    X, y = random_problem(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    splits = [(np.arange(40, 120), np.arange(40)), (np.arange(80), np.arange(80, 120))]
    given = {"max_features": [5], "inclusion": "uniform", "scale": 1.0, "random_state": seed}
    model = OLSEnsembleRegressorCV(30, cv=splits, **given).fit(X, y, sample_weight=weight)
    found = model.predict_interval(X[:3], 0.8, "cv+")
    kept = weight > 0
    place = np.cumsum(kept) - 1
    fewer = [(place[train[kept[train]]], place[test[kept[test]]]) for train, test in splits]
    again = OLSEnsembleRegressorCV(30, cv=fewer, **given).fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(found, again.predict_interval(X[:3], 0.8, "cv+"), rtol=1e-9)
    unweighted = OLSEnsembleRegressorCV(30, cv=fewer, **given).fit(X[kept], y[kept])
    assert np.abs(found / unweighted.predict_interval(X[:3], 0.8, "cv+") - 1).max() > 1e-4


def test_groups_are_left_out_whole(seed):
    """Rows that come five times each: without their group the error is what it is for new rows."""
    X, y = random_problem(seed, n=60, p=30, noise=2.0)
    X, y, groups = np.repeat(X, 5, axis=0), np.repeat(y, 5), np.repeat(np.arange(60), 5)
    model = OLSEnsembleRegressorCV(50, cv=GroupKFold(5), random_state=seed).fit(X, y, groups=groups)
    width = np.diff(model.predict_interval(X[:20], 0.9)).mean()
    with pytest.warns(UserWarning, match="rows repeat others"):
        alone = OLSEnsembleRegressorCV(50, random_state=seed).fit(X, y)
    assert width > 1.3 * np.diff(alone.predict_interval(X[:20], 0.9)).mean()
    for method in ("jackknife+", "jackknife"):
        with pytest.raises(ValueError, match=r"fitted with groups.*method='cv\+'"):
            model.predict_interval(X, method=method)
    np.testing.assert_array_equal(model.predict_interval(X[:3]), model.predict_interval(X[:3], method="cv+"))


def test_too_few_rows_give_the_whole_line(seed):
    X, y = random_problem(seed, n=8, p=2)
    model = OLSEnsembleRegressor(5, 1, random_state=seed).fit(X, y)
    assert np.isinf(model.predict_interval(X, 0.95, "cv+")).all()
    assert np.isfinite(model.predict_interval(X, 0.5, "cv+")).all()


@pytest.mark.parametrize("method", ["jackknife+", "jackknife", "cv+", "normal"])
def test_several_targets_are_those_one_by_one(method, seed):
    X, Y = random_problem(seed, q=3)
    both = OLSEnsembleRegressor(30, 5, random_state=seed).fit(X, Y)
    ends = both.predict_interval(X[:4], 0.8, method)
    assert ends.shape == (4, 3, 2)
    for t in range(3):
        one = OLSEnsembleRegressor(30, 5, random_state=seed).fit(X, Y[:, t])
        np.testing.assert_allclose(ends[:, t], one.predict_interval(X[:4], 0.8, method), rtol=1e-9)


def test_the_normal_law_takes_the_error_that_was_found(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressorCV(30, random_state=seed).fit(X, y)
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
    np.testing.assert_allclose(found[[7, 19_999]], model.predict_interval(new[[7, 19_999]], 0.8, "cv+"), rtol=1e-12)
    np.testing.assert_allclose(model.predict_interval(sp.csr_array(new[:50]), 0.8, "cv+"), found[:50], rtol=1e-12)


# After whatever a user does between fit and question


def test_changed_rows_are_noticed(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
    X[:] = X[::-1].copy()
    for ask in (
        lambda: model.predict_interval(X, method="cv+"),
        lambda: model.coef_std_,
        lambda: model.coef_interval(),
    ):
        with pytest.raises(ValueError, match="X was changed in place"):
            ask()
    with pytest.raises(ValueError, match="the training data were changed since"):
        model.monte_carlo_std_  # noqa: B018


def test_data_that_are_gone_or_others(seed):
    X, y = random_problem(seed, n=300)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(iter(in_blocks(X, y)()), None)
    for ask in (
        lambda: model.predict_interval(X),
        lambda: model.coef_std_,
        lambda: model.monte_carlo_std_,
        lambda: model.predict(X, return_std=True),
    ):
        with pytest.raises(NeedsRows, match="a function that returns the iterator"):
            ask()
    rows = [X, y]
    model.fit(lambda: in_blocks(*rows)(), None)
    rows[0], rows[1] = X[:200], y[:200]
    with pytest.raises(NeedsRows, match="300 rows when they were fitted and 200 now"):
        model.predict_interval(X)
    rows[0], rows[1] = X, 50 * y + 1000
    with pytest.raises(NeedsRows, match="gave other coefficients than when they were fitted"):
        model.predict_interval(X)
    rows[0], rows[1] = X[::-1] ** 2, y
    with pytest.raises(NeedsRows, match="other coefficients than the fit"):
        model.coef_std_  # noqa: B018


def test_copies_warm_starts_and_pickles(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, warm_start=True, random_state=seed).fit(X, y)
    first = model.predict_interval(X[:3], method="cv+"), model.coef_std_, model.monte_carlo_std_
    for other in (copy.copy(model), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.predict_interval(X[:3], method="cv+"), first[0])
        np.testing.assert_array_equal(other.coef_std_, first[1])
    model.set_params(n_estimators=60).fit(X, y)
    fresh = OLSEnsembleRegressor(60, 5, random_state=seed).fit(X, y)
    np.testing.assert_allclose(model.coef_std_, fresh.coef_std_, rtol=1e-9)
    np.testing.assert_allclose(
        model.predict_interval(X[:3], method="cv+"), fresh.predict_interval(X[:3], method="cv+"), rtol=1e-9
    )
    assert np.abs(model.monte_carlo_std_ - first[2]).max() > 0
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.coef_std_, model.coef_std_, rtol=1e-9)
    np.testing.assert_allclose(again.monte_carlo_std_, model.monte_carlo_std_, rtol=1e-9)
    np.testing.assert_allclose(again.predict_interval(X[:3]), model.predict_interval(X[:3]), rtol=1e-9)
    gone = pickle.loads(pickle.dumps(model.set_params(keep_rows=False)))
    for ask in (lambda: gone.coef_std_, lambda: gone.monte_carlo_std_, lambda: gone.predict_interval(X)):
        with pytest.raises(NeedsRows, match="Call fit once more"):
            ask()


# Coefficients


def test_coefficients_vary_as_the_sandwich_says(seed):
    """One member on all columns, all rows: (1 - kappa) times the textbook's HC3 covariance."""
    X, y = random_problem(seed, n=60, p=5)
    model = OLSEnsembleRegressor(1, 1.0, random_state=seed).fit(X, y)
    A = X - X.mean(axis=0)
    P = np.linalg.inv(A.T @ A)
    hat = np.einsum("ij,jk,ik->i", A, P, A) + 1 / len(y)
    off = (y - model.predict(X)) / (1 - hat)
    sandwich = P @ (A.T * off**2) @ A @ P
    shrink = (1 - hat.mean()) ** 2 / (1 - 2 * hat.mean() + hat.mean())
    np.testing.assert_allclose(model.coef_std_, np.sqrt(shrink * np.diagonal(sandwich)), rtol=1e-8)


def test_from_moments_they_are_those_of_least_squares(seed):
    """One member on all columns, in blocks: the textbook's standard errors."""
    X, y = random_problem(seed, n=200, p=5)
    model = OLSEnsembleRegressor(1, 1.0, random_state=seed).fit(in_blocks(X, y), None)
    A = X - X.mean(axis=0)
    variance = np.sum((y - model.predict(X)) ** 2) / (len(y) - 6)
    expected = np.sqrt(variance * np.diagonal(np.linalg.inv(A.T @ A)))
    np.testing.assert_allclose(model.coef_std_, expected, rtol=1e-8)
    new = np.random.default_rng(seed).standard_normal((4, 5))
    off = new - X.mean(axis=0)
    spread = np.sqrt(variance * (1 / len(y) + np.einsum("ij,jk,ik->i", off, np.linalg.inv(A.T @ A), off)))
    np.testing.assert_allclose(model.predict(new, return_std=True)[1], spread, rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_places_agree_on_standard_errors(weighted, seed):
    """With errors of one variance, moments tell about what rows tell; blocks and Dask tell the same."""
    X, y = random_problem(seed, n=2000)
    weight = np.random.default_rng(seed).integers(1, 3, len(y)).astype(float) if weighted else None
    if weighted:
        noise = np.random.default_rng([seed, 3]).standard_normal(len(y)) / np.sqrt(weight)
        y = X @ np.random.default_rng(1).standard_normal(12) + noise
    there = OLSEnsembleRegressor(40, 11, random_state=seed).fit(X, y, sample_weight=weight)
    blocks = OLSEnsembleRegressor(40, 11, random_state=seed).fit(in_blocks(X, y, weight), None)
    np.testing.assert_allclose(blocks.coef_std_, there.coef_std_, rtol=0.2)
    parts = [None if a is None else da.from_array(a, chunks=(300, *a.shape[1:])) for a in (X, y, weight)]
    cluster = OLSEnsembleRegressor(40, 11, random_state=seed).fit(parts[0], parts[1], sample_weight=parts[2])
    np.testing.assert_allclose(cluster.coef_std_, blocks.coef_std_, rtol=1e-9)
    stream = OLSEnsembleRegressor(40, 11, random_state=seed)
    for block in in_blocks(X, y, weight)():
        stream.partial_fit(*block)
    np.testing.assert_allclose(stream.coef_std_, blocks.coef_std_, rtol=1e-6)


def test_units_of_columns_and_targets(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y)
    unit = 10.0 ** np.arange(-6, 6)
    other = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X * unit, 1e150 * y)
    np.testing.assert_allclose(other.coef_std_ * unit / 1e150, model.coef_std_, rtol=1e-6)
    np.testing.assert_allclose(other.coef_interval(0.8) * unit[:, None] / 1e150, model.coef_interval(0.8), rtol=1e-6)


def test_the_scale_and_several_targets(seed):
    X, Y = random_problem(seed, q=2)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, Y)
    assert model.coef_std_.shape == model.coef_.shape == (2, 12) and model.coef_interval().shape == (2, 12, 2)
    one = OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, Y[:, 1])
    np.testing.assert_allclose(model.coef_std_[1], one.coef_std_, rtol=1e-9)
    np.testing.assert_allclose(model.coef_interval(0.8).mean(axis=2), model.coef_, atol=1e-12)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        model.coef_interval(1.0)


def test_constant_columns_do_not_vary(seed):
    X, y = random_problem(seed)
    X[:, 3] = 7.0
    for data in ((X, y), (in_blocks(X, y), None)):
        model = OLSEnsembleRegressor(30, 5, random_state=seed).fit(*data)
        assert model.coef_std_[3] == 0 and (np.delete(model.coef_std_, 3) > 0).all()


# The draw


def test_another_draw_of_all_subsets_is_the_same(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 1.0, random_state=seed).fit(X, y)
    assert np.abs(model.monte_carlo_std_).max() < 1e-12 and np.abs(model.monte_carlo_std(X)).max() < 1e-12
    assert model.members_needed() <= 1


def test_places_agree_on_the_draw(seed):
    X, y = random_problem(seed, n=300)
    found = [
        (model.monte_carlo_std_, model.monte_carlo_std(X[:5]), model.members_needed(1e-4))
        for _, data in engines(X, y)
        for model in [OLSEnsembleRegressor(60, 4, random_state=seed).fit(*data)]
    ]
    for coef, rows, needed in found[1:]:
        np.testing.assert_allclose(coef, found[0][0], rtol=1e-6)
        np.testing.assert_allclose(rows, found[0][1], rtol=1e-6)
        assert abs(needed / found[0][2] - 1) < 0.25  # errors come from leave-one-out, or from folds


@pytest.mark.parametrize(("p", "size", "k"), [(10, 9, 1000), (5, 4, 50), (8, 4, 1000), (10, 5, 100)])
def test_members_needed_are_enough(p, size, k, seed):
    """Members that avoid each other cancel in whole groups only: so many vary as little as was asked for."""
    X, y = random_problem(seed, n=40, p=p)
    model = OLSEnsembleRegressor(k, size, random_state=seed).fit(X, y)
    needed = model.members_needed(0.01)
    low, high = model.predict_interval(X[:1], 0.6826894921370859, "normal")[0]
    there = [OLSEnsembleRegressor(needed, size, random_state=s).fit(X, y).predict(X) for s in range(60)]
    assert np.var(there, axis=0, ddof=1).mean() < 0.02 * ((high - low) / 2) ** 2


def test_what_cannot_vary_needs_one_group(seed):
    X, y = random_problem(seed)
    with pytest.warns(UserWarning, match="holds one value"):
        model = OLSEnsembleRegressor(20, 6, random_state=seed).fit(X, np.full(len(y), 3.0))
    assert model.members_needed() == 2


def test_stacked_members_cannot_tell(seed):
    rng = np.random.default_rng([seed, 5])
    X = rng.standard_normal((60, 30))
    y = 3 * X[:, 0] + 0.5 * rng.standard_normal(60)
    model = OLSEnsembleRegressor(100, 2, mixing="stacking", random_state=seed).fit(X, y)
    for ask in (lambda: model.monte_carlo_std_, lambda: model.monte_carlo_std(X), model.members_needed):
        with pytest.raises(ValueError, match="weights of its own"):
            ask()


def test_streams_say_what_they_lack(seed):
    X, y = random_problem(seed)
    model = OLSEnsembleRegressor(20, 5, random_state=seed).partial_fit(X, y)
    for method in ("auto", "jackknife+", "cv+", "normal"):
        with pytest.raises(
            NeedsRows, match=r"predict_interval.* needs the training .*partial_fit keeps no rows; call fit"
        ):
            model.predict_interval(X, method=method)


def test_weights_of_zero_are_dropped_rows_in_folds(seed):
    X, y = random_problem(seed)
    weight = np.ones(len(y))
    weight[:10] = 0
    model, fewer = (OLSEnsembleRegressor(20, 5, random_state=seed) for _ in range(2))
    found = model.fit(X, y, weight).predict_interval(X[:3], 0.8, "cv+")
    np.testing.assert_allclose(found, fewer.fit(X[10:], y[10:]).predict_interval(X[:3], 0.8, "cv+"), rtol=1e-9)


def test_attributes_that_are_not_there(seed):
    X, y = random_problem(seed)
    gone = pickle.loads(pickle.dumps(OLSEnsembleRegressor(20, 5, random_state=seed, keep_rows=False).fit(X, y)))
    assert not hasattr(gone, "coef_std_") and not hasattr(gone, "monte_carlo_std_")
    with pytest.raises(NeedsRows, match=r"method='normal'\) needs"):
        gone.predict_interval(X, method="normal")


@pytest.mark.parametrize("bad", [None, np.inf, "x"])
def test_targets_that_are_no_numbers(bad, seed):
    X, y = random_problem(seed)
    target = y.astype(object)
    target[3] = bad
    for model in (OLSEnsembleRegressor(5), OLSEnsembleRegressorCV(5)):
        with pytest.raises(ValueError, match=r"first in row 3|does not hold numbers"):
            model.fit(X, target)
    with pytest.raises(ValueError, match="does not hold numbers"):
        OLSEnsembleRegressorCV(5).fit(X, np.array(["a"] * len(y)))
    np.testing.assert_array_equal(
        OLSEnsembleRegressor(5, random_state=seed).fit(X, y.astype(object)).coef_,
        OLSEnsembleRegressor(5, random_state=seed).fit(X, y).coef_,
    )


def test_few_members_cannot_tell(seed):
    X, y = random_problem(seed)
    with pytest.raises(ValueError, match="4 members are too few"):
        OLSEnsembleRegressor(4, 5, random_state=seed).fit(X, y).monte_carlo_std_  # noqa: B018
    with pytest.raises(ValueError, match="share"):
        OLSEnsembleRegressor(20, 5, random_state=seed).fit(X, y).members_needed(0)
