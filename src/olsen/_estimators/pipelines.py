"""Intervals, summaries and reports of whole pipelines, by tracing the features of the ensemble to
input columns.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MetaEstimatorMixin
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import MissingIndicator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from .effects import Feature, columns_of_model
from .error_estimates import AdaptiveWidth
from .fitted import FittedEnsemble
from .inputs import check_arguments
from .summary import Summary, write_report

PLACEHOLDER = "\ue000{}\ue001"  # private characters, which occur in no name
ANY_PLACEHOLDER = re.compile(PLACEHOLDER.format("(\\d+)"))


class PipelineParts(NamedTuple):
    """Parts of a fitted pipeline."""

    estimator: Any  # the last step
    # from rows given to the pipeline to rows as the estimator sees them
    transform: Callable[[Any], Any]
    # columns of the estimator; a column made of several or unknown ones is its own source
    features: list[Feature]
    inverse: (
        Callable[[NDArray[Any]], NDArray[Any]] | None
    )  # from the estimator's target to the pipeline's


def predict_interval(
    model: Any,
    X: Any,
    coverage: float | Sequence[float] = 0.9,
    method: str = "auto",
    *,
    adaptive_width: AdaptiveWidth = "auto",
) -> NDArray[np.float64]:
    """Intervals that hold new observations with the given probability, from an ensemble or a whole
    pipeline.

    Parameters
    ----------
    model : fitted estimator
        An ensemble, a scikit-learn ``Pipeline`` that ends with one (nested ones too), a search such
        as ``GridSearchCV`` around it, or a ``TransformedTargetRegressor``, whose intervals are
        transformed back to the original target.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_columns)
        Rows to predict, in the form that the pipeline takes.
    coverage : float or sequence of float, default=0.9
        Probability that a new observation falls inside; several probabilities give as many arrays
        of intervals.
    method : {"auto", "jackknife+", "jackknife", "cv+", "normal"}, default="auto"
        As in :meth:`OLSEnsembleRegressor.predict_interval`.
    adaptive_width : bool or "auto", default="auto"
        Whether widths are scaled by a smooth function of the prediction, as in
        :meth:`OLSEnsembleRegressor.predict_interval`; of the transformed target, if the target was
        transformed.

    Returns
    -------
    interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Lower and upper ends; for several coverages with a first axis more, whose entries belong to
        the coverages.

    Notes
    -----
    Steps before the ensemble are not fitted again without the rows that an interval leaves out.
    This does not matter for scaling and for dummy variables; steps that look at y should be part of
    the search.

    Examples
    --------
    >>> import numpy as np
    >>> import olsen
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> model = make_pipeline(
    ...     StandardScaler(), olsen.AdaptiveOLSEnsembleRegressor()
    ... ).fit(X, X[:, 0])
    >>> olsen.predict_interval(model, X[:2]).shape
    (2, 2)
    """
    parts = _split_ensemble(model)
    ends: NDArray[np.float64] = parts.estimator.predict_interval(
        parts.transform(X), coverage, method, adaptive_width=adaptive_width
    )
    if parts.inverse is None or not np.isfinite(ends).all():  # infinite ends need no transformation
        return ends
    n_coverages = len(ends) if np.ndim(coverage) else 0
    inverse = _of_entries(parts.inverse, n_coverages)
    low = inverse(ends[..., 0])
    middle = inverse(ends.mean(axis=-1))
    high = inverse(ends[..., 1])
    increasing = np.all((low <= middle) & (middle <= high))
    decreasing = np.all((high <= middle) & (middle <= low))
    if not (increasing or decreasing):
        raise ValueError(
            "the inverse of the target's transformer is undefined or not monotone where intervals"
            " lie: take the intervals of the regressor_ of the TransformedTargetRegressor, for the"
            " transformed target."
        )
    return np.stack([np.minimum(low, high), np.maximum(low, high)], axis=-1)


def predict_quantiles(
    model: Any,
    X: Any,
    q: float | Sequence[float],
    method: str = "auto",
    *,
    adaptive_width: AdaptiveWidth = "auto",
) -> NDArray[np.float64]:
    """Quantiles of new observations, from an ensemble or a whole pipeline.

    Parameters
    ----------
    model : fitted estimator
        As in :func:`predict_interval`. A transformed target must have a transformer that increases,
        such as the logarithm, so that quantiles stay quantiles.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_columns)
        Rows to predict, in the form that the pipeline takes.
    q : float or sequence of float
        Probabilities strictly between 0 and 1.
    method, adaptive_width
        As in :func:`predict_interval`.

    Returns
    -------
    quantiles : ndarray of shape (n_samples,) or (n_samples, n_targets)
        As from :meth:`OLSEnsembleRegressor.predict_quantiles`; for several probabilities with a
        first axis more.

    Examples
    --------
    >>> import numpy as np
    >>> import olsen
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> model = make_pipeline(
    ...     StandardScaler(), olsen.AdaptiveOLSEnsembleRegressor()
    ... ).fit(X, X[:, 0])
    >>> olsen.predict_quantiles(model, X[:2], [0.1, 0.5, 0.9]).shape
    (3, 2)
    """
    parts = _split_ensemble(model)
    levels = np.ravel(q)
    quantiles: NDArray[np.float64] = parts.estimator.predict_quantiles(
        parts.transform(X), levels.tolist(), method, adaptive_width=adaptive_width
    )
    if parts.inverse is not None and np.isfinite(quantiles).all():
        quantiles = _of_entries(parts.inverse, len(levels))(quantiles)
        in_order = quantiles[np.argsort(levels)]
        if not np.all(np.diff(in_order, axis=0) >= 0):
            raise ValueError(
                "the inverse of the target's transformer is undefined or does not increase where"
                " quantiles lie: take the quantiles of the regressor_ of the"
                " TransformedTargetRegressor, for the transformed target."
            )
    return quantiles if np.ndim(q) else quantiles[0]


def _of_entries(
    inverse: Callable[[NDArray[Any]], NDArray[Any]], count: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Inverse of a target's transformer for arrays with a first axis of `count` entries, if any."""
    if count == 0:
        return inverse
    return lambda values: np.stack([inverse(entry) for entry in values])


