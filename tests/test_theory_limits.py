"""Limits, ridge and scaling: identities of algebra, on grids."""

import time

import numpy as np
import pytest
from scipy.integrate import quad

from olsen import theory

GAMMA = np.geomspace(0.05, 20, 31)[:, None]
SIGMA = np.geomspace(0.01, 10, 29)[None, :]


def test_optimal_large_ensemble_is_optimal_ridge_and_one_minus_alpha():
    alpha = theory.optimal_alpha(GAMMA, SIGMA)
    risk = theory.limiting_risk(alpha, GAMMA, SIGMA)
    np.testing.assert_allclose(risk, 1 - alpha, rtol=0, atol=1e-12)
    np.testing.assert_allclose(risk, theory.optimal_ridge_risk(GAMMA, SIGMA), rtol=0, atol=1e-12)
    best = theory.optimal_ridge_penalty(GAMMA, SIGMA)
    np.testing.assert_allclose(risk, theory.ridge_risk(best, GAMMA, SIGMA), rtol=0, atol=1e-12)


def test_scale_at_the_optimum_is_one():
    alpha = theory.optimal_alpha(GAMMA, SIGMA)
    np.testing.assert_allclose(theory.optimal_mu(alpha, GAMMA, SIGMA), 1, rtol=0, atol=1e-10)
    # The quotient loses digits only where alpha itself is 1e-4; the equation it solves does not.
    excess = theory.limiting_risk(alpha, GAMMA, SIGMA) + 2 * alpha - 1 - alpha
    np.testing.assert_allclose(excess, 0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 7, np.inf])
@pytest.mark.parametrize("eta", [0.6, 1.0])
def test_derivative_is_the_numerical_one(k, eta):
    for gamma, sigma, alpha in [(0.5, 1.0, 0.7), (2.0, 0.3, 0.2), (1.0, 2.0, 0.4), (0.1, 0.1, 0.9)]:
        h = 1e-5
        up, down = (theory.limiting_risk(alpha + s * h, gamma, sigma, k=k, eta=eta) for s in (1, -1))
        slope = theory.limiting_risk_derivative(alpha, gamma, sigma, k=k, eta=eta)
        assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-8)


def test_optimal_alpha_of_a_finite_ensemble_beats_a_fine_grid():
    gamma, sigma, k = np.meshgrid([0.2, 0.5, 1.0, 2.0, 5.0], [0.05, 0.5, 1.0, 3.0], [1, 2, 10, 1000], indexing="ij")
    alpha = theory.optimal_alpha(gamma, sigma, k=k, eta=0.9)
    top = np.minimum(1, 0.9 / gamma)
    assert np.all((alpha >= 0) & (alpha <= top))
    best = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=0.9)
    for fraction in np.linspace(0, 1, 997):
        assert np.all(best <= theory.limiting_risk(fraction * top, gamma, sigma, k=k, eta=0.9) + 1e-12)


def test_optimal_alpha_tends_to_the_closed_form_and_stays_below_one():
    assert (
        theory.optimal_alpha(0.5, 0.1, k=1) <= 1
    )  # a search over [0, 1 / gamma], as in the authors' code, leaves [0, 1]
    np.testing.assert_allclose(
        theory.optimal_alpha(2.0, [0.3, 1.0], k=1e9), theory.optimal_alpha(2.0, [0.3, 1.0]), atol=1e-6
    )
    assert theory.optimal_alpha(2.0, 0.1, eta=0.5) == 0.25  # the peak: alpha_* is beyond it


def test_risk_is_linear_in_one_over_k():
    risk = theory.limiting_risk(0.3, 1.5, 0.7, k=np.array([1, 2, 4, np.inf]), eta=0.8)
    inverse = np.array([1, 0.5, 0.25, 0])
    np.testing.assert_allclose(risk, risk[-1] + (risk[0] - risk[-1]) * inverse, atol=1e-12)


def test_risk_is_bias_plus_variance_on_both_sides():
    alpha = np.linspace(0.02, 0.98, 25)
    for k in (1, 5, np.inf):
        total = theory.limiting_bias(alpha, 1.7, k=k, eta=0.7) + theory.limiting_variance(alpha, 1.7, 0.6, k=k, eta=0.7)
        np.testing.assert_allclose(total, theory.limiting_risk(alpha, 1.7, 0.6, k=k, eta=0.7), rtol=1e-13)


