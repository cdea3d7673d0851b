"""Draw small charts as SVG: lines, bands and points on axes, and rows of bars or dots with error
bars.

The report must open without a plotting library or a network; a few simple charts need neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape as escape_html
from typing import NamedTuple

from .formatting import columns_of, escape_control, shortened

Limits = tuple[float, float]

# sizes in units of the SVG view box
WIDTH = 460
HEIGHT = 300
LEFT = 62  # margins around the axes
RIGHT = 14
TOP = 12
BOTTOM = 44
NAME_WIDTH = 132  # of the names beside the rows of a row chart
VALUE_WIDTH = 56  # of each label on the right of a row
ROW_HEIGHT = 22


class Row(NamedTuple):
    """Bar or dot: name, value, half width of the error bar, labels on the right, and whether the
    row is in bold.
    """

    name: str
    value: float | None
    half_width: float | None
    labels: tuple[str, ...]
    best: bool = False


def escape(text: object) -> str:
    """Escape markup for an HTML page, and control characters, which may reverse the direction of
    writing.
    """
    return escape_html(escape_control(text))


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
        self.x_log = x_log
        self.x_range = _widen(x_range, x_log)
        self.y_range = _widen(y_range, False)
        self.marks: list[str] = []

    def x(self, value: float) -> float:
        """Coordinate of a value on the horizontal axis."""
        return LEFT + _fraction(value, self.x_range, self.x_log) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Coordinate of a value on the vertical axis."""
        return HEIGHT - BOTTOM - _fraction(value, self.y_range, False) * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """Add straight lines between points, interrupted where a value is not finite."""
        for piece in _finite_runs(zip(xs, ys, strict=True)):
            self.marks.append(f'<polyline class="{style}" points="{self._points(piece)}"/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
        """Add the area between two curves."""
        for piece in _finite_runs(zip(xs, low, high, strict=True)):
            outline = [(x, top) for x, _, top in piece] + [
                (x, bottom) for x, bottom, _ in piece[::-1]
            ]
            self.marks.append(f'<polygon class="band" points="{self._points(outline)}"/>')

    def dots(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Add points."""
        circles = (
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="2.2"/>'
            for x, y in zip(xs, ys, strict=True)
        )
        self.marks.append(f'<g class="dots">{"".join(circles)}</g>')

    def mark(self, x: float, text: str) -> None:
        """Add a vertical line with a label beside it."""
        line_x = self.x(x)
        shift, anchor = (-5, "end") if line_x > WIDTH * 0.7 else (5, "start")
        label = _text(line_x + shift, TOP + 12, text, anchor)
        self.marks.append(_vertical("chosen", line_x, TOP, HEIGHT - BOTTOM) + label)

    def render(self) -> str:
        """Return the chart as an svg element."""
        clip_name = "inside-" + re.sub(r"\W+", "-", self.title.lower())
        bottom = HEIGHT - BOTTOM
        right = WIDTH - RIGHT
        frame = [_grid(self.x, _ticks(self.x_range, self.x_log), TOP, bottom)]
        for value, text in _ticks(self.y_range, False):
            y = self.y(value)
            frame.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            frame.append(_text(LEFT - 5, y + 4, text, "end"))
        frame.append(_text((LEFT + right) / 2, HEIGHT - 7, self.labels[0], "middle", "label"))
        rotation = f"translate(13 {(TOP + bottom) / 2}) rotate(-90)"
        y_label = escape(self.labels[1])
        frame.append(
            f'<text class="label" transform="{rotation}" text-anchor="middle">{y_label}</text>'
        )
        rectangle = f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"/>'
        clip_path = f'<clipPath id="{clip_name}">{rectangle}</clipPath>'
        clipped_marks = f'<g clip-path="url(#{clip_name})">{"".join(self.marks)}</g>'
        return _svg(self.title, HEIGHT, clip_path + "".join(frame) + clipped_marks)

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
        Larger values are drawn at the right end.
    heading : sequence of str
        Headings of the labels on the right.
    """
    right = WIDTH - VALUE_WIDTH * len(rows[0].labels)
    top = 20 if heading else 8
    bottom = top + ROW_HEIGHT * len(rows)
    are_bars = origin == 0
    ends = []
    for row in rows:
        if row.value is not None:
            half_width = row.half_width or 0.0
            ends += [min(max_value, row.value - half_width), min(max_value, row.value + half_width)]
    limits = _widen((min(origin, *ends), max(origin, *ends)), False)

    def x(value: float) -> float:
        return NAME_WIDTH + min(1.0, max(0.0, _fraction(value, limits, False))) * (
            right - NAME_WIDTH - 12
        )

    parts = [_grid(x, _ticks(limits, False, 6), top, bottom)]
    for j, text in enumerate(heading):
        parts.append(_text(right + VALUE_WIDTH * (j + 1) - 2, 13, text, "end"))
    for i, (name, value, row_half_width, row_labels, best) in enumerate(rows):
        y = top + (i + 0.5) * ROW_HEIGHT
        style = "best" if best else "tick"
        parts.append(_name(name, NAME_WIDTH - 6, y + 4, style))
        for j, text in enumerate(row_labels):
            parts.append(
                _text(right + VALUE_WIDTH * (j + 1) - 2, y + 4, text, "end", f"{style} number")
            )
        if value is None:
            continue
        uncertainty = "" if row_half_width is None else f" ± {row_half_width:.2g}"
        tooltip = f"<title>{escape(name)}: {value:.4g}{uncertainty}</title>"
        if are_bars:
            start, end = sorted((x(0.0), x(value)))
            sign = "minus" if value < 0 else "plus"
            geometry = (
                f'x="{start:.1f}" y="{y - 7}" width="{max(end - start, 0.5):.1f}" height="14"'
            )
            parts.append(f'<rect class="{sign}" {geometry}>{tooltip}</rect>')
        else:
            kind = "plus" if i == 0 else "minus"
            parts.append(
                f'<circle class="{kind}" cx="{x(value):.1f}" cy="{y}" r="4.5">{tooltip}</circle>'
            )
        if row_half_width is not None:
            low = x(value - row_half_width)
            high = x(value + row_half_width)
            caps = f"M{low:.1f} {y - 3} V{y + 3} M{high:.1f} {y - 3} V{y + 3}"
            parts.append(f'<path class="whisker" d="M{low:.1f} {y} H{high:.1f} {caps}"/>')
    parts.append(_vertical("axis" if are_bars else "chosen", x(origin), top, bottom))
    parts.append(_text((NAME_WIDTH + right) / 2, bottom + 31, label, "middle", "label"))
    return _svg(title, bottom + 36, "".join(parts))


def _svg(title: str, height: float, content: str) -> str:
    safe_title = escape(title)
    attributes = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{safe_title}"'
    return f"<svg {attributes}><title>{safe_title}</title>{content}</svg>"


def _text(x: float, y: float, text: str, anchor: str, style: str = "tick") -> str:
    return (
        f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


def _vertical(style: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'


def _grid(
    x: Callable[[float], float], ticks: list[tuple[float, str]], top: float, bottom: float
) -> str:
    parts = []
    for value, text in ticks:
        parts.append(_vertical("grid", x(value), top, bottom))
        parts.append(_text(x(value), bottom + 14, text, "middle"))
    return "".join(parts)


def _name(name: str, right: int, y: float, style: str) -> str:
    """Draw a name that ends at `right`; a long name loses its middle, and is shown in full as a
    tooltip.
    """
    short_name = shortened(name, 17)
    while (
        columns_of(short_name) + sum(c in "MWmw@%" for c in short_name) > 17 and len(short_name) > 3
    ):  # too wide
        short_name = shortened(name, len(short_name) - 1)
    tooltip = f"<title>{escape(shortened(name, 300))}</title>"
    return (
        f'<text class="{style}" x="{right}" y="{y}"'
        f' text-anchor="end">{tooltip}{escape_html(short_name)}</text>'
    )


def _fraction(value: float, limits: Limits, log: bool) -> float:
    """Position of a value between two limits: 0 at the lower limit, 1 at the upper limit."""
    low, high = limits
    if log:
        low = math.log(low)
        high = math.log(high)
        value = math.log(max(value, 1e-300))
    return min(
        1e5, max(-1e5, (value - low) / (high - low))
    )  # browsers refuse huge coordinates, even clipped ones


def _finite_runs(points: Iterable[tuple[float, ...]]) -> list[list[tuple[float, ...]]]:
    runs: list[list[tuple[float, ...]]] = [[]]
    for point in points:
        if all(map(math.isfinite, point)):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _widen(limits: Limits, log: bool) -> Limits:
    """Add a margin to limits; equal limits are moved apart first."""
    low, high = limits
    if log:
        if not low < high:
            low /= 2
            high *= 2
        margin_factor = (high / low) ** 0.04
        return low / margin_factor, high * margin_factor
    if not low < high:
        low -= 0.5 * (abs(low) or 1.0)
        high += 0.5 * (abs(high) or 1.0)
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _ticks(limits: Limits, log: bool, max_ticks: int = 8) -> list[tuple[float, str]]:
    """Round values between the limits, and labels with equally many decimals.

    >>> _ticks((0, 1), False, 5)
    [(0.0, '0.0'), (0.2, '0.2'), (0.4, '0.4'), (0.6000000000000001, '0.6'), (0.8, '0.8'), (1.0,
    '1.0')]
    """
    low, high = limits
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        values = [m * 10.0**e for e in powers for m in ((1,) if high / low > 100 else (1, 2, 5))]
        values = [value for value in values if low <= value * 1.0001 and value <= high * 1.0001]
        if high / low > 100 or not values:
            return [(value, f"{value:g}") for value in values]
        step = min(values)
    else:
        min_step = (high - low) / max_ticks
        power = 10.0 ** math.floor(math.log10(min_step))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= min_step)
        values = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    step_exponent = math.floor(math.log10(step) + 1e-9)
    exponent = math.floor(math.log10(max(map(abs, values)) or 1.0) + 1e-9)
    if exponent >= 6 or step_exponent < -4:  # scientific notation with a common power of ten
        decimals = exponent - step_exponent
        labels = [
            f"{value / 10.0**exponent:.{decimals}f}e{exponent}" if value else "0"
            for value in values
        ]
    else:
        labels = [f"{value:.{max(0, -step_exponent)}f}" for value in values]
    return [
        (value, label.replace("-", "\N{MINUS SIGN}"))
        for value, label in zip(values, labels, strict=True)
    ]
