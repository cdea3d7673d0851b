"""Summarise a fit as a dict of plain types, for the terminal, for ``--json``, and for the HTML
page.

R² compares the error of the ensemble with that of the mean of the target, both on held-out rows.
Errors of other models are included if the models were compared (``--compare``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._data.moments import Moments
from .._execution import versions
from .._members.limit import n_uniform_members
from ..subsets import resolve_size
from .formatting import (
    CRITERIA,
    effect_lines,
    fact_lines,
    heading_lines,
    interval_text,
    number,
    percent,
    size_of,
)

Array = NDArray[np.float64]

COVERAGE = 0.9
ROUNDING_OF_CONSTANTS = 1e-24  # of the mean square of a target: its variance if it is constant
MOST_POINTS = 2000  # points in the scatter plots; more would only make the file large
MOST_FAR_ROWS = 5  # in the table of leverages
MOST_COLUMNS = 5000  # columns that are listed with their coefficients


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
    row_names: Any = None,
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
    row_names : sequence, default=None
        Names or numbers of the rows. None: numbers from 1.
    **about : dict
        ``data_name``, ``target`` (names to display), ``messages`` (notes about the table),
        ``cautions`` (what the results must not be read without), ``seed`` of the fit, and its
        ``command``.

    Returns
    -------
    dict
        ``data`` (``columns`` are those that members see, made of ``table_columns``), ``model``,
        ``errors``, ``effects`` (the largest, of input columns), ``columns`` (those of the ensemble,
        all or many), ``choice``, ``curve``, ``predictions``, ``example``, ``largest_residuals``,
        ``far_rows``, ``command``, ``versions``.
    """
    held_out_predictions = np.ravel(model.cv_prediction_) if left_out is None else left_out
    is_held_out = len(held_out_predictions) == len(X)
    predicted = held_out_predictions if is_held_out else _fitted(model, X)
    note = CRITERIA[model.criterion_]
    fold = np.arange(len(y))
    if groups is not None:
        group_name, test_rows = groups
        note = f"k-fold cross-validation, whole groups of {group_name!r} held out"
        for fold_index, test in enumerate(test_rows):
            fold[test] = fold_index
    errors = compared
    if errors is None:
        weight = np.ones(len(y)) if weight is None else weight
        fold_weights = np.bincount(fold, weight).astype(float)
        fold_means = np.bincount(fold, weight * y) / fold_weights
        within_squares = float(weight @ (y - fold_means[fold]) ** 2)
        errors = _errors(model, _error_of_mean(fold_weights, fold_means, within_squares), note)
    half_width = _cross_validated_half_width(model, X)
    if half_width is None:
        half_width = _jackknife_half_width(np.abs(y - predicted)[np.isfinite(predicted)])
    row_names = range(1, len(y) + 1) if row_names is None else row_names
    return _collect(
        model,
        effects,
        n_rows=len(y),
        errors=errors,
        largest_residuals=_largest_residuals(y, predicted, row_names) if is_held_out else [],
        example=_example(model, effects, X, y, half_width=half_width, name=row_names[0]),
        points={**_thinned(y, predicted), "left_out": is_held_out},
        half_width=half_width,
        far_rows=_farthest_rows(model, y, predicted, row_names),
        **about,
    )


def _farthest_rows(
    model: Any, y: Array, predicted: Array, row_names: Any
) -> dict[str, list[Any]] | None:
    """The training rows with the largest leverages, by name, in multiples of the mean leverage; None
    if memory does not allow them, or if no column counts.
    """
    try:
        leverage = model._training_leverage()
    except MemoryError:
        return None
    if not leverage.any():
        return None
    farthest = np.argsort(-leverage, kind="stable")[:MOST_FAR_ROWS]
    return {
        "row": [str(row_names[i]) for i in farthest],
        "leverage": (leverage[farthest] / leverage.mean()).tolist(),
        "observed": y[farthest].tolist(),
        "predicted": predicted[farthest].tolist(),
    }


