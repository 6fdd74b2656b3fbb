"""Hyper-connections around a sublayer: mixes, collapse, post (the model's specification, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from tensorfold.backend.base import Backend, WeightSource

# a sublayer gives its output and whatever its caller collects from it
Sublayer = Callable[[mx.array], tuple[mx.array, Any]]


class HyperConnection:
    """One sublayer's mixing weights; `kind` is attn or ffn."""

    def __init__(self, source: WeightSource, prefix: str, kind: str, backend: Backend):
        self.backend = backend
        self.fn = backend.load_f32(source, f"{prefix}.hc_{kind}_fn")
        self.base, self.scale = source.array(f"{prefix}.hc_{kind}_base"), source.array(f"{prefix}.hc_{kind}_scale")
        self.norm = source.array(f"{prefix}.{kind}_norm.weight")

    def __call__(self, x: mx.array, pre: mx.array, sublayer: Sublayer) -> tuple[mx.array, mx.array, Any]:
        """Streams bf16 [R, n, D] and the previous sublayer's pre [R, n] -> new streams, this sublayer's pre,
        what it left beside."""
        own, post, comb = self.backend.hc_mix(x, self.fn, self.base, self.scale)
        y, beside = sublayer(self.backend.hc_collapse_norm(x, pre, self.norm))
        return self.backend.hc_post(y, x, post, comb), own, beside


def first_streams(embedded: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """bf16 [R, D] -> equal streams bf16 [R, count, D] and the first pre, all weight on stream 0."""
    rows = embedded.shape[0]
    x = mx.repeat(embedded[:, None], count, 1)
    return x, mx.broadcast_to(mx.array([1.0] + [0.0] * (count - 1)), (rows, count))
