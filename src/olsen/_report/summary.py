"""What is worth saying about a fit, as a dict of plain types: for people, for ``--json``, and for the page."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from .rivals import fold_errors, least_squares_mse, ridge_mse

__all__ = ["as_text", "left_out_predictions", "sampled_errors", "summarise", "summarise_folds"]

MOST_POINTS = 2000  # drawn in the scatter plots; more would only make the file large
MOST_COEFFICIENTS = 15


def summarise(model, X, y, names, **about) -> dict[str, Any]:
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
        ``data_name``, ``target`` (names for people), ``messages`` (what was noticed about the table), ``seed`` of the
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


def summarise_folds(model, folds, X, y, names, **about) -> dict[str, Any]:
    """The same for a fit in blocks, from the moments of its folds and a sample of its rows."""
    whole = reduce(lambda a, b: a.merge(b), folds)
    points = {**_thinned(y, np.ravel(model.predict(X))), "left_out": False}
    spread = np.sqrt(np.diagonal(whole.G) / whole.weight)
    return _collect(model, names, whole.n_rows, spread, _errors(model, *fold_errors(folds)), points, out_of_core=True,
                    **about)  # fmt: skip


def sampled_errors(model, folds, X, y):
    """Absolute residuals of sampled rows, stretched by the ratio of the cross-validated error to that of all rows.

    The sample gives the shape, all rows give the width: fitted values lie closer to the rows than predictions do.
    """
    whole = reduce(lambda a, b: a.merge(b), folds)
    b = np.ravel(model.coef_)
    fitted = (whole.yy[0] - 2 * b @ whole.C[:, 0] + b @ whole.G @ b) / whole.weight
    ratio = -model.best_score_ / fitted if fitted > 0 else 1.0
    return np.abs(y - np.ravel(model.predict(X))) * np.sqrt(max(ratio, 1.0))


def _collect(model, names, n_rows, spread, errors, points, *, out_of_core, data_name, target, messages, seed, command,
             versions):  # fmt: skip
    size, share = int(model.max_features_), float(model.feature_ratio_)
    return {
        "data": {"name": data_name, "rows": n_rows, "columns": len(names), "target": target, "messages": messages,
                 "out_of_core": out_of_core},
        "model": {"members": int(model.n_estimators_), "columns_per_member": size, "share": share, "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_),
                  "criterion": model.criterion_},
        "errors": errors,
        "coefficients": _coefficients(model, spread, names),
        "curve": _curve(model, size),
        "predictions": points,
        "command": command,
        "versions": versions,
    }  # fmt: skip


def left_out_predictions(model, X):
    """Predictions of the training rows, and whether each row was left out; with very many rows it hardly matters."""
    if len(model.loo_prediction_) == len(X):
        return np.ravel(model.loo_prediction_), True
    return np.ravel(model.predict(X)), False


def _errors(model, spread, squares, ridge, penalty):
    best = int(np.argmin(model.cv_results_["mse"]))
    ours, infinite = (float(model.cv_results_[name][best]) for name in ("mse", "mse_infinity"))
    standardised = (
        "too many columns to compare" if ridge is None else f"standardised columns, best penalty {penalty:.3g}"
    )
    k = int(model.n_estimators_)
    lines = [
        (f"ensemble, {k} members", ours, ""),
        ("ensemble, infinitely many", infinite, "the same size, no sampling of members left"),
        ("ridge", ridge, standardised),
        ("least squares", squares, "" if squares is not None else "more columns than rows allow"),
        ("mean of the target", spread, ""),
    ]
    return [_line(name, mse, spread, note) for name, mse, note in lines]


def _line(name, mse, spread, note):
    known = mse is not None and math.isfinite(mse)
    rmse = float(np.sqrt(mse)) if known else None
    return {"name": name, "rmse": rmse, "r2": 1 - mse / spread if known and spread > 0 else None, "note": note}


def _coefficients(model, spread, names):
    coef = np.ravel(model.coef_)
    effect = coef * spread
    order = np.argsort(-np.abs(effect))[:MOST_COEFFICIENTS]
    return [
        {"name": names[j], "coefficient": float(coef[j]), "effect": float(effect[j]),
         "drawn": float(model.inclusion_[j])}
        for j in order
    ]  # fmt: skip


def _curve(model, size):
    results = model.cv_results_
    rmse = np.sqrt(results["mse"])
    return {
        "size": [int(m) for m in results["size"]],
        "rmse": rmse.tolist(),
        "rmse_infinite": np.sqrt(results["mse_infinity"]).tolist(),
        "standard_error": (results["standard_error"] / (2 * np.maximum(rmse, 1e-300))).tolist(),  # delta method
        "chosen": size,
    }


def _thinned(y, predicted):
    """Evenly spaced rows if there are too many to draw."""
    keep = np.arange(len(y))
    if len(y) > MOST_POINTS:
        keep = np.linspace(0, len(y) - 1, MOST_POINTS).astype(int)
    return {"observed": y[keep].tolist(), "predicted": predicted[keep].tolist()}


def as_text(summary: dict) -> str:
    """The summary for a terminal."""
    data, model = summary["data"], summary["model"]
    lines = [f"{data['name']}: {data['rows']} rows, {data['columns']} columns, target {data['target']}"]
    lines += [f"  note: {message}" for message in data["messages"]]
    lines += ["", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{_number(e['rmse']):>10}{_number(e['r2'], '.3f'):>8}{note}")
    lines += ["", f"{model['members']} members of {model['columns_per_member']} columns ({model['share']:.0%}), "
              f"scale {model['scale']:.3g}, seed {model['seed']}"]  # fmt: skip
    width = max(20, *(len(c["name"]) for c in summary["coefficients"]))
    lines += ["", f"{'largest effects':<{width + 2}}{'coefficient':>12}{'per s.d.':>12}{'drawn':>8}"]
    for c in summary["coefficients"][:10]:
        lines.append(f"  {c['name']:<{width}}{c['coefficient']:>12.4g}{c['effect']:>12.4g}{c['drawn']:>8.0%}")
    return "\n".join(lines)


def _number(value, form=".4g"):
    return "-" if value is None else format(value, form)
