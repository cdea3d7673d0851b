"""Reading users' tables for the command line: CSV in its dialects, Parquet, and text columns as numbers.

A table that cannot be used is refused with the column, the count and what to do, never repaired silently.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Encoding", "TableError", "read_table", "write_predictions"]

SEPARATORS = (";", "\t", ",", "|")
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
MAX_CATEGORIES = 200
SAMPLE_BYTES = 1 << 16


class TableError(ValueError):
    """A table that cannot be used, and why, in one line."""


def read_table(path: str | os.PathLike):
    """Read a CSV or Parquet file into a pyarrow table, with messages about what was noticed.

    Parameters
    ----------
    path : path
        The format is told from the content; text files may use ``;``, tab, ``,`` or ``|``, a byte-order mark, and a
        decimal comma where the separator is not a comma.

    Returns
    -------
    table : pyarrow.Table
        With distinct, non-empty column names.
    messages : list of str
        What a user should know.
    """
    path = Path(path)
    head = _first_bytes(path)
    if head[:4] == b"PAR1":
        table, messages = _read_parquet(path), []
    else:
        table, messages = _read_text(path, head)
    if not table.num_rows:
        raise TableError(f"{path.name} has a header but no rows.")
    doubled = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if doubled:
        raise TableError(f"{path.name} has several columns named {_names(doubled)}; rename them first.")
    return table, messages


def _first_bytes(path):
    if not path.exists():
        raise TableError(f"there is no file {path}.")
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table.")
    with open(path, "rb") as file:
        head = file.read(SAMPLE_BYTES)
    if not head.strip():
        raise TableError(f"{path.name} is empty.")
    if head[:2] == b"PK" or head[:4] == b"\xd0\xcf\x11\xe0":
        raise TableError(f"{path.name} looks like a spreadsheet; save it as CSV first.")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(f"{path.name} is encoded as UTF-16; save it as UTF-8 first.")
    if b"\x00" in head and head[:4] != b"PAR1":
        raise TableError(f"{path.name} is neither text nor Parquet.")
    return head


def _read_parquet(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path.name} is a damaged Parquet file: {_one_line(error)}") from error


def _read_text(path, head):
    import pyarrow as pa
    import pyarrow.csv as pv

    encoding = _encoding(head)
    lines = _sample_lines(head, encoding)
    separator = _separator(lines)
    decimal = _decimal(lines, separator)
    names = next(csv.reader([lines[0]], delimiter=separator))
    if all(_is_number(name, decimal) for name in names):
        raise TableError(f"the first line of {path.name} holds numbers only; a header with column names is needed.")
    try:
        table = pv.read_csv(
            path,
            read_options=pv.ReadOptions(encoding=encoding, block_size=1 << 24),  # wide rows fit into a block
            parse_options=pv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=pv.ConvertOptions(
                null_values=list(MISSING), strings_can_be_null=True, quoted_strings_can_be_null=True,
                decimal_point=decimal,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid as error:
        raise TableError(f"{path.name} cannot be read as a table: {_one_line(error)}") from error
    return _without_row_names(table, _dialect_messages(encoding, separator, decimal))


def _encoding(head):
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not just a character cut by the end of the sample
            return "latin-1"
    return "utf-8"


def _sample_lines(head, encoding):
    text = head.decode(encoding, errors="ignore").lstrip("\ufeff")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[:-1] if len(head) == SAMPLE_BYTES and len(lines) > 2 else lines  # the last one may be cut


def _separator(lines):
    """The candidate that splits the first lines into the same number of fields, the more the better."""
    best = (1, ",")
    for candidate in SEPARATORS:
        widths = {len(row) for row in csv.reader(lines[:50], delimiter=candidate) if row}
        if len(widths) == 1:
            best = max(best, (widths.pop(), candidate), key=lambda pair: pair[0])
    if best[0] > 1:
        return best[1]
    return max(SEPARATORS, key=lines[0].count) if any(s in lines[0] for s in SEPARATORS) else ","


def _decimal(lines, separator):
    if separator == ",":
        return "."
    fields = [value.strip() for row in csv.reader(lines[1:200], delimiter=separator) for value in row]
    commas = any(re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", value) for value in fields)
    points = any(re.fullmatch(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", value) for value in fields)
    return "," if commas and not points else "."


def _is_number(text, decimal="."):
    try:
        float(str(text).strip().replace(decimal, "."))
    except ValueError:
        return False
    return True


def _dialect_messages(encoding, separator, decimal):
    messages = []
    if encoding != "utf-8":
        messages.append("the file is not UTF-8; read as Latin-1.")
    if separator != ",":
        name = {";": "semicolons", "\t": "tabs", "|": "bars"}[separator]
        messages.append(f"columns are separated by {name}{', decimals by a comma' if decimal == ',' else ''}.")
    return messages


def _without_row_names(table, messages):
    """R writes row names under an empty header; they are not a feature."""
    names = [str(name).strip().lstrip("\ufeff") for name in table.column_names]
    table = table.rename_columns(names)
    unnamed = [i for i, name in enumerate(names) if not name]
    if unnamed == [0]:
        return table.remove_column(0), [*messages, "the first column has no name; taken as row names and left out."]
    if unnamed:
        raise TableError(f"column {unnamed[0] + 1} has no name; every column but the first needs one.")
    return table, messages


@dataclass(frozen=True)
class Encoding:
    """How a table becomes numbers: plain types only, so that it can be stored beside a model.

    Parameters
    ----------
    target : str
        Column to predict.
    columns : list of dict
        Of every column in use: ``name``, and ``categories`` if it holds text; the first category has no column of its
        own.
    messages : list of str
        What was done to text columns.
    """

    target: str
    columns: list[dict[str, Any]]
    messages: list[str] = field(default_factory=list)

    @classmethod
    def learn(cls, table, target: str, drop: Iterable[str] = ()) -> Encoding:
        """Decide for each column of a table how it becomes numbers."""
        drop = list(drop)
        unknown = [name for name in [target, *drop] if name not in table.column_names]
        if unknown:
            raise KeyError(f"there is no column {_names(unknown)}; the table has {_names(table.column_names, 12)}.")
        names = [name for name in table.column_names if name != target and name not in drop]
        if not names:
            raise TableError(f"the table has no column besides the target {target!r}.")
        _refuse_missing(table, [target, *names])
        columns, messages = [], []
        for name in names:
            categories = _categories(table.column(name), name)
            columns.append({"name": name} if categories is None else {"name": name, "categories": categories})
            if categories is not None:
                messages.append(
                    f"column {name!r} holds text: its {len(categories)} categories become {len(categories) - 1} "
                    f"column{'s' * (len(categories) != 2)} of 0 and 1 (against {categories[0]!r})."
                )
        return cls(target, columns, messages)

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        named = ([c["name"]] if "categories" not in c else [f"{c['name']}={v}" for v in c["categories"][1:]]
                 for c in self.columns)  # fmt: skip
        return [name for group in named for name in group]

    def features(self, table) -> NDArray[np.float64]:
        """Encoded columns of a table, which must hold all columns in use, of the same kind, without gaps."""
        needed = [column["name"] for column in self.columns]
        missing = [name for name in needed if name not in table.column_names]
        if missing:
            extra = [name for name in table.column_names if name not in needed and name != self.target]
            hint = f"; it has {_names(extra)}, which the model does not know" if extra else ""
            raise TableError(f"the table lacks {_count(missing, 'column')} of the model: {_names(missing)}{hint}.")
        _refuse_missing(table, needed)
        out = np.empty((table.num_rows, len(self.names)), order="F")
        place = 0
        for column in self.columns:
            encoded = _encode(table.column(column["name"]), column)
            out[:, place : place + encoded.shape[1]] = encoded
            place += encoded.shape[1]
        return out

    def response(self, table) -> NDArray[np.float64]:
        """The target column as numbers."""
        column = table.column(self.target)
        if _is_text(column.type):
            raise TableError(f"the target {self.target!r} holds text ({_examples(column)}); it must hold numbers.")
        return _numbers(column, self.target)


def _refuse_missing(table, names):
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = {}
    for name in names:
        column = table.column(name)
        count = column.null_count
        if pa.types.is_floating(column.type):
            count += pc.sum(pc.invert(pc.is_finite(column))).as_py() or 0
        if count:
            counts[name] = count
    if counts:
        worst = sorted(counts, key=lambda name: -counts[name])
        listed = ", ".join(f"{name!r} ({counts[name]})" for name in worst[:8])
        more = f" and {len(worst) - 8} more" if len(worst) > 8 else ""
        raise TableError(
            f"{_count(range(sum(counts.values())), 'cell')} missing or not finite, in {_count(counts, 'column')}: "
            f"{listed}{more}. Fill them, remove these rows, or leave columns out with --drop."
        )


def _categories(column, name):
    """None for numbers, the sorted values of a text column otherwise."""
    import pyarrow.compute as pc

    if not _is_text(column.type):
        _numbers(column, name)
        return None
    values = pc.unique(column.cast("string")).to_pylist()
    numbers = [value for value in values if _is_number(value)]
    if len(numbers) > len(values) / 2:
        strange = [value for value in values if not _is_number(value)]
        raise TableError(f"column {name!r} holds numbers and text such as {_names(strange, 3)}; correct those cells.")
    if len(values) > MAX_CATEGORIES or len(values) > max(20, len(column) / 2):
        raise TableError(
            f"column {name!r} holds {len(values)} different texts ({_names(sorted(values), 3)}), too many for "
            f"categories; leave it out with --drop {name!r}."
        )
    return sorted(values)


def _encode(column, how):
    name = how["name"]
    if "categories" not in how:
        if _is_text(column.type):
            raise TableError(f"column {name!r} holds text ({_examples(column)}), but the model learned numbers there.")
        return _numbers(column, name)[:, None]
    values = [str(value) for value in column.to_pylist()]
    unknown = sorted(set(values) - set(how["categories"]))
    if unknown:
        raise TableError(
            f"column {name!r} holds {_names(unknown, 5)}, which the model has not seen; it knows "
            f"{_names(how['categories'], 8)}."
        )
    return (np.array(values)[:, None] == np.array(how["categories"][1:])[None, :]).astype(float)


def _is_text(kind):
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _numbers(column, name):
    import pyarrow as pa

    if pa.types.is_temporal(column.type):
        raise TableError(f"column {name!r} holds dates or times; turn them into numbers, or --drop {name!r}.")
    try:
        return np.asarray(column.cast("float64").to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"column {name!r} is of type {column.type}, not numbers; --drop {name!r}.") from error


def write_predictions(path: str | os.PathLike | None, columns: Mapping[str, Iterable[float]]) -> str:
    """Write predictions as Parquet or CSV by the suffix of `path`, or return them as CSV text for the terminal."""
    import pyarrow as pa

    if path is not None and Path(path).suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(columns)), path)
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*([repr(float(v)) for v in values] for values in columns.values()), strict=True))
    if path is None:
        return text.getvalue()
    Path(path).write_text(text.getvalue(), encoding="utf-8")
    return ""


def _examples(column):
    return _names([value for value in column.slice(0, 1000).to_pylist() if value is not None], 3)


def _names(names, most=8):
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def _count(items, noun):
    n = len(items)
    return f"{n} {noun}{'s' * (n != 1)}"


def _one_line(error):
    return " ".join(str(error).split())[:200]
