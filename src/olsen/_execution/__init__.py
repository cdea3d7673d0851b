"""Execution of the work: threads, BLAS, memory, arrays of other libraries, messages, files;
optional libraries.
"""

from __future__ import annotations

import importlib
import platform
from typing import Any

from .. import __version__


def from_extra(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional library; where the library is missing, say what needs it and
    how to install it.

    Examples
    --------
    >>> from_extra("no_such_library", "plot", "Drawing figures")
    Traceback (most recent call last):
    ModuleNotFoundError: Drawing figures needs no_such_library, which is not installed: pip install 'olsen[plot]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != library:
            raise  # the library is installed, but one of its own dependencies is missing
        raise ModuleNotFoundError(
            f"{purpose} needs {library}, which is not installed: pip install 'olsen[{extra}]'",
            name=library,
        ) from None


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of the libraries that the results depend on."""
    modules = {"numpy": "numpy", "scipy": "scipy", "scikit-learn": "sklearn"}
    library_versions = {
        name: importlib.import_module(module).__version__ for name, module in modules.items()
    }
    return {"python": platform.python_version(), "olsen": __version__, **library_versions}
