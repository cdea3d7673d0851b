"""The directive {picture}: Python that draws with matplotlib, shown with its picture for light and
for dark pages.

Each picture runs in a namespace of its own, so that it can be copied. A block that fails stops the
build.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.text import Text
from sphinx.util.docutils import SphinxDirective

ALWAYS = {
    "figure.figsize": (6.6, 3.7),
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "svg.hashsalt": "olsen",
    "svg.fonttype": "path",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.transparent": True,
    "axes.facecolor": "none",
    "legend.facecolor": "inherit",
}
DARK, LIGHT = 0.3, "#d8dee4"
THEMES = {"light": "default", "dark": "dark_background"}


class Picture(SphinxDirective):
    """A block of code with the figure it leaves."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "alt": directives.unchanged_required,
        "hide-code": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        shown: list[nodes.Node] = [] if "hide-code" in self.options else [_listing(code)]
        return shown + [self._image(code, theme) for theme in THEMES]

    def _image(self, code: str, theme: str) -> nodes.image:
        name = hashlib.sha256(code.encode()).hexdigest()[:16]
        path = Path(self.env.srcdir) / "_build" / "pictures" / f"{name}-{theme}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with plt.style.context([THEMES[theme], ALWAYS]):
            try:
                exec(
                    compile(code, f"{self.env.docname}, line {self.lineno}", "exec"),
                    {"__name__": "picture"},
                )
                if theme == "dark":
                    _lighten(plt.gcf())
                plt.gcf().savefig(path, metadata={"Date": None})
            except Exception as error:
                raise self.error(f"the picture cannot be drawn: {error!r}") from error
            finally:
                plt.close("all")
        self.env.note_dependency(__file__)
        uri = "/" + path.relative_to(Path(self.env.srcdir)).as_posix()
        return nodes.image(
            uri=uri, alt=self.options.get("alt", ""), classes=["picture", f"only-{theme}"]
        )


def _lighten(figure: Any) -> None:
    """Lines and texts that were given a dark colour would not be seen on a dark page."""
    for artist in figure.findobj(lambda artist: isinstance(artist, (Line2D, Text))):
        red, green, blue = to_rgb(artist.get_color())
        if 0.3 * red + 0.6 * green + 0.1 * blue < DARK:
            artist.set_color(LIGHT)


def _listing(code: str) -> nodes.literal_block:
    listing = nodes.literal_block(code, code)
    listing["language"] = "python"
    return listing


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("picture", Picture)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
