"""What a file is, by its content and not by its name, and how its bytes are opened.

Pipes are read once, into memory; compressed files are unpacked there. Both are held to a share of the free memory, so
that neither an endless pipe nor a small file that unpacks to a large one fills it.
"""

from __future__ import annotations

import io
import os
import re
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from .._execution import files, memory
from . import terminal
from .table_errors import TableError, listed, one_line

__all__ = ["Source", "is_parquet", "is_stream", "open_source", "shown_name"]

SAMPLE_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
SHARE_OF_MEMORY = 4  # a pipe, or what a compressed file unpacks to, may fill this part of the free memory
STANDARD_INPUT = Path("-")

PACKINGS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
TABLES = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow stream"}
FOREIGN = {  # how a file begins -> what it is, and what to do
    b"PARE": ("an encrypted Parquet file", "write it without encryption"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet in the old format of Excel", "save it as .xlsx or CSV"),
    b"\xff\xfe": ("encoded as UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("encoded as UTF-16", "save it as UTF-8"),
    b"%PDF": ("a PDF document", "export the table as CSV or Parquet"),
    b"version https://git-lfs": ("a pointer of Git LFS, not the table itself", "get the content with git lfs pull"),
}
MARKUP = re.compile(rb"<(!doctype\s+html|html|head|body|table|div)\b", re.IGNORECASE)
JSON = re.compile(rb'\{\s*(["}]|$)|\[\s*([\[{"\]]|-?\d[^\]]*[,\]\n])')


@dataclass(frozen=True)
class Source:
    """The bytes of a table, and what they are.

    Parameters
    ----------
    name : str
        As it is called in messages.
    kind : str
        "text", "parquet", "arrow", "arrow stream" or "xlsx".
    head : bytes
        The first ones.
    path : Path
        Where they lie on disk.
    content : pyarrow.Buffer, default=None
        All of them, where they do not lie on disk as they are.
    """

    name: str
    kind: str
    head: bytes
    path: Path
    content: Any = None

    def file(self) -> IO[bytes]:
        """The bytes as a file of Python."""
        return open(self.path, "rb") if self.content is None else io.BytesIO(self.content)

    def native(self) -> Any:
        """The bytes as a file of pyarrow, which is not unpacked because of its name."""
        import pyarrow as pa

        return pa.OSFile(os.fspath(self.path)) if self.content is None else pa.BufferReader(self.content)


def shown_name(path: Path) -> str:
    """Name of a file or folder in messages; "." and ".." are called what they are."""
    if is_stream(path):
        return "standard input" if path in (STANDARD_INPUT, Path("/dev/stdin")) else str(path)
    return path.name if path.name not in ("", "..") else path.resolve().name or str(path.resolve())


def is_stream(path: Path) -> bool:
    """Whether a path is standard input, a pipe or a device: what can be read once only."""
    return path == STANDARD_INPUT or files.is_stream(path)


def is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file or a folder, which must then hold Parquet files and nothing else.

    Pipes are not: they cannot be read in blocks from any place.
    """
    if path.is_dir():
        _refuse_other_folders(path)
        return True
    return not is_stream(path) and open_source(path, unpack=False).kind == "parquet"


def _refuse_other_folders(folder: Path) -> None:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not _is_hidden(file, folder)]
    others = [file for file in files if _beginning(file, 4) != b"PAR1"]
    if len(others) == len(files):
        held = f"; it holds {listed([file.name for file in files], 3)}. Give one of these" if files else ""
        raise TableError(f"{shown_name(folder)} is a folder without Parquet files, not a table{held}.")
    if others:
        name = others[0].relative_to(folder)
        raise TableError(
            f"{shown_name(folder)} is a folder of Parquet files, but {name} in it is none; a folder is read as one "
            f"table: move that file to another place, or give a single file."
        )


def _is_hidden(file: Path, folder: Path) -> bool:
    """Whether pyarrow passes over a file: marks of other programs, such as _SUCCESS."""
    return any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)


def _beginning(path: Path, n_bytes: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(n_bytes)


def open_source(path: Path, unpack: bool = True) -> Source:
    """Find out what a file is; raise if it is no table, with what it is and what to do.

    Without `unpack`, a compressed file is left as it is and its kind is how it is compressed.
    """
    name = shown_name(path)
    if is_stream(path):
        source = _from_content(name, path, _all_of_stream(path, name))
    elif not path.exists():
        raise TableError(f"there is no file {path}.")
    else:
        source = Source(name, "", _beginning(path, SAMPLE_BYTES), path)
    packing = _mark(PACKINGS, source.head)
    if packing and not unpack:
        return replace(source, kind=packing)
    if packing:
        source = _from_content(name, path, _unpacked(source, packing))
        if again := _mark(PACKINGS, source.head):
            raise TableError(f"{name} is compressed twice ({packing}, then {again}); unpack it first.")
    return replace(source, kind=_kind(source))


def _from_content(name: str, path: Path, content: Any) -> Source:
    return Source(name, "", bytes(content[:SAMPLE_BYTES]), path, content)


def _mark(marks: dict[bytes, str], head: bytes) -> str:
    return next((kind for mark, kind in marks.items() if head.startswith(mark)), "")


def _kind(source: Source) -> str:
    head, name = source.head, source.name
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        raise TableError(f"{name} is empty.")
    if kind := _mark(TABLES, head):
        return kind
    if head[:2] == b"PK":
        return _kind_of_archive(source)
    for mark, (what, instead) in FOREIGN.items():
        if head.startswith(mark):
            raise TableError(f"{name} is {what}; {instead}.")
    _refuse_markup(head.removeprefix(b"\xef\xbb\xbf").lstrip(), name)
    if b"\x00" in head:
        raise TableError(_zeros(head, name))
    return "text"


def _zeros(head: bytes, name: str) -> str:
    """What is said of a file with zero bytes: a text after a damaged transfer has a few, other files have many."""
    if sum(byte < 32 and byte not in b"\t\n\r\x0c" for byte in head) > max(1, len(head) / 100):
        return f"{name} is neither text (UTF-8 or cp1252) nor Parquet, Arrow or Excel; save the table as one of these."
    line = len(re.findall(rb"\r\n|\n|\r", head[: head.index(0)])) + 1
    return f"line {line} of {name} holds a zero byte (NUL), as after a damaged transfer; get the file again."


def _refuse_markup(text: bytes, name: str) -> None:
    """Raise for texts that are not tables; they would be read as tables of one strange column."""
    if JSON.match(text):
        raise TableError(f"{name} is JSON, not a table; save the table as CSV or Parquet first.")
    if MARKUP.match(text):
        raise TableError(f"{name} is a web page (HTML), not a table; save the table in it as CSV first.")
    if text.startswith(b"<?xml"):
        raise TableError(f"{name} is XML, not a table; save the table as CSV or Parquet first.")


def _kind_of_archive(source: Source) -> str:
    names: list[str] = []
    with suppress(zipfile.BadZipFile, OSError, ValueError), source.file() as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    if "xl/workbook.xml" in names:
        return "xlsx"
    if "schema.json" in names:
        raise TableError(f"{source.name} looks like a model; a table is needed here.")
    if names and "content.xml" not in names and not any(name.startswith("xl/") for name in names):
        raise TableError(f"{source.name} is a zip archive ({listed(names, 3)}); unpack it and give a table in it.")
    raise TableError(f"{source.name} looks like a spreadsheet that cannot be read; save it as .xlsx or CSV first.")


def _all_of_stream(path: Path, name: str) -> Any:
    if path == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.closed:
            raise TableError("standard input is closed; give the name of a file, or pipe a table into the command.")
        descriptor = os.dup(0)
    else:
        descriptor = os.open(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if file.isatty():
            raise TableError(f"{name} is a terminal; give the name of a file, or pipe a table into the command.")
        return _limited(file.read, name, "holds", "write it to a file first, and give its name")


def _unpacked(source: Source, packing: str) -> Any:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(source.native(), packing) as stream:
            return _limited(stream.read, source.name, "unpacks to", "save it as Parquet, which is read in blocks")
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{source.name} is a damaged {packing} file, get it again: {one_line(error)}") from error


def _limited(read: Callable[[int], bytes], name: str, verb: str, instead: str) -> Any:
    """All bytes, if they fill no more than a share of the free memory."""
    import pyarrow as pa

    limit, parts, total = memory.available_bytes() / SHARE_OF_MEMORY, [], 0
    with terminal.progress(f"reading {name}"):
        while part := read(CHUNK_BYTES):
            parts.append(part)
            total += len(part)
            if total > limit:
                raise TableError(
                    f"{name} {verb} more than {memory.describe(limit)}, the quarter of the free memory it may fill; "
                    f"{instead}."
                )
    return pa.py_buffer(b"".join(parts))  # parts and whole together are half of what was free
