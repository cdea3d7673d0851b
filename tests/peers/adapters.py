"""olsen in the shape of the estimators that scikit-learn's own tests ask for; through its public door only.

- ``LinearRegression``: an ensemble whose members hold all rows and all columns. One member, or several equal ones.
- ``Ridge``: least squares on the system augmented by sqrt(alpha) times the identity, with targets of zero.
- ``BaggingRegressor``: an ensemble of least-squares members with the same numbers of rows and columns.

What a test asks for and olsen does not have ends that test as not applicable, with the reason.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils._array_api import device, get_namespace
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from olsen import OLSEnsembleRegressor

MEMBERS = int(os.environ.get("OLSEN_PEERS_MEMBERS", "1"))  # of the stand-in for LinearRegression
NOT_APPLICABLE = "not applicable: "

fits = 0  # of olsen since the plugin last looked: a test that makes none says nothing about us


def not_applicable(reason: str) -> NoReturn:
    """End the running test: it asks for what olsen does not have."""
    pytest.skip(NOT_APPLICABLE + reason)


def fitted(model: OLSEnsembleRegressor, X: Any, y: Any, sample_weight: Any = None) -> OLSEnsembleRegressor:
    """Fit, and count it; also the fits that are refused."""
    global fits
    fits += 1
    return model.fit(X, y, sample_weight)


class _Linear(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """What the stand-ins for linear models have in common."""

    def predict(self, X: Any) -> Any:
        """X times the coefficients."""
        check_is_fitted(self)
        if get_namespace(X)[1]:
            return X @ self.coef_.T + self.intercept_ if self.coef_.ndim == 2 else X @ self.coef_ + self.intercept_
        X = validate_data(self, X, reset=False, accept_sparse=True, dtype=[np.float64, np.float32])
        return X @ self.coef_.T + self.intercept_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearRegression(_Linear):
    """All members hold all columns, so their mean is the least-squares solution itself."""

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        positive: bool = False,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.tol = tol
        self.n_jobs = n_jobs
        self.positive = positive

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegression:
        """Fit one ensemble."""
        if self.positive:
            not_applicable("coefficients constrained to be positive")
        model = OLSEnsembleRegressor(MEMBERS, 1.0, fit_intercept=self.fit_intercept, n_jobs=self.n_jobs)
        fitted(model, X, y, sample_weight)
        self.model_, self.coef_, self.intercept_ = model, model.coef_, model.intercept_
        self.n_features_in_ = model.n_features_in_
        return self

    def predict(self, X: Any) -> Any:
        """olsen's own prediction."""
        check_is_fitted(self)
        return self.model_.predict(X)


