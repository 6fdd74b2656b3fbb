"""The ops backend with index scores rounded as in the published code, with which the goldens were made; for tests."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.ops import attention
from tensorfold.backend.ops.backend import OpsBackend


class PublishedScores(OpsBackend):
    """Dots, weighted dots and their sum over heads each go through bfloat16."""

    def score_rows(self, queries: mx.array, weights: mx.array, keys: mx.array) -> mx.array:
        dots = mx.maximum(attention.index_dots(queries, keys).astype(mx.bfloat16), 0)
        weighted = (dots.astype(mx.float32) * weights.astype(mx.float32)[:, :, None]).astype(mx.bfloat16)
        return mx.sum(weighted.astype(mx.float32), 1).astype(mx.bfloat16).astype(mx.float32)
