"""Room for gathered FP4 experts of the ops backend; knows no file."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.backend.ops.linear import Fp4Experts, silence_special
from tensorfold.backend.pool import EntryArray, Shapes


class Fp4Room:
    """See `backend.pool.Room`; w1 and w3 of an entry are stacked, as `Fp4Experts` has them."""

    def __init__(self, shapes: Shapes, entries: int, shared: bool | None = None):
        (up, code), (_, scale), _, _, (down, down_code), (_, down_scale) = shapes

        def pair(rows: int, codes: int, scales: int) -> tuple[EntryArray, EntryArray]:
            packed = EntryArray((entries, rows, codes // 4), mx.uint32, shared)
            return packed, EntryArray((entries, rows, scales), mx.uint8, shared)

        self._pairs = pair(2 * up, code, scale), pair(down, down_code, down_scale)
        w13, w2 = ((codes.array, scales.array) for codes, scales in self._pairs)
        self.weight = Fp4Experts(w13, w2)

    def parts(self, entry: int) -> list[np.ndarray]:
        (codes, scales), down = ((c.entry(entry), s.entry(entry)) for c, s in self._pairs)
        half, few = len(codes) // 2, len(scales) // 2
        return [codes[:half], scales[:few], codes[half:], scales[few:], *down]

    def filled(self, entries: Sequence[int]) -> None:
        for codes, scales in self._pairs:
            for entry in entries:
                silence_special(codes.entry(entry), scales.entry(entry))
            codes.put(entries)
            scales.put(entries)
