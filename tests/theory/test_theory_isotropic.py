"""Isotropic columns: limits and ridge by algebra, finite samples by enumeration and simulation,
interpolators.
"""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import binom

import theory_simulation as sim
from loops import case
from olsen import reference, subsets, theory
from olsen.theory import _coin_rows, _distributions, finite

GAMMA = np.geomspace(0.05, 20, 31)[:, None]
SIGMA = np.geomspace(0.01, 10, 29)[None, :]


# Limits


def test_optimal_large_ensemble_is_optimal_ridge_and_one_minus_alpha():
    alpha = theory.optimal_alpha(GAMMA, SIGMA)
    risk = theory.limiting_risk(alpha, GAMMA, SIGMA)
    penalty = theory.optimal_ridge_penalty(GAMMA, SIGMA)
    assert_allclose(risk, 1 - alpha, rtol=0, atol=1e-12)
    assert_allclose(risk, theory.optimal_ridge_risk(GAMMA, SIGMA), rtol=0, atol=1e-12)
    assert_allclose(risk, theory.ridge_risk(penalty, GAMMA, SIGMA), rtol=0, atol=1e-12)
    assert_allclose(theory.optimal_mu(alpha, GAMMA, SIGMA), 1, rtol=0, atol=1e-10)
    excess_of_features = (1 - alpha) / (1 - alpha * GAMMA)
    excess_of_rows = (1 - alpha * GAMMA) / GAMMA
    better = theory.better_side(GAMMA, SIGMA)
    assert_array_equal(better == "rows", excess_of_rows < excess_of_features)


def test_derivative_is_the_numerical_one():
    step = 1e-5
    for (gamma, sigma, alpha), k, eta in product(
        [(0.5, 1.0, 0.7), (2.0, 0.3, 0.2), (1.0, 2.0, 0.4), (0.1, 0.1, 0.9)],
        [1, 2, 7, np.inf],
        [0.6, 1.0],
    ):
        around = alpha + step * np.array([-1, 1])
        below, above = theory.limiting_risk(around, gamma, sigma, k=k, eta=eta)
        slope = theory.limiting_risk_derivative(alpha, gamma, sigma, k=k, eta=eta)
        with case(gamma, k, eta):
            assert slope == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8)


def test_optimal_alpha_of_a_finite_ensemble_beats_a_fine_grid_and_tends_to_the_closed_form():
    gamma, sigma, k = np.meshgrid(
        [0.2, 0.5, 1.0, 2.0, 5.0], [0.05, 0.5, 1.0, 3.0], [1, 2, 10, 1000], indexing="ij"
    )
    alpha = theory.optimal_alpha(gamma, sigma, k=k, eta=0.9)
    largest = np.minimum(1, 0.9 / gamma)
    assert np.all((alpha >= 0) & (alpha <= largest))
    best = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=0.9)
    for fraction in np.linspace(0, 1, 997):
        risk = theory.limiting_risk(fraction * largest, gamma, sigma, k=k, eta=0.9)
        assert np.all(best <= risk + 1e-12)
    # a search over [0, 1 / gamma], as in the authors' code, leaves [0, 1]
    assert theory.optimal_alpha(0.5, 0.1, k=1) <= 1
    sigmas = [0.3, 1.0]
    limit = theory.optimal_alpha(2.0, sigmas)
    assert_allclose(theory.optimal_alpha(2.0, sigmas, k=1e9), limit, atol=1e-6)
    assert theory.optimal_alpha(2.0, 0.1, eta=0.5) == 0.25  # the peak: alpha_* is beyond it


def test_both_sides_of_the_peak():
    gamma = 1.7
    eta = 0.7
    sigma = 0.6
    alpha = np.linspace(0.02, 0.98, 25)
    for k in (1, 5, np.inf):
        bias = theory.limiting_bias(alpha, gamma, k=k, eta=eta)
        variance = theory.limiting_variance(alpha, gamma, sigma, k=k, eta=eta)
        risk = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta)
        assert_allclose(bias + variance, risk, rtol=1e-13)
    peak = eta / gamma
    assert theory.limiting_risk(peak, gamma, sigma, k=10, eta=eta) == np.inf
    around = theory.limiting_risk(peak + np.array([-1e-9, 0, 1e-9]), gamma, sigma, eta=eta)
    assert_allclose(around, around[1], atol=1e-8)
    assert np.isfinite(theory.limiting_variance(peak, gamma, sigma, eta=eta))
    assert theory.limiting_variance(peak, gamma, 0.0, k=3, eta=eta) == 0


