"""Files that are whole or not there: written beside their place under a temporary name, then renamed.

A temporary file is locked by the process that writes it, and the lock ends with the process, however that ends. So the
next one that writes into the folder can tell what was left behind, and removes it. Where locks are not to be had
(Windows, some network disks) such files are left alone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["atomically", "check_writable", "is_stream", "own_descriptor", "remove_unfinished", "same_place"]

Result = TypeVar("Result")
Name = str | os.PathLike[str]

TEMPORARY = re.compile(r"\.olsen-([0-9a-f]{8})-\d+-[0-9a-f]{8}(\..*)?")  # machine, process, chance, suffix
FOREIGN_AGE = 86_400  # seconds without a change after which what another machine has left is removed too
ATTEMPTS = 10
DISK_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) if hasattr(errno, "EDQUOT") else (errno.ENOSPC, errno.EFBIG)

_unfinished: dict[Path, list[Path]] = {}  # temporary file -> folders that were made for it


def atomically(path: Name, write: Callable[[Path], Result], *, durable: bool = True) -> Result:
    """Call ``write(temporary)`` and rename what it wrote to `path`; readers see the old file or the new one.

    Parameters
    ----------
    path : path
        A link stays a link: what it points to is replaced. An old file's permissions are kept. Folders are made where
        they are missing, and removed again if writing fails. Pipes and devices are written directly.
    write : callable
        Writes a file of the given path, which has the suffix of `path`.
    durable : bool, default=True
        Wait until the disk has it, so that not even a power failure leaves half a file.

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
    descriptor = own_descriptor(path)
    if descriptor is not None:
        return _through_descriptor(descriptor, Path(path), write)
    if is_stream(path):
        return write(Path(path))
    made: list[Path] = []
    try:
        return _replace(Path(os.path.realpath(path)), made, write, durable)
    except BaseException as error:
        _remove_folders(made)
        number = _disk_full(error)
        if number is None:
            raise
        reason = f"cannot write, {os.strerror(number).lower()}; nothing was changed"
        raise OSError(number, reason, str(path)) from error


def check_writable(path: Name) -> None:
    """Raise OSError if :func:`atomically` could not write there. Nothing is changed, no folder is made."""
    descriptor = own_descriptor(path)
    if descriptor is not None:
        os.fstat(descriptor)
        return
    place = Path(os.path.realpath(path))
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot write, the file is write-protected", str(path))
    if is_stream(place):
        return
    try:
        with tempfile.TemporaryFile(dir=_existing(place.parent)):  # permissions are not enough: the disk may be full
            pass
    except OSError as error:
        raise OSError(error.errno, f"cannot write, {(error.strerror or 'refused').lower()}", str(path)) from None


def is_stream(path: Name) -> bool:
    """Whether a path is a pipe, a device, or a name of one of our own descriptors: written, never replaced."""
    if own_descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def own_descriptor(path: Name) -> int | None:
    """Number of the open file meant by names such as /dev/stdout and /dev/fd/3."""
    text = os.fspath(path)
    named = {"/dev/stdout": 1, "/dev/stderr": 2}.get(text)
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", text)
    return int(found[1]) if found else named


def same_place(first: Name, second: Name) -> bool:
    """Whether two paths mean one file, which need not exist.

    Links of both kinds count as the file itself; capital letters as small ones where the file system takes them so, as
    far as what is in the folder tells.
    """
    a, b = Path(os.path.realpath(first)), Path(os.path.realpath(second))
    if a == b:
        return True
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them is not there
        pass
    if a.exists() or b.exists() or a.parent == a or b.parent == b or not same_place(a.parent, b.parent):
        return False
    return a.name == b.name or (_folded(a.name) == _folded(b.name) and _folds_case(_existing(a.parent)))


def remove_unfinished() -> None:
    """Remove the temporary files of this process, and folders made for them: for a process that is about to end."""
    for temporary, made in list(_unfinished.items()):
        with suppress(OSError):
            temporary.unlink()
        _remove_folders(made)


def _replace(place: Path, made: list[Path], write: Callable[[Path], Result], durable: bool) -> Result:
    temporary, handle = _create_locked(place, made)
    try:
        result = write(temporary)
        if durable:
            os.fsync(handle)
        _copy_permissions(place, temporary)
        if fcntl is None:  # Windows renames no open files
            os.close(handle)
            handle = -1
        os.replace(temporary, place)
        if durable:
            _sync_folder(place.parent)
        return result
    finally:
        with suppress(OSError):
            temporary.unlink()
        if handle >= 0:
            os.close(handle)  # ends the lock, after the renaming
        _unfinished.pop(temporary, None)


