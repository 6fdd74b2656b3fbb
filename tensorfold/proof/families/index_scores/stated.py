"""index_scores: every bit of the outputs, float32 in the stated order. Knows no launch."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.index_scores.reference import block_dots
from tensorfold.proof.numerics.exact import f32, flush, load, mul_flushed, store_f32


def index_scores(
    queries: Array, weights: Array, cache: Array, fresh: Array, places: Array, segment: Array, sizes: Array
) -> list[Array]:
    """float32: blocks in order, then heads by halves."""
    dots, scales, empty = block_dots(queries, cache, fresh, places, segment)
    parts = mul_flushed(dots, scales)
    with np.errstate(all="ignore"):
        total = parts[..., 0]
        for b in range(1, parts.shape[-1]):
            total = flush(total + parts[..., b])
        s = mul_flushed(np.where(total < 0, f32(0), total), load(weights)[:, :, None])
        while s.shape[1] > 1:
            low, high = s[:, : (s.shape[1] + 1) // 2], s[:, (s.shape[1] + 1) // 2 :]
            s = np.concatenate([flush(low[:, : high.shape[1]] + high), low[:, high.shape[1] :]], 1)
    return [store_f32(np.where(empty, f32(-np.inf), s[:, 0]))]
