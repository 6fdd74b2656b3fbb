"""moe_leave and moe_leave_dots: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.families.hc_post.mistakes import ROWS
from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "moe_leave": (
        *ROWS,  # mistakes inside a part are planted where it stands alone
        Mistake("sum not rounded between", "p_round_bf(joined", "(joined"),
        Mistake("another row's mix", "ulong(row) * uint(N * N)", "ulong(row / 2u) * uint(N * N)"),
    ),
    "moe_leave_dots": (
        # mistakes inside a part are planted where it stands alone
        Mistake("sum not rounded between", "p_round_bf(joined", "(joined"),
        Mistake("another element of the shared expert", "uint(D) + (d)])))", "uint(D)])))"),
    ),
}
