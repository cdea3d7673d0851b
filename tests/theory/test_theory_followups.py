"""Formulas of the papers that followed: penalties, paths, budgets, members that differ, new rows."""

from itertools import combinations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import theory_simulation as sim
from loops import case
from olsen import reference, theory

K = np.array([1, 4, np.inf])


# Members with a penalty, identity covariance


def test_a_member_with_a_penalty_is_the_pair_formula_on_equal_coefficients():
    """With equal coefficients the position of the columns does not matter, so that one member and
    the general formula agree to rounding.
    """
    n = 90
    p = 60
    beta = np.full(p, p**-0.5)
    for m, tau, penalty in [(20, 90, 5.0), (60, 45, 30.0), (60, 30, 0.0), (50, 60, 0.01)]:
        S = np.arange(m)
        rows = {"n": n, "rows_i": tau, "rows_j": tau, "shared_rows": tau}
        expected = theory.pair_risk(np.ones(p), beta, S, S, 0.8, **rows, penalty=penalty)
        if penalty == 0:
            limit = theory.pair_risk(np.ones(p), beta, S, S, 0.8, **rows, penalty=1e-12)
            assert expected == pytest.approx(limit, rel=1e-9)
        letters = {"alpha": m / p, "gamma": p / n, "eta": tau / n, "lam": penalty / n, "k": 1}
        with case(m, tau, penalty):
            assert theory.limiting_risk(sigma=0.8, **letters) == pytest.approx(expected, rel=1e-9)
            bias = theory.limiting_bias(**letters)
            variance = theory.limiting_variance(sigma=0.8, **letters)
            assert bias + variance == pytest.approx(expected, rel=1e-9)


def test_pairs_of_members_with_a_penalty_are_the_average_over_subsets(seed):
    n = 3000
    p = 80
    beta = sim.unit_signal(p, seed)
    options = {"n": n, "k": K, "eta": 0.02, "penalty": 12.0, "n_subsets": 400, "rng": seed}
    value, error = theory.covariance_risk(np.ones(p), beta, 0.5, 0.4, **options, return_std=True)
    expected = theory.limiting_risk(0.5, p / n, 0.4, k=K, eta=0.02, lam=12.0 / n)
    assert np.all(np.abs(value - expected) < 4 * error)


def test_simulated_members_with_a_penalty(seed):
    """Few trials on purpose, here and in the other simulations of limits: the limit differs from the
    value at this n and p by less than half a standard error.
    """
    rng = np.random.default_rng([seed, 10])
    for n, p, m, tau, lam, k, sigma in [
        (140, 100, 40, 140, 0.15, 3, 0.9),
        (110, 220, 120, 60, 0.08, 4, 0.6),
        (130, 90, 90, 50, 0.4, 2, 0.8),
    ]:
        simulated = sim.simulate(
            rng,
            n,
            sim.unit_signal(p, 4),
            sigma,
            sim.independent(p, m, k),
            rows=sim.independent(n, tau, k),
            fit=sim.ridge_members([lam * n] * k),
            trials=100,
        )
        letters = {"alpha": m / p, "gamma": p / n, "sigma": sigma, "eta": tau / n, "lam": lam}
        ks = [k, 1, np.inf]
        with case(n, p, m, tau, lam):
            for risk, expected in zip(
                simulated, theory.limiting_risk(**letters, k=ks), strict=True
            ):
                risk.check(expected, f"penalty {n, p, m, tau, lam}")


def test_a_vanishing_penalty_is_none_on_both_sides_of_the_peak():
    for alpha, eta in [(0.3, 1.0), (0.9, 0.4), (1.0, 0.3)]:
        letters = {"gamma": 1.3, "k": K, "eta": eta}
        plain = theory.limiting_risk(alpha, sigma=0.7, **letters)
        assert_allclose(theory.limiting_risk(alpha, sigma=0.7, **letters, lam=1e-12), plain, 1e-9)
    at_peak = theory.limiting_risk(0.5, 2.0, 0.7, k=K, lam=[[0.0], [1e-4], [0.1]])
    assert np.all(np.isinf(at_peak[0, :2])) and np.all(np.isfinite(at_peak[1:]))
    assert np.all(np.diff(at_peak[1:, 0]) < 0)


