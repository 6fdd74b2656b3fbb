"""swiglu_round: the arrays it takes, and the launch. Knows no expert.

Source: docs/model.md#numbers and docs/model.md#experts. A composition of `swiglu_weighted` and `act_quant_fp8_round`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


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


def swiglu_round(
    gate: mx.array,
    up: mx.array,
    weights: mx.array,
    shared_gate: mx.array,
    shared_up: mx.array,
    limit: mx.array,
    *,
    backend: str,
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan` describes."""
    y, shared_y = KERNELS[0](gate, up, weights, shared_gate, shared_up, limit, backend=backend)
    return y, shared_y


KERNELS = (
    Kernel(
        name="swiglu_round",
        path=Path(__file__).with_name("swiglu_round.metal"),
        inputs=("gate", "up", "weights", "shared_gate", "shared_up", "limit"),
        outputs=("y", "shared_y"),
        geometries=({"V": 2, "G": 4}, {"V": 4, "G": 8}, {"V": 1, "G": 1}, {"V": 8, "G": 2}, {"V": 4, "G": 18}),
        plan=plan,
    ),
)
