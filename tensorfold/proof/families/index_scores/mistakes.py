"""index_scores: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "index_scores": (
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake(
            "heads added neighbours first",
            "for (int i = 0; i < N / 2; i++) a[i] = p_flush(p_add(a[i], a[i + (N + 1) / 2]));",
            "for (int i = 0; i < (N + 1) / 2; i++) "
            "a[i] = 2 * i + 1 < N ? p_flush(p_add(a[2 * i], a[2 * i + 1])) : a[2 * i];",
        ),
        Mistake(
            "blocks added from the last",
            "for (uint b = 0u; b < uint(K / 32); b++) {",
            "for (uint z = uint(K / 32); z > 0u; z--) {\n    uint b = z == uint(K / 32) ? 0u : z;",
        ),
        Mistake(
            "weight before relu",
            "p_mulz(p_max(sum[n], 0.0f), weight[part + uint(n * T)])",
            "p_max(p_mulz(sum[n], weight[part + uint(n * T)]), 0.0f)",
        ),
        Mistake("scale of the first block", "key[uint(K / 2) + b]", "key[uint(K / 2)]"),
        Mistake("query's scale of the first head", "unit[h * uint(K / 32) + b]", "unit[b]"),
        Mistake(
            "threads' heads added neighbours first",
            "int d = T / 2; d > 0; d = d / 2",
            "int d = 1; d < T; d = d * 2",
        ),
        Mistake("nibbles swapped", "word >> (4u * j) & 15u", "word >> (4u * (j ^ 1u)) & 15u"),
        Mistake("first segment's places", "ulong(segment[row]) * c", "ulong(0) * c"),
        Mistake("a new key taken from the cache", "place < held ?", "place <= held ?", backends=("host",)),
        Mistake(
            "key's offset cut to 32 bits",
            "cache + ulong(place) * bytes",
            "cache + uint(place) * bytes",
            backends=("host",),
        ),
        Mistake("empty place scored", "empty ? p_neg(p_inf()) : total", "total"),
        Mistake("edge threads kept", "part == 0u && column < c", "part == 0u", backends=("host",)),
        Mistake("places past the last", "int place = column < c ?", "int place = column <= c ?", backends=("host",)),
    ),
}
