"""One trial of the paper's figure 2: the authors' recipe and ours. Measured by ``figure2.py``."""

from __future__ import annotations

import importlib
from pathlib import Path

from timing import judged

from .text import duration, limits, times

TITLE = "One trial of figure 2"
NOTE = (
    "Risk at every k up to 1000 on one data set at gamma = 2: members added by `warm_start` as the authors do, against "
    "one solve and cumulative means. Mean risks over data sets must agree within 4 standard errors."
)
SCRIPT = Path(__file__).parents[1] / "figure2.py"


def run(quick: bool):
    if quick or not SCRIPT.exists():
        return  # one trial of the peer takes seconds, and there is no smaller one
    found = importlib.import_module(SCRIPT.stem).compare()
    agreement = judged(max(found["standard_errors"]), 4.0, better="less")
    yield {**found, "agreement": agreement, **judged(found["ratio"], 100)}


def cells(row):
    return {
        "n, p, m, k up to": f"{row['n']}, {row['p']}, {row['columns']}, {row['members']}",
        "olsen": duration(min(row["seconds_olsen"].values())),
        "authors' recipe": duration(row["seconds_bagging"]),
        "ratio": times(row["value"]),
        **{name: text for name, text in limits(row).items() if name != "aim"},
        "mean risks differ by": f"{row['agreement']['value']:.1f} standard errors, {row['agreement']['verdict']}",
    }
