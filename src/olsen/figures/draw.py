"""Drawing: a figure's table in, a matplotlib figure out, without any computation.

Widths are one column of a journal (3.4 inches) or two (7 inches).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._execution import from_extra
from .._execution.files import atomically
from .._report.palette import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    label_plainly,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH = 3.4  # inches
PAGE_WIDTH = 7.0  # inches
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.labelspacing": 0.3,
    "figure.constrained_layout.use": True,
    "hatch.linewidth": 0.7,
}

Table: TypeAlias = Mapping[str, list[Any]]  # columns of numbers and text
Style: TypeAlias = dict[str, Any]
Floats: TypeAlias = NDArray[np.float64]


class Curve(NamedTuple):
    """Points of a series."""

    x: Floats
    mean: Floats
    standard_error: Floats


def draw(name: str, table: Table) -> Figure:
    """Draw a figure from its table.

    Parameters
    ----------
    name : str
        ``"figure1"`` to ``"figure11"``.
    table : mapping of columns
        Table from :func:`olsen.figures.compute`.

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
        return _draw_member(table) if name == "figure1" else _draw_curves(PICTURES[name], table)


def save(figure: Figure, folder: str | os.PathLike[str], name: str) -> list[Path]:
    """Write a figure as PDF and PNG, without dates, so that equal figures are equal files."""
    matplotlib = from_extra("matplotlib", "plot", "Drawing figures")
    dateless = {"pdf": {"CreationDate": None}, "png": {"Software": None}}
    paths = []
    for suffix, metadata in dateless.items():
        path = Path(folder) / f"{name}.{suffix}"
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # text stays text
            atomically(path, partial(figure.savefig, dpi=200, metadata=metadata))
        paths.append(path)
    return paths


class Picture(NamedTuple):
    """A figure: its panels (name in the table, settings of the axes) and its curves, each with its
    style.

    `key` has the entries of the legend if the entries are not the curves.
    """

    size: tuple[float, float]
    panels: tuple[tuple[str, dict[str, Any]], ...]
    curves: dict[str, dict[str, Any]]
    axes: dict[str, Any]
    legend_location: str = "upper right"
    legend_columns: int = 1
    key: Mapping[str, dict[str, Any]] = MappingProxyType({})


def _draw_curves(picture: Picture, table: Table) -> Figure:
    from matplotlib.lines import Line2D

    n_panels = len(picture.panels)
    is_stacked = n_panels > 1 and picture.size[0] == COLUMN_WIDTH  # one panel below the other
    shape = (2, 2) if n_panels == 4 else (n_panels, 1) if is_stacked else (1, n_panels)
    figure, panels = _axes(picture.size, *shape, sharex=is_stacked)
    for axes, (panel, settings) in zip(panels, picture.panels, strict=True):
        for series, style in picture.curves.items():
            _draw_series(axes, style, partial(_select, table, panel, series))
        peak = _select(table, panel, "columns = rows", "reference").x
        if len(peak):
            axes.axvline(peak[0], color=GREY, lw=0.6, ls=":", zorder=0)
            axes.text(peak[0] + 3, 0.42, "columns = rows", fontsize=7, color=GREY, va="bottom")
        axes.set(**(picture.axes | settings))
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                label_plainly(axis)
        if is_stacked:
            axes.label_outer()
    key = picture.key or picture.curves
    handles = [Line2D([], [], label=_math(name), **style) for name, style in key.items()]
    legend_owner: Any = figure if "outside" in picture.legend_location else panels[0]
    legend_owner.legend(handles=handles, loc=picture.legend_location, ncols=picture.legend_columns)
    has_theory = "theory" in table["kind"]
    lines = [Line2D([], [], label="lines: theory", color=GREY, lw=1.1)] if has_theory else []
    words = "points: simulation ± standard error" + ("" if has_theory else ", joined by lines")
    points = axes.errorbar([], [], [], label=words, fmt="o", color=GREY, elinewidth=0.8, ms=3.2)
    figure.legend(handles=[*lines, points], loc="outside lower center", ncols=2)
    return figure


