"""The summary of a fit as a dict of plain types: for the terminal, for ``--json``, and for the HTML page."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._engines import NeedsRows
from .._execution.extras import versions
from .._moments import Moments, from_data
from .baselines import Baselines, fold_errors, leave_one_out_errors
from .formatting import columns_of, counted, escape_control, number, padded, percent, shortened, size_of_members

__all__ = ["as_text", "left_out_predictions", "sampled_errors", "summarise", "summarise_folds"]

Array = NDArray[np.float64]

MOST_POINTS = 2000  # shown in the scatter plots; more would only make the file large
MOST_COEFFICIENTS = 15
MOST_COLUMNS = 5000  # that are listed with their coefficients
MOST_OPERATIONS, REFITS = 2e10, 300  # for standard errors of effects: thirty fits of some ten factorisations
LONGEST_FILE_NAME = 200
LONGEST_NAME = 36  # of a column in a table on a terminal
DRAWN = {
    "uniform": "with equal probability",
    "ridge": "so that their mean is ridge regression",
    "mixed": "by sampling schemes in shares: {schemes}",
}


def summarise(
    model: Any,
    X: Array,
    y: Array,
    names: list[str],
    *,
    left_out: Array | None = None,
    weight: Array | None = None,
    groups: tuple[str, list[Any]] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """Collect the summary of a fitted `OLSEnsembleRegressorCV` with one target.

    Parameters
    ----------
    model : OLSEnsembleRegressorCV
        Fitted on `X`, `y`.
    X, y : ndarray
        Training data.
    names : list of str
        Names of the columns of `X`.
    left_out : ndarray, default=None
        Cross-validated predictions of the rows. None: those of the model, if it has some.
    weight : ndarray, default=None
        Of the rows; the baselines have them too.
    groups : tuple, default=None
        Name of the groups that were left out, and the rows of each fold; the baselines are compared on the same ones.
    **about : dict
        ``data_name``, ``target`` (names to display), ``messages`` (notes about the table), ``seed`` of the fit, the
        ``command`` that made it, and whether to have ``standard_errors`` of effects, which take thirty fits.

    Returns
    -------
    dict
        ``data``, ``model``, ``errors``, ``coefficients`` (the largest), ``columns`` (all, or many), ``curve``,
        ``predictions``, ``command``, ``versions``.
    """
    predicted, were_left_out = left_out_predictions(model, X, left_out)
    weight = np.ones(len(y)) if weight is None else weight
    kept = weight > 0
    if groups is not None:
        folds = [np.asarray(rows)[kept[rows]] for rows in groups[1]]
        others = fold_errors([from_data(X[f], y[f, None], weight[f], centre=True) for f in folds if len(f)])
        note = f"whole groups of {groups[0]!r} left out"
    else:
        others = leave_one_out_errors(X[kept], y[kept], weight[kept])
        note = "k-fold cross-validation, baselines leave-one-out" if model.criterion_ == "kfold" else ""
    points = {**_thinned(y, predicted), "left_out": were_left_out}
    return _collect(model, names, len(y), X.std(axis=0), _errors(model, others, note), points, True,
                    groups=None if groups is None else groups[0], **about)  # fmt: skip


def summarise_folds(
    model: Any, folds: list[Moments], X: Array, y: Array, names: list[str], **about: Any
) -> dict[str, Any]:
    """The same for a fit in blocks, from the moments of its folds and a sample of its rows."""
    whole = reduce(lambda a, b: a.merge(b), folds)
    points = {**_thinned(y, _fitted(model, X)), "left_out": False}
    spread = np.sqrt(np.diagonal(whole.G) / whole.weight)
    errors = _errors(model, fold_errors(folds), "")
    return _collect(model, names, whole.n_rows, spread, errors, points, False, out_of_core=True, **about)


def left_out_predictions(model: Any, X: Array, known: Array | None = None) -> tuple[Array, bool]:
    """Predictions of the training rows, and whether each row was left out; with very many rows it hardly matters."""
    known = np.ravel(model.loo_prediction_) if known is None else known
    return (known, True) if len(known) == len(X) else (_fitted(model, X), False)


def sampled_errors(model: Any, folds: list[Moments], X: Array, y: Array) -> Array:
    """Absolute residuals of sampled rows, scaled by the ratio of the cross-validated error to that of all rows.

    The sample gives the shape, all rows give the width: fitted values lie closer to the rows than predictions do.
    """
    whole = reduce(lambda a, b: a.merge(b), folds)
    b = np.ravel(model.coef_)
    fitted = (whole.yy[0] - 2 * b @ whole.C[:, 0] + b @ whole.G @ b) / whole.weight
    ratio = -model.best_score_ / fitted if fitted > 0 else 1.0
    return np.asarray(np.abs(y - _fitted(model, X)) * np.sqrt(max(ratio, 1.0)))


def _fitted(model: Any, X: Array) -> Array:
    linear = model.to_linear_regression()  # on the host, whatever the model was fitted on
    return np.asarray(X @ np.ravel(linear.coef_) + np.ravel(linear.intercept_)[0])


def _collect(
    model: Any,
    names: list[str],
    n_rows: int,
    spread: Array,
    errors: list[dict[str, Any]],
    points: dict[str, Any],
    has_rows: bool,
    *,
    out_of_core: bool = False,
    groups: str | None = None,
    data_name: str,
    target: str,
    messages: list[str],
    seed: int,
    command: str,
    standard_errors: bool = True,
) -> dict[str, Any]:
    size, coef = int(model.max_features_), np.ravel(model.to_linear_regression().coef_)
    effect = coef * spread
    largest = np.argsort(-np.abs(effect), kind="stable")
    shown, listed = largest[:MOST_COEFFICIENTS], np.sort(largest[:MOST_COLUMNS])
    operations = REFITS * n_rows * len(coef) * min(n_rows, len(coef))
    worth_it = standard_errors and has_rows and operations <= MOST_OPERATIONS
    uncertain = _coef_std(model) * spread if worth_it else np.full(len(coef), np.nan)
    known = np.isfinite(uncertain) & (effect != 0)  # of a column that is constant, or in no member, nothing varies
    kept = model.selection_frequency_
    return {
        "data": {"name": data_name, "rows": n_rows, "columns": len(names), "target": target, "messages": messages,
                 "out_of_core": out_of_core, "groups": groups},
        "model": {"members": None if model.n_estimators_ == math.inf else int(model.n_estimators_),
                  "columns_per_member": size, "share": float(model.feature_ratio_), "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_),
                  "criterion": model.criterion_, "inclusion": model.inclusion_kind_,
                  "mean_columns_per_member": float(model.inclusion_.sum()), "schemes": dict(model.inclusion_shares_),
                  "kept": int(model.selected_.sum()) if len(model.selected_) else None},
        "errors": errors,
        "coefficients": [
            {"name": names[j], "coefficient": float(coef[j]), "effect": float(effect[j]),
             "drawn": float(model.inclusion_[j]), "standard_error": float(uncertain[j]) if known[j] else None}
            for j in shown
        ],
        "columns": {"name": [names[j] for j in listed], "coefficient": coef[listed].tolist(),
                    "effect": effect[listed].tolist(), "drawn": model.inclusion_[listed].tolist(),
                    "kept": kept[listed].tolist() if len(kept) else None},
        "curve": _curve(model, size),
        "predictions": points,
        "command": command,
        "versions": versions(),
    }  # fmt: skip


def _coef_std(model: Any) -> Array:
    """Standard errors, NaN where they need training rows that are gone."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ravel(model.coef_std_)
    except NeedsRows:
        return np.full(model.n_features_in_, np.nan)


