"""pick_parts and pick: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "pick_parts": (
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake("product and difference fused", "p_sub(x, p_mulz(t, noise[i]))", "p_fma(p_neg(t), noise[i], x)"),
        Mistake(
            "sums of the logarithm in another order",
            "p_add(p_add(f, p_sub(tail, p_mul(z, 0.5f))), p_mul(k, 0.693359375f))",
            "p_add(p_sub(tail, p_mul(z, 0.5f)), p_add(f, p_mul(k, 0.693359375f)))",
            file="keyed.h",
        ),
        Mistake("ties to the higher token of a thread", "at = key > best ?", "at = key >= best ?"),
        Mistake(
            "ties to the higher token of the lanes",
            "~p_lanemaxu(best == top ? ~at : 0u)",
            "p_lanemaxu(best == top ? at : 0u)",
        ),
        Mistake("words of a block reversed", "keyed_noise(words.x)", "keyed_noise(words.w)"),
        Mistake("seed's halves swapped", "key.x = seed[2u * row];", "key.x = seed[2u * row + 1u];"),
        Mistake("noise of the token before", "counter.x = block;", "counter.x = block - 1u;"),
        Mistake("the next row's position", "uint(position[row])", "uint(position[row]) + 1u"),
        Mistake("-0 below +0", "+ token]), 0.0f)", "+ token]), p_neg(0.0f))"),
        Mistake("NaN first", "p_isnan(v) ? 1u", "p_isnan(v) ? 0xffffffffu"),
        Mistake("infinity called finite", "p_abs(x) < p_inf() ? 0u", "p_abs(x) <= p_inf() ? 0u"),
        Mistake("last tokens missed", "if (token < uint(V)) {", "if (token + 1u < uint(V)) {"),
        Mistake("tokens past the end read", "if (token < uint(V)) {", "if (token <= uint(V)) {", backends=("host",)),
        Mistake("last SIMD group forgotten", "g < uint(G); g++", "g + 1u < uint(G); g++"),
    ),
    "pick": (
        Mistake("ties to the higher token of a lane", "at = key > best ?", "at = key >= best ?"),
        Mistake(
            "ties to the higher token of the lanes",
            "~p_lanemaxu(best == top ? ~at : 0u)",
            "p_lanemaxu(best == top ? at : 0u)",
        ),
        Mistake("last part missed", "i < uint(COUNT); i += 32u", "i + 1u < uint(COUNT); i += 32u"),
        Mistake("a part too far", "i < uint(COUNT); i += 32u", "i <= uint(COUNT); i += 32u", backends=("host",)),
        Mistake("flaws of the first lane alone", "flaw = p_laneor(flaw);", ""),
        Mistake("every row reads the first", "(row * uint(COUNT) + i) * 3u", "i * 3u"),
    ),
}
