"""One open shard: bytes at an offset, or an error that names file and tensor; knows no dtypes and maps nothing.

A mapping of a file that was cut ends the process; a read through the open file is an error that can be told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tensorfold.checkpoint.errors import CheckpointError


class Stamp(NamedTuple):
    """What tells that a file is the one that was verified: device, inode, size in bytes, time of change in ns."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, info: os.stat_result) -> Stamp:
        return cls(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


class ShardFile:
    """A shard held open, so that it stays the verified one even if another file takes its name."""

    def __init__(self, path: Path, stamp: Stamp) -> None:
        """Raises CheckpointError unless the file is still the one with this stamp."""
        self.path, self._stamp = path, stamp
        self._scattered = False
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raises CheckpointError if the file was cut, written to or replaced since its header was verified."""
        now = Stamp.of(os.fstat(self._fd))
        if now.size != self._stamp.size:
            raise CheckpointError(
                f"{self.path}: {self._stamp.size} bytes when its header was read, {now.size} now: restore the file "
                "and load again"
            )
        if now != self._stamp:
            raise CheckpointError(f"{self.path}: changed since its header was read: load again")

    def read(self, start: int, count: int, what: str) -> bytes:
        """Bytes [start, start + count) of the file. Raises CheckpointError naming `what` if they cannot be had."""
        try:
            data = os.pread(self._fd, count, start)
        except OSError as error:
            raise self._unreadable(error, start, what) from error
        if len(data) == count:
            return data
        out = bytearray(count)
        self.read_into(memoryview(out), start, what)
        return bytes(out)

    def read_each(self, starts: Iterable[int], count: int, what: str) -> list[bytes]:
        """`count` bytes from each of `starts`, as `read` gives them one by one."""
        fd, pread, offsets = self._fd, os.pread, list(starts)
        try:
            found = [pread(fd, count, start) for start in offsets]
        except OSError:
            found = []
        if len(found) == len(offsets) and sum(map(len, found)) == count * len(offsets):
            return found
        return [self.read(start, count, what) for start in offsets]

    def read_into(self, out: memoryview, start: int, what: str) -> None:
        """Fills `out`, a flat view of bytes, from byte `start` on. Raises CheckpointError as `read` does."""
        done = 0
        while done < len(out):
            try:
                got = os.preadv(self._fd, [out[done:]], start + done)
            except OSError as error:
                raise self._unreadable(error, start + done, what) from error
            if not got:
                raise CheckpointError(
                    f"{self.path}: ends at byte {start + done}, inside {what}, and had {self._stamp.size} bytes when "
                    "its header was read: restore the file and load again"
                )
            done += got

    def scattered(self) -> None:
        """Tells the system that what follows a read is not read next, where it can be told."""
        if not self._scattered and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._scattered = True

    def close(self) -> None:
        """Lets the file go; reads are errors afterwards."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def _unreadable(self, error: OSError, start: int, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: byte {start}, inside {what}, cannot be read: {error.strerror or error}")