def leverage(model: Any, X: Any) -> NDArray[np.float64]:
    """Distance of rows from the training rows, in units of the training row that is farthest.

    Parameters
    ----------
    model : fitted estimator
        As in :func:`predict_interval`.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_columns)
        Rows to predict, in the form that the pipeline takes.

    Returns
    -------
    leverage : ndarray of shape (n_samples,)
        As from :meth:`OLSEnsembleRegressor.leverage`, of the columns that the ensemble sees.

    Examples
    --------
    >>> import numpy as np
    >>> import olsen
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> model = make_pipeline(
    ...     StandardScaler(), olsen.AdaptiveOLSEnsembleRegressor()
    ... ).fit(X, X[:, 0])
    >>> bool(olsen.leverage(model, [[20.0, 0.0, 0.0]])[0] > 2)
    True
    """
    parts = _split_ensemble(model)
    of_rows: NDArray[np.float64] = parts.estimator.leverage(parts.transform(X))
    return of_rows


def summary(model: Any, coverage: float = 0.9, *, std: bool = True) -> Summary:
    """Summarise the fit of an ensemble, or of a whole pipeline, under the names of its input
    columns.

    Parameters
    ----------
    model : fitted estimator
        As in :func:`predict_interval`. If the target was transformed, values are those of the
        transformed target, and the facts have the error in the original units too.
    coverage : float, default=0.9
        Coverage of the intervals.
    std : bool, default=True
        Whether to compute standard errors, which takes many fits of a tuned model.

    Returns
    -------
    summary : Summary
        As from :meth:`OLSEnsembleRegressor.summary`: it is printed as a table. ``summary.effects``
        has a row for each input column of the pipeline, levels of a factor together, the largest
        effects first; ``summary.coefficients`` has a row for each feature of the ensemble, with the
        input ``column`` that it was made of.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import olsen
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(
    ...     {"area": rng.normal(size=80), "kind": rng.choice(["a", "b", "c"], 80)}
    ... )
    >>> price = table["area"] + 5 * (table["kind"] == "c") + rng.normal(size=80)
    >>> encode = make_column_transformer(
    ...     (OneHotEncoder(), ["kind"]), remainder="passthrough"
    ... )
    >>> model = make_pipeline(encode, olsen.AdaptiveOLSEnsembleRegressor()).fit(
    ...     table, price
    ... )
    >>> olsen.summary(model).effects["column"].tolist()
    ['kind', 'area']
    """
    parts = _split_ensemble(model)
    check_arguments("summary", coverage=coverage)
    return Summary(parts.estimator, coverage, parts.features, std=std, inverse=parts.inverse)