class Ridge(_Linear):
    """A penalty is as many rows more: sqrt(alpha) in one column each, with a target of zero.

    The names of scikit-learn's solvers, their tolerances and their iterations mean nothing here.
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-4,
        solver: str = "auto",
        positive: bool = False,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.positive = positive
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Ridge:
        """Fit every target with its own penalty, or all of them with one."""
        if self.positive:
            not_applicable("coefficients constrained to be positive")
        xp, follows = get_namespace(X)
        if follows:
            return self._fit_elsewhere(xp, X, y, sample_weight)
        X, y = validate_data(
            self, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        Y, alpha = y.reshape(len(y), -1), np.ravel(self.alpha)
        if len(alpha) not in (1, Y.shape[1]):
            raise ValueError(
                f"Number of targets and number of penalties do not correspond: {len(alpha)} != {Y.shape[1]}"
            )
        if len(alpha) == 1:
            coef, intercept = penalised(X, Y, weight, float(alpha[0]), self.fit_intercept)
        else:
            each = [penalised(X, Y[:, [t]], weight, float(a), self.fit_intercept) for t, a in enumerate(alpha)]
            coef, intercept = (np.concatenate(parts) for parts in zip(*each, strict=True))
        one = Y.shape[1] == 1
        self.coef_ = coef[0] if one else coef
        self.intercept_ = (intercept[0] if y.ndim == 1 else intercept) if self.fit_intercept else 0.0
        self.solver_ = self.solver
        return self

    def _fit_elsewhere(self, xp: Any, X: Any, y: Any, sample_weight: Any) -> Ridge:
        """The same in the library that the arrays come from, when scikit-learn is told to follow it."""
        if sample_weight is not None or not self.fit_intercept:
            not_applicable("weights, or no intercept, on a device: this stand-in has neither")
        p, place = X.shape[1], {"dtype": X.dtype, "device": device(X)}
        Y = xp.astype(y if y.ndim == 2 else y[:, None], X.dtype)
        mean_x, mean_y = xp.mean(X, axis=0), xp.mean(Y, axis=0)
        B = xp.concat([Y - mean_y, xp.zeros((p, Y.shape[1]), **place)])
        each = isinstance(self.alpha, (int, float))
        alphas = [float(self.alpha)] if each else [float(self.alpha[t]) for t in range(Y.shape[1])]
        found = []
        for t, alpha in enumerate(alphas):
            A = xp.concat([X - mean_x, xp.eye(p, **place) * alpha**0.5])
            model = OLSEnsembleRegressor(1, 1.0, fit_intercept=False)
            found.append(fitted(model, A, B if each else B[:, t : t + 1]).coef_)
        coef = xp.concat(found)
        intercept = mean_y - coef @ mean_x
        self.n_features_in_ = p
        self.coef_, self.intercept_ = (coef, intercept) if y.ndim == 2 else (coef[0, :], intercept[0])
        return self


def penalised(X: Any, Y: Any, weight: Any, alpha: float, fit_intercept: bool) -> tuple[Any, Any]:
    """Coefficients (q, p) and intercepts (q,) of ridge regression as least squares of n + p rows.

    The intercept carries no penalty: dense data are centred by their (weighted) means; sparse data, which centring
    would make dense, get a column of ones that is zero in the rows of the penalty.
    """
    if alpha == 0:
        model = fitted(OLSEnsembleRegressor(1, 1.0, fit_intercept=fit_intercept), X, Y, weight)
        return model.coef_, np.zeros(Y.shape[1]) + model.intercept_
    mean_x, mean_y = np.zeros(X.shape[1], dtype=X.dtype), np.zeros(Y.shape[1], dtype=X.dtype)
    ones = fit_intercept and sp.issparse(X)
    if ones:
        X = sp.hstack([X, np.ones((X.shape[0], 1), dtype=X.dtype)], format="csr")
    elif fit_intercept:
        mean_x, mean_y = (np.average(Z, axis=0, weights=weight).astype(X.dtype) for Z in (X, Y))
    penalty = X.dtype.type(np.sqrt(alpha)) * np.eye(X.shape[1] - ones, X.shape[1], dtype=X.dtype)
    stack = sp.vstack if sp.issparse(X) else np.vstack
    A = stack([X if ones else X - mean_x if fit_intercept else X, penalty])
    B = np.vstack([Y - mean_y, np.zeros((len(penalty), Y.shape[1]))]).astype(X.dtype, copy=False)
    both = None if weight is None else np.concatenate([weight, np.ones(len(penalty))])
    coef = fitted(OLSEnsembleRegressor(1, 1.0, fit_intercept=False), A, B, both).coef_
    return (coef[:, :-1], coef[:, -1]) if ones else (coef, mean_y - coef @ mean_x)


def ridge_regression(
    X: Any,
    y: Any,
    alpha: Any,
    *,
    sample_weight: Any = None,
    solver: str = "auto",
    max_iter: int | None = None,
    tol: float = 1e-4,
    verbose: int = 0,
    positive: bool = False,
    random_state: Any = None,
    return_n_iter: bool = False,
    return_intercept: bool = False,
    check_input: bool = True,
) -> Any:
    """The function beside the class."""
    if return_n_iter:
        not_applicable("number of iterations of a solver of scikit-learn's")
    model = Ridge(alpha, fit_intercept=return_intercept, positive=positive).fit(X, y, sample_weight)
    return (model.coef_, model.intercept_) if return_intercept else model.coef_


class BaggingRegressor(RegressorMixin, BaseEstimator):
    """Members are least squares, drawn without replacement; that is the default here, and all there is.

    It also stands in for ``BaggingClassifier`` where labels are numbers: targets like others.
    """

    def __init__(
        self,
        estimator: Any = None,
        n_estimators: int = 10,
        *,
        max_samples: Any = 1.0,
        max_features: Any = 1.0,
        bootstrap: bool = False,
        bootstrap_features: bool = False,
        oob_score: bool = False,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.bootstrap_features = bootstrap_features
        self.oob_score = oob_score
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BaggingRegressor:
        """Fit one ensemble, or go on with the one there is."""
        if not (self.estimator is None or type(self.estimator) is LinearRegression):
            not_applicable("members that are not least squares")
        if self.bootstrap or self.bootstrap_features:
            not_applicable("rows or columns drawn with replacement")
        if self.oob_score:
            not_applicable("out-of-bag scores")
        if not (self.warm_start and hasattr(self, "model_")):
            self.model_ = OLSEnsembleRegressor()
        self.model_.set_params(
            n_estimators=self.n_estimators,
            max_features=self.max_features,
            max_samples=self.max_samples,
            warm_start=self.warm_start,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        fitted(self.model_, X, y, sample_weight)
        return self

    def predict(self, X: Any) -> Any:
        """olsen's own prediction."""
        check_is_fitted(self)
        return self.model_.predict(X)

    def __len__(self) -> int:
        return self.model_.n_estimators_


class BaggingClassifier(BaggingRegressor):
    """The same under the other name."""
