"""Progress of a fit: scikit-learn's callbacks where they exist (1.9 on, experimental), printed lines otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

try:
    from sklearn import callback as _sklearn
except ImportError:  # before 1.9: no callbacks to call
    _sklearn = None

__all__ = ["CallbackSupportMixin", "progress", "with_callbacks"]

CallbackSupportMixin: Any = getattr(_sklearn, "CallbackSupportMixin", type("CallbackSupportMixin", (), {}))
with_callbacks: Callable = getattr(_sklearn, "with_callbacks", lambda method: method)


def progress(estimator, task: str, n_items: int | str) -> Callable[[int], None] | None:
    """A function to be called with the number of finished items, or None when nobody listens.

    Every call is one sub-task of the fit for the estimator's callbacks, and one line on the terminal if the estimator
    is verbose.
    """
    listeners = []
    if getattr(estimator, "_skl_callbacks", None):
        listeners.append(_callback_listener(estimator, task))
    if estimator.verbose:
        listeners.append(_terminal_listener(type(estimator).__name__, task, n_items))
    if not listeners:
        return None

    def tell(done: int) -> None:
        for listener in listeners:
            listener(done)

    return tell


def _callback_listener(estimator, task):
    root = estimator._init_callback_context(max_subtasks=None)
    root.call_on_fit_task_begin(estimator=estimator)

    def listen(done):
        step = root.subcontext(task_name=task)
        step.call_on_fit_task_begin(estimator=estimator)
        step.call_on_fit_task_end(estimator=estimator)

    return listen


def _terminal_listener(name, task, n_items):
    start = time.perf_counter()

    def listen(done):
        print(f"[{name}] {task}: {done} of {n_items}, {time.perf_counter() - start:.2f} s", flush=True)

    return listen
