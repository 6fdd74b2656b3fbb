"""swiglu_weighted: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case


def swiglu_weighted() -> list[Case]:
    """Every inner width and number of experts, with and without weights, both clamps, extremes, every bit pattern."""
    limit = np.array([10.0], f32)
    found = []
    for k, inner, rows in ((4, 64, 3), (2, 64, 3), (3, 96, 3), (2, 96, 3), (6, 128, 3), (3, 128, 2), (6, 2304, 1),
                           (3, 2304, 1)):  # fmt: skip
        draw = inputs.Draw(k * inner)
        gate, up = draw.bf16(rows, k, inner, scale=4.0), draw.bf16(rows, k, inner, scale=4.0)
        found.append(Case(f"k{k} I{inner}", (gate, up, draw.uniform(0.0, 1.5, rows, k), limit)))
    for inner in (64, 96, 128, 2304):
        draw = inputs.Draw(inner)
        gate, up = draw.bf16(2, inner, scale=8.0), draw.bf16(2, inner, scale=8.0)
        found.append(Case(f"shared I{inner}", (gate, up, limit, limit), {"weighted": False}))
    draw = inputs.Draw(1)
    for weighted in (True, False):
        gate, up = draw.bf16(16, 3, 80, scale=6.0), draw.bf16(16, 3, 80, scale=6.0)
        arrays = (gate, up, draw.uniform(0.0, 1.5, 16, 3), limit)
        found.append(Case(f"rows {weighted}", arrays, {"weighted": weighted}, rows=True))
    wild = inputs.extremes_bf16(160).reshape(16, 1, 160)
    found.append(Case("extreme gate", (wild, draw.bf16(16, 1, 160), draw.uniform(0.0, 1.5, 16, 1), limit)))
    found.append(Case("extreme up", (draw.bf16(16, 1, 160), wild, draw.uniform(0.0, 1.5, 16, 1), limit)))
    # many elements: a bfloat16 output hides the last bits of the products, so another order shows in few of them
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(16, 1, 4096)
    found.append(Case("every gate", (every, draw.bf16(16, 1, 4096), draw.uniform(0.0, 1.5, 16, 1), limit)))
    odd = np.array([[0.0, -0.0, 1e-40], [np.nan, np.inf, -1.0]], f32)
    found.append(Case("odd weights", (draw.bf16(2, 3, 64), draw.any_bf16(2, 3, 64), odd, limit)))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "swiglu_weighted": ("gate", "up", "weights"),
}
