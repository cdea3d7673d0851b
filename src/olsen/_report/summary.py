"""What is worth saying about a fit, as a dict of plain types: for people, for ``--json``, and for the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["as_text", "left_out_predictions", "summarise"]

MOST_POINTS = 2000  # drawn in the scatter plots; more would only make the file large
MOST_COEFFICIENTS = 15


def summarise(
    model, X, y, names, *, data_name: str, target: str, messages, seed: int, command: str, versions: dict
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
    data_name, target : str
        Names for people.
    messages : list of str
        What was noticed about the table.
    seed : int
        Seed of the fit.
    command : str
        The command that made it.
    versions : dict
        Versions of the packages.

    Returns
    -------
    dict
        ``data``, ``model``, ``errors``, ``coefficients``, ``curve``, ``predictions``, ``command``, ``versions``.
    """
    predicted, left_out = left_out_predictions(model, X)
    size, share = int(model.max_features_), float(model.feature_ratio_)
    return {
        "data": {"name": data_name, "rows": len(y), "columns": X.shape[1], "target": target, "messages": messages},
        "model": {"members": int(model.n_estimators_), "columns_per_member": size, "share": share, "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_)},
        "errors": _errors(model, X, y),
        "coefficients": _coefficients(model, X, names),
        "curve": _curve(model, size),
        "predictions": {**_thinned(y, predicted), "left_out": left_out},
        "command": command,
        "versions": versions,
    }  # fmt: skip


def left_out_predictions(model, X):
    """Predictions of the training rows, and whether each row was left out; with very many rows it hardly matters."""
    if len(model.loo_prediction_) == len(X):
        return np.ravel(model.loo_prediction_), True
    return np.ravel(model.predict(X)), False


def _errors(model, X, y):
    from .rivals import least_squares_mse, ridge_mse

    spread = float(np.mean((y - y.mean()) ** 2)) * (len(y) / (len(y) - 1)) ** 2  # the mean, each row left out
    best = int(np.argmin(model.cv_results_["mse"]))
    ours, infinite = (float(model.cv_results_[name][best]) for name in ("mse", "mse_infinity"))
    ridge, penalty = ridge_mse(X, y)
    squares = least_squares_mse(X, y)
    k = int(model.n_estimators_)
    lines = [
        (f"ensemble, {k} members", ours, ""),
        ("ensemble, infinitely many", infinite, "the same size, no sampling of members left"),
        ("ridge", ridge, f"standardised columns, best penalty {penalty:.3g}"),
        ("least squares", squares, "" if squares is not None else "more columns than rows allow"),
        ("mean of the target", spread, ""),
    ]
    return [_line(name, mse, spread, note) for name, mse, note in lines]


def _line(name, mse, spread, note):
    known = mse is not None and math.isfinite(mse)
    rmse = float(np.sqrt(mse)) if known else None
    return {"name": name, "rmse": rmse, "r2": 1 - mse / spread if known and spread > 0 else None, "note": note}


def _coefficients(model, X, names):
    coef = np.ravel(model.coef_)
    effect = coef * X.std(axis=0)
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