# Paths of equal risk


def test_the_risk_is_that_of_ridge_regression_along_both_paths():
    for gamma in (0.4, 1.0, 2.5):
        for lam in (0.05, 0.7, 3.0):
            delta = theory.alpha_from_penalty(lam, gamma)
            ridge = theory.ridge_risk(lam, gamma, 0.6)
            alphas = np.linspace(delta, 1, 5)
            etas = np.linspace(gamma * delta, 1, 5)
            columns = theory.column_path(lam, gamma, alphas)
            rows = theory.row_path(lam, gamma, etas)
            with case(gamma, lam):
                assert_allclose([columns[0], rows[0]], 0, atol=1e-12)
                assert_allclose([columns[-1], rows[-1]], lam, rtol=1e-12)
                risks = theory.limiting_risk(alphas, gamma, 0.6, lam=columns)
                assert_allclose(risks, ridge, rtol=1e-9)
                risks = theory.limiting_risk(1.0, gamma, 0.6, eta=etas, lam=rows)
                assert_allclose(risks, ridge, rtol=1e-9)
                assert_allclose(np.diff(columns, 2), 0, atol=1e-12)  # a straight line
                with pytest.raises(ValueError, match=f"alpha = delta = {delta:.6g}"):
                    theory.column_path(lam, gamma, 0.9 * delta)


def test_the_risk_is_that_of_ridge_regression_along_the_path_of_any_covariance():
    """For every number of rows down to the degrees of freedom, new rows of another covariance
    included; identity covariance is `row_path`.
    """
    n = 60
    p = 40
    Sigma = sim.spiked(p, rng=1) * np.outer(np.geomspace(1, 0.2, p), np.geomspace(1, 0.2, p))
    beta = sim.unit_signal(p, 5)
    eigenvalues = np.linalg.eigvalsh(Sigma)
    for penalty, test in [(2.0, None), (15.0, np.diag(np.arange(1.0, p + 1)))]:
        options = {"n": n, "Sigma_test": test}
        ridge = theory.ridge_covariance_risk(Sigma, beta, penalty, 0.6, **options)
        mu = theory.effective_penalty(eigenvalues, n, penalty)
        degrees = np.sum(eigenvalues / (eigenvalues + mu))
        rows = np.append(np.arange(np.ceil(degrees), n, 7), n)
        penalties = theory.covariance_row_path(eigenvalues, penalty, rows, n=n)
        with case(penalty):
            assert penalties[-1] == pytest.approx(penalty, rel=1e-12)
            for tau, of_member in zip(rows, penalties, strict=True):
                risk = theory.covariance_risk(
                    Sigma, beta, 1.0, 0.6, eta=tau / n, penalty=of_member, **options
                )
                assert risk == pytest.approx(ridge, rel=1e-9)
            end = theory.covariance_row_path(eigenvalues, penalty, degrees, n=n)
            assert end == pytest.approx(0, abs=1e-9)
            with pytest.raises(ValueError, match=f"degrees of freedom, {degrees:.6g}"):
                theory.covariance_row_path(eigenvalues, penalty, 0.99 * degrees, n=n)
    lam = np.array([[0.1], [2.0]])
    etas = np.array([0.9, 0.97, 1.0])
    path = theory.covariance_row_path(np.ones(p), lam * n, etas * n, n=n)
    assert_allclose(path / n, theory.row_path(lam, p / n, etas), rtol=1e-9)
    with_constant = theory.covariance_row_path(np.append(np.ones(p), 0), 6.0, 50, n=n)
    assert with_constant == pytest.approx(theory.covariance_row_path(np.ones(p), 6.0, 50, n=n))


# Budgets


