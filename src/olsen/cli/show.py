"""What is in a model file, for people: where it comes from, what it was fitted on, and what it holds."""

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

MOST_NAMED = 8  # columns with text, and columns kept, that are named on a terminal


def contents(path: Path) -> dict[str, Any]:
    """What a model file holds, as plain types; it is checked before anything is built from it, as for predictions."""
    saved = _persistence.read(path)
    pipeline = saved["model"]
    with _persistence.damaged_model(path.name), zipfile.ZipFile(path) as archive:
        encoding = Encoding.of_model(pipeline)
        model: Any = pipeline[-1]
        features, columns, design = split_pipeline(pipeline).features, encoding.columns, model._result().design
        adaptive = hasattr(model, "scheme_weights_")
        selected = np.flatnonzero(model.selected_) if adaptive else np.empty(0, dtype=np.int64)
        frequency = model.selection_frequency_ if adaptive else np.empty(0)
        return {
            "file": {
                "name": path.name, "bytes": path.stat().st_size, "format": _persistence.FORMAT,
                "olsen": str(saved["olsen"]), "sklearn": str(saved["sklearn"]),
                "written": f"{datetime(*archive.getinfo(_persistence.SCHEMA).date_time):%Y-%m-%d %H:%M}",
            },
            "target": encoding.target,
            "rows": int(design.n_rows if design.n_given is None else design.n_given),
            "columns": {
                "table": len(columns), "encoded": len(features),
                "dates": [c.name for c in columns if c.parser.kind == "date"],
                "text": [{"name": c.name, "categories": len(c.categories)} for c in columns if c.categories],
            },
            "members": {
                "number": int(model.n_estimators_) if model.n_estimators_ < math.inf else None,
                "mean_columns": float(model.inclusion_.sum()), "scale": float(model.scale_),
                "solver": str(model.solver_),
            },
            "schemes": dict(model.scheme_weights_) if adaptive else None,
            "kept": [{"name": features[j].name, "frequency": float(frequency[j])}
                     for j in sorted(selected, key=lambda j: -frequency[j])] if len(frequency) else None,
            "error": prediction_error(model),
            "effects": Effects(model, features, errors=False).largest(),
            "facts": dict(facts(model)),
        }  # fmt: skip


def as_text(found: dict[str, Any]) -> str:
    """The contents for a terminal."""
    file, columns, kept = found["file"], found["columns"], found["kept"]
    size = f"{file['bytes']:,} bytes" if file["bytes"] < 10_000 else f"{file['bytes'] / 1000:,.0f} kB"
    data = f"{counted(found['rows'], 'row')}, {counted(columns['table'], 'column')}"
    if columns["dates"]:
        data += f", {len(columns['dates'])} of dates"
    if columns["text"]:
        data += f", {len(columns['text'])} of text (categories: {_named(columns['text'], 'categories', str)})"
    lines = {
        "written": f"{file['written']} (local time there) by olsen {shortened(file['olsen'])}, {size}",
        "data": f"{data}; {columns['encoded']} after coding",
        **found["facts"],
    }
    if kept is not None:
        named = f" (in so many folds): {_named(kept, 'frequency', percent)}" if kept else ""
        lines["a sparse model keeps"] = f"{len(kept)} of {counted(columns['encoded'], 'column')}{named}"
    return "\n".join([
        f"{shortened(file['name'], 200)}: a model of {shortened(found['target'])}", "",
        *(f"  {name:<21}{escape_control(text)}" for name, text in lines.items()), "",
        *effect_lines(found["effects"]),
    ])  # fmt: skip


def _named(columns: list[dict[str, Any]], key: str, shown: Any) -> str:
    named = ", ".join(f"{shortened(c['name'], 36)} {shown(c[key])}" for c in columns[:MOST_NAMED])
    return named + (f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else "")
