"""route: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "route": (
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake(
            "ties to the higher id",
            "= ~p_lanemaxu(best == top ? ~at : 0u);",
            "= p_lanemaxu(best == top ? at : 0u);",
        ),
        Mistake("ties to the higher id of a lane", "keys[i] > best ?", "keys[i] >= best ?"),
        Mistake("NaN first", "p_isnan(v) ? 1u : ordered", "p_isnan(v) ? 0xffffffffu : ordered"),
        Mistake("sign ignored", "(u & 0x80000000u) != 0u ? ~u : u | 0x80000000u", "u | 0x80000000u"),
        Mistake(
            "sum in the order of picking",
            "float score = scores[mine];",
            "float score = scores[picked[lane < uint(K) ? lane : 0u]];",
        ),
        Mistake("sum from the last id", "simd_shuffle(score, ushort(j)));", "simd_shuffle(score, ushort(K - j)));"),
        Mistake(
            "bias kept in the weight",
            "float score = scores[mine];",
            "float score = p_add(scores[mine], p_load(bias[mine]));",
        ),
        Mistake(
            "last experts missed",
            "uint keys[(E + 31) / 32];\n  for (uint i = 0u; i < uint((E + 31) / 32); i++)",
            "uint keys[(E + 31) / 32] = {0u};\n  for (uint i = 0u; i < uint((E - 1) / 32); i++)",
        ),
        Mistake(
            "absent experts read",
            "e < uint(E) ? route_key(p_add(scores[e], p_load(bias[e]))) : 0u",
            "route_key(p_add(scores[e], p_load(bias[e])))",
            backends=("host",),
        ),
    ),
}
