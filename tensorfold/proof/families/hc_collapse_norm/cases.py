"""hc_collapse_norm: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.numerics import inputs
from tensorfold.proof.numerics.exact import f32
from tensorfold.proof.proof import Case


def hc_collapse_norm() -> list[Case]:
    """Every hidden size, with and without the norm; cancelling streams, one-hot weights, extremes, any bits."""
    eps = np.array([1e-20], f32)
    found = []
    for d, rows in ((96, 16), (128, 3), (256, 3), (5120, 1)):
        draw = inputs.Draw(d)
        arrays = (draw.bf16(rows, 4, d), draw.uniform(0.0, 1.0, rows, 4), draw.bf16(d), eps)
        found.append(Case(f"D{d}", arrays, rows=d == 96))
        found.append(Case(f"D{d} collapse", arrays, {"norm": False}))
    draw = inputs.Draw(1)
    first = np.tile(np.array([1, 0, 0, 0], f32), (3, 1))
    found.append(Case("first stream", (draw.bf16(3, 4, 128), first, draw.bf16(128), eps)))
    x, pre = draw.bf16(16, 4, 128), draw.uniform(0.0, 1.0, 16, 4)
    x[:, 0] = draw.bf16(16, 128, scale=1000.0)
    x[:, 2], pre[:, 2] = x[:, 0] ^ np.uint16(0x8000), pre[:, 0]
    # where large streams cancel the last bits stay: the order of the sum shows in few elements
    for norm in (True, False):
        found.append(Case(f"cancelling {norm}", (x, pre, draw.bf16(128), eps), {"norm": norm}))
    # a bfloat16 output hides the last bits of the norm: these rows, of many drawn, show another order of its sum
    picked = np.concatenate([inputs.Draw(seed).bf16(1, 1, 1280) for seed in (301, 853, 2376, 2508, 2602)])
    found.append(Case("order", (picked, np.ones((5, 1), f32), inputs.Draw(1280).bf16(1280), eps)))
    wild = inputs.extremes_bf16(4 * 128).reshape(16, 4, 128)
    for norm in (True, False):
        arrays = (wild, draw.uniform(0.0, 1.0, 16, 4), draw.bf16(128), np.array([1e-6], f32))
        found.append(Case(f"extreme {norm}", arrays, {"norm": norm}))
    tiny = (draw.bf16(4, 4, 128, scale=2.0**-124), draw.uniform(0.0, 1.0, 4, 4), draw.bf16(128), eps)
    found.append(Case("tiny", tiny, {"norm": False}))
    words = draw.words(4, 4).view(f32)
    found.append(Case("any bits", (draw.any_bf16(4, 4, 128), words, draw.any_bf16(128), eps), bounded=False))
    return found


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "hc_collapse_norm": ("x", "pre"),
}
