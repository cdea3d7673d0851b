"""Messages to users: warnings that point at their own line, and the progress of a fit.

Progress goes to scikit-learn's callbacks where they exist (1.9 on, experimental), and to printed lines. For callbacks a
fit is a tree of tasks: the fit, its stages (the members, say), and in every stage its items, of which those that finish
within one percent are one task. A stage ends when all of its items are done, when another begins and its number of
items was unknown, or with the fit; a fit that fails has no end, as in scikit-learn, but its callbacks are torn down.

Estimators of other people take part in callbacks through three names of scikit-learn that begin with an underscore:
``_init_callback_context``, which its documentation tells them to call, the list ``_skl_callbacks``, and
``_callback_fit_ctx``, the context of the fit under way. Where one of them is missing, no callback is called.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    from sklearn import callback as _callback
except ImportError:  # before 1.9: no callbacks to call
    _callback = None

Listener = Callable[[int], None]
Method = TypeVar("Method", bound=Callable[..., Any])

CallbackSupportMixin: Any = getattr(_callback, "CallbackSupportMixin", type("CallbackSupportMixin", (), {}))

MOST_TASKS = 100  # in a stage: whenever one ends, scikit-learn's bar sums over all of them
UNPRINTED = ("paths", "folds")  # for callbacks only: how many there will be is not known beforehand

# Decorators of scikit-learn, threads and callbacks stand between a user and us, and how many there are differs from
# call to call: a fixed stacklevel would name one of their lines.
_HERE = str(Path(__file__).resolve().parents[1])
_BETWEEN = ("sklearn", "joblib", "contextlib", "threading", "concurrent")

_stages: dict[Any, list[_Stage]] = {}  # those that have begun and not ended, by the context of the fit under way


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn about the innermost line outside of this package and of what it is called through."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_HERE) or str(frame.f_globals.get("__name__")).split(".")[0] in _BETWEEN
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def with_callbacks(method: Method) -> Method:
    """Decorator for `fit`: calls the callbacks at its beginning and end, and tears them down whatever happens."""
    manage = getattr(_callback, "with_callbacks", None)
    if manage is None:
        return method

    @wraps(method)
    def fit(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(estimator, "_skl_callbacks", None) or not hasattr(estimator, "_init_callback_context"):
            return method(estimator, *args, **kwargs)
        # first of all: a fit that fails undoes what it set, and without the context no callback would be torn down
        root = estimator._init_callback_context(max_subtasks=None)
        _stages[root] = []
        try:
            root.call_on_fit_task_begin(estimator=estimator)
            result = method(estimator, *args, **kwargs)
            for stage in tuple(_stages[root]):
                stage.end()
            root.call_on_fit_task_end(estimator=estimator)
        finally:
            del _stages[root]
        return result

    return cast(Method, manage(fit))


def progress(estimator: Any, task: str, n_items: int | str) -> Listener | None:
    """A function to be called with the number of finished items, or None where there is no progress to report.

    For the estimator's callbacks this begins a stage of the fit under way, with sub-tasks. If the estimator is verbose,
    every call is a line on the terminal.
    """
    root, start = getattr(estimator, "_callback_fit_ctx", None), time.perf_counter()
    stage = _Stage(estimator, root, task, n_items) if root in _stages and n_items != 0 else None
    printed = estimator.verbose and task not in UNPRINTED
    if stage is None and not printed:
        return None

    def listen(done: int) -> None:
        if stage is not None:
            stage.listen(done)
        if printed:
            seconds = time.perf_counter() - start
            print(f"[{type(estimator).__name__}] {task}: {done} of {n_items}, {seconds:.2f} s", flush=True)

    return listen


class _Stage:
    """A task of a fit whose sub-tasks are finished items, up to a hundredth of them at a time."""

    def __init__(self, estimator: Any, root: Any, task: str, n_items: int | str) -> None:
        self.estimator, self.task, self.siblings = estimator, task, _stages[root]
        self.n_items = None if isinstance(n_items, str) else int(n_items)
        self.n_tasks = None if self.n_items is None else min(self.n_items, MOST_TASKS)
        self.ended = 0  # sub-tasks
        for stage in [stage for stage in self.siblings if stage.n_items is None]:
            stage.end()
        self.context = root.subcontext(task_name=task, max_subtasks=self.n_tasks)
        self.siblings.append(self)
        self.context.call_on_fit_task_begin(estimator=estimator)

    def listen(self, done: int) -> None:
        """So many items are finished; where their number is unknown, every report is one task."""
        if self not in self.siblings:
            return
        due = self.ended + 1
        if self.n_items is not None and self.n_tasks is not None:
            due = min(done, self.n_items) * self.n_tasks // self.n_items
        for _ in range(self.ended, due):
            step = self.context.subcontext(task_name=self.task)
            step.call_on_fit_task_begin(estimator=self.estimator)
            step.call_on_fit_task_end(estimator=self.estimator)
        self.ended = max(self.ended, due)
        if self.ended == self.n_tasks:
            self.end()

    def end(self) -> None:
        """All is done, or nothing more will come."""
        self.siblings.remove(self)
        self.context.call_on_fit_task_end(estimator=self.estimator)
