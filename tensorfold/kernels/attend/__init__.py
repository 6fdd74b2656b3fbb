"""Attention with a sink over packed window and compressed rows, in two launches: scores, then values. Knows no slot.

Scores are a launch of their own so that a decoded column is scored for several heads by whatever core is free: the
softmax needs them all.
"""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import numpy as np

from tensorfold.kernels.attend import scores, values
from tensorfold.kernels.attend.runs import columns_of
from tensorfold.small import constant

KERNELS = (scores.KERNEL, values.KERNEL)
Run = tuple[mx.array, mx.array, mx.array]


@lru_cache
def _none(rows: int, d: int) -> tuple[mx.array, mx.array]:
    """One compressed row and places that are empty, computed: a lazy array would be computed anew each round."""
    none = mx.zeros((1, d // 2 + d // 16), mx.uint8), mx.full((rows, 1), -1, mx.int32)
    mx.eval(none)
    return none


def attend(
    q: mx.array, table: mx.array, sink: mx.array, window: Run, packed: Run | None = None, *, backend: str
) -> mx.array:
    """Attended bfloat16 [R, H, D] of queries before their rotation, rotated back; `table` float32 [R, RD / 2, 2].

    A run of columns is (cache, this round's rows, places), an empty place is -1.
    """
    rows, _, d = q.shape
    k = packed[2].shape[1] if packed else 0
    if packed is None or not k:
        none, nowhere = _none(rows, d)
        packed = none, none, nowhere
    cache, fresh, places = packed
    runs = *window, cache, fresh if fresh.size else cache[:1], places
    sizes = constant(np.int32, window[0].shape[0], window[2].shape[1], cache.shape[0], k, columns_of(runs))
    scale = constant(np.float32, float(d) ** -0.5)
    (found,) = KERNELS[0](q, table, *runs, scale, sizes, backend=backend)
    return KERNELS[1](found, table, *runs, sink, sizes, backend=backend)[0]
