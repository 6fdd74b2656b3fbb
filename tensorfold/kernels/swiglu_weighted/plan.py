"""swiglu_weighted: the arrays it takes, and the launch. Knows no expert.

Source: docs/model.md#experts: u clamped on both sides, g from above, float32, one rounding to bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry, weighted: bool = True) -> Launch:
    """gate, up [R, k, I] bfloat16, weights [R, k] float32, limit [1] float32 -> y [R, k, I] bfloat16.

    Without `weighted` gate and up may be [R, I] too and `weights` is not read.
    """
    gate, up, weights, _ = arrays
    shape = tuple(gate.shape)
    if tuple(up.shape) != shape or len(shape) < 2 or (weighted and tuple(weights.shape) != shape[:-1]):
        raise ValueError(
            f"swiglu_weighted: gate {shape}, up {tuple(up.shape)} and weights {tuple(weights.shape)} do not fit"
        )
    inner, width = shape[-1], geometry["width"]
    grid = (-(-inner // width) * width, int(np.prod(shape[:-1])), 1)
    return Launch({"I": inner, "WEIGHTED": weighted}, grid, (width, 1, 1), (shape,), (mx.bfloat16,))


def swiglu_weighted(
    gate: mx.array, up: mx.array, weights: mx.array | None, limit: mx.array, *, backend: str
) -> mx.array:
    """Launched on what `plan` describes; not weighted where `weights` is None."""
    given = limit if weights is None else weights  # not read then
    return KERNELS[0](gate, up, given, limit, weighted=weights is not None, backend=backend)[0]


KERNELS = (
    Kernel(
        name="swiglu_weighted",
        path=Path(__file__).with_name("swiglu_weighted.metal"),
        inputs=("gate", "up", "weights", "limit"),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 32}),
        plan=plan,
    ),
)
