"""attn_norms: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "attn_norms": (
        # mistakes inside a part are planted where it stands alone
        Mistake("barrier dropped", "P_BARRIER();", "", backends=("host",)),
        Mistake("queries alone normed", "if (queries) {\n    rms", "if (true) {\n    rms"),
        Mistake("angles of the first row", "table + row * uint(RD)", "table"),
        Mistake("not rounded before the turn", "v[i] = p_round_bf(e);", "v[i] = e;", file="turned.h"),
        Mistake("first of a pair not rounded after the turn", "v[i] = p_round_bf(v[i]);", "", file="turned.h"),
        Mistake("threads past the end kept", "if (at < uint(D)) fp8_pack", "fp8_pack", backends=("host",)),
    ),
}
