"""Where displays draw: new axes or the user's own, colours, and numbers on logarithmic axes.

Colours are those of the figures, told apart with any colour vision; markers and line styles say the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._execution.extras import from_extra
from ..figures.draw import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION

__all__ = ["FEW", "PALE", "SERIES", "as_text", "legend_above", "one_axes", "plain_log", "tidy", "two_axes"]

PALE = "#B3D3E8"  # BLUE at a third, for what stands behind
SERIES = (
    (VERMILLION, "o", "-"), (ORANGE, "s", "--"), (GREEN, "^", "-."),
    (BLUE, "D", "-"), (PURPLE, "v", ":"), (GREY, "P", "--"),
)  # fmt: skip
SIZE = (6.0, 4.0)  # inches
FEW = 12  # points of a curve that are marked one by one


def _new_panels(
    columns: int = 1,
    rows: int = 1,
    widths: Sequence[float] | None = None,
    heights: Sequence[float] | None = None,
    size: Any = SIZE,
) -> tuple[Any, Any]:
    """A new figure and its axes, as an array."""
    plt = from_extra("matplotlib.pyplot", "plot", "Drawing a display")
    figure, axes = plt.subplots(
        rows, columns, figsize=size, layout="constrained", width_ratios=widths, height_ratios=heights
    )
    return figure, np.atleast_1d(axes).ravel()


def one_axes(ax: Any) -> tuple[Any, Any]:
    """A figure with one axes: the given one, or a new one."""
    if ax is None:
        figure, axes = _new_panels()
        return figure, axes[0]
    from_extra("matplotlib.pyplot", "plot", "Drawing a display")
    if not hasattr(ax, "plot"):
        raise ValueError(
            f"ax={ax!r:.60} must be one Axes, as plt.subplots() makes it (or two, for displays of two panels), or None "
            f"for a new figure."
        )
    return ax.figure, ax


def two_axes(ax: Any, second: bool, **panels: Any) -> tuple[Any, Any, Any]:
    """A figure with one or two axes: new ones, the given ones, or the one given; None where there is no second.

    Of two given ones the second is left empty where there is nothing to draw on it. `panels` are those of new figures.
    """
    if ax is None and second:
        figure, (first, other) = _new_panels(**panels)
        return figure, first, other
    if np.ndim(ax) == 1 and len(ax) == 2:
        figure, first = one_axes(ax[0])
        return figure, first, one_axes(ax[1])[1] if second else None
    return *one_axes(ax), None


def tidy(ax: Any, **texts: Any) -> None:
    """Take away two spines, which carry no numbers, and set labels."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(**texts)


def legend_above(ax: Any, columns: int, **how: Any) -> None:
    """A legend that cannot hide anything; the layout of our own figures makes room for it."""
    ax.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, fontsize="small", frameon=False, borderaxespad=0.2,
        columnspacing=1.2, handlelength=1.6, **how,
    )  # fmt: skip


def as_text(names: Any) -> list[str]:
    """Names as labels: a dollar sign is one, and does not begin a formula."""
    return [str(name).replace("$", r"\$") for name in names]


def plain_log(axis: Any) -> None:
    """Labels such as 0.5 and 20 instead of powers of ten."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(lambda value, position: "")
