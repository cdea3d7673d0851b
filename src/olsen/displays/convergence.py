"""Convergence of the error in the number of members."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from .._estimators.inputs import validate_new_rows
from .._report.palette import BLUE, GREY, VERMILION
from ._scaffold import Array, finish, log_members, panels, split_model, targets_as_columns

PREDICTIONS_PER_BATCH = 1 << 21  # 16 MiB in memory at once


@dataclass(eq=False, repr=False)
class ConvergenceDisplay:
    r"""Error on given rows against the number of members.

    The error of the first k members, in the order of drawing, and its mean over all
    orders of the same members, which is exact for equal weights,

    .. math:: C + \frac{A - C}{k},

    with A the mean squared error of single members and C the mean product of the errors of two
    different members. Balanced members overlap less than independent members, so on average the
    drawn order lies below the mean over orders.

    Parameters
    ----------
    n_members : array-like of shape (n_points,)
        Numbers of members, ascending.
    error : array-like of shape (n_points,)
        Mean squared error of the first members.
    expected : array-like of shape (n_points,), default=None
        Mean of the error over all orders of the members.
    limit : float, default=None
        C, an estimate of the error of infinitely many members.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the drawing.
    figure_ : matplotlib Figure
        Its figure.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from olsen import OLSEnsembleRegressor
    >>> from olsen.displays import ConvergenceDisplay
    >>> X, y = make_regression(
    ...     n_samples=90, n_features=40, noise=20.0, random_state=0
    ... )
    >>> model = OLSEnsembleRegressor(50, random_state=0).fit(X[:60], y[:60])
    >>> display = ConvergenceDisplay.from_estimator(model, X[60:], y[60:])
    >>> error = ((model.predict(X[60:]) - y[60:]) ** 2).mean()
    >>> bool(abs(display.error[-1] - error) < 1e-6)
    True
    """

    __module__ = "olsen.displays"

    n_members: Any
    error: Array
    _: KW_ONLY
    expected: Array | None = None
    limit: float | None = None

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, target: int | None = None, ax: Any = None
    ) -> Self:
        """Predict given rows with every number of members.

        Parameters
        ----------
        estimator : OLSEnsembleRegressor or OLSEnsembleRegressorCV
            A fitted model, or a pipeline that ends with one. The model needs its training rows, to
            refit its members.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows that were not used in the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets of the rows.
        target : int, default=None
            Index of the target, if there are several; None: the mean over all.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : ConvergenceDisplay
            With the drawing done.
        """
        parts = split_model(estimator, cls, "member_coefs", "Fit an OLSEnsembleRegressor instead.")
        estimator = parts.estimator
        if estimator.n_estimators_ == np.inf:
            raise ValueError(
                "this fit is the limit of infinitely many members: give n_estimators a number to"
                " see it."
            )
        X = validate_new_rows(estimator, parts.transform(X))
        n_targets = 1 if estimator.coef_.ndim == 1 else len(estimator.coef_)
        Y = targets_as_columns(y, X.shape[0], n_targets)
        if target is not None and not 0 <= target < n_targets:
            raise ValueError(
                f"target={target!r}, but the estimator was fitted to {n_targets} target(s), from"
                " 0 on."
            )
        targets = range(n_targets) if target is None else [target]
        weights = estimator.weights_
        members = _member_models(estimator)
        errors = [_running_errors(X, Y[:, t], members[t], weights) for t in targets]
        error = np.mean([running for running, _ in errors], axis=0)
        single = np.mean([single for _, single in errors])
        k = np.arange(1, len(error) + 1)
        has_equal_weights = bool(np.ptp(weights) == 0) and len(k) > 1
        if not has_equal_weights:
            return cls(k, error).plot(ax)
        pair = (error[-1] - single / len(k)) / (1 - 1 / len(k))
        expected = pair + (single - pair) / k
        return cls(k, error, expected=expected, limit=float(pair)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw errors over the number of members.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : ConvergenceDisplay
        """
        self.figure_, ax, _ = panels(ax)
        self.ax_ = ax
        k = self.n_members
        ax.plot(k, self.error, "-", color=BLUE, lw=1.5, label="members as drawn")
        if self.expected is not None:
            name = "mean over orders ($C + (A - C)/k$)"
            ax.plot(k, self.expected, "--", color=VERMILION, label=name)
        if self.limit is not None:
            name = f"infinitely many, estimated: {self.limit:.4g}"
            ax.axhline(self.limit, color=GREY, ls=":", label=name, zorder=0)
        log_members(ax)
        finish(ax, "upper right", xlabel="members $k$", ylabel="mean squared error")
        return self


class _Members(NamedTuple):
    """Single members of one target, scaled like the ensemble."""

    coefs: Any  # sparse, (k, p)
    intercepts: Array  # (k,)


def _member_models(estimator: Any) -> list[_Members]:
    """Single members, for every target.

    The scale shrinks the ensemble towards its mean target, which changes its intercept; the
    intercept of every member is shifted by the same amount.
    """
    solutions = estimator._members_again("ConvergenceDisplay")
    n_targets = len(np.atleast_2d(estimator.coef_))
    # a single zero for a fit without intercept
    ensemble_intercepts = np.broadcast_to(estimator.intercept_, n_targets)
    scales = np.broadcast_to(estimator.scale_, n_targets)
    models = []
    for t, scale in enumerate(scales):
        features, solution = solutions[t if len(solutions) > 1 else 0]
        entries = (scale * solution.values[:, t], features.indices, features.indptr)
        coefs = sp.csr_array(entries, shape=(len(features), features.n_items))
        intercepts = scale * solution.intercepts[:, t]
        shift = ensemble_intercepts[t] - estimator.weights_ @ intercepts
        models.append(_Members(coefs, intercepts + shift))
    return models


def _running_errors(X: Any, y: Array, members: _Members, weights: Array) -> tuple[Array, float]:
    """Mean squared errors of the weighted mean of the first 1, 2, ... members, and of a single
    member on average.
    """
    total_weights = np.cumsum(weights)
    prediction_sum = np.zeros(len(y))
    errors = []
    single_error = 0.0
    step = max(1, PREDICTIONS_PER_BATCH // len(y))
    for start in range(0, len(weights), step):
        batch = slice(start, start + step)
        products = members.coefs[batch] @ X.T  # (members, rows)
        products = products.toarray() if sp.issparse(products) else products
        predictions = products.T + members.intercepts[batch]
        single_errors = np.mean((predictions - y[:, None]) ** 2, axis=0)
        single_error += float(single_errors.sum())
        running_sums = prediction_sum[:, None] + np.cumsum(predictions * weights[batch], axis=1)
        prediction_sum = running_sums[:, -1]
        with np.errstate(invalid="ignore"):  # the first members may have no weight
            running_means = running_sums / total_weights[batch]
            errors.append(np.mean((running_means - y[:, None]) ** 2, axis=0))
    return np.concatenate(errors), single_error / len(weights)
