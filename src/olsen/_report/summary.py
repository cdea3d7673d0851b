"""The summary of a fit as a dict of plain types: for the terminal, for ``--json``, and for the HTML page.

R2 compares the error of the ensemble with that of the mean of the target, judged on rows left out too. Other models
stand beside it where they were compared (``--compare``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution import versions
from .._moments.moments import Moments
from ..subsets import resolve_size
from .formatting import CRITERIA, effect_lines, escape_control, heading_lines, interval_text, number, percent, size_of

Array = NDArray[np.float64]

COVERAGE = 0.9
FEW_ROWS = 30  # an error from so many has a standard error of an eighth of it
WEAK = 0.8  # weight of the null model from which on there is hardly a signal
MOST_POINTS = 2000  # shown in the scatter plots; more would only make the file large
MOST_COLUMNS = 5000  # that are listed with their coefficients
IN_TABLE = {"error of prediction", "R² of left-out rows", "estimated by", "caution"}  # of errors, and notes above it


def summarise(
    model: Any,
    X: Array,
    y: Array,
    effects: Any,
    *,
    left_out: Array | None = None,
    weight: Array | None = None,
    groups: tuple[str, list[Any]] | None = None,
    compared: list[dict[str, Any]] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """Collect the summary of a fitted tuned ensemble with one target.

    Parameters
    ----------
    model : OLSEnsembleRegressorCV or AdaptiveOLSEnsembleRegressor
        Fitted on `X`, `y`.
    X, y : ndarray
        Training data.
    effects : Effects
        Of the columns of `X` and of the input columns that they were made of.
    left_out : ndarray, default=None
        Cross-validated predictions of the rows. None: those of the model, if it has some.
    weight : ndarray, default=None
        Of the rows, positive.
    groups : tuple, default=None
        Name of the groups that were left out, and the rows of each fold.
    compared : list of dict, default=None
        Errors of the ensemble and of other models that were compared on folds of their own.
    **about : dict
        ``data_name``, ``target`` (names to display), ``messages`` (notes about the table), ``seed`` of the fit, and the
        ``command`` that made it.

    Returns
    -------
    dict
        ``data``, ``model``, ``errors``, ``effects`` (the largest, of input columns), ``columns`` (those of the
        ensemble, all or many), ``choice``, ``curve``, ``predictions``, ``command``, ``versions``.
    """
    known = np.ravel(model.cv_prediction_) if left_out is None else left_out
    were_left_out = len(known) == len(X)
    predicted = known if were_left_out else _fitted(model, X)
    weight = np.ones(len(y)) if weight is None else weight
    fold = np.arange(len(y))
    note = CRITERIA[model.criterion_]
    if groups is not None:
        for number_of_fold, test in enumerate(groups[1]):
            fold[test] = number_of_fold
        note = f"k-fold cross-validation, whole groups of {groups[0]!r} left out"
    sums = np.bincount(fold, weight).astype(float)
    means = np.bincount(fold, weight * y) / sums
    inside = float(weight @ (y - means[fold]) ** 2)
    errors = compared or _errors(model, _error_of_mean(sums, means, inside), note)
    points = {**_thinned(y, predicted), "left_out": were_left_out}
    if model._result().folds is not None:  # in which the model was chosen: they know what new rows meet
        half = float(np.mean(np.diff(model._cv_plus().interval(X[:MOST_POINTS], COVERAGE)))) / 2
    else:
        half = half_width(np.abs(y - predicted)[np.isfinite(predicted)], COVERAGE)
    return _collect(model, effects, len(y), errors, points, half, **about)


def summarise_folds(model: Any, folds: list[Moments], X: Array, y: Array, effects: Any, **about: Any) -> dict[str, Any]:
    """The same for a fit in blocks, from the moments of its folds and a sample of its rows."""
    whole = Moments.merge_all(folds)
    points = {**_thinned(y, _fitted(model, X)), "left_out": False}
    sums, means = np.array([[fold.weight, fold.mean_y[0]] for fold in folds]).T
    mean = _error_of_mean(sums, means, sum(float(fold.yy[0]) for fold in folds))
    if model.criterion_ != "kfold":  # few rows were loaded and left out one by one, so that of the mean they are, too
        mean = float(whole.yy[0]) / whole.n_rows * (whole.n_rows / (whole.n_rows - 1)) ** 2
    errors = _errors(model, mean, CRITERIA[model.criterion_])
    half = NormalDist().inv_cdf((1 + COVERAGE) / 2) * math.sqrt(-model.best_score_)
    if model._result().folds is not None:
        half = float(np.mean(np.diff(model._cv_plus().interval(X, COVERAGE)))) / 2
    return _collect(model, effects, whole.n_rows, errors, points, half, out_of_core=True, **about)


def _error_of_mean(weights: Array, means: Array, squares: float) -> float:
    """Mean squared error of the mean of the other folds.

    Of each fold there are the sum of the weights and the mean; of all, the squares about the means of their folds.
    """
    total = weights.sum()
    others = (weights @ means - weights * means) / (total - weights)
    return float(squares + weights @ (means - others) ** 2) / float(total)


def caution(n_rows: int, shares: Any = ()) -> list[str]:
    """What to say where rows are so few that the error itself is hardly known, or hold next to no signal."""
    notes = []
    if n_rows < FEW_ROWS:
        uncertain = f"the error of prediction is itself uncertain by {math.sqrt(0.5 / n_rows):.0%} or so"
        notes.append(f"{n_rows} rows are few: {uncertain}.")
    if isinstance(shares, dict) and shares.get("null", 0.0) > WEAK:
        notes.append("left-out rows support hardly any signal: predictions stay close to the mean of the target.")
    return notes


def _fitted(model: Any, X: Array) -> Array:
    linear = model.to_linear_regression()  # on the host, whatever the model was fitted on
    return np.asarray(X @ np.ravel(linear.coef_) + np.ravel(linear.intercept_)[0])


def _collect(
    model: Any, effects: Any, n_rows: int, errors: list[dict[str, Any]], points: dict[str, Any], half: float, *,
    data_name: str, target: str, messages: list[str], seed: int, command: str, out_of_core: bool = False,
) -> dict[str, Any]:  # fmt: skip
    coef, effect = np.ravel(model.to_linear_regression().coef_), np.ravel(effects.by_feature[0])
    adaptive = hasattr(model, "scheme_weights_")
    frequency = model.selection_frequency_ if adaptive else np.empty(0)
    mean_columns = float(model.inclusion_.sum())
    listed = np.sort(np.argsort(-np.abs(effect), kind="stable")[:MOST_COLUMNS])
    return {
        "data": {"name": data_name, "rows": n_rows, "columns": len(coef), "target": target,
                 "messages": messages + caution(n_rows, model.scheme_weights_ if adaptive else ()),
                 "out_of_core": out_of_core},
        "model": {"members": None if model.n_estimators_ == math.inf else int(model.n_estimators_),
                  "kind": "adaptive" if adaptive else "ensemble", "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_),
                  "criterion": model.criterion_, "mean_columns_per_member": mean_columns,
                  "schemes": dict(model.scheme_weights_) if adaptive else None,
                  "selected": int(model.selected_.sum()) if adaptive else None},
        "errors": errors,
        "facts": {name: fact for name, fact in facts(model) if name not in IN_TABLE} | {"seed": f"{seed}"},
        "interval": {"coverage": COVERAGE, "half_width": half if math.isfinite(half) else None},
        "effects": effects.largest(),
        "columns": {"name": [effects.features[j].name for j in listed], "coefficient": coef[listed].tolist(),
                    "effect": effect[listed].tolist(), "drawn": model.inclusion_[listed].tolist(),
                    "kept": frequency[listed].tolist() if len(frequency) else None},
        "choice": _schemes(model) if adaptive else None,
        "curve": None if adaptive else _curve(model),
        "predictions": points,
        "command": command,
        "versions": versions(),
    }  # fmt: skip


def half_width(errors: Array, coverage: float) -> float:
    """Half the width of intervals that hold new observations with this probability (the plain jackknife).

    The order statistic number ceil(coverage (n + 1)) of the absolute errors of left-out rows; infinite with too few.
    """
    place = math.ceil(coverage * (len(errors) + 1))
    return float(np.sort(errors)[place - 1]) if place <= len(errors) else math.inf


def _errors(model: Any, mean: float, note: str) -> list[dict[str, Any]]:
    """The error of the ensemble, beside `mean` that of the mean of the target; `note` says of which rows."""
    members = model.n_estimators_
    name = "ensemble" if members == math.inf else f"ensemble, {members} members"
    lines = [(name, -float(model.best_score_), note)]
    if members < math.inf and "mean_test_score_infinity" in model.cv_results_:
        infinite = -float(model.cv_results_["mean_test_score_infinity"][model.best_index_])
        lines.append(("ensemble, infinitely many", infinite, "limit of more and more members of this size"))
    return [
        {"name": name, "note": note, "rmse": math.sqrt(mse) if math.isfinite(mse) else None,
         "r2": 1 - mse / mean if math.isfinite(mse) and mean > 0 else None}
        for name, mse, note in lines
    ]  # fmt: skip


def _rmse(mse: Array, standard_error: Array) -> tuple[Array, Array]:
    """Roots of mean squared errors, and their standard errors by the delta method."""
    rmse = np.sqrt(np.maximum(mse, 0.0))  # below zero in a damaged file
    return rmse, standard_error / (2 * np.maximum(rmse, 1e-300))


def _curve(model: Any) -> dict[str, Any]:
    """Errors of every candidate size."""
    results = model.cv_results_
    rmse, error = _rmse(-results["mean_test_score"], results["std_test_score"])
    infinite = np.sqrt(np.maximum(-results["mean_test_score_infinity"], 0.0))
    return {
        "size": [float(size) for size in results["param_max_features"]],
        "rmse": rmse.tolist(),
        "rmse_infinite": infinite.tolist(),
        "standard_error": error.tolist(),
        "chosen": float(model.max_features_),
    }


def _schemes(model: Any) -> list[dict[str, Any]]:
    """Weight and error of every scheme, and of the mixture, which comes last."""
    results = model.cv_results_
    rmse, error = _rmse(-results["mean_test_score"], results["std_test_score"])
    return [
        {"scheme": str(name), "weight": float(weight), "rmse": float(r), "standard_error": float(e)}
        for name, weight, r, e in zip(results["param_scheme"], results["weight"], rmse, error, strict=True)
    ]


def _thinned(y: Array, predicted: Array) -> dict[str, list[float]]:
    """Evenly spaced rows if there are too many to draw."""
    keep = np.flatnonzero(np.isfinite(predicted))  # rows that no fold leaves out have no prediction
    if len(keep) > MOST_POINTS:
        keep = keep[np.linspace(0, len(keep) - 1, MOST_POINTS).astype(int)]
    return {"observed": y[keep].tolist(), "predicted": predicted[keep].tolist()}


def as_text(summary: dict[str, Any]) -> str:
    """The summary for a terminal; names of columns are shortened, in the dict they are whole."""
    data = summary["data"]
    lines = [*heading_lines(data), "", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{number(e['rmse']):>10}{number(e['r2'], '.3f'):>8}{note}")
    lines.append(f"  {interval_text(summary['interval'])}")
    lines += ["", *(f"  {name:<21}{escape_control(fact)}" for name, fact in summary["facts"].items()), ""]
    return "\n".join([*lines, *effect_lines(summary["effects"])])


def facts(model: Any) -> Iterator[tuple[str, str]]:
    """What a fit came to, in words. Only what is noted, so that models of other versions can be shown too."""
    design, noted = model._result().design, vars(model)
    yield "members", _members_text(model)
    yield "columns in a member", size_of(float(np.sum(model.inclusion_)), model.n_features_in_)
    if not design.all_rows:
        yield "rows in a member", size_of(resolve_size(design.max_samples, design.n_rows, "max_samples"), design.n_rows)
    if "best_score_" in noted:
        yield "error of prediction", _error_text(model)
        yield from _explained(model)
        yield "estimated by", CRITERIA.get(model.criterion_, str(model.criterion_))
        yield from (("caution", text) for text in caution(design.n_rows, getattr(model, "scheme_weights_", ())))
    if "scheme_weights_" in noted:
        several = isinstance(model.scheme_weights_, list)  # of several targets
        for t, weights in enumerate(model.scheme_weights_ if several else [model.scheme_weights_]):
            schemes = sorted(weights.items(), key=lambda scheme: -scheme[1])
            name = f"sampling schemes, target {t}" if several else "sampling schemes"
            yield name, ", ".join(f"{scheme} {percent(share)}" for scheme, share in schemes)
    yield "scale", ", ".join(f"{scale:.4g}" for scale in np.atleast_1d(model.scale_))
    if noted.get("stacking_advantage_") is not None:
        kind = "equal" if np.ptp(model.weights_) == 0 else "stacked"
        yield "weights", f"{kind}; stacking is better by {model.stacking_advantage_:.2g} s.e."
    again = int(model.n_fallbacks_)
    yield "solver", f"{model.solver_}" + (f"; {again} members solved again from the data" if again else "")


def _members_text(model: Any) -> str:
    """How many members there are; uniform ones have no closed form, so that some of them are drawn."""
    if model.n_estimators_ < math.inf:
        return f"{model.n_estimators_}"
    weights = getattr(model, "scheme_weights_", {})
    uniform = any("uniform" in of_target for of_target in (weights if isinstance(weights, list) else [weights]))
    return "infinitely many, in closed form" + "; uniform ones drawn" * uniform


def prediction_error(model: Any) -> dict[str, float]:
    """Root of the mean squared error that tuning found, and its standard error (delta method)."""
    rmse = math.sqrt(max(-float(model.best_score_), 0.0))
    spread = float(model.cv_results_["std_test_score"][model.best_index_])
    return {"rmse": rmse, "standard_error": spread / (2 * rmse) if rmse > 0 else math.nan}


def _error_text(model: Any) -> str:
    error, spread = prediction_error(model).values()
    if math.isfinite(spread):
        return f"{error:.4g} ± {spread:.2g} (root mean squared, ± standard error)"
    return f"{error:.4g} (root mean squared)"


def _explained(model: Any) -> Iterator[tuple[str, str]]:
    """Share of the variance of the targets that left-out predictions explain, if the rows are there.

    The mean is left out too: it is compared with the mean of the other rows.
    """
    rows = model._result().rows
    if rows is None:
        return
    share = rows.weights / rows.total_weight
    away = (rows.Y - share @ rows.Y) / (1 - share)[:, None]
    spread = float(np.mean(share @ away**2))
    if spread > 0:
        yield "R² of left-out rows", f"{1 + float(model.best_score_) / spread:.3f}"
