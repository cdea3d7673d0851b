"""Fit, compare and predict with models of tables, in memory or in blocks of rows for tables larger
than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import Pipeline

from .._data.fits import NeedsRows
from .._data.moments import Moments
from .._estimators.effects import Effects, errors_are_cheap
from .._estimators.pipelines import split_pipeline
from .._estimators.tuned import TunedEnsemble
from .._execution import memory, versions
from .._persistence import ModelFileError, damaged_model
from .._report import summary as report
from .._report.formatting import counted, quoted, with_error
from .._tables.cells import rows_before, strings_of
from .._tables.columns import UnreadableColumn
from .._tables.problems import TableError
from .._trust import refuse_weights
from . import large_tables, terminal
from .cautions import cautions, copies
from .commands import TableOptions
from .encoding import Encoding, Settings, learn_encoding, number_column, numbers_of, row_numbers
from .tables import is_parquet, read_table, refuse_absent, shown_name

Array = NDArray[np.float64]
EMBEDDED_TARGET = "carbon (g/100 g)"
LIMIT_NAMES = ("lower", "upper")
ALTERNATIVE_LIMIT_NAMES = (
    "lower_limit",
    "upper_limit",
)  # if the target itself is named lower or upper
FAR_LEVERAGE = 2.0  # of the training row that is farthest: leverage from which on a row is far


@dataclass(frozen=True)
class TrainingData:
    """Encoded training table."""

    X: Array
    y: Array
    encoding: Encoding
    name: str
    messages: list[str]
    cautions: list[str]
    row_names: NDArray[Any]  # identifiers of the rows, or their numbers in the table
    weight: Array | None = None
    groups: NDArray[Any] | None = None


def open_large(data: Path | None, forced: bool) -> large_tables.ParquetTable | None:
    """Open a table that is read in blocks, because it is large or because `forced`; None for a
    table in memory.
    """
    if data is None or not is_parquet(data):
        if forced:
            raise terminal.UsageError(
                "--out-of-core reads Parquet only; convert the table to Parquet, or leave the"
                " option out."
            )
        return None
    table = large_tables.open_table(data)
    return table if forced or table.is_large else None


def training_data(data: Path | None, options: TableOptions) -> TrainingData:
    """Read and encode a table in memory, by default the embedded example. Rows of weight zero are
    left out.
    """
    messages: list[str] = []
    if data is None:
        table = _embedded()
        name = "embedded example, soil carbon from spectra"
        options = replace(options, target=EMBEDDED_TARGET)
    else:
        table, messages = read_table(data, verbatim=options.id)
        name = shown_name(data)
    settings = settings_of(options)
    table, encoding = learn_encoding(
        table, **{f.name: getattr(settings, f.name) for f in fields(settings)}
    )
    encoding = replace(encoding, id_names=options.id)
    X = encoding.features(table)
    y = encoding.response(table)
    data_rows = TrainingData(
        X=X,
        y=y,
        encoding=encoding,
        name=name,
        messages=messages + encoding.messages + copies(encoding.columns, X),
        cautions=cautions(encoding.columns, X, y),
        row_names=_row_names(table, options.id),
        weight=None if options.weight is None else _weights(table, options.weight, options),
    )
    if options.groups is not None:
        groups = np.asarray(strings_of(table, [options.groups])[options.groups])
        data_rows = replace(data_rows, groups=groups)
    data_rows = _without_unweighted_rows(data_rows)
    n_rows = len(data_rows.y)
    if n_rows < 5:
        raise TableError(f"{name} has {n_rows} rows; at least 5 are needed.")
    encoding.refuse_extremes(data_rows.X, data_rows.y)
    if data_rows.weight is not None:
        try:
            refuse_weights(data_rows.weight)
        except ValueError as error:
            label = f"--weight {quoted(options.weight)}"
            raise TableError(str(error).replace("sample_weight", label, 1)) from None
    return data_rows


def _row_names(table: Any, ids: Sequence[str]) -> NDArray[Any]:
    """Identifiers of the rows of a table, or their numbers in the table that was read."""
    columns = strings_of(table, ids).values() if ids else [row_numbers(table)]
    return np.array([", ".join(map(str, names)) for names in zip(*columns, strict=True)])


def settings_of(options: TableOptions) -> Settings:
    """The options as settings of a reader; raise if the target is also used for something else."""
    special_columns = [column for column in (options.weight, options.groups) if column is not None]
    excluded = (*options.drop, *options.id, *special_columns)
    if options.target in excluded:
        raise terminal.UsageError(
            f"--target {quoted(options.target)} is also left out, or used for something else."
        )
    return Settings(
        target=options.target,
        drop=excluded,
        missing=options.missing,
        dates=options.dates,
        ordinal=options.ordinal,
        na=options.na,
        decimal=options.decimal,
    )


def table_to_look_at(data: Path, options: TableOptions) -> tuple[Any, list[str], int]:
    """Read a table, or the first rows of a larger one; also return notes, and the number of rows."""
    large = open_large(data, forced=False)
    if large is not None:
        return large_tables.head(large), [], large.n_rows
    table, notes = read_table(data, verbatim=options.id)
    return table, notes, table.num_rows


def _weights(table: Any, name: str, options: TableOptions) -> Array:
    """Parse the column of row weights; raise if one is negative."""
    label = f"--weight {quoted(name)}"
    try:
        column = number_column(table, name, label, Settings(decimal=options.decimal))
    except UnreadableColumn as error:
        raise TableError(str(error.problem)) from None
    weight = numbers_of(table, column)
    if weight.min() < 0:
        row = int(np.argmin(weight >= 0)) + 1
        raise TableError(f"{label} is negative in row {row}; give 0 or more.")
    return weight


def _without_unweighted_rows(data_rows: TrainingData) -> TrainingData:
    """Leave out the rows of weight zero, and add a note if there are any."""
    weight = data_rows.weight
    if weight is None or weight.all():
        return data_rows
    kept = weight > 0
    n_left_out = len(weight) - int(kept.sum())
    return replace(
        data_rows,
        X=data_rows.X[kept],
        y=data_rows.y[kept],
        weight=weight[kept],
        row_names=data_rows.row_names[kept],
        groups=None if data_rows.groups is None else data_rows.groups[kept],
        messages=[*data_rows.messages, f"{counted(n_left_out, 'row')} of weight 0: left out."],
    )


def _embedded() -> Any:

    from ..datasets import load_soil_carbon

    soil = load_soil_carbon()
    columns = dict(zip(map(str, soil.feature_names), soil.data.T, strict=True))
    return pa.table({**columns, EMBEDDED_TARGET: soil.target})


# Fits and comparisons


def fit(
    model: TunedEnsemble,
    data: Path | None,
    options: TableOptions,
    *,
    out_of_core: bool,
    standard_errors: bool,
    compared: bool,
    command: str,
) -> tuple[dict[str, Any], Pipeline]:
    """Fit a model on a table; return the summary, and the pipeline to save."""
    large = open_large(data, out_of_core)
    origin: dict[str, Any] = {"seed": model.random_state, "command": command}
    if large is not None:
        if compared:
            raise terminal.UsageError(
                "--compare needs the table in memory, but it is read in blocks; use a sample."
            )
        return _fit_blocks(model, large, options, origin)
    data_rows = training_data(data, options)
    X = data_rows.X
    y = data_rows.y
    encoding = data_rows.encoding
    fit_params: dict[str, Any] = {}
    errors = None
    held_out_groups = None
    if compared:
        errors = _errors(
            _compare(data_rows, ensemble=clone(model), seed=model.random_state, jobs=model.n_jobs)
        )
    if options.groups is not None and data_rows.groups is not None:
        n_groups = len(set(data_rows.groups))
        if n_groups < 2:
            raise TableError(
                f"--groups {quoted(options.groups)} has one group only; errors need rows of other"
                " groups."
            )
        model.set_params(cv=GroupKFold(min(5, n_groups)))
        fit_params["groups"] = data_rows.groups
        held_out_groups = (
            options.groups,
            [test for _, test in model.cv.split(X, y, data_rows.groups)],
        )
    with terminal.progress(f"fitting {len(y)} rows, {X.shape[1]} columns"):
        with terminal.warnings_as_notes(data_rows.messages, encoding.target):
            model.fit(X, y, sample_weight=data_rows.weight, **fit_params)
        pipeline, effects = _pipeline(model, encoding, standard_errors and errors_are_cheap(model))
        summary = report.summarise(
            model,
            X,
            y,
            effects,
            weight=data_rows.weight,
            groups=held_out_groups,
            compared=errors,
            row_names=data_rows.row_names,
            data_name=data_rows.name,
            target=encoding.target,
            messages=data_rows.messages,
            cautions=data_rows.cautions,
            **origin,
        )
    return summary, pipeline


def _fit_blocks(
    model: TunedEnsemble,
    table: large_tables.ParquetTable,
    options: TableOptions,
    origin: dict[str, Any],
) -> tuple[dict[str, Any], Pipeline]:
    """Fit a model in one pass over a table that is never loaded; return the summary, and the
    pipeline to save.
    """
    if options != TableOptions(options.target, options.drop, id=options.id):
        raise terminal.UsageError(
            "--missing, --dates, --ordinal, --weight and --groups need the table in memory, but it"
            " is read in blocks; use a sample of its rows, or prepare the columns in the table."
        )
    messages = [f"read in blocks, out of core ({memory.describe(table.n_bytes)})."]
    with terminal.progress(unit="rows") as tell, terminal.warnings_as_notes(messages):
        encoding = large_tables.learn(table, options.target, [*options.drop, *options.id], tell)
        messages += encoding.messages
        encoding = replace(encoding, id_names=options.id)
        folds, X, y = large_tables.fit(model, table, encoding, tell)
    pipeline, effects = _pipeline(model, encoding, False, Moments.merge_all(folds))
    summary = report.summarise_folds(
        model,
        folds,
        X,
        y,
        effects,
        data_name=table.path.name,
        target=encoding.target,
        messages=messages,
        **origin,
    )
    return summary, pipeline


def _pipeline(
    model: TunedEnsemble, encoding: Encoding, errors: bool, moments: Moments | None = None
) -> tuple[Pipeline, Effects]:
    """Build the pipeline to save, and the effects of the columns, with standard errors if `errors`."""
    pipeline = Pipeline([("tableencoder", encoding.encoder), (type(model).__name__.lower(), model)])
    vars(pipeline).update(target_name_=encoding.target, id_names_=list(encoding.id_names))
    return pipeline, Effects(model, split_pipeline(pipeline).features, errors, moments)


def compare(
    data: Path | None, options: TableOptions, command: str, **settings: Any
) -> dict[str, Any]:
    """Compare models on a table, by default the embedded data, and describe the table."""
    if open_large(data, forced=False) is not None:
        raise TableError(
            f"{data} is too large to be loaded, which comparing needs; compare on a sample of its"
            " rows."
        )
    data_rows = training_data(data, options)
    comparison = _compare(data_rows, **settings)
    n_rows, n_columns = data_rows.X.shape
    description = {
        "name": data_rows.name,
        "rows": n_rows,
        "columns": n_columns,
        "table_columns": len(data_rows.encoding.columns),
        "target": data_rows.encoding.target,
        "messages": data_rows.messages,
        "cautions": [*data_rows.cautions, *report.caution(n_rows, [])],
    }
    return {"data": description, **comparison, "command": command, "versions": versions()}


def _compare(data_rows: TrainingData, **settings: Any) -> dict[str, Any]:
    """Compare models on an encoded table; failed fits are added to its messages."""
    from . import compare as comparing

    with terminal.progress(unit="models") as tell:
        comparison = comparing.run(
            data_rows.X,
            data_rows.y,
            weight=data_rows.weight,
            groups=data_rows.groups,
            tell=tell,
            **settings,
        )
    data_rows.messages.extend(comparison.pop("notes"))
    return comparison


def _errors(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert the lines of a comparison to the errors of a summary."""
    ensemble_note = (
        f"{comparison['folds']}-fold cross-validation; below, the difference to olsen ± its"
        " standard error"
    )
    errors = []
    for line in comparison["models"]:
        difference = with_error(line["rmse_difference"], line["rmse_standard_error"])
        error = {
            "name": line["name"],
            "rmse": line["rmse"],
            "r2": line["r2"],
            "note": difference or ensemble_note,
        }
        errors.append(error)
    return errors


