r"""Compare the ensemble with other linear models on the same folds of a table.

A model is fitted and tuned on the training rows of a fold and predicts its test rows. Baselines are
fitted on standardised columns. Differences to the ensemble are computed fold by fold. Folds have
most of their training rows in common, so the plain standard error of a mean over folds is too
small, the more so the more often folds are repeated: with J folds of :math:`n_2` test and
:math:`n_1` training rows and differences of variance :math:`s^2`, the reported standard error is
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
from .._tables.problems import TableError
from . import terminal

Array = NDArray[np.float64]

OURS = "olsen"
MAX_PLS_COMPONENTS = 20
N_INNER_FOLDS = 5
STANDARD_ERROR_NOTE = (
    "Standard errors are those of the difference to olsen, fold by fold, made larger because"
    " folds share training rows."
)


def _models(ensemble: Any, jobs: int, n_components: int) -> dict[str, tuple[str, Any]]:
    """Models to compare: name -> (description, estimator); the ensemble comes first."""
    pls = GridSearchCV(
        PLSRegression(scale=False),
        {"n_components": range(1, n_components + 1)},
        cv=N_INNER_FOLDS,
        scoring=_weighted("neg_mean_squared_error"),
    )
    descent: dict[str, Any] = {"alphas": 60, "max_iter": 1000, "tol": 1e-3}
    # the target is standardised: otherwise, for a target of large magnitude, all penalties on the
    # grid are too large
    elastic_net = TransformedTargetRegressor(
        ElasticNetCV(l1_ratio=[0.2, 0.5, 0.8], n_jobs=jobs, **descent).set_fit_request(
            sample_weight=True
        ),
        transformer=StandardScaler(),
    )
    baselines: dict[str, tuple[str, Any]] = {
        "ridge": ("RidgeCV, 60 penalties", RidgeCV(np.logspace(-4, 6, 60))),
        "lasso": ("LassoCV, 60 penalties", LassoCV(n_jobs=jobs, **descent)),
        "elastic net": ("ElasticNetCV, 3 x 60 penalties", elastic_net),
        "PLS": (f"PLSRegression, up to {MAX_PLS_COMPONENTS} components", pls),
        "least squares": ("LinearRegression", LinearRegression()),
        "mean": ("DummyRegressor, no columns", DummyRegressor()),
    }
    for name, (description, model) in baselines.items():
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        if hasattr(model, "set_fit_request"):
            model = model.set_fit_request(sample_weight=True)
        baselines[name] = description, make_pipeline(scaler, model)
    return {
        OURS: (type(ensemble).__name__, ensemble.set_fit_request(sample_weight=True)),
        **baselines,
    }


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
    groups: NDArray[Any] | None = None,
    tell: terminal.Tell | None = None,
) -> dict[str, Any]:
    """Compare the models on arrays.

    Parameters
    ----------
    X, y : ndarray
        Columns and target.
    ensemble : estimator, default=None
        Ensemble to compare, by default the model of ``olsen fit``.
    folds, repeats : int
        Number of folds, and number of random divisions of the rows into folds.
    seed : int
        Random seed of the folds and of the ensemble's members.
    jobs : int
        Threads of one fit; fits run one after another, so that their times can be compared.
    weight : ndarray, default=None
        Row weights, for fits (except of PLS, which takes no weights) and for errors.
    groups : ndarray of str, default=None
        Groups of rows that folds keep together.
    tell : callable, default=None
        Receives the name of the task, the amount done and the total amount.

    Returns
    -------
    dict
        ``models``, a list of dicts with ``rmse`` and ``r2`` (means over folds), ``rmse_difference``
        and ``r2_difference`` to the ensemble with their ``..._standard_error``, median ``seconds``
        of a fit, whether it is the ``best``, and its ``folds``; ``best``, ``verdict``, ``notes``
        and the settings.
    """
    _check_rows(y, folds)
    splits = _splits(y, folds, repeats, seed, groups)
    smallest_training_set = min(len(train) for train, _ in splits)
    inner_training_rows = smallest_training_set * (N_INNER_FOLDS - 1) // N_INNER_FOLDS
    n_components = max(1, min(MAX_PLS_COMPONENTS, inner_training_rows - 1, X.shape[1]))
    ensemble = (
        clone(ensemble)
        if ensemble
        else AdaptiveOLSEnsembleRegressor(n_jobs=jobs, random_state=seed)
    )
    fit_params: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
    notes = [] if weight is None else ["PLS is fitted without weights, which it does not take."]
    scores = {}
    with config_context(enable_metadata_routing=True), threadpool_limits(effective_n_jobs(jobs)):
        models = _models(ensemble, jobs, n_components)
        for n_done, (name, (_, model)) in enumerate(models.items()):
            if tell is not None:
                tell("comparing", n_done, len(models))
            scores[name] = _scores(
                name, model, X, y, fit_params=fit_params, splits=splits, notes=notes
            )
    test_over_training = float(np.mean([len(test) / len(train) for train, test in splits]))
    variance_factor = 1 / len(splits) + test_over_training
    lines = [
        _line(
            name,
            models[name][0],
            scores[name],
            ensemble_scores=scores[OURS],
            variance_factor=variance_factor,
        )
        for name in models
    ]
    best = min((line for line in lines if line["rmse"] is not None), key=lambda line: line["rmse"])
    best["best"] = True
    return {
        "folds": folds,
        "repeats": repeats,
        "seed": seed,
        "models": lines,
        "best": best["name"],
        "verdict": _verdict(lines, best["name"]),
        "notes": notes,
    }


def _check_rows(y: Array, folds: int) -> None:
    min_rows = max(10, 2 * folds)  # half of ten rows suffice for five inner folds
    if len(y) < min_rows:
        raise TableError(
            f"{len(y)} rows are too few for {folds} folds: {min_rows} are needed, two in every fold"
            f" and 10 in all."
        )
    if not np.ptp(y) > 0:
        raise TableError("the target is the same in all rows; there is nothing to predict.")


def _splits(y: Array, folds: int, repeats: int, seed: int, groups: Any) -> list[Any]:
    """Training and test rows of each fold, the same for all models."""
    if groups is None:
        return list(RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=seed).split(y))
    n_groups = len(set(groups))
    if n_groups < folds:
        raise TableError(f"{n_groups} groups are too few for {folds} folds.")
    splitters = [GroupKFold(folds, shuffle=True, random_state=seed + i) for i in range(repeats)]
    return [split for splitter in splitters for split in splitter.split(y, y, groups)]


def _scores(
    name: str,
    model: Any,
    X: Array,
    y: Array,
    *,
    fit_params: dict[str, Any],
    splits: list[Any],
    notes: list[str],
) -> Array:
    """RMSE, R² and seconds of a model in each fold, (n_folds, 3); failed fits add a note."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = cross_validate(
                model,
                X,
                y,
                cv=splits,
                params=fit_params,
                error_score="raise" if name == OURS else math.nan,
                scoring={"rmse": _weighted("neg_root_mean_squared_error"), "r2": _weighted("r2")},
            )
            scores = np.column_stack(
                [-results["test_rmse"], results["test_r2"], results["fit_time"]]
            )
        except ValueError:  # includes errors of linear algebra: no fold could be fitted
            if name == OURS:
                raise
            scores = np.full((len(splits), 3), math.nan)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        notes.append(f"{name} had not converged in some folds.")
    if n_failed := int(np.isnan(scores[:, 0]).sum()):
        notes.append(f"{name} could not be fitted in {n_failed} of {len(splits)} folds.")
    return scores


