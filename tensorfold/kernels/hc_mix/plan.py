"""hc_dots: the arrays it takes, and the launch. Knows no sublayer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.kernel import Geometry, Kernel, Launch

CHUNK = 512


def plan_hc_dots(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """x [R, N, D] bfloat16, fn [M, N D] float32 -> part [R, ceil(N D / 512), M + 1] float32."""
    x, fn = arrays
    k, m, rows = int(np.prod(x.shape[1:])), fn.shape[0], x.shape[0]
    if tuple(fn.shape) != (m, k):
        raise ValueError(f"hc_dots: fn has shape {tuple(fn.shape)}, expected {(m, k)} for streams {tuple(x.shape)}")
    chunks, groups, each = -(-k // CHUNK), geometry["G"], geometry["B"]
    # rows of a threadgroup share fn; only a divisor of R needs no test for rows beyond the last
    height = max(h for h in range(1, min(rows, geometry["height"]) + 1) if rows % h == 0)
    grid = (-(-chunks * -(-(m + 1) // each) // groups) * 32 * groups, rows, 1)
    template = {"K": k, "M": m, "G": groups, "B": each}
    return Launch(template, grid, (32 * groups, height, 1), ((rows, chunks, m + 1),), (mx.float32,))


def choose_hc_dots(backend: str, arrays: Sequence[Any]) -> int:
    """Few rows need every SIMD group there can be; the rows of a prompt are enough, and there x is read less often."""
    return 0 if arrays[0].shape[0] <= 16 else 1


def plan_hc_mix(arrays: Sequence[Any], geometry: Geometry, width: int, iterations: int = 20) -> Launch:
    """part [R, C, 25], base [24], scale [3], norm_eps [1], hc_eps [1] -> pre, post [R, 4], comb [R, 4, 4], all float32.

    `width` is the number of elements whose squares place 24 has summed, `iterations` those of the double normalisation.
    """
    part, base, scale = arrays[:3]
    if len(part.shape) != 3 or part.shape[2] != 25 or tuple(base.shape) != (24,) or tuple(scale.shape) != (3,):
        raise ValueError(
            f"hc_mix: part {tuple(part.shape)}, base {tuple(base.shape)} and scale {tuple(scale.shape)}, "
            "expected [R, C, 25], [24] and [3]"
        )
    if width < 1 or iterations < 1:
        raise ValueError(f"hc_mix: width {width} and iterations {iterations} must be at least 1")
    rows = part.shape[0]
    # only a divisor of R needs no test for rows beyond the last
    height = max(h for h in range(1, min(rows, geometry["height"]) + 1) if rows % h == 0)
    template = {"C": part.shape[1], "K": width, "ITERATIONS": iterations}
    shapes = ((rows, 4), (rows, 4), (rows, 4, 4))
    return Launch(template, (32, rows, 1), (32, height, 1), shapes, (mx.float32,) * 3)


def hc_dots(x: mx.array, fn: mx.array, *, backend: str) -> mx.array:
    """Launched on what `plan_hc_dots` describes."""
    return KERNELS[0](x, fn, backend=backend)[0]


KERNELS = (
    Kernel(
        name="hc_dots",
        path=Path(__file__).with_name("hc_dots.metal"),
        inputs=("x", "fn"),
        outputs=("part",),
        geometries=(
            {"G": 4, "height": 4, "B": 1},
            {"G": 5, "height": 4, "B": 5},
            {"G": 1, "height": 16, "B": 1},
            {"G": 2, "height": 8, "B": 4},
        ),
        plan=plan_hc_dots,
        choose=choose_hc_dots,
    ),
)
