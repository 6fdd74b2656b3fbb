"""compress_pair: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.compress_pair.reference import pairs
from tensorfold.proof.numerics.exact import flush, load, mul_flushed, store_bf16
from tensorfold.proof.numerics.functions import exp


def compress_pair(opened: Array, own: Array, partner: Array) -> list[Array]:
    """float32, in the order the source states."""
    c, g = (load(a) for a in pairs(opened, own, partner))
    with np.errstate(all="ignore"):
        e = exp(g - np.where(g[:, 0] < g[:, 1], g[:, 1], g[:, 0])[:, None])
        w = flush(e / (e[:, 0] + e[:, 1])[:, None])
        return [store_bf16(mul_flushed(c[:, 0], w[:, 0]) + mul_flushed(c[:, 1], w[:, 1]))]
