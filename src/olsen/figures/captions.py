"""Captions of the figures, as Markdown and TeX: setting, what lines and points are, how far apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .plans import deviation
from .recipes import PAPER, RECIPES

THEORIES = {
    "exact": "exact theory",
    "approximate": "approximate theory",
    "limit": "the limit of large $n$ and $p$",
    "extrapolated": "theory extrapolated to rows that are not Gaussian",
}


class Caption(NamedTuple):
    """A caption as running text, with formulas between dollar signs."""

    source: str
    title: str
    text: str

    def markdown(self, name: str) -> str:
        """A page with the picture and its caption."""
        return f"![{self.title}]({name}.png)\n\n**{self.source}: {self.title}.** {self.text}\n"

    def tex(self, name: str) -> str:
        r"""A float with the picture; `\\usepackage{graphicx}` is all that it needs."""
        text = self.text.replace("%", r"\%")
        return (
            "\\begin{figure}\n"
            "  \\centering\n"
            f"  \\includegraphics{{{name}.pdf}}\n"
            f"  \\caption{{\\textbf{{{self.source}: {self.title}.}} {text}}}\n"
            f"  \\label{{fig:{name}}}\n"
            "\\end{figure}\n"
        )


def caption(name: str, table: Mapping[str, list[Any]], *, scale: str, rng: int) -> Caption:
    """The caption of a figure that was computed at this scale from this seed.

    Parameters
    ----------
    name : str
        ``"figure1"`` to ``"figure11"``.
    table : mapping of columns
        Table from :func:`olsen.figures.compute`.
    scale : {"paper", "quick"}
        Scale of the table.
    rng : int
        Seed of the table.

    Returns
    -------
    Caption
        Text, with methods ``markdown(name)`` and ``tex(name)``.

    Examples
    --------
    >>> from olsen.figures import caption, compute
    >>> print(
    ...     caption(
    ...         "figure1", compute("figure1", "quick"), scale="quick", rng=2020
    ...     ).source
    ... )
    Reproduction of Figure 1 of LeJeune, Javadi and Baraniuk (2020)
    """
    recipe = RECIPES[name]
    constants = vars(recipe.at(scale))
    setting = recipe.setting.format_map({key: _shown(value) for key, value in constants.items()})
    number = name.removeprefix("figure")
    source = (
        f"Reproduction of Figure {number} of {PAPER}"
        if recipe.is_of_the_paper
        else f"Figure {number}"
    )
    sentences = [setting, *_comparison(table, rng if constants["trials"] else None)]
    title = recipe.title[0].upper() + recipe.title[1:]
    return Caption(source, title, " ".join(sentences))


def _shown(value: Any) -> str:
    """Numbers as a list in words; other constants are not part of captions."""
    if not isinstance(value, tuple):
        return f"{value:g}" if isinstance(value, int | float) else str(value)
    values = [r"$\infty$" if item == float("inf") else _shown(item) for item in value]
    return f"{', '.join(values[:-1])} and {values[-1]}" if len(values) > 1 else values[0]


def _comparison(table: Mapping[str, list[Any]], seed: int | None) -> list[str]:
    """What lines and points are, and the largest distance between them."""
    trials = max(table["trials"])
    if not trials:
        return []
    origin = "" if seed is None else f" (seed {seed})"
    points = f"Points are means over {trials} simulated data sets{origin}, bars one standard error"
    distances = [
        f"{entry['largest']:.1f} standard errors from {THEORIES[status]} ({_count(entry['points'])})"
        for status, entry in deviation(table).items()
    ]
    if not distances:
        return [f"{points}; lines join the points."]
    return [
        f"Lines are theory. {points}.",
        f"The largest distance of a point is {' and '.join(distances)}.",
    ]


def _count(points: int) -> str:
    return f"{points} point{'s' if points != 1 else ''}"
