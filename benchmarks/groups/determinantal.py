"""Determinantal members, against balanced ones and against scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import Ridge

import peers
from olsen import OLSEnsembleRegressor
from problems import linear
from timing import best, interleave, judged, summary

from .fit import BAGGING, best_n_jobs
from .text import duration, limits, times

TITLE = "Determinantal members"
NOTE = (
    "Whole calls of `OLSEnsembleRegressor(sampling='determinantal', n_jobs=2).fit`, the eigenvalues"
    " of the Gram matrix and all draws included, beside balanced members of the same size and"
    " Bagging. The ratio is that to balanced members, and is to be small. The limit"
    " (`n_estimators=inf`) stands beside scikit-learn's Ridge at one given penalty, both with the"
    " threads of BLAS, and the ratio is that of the two."
)
# n, p, expected size, k, determinantal over balanced must be at most
SHAPES = [(500, 200, 60, 1000, 12), (2000, 1000, 60, 1000, None), (100, 1000, 40, 1000, None)]
LIMITS = [(2000, 1000, 300, 1.2), (10_000, 300, 100, None), (200, 3000, 60, None)]
TOY_LIMITS = [(40, 20, 5, 1.2)]
TOY_SHAPES = [(40, 20, 5, 6, 12), (12, 30, 5, 6, None)]


def run(quick: bool):
    jobs = peers.start_workers(quick)
    for shape in TOY_SHAPES if quick else SHAPES:
        yield measure(*shape, jobs, rounds=1 if quick else 3)
    for shape in TOY_LIMITS if quick else LIMITS:
        yield measure_limit(*shape, rounds=1 if quick else 15)


def measure(n, p, m, k, must, jobs, rounds):
    X, y = linear(n, p)

    def ours(sampling):
        return OLSEnsembleRegressor(k, m, sampling=sampling, n_jobs=2, random_state=0).fit(X, y)

    model = ours("determinantal")
    n_jobs, first = best_n_jobs(jobs, lambda n_jobs: peers.bagging(k, m, n_jobs=n_jobs).fit(X, y))
    contenders = {
        "determinantal": lambda: ours("determinantal"),
        "balanced": lambda: ours("fixed"),
        BAGGING: lambda: peers.bagging(k, m, n_jobs=n_jobs).fit(X, y),
    }
    measured = interleave(contenders, rounds, first={BAGGING: [first]})
    took = best(measured)
    return {
        "shape": {"n": n, "p": p, "m": m, "k": k},
        **summary(measured),
        "fallbacks": model.n_fallbacks_,
        "bagging": took[BAGGING] / took["determinantal"],
        **judged(took["determinantal"] / took["balanced"], must, better="less"),
    }


def measure_limit(n, p, m, must, rounds):
    X, y = linear(n, p)
    contenders = {
        "determinantal": (
            lambda: OLSEnsembleRegressor(np.inf, m, sampling="determinantal").fit(X, y)
        ),
        "ridge": lambda: Ridge(alpha=float(n)).fit(X, y),
    }
    measured = interleave(contenders, rounds)
    took = best(measured)
    ratio = took["determinantal"] / took["ridge"]
    return {
        "shape": {"n": n, "p": p, "m": m, "k": "inf"},
        **summary(measured),
        **judged(ratio, must, better="less"),
    }


def cells(row):
    took = row["seconds"]
    beside = "ridge" if "ridge" in took else "balanced"
    return {
        "n, p, m, k": ", ".join(map(str, row["shape"].values())),
        "determinantal": duration(took["determinantal"]),
        "beside": f"{beside} {duration(took[beside])}",
        "Bagging": (
            f"{duration(took[BAGGING])} ({times(row['bagging'])})" if BAGGING in took else ""
        ),
        "fallbacks": str(row.get("fallbacks", "")),
        "ratio": times(row["value"]),
        **limits(row),
    }
