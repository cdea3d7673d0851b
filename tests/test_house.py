"""The house itself: who may import whom, what is public, and that documentation does not drift from the code."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import olsen

SOURCE = Path(olsen.__file__).parent

# room -> rooms it may import; a room is the first part of a module's name below olsen
LAYERS = {
    "_keys": set(),
    "_laws": {"_keys"},
    "subsets": {"_keys", "_laws"},
    "theory": set(),
    "_execution": set(),
    "datasets": set(),
    "_moments": {"_execution"},
    "_members": {"_moments", "_execution"},
    "_combining": {"_moments", "_members", "_execution", "subsets"},
    "_inclusion": {"_moments", "_members", "_execution"},
    "equivalence": {"_moments", "_members", "_execution"},
    "_uncertainty": {"_moments", "_members", "_execution"},
    "_streaming": {"_members", "_moments", "_execution"},
    "_inputs": {"_members", "_moments", "_execution"},
    "_elsewhere": {"_members", "_execution", "_inputs", "subsets"},
    "_blockwise": {"_elsewhere", "_members", "_moments", "_streaming", "_execution", "_inputs", "subsets"},
    "_distributed": {
        "_blockwise", "_elsewhere", "_inputs", "_members", "_moments", "_streaming", "_execution", "subsets",
    },
    "_large": {"_blockwise", "_distributed", "_elsewhere", "_execution", "_moment_selection", "_moments"},
    "_risk_curve": {"subsets"},
    "_selection": {"_members", "_moments", "_risk_curve", "subsets"},
    "_moment_selection": {"_selection", "_moments", "_risk_curve", "_execution"},
    "_auto_inclusion": {"_members", "_moments", "_inclusion", "_selection", "subsets"},
    "_fitted": {"_large", "_members", "_uncertainty", "_inputs"},
    "_fitting": {"_members", "_moments", "_execution", "_inputs", "_combining", "subsets"},
    "_functional": {"_members", "_inputs", "_execution", "subsets"},
    "_dropout_exact": {"_execution", "_members", "_moments", "_streaming"},
    "_dropout_sgd": {"_dropout_exact", "_members", "_moments"},
    "_dropout": {"_dropout_exact", "_dropout_sgd", "_execution", "_inputs", "_moments", "subsets"},
    "_ensemble": {"_execution", "_inputs", "_fitted", "_fitting", "_streaming", "_large"},
    "_tuning": {
        "_auto_inclusion", "_combining", "_execution", "_fitted", "_fitting", "_inputs", "_large", "_risk_curve",
        "_selection", "subsets",
    },
    "simulation": {"_members", "_execution", "equivalence", "subsets", "_ensemble", "_tuning"},  # never theory
    "figures": {"simulation", "theory", "subsets"},
    "_tables": set(),
    "_terminal": set(),
    "_report": set(),
    "_predictions": set(),
    "_modelfile": {"_tables"},
    "_large_tables": {"_execution", "_large", "_tables"},
    "_fit_table": {
        "_execution", "_large_tables", "_modelfile", "_report", "_tables", "_terminal", "datasets", "simulation",
    },
    "cli": None,  # everything public, and the rooms made for it
    "__main__": {"cli"},
    "__init__": None,  # the front door may import everything
}  # fmt: skip
MODULES = sorted(SOURCE.rglob("*.py"))
PUBLIC_CLASSES = [value for value in vars(olsen).values() if inspect.isclass(value)]


def room_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imported_rooms(path):
    """Rooms of ours named in any import of a module, wherever it stands."""
    package = ("olsen", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        yield from (name[1] for name in names if name[0] == "olsen" and len(name) > 1)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    room = room_of(path)
    assert room in LAYERS, f"{room} is a new room: say in LAYERS what it may import"
    if LAYERS[room] is None:
        return
    for used in imported_rooms(path):
        known = used in LAYERS or (SOURCE / f"{used}.py").exists() or (SOURCE / used).is_dir()
        if known and used != room:
            assert used in LAYERS[room], f"{path.name} imports {used}, which {room} may not"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_all_is_what_is_defined(path):
    """Every public name of a module is in __all__, and everything in __all__ exists."""
    name = ".".join(("olsen", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    module = importlib.import_module(name)
    declared = set(getattr(module, "__all__", ()))
    assert all(hasattr(module, item) for item in declared)
    defined = {
        item
        for item, value in vars(module).items()
        if not item.startswith("_") and getattr(value, "__module__", None) == name
        and (inspect.isfunction(value) or inspect.isclass(value))
    }  # fmt: skip
    if declared:
        assert defined <= declared | PRIVATE_HELPERS.get(name, set()), f"not in __all__ of {name}: {defined - declared}"


PRIVATE_HELPERS = {"olsen._inputs": {"refuse_text_columns"}}


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda c: c.__name__)
def test_documented_defaults_are_the_real_ones(cls):
    text = inspect.getdoc(cls)
    documented = dict(re.findall(r"^(\w+) : .*default=(.+)$", text, flags=re.M))
    parameters = inspect.signature(cls).parameters
    assert set(documented) == set(parameters), "every parameter is documented, and nothing else"
    for name, parameter in parameters.items():
        assert ast.literal_eval(documented[name]) == parameter.default, name


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda c: c.__name__)
def test_documented_attributes_exist_after_fit(cls):
    import numpy as np

    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    model = cls().fit(pd.DataFrame(rng.standard_normal((40, 6)), columns=list("abcdef")), rng.standard_normal(40))
    section = inspect.getdoc(cls).split("Attributes\n")[1].split("\nSee Also")[0]
    for name in re.findall(r"^(\w+_) :", section, flags=re.M):
        assert hasattr(model, name), name


@pytest.mark.parametrize("info", list(pkgutil.walk_packages([str(SOURCE)], "olsen.")), ids=lambda i: i.name)
def test_examples_in_docstrings_run(info):
    if info.name.endswith("__main__"):
        return
    result = doctest.testmod(importlib.import_module(info.name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_import_is_light():
    """Heavy libraries are loaded when used, not on import (scikit-learn loads pandas itself where there is one)."""
    import subprocess
    import sys

    heavy = ("numba", "torch", "dask", "matplotlib", "polars", "skops", "cyclopts")
    code = f"import sys, olsen; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_version_is_the_packages():
    from importlib.metadata import version

    assert version("olsen") == olsen.__version__
