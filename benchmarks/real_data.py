"""Prediction on real data: tuned ensembles against RidgeCV, LassoCV and least squares, in repeated 5-fold CV.

    python benchmarks/real_data.py FOLDER [--repeats 2] [--only wine_red ...] [--json FILE]

FOLDER holds CSV files with a header, numbers only, and a column `target`. All models stand behind a StandardScaler.
Differences in R2 to RidgeCV are paired over folds; their standard error is over folds.
"""

import argparse
import csv
import json
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LassoCV, LinearRegression, RidgeCV
from sklearn.model_selection import RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import OLSEnsembleRegressorCV

MODELS = {
    "RidgeCV": lambda: RidgeCV(np.logspace(-4, 6, 60)),
    "ensemble": lambda: OLSEnsembleRegressorCV(random_state=0),
    "auto": lambda: OLSEnsembleRegressorCV(inclusion="auto", random_state=0),
    "LassoCV": lambda: LassoCV(max_iter=5000, random_state=0),
    "OLS": lambda: LinearRegression(),
}


def read(path: Path):
    with path.open(encoding="utf-8-sig") as file:
        header = next(csv.reader(file))
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    target = header.index("target")
    return np.delete(table, target, axis=1), table[:, target]


def score(X, y, names, repeats: int):
    """R2 of every fold, (folds, models), and seconds of all fits of each model."""
    folds = list(RepeatedKFold(n_splits=5, n_repeats=repeats, random_state=0).split(X))
    r2, seconds = np.empty((len(folds), len(names))), np.zeros(len(names))
    for f, (train, test) in enumerate(folds):
        for m, name in enumerate(names):
            model = make_pipeline(StandardScaler(), MODELS[name]())
            start = time.perf_counter()
            model.fit(X[train], y[train])
            seconds[m] += time.perf_counter() - start
            r2[f, m] = model.score(X[test], y[test])
    return r2, seconds / len(folds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ["RidgeCV"] + [m for m in args.models if m != "RidgeCV"]
    print(f"{'set':>18} {'n':>5} {'p':>5} " + " ".join(f"{n:>22}" for n in names))
    rows = {}
    for path in sorted(args.folder.glob("*.csv")):
        if args.only and path.stem not in args.only:
            continue
        X, y = read(path)
        r2, seconds = score(X, y, names, args.repeats)
        diff = r2 - r2[:, :1]
        error = diff.std(axis=0, ddof=1) / np.sqrt(len(diff))
        cells = [f"{r2[:, 0].mean():.4f}          {seconds[0]:6.2f}s"]
        cells += [f"{diff[:, m].mean():+.4f}+-{error[m]:.4f} {seconds[m]:6.2f}s" for m in range(1, len(names))]
        print(f"{path.stem:>18} {X.shape[0]:>5} {X.shape[1]:>5} " + " ".join(f"{c:>22}" for c in cells), flush=True)
        rows[path.stem] = {
            name: {"r2": r2[:, m].mean(), "difference": diff[:, m].mean(), "standard_error": error[m], "s": seconds[m]}
            for m, name in enumerate(names)
        }
    for name in names[1:]:
        values = np.array([rows[s][name]["difference"] for s in rows])
        errors = np.array([rows[s][name]["standard_error"] for s in rows])
        worst = np.argmin(values + 2 * errors)
        print(f"{name}: mean difference to RidgeCV {values.mean():+.4f}, median {np.median(values):+.4f}, ", end="")
        print(f"worst upper end {(values + 2 * errors)[worst]:+.4f} on {list(rows)[worst]}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
