"""Unequal probabilities on uncorrelated columns: enumeration, reductions, optima, and simulations of real ensembles."""

import time
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

import theory_simulation as sim
from olsen import OLSEnsembleRegressor, theory


def gaussian_sizes(s, p):
    """Coefficients of norm one: s quantiles of a normal size, and zeros."""
    beta = np.zeros(p)
    beta[:s] = norm.ppf((1 + (np.arange(s) + 0.5) / s) / 2)
    return beta / np.linalg.norm(beta)


# finite samples


def enumerated_risks(n, signal, alpha, sigma):
    """One member, and a pair, over all subsets that are accepted."""
    subsets = [np.array(s, dtype=bool) for s in product([False, True], repeat=len(alpha)) if sum(s) <= n - 2]
    weight = np.array([np.prod(np.where(s, alpha, 1 - alpha)) for s in subsets])
    weight /= weight.sum()

    def risk(first, second):
        shared = np.sum(first & second)
        inflation = shared / (n - shared - 1)
        return signal[~(first | second)].sum() * (1 + inflation) + sigma**2 * inflation

    pairs = np.array([[risk(first, second) for second in subsets] for first in subsets])
    return weight @ np.diag(pairs), weight @ pairs @ weight


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 30])
@pytest.mark.parametrize("certain", [False, True])
def test_every_pair_of_subsets_by_enumeration_with_and_without_rejection(n, certain):
    rng = np.random.default_rng(n)
    alpha = rng.uniform(0.05, 0.95, 5)
    alpha *= min(1, (n - 1.5) / alpha.sum())
    if certain:
        alpha[0], alpha[3] = 0.0, 1.0 if n > 4 else alpha[3]
    variances, beta = rng.uniform(0.2, 3, 5), rng.standard_normal(5)
    own, pair = enumerated_risks(n, variances * beta**2, alpha, 0.7)
    k = np.array([1, 4, np.inf])
    risk = theory.expected_diagonal_risk(variances, beta, alpha, 0.7, n=n, k=k)
    np.testing.assert_allclose(risk, pair + (own - pair) / k, rtol=1e-12)


@pytest.mark.parametrize(("n", "p", "m"), [(40, 30, 9), (100, 150, 40), (24, 40, 16), (60, 50, 40), (100, 150, 85.5)])
def test_equal_probabilities_are_the_expected_risk_of_coin_flips(n, p, m):
    """With and without rejection, and wherever the signal is."""
    k = np.array([1, 3, np.inf])
    coins = theory.expected_risk(n, p, m, 0.6, k=k, sampling="bernoulli")
    for beta in (np.full(p, p**-0.5), gaussian_sizes(1, p), gaussian_sizes(7, p)):
        risk = theory.expected_diagonal_risk(1.0, beta, np.full(p, m / p), 0.6, n=n, k=k)
        np.testing.assert_allclose(risk, coins, rtol=1e-12)


def test_negligible_rejection_joins_the_sum_over_accepted_pairs(monkeypatch):
    """Where nothing is rejected the two ways of summing agree."""
    from olsen.theory import _laws

    alpha, beta = np.linspace(0.2, 0.6, 60), sim.unit_signal(60)
    for n in (57, 61, 62, 200):
        plain = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, n=n)
        with monkeypatch.context() as patch:
            patch.setattr(_laws, "NEGLIGIBLE", -1.0)
            accepted = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, n=n)
        assert plain == pytest.approx(accepted, rel=1e-12)


@pytest.mark.parametrize("s", [1, 10, 200])
def test_finite_samples_tend_to_the_limit_like_one_over_n(s):
    gaps = []
    for copies in (10, 20):
        beta, alpha = np.repeat(gaussian_sizes(s, 200), copies), np.repeat(np.linspace(0.6, 0.1, 200), copies)
        beta /= np.sqrt(copies)
        how = {"n": 300 * copies, "k": np.array([1, 3, np.inf])}
        exact = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, **how)
        gaps.append(exact - theory.diagonal_risk(1.0, beta, alpha, 0.5, **how))
    np.testing.assert_allclose(2 * gaps[1], gaps[0], rtol=0.02)


def test_a_thousand_unequal_columns_take_a_moment():
    p = 1000
    alpha, beta = np.linspace(0, 0.5, p), sim.unit_signal(p)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        risk = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, n=600, k=10)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.3 and np.isfinite(risk)


# the limit


