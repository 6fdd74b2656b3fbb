"""experts_up and experts_down: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_BODY, _HEADER = "experts_rows.h", "experts.h"
_HOST = ("host",)


# planted in both kernels: orders, tails, bounds and grouping
SHARED = (
    Mistake(
        "two products of a block swapped",
        "a = p_fma(wa[i].y, xa.y, a);\n                a = p_fma(wa[i].z, xa.z, a);",
        "a = p_fma(wa[i].z, xa.z, a);\n                a = p_fma(wa[i].y, xa.y, a);",
        file=_BODY,
    ),
    Mistake(
        "tree begins at distance 2",
        "if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));\n"
        "  if (LK > 2) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(2))));",
        "if (LK > 2) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(2))));\n"
        "  if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));",
        file=_HEADER,
    ),
    Mistake(
        "blocks from the last",
        "for (uint step = 0u; step < STEPS; step += uint(PF)) {",
        "for (uint s = 0u, step = STEPS - uint(PF); s < STEPS; s += uint(PF), step -= uint(PF)) {",
        file=_BODY,
    ),
    Mistake("last row of a matrix missed", "n < uint(N)) p_store", "n + 1u < uint(N)) p_store", file=_BODY),
    Mistake("rows past a matrix written", "kl == uint(i % LK) && n < uint(N)", "kl == uint(i % LK)", _BODY, _HOST),
    Mistake(
        "rows past a matrix read",
        "p_minu(first + uint(i), uint(N - 1)) * C + block",
        "(first + uint(i)) * C + block",
        file=_BODY,
        backends=_HOST,
    ),
    Mistake("an expert's second pair forgotten", "hits = hits & (hits - 1u);", "hits = 0u;", file=_BODY),
    Mistake("every pair of an expert computes all", "if ((hits & below) != 0u) return;", "", _BODY, _HOST),
    Mistake(
        "codes' offset cut to 32 bits", "= place[entry] - origin[0]", "= uint(place[entry]) - origin[0]", _BODY, _HOST
    ),
    Mistake("scale 255 an infinity", "s == 255u ? 0x7fc00000u : s << 23", "s << 23", file="codes.h"),
)


UP = (
    Mistake("w1 read for w3", "* matrices + matrix) * 2u", "* matrices) * 2u", file=_BODY),
    Mistake("gate and up swapped", "matrix == 0u ? gate : up", "matrix == 0u ? up : gate"),
    Mistake("every pair has the first row", "ulong(mine[g] / share)", "ulong(mine[g] / share * 0u)", file=_BODY),
    Mistake("pairs after the 32nd missed", "base < pairs; base += 32u", "base < 1u; base += 32u", file=_BODY),
    Mistake(
        "scales' offset cut to 32 bits",
        "place[entry + 1u] - origin[0]",
        "uint(place[entry + 1u]) - origin[0]",
        file=_BODY,
        backends=_HOST,
    ),
    Mistake("halves of a word swapped", "uint(j)), wa[i], wb[i])", "uint(j)), wb[i], wa[i])", file=_BODY),
    Mistake("eight elements of the row read twice", "block, uint(j), xa", "block, uint(j / 2), xa", file=_BODY),
    Mistake("a plane read twice", "b = plane[K / 16];", "b = plane[0];", file=_HEADER),
    Mistake("scale of the neighbouring block", "factors[at]", "factors[at ^ 1u]", file=_BODY),
    Mistake("8-byte load of the first half twice", "high = ((const P_DEV uint2*)at)[1]", "high = low", file=_HEADER),
    Mistake("last 4-byte load from the word before", "((const P_DEV uint*)at)[3]", "q.z", file=_HEADER),
    Mistake(
        "running sum not flushed",
        "p_flush(p_fma(whole, p_ue8m0(sw[f * TN + i]), sums[g * TN + i]))",
        "p_fma(whole, p_ue8m0(sw[f * TN + i]), sums[g * TN + i])",
        _BODY,
        _HOST,
    ),
    Mistake(
        "tree not flushed",
        "if (LK > 1) a = p_flush(p_add(a, simd_shuffle_xor(a, ushort(1))));",
        "if (LK > 1) a = p_add(a, simd_shuffle_xor(a, ushort(1)));",
        _HEADER,
        _HOST,
    ),
)


DOWN = (Mistake("two pairs share an input", "share = 1u, matrix", "share = 2u, matrix"),)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "experts_up": SHARED + UP,
    "experts_down": SHARED + DOWN,
}
