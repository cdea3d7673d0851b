"""An ensemble that tunes its size, against a grid search over the authors' recipe."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

import peers
from olsen import OLSEnsembleRegressorCV
from problems import linear
from timing import best, interleave, judged, seconds

from .text import duration, limits, times

TITLE = "Tuning by a grid search"
NOTE = (
    "Whole calls of `OLSEnsembleRegressorCV(n_estimators=100, n_jobs=2).fit` with its default grid"
    " of sizes and leave-one-out. The grid search is `GridSearchCV` over 10 sizes of Bagging +"
    " LinearRegression with 5 folds, at the better of `n_jobs` 1 and 2."
)
FOLDS = 5
PATIENCE = 180.0  # seconds from which the grid search is extrapolated from one of its folds
MUST = 20
SHAPES = [(2000, 1000, 100), (100, 4000, 100)]
TOY_SHAPES = [(60, 20, 10)]
SEARCH = "GridSearchCV"


def run(quick: bool):
    jobs = peers.start_workers(quick)
    for shape in TOY_SHAPES if quick else SHAPES:
        yield measure(*shape, jobs, rounds=1 if quick else 2)


def measure(n, p, k, jobs, rounds):
    X, y = linear(n, p)

    def ours():
        return OLSEnsembleRegressorCV(k, n_jobs=2, random_state=0).fit(X, y)

    model = ours()  # compiles what is not cached
    took = best(interleave({"olsen": ours}, rounds))["olsen"]
    searched, how = grid_search_seconds(X, y, k, jobs)
    return {
        "shape": {"n": n, "p": p, "k": k},
        "size": model.max_features_,
        "criterion": model.criterion_,
        "peer": SEARCH,
        "seconds": {"olsen": took, SEARCH: searched},
        "how": how,
        **judged(searched / took, MUST),
    }


def grid_search_seconds(X, y, k, jobs):
    """Seconds of the whole search, and in words how they were found."""
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))
    sizes = candidate_sizes(len(folds[0][0]), X.shape[1])
    pilot = {
        j: seconds(lambda j=j: search(X, y, k, sizes[4:6], folds[:1], j, refit=False)) for j in jobs
    }
    n_jobs = min(pilot, key=pilot.__getitem__)
    one_fold = seconds(lambda: search(X, y, k, sizes, folds[:1], n_jobs, refit=False))
    if FOLDS * one_fold > PATIENCE:
        return (
            FOLDS * one_fold,
            (
                f"{FOLDS} times the measured search over all sizes on one fold, no refit;"
                f" n_jobs={n_jobs}"
            ),
        )
    return (
        seconds(lambda: search(X, y, k, sizes, folds, n_jobs, refit=True)),
        f"measured once, n_jobs={n_jobs}",
    )


def candidate_sizes(rows, p):
    """Ten sizes over the range of ours: up to 85 % of the rows."""
    return np.unique(np.linspace(1, min(p, int(0.85 * rows)), 11).astype(int)[1:]).tolist()


def search(X, y, k, sizes, folds, n_jobs, refit):
    member = peers.bagging(k, m=1)
    GridSearchCV(member, {"max_features": sizes}, cv=folds, n_jobs=n_jobs, refit=refit).fit(X, y)


def cells(row):
    shape, took = row["shape"], row["seconds"]
    less = row["better"] == "less"
    return {
        "n, p, k": ", ".join(str(shape[name]) for name in "npk"),
        "chosen size": f"{row['size']} ({row['criterion']})",
        "olsen": duration(took["olsen"]),
        "peer": row["peer"],
        "peer's time": duration(took[row["peer"]]),
        "ratio": (
            f"ours / peer {times(row['value'])}" if less else f"peer / ours {times(row['value'])}"
        ),
        "must": f"at {'most' if less else 'least'} {times(row['must'])}",
        "verdict": limits(row)["verdict"],
        "peer's time was": row["how"],
    }
