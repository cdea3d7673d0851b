"""Reading users' tables for the command line: CSV in its dialects, Parquet, and text columns as numbers.

A table that cannot be used is refused with the column, the count and what to do, never repaired silently.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution import memory
from .shown_text import quoted, shortened, visible

__all__ = [
    "Encoding", "TableError", "different_texts", "is_parquet", "is_text", "read_table", "refuse_cells",
    "refuse_missing", "refuse_repeated",
]  # fmt: skip

Array = NDArray[np.float64]

SEPARATORS = (";", "\t", ",", "|")
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
MAX_CATEGORIES = 200
SAMPLE_BYTES = 1 << 16
BLOCK_BYTES = 1 << 24  # of text that is parsed at a time; a row must fit into it
COLUMN_BYTES = 10_000  # of memory that the reader of text takes for a column, however short (9.3 kB with pyarrow 26)


class TableError(ValueError):
    """A table that cannot be used, and why, in one line."""


def read_table(path: str | os.PathLike[str]) -> tuple[Any, list[str]]:
    """Read a CSV or Parquet file, or a folder of Parquet files, into a pyarrow table, with messages for the user.

    Parameters
    ----------
    path : path
        The format is found from the content; text files may use ``;``, tab, ``,`` or ``|``, a byte-order mark, and a
        decimal comma where the separator is not a comma.

    Returns
    -------
    table : pyarrow.Table
        With distinct, non-empty column names.
    messages : list of str
        What a user should know.
    """
    path = Path(path)
    messages: list[str] = []
    if is_parquet(path):
        table = _read_parquet(path)
    else:
        table, messages = _read_text(path, _first_bytes(path))
    if not table.num_rows:
        raise TableError(f"{path.name} has a header but no rows.")
    refuse_repeated(table.column_names, path)
    return table, messages


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file or a folder, which must then hold Parquet files."""
    if not path.is_dir():
        return _first_bytes(path)[:4] == b"PAR1"
    if not any(file.suffix in (".parquet", ".pq") for file in path.rglob("*")):
        raise TableError(f"{path} is a folder without Parquet files, not a table.")
    return True


def refuse_repeated(names: list[str], path: Path) -> None:
    """Raise if two columns share a name: columns are identified by their names."""
    doubled = sorted(name for name, count in Counter(names).items() if count > 1)
    if doubled:
        raise TableError(f"{path.name} has several columns named {_names(doubled)}; rename them first.")


def _first_bytes(path: Path) -> bytes:
    if not path.exists():
        raise TableError(f"there is no file {path}.")
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


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        texts = [field.name for field in pq.ParquetDataset(path, partitioning=None).schema if is_text(field.type)]
        # as dictionaries, as they are stored: a long text repeated in a million rows takes no more memory than on disk
        return pq.ParquetDataset(path, partitioning=None, read_dictionary=texts).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{path.name} is a damaged Parquet file: {_one_line(error)}") from error


def _read_text(path: Path, head: bytes) -> tuple[Any, list[str]]:
    import pyarrow as pa
    import pyarrow.csv as pv

    encoding = _encoding(head)
    lines = _sample_lines(head, encoding)
    separator = _separator(lines)
    decimal = _decimal(lines, separator)
    names = next(csv.reader([lines[0]], delimiter=separator))
    if all(_is_number(name, decimal) for name in names):
        raise TableError(f"the first line of {path.name} holds numbers only; a header with column names is needed.")
    _refuse_width(path, separator.encode())
    try:
        table = pv.read_csv(
            path,
            read_options=pv.ReadOptions(encoding=encoding, block_size=BLOCK_BYTES),  # wide rows fit into a block
            parse_options=pv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=pv.ConvertOptions(
                null_values=list(MISSING), strings_can_be_null=True, quoted_strings_can_be_null=True,
                decimal_point=decimal,
            ),
        )  # fmt: skip
        return _without_row_names(table, _dialect_messages(encoding, separator, decimal))
    except pa.ArrowInvalid as error:
        raise TableError(f"{path.name} cannot be read as a table: {_one_line(error)}") from error
    except UnicodeDecodeError:
        raise TableError(f"{path.name} begins as UTF-8, but names of its columns are not; save it as UTF-8.") from None