def test_diagonal_risk_is_the_paper_limit_for_uniform_coins():
    p = 500
    for k, eta in [(1, 1.0), (7, 0.6), (np.inf, 0.8)]:
        value = theory.diagonal_risk(np.ones(p), np.full(p, p**-0.5), np.full(p, 0.3), 0.8, n=400, k=k, eta=eta)
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


# laws for a known signal


@pytest.mark.parametrize(("s", "sigma"), [(1, 0.5), (3, 0.3), (10, 1.0), (30, 0.6)])
def test_best_probabilities_of_the_limit_are_nearly_best_at_finite_n(s, sigma):
    """All probabilities free, the exact risk is lowered by less than a thousandth from the limit's choice at n = 40."""
    n, p = 40, 30
    beta = gaussian_sizes(s, p)
    start = theory.optimal_probabilities(np.ones(p), beta, sigma, n=n)

    def risk(alpha):
        return float(theory.expected_diagonal_risk(1.0, beta, np.clip(alpha, 0, 1), sigma, n=n))

    found = minimize(risk, start, method="L-BFGS-B", bounds=[(0, 1)] * p)
    assert found.fun <= risk(start) < 1.001 * found.fun
    assert np.all(found.x[s:] == 0)
    uniform = theory.optimal_power_probabilities(1.0, beta, sigma, 0, n=n)
    if s < p:
        assert risk(uniform) > 1.2 * risk(start)


def test_power_probabilities_have_their_size_and_their_power():
    rng = np.random.default_rng(5)
    variances, beta = rng.uniform(0.2, 3, 40), rng.standard_normal(40)
    beta[::4] = 0
    b = np.sqrt(variances) * np.abs(beta)
    for q in (0.5, 1, 2, 5):
        for size in (1e-6, 2.5, 12.0, 29.9, 30):
            alpha = theory.power_probabilities(variances, beta, q, size)
            assert alpha.sum() == pytest.approx(size, rel=1e-10) and np.all(alpha[::4] == 0)
            free = (alpha < 1) & (b > 0)
            c = alpha[free] / b[free] ** q
            assert np.all(np.abs(c - c.mean()) < 1e-9 * c.mean()) if free.any() else size == 30
            assert free.all() or not free.any() or np.all(c.mean() * b[alpha == 1] ** q >= 1 - 1e-9)
    np.testing.assert_allclose(theory.power_probabilities(variances, beta, 0, 13), 13 / 40, rtol=1e-12)


@pytest.mark.parametrize("s", [1, 5, 60])
@pytest.mark.parametrize("k", [3, np.inf])
def test_the_best_size_of_a_power_is_the_best_of_many(s, k):
    p, n, sigma = 60, 50, 0.5
    beta = gaussian_sizes(s, p)
    for q in (0, 1, 2):
        best = theory.optimal_power_probabilities(np.ones(p), beta, sigma, q, n=n, k=k)
        lowest = theory.diagonal_risk(1.0, beta, best, sigma, n=n, k=k)
        for size in np.linspace(0.02, 0.999, 60) * min(n, p if q == 0 else s):
            alpha = theory.power_probabilities(np.ones(p), beta, q, size)
            assert theory.diagonal_risk(1.0, beta, alpha, sigma, n=n, k=k) >= lowest * (1 - 1e-9)
        if q == 0:
            np.testing.assert_allclose(best, theory.optimal_alpha(p / n, sigma, k=k), rtol=1e-5)


def test_powers_of_equal_coefficients_are_best_and_of_others_are_not():
    n, p, sigma = 50, 80, 0.5
    for beta, same in ((np.repeat([0.5, 0.0], [4, 76]), True), (gaussian_sizes(20, p), False)):
        best = theory.optimal_probabilities(np.ones(p), beta, sigma, n=n)
        lowest = theory.diagonal_risk(1.0, beta, best, sigma, n=n)
        for q in (0.5, 1, 2, 4):
            alpha = theory.optimal_power_probabilities(np.ones(p), beta, sigma, q, n=n)
            risk = theory.diagonal_risk(1.0, beta, alpha, sigma, n=n)
            assert risk == pytest.approx(lowest, rel=1e-9) if same else risk > 1.001 * lowest


def test_without_noise_all_of_the_signal_is_taken_and_without_signal_nothing():
    beta = gaussian_sizes(10, 30)
    alpha = theory.optimal_power_probabilities(1.0, beta, 0.0, 1, n=40)
    np.testing.assert_array_equal(alpha, beta > 0)
    for q in (0, 1):
        assert np.all(theory.optimal_power_probabilities(1.0, np.zeros(30), 1.0, q, n=40) < 1e-7)


# estimated signals


