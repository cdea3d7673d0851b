"""Risk over the size of members: from theory, from simulation, from a tuned estimator."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .. import theory
from .._report.palette import BLACK, GREY
from ..simulation import Ensemble, LinearProblem, Ridge, run
from ._scaffold import MAX_MARKED_POINTS, SERIES, Array, finish, panels


@dataclass(eq=False, repr=False)
class RiskCurveDisplay:
    r"""Risk over the fraction of the columns in a member.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Fractions of the columns.
    risk : array-like of shape (n_curves, n_points)
        Risks; infinite values are not drawn.
    labels : sequence of str
        Names of the curves.
    standard_error : array-like of shape (n_curves, n_points), default=None
        Standard errors of `risk`; if given, points with error bars are drawn instead of lines.
    reference : float, default=None
        Risk of ridge regression.
    reference_label : str, default="optimal ridge"
        Name of the reference in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the drawing.
    figure_ : matplotlib Figure
        Its figure.

    Notes
    -----
    In theory and simulation risks are excess risks, without the noise of new observations, for a
    signal of norm one; errors estimated from data include that noise. Near the interpolation peak
    (equal numbers of columns and rows in a member) risks of finite ensembles are unbounded, and the
    curves leave the panel.

    Examples
    --------
    Theory as lines, simulation as points on the same axes:

    >>> from olsen.displays import RiskCurveDisplay
    >>> from olsen.simulation import LinearProblem
    >>> display = RiskCurveDisplay.from_theory(gamma=0.5, sigma=1.0, k=(5, 50))
    >>> points = RiskCurveDisplay.from_simulation(
    ...     LinearProblem(n=40, p=20),
    ...     alpha=[0.2, 0.4, 0.6],
    ...     k=(5, 50),
    ...     trials=5,
    ...     ridge=False,
    ...     ax=display.ax_,
    ... )
    >>> points.labels, points.standard_error.shape
    (['$k = 5$, simulated', '$k = 50$, simulated'], (2, 3))
    """

    __module__ = "olsen.displays"

    x: Array
    risk: Array
    labels: Sequence[str]
    _: KW_ONLY
    standard_error: Array | None = None
    reference: float | None = None
    reference_label: str = "optimal ridge"

    def __post_init__(self) -> None:
        self.x = np.asarray(self.x)
        self.risk = np.atleast_2d(self.risk)
        self.standard_error = (
            None if self.standard_error is None else np.atleast_2d(self.standard_error)
        )

    @classmethod
    def from_theory(
        cls,
        gamma: float,
        sigma: float,
        *,
        alpha: ArrayLike | None = None,
        k: ArrayLike | None = None,
        eta: float = 1.0,
        mu: float = 1.0,
        ax: Any = None,
    ) -> Self:
        r"""Draw limits of large problems with identity covariance
        (:func:`olsen.theory.limiting_risk`).

        Parameters
        ----------
        gamma : float
            Columns over rows.
        sigma : float
            Standard deviation of the noise, for a signal of norm one.
        alpha : array-like, default=None
            Fractions of the columns; None: 400 values up to 1.
        k : array-like, default=None
            Numbers of members, one curve for each; None: 1, 10, 100 and infinitely many.
        eta : float, default=1.0
            Fraction of the rows in a member.
        mu : float, default=1.0
            Factor on the prediction.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : RiskCurveDisplay
            With the drawing done.
        """
        x = np.linspace(0.0, 1.0, 401)[1:] if alpha is None else np.atleast_1d(alpha).astype(float)
        counts = _counts(k)
        risk = theory.limiting_risk(x, gamma, sigma, k=counts[:, None], eta=eta, mu=mu)
        ridge = float(theory.optimal_ridge_risk(gamma, sigma))
        return cls(x, risk, _labels(counts), reference=ridge).plot(ax)

    @classmethod
    def from_simulation(
        cls,
        problem: LinearProblem,
        *,
        alpha: ArrayLike | None = None,
        k: Sequence[float] | None = None,
        trials: int = 20,
        rng: np.random.Generator | int | None = 0,
        ridge: bool = True,
        n_jobs: int | None = None,
        ax: Any = None,
    ) -> Self:
        r"""Draw the mean risk over simulated data sets, with its standard error
        (:func:`olsen.simulation.run`).

        Parameters
        ----------
        problem : LinearProblem
            Model from which data are drawn.
        alpha : array-like, default=None
            Fractions of the columns, rounded to whole columns; None: ten values, up to members of
            0.9 n columns.
        k : sequence of int or inf, default=None
            Numbers of members, one curve for each; None: 1, 10 and 100.
        trials : int, default=20
            Number of data sets, the same for all curves and points: errors of few data sets are
            common to all points.
        rng : int, numpy Generator or None, default=0
            Seed of data sets and members, or generator of a seed.
        ridge : bool, default=True
            Whether to add ridge regression with the penalty :math:`p\sigma^2`, the best one for
            Gaussian coefficients and identity covariance, on the same data.
        n_jobs : int, default=None
            Threads over trials.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : RiskCurveDisplay
            With the drawing done.
        """
        p = problem.p
        max_alpha = min(1.0, 0.9 * problem.n / p)
        fractions = np.linspace(0.0, max_alpha, 11)[1:] if alpha is None else np.atleast_1d(alpha)
        if not ((fractions > 0) & (fractions <= 1)).all():
            raise ValueError(
                f"alpha={alpha!r:.80} must hold fractions of the {p} columns, above 0 and at"
                " most 1."
            )
        counts = np.sort(_counts((1, 10, 100) if k is None else k))
        if not ((counts >= 1) & (np.isinf(counts) | (counts % 1 == 0))).all():
            raise ValueError(f"k={k!r} must hold whole numbers of members, at least 1, or inf.")
        members = tuple(count if np.isinf(count) else int(count) for count in counts.tolist())
        sizes = np.unique(np.maximum(1, np.rint(fractions * p).astype(int)))
        cells: list[Any] = [(problem, Ensemble(int(m), k=members)) for m in sizes]
        if ridge:
            cells.append((problem, Ridge(p * problem.sigma**2)))
        estimates = run(cells, trials=trials, rng=rng, n_jobs=n_jobs)
        display = cls(
            sizes / p,
            risk=np.transpose([e.mean[:, 0] for e in estimates[: len(sizes)]]),
            labels=[f"{label}, simulated" for label in _labels(counts)],
            standard_error=np.transpose([e.standard_error[:, 0] for e in estimates[: len(sizes)]]),
            reference=float(estimates[-1].mean[0, 0]) if ridge else None,
            reference_label=r"ridge, penalty $p\,\sigma^2$, simulated",
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure. The first curve has the same colour on any axes, so
            that theory and simulation of the same numbers of members match.

        Returns
        -------
        display : RiskCurveDisplay
        """
        if not np.isfinite(self.risk).any():
            raise ValueError(
                "all risks are infinite: members have as many columns as rows (alpha * gamma ="
                " eta), the interpolation peak. Choose other sizes."
            )
        self.figure_, ax, _ = panels(ax)
        self.ax_ = ax
        earlier_limits = ax.get_ylim() if ax.has_data() else None
        risks = np.where(np.isfinite(self.risk), self.risk, np.nan)  # infinite risks are not drawn
        for number, label in enumerate(self.labels):
            color, marker, line_style = SERIES[number % len(SERIES)]
            style: dict[str, Any] = {"color": color, "ms": 4.5, "label": label}
            if self.standard_error is None:
                line_format = (marker if len(self.x) <= MAX_MARKED_POINTS else "") + line_style
                ax.plot(self.x, risks[number], line_format, **style)
            else:
                style |= {"fmt": marker, "mfc": "white", "elinewidth": 1.0, "capsize": 2}
                ax.errorbar(self.x, risks[number], self.standard_error[number], **style)
        if self.reference is not None:
            color, line_style = (BLACK, ":") if self.standard_error is None else (GREY, "--")
            style = {"color": color, "ls": line_style, "lw": 1.2, "label": self.reference_label}
            ax.axhline(self.reference, zorder=0, **style)
        self._set_height(earlier_limits)
        is_crowded = len(ax.get_legend_handles_labels()[0]) > 6
        label = r"fraction of the columns in a member, $\alpha$"
        finish(ax, 3 if is_crowded else "best", xlabel=label, ylabel="risk")
        return self

    def _set_height(self, earlier_limits: tuple[float, float] | None) -> None:
        """Limit the y axis to 2.5 times the smallest risks and the leftmost risk, which is near the
        null predictor.

        The limits of earlier curves on the same axes stay visible.
        """
        curves = [curve[np.isfinite(curve)] for curve in self.risk if np.isfinite(curve).any()]
        lowest = [float(curve.min()) for curve in curves]
        highest = max(float(curve.max()) for curve in curves)
        leftmost = [float(curve[0]) for curve in curves]
        if self.reference is not None:
            lowest.append(self.reference)
        top = 2.5 * max(lowest + leftmost)
        bottom = min(lowest)
        if bottom < top < highest:
            bottom -= 0.05 * (top - bottom)
            low, high = (bottom, top) if earlier_limits is None else earlier_limits
            self.ax_.set_ylim(min(bottom, low), max(top, high))


def _counts(k: ArrayLike | None) -> Array:
    return np.atleast_1d(np.asarray((1, 10, 100, np.inf) if k is None else k, dtype=float))


def _labels(counts: Array) -> list[str]:
    return [r"$k = \infty$" if np.isinf(count) else f"$k = {count:g}$" for count in counts]
