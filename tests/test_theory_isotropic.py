"""Isotropic columns: limits and ridge by algebra, finite samples by enumeration and simulation, interpolators."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom

import theory_simulation as sim
from olsen import subsets, theory
from olsen.theory import _coin_rows, _laws, finite

GAMMA = np.geomspace(0.05, 20, 31)[:, None]
SIGMA = np.geomspace(0.01, 10, 29)[None, :]


# Limits


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
    # a search over [0, 1 / gamma], as in the authors' code, leaves [0, 1]
    assert theory.optimal_alpha(0.5, 0.1, k=1) <= 1
    many, limit = theory.optimal_alpha(2.0, [0.3, 1.0], k=1e9), theory.optimal_alpha(2.0, [0.3, 1.0])
    np.testing.assert_allclose(many, limit, atol=1e-6)
    assert theory.optimal_alpha(2.0, 0.1, eta=0.5) == 0.25  # the peak: alpha_* is beyond it


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


def test_scalars_give_scalars_and_arrays_broadcast():
    assert np.ndim(theory.limiting_risk(0.5, 0.5, 1.0)) == 0
    assert isinstance(theory.limiting_risk(0.5, 0.5, 1.0), float)
    shape = theory.limiting_risk(np.ones((3, 1)) / 2, np.ones(4), 1.0, k=np.ones((2, 1, 1))).shape
    assert shape == (2, 3, 4)
    assert theory.optimal_alpha(np.ones(4), 1.0, k=np.array([[2], [3]])).shape == (2, 4)


# Finite samples


def pair_value(n, p, first, second, sigma):
    """Risk of one given pair, averaged over the position of a unit signal (all rows in use)."""
    first, second = set(first), set(second)
    shared, outside = len(first & second), p - len(first | second)
    inflation = shared / (n - shared - 1)
    return outside / p * (1 + inflation) + sigma**2 * inflation


def ensemble_value(n, p, subsets, sigma):
    return np.mean([pair_value(n, p, i, j, sigma) for i in subsets for j in subsets])


@pytest.mark.parametrize(("p", "m"), [(5, 2), (6, 3), (5, 4), (4, 4), (6, 1)])
def test_independent_fixed_sizes_by_enumeration(p, m):
    subsets = list(combinations(range(p), m))
    expected = np.mean([ensemble_value(9, p, pair, 0.8) for pair in product(subsets, subsets)])
    assert theory.expected_risk(9, p, m, 0.8, k=2) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("p", "m", "k"), [(5, 2, 3), (5, 2, 2), (6, 2, 3), (5, 4, 3), (5, 3, 2), (6, 2, 2), (4, 1, 4)])
def test_balanced_groups_by_enumeration_with_partial_last_group(p, m, k):
    """Every permutation for each group of the design, blocks or complements cut as the estimator cuts them."""
    block = min(m, p - m)
    group = p // block
    n_groups = -(-k // group)
    values = []
    for orders in product(permutations(range(p)), repeat=n_groups):
        blocks = [order[b * block : (b + 1) * block] for order in orders for b in range(group)][:k]
        members = blocks if m == block else [set(range(p)) - set(b) for b in blocks]
        values.append(ensemble_value(8, p, members, 1.3))
    result = theory.expected_risk(8, p, m, 1.3, k=k, design="balanced")
    assert result == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.parametrize(("p", "m"), [(5, 2), (5, 3), (5, 4)])
def test_antithetic_pairs_by_enumeration(p, m):
    values = [ensemble_value(8, p, (order[:m], order[::-1][:m]), 0.5) for order in permutations(range(p))]
    result = theory.expected_risk(8, p, m, 0.5, k=2, design="antithetic")
    assert result == pytest.approx(np.mean(values), abs=1e-12)


def accepted_subsets(p, alpha, most):
    subsets = [s for size in range(min(p, most) + 1) for s in combinations(range(p), size)]
    weights = np.array([alpha ** len(s) * (1 - alpha) ** (p - len(s)) for s in subsets])
    return subsets, weights / weights.sum()


@pytest.mark.parametrize("n", [5, 6, 30])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_coin_flips_by_enumeration_with_and_without_rejection(n, alpha):
    p = 5
    subsets, weights = accepted_subsets(p, alpha, n - 2)
    expected = sum(
        wi * wj * ensemble_value(n, p, (i, j), 0.9)
        for i, wi in zip(subsets, weights, strict=True)
        for j, wj in zip(subsets, weights, strict=True)
    )
    result = theory.expected_risk(n, p, alpha * p, 0.9, k=2, sampling="bernoulli")
    assert result == pytest.approx(expected, abs=1e-12)


def test_coin_flip_rows_by_enumeration():
    """One member: every number of rows and of columns, accepted together."""
    n, p, m, tau, sigma = 9, 5, 2, 6, 0.7
    total = mean = 0.0
    for rows, size in product(range(n + 1), range(p + 1)):
        if size <= rows - 2:
            mass = binom(n, tau / n).pmf(rows) * binom(p, m / p).pmf(size)
            inflation = size / (rows - size - 1)
            total += mass
            mean += mass * ((1 - size / p) * (1 + inflation) + sigma**2 * inflation)
    result = theory.expected_risk(n, p, m, sigma, k=1, n_samples=tau, sampling="bernoulli")
    assert result == pytest.approx(mean / total, abs=1e-12)


def drawn_together(n_items, chance, grouped):
    """Pairs of subsets and their probabilities: two members of a group, or two independent ones."""
    both = max(0.0, 2 * chance - 1) if grouped else chance**2
    cells = [both, chance - both, chance - both, 1 - 2 * chance + both]  # in both, first only, second only, neither
    for kinds in product(range(4), repeat=n_items):
        first = {j for j, kind in enumerate(kinds) if kind in (0, 1)}
        second = {j for j, kind in enumerate(kinds) if kind in (0, 2)}
        yield first, second, np.prod([cells[kind] for kind in kinds])


@pytest.mark.parametrize(("alpha", "eta"), [(0.3, 0.7), (0.5, 0.5), (0.8, 0.6), (0.4, 0.4)])
def test_pairs_with_coin_flip_rows_by_enumeration(alpha, eta):
    """Every pair of column and row subsets, of four kinds of groups: both kept, or one of them drawn again."""
    n, p = 5, 2
    slopes = 1 / 7, 1 / 3  # v = slope * a stands for the inflation: independent rows, rows of one group

    def value(first, second, slope):
        v = slope * len(first & second)
        return np.array([(p - len(first | second)) / p * (1 + v), v])

    single = [(s, t, w * u) for s, _, w in drawn_together(p, alpha, False) for t, _, u in drawn_together(n, eta, False)]
    fresh = {}
    for columns, rows, weight in single:
        if len(columns) <= len(rows) - 2:
            fresh[frozenset(columns)] = fresh.get(frozenset(columns), 0.0) + weight
    accepted = sum(fresh.values())
    expected = []
    for row_group, column_group in product((False, True), repeat=2):
        row_pairs = list(drawn_together(n, eta, row_group))
        mean, total = np.zeros(2), 0.0
        for first, second, weight in drawn_together(p, alpha, column_group):
            enough = [(len(first) <= len(t) - 2, len(second) <= len(u) - 2, w) for t, u, w in row_pairs]
            kept = sum(w for i, j, w in enough if i and j)
            mean += weight * kept * value(first, second, slopes[row_group])
            total += weight * kept
            for survivor, once in (
                (first, [w for i, j, w in enough if i > j]),
                (second, [w for i, j, w in enough if j > i]),
            ):
                mean += weight * sum(once) * sum(w * value(survivor, s, slopes[0]) for s, w in fresh.items()) / accepted
                total += weight * sum(once)
        expected.append(mean / total)
    found = _coin_rows.pair_terms(n, p, alpha, eta, [lambda a, slope=slope: slope * a for slope in slopes])
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "less", "n", "p", "rtol"),
    [("_laws.PAIR_TERMS", 0, 70, 60, 2e-4), ("_coin_rows.SIZES", 100, 600, 500, 2e-4)],
)
def test_fewer_terms_agree_with_the_exact_sum(monkeypatch, name, less, n, p, rtol):
    """Two values for the overlap of given sizes instead of all; every third number of columns instead of all."""
    inflations = [lambda a: a / (n - a), lambda a: a / (2 * n - a)]
    for alpha, eta in [(0.3, 0.4), (0.5, 0.6), (0.7, 0.8)]:
        exact = _coin_rows.pair_terms(n, p, alpha, eta, inflations)
        with monkeypatch.context() as patch:
            patch.setattr(f"olsen.theory.{name}", less)
            found = _coin_rows.pair_terms(n, p, alpha, eta, inflations)
        np.testing.assert_allclose(found, exact, rtol=rtol, atol=1e-9)


def test_coin_flip_rows_leave_a_positive_risk_at_twice_the_scale():
    """-0.012 once: pairs were conditioned on the mean number of rows, members on their own.

    Simulated (200 000 ensembles drawn by `subsets.draw_members`, v simulated for each pair): bias 0.3415, variance
    0.1697, risk at mu = 2 without noise 0.192.
    """
    how = {"k": 6, "n_samples": 4, "sampling": "bernoulli", "design": "balanced"}
    assert theory.expected_bias(6, 2, 1, **how) == pytest.approx(0.3415, rel=0.005)
    assert theory.expected_variance(6, 2, 1, 1.0, **how) == pytest.approx(0.1697, rel=0.02)
    assert theory.expected_risk(6, 2, 1, 0.0, mu=2.0, **how) == pytest.approx(0.192, rel=0.02)


@settings(max_examples=400, deadline=None)
@given(
    data=st.data(), n=st.integers(1, 12), p=st.integers(1, 8), sigma=st.sampled_from([0.0, 0.5]),
    sampling=st.sampled_from(finite.SAMPLINGS), design=st.sampled_from(finite.DESIGNS),
)  # fmt: skip
def test_no_risk_is_below_that_of_its_mean_along_the_signal(data, n, p, sigma, sampling, design):
    """R >= (1 - delta)^2, with equality where every column is in the same number of members and v = 0; so at any mu."""
    tau = data.draw(st.integers(1, n))
    m = data.draw(st.integers(0, p) if sampling == "fixed" else st.floats(0, p))
    how = {"k": np.array([1, 2, 3, 4, 6, 12, np.inf]), "n_samples": tau, "sampling": sampling, "design": design}
    try:
        risk = theory.expected_risk(n, p, m, sigma, **how)
    except ValueError:
        return  # `test_theory_arguments` looks at the reasons
    shrinkage = finite._broadcast_terms("expected_risk", n, p, m, tau, sampling, design).shrinkage
    assert np.all(risk >= (1 - shrinkage) ** 2 - 1e-14)
    assert np.all(theory.expected_bias(n, p, m, **how) >= 0)
    assert np.all(theory.expected_variance(n, p, m, sigma, **how) >= 0)
    for mu in (-1.0, 0.0, 0.5, 2.0, 1 / max(float(shrinkage), 0.1)):
        assert np.all(theory.expected_risk(n, p, m, sigma, mu=mu, **how) >= 0)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("most", [2, 3, 4])
def test_replaced_members_by_enumeration(alpha, most):
    """A balanced pair under heavy rejection: kept pairs, and pairs of which one was replaced by independent flips."""
    p = 5
    both = max(0.0, 2 * alpha - 1)
    chances = [both, alpha - both, alpha - both, 1 - 2 * alpha + both]  # in both, first only, second only, neither
    fresh, fresh_weight = accepted_subsets(p, alpha, most)
    mean, total = np.zeros(2), 0.0
    for cells in product(range(4), repeat=p):
        weight = np.prod([chances[c] for c in cells])
        first = {j for j, c in enumerate(cells) if c in (0, 1)}
        second = {j for j, c in enumerate(cells) if c in (0, 2)}
        kept = [s for s in (first, second) if len(s) <= most]
        if len(kept) == 2:
            mean += weight * np.array([len(first & second), p - len(first | second)])
        elif len(kept) == 1:
            values = [(len(kept[0] & set(s)), p - len(kept[0] | set(s))) for s in fresh]
            mean += weight * (fresh_weight @ np.array(values))
        total += weight * (len(kept) > 0)
    _, same, *_ = finite._coin_laws(p, alpha, most, "balanced")
    assert same[1].sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose([same[1] @ same[0], same[1] @ same[2]], mean / total, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.75, 0.8])
def test_balanced_coin_flips_by_enumeration(alpha):
    """Members 0 and 1 of a group: each column's category from the cut points of its uniform number."""
    n, p = 30, 4
    group = int(1 / min(alpha, 1 - alpha) + 1e-9)
    cuts = np.unique(np.concatenate([[0, 1], [(c - b / group) % 1 for b in (0, 1) for c in (0, alpha)]]))
    middle, length = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
    inside = [(u % 1 < alpha, (u + 1 / group) % 1 < alpha) for u in middle]
    expected = 0.0
    for cells in product(range(len(middle)), repeat=p):
        members = [[j for j, c in enumerate(cells) if inside[c][b]] for b in (0, 1)]
        expected += np.prod(length[list(cells)]) * ensemble_value(n, p, members, 0.9)
    result = theory.expected_risk(n, p, alpha * p, 0.9, k=2, sampling="bernoulli", design="balanced")
    assert result == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("design", ["independent", "balanced", "antithetic"])
