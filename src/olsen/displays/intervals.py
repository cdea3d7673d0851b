"""Prediction intervals and their observed coverage."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length

from .._estimators.pipelines import predict_interval
from .._report.palette import BLACK, BLUE, GREY, PALE, VERMILION
from ._scaffold import Array, finish, one_target, panels, split_model, targets_as_columns


@dataclass(eq=False, repr=False)
class IntervalDisplay:
    r"""Intervals over predictions, with observations inside and outside, and coverage along the
    predictions.

    Parameters
    ----------
    y_pred : array-like of shape (n_samples,)
        Predictions.
    interval : array-like of shape (n_samples, 2)
        Lower and upper ends.
    y_true : array-like of shape (n_samples,), default=None
        Observed targets; None: intervals only.
    coverage : float, default=None
        Nominal coverage of the intervals; None: not known.

    Attributes
    ----------
    inside : ndarray of shape (n_samples,), dtype=bool, or None
        Whether each observation is inside its interval.
    bin_edges : ndarray of shape (n_bins + 1,) or None
        Edges of eight bins of the prediction, of equal counts; of fewer bins if bins had less than
        ten rows.
    bin_centers : ndarray of shape (n_bins,) or None
        Mean prediction of every bin.
    bin_coverage : ndarray of shape (n_bins,) or None
        Fraction of the observations inside, by bin.
    bin_standard_error : ndarray of shape (n_bins,) or None
        Binomial standard error of the fraction, :math:`\sqrt{\tilde c (1 - \tilde c) / (m + 4)}`
        with
        :math:`\tilde c = (\text{inside} + 2) / (m + 4)` of m rows (Agresti and Coull), which is not zero even if all m
        rows are inside.
    ax_ : matplotlib Axes
        Axes of the intervals.
    coverage_ax_ : matplotlib Axes or None
        Axes of the coverage.
    figure_ : matplotlib Figure
        The figure of both axes.

    Notes
    -----
    Rows that were used in the fit are predicted better than new rows, so give rows that were not.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressor
    >>> from olsen.displays import IntervalDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OLSEnsembleRegressor(random_state=0).fit(X[:200], y[:200])
    >>> display = IntervalDisplay.from_estimator(model, X[200:], y[200:])
    >>> display.bin_coverage.shape, bool(display.inside.mean() > 0.8)
    ((8,), True)
    """

    __module__ = "olsen.displays"

    y_pred: Any
    interval: Any
    _: KW_ONLY
    y_true: Any = None
    coverage: float | None = None

    def __post_init__(self) -> None:
        self.y_pred = targets_as_columns(self.y_pred, len(self.y_pred), 1)[:, 0]
        self.interval = check_array(self.interval, dtype=np.float64, input_name="interval")
        if self.interval.shape[1] != 2 or (self.interval[:, 0] > self.interval[:, 1]).any():
            raise ValueError(
                f"interval has shape {self.interval.shape}, but must be (n_samples, 2): lower and"
                " upper ends, in this order, of one target."
            )
        check_consistent_length(self.y_pred, self.interval)
        self.inside: NDArray[np.bool_] | None = None
        self.bin_edges: Array | None = None
        self.bin_centers: Array | None = None
        self.bin_coverage: Array | None = None
        self.bin_standard_error: Array | None = None
        if self.y_true is not None:
            self.y_true = targets_as_columns(self.y_true, len(self.y_pred), 1)[:, 0]
            low, high = self.interval.T
            self.inside = (low <= self.y_true) & (self.y_true <= high)
            self._count_by_bins(self.inside)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        coverage: float = 0.9,
        method: str = "auto",
        target: int | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the prediction intervals of an estimator.

        Parameters
        ----------
        estimator : OLSEnsembleRegressor or OLSEnsembleRegressorCV
            A fitted model, or a pipeline that ends with one, for which `predict_interval` is
            available.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows that were not used in the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Observed targets.
        coverage : float, default=0.9
            Nominal probability that an interval contains a new observation.
        method : {"auto", "jackknife+", "jackknife", "cv+", "normal"}, default="auto"
            As in ``predict_interval``.
        target : int, default=None
            Index of the target, if there are several.
        ax : one or two matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : IntervalDisplay
            With the drawing done.
        """
        way_out = "Use IntervalDisplay.from_predictions for intervals of another model."
        split_model(estimator, cls, "predict_interval", way_out)
        ends = predict_interval(estimator, X, coverage, method)
        interval = one_target(ends, target, axis=1, single=2)
        if not np.isfinite(interval).all():
            raise ValueError(
                f"coverage={coverage} asks for more than the training rows can tell, so intervals"
                " are infinite. Use a smaller coverage, below n / (n + 1) for n training rows."
            )
        prediction = estimator.predict(X)
        if y is not None:
            n_targets = 1 if prediction.ndim == 1 else prediction.shape[1]
            y = targets_as_columns(y, len(prediction), n_targets)
            y = one_target(y, target, axis=1)
        prediction = one_target(prediction, target, axis=1)
        return cls(prediction, interval, y_true=y, coverage=coverage).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        interval: ArrayLike,
        *,
        coverage: float | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw intervals of any origin.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_samples,)
            Observations and predictions.
        interval : array-like of shape (n_samples, 2)
            Lower and upper ends.
        coverage : float, default=None
            Nominal coverage of the intervals.
        ax : one or two matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : IntervalDisplay
            With the drawing done.
        """
        return cls(y_pred, interval, y_true=y_true, coverage=coverage).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw intervals, and coverage where observations are known.

        Parameters
        ----------
        ax : one or two matplotlib Axes, default=None
            Where to draw; None: a new figure. On a single Axes, coverage by bins is not drawn.

        Returns
        -------
        display : IntervalDisplay
        """
        layout = {"nrows": 2, "size": (6.0, 5.5), "height_ratios": (2.2, 1.0)}
        self.figure_, ax, self.coverage_ax_ = panels(ax, self.inside is not None, **layout)
        self.ax_ = ax
        x = self.y_pred
        name = "interval" if self.coverage is None else f"{self.coverage:.0%} interval"
        ax.vlines(x, *self.interval.T, color=PALE, lw=1.2, zorder=0, label=name)
        diagonal = "prediction" if self.inside is None else "observed = predicted"
        ends = [x.min(), x.max()]
        ax.plot(ends, ends, "-", color=GREY, lw=0.8, label=diagonal)
        if self.inside is not None:
            inside = {"marker": "o", "ms": 3.2, "mfc": "none", "color": BLUE}
            outside = {"marker": "x", "ms": 5.5, "mew": 1.4, "color": VERMILION}
            self._draw_points(self.inside, "inside", **inside)
            self._draw_points(~self.inside, "outside", **outside)
        finish(ax, 2, xlabel="predicted", ylabel="interval" if self.inside is None else "observed")
        if self.coverage_ax_ is not None:
            self._draw_coverage(self.coverage_ax_)
        return self

    def _draw_points(self, mask: NDArray[np.bool_], name: str, **style: Any) -> None:
        label = f"{name}: {mask.sum()} of {len(mask)}"
        self.ax_.plot(self.y_pred[mask], self.y_true[mask], ls="none", label=label, **style)

    def _draw_coverage(self, ax: Any) -> None:
        centers = np.asarray(self.bin_centers)
        edges = np.asarray(self.bin_edges)
        percent = 100 * np.asarray(self.bin_coverage)
        error = 100 * np.asarray(self.bin_standard_error)
        width = np.stack([centers - edges[:-1], edges[1:] - centers])
        height = np.minimum(error, [percent, 100 - percent])  # no coverage beyond 0 or 100 %
        style = {"fmt": "o", "ms": 4, "color": BLUE, "elinewidth": 1.2, "capsize": 2}
        name = "observed, one standard error"
        ax.errorbar(centers, percent, height, width, label=name, **style)
        if self.coverage is not None:
            name = f"asked for: {self.coverage:.0%}"
            ax.axhline(100 * self.coverage, color=BLACK, ls="--", lw=1.0, label=name)
        lowest = min(float((percent - error).min()), 100 * (self.coverage or 1.0))
        limits = {"xlim": self.ax_.get_xlim(), "ylim": (max(0.0, lowest - 5), 102)}
        finish(ax, 2, xlabel="predicted (bins of equal counts)", ylabel="coverage, %", **limits)

    def _count_by_bins(self, inside: NDArray[np.bool_]) -> None:
        """Set the bins of equal counts: edges, mean prediction, fraction inside, standard error.

        Equal predictions are in one bin, so there may be fewer bins than intended.
        """
        n_bins = max(1, min(8, len(inside) // 10))
        edges = np.unique(np.quantile(self.y_pred, np.linspace(0, 1, n_bins + 1)))
        if len(edges) == 1:
            edges = np.repeat(edges, 2)
        n_bins = len(edges) - 1
        bins = np.searchsorted(edges, self.y_pred, side="right") - 1
        bins = np.clip(bins, 0, n_bins - 1)
        count = np.bincount(bins, minlength=n_bins)
        n_inside = np.bincount(bins, weights=inside, minlength=n_bins)
        adjusted = (n_inside + 2) / (count + 4)
        self.bin_edges = edges
        self.bin_centers = np.bincount(bins, weights=self.y_pred, minlength=n_bins) / count
        self.bin_coverage = n_inside / count
        self.bin_standard_error = np.sqrt(adjusted * (1 - adjusted) / (count + 4))
