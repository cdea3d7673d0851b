"""Whether a second thread helps, and never hurts: tuned fits, and fits of tables."""

from __future__ import annotations

import warnings
from functools import partial

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor
from timing import best, interleave, judged, summary

from . import tables, tuned
from .text import duration, limits, times

TITLE = "Threads"
NOTE = (
    "The tuned fits and the fits of tables from above, with `n_jobs=1` and `n_jobs=2` in turns. The"
    " ratio is the time of one thread over that of two: where one takes 10 ms two must not be"
    " slower (0.95 x, for the noise), and where one takes 100 ms two must gain. It says little"
    " where two matrix products at once did not do twice the work of one."
)
# seconds of one thread from which, time of one over time of two must be
LIMITS = ((0.1, 1.6), (0.01, 0.95))


def run(quick: bool):
    rounds = 0 if quick else 1
    for what, make, *_ in tuned.TOY_CASES if quick else tuned.CASES:
        yield measure("tuned fit", what, *make(), AdaptiveOLSEnsembleRegressor, rounds)
    for what, make, m, k, *_ in tables.TOY_CASES if quick else tables.CASES:
        yield measure(
            f"fit, m, k = {m}, {k}", what, *make(), partial(OLSEnsembleRegressor, k, m), rounds
        )


def measure(task, what, X, y, model, rounds):
    def call(n_jobs):
        model(n_jobs=n_jobs, random_state=0).fit(X, y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are constant
        call(2)  # compiles what is not cached
        measured = interleave({"1 thread": lambda: call(1), "2 threads": lambda: call(2)}, rounds)
    took = best(measured)
    return {
        "shape": {"task": task, "data": what, "n": X.shape[0], "p": X.shape[1]},
        **summary(measured),
        **judged(took["1 thread"] / took["2 threads"], least_gain(took["1 thread"])),
    }


def least_gain(seconds_of_one):
    return next((must for from_seconds, must in LIMITS if seconds_of_one > from_seconds), None)


def cells(row):
    task, *data = row["shape"].values()
    return {
        "data, n, p": ", ".join(map(str, data)),
        "task": task,
        **{name: duration(row["seconds"][name]) for name in ("1 thread", "2 threads")},
        "ratio": times(row["value"]),
        **{name: text for name, text in limits(row).items() if name != "aim"},
    }
