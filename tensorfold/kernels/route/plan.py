"""route: the arrays it takes, and the launch. Knows no expert.

Source: docs/model.md#experts. The choice compares float32 scores plus bias, so it is defined by them:
the truth's ids follow from the stated scores, its weights are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch

MOST = 8  # picks that the bound is stated for


def plan(arrays: Sequence[Any], geometry: Geometry, k: int, normalise: bool = True) -> Launch:
    """logits [R, E], bias [E], scale [1] float32 -> ids int32 [R, k] ascending, weights float32 [R, k]."""
    logits, bias, _ = arrays
    rows, experts = logits.shape
    if bias.shape != (experts,) or not 1 <= k <= min(experts, MOST):
        raise ValueError(
            f"route: bias {tuple(bias.shape)} and k {k} do not fit logits {tuple(logits.shape)}: "
            f"expected {(experts,)} and a k of 1 to {min(experts, MOST)}"
        )
    groups = min(geometry["G"], -(-experts // 32))
    template = {"E": experts, "K": k, "NORM": normalise, "G": groups}
    return Launch(template, (rows * groups * 32, 1, 1), (groups * 32, 1, 1), ((rows, k),) * 2, (mx.int32, mx.float32))


def route(
    logits: mx.array, bias: mx.array, scale: mx.array, *, k: int, normalise: bool, backend: str
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan` describes."""
    ids, weights = KERNELS[0](logits, bias, scale, k=k, normalise=normalise, backend=backend)
    return ids, weights


KERNELS = (
    Kernel(
        name="route",
        path=Path(__file__).with_name("route.metal"),
        inputs=("logits", "bias", "scale"),
        outputs=("ids", "weights"),
        geometries=({"G": 12}, {"G": 4}, {"G": 1}),
        plan=plan,
    ),
)
