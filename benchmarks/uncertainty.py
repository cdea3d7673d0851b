"""Jackknife+ intervals: ours, which refit nothing, and MAPIE's, which refits without every row in
turn.

    python benchmarks/uncertainty.py [--data FOLDER] [--only prostate ...] [--quick] [--json FILE]
    [--markdown FILE]

Needs MAPIE (python -m pip install 'mapie>=1.0'); without it a line says so, and nothing runs.

- All have the same members: the columns that our ensemble has drawn. So their intervals are the
  same numbers, and a difference above 1e-8 of the spread of the target is an error: the script ends
  with 1.
- MAPIE (`CrossConformalRegressor`, `method="plus"`, `LeaveOneOut`) gets two estimators. "least
  squares" averages numpy.linalg.lstsq on these columns, is written for this comparison and knows
  nothing of ours: it is what intervals are checked with. "our fits" is our own estimator, refitted:
  the fastest refits there are.
- Times are of a fit on four fifths of the rows with intervals for the others after it, with BLAS on
  one thread, which for these small problems is faster than two; contenders take turns. Two columns
  are MAPIE's times over ours.
- FOLDER holds CSV files with a header, numbers only, and a column `target`; without it, sets of
  scikit-learn and Gaussian columns are fitted alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes
from sklearn.model_selection import LeaveOneOut, train_test_split
from threadpoolctl import threadpool_limits

import machine
from groups.text import duration, times
from olsen import OLSEnsembleRegressor
from problems import linear
from real_data import read
from tables import markdown
from timing import interleave, summary

COVERAGE = 0.9
AGREE = 1e-8  # of the standard deviation of the target
MEMBERS = 50
SHAPES, TOY_SHAPES = [(100, 20), (500, 50)], [(30, 6)]
TABLES = ("prostate", "eyedata", "wine_red")
OURS, OUR_FITS, LEAST_SQUARES = "olsen", "MAPIE, our fits", "MAPIE, least squares"
INSTALL = (
    "MAPIE is not installed, and there is nothing to compare with: python -m pip install"
    " 'mapie>=1.0'"
)


class MeanOfLeastSquares(RegressorMixin, BaseEstimator):
    """Average of least-squares fits with intercepts on given columns, by numpy.linalg.lstsq.

    Parameters
    ----------
    columns : ndarray of shape (k, m)
        Columns of every member.
    """

    def __init__(self, columns):
        self.columns = columns

    def fit(self, X, y):
        mean_x, mean_y = X.mean(axis=0), y.mean()
        centred, deviations = X - mean_x, y - mean_y
        total = np.zeros(X.shape[1])
        for chosen in self.columns:
            total[chosen] += np.linalg.lstsq(centred[:, chosen], deviations)[0]
        self.coef_ = total / len(self.columns)
        self.intercept_ = mean_y - mean_x @ self.coef_
        return self

    def predict(self, X):
        return X @ self.coef_ + self.intercept_


def problems(data: Path | None, only, quick: bool):
    """Name, X and y of everything that is fitted."""
    for n, p in TOY_SHAPES if quick else SHAPES:
        yield "Gaussian", *linear(n * 5 // 4, p)
    if not quick:
        yield "diabetes", *load_diabetes(return_X_y=True)
    for name in only or TABLES if data else ():
        path = data / f"{name}.csv"
        if path.exists():
            yield name, *read(path)
        else:
            print(f"{path} is not there, and is left out")


def compare(name, X, y, members: int, rounds: int) -> dict:
    """Intervals of all contenders, their largest difference, and the times."""
    X, new, y, _ = train_test_split(X, y, test_size=len(X) // 5, random_state=0)
    n, p = X.shape
    size = max(1, min(p // 2, n // 3))
    ours = OLSEnsembleRegressor(members, size, random_state=0)
    columns = np.array(list(ours.fit(X, y).feature_subsets_))
    contenders = {
        OURS: lambda: ours.fit(X, y).predict_interval(new, COVERAGE),
        OUR_FITS: lambda: by_refits(ours, X, y, new),
        LEAST_SQUARES: lambda: by_refits(MeanOfLeastSquares(columns), X, y, new),
    }
    found = {}

    def call(contender):
        found[contender] = contenders[contender]()

    calls = {contender: lambda contender=contender: call(contender) for contender in contenders}
    with threadpool_limits(1, user_api="blas"):
        measured = interleave(calls, rounds)
    difference = {
        name: float(np.abs(ends - found[OURS]).max() / y.std())
        for name, ends in found.items()
        if name != OURS
    }
    shape = {
        "data": name,
        "n": n,
        "p": p,
        "members": members,
        "columns": size,
        "new rows": len(new),
    }
    return {"shape": shape, "difference": difference, **summary(measured)}


def by_refits(model, X, y, new):
    """MAPIE's intervals, (rows, 2)."""
    from mapie.regression import CrossConformalRegressor

    regressor = CrossConformalRegressor(
        model, confidence_level=COVERAGE, method="plus", cv=LeaveOneOut()
    )
    return regressor.fit_conformalize(X, y).predict_interval(new)[1][:, :, 0]


def cells(row):
    took, shape = row["seconds"], row["shape"]
    return {
        "data": shape["data"],
        "n, p": f"{shape['n']}, {shape['p']}",
        "members": f"{shape['members']} of {shape['columns']}",
        **{name: duration(took[name]) for name in (OURS, OUR_FITS, LEAST_SQUARES)},
        "over our fits": times(took[OUR_FITS] / took[OURS]),
        "over least squares": times(took[LEAST_SQUARES] / took[OURS]),
        "largest difference": f"{max(row['difference'].values()):.1e}",
    }


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of CSV files")
    parser.add_argument(
        "--only", nargs="+", help=f"names of its files, without .csv; default: {' '.join(TABLES)}"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="toy sizes: shows that it runs, says nothing about speed",
    )
    parser.add_argument("--json", type=Path, help="where the rows go")
    parser.add_argument("--markdown", type=Path, help="where the table goes")
    options = parser.parse_args(arguments)
    try:
        import mapie
    except ImportError:
        print(INSTALL)
        return 0
    header = {**machine.describe(options.quick), "mapie": mapie.__version__}
    print("\n".join([*machine.header_lines(header), f"MAPIE {mapie.__version__}"]), flush=True)
    rows = []
    for problem in problems(options.data, options.only, options.quick):
        rows.append(
            compare(
                *problem, members=5 if options.quick else MEMBERS, rounds=0 if options.quick else 2
            )
        )
        print(", ".join(f"{name} {text}" for name, text in cells(rows[-1]).items()), flush=True)
    table = markdown([cells(row) for row in rows])
    print("\n" + table)
    for path, text in (
        (options.json, json.dumps({"machine": header, "rows": rows}, indent=1)),
        (options.markdown, table),
    ):
        if path:
            path.write_text(text, encoding="utf-8")
    worst = max(max(row["difference"].values()) for row in rows)
    if not worst <= AGREE:
        print(
            f"intervals differ by {worst:.1e} of the target's standard deviation, which should be"
            f" at most {AGREE:g}"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
