"""compress_pair: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "compress_pair": (
        Mistake(
            "product and sum fused",
            "p_add(p_mulz(c[0], w0), p_mulz(c[1], w1))",
            "p_fma(c[0], w0, p_mulz(c[1], w1))",
        ),
        Mistake(
            "divided after the sum",
            "p_add(p_mulz(c[0], w0), p_mulz(c[1], w1))",
            "p_div(p_add(p_mulz(c[0], e0), p_mulz(c[1], e1)), t)",
        ),
        Mistake("weights swapped", "p_mulz(c[0], w0), p_mulz(c[1], w1)", "p_mulz(c[0], w1), p_mulz(c[1], w0)"),
        Mistake("maximum left out", "float m = p_max(g[0], g[1]);", "float m = 0.0f;"),
        Mistake("gate taken for value", "c[i] = p_load(pair[d]);", "c[i] = p_load(pair[uint(D) + d]);"),
        Mistake("one token twice", "partner[row * 2u + i]", "partner[row * 2u]"),
        Mistake("open pair past the last", "place < S ?", "place <= S ?", backends=("host",)),
        Mistake("tail missed", "if (d < uint(D)) {", "if (d + 32u < uint(D)) {"),
        Mistake("edge threads kept", "if (d < uint(D)) {", "{", backends=("host",)),
    ),
}
