"""embed: the arrays it takes, and the launch. Knows no tokenizer.

Source: docs/model.md#forward, step 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """ids [R] int32 in 0..V-1, table [V, D] bfloat16 -> y [R, D] bfloat16."""
    ids, table = arrays
    if len(ids.shape) != 1 or len(table.shape) != 2:
        raise ValueError(f"embed: ids {tuple(ids.shape)} and table {tuple(table.shape)}, expected [R] and [V, D]")
    rows, d, width = ids.shape[0], table.shape[1], geometry["width"]
    return Launch({"D": d}, (-(-d // width) * width, rows, 1), (width, 1, 1), ((rows, d),), (mx.bfloat16,))


def embed(ids: mx.array, table: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan` describes."""
    return KERNELS[0](ids, table, backend=backend)[0]


KERNELS = (
    Kernel(
        name="embed",
        path=Path(__file__).with_name("embed.metal"),
        inputs=("ids", "table"),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 64}, {"width": 32}),
        plan=plan,
    ),
)
