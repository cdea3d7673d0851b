"""General covariance: reductions to exact cases, and short simulations of given pairs."""

import numpy as np
import pytest

import theory_simulation as sim
from olsen import theory


def test_identity_pairs_are_the_exact_ones():
    n, p = 16, 10
    beta = np.arange(1.0, p + 1) / 7
    first, second = [0, 1, 2, 3], [2, 3, 4, 5, 6]
    exact = theory.overlap_bias(n, 2, np.sum(beta[7:] ** 2)) + theory.overlap_variance(n, 2, 1.3)
    assert theory.pair_risk(np.eye(p), beta, first, second, 1.3, n=n) == pytest.approx(exact, rel=1e-12)
    variances = np.geomspace(1, 30, p)
    assert theory.pair_risk(variances, beta / variances**0.5, first, second, 1.3, n=n) == pytest.approx(
        exact, rel=1e-12
    )


def test_one_member_with_itself_is_exact_for_any_covariance():
    """(sigma^2 + Schur complement) (tau - 1) / (tau - m - 1)."""
    Sigma, beta, S = sim.ar1(6, 0.7), np.array([1.0, -1, 2, 0.5, 0, 3]), [0, 2, 5]
    rest = [1, 3, 4]
    schur = Sigma[np.ix_(rest, rest)] - Sigma[np.ix_(rest, S)] @ np.linalg.solve(
        Sigma[np.ix_(S, S)], Sigma[np.ix_(S, rest)]
    )
    left = beta[rest] @ schur @ beta[rest]
    expected = (0.6**2 + left) * (12 - 1) / (12 - 3 - 1) - 0.6**2
    result = theory.pair_risk(Sigma, beta, S, S, 0.6, n=20, rows_i=12, rows_j=12, shared_rows=12)
    assert result == pytest.approx(expected, rel=1e-12)


def test_pair_is_symmetric_and_equivariant():
    Sigma, beta = sim.ar1(6, 0.7), np.array([1.0, -1, 2, 0.5, 0, 3])
    there = theory.pair_risk(Sigma, beta, [0, 2, 4], [1, 2, 5], 0.5, n=20, rows_i=10, rows_j=14)
    back = theory.pair_risk(Sigma, beta, [1, 2, 5], [0, 2, 4], 0.5, n=20, rows_i=14, rows_j=10)
    assert there == pytest.approx(back, rel=1e-12)
    scale = np.geomspace(0.1, 10, 6)
    scaled = theory.pair_risk(
        Sigma * np.outer(scale, scale), beta / scale, [0, 2, 4], [1, 2, 5], 0.5, n=20, rows_i=10, rows_j=14
    )
    assert scaled == pytest.approx(there, rel=1e-10)
    masks = [np.isin(np.arange(6), S) for S in ([0, 2, 4], [1, 2, 5])]
    assert theory.pair_risk(Sigma, beta, *masks, 0.5, n=20, rows_i=10, rows_j=14) == pytest.approx(there)


def test_disjoint_rows_leave_the_product_of_mean_errors():
    Sigma, beta = sim.ar1(5, 0.5), np.ones(5)
    value = theory.pair_risk(Sigma, beta, [0, 1], [3, 4], 2.0, n=20, rows_i=10, rows_j=10, shared_rows=0)
    assert value == pytest.approx(theory.pair_risk(Sigma, beta, [0, 1], [3, 4], 0.0, n=1e12), rel=1e-9)


def test_ridge_on_all_columns_is_the_limiting_ridge_risk():
    p, n = 60, 40
    beta = np.full(p, p**-0.5)
    for lam in (0.1, 1.0):
        risk = theory.ridge_covariance_risk(np.ones(p), beta, lam * n, 0.8, n=n)
        assert risk == pytest.approx(theory.ridge_risk(lam, p / n, 0.8), rel=1e-9)
    ridgeless = theory.ridge_covariance_risk(np.ones(p), beta, 0.0, 0.8, n=n)
    assert ridgeless == pytest.approx(theory.ridge_risk(0.0, p / n, 0.8), rel=1e-9)