@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
def test_risk_is_bias_plus_variance_and_scales_with_the_signal(design, sampling):
    how = {"k": np.array([1, 3, 8, np.inf]), "sampling": sampling, "design": design, "n_samples": 30}
    bias = theory.expected_bias(40, 25, 6, beta_norm=2.0, **how)
    variance = theory.expected_variance(40, 25, 6, 0.7, **how)
    risk = theory.expected_risk(40, 25, 6, 0.7, beta_norm=2.0, **how)
    np.testing.assert_allclose(risk, bias + variance, rtol=1e-13)
    np.testing.assert_allclose(risk, 4 * theory.expected_risk(40, 25, 6, 0.35, **how), rtol=1e-13)
    shrunk = theory.expected_risk(40, 25, 6, 0.7, beta_norm=2.0, mu=0.0, **how)
    np.testing.assert_allclose(shrunk, 4.0)


def test_one_block_is_the_independent_design():
    for k in (1, 4, np.inf):
        for m in (0, 10):
            plain = theory.expected_risk(20, 10, m, 1.0, k=k)
            assert theory.expected_risk(20, 10, m, 1.0, k=k, design="balanced") == pytest.approx(plain, abs=1e-12)
        assert theory.expected_risk(20, 10, 4, 1.0, k=1, design="balanced") == theory.expected_risk(20, 10, 4, 1.0, k=1)
    far = theory.expected_risk(20, 10, 4, 1.0, k=np.inf)
    assert theory.expected_risk(20, 10, 4, 1.0, k=np.inf, design="balanced") == far


