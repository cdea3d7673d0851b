"""Whether compiled code is used: whenever it is loaded, and it is loaded once that pays.

Loading it takes about half a second, and the first time on a machine it is compiled, which takes many. So small
problems start without; the time that they take is added up, and when the process has spent enough on them the
compiled code is loaded for the rest of its life.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

__all__ = ["load", "there", "worth_it"]

WORTH_LOADING = 0.02  # seconds in LAPACK and Python, from which on compiled code is loaded
LOADED = "olsen._members._kernel.principal"

_spent = 0.0  # seconds that compiled code would have saved in this process, about


def load() -> None:
    """Have compiled code from now on, where there is any.

    It rounds otherwise than LAPACK, so what is to come out the same to the last bit, however often it is interrupted,
    must not depend on when it was loaded.
    """
    if there():
        importlib.import_module(LOADED)


def there() -> bool:
    """Whether there is any compiled code."""
    return importlib.util.find_spec("numba") is not None


def worth_it(seconds: float) -> bool:
    """Whether to use compiled code for work that would take so many seconds without it; that time is remembered."""
    global _spent
    if LOADED in sys.modules:
        return True
    if not there():
        return False
    _spent += seconds
    return _spent > WORTH_LOADING
