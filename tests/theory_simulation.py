"""Simulated risks for the tests of `olsen.theory`: data, subsets and members, none of it taken from
the theory.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from olsen import OLSEnsembleRegressor


def fit_members(X, y, feature_subsets, sample_subsets=None):
    """Coefficients (k, p) of the members on the given columns and rows, without intercept, by
    NumPy.
    """
    coef = np.zeros((len(feature_subsets), X.shape[1]))
    for i, columns in enumerate(feature_subsets):
        A, b = (X, y) if sample_subsets is None else (X[sample_subsets[i]], y[sample_subsets[i]])
        A = A[:, columns]
        tall = len(A) > 2 * len(columns)
        coef[i, columns] = (
            np.linalg.solve(A.T @ A, A.T @ b) if tall else np.linalg.lstsq(A, b, rcond=None)[0]
        )
    return coef


def ridge_members(penalties):
    """A function as `fit_members` for ridge regressions with these penalties."""

    def fit(X, y, feature_subsets, sample_subsets=None):
        coef = np.zeros((len(feature_subsets), X.shape[1]))
        for i, columns in enumerate(feature_subsets):
            rows = slice(None) if sample_subsets is None else sample_subsets[i]
            A = X[rows][:, columns]
            G = A.T @ A + penalties[i] * np.eye(len(columns))
            coef[i, columns] = np.linalg.solve(G, A.T @ y[rows])
        return coef

    return fit


class Estimate(NamedTuple):
    """A mean over independent trials and its standard error."""

    mean: float
    standard_error: float

    def check(self, expected, label=""):
        """Within 4 standard errors: a correct formula fails about once in 16 000 comparisons.
        ``pytest -s`` prints.
        """
        z = (self.mean - expected) / self.standard_error
        text = (
            f"{label}: {self.mean:.5f} +- {self.standard_error:.5f}, expected {expected:.5f}, z"
            f" {z:+.1f}"
        )
        print(text)
        assert abs(z) <= 4, text


class Risks(NamedTuple):
    """Risk of the average, mean of the members' own risks, mean over pairs of different members."""

    ensemble: Estimate
    member: Estimate
    pair: Estimate


def estimate(values):
    values = np.asarray(values)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def simulate(
    rng,
    n,
    beta,
    sigma,
    features,
    *,
    rows=None,
    covariance=None,
    test_covariance=None,
    weights=None,
    mu=1.0,
    trials=400,
    fit=fit_members,
):
    """Risks over fresh data, subsets and noise.

    `features` and `rows` are functions of the generator that return the members' index arrays;
    `beta` is a vector or such a function; `covariance` is a matrix, or None for the identity, and
    `test_covariance` that of the rows to be predicted. `weights` of members have the sum one.
    """
    if test_covariance is None:
        test_covariance = covariance
    values = np.empty((trials, 3))
    with threadpool_limits(1):  # matrices are small: threads would only wait for each other
        for trial in range(trials):
            signal = beta(rng) if callable(beta) else beta
            X = rng.standard_normal((n, len(signal)))
            if covariance is not None:
                X = X @ np.linalg.cholesky(covariance).T
            y = X @ signal + sigma * rng.standard_normal(n)
            coef = fit(X, y, features(rng), None if rows is None else rows(rng))
            values[trial] = _risks(mu * coef - signal, test_covariance, weights)
    return Risks(*(estimate(column) for column in values.T))


def fitted_risk(rng, n, beta, sigma, trials, *, max_features, **parameters):
    """Risk of fitted ensembles on fresh rows; `max_features` may be a function of the generator."""
    risks = []
    with threadpool_limits(1):
        for _ in range(trials):
            X = rng.standard_normal((n, len(beta)))
            model = OLSEnsembleRegressor(
                max_features=max_features(rng) if callable(max_features) else max_features,
                fit_intercept=False,
                random_state=int(rng.integers(2**31)),
                **parameters,
            )
            risks.append(
                np.sum((model.fit(X, X @ beta + sigma * rng.standard_normal(n)).coef_ - beta) ** 2)
            )
    return estimate(risks)


def _risks(errors, covariance, weights):
    weighted = errors if covariance is None else errors @ covariance
    member_risks = np.sum(weighted * errors, axis=1)
    k = len(errors)
    weights = np.full(k, 1 / k) if weights is None else weights
    total = weighted.sum(axis=0) @ errors.sum(axis=0)
    return (
        weights @ weighted @ errors.T @ weights,
        member_risks.mean(),
        (total - member_risks.sum()) / (k * (k - 1)) if k > 1 else np.nan,
    )


def unit_signal(p, rng=0):
    """A fixed unit vector with unequal entries."""
    beta = np.random.default_rng(rng).standard_normal(p)
    return beta / np.linalg.norm(beta)


def sparse_signal(s, p):
    """Coefficients of norm one: s quantiles of a normal size, and zeros."""
    beta = np.zeros(p)
    beta[:s] = norm.ppf((1 + (np.arange(s) + 0.5) / s) / 2)
    return beta / np.linalg.norm(beta)


def gaussian_signal(p):
    return lambda rng: rng.standard_normal(p) / np.sqrt(p)


def independent(total, size, k):
    return lambda rng: [rng.permutation(total)[:size] for _ in range(k)]


def balanced(total, size, k):
    """Groups of disjoint blocks of one permutation, or of the complements of such blocks."""
    block = min(size, total - size)
    group = total // block

    def draw(rng):
        subsets = []
        while len(subsets) < k:
            order = rng.permutation(total)
            blocks = [order[b * block : (b + 1) * block] for b in range(group)]
            subsets += blocks if size == block else [np.setdiff1d(order, out) for out in blocks]
        return subsets[:k]

    return draw


def ar1(p, rho):
    return rho ** np.abs(np.subtract.outer(np.arange(p), np.arange(p)))


def equicorrelated(p, rho):
    return np.full((p, p), rho) + (1 - rho) * np.eye(p)


def spiked(p, spikes=3, strength=4.0, rng=0):
    loadings = np.random.default_rng(rng).standard_normal((p, spikes)) / np.sqrt(p)
    return np.eye(p) + strength * loadings @ loadings.T


def log_diagonal(p, decades=2.0):
    return np.diag(np.logspace(0, -decades, p))
