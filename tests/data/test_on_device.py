"""Comparing sizes, intervals and standard errors on a device instead of the host."""

from itertools import product

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor
from olsen._data.device_products import DeviceProducts
from olsen._data.folds import HeldOutMoments
from olsen._data.moments import from_data, training_moments
from olsen._execution.arrays import Space, space_of
from olsen._tuning import moment_curves

FOLD = np.arange(400) % 4


@pytest.fixture(params=["array_api_strict", "torch", "cupy"], autouse=True)
def xp(request, monkeypatch):
    module = pytest.importorskip(request.param)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    if request.param == "torch":
        module.set_num_threads(1)  # with small arrays, threads mostly wait for each other
    with sklearn.config_context(array_api_dispatch=True):
        yield module


@pytest.fixture
def space(xp):
    return space_of(xp.asarray(np.zeros(1)))


def table(seed, q=1, dependent=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((400, 30)) + 3
    if dependent:
        X[:, 1] = X[:, 0]
        X[:, 5] = X[:, 3] - 2 * X[:, 4]
        X[:, 7] = 7.3
        X[:, 8] = 0.0
        X[:, 10:14] = np.eye(4)[rng.integers(0, 4, 400)]  # add up to one
    return X, X @ rng.standard_normal((30, q)) / np.sqrt(30) + rng.standard_normal((400, q))


def fold_moments(X, Y, space):
    """Moments of four folds on the device."""
    return [
        from_data(space.put(X[f == FOLD]), space.put(Y[f == FOLD]), None, centre=True, space=space)
        for f in range(4)
    ]


@pytest.mark.parametrize(
    ("q", "block_columns", "dependent"),
    [(1, 4, False), (1, 128, True), (2, 4, True), (2, 128, False)],
)
def test_prefixes_are_least_squares_on_columns_that_add_rank(
    q, block_columns, dependent, space, seed, monkeypatch
):
    """The other columns have coefficient zero. Batches of orders make no difference."""
    monkeypatch.setattr(moment_curves, "BLOCK_COLUMNS", block_columns)
    X, Y = table(seed, q, dependent)
    moments = fold_moments(X, Y, space)
    random_order = np.random.default_rng(seed).permutation(30)
    orders = np.stack([np.arange(30), np.arange(30)[::-1], random_order])
    sizes = np.array([1, 3, 6, 14, 19, 30])
    coefs = space.get(moment_curves._prefix_coefficients(moments, orders, sizes))
    for f, (k, order), (s, size) in product(range(4), enumerate(orders), enumerate(sizes)):
        x = X[f == FOLD] - X[f == FOLD].mean(axis=0)
        y = Y[f == FOLD] - Y[f == FOLD].mean(axis=0)
        ranks = [np.linalg.matrix_rank(x[:, order[:j]], tol=1e-8) for j in range(1, size + 1)]
        independent = order[:size][np.diff(ranks, prepend=0) > 0]
        expected = np.zeros((30, q))
        expected[independent] = np.linalg.lstsq(x[:, independent], y, rcond=None)[0]
        tolerance = 1e-10 if dependent else 1e-11
        assert_allclose(coefs[f, :, k, s], expected, rtol=0, atol=tolerance)
        assert set(np.flatnonzero(coefs[f, :, k, s, 0])) == set(independent)
    monkeypatch.setattr(Space, "batch_bytes", lambda *_: 2 * 40 * 4 * 30**2)  # two orders
    in_batches = space.get(moment_curves._prefix_coefficients(moments, orders, sizes))
    assert_allclose(in_batches, coefs, rtol=0, atol=1e-13)


def test_errors_of_any_coefficients_are_those_of_centred_held_out_rows(space, seed):
    X, Y = table(seed, q=2)
    moments = fold_moments(X, Y, space)
    coefs = np.random.default_rng(seed).standard_normal((30, 6, 2))
    for f, (test, train) in enumerate(zip(moments, training_moments(moments), strict=True)):
        errors = space.get(HeldOutMoments.from_moments(test, train).errors(space.put(coefs)))
        x, y = (A[f == FOLD] - A[f != FOLD].mean(axis=0) for A in (X, Y))
        residuals = y[:, None, :] - np.einsum("np,psq->nsq", x, coefs)
        assert_allclose(errors, np.mean(residuals**2, axis=0), rtol=1e-10)


@pytest.mark.parametrize(
    ("model", "reason", "tolerance"),
    [
        # a refit may be next to a tie
        (AdaptiveOLSEnsembleRegressor(n_estimators=200), "chosen from the same rows", 0.02),
        (OLSEnsembleRegressor(30, 8), "leave-one-out is not computed on other devices", 1e-6),
    ],
    ids=["adaptive", "fixed size"],
)
def test_intervals_and_standard_errors_are_those_of_blocks(
    model, reason, tolerance, xp, space, seed
):
    """Folds are read again on the device; results stay there."""
    X, Y = table(seed)
    y = Y[:, 0]
    new_X = np.random.default_rng(seed).standard_normal((20, 30))
    device_X = xp.asarray(new_X)
    model.set_params(random_state=seed)
    on_device = clone(model).fit(xp.asarray(X), xp.asarray(y))
    blocks = clone(model).fit(lambda: iter([(X, y)]), None)
    for method in ("auto", "cv+", "normal"):
        interval = on_device.predict_interval(device_X, 0.8, method)
        assert type(interval) is type(device_X)
        assert_allclose(space.get(interval), blocks.predict_interval(new_X, 0.8, method), rtol=1e-6)
    assert_allclose(on_device.coef_std(), blocks.coef_std(), rtol=tolerance)
    width, expected = (np.diff(fitted.coef_interval(0.8)) for fitted in (on_device, blocks))
    assert_allclose(width, expected, rtol=tolerance, atol=1e-9)
    std = space.get(on_device.predict(device_X, return_std=True)[1])
    assert_allclose(std, blocks.predict(new_X, return_std=True)[1], rtol=tolerance)
    assert on_device.members_needed(1e-4) == blocks.members_needed(1e-4)
    with pytest.raises(ValueError, match=rf"{reason}.*method='cv\+'"):
        on_device.predict_interval(device_X, method="jackknife+")


@pytest.mark.parametrize("kind", ["ordinary", "dependent", "two targets", "no intercept"])
def test_the_choice_of_many_rows_is_that_of_the_host(kind, xp, space, seed, monkeypatch):
    """Penalised fits are solved on the device, where a product of many columns is positive definite."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1100, 20))
    X[:, 15:] = np.eye(5)[rng.integers(0, 5, 1100)]
    if kind == "dependent":
        X[:, 1] = X[:, 0]
        X[:, 2] = 4.0
    y = X[:, 3] - X[:, 4] + X @ rng.standard_normal(20) / 10 + rng.standard_normal(1100)
    y = np.column_stack([y, rng.standard_normal(1100)]) if kind == "two targets" else y
    solved = []
    original = DeviceProducts.solved

    def recorded(products, right, shifts):
        solved.append(original(products, right, shifts))
        return solved[-1]

    monkeypatch.setattr(DeviceProducts, "solved", recorded)
    model = AdaptiveOLSEnsembleRegressor(fit_intercept=kind != "no intercept", random_state=0)
    host = clone(model).fit(X, y)
    assert not solved
    on_device = clone(model).fit(xp.asarray(X), xp.asarray(y))
    assert len(solved) > 10 and all(solution is not None for solution in solved)
    assert_allclose(
        space.get(on_device.coef_), host.coef_, rtol=0, atol=1e-8 * np.abs(host.coef_).max()
    )
    assert_allclose(on_device.inclusion_, host.inclusion_, atol=1e-7)
    assert on_device.best_score_ == pytest.approx(host.best_score_, rel=1e-9)
    # a device whose factors fail leaves the solutions to the host
    monkeypatch.setattr(DeviceProducts, "_inverse_factors", lambda *_: None)
    again = clone(model).fit(xp.asarray(X), xp.asarray(y))
    assert_allclose(
        space.get(again.coef_), host.coef_, rtol=0, atol=1e-8 * np.abs(host.coef_).max()
    )
