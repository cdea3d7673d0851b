"""Leverage: against formulas and enumeration, equal in all engines, after pickles and files."""

import pickle
from itertools import chain, combinations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import olsen
from engines import engines, row_blocks
from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._estimators import result
from olsen._estimators.leverage import MIN_PENALTY
from olsen.datasets import load_soil_carbon
from olsen.equivalence import determinantal_penalty
from random_problems import correlated_problem

NAMES = ("memory", "sparse", "frame", "blocks", "npy", "parquet", "dask", "torch")
MODELS = {
    "given size": lambda: OLSEnsembleRegressor(20, 3, random_state=0),
    "tuned size": lambda: OLSEnsembleRegressorCV(20, random_state=0),
    "ridge": lambda: OLSEnsembleRegressorCV(sampling="determinantal"),
    "adaptive": AdaptiveOLSEnsembleRegressor,
}


def expected_leverage(X, new, penalty, weight=None):
    """x'(G + penalty)^-1 x of new rows over the largest of the training rows."""
    weight = np.ones(len(X)) if weight is None else weight
    mean = np.average(X, axis=0, weights=weight)
    G = (X - mean).T @ ((X - mean) * weight[:, None])
    M = np.linalg.inv(G + np.diag(penalty))
    of_rows = [np.sum((rows - mean) @ M * (rows - mean), axis=1) for rows in (new, X[weight > 0])]
    return of_rows[0] / of_rows[1].max()


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli", "determinantal"])
@pytest.mark.parametrize(("n", "p", "size"), [(60, 12, 5), (30, 80, 8)])
def test_leverage_of_a_given_size_has_the_equivalent_penalty(n, p, size, sampling, seed):
    X, y = correlated_problem(seed, n, p)
    new = 3 * np.random.default_rng(seed).standard_normal((7, p))
    model = OLSEnsembleRegressor(5, size / p, sampling=sampling, random_state=seed)
    expected = expected_leverage(X, new, determinantal_penalty(X, size))
    assert_allclose(model.fit(X, y).leverage(new), expected, rtol=1e-8)
    assert_allclose(model.fit(sp.csr_array(X), y).leverage(sp.csr_array(new)), expected, rtol=1e-8)


