"""Planted mistakes of attention: each must turn a gate red. Knows no geometry and no bound."""

from __future__ import annotations

from tensorfold.kernels.kernel import Control

_BARRIERS = (
    Control("barrier after the queries dropped", "P_BARRIER();\n    if (me < here / 16u)", "if (me < here / 16u)"),
    Control("barrier after the scores dropped", "P_BARRIER();\n    uint tiles", "uint tiles"),
    Control("barrier after the peaks dropped", "= highest;\n    }\n    P_BARRIER();", "= highest;\n    }"),
    Control("barrier after P dropped", "P_BARRIER();\n    if (own_head", "if (own_head"),
    Control("barrier between tiles dropped", "P_BARRIER();\n    }\n  }\n", "}\n  }\n"),
    Control("two tiles in one place", "slots + (t & 1u) * uint(TILE)", "slots"),
    Control("a tile added before it is put", "uint tile = live[t - 1u]", "uint tile = live[t - 0u]"),
)

_QUERIES = (
    Control("queries not turned", "rope_turn<false>(v, table[at], table[at + 1u]);", ""),
    Control("queries not rounded", "query[to] = p_round_bf(v[0]);", "query[to] = v[0];"),
    Control("outputs turned forwards", "rope_turn<true>", "rope_turn<false>"),
    Control("outputs not rounded before they turn", "v[0] = p_round_bf(p_div(", "v[0] = (p_div("),
    Control("angles of the first row", "ulong angles = row * uint(RD);", "ulong angles = 0u;"),
    Control("a place that belongs to another row", "window_places[row * w + column]", "window_places[column]"),
)

_SCORES = (
    Control(
        "neighbouring groups to one sum",
        "d / 16u % 4u * uint(P_QUERY_SUM(D)) + d / 64u * 16u",
        "d / uint(D / 4) * uint(P_QUERY_SUM(D)) + d % uint(D / 4) / 16u * 16u",
    ),
    Control(
        "rows in neighbouring groups to one sum",
        "row[c] + ((n + uint(i)) * 4u + part) * uint(4 * WORDS)",
        "row[c] + (n + uint(i) + part * uint(D / 64)) * uint(4 * WORDS)",
        file="dots.h",
    ),
    Control(
        "the four sums in another order",
        "simd_shuffle_xor(sum[c * HG + h], ushort(8)));\n      s = p_add(s, simd_shuffle_xor(s, ushort(16)));",
        "simd_shuffle_xor(sum[c * HG + h], ushort(16)));\n      s = p_add(s, simd_shuffle_xor(s, ushort(8)));",
        file="dots.h",
    ),
    Control(
        "a score's products added from the last",
        "float s = p_fma(a.x, v[c * 8 + e], sum[c * HG + h]);\n              s = p_fma(a.y, v[c * 8 + e + 1], s);",
        "float s = p_fma(a.y, v[c * 8 + e + 1], sum[c * HG + h]);\n              s = p_fma(a.x, v[c * 8 + e], s);",
        file="dots.h",
    ),
    Control(
        "empty columns score highest",
        "p_mul(s, scale) : p_neg(p_inf())",
        "p_mul(s, scale) : p_inf()",
        file="dots.h",
    ),
    Control("scores not scaled", "p_mul(s, scale) : ", "s : ", file="dots.h"),
    Control("scale of the neighbouring group", "4u * n + part]", "4u * n + (part ^ 1u)]", file="dots.h"),
    Control(
        "scale of the other group, wide", "part / 2u : part)) & 255u", "part / 2u ^ 1u : part)) & 255u", file="dots.h"
    ),
    Control(
        "a window row's last columns missed", "uint close_tasks = (near + 7u) / 8u", "uint close_tasks = near / 8u"
    ),
)

_SOFTMAX = (
    Control(
        "lanes added in another order",
        "v = p_add(v, simd_shuffle_xor(v, ushort(16)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(8)));",
        "v = p_add(v, simd_shuffle_xor(v, ushort(8)));\n  v = p_add(v, simd_shuffle_xor(v, ushort(16)));",
        file="portable.h",
    ),
    Control(
        "total not fused", "total = p_fma(total, shrink[i], part[i])", "total = p_add(p_mul(total, shrink[i]), part[i])"
    ),
    Control("P not rounded", "0.0f : p_round_bf(low)", "0.0f : low"),
    Control("sum of rounded P", "p_lanesum(p_add(low, high))", "p_lanesum(p_add(p_round_bf(low), p_round_bf(high)))"),
    Control("maximum of the block alone", "float now = p_max(old, peak[at + block]);", "float now = peak[at + block];"),
    Control("maximum of one block before", "for (uint b = 0u; b < block; b++)", "for (uint b = 1u; b < block; b++)"),
    Control("maximum not carried on", "top[own_head] = highest;", ""),
    Control(
        "sink scaled", "p_sub(p_load(sink[head + own_head])", "p_sub(p_mul(p_load(sink[head + own_head]), scale[0])"
    ),
    Control("sink left out", "p_add(total, p_exp(p_sub(p_load(sink[head + own_head]), highest)))", "total"),
)

_OUTPUTS = (
    Control(
        "columns added from the last",
        "attend_columns<HG, E, W, SPAN, N, true>(slots + j * P_SLOT(W), p + j,",
        "attend_columns<HG, E, W, SPAN, N, true>(slots + (16 - N - j) * P_SLOT(W), p + (16 - N - j),",
        file="tiles.h",
    ),
    Control(
        "outputs not shrunk",
        "= p_mulz(acc[h * E + i], less);",
        "= p_mulz(acc[h * E + i], less > 0.0f ? 1.0f : 0.0f);",
    ),
    Control("shrunk at every tile", "if (tile / 4u != seen) {", "if (tile / 4u != seen || t > 1u) {"),
    Control("last tile missed", "t <= tiles; t++", "t < tiles; t++"),
    Control("scale of the neighbouring block", "first / (NEAR ? 32u : 16u)]", "first / 32u]", file="tiles.h"),
    Control("scale of the first share", "+ share * count + first", "+ first", file="tiles.h"),
    Control("codes of the first share", "+ share * uint(close ? W : W / 2)", "", file="tiles.h"),
    Control("a new row taken from the cache", "place < held ?", "place <= held ?", file="rows.h"),
    Control("a compressed place too far", "column < columns && column < base", "column <= columns && column < base"),
)
_HOST = {  # what only the emulator sees: races, what was never written, reads outside a buffer
    "a window row's last columns missed", "a new row taken from the cache", "a compressed place too far",
    "two tiles in one place",
    *(c.name for c in _BARRIERS),
}  # fmt: skip
_ALL = (*_BARRIERS, *_QUERIES, *_SCORES, *_SOFTMAX, *_OUTPUTS)
CONTROLS = tuple(Control(c.name, c.find, c.replace, c.file, ("host",) if c.name in _HOST else c.backends) for c in _ALL)