def _refuse_width(path: Path, separator: bytes) -> None:
    """Raise if there are so many columns that the reader alone would fill the memory, whatever is in them."""
    with open(path, "rb") as file:
        header = file.readline(BLOCK_BYTES)
        if header.count(b'"') % 2:  # perhaps a name with a line end in it
            quoted_field = re.compile(rb'(?:^|(?<=%b))"(?:[^"]|"")*+"' % re.escape(separator))
            header = quoted_field.sub(b"", header + file.read(BLOCK_BYTES)).partition(b"\n")[0]
    n_columns = header.count(separator) + 1
    needed, free = n_columns * COLUMN_BYTES, memory.available_bytes()
    if needed > free / 2:
        raise TableError(
            f"{path.name} has {n_columns:,} columns; reading so many from text takes {memory.describe(needed)} of "
            f"memory, and {memory.describe(free)} are free. Save it as Parquet, or with fewer columns."
        )


def _encoding(head: bytes) -> str:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not just a character cut by the end of the sample
            return "latin-1"
    return "utf-8"


def _sample_lines(head: bytes, encoding: str) -> list[str]:
    text = head.decode(encoding, errors="ignore").lstrip("\ufeff")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[:-1] if len(head) == SAMPLE_BYTES and len(lines) > 2 else lines  # the last one may be cut


def _separator(lines: list[str]) -> str:
    """The separator that splits each of the first lines into the same number of fields; of several, the most fields."""
    best = (1, ",")
    for candidate in SEPARATORS:
        widths = {len(row) for row in csv.reader(lines[:50], delimiter=candidate) if row}
        if len(widths) == 1:
            best = max(best, (widths.pop(), candidate), key=lambda pair: pair[0])
    if best[0] > 1:
        return best[1]
    return max(SEPARATORS, key=lines[0].count) if any(s in lines[0] for s in SEPARATORS) else ","