# Predictions


def open_rows(
    data: Path, encoding: Encoding, ids: list[str], out_of_core: bool
) -> tuple[Any, dict[str, list[str]]]:
    """Open the table to predict, in memory or in blocks, and read the columns that name the rows."""
    large = open_large(data, out_of_core)
    if large is not None:
        if ids:
            raise terminal.UsageError(
                "--id needs the table in memory, but it is read in blocks; join the predictions by"
                " row."
            )
        return large, {}
    # an identifier that is also a column of the model is read like the other columns of the model
    verbatim = [name for name in ids or encoding.id_names if name not in encoding.needed]
    table, messages = read_table(data, verbatim=verbatim)
    ids = ids or [name for name in encoding.id_names if name in table.column_names]
    for message in messages:
        terminal.note(message)
    refuse_absent(ids, table)
    taken = [name for name in prediction_names(encoding.target) if name in ids]
    if taken:
        raise terminal.UsageError(
            f"--id {taken[0]} has a name that the predictions get; rename that column."
        )
    return table, strings_of(table, ids)


def prediction_names(target: str) -> tuple[str, str, str, str]:
    """Names of the column of predictions, of the limits of intervals, and of the mark of far rows;
    none is the target's, so that predictions can be joined with the table.
    """
    return (
        f"predicted_{target}",
        *(ALTERNATIVE_LIMIT_NAMES if target in LIMIT_NAMES else LIMIT_NAMES),
        "is_far_row" if target == "far_row" else "far_row",
    )


