"""Files that are whole or not there: written beside their place under a temporary name, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
Name = str | os.PathLike[str]

_unfinished: dict[Path, list[Path]] = {}  # temporary file -> folders that were made for it, outermost first


def atomically(path: Name, write: Callable[[Path], Result]) -> Result:
    """Call ``write(temporary)`` and rename what it wrote to `path`; readers see the old file or the new one.

    Parameters
    ----------
    path : path
        A link stays a link: what it points to is replaced. An old file's permissions are kept. Folders are made where
        they are missing, and removed again if writing fails. Pipes and devices are written directly.
    write : callable
        Writes a file of the given path, which has the suffix of `path`.

    Returns
    -------
    object
        What `write` returned.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from olsen._execution.files import atomically
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "note.txt"
    ...     n_written = atomically(target, lambda file: file.write_text("whole"))
    ...     n_written, target.read_text()
    (5, 'whole')
    """
    if is_stream(path):
        return write(Path(path))
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".olsen-{os.getpid()}-{os.urandom(4).hex()}{place.suffix}")
    _unfinished[temporary] = [folder for folder in reversed(place.parents) if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(0o600 if place.exists() else 0o666, exist_ok=False)  # as private as the old file meanwhile
        result = write(temporary)
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())  # so that not even a power failure leaves half a file
        if place.exists():
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
        return result
    except BaseException as error:
        _remove(temporary)
        if (number := _disk_full(error)) is None:
            raise
        reason = f"cannot write, {os.strerror(number).lower()}; nothing was changed"
        raise OSError(number, reason, str(path)) from error
    finally:
        del _unfinished[temporary]


def check_writable(path: Name) -> None:
    """Raise OSError if :func:`atomically` could not write there. Nothing is changed, no folder is made."""
    place = Path(os.path.realpath(path))
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot write, the file is write-protected", str(path))
    if is_stream(place):
        return
    try:
        # permissions are not enough: the disk may be full
        tempfile.TemporaryFile(dir=next(folder for folder in place.parents if folder.exists())).close()
    except OSError as error:
        raise OSError(error.errno, f"cannot write, {(error.strerror or 'refused').lower()}", str(path)) from None


def is_stream(path: Name) -> bool:
    """Whether a path is a pipe or a device: written, never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def remove_unfinished() -> None:
    """Remove the temporary files of this process, and folders made for them: for a process that is about to end."""
    for temporary in list(_unfinished):
        _remove(temporary)


def _remove(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink()
    for folder in reversed(_unfinished[temporary]):
        with suppress(OSError):
            folder.rmdir()


def _disk_full(error: BaseException | None) -> int | None:
    """The system's number for a full disk if that is behind an error, such as those of Matplotlib closing its files."""
    while error is not None:
        if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in ("ENOSPC", "EFBIG", "EDQUOT"):
            return error.errno
        error = error.__cause__ or error.__context__
    return None
