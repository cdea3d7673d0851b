"""Tables as text: separators, decimal commas, encodings, lines above the header, and where the faults are."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

from .._execution import memory
from .._report.formatting import quoted
from . import terminal
from .cells import COMMA_OR_WHOLE, DOUBTFUL_COMMA, DOUBTFUL_POINT
from .columns import HAS_MARKS, is_text, mark, trimmed
from .formats import SAMPLE_BYTES, Source
from .table_errors import TableError, counted, listed, one_line

__all__ = ["MISSING", "SEPARATED", "read_text", "with_names"]

SEPARATED = "columns are separated by"  # how a message begins that says no more than that
SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
MISSING = ("", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", ".")
BLOCK_BYTES = 1 << 24  # of text that is parsed at a time; a row must fit into it
COLUMN_BYTES = 10_000  # of memory that the reader of text takes for a column, however short (9.3 kB with pyarrow 26)
LINE_END = re.compile(r"\r\n|\n|\r")
WHOLE = r"^-?\d+$"
PLAIN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")  # a number to pyarrow, an address or a key to people


class _Dialect(NamedTuple):
    """How a text is written: `skipped` lines stand above the header."""

    encoding: str
    separator: str
    skipped: int
    names: list[str]  # as they stand in the header
    lines: list[str]  # below it, the first ones
    messages: list[str]


def read_text(source: Source, verbatim: Iterable[str] = ()) -> tuple[Any, list[str]]:
    """Read a text with a header into a pyarrow table, with messages for the user.

    Columns in `verbatim` are texts as they stand in the file.
    """
    import pyarrow as pa

    dialect = _dialect(source)
    _refuse_width(source, dialect)
    try:
        table = with_names(_parsed(source, dialect), source.name, dialect.messages)
        table, said = _as_written(table, dialect)
        return _verbatim(source, dialect, table, verbatim), dialect.messages + said
    except pa.ArrowInvalid as error:
        where = _fault(source, dialect) or f"{one_line(error)}."
        raise TableError(f"{source.name} cannot be read as a table: {where}") from error
    except UnicodeDecodeError:
        raise TableError(
            f"{source.name} is neither UTF-8 nor Windows-1252 (cp1252) throughout; save it as UTF-8."
        ) from None


def _parsed(source: Source, dialect: _Dialect, texts: Iterable[str] = ()) -> Any:
    import pyarrow.csv as pv

    texts = list(texts)
    with source.native() as file, _shown(source, file):
        return pv.read_csv(
            file,
            read_options=pv.ReadOptions(
                encoding=dialect.encoding, block_size=BLOCK_BYTES, skip_rows=dialect.skipped
            ),  # wide rows fit into a block
            parse_options=pv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
            convert_options=pv.ConvertOptions(
                null_values=list(MISSING), strings_can_be_null=not texts, quoted_strings_can_be_null=not texts,
                include_columns=texts or None,
                column_types=dict.fromkeys(texts or _Seen(dialect).hexadecimal(), "string"),
            ),
        )  # fmt: skip


def _shown(source: Source, file: Any) -> AbstractContextManager[None]:
    """A bar for a text that is read from a disk; one in memory is read in a moment."""
    if source.content is not None:
        return nullcontext()
    return terminal.reading(source.name, lambda: os.lseek(file.fileno(), 0, os.SEEK_CUR), source.path.stat().st_size)


def _verbatim(source: Source, dialect: _Dialect, table: Any, names: Iterable[str]) -> Any:
    """The table with some columns as the texts that stand in the file: 007 is not 7, and NA may be a name."""
    wanted = {name: column for name, column in _texts(source, dialect, names) if name in table.column_names}
    for name, column in wanted.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _texts(source: Source, dialect: _Dialect, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Columns as the texts that stand in the file, each with its name."""
    raw = {_clean(name): name for name in dialect.names}
    wanted = [name for name in names if name in raw]
    if wanted:
        texts = _parsed(source, dialect, [raw[name] for name in wanted])
        yield from zip(wanted, texts.columns, strict=True)


# What is in the cells