def _line(
    name: str, description: str, scores: Array, *, ensemble_scores: Array, variance_factor: float
) -> dict[str, Any]:
    """Means of a model over folds, and the differences to the ensemble with standard errors."""
    line: dict[str, Any] = {"name": name, "what": description}
    differences = scores - ensemble_scores
    standard_errors = np.sqrt(variance_factor * np.var(differences, axis=0, ddof=1))
    for j, key in enumerate(("rmse", "r2")):
        line[key] = _finite(scores[:, j].mean())
        is_ours = name == OURS
        line[f"{key}_difference"] = None if is_ours else _finite(differences[:, j].mean())
        line[f"{key}_standard_error"] = None if is_ours else _finite(standard_errors[j])
    line["seconds"] = _finite(np.median(scores[:, 2]))
    line["best"] = False
    line["folds"] = dict(zip(("rmse", "r2", "seconds"), scores.T.tolist(), strict=True))
    return line


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _verdict(lines: list[dict[str, Any]], best: str) -> str:
    """Summarise which models are better or worse than the ensemble by more than two standard
    errors, and which cannot be distinguished from it.
    """
    level: list[str] = []
    worse: list[str] = []
    better: list[str] = []
    for line in lines:
        difference = line["rmse_difference"]
        if difference is None:
            continue
        if abs(difference) <= 2 * line["rmse_standard_error"]:
            level.append(line["name"])
        else:
            (worse if difference > 0 else better).append(line["name"])
    verdict = f"The smallest mean error: {best}."
    if level:
        verdict += (
            " Within 2 standard errors of olsen, and not distinguished from it by these"
            f" folds: {listed(level)}."
        )
    if worse:
        verdict += f" Worse than olsen by more than 2 standard errors: {listed(worse)}."
    if better:
        verdict += f" Better than olsen by more than 2 standard errors: {listed(better)}."
    return verdict


def as_text(comparison: dict[str, Any]) -> str:
    """Format the comparison for a terminal."""
    repeated = f", repeated {comparison['repeats']} times" if comparison["repeats"] > 1 else ""
    folds = f"{comparison['folds']}-fold cross-validation{repeated}"
    lines = [
        *heading_lines(comparison["data"]),
        "",
        f"{folds}, seed {comparison['seed']}; * has the smallest mean error",
        "",
        f"  {'':<14}{'error':>9}{'to olsen':>20}{'R²':>9}{'to olsen':>20}{'seconds':>9}",
    ]
    for line in comparison["models"]:
        rmse_difference = with_error(line["rmse_difference"], line["rmse_standard_error"])
        r2_difference = with_error(line["r2_difference"], line["r2_standard_error"])
        lines.append(
            f"{'*' if line['best'] else ' '}"
            f" {line['name']:<14}{number(line['rmse']):>9}{rmse_difference:>20}"
            f"{number(line['r2'], '.3f'):>9}{r2_difference:>20}{number(line['seconds'], '.3f'):>9}"
        )
    footnotes = [textwrap.fill(text, 88) for text in (comparison["verdict"], STANDARD_ERROR_NOTE)]
    return "\n".join([*lines, "", *footnotes])
