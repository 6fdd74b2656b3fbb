"""engram_rows: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "engram_rows": (
        Mistake("next block's scale", "at / 32u]", "(at + 16u) / 32u % uint(W / 32)]"),
        Mistake("scale of the row's first block", " + at / 32u]", "]"),
        Mistake(
            "scale one power off",
            "p_float(s == 255u ? 0x7fc00000u : s << 23)",
            "p_float((s + 1u) << 23)",
            file="codes.h",
        ),
        Mistake("NaN scale read as infinity", "s == 255u ? 0x7fc00000u : s << 23", "s << 23", file="codes.h"),
        Mistake("threads past the end kept", "if (at >= uint(W)) return;", "", backends=("host",)),
        Mistake("tail missed", "at >= uint(W)", "at + uint(V) >= uint(W)"),
    ),
}
