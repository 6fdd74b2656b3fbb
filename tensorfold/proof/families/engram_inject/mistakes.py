"""engram_inject: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "engram_inject": (
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake(
            "lanes added in another order",
            "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
            "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
            file="portable.h",
        ),
        Mistake(
            "terms fused into the sum",
            "d = p_add(d, engram_term(a, p_load(q[weight + i]), p_load(k[weight + i]), b));",
            "d = p_fma(p_mul(a, p_mul(p_load(q[weight + i]), p_load(k[weight + i]))), b, d);",
        ),
        Mistake(
            "value of the last key",
            "(row * uint(N + 1) + uint(N)) * uint(D)",
            "(row * uint(N + 1) + uint(N - 1)) * uint(D)",
        ),
        Mistake("weights of the first stream", "uint weight = stream * uint(D);", "uint weight = 0u;"),
        Mistake(
            "sign of the gate lost",
            "p_copysign(p_sqrt(p_max(p_abs(d), 0.000001f)), dot)",
            "p_sqrt(p_max(p_abs(d), 0.000001f))",
        ),
        Mistake("small terms kept", "(p_bits(v) & 0x7fffffffu) < 0x0d800000u ? 0.0f : v", "v"),
        Mistake(
            "gate times value fused",
            "p_add(p_load(x[from + i]), p_mulz(gate, p_load(kv[value + i])))",
            "p_fma(gate, p_load(kv[value + i]), p_load(x[from + i]))",
        ),
        Mistake("tail missed", "i < uint(D); i += 256u", "i + 32u < uint(D); i += 256u"),
        Mistake(
            "one element too far",
            "i < uint(D); i += 32u * uint(G)",
            "i <= uint(D); i += 32u * uint(G)",
            backends=("host",),
        ),
    ),
}
