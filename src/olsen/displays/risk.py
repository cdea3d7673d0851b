"""Risk over the size of members and over their number: from theory, from simulation, from a tuned estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import theory
from ..figures.draw import BLACK, GREY
from ..simulation import Ensemble, LinearProblem, Ridge, run
from ._axes import FEW, SERIES, legend_above, one_axes, plain_log, tidy
from ._estimator import Array, check_display

__all__ = ["RiskCurveDisplay"]

INFINITY = float("inf")
MEMBERS = (1, 10, 100, INFINITY)  # curves over alpha
UP_TO_1000 = np.unique(np.rint(np.geomspace(1, 1000, 60)))  # an axis of members
FAR = 2.5  # times what matters, above which a curve may leave the panel
LABELS = {"alpha": r"share of the columns in a member, $\alpha$", "k": "members $k$"}


class RiskCurveDisplay:
    r"""Risk over the share of the columns in a member, or over the number of members.

    Parameters
    ----------
    x : array-like of shape (n_points,)
        Shares of the columns, or numbers of members.
    risk : array-like of shape (n_curves, n_points)
        Risks, infinite where a finite ensemble has none.
    labels : sequence of str
        Names of the curves.
    over : {"alpha", "k"}, default="alpha"
        What `x` is.
    standard_error : array-like of shape (n_curves, n_points), default=None
        Standard errors of `risk`; with them, points with error bars are drawn instead of lines.
    reference : float, default=None
        Risk of ridge regression.
    reference_label : str, default="optimal ridge"
        Its name.
    risk_name : str, default="risk"
        Label of the vertical axis.
    x_name : str, default=None
        Label of the horizontal axis; None: what `over` says.

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

    def __init__(
        self,
        x: ArrayLike,
        risk: ArrayLike,
        labels: Sequence[str],
        *,
        over: str = "alpha",
        standard_error: ArrayLike | None = None,
        reference: float | None = None,
        reference_label: str = "optimal ridge",
        risk_name: str = "risk",
        x_name: str | None = None,
    ) -> None:
        _check_over(over)
        self.x, self.risk, self.labels, self.over = np.asarray(x), np.atleast_2d(risk), list(labels), over
        self.standard_error = None if standard_error is None else np.atleast_2d(standard_error)
        self.reference, self.reference_label = reference, reference_label
        self.risk_name, self.x_name = risk_name, LABELS[over] if x_name is None else x_name
        if over == "k" and not np.isfinite(self.x).all():
            raise ValueError(
                "k=inf has no place on an axis of members. Use over='alpha' for a curve of infinitely many."
            )

    @classmethod
    def from_theory(
        cls,
        gamma: float,
        sigma: float,
        *,
        over: str = "alpha",
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
        over : {"alpha", "k"}, default="alpha"
            The horizontal axis.
        alpha : array-like, default=None
            Shares of the columns: the axis (None: all up to 1), or one curve for each (None: the best one for
            infinitely many members, and half of it).
        k : array-like, default=None
            Numbers of members: one curve for each (None: 1, 10, 100 and infinitely many), or the axis (None: up to
            1000).
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
        _check_over(over)
        if over == "alpha":
            x = np.linspace(0.0, 1.0, 401)[1:] if alpha is None else np.atleast_1d(np.asarray(alpha, dtype=float))
            curves = np.atleast_1d(np.asarray(MEMBERS if k is None else k, dtype=float))
            risk, labels = theory.limiting_risk(x, gamma, sigma, k=curves[:, None], eta=eta, mu=mu), _members(curves)
        else:
            best = theory.optimal_alpha(gamma, sigma, eta=eta)
            x = UP_TO_1000 if k is None else np.atleast_1d(np.asarray(k, dtype=float))
            curves = np.array([best / 2, best]) if alpha is None else np.atleast_1d(np.asarray(alpha, dtype=float))
            risk, labels = theory.limiting_risk(curves[:, None], gamma, sigma, k=x, eta=eta, mu=mu), _shares(curves)
        ridge = float(theory.optimal_ridge_risk(gamma, sigma))
        return cls(x, risk, labels, over=over, reference=ridge).plot(ax)

    @classmethod
    def from_simulation(
        cls,
        problem: LinearProblem,
        *,
        over: str = "alpha",
        alpha: ArrayLike | None = None,
        k: Sequence[float] | None = None,
        max_samples: int | float = 1.0,
        design: str = "independent",
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
        over : {"alpha", "k"}, default="alpha"
            The horizontal axis.
        alpha : array-like, default=None
            Shares of the columns, rounded to whole columns. None: ten up to 0.9 rows a column, or (curves over `k`)
            a quarter and a half of that.
        k : sequence of int or inf, default=None
            Numbers of members. None: 1, 10 and 100, or (axis) nine numbers from 1 to 256.
        max_samples : int or float, default=1.0
            Rows per member.
        design : {"independent", "balanced"}, default="independent"
            How members are drawn.
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
        _check_over(over)
        if not isinstance(problem, LinearProblem):
            raise TypeError(
                f"problem={problem!r:.60} must be an olsen.simulation.LinearProblem, such as LinearProblem(80, 40)."
            )
        sizes = _sizes(problem, alpha, over)
        default: Sequence[float] = (1, 10, 100) if over == "alpha" else [2**i for i in range(9)]
        counts = tuple(sorted(_whole(count) for count in np.atleast_1d(default if k is None else k).tolist()))
        cells: list[Any] = [(problem, Ensemble(int(m), max_samples, counts, design=design)) for m in sizes]
        cells += [(problem, Ridge(problem.p * problem.sigma**2))] if ridge else []
        found = run(cells, trials=trials, seed=seed, n_jobs=n_jobs)
        reference = float(found.pop().mean[0, 0]) if ridge else None
        mean, error = (np.array([getattr(e, name)[:, 0] for e in found]) for name in ("mean", "standard_error"))
        shares = sizes / problem.p
        if over == "alpha":
            x, mean, error, labels = shares, mean.T, error.T, _members(np.array(counts), ", simulated")
        else:
            x, labels = np.array(counts), _shares(shares, ", simulated")
        name = r"ridge, penalty $p\,\sigma^2$, simulated"
        return cls(x, mean, labels, over=over, standard_error=error, reference=reference, reference_label=name).plot(ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, over: str = "alpha", k: ArrayLike | None = None, ax: Any = None) -> Self:
        """Errors that a tuned estimator found by cross-validation (its ``risk_curve``).

        Parameters
        ----------
        estimator : OLSEnsembleRegressorCV
            A fitted one.
        over : {"alpha", "k"}, default="alpha"
            The horizontal axis; over `k`, there is one curve, of the chosen size of uniform members.
        k : array-like, default=None
            Numbers of members: one curve for each (None: 1, 10, 100 and infinitely many), or the axis (None: up to
            1000).
        ax : matplotlib Axes, default=None
            Where to draw; None: a new figure.

        Returns
        -------
        display : RiskCurveDisplay
            With the drawing done.
        """
        _check_over(over)
        check_display(estimator, "RiskCurveDisplay", ("risk_curve",), "Fit an OLSEnsembleRegressorCV instead.")
        uniform = ~estimator.cv_results_["mixture"]
        sizes = estimator.cv_results_["size"][uniform]
        name = "mean squared error, cross-validated"
        if over == "k":
            x = UP_TO_1000 if k is None else np.atleast_1d(np.asarray(k, dtype=float))
            errors = np.array([estimator.risk_curve(count)[uniform] for count in x])
            chosen = int(np.argmin(errors[-1]))
            if not np.all(uniform[estimator.best_index_ :]):
                label = f"{sizes[chosen]} columns in a uniform member"
            else:
                chosen, label = estimator.best_index_, f"{estimator.max_features_} columns in a member"
            return cls(x, errors[:, chosen], [label], over=over, risk_name=name).plot(ax)
        counts = np.atleast_1d(np.asarray(MEMBERS if k is None else k, dtype=float))
        risk = np.array([estimator.risk_curve(count)[uniform] for count in counts])
        return cls(sizes / estimator.n_features_in_, risk, _members(counts), risk_name=name).plot(ax)

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
        self.figure_, self.ax_ = one_axes(ax)
        ax = self.ax_
        before = ax.get_ylim() if ax.has_data() else None
        self.lines_: list[Any] = []
        self.errorbars_: list[Any] = []
        for number, label in enumerate(self.labels):
            self._draw_curve(number, label)
        self.reference_line_ = None
        if self.reference is not None:
            color, style = (BLACK, ":") if self.standard_error is None else (GREY, "--")
            self.reference_line_ = ax.axhline(
                self.reference, color=color, ls=style, lw=1.2, label=self.reference_label, zorder=0
            )
        if self.over == "k":
            ax.set_xscale("log")
            plain_log(ax.xaxis)
        self._set_height(before)
        tidy(ax, xlabel=self.x_name, ylabel=self.risk_name)
        if len(ax.get_legend_handles_labels()[0]) > 6:
            legend_above(ax, 3)
        else:
            ax.legend(fontsize="small", loc="best")
        return self

    def _draw_curve(self, number: int, label: str) -> None:
        color, marker, style = SERIES[number % len(SERIES)]
        if self.standard_error is None:
            style = marker + style if len(self.x) <= FEW else style
            self.lines_ += self.ax_.plot(self.x, _drawable(self.risk[number]), style, ms=4.5, color=color, label=label)
            return
        bars = self.ax_.errorbar(
            self.x, _drawable(self.risk[number]), self.standard_error[number], fmt=marker, color=color, ms=4.5,
            mfc="white", elinewidth=1.0, capsize=2, label=label,
        )  # fmt: skip
        self.errorbars_.append(bars)
        self.lines_.append(bars[0])

    def _set_height(self, before: tuple[float, float] | None) -> None:
        """Leave out what is far above the smallest risks and the null predictor, the leftmost risk over alpha.

        What other curves on the same axes need is kept.
        """
        curves = [curve[np.isfinite(curve)] for curve in self.risk]
        curves = [curve for curve in curves if len(curve)]
        matters = [self.reference or 0.0, max(float(curve.min()) for curve in curves)]
        matters += [max(float(curve[0]) for curve in curves)] if self.over == "alpha" else []
        top, bottom = FAR * max(matters), min(float(curve.min()) for curve in curves)
        bottom = bottom if self.reference is None else min(bottom, self.reference)
        if max(float(curve.max()) for curve in curves) <= top or top <= bottom:
            return
        bottom -= 0.05 * (top - bottom)
        low, high = (bottom, top) if before is None else before
        self.ax_.set_ylim(min(bottom, low), max(top, high))


def _check_over(over: str) -> None:
    if over not in LABELS:
        raise ValueError(
            f"over={over!r} must be 'alpha', the share of the columns in a member, or 'k', the number of members."
        )


def _drawable(risk: Array) -> Array:
    """Infinite risks are gaps."""
    return np.where(np.isfinite(risk), risk, np.nan)


def _members(counts: Array, suffix: str = "") -> list[str]:
    return [(r"$k = \infty$" if np.isinf(c) else f"$k = {c:g}$") + suffix for c in counts]


def _shares(alphas: Array, suffix: str = "") -> list[str]:
    return [rf"$\alpha = {alpha:.3g}$" + suffix for alpha in alphas]


def _whole(count: float) -> float:
    if not (count >= 1 and (np.isinf(count) or count == int(count))):
        raise ValueError(f"k={count!r} must be a whole number of members, at least 1, or inf.")
    return count if np.isinf(count) else int(count)


def _sizes(problem: LinearProblem, alpha: ArrayLike | None, over: str) -> NDArray[np.int64]:
    """Columns per member, ascending and without repeats."""
    most = min(1.0, 0.9 * problem.n / problem.p)
    if alpha is None:
        alpha = np.linspace(0.0, most, 11)[1:] if over == "alpha" else np.array([most / 4, most / 2])
    shares = np.atleast_1d(np.asarray(alpha, dtype=float))
    if not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(f"alpha={alpha!r:.80} must hold shares of the {problem.p} columns, above 0 and at most 1.")
    return np.unique(np.clip(np.rint(shares * problem.p), 1, problem.p).astype(np.int64))
