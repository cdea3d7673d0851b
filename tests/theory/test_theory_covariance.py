"""General covariance and unequal probabilities: reductions, enumeration, optima, and simulations of
real ensembles.
"""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

import theory_simulation as sim
from loops import case
from olsen import theory
from olsen.theory import _distributions

# Covariances


def test_identity_pairs_are_the_exact_ones():
    beta = np.arange(1.0, 11) / 7
    expected = theory.overlap_bias(16, 2, np.sum(beta[7:] ** 2)) + theory.overlap_variance(
        16, 2, 1.3
    )
    for variances in (np.ones(10), np.geomspace(1, 30, 10)):
        risk = theory.pair_risk(
            variances, beta / variances**0.5, [0, 1, 2, 3], [2, 3, 4, 5, 6], 1.3, n=16
        )
        assert risk == pytest.approx(expected, rel=1e-12)


AR1 = sim.ar1(6, 0.7)
BETA = np.array([1.0, -1, 2, 0.5, 0, 3])


def test_one_member_with_itself_is_exact_for_any_covariance():
    """(sigma^2 + Schur complement) (tau - 1) / (tau - m - 1)."""
    S = [0, 2, 5]
    missing = [1, 3, 4]
    cross = AR1[np.ix_(missing, S)]
    schur = AR1[np.ix_(missing, missing)] - cross @ np.linalg.solve(AR1[np.ix_(S, S)], cross.T)
    unexplained = BETA[missing] @ schur @ BETA[missing]
    expected = (0.6**2 + unexplained) * (12 - 1) / (12 - 3 - 1) - 0.6**2
    risk = theory.pair_risk(AR1, BETA, S, S, 0.6, n=20, rows_i=12, rows_j=12, shared_rows=12)
    assert risk == pytest.approx(expected, rel=1e-12)


def test_pair_risk_does_not_depend_on_order_units_and_notation_of_columns():
    first = [0, 2, 4]
    second = [1, 2, 5]
    scale = np.geomspace(0.1, 10, 6)
    rows = {"n": 20, "rows_i": 10, "rows_j": 14}
    masks = (np.isin(np.arange(6), columns) for columns in (first, second))
    risk = theory.pair_risk(AR1, BETA, first, second, 0.5, **rows)
    for equal_risk in (
        theory.pair_risk(AR1, BETA, second, first, 0.5, n=20, rows_i=14, rows_j=10),
        theory.pair_risk(AR1 * np.outer(scale, scale), BETA / scale, first, second, 0.5, **rows),
        theory.pair_risk(AR1, BETA, *masks, 0.5, **rows),
    ):
        assert equal_risk == pytest.approx(risk, rel=1e-10)


def test_the_risk_of_disjoint_rows_is_the_product_of_mean_errors():
    columns = [0, 1], [3, 4]
    rows = {"n": 20, "rows_i": 10, "rows_j": 10, "shared_rows": 0}
    risk = theory.pair_risk(AR1, BETA, *columns, 2.0, **rows)
    expected = theory.pair_risk(AR1, BETA, *columns, 0.0, n=1e12)
    assert risk == pytest.approx(expected, rel=1e-9)


def test_ridge_on_all_columns_is_the_limiting_ridge_risk():
    beta = np.full(60, 60**-0.5)
    for lam in (0.0, 0.1, 1.0):
        risk = theory.ridge_covariance_risk(np.ones(60), beta, lam * 40, 0.8, n=40)
        assert risk == pytest.approx(theory.ridge_risk(lam, 60 / 40, 0.8), rel=1e-9)


K = np.array([1, 4, np.inf])


