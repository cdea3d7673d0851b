"""Prediction on real tables: tuned ensembles against tuned ridge regression, lasso and PLS, on
equal terms.

    python benchmarks/real_data.py [FOLDER] [--ordinary] [--unusual] [--splits 20]
                                   [--only wine_red ...] [--models stacking raw_ridge ensemble]
                                   [--jobs 2] [--json FILE] [--reuse FILE] [--before FILE]
                                   [--markdown FILE]

FOLDER holds CSV files with a header, numbers only, and a column `target`; --ordinary adds those of
``ordinary.py``, --unusual those of ``unusual.py``.

- Every model sees the same random 80/20 splits, behind a StandardScaler of the training rows, but
  for raw_ridge, which sees the columns as they are. Inner folds of the peers are random rows too;
  the lasso's last fit goes on until it has converged; PLS stops at the rank.
- "stacking" is scikit-learn's StackingRegressor of the three peers, with non-negative weights.
- R2 is 1 - SSE / SST on the test rows, SST about the mean of the training rows.
- "best" is whichever of the three peers has the largest mean R2 on a table, known only afterwards.
  Tables where all three are negative are named and left out of the summary, whatever ours is there.
- Standard errors are over splits, which share rows: they are somewhat too small.
- A test row that is beyond twice the leverage of all training rows is far; the worst table is also
  named for the splits without such rows.
- Seconds are those of one processor. ``--reuse`` takes the scores of the rivals, which do not change
  with olsen, from the ``--json`` file of an earlier run with as many splits. ``--before`` compares the
  model with that of another commit, from the ``--json`` file of a run with that commit's library.
- Paired differences to a rival are means over tables, with their standard error over tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from pathlib import Path

import joblib
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import Lasso, LassoCV, LinearRegression, RidgeCV
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import ordinary
import unusual
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from peers import PLSRegressionCV
from tables import markdown

FOLDS = KFold(5, shuffle=True, random_state=0)
# beyond which the lasso's paths, each step of which starts warm, get fewer iterations
MANY_COLUMNS = 310
LARGE = 3000  # rows from which a quarter of the splits is enough
FAR = 2.0  # leverage, in units of the training rows' largest, beyond which a test row is far


class ConvergedLassoCV(RegressorMixin, BaseEstimator):
    """LassoCV, and at the chosen penalty a fit that goes on from its coefficients until it has
    converged.
    """

    def fit(self, X, y):
        limits = (
            {"max_iter": 20_000, "tol": 1e-4}
            if X.shape[1] <= MANY_COLUMNS
            else {"max_iter": 2000, "tol": 1e-3}
        )
        path = LassoCV(alphas=100, cv=FOLDS, **limits).fit(X, y)
        self.last = Lasso(path.alpha_, max_iter=100_000, tol=1e-4, warm_start=True)
        self.last.coef_ = path.coef_
        self.last.fit(X, y)
        return self

    def predict(self, X):
        return self.last.predict(X)


PEERS = {
    "RidgeCV": lambda: RidgeCV(np.logspace(-4, 6, 41)),
    "LassoCV": ConvergedLassoCV,
    "PLS": lambda: PLSRegressionCV(50, cv=FOLDS),
}


def stacking():
    """The three peers, weighted by their predictions of held-out rows."""
    final = LinearRegression(positive=True)
    return StackingRegressor([(name, peer()) for name, peer in PEERS.items()], final, cv=FOLDS)


RIVALS = {"stacking": stacking, "raw_ridge": PEERS["RidgeCV"]}
RAW = {"raw_ridge"}  # models that see the columns as they are
DEFAULT = "adaptive"
BEFORE = "before"  # the same model of another commit
OURS = {
    DEFAULT: AdaptiveOLSEnsembleRegressor,
    "ensemble": lambda: OLSEnsembleRegressorCV(random_state=0),  # of the paper
    "ridge": lambda: OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0),
}


def read(path: Path):
    with path.open(encoding="utf-8-sig") as file:
        header = next(csv.reader(file))
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    target = header.index("target")
    return np.delete(table, target, axis=1), table[:, target]


def score(X, y, train, test, name):
    """R2 on the test rows, seconds of the fit, and whether a test row is far: beyond FAR times the
    largest leverage of the training rows, as the adaptive model sees it.
    """
    scaler = StandardScaler(with_mean=name not in RAW, with_std=name not in RAW).fit(X[train])
    A = scaler.transform(X[train])
    B = scaler.transform(X[test])
    model = (PEERS | RIVALS | OURS)[name]()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        start = time.process_time()
        model.fit(A, y[train])
        seconds = time.process_time() - start
        left = y[test] - np.ravel(model.predict(B))
        knows_leverage = name == DEFAULT and hasattr(model, "leverage")
        is_far = knows_leverage and model.leverage(B).max() > FAR
    r2 = 1 - np.sum(left**2) / np.sum((y[test] - y[train].mean()) ** 2)
    return r2, seconds, is_far


def rare_columns(X):
    """Number of columns that have their most frequent value in more than three quarters of the rows,
    constant columns left out.
    """
    frequencies = [np.unique(column, return_counts=True)[1].max() / len(column) for column in X.T]
    return int(np.sum([0.75 < frequency < 1 for frequency in frequencies]))


def measure(name, X, y, models, splits, jobs, earlier=None):
    """One table: R2 and seconds of every model and split, and differences to the best peer; the
    scores of rivals may be those of an `earlier` row of the table.
    """
    count = max(2, splits // 4) if len(y) > LARGE else splits
    pairs = list(ShuffleSplit(count, test_size=0.2, random_state=0).split(X))
    known = {} if earlier is None else earlier["r2"]
    known = {model: values for model, values in known.items() if len(values) == count}
    to_fit = [model for model in models if model in OURS or model not in known]
    work = [joblib.delayed(score)(X, y, *pair, model) for model in to_fit for pair in pairs]
    scores = np.array(joblib.Parallel(jobs)(work)).reshape(len(to_fit), count, 3)
    r2, seconds, far = (dict(zip(to_fit, scores[..., i], strict=True)) for i in range(3))
    for model in set(models) - set(to_fit):
        r2[model] = np.array(known[model])
        seconds[model] = np.full(count, earlier["seconds"][model])
    r2 = {model: r2[model] for model in models}
    best = max(PEERS, key=lambda peer: r2[peer].mean())
    near = far[DEFAULT] == 0
    best_near = max(PEERS, key=lambda peer: r2[peer][near].sum())
    to_best_near = (r2[DEFAULT] - r2[best_near])[near]
    return {
        "table": name,
        "rows": len(y),
        "columns": X.shape[1],
        "rare_columns": rare_columns(X),
        "best": best,
        "r2": {model: values.tolist() for model, values in r2.items()},
        "seconds": {model: float(values.mean()) for model, values in seconds.items()},
        "far": far[DEFAULT].astype(bool).tolist(),
        "to_best_of_near_splits": float(to_best_near.mean()) if near.any() else None,
        "to_best": {
            model: {
                "mean": float(np.mean(r2[model] - r2[best])),
                "standard_error": float(np.std(r2[model] - r2[best], ddof=1) / count**0.5),
            }
            for model in models
        },
    }


def summarise(rows):
    """Over tables on which some peer explains anything; of the trimmed mean two tables at each end
    are left out.
    """
    counted = [row for row in rows if max(np.mean(row["r2"][peer]) for peer in PEERS) >= 0]
    found = {
        "left out": [row["table"] for row in rows if row not in counted],
        "tables": len(counted),
        "models": {},
    }
    for model in counted[0]["r2"] if counted else []:
        values = np.sort([row["to_best"][model]["mean"] for row in counted])
        errors = np.array([row["to_best"][model]["standard_error"] for row in counted])
        found["models"][model] = {
            "mean": float(values.mean()),
            "standard_error": float(np.sqrt(np.sum(errors**2)) / len(values)),
            "trimmed": float(values[2:-2].mean() if len(values) > 4 else values.mean()),
            "median": float(np.median(values)),
            "worst": float(values[0]),
            "seconds": float(sum(row["seconds"][model] for row in counted)),
        }
    rivals = [rival for rival in (*RIVALS, BEFORE) if counted and rival in counted[0]["r2"]]
    with_rare = [row for row in counted if row["rare_columns"]]
    found["paired"] = {rival: paired(counted, rival) for rival in rivals}
    found["paired_on_tables_with_rare_columns"] = {
        rival: paired(with_rare, rival) for rival in rivals if with_rare
    }
    near = [row for row in counted if row["to_best_of_near_splits"] is not None]
    if near:
        worst = min(near, key=lambda row: row["to_best_of_near_splits"])
        found["worst_of_near_splits"] = [worst["table"], worst["to_best_of_near_splits"]]
    return found


def paired(rows, rival):
    """Mean over tables of R2 less that of a rival, with its standard error, over all splits and over
    those without far rows, and our seconds over the rival's.
    """
    differences = [np.subtract(row["r2"][DEFAULT], row["r2"][rival]) for row in rows]
    near = [
        d[~np.array(row["far"])]
        for d, row in zip(differences, rows, strict=True)
        if not all(row["far"])
    ]
    result = {}
    for label, of_tables in (("all splits", differences), ("splits without far rows", near)):
        means = np.array([values.mean() for values in of_tables])
        result[label] = {
            "tables": len(means),
            "mean": float(means.mean()),
            "standard_error": float(means.std(ddof=1) / len(means) ** 0.5)
            if len(means) > 1
            else None,
            "median": float(np.median(means)),
        }
    ours, theirs = (sum(row["seconds"][model] for row in rows) for model in (DEFAULT, rival))
    result["time_ratio"] = ours / theirs
    return result


def cells(row):
    named = {
        model: (
            f"{np.mean(values):.4f} ({row['to_best'][model]['mean']:+.4f} ± "
            f"{row['to_best'][model]['standard_error']:.4f})"
        )
        for model, values in row["r2"].items()
    }
    return {
        "table": row["table"],
        "rows": str(row["rows"]),
        "columns": str(row["columns"]),
        **named,
    }


def summary_cells(model, entry):
    numbers = {name: f"{entry[name]:+.4f}" for name in ("mean", "trimmed", "median", "worst")}
    return {
        "model": model,
        **numbers,
        "± splits": f"{entry['standard_error']:.4f}",
        "s": f"{entry['seconds']:.2f}",
    }


def tables_of(options):
    groups = {}
    if options.folder is not None:
        groups["folder"] = (
            (path.stem, *read(path)) for path in sorted(options.folder.glob("*.csv"))
        )
    if options.ordinary:
        groups["ordinary"] = ordinary.load()
    if options.unusual:
        groups["unusual"] = unusual.load()
    return groups


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--ordinary", action="store_true", help="the tables of ordinary.py too")
    parser.add_argument("--unusual", action="store_true", help="the tables of unusual.py too")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", nargs="*", metavar="TABLE")
    others = [name for name in RIVALS | OURS if name != DEFAULT]
    parser.add_argument(
        "--models", nargs="*", default=[], choices=others, help=f"beside the model {DEFAULT!r}"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--reuse", type=Path, help="scores of the rivals from an earlier --json file"
    )
    parser.add_argument("--before", type=Path, help="a --json file of another commit's library")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    has_files = options.folder is not None and any(options.folder.glob("*.csv"))
    if not (options.ordinary or options.unusual or has_files):
        parser.error(
            "no table to read: give a folder that holds CSV files, --ordinary or --unusual."
        )
    models, text, stored = [*PEERS, DEFAULT, *options.models], "", {}
    earlier, before = (
        json.loads(path.read_text()) if path else {} for path in (options.reuse, options.before)
    )
    for group, tables in tables_of(options).items():
        rows = []
        known, of_commit = (
            {row["table"]: row for row in stored_run.get(group, {}).get("tables", ())}
            for stored_run in (earlier, before)
        )
        for name, X, y in tables:
            if options.only is None or name in options.only:
                row = measure(name, X, y, models, options.splits, options.jobs, known.get(name))
                if name in of_commit:
                    row["r2"][BEFORE] = of_commit[name]["r2"][DEFAULT]
                    row["seconds"][BEFORE] = of_commit[name]["seconds"][DEFAULT]
                    row["to_best"][BEFORE] = of_commit[name]["to_best"][DEFAULT]
                rows.append(row)
                if options.json:  # a long run that is stopped leaves what it has measured
                    partial = {**stored, group: {"tables": rows}}
                    options.json.write_text(json.dumps(partial, indent=1), encoding="utf-8")
                print(
                    "; ".join(f"{key} {value}" for key, value in cells(rows[-1]).items()),
                    flush=True,
                )
        if not rows:
            continue
        summary = summarise(rows)
        table = markdown(
            [summary_cells(model, entry) for model, entry in summary["models"].items()]
        )
        print(f"\n{group}: {summary['tables']} tables, left out {summary['left out']}\n{table}")
        print(f"worst table in splits without far rows: {summary.get('worst_of_near_splits')}")
        for label in ("paired", "paired_on_tables_with_rare_columns"):
            for rival, differences in summary[label].items():
                print(f"{label}, {DEFAULT} less {rival}: {json.dumps(differences)}")
        text += markdown([cells(row) for row in rows]) + "\n" + table + "\n"
        stored[group] = {"tables": rows, "summary": summary}
    if options.json:
        options.json.write_text(json.dumps(stored, indent=1), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
