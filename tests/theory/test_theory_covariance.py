"""General covariance and unequal probabilities: reductions, enumeration, optima, and simulations of
real ensembles.
"""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

import theory_simulation as sim
from loops import case
from olsen import theory
from olsen.theory import _distributions

# Covariances


def test_identity_pairs_are_the_exact_ones():
    n, p = 16, 10
    beta = np.arange(1.0, p + 1) / 7
    first, second = [0, 1, 2, 3], [2, 3, 4, 5, 6]
    exact = theory.overlap_bias(n, 2, np.sum(beta[7:] ** 2)) + theory.overlap_variance(n, 2, 1.3)
    assert theory.pair_risk(np.eye(p), beta, first, second, 1.3, n=n) == pytest.approx(
        exact, rel=1e-12
    )
    variances = np.geomspace(1, 30, p)
    assert theory.pair_risk(
        variances, beta / variances**0.5, first, second, 1.3, n=n
    ) == pytest.approx(exact, rel=1e-12)


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


def test_pair_is_symmetric_and_equivariant_and_of_disjoint_rows_the_product_of_mean_errors():
    Sigma, beta, first, second = (
        sim.ar1(6, 0.7),
        np.array([1.0, -1, 2, 0.5, 0, 3]),
        [0, 2, 4],
        [1, 2, 5],
    )
    scale, rows = np.geomspace(0.1, 10, 6), {"n": 20, "rows_i": 10, "rows_j": 14}
    there = theory.pair_risk(Sigma, beta, first, second, 0.5, **rows)
    for same in (
        theory.pair_risk(Sigma, beta, second, first, 0.5, n=20, rows_i=14, rows_j=10),
        theory.pair_risk(Sigma * np.outer(scale, scale), beta / scale, first, second, 0.5, **rows),
        theory.pair_risk(
            Sigma, beta, *(np.isin(np.arange(6), S) for S in (first, second)), 0.5, **rows
        ),
    ):
        assert same == pytest.approx(there, rel=1e-10)
    disjoint = theory.pair_risk(
        Sigma, beta, [0, 1], [3, 4], 2.0, n=20, rows_i=10, rows_j=10, shared_rows=0
    )
    assert disjoint == pytest.approx(
        theory.pair_risk(Sigma, beta, [0, 1], [3, 4], 0.0, n=1e12), rel=1e-9
    )


def test_ridge_on_all_columns_is_the_limiting_ridge_risk():
    p, n = 60, 40
    beta = np.full(p, p**-0.5)
    for lam in (0.0, 0.1, 1.0):
        risk = theory.ridge_covariance_risk(np.ones(p), beta, lam * n, 0.8, n=n)
        assert risk == pytest.approx(theory.ridge_risk(lam, p / n, 0.8), rel=1e-9)


def test_average_over_subsets_matches_the_closed_forms(seed):
    n, p = 2000, 60
    k = np.array([1, 4, np.inf])
    beta = sim.unit_signal(p, seed)
    for eta in (0.8, 1.0):
        how = {"n": n, "k": k, "eta": eta, "rng": seed, "n_subsets": 400}
        value, error = theory.covariance_risk(np.eye(p), beta, 0.4, 0.9, **how, return_std=True)
        exact = theory.expected_risk(n, p, 24, 0.9, k=k, n_samples=int(eta * n))
        assert np.all(np.abs(value - exact) < 4 * error + 5 / n * exact / n), eta
        np.testing.assert_array_equal(
            value, theory.covariance_risk(np.eye(p), beta, 0.4, 0.9, **how)
        )
    p, n = 80, 4000
    variances, beta, alpha = np.geomspace(1, 0.05, p), sim.unit_signal(p), np.linspace(0.1, 0.7, p)
    value, error = theory.covariance_risk(
        variances, beta, alpha, 0.5, n=n, k=k, rng=seed, return_std=True
    )
    closed = theory.diagonal_risk(variances, beta, alpha, 0.5, n=n, k=k)
    assert np.all(np.abs(value - closed) < 4 * error + 2 / n * closed)


def test_stated_monte_carlo_error_is_the_spread_over_seeds(seed):
    """Forty repetitions: the mean stated error within a factor 1.7 of the observed spread (4 SE of
    a spread: 1.45).
    """
    Sigma, beta, how = (
        sim.ar1(20, 0.6),
        sim.unit_signal(20),
        {"n": 50, "k": 5, "n_subsets": 40, "return_std": True},
    )
    runs = [theory.covariance_risk(Sigma, beta, 0.3, 0.5, rng=[seed, i], **how) for i in range(40)]
    values, errors = np.transpose(runs)
    assert 1 / 1.7 < values.std(ddof=1) / errors.mean() < 1.7


