"""Penalty and subset size on given data: equations to rounding, enumeration, and a sampled
ensemble.
"""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

import theory_simulation as sim
from loops import case
from olsen import equivalence


def problem(n, p, kind="iid", seed=0):
    X = np.random.default_rng(seed).standard_normal((n, p))
    if kind == "ar":
        X = X @ np.linalg.cholesky(sim.ar1(p, 0.8)).T
    return X * np.geomspace(1, 50, p) if kind == "scaled" else X


def leverage(X, penalty):
    G = X.T @ X
    return np.diag(np.linalg.solve((G + np.diag(np.broadcast_to(penalty, len(G)))).T, G).T)


def test_penalty_satisfies_its_equations(monkeypatch):
    monkeypatch.setattr(equivalence, "MAX_NEWTON_STEPS", 9)  # more are an error
    for kind, (n, p, m) in product(
        ["iid", "ar", "scaled"], [(60, 20, 8), (60, 20, 19), (30, 50, 12), (30, 50, 27)]
    ):
        X = problem(n, p, kind)
        penalty = equivalence.ridge_penalty(X, m)
        with case(kind, n, p, m):
            assert_allclose(leverage(X - X.mean(axis=0), penalty), m / p, atol=1e-9)
            assert_allclose(equivalence.inclusion_probabilities(X, penalty), m / p, atol=1e-9)
    with threadpool_limits(1):
        assert equivalence.ridge_penalty(problem(1200, 1000, "ar"), 300).min() > 0
    wide = problem(40, 300, "ar")
    monkeypatch.setattr(equivalence, "MAX_NEWTON_STEPS", 1)
    with pytest.raises(ValueError, match="1 Newton steps"):
        equivalence.ridge_penalty(wide, 20)


def test_counts_fractions_and_probabilities_agree():
    X = problem(40, 10)
    penalty = equivalence.ridge_penalty(X, 4)
    assert_allclose(equivalence.ridge_penalty(X, 0.4), penalty, rtol=1e-9)
    assert_allclose(equivalence.ridge_penalty(X, np.full(10, 0.4)), penalty, rtol=1e-9)
    alpha = np.linspace(0.1, 0.9, 10)
    scale = np.geomspace(1e-3, 1e3, 10)
    assert_allclose(
        leverage(X, equivalence.ridge_penalty(X, alpha, center=False)), alpha, atol=1e-9
    )
    assert_allclose(equivalence.ridge_penalty(X * scale, 4), penalty * scale**2, rtol=1e-7)


def test_probabilities_are_the_ridge_leverages_on_both_sides():
    for n, p, penalty in [(40, 10, 3.0), (10, 40, 3.0), (40, 10, np.geomspace(0.1, 10, 10))]:
        X = problem(n, p)
        probabilities = equivalence.inclusion_probabilities(X, penalty, center=False)
        assert_allclose(probabilities, leverage(X, penalty), atol=1e-12)


def test_isotropic_penalty_has_the_degrees_of_freedom():
    for n, p, m in [(40, 10, 4), (15, 30, 6)]:
        X = problem(n, p, "ar")
        penalty = equivalence.isotropic_penalty(X, m)
        assert equivalence.inclusion_probabilities(X, penalty).sum() == pytest.approx(m, rel=1e-9)


def test_large_uniform_ensemble_is_close_to_this_ridge_and_further_from_none(seed):
    """iid columns: the fit with D is nearer to 3000 members than the isotropic one; both nearer
    than no penalty.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 20)) * np.geomspace(1, 10, 20)
    y = X @ sim.unit_signal(20) + rng.standard_normal(60)
    mean = sim.fit_members(X, y, [rng.permutation(20)[:8] for _ in range(3000)]).mean(axis=0)
    G = X.T @ X
    c = X.T @ y

    def distance(penalty):
        fit = X @ (np.linalg.solve(G + np.diag(np.broadcast_to(penalty, 20)), c) - mean)
        return np.linalg.norm(fit) / np.linalg.norm(X @ mean)

    matched_distance = distance(equivalence.ridge_penalty(X, 8, center=False))
    assert matched_distance < 0.1
    assert (
        matched_distance
        < distance(equivalence.isotropic_penalty(X, 8, center=False))
        < distance(0.0)
    )


def test_collinear_columns_are_named():
    X = problem(20, 5)
    X[:, 3] = X[:, 0] - 2 * X[:, 2]
    for call in (
        lambda: equivalence.ridge_penalty(X, 2),
        lambda: equivalence.inclusion_probabilities(X, 1.0),
    ):
        with pytest.raises(ValueError, match=r"exact linear combination") as error:
            call()
        named_columns = {
            int(word.strip("[],:"))
            for word in str(error.value).split()
            if word.strip("[],:").isdigit()
        }
        assert named_columns == {0, 2, 3}
    assert equivalence.inclusion_probabilities(X, 1.0, check_collinear=False).shape == (5,)
    wide = problem(10, 30)
    wide[:, 7] = 1 - 3 * wide[:, 2]
    with pytest.raises(
        ValueError, match=r"column 7 is an exact linear combination of columns \[2\]"
    ):
        equivalence.ridge_penalty(wide, 4)
    wide[:, 7] = 0.1
    with pytest.raises(ValueError, match=r"columns \[7\] are constant"):
        equivalence.ridge_penalty(wide, 4)


def test_guards():
    X = problem(20, 30)
    for call, words in [
        (lambda: equivalence.ridge_penalty(X, 19), "at most 19"),
        (lambda: equivalence.ridge_penalty(X, 30), "max_features must be a count"),
        (lambda: equivalence.inclusion_probabilities(X, 0.0), "penalty"),
        (lambda: equivalence.inclusion_probabilities(X, np.ones(4)), "30 columns"),
        (lambda: equivalence.inclusion_probabilities(np.ones(3), 1.0), "two-dimensional"),
        (lambda: equivalence.isotropic_penalty(X, 25), "the rank of X is 19"),
    ]:
        with case(words), pytest.raises(ValueError, match=words):
            call()
