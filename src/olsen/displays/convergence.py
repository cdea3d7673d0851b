"""How many members are enough."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .._estimators.inputs import validate_new_rows
from ..figures.draw import BLUE, GREY, VERMILLION
from ._scaffold import Array, finish, log_members, panels, split_model, targets_as_columns


@dataclass(eq=False, repr=False)
class ConvergenceDisplay:
    r"""Error on given rows against the number of members.

    The error of the first k members, in the order in which they were drawn, and its mean over all orders of the same
    members, which is exact for equal weights,

    .. math:: C + \frac{A - C}{k},

    with A the mean squared error of single members and C the mean product of the errors of two of them. Balanced
    members avoid each other, so on average their drawn order lies below the mean over orders.

    Parameters
    ----------
    n_members : array-like of shape (n_points,)
        Numbers of members, ascending.
    error : array-like of shape (n_points,)
        Mean squared error of the first members.
    expected : array-like of shape (n_points,), default=None
        Its mean over orders.
    limit : float, default=None
        C, an estimate of what infinitely many members would come to.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    line_ : matplotlib Line2D
        Errors in the order of drawing.
    expected_line_ : matplotlib Line2D or None
        Mean over orders.
    limit_line_ : matplotlib Line2D or None
        The limit.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from olsen import OLSEnsembleRegressor
    >>> from olsen.displays import ConvergenceDisplay
    >>> X, y = make_regression(n_samples=90, n_features=40, noise=20.0, random_state=0)
    >>> model = OLSEnsembleRegressor(50, random_state=0).fit(X[:60], y[:60])
    >>> display = ConvergenceDisplay.from_estimator(model, X[60:], y[60:])
    >>> bool(abs(display.error[-1] - ((model.predict(X[60:]) - y[60:]) ** 2).mean()) < 1e-6)
    True
    """

    __module__ = "olsen.displays"

    n_members: Any
    error: Array
    _: KW_ONLY
    expected: Array | None = None
    limit: float | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, target: int | None = None, ax: Any = None) -> Self:
        """Predict given rows with every number of members.

        Parameters
        ----------
        estimator : OLSEnsembleRegressor or OLSEnsembleRegressorCV
            A fitted one, or a pipeline with one, that still has its training rows, from which members are solved again.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows that were not used in the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Their targets.
        target : int, default=None
            Which of several targets; None: the mean over all.
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
            raise ValueError("this fit is the limit of infinitely many members: give n_estimators a number to see it.")
        X = validate_new_rows(estimator, parts.transform(X))
        n_targets = 1 if estimator.coef_.ndim == 1 else len(estimator.coef_)
        Y = targets_as_columns(y, X.shape[0], n_targets)
        if target is not None and not 0 <= target < n_targets:
            raise ValueError(f"target={target!r}, but the estimator was fitted to {n_targets} target(s), from 0 on.")
        chosen = list(range(n_targets)) if target is None else [target]
        lines = _member_lines(estimator)
        sums = [_running_errors(X, Y[:, t], *lines[t], estimator.weights_) for t in chosen]
        error, own = np.mean([running for running, _ in sums], axis=0), np.mean([single for _, single in sums])
        k = np.arange(1, len(error) + 1)
        equal = bool(np.ptp(estimator.weights_) == 0) and len(k) > 1
        if not equal:
            return cls(k, error).plot(ax)
        pair = (error[-1] - own / len(k)) / (1 - 1 / len(k))
        return cls(k, error, expected=pair + (own - pair) / k, limit=float(pair)).plot(ax)

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
        self.ax_, k = ax, self.n_members
        (self.line_,) = ax.plot(k, self.error, "-", color=BLUE, lw=1.5, label="members as drawn")
        self.expected_line_ = self.limit_line_ = None
        if self.expected is not None:
            name = "mean over orders ($C + (A - C)/k$)"
            (self.expected_line_,) = ax.plot(k, self.expected, "--", color=VERMILLION, label=name)
        if self.limit is not None:
            name = f"infinitely many, estimated: {self.limit:.4g}"
            self.limit_line_ = ax.axhline(self.limit, color=GREY, ls=":", label=name, zorder=0)
        log_members(ax)
        finish(ax, "upper right", xlabel="members $k$", ylabel="mean squared error")
        return self


def _member_lines(estimator: Any) -> list[tuple[Any, Array]]:
    """For every target, coefficients (k, p) and intercepts (k,) of single members, scaled as the ensemble is.

    The scale shrinks the ensemble towards its mean target; every member is given what that adds to the intercept.
    """
    found, lines = estimator._members_again("ConvergenceDisplay"), []
    centres = np.atleast_1d(estimator.intercept_)
    centres = np.broadcast_to(centres, np.atleast_2d(estimator.coef_).shape[:1])  # without intercept there is one zero
    scales = np.broadcast_to(estimator.scale_, centres.shape)
    for t, (scale, centre) in enumerate(zip(scales, centres, strict=True)):
        features, solution = found[t if len(found) > 1 else 0]
        parts = (scale * solution.values[:, t], features.indices, features.indptr)
        intercepts = scale * solution.intercepts[:, t]
        intercepts = intercepts + centre - estimator.weights_ @ intercepts
        lines.append((sp.csr_array(parts, shape=(len(features), features.n_items)), intercepts))
    return lines


def _running_errors(X: Any, y: Array, coefs: Any, intercepts: Array, weights: Array) -> tuple[Array, float]:
    """Mean squared errors of the first 1, 2, ... members, each with its weight, and of a single one on average."""
    share, total = np.cumsum(weights), np.zeros(len(y))
    errors, own = [], 0.0
    step = max(1, (1 << 21) // len(y))  # members whose predictions are held at once: 16 MiB
    for start in range(0, len(weights), step):
        here = slice(start, start + step)
        products = coefs[here] @ X.T  # (members, rows)
        single = (products.toarray() if sp.issparse(products) else products).T + intercepts[here]
        own += float(np.mean((single - y[:, None]) ** 2, axis=0).sum())
        running = total[:, None] + np.cumsum(single * weights[here], axis=1)
        total = running[:, -1]
        with np.errstate(invalid="ignore"):  # the first members may have no weight
            errors.append(np.mean((running / share[here] - y[:, None]) ** 2, axis=0))
    return np.concatenate(errors), own / len(weights)
