"""A table on disk fitted for the command line: loaded where it fits into memory, read in blocks where it does not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline

from .._estimators.tuned import OLSEnsembleRegressorCV
from .._execution import memory
from .._persistence import SavedModel
from .._report import summary as report
from .._report.formatting import quoted
from . import large_tables, terminal
from .tables import Encoding, TableError, is_parquet, learn_table, read_table, shown_name, texts_of

__all__ = ["Reading", "TrainingData", "fit_blocks", "fit_loaded", "open_large", "training_data"]

Array = NDArray[np.float64]
FEWEST_ROWS = 5
FOLDS = 5  # of groups
EMBEDDED_TARGET = "carbon (g/100 g)"


@dataclass(frozen=True)
class Reading:
    """What a user says about the columns of a table."""

    target: str
    drop: tuple[str, ...] = ()
    missing: Literal["error", "drop", "mean"] = "error"
    dates: tuple[str, ...] = ()
    ordinal: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    weight: str | None = None
    groups: str | None = None

    def refuse_in_blocks(self) -> None:
        """Raise for what needs the table in memory."""
        asked = {"--missing": self.missing != "error", "--dates": self.dates, "--ordinal": self.ordinal,
                 "--weight": self.weight, "--groups": self.groups}  # fmt: skip
        if given := [option for option, value in asked.items() if value]:
            raise terminal.UsageError(
                f"{given[0]} needs the table in memory, but it is read in blocks; use a sample of its rows, or prepare "
                f"the columns in the table."
            )


@dataclass(frozen=True)
class TrainingData:
    """A table as numbers."""

    X: Array
    y: Array
    encoding: Encoding
    name: str
    messages: list[str]
    weight: Array | None = None
    groups: list[str] | None = None


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
    model: OLSEnsembleRegressorCV, data: Path | None, how: Reading, command: str, standard_errors: bool
) -> tuple[dict[str, Any], SavedModel]:
    """Fit an OLSEnsembleRegressorCV on a table in memory: the summary and what to save."""
    found = training_data(data, how)
    X, y, encoding, messages = found.X, found.y, found.encoding, found.messages
    if found.groups is not None:
        model.set_params(cv=_grouped(found.groups, how.groups or ""))
    with terminal.working(f"fitting {len(y)} rows, {X.shape[1]} columns"), _warnings_as_notes(messages):
        given = {} if found.groups is None else {"groups": found.groups}
        model.fit(X, y, sample_weight=found.weight, **given)
        about = _about(model, found.name, encoding, messages, command)
        summary = report.summarise(
            model, X, y, encoding.names, weight=found.weight, groups=_folds(model.cv, found, how.groups),
            standard_errors=standard_errors, **about,
        )  # fmt: skip
    left_out = report.left_out_predictions(model, X)[0]
    counted = np.isfinite(left_out)  # rows of weight zero are never left out
    return summary, _saved(model, encoding, np.abs(y - left_out)[counted])


def _saved(model: OLSEnsembleRegressorCV, encoding: Encoding, errors: Array) -> SavedModel:
    pipeline = Pipeline([("columns", encoding.before[0]), ("ensemble", model)])
    return SavedModel(pipeline, encoding.target, np.sort(errors))


def _folds(splitter: Any, found: TrainingData, name: str | None) -> tuple[str, list[Any]] | None:
    """Name of the groups and the rows of each fold, as they were left out; rows of weight zero are in none."""
    if found.groups is None or name is None:
        return None
    kept = np.arange(len(found.y)) if found.weight is None else np.flatnonzero(found.weight > 0)
    groups = np.array(found.groups, dtype=object)[kept]
    return name, [kept[test] for _, test in splitter.split(found.X[kept], found.y[kept], groups)]


def _grouped(groups: list[str], name: str) -> GroupKFold:
    """Five folds that keep groups together, fewer with fewer groups."""
    count = len(set(groups))
    if count < 2:
        raise TableError(f"--groups {quoted(name)} has one group only; errors need rows of other groups.")
    return GroupKFold(min(FOLDS, count))


def fit_blocks(
    model: OLSEnsembleRegressorCV, table: large_tables.ParquetTable, how: Reading, command: str
) -> tuple[dict[str, Any], SavedModel]:
    """The same from one pass over a table that is never loaded."""
    how.refuse_in_blocks()
    messages = [
        f"read in blocks, out of core ({memory.describe(table.n_bytes)}); errors are those of 3-fold cross-validation."
    ]
    with terminal.row_bar("choosing the size, solving the members") as tell, _warnings_as_notes(messages):
        with _unknown_column_is_usage_error():
            encoding = large_tables.learn(table, how.target, [*how.drop, *how.ids], tell)
        messages += encoding.messages
        folds, X, y = large_tables.fit(model, table, encoding, tell)
        about = _about(model, table.path.name, encoding, messages, command)
        summary = report.summarise_folds(model, folds, X, y, encoding.names, **about)
    return summary, _saved(model, encoding, report.sampled_errors(model, folds, X, y))


def training_data(data: Path | None, how: Reading) -> TrainingData:
    """A table in memory as numbers; without one, the embedded example."""
    if data is None:
        name, how = "embedded example, soil carbon from spectra", replace(how, target=EMBEDDED_TARGET)
    else:
        name = shown_name(data)
    table, messages = (_embedded(), []) if data is None else read_table(data, verbatim=how.ids)
    beside = [name for name in (how.weight, how.groups) if name is not None]
    with _unknown_column_is_usage_error():
        if how.target in [*how.drop, *how.ids, *beside]:
            raise KeyError(f"--target {quoted(how.target)} is also left out, or used for something else.")
        table, encoding = learn_table(
            table, how.target, [*how.drop, *beside], missing=how.missing, dates=how.dates, ordinal=how.ordinal,
            ids=how.ids,
        )  # fmt: skip
        groups = None if how.groups is None else texts_of(table, [how.groups])[how.groups]
    y = encoding.response(table)
    if len(y) < FEWEST_ROWS:
        raise TableError(f"{name} has {len(y)} rows; at least {FEWEST_ROWS} are needed.")
    weight = None if how.weight is None else Encoding(how.weight, None, stage="fit").response(table)
    if weight is not None and weight.min() < 0:
        raise TableError(
            f"--weight {quoted(how.weight)} is negative in row {int(np.argmin(weight >= 0)) + 1}; give 0 or more."
        )
    return TrainingData(encoding.features(table), y, encoding, name, messages + encoding.messages, weight, groups)


def _embedded() -> Any:
    import pyarrow as pa

    from ..datasets import load_soil_carbon

    soil = load_soil_carbon()
    columns = dict(zip(map(str, soil.feature_names), soil.data.T, strict=True))
    return pa.table({**columns, EMBEDDED_TARGET: soil.target})


def _about(
    model: OLSEnsembleRegressorCV, data_name: str, encoding: Encoding, messages: list[str], command: str
) -> dict[str, Any]:
    return {"data_name": data_name, "target": encoding.target, "messages": messages, "seed": model.random_state,
            "command": command}  # fmt: skip


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
