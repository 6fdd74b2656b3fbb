"""moe_leave and moe_leave_dots: float64 truths and bounds. Knows no launch.

Source: docs/model.md#experts and docs/model.md#hyper-connections. Truth and order: the two kernels' in turn.
"""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.kernel import Array
from tensorfold.proof.families.hc_post.reference import BOUNDS as OF_THE_STREAMS
from tensorfold.proof.families.hc_post.reference import WHY_DOTS, hc_post, post_magnitude, with_drift, with_products
from tensorfold.proof.families.moe_join.reference import BOUNDS as OF_THE_SUM
from tensorfold.proof.families.moe_join.reference import magnitude, moe_join
from tensorfold.proof.numerics.exact import f32, load, store_bf16, wide
from tensorfold.proof.proof import Bound


def joined(routed: Array, shared: Array, side: int = 0) -> Array:
    """The experts' sum rounded once; with `side` -1 or 1 the least or largest that the bound of moe_join allows."""
    bound = OF_THE_SUM["moe_join"]
    with np.errstate(all="ignore"):
        (y,) = moe_join(routed, shared)
        if side:
            (size,) = magnitude(routed, shared)
            y = y + side * (bound.absolute * size + bound.tiny)
        return store_bf16(y.astype(f32))


def moe_leave(routed: Array, shared: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """float64, with the published rounding between."""
    return hc_post(joined(routed, shared), x, post, comb)


def allowance(routed: Array, shared: Array, x: Array, post: Array, comb: Array) -> list[Array]:
    """What hc_post may be off beyond half a step, and a step of the rounding between where the sum crosses its edge."""
    (size,) = post_magnitude(joined(routed, shared), x, post, comb)
    with np.errstate(all="ignore"):
        step = load(joined(routed, shared, 1)).astype(np.float64) - load(joined(routed, shared, -1))
        return [OF_THE_STREAMS["hc_post"].absolute * size + np.abs(wide(post))[..., None] * step[:, None]]


def moe_leave_dots(routed: Array, shared: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    """float64, with the published roundings of the experts' sum and of the streams."""
    return with_products(moe_leave(routed, shared, x, post, comb)[0], fn)


def _dots_allowance(routed: Array, shared: Array, x: Array, post: Array, comb: Array, fn: Array) -> list[Array]:
    (out,) = moe_leave(routed, shared, x, post, comb)
    (error,) = allowance(routed, shared, x, post, comb)
    return with_drift(out, error + BOUNDS["moe_leave"].tiny, fn)


BOUNDS = {
    "moe_leave": Bound(
        "half a step of bfloat16 and the bound of hc_post; a step of the rounding between, times its weight, where "
        "the bound of moe_join reaches across an edge of that rounding",
        ulps=0.5,
        absolute=1.0,
        tiny=OF_THE_STREAMS["hc_post"].tiny,
        scale=allowance,
    ),
    "moe_leave_dots": Bound(WHY_DOTS, ulps=0.5, absolute=1.0, scale=_dots_allowance),
}