def test_risk_of_independent_members_is_linear_in_one_over_k():
    risk = theory.expected_risk(40, 30, 12, 0.6, k=np.array([1, 2, 5, np.inf]))
    inverse = np.array([1, 0.5, 0.2, 0])
    np.testing.assert_allclose(risk, risk[-1] + (risk[0] - risk[-1]) * inverse, atol=1e-12)


@pytest.mark.parametrize(("alpha", "gamma", "eta"), [(0.4, 0.8, 1.0), (0.3, 2.0, 0.9), (0.7, 0.5, 0.6)])
@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
def test_finite_tends_to_the_limit_like_one_over_n(alpha, gamma, eta, sampling):
    k = np.array([1, 3, np.inf])
    gaps = []
    for n in (10_000, 100_000):
        p = int(gamma * n)
        risk = theory.expected_risk(n, p, int(alpha * p), 0.8, k=k, n_samples=int(eta * n), sampling=sampling)
        gaps.append(np.abs(risk - theory.limiting_risk(alpha, gamma, 0.8, k=k, eta=eta)))
    assert np.all(gaps[0] < 5e-3)
    np.testing.assert_allclose(gaps[1] * 10, gaps[0], rtol=0.02)


def test_negligible_rejection_joins_the_exact_sum():
    """Just below and just above the threshold the two ways of summing agree."""
    p, both, one, most = 60, 0.16, 0.24, 54
    assert 1e-16 < _laws.rejection(p, both + one, most) < 1e-13
    plain, _ = _laws.coin_pair(p, both, one, most)
    exact, accepted = _laws._truncated_pair(p, both, one, most, plain[0], plain[1])
    assert accepted == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(exact[1], plain[1], atol=1e-12)
    np.testing.assert_allclose(exact[1] * exact[2], plain[1] * plain[2], atol=1e-11)