def _errors(model: Any, others: Baselines, note: str) -> list[dict[str, Any]]:
    """Errors of the ensemble and of the baselines; `note` says of which rows."""
    ours, infinite = -float(model.best_score_), float(model.cv_results_["mse_infinity"][model.best_index_])
    ridge = "too large to compare" if others.ridge is None else "standardised columns, best penalty "
    members = model.n_estimators_
    many = [("ensemble, infinitely many", infinite, "limit of more and more members of this size")]
    lines = [
        ("ensemble" if members == math.inf else f"ensemble, {members} members", ours, note),
        *(many if model.inclusion_kind_ == "uniform" else []),
        ("ridge", others.ridge, ridge if others.penalty is None else f"{ridge}{others.penalty:.3g}"),
        ("least squares", others.least_squares, "" if others.least_squares is not None else "too many columns"),
        ("mean of the target", others.mean, ""),
    ]
    return [
        {"name": name, "note": note, "rmse": None, "r2": None} if mse is None or not math.isfinite(mse) else
        {"name": name, "note": note, "rmse": math.sqrt(mse), "r2": 1 - mse / others.mean if others.mean > 0 else None}
        for name, mse, note in lines
    ]  # fmt: skip


def _curve(model: Any, size: int) -> dict[str, Any]:
    results = model.cv_results_
    uniform = ~results["mixture"]
    rmse = np.sqrt(results["mse"])
    error = results["standard_error"] / (2 * np.maximum(rmse, 1e-300))  # delta method
    mixed, at = model.inclusion_kind_ != "uniform", model.best_index_
    return {
        "size": [int(m) for m in results["size"][uniform]],
        "rmse": rmse[uniform].tolist(),
        "rmse_infinite": np.sqrt(results["mse_infinity"][uniform]).tolist(),
        "standard_error": error[uniform].tolist(),
        "chosen": size,
        "mixture": {"rmse": float(rmse[at]), "standard_error": float(error[at])} if mixed else None,
    }


