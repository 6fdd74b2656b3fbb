"""SwiGLU with clamps and the routing weight before the rounding: kernel, truth, order, mistakes. Knows no expert.

Source: the model's specification, section 6: u clamped on both sides, g from above, float32, one rounding to bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import functions, inputs
from tensorfold.kernels.exact import f32, load, mul_flushed, store_bf16, wide
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


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


def reference(gate: Array, up: Array, weights: Array, limit: Array, weighted: bool = True) -> list[Array]:
    """float64 truth."""
    with np.errstate(all="ignore"):
        g = np.minimum(wide(gate), limit)
        t = g / (1 + np.exp(-g)) * np.clip(wide(up), -limit, limit)
        return [t * wide(weights)[..., None] if weighted else t]


def product(gate: Array, up: Array, most: np.float32) -> Array:
    """float32 before the weight: sigmoid, times g, times u."""
    g = np.minimum(gate, most)
    return mul_flushed(mul_flushed(g, functions.sigmoid(g)), np.clip(up, -most, most))


def stated(gate: Array, up: Array, weights: Array, limit: Array, weighted: bool = True) -> list[Array]:
    """float32: sigmoid, times g, times u, times the weight."""
    with np.errstate(all="ignore"):
        t = product(load(gate), load(up), f32(limit[0]))
        return [store_bf16(load(weights)[..., None] * t if weighted else t)]


def cases() -> list[Case]:
    """Every inner width and number of experts, with and without weights, both clamps, extremes, every bit pattern."""
    limit = np.array([10.0], f32)
    found = []
    for k, inner, rows in ((4, 64, 3), (2, 64, 3), (3, 96, 3), (2, 96, 3), (6, 128, 3), (3, 128, 2), (6, 2304, 1),
                           (3, 2304, 1)):  # fmt: skip
        draw = inputs.Draw(k * inner)
        gate, up = draw.bf16(rows, k, inner, scale=4.0), draw.bf16(rows, k, inner, scale=4.0)
        found.append(Case(f"k{k} I{inner}", (gate, up, draw.uniform(0.0, 1.5, rows, k), limit)))
    for inner in (64, 96, 128, 2304):
        draw = inputs.Draw(inner)
        gate, up = draw.bf16(2, inner, scale=8.0), draw.bf16(2, inner, scale=8.0)
        found.append(Case(f"shared I{inner}", (gate, up, limit, limit), {"weighted": False}))
    draw = inputs.Draw(1)
    for weighted in (True, False):
        gate, up = draw.bf16(16, 3, 80, scale=6.0), draw.bf16(16, 3, 80, scale=6.0)
        arrays = (gate, up, draw.uniform(0.0, 1.5, 16, 3), limit)
        found.append(Case(f"rows {weighted}", arrays, {"weighted": weighted}, rows=True))
    wild = inputs.extremes_bf16(160).reshape(16, 1, 160)
    found.append(Case("extreme gate", (wild, draw.bf16(16, 1, 160), draw.uniform(0.0, 1.5, 16, 1), limit)))
    found.append(Case("extreme up", (draw.bf16(16, 1, 160), wild, draw.uniform(0.0, 1.5, 16, 1), limit)))
    # many elements: a bfloat16 output hides the last bits of the products, so another order shows in few of them
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(16, 1, 4096)
    found.append(Case("every gate", (every, draw.bf16(16, 1, 4096), draw.uniform(0.0, 1.5, 16, 1), limit)))
    odd = np.array([[0.0, -0.0, 1e-40], [np.nan, np.inf, -1.0]], f32)
    found.append(Case("odd weights", (draw.bf16(2, 3, 64), draw.any_bf16(2, 3, 64), odd, limit)))
    return found


_HEADER = "swiglu.h"
# mistakes of the header, planted here for every kernel that includes it
CONTROLS = (
    Control("gate clamped from below only", "p_min(gate, most)", "p_max(gate, p_neg(most))", _HEADER),
    Control("up clamped from above only", "p_max(p_min(up, most), p_neg(most))", "p_min(up, most)", _HEADER),
    Control("clamp loses NaN", "p_min(gate, most)", "p_min(most, gate)", _HEADER),
    Control(
        "products in another order",
        "p_mulz(p_mulz(g, p_sigmoid(g)), u)",
        "p_mulz(g, p_mulz(p_sigmoid(g), u))",
        _HEADER,
    ),
)

KERNELS = (
    Kernel(
        name="swiglu_weighted",
        path=Path(__file__).with_name("swiglu_weighted.metal"),
        inputs=("gate", "up", "weights", "limit"),
        outputs=("y",),
        geometries=({"width": 256}, {"width": 128}, {"width": 32}),
        plan=plan,
        reference=reference,
        stated=stated,
        bound=Bound(
            "one rounding to bfloat16 (0.5 ulp); a sigmoid of 2 ulp (4 * 2^-24) and three rounded products, 8 * 2^-24 "
            "in all; below -87 the sigmoid is zero: 87 * 2^-126, times a limit of 10 and a weight of at most 2",
            ulps=0.5,
            relative=8 * 2.0**-24,
            tiny=2048 * 2.0**-126,
        ),
        controls=(
            Control(
                "weight after the rounding",
                "t = p_mul(p_load(weights[pair]), t)",
                "t = p_mul(p_load(weights[pair]), p_round_bf(t))",
            ),
            Control("weight of the next pair", "weights[pair]", "weights[pair + 1u]", backends=("host",)),
            Control("every pair has the first weight", "weights[pair]", "weights[0]"),
            *CONTROLS,
            Control("tail missed", "if (i >= uint(I)) return;", "if (i + 32u >= uint(I)) return;"),
            Control("edge threads kept", "if (i >= uint(I)) return;", "", backends=("host",)),
        ),
        cases=cases,
        row_inputs=("gate", "up", "weights"),
    ),
)
