"""Coefficients with their intervals: the largest as bars, or all along a scale."""

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler

from .._estimators.inputs import check_arguments, validate_new_rows
from .._report.formatting import scale_of_names, shortened
from .._report.palette import BLACK, BLUE, GREY, PALE, SKY
from ._scaffold import Array, as_text, column_names, finish, one_target, panels, split_model


@dataclass(eq=False, repr=False)
class CoefficientDisplay:
    """Coefficients of a fitted model, with intervals if the model has any.

    Parameters
    ----------
    coef : array-like of shape (n_features,)
        Coefficients, or effects of one standard deviation.
    feature_names : array-like of shape (n_features,)
        Names of the columns.
    interval : array-like of shape (n_features, 2), default=None
        Lower and upper ends; None: not known.
    coverage : float, default=0.9
        Nominal coverage of the intervals.
    scaled : bool, default=False
        Whether `coef` are effects of one standard deviation of each column.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the drawing.
    figure_ : matplotlib Figure
        Its figure.

    Notes
    -----
    Bars are filled if the interval excludes zero and empty otherwise. Each interval is for a single
    column: of many columns, some intervals exclude zero by chance. Intervals of ensembles describe
    how much coefficients vary over training sets; the bias from the shrinkage of the members is not
    included.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from olsen import OLSEnsembleRegressor
    >>> from olsen.displays import CoefficientDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> model = OLSEnsembleRegressor(random_state=0).fit(X, y)
    >>> display = CoefficientDisplay.from_estimator(model, X=X, top=5)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()][:2]
    ['s5', 'bmi']
    """

    __module__ = "olsen.displays"

    coef: Array
    feature_names: NDArray[np.object_]
    _: KW_ONLY
    interval: Array | None = None
    coverage: float = 0.9
    scaled: bool = False

    def __post_init__(self) -> None:
        self.coef = np.asarray(self.coef, dtype=np.float64)
        names = [str(name) for name in np.asarray(self.feature_names)]
        self.feature_names = np.array(names, dtype=object)
        if self.interval is not None:
            self.interval = np.asarray(self.interval, dtype=np.float64)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        X: Any = None,
        coverage: float = 0.9,
        top: int = 20,
        target: int | None = None,
        feature_names: ArrayLike | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the coefficients of a fitted model.

        Parameters
        ----------
        estimator : estimator with ``coef_``, or a pipeline
            An ensemble, any linear model, or a pipeline that ends with one; intervals need a method
            ``coef_interval``.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features), default=None
            Rows, in the form that the pipeline takes, whose standard deviations multiply the
            coefficients, so that columns in different units compare.
        coverage : float, default=0.9
            Nominal coverage of the intervals.
        top : int, default=20
            Number of bars.
        target : int, default=None
            Index of the target, if there are several.
        feature_names : array-like of shape (n_features,), default=None
            Names of the columns, or positions on a scale; None: the names seen in `fit`.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : CoefficientDisplay
            With the drawing done.
        """
        parts = split_model(estimator, cls, "coef_", "Give a fitted linear model.")
        check_arguments("CoefficientDisplay", coverage=coverage)
        estimator = parts.estimator
        coef = one_target(np.asarray(estimator.coef_, dtype=np.float64), target)
        interval = None
        # models without intervals, and ensembles without their training data
        with suppress(AttributeError, ValueError):
            ends = np.asarray(estimator.coef_interval(coverage))
            interval = one_target(ends, target, single=2)
        if X is not None:
            rows = validate_new_rows(estimator, parts.transform(X))
            deviations = np.sqrt(StandardScaler(with_mean=False).fit(rows).var_)
            coef = coef * deviations
            interval = None if interval is None else interval * deviations[:, None]
        names = column_names(parts, feature_names)
        display = cls(coef, names, interval=interval, coverage=coverage, scaled=X is not None)
        return display.plot(ax, top=top)

    def plot(self, ax: Any = None, *, top: int = 20) -> Self:
        """Draw all coefficients along a scale where names are numbers that rise or fall, otherwise
        the largest as bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.
        top : int, default=20
            Number of bars.

        Returns
        -------
        display : CoefficientDisplay
        """
        check_arguments("CoefficientDisplay", top=top)
        self.figure_, self.ax_, _ = panels(ax)
        label = "coefficient\n(units of the target per unit of the column)"
        if self.scaled:
            label = "effect of one standard deviation\n(units of the target)"
        scale = scale_of_names(list(self.feature_names))
        if scale is None:
            self._draw_bars(self.ax_, int(top), label)
        else:
            positions, unit = scale
            self._draw_profile(self.ax_, positions, unit, label)
        return self

    def _draw_bars(self, ax: Any, top: int, label: str) -> None:
        from matplotlib.patches import Patch

        columns = np.argsort(-np.abs(self.coef), kind="stable")[:top]
        positions = np.arange(len(columns))
        colors = np.full(len(columns), SKY)
        handles: list[Any] = [Patch(facecolor="none", edgecolor="none", label="no intervals")]
        if self.interval is not None:
            low, high = self.interval[columns].T
            colors = np.where((low > 0) | (high < 0), SKY, "white")
            name = f"{self.coverage:.0%} interval"
            handles = [
                ax.hlines(positions, low, high, color=BLACK, lw=1.4, label=name),
                Patch(facecolor=SKY, edgecolor=BLUE, label="excludes zero"),
                Patch(facecolor="white", edgecolor=BLUE, label="includes zero"),
            ]
        style = {"edgecolor": BLUE, "lw": 0.6, "height": 0.7}
        ax.barh(positions, self.coef[columns], color=colors, **style)
        ax.axvline(0.0, color=GREY, lw=0.8)
        names = as_text(shortened(name, 28) for name in self.feature_names[columns])
        ax.set_yticks(positions, names, fontsize="small" if len(positions) > 12 else None)
        ax.invert_yaxis()
        ax.locator_params(axis="x", nbins=6)
        if len(columns) < len(self.coef):
            ax.set_ylabel(f"the {len(columns)} largest of {len(self.coef)} columns")
        finish(ax, len(handles), handles=handles, xlabel=label)

    def _draw_profile(self, ax: Any, x: list[float], unit: str, label: str) -> None:
        ax.axhline(0.0, color=GREY, lw=0.8)
        name = "coefficient (no intervals)"
        if self.interval is not None:
            name = "coefficient"
            style = {"color": PALE, "alpha": 0.8, "lw": 0}
            ax.fill_between(x, *self.interval.T, label=f"{self.coverage:.0%} interval", **style)
        ax.plot(x, self.coef, "-", color=BLUE, lw=1.2, label=name)
        ax.margins(x=0.01)
        finish(ax, 2, xlabel=unit or "column", ylabel=label)
