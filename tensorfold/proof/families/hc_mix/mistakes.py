"""hc_dots and hc_mix: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_DOTS = "hc_dots.h"
# mistakes of the header, planted here for every kernel that includes it
DOTS = (
    Mistake(
        "lanes added in another order",
        "ushort(16))));\n  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(8))));",
        "ushort(8))));\n  v = p_flush(p_add(v, simd_shuffle_xor(v, ushort(16))));",
        _DOTS,
    ),
    Mistake(
        "product and sum not fused",
        "p_fma(v, start + b < uint(M) ? f[b] : v, acc[b])",
        "p_add(p_mulz(v, start + b < uint(M) ? f[b] : v), acc[b])",
        _DOTS,
    ),
    Mistake("no square", "start + b < uint(M) ? f[b] : v", "f[b]", _DOTS),
    Mistake(
        "sums not flushed",
        "p_flush(p_fma(v, start + b < uint(M) ? f[b] : v, acc[b]))",
        "p_fma(v, start + b < uint(M) ? f[b] : v, acc[b])",
        _DOTS,
        ("host",),
    ),
    Mistake("every lane writes", "if (lane == 0u && start", "if (start", _DOTS, ("host",)),
    Mistake("places beyond the last written", " && start + b <= uint(M)", "", _DOTS, ("host",)),
)


_MIX = "hc_mix.h"
# mistakes of the header, planted here for every kernel that includes it
MIX = (
    Mistake("chunks in another order", "part[c * 25u + lane]", "part[(uint(C) - 1u - c) * 25u + lane]", _MIX),
    Mistake("last chunk missed", "c < uint(C); c++", "c + 1u < uint(C); c++", _MIX),
    Mistake(
        "sum of four in another order",
        "sum4(c, ushort(4), ushort(8)), e));\n  //",
        "sum4(c, ushort(8), ushort(4)), e));\n  //",
        _MIX,
    ),
    Mistake(
        "rows and columns swapped first",
        "c = p_add(p_div(c, sum4(c, ushort(1), ushort(2))), e);",
        "c = p_add(p_div(c, sum4(c, ushort(4), ushort(8))), e);",
        _MIX,
    ),
    Mistake("one turn too few", "i < ITERATIONS; i++", "i < ITERATIONS - 1; i++", _MIX),
    Mistake("one turn too many", "int i = 1;", "int i = 0;", _MIX),
    Mistake("no largest taken off", "p_exp(p_sub(c, top))", "p_exp(c)", _MIX),
    Mistake("eps left out of pre", "p_add(gate, e)", "gate", _MIX),
    Mistake("post not doubled", "p_mul(2.0f, gate)", "gate", _MIX),
    Mistake("post takes pre's scale", "lane < 4u ? 0u : lane < 8u ? 1u : 2u", "lane < 8u ? 0u : 2u", _MIX),
    Mistake("comb written by too many lanes", "if (lane < 16u)", "if (lane < 17u)", _MIX, ("host",)),
    Mistake("reads beyond the products", "if (lane < 25u) {", "if (lane < 26u) {", _MIX, ("host",)),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "hc_dots": (
        *DOTS,
        Mistake("a chunk too short", "p_minu(first + 512u, uint(K))", "p_minu(first + 480u, uint(K))"),
        Mistake("end of the row missed", "p_minu(first + 512u, uint(K))", "p_minu(first + 512u, uint(K - 1))"),
        Mistake("reads beyond the row", "p_minu(first + 512u, uint(K))", "first + 512u", backends=("host",)),
        Mistake("groups without a part kept", "if (block >= chunks * blocks) return;", "", backends=("host",)),
    ),
    "hc_mix": MIX,
}
