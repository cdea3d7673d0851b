"""How the size of the members was chosen."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ..figures.draw import BLACK, BLUE, VERMILLION
from ._axes import FEW, PALE, plain_log, tidy, two_axes
from ._estimator import check_display

__all__ = ["TuningCurveDisplay"]

CRITERIA = {"loo": "leave-one-out", "kfold": "k-fold", "gcv": "generalised cross-validation", "oob": "out-of-bag"}
PENALTIES = np.logspace(-8.0, 4.0, 61)  # a row, of standardised columns
FAR = 4.0  # times the smallest error, above which a curve may leave the panel


class TuningCurveDisplay:
    """Estimated error of prediction over the sizes of members, with the size that was chosen.

    Parameters
    ----------
    sizes : array-like of shape (n_sizes,)
        Columns per member, ascending.
    mse : array-like of shape (n_sizes,)
        Estimated mean squared error with `n_estimators` members.
    mse_infinity : array-like of shape (n_sizes,)
        The same with infinitely many.
    standard_error : array-like of shape (n_sizes,)
        Standard error of `mse` over rows.
    best_size : int
        The size that was chosen.
    best_mse : float
        Estimated error there.
    n_estimators : int
        Number of members.
    criterion : {"loo", "kfold", "gcv", "oob"}, default="loo"
        How errors were estimated.
    best_error : float, default=None
        Standard error of `best_mse`.
    shares : dict, default=None
        Share of the ensemble that each sampling scheme has, where several share it: the curve is then that of uniform
        members, and the chosen mixture stands beside it.
    ridge : float, default=None
        Mean squared error of ridge regression, to compare with.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where errors were drawn.
    shares_ax_ : matplotlib Axes or None
        Where the shares of the schemes were drawn.
    figure_ : matplotlib Figure
        The figure of both.
    line_ : matplotlib Line2D
        Errors at `n_estimators` members.
    infinity_line_ : matplotlib Line2D or None
        Errors of infinitely many, where `n_estimators` is a number.
    band_ : matplotlib PolyCollection
        One standard error to either side.
    best_ : matplotlib ErrorbarContainer
        The chosen size, or the mixture at its mean size, with its standard error.
    ridge_line_ : matplotlib Line2D or None
        The error of ridge regression.

    Notes
    -----
    Curves that rise beyond four times the smallest error leave the panel, so that the minimum can be seen.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressorCV
    >>> from olsen.displays import TuningCurveDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressorCV(50, inclusion="uniform", random_state=0).fit(X, y)
    >>> display = TuningCurveDisplay.from_estimator(model, X, y)
    >>> display.best_size == model.max_features_, display.ridge > 0
    (True, True)
    """

    __module__ = "olsen.displays"

    def __init__(
        self,
        sizes: ArrayLike,
        mse: ArrayLike,
        mse_infinity: ArrayLike,
        standard_error: ArrayLike,
        *,
        best_size: int,
        best_mse: float,
        n_estimators: float,
        criterion: str = "loo",
        best_error: float | None = None,
        shares: dict[str, float] | None = None,
        ridge: float | None = None,
    ) -> None:
        self.sizes, self.mse = np.asarray(sizes), np.asarray(mse)
        self.mse_infinity, self.standard_error = np.asarray(mse_infinity), np.asarray(standard_error)
        self.best_size, self.best_mse, self.n_estimators = best_size, best_mse, n_estimators
        self.criterion, self.best_error, self.shares, self.ridge = criterion, best_error, shares, ridge

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: Any = None, *, ridge: float | None = None, ax: Any = None
    ) -> Self:
        """Draw what a tuned estimator found.

        Parameters
        ----------
        estimator : OLSEnsembleRegressorCV
            A fitted one.
        X, y : array-like, default=None
            The training data. If given, the leave-one-out error of :class:`sklearn.linear_model.RidgeCV` on
            standardised columns, at the best of 61 penalties, is drawn beside the curve.
        ridge : float, default=None
            An error of ridge regression that is known already, instead of X and y.
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : TuningCurveDisplay
            With the drawing done. Several targets: errors are means over them.
        """
        check_display(
            estimator, "TuningCurveDisplay", ("cv_results_", "risk_curve"), "Fit an OLSEnsembleRegressorCV instead."
        )
        if (X is None) != (y is None):
            raise ValueError("the error of ridge regression needs both X and y; give both, or none.")
        if X is not None and ridge is None:
            if np.shape(X)[1:] != (estimator.n_features_in_,):
                raise ValueError(
                    f"X has shape {np.shape(X)}, but the estimator was fitted on {estimator.n_features_in_} columns; "
                    f"give the rows it was fitted to."
                )
            ridge = _ridge_error(X, y)
        found = estimator.cv_results_
        uniform = ~found["mixture"]
        shares = estimator.inclusion_shares_
        if isinstance(shares, list):  # of several targets
            names = dict.fromkeys(name for one in shares for name in one)
            shares = {name: float(np.mean([one.get(name, 0.0) for one in shares])) for name in names}
        display = cls(
            *(found[name][uniform] for name in ("size", "mse", "mse_infinity", "standard_error")),
            best_size=int(estimator.max_features_),
            best_mse=-float(estimator.best_score_),
            n_estimators=estimator.n_estimators_,
            criterion=estimator.criterion_,
            best_error=float(found["standard_error"][estimator.best_index_]),
            shares=None if estimator.inclusion_kind_ == "uniform" else shares,
            ridge=ridge,
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve, and the shares of the schemes where several share the ensemble.

        Parameters
        ----------
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure, with a second panel for the shares of the schemes. On a single one shares
            are in the title.

        Returns
        -------
        display : TuningCurveDisplay
        """
        mixed = self.shares is not None
        self.figure_, self.ax_, self.shares_ax_ = two_axes(ax, mixed, columns=2, widths=(1.2, 1.0))
        if self.shares is not None and self.shares_ax_ is not None:
            _draw_shares(self.shares_ax_, self.shares)
        elif self.shares is not None:
            self.ax_.set_title(_told(self.shares), fontsize="small", wrap=True)
        self._draw_curve()
        self.ridge_line_ = None
        if self.ridge is not None:
            self.ridge_line_ = self.ax_.axhline(self.ridge, color=BLACK, ls=":", label="ridge, leave-one-out")
        error = f"mean squared error, {CRITERIA.get(self.criterion, self.criterion)}"
        tidy(self.ax_, xlabel="columns in a member", ylabel=error)
        self.ax_.legend(fontsize="small", loc="best")
        return self

    def _draw_curve(self) -> None:
        ax = self.ax_
        low, high = self.mse - self.standard_error, self.mse + self.standard_error
        self.band_ = ax.fill_between(self.sizes, low, high, color=PALE, alpha=0.6, lw=0, label="one standard error")
        style = "o-" if len(self.sizes) <= FEW else "-"
        kind = "members" if self.shares is None else "uniform members"
        count = "infinitely many" if self.n_estimators == np.inf else f"{self.n_estimators}"
        (self.line_,) = ax.plot(self.sizes, self.mse, style, ms=4, color=BLUE, label=f"{count} {kind}")
        self.infinity_line_ = None
        if self.n_estimators < np.inf:
            (self.infinity_line_,) = ax.plot(
                self.sizes, self.mse_infinity, "--", color=VERMILLION, label="infinitely many"
            )
        self._draw_best()
        if self.sizes[-1] >= 20 * self.sizes[0]:
            ax.set_xscale("log")
            plain_log(ax.xaxis)
        heights = np.r_[self.mse, self.mse_infinity]
        top = float(heights[np.isfinite(heights)].max(initial=0.0))
        if top > FAR * self.best_mse > 0:
            ax.set_ylim(0.0, max(FAR * self.best_mse, 1.1 * (self.ridge or 0.0)))

    def _draw_best(self) -> None:
        what = f"{self.best_size} columns" if self.shares is None else f"mixture, {self.best_size} columns on average"
        self.best_ = self.ax_.errorbar(
            [self.best_size], [self.best_mse], None if self.best_error is None else [self.best_error], fmt="D", ms=7,
            mfc="none", mew=1.5, color=BLACK, capsize=4, label=f"chosen: {what}",
        )  # fmt: skip


def _ridge_error(X: Any, y: Any) -> float:
    """Mean squared leave-one-out error of ridge regression at its best penalty."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = X.toarray() if hasattr(X, "toarray") else X  # columns are centred
    ridge = make_pipeline(StandardScaler(), RidgeCV(PENALTIES * len(y))).fit(X, y)
    return -float(np.mean(ridge[-1].best_score_))


def _told(shares: dict[str, float]) -> str:
    named = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"schemes: {named}"


def _draw_shares(ax: Any, shares: dict[str, float]) -> None:
    names, values = list(shares), np.array(list(shares.values()), dtype=np.float64)
    bars = ax.barh(names, 100 * values, color=BLUE)
    ax.bar_label(bars, fmt="%.0f %%", padding=2, fontsize="small")
    ax.invert_yaxis()
    ax.margins(x=0.18)
    tidy(ax, xlabel="share of the ensemble, %")
    ax.set_title("sampling schemes", fontsize="small")
