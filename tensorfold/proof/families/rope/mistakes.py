"""rope: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

# mistakes of the header, planted here for every kernel that includes it
IN_HEADER = (
    Mistake("sine's sign", "p_sub(p_mulz(a, c), p_mulz(b, s))", "p_add(p_mulz(a, c), p_mulz(b, s))", file="turn.h"),
    Mistake("products fused", "p_add(p_mulz(a, s), p_mulz(b, c))", "p_fma(a, s, p_mulz(b, c))", file="turn.h"),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "rope": (
        *IN_HEADER,
        Mistake(
            "pairs start one early",
            "pair >= uint((D - RD) / 2)) {",
            "pair + 1u >= uint((D - RD) / 2)) {",
            backends=("host",),
        ),
        Mistake("half a block per pair", "(pair - uint((D - RD) / 2))) * 2u", "(pair - uint((D - RD) / 2))) * 1u"),
        Mistake("edge threads kept", "if (pair >= uint(D / 2)) return;", "", backends=("host",)),
    ),
}