def summarise_folds(
    model: Any, folds: list[Moments], X: Array, y: Array, effects: Any, **about: Any
) -> dict[str, Any]:
    """Collect the summary of a fit in blocks, from the moments of its folds and a sample of its
    rows.
    """
    moments = Moments.merge_all(folds)
    n_rows = moments.n_rows
    if model.criterion_ == "kfold":
        fold_weights = np.array([fold.weight for fold in folds])
        fold_means = np.array([fold.mean_y[0] for fold in folds])
        within_squares = sum(float(fold.yy[0]) for fold in folds)
        error_of_mean = _error_of_mean(fold_weights, fold_means, within_squares)
    else:
        # a small table was loaded and tuned by leave-one-out: so is the error of the mean
        error_of_mean = float(moments.yy[0]) / n_rows * (n_rows / (n_rows - 1)) ** 2
    half_width = _cross_validated_half_width(model, X)
    if half_width is None:
        quantile = NormalDist().inv_cdf((1 + COVERAGE) / 2)
        half_width = quantile * math.sqrt(-model.best_score_)
    return _collect(
        model,
        effects,
        n_rows=n_rows,
        errors=_errors(model, error_of_mean, CRITERIA[model.criterion_]),
        points={**_thinned(y, _fitted(model, X)), "left_out": False},
        half_width=half_width,
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
    squares = float(within_squares + fold_weights @ (fold_means - means_of_others) ** 2)
    largest = within_squares + float(fold_weights @ fold_means**2)
    return squares / float(total) if squares > ROUNDING_OF_CONSTANTS * largest else 0.0


def caution(n_rows: int, weights_of_targets: list[dict[str, float]]) -> list[str]:
    """Notes for tables with so few rows that the error is uncertain, or with hardly any signal."""
    notes = []
    if n_rows < 30:  # the relative standard error of the estimated error is more than one eighth
        uncertainty = math.sqrt(0.5 / n_rows)
        notes.append(
            f"{n_rows} rows are few: the error of prediction is itself uncertain by"
            f" {uncertainty:.0%} or so."
        )
    null_weights = [weights.get("null", 0.0) for weights in weights_of_targets]
    if null_weights and min(null_weights) > 0.8:
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
    half_width: float,
    data_name: str,
    target: str,
    messages: list[str],
    seed: int,
    command: str,
    out_of_core: bool = False,
    far_rows: dict[str, list[Any]] | None = None,
    cautions: Sequence[str] = (),
    largest_residuals: Sequence[dict[str, Any]] = (),
    example: dict[str, Any] | None = None,
) -> dict[str, Any]:
    adaptive = hasattr(model, "scheme_weights_")
    data = {
        "name": data_name,
        "rows": n_rows,
        "columns": model.n_features_in_,
        "table_columns": len(effects.features_of_column),
        "target": target,
        "messages": messages,
        "cautions": [*cautions, *caution(n_rows, scheme_weights(model))],
        "out_of_core": out_of_core,
    }
    description = {
        "members": int(model.n_estimators_) if model.n_estimators_ < math.inf else None,
        "drawn": sum(uniform_counts(model)) if model.n_estimators_ == math.inf else None,
        "kind": "adaptive" if adaptive else "ensemble",
        "seed": seed,
        "scale": float(model.scale_),
        "solver": str(model.solver_),
        "refitted": int(model.n_fallbacks_),
        "criterion": model.criterion_,
        "mean_columns_per_member": float(model.inclusion_.sum()),
        "schemes": dict(model.scheme_weights_) if adaptive else None,
        "selected": int(model.selected_.sum()) if adaptive else None,
    }
    shown_facts = facts(model) | {"seed": f"{seed}"}
    for name in ("error of prediction", "R² of held-out rows", "estimated by", "caution"):
        shown_facts.pop(name, None)  # in the table of errors or in the notes
    return {
        "data": data,
        "model": description,
        "errors": errors,
        "facts": shown_facts,
        "interval": {
            "coverage": COVERAGE,
            "half_width": half_width if math.isfinite(half_width) else None,
        },
        "effects": effects.largest(),
        "columns": _columns(model, effects),
        "choice": _schemes(model) if adaptive else None,
        "curve": None if adaptive else _curve(model),
        "predictions": points,
        "far_rows": far_rows,
        "example": example,
        "largest_residuals": list(largest_residuals),
        "command": command,
        "versions": versions(),
    }


