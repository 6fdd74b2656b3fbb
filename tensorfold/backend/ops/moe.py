"""Routing and the expert feed-forward's elementwise parts in the ops backend (docs/model.md#experts)."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.backend.ops.attention import rank


def affinity(logits: mx.array) -> mx.array:
    """float32 [R, E] -> sqrt(softplus(logits)), linear above 20; log(1 + y) is mended by what 1 + y lost of y."""
    y = mx.exp(mx.minimum(logits, 20))
    more = 1 + y
    return mx.sqrt(mx.where(logits > 20, logits, mx.where(more == 1, y, mx.log(more) * (y / (more - 1)))))


def route(logits: mx.array, bias: mx.array, k: int, scale: float, normalise: bool) -> tuple[mx.array, mx.array]:
    """float32 [R, E] -> expert ids int32 [R, k] ascending and weights float32 [R, k]; ties go to the lower id."""
    score = affinity(logits)
    rows, experts = score.shape
    order = mx.sort(rank(score + bias, mx.full((rows,), experts)), -1)[:, experts - k :]
    ids = mx.sort((2**31 - 1 - (order & 0xFFFFFFFF)).astype(mx.int32), -1)
    weights = mx.take_along_axis(score, ids, -1)
    if normalise:
        weights = weights / (mx.sum(weights, -1, keepdims=True) + 1e-20)
    return ids, weights * scale


def swiglu(gate: mx.array, up: mx.array, limit: float, weights: mx.array | None = None) -> mx.array:
    """bf16 [..., I] -> bf16: clamp, silu(gate) * up, times the routing weight [..., 1] before the rounding."""
    g = mx.minimum(gate.astype(mx.float32), limit)
    t = g * mx.sigmoid(g) * mx.clip(up.astype(mx.float32), -limit, limit)
    return (t if weights is None else weights * t).astype(mx.bfloat16)


def join(routed: mx.array, shared: mx.array) -> mx.array:
    """bf16 [R, k, D] in ascending expert id and bf16 [R, D] -> bf16 [R, D]: float32 sum in that order."""
    total = routed[:, 0].astype(mx.float32)
    for i in range(1, routed.shape[1]):
        total = total + routed[:, i]
    return (total + shared).astype(mx.bfloat16)
