"""Summarise a fit as a dict of plain types, for the terminal, for ``--json``, and for the HTML
page.

R2 compares the error of the ensemble with that of the mean of the target, both on held-out rows.
Errors of other models are included if the models were compared (``--compare``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.moments import Moments
from .._execution import versions
from ..subsets import resolve_size
from .formatting import (
    CRITERIA,
    effect_lines,
    escape_control,
    heading_lines,
    interval_text,
    number,
    percent,
    size_of,
)

Array = NDArray[np.float64]

COVERAGE = 0.9
FEW_ROWS = 30  # the estimated error from 30 rows has a relative standard error of one eighth
WEAK_SIGNAL_NULL_WEIGHT = 0.8  # weight of the null model above which there is hardly a signal
MOST_POINTS = 2000  # points in the scatter plots; more would only make the file large
MOST_COLUMNS = 5000  # columns that are listed with their coefficients
SHOWN_ELSEWHERE = {
    "error of prediction",
    "R² of held-out rows",
    "estimated by",
    "caution",
}  # in the table or the notes


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
        Effects of the columns of `X`, and of the input columns from which `X` was encoded.
    left_out : ndarray, default=None
        Cross-validated predictions of the rows. None: the cross-validated predictions of the model,
        if it has any.
    weight : ndarray, default=None
        Positive row weights.
    groups : tuple, default=None
        Name of the held-out groups, and the test rows of each fold.
    compared : list of dict, default=None
        Errors of the ensemble and of other models from a separate comparison.
    **about : dict
        ``data_name``, ``target`` (names to display), ``messages`` (notes about the table), ``seed``
        of the fit, and its ``command``.

    Returns
    -------
    dict
        ``data``, ``model``, ``errors``, ``effects`` (the largest, of input columns), ``columns``
        (those of the ensemble, all or many), ``choice``, ``curve``, ``predictions``, ``command``,
        ``versions``.
    """
    held_out_predictions = np.ravel(model.cv_prediction_) if left_out is None else left_out
    is_held_out = len(held_out_predictions) == len(X)
    predicted = held_out_predictions if is_held_out else _fitted(model, X)
    weight = np.ones(len(y)) if weight is None else weight
    fold = np.arange(len(y))
    note = CRITERIA[model.criterion_]
    if groups is not None:
        for fold_index, test in enumerate(groups[1]):
            fold[test] = fold_index
        note = f"k-fold cross-validation, whole groups of {groups[0]!r} held out"
    fold_weights = np.bincount(fold, weight).astype(float)
    fold_means = np.bincount(fold, weight * y) / fold_weights
    within_squares = float(weight @ (y - fold_means[fold]) ** 2)
    errors = compared or _errors(
        model, _error_of_mean(fold_weights, fold_means, within_squares), note
    )
    points = {**_thinned(y, predicted), "left_out": is_held_out}
    if (
        model._result().folds is not None
    ):  # the fold models were selected like the model: their errors are honest
        widths = np.diff(model._cv_plus().interval(X[:MOST_POINTS], COVERAGE))
        half = float(np.mean(widths)) / 2
    else:
        half = half_width(np.abs(y - predicted)[np.isfinite(predicted)], COVERAGE)
    return _collect(model, effects, n_rows=len(y), errors=errors, points=points, half=half, **about)