def test_cells_of_sizes_agree_with_the_exact_sum():
    p, alpha, most = 1500, 0.5, 760
    a, weight = _laws.binomial(p, alpha**2, most)
    exact, _ = _laws._truncated_pair(p, alpha**2, alpha * (1 - alpha), most, a, weight)
    cells = _laws._celled_pair(p, alpha, most)
    for value in (lambda law: law[0] / (most + 1 - law[0]), lambda law: law[2] / (most + 1 - law[0])):
        assert cells[1] @ value(cells) == pytest.approx(exact[1] @ value(exact), rel=1e-5)


def test_thinned_laws_keep_every_digit():
    for law in (_laws.hypergeometric(5000, 3000, 3000), _laws.binomial(2000, 0.1), _laws.hypergeometric(300, 150, 150)):
        values, weights = _laws.thin(*law)
        assert len(values) < 200
        for function in (lambda x: x / (1e4 - x), lambda x: x**2):
            assert weights @ function(values) == pytest.approx(law[1] @ function(law[0]), rel=1e-13)


def test_given_pairs_reduce_to_the_ensemble():
    own = theory.overlap_bias(20, 6, 0.5, n_samples=15, shared_rows=15) + theory.overlap_variance(
        20, 6, 1.0, n_samples=15, shared_rows=15
    )
    assert theory.expected_risk(20, 12, 6, 1.0, k=1, n_samples=15) == pytest.approx(own, rel=1e-13)
    assert theory.overlap_variance(20, 6, 1.0, n_samples=10, shared_rows=0) == 0


