"""The architecture: who may import whom, who writes what, what is public, and documentation that does not drift."""

import ast
import doctest
import importlib
import inspect
import math
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import olsen
from loops import case

SOURCE = Path(olsen.__file__).parent

# packages from the bottom up: each may import from those before it, and from none after it
LAYERS = [
    "_kernel", "_execution", "subsets", "theory", "datasets", "_trust", "_moments", "_members", "equivalence",
    "_selection", "_engines", "_report", "_estimators", "_dropout", "onnx", "simulation", "figures", "displays",
    "explorer", "cli",
]  # fmt: skip
NEVER = {"simulation": {"theory"}}  # evidence stays independent of what it is evidence for
ENTRANCES = {"__init__", "__main__"}  # may import everything
PURE = {"theory": {"numpy", "scipy", "math", "typing", "collections"}}  # imports these, and nothing of ours

TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
PUBLIC_CLASSES = [getattr(olsen, name) for name in olsen.__all__ if inspect.isclass(getattr(olsen, name))]


def package_of(path):
    return path.removesuffix(".py").split("/")[0]


def imported(path):
    """Names of everything that a module imports, wherever the import stands, as lists of their parts."""
    package = ["olsen", *path.split("/")[:-1]]
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            yield from ([*base, alias.name] for alias in node.names)


def test_imports_go_one_way():
    for path in TREES:
        package = package_of(path)
        if package in ENTRANCES:
            continue
        assert package in LAYERS, f"{package} is new: give it a place in LAYERS"
        names = list(imported(path))
        used = {name[1] for name in names if name[0] == "olsen" and len(name) > 1} - {package}
        for other in used & set(LAYERS):
            assert LAYERS.index(other) < LAYERS.index(package), f"{path} imports {other}, which comes after {package}"
            assert other not in NEVER.get(package, ()), f"{package} may never import {other}"
        if package in PURE:
            foreign = {name[0] for name in names if name[:2] != ["olsen", package]}
            assert foreign <= PURE[package], f"{path} imports {foreign - PURE[package]}"


def own_name(node):
    """Whether an expression is the object itself, `self` or `cls`."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def foreign_writes(tree):
    """Lines that set fitted or private attributes of an object other than the one they belong to."""
    for node in ast.walk(tree):
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


# undoing a failed fit, and copying oneself, are done to whole estimators by their own package
ALLOWED_WRITES = {"_estimators/inputs.py": 2, "_estimators/fitted.py": 2}


def test_nobody_writes_state_of_others():
    """Engines and selection return values; only an estimator sets its own attributes."""
    for path, tree in TREES.items():
        found = list(foreign_writes(tree))
        assert len(found) <= ALLOWED_WRITES.get(path, 0), f"{path}, lines {found}"


def test_private_state_is_not_probed():
    """What an object holds is known from its type: no hasattr or getattr for private names of ours."""
    # scikit-learn's and NumPy's own, see test_guest.py
    others = {"_skl_callbacks", "_init_callback_context", "_callback_fit_ctx", "_mmap"}
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("hasattr", "getattr"):
                name = str(getattr(node.args[1], "value", "")) if len(node.args) > 1 else ""
                private = name.startswith("_") and not name.startswith("__") and name not in others
                assert not private, f"{path}:{node.lineno} probes {name}"


def module_of(path):
    name = ".".join(("olsen", *path.removesuffix(".py").split("/"))).removesuffix(".__init__")
    return importlib.import_module(name)


def test_all_is_what_is_defined():
    """Every public name of a module is in __all__, and everything in __all__ exists."""
    for path in TREES:
        module = module_of(path)
        declared = set(getattr(module, "__all__", ()))
        assert all(hasattr(module, item) for item in declared), path
        defined = {
            item
            for item, value in vars(module).items()
            if not item.startswith("_") and getattr(value, "__module__", None) == module.__name__
            and (inspect.isfunction(value) or inspect.isclass(value))
        }  # fmt: skip
        assert not declared or defined <= declared, f"not in __all__ of {path}: {defined - declared}"


def test_examples_in_docstrings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in TREES:
        if not path.endswith("__main__.py"):
            failed, _ = doctest.testmod(module_of(path), optionflags=doctest.NORMALIZE_WHITESPACE)
            assert failed == 0, path


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda c: c.__name__)
def test_documented_parameters_and_attributes_are_the_real_ones(cls):
    pd = pytest.importorskip("pandas")
    documented = dict(re.findall(r"^(\w+) : .*default=(.+)$", inspect.getdoc(cls), flags=re.M))
    parameters = inspect.signature(cls).parameters
    assert set(documented) == set(parameters), "every parameter is documented, and nothing else"
    for name, parameter in parameters.items():
        value = math.inf if documented[name] == "inf" else ast.literal_eval(documented[name])
        assert value == parameter.default, name
    rng = np.random.default_rng(0)
    model = cls().fit(pd.DataFrame(rng.standard_normal((40, 6)), columns=list("abcdef")), rng.standard_normal(40))
    section = inspect.getdoc(cls).split("Attributes\n")[1].split("\nSee Also")[0]
    for name in re.findall(r"^(\w+_) :", section, flags=re.M):
        assert hasattr(model, name), name


def test_public_classes_name_no_private_module():
    """So that pickles and model files outlive any change inside; their examples run under this name."""
    examples = {test.name for test in doctest.DocTestFinder().find(olsen) if test.examples}
    for cls in PUBLIC_CLASSES:
        assert cls.__module__ == "olsen" and f"olsen.{cls.__name__}" in examples, cls


def test_imports_are_light():
    """Libraries are loaded when used; the command answers `--version` before numerical libraries could be loaded."""
    heavy = ("torch", "dask", "matplotlib", "polars", "skops", "cyclopts")
    for code, libraries in (
        ("from olsen import OLSEnsembleRegressor", heavy),  # scikit-learn loads pandas itself where there is one
        ("import olsen; olsen.__version__", ("numpy", "scipy", "sklearn")),
        ("from olsen.cli import main; main(['--version'])", ("numpy", "scipy", "sklearn")),
    ):
        code += f"; import sys; print([m for m in {libraries!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        with case(code, done.stderr):
            assert done.stdout.splitlines()[-1] == "[]"
    assert version("olsen") == olsen.__version__