@pytest.mark.parametrize("average", ["projector", "pairs"])
@pytest.mark.parametrize("eta", [0.8, 1.0])
def test_average_over_subsets_matches_the_exact_identity_risk(seed, average, eta):
    n, p = 2000, 60
    k = np.array([1, 4, np.inf])
    beta = sim.unit_signal(p, seed)
    value, error = theory.covariance_risk(
        np.eye(p), beta, 0.4, 0.9, n=n, k=k, eta=eta, rng=seed, average=average, n_subsets=400, return_std=True
    )
    exact = theory.expected_risk(n, p, 24, 0.9, k=k, n_samples=int(eta * n))
    assert np.all(np.abs(value - exact) < 4 * error + 5 / n * exact / n)
    again = theory.covariance_risk(
        np.eye(p), beta, 0.4, 0.9, n=n, k=k, eta=eta, rng=seed, average=average, n_subsets=400
    )
    np.testing.assert_array_equal(value, again)


def test_stated_monte_carlo_error_is_the_spread_over_seeds(seed):
    """Forty repetitions: the mean stated error within a factor 1.7 of the observed spread (4 SE of a spread: 1.45)."""
    Sigma, beta = sim.ar1(20, 0.6), sim.unit_signal(20)
    for average in ("projector", "pairs"):
        runs = [
            theory.covariance_risk(
                Sigma, beta, 0.3, 0.5, n=50, k=5, rng=[seed, i], n_subsets=40, average=average, return_std=True
            )
            for i in range(40)
        ]
        values, errors = np.transpose(runs)
        assert 1 / 1.7 < values.std(ddof=1) / errors.mean() < 1.7


def test_coin_probabilities_match_the_diagonal_closed_form(seed):
    p, n = 80, 4000
    variances, beta = np.geomspace(1, 0.05, p), sim.unit_signal(p)
    alpha = np.linspace(0.1, 0.7, p)
    k = np.array([2, np.inf])
    value, error = theory.covariance_risk(variances, beta, alpha, 0.5, n=n, k=k, rng=seed, return_std=True)
    closed = theory.diagonal_risk(variances, beta, alpha, 0.5, n=n, k=k)
    assert np.all(np.abs(value - closed) < 4 * error + 2 / n * closed)


def test_effective_penalty_solves_its_equation():
    values = np.geomspace(0.01, 10, 30)
    for rows, penalty in [(12, 0.0), (12, 3.0), (60, 1e-3)]:
        mu = theory.effective_penalty(values, rows, penalty)
        assert mu * (rows - np.sum(values / (values + mu))) == pytest.approx(penalty, abs=1e-9)
    assert theory.effective_penalty(values, 40) == 0


def test_guards():
    with pytest.raises(ValueError, match="p x p"):
        theory.pair_risk(np.eye(3), np.ones(4), [0], [1], 1.0, n=10)
    with pytest.raises(ValueError, match="shared_rows <= rows <= n"):
        theory.pair_risk(np.eye(3), np.ones(3), [0], [1], 1.0, n=10, rows_i=5, shared_rows=6)
    with pytest.raises(ValueError, match=r"covariance_risk$|theory.covariance_risk"):
        theory.diagonal_risk(np.ones(30), np.ones(30), np.full(30, 0.9), 1.0, n=10)
    assert theory.pair_risk(np.eye(9), np.ones(9), np.arange(5), np.arange(5), 1.0, n=5) == np.inf


def simulated_pair(rng, n, Sigma, beta, sigma, first, second, trials):
    risk = sim.simulate(rng, n, beta, sigma, lambda _: [first, second], covariance=Sigma, trials=trials)
    return risk.pair


@pytest.mark.parametrize(
    ("n", "Sigma", "first", "second"),
    [
        (16, sim.ar1(6, 0.7), [0, 1, 2, 3], [2, 3, 4, 5]),  # separated by the intersection: exact
        (16, sim.log_diagonal(8), [0, 2, 4], [2, 4, 6, 7]),  # diagonal: exact
        (40, sim.ar1(6, 0.8), [0, 2, 4], [1, 3, 5]),  # corrected
        (40, sim.equicorrelated(8, 0.4), [0, 1, 2, 3], [3, 4, 5, 6]),
    ],
)
def test_simulated_pairs(seed, n, Sigma, first, second):
    rng = np.random.default_rng(seed)
    beta = sim.unit_signal(len(Sigma), 5)
    pair = simulated_pair(rng, n, Sigma, beta, 0.7, np.array(first), np.array(second), trials=2500)
    expected = theory.pair_risk(Sigma, beta, first, second, 0.7, n=n)
    assert pair.agrees_with(expected), f"{pair} against {expected:.5f}"
