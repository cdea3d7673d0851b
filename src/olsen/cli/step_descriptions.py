"""Fitted pipelines, and the columns of a table, as plain steps; what has no description is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from .._estimators.fitted import FittedEnsemble
from . import models
from .columns import labels
from .steps import MISSING, STRATEGIES, Node, Steps
from .table_column import TableColumn
from .tables import Encoding

__all__ = ["described", "steps_of_columns"]

ACCEPTED = "ColumnTransformer, OneHotEncoder, OrdinalEncoder, SimpleImputer, StandardScaler and nested Pipelines"


# From fitted objects to plain values


def described(model: Any) -> tuple[Steps, FittedEnsemble]:
    """The steps before an ensemble as plain values, and the ensemble; an error for what has no description."""
    check_is_fitted(model)
    before, last = (model.steps[:-1], model.steps[-1]) if type(model) is Pipeline else ([], (None, model))
    name, ensemble = last
    if type(ensemble) not in models.ENSEMBLES.values():
        raise _refused(ensemble, name)
    check_is_fitted(ensemble)
    first = before[0][1] if before else ensemble
    names = getattr(first, "feature_names_in_", None)
    n = getattr(first, "n_features_in_", None)
    columns = [str(c) for c in names] if names is not None else int(ensemble.n_features_in_ if n is None else n)
    return Steps(columns, [(step, _described(one, step)) for step, one in before], name), ensemble


def _described(transformer: Any, name: str | None) -> Node:
    if transformer is None or (isinstance(transformer, str) and transformer == "passthrough"):
        return {"kind": "passthrough"}
    describe = DESCRIPTIONS.get(type(transformer))
    if describe is None:
        raise _refused(transformer, name)
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        if not isinstance(transformer, (FunctionTransformer, TableColumn)):
            raise
    return describe(transformer, name)


def _refused(step: Any, name: str | None, why: str = "") -> TypeError:
    where = "" if name is None else f" (step {name!r})"
    return TypeError(
        f"a model file cannot hold {type(step).__name__}{where}{why}: it holds an OLSEnsembleRegressor or "
        f"OLSEnsembleRegressorCV, alone or at the end of a Pipeline of {ACCEPTED}. Keep other models with joblib or "
        f"skops, which open in Python alone."
    )


def _plain_scaler(scaler: StandardScaler, name: str | None) -> Node:
    mean = scaler.mean_.tolist() if scaler.with_mean and scaler.mean_ is not None else None
    return {"kind": "scale", "mean": mean, "scale": None if scaler.scale_ is None else scaler.scale_.tolist()}


def _plain_categories(encoder: Any, name: str | None) -> list[list[Any]]:
    found = [[_plain_category(value) for value in known] for known in encoder.categories_]
    if any(type(value) not in (str, int, float, type(None)) for known in found for value in known):
        raise _refused(encoder, name, " with categories that are neither texts nor numbers")
    return found


def _plain_category(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value != value:
        return MISSING
    return int(value) if isinstance(value, bool) else value


def _plain_one_hot(encoder: OneHotEncoder, name: str | None) -> Node:
    if encoder.min_frequency is not None or encoder.max_categories is not None:
        raise _refused(encoder, name, " with infrequent categories")
    dropped = None
    if encoder.drop_idx_ is not None:
        dropped = [None if place is None else int(place) for place in encoder.drop_idx_]
        if None in dropped and encoder.drop != "if_binary":
            raise _refused(encoder, name, f" with drop={encoder.drop!r}")
    unknown = "error" if encoder.handle_unknown == "error" else "ignore"
    return {"kind": "one_hot", "categories": _plain_categories(encoder, name), "dropped": dropped, "unknown": unknown}


def _plain_ordinal(encoder: OrdinalEncoder, name: str | None) -> Node:
    categories, unknown = _plain_categories(encoder, name), None
    if any(MISSING in known for known in categories) or encoder.min_frequency is not None:
        raise _refused(encoder, name, " with missing or infrequent categories")
    if encoder.handle_unknown == "use_encoded_value":
        unknown = float(encoder.unknown_value)
        if not np.isfinite(unknown):
            raise _refused(encoder, name, " with unknown_value=nan")
    return {"kind": "ordinal", "categories": categories, "unknown": unknown}


def _plain_imputer(imputer: SimpleImputer, name: str | None) -> Node:
    values = [value.item() if isinstance(value, np.generic) else value for value in imputer.statistics_]
    missing = imputer.missing_values
    if imputer.strategy not in STRATEGIES or isinstance(missing, str) or not (missing is None or missing != missing):
        raise _refused(imputer, name, " with its own strategy or mark of missing cells")
    if any(value is None or value != value for value in values):
        raise _refused(imputer, name, " with columns that were empty")
    gaps = imputer.indicator_.features_.tolist() if imputer.add_indicator else None
    return {"kind": "impute", "strategy": imputer.strategy, "values": values, "gaps": gaps}


def _plain_function(function: FunctionTransformer, name: str | None) -> Node:
    if function.func is not None:
        raise _refused(function, name)
    return {"kind": "passthrough"}


def _plain_pipeline(pipeline: Pipeline, name: str | None) -> Node:
    return {"kind": "pipeline", "steps": [[step, _described(one, step)] for step, one in pipeline.steps]}


def _plain_columns(transformer: ColumnTransformer, name: str | None) -> Node:
    if transformer.transformer_weights:
        raise _refused(transformer, name, " with transformer_weights")
    names = getattr(transformer, "feature_names_in_", None)
    every: dict[str, int] = {} if names is None else {str(c): i for i, c in enumerate(names)}
    parts = []
    for part, one, columns in transformer.transformers_:
        places = _places(columns, every, int(transformer.n_features_in_))
        if places and not (isinstance(one, str) and one == "drop"):
            parts.append(["rest" if part == "remainder" else part, _described(one, part), places])
    return {"kind": "columns", "parts": parts, "sparse": bool(transformer.sparse_output_),
            "prefix": bool(transformer.verbose_feature_names_out)}  # fmt: skip


def _places(columns: Any, every: dict[str, int], n: int) -> list[int]:
    """Numbers of columns that were given as scikit-learn takes them: names, numbers, slices or truth values."""
    if isinstance(columns, slice) and (isinstance(columns.start, str) or isinstance(columns.stop, str)):
        start = 0 if columns.start is None else every[columns.start]
        stop = n if columns.stop is None else every[columns.stop] + 1  # names include the end
        return list(range(start, stop))
    if isinstance(columns, str):
        return [every[columns]]
    if isinstance(columns, slice):
        return list(range(n))[columns]
    found = np.atleast_1d(np.asarray(columns, dtype=object))
    if all(isinstance(c, str) for c in found):
        return [every[c] for c in found]
    kind = bool if all(isinstance(c, (bool, np.bool_)) for c in found) else int
    return [int(i) for i in np.arange(n)[found.astype(kind)]]


def _plain_table_column(column: TableColumn, name: str | None) -> Node:
    return {"kind": "table_column", "how": dict(column.how)}


DESCRIPTIONS: dict[type, Callable[[Any, str | None], Node]] = {
    StandardScaler: _plain_scaler,
    OneHotEncoder: _plain_one_hot,
    OrdinalEncoder: _plain_ordinal,
    SimpleImputer: _plain_imputer,
    FunctionTransformer: _plain_function,
    Pipeline: _plain_pipeline,
    ColumnTransformer: _plain_columns,
    TableColumn: _plain_table_column,
}


# From the columns of a table to steps


def steps_of_columns(encoding: Encoding) -> Steps:
    """What the command does with the columns of a table, as steps: scikit-learn's own where it has them."""
    parts: list[list[Any]] = []
    for place, how in enumerate(encoding.columns):
        name, node = _step_of(how)
        if parts and name in RUNS and parts[-1][0].rstrip("0123456789") == name:
            _join(parts[-1], node, place)
        else:
            parts.append([f"{name}{len(parts)}", node, [place]])
    columns: Node = {"kind": "columns", "parts": parts, "sparse": False, "prefix": False}
    return Steps([how["name"] for how in encoding.columns], [("columns", columns)], "ensemble")


RUNS = ("numbers", "categories")  # neighbours of one kind share a transformer


def _step_of(how: dict[str, Any]) -> tuple[str, Node]:
    if set(how) == {"name"}:
        return "numbers", {"kind": "passthrough"}
    if set(how) == {"name", "categories"}:
        return "categories", {"kind": "one_hot", "categories": [how["categories"]], "dropped": [0], "unknown": "error"}
    if set(how) == {"name", "categories", "ordinal"}:
        return "order", {"kind": "ordinal", "categories": [how["categories"]], "unknown": None}
    if set(how) <= {"name", "means", "indicator"} and len(labels(how)) == 1 + ("indicator" in how):
        gaps = [0] if how.get("indicator") else []
        return "gaps", {"kind": "impute", "strategy": "mean", "values": how["means"], "gaps": gaps or None}
    return "cells", {"kind": "table_column", "how": how}


def _join(part: list[Any], node: Node, place: int) -> None:
    part[2].append(place)
    if node["kind"] == "one_hot":
        part[1] = {**part[1], "categories": part[1]["categories"] + node["categories"], "dropped": [0] * len(part[2])}
