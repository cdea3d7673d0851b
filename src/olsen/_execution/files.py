"""Atomic writing: a file is written in its folder under a temporary name and then renamed."""

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

# temporary file -> folders created for it, outermost first
_unfinished: dict[Path, list[Path]] = {}


def atomically(path: Name, write: Callable[[Path], Result]) -> Result:
    """Call ``write(temporary)`` and rename the temporary file to `path`; readers see the old file
    or the new one.

    Parameters
    ----------
    path : path
        A link stays a link, and its target is replaced. The permissions of an old file are kept.
        Missing folders are created, and removed again if writing fails. Pipes and devices are
        written directly.
    write : callable
        Writes the file at the path that it is called with, which has the suffix of `path`.

    Returns
    -------
    object
        Return value of `write`.

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
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".olsen-{os.getpid()}-{os.urandom(4).hex()}{target.suffix}")
    _unfinished[temporary] = [folder for folder in reversed(target.parents) if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(
            0o600 if target.exists() else 0o666, exist_ok=False
        )  # the old file may be private
        result = write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())  # so that not even a power failure leaves half a file
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
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
    """Raise OSError if :func:`atomically` could not write to a path. Nothing is changed, no folder
    is created.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot write, the file is write-protected", str(path))
    if is_stream(target):
        return
    try:
        # A test of permissions is not enough: the disk may be full.
        tempfile.TemporaryFile(
            dir=next(folder for folder in target.parents if folder.exists())
        ).close()
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write, {(error.strerror or 'refused').lower()}", str(path)
        ) from None


def refuse_missing_folder(path: Name, name: str) -> None:
    """Raise if the folder of a file that is to be written does not exist: a mistyped name would
    make a new one.
    """
    folder = Path(path).parent
    if not folder.exists():
        raise FileNotFoundError(
            f"{name}: there is no folder {folder}. Make it first, or choose another place."
        )


def is_stream(path: Name) -> bool:
    """Whether a path is a pipe or a device, which is written to and never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def remove_unfinished() -> None:
    """Remove the temporary files of this process and the folders created for the files, before the
    process ends.
    """
    for temporary in list(_unfinished):
        _remove(temporary)


def _remove(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink()
    for folder in reversed(_unfinished[temporary]):
        with suppress(OSError):
            folder.rmdir()


def _disk_full(error: BaseException | None) -> int | None:
    """Return the errno of a full disk if that caused an error, such as Matplotlib's when it closes
    a file.
    """
    while error is not None:
        if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in (
            "ENOSPC",
            "EFBIG",
            "EDQUOT",
        ):
            return error.errno
        error = error.__cause__ or error.__context__
    return None
