"""Isotropic columns: limits and ridge by algebra, finite samples by enumeration and simulation,
interpolators.
"""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom

import theory_simulation as sim
from loops import case
from olsen import subsets, theory
from olsen.theory import _coin_rows, _distributions, finite

GAMMA = np.geomspace(0.05, 20, 31)[:, None]
SIGMA = np.geomspace(0.01, 10, 29)[None, :]


# Limits


def test_optimal_large_ensemble_is_optimal_ridge_and_one_minus_alpha():
    alpha = theory.optimal_alpha(GAMMA, SIGMA)
    risk = theory.limiting_risk(alpha, GAMMA, SIGMA)
    best = theory.optimal_ridge_penalty(GAMMA, SIGMA)
    for same in (
        1 - alpha,
        theory.optimal_ridge_risk(GAMMA, SIGMA),
        theory.ridge_risk(best, GAMMA, SIGMA),
    ):
        np.testing.assert_allclose(risk, same, rtol=0, atol=1e-12)
    np.testing.assert_allclose(theory.optimal_mu(alpha, GAMMA, SIGMA), 1, rtol=0, atol=1e-10)
    features, rows = (
        (1 - alpha) / (1 - alpha * GAMMA),
        (1 - alpha * GAMMA) / GAMMA,
    )  # excess of either side
    np.testing.assert_array_equal(theory.better_side(GAMMA, SIGMA) == "rows", rows < features)


def test_derivative_is_the_numerical_one():
    for (gamma, sigma, alpha), k, eta in product(
        [(0.5, 1.0, 0.7), (2.0, 0.3, 0.2), (1.0, 2.0, 0.4), (0.1, 0.1, 0.9)],
        [1, 2, 7, np.inf],
        [0.6, 1.0],
    ):
        h = 1e-5
        up, down = (
            theory.limiting_risk(alpha + s * h, gamma, sigma, k=k, eta=eta) for s in (1, -1)
        )
        slope = theory.limiting_risk_derivative(alpha, gamma, sigma, k=k, eta=eta)
        with case(gamma, k, eta):
            assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-8)


def test_optimal_alpha_of_a_finite_ensemble_beats_a_fine_grid_and_tends_to_the_closed_form():
    gamma, sigma, k = np.meshgrid(
        [0.2, 0.5, 1.0, 2.0, 5.0], [0.05, 0.5, 1.0, 3.0], [1, 2, 10, 1000], indexing="ij"
    )
    alpha = theory.optimal_alpha(gamma, sigma, k=k, eta=0.9)
    top = np.minimum(1, 0.9 / gamma)
    assert np.all((alpha >= 0) & (alpha <= top))
    best = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=0.9)
    for fraction in np.linspace(0, 1, 997):
        assert np.all(
            best <= theory.limiting_risk(fraction * top, gamma, sigma, k=k, eta=0.9) + 1e-12
        )
    # a search over [0, 1 / gamma], as in the authors' code, leaves [0, 1]
    assert theory.optimal_alpha(0.5, 0.1, k=1) <= 1
    many, limit = (
        theory.optimal_alpha(2.0, [0.3, 1.0], k=1e9),
        theory.optimal_alpha(2.0, [0.3, 1.0]),
    )
    np.testing.assert_allclose(many, limit, atol=1e-6)
    assert theory.optimal_alpha(2.0, 0.1, eta=0.5) == 0.25  # the peak: alpha_* is beyond it


