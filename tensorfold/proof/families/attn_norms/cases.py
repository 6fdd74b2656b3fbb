"""attn_norms: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.proof.families.rms_norm.stated import rms_norm
from tensorfold.proof.families.rope.cases import turns
from tensorfold.proof.numerics import code_ties, inputs
from tensorfold.proof.numerics.exact import f32, store_bf16
from tensorfold.proof.proof import Case


def attn_norms() -> list[Case]:
    """Sizes of all configs, rows at positions out of order, extremes, overflow, values where an order shows."""
    eps = np.array([1e-20], f32)

    def case(name: str, rows: int, k: int, d: int, turned: int) -> Case:
        draw = inputs.Draw(k * d + turned)
        table = turns(200, turned)[draw.integers(0, 200, rows)]
        arrays = draw.bf16(rows, k), draw.bf16(k), draw.bf16(rows, d, scale=3.0), draw.bf16(d), table, eps
        return Case(name, arrays, rows=rows == 16)

    sizes = (
        (3, 96, 64, 16),
        (2, 96, 64, 32),
        (2, 128, 512, 64),
        (2, 1280, 512, 64),
        (16, 160, 96, 32),
        (2, 64, 352, 48),
    )
    found = [case(f"K{k} D{d}/{turned}", rows, k, d, turned) for rows, k, d, turned in sizes]
    table = turns(128, 32)
    low, q_norm = code_ties.normed(1, 128, 320, float(eps[0]), code_ties.FP8)
    kv, kv_norm = code_ties.normed(2, 128, 192, float(eps[0]), code_ties.FP8)
    found.append(Case("order", (low, q_norm, kv, kv_norm, table, eps)))
    kv, one = code_ties.pairs(4, 16, 64, code_ties.FP8), np.full(64, store_bf16(1))
    turning = code_ties.turning(5, rms_norm(kv, one, eps)[0], code_ties.FP8)
    found.append(Case("order of the turn", (low[:16], q_norm, kv, one, turning, eps)))
    draw = inputs.Draw(3)
    for name, wild in (("extreme", inputs.extremes_bf16), ("overflow", inputs.overflow_bf16)):
        x, y = wild(512), wild(96)
        found.append(Case(name, (x, draw.bf16(512), y, draw.bf16(96), table[8 : 8 + len(x)], eps)))
    x, y = inputs.extremes_bf16(96), inputs.extremes_bf16(64)
    arrays = x, draw.any_bf16(96), y, draw.any_bf16(64), turns(16, 16), np.array([1e-6], f32)
    return [*found, Case("any weights, eps 1e-6", arrays)]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "attn_norms": ("low", "kv", "table"),
}
