"""moe_join: the arrays it takes, and the launch. Knows no routing.

Source: docs/model.md#experts: float32, ascending expert id, then the shared expert, one rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """routed [R, K, D] bfloat16 in ascending expert id, shared [R, D] bfloat16 -> y [R, D] bfloat16."""
    routed, shared = arrays
    if len(routed.shape) != 3 or tuple(shared.shape) != (routed.shape[0], routed.shape[2]):
        raise ValueError(
            f"moe_join: routed {tuple(routed.shape)} and shared {tuple(shared.shape)}, expected [R, K, D] and [R, D]"
        )
    rows, k, d = routed.shape
    width = geometry["width"]
    return Launch({"D": d, "K": k}, (-(-d // width) * width, rows, 1), (width, 1, 1), ((rows, d),), (mx.bfloat16,))


def moe_join(routed: mx.array, shared: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](routed, shared, backend=backend)[0]


KERNELS = (
    Kernel(
        name="moe_join",
        path=Path(__file__).with_name("moe_join.metal"),
        inputs=("routed", "shared"),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 64}, {"width": 32}),
        plan=plan,
    ),
)
