"""moe_leave and moe_leave_dots: the arrays they take, and the launch. Knows no routing.

Source: docs/model.md#experts and docs/model.md#hyper-connections. Truth and order: the two kernels' in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from tensorfold.kernels.hc_post.plan import (
    GEOMETRIES,
    WITH_PRODUCTS,
    choose_hc_post_dots,
    plan_hc_post,
    streams_and_products,
)
from tensorfold.kernels.kernel import Geometry, Kernel, Launch
from tensorfold.kernels.moe_join.plan import plan as plan_moe_join


def plan_moe_leave(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """routed [R, K, D] bfloat16 in ascending expert id, shared [R, D] bfloat16, x [R, N, D] bfloat16,
    post [R, N] and comb [R, N, N] float32 -> out [R, N, D] bfloat16.
    """
    routed, shared, x, post, comb = arrays
    try:
        plan_moe_join((routed, shared), {"width": 32})
        spread = plan_hc_post((shared, x, post, comb), geometry)
    except ValueError as error:
        raise ValueError(f"moe_leave: {error}") from error
    template = {"D": x.shape[2], "N": x.shape[1], "K": routed.shape[1], "E": geometry["E"]}
    return Launch(template, spread.grid, spread.threadgroup, spread.shapes, (mx.bfloat16,))


def plan_moe_leave_dots(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """moe_leave's inputs, fn [M, N D] float32 -> out [R, N, D] bfloat16, part [R, ceil(N D / 512), M + 1] float32."""
    try:
        plan_moe_leave(arrays[:5], {"width": 32, "E": 1})
    except ValueError as error:
        raise ValueError(f"moe_leave_dots: {error}") from error
    return streams_and_products("moe_leave_dots", arrays[2], arrays[5], geometry, EXPERTS=arrays[0].shape[1])


def moe_leave(
    routed: mx.array, shared: mx.array, x: mx.array, post: mx.array, comb: mx.array, *, backend: str
) -> mx.array:
    """Launched on what `plan_moe_leave` describes."""
    return KERNELS[0](routed, shared, x, post, comb, backend=backend)[0]


def moe_leave_dots(
    routed: mx.array, shared: mx.array, x: mx.array, post: mx.array, comb: mx.array, fn: mx.array, *, backend: str
) -> tuple[mx.array, mx.array]:
    """Launched on what `plan_moe_leave_dots` describes."""
    out, part = KERNELS[1](routed, shared, x, post, comb, fn, backend=backend)
    return out, part


KERNELS = (
    Kernel(
        name="moe_leave",
        path=Path(__file__).with_name("moe_leave.metal"),
        inputs=("routed", "shared", "x", "post", "comb"),
        outputs=("out",),
        geometries=GEOMETRIES,
        plan=plan_moe_leave,
    ),
    Kernel(
        name="moe_leave_dots",
        path=Path(__file__).with_name("moe_leave_dots.metal"),
        inputs=("routed", "shared", "x", "post", "comb", "fn"),
        outputs=("out", "part"),
        geometries=WITH_PRODUCTS,
        plan=plan_moe_leave_dots,
        choose=choose_hc_post_dots,
    ),
)
