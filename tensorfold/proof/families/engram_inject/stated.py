"""engram_inject: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.engram_inject.reference import split
from tensorfold.proof.numerics.exact import f32, fma, lane_sum, load, mul_flushed, store_bf16, strided_sum, tree_sum
from tensorfold.proof.numerics.functions import sigmoid

SMALLEST_TERM = f32(2.0**-100)


def engram_inject(x: Array, kv: Array, q: Array, k: Array, eps: Array, root: Array) -> list[Array]:
    """float32, in the order the source states."""
    h = load(x)
    key, value = split(h, load(kv))
    with np.errstate(all="ignore"):
        terms = mul_flushed(h, mul_flushed(load(q), load(k))) * key
        terms = np.where(np.abs(terms) < SMALLEST_TERM, f32(0), terms)
        dot = _sum(terms, lambda acc, e: acc + e)
        xx, kk = (_sum(v, lambda acc, e: fma(e, e, acc)) for v in (h, key))
        rx, rk = (f32(1) / np.sqrt(v / f32(h.shape[-1]) + eps[0]) for v in (xx, kk))
        d = dot * rx * rk * root[0]
        gate = sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(d), f32(1e-6))), dot))
        return [store_bf16(h + mul_flushed(gate[..., None], value))]


def _sum(v: Array, step: Any) -> Array:
    sums = strided_sum(v, 256, step)
    return tree_sum(lane_sum(sums.reshape(*v.shape[:-1], 8, 32)))
