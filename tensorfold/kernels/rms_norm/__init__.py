"""RMSNorm over the last axis: the kernel beside its truth, its stated order and its planted mistakes. Knows no layer.

Source: the model's specification, section 2. Everything in float32, one rounding to bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs
from tensorfold.kernels.exact import f32, fma, lane_sum, load, store_bf16, strided_sum, tree_sum, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch, dtype_of


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, K] bfloat16 or float32, w [K] bfloat16, eps [1] float32 -> y [R, K] bfloat16."""
    x, w, _ = arrays
    rows, k = x.shape
    if w.shape != (k,):
        raise ValueError(f"rms_norm: w has shape {tuple(w.shape)}, expected {(k,)}")
    threads = 32 * geometry["G"]
    return Launch(
        {"T": dtype_of(x), "K": k, "G": geometry["G"]},
        (rows * threads, 1, 1),
        (threads, 1, 1),
        ((rows, k),),
        (mx.bfloat16,),
    )


def reference(x: Array, w: Array, eps: Array) -> list[Array]:
    """float64 truth."""
    v = wide(x)
    with np.errstate(all="ignore"):
        return [wide(w) * (v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + wide(eps)))]


def _inverse_rms(x: Array, eps: Array) -> Array:
    v = load(x)
    sums = strided_sum(v, 256, lambda acc, e: fma(e, e, acc))
    total = tree_sum(lane_sum(sums.reshape(len(v), 8, 32)))
    with np.errstate(all="ignore"):
        return (f32(1) / np.sqrt(total / f32(v.shape[-1]) + eps[0]))[:, None]


def stated(x: Array, w: Array, eps: Array) -> list[Array]:
    """float32, in the order the source states."""
    with np.errstate(all="ignore"):
        return [store_bf16(load(w) * (load(x) * _inverse_rms(x, eps)))]


def _near_ties(rows: int, k: int) -> tuple[Array, Array]:
    """float32 rows whose results lie at ties of bfloat16, so that another order of the sum shows in them.

    All but the last element of a row are chosen as ties over w, the last one makes the mean square one; then each row
    is scaled.
    """
    draw = inputs.Draw(rows * k)
    w = draw.bf16(k)
    z = inputs.bf16_ties(wide(w) * draw.normal(rows, k, scale=0.9)) / wide(w)
    z[:, -1] = np.sqrt(k - np.sum(z[:, :-1] ** 2, axis=1))
    return (z * draw.uniform(0.3, 3.0, rows, 1)).astype(f32), w


def cases() -> list[Case]:
    """Ordinary rows of every hidden size in use, and extremes: zeros, one hot, huge, tiny, NaN and infinity."""
    eps = np.array([1e-20], f32)
    found = []
    for k in (32, 64, 96, 128, 256, 512, 1280, 5120):
        draw = inputs.Draw(k)
        rows = 16 if k in (96, 1280) else 3
        found.append(Case(f"K{k}", (draw.bf16(rows, k), draw.bf16(k), eps), rows=k in (96, 1280)))
    draw = inputs.Draw(1)
    found.append(Case("float32", (draw.normal(5, 512), draw.bf16(512), eps), rows=True))
    found.append(Case("order", (*_near_ties(64, 320), eps)))
    found.append(Case("extreme", (inputs.extremes_bf16(512), draw.bf16(512), eps)))
    found.append(Case("eps 1e-6", (inputs.extremes_bf16(128), draw.bf16(128), np.array([1e-6], f32))))
    found.append(Case("overflow", (inputs.overflow_bf16(128), draw.bf16(128), eps), bounded=False))
    return found


_HEADER = "rms.h"
# mistakes of the header and of the sum over lanes, planted here for every kernel that norms rows with it
CONTROLS = (
    Control(
        "lanes added in another order",
        "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
        "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
        file="portable.h",
    ),
    Control("mean over one element too many", "float(K));", "float(K + 1));", _HEADER),
    Control("weight after rounding", "p_mul(w, p_mul(x, factor))", "p_mul(p_round_bf(p_mul(x, factor)), w)", _HEADER),
    Control(
        "scale first, then weight: swapped products",
        "p_mul(w, p_mul(x, factor))",
        "p_mul(p_mul(w, x), factor)",
        _HEADER,
    ),
    Control("tail missed", "i < uint(K); i += 256u", "i + 32u < uint(K); i += 256u", _HEADER),
)

KERNELS = (
    Kernel(
        name="rms_norm",
        path=Path(__file__).with_name("rms_norm.metal"),
        inputs=("x", "w", "eps"),
        outputs=("y",),
        geometries=({"G": 8}, {"G": 4}, {"G": 2}, {"G": 1}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp); the float32 sum of squares of K <= 5120 terms in chains of at most 20 "
            "and 8 levels of additions, halved by the square root, and three more roundings: below 32 * 2^-24",
            ulps=0.5,
            relative=32 * 2.0**-24,
        ),
        controls=(
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            *CONTROLS,
            Control(
                "one element too far",
                "i < uint(K); i += 32u * uint(G)",
                "i <= uint(K); i += 32u * uint(G)",
                backends=("host",),
            ),
        ),
        cases=cases,
        row_inputs=("x",),
    ),
)
