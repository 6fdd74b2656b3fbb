"""The streams collapsed to one and normed: kernel, truth, stated order, mistakes. Knows no layer.

Source: the model's specification, section 3, step c: a float32 sum rounded to bfloat16, then RMSNorm of that.
Without `norm` the collapse alone, as the drafter's confidence reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import (
    F32,
    SMALLEST_NORMAL,
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
    wide,
)
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry, norm: bool = True) -> Launch:
    """x [R, N, D] bfloat16, pre [R, N] float32, w [D] bfloat16, eps [1] float32 -> y [R, D] bfloat16.

    Without `norm` neither w nor eps is read.
    """
    x, pre, w, _ = arrays
    rows, n, d = x.shape
    if tuple(pre.shape) != (rows, n) or (norm and tuple(w.shape) != (d,)):
        raise ValueError(
            f"hc_collapse_norm: pre {tuple(pre.shape)} and w {tuple(w.shape)} do not fit the streams {tuple(x.shape)}"
        )
    threads = 32 * geometry["G"]
    template = {"D": d, "N": n, "G": geometry["G"], "NORM": norm}
    return Launch(template, (rows * threads, 1, 1), (threads, 1, 1), ((rows, d),), (mx.bfloat16,))


def _round_bf16(v: Array) -> Array:
    """float64 rounded once to bfloat16, smaller than its normals to zero."""
    fraction, exponent = np.frexp(v)
    rounded = np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8)
    return np.where(np.abs(v) < SMALLEST_NORMAL, 0.0, np.where(np.isfinite(v), rounded, v))


def _collapsed(x: Array, pre: Array) -> Array:
    return np.sum(wide(pre)[..., None] * wide(x), 1)


def _inverse(h: Array, eps: Array) -> Array:
    return 1 / np.sqrt(np.mean(h * h, -1, keepdims=True) + wide(eps))


def reference(x: Array, pre: Array, w: Array, eps: Array, norm: bool = True) -> list[Array]:
    """float64, with the published rounding in the middle."""
    with np.errstate(all="ignore"):
        if not norm:
            return [_collapsed(x, pre)]
        h = _round_bf16(_collapsed(x, pre))
        return [wide(w) * (h * _inverse(h, eps))]


def stated(x: Array, pre: Array, w: Array, eps: Array, norm: bool = True) -> list[Array]:
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


def allowance(x: Array, pre: Array, w: Array, eps: Array, norm: bool = True) -> list[Array]:
    """How far the float32 sum may be off; after the norm only where that crosses an edge of the rounding between."""
    with np.errstate(all="ignore"):
        error = 5 * 2.0**-24 * np.sum(np.abs(wide(pre)[..., None] * wide(x)), 1) + 5 * SMALLEST_NORMAL
        if not norm:
            return [error]
        c = _collapsed(x, pre)
        h = _round_bf16(c)
        step = _round_bf16(c + error) - _round_bf16(c - error)
        r = _inverse(h, eps)
        drift = np.sum(np.abs(h) * step, -1, keepdims=True) / (np.sum(h * h, -1, keepdims=True) + SMALLEST_NORMAL)
        return [np.abs(wide(w)) * r * (step + np.abs(h) * drift)]


def cases() -> list[Case]:
    """Every hidden size, with and without the norm; cancelling streams, one-hot weights, extremes, any bits."""
    eps = np.array([1e-20], f32)
    found = []
    for d, rows in ((96, 16), (128, 3), (256, 3), (5120, 1)):
        draw = inputs.Draw(d)
        arrays = (draw.bf16(rows, 4, d), draw.uniform(0.0, 1.0, rows, 4), draw.bf16(d), eps)
        found.append(Case(f"D{d}", arrays, rows=d == 96))
        found.append(Case(f"D{d} collapse", arrays, {"norm": False}))
    draw = inputs.Draw(1)
    first = np.tile(np.array([1, 0, 0, 0], f32), (3, 1))
    found.append(Case("first stream", (draw.bf16(3, 4, 128), first, draw.bf16(128), eps)))
    x, pre = draw.bf16(16, 4, 128), draw.uniform(0.0, 1.0, 16, 4)
    x[:, 0] = draw.bf16(16, 128, scale=1000.0)
    x[:, 2], pre[:, 2] = x[:, 0] ^ np.uint16(0x8000), pre[:, 0]
    # where large streams cancel the last bits stay: the order of the sum shows in few elements
    for norm in (True, False):
        found.append(Case(f"cancelling {norm}", (x, pre, draw.bf16(128), eps), {"norm": norm}))
    # a bfloat16 output hides the last bits of the norm: these rows, of many drawn, show another order of its sum
    picked = np.concatenate([inputs.Draw(seed).bf16(1, 1, 1280) for seed in (301, 853, 2376, 2508, 2602)])
    found.append(Case("order", (picked, np.ones((5, 1), f32), inputs.Draw(1280).bf16(1280), eps)))
    wild = inputs.extremes_bf16(4 * 128).reshape(16, 4, 128)
    for norm in (True, False):
        arrays = (wild, draw.uniform(0.0, 1.0, 16, 4), draw.bf16(128), np.array([1e-6], f32))
        found.append(Case(f"extreme {norm}", arrays, {"norm": norm}))
    tiny = (draw.bf16(4, 4, 128, scale=2.0**-124), draw.uniform(0.0, 1.0, 4, 4), draw.bf16(128), eps)
    found.append(Case("tiny", tiny, {"norm": False}))
    words = draw.words(4, 4).view(f32)
    found.append(Case("any bits", (draw.any_bf16(4, 4, 128), words, draw.any_bf16(128), eps), bounded=False))
    return found


_HEADER = "hc_collapse.h"
# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control("first barrier dropped", "P_BARRIER();\n  for", "for", _HEADER, ("host",)),
    Control("second barrier dropped", "P_BARRIER();\n  float mean", "float mean", _HEADER, ("host",)),
    Control("streams in another order", "p_fma(p[i], v[i], h)", "p_fma(p[N - i], v[N - i], h)", _HEADER),
    Control("product and sum not fused", "p_fma(p[i], v[i], h)", "p_add(p_mulz(p[i], v[i]), h)", _HEADER),
    Control("sums not flushed", "h = p_flush(p_fma(p[i], v[i], h));", "h = p_fma(p[i], v[i], h);", _HEADER, ("host",)),
    Control("last stream missed", "i < N; i++", "i + 1 < N; i++", _HEADER),
    Control(
        "lanes added in another order",
        "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
        "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
        "portable.h",
    ),
    Control("mean over too many", "float(D));", "float(4 * D));", _HEADER),
    Control("tail missed", "d < uint(D); d += 256u", "d + 32u < uint(D); d += 256u", _HEADER),
)

KERNELS = (
    Kernel(
        name="hc_collapse_norm",
        path=Path(__file__).with_name("hc_collapse_norm.metal"),
        inputs=("x", "pre", "w", "eps"),
        outputs=("y",),
        geometries=({"G": 8}, {"G": 2}, {"G": 32}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp) of a norm as in rms_norm (32 * 2^-24); a collapse of 5 rounded steps "
            "below the sum of magnitudes, which the norm sees only where it crosses an edge of the rounding between",
            ulps=0.5,
            relative=32 * 2.0**-24,
            absolute=1.0,
            tiny=2.0**-126,
            scale=allowance,
        ),
        controls=(
            *CONTROLS,
            Control(
                "collapse not rounded first",
                "held[d] = as_type<ushort>(p_f2bf(h));",
                "held[d] = ushort(p_bits(h) >> 16);",
            ),
            Control(
                "one element too far",
                "d < uint(D); d += 32u * uint(G)) {\n    p_store",
                "d <= uint(D); d += 32u * uint(G)) {\n    p_store",
                backends=("host",),
            ),
        ),
        cases=cases,
        row_inputs=("x", "pre"),
    ),
)
