"""Cells of numbers stay on one line, long names go on below, and tables of many columns are set in
smaller type; a table that is still too wide scrolls by itself.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

NUMBERS = re.compile(r"(?=.*\d)[-+±\d.,;:()%≤<>e ]+( ?(x|s|ms|µs|GB|MB|kB|n))?")

LONGEST_NUMBER = 17  # +0.0068 ± 0.0021; a list of sizes may go on below
MANY_COLUMNS = 6
CELL = re.compile(r"<t[dh][^>]*>.*?</t[dh]>", re.DOTALL)
NAME = re.compile(r'(?<=<span class="pre">)[^<]{16,}(?=</span>)')
EMPTY_HEAD = re.compile(r'<th class="head[^"]*">(<p></p>)?</th>')


def mark_tables(app: Any, doctree: nodes.document) -> None:
    """Give tables of many columns, tables of numbers, and cells that hold numbers, a class of their
    own.
    """
    for group in doctree.findall(nodes.tgroup):
        if group["cols"] >= MANY_COLUMNS:
            group.parent["classes"].append("many-columns")
        rows = [row for body in group.findall(nodes.tbody) for row in body.findall(nodes.row)]
        values = [cell.astext().strip() for row in rows for cell in row.children[1:]]
        if values and all(NUMBERS.fullmatch(value) for value in values if value):
            group.parent["classes"].append("numbers")
    for cell in doctree.findall(nodes.entry):
        text = cell.astext().strip()
        if len(text) <= LONGEST_NUMBER and NUMBERS.fullmatch(text):
            cell["classes"].append("number")


def edit_cells(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """An empty cell in the head of a table is a cell, not a heading without words; a long name in a
    cell may go on below after an underscore or a point, a long call where its arguments begin.
    """
    if "body" in context:
        body = CELL.sub(lambda cell: NAME.sub(_with_breaks, cell[0]), context["body"])
        context["body"] = EMPTY_HEAD.sub("<td></td>", body)


def _with_breaks(name: re.Match[str]) -> str:
    return re.sub(r"(?<=[_.=(,/])(?=\w)", "<wbr/>", name[0])


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", mark_tables)
    app.connect("html-page-context", edit_cells)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