def _draw_series(axes: Axes, style: Style, select: Callable[[str], Curve]) -> None:
    """Draw theory as a line, and simulation as points with one standard error; without theory, join
    the points.

    A series without simulation is a reference: a dashed line, or a level across the panel.
    """
    line_style = {name: style[name] for name in ("color", "ls", "lw")}
    points = select("simulation")
    theory = select("theory")
    reference = select("reference")
    if len(points.x):
        line = theory if len(theory.x) else points
        axes.plot(line.x, line.mean, zorder=1, **line_style)
        point_style = style | {"ls": "none", "elinewidth": 0.8, "capsize": 1.4}
        axes.errorbar(points.x, points.mean, points.standard_error, zorder=3, **point_style)
    elif len(reference.x) == 1:
        axes.axhline(reference.mean[0], zorder=0, **line_style)
    else:
        curve = reference if len(reference.x) else theory
        axes.plot(curve.x, curve.mean, zorder=2, **line_style)


def _math(name: str) -> str:
    """The letters of a series as a formula."""
    if "$" not in name:
        letter = r"\b(alpha|gamma|eta|mu|k)\b(_\*)?([/=][\d./]+|=inf)?"
        name = re.sub(letter, r"$\\\1\2\3$", name)
    return name.replace(r"\k", "k").replace("inf$", r"\infty$")


def _axes(size: tuple[float, float], *shape: int, sharex: bool = False) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)  # no window, no global state: figures may be drawn in any thread
    panels = figure.subplots(*shape, sharex=sharex)
    return figure, np.ravel(panels)


def _select(table: Table, panel: str, series: str, kind: str) -> Curve:
    """One series, ordered by x."""
    columns = [table[name] for name in ("panel", "series", "kind", *Curve._fields)]
    rows = zip(*columns, strict=True)
    points = sorted(row[3:] for row in rows if row[:3] == (panel, series, kind))
    return Curve(*np.reshape(points, (-1, 3)).T)


def _look(color: str, style: str = "o-", face: str | None = None, **changes: Any) -> dict[str, Any]:
    """Style of a curve: colour, marker and line; `face` is the colour of the inside of the marker."""
    marker = {"marker": style[0], "mfc": face or color, "mew": 0.8, "ms": 3.2}
    line = {"color": color, "ls": style[1:] or "none", "lw": 1.1}
    return marker | line | changes


def _dashed(color: str = BLACK, ls: str = "--", lw: float = 0.9) -> dict[str, Any]:
    return {"color": color, "ls": ls, "lw": lw}


MEMBERS = {"xscale": "log", "xlabel": "members $k$"}
NOISE = {"xscale": "log", "xlabel": r"noise $\sigma$", "ylabel": "risk"}
GAMMAS = {"gamma=0.5": BLUE, "gamma=1": ORANGE, "gamma=2": GREEN}
COLORS_OF_COVARIANCES = {
    "identity": BLACK,
    "diagonal": GREY,
    "power-law": SKY,
    "ar1": BLUE,
    "equicorrelated": GREEN,
    "block": ORANGE,
    "spiked": PURPLE,
}
COMPARED = {name: _look(color, "o") for name, color in COLORS_OF_COVARIANCES.items()} | {
    "leave-one-out": _look(BLACK, "D", "white"),
    "GCV": _look(VERMILION, "D"),
}
DISTRIBUTIONS = ("gaussian", "rademacher", "student", "elliptical", "one-hot", "sparse")
COEFFICIENTS = ("gaussian", "fixed", "sparse", "aligned", "misaligned")
PLACES_OF_ROWS = {
    "xlabel": "rows",
    "xlim": (-0.5, 5.5),
    "xticks": range(6),
    "xticklabels": ["\n" * (place % 2) + name for place, name in enumerate(DISTRIBUTIONS)],
}
ALPHAS = {"alpha_*/2": BLUE, "alpha=1/2": VERMILION}
SAMPLED = {"all rows": ("o-", None), "few rows": ("s:", "white")}
SCALED = {"mu=1": ("o-", None), "best mu": ("s:", "white")}

