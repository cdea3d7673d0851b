"""What is done on a device instead of the host: comparing sizes, intervals and standard errors."""

from itertools import product

import numpy as np
import pytest
import sklearn
from sklearn.base import clone

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data.folds import HeldOutMoments
from olsen._data.moments import Moments, from_data, training_moments
from olsen._execution.arrays import Space, space_of
from olsen._execution.threads import Threads
from olsen._tuning import moment_curves
from olsen._tuning.risk_curves import Paths, size_grid


@pytest.fixture(params=["array_api_strict", "torch", "cupy"], autouse=True)
def xp(request, monkeypatch):
    module = pytest.importorskip(request.param)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    if request.param == "torch":
        module.set_num_threads(
            1
        )  # small arrays: threads that wait for each other take most of the time
    with sklearn.config_context(array_api_dispatch=True):
        yield module


@pytest.fixture
def space(xp):
    return space_of(xp.asarray(np.zeros(1)))


def data(seed, n=400, p=30, q=1, dependent=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 3
    if dependent:
        X[:, 1], X[:, 5], X[:, 7], X[:, 8] = X[:, 0], X[:, 3] - 2 * X[:, 4], 7.3, 0.0
        X[:, 10:14] = rng.integers(0, 4, n)[:, None] == np.arange(4)  # add up to one
    return X, X @ rng.standard_normal((p, q)) / np.sqrt(p) + rng.standard_normal((n, q))


# Sizes


def both(X, Y, space, centre=True, count=4):
    """Moments of folds on the device, and the same on the host."""
    parts = [(X[f::count], Y[f::count]) for f in range(count)]
    there = [
        from_data(space.put(x), space.put(y), None, centre=centre, space=space) for x, y in parts
    ]
    return there, [from_data(x, y, None, centre=centre) for x, y in parts]


def test_prefixes_are_least_squares_on_columns_that_add_rank(space, seed, monkeypatch):
    """The others have coefficient zero. Batches of orders make no difference."""
    for q, block, dependent in [(1, 4, False), (1, 128, True), (2, 4, True), (2, 128, False)]:
        with case(q, block, dependent):
            monkeypatch.setattr(moment_curves, "BLOCK_COLUMNS", block)
            X, Y = data(seed, q=q, dependent=dependent)
            there, _ = both(X, Y, space)
            orders = np.stack(
                [np.arange(30), np.arange(30)[::-1], np.random.default_rng(seed).permutation(30)]
            )
            sizes = np.array([1, 3, 6, 14, 19, 30])
            found = space.get(moment_curves._prefix_coefficients(there, orders, sizes))
            for f, (k, order), (s, size) in product(range(4), enumerate(orders), enumerate(sizes)):
                x, y = X[f::4] - X[f::4].mean(axis=0), Y[f::4] - Y[f::4].mean(axis=0)
                rank = [
                    np.linalg.matrix_rank(x[:, order[:j]], tol=1e-8) if j else 0
                    for j in range(size + 1)
                ]
                adds, expected = order[:size][np.diff(rank) > 0], np.zeros((30, q))
                expected[adds] = np.linalg.lstsq(x[:, adds], y, rcond=None)[0]
                np.testing.assert_allclose(
                    found[f, :, k, s], expected, rtol=0, atol=1e-10 if dependent else 1e-11
                )
                assert set(np.flatnonzero(found[f, :, k, s, 0])) == set(adds)
            with monkeypatch.context() as patch:
                patch.setattr(Space, "batch_bytes", lambda *_: 2 * 40 * 4 * 30**2)  # two orders
                pieces = space.get(moment_curves._prefix_coefficients(there, orders, sizes))
            np.testing.assert_allclose(pieces, found, rtol=0, atol=1e-13)


def test_errors_are_those_of_rows(space, seed):
    """Of any coefficients, with the means of the training rows taken out."""
    X, Y = data(seed, q=2)
    there, _ = both(X, Y, space)
    b, number = np.random.default_rng(seed).standard_normal((30, 6, 2)), np.arange(400) % 4
    for f, (test, train) in enumerate(zip(there, training_moments(there), strict=True)):
        found = space.get(HeldOutMoments.from_moments(test, train).errors(space.put(b)))
        x, y = (A[number == f] - A[number != f].mean(axis=0) for A in (X, Y))
        residual = y[:, None, :] - np.einsum("np,psq->nsq", x, b)
        np.testing.assert_allclose(found, np.mean(residual**2, axis=(0, 2)), rtol=1e-10)


def test_curves_are_those_of_the_host(space, seed):
    paths, sizes = Paths(seed, "balanced", Threads()), size_grid(28, 50)[3:]
    for centre, dependent in product([False, True], [False, True]):
        with case(centre, dependent):
            there, here = both(*data(seed, q=2, dependent=dependent), space, centre)
            found, expected = (
                moment_curves.moment_kfold_curve(m, sizes, paths, 0.9) for m in (there, here)
            )
            np.testing.assert_allclose(space.get(found.coef), expected.coef, rtol=0, atol=1e-9)
            whole = [Moments.merge_all(parts) for parts in (there, here)]
            gcv, expected_gcv = (
                moment_curves.moment_gcv_curve(m, sizes, paths, 0.9) for m in whole
            )
            for ours, theirs in ((found.curve, expected.curve), (gcv, expected_gcv)):
                for name in ("products", "weight"):
                    np.testing.assert_allclose(
                        getattr(ours, name), getattr(theirs, name), rtol=1e-9
                    )


def test_the_choice_is_that_of_blocks(xp, seed, monkeypatch):
    """Also where moments do not fit beside the data, and go to the host."""
    X, Y = data(seed, dependent=True)
    y = Y[:, 0] + 3 * np.random.default_rng(seed).standard_normal(len(Y))
    tuned = [
        AdaptiveOLSEnsembleRegressor(n_estimators=40, random_state=seed),
        OLSEnsembleRegressorCV(40, sampling="determinantal", random_state=seed),
        OLSEnsembleRegressorCV(40, random_state=seed),
        OLSEnsembleRegressorCV(40, cv="gcv", random_state=seed),
        AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=seed),
        OLSEnsembleRegressorCV(20, random_state=seed),
    ]
    for model in tuned:
        with case(model), monkeypatch.context() as patch:
            expected = clone(model).fit(lambda: iter([(X, y)]), None)
            if model.n_estimators == 20:
                patch.setattr(
                    Space, "batch_bytes", lambda *_: 8.0 * 30**2 * 3 * 7
                )  # room for seven copies
            model.fit(xp.asarray(X), xp.asarray(y))
            if isinstance(model, OLSEnsembleRegressorCV):
                assert model.max_features_ == pytest.approx(expected.max_features_, rel=1e-8)
            else:
                assert model.scheme_weights_ == pytest.approx(expected.scheme_weights_)
            np.testing.assert_allclose(model.scale_, expected.scale_, rtol=1e-8)
            scores = model.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
            np.testing.assert_allclose(*scores, rtol=1e-8)


