"""A table on disk fitted for the command line: loaded where it fits into memory, read in blocks where it does not."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import _large_tables, _report, _terminal
from ._execution import memory
from ._modelfile import SavedModel
from ._tables import Encoding, TableError, is_parquet, read_table
from .simulation.storage import versions

__all__ = ["fit_blocks", "fit_loaded", "open_large"]


def open_large(data: Path | None, forced: bool) -> _large_tables.ParquetTable | None:
    """The table if it is to be read in blocks, because it is large or because that was asked for."""
    parquet = data is not None and is_parquet(data)
    if forced and not parquet:
        raise _terminal.UsageError(
            "--out-of-core reads Parquet only; convert the table to Parquet, or leave the option out."
        )
    table = _large_tables.open_table(data) if data is not None and parquet else None
    return table if table is not None and (forced or table.is_large) else None


def fit_loaded(
    model, data: Path | None, target: str, drop: list[str], command: str
) -> tuple[dict[str, Any], SavedModel]:
    """Fit an OLSEnsembleRegressorCV on a table in memory: the summary and what to save."""
    X, y, encoding, data_name, messages = _training_data(data, target, drop)
    with _terminal.working(f"fitting {len(y)} rows, {X.shape[1]} columns"), _warnings_as(messages):
        model.fit(X, y)
        about = _about(model, data_name, encoding, messages, command)
        summary = _report.summarise(model, X, y, encoding.names, **about)
    residuals = np.abs(y - _report.left_out_predictions(model, X)[0])
    return summary, SavedModel(model, encoding, np.sort(residuals))


def fit_blocks(
    model, table: _large_tables.ParquetTable, target: str, drop: list[str], command: str
) -> tuple[dict[str, Any], SavedModel]:
    """The same from one pass over a table that is never loaded."""
    messages = [
        f"read in blocks, out of core ({memory.describe(table.n_bytes)}); errors are those of 5-fold cross-validation."
    ]
    with _terminal.row_bar("choosing the size, solving the members") as tell, _warnings_as(messages):
        with _names_were_typed():
            encoding = _large_tables.learn(table, target, drop, tell)
        messages += encoding.messages
        folds, X, y = _large_tables.fit(model, table, encoding, tell)
        about = _about(model, table.path.name, encoding, messages, command)
        summary = _report.summarise_folds(model, folds, X, y, encoding.names, **about)
    return summary, SavedModel(model, encoding, np.sort(_report.sampled_errors(model, folds, X, y)))


def _training_data(data, target, drop):
    if data is None:
        from .datasets import load_soil_carbon

        soil = load_soil_carbon()
        encoding = Encoding("carbon (g/100 g)", [{"name": name} for name in soil.feature_names])
        return soil.data, soil.target, encoding, "embedded example, soil carbon from spectra", []
    table, messages = read_table(data)
    with _names_were_typed():
        encoding = Encoding.learn(table, target, drop)
    y = encoding.response(table)
    if len(y) < 5:
        raise TableError(f"{data.name} has {len(y)} rows; at least 5 are needed.")
    return encoding.features(table), y, encoding, data.name, messages + encoding.messages


def _about(model, data_name, encoding, messages, command):
    return {"data_name": data_name, "target": encoding.target, "messages": messages, "seed": model.random_state,
            "command": command, "versions": versions()}  # fmt: skip


@contextmanager
def _names_were_typed():
    """A column that is not there is a mistake in what was typed."""
    try:
        yield
    except KeyError as error:
        raise _terminal.UsageError(error.args[0]) from None


@contextmanager
def _warnings_as(messages):
    """Warnings become notes under the result instead of lines from inside the library."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    messages += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
