"""Letters with an index in running text, as pages of formulas have them: S_i, R_{diag}, α_*. Code
stays as it is.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

PAGES = {"theory", "theory/paper", "reproduce"}
INDEXED = re.compile(
    r"(?<![\w`/.])([A-Za-z\u0391-\u03c9‖][\u0300-\u036f²]?)_(\{[^{}]*\}|\*|[A-Za-z0-9∞]{1,4}(?![\w.]*\())"
)
OPAQUE = (
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.reference,
    nodes.raw,
)


def lower(app: Any, doctree: nodes.document) -> None:
    """Replace the texts of a page in which letters have an index."""
    if app.env.docname not in PAGES:
        return
    for text in list(doctree.findall(nodes.Text)):
        if "_" in text and not isinstance(text.parent, OPAQUE):
            text.parent.replace(text, pieces(str(text)))


def pieces(text: str) -> list[nodes.Node]:
    """The text, cut at its indices; one within an index is written beside it."""
    found: list[nodes.Node] = []
    end = 0
    for match in INDEXED.finditer(text):
        found.append(nodes.Text(text[end : match.start(2) - 1]))
        index = match[2].strip("{}").replace("_", "")
        found.append(nodes.subscript("", index))
        end = match.end()
    return [*found, nodes.Text(text[end:])]


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", lower)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
