r"""Trials in parallel: means and standard errors that do not depend on the number of threads.

Trial `t` of a cell draws its data from (seed, problem, t) alone. Methods on the same problem
therefore see the same data, and differences between methods are paired; different problems are
independent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .. import __version__
from .._execution.files import atomically
from .._execution.threads import count_threads, one_blas_thread
from ..subsets import integer_seed
from .methods import Method
from .problems import LinearProblem


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
        if self.trials <= 1:
            return np.full(self.values.shape[1:], np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1) / np.sqrt(self.trials))


def run(
    cells: Iterable[tuple[LinearProblem, Method]],
    *,
    trials: int,
    rng: np.random.Generator | int | None = 0,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Estimate]:
    """Try every method on its problem, `trials` times.

    Parameters
    ----------
    cells : iterable of (problem, method)
        Problems and methods to run.
    trials : int
        Number of data sets for each cell.
    rng : int, numpy Generator or None, default=0
        Seed, or generator of a seed. Results are a function of the cells and the seed.
    n_jobs : int, default=None
        Threads over trials; -1 means all cores. Results do not depend on it.
    store : path, default=None
        Folder that stores the trials of finished cells: a stopped run continues from there.
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
    >>> ensemble, ridge = run(
    ...     [(problem, Ensemble(8)), (problem, Ridge(20.0))], trials=50, rng=0
    ... )
    >>> bool(abs(ensemble.mean[0, 0] - ridge.mean[0, 0]) < 0.1)
    True
    """
    seed = integer_seed(rng)
    cells = list(cells)
    files = [_file(Path(store or ""), cell, seed, trials) for cell in cells]
    values_of_cells = [[] if store is None else _stored(file) for file in files]
    # methods on one problem share each data set and its moments
    cells_of_problem: dict[LinearProblem, list[int]] = {}
    for c, (problem, _) in enumerate(cells):
        if not len(values_of_cells[c]):
            cells_of_problem.setdefault(problem, []).append(c)
    todo = list(product(cells_of_problem.values(), range(trials)))
    total = trials * len(cells)
    done = total - sum(len(group) for group, _ in todo)
    if progress:
        progress(done, total)
    # threads suffice: solvers release the interpreter lock
    parallel = Parallel(count_threads(n_jobs), require="sharedmem", return_as="generator")
    # set once for all threads: threads that set and reset it separately would interfere
    with one_blas_thread():
        results = parallel(
            delayed(_trial)([cells[c] for c in group], seed, number) for group, number in todo
        )
        for (group, _), values_of_group in zip(todo, results, strict=True):
            for c, values in zip(group, values_of_group, strict=True):
                values_of_cells[c].append(values)
                if store is not None and len(values_of_cells[c]) == trials:
                    atomically(files[c], partial(np.savez, values=values_of_cells[c]))
            done += len(group)
            if progress:
                progress(done, total)
    return [
        Estimate(*cell, np.stack(values))
        for cell, values in zip(cells, values_of_cells, strict=True)
    ]


def _file(folder: Path, cell: tuple[LinearProblem, Method], seed: int, trials: int) -> Path:
    """File of the trials of a cell; its name is a function of all that trials depend on."""
    problem, method = cell
    description = {
        "problem": _describe(problem),
        "method": _describe(method),
        "seed": seed,
        "olsen": __version__,
        "trials": trials,
    }
    return folder / f"{_digest(description)}.npz"


def _stored(file: Path) -> Any:
    """Stored values of a cell; empty if the file is missing or damaged, for example by a power
    failure.
    """
    try:
        with np.load(file) as stored:
            return stored["values"]
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return []


def _describe(item: LinearProblem | Method) -> dict[str, Any]:
    """A problem or a method as its class and its fields."""
    return {"class": type(item).__name__, **vars(item)}


def _digest(description: dict[str, Any]) -> str:
    """Short name of a description, the same in every run."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:20]


@lru_cache(maxsize=32)
def _number(problem: LinearProblem) -> int:
    """A number of the problem for the seeds of its trials."""
    return int(_digest(_describe(problem))[:15], 16)


def _trial(
    cells: list[tuple[LinearProblem, Method]], seed: int, number: int
) -> list[NDArray[np.float64]]:
    """One trial of cells on one problem: all methods have the same data and the same seed."""
    problem = cells[0][0]
    data_seed, members_seed = np.random.SeedSequence([seed, _number(problem), number]).spawn(2)
    sample = problem.draw(np.random.default_rng(data_seed))
    method_seed = int(members_seed.generate_state(1, np.uint64)[0] >> 1)
    return [method.evaluate(sample, method_seed) for _, method in cells]
