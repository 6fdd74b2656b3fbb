"""Small arrays that every GPU reads fast; knows no kernel.

MLX keeps an array of 8 bytes or fewer in a pool of its own, which threadgroups on CUDA read slowly, one after another.
So such values lie at the start of a longer array.
"""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import numpy as np

LEAST = 4  # elements of four bytes: 16 bytes


@lru_cache(maxsize=4096)
def constant(kind: type[np.generic], *values: float) -> mx.array:
    """A computed array [n] of the dtype `kind`; a lazy one would belong to the thread that made it."""
    array = mx.array(np.resize(np.array(values, kind), max(LEAST, len(values))))[: len(values)]
    mx.eval(array)
    return array


def padded(values: np.ndarray) -> np.ndarray:
    """`values` [n] with zeros behind them up to LEAST."""
    return np.pad(values, (0, max(0, LEAST - len(values))))
