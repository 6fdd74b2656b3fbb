"""Room for gathered experts as the kernels read them: an entry is a run of bytes; knows no file."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.backend.kernels.weights import FEWEST, Gathered
from tensorfold.backend.pool import EntryArray, Shapes
from tensorfold.small import constant


class GatheredRoom:
    """See `backend.pool.Room`; every tensor of an entry begins at a multiple of 16."""

    def __init__(self, shapes: Shapes, entries: int, shared: bool | None = None):
        self._sizes = [rows * columns for rows, columns in shapes]
        *self._starts, stride = np.cumsum([0, *(-(-n // 16) * 16 for n in self._sizes)]).tolist()
        self._shard = EntryArray((entries, stride), mx.uint8, shared)
        rows = max(entries, FEWEST // 2)  # a table of offsets must not be too small for a kernel
        offsets = np.arange(rows, dtype=np.uint64)[:, None] * np.uint64(stride) + np.array(self._starts, np.uint64)
        offsets = offsets.reshape(rows, 3, 2)
        up, down = (mx.array(np.ascontiguousarray(offsets[:, part])) for part in (slice(2), slice(2, None)))
        mx.eval(up, down)
        self.weight = Gathered(self._shard.array, up, down, constant(np.uint64, 0), (shapes[0][0], shapes[4][0]), 16)

    def parts(self, entry: int) -> list[np.ndarray]:
        run = self._shard.entry(entry)
        return [run[start : start + n] for start, n in zip(self._starts, self._sizes)]

    def filled(self, entries: Sequence[int]) -> None:
        self._shard.put(entries)
