"""Names and numbers as text: escaped and shortened names, counts, shares, and numbers with their
errors.

Names of columns, cells and files may hold anything: sequences that a terminal obeys, characters
that reverse the direction of writing, line ends, a megabyte of letters. Whatever is printed, or
goes into a report, passes through here; what is written as data stays as it is.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

LONGEST_NAME = 60
CRITERIA = {
    "loo": "leave-one-out",
    "gcv": "generalised cross-validation",
    "kfold": "k-fold cross-validation",
    "oob": "rows that members were not given",
}
EFFECT = (
    "Effect: standard deviation of the column's part of the predictions, all levels of a category"
    " together."
)
LEVELS = "Coefficient of a category: difference of the coefficients of its extreme levels."
ROUNDING = 1e-9  # distance from a whole number that is rounding of a mean


def escape_control(text: object) -> str:
    r"""Replace every character that is not printable by its escape, the way Python writes it.

    >>> escape_control("a\x1b[31m\u202eb")
    'a\\x1b[31m\\u202eb'
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def shortened(text: object, longest: int = LONGEST_NAME) -> str:
    """Escape a text and cut it to at most `longest` characters: longer ones lose their middle.

    >>> shortened("a" * 30 + "b" * 30, 11)
    'aaaaa…bbbbb'
    """
    return _cut(
        escape_control(_cut(str(text), longest)), longest
    )  # a megabyte is cut before it is looked at


def quoted(text: object, longest: int = LONGEST_NAME) -> str:
    """Quote a text for a message as Python writes it; a long one loses its middle."""
    return repr(_cut(str(text), longest))


def _cut(text: str, longest: int) -> str:
    tail = (longest - 1) // 2
    return (
        text if len(text) <= longest else f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"
    )


def scale_of_names(names: list[str]) -> tuple[list[float], str] | None:
    """Numbers and unit of columns along a scale ("1100 nm", "nm1100", "1100"), or None where names
    are no such scale.

    All have one number each, with the same text around it, and the numbers rise or fall throughout.
    Numbers that only count the columns (x0, x1, ...; w0001, w0002, ...) are no scale.
    """
    pattern = re.compile(r"(\D*?)([-+]?\d+(?:\.\d*)?)((?:[^\d.].*)?)")
    matches = [match for name in names if (match := pattern.fullmatch(name.strip()))]
    n_names = len(names)
    if n_names < 3 or len(matches) < n_names:
        return None
    numbers = [float(match[2]) for match in matches]
    units = {f"{match[1]} {match[3]}".strip(" _:-[]()") for match in matches}
    ascending = sorted(set(numbers))
    is_count = numbers in (list(range(n_names)), list(range(1, n_names + 1)))
    if len(units) > 1 or is_count or numbers not in (ascending, ascending[::-1]):
        return None
    return numbers, units.pop()


def counted(n: int, noun: str) -> str:
    """Format a number of things, with the noun in the plural if there is not one.

    >>> counted(1, "column"), counted(732, "row")
    ('1 column', '732 rows')
    """
    return f"{n} {noun}{'s' * (n != 1)}"


def percent(fraction: float) -> str:
    """Format a fraction in per cent; what is neither all nor nothing is not rounded to it.

    >>> percent(0.5), percent(1.0), percent(0.999), percent(0.001)
    ('50%', '100%', '>99%', '<1%')
    """
    if 0.995 <= fraction < 1 - ROUNDING:
        return ">99%"
    return "<1%" if 0 < fraction < 0.005 else f"{fraction:.0%}"


def size_of(mean: float, count: int) -> str:
    """Number of columns or rows of a member among `count`, exactly or on average.

    >>> size_of(3, 6), size_of(5.94, 6), size_of(6, 6)
    ('3 of 6 (50%)', '5.94 of 6 on average (99%)', 'all 6')
    """
    if mean >= count - ROUNDING:
        return f"all {count}"
    fraction = percent(mean / count)
    if abs(mean - round(mean)) < ROUNDING:
        return f"{round(mean)} of {count} ({fraction})"
    return f"{mean:.4g} of {count} on average ({fraction})"


def padded(text: str, width: int) -> str:
    """Append spaces to a text, up to a width on a terminal, where some letters are as wide as two.

    >>> padded("ab", 4), padded("\u6e29\u5ea6", 5)
    ('ab  ', '\u6e29\u5ea6 ')
    """
    return text + " " * (width - columns_of(text))