def _decimal(lines: list[str], separator: str) -> str:
    if separator == ",":
        return "."
    fields = [value.strip() for row in csv.reader(lines[1:200], delimiter=separator) for value in row]
    commas = any(re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", value) for value in fields)
    points = any(re.fullmatch(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", value) for value in fields)
    return "," if commas and not points else "."


def _is_number(text: object, decimal: str = ".") -> bool:
    try:
        float(str(text).strip().replace(decimal, "."))
    except ValueError:
        return False
    return True


def _dialect_messages(encoding: str, separator: str, decimal: str) -> list[str]:
    messages = []
    if encoding != "utf-8":
        messages.append("the file is not UTF-8; read as Latin-1.")
    if separator != ",":
        name = {";": "semicolons", "\t": "tabs", "|": "bars"}[separator]
        messages.append(f"columns are separated by {name}{', decimals by a comma' if decimal == ',' else ''}.")
    return messages


def _without_row_names(table: Any, messages: list[str]) -> tuple[Any, list[str]]:
    """Leave out a first column without a name: R writes row names there, which are not a feature."""
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
    def learn(
        cls,
        table: Any,
        target: str,
        drop: Iterable[str] = (),
        distinct: Callable[[list[str]], dict[str, list[str]]] | None = None,
    ) -> Encoding:
        """Decide for each column of a table how it becomes numbers.

        Where `table` is the head of a larger one, `distinct` finds the different texts of some columns in all of it.
        """
        drop = list(drop)
        unknown = [name for name in [target, *drop] if name not in table.column_names]
        if unknown:
            raise KeyError(f"there is no column {_names(unknown)}; the table has {_names(table.column_names, 12)}.")
        names = [name for name in table.column_names if name != target and name not in drop]
        if not names:
            raise TableError(f"the table has no column besides the target {quoted(target)}.")
        refuse_missing(table, [target, *names])
        cls(target, []).response(table)
        texts = [name for name in names if is_text(table.column(name).type)]
        for name in names:
            if name not in texts:
                _numbers(table.column(name), name)
        found = _distinct(table, texts) if distinct is None else distinct(texts)
        categories = {name: _categories(found[name], name, table.num_rows) for name in texts}
        columns = [{"name": name} | ({"categories": categories[name]} if name in texts else {}) for name in names]
        return cls(target, columns, [_category_message(name, values) for name, values in categories.items()])

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        named = ([c["name"]] if "categories" not in c else [f"{c['name']}={v}" for v in c["categories"][1:]]
                 for c in self.columns)  # fmt: skip
        return [name for group in named for name in group]

    @property
    def needed(self) -> list[str]:
        """Names of the columns of a table that are in use, the target left out."""
        return [column["name"] for column in self.columns]

    def features(self, table: Any, first_row: int = 0) -> Array:
        """Encoded columns of a table, which must hold all columns in use, of the same kind, without missing cells.

        `first_row` is the number of the table's first row, where it is part of a larger one.
        """
        needed = self.needed
        held = set(table.column_names)  # a fresh list every time it is asked for
        missing = [name for name in needed if name not in held]
        if missing:
            extra = [name for name in table.column_names if name not in {*needed, self.target}]
            hint = f"; it has {_names(extra)}, which the model does not know" if extra else ""
            raise TableError(f"the table lacks {_count(missing, 'column')} of the model: {_names(missing)}{hint}.")
        if any(table.column(c["name"]).null_count for c in self.columns if "categories" in c):
            refuse_missing(table, needed, first_row)
        out = np.empty((table.num_rows, len(self.names)), order="F")
        place = 0
        for column in self.columns:
            encoded = _encode(table.column(column["name"]), column)
            out[:, place : place + encoded.shape[1]] = encoded
            place += encoded.shape[1]
        if not np.isfinite(out).all():
            refuse_missing(table, needed, first_row)
        return out

    def response(self, table: Any, first_row: int = 0) -> Array:
        """The target column as numbers, without missing cells."""
        column = table.column(self.target)
        if is_text(column.type):
            raise TableError(
                f"the target {quoted(self.target)} holds text ({_examples(column)}); it must hold numbers."
            )
        values = _numbers(column, self.target)
        if not np.isfinite(values).all():
            refuse_missing(table, [self.target], first_row)
        return values


def refuse_missing(table: Any, names: Iterable[str], first_row: int = 0) -> None:
    """Raise if cells are missing or not finite, with their number and the first of their rows."""
    import pyarrow.compute as pc

    counts, first = {}, table.num_rows
    for name in names:
        bad = pc.invert(_usable(table.column(name)))
        count = pc.sum(bad).as_py()
        if count:
            counts[name] = count
            first = min(first, pc.index(bad, True).as_py())
    refuse_cells(counts, f", the first in row {first_row + first + 1}")


def refuse_cells(counts: dict[str, int], where: str = "") -> None:
    """Raise if there are missing cells, given their number in each column."""
    if counts:
        worst = sorted(counts, key=lambda name: -counts[name])
        listed = ", ".join(f"{quoted(name)} ({counts[name]})" for name in worst[:8])
        more = f" and {len(worst) - 8} more" if len(worst) > 8 else ""
        raise TableError(
            f"{_count(range(sum(counts.values())), 'cell')} missing or not finite, in {_count(counts, 'column')}: "
            f"{listed}{more}{where}. Fill them, remove these rows, or leave columns out with --drop."
        )


def _usable(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(pc.is_finite(column), False) if pa.types.is_floating(column.type) else pc.is_valid(column)


def _distinct(table: Any, names: list[str]) -> dict[str, list[str]]:
    return {name: different_texts(table.column(name)) for name in names}


def different_texts(column: Any) -> list[Any]:
    """The different texts of a column; one stored as a dictionary is not written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        found = [pc.unique(chunk).dictionary_decode().to_pylist() for chunk in column.chunks]
        return list(dict.fromkeys(text for part in found for text in part))
    return list(pc.unique(column.cast("string")).to_pylist())


def _categories(values: list[str], name: str, n_rows: int) -> list[str]:
    """The sorted values of a text column, if they can be categories."""
    numbers = [value for value in values if _is_number(value)]
    if len(numbers) > len(values) / 2:
        strange = [value for value in values if not _is_number(value)]
        raise TableError(
            f"column {quoted(name)} holds numbers and text such as {_names(strange, 3)}; correct those cells."
        )
    if len(values) > MAX_CATEGORIES or len(values) > max(20, n_rows / 2):
        many = f"more than {MAX_CATEGORIES}" if len(values) > MAX_CATEGORIES else len(values)
        raise TableError(
            f"column {quoted(name)} holds {many} different texts ({_names(sorted(values), 3)}), too many for "
            f"categories; leave it out with --drop {quoted(name)}."
        )
    return sorted(values)


def _category_message(name: str, categories: list[str]) -> str:
    n = len(categories)
    return (
        f"column {quoted(name)} holds text: its {n} categories become {n - 1} column{'s' * (n != 2)} of 0 and 1 "
        f"(against {quoted(categories[0])})."
    )


def _encode(column: Any, how: dict[str, Any]) -> Array:
    import pyarrow as pa

    name = how["name"]
    if "categories" not in how:
        if is_text(column.type):
            raise TableError(
                f"column {quoted(name)} holds text ({_examples(column)}), but the model learned numbers there."
            )
        return _numbers(column, name)[:, None]
    if not is_text(column.type):
        column = pa.chunked_array([pa.array([str(value) for value in column.to_pylist()], "string")])
    place = _places(column, how["categories"])
    if (place < 0).any():
        unknown = sorted(set(different_texts(column)) - set(how["categories"]))
        raise TableError(
            f"column {quoted(name)} holds {_names(unknown, 5)}, which the model has not seen; it knows "
            f"{_names(how['categories'], 8)}."
        )
    return np.asarray(place[:, None] == np.arange(1, len(how["categories"])), dtype=float)


def _places(column: Any, categories: list[str]) -> NDArray[np.int64]:
    """Number of the category of every text, -1 where it is none of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(categories, "string")
    found = [np.zeros(0, dtype=np.int64)]
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            place = pc.index_in(chunk.dictionary.cast("string"), value_set=known).take(chunk.indices)
        else:
            place = pc.index_in(chunk.cast("string"), value_set=known)
        found.append(pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64))
    return np.concatenate(found)


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _numbers(column: Any, name: str) -> Array:
    import pyarrow as pa

    if pa.types.is_binary(column.type):
        raise TableError(
            f"column {quoted(name)} holds texts that are not UTF-8; save the table as UTF-8, or --drop {quoted(name)}."
        )
    if pa.types.is_temporal(column.type):
        raise TableError(
            f"column {quoted(name)} holds dates or times; turn them into numbers, or --drop {quoted(name)}."
        )
    try:
        return np.asarray(column.cast("float64").to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kind = shortened(column.type)
        raise TableError(f"column {quoted(name)} is of type {kind}, not numbers; --drop {quoted(name)}.") from error


def _examples(column: Any) -> str:
    return _names([value for value in different_texts(column.slice(0, 1000)) if value is not None], 3)


def _names(names: Iterable[object], most: int = 8) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(quoted(name) for name in names[:most]) + more


def _count(items: Sized, noun: str) -> str:
    n = len(items)
    return f"{n} {noun}{'s' * (n != 1)}"


def _one_line(error: Exception) -> str:
    return visible(" ".join(str(error).split())[:200])
