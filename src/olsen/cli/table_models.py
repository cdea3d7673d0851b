"""Models of tables: fitted, in memory or in blocks of rows for tables too large for it, compared and predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline

from .._engines.engine import NeedsRows
from .._estimators.pipelines import split_pipeline
from .._estimators.summary import Effects, errors_are_cheap
from .._estimators.tuned import TunedEnsemble
from .._execution import memory, versions
from .._moments.moments import Moments
from .._persistence import ModelFileError, damaged_model
from .._report import summary as report
from .._report.formatting import counted, quoted, with_error
from .._trust import refuse_weights
from . import large_tables, terminal
from .columns import rows_before, strings_of
from .commands import TableOptions
from .encoding import Encoding, learn_encoding, numbers_of
from .tables import TableError, is_parquet, read_table, refuse_absent, shown_name

Array = NDArray[np.float64]
FEWEST_ROWS = 5
EMBEDDED_TARGET = "carbon (g/100 g)"
LIMITS = ("lower", "upper")
OTHER_LIMITS = ("lower_limit", "upper_limit")  # for a target that is called lower or upper itself


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
    if data is None or not is_parquet(data):
        if forced:
            raise terminal.UsageError(
                "--out-of-core reads Parquet only; convert the table to Parquet, or leave the option out."
            )
        return None
    table = large_tables.open_table(data)
    return table if forced or table.is_large else None


def training_data(data: Path | None, options: TableOptions) -> TrainingData:
    """A table in memory as numbers; without one, the embedded example. Rows of weight zero are left out."""
    messages: list[str] = []
    if data is None:
        table, name = _embedded(), "embedded example, soil carbon from spectra"
        options = replace(options, target=EMBEDDED_TARGET)
    else:
        (table, messages), name = read_table(data, verbatim=options.id), shown_name(data)
    beside = [name for name in (options.weight, options.groups) if name is not None]
    left_out = [*options.drop, *options.id, *beside]
    if options.target in left_out:
        raise terminal.UsageError(f"--target {quoted(options.target)} is also left out, or used for something else.")
    table, encoding = learn_encoding(
        table, options.target, left_out, missing=options.missing, dates=options.dates, ordinal=options.ordinal
    )
    groups = None if options.groups is None else strings_of(table, [options.groups])[options.groups]
    X, y, weight = encoding.features(table), encoding.response(table), None
    messages = messages + encoding.messages
    if options.weight is not None:
        weight = numbers_of(table, options.weight)
        if weight.min() < 0:
            row = int(np.argmin(weight >= 0)) + 1
            raise TableError(f"--weight {quoted(options.weight)} is negative in row {row}; give 0 or more.")
        kept = np.flatnonzero(weight)
        if len(kept) < len(y):
            messages = [*messages, f"{counted(len(y) - len(kept), 'row')} of weight 0: left out."]
        X, y, weight = X[kept], y[kept], weight[kept]
        groups = groups and [groups[i] for i in kept]
    if len(y) < FEWEST_ROWS:
        raise TableError(f"{name} has {len(y)} rows; at least {FEWEST_ROWS} are needed.")
    encoding.refuse_extremes(X, y)
    if weight is not None:
        try:
            refuse_weights(weight)
        except ValueError as error:
            raise TableError(f"{error}".replace("sample_weight", f"--weight {quoted(options.weight)}", 1)) from None
    return TrainingData(X, y, encoding, name, messages, weight, groups)


def _embedded() -> Any:

    from ..datasets import load_soil_carbon

    soil = load_soil_carbon()
    columns = dict(zip(map(str, soil.feature_names), soil.data.T, strict=True))
    return pa.table({**columns, EMBEDDED_TARGET: soil.target})


# Fitted and compared


def fit(
    model: TunedEnsemble, data: Path | None, options: TableOptions, *, out_of_core: bool,
    standard_errors: bool, compared: bool, command: str,
) -> tuple[dict[str, Any], Pipeline]:  # fmt: skip
    """Fit a model on a table: the summary, and the pipeline to save."""
    large = open_large(data, out_of_core)
    about: dict[str, Any] = {"seed": model.random_state, "command": command}
    if large is not None:
        if compared:
            raise terminal.UsageError("--compare needs the table in memory, but it is read in blocks; use a sample.")
        return _fit_blocks(model, large, options, about)
    rows = training_data(data, options)
    X, y, encoding, given = rows.X, rows.y, rows.encoding, {}
    if compared:
        about["compared"] = _errors(_compare(rows, ensemble=clone(model), seed=model.random_state, jobs=model.n_jobs))
    if rows.groups is not None:
        if len(set(rows.groups)) < 2:
            raise TableError(f"--groups {quoted(options.groups)} has one group only; errors need rows of other groups.")
        model.set_params(cv=GroupKFold(min(5, len(set(rows.groups)))))
        given["groups"] = np.asarray(rows.groups)
        about["groups"] = options.groups, [test for _, test in model.cv.split(X, y, rows.groups)]
    with terminal.progress(f"fitting {len(y)} rows, {X.shape[1]} columns"):
        with terminal.warnings_as_notes(rows.messages, encoding.target):
            model.fit(X, y, sample_weight=rows.weight, **given)
        pipeline, effects = _pipeline(model, encoding, standard_errors and errors_are_cheap(model))
        summary = report.summarise(
            model, X, y, effects, weight=rows.weight, data_name=rows.name, target=encoding.target,
            messages=rows.messages, **about,
        )  # fmt: skip
    return summary, pipeline


def _fit_blocks(
    model: TunedEnsemble, table: large_tables.ParquetTable, options: TableOptions, about: dict[str, Any]
) -> tuple[dict[str, Any], Pipeline]:
    """The same from one pass over a table that is never loaded."""
    if options != TableOptions(options.target, options.drop, id=options.id):
        raise terminal.UsageError(
            "--missing, --dates, --ordinal, --weight and --groups need the table in memory, but it is read in blocks; "
            "use a sample of its rows, or prepare the columns in the table."
        )
    messages = [f"read in blocks, out of core ({memory.describe(table.n_bytes)})."]
    with terminal.progress(unit="rows") as tell, terminal.warnings_as_notes(messages):
        encoding = large_tables.learn(table, options.target, [*options.drop, *options.id], tell)
        messages += encoding.messages
        folds, X, y = large_tables.fit(model, table, encoding, tell)
    pipeline, effects = _pipeline(model, encoding, False, Moments.merge_all(folds))
    summary = report.summarise_folds(model, folds, X, y, effects, data_name=table.path.name,
                                     target=encoding.target, messages=messages, **about)  # fmt: skip
    return summary, pipeline


def _pipeline(
    model: TunedEnsemble, encoding: Encoding, errors: bool, moments: Moments | None = None
) -> tuple[Pipeline, Effects]:
    """What to save, and effects of the columns, with standard errors where these are wanted."""
    pipeline = Pipeline([("columns", encoding.transformer), ("ensemble", model)])
    vars(pipeline)["target_name_"] = encoding.target
    return pipeline, Effects(model, split_pipeline(pipeline).features, errors, moments)


def compare(data: Path | None, options: TableOptions, command: str, **settings: Any) -> dict[str, Any]:
    """The comparison on a table, or on the embedded data, with what is known about the table."""
    if open_large(data, forced=False) is not None:
        raise TableError(f"{data} is too large to be loaded, which comparing needs; compare on a sample of its rows.")
    rows = training_data(data, options)
    found = _compare(rows, **settings)
    about = {"name": rows.name, "rows": len(rows.y), "columns": rows.X.shape[1], "target": rows.encoding.target,
             "messages": rows.messages + report.caution(len(rows.y))}  # fmt: skip
    return {"data": about, **found, "command": command, "versions": versions()}


def _compare(rows: TrainingData, **settings: Any) -> dict[str, Any]:
    """The comparison on the rows of a table; what went wrong is added to its messages."""
    from . import compare as comparing

    with terminal.progress(unit="models") as tell:
        found = comparing.run(rows.X, rows.y, weight=rows.weight, groups=rows.groups, tell=tell, **settings)
    rows.messages.extend(found.pop("notes"))
    return found


def _errors(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of a comparison as errors of a summary."""
    ours = f"{found['folds']}-fold cross-validation, difference to the ensemble ± its standard error below"
    return [
        {"name": line["name"], "rmse": line["rmse"], "r2": line["r2"],
         "note": with_error(line["rmse_difference"], line["rmse_standard_error"]) or ours}
        for line in found["models"]
    ]  # fmt: skip


