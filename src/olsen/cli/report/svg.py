"""Small charts as SVG text: lines, bands, points, bars and dots with error bars.

The report must open anywhere without a plotting library or a network; a few simple charts do not need one.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape as escape_html
from typing import NamedTuple

from ..shown_text import shortened, visible

__all__ = ["Bar", "Chart", "Dot", "bars", "dot_plot", "escape", "stacked"]

Limits = tuple[float, float]

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 44
ROW = 21  # of bars and dots
FURTHEST = 1e5  # places outside of a chart; what is cut off there need not be exact, and browsers refuse huge numbers
LARGEST_PLAIN, MOST_DECIMALS = 1e6, 4  # of ticks; beyond these they share a power of ten
LONGEST_NAME = 300
WIDTHS = {"wide": 12.5, "broad": 12.0, "capital": 9.3, "narrow": 4.8, "other": 7.7}  # of letters, in units of a chart


class Bar(NamedTuple):
    """A bar: its name, its length, half of its interval if there is one, and a note behind it."""

    name: str
    value: float
    half: float | None
    note: str


class Dot(NamedTuple):
    """A dot with a bar of error, which the point of reference has not."""

    name: str
    value: float | None
    half: float | None
    note: str
    best: bool


def escape(text: object) -> str:
    """A text for a page: no tag in it, and its control characters visible, also those that turn the writing round."""
    return escape_html(visible(text))


class Chart:
    """One pair of axes; marks are drawn in the order they are added, and cut off at the frame.

    Parameters
    ----------
    title : str
        What the chart shows, for screen readers.
    x_label, y_label : str
        Names of the axes.
    x_range, y_range : pair of float
        Limits.
    x_log, y_log : bool, default=False
        Whether an axis is logarithmic.
    """

    def __init__(
        self,
        title: str,
        x_label: str,
        y_label: str,
        x_range: Limits,
        y_range: Limits,
        *,
        x_log: bool = False,
        y_log: bool = False,
    ) -> None:
        self.title, self.x_label, self.y_label, self.x_log, self.y_log = title, x_label, y_label, x_log, y_log
        self.x_range, self.y_range = _widen(x_range, x_log), _widen(y_range, y_log)
        self.marks: list[str] = []

    def x(self, value: float) -> float:
        """Place of a value on the horizontal axis."""
        return LEFT + _share(value, self.x_range, self.x_log) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Place of a value on the vertical axis."""
        return HEIGHT - BOTTOM - _share(value, self.y_range, self.y_log) * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """Straight pieces between points; where a value is not finite there is a gap."""
        for piece in _finite_runs(zip(xs, ys, strict=True)):
            self.marks.append(f'<polyline class="{style}" points="{self._points(piece)}"/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], style: str) -> None:
        """The area between two curves."""
        for piece in _finite_runs(zip(xs, low, high, strict=True)):
            around = [(x, top) for x, _, top in piece] + [(x, bottom) for x, bottom, _ in piece[::-1]]
            self.marks.append(f'<polygon class="{style}" points="{self._points(around)}"/>')

    def dots(self, xs: Sequence[float], ys: Sequence[float], style: str, radius: float = 2.2) -> None:
        """Points."""
        circles = (
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}"/>' for x, y in zip(xs, ys, strict=True)
        )
        self.marks.append(f'<g class="{style}">{"".join(circles)}</g>')

    def mark(self, x: float, style: str, text: str = "") -> None:
        """A vertical line with a label beside it."""
        place = self.x(x)
        flip = place > WIDTH * 0.7
        words = f'<text class="note" x="{place + (-5 if flip else 5):.1f}" y="{TOP + 12}" text-anchor='
        words += f'"{"end" if flip else "start"}">{escape(text)}</text>'
        line = f'<line class="{style}" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        self.marks.append(line + words)

    def render(self) -> str:
        """The chart as an svg element."""
        name = "inside-" + re.sub(r"\W+", "-", self.title.lower())
        frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
        cut = f'<clipPath id="{name}"><rect {frame}/></clipPath>'
        return _svg(self.title, HEIGHT, f'{cut}{self._frame()}<g clip-path="url(#{name})">{"".join(self.marks)}</g>')

    def _points(self, pairs: Iterable[Sequence[float]]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in pairs)

    def _frame(self) -> str:
        bottom, parts = HEIGHT - BOTTOM, []
        for value, text in _labelled(*self.x_range, self.x_log):
            at = self.x(value)
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>')
            parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
        for value, text in _labelled(*self.y_range, self.y_log):
            at = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
        middle = (TOP + bottom) / 2
        parts.append(f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 7}" text-anchor="middle">'
                     f"{escape(self.x_label)}</text>")  # fmt: skip
        parts.append(f'<text class="label" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">'
                     f"{escape(self.y_label)}</text>")  # fmt: skip
        return "".join(parts)