def test_peak_is_infinite_for_finite_ensembles_and_continuous_for_the_large_one():
    gamma, eta, sigma = 1.7, 0.7, 0.6
    peak = eta / gamma
    assert theory.limiting_risk(peak, gamma, sigma, k=10, eta=eta) == np.inf
    near = theory.limiting_risk(peak + np.array([-1e-9, 0, 1e-9]), gamma, sigma, eta=eta)
    np.testing.assert_allclose(near, near[1], atol=1e-8)
    assert np.isfinite(theory.limiting_variance(peak, gamma, sigma, eta=eta))
    assert theory.limiting_variance(peak, gamma, 0.0, k=3, eta=eta) == 0


def test_identical_members_do_not_depend_on_k():
    for gamma in (0.5, 2.0):
        risk = theory.limiting_risk(1.0, gamma, 0.8, k=np.array([1, 3, np.inf]))
        np.testing.assert_allclose(risk, risk[0], rtol=1e-13)


def test_interpolators_do_not_feel_alpha_in_the_large_ensemble():
    risk = theory.limiting_risk(np.array([0.3, 0.6, 1.0]), 2.0, 0.5, eta=0.5)
    np.testing.assert_allclose(risk, theory.limiting_risk(0.25, 2.0, 0.5), rtol=1e-13)
    pair = theory.minimum_norm_pair_bias(2.0, eta=0.5) + theory.minimum_norm_pair_variance(2.0, 0.5, eta=0.5)
    assert pair == pytest.approx(risk[0], rel=1e-13)


def test_scaled_risk_is_a_parabola_with_its_minimum_at_optimal_mu():
    for k, eta, alpha in [(np.inf, 1.0, 0.2), (3, 0.8, 0.3), (5, 0.4, 0.9)]:
        mu = theory.optimal_mu(alpha, 1.2, 0.9, k=k, eta=eta)
        best = theory.optimally_scaled_risk(alpha, 1.2, 0.9, k=k, eta=eta)
        around = theory.limiting_risk(alpha, 1.2, 0.9, k=k, eta=eta, mu=mu + np.array([-0.1, 0, 0.1]))
        assert around[1] == pytest.approx(best, abs=1e-12)
        assert around[0] == pytest.approx(around[2], abs=1e-12)
        assert around[0] > best
    assert theory.limiting_risk(0.4, 1.0, 1.0, mu=0.0) == 1


def test_ridge_and_ensemble_agree_along_the_whole_path():
    lam = np.geomspace(1e-4, 100, 41)
    for gamma in (0.3, 1.0, 3.0):
        alpha = theory.alpha_from_penalty(lam, gamma)
        np.testing.assert_allclose(theory.penalty_from_alpha(alpha, gamma), lam, rtol=1e-9)
        np.testing.assert_allclose(
            theory.limiting_risk(alpha, gamma, 0.8), theory.ridge_risk(lam, gamma, 0.8), rtol=1e-12
        )


@pytest.mark.parametrize("gamma", [0.4, 2.5])
@pytest.mark.parametrize("lam", [0.05, 1.0])
def test_ridge_risk_is_the_marchenko_pastur_integral(gamma, lam):
    """Bias lam^2 E[1/(s+lam)^2], variance sigma^2 gamma E[s/(s+lam)^2], s the eigenvalues of X'X/n."""
    low, high = (1 - gamma**0.5) ** 2, (1 + gamma**0.5) ** 2

    def mean(function):
        inside = quad(lambda s: function(s) * np.sqrt((s - low) * (high - s)) / (2 * np.pi * gamma * s), low, high)[0]
        return inside + max(0, 1 - 1 / gamma) * function(0.0)

    expected = lam**2 * mean(lambda s: (s + lam) ** -2) + 0.7**2 * gamma * mean(lambda s: s / (s + lam) ** 2)
    assert theory.ridge_risk(lam, gamma, 0.7) == pytest.approx(expected, rel=1e-6)


def test_ridgeless_limit_is_the_minimum_norm_fit():
    assert theory.ridge_risk(0.0, 2.0, 1.0) == pytest.approx(theory.limiting_risk(1.0, 2.0, 1.0), rel=1e-13)
    assert theory.ridge_risk(0.0, 1.0, 1.0) == np.inf
    assert theory.alpha_from_penalty(0.0, [0.5, 2.0]).tolist() == [1.0, 0.5]


