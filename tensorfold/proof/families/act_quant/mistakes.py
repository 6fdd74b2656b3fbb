"""The quantisers, act_quant_*: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_FP8, _FP4_E8M0, _FP4_E4M3 = "fp8_block.h", "fp4_e8m0_block.h", "fp4_e4m3_block.h"
_PAST_THE_END = Mistake("threads past the end kept", "if (at >= uint(K)) return;", "", backends=("host",))
_SCALE_DOWN = Mistake("scale rounded down", "(u >> 23) + ((u & 0x7fffffu) != 0u ? 1u : 0u)", "u >> 23", file="codes.h")

FP8 = (
    Mistake("half of the block looked at", "int d = 16 / V;", "int d = 8 / V;", file=_FP8),
    Mistake("floor left out", "p_bits(0.0001f)", "0x00800000u", file=_FP8),
    _PAST_THE_END,
    _SCALE_DOWN,
    Mistake("ties upward", "(u + 0x7ffffu + ((u >> 20) & 1u))", "(u + 0x80000u)", file="codes.h"),
)
# of every kernel that decodes, and of every one that writes planes
FP8_VALUE = Mistake("code without its scale", "p_ue8m0(scale)); }", "p_ue8m0(127u)); }", file=_FP8)
FP8_PLANES = Mistake(
    "rows and columns of a chunk swapped", "(k % 16u / 4u) * uint(K / 4) + k / 16u * 4u + k % 4u", "k", file=_FP8
)
FP8_PACK = Mistake("scales before the last codes", "uint(K) + at / 32u", "uint(K - 1) + at / 32u", file=_FP8)

FP4_E8M0 = (
    Mistake("half of the block looked at", "int d = 16 / V;", "int d = 8 / V;", file=_FP4_E8M0),
    _PAST_THE_END,
    _SCALE_DOWN,
    Mistake("a tie upward", "uint(u > 0x40200000u)", "uint(u >= 0x40200000u)", file="codes.h"),
)
FP4_E8M0_PACK = Mistake(
    "scales before the last codes", "uint(K / 2) + at / 32u", "uint(K / 2 - 1) + at / 32u", file=_FP4_E8M0
)

FP4_E4M3 = (
    Mistake("half of the block looked at", "int d = 8 / V;", "int d = 4 / V;", file=_FP4_E4M3),
    Mistake("floor left out", "p_bits(0.01171875f)", "0x00800000u", file=_FP4_E4M3),
    _PAST_THE_END,
    Mistake("times the reciprocal", "p_div(v, p_e4m3(scale))", "p_mul(v, p_div(1.0f, p_e4m3(scale)))", file=_FP4_E4M3),
    Mistake("scale's ties upward", "(u + 0x7ffffu + ((u >> 20) & 1u))", "(u + 0x80000u)", file="codes.h"),
)
FP4_E4M3_PACK = Mistake(
    "scales before the last codes", "uint(K / 2) + at / 16u", "uint(K / 2 - 1) + at / 16u", file=_FP4_E4M3
)

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "act_quant_fp4_e4m3": (
        *FP4_E4M3,
        Mistake("NaN scale forgotten", "top >= 0x7f800000u ? 0x7fu : ", "", file=_FP4_E4M3),
        Mistake("no saturation of the scale", "u = p_minu(u, 0x43e00000u);", "", file="codes.h"),
        Mistake(
            "even element in the high nibble",
            "(v[i], scale) | (fp4_e4m3_code(v[i + 1], scale) << 4)",
            "(v[i + 1], scale) | (fp4_e4m3_code(v[i], scale) << 4)",
        ),
        Mistake("scale of the row's first block", "at / 16u] = ", "0u] = "),
    ),
    "act_quant_fp4_e4m3_pack": (*FP4_E4M3, FP4_E4M3_PACK),
    "act_quant_fp4_e4m3_round": (*FP4_E4M3, Mistake("code without its scale", "p_e4m3(scale))", "p_e4m3(56u))")),
    "act_quant_fp4_e8m0": (
        *FP4_E8M0,
        Mistake("floor left out", "uint top = 0x01c00000u", "uint top = 0u", file=_FP4_E8M0),
        Mistake("NaN scale forgotten", "if (scale == 255u) return (p_bits(v) >> 28) & 8u;", "", file=_FP4_E8M0),
        Mistake(
            "even element in the high nibble",
            "(v[i], scale) | (fp4_e8m0_code(v[i + 1], scale) << 4)",
            "(v[i + 1], scale) | (fp4_e8m0_code(v[i], scale) << 4)",
        ),
        Mistake("scale of the row's first block", "at / 32u] = ", "0u] = "),
    ),
    "act_quant_fp4_e8m0_pack": (*FP4_E8M0, FP4_E8M0_PACK),
    "act_quant_fp4_e8m0_round": (*FP4_E8M0, Mistake("code without its scale", "p_ue8m0(scale)", "p_ue8m0(127u)")),
    "act_quant_fp8": (
        *FP8,
        Mistake("NaN scale forgotten", "if (scale == 255u) return (p_bits(v) >> 24) & 0x80u;", "", file=_FP8),
        Mistake("reciprocal one step off", "0.00223214296f", "0.00223214319f", file=_FP8),
        Mistake("scale of the row's first block", "at / 32u] = ", "0u] = "),
    ),
    "act_quant_fp8_pack": (*FP8, FP8_PACK),
    "act_quant_fp8_round": (*FP8, FP8_VALUE),
    "act_quant_fp8_planes": (*FP8, FP8_VALUE, FP8_PLANES),
}
