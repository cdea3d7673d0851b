"""Intervals and tables of whole pipelines: the ensemble at their end, and the input column of each of its features."""

from __future__ import annotations

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
from sklearn.utils.validation import check_is_fitted

from .fitted import FittedEnsemble
from .inputs import check_arguments
from .summary import Feature, Summary, columns_of_model, write_report

TAG = re.compile("\ue000(\\d+)\ue001")  # stands for a name: real ones may hold each other


class PipelineParts(NamedTuple):
    """A fitted model taken apart."""

    estimator: Any  # what the pipeline ends with
    transform: Callable[[Any], Any]  # rows as they are given to the pipeline, as the estimator sees them
    features: list[Feature]  # columns of the estimator; made of several or of unknown ones they are their own source
    inverse: Callable[[NDArray[Any]], NDArray[Any]] | None  # from its target to that of the pipeline, if these differ


def predict_interval(model: Any, X: Any, coverage: float = 0.9, method: str = "auto") -> NDArray[np.float64]:
    """Intervals that hold new observations with the given probability, from an ensemble or a whole pipeline.

    Parameters
    ----------
    model : fitted estimator
        An ensemble, a scikit-learn ``Pipeline`` that ends with one (nested ones too), a search such as ``GridSearchCV``
        around it, or a ``TransformedTargetRegressor``, whose intervals are brought back to the target that was given.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_columns)
        Rows to predict, as they are given to the pipeline.
    coverage : float, default=0.9
        Probability that a new observation falls inside.
    method : {"auto", "jackknife+", "jackknife", "cv+", "normal"}, default="auto"
        As in :meth:`OLSEnsembleRegressor.predict_interval`.

    Returns
    -------
    interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Lower and upper ends.

    Notes
    -----
    Steps before the ensemble are taken as they were fitted: they are not fitted again without the rows that an interval
    leaves out. That is no matter for scaling and for dummies; steps that look at y should stand in the search.

    Examples
    --------
    >>> import numpy as np
    >>> import olsen
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> model = make_pipeline(StandardScaler(), olsen.AdaptiveOLSEnsembleRegressor()).fit(X, X[:, 0])
    >>> olsen.predict_interval(model, X[:2]).shape
    (2, 2)
    """
    parts = _with_ensemble(model)
    ends: NDArray[np.float64] = parts.estimator.predict_interval(parts.transform(X), coverage, method)
    if parts.inverse is None or not np.isfinite(ends).all():  # infinite ends stay so
        return ends
    low, middle, high = (parts.inverse(place) for place in (ends[..., 0], ends.mean(axis=-1), ends[..., 1]))
    if not (np.all((low <= middle) & (middle <= high)) or np.all((high <= middle) & (middle <= low))):
        raise ValueError(
            "the inverse of the target's transformer is undefined or not monotone where intervals lie: take those of "
            "the regressor_ of the TransformedTargetRegressor, for its own target."
        )
    return np.stack([np.minimum(low, high), np.maximum(low, high)], axis=-1)


def summary(model: Any, coverage: float = 0.9) -> Summary:
    """What the fit of an ensemble, or of a whole pipeline, came to, with the names of the columns that went in.

    Parameters
    ----------
    model : fitted estimator
        As in :func:`predict_interval`. Of a transformed target everything is in the units of the transformed one.
    coverage : float, default=0.9
        Of the intervals.

    Returns
    -------
    summary : Summary
        As of :meth:`OLSEnsembleRegressor.summary`: it prints as a table. ``summary.effects`` has a row for each column
        that went into the pipeline, levels of a factor together, the largest effects first; ``summary.coefficients``
        has a row for each feature made of them, with the ``column`` that it was made of.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import olsen
    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"area": rng.normal(size=80), "kind": rng.choice(["a", "b", "c"], 80)})
    >>> price = table["area"] + 5 * (table["kind"] == "c") + rng.normal(size=80)
    >>> encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    >>> model = make_pipeline(encode, olsen.AdaptiveOLSEnsembleRegressor()).fit(table, price)
    >>> olsen.summary(model).effects["column"].tolist()
    ['kind', 'area']
    """
    parts = _with_ensemble(model)
    check_arguments("summary", coverage=coverage)
    return Summary(parts.estimator, coverage, parts.features)


def report(model: Any, path: str | os.PathLike[str]) -> None:
    """Write the report page of an ensemble, or of a whole pipeline, with the names of the columns that went in.

    Parameters
    ----------
    model : fitted estimator
        As in :func:`predict_interval`, around an :class:`OLSEnsembleRegressorCV` or an
        :class:`AdaptiveOLSEnsembleRegressor` with one target.
    path : path
        Of the HTML file, as in :meth:`AdaptiveOLSEnsembleRegressor.report`.
    """
    parts = _with_ensemble(model)
    write_report(parts.estimator, path, parts.features)


predict_interval.__module__ = summary.__module__ = report.__module__ = "olsen"  # where users find them


