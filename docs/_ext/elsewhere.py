"""Links into the documentation of other projects, by name, without their inventories: a build needs
no network.

Docstrings mention few names of other projects. Those are here, with the addresses they have had for
years; a name that is not here is a warning, and so an error of the build.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes

SKLEARN = "https://scikit-learn.org/stable/modules/generated/{name}.html"
ADDRESSES = {"sklearn.linear_model.Ridge": SKLEARN, "sklearn.linear_model.RidgeCV": SKLEARN}


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> nodes.reference | None:
    """A link to what another project documents under this name."""
    name = node.get("reftarget", "")
    if name not in ADDRESSES:
        return None
    found = nodes.reference(
        "", "", internal=False, refuri=ADDRESSES[name].format(name=name), classes=["external"]
    )
    found += contnode
    return found


def setup(app: Any) -> dict[str, Any]:
    app.connect("missing-reference", resolve)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
