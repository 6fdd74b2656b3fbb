"""select_rows: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "select_rows": (
        Mistake(
            "first barrier dropped",
            "P_BARRIER();\n      for (uint j = group;",
            "for (uint j = group;",
            backends=("host",),
        ),
        Mistake("second barrier dropped", "P_BARRIER();\n      uint digit", "uint digit", backends=("host",)),
        Mistake("last barrier dropped", "P_BARRIER();\n  uint before", "uint before", backends=("host",)),
        Mistake(
            "ties to the higher row",
            "tied && earlier < need",
            "tied && all_ties - earlier <= need",
        ),
        Mistake("all ties taken", "(tied && earlier < need)", "tied", backends=("host",)),
        Mistake("NaN first", "p_isnan(v) ? 1u : ordered", "p_isnan(v) ? 0xffffffffu : ordered"),
        Mistake("sign ignored", "(u & 0x80000000u) != 0u ? ~u : u | 0x80000000u", "u | 0x80000000u"),
        Mistake("zeros told apart", "p_bits(p_add(v, 0.0f))", "p_bits(v)"),
        Mistake("last digit not looked at", "shift < 32u; shift = shift - 4u", "shift > 0u; shift = shift - 4u"),
        Mistake("higher digits forgotten", "shift == 28u || (key >>", "true || (key >>"),
        Mistake("invisible scores ranked", "p_minu(uint(visible[row] < 0 ? 0 : visible[row]), c)", "c"),
        Mistake("scores past the row", "for (uint i = me; i < n;", "for (uint i = me; i <= n;"),
        Mistake("candidates ignored", "BLOCK > 0 && kept[", "false && kept["),
        Mistake("-inf taken for a candidate", "flags && key <= 0x007fffffu", "flags && key < 0x007fffffu"),
        Mistake("no padding", "i < k; i += uint(32 * G)) rows", "i + 1u < k; i += uint(32 * G)) rows"),
        Mistake(
            "one padding too many",
            "i < k; i += uint(32 * G)) rows",
            "i <= k; i += uint(32 * G)) rows",
            backends=("host",),
        ),
    ),
}
