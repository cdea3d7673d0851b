"""Minimum-norm members: limits, exact single members, and short simulations."""

import numpy as np
import pytest

import theory_simulation as sim
from olsen import theory


@pytest.mark.parametrize(("alpha", "gamma", "eta"), [(0.8, 2.0, 0.5), (1.0, 1.5, 0.7), (0.5, 4.0, 1.0)])
@pytest.mark.parametrize("k", [1, 4, np.inf])
def test_finite_tends_to_the_limit(alpha, gamma, eta, k):
    n = 1_000_000
    p = int(gamma * n)
    finite = theory.minimum_norm_risk(n, p, int(alpha * p), 0.6, k=k, n_samples=int(eta * n))
    assert finite == pytest.approx(theory.limiting_risk(alpha, gamma, 0.6, k=k, eta=eta), rel=1e-5)


def test_pair_formula_is_the_general_one_at_identity_covariance():
    """Bias exactly; variance up to the finite-size term the general formula does not have."""
    p, m, tau = 30, 20, 8
    first, second = np.arange(20), np.arange(6, 26)
    beta = np.full(p, p**-0.5)
    general = theory.pair_risk(np.ones(p), beta, first, second, 0.0, n=25, rows_i=tau, rows_j=tau, shared_rows=3)
    special = theory.minimum_norm_pair_risk(p, m, tau, 0.0, shared_features=14, shared_rows=3)
    assert special == pytest.approx(general, rel=1e-9)
    big = 100_000
    special = theory.minimum_norm_pair_risk(
        p * big, m * big, tau * big, 0.7, shared_features=14 * big, shared_rows=3 * big
    )
    general = theory.pair_risk(np.ones(p), beta, first, second, 0.7, n=25, rows_i=tau, rows_j=tau, shared_rows=3)
    assert special == pytest.approx(general, rel=1e-5)


def test_a_pair_with_itself_is_the_member():
    pair = theory.minimum_norm_pair_risk(30, 30, 8, 0.7, shared_features=30, shared_rows=8)
    assert pair == pytest.approx(theory.minimum_norm_risk(12, 30, 30, 0.7, k=1, n_samples=8), rel=1e-13)


def test_all_rows_and_columns_make_identical_members():
    for design in ("independent", "balanced"):
        risk = theory.minimum_norm_risk(50, 120, 120, 0.4, k=np.array([1, 5, np.inf]), n_samples=50, design=design)
        np.testing.assert_allclose(risk, risk[0], rtol=1e-13)


def test_best_finite_interpolator_uses_all_columns():
    risk = theory.minimum_norm_risk(100, 300, np.arange(100, 301, 20), 0.5, k=4, n_samples=60)
    assert np.all(np.diff(risk) < 0)


def test_norm_and_scale():
    how = {"k": 3, "n_samples": 20}
    plain = theory.minimum_norm_risk(40, 80, 60, 0.5, **how)
    assert theory.minimum_norm_risk(40, 80, 60, 1.0, beta_norm=2.0, **how) == pytest.approx(4 * plain, rel=1e-13)
    assert theory.minimum_norm_risk(40, 80, 60, 0.5, mu=0.0, **how) == 1
    noise = theory.minimum_norm_risk(40, 80, 60, 0.5, beta_norm=0.0, **how)
    signal = theory.minimum_norm_risk(40, 80, 60, 0.0, **how)
    assert plain == pytest.approx(noise + signal, rel=1e-13)
    scaled = theory.scaled_risk(plain, 20 / 80, 0.7)
    assert theory.minimum_norm_risk(40, 80, 60, 0.5, mu=0.7, **how) == pytest.approx(scaled, rel=1e-13)


def test_guards():
    with pytest.raises(ValueError, match=r"n_features >= n_samples \+ 2 .* use theory.expected_risk"):
        theory.minimum_norm_member_bias(30, 10, 12)
    with pytest.raises(ValueError, match="eta < gamma"):
        theory.minimum_norm_pair_bias(0.5, eta=0.8)
    with pytest.raises(ValueError, match="cannot exceed n"):
        theory.minimum_norm_risk(10, 40, 40, 1.0, k=2, n_samples=12)


@pytest.mark.parametrize(("p", "m", "tau"), [(20, 20, 6), (24, 16, 4), (16, 14, 3)])
def test_single_member_is_exact(seed, p, m, tau):
    rng = np.random.default_rng(seed)
    risk = sim.simulate(rng, tau, sim.unit_signal(p), 0.0, sim.independent(p, m, 1), trials=1500)
    assert risk.own.agrees_with(theory.minimum_norm_member_bias(p, m, tau)), risk.own
    risk = sim.simulate(rng, tau, np.zeros(p), 0.7, sim.independent(p, m, 1), trials=1500)
    assert risk.own.agrees_with(theory.minimum_norm_member_variance(m, tau, 0.7)), risk.own


@pytest.mark.parametrize(("n", "p", "tau", "k", "design"), [(12, 20, 8, 3, "independent"), (12, 24, 4, 5, "balanced")])
def test_all_columns_are_exact_at_small_sizes(seed, n, p, tau, k, design):
    """No limit here: n = 12, and the limiting pair variance would be 10 % off."""
    rng = np.random.default_rng(seed)
    rows = (sim.independent if design == "independent" else sim.balanced)(n, tau, k)
    everything = [np.arange(p)] * k
    risk = sim.simulate(rng, n, sim.unit_signal(p), 0.9, lambda _: everything, rows=rows, trials=1500)
    expected = theory.minimum_norm_risk(n, p, p, 0.9, k=k, n_samples=tau, design=design)
    assert risk.ensemble.agrees_with(expected), f"{risk.ensemble} against {expected:.5f}"
    off = theory.minimum_norm_risk(n, p, p, 0.9, k=np.inf, n_samples=tau)
    assert design == "balanced" or risk.pair.agrees_with(off), f"{risk.pair} against {off:.5f}"


def test_shrinkage_of_interpolators_is_rows_over_columns(seed):
    """The fact behind scaling: E<beta, b> = tau / p."""
    rng = np.random.default_rng(seed)
    p, m, tau, n = 24, 18, 8, 14
    beta = sim.unit_signal(p)
    inner = []
    for _ in range(1500):
        X = rng.standard_normal((n, p))
        coef = sim.fit_members(X, X @ beta, [rng.permutation(p)[:m]], [rng.permutation(n)[:tau]])
        inner.append(coef[0] @ beta)
    assert sim.estimate(inner).agrees_with(tau / p)


def test_ensemble_of_interpolators(seed):
    rng = np.random.default_rng(seed)
    n, p, m, tau, k = 100, 200, 150, 50, 6
    rows = sim.independent(n, tau, k)
    risk = sim.simulate(rng, n, sim.unit_signal(p), 0.7, sim.independent(p, m, k), rows=rows, trials=60)
    assert risk.own.agrees_with(theory.minimum_norm_risk(n, p, m, 0.7, k=1, n_samples=tau)), risk.own
    assert risk.ensemble.agrees_with(theory.minimum_norm_risk(n, p, m, 0.7, k=k, n_samples=tau)), risk.ensemble
