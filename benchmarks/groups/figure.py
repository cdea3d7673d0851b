"""One trial of the paper's figure 2: the authors' recipe and ours. Measured by ``figure2.py``."""

from __future__ import annotations

import figure2
from timing import judged

from .text import duration, limits, times

TITLE = "One trial of figure 2"
NOTE = (
    "Risk at every k up to 1000 on one data set at gamma = 2: members added by `warm_start` as the"
    " authors do, against one solve and cumulative means. Mean risks over data sets must agree"
    " within 4 standard errors."
)


def run(quick: bool):
    found = figure2.compare(2, 1, 5) if quick else figure2.compare()
    agreement = judged(max(found["standard_errors"]), 4.0, better="less")
    yield {**found, "agreement": agreement, **judged(found["ratio"], 100)}


def cells(row):
    return {
        "n, p, m, k up to": f"{row['n']}, {row['p']}, {row['columns']}, {row['members']}",
        "olsen": duration(row["seconds_olsen"]),
        "authors' recipe": duration(row["seconds_bagging"]),
        "ratio": times(row["value"]),
        **{name: text for name, text in limits(row).items() if name != "aim"},
        "mean risks differ by": (
            f"{row['agreement']['value']:.1f} standard errors, {row['agreement']['verdict']}"
        ),
    }