@pytest.mark.parametrize("eta", [0.7, 1.0])
def test_required_members_is_the_smallest_sufficient_number(eta):
    gamma, sigma = np.array([0.2, 0.9, 1.5]), np.array([0.3, 1.0, 2.0])
    k = theory.required_members(gamma, sigma, excess=0.02, eta=eta)
    alpha = theory.optimal_alpha(gamma, sigma)
    large = theory.limiting_risk(alpha, gamma, sigma, eta=eta)
    assert np.all(theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta) <= 1.02 * large * (1 + 1e-9))
    fewer = np.maximum(k - 1, 1)
    enough = theory.limiting_risk(alpha, gamma, sigma, k=fewer, eta=eta) <= 1.02 * large
    assert not np.any(enough & (k > 1))


@pytest.mark.parametrize(("gamma", "sigma"), [(1.0, 0.5**0.5), (0.5, 0.25), (2.0, 0.5)])
def test_required_members_of_balanced_designs_matches_the_finite_formula(gamma, sigma):
    """At alpha_* = 1/B or 1 - 1/B the blocks fill the columns; sigma is chosen to put it there."""
    for alpha in (0.25, 0.75):
        if alpha * gamma >= 1:
            continue
        sigma = np.sqrt((1 - alpha) * (1 - alpha * gamma) / (alpha * gamma))
        p = 400_000
        large = theory.expected_risk(p / gamma, p, alpha * p, sigma, k=np.inf)
        k = 4 * 25
        excess = theory.expected_risk(p / gamma, p, alpha * p, sigma, k=k, design="balanced") / large - 1
        predicted = theory.required_members(gamma, sigma, excess=1e-6, design="balanced") * 1e-6 / k
        assert excess == pytest.approx(predicted, rel=1e-3)


def test_better_side_compares_the_excess_of_both_sides():
    gamma, sigma = GAMMA, SIGMA
    alpha = theory.optimal_alpha(gamma, sigma)
    features = (1 - alpha) / (1 - alpha * gamma)
    rows = (1 - alpha * gamma) / gamma
    np.testing.assert_array_equal(theory.better_side(gamma, sigma) == "rows", rows < features)
    assert np.all(theory.better_side(GAMMA[GAMMA >= 1][:, None], SIGMA) == "rows")


def test_guards_name_the_assumption_and_the_number():
    with pytest.raises(ValueError, match=r"alpha must be a fraction .* got 1\.5"):
        theory.limiting_risk(1.5, 1.0, 1.0)
    with pytest.raises(ValueError, match="gamma must be p / n"):
        theory.optimal_alpha(0.0, 1.0)
    with pytest.raises(ValueError, match="at least 1"):
        theory.limiting_bias(0.5, 1.0, k=0)
    with pytest.raises(ValueError, match=r"needs eta > alpha_\* gamma"):
        theory.required_members(1.0, 0.1, eta=0.5)
    with pytest.raises(ValueError, match="Differences of limiting_risk"):
        theory.limiting_risk_derivative(0.9, 2.0, 1.0)
    with pytest.raises(ValueError, match="eta / gamma"):
        theory.penalty_from_alpha(0.9, 2.0)


def test_scalars_give_scalars_and_arrays_broadcast():
    assert np.ndim(theory.limiting_risk(0.5, 0.5, 1.0)) == 0
    assert isinstance(theory.limiting_risk(0.5, 0.5, 1.0), float)
    shape = theory.limiting_risk(np.ones((3, 1)) / 2, np.ones(4), 1.0, k=np.ones((2, 1, 1))).shape
    assert shape == (2, 3, 4)
    assert theory.optimal_alpha(np.ones(4), 1.0, k=np.array([[2], [3]])).shape == (2, 4)


def test_a_million_risks_take_a_moment():
    alpha, gamma = np.linspace(0.001, 1, 1000)[:, None], np.linspace(0.05, 4, 1000)[None, :]
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        theory.limiting_risk(alpha, gamma, 1.0, k=10, eta=0.8)
        best = min(best, time.process_time() - start)
    assert best < 0.2
