"""matvec_*: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

# mistakes of tile.h: in what every kernel takes from it, and in the end that writes sums
TILES = (
    Mistake("halves of a load swapped", "lo = q[0], hi = q[1];", "lo = q[1], hi = q[0];", file="tile.h"),
    Mistake(
        "last group of rows not drawn back", "p_minu(group * uint(R), rows - uint(R))", "group * uint(R)",
        file="tile.h", backends=("host",),
    ),
    Mistake("SIMD group left out", "d < SW; d = d * 2", "d < SW / 2; d = d * 2", file="tile.h"),
)  # fmt: skip
SHARED = (
    *TILES,
    Mistake("barrier dropped", "P_BARRIER();", "", file="tile.h", backends=("host",)),
    Mistake("rows of w beyond the end kept", "if (mine && n < count)", "if (mine)", file="tile.h", backends=("host",)),
)
FP8 = (
    Mistake(
        "two neighbours swapped in the chain",
        "a = p_fma(wv[i].y, xv.y, a);\n            a = p_fma(wv[i].z, xv.z, a);",
        "a = p_fma(wv[i].z, xv.z, a);\n            a = p_fma(wv[i].y, xv.y, a);",
        file="fp8.h",
    ),
    Mistake("scale of another block", "sp[(uint(f * VL) + v) >> 1]", "sp[(uint(f * VL) + v) >> 2]", file="fp8.h"),
    Mistake("reads beyond the last row of w", "last / uint(TN) * uint(TN))", "row)", file="fp8.h", backends=("host",)),
)


SUMS = "simd % uint(SW) * uint(LK) + lane % uint(LK)"


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "matvec_fp8": (
        *SHARED,
        *FP8,
        Mistake("running sums in another order", SUMS, "simd % uint(SW) + lane % uint(LK) * uint(SW)"),
        Mistake("scales of the first group", "(part * count >> 5) * uint(K / 32)", "0u"),
        Mistake("x of the first group", "x + part * uint(K)", "x"),
        Mistake("NaN scale as infinity", "s == 255u ? 0x7fc00000u : s << 23", "s << 23", file="codes.h"),
        Mistake("NaN code as 480", "((nan >> 1) & 0x40004000u)", "0u", file="wide.h", backends=("host", "metal")),
        Mistake("last chunks missed", "t < T; t += uint(PF)) {", "t < T - T / 2u; t += uint(PF)) {", file="fp8.h"),
    ),
    "matvec_fp8_pair": (
        *SHARED,
        *FP8,
        Mistake("scales of the first matrix", "tile < end0 ? s0 : s1", "s0"),
        Mistake("tiles counted from the first", "tile : tile - end0)", "tile : tile)"),
    ),
    "matvec_bf16": (
        *SHARED,
        Mistake("running sums in another order", SUMS, "simd % uint(SW) + lane % uint(LK) * uint(SW)"),
        Mistake(
            "product and sum not fused",
            "p_fma(p_float(b << 16), x.z, sum)",
            "p_add(p_mul(p_float(b << 16), x.z), sum)",
        ),
        Mistake(
            "halves of a chunk in another order",
            "four(b.z, b.w, hi, four(b.x, b.y, lo, acc[i * R + r]))",
            "four(b.x, b.y, lo, four(b.z, b.w, hi, acc[i * R + r]))",
        ),
        Mistake("reads beyond the last row of w", "last / uint(TN) * uint(TN))", "row)", backends=("host",)),
        Mistake("last chunks missed", "t < T; t += uint(PF)) {", "t < T - T / 2u; t += uint(PF)) {"),
    ),
    "matvec_fp8_quantised": (
        # mistakes inside the product and inside the quantiser are planted where they stand alone
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake("running sums in another order", SUMS, "simd % uint(SW) + lane % uint(LK) * uint(SW)"),
        Mistake("scales of the first group", "(part * count >> 5) * uint(K / 32)", "0u"),
        Mistake("x of the first group", "x + part * uint(K)", "x"),
        Mistake("planes of the first group", "(part * count + start + n)", "(start + n)", backends=("host",)),
        Mistake("not rounded before the quantiser", "p_round_bf(parts_sum", "p_load(parts_sum"),
        Mistake("blocks beyond the end kept", "mine && start + n < count", "mine", backends=("host",)),
        Mistake("rows that another group writes kept", "if (mine && start", "if (start", backends=("host",)),
        Mistake("last rows missed", "uint(P_TILE / 32 * R)", "uint(P_TILE / 32 * R - 1)"),
    ),
}
