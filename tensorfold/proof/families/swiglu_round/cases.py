"""swiglu_round: the inputs of the contract. Knows no mistake."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.swiglu_weighted.stated import product
from tensorfold.proof.numerics import code_ties, inputs
from tensorfold.proof.numerics.exact import f32, load_bf16, store_bf16
from tensorfold.proof.proof import Case


def _near_ties(rows: int, k: int, inner: int) -> tuple[Array, ...]:
    """gate, up and weights of rows whose element 1 lies where the last bit of float32 turns its code."""
    draw = inputs.Draw(rows * inner)
    gate, up = draw.bf16(rows, k, inner), draw.bf16(rows, k, inner)
    gate[..., 0], up[..., 0] = store_bf16(8), store_bf16(code_ties.LEAD / 8)
    gate[..., 1] = store_bf16(draw.uniform(1.0, 4.0, rows, k))
    up[..., 1] = store_bf16(draw.uniform(0.5, 1.0, rows, k))
    limit = np.array([10.0], f32)
    # the product itself, not what bfloat16 keeps of it
    g, u = load_bf16(gate[..., 1]), load_bf16(up[..., 1])
    value = product(g, u, limit[0]).astype(np.float64)
    return gate, up, (code_ties.tie_below(value, code_ties.FP8) / value).astype(f32), limit


def swiglu_round() -> list[Case]:
    """Widths and experts of all configs, all kinds of bit patterns and weights, values where an order shows."""
    limit = np.array([10.0], f32)

    def case(name: str, rows: int, k: int, inner: int, outer: int) -> Case:
        draw = inputs.Draw(rows * k * inner + outer)
        gate, up = draw.bf16(rows, k, inner, scale=4.0), draw.bf16(rows, k, inner, scale=4.0)
        shared = draw.bf16(rows, outer, scale=8.0), draw.bf16(rows, outer, scale=4.0)
        return Case(name, (gate, up, draw.uniform(0.0, 1.5, rows, k), *shared, limit), rows=rows == 16)

    found = [case(f"k{k} I{n}", r, k, n, n) for r, k, n in ((3, 4, 64), (2, 2, 64), (2, 3, 96), (2, 6, 128))]
    found += [case(f"k{k} I2304", 1, k, 2304, 2304) for k in (3, 6)]
    found += [case("rows", 16, 3, 96, 160), case("wide shared", 2, 2, 32, 608), case("narrow", 2, 2, 608, 32)]
    draw = inputs.Draw(9)
    gate, up, weights, _ = _near_ties(16, 6, 64)
    found.append(Case("order", (gate, up, weights, gate[:, 0], up[:, 0], limit)))
    wild = inputs.extremes_bf16(160)
    other, some = draw.bf16(16, 1, 160), draw.uniform(0.0, 1.5, 16, 1)
    found.append(Case("extreme gate", (wild[:, None], other, some, wild, other[:, 0], limit)))
    found.append(Case("extreme up", (other, wild[:, None], some, other[:, 0], wild, limit)))
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(16, 4096)
    same = draw.bf16(16, 4096)
    found.append(Case("every gate", (every[:, None], same[:, None], some, every, same[::-1].copy(), limit)))
    odd = np.array([[0.0, -0.0, 1e-40], [np.nan, np.inf, -1.0]], f32)
    arrays = draw.bf16(2, 3, 64), draw.any_bf16(2, 3, 64), odd, draw.any_bf16(2, 64), draw.bf16(2, 64), limit
    return [*found, Case("odd weights", arrays)]


# inputs whose first axis is rows
ROWS: dict[str, tuple[str, ...]] = {
    "swiglu_round": ("gate", "up", "weights", "shared_gate", "shared_up"),
}
