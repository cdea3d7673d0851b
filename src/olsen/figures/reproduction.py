"""From a figure's name to its files: table, manifest, caption, PDF and PNG."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._execution import from_extra, versions
from .._execution.files import atomically
from ..subsets import integer_seed
from .captions import caption
from .draw import draw, save
from .plans import deviation, plan_figure
from .recipes import RECIPES


def compute(
    name: str,
    scale: str = "paper",
    *,
    rng: np.random.Generator | int | None = 2020,
    n_jobs: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Any]]:
    """Simulate a figure and return its tidy table.

    Parameters
    ----------
    name : str
        ``"figure1"`` to ``"figure11"``.
    scale : {"paper", "quick"}, default="paper"
        The captions' constants, or fewer trials and points.
    rng : int, numpy Generator or None, default=2020
        Seed of the simulation, or generator of a seed; the default is the year of the paper.
    n_jobs : int, default=None
        Threads over trials; -1 means all cores. Results do not depend on it.
    store : path, default=None
        Folder that keeps the trials of finished points, so that a stopped run can go on.
    progress : callable, default=None
        Called with the numbers of finished trials and of all trials.

    Returns
    -------
    dict of columns
        ``panel``, ``series``, ``kind``, ``x``, ``mean``, ``standard_error``, ``trials``,
        ``expected``, ``status``.

    Examples
    --------
    >>> from olsen.figures import compute
    >>> sorted(set(compute("figure1", "quick")["series"]))
    ['columns', 'rows', 'shape']
    """
    if name not in RECIPES:
        raise ValueError(f"there is no figure {name!r}; there are {', '.join(RECIPES)}.")
    constants = RECIPES[name].at(scale)
    plan = plan_figure(name, vars(constants))
    return plan.run(constants.trials, rng=rng, n_jobs=n_jobs, store=store, progress=progress)


def reproduce(
    names: Iterable[str] | None = None,
    *,
    scale: str = "paper",
    out: str | os.PathLike[str] = "figures",
    rng: np.random.Generator | int | None = 2020,
    n_jobs: int | None = -1,
    progress: Callable[[str, int, int], None] | None = None,
    finished: Callable[[dict[str, Any]], None] | None = None,
) -> list[dict[str, Any]]:
    """Make figures: simulate, compare with theory, write table, manifest, caption, PDF and
    PNG.

    Parameters
    ----------
    names : iterable of str, default=None
        Figures to make. None: all.
    scale : {"paper", "quick"}, default="paper"
        The captions' constants, or fewer trials and points.
    out : path, default="figures"
        Folder. Trials of finished points are kept in ``out/trials``: a stopped run goes on where it
        stopped.
    rng : int, numpy Generator or None, default=2020
        Seed of the simulation, or generator of a seed; the default is the year of the paper.
    n_jobs : int, default=-1
        Threads over trials.
    progress : callable, default=None
        Called with the figure's name and the numbers of finished trials and of all trials.
    finished : callable, default=None
        Called with the report of every figure after its files are written.

    Returns
    -------
    list of dict
        Report of every figure: name, title, seconds, files, and the largest deviation from theory
        in standard errors.
    """
    from_extra("matplotlib", "plot", "Drawing figures")  # fail before the simulation, not after it
    seed = integer_seed(rng)
    reports = []
    for name in list(RECIPES) if names is None else names:
        start = time.perf_counter()
        figure_progress = partial(progress, name) if progress else None
        table = compute(
            name,
            scale,
            rng=seed,
            n_jobs=n_jobs,
            store=Path(out) / "trials",
            progress=figure_progress,
        )
        atomically(Path(out) / f"{name}.csv", partial(_write_csv, table))
        files = save(draw(name, table), out, name)
        words = caption(name, table, scale=scale, rng=seed)
        files += [
            _write_text(Path(out) / f"{name}.md", words.markdown(name)),
            _write_text(Path(out) / f"{name}.tex", words.tex(name)),
        ]
        seconds = time.perf_counter() - start
        recipe = RECIPES[name]
        largest_deviation = deviation(table)
        manifest = {
            "figure": name,
            "title": recipe.title,
            "scale": scale,
            "constants": vars(recipe.at(scale)),
            "seed": seed,
            "seconds": round(seconds, 3),
            "deviation": largest_deviation,
            "versions": versions(),
        }
        text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        _write_text(Path(out) / f"{name}.json", text)
        summary = {"name": name, "title": recipe.title, "seconds": seconds, "files": files}
        reports.append({**summary, "deviation": largest_deviation})
        if finished:
            finished(reports[-1])
    return reports


def _write_text(path: Path, text: str) -> Path:
    atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    return path


def _write_csv(columns: dict[str, list[Any]], file: Path) -> None:
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