def _thinned(y: Array, predicted: Array) -> dict[str, list[float]]:
    """Evenly spaced rows if there are too many to draw."""
    keep = np.flatnonzero(np.isfinite(predicted))  # rows of weight zero are never left out
    if len(keep) > MOST_POINTS:
        keep = keep[np.linspace(0, len(keep) - 1, MOST_POINTS).astype(int)]
    return {"observed": y[keep].tolist(), "predicted": predicted[keep].tolist()}


def as_text(summary: dict[str, Any]) -> str:
    """The summary for a terminal; names of columns are shortened, in the dict they are whole."""
    data, model = summary["data"], summary["model"]
    name, target = shortened(data["name"], LONGEST_FILE_NAME), shortened(data["target"])
    lines = [f"{name}: {counted(data['rows'], 'row')}, {counted(data['columns'], 'column')}, target {target}"]
    lines += [f"  note: {escape_control(message)}" for message in data["messages"]]
    lines += ["", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{number(e['rmse']):>10}{number(e['r2'], '.3f'):>8}{note}")
    size = size_of_members(model["mean_columns_per_member"], data["columns"])
    shares = sorted(model["schemes"].items(), key=lambda scheme: -scheme[1])
    drawn = DRAWN[model["inclusion"]].format(schemes=", ".join(f"{s} {percent(share)}" for s, share in shares))
    lines += ["", f"{model['members'] or 'infinitely many'} members of {size},",
              f"drawn {drawn}, scale {model['scale']:.3g}, seed {model['seed']}"]  # fmt: skip
    return "\n".join([*lines, "", *_effect_lines(summary["coefficients"][:10])])


def _effect_lines(coefficients: list[dict[str, Any]]) -> list[str]:
    names = [shortened(c["name"], LONGEST_NAME) for c in coefficients]
    width = max(20, *map(columns_of, names))
    known = any(c["standard_error"] is not None for c in coefficients)
    lines = [f"{'largest effects':<{width + 2}}{'coefficient':>12}{'per s.d.':>12}{'    ± s.e.' if known else ''}"
             f"{'drawn':>8}"]  # fmt: skip
    for name, c in zip(names, coefficients, strict=True):
        error = f"{number(c['standard_error'], '.2g'):>10}" if known else ""
        lines.append(
            f"  {padded(name, width)}{c['coefficient']:>12.4g}{c['effect']:>12.4g}{error}{percent(c['drawn']):>8}"
        )
    return lines
