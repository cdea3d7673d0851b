r"""Our ensemble beside what people fit today, on the same folds of a table.

Models are fitted on the rows outside a fold and predict those inside it; what a model tunes, it tunes inside. Baselines
stand behind a StandardScaler. Differences to the ensemble are taken fold by fold. Folds share most of their training
rows, so the plain standard error of a mean over folds is too small, the more so the more often folds are repeated: with
J folds of :math:`n_2` test and :math:`n_1` training rows and differences of variance :math:`s^2`, the one given is
:math:`\sqrt{(1/J + n_2/n_1)\,s^2}` (Nadeau and Bengio 2003; status: heuristic).
"""

from __future__ import annotations

import math
import textwrap
import warnings
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, RepeatedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from .. import AdaptiveOLSEnsembleRegressor
from .._report.formatting import heading_lines, listed, number, with_error
from .._trust import ORDINARY
from . import terminal
from .tables import TableError

Array = NDArray[np.float64]

OURS = "ensemble"
DESCENT: dict[str, Any] = {"alphas": 60, "max_iter": 1000, "tol": 1e-3}  # of coordinate descent
MOST_COMPONENTS, INNER_FOLDS = 20, 5
FEWEST_ROWS = 10  # half of them must do for five folds inside
BEYOND = 2  # standard errors from which on a difference is called one
FOLDS_SHARE_ROWS = (
    "Standard errors are those of the difference to the ensemble, fold by fold, made larger because folds share "
    "training rows."
)


def _models(ensemble: Any, jobs: int, components: int) -> dict[str, tuple[str, Any]]:
    """Name -> what it is, and one of it. Ours is the first."""
    pls = GridSearchCV(PLSRegression(scale=False), {"n_components": range(1, components + 1)}, cv=INNER_FOLDS,
                       scoring=_weighted("neg_mean_squared_error"))  # fmt: skip
    # of the target in units of its own: the penalties that are tried are otherwise all too large where it is large
    elastic_net = TransformedTargetRegressor(
        ElasticNetCV(l1_ratio=[0.2, 0.5, 0.8], n_jobs=jobs, **DESCENT).set_fit_request(sample_weight=True),
        transformer=StandardScaler(),
    )
    baselines: dict[str, tuple[str, Any]] = {
        "ridge": ("RidgeCV, 60 penalties", RidgeCV(np.logspace(-4, 6, 60))),
        "lasso": ("LassoCV, 60 penalties", LassoCV(n_jobs=jobs, **DESCENT)),
        "elastic net": ("ElasticNetCV, 3 x 60 penalties", elastic_net),
        "PLS": (f"PLSRegression, up to {MOST_COMPONENTS} components", pls),
        "least squares": ("LinearRegression", LinearRegression()),
        "mean": ("DummyRegressor, no columns", DummyRegressor()),
    }
    for name, (what, model) in baselines.items():
        fitted = model.set_fit_request(sample_weight=True) if hasattr(model, "set_fit_request") else model
        baselines[name] = what, make_pipeline(StandardScaler().set_fit_request(sample_weight=True), fitted)
    return {OURS: (type(ensemble).__name__, ensemble.set_fit_request(sample_weight=True)), **baselines}


def _weighted(scorer: str) -> Any:
    return get_scorer(scorer).set_score_request(sample_weight=True)


