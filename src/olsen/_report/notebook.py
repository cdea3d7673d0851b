"""Tables of a fitted ensemble, as text and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .charts import element, escape
from .formatting import fact_lines, shortened, table_lines

# The colours are those of the notebook, whatever its theme. Notebooks align cells to the right and
# stripe their rows.
STYLE = """
.olsen-summary { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.5em 1.5em; }
.olsen-facts { color: inherit; background: none; border: 1px solid rgba(128, 128, 128, 0.4); border-collapse: collapse;
  margin: 0.2em 0; font-size: 0.9em; }
.olsen-facts caption { caption-side: top; color: inherit; font-weight: bold; padding: 0.2em 0; text-align: left; }
.olsen-facts tr, .olsen-facts tr:nth-child(odd), .olsen-facts tr:hover { background: none; }
.olsen-facts th, .olsen-facts td { color: inherit; background: none; border: none;
  border-top: 1px solid rgba(128, 128, 128, 0.4); padding: 0.2em 0.7em; text-align: left; vertical-align: top; }
.olsen-facts th { font-weight: normal; opacity: 0.75; white-space: nowrap; }
.olsen-facts td { max-width: 26em; }
.olsen-facts td.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


class NumberTable(NamedTuple):
    """Rows of a name and formatted numbers, under a title and the heads of the numbers."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def as_text(title: str, facts: dict[str, str], tables: Iterable[NumberTable]) -> str:
    """Format facts and tables for a terminal."""
    lines = [title, *fact_lines(facts)]
    for table in tables:
        rows = [(shortened(name, 40), *numbers) for name, *numbers in table.rows]
        heads = [table.title, *table.heads]
        lines += ["", *table_lines(heads, rows, name_width=len(table.title), width=11)]
    return "\n".join(lines)


def as_html(title: str, facts: dict[str, str], tables: Iterable[NumberTable]) -> str:
    """Format facts and tables for a notebook."""
    parts = [facts_html(title, facts)]
    for table in tables:
        parts.append(_table(table.title, [("", *table.heads), *table.rows], "number"))
    return beside_each_other(parts)


def facts_html(title: str, facts: dict[str, str]) -> str:
    """Format facts as a table for a notebook."""
    return _table(title, facts.items(), None)


def beside_each_other(parts: Iterable[str]) -> str:
    """Join parts of HTML in one block, with the style of the tables."""
    return element("style", STYLE) + element("div", "".join(parts), class_="olsen-summary")


def _table(title: str, rows: Iterable[Sequence[str]], style: str | None) -> str:
    body = ""
    for name, *strings in rows:
        cells = [element("td", escape(string), class_=style) for string in strings]
        head = element("th", escape(name), scope="row")
        body += element("tr", head + "".join(cells))
    content = element("caption", escape(title)) + element("tbody", body)
    return element("table", content, class_="olsen-facts")
