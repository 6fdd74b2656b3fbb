"""Arrays that are too long to be there: bare address space between their first and their last rows. Knows no kernel.

An offset that is cut to 32 bits, or a place to fewer, leads into the hole or back to the first rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array


@dataclass(frozen=True)
class Holed:
    """An array as a kernel sees it: the first `front` rows of `array`, `hole` rows that are not there, its last rows.

    Rows are along `axis`; axes before it have length one.
    """

    array: Array
    front: int
    hole: int
    axis: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        have = self.array.shape
        return (*have[: self.axis], have[self.axis] + self.hole, *have[self.axis + 1 :])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """The array's."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """Elements of the whole."""
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.array.nbytes // self.array.shape[self.axis]

    def moved(self, places: Array) -> Array:
        """Where the rows at `places` of the array stand in the whole; a negative place stays."""
        return places + np.where(places >= self.front, self.hole, 0).astype(places.dtype)


def apart(array: Array, hole: int, front: int | None = None, axis: int = 0) -> Holed:
    """The array with a hole of so many rows in its middle, or behind `front`."""
    return Holed(array, array.shape[axis] // 2 if front is None else front, hole, axis)


def moved_in_two(places: Array, cache: Holed, fresh: Holed) -> Array:
    """Places in a cache, and those of this round's rows counted on behind it, where both have holes."""
    held = len(cache.array)
    late = cache.shape[0] + fresh.moved(places - held)
    return np.where(places < held, cache.moved(places), late).astype(places.dtype)
