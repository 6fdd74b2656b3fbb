"""hc_enter: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "hc_enter": (
        # mistakes inside a part are planted where it stands alone
        Mistake("collapse not rounded first", "p_round_bf(collapse<N>(weight, one))", "collapse<N>(weight, one)"),
        Mistake(
            "quantised before it is rounded",
            "p_round_bf(p_mul(gain[pass * V + k], p_mul(y[pass * V + k], r)))",
            "p_mul(gain[pass * V + k], p_mul(y[pass * V + k], r))",
        ),
        Mistake("every SIMD group mixes", "if (simd == 0u) {", "{", backends=("host",)),
        Mistake("the mix overwrites", "own + row * 4u", "post + row * 4u", backends=("host",)),
        Mistake("halves of a word swapped", "v[4 * i] = p_bflo(q.x);", "v[4 * i] = p_bfhi(q.x);"),
        Mistake("last pass missed", "fp8_scale<V>(n);", "fp8_scale<V>(n);\n if (P > 1 && pass == P - 1) return;"),
        Mistake("threads past the end kept", "if (d < uint(D)) {\n      float v", "{ float v", backends=("host",)),
    ),
}
