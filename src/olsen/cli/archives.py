"""The container of a model file: a ZIP archive that is read only where it is one that olsen could have written.

Entries of our models are stored, not compressed, and lie side by side. Hence nothing in them can be larger than the
file itself, whatever it declares, and an archive that says otherwise is refused before anything is read from it.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SCHEMA", "Archive", "ArchiveError", "opened"]

SCHEMA = "schema.json"
MOST_SCHEMA_BYTES = 1 << 26  # a million columns with names of twenty letters
MOST_ENTRIES = 200  # a model has some thirty arrays, whatever its size
MOST_DIRECTORY_BYTES = 256 * MOST_ENTRIES

END = struct.Struct("<4s4H2LH")  # the record that ends an archive: ..., entries, bytes of the directory, ..., comment
END_MARK, LARGE_MARK = b"PK\x05\x06", b"PK\x06\x07"
LARGE_MARK_BYTES = 20
LARGE = 1 << 31  # bytes of a file from which on the directory is one of 64 bits

ARRAY_NAME = re.compile(r"[0-9]{1,20}\.npy")
ARRAY_MARK = b"\x93NUMPY\x01\x00"
ARRAY_HEADER = re.compile(
    rb"\{'descr': '([<>]f[48]|[<>|][iu][1248]|\|b1)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18},? ?){0,2})\), \} *\n"
)
LARGEST_HEADER = 512

# What zipfile raises for archives that are damaged, or that use what we do not
ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, OverflowError,
              struct.error)  # fmt: skip


class ArchiveError(ValueError):
    """An archive that no model of ours can be, and why."""


class Archive:
    """An archive whose directory has been checked; entries are read one by one."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._arrays: dict[str, NDArray[Any]] = {}

    def schema(self) -> bytes:
        """The text that describes the content."""
        return self._read(SCHEMA)

    def array(self, name: object) -> NDArray[Any]:
        """An array of numbers; the same object for the same name."""
        if not isinstance(name, str) or not ARRAY_NAME.fullmatch(name):
            raise ArchiveError("an array is not where olsen stores arrays")
        if name not in self._arrays:
            self._arrays[name] = _as_array(self._read(name), name)
        return self._arrays[name]

    def _read(self, name: str) -> bytes:
        try:
            return self._archive.read(name)
        except KeyError:
            raise ArchiveError(f"its part {name} is missing") from None
        except ZIP_ERRORS as error:
            raise ArchiveError(f"its part {name} is damaged") from error


@contextmanager
def opened(file: IO[bytes]) -> Iterator[Archive]:
    """An archive for reading, from a file that is open; `ArchiveError` if it is none of ours."""
    _check_end(file)
    try:
        archive = zipfile.ZipFile(file)
    except ZIP_ERRORS as error:
        raise ArchiveError("its list of parts is damaged") from error
    with archive:
        _check_entries(archive.infolist(), file.seek(0, 2))
        yield Archive(archive)


def _check_end(file: IO[bytes]) -> None:
    """Look at the record that says how long the list of parts is, before this list is read."""
    size = file.seek(0, 2)
    if size < END.size:
        raise ArchiveError("it is too short")
    file.seek(max(0, size - END.size - LARGE_MARK_BYTES))
    end = file.read()
    mark, *_, n_entries, n_bytes, _, comment = END.unpack(end[-END.size :])
    if mark != END_MARK or comment:
        raise ArchiveError("it does not end as one, so it is something else or has been cut short")
    if n_entries > MOST_ENTRIES or (n_bytes > MOST_DIRECTORY_BYTES) or (end[:4] == LARGE_MARK and size < LARGE):
        raise ArchiveError(f"it lists more than {MOST_ENTRIES} parts")


def _check_entries(entries: list[zipfile.ZipInfo], n_bytes: int) -> None:
    names = {entry.filename for entry in entries}
    if len(names) < len(entries):
        raise ArchiveError("it holds two parts of one name")
    if SCHEMA not in names or not all(name == SCHEMA or ARRAY_NAME.fullmatch(name) for name in names):
        raise ArchiveError("it does not hold the parts of one")
    declared = sum(entry.file_size for entry in entries)
    if any(entry.flag_bits & 1 for entry in entries):
        raise ArchiveError("it is encrypted")
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size for entry in entries):
        raise ArchiveError(f"it is compressed, to {n_bytes} bytes from {declared}, which models are not")
    if declared > n_bytes:
        raise ArchiveError(f"it declares {declared} bytes, more than the {n_bytes} it has")
    described = next(entry.file_size for entry in entries if entry.filename == SCHEMA)
    if described > MOST_SCHEMA_BYTES:
        raise ArchiveError(f"its description has {described} bytes, more than the {MOST_SCHEMA_BYTES} that are read")


def _as_array(data: bytes, name: str) -> NDArray[Any]:
    """Numbers in NumPy's own format, of which only the form that is written for plain arrays is read."""
    start = len(ARRAY_MARK) + 2
    header = ARRAY_HEADER.fullmatch(data[start : start + int.from_bytes(data[start - 2 : start], "little")])
    if data[: len(ARRAY_MARK)] != ARRAY_MARK or header is None or header.end() > LARGEST_HEADER:
        raise ArchiveError(f"its part {name} is not an array of numbers")
    kind, shape = np.dtype(header[1].decode()), tuple(int(n) for n in re.findall(rb"[0-9]+", header[3]))
    body = memoryview(data)[start + header.end() :]
    if math.prod(shape) * kind.itemsize != len(body):
        raise ArchiveError(f"its part {name} holds {len(body)} bytes, but declares {_times(shape)} numbers")
    if 0 in shape:
        return np.zeros(shape if max(shape) < LARGE else (0,), kind.newbyteorder("="))
    values = np.frombuffer(body, kind).reshape(shape, order="F" if header[2] == b"True" else "C")
    return values.astype(kind.newbyteorder("="))  # a copy that can be written to, as after a fit


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"
