"""Paths of the lasso by our kernel and by libraries that are made for it, at equal duality gaps."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.linear_model import lasso_path
from threadpoolctl import threadpool_limits

from olsen._data.rows import RowData
from olsen._data.standardised import standardise
from olsen._execution.threads import Threads
from olsen._members import penalised
from problems import linear
from timing import interleave, summary

from .text import duration

TITLE = "Paths of the lasso"
NOTE = (
    "Twenty penalties from the largest to a hundredth of it, on standardised columns, one thread."
    " The relative gap is the largest duality gap of the path over half the sum of squares of y; a"
    " contender's tolerance is lowered tenfold until its gap is at most 1e-4, and the time is that"
    " of the path at this tolerance. Our kernel has one documented tolerance. adelie needs an older"
    " NumPy: it runs in the Python that `ADELIE_PYTHON` names, and measures its own time there. A"
    " library that is not installed has no entry."
)
GAP = 1e-4
TOLERANCES = [10.0**-digits for digits in range(2, 12)]
FRACTIONS = np.geomspace(1.0, 0.01, 20)  # of the largest penalty
# name, n, p, correlation of neighbouring columns
PROBLEMS = [
    ("Gaussian", 500, 2000, 0.0),
    ("AR(0.95)", 500, 2000, 0.95),
    ("AR(0.95)", 3000, 300, 0.95),
]
TOY_PROBLEMS = [("AR(0.95)", 60, 20, 0.95)]

Path_ = Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray]


def run(quick: bool):
    for problem in TOY_PROBLEMS if quick else PROBLEMS:
        yield measure(*problem, rounds=0 if quick else 3)


def measure(name: str, n: int, p: int, correlation: float, rounds: int) -> dict:
    X, y = standardised(n, p, correlation)
    penalties = FRACTIONS * np.abs(X.T @ y).max() / n
    paths: dict[str, Callable] = {"olsen": partial(olsen_path, X, y, FRACTIONS)}
    tolerances = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers warn at tolerances that are too coarse or too fine
        for peer, path in peers().items():
            tolerances[peer] = next(
                (
                    tol
                    for tol in TOLERANCES
                    if gap(X, y, penalties, path(X, y, penalties, tol)) <= GAP
                ),
                TOLERANCES[-1],
            )
            paths[peer] = partial(path, X, y, penalties, tolerances[peer])
        gaps = {peer: gap(X, y, penalties, path()) for peer, path in paths.items()}
        measured = interleave(paths, rounds)
    row = summary(measured)
    if "ADELIE_PYTHON" in os.environ:
        took, coefs, tolerance = adelie_path(X, y, penalties)
        row["seconds"]["adelie"] = took
        gaps["adelie"] = gap(X, y, penalties, coefs)
        tolerances["adelie"] = tolerance
    return {"shape": {"data": name, "n": n, "p": p}, **row, "gaps": gaps, "tolerances": tolerances}


def standardised(n: int, p: int, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """Columns with mean zero and unit variance, and a centred target of ten of the columns."""
    X, _ = linear(n, p)
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    noise = np.random.default_rng(1).standard_normal(n)
    y = X[:, :: max(1, p // 10)].sum(axis=1) + noise
    X = np.asfortranarray((X - X.mean(axis=0)) / X.std(axis=0))
    return X, y - y.mean()


def gap(X: np.ndarray, y: np.ndarray, penalties: np.ndarray, coefs: np.ndarray) -> float:
    """Largest relative duality gap of min |y - X b|^2 / 2n + penalty |b|_1 along a path."""
    n = len(y)
    largest = 0.0
    for penalty, b in zip(penalties, coefs, strict=False):
        residual = y - X @ b
        primal = residual @ residual / (2 * n) + penalty * np.abs(b).sum()
        feasible = residual * min(1.0, penalty * n / np.abs(X.T @ residual).max())
        dual = (y @ y - np.sum((y - feasible) ** 2)) / (2 * n)
        largest = max(largest, (primal - dual) / (y @ y / (2 * n)))
    return float(largest)


def olsen_path(X: np.ndarray, y: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """The kernel's path, which ends where half as many columns as rows are in."""
    train, _ = standardise(RowData(X, y[:, None], None, fit_intercept=False), Threads())
    return penalised.group_lasso_path(train, fractions)[:, :, 0]


def peers() -> dict[str, Path_]:
    """Functions (X, y, penalties, tol) of the libraries that are installed."""
    installed: dict[str, Path_] = {"scikit-learn": sklearn_path}
    if importlib.util.find_spec("celer"):
        installed["celer"] = celer_path
    if importlib.util.find_spec("skglm"):
        installed["skglm"] = skglm_path
    return installed


def sklearn_path(X, y, penalties, tol):
    return lasso_path(X, y, alphas=penalties, tol=tol, max_iter=100_000)[1].T


def celer_path(X, y, penalties, tol):
    from celer import celer_path

    return celer_path(X, y, pb="lasso", alphas=penalties, tol=tol)[1].T


def skglm_path(X, y, penalties, tol):
    from skglm import Lasso

    return Lasso(tol=tol, fit_intercept=False).path(X, y, penalties)[1].T


ADELIE = """
import sys, time, numpy as np, adelie
data = np.load(sys.argv[1])
X, y, penalties = np.asfortranarray(data["X"]), data["y"], data["penalties"]
def path(tol):
    start = time.perf_counter()
    state = adelie.grpnet(X=X, glm=adelie.glm.gaussian(y), lmda_path=penalties, intercept=False,
                          tol=tol, early_exit=False, progress_bar=False, n_threads=1)
    return time.perf_counter() - start, state.betas.toarray()
tol = float(sys.argv[3])
runs = [path(tol) for _ in range(3)]
np.savez(sys.argv[2], took=min(run[0] for run in runs), coefs=runs[0][1])
"""


def adelie_path(X, y, penalties) -> tuple[float, np.ndarray, float]:
    """Seconds, coefficients and tolerance of adelie in another Python."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.npz")
        result = Path(folder, "result.npz")
        np.savez(data, X=X, y=y, penalties=penalties)
        for tolerance in TOLERANCES:
            command = [os.environ["ADELIE_PYTHON"], "-c", ADELIE, data, result, str(tolerance)]
            subprocess.run(command, check=True, stdout=sys.stderr)
            with np.load(result) as answer:
                took, coefs = float(answer["took"]), answer["coefs"]
            if gap(X, y, penalties, coefs) <= GAP:
                break
    return took, coefs, float(tolerance)


def cells(row):
    shown = {
        name: f"{duration(took)}, gap {row['gaps'][name]:.0e}"
        for name, took in row["seconds"].items()
    }
    return {"data, n, p": ", ".join(map(str, row["shape"].values())), **shown}