def prediction_decimals(model: TunedEnsemble) -> int | None:
    """Decimals of written predictions: the last one is less than a thousandth of the error of
    prediction. None, all digits, if the error is zero or not of an ordinary magnitude.
    """
    error = report.prediction_error(model)["rmse"]
    if not 1e-9 < error < np.inf:
        return None
    return max(0, 3 - int(np.floor(np.log10(error))))


def predictions(
    model: TunedEnsemble,
    encoding: Encoding,
    table: Any,
    *,
    model_name: str,
    row_names: dict[str, list[str]],
    coverage: float | None,
    notes: list[str],
    tell: terminal.Tell,
) -> Iterator[dict[str, Any]]:
    """Columns of row names and predictions, for consecutive blocks of rows; `model_name` is the
    name of the model file.

    With a `coverage` the limits of intervals follow the predictions: lower and upper, or lower_limit
    and upper_limit if the target itself is named lower or upper. A last column marks far rows if the
    model knows the leverage of its training rows; after the last block `notes` has their number.
    """
    name, *limits, far_name = prediction_names(encoding.target)
    n_rows = 0
    n_far = 0

    def predict(part: Any) -> dict[str, Any]:
        X = encoding.features(part)
        with damaged_model(model_name, TableError):
            values = _predicted(model, X, rows_before(part), coverage)
            far = _far_rows(model, X)
        columns: dict[str, Any] = dict(zip([name, *limits], values.T, strict=False))
        return columns if far is None else {**columns, far_name: far}

    if isinstance(table, large_tables.ParquetTable):
        blocks = large_tables.predictions(table, encoding, predict, tell)
    else:
        tell("predicting", 0, table.num_rows)
        blocks = iter([predict(table)])
    for columns in blocks:
        n_rows += len(columns[name])
        n_far += sum(columns.get(far_name, ()))
        yield {**row_names, **columns}
    if n_far:
        notes.append(
            f"{n_far} of {counted(n_rows, 'row')} are more than twice as far out as any training row,"
            f" marked in column {far_name}: their predictions are extrapolations."
        )


