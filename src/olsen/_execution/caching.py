"""Properties that are computed once per object."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """Variant of `functools.cached_property` without a lock.

    Python 3.11 has one lock for all objects, and a child process forked while the lock is taken
    would wait for ever. Without it two threads may compute the same value twice, as in Python 3.12
    and later, which does no harm.
    """

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock: Any = nullcontext()