def summarise_folds(
    model: Any, folds: list[Moments], X: Array, y: Array, effects: Any, **about: Any
) -> dict[str, Any]:
    """Collect the summary of a fit in blocks, from the moments of its folds and a sample of its
    rows.
    """
    moments = Moments.merge_all(folds)
    n_rows = moments.n_rows
    points = {**_thinned(y, _fitted(model, X)), "left_out": False}
    fold_weights, fold_means = np.array([[fold.weight, fold.mean_y[0]] for fold in folds]).T
    within_squares = sum(float(fold.yy[0]) for fold in folds)
    error_of_mean = _error_of_mean(fold_weights, fold_means, within_squares)
    if (
        model.criterion_ != "kfold"
    ):  # a small table was loaded and tuned by leave-one-out: so is the error of the mean
        error_of_mean = float(moments.yy[0]) / n_rows * (n_rows / (n_rows - 1)) ** 2
    errors = _errors(model, error_of_mean, CRITERIA[model.criterion_])
    half = NormalDist().inv_cdf((1 + COVERAGE) / 2) * math.sqrt(-model.best_score_)
    if model._result().folds is not None:
        widths = np.diff(model._cv_plus().interval(X, COVERAGE))
        half = float(np.mean(widths)) / 2
    return _collect(
        model,
        effects,
        n_rows=n_rows,
        errors=errors,
        points=points,
        half=half,
        out_of_core=True,
        **about,
    )


def _error_of_mean(fold_weights: Array, fold_means: Array, within_squares: float) -> float:
    """Mean squared error of predicting the rows of a fold by the mean of the other folds.

    `within_squares` is the sum over all rows of the weighted squared distances from the mean of
    their fold.
    """
    total = fold_weights.sum()
    means_of_others = (fold_weights @ fold_means - fold_weights * fold_means) / (
        total - fold_weights
    )
    return float(within_squares + fold_weights @ (fold_means - means_of_others) ** 2) / float(total)


def caution(n_rows: int, scheme_weights: Any = ()) -> list[str]:
    """Notes for tables with so few rows that the error is uncertain, or with hardly any signal."""
    notes = []
    if n_rows < FEW_ROWS:
        uncertainty = (
            f"the error of prediction is itself uncertain by {math.sqrt(0.5 / n_rows):.0%} or so"
        )
        notes.append(f"{n_rows} rows are few: {uncertainty}.")
    if (
        isinstance(scheme_weights, dict)
        and scheme_weights.get("null", 0.0) > WEAK_SIGNAL_NULL_WEIGHT
    ):
        notes.append(
            "held-out rows support hardly any signal: predictions stay close to the mean of the"
            " target."
        )
    return notes


def _fitted(model: Any, X: Array) -> Array:
    linear = model.to_linear_regression()  # on the host, whichever device the model was fitted on
    return np.asarray(X @ np.ravel(linear.coef_) + np.ravel(linear.intercept_)[0])


def _collect(
    model: Any,
    effects: Any,
    *,
    n_rows: int,
    errors: list[dict[str, Any]],
    points: dict[str, Any],
    half: float,
    data_name: str,
    target: str,
    messages: list[str],
    seed: int,
    command: str,
    out_of_core: bool = False,
) -> dict[str, Any]:
    coef = np.ravel(model.to_linear_regression().coef_)
    effect = np.ravel(effects.by_feature[0])
    adaptive = hasattr(model, "scheme_weights_")
    frequency = model.selection_frequency_ if adaptive else np.empty(0)
    mean_columns = float(model.inclusion_.sum())
    listed = np.sort(np.argsort(-np.abs(effect), kind="stable")[:MOST_COLUMNS])
    return {
        "data": {
            "name": data_name,
            "rows": n_rows,
            "columns": len(coef),
            "target": target,
            "messages": messages + caution(n_rows, model.scheme_weights_ if adaptive else ()),
            "out_of_core": out_of_core,
        },
        "model": {
            "members": None if model.n_estimators_ == math.inf else int(model.n_estimators_),
            "kind": "adaptive" if adaptive else "ensemble",
            "seed": seed,
            "scale": float(model.scale_),
            "solver": str(model.solver_),
            "refitted": int(model.n_fallbacks_),
            "criterion": model.criterion_,
            "mean_columns_per_member": mean_columns,
            "schemes": dict(model.scheme_weights_) if adaptive else None,
            "selected": int(model.selected_.sum()) if adaptive else None,
        },
        "errors": errors,
        "facts": (
            {name: fact for name, fact in facts(model) if name not in SHOWN_ELSEWHERE}
            | {"seed": f"{seed}"}
        ),
        "interval": {"coverage": COVERAGE, "half_width": half if math.isfinite(half) else None},
        "effects": effects.largest(),
        "columns": {
            "name": [effects.features[j].name for j in listed],
            "coefficient": coef[listed].tolist(),
            "effect": effect[listed].tolist(),
            "drawn": model.inclusion_[listed].tolist(),
            "kept": frequency[listed].tolist() if len(frequency) else None,
        },
        "choice": _schemes(model) if adaptive else None,
        "curve": None if adaptive else _curve(model),
        "predictions": points,
        "command": command,
        "versions": versions(),
    }