def _columns(model: Any, effects: Any) -> dict[str, Any]:
    """Columns of the ensemble with the largest effects, in their order in the data."""
    effect = np.ravel(effects.by_feature[0])
    coef = np.ravel(effects.coef)
    std = effects.standard_errors()
    errors = None
    if std is not None:
        errors = [e if math.isfinite(e) else None for e in np.ravel(std).tolist()]
    listed = np.sort(np.argsort(-np.abs(effect), kind="stable")[:MOST_COLUMNS])
    frequency = getattr(model, "selection_frequency_", ())
    return {
        "name": [effects.features[j].label for j in listed],
        "coefficient": coef[listed].tolist(),
        "standard_error": None if errors is None else [errors[j] for j in listed],
        "effect": effect[listed].tolist(),
        "drawn": model.inclusion_[listed].tolist(),
        "kept": frequency[listed].tolist() if len(frequency) else None,
    }


def _largest_residuals(
    y: Array, predicted: Array, row_names: Any, count: int = 5
) -> list[dict[str, Any]]:
    """The rows that lie farthest from their held-out prediction, by name."""
    residuals = np.where(np.isfinite(predicted), y - predicted, 0.0)
    rows = np.argsort(-np.abs(residuals), kind="stable")[:count]
    return [
        {"row": str(row_names[i]), "observed": float(y[i]), "predicted": float(predicted[i])}
        for i in rows
        if residuals[i] != 0
    ]


def _example(
    model: Any, effects: Any, X: Array, y: Array, *, half_width: float, name: object
) -> dict[str, Any]:
    """The prediction of the first row with its interval, and how its columns lead to it."""
    mean_row = X.mean(axis=0)
    mean_prediction, prediction = _fitted(model, np.stack([mean_row, X[0]]))
    lower = prediction - half_width
    upper = prediction + half_width
    if model._result().folds is not None:
        lower, upper = np.sort(np.ravel(model._intervals(X[:1], [COVERAGE], np.ones(1))))
    return {
        "row": str(name),
        "observed": float(y[0]),
        "mean_prediction": float(mean_prediction),
        "parts": effects.parts_of(X[0], mean_row),
        "prediction": float(prediction),
        "lower": float(lower) if math.isfinite(lower) else None,
        "upper": float(upper) if math.isfinite(upper) else None,
    }


def _cross_validated_half_width(model: Any, X: Array) -> float | None:
    """Half the mean width of the intervals of rows; None for a model without folds.

    The models of the folds were selected like the model: their errors are honest.
    """
    if model._result().folds is None:
        return None
    X = X[:MOST_POINTS]
    # no training row is beyond the training rows
    lower, upper = model._intervals(X, [COVERAGE], np.ones(len(X))).reshape(-1, 2).T
    return float(np.mean(upper - lower)) / 2


def _jackknife_half_width(errors: Array) -> float:
    """Half the width of intervals that contain new observations with probability COVERAGE (the
    plain jackknife).

    It is the order statistic ceil(coverage (n + 1)) of the absolute held-out errors, infinite if n
    is too small.
    """
    rank = math.ceil(COVERAGE * (len(errors) + 1))
    return float(np.sort(errors)[rank - 1]) if rank <= len(errors) else math.inf


def _errors(model: Any, error_of_mean: float, note: str) -> list[dict[str, Any]]:
    """Errors of the ensemble and of its limit; R² compares with `error_of_mean`, that of the mean."""
    members = model.n_estimators_
    name = "adaptive model" if hasattr(model, "scheme_weights_") else "ensemble"
    if members == math.inf:
        return [_error(name, note, -float(model.best_score_), error_of_mean)]
    errors = [_error(f"{name}, {members} members", note, -float(model.best_score_), error_of_mean)]
    if "mean_test_score_infinity" in model.cv_results_:
        mse = -float(model.cv_results_["mean_test_score_infinity"][model.best_index_])
        limit_note = "limit of more and more members of this size"
        errors.append(_error(f"{name}, infinitely many", limit_note, mse, error_of_mean))
    return errors


