"""From a figure's name to its files: table, manifest, PDF and PNG."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from .._execution import from_extra
from ..simulation.storage import write_manifest, write_table
from .draw import draw, save
from .plans import PLANS, deviation
from .recipes import RECIPES

__all__ = ["compute", "reproduce"]


def compute(
    name: str,
    scale: str = "paper",
    *,
    seed: int = 2020,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Any]]:
    """Simulate a figure and return its tidy table.

    Parameters
    ----------
    name : str
        ``"figure1"`` to ``"figure10"``.
    scale : {"paper", "quick"}, default="paper"
        The captions' constants, or fewer trials and points.
    seed : int, default=2020
        Seed of the simulation; the default is the year of the paper.
    n_jobs : int, default=None
        Threads over trials; -1 means all cores. Results do not depend on it.
    store : path, default=None
        Folder that keeps finished trials, so that a stopped run can go on.
    progress : callable, default=None
        Called with the numbers of finished trials and of all trials.

    Returns
    -------
    dict of columns
        ``panel``, ``series``, ``kind``, ``x``, ``mean``, ``standard_error``, ``trials``, ``expected``, ``status``.

    Examples
    --------
    >>> from olsen.figures import compute
    >>> sorted(set(compute("figure1", "quick")["series"]))
    ['columns', 'rows', 'shape']
    """
    if name not in RECIPES:
        raise ValueError(f"there is no figure {name!r}; there are {', '.join(RECIPES)}.")
    constants = RECIPES[name].at(scale)
    return PLANS[name](constants).run(constants.trials, seed=seed, n_jobs=n_jobs, store=store, progress=progress)


def reproduce(
    names: Iterable[str] | None = None,
    *,
    scale: str = "paper",
    out: str | os.PathLike[str] = "figures",
    seed: int = 2020,
    n_jobs: int | None = -1,
    suffix: str = ".csv",
    progress: Callable[[str, int, int], None] | None = None,
    finished: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Make figures: simulate, compare with theory, write table, manifest, PDF and PNG.

    Parameters
    ----------
    names : iterable of str, default=None
        Figures to make. None: all.
    scale : {"paper", "quick"}, default="paper"
        The captions' constants, or fewer trials and points.
    out : path, default="figures"
        Folder. Finished trials are kept in ``out/trials``: a stopped run goes on where it stopped.
    seed : int, default=2020
        Seed of the simulation; the default is the year of the paper.
    n_jobs : int, default=-1
        Threads over trials.
    suffix : {".csv", ".parquet"}, default=".csv"
        Format of the tables.
    progress : callable, default=None
        Called with the figure's name and the numbers of finished trials and of all trials.
    finished : callable, default=None
        Called with the report of every figure once it is written.

    Returns
    -------
    list of dict
        Of every figure: name, seconds, files, and the largest deviation from theory in standard errors.
    """
    from_extra("matplotlib", "plot", "Drawing figures")  # before the work, not after it
    reports = []
    for name in list(RECIPES) if names is None else names:
        start = time.perf_counter()
        report = partial(progress, name) if progress else None
        table = compute(name, scale, seed=seed, n_jobs=n_jobs, store=Path(out) / "trials", progress=report)
        write_table(table, Path(out) / f"{name}{suffix}")
        files = save(draw(name, table), out, name)
        seconds, recipe, found = time.perf_counter() - start, RECIPES[name], deviation(table)
        write_manifest(
            Path(out) / f"{name}.json", seed=seed, seconds=seconds, figure=name, title=recipe.title,
            scale=scale, constants=vars(recipe.at(scale)), deviation=found,
        )  # fmt: skip
        reports.append({"name": name, "title": recipe.title, "seconds": seconds, "files": files, "deviation": found})
        if finished:
            finished(reports[-1])
    return reports
