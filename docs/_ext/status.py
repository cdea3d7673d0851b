"""Badges in the reference from the sentence "Status: ..." of a docstring: theorem, exact,
asymptotic, heuristic.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole

WORDS = {
    "theorem": "proved, in the paper or in a cited one",
    "exact": "derived, and true at any size",
    "asymptotic": "for many rows and columns; not proved, confirmed by simulation",
    "heuristic": "a rule that works; nothing guarantees it",
}
SENTENCE = re.compile(r"Status:\s+(.*?)(?:\.\s|\.$|\Z)", re.DOTALL)
NAMED = re.compile(r"\b(theorem|exact|asymptotic|heuristic)(?:ally)?\b")


def words_of(docstring: str) -> list[str]:
    """The words of status in the order in which the docstring has them."""
    found = [word for sentence in SENTENCE.findall(docstring) for word in NAMED.findall(sentence)]
    return list(dict.fromkeys(found))


def add_badges(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A line of badges below the summary of what has a status."""
    words = words_of("\n".join(lines))
    if not words or what in ("module", "class"):
        return
    start = next(i for i, line in enumerate(lines) if line.strip())
    end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
    lines[end:end] = ["", " ".join(f":status:`{word}`" for word in words), ""]


class Status(SphinxRole):
    """The role :status:`exact`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if self.text not in WORDS:
            message = self.inliner.reporter.error(
                f"no status {self.text!r}; choose one of {', '.join(WORDS)}."
            )
            return [], [message]
        badge = nodes.abbreviation(self.text, self.text, explanation=WORDS[self.text])
        badge["classes"] = ["status", f"status-{self.text}"]
        return [badge], []


def setup(app: Any) -> dict[str, Any]:
    app.add_role("status", Status())
    app.connect(
        "autodoc-process-docstring", add_badges, priority=900
    )  # after numpydoc has laid out the sections
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
