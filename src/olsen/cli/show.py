"""What is in a model file, for people: where it comes from, what it was fitted on, and what it holds."""

from __future__ import annotations

import math
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from .. import OLSEnsembleRegressorCV, _persistence
from .._report.formatting import columns_of, counted, number, padded, percent, shortened, size_of_members
from .encoding import Encoding, leaves

__all__ = ["as_text", "contents"]

MOST_COEFFICIENTS = 10
MOST_NAMED = 8  # columns with text, and columns kept, that are named on a terminal
LONGEST_NAME = 36
LONGEST_FILE_NAME = 200
CRITERIA = {
    "loo": "rows left out one at a time",
    "gcv": "generalised cross-validation",
    "kfold": "folds of rows left out",
    "oob": "rows that members were not given",
}


def contents(path: Path) -> dict[str, Any]:
    """What a model file holds, as plain types; what its version did not store is None.

    Parameters
    ----------
    path : Path
        A model written by ``olsen fit``, of this version or an older one. It is checked before anything is read from
        it, as for predictions.

    Returns
    -------
    dict
        ``file``, ``target``, ``rows``, ``columns``, ``members``, ``laws``, ``kept``, ``error``, ``coefficients``,
        ``scaled``.
    """
    saved = _persistence.read(path)
    with _persistence.damaged_model(path.name):
        return _contents(saved, path)


def _contents(saved: _persistence.SavedModel, path: Path) -> dict[str, Any]:
    encoding = Encoding.of_model(saved.model, saved.target)
    model: Any = saved.ensemble
    names, design = encoding.names, model._result().design
    return {
        "file": _origin(path, saved),
        "target": saved.target,
        "rows": int(design.n_rows if design.n_given is None else design.n_given),
        "columns": _kinds(encoding),
        "members": {
            "number": int(model.n_estimators_) if model.n_estimators_ < math.inf else None,
            "mean_columns": float(model.inclusion_.sum()),
            "scale": float(model.scale_),
            "solver": str(model.solver_),
        },
        "laws": _laws(model),
        "kept": _kept(model, names),
        "error": _error(saved),
        "coefficients": _coefficients(model, names),
        "scaled": any(isinstance(step, StandardScaler) for step in leaves(saved.model)),
    }


def _origin(path: Path, saved: _persistence.SavedModel) -> dict[str, Any]:
    """Where a file comes from, as far as it says."""
    with zipfile.ZipFile(path) as archive:
        written = datetime(*archive.getinfo(_persistence.SCHEMA).date_time)
    return {
        "name": path.name,
        "bytes": path.stat().st_size,
        "format": _persistence.FORMAT,
        **saved.versions,
        "written": written.isoformat(sep=" ", timespec="minutes"),
    }


def _kinds(encoding: Encoding) -> dict[str, Any]:
    columns = encoding.columns
    text = [{"name": c.name, "categories": len(c.categories)} for c in columns if c.categories is not None]
    dates = [c.name for c in columns if c.parser is not None and c.parser.kind == "date"]
    return {
        "table": len(columns),
        "numbers": len(columns) - len(text) - len(dates),
        "dates": dates,
        "text": text,
        "encoded": len(encoding.names),
    }


def _laws(model: Any) -> dict[str, float] | None:
    """Shares of the sampling schemes of a tuned model."""
    if not isinstance(model, OLSEnsembleRegressorCV):
        return None
    shares = model.inclusion_shares_
    return dict(shares[0] if isinstance(shares, list) else shares)  # one target may stand in a table of targets


def _kept(model: Any, names: list[str]) -> list[dict[str, Any]] | None:
    """Columns that a sparse model would keep, the surest first; None where that was not asked, or is not known."""
    selected = np.ravel(getattr(model, "selected_", np.empty(0, dtype=bool)))
    if not len(selected):
        return None
    share = np.ravel(model.selection_frequency_)
    order = sorted(np.flatnonzero(selected), key=lambda j: -share[j])
    return [{"name": names[j], "frequency": float(share[j])} for j in order]


def _error(saved: _persistence.SavedModel) -> dict[str, Any]:
    """Error of prediction with its standard error, as tuning found it; otherwise from the errors in the file."""
    model = saved.ensemble
    if not isinstance(model, OLSEnsembleRegressorCV) or not math.isfinite(model.best_score_):
        squares = saved.residuals**2
        return _root(float(squares.mean()), float(squares.std() / math.sqrt(len(squares))), "the errors in the file")
    spread = float(model.cv_results_["standard_error"][model.best_index_])
    return _root(-float(model.best_score_), spread, CRITERIA.get(model.criterion_, model.criterion_))