# Predictions


def open_rows(data: Path, encoding: Encoding, ids: list[str], out_of_core: bool) -> tuple[Any, dict[str, list[str]]]:
    """The table to predict, in memory or to be read in blocks, and its columns that name the rows."""
    large = open_large(data, out_of_core)
    if large is not None:
        if ids:
            raise terminal.UsageError(
                "--id needs the table in memory, but it is read in blocks; join the predictions by row."
            )
        return large, {}
    # a column may name the rows and be one of the model's: then it is read as such
    table, messages = read_table(data, verbatim=[name for name in ids if name not in encoding.needed])
    for message in messages:
        terminal.note(message)
    refuse_absent(ids, table)
    if encoding.target in ids:
        raise terminal.UsageError(f"--id {encoding.target} has the name that the predictions get; rename that column.")
    return table, strings_of(table, ids)


def predictions(
    model: TunedEnsemble, encoding: Encoding, name: str, table: Any, beside: dict[str, list[str]],
    coverage: float | None, tell: terminal.Tell,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Predictions of consecutive rows of a table, `beside` what names them, by a model in a file of this name.

    They have the name of the target; with a `coverage` the limits of intervals follow. A target that is called like
    one of the limits keeps its name, and the limits are called lower_limit and upper_limit.
    """
    columns = (encoding.target, *(OTHER_LIMITS if encoding.target in LIMITS else LIMITS))

    def predict(part: Any) -> Array:
        with damaged_model(name, TableError):
            return _predicted(model, encoding.features(part), rows_before(part), coverage)

    if isinstance(table, large_tables.ParquetTable):
        found = large_tables.predictions(table, encoding, predict, tell)
    else:
        tell("predicting", 0, table.num_rows)
        found = iter([predict(table)])
    for values in found:
        yield {**beside, **dict(zip(columns, values.T, strict=False))}


def _predicted(model: TunedEnsemble, X: Array, before: int, coverage: float | None) -> Array:
    """Predictions, (rows, 1), with a `coverage` also the limits of intervals, (rows, 3)."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.ravel(model.predict(X)).astype(float)
        if not np.isfinite(found).all():
            row = before + int(np.argmin(np.isfinite(found))) + 1
            raise TableError(
                f"the prediction of row {row} is not finite: its cells or the model's coefficients are too large."
            )
        if coverage is None:
            return found[:, None]
        try:
            return np.column_stack([found, model.predict_interval(X, coverage).reshape(-1, 2)])
        except NeedsRows:
            raise ModelFileError(
                "--interval needs the training rows of a model of --model ensemble, and the file has none: it was "
                "fitted with --no-intervals, in blocks, or on more than 64 MiB of rows. Fit with --model adaptive, or "
                "without --no-intervals on a sample of the rows."
            ) from None
