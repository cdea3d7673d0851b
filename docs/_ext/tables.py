"""Cells of numbers stay on one line; a table that is too wide scrolls by itself."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

NUMBERS = re.compile(r"(?=.*\d)[-+±\d.,;:()%≤<>e ]+( ?(x|s|ms|µs|GB|MB|kB|n))?")

EMPTY_HEAD = re.compile(r'<th class="head[^"]*">(<p></p>)?</th>')


def mark_numbers(app: Any, doctree: nodes.document) -> None:
    """Give cells that hold numbers a class of their own."""
    for cell in doctree.findall(nodes.entry):
        if NUMBERS.fullmatch(cell.astext().strip()):
            cell["classes"].append("number")


def name_no_empty_heads(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """An empty cell in the head of a table is a cell, not a heading without words."""
    if "body" in context:
        context["body"] = EMPTY_HEAD.sub("<td></td>", context["body"])


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", mark_numbers)
    app.connect("html-page-context", name_no_empty_heads)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
