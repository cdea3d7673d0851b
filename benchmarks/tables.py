"""Rows of text as Markdown, and as lines on the screen while a run goes on."""

from __future__ import annotations

__all__ = ["lines", "markdown"]


def markdown(rows: list[dict[str, str]]) -> str:
    """A table; all rows have the same columns.

    >>> print(markdown([{"a": "1", "b": "x"}]), end="")
    | a | b |
    |---|---|
    | 1 | x |
    """
    rule = "|" + "---|" * len(rows[0])
    return "\n".join([_line(rows[0]), rule, *(_line(row.values()) for row in rows)]) + "\n"


def _line(texts) -> str:
    return "| " + " | ".join(texts) + " |"


def lines(row: dict[str, str]) -> list[str]:
    """One row for the screen: what it is about, then the rest with names."""
    (_, about), *rest = row.items()
    return [f"  {about}", "    " + "; ".join(f"{name} {text}" for name, text in rest if text)]