def split_pipeline(model: Any) -> PipelineParts:
    """Take a fitted model apart: pipelines, searches, and regressors of transformed targets around an estimator."""
    steps: list[Any] = []
    targets: list[Any] = []
    last: Any = None
    inner = model
    while inner is not None:
        last, inner = inner, None
        check_is_fitted(last)
        if isinstance(last, Pipeline):
            steps += [step for _, step in last.steps[:-1] if not _passes(step)]
            inner = last.steps[-1][1]
        elif isinstance(last, TransformedTargetRegressor):
            targets.append(last.transformer_)
            inner = last.regressor_
        elif isinstance(last, MetaEstimatorMixin) and hasattr(last, "refit"):  # the class of all searches is private
            if not last.refit:
                raise ValueError(f"{type(last).__name__} has refit=False, so it holds no fitted model. Use refit=True.")
            inner = last.best_estimator_

    def transform(X: Any) -> Any:
        for step in steps:
            X = step.transform(X)
        return X

    def inverse(y: NDArray[Any]) -> NDArray[Any]:
        found = y.reshape(len(y), -1)
        for step in reversed(targets):
            found = np.asarray(step.inverse_transform(found))
        return found.reshape(y.shape)

    found = _through([*steps, last], _columns_of([model, *steps, last]))
    if found is None or len(found) != last.n_features_in_:
        found = _columns_of([last])
    return PipelineParts(last, transform, found, inverse if targets else None)


def _with_ensemble(model: Any) -> PipelineParts:
    parts = split_pipeline(model)
    if not isinstance(parts.estimator, FittedEnsemble):
        raise TypeError(
            f"needs an ensemble of olsen, or a pipeline that ends with one, not {type(parts.estimator).__name__}."
        )
    return parts


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _columns_of(fitted: Sequence[Any]) -> list[Feature]:
    """Columns that the first of these was fitted on that knows them, by name or by number."""
    first = next(one for one in fitted if hasattr(one, "n_features_in_") or hasattr(one, "feature_names_in_"))
    return columns_of_model(first)


def _through(steps: Sequence[Any], columns: list[Feature]) -> list[Feature] | None:
    """The features of the last step, as the others make them of the columns; None where that is not known."""
    found: list[Feature] | None = columns
    for step, after in pairwise(steps):
        before, found = found or [], None if found is None else _made_by(step, found)
        if found is None and hasattr(after, "feature_names_in_"):  # of a function of frames, which may keep their names
            known = dict(zip(getattr(step, "feature_names_in_", ()), before, strict=False))
            found = [known.get(name, Feature(str(name), str(name))) for name in after.feature_names_in_]
    return found


def _made_by(step: Any, columns: list[Feature]) -> list[Feature] | None:
    """The features that a fitted transformer makes of columns."""
    if _passes(step) or isinstance(getattr(step, "func", None), np.ufunc):
        return columns
    if isinstance(step, Pipeline):
        return _through([*(one for _, one in step.steps if not _passes(one)), None], columns)
    if isinstance(step, FeatureUnion):
        parts = [_made_by(one, columns) for _, one in step.transformer_list if one != "drop"]
        return None if None in parts else [feature for part in parts for feature in part or ()]
    if isinstance(step, ColumnTransformer):
        found: dict[int, Feature] = {}
        for name, one, _ in step.transformers_:
            places = range(10**9)[step.output_indices_[name]]
            own = [columns[j] for j in step._transformer_to_input_indices[name]] if len(places) else []
            made = _made_by(one, own) if len(places) else []
            if made is None or len(made) != len(places):  # of one column at least the source is known
                made = [Feature(f"{name} {i}", own[0].source if len(own) == 1 else f"{name} {i}") for i in places]
            found.update(zip(places, made, strict=True))
        return [found[place] for place in range(len(found))]
    return _named_by(step, columns)


def _named_by(step: Any, columns: list[Feature]) -> list[Feature] | None:
    """By the names that a transformer gives to its output, if it had been fitted on columns with tags for names."""
    bare = object.__new__(type(step))
    bare.__dict__.update({name: value for name, value in vars(step).items() if name != "feature_names_in_"})
    try:
        names = bare.get_feature_names_out(np.array([f"\ue000{j}\ue001" for j in range(len(columns))], dtype=object))
    except (AttributeError, TypeError, ValueError):
        return None
    marks = step if isinstance(step, MissingIndicator) else getattr(step, "indicator_", None)  # the last of an imputer
    first_mark = len(names) - (0 if marks is None else len(marks.features_))
    found = []
    for i, name in enumerate(map(str, names)):
        made_of = [columns[int(j)] for j in TAG.findall(name)]
        text, sources = TAG.sub(lambda tag: columns[int(tag[1])].name, name), {one.source for one in made_of}
        marked = i >= first_mark or any(one.indicator for one in made_of)
        found.append(Feature(text, sources.pop() if len(sources) == 1 else text, marked))
    return found