def half_width(errors: Array, coverage: float) -> float:
    """Half the width of intervals that contain new observations with probability `coverage` (the
    plain jackknife).

    It is the order statistic ceil(coverage (n + 1)) of the absolute held-out errors, infinite if n
    is too small.
    """
    rank = math.ceil(coverage * (len(errors) + 1))
    return float(np.sort(errors)[rank - 1]) if rank <= len(errors) else math.inf


def _errors(model: Any, error_of_mean: float, note: str) -> list[dict[str, Any]]:
    """Errors of the ensemble and of its limit; R2 compares with `error_of_mean`, that of the mean."""
    members = model.n_estimators_
    name = "ensemble" if members == math.inf else f"ensemble, {members} members"
    lines = [(name, -float(model.best_score_), note)]
    if members < math.inf and "mean_test_score_infinity" in model.cv_results_:
        mse_infinite = -float(model.cv_results_["mean_test_score_infinity"][model.best_index_])
        lines.append(
            (
                "ensemble, infinitely many",
                mse_infinite,
                "limit of more and more members of this size",
            )
        )
    errors = []
    for line_name, mse, line_note in lines:
        rmse = math.sqrt(mse) if math.isfinite(mse) else None
        r2 = 1 - mse / error_of_mean if math.isfinite(mse) and error_of_mean > 0 else None
        errors.append({"name": line_name, "note": line_note, "rmse": rmse, "r2": r2})
    return errors


def _rmse(mse: Array, standard_error: Array) -> tuple[Array, Array]:
    """Roots of mean squared errors, and standard errors of the roots by the delta method."""
    rmse = np.sqrt(np.maximum(mse, 0.0))  # a damaged file may have negative errors
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
    """Weights and errors of all schemes, and of the mixture, which comes last."""
    results = model.cv_results_
    rmse, error = _rmse(-results["mean_test_score"], results["std_test_score"])
    return [
        {"scheme": str(name), "weight": float(weight), "rmse": float(r), "standard_error": float(e)}
        for name, weight, r, e in zip(
            results["param_scheme"], results["weight"], rmse, error, strict=True
        )
    ]


def _thinned(y: Array, predicted: Array) -> dict[str, list[float]]:
    """Observed and predicted values, of evenly spaced rows if there are too many to draw."""
    rows = np.flatnonzero(np.isfinite(predicted))  # rows that no fold holds out have no prediction
    if len(rows) > MOST_POINTS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_POINTS).astype(int)]
    return {"observed": y[rows].tolist(), "predicted": predicted[rows].tolist()}


def as_text(summary: dict[str, Any]) -> str:
    """Format the summary for a terminal, with shortened column names."""
    data = summary["data"]
    lines = [*heading_lines(data), "", f"{'error of prediction':<28}{'error':>10}{'R2':>8}"]
    for e in summary["errors"]:
        note = f"   {e['note']}" if e["note"] else ""
        lines.append(f"  {e['name']:<26}{number(e['rmse']):>10}{number(e['r2'], '.3f'):>8}{note}")
    lines.append(f"  {interval_text(summary['interval'])}")
    lines += [
        "",
        *(f"  {name:<21}{escape_control(fact)}" for name, fact in summary["facts"].items()),
        "",
    ]
    return "\n".join([*lines, *effect_lines(summary["effects"])])


