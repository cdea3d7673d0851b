"""The summary of a fit as a dict of plain types: for the terminal, for ``--json``, and for the HTML page."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._estimators.tuned import OLSEnsembleRegressorCV
from ..._moments import Moments
from ..shown_text import shortened, visible
from .rivals import fold_errors, least_squares_mse, ridge_mse

__all__ = ["as_text", "left_out_predictions", "sampled_errors", "summarise", "summarise_folds"]

Array = NDArray[np.float64]

MOST_POINTS = 2000  # shown in the scatter plots; more would only make the file large
MOST_COEFFICIENTS = 15
LONGEST_FILE_NAME = 200
DRAWN = {
    "uniform": "with equal probability",
    "ridge": "with probabilities that match ridge regression",
    "adaptive": "with probabilities that depend on their effects",
    "mixed": "with probabilities that follow the signal",
}


def summarise(model: OLSEnsembleRegressorCV, X: Array, y: Array, names: list[str], **about: Any) -> dict[str, Any]:
    """Collect the summary of a fitted `OLSEnsembleRegressorCV`.

    Parameters
    ----------
    model : OLSEnsembleRegressorCV
        Fitted on `X`, `y`.
    X, y : ndarray
        Training data.
    names : list of str
        Names of the columns of `X`.
    **about : dict
        ``data_name``, ``target`` (names to display), ``messages`` (notes about the table), ``seed`` of the
        fit, the ``command`` that made it, and ``versions`` of the packages.

    Returns
    -------
    dict
        ``data``, ``model``, ``errors``, ``coefficients``, ``curve``, ``predictions``, ``command``, ``versions``.
    """
    predicted, left_out = left_out_predictions(model, X)
    spread = float(np.mean((y - y.mean()) ** 2)) * (len(y) / (len(y) - 1)) ** 2  # the mean, each row left out
    errors = _errors(model, spread, least_squares_mse(X, y), *ridge_mse(X, y))
    points = {**_thinned(y, predicted), "left_out": left_out}
    return _collect(model, names, len(y), X.std(axis=0), errors, points, out_of_core=False, **about)


def summarise_folds(
    model: OLSEnsembleRegressorCV, folds: list[Moments], X: Array, y: Array, names: list[str], **about: Any
) -> dict[str, Any]:
    """The same for a fit in blocks, from the moments of its folds and a sample of its rows."""
    whole = reduce(lambda a, b: a.merge(b), folds)
    points = {**_thinned(y, np.ravel(model.predict(X))), "left_out": False}
    spread = np.sqrt(np.diagonal(whole.G) / whole.weight)
    return _collect(model, names, whole.n_rows, spread, _errors(model, *fold_errors(folds)), points, out_of_core=True,
                    **about)  # fmt: skip


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
    *,
    out_of_core: bool,
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
                 "out_of_core": out_of_core},
        "model": {"members": int(model.n_estimators_), "columns_per_member": size, "share": share, "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_),
                  "criterion": model.criterion_, "inclusion": model.inclusion_kind_},
        "errors": errors,
        "coefficients": _coefficients(model, spread, names),
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
    model: OLSEnsembleRegressorCV, spread: float, squares: float | None, ridge: float | None, penalty: float | None
) -> list[dict[str, Any]]:
    chosen = int(np.flatnonzero(model.cv_results_["size"] == _tuned_size(model))[0])
    ours, infinite = -float(model.best_score_), float(model.cv_results_["mse_infinity"][chosen])
    standardised = (
        "too many columns to compare" if ridge is None else f"standardised columns, best penalty {penalty:.3g}"
    )
    k = int(model.n_estimators_)
    lines = [
        (f"ensemble, {k} members", ours, ""),
        ("ensemble, infinitely many", infinite, "limit of more and more members of this size"),
        ("ridge", ridge, standardised),
        ("least squares", squares, "" if squares is not None else "too many columns"),
        ("mean of the target", spread, ""),
    ]
    return [_line(name, mse, spread, note) for name, mse, note in lines]


def _tuned_size(model: OLSEnsembleRegressorCV) -> int:
    return model.max_samples_ if model.tune == "max_samples" else model.max_features_


def _line(name: str, mse: float | None, spread: float, note: str) -> dict[str, Any]:
    if mse is None or not math.isfinite(mse):
        return {"name": name, "rmse": None, "r2": None, "note": note}
    return {"name": name, "rmse": float(np.sqrt(mse)), "r2": 1 - mse / spread if spread > 0 else None, "note": note}


def _coefficients(model: OLSEnsembleRegressorCV, spread: Array, names: list[str]) -> list[dict[str, Any]]:
    coef = np.ravel(model.coef_)
    effect = coef * spread
    order = np.argsort(-np.abs(effect))[:MOST_COEFFICIENTS]
    return [
        {"name": names[j], "coefficient": float(coef[j]), "effect": float(effect[j]),
         "drawn": float(model.inclusion_[j])}
        for j in order
    ]  # fmt: skip


def _curve(model: OLSEnsembleRegressorCV, size: int) -> dict[str, Any]:
    results = model.cv_results_
    rmse = np.sqrt(results["mse"])
    return {
        "size": [int(m) for m in results["size"]],
        "rmse": rmse.tolist(),
        "rmse_infinite": np.sqrt(results["mse_infinity"]).tolist(),
        "standard_error": (results["standard_error"] / (2 * np.maximum(rmse, 1e-300))).tolist(),  # delta method
        "chosen": size,
    }


def _thinned(y: Array, predicted: Array) -> dict[str, list[float]]:
    """Evenly spaced rows if there are too many to draw."""
    keep = np.arange(len(y))
    if len(y) > MOST_POINTS:
        keep = np.linspace(0, len(y) - 1, MOST_POINTS).astype(int)
    return {"observed": y[keep].tolist(), "predicted": predicted[keep].tolist()}


def as_text(summary: dict[str, Any]) -> str:
    """The summary for a terminal; names of columns are shortened, in the dict they are whole."""
    data, model = summary["data"], summary["model"]
    name, target = shortened(data["name"], LONGEST_FILE_NAME), shortened(data["target"])
    lines = [f"{name}: {data['rows']} rows, {data['columns']} columns, target {target}"]
    lines += [f"  note: {visible(message)}" for message in data["messages"]]
    lines += ["", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{_number(e['rmse']):>10}{_number(e['r2'], '.3f'):>8}{note}")
    lines += ["", f"{model['members']} members of {model['columns_per_member']} columns ({model['share']:.0%}), "
              f"drawn {DRAWN[model['inclusion']]}, scale {model['scale']:.3g}, seed {model['seed']}"]  # fmt: skip
    names = [shortened(c["name"]) for c in summary["coefficients"]]
    width = max(20, *map(len, names))
    lines += ["", f"{'largest effects':<{width + 2}}{'coefficient':>12}{'per s.d.':>12}{'drawn':>8}"]
    for name, c in list(zip(names, summary["coefficients"], strict=True))[:10]:
        lines.append(f"  {name:<{width}}{c['coefficient']:>12.4g}{c['effect']:>12.4g}{c['drawn']:>8.0%}")
    return "\n".join(lines)


def _number(value: float | None, form: str = ".4g") -> str:
    return "-" if value is None else format(value, form)
