r"""Our ensemble beside what people fit today, on the same folds of a table.

Every model stands behind a StandardScaler, is fitted on the rows outside a fold and predicts those inside it; what a
model tunes, it tunes inside. Differences to the ensemble are taken fold by fold. Folds share most of their training
rows, so the plain standard error of a mean over folds is too small, the more so the more often folds are repeated: with
J folds of :math:`n_2` test and :math:`n_1` training rows and differences of variance :math:`s^2`, the one given is
:math:`\sqrt{(1/J + n_2/n_1)\,s^2}` (Nadeau and Bengio 2003; status: heuristic).
"""

from __future__ import annotations

import math
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .. import OLSEnsembleRegressorCV
from .._execution.extras import versions
from .._report.formatting import counted, listed, number, with_error
from . import fitting, terminal
from .shown_text import shortened, visible
from .tables import TableError

__all__ = ["PartialLeastSquares", "as_text", "compare_table", "run"]

Array = NDArray[np.float64]

OURS = "ensemble"
PENALTIES = np.logspace(-4, 6, 60)
DESCENT = {"alphas": 60, "max_iter": 1000, "tol": 1e-3}  # of coordinate descent
MIXTURES = [0.2, 0.5, 0.8]  # of the penalties of the elastic net
MOST_COMPONENTS, INNER_FOLDS = 20, 5
FEWEST_ROWS = 10  # half of them must do for five folds inside
SMALLEST, LARGEST = 1e-100, 1e100  # of a target whose errors are to be squared and summed
LONGEST_FILE_NAME = 200
WIDTH = 88  # of sentences on a terminal
BEYOND = 2  # standard errors from which on a difference is called one
FOLDS_SHARE_ROWS = (
    "Standard errors are those of the difference to the ensemble, fold by fold, made larger because folds share "
    "training rows."
)


class PartialLeastSquares:
    """Partial least squares with the number of components chosen by cross-validation.

    Components do not depend on those that come after them: one fit with the most components holds all smaller ones.
    Folds are those that LassoCV makes, of neighbouring rows; columns are taken as they are.

    Attributes
    ----------
    n_components_ : int
        The number with the smallest sum of squares on rows left out.
    """

    n_components_: int

    def fit(self, X: Array, y: Array) -> Self:
        """Choose the number of components, then fit all rows."""
        from sklearn.model_selection import KFold

        errors = [self._errors(X, y, train, test) for train, test in KFold(INNER_FOLDS).split(X)]
        common = min(map(len, errors))  # a small fold may have fewer components
        self.n_components_ = 1 + int(np.argmin(np.sum([squares[:common] for squares in errors], axis=0)))
        coef, intercept = self._all(X, y)
        self._coef, self._intercept = coef[self.n_components_ - 1], intercept[self.n_components_ - 1]
        return self

    def predict(self, X: Array) -> Array:
        """Predictions of rows."""
        return np.asarray(X @ self._coef + self._intercept)

    def _errors(self, X: Array, y: Array, train: Any, test: Any) -> Array:
        """Sums of squares over the test rows, for 1, 2, ... components."""
        coef, intercept = self._all(X[train], y[train])
        return np.asarray(np.sum((y[test] - coef @ X[test].T - intercept[:, None]) ** 2, axis=1))

    def _all(self, X: Array, y: Array) -> tuple[Array, Array]:
        """Coefficients (components, p) and intercepts of 1, 2, ... components."""
        from sklearn.cross_decomposition import PLSRegression

        most = min(MOST_COMPONENTS, len(X) - 1, X.shape[1])
        pls = PLSRegression(most, scale=False).fit(X, y)
        coef = np.cumsum(pls.x_rotations_ * pls.y_loadings_, axis=1).T
        return coef, y.mean() - coef @ X.mean(axis=0)


