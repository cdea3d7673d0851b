"""Show the contents of a model file: its origin, its training data and its model."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from .. import _persistence
from .._estimators.effects import Effects, Feature
from .._estimators.pipelines import split_pipeline
from .._report.formatting import counted, effect_lines, fact_lines, percent, shortened
from .._report.summary import facts, prediction_error
from .encoding import Encoding


def contents(path: Path) -> dict[str, Any]:
    """Contents of a model file as plain types; the file is checked before any object is built from
    it.
    """
    saved = _persistence.read(path)
    pipeline = saved["model"]
    with _persistence.damaged_model(path.name), zipfile.ZipFile(path) as archive:
        encoding = Encoding.of_model(pipeline)
        model: Any = pipeline[-1]
        features = split_pipeline(pipeline).features
        design = model._result().design
        is_adaptive = hasattr(model, "scheme_weights_")
        written = datetime(*archive.getinfo(_persistence.SCHEMA).date_time)
        file = {
            "name": path.name,
            "bytes": path.stat().st_size,
            "format": _persistence.FORMAT,
            "olsen": str(saved["olsen"]),
            "sklearn": str(saved["sklearn"]),
            "written": f"{written:%Y-%m-%d %H:%M}",
        }
        members = {
            "number": int(model.n_estimators_) if model.n_estimators_ < math.inf else None,
            "mean_columns": float(model.inclusion_.sum()),
            "scale": float(model.scale_),
            "solver": str(model.solver_),
        }
        return {
            "file": file,
            "target": encoding.target,
            "rows": int(design.n_rows if design.n_given is None else design.n_given),
            "columns": _columns(encoding, len(features)),
            "members": members,
            "schemes": dict(model.scheme_weights_) if is_adaptive else None,
            "kept": _selected(model, features) if is_adaptive else None,
            "error": prediction_error(model),
            "effects": Effects(model, features, errors=False).largest(),
            "facts": facts(model),
        }


def _columns(encoding: Encoding, n_features: int) -> dict[str, Any]:
    """Numbers and names of the columns of the table, by kind."""
    dates = []
    text = []
    for column in encoding.columns:
        if column.kind == "date":
            dates.append(column.name)
        if column.levels:
            text.append({"name": column.name, "categories": len(column.levels)})
    n_columns = len(encoding.columns)
    return {"table": n_columns, "encoded": n_features, "dates": dates, "text": text}


def _selected(model: Any, features: list[Feature]) -> list[dict[str, Any]] | None:
    """Columns that a sparse model would keep, with the fraction of the folds that keep them."""
    frequency = model.selection_frequency_
    if not len(frequency):
        return None
    selected = sorted(np.flatnonzero(model.selected_), key=lambda j: -frequency[j])
    return [{"name": features[j].label, "frequency": float(frequency[j])} for j in selected]


def as_text(contents: dict[str, Any]) -> str:
    """Format the contents of a model file for a terminal."""
    file = contents["file"]
    columns = contents["columns"]
    size = f"{file['bytes']:,} bytes"
    if file["bytes"] >= 10_000:
        size = f"{file['bytes'] / 1000:,.0f} kB"
    data = f"{counted(contents['rows'], 'row')}, {counted(columns['table'], 'column')}"
    if columns["dates"]:
        data += f", {len(columns['dates'])} of dates"
    if columns["text"]:
        categories = _named(columns["text"], "categories", str)
        data += f", {len(columns['text'])} of text (categories: {categories})"
    lines = {
        "written": f"{file['written']} by olsen {shortened(file['olsen'])}, {size}",
        "data": f"{data}; {columns['encoded']} after coding",
        **contents["facts"],
    }
    selected = contents["kept"]
    if selected is not None:
        sparse = f"{len(selected)} of {counted(columns['encoded'], 'column')}"
        in_folds = [column for column in selected if column["frequency"] > 0]
        if in_folds:
            sparse += f" (fraction of folds): {_named(in_folds, 'frequency', percent)}"
        if len(in_folds) < len(selected):
            sparse += f"; {len(selected) - len(in_folds)} in no fold"
        lines["a sparse model keeps"] = sparse
    head = f"{shortened(file['name'], 200)}: a model of {shortened(contents['target'])}"
    return "\n".join([head, "", *fact_lines(lines), "", *effect_lines(contents["effects"])])


def _named(columns: list[dict[str, Any]], key: str, format_value: Callable[[Any], str]) -> str:
    """List columns with a value each: the first eight, and the number of the others."""
    names = [f"{shortened(column['name'], 36)} {format_value(column[key])}" for column in columns]
    remainder = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + remainder
