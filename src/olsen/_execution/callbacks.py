"""Progress of a fit: scikit-learn's callbacks where they exist (1.9 on, experimental), printed lines otherwise.

For callbacks a fit is a tree of tasks: the fit, its stages (the members, say), and in every stage its items, of which
those that finish within one percent are one task. A stage ends when all of its items are done, when another begins and
nobody knew how many it would have, or with the fit; a fit that fails has no end, as in scikit-learn, but its callbacks
are taken down.

Estimators of other people take part in callbacks through three names of scikit-learn that begin with an underscore:
``_init_callback_context``, which its documentation tells them to call, the list ``_skl_callbacks``, and
``_callback_fit_ctx``, the context of the fit under way. Where one of them is missing, nobody is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

try:
    from sklearn import callback as _sklearn
except ImportError:  # before 1.9: no callbacks to call
    _sklearn = None

__all__ = ["CallbackSupportMixin", "progress", "with_callbacks"]

Listener = Callable[[int], None]
Method = TypeVar("Method", bound=Callable[..., Any])

CallbackSupportMixin: Any = getattr(_sklearn, "CallbackSupportMixin", type("CallbackSupportMixin", (), {}))

MOST_TASKS = 100  # in a stage: whenever one ends, scikit-learn's bar sums over all of them
UNPRINTED = ("paths", "folds")  # how a size is chosen is for callbacks: nobody knows beforehand how many there will be

_stages: dict[Any, list[_Stage]] = {}  # those that have begun and not ended, by the context of the fit under way


def with_callbacks(method: Method) -> Method:
    """Decorator for `fit`: its callbacks hear of its beginning and end, and are taken down whatever happens."""
    manage = getattr(_sklearn, "with_callbacks", None)
    if manage is None:
        return method

    @wraps(method)
    def fit(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        if not _has_callbacks(estimator):
            return method(estimator, *args, **kwargs)
        # first of all: a fit that fails undoes what it set, and without the context nobody would be taken down
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
    """A function to be called with the number of finished items, or None when nobody listens.

    For the estimator's callbacks this begins a stage of the fit under way, with sub-tasks. If the estimator is verbose,
    every call is a line on the terminal.
    """
    listeners: list[Listener] = []
    root = getattr(estimator, "_callback_fit_ctx", None)
    if root in _stages and n_items != 0:
        listeners.append(_Stage(estimator, root, task, n_items).listen)
    if estimator.verbose and task not in UNPRINTED:
        listeners.append(_terminal_listener(type(estimator).__name__, task, n_items))
    if not listeners:
        return None

    def tell(done: int) -> None:
        for listener in listeners:
            listener(done)

    return tell


def _has_callbacks(estimator: Any) -> bool:
    return bool(getattr(estimator, "_skl_callbacks", None)) and hasattr(estimator, "_init_callback_context")


class _Stage:
    """A task of a fit whose sub-tasks are finished items, up to a hundredth of them at a time."""

    def __init__(self, estimator: Any, root: Any, task: str, n_items: int | str) -> None:
        self.estimator, self.task = estimator, task
        self.n_items = None if isinstance(n_items, str) else int(n_items)
        self.n_tasks = None if self.n_items is None else min(self.n_items, MOST_TASKS)
        self.ended = 0  # sub-tasks
        self.siblings = _stages[root]
        for stage in [stage for stage in self.siblings if stage.n_items is None]:
            stage.end()
        self.context = root.subcontext(task_name=task, max_subtasks=self.n_tasks)
        self.siblings.append(self)
        self.context.call_on_fit_task_begin(estimator=estimator)

    def listen(self, done: int) -> None:
        """So many items are finished."""
        if self not in self.siblings:
            return
        for _ in range(self._due(done)):
            step = self.context.subcontext(task_name=self.task)
            step.call_on_fit_task_begin(estimator=self.estimator)
            step.call_on_fit_task_end(estimator=self.estimator)
            self.ended += 1
        if self.ended == self.n_tasks:
            self.end()

    def _due(self, done: int) -> int:
        """Sub-tasks that have ended since; one for every report where the number of items is unknown."""
        if self.n_items is None or self.n_tasks is None:
            return 1
        return min(done, self.n_items) * self.n_tasks // self.n_items - self.ended

    def end(self) -> None:
        """All is done, or nothing more will come."""
        self.siblings.remove(self)
        self.context.call_on_fit_task_end(estimator=self.estimator)


def _terminal_listener(name: str, task: str, n_items: int | str) -> Listener:
    start = time.perf_counter()

    def listen(done: int) -> None:
        print(f"[{name}] {task}: {done} of {n_items}, {time.perf_counter() - start:.2f} s", flush=True)

    return listen
