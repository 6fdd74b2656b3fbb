"""Engram's value added to every stream through a gate, beside its truth and its stated order. Knows no layer.

Source: the model's specification, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, fma, lane_sum, load, mul_flushed, store_bf16, strided_sum, tree_sum, wide
from tensorfold.kernels.functions import sigmoid
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch

SMALLEST_TERM = f32(2.0**-100)


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, N, D], kv [R, (N + 1) D], q and k [N, D] bfloat16, eps and root [1] float32 -> y [R, N, D] bfloat16."""
    x, kv, q, k, _, _ = arrays
    rows, n, d = x.shape
    if kv.shape != (rows, (n + 1) * d) or q.shape != (n, d) or k.shape != (n, d):
        raise ValueError(
            f"engram_inject: kv {tuple(kv.shape)}, q {tuple(q.shape)} and k {tuple(k.shape)} do not fit x "
            f"{tuple(x.shape)}: expected {(rows, (n + 1) * d)}, {(n, d)} and {(n, d)}"
        )
    threads = 32 * geometry["G"]
    template = {"N": n, "D": d, "G": geometry["G"]}
    return Launch(template, (rows * n * threads, 1, 1), (threads, 1, 1), ((rows, n, d),), (mx.bfloat16,))


def inverse_root(d: int) -> Array:
    """The input `root`: 1 / sqrt(D), rounded once."""
    return np.array([d**-0.5], f32)


def _split(x: Array, kv: Array) -> tuple[Array, Array]:
    """Keys [R, N, D] and values [R, 1, D]."""
    rows, n, d = x.shape
    return kv[:, : n * d].reshape(rows, n, d), kv[:, None, n * d :]


def _gate(d: Array) -> Array:
    """float64 gate of a scaled dot product."""
    v = np.copysign(np.sqrt(np.maximum(np.abs(d), 1e-6)), d)
    return 1 / (1 + np.exp(-v))


def _scaled(x: Array, kv: Array, q: Array, k: Array, eps: Array) -> tuple[Array, Array, Array]:
    """float64 d [R, N, 1], the same of absolute terms, and the values."""
    h, (key, value) = wide(x), _split(wide(x), wide(kv))
    terms = h * (wide(q) * wide(k)) * key
    mean_x, mean_key = (np.mean(v * v, -1, keepdims=True) + wide(eps) for v in (h, key))
    norm = 1 / np.sqrt(mean_x) / np.sqrt(mean_key) * h.shape[-1] ** -0.5
    return terms.sum(-1, keepdims=True) * norm, np.abs(terms).sum(-1, keepdims=True) * norm, value


def reference(x: Array, kv: Array, q: Array, k: Array, eps: Array, root: Array) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        d, _, value = _scaled(x, kv, q, k, eps)
        return [wide(x) + _gate(d) * value]


def stated(x: Array, kv: Array, q: Array, k: Array, eps: Array, root: Array) -> list[Array]:
    """float32, in the order the source states."""
    h = load(x)
    key, value = _split(h, load(kv))
    with np.errstate(all="ignore"):
        terms = mul_flushed(h, mul_flushed(load(q), load(k))) * key
        terms = np.where(np.abs(terms) < SMALLEST_TERM, f32(0), terms)
        dot = _sum(terms, lambda acc, e: acc + e)
        xx, kk = (_sum(v, lambda acc, e: fma(e, e, acc)) for v in (h, key))
        rx, rk = (f32(1) / np.sqrt(v / f32(h.shape[-1]) + eps[0]) for v in (xx, kk))
        d = dot * rx * rk * root[0]
        gate = sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(d), f32(1e-6))), dot))
        return [store_bf16(h + mul_flushed(gate[..., None], value))]


def _sum(v: Array, step: Any) -> Array:
    sums = strided_sum(v, 256, step)
    return tree_sum(lane_sum(sums.reshape(*v.shape[:-1], 8, 32)))


def _scale(x: Array, kv: Array, q: Array, k: Array, eps: Array, root: Array) -> list[Array]:
    """How far a sum can be off: the gate is monotone in d, so its range over d's error times the value."""
    with np.errstate(all="ignore"):
        d, magnitude, value = _scaled(x, kv, q, k, eps)
        off = 64 * 2.0**-24 * magnitude
        gate = _gate(d + off) - _gate(d - off) + 8 * 2.0**-24
        return [gate * np.abs(value) + 2.0**-24 * np.abs(wide(x))]


def _arrays(draw: inputs.Draw, rows: int, d: int, n: int = 4) -> tuple[Array, ...]:
    weights = draw.bf16(n, d), draw.bf16(n, d)
    return draw.bf16(rows, n, d), draw.bf16(rows, (n + 1) * d), *weights, np.array([1e-20], f32), inverse_root(d)


