"""Intervals of predictions, and whether they hold what was observed."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length

from .._estimators.pipelines import predict_interval
from ..figures.draw import BLACK, BLUE, GREY, VERMILLION
from ._scaffold import PALE, Array, finish, one_target, panels, split_model, targets_as_columns


@dataclass(eq=False, repr=False)
class IntervalDisplay:
    r"""Intervals over predictions, with observations inside and outside of them, and coverage along the predictions.

    Parameters
    ----------
    y_pred : array-like of shape (n_samples,)
        Predictions.
    interval : array-like of shape (n_samples, 2)
        Lower and upper ends.
    y_true : array-like of shape (n_samples,), default=None
        What was observed; None: intervals only.
    coverage : float, default=None
        What the intervals are for; None: not known.

    Attributes
    ----------
    inside : ndarray of shape (n_samples,), dtype=bool, or None
        Which observations their intervals hold.
    bin_edges : ndarray of shape (n_bins + 1,) or None
        Edges of eight bins of the prediction, of equal counts; of fewer where they would hold less than ten rows.
    bin_centers : ndarray of shape (n_bins,) or None
        Mean prediction of every bin.
    bin_coverage : ndarray of shape (n_bins,) or None
        Share of the observations inside, by bin.
    bin_standard_error : ndarray of shape (n_bins,) or None
        Its binomial standard error, :math:`\sqrt{\tilde c (1 - \tilde c) / (m + 4)}` with
        :math:`\tilde c = (\text{inside} + 2) / (m + 4)` of m rows (Agresti and Coull), which is not zero where all of
        them are inside.
    ax_ : matplotlib Axes
        Where intervals were drawn.
    coverage_ax_ : matplotlib Axes or None
        Where coverage was drawn.
    figure_ : matplotlib Figure
        The figure of both.
    intervals_ : matplotlib LineCollection
        The intervals.
    inside_ : matplotlib Line2D or None
        Observations that their intervals hold.
    outside_ : matplotlib Line2D or None
        The others.
    coverage_bars_ : matplotlib ErrorbarContainer or None
        Coverage by bins.

    Notes
    -----
    Rows that were used in the fit are predicted better than new ones; give others.

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
                f"interval has shape {self.interval.shape}, but must be (n_samples, 2): lower and upper ends, in this "
                f"order, of one target."
            )
        check_consistent_length(self.y_pred, self.interval)
        self.inside: NDArray[np.bool_] | None = None
        self.bin_edges = self.bin_centers = self.bin_coverage = self.bin_standard_error = None
        if self.y_true is not None:
            self.y_true = targets_as_columns(self.y_true, len(self.y_pred), 1)[:, 0]
            low, high = self.interval.T
            self.inside = (low <= self.y_true) & (self.y_true <= high)
            found = _by_bins(self.y_pred, self.inside)
            self.bin_edges, self.bin_centers, self.bin_coverage, self.bin_standard_error = found

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
        """Draw the intervals that an estimator gives for rows.

        Parameters
        ----------
        estimator : OLSEnsembleRegressor or OLSEnsembleRegressorCV
            A fitted one, or a pipeline with one, that has what intervals need: `predict_interval` says so if not.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows that were not used in the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            What was observed.
        coverage : float, default=0.9
            Probability that an interval should hold a new observation.
        method : {"auto", "jackknife+", "jackknife", "cv+", "normal"}, default="auto"
            As in ``predict_interval``.
        target : int, default=None
            Which of several targets.
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : IntervalDisplay
            With the drawing done.
        """
        way_out = "Use IntervalDisplay.from_predictions for intervals of others."
        split_model(estimator, cls, "predict_interval", way_out)
        interval = one_target(predict_interval(estimator, X, coverage, method), target, axis=1, single=2)
        if not np.isfinite(interval).all():
            raise ValueError(
                f"coverage={coverage} asks for more than the training rows can tell, so intervals are infinite. Use a "
                f"smaller coverage, below n / (n + 1) for n training rows."
            )
        prediction = estimator.predict(X)
        if y is not None:
            n_targets = 1 if prediction.ndim == 1 else prediction.shape[1]
            y = one_target(targets_as_columns(y, len(prediction), n_targets), target, axis=1)
        prediction = one_target(prediction, target, axis=1)
        return cls(prediction, interval, y_true=y, coverage=coverage).plot(ax)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_pred: ArrayLike, interval: ArrayLike, *, coverage: float | None = None, ax: Any = None
    ) -> Self:
        """Draw intervals of any origin.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_samples,)
            Observations and predictions.
        interval : array-like of shape (n_samples, 2)
            Lower and upper ends.
        coverage : float, default=None
            What the intervals are for.
        ax : matplotlib Axes or two of them, default=None
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
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None: a new figure. On a single one, coverage by bins is left out.

        Returns
        -------
        display : IntervalDisplay
        """
        layout = {"nrows": 2, "size": (6.0, 5.5), "height_ratios": (2.2, 1.0)}
        self.figure_, self.ax_, self.coverage_ax_ = panels(ax, self.inside is not None, **layout)
        self.inside_ = self.outside_ = self.coverage_bars_ = None
        ax, x = self.ax_, self.y_pred
        name = "interval" if self.coverage is None else f"{self.coverage:.0%} interval"
        self.intervals_ = ax.vlines(x, *self.interval.T, color=PALE, lw=1.2, zorder=0, label=name)
        diagonal = "prediction" if self.inside is None else "observed = predicted"
        ax.plot([x.min(), x.max()], [x.min(), x.max()], "-", color=GREY, lw=0.8, label=diagonal)
        if self.inside is not None:
            self.inside_ = self._draw_points(self.inside, "inside", marker="o", ms=3.2, mfc="none", color=BLUE)
            self.outside_ = self._draw_points(~self.inside, "outside", marker="x", ms=5.5, mew=1.4, color=VERMILLION)
        finish(ax, 2, xlabel="predicted", ylabel="interval" if self.inside is None else "observed")
        if self.coverage_ax_ is not None:
            self._draw_coverage(self.coverage_ax_)
        return self

    def _draw_points(self, chosen: NDArray[np.bool_], name: str, **style: Any) -> Any:
        assert self.y_true is not None
        label = f"{name}: {chosen.sum()} of {len(chosen)}"
        return self.ax_.plot(self.y_pred[chosen], self.y_true[chosen], ls="none", label=label, **style)[0]

    def _draw_coverage(self, ax: Any) -> None:
        centre, edges = np.asarray(self.bin_centers), np.asarray(self.bin_edges)
        share, error = 100 * np.asarray(self.bin_coverage), 100 * np.asarray(self.bin_standard_error)
        width = np.stack([centre - edges[:-1], edges[1:] - centre])
        reach = np.minimum(error, [share, 100 - share])  # no share is below 0 or above 100 %
        look = {"fmt": "o", "ms": 4, "color": BLUE, "elinewidth": 1.2, "capsize": 2}
        self.coverage_bars_ = ax.errorbar(centre, share, reach, width, label="observed, one standard error", **look)
        if self.coverage is not None:
            ax.axhline(100 * self.coverage, color=BLACK, ls="--", lw=1.0, label=f"asked for: {self.coverage:.0%}")
        bottom = min(float((share - error).min()), 100 * (self.coverage or 1.0)) - 5
        limits = {"xlim": self.ax_.get_xlim(), "ylim": (max(0.0, bottom), 102)}
        finish(ax, 2, xlabel="predicted (bins of equal counts)", ylabel="coverage, %", **limits)


def _by_bins(prediction: Array, inside: NDArray[np.bool_]) -> tuple[Array, ...]:
    """Edges of bins of equal counts, mean prediction, share inside, and its standard error; ties share a bin."""
    wanted = max(1, min(8, len(prediction) // 10))
    edges = np.unique(np.quantile(prediction, np.linspace(0, 1, wanted + 1)))
    if len(edges) == 1:
        edges = np.repeat(edges, 2)
    bins = np.clip(np.searchsorted(edges, prediction, side="right") - 1, 0, len(edges) - 2)
    count = np.bincount(bins, minlength=len(edges) - 1)
    held = np.bincount(bins, weights=inside, minlength=len(edges) - 1)
    centre = np.bincount(bins, weights=prediction, minlength=len(edges) - 1) / count
    adjusted = (held + 2) / (count + 4)
    return edges, centre, held / count, np.sqrt(adjusted * (1 - adjusted) / (count + 4))
