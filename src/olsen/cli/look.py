"""Look at a table: what its columns are, what a fit would do with them, and the command that works."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from .._report.formatting import counted, escape_control, padded, shortened
from .._tables import cells
from .._tables.columns import UNKNOWN, Column, without_marks
from .._tables.problems import Change, Problem, TableError
from . import remedies, table_models
from .cautions import cautions, copies
from .commands import TableOptions
from .encoding import Rows, Settings, check_names, problems_of, rows_to_use
from .table_models import settings_of
from .tables import STANDARD_INPUT, shown_name

JUDGED_ROWS = 200_000  # of larger tables are judged first, and all rows checked after that
COUNTED_ROWS = 100_000  # of larger tables, distinct values are counted and cautions given of these
EXAMPLES = 3


@dataclass(frozen=True)
class Findings:
    """What the rows of a table were found to hold: facts of each column, problems and solutions."""

    facts: list[dict[str, Any]]
    problems: list[Problem]
    changes: list[Change]
    rows: Rows


def contents(data: Path, options: TableOptions) -> dict[str, Any]:
    """What a table holds and what a fit would do, as plain types."""
    settings = settings_of(options)
    table, notes, n_rows = table_models.table_to_look_at(data, options)
    check_names(table, settings)
    # what the first rows show is checked on all rows; where they do not tell, all rows are judged
    findings = None
    if table.num_rows > JUDGED_ROWS:
        findings = _findings(table, settings, table.slice(0, JUDGED_ROWS))
    findings = findings or _findings(table, settings, table)
    if findings is None:
        raise TableError("the table cannot be looked at.")
    command = ""
    if findings.changes or not findings.problems:
        words = ["fit", "-" if data == STANDARD_INPUT else str(data), *_option_words(options)]
        command = remedies.complete_command(words, findings.changes)
    copies_note, caution_texts = _remarks(findings.rows)
    return {
        "data": {"name": shown_name(data), "rows": n_rows, "rows_read": table.num_rows},
        "columns": findings.facts,
        "notes": notes + findings.rows.learned.notes + copies_note,
        "cautions": caution_texts,
        "problems": [str(problem) for problem in findings.problems],
        "command": command or None,
        "check": remedies.advice(findings.changes) if findings.changes else "",
    }


def _findings(table: Any, settings: Settings, judged: Any) -> Findings | None:
    """Facts of the columns of a table, judged by some of its rows; None if other rows are different."""
    problems, changes = problems_of(judged, settings)
    solved = settings.changed(changes)
    rows = rows_to_use(judged, solved)
    learned = {column.name: column for column in rows.learned.columns}
    learned[settings.target] = rows.encoding.response_column
    with_missing = {column for column in table.column_names if solved.missing != "error"}
    facts = []
    for position, name in enumerate(table.column_names):
        cells_of_column = without_marks(table.select([name]), solved.na)
        column = learned.get(name)
        try:
            facts_of_column = _facts(cells_of_column, column)
        except TableError:
            facts_of_column = {"is_unknown": True}
        is_new_gap = facts_of_column.get("missing") and column and name not in with_missing
        if judged is not table and (facts_of_column.pop("is_unknown", False) or is_new_gap):
            return None
        head = judged.column(position).slice(0, COUNTED_ROWS)
        facts_of_column["distinct"] = len(cells.distinct_cells(head))
        role = "target"
        if name != settings.target:
            role = _role(column, facts_of_column["missing"], is_dropped=name in solved.drop)
        facts.append({"name": name, **facts_of_column, "becomes": role})
    return Findings(facts, problems, changes, rows)


def _option_words(options: TableOptions) -> list[str]:
    """The options as words of a command, with a place for the target if there is none."""
    words = ["--target", options.target or "COLUMN"]
    for name, value in asdict(options).items():
        if name == "target" or value in (None, (), "error"):
            continue
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{name}={text}" for text in values]
    return words


def _facts(one_column: Any, column: Column | None) -> dict[str, Any]:
    """Type, missing cells, range and examples of a column, which is read as `column`."""
    stored = one_column.column(0)
    facts: dict[str, Any] = {
        "type": str(stored.type) if column is None else column.kind,
        "unit": "" if column is None else column.unit,
        "missing": stored.null_count,
        "range": None,
    }
    if column is not None and not column.levels:
        values = column.values(one_column)
        is_missing = np.isnan(values)
        facts["missing"] = int(np.count_nonzero(is_missing))
        finite = values[~is_missing] if facts["missing"] else values
        if len(finite):
            low, high = float(finite.min()), float(finite.max())
            facts["range"] = [_day(low), _day(high)] if column.kind == "date" else [low, high]
    elif column is not None and (column.codes(stored) == UNKNOWN).any():
        facts["is_unknown"] = True
    examples = cells.as_text(cells.distinct_cells(stored.slice(0, 1000)).slice(0, EXAMPLES))
    facts["examples"] = [str(text) for text in examples.to_pylist()]
    return facts


def _day(days: float) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days):%Y-%m-%d}"


def _role(column: Column | None, n_missing: int, *, is_dropped: bool) -> str:
    """What a fit makes of a column."""
    if column is None:
        return "left out" if is_dropped else "unclear"
    made = {
        "number": "1 column",
        "date": "days since 1970-01-01",
        "ordered": f"0 to {len(column.levels) - 1}, in order",
        "category": f"{counted(len(column.levels), 'column')} of 0 and 1",
    }[column.kind]
    if column.fill is None or not n_missing:
        return made
    fill = f"{column.fill:.4g}" if isinstance(column.fill, float) else shortened(column.fill, 20)
    return f"{made}, missing as {fill}" + ", marked" * column.indicator


def _remarks(rows: Rows) -> tuple[list[str], list[str]]:
    """The note on columns that repeat others, and cautions; of the first rows of a larger table."""
    if rows.learned.problems or not rows.learned.columns:
        return [], []
    encoding = rows.encoding
    head = rows.table.slice(0, COUNTED_ROWS)
    y = encoding.response(head) if encoding.target else None
    X = encoding.features(head)
    return copies(encoding.columns, X), cautions(encoding.columns, X, y)


def as_text(contents: dict[str, Any]) -> str:
    """Format what a table holds for a terminal."""
    data = contents["data"]
    columns = contents["columns"]
    n_rows = counted(data["rows"], "row")
    lines = [f"{shortened(data['name'], 200)}: {n_rows}, {counted(len(columns), 'column')}"]
    if data["rows_read"] < data["rows"]:
        lines[0] += f" (the first {data['rows_read']:,} were read)"
    rows = [("column", "is", "missing", "distinct", "range or examples", "fit makes")]
    for column in columns:
        sampled = data["rows_read"] > COUNTED_ROWS
        values = column["range"]
        if values is None:
            shown = ", ".join(shortened(text, 16) for text in column["examples"])
        else:
            shown = " to ".join(v if isinstance(v, str) else f"{v:.6g}" for v in values)
        kind = f"{column['type']} {column['unit']}".strip()
        rows.append(
            (
                shortened(column["name"], 28),
                escape_control(kind),
                f"{column['missing'] or '-'}",
                f"{column['distinct']}" + "+" * sampled,
                shown,
                column["becomes"],
            )
        )
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    lines += ["", *("  ".join(map(padded, row, widths)).rstrip() for row in rows)]
    lines += ["", *(f"note: {escape_control(text)}" for text in contents["notes"])]
    lines += [f"caution: {escape_control(text)}" for text in contents["cautions"]]
    if contents["problems"]:
        lines += [
            "",
            f"{counted(len(contents['problems']), 'problem')} for a fit:",
            *(f"  - {shortened(text, 1000)}" for text in contents["problems"]),
        ]
    if contents["command"]:
        check = contents["check"] or "This command works:"
        if "--target COLUMN" in contents["command"]:
            check = f"{check[:-1]}, with the column to predict for COLUMN:"
        lines += ["", check, f"  {contents['command']}"]
    return "\n".join(lines)
