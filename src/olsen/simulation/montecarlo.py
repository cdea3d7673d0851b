r"""Trials in parallel: means, standard errors, and the same numbers whatever the number of threads.

Trial `t` of a cell draws its data from (seed, problem, t) alone. Methods tried on the same problem therefore see the
same data, and their differences are paired; different problems are independent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .. import __version__
from .._execution.threads import count_threads, one_blas_thread
from .methods import QUANTITIES, Method
from .problems import LinearProblem
from .storage import TrialStore, describe, digest

__all__ = ["Estimate", "run", "tidy"]


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
        return np.asarray(self.values.mean(axis=0))

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Standard errors of the means; nan for a single trial."""
        spread = self.values.std(axis=0, ddof=1) if self.trials > 1 else np.full(self.values.shape[1:], np.nan)
        return np.asarray(spread / np.sqrt(self.trials))


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
    stores = [
        TrialStore(store, {"problem": describe(p), "method": describe(m), "seed": seed, "olsen": __version__})
        for p, m in cells
    ]
    missing = [store.missing(trials) for store in stores]
    chunk = 5  # trials between two writes
    todo = [(c, some[i : i + chunk]) for c, some in enumerate(missing) for i in range(0, len(some), chunk)]
    total = trials * len(cells)
    done = total - sum(map(len, missing))
    if progress:
        progress(done, total)

    def work(cell: int, numbers: list[int]) -> tuple[int, list[int], NDArray[np.float64]]:
        return cell, numbers, np.stack([_trial(*cells[cell], seed, number) for number in numbers])

    # threads suffice: solvers release the interpreter lock
    parallel = Parallel(count_threads(n_jobs), require="sharedmem", return_as="generator_unordered")
    with one_blas_thread():  # held here, once: threads that set and reset it themselves would undo each other
        for cell, numbers, values in parallel(delayed(work)(*item) for item in todo):
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
    rows = []
    for estimate in estimates:
        found = {**describe(estimate.method), **describe(estimate.problem), "method": type(estimate.method).__name__}
        fixed = {name: str(value) if isinstance(value, (tuple, list)) else value for name, value in found.items()}
        mean, error = estimate.mean, estimate.standard_error
        for (i, k), (j, quantity) in product(enumerate(estimate.method.k), enumerate(QUANTITIES)):
            values = {"mean": float(mean[i, j]), "standard_error": float(error[i, j]), "trials": estimate.trials}
            rows.append({**fixed, "k": k, "quantity": quantity, **values})
    names = list(dict.fromkeys(name for row in rows for name in row if name != "class"))
    return {name: [row.get(name) for row in rows] for name in names}


def _trial(problem: LinearProblem, method: Method, seed: int, number: int) -> NDArray[np.float64]:
    sequence = np.random.SeedSequence([seed, int(digest(describe(problem))[:15], 16), number])
    data, members = sequence.spawn(2)
    sample = problem.draw(np.random.default_rng(data))
    return method.evaluate(sample, int(members.generate_state(1, np.uint64)[0] >> 1))
