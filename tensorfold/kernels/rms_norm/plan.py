"""rms_norm: the arrays it takes, and the launch. Knows no layer.

Source: docs/model.md#numbers. Everything in float32, one rounding to bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch, dtype_of


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, K] bfloat16 or float32, w [K] bfloat16, eps [1] float32 -> y [R, K] bfloat16."""
    x, w, _ = arrays
    rows, k = x.shape
    if w.shape != (k,):
        raise ValueError(f"rms_norm: w has shape {tuple(w.shape)}, expected {(k,)}")
    threads = 32 * geometry["G"]
    return Launch(
        {"T": dtype_of(x), "K": k, "G": geometry["G"]},
        (rows * threads, 1, 1),
        (threads, 1, 1),
        ((rows, k),),
        (mx.bfloat16,),
    )


def rms_norm(x: mx.array, w: mx.array, eps: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](x, w, eps, backend=backend)[0]


KERNELS = (
    Kernel(
        name="rms_norm",
        path=Path(__file__).with_name("rms_norm.metal"),
        inputs=("x", "w", "eps"),
        outputs=("y",),
        geometries=({"G": 8}, {"G": 4}, {"G": 2}, {"G": 1}),
        plan=plan,
    ),
)