def test_identical_members_and_pairs_of_interpolators():
    """The former do not depend on their number, the latter not on alpha."""
    for gamma in (0.5, 2.0):
        risk = theory.limiting_risk(1.0, gamma, 0.8, k=np.array([1, 3, np.inf]))
        assert_allclose(risk, risk[0], rtol=1e-13)
    risk = theory.limiting_risk(np.array([0.3, 0.6, 1.0]), 2.0, 0.5, eta=0.5)
    assert_allclose(risk, theory.limiting_risk(0.25, 2.0, 0.5), rtol=1e-13)
    variance = theory.limiting_variance(1.0, 2.0, 0.5, eta=0.5)
    assert variance == pytest.approx(0.5**4 / (2 - 0.5**2), rel=1e-13)


def test_scaled_risk_is_a_parabola_with_its_minimum_at_optimal_mu():
    for k, eta, alpha in [(np.inf, 1.0, 0.2), (3, 0.8, 0.3), (5, 0.4, 0.9)]:
        letters = {"alpha": alpha, "gamma": 1.2, "sigma": 0.9, "k": k, "eta": eta}
        mu = theory.optimal_mu(**letters) + np.array([-0.1, 0, 0.1])
        below, best, above = theory.limiting_risk(**letters, mu=mu)
        assert best == pytest.approx(theory.optimally_scaled_risk(**letters), abs=1e-12)
        assert below == pytest.approx(above, abs=1e-12)
        assert below > best
    assert theory.limiting_risk(0.4, 1.0, 1.0, mu=0.0) == 1


def marchenko_pastur_risk(lam, gamma, sigma):
    """Bias lam^2 E[1/(s+lam)^2] and variance sigma^2 gamma E[s/(s+lam)^2] of ridge regression, s the
    eigenvalues of X'X/n.
    """
    low = (1 - gamma**0.5) ** 2
    high = (1 + gamma**0.5) ** 2

    def integrand(s):
        density = np.sqrt((s - low) * (high - s)) / (2 * np.pi * gamma * s)
        return (lam**2 + sigma**2 * gamma * s) / (s + lam) ** 2 * density

    at_zero = max(0, 1 - 1 / gamma)  # where the bias is one and the variance zero
    return quad(integrand, low, high)[0] + at_zero


def test_ridge_is_the_marchenko_pastur_integral():
    for gamma, lam in product([0.4, 2.5], [0.05, 1.0]):
        with case(gamma, lam):
            expected = marchenko_pastur_risk(lam, gamma, 0.7)
            assert theory.ridge_risk(lam, gamma, 0.7) == pytest.approx(expected, rel=1e-6)


def test_best_ridge_risk_is_the_least_marchenko_pastur_integral():
    for gamma, sigma in [(0.4, 0.7), (0.4, 2.0), (2.5, 0.3), (2.5, 1.2)]:
        best = minimize_scalar(
            lambda log_lam, gamma=gamma, sigma=sigma: marchenko_pastur_risk(
                np.exp(log_lam), gamma, sigma
            ),
            bounds=(-6, 5),
            method="bounded",
            options={"xatol": 1e-6},
        )
        with case(gamma, sigma):
            assert theory.optimal_ridge_risk(gamma, sigma) == pytest.approx(best.fun, rel=1e-6)
            penalty = theory.optimal_ridge_penalty(gamma, sigma)
            assert penalty == pytest.approx(np.exp(best.x), rel=0.01)