def facts(model: Any) -> Iterator[tuple[str, str]]:
    """Facts about a fit, as (name, text); attributes that a model of another version lacks are
    skipped.
    """
    design = model._result().design
    attributes = vars(model)
    yield "members", _members_text(model)
    yield "columns in a member", size_of(float(np.sum(model.inclusion_)), model.n_features_in_)
    if not design.all_rows:
        yield (
            "rows in a member",
            size_of(resolve_size(design.max_samples, design.n_rows, "max_samples"), design.n_rows),
        )
    if "best_score_" in attributes:
        yield "error of prediction", _error_text(model)
        yield from _explained(model)
        yield "estimated by", CRITERIA.get(model.criterion_, str(model.criterion_))
        yield from (
            ("caution", text)
            for text in caution(design.n_rows, getattr(model, "scheme_weights_", ()))
        )
    if "scheme_weights_" in attributes:
        several = isinstance(model.scheme_weights_, list)  # one dict per target
        for t, weights in enumerate(model.scheme_weights_ if several else [model.scheme_weights_]):
            schemes = sorted(weights.items(), key=lambda scheme: -scheme[1])
            name = f"sampling schemes, target {t}" if several else "sampling schemes"
            yield name, ", ".join(f"{scheme} {percent(weight)}" for scheme, weight in schemes)
    yield "scale", ", ".join(f"{scale:.4g}" for scale in np.atleast_1d(model.scale_))
    if attributes.get("stacking_advantage_") is not None:
        kind = "equal" if np.ptp(model.weights_) == 0 else "stacked"
        yield "weights", f"{kind}; stacking is better by {model.stacking_advantage_:.2g} s.e."
    n_refitted = int(model.n_fallbacks_)
    refits = f"; {n_refitted} members refitted from the data" if n_refitted else ""
    yield "solver", f"{model.solver_}{refits}"


def _members_text(model: Any) -> str:
    """Number of members; uniform members have no closed form and are drawn."""
    if model.n_estimators_ < math.inf:
        return f"{model.n_estimators_}"
    weights = getattr(model, "scheme_weights_", {})
    weights_by_target = weights if isinstance(weights, list) else [weights]
    has_uniform = any("uniform" in target_weights for target_weights in weights_by_target)
    return "infinitely many, in closed form" + "; uniform ones drawn" * has_uniform


def prediction_error(model: Any) -> dict[str, float]:
    """Root of the mean squared error from tuning, and its standard error (delta method)."""
    rmse = math.sqrt(max(-float(model.best_score_), 0.0))
    mse_standard_error = float(model.cv_results_["std_test_score"][model.best_index_])
    return {
        "rmse": rmse,
        "standard_error": mse_standard_error / (2 * rmse) if rmse > 0 else math.nan,
    }


def _error_text(model: Any) -> str:
    rmse, standard_error = prediction_error(model).values()
    if math.isfinite(standard_error):
        return f"{rmse:.4g} ± {standard_error:.2g} (root mean squared, ± standard error)"
    return f"{rmse:.4g} (root mean squared)"


def _explained(model: Any) -> Iterator[tuple[str, str]]:
    """Fraction of the variance of the targets that held-out predictions explain, if the model has
    the rows.

    The mean is held out too: a row is compared with the mean of the other rows.
    """
    rows = model._result().rows
    if rows is None:
        return
    weights = rows.weights / rows.total_weight
    mean_residuals = (rows.Y - weights @ rows.Y) / (1 - weights)[
        :, None
    ]  # from the mean of the other rows
    error_of_mean = float(np.mean(weights @ mean_residuals**2))
    if error_of_mean > 0:
        yield "R² of held-out rows", f"{1 + float(model.best_score_) / error_of_mean:.3f}"
