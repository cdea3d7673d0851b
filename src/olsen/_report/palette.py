"""Colours of all figures and displays, and the labels of their logarithmic axes.

The colours of Okabe and Ito are distinguishable with any colour vision. Markers and line styles
repeat the distinction, so that pictures survive grey printing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis

BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#777777"
PALE = "#B3D3E8"  # BLUE at a third, for areas behind lines and points


def label_plainly(axis: Axis) -> None:
    """Label a logarithmic axis by numbers such as 0.5 and 20, not powers of ten.

    An axis of few decades has labels between the powers of ten, too.
    """
    from matplotlib.ticker import LogLocator

    low, high = axis.get_view_interval()
    multiples = (1.0, 2.0, 5.0) if high < 60 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=multiples))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(lambda value, position: "")
