"""embed: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.far import apart
from tensorfold.proof.numerics import inputs
from tensorfold.proof.proof import Case, Far


def embed() -> list[Case]:
    """Every hidden size; ids repeated, first and last; every kind of bit pattern."""
    found = []
    for d, rows, vocabulary in ((96, 16, 50), (128, 16, 64), (256, 3, 512), (5120, 2, 8)):
        draw = inputs.Draw(d)
        ids = draw.integers(0, vocabulary, rows)
        ids[0], ids[-1] = vocabulary - 1, 0
        found.append(Case(f"D{d}", (ids, draw.bf16(vocabulary, d)), rows=d == 96))
    draw = inputs.Draw(1)
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(64, 1024)
    found.append(Case("every bit pattern", (np.arange(64, dtype=np.int32)[::-1].copy(), every)))
    found.append(Case("extreme", (draw.integers(0, 16, 9), inputs.extremes_bf16(160))))
    return found


def far_tokens() -> list[Far]:
    """Tokens behind 2^32 elements of the table."""
    case = embed()[1]
    ids, table = case.arrays
    held = apart(table, 2**35 // table.shape[1])
    return [Far(case, (held.moved(ids), held))]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "embed": ("ids",),
}
FAR_CASES = {"embed": far_tokens}
