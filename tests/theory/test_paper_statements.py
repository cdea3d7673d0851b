"""Statements of the paper against simulation, enumeration and algebra.

`olsen.reference` fits the members: the paper's definitions in plain NumPy. Simulated means are within 4
standard errors of what they are compared with, at every n and p at which the statement is meant to
hold.
"""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import theory_simulation as sim
from loops import case
from olsen import DropoutRegressor, reference, theory

# Pairs of members: Lemmas 3.2 and 3.3


def unit_vector(rng, p):
    beta = rng.standard_normal(p)
    return beta / np.linalg.norm(beta)


def simulated_members(rng, n, columns, rows, *, sigma, p, trials):
    """Errors of members without noise, and their fits of the noise alone: (trials, k, p) each.

    The signal has norm one and a random direction.
    """
    errors = np.empty((trials, len(columns), p))
    fits_of_noise = np.empty((trials, len(columns), p))
    for trial in range(trials):
        beta = unit_vector(rng, p)
        X = rng.standard_normal((n, p))
        noise = sigma * rng.standard_normal(n)
        for i, (S, T) in enumerate(zip(columns, rows, strict=True)):
            errors[trial, i] = reference.member(X, X @ beta, S, T) - beta
            fits_of_noise[trial, i] = reference.member(X, noise, S, T)
    return errors, fits_of_noise


N = 16
P = 10
SIGMA = 0.8
COLUMNS = [np.arange(5), np.arange(3, 9), np.array([0, 3, 9])]


@pytest.fixture
def members(seed):
    """Errors and fits of the noise of three members on all rows."""
    rng = np.random.default_rng([seed, 32])
    rows = [np.arange(N)] * len(COLUMNS)
    return simulated_members(rng, N, COLUMNS, rows, sigma=SIGMA, p=P, trials=2000)


def pair_numbers(S_i, S_j):
    """Columns in both members, and the fraction of all columns that is in neither."""
    return len(np.intersect1d(S_i, S_j)), 1 - len(np.union1d(S_i, S_j)) / P


def test_simulated_pairs_have_the_bias_and_variance_of_the_lemmas(members):
    errors, fits_of_noise = members
    for i, j in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]:
        S_i = COLUMNS[i]
        S_j = COLUMNS[j]
        overlap, left_out = pair_numbers(S_i, S_j)
        bias = reference.pair_bias(P, N, S_i, S_j)
        variance = reference.pair_variance(N, S_i, S_j, SIGMA)
        simulated_bias = np.sum(errors[:, i] * errors[:, j], axis=1)
        simulated_variance = np.sum(fits_of_noise[:, i] * fits_of_noise[:, j], axis=1)
        with case(i, j):
            sim.estimate(simulated_bias).check(bias, f"bias {i, j}")
            sim.estimate(simulated_variance).check(variance, f"variance {i, j}")
            assert_allclose(theory.overlap_bias(N, overlap, left_out), bias, rtol=1e-12)
            assert_allclose(theory.overlap_variance(N, overlap, SIGMA), variance, rtol=1e-12)


def test_bias_and_variance_of_an_ensemble_are_the_means_over_pairs(members):
    """Equations (10) and (11); the mean runs over all k^2 pairs, a member with itself included."""
    errors, fits_of_noise = members
    pairs = [pair_numbers(S_i, S_j) for S_i in COLUMNS for S_j in COLUMNS]
    overlap, left_out = np.transpose(pairs)
    bias = theory.overlap_bias(N, overlap, left_out).mean()
    variance = theory.overlap_variance(N, overlap, SIGMA).mean()
    sim.estimate(np.sum(errors.mean(axis=1) ** 2, axis=1)).check(bias, "bias")
    sim.estimate(np.sum(fits_of_noise.mean(axis=1) ** 2, axis=1)).check(variance, "variance")


def test_parts_of_the_bias_of_a_pair(members):
    """Equation (54) is the part of the columns outside, (55) that of the columns inside, and the
    product of one inside and one outside is zero in the mean.
    """
    errors, _ = members
    inside = np.zeros_like(errors)
    for i, S in enumerate(COLUMNS):
        inside[:, i, S] = errors[:, i, S]
    outside = errors - inside
    for i, j in [(0, 0), (0, 1), (0, 2), (1, 2)]:
        overlap, left_out = pair_numbers(COLUMNS[i], COLUMNS[j])
        inflation = theory.overlap_bias(N, overlap, left_out) - left_out
        with case(i, j):
            sim.estimate(np.sum(outside[:, i] * outside[:, j], axis=1)).check(left_out, "(54)")
            sim.estimate(np.sum(inside[:, i] * inside[:, j], axis=1)).check(inflation, "(55)")
            if i != j:
                sim.estimate(np.sum(inside[:, i] * outside[:, j], axis=1)).check(0.0, "mixed")


