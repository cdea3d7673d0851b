"""Drawing: a figure's table in, a matplotlib figure out. Nothing is computed here.

Colours are those of Okabe and Ito, told apart with any colour vision; markers and line styles say the same again, so
that the figures survive grey printing. Widths are a journal's column (3.4 inches) or both (7 inches).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._execution.extras import from_extra
from ..simulation.storage import atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["DRAWINGS", "draw", "save"]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#777777"
COLUMN, PAGE = 3.4, 7.0  # inches
DPI = 200
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.width": 0.4, "ytick.minor.width": 0.4,
    "lines.linewidth": 1.1, "lines.markersize": 3.2, "legend.frameon": False, "legend.handlelength": 2.2,
    "legend.labelspacing": 0.3, "figure.constrained_layout.use": True, "hatch.linewidth": 0.7,
}  # fmt: skip

Table: TypeAlias = Mapping[str, list[Any]]  # columns of numbers and text


def draw(name: str, table: Table) -> Figure:
    """Draw a figure from its table.

    Parameters
    ----------
    name : str
        ``"figure1"`` to ``"figure10"``.
    table : mapping of columns
        As :func:`olsen.figures.compute` returns it, or :func:`olsen.simulation.read_table` reads it.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from olsen.figures import compute, draw
    >>> draw("figure1", compute("figure1", "quick")).get_size_inches()[0].round(1)
    np.float64(3.4)
    """
    matplotlib = from_extra("matplotlib", "plot", "Drawing figures")

    with matplotlib.rc_context(STYLE):
        return DRAWINGS[name](table)


def save(figure: Figure, folder: str | os.PathLike[str], name: str) -> list[Path]:
    """Write a figure as PDF and PNG, without dates, so that equal figures are equal files."""
    matplotlib = from_extra("matplotlib", "plot", "Drawing figures")

    paths = []
    for suffix, metadata in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
        path = Path(folder) / f"{name}.{suffix}"
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
            atomically(path, partial(figure.savefig, dpi=DPI, metadata=metadata))
        paths.append(path)
    return paths


def _axes(
    width: float, height: float, columns: int = 1, rows: int = 1, sharex: bool = False
) -> tuple[Figure, NDArray[np.object_]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)  # no window, no global state: figures may be drawn in any thread
    return figure, np.atleast_1d(figure.subplots(rows, columns, sharex=sharex)).ravel()


def _select(table: Table, panel: str, series: str, kind: str) -> NDArray[np.float64]:
    """x, mean and standard error of one series, ordered by x."""
    chosen = [
        (x, y, e)
        for p, s, q, x, y, e in zip(*(table[c] for c in ("panel", "series", "kind", "x", "mean", "standard_error")),
                                    strict=True)
        if (p, s, q) == (panel, series, kind)
    ]  # fmt: skip
    return np.array(sorted(chosen)).reshape(-1, 3).T


def _curve(
    axes: Axes,
    table: Table,
    panel: str,
    series: str,
    color: str,
    *,
    label: str | None = None,
    marker: str = "o",
    line: str = "-",
    filled: bool = True,
    size: float = 3.2,
) -> None:
    """Theory as a line, simulation as points with one standard error on top of it."""
    x, y, _ = _select(table, panel, series, "theory")
    axes.plot(x, y, line, color=color, lw=1.1, zorder=1)
    x, y, error = _select(table, panel, series, "simulation")
    face = color if filled else "white"
    axes.errorbar(
        x, y, error, fmt=marker, color=color, mfc=face, mew=0.8, ms=size, elinewidth=0.8, capsize=1.4, zorder=3
    )
    axes.plot([], [], line, marker=marker, color=color, mfc=face, mew=0.8, ms=size, label=label)  # for the legend


def _reference(axes: Axes, table: Table, panel: str, series: str, color: str = BLACK, label: str | None = None) -> None:
    """Dashed: a curve, or a level across the panel."""
    x, y, _ = _select(table, panel, series, "reference")
    if len(x) == 1:
        axes.axhline(y[0], ls="--", color=color, lw=0.9, zorder=0, label=label)
    else:
        axes.plot(x, y, "--", color=color, lw=0.9, zorder=2, label=label)


def _proxy(label: str, **style: Any) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def _subsampling(table: Table) -> Figure:
    """y = X beta with the member's rows, columns and coefficients marked."""
    shape, order, _ = _select(table, "member", "shape", "picture")
    n, p = (int(v) for v in shape[np.argsort(order)])
    rows = _select(table, "member", "rows", "picture")[0].astype(int)
    columns = _select(table, "member", "columns", "picture")[0].astype(int)
    figure, (axes,) = _axes(COLUMN, 2.6)
    used, seen = np.zeros((n, p), dtype=bool), np.zeros((n, p), dtype=bool)
    used[np.ix_(rows, columns)], seen[:, columns] = True, True
    top = (n - p) / 2
    _grid(axes, np.isin(np.arange(n), rows)[:, None], (0, 0), VERMILLION, "")
    _grid(axes, np.zeros((n, p), dtype=bool), (3, 0), "white", "")
    _grid(axes, seen & ~used, (3, 0), "#D6ECF9", "")
    _grid(axes, used, (3, 0), SKY, "xxxxx")
    _grid(axes, np.isin(np.arange(p), columns)[:, None], (p + 5, top), GREEN, "")
    for x, y, text in (
        (0.5, 0.4, r"$y$"), (3 + p / 2, 0.4, "$X$"), (p + 5.5, 0.4 - top, r"$\hat\beta^{(i)}$"),
        (2, -n / 2 - 0.5, r"$\approx$"), (p + 4, -n / 2 - 0.5, r"$\times$"),
    ):  # fmt: skip
        axes.text(x, y, text, ha="center", va="bottom", fontsize=10)
    for x, y, text, color in (
        (0.5, -n, "rows\n$T_i$", VERMILLION),
        (3 + p / 2, -n, "columns $S_i$\nhatched: used in the fit", BLUE),
        (p + 5.5, -top - p, "$S_i$", GREEN),
    ):
        axes.text(x, y - 0.4, text, ha="center", va="top", fontsize=7, color=color)
    axes.set(xlim=(-1, p + 7.2), ylim=(-n - 2.6, 1.8), aspect="equal")
    axes.axis("off")
    return figure