@pytest.mark.parametrize("n_rows", [300, 730])
def test_leverage_of_spectra_keeps_its_digits(n_rows):
    """Neighbouring wavelengths are almost equal: with the least penalty, an inverse of the products
    of rows or columns had no digit left.
    """
    X, y = load_soil_carbon(return_X_y=True)
    new = X[:: len(X) // 30]
    X, y = X[:n_rows], y[:n_rows]
    centred = X - X.mean(axis=0)
    sizes = np.sqrt(np.sum(centred**2, axis=0))
    # R'R is the matrix of products with the penalty, whose square roots are appended to the rows
    R = np.linalg.qr(np.concatenate([centred / sizes, np.sqrt(MIN_PENALTY) * np.eye(700)]), "r")
    along = np.linalg.solve(R.T, ((new - X.mean(axis=0)) / sizes).T)
    of_training = np.linalg.solve(R.T, (centred / sizes).T)
    expected = np.sum(along**2, axis=0) / np.sum(of_training**2, axis=0).max()
    model = OLSEnsembleRegressor(4, 80, random_state=0).fit(X, y)
    assert_allclose(model.leverage(new), expected, rtol=1e-5)


def test_leverage_is_the_mean_leverage_in_determinantal_members(seed):
    """All subsets of four columns, with their probabilities."""
    X, y = correlated_problem(seed, 40, 4)
    new = 5 * np.random.default_rng(seed).standard_normal((6, 4))
    model = OLSEnsembleRegressor(5, 2.5 / 4, sampling="determinantal", random_state=seed).fit(X, y)
    centred = X - X.mean(axis=0)
    G = centred.T @ centred
    scaled = G / determinantal_penalty(X, 2.5 / 4)[:, None]
    subsets = chain.from_iterable(combinations(range(4), size) for size in range(1, 5))
    of_new = np.zeros(6)
    of_training_rows = np.zeros(40)
    for subset in map(list, subsets):
        block = np.ix_(subset, subset)
        probability = np.linalg.det(scaled[block]) / np.linalg.det(np.eye(4) + scaled)
        inverse = np.linalg.inv(G[block])
        for total, rows in ((of_new, new - X.mean(axis=0)), (of_training_rows, centred)):
            total += probability * np.sum(rows[:, subset] @ inverse * rows[:, subset], axis=1)
    assert_allclose(model.leverage(new), of_new / of_training_rows.max(), rtol=1e-10)


def ordinary_rows(kind, seed):
    X, y = correlated_problem(seed, 90, 12)
    rng = np.random.default_rng(seed)
    match kind:
        case "one-hot factors":
            X[:, :5] = rng.integers(5, size=90)[:, None] == np.arange(5)
            X[:, 5:9] = rng.integers(4, size=90)[:, None] == np.arange(4)
        case "one odd row":
            X[7] *= 1e4
        case "ten rows":
            X, y = X[:10], y[:10]
        case "ties":
            X = X.round()
        case "rare column":
            X[:, 0] = np.arange(90) == 3
        case "constant column":
            X[:, 0] = 2.5
        case "equal columns":
            X[:, 1] = X[:, 0]
        case "several targets":
            y = np.column_stack([y, rng.standard_normal(90), X[:, 2]])
    return X, y


KINDS = (
    "ordinary",
    "one-hot factors",
    "one odd row",
    "ten rows",
    "ties",
    "rare column",
    "constant column",
    "equal columns",
    "several targets",
)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_training_rows_are_at_most_one_and_far_rows_beyond_two(name, seed):
    for kind in KINDS:
        X, y = ordinary_rows(kind, seed)
        model = MODELS[name]().fit(X, y)
        with case(kind):
            of_rows = model.leverage(X)
            assert of_rows.shape == (len(X),) and of_rows.min() >= 0
            assert_allclose(of_rows.max(), 1, rtol=1e-9)
            far = X[:1] + 1e6 * X.std(axis=0)
            assert model.leverage(far)[0] > 2
            again = pickle.loads(pickle.dumps(model))
            assert_allclose(again.leverage(X), of_rows, rtol=1e-9)


def test_leverage_depends_on_no_unit_order_or_seed(seed):
    X, y = correlated_problem(seed, 100, 8)
    X[:, 0] = np.random.default_rng(seed).random(100) < 0.1
    rows = np.random.default_rng(seed).permutation(100)
    columns = np.random.default_rng(seed + 1).permutation(8)
    units = 10.0 ** np.arange(-4, 4)
    for name in ("ridge", "adaptive"):
        with case(name):
            expected = MODELS[name]().fit(X, y).leverage(X)[rows]
            moved = (X * units + 3 * units)[rows][:, columns]
            leverage = MODELS[name]().fit(moved, y[rows]).leverage(moved)
            assert_allclose(leverage, expected, rtol=2e-3, atol=1e-6)


def test_columns_without_members_do_not_count(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100, 30))
    model = AdaptiveOLSEnsembleRegressor(schemes=["lasso"]).fit(X, X[:, 0])
    unused = np.flatnonzero(model.inclusion_ < 1e-12)
    new = X.copy()
    new[:, unused] += 1000
    assert len(unused)
    assert_allclose(model.leverage(new), model.leverage(X), rtol=1e-9)


def test_nothing_varies_nothing_is_far():
    model = OLSEnsembleRegressorCV().fit(np.ones((20, 2)), np.arange(20.0))
    assert_allclose(model.leverage([[1.0, 1.0], [9.0, 9.0]]), 0)