def test_both_sides_of_the_peak():
    gamma, eta, sigma, alpha = 1.7, 0.7, 0.6, np.linspace(0.02, 0.98, 25)
    for k in (1, 5, np.inf):
        how = {"k": k, "eta": eta}
        total = theory.limiting_bias(alpha, gamma, **how) + theory.limiting_variance(
            alpha, gamma, sigma, **how
        )
        np.testing.assert_allclose(
            total, theory.limiting_risk(alpha, gamma, sigma, **how), rtol=1e-13
        )
    peak = eta / gamma
    assert theory.limiting_risk(peak, gamma, sigma, k=10, eta=eta) == np.inf
    near = theory.limiting_risk(peak + np.array([-1e-9, 0, 1e-9]), gamma, sigma, eta=eta)
    np.testing.assert_allclose(near, near[1], atol=1e-8)
    assert np.isfinite(theory.limiting_variance(peak, gamma, sigma, eta=eta))
    assert theory.limiting_variance(peak, gamma, 0.0, k=3, eta=eta) == 0
    for gamma in (0.5, 2.0):  # identical members do not depend on k
        risk = theory.limiting_risk(1.0, gamma, 0.8, k=np.array([1, 3, np.inf]))
        np.testing.assert_allclose(risk, risk[0], rtol=1e-13)
    risk = theory.limiting_risk(
        np.array([0.3, 0.6, 1.0]), 2.0, 0.5, eta=0.5
    )  # nor pairs of interpolators on alpha
    np.testing.assert_allclose(risk, theory.limiting_risk(0.25, 2.0, 0.5), rtol=1e-13)
    assert theory.limiting_variance(1.0, 2.0, 0.5, eta=0.5) == pytest.approx(
        0.5**2 * 0.5**2 / (2 - 0.5**2), rel=1e-13
    )


def test_scaled_risk_is_a_parabola_with_its_minimum_at_optimal_mu():
    for k, eta, alpha in [(np.inf, 1.0, 0.2), (3, 0.8, 0.3), (5, 0.4, 0.9)]:
        mu = theory.optimal_mu(alpha, 1.2, 0.9, k=k, eta=eta)
        best = theory.optimally_scaled_risk(alpha, 1.2, 0.9, k=k, eta=eta)
        around = theory.limiting_risk(
            alpha, 1.2, 0.9, k=k, eta=eta, mu=mu + np.array([-0.1, 0, 0.1])
        )
        assert around[1] == pytest.approx(best, abs=1e-12)
        assert around[0] == pytest.approx(around[2], abs=1e-12) and around[0] > best
    assert theory.limiting_risk(0.4, 1.0, 1.0, mu=0.0) == 1


def test_ridge_is_the_marchenko_pastur_integral_and_the_ensemble_along_the_whole_path():
    """Bias lam^2 E[1/(s+lam)^2], variance sigma^2 gamma E[s/(s+lam)^2], s the eigenvalues of X'X/n."""
    for gamma, lam in product([0.4, 2.5], [0.05, 1.0]):
        low, high = (1 - gamma**0.5) ** 2, (1 + gamma**0.5) ** 2

        def mean(f, gamma=gamma, low=low, high=high):
            inside = quad(
                lambda s: f(s) * np.sqrt((s - low) * (high - s)) / (2 * np.pi * gamma * s),
                low,
                high,
            )[0]
            return inside + max(0, 1 - 1 / gamma) * f(0.0)

        bias, variance = (
            mean(lambda s, lam=lam: (s + lam) ** -2),
            mean(lambda s, lam=lam: s / (s + lam) ** 2),
        )
        with case(gamma, lam):
            expected = lam**2 * bias + 0.7**2 * gamma * variance
            assert theory.ridge_risk(lam, gamma, 0.7) == pytest.approx(expected, rel=1e-6)
    lam = np.geomspace(1e-4, 100, 41)
    for gamma in (0.3, 1.0, 3.0):
        alpha = theory.alpha_from_penalty(lam, gamma)
        np.testing.assert_allclose(theory.penalty_from_alpha(alpha, gamma), lam, rtol=1e-9)
        ridge = theory.ridge_risk(lam, gamma, 0.8)
        np.testing.assert_allclose(theory.limiting_risk(alpha, gamma, 0.8), ridge, rtol=1e-12)
    assert theory.ridge_risk(0.0, 2.0, 1.0) == pytest.approx(
        theory.limiting_risk(1.0, 2.0, 1.0), rel=1e-13
    )
    assert theory.ridge_risk(0.0, 1.0, 1.0) == np.inf
    assert theory.alpha_from_penalty(0.0, [0.5, 2.0]).tolist() == [1.0, 0.5]


