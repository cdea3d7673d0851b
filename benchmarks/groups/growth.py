"""How the time of a fit grows with the number of members: it must never fall. Drawn by
``growth.py``.
"""

from __future__ import annotations

import numpy as np

from olsen import OLSEnsembleRegressor
from problems import linear, one_hot
from timing import best, interleave, judged, summary

from .text import duration, limits, times

TITLE = "Growth"
NOTE = (
    "Whole calls of `OLSEnsembleRegressor(k, m, n_jobs=2).fit` for numbers of members k that take"
    " turns. More members must not take less time: the fall is the largest ratio of a time to the"
    " time of more members, at most 1.15 x for the noise. The slope is that of log time against log"
    " k from k = 200 on; 1 is work in proportion to the members, and less says that something else,"
    " such as the Gram matrix or drawing, still counts."
)
MUST = 1.15
MEMBERS, TOY_MEMBERS = (10, 20, 50, 100, 200, 500, 1000, 3000), (2, 4, 8)
# what, n, p, m, and the letters of the sweeps in which this shape stands: in each, one of n, p and
# m grows
SHAPES = [
    ("Gaussian", 200, 100, 40, "n"),
    ("Gaussian", 1000, 100, 40, "np"),
    ("Gaussian", 5000, 100, 40, "n"),
    ("Gaussian", 20_000, 100, 40, "n"),
    ("Gaussian", 1000, 50, 40, "p"),
    ("Gaussian", 1000, 200, 40, "pm"),
    ("Gaussian", 1000, 400, 40, "p"),
    ("Gaussian", 1000, 800, 40, "p"),
    ("Gaussian", 1000, 1600, 40, "p"),
    ("Gaussian", 1000, 200, 5, "m"),
    ("Gaussian", 1000, 200, 10, "m"),
    ("Gaussian", 1000, 200, 20, "m"),
    ("Gaussian", 1000, 200, 75, "m"),
    ("Gaussian", 1000, 200, 100, "m"),
    ("Gaussian", 1000, 200, 150, "m"),
    ("Gaussian", 100, 1000, 30, ""),
    ("one-hot", 300, 60, 10, ""),
    ("one-hot", 1000, 120, 60, ""),
    ("one-hot", 3000, 320, 20, ""),
    ("one-hot", 3000, 320, 150, ""),
]
TOY_SHAPES = [
    ("Gaussian", 40, 20, 5, "npm"),
    ("Gaussian", 80, 20, 5, "n"),
    ("Gaussian", 40, 30, 5, "p"),
    ("Gaussian", 40, 20, 10, "m"),
    ("one-hot", 60, 20, 8, ""),
]
STEEP = 200  # members from which the slope is taken


def run(quick: bool):
    for shape in TOY_SHAPES if quick else SHAPES:
        yield measure(*shape, TOY_MEMBERS if quick else MEMBERS, rounds=0 if quick else 3)


def measure(what, n, p, m, sweeps, members, rounds):
    X, y = linear(n, p) if what == "Gaussian" else table(n, p)

    def call(k):
        OLSEnsembleRegressor(k, m, n_jobs=2, random_state=0).fit(X, y)

    call(members[-1])  # compiles what is not cached
    measured = interleave({str(k): lambda k=k: call(k) for k in members}, rounds)
    took = [best(measured)[str(k)] for k in members]
    return {
        "shape": {"data": what, "n": n, "p": p, "m": m},
        "sweeps": sweeps,
        "members": list(members),
        **summary(measured),
        "slope": slope(*late(members, took)),
        **judged(fall(took), MUST, better="less"),
    }


def table(n, p):
    """A one-hot table of p columns, an eighth of them numeric, with seven levels in a factor or so."""
    numeric = p // 8
    return one_hot(n, numeric, factors=(p - numeric) // 7, levels=p - numeric)


def fall(took):
    """Largest ratio of a time to one of more members; 1 at most where time only grows.

    >>> fall([1.0, 3.0, 2.0])
    1.5
    """
    return max(took[i] / min(took[i + 1 :]) for i in range(len(took) - 1))


def late(members, took):
    """The numbers of members from STEEP on and their times; all, where there are not two such."""
    first = next((i for i, k in enumerate(members) if k >= STEEP), 0)
    return members[first:], took[first:]


def slope(values, took):
    """Slope of log time against the log of what grows, by least squares."""
    return float(np.polyfit(np.log(values), np.log(took), 1)[0])


def cells(row):
    return {
        "data, n, p, m": ", ".join(map(str, row["shape"].values())),
        **{f"k = {k}": duration(row["seconds"][str(k)]) for k in row["members"]},
        "slope in k": f"{row['slope']:.2f}",
        "fall": times(row["value"]),
        **{name: text for name, text in limits(row).items() if name != "aim"},
    }
