"""Whole calls of `fit`, validation and drawing included, against the same models from scikit-learn
and NumPy.
"""

from __future__ import annotations

import warnings

import numpy as np

import peers
from olsen import OLSEnsembleRegressor
from problems import linear
from timing import best, interleave, judged, seconds, summary

from .text import duration, limits, times

TITLE = "Fitting"
NOTE = (
    "Whole calls of `fit`, validation and drawing of subsets included, ours with `n_jobs=2`."
    " Bagging is `BaggingRegressor(LinearRegression(), bootstrap=False)` at the better of `n_jobs`"
    " 1 and 2, the loop runs `numpy.linalg.lstsq` on the same submatrices as ours; Ridge and"
    " RidgeCV (50 penalties) are there for scale. The ratio is Bagging over ours. The difference is"
    " the largest one between our coefficients and the loop's, relative to the largest coefficient."
)
# n, p, m, k, max_samples, must, aim
SHAPES = [
    (200, 400, 120, 500, 1.0, 80, 200),
    (1000, 500, 250, 200, 1.0, 45, 100),
    (2000, 1000, 500, 100, 1.0, 30, 60),
    (5000, 100, 50, 1000, 1.0, 350, 800),
    (2000, 1000, 800, 100, 1.0, 120, 300),
    (2000, 500, 100, 200, 0.25, 30, 60),
    (500, 20_000, 100, 500, 1.0, 10, 30),
]
TOY_SHAPES = [(40, 20, 5, 6, 1.0, 80, 200), (60, 20, 5, 6, 0.5, 30, 60)]
BAGGING, LOOP = "Bagging + LinearRegression", "lstsq loop"


def run(quick: bool):
    jobs = peers.start_workers(quick)
    for shape in TOY_SHAPES if quick else SHAPES:
        yield measure(*shape, jobs, rounds=1 if quick else 3)


def measure(n, p, m, k, max_samples, must, aim, jobs, rounds):
    X, y = linear(n, p)

    def ours():
        return OLSEnsembleRegressor(k, m, max_samples, n_jobs=2, random_state=0).fit(X, y)

    def loop():
        reference[:] = peers.lstsq_loop(X, y, k, m, max_samples)

    model, reference = ours(), np.empty(p)
    n_jobs, first = best_n_jobs(
        jobs, lambda n_jobs: peers.bagging(k, m, max_samples, n_jobs=n_jobs).fit(X, y)
    )
    contenders = {
        "olsen": ours,
        BAGGING: lambda: peers.bagging(k, m, max_samples, n_jobs=n_jobs).fit(X, y),
        LOOP: loop,
        "Ridge": lambda: peers.ridge().fit(X, y),
        "RidgeCV": lambda: peers.ridge_cv().fit(X, y),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's on the conditioning of Ridge
        measured = interleave(contenders, rounds, first={BAGGING: [first]})
    ratio = best(measured)[BAGGING] / best(measured)["olsen"]
    return {
        "shape": {"n": n, "p": p, "m": m, "k": k, "max_samples": max_samples},
        **summary(measured),
        "solver": model.solver_,
        "bagging_n_jobs": n_jobs,
        "difference": float(np.abs(model.coef_ - reference).max() / np.abs(reference).max()),
        **judged(ratio, must, aim),
    }


def best_n_jobs(jobs, call):
    """The better number of processes for scikit-learn here, and its time."""
    once = {n_jobs: seconds(lambda n_jobs=n_jobs: call(n_jobs)) for n_jobs in jobs}
    return min(once, key=once.__getitem__), min(once.values())


def cells(row):
    shape, took = row["shape"], row["seconds"]
    rows = "" if shape["max_samples"] == 1.0 else f", max_samples {shape['max_samples']}"
    return {
        "n, p, m, k": f"{shape['n']}, {shape['p']}, {shape['m']}, {shape['k']}{rows}",
        "solver": row["solver"],
        "olsen": duration(took["olsen"]),
        "Bagging (n_jobs)": f"{duration(took[BAGGING])} ({row['bagging_n_jobs']})",
        LOOP: duration(took[LOOP]),
        "Ridge": duration(took["Ridge"]),
        "RidgeCV": duration(took["RidgeCV"]),
        "difference": f"{row['difference']:.0e}",
        "ratio": times(row["value"]),
        **limits(row),
    }
