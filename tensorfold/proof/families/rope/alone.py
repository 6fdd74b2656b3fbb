"""rope by itself: launched by no model, for rows turn on their way elsewhere. Here turn.h's mistakes are planted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.kernel import Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry, inverse: bool = False) -> Launch:
    """x [R, H, D] bfloat16, table [P, RD/2, 2] float32, positions [R] int32 -> y [R, H, D] bfloat16."""
    x, table, positions = arrays
    rows, heads, d = x.shape
    turned = 2 * table.shape[1]
    if turned > d or d % 2 or positions.shape != (rows,):
        raise ValueError(
            f"rope: x {tuple(x.shape)}, table {tuple(table.shape)} and positions {tuple(positions.shape)} do not fit"
        )
    width, height = geometry["width"], min(geometry["height"], heads)
    height = height if heads % height == 0 else 1
    grid = (-(-d // 2 // width) * width, heads, rows)
    template = {"H": heads, "D": d, "RD": turned, "INVERSE": inverse}
    return Launch(template, grid, (width, height, 1), ((rows, heads, d),), (mx.bfloat16,))


KERNELS = (
    Kernel(
        name="rope",
        path=Path(__file__).with_name("rope.metal"),
        inputs=("x", "table", "positions"),
        outputs=("y",),
        geometries=(
            {"width": 32, "height": 1},
            {"width": 32, "height": 8},
            {"width": 64, "height": 1},
            {"width": 256, "height": 1},
        ),
        plan=plan,
    ),
)