def test_members_on_row_subsets_and_the_step_to_the_shared_columns(seed):
    """A member with itself is exact with row subsets; two members have in the mean the variance of
    two fits on their shared columns alone, equation (71).
    """
    rng = np.random.default_rng([seed, 71])
    rows = [np.arange(12), np.arange(4, 15)]
    columns = COLUMNS[:2]
    shared = np.intersect1d(*columns)
    errors, fits_of_noise = simulated_members(
        rng,
        N,
        [*columns, shared, shared],
        [*rows, *rows],
        sigma=SIGMA,
        p=P,
        trials=1500,
    )
    for i, (S, T) in enumerate(zip(columns, rows, strict=True)):
        own = {"n_samples": len(T), "shared_rows": len(T)}
        bias = theory.overlap_bias(N, len(S), 1 - len(S) / P, **own)
        variance = theory.overlap_variance(N, len(S), SIGMA, **own)
        with case(i):
            sim.estimate(np.sum(errors[:, i] ** 2, axis=1)).check(bias, "bias")
            sim.estimate(np.sum(fits_of_noise[:, i] ** 2, axis=1)).check(variance, "variance")
    of_members = np.sum(fits_of_noise[:, 0] * fits_of_noise[:, 1], axis=1)
    of_shared_columns = np.sum(fits_of_noise[:, 2] * fits_of_noise[:, 3], axis=1)
    sim.estimate(of_members - of_shared_columns).check(0.0, "(71)")


# Lemmas of the appendix


def largest_score(values):
    """The largest distance from zero of the means of all entries, in standard errors."""
    standard_errors = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return np.abs(values.mean(axis=0) / standard_errors).max()


def test_pseudo_inverses_of_submatrices_with_shared_columns(seed):
    """Lemma A.1: equations (44) and (45) entry by entry within 5.5 standard errors, (133) in every
    draw, and what the lemma is for, the variance of a pair. For n < p (44) is false.
    """
    rng = np.random.default_rng([seed, 44])
    n = 14
    p = 8
    s = 3
    X_S = rng.standard_normal((n, s))
    others = rng.standard_normal((2000, n, p - s))
    X = np.concatenate([np.broadcast_to(X_S, (2000, n, s)), others], axis=2)
    rows_of_S = np.linalg.pinv(X)[:, :s]
    assert largest_score(rows_of_S - np.linalg.pinv(X_S)) < 5.5
    products = np.swapaxes(others, 1, 2) @ np.tanh(X_S) @ rows_of_S
    assert largest_score(products) < 5.5

    first = others[0]
    residual_of_first = np.eye(n) - first @ np.linalg.pinv(first)
    residual_of_S = np.eye(n) - X_S @ np.linalg.pinv(X_S)
    D = np.linalg.inv(X_S.T @ residual_of_first @ X_S)
    by_blocks = np.linalg.pinv(X_S) + D @ X_S.T @ residual_of_first @ residual_of_S
    assert_allclose(rows_of_S[0], by_blocks, rtol=1e-9, atol=1e-12)

    shared = rng.standard_normal((4000, n, s))
    pair = [
        np.linalg.pinv(np.concatenate([shared, rng.standard_normal((4000, n, size))], axis=2))
        for size in (2, 5)
    ]
    products = np.sum(pair[0][:, :s] * pair[1][:, :s], axis=(1, 2))
    sim.estimate(products).check(theory.overlap_variance(n, s, 1.0), "variance of a pair")

    wide = np.concatenate(
        [np.broadcast_to(X_S[:5], (2000, 5, s)), rng.standard_normal((2000, 5, 9))], axis=2
    )
    assert largest_score(np.linalg.pinv(wide)[:, :s] - np.linalg.pinv(X_S[:5])) > 50