def test_optimal_n_features_is_the_best_of_all():
    for k in (1, 5, np.inf):
        risks = theory.expected_risk(90, 200, np.arange(1, 89), 0.4, k=k)
        assert theory.optimal_n_features(90, 200, 0.4, k=k) == 1 + int(np.argmin(risks))


@pytest.mark.parametrize(
    ("design", "draw", "n", "p", "m", "k", "sigma"),
    [
        ("independent", sim.independent, 30, 20, 8, 4, 1.0),
        ("balanced", sim.balanced, 30, 24, 7, 4, 0.5),  # three blocks and the first of a second group
        ("balanced", sim.balanced, 40, 24, 17, 5, 0.3),  # complements, partial group
        ("antithetic", sim.antithetic, 30, 20, 12, 3, 0.7),
    ],
)
def test_simulated_designs_match_the_exact_risk(seed, design, draw, n, p, m, k, sigma):
    rng = np.random.default_rng(seed)
    beta = sim.unit_signal(p)
    risk = sim.simulate(rng, n, beta, sigma, draw(p, m, k), trials=700)
    expected = theory.expected_risk(n, p, m, sigma, k=k, design=design)
    assert risk.ensemble.agrees_with(expected), f"{risk.ensemble} against {expected:.5f}"
    assert risk.own.agrees_with(theory.expected_risk(n, p, m, sigma, k=1))


@pytest.mark.parametrize(("design", "draw"), [("independent", sim.coins), ("balanced", sim.balanced_coins)])
def test_simulated_coin_flips_match_the_exact_risk(seed, design, draw):
    rng = np.random.default_rng(seed)
    n, p, alpha, k = 36, 20, 0.3, 4
    risk = sim.simulate(rng, n, sim.unit_signal(p), 0.8, draw(p, alpha, k, n - 2), trials=700)
    expected = theory.expected_risk(n, p, alpha * p, 0.8, k=k, sampling="bernoulli", design=design)
    assert risk.ensemble.agrees_with(expected), f"{risk.ensemble} against {expected:.5f}"


