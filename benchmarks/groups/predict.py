"""Prediction: one row of mean coefficients against a loop over members."""

from __future__ import annotations

import peers
from olsen import OLSEnsembleRegressor
from problems import linear
from timing import best, interleave, judged, summary

from .fit import BAGGING, best_n_jobs
from .text import duration, limits, times

TITLE = "Predicting"
NOTE = (
    "`predict` on as many rows as were fitted, against `BaggingRegressor.predict` at the better of"
    " `n_jobs` 1 and 2. Both check their input."
)
SHAPES = [(1000, 500, 250, 200)]
TOY_SHAPES = [(40, 20, 5, 6)]


def run(quick: bool):
    jobs = peers.start_workers(quick)
    for shape in TOY_SHAPES if quick else SHAPES:
        yield measure(*shape, jobs, rounds=1 if quick else 5)


def measure(n, p, m, k, jobs, rounds):
    X, y = linear(n, p)
    model = OLSEnsembleRegressor(k, m, n_jobs=2, random_state=0).fit(X, y)
    peer = peers.bagging(k, m).fit(X, y)
    n_jobs, first = best_n_jobs(jobs, lambda n_jobs: peer.set_params(n_jobs=n_jobs).predict(X))
    peer.set_params(n_jobs=n_jobs)
    contenders = {"olsen": lambda: model.predict(X), BAGGING: lambda: peer.predict(X)}
    measured = interleave(contenders, rounds, first={BAGGING: [first]})
    return {
        "shape": {"n": n, "p": p, "m": m, "k": k},
        **summary(measured),
        "bagging_n_jobs": n_jobs,
        **judged(best(measured)[BAGGING] / best(measured)["olsen"], 100, 400),
    }


def cells(row):
    return {
        "rows, p, m, k": ", ".join(str(row["shape"][name]) for name in "npmk"),
        "olsen": duration(row["seconds"]["olsen"]),
        "Bagging (n_jobs)": f"{duration(row['seconds'][BAGGING])} ({row['bagging_n_jobs']})",
        "ratio": times(row["value"]),
        **limits(row),
    }
