"""hc_mean: the arrays it takes, and the launch. Knows no layer.

Source: docs/model.md#forward, the tap of step 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, N, D] bfloat16 -> y [R, D] bfloat16."""
    (x,) = arrays
    if len(x.shape) != 3:
        raise ValueError(f"hc_mean: x has shape {tuple(x.shape)}, expected [R, N, D]")
    rows, n, d = x.shape
    width = geometry["width"]
    return Launch({"D": d, "N": n}, (-(-d // width) * width, rows, 1), (width, 1, 1), ((rows, d),), (mx.bfloat16,))


def hc_mean(x: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](x, backend=backend)[0]


KERNELS = (
    Kernel(
        name="hc_mean",
        path=Path(__file__).with_name("hc_mean.metal"),
        inputs=("x",),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 64}, {"width": 32}),
        plan=plan,
    ),
)
