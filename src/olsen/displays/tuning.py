"""Tuning curve of the size of the members, and the plane of their rows and columns."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from .._report.palette import BLACK, BLUE, PALE, VERMILION
from ._scaffold import MAX_MARKED_POINTS, Array, finish, log_members, panels, split_model

CRITERIA = {
    "loo": "leave-one-out",
    "kfold": "k-fold",
    "gcv": "generalised cross-validation",
    "oob": "out-of-bag",
}


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
        Estimated mean squared error with infinitely many members.
    standard_error : array-like of shape (n_sizes,)
        Standard error of `mse` over rows.
    best_size : int or float
        The size that was chosen.
    best_mse : float
        Estimated error there.
    n_estimators : int
        Number of members.
    criterion : {"loo", "kfold", "gcv", "oob"}, default="loo"
        Criterion by which errors were estimated.
    best_error : float, default=None
        Standard error of `best_mse`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the drawing.
    figure_ : matplotlib Figure
        The figure.

    Notes
    -----
    Curves that rise beyond four times the smallest error leave the panel, so that the minimum can
    be seen.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressorCV
    >>> from olsen.displays import TuningCurveDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressorCV(50, random_state=0).fit(X, y)
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
    best_size: float
    best_mse: float
    n_estimators: float
    criterion: str = "loo"
    best_error: float | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the tuning curve of an estimator.

        Parameters
        ----------
        estimator : OLSEnsembleRegressorCV
            A fitted model, or a pipeline that ends with one.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : TuningCurveDisplay
            With the drawing done. Errors are means over targets, of members with the chosen number
            of rows.
        """
        estimator = split_model(
            estimator, cls, "risk_curve", "Fit an OLSEnsembleRegressorCV instead."
        ).estimator
        best_error = float(estimator.cv_results_["std_test_score"][estimator.best_index_])
        chosen = estimator.cv_results_["param_max_samples"] == estimator.max_samples_
        results = {name: values[chosen] for name, values in estimator.cv_results_.items()}
        display = cls(
            sizes=results["param_max_features"],
            mse=-results["mean_test_score"],
            mse_infinity=-results["mean_test_score_infinity"],
            standard_error=results["std_test_score"],
            best_size=estimator.max_features_,
            best_mse=-float(estimator.best_score_),
            best_error=best_error,
            n_estimators=estimator.n_estimators_,
            criterion=estimator.criterion_,
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : TuningCurveDisplay
        """
        self.figure_, ax, _ = panels(ax)
        self.ax_ = ax
        sizes = np.asarray(self.sizes)
        mse = np.asarray(self.mse)
        error = np.asarray(self.standard_error)
        band = {"color": PALE, "alpha": 0.6, "lw": 0, "label": "one standard error"}
        ax.fill_between(sizes, mse - error, mse + error, **band)
        count = "infinitely many" if self.n_estimators == np.inf else f"{self.n_estimators}"
        style = "o-" if len(sizes) <= MAX_MARKED_POINTS else "-"
        ax.plot(sizes, mse, style, ms=4, color=BLUE, label=f"{count} members")
        if self.n_estimators < np.inf:
            ax.plot(sizes, self.mse_infinity, "--", color=VERMILION, label="infinitely many")
        mark = {"fmt": "D", "ms": 7, "mfc": "none", "mew": 1.5, "color": BLACK, "capsize": 4}
        name = f"chosen: {self.best_size:.4g} columns"
        ax.errorbar(self.best_size, self.best_mse, self.best_error, label=name, **mark)
        if sizes[-1] >= 20 * sizes[0]:
            log_members(ax)
        heights = np.r_[mse, self.mse_infinity]
        highest = heights[np.isfinite(heights)].max(initial=0.0)
        if highest > 4 * self.best_mse > 0:  # a peak leaves the panel
            ax.set_ylim(0.0, 4 * self.best_mse)
        error_name = f"mean squared error, {CRITERIA.get(self.criterion, self.criterion)}"
        finish(ax, "best", xlabel="columns in a member", ylabel=error_name)
        return self


@dataclass(eq=False, repr=False)
class TuningPlaneDisplay:
    """Estimated error of prediction over rows and columns of members, with the pair that was chosen.

    Parameters
    ----------
    sizes : array-like of shape (n_candidates,)
        Columns per member of every candidate.
    samples : array-like of shape (n_candidates,)
        Rows per member of every candidate.
    mse : array-like of shape (n_candidates,)
        Estimated mean squared error.
    standard_error : float
        Standard error of the smallest error over rows.
    best_index : int
        The candidate that was chosen.
    criterion : {"loo", "kfold", "gcv", "oob"}, default="loo"
        Criterion by which errors were estimated.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the drawing.
    figure_ : matplotlib Figure
        The figure.

    Notes
    -----
    Every number of rows is a strip, whose candidates reach to the middle between neighbours. Errors
    beyond twice the smallest one have the last colour; points mark errors within one standard error
    of the smallest.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressorCV
    >>> from olsen.displays import TuningPlaneDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressorCV(
    ...     50, max_samples=[0.25, 0.5, 1.0], random_state=0
    ... ).fit(X, y)
    >>> display = TuningPlaneDisplay.from_estimator(model)
    >>> bool(display.samples[display.best_index] == model.max_samples_)
    True
    """

    __module__ = "olsen.displays"

    sizes: Array
    samples: Array
    mse: Array
    _: KW_ONLY
    standard_error: float
    best_index: int
    criterion: str = "loo"

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the plane of an estimator.

        Parameters
        ----------
        estimator : OLSEnsembleRegressorCV
            A fitted model, usually with a list as `max_samples`, or a pipeline that ends with one.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : TuningPlaneDisplay
            With the drawing done. Errors are means over targets.
        """
        estimator = split_model(
            estimator, cls, "risk_curve", "Fit an OLSEnsembleRegressorCV instead."
        ).estimator
        results = estimator.cv_results_
        display = cls(
            sizes=results["param_max_features"],
            samples=results["param_max_samples"],
            mse=-results["mean_test_score"],
            standard_error=float(results["std_test_score"][estimator.best_index_]),
            best_index=int(estimator.best_index_),
            criterion=estimator.criterion_,
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the plane.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : TuningPlaneDisplay
        """
        self.figure_, ax, _ = panels(ax)
        self.ax_ = ax
        sizes = np.asarray(self.sizes)
        mse = np.asarray(self.mse)
        counts, strips = np.unique(self.samples, return_inverse=True)
        finite = mse[np.isfinite(mse)]
        least = finite.min()
        most = min(2 * least, finite.max())
        for strip in range(len(counts)):
            of_strip = np.flatnonzero(strips == strip)
            middles = (sizes[of_strip][1:] + sizes[of_strip][:-1]) / 2
            edges = np.r_[sizes[of_strip][0] - 0.5, middles, sizes[of_strip][-1] + 0.5]
            colours = ax.pcolormesh(
                edges,
                [strip - 0.5, strip + 0.5],
                mse[of_strip][None],
                cmap="viridis_r",
                vmin=least,
                vmax=most,
            )
        is_near = mse <= least + self.standard_error
        near = {"color": "white", "mec": BLACK, "mew": 0.6, "ms": 4}
        ax.plot(sizes[is_near], strips[is_near], "o", label="within one standard error", **near)
        best_size = sizes[self.best_index]
        name = f"chosen: {best_size:.4g} columns, {self.samples[self.best_index]} rows"
        mark = {"ms": 10, "mfc": "none", "mew": 2, "color": VERMILION, "ls": "none"}
        ax.plot(best_size, strips[self.best_index], "D", label=name, **mark)
        extend = "max" if most < finite.max() else "neither"
        error_name = f"mean squared error, {CRITERIA.get(self.criterion, self.criterion)}"
        self.figure_.colorbar(colours, ax=ax, extend=extend, label=error_name)
        ax.set_yticks(range(len(counts)), [f"{count:g}" for count in counts])
        finish(ax, 2, xlabel="columns in a member", ylabel="rows in a member")
        return self