def run(
    X: Array,
    y: Array,
    *,
    ensemble: Any = None,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    jobs: int = -1,
    weight: Array | None = None,
    groups: list[str] | None = None,
    tell: terminal.Tell | None = None,
) -> dict[str, Any]:
    """Compare the models on arrays.

    Parameters
    ----------
    X, y : ndarray
        Columns and target.
    ensemble : estimator, default=None
        Ours, by default the one that ``olsen fit`` fits.
    folds, repeats : int
        Rows are divided into so many folds at random, so many times.
    seed : int
        Of the folds and of the ensemble's members.
    jobs : int
        Threads of one fit; fits come one after another, so that their seconds can be compared.
    weight : ndarray, default=None
        Of the rows, in fits (but PLS has no weights) and in errors.
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
    ensemble = clone(ensemble) if ensemble else AdaptiveOLSEnsembleRegressor(n_jobs=jobs, random_state=seed)
    given: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
    with config_context(enable_metadata_routing=True), threadpool_limits(effective_n_jobs(jobs)):
        models = _models(ensemble, jobs, max(1, min(MOST_COMPONENTS, inner - 1, X.shape[1])))
        scores, notes = {}, [] if weight is None else ["PLS is fitted without weights, which it does not take."]
        for done, (name, (_, model)) in enumerate(models.items()):
            if tell is not None:
                tell("comparing", done, len(models))
            scores[name] = _scores(name, model, X, y, given, splits, notes)
    larger = 1 / len(splits) + float(np.mean([len(test) / len(train) for train, test in splits]))
    lines = [_line(name, models[name][0], scores[name], scores[OURS], larger) for name in models]
    best = min((line for line in lines if line["rmse"] is not None), key=lambda line: line["rmse"])
    best["best"] = True
    return {"folds": folds, "repeats": repeats, "seed": seed, "models": lines, "best": best["name"],
            "verdict": _verdict(lines, best["name"]), "notes": notes}  # fmt: skip


def _check_rows(y: Array, folds: int) -> None:
    needed = max(FEWEST_ROWS, 2 * folds)
    if len(y) < needed:
        raise TableError(
            f"{len(y)} rows are too few for {folds} folds: {needed} are needed, two in every fold and {FEWEST_ROWS} in "
            f"all."
        )
    largest, spread = float(np.abs(y).max()), float(np.ptp(y))
    if not spread > 0:
        raise TableError("the target is the same in all rows; there is nothing to predict.")
    if largest > ORDINARY[1] or spread < ORDINARY[0]:
        raise TableError(
            f"the target goes up to {largest:.3g} and varies by {spread:.3g}, the squares of which leave the range of "
            f"floating-point numbers; change its unit."
        )


def _splits(y: Array, folds: int, repeats: int, seed: int, groups: list[str] | None) -> list[Any]:
    """Rows to train and to test on, the same for all models."""
    if groups is None:
        return list(RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=seed).split(y))
    if len(set(groups)) < folds:
        raise TableError(f"{len(set(groups))} groups are too few for {folds} folds.")
    folders = [GroupKFold(folds, shuffle=True, random_state=seed + i) for i in range(repeats)]
    return [split for one in folders for split in one.split(y, y, groups)]


def _scores(
    name: str, model: Any, X: Array, y: Array, given: dict[str, Any], splits: list[Any], notes: list[str]
) -> Array:
    """Error, R2 and seconds of a model in every fold, (folds, 3); fits that went wrong are noted."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            scored = cross_validate(
                model, X, y, cv=splits, params=given, error_score="raise" if name == OURS else math.nan,
                scoring={"rmse": _weighted("neg_root_mean_squared_error"), "r2": _weighted("r2")},
            )  # fmt: skip
            found = np.column_stack([-scored["test_rmse"], scored["test_r2"], scored["fit_time"]])
        except ValueError:  # errors of linear algebra among them: no fold could be fitted
            if name == OURS:
                raise
            found = np.full((len(splits), 3), math.nan)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        notes.append(f"{name} had not converged in some folds.")
    if failed := int(np.isnan(found[:, 0]).sum()):
        notes.append(f"{name} could not be fitted in {failed} of {len(splits)} folds.")
    return found


def _line(name: str, what: str, scores: Array, ours: Array, larger: float) -> dict[str, Any]:
    rmse, r2, seconds = scores.T
    line: dict[str, Any] = {"name": name, "what": what, "rmse": _finite(rmse.mean()), "r2": _finite(r2.mean())}
    for key, difference in zip(("rmse", "r2"), (scores - ours).T, strict=False):
        error = math.sqrt(larger * float(np.var(difference, ddof=1)))
        line[f"{key}_difference"] = None if name == OURS else _finite(difference.mean())
        line[f"{key}_standard_error"] = None if name == OURS else _finite(error)
    folds = {"rmse": rmse.tolist(), "r2": r2.tolist(), "seconds": seconds.tolist()}
    return {**line, "seconds": _finite(np.median(seconds)), "best": False, "folds": folds}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _verdict(lines: list[dict[str, Any]], best: str) -> str:
    """What can be said of the ensemble and the others, and what cannot."""
    named: dict[str, list[str]] = {"level": [], "worse": [], "better": []}
    for line in lines:
        difference, error = line["rmse_difference"], line["rmse_standard_error"]
        if difference is not None and error is not None:
            level = abs(difference) <= BEYOND * error
            named["level" if level else "worse" if difference > 0 else "better"].append(line["name"])
    errors = f"{BEYOND} standard errors"
    sentences = {
        "level": f"Within {errors} of the ensemble, so that these folds cannot tell them apart from it",
        "worse": f"Worse than the ensemble by more than {errors}",
        "better": f"Better than the ensemble by more than {errors}",
    }
    parts = [f"{sentences[key]}: {listed(names)}." for key, names in named.items() if names]
    return " ".join([f"The smallest mean error: {best}.", *parts])


def as_text(found: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    repeated = f", repeated {found['repeats']} times" if found["repeats"] > 1 else ""
    how = f"{found['folds']}-fold cross-validation{repeated}, seed {found['seed']}; * has the least mean error"
    lines = [*heading_lines(found["data"]), "", how,
             "", f"  {'':<14}{'error':>9}{'to ensemble':>20}{'R2':>9}{'to ensemble':>20}{'seconds':>9}"]  # fmt: skip
    for line in found["models"]:
        to_error = with_error(line["rmse_difference"], line["rmse_standard_error"])
        to_r2 = with_error(line["r2_difference"], line["r2_standard_error"])
        lines.append(
            f"{'*' if line['best'] else ' '} {line['name']:<14}{number(line['rmse']):>9}{to_error:>20}"
            f"{number(line['r2'], '.3f'):>9}{to_r2:>20}{number(line['seconds'], '.2f'):>9}"
        )
    return "\n".join([*lines, "", *(textwrap.fill(text, 88) for text in (found["verdict"], FOLDS_SHARE_ROWS))])
