"""Libraries that come with an extra of the installation, and what is said where one is missing."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["from_extra"]


def from_extra(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional library; where the library is missing, say what needs it and how to install it.

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
            raise  # it is there, and lacks something itself
        raise ModuleNotFoundError(
            f"{purpose} needs {library}, which is not installed: pip install 'olsen[{extra}]'", name=library
        ) from None
