"""Problems that many tests share, and the measure of their errors."""

import numpy as np


def relative_error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def random_problem(seed, n=60, p=24, q=None, *, noise=1.0):
    """X with columns about random means, and y (n,) or Y (n, q) of a linear model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + rng.standard_normal(p)
    Y = X @ rng.standard_normal((p, q or 1)) + noise * rng.standard_normal((n, q or 1)) + 3
    return X, Y if q else Y[:, 0]


def correlated_problem(seed, n=120, p=12, q=None, *, noise=1.0):
    """X whose columns share one factor, and y (n,) or Y (n, q) of a linear model."""
    rng = np.random.default_rng([seed, 41])
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))
    Y = X @ rng.standard_normal((p, q or 1)) + noise * rng.standard_normal((n, q or 1))
    return X, Y if q else Y[:, 0]


def gaussian(seed, n=80, p=40, sigma=1.0, nonzero=None):
    """Standard normal X, y, and the unit coefficients of which the first `nonzero` are not zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    beta = rng.standard_normal(p)
    beta[slice(nonzero, None) if nonzero else slice(0, 0)] = 0.0
    beta /= np.linalg.norm(beta)
    return X, X @ beta + sigma * rng.standard_normal(n), beta


def linear_data(seed, n, p, q=None, *, far=20.0):
    """X with columns about means far from zero, y (n,) or Y (n, q) of a linear model, and weights
    of 0, 1 and 2.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + far * rng.standard_normal(p)
    Y = X @ rng.standard_normal((p, q or 1)) + rng.standard_normal((n, q or 1)) + 7
    return X, Y if q else Y[:, 0], rng.integers(0, 3, n).astype(float)


def sparse_signal_problem(seed, n=100, p=60, nonzero=4, noise=0.5):
    """Independent columns, of which the first few have coefficients of plus or minus one."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    beta = np.zeros(p)
    beta[:nonzero] = rng.choice([-1.0, 1.0], nonzero)
    return X, X @ beta + noise * rng.standard_normal(n), beta


def nearly_equal_columns(number):
    """Sets of four columns that differ by 1e-5 in the training rows, in some new rows by far more."""
    rng = np.random.default_rng(number)
    factors = rng.standard_normal((86, 6))
    distinct = factors @ rng.standard_normal((6, 246)) + 0.5 * rng.standard_normal((86, 246))
    X = np.repeat(distinct, 4, axis=1) + 1e-5 * rng.standard_t(1, (86, 984))
    y = distinct @ rng.standard_normal(246) / np.sqrt(246) + 0.3 * rng.standard_normal(86)
    return X, y