def test_simulated_scale_matches_at_finite_k(seed):
    rng = np.random.default_rng(seed)
    for mu in (0.6, 1.4):
        risk = sim.simulate(rng, 40, sim.unit_signal(30), 1.0, sim.independent(30, 10, 5), mu=mu, trials=500)
        expected = theory.expected_risk(40, 30, 10, 1.0, k=5, mu=mu)
        assert risk.ensemble.agrees_with(expected), f"{risk.ensemble} against {expected:.5f}"


@pytest.mark.parametrize(("m", "tau", "design"), [(1, 4, "balanced"), (3, 5, "balanced"), (2, 3, "independent")])
def test_drawn_coin_flips_leave_out_as_many_columns_as_expected(seed, m, tau, design):
    """The subsets that estimators draw, rows and columns accepted together: columns in neither of a pair, E|S|/p."""
    n, p, k, ensembles = 6, 4, 6, 2000
    features, _ = subsets.draw_members(
        n, p, k * ensembles, seed=seed, max_features=m, max_samples=tau, sampling="bernoulli", design=design
    )
    left_out = 1.0 - features.mask().reshape(ensembles, k, p)
    *_, shrinkage, _ = _coin_rows.member_terms(n, p, m / p, tau / n)
    assert sim.estimate(left_out.mean(axis=(1, 2))).agrees_with(1 - shrinkage)
    pairs = _coin_rows.pair_terms(n, p, m / p, tau / n, [np.zeros_like, np.zeros_like])
    terms = finite._broadcast_terms("expected_bias", n, p, m, tau, "bernoulli", design)
    five = np.array([1 - shrinkage, *(bias for bias, _ in pairs)])
    expected = finite._combine(five, terms, np.array(float(k)))
    assert sim.estimate((left_out.mean(axis=1) ** 2).mean(axis=1)).agrees_with(expected)


# Minimum-norm members


@pytest.mark.parametrize(("alpha", "gamma", "eta"), [(0.8, 2.0, 0.5), (1.0, 1.5, 0.7), (0.5, 4.0, 1.0)])
@pytest.mark.parametrize("k", [1, 4, np.inf])
def test_interpolators_tend_to_the_limit(alpha, gamma, eta, k):
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


def test_norm_and_scale_of_interpolators():
    how = {"k": 3, "n_samples": 20}
    plain = theory.minimum_norm_risk(40, 80, 60, 0.5, **how)
    assert theory.minimum_norm_risk(40, 80, 60, 1.0, beta_norm=2.0, **how) == pytest.approx(4 * plain, rel=1e-13)
    assert theory.minimum_norm_risk(40, 80, 60, 0.5, mu=0.0, **how) == 1
    noise = theory.minimum_norm_risk(40, 80, 60, 0.5, beta_norm=0.0, **how)
    signal = theory.minimum_norm_risk(40, 80, 60, 0.0, **how)
    assert plain == pytest.approx(noise + signal, rel=1e-13)
    scaled = theory.scaled_risk(plain, 20 / 80, 0.7)
    assert theory.minimum_norm_risk(40, 80, 60, 0.5, mu=0.7, **how) == pytest.approx(scaled, rel=1e-13)


@pytest.mark.parametrize(("p", "m", "tau"), [(20, 20, 6), (24, 16, 4), (16, 14, 3)])
def test_single_member_is_exact(seed, p, m, tau):
    rng = np.random.default_rng(seed)
    risk = sim.simulate(rng, tau, sim.unit_signal(p), 0.0, sim.independent(p, m, 1), trials=1000)
    assert risk.own.agrees_with(theory.minimum_norm_member_bias(p, m, tau)), risk.own
    risk = sim.simulate(rng, tau, np.zeros(p), 0.7, sim.independent(p, m, 1), trials=1000)
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
