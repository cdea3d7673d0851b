"""Penalised least squares of many columns: several penalties from one Krylov space."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from olsen import OLSEnsembleRegressorCV
from olsen._members import penalised
from olsen._members.lanczos import Krylov
from olsen._members.penalised import NormalEquations, solve


def equations_of(seed, n, p, correlation=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    y = X @ rng.standard_normal((p, 1)) + rng.standard_normal((n, 1))
    return NormalEquations.from_gram(X.T @ X, X.T @ y, np.ones(p))


@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_penalties_of_one_krylov_space_are_those_of_direct_solutions(correlation, seed):
    equations = equations_of(seed, 600, 300, correlation)
    penalties = 600.0 * np.geomspace(0.01, 10, 5)
    expected = [
        np.linalg.solve(equations.M + penalty * np.eye(300), equations.right)
        for penalty in penalties
    ]
    assert_allclose(solve(equations, penalties), expected, atol=1e-10 * np.abs(expected).max())


def test_systems_that_krylov_spaces_do_not_solve_are_solved_directly(seed, monkeypatch):
    """Correlated columns take more steps than are allowed."""
    monkeypatch.setattr(penalised, "MAX_LANCZOS_STEPS", 5)
    equations = equations_of(seed, 600, 300, 0.9)
    penalties = np.array([1.0, 10.0])
    space = Krylov.of(equations.M.__matmul__, equations.right[:, 0], 1.0, 5)
    assert space.residual(1.0) > 1e-3
    expected = [
        np.linalg.solve(equations.M + penalty * np.eye(300), equations.right)
        for penalty in penalties
    ]
    assert_allclose(solve(equations, penalties), expected, rtol=1e-7, atol=1e-9)


def test_leave_one_out_of_as_many_rows_as_columns_needs_no_singular_vectors(seed, monkeypatch):
    """Eigenvalues far below every penalty that is tried may have lost digits."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 121))
    y = X @ rng.standard_normal(121) + 5 * rng.standard_normal(120)

    def fit():
        return OLSEnsembleRegressorCV(np.inf, sampling="determinantal", scale=1.0).fit(X, y)

    monkeypatch.setattr("olsen._tuning.penalties.SQUARED_ACCURACY", 1.0)  # always an SVD
    expected = fit()
    monkeypatch.undo()
    monkeypatch.setattr(np.linalg, "svd", None)
    assert_allclose(fit().coef_, expected.coef_, rtol=1e-7, atol=1e-9)
    assert_allclose(fit().best_score_, expected.best_score_, rtol=1e-9)
