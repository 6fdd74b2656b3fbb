"""block_scores: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "block_scores": (
        Mistake("newest block not forced", "p_inf() : top;", "top : top;"),
        Mistake("block after the newest forced", "first < n && n <= first", "first <= n && n < first"),
        Mistake("invisible scores looked at", "p_minu(first + uint(BLOCK), n)", "p_minu(first + uint(BLOCK), c)"),
        Mistake("NaN passed over", "p_isnan(v) ? v : p_max(top, v)", "p_max(top, v)"),
        Mistake("last column of a block missed", "i < last; i++", "i + 1u < last; i++"),
        Mistake("columns counted in 16 bits", "uint n = p_minu(", "ushort n = p_minu("),
        Mistake("negative zero kept", "p_add(top, 0.0f)", "top"),
        Mistake(
            "scores read past the last", "p_minu(first + uint(BLOCK), n)", "first + uint(BLOCK)", backends=("host",)
        ),
        Mistake("edge threads kept", "if (block >= blocks) return;", "", backends=("host",)),
    ),
}
