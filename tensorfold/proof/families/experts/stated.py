"""experts_up and experts_down: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.experts.reference import BLOCK, each
from tensorfold.proof.numerics.codes import E2M1, UE8M0
from tensorfold.proof.numerics.exact import F32, f32, flush, fma, running_sums, store_bf16


def _ordered(x: F32, w: Array, factors: Array) -> Array:
    """bfloat16 bits [n] of one row in the stated order."""
    n, k = w.shape
    lanes = running_sums(k // BLOCK)
    v, m = x.reshape(-1, BLOCK), E2M1[w].reshape(n, -1, BLOCK)
    with np.errstate(all="ignore"):
        p: F32 = (m[..., 0] * v[:, 0]).astype(f32)
        for i in range(1, BLOCK):
            p = fma(m[..., i], v[:, i], p)
        p, s = p.reshape(n, -1, lanes), UE8M0[factors].reshape(n, -1, lanes)
        total = np.zeros((n, lanes), f32)
        for step in range(p.shape[1]):
            total = flush(fma(p[:, step], s[:, step], total))
        while total.shape[-1] > 1:
            total = flush(total[:, 0::2] + total[:, 1::2])
    return store_bf16(total[:, 0])


def experts_up(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float32, in the order the source states."""
    return each(arrays, n, _ordered)


def experts_down(*arrays: Array, n: int, width: int = 16) -> list[Array]:
    """float32, in the order the source states."""
    return each(arrays, n, _ordered)