@pytest.mark.parametrize("eta", [0.8, 1.0])
def test_average_over_subsets_matches_the_risk_of_isotropic_columns(eta, seed):
    arguments = {
        "Sigma": np.eye(60),
        "beta": sim.unit_signal(60, seed),
        "alpha": 0.4,
        "sigma": 0.9,
        "n": 2000,
        "k": K,
        "eta": eta,
        "rng": seed,
        "n_subsets": 400,
    }
    value, error = theory.covariance_risk(**arguments, return_std=True)
    expected = theory.expected_risk(2000, 60, 24, 0.9, k=K, n_samples=int(eta * 2000))
    assert np.all(np.abs(value - expected) < 4 * error + 5 / 2000 * expected / 2000)
    assert_array_equal(value, theory.covariance_risk(**arguments))


def test_average_over_subsets_matches_the_closed_form_of_diagonal_covariance(seed):
    n = 4000
    problem = np.geomspace(1, 0.05, 80), sim.unit_signal(80), np.linspace(0.1, 0.7, 80), 0.5
    value, error = theory.covariance_risk(*problem, n=n, k=K, rng=seed, return_std=True)
    expected = theory.diagonal_risk(*problem, n=n, k=K)
    assert np.all(np.abs(value - expected) < 4 * error + 2 / n * expected)


def test_stated_monte_carlo_error_is_the_deviation_over_seeds(seed):
    """Forty repetitions: the mean stated error within a factor 1.7 of the observed deviation, of
    which 4 standard errors are a factor 1.45.
    """
    problem = sim.ar1(20, 0.6), sim.unit_signal(20), 0.3, 0.5
    options = {"n": 50, "k": 5, "n_subsets": 40, "return_std": True}
    runs = [theory.covariance_risk(*problem, rng=[seed, i], **options) for i in range(40)]
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
        beta = sim.unit_signal(len(Sigma), 5)
        members = [np.array(first), np.array(second)]
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
            alpha[0] = 0.0
            alpha[3] = 1.0 if n > 4 else alpha[3]
        variances = rng.uniform(0.2, 3, 5)
        beta = rng.standard_normal(5)
        single, pair = enumerated_risks(n, variances * beta**2, alpha, 0.7)
        risk = theory.expected_diagonal_risk(variances, beta, alpha, 0.7, n=n, k=k)
        with case(n, certain):
            assert_allclose(risk, pair + (single - pair) / k, rtol=1e-12)


def test_equal_probabilities_are_the_expected_risk_of_coin_flips():
    """This holds with and without rejection, and wherever the signal is."""
    k = np.array([1, 3, np.inf])
    for n, p, m in [(40, 30, 9), (100, 150, 40), (24, 40, 16), (60, 50, 40), (100, 150, 85.5)]:
        coins = theory.expected_risk(n, p, m, 0.6, k=k, sampling="bernoulli")
        for beta in (np.full(p, p**-0.5), sim.sparse_signal(1, p), sim.sparse_signal(7, p)):
            risk = theory.expected_diagonal_risk(1.0, beta, np.full(p, m / p), 0.6, n=n, k=k)
            with case(n, p, m):
                assert_allclose(risk, coins, rtol=1e-12)


@pytest.mark.parametrize("n", [56, 57, 61, 62, 200])
def test_negligible_rejection_joins_the_sum_over_accepted_pairs(n, monkeypatch):
    """The two ways of summing agree on both sides of the threshold, which is near n = 57."""
    alpha = np.linspace(0.2, 0.6, 60)

    def risks():
        coins = {"n": n, "k": K, "sampling": "bernoulli"}
        return [
            theory.expected_diagonal_risk(1.0, sim.unit_signal(60), alpha, 0.5, n=n, k=K),
            *(
                theory.expected_risk(p=60, n_features=24, sigma=0.5, design=design, **coins)
                for design in ("independent", "balanced")
            ),
        ]

    plain = risks()
    monkeypatch.setattr(_distributions, "NEGLIGIBLE", -1.0)
    assert_allclose(risks(), plain, rtol=1e-12)


