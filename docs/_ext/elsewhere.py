"""Links into the documentation of scikit-learn, NumPy and SciPy, through intersphinx and without
network.

intersphinx reads inventories: lists of names with their addresses. Those of other projects are not
fetched; they are written from the installed packages when a build starts, since each of the three
projects documents a public name at an address that is made of the name.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class Project(NamedTuple):
    """Its name, where it has its documentation, and the folder in which names have a page each."""

    name: str
    site: str
    folder: str


PROJECTS = {
    "sklearn": Project("scikit-learn", "https://scikit-learn.org/stable", "modules/generated"),
    "numpy": Project("NumPy", "https://numpy.org/doc/stable", "reference/generated"),
    "scipy": Project("SciPy", "https://docs.scipy.org/doc/scipy", "reference/generated"),
}
MODULES = {
    "numpy": ("numpy", "numpy.linalg"),
    "scipy": (
        "scipy.linalg",
        "scipy.optimize",
        "scipy.sparse",
        "scipy.sparse.linalg",
        "scipy.stats",
    ),
}
UNDOCUMENTED = {"conftest", "experimental", "externals", "tests"}  # subpackages of scikit-learn


def modules_of(project: str) -> list[ModuleType]:
    """Public modules of a project that have names."""
    if project == "sklearn":
        package = importlib.import_module(project)
        found = [module.name for module in pkgutil.iter_modules(package.__path__)]
        names = [f"{project}.{n}" for n in found if n[0] != "_" and n not in UNDOCUMENTED]
        names = [project, *names]
    else:
        names = list(MODULES[project])
    return [importlib.import_module(name) for name in names]


def full_names(project: str) -> dict[str, str]:
    """Full names of the public classes and functions of a project, with their kind."""
    found = {}
    for module in modules_of(project):
        for name in getattr(module, "__all__", ()):
            try:
                value = getattr(module, name)
            except ImportError:  # what is experimental has to be enabled first
                continue
            if inspect.isclass(value):
                found[f"{module.__name__}.{name}"] = "class"
            elif callable(value):
                found[f"{module.__name__}.{name}"] = "function"
    return found


def known_names() -> dict[str, str]:
    """Full names by what pages call them: in full, or classes of scikit-learn by their last part,
    and so its functions of several words.

    Names of one word, such as ``scale``, mean something of ours, or nothing of either.
    """
    kinds = full_names("sklearn")
    known = {full: full for project in PROJECTS for full in full_names(project)}
    for full in reversed(kinds):
        short = full.rpartition(".")[2]
        if kinds[full] == "class" or "_" in short:
            known[short] = full
    return known


def inventory(project: str) -> bytes:
    """What intersphinx reads: a head in plain text, then a compressed line for each name."""
    called, _, folder = PROJECTS[project]
    head = f"# Sphinx inventory version 2\n# Project: {called}\n# Version: \n"
    lines = [
        f"{name} py:{kind} 1 {folder}/{name}.html#$ -\n"
        for name, kind in sorted(full_names(project).items())
    ]
    packed = zlib.compress("".join(lines).encode())
    return f"{head}# The remainder of this file is compressed using zlib.\n".encode() + packed


def write_inventories(app: Any, config: Any) -> None:
    """Write the inventories of all projects, and tell intersphinx where they are."""
    folder = Path(app.doctreedir) / "inventories"
    folder.mkdir(parents=True, exist_ok=True)
    for project, (_, site, _) in PROJECTS.items():
        path = folder / f"{project}.inv"
        path.write_bytes(inventory(project))
        config.intersphinx_mapping[project] = (site, str(path))


def setup(app: Any) -> dict[str, Any]:
    app.setup_extension("sphinx.ext.intersphinx")
    app.connect("config-inited", write_inventories, priority=100)  # before intersphinx reads them
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
