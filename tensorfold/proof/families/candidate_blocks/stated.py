"""block_scores: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.numerics.exact import f32, load, store_f32


def block_scores(scores: Array, visible: Array, columns: Array, block: int) -> list[Array]:
    """Block by block; a NaN makes its block NaN."""
    v = load(scores)
    rows, c = v.shape
    out = np.full((rows, -(-c // block)), np.nan, f32)
    for r in range(rows):
        n = min(max(int(visible[r]), 0), c)
        for b in range(-(-n // block)):
            out[r, b] = np.max(v[r, b * block : min((b + 1) * block, n)]) + f32(0)
        if n:
            out[r, (n - 1) // block] = np.inf
    return [store_f32(out)]