def bars(title: str, given: Sequence[Bar], heading: tuple[str, str], label: str) -> str:
    """Horizontal bars over an axis, with names in front, values and notes behind, as an svg element.

    Parameters
    ----------
    title : str
        What is shown, for screen readers.
    given : sequence of Bar
        From top to bottom.
    heading : pair of str
        Above the values and above the notes.
    label : str
        Of the axis.
    """
    left, right, top = 140, 112, 20
    ends = [v for bar in given for v in (bar.value - (bar.half or 0.0), bar.value + (bar.half or 0.0))]
    limits = _widen((min(0.0, *ends), max(0.0, *ends)), False)
    bottom = top + ROW * len(given)

    def x(value: float) -> float:
        return left + _share(value, limits, False) * (WIDTH - left - right)

    parts = [_vertical_grid(limits, x, top, bottom)]
    parts += [f'<text class="note" x="{at}" y="13" text-anchor="end">{escape(text)}</text>'
              for at, text in zip((WIDTH - 46, WIDTH - 2), heading, strict=True)]  # fmt: skip
    for i, bar in enumerate(given):
        y, (start, end) = top + i * ROW, sorted((x(0.0), x(bar.value)))
        parts.append(_name(bar.name, left - 6, y + 15))
        parts.append(f'<rect class="{"minus" if bar.value < 0 else "plus"}" x="{start:.1f}" y="{y + 4}" '
                     f'width="{max(end - start, 0.5):.1f}" height="{ROW - 7}"><title>{escape(bar.name)}: '
                     f"{bar.value:.4g}{_plus_minus(bar.half)}</title></rect>")  # fmt: skip
        if bar.half is not None:
            parts.append(_whisker(x(bar.value - bar.half), x(bar.value + bar.half), y + ROW / 2))
        parts += [f'<text class="tick number" x="{at}" y="{y + 15}" text-anchor="end">{escape(text)}</text>'
                  for at, text in ((WIDTH - 46, _signed(bar.value)), (WIDTH - 2, bar.note))]  # fmt: skip
    parts.append(f'<line class="axis" x1="{x(0.0):.1f}" x2="{x(0.0):.1f}" y1="{top}" y2="{bottom}"/>')
    parts.append(_axis_label(label, (left + WIDTH - right) / 2, bottom))
    return _svg(title, bottom + 36, "".join(parts))


def dot_plot(title: str, given: Sequence[Dot], reference: float, label: str, most: float) -> str:
    """Dots with bars of error beside a line of reference; what lies beyond `most` is pointed to, with its value."""
    left, right, top = 120, 66, 8
    ends = [v for dot in given if dot.value is not None and dot.value <= most
            for v in (dot.value - (dot.half or 0.0), min(most, dot.value + (dot.half or 0.0)))]  # fmt: skip
    limits = _widen((min(reference, *ends), max(reference, *ends)), False)
    height = ROW + 5
    bottom = top + height * len(given)

    def x(value: float) -> float:
        return left + min(1.0, max(0.0, _share(value, limits, False))) * (WIDTH - left - right)

    parts = [_vertical_grid(limits, x, top, bottom)]
    parts.append(f'<line class="chosen" x1="{x(reference):.1f}" x2="{x(reference):.1f}" y1="{top}" y2="{bottom}"/>')
    for i, dot in enumerate(given):
        y = top + (i + 0.5) * height
        parts.append(_name(dot.name, left - 8, y + 4, "best" if dot.best else "tick"))
        parts.append(f'<text class="{"best" if dot.best else "tick"} number" x="{WIDTH - 2}" y="{y + 4}" '
                     f'text-anchor="end">{escape(dot.note)}</text>')  # fmt: skip
        if dot.value is None:
            continue
        if dot.value > most:
            edge = WIDTH - right
            parts.append(f'<path class="beyond" d="M{edge - 9} {y - 5} L{edge} {y} L{edge - 9} {y + 5} Z"/>')
            continue
        if dot.half is not None:
            parts.append(_whisker(x(dot.value - dot.half), x(dot.value + dot.half), y))
        parts.append(f'<circle class="{"plus" if i == 0 else "minus"}" cx="{x(dot.value):.1f}" cy="{y}" r="4.5"/>')
    parts.append(_axis_label(label, (left + WIDTH - right) / 2, bottom))
    return _svg(title, bottom + 36, "".join(parts))


