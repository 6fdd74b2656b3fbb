"""hc_collapse_norm: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_HEADER = "hc_collapse.h"
# mistakes of the header, planted here for every kernel that includes it
IN_HEADER = (
    Mistake("first barrier dropped", "P_BARRIER();\n  for", "for", _HEADER, ("host",)),
    Mistake("second barrier dropped", "P_BARRIER();\n  float mean", "float mean", _HEADER, ("host",)),
    Mistake("streams in another order", "p_fma(p[i], v[i], h)", "p_fma(p[N - i], v[N - i], h)", _HEADER),
    Mistake("product and sum not fused", "p_fma(p[i], v[i], h)", "p_add(p_mulz(p[i], v[i]), h)", _HEADER),
    Mistake("sums not flushed", "h = p_flush(p_fma(p[i], v[i], h));", "h = p_fma(p[i], v[i], h);", _HEADER, ("host",)),
    Mistake("last stream missed", "i < N; i++", "i + 1 < N; i++", _HEADER),
    Mistake(
        "lanes added in another order",
        "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
        "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
        "portable.h",
    ),
    Mistake("mean over too many", "float(D));", "float(4 * D));", _HEADER),
    Mistake("tail missed", "d < uint(D); d += 256u", "d + 32u < uint(D); d += 256u", _HEADER),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "hc_collapse_norm": (
        *IN_HEADER,
        Mistake(
            "collapse not rounded first",
            "held[d] = as_type<ushort>(p_f2bf(h));",
            "held[d] = ushort(p_bits(h) >> 16);",
        ),
        Mistake(
            "one element too far",
            "d < uint(D); d += 32u * uint(G)) {\n    p_store",
            "d <= uint(D); d += 32u * uint(G)) {\n    p_store",
            backends=("host",),
        ),
    ),
}
