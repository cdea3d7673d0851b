"""Messages to users: warnings that point at their own line, and the progress of a fit.

Progress goes to scikit-learn's callbacks (1.9 or later, experimental) and to printed lines. For
callbacks a fit is a tree of tasks: the fit, its stages (the members, say), and the items of every
stage, of which one percent make up a task. A stage ends when all of its items are done, when
another stage begins and its number of items was unknown, or with the fit. A fit that fails has no
end, as in scikit-learn, but its callbacks are torn down.

Third-party estimators take part in callbacks through three names of scikit-learn that begin with an
underscore: ``_init_callback_context``, which its documentation says to call, the list
``_skl_callbacks``, and ``_callback_fit_ctx``, the context of the running fit. If one of the names
is missing, no callback is called.
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

CallbackSupportMixin: Any = getattr(
    _callback, "CallbackSupportMixin", type("CallbackSupportMixin", (), {})
)

MAX_TASKS_PER_STAGE = 100  # whenever a task ends, scikit-learn's progress bar sums over all tasks
UNPRINTED = ("paths", "folds")  # for callbacks only: the number of items is not known beforehand

# The number of frames of scikit-learn's decorators, threads and callbacks between the user's code
# and this package varies from call to call, so a fixed stacklevel would name a line of another
# library.
_PACKAGE_FOLDER = str(Path(__file__).resolve().parents[1])
_INTERMEDIATE_MODULES = ("sklearn", "joblib", "contextlib", "threading", "concurrent")

_stages: dict[Any, list[_Stage]] = {}  # running stages by the context of the fit


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn about the user's line: the innermost one outside of this package and of the libraries
    that call it.
    """
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None:
        top_module = str(frame.f_globals.get("__name__")).split(".")[0]
        if (
            not frame.f_code.co_filename.startswith(_PACKAGE_FOLDER)
            and top_module not in _INTERMEDIATE_MODULES
        ):
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def with_callbacks(method: Method) -> Method:
    """Decorate `fit` to call the callbacks at its beginning and end, and to tear callbacks down
    even after an error.
    """
    manage = getattr(_callback, "with_callbacks", None)
    if manage is None:
        return method

    @wraps(method)
    def fit(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(estimator, "_skl_callbacks", None) or not hasattr(
            estimator, "_init_callback_context"
        ):
            return method(estimator, *args, **kwargs)
        # The context is created before the fit, because a failing fit removes the attributes that
        # it set, and without the context no callback would be torn down.
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
    """Return a function to be called with the number of finished items, or None if no progress is
    reported.

    For the estimator's callbacks this begins a stage of the running fit, with sub-tasks. If the
    estimator is verbose, every call prints a line on the terminal.
    """
    root = getattr(estimator, "_callback_fit_ctx", None)
    start = time.perf_counter()
    stage = _Stage(estimator, root, task, n_items) if root in _stages and n_items != 0 else None
    printed = estimator.verbose and task not in UNPRINTED
    if stage is None and not printed:
        return None

    def listen(done: int) -> None:
        if stage is not None:
            stage.listen(done)
        if printed:
            seconds = time.perf_counter() - start
            print(
                f"[{type(estimator).__name__}] {task}: {done} of {n_items}, {seconds:.2f} s",
                flush=True,
            )

    return listen


class _Stage:
    """Task of a fit whose sub-tasks are the finished items, of which up to a hundredth form one
    sub-task.
    """

    def __init__(self, estimator: Any, root: Any, task: str, n_items: int | str) -> None:
        self.estimator = estimator
        self.task = task
        self.siblings = _stages[root]
        self.n_items = None if isinstance(n_items, str) else int(n_items)
        self.n_tasks = None if self.n_items is None else min(self.n_items, MAX_TASKS_PER_STAGE)
        self.n_ended = 0  # sub-tasks
        for stage in [stage for stage in self.siblings if stage.n_items is None]:
            stage.end()
        self.context = root.subcontext(task_name=task, max_subtasks=self.n_tasks)
        self.siblings.append(self)
        self.context.call_on_fit_task_begin(estimator=estimator)

    def listen(self, done: int) -> None:
        """Report that `done` items are finished; if the total is unknown, every report counts as
        one sub-task.
        """
        if self not in self.siblings:
            return
        n_due = self.n_ended + 1
        if self.n_items is not None and self.n_tasks is not None:
            n_due = min(done, self.n_items) * self.n_tasks // self.n_items
        for _ in range(self.n_ended, n_due):
            step = self.context.subcontext(task_name=self.task)
            step.call_on_fit_task_begin(estimator=self.estimator)
            step.call_on_fit_task_end(estimator=self.estimator)
        self.n_ended = max(self.n_ended, n_due)
        if self.n_ended == self.n_tasks:
            self.end()

    def end(self) -> None:
        """End the stage."""
        self.siblings.remove(self)
        self.context.call_on_fit_task_end(estimator=self.estimator)
