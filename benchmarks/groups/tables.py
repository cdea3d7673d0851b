"""Whole calls of `fit` on columns that depend on each other, as tables of real life have them."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np

import peers
from olsen import OLSEnsembleRegressor
from problems import correlated, duplicated, linear, one_hot, spectra
from timing import best, interleave, judged, summary

from .fit import BAGGING, best_n_jobs
from .text import duration, limits, times, verdict

TITLE = "Fitting tables"
NOTE = (
    "Whole calls of `fit` on standardised one-hot tables (Gaussian columns, and factors with all"
    " their levels), on tables with a third of the columns repeated and two constant, on columns of"
    " which neighbours are correlated by 0.95, and on smooth spectra; ours with `n_jobs=2`. Rank is"
    " that of the centred table. Bagging is `BaggingRegressor(LinearRegression(), bootstrap=False)`"
    " at the better of `n_jobs` 1 and 2; the ratio is Bagging over ours. The last column is our"
    " time over our time on independent Gaussian columns of the same shape, to be small. Fallbacks"
    " are members that were solved again from the data. The difference is the largest one between"
    " coefficients of a few members and `numpy.linalg.lstsq` on the same submatrices, relative to"
    " the member's largest."
)
COMPARED = 5  # members whose coefficients are compared
GAUSSIAN = "Gaussian"
REFERENCE = partial(one_hot, 3000, numeric=40, factors=42, levels=288)  # 328 columns, rank 286
# what, data, m, k, must, aim
CASES = [
    ("one-hot", REFERENCE, 150, 400, 60, 150),
    ("one-hot", partial(one_hot, 1000, numeric=20, factors=15, levels=100), 60, 400, None, None),
    (
        "one-hot",
        partial(one_hot, 10_000, numeric=100, factors=50, levels=400),
        250,
        100,
        None,
        None,
    ),
    ("duplicated", partial(duplicated, 2000, 150), 75, 400, None, None),
    ("AR(0.95)", partial(correlated, 2000, 300, 0.95), 150, 200, None, None),
    ("spectra", partial(spectra, 500, 400), 60, 400, None, None),
]
TOY_CASES = [
    ("one-hot", partial(one_hot, 60, numeric=4, factors=3, levels=10), 8, 20, 60, 150),
    ("duplicated", partial(duplicated, 60, 15), 6, 20, None, None),
    ("AR(0.95)", partial(correlated, 60, 15, 0.95), 6, 20, None, None),
    ("spectra", partial(spectra, 60, 30), 6, 20, None, None),
]


def run(quick: bool):
    jobs = peers.start_workers(quick)
    for case in TOY_CASES if quick else CASES:
        yield measure(*case, jobs, rounds=0 if quick else 2)


def measure(what, make, m, k, must, aim, jobs, rounds):
    X, y = make()
    gaussian = linear(*X.shape)

    def ours(X, y):
        return OLSEnsembleRegressor(k, m, n_jobs=2, random_state=0).fit(X, y)

    def bagging(n_jobs):
        return peers.bagging(k, m, n_jobs=n_jobs).fit(X, y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are constant
        model = ours(X, y)
        n_jobs, first = best_n_jobs(jobs, bagging)
        contenders = {
            "olsen": lambda: ours(X, y),
            GAUSSIAN: lambda: ours(*gaussian),
            BAGGING: lambda: bagging(n_jobs),
        }
        measured = interleave(contenders, rounds, first={BAGGING: [first]})
    took = best(measured)
    return {
        "shape": {"data": what, "n": X.shape[0], "p": X.shape[1], "m": m, "k": k},
        "rank": int(np.linalg.matrix_rank(X - X.mean(axis=0))),
        **summary(measured),
        "solver": model.solver_,
        "fallbacks": model.n_fallbacks_,
        "bagging_n_jobs": n_jobs,
        "difference": difference(model, X, y),
        "over_gaussian": judged(took["olsen"] / took[GAUSSIAN], 3.0, 1.5, better="less"),
        **judged(took[BAGGING] / took["olsen"], must, aim),
    }


def difference(model, X, y):
    """Largest difference of a coefficient of the first members to least squares by SVD of the same
    columns.
    """
    ours, apart = model.member_coefs()[:COMPARED].toarray(), []
    for coef, columns in zip(ours, model.feature_subsets_, strict=False):
        expected = peers.lstsq_member(X[:, columns], y)
        apart.append(np.abs(coef[columns] - expected).max() / np.abs(expected).max())
    return float(max(apart))


def cells(row):
    shape, took = row["shape"], row["seconds"]
    return {
        "data, n, p, m, k": ", ".join(map(str, shape.values())),
        "rank": str(row["rank"]),
        "solver": row["solver"],
        "olsen": duration(took["olsen"]),
        "Bagging (n_jobs)": f"{duration(took[BAGGING])} ({row['bagging_n_jobs']})",
        "fallbacks": str(row["fallbacks"]),
        "difference": f"{row['difference']:.0e}",
        "ratio": times(row["value"]),
        **limits(row),
        "Gaussian columns": duration(took[GAUSSIAN]),
        "over Gaussian (must, aim)": verdict(row["over_gaussian"]),
    }