@pytest.mark.parametrize("design", ["independent", "balanced"])
@pytest.mark.parametrize("of", ["parameters", "operations"])
def test_the_best_shape_is_the_best_of_all_shapes(design, of):
    n = 40
    p = 25
    budget = 70 if of == "parameters" else n * p**2 + 3000
    sigmas = np.array([[0.1, 0.5], [1.0, 3.0]])
    shape = theory.optimal_shape(n, p, sigmas, budget=budget, of=of, design=design)
    for index, sigma in np.ndenumerate(sigmas):
        risks = {}
        for m in range(1, p + 1):
            k = 0
            while ((k + 1) * m if of == "parameters" else n * p**2 + (k + 1) * m**3 / 3) <= budget:
                k += 1
            if k:
                risks[m] = theory.expected_risk(n, p, m, sigma, k=k, design=design), k
        best = min(risks, key=risks.get)
        with case(sigma):
            assert shape.n_features[index] == best
            assert (shape.risk[index], shape.k[index]) == risks[best]
    assert shape.k[1, 1] > shape.k[0, 0]


# Members that differ


def test_pairs_of_different_sizes_by_enumeration():
    n = 14
    p = 6
    sigma = 0.8
    sizes = [2, 5, 2, 3]
    risks = theory.expected_pair_risks(n, p, sizes, sigma)

    def risk(S_i, S_j):
        return reference.pair_bias(p, n, S_i, S_j) + reference.pair_variance(n, S_i, S_j, sigma)

    for (i, m), (j, other_m) in product(enumerate(sizes), repeat=2):
        subsets = list(combinations(range(p), m))
        pairs = (
            zip(subsets, subsets, strict=True)
            if i == j
            else product(subsets, combinations(range(p), other_m))
        )
        with case(i, j):
            assert risks[i, j] == pytest.approx(np.mean([risk(*pair) for pair in pairs]), rel=1e-12)
    assert theory.expected_pair_risks(n, p, [2] * 5, sigma).mean() == pytest.approx(
        theory.expected_risk(n, p, 2, sigma, k=5), rel=1e-12
    )


def test_limits_of_different_members_are_the_pair_formula_at_the_mean_overlap():
    """With equal coefficients, and an overlap that is the mean of random columns, the general
    formula and the limit are the same number.
    """
    p = 60
    n = 90
    columns = [np.arange(30), np.arange(20, 40), np.r_[10:20, 30:36, 44:60:4]]
    sizes = np.array([30, 20, 20])
    overlaps = [len(np.intersect1d(*columns[:2])), len(np.intersect1d(*columns[::2]))]
    assert overlaps == [10, 10]  # m_i m_j / p
    rows = np.array([90, 30, 60])
    penalty = np.array([3.0, 20.0, 0.5])
    options = {"n": n, "rows": rows, "penalty": penalty}
    risks = theory.pair_risks(np.ones(p), np.full(p, p**-0.5), columns, 0.7, **options)
    limit = theory.limiting_pair_risks(sizes / p, p / n, 0.7, eta=rows / n, lam=penalty / n)
    assert_allclose(limit[0], risks[0], rtol=1e-9)
    assert_allclose(np.diag(limit), np.diag(risks), rtol=1e-9)
    same = theory.limiting_pair_risks([0.4] * 7, 1.2, 0.7, lam=0.3)
    assert same.mean() == pytest.approx(theory.limiting_risk(0.4, 1.2, 0.7, k=7, lam=0.3))


def test_simulated_members_of_random_columns_that_differ(seed):
    """Sizes, rows and penalties by member, with the best weights and with others."""
    rng = np.random.default_rng([seed, 11])
    n = 150
    p = 110
    sizes = [30, 60, 90]
    tau = [150, 110, 130]
    penalty = [0.0, 12.0, 50.0]
    risks = theory.limiting_pair_risks(
        np.array(sizes) / p, p / n, 0.7, eta=np.array(tau) / n, lam=np.array(penalty) / n
    )
    for weights in (theory.best_weights(risks), np.array([0.5, -0.3, 0.8])):
        simulated = sim.simulate(
            rng,
            n,
            sim.unit_signal(p, 6),
            0.7,
            lambda rng: [rng.permutation(p)[:size] for size in sizes],
            rows=lambda rng: [rng.permutation(n)[:size] for size in tau],
            weights=weights,
            fit=sim.ridge_members(penalty),
            trials=150,
        )
        with case(weights):
            simulated.ensemble.check(weights @ risks @ weights, "weights")
            simulated.member.check(np.diag(risks).mean(), "members")
            simulated.pair.check((risks.sum() - np.trace(risks)) / 6, "pairs")