def _grid(axes: Axes, marked: NDArray[np.bool_], origin: tuple[float, float], color: str, hatch: str) -> None:
    """A matrix of squares with its top left corner at `origin`; marked ones are filled, all are outlined if none is."""
    from matplotlib.patches import Rectangle

    for (i, j), fill in np.ndenumerate(marked):
        corner = (origin[0] + j, -origin[1] - i - 1)
        if fill:
            axes.add_patch(
                Rectangle(corner, 1, 1, facecolor=color, edgecolor=BLUE if hatch else GREY, hatch=hatch, lw=0.3)
            )
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#555555", lw=0.5))


def _risk_against_members(table: Table) -> Figure:
    figure, (axes,) = _axes(COLUMN, 3.1)
    handles = []
    for gamma, color in (("0.5", BLUE), ("1", ORANGE), ("2", GREEN)):
        _curve(axes, table, "risk", f"gamma={gamma}, all rows", color)
        _curve(axes, table, "risk", f"gamma={gamma}, few rows", color, marker="s", line=":", filled=False)
        _curve(axes, table, "risk", f"gamma={gamma}, determinantal", color, marker="^", filled=False)
        _reference(axes, table, "risk", f"gamma={gamma}, ridge", color)
        handles.append(_proxy(rf"$\gamma={gamma}$", color=color, lw=3))
    handles += [
        _proxy(r"$\eta=1$", color=GREY, marker="o"),
        _proxy(r"$\eta=1.1\,\alpha\gamma$", color=GREY, marker="s", ls=":", mfc="white"),
        _proxy("determinantal", color=GREY, marker="^", ls="", mfc="white"),
        _proxy("optimal ridge", color=GREY, ls="--"),
    ]
    axes.set(xscale="log", yscale="log", xlabel="members $k$", ylabel="risk")
    _plain_log(axes.xaxis, every=False)
    _plain_log(axes.yaxis)
    axes.legend(handles=handles, ncols=2, loc="upper right")
    return figure