def test_means_over_row_subsets_are_least_squares_in_the_limit_only(seed):
    """Lemma A.2 over all row subsets of a matrix: both of its sides are products of the mean P of
    the padded pseudo-inverses, which is the pseudo-inverse only in the limit of many rows.

    P y is linear in y and unbiased, so that by the theorem of Gauss and Markov tr P P' is larger
    than tr (X'X)^-1. The excess falls with the number of rows.
    """
    rng = np.random.default_rng([seed, 46])
    medians = []
    for n, n_samples in [(6, 4), (15, 10)]:
        X = rng.standard_normal((60, n, 2))
        subsets = np.array(list(combinations(range(n), n_samples)))
        mean = np.zeros((60, 2, n))
        for T in subsets:
            mean[:, :, T] += np.linalg.pinv(X[:, T]) / len(subsets)
        least_squares = np.linalg.pinv(X)
        assert_allclose(mean @ X, np.broadcast_to(np.eye(2), (60, 2, 2)), atol=1e-9)
        energy = np.sum(mean**2, axis=(1, 2))
        excess = energy / np.sum(least_squares**2, axis=(1, 2)) - 1
        assert np.all(excess > 0)
        medians.append(np.median(excess))
    assert medians[0] > 3 * medians[1]


# Scaled ensembles: equations (35), (109) and (112)


def test_simulated_scaled_ensembles(seed):
    """The mean of <beta, b> is the fraction of columns for least squares, and the number of rows
    over that of columns for members of minimum norm; the scaled risk follows from it.
    """
    rng = np.random.default_rng([seed, 35, 1])
    k = 4
    for n, p, m, tau in [(18, 12, 5, 18), (10, 24, 24, 6)]:
        coefs = []
        betas = []
        for _ in range(1200):
            beta = unit_vector(rng, p)
            X = rng.standard_normal((n, p))
            y = X @ beta + 0.7 * rng.standard_normal(n)
            columns = [reference.draw(p, m, rng) for _ in range(k)]
            rows = [reference.draw(n, tau, rng) for _ in range(k)]
            coefs.append(reference.ensemble(X, y, columns, rows))
            betas.append(beta)
        if m < tau:
            shrinkage = m / p
            risk = theory.expected_risk(n, p, m, 0.7, k=k)
        else:
            shrinkage = tau / p
            risk = theory.minimum_norm_risk(n, p, m, 0.7, k=k, n_samples=tau)
        alignments = np.sum(np.multiply(coefs, betas), axis=1)
        with case(n, p, m, tau):
            sim.estimate(alignments).check(shrinkage, "(109), (112)")
            for mu in (0.5, 1.0, 1.5):
                errors = mu * np.array(coefs) - betas
                expected = theory.scaled_risk(risk, shrinkage, mu)
                sim.estimate(np.sum(errors**2, axis=1)).check(expected, f"mu = {mu}")
    limit = theory.limiting_risk(0.4, 0.5, 0.7)
    expected = theory.scaled_risk(limit, 0.4, 1.5)
    assert_allclose(reference.scaled_risk(0.4, 0.5, 0.7, 1.5), expected, rtol=1e-12)


# Dropout that is ridge regression: equations (39) and (40)


def test_dropout_with_the_papers_probabilities_is_ridge_regression(seed):
    """(1 - alpha_j) / alpha_j = lambda / (n Sigma_jj): exact on orthogonal columns with these squares,
    and to the order of 1 / sqrt(n) on Gaussian columns of these variances.

    The probabilities of the ensemble that is ridge regression with the same penalty are lower, and
    dropout with those is another fit at every n.
    """
    rng = np.random.default_rng([seed, 39])

    def distances(n, X, variances):
        """Relative distance of dropout from ridge regression, with both probabilities."""
        penalty = 0.3 * n
        y = X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(n)
        ridge = np.linalg.solve(X.T @ X + penalty * np.eye(X.shape[1]), X.T @ y)
        of_dropout = n * variances / (n * variances + penalty)
        of_ensemble = theory.ridge_matched_probabilities(variances, penalty, n=n)
        assert np.all(of_ensemble < of_dropout)
        fits = [
            DropoutRegressor(alpha, rescale=True, fit_intercept=False).fit(X, y).coef_
            for alpha in (of_dropout, of_ensemble)
        ]
        return np.linalg.norm(fits - ridge, axis=1) / np.linalg.norm(ridge)

    orthogonal, _ = np.linalg.qr(rng.standard_normal((60, 20)))
    variances = np.geomspace(1, 0.05, 20)
    exact, other = distances(60, orthogonal * np.sqrt(60 * variances), variances)
    assert exact < 1e-12 < 0.02 < other

    means = {}
    for n, trials in [(100, 20), (1600, 3)]:
        variances = np.geomspace(1, 0.05, n // 2)
        means[n] = np.mean(
            [
                distances(n, rng.standard_normal((n, n // 2)) * np.sqrt(variances), variances)
                for _ in range(trials)
            ],
            axis=0,
        )
    assert means[100][0] / means[1600][0] == pytest.approx(4, rel=0.2)
    assert means[1600][0] < 0.03 < 0.08 < means[1600][1]
