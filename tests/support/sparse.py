"""Files of several GiB that take no disk, as what nobody wrote is a hole, and the bytes that tests put into them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

LENGTH = 1024  # bytes that are written at a place


def pattern(place: int, count: int = LENGTH) -> bytes:
    """What lies at a place: bytes of its own, none of them a hole's zero, and no NaN in any dtype."""
    return np.random.default_rng(place).integers(1, 101, count, np.uint8).tobytes()


def sparse(path: Path, size: int, places: Iterable[int], count: int = LENGTH) -> None:
    """A file of `size` bytes that holds `pattern` at `places`; skips where its holes would take disk."""
    try:
        with path.open("ab") as file:
            file.truncate(size)
    except OSError as error:
        path.unlink()
        pytest.skip(f"needs a file system that takes sparse files of {size} bytes: {error.strerror}")
    if getattr(path.stat(), "st_blocks", size) * 512 > 2**26:
        path.unlink()
        pytest.skip("needs a file system with sparse files")
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            file.write(pattern(place, min(count, size - place)))


def address_space(size: int) -> None:
    """Skips where memory that is not touched cannot be had in such an amount."""
    try:
        np.empty(size, np.uint8)
    except MemoryError:
        pytest.skip(f"needs {size} bytes of address space that overcommits")
