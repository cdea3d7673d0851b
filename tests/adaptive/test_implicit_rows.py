"""Sparse and wide rows that are never standardised explicitly: the answers are those of dense rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import lasso_path as sklearn_lasso_path

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data import implicit
from olsen._data.implicit import ImplicitRows
from olsen._data.rows import RowData
from olsen._data.standardised import CONSTANT_TOL, StandardisedRows
from olsen._members import penalised, screened_lasso
from olsen._members.implicit_products import N_PROBES

SCHEMES = ["ridge", "rare", "power", "lasso", "sparse", "null"]  # uniform members have another size


def table(seed, n=60, p=90):
    """Sparse counts with a one-hot factor, copies, and constant and rare columns; and a target."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.4, (n, p)).astype(np.float64)
    X[:, :8] = np.eye(8)[rng.integers(0, 8, n)]
    X[:, 9] = X[:, 8]
    X[:, 10] = -X[:, 8]
    X[:, 11] = 3.0
    X[:, 12] = 0.0
    X[:, 13] = np.arange(n) == 5  # a level that occurs once
    X[:, 14] += 1000.0
    return X, X[:, 15:20] @ rng.standard_normal(5) + rng.standard_normal(n)


STORED = {
    "double": np.asarray,
    "single": lambda X: X.astype(np.float32),
    "integers": lambda X: X.astype(np.int16),
    "by columns": np.asfortranarray,
    "sparse": sp.csc_array,
}


@pytest.fixture
def always_implicit(monkeypatch):
    monkeypatch.setattr(implicit, "MAX_EXPLICIT_ENTRIES", 0)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_products_are_those_of_standardised_rows(kind, weighted, fit_intercept, seed, monkeypatch):
    monkeypatch.setattr("olsen._data.stored.BLOCK_ENTRIES", 700)  # several blocks
    rng = np.random.default_rng(seed)
    X, y = table(seed)
    n, p = X.shape
    weight = rng.integers(1, 4, n).astype(float) if weighted else None
    explicit, unit = StandardisedRows.of(RowData(X, y[:, None], weight, fit_intercept))
    rows, implicit_unit = ImplicitRows.of(
        RowData(STORED[kind](X), y[:, None], weight, fit_intercept)
    )
    assert_allclose(implicit_unit, unit, rtol=1e-9)
    training_rows = np.sort(rng.permutation(n)[:40])
    pairs = [
        (explicit, rows),
        (explicit.take(training_rows), rows.take([training_rows], CONSTANT_TOL)[0]),
    ]
    V = rng.standard_normal((p, 2))
    few = np.where(np.arange(p)[:, None] % 10 == 3, V, 0.0)
    d = rng.uniform(size=p) * (rng.uniform(size=p) < 0.8)
    columns = np.array([3, 8, 9, 11, 13, 14, 40])
    for dense, stored in pairs:
        A = dense.A
        U = rng.standard_normal((len(A), 2))
        close = {"rtol": 0, "atol": 1e-7}  # a column is a thousand deviations from zero
        assert_allclose(stored.gathered(slice(None)), A, **close)
        assert_allclose(stored.times(V), A @ V, **close)
        assert_allclose(stored.times(few), A @ few, **close)
        assert_allclose(stored.transposed_times(U), A.T @ U, **close)
        assert_allclose(stored.weighted_products(d), A * d @ A.T, **close)
        assert_allclose(stored.products, dense.products, **close)
        assert_allclose(
            stored.products_of_columns(columns), A[:, columns].T @ A[:, columns], **close
        )
        assert_allclose(stored.squares, dense.squares, **close)
        assert_array_equal(stored.squares > 0, dense.squares > 0)
        assert_allclose(stored.C, dense.C, **close)


FITS = {
    "plain": {},
    "weights": {"weight": True},
    "no intercept": {"fit_intercept": False},
    "two targets": {"targets": True},
    "folds of a splitter": {"cv": 4},
}


@pytest.mark.parametrize("case", FITS)
def test_fits_are_those_of_dense_rows(case, always_implicit, monkeypatch):
    """Of sparse rows, and of integers, where every step but uniform members is computed implicitly."""
    # coordinate descent of all columns and of a working set agree up to its tolerance
    monkeypatch.setattr(penalised, "LASSO_TOL", 1e-16)
    monkeypatch.setattr(screened_lasso, "MIN_WORKING_COLUMNS", 5)
    settings = FITS[case].copy()
    X, y = table(1)
    weight = np.arange(len(y)) % 3.0 if settings.pop("weight", False) else None
    if settings.pop("targets", False):
        y = np.stack([y, X[:, 30] - y], axis=1)
    model = AdaptiveOLSEnsembleRegressor(SCHEMES, **settings)
    fits = []
    for stored, most in ((X, 1 << 22), (sp.csr_array(X), 0), (X.astype(np.int16), 0)):
        monkeypatch.setattr(implicit, "MAX_EXPLICIT_ENTRIES", most)
        model.fit(stored, y, weight)
        fits.append(
            {
                "coef": model.coef_,
                "intercept": model.intercept_,
                "predictions": model.cv_prediction_,
                "score": model.best_score_,
                "inclusion": model.inclusion_,
                "frequency": model.selection_frequency_,
                "interval": model.predict_interval(X[:5]),
                "leverage": model.leverage(X[:5]),
            }
        )
    dense, *others = fits
    for fit in others:
        for name, value in fit.items():
            atol = 1e-6 * np.nanmax(np.abs(dense[name]))
            assert_allclose(value, dense[name], rtol=0, atol=atol, err_msg=name)


