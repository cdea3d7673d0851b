"""How often intervals hold what they shall: simulated settings, and real tables by
cross-validation.

    python benchmarks/interval_coverage.py [--data DIR] [--repeats 100] [--coverage 0.9] [--methods
    jackknife+ cv+ ...] [--adaptive_width]

Every simulated setting draws fresh training and test rows each time; standard errors are those over
data sets. "raw" are quantiles of the residuals of the fitted rows, what one gets without leaving
anything out.

--adaptive_width compares widths that follow the prediction with constant ones instead, on the tables
of DIR, of ``ordinary.py`` and of ``unusual.py`` with at least FEWEST_WIDTH_ROWS rows: the mean interval
score (width, plus 2 / (1 - coverage) for each unit by which a row is missed) over that of constant
widths, and coverage, also by thirds of the prediction. A table is "significant" where the test of
``adaptive_width="auto"`` is so in at least half of the folds.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

import ordinary
import unusual
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor

METHODS = ("cv+", "normal", "raw")  # a jackknife would leave rows out of a choice that had them
N_TEST = 200
FEWEST_ROWS = 150
FEWEST_WIDTH_ROWS = 50
MOST_ROWS = 2000  # of a real table
FOLDS = 5


class Sample(NamedTuple):
    """Rows to train and to test on."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    groups: np.ndarray | None = None


def autoregressive(rng: np.random.Generator, n: int, p: int, rho: float) -> np.ndarray:
    """Columns whose neighbours are correlated."""
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X


def signal(p: int) -> np.ndarray:
    """The same in every data set."""
    return np.random.default_rng(7).standard_normal(p) / np.sqrt(p)


def simulated(
    n: int, p: int, rho: float, noise: Callable[[np.random.Generator, np.ndarray], np.ndarray]
) -> Callable:
    """A setting: a function of a random generator that gives a sample."""

    def draw(rng: np.random.Generator) -> Sample:
        X = autoregressive(rng, n + N_TEST, p, rho)
        y = X @ signal(p) + noise(rng, X)
        return Sample(X[:n], y[:n], X[n:], y[n:])

    return draw


def grouped(rng: np.random.Generator) -> Sample:
    """Rows in groups of five that share columns, nearly, and an effect of their own; new rows are
    of new groups.
    """
    n_groups, each, p = 40, 5, 50
    total = n_groups + N_TEST
    group = np.r_[np.repeat(np.arange(n_groups), each), np.arange(n_groups, total)]
    centre, effect = rng.standard_normal((total, p)), rng.standard_normal(total)
    X = centre[group] + 0.2 * rng.standard_normal((len(group), p))
    y = X @ signal(p) + effect[group] + 0.3 * rng.standard_normal(len(group))
    n = n_groups * each
    return Sample(X[:n], y[:n], X[n:], y[n:], group[:n])


SETTINGS: dict[str, Callable[[np.random.Generator], Sample]] = {
    "Gaussian, 150 x 50": simulated(150, 50, 0.0, lambda rng, X: rng.standard_normal(len(X))),
    "AR(1), t4 noise, 150 x 50": simulated(
        150, 50, 0.7, lambda rng, X: rng.standard_t(4, len(X)) / np.sqrt(2)
    ),
    "n < p, 80 x 120": simulated(80, 120, 0.5, lambda rng, X: rng.standard_normal(len(X))),
    "heteroskedastic, 150 x 50": simulated(
        150, 50, 0.0, lambda rng, X: rng.standard_normal(len(X)) * np.sqrt(0.2 + 0.8 * X[:, 0] ** 2)
    ),
    "groups of 5, 200 x 50": grouped,
}


def estimators(grouped: bool) -> dict[str, Callable[[int], object]]:
    """One with a size that was not chosen from the data, and the default."""
    found = {
        "fixed size": lambda seed: OLSEnsembleRegressor(200, max_features=0.3, random_state=seed),
        "adaptive": lambda seed: AdaptiveOLSEnsembleRegressor(random_state=seed),
    }
    if grouped:
        found = {
            "adaptive": lambda seed: AdaptiveOLSEnsembleRegressor(
                cv=GroupKFold(5), random_state=seed
            )
        }
    return found


