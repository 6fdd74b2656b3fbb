"""index_scores: the arrays it takes, and the launch. Knows no slot.

Source: docs/model.md#indexer and docs/model.md#decisions: float32 throughout, relu before the heads' weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch
from tensorfold.small import constant


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """queries [R, H, B], cache [N, B], fresh [M, B] uint8, weights [R, H] bfloat16, places [S, C], segment [R] int32.

    B = K / 2 + K / 32 bytes for K elements; sizes [N, C] int32; -> scores float32 [R, C].
    """
    queries, weights, cache, fresh, places, segment, sizes = arrays
    rows, heads, row_bytes = queries.shape
    k = row_bytes // 17 * 32
    fits = tuple(weights.shape) == (rows, heads) and cache.shape[1] == fresh.shape[1] == row_bytes == k // 32 * 17
    if not fits or not cache.shape[0] or tuple(segment.shape) != (rows,) or tuple(sizes.shape) != (2,):
        raise ValueError(
            f"index_scores: weights {tuple(weights.shape)}, cache {tuple(cache.shape)}, fresh {tuple(fresh.shape)} and "
            f"segment {tuple(segment.shape)} do not fit queries {tuple(queries.shape)} of packed rows"
        )
    if heads > 64:
        raise ValueError(f"index_scores: {heads} heads do not fit, at most 64")
    c, threads = places.shape[1], 32 * geometry["G"]
    shared = heads & (heads - 1) == 0 and heads >= geometry["T"]  # else the halving does not end in whole shuffles
    each = geometry["T"] if shared else 1
    template = {"H": heads, "K": k, "T": each, "WIDE": row_bytes % 4 == 0}
    return Launch(template, (-(-c * each // threads) * threads, rows, 1), (threads, 1, 1), ((rows, c),), (mx.float32,))


def index_scores(
    queries: mx.array,
    weights: mx.array,
    cache: mx.array,
    fresh: mx.array,
    places: mx.array,
    segment: mx.array,
    *,
    backend: str,
) -> mx.array:
    """Scores float32 [R, C] of rows against their segment's `places` [S, C]; an empty place (-1) gives -inf."""
    sizes = constant(np.int32, cache.shape[0], places.shape[1])
    fresh = fresh if fresh.size else cache[:1]
    return KERNELS[0](queries, weights, cache, fresh, places, segment, sizes, backend=backend)[0]


KERNELS = (
    Kernel(
        name="index_scores",
        path=Path(__file__).with_name("index_scores.metal"),
        inputs=("queries", "weights", "cache", "fresh", "places", "segment", "sizes"),
        outputs=("scores",),
        geometries=({"G": 4, "T": 8}, {"G": 8, "T": 4}, {"G": 2, "T": 1}),
        plan=plan,
        alignment={"cache": 4, "fresh": 4},
    ),
)
