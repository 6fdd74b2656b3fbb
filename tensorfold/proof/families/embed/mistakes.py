"""embed: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.proof import Mistake

MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "embed": (
        Mistake("row after the token's", "table[ulong(ids[row])", "table[ulong(ids[row] ^ 1)"),
        Mistake("the first token's row for all", "ids[row]", "ids[0]"),
        Mistake("token's offset cut to 32 bits", "table[ulong(ids[row])", "table[uint(ids[row])", backends=("host",)),
        Mistake("tail missed", "if (d >= uint(D)) return;", "if (d + 32u >= uint(D)) return;"),
        Mistake("edge threads kept", "if (d >= uint(D)) return;", "", backends=("host",)),
        Mistake(
            "bits copied, subnormals kept",
            "p_store(y + ulong(row) * uint(D) + d, p_load(table[ulong(ids[row]) * uint(D) + d]));",
            "y[ulong(row) * uint(D) + d] = table[ulong(ids[row]) * uint(D) + d];",
        ),
    ),
}