def test_estimated_laws_are_averages_over_the_estimates():
    """Means of the probabilities by SciPy's quadrature, put into the limit by hand."""
    b, sigma, n, spread = np.array([1.0, 0.5, 0.2, 0.0, 0.0, 0.0]), 0.5, 20, 0.25

    def moments(rule, kinks):
        def mean(of, centre):
            edges = np.clip([(kink - centre) / spread for kink in kinks], -9, 9)
            return quad(lambda z: of(rule(centre + spread * z)) * norm.pdf(z), -9, 9, points=edges, epsabs=1e-12)[0]

        functions = (lambda a: a, lambda a: a**2, lambda a: (1 - a) ** 2)
        return [np.array([mean(of, centre) for centre in b]) for of in functions]

    def limit(once, both, neither, k):
        pair = (sigma**2 + neither @ b**2) / (1 - both.sum() / n) - sigma**2
        own = (sigma**2 + (1 - once) @ b**2) / (1 - once.sum() / n) - sigma**2
        return pair + (own - pair) / k

    how = {"n": n, "spread": spread, "k": 3}
    ratio = moments(lambda x: x**2 / (x**2 + spread**2), [0])
    assert theory.estimated_probabilities_risk(1.0, b, sigma, **how) == pytest.approx(limit(*ratio, 3), rel=1e-9)
    for q in (0.5, 1, 3):
        c = 1.7
        power = moments(lambda x, c=c, q=q: min(1, c * abs(x) ** q), [-(c ** (-1 / q)), 0, c ** (-1 / q)])
        risk = theory.estimated_probabilities_risk(1.0, b, sigma, **how, rule="power", q=q, size=power[0].sum())
        assert risk == pytest.approx(limit(*power, 3), rel=1e-7)
    wider = moments(lambda x: x**2 / (x**2 + 0.01), [0])
    sized = theory.estimated_probabilities_risk(1.0, b, sigma, **how, size=wider[0].sum())
    assert sized == pytest.approx(limit(*wider, 3), rel=1e-7)


@pytest.mark.parametrize("q", [0, 1, 2])
def test_estimates_without_error_are_the_known_signal(q):
    beta, how = gaussian_sizes(8, 40), {"n": 30, "k": 5}
    alpha = theory.optimal_power_probabilities(1.0, beta, 0.5, q, **how)
    known = theory.diagonal_risk(1.0, beta, alpha, 0.5, **how)
    for spread, rel in ((0.0, 1e-9), (1e-7, 1e-5)):
        risk = theory.estimated_probabilities_risk(1.0, beta, 0.5, **how, spread=spread, rule="power", q=q)
        assert risk == pytest.approx(known, rel=rel)
    spreads = [0.0, 0.02, 0.05, 0.1, 0.3, 1.0]
    risks = [
        theory.estimated_probabilities_risk(1.0, beta, 0.5, n=30, spread=spread, rule="power", q=q)
        for spread in spreads
    ]
    best = theory.optimal_probabilities(np.ones(40), beta, 0.5, n=30)
    assert min(risks) >= theory.diagonal_risk(1.0, beta, best, 0.5, n=30)
    assert np.all(np.diff(risks) > 0) if q else np.ptp(risks) < 1e-6  # uniform probabilities do not look


def test_exact_estimated_risk_tends_to_its_limit_and_reduces_to_known_probabilities():
    gaps = []
    for copies in (2, 4):
        beta = np.repeat(gaussian_sizes(20, 100), copies) / np.sqrt(copies)
        how = {"n": 150 * copies, "spread": 0.1 / np.sqrt(copies), "k": 4}
        exact = theory.estimated_probabilities_risk(1.0, beta, 0.5, **how, exact=True)
        gaps.append(exact - theory.estimated_probabilities_risk(1.0, beta, 0.5, **how))
    assert 2 * gaps[1] == pytest.approx(gaps[0], rel=0.05)
    beta = gaussian_sizes(5, 20)
    alpha = theory.power_probabilities(1.0, beta, 1, 3.0)
    known = theory.expected_diagonal_risk(1.0, beta, alpha, 0.5, n=30, k=2)
    how = {"n": 30, "k": 2, "rule": "power", "size": 3.0, "exact": True}
    assert theory.estimated_probabilities_risk(1.0, beta, 0.5, **how, spread=0.0) == pytest.approx(known, rel=1e-12)


