"""Activations to FP8 in blocks of 32 with power-of-two scales: apart, packed, and back. Knows no layer.

Source: the model's specification, section 2, act_quant. Codes are exact; see `kernels.quantisers` for special values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import quantisers
from tensorfold.kernels.codes import E4M3, UE8M0, ceil_ue8m0, inverse_ue8m0, to_e4m3
from tensorfold.kernels.exact import Bits, f32, mul_flushed, store_bf16, store_f32
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.quantisers import Codes

BLOCK, FLOOR, FACTOR = 32, 1e-4, f32(1 / 448)
SIZES = (64, 96, 128, 192, 256, 384, 512, 768, 1280, 2304, 5120, 6144, 8192, 15360)


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> codes uint8 [..., K], scales uint8 [..., K / 32]."""
    return quantisers.plan_blocks("act_quant_fp8", arrays[0], geometry, BLOCK, lambda k: (k, k // BLOCK))


def plan_pack(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> packed uint8 [..., K + K / 32]."""
    return quantisers.plan_blocks("act_quant_fp8_pack", arrays[0], geometry, BLOCK, lambda k: (k + k // BLOCK,))


def plan_round(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> y [..., K] bfloat16."""
    return quantisers.plan_blocks("act_quant_fp8_round", arrays[0], geometry, BLOCK, lambda k: (k,), mx.bfloat16)


def plan_planes(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> y [..., 4, K / 16, 4] float32: element 16 c + 4 j + e of a row stands at [j, c, e]."""
    made = quantisers.plan_blocks("act_quant_fp8_planes", arrays[0], geometry, BLOCK, lambda k: (k,), mx.float32)
    *lead, k = made.shapes[0]
    return replace(made, shapes=((*lead, 4, k // 16, 4),))


def _exact(x: Bits) -> tuple[Codes, Codes, Array]:
    """Codes [..., n, 32] by search over the table, scale bytes and values [..., n, 1]: float64."""
    v = quantisers.blocks_of(x, BLOCK)
    byte, scale = quantisers.power_scale(x, BLOCK, FLOOR, FACTOR)
    with np.errstate(all="ignore"):
        codes = quantisers.nearest(v.astype(np.float64) / scale, E4M3[:127], 0x80)
    return np.where(byte == 255, quantisers.zero_codes(v, 0x80), codes), byte, scale


def _float32(x: Bits) -> tuple[Codes, Codes]:
    """Codes [..., n, 32] and scale bytes [..., n, 1] as the source computes them."""
    v = quantisers.blocks_of(x, BLOCK)
    with np.errstate(all="ignore"):
        byte = ceil_ue8m0(quantisers.largest(v, FLOOR) * FACTOR)
        codes = to_e4m3(v * inverse_ue8m0(np.minimum(byte, 253)))
    return np.where(byte == 255, quantisers.zero_codes(v, 0x80), codes), byte


def reference(x: Bits) -> list[Array]:
    """By brute force over every code and every scale."""
    codes, byte, _ = _exact(x)
    return [codes.reshape(x.shape), byte[..., 0]]


def stated(x: Bits) -> list[Array]:
    """float32, with the bit steps of codes.h."""
    codes, byte = _float32(x)
    return [codes.reshape(x.shape), byte[..., 0]]


def reference_pack(x: Bits) -> list[Array]:
    """By brute force: codes, then scale bytes."""
    return [quantisers.packed_row(*reference(x))]


def stated_pack(x: Bits) -> list[Array]:
    """float32: codes, then scale bytes."""
    return [quantisers.packed_row(*stated(x))]


def reference_round(x: Bits) -> list[Array]:
    """By brute force, decoded in float64."""
    codes, _, scale = _exact(x)
    with np.errstate(all="ignore"):
        return [(E4M3[codes].astype(np.float64) * scale).reshape(x.shape)]


def stated_round(x: Bits) -> list[Array]:
    """float32: code times scale, stored as bfloat16."""
    codes, byte = _float32(x)
    return [store_bf16(mul_flushed(E4M3[codes], UE8M0[byte])).reshape(x.shape)]


def as_planes(values: Array) -> Array:
    """[..., K] -> [..., 4, K / 16, 4]: element 16 c + 4 j + e of a row at [j, c, e]."""
    parts = values.reshape(*values.shape[:-1], -1, 4, 4)
    return np.ascontiguousarray(np.moveaxis(parts, -2, -3))


def reference_planes(x: Bits) -> list[Array]:
    """By brute force, decoded in float64, as planes."""
    return [as_planes(reference_round(x)[0])]


def stated_planes(x: Bits) -> list[Array]:
    """float32: code times scale, as planes."""
    codes, byte = _float32(x)
    return [store_f32(as_planes(mul_flushed(E4M3[codes], UE8M0[byte]).reshape(x.shape)))]


def cases(sizes: Sequence[int] = SIZES) -> list[Case]:
    """Every width in use; every code, tie and neighbour of a tie at scales from the smallest to the largest."""
    ladder = quantisers.ladder(E4M3[:127], (2.0**-22, 2.0**-3, 1.0, 2.0**100, 2.0**118), BLOCK)
    # a power of two times 448 has its own scale, one bfloat16 step more has the next
    edge = np.zeros((2, 128), np.uint16)
    edge[0, ::32] = store_bf16(f32(448) * np.exp2(np.array([-30, -22, 0, 100], f32)))
    edge[1, ::32] = edge[0, ::32] + 1
    edge[:, 5::32] = 0x3F80
    edge[:, 31::32] = edge[:, ::32] | 0x8000
    edge[:, ::32] = 0x8000
    special = [Case("every code", (ladder,)), Case("scale edges", (edge,))]
    return quantisers.trial_cases("act_quant_fp8", special, sizes, (3, 128))


_WHY = "codes and scales are integers and must be equal; bfloat16 holds the 4 significant bits of code * scale exactly"
_HEADER = "fp8_block.h"
# mistakes of the header, planted here for every kernel that includes it
BLOCK_CONTROLS = (
    Control("half of the block looked at", "int d = 16 / V;", "int d = 8 / V;", file=_HEADER),
    Control("floor left out", "p_bits(0.0001f)", "0x00800000u", file=_HEADER),
)


def kernel(
    name: str, outputs: tuple[str, ...], how: tuple[Any, Any, Any], controls: tuple[Control, ...], **more: Any
) -> Kernel:
    """One of the kernels of this family, with the mistakes they share."""
    shared = (
        *BLOCK_CONTROLS,
        Control("threads past the end kept", "if (at >= uint(K)) return;", "", backends=("host",)),
        Control("scale rounded down", "(u >> 23) + ((u & 0x7fffffu) != 0u ? 1u : 0u)", "u >> 23", file="codes.h"),
        Control("ties upward", "(u + 0x7ffffu + ((u >> 20) & 1u))", "(u + 0x80000u)", file="codes.h"),
    )
    planned, truth, order = how
    return Kernel(
        name=name,
        path=Path(__file__).with_name(f"{name}.metal"),
        inputs=("x",),
        outputs=outputs,
        geometries=({"V": 4, "G": 8}, {"V": 1, "G": 1}, {"V": 8, "G": 2}),
        plan=planned,
        reference=truth,
        stated=order,
        bound=Bound(_WHY, ulps=0.0),
        controls=(*shared, *controls),
        row_inputs=("x",),
        **more,
    )


# mistakes of the header, planted here for every kernel that writes planes
PLANE_CONTROLS = (
    Control("code without its scale", "p_ue8m0(scale)); }", "p_ue8m0(127u)); }", file=_HEADER),
    Control(
        "rows and columns of a chunk swapped",
        "(k % 16u / 4u) * uint(K / 4) + k / 16u * 4u + k % 4u",
        "k",
        file=_HEADER,
    ),
)
PACK_CONTROL = Control("scales before the last codes", "uint(K) + at / 32u", "uint(K - 1) + at / 32u", file=_HEADER)
_FEW = partial(cases, (64, 96, 512))
KERNELS = (
    kernel(
        "act_quant_fp8",
        ("codes", "scales"),
        (plan, reference, stated),
        (
            Control("NaN scale forgotten", "if (scale == 255u) return (p_bits(v) >> 24) & 0x80u;", "", file=_HEADER),
            Control("reciprocal one step off", "0.00223214296f", "0.00223214319f", file=_HEADER),
            Control("scale of the row's first block", "at / 32u] = ", "0u] = "),
        ),
        cases=cases,
    ),
    kernel(
        "act_quant_fp8_pack",
        ("packed",),
        (plan_pack, reference_pack, stated_pack),
        (PACK_CONTROL,),
        cases=_FEW,
    ),
    kernel(
        "act_quant_fp8_round",
        ("y",),
        (plan_round, reference_round, stated_round),
        PLANE_CONTROLS[:1],
        cases=_FEW,
    ),
    kernel(
        "act_quant_fp8_planes",
        ("y",),
        (plan_planes, reference_planes, stated_planes),
        PLANE_CONTROLS,
        cases=_FEW,
    ),
)
