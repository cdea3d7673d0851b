"""The directive ``{public-names}``: every public name of a module, as links to their pages."""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective


class PublicNames(SphinxDirective):
    """The names in ``__all__`` of the module that is the argument, in alphabetical order."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        names = [name for name in module.__all__ if not name.startswith("__")]
        paragraph = nodes.paragraph()
        for name in sorted(names, key=str.lower):
            if not callable(getattr(module, name)):
                continue  # modules have their own heading, and dictionaries no page
            link = pending_xref(
                "",
                reftype="obj",
                refdomain="py",
                reftarget=f"{module.__name__}.{name}",
                refexplicit=True,
                refwarn=True,
            )
            link += nodes.literal(text=name)
            paragraph += [link, nodes.Text("  ")]
        return [paragraph]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("public-names", PublicNames)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