def _cancelling(rows: int, d: int) -> tuple[Array, ...]:
    """Dot products whose halves cancel but for one element: the order of the sum shows in the gate."""
    draw = inputs.Draw(11)
    x, kv, q, k, eps, root = _arrays(draw, rows, d)
    half = d // 2
    x[..., half:], q[:, half:], k[:, half:] = x[..., :half], q[:, :half], k[:, :half]
    keys = kv[:, : 4 * d].reshape(rows, 4, d)
    keys[..., half:] = keys[..., :half] ^ 0x8000
    keys[..., 5] += 1
    return x, kv, q, k, eps, root


def cases() -> list[Case]:
    """Every hidden size in use; dot products that cancel; zeros, extremes and every bit pattern."""
    found = []
    for d in (128, 256, 5120):
        found.append(Case(f"D{d}", _arrays(inputs.Draw(d), 16 if d == 128 else 2, d), rows=d == 128))
    found.append(Case("odd width", _arrays(inputs.Draw(3), 3, 288, n=2)))
    found.append(Case("order", _cancelling(3, 1280)))
    _, kv, q, k, eps, root = _arrays(inputs.Draw(5), 16, 128)
    wild = inputs.extremes_bf16(128)
    streams = np.stack([np.roll(wild, shift, axis=0) for shift in (0, 3, 7, 9)], axis=1)
    found.append(Case("extreme x", (streams, kv, q, k, eps, root)))
    keys = np.stack([np.roll(wild, shift, axis=0) for shift in (0, 1, 5, 8, 2)], axis=1).reshape(16, -1)
    found.append(Case("extreme keys", (streams, keys, q, k, eps, root)))
    zero = np.zeros((4, 128), np.uint16)
    found.append(Case("zero weights", (streams[:3], kv[:3], zero, k, eps, root)))
    draw = inputs.Draw(6)
    patterns = draw.any_bf16(8, 4, 128), draw.any_bf16(8, 5 * 128), draw.any_bf16(4, 128), draw.any_bf16(4, 128)
    found.append(Case("every pattern", (*patterns, eps, root), bounded=False))
    # products near the smallest normal, of both signs
    small = tuple(draw.bf16(*shape, scale=2.0**-33) for shape in ((8, 4, 128), (8, 5 * 128), (4, 128), (4, 128)))
    found.append(Case("tiny", (*small, eps, root), bounded=False))
    return found


KERNELS = (
    Kernel(
        name="engram_inject",
        path=Path(__file__).with_name("engram_inject.metal"),
        inputs=("x", "kv", "q", "k", "eps", "root"),
        outputs=("y",),
        geometries=({"G": 8}, {"G": 4}, {"G": 2}, {"G": 1}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp), which a float32 error before it can still follow; d is off by at most "
            "64 * 2^-24 of the sum of its absolute terms (chains of at most 20 and 8 levels of additions, two "
            "roundings a term, both norms and their products), its gate by the range over that and 8 * 2^-24",
            ulps=0.5,
            relative=2.0**-24,
            absolute=1.0,
            tiny=3 * 2.0**-126,
            scale=_scale,
        ),
        controls=(
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            Control(
                "lanes added in another order",
                "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
                "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
                file="portable.h",
            ),
            Control(
                "terms fused into the sum",
                "d = p_add(d, engram_term(a, p_load(q[weight + i]), p_load(k[weight + i]), b));",
                "d = p_fma(p_mul(a, p_mul(p_load(q[weight + i]), p_load(k[weight + i]))), b, d);",
            ),
            Control(
                "value of the last key",
                "(row * uint(N + 1) + uint(N)) * uint(D)",
                "(row * uint(N + 1) + uint(N - 1)) * uint(D)",
            ),
            Control("weights of the first stream", "uint weight = stream * uint(D);", "uint weight = 0u;"),
            Control(
                "sign of the gate lost",
                "p_copysign(p_sqrt(p_max(p_abs(d), 0.000001f)), dot)",
                "p_sqrt(p_max(p_abs(d), 0.000001f))",
            ),
            Control("small terms kept", "(p_bits(v) & 0x7fffffffu) < 0x0d800000u ? 0.0f : v", "v"),
            Control(
                "gate times value fused",
                "p_add(p_load(x[from + i]), p_mulz(gate, p_load(kv[value + i])))",
                "p_fma(gate, p_load(kv[value + i]), p_load(x[from + i]))",
            ),
            Control("tail missed", "i < uint(D); i += 256u", "i + 32u < uint(D); i += 256u"),
            Control(
                "one element too far",
                "i < uint(D); i += 32u * uint(G)",
                "i <= uint(D); i += 32u * uint(G)",
                backends=("host",),
            ),
        ),
        cases=cases,
        row_inputs=("x", "kv"),
    ),
)
