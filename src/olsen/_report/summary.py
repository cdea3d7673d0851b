"""The summary of a fit as a dict of plain types: for the terminal, for ``--json``, and for the HTML page.

Beside the error of the ensemble stand those of the mean, of least squares and of ridge with its best penalty where they
are judged on the same rows left out, and no others.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._engines import NeedsRows
from .._execution import versions
from .._moments import Moments, from_data, training_moments
from .formatting import coefficient_lines, heading_lines, interval_text, number, percent, size_of_members

__all__ = [
    "Baselines", "as_text", "caution", "fold_errors", "left_out_predictions", "sampled_errors",
    "summarise", "summarise_folds",
]  # fmt: skip

Array = NDArray[np.float64]

COVERAGE = 0.9
FEW_ROWS = 30  # an error from so many has a standard error of an eighth of it
MOST_POINTS = 2000  # shown in the scatter plots; more would only make the file large
MOST_COEFFICIENTS = 15
MOST_COLUMNS = 5000  # that are listed with their coefficients
MOST_OPERATIONS, REFITS = 2e10, 300  # for standard errors of effects: thirty fits of some ten factorisations
DRAWN = {
    "uniform": "with equal probability",
    "ridge": "so that their mean is ridge regression",
    "mixed": "by sampling schemes in shares: {schemes}",
}
PENALTIES = np.logspace(-8, 8, 65)  # of ridge, for each row
MOST_EIGENVALUES = 3000  # of the eigenproblems from moments, likewise


def summarise(
    model: Any,
    X: Array,
    y: Array,
    names: list[str],
    *,
    left_out: Array | None = None,
    weight: Array | None = None,
    groups: tuple[str, list[Any]] | None = None,
    compared: list[dict[str, Any]] | None = None,
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
        Of the rows, positive; the baselines have them too.
    groups : tuple, default=None
        Name of the groups that were left out, and the rows of each fold; the baselines are compared on the same ones.
    compared : list of dict, default=None
        Errors of the ensemble and of baselines that were compared on folds of their own. Without them baselines stand
        beside the ensemble only where they are judged on its own folds: groups, or blocks.
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
    if groups is not None:
        others = fold_errors([from_data(X[f], y[f, None], weight[f], centre=True) for f in groups[1]])
        note = f"k-fold cross-validation, whole groups of {groups[0]!r} left out"
    else:
        others = Baselines(_error_of_mean(y, weight))
        note = "k-fold cross-validation" if model.criterion_ == "kfold" else "leave-one-out"
    points = {**_thinned(y, predicted), "left_out": were_left_out}
    errors = compared or _errors(model, others, note)
    if model._result().folds is not None:  # in which the model was chosen: they know what new rows meet
        half = float(np.mean(np.diff(model._cv_plus().interval(X[:MOST_POINTS], COVERAGE)))) / 2
    else:
        half = _half_width(np.abs(y - predicted)[np.isfinite(predicted)])
    return _collect(model, names, len(y), X.std(axis=0), errors, points, half, **about)


def summarise_folds(
    model: Any, folds: list[Moments], X: Array, y: Array, names: list[str], **about: Any
) -> dict[str, Any]:
    """The same for a fit in blocks, from the moments of its folds and a sample of its rows."""
    whole = Moments.merge_all(folds)
    points = {**_thinned(y, _fitted(model, X)), "left_out": False}
    spread = np.sqrt(np.diagonal(whole.G) / whole.weight)
    errors = _errors(model, fold_errors(folds), "k-fold cross-validation")
    half = _half_width(sampled_errors(model, folds, X, y))
    return _collect(
        model, names, whole.n_rows, spread, errors, points, half, standard_errors=False, out_of_core=True, **about
    )


def caution(n_rows: int) -> list[str]:
    """What to say where rows are so few that the error itself is hardly known."""
    if n_rows >= FEW_ROWS:
        return []
    return [
        f"{n_rows} rows are few: the error of prediction is itself uncertain by {math.sqrt(0.5 / n_rows):.0%} or so."
    ]


def left_out_predictions(model: Any, X: Array, known: Array | None = None) -> tuple[Array, bool]:
    """Predictions of the training rows, and whether each row was left out; with very many rows it hardly matters."""
    known = np.ravel(model.loo_prediction_) if known is None else known
    return (known, True) if len(known) == len(X) else (_fitted(model, X), False)


def sampled_errors(model: Any, folds: list[Moments], X: Array, y: Array) -> Array:
    """Absolute residuals of sampled rows, scaled by the ratio of the cross-validated error to that of all rows.

    The sample gives the shape, all rows give the width: fitted values lie closer to the rows than predictions do.
    """
    whole, b = Moments.merge_all(folds), np.ravel(model.coef_)
    fitted = (whole.yy[0] - 2 * b @ whole.C[:, 0] + b @ whole.G @ b) / whole.weight
    ratio = -model.best_score_ / fitted if fitted > 0 else 1.0
    return np.asarray(np.abs(y - _fitted(model, X)) * np.sqrt(max(ratio, 1.0)))


def _fitted(model: Any, X: Array) -> Array:
    linear = model.to_linear_regression()  # on the host, whatever the model was fitted on
    return np.asarray(X @ np.ravel(linear.coef_) + np.ravel(linear.intercept_)[0])


def _collect(
    model: Any, names: list[str], n_rows: int, spread: Array, errors: list[dict[str, Any]], points: dict[str, Any],
    half: float, *,
    data_name: str, target: str, messages: list[str], seed: int, command: str, standard_errors: bool = True,
    out_of_core: bool = False,
) -> dict[str, Any]:  # fmt: skip
    coef = np.ravel(model.to_linear_regression().coef_)
    effect = coef * spread
    largest = np.argsort(-np.abs(effect), kind="stable")
    listed = np.sort(largest[:MOST_COLUMNS])
    worth_it = standard_errors and REFITS * n_rows * len(coef) * min(n_rows, len(coef)) <= MOST_OPERATIONS
    uncertain = _coef_std(model) * spread if worth_it else np.full(len(coef), np.nan)
    known = np.isfinite(uncertain) & (effect != 0)  # of a column that is constant, or in no member, nothing varies
    kept = model.selection_frequency_
    return {
        "data": {"name": data_name, "rows": n_rows, "columns": len(names), "target": target,
                 "messages": messages + caution(n_rows), "out_of_core": out_of_core},
        "model": {"members": None if model.n_estimators_ == math.inf else int(model.n_estimators_),
                  "columns_per_member": int(model.max_features_), "share": float(model.feature_ratio_), "seed": seed,
                  "scale": float(model.scale_), "solver": str(model.solver_), "refitted": int(model.n_fallbacks_),
                  "criterion": model.criterion_, "inclusion": model.inclusion_kind_,
                  "mean_columns_per_member": float(model.inclusion_.sum()), "schemes": dict(model.inclusion_shares_),
                  "kept": int(model.selected_.sum()) if len(model.selected_) else None},
        "errors": errors,
        "interval": {"coverage": COVERAGE, "half_width": half if math.isfinite(half) else None},
        "coefficients": [
            {"name": names[j], "coefficient": float(coef[j]), "effect": float(effect[j]),
             "drawn": float(model.inclusion_[j]), "standard_error": float(uncertain[j]) if known[j] else None}
            for j in largest[:MOST_COEFFICIENTS]
        ],
        "columns": {"name": [names[j] for j in listed], "coefficient": coef[listed].tolist(),
                    "effect": effect[listed].tolist(), "drawn": model.inclusion_[listed].tolist(),
                    "kept": kept[listed].tolist() if len(kept) else None},
        "curve": _curve(model),
        "predictions": points,
        "command": command,
        "versions": versions(),
    }  # fmt: skip


def _half_width(off: Array) -> float:
    """How far from their prediction most new observations are, from errors of left-out rows."""
    place = math.ceil(COVERAGE * (len(off) + 1))
    return float(np.sort(off)[place - 1]) if place <= len(off) else math.inf


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
    members = model.n_estimators_
    lines = [("ensemble" if members == math.inf else f"ensemble, {members} members", ours, note)]
    if model.inclusion_kind_ == "uniform":
        lines.append(("ensemble, infinitely many", infinite, "limit of more and more members of this size"))
    if others.penalty is not None:
        few = "" if math.isfinite(others.least_squares) else "too many columns"
        lines += [
            ("ridge", others.ridge, f"standardised columns, penalty {others.penalty:.3g}"),
            ("least squares", others.least_squares, few),
            ("mean of the target", others.mean, ""),
        ]
    return [
        {"name": name, "note": note, "rmse": math.sqrt(mse) if math.isfinite(mse) else None,
         "r2": 1 - mse / others.mean if math.isfinite(mse) and others.mean > 0 else None}
        for name, mse, note in lines
    ]  # fmt: skip


def _curve(model: Any) -> dict[str, Any]:
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
        "chosen": int(model.max_features_),
        "mixture": {"rmse": float(rmse[at]), "standard_error": float(error[at])} if mixed else None,
    }


def _thinned(y: Array, predicted: Array) -> dict[str, list[float]]:
    """Evenly spaced rows if there are too many to draw."""
    keep = np.flatnonzero(np.isfinite(predicted))  # rows that no fold leaves out have no prediction
    if len(keep) > MOST_POINTS:
        keep = keep[np.linspace(0, len(keep) - 1, MOST_POINTS).astype(int)]
    return {"observed": y[keep].tolist(), "predicted": predicted[keep].tolist()}


def as_text(summary: dict[str, Any]) -> str:
    """The summary for a terminal; names of columns are shortened, in the dict they are whole."""
    data, model, coefficients = summary["data"], summary["model"], summary["coefficients"][:10]
    lines = [*heading_lines(data), "", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{number(e['rmse']):>10}{number(e['r2'], '.3f'):>8}{note}")
    lines.append(f"  {interval_text(summary['interval'])}")
    size = size_of_members(model["mean_columns_per_member"], data["columns"])
    shares = sorted(model["schemes"].items(), key=lambda scheme: -scheme[1])
    drawn = DRAWN[model["inclusion"]].format(schemes=", ".join(f"{s} {percent(share)}" for s, share in shares))
    lines += ["", f"{model['members'] or 'infinitely many'} members of {size},",
              f"drawn {drawn}, scale {model['scale']:.3g}, seed {model['seed']}", ""]  # fmt: skip
    known = ["standard_error"] if any(c["standard_error"] is not None for c in coefficients) else []
    return "\n".join([
        *lines, *coefficient_lines("largest effects", coefficients, ["coefficient", "effect", *known, "drawn"])
    ])  # fmt: skip


# Baselines


class Baselines(NamedTuple):
    """Mean squared errors, NaN where undefined or too expensive, and the best penalty of ridge (times n)."""

    mean: float
    least_squares: float = math.nan
    ridge: float = math.nan
    penalty: float | None = None


def _error_of_mean(y: Array, weight: Array) -> float:
    """Leave-one-out error of the weighted mean."""
    share = weight / weight.sum()
    return float(share @ ((y - share @ y) / (1 - share)) ** 2)


def fold_errors(folds: list[Moments]) -> Baselines:
    r"""Cross-validated errors from moments of folds.

    With G, c, y'y of a test fold about its own means, coefficients b from the others have on it the squared error
    :math:`y'y - 2b'c + b'Gb + w\,(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b)^2`.
    """
    p, n = len(folds[0].G), sum(fold.n_rows for fold in folds)
    total = np.zeros(1)
    for test, train in zip(folds, training_moments(folds), strict=True):
        b = _coefficients(train) if p <= MOST_EIGENVALUES else np.zeros((p, 1))
        inside = test.yy[0] - 2 * test.C[:, 0] @ b + np.sum(b * (test.G @ b), axis=0)
        shift = test.mean_y[0] - train.mean_y[0] - (test.mean_x - train.mean_x) @ b
        total = total + inside + test.weight * shift**2
    mean, *others = (total / sum(fold.weight for fold in folds)).tolist()
    if not others:
        return Baselines(mean)
    squares, *ridge = others
    best = int(np.argmin(ridge))
    enough = n - max(fold.n_rows for fold in folds) > p + 1
    return Baselines(mean, squares if enough else math.nan, ridge[best], float(PENALTIES[best] * n))


def _coefficients(train: Moments) -> Array:
    """Coefficients (p, 2 + penalties): zeros for the mean, least squares of least norm, ridge."""
    spread = np.sqrt(np.diagonal(train.G) / train.weight)
    unit = np.where(spread > 0, spread, 1.0)
    values, vectors = la.eigh(train.G / np.outer(unit, unit) / train.weight)
    values = np.maximum(values, 0.0)
    inverse = np.divide(1, values, out=np.zeros(len(values)), where=values > 1e-11 * values[-1])  # others are rounding
    factors = np.column_stack([0 * values, inverse, 1 / (values[:, None] + PENALTIES)])
    rotated = vectors.T @ (train.C[:, 0] / unit / train.weight)
    return np.asarray(vectors @ (factors * rotated[:, None]) / unit[:, None])
