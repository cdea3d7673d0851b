"""The paper in plain NumPy against the estimators, the formulas and simulation."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from loops import case
from olsen import OLSEnsembleRegressor, member_coefficients, reference, theory
from random_problems import linear_data

SHAPES = {"least squares": (60, 20, 8, 0.6), "minimum norm": (40, 30, 25, 0.5)}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimator_is_the_plain_average_on_the_same_subsets(shape, seed):
    n, p, max_features, max_samples = SHAPES[shape]
    X, y = linear_data(seed, n, p)[:2]
    model = OLSEnsembleRegressor(
        n_estimators=12,
        max_features=max_features,
        max_samples=max_samples,
        design="independent",
        fit_intercept=False,
        random_state=seed,
    ).fit(X, y)
    columns = list(model.feature_subsets_)
    rows = list(model.sample_subsets_)
    assert_allclose(model.coef_, reference.ensemble(X, y, columns, rows), rtol=0, atol=1e-10)
    coefs, _ = member_coefficients(X, y, columns, rows, fit_intercept=False)
    members = [reference.member(X, y, S, T) for S, T in zip(columns, rows, strict=True)]
    assert_allclose(coefs, members, rtol=0, atol=1e-10)


def test_formulas_are_those_of_theory():
    for gamma in (0.3, 1.0, 2.5):
        for sigma in (0.1, 1.0, 3.0):
            alpha = reference.optimal_alpha(gamma, sigma)
            with case(gamma, sigma):
                assert_allclose(alpha, theory.optimal_alpha(gamma, sigma), rtol=1e-12)
                risk = reference.limiting_risk(alpha, gamma, sigma)
                assert_allclose(risk, 1 - alpha, rtol=1e-12)  # Corollary 3.7
                assert_allclose(risk, theory.optimal_ridge_risk(gamma, sigma), rtol=1e-10)
                for size, k, eta in ((0.3 * alpha, 3, 1.0), (0.9 * alpha, 20, 0.97)):
                    risk = reference.limiting_risk(size, gamma, sigma, k, eta)
                    expected = theory.limiting_risk(size, gamma, sigma, k=k, eta=eta)
                    assert_allclose(risk, expected, rtol=1e-12)


def test_pairs_of_members_are_those_of_theory():
    rng = np.random.default_rng(0)
    n = 30
    p = 12
    for _ in range(20):
        S_i = reference.draw(p, 5, rng)
        S_j = reference.draw(p, 7, rng)
        overlap = len(set(S_i) & set(S_j))
        outside_both = p - len(set(S_i) | set(S_j))
        bias = theory.overlap_bias(n, overlap, outside_both / p)
        assert_allclose(reference.pair_bias(p, n, S_i, S_j), bias, rtol=1e-12)
        variance = theory.overlap_variance(n, overlap, 0.7)
        assert_allclose(reference.pair_variance(n, S_i, S_j, 0.7), variance, rtol=1e-12)


def simulated_risks(n, p, m, tau, k, sigma, *, trials, rng):
    """Risks of ensembles of independent members on new data sets, (trials,)."""
    risks = []
    for _ in range(trials):
        beta = rng.standard_normal(p)
        beta /= np.linalg.norm(beta)
        X = rng.standard_normal((n, p))
        y = X @ beta + sigma * rng.standard_normal(n)
        columns = [reference.draw(p, m, rng) for _ in range(k)]
        rows = [reference.draw(n, tau, rng) for _ in range(k)]
        risks.append(reference.risk(reference.ensemble(X, y, columns, rows), beta))
    return np.array(risks)


@pytest.mark.parametrize("figure", ["figure 2", "figure 3"])
def test_figures_2_and_3_at_toy_size(figure, seed):
    """Figure 2 varies the number of members with all rows and with few, figure 3 the noise.

    The exact risk at this n and p is the target, because the limit is several standard errors away.
    """
    rng = np.random.default_rng([seed, 2 if figure == "figure 2" else 3])
    n = 40
    settings = []
    if figure == "figure 2":
        for gamma in (0.5, 1.0, 2.0):
            alpha = reference.optimal_alpha(gamma, 1.0)
            m = round(alpha * gamma * n)
            settings += [(gamma, m, tau, k, 1.0) for tau in (n, m + 6) for k in (1, 8)]
    else:
        for sigma in (0.5, 2.0):
            alpha = reference.optimal_alpha(2.0, sigma)
            m = min(round(alpha * 2 * n), n - 8)
            settings += [(2.0, m, n, k, sigma) for k in (2, 10)]
    for gamma, m, tau, k, sigma in settings:
        p = round(gamma * n)
        risks = simulated_risks(n, p, m, tau, k, sigma, trials=150, rng=rng)
        standard_error = risks.std(ddof=1) / np.sqrt(len(risks))
        expected = theory.expected_risk(n, p, m, sigma, k=k, n_samples=tau)
        with case(gamma, m, tau, k, sigma):
            assert abs(risks.mean() - expected) < 4 * standard_error


def test_figure_4_by_its_formulas():
    """The scaled risk is least at the best scale, where it is that of equation (37)."""
    gamma = 0.5
    for sigma in (0.3, 1.0, 3.0):
        for alpha in (reference.optimal_alpha(gamma, sigma) / 2, 0.5):
            mu = reference.optimal_mu(alpha, gamma, sigma)
            least = reference.scaled_risk(alpha, gamma, sigma, mu)
            R = reference.limiting_risk(alpha, gamma, sigma)
            with case(sigma, alpha):
                assert_allclose(least, 1 - alpha**2 / (2 * alpha - 1 + R), rtol=1e-12)
                assert least <= R + 1e-15
                for other in (0.9 * mu, 1.1 * mu):
                    assert reference.scaled_risk(alpha, gamma, sigma, other) > least
                scaled = theory.limiting_risk(alpha, gamma, sigma, mu=mu)
                assert_allclose(least, scaled, rtol=1e-12)
                by_theory = theory.optimally_scaled_risk(alpha, gamma, sigma)
                assert_allclose(least, by_theory, rtol=1e-12)


def test_bias_and_variance_fall_with_the_number_of_members():
    """Inequalities (27) to (30): a term of two members is smaller than a term of one."""
    for gamma in (0.2, 1.0, 3.0):
        for eta in (0.6, 1.0):
            for alpha in np.linspace(0.05, 0.95, 7) * min(1.0, eta / gamma):
                with case(gamma, eta, alpha):
                    bias = [theory.limiting_bias(alpha, gamma, k=k, eta=eta) for k in (1, 2, 50)]
                    variance = [
                        theory.limiting_variance(alpha, gamma, 1.0, k=k, eta=eta)
                        for k in (1, 2, 50)
                    ]
                    assert np.all(np.diff(bias) < 0) and np.all(np.diff(variance) < 0)
    assert theory.limiting_bias(0.0, 0.5, k=1) == theory.limiting_bias(0.0, 0.5, k=9) == 1.0
    constant = [theory.limiting_variance(1.0, 0.5, 1.0, k=k) for k in (1, 9)]
    assert_allclose(*constant, rtol=1e-14)
