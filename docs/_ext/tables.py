"""Cells of numbers stay on one line; a table that is too wide scrolls by itself."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

NUMBERS = re.compile(r"(?=.*\d)[-+±\d.,;:()%≤<>e ]+( ?(x|s|ms|µs|GB|MB|kB|n))?")


def mark_numbers(app: Any, doctree: nodes.document) -> None:
    """Give cells that hold numbers a class of their own."""
    for cell in doctree.findall(nodes.entry):
        if NUMBERS.fullmatch(cell.astext().strip()):
            cell["classes"].append("number")


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", mark_numbers)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
