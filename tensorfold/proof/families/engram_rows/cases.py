"""engram_rows: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.proof import Case


def engram_rows() -> list[Case]:
    """The rows of every config; every code under every scale."""
    found = []
    for n, d in ((24, 256), (12, 32), (6, 32)):
        draw = inputs.Draw(n)
        rows = 16 if n == 6 else 2
        scales = draw.integers(110, 135, rows, n, d // 32).astype(np.uint8)
        found.append(Case(f"{n}x{d}", (draw.bytes(rows, n, d), scales), rows=n == 6))
    codes = np.tile(np.arange(256, dtype=np.uint8), (16, 16, 1))
    scales = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 8, axis=2)
    found.append(Case("every code and scale", (codes, scales)))
    found.append(Case("zeros", (np.zeros((1, 6, 32), np.uint8), np.zeros((1, 6, 1), np.uint8))))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "engram_rows": ("codes", "scales"),
}
