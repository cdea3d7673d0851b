r"""Trials in parallel: means, standard errors, and the same numbers whatever the number of threads.

Trial `t` of a cell draws its data from (seed, problem, t) alone. Methods tried on the same problem therefore see the
same data, and their differences are paired; different problems are independent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._execution.threads import count_threads, one_blas_thread
from .methods import QUANTITIES, Method
from .problems import LinearProblem
from .storage import TrialStore, describe, digest

__all__ = ["Estimate", "run", "tidy"]

CHUNK = 5  # trials between two writes

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Estimate:
    """Monte Carlo results of one method on one problem.

    Parameters
    ----------
    problem : LinearProblem
    method : Ensemble, Ridge, Dropout or Estimator
    values : ndarray of shape (trials, len(method.k), 3)
        Risk, bias and variance of every trial.
    """

    problem: LinearProblem
    method: Method
    values: NDArray[np.float64]

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.values)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Means, of shape (len(method.k), 3)."""
        mean: NDArray[np.float64] = self.values.mean(axis=0)
        return mean

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Standard errors of the means; nan for a single trial."""
        with np.errstate(invalid="ignore"):
            spread = self.values.std(axis=0, ddof=1) if self.trials > 1 else np.full(self.values.shape[1:], np.nan)
        error: NDArray[np.float64] = spread / np.sqrt(self.trials)
        return error


def run(
    cells: Iterable[tuple[LinearProblem, Method]],
    *,
    trials: int,
    seed: int = 0,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Estimate]:
    """Try every method on its problem, `trials` times.

    Parameters
    ----------
    cells : iterable of (problem, method)
        What to run.
    trials : int
        Draws of the data for each cell.
    seed : int, default=0
        Results are a function of the cells and the seed.
    n_jobs : int, default=None
        Threads over trials; -1 means all cores. Results do not depend on it.
    store : path, default=None
        Folder that keeps finished trials: a run that was stopped goes on from there, and asking for more trials keeps
        those there are.
    progress : callable, default=None
        Called with the numbers of finished trials and of all trials.

    Returns
    -------
    list of Estimate
        In the order of `cells`.

    Examples
    --------
    >>> from olsen.simulation import Ensemble, LinearProblem, Ridge, run
    >>> problem = LinearProblem(n=40, p=20)
    >>> ensemble, ridge = run([(problem, Ensemble(8)), (problem, Ridge(20.0))], trials=50, seed=0)
    >>> bool(abs(ensemble.mean[0, 0] - ridge.mean[0, 0]) < 0.1)
    True
    """
    cells = list(cells)
    version = _package_version()
    stores = [
        TrialStore(store, {"problem": describe(p), "method": describe(m), "seed": seed, "olsen": version})
        for p, m in cells
    ]
    todo = [(c, part) for c, s in enumerate(stores) for part in _chunks(s.missing(trials))]
    total = trials * len(cells)
    done = total - sum(len(part) for _, part in todo)
    if progress:
        progress(done, total)

    def work(item: tuple[int, list[int]]) -> NDArray[np.float64]:
        cell, numbers = item
        problem, method = cells[cell]
        return np.stack([_trial(problem, method, seed, number) for number in numbers])

    for (cell, numbers), values in _in_threads(work, todo, count_threads(n_jobs)):
        stores[cell].add(numbers, values)
        done += len(numbers)
        if progress:
            progress(done, total)
    return [Estimate(p, m, s.values(trials)) for (p, m), s in zip(cells, stores, strict=True)]


def tidy(estimates: Iterable[Estimate]) -> dict[str, list[Any]]:
    """One row for every estimate, number of members and quantity; the columns of problems and methods in front.

    Examples
    --------
    >>> from olsen.simulation import Ensemble, LinearProblem, run, tidy
    >>> table = tidy(run([(LinearProblem(30, 20), Ensemble(5, k=(1, 10)))], trials=3))
    >>> table["k"], table["quantity"][:3], sorted(table)[-3:]
    ([1, 1, 1, 10, 10, 10], ['risk', 'bias', 'variance'], ['standard_error', 'strength', 'trials'])
    """
    rows = [row for estimate in estimates for row in _rows(estimate)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def _rows(estimate: Estimate) -> Iterator[dict[str, Any]]:
    problem, method = describe(estimate.problem), describe(estimate.method)
    problem.pop("class")
    fixed = {**problem, "method": method.pop("class"), **{key: _plain(value) for key, value in method.items()}}
    mean, error = estimate.mean, estimate.standard_error
    for i, k in enumerate(estimate.method.k):
        for j, quantity in enumerate(QUANTITIES):
            found = {"mean": float(mean[i, j]), "standard_error": float(error[i, j]), "trials": estimate.trials}
            yield {**fixed, "k": k, "quantity": quantity, **found}


def _plain(value: object) -> object:
    """Cells of a table hold numbers and text."""
    return str(value) if isinstance(value, (tuple, list)) else value


def _trial(problem: LinearProblem, method: Method, seed: int, number: int) -> NDArray[np.float64]:
    sequence = np.random.SeedSequence([seed, int(digest(describe(problem))[:15], 16), number])
    data, members = sequence.spawn(2)
    sample = problem.draw(np.random.default_rng(data))
    return method.evaluate(sample, int(members.generate_state(1, np.uint64)[0] >> 1))


def _chunks(numbers: list[int]) -> list[list[int]]:
    return [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)]


def _in_threads(work: Callable[[Item], Result], items: Sequence[Item], n_threads: int) -> Iterator[tuple[Item, Result]]:
    """Pairs (item, result), as they finish. Threads suffice: solvers release the interpreter lock."""
    with one_blas_thread():  # held here, once: threads that set and reset it themselves would undo each other
        if n_threads == 1:
            yield from ((item, work(item)) for item in items)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            waiting = {pool.submit(work, item): item for item in items}
            try:
                while waiting:
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        yield waiting.pop(future), future.result()
            finally:
                for future in waiting:
                    future.cancel()


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("olsen")
    except PackageNotFoundError:
        return "unknown"