PICTURES: Mapping[str, Picture] = {
    "figure2": Picture(
        size=(COLUMN_WIDTH, 3.1),
        panels=(("risk", {}),),
        curves={
            f"{gamma}, {rows}": _look(color, *SAMPLED[rows])
            for gamma, color in GAMMAS.items()
            for rows in SAMPLED
        }
        | {f"{gamma}, optimal ridge": _dashed(color) for gamma, color in GAMMAS.items()},
        axes={**MEMBERS, "yscale": "log", "ylabel": "risk"},
        legend_columns=2,
        key={
            **{gamma: {"color": color, "lw": 3} for gamma, color in GAMMAS.items()},
            "eta=1": _look(GREY, "o-"),
            r"$\eta=1.1\,\alpha\gamma$": _look(GREY, "s:", "white"),
            "optimal ridge": _dashed(GREY),
        },
    ),
    "figure3": Picture(
        size=(COLUMN_WIDTH, 4.6),
        panels=(
            ("alpha_*", {"title": r"$\alpha=\alpha_*$, best for $k=\infty$", "yscale": "log"}),
            ("alpha of k", {"title": r"$\alpha$ best for the $k$ at hand"}),
        ),
        curves={
            "k=20": _look(VERMILION),
            "k=100": _look(ORANGE, "s-"),
            "k=500": _look(BLUE, "^-"),
            "optimal ridge": _dashed(),
        },
        axes=NOISE,
    ),
    "figure4": Picture(
        size=(COLUMN_WIDTH, 2.7),
        panels=(("risk", {}),),
        curves={
            f"{alpha}, {mu}": _look(color, *SCALED[mu])
            for alpha, color in ALPHAS.items()
            for mu in SCALED
        }
        | {"optimal ridge": _dashed(GREY)},
        axes={**NOISE, "ylabel": r"risk, $k=\infty$", "ylim": (0, 1.3)},
        legend_location="upper left",
        legend_columns=2,
        key={
            r"$\alpha=\alpha_*/2$": {"color": BLUE, "lw": 3},
            "alpha=1/2": {"color": VERMILION, "lw": 3},
            "mu=1": _look(GREY),
            r"$\mu=\mu_*$": _look(GREY, "s:", "white"),
            "optimal ridge": _dashed(GREY),
        },
    ),
    "figure5": Picture(
        size=(COLUMN_WIDTH, 4.2),
        panels=(("bias", {"ylabel": "bias"}), ("variance", {"ylabel": "variance"})),
        curves={
            "independent members": _look(VERMILION),
            "balanced members": _look(BLUE, "s-", "white"),
            "k=inf": _dashed(),
        },
        axes=MEMBERS,
    ),
    "figure6": Picture(
        size=(COLUMN_WIDTH, 2.8),
        panels=(("risk", {}),),
        curves={
            "k=1": _look(VERMILION),
            "k=10": _look(ORANGE, "s-"),
            "k=inf": _look(BLUE, "^-"),
            "optimal ridge": _dashed(),
        },
        axes={
            "yscale": "log",
            "ylim": (0.4, 30),
            "xlabel": "columns in a member",
            "ylabel": "risk",
        },
    ),
    "figure7": Picture(
        size=(PAGE_WIDTH, 2.6),
        panels=(
            ("diagonal", {"title": "variances from 1 down to 0.01"}),
            ("ar1", {"title": "neighbours correlated"}),
        ),
        curves={
            "ensemble, uniform": _look(VERMILION),
            "ensemble, matched to ridge": _look(BLUE, "s-"),
            "ridge": _look(BLACK, "^--", "white", ms=5),
        },
        axes={"xlabel": "mean fraction of columns in a member", "ylabel": "risk"},
        legend_location="best",
    ),
    "figure8": Picture(
        size=(PAGE_WIDTH, 2.6),
        panels=(
            ("gamma=0.5", {"title": r"$\gamma=0.5$", "ylim": (0.3, 1.3)}),
            ("gamma=2", {"title": r"$\gamma=2$", "ylim": (0.5, 3.0)}),
        ),
        curves={
            "dropout": _look(VERMILION, "D-"),
            "dropout times alpha": _look(ORANGE, "^-"),
            "ridge, implied penalty": _look(BLACK, "s--", "white", ms=5),
            "ensemble, k=inf": _look(BLUE),
        },
        axes={"xlabel": r"$\alpha$", "ylabel": "risk"},
        legend_location="upper center",
        legend_columns=2,
    ),
    "figure9": Picture(
        size=(PAGE_WIDTH, 2.8),
        panels=(
            ("risk", {"ylim": (0, None)}),
            ("risk", {"yscale": "log"}),
        ),  # linear for many coefficients, log for ratios
        curves={
            "ensemble, size tuned": _look(VERMILION, lw=0.8),
            "ridge": _look(BLACK, "^-", "white", lw=0.8),
            "lasso": _look(PURPLE, "v-", "white", lw=0.8),
            "adaptive ensemble": _look(BLUE, "D-", lw=1.4),
            "coefficients known": _dashed(GREY, ":", 1.1),
            "optimal ridge": _dashed(GREY),
        },
        axes={"xscale": "log", "xlabel": "coefficients that are not zero", "ylabel": "risk"},
        legend_location="outside upper center",
        legend_columns=6,
    ),
    "figure10": Picture(
        size=(COLUMN_WIDTH, 3.1),
        panels=(("distance", {}),),
        curves={
            "balanced, uniform": _look(VERMILION),
            "balanced, same probabilities": _look(ORANGE, "s-"),
            "coin flips, same probabilities": _look(PURPLE, "v-"),
            "determinantal": _look(BLUE, "D-"),
        },
        axes={**MEMBERS, "yscale": "log", "ylabel": "distance from ridge regression"},
        legend_location="lower left",
    ),
    "figure11": Picture(
        size=(PAGE_WIDTH, 5.2),
        panels=(
            ("one member", {"title": "one member", **PLACES_OF_ROWS}),
            ("infinitely many members", {"title": "infinitely many members", **PLACES_OF_ROWS}),
            (
                "coefficients",
                {
                    "title": "infinitely many members, Gaussian rows",
                    "xlabel": "coefficients",
                    "xticks": range(5),
                    "xticklabels": COEFFICIENTS,
                    "xlim": (-0.5, 4.5),
                },
            ),
            ("error", {"title": "estimated over true error", "ylabel": "", **PLACES_OF_ROWS}),
        ),
        curves={"agreement": _dashed(GREY, "-")}
        | {
            f"{name}, {kind}": style
            for name, style in COMPARED.items()
            for kind in DISTRIBUTIONS + COEFFICIENTS
        },
        axes={"ylabel": "simulation over theory", "ylim": (0.8, 1.25)},
        legend_location="outside upper center",
        legend_columns=5,
        key=COMPARED,
    ),
}


