"""Warnings that point at the user's own line, whatever called us in between."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

__all__ = ["warn"]

# Decorators of scikit-learn, threads and callbacks stand between a user and us, and how many there are differs from
# call to call: a fixed stacklevel would name one of their lines.
_HERE = str(Path(__file__).resolve().parents[1])
_BETWEEN = ("sklearn", "joblib", "contextlib", "threading", "concurrent")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the innermost line outside of this package and of what it is called through."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(file: str, module: str) -> bool:
    return file.startswith(_HERE) or module.partition(".")[0] in _BETWEEN
