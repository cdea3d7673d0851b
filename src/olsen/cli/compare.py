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
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import OLSEnsembleRegressorCV
from .._execution.extras import versions
from .._report.formatting import counted, escape_control, listed, number, shortened, with_error
from . import fitting, terminal
from .tables import TableError

__all__ = ["as_text", "compare_table", "run"]

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


def _models(seed: int, jobs: int, components: int) -> dict[str, tuple[str, Any]]:
    """Name -> what it is, and one of it. Ours is the first."""
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
    from sklearn.model_selection import GridSearchCV

    grid = {"n_components": range(1, components + 1)}
    return {
        OURS: ("OLSEnsembleRegressorCV", OLSEnsembleRegressorCV(n_jobs=jobs, random_state=seed)),
        "ridge": ("RidgeCV, 60 penalties", RidgeCV(PENALTIES)),
        "lasso": ("LassoCV, 60 penalties", LassoCV(n_jobs=jobs, **DESCENT)),
        "elastic net": ("ElasticNetCV, 3 x 60 penalties", ElasticNetCV(l1_ratio=MIXTURES, n_jobs=jobs, **DESCENT)),
        "PLS": (
            f"PLSRegression, up to {MOST_COMPONENTS} components",
            GridSearchCV(PLSRegression(scale=False), grid, scoring="neg_mean_squared_error", cv=INNER_FOLDS),
        ),
        "least squares": ("LinearRegression", LinearRegression()),
    }


def run(
    X: Array,
    y: Array,
    *,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    jobs: int = -1,
    groups: list[str] | None = None,
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
    groups : list of str, default=None
        Groups of rows that folds keep together.
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
    splits = _splits(y, folds, repeats, seed, groups)
    inner = min(len(train) for train, _ in splits) * (INNER_FOLDS - 1) // INNER_FOLDS
    models = _models(seed, jobs, max(1, min(MOST_COMPONENTS, inner - 1, X.shape[1])))
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


def _splits(y: Array, folds: int, repeats: int, seed: int, groups: list[str] | None) -> list[Any]:
    """Rows to train and to test on, the same for all models."""
    from sklearn.model_selection import GroupKFold, RepeatedKFold

    if groups is None:
        return list(RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=seed).split(y))
    if len(set(groups)) < folds:
        raise TableError(f"{len(set(groups))} groups are too few for {folds} folds.")
    folders = [GroupKFold(folds, shuffle=True, random_state=seed + i) for i in range(repeats)]
    return [split for one in folders for split in one.split(y, y, groups)]


def _scores(
    X: Array, y: Array, models: dict[str, tuple[str, Any]], splits: list[Any], jobs: int, tell: terminal.Tell | None
) -> tuple[dict[str, Array], list[str]]:
    """Error, R2 and seconds of every model in every fold, (folds, 3), and notes about fits that went wrong."""
    from joblib import effective_n_jobs
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    found: dict[str, Array] = {}
    notes = []
    for done, (name, (_, model)) in enumerate(models.items()):
        if tell is not None:
            tell("comparing", done, len(models))
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(effective_n_jobs(jobs)):
            warnings.simplefilter("always")
            try:
                scored = cross_validate(
                    make_pipeline(StandardScaler(), model),
                    X,
                    y,
                    cv=splits,
                    scoring=["neg_root_mean_squared_error", "r2"],
                    error_score="raise" if name == OURS else math.nan,
                )
                found[name] = np.column_stack(
                    [-scored["test_neg_root_mean_squared_error"], scored["test_r2"], scored["fit_time"]]
                )
            except ValueError:  # errors of linear algebra among them: no fold could be fitted
                if name == OURS:
                    raise
                found[name] = np.full((len(splits), 3), math.nan)
        if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
            notes.append(f"{name} had not converged in some folds.")
        if failed := int(np.isnan(found[name][:, 0]).sum()):
            notes.append(f"{name} could not be fitted in {failed} of {len(splits)} folds.")
    if tell is not None:
        tell("comparing", len(models), len(models))
    return found, notes


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
    data: Path | None, how: fitting.Reading, *, folds: int, repeats: int, seed: int, jobs: int, command: str
) -> dict[str, Any]:
    """The comparison on a table, or on the embedded data, with what is known about the table."""
    if fitting.open_large(data, forced=False) is not None:
        raise TableError(f"{data} is too large to be loaded, which comparing needs; compare on a sample of its rows.")
    rows = fitting.training_data(data, how)
    with terminal.progress_bars() as tell:
        found = run(rows.X, rows.y, folds=folds, repeats=repeats, seed=seed, jobs=jobs, groups=rows.groups, tell=tell)
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
    lines += [f"  note: {escape_control(message)}" for message in (*data["messages"], *found["notes"])]
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