def interval(
    model: object, X: np.ndarray, y: np.ndarray, new: np.ndarray, coverage: float, method: str
) -> np.ndarray:
    """Ends for new rows; "raw" are quantiles of the residuals of the fit."""
    if method != "raw":
        return model.predict_interval(new, coverage, method)
    half = np.quantile(np.abs(y - model.predict(X)), coverage)
    centre = model.predict(new)
    return np.column_stack([centre - half, centre + half])


def covered(ends: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])))


def simulate(methods: list[str], coverage: float, repeats: int, seed: int) -> Iterator[list[str]]:
    """Rows of a table: setting, estimator, and coverage with its standard error and width for every
    method.
    """
    for name, draw in SETTINGS.items():
        for kind, make in estimators(draw is grouped).items():
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
            for i in range(repeats):
                sample = draw(np.random.default_rng([seed, i]))
                extra = {} if sample.groups is None else {"groups": sample.groups}
                model = make(i).fit(sample.X, sample.y, **extra)
                for method in methods:
                    if sample.groups is not None and method.startswith("jackknife"):
                        continue
                    ends = interval(model, sample.X, sample.y, sample.X_test, coverage, method)
                    found[method].append(
                        (covered(ends, sample.y_test), float(np.median(ends[:, 1] - ends[:, 0])))
                    )
            yield [name, kind, *(_cell(found[method]) for method in methods)]


def _cell(found: list[tuple[float, float]]) -> str:
    if not found:
        return ""
    share, width = np.array(found).T
    return (
        f"{share.mean():.3f} ± {share.std(ddof=1) / np.sqrt(len(share)):.3f} ({width.mean():.3g})"
    )


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of a CSV file whose last column is the target; texts become columns of 0 and 1."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as file:
        _, *rows = list(csv.reader(file))
    columns = []
    for column in zip(*rows, strict=True):
        try:
            columns.append(np.array(column, dtype=float)[:, None])
        except ValueError:
            levels = sorted(set(column))
            columns.append(
                np.array(
                    [[value == level for level in levels[1:]] for value in column], dtype=float
                )
            )
    table = np.hstack(columns)
    return table[:, :-1], table[:, -1]


def real(folder: Path, methods: list[str], coverage: float) -> Iterator[list[str]]:
    """The same for tables with enough rows, by cross-validation; standard errors are those of a
    share of the rows.
    """
    for path in sorted([*folder.glob("*.csv"), *folder.glob("*.csv.gz")]):
        try:
            X, y = read_table(path)
        except ValueError:
            continue
        keep = np.isfinite(X).all(axis=1) & np.isfinite(y)
        X, y = X[keep], y[keep]
        if len(y) < FEWEST_ROWS:
            continue
        order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
        X, y = X[order], y[order]
        found: dict[str, list[np.ndarray]] = {method: [] for method in methods}
        for train, test in KFold(FOLDS).split(X):
            model = AdaptiveOLSEnsembleRegressor(n_estimators=400, random_state=0).fit(
                X[train], y[train]
            )
            for method in methods:
                ends = interval(model, X[train], y[train], X[test], coverage, method)
                found[method].append((ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1]))
        cells = [np.concatenate(found[method]) for method in methods]
        n = len(y)
        yield [
            f"{path.name.split('.')[0]}, {n} x {X.shape[1]}",
            "adaptive",
            *(f"{c.mean():.3f} ± {np.sqrt(c.mean() * (1 - c.mean()) / n):.3f}" for c in cells),
        ]


class Widths(NamedTuple):
    """Intervals of one fold with constant, adaptive and automatic widths."""

    significant: bool
    scores: np.ndarray  # (3,) means over rows
    covered: np.ndarray  # (3, 3) by widths and thirds of the prediction