def _root(mse: float, error: float, source: str) -> dict[str, Any]:
    rmse = math.sqrt(max(mse, 0.0))
    spread = error / (2 * rmse) if rmse > 0 else math.nan  # delta method
    return {"rmse": rmse, "standard_error": spread if math.isfinite(spread) else None, "from": source}


def _coefficients(model: Any, names: list[str]) -> list[dict[str, Any]]:
    coef = np.ravel(model.coef_)
    order = np.argsort(-np.abs(coef), kind="stable")[:MOST_COEFFICIENTS]
    return [{"name": names[j], "coefficient": float(coef[j]), "drawn": float(model.inclusion_[j])} for j in order]


def as_text(found: dict[str, Any]) -> str:
    """The contents for a terminal."""
    file, members, error, encoded = found["file"], found["members"], found["error"], found["columns"]["encoded"]
    version = f"olsen {shortened(file['olsen'])}" if file["olsen"] else "a version of olsen that did not say which"
    plus_minus = "" if error["standard_error"] is None else f" ± {number(error['standard_error'], '.2g')}"
    lines = [
        f"{shortened(file['name'], LONGEST_FILE_NAME)}: a model of {shortened(found['target'])}",
        "",
        f"  written   {file['written']} (local time there) by {version}, {_bytes(file['bytes'])}",
        f"  data      {counted(found['rows'], 'row')}, {_columns_text(found['columns'])}",
        f"  members   {members['number'] or 'infinitely many'} of {size_of_members(members['mean_columns'], encoded)}, "
        f"scale {members['scale']:.3g}, solver {shortened(members['solver'])}",
    ]
    if found["laws"]:
        shares = sorted(found["laws"].items(), key=lambda law: -law[1])
        lines.append(f"  drawn by  {', '.join(f'{shortened(name)} {percent(share)}' for name, share in shares)}")
    lines.append(f"  error     {number(error['rmse'])}{plus_minus} (root mean square, from {shortened(error['from'])})")
    if found["kept"] is not None:
        lines.append(f"  a sparse model {_kept_text(found['kept'], encoded)}")
    return "\n".join([*lines, "", *_coefficient_lines(found["coefficients"], found["scaled"])])


def _columns_text(columns: dict[str, Any]) -> str:
    text, dates = columns["text"], columns["dates"]
    if not text and not dates:
        return f"{counted(columns['table'], 'column')} of numbers"
    kinds = [f"{columns['numbers']} of numbers"]
    kinds += [f"{len(dates)} of dates"] if dates else []
    if text:
        named = ", ".join(f"{shortened(c['name'], LONGEST_NAME)} {c['categories']}" for c in text[:MOST_NAMED])
        more = f" and {len(text) - MOST_NAMED} more" if len(text) > MOST_NAMED else ""
        kinds.append(f"{len(text)} of text (categories: {named}{more})")
    return f"{counted(columns['table'], 'column')}: {', '.join(kinds)}; {columns['encoded']} after coding"


def _kept_text(kept: list[dict[str, Any]], encoded: int) -> str:
    if not kept:
        return "would keep no column"
    named = ", ".join(f"{shortened(c['name'], LONGEST_NAME)} {percent(c['frequency'])}" for c in kept[:MOST_NAMED])
    more = f" and {len(kept) - MOST_NAMED} more" if len(kept) > MOST_NAMED else ""
    return f"would keep {len(kept)} of {counted(encoded, 'column')} (in so many folds): {named}{more}"


def _coefficient_lines(coefficients: list[dict[str, Any]], scaled: bool) -> list[str]:
    names = [shortened(c["name"], LONGEST_NAME) for c in coefficients]
    width = max(20, *map(columns_of, names))
    lines = [f"{'largest coefficients':<{width + 2}}{'per unit':>12}{'drawn':>8}"]
    lines += [
        f"  {padded(name, width)}{c['coefficient']:>12.4g}{percent(c['drawn']):>8}"
        for name, c in zip(names, coefficients, strict=True)
    ]
    if scaled:
        return [*lines, "Coefficients are those of columns that the steps before have scaled."]
    return [*lines, "Coefficients are in units of the columns: they are no measure of importance."]


def _bytes(n: int) -> str:
    return f"{n:,} bytes" if n < 10_000 else f"{n / 1000:,.0f} kB"