def _with_gaps(column: Any) -> Any:
    """Texts with those that stand for a missing cell missing, blanks around them or not; numbers if others are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gaps = pc.is_in(trimmed(column), value_set=pa.array(MISSING, "string"))
    if not pc.any(gaps).as_py():
        return column
    column = pc.if_else(gaps, pa.scalar(None, column.type), column)
    for pattern, kind in ((WHOLE, "int64"), (PLAIN, "float64")):  # which the reader takes for text because of a blank
        if pc.all(pc.match_substring_regex(trimmed(column), pattern)).as_py():
            with suppress(pa.ArrowInvalid):  # more digits than fit into a whole number
                return trimmed(column).cast(kind)
    return column


def _as_written(table: Any, dialect: _Dialect) -> tuple[Any, list[str]]:
    """The table with decimal commas as numbers, columns marked with how they are written, and the message that says so.

    Where every comma stands before three digits, as in 8,654, it may also be one between thousands: such columns remain
    texts until it is known what a model learned, or what other columns tell.
    """
    import pyarrow as pa

    seen = _Seen(dialect)
    columns, fields, commas, points = [], [], {}, False
    for field, column in zip(table.schema, table.columns, strict=True):
        if is_text(field.type):
            column = _with_gaps(column)
            field = field.with_type(column.type)
        if is_text(field.type):
            example, row = ("", 0) if dialect.separator == "," else _decimal_comma(column)
            if example:
                commas[field.name] = example
                column = _decimals(column)
                field = mark(pa.field(field.name, column.type), comma=example, comma_row=row)
            else:
                field = mark(field, separator=dialect.separator)
        elif pa.types.is_floating(field.type):
            doubtful = "" if dialect.separator == "," else seen.doubtful_point(field.name)
            points = points or not doubtful
            field = mark(field, doubtful=doubtful) if doubtful else field
        elif pa.types.is_integer(field.type) and (code := seen.leading_zero(field.name)):
            field = mark(field, zeros=code)
        columns.append(column)
        fields.append(field)
    marked = pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=HAS_MARKS))
    return marked, _separator_messages(dialect.separator, commas, points)


class _Seen:
    """The first cells of every column as they stand in the file."""

    def __init__(self, dialect: _Dialect) -> None:
        self.raw = dialect.names
        names = [_clean(name).lstrip("# ") for name in dialect.names]
        rows = [row for row in csv.reader(dialect.lines, delimiter=dialect.separator) if len(row) == len(names)]
        self.cells = dict(zip(names, zip(*rows, strict=True), strict=False))

    def doubtful_point(self, name: str) -> str:
        """A cell such as 1.234, if all with a point are like it."""
        pointed = [cell.strip() for cell in self.cells.get(name, ()) if "." in cell.strip(". ")]
        return pointed[0] if pointed and all(re.match(DOUBTFUL_POINT, cell) for cell in pointed) else ""

    def hexadecimal(self) -> list[str]:
        """Names, as they stand in the header, of columns with cells such as 0x1f61."""
        columns = zip(self.raw, self.cells.values(), strict=False)
        return [raw for raw, cells in columns if any(HEXADECIMAL.fullmatch(cell.strip()) for cell in cells)]

    def leading_zero(self, name: str) -> str:
        """A cell such as 00123."""
        return next((cell.strip() for cell in self.cells.get(name, ()) if re.fullmatch(r"0+\d+", cell.strip())), "")


def _decimal_comma(column: Any) -> tuple[str, int]:
    """The first cell of a column of numbers that can only have a decimal comma, and its row; empty without one."""
    import pyarrow.compute as pc

    texts = trimmed(column)
    if not pc.all(pc.match_substring_regex(texts, COMMA_OR_WHOLE)).as_py():
        return "", 0
    clear = pc.and_(pc.match_substring(texts, ","), pc.invert(pc.match_substring_regex(texts, DOUBTFUL_COMMA)))
    row = pc.index(clear, True).as_py()
    return ("", 0) if row < 0 else (texts[row].as_py(), row + 1)


def _decimals(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.replace_substring(trimmed(column), ",", ".").cast("float64")


def _separator_messages(separator: str, commas: dict[str, str], points: bool) -> list[str]:
    """What separates cells, and decimals: shown once for a table, with an example."""
    if separator == ",":
        return []
    if not commas:
        return [f"{SEPARATED} {SEPARATORS[separator]}."]
    example = next(iter(commas.values()))
    where = f" in {counted(commas, 'column')} ({listed(commas, 3)})" if points else ""
    return [
        f"{SEPARATED} {SEPARATORS[separator]}, decimals by a comma{where}: {quoted(example)} is "
        f"{example.replace(',', '.')}."
    ]


# The dialect


def _dialect(source: Source) -> _Dialect:
    encoding = _encoding(source.head)
    lines = _sample_lines(source.head, encoding)
    skipped, separator, messages = _above_header(lines)
    lines = [line for line in lines[skipped:] if line.strip()]
    if not lines:
        raise TableError(f"{source.name} holds comments only, no table.")
    separator = separator or _separator(lines)
    names = next(csv.reader(lines, delimiter=separator))
    if all(_is_number(name, "." if separator == "," else ",") or _is_number(name) for name in names):
        raise TableError(f"the first line of {source.name} holds numbers only; a header with column names is needed.")
    if len(names) == 1:
        _refuse_spaces(lines, source.name)
    if encoding != "utf-8":
        messages.append("the file is not UTF-8; read as Windows-1252 (cp1252).")
    return _Dialect(encoding, separator, skipped, names, lines[1:], messages)


def _encoding(head: bytes) -> str:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # not just a character cut by the end of the sample
            return "cp1252"
    return "utf-8"


def _sample_lines(head: bytes, encoding: str) -> list[str]:
    lines = LINE_END.split(head.decode(encoding, errors="ignore").lstrip("\ufeff"))
    return lines[:-1] if len(head) == SAMPLE_BYTES and len(lines) > 2 else lines  # the last one may be cut


def _above_header(lines: list[str]) -> tuple[int, str, list[str]]:
    """Number of lines above the header, the separator if one of them tells it, and messages.

    Excel writes ``sep=;`` there, others write comments. The last comment is the header itself if the line after it
    holds numbers in as many cells.
    """
    told = re.fullmatch(r"sep=([;\t,|])", lines[0])
    if told:
        return 1, told[1], [f"line 1, {quoted(lines[0])}, says how cells are separated and was left out."]
    first = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    comments = [i for i, line in enumerate(lines[:first]) if line.strip()]
    if not comments:
        return 0, "", []
    if first < len(lines) and _is_header_of(lines[comments[-1]], lines[first:]):
        first = comments[-1]
        comments = comments[:-1]
    if not comments:
        return first, "", []
    where = f"line {comments[0] + 1}" if len(comments) == 1 else f"lines {comments[0] + 1} to {comments[-1] + 1}"
    return first, "", [f"{where} above the header {'begins' if len(comments) == 1 else 'begin'} with #; left out."]


def _is_header_of(comment: str, lines: list[str]) -> bool:
    separator = _separator([line for line in lines if line.strip()])
    names, cells = (next(csv.reader([line], delimiter=separator)) for line in (comment.lstrip("#"), lines[0]))
    return len(names) == len(cells) > 1 and any(map(_is_number, cells)) and not any(map(_is_number, names))


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


def _is_number(text: str, decimal: str = ".") -> bool:
    try:
        float(text.strip().replace(decimal, "."))
    except ValueError:
        return False
    return True


def _refuse_spaces(lines: list[str], name: str) -> None:
    widths = {len(line.split()) for line in lines}
    if len(widths) == 1 and widths != {1} and len(lines) > 1 and any(map(_is_number, lines[1].split())):
        raise TableError(
            f"the columns of {name} seem to be separated by spaces; separate them by commas, semicolons, tabs or bars."
        )


# Names of columns


def _clean(name: object) -> str:
    return str(name).strip().lstrip("\ufeff").strip()


def with_names(table: Any, where: str, messages: list[str]) -> Any:
    """A table whose columns have names: R leaves out that of the row names, others end every line with a separator.

    What was left out is added to `messages`.
    """
    names = [_clean(name) for name in table.column_names]
    if names and names[0].startswith("#"):
        names[0] = names[0].lstrip("# ")
        messages.append(f"the header begins with #; its first column is called {quoted(names[0])}.")
    table = _without_empty_end(table.rename_columns(names), messages)
    names = table.column_names
    unnamed = [i for i, name in enumerate(names) if not name]
    if unnamed == [0] and len(names) > 1:
        messages.append("the first column has no name; taken as row names and left out.")
        return table.remove_column(0)
    if unnamed:
        place = unnamed[-1] if unnamed[0] == 0 else unnamed[0]
        after = f" (after {quoted(names[place - 1])})" if place and names[place - 1] else ""
        raise TableError(
            f"column {place + 1} of {where}{after} has no name; give it one in the header (a first column may "
            f"go without)."
        )
    return table


def _without_empty_end(table: Any, messages: list[str]) -> Any:
    names, n = table.column_names, table.num_columns
    while n > 1 and not names[n - 1] and table.column(n - 1).null_count == table.num_rows:
        n -= 1
    if n < len(names):
        messages.append(f"lines end with a separator; {counted(len(names) - n, 'empty column')} after it left out.")
    return table.select(range(n))


# Faults


def _refuse_width(source: Source, dialect: _Dialect) -> None:
    """Raise if there are so many columns that the reader alone would fill the memory, whatever is in them."""
    separator = dialect.separator.encode()
    with source.file() as file:
        for _ in range(dialect.skipped):
            file.readline(BLOCK_BYTES)
        header = file.readline(BLOCK_BYTES)
        if header.count(b'"') % 2:  # perhaps a name with a line end in it
            quoted_field = re.compile(rb'(?:^|(?<=%b))"(?:[^"]|"")*+"' % re.escape(separator))
            header = quoted_field.sub(b"", header + file.read(BLOCK_BYTES)).partition(b"\n")[0]
    n_columns = header.count(separator) + 1
    needed, free = n_columns * COLUMN_BYTES, memory.available_bytes()
    if needed > free / 2:
        raise TableError(
            f"{source.name} has {n_columns:,} columns; reading so many from text takes {memory.describe(needed)} of "
            f"memory, and {memory.describe(free)} are free. Save it as Parquet, or with fewer columns."
        )


def _fault(source: Source, dialect: _Dialect) -> str:
    """The first line that does not fit the header, and what to do about it; empty if there is none."""
    width, last = 0, dialect.skipped
    rows = _rows(source, dialect)
    while True:
        try:
            row, end = next(rows)
        except StopIteration:
            return ""
        except csv.Error:
            return (
                f"in line {last + 1} begins a cell of more than {csv.field_size_limit():,} characters, as after a "
                f"quotation mark that is not closed; close it, or leave such texts out."
            )
        if row and not width:
            width = len(row)
        elif row and len(row) != width:
            remedy = _remedy(row, width, last + 1, end, dialect.separator)
            return f"line {last + 1} has {counted(row, 'cell')}, the header has {width}; {remedy}"
        last = end


def _rows(source: Source, dialect: _Dialect) -> Iterator[tuple[list[str], int]]:
    """Rows of cells, each with the number of its last line."""
    with io.TextIOWrapper(source.file(), encoding=dialect.encoding, errors="replace", newline="") as lines:
        for _ in range(dialect.skipped):
            next(lines)
        reader = csv.reader(lines, delimiter=dialect.separator)
        for row in reader:
            yield row, reader.line_num + dialect.skipped


def _remedy(row: list[str], width: int, begin: int, end: int, separator: str) -> str:
    if row[0].lstrip().startswith("#"):
        return "comments are left out above the header only: remove that line."
    if end > begin:
        return f"its last cell runs to line {end}, as after a quotation mark that is not closed: close it."
    if len(row) < width and any(separator in cell or '"' in cell for cell in row):
        return "a quotation mark in it may not be closed, or stand alone: close it, or remove it."
    if width == 1:
        return "if there is a title above the header, remove it."
    if len(row) > width and not any(cell.strip() for cell in row[width:]):
        return "it ends with a separator too many: remove it, or end the header with one as well."
    if len(row) == width + 1:
        return "name every column in the header, row names too, or put texts with separators into quotation marks."
    return "correct that line."
