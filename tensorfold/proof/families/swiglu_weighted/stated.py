"""swiglu_weighted: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics import functions
from tensorfold.proof.numerics.exact import f32, load, mul_flushed, store_bf16


def product(gate: Array, up: Array, most: np.float32) -> Array:
    """float32 before the weight: sigmoid, times g, times u."""
    g = np.minimum(gate, most)
    return mul_flushed(mul_flushed(g, functions.sigmoid(g)), np.clip(up, -most, most))


def swiglu_weighted(gate: Array, up: Array, weights: Array, limit: Array, weighted: bool = True) -> list[Array]:
    """float32: sigmoid, times g, times u, times the weight."""
    with np.errstate(all="ignore"):
        t = product(load(gate), load(up), f32(limit[0]))
        return [store_bf16(load(weights)[..., None] * t if weighted else t)]