def width_folds(X: np.ndarray, y: np.ndarray, coverage: float) -> Iterator[Widths]:
    """All folds of a table, two of a table with more than MOST_ROWS / 2 rows."""
    order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    X, y = X[order], y[order]
    folds = FOLDS if len(y) <= MOST_ROWS / 2 else 2
    for train, test in list(KFold(FOLDS).split(X))[:folds]:
        model = AdaptiveOLSEnsembleRegressor(random_state=0).fit(X[train], y[train])
        ends = [
            model.predict_interval(X[test], coverage, adaptive_width=width)
            for width in (False, True, "auto")
        ]
        if not np.isfinite(ends[0]).all():
            return
        thirds = np.array_split(np.argsort(model.predict(X[test])), 3)
        inside = [(low <= y[test]) & (y[test] <= high) for low, high in (e.T for e in ends)]
        yield Widths(
            not np.array_equal(ends[0], ends[2]),
            np.array([interval_score(*e.T, y[test], coverage) for e in ends]),
            np.array([[rows[third].mean() for third in thirds] for rows in inside]),
        )


def interval_score(low: np.ndarray, high: np.ndarray, y: np.ndarray, coverage: float) -> float:
    missed = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return float(np.mean(high - low + 2 / (1 - coverage) * missed))


def compare_widths(folder: Path | None, coverage: float) -> None:
    """Print a line for each table and the means over the two kinds of tables."""
    kinds: dict[bool, list[tuple[np.ndarray, np.ndarray]]] = {True: [], False: []}
    print("| table | significant | score, adaptive | score, auto | constant | adaptive | auto |")
    print("|---|---|---|---|---|---|---|")
    for name, X, y in width_tables(folder):
        folds = list(width_folds(X, y, coverage)) if len(y) >= FEWEST_WIDTH_ROWS else []
        if not folds:
            continue
        significant = sum(fold.significant for fold in folds) / len(folds) >= 0.5
        scores = np.mean([fold.scores for fold in folds], axis=0)
        covered = np.mean([fold.covered for fold in folds], axis=0)
        kinds[significant].append((scores[1:] / scores[0], covered))
        print(width_line(name, significant, scores[1:] / scores[0], covered), flush=True)
    for significant, tables in kinds.items():
        if tables:
            ratios, covered = (np.mean(part, axis=0) for part in zip(*tables, strict=True))
            name = f"mean of {len(tables)} tables"
            print(width_line(name, significant, ratios, covered))


def width_line(name: str, significant: bool, ratios: np.ndarray, covered: np.ndarray) -> str:
    cells = [f"{ratio:.3f}" for ratio in ratios]
    for thirds in covered:
        cells.append(f"{thirds.mean():.3f} ({', '.join(f'{third:.2f}' for third in thirds)})")
    return f"| {name} | {'yes' if significant else 'no'} | {' | '.join(cells)} |"


def width_tables(folder: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Tables of the folder, ordinary and unusual ones, without constant columns."""
    in_folder = (
        (path.stem, *read_table(path)) for path in sorted((folder or Path()).glob("*.csv"))
    )
    for name, X, y in chain(in_folder if folder else (), ordinary.load(), unusual.load()):
        yield name, X[:, np.ptp(X, axis=0) > 0], y


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder of CSV files whose last column is the target"
    )
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--adaptive_width", action="store_true", help="compare widths instead")
    given = parser.parse_args()
    if given.adaptive_width:
        compare_widths(given.data, given.coverage)
        return
    print("| data | estimator | " + " | ".join(given.methods) + " |")
    print("|---|---|" + "---|" * len(given.methods))
    for row in simulate(given.methods, given.coverage, given.repeats, given.seed):
        print("| " + " | ".join(row) + " |", flush=True)
    if given.data is not None:
        for row in real(given.data, given.methods, given.coverage):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
