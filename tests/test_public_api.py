"""The public interface, as listed in public_api.txt: nothing is added, changed or lost unnoticed.

Names, parameters, defaults, methods and documented attributes of everything that users can import.
Where the test fails and the change is meant, write the list anew, read the difference, and see
CONTRIBUTING.md for what a change costs:

    python tests/test_public_api.py --write
"""

import difflib
import importlib
import inspect
import pkgutil
import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path

LIST = Path(__file__).with_name("public_api.txt")
REQUESTS = re.compile(
    r"set_\w+_request$"
)  # made by scikit-learn, for what fit and score take besides X and y


def public_modules():
    """The package and its modules without underscore; what lies deeper is reached through these."""
    import olsen

    modules = [
        info.name for info in pkgutil.iter_modules(olsen.__path__) if not info.name.startswith("_")
    ]
    return [olsen, *(importlib.import_module(f"olsen.{module}") for module in sorted(modules))]


class Shown:
    """A default as one writes it; paths as text, functions and classes by their names."""

    def __init__(self, value):
        is_named = isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type))
        text = str(value) if isinstance(value, Path) else value
        self.text = value.__qualname__ if is_named else repr(text)

    def __repr__(self):
        return self.text


def signature(function):
    """Parameters and defaults, without types: mypy looks after those."""
    original = inspect.signature(function)
    parameters = [
        p.replace(
            annotation=p.empty, default=p.default if p.default is p.empty else Shown(p.default)
        )
        for p in original.parameters.values()
        if p.name != "self"
    ]
    return str(original.replace(parameters=parameters, return_annotation=original.empty))


def attributes_told(cls):
    """Names in the section Attributes of a class's documentation, and fields of a record."""
    text = inspect.getdoc(cls) or ""
    section = re.search(r"^Attributes\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text, flags=re.M | re.S)
    documented = re.findall(r"^(\w+) :", section[1], flags=re.M) if section else []
    fields = getattr(cls, "__dataclass_fields__", getattr(cls, "_fields", ()))
    return {*documented, *(name for name in fields if not name.startswith("_"))}


def members_of(cls, name):
    """Lines for what a public class has from us; what it inherits from others is theirs to keep."""
    ours = [base for base in reversed(cls.__mro__) if base.__module__.split(".")[0] == "olsen"]
    own_names = {item for base in ours for item in vars(base)}
    for item in sorted({*own_names, *attributes_told(cls)}):
        if item.startswith("_") or REQUESTS.match(item):
            continue
        if item in own_names and not hasattr(
            cls, item
        ):  # a name that only says what to use instead
            continue
        seen = getattr(
            cls, item, None
        )  # a method that exists under a condition is seen as a function, too
        yield f"{name}.{item}{signature(seen) if callable(seen) else ''}"


def lines_of(name, value):
    """Lines for one public name."""
    if inspect.isclass(value) and issubclass(value, Exception):
        yield f"class {name}({value.__base__.__name__})"
    elif inspect.isclass(value):
        yield f"class {name}{signature(value)}"
        yield from members_of(value, name)
    elif callable(value):
        yield f"{name}{signature(value)}"
    elif isinstance(value, types.ModuleType):
        yield f"module {name}"
    elif isinstance(value, (Mapping, tuple)):
        yield f"{name}: {', '.join(map(str, value))}"
    else:
        yield f"{name}: {type(value).__name__}"


def command_lines():
    """The command's arguments and options with their defaults, as cyclopts has them."""
    from olsen.cli import commands

    app = commands.app()
    for name in commands.__all__:
        if name in app:
            arguments = [
                argument for argument in app[name].assemble_argument_collection() if argument.show
            ]
            options = (
                f"{argument.names[0]}={Shown(argument.field_info.default)}"
                for argument in arguments
            )
            yield f"$ olsen {name} {' '.join(options)}"


def public_interface():
    """All lines, in the order of the modules and of the names in them; the commands come last."""
    lines = [
        line
        for module in public_modules()
        for name in sorted(module.__all__)
        for line in lines_of(f"{module.__name__}.{name}", getattr(module, name))
    ]
    return [*lines, *command_lines()]


def test_the_public_interface_is_the_listed_one():
    listed = LIST.read_text(encoding="utf-8").splitlines()
    interface = public_interface()
    changed = "\n".join(
        difflib.unified_diff(listed, interface, "listed", "found", lineterm="", n=0)
    )
    assert not changed, (
        f"{changed}\n\nIf this is meant: python tests/test_public_api.py --write, and"
        " CONTRIBUTING.md."
    )


def test_every_listed_name_can_be_imported():
    """From a new interpreter and one by one, so that no name depends on another having been loaded."""
    import subprocess

    names = [
        line.split()[-1]
        for line in LIST.read_text(encoding="utf-8").splitlines()
        if line.startswith("module ")
    ]
    code = (
        "import sys, importlib, olsen; [importlib.import_module(n) for n in sys.argv[1:]]; from"
        " olsen import *"
    )
    code += (
        "; print(sorted(set(olsen.__all__) - set(globals())), sorted(set(olsen.__all__) ^"
        " set(dir(olsen))))"
    )
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[] []", "")


def test_the_random_argument_of_functions_is_rng():
    """Estimators have random_state, as in scikit-learn."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    callables = [line for line in lines if "(" in line and not line.startswith("$")]
    random = {}
    for line in callables:
        name, _, parameters = line.partition("(")
        named = set(re.findall(r"\b(rng|seed|random_state|random|generator)\b", parameters))
        if named:
            random[name.removeprefix("class ")] = named
    for name, named in random.items():
        is_estimator = name.endswith(("Regressor", "RegressorCV"))
        assert named == ({"random_state"} if is_estimator else {"rng"}), name
    assert len(random) > 15


def test_an_unknown_name_is_an_attribute_error():
    import pytest

    import olsen

    with pytest.raises(AttributeError, match="module 'olsen' has no attribute 'Regressor'"):
        _ = olsen.Regressor


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        LIST.write_text("\n".join(public_interface()) + "\n", encoding="utf-8")
    else:
        sys.exit("usage: python tests/test_public_api.py --write")
