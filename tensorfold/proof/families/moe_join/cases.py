"""moe_join: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.proof import Case


def moe_join() -> list[Case]:
    """Every hidden size and number of experts, cancelling experts, extremes, every kind of bit pattern."""
    found = []
    for k, d, rows in ((5, 96, 16), (4, 128, 3), (2, 128, 3), (3, 256, 3), (2, 256, 3), (6, 256, 3), (6, 5120, 2),
                       (3, 5120, 1), (1, 128, 2)):  # fmt: skip
        draw = inputs.Draw(k * d)
        found.append(Case(f"K{k} D{d}", (draw.bf16(rows, k, d), draw.bf16(rows, d)), rows=d == 96))
    draw = inputs.Draw(1)
    routed = draw.bf16(16, 6, 160)
    routed[:, 0] = draw.bf16(16, 160, scale=1000.0)
    routed[:, 2] = routed[:, 0] ^ np.uint16(0x8000)
    found.append(Case("cancelling", (routed, draw.bf16(16, 160)), rows=True))
    found.append(Case("cancelled by the shared", (routed[:, :2].copy(), routed[:, 2].copy())))
    found.append(Case("extreme", (inputs.extremes_bf16(6 * 128).reshape(16, 6, 128), draw.bf16(16, 128))))
    found.append(Case("extreme shared", (draw.bf16(16, 2, 128), inputs.extremes_bf16(128))))
    found.append(Case("tiny", (draw.bf16(4, 4, 128, scale=2.0**-124), draw.bf16(4, 128, scale=2.0**-124))))
    found.append(Case("any bits", (draw.any_bf16(4, 3, 256), draw.any_bf16(4, 256)), bounded=False))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "moe_join": ("routed", "shared"),
}