def stacked(title: str, shares: Sequence[tuple[str, float]]) -> str:
    """Shares of a whole as pieces of one bar."""
    parts, at = [], 0.0
    for i, (name, share) in enumerate(shares):
        width = share * WIDTH
        parts.append(f'<rect class="part{i}" x="{at:.1f}" y="2" width="{max(width - 1, 0.5):.1f}" height="24">'
                     f"<title>{escape(name)}: {share:.1%}</title></rect>")  # fmt: skip
        at += width
    return _svg(title, 30, "".join(parts))


def _svg(title: str, height: float, inner: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{inner}</svg>"
    )


def _vertical_grid(limits: Limits, x: Callable[[float], float], top: float, bottom: float) -> str:
    return "".join(
        f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{top}" y2="{bottom}"/>'
        f'<text class="tick" x="{x(value):.1f}" y="{bottom + 14}" text-anchor="middle">{text}</text>'
        for value, text in _labelled(*limits, False, 6)
    )


def _axis_label(text: str, middle: float, bottom: float) -> str:
    return f'<text class="label" x="{middle}" y="{bottom + 31}" text-anchor="middle">{escape(text)}</text>'


def _whisker(low: float, high: float, y: float) -> str:
    ends = "".join(f"M{at:.1f} {y - 3} V{y + 3} " for at in (low, high))
    return f'<path class="whisker" d="M{low:.1f} {y} H{high:.1f} {ends}"/>'


def _name(name: str, right: float, y: float, style: str = "tick") -> str:
    """A name that ends at a place: of one too long for the room before it the middle is left out."""
    shown = shortened(name, LONGEST_NAME)  # whatever its length: what follows looks at all letters again and again
    length = len(shown)
    while length > 3 and _width(shown) > right:
        length = min(length, len(shown)) - 1
        shown = shortened(name, length)
    whole = f"<title>{escape(name)}</title>"
    return f'<text class="{style}" x="{right}" y="{y}" text-anchor="end">{whole}{escape_html(shown)}</text>'


def _width(text: str) -> float:
    """About how wide a text is, in units of a chart; rather too much than too little."""
    return sum(WIDTHS[_kind(letter)] for letter in text)


def _kind(letter: str) -> str:
    if unicodedata.east_asian_width(letter) in "WF":
        return "wide"
    if letter in "WMmw@%…":
        return "broad"
    if letter in "iljtfrI.,:;|!'()[] ":
        return "narrow"
    return "capital" if letter.isupper() else "other"


def _signed(value: float) -> str:
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:+#.3g}").rstrip(".").replace("-", "\N{MINUS SIGN}")


def _plus_minus(half: float | None) -> str:
    return "" if half is None else f" ± {half:.2g}"


def _share(value: float, limits: Limits, log: bool) -> float:
    """Where a value lies between two limits: 0 at the lower, 1 at the upper one."""
    low, high = limits
    if log:
        low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
    return min(FURTHEST, max(-FURTHEST, (value - low) / (high - low)))


def _finite_runs(points: Iterable[tuple[float, ...]]) -> list[list[tuple[float, ...]]]:
    runs: list[list[tuple[float, ...]]] = [[]]
    for point in points:
        if all(map(math.isfinite, point)):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _widen(limits: Limits, log: bool) -> Limits:
    low, high = limits
    if not low < high:
        low, high = (low / 2, high * 2) if log else (low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))
    if log:
        return low / (high / low) ** 0.04, high * (high / low) ** 0.04
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _labelled(low: float, high: float, log: bool, most: int = 8) -> list[tuple[float, str]]:
    """Ticks with their texts, all with as many decimals."""
    return [(value, text.replace("-", "\N{MINUS SIGN}")) for value, text in _plain_labels(low, high, log, most)]


def _plain_labels(low: float, high: float, log: bool, most: int) -> list[tuple[float, str]]:
    values = _log_ticks(low, high) if log else _ticks(low, high, most)
    if log and high / low > 100:
        return [(value, f"{value:g}") for value in values]
    largest = max((abs(v) for v in values), default=0.0)
    power = math.floor(math.log10(largest)) if largest else 0
    if largest >= LARGEST_PLAIN or _decimals(values) > MOST_DECIMALS:
        digits = _decimals([value / 10.0**power for value in values])
        return [(value, f"{value / 10.0**power:.{digits}f}e{power}" if value else "0") for value in values]
    return [(value, f"{value:.{_decimals(values)}f}") for value in values]


def _decimals(values: Sequence[float]) -> int:
    """The fewest that tell all of these apart from what they are not."""
    for digits in range(12):
        if all(abs(value - round(value, digits)) <= 1e-9 * max(abs(v) for v in values) for value in values):
            return digits
    return 12


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most `most` of them."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= raw)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > 100
    values = [m * 10.0**e for e in powers for m in ((1,) if wide else (1, 2, 5))]
    return [value for value in values if low <= value * 1.0001 and value <= high * 1.0001]
