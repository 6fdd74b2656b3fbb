"""Mistakes planted in the gathered experts' kernels, which the contract must see. Knows their text alone."""

from __future__ import annotations

from tensorfold.kernels.kernel import Control

_BODY, _HEADER = "experts_rows.h", "experts.h"
_HOST = ("host",)

# planted in both kernels: orders, tails, bounds and grouping
SHARED = (
    Control(
        "two products of a block swapped",
        "a = p_fma(wa[i].y, xa.y, a);\n                a = p_fma(wa[i].z, xa.z, a);",
        "a = p_fma(wa[i].z, xa.z, a);\n                a = p_fma(wa[i].y, xa.y, a);",
        file=_BODY,
    ),
    Control(
        "tree begins at distance 2",
        "if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));\n"
        "  if (LK > 2) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(2))));",
        "if (LK > 2) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(2))));\n"
        "  if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));",
        file=_HEADER,
    ),
    Control(
        "blocks from the last",
        "for (uint step = 0u; step < STEPS; step += uint(PF)) {",
        "for (uint s = 0u, step = STEPS - uint(PF); s < STEPS; s += uint(PF), step -= uint(PF)) {",
        file=_BODY,
    ),
    Control("last row of a matrix missed", "n < uint(N)) p_store", "n + 1u < uint(N)) p_store", file=_BODY),
    Control("rows past a matrix written", "kl == uint(i % LK) && n < uint(N)", "kl == uint(i % LK)", _BODY, _HOST),
    Control(
        "rows past a matrix read",
        "p_minu(first + uint(i), uint(N - 1)) * C + block",
        "(first + uint(i)) * C + block",
        file=_BODY,
        backends=_HOST,
    ),
    Control("an expert's second pair forgotten", "hits = hits & (hits - 1u);", "hits = 0u;", file=_BODY),
    Control("every pair of an expert computes all", "if ((hits & below) != 0u) return;", "", _BODY, _HOST),
    Control(
        "codes' offset cut to 32 bits", "= place[entry] - origin[0]", "= uint(place[entry]) - origin[0]", _BODY, _HOST
    ),
    Control("scale 255 an infinity", "s == 255u ? 0x7fc00000u : s << 23", "s << 23", file="codes.h"),
)

UP = (
    Control("w1 read for w3", "* matrices + matrix) * 2u", "* matrices) * 2u", file=_BODY),
    Control("gate and up swapped", "matrix == 0u ? gate : up", "matrix == 0u ? up : gate"),
    Control("every pair has the first row", "ulong(mine[g] / share)", "ulong(mine[g] / share * 0u)", file=_BODY),
    Control("pairs after the 32nd missed", "base < pairs; base += 32u", "base < 1u; base += 32u", file=_BODY),
    Control(
        "scales' offset cut to 32 bits",
        "place[entry + 1u] - origin[0]",
        "uint(place[entry + 1u]) - origin[0]",
        file=_BODY,
        backends=_HOST,
    ),
    Control("halves of a word swapped", "uint(j)), wa[i], wb[i])", "uint(j)), wb[i], wa[i])", file=_BODY),
    Control("eight elements of the row read twice", "block, uint(j), xa", "block, uint(j / 2), xa", file=_BODY),
    Control("a plane read twice", "b = plane[K / 16];", "b = plane[0];", file=_HEADER),
    Control("scale of the neighbouring block", "factors[at]", "factors[at ^ 1u]", file=_BODY),
    Control("8-byte load of the first half twice", "high = ((const P_DEV uint2*)at)[1]", "high = low", file=_HEADER),
    Control("last 4-byte load from the word before", "((const P_DEV uint*)at)[3]", "q.z", file=_HEADER),
    Control(
        "running sum not flushed",
        "p_flush(p_fma(whole, p_ue8m0(sw[f * TN + i]), sums[g * TN + i]))",
        "p_fma(whole, p_ue8m0(sw[f * TN + i]), sums[g * TN + i])",
        _BODY,
        _HOST,
    ),
    Control(
        "tree not flushed",
        "if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));",
        "if (LK > 1) a = p_add(a, simd_shuffle_xor(a, ushort(1)));",
        _HEADER,
        _HOST,
    ),
)

DOWN = (Control("two pairs share an input", "share = 1u, matrix", "share = 2u, matrix"),)
