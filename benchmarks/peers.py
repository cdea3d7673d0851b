"""The same models as people fit them today."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV

from olsen import subsets

__all__ = ["PENALTIES", "bagging", "lstsq_loop", "lstsq_member", "ridge", "ridge_cv", "start_workers"]

PENALTIES = np.geomspace(1e-3, 1e5, 50)


def bagging(k, m, max_samples=1.0, n_jobs=1, seed=0):
    """The authors' recipe: least squares on random columns (and rows), drawn without replacement."""
    return BaggingRegressor(
        LinearRegression(),
        n_estimators=k,
        max_features=m,
        max_samples=max_samples,
        bootstrap=False,
        n_jobs=n_jobs,
        random_state=seed,
    )


def ridge():
    return Ridge()


def ridge_cv():
    """Fifty penalties by leave-one-out."""
    return RidgeCV(PENALTIES)


def lstsq_loop(X, y, k, m, max_samples=1.0, seed=0):
    """Mean coefficients of the submatrices that our estimator draws for `seed`, one ``numpy.linalg.lstsq`` each."""
    n, p = X.shape
    how = {"max_features": m, "max_samples": max_samples, "design": "balanced", "fit_intercept": True}
    columns, rows = subsets.draw_members(n, p, k, seed=seed, **how)
    coef = np.zeros(p)
    for i in range(k):
        A, b = (X[:, columns[i]], y) if rows is None else (X[np.ix_(rows[i], columns[i])], y[rows[i]])
        coef[columns[i]] += lstsq_member(A, b)
    return coef / k


def lstsq_member(A, b):
    """Coefficients of one submatrix with an intercept, the shortest where columns depend on each other."""
    return np.linalg.lstsq(A - A.mean(axis=0), b - b.mean(), rcond=None)[0]


def start_workers(quick=False):
    """Start joblib's processes, so that the peers' first time is not their start; the values of n_jobs to try."""
    if quick:
        return (1,)
    rng = np.random.default_rng(0)
    bagging(4, 2, n_jobs=2).fit(rng.standard_normal((20, 4)), rng.standard_normal(20))
    return (1, 2)
