"""The architecture: who may import whom, who writes what, how large it may be, and a map that does not drift.

python tests/test_architecture.py --write      # puts the map of the modules into CONTRIBUTING.md
"""

import ast
import doctest
import importlib
import inspect
import io
import math
import re
import subprocess
import sys
import textwrap
import tokenize
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import olsen
from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV

SOURCE = Path(olsen.__file__).parent

# packages from the bottom up: each may import from those before it, and from none after it
LAYERS = [
    "_kernel", "_execution", "subsets", "theory", "datasets", "_trust", "_moments", "_members", "equivalence",
    "_selection", "_engines", "_report", "_estimators", "_dropout", "onnx", "_persistence", "simulation", "figures",
    "displays", "explorer", "cli",
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
        defined -= set(getattr(module, "_HOMES", ()))  # loaded when asked for, and not all of them for users
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
    code = """
import sys
def loads(step, *libraries):
    before = set(sys.modules)
    exec(step)
    print(sorted(set(libraries) & (set(sys.modules) - before)))
loads("import olsen; olsen.__version__", "numpy", "scipy", "sklearn")
loads("from olsen.cli import main; main(['--version'])", "numpy", "scipy", "sklearn")
for name in [name for name in sys.modules if name.startswith(("cyclopts", "olsen.cli"))]:
    del sys.modules[name]  # so that they count again
loads("from olsen import OLSEnsembleRegressor", "torch", "dask", "matplotlib", "polars", "skops", "cyclopts")
loads("from olsen._persistence import load_skops; load_skops()", "torch", "dask")
"""  # scikit-learn loads pandas itself where there is one
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", olsen.__version__, "[]", "[]", "[]"], done.stderr
    assert version("olsen") == olsen.__version__


# Size: growth is a decision. Code lines without docstrings, comments and blank lines.

LINES = {
    "_estimators": 2140, "_members": 1860, "cli": 1990, "_selection": 1640, "theory": 1133, "_engines": 1290,
    "figures": 663, "_report": 627, "displays": 548, "modules": 700, "subsets": 505, "_execution": 540,
    "_dropout": 378, "_moments": 306, "simulation": 249, "explorer": 47, "datasets": 25, "_kernel": 0,
}  # fmt: skip
FILES, CONSTANTS, C_LINES = 112, 145, 1760
WALKS = {"fit": (20, 74), "tuned fit": (28, 430), "olsen fit": (46, 720)}  # files entered, changes of file


def code_lines(path):
    """Lines of a file with code in them."""
    docs, code = set(), set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docs.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO((SOURCE / path).read_text()).readline):
        if token.type not in quiet:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docs)


def constants(tree):
    """Names in capitals, at the top of a module, whose value holds a number."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id.isupper() for target in targets):
            values = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            yield any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def test_packages_keep_their_budgets():
    lines = Counter()
    for path in TREES:
        lines[path.split("/")[0] if "/" in path else "modules"] += code_lines(path)
    over = {package: count for package, count in lines.items() if count > LINES.get(package, 0)}
    assert not over, f"code lines over the budget of LINES: {over}"
    assert len(TREES) <= FILES and sum(sum(constants(tree)) for tree in TREES.values()) <= CONSTANTS
    sources = [path for kind in ("c", "h") for path in (SOURCE / "_kernel").glob(f"*.{kind}")]
    assert sum(len(path.read_text().splitlines()) for path in sources) <= C_LINES


def walk(work):
    """Files of ours that a second call enters, and how often it changes from one to another."""
    work()
    files, changes = [], 0

    def note(frame, event, _):
        nonlocal changes
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(SOURCE)) and (not files or name != files[-1]):
            files.append(name)
            changes += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(set(files)), changes


def test_walks_keep_their_budgets(tmp_path, olsen):
    for module in ("pyarrow", "cyclopts", "skops"):
        pytest.importorskip(module)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 40))
    y = X[:, 0] + rng.standard_normal(300)
    table, model = tmp_path / "table.csv", tmp_path / "model.skops"
    np.savetxt(table, X[:, :20], delimiter=",", header=",".join(f"x{j}" for j in range(20)), comments="")
    works = {
        "fit": lambda: OLSEnsembleRegressor(100, n_jobs=1, random_state=0).fit(X, y),
        "tuned fit": lambda: OLSEnsembleRegressorCV(n_jobs=1, random_state=0).fit(X, y),
        "olsen fit": lambda: olsen("fit", table, "--target", "x0", "--out", model, "--jobs", 1),
    }
    for name, work in works.items():
        found = walk(lambda work=work: (model.unlink(missing_ok=True), work()))
        assert all(here <= most for here, most in zip(found, WALKS[name], strict=True)), (name, found, WALKS[name])


# The map in CONTRIBUTING.md

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
MAP = re.compile(r"(?<=```text\n).*?(?=^```$)", flags=re.M | re.S)


def drawn_map():
    """Packages from the top down: the first sentence of their documentation, and their modules."""
    blocks = []
    for package in reversed(LAYERS):
        head = TREES.get(f"{package}/__init__.py") or TREES[f"{package}.py"]
        sentence = re.split(r"(?<=[^.])[.:;]( |$)", ast.get_docstring(head).split("\n")[0])[0].replace("``", "")
        inside = [path.split("/", 1)[1].removesuffix(".py") for path in TREES if path.startswith(f"{package}/")]
        inside += sorted(path.name for path in (SOURCE / package).glob("*.[ch]"))
        modules = ", ".join(name for name in inside if not name.endswith("__init__"))
        text = f"{package:<13}{sentence}{': ' * bool(modules)}{modules}"
        blocks.append(textwrap.fill(text, 120, subsequent_indent=" " * 13, break_on_hyphens=False))
    return "\n".join(blocks) + "\n"


def test_the_map_is_made_from_the_code_and_its_walks_lead_somewhere():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert MAP.search(text)[0] == drawn_map(), "python tests/test_architecture.py --write"
    for path in re.findall(r"`([\w/]+\.py)`", text):
        assert path in TREES or (CONTRIBUTING.parent / path).exists(), f"CONTRIBUTING.md: there is no {path}"
    for name, path in re.findall(r"`([\w.]+)` \(`([\w/]+\.py)`\)", text):
        defined = {getattr(node, "name", None) for node in ast.walk(TREES[path])}
        assert name.split(".")[-1] in defined, f"CONTRIBUTING.md: {path} has no {name}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    before = CONTRIBUTING.read_text(encoding="utf-8")
    CONTRIBUTING.write_text(MAP.sub(lambda _: drawn_map(), before, count=1), encoding="utf-8")
