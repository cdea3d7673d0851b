"""How the size of the members was chosen."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from ..figures.draw import BLACK, BLUE, VERMILLION
from ._scaffold import FEW, PALE, Array, finish, log_members, panels, split_model

CRITERIA = {"loo": "leave-one-out", "kfold": "k-fold", "gcv": "generalised cross-validation", "oob": "out-of-bag"}


@dataclass(eq=False, repr=False)
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
    >>> display = TuningCurveDisplay.from_estimator(model)
    >>> display.best_size == model.max_features_
    True
    """

    __module__ = "olsen.displays"

    sizes: Array
    mse: Array
    mse_infinity: Array
    standard_error: Array
    _: KW_ONLY
    best_size: int
    best_mse: float
    n_estimators: float
    criterion: str = "loo"
    best_error: float | None = None
    shares: dict[str, float] | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw what a tuned estimator found.

        Parameters
        ----------
        estimator : OLSEnsembleRegressorCV
            A fitted one, or a pipeline with one.
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : TuningCurveDisplay
            With the drawing done. Several targets: errors are means over them.
        """
        estimator = split_model(estimator, cls, "risk_curve", "Fit an OLSEnsembleRegressorCV instead.").estimator
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
        self.figure_, ax, self.shares_ax_ = panels(ax, mixed, ncols=2, width_ratios=(1.2, 1.0))
        self.ax_ = ax
        if self.shares is not None and self.shares_ax_ is not None:
            _draw_shares(self.shares_ax_, self.shares)
        elif self.shares is not None:
            named = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
            ax.set_title(f"schemes: {named}", fontsize="small", wrap=True)
        sizes, mse, error = np.asarray(self.sizes), np.asarray(self.mse), np.asarray(self.standard_error)
        name = "one standard error"
        self.band_ = ax.fill_between(sizes, mse - error, mse + error, color=PALE, alpha=0.6, lw=0, label=name)
        count = "infinitely many" if self.n_estimators == np.inf else f"{self.n_estimators}"
        name = f"{count} {'uniform ' if mixed else ''}members"
        (self.line_,) = ax.plot(sizes, mse, "o-" if len(sizes) <= FEW else "-", ms=4, color=BLUE, label=name)
        self.infinity_line_ = None
        if self.n_estimators < np.inf:
            (self.infinity_line_,) = ax.plot(sizes, self.mse_infinity, "--", color=VERMILLION, label="infinitely many")
        what = f"mixture, {self.best_size} columns on average" if mixed else f"{self.best_size} columns"
        look = {"fmt": "D", "ms": 7, "mfc": "none", "mew": 1.5, "color": BLACK, "capsize": 4}
        self.best_ = ax.errorbar([self.best_size], [self.best_mse], self.best_error, label=f"chosen: {what}", **look)
        if sizes[-1] >= 20 * sizes[0]:
            log_members(ax)
        heights = np.r_[mse, self.mse_infinity]
        if heights[np.isfinite(heights)].max(initial=0.0) > 4 * self.best_mse > 0:  # a peak leaves the panel
            ax.set_ylim(0.0, 4 * self.best_mse)
        error_name = f"mean squared error, {CRITERIA.get(self.criterion, self.criterion)}"
        finish(ax, "best", xlabel="columns in a member", ylabel=error_name)
        return self


def _draw_shares(ax: Any, shares: dict[str, float]) -> None:
    names, values = list(shares), np.array(list(shares.values()), dtype=np.float64)
    bars = ax.barh(names, 100 * values, color=BLUE)
    ax.bar_label(bars, fmt="%.0f %%", padding=2, fontsize="small")
    ax.invert_yaxis()
    ax.margins(x=0.18)
    finish(ax, xlabel="share of the ensemble, %")
    ax.set_title("sampling schemes", fontsize="small")
