"""Small charts as SVG text: lines, bands, points and bars in one pair of axes.

The report must open anywhere without a plotting library or a network; four simple charts do not need one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape as escape_html

from ..shown_text import shortened, visible

__all__ = ["Chart", "bars", "escape"]

Limits = tuple[float, float]

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 42


def escape(text: object) -> str:
    """A text for a page: no tag in it, and its control characters visible, also those that turn the writing round."""
    return escape_html(visible(text))


class Chart:
    """One pair of axes; marks are drawn in the order they are added.

    Parameters
    ----------
    title : str
        What the chart shows, for screen readers.
    x_label, y_label : str
        Names of the axes.
    x_range, y_range : pair of float
        Limits.
    x_log : bool, default=False
        Whether the horizontal axis is logarithmic.
    """

    def __init__(
        self, title: str, x_label: str, y_label: str, x_range: Limits, y_range: Limits, *, x_log: bool = False
    ) -> None:
        self.title, self.x_label, self.y_label, self.x_log = title, x_label, y_label, x_log
        self.x_range, self.y_range = _widen(x_range, x_log), _widen(y_range, False)
        self.marks: list[str] = []

    def x(self, value: float) -> float:
        """Place of a value on the horizontal axis."""
        f: Callable[[float], float] = math.log if self.x_log else float
        low, high = (f(v) for v in self.x_range)
        return LEFT + (f(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Place of a value on the vertical axis, kept inside the chart."""
        low, high = self.y_range
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], style: str) -> None:
        """Straight pieces between points."""
        self.marks.append(f'<polyline class="{style}" points="{self._points(xs, ys)}"/>')

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], style: str) -> None:
        """The area between two curves."""
        around = f"{self._points(xs, high)} {self._points(xs[::-1], low[::-1])}"
        self.marks.append(f'<polygon class="{style}" points="{around}"/>')

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
        words = f'<text class="note" x="{place + (-5 if flip else 5):.1f}" y="{TOP + 11}" text-anchor='
        words += f'"{"end" if flip else "start"}">{escape(text)}</text>'
        line = f'<line class="{style}" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        self.marks.append(line + words)

    def render(self) -> str:
        """The chart as an svg element."""
        inner = f"<title>{escape(self.title)}</title>{self._frame()}{''.join(self.marks)}"
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">{inner}</svg>'

    def _points(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))

    def _frame(self) -> str:
        bottom, parts = HEIGHT - BOTTOM, []
        for value in _log_ticks(*self.x_range) if self.x_log else _ticks(*self.x_range):
            at = self.x(value)
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>')
            parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{value:g}</text>')
        for value in _ticks(*self.y_range):
            at = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 5}" y="{at + 3.5:.1f}" text-anchor="end">{value:g}</text>')
        middle = (TOP + bottom) / 2
        parts.append(f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
                     f"{escape(self.x_label)}</text>")  # fmt: skip
        parts.append(f'<text class="label" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">'
                     f"{escape(self.y_label)}</text>")  # fmt: skip
        return "".join(parts)


def bars(title: str, names: Sequence[str], values: Sequence[float], notes: Sequence[str]) -> str:
    """Horizontal bars with a name in front and a note behind, as an svg element."""
    row, left, right = 19, 150, 70
    height = row * len(names) + 8
    largest = max((abs(v) for v in values), default=1.0) or 1.0
    negative = any(v < 0 for v in values)
    zero = left + (WIDTH - left - right) / 2 if negative else left
    reach = (WIDTH - left - right) / (2 if negative else 1) / largest
    parts = [f"<title>{escape(title)}</title>"]
    for i, (name, value, note) in enumerate(zip(names, values, notes, strict=True)):
        y, length = 4 + i * row, abs(value) * reach
        parts.append(f'<text class="tick" x="{left - 6}" y="{y + 13}" text-anchor="end">'
                     f"{escape_html(shortened(name, 24))}</text>")  # fmt: skip
        parts.append(f'<rect class="{"minus" if value < 0 else "plus"}" x="{zero - length * (value < 0):.1f}" '
                     f'y="{y + 2}" width="{max(length, 0.5):.1f}" height="{row - 5}"><title>{escape(name)}: {value:.4g}'
                     f"</title></rect>")  # fmt: skip
        parts.append(f'<text class="tick" x="{WIDTH - 2}" y="{y + 13}" text-anchor="end">{escape(note)}</text>')
    parts.append(f'<line class="axis" x1="{zero}" x2="{zero}" y1="2" y2="{height - 2}"/>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _widen(limits: Limits, log: bool) -> Limits:
    low, high = limits
    if not low < high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    if log:
        return low, high
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most `most` of them."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= raw)
    first = math.ceil(low / step)
    return [round(i * step, 12) for i in range(first, math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > 100
    values = [m * 10.0**e for e in powers for m in ((1,) if wide else (1, 2, 5))]
    return [value for value in values if low <= value * 1.0001 and value <= high * 1.0001]