def test_required_members_is_the_smallest_sufficient_number():
    gamma, sigma = np.array([0.2, 0.9, 1.5]), np.array([0.3, 1.0, 2.0])
    alpha = theory.optimal_alpha(gamma, sigma)
    for eta in (0.7, 1.0):
        k = theory.required_members(gamma, sigma, excess=0.02, eta=eta)
        large = theory.limiting_risk(alpha, gamma, sigma, eta=eta)
        assert np.all(
            theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta) <= 1.02 * large * (1 + 1e-9)
        )
        enough = (
            theory.limiting_risk(alpha, gamma, sigma, k=np.maximum(k - 1, 1), eta=eta)
            <= 1.02 * large
        )
        assert not np.any(enough & (k > 1))
    # balanced: at alpha_* = 1/B or 1 - 1/B the blocks fill the columns; sigma is chosen to put it
    # there
    p, k = 400_000, 100
    for gamma, alpha in [(1.0, 0.25), (1.0, 0.75), (0.5, 0.25), (0.5, 0.75), (2.0, 0.25)]:
        sigma = np.sqrt((1 - alpha) * (1 - alpha * gamma) / (alpha * gamma))
        risks = theory.expected_risk(
            p / gamma, p, alpha * p, sigma, k=[k, np.inf], design="balanced"
        )
        predicted = theory.required_members(gamma, sigma, excess=1e-6, design="balanced") * 1e-6 / k
        with case(gamma, alpha):
            assert risks[0] / risks[1] - 1 == pytest.approx(predicted, rel=1e-3)


def test_scalars_give_scalars_and_arrays_broadcast():
    assert isinstance(theory.limiting_risk(0.5, 0.5, 1.0), float)
    assert theory.limiting_risk(
        np.ones((3, 1)) / 2, np.ones(4), 1.0, k=np.ones((2, 1, 1))
    ).shape == (2, 3, 4)
    assert theory.optimal_alpha(np.ones(4), 1.0, k=np.array([[2], [3]])).shape == (2, 4)


# Finite samples: every subset enumerated


def ensemble_value(n, p, members, sigma):
    """Risk of given members, averaged over the position of a unit signal (all rows in use)."""
    total = 0.0
    for first, second in product(map(set, members), repeat=2):
        shared, outside = len(first & second), p - len(first | second)
        inflation = shared / (n - shared - 1)
        total += outside / p * (1 + inflation) + sigma**2 * inflation
    return total / len(members) ** 2


def test_fixed_sizes():
    for p, m in [(5, 2), (6, 3), (5, 4), (4, 4), (6, 1)]:
        every = list(combinations(range(p), m))
        expected = np.mean([ensemble_value(9, p, pair, 0.8) for pair in product(every, every)])
        with case(p, m):
            assert theory.expected_risk(9, p, m, 0.8, k=2) == pytest.approx(expected, abs=1e-12)


