"""moe_join: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

_HEADER = "moe_join.h"
# mistakes of the header, planted here for every kernel that includes it
IN_HEADER = (
    Mistake(
        "experts in another order", "p_load(routed[i * stride])", "p_load(routed[(uint(K) - i) * stride])", _HEADER
    ),
    Mistake(
        "shared expert not last",
        "float total = p_load(routed[0]);",
        "float total = p_sub(p_add(p_load(routed[0]), last), last);",
        _HEADER,
    ),
    Mistake("last expert missed", "i < uint(K); i++", "i + 1u < uint(K); i++", _HEADER),
    Mistake("an expert too many", "i < uint(K); i++", "i <= uint(K); i++", _HEADER, ("host",)),
    Mistake("rounded before the shared expert", "p_add(total, last)", "p_add(p_round_bf(total), last)", _HEADER),
    Mistake(
        "experts' sums not flushed",
        "p_flush(p_add(total, p_load(routed[i * stride])))",
        "p_add(total, p_load(routed[i * stride]))",
        _HEADER,
        ("host",),
    ),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "moe_join": (
        *IN_HEADER,
        Mistake("tail missed", "if (d >= uint(D)) return;", "if (d + 32u >= uint(D)) return;"),
        Mistake("edge threads kept", "if (d >= uint(D)) return;", "", backends=("host",)),
    ),
}