def test_guards():
    with pytest.raises(ValueError, match=r"at most 2, the number of coefficients that are not zero; got 2\.5"):
        theory.power_probabilities(np.ones(4), [1.0, 2.0, 0.0, 0.0], 1, 2.5)
    with pytest.raises(ValueError, match=r"size must be below 4, .* got 4"):
        theory.estimated_probabilities_risk(np.ones(4), np.ones(4), 1.0, n=9, spread=0.1, size=4)
    with pytest.raises(ValueError, match=r"fewer expected columns than n .* got 2[0-9.]+ and n = 20"):
        theory.estimated_probabilities_risk(np.ones(30), np.ones(30), 1.0, n=20, spread=0.1)
    with pytest.raises(ValueError, match=r"sum\(probabilities\) <= n - 1 .* got 27 and n = 10\..*covariance_risk"):
        theory.expected_diagonal_risk(np.ones(30), np.ones(30), np.full(30, 0.9), 1.0, n=10)
    with pytest.raises(ValueError, match=r"accepted up to n - 2 = 3 only, which has probability 0"):
        theory.expected_diagonal_risk(np.ones(4), np.ones(4), np.ones(4), 1.0, n=5)
    with pytest.raises(ValueError, match=r"drawn again; .* theory\.diagonal_risk"):
        theory.expected_diagonal_risk(1.0, np.ones(5000), np.full(5000, 0.4), 1.0, n=2010)
    with pytest.raises(ValueError, match="one entry for each column"):
        theory.expected_diagonal_risk(np.ones(3), np.ones(4), np.full(4, 0.5), 1.0, n=10)


# Simulations. Two-sided 4 standard errors fail a correct build about once in 16 000 runs of each line.


def ensemble_errors(rng, n, beta, probabilities, sigma, k):
    """Errors of the mean coefficients of a real ensemble on fresh data."""
    X = rng.standard_normal((n, len(beta)))
    y = X @ beta + sigma * rng.standard_normal(n)
    model = OLSEnsembleRegressor(
        k, max_features=probabilities, sampling="bernoulli", design="independent", fit_intercept=False,
        random_state=int(rng.integers(2**31)),
    )  # fmt: skip
    return model.fit(X, y).coef_ - beta


@pytest.mark.parametrize("s", [1, 3, 10])
@pytest.mark.parametrize("law", ["best", "square root", "uniform"])
def test_real_ensembles_on_sparse_signals_have_the_exact_risk(seed, s, law):
    rng = np.random.default_rng([seed, s])
    n, p, sigma, k = 40, 30, 0.5, 4
    beta = gaussian_sizes(s, p)
    alpha = {
        "best": theory.optimal_probabilities(np.ones(p), beta, sigma, n=n),
        "square root": np.clip(np.sqrt(beta) + 0.1, 0, 1),  # some of the others, too
        "uniform": theory.optimal_power_probabilities(1.0, beta, sigma, 0, n=n),
    }[law]
    risk = sim.estimate([np.sum(ensemble_errors(rng, n, beta, alpha, sigma, k) ** 2) for _ in range(250)])
    expected = theory.expected_diagonal_risk(1.0, beta, alpha, sigma, n=n, k=k)
    assert risk.agrees_with(expected), f"{risk} against {expected:.5f}"


@pytest.mark.parametrize("s", [1, 10])
@pytest.mark.parametrize("rule", ["ratio", "power"])
def test_probabilities_from_independent_estimates_have_the_stated_risk(seed, s, rule):
    rng = np.random.default_rng([seed, s])
    n, p, sigma, k, spread = 40, 30, 0.5, 4, 0.15
    beta, c = gaussian_sizes(s, p), 1.2

    def coins(rng):
        estimated = np.abs(beta + spread * rng.standard_normal(p))
        ratio = estimated**2 / (estimated**2 + spread**2)
        alpha = ratio if rule == "ratio" else np.minimum(1, c * estimated)
        return [np.flatnonzero(rng.random(p) < alpha) for _ in range(k)]

    risk = sim.simulate(rng, n, beta, sigma, coins, trials=700)
    size = None
    if rule == "power":
        z, weight = np.polynomial.hermite_e.hermegauss(100)
        size = float(np.sum(np.minimum(1, c * np.abs(beta[:, None] + spread * z)) @ weight) / weight.sum())
    how = {"n": n, "spread": spread, "rule": rule, "size": size, "exact": True}
    for simulated, members in ((risk.ensemble, k), (risk.own, 1), (risk.pair, np.inf)):
        expected = theory.estimated_probabilities_risk(1.0, beta, sigma, **how, k=members)
        assert simulated.agrees_with(expected), f"{simulated} against {expected:.5f}, {members} members"