def test_unequal_probabilities_tend_to_the_limit_like_one_over_n():
    for s in (1, 10, 200):
        differences = []
        for copies in (10, 20):
            beta = np.repeat(sim.sparse_signal(s, 200), copies) / np.sqrt(copies)
            problem = 1.0, beta, np.repeat(np.linspace(0.6, 0.1, 200), copies), 0.5
            exact, limit = (
                risk(*problem, n=300 * copies, k=K)
                for risk in (theory.expected_diagonal_risk, theory.diagonal_risk)
            )
            differences.append(exact - limit)
        assert_allclose(2 * differences[1], differences[0], rtol=0.02)


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
    sigma = 0.3
    penalty = p * 0.3**2
    matched = theory.ridge_matched_probabilities(variances, penalty, n=n)
    ensemble = theory.diagonal_risk(variances, beta, matched, sigma, n=n)
    ridge = theory.ridge_covariance_risk(variances, beta, penalty, sigma, n=n)
    assert ensemble == pytest.approx(ridge, rel=1e-9)
    grid = np.linspace(0.01, 0.99, 99)
    uniform = min(theory.diagonal_risk(variances, beta, np.full(p, a), sigma, n=n) for a in grid)
    assert uniform > 1.3 * ridge


def test_optimal_probabilities_are_a_minimum_with_the_corollary():
    rng = np.random.default_rng(3)
    p = 30
    n = 40
    sigma = 0.6
    variances = rng.uniform(0.2, 2, p)
    beta = rng.standard_normal(p)
    alpha = theory.optimal_probabilities(variances, beta, sigma, n=n)
    best = theory.diagonal_risk(variances, beta, alpha, sigma, n=n)
    assert best == pytest.approx(np.sum((1 - alpha) * variances * beta**2), rel=1e-12)
    for _ in range(50):
        nearby = np.clip(alpha + 0.01 * rng.standard_normal(p), 0, 1)
        assert theory.diagonal_risk(variances, beta, nearby, sigma, n=n) >= best
    uniform = theory.optimal_probabilities(np.ones(p), np.full(p, p**-0.5), sigma, n=n)
    assert_allclose(uniform, theory.optimal_alpha(p / n, sigma), rtol=1e-12)


def test_best_probabilities_of_the_limit_are_nearly_best_at_finite_n():
    """All probabilities free, the exact risk is lowered by less than a thousandth from the limit's
    choice at n = 40.
    """
    n = 40
    p = 30
    for s, sigma in [(1, 0.5), (3, 0.3), (10, 1.0), (30, 0.6)]:
        beta = sim.sparse_signal(s, p)
        start = theory.optimal_probabilities(np.ones(p), beta, sigma, n=n)

        def risk(alpha, beta=beta, sigma=sigma):
            return float(theory.expected_diagonal_risk(1.0, beta, np.clip(alpha, 0, 1), sigma, n=n))

        optimum = minimize(risk, start, method="L-BFGS-B", bounds=[(0, 1)] * p)
        with case(s, sigma):
            assert optimum.fun <= risk(start) < 1.001 * optimum.fun
            assert np.all(
                optimum.x[s:] < 1e-6
            )  # the optimiser's differences are taken at steps of 1.5e-8
            uniform = np.full(p, theory.optimal_alpha(p / n, sigma))
            assert s == p or risk(uniform) > 1.2 * risk(start)


def test_real_ensembles_on_sparse_signals_have_the_exact_risk(seed):
    n = 40
    p = 30
    sigma = 0.5
    k = 4
    settings_of_risk = {"n_estimators": k, "sampling": "bernoulli", "design": "independent"}
    for s in (1, 10):
        beta = sim.sparse_signal(s, p)
        rng = np.random.default_rng([seed, s])
        best = theory.optimal_probabilities(np.ones(p), beta, sigma, n=n)
        for alpha in (
            best,
            np.clip(np.sqrt(beta) + 0.1, 0, 1),
        ):  # the second has some of the others, too
            with case(s, alpha):
                risk = sim.fitted_risk(
                    rng, n, beta, sigma, 250, max_features=alpha, **settings_of_risk
                )
                risk.check(theory.expected_diagonal_risk(1.0, beta, alpha, sigma, n=n, k=k))
