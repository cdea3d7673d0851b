"""Excess risk on simulated signals, from sparse to dense: tuned ensembles against RidgeCV and
LassoCV.

    python benchmarks/simulated.py [--noise] [--repeats 30] [--jobs 2] [--only 100,150 400,50]
    [--json FILE] [--markdown FILE]

A grid of rows, columns, coefficients that are not zero, correlation of neighbouring columns (rho:
AR(1)) and noise. Coefficients are Gaussian at random places, of norm one; the true intercept is
zero. Every model stands behind a StandardScaler. The risk of coefficients b and an intercept a, in
the units of the data, is

    (b - beta)' Sigma (b - beta) + a^2

and the ratio is our mean risk over the smaller of the mean risks of RidgeCV and LassoCV, which of
them is known only afterwards. Models see the same data sets, so the standard error of the ratio is
that of the paired differences `ours - ratio * peer`, over the mean risk of the peer. The worst of
two hundred cells is mostly the unluckiest one: run it again with more data sets before drawing
conclusions.

--noise takes targets without any signal instead. There the estimated error of our model also
stands beside the true one, sigma^2 plus the risk.

With --json every finished cell is a line of the file, and cells that it holds (with the same
repeats and model) are not run again. It knows nothing of changes of the code: give another file
after those.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import joblib
import numpy as np
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.simulation import LinearProblem
from tables import markdown

ROWS, COLUMNS = (100, 400), (50, 150, 1000)
NONZEROS = (1, 3, 10, 30, 100)  # those below the number of columns, and all columns
CORRELATIONS, SIGMAS = (0.0, 0.5, 0.9), (0.3, 1.0, 5.0)  # the last: hardly any signal
NOISE_ROWS, NOISE_COLUMNS = (40, 60, 100, 300), (2, 20, 150)
WORSE = 1.1  # ratio from which a cell is shown
OURS, PEERS = "ours", ("RidgeCV", "LassoCV")
DEFAULT = "adaptive"
MODELS = {
    DEFAULT: lambda seed: AdaptiveOLSEnsembleRegressor(random_state=seed),
    "ensemble": lambda seed: OLSEnsembleRegressorCV(random_state=seed),  # of the paper
    "ridge": lambda seed: OLSEnsembleRegressorCV(sampling="determinantal", scale=1.0),
}


class Cell(NamedTuple):
    n: int
    p: int
    nonzeros: int
    rho: float
    sigma: float

    def __str__(self):
        return (
            f"n {self.n}, p {self.p}, {self.nonzeros} non-zero, rho {self.rho:g}, sigma"
            f" {self.sigma:g}"
        )

    def draw(self, number: int):
        """Data set `number` of this cell: a function of the cell alone, whoever draws it."""
        problem = LinearProblem(
            self.n,
            self.p,
            self.sigma,
            covariance="ar1",
            strength=self.rho,
            coefficients="sparse" if self.nonzeros else np.zeros(self.p),
            nonzeros=self.nonzeros or None,
        )
        key = [
            self.n,
            self.p,
            self.nonzeros,
            round(100 * self.rho),
            round(100 * self.sigma),
            number,
        ]
        return problem.draw(np.random.default_rng(key))


def grid(shapes=None) -> list[Cell]:
    """All cells, or those of the given shapes (n, p)."""
    found = []
    for n, p in shapes or itertools.product(ROWS, COLUMNS):
        nonzeros = [*(s for s in NONZEROS if s < p), p]
        found += [
            Cell(n, p, s, rho, sigma)
            for s, rho, sigma in itertools.product(nonzeros, CORRELATIONS, SIGMAS)
        ]
    return found


def noise_grid(shapes=None) -> list[Cell]:
    """Cells without signal, or those of the given shapes (n, p)."""
    shapes = shapes or itertools.product(NOISE_ROWS, NOISE_COLUMNS)
    return [Cell(n, p, 0, 0.0, 1.0) for n, p in shapes]


def models(name, seed):
    return {
        OURS: MODELS[name](seed),
        "RidgeCV": RidgeCV(np.logspace(-4, 6, 60)),
        "LassoCV": LassoCV(
            alphas=60, max_iter=1000, tol=1e-3, cv=KFold(5, shuffle=True, random_state=0)
        ),
    }


def risk(pipeline, sample) -> float:
    """Of a fitted pipeline of scaler and linear model."""
    scaler, model = pipeline
    coef = np.ravel(model.coef_) / scaler.scale_
    intercept = model.intercept_ - scaler.mean_ @ coef
    return float(sample.energy(coef - sample.beta) + intercept**2)


def run_cell(cell: Cell, repeats: int, ours: str = DEFAULT) -> dict:
    """Risks of every model on every data set, and mean seconds of a fit, on one thread."""
    risks = {name: [] for name in (OURS, *PEERS)}
    seconds, weights = dict.fromkeys(risks, 0.0), {}
    estimated = 0.0  # mean estimated error of our model
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for number in range(repeats):
            sample = cell.draw(number)
            for name, model in models(ours, number).items():
                start = time.perf_counter()
                pipeline = make_pipeline(StandardScaler(), model).fit(sample.X, sample.y)
                seconds[name] += (time.perf_counter() - start) / repeats
                risks[name].append(risk(pipeline, sample))
                if name == OURS:
                    estimated -= model.best_score_ / repeats
                if name == OURS and ours == DEFAULT:
                    for scheme, weight in model.scheme_weights_.items():
                        weights[scheme] = weights.get(scheme, 0.0) + weight / repeats
    key = {"cell": cell._asdict(), "repeats": repeats, "model": ours}
    true = cell.sigma**2 + float(np.mean(risks[OURS]))
    return {
        **key,
        "risks": risks,
        "seconds": seconds,
        "weights": weights,
        "estimated_to_true": estimated / true,
    }


def ratio(result) -> tuple[float, float, str]:
    """Our mean risk over that of the better peer, its standard error, and the peer."""
    risks = {name: np.array(values) for name, values in result["risks"].items()}
    peer = min(PEERS, key=lambda name: risks[name].mean())
    found = risks[OURS].mean() / risks[peer].mean()
    error = (
        (risks[OURS] - found * risks[peer]).std(ddof=1)
        / np.sqrt(len(risks[peer]))
        / risks[peer].mean()
    )
    return float(found), float(error), peer


def stored(path: Path | None, repeats: int, ours: str = DEFAULT) -> dict[Cell, dict]:
    """Cells of a file; a last line that was cut off is not one."""
    if path is None or not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        if (result["repeats"], result["model"]) == (repeats, ours):
            found[Cell(**result["cell"])] = result
    return found


def append(path: Path, result: dict) -> None:
    with path.open("a+", encoding="utf-8") as file:
        whole = file.tell() == 0 or path.read_bytes().endswith(b"\n")
        file.write(("" if whole else "\n") + json.dumps(result) + "\n")


def describe(cell: Cell, result: dict) -> str:
    value, error, peer = ratio(result)
    means = ", ".join(f"{name} {np.mean(values):.4f}" for name, values in result["risks"].items())
    weights = "".join(
        f"; {weight:.0%} {scheme}" for scheme, weight in sorted(result["weights"].items())
    )
    estimated = f"; estimated error {result['estimated_to_true']:.3f} of the true one"
    return f"{cell}: {value:.3f} ± {error:.3f} of {peer} ({means}{weights}{estimated})"


def print_summary(results: dict[Cell, dict]) -> None:
    found = {cell: ratio(result) for cell, result in results.items()}
    ratios = {cell: value for cell, (value, _, _) in found.items()}
    worse = sorted((cell for cell in ratios if ratios[cell] > WORSE), key=ratios.get, reverse=True)
    clearly = sum(value - 2 * error > WORSE for value, error, _ in found.values())
    print(
        f"\n{len(worse)} of {len(ratios)} cells above {WORSE}, {clearly} by more than two standard"
        " errors"
    )
    for cell in worse:
        print("  " + describe(cell, results[cell]))
    values, worst = list(ratios.values()), max(ratios, key=ratios.get)
    print(
        f"ratio of risks: mean {np.mean(values):.3f}, geometric mean"
        f" {np.exp(np.mean(np.log(values))):.3f}, ",
        end="",
    )
    print(f"median {np.median(values):.3f}, worst {ratios[worst]:.3f} ({worst})")


def table(results: dict[Cell, dict]) -> str:
    """Markdown, by n and p."""
    lines = []
    for n, p in sorted({(cell.n, cell.p) for cell in results}):
        these = {
            cell: ratio(result) for cell, result in results.items() if (cell.n, cell.p) == (n, p)
        }
        worst = max(these, key=lambda cell: these[cell][0])
        value, error, peer = these[worst]
        seconds = [result["seconds"] for cell, result in results.items() if cell in these]
        lines.append(
            {
                "n": str(n),
                "p": str(p),
                "cells": str(len(these)),
                "mean ratio": f"{np.mean([found for found, _, _ in these.values()]):.3f}",
                f"above {WORSE}": str(sum(found > WORSE for found, _, _ in these.values())),
                "worst ratio": f"{value:.3f} ± {error:.3f}",
                "there": (
                    f"{worst.nonzeros} non-zero, rho {worst.rho:g}, sigma {worst.sigma:g} (best:"
                    f" {peer})"
                ),
                "seconds of a fit: ours, RidgeCV, LassoCV": ", ".join(
                    f"{np.mean([s[name] for s in seconds]):.2f}" for name in (OURS, *PEERS)
                ),
            }
        )
    return markdown(lines)


def shape(text: str) -> tuple[int, int]:
    n, p = (int(part) for part in text.split(","))
    return n, p


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--noise", action="store_true", help="cells without signal instead")
    parser.add_argument("--repeats", type=int, default=30, help="data sets of every cell")
    parser.add_argument(
        "--only", nargs="*", type=shape, metavar="N,P", help="cells of these shapes only"
    )
    parser.add_argument(
        "--model", choices=list(MODELS), default=DEFAULT, help="which of our models"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes over cells, of one thread each"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.repeats < 2:
        parser.error(f"--repeats {options.repeats}: a standard error needs two data sets at least.")
    cells = (noise_grid if options.noise else grid)(options.only)
    kept = stored(options.json, options.repeats, options.model)
    todo = [cell for cell in cells if cell not in kept]
    print(f"{len(cells) - len(todo)} of {len(cells)} cells are there already", flush=True)
    work = (joblib.delayed(run_cell)(cell, options.repeats, options.model) for cell in todo)
    for result in joblib.Parallel(options.jobs, return_as="generator_unordered")(work):
        cell = Cell(**result["cell"])
        kept[cell] = result
        if options.json:
            append(options.json, result)
        print(describe(cell, result), flush=True)
    results = {cell: kept[cell] for cell in cells}
    print_summary(results)
    if options.markdown:
        options.markdown.write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
