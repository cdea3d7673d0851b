"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing to fetch."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import SphinxError


def mathml(source: str, display: str) -> str:
    """MathML of LaTeX; a formula that cannot be read stops the build."""
    try:
        found: str = convert(source, display=display)
    except Exception as error:
        raise SphinxError(f"formula {source!r} cannot be written as MathML: {error!r}") from error
    return found.replace(
        "<math ", f'<math alttext="{escape(" ".join(source.split()), quote=True)}" ', 1
    )


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    parts = [part.strip() for part in node.astext().split("\n\n") if part.strip()]
    self.body.extend(mathml(_aligned(part), "block") for part in parts)
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _aligned(source: str) -> str:
    """Several lines are aligned at &, as Sphinx has it."""
    if "\\\\" in source and "\\begin" not in source:
        return rf"\begin{{aligned}}{source}\end{{aligned}}"
    return source


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )
    app.config.html_math_renderer = "mathml"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
