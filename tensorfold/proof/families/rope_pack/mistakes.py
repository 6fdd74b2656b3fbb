"""norm_rope_pack: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.families.act_quant.mistakes import FP4_E4M3_PACK, FP4_E8M0_PACK, FP8_PACK
from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "norm_rope_pack": (
        # mistakes inside a part are planted where it stands alone
        FP8_PACK,
        FP4_E4M3_PACK,
        FP4_E8M0_PACK,
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake("angles of the first row", "table + row * uint(RD)", "table"),
        Mistake(
            "angles of the next head",
            "row = threadgroup_position_in_grid.y, line",
            "row = threadgroup_position_in_grid.y + threadgroup_position_in_grid.x, line",
            backends=("host",),
        ),
        Mistake(
            "keys scaled as compressed rows",
            "fp4_e4m3_scale<V>(v) : fp4_e8m0_scale<V>(v)",
            "fp4_e4m3_scale<V>(v) : fp4_e4m3_scale<V>(v)",
        ),
        Mistake("not rounded before the turn", "v[i] = p_round_bf(e);", "v[i] = e;", file="turned.h"),
        Mistake("first of a pair not rounded after the turn", "v[i] = p_round_bf(v[i]);", "", file="turned.h"),
        Mistake(
            "pairs start one early",
            "at + i >= uint(D - RD)",
            "at + i + 2u >= uint(D - RD)",
            file="turned.h",
            backends=("host",),
        ),
        Mistake("threads past the end kept", "if (at >= uint(D)) continue;", "", backends=("host",)),
    ),
}