def _disk_full(error: BaseException | None) -> int | None:
    """The system's number for a full disk if that is behind an error, such as those of Matplotlib closing its files."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def _create_locked(place: Path, made: list[Path]) -> tuple[Path, int]:
    """A new empty file beside `place`, locked, and its open handle. Folders made for it are added to `made`."""
    mode = 0o666 if not place.exists() else stat.S_IMODE(place.stat().st_mode) & 0o666 | 0o600
    for _ in range(ATTEMPTS):
        _make_folders(place.parent, made)
        _remove_left_behind(place.parent)
        temporary = place.with_name(f".olsen-{_machine()}-{os.getpid()}-{os.urandom(4).hex()}{place.suffix}")
        _unfinished[temporary] = made
        with suppress(FileNotFoundError):  # the folder was empty, and another process has removed it
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            _lock(handle, wait=True)
            if fcntl is None or os.fstat(handle).st_nlink:  # else taken for a dead one before it was locked
                return temporary, handle
            os.close(handle)
        del _unfinished[temporary]
    raise FileNotFoundError(errno.ENOENT, "cannot write, the folder disappears", str(place))


def _lock(handle: int, wait: bool) -> bool:
    """Lock an open file; False if another process has it, or if there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _machine() -> str:
    """Eight digits that differ between machines, the same in all containers of one, new after a restart of it."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        text = platform.node()
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _remove_left_behind(folder: Path) -> None:
    """Remove temporary files whose processes are dead: nobody holds their locks."""
    try:
        names = os.listdir(folder)
    except OSError:  # a folder may be closed for reading and open for writing
        return
    for name in names:
        found = TEMPORARY.fullmatch(name)
        if found:
            with suppress(OSError):  # another user's, or removed by another process meanwhile
                _remove_if_left(folder / name, found[1])


def _remove_if_left(file: Path, machine: str) -> None:
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode):
        return
    if machine != _machine() and time.time() - found.st_mtime < FOREIGN_AGE:
        return  # locks of another machine may not be seen here
    handle = os.open(file, os.O_RDWR)
    try:
        if _lock(handle, wait=False):
            file.unlink()
    finally:
        os.close(handle)


def _copy_permissions(old: Path, new: Path) -> None:
    """Give a file the owner, the group, the permissions and the access list of another one, if that exists."""
    try:
        known, ours = old.stat(), new.stat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(known.st_mode) & 0o777
    if sys.platform != "win32":
        if known.st_uid != ours.st_uid:
            with suppress(OSError):
                os.chown(new, known.st_uid, -1)
        if known.st_gid != ours.st_gid:
            try:
                os.chown(new, -1, known.st_gid)
            except OSError:  # what one group may do is not for another one
                mode &= ~0o070
    os.chmod(new, mode)
    if sys.platform == "linux":
        with suppress(OSError):
            os.setxattr(new, "system.posix_acl_access", os.getxattr(old, "system.posix_acl_access"))


def _sync_folder(folder: Path) -> None:
    """Have the disk know the new name too; not every system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _through_descriptor(number: int, path: Path, write: Callable[[Path], Result]) -> Result:
    """Write to an open file of this process. To a file on disk at its end or where it stands, as the shell left it."""
    sys.stdout.flush()
    mode = os.fstat(number).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return write(path)
    with tempfile.TemporaryFile() as collected:  # opening the name again would begin at its first byte
        result = write(Path(f"/dev/fd/{collected.fileno()}"))
        collected.seek(0)
        with os.fdopen(os.dup(number), "wb") as stream:
            shutil.copyfileobj(collected, stream)
    return result


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make a folder and those around it, and add those that were not there to `made`, outermost first."""
    if not folder.exists():
        _make_folders(folder.parent, made)
        with suppress(FileExistsError):
            folder.mkdir()
            made.append(folder)


def _remove_folders(made: list[Path]) -> None:
    """Remove folders that are empty, innermost first."""
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def _existing(folder: Path) -> Path:
    """The folder, or the innermost one around it that exists."""
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _folds_case(folder: Path) -> bool:
    """Whether a name in a folder can be written with other capitals; False where no name in it tells."""
    for name in os.listdir(folder):
        if name.swapcase() != name:
            try:
                return os.path.samefile(folder / name, folder / name.swapcase())
            except OSError:
                return False
    return False
