"""Docstrings of ours: classes with the methods that are ours, mix-ins included, and types that
docutils can read.
"""

from __future__ import annotations

import re
from typing import Any

TYPED = re.compile(r"^\s*\w+ : ")  # the line of a parameter or attribute
LEARNED = re.compile(r"(?<![`\w])([a-z]\w*)_(?=[,)])")  # in shapes: (n_features_in_,)


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Whether a member of a class is left out; None leaves the decision to Sphinx."""
    if what != "class":
        return None
    home = getattr(getattr(obj, "fget", obj), "__module__", None)
    return (
        True if callable(getattr(obj, "fget", obj)) and not str(home).startswith("olsen") else None
    )


def escape_shapes(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A name that ends with an underscore is a link to docutils; in types it is the name of an
    attribute.
    """
    lines[:] = [LEARNED.sub(r"\1\\_", line) if TYPED.match(line) else line for line in lines]


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-skip-member", skip)
    app.connect(
        "autodoc-process-docstring", escape_shapes, priority=100
    )  # before numpydoc lays out the sections
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
