"""Small arrays that every GPU reads fast; knows no kernel.

MLX keeps an array of 8 bytes or fewer in a pool of its own, which threadgroups on CUDA read slowly, one after another.
So values that many threadgroups read lie at the start of a longer array.
"""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
import numpy as np

LEAST = 4  # elements of four bytes: 16 bytes


def padded(values: np.ndarray) -> np.ndarray:
    """`values` [n, ...] with zeros behind them up to LEAST."""
    return np.pad(values, [(0, max(0, LEAST - len(values)))] + [(0, 0)] * (values.ndim - 1))


def start_of_longer(values: np.ndarray) -> mx.array:
    """`values` [n, ...], lazily the start of a longer array; its thread alone may use it."""
    return mx.array(padded(values))[: len(values)]


@lru_cache(maxsize=4096)
def constant(kind: type[np.generic], *values: float) -> mx.array:
    """`values` [n] as the dtype `kind`, computed, so that every thread may use it. -0.0 counts as 0.0."""
    array = start_of_longer(np.array(values, kind))
    mx.eval(array)
    return array