def _risk_against_noise(table: Table) -> Figure:
    figure, panels = _axes(COLUMN, 4.6, rows=2, sharex=True)
    titles = {
        "alpha_*": r"$\alpha=\alpha_*$, best for $k=\infty$",
        "alpha of k": r"$\alpha$ best for the $k$ at hand",
    }
    for axes, (panel, title) in zip(panels, titles.items(), strict=True):
        for k, color, marker in (("20", VERMILLION, "o"), ("100", ORANGE, "s"), ("500", BLUE, "^")):
            _curve(axes, table, panel, f"k={k}", color, label=f"$k={k}$", marker=marker)
        _reference(axes, table, panel, "ridge", label="optimal ridge")
        axes.set(xscale="log", ylabel="risk", title=title)
    panels[0].set_yscale("log")
    _plain_log(panels[0].yaxis)
    _plain_log(panels[1].xaxis, every=False)
    panels[0].legend(loc="upper right")
    panels[1].set(xlabel=r"noise $\sigma$")
    return figure


def _scaled(table: Table) -> Figure:
    figure, (axes,) = _axes(COLUMN, 2.7)
    handles = []
    for name, label, color in (
        ("half of alpha_*", r"$\alpha=\alpha_*/2$", BLUE),
        ("alpha = 1/2", r"$\alpha=1/2$", VERMILLION),
    ):
        _curve(axes, table, "risk", f"{name}, mu = 1", color)
        _curve(axes, table, "risk", f"{name}, best mu", color, marker="s", line=":", filled=False)
        handles.append(_proxy(label, color=color, lw=3))
    _reference(axes, table, "risk", "ridge", GREY)
    handles += [
        _proxy(r"$\mu=1$", color=GREY, marker="o"),
        _proxy(r"$\mu=\mu_*$", color=GREY, marker="s", ls=":", mfc="white"),
        _proxy("optimal ridge", color=GREY, ls="--"),
    ]
    axes.set(xscale="log", xlabel=r"noise $\sigma$", ylabel=r"risk, $k=\infty$", ylim=(0, 1.3))
    _plain_log(axes.xaxis, every=False)
    axes.legend(handles=handles, loc="upper left", ncols=2)
    return figure


def _bias_and_variance(table: Table) -> Figure:
    figure, panels = _axes(COLUMN, 4.2, rows=2, sharex=True)
    for axes, panel in zip(panels, ("bias", "variance"), strict=True):
        _curve(axes, table, panel, "independent", VERMILLION, label="independent members")
        _curve(axes, table, panel, "balanced", BLUE, label="balanced members", marker="s", filled=False)
        _reference(axes, table, panel, "infinite ensemble", label=r"$k=\infty$")
        axes.set(xscale="log", ylabel=panel)
    panels[0].legend(loc="upper right")
    panels[1].set_xlabel("members $k$")
    _plain_log(panels[1].xaxis, every=False)
    return figure


def _double_descent(table: Table) -> Figure:
    figure, (axes,) = _axes(COLUMN, 2.8)
    for series, label, color, marker in (
        ("k=1", "$k=1$", VERMILLION, "o"),
        ("k=10", "$k=10$", ORANGE, "s"),
        ("k=inf", r"$k=\infty$", BLUE, "^"),
    ):
        _curve(axes, table, "risk", series, color, label=label, marker=marker)
    _reference(axes, table, "risk", "ridge", label="optimal ridge")
    ((peak,), _, _) = _select(table, "risk", "peak", "reference")
    axes.axvline(peak, color=GREY, lw=0.6, ls=":", zorder=0)
    axes.text(peak + 3, 0.42, "columns = rows", fontsize=7, color=GREY, va="bottom")
    axes.set(yscale="log", ylim=(0.4, 30), xlabel="columns in a member", ylabel="risk")
    _plain_log(axes.yaxis)
    axes.legend(loc="upper right")
    return figure


