"""Blocks with lines that are too long for the page, such as messages, go on in the next line.

Code is formatted so that it fits; a message is one line, whatever its length.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes

COLUMNS = 88  # as in docs/ruff.toml
CODE = {"python", "pycon"}  # a line of Python that goes on below is misread


def mark_long_lines(app: Any, doctree: nodes.document) -> None:
    """Give blocks with a longer line a class of their own; those of code scroll."""
    for block in doctree.findall(nodes.literal_block):
        long = any(len(line) > COLUMNS for line in block.astext().splitlines())
        if long and block.get("language") not in CODE:
            block["classes"].append("wrapped")


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", mark_long_lines)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
