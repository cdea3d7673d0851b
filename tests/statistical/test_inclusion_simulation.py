"""Sparse signals and unequal probabilities at the sizes of docs/theory.md, by simulation; ``pytest
-s`` prints all.

Tolerances are 4 standard errors of the simulation: a correct exact formula fails about once in 16
000 lines.
"""

import numpy as np
import pytest

import theory_simulation as sim
from olsen import theory

pytestmark = pytest.mark.statistical

N = 100
P = 150
SIGMA = 0.5


def ensemble_risk(rng, beta, probabilities, k, trials):
    options = {"n_estimators": k, "sampling": "bernoulli", "design": "independent"}
    return sim.fitted_risk(rng, N, beta, SIGMA, trials, max_features=probabilities, **options)


@pytest.fixture
def rng(seed):
    return np.random.default_rng([seed, 14])


@pytest.mark.parametrize("s", [1, 5, 20, 150])
def test_probabilities_for_a_known_signal(rng, s):
    beta = sim.sparse_signal(s, P)
    k = 20
    rules = {"uniform": np.full(P, theory.optimal_alpha(P / N, SIGMA, k=k))}
    rules["best"] = theory.optimal_probabilities(1.0, beta, SIGMA, n=N)
    for name, alpha in rules.items():
        expected = theory.expected_diagonal_risk(1.0, beta, alpha, SIGMA, n=N, k=k)
        ensemble_risk(rng, beta, alpha, k, trials=400).check(expected, f"{s} non-zero, {name}")