def _models(seed: int, jobs: int) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Name -> what it is, and how one is made. Ours is the first."""
    from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV

    return {
        OURS: ("OLSEnsembleRegressorCV", lambda: OLSEnsembleRegressorCV(n_jobs=jobs, random_state=seed)),
        "ridge": ("RidgeCV, 60 penalties", lambda: RidgeCV(PENALTIES)),
        "lasso": ("LassoCV, 60 penalties", lambda: LassoCV(n_jobs=jobs, **DESCENT)),
        "elastic net": (
            "ElasticNetCV, 3 x 60 penalties", lambda: ElasticNetCV(l1_ratio=MIXTURES, n_jobs=jobs, **DESCENT)
        ),
        "PLS": (f"PLSRegression, up to {MOST_COMPONENTS} components", PartialLeastSquares),
        "least squares": ("LinearRegression", LinearRegression),
    }  # fmt: skip


def run(
    X: Array,
    y: Array,
    *,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    jobs: int = -1,
    tell: terminal.Tell | None = None,
) -> dict[str, Any]:
    """Compare the models on arrays.

    Parameters
    ----------
    X, y : ndarray
        Columns and target.
    folds, repeats : int
        Rows are divided into so many folds at random, so many times.
    seed : int
        Of the folds and of the ensemble's members.
    jobs : int
        Threads of one fit; fits come one after another, so that their seconds can be compared.
    tell : callable, default=None
        Is told what is being done, how much of it is done and how much there is.

    Returns
    -------
    dict
        ``models``, a list of dicts with ``rmse`` and ``r2`` (means over folds), ``rmse_difference`` and
        ``r2_difference`` to the ensemble with their ``..._standard_error``, median ``seconds`` of a fit, whether it is
        the ``best``, and its ``folds``; ``best``, ``verdict``, ``notes`` and the settings.
    """
    _check_rows(y, folds)
    models = _models(seed, jobs)
    splits = list(_splits(len(y), folds, repeats, seed))
    scores, notes = _scores(X, y, models, splits, jobs, tell)
    larger = 1 / len(splits) + float(np.mean([len(test) / len(train) for train, test in splits]))
    lines = [_line(name, models[name][0], scores[name], scores[OURS], larger) for name in models]
    best = min((line for line in lines if line["rmse"] is not None), key=lambda line: line["rmse"])
    best["best"] = True
    return {
        "folds": folds,
        "repeats": repeats,
        "seed": seed,
        "models": lines,
        "best": best["name"],
        "verdict": _verdict(lines, best),
        "notes": notes,
    }


def _check_rows(y: Array, folds: int) -> None:
    needed = max(FEWEST_ROWS, 2 * folds)
    if len(y) < needed:
        raise TableError(
            f"{counted(len(y), 'row')} are too few for {folds} folds: {needed} are needed, two in every fold and "
            f"{FEWEST_ROWS} in all."
        )
    if not np.ptp(y) > 0:
        raise TableError("the target is the same in all rows; there is nothing to predict.")
    largest, spread = float(np.abs(y).max()), float(np.ptp(y))
    if largest > LARGEST:
        raise TableError(f"the target goes up to {largest:.3g}, and its squares are too large; divide it.")
    if spread < SMALLEST:
        raise TableError(f"the target varies by {spread:.3g}, and its squares are too small; multiply it.")


def _splits(n: int, folds: int, repeats: int, seed: int) -> Any:
    from sklearn.model_selection import RepeatedKFold

    return RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=seed).split(np.empty((n, 1)))


def _scores(
    X: Array, y: Array, models: dict[str, tuple[str, Callable[[], Any]]], splits: list[Any], jobs: int,
    tell: terminal.Tell | None,
) -> tuple[dict[str, Array], list[str]]:  # fmt: skip
    """Error, R2 and seconds of every model in every fold, (folds, 3), and notes about fits that went wrong."""
    from joblib import effective_n_jobs
    from threadpoolctl import threadpool_limits

    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    warned = dict.fromkeys(models, 0)
    done, total = 0, len(splits) * len(models)
    with threadpool_limits(effective_n_jobs(jobs)):
        for train, test in splits:
            for name, (_, make) in models.items():
                if tell is not None:
                    tell("comparing", done, total)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        found[name].append(_fit_and_score(make(), X, y, train, test))
                    except ValueError:  # errors of linear algebra among them
                        if name == OURS:
                            raise
                        found[name].append((math.nan, math.nan, math.nan))
                warned[name] += any(_is_convergence(w.category) for w in caught)
                done += 1
    if tell is not None:
        tell("comparing", done, total)
    notes = [f"{name} had not converged in {count} of {len(splits)} folds." for name, count in warned.items() if count]
    scores = {name: np.array(values) for name, values in found.items()}
    failed = {name: int(np.isnan(values[:, 2]).sum()) for name, values in scores.items()}
    notes += [
        f"{name} could not be fitted in {count} of {len(splits)} folds." for name, count in failed.items() if count
    ]
    return scores, notes


def _is_convergence(category: type[Warning]) -> bool:
    from sklearn.exceptions import ConvergenceWarning

    return issubclass(category, ConvergenceWarning)


def _fit_and_score(model: Any, X: Array, y: Array, train: Any, test: Any) -> tuple[float, float, float]:
    """Root mean squared error and R2 on the test rows, and seconds of the fit, scaling included."""
    from sklearn.preprocessing import StandardScaler

    start = time.perf_counter()
    scaler = StandardScaler().fit(X[train])
    model.fit(scaler.transform(X[train]), y[train])
    seconds = time.perf_counter() - start
    residuals = y[test] - np.ravel(model.predict(scaler.transform(X[test])))
    spread = float(np.sum((y[test] - y[test].mean()) ** 2))
    r2 = 1 - float(residuals @ residuals) / spread if spread > 0 else math.nan
    return math.sqrt(float(residuals @ residuals) / len(test)), r2, seconds


def _line(name: str, what: str, scores: Array, ours: Array, larger: float) -> dict[str, Any]:
    rmse, r2, seconds = scores.T
    line: dict[str, Any] = {"name": name, "what": what, "rmse": _finite(rmse.mean()), "r2": _finite(r2.mean())}
    for key, values, reference in (("rmse", rmse, ours[:, 0]), ("r2", r2, ours[:, 1])):
        difference = values - reference
        error = math.sqrt(larger * float(np.var(difference, ddof=1)))
        line[f"{key}_difference"] = None if name == OURS else _finite(difference.mean())
        line[f"{key}_standard_error"] = None if name == OURS else _finite(error)
    folds = {"rmse": rmse.tolist(), "r2": r2.tolist(), "seconds": seconds.tolist()}
    return {**line, "seconds": _finite(np.median(seconds)), "best": False, "folds": folds}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _verdict(lines: list[dict[str, Any]], best: dict[str, Any]) -> str:
    """What can be said of the ensemble and the others, and what cannot."""
    rivals = [line for line in lines if None not in (line["rmse_difference"], line["rmse_standard_error"])]
    level = [line["name"] for line in rivals if _is_level(line)]
    worse = [line["name"] for line in rivals if line["rmse_difference"] > 0 and not _is_level(line)]
    better = [line["name"] for line in rivals if line["rmse_difference"] < 0 and not _is_level(line)]
    errors = f"{BEYOND} standard errors"
    parts = [f"The smallest mean error is that of {_the(best['name'])}."]
    if level:
        parts.append(
            f"Within {errors} of the ensemble, so that these folds cannot tell "
            f"{'it' if len(level) == 1 else 'them'} apart from it: {listed(level)}."
        )
    if worse:
        parts.append(f"Worse than the ensemble by more than {errors}: {listed(worse)}.")
    if better:
        parts.append(f"Better than the ensemble by more than {errors}: {listed(better)}.")
    return " ".join(parts)


def _is_level(line: dict[str, Any]) -> bool:
    return bool(abs(line["rmse_difference"]) <= BEYOND * line["rmse_standard_error"])


def _the(name: str) -> str:
    return f"the {name}" if name in (OURS, "lasso", "elastic net") else name


def compare_table(
    data: Path | None, target: str, drop: list[str], *, folds: int, repeats: int, seed: int, jobs: int, command: str
) -> dict[str, Any]:
    """The comparison on a table, or on the embedded data, with what is known about the table."""
    if fitting.open_large(data, forced=False) is not None:
        raise TableError(f"{data} is too large to be loaded, which comparing needs; compare on a sample of its rows.")
    rows = fitting.training_data(data, fitting.Reading(target, tuple(drop)))
    with terminal.progress_bars() as tell:
        found = run(rows.X, rows.y, folds=folds, repeats=repeats, seed=seed, jobs=jobs, tell=tell)
    about = {
        "name": rows.name, "rows": len(rows.y), "columns": rows.X.shape[1], "target": rows.encoding.target,
        "messages": rows.messages,
    }  # fmt: skip
    return {"data": about, **found, "command": command, "versions": versions()}


def as_text(found: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    data = found["data"]
    name, target = shortened(data["name"], LONGEST_FILE_NAME), shortened(data["target"])
    lines = [f"{name}: {counted(data['rows'], 'row')}, {counted(data['columns'], 'column')}, target {target}"]
    lines += [f"  note: {visible(message)}" for message in (*data["messages"], *found["notes"])]
    repeated = f", repeated {found['repeats']} times" if found["repeats"] > 1 else ""
    lines += [
        "",
        f"{found['folds']} random folds{repeated}, seed {found['seed']}; means over folds, * has the least error",
        "",
    ]
    lines.append(f"  {'':<14}{'error':>9}{'to ensemble':>20}{'R2':>9}{'to ensemble':>20}{'seconds':>9}")
    lines += [_text_line(line) for line in found["models"]]
    words = (textwrap.fill(text, WIDTH) for text in (found["verdict"], FOLDS_SHARE_ROWS))
    return "\n".join([*lines, "", *words])


def _text_line(line: dict[str, Any]) -> str:
    mark = "*" if line["best"] else " "
    to_error = with_error(line["rmse_difference"], line["rmse_standard_error"])
    to_r2 = with_error(line["r2_difference"], line["r2_standard_error"])
    return (
        f"{mark} {line['name']:<14}{number(line['rmse']):>9}{to_error:>20}{number(line['r2'], '.3f'):>9}{to_r2:>20}"
        f"{number(line['seconds'], '.2f'):>9}"
    )
