"""Formulas of the papers that followed: penalties, paths, budgets, members that differ, new rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import theory_simulation as sim
from loops import case
from olsen import theory

K = np.array([1, 4, np.inf])


# Members with a penalty, identity covariance


def test_a_member_with_a_penalty_is_the_pair_formula_on_equal_coefficients():
    """With equal coefficients the position of the columns does not matter, so that one member and
    the general formula agree to rounding.
    """
    n = 90
    p = 60
    beta = np.full(p, p**-0.5)
    for m, tau, penalty in [(20, 90, 5.0), (60, 45, 30.0), (60, 30, 0.0), (50, 60, 0.01)]:
        S = np.arange(m)
        rows = {"n": n, "rows_i": tau, "rows_j": tau, "shared_rows": tau}
        expected = theory.pair_risk(np.ones(p), beta, S, S, 0.8, **rows, penalty=penalty)
        if penalty == 0:
            limit = theory.pair_risk(np.ones(p), beta, S, S, 0.8, **rows, penalty=1e-12)
            assert expected == pytest.approx(limit, rel=1e-9)
        letters = {"alpha": m / p, "gamma": p / n, "eta": tau / n, "lam": penalty / n, "k": 1}
        with case(m, tau, penalty):
            assert theory.limiting_risk(sigma=0.8, **letters) == pytest.approx(expected, rel=1e-9)
            bias = theory.limiting_bias(**letters)
            variance = theory.limiting_variance(sigma=0.8, **letters)
            assert bias + variance == pytest.approx(expected, rel=1e-9)


def test_pairs_of_members_with_a_penalty_are_the_average_over_subsets(seed):
    n = 3000
    p = 80
    beta = sim.unit_signal(p, seed)
    options = {"n": n, "k": K, "eta": 0.02, "penalty": 12.0, "n_subsets": 400, "rng": seed}
    value, error = theory.covariance_risk(np.ones(p), beta, 0.5, 0.4, **options, return_std=True)
    expected = theory.limiting_risk(0.5, p / n, 0.4, k=K, eta=0.02, lam=12.0 / n)
    assert np.all(np.abs(value - expected) < 4 * error)


def test_a_vanishing_penalty_is_none_on_both_sides_of_the_peak():
    for alpha, eta in [(0.3, 1.0), (0.9, 0.4), (1.0, 0.3)]:
        letters = {"gamma": 1.3, "k": K, "eta": eta}
        plain = theory.limiting_risk(alpha, sigma=0.7, **letters)
        assert_allclose(theory.limiting_risk(alpha, sigma=0.7, **letters, lam=1e-12), plain, 1e-9)
    at_peak = theory.limiting_risk(0.5, 2.0, 0.7, k=K, lam=[[0.0], [1e-4], [0.1]])
    assert np.all(np.isinf(at_peak[0, :2])) and np.all(np.isfinite(at_peak[1:]))
    assert np.all(np.diff(at_peak[1:, 0]) < 0)


# Paths of equal risk


def test_the_risk_is_that_of_ridge_regression_along_both_paths():
    for gamma in (0.4, 1.0, 2.5):
        for lam in (0.05, 0.7, 3.0):
            delta = theory.alpha_from_penalty(lam, gamma)
            ridge = theory.ridge_risk(lam, gamma, 0.6)
            alphas = np.linspace(delta, 1, 5)
            etas = np.linspace(gamma * delta, 1, 5)
            columns = theory.column_path(lam, gamma, alphas)
            rows = theory.row_path(lam, gamma, etas)
            with case(gamma, lam):
                assert_allclose([columns[0], rows[0]], 0, atol=1e-12)
                assert_allclose([columns[-1], rows[-1]], lam, rtol=1e-12)
                risks = theory.limiting_risk(alphas, gamma, 0.6, lam=columns)
                assert_allclose(risks, ridge, rtol=1e-9)
                risks = theory.limiting_risk(1.0, gamma, 0.6, eta=etas, lam=rows)
                assert_allclose(risks, ridge, rtol=1e-9)
                assert_allclose(np.diff(columns, 2), 0, atol=1e-12)  # a straight line
                with pytest.raises(ValueError, match=f"alpha = delta = {delta:.6g}"):
                    theory.column_path(lam, gamma, 0.9 * delta)


# Budgets


@pytest.mark.parametrize("design", ["independent", "balanced"])
@pytest.mark.parametrize("of", ["parameters", "operations"])
def test_the_best_shape_is_the_best_of_all_shapes(design, of):
    n = 40
    p = 25
    budget = 70 if of == "parameters" else n * p**2 + 3000
    sigmas = np.array([[0.1, 0.5], [1.0, 3.0]])
    shape = theory.optimal_shape(n, p, sigmas, budget=budget, of=of, design=design)
    for index, sigma in np.ndenumerate(sigmas):
        risks = {}
        for m in range(1, p + 1):
            k = 0
            while ((k + 1) * m if of == "parameters" else n * p**2 + (k + 1) * m**3 / 3) <= budget:
                k += 1
            if k:
                risks[m] = theory.expected_risk(n, p, m, sigma, k=k, design=design), k
        best = min(risks, key=risks.get)
        with case(sigma):
            assert shape.n_features[index] == best
            assert (shape.risk[index], shape.k[index]) == risks[best]
    assert shape.k[1, 1] > shape.k[0, 0]