def test_lists_of_members_are_their_pairs():
    Sigma = sim.ar1(8, 0.6)
    beta = sim.unit_signal(8)
    columns = [[0, 1, 2], [2, 3], np.arange(8) > 4]
    rows = [20, 15, 12]
    risks = theory.pair_risks(Sigma, beta, columns, 0.5, n=20, rows=rows, penalty=2.0)
    for i, j in product(range(3), repeat=2):
        shared = {"shared_rows": rows[i]} if i == j else {}
        options = {"n": 20, "rows_i": rows[i], "rows_j": rows[j], "penalty": 2.0, **shared}
        risk = theory.pair_risk(Sigma, beta, columns[i], columns[j], 0.5, **options)
        assert risks[i, j] == pytest.approx(risk, rel=1e-12)


def test_best_weights_are_a_minimum_with_and_without_signs():
    rng = np.random.default_rng(0)
    for k in (2, 5, 9):
        A = rng.standard_normal((k, k + 2)) + 1.5
        risks = A @ A.T
        plain = theory.best_weights(risks)
        signs = theory.best_weights(risks, nonnegative=True)
        with case(k):
            assert plain.sum() == pytest.approx(1) and signs.sum() == pytest.approx(1)
            lowest = 1 / np.linalg.inv(risks).sum()
            assert plain @ risks @ plain == pytest.approx(lowest, rel=1e-9)
            assert np.all(signs >= 0)
            searched = minimize(
                lambda w, risks=risks: w @ risks @ w,
                np.full(k, 1 / k),
                bounds=[(0, 1)] * k,
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
                tol=1e-14,
            )
            assert signs @ risks @ signs <= searched.fun * (1 + 1e-9)
            assert_allclose(signs, searched.x, atol=1e-4)
            noisy = theory.best_weights([risks, risks + 3.0])
            assert_allclose(noisy, [plain, plain], rtol=1e-7)
    units = np.diag([1.0, 1e8]) @ [[2.0, 0.5], [0.5, 1.0]] @ np.diag([1.0, 1e8])
    assert_allclose(theory.best_weights(units).sum(), 1)


def test_members_without_best_weights_are_named():
    alike = theory.pair_risks(np.eye(4), np.ones(4), [[0, 1], [2], [0, 1]], 1.0, n=20)
    with pytest.raises(ValueError, match=r"members \[0, 2\]"):
        theory.best_weights(alike)
    for wrong, words in [
        ([[1.0, 2.0], [2.0, 1.0]], "semidefinite"),
        ([[1.0, 0.2], [0.3, 1.0]], "symmetric"),
        ([[1.0, np.inf], [np.inf, 1.0]], "inf"),
        ([[0.0, 0.0], [0.0, 1.0]], "risk zero"),
        ([1.0, 2.0], "k x k"),
    ]:
        with case(words), pytest.raises(ValueError, match=words):
            theory.best_weights(wrong)
    with pytest.raises(ValueError, match="one entry for each of 2 members"):
        theory.pair_risks(np.eye(3), np.ones(3), [[0], [1]], 1.0, n=9, penalty=[1.0, 2.0, 3.0])


def test_simulated_members_that_differ_with_their_best_weights(seed):
    rng = np.random.default_rng([seed, 38])
    n = 50
    Sigma = sim.ar1(30, 0.5)
    beta = sim.unit_signal(30, 3)
    members = [np.arange(0, 6), np.arange(4, 24), np.arange(30)]
    tau = [50, 40, 50]
    penalty = [0.0, 5.0, 20.0]
    risks = theory.pair_risks(Sigma, beta, members, 0.6, n=n, rows=tau, penalty=penalty)
    weights = theory.best_weights(risks)
    simulated = sim.simulate(
        rng,
        n,
        beta,
        0.6,
        lambda _: members,
        rows=lambda rng: [rng.permutation(n)[:size] for size in tau],
        covariance=Sigma,
        weights=weights,
        fit=sim.ridge_members(penalty),
        trials=400,
    )
    simulated.ensemble.check(weights @ risks @ weights, "best weights")
    simulated.member.check(np.diag(risks).mean(), "members")


