"""The emulator's runtime: built once by clang, loaded once, its buffers as a context manager. Knows no kernel."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.proof.host import clang

_FOLDER = Path(__file__).parent / "emulator"
_SOURCES = ("fibers.cpp", "memory.cpp", "launch.cpp")


class EmulatorError(RuntimeError):
    """The emulator refused what a kernel did: a race, an access out of bounds, diverging barriers, too much memory."""


@cache
def runtime() -> ctypes.CDLL:
    """The loaded runtime; its symbols are visible to kernels loaded later."""
    texts = "".join((_FOLDER / name).read_text() for name in ("runtime.h", *_SOURCES))
    path = clang.cache_folder() / f"runtime_{hashlib.sha256(texts.encode()).hexdigest()[:20]}.so"
    if not path.exists():
        flags = ["-x", "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-ftls-model=initial-exec"]
        sources = [str(_FOLDER / name) for name in _SOURCES]
        build(path, [*flags, *sources, "-x", "none", "-lstdc++"])
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.tf_buffer.restype = library.tf_holed.restype = ctypes.c_void_p
    library.tf_buffer.argtypes = [ctypes.c_ulong, ctypes.c_ulong, ctypes.c_int, ctypes.c_int]
    library.tf_holed.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_int]
    for name in ("tf_read_only", "tf_release", "tf_spilled", "tf_unwritten"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.tf_spilled.restype = library.tf_unwritten.restype = ctypes.c_ulong
    library.tf_error.restype = ctypes.c_char_p
    return library


def build(path: Path, arguments: list[str], source: str | None = None) -> None:
    """Have clang write a shared object; it appears under its name only when whole."""
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    done = clang.run([*arguments, "-o", str(partial)], source)
    if done.returncode:
        raise clang.ClangFailed(f"clang could not build {path.name}: {done.stderr[-800:]}")
    os.replace(partial, path)


class Buffers:
    """Guarded copies of arrays for one launch; released at the end of the `with` block."""

    def __init__(self, track: bool):
        self._runtime, self._track, self._held = runtime(), track, list[int]()

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self._held:
            self._runtime.tf_release(address)

    def put(self, array: NDArray[Any], offset: int = 0, output: bool = False) -> int:
        """A guarded copy whose address is `offset` modulo 16; inputs cannot be written."""
        address = self._runtime.tf_buffer(array.nbytes, offset, int(output), int(self._track))
        if not address:
            raise MemoryError(f"no address space for a buffer of {array.nbytes} bytes")
        self._held.append(address)
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        if not output:
            self._runtime.tf_read_only(address)
        return address

    def put_apart(self, array: NDArray[Any], front: int, hole: int, output: bool = False) -> int:
        """As `put`, with `hole` bytes of bare address space behind the first `front` bytes of the array."""
        data = None if output else array.ctypes.data
        address = self._runtime.tf_holed(data, front, hole, array.nbytes - front, int(output))
        if not address:
            raise MemoryError(f"no address space for a buffer of {array.nbytes + hole} bytes")
        self._held.append(address)
        return int(address)

    def take_apart(self, address: int, like: NDArray[Any], front: int, hole: int) -> NDArray[Any]:
        """What stands in an output with a hole now, its parts side by side."""
        out = np.empty_like(like)
        ctypes.memmove(out.ctypes.data, address, front)
        ctypes.memmove(out.ctypes.data + front, address + front + hole, out.nbytes - front)
        return out

    def take(self, address: int, like: NDArray[Any]) -> NDArray[Any]:
        """What stands in an output now."""
        out = np.empty_like(like)
        ctypes.memmove(out.ctypes.data, address, out.nbytes)
        return out

    def spilled(self, address: int) -> int:
        """Bytes around a buffer that were written."""
        return int(self._runtime.tf_spilled(address))

    def unwritten(self, address: int) -> int:
        """Bytes of an output that nothing wrote; 0 when not tracked."""
        return int(self._runtime.tf_unwritten(address))


def launch(
    entry: Any,
    arguments: Sequence[int],
    grid: Sequence[int],
    threadgroup: Sequence[int],
    workers: int,
    schedule: int,
    flush: bool,
    track: bool,
    kept: tuple[int, int, int] | None = None,
) -> int:
    """Run one launch; the bytes of threadgroup memory it took. EmulatorError says what was wrong, in which thread.

    `kept` is (axis, first, last): so many threadgroups along an axis run, from its first one and up to its last.
    """
    addresses = (ctypes.c_ulong * len(arguments))(*arguments)
    three = ctypes.c_uint * 3
    code = ctypes.cast(entry, ctypes.c_void_p)
    some = None if kept is None else three(*kept)
    how = (1 if track else workers, ctypes.c_uint(schedule), int(flush), int(track), some)
    failed = runtime().tf_launch(code, addresses, three(*grid), three(*threadgroup), *how)
    if failed:
        raise EmulatorError(runtime().tf_error().decode())
    return int(runtime().tf_shared_peak())
