"""The summary of a fit as a dict of plain types: for the terminal, for ``--json``, and for the HTML page."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._estimators.tuned import OLSEnsembleRegressorCV
from ..._moments import Moments, from_data
from ..shown_text import shortened, visible
from .rivals import fold_errors, least_squares_mse, mean_mse, ridge_mse
from .words import columns_of, counted, number, padded, percent, size_of_members

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
    model: OLSEnsembleRegressorCV,
    X: Array,
    y: Array,
    names: list[str],
    *,
    weight: Array | None = None,
    groups: tuple[str, list[Any]] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """Collect the summary of a fitted `OLSEnsembleRegressorCV`.

    Parameters
    ----------
    model : OLSEnsembleRegressorCV
        Fitted on `X`, `y`.
    X, y : ndarray
        Training data.
    names : list of str
        Names of the columns of `X`.
    weight : ndarray, default=None
        Of the rows; the others that are compared with have them too.
    groups : tuple, default=None
        Name of the groups that were left out, and the rows of each fold; the others are compared on the same ones.
    **about : dict
        ``data_name``, ``target`` (names to display), ``messages`` (notes about the table), ``seed`` of the
        fit, the ``command`` that made it, and ``versions`` of the packages.

    Returns
    -------
    dict
        ``data``, ``model``, ``errors``, ``coefficients`` (the largest), ``columns`` (all, or many), ``curve``,
        ``predictions``, ``command``, ``versions``.
    """
    predicted, left_out = left_out_predictions(model, X)
    errors = _errors(model, *_rivals(X, y, weight, groups), _compared(model, groups))
    points = {**_thinned(y, predicted), "left_out": left_out}
    spreads = X.std(axis=0)
    largest = _largest(model, spreads, MOST_COEFFICIENTS)
    uncertain = _effect_errors(model, X, spreads, largest)
    return _collect(model, names, len(y), spreads, errors, points, uncertain, out_of_core=False,
                    groups=None if groups is None else groups[0], **about)  # fmt: skip


def _rivals(
    X: Array, y: Array, weight: Array | None, groups: tuple[str, list[Any]] | None
) -> tuple[float, float | None, float | None, float | None]:
    """Errors of the mean, of least squares and of ridge, and the penalty of ridge: of single rows, or of groups."""
    kept = np.ones(len(y), dtype=bool) if weight is None else weight > 0
    whole = np.ones(len(y)) if weight is None else weight
    if groups is not None:
        folds = [np.asarray(rows)[kept[rows]] for rows in groups[1]]
        return fold_errors([from_data(X[f], y[f, None], whole[f], centre=True) for f in folds if len(f)])
    X, y, whole = X[kept], y[kept], whole[kept] / whole[kept].mean()
    return mean_mse(y, whole), least_squares_mse(X, y, whole), *ridge_mse(X, y, whole)


def _compared(model: OLSEnsembleRegressorCV, groups: tuple[str, list[Any]] | None) -> str:
    """How rows were left out, where that needs to be said."""
    if groups is not None:
        return f"whole groups of {groups[0]!r} left out"
    return "folds of rows left out, single rows for others" if model.criterion_ == "kfold" else ""


def summarise_folds(
    model: OLSEnsembleRegressorCV, folds: list[Moments], X: Array, y: Array, names: list[str], **about: Any
) -> dict[str, Any]:
    """The same for a fit in blocks, from the moments of its folds and a sample of its rows."""
    whole = reduce(lambda a, b: a.merge(b), folds)
    points = {**_thinned(y, np.ravel(model.predict(X))), "left_out": False}
    spread = np.sqrt(np.diagonal(whole.G) / whole.weight)
    unknown: list[float | None] = [None] * MOST_COEFFICIENTS  # they need every row
    return _collect(model, names, whole.n_rows, spread, _errors(model, *fold_errors(folds)), points, unknown,
                    out_of_core=True, **about)  # fmt: skip


def sampled_errors(model: OLSEnsembleRegressorCV, folds: list[Moments], X: Array, y: Array) -> Array:
    """Absolute residuals of sampled rows, scaled by the ratio of the cross-validated error to that of all rows.

    The sample gives the shape, all rows give the width: fitted values lie closer to the rows than predictions do.
    """
    whole = reduce(lambda a, b: a.merge(b), folds)
    b = np.ravel(model.coef_)
    fitted = (whole.yy[0] - 2 * b @ whole.C[:, 0] + b @ whole.G @ b) / whole.weight
    ratio = -model.best_score_ / fitted if fitted > 0 else 1.0
    return np.asarray(np.abs(y - np.ravel(model.predict(X))) * np.sqrt(max(ratio, 1.0)))


def _collect(
    model: OLSEnsembleRegressorCV,
    names: list[str],
    n_rows: int,
    spread: Array,
    errors: list[dict[str, Any]],
    points: dict[str, Any],
    uncertain: list[float | None],
    *,
    out_of_core: bool,
    groups: str | None = None,
    data_name: str,
    target: str,
    messages: list[str],
    seed: int,
    command: str,
    versions: dict[str, str],
) -> dict[str, Any]:
    size, share = int(model.max_features_), float(model.feature_ratio_)
    return {
        "data": {"name": data_name, "rows": n_rows, "columns": len(names), "target": target, "messages": messages,
                 "out_of_core": out_of_core, "groups": groups},
        "model": {"members": None if model.n_estimators_ == math.inf else int(model.n_estimators_),
                  "columns_per_member": size, "share": share, "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_),
                  "criterion": model.criterion_, "inclusion": model.inclusion_kind_,
                  "mean_columns_per_member": float(model.inclusion_.sum()), "laws": dict(model.inclusion_shares_),
                  "kept": int(model.selected_.sum()) if len(model.selected_) else None},
        "errors": errors,
        "coefficients": _coefficients(model, spread, names, uncertain),
        "columns": _columns(model, spread, names),
        "curve": _curve(model, size),
        "predictions": points,
        "command": command,
        "versions": versions,
    }  # fmt: skip


def left_out_predictions(model: OLSEnsembleRegressorCV, X: Array) -> tuple[Array, bool]:
    """Predictions of the training rows, and whether each row was left out; with very many rows it hardly matters."""
    if len(model.loo_prediction_) == len(X):
        return np.ravel(model.loo_prediction_), True
    return np.ravel(model.predict(X)), False


def _errors(
    model: OLSEnsembleRegressorCV,
    spread: float,
    squares: float | None,
    ridge: float | None,
    penalty: float | None,
    left_out: str = "",
) -> list[dict[str, Any]]:
    """Errors of the ensemble and of others; `left_out` says of which rows."""
    ours, infinite = -float(model.best_score_), float(model.cv_results_["mse_infinity"][model.best_index_])
    standardised = (
        "too many columns to compare" if ridge is None else f"standardised columns, best penalty {penalty:.3g}"
    )
    members = model.n_estimators_
    many = [("ensemble, infinitely many", infinite, "limit of more and more members of this size")]
    lines = [
        ("ensemble" if members == math.inf else f"ensemble, {members} members", ours, left_out),
        *(many if model.inclusion_kind_ == "uniform" else []),
        ("ridge", ridge, standardised),
        ("least squares", squares, "" if squares is not None else "too many columns"),
        ("mean of the target", spread, ""),
    ]
    return [_line(name, mse, spread, note) for name, mse, note in lines]


def _line(name: str, mse: float | None, spread: float, note: str) -> dict[str, Any]:
    if mse is None or not math.isfinite(mse):
        return {"name": name, "rmse": None, "r2": None, "note": note}
    return {"name": name, "rmse": float(np.sqrt(mse)), "r2": 1 - mse / spread if spread > 0 else None, "note": note}


def _largest(model: OLSEnsembleRegressorCV, spread: Array, most: int) -> NDArray[np.intp]:
    return np.argsort(-np.abs(np.ravel(model.coef_) * spread), kind="stable")[:most]


def _effect_errors(
    model: OLSEnsembleRegressorCV, X: Array, spread: Array, columns: NDArray[np.intp]
) -> list[float | None]:
    """Standard errors of the effects of some columns; None where they cannot be had, or would take too long."""
    n, p = X.shape
    if REFITS * n * p * min(n, p) > MOST_OPERATIONS:
        return [None] * len(columns)
    with np.errstate(over="ignore", invalid="ignore"):
        found = (np.ravel(model.coef_std_) * spread)[columns]
        # of a column that is constant, or in no member, nothing varies
        moves = (np.ravel(model.coef_) * spread)[columns] != 0
    return [float(value) if known else None for value, known in zip(found, moves & np.isfinite(found), strict=True)]


def _coefficients(
    model: OLSEnsembleRegressorCV, spread: Array, names: list[str], uncertain: list[float | None]
) -> list[dict[str, Any]]:
    coef = np.ravel(model.coef_)
    effect = coef * spread
    return [
        {"name": names[j], "coefficient": float(coef[j]), "effect": float(effect[j]),
         "drawn": float(model.inclusion_[j]), "standard_error": error}
        for j, error in zip(_largest(model, spread, MOST_COEFFICIENTS), uncertain, strict=False)
    ]  # fmt: skip


def _columns(model: OLSEnsembleRegressorCV, spread: Array, names: list[str]) -> dict[str, Any]:
    """All columns in their order, or those with the largest effects."""
    listed = np.sort(_largest(model, spread, MOST_COLUMNS))
    coef, kept = np.ravel(model.coef_), model.selection_frequency_
    return {
        "name": [names[j] for j in listed],
        "coefficient": coef[listed].tolist(),
        "effect": (coef * spread)[listed].tolist(),
        "drawn": model.inclusion_[listed].tolist(),
        "kept": kept[listed].tolist() if len(kept) else None,
    }


def _curve(model: OLSEnsembleRegressorCV, size: int) -> dict[str, Any]:
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
    lines += [f"  note: {visible(message)}" for message in data["messages"]]
    lines += ["", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{number(e['rmse']):>10}{number(e['r2'], '.3f'):>8}{note}")
    size = size_of_members(model["mean_columns_per_member"], data["columns"])
    drawn = DRAWN[model["inclusion"]].format(schemes=_schemes(model["laws"]))
    lines += ["", f"{model['members'] or 'infinitely many'} members of {size},",
              f"drawn {drawn}, scale {model['scale']:.3g}, seed {model['seed']}"]  # fmt: skip
    return "\n".join([*lines, "", *_effect_lines(summary["coefficients"][:10])])


def _schemes(shares: dict[str, float]) -> str:
    ordered = sorted(shares.items(), key=lambda scheme: -scheme[1])
    return ", ".join(f"{name} {percent(share)}" for name, share in ordered)


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
