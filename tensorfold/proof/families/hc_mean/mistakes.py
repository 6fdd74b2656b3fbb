"""hc_mean: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "hc_mean": (
        Mistake("streams in another order", "p_load(x[at + i * uint(D)])", "p_load(x[at + (uint(N) - i) * uint(D)])"),
        Mistake("last stream missed", "i < uint(N); i++", "i + 1u < uint(N); i++"),
        Mistake("a stream too many", "i < uint(N); i++", "i <= uint(N); i++", backends=("host",)),
        Mistake("tail missed", "if (d >= uint(D)) return;", "if (d + 32u >= uint(D)) return;"),
        Mistake("edge threads kept", "if (d >= uint(D)) return;", "", backends=("host",)),
        Mistake(
            "sums not flushed",
            "total = p_flush(p_add(total, p_load(x[at + i * uint(D)])));",
            "total = p_add(total, p_load(x[at + i * uint(D)]));",
            backends=("host",),
        ),
        Mistake("rounded at every stream", "p_flush(p_add(total", "p_round_bf(p_add(total"),
    ),
}