def test_balanced_groups_with_partial_last_group():
    """Every permutation for each group of the design, blocks or complements cut as the estimator
    cuts them.
    """
    for p, m, k in [(5, 2, 3), (5, 2, 2), (6, 2, 3), (5, 4, 3), (5, 3, 2), (6, 2, 2), (4, 1, 4)]:
        block = min(m, p - m)
        group = p // block
        values = []
        for orders in product(permutations(range(p)), repeat=-(-k // group)):
            blocks = [order[b * block : (b + 1) * block] for order in orders for b in range(group)][
                :k
            ]
            members = blocks if m == block else [set(range(p)) - set(b) for b in blocks]
            values.append(ensemble_value(8, p, members, 1.3))
        with case(p, m, k):
            result = theory.expected_risk(8, p, m, 1.3, k=k, design="balanced")
            assert result == pytest.approx(np.mean(values), abs=1e-12)


def accepted_subsets(p, alpha, most):
    """Subsets of coin flips that are kept, and their probabilities."""
    every = [set(s) for size in range(min(p, most) + 1) for s in combinations(range(p), size)]
    weights = np.array([alpha ** len(s) * (1 - alpha) ** (p - len(s)) for s in every])
    return every, weights / weights.sum()


def test_coin_flips_with_and_without_rejection():
    p = 5
    for n, alpha in product([5, 6, 30], [0.3, 0.5, 0.8]):
        kept = list(zip(*accepted_subsets(p, alpha, n - 2), strict=True))
        expected = sum(
            wi * wj * ensemble_value(n, p, (i, j), 0.9) for (i, wi), (j, wj) in product(kept, kept)
        )
        with case(n, alpha):
            result = theory.expected_risk(n, p, alpha * p, 0.9, k=2, sampling="bernoulli")
            assert result == pytest.approx(expected, abs=1e-12)


def test_coin_flip_rows_of_one_member():
    """Every number of rows and of columns, accepted together."""
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
    cells = [
        both,
        chance - both,
        chance - both,
        1 - 2 * chance + both,
    ]  # in both, first only, second only, neither
    for kinds in product(range(4), repeat=n_items):
        first = {j for j, kind in enumerate(kinds) if kind in (0, 1)}
        second = {j for j, kind in enumerate(kinds) if kind in (0, 2)}
        yield first, second, np.prod([cells[kind] for kind in kinds])


def test_pairs_with_coin_flip_rows():
    """Every pair of column and row subsets, of four kinds of groups: both kept, or one of them
    drawn again.
    """
    n, p = 5, 2
    slopes = (
        1 / 7,
        1 / 3,
    )  # v = slope * a stands for the inflation: independent rows, rows of one group

    def value(first, second, slope):
        v = slope * len(first & second)
        return np.array([(p - len(first | second)) / p * (1 + v), v])

    for alpha, eta in [(0.3, 0.7), (0.5, 0.5), (0.8, 0.6), (0.4, 0.4)]:
        fresh = {}
        for (columns, _, w), (rows, _, u) in product(
            drawn_together(p, alpha, False), drawn_together(n, eta, False)
        ):
            if len(columns) <= len(rows) - 2:
                fresh[frozenset(columns)] = fresh.get(frozenset(columns), 0.0) + w * u
        accepted = sum(fresh.values())
        expected = []
        for row_group, column_group in product((False, True), repeat=2):
            row_pairs = list(drawn_together(n, eta, row_group))
            mean, total = np.zeros(2), 0.0
            for first, second, weight in drawn_together(p, alpha, column_group):
                enough = [
                    (len(first) <= len(t) - 2, len(second) <= len(u) - 2, w)
                    for t, u, w in row_pairs
                ]
                kept = weight * sum(w for i, j, w in enough if i and j)
                mean += kept * value(first, second, slopes[row_group])
                total += kept
                for survivor, wanted in ((first, (True, False)), (second, (False, True))):
                    once = weight * sum(w for i, j, w in enough if (i, j) == wanted)
                    mean += (
                        once
                        * sum(w * value(survivor, s, slopes[0]) for s, w in fresh.items())
                        / accepted
                    )
                    total += once
            expected.append(mean / total)
        found = _coin_rows.pair_terms(
            n, p, alpha, eta, inflations=[lambda a, slope=slope: slope * a for slope in slopes]
        )
        with case(alpha, eta):
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_replaced_members_of_a_balanced_pair():
    """Under heavy rejection: kept pairs, and pairs of which one was replaced by independent flips."""
    p = 5
    for alpha, most in product([0.3, 0.5, 0.7], [2, 3, 4]):
        fresh, fresh_weight = accepted_subsets(p, alpha, most)
        mean, total = np.zeros(2), 0.0
        for first, second, weight in drawn_together(p, alpha, True):
            kept = [s for s in (first, second) if len(s) <= most]
            if len(kept) == 2:
                mean += weight * np.array([len(first & second), p - len(first | second)])
            elif kept:
                mean += weight * (
                    fresh_weight @ [(len(kept[0] & s), p - len(kept[0] | s)) for s in fresh]
                )
            total += weight * (len(kept) > 0)
        with case(alpha, most):
            _, same = finite._coin_overlaps(p, alpha, most, "balanced")
            assert same[1].sum() == pytest.approx(1, abs=1e-12)
            np.testing.assert_allclose(
                [same[1] @ same[0], same[1] @ same[2]], mean / total, atol=1e-12
            )


def test_balanced_coin_flips():
    """Members 0 and 1 of a group: each column's category from the cut points of its uniform number."""
    n, p = 30, 4
    for alpha in (0.3, 0.5, 0.75, 0.8):
        group = int(1 / min(alpha, 1 - alpha) + 1e-9)
        cuts = np.unique(
            np.concatenate([[0, 1], [(c - b / group) % 1 for b in (0, 1) for c in (0, alpha)]])
        )
        middle, length = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
        inside = [(u % 1 < alpha, (u + 1 / group) % 1 < alpha) for u in middle]
        expected = 0.0
        for cells in product(range(len(middle)), repeat=p):
            members = [[j for j, c in enumerate(cells) if inside[c][b]] for b in (0, 1)]
            expected += np.prod(length[list(cells)]) * ensemble_value(n, p, members, 0.9)
        with case(alpha):
            result = theory.expected_risk(
                n, p, alpha * p, 0.9, k=2, sampling="bernoulli", design="balanced"
            )
            assert result == pytest.approx(expected, abs=1e-12)


# Finite samples: identities


def test_fewer_terms_agree_with_the_exact_sum(monkeypatch):
    """Two values for the overlap of given sizes instead of all; every third number of columns
    instead of all.
    """
    for name, few, n, p in [("MAX_TERMS", 0, 70, 60), ("MAX_SIZES", 100, 600, 500)]:
        inflations = [lambda a, n=n: a / (n - a), lambda a, n=n: a / (2 * n - a)]
        for alpha, eta in [(0.3, 0.4), (0.5, 0.6), (0.7, 0.8)]:
            exact = _coin_rows.pair_terms(n, p, alpha, eta, inflations=inflations)
            with monkeypatch.context() as patch:
                patch.setattr(_coin_rows, name, few)
                fewer = _coin_rows.pair_terms(n, p, alpha, eta, inflations=inflations)
            with case(name, alpha):
                np.testing.assert_allclose(fewer, exact, rtol=2e-4, atol=1e-9)
    n, p, design = (
        762,
        1500,
        "balanced",
    )  # half of the subsets of 750 columns are rejected, and nothing else is
    inflation = lambda a: a / (n - a - 1)  # noqa: E731
    overlaps = finite._coin_overlaps(p, 0.5, n - 2, design)
    exact = [finite._average(p, pair, inflation(pair[0])) for pair in overlaps]
    np.testing.assert_allclose(
        _coin_rows.pair_terms(n, p, 0.5, 1.0, inflations=[inflation] * 2), exact * 2, rtol=1e-5
    )


def test_coin_flip_rows_leave_a_positive_risk_at_twice_the_scale():
    """-0.012 once: pairs were conditioned on the mean number of rows, members on their own.

    Simulated (200 000 ensembles drawn by `subsets.draw_members`, v simulated for each pair): bias
    0.3415, variance 0.1697, risk at mu = 2 without noise 0.192.
    """
    how = {"k": 6, "n_samples": 4, "sampling": "bernoulli", "design": "balanced"}
    assert theory.expected_bias(6, 2, 1, **how) == pytest.approx(0.3415, rel=0.005)
    assert theory.expected_variance(6, 2, 1, 1.0, **how) == pytest.approx(0.1697, rel=0.02)
    assert theory.expected_risk(6, 2, 1, 0.0, mu=2.0, **how) == pytest.approx(0.192, rel=0.02)


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
    how = {
        "k": np.array([1, 2, 3, 4, 6, 12, np.inf]),
        "n_samples": tau,
        "sampling": sampling,
        "design": design,
    }
    try:
        risk = theory.expected_risk(n, p, m, sigma, **how)
    except ValueError:
        return  # `test_theory_arguments` looks at the reasons
    shrinkage = finite._broadcast_terms(n, p, m, tau, sampling=sampling, design=design).shrinkage
    assert np.all(risk >= (1 - shrinkage) ** 2 - 1e-12)  # rejections below 1e-13 are not felt
    assert np.all(theory.expected_bias(n, p, m, **how) >= 0)
    assert np.all(theory.expected_variance(n, p, m, sigma, **how) >= 0)
    for mu in (-1.0, 0.0, 0.5, 2.0, 1 / max(float(shrinkage), 0.1)):
        assert np.all(theory.expected_risk(n, p, m, sigma, mu=mu, **how) >= 0)


def test_risk_is_bias_plus_variance_and_scales_with_the_signal():
    for design, sampling in product(finite.DESIGNS, finite.SAMPLINGS):
        how = {
            "k": np.array([1, 3, 8, np.inf]),
            "sampling": sampling,
            "design": design,
            "n_samples": 30,
        }
        bias = theory.expected_bias(40, 25, 6, beta_norm=2.0, **how)
        variance = theory.expected_variance(40, 25, 6, 0.7, **how)
        risk = theory.expected_risk(40, 25, 6, 0.7, beta_norm=2.0, **how)
        np.testing.assert_allclose(risk, bias + variance, rtol=1e-13)
        np.testing.assert_allclose(
            risk, 4 * theory.expected_risk(40, 25, 6, 0.35, **how), rtol=1e-13
        )
        np.testing.assert_allclose(
            theory.expected_risk(40, 25, 6, 0.7, beta_norm=2.0, mu=0.0, **how), 4.0
        )


def test_one_block_is_the_independent_design_and_that_is_linear_in_one_over_k():
    for k, m in [(1, 0), (4, 0), (np.inf, 0), (1, 10), (4, 10), (np.inf, 10), (1, 4), (np.inf, 4)]:
        plain, balanced = (
            theory.expected_risk(20, 10, m, 1.0, k=k, design=design) for design in finite.DESIGNS
        )
        assert balanced == pytest.approx(plain, abs=1e-12), (k, m)
    risk = theory.expected_risk(40, 30, 12, 0.6, k=np.array([1, 2, 5, np.inf]))
    np.testing.assert_allclose(
        risk, risk[-1] + (risk[0] - risk[-1]) * np.array([1, 0.5, 0.2, 0]), atol=1e-12
    )


def test_finite_tends_to_the_limit_like_one_over_n():
    k = np.array([1, 3, np.inf])
    for (alpha, gamma, eta), sampling in product(
        [(0.4, 0.8, 1.0), (0.3, 2.0, 0.9), (0.7, 0.5, 0.6)], finite.SAMPLINGS
    ):
        limit, gaps = theory.limiting_risk(alpha, gamma, 0.8, k=k, eta=eta), []
        for n in (10_000, 100_000):
            p = int(gamma * n)
            risk = theory.expected_risk(
                n, p, int(alpha * p), 0.8, k=k, n_samples=int(eta * n), sampling=sampling
            )
            gaps.append(np.abs(risk - limit))
        with case(alpha, gamma, eta, sampling):
            assert np.all(gaps[0] < 5e-3)
            np.testing.assert_allclose(gaps[1] * 10, gaps[0], rtol=0.02)


def test_shorter_sums_join_the_exact_ones(monkeypatch):
    """Around the threshold of rejection, and with every s-th term of a long smooth distribution."""
    p, both, one, most = 60, 0.16, 0.24, 54
    assert 1e-16 < 1 - _distributions.at_most(most, p, both + one) < 1e-13
    plain, _ = _distributions.coin_pair(p, both, one, most)
    monkeypatch.setattr(_distributions, "NEGLIGIBLE", -1.0)
    exact, accepted = _distributions.coin_pair(p, both, one, most)
    assert accepted == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(exact[1], plain[1], atol=1e-12)
    np.testing.assert_allclose(exact[1] * exact[2], plain[1] * plain[2], atol=1e-11)
    long = _distributions.binomial(2000, 0.1)
    for one in (
        long,
        *(_distributions.hypergeometric(*n) for n in ((5000, 3000, 3000), (300, 150, 150))),
    ):
        values, weights = _distributions.thin(*one)
        assert len(values) < 200
        for function in (lambda x: x / (1e4 - x), lambda x: x**2):
            assert weights @ function(values) == pytest.approx(one[1] @ function(one[0]), rel=1e-13)


def test_given_pairs_reduce_to_the_ensemble_and_the_best_size_is_the_best_of_all():
    rows = {"n_samples": 15, "shared_rows": 15}
    own = theory.overlap_bias(20, 6, 0.5, **rows) + theory.overlap_variance(20, 6, 1.0, **rows)
    assert theory.expected_risk(20, 12, 6, 1.0, k=1, n_samples=15) == pytest.approx(own, rel=1e-13)
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
        how = {"sampling": sampling, "design": design}
        with case(n, p, m, k, how):
            risk = sim.fitted_risk(
                rng, n, sim.unit_signal(p), 0.8, 400, n_estimators=k, max_features=m, **how
            )
            risk.check(theory.expected_risk(n, p, m, 0.8, k=k, **how))


def test_drawn_coin_flips_leave_out_as_many_columns_as_expected(seed):
    """The subsets that estimators draw, rows and columns accepted together: columns in neither of a
    pair, E|S|/p.
    """
    n, p, k, ensembles = 6, 4, 6, 1000
    for m, tau, design in [(1, 4, "balanced"), (3, 5, "balanced"), (2, 3, "independent")]:
        features, _ = subsets.draw_members(
            n,
            p,
            k * ensembles,
            seed=seed,
            max_features=m,
            max_samples=tau,
            sampling="bernoulli",
            design=design,
        )
        left_out = 1.0 - features.mask().reshape(ensembles, k, p)
        shrinkage = _coin_rows.member_terms(n, p, m / p, tau / n).shrinkage
        pairs = _coin_rows.pair_terms(n, p, m / p, tau / n, inflations=[np.zeros_like] * 2)
        terms = finite._broadcast_terms(n, p, m, tau, sampling="bernoulli", design=design)
        five = np.array([1 - shrinkage, *(bias for bias, _ in pairs)])
        with case(m, tau, design):
            sim.estimate(left_out.mean(axis=(1, 2))).check(1 - shrinkage)
            expected = finite._combine(five, terms, np.array(float(k)))
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
            assert risk == pytest.approx(
                theory.limiting_risk(alpha, gamma, 0.6, k=k, eta=eta), rel=1e-5
            )


def test_pairs_of_interpolators_are_the_general_ones_at_identity_covariance():
    """All columns, so that the overlap is the mean one: the bias exactly, the variance at large
    sizes.
    """
    for big, sigma, rel in ((1, 0.0, 1e-9), (20, 0.7, 2e-3)):
        n, p, tau = 25 * big, 30 * big, 8 * big
        signal = np.full(p, p**-0.5)
        rows = {"n": n, "rows_i": tau, "rows_j": tau, "shared_rows": 0}
        general = theory.pair_risk(np.ones(p), signal, np.arange(p), np.arange(p), sigma, **rows)
        # two of three disjoint folds of eight rows: of nine ordered pairs, three are of a member
        # with itself
        own, three = (
            theory.minimum_norm_risk(n, p, p, sigma, k=k, n_samples=tau, design="balanced")
            for k in (1, 3)
        )
        assert (9 * three - 3 * own) / 6 == pytest.approx(general, rel=rel)


def test_norm_scale_and_extremes_of_interpolators():
    how = {"k": 3, "n_samples": 20}
    plain = theory.minimum_norm_risk(40, 80, 60, 0.5, **how)
    assert theory.minimum_norm_risk(40, 80, 60, 1.0, beta_norm=2.0, **how) == pytest.approx(
        4 * plain, rel=1e-13
    )
    assert theory.minimum_norm_risk(40, 80, 60, 0.5, mu=0.0, **how) == 1
    noise = theory.minimum_norm_risk(40, 80, 60, 0.5, beta_norm=0.0, **how)
    signal = theory.minimum_norm_risk(40, 80, 60, 0.0, **how)
    assert plain == pytest.approx(noise + signal, rel=1e-13)
    scaled = theory.scaled_risk(plain, 20 / 80, 0.7)
    assert theory.minimum_norm_risk(40, 80, 60, 0.5, mu=0.7, **how) == pytest.approx(
        scaled, rel=1e-13
    )
    for design in finite.DESIGNS:  # all rows and columns make identical members
        risk = theory.minimum_norm_risk(
            50, 120, 120, 0.4, k=np.array([1, 5, np.inf]), n_samples=50, design=design
        )
        np.testing.assert_allclose(risk, risk[0], rtol=1e-13)
    risk = theory.minimum_norm_risk(100, 300, np.arange(100, 301, 20), 0.5, k=4, n_samples=60)
    assert np.all(np.diff(risk) < 0)  # the best finite ensemble uses all columns


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
        risk = sim.simulate(
            rng, n, sim.unit_signal(p), sigma, sim.independent(p, m, k), rows=rows, trials=trials
        )
        how = {"n_samples": tau, "design": design}
        with case(n, p, m, tau, k):
            risk.ensemble.check(theory.minimum_norm_risk(n, p, m, sigma, k=k, **how))
            risk.own.check(theory.minimum_norm_risk(n, p, m, sigma, k=1, **how))