def columns_of(text: str) -> int:
    """Count the columns of a terminal that a text takes."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def number(value: float | None, form: str = ".4g") -> str:
    """Format a number, or a dash for None and for values that are not finite.

    >>> number(1234.56), number(-0.0001, ".3f"), number(None)
    ('1235', '0.000', '-')
    """
    text = "-" if value is None or not math.isfinite(value) else format(value, form)
    return text[1:] if re.fullmatch(r"[-+]0(\.0*)?", text) else text


def listed(names: list[str]) -> str:
    """Join names with commas and "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def with_error(value: float | None, error: float | None) -> str:
    """Format a difference with its standard error, which sets the number of digits; empty for None.

    >>> (
    ...     with_error(0.0049171, 0.0042),
    ...     with_error(-1234.5, 21.3),
    ...     with_error(None, None),
    ... )
    ('+0.0049 ± 0.0042', '-1234 ± 21', '')
    """
    if value is None:
        return ""
    if error is None or not 1e-4 <= error < 1e5:
        return f"{value:+.3g} ± {number(error, '.2g')}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:+z.{digits}f} ± {error:.{digits}f}"


def heading_lines(data: dict[str, Any]) -> list[str]:
    """Lines about the table that was read, with notes."""
    size = f"{counted(data['rows'], 'row')}, {counted(data['table_columns'], 'column')}"
    encoded = f" ({data['columns']} encoded)" if data["columns"] != data["table_columns"] else ""
    head = f"{shortened(data['name'], 200)}: {size}{encoded}, target {shortened(data['target'])}"
    notes = [f"  note: {escape_control(text)}" for text in data["messages"]]
    return [head, *notes, *(f"  caution: {escape_control(text)}" for text in data["cautions"])]


def fact_lines(facts: dict[str, str]) -> list[str]:
    """Lines of names and facts, below each other."""
    names = [shortened(name, 40) for name in facts]
    width = max([20, *map(columns_of, names)])
    return [
        f"  {padded(name, width)} {escape_control(fact)}"
        for name, fact in zip(names, facts.values(), strict=True)
    ]


def extremes(name: str, highest: str | None, lowest: str | None) -> str:
    """Name of a column of categories with the levels that its difference is taken between.

    >>> extremes("size", "L", "S"), extremes("area", None, None)
    ('size: L over S', 'area')
    """
    return name if highest is None else f"{name}: {highest} over {lowest}"


def effect_lines(effects: list[dict[str, Any]]) -> list[str]:
    """Format the largest effects as a table."""
    effects = effects[:10]
    if not effects:
        return ["No column has an effect: predictions are the mean of the target."]
    columns = {"effect": [number(effect["effect"]) for effect in effects]}
    if any(effect["standard_error"] is not None for effect in effects):
        columns["± s.e."] = [number(effect["standard_error"]) for effect in effects]
    slopes = [e["coefficient"] if e["levels"] is None else e["difference"] for e in effects]
    columns["coefficient"] = list(map(number, slopes))
    columns["drawn"] = [percent(effect["drawn"]) for effect in effects]
    names = []
    for effect in effects:
        levels = [shortened(level["name"], 16) for level in effect["levels"] or ()]
        name = shortened(effect["name"], 20 if levels else 36)
        names.append(extremes(name, levels[0], levels[-1]) if levels else name)
    rows = list(zip(names, *columns.values(), strict=True))
    lines = table_lines(["largest effects", *columns], rows, name_width=20, width=12)
    has_levels = any(effect["levels"] for effect in effects)
    return [*lines, EFFECT, *[LEVELS] * has_levels]


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, name_width: int, width: int
) -> list[str]:
    """Lines of a table: names on the left, at least `name_width` wide, and numbers on the right."""
    name_width = max([name_width, *(columns_of(name) for name, *_ in rows)])
    lines = [padded(heads[0], name_width + 2) + "".join(f"{head:>{width}}" for head in heads[1:])]
    for name, *numbers in rows:
        cells = "".join(f"{text:>{width}}" for text in numbers)
        lines.append(f"  {padded(name, name_width)}{cells}")
    return lines


def interval_text(interval: dict[str, Any]) -> str:
    """Say how far new observations are expected to be from their prediction."""
    half_width = interval["half_width"]
    coverage = f"{interval['coverage']:.0%}"
    if half_width is None:
        return f"Rows are too few for an interval that holds {coverage} of new observations."
    return (
        f"{coverage} of new observations are expected within ± {number(half_width)} of their"
        " prediction."
    )
