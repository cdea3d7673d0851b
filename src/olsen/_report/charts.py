"""Draw small charts as SVG: lines, bands and points on axes, and rows of bars or dots with error
bars.

The report must open without a plotting library or a network; a few simple charts need neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape as escape_html
from typing import NamedTuple

from .formatting import columns_of, escape_control, shortened

Limits = tuple[float, float]
Ticks = list[tuple[float, str]]


class Frame(NamedTuple):
    """Edges of the rectangle between the axes, in units of the SVG view box."""

    left: float
    right: float
    top: float
    bottom: float


WIDTH = 460  # of every chart, in units of the SVG view box
FRAME = Frame(left=62, right=446, top=12, bottom=256)
ROW_HEIGHT = 22


class Row(NamedTuple):
    """Bar or dot with an error bar of two standard errors on both sides, labels on the right, and
    whether the row is in bold.
    """

    name: str
    value: float | None
    standard_error: float | None
    labels: tuple[str, ...]
    best: bool = False


def escape(text: object) -> str:
    """Escape markup for an HTML page, and control characters, which may reverse the direction of
    writing.
    """
    return escape_html(escape_control(text))


def element(tag: str, content: str = "", **attributes: str | float | None) -> str:
    """Format an element whose content is markup; attributes are escaped, and left out if None.

    >>> element("line", class_="grid", x1=0.25, text_anchor="end")
    '<line class="grid" x1="0.2" text-anchor="end"></line>'
    """
    strings = [
        f' {name.rstrip("_").replace("_", "-")}="'
        f'{f"{value:.1f}" if isinstance(value, float) else escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    ]
    return f"<{tag}{''.join(strings)}>{content}</{tag}>"


class Axis:
    """Map from values to coordinates between two positions, with a margin at both ends.

    Parameters
    ----------
    limits : pair of float
        Smallest and largest value; equal limits are moved apart.
    start, end : float
        Coordinates of the ends of the axis.
    log : bool, default=False
        Whether the axis is logarithmic.
    """

    def __init__(self, limits: Limits, start: float, end: float, log: bool = False) -> None:
        self.start = start
        self.end = end
        self.log = log
        low = self._scaled(limits[0])
        high = self._scaled(limits[1])
        if not low < high:
            shift = 0.5 * (abs(low) or 1.0)
            low -= shift
            high += shift
        margin = 0.04 * (high - low)
        self.low = low - margin
        self.high = high + margin

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def __call__(self, value: float) -> float:
        """Coordinate of a value."""
        fraction = (self._scaled(value) - self.low) / (self.high - self.low)
        # browsers refuse huge coordinates, even clipped ones
        fraction = min(1e5, max(-1e5, fraction))
        return float(self.start + fraction * (self.end - self.start))

    def ticks(self, max_ticks: int = 8) -> Ticks:
        """Round values on the axis, and their labels."""
        if self.log:
            return _log_ticks(self.low, self.high)
        return linear_ticks(self.low, self.high, max_ticks)


class Chart:
    """Chart with one pair of axes; marks are drawn in the order they are added, and clipped to the
    frame.

    Parameters
    ----------
    title : str
        Title for screen readers.
    labels : pair of str
        Names of the horizontal and the vertical axis.
    x_range, y_range : pair of float
        Limits of the axes.
    x_log : bool, default=False
        Whether the horizontal axis is logarithmic.
    """

    def __init__(
        self,
        title: str,
        labels: tuple[str, str],
        x_range: Limits,
        y_range: Limits,
        x_log: bool = False,
    ) -> None:
        self.title = title
        self.labels = labels
        self.x = Axis(x_range, FRAME.left, FRAME.right, x_log)
        self.y = Axis(y_range, FRAME.bottom, FRAME.top)
        self.marks: list[str] = []

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """Add straight lines between points, interrupted where a value is not finite."""
        for run in _finite_runs(zip(xs, ys, strict=True)):
            self.marks.append(element("polyline", class_=style, points=self._points(run)))

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
        """Add the area between two curves."""
        for run in _finite_runs(zip(xs, low, high, strict=True)):
            upper = [(x, top) for x, _, top in run]
            lower = [(x, bottom) for x, bottom, _ in reversed(run)]
            outline = self._points(upper + lower)
            self.marks.append(element("polygon", class_="band", points=outline))

    def dots(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Add points."""
        circles = [
            element("circle", cx=self.x(x), cy=self.y(y), r=2.2)
            for x, y in zip(xs, ys, strict=True)
        ]
        self.marks.append(element("g", "".join(circles), class_="dots"))

    def mark(self, x: float, text: str) -> None:
        """Add a vertical line with a label beside it."""
        position = self.x(x)
        self.marks.append(_vertical("chosen", position, FRAME.top, FRAME.bottom))
        if position > 0.7 * WIDTH:
            self.marks.append(_text(position - 5, FRAME.top + 12, text, "end"))
        else:
            self.marks.append(_text(position + 5, FRAME.top + 12, text, "start"))

    def render(self) -> str:
        """Return the chart as an svg element."""
        left, right, top, bottom = FRAME
        parts = [_grid(self.x, self.x.ticks(), top, bottom)]
        for value, text in self.y.ticks():
            y = self.y(value)
            parts.append(element("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
            parts.append(_text(left - 5, y + 4, text, "end"))
        parts.append(_text((left + right) / 2, bottom + 37, self.labels[0], "middle", "label"))
        parts.append(
            element(
                "text",
                escape(self.labels[1]),
                class_="label",
                transform=f"translate(13 {(top + bottom) / 2}) rotate(-90)",
                text_anchor="middle",
            )
        )
        clip = "inside-" + re.sub(r"\W+", "-", self.title.lower())
        rectangle = element("rect", x=left, y=top, width=right - left, height=bottom - top)
        parts.append(element("clipPath", rectangle, id=clip))
        parts.append(element("g", "".join(self.marks), clip_path=f"url(#{clip})"))
        return _svg(self.title, bottom + 44, parts)

    def _points(self, pairs: Iterable[Sequence[float]]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in pairs)


def row_chart(
    title: str,
    rows: Sequence[Row],
    label: str,
    *,
    origin: float,
    max_value: float = math.inf,
    heading: Sequence[str] = (),
) -> str:
    """Draw one row for each value: bars from zero, or dots beside a line at another `origin`, with
    error bars.

    Parameters
    ----------
    title : str
        Title for screen readers.
    rows : sequence of Row
        Rows from top to bottom.
    label : str
        Label of the axis.
    origin : float
        Start of the bars if it is zero, and the reference line of dots otherwise.
    max_value : float
        Larger values are arrows at the right end.
    heading : sequence of str
        Headings of the labels on the right.
    """
    name_end = 126  # where the names beside the rows end
    label_ends = [WIDTH - 2 - 56 * j for j in reversed(range(len(rows[0].labels)))]
    top = 20 if heading else 8
    bottom = top + ROW_HEIGHT * len(rows)
    ends = [origin]
    for row in rows:
        if row.value is not None:
            half_width = 2 * (row.standard_error or 0.0)
            ends += [row.value - half_width, row.value + half_width]
    ends = [min(max_value, end) for end in ends]
    x = Axis((min(ends), max(ends)), name_end + 6, label_ends[0] - 66)
    parts = [_grid(x, x.ticks(6), top, bottom)]
    for end, text in zip(label_ends, heading, strict=False):
        parts.append(_text(end, 13, text, "end"))
    for i, row in enumerate(rows):
        y = top + (i + 0.5) * ROW_HEIGHT
        style = "best" if row.best else "tick"
        parts.append(_name(row.name, name_end, y + 4, style))
        for end, text in zip(label_ends, row.labels, strict=True):
            parts.append(_text(end, y + 4, text, "end", f"{style} number"))
        if row.value is not None:
            tooltip = _tooltip(row)
            kind = "minus" if i else "plus"  # the first row is the reference
            if origin == 0:
                parts.append(_bar(x(0.0), x(row.value), y, row.value < 0, tooltip))
            elif row.value > max_value:
                parts.append(_arrow(x(max_value), y, kind, tooltip))
            else:
                parts.append(element("circle", tooltip, class_=kind, cx=x(row.value), cy=y, r=4.5))
            if row.standard_error is not None and row.value <= max_value:
                low = x(row.value - 2 * row.standard_error)
                high = x(min(row.value + 2 * row.standard_error, max_value))
                parts.append(element("line", class_="whisker", x1=low, x2=high, y1=y, y2=y))
    parts.append(_vertical("chosen" if origin else "axis", x(origin), top, bottom))
    middle = (name_end + label_ends[0] - 54) / 2
    parts.append(_text(middle, bottom + 31, label, "middle", "label"))
    return _svg(title, bottom + 36, parts)


def _bar(start: float, end: float, y: float, is_negative: bool, tooltip: str) -> str:
    return element(
        "rect",
        tooltip,
        class_="minus" if is_negative else "plus",
        x=min(start, end),
        y=y - 7,
        width=max(abs(end - start), 0.5),
        height=14,
    )


def _arrow(tip: float, y: float, kind: str, tooltip: str) -> str:
    """Arrow that leaves the frame, for a value beyond it; its shaft is broken."""
    head = f"{tip - 9:.1f},{y - 5:.1f} {tip:.1f},{y:.1f} {tip - 9:.1f},{y + 5:.1f}"
    shaft = element("line", class_="whisker broken", x1=tip - 34, x2=tip - 9, y1=y, y2=y)
    return shaft + element("polygon", tooltip, class_=kind, points=head)


def _tooltip(row: Row) -> str:
    error = row.standard_error
    uncertainty = "" if error is None else f" ± {2 * error:.2g}"
    return element("title", escape(f"{row.name}: {row.value:.4g}{uncertainty}"))


def _svg(title: str, height: float, parts: list[str]) -> str:
    content = element("title", escape(title)) + "".join(parts)
    return element("svg", content, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=title)


def _text(x: float, y: float, text: str, anchor: str, style: str = "tick") -> str:
    return element("text", escape(text), class_=style, x=x, y=y, text_anchor=anchor)


def _vertical(style: str, x: float, top: float, bottom: float) -> str:
    return element("line", class_=style, x1=x, x2=x, y1=top, y2=bottom)


def _grid(x: Axis, ticks: Ticks, top: float, bottom: float) -> str:
    parts = []
    for value, text in ticks:
        parts.append(_vertical("grid", x(value), top, bottom))
        parts.append(_text(x(value), bottom + 14, text, "middle"))
    return "".join(parts)


def _name(name: str, right: float, y: float, style: str) -> str:
    """Draw a name that ends at `right`; a long name loses its middle, and is shown in full as a
    tooltip.
    """
    short_name = shortened(name, 17)
    if columns_of(short_name) + sum(letter in "MWmw@%" for letter in short_name) > 17:
        short_name = shortened(name, 8)  # wide letters take the place of two
    content = element("title", escape(shortened(name, 300))) + escape_html(short_name)
    return element("text", content, class_=style, x=right, y=y, text_anchor="end")


def _finite_runs(points: Iterable[tuple[float, ...]]) -> list[list[tuple[float, ...]]]:
    """Split points where a coordinate is not finite."""
    runs: list[list[tuple[float, ...]]] = [[]]
    for point in points:
        if all(map(math.isfinite, point)):
            runs[-1].append(point)
        else:
            runs.append([])
    return [run for run in runs if run]


def _log_ticks(low: float, high: float) -> Ticks:
    """Powers of ten, with multiples on a short axis, between two logarithms."""
    multiples = (1, 2, 5) if high - low < 2 else (1,)
    exponents = range(math.floor(low), math.ceil(high))
    values = [multiple * 10.0**exponent for exponent in exponents for multiple in multiples]
    return [(value, f"{value:g}") for value in values if low <= math.log10(value) <= high]


def linear_ticks(low: float, high: float, max_ticks: int = 8) -> Ticks:
    """Round values between the limits, and labels with equally many decimals.

    >>> linear_ticks(0, 1, 5)
    [(0.0, '0.0'), (0.2, '0.2'), (0.4, '0.4'), (0.6000000000000001, '0.6'), (0.8, '0.8'), (1.0,
    '1.0')]
    """
    min_step = (high - low) / max_ticks
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= min_step)
    values = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    step_exponent = math.floor(math.log10(step) + 1e-9)
    exponent = math.floor(math.log10(max(map(abs, values)) or 1.0) + 1e-9)
    if exponent >= 6 or step_exponent < -4:  # scientific notation with a common power of ten
        digits = [f"{value / 10.0**exponent:.{exponent - step_exponent}f}" for value in values]
        labels = [f"{digit}e{exponent}" for digit in digits]
    else:
        labels = [f"{value:.{max(0, -step_exponent)}f}" for value in values]
    labels = [label.replace("-", "\N{MINUS SIGN}") for label in labels]
    return list(zip(values, labels, strict=True))
