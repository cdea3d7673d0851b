"""Show the contents of a model file: its origin, its training data and its model."""

from __future__ import annotations

import math
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from .. import _persistence
from .._estimators.pipelines import split_pipeline
from .._estimators.summary import Effects
from .._report.formatting import counted, effect_lines, escape_control, percent, shortened
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
        columns = encoding.columns
        design = model._result().design
        adaptive = hasattr(model, "scheme_weights_")
        selected = np.flatnonzero(model.selected_) if adaptive else np.empty(0, dtype=np.int64)
        frequency = model.selection_frequency_ if adaptive else np.empty(0)
        return {
            "file": {
                "name": path.name,
                "bytes": path.stat().st_size,
                "format": _persistence.FORMAT,
                "olsen": str(saved["olsen"]),
                "sklearn": str(saved["sklearn"]),
                "written": (
                    f"{datetime(*archive.getinfo(_persistence.SCHEMA).date_time):%Y-%m-%d %H:%M}"
                ),
            },
            "target": encoding.target,
            "rows": int(design.n_rows if design.n_given is None else design.n_given),
            "columns": {
                "table": len(columns),
                "encoded": len(features),
                "dates": [c.name for c in columns if c.parser.kind == "date"],
                "text": [
                    {"name": c.name, "categories": len(c.categories)}
                    for c in columns
                    if c.categories
                ],
            },
            "members": {
                "number": int(model.n_estimators_) if model.n_estimators_ < math.inf else None,
                "mean_columns": float(model.inclusion_.sum()),
                "scale": float(model.scale_),
                "solver": str(model.solver_),
            },
            "schemes": dict(model.scheme_weights_) if adaptive else None,
            "kept": (
                [
                    {"name": features[j].name, "frequency": float(frequency[j])}
                    for j in sorted(selected, key=lambda j: -frequency[j])
                ]
                if len(frequency)
                else None
            ),
            "error": prediction_error(model),
            "effects": Effects(model, features, errors=False).largest(),
            "facts": dict(facts(model)),
        }


def as_text(contents: dict[str, Any]) -> str:
    """Format the contents of a model file for a terminal."""
    file = contents["file"]
    columns = contents["columns"]
    selected = contents["kept"]
    size = (
        f"{file['bytes']:,} bytes" if file["bytes"] < 10_000 else f"{file['bytes'] / 1000:,.0f} kB"
    )
    data = f"{counted(contents['rows'], 'row')}, {counted(columns['table'], 'column')}"
    if columns["dates"]:
        data += f", {len(columns['dates'])} of dates"
    if columns["text"]:
        data += (
            f", {len(columns['text'])} of text (categories:"
            f" {_named(columns['text'], 'categories', str)})"
        )
    lines = {
        "written": (
            f"{file['written']} (local time there) by olsen {shortened(file['olsen'])}, {size}"
        ),
        "data": f"{data}; {columns['encoded']} after coding",
        **contents["facts"],
    }
    if selected is not None:
        names = (
            f" (fraction of folds): {_named(selected, 'frequency', percent)}" if selected else ""
        )
        lines["a sparse model keeps"] = (
            f"{len(selected)} of {counted(columns['encoded'], 'column')}{names}"
        )
    return "\n".join(
        [
            f"{shortened(file['name'], 200)}: a model of {shortened(contents['target'])}",
            "",
            *(f"  {name:<21}{escape_control(text)}" for name, text in lines.items()),
            "",
            *effect_lines(contents["effects"]),
        ]
    )


def _named(columns: list[dict[str, Any]], key: str, format_value: Any) -> str:
    """List columns with a value each: the first ones, and the number of the others."""
    names = ", ".join(f"{shortened(c['name'], 36)} {format_value(c[key])}" for c in columns[:8])
    n_others = len(columns) - 8
    return f"{names} and {n_others} more" if n_others > 0 else names
