"""act_quant_fp8_round and act_quant_fp8_planes: the arrays they take, and the launch. Knows no layer.

Source: docs/model.md#numbers, act_quant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch

FP8_BLOCK = 32
FP8 = ({"V": 4, "G": 8}, {"V": 1, "G": 1}, {"V": 8, "G": 2})


def plan_blocks(
    name: str, x: Any, geometry: Geometry, block: int, widths: Sequence[int], dtype: mx.Dtype = mx.uint8
) -> Launch:
    """x [..., K] bfloat16 -> outputs [..., width] of `dtype`; every thread holds V neighbours, a row takes P groups.

    Raises ValueError, with `name`, where x is no rows of whole blocks.
    """
    k = x.shape[-1]
    if len(x.shape) < 2 or not k or k % block:
        raise ValueError(f"{name}: x has shape {tuple(x.shape)}, expected [..., K] with K a multiple of {block}")
    rows, lanes = int(np.prod(x.shape[:-1])), k // geometry["V"]
    threads = 32 * min(geometry["G"], -(-lanes // 32))
    parts = -(-lanes // threads)
    shapes = tuple((*x.shape[:-1], width) for width in widths)
    template = {"K": k, "V": geometry["V"], "P": parts}
    return Launch(template, (rows * parts * threads, 1, 1), (threads, 1, 1), shapes, (dtype,) * len(shapes))


def plan_round(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> y [..., K] bfloat16."""
    (x,) = arrays
    return plan_blocks("act_quant_fp8_round", x, geometry, FP8_BLOCK, x.shape[-1:], mx.bfloat16)


def plan_planes(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [..., K] bfloat16 -> y [..., 4, K / 16, 4] float32: element 16 c + 4 j + e of a row stands at [j, c, e]."""
    (x,) = arrays
    made = plan_blocks("act_quant_fp8_planes", x, geometry, FP8_BLOCK, x.shape[-1:], mx.float32)
    *lead, k = made.shapes[0]
    return replace(made, shapes=((*lead, 4, k // 16, 4),))


def act_quant_fp8_round(x: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan_round` describes."""
    return KERNELS[0](x, backend=backend)[0]


def act_quant_fp8_planes(x: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan_planes` describes."""
    return KERNELS[1](x, backend=backend)[0]


KERNELS = (
    Kernel(
        name="act_quant_fp8_round",
        path=Path(__file__).with_name("act_quant_fp8_round.metal"),
        inputs=("x",),
        outputs=("y",),
        geometries=FP8,
        plan=plan_round,
    ),
    Kernel(
        name="act_quant_fp8_planes",
        path=Path(__file__).with_name("act_quant_fp8_planes.metal"),
        inputs=("x",),
        outputs=("y",),
        geometries=FP8,
        plan=plan_planes,
    ),
)