@pytest.mark.parametrize("name", MODELS)
def test_leverage_is_equal_in_all_engines(name, tmp_path, seed, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y = correlated_problem(seed, 1100, 6)
    new = 4 * np.random.default_rng(seed).standard_normal((9, 6))
    expected = None
    for engine in engines(tmp_path, NAMES):
        model = engine.fit(MODELS[name](), X, y)
        leverage = engine.ask(lambda model, rows: np.asarray(model.leverage(rows)), model, new)
        expected = leverage if expected is None else expected
        with case(engine.name):  # sizes and penalties are tuned by folds instead of leave-one-out
            assert_allclose(leverage, expected, rtol=1e-6 if name == "given size" else 0.1)
        assert_allclose(
            np.max(engine.ask(lambda model, rows: np.asarray(model.leverage(rows)), model, X)), 1
        )


def test_weights_count_as_rows(seed):
    X, y = correlated_problem(seed, 60, 5)
    weight = np.random.default_rng(seed).integers(0, 3, 60).astype(float)
    model = OLSEnsembleRegressor(5, 2, random_state=seed).fit(X, y, weight)
    penalty = determinantal_penalty(np.repeat(X, weight.astype(int), axis=0), 2)
    assert_allclose(model.leverage(X), expected_leverage(X, X, penalty, weight), rtol=1e-8)


def test_pickles_without_rows(seed, monkeypatch, tmp_path):
    X, y = correlated_problem(seed, 80, 6)
    wide, target = correlated_problem(seed, 40, 60)
    model = AdaptiveOLSEnsembleRegressor().fit(X, y)
    expected = model.leverage(X)
    olsen.save(model, tmp_path / "with_rows.skops")
    assert_allclose(olsen.load(tmp_path / "with_rows.skops").leverage(X), expected)
    secret = pickle.loads(pickle.dumps(model.set_params(keep_rows=False)))
    with pytest.raises(ValueError, match="leverage needs the training data"):
        secret.leverage(X)
    monkeypatch.setattr(result, "MAX_STORED_BYTES", 1000)
    for fresh in (model, AdaptiveOLSEnsembleRegressor().fit(X, y)):  # computed before, and not
        again = pickle.loads(pickle.dumps(fresh.set_params(keep_rows=True)))
        assert_allclose(pickle.loads(pickle.dumps(again)).leverage(X), expected)
        olsen.save(fresh, tmp_path / "without_rows.skops")
        assert_allclose(olsen.load(tmp_path / "without_rows.skops").leverage(X), expected)
        (tmp_path / "without_rows.skops").unlink()
    again = pickle.loads(pickle.dumps(AdaptiveOLSEnsembleRegressor().fit(wide, target)))
    with pytest.raises(ValueError, match="leverage needs the training data"):
        again.leverage(wide)


def test_rows_that_cannot_be_read_again(seed):
    X, y = correlated_problem(seed, 300, 6)
    blocks = row_blocks(X, y)
    model = OLSEnsembleRegressor(5, 3, random_state=seed)
    with pytest.raises(ValueError, match="leverage needs the training data"):
        model.fit(blocks(), None).leverage(X)
    with pytest.raises(ValueError, match="leverage needs the training rows"):
        OLSEnsembleRegressor(5, 3).partial_fit(X, y).leverage(X)
    model.fit(blocks, None)
    with pytest.raises(ValueError, match="leverage needs the training data"):
        pickle.loads(pickle.dumps(model)).leverage(X)
    expected = model.leverage(X)
    assert_allclose(pickle.loads(pickle.dumps(model)).leverage(X), expected)


def test_leverage_of_a_pipeline(seed):
    X, y = correlated_problem(seed, 80, 6)
    model = make_pipeline(StandardScaler(), OLSEnsembleRegressor(5, 3, random_state=seed))
    expected = OLSEnsembleRegressor(5, 3, random_state=seed).fit(X, y).leverage(X)
    assert_allclose(olsen.leverage(model.fit(X, y), X), expected, rtol=1e-8)