def test_ridge_is_the_ensemble_along_the_whole_path():
    lam = np.geomspace(1e-4, 100, 41)
    for gamma in (0.3, 1.0, 3.0):
        alpha = theory.alpha_from_penalty(lam, gamma)
        assert_allclose(theory.penalty_from_alpha(alpha, gamma), lam, rtol=1e-9)
        ridge = theory.ridge_risk(lam, gamma, 0.8)
        assert_allclose(theory.limiting_risk(alpha, gamma, 0.8), ridge, rtol=1e-12)
    interpolator = theory.limiting_risk(1.0, 2.0, 1.0)
    assert theory.ridge_risk(0.0, 2.0, 1.0) == pytest.approx(interpolator, rel=1e-13)
    assert theory.ridge_risk(0.0, 1.0, 1.0) == np.inf
    assert theory.alpha_from_penalty(0.0, [0.5, 2.0]).tolist() == [1.0, 0.5]


def test_required_members_is_the_smallest_sufficient_number():
    gamma = np.array([0.2, 0.9, 1.5])
    sigma = np.array([0.3, 1.0, 2.0])
    alpha = theory.optimal_alpha(gamma, sigma)
    for eta in (0.7, 1.0):
        k = theory.required_members(gamma, sigma, excess=0.02, eta=eta)
        enough = 1.02 * theory.limiting_risk(alpha, gamma, sigma, eta=eta)
        risk = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta)
        assert np.all(risk <= enough * (1 + 1e-9))
        with_one_less = theory.limiting_risk(alpha, gamma, sigma, k=np.maximum(k - 1, 1), eta=eta)
        assert np.all((with_one_less > enough) | (k == 1))


def test_required_balanced_members_have_the_excess_of_large_finite_samples():
    """At alpha_* = 1/B or 1 - 1/B the blocks fill the columns; sigma is chosen to put it there."""
    p = 400_000
    k = 100
    for gamma, alpha in [(1.0, 0.25), (1.0, 0.75), (0.5, 0.25), (0.5, 0.75), (2.0, 0.25)]:
        sigma = np.sqrt((1 - alpha) * (1 - alpha * gamma) / (alpha * gamma))
        risk, limit = theory.expected_risk(
            p / gamma, p, alpha * p, sigma, k=[k, np.inf], design="balanced"
        )
        n_members = theory.required_members(gamma, sigma, excess=1e-6, design="balanced")
        with case(gamma, alpha):
            assert risk / limit - 1 == pytest.approx(n_members * 1e-6 / k, rel=1e-3)


# Finite samples: every subset enumerated


def ensemble_value(n, p, members, sigma):
    """Risk of given members, averaged over the position of a unit signal (all rows in use)."""
    subsets = [np.array(sorted(member), dtype=int) for member in members]
    risks = [
        reference.pair_bias(p, n, S_i, S_j) + reference.pair_variance(n, S_i, S_j, sigma)
        for S_i, S_j in product(subsets, repeat=2)
    ]
    return np.mean(risks)


def test_fixed_sizes():
    for p, m in [(5, 2), (6, 3), (5, 4), (4, 4), (6, 1)]:
        pairs = product(combinations(range(p), m), repeat=2)
        expected = np.mean([ensemble_value(9, p, pair, 0.8) for pair in pairs])
        with case(p, m):
            assert theory.expected_risk(9, p, m, 0.8, k=2) == pytest.approx(expected, abs=1e-12)