def test_effective_penalty_solves_its_equation():
    values = np.geomspace(0.01, 10, 30)
    for rows, penalty in [(12, 0.0), (12, 3.0), (60, 1e-3)]:
        mu = theory.effective_penalty(values, rows, penalty)
        assert mu * (rows - np.sum(values / (values + mu))) == pytest.approx(penalty, abs=1e-9)
    assert theory.effective_penalty(values, 40) == 0


def test_simulated_pairs(seed):
    rng = np.random.default_rng(seed)
    for n, Sigma, first, second in [
        (16, sim.ar1(6, 0.7), [0, 1, 2, 3], [2, 3, 4, 5]),  # separated by the intersection: exact
        (16, sim.log_diagonal(8), [0, 2, 4], [2, 4, 6, 7]),  # diagonal: exact
        (40, sim.ar1(6, 0.8), [0, 2, 4], [1, 3, 5]),  # corrected
        (40, sim.equicorrelated(8, 0.4), [0, 1, 2, 3], [3, 4, 5, 6]),
    ]:
        beta, members = sim.unit_signal(len(Sigma), 5), [np.array(first), np.array(second)]
        risk = sim.simulate(
            rng, n, beta, 0.7, lambda _, members=members: members, covariance=Sigma, trials=1500
        )
        with case(n, first, second):
            risk.pair.check(theory.pair_risk(Sigma, beta, first, second, 0.7, n=n))


# Unequal probabilities on uncorrelated columns


def enumerated_risks(n, signal, alpha, sigma):
    """One member, and a pair, over all subsets that are accepted."""
    subsets = [
        np.array(s, dtype=bool)
        for s in product([False, True], repeat=len(alpha))
        if sum(s) <= n - 2
    ]
    weight = np.array([np.prod(np.where(s, alpha, 1 - alpha)) for s in subsets])
    weight /= weight.sum()

    def risk(first, second):
        shared = np.sum(first & second)
        inflation = shared / (n - shared - 1)
        return signal[~(first | second)].sum() * (1 + inflation) + sigma**2 * inflation

    pairs = np.array([[risk(first, second) for second in subsets] for first in subsets])
    return weight @ np.diag(pairs), weight @ pairs @ weight


def test_every_pair_of_subsets_by_enumeration_with_and_without_rejection():
    k = np.array([1, 4, np.inf])
    for n, certain in product([3, 4, 5, 6, 7, 30], [False, True]):
        rng = np.random.default_rng(n)
        alpha = rng.uniform(0.05, 0.95, 5)
        alpha *= min(1, (n - 1.5) / alpha.sum())
        if certain:
            alpha[0], alpha[3] = 0.0, 1.0 if n > 4 else alpha[3]
        variances, beta = rng.uniform(0.2, 3, 5), rng.standard_normal(5)
        own, pair = enumerated_risks(n, variances * beta**2, alpha, 0.7)
        risk = theory.expected_diagonal_risk(variances, beta, alpha, 0.7, n=n, k=k)
        with case(n, certain):
            np.testing.assert_allclose(risk, pair + (own - pair) / k, rtol=1e-12)


def test_equal_probabilities_are_the_expected_risk_of_coin_flips():
    """With and without rejection, and wherever the signal is."""
    k = np.array([1, 3, np.inf])
    for n, p, m in [(40, 30, 9), (100, 150, 40), (24, 40, 16), (60, 50, 40), (100, 150, 85.5)]:
        coins = theory.expected_risk(n, p, m, 0.6, k=k, sampling="bernoulli")
        for beta in (np.full(p, p**-0.5), sim.sparse_signal(1, p), sim.sparse_signal(7, p)):
            risk = theory.expected_diagonal_risk(1.0, beta, np.full(p, m / p), 0.6, n=n, k=k)
            with case(n, p, m):
                np.testing.assert_allclose(risk, coins, rtol=1e-12)


def test_negligible_rejection_joins_the_sum_over_accepted_pairs(monkeypatch):
    """Where nothing is rejected the two ways of summing agree."""
    alpha, beta = np.linspace(0.2, 0.6, 60), sim.unit_signal(60)
    for n in (57, 61, 62, 200):
        plain = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, n=n)
        with monkeypatch.context() as patch:
            patch.setattr(_distributions, "NEGLIGIBLE", -1.0)
            accepted = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, n=n)
        assert plain == pytest.approx(accepted, rel=1e-12)