def _error(name: str, note: str, mse: float, error_of_mean: float) -> dict[str, Any]:
    if not math.isfinite(mse):
        return {"name": name, "note": note, "rmse": None, "r2": None}
    r2 = _r2(mse, error_of_mean)
    return {"name": name, "note": note, "rmse": math.sqrt(mse), "r2": r2}


def _rmse(mse: Array, standard_error: Array) -> tuple[Array, Array]:
    """Roots of mean squared errors, and standard errors of the roots by the delta method."""
    rmse = np.sqrt(np.maximum(mse, 0.0))  # a damaged file may have negative errors
    return rmse, standard_error / (2 * np.maximum(rmse, 1e-300))


def _curve(model: Any) -> dict[str, Any]:
    """Errors of every candidate size of members with the chosen number of rows."""
    chosen = model.cv_results_["param_max_samples"] == model.max_samples_
    results = {name: values[chosen] for name, values in model.cv_results_.items()}
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
    lines = [
        *heading_lines(summary["data"]),
        "",
        f"{'error of prediction':<28}{'error':>10}{'R²':>8}",
    ]
    for error in summary["errors"]:
        rmse = number(error["rmse"])
        r2 = number(error["r2"], ".3f")
        lines.append(f"  {error['name']:<26}{rmse:>10}{r2:>8}   {error['note']}".rstrip())
    lines += [f"  {interval_text(summary['interval'])}", "", *fact_lines(summary["facts"]), ""]
    return "\n".join([*lines, *effect_lines(summary["effects"])])


def facts(model: Any) -> dict[str, str]:
    """Facts about a fit as strings; attributes that a model of another version lacks are skipped."""
    design = model._result().design
    attributes = vars(model)
    weights_of_targets = scheme_weights(model)
    has_targets = model.coef_.ndim > 1
    lines = {
        "members": _members_text(model),
        "columns in a member": size_of(float(np.sum(model.inclusion_)), model.n_features_in_),
    }
    if not design.all_rows:
        n_rows = resolve_size(design.max_samples, design.n_rows, "max_samples")
        lines["rows in a member"] = size_of(n_rows, design.n_rows)
    if "best_score_" in attributes:
        of_targets = _errors_of_targets(model) if has_targets else None
        mean_errors = errors_of_mean(model)
        if of_targets is None:
            lines["error of prediction"] = _error_text(model) + ", mean over targets" * has_targets
            r2 = None if mean_errors is None else _r2(-model.best_score_, mean_errors.mean())
            if r2 is not None:
                lines["R² of held-out rows"] = f"{r2:.3f}"
        lines["estimated by"] = CRITERIA.get(model.criterion_, str(model.criterion_))
        if cautions := caution(design.n_rows, weights_of_targets):
            lines["caution"] = " ".join(cautions)
        if of_targets is not None:
            lines |= _target_facts(model, of_targets, mean_errors, weights_of_targets)
    if weights_of_targets and not has_targets:
        lines["sampling schemes"] = _schemes_text(weights_of_targets[0])
    if not weights_of_targets or np.any(np.atleast_1d(model.scale_) != 1):
        lines["scale"] = ", ".join(f"{scale:.4g}" for scale in np.atleast_1d(model.scale_))
    if attributes.get("stacking_advantage_") is not None:
        kind = "equal" if np.ptp(model.weights_) == 0 else "stacked"
        lines["weights"] = f"{kind}; stacking is better by {model.stacking_advantage_:.2g} s.e."
    if model.solver_ != "limit":  # members say that it is a closed form
        lines["solver"] = str(model.solver_)
        if model.n_fallbacks_:
            lines["solver"] += f"; {model.n_fallbacks_} members refitted from the data"
    return lines


def _schemes_text(weights: dict[str, float]) -> str:
    schemes = sorted(weights.items(), key=lambda scheme: -scheme[1])
    return ", ".join(f"{scheme} {percent(weight)}" for scheme, weight in schemes)


