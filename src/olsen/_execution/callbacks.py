"""Progress of a fit: scikit-learn's callbacks where they exist (1.9 on, experimental), printed lines otherwise.

Estimators of other people take part in callbacks through three names of scikit-learn that begin with an underscore:
``_init_callback_context``, which its documentation tells them to call, the list ``_skl_callbacks``, and
``_callback_fit_ctx``, the context of the fit under way. Where one of them is missing, nobody is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

try:
    from sklearn import callback as _sklearn
except ImportError:  # before 1.9: no callbacks to call
    _sklearn = None

__all__ = ["CallbackSupportMixin", "progress", "with_callbacks"]

Listener = Callable[[int], None]
Method = TypeVar("Method", bound=Callable[..., Any])

CallbackSupportMixin: Any = getattr(_sklearn, "CallbackSupportMixin", type("CallbackSupportMixin", (), {}))


def with_callbacks(method: Method) -> Method:
    """Decorator for `fit`: scikit-learn's own where it has one."""
    decorated: Method = getattr(_sklearn, "with_callbacks", lambda fit: fit)(method)
    return decorated


def progress(estimator: Any, task: str, n_items: int | str) -> Listener | None:
    """A function to be called with the number of finished items, or None when nobody listens.

    Every call is one sub-task of the fit for the estimator's callbacks, and one line on the terminal if the estimator
    is verbose.
    """
    listeners: list[Listener] = []
    if getattr(estimator, "_skl_callbacks", None) and hasattr(estimator, "_init_callback_context"):
        listeners.append(_callback_listener(estimator, task))
    if estimator.verbose:
        listeners.append(_terminal_listener(type(estimator).__name__, task, n_items))
    if not listeners:
        return None

    def tell(done: int) -> None:
        for listener in listeners:
            listener(done)

    return tell


def _callback_listener(estimator: Any, task: str) -> Listener:
    root = getattr(estimator, "_callback_fit_ctx", None)
    if root is None:  # once a fit: callbacks may start a thread, and are told only once that the fit has ended
        root = estimator._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=estimator)

    def listen(done: int) -> None:
        step = root.subcontext(task_name=task)
        step.call_on_fit_task_begin(estimator=estimator)
        step.call_on_fit_task_end(estimator=estimator)

    return listen


def _terminal_listener(name: str, task: str, n_items: int | str) -> Listener:
    start = time.perf_counter()

    def listen(done: int) -> None:
        print(f"[{name}] {task}: {done} of {n_items}, {time.perf_counter() - start:.2f} s", flush=True)

    return listen
