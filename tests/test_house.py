"""The house itself: who may import whom, what is public, and that documentation does not drift from the code."""

import ast
import doctest
import importlib
import inspect
import math
import pkgutil
import re
from pathlib import Path

import pytest

import olsen

SOURCE = Path(olsen.__file__).parent

# rooms from the ground floor up: each may import from those before it, and from none after it
LAYERS = [
    "_kernel", "_execution", "subsets", "theory", "datasets", "_trust", "_moments", "_members", "equivalence",
    "_selection", "_engines", "_estimators", "_dropout", "onnx", "simulation", "figures", "displays", "explorer", "cli",
]  # fmt: skip
NEVER = {"simulation": {"theory"}}  # evidence stays independent of what it is evidence for
DOORS = {"__init__", "__main__"}  # may import everything
# Doors that lead upwards, each opened inside of one function: `report` of a model writes the command's page.
UPWARDS = {"_estimators/report_door.py": {"cli", "simulation"}}

MODULES = sorted(SOURCE.rglob("*.py"))
PUBLIC_CLASSES = [getattr(olsen, name) for name in olsen.__all__ if inspect.isclass(getattr(olsen, name))]


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
    if room in DOORS:
        return
    assert room in LAYERS, f"{room} is a new room: give it a place in LAYERS"
    for used in set(imported_rooms(path)) - {room} - UPWARDS.get(path.relative_to(SOURCE).as_posix(), set()):
        known = (SOURCE / f"{used}.py").exists() or (SOURCE / used).is_dir()
        if known:
            assert LAYERS.index(used) < LAYERS.index(room), f"{path.name} imports {used}, which comes after {room}"
            assert used not in NEVER.get(room, ()), f"{room} may never import {used}"


def own_name(node):
    """Whether an expression is the object itself, `self` or `cls`."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def foreign_writes(path):
    """Places that set fitted or private attributes of an object other than the one they belong to."""
    for node in ast.walk(ast.parse(path.read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in [part for one in targets for part in getattr(one, "elts", [one])]:
            if isinstance(target, ast.Attribute) and not own_name(target.value):
                state = target.attr.endswith("_") or target.attr.startswith("_")
                if state and not target.attr.startswith("__"):
                    yield node.lineno
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if called in ("setattr", "delattr") and not own_name(node.args[0]):
            yield node.lineno
        if isinstance(node, ast.Attribute) and node.attr in ("update", "pop", "clear", "setdefault"):
            call = node.value
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "vars" and not own_name(call.args[0]):
                yield node.lineno


# undoing a failed fit, and copying oneself, are done to whole estimators by their own room
ALLOWED_WRITES = {"_estimators/inputs.py": 2, "_estimators/fitted.py": 2}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nobody_writes_state_of_others(path):
    """Engines and selection return values; only an estimator sets its own attributes."""
    found = list(foreign_writes(path))
    assert len(found) <= ALLOWED_WRITES.get(path.relative_to(SOURCE).as_posix(), 0), f"lines {found}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_private_state_is_not_probed(path):
    """What an object holds is known from its type: no hasattr or getattr for private names of ours."""
    others = {
        "_skl_callbacks",
        "_init_callback_context",
        "_callback_fit_ctx",
        "_mmap",
    }  # scikit-learn's and NumPy's own, see test_guest.py
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("hasattr", "getattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and str(name.value).startswith("_") and name.value not in others:
                assert str(name.value).startswith("__"), f"{path.name}:{node.lineno} probes {name.value}"


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
        assert defined <= declared, f"not in __all__ of {name}: {defined - declared}"


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda c: c.__name__)
def test_documented_defaults_are_the_real_ones(cls):
    text = inspect.getdoc(cls)
    documented = dict(re.findall(r"^(\w+) : .*default=(.+)$", text, flags=re.M))
    parameters = inspect.signature(cls).parameters
    assert set(documented) == set(parameters), "every parameter is documented, and nothing else"
    for name, parameter in parameters.items():
        value = math.inf if documented[name] == "inf" else ast.literal_eval(documented[name])
        assert value == parameter.default, name


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda c: c.__name__)
def test_documented_attributes_exist_after_fit(cls):
    import numpy as np

    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    model = cls().fit(pd.DataFrame(rng.standard_normal((40, 6)), columns=list("abcdef")), rng.standard_normal(40))
    section = inspect.getdoc(cls).split("Attributes\n")[1].split("\nSee Also")[0]
    for name in re.findall(r"^(\w+_) :", section, flags=re.M):
        assert hasattr(model, name), name


NAMES = ["olsen", *(info.name for info in pkgutil.walk_packages([str(SOURCE)], "olsen."))]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("__main__")])
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda c: c.__name__)
def test_public_classes_name_no_room(cls):
    """So that pickles and model files outlive any change of the house; their examples run under this name."""
    assert cls.__module__ == "olsen"
    found = [test for test in doctest.DocTestFinder().find(olsen) if test.name == f"olsen.{cls.__name__}"]
    assert found and found[0].examples


def test_import_is_light():
    """Heavy libraries are loaded when used, not on import (scikit-learn loads pandas itself where there is one)."""
    import subprocess
    import sys

    heavy = ("torch", "dask", "matplotlib", "polars", "skops", "cyclopts")
    code = f"import sys, olsen; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_version_is_the_packages():
    from importlib.metadata import version

    assert version("olsen") == olsen.__version__
