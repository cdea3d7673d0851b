"""The first fit of an installation compiles for seconds: whoever waits for it at a terminal is told, once."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from contextlib import nullcontext

from numba.core import event

from .factor import JIT

__all__ = ["said_if_compiled"]

ONCE = "olsen: compiling the kernel once, for several seconds; later runs load it"
ALWAYS = (
    "olsen: compiling the kernel for several seconds, now and in every run: there is no folder to keep it. "
    "Let NUMBA_CACHE_DIR name one that can be written to"
)
PATIENCE = 1.0  # seconds of compiling that pass without a word

_first_to_speak = threading.Lock()  # never released: there is one message in the life of a process


def said_if_compiled(function):
    """Context of a call of a compiled function: on a terminal, says so if the function must be compiled first.

    Not in the workers of a pool, which share the terminal of the process that waits for them. Numba decides whether the
    function is compiled or loaded, and from which folder.
    """
    waits_at_terminal = sys.stderr is not None and sys.stderr.isatty()
    if _first_to_speak.locked() or not waits_at_terminal or multiprocessing.current_process().name != "MainProcess":
        return nullcontext()
    return event.install_listener("numba:compile", _Compilation(function))


class _Compilation(event.Listener):
    """Speaks when numba has been compiling a certain function for a while."""

    def __init__(self, function):
        self.function = function
        self.timer = None

    def on_start(self, event):
        if event.data["dispatcher"] is self.function:
            self.timer = threading.Timer(PATIENCE, _say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event):
        if event.data["dispatcher"] is self.function and self.timer is not None:
            self.timer.cancel()


def _say():
    if _first_to_speak.acquire(blocking=False):
        print(ONCE if JIT["cache"] else ALWAYS, file=sys.stderr, flush=True)