# New rows of another covariance


def test_one_member_on_new_rows_is_exact():
    """The error's covariance is (sigma^2 + unexplained) times a mean inverse Wishart matrix."""
    Sigma = sim.ar1(6, 0.7)
    test = sim.equicorrelated(6, 0.2) * np.outer(np.arange(1, 7), np.arange(1, 7))
    beta = np.array([1.0, -1, 2, 0.5, 0, 3])
    S = np.array([0, 2, 5])
    inverse = np.linalg.inv(Sigma[np.ix_(S, S)])
    error = beta.copy()
    error[S] -= inverse @ Sigma[S] @ beta
    spread = (0.6**2 + error @ Sigma @ error) * inverse / (12 - 3 - 1)
    expected = error @ test @ error + np.sum(spread * test[np.ix_(S, S)])
    rows = {"n": 20, "rows_i": 12, "rows_j": 12, "shared_rows": 12}
    risk = theory.pair_risk(Sigma, beta, S, S, 0.6, **rows, Sigma_test=test)
    assert risk == pytest.approx(expected, rel=1e-12)


def test_risks_are_linear_in_the_covariance_of_new_rows():
    p = 12
    Sigma = sim.ar1(p, 0.7)
    beta = sim.unit_signal(p)
    tests = [Sigma, sim.equicorrelated(p, 0.4), np.diag(np.arange(1.0, p + 1))]
    average = {"n": 30, "n_subsets": 20, "rng": 0, "k": K, "eta": 0.8}
    functions = [
        lambda **new: theory.pair_risk(
            Sigma, beta, [0, 2, 4], [1, 2, 5], 0.5, n=20, rows_j=15, **new
        ),
        lambda **new: theory.pair_risks(Sigma, beta, [[0, 1], [3, 4]], 0.5, n=20, **new),
        lambda **new: theory.covariance_risk(Sigma, beta, 0.4, 0.5, **average, **new),
        lambda **new: theory.covariance_risk(Sigma, beta, 1.0, 0.5, **average, penalty=1.0, **new),
        lambda **new: theory.ridge_covariance_risk(Sigma, beta, 3.0, 0.5, n=20, **new),
    ]
    for number, function in enumerate(functions):
        with case(number):
            parts = [function(Sigma_test=test) for test in tests]
            assert_allclose(parts[0], function(), rtol=1e-12)
            whole = function(Sigma_test=2 * tests[0] + tests[1] + 0.3 * tests[2])
            assert_allclose(whole, 2 * parts[0] + parts[1] + 0.3 * parts[2], rtol=1e-9)


def test_simulated_pairs_on_new_rows(seed):
    """Least squares on uncorrelated new rows, and ridge members on new rows along one direction."""
    rng = np.random.default_rng([seed, 12])
    p = 20
    Sigma = sim.ar1(p, 0.6)
    beta = sim.unit_signal(p, 2)
    direction = np.linspace(-1, 1, p)
    for test, penalty in [(np.eye(p), 0.0), (np.outer(direction, direction), 8.0)]:
        members = [np.arange(0, 20, 2), np.arange(1, 20, 2)]
        simulated = sim.simulate(
            rng,
            60,
            beta,
            0.7,
            lambda _, members=members: members,
            covariance=Sigma,
            test_covariance=test,
            fit=sim.ridge_members([penalty, penalty]),
            trials=1000,
        )
        options = {"n": 60, "penalty": penalty, "Sigma_test": test}
        risks = theory.pair_risks(Sigma, beta, members, 0.7, **options)
        with case(penalty):
            simulated.ensemble.check(risks.mean(), "ensemble")
            simulated.pair.check(risks[0, 1], "pair")


