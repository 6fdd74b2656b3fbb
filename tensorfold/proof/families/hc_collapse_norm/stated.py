"""hc_collapse_norm: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import (
    F32,
    f32,
    flush,
    fma,
    lane_sum,
    load,
    load_bf16,
    mul_flushed,
    store_bf16,
    strided_sum,
    tree_sum,
)


def hc_collapse_norm(x: Array, pre: Array, w: Array, eps: Array, norm: bool = True) -> list[Array]:
    """float32: the streams in order by fma, rounded; then the norm's 256 sums."""
    v, p = load(x), load(pre)
    total: F32 = mul_flushed(p[:, 0, None], v[:, 0])
    for i in range(1, v.shape[1]):
        total = flush(fma(p[:, i, None], v[:, i], total))
    if not norm:
        return [store_bf16(total)]
    h = load_bf16(store_bf16(total))
    sums = strided_sum(h, 256, lambda acc, e: fma(e, e, acc))
    with np.errstate(all="ignore"):
        mean = tree_sum(lane_sum(sums.reshape(len(h), 8, 32))) / f32(h.shape[-1])
        r = f32(1) / np.sqrt(mean + eps[0])
        return [store_bf16(load(w) * (h * r[:, None]))]
