"""What stands after the experts as one launch: join, then hc_post. Kernel, truth, stated order. Knows no routing.

Source: the model's specification, sections 6 and 3. Truth and order are those of the two kernels, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels import inputs, moe_join
from tensorfold.kernels.exact import f32, load, store_bf16, wide
from tensorfold.kernels.hc_post import post as hc_post
from tensorfold.kernels.kernel import Array, Bound, Case, Control, Geometry, Kernel, Launch


def plan(arrays: Sequence[Any], geometry: Geometry) -> Launch:
    """routed [R, K, D] bfloat16 in ascending expert id, shared [R, D] bfloat16, x [R, N, D] bfloat16,
    post [R, N] and comb [R, N, N] float32 -> out [R, N, D] bfloat16.
    """
    routed, shared, x, post, comb = arrays
    try:
        moe_join.plan((routed, shared), {"width": 32})
        spread = hc_post.plan((shared, x, post, comb), geometry)
    except ValueError as error:
        raise ValueError(f"moe_leave: {error}") from error
    template = {"D": x.shape[2], "N": x.shape[1], "K": routed.shape[1], "E": geometry["E"]}
    return Launch(template, spread.grid, spread.threadgroup, spread.shapes, (mx.bfloat16,))


def joined(routed: Array, shared: Array, side: int = 0) -> Array:
    """The experts' sum rounded once; with `side` -1 or 1 the least or largest that the bound of moe_join allows."""
    bound = moe_join.KERNELS[0].bound
    with np.errstate(all="ignore"):
        (y,) = moe_join.reference(routed, shared)
        if side:
            (size,) = moe_join.magnitude(routed, shared)
            y = y + side * (bound.absolute * size + bound.tiny)
        return store_bf16(y.astype(f32))


def reference(routed: Array, shared: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float64, with the published rounding between."""
    return hc_post.reference(joined(routed, shared), x, post, comb)


def stated(routed: Array, shared: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float32: the two kernels' orders, one after another."""
    (y,) = moe_join.stated(routed, shared)
    return hc_post.stated(y, x, post, comb)


def allowance(routed: Array, shared: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """What hc_post may be off beyond half a step, and a step of the rounding between where the sum crosses its edge."""
    (size,) = hc_post.magnitude(joined(routed, shared), x, post, comb)
    with np.errstate(all="ignore"):
        step = load(joined(routed, shared, 1)).astype(np.float64) - load(joined(routed, shared, -1))
        return [hc_post.KERNEL.bound.absolute * size + np.abs(wide(post))[..., None] * step[:, None]]


def cases() -> list[Case]:
    """Each case of hc_post behind one expert alone; each of moe_join beside streams, or with nothing added to it."""
    found = []
    for case in hc_post.cases():
        y, *streams = case.arrays
        alone = np.stack([y, np.zeros_like(y)], 1)
        found.append(Case(f"{case.name} of one", (alone, np.zeros_like(y), *streams), {}, case.rows, case.bounded))
    for seed, case in enumerate(moe_join.cases()):
        routed, shared = case.arrays
        draw = inputs.Draw(seed)
        rows, d = shared.shape
        post, comb = draw.uniform(0.0, 2.0, rows, 4), hc_post.doubly_normal(draw, rows)
        if "cancel" in case.name or case.name == "tiny":
            # the sum is the output: nothing hides its order or its size
            post, comb = np.ones_like(post), np.zeros_like(comb)
        found.append(Case(case.name, (routed, shared, draw.bf16(rows, 4, d), post, comb), {}, case.rows, case.bounded))
    return found


KERNEL = Kernel(
    name="moe_leave",
    path=Path(__file__).with_name("moe_leave.metal"),
    inputs=("routed", "shared", "x", "post", "comb"),
    outputs=("out",),
    geometries=hc_post.KERNEL.geometries,
    plan=plan,
    reference=reference,
    stated=stated,
    bound=Bound(
        "half a step of bfloat16 and the bound of hc_post; a step of the rounding between, times its weight, where "
        "the bound of moe_join reaches across an edge of that rounding",
        ulps=0.5,
        absolute=1.0,
        tiny=hc_post.KERNEL.bound.tiny,
        scale=allowance,
    ),
    controls=(
        *hc_post.ROW_CONTROLS,  # mistakes inside a part are planted where it stands alone
        Control("sum not rounded between", "p_round_bf(joined", "(joined"),
        Control("another row's mix", "ulong(row) * uint(N * N)", "ulong(row / 2u) * uint(N * N)"),
    ),
    cases=cases,
    row_inputs=("routed", "shared", "x", "post", "comb"),
)