def report(model: Any, path: str | os.PathLike[str]) -> None:
    """Write the report page of an ensemble, or of a whole pipeline, under the names of its input
    columns.

    Parameters
    ----------
    model : fitted estimator
        As in :func:`predict_interval`, around an :class:`OLSEnsembleRegressorCV` or an
        :class:`AdaptiveOLSEnsembleRegressor` with one target.
    path : path
        Name of the HTML file, as in :meth:`AdaptiveOLSEnsembleRegressor.report`.
    """
    parts = _split_ensemble(model)
    write_report(parts.estimator, path, parts.features, parts.inverse)


for function in (leverage, predict_interval, predict_quantiles, report, summary):
    function.__module__ = "olsen"  # the public import path


def split_pipeline(model: Any) -> PipelineParts:
    """Split a fitted model into its parts: pipelines, searches and regressors of transformed
    targets may be nested.
    """
    steps: list[Any] = []
    target_transformers: list[Any] = []
    last: Any = None
    inner = model
    while inner is not None:
        last = inner
        inner = None
        check_is_fitted(last)
        match last:
            case Pipeline():
                steps += [step for _, step in last.steps[:-1] if not _passes(step)]
                inner = last.steps[-1][1]
            case TransformedTargetRegressor():
                target_transformers.append(last.transformer_)
                inner = last.regressor_
            case MetaEstimatorMixin(refit=False):  # a search; their base class is private
                raise ValueError(
                    f"{type(last).__name__} has refit=False, so it holds no fitted model. Use"
                    " refit=True."
                )
            case MetaEstimatorMixin(refit=_):
                inner = last.best_estimator_

    def transform(X: Any) -> Any:
        for step in steps:
            X = step.transform(X)
        return X

    def inverse(y: NDArray[Any]) -> NDArray[Any]:
        original = y.reshape(len(y), -1)
        for transformer in reversed(target_transformers):
            original = np.asarray(transformer.inverse_transform(original))
        return original.reshape(y.shape)

    features = _trace_steps([*steps, last], _input_columns([model, *steps, last]))
    if features is None or len(features) != last.n_features_in_:
        features = _input_columns([last])
    return PipelineParts(last, transform, features, inverse if target_transformers else None)


def _split_ensemble(model: Any) -> PipelineParts:
    """Split a fitted model into its parts, or raise if it does not end with an ensemble."""
    parts = split_pipeline(model)
    if not isinstance(parts.estimator, FittedEnsemble):
        raise TypeError(
            "needs an ensemble of olsen, or a pipeline that ends with one, not"
            f" {type(parts.estimator).__name__}."
        )
    return parts


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _input_columns(estimators: Sequence[Any]) -> list[Feature]:
    """Columns that a pipeline was fitted on, by name or by number, as recorded by the first
    estimator that has them.
    """
    attributes = ("n_features_in_", "feature_names_in_")
    first = next(
        fitted for fitted in estimators if any(hasattr(fitted, name) for name in attributes)
    )
    return columns_of_model(first)


def _trace_steps(steps: Sequence[Any], columns: list[Feature]) -> list[Feature] | None:
    """Features that reach the last step, made of `columns` by the steps before it; None if unknown."""
    features: list[Feature] | None = columns
    for step, next_step in pairwise(steps):
        inputs = features or []
        features = None if features is None else _output_features(step, features)
        if features is None and hasattr(
            next_step, "feature_names_in_"
        ):  # a function of frames may keep column names
            by_name = dict(zip(getattr(step, "feature_names_in_", ()), inputs, strict=False))
            features = [
                by_name.get(name, Feature(str(name), str(name)))
                for name in next_step.feature_names_in_
            ]
    return features


