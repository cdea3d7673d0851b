"""Data to fit: Gaussian columns, and columns as tables of real life have them."""

from __future__ import annotations

import numpy as np

__all__ = ["correlated", "duplicated", "linear", "one_hot", "spectra"]


def linear(n, p, seed=0):
    """Gaussian X (n, p), and y from coefficients of unit length with noise of unit variance."""
    rng = np.random.default_rng(seed)
    X, beta = rng.standard_normal((n, p)), rng.standard_normal(p)
    return X, X @ (beta / np.linalg.norm(beta)) + rng.standard_normal(n)


def one_hot(n, numeric, factors, levels, seed=0):
    """Gaussian columns and factors with all their levels, `levels` of them together: rank numeric +
    levels - factors.

    Shares of levels are Dirichlet, so that some are rare, and every level is there at least once.
    """
    rng = np.random.default_rng(seed)
    counts = 2 + rng.multinomial(levels - 2 * factors, np.full(factors, 1 / factors))
    X = np.hstack(
        [rng.standard_normal((n, numeric)), *(indicators(n, count, rng) for count in counts)]
    )
    return with_signal(standardised(X), rng)


def indicators(n, levels, rng):
    """The levels of one factor as columns of zeros and ones."""
    codes = rng.choice(levels, n, p=rng.dirichlet(np.ones(levels)))
    codes[:levels] = np.arange(levels)
    return np.eye(levels)[rng.permutation(codes)]


def duplicated(n, p, seed=0):
    """A third of the columns repeat others and two are constant: rank p - p // 3 - 2."""
    rng = np.random.default_rng(seed)
    repeats = p // 3
    distinct = rng.standard_normal((n, p - repeats - 2))
    repeated = distinct[:, rng.integers(0, distinct.shape[1], repeats)]
    X = np.hstack([distinct, repeated, np.zeros((n, 1)), np.full((n, 1), 3.0)])
    return with_signal(X[:, rng.permutation(p)], rng)


def correlated(n, p, rho, seed=0):
    """Gaussian columns of unit variance in a row, each correlated by rho with the one before."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return with_signal(X, rng)


def spectra(n, p, seed=0, peaks=8, noise=1e-3):
    """Curves over p wavelengths: broad peaks of random height, and noise that is tiny beside them."""
    rng = np.random.default_rng(seed)
    centers, widths = rng.uniform(0, 1, peaks), rng.uniform(0.05, 0.2, peaks)
    shapes = np.exp(
        -0.5 * ((np.linspace(0, 1, p) - centers[:, None]) / widths[:, None]) ** 2
    )  # (peaks, p)
    X = rng.gamma(4.0, size=(n, peaks)) @ shapes + noise * rng.standard_normal((n, p))
    return with_signal(X, rng)


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def with_signal(X, rng):
    """X and a target that leans on all columns: signal and noise of unit variance."""
    signal = X @ rng.standard_normal(X.shape[1])
    return X, signal / signal.std() + rng.standard_normal(len(X))
