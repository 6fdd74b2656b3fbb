"""compress_pair: the arrays it takes, and the launch. Knows no slot.

Source: docs/model.md#compressor, compressor: a softmax over two gates in each dimension, bfloat16 result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """opened [S, 2, D] and own [R, 2, D] float32, partner [M, 2] int32 places -> y [M, D] bfloat16."""
    opened, own, partner = arrays
    s, two, d = opened.shape
    if two != 2 or tuple(own.shape[1:]) != (2, d) or partner.shape[1] != 2:
        raise ValueError(
            f"compress_pair: opened {tuple(opened.shape)}, own {tuple(own.shape)} and partner {tuple(partner.shape)} "
            "do not fit: expected [S, 2, D], [R, 2, D] and [M, 2]"
        )
    width, each, m = geometry["width"], geometry["E"], partner.shape[0]
    grid = (-(-d // (width * each)) * width, m, 1)
    return Launch({"S": s, "D": d, "E": each}, grid, (width, 1, 1), ((m, d),), (mx.bfloat16,))


def compress_pair(opened: mx.array, own: mx.array, partner: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](opened, own, partner, backend=backend)[0]


KERNELS = (
    Kernel(
        name="compress_pair",
        path=Path(__file__).with_name("compress_pair.metal"),
        inputs=("opened", "own", "partner"),
        outputs=("y",),
        geometries=({"width": 128, "E": 1}, {"width": 32, "E": 4}, {"width": 64, "E": 2}),
        plan=plan,
    ),
)