def _target_facts(
    model: Any,
    errors: Array,
    mean_errors: Array | None,
    weights_of_targets: list[dict[str, float]],
) -> dict[str, str]:
    """One fact for every target: its error, and the weights of its schemes."""
    names = list(model._target_names) or list(map(str, range(len(errors))))
    lines = {}
    for t, (name, mse) in enumerate(zip(names, errors, strict=True)):
        r2 = None if mean_errors is None else _r2(mse, mean_errors[t])
        parts = [f"error {math.sqrt(mse):.4g}"]
        if r2 is not None:
            parts.append(f"R² {r2:.3f}")
        if weights_of_targets:
            parts.append(_schemes_text(weights_of_targets[t]))
        lines[f"target {name}"] = "; ".join(parts)
    return lines


def _errors_of_targets(model: Any) -> Array | None:
    """Mean squared error of held-out rows for each target, (q,); None where only their mean is known."""
    if model._mse_of_targets is not None:
        return np.asarray(model._mse_of_targets)
    rows = held_out_rows(model)
    return None if rows is None else rows.mean_square(rows.observed - rows.predicted)


class HeldOutRows(NamedTuple):
    """Training rows of positive weight with their held-out predictions, NaN where there are none."""

    observed: Array  # (n, q)
    predicted: Array  # (n, q)
    weights: Array  # (n,)

    def mean_square(self, errors: Array) -> Array:
        """Weighted mean squares (q,) of errors (n, q) of the rows that have predictions."""
        is_known = np.isfinite(self.predicted[:, 0])
        return np.asarray(np.average(errors[is_known] ** 2, axis=0, weights=self.weights[is_known]))


def held_out_rows(model: Any) -> HeldOutRows | None:
    """Held-out predictions of the training rows; None if there are none or if the rows are gone."""
    fitted = model._result()
    predicted = np.asarray(getattr(model, "cv_prediction_", ()))
    if fitted.rows is None or not np.isfinite(predicted).any():
        return None
    if fitted.design.kept_rows is not None:
        predicted = predicted[fitted.design.kept_rows]
    observed = fitted.rows.Y
    return HeldOutRows(observed, predicted.reshape(observed.shape), fitted.rows.weights)


def scheme_weights(model: Any) -> list[dict[str, float]]:
    """Weights of the sampling schemes for each target; empty for a model without schemes."""
    weights = getattr(model, "scheme_weights_", [])
    return weights if isinstance(weights, list) else [weights]


def uniform_counts(model: Any) -> list[int]:
    """Numbers of uniform members that were drawn for each target of a model of infinitely many."""
    designs = model._result().designs
    counts = []
    for design, weights in zip(designs, scheme_weights(model), strict=False):
        counts.append(n_uniform_members(design.uniform_weight) if "uniform" in weights else 0)
    return counts


def _members_text(model: Any) -> str:
    """Number of members; uniform members have no closed form and are drawn."""
    if model.n_estimators_ < math.inf:
        return f"{model.n_estimators_}"
    counts = uniform_counts(model)
    schemes = set().union(*scheme_weights(model))
    if schemes == {"null"}:
        return "none; predictions are the mean of the target"
    if not any(counts):
        return "infinitely many, in closed form"
    drawn = f"{' + '.join(str(count) for count in counts if count)} of the uniform scheme"
    if schemes <= {"uniform", "null"}:
        return f"{drawn}, drawn at random"
    return f"{drawn}, drawn at random; of the others infinitely many"


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


def errors_of_mean(model: Any) -> Array | None:
    """Mean squared error (q,) of predicting each row by the mean of the other rows; None without
    rows.
    """
    rows = model._result().rows
    if rows is None:
        return None
    weights = rows.weights / rows.total_weight
    distances = (rows.Y - weights @ rows.Y) / (1 - weights)[:, None]  # from the mean of the others
    errors = weights @ distances**2
    return np.asarray(np.where(errors > ROUNDING_OF_CONSTANTS * (weights @ rows.Y**2), errors, 0.0))


def _r2(mse: float, error_of_mean: float) -> float | None:
    """Fraction of the variance that is explained; None for a constant target."""
    return 1 - float(mse) / float(error_of_mean) if error_of_mean > 0 else None
