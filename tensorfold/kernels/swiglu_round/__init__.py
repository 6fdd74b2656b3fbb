"""SwiGLU of routed and shared experts, quantised for the next matrices in the same launch. Knows no expert.

Source: the model's specification, sections 2 and 6. A composition of `swiglu_weighted` and `act_quant_fp8_round`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import act_quant_fp8, code_ties, inputs, swiglu_weighted
from tensorfold.kernels.exact import f32, load_bf16, store_bf16
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """gate, up [R, k, I], shared gate and up [R, J] bfloat16, weights [R, k], limit [1] float32
    -> y [R, k, I] and shared_y [R, J] bfloat16."""
    gate, up, weights, shared_gate, shared_up, _ = arrays
    shape, shared = tuple(gate.shape), tuple(shared_gate.shape)
    fits = len(shape) == 3 and tuple(up.shape) == shape and tuple(weights.shape) == shape[:2]
    if not fits or len(shared) != 2 or tuple(shared_up.shape) != shared or shared[0] != shape[0]:
        raise ValueError(
            f"swiglu_round: gate {shape}, up {tuple(up.shape)}, weights {tuple(weights.shape)}, shared gate {shared} "
            f"and shared up {tuple(shared_up.shape)} do not fit"
        )
    rows, k, inner, outer = *shape, shared[1]
    if not inner or not outer or inner % 32 or outer % 32:
        raise ValueError(f"swiglu_round: widths {inner} and {outer}, expected multiples of 32")
    v = geometry["V"]
    threads = 32 * min(geometry["G"], -(-max(inner, outer) // v // 32))
    parts, shared_parts = (-(-n // (v * threads)) for n in (inner, outer))
    template = {"E": k, "I": inner, "J": outer, "V": v, "P": parts, "Q": shared_parts}
    grid = ((k * parts + shared_parts) * threads, rows, 1)
    return Launch(template, grid, (threads, 1, 1), ((rows, k, inner), (rows, outer)), (mx.bfloat16, mx.bfloat16))


def _both(quantised: Callable[[Array], list[Array]], arrays: Sequence[Array]) -> list[Array]:
    gate, up, weights, shared_gate, shared_up, limit = arrays
    (routed,) = swiglu_weighted.stated(gate, up, weights, limit)
    (shared,) = swiglu_weighted.stated(shared_gate, shared_up, limit, limit, weighted=False)
    return [*quantised(routed), *quantised(shared)]


def reference(*arrays: Array) -> list[Array]:
    """The quantiser's truth of the bfloat16 values that swiglu_weighted states."""
    return _both(act_quant_fp8.reference_round, arrays)


def stated(*arrays: Array) -> list[Array]:
    """swiglu_weighted, then act_quant_fp8_round."""
    return _both(act_quant_fp8.stated_round, arrays)


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
    value = swiglu_weighted.product(g, u, limit[0]).astype(np.float64)
    return gate, up, (code_ties.tie_below(value, code_ties.FP8) / value).astype(f32), limit


def cases() -> list[Case]:
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


KERNELS = (
    Kernel(
        name="swiglu_round",
        path=Path(__file__).with_name("swiglu_round.metal"),
        inputs=("gate", "up", "weights", "shared_gate", "shared_up", "limit"),
        outputs=("y", "shared_y"),
        geometries=({"V": 2, "G": 4}, {"V": 4, "G": 8}, {"V": 1, "G": 1}, {"V": 8, "G": 2}, {"V": 4, "G": 18}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "a code times its scale is exact in bfloat16; the bfloat16 value before it is what swiglu_weighted states "
            "and its own contract bounds",
            ulps=0.0,
        ),
        controls=(
            # mistakes inside a part are planted where it stands alone
            Control("not rounded before the quantiser", "p_round_bf(p_mul(weight, t))", "p_mul(weight, t)"),
            Control(
                "weight after the rounding", "p_round_bf(p_mul(weight, t))", "p_round_bf(p_mul(weight, p_round_bf(t)))"
            ),
            Control("every row has the first weight", "weights[pair]", "weights[0]"),
            Control("weight of the next row", "weights[pair]", "weights[pair + 1u]", backends=("host",)),
            Control(
                "shared expert weighted",
                "routed ? p_load(weights[pair]) : 1.0f",
                "p_load(weights[routed ? pair : row * uint(E)])",
            ),
            Control("shared rows of the first row", ": ulong(row) * uint(J);", ": ulong(0u);", backends=("host",)),
            Control(
                "outputs of the first row",
                "(routed ? y : shared_y) + start + at",
                "(routed ? y : shared_y) + at",
                backends=("host",),
            ),
            Control("threads past the end kept", "if (at >= width) return;", "", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("gate", "up", "weights", "shared_gate", "shared_up"),
    ),
)
