"""Cells that are missing or not finite: counted and named, or their rows left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._report.formatting import quoted
from .table_errors import TableError, counted

__all__ = ["Stage", "is_missing", "refuse_cells", "refuse_missing", "without_gaps"]

Stage = Literal["fit", "blocks", "predict"]  # what a table is read for: a fit in memory or in blocks, or a prediction
MOST_NAMED = 8


def refuse_missing(
    table: Any, names: Iterable[str], first_row: int = 0, *, target: str | None = None, stage: Stage = "fit"
) -> None:
    """Raise if cells are missing or not finite, with their number and the first of their rows.

    `first_row` is the number of the table's first row, where it is part of a larger one.
    """
    import pyarrow.compute as pc

    counts, infinite, first = {}, 0, table.num_rows
    for name in names:
        bad = pc.invert(_usable(table.column(name)))
        count = pc.sum(bad).as_py()
        if count:
            counts[name] = count
            infinite += count - int(is_missing(table.column(name)).sum())
            first = min(first, pc.index(bad, True).as_py())
    refuse_cells(counts, f", the first in row {first_row + first + 1}", target=target, stage=stage, infinite=infinite)


def refuse_cells(
    counts: dict[str, int], where: str = "", *, target: str | None = None, stage: Stage = "blocks", infinite: int = 0
) -> None:
    """Raise if there are cells without a usable number, given how many in each column, and how many are infinite."""
    if counts:
        worst = sorted(counts, key=lambda name: -counts[name])
        named = ", ".join(f"{quoted(name)} ({counts[name]})" for name in worst[:MOST_NAMED])
        more = f" and {len(worst) - MOST_NAMED} more" if len(worst) > MOST_NAMED else ""
        total = sum(counts.values())
        what = {0: "missing", total: "infinite"}.get(infinite, f"missing or not finite ({infinite} infinite)")
        advice = _advice_on_infinite if infinite else _advice
        raise TableError(
            f"{counted(total, 'cell')} {what}, in {counted(counts, 'column')}: {named}{more}{where}. "
            f"{advice(set(counts), target, stage)}"
        )


def _advice_on_infinite(columns: set[str], target: str | None, stage: Stage) -> str:
    """The same where a mean cannot help: no number is the mean of others and infinity."""
    if stage == "predict":
        return "Correct them, or remove these rows."
    rows = "remove these rows" if stage == "blocks" else "leave these rows out (--missing drop)"
    if columns == {target}:
        return f"Correct them, or {rows}."
    others = ", other than the target," if target in columns else ""
    return f"Correct them, {rows}, or leave the columns{others} out with --drop."


def _advice(columns: set[str], target: str | None, stage: Stage) -> str:
    """What can be done at this stage; a target cannot be left out, nor can a column that a model needs."""
    if stage == "predict":
        return "Fill them or remove these rows; a model fitted with --missing mean fills them itself."
    if stage == "blocks":
        return "Fill them or remove these rows" + (
            ", or leave columns out with --drop." if columns != {target} else "."
        )
    if columns == {target}:
        return "Fill them, or leave these rows out with --missing drop."
    if target in columns:
        return "Fill them, or leave these rows out with --missing drop; columns other than the target also with --drop."
    return "Fill them (with means: --missing mean), leave these rows out (--missing drop), or the columns with --drop."


def without_gaps(table: Any, names: Iterable[str]) -> tuple[Any, list[str]]:
    """The rows in which all of these columns have usable cells, and a message that says how many others there were."""
    import pyarrow.compute as pc

    usable = {name: _usable(table.column(name)).to_numpy() for name in names}
    kept = np.logical_and.reduce(list(usable.values()))
    if kept.all():
        return table, []
    if not kept.any():
        worst = min(usable, key=lambda name: usable[name].sum())
        raise TableError(
            f"every row has a cell that is missing or not finite, most in column {quoted(worst)} "
            f"({int((~usable[worst]).sum())} of {len(kept)} rows); leave columns out with --drop, or fill them."
        )
    message = f"{int((~kept).sum())} of {len(kept)} rows left out: cells in them are missing or not finite."
    return table.filter(pc.equal(kept, True)), [message]


def is_missing(column: Any) -> NDArray[np.bool_]:
    """Where a column has no value; infinite numbers are values."""
    import pyarrow.compute as pc

    return np.asarray(pc.is_null(column, nan_is_null=True), dtype=bool)


def _usable(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.is_finite(column), False) if pa.types.is_floating(column.type) else pc.is_valid(column)
