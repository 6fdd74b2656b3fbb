"""swiglu_weighted: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_HEADER = "swiglu.h"
# mistakes of the header, planted here for every kernel that includes it
IN_HEADER = (
    Mistake("gate clamped from below only", "p_min(gate, most)", "p_max(gate, p_neg(most))", _HEADER),
    Mistake("up clamped from above only", "p_max(p_min(up, most), p_neg(most))", "p_min(up, most)", _HEADER),
    Mistake("clamp loses NaN", "p_min(gate, most)", "p_min(most, gate)", _HEADER),
    Mistake(
        "products in another order",
        "p_mulz(p_mulz(g, p_sigmoid(g)), u)",
        "p_mulz(g, p_mulz(p_sigmoid(g), u))",
        _HEADER,
    ),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "swiglu_weighted": (
        Mistake(
            "weight after the rounding",
            "t = p_mul(p_load(weights[pair]), t)",
            "t = p_mul(p_load(weights[pair]), p_round_bf(t))",
        ),
        Mistake("weight of the next pair", "weights[pair]", "weights[pair + 1u]", backends=("host",)),
        Mistake("every pair has the first weight", "weights[pair]", "weights[0]"),
        *IN_HEADER,
        Mistake("tail missed", "if (i >= uint(I)) return;", "if (i + 32u >= uint(I)) return;"),
        Mistake("edge threads kept", "if (i >= uint(I)) return;", "", backends=("host",)),
    ),
}