def _output_features(step: Any, columns: list[Feature]) -> list[Feature] | None:
    """Features that a fitted transformer makes of `columns`; None if unknown."""
    if _passes(step) or isinstance(getattr(step, "func", None), np.ufunc):
        return columns
    match step:
        case Pipeline():
            inner_steps = [inner for _, inner in step.steps if not _passes(inner)]
            return _trace_steps([*inner_steps, None], columns)
        case FeatureUnion():
            used = [inner for _, inner in step.transformer_list if inner != "drop"]
            parts = [_output_features(inner, columns) for inner in used]
            return None if None in parts else [feature for part in parts for feature in part or ()]
        case ColumnTransformer():
            return _features_by_position(step, columns)
    return _named_features(step, columns)


def _features_by_position(step: ColumnTransformer, columns: list[Feature]) -> list[Feature]:
    """Features of a fitted ColumnTransformer, in the order of its output columns."""
    features: dict[int, Feature] = {}
    for name, transformer, _ in step.transformers_:
        outputs = step.output_indices_[name]
        indices = range(outputs.start, outputs.stop)
        if len(indices):
            inputs = [columns[j] for j in step._transformer_to_input_indices[name]]
            named = _transformer_features(name, transformer, inputs, indices)
            features.update(zip(indices, named, strict=True))
    return [features[i] for i in range(len(features))]


def _transformer_features(
    name: str, transformer: Any, inputs: list[Feature], indices: range
) -> list[Feature]:
    """Features that one transformer of a ColumnTransformer writes to the output columns `indices`."""
    outputs = _output_features(transformer, inputs)
    if outputs is not None and len(outputs) == len(indices):
        return outputs
    if len(inputs) == 1:  # the outputs are unknown, but their source is not
        return [Feature(f"{name} {i}", inputs[0].source) for i in indices]
    return [Feature(f"{name} {i}", f"{name} {i}") for i in indices]


def _named_features(step: Any, columns: list[Feature]) -> list[Feature] | None:
    """Features by the names of a transformer's outputs, which are made of the names of its inputs.

    Inputs are named by placeholders, because the name of a column may be part of another name.
    """
    unnamed = copy.copy(step)
    if hasattr(unnamed, "feature_names_in_"):
        del unnamed.feature_names_in_  # it would refuse other names than those of its fit
    placeholders = np.array([PLACEHOLDER.format(j) for j in range(len(columns))], dtype=object)
    try:
        names = unnamed.get_feature_names_out(placeholders)
    except (AttributeError, TypeError, ValueError):
        return None
    indicator = step if isinstance(step, MissingIndicator) else getattr(step, "indicator_", None)
    n_values = len(names) - (0 if indicator is None else len(indicator.features_))
    marked = set(getattr(step, "indicator_features_", ()))  # of a TableEncoder
    days = set(getattr(step, "date_features_", ()))
    has_levels = isinstance(step, OneHotEncoder) or hasattr(step, "indicator_features_")
    features = []
    for i, name in enumerate(map(str, names)):
        pieces = ANY_PLACEHOLDER.split(name)  # numbers of inputs stand at odd positions
        positions = pieces[1::2]
        inputs = [columns[int(j)] for j in positions]
        pieces[1::2] = [feature.name for feature in inputs]
        name = "".join(pieces)
        sources = {feature.source for feature in inputs}
        is_indicator = i >= n_values or i in marked or any(feature.indicator for feature in inputs)
        source = sources.pop() if len(sources) == 1 else name
        feature = Feature(name, source, is_indicator, is_date=i in days)
        if has_levels and len(inputs) == 1 and pieces[2] and not is_indicator:  # column_level
            reference = _reference(step, int(positions[0]))
            feature = feature._replace(level=pieces[2].removeprefix("_"), reference=reference)
        features.append(feature)
    return features


def _reference(encoder: Any, column: int) -> str | None:
    """The category of an input column that has no output column, because it was dropped."""
    drop_idx = getattr(encoder, "drop_idx_", None)
    dropped = None if drop_idx is None else drop_idx[column]
    return None if dropped is None else str(encoder.categories_[column][dropped])
