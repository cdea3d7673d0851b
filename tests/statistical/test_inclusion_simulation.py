"""Sparse signals and unequal probabilities at the sizes of docs/theory.md, by simulation; ``pytest -s`` prints all.

Tolerances are 4 standard errors of the simulation: a correct exact formula fails about once in 16 000 lines.
"""

import numpy as np
import pytest

import theory_simulation as sim
from olsen import theory

pytestmark = pytest.mark.statistical

N, P, SIGMA = 100, 150, 0.5


def ensemble_risk(rng, beta, probabilities, k, trials):
    how = {"n_estimators": k, "sampling": "bernoulli", "design": "independent"}
    return sim.fitted_risk(rng, N, beta, SIGMA, trials, max_features=probabilities, **how)


@pytest.fixture
def rng(seed):
    return np.random.default_rng([seed, 14])


@pytest.mark.parametrize("s", [1, 5, 20, 150])
def test_probabilities_for_a_known_signal(rng, s):
    beta, k = sim.sparse_signal(s, P), 20
    rules = {f"power {q}": theory.optimal_power_probabilities(1.0, beta, SIGMA, q, n=N, k=k) for q in (0, 1, 2)}
    rules["best"] = theory.optimal_probabilities(1.0, beta, SIGMA, n=N)
    for name, alpha in rules.items():
        expected = theory.expected_diagonal_risk(1.0, beta, alpha, SIGMA, n=N, k=k)
        ensemble_risk(rng, beta, alpha, k, trials=400).check(expected, f"{s} non-zero, {name}")


@pytest.mark.parametrize("s", [1, 5, 20, 150])
def test_the_ratio_of_independent_estimates(rng, s):
    beta, k, spread = sim.sparse_signal(s, P), 20, 0.09

    def chances(rng):
        squares = (beta + spread * rng.standard_normal(P)) ** 2
        return squares / (squares + spread**2)

    risk = ensemble_risk(rng, beta, chances, k, trials=600)
    expected = theory.estimated_probabilities_risk(1.0, beta, SIGMA, n=N, spread=spread, k=k, exact=True)
    risk.check(expected, f"{s} non-zero, ratio")


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("s", [5, 20, 150])
def test_powers_of_independent_estimates_brought_to_a_size(rng, s, q):
    """Every draw has a c of its own, which gives it the size: asymptotically the c of the formula.

    Not one coefficient, whose risk is all noise: there the formula is 1 % off, as much as the standard error.
    """
    beta, k, spread, size = sim.sparse_signal(s, P), 20, 0.09, 25.0

    def chances(rng):
        return theory.power_probabilities(1.0, beta + spread * rng.standard_normal(P), q, size)

    risk = ensemble_risk(rng, beta, chances, k, trials=600)
    how = {"n": N, "spread": spread, "k": k, "rule": "power", "q": q, "size": size, "exact": True}
    risk.check(theory.estimated_probabilities_risk(1.0, beta, SIGMA, **how), f"{s} non-zero, power {q}")


def test_correlations_with_residuals_of_an_independent_fit_have_the_stated_spread(rng):
    """v = R_tot / n' for the coefficient of an earlier fit plus the mean product of a column with its residuals."""
    beta, rows = sim.sparse_signal(20, P), 400
    first = beta + 0.4 * sim.unit_signal(P)  # any fit that saw other rows
    total = SIGMA**2 + 0.4**2
    squares = []
    for _ in range(1500):
        X = rng.standard_normal((rows, P))
        y = X @ beta + SIGMA * rng.standard_normal(rows)
        estimated = first + X.T @ (y - X @ first) / rows
        squares.append(np.mean((estimated - beta) ** 2))
    simulated = sim.estimate(squares)
    # exactly: the columns' own part of the error has the fourth moment of a normal variable
    simulated.check((total + 0.4**2 / P) / rows, "spread of one-step estimates")
