"""A table on disk fitted for the command line: loaded where it fits into memory, read in blocks where it does not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._estimators.tuned import OLSEnsembleRegressorCV
from .._execution import memory
from ..simulation.storage import versions
from . import large_tables, report, terminal
from .models import SavedModel
from .tables import Encoding, TableError, is_parquet, read_table

__all__ = ["fit_blocks", "fit_loaded", "open_large"]

Array = NDArray[np.float64]


def open_large(data: Path | None, forced: bool) -> large_tables.ParquetTable | None:
    """The table if it is to be read in blocks, because it is large or because that was asked for."""
    parquet = data is not None and is_parquet(data)
    if forced and not parquet:
        raise terminal.UsageError(
            "--out-of-core reads Parquet only; convert the table to Parquet, or leave the option out."
        )
    table = large_tables.open_table(data) if data is not None and parquet else None
    return table if table is not None and (forced or table.is_large) else None


def fit_loaded(
    model: OLSEnsembleRegressorCV, data: Path | None, target: str, drop: list[str], command: str
) -> tuple[dict[str, Any], SavedModel]:
    """Fit an OLSEnsembleRegressorCV on a table in memory: the summary and what to save."""
    X, y, encoding, data_name, messages = _training_data(data, target, drop)
    with terminal.working(f"fitting {len(y)} rows, {X.shape[1]} columns"), _warnings_as_notes(messages):
        model.fit(X, y)
        about = _about(model, data_name, encoding, messages, command)
        summary = report.summarise(model, X, y, encoding.names, **about)
    residuals = np.abs(y - report.left_out_predictions(model, X)[0])
    return summary, SavedModel(model, encoding, np.sort(residuals))


def fit_blocks(
    model: OLSEnsembleRegressorCV, table: large_tables.ParquetTable, target: str, drop: list[str], command: str
) -> tuple[dict[str, Any], SavedModel]:
    """The same from one pass over a table that is never loaded."""
    messages = [
        f"read in blocks, out of core ({memory.describe(table.n_bytes)}); errors are those of 5-fold cross-validation."
    ]
    with terminal.row_bar("choosing the size, solving the members") as tell, _warnings_as_notes(messages):
        with _unknown_column_is_usage_error():
            encoding = large_tables.learn(table, target, drop, tell)
        messages += encoding.messages
        folds, X, y = large_tables.fit(model, table, encoding, tell)
        about = _about(model, table.path.name, encoding, messages, command)
        summary = report.summarise_folds(model, folds, X, y, encoding.names, **about)
    return summary, SavedModel(model, encoding, np.sort(report.sampled_errors(model, folds, X, y)))


def _training_data(data: Path | None, target: str, drop: list[str]) -> tuple[Array, Array, Encoding, str, list[str]]:
    if data is None:
        from ..datasets import load_soil_carbon

        soil = load_soil_carbon()
        encoding = Encoding("carbon (g/100 g)", [{"name": name} for name in soil.feature_names])
        return soil.data, soil.target, encoding, "embedded example, soil carbon from spectra", []
    table, messages = read_table(data)
    with _unknown_column_is_usage_error():
        encoding = Encoding.learn(table, target, drop)
    y = encoding.response(table)
    if len(y) < 5:
        raise TableError(f"{data.name} has {len(y)} rows; at least 5 are needed.")
    return encoding.features(table), y, encoding, data.name, messages + encoding.messages


def _about(
    model: OLSEnsembleRegressorCV, data_name: str, encoding: Encoding, messages: list[str], command: str
) -> dict[str, Any]:
    return {"data_name": data_name, "target": encoding.target, "messages": messages, "seed": model.random_state,
            "command": command, "versions": versions()}  # fmt: skip


@contextmanager
def _unknown_column_is_usage_error() -> Iterator[None]:
    """Turn the KeyError of an unknown column into a UsageError."""
    try:
        yield
    except KeyError as error:
        raise terminal.UsageError(error.args[0]) from None


@contextmanager
def _warnings_as_notes(messages: list[str]) -> Iterator[None]:
    """Collect warnings as notes for the summary instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    messages += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
