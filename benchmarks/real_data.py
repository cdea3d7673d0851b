"""Prediction on real data: tuned ensembles against what people fit today, in repeated 5-fold cross-validation.

    python benchmarks/real_data.py FOLDER [--repeats 3] [--half settle] [--only wine_red ...] [--models loo uniform]
                                          [--jobs 2] [--json FILE] [--markdown FILE]

FOLDER holds CSV files with a header, numbers only, and a column `target`. All models stand behind a StandardScaler.

- Differences in R2 to RidgeCV are paired over folds and their standard errors are over folds. Folds share rows, so the
  errors are somewhat too small.
- "best" is whichever of RidgeCV, LassoCV and PLS has the largest mean R2 on a set, known only afterwards.
- A model whose fit on the first fold took longer than --limit is left out for that set. No fit is interrupted: the
  first fold is fitted to its end and then decides. RidgeCV, the reference, stays.
- In alphabetical order the files at even places (0, 2, ...) are the half that choices may be settled on; the others
  are held back for the end.
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
from sklearn.linear_model import BayesianRidge, ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.model_selection import RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from olsen import OLSEnsembleRegressorCV
from peers import PLSRegressionCV
from tables import markdown

REFERENCE = "RidgeCV"
LIMITS = {"alphas": 60, "max_iter": 1000, "tol": 1e-3}  # of coordinate descent
PEERS = {
    REFERENCE: lambda: RidgeCV(np.logspace(-4, 6, 60)),
    "LassoCV": lambda: LassoCV(**LIMITS),
    "ElasticNetCV": lambda: ElasticNetCV(l1_ratio=[0.2, 0.5, 0.8], **LIMITS),
    "PLS": lambda: PLSRegressionCV(),
    "BayesianRidge": lambda: BayesianRidge(),
    "OLS": lambda: LinearRegression(),
}
RIVALS = ("RidgeCV", "LassoCV", "PLS")  # of whom the best on each set is known afterwards
DEFAULT = "default"
HALVES = ("settle", "held")


def read(path: Path):
    with path.open(encoding="utf-8-sig") as file:
        header = next(csv.reader(file))
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    target = header.index("target")
    return np.delete(table, target, axis=1), table[:, target]


def model(name: str):
    """A peer, or our estimator: the default, or with the law of inclusion that the name says."""
    if name in PEERS:
        return PEERS[name]()
    return OLSEnsembleRegressorCV(random_state=0, **({} if name == DEFAULT else {"inclusion": name}))


def fit_fold(X, y, train, test, names):
    """R2 on the test rows and seconds of the fit, (models, 2), on one thread."""
    found = []
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for name in names:
            pipeline = make_pipeline(StandardScaler(), model(name))
            start = time.perf_counter()
            pipeline.fit(X[train], y[train])
            seconds = time.perf_counter() - start
            found.append((pipeline.score(X[test], y[test]), seconds))
    return found


def score(X, y, names, repeats: int, limit: float, jobs: int = 1):
    """R2 and seconds by model, one number for each fold, and the seconds of those that took too long on the first."""
    first, *rest = RepeatedKFold(n_splits=5, n_repeats=repeats, random_state=0).split(X)
    opening = dict(zip(names, fit_fold(X, y, *first, names), strict=True))
    slow = {name: s for name, (_, s) in opening.items() if s > limit and name != REFERENCE}
    kept = [name for name in names if name not in slow]
    others = joblib.Parallel(jobs)(joblib.delayed(fit_fold)(X, y, *fold, kept) for fold in rest)
    found = np.array([[opening[name] for name in kept], *others])  # (folds, models, 2)
    r2, seconds = (dict(zip(kept, found[..., i].T, strict=True)) for i in range(2))
    return r2, seconds, slow


def paired(r2, other):
    """Mean difference and its standard error over folds."""
    difference = r2 - other
    return {
        "difference": float(difference.mean()),
        "standard_error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
    }


def compared(r2, seconds, slow):
    """What is stored of one set."""
    best = max((name for name in RIVALS if name in r2), key=lambda name: r2[name].mean())
    return {
        "models": {
            name: {
                "r2": float(values.mean()),
                **paired(values, r2[REFERENCE]),
                "seconds": float(seconds[name].mean()),
                "folds": values.tolist(),
            }
            for name, values in r2.items()
        },
        "too_slow": slow,
        "best": best,
        "to_best": {name: paired(values, r2[best]) for name, values in r2.items() if name not in PEERS},
    }


def chosen_files(folder: Path, half: str, only):
    """Files with their halves; places are counted among all files, whatever is asked for."""
    files = [(path, HALVES[i % 2]) for i, path in enumerate(sorted(folder.glob("*.csv"), key=lambda path: path.stem))]
    return [(path, h) for path, h in files if half in ("all", h) and (not only or path.stem in only)]


def summaries(rows, ours):
    """Means and medians over sets, of all sets and of each half if both are there."""
    groups = {"all sets": list(rows.values())}
    if len({row["half"] for row in rows.values()}) > 1:
        groups |= {half: [row for row in rows.values() if row["half"] == half] for half in HALVES}
    found = {}
    for group, members in groups.items():
        names = dict.fromkeys(name for row in members for name in row["models"] if name != REFERENCE)
        values = {name: [row["models"][name] for row in members if name in row["models"]] for name in names}
        for name in ours:
            values[f"{name} to best"] = [row["to_best"][name] for row in members if name in row["to_best"]]
        found[group] = {name: middle(entries) for name, entries in values.items() if entries}
    return found


def middle(entries):
    differences = [entry["difference"] for entry in entries]
    return {"mean": float(np.mean(differences)), "median": float(np.median(differences)), "sets": len(entries)}


def signed(value):
    """A difference in R2; those beyond comparison in one digit."""
    return f"{value:+.4f}" if abs(value) < 10 else f"{value:+.0e}"


def with_error(entry):
    return f"{signed(entry['difference'])} ± {entry['standard_error']:.4f}"


def print_set(title, row):
    print(f"{title} (n = {row['n']}, p = {row['p']}, {row['half']}); the best of {', '.join(RIVALS)} is {row['best']}")
    for name, entry in row["models"].items():
        difference = "" if name == REFERENCE else with_error(entry)
        to_best = f"  to best {with_error(row['to_best'][name])}" if name in row["to_best"] else ""
        print(f"  {name:>14} R2 {entry['r2']:8.4f}  {difference:>18}  {entry['seconds']:7.2f} s{to_best}")
    for name, seconds in row["too_slow"].items():
        print(f"  {name:>14} left out: its fit on the first fold took {seconds:.3g} s")
    print(end="", flush=True)


def print_summaries(found):
    for group, entries in found.items():
        print(f"{group}: mean and median difference in R2, to RidgeCV and to the best of each set")
        for name, entry in entries.items():
            print(f"  {name:>22} {signed(entry['mean']):>8} {signed(entry['median']):>8}  ({entry['sets']} sets)")


def table(rows, found, ours):
    """Markdown: R2 of RidgeCV, differences to it, and ours to the best of the rivals."""
    peers = [name for name in PEERS if name != REFERENCE and any(name in row["models"] for row in rows.values())]
    lines = []
    for name, row in rows.items():
        models = row["models"]
        line = {"set": name, "n": str(row["n"]), "p": str(row["p"]), "R2 of RidgeCV": f"{models[REFERENCE]['r2']:.4f}"}
        line |= {peer: signed(models[peer]["difference"]) if peer in models else "too slow" for peer in peers}
        line |= {o: with_error(models[o]) if o in models else "too slow" for o in ours}
        line["best"] = row["best"]
        line |= {f"{o} to best": with_error(row["to_best"][o]) if o in row["to_best"] else "" for o in ours}
        lines.append(line)
    for group, entries in found.items():
        for what in ("mean", "median"):
            line = dict.fromkeys(lines[0], "") | {"set": f"**{what}, {group}**"}
            lines.append(line | {name: f"**{signed(entry[what])}**" for name, entry in entries.items()})
    return markdown(lines)


def seconds_of(rows):
    """Seconds of one fit of every set, by model."""
    names = dict.fromkeys(name for row in rows.values() for name in row["models"])
    every = [name for name in names if all(name in row["models"] for row in rows.values())]
    return {name: sum(row["models"][name]["seconds"] for row in rows.values()) for name in every}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3, help="of 5 folds")
    parser.add_argument("--half", choices=[*HALVES, "all"], default="all")
    parser.add_argument("--only", nargs="*", metavar="SET", help="names of files, without .csv")
    parser.add_argument("--models", nargs="*", default=[], metavar="LAW", help="laws of inclusion beside the default")
    parser.add_argument("--without", nargs="*", default=[], metavar="MODEL", help="models that are not run")
    parser.add_argument("--limit", type=float, default=60.0, metavar="SECONDS", help="of one fit")
    parser.add_argument("--jobs", type=int, default=1, help="processes over folds, of one thread each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: at least one is needed.")
    files = chosen_files(options.folder, options.half, options.only)
    if not files:
        parser.error(f"no such CSV files in {options.folder}.")
    ours = [name for name in dict.fromkeys([DEFAULT, *options.models]) if name not in options.without]
    names = [name for name in PEERS if name == REFERENCE or name not in options.without] + ours
    rows = {}
    for path, half in files:
        X, y = read(path)
        result = compared(*score(X, y, names, options.repeats, options.limit, options.jobs))
        rows[path.stem] = {"n": X.shape[0], "p": X.shape[1], "half": half, **result}
        print_set(path.stem, rows[path.stem])
    found = summaries(rows, ours)
    print_summaries(found)
    took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in seconds_of(rows).items())
    print(f"seconds of one fit of each set together: {took}")
    if options.json:
        options.json.write_text(json.dumps({"sets": rows, "summary": found}, indent=1), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(table(rows, found, ours), encoding="utf-8")


if __name__ == "__main__":
    main()
