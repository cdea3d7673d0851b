"""The same models as people fit them today."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted, validate_data

from olsen import subsets

__all__ = [
    "PENALTIES",
    "PLSRegressionCV",
    "bagging",
    "lstsq_loop",
    "lstsq_member",
    "ridge",
    "ridge_cv",
    "start_workers",
]

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
    """Mean coefficients of the submatrices that our estimator draws for `seed`, one
    ``numpy.linalg.lstsq`` each.
    """
    n, p = X.shape
    how = {
        "max_features": m,
        "max_samples": max_samples,
        "design": "balanced",
        "fit_intercept": True,
    }
    columns, rows = subsets.draw_members(n, p, k, rng=seed, **how)
    coef = np.zeros(p)
    for i in range(k):
        A, b = (
            (X[:, columns[i]], y) if rows is None else (X[np.ix_(rows[i], columns[i])], y[rows[i]])
        )
        coef[columns[i]] += lstsq_member(A, b)
    return coef / k


def lstsq_member(A, b):
    """Coefficients of one submatrix with an intercept, the shortest where columns depend on each
    other.
    """
    return np.linalg.lstsq(A - A.mean(axis=0), b - b.mean(), rcond=None)[0]


class PLSRegressionCV(RegressorMixin, BaseEstimator):
    """Partial least squares of one target with the number of components chosen by cross-validation.

    Weights and scores are orthogonalised against all before, twice, and components end at the
    numerical rank: scikit-learn's own breaks down on dependent columns. Columns are taken as they
    are.
    """

    def __init__(self, max_components=20, cv=5):
        self.max_components = max_components
        self.cv = cv

    def fit(self, X, y):
        X, y = validate_data(self, X, y, y_numeric=True)
        errors = [self._errors(X, y, train, test) for train, test in check_cv(self.cv).split(X)]
        common = min(len(squares) for squares in errors)  # a small fold may have fewer components
        coef = self._all(X, y)
        self.n_components_ = min(
            1 + int(np.argmin(np.sum([e[:common] for e in errors], axis=0))), len(coef)
        )
        self.coef_ = coef[self.n_components_ - 1]
        self.intercept_ = y.mean() - X.mean(axis=0) @ self.coef_
        return self

    def predict(self, X):
        check_is_fitted(self)
        return validate_data(self, X, reset=False) @ self.coef_ + self.intercept_

    def _errors(self, X, y, train, test):
        """Sums of squares over the test rows, for 1, 2, ... components."""
        coef = self._all(X[train], y[train])
        left = y[test] - y[train].mean() - coef @ (X[test] - X[train].mean(axis=0)).T
        return np.sum(left**2, axis=1)

    def _all(self, X, y):
        """Coefficients (components, p) of 1, 2, ... components."""
        A, left = X - X.mean(axis=0), y - y.mean()
        n, p = A.shape
        most = max(1, min(self.max_components, n - 1, p))
        T, W, R = np.zeros((n, most)), np.zeros((p, most)), np.zeros((p, most))
        total, coefs = np.zeros(p), []
        size, first = np.linalg.norm(A) / np.sqrt(min(n, p)), np.linalg.norm(A.T @ left)
        for k in range(most):
            w = A.T @ left
            for _ in range(2):
                w -= W[:, :k] @ (W[:, :k].T @ w)
            length = np.linalg.norm(w)
            if not length > 1e-10 * first:
                break
            w /= length
            t, rotation = A @ w, w.copy()
            for _ in range(2):
                along = T[:, :k].T @ t
                t -= T[:, :k] @ along
                rotation -= R[:, :k] @ along
            length = np.linalg.norm(t)
            if not length > 1e-9 * size:
                break
            W[:, k], T[:, k], R[:, k] = w, t / length, rotation / length
            share = T[:, k] @ left
            left = left - T[:, k] * share
            total = total + R[:, k] * share
            coefs.append(total)
        return np.array(coefs or [total])


def start_workers(quick=False):
    """Start joblib's processes, so that the peers' first time is not their start; the values of
    n_jobs to try.
    """
    if quick:
        return (1,)
    rng = np.random.default_rng(0)
    bagging(4, 2, n_jobs=2).fit(rng.standard_normal((20, 4)), rng.standard_normal(20))
    return (1, 2)