def test_balanced_groups_with_partial_last_group():
    """Every permutation for each group of the design, with blocks or complements as the estimator
    cuts.
    """
    for p, m, k in [(5, 2, 3), (5, 2, 2), (6, 2, 3), (5, 4, 3), (5, 3, 2), (6, 2, 2), (4, 1, 4)]:
        size = min(m, p - m)
        starts = range(0, p - size + 1, size)
        values = []
        for orders in product(permutations(range(p)), repeat=-(-k // len(starts))):
            blocks = [order[i : i + size] for order in orders for i in starts][:k]
            members = blocks if m == size else [set(range(p)) - set(b) for b in blocks]
            values.append(ensemble_value(8, p, members, 1.3))
        with case(p, m, k):
            risk = theory.expected_risk(8, p, m, 1.3, k=k, design="balanced")
            assert risk == pytest.approx(np.mean(values), abs=1e-12)


def accepted_subsets(p, alpha, max_size):
    """Subsets of coin flips that are not rejected, and their probabilities."""
    accepted = [
        set(columns)
        for size in range(min(p, max_size) + 1)
        for columns in combinations(range(p), size)
    ]
    weights = np.array([alpha ** len(s) * (1 - alpha) ** (p - len(s)) for s in accepted])
    return accepted, weights / weights.sum()


def test_coin_flips_with_and_without_rejection():
    p = 5
    for n, alpha in product([5, 6, 30], [0.3, 0.5, 0.8]):
        accepted = zip(*accepted_subsets(p, alpha, n - 2), strict=True)
        expected = sum(
            first_weight * second_weight * ensemble_value(n, p, (first, second), 0.9)
            for (first, first_weight), (second, second_weight) in product(accepted, repeat=2)
        )
        with case(n, alpha):
            risk = theory.expected_risk(n, p, alpha * p, 0.9, k=2, sampling="bernoulli")
            assert risk == pytest.approx(expected, abs=1e-12)


def test_coin_flip_rows_of_one_member():
    """Every number of rows and of columns, accepted together."""
    n = 9
    p = 5
    m = 2
    tau = 6
    sigma = 0.7
    total = mean = 0.0
    for n_rows, size in product(range(n + 1), range(p + 1)):
        if size <= n_rows - 2:
            mass = binom(n, tau / n).pmf(n_rows) * binom(p, m / p).pmf(size)
            inflation = size / (n_rows - size - 1)
            total += mass
            mean += mass * ((1 - size / p) * (1 + inflation) + sigma**2 * inflation)
    risk = theory.expected_risk(n, p, m, sigma, k=1, n_samples=tau, sampling="bernoulli")
    assert risk == pytest.approx(mean / total, abs=1e-12)


def pairs_of_subsets(n_items, chance, grouped):
    """Pairs of subsets and their probabilities: two members of a group, or two independent ones."""
    in_both = max(0.0, 2 * chance - 1) if grouped else chance**2
    in_one = chance - in_both
    chances = [in_both, in_one, in_one, 1 - in_both - 2 * in_one]
    for kinds in product(range(4), repeat=n_items):
        first = {j for j, kind in enumerate(kinds) if kind in (0, 1)}
        second = {j for j, kind in enumerate(kinds) if kind in (0, 2)}
        yield first, second, np.prod([chances[kind] for kind in kinds])


def test_pairs_with_coin_flip_rows():
    """Enumerate pairs of column and row subsets, of four kinds of groups: both accepted, or one
    drawn again.
    """
    n = 5
    p = 2
    slopes = (1 / 7, 1 / 3)  # slope * a stands for the inflation: independent rows, grouped rows

    def value(first, second, slope):
        inflation = slope * len(first & second)
        return np.array([(p - len(first | second)) / p * (1 + inflation), inflation])

    for alpha, eta in [(0.3, 0.7), (0.5, 0.5), (0.8, 0.6), (0.4, 0.4)]:
        fresh = {}
        for (columns, _, weight), (rows, _, row_weight) in product(
            pairs_of_subsets(p, alpha, False), pairs_of_subsets(n, eta, False)
        ):
            if len(columns) <= len(rows) - 2:
                key = frozenset(columns)
                fresh[key] = fresh.get(key, 0.0) + weight * row_weight
        n_accepted = sum(fresh.values())
        expected = []
        for row_group, column_group in product((False, True), repeat=2):
            row_pairs = list(pairs_of_subsets(n, eta, row_group))
            mean = np.zeros(2)
            total = 0.0
            for first, second, weight in pairs_of_subsets(p, alpha, column_group):
                mass = {}
                for first_rows, second_rows, row_weight in row_pairs:
                    accepted = (
                        len(first) <= len(first_rows) - 2,
                        len(second) <= len(second_rows) - 2,
                    )
                    mass[accepted] = mass.get(accepted, 0.0) + weight * row_weight
                kept_mass = mass.get((True, True), 0.0)
                mean += kept_mass * value(first, second, slopes[row_group])
                total += kept_mass
                for survivor, accepted in ((first, (True, False)), (second, (False, True))):
                    once = mass.get(accepted, 0.0)
                    redrawn = sum(w * value(survivor, s, slopes[0]) for s, w in fresh.items())
                    mean += once * redrawn / n_accepted
                    total += once
            expected.append(mean / total)
        inflations = [lambda a, slope=slope: slope * a for slope in slopes]
        with case(alpha, eta):
            terms = _coin_rows.pair_terms(n, p, alpha, eta, inflations=inflations)
            assert_allclose(terms, expected, atol=1e-12)


def test_replaced_members_of_a_balanced_pair():
    """Under heavy rejection: accepted pairs, and pairs of which one was replaced by independent
    flips.
    """
    p = 5
    for alpha, max_size in product([0.3, 0.5, 0.7], [2, 3, 4]):
        fresh, fresh_weight = accepted_subsets(p, alpha, max_size)
        mean = np.zeros(2)
        total = 0.0
        for first, second, weight in pairs_of_subsets(p, alpha, True):
            accepted = [s for s in (first, second) if len(s) <= max_size]
            if len(accepted) == 2:
                mean += weight * np.array([len(first & second), p - len(first | second)])
            elif accepted:
                (survivor,) = accepted
                mean += weight * (
                    fresh_weight @ [(len(survivor & s), p - len(survivor | s)) for s in fresh]
                )
            total += weight * (len(accepted) > 0)
        with case(alpha, max_size):
            shared, weights, left_out = finite._coin_overlaps(p, alpha, max_size, "balanced")[1]
            assert weights.sum() == pytest.approx(1, abs=1e-12)
            assert_allclose([weights @ shared, weights @ left_out], mean / total, atol=1e-12)


def test_balanced_coin_flips():
    """Members 0 and 1 of a group: each column's category from the cut points of its uniform number."""
    n = 30
    p = 4
    for alpha in (0.3, 0.5, 0.75, 0.8):
        group = int(1 / min(alpha, 1 - alpha) + 1e-9)
        ends = [(c - b / group) % 1 for b in (0, 1) for c in (0, alpha)]
        cuts = np.unique([0, 1, *ends])
        middles = (cuts[1:] + cuts[:-1]) / 2
        lengths = np.diff(cuts)
        expected = 0.0
        for cells in product(range(len(middles)), repeat=p):
            numbers = middles[list(cells)]
            members = [np.flatnonzero((numbers + b / group) % 1 < alpha) for b in (0, 1)]
            expected += np.prod(lengths[list(cells)]) * ensemble_value(n, p, members, 0.9)
        with case(alpha):
            risk = theory.expected_risk(
                n, p, alpha * p, 0.9, k=2, sampling="bernoulli", design="balanced"
            )
            assert risk == pytest.approx(expected, abs=1e-12)


# Finite samples: identities


def test_fewer_terms_agree_with_the_exact_sum(monkeypatch):
    """Two values for the overlap of given sizes instead of all; every third number of columns
    instead of all.
    """
    for constant, smaller_value, n, p in [("MAX_TERMS", 0, 70, 60), ("MAX_SIZES", 100, 600, 500)]:
        inflations = [lambda a, n=n: a / (n - a), lambda a, n=n: a / (2 * n - a)]
        for alpha, eta in [(0.3, 0.4), (0.5, 0.6), (0.7, 0.8)]:
            exact = _coin_rows.pair_terms(n, p, alpha, eta, inflations=inflations)
            with monkeypatch.context() as patch:
                patch.setattr(_coin_rows, constant, smaller_value)
                fewer = _coin_rows.pair_terms(n, p, alpha, eta, inflations=inflations)
            with case(constant, alpha):
                assert_allclose(fewer, exact, rtol=2e-4, atol=1e-9)
    n = 762
    p = 1500  # half of the subsets of 750 columns are rejected, and nothing else is
    inflation = lambda a: a / (n - a - 1)  # noqa: E731
    overlaps = finite._coin_overlaps(p, 0.5, n - 2, "balanced")
    exact = [finite._average(p, pair, inflation(pair[0])) for pair in overlaps]
    terms = _coin_rows.pair_terms(n, p, 0.5, 1.0, inflations=[inflation] * 2)
    assert_allclose(terms, exact * 2, rtol=1e-5)


def test_coin_flip_rows_leave_a_positive_risk_at_twice_the_scale():
    """It was -0.012 when pairs were conditioned on the mean number of rows, members on their own.

    Simulated (200 000 ensembles drawn by `subsets.draw_members`, v simulated for each pair): bias
    0.3415, variance 0.1697, risk at mu = 2 without noise 0.192.
    """
    options = {"k": 6, "n_samples": 4, "sampling": "bernoulli", "design": "balanced"}
    assert theory.expected_bias(6, 2, 1, **options) == pytest.approx(0.3415, rel=0.005)
    assert theory.expected_variance(6, 2, 1, 1.0, **options) == pytest.approx(0.1697, rel=0.02)
    assert theory.expected_risk(6, 2, 1, 0.0, mu=2.0, **options) == pytest.approx(0.192, rel=0.02)


@settings(max_examples=400, deadline=None)
@given(
    data=st.data(),
    n=st.integers(1, 12),
    p=st.integers(1, 8),
    sigma=st.sampled_from([0.0, 0.5]),
    sampling=st.sampled_from(finite.SAMPLINGS),
    design=st.sampled_from(finite.DESIGNS),
)
def test_no_risk_is_below_that_of_its_mean_along_the_signal(data, n, p, sigma, sampling, design):
    """R >= (1 - delta)^2, with equality where every column is in the same number of members and v =
    0; so at any mu.
    """
    tau = data.draw(st.integers(1, n))
    m = data.draw(st.integers(0, p) if sampling == "fixed" else st.floats(0, p))
    k = np.array([1, 2, 3, 4, 6, 12, np.inf])
    options = {"k": k, "n_samples": tau, "sampling": sampling, "design": design}
    try:
        risk = theory.expected_risk(n, p, m, sigma, **options)
    except ValueError:
        return  # `test_theory_arguments` looks at the reasons
    shrinkage = finite._broadcast_terms(n, p, m, tau, sampling=sampling, design=design).shrinkage
    assert np.all(risk >= (1 - shrinkage) ** 2 - 1e-12)  # rejections below 1e-13 are not felt
    for mu in (-1.0, 0.0, 0.5, 2.0, 1 / max(float(shrinkage), 0.1)):
        assert np.all(theory.expected_risk(n, p, m, sigma, mu=mu, **options) >= 0)


def test_risk_is_bias_plus_variance_and_scales_with_the_signal():
    for design, sampling in product(finite.DESIGNS, finite.SAMPLINGS):
        options = {
            "k": np.array([1, 3, 8, np.inf]),
            "sampling": sampling,
            "design": design,
            "n_samples": 30,
        }
        bias = theory.expected_bias(40, 25, 6, beta_norm=2.0, **options)
        variance = theory.expected_variance(40, 25, 6, 0.7, **options)
        risk = theory.expected_risk(40, 25, 6, 0.7, beta_norm=2.0, **options)
        assert_allclose(risk, bias + variance, rtol=1e-13)
        of_unit_signal = theory.expected_risk(40, 25, 6, 0.35, **options)
        assert_allclose(risk, 4 * of_unit_signal, rtol=1e-13)
        null_risk = theory.expected_risk(40, 25, 6, 0.7, beta_norm=2.0, mu=0.0, **options)
        assert_allclose(null_risk, 4.0)
        assert_array_equal(theory.expected_variance(40, 25, 6, 0.0, **options), 0)


def test_one_block_is_the_independent_design_and_that_is_linear_in_one_over_k():
    for k, m in [*product([1, 4, np.inf], [0, 10]), (1, 4), (np.inf, 4)]:
        plain, balanced = (
            theory.expected_risk(20, 10, m, 1.0, k=k, design=design) for design in finite.DESIGNS
        )
        assert balanced == pytest.approx(plain, abs=1e-12), (k, m)
    k = np.array([1, 2, 5, np.inf])
    risk = theory.expected_risk(40, 30, 12, 0.6, k=k)
    assert_allclose(risk, risk[-1] + (risk[0] - risk[-1]) / k, atol=1e-12)


def test_bias_variance_and_risk_tend_to_their_limits_like_one_over_n():
    k = np.array([1, 3, np.inf])
    for (alpha, gamma, eta), sampling in product(
        [(0.4, 0.8, 1.0), (0.3, 2.0, 0.9), (0.7, 0.5, 0.6)], finite.SAMPLINGS
    ):
        letters = {"alpha": alpha, "gamma": gamma, "k": k, "eta": eta}
        limits = np.array(
            [
                theory.limiting_bias(**letters),
                theory.limiting_variance(sigma=0.8, **letters),
                theory.limiting_risk(sigma=0.8, **letters),
            ]
        )
        distances = []
        for n in (10_000, 100_000):
            p = int(gamma * n)
            size = n, p, int(alpha * p)
            options = {"k": k, "n_samples": int(eta * n), "sampling": sampling}
            values = [
                theory.expected_bias(*size, **options),
                theory.expected_variance(*size, 0.8, **options),
                theory.expected_risk(*size, 0.8, **options),
            ]
            distances.append(np.abs(values - limits))
        with case(alpha, gamma, eta, sampling):
            assert np.all(distances[0] < 5e-3)
            assert_allclose(distances[1] * 10, distances[0], rtol=0.02)


def test_thinned_distributions_have_the_moments_of_smooth_functions():
    for values, weights in (
        _distributions.binomial(2000, 0.1),
        _distributions.hypergeometric(5000, 3000, 3000),
        _distributions.hypergeometric(300, 150, 150),
    ):
        few_values, few_weights = _distributions.thin(values, weights)
        assert len(few_values) < 200
        for function in (lambda x: x / (1e4 - x), lambda x: x**2):
            expected = weights @ function(values)
            assert few_weights @ function(few_values) == pytest.approx(expected, rel=1e-13)


def test_given_pairs_reduce_to_the_ensemble_and_the_best_size_is_the_best_of_all():
    rows = {"n_samples": 15, "shared_rows": 15}
    risk = theory.overlap_bias(20, 6, 0.5, **rows) + theory.overlap_variance(20, 6, 1.0, **rows)
    assert theory.expected_risk(20, 12, 6, 1.0, k=1, n_samples=15) == pytest.approx(risk, rel=1e-13)
    assert theory.overlap_variance(20, 6, 1.0, n_samples=10, shared_rows=0) == 0
    for k in (1, 5, np.inf):
        risks = theory.expected_risk(90, 200, np.arange(1, 89), 0.4, k=k)
        assert theory.optimal_n_features(90, 200, 0.4, k=k) == 1 + int(np.argmin(risks))


# Finite samples: simulation. Within 4 standard errors; a correct build fails about once in 16 000
# lines and seeds.


def test_fitted_ensembles_have_the_expected_risk(seed):
    """The whole chain: subsets as the estimator draws them, members as it solves them, averaged as
    it averages.
    """
    rng = np.random.default_rng(seed)
    for (n, p, m, k), design, sampling in product(
        [(30, 40, 10, 4), (50, 20, 14, 5)], finite.DESIGNS, finite.SAMPLINGS
    ):
        options = {"sampling": sampling, "design": design}
        with case(n, p, m, k, options):
            risk = sim.fitted_risk(
                rng,
                n,
                sim.unit_signal(p),
                sigma=0.8,
                trials=400,
                n_estimators=k,
                max_features=m,
                **options,
            )
            risk.check(theory.expected_risk(n, p, m, 0.8, k=k, **options))


def test_drawn_coin_flips_leave_out_as_many_columns_as_expected(seed):
    """The subsets that estimators draw, rows and columns accepted together: columns in neither of a
    pair, E|S|/p.
    """
    n = 6
    p = 4
    k = 6
    n_ensembles = 1000
    for m, tau, design in [(1, 4, "balanced"), (3, 5, "balanced"), (2, 3, "independent")]:
        features, _ = subsets.draw_members(
            n,
            p,
            k * n_ensembles,
            rng=seed,
            max_features=m,
            max_samples=tau,
            sampling="bernoulli",
            design=design,
        )
        left_out = 1.0 - features.mask().reshape(n_ensembles, k, p)
        shrinkage = _coin_rows.member_terms(n, p, m / p, tau / n).shrinkage
        pairs = _coin_rows.pair_terms(n, p, m / p, tau / n, inflations=[np.zeros_like] * 2)
        terms = finite._broadcast_terms(n, p, m, tau, sampling="bernoulli", design=design)
        biases = np.array([1 - shrinkage, *(bias for bias, _ in pairs)])
        with case(m, tau, design):
            sim.estimate(left_out.mean(axis=(1, 2))).check(1 - shrinkage)
            expected = finite._combine(biases, terms, np.array(float(k)))
            sim.estimate((left_out.mean(axis=1) ** 2).mean(axis=1)).check(expected)


# Minimum-norm members


def test_interpolators_tend_to_the_limit():
    n = 1_000_000
    for (alpha, gamma, eta), k in product(
        [(0.8, 2.0, 0.5), (1.0, 1.5, 0.7), (0.5, 4.0, 1.0)], [1, 4, np.inf]
    ):
        p = int(gamma * n)
        risk = theory.minimum_norm_risk(n, p, int(alpha * p), 0.6, k=k, n_samples=int(eta * n))
        with case(alpha, gamma, eta, k):
            limit = theory.limiting_risk(alpha, gamma, 0.6, k=k, eta=eta)
            assert risk == pytest.approx(limit, rel=1e-5)


def test_pairs_of_interpolators_are_the_general_ones_at_identity_covariance():
    """All columns, so that the overlap is the mean one: the bias exactly, the variance at large
    sizes.
    """
    for factor, sigma, rel in ((1, 0.0, 1e-9), (20, 0.7, 2e-3)):
        n = 25 * factor
        p = 30 * factor
        tau = 8 * factor
        expected = theory.pair_risk(
            np.ones(p),
            np.full(p, p**-0.5),
            features_i=np.arange(p),
            features_j=np.arange(p),
            sigma=sigma,
            n=n,
            rows_i=tau,
            rows_j=tau,
            shared_rows=0,
        )
        # two of three disjoint folds of eight rows: of nine ordered pairs, three are of a member
        # with itself
        of_one, of_three = (
            theory.minimum_norm_risk(n, p, p, sigma, k=k, n_samples=tau, design="balanced")
            for k in (1, 3)
        )
        assert (9 * of_three - 3 * of_one) / 6 == pytest.approx(expected, rel=rel)


def test_norm_scale_and_extremes_of_interpolators():
    def risk(sigma, **options):
        return theory.minimum_norm_risk(40, 80, 60, sigma, k=3, n_samples=20, **options)

    plain = risk(0.5)
    assert risk(1.0, beta_norm=2.0) == pytest.approx(4 * plain, rel=1e-13)
    assert risk(0.5, mu=0.0) == 1
    assert plain == pytest.approx(risk(0.5, beta_norm=0.0) + risk(0.0), rel=1e-13)
    scaled = theory.scaled_risk(plain, 20 / 80, 0.7)
    assert risk(0.5, mu=0.7) == pytest.approx(scaled, rel=1e-13)
    k = np.array([1, 5, np.inf])
    for design in finite.DESIGNS:  # all rows and columns make identical members
        identical = theory.minimum_norm_risk(50, 120, 120, 0.4, k=k, n_samples=50, design=design)
        assert_allclose(identical, identical[0], rtol=1e-13)
    sizes = np.arange(100, 301, 20)
    risks = theory.minimum_norm_risk(100, 300, sizes, 0.5, k=4, n_samples=60)
    assert np.all(np.diff(risks) < 0)  # the best finite ensemble uses all columns


def test_simulated_interpolators_have_the_expected_risk(seed):
    """One member and all columns are exact at n = 12, where the limiting pair variance would be 10
    % off.
    """
    rng = np.random.default_rng(seed)
    for n, p, m, tau, k, sigma, design, trials in [
        (6, 20, 20, 6, 1, 0.0, "independent", 1000),
        (4, 24, 16, 4, 1, 0.7, "independent", 1000),
        (3, 16, 14, 3, 1, 0.7, "independent", 1000),
        (12, 20, 20, 8, 3, 0.9, "independent", 1500),
        (12, 24, 24, 4, 5, 0.9, "balanced", 1500),
    ]:
        rows = getattr(sim, design)(n, tau, k) if tau < n else None
        features = sim.independent(p, m, k)
        risk = sim.simulate(rng, n, sim.unit_signal(p), sigma, features, rows=rows, trials=trials)
        options = {"n_samples": tau, "design": design}
        with case(n, p, m, tau, k):
            risk.ensemble.check(theory.minimum_norm_risk(n, p, m, sigma, k=k, **options))
            risk.member.check(theory.minimum_norm_risk(n, p, m, sigma, k=1, **options))