def _far_rows(model: TunedEnsemble, X: Array) -> list[bool] | None:
    """Whether every row is far from the training rows; None if the model does not know."""
    try:
        leverage = model.leverage(X)
    except (NeedsRows, MemoryError):
        return None
    far: list[bool] = (leverage >= FAR_LEVERAGE).tolist()
    return far


def _predicted(model: TunedEnsemble, X: Array, first_row: int, coverage: float | None) -> Array:
    """Predictions, (n_rows, 1); with a `coverage` also the limits of intervals, (n_rows, 3)."""
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = np.ravel(model.predict(X)).astype(float)
        is_finite = np.isfinite(predicted)
        if not is_finite.all():
            row = first_row + int(np.argmin(is_finite)) + 1
            raise TableError(
                f"the prediction of row {row} is not finite: its cells or the model's coefficients"
                " are too large."
            )
        if coverage is None:
            return predicted[:, None]
        try:
            return np.column_stack([predicted, model.predict_interval(X, coverage).reshape(-1, 2)])
        except NeedsRows:
            raise ModelFileError(
                "--interval needs the training rows of a model of --model ensemble, and the file"
                " has none: it was fitted with --no-intervals, in blocks, or on more than 64 MiB of"
                " rows. Fit with --model adaptive, or without --no-intervals on a sample of the"
                " rows."
            ) from None