def test_finite_samples_tend_to_the_limit_like_one_over_n():
    for s in (1, 10, 200):
        gaps = []
        for copies in (10, 20):
            beta, alpha = (
                np.repeat(sim.sparse_signal(s, 200), copies),
                np.repeat(np.linspace(0.6, 0.1, 200), copies),
            )
            beta /= np.sqrt(copies)
            how = {"n": 300 * copies, "k": np.array([1, 3, np.inf])}
            exact = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, **how)
            gaps.append(exact - theory.diagonal_risk(1.0, beta, alpha, 0.5, **how))
        np.testing.assert_allclose(2 * gaps[1], gaps[0], rtol=0.02)


def test_diagonal_risk_is_the_paper_limit_for_uniform_coins():
    p = 500
    for k, eta in [(1, 1.0), (7, 0.6), (np.inf, 0.8)]:
        value = theory.diagonal_risk(
            np.ones(p), np.full(p, p**-0.5), np.full(p, 0.3), 0.8, n=400, k=k, eta=eta
        )
        assert value == pytest.approx(theory.limiting_risk(0.3, 1.25, 0.8, k=k, eta=eta), rel=1e-12)


def test_matched_probabilities_restore_ridge_and_uniform_ones_do_not():
    p = n = 100
    variances = np.logspace(0, -2, p)
    beta = np.full(p, p**-0.5)
    sigma, penalty = 0.3, p * 0.3**2
    matched = theory.ridge_matched_probabilities(variances, penalty, n=n)
    ensemble = theory.diagonal_risk(variances, beta, matched, sigma, n=n)
    ridge = theory.ridge_covariance_risk(variances, beta, penalty, sigma, n=n)
    assert ensemble == pytest.approx(ridge, rel=1e-9)
    grid = np.linspace(0.01, 0.99, 99)
    uniform = min(theory.diagonal_risk(variances, beta, np.full(p, a), sigma, n=n) for a in grid)
    assert uniform > 1.3 * ridge


def test_optimal_probabilities_are_a_minimum_with_the_corollary():
    rng = np.random.default_rng(3)
    p, n, sigma = 30, 40, 0.6
    variances, beta = rng.uniform(0.2, 2, p), rng.standard_normal(p)
    alpha = theory.optimal_probabilities(variances, beta, sigma, n=n)
    best = theory.diagonal_risk(variances, beta, alpha, sigma, n=n)
    assert best == pytest.approx(np.sum((1 - alpha) * variances * beta**2), rel=1e-12)
    for _ in range(50):
        other = np.clip(alpha + 0.01 * rng.standard_normal(p), 0, 1)
        assert theory.diagonal_risk(variances, beta, other, sigma, n=n) >= best
    uniform = theory.optimal_probabilities(np.ones(p), np.full(p, p**-0.5), sigma, n=n)
    np.testing.assert_allclose(uniform, theory.optimal_alpha(p / n, sigma), rtol=1e-12)


def test_best_probabilities_of_the_limit_are_nearly_best_at_finite_n():
    """All probabilities free, the exact risk is lowered by less than a thousandth from the limit's
    choice at n = 40.
    """
    n, p = 40, 30
    for s, sigma in [(1, 0.5), (3, 0.3), (10, 1.0), (30, 0.6)]:
        beta = sim.sparse_signal(s, p)
        start = theory.optimal_probabilities(np.ones(p), beta, sigma, n=n)

        def risk(alpha, beta=beta, sigma=sigma):
            return float(theory.expected_diagonal_risk(1.0, beta, np.clip(alpha, 0, 1), sigma, n=n))

        found = minimize(risk, start, method="L-BFGS-B", bounds=[(0, 1)] * p)
        with case(s, sigma):
            assert found.fun <= risk(start) < 1.001 * found.fun
            assert np.all(
                found.x[s:] < 1e-6
            )  # the optimiser's differences are taken at steps of 1.5e-8
            uniform = np.full(p, theory.optimal_alpha(p / n, sigma))
            assert s == p or risk(uniform) > 1.2 * risk(start)


def test_real_ensembles_on_sparse_signals_have_the_exact_risk(seed):
    n, p, sigma, k = 40, 30, 0.5, 4
    how = {"n_estimators": k, "sampling": "bernoulli", "design": "independent"}
    for s in (1, 10):
        beta, rng = sim.sparse_signal(s, p), np.random.default_rng([seed, s])
        best = theory.optimal_probabilities(np.ones(p), beta, sigma, n=n)
        for alpha in (
            best,
            np.clip(np.sqrt(beta) + 0.1, 0, 1),
        ):  # the second has some of the others, too
            with case(s, alpha):
                risk = sim.fitted_risk(rng, n, beta, sigma, 250, max_features=alpha, **how)
                risk.check(theory.expected_diagonal_risk(1.0, beta, alpha, sigma, n=n, k=k))