SIZES = {
    "leave-one-out": {},
    "k-fold": {"cv": 4},
    "generalised": {"cv": "gcv"},
    "out-of-bag": {"cv": "oob", "max_samples": 0.7},
    "rows and columns": {"max_samples": [0.5, 1.0]},
    "some rows": {"max_samples": 0.6, "cv": 3},
    "no intercept": {"fit_intercept": False},
    "determinantal": {"sampling": "determinantal"},
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_are_chosen_from_the_columns_of_paths(case, monkeypatch):
    """Tuned sizes of sparse rows and of integers, whose columns are copied for the paths through
    them.
    """
    X, y = table(1, 50, 200)
    model = OLSEnsembleRegressorCV(random_state=0, **SIZES[case])
    fits = []
    X = np.rint(10 * X).astype(np.int16)  # products leave the range of the type
    for stored, most in ((X.astype(float), 1 << 22), (sp.csr_array(X), 0), (X, 0)):
        monkeypatch.setattr(implicit, "MAX_EXPLICIT_ENTRIES", most)
        model.fit(stored, y)
        new = X[:5] + 0.5
        fits.append(
            {
                "score": model.cv_results_["mean_test_score"],
                "coef": model.coef_,
                "predictions": model.cv_prediction_,
                "interval": model.predict_interval(new),
                "leverage": model.leverage(new),
            }
        )
    dense, *others = fits
    for fit in others:
        for name, value in fit.items():
            atol = 1e-9 * np.nanmax(np.abs(dense[name]))
            assert_allclose(value, dense[name], rtol=0, atol=atol, err_msg=name)


def test_fits_do_not_depend_on_the_order_of_rows_and_columns(always_implicit, seed):
    X, y = table(seed, 120, 150)
    X = np.delete(X, [9, 10], axis=1)  # which of several copies is in a uniform member is arbitrary
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))
    columns = rng.permutation(X.shape[1])
    model = AdaptiveOLSEnsembleRegressor(random_state=0)
    coef = model.fit(sp.csr_array(X), y).coef_
    moved = model.fit(sp.csr_array(X[rows][:, columns]), y[rows]).coef_
    assert_allclose(moved, coef[columns], rtol=0, atol=1e-6 * np.abs(coef).max())


@pytest.mark.parametrize("shape", [(150, 260), (260, 150)])
@pytest.mark.parametrize("stored", [np.asarray, sp.csc_array])
def test_many_rows_are_solved_by_products_with_vectors(shape, stored, monkeypatch):
    """Penalised least squares for all penalties, probabilities, and members."""
    monkeypatch.setattr(implicit, "MAX_PRODUCT_ROWS", 10)
    monkeypatch.setattr(penalised, "MAX_GATHERED_COLUMNS", 20)
    n, p = shape
    X, y = table(2, n, p)
    explicit, _ = StandardisedRows.of(RowData(X, y[:, None]))
    rows, _ = ImplicitRows.of(RowData(stored(X), y[:, None]))
    assert not rows.few_rows
    rng = np.random.default_rng(0)
    penalties = np.geomspace(0.03, 30, 6)
    for n_columns in (p, 100, 15):  # all columns, many and few with a prior variance
        d = np.where(rng.permutation(p) < n_columns, rng.uniform(0.1, 1, p), 0.0)
        expected = penalised.penalised(explicit, d[:, None], penalties[:, None])
        found = penalised.penalised(rows, d[:, None], penalties[:, None])
        assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        chances = penalised.inclusion(explicit, d, 1.0)
        estimated = penalised.inclusion(rows, d, 1.0)
        if n_columns == 15:
            assert_allclose(estimated, chances, rtol=0, atol=1e-8)
        else:  # a mean of N_PROBES squares, five standard errors
            error = chances * np.sqrt(2 / N_PROBES)
            assert np.all(np.abs(estimated - chances) <= 5 * error + 1e-12)
            assert_allclose(estimated.sum(), chances.sum(), rtol=0.1)
    columns = np.sort(rng.permuted(np.tile(np.arange(p), (4, 1)), axis=1)[:, :30], axis=1)
    expected = penalised.members(explicit, columns, 1e-5)
    found = penalised.members(rows, columns, 1e-5)
    assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("stored", [np.asarray, sp.csc_array])
def test_the_screened_lasso_is_that_of_scikit_learn(stored, seed, monkeypatch):
    """Weights, a small first working set, and columns that are centred implicitly."""
    monkeypatch.setattr(screened_lasso, "MIN_WORKING_COLUMNS", 3)
    X, y = table(seed, 80, 120)
    X = np.delete(X, [9, 10], axis=1)  # the split among copies is arbitrary
    weight = 1.0 + np.arange(80) % 3
    rows, _ = ImplicitRows.of(RowData(stored(X), y[:, None], weight))
    monkeypatch.setattr(rows.__class__, "n_rows", 12)  # as the first working set
    top = np.abs(rows.C).max()
    penalties = top * np.geomspace(0.9, 0.1, 8)
    found = screened_lasso.screened_lasso_path(rows, penalties, max_columns=80, tol=1e-18)
    A = rows.gathered(slice(None))
    _, expected, _ = sklearn_lasso_path(
        A, rows.B[:, 0], alphas=penalties / len(A), tol=1e-12, max_iter=100_000
    )
    assert_allclose(found[:, :, 0], expected.T, rtol=0, atol=1e-6)
