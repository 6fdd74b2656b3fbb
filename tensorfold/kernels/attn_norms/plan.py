"""attn_norms: the arrays it takes, and the launch. Knows no cache.

Source: docs/model.md#numbers and docs/model.md#attention. A composition of `rms_norm`, `rope`,
`act_quant_fp8_planes` and `act_quant_fp8_pack`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


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


def attn_norms(
    low: mx.array, q_norm: mx.array, kv: mx.array, kv_norm: mx.array, table: mx.array, eps: mx.array, *, backend: str
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan` describes."""
    q, packed = KERNELS[0](low, q_norm, kv, kv_norm, table, eps, backend=backend)
    return q, packed


KERNELS = (
    Kernel(
        name="attn_norms",
        path=Path(__file__).with_name("attn_norms.metal"),
        inputs=("low", "q_norm", "kv", "kv_norm", "table", "eps"),
        outputs=("q", "packed"),
        geometries=({"G": 16, "V": 4}, {"G": 8, "V": 4}, {"G": 4, "V": 2}, {"G": 1, "V": 8}),
        plan=plan,
    ),
)
