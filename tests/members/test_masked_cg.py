"""Masked conjugate gradients: what they solve themselves, what they hand over, and that they say
so.

That the answers are right for every kind of input is shown in test_members, which runs over all
solvers.
"""

import math
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from loops import case
from olsen import OLSEnsembleRegressor
from olsen._data.rows import RowData
from olsen._members import masked_cg, solve
from olsen.subsets import Subsets, draw


def data(seed, n=120, p=40, q=1, correlation=0.0):
    """Rows of an autoregressive process over the columns, with means far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    Y = X @ rng.standard_normal((p, q)) + rng.standard_normal((n, q))
    return X + 10 * rng.standard_normal(p), Y + 5


def outcomes(problem, features):
    """Flags of the members that converged, and of those that are not trusted."""
    parts = [batch.outcome for batch in masked_cg.batches(problem, features)]
    converged = np.concatenate([part.converged for part in parts])
    return converged, np.concatenate([part.untrusted for part in parts])


def on_rows(monkeypatch):
    """Make dense data go without a Gram matrix."""
    monkeypatch.setattr(masked_cg, "_gram_pays", lambda *_: False)


def solve_both(problem, features):
    """By masked_cg, after it was compared with a direct solver."""
    got = solve(problem, features, None, solver="masked_cg")
    assert_same(got, solve(problem, features, None, solver="orthogonal"))
    return got


def assert_same(got, expected, rtol=1e-8):
    scale = np.abs(expected.values).max()
    np.testing.assert_allclose(got.values, expected.values, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(got.intercepts, expected.intercepts, rtol=rtol, atol=rtol * scale)


def test_members_converge_by_themselves(seed, monkeypatch):
    """On a Gram matrix, on dense rows and on sparse ones; with a common probe and with separate
    ones, which few rows need.
    """
    X, Y = data(seed, q=2)
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(X))
    for kind, n, fit_intercept, weighted in product(
        ["gram", "dense", "sparse"], [120, 60], [True, False], [True, False]
    ):
        with case(kind, n, fit_intercept, weighted), monkeypatch.context() as patch:
            if kind != "gram":
                on_rows(patch)
            rows = sp.csc_array(X[:n]) if kind == "sparse" else X[:n]
            problem = RowData(rows, Y[:n], weights[:n] if weighted else None, fit_intercept)
            features = draw(X.shape[1], 9, rng=seed, size=15)
            assert outcomes(problem, features)[0].all()
            assert not solve_both(problem, features).refitted.any()


def test_answers_do_not_depend_on_batches(seed, monkeypatch):
    for n, make in product([120, 12], [np.asarray, sp.csc_array]):
        with case(n, make):
            X, Y = data(seed, n=n)
            X[np.abs(X) < 3] = 0
            problem = RowData(make(X), Y)
            features = draw(X.shape[1], 11, rng=seed, size=20)
            together = solve_both(problem, features)
            with monkeypatch.context() as patch:
                patch.setattr(masked_cg, "BATCH_BYTES", 30_000)
                assert_same(solve(problem, features, None, solver="masked_cg"), together)


def test_tolerance_bounds_the_error(seed, monkeypatch):
    X, Y = data(seed, n=400, p=80, correlation=0.8)
    features = draw(80, 20, rng=seed, size=30)
    exact = solve(RowData(X, Y), features, None, solver="orthogonal").values
    for tol in (1e-4, 1e-7, 1e-10):
        monkeypatch.setattr(masked_cg, "TOL", tol)
        got = solve(RowData(X, Y), features, None, solver="masked_cg").values
        assert np.linalg.norm(got - exact) < 3 * tol * np.linalg.norm(exact)


def test_dependent_members_are_left_to_the_direct_solver_and_the_others_are_not(seed):
    """The whole Gram matrix is singular, so every member is probed by itself."""
    X, Y = data(seed)
    X[:, 1] = 2 * X[:, 0]
    features = Subsets.from_lists([[0, 1, 5, 7], [0, 5, 7], [1, 8, 9], [0, 1]], X.shape[1])
    problem = RowData(X, Y)
    converged, untrusted = outcomes(problem, features)
    assert converged.tolist() == [False, True, True, False]
    assert untrusted.tolist() == [True, False, False, True]
    solve_both(problem, features)


def test_a_small_residual_is_not_enough(seed, monkeypatch):
    """The right-hand side hardly has the direction of the smallest eigenvalue; a residual test
    would stop content.
    """
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((n, 12)))[0] for n in (200, 12))
    X, b = (U * np.r_[np.ones(11), 1e-6]) @ V.T, rng.standard_normal((12, 1))
    problem, features = RowData(X, X @ b, None, False), Subsets.from_lists([range(12)], 12)
    on_rows(monkeypatch)
    assert outcomes(problem, features)[1].tolist() == [True]
    np.testing.assert_allclose(
        solve(problem, features, None, solver="masked_cg").values, b, rtol=1e-7
    )


def test_columns_far_from_zero_and_constant_ones(seed, monkeypatch):
    """Rank-one centring would lose a column at 1e8 with spread 1; constant columns get coefficient
    zero.
    """
    on_rows(monkeypatch)
    X, Y = data(seed)
    X[:, 3] = 7.3
    X[:, 4] += 1e8
    X[:, 5] = 0.0
    features = Subsets.from_lists([[0, 1, 3], [1, 2, 4], [5, 6, 7], [3, 4, 5, 9]], X.shape[1])
    for problem in (RowData(X, Y), RowData(sp.csc_array(X), Y)):
        converged, untrusted = outcomes(problem, features)
        assert converged.tolist() == [True, False, True, False]
        assert untrusted.tolist() == [False, True, False, True]
        solve_both(problem, features)


def test_members_given_up_are_solved_directly(seed, monkeypatch):
    """With a warning that counts those that did not converge."""
    X, Y = data(seed, n=300, p=60, correlation=0.9)
    monkeypatch.setattr(masked_cg, "MAX_STEPS", 8)
    for make in (np.asarray, sp.csc_array):
        with pytest.warns(
            ConvergenceWarning, match=r"7 of 7 members .* 8 steps.*relative error.*directly"
        ):
            solve_both(RowData(make(X), Y), draw(60, 7, rng=seed, size=30))


def test_sparse_data_are_never_made_dense(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    X = sp.random_array((3000, 5000), density=0.002, random_state=rng, format="csr")
    y = X @ rng.standard_normal(5000) + rng.standard_normal(3000)
    for kind in (sp.csc_array, sp.csr_array):
        plain = kind.toarray
        monkeypatch.setattr(
            kind, "toarray", lambda A, plain=plain: plain(A) if math.prod(A.shape) < 1e6 else 1 / 0
        )
    model = OLSEnsembleRegressor(6, 200, solver="masked_cg", random_state=seed).fit(X, y)
    assert model.solver_ == "masked_cg" and model.n_fallbacks_ == 0


def test_out_of_memory_halves_the_batch_then_says_so(seed, monkeypatch):
    X, Y = data(seed)
    problem, features = RowData(X, Y), draw(X.shape[1], 12, rng=seed, size=10)
    expected = solve(problem, features, None, solver="masked_cg")
    plain, tried = masked_cg._solve_batch, []

    def short_of_memory(equations, features, members, smallest):
        tried.append(len(members))
        if len(members) > allowed:
            raise MemoryError("no more")
        return plain(equations, features, members, smallest)

    monkeypatch.setattr(masked_cg, "_solve_batch", short_of_memory)
    allowed = 4
    assert_same(solve(problem, features, None, solver="masked_cg"), expected)
    assert tried[:3] == [12, 6, 3]
    allowed = 0
    with pytest.raises(MemoryError, match=r"single member at a time.*max_features"):
        solve(problem, features, None, solver="masked_cg")
