"""Names in pages lead to the reference: `predict_interval` does, `max_features=0.5` does not.

Names of scikit-learn lead to its own reference, and take precedence: `Ridge` is scikit-learn's, and
`simulation.Ridge` is ours.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from docutils import nodes
from elsewhere import known_names
from sphinx import addnodes

ROOMS = (
    "theory",
    "equivalence",
    "subsets",
    "simulation",
    "figures",
    "displays",
    "explorer",
    "onnx",
    "datasets",
)
ESTIMATORS = ("AdaptiveOLSEnsembleRegressor", "OLSEnsembleRegressorCV", "OLSEnsembleRegressor")
CALLED = re.compile(r"([\w.]+)(\(.*\))?")
PLAIN = {
    "draw",
    "save",
    "run",
    "page",
    "write",
    "explore",
    "register",
}  # words too common to be taken for a name


def public_names() -> dict[str, str]:
    """Full names by what pages call them: with the package, with the room, alone."""
    import olsen

    found: dict[str, str] = {}
    for room in ("", *ROOMS):
        module = importlib.import_module(f"olsen.{room}".rstrip("."))
        for name in module.__all__:
            full = f"{module.__name__}.{name}"
            if not callable(getattr(module, name)) or name in ROOMS:
                continue
            found[full] = found[full.removeprefix("olsen.")] = full
            if name not in PLAIN:
                found[name] = full
    for estimator in reversed(ESTIMATORS):
        for name, member in vars_of(getattr(olsen, estimator)).items():
            if str(getattr(getattr(member, "fget", member), "__module__", "")).startswith("olsen"):
                found[name] = found[f"{estimator}.{name}"] = f"olsen.{estimator}.{name}"
    return {
        name: full
        for name, full in found.items()
        if name not in ("fit", "predict", "summary", "report")
    }


def vars_of(cls: type) -> dict[str, Any]:
    """Public methods and properties, those of mix-ins included."""
    return {
        name: getattr(cls, name)
        for name in dir(cls)
        if not name.startswith("_") and _documented(cls, name)
    }


def _documented(cls: type, name: str) -> bool:
    member = getattr(cls, name, None)
    return bool(getattr(member, "__doc__", None)) and (
        callable(member) or isinstance(member, property)
    )


def link_names(app: Any, doctree: nodes.document) -> None:
    """Make links of inline code that is the name, or the call, of something public."""
    docname = app.env.docname
    known = _known_names(app.env, docname.startswith(("api/", "auto_examples/")))
    for literal in list(doctree.findall(nodes.literal)):
        found = CALLED.fullmatch(literal.astext())
        if (
            not found
            or found[1] not in known
            or _inside(literal, addnodes.pending_xref, nodes.reference, nodes.title)
        ):
            continue
        target = {
            "refdomain": "py",
            "reftype": "obj",
            "reftarget": known[found[1]],
            "refdoc": docname,
        }
        link = addnodes.pending_xref("", refexplicit=True, refwarn=True, **target)
        literal.replace_self(link)
        link += literal


def _known_names(env: Any, in_reference: bool) -> dict[str, str]:
    """Full names by what pages call them; the reference and the gallery link our names themselves."""
    cached = env.__dict__
    if "names_elsewhere" not in cached:
        cached["names_elsewhere"] = known_names()
        cached["names_on_pages"] = public_names() | cached["names_elsewhere"]
    found: dict[str, str] = cached["names_elsewhere" if in_reference else "names_on_pages"]
    return found


def _inside(node: nodes.Node, *kinds: type) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, kinds):
            return True
    return False


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", link_names)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
