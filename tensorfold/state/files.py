"""Files that are written whole or not at all, and stay where links lead and as open as they were; knows no states."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PART = ".part"


def check(path: Path) -> None:
    """Raises OSError, naming `path`, where `write` could put no file: no folder, or something that is no plain file."""
    _target(path)


def read(path: Path) -> bytes:
    """What a file holds. Raises OSError naming `path`."""
    with _named(path):
        return path.read_bytes()


def write(path: Path, data: bytes) -> None:
    """Puts `data` at `path`: the file is the old one, or none, until the new one is whole on disk.

    A link stays and what it leads to is replaced. The mode is the old file's, or what umask gives. What a killed
    `write` left for the same place is removed. Raises OSError naming `path`; nothing is left beside it then.
    """
    target, mode = _target(path)
    with _named(path):
        _sweep(target)
        descriptor, part = _part(target, 0o666 if mode is None else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
                if mode is not None and stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                    os.fchmod(descriptor, mode)
                os.replace(part, target)  # while its lock is held
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise


def _target(path: Path) -> tuple[Path, int | None]:
    """Where the bytes of `path` lie, links followed, and the mode of the file that is there."""
    with _named(path):
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            if not target.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, "There is no folder for this file") from None
            return target, None
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "This is a folder: name a file in it")
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "This is no plain file, which alone can be replaced as a whole")
        return target, stat.S_IMODE(mode)


def _part(target: Path, mode: int) -> tuple[int, str]:
    """A new file beside `target`, open, and locked so that `_sweep` leaves it alone while its writer lives."""
    while True:
        part = f"{target.parent / _beginning(target)}{secrets.token_hex(8)}{_PART}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        _lock(descriptor, fcntl.LOCK_EX)
        if os.path.lexists(part):
            return descriptor, part
        os.close(descriptor)  # swept before it was locked


def _sweep(target: Path) -> None:
    """Removes what killed writers left for `target`: their locks ended with them."""
    with suppress(OSError), os.scandir(target.parent) as found:
        left = [e.path for e in found if e.name.startswith(_beginning(target)) and e.name.endswith(_PART)]
        for part in left:
            with suppress(OSError), open(part, "r+b") as file:
                if _lock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    os.unlink(part)


def _lock(descriptor: int, how: int) -> bool:
    """Whether the file is ours now; some file systems have no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


def _beginning(target: Path) -> str:
    """How the names of temporary files for `target` begin: short, as its own name may be as long as names can be."""
    return f".tensorfold-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """System errors name `path`, not a temporary file or what a link leads to."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
