"""Risk over the size of members: from theory, from simulation, from a tuned estimator."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .. import theory
from ..figures.draw import BLACK, GREY
from ..simulation import Ensemble, LinearProblem, Ridge, run
from ._scaffold import FEW, SERIES, Array, finish, panels


@dataclass(eq=False, repr=False)
class RiskCurveDisplay:
    r"""Risk over the share of the columns in a member.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Shares of the columns.
    risk : array-like of shape (n_curves, n_points)
        Risks, infinite where a finite ensemble has none.
    labels : sequence of str
        Names of the curves.
    standard_error : array-like of shape (n_curves, n_points), default=None
        Standard errors of `risk`; with them, points with error bars are drawn instead of lines.
    reference : float, default=None
        Risk of ridge regression.
    reference_label : str, default="optimal ridge"
        Its name.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    lines_ : list of matplotlib Line2D
        Curves, or the points of those with error bars.
    errorbars_ : list of matplotlib ErrorbarContainer
        Error bars, where standard errors are known.
    reference_line_ : matplotlib Line2D or None
        Risk of ridge regression.

    Notes
    -----
    In theory and simulation risks are excess risks, without the noise of new observations, for a signal of norm one;
    errors that an estimator finds include that noise. Near the interpolation peak (as many columns as rows in a member)
    risks of finite ensembles have no bound, and their curves leave the panel.

    Examples
    --------
    Theory as lines, simulation as points on the same axes:

    >>> from olsen.displays import RiskCurveDisplay
    >>> from olsen.simulation import LinearProblem
    >>> display = RiskCurveDisplay.from_theory(gamma=0.5, sigma=1.0, k=(5, 50))
    >>> points = RiskCurveDisplay.from_simulation(
    ...     LinearProblem(n=40, p=20), alpha=[0.2, 0.4, 0.6], k=(5, 50), trials=5, ridge=False, ax=display.ax_
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
        self.x, self.risk = np.asarray(self.x), np.atleast_2d(self.risk)
        self.standard_error = None if self.standard_error is None else np.atleast_2d(self.standard_error)

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
        r"""Limits of large problems with identity covariance (:func:`olsen.theory.limiting_risk`).

        Parameters
        ----------
        gamma : float
            Columns over rows.
        sigma : float
            Standard deviation of the noise, for a signal of norm one.
        alpha : array-like, default=None
            Shares of the columns; None: all up to 1.
        k : array-like, default=None
            Numbers of members, one curve for each; None: 1, 10, 100 and infinitely many.
        eta : float, default=1.0
            Share of the rows in a member.
        mu : float, default=1.0
            Factor on the prediction.
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : RiskCurveDisplay
            With the drawing done.
        """
        x = np.linspace(0.0, 1.0, 401)[1:] if alpha is None else np.atleast_1d(np.asarray(alpha, dtype=float))
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
        seed: int = 0,
        ridge: bool = True,
        n_jobs: int | None = None,
        ax: Any = None,
    ) -> Self:
        r"""Mean risk over simulated data sets, with its standard error (:func:`olsen.simulation.run`).

        Parameters
        ----------
        problem : LinearProblem
            Where data are drawn from.
        alpha : array-like, default=None
            Shares of the columns, rounded to whole columns; None: ten up to 0.9 rows a column.
        k : sequence of int or inf, default=None
            Numbers of members, one curve for each; None: 1, 10 and 100.
        trials : int, default=20
            Data sets, the same for all curves and points: with few of them, all lie too high or too low together.
        seed : int, default=0
            Of data sets and members.
        ridge : bool, default=True
            Whether to try ridge regression with the penalty :math:`p\sigma^2`, the best one for Gaussian coefficients
            and identity covariance, on the same data.
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
        shares = np.linspace(0.0, min(1.0, 0.9 * problem.n / p), 11)[1:] if alpha is None else np.atleast_1d(alpha)
        if not ((shares > 0) & (shares <= 1)).all():
            raise ValueError(f"alpha={alpha!r:.80} must hold shares of the {p} columns, above 0 and at most 1.")
        counts = np.sort(_counts((1, 10, 100) if k is None else k))
        if not ((counts >= 1) & (np.isinf(counts) | (counts % 1 == 0))).all():
            raise ValueError(f"k={k!r} must hold whole numbers of members, at least 1, or inf.")
        members = tuple(count if np.isinf(count) else int(count) for count in counts.tolist())
        sizes = np.unique(np.maximum(1, np.rint(shares * p).astype(int)))
        cells: list[Any] = [(problem, Ensemble(int(m), k=members)) for m in sizes]
        cells += [(problem, Ridge(p * problem.sigma**2))] if ridge else []
        found = run(cells, trials=trials, seed=seed, n_jobs=n_jobs)
        reference = float(found.pop().mean[0, 0]) if ridge else None
        mean, error = (np.transpose([getattr(e, name)[:, 0] for e in found]) for name in ("mean", "standard_error"))
        labels = [f"{label}, simulated" for label in _labels(counts)]
        name = r"ridge, penalty $p\,\sigma^2$, simulated"
        display = cls(sizes / p, mean, labels, standard_error=error, reference=reference, reference_label=name)
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure. The first curve has the same colour on any axes, so that theory and
            simulation of the same numbers of members match.

        Returns
        -------
        display : RiskCurveDisplay
        """
        if not np.isfinite(self.risk).any():
            raise ValueError(
                "all risks are infinite: members have as many columns as rows (alpha * gamma = eta), the interpolation "
                "peak. Choose other sizes."
            )
        self.figure_, ax, _ = panels(ax)
        self.ax_, before = ax, ax.get_ylim() if ax.has_data() else None
        self.lines_: list[Any] = []
        self.errorbars_: list[Any] = []
        for number, label in enumerate(self.labels):
            color, marker, style = SERIES[number % len(SERIES)]
            y = np.where(np.isfinite(self.risk[number]), self.risk[number], np.nan)  # infinite risks are gaps
            look = {"color": color, "ms": 4.5, "label": label}
            if self.standard_error is None:
                self.lines_ += ax.plot(self.x, y, (marker if len(self.x) <= FEW else "") + style, **look)
                continue
            bars = {"mfc": "white", "elinewidth": 1.0, "capsize": 2}
            self.errorbars_.append(ax.errorbar(self.x, y, self.standard_error[number], fmt=marker, **bars, **look))
            self.lines_.append(self.errorbars_[-1][0])
        self.reference_line_ = None
        if self.reference is not None:
            color, style = (BLACK, ":") if self.standard_error is None else (GREY, "--")
            name = self.reference_label
            self.reference_line_ = ax.axhline(self.reference, color=color, ls=style, lw=1.2, label=name, zorder=0)
        self._set_height(before)
        many = len(ax.get_legend_handles_labels()[0]) > 6
        alpha = r"share of the columns in a member, $\alpha$"
        finish(ax, 3 if many else "best", xlabel=alpha, ylabel="risk")
        return self

    def _set_height(self, before: tuple[float, float] | None) -> None:
        """Leave out what is 2.5 times above the smallest risks and the null predictor, the leftmost risk.

        What other curves on the same axes need is kept.
        """
        curves = [curve[np.isfinite(curve)] for curve in self.risk if np.isfinite(curve).any()]
        least = [float(curve.min()) for curve in curves]
        known = [] if self.reference is None else [self.reference]
        top, bottom = 2.5 * max(*known, *least, *(float(curve[0]) for curve in curves)), min(*known, *least, np.inf)
        if bottom < top < max(float(curve.max()) for curve in curves):
            bottom -= 0.05 * (top - bottom)
            low, high = (bottom, top) if before is None else before
            self.ax_.set_ylim(min(bottom, low), max(top, high))


def _counts(k: ArrayLike | None) -> Array:
    return np.atleast_1d(np.asarray((1, 10, 100, np.inf) if k is None else k, dtype=float))


def _labels(counts: Array) -> list[str]:
    return [r"$k = \infty$" if np.isinf(count) else f"$k = {count:g}$" for count in counts]
