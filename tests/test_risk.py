"""Simulated risk of fitted ensembles against the exact finite-sample value (identity covariance, unit signal)."""

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from olsen import OLSEnsembleRegressor
from olsen.subsets import group_size


def pair_risk(n, p, overlap, union_complement, sigma):
    """Expected product of the errors of two members: bias and variance of the paper's two lemmas in one."""
    return (union_complement / p * (n - 1) + sigma**2 * overlap) / (n - overlap - 1)


def exact_risk(n, p, m, k, sigma, sampling, design):
    """(1/k^2) of the sum over pairs: equal, of the same group, of different groups."""
    if sampling == "bernoulli":
        alpha = m / p
        sizes, overlaps = np.arange(n - 2 + 1), np.arange(min(p, n - 2) + 1)
        chance = binom.pmf(sizes, p, alpha)  # members with m > n - 2 are rejected; negligible at the sizes below
        own = np.sum(chance * pair_risk(n, p, sizes, p - sizes, sigma)) / chance.sum()
        other = _expect(binom.pmf(overlaps, p, alpha**2), overlaps, n, p, (1 - alpha) ** 2 / (1 - alpha**2), sigma)
        # coin flips of one group: disjoint up to one half, disjoint complements above
        both = binom.pmf(overlaps, p, max(0.0, 2 * alpha - 1))
        same = np.sum(both * pair_risk(n, p, overlaps, p * max(0.0, 1 - 2 * alpha), sigma))
    else:
        overlaps = np.arange(max(0, 2 * m - p), m + 1)
        own = pair_risk(n, p, m, p - m, sigma)
        other = np.sum(hypergeom.pmf(overlaps, p, m, m) * pair_risk(n, p, overlaps, p - 2 * m + overlaps, sigma))
        same = pair_risk(n, p, max(0, 2 * m - p), max(0, p - 2 * m), sigma)
    group = group_size(m / p) if design == "balanced" else 1
    full, rest = divmod(k, group)
    same_pairs = full * group * (group - 1) + rest * (rest - 1)
    return (k * own + same_pairs * same + (k * k - k - same_pairs) * other) / k**2


def _expect(chance, overlaps, n, p, outside, sigma):
    return np.sum(chance * pair_risk(n, p, overlaps, (p - overlaps) * outside, sigma))


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
@pytest.mark.parametrize("design", ["independent", "balanced"])
@pytest.mark.parametrize(("n", "p", "m", "k"), [(40, 24, 8, 7), (30, 40, 10, 4), (50, 20, 14, 5)])
def test_mean_risk_is_the_exact_one(n, p, m, k, design, sampling, seed):
    """Within 4 standard errors over 800 trials; fails a correct build about once in 16 000 seeds."""
    rng = np.random.default_rng(seed)
    sigma, risks = 0.8, []
    beta = rng.standard_normal(p)
    beta /= np.linalg.norm(beta)
    for _ in range(800):
        X = rng.standard_normal((n, p))
        model = OLSEnsembleRegressor(
            k, m, sampling=sampling, design=design, fit_intercept=False, random_state=int(rng.integers(2**31))
        )
        model.fit(X, X @ beta + sigma * rng.standard_normal(n))
        risks.append(np.sum((model.coef_ - beta) ** 2))
    expected = exact_risk(n, p, m, k, sigma, sampling, design)
    assert abs(np.mean(risks) - expected) < 4 * np.std(risks, ddof=1) / np.sqrt(len(risks))
