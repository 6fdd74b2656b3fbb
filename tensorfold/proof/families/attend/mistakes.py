"""attend_scores and attend_values: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from dataclasses import replace

from tensorfold.proof.proof import Mistake

_BARRIERS = (
    Mistake("barrier after the peaks dropped", "= highest;\n    }\n    P_BARRIER();", "= highest;\n    }"),
    Mistake("barrier after P dropped", "P_BARRIER();\n    if (own_head", "if (own_head"),
    Mistake("barrier after the parts dropped", "= sum[i];\n        }\n        P_BARRIER();", "= sum[i];\n        }"),
    Mistake("barrier between rounds dropped", "          }\n        }\n        P_BARRIER();", "          }\n        }"),
    Mistake("barrier between spans dropped", "if (SPLIT < 2) P_BARRIER();", ""),
    Mistake(
        "two blocks' parts in one place",
        "parts[turn * uint(PART) + (uint(i / E * SLICES)",
        "parts[(uint(i / E * SLICES)",
    ),
)


_SCORES = (
    Mistake("barrier after the queries dropped", "P_BARRIER();", "", file="dots.h"),
    Mistake("queries not turned", "if (d + 2u * k >= STILL)", "if (false)", file="dots.h"),
    Mistake("queries not rounded", "to[2u * k] = p_round_bf(v[0]);", "to[2u * k] = v[0];", file="dots.h"),
    Mistake("angles of the first row", "table + row * uint(RD)", "table"),
    Mistake("queries of the first heads", "q + (row * uint(H) + head) * uint(D)", "q + row * uint(H) * uint(D)"),
    Mistake("a place that belongs to another row", "window_places[row * w + column]", "window_places[column]"),
    Mistake("a compressed place that belongs to another row", "packed_places[row * k +", "packed_places["),
    Mistake("scores of the first heads", "(row * uint(H) + head) * all + first", "row * uint(H) * all + first"),
    Mistake(
        "neighbouring groups to one sum",
        "d / 16u % 4u * uint(P_QUERY_SUM(D)) + d / 64u * 16u",
        "d / uint(D / 4) * uint(P_QUERY_SUM(D)) + d % uint(D / 4) / 16u * 16u",
        file="dots.h",
    ),
    Mistake(
        "codes of another group",
        "uint at = group + uint(4 * (i / NC));",
        "uint at = (group + uint(4 * (i / NC))) ^ 4u % uint(D / 16);",
        file="dots.h",
    ),
    Mistake(
        "the four sums in another order",
        "simd_shuffle_xor(sum[c * HG + h], ushort(8)));\n      s = p_add(s, simd_shuffle_xor(s, ushort(16)));",
        "simd_shuffle_xor(sum[c * HG + h], ushort(16)));\n      s = p_add(s, simd_shuffle_xor(s, ushort(8)));",
        file="dots.h",
    ),
    Mistake(
        "a score's products added from the last",
        "float s = p_fma(a.x, v[c * 8 + e], sum[c * HG + h]);\n          s = p_fma(a.y, v[c * 8 + e + 1], s);",
        "float s = p_fma(a.y, v[c * 8 + e + 1], sum[c * HG + h]);\n          s = p_fma(a.x, v[c * 8 + e], s);",
        file="dots.h",
    ),
    Mistake(
        "last group missed",
        "group < uint(D / 16); group +=",
        "group < uint(D / 16) - 4u; group +=",
        file="dots.h",
    ),
    Mistake(
        "empty columns score highest",
        "places[c] >= 0 ? s : p_neg(p_inf())",
        "places[c] >= 0 ? s : p_inf()",
        file="dots.h",
    ),
    Mistake("small scores kept", "s = p_abs(s) < 5.42101086e-20f ? 0.0f : s;", "", file="dots.h"),
    Mistake("scores not scaled", "s = p_mul(s, scale);", "", file="dots.h"),
    Mistake(
        "scale of the neighbouring group",
        "+ at / (NEAR ? 2u : 1u)]",
        "+ (at ^ 1u) / (NEAR ? 2u : 1u)]",
        file="dots.h",
    ),
    Mistake("last columns of a window missed", "(w + uint(8 * G - 1)) / uint(8 * G)", "w / uint(8 * G)"),
    Mistake("a compressed place too far", "column < w + k)", "column <= w + k)"),
    Mistake("a score too far", "lane < 8u && int(column) < left", "lane < 8u", file="dots.h"),
    Mistake(
        "a place's offset cut to 32 bits",
        "cache + ulong(place) * bytes",
        "cache + uint(place) * bytes",
        file="rows.h",
        backends=("host",),
    ),
    Mistake("a new row taken from the cache", "place < held ?", "place <= held ?", file="rows.h"),
)


_SOFTMAX = (
    Mistake(
        "lanes added in another order",
        "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
        "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
        file="portable.h",
    ),
    Mistake(
        "total not fused", "total = p_fma(total, shrink[i], sums[i])", "total = p_add(p_mul(total, shrink[i]), sums[i])"
    ),
    Mistake("P not rounded", "0.0f : p_round_bf(low[t])", "0.0f : low[t]"),
    Mistake(
        "sum of rounded P",
        "p_lanesum(p_add(low[t], high[t]))",
        "p_lanesum(p_add(p_round_bf(low[t]), p_round_bf(high[t])))",
    ),
    Mistake("maximum of the block alone", "now = b <= block", "now = b == block"),
    Mistake("maximum of one block before", "for (uint b = 0u; b < block; b++)", "for (uint b = 1u; b < block; b++)"),
    Mistake(
        "shrunk by the maximum alone",
        "p_exp(p_sub(old, p_max(old, peak[at + block])))",
        "p_exp(p_sub(old, peak[at + block]))",
    ),
    Mistake("maximum not carried on", "top[own_head] = highest;", ""),
    Mistake("sink of the first heads", "p_load(sink[head + own_head])", "p_load(sink[own_head])"),
    Mistake("sink left out", "p_add(total, p_exp(p_sub(p_load(sink[head + own_head]), highest)))", "total"),
)


_OUTPUTS = (
    Mistake(
        "columns added from the last",
        "for (int c = 0; c < N; c++) {\n    float v[",
        "for (int d = N; d > 0; d--) {\n    int c = d - 1;\n    float v[",
        file="blocks.h",
    ),
    Mistake(
        "outputs not shrunk, one block at a time",
        "p_add(p_mulz(out_of[i], shrink[uint(i / E * BLOCKS) + block]), sum[i % (HG * E)])",
        "p_add(out_of[i], sum[i % (HG * E)])",
    ),
    Mistake(
        "outputs not shrunk, blocks beside one another",
        "p_add(p_mulz(out_of[2 * i], less), parts[from])",
        "p_add(out_of[2 * i], parts[from])",
    ),
    Mistake(
        "shrunk by another block's factor",
        "float less = shrink[h * uint(BLOCKS) + b];",
        "float less = shrink[h * uint(BLOCKS)];",
    ),
    Mistake(
        "last block's part missed",
        "b < round + uint(SPLIT) && b < blocks",
        "b < round + uint(SPLIT) && b < blocks - 1u",
    ),
    Mistake("part of another head", "h = unit / uint(SLICES * E / 2);", "h = 0u;"),
    Mistake("last columns of a block passed over", "uint count = 64u,", "uint count = 48u,", file="blocks.h"),
    Mistake("scale of the neighbouring block", "first / (NEAR ? 32u : 16u)]", "first / 32u]", file="blocks.h"),
    Mistake("codes of the first lane", "(NEAR ? first : first / 2u)", "0u", file="blocks.h"),
    Mistake("elements of the first share", "share * uint(WIDTH) + (32u * slice + lane)", "(32u * slice + lane)"),
    Mistake("outputs of the first share", "(share * uint(WIDTH) + (32u * its", "((32u * its"),
    Mistake("a new row taken from the cache", "place < held ?", "place <= held ?", file="rows.h"),
    Mistake("a compressed place too far", "column < w + k)", "column <= w + k)"),
    Mistake("a place that belongs to another row", "window_places[row * w + column]", "window_places[column]"),
    Mistake("outputs turned forwards", "rope_turn<true>", "rope_turn<false>"),
    Mistake(
        "outputs not rounded before they turn",
        "v[0] = p_round_bf(p_div(out_of[2 * i], divisor[h]));",
        "v[0] = p_div(out_of[2 * i], divisor[h]);",
    ),
)
_HOST = {  # what only the emulator sees: races, what was never written, reads and writes outside a buffer
    "barrier after the queries dropped", "last columns of a window missed", "a score too far",
    "a new row taken from the cache", "a compressed place too far",
    *(c.name for c in _BARRIERS if c.name != "two blocks' parts in one place"),
}  # fmt: skip


def _where(controls: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    return tuple(replace(c, backends=("host",)) if c.name in _HOST else c for c in controls)


SCORES = _where(_SCORES)
VALUES = _where((*_BARRIERS, *_SOFTMAX, *_OUTPUTS))


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "attend_scores": SCORES,
    "attend_values": VALUES,
}
