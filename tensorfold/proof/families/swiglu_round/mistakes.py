"""swiglu_round: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "swiglu_round": (
        # mistakes inside a part are planted where it stands alone
        Mistake("not rounded before the quantiser", "p_round_bf(p_mul(weight, t))", "p_mul(weight, t)"),
        Mistake(
            "weight after the rounding", "p_round_bf(p_mul(weight, t))", "p_round_bf(p_mul(weight, p_round_bf(t)))"
        ),
        Mistake("every row has the first weight", "weights[pair]", "weights[0]"),
        Mistake("weight of the next row", "weights[pair]", "weights[pair + 1u]", backends=("host",)),
        Mistake(
            "shared expert weighted",
            "routed ? p_load(weights[pair]) : 1.0f",
            "p_load(weights[routed ? pair : row * uint(E)])",
        ),
        Mistake("shared rows of the first row", ": ulong(row) * uint(J);", ": ulong(0u);", backends=("host",)),
        Mistake(
            "outputs of the first row",
            "(routed ? y : shared_y) + start + at",
            "(routed ? y : shared_y) + at",
            backends=("host",),
        ),
        Mistake("threads past the end kept", "if (at >= width) return;", "", backends=("host",)),
    ),
}