def test_simulated_random_columns_on_new_rows(seed):
    """The error of the mean over subsets in theory counts, too."""
    rng = np.random.default_rng([seed, 13])
    n = 110
    p = 70
    k = 4
    Sigma = sim.spiked(p, rng=3)
    test = np.diag(np.linspace(2.5, 0.3, p)) + 0.2
    beta = sim.unit_signal(p, 7)
    for m, tau, penalty in [(28, 110, 0.0), (50, 80, 9.0)]:
        simulated = sim.simulate(
            rng,
            n,
            beta,
            0.8,
            sim.independent(p, m, k),
            rows=sim.independent(n, tau, k),
            covariance=Sigma,
            test_covariance=test,
            fit=sim.ridge_members([penalty] * k),
            trials=150,
        )
        options = {"n": n, "eta": tau / n, "penalty": penalty, "Sigma_test": test, "rng": seed}
        risks, errors = theory.covariance_risk(
            Sigma, beta, m / p, 0.8, k=[k, 1, np.inf], n_subsets=300, return_std=True, **options
        )
        with case(m, tau, penalty):
            for risk, expected, error in zip(simulated, risks, errors, strict=True):
                both = sim.Estimate(risk.mean, float(np.hypot(risk.standard_error, error)))
                both.check(expected, f"new rows {m, tau, penalty}")


# All columns


def test_simulated_members_on_all_columns(seed):
    """With and without new rows of another covariance; one member on all rows is ridge regression,
    and members without penalty on few rows have minimum norm.
    """
    rng = np.random.default_rng([seed, 14])
    n = 120
    p = 90
    Sigma = sim.ar1(p, 0.5)
    beta = sim.unit_signal(p, 8)
    other = np.diag(np.linspace(0.2, 3, p))
    for tau, penalty, k, test in [
        (72, 7.0, 4, None),
        (72, 7.0, 4, other),
        (40, 0.0, 3, other),
        (120, 15.0, 1, other),
    ]:
        simulated = sim.simulate(
            rng,
            n,
            beta,
            0.9,
            lambda _, k=k: [np.arange(p)] * k,
            rows=sim.independent(n, tau, k),
            covariance=Sigma,
            test_covariance=test,
            fit=sim.ridge_members([penalty] * k) if penalty else sim.fit_members,
            trials=100,
        )
        options = {"n": n, "Sigma_test": test}
        expected = theory.covariance_risk(
            Sigma, beta, 1.0, 0.9, k=k, eta=tau / n, penalty=penalty, **options
        )
        with case(tau, penalty, k, test is None):
            simulated.ensemble.check(expected, f"all columns {tau, penalty, k, test is None}")
            if k == 1:
                ridge = theory.ridge_covariance_risk(Sigma, beta, penalty, 0.9, **options)
                simulated.ensemble.check(ridge, "ridge regression")


def test_members_on_all_columns_are_not_drawn():
    Sigma = sim.ar1(15, 0.5)
    beta = sim.unit_signal(15)
    for penalty, eta in [(0.0, 0.8), (0.0, 0.2), (4.0, 0.5)]:
        options = {"n": 50, "eta": eta, "penalty": penalty, "return_std": True}
        risk, error = theory.covariance_risk(Sigma, beta, 1.0, 0.5, k=K, **options)
        tau = round(50 * eta)
        everything = [np.arange(15)] * 2
        pairs = theory.pair_risks(Sigma, beta, everything, 0.5, n=50, rows=tau, penalty=penalty)
        with case(penalty, eta):
            assert_allclose(error, 0)
            assert_allclose(risk, pairs[0, 1] + (pairs[0, 0] - pairs[0, 1]) / K, rtol=1e-12)
    ridge = theory.ridge_covariance_risk(Sigma, beta, 4.0, 0.5, n=50)
    options = {"n": 50, "k": 1, "penalty": 4.0}
    assert_allclose(theory.covariance_risk(Sigma, beta, np.ones(15), 0.5, **options), ridge)
