"""rms_norm: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_HEADER = "rms.h"
# mistakes of the header and of the sum over lanes, planted here for every kernel that norms rows with it
IN_HEADER = (
    Mistake(
        "lanes added in another order",
        "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
        "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
        file="portable.h",
    ),
    Mistake("mean over one element too many", "float(K));", "float(K + 1));", _HEADER),
    Mistake("weight after rounding", "p_mul(w, p_mul(x, factor))", "p_mul(p_round_bf(p_mul(x, factor)), w)", _HEADER),
    Mistake(
        "scale first, then weight: swapped products",
        "p_mul(w, p_mul(x, factor))",
        "p_mul(p_mul(w, x), factor)",
        _HEADER,
    ),
    Mistake("tail missed", "i < uint(K); i += 256u", "i + 32u < uint(K); i += 256u", _HEADER),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "rms_norm": (
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        *IN_HEADER,
        Mistake(
            "one element too far",
            "i < uint(K); i += 32u * uint(G)",
            "i <= uint(K); i += 32u * uint(G)",
            backends=("host",),
        ),
    ),
}
