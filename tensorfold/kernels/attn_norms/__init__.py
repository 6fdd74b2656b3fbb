"""Queries' and keys' norms with what follows each, in one launch: FP8 planes and packed window rows. Knows no cache.

Source: the model's specification, sections 2 and 5. A composition of `rms_norm`, `rope`, `act_quant_fp8_planes` and
`act_quant_fp8_pack`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import act_quant_fp8, code_ties, inputs, rms_norm, rope
from tensorfold.kernels.exact import f32, store_bf16
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """low [R, K], q_norm [K], kv [R, D], kv_norm [D] bfloat16, table [R, RD / 2, 2], eps [1] float32
    -> q [R, 4, K / 16, 4] float32, row [R, D + D / 32] uint8."""
    low, q_norm, kv, kv_norm, table, _ = arrays
    (rows, k), d, turned = low.shape, kv.shape[-1], 2 * table.shape[1]
    fits = tuple(q_norm.shape) == (k,) and tuple(kv.shape) == (rows, d) and tuple(kv_norm.shape) == (d,)
    if not fits or tuple(table.shape) != (rows, turned // 2, 2) or turned > d or turned < 8 or k % 32 or d % 32:
        raise ValueError(
            f"attn_norms: low {tuple(low.shape)}, q_norm {tuple(q_norm.shape)}, kv {tuple(kv.shape)}, "
            f"kv_norm {tuple(kv_norm.shape)} and table {tuple(table.shape)} do not fit"
        )
    v = geometry["V"]
    groups = min(geometry["G"], -(-max(k, d) // v // 32))
    template = {"K": k, "D": d, "RD": turned, "G": groups, "V": v}
    shapes = ((rows, 4, k // 16, 4), (rows, d + d // 32))
    return Launch(template, (64 * groups, rows, 1), (32 * groups, 1, 1), shapes, (mx.float32, mx.uint8))


def _both(
    quantisers: tuple[Any, Any], low: Array, q_norm: Array, kv: Array, kv_norm: Array, table: Array, eps: Array
) -> list[Array]:
    planes, pack = quantisers
    (q,) = rms_norm.stated(low, q_norm, eps)
    (row,) = rms_norm.stated(kv, kv_norm, eps)
    (row,) = rope.stated(row[:, None], table, np.arange(len(row)))
    return [*planes(q), *pack(row[:, 0])]


def reference(*arrays: Array) -> list[Array]:
    """The quantisers' truths of the bfloat16 values that rms_norm and rope state."""
    return _both((act_quant_fp8.reference_planes, act_quant_fp8.reference_pack), *arrays)


def stated(*arrays: Array) -> list[Array]:
    """rms_norm, then act_quant_fp8_planes; rms_norm, rope, then act_quant_fp8_pack."""
    return _both((act_quant_fp8.stated_planes, act_quant_fp8.stated_pack), *arrays)


def cases() -> list[Case]:
    """Sizes of all configs, rows at positions out of order, extremes, overflow, values where an order shows."""
    eps = np.array([1e-20], f32)

    def case(name: str, rows: int, k: int, d: int, turned: int) -> Case:
        draw = inputs.Draw(k * d + turned)
        table = rope.turns(200, turned)[draw.integers(0, 200, rows)]
        arrays = draw.bf16(rows, k), draw.bf16(k), draw.bf16(rows, d, scale=3.0), draw.bf16(d), table, eps
        return Case(name, arrays, rows=rows == 16)

    sizes = (
        (3, 96, 64, 16),
        (2, 96, 64, 32),
        (2, 128, 512, 64),
        (2, 1280, 512, 64),
        (16, 160, 96, 32),
        (2, 64, 352, 48),
    )
    found = [case(f"K{k} D{d}/{turned}", rows, k, d, turned) for rows, k, d, turned in sizes]
    table = rope.turns(128, 32)
    low, q_norm = code_ties.normed(1, 128, 320, float(eps[0]), code_ties.FP8)
    kv, kv_norm = code_ties.normed(2, 128, 192, float(eps[0]), code_ties.FP8)
    found.append(Case("order", (low, q_norm, kv, kv_norm, table, eps)))
    kv, one = code_ties.pairs(4, 16, 64, code_ties.FP8), np.full(64, store_bf16(1))
    turning = code_ties.turning(5, rms_norm.stated(kv, one, eps)[0], code_ties.FP8)
    found.append(Case("order of the turn", (low[:16], q_norm, kv, one, turning, eps)))
    draw = inputs.Draw(3)
    for name, wild in (("extreme", inputs.extremes_bf16), ("overflow", inputs.overflow_bf16)):
        x, y = wild(512), wild(96)
        found.append(Case(name, (x, draw.bf16(512), y, draw.bf16(96), table[8 : 8 + len(x)], eps)))
    x, y = inputs.extremes_bf16(96), inputs.extremes_bf16(64)
    arrays = x, draw.any_bf16(96), y, draw.any_bf16(64), rope.turns(16, 16), np.array([1e-6], f32)
    return [*found, Case("any weights, eps 1e-6", arrays)]


KERNELS = (
    Kernel(
        name="attn_norms",
        path=Path(__file__).with_name("attn_norms.metal"),
        inputs=("low", "q_norm", "kv", "kv_norm", "table", "eps"),
        outputs=("q", "packed"),
        geometries=({"G": 16, "V": 4}, {"G": 8, "V": 4}, {"G": 4, "V": 2}, {"G": 1, "V": 8}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "codes and scales are integers and must be equal, a code times its scale is exact in float32; the bfloat16 "
            "values before them are what rms_norm and rope state and their own contracts bound",
            ulps=0.0,
        ),
        controls=(
            # mistakes inside a part are planted where it stands alone
            Control("barrier dropped", "P_BARRIER();", "", backends=("host",)),
            Control("queries alone normed", "if (queries) {\n    rms", "if (true) {\n    rms"),
            Control("angles of the first row", "table + row * uint(RD)", "table"),
            Control("not rounded before the turn", "v[i] = p_round_bf(e);", "v[i] = e;", file="turned.h"),
            Control("first of a pair not rounded after the turn", "v[i] = p_round_bf(v[i]);", "", file="turned.h"),
            Control("threads past the end kept", "if (at < uint(D)) fp8_pack", "fp8_pack", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("low", "kv", "table"),
    ),
)