# Uncertainty


def test_intervals_and_standard_errors_are_those_of_blocks(xp, space, seed):
    """The same folds, read again where they are; results come back there."""
    (X, y), new = data(seed), np.random.default_rng(seed).standard_normal((20, 30))
    y = y[:, 0]
    tuned = AdaptiveOLSEnsembleRegressor(n_estimators=200, random_state=seed)
    tuned = tuned, "chosen from the same rows", 0.02  # a refit may be next to a tie
    plain = (
        OLSEnsembleRegressor(30, 8, random_state=seed),
        "leave-one-out is not computed on other devices",
        1e-6,
    )
    for model, why, near in (tuned, plain):
        there, blocks = (
            clone(model).fit(xp.asarray(X), xp.asarray(y)),
            model.fit(lambda: iter([(X, y)]), None),
        )
        for method in ("auto", "cv+", "normal"):
            found = there.predict_interval(xp.asarray(new), 0.8, method)
            assert type(found) is type(xp.asarray(X))
            np.testing.assert_allclose(
                space.get(found), blocks.predict_interval(new, 0.8, method), rtol=1e-6
            )
        np.testing.assert_allclose(there.coef_std(), blocks.coef_std(), rtol=near)
        width, expected = (np.diff(one.coef_interval(0.8)) for one in (there, blocks))
        np.testing.assert_allclose(width, expected, rtol=near, atol=1e-9)
        std = there.predict(xp.asarray(new), return_std=True)[1]
        np.testing.assert_allclose(
            space.get(std), blocks.predict(new, return_std=True)[1], rtol=near
        )
        assert there.members_needed(1e-4) == blocks.members_needed(1e-4)
        with pytest.raises(ValueError, match=rf"{why}.*method='cv\+'"):
            there.predict_interval(xp.asarray(new), method="jackknife+")