def _unequal_covariance(table: Table) -> Figure:
    figure, panels = _axes(PAGE, 2.6, columns=2)
    titles = {"diagonal": "variances from 1 down to 0.01", "ar1": "neighbours correlated"}
    for axes, (panel, title) in zip(panels, titles.items(), strict=True):
        _curve(axes, table, panel, "uniform", VERMILLION, label="ensemble, uniform")
        _curve(axes, table, panel, "matched to ridge", BLUE, label="ensemble, matched to ridge", marker="s")
        _curve(axes, table, panel, "ridge", BLACK, label="ridge", marker="^", line="--", filled=False, size=5)
        axes.set(xlabel="mean share of columns in a member", ylabel="risk", title=title)
    panels[0].legend(loc="best")
    return figure


def _dropout(table: Table) -> Figure:
    figure, panels = _axes(PAGE, 2.6, columns=2)
    for axes, panel in zip(panels, ("gamma = 0.5", "gamma = 2"), strict=True):
        _curve(axes, table, panel, "dropout", VERMILLION, label="dropout", marker="D")
        _curve(axes, table, panel, "dropout times alpha", ORANGE, label=r"dropout times $\alpha$", marker="^")
        _curve(
            axes,
            table,
            panel,
            "ridge",
            BLACK,
            label="ridge, implied penalty",
            marker="s",
            line="--",
            filled=False,
            size=5,
        )
        _curve(axes, table, panel, "ensemble", BLUE, label=r"ensemble, $k=\infty$")
        value = panel.split(" = ")[1]
        axes.set(xlabel=r"$\alpha$", ylabel="risk", title=rf"$\gamma={value}$")
    panels[0].set_ylim(0.3, 1.3)
    panels[1].set_ylim(0.5, 2.7)
    panels[0].legend(loc="upper center", ncols=2)
    return figure


def _sparse(table: Table) -> Figure:
    """The same twice: with a logarithmic axis, where ratios are distances, and without, where the dense end is seen."""
    figure, panels = _axes(PAGE, 2.8, columns=2)
    for axes, scale in zip(panels, ("linear", "log"), strict=True):
        for series, label, color, marker, width in (
            ("uniform", "ensemble, uniform", VERMILLION, "o", 0.8),
            ("ridge", "ridge", BLACK, "^", 0.8),
            ("lasso", "lasso", PURPLE, "v", 0.8),
            ("auto", "ensemble, default", BLUE, "D", 1.4),
        ):
            x, y, error = _select(table, "risk", series, "simulation")
            face = color if label.startswith("ensemble") else "white"
            axes.errorbar(x, y, error, fmt=f"{marker}-", color=color, mfc=face, lw=width, capsize=1.4, label=label)
        x, y, _ = _select(table, "risk", "known coefficients", "reference")
        axes.plot(x, y, ":", color=GREY, label="coefficients known", zorder=0)
        _reference(axes, table, "risk", "optimal ridge", GREY, "optimal ridge")
        axes.set(xscale="log", yscale=scale, xlabel="coefficients that are not zero", ylabel="risk")
        _plain_log(axes.xaxis)
    panels[0].set_ylim(bottom=0)
    _plain_log(panels[1].yaxis, every=False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure


def _distance_from_ridge(table: Table) -> Figure:
    figure, (axes,) = _axes(COLUMN, 3.1)
    for series, color, marker in (
        ("balanced, uniform", VERMILLION, "o"),
        ("balanced, same probabilities", ORANGE, "s"),
        ("coin flips, same probabilities", PURPLE, "v"),
        ("determinantal", BLUE, "D"),
    ):
        x, y, error = _select(table, "distance", series, "simulation")
        axes.errorbar(x, y, error, fmt=f"{marker}-", color=color, capsize=1.4, label=series)
    axes.set(xscale="log", yscale="log", xlabel="members $k$", ylabel="distance from ridge regression")
    axes.legend(loc="lower left")
    return figure


def _plain_log(axis: Axis, every: bool = True) -> None:
    """Labels such as 0.5 and 20 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if every else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


DRAWINGS: Mapping[str, Callable[[Table], Figure]] = MappingProxyType({
    "figure1": _subsampling,
    "figure2": _risk_against_members,
    "figure3": _risk_against_noise,
    "figure4": _scaled,
    "figure5": _bias_and_variance,
    "figure6": _double_descent,
    "figure7": _unequal_covariance,
    "figure8": _dropout,
    "figure9": _sparse,
    "figure10": _distance_from_ridge,
})  # fmt: skip
