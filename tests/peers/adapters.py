"""olsen in the shape of the estimators that scikit-learn's own tests ask for, through its public
interface only.

- ``LinearRegression``: an ensemble of three equal members, which hold all rows and all columns.
- ``Ridge``: least squares on the system augmented by sqrt(alpha) times the identity, with targets
  of zero.

Both derive from scikit-learn's classes and have their parameters. A test that asks for a feature
that olsen does not have is skipped as not applicable, with the reason.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LinearRegression as LinearRegressionThere
from sklearn.linear_model import Ridge as RidgeThere
from sklearn.utils._array_api import device, get_namespace
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from olsen import OLSEnsembleRegressor

FITS = []  # models of olsen in the running test, which must not be empty


def refuse(asked, feature):
    """Skip the running test if it asks for a feature that olsen does not have."""
    if asked:
        pytest.skip(f"asks for what olsen does not have: {feature}")


def fitted(model, X, y, sample_weight=None):
    """Fit a model that is listed in FITS, also if the fit is refused."""
    FITS.append(model)
    return model.fit(X, y, sample_weight)


class LinearRegression(LinearRegressionThere):
    """All members hold all columns, so their mean is the least-squares solution itself."""

    def fit(self, X, y, sample_weight=None):
        refuse(self.positive, "coefficients constrained to be positive")
        model = OLSEnsembleRegressor(3, 1.0, fit_intercept=self.fit_intercept, n_jobs=self.n_jobs)
        self.model_ = fitted(model, X, y, sample_weight)
        self.coef_ = model.coef_
        self.intercept_ = model.intercept_
        self.n_features_in_ = model.n_features_in_
        return self

    def predict(self, X):
        check_is_fitted(self)
        return self.model_.predict(X)


class Ridge(RidgeThere):
    """A penalty is as many rows more: sqrt(alpha) in one column each, with a target of zero.

    The names of scikit-learn's solvers, their tolerances and their iterations mean nothing here.
    """

    def fit(self, X, y, sample_weight=None):
        """Fit every target with a separate penalty, or all targets with one penalty."""
        refuse(self.positive, "coefficients constrained to be positive")
        xp, follows = get_namespace(X)
        if follows:
            refuse(sample_weight is not None, "weights on a device: this stand-in has none")
            self.n_features_in_ = X.shape[1]
        else:
            kinds = {"accept_sparse": ["csr", "csc"], "dtype": [np.float64, np.float32]}
            X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, **kinds)
        weight = (
            None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        )
        Y = xp.astype(xp.reshape(y, (y.shape[0], -1)), X.dtype)
        alphas = (
            [float(alpha) for alpha in np.ravel(self.alpha)]
            if not follows
            else self._alphas_elsewhere()
        )
        if len(alphas) not in (1, Y.shape[1]):
            raise ValueError(
                f"Number of targets and number of penalties do not correspond: {len(alphas)} !="
                f" {Y.shape[1]}"
            )
        targets = [Y] if len(alphas) == 1 else [Y[:, t : t + 1] for t in range(Y.shape[1])]
        fits = [
            penalised(X, target, weight, alpha, self.fit_intercept)
            for target, alpha in zip(targets, alphas, strict=True)
        ]
        coef, intercept = (xp.concat(parts) for parts in zip(*fits, strict=True))
        is_vector = Y.shape[1] == 1 and (y.ndim == 1 or not follows)
        self.coef_ = coef[0, :] if is_vector else coef
        self.intercept_ = (
            (intercept[0] if y.ndim == 1 else intercept) if self.fit_intercept else 0.0
        )
        self.solver_ = self.solver
        return self

    def _alphas_elsewhere(self):
        if isinstance(self.alpha, (int, float)):
            return [float(self.alpha)]
        return [float(self.alpha[t]) for t in range(self.alpha.shape[0])]


def penalised(X, Y, weight, alpha, fit_intercept):
    """Coefficients (q, p) and intercepts (q,) of ridge regression as least squares of n + p rows.

    The intercept carries no penalty: dense data are centred by their (weighted) means; sparse data,
    which centring would make dense, get a column of ones that is zero in the rows of the penalty.
    """
    xp, _ = get_namespace(X)
    if alpha == 0:
        model = fitted(OLSEnsembleRegressor(1, 1.0, fit_intercept=fit_intercept), X, Y, weight)
        return model.coef_, xp.zeros_like(Y[0, :]) + model.intercept_
    ones = fit_intercept and sp.issparse(X)
    if ones:
        X = sp.hstack([X, np.ones((X.shape[0], 1), dtype=X.dtype)], format="csr")
    like_X = {"dtype": X.dtype, "device": device(Y)}
    mean_x = xp.zeros(X.shape[1], **like_X)
    mean_y = xp.zeros_like(Y[0, :])
    if fit_intercept and not ones:
        shares = xp.ones_like(Y[:, 0]) if weight is None else weight
        mean_x, mean_y = (shares @ Z / xp.sum(shares) for Z in (X, Y))
    penalty = xp.eye(X.shape[1] - ones, X.shape[1], **like_X) * alpha**0.5
    A = sp.vstack([X, penalty]) if sp.issparse(X) else xp.concat([X - mean_x, penalty])
    B = xp.concat([Y - mean_y, xp.zeros((penalty.shape[0], Y.shape[1]), **like_X)])
    weights = None if weight is None else np.concatenate([weight, np.ones(len(penalty))])
    coef = fitted(OLSEnsembleRegressor(1, 1.0, fit_intercept=False), A, B, weights).coef_
    return (coef[:, :-1], coef[:, -1]) if ones else (coef, mean_y - coef @ mean_x)


def ridge_regression(
    X, y, alpha, *, return_intercept=False, return_n_iter=False, positive=False, **options
):
    """The function beside the class."""
    refuse(return_n_iter, "number of iterations of a solver of scikit-learn's")
    model = Ridge(alpha, fit_intercept=return_intercept, positive=positive)
    model.fit(X, y, options.get("sample_weight"))
    return (model.coef_, model.intercept_) if return_intercept else model.coef_
