"""hc_mean: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import Bits
from tensorfold.proof.proof import Case


def cancelling(draw: inputs.Draw, rows: int, n: int, d: int) -> Bits:
    """[rows, n, d]: the third stream takes back a large first one, so that the order of additions shows."""
    x = draw.bf16(rows, n, d)
    x[:, 0] = draw.bf16(rows, d, scale=1000.0)
    x[:, 2] = x[:, 0] ^ np.uint16(0x8000)
    return x


def hc_mean() -> list[Case]:
    """Every hidden size, cancelling streams, extremes, every kind of bit pattern."""
    found = []
    for d, rows in ((96, 16), (128, 3), (256, 3), (5120, 2)):
        found.append(Case(f"D{d}", (inputs.Draw(d).bf16(rows, 4, d),), rows=d == 96))
    found.append(Case("cancelling", (cancelling(inputs.Draw(1), 16, 4, 160),), rows=True))
    found.append(Case("extreme", (inputs.extremes_bf16(4 * 128).reshape(16, 4, 128),)))
    found.append(Case("tiny", (inputs.Draw(2).bf16(4, 4, 128, scale=2.0**-124),)))
    found.append(Case("any bits", (inputs.Draw(3).any_bf16(4, 4, 256),), bounded=False))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "hc_mean": ("x",),
}