def _draw_member(table: Table) -> Figure:
    """Figure 1: y = X beta with the member's rows, columns and coefficients marked."""
    from matplotlib.patches import Rectangle

    shape = _select(table, "member", "shape", "picture")
    n, p = shape.x[np.argsort(shape.mean)].astype(int).tolist()
    rows = _select(table, "member", "rows", "picture").x
    columns = _select(table, "member", "columns", "picture").x
    figure, (axes,) = _axes((COLUMN_WIDTH, 2.6), 1, 1)
    X_left = 3
    beta_left = p + 5
    beta_top = (n - p) / 2

    def square(x: float, y: float, color: str, **style: Any) -> None:
        look: dict[str, Any] = {"edgecolor": "#555555", "lw": 0.5} | style
        axes.add_patch(Rectangle((x, -y - 1), 1, 1, facecolor=color, **look))

    def label(x: float, y: float, text: str, color: str = BLACK) -> None:
        is_note = color != BLACK
        size = 7 if is_note else 10
        va = "top" if is_note else "bottom"
        axes.text(x, y, text, ha="center", va=va, fontsize=size, color=color)

    for i in range(n):
        square(0, i, VERMILION if i in rows else "white")
        for j in range(p):
            square(X_left + j, i, "#D6ECF9" if j in columns else "white")
            if i in rows and j in columns:
                square(X_left + j, i, SKY, edgecolor=BLUE, hatch="xxxxx", lw=0.3)
    for j in range(p):
        square(beta_left, beta_top + j, GREEN if j in columns else "white")
    X_middle = X_left + p / 2
    label(0.5, 0.4, "$y$")
    label(X_middle, 0.4, "$X$")
    label(beta_left + 0.5, 0.4 - beta_top, r"$\hat\beta^{(i)}$")
    label(2, -n / 2 - 0.5, r"$\approx$")
    label(beta_left - 1, -n / 2 - 0.5, r"$\times$")
    label(0.5, -n - 0.4, "rows\n$T_i$", VERMILION)
    label(X_middle, -n - 0.4, "columns $S_i$\nhatched: used in the fit", BLUE)
    label(beta_left + 0.5, -beta_top - p - 0.4, "$S_i$", GREEN)
    axes.set(xlim=(-1, p + 7.2), ylim=(-n - 2.6, 1.8), aspect="equal")
    axes.axis("off")
    return figure
