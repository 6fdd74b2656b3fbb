"""Norms, rotary embedding and hyper-connections of the ops backend; every function treats its rows alike and apart.

Formulas: docs/model.md#numbers, docs/model.md#hyper-connections and docs/model.md#compressor.
"""

from __future__ import annotations

import mlx.core as mx

_HALF = mx.bfloat16


def inverse_rms(x: mx.array, eps: float) -> mx.array:
    """float32 [..., K] -> float32 [..., 1]."""
    return 1.0 / mx.sqrt(mx.mean(x * x, -1, keepdims=True) + eps)


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """bf16 or f32 [..., K], bf16 [K] -> bf16 [..., K]; float32 inside, one rounding."""
    f = x.astype(mx.float32)
    return (weight.astype(mx.float32) * (f * inverse_rms(f, eps))).astype(_HALF)


def rope(x: mx.array, table: mx.array, inverse: bool) -> mx.array:
    """bf16 [R, (H,) d], float32 cos and sin [R, rd/2, 2] -> bf16; adjacent pairs of the last rd dims are complex."""
    turn = table.view(mx.complex64).reshape(table.shape[0], *[1] * (x.ndim - 2), -1)
    if inverse:
        turn = mx.conjugate(turn)
    head, tail = mx.split(x, [x.shape[-1] - 2 * turn.shape[-1]], -1)
    turned = tail.astype(mx.float32).view(mx.complex64) * turn
    return mx.concatenate([head, turned.view(mx.float32).astype(_HALF)], -1)


def sinkhorn(logits: mx.array, iterations: int, eps: float) -> mx.array:
    """float32 [R, 4, 4] -> rows softmaxed, then columns and rows scaled in turn."""
    c = mx.exp(logits - mx.max(logits, -1, keepdims=True))
    c = c / mx.sum(c, -1, keepdims=True) + eps
    c = c / (mx.sum(c, -2, keepdims=True) + eps)
    for _ in range(iterations - 1):
        c = c / (mx.sum(c, -1, keepdims=True) + eps)
        c = c / (mx.sum(c, -2, keepdims=True) + eps)
    return c


def hc_split(
    products: mx.array, rms: mx.array, base: mx.array, scale: mx.array, n: int, iterations: int, eps: float
) -> tuple[mx.array, mx.array, mx.array]:
    """Products float32 [R, (2+n)n] and inverse RMS [R, 1] of the streams -> pre [R, n], post [R, n], comb [R, n, n]."""
    pre, post, comb = mx.split(products * rms * spread_scale(scale, n) + base, [n, 2 * n], -1)
    return mx.sigmoid(pre) + eps, 2 * mx.sigmoid(post), sinkhorn(comb.reshape(-1, n, n), iterations, eps)


def spread_scale(scale: mx.array, n: int) -> mx.array:
    """The three scales, each over the products it belongs to: float32 [(2+n)n]."""
    return scale[mx.array([0] * n + [1] * n + [2] * n * n)]


def hc_collapse(x: mx.array, pre: mx.array) -> mx.array:
    """bf16 [R, n, D], float32 [R, n] -> bf16 [R, D]: the streams weighted by pre."""
    return (pre[:, None, :] @ x.astype(mx.float32)).squeeze(1).astype(_HALF)


def hc_collapse_norm(x: mx.array, pre: mx.array, weight: mx.array, eps: float) -> mx.array:
    """The collapsed streams, rounded to bf16 and then normed: bf16 [R, D]."""
    return rms_norm(hc_collapse(x, pre), weight, eps)


def hc_post(y: mx.array, x: mx.array, post: mx.array, comb: mx.array) -> mx.array:
    """bf16 y [R, D] spread over the streams and added to the mixed streams x: bf16 [R, n, D]."""
    mixed = comb.swapaxes(-1, -2) @ x.astype(mx.float32)
    return (post[:, :, None] * y.astype(mx.float32)[:, None, :] + mixed).astype(_HALF)


def hc_mean(x: mx.array) -> mx.array:
    """bf16 [R, n, D] -> bf16 [R, D]."""
    return mx.mean(x.astype(mx.float32), 1).astype(_HALF)


def engram_inject(x: mx.array, kv: mx.array, q_weight: mx.array, k_weight: mx.array, eps: float) -> mx.array:
    """Gated addition of the Engram value to every stream: bf16 [R, n, D], bf16 [R, (n+1)D] -> bf16 [R, n, D]."""
    rows, n, d = x.shape
    h, f = x.astype(mx.float32), kv.astype(mx.float32)
    key, value = f[:, : n * d].reshape(rows, n, d), f[:, None, n * d :]
    weight = q_weight.astype(mx.float32) * k_weight.astype(mx.float32)
    dot = mx.sum(h * weight * key, -1, keepdims=True) * (inverse_rms(h, eps) * inverse_rms(key, eps)) * d**-0.5
    root = mx.sqrt(mx.maximum(mx.abs(dot), 1e-6))
    return (h + mx.sigmoid(mx.where(dot < 0, -root, root)) * value).astype(_HALF)
