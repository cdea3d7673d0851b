"""Small charts as SVG text: lines, bands and points on axes, and rows of bars or dots with error bars.

The report must open anywhere, without a plotting library or a network; a few simple charts do not need one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape as escape_html
from typing import NamedTuple

from .formatting import columns_of, escape_control, shortened

Limits = tuple[float, float]

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 44  # margins around the axes
NAMES, VALUES, ROW = 132, 56, 22  # widths of the names and of each text beside a row, and the height of a row


class Row(NamedTuple):
    """A bar or dot: name, value, half width of its error bar, texts on the right, and whether it is emphasised."""

    name: str
    value: float | None
    half: float | None
    texts: tuple[str, ...]
    best: bool = False


def escape(text: object) -> str:
    """A text for a page: without markup, and with control characters visible (they may reverse the direction)."""
    return escape_html(escape_control(text))


class Chart:
    """One pair of axes; marks are drawn in the order they are added, and clipped to the frame.

    Parameters
    ----------
    title : str
        What the chart shows, for screen readers.
    labels : pair of str
        Names of the horizontal and the vertical axis.
    x_range, y_range : pair of float
        Limits.
    x_log : bool, default=False
        Whether an axis is logarithmic.
    """

    def __init__(
        self, title: str, labels: tuple[str, str], x_range: Limits, y_range: Limits, x_log: bool = False,
    ) -> None:  # fmt: skip
        self.title, self.labels, self.x_log = title, labels, x_log
        self.x_range, self.y_range = _widen(x_range, x_log), _widen(y_range, False)
        self.marks: list[str] = []

    def x(self, value: float) -> float:
        """Coordinate of a value on the horizontal axis."""
        return LEFT + _share(value, self.x_range, self.x_log) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Coordinate of a value on the vertical axis."""
        return HEIGHT - BOTTOM - _share(value, self.y_range, False) * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """Straight pieces between points; where a value is not finite there is a gap."""
        for piece in _finite_runs(zip(xs, ys, strict=True)):
            self.marks.append(f'<polyline class="{style}" points="{self._points(piece)}"/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
        """The area between two curves."""
        for piece in _finite_runs(zip(xs, low, high, strict=True)):
            around = [(x, top) for x, _, top in piece] + [(x, bottom) for x, bottom, _ in piece[::-1]]
            self.marks.append(f'<polygon class="band" points="{self._points(around)}"/>')

    def dots(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Points."""
        circles = (f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="2.2"/>' for x, y in zip(xs, ys, strict=True))
        self.marks.append(f'<g class="dots">{"".join(circles)}</g>')

    def mark(self, x: float, text: str) -> None:
        """A vertical line with a label beside it."""
        at = self.x(x)
        shift, anchor = (-5, "end") if at > WIDTH * 0.7 else (5, "start")
        self.marks.append(_vertical("chosen", at, TOP, HEIGHT - BOTTOM) + _text(at + shift, TOP + 12, text, anchor))

    def render(self) -> str:
        """The chart as an svg element."""
        name = "inside-" + re.sub(r"\W+", "-", self.title.lower())
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        frame = [_grid(self.x, _ticks(self.x_range, self.x_log), TOP, bottom)]
        for value, text in _ticks(self.y_range, False):
            at = self.y(value)
            frame.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            frame.append(_text(LEFT - 5, at + 4, text, "end"))
        frame.append(_text((LEFT + right) / 2, HEIGHT - 7, self.labels[0], "middle", "label"))
        frame.append(f'<text class="label" transform="translate(13 {(TOP + bottom) / 2}) rotate(-90)" '
                     f'text-anchor="middle">{escape(self.labels[1])}</text>')  # fmt: skip
        clip = f'x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}"'
        inner = f'<clipPath id="{name}"><rect {clip}/></clipPath>{"".join(frame)}'
        return _svg(self.title, HEIGHT, f'{inner}<g clip-path="url(#{name})">{"".join(self.marks)}</g>')

    def _points(self, pairs: Iterable[Sequence[float]]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in pairs)


def row_chart(
    title: str, rows: Sequence[Row], label: str, *, origin: float, most: float = math.inf, heading: Sequence[str] = ()
) -> str:
    """One row for each value: bars from zero, or dots beside a line at another `origin`, with their error bars.

    Parameters
    ----------
    title : str
        What is shown, for screen readers.
    rows : sequence of Row
        From top to bottom.
    label : str
        Of the axis.
    origin : float
        Where bars begin if it is zero, and the reference line of dots otherwise.
    most : float
        Larger values are drawn at the right end.
    heading : sequence of str
        Above the texts on the right.
    """
    right, top = WIDTH - VALUES * len(rows[0].texts), 20 if heading else 8
    bottom, are_bars = top + ROW * len(rows), origin == 0
    shown = [row for row in rows if row.value is not None]
    ends = [min(most, (row.value or 0.0) + sign * (row.half or 0.0)) for row in shown for sign in (-1, 1)]
    limits = _widen((min(origin, *ends), max(origin, *ends)), False)

    def x(value: float) -> float:
        return NAMES + min(1.0, max(0.0, _share(value, limits, False))) * (right - NAMES - 12)

    parts = [_grid(x, _ticks(limits, False, 6), top, bottom)]
    parts += [_text(right + VALUES * (i + 1) - 2, 13, text, "end") for i, text in enumerate(heading)]
    for i, (name, value, half, texts, best) in enumerate(rows):
        y, style = top + (i + 0.5) * ROW, "best" if best else "tick"
        parts.append(_name(name, NAMES - 6, y + 4, style))
        parts += [_text(right + VALUES * (j + 1) - 2, y + 4, text, "end", f"{style} number")
                  for j, text in enumerate(texts)]  # fmt: skip
        if value is None:
            continue
        about = f"<title>{escape(name)}: {value:.4g}{'' if half is None else f' ± {half:.2g}'}</title>"
        if are_bars:
            (start, end), sign = sorted((x(0.0), x(value))), "minus" if value < 0 else "plus"
            parts.append(f'<rect class="{sign}" x="{start:.1f}" y="{y - 7}" width="{max(end - start, 0.5):.1f}" '
                         f'height="14">{about}</rect>')  # fmt: skip
        else:
            kind = "plus" if i == 0 else "minus"
            parts.append(f'<circle class="{kind}" cx="{x(value):.1f}" cy="{y}" r="4.5">{about}</circle>')
        if half is not None:
            low, high = x(value - half), x(value + half)
            caps = f"M{low:.1f} {y - 3} V{y + 3} M{high:.1f} {y - 3} V{y + 3}"
            parts.append(f'<path class="whisker" d="M{low:.1f} {y} H{high:.1f} {caps}"/>')
    parts.append(_vertical("axis" if are_bars else "chosen", x(origin), top, bottom))
    parts.append(_text((NAMES + right) / 2, bottom + 31, label, "middle", "label"))
    return _svg(title, bottom + 36, "".join(parts))


def _svg(title: str, height: float, inner: str) -> str:
    shown = escape(title)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{shown}"><title>{shown}</title>{inner}</svg>'


def _text(x: float, y: float, text: str, anchor: str, style: str = "tick") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _vertical(style: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'


def _grid(x: Callable[[float], float], ticks: list[tuple[float, str]], top: float, bottom: float) -> str:
    return "".join(
        _vertical("grid", x(value), top, bottom) + _text(x(value), bottom + 14, text, "middle") for value, text in ticks
    )


def _name(name: str, right: int, y: float, style: str) -> str:
    """A name that ends at `right`, one too long without its middle; the whole is shown when the pointer rests on it."""
    shown = shortened(name, 17)
    while columns_of(shown) + sum(c in "MWmw@%" for c in shown) > 17 and len(shown) > 3:  # too wide
        shown = shortened(name, len(shown) - 1)
    whole = f"<title>{escape(shortened(name, 300))}</title>"
    return f'<text class="{style}" x="{right}" y="{y}" text-anchor="end">{whole}{escape_html(shown)}</text>'


def _share(value: float, limits: Limits, log: bool) -> float:
    """Where a value lies between two limits: 0 at the lower, 1 at the upper one."""
    low, high = limits
    if log:
        low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
    return min(1e5, max(-1e5, (value - low) / (high - low)))  # browsers refuse huge coordinates, cut off or not


def _finite_runs(points: Iterable[tuple[float, ...]]) -> list[list[tuple[float, ...]]]:
    runs: list[list[tuple[float, ...]]] = [[]]
    for point in points:
        if all(map(math.isfinite, point)):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _widen(limits: Limits, log: bool) -> Limits:
    """Limits with a margin; equal ones are moved apart."""
    low, high = limits
    if log:
        low, high = (low, high) if low < high else (low / 2, high * 2)
        return low / (high / low) ** 0.04, high * (high / low) ** 0.04
    if not low < high:
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


def _ticks(limits: Limits, log: bool, most: int = 8) -> list[tuple[float, str]]:
    """Round values between the limits, with texts that have as many decimals as each other.

    >>> _ticks((0, 1), False, 5)
    [(0.0, '0.0'), (0.2, '0.2'), (0.4, '0.4'), (0.6000000000000001, '0.6'), (0.8, '0.8'), (1.0, '1.0')]
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
        raw = (high - low) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
        values = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    place = math.floor(math.log10(step) + 1e-9)
    largest = math.floor(math.log10(max(map(abs, values)) or 1.0) + 1e-9)
    if largest >= 6 or place < -4:  # they share a power of ten
        texts = [f"{value / 10.0**largest:.{largest - place}f}e{largest}" if value else "0" for value in values]
    else:
        texts = [f"{value:.{max(0, -place)}f}" for value in values]
    return [(value, text.replace("-", "\N{MINUS SIGN}")) for value, text in zip(values, texts, strict=True)]
