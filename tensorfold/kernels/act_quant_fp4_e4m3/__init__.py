"""Compressed rows to FP4 in blocks of 16 with e4m3 scales: apart, as packed rows, and back. Knows no cache.

Source: the model's specification, section 2, fp4_e4m3. The scale is not a power of two: both divisions are true ones.
Codes are exact; see `kernels.quantisers` for special values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import quantisers
from tensorfold.kernels.codes import E2M1, E4M3, to_e2m1, to_e4m3
from tensorfold.kernels.exact import Bits, f32, mul_flushed, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.quantisers import Codes

BLOCK, FLOOR, NAN = 16, 6 * 2.0**-9, 0x7F
SIZES = (32, 64, 96, 128, 512)


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> codes uint8 [..., K / 2], scales uint8 [..., K / 16]."""
    return quantisers.plan_blocks("act_quant_fp4_e4m3", arrays[0], geometry, BLOCK, lambda k: (k // 2, k // BLOCK))


def plan_pack(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> packed uint8 [..., K / 2 + K / 16]."""
    return quantisers.plan_blocks(
        "act_quant_fp4_e4m3_pack", arrays[0], geometry, BLOCK, lambda k: (k // 2 + k // BLOCK,)
    )


def plan_round(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> y [..., K] bfloat16."""
    return quantisers.plan_blocks("act_quant_fp4_e4m3_round", arrays[0], geometry, BLOCK, lambda k: (k,), mx.bfloat16)


def _exact(x: Bits) -> tuple[Codes, Codes]:
    """Codes [..., n, 16] and scale codes [..., n, 1], both by search over the tables in float64."""
    v = quantisers.blocks_of(x, BLOCK)
    with np.errstate(all="ignore"):
        w = wide(x).reshape(v.shape)
        wanted = np.maximum(np.abs(w).max(-1, keepdims=True), FLOOR) / 6
        finite = np.isfinite(w).all(-1, keepdims=True)
        scale = np.where(finite, quantisers.nearest(wanted, E4M3[:127], 0x80), NAN).astype(np.uint8)
        codes = quantisers.nearest(w / E4M3[scale], E2M1[:8], 8)
    return np.where(finite, codes, quantisers.zero_codes(v, 8)), scale


def _float32(x: Bits) -> tuple[Codes, Codes]:
    """Codes [..., n, 16] and scale codes [..., n, 1] as the source computes them."""
    v = quantisers.blocks_of(x, BLOCK)
    with np.errstate(all="ignore"):
        top = quantisers.largest(v, FLOOR)
        scale = np.where(np.isfinite(top), to_e4m3(top / f32(6)), NAN).astype(np.uint8)
        codes = to_e2m1(v / E4M3[scale])
    return np.where(scale == NAN, quantisers.zero_codes(v, 8), codes), scale


def reference(x: Bits) -> list[Array]:
    """By brute force over every code and every scale."""
    codes, scale = _exact(x)
    return [quantisers.packed_nibbles(codes), scale[..., 0]]


def stated(x: Bits) -> list[Array]:
    """float32, with the bit steps of codes.h."""
    codes, scale = _float32(x)
    return [quantisers.packed_nibbles(codes), scale[..., 0]]


def reference_pack(x: Bits) -> list[Array]:
    """By brute force: nibbles, then scale codes."""
    return [quantisers.packed_row(*reference(x))]


def stated_pack(x: Bits) -> list[Array]:
    """float32: nibbles, then scale codes."""
    return [quantisers.packed_row(*stated(x))]


def reference_round(x: Bits) -> list[Array]:
    """By brute force, decoded in float64."""
    codes, scale = _exact(x)
    return [(E2M1[codes].astype(np.float64) * E4M3[scale]).reshape(x.shape)]


def stated_round(x: Bits) -> list[Array]:
    """float32: code times scale, stored as bfloat16."""
    codes, scale = _float32(x)
    return [store_bf16(mul_flushed(E2M1[codes], E4M3[scale])).reshape(x.shape)]


def cases(sizes: Sequence[int] = SIZES) -> list[Case]:
    """Every width in use; every element code and tie at every scale; every tie of the scale; values beyond 448 * 6."""
    ladder = quantisers.ladder(E2M1[:8], E4M3[1:127].tolist(), BLOCK)
    grid = E4M3[:127].astype(np.float64)
    middle = store_bf16(6 * (grid[1:] + grid[:-1]) / 2)
    beyond = store_bf16(np.array([2560, 2688, 2704, 2784, 2880, 3000, 1e5, 1e30], f32))
    tops = np.concatenate([middle - 1, middle, middle + 1, beyond]).astype(np.uint16)
    ties = np.tile(tops[:, None], (1, BLOCK))
    ties[:, 1:8] = store_bf16(np.array([1, -2, 0.01, -0.004, 300, 1300, -0.0], f32))
    ties[:, 9:] |= 0x8000
    ties = np.minimum(ties & 0x7FFF, ties[:, :1]) | (ties & 0x8000)
    ties = np.concatenate([ties.reshape(-1), np.zeros(-ties.size % 64, np.uint16)]).reshape(-1, 64)
    special = [Case("every code", (ladder,)), Case("every tie of the scale", (ties,))]
    return quantisers.trial_cases("act_quant_fp4_e4m3", special, sizes, (3, 64))


_WHY = "codes and scales are integers and must be equal; bfloat16 holds the 6 significant bits of code * scale exactly"
_HEADER = "fp4_e4m3_block.h"


def kernel(
    name: str, outputs: tuple[str, ...], how: tuple[Any, Any, Any], controls: tuple[Control, ...], **more: Any
) -> Kernel:
    """One of the three kernels of this family, with the mistakes they share."""
    shared = (
        Control("half of the block looked at", "int d = 8 / V;", "int d = 4 / V;", file=_HEADER),
        Control("floor left out", "p_bits(0.01171875f)", "0x00800000u", file=_HEADER),
        Control("threads past the end kept", "if (at >= uint(K)) return;", "", backends=("host",)),
        Control(
            "times the reciprocal", "p_div(v, p_e4m3(scale))", "p_mul(v, p_div(1.0f, p_e4m3(scale)))", file=_HEADER
        ),
        Control("scale's ties upward", "(u + 0x7ffffu + ((u >> 20) & 1u))", "(u + 0x80000u)", file="codes.h"),
    )
    planned, truth, order = how
    return Kernel(
        name=name,
        path=Path(__file__).with_name(f"{name}.metal"),
        inputs=("x",),
        outputs=outputs,
        geometries=({"V": 4, "G": 4}, {"V": 2, "G": 1}, {"V": 8, "G": 2}),
        plan=planned,
        reference=truth,
        stated=order,
        bound=Bound(_WHY, ulps=0.0),
        controls=(*shared, *controls),
        row_inputs=("x",),
        **more,
    )


PACK_CONTROL = Control(
    "scales before the last codes", "uint(K / 2) + at / 16u", "uint(K / 2 - 1) + at / 16u", file=_HEADER
)
_FEW = partial(cases, (64, 96))
KERNELS = (
    kernel(
        "act_quant_fp4_e4m3",
        ("codes", "scales"),
        (plan, reference, stated),
        (
            Control("NaN scale forgotten", "top >= 0x7f800000u ? 0x7fu : ", "", file=_HEADER),
            Control("no saturation of the scale", "u = p_minu(u, 0x43e00000u);", "", file="codes.h"),
            Control(
                "even element in the high nibble",
                "(v[i], scale) | (fp4_e4m3_code(v[i + 1], scale) << 4)",
                "(v[i + 1], scale) | (fp4_e4m3_code(v[i], scale) << 4)",
            ),
            Control("scale of the row's first block", "at / 16u] = ", "0u] = "),
        ),
        cases=cases,
    ),
    kernel(
        "act_quant_fp4_e4m3_pack",
        ("packed",),
        (plan_pack, reference_pack, stated_pack),
        (PACK_CONTROL,),
        cases=_FEW,
    ),
    kernel(
        "act_quant_fp4_e4m3_round",
        ("y",),
        (plan_round, reference_round, stated_round),
        (Control("code without its scale", "p_e4m3(scale))", "p_e4m3(56u))"),),
        cases=_FEW,
    ),
)
