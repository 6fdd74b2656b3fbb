"""Index keys and queries to FP4 in blocks of 32 with power-of-two scales: apart, packed, and back. Knows no cache.

Source: the model's specification, section 2, fp4_e8m0. Codes are exact; see `kernels.quantisers` for special values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import quantisers
from tensorfold.kernels.codes import E2M1, UE8M0, ceil_ue8m0, inverse_ue8m0, to_e2m1
from tensorfold.kernels.exact import Bits, f32, mul_flushed, store_bf16
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch
from tensorfold.kernels.quantisers import Codes

BLOCK, FLOOR, FACTOR = 32, 6 * 2.0**-126, f32(1 / 6)
SIZES = (32, 64, 96, 128, 256, 4096)


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> codes uint8 [..., K / 2], scales uint8 [..., K / 32]."""
    return quantisers.plan_blocks("act_quant_fp4_e8m0", arrays[0], geometry, BLOCK, lambda k: (k // 2, k // BLOCK))


def plan_pack(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> packed uint8 [..., K / 2 + K / 32]."""
    return quantisers.plan_blocks(
        "act_quant_fp4_e8m0_pack", arrays[0], geometry, BLOCK, lambda k: (k // 2 + k // BLOCK,)
    )


def plan_round(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> y [..., K] bfloat16."""
    return quantisers.plan_blocks("act_quant_fp4_e8m0_round", arrays[0], geometry, BLOCK, lambda k: (k,), mx.bfloat16)


def _exact(x: Bits) -> tuple[Codes, Codes, Array]:
    """Codes [..., n, 32] by search over the table, scale bytes and values [..., n, 1]: float64."""
    v = quantisers.blocks_of(x, BLOCK)
    byte, scale = quantisers.power_scale(x, BLOCK, FLOOR, FACTOR)
    with np.errstate(all="ignore"):
        codes = quantisers.nearest(v.astype(np.float64) / scale, E2M1[:8], 8)
    return np.where(byte == 255, quantisers.zero_codes(v, 8), codes), byte, scale


def _float32(x: Bits) -> tuple[Codes, Codes]:
    """Codes [..., n, 32] and scale bytes [..., n, 1] as the source computes them."""
    v = quantisers.blocks_of(x, BLOCK)
    with np.errstate(all="ignore"):
        byte = ceil_ue8m0(quantisers.largest(v, FLOOR) * FACTOR)
        codes = to_e2m1(v * inverse_ue8m0(np.minimum(byte, 253)))
    return np.where(byte == 255, quantisers.zero_codes(v, 8), codes), byte


def reference(x: Bits) -> list[Array]:
    """By brute force over every code and every scale."""
    codes, byte, _ = _exact(x)
    return [quantisers.packed_nibbles(codes), byte[..., 0]]


def stated(x: Bits) -> list[Array]:
    """float32, with the bit steps of codes.h."""
    codes, byte = _float32(x)
    return [quantisers.packed_nibbles(codes), byte[..., 0]]


def reference_pack(x: Bits) -> list[Array]:
    """By brute force: nibbles, then scale bytes."""
    return [quantisers.packed_row(*reference(x))]


def stated_pack(x: Bits) -> list[Array]:
    """float32: nibbles, then scale bytes."""
    return [quantisers.packed_row(*stated(x))]


def reference_round(x: Bits) -> list[Array]:
    """By brute force, decoded in float64."""
    codes, _, scale = _exact(x)
    return [(E2M1[codes].astype(np.float64) * scale).reshape(x.shape)]


def stated_round(x: Bits) -> list[Array]:
    """float32: code times scale, stored as bfloat16."""
    codes, byte = _float32(x)
    return [store_bf16(mul_flushed(E2M1[codes], UE8M0[byte])).reshape(x.shape)]


def cases(sizes: Sequence[int] = SIZES) -> list[Case]:
    """Every width in use; every code, tie and neighbour of a tie at scales from the smallest to the largest."""
    ladder = quantisers.ladder(E2M1[:8], (2.0**-126, 2.0**-120, 2.0**-3, 1.0, 2.0**100, 2.0**124), BLOCK)
    # a power of two times 6 has its own scale, one bfloat16 step more has the next
    edge = np.zeros((2, 128), np.uint16)
    edge[0, ::32] = store_bf16(f32(6) * np.exp2(np.array([-126, -22, 0, 124], f32)))
    edge[1, ::32] = edge[0, ::32] + 1
    edge[:, 31::32] = edge[:, ::32] | 0x8000
    edge[:, ::32] = 0x8000
    special = [Case("every code", (ladder,)), Case("scale edges", (edge,))]
    return quantisers.trial_cases("act_quant_fp4_e8m0", special, sizes, (3, 128))


_WHY = "codes and scales are integers and must be equal; bfloat16 holds the 2 significant bits of code * scale exactly"
_HEADER = "fp4_e8m0_block.h"


def kernel(
    name: str, outputs: tuple[str, ...], how: tuple[Any, Any, Any], controls: tuple[Control, ...], **more: Any
) -> Kernel:
    """One of the three kernels of this family, with the mistakes they share."""
    shared = (
        Control("half of the block looked at", "int d = 16 / V;", "int d = 8 / V;", file=_HEADER),
        Control("threads past the end kept", "if (at >= uint(K)) return;", "", backends=("host",)),
        Control("scale rounded down", "(u >> 23) + ((u & 0x7fffffu) != 0u ? 1u : 0u)", "u >> 23", file="codes.h"),
        Control("a tie upward", "uint(u > 0x40200000u)", "uint(u >= 0x40200000u)", file="codes.h"),
    )
    planned, truth, order = how
    return Kernel(
        name=name,
        path=Path(__file__).with_name(f"{name}.metal"),
        inputs=("x",),
        outputs=outputs,
        geometries=({"V": 4, "G": 8}, {"V": 2, "G": 1}, {"V": 8, "G": 2}),
        plan=planned,
        reference=truth,
        stated=order,
        bound=Bound(_WHY, ulps=0.0),
        controls=(*shared, *controls),
        row_inputs=("x",),
        **more,
    )


PACK_CONTROL = Control(
    "scales before the last codes", "uint(K / 2) + at / 32u", "uint(K / 2 - 1) + at / 32u", file=_HEADER
)
_FEW = partial(cases, (64, 96))
KERNELS = (
    kernel(
        "act_quant_fp4_e8m0",
        ("codes", "scales"),
        (plan, reference, stated),
        (
            Control("floor left out", "uint top = 0x01c00000u", "uint top = 0u", file=_HEADER),
            Control("NaN scale forgotten", "if (scale == 255u) return (p_bits(v) >> 28) & 8u;", "", file=_HEADER),
            Control(
                "even element in the high nibble",
                "(v[i], scale) | (fp4_e8m0_code(v[i + 1], scale) << 4)",
                "(v[i + 1], scale) | (fp4_e8m0_code(v[i], scale) << 4)",
            ),
            Control("scale of the row's first block", "at / 32u] = ", "0u] = "),
        ),
        cases=cases,
    ),
    kernel(
        "act_quant_fp4_e8m0_pack",
        ("packed",),
        (plan_pack, reference_pack, stated_pack),
        (PACK_CONTROL,),
        cases=_FEW,
    ),
    kernel(
        "act_quant_fp4_e8m0_round",
        ("y",),
        (plan_round, reference_round, stated_round),
        (Control("code without its scale", "p_ue8m0(scale)", "p_ue8m0(127u)"),),
        cases=_FEW,
    ),
)
