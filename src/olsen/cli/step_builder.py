"""Fitted scikit-learn objects from plain steps, and nothing else: no type is looked up by its name.

Transformers are fitted to two made-up rows, so that whatever a version of scikit-learn keeps is there, and then given
the values that the file holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from .._estimators.fitted import FittedEnsemble
from .steps import MISSING, Node, Steps, holds_text, leaves, width
from .table_column import TableColumn

__all__ = ["TARGET_ATTRIBUTE", "built", "transformer_of"]

TARGET_ATTRIBUTE = "target_name_"


def built(steps: Steps, ensemble: FittedEnsemble, target: str | None = None) -> Any:
    """The pipeline, or the ensemble alone, fitted."""
    if steps.last is None:
        names = {} if isinstance(steps.names, int) else {"feature_names_in_": np.array(steps.names, dtype=object)}
        return _restored(ensemble, **names, **_target(target))
    fitted, columns = [], steps.names
    for name, node in steps.steps:
        fitted.append((name, transformer_of(node, columns)))
        columns = width(node, columns if isinstance(columns, int) else len(columns))
    return _restored(Pipeline([*fitted, (steps.last, ensemble)]), **_target(target))


def _target(target: str | None) -> dict[str, Any]:
    return {} if target is None else {TARGET_ATTRIBUTE: target}


def _restored(fitted: Any, **state: Any) -> Any:
    """A fitted object with other values, as from a pickle."""
    fitted.__setstate__({**fitted.__getstate__(), **state})
    return fitted


def transformer_of(node: Node, names: list[str] | int) -> Any:
    """A transformer fitted to what a node says, for columns with these names or of this number."""
    transformer = _unfitted(node, names)
    if isinstance(transformer, str):
        return transformer
    n = names if isinstance(names, int) else len(names)
    examples = [_example(node, place) for place in range(n)]
    transformer.fit(_table(examples, names))
    _restore(transformer, node)
    return transformer


def _unfitted(node: Node, names: Sequence[str] | int) -> Any:
    kind = node["kind"]
    if kind == "passthrough":
        return "passthrough"
    if kind == "scale":
        return StandardScaler(with_mean=node["mean"] is not None, with_std=node["scale"] is not None)
    if kind == "one_hot":
        return OneHotEncoder(
            categories=_categories(node), drop=_dropped(node), handle_unknown=node["unknown"], sparse_output=False
        )
    if kind == "ordinal":
        given = (
            {} if node["unknown"] is None else {"handle_unknown": "use_encoded_value", "unknown_value": node["unknown"]}
        )
        return OrdinalEncoder(categories=_categories(node), **given)
    if kind == "impute":
        fill = {"fill_value": node["values"][0]} if node["strategy"] == "constant" and node["values"] else {}
        return SimpleImputer(strategy=node["strategy"], add_indicator=node["gaps"] is not None, **fill)
    if kind == "table_column":
        return TableColumn(node["how"])
    if kind == "pipeline":
        return Pipeline([(name, _unfitted(inner, 0)) for name, inner in node["steps"]])
    columns = [
        (name, _unfitted(inner, 0), places if isinstance(names, int) else [names[i] for i in places])
        for name, inner, places in node["parts"]
    ]
    return ColumnTransformer(columns, sparse_threshold=float(node["sparse"]), verbose_feature_names_out=node["prefix"])


def _categories(node: Node) -> list[Any]:
    return [
        np.array([np.nan if value is MISSING else value for value in known],
                 dtype=object if any(isinstance(value, str) for value in known) else float)
        for known in node["categories"]
    ]  # fmt: skip


def _dropped(node: Node) -> Any:
    dropped = node["dropped"]
    if dropped is None or None in dropped:
        return dropped and "if_binary"
    if not any(dropped):
        return "first"
    return np.array([known[place] for known, place in zip(_categories(node), dropped, strict=True)], dtype=object)


def _example(node: Node, place: int) -> list[Any]:
    """Two cells of a column that a transformer can be fitted to."""
    if node["kind"] == "columns":
        for _, inner, places in node["parts"]:
            if place in places:
                return _example(inner, places.index(place))
        return [0.0, 1.0]
    if node["kind"] == "table_column":
        return [None, None]
    steps = list(leaves(node))
    known = next((leaf["categories"][place][0] for leaf in steps if "categories" in leaf), None)
    known = np.nan if known is MISSING and any("categories" in leaf for leaf in steps) else known
    filled = next((leaf for leaf in steps if leaf["kind"] == "impute"), None)
    if filled is None:
        return [0.0, 1.0] if known is None else [known, known]
    value = filled["values"][place]
    if known is not None and value not in next(leaf["categories"][place] for leaf in steps if "categories" in leaf):
        value = known  # the columns had no gap that could have been filled
    missing: Any = None if holds_text(node, place) else np.nan
    return [value, missing if place in (filled["gaps"] or ()) else value]


def _table(examples: list[list[Any]], names: list[str] | int) -> Any:
    """Two rows: a data frame where the columns have names."""
    if isinstance(names, int):
        return np.array(examples, dtype=object if any(isinstance(e[0], str) for e in examples) else float).T
    columns = dict(zip(names, examples, strict=True))
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        return _polars()(columns, strict=False)
    return pandas.DataFrame(columns)


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError(
            "a model of a table with named columns takes data frames, and there is no library for them: "
            "pip install pandas, or polars"
        ) from None
    return polars.DataFrame


def _restore(transformer: Any, node: Node) -> None:
    """Give a transformer that was fitted to two rows the values it had."""
    kind = node["kind"]
    if kind == "scale":
        mean, scale = (None if node[name] is None else np.array(node[name], dtype=float) for name in ("mean", "scale"))
        _restored(transformer, mean_=mean, scale_=scale, var_=None if scale is None else scale**2)
    elif kind == "impute":
        kinds = object if any(isinstance(value, str) for value in node["values"]) else float
        _restored(transformer, statistics_=np.array(node["values"], dtype=kinds))
    elif kind == "one_hot" and node["dropped"] is not None:
        whole = None in node["dropped"]
        _restored(transformer, drop_idx_=np.array(node["dropped"], dtype=object if whole else None))
    elif kind == "pipeline":
        for (_, inner), (_, one) in zip(node["steps"], transformer.steps, strict=True):
            _restore(one, inner)
    elif kind == "columns":
        for (_, inner, _), (_, one, _) in zip(node["parts"], transformer.transformers_, strict=False):
            _restore(one, inner)
        _restored(transformer, sparse_output_=node["sparse"])
